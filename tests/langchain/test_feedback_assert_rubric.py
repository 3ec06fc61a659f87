"""`assert_rubric`: the failure message, the required score and the feedback in LangSmith's pytest plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langsmith import testing

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.langchain import assert_rubric
from tests.langchain.helpers import NUMBER_RUBRIC, chat_model, number_script, number_text
from tests.openai_server import OpenAIServer, Reply


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


def test_assert_rubric_does_not_count_a_score_without_its_answers() -> None:
    steps = {"requirement": "Is quick", "check": {"max_steps": 3}}  # fails without a trajectory
    rubric = Rubric([{"requirement": "Says 42", "check": {"number": 42}}, steps])
    report = rubric.grade_sync("It is 42.", PerCriterionGrader("offline", on_failure="abstain"))
    assert report.score == 1.0
    with pytest.raises(AssertionError, match=r"scored 1.000, not passed \(pass mark 0.8\): 1 without an answer"):
        assert_rubric(report, rubric)
    with pytest.raises(AssertionError, match=r"scored 1.000, which does not count: 1 without an answer"):
        assert_rubric(report, rubric, min_score=0.5)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The feedback that is logged, as in a test that is marked `langsmith`."""
    rows: list[dict[str, Any]] = []

    def log_feedback(feedback: dict[str, Any] | None = None, /, **fields: Any) -> None:
        # LangSmith's own function reads `score` or `value` of feedback without both, and fails.
        assert feedback or {"score", "value"} & set(fields)
        rows.append(feedback or fields)

    monkeypatch.setattr(testing, "log_feedback", log_feedback)
    return rows


def test_assert_rubric_in_a_langsmith_test_logs_every_criterion(
    rows: list[dict[str, Any]], server: OpenAIServer
) -> None:
    assert_rubric(number_text(30), NUMBER_RUBRIC, judge=chat_model(server, number_script))
    assert [(row["key"], row.get("score"), row.get("value")) for row in rows] == [
        ("rubric", 1.0, None),
        ("rubric.right", 1.0, None),
        ("rubric.sourced", None, "CANNOT_ASSESS"),
        ("rubric.rude", 1.0, None),
    ]


def test_assert_rubric_logs_no_criterion_that_was_not_asked(rows: list[dict[str, Any]]) -> None:
    required = {"requirement": "Says 42", "required": True, "check": {"number": 42}}
    grader = PerCriterionGrader("offline", stop_when_decided=True)
    with pytest.raises(AssertionError):
        assert_rubric("It is 41.", [required, {"requirement": "Is kind"}], grader=grader)
    assert [row["key"] for row in rows] == ["rubric", "rubric.c1"]


@pytest.mark.parametrize("on_failure", ["report", "raise"])
def test_assert_rubric_failed_criterion_is_logged_as_an_error_without_a_score(
    rows: list[dict[str, Any]], server: OpenAIServer, on_failure: Any
) -> None:
    model = chat_model(server, lambda call: Reply(status=401) if "source" in call.criterion else Reply())
    grader = PerCriterionGrader(model, max_retries=0, on_failure="raise")
    if on_failure == "raise":
        with pytest.raises(JudgeError):
            assert_rubric(number_text(6), NUMBER_RUBRIC, grader=grader)
    else:
        with pytest.raises(JudgeError) as failure:
            NUMBER_RUBRIC.grade_sync(number_text(6), grader=grader)
        with pytest.raises(AssertionError, match="NOT JUDGED"):
            assert_rubric(failure.value.report, NUMBER_RUBRIC)
    logged = {row["key"]: row for row in rows}
    assert logged["rubric.sourced"].items() >= {"error": True, "extra": {"error": True}}.items()
    assert "not judged: " in logged["rubric.sourced"]["comment"]
    assert logged["rubric"]["error"] is True
    for key in ("rubric", "rubric.sourced"):
        assert (logged[key].get("score"), logged[key].get("value")) == (None, None)


def test_assert_rubric_without_a_score_is_logged(rows: list[dict[str, Any]], server: OpenAIServer) -> None:
    grader = PerCriterionGrader(chat_model(server, lambda _call: Reply("CANNOT_ASSESS")))
    with pytest.raises(AssertionError, match="has no score"):
        assert_rubric(number_text(6), NUMBER_RUBRIC, grader=grader)
    assert rows[0] == {"key": "rubric", "score": None}
    assert {row.get("value") for row in rows[1:]} == {"CANNOT_ASSESS"}


@pytest.mark.processes
def test_assert_rubric_frames_are_hidden_in_pytest(tmp_path: Path) -> None:
    path = tmp_path / "test_text.py"
    path.write_text(
        "from rubric_integrations.langchain import assert_rubric\n"
        "RUBRIC = [{'weight': 1, 'requirement': 'Says 42', 'check': {'number': 42}}]\n"
        "def test_text():\n    assert_rubric('It is 41.', RUBRIC, judge='offline')\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", str(path)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout
    assert "does not state the number 42" in output
    assert "assert_rubric('It is 41.'" in output
    assert "assertion.py" not in output
