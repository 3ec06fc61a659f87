"""What each judge of a panel is worth: figures, what a judge adds, and weights that are measured on other labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.inter_rater import fleiss_kappa as statsmodels_fleiss

from rubric_integrations import Criterion, Option, Rubric
from rubric_integrations.graders import Voting
from rubric_integrations.scoring import EvaluationReport
from rubric_integrations.trust import panel_report, suggest_weights
from rubric_integrations.trust.statistics import fleiss_kappa
from tests.trust.panels import panel_run
from tests.trust.runs import binary_rubric, labels_of, run_of

ONE, TWO = binary_rubric(), binary_rubric(2)
VERDICTS = ("UNMET", "MET")
MET, UNMET = ["MET"], ["UNMET"]
LOST: list[str | None] = [None]


Votes = list[list[list[str]]]


def simulate(
    accuracies: list[float], submissions: int, seed: int = 0, alike: float = 0.0
) -> tuple[Votes, list[list[str]]]:
    """Return the votes of judges and people's answers; in a share of submissions all judges answer like the first."""
    rng = np.random.default_rng(seed)
    truth = rng.random(submissions) < 0.5
    answers = [np.where(rng.random(submissions) < accuracy, truth, ~truth) for accuracy in accuracies]
    copied = rng.random(submissions) < alike
    answers = [np.where(copied, answers[0], answer) for answer in answers]
    votes = [[[VERDICTS[int(answer[row])]] for answer in answers] for row in range(submissions)]
    return votes, [[VERDICTS[int(met)]] for met in truth]


def test_each_judge_is_measured_by_its_own_votes() -> None:
    run = panel_run(ONE, [[MET, MET, UNMET], [MET, UNMET, UNMET], [UNMET, UNMET, UNMET], [MET, MET, MET]] * 10)
    report = panel_report(run, labels_of(ONE, [MET, UNMET, MET, MET] * 10))
    assert [judge.accuracy.value for judge in report.judges.values()] == [0.5, 0.75, 0.5]
    assert report.panel.accuracy.value == 0.75
    assert report.judges["a"].criteria["c0"].confusion == ((0, 10), (10, 20))
    assert report.judges["a"].criteria["c0"].bias.value == 0.0
    assert report.judges["c"].criteria["c0"].bias.value == -0.5
    # Without `a`, the tie of the first row is UNMET, which is wrong; without `b`, too. `c` changes nothing.
    assert {name: judge.adds.value for name, judge in report.judges.items()} == {"a": 0.25, "b": 0.25, "c": 0.0}
    assert report.judges["a"].panel_gain.value == 0.25
    assert report.judges["c"].adds.low == pytest.approx(-report.judges["c"].adds.high)  # type: ignore[operator]
    assert report.criteria["c0"].strategy == "majority"


def test_judge_that_is_better_alone_and_one_that_harms_are_named() -> None:
    # `a` is always right, `b` half of the time, and `c` errs wherever `b` does, and elsewhere, too.
    votes = [[MET, MET, MET], [MET, UNMET, UNMET], [UNMET, UNMET, UNMET], [UNMET, UNMET, MET]] * 20
    report = panel_report(panel_run(ONE, votes), labels_of(ONE, [MET, MET, UNMET, UNMET] * 20))
    text = report.summary()
    assert "judges that are significantly better alone than the panel: a\n" in text
    assert "judges that significantly add right answers: none, by these labels" in text
    assert "without which" not in text
    harmful = panel_run(ONE, [[UNMET, UNMET, MET], [MET, UNMET, MET], [UNMET, UNMET, MET]] * 20)
    text = panel_report(harmful, labels_of(ONE, [UNMET] * 60)).summary()
    assert "judges without which the panel is significantly better: a, c\n" in text


def test_votes_are_repeated_by_the_strategy_of_the_run() -> None:
    any_met = panel_run(ONE, [[MET, UNMET, UNMET], [UNMET, UNMET, UNMET]] * 5, Voting(binary="any"))
    report = panel_report(any_met, labels_of(ONE, [MET, UNMET] * 5))
    assert report.criteria["c0"].strategy == "any"
    assert [judge.adds.value for judge in report.judges.values()] == [0.5, 0.0, 0.0]
    weighted = Voting(binary="weighted", weights=(5.0, 1.0, 1.0))
    report = panel_report(panel_run(ONE, [[MET, UNMET, UNMET]] * 4 + [[UNMET, MET, MET]], weighted))
    assert report.criteria["c0"].strategy == "weighted"


def test_verdicts_that_no_strategy_gives_are_not_guessed() -> None:
    rows = panel_run(ONE, [[MET, MET, MET], [MET, MET, UNMET]])
    assert rows[1].report is not None
    entry = rows[1].report.criteria[0].model_copy(update={"verdict": "CANNOT_ASSESS", "value": None})
    rows[1] = rows[1]._replace(report=rows[1].report.model_copy(update={"report": (entry,)}))
    report = panel_report(rows, labels_of(ONE, [MET, MET]))
    assert report.criteria["c0"].strategy is None
    assert report.judges["a"].adds.value is None
    assert "no strategy explains the votes on `c0`" in report.warnings[-1]


def test_without_labels_the_judges_are_compared_with_each_other() -> None:
    votes, _ = simulate([0.9, 0.8, 0.7], 200)
    report = panel_report(panel_run(ONE, votes))
    counts = [[sum(vote == [verdict] for vote in row) for verdict in VERDICTS] for row in votes]
    assert report.criteria["c0"].fleiss_kappa == pytest.approx(statsmodels_fleiss(np.array(counts)))
    assert report.panel.accuracy.value is None
    assert report.effective_judges is None
    assert "accuracy" not in report.summary()
    assert "agreement among the judges (alpha): c0" in report.summary()


def test_fleiss_kappa_equals_the_reference_and_is_undefined_if_all_answers_are_the_same() -> None:
    rng = np.random.default_rng(5)
    units = [rng.integers(0, 4, 5).tolist() for _ in range(60)]
    counts = np.array([np.bincount(unit, minlength=5) for unit in units])
    assert fleiss_kappa(units, 5) == pytest.approx(statsmodels_fleiss(counts))  # the fifth level is unused
    assert fleiss_kappa([[1, 1, 1]] * 9, 2) is None


def test_abstention_is_a_gap_among_judges_and_no_top_level() -> None:
    options = [Option(label="bad", value=0.0), Option(label="n/a", value=0.0, na=True), Option(label="good", value=1.0)]
    rubric = Rubric([Criterion(requirement="How good?", name="q", options=options)])
    votes = [[["bad"], ["bad"], ["n/a"]], [["good"], ["good"], ["n/a"]]] * 10
    report = panel_report(panel_run(rubric, votes), labels_of(rubric, [["bad"], ["good"]] * 10))
    assert report.criteria["q"].alpha == 1.0
    assert report.criteria["q"].fleiss_kappa is None  # no submission was decided by all
    assert (report.judges["c"].abstained, report.judges["c"].coverage) == (20, 0.0)
    assert report.judges["c"].accuracy.value is None
    assert report.judges["c"].adds.value == 0.0


def test_failures_are_counted_and_a_judge_that_answers_where_others_fail_adds_that() -> None:
    run = panel_run(ONE, [[LOST, LOST, MET], [MET, MET, MET], [LOST, LOST, LOST], [MET, MET, MET]] * 5)
    report = panel_report(run, labels_of(ONE, [MET] * 20))
    assert [judge.failed for judge in report.judges.values()] == [10, 10, 5]
    assert report.judges["c"].adds.value == pytest.approx(0.25)
    assert report.panel.failed == 5
    assert report.panel.accuracy.value == 1.0
    assert report.panel.accuracy.low is not None
    assert report.panel.accuracy.low < 0.85


def test_effective_judges_of_copies_are_one_and_of_independent_judges_all() -> None:
    votes, people = simulate([0.8, 0.8, 0.8], 60, alike=1.0)
    copies = panel_report(panel_run(ONE, votes), labels_of(ONE, people))
    assert copies.effective_judges == pytest.approx(1.0)
    assert copies.error_correlations["a"]["c"] == pytest.approx(1.0)
    votes, people = simulate([0.8, 0.8, 0.8], 250)
    independent = panel_report(panel_run(ONE, votes), labels_of(ONE, people))
    assert independent.effective_judges == pytest.approx(3.0, abs=0.3)


def test_judge_without_an_error_has_no_correlation() -> None:
    report = panel_report(panel_run(ONE, [[MET, MET], [MET, UNMET]] * 8), labels_of(ONE, [MET] * 16))
    assert report.error_correlations == {"a": {"b": None}, "b": {"a": None}}
    assert (report.error_correlation, report.effective_judges) == (None, None)


def test_what_a_judge_adds_is_unknown_if_others_were_not_asked() -> None:
    run = panel_run(ONE, [[MET, MET, [""]], [MET, UNMET, MET]] * 6)
    report = panel_report(run, labels_of(ONE, [MET] * 12))
    assert [judge.adds.value for judge in report.judges.values()] == [None, None, 0.5]
    assert any("one after another" in warning for warning in report.warnings)
    assert [judge.votes for judge in report.judges.values()] == [12, 12, 6]


def test_criterion_of_one_judge_is_no_part_of_the_panel() -> None:
    rubric = Rubric([*ONE.criteria, Criterion(requirement="Alone", name="alone", judge="b", weight=1.0)])
    run = panel_run(rubric, [[["MET", ""], ["MET", "UNMET"]]] * 5)
    assert list(panel_report(run).criteria) == ["c0"]


def test_run_of_one_judge_is_refused() -> None:
    with pytest.raises(ValueError, match="the run has no votes"):
        panel_report(run_of(ONE, [MET]))


def test_labels_by_verdict_are_left_out_with_a_warning() -> None:
    run = panel_run(ONE, [[MET, MET, UNMET]] * 20)
    labels = labels_of(ONE, [MET] * 10) + labels_of(ONE, [MET] * 20, "by_verdict")[10:]
    report = panel_report(run, labels)
    assert (report.labels, report.panel.accuracy.n) == (10, 10)
    assert "10 labelled judgments are left out" in report.warnings[0]


def test_report_without_answers_of_an_earlier_version_needs_the_rubric() -> None:
    rubric = Rubric([Criterion(requirement="How good?", name="q", scale={"min": 0, "max": 3})])  # type: ignore[arg-type]
    rows = panel_run(rubric, [[["1"], ["2"], ["3"]]] * 3)
    reports = [EvaluationReport.model_validate(_without_scale(row.report)) for row in rows if row.report]
    with pytest.raises(ValueError, match="pass the rubric"):
        panel_report(reports)
    assert panel_report(reports, rubric=rubric).criteria["q"].strategy == "mean"


def _without_scale(report: EvaluationReport) -> dict[str, object]:
    fields = report.model_dump()
    for entry in fields["report"]:
        del entry["scale"]
    return fields


def test_table_and_page_have_a_row_for_each_judge_and_names_are_escaped() -> None:
    run = panel_run(ONE, [[MET, MET, UNMET]] * 5)
    report = panel_report(run, labels_of(ONE, [MET] * 5))
    assert report.to_dataframe()["judge"].tolist() == ["a", "b", "c", "panel"]
    renamed = report.model_copy(update={"judges": {"<b>": report.judges["a"]}})
    assert "&lt;b&gt;" in renamed._repr_html_()  # pyright: ignore[reportPrivateUsage]


def test_weights_are_log_odds_and_measured_on_other_submissions() -> None:
    votes, people = simulate([0.95, 0.7, 0.7, 0.6, 0.6], 400, seed=1)
    run, labels = panel_run(ONE, votes), labels_of(ONE, people)
    suggested = suggest_weights(run, labels)
    assert suggested == suggest_weights(run, labels)
    assert suggested.trained_on + suggested.gain.n == 400
    odds = {name: math.log(p / (1 - p)) for name, p in suggested.accuracies.items()}
    assert suggested.weights == pytest.approx({name: value / odds["a"] for name, value in odds.items()})
    assert suggested.is_better
    assert suggested.gain.value == pytest.approx(suggested.weighted.value - suggested.equal.value)  # type: ignore[operator]
    assert suggested.voting.weights == tuple(suggested.weights.values())
    assert suggest_weights(run, labels, seed=1).accuracies != suggested.accuracies


@pytest.mark.statistics
def test_equal_judges_get_no_weights_that_seem_better() -> None:
    better = 0
    for seed in range(20):
        votes, people = simulate([0.8, 0.8, 0.8], 60, seed=seed, alike=0.5)
        suggested = suggest_weights(panel_run(ONE, votes), labels_of(ONE, people), seed=seed)
        better += suggested.is_better
        assert ("equal weights are as good" in suggested.summary()) is not suggested.is_better
    assert better <= 2


def test_judge_that_is_mostly_wrong_gets_the_least_weight_and_a_warning() -> None:
    votes, people = simulate([0.9, 0.2, 0.8], 100)
    suggested = suggest_weights(panel_run(ONE, votes), labels_of(ONE, people))
    assert suggested.weights["b"] == 0.01
    assert any("`b`: right in no more than half" in warning for warning in suggested.warnings)
    votes, people = simulate([0.3, 0.2, 0.3], 60)
    useless = suggest_weights(panel_run(ONE, votes), labels_of(ONE, people))
    assert set(useless.weights.values()) == {1.0}


def test_weights_need_labels_of_two_submissions() -> None:
    run = panel_run(TWO, [[["MET", "MET"], ["MET", "UNMET"]]] * 3)
    with pytest.raises(ValueError, match="at least two submissions"):
        suggest_weights(run, labels_of(TWO, [["MET", "MET"]]))
    with pytest.raises(ValueError, match="at least two submissions"):
        suggest_weights(run_of(TWO, [["MET", "MET"]] * 3), labels_of(TWO, [["MET", "MET"]] * 3))
