"""Labels are matched with the judgments of a run that they are about."""

from __future__ import annotations

import pytest

from rubric_integrations import Criterion, Rubric, Submission
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.trust.matching import match_labels
from tests.trust.runs import binary_rubric, labels_of, report_of, run_of


def label_of(submission: Submission, criterion: Criterion, verdict: str = "MET", **fields: str) -> LabelledJudgment:
    return LabelledJudgment.model_validate(
        {"submission": submission, "criterion": criterion, "verdict": verdict, "sampled": "random", **fields}
    )


def test_label_of_a_criterion_with_an_operator_is_matched() -> None:
    rubric = Rubric([Criterion(requirement="Paris is in France", name="fact", operator="supports")])
    rows = run_of(rubric, [["MET"]])
    matches, unmatched, *_ = match_labels(rows, labels_of(rubric, [["MET"]]))
    assert (len(matches), unmatched) == (1, [])


@pytest.mark.parametrize("row_id", ["1", None])
def test_label_without_the_query_and_the_documents_of_its_row_is_matched_by_its_response(row_id: str | None) -> None:
    # The report page exports no documents, and a table of labels may lack the query.
    rubric = binary_rubric()
    graded = Submission(response="It is 42.", query="6 x 7?", context=("A document.",))
    rows = [GradedRow("1", graded, report_of(rubric, ["MET"]), None)]
    same = label_of(Submission(response="It is 42."), rubric.criteria[0]).model_copy(update={"id": row_id})
    other = label_of(Submission(response="It is 42.", query="7 x 6?"), rubric.criteria[0], id="1")
    matches, unmatched, *_ = match_labels(rows, [same, other])
    assert [match.labels for match in matches] == [(same,)]
    assert unmatched == [other]


def test_later_label_of_one_rater_counts_and_unnamed_raters_who_differ_are_different_people() -> None:
    rubric = binary_rubric()
    rows = run_of(rubric, [["MET"], ["MET"]])
    submission, criterion = Submission(response="response 1"), rubric.criteria[0]
    answers = [("Ana", "MET"), ("Ben", "MET"), ("Ana", "UNMET")]
    labels = [label_of(submission, criterion, verdict, rater=rater) for rater, verdict in answers]
    unnamed = [label_of(submission, criterion)] * 2
    others = [label_of(Submission(response="response 2"), criterion, verdict) for verdict in ("MET", "UNMET")]
    match, _ = match_labels(rows, [*labels, *unnamed, *others]).matches
    assert [(label.rater, label.verdict) for label in match.labels] == [
        ("Ben", "MET"),
        ("Ana", "UNMET"),
        (None, "MET"),
        (None, "MET"),
    ]


def test_samples_with_equal_texts_are_matched_by_id_and_without_ids_with_the_first() -> None:
    rubric = binary_rubric()
    submission = Submission(response="Yes.", query="Sure?")
    rows = [GradedRow(name, submission, report_of(rubric, [verdict]), None) for name, verdict in
            [("a", "MET"), ("b", "UNMET"), ("c", "MET")]]  # fmt: skip
    with_ids = [label_of(submission, rubric.criteria[0], id=row.id) for row in rows]
    assert [match.row for match in match_labels(rows, with_ids).matches] == [0, 1, 2]
    without = [label_of(submission, rubric.criteria[0], rater=rater) for rater in ("Ana", "Ben")]
    (match,) = match_labels(rows, without).matches
    assert (match.row, len(match.labels)) == (0, 2)


def test_label_without_an_id_that_may_belong_to_several_rows_is_not_matched() -> None:
    rubric = binary_rubric()
    submissions = [Submission(response="Yes.", query=query) for query in ("Is it safe?", "Is it toxic?")]
    rows = [GradedRow(str(n), each, report_of(rubric, ["MET"]), None) for n, each in enumerate(submissions)]
    vague = label_of(Submission(response="Yes."), rubric.criteria[0])
    precise = label_of(submissions[1], rubric.criteria[0])
    matches, unmatched, *_ = match_labels(rows, [vague, precise])
    assert ([match.row for match in matches], unmatched) == ([1], [vague])
