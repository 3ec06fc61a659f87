"""The price list, whose loading must not count against the timeout of a judgment."""

from __future__ import annotations

import time

import pytest
from dspy.clients import model_metadata

from rubric_integrations import PerCriterionGrader
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge
from tests.graders.rubrics import rubric_of
from tests.openai_server import OpenAIServer


def test_price_list_that_loads_slowly_does_not_end_a_judgment(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = model_metadata._load()  # pyright: ignore[reportPrivateUsage]
    loads = 0

    def load_slowly() -> object:
        nonlocal loads
        if model_metadata._data is None:  # pyright: ignore[reportPrivateUsage]
            loads += 1
            time.sleep(0.6)
            monkeypatch.setattr(model_metadata, "_data", prices)
        return prices

    monkeypatch.setattr(model_metadata, "_data", None)
    monkeypatch.setattr(model_metadata, "_load", load_slowly)
    judge = LMJudge("openai/gpt-4.1", api_base=server.url)
    grader = PerCriterionGrader(judge, max_retries=0, limits=CallLimits(timeout=0.4))
    assert rubric_of(2).grade_sync("text", grader=grader).score == 1.0
    assert loads >= 1
