"""`calibrate` corrects the figures of a run, and refuses labels that cannot correct them."""

from __future__ import annotations

import random

import pytest

from rubric_integrations import Criterion, Rubric
from rubric_integrations.rubric import Check
from rubric_integrations.scoring import EvaluationReport
from rubric_integrations.trust import ChosenLabelsError, calibrate, calibrate_rate, choose_for_labels
from tests.trust.runs import binary_rubric, labels_of, run_of

RUBRIC = binary_rubric(3)


def lenient_run(count: int, labelled: int) -> tuple[list[list[str | None]], list[list[str | None]], float]:
    """Return the judge's answers, people's answers to the first rows, and people's true mean score."""
    rng = random.Random(3)
    people = [[rng.choice(["MET", "UNMET"]) for _ in range(3)] for _ in range(count)]
    judge = [[a if a == "MET" or rng.random() < 0.7 else "MET" for a in row] for row in people]
    truth = sum(row.count("MET") for row in people) / (3 * count)
    return [list(row) for row in judge], [list(row) for row in people[:labelled]], truth


def test_corrected_score_is_nearer_to_the_truth_than_the_judges() -> None:
    judge, people, truth = lenient_run(600, 80)
    result = calibrate(run_of(RUBRIC, judge), labels_of(RUBRIC, people))
    assert result.judge_score is not None
    assert result.score.value is not None
    assert result.judge_score - truth > 0.1
    assert result.score.low is not None
    assert result.score.high is not None
    assert result.score.low < truth < result.score.high < result.judge_score
    assert result.labels_saved is not None
    assert 0.2 < result.labels_saved < 0.9
    rate = result.criteria["c0"].rate
    assert rate is not None
    assert rate.low is not None
    assert rate.high is not None
    truth_of_first = sum(row[0] == "MET" for row in people) / 80
    assert rate.low < truth_of_first < rate.high
    assert result.criteria["c0"].judge_rates["MET"] > truth_of_first


def test_labels_drawn_by_verdict_correct_rates_and_not_the_mean() -> None:
    judge, people, _ = lenient_run(60, 30)
    result = calibrate(run_of(RUBRIC, judge), labels_of(RUBRIC, people, "by_verdict"))
    assert result.score.value is None
    assert result.criteria["c1"].rate is not None
    assert "drawn by the judge's verdict" in result.warnings[0]


def test_abstentions_of_the_judge_are_a_stratum_of_their_own() -> None:
    rubric = binary_rubric()
    judge = [["CANNOT_ASSESS"]] * 10 + [["MET"]] * 10
    people = [["UNMET"]] * 10 + [["MET"]] * 10
    rate = calibrate(run_of(rubric, judge), labels_of(rubric, people)).criteria["c0"].rate
    assert rate is not None
    assert rate.value == 0.5


def test_criteria_with_a_check_are_not_drawn_and_need_no_label() -> None:
    checked = Criterion(requirement="Is short", name="short", weight=1.0, check=Check(max_words=9))
    rubric = Rubric([*binary_rubric().criteria, checked])
    run = run_of(rubric, [["MET", "MET"], ["UNMET", "MET"], ["MET", "MET"]])
    for by_verdict in (False, True):
        assert {item.criterion for item in choose_for_labels(run, 3, by_verdict=by_verdict)} == {"c0"}
    labels = list(labels_of(rubric, [["MET", None], ["MET", None], ["UNMET", None]]))
    assert calibrate(run, labels).score.n == 3
    # Reports of earlier versions do not mark what code answered.
    earlier = [row._replace(report=_without_marks(row.report)) for row in run if row.report]
    assert calibrate(earlier, labels).score.value is None
    assert calibrate(earlier, labels, rubric=rubric).score.n == 3


def test_run_of_checks_alone_has_nothing_to_label() -> None:
    rubric = Rubric([Criterion(requirement="Is short", name="short", check=Check(max_words=9))])
    with pytest.raises(ValueError, match="no answers of a judge"):
        choose_for_labels(run_of(rubric, [["MET"]]), 1)
    marked = run_of(rubric, [["MET"]])[0].report
    assert marked is not None
    assert EvaluationReport.model_validate(marked.model_dump(mode="json")) == marked


def _without_marks(report: EvaluationReport) -> EvaluationReport:
    entries = tuple(entry.model_copy(update={"computed": False}) for entry in report.criteria)
    return report.model_copy(update={"report": entries})


def test_chosen_labels_and_labels_of_another_run_are_refused() -> None:
    run = run_of(RUBRIC, [["MET"] * 3])
    with pytest.raises(ChosenLabelsError):
        calibrate(run, labels_of(RUBRIC, [["MET"] * 3], "chosen"))
    other = labels_of(binary_rubric(), [["MET"]] * 3)[2:]
    with pytest.raises(ValueError, match="`calibrate_rate`"):
        calibrate(run, other)


def test_few_differences_between_people_and_judge_are_a_warning_for_scores_without_bounds() -> None:
    answers = [["MET", "UNMET", "MET"]] * 5 + [["UNMET", "MET", "MET"]] * 5
    rows = run_of(RUBRIC, answers)
    raw = [
        row._replace(report=row.report.model_copy(update={"score": row.report.raw_score})) for row in rows if row.report
    ]
    for run, expected in ((rows, False), (raw, True)):
        result = calibrate(run, labels_of(RUBRIC, answers))
        assert any("differ on fewer than 5" in warning for warning in result.warnings) is expected


@pytest.mark.parametrize("confusion", [[[5, 5], [5, 5]], [[1, 9], [9, 1]], [[0, 0], [5, 45]]])
def test_labels_from_elsewhere_of_a_useless_judge_are_refused(confusion: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="no better than chance"):
        calibrate_rate({"MET": 620, "UNMET": 380}, confusion)


def test_scores_that_do_not_follow_from_the_criteria_are_not_corrected_and_rates_are() -> None:
    run = run_of(RUBRIC, [["MET", "UNMET", "MET"]])
    report = run[0].report
    assert report is not None
    changed = [run[0]._replace(report=report.model_copy(update={"score": 0.2}))]
    result = calibrate(changed, labels_of(RUBRIC, [["MET", "UNMET", "MET"]]))
    assert result.score.value is None
    assert "pass the run's `rubric`" in result.warnings[0]
    assert result.criteria["c0"].rate is not None


def test_summary_and_table_of_a_notebook_have_the_judges_figures_and_peoples() -> None:
    judge, people, _ = lenient_run(200, 60)
    result = calibrate(run_of(RUBRIC, judge), labels_of(RUBRIC, people))
    text, html = result.summary(), result._repr_html_()  # pyright: ignore[reportPrivateUsage] -- notebooks call it
    assert text.startswith(f"Mean score: {result.judge_score:.3f} by the judge, {result.score} by human labels.")
    rate = result.criteria["c1"].rate
    assert f"c1: MET {rate}, by the judge {result.criteria['c1'].judge_rates['MET']:.3f}" in text
    assert text.endswith(result.warnings[-1])
    assert f'<td style="text-align:left;vertical-align:top">{rate}</td>' in html


def test_summary_of_figures_that_are_undefined_has_no_number() -> None:
    judge, people, _ = lenient_run(60, 30)
    by_verdict = calibrate(run_of(RUBRIC, judge), labels_of(RUBRIC, people, "by_verdict"))
    assert "; these labels do not correct it." in by_verdict.summary()
    failed = calibrate(run_of(RUBRIC, [[None] * 3] * 2), labels_of(RUBRIC, [["MET"] * 3]))
    assert failed.summary().startswith("The run has no mean score.")
    assert "by the judge undefined" in failed.summary()
    assert "None" not in failed.summary()
    evil = Rubric([Criterion(requirement="Is kind", name="<script>", weight=1.0)])
    page = calibrate(run_of(evil, [["MET"]]), labels_of(evil, [["MET"]]))._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "<script>" not in page
