"""The result of one row, and the summary of a run."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.runs import Graded, RunSummary
from rubric_integrations.scoring import JudgeFailure, Judgment
from rubric_integrations.submission import Row
from tests.runs.scripted import SMALL_RUBRIC, InstantJudge


class MixedJudge(InstantJudge):
    """Fails on one response, and abstains from another."""

    async def judge(self, question: Question) -> Judgment:
        if "fail" in question.submission.response:
            raise JudgeFailure("config", "no such model")
        if "unclear" in question.submission.response:
            return Judgment(verdict="CANNOT_ASSESS", value=None)
        return await super().judge(question)


@pytest.fixture(scope="module")
def results() -> list[Graded]:
    submissions = ["good", "bad", "unclear", "fail", " "]
    return list(grade_many(submissions, SMALL_RUBRIC, PerCriterionGrader(MixedJudge())))


def test_summary_counts_grades_abstentions_failures_and_ungradable_rows(results: list[Graded]) -> None:
    summary = RunSummary()
    for graded in results:
        summary = summary.with_result(graded)
    assert (summary.submissions, summary.graded, summary.failed, summary.ungradable) == (5, 3, 1, 1)
    assert (summary.abstentions, summary.scored, summary.score_sum, summary.mean_score) == (3, 2, 1.0, 0.5)


def test_repr_of_a_result_is_one_line(results: list[Graded]) -> None:
    assert repr(results[0]) == "Graded(id='1', score=1.0, passed=True)"
    assert repr(results[2]) == "Graded(id='3', score=None, passed=False)"
    assert "score=None, error='" in repr(results[3])
    assert "no such model" in repr(results[3])
    assert repr(results[4]).startswith("Graded(id='5', score=None, error='row 5: `response` is empty")


def test_summary_without_a_score_has_no_mean() -> None:
    assert RunSummary().with_result(Graded(Row("1", None, "row 1: empty"), None)).mean_score is None


def test_line_of_a_row_with_a_failure_has_its_judgments_and_no_score(results: list[Graded]) -> None:
    line = results[3].to_dict()
    assert (line["id"], line["score"], line["passed"]) == ("4", None, False)
    assert "no such model" in line["error"]
    assert len(line["report"]) == 3
    assert results[3].score is None


def test_line_of_an_ungradable_row_has_the_reason(results: list[Graded]) -> None:
    line = results[4].to_dict()
    assert (line["submission"], line["score"], line["passed"]) == (None, None, False)
    assert "nothing to grade" in line["error"]


def test_summary_has_the_mean_score_of_each_tag_over_the_rows_that_have_one() -> None:
    def criteria(*tags: str) -> list[dict[str, Any]]:
        return [{"requirement": f"States {tag}", "check": {"contains": tag}, "tags": [tag]} for tag in tags]

    rows = [{"response": "a", "rubric": criteria("a", "b")}, {"response": "a b", "rubric": criteria("b")}]
    run = grade_many(rows, None, PerCriterionGrader("offline"))
    assert [graded.score for graded in run] == [0.5, 1.0]
    assert run.summary.tags == {"a": 1.0, "b": 0.5}


def test_summary_of_a_run_with_endless_tags_is_bounded() -> None:
    tags = [f"t{number}" for number in range(1500)]
    criteria = [{"requirement": "States a", "check": {"contains": "a"}, "tags": tags}]
    run = grade_many(["a"], criteria, PerCriterionGrader("offline"))
    assert [graded.score for graded in run] == [1.0]
    assert len(run.summary.tags) == 1000
