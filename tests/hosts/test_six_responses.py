"""The six responses have the scores that the tests of every framework expect."""

from __future__ import annotations

import pytest

from rubric_integrations import grade_many
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader


def test_six_responses_have_four_scores_an_abstention_and_a_failure() -> None:
    rows = [{"id": row.id, "query": QUERY, "response": row.response} for row in ROWS]
    graded = list(grade_many(rows, RUBRIC, make_grader()))
    assert [row.score for row in graded] == [score if score is None else pytest.approx(score) for *_, score in ROWS]
    reports = {row.row.id: row.report for row in graded if row.report}
    assert [reports[name].cannot_assess_count for name in ("right", "unclear")] == [0, 1]
    assert reports["failing"].failed_count == 3
