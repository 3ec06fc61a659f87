"""Labels that a judge was aligned with say nothing about it: nothing measures it by them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Submission
from rubric_integrations.graders import TextLimits
from rubric_integrations.judges.protocol import has_label_in
from rubric_integrations.reporting.page.trust_figures import trust_figures
from rubric_integrations.runs import GradedRow, RunFile
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.scoring.labels import judgment_digest
from rubric_integrations.submission import Step, Trajectory
from rubric_integrations.trust import agreement, calibrate, choose_for_labels, compare_runs, gate
from rubric_integrations.trust.matching import match_labels
from tests.fakes import FakeExplorer, FakeJudge
from tests.trust.runs import binary_rubric, labels_of, run_of

ONE, TWO = binary_rubric(), binary_rubric(2)
# People say MET to every second one. The judge agrees on the first 40, which it was aligned with; elsewhere it says MET
# to three of four.
PEOPLE = [["MET"], ["UNMET"]] * 80
JUDGE = PEOPLE[:40] + [["MET"], ["UNMET"], ["MET"], ["MET"]] * 30


def trained_on(rows: Sequence[GradedRow], places: Collection[int], criteria: Collection[int] = (0,)) -> list[GradedRow]:
    """Mark judgments as those that the judge was aligned with."""
    marked: list[GradedRow] = []
    for place, row in enumerate(rows):
        if row.report is not None and place in places:
            entries = [
                entry.model_copy(update={"trained_on": index in criteria})
                for index, entry in enumerate(row.report.criteria)
            ]
            row = row._replace(report=row.report.model_copy(update={"report": tuple(entries)}))  # noqa: PLW2901
        marked.append(row)
    return marked


RUN = trained_on(run_of(ONE, JUDGE), range(40))
LABELS = labels_of(ONE, PEOPLE[:120])


def test_agreement_leaves_out_the_labels_that_the_judge_was_aligned_with() -> None:
    total = agreement(RUN, LABELS)
    assert total.labels == 80
    assert total.accuracy.value == pytest.approx(0.75)
    assert any(
        "aligned with 40 of the labels: they say nothing about it, and are left out" in w for w in total.warnings
    )
    # Without the mark, the judge seems better than it is.
    seeming = agreement(run_of(ONE, JUDGE), LABELS).accuracy.value
    assert seeming is not None
    assert seeming > 0.8


@pytest.mark.parametrize("sampled", ["random", "by_verdict"])
def test_calibration_is_about_the_rest_of_the_run(sampled: Any) -> None:
    labels = labels_of(ONE, PEOPLE[:120], sampled)
    result = calibrate(RUN, labels)
    rate = result.criteria["c0"].rate
    assert rate is not None
    # All rows with the errors of the others would give 0.46.
    assert (rate.value, rate.n) == (pytest.approx(0.5), 80)
    assert result.criteria["c0"].judge_rates["MET"] == pytest.approx(0.75)
    assert result.judge_score == pytest.approx(0.75)
    assert any("labels of 40 submissions: the figures are about the other 120" in text for text in result.warnings)
    if sampled == "random":
        assert (result.score.value, result.score.n) == (pytest.approx(0.5), 80)


def test_judgment_of_another_criterion_of_the_same_submission_still_counts() -> None:
    rows = trained_on(run_of(TWO, [["MET", "UNMET"]] * 20), range(10))
    matched = match_labels(rows, labels_of(TWO, [["MET", "UNMET"]] * 20))
    assert (len(matched.matches), len(matched.trained_on)) == (30, 10)
    # A score has the answer to both, so that it is left out with either.
    assert calibrate(rows, labels_of(TWO, [["MET", "UNMET"]] * 20)).score.n == 10


def test_comparison_corrects_by_inputs_that_neither_judge_was_aligned_with() -> None:
    before = run_of(ONE, [["UNMET"]] * 160, text="earlier")
    labels = [*labels_of(ONE, [["UNMET"]] * 120, text="earlier"), *LABELS]
    result = compare_runs(before, RUN, labels=labels)
    assert result.corrected is not None
    assert (result.corrected.value, result.corrected.n) == (pytest.approx(0.5), 80)
    assert any("aligned with 40 of the labels" in text for text in result.warnings)


def test_gate_decides_by_the_other_labels() -> None:
    result = gate(RUN, 0.4, labels=LABELS)
    assert result.score.n == 80
    assert any("aligned with 40 of the labels" in text for text in result.warnings)
    with pytest.raises(ValueError, match=r"a gate needs 50.*aligned with 40 of the labels"):
        gate(RUN, 0.4, labels=LABELS[:60])


MEASURES: dict[str, Callable[[list[LabelledJudgment]], object]] = {
    "agreement": lambda labels: agreement(RUN, labels),
    "calibrate": lambda labels: calibrate(RUN, labels),
    "compare_runs": lambda labels: compare_runs(run_of(ONE, JUDGE, text="earlier"), RUN, labels=labels),
    "gate": lambda labels: gate(RUN, 0.4, labels=labels),
}


@pytest.mark.parametrize("name", MEASURES)
def test_labels_that_all_shaped_the_judge_measure_nothing(name: str) -> None:
    with pytest.raises(ValueError, match="aligned with all 40 labels that belong to this run"):
        MEASURES[name](LABELS[:40])


def test_page_says_why_there_are_no_figures_and_leaves_out_what_is_known() -> None:
    run = RunFile("run", None, None, RUN)
    problem = trust_figures([run], LABELS[:40]).problem
    assert problem is not None
    assert "aligned with all 40 labels" in problem
    trust = trust_figures([run], LABELS)
    assert trust.agreement is not None
    assert trust.agreement.labels == 80
    assert {int(case.id) for case in trust.disagreements} <= set(range(41, 121))


def test_people_are_not_asked_again_about_what_the_judge_was_aligned_with() -> None:
    drawn = choose_for_labels(RUN, 200)
    assert len({judgment.row for judgment in drawn}) == 120
    assert min(judgment.row for judgment in drawn) == 40


@pytest.mark.parametrize("with_trajectory", [True, False])
async def test_label_of_a_run_is_one_of_its_explored_question_and_not_of_another_run(with_trajectory: bool) -> None:
    runs = [
        Submission(
            response="Done.",
            query="Build it.",
            trajectory=Trajectory(steps=tuple(Step(role="tool", text=f"{word} {n} {'x' * 99}") for n in range(30))),
        )
        for word in ("first", "second")
    ]
    judges = [FakeJudge(), FakeJudge()]
    limits = TextLimits(explorer=FakeExplorer([("submit", {"steps": [7]})]), explore_above=99, step_limit=50)
    for submission, judge in zip(runs, judges, strict=True):
        await ONE.grade(submission, grader=PerCriterionGrader(judge, text_limits=limits))
    # Digests of earlier versions do not tell runs with equal answers apart.
    seen = frozenset([judgment_digest(runs[0], ONE.criteria[0], with_trajectory=with_trajectory)])
    assert [has_label_in(seen, judge.questions[0]) for judge in judges] == [True, not with_trajectory]
