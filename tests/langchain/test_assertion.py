"""`assert_rubric`: the failure message, the required score and the feedback in LangSmith's pytest plugin."""

from __future__ import annotations

from typing import Any

import pytest
from langsmith import testing

from rubric_integrations import PerCriterionGrader
from rubric_integrations.langchain import assert_rubric
from tests.langchain.helpers import NUMBER_RUBRIC, chat_model, number_script, number_text
from tests.openai_server import OpenAIServer


def test_assert_rubric_failing_text_raises_with_the_unmet_criteria(server: OpenAIServer) -> None:
    grader = PerCriterionGrader(chat_model(server, number_script))
    assert assert_rubric(number_text(6), NUMBER_RUBRIC, grader=grader).passed
    with pytest.raises(AssertionError) as raised:
        assert_rubric(number_text(7), NUMBER_RUBRIC, grader=grader)
    assert str(raised.value).splitlines() == [
        "scored 0.000, not passed (pass mark 0.8)",
        "- right (weight 6) UNMET: Gives the right product: as scripted",
        "- sourced (weight 4) UNMET: Names its source: as scripted",
    ]


def test_assert_rubric_min_score_replaces_the_pass_mark(server: OpenAIServer) -> None:
    report = NUMBER_RUBRIC.grade_sync(number_text(4), grader=PerCriterionGrader(chat_model(server, number_script)))
    assert assert_rubric(report, NUMBER_RUBRIC, min_score=0.6) is report
    with pytest.raises(AssertionError, match=r"scored 0.600, below 0.7"):
        assert_rubric(report, NUMBER_RUBRIC, min_score=0.7)


def test_assert_rubric_in_a_langsmith_test_logs_every_criterion(
    monkeypatch: pytest.MonkeyPatch, server: OpenAIServer
) -> None:
    rows: list[dict[str, Any]] = []

    def log_feedback(**fields: Any) -> None:
        rows.append(fields)

    monkeypatch.setattr(testing, "log_feedback", log_feedback)
    assert_rubric(number_text(30), NUMBER_RUBRIC, judge=chat_model(server, number_script))
    assert [(row["key"], row.get("score"), row.get("value")) for row in rows] == [
        ("rubric", 1.0, None),
        ("rubric.right", 1.0, None),
        ("rubric.sourced", None, "CANNOT_ASSESS"),
        ("rubric.rude", 0.0, None),
    ]
