"""Which runs can be compared: those that grade each row by the same criteria."""

from __future__ import annotations

from rubric_integrations.trust.comparison import rubric_mismatch
from tests.reporting.page.runs import FIRST, SECOND, own_rubrics, run_of


def test_rows_with_their_own_rubrics_match_if_each_row_has_the_same_in_both_runs() -> None:
    first, second = own_rubrics("first", 3, "MET"), own_rubrics("second", 5, "UNMET")
    assert rubric_mismatch([first]) == rubric_mismatch([first, second]) == rubric_mismatch([FIRST, SECOND]) == ""


def test_row_with_another_requirement_in_the_second_run_does_not_match() -> None:
    mismatch = rubric_mismatch([own_rubrics("first", 3, "MET"), own_rubrics("second", 3, "MET", words="Clearly: ")])
    assert (
        mismatch == "the row 's0' has the criterion `c1` 'Clearly: Says 0.1' (weight 3) in only one of first and second"
    )


def test_criterion_with_another_weight_in_the_second_run_is_named_with_both_weights() -> None:
    runs = [own_rubrics("first", 3, "MET"), own_rubrics("second", 3, "MET")]
    rows = []
    for row in runs[1].rows:
        assert row.report is not None
        criteria = tuple(c.model_copy(update={"weight": c.weight - 10}) for c in row.report.criteria)
        rows.append(row._replace(report=row.report.model_copy(update={"report": criteria})))
    mismatch = rubric_mismatch([runs[0], runs[1]._replace(rows=rows)])
    assert "the row 's0' has the criterion `c" in mismatch
    assert mismatch.endswith(" with the weights 3 and -7 in first and second")


def test_row_that_is_twice_in_a_run_with_other_criteria_does_not_match() -> None:
    run = own_rubrics("own", 2, "MET")
    assert "in only one of its rows in own" in rubric_mismatch(
        [run._replace(rows=[r._replace(id="a") for r in run.rows])]
    )


def test_runs_without_a_common_row_match_if_they_have_a_rubric_in_common() -> None:
    others = SECOND._replace(rows=[row._replace(id=f"other {row.id}") for row in SECOND.rows])
    assert rubric_mismatch([FIRST, others]) == ""
    assert rubric_mismatch([FIRST, run_of("none")]) == ""
    own = own_rubrics("own", 2, "MET")
    moved = own._replace(rows=[row._replace(id=f"other {row.id}") for row in own.rows])
    assert rubric_mismatch([FIRST, moved]) == "first and own have no row and no rubric in common"
