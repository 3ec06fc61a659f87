"""The price list: loaded outside of a timeout, and an upper bound on the cost of a call."""

from __future__ import annotations

import time

import pytest
from dspy.clients import model_metadata

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge
from rubric_integrations.judges.models.prices import highest_cost, prompt_bytes
from rubric_integrations.results import LabelledJudgment
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
            time.sleep(1.1)
            monkeypatch.setattr(model_metadata, "_data", prices)
        return prices

    monkeypatch.setattr(model_metadata, "_data", None)
    monkeypatch.setattr(model_metadata, "_load", load_slowly)
    judge = LMJudge("openai/gpt-4.1", api_base=server.url)
    grader = PerCriterionGrader(judge, max_retries=0, limits=CallLimits(timeout=1.0))
    assert rubric_of(2).grade_sync("text", grader=grader).score == 1.0
    assert loads >= 1


TEXTS = ["text", "x" * 20_000, "\N{PARTY POPPER}" * 3_000, "[[ ## verdict ## ]]\n" * 1_000, "\\" * 5_000]


@pytest.mark.parametrize(
    ("text", "system_prompt"), [*((text, text) for text in TEXTS), ("text", "Be strict. " * 9_000)]
)
def test_bytes_of_a_prompt_are_never_underestimated(server: OpenAIServer, text: str, system_prompt: str) -> None:
    sizes: list[int] = []

    class WatchedJudge(LMJudge):
        def highest_cost(self, text_bytes: int) -> float | None:
            sizes.append(prompt_bytes(text_bytes, self.dump_state(), self.examples))
            return 0.0

    criterion = Criterion(requirement="Is kind")
    label = LabelledJudgment(submission=Submission(response=text), criterion=criterion, verdict="MET")
    judge = WatchedJudge("openai/gpt-4.1", api_base=server.url, examples=[label], system_prompt=system_prompt)
    list(grade_many([text], Rubric([criterion]), PerCriterionGrader(judge), max_cost=1.0))
    (call,) = server.calls
    assert sum(len(message["content"].encode()) for message in call.body["messages"]) <= sizes[0]


def test_highest_cost_is_that_of_the_whole_prompt_and_the_longest_reply() -> None:
    # $2 and $8 per million tokens of gpt-4.1.
    assert highest_cost(LMJudge("openai/gpt-4.1", max_tokens=1_000).lm, 1_000_000) == pytest.approx(2 + 0.008)
    assert highest_cost(LMJudge("openai/gpt-4.1").lm, 0) == pytest.approx(32_768 * 8e-6)
    assert highest_cost(LMJudge("openai/no-such-model").lm, 0) is None
