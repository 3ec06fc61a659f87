"""Figures of rows in groups that depend on each other, such as ten questions about one document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from rubric_integrations import Submission
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import EvaluationReport, LabelledJudgment
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust import (
    agreement,
    calibrate,
    choose_for_labels,
    find_disagreements,
    panel_report,
    plan_labels,
    reliability,
)
from rubric_integrations.trust.corrections import RatedRow, estimate_share, labelled_mean, recall_by_verdict
from rubric_integrations.trust.matching import Match
from rubric_integrations.trust.means import intraclass_correlation
from rubric_integrations.trust.measure import measure_criterion, pool_kappa
from tests.trust.panels import panel_run
from tests.trust.runs import binary_rubric, labels_of, report_of, run_of

Rng = np.random.Generator
VERDICTS = ("UNMET", "MET")
ONE, FIVE = binary_rubric(), binary_rubric(5)
ENTRIES = [[report_of(FIVE, [verdict] * 5).criteria[number] for verdict in VERDICTS] for number in range(5)]
LABELS = [
    [LabelledJudgment(submission=Submission(response="x"), criterion=criterion, verdict=verdict, sampled="random")
     for verdict in VERDICTS]
    for criterion in FIVE.criteria
]  # fmt: skip


def matches_of(people: np.ndarray, judge: np.ndarray, criterion: int = 0) -> list[Match]:
    """Make the labelled judgments of a criterion: row by row, 0 for UNMET and 1 for MET."""
    return [
        Match(row, FIVE.criteria[criterion], ENTRIES[criterion][f], (LABELS[criterion][y],))
        for row, (y, f) in enumerate(zip(people.tolist(), judge.tolist(), strict=True))
    ]


def answers_in_groups(
    rng: Rng, groups: np.ndarray, rate: float = 0.7, right: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """Draw human labels and the judge's answers. Both rates have the intraclass correlation .3."""
    rates, shares = (rng.beta(mean * 7 / 3, (1 - mean) * 7 / 3, groups.max() + 1)[groups] for mean in (rate, right))
    people = (rng.random(len(groups)) < rates).astype(int)
    return people, np.where(rng.random(len(groups)) < shares, people, 1 - people)


def contains(estimate: Estimate | None, truth: float) -> bool:
    if estimate is None or estimate.low is None or estimate.high is None:
        return False
    return estimate.low <= truth <= estimate.high


def coverage(draw: Callable[[Rng], Sequence[tuple[Estimate | None, float]]], draws: int = 120) -> np.ndarray:
    """Return how often the interval of each figure contains its truth."""
    return np.mean([[contains(*cell) for cell in draw(np.random.default_rng(seed))] for seed in range(draws)], axis=0)


@pytest.mark.statistics
def test_agreement_in_ten_groups_is_contained_as_often_as_promised() -> None:
    groups = np.repeat(np.arange(10), 10)
    met = 0.7 * 0.8 + 0.3 * 0.2
    kappa = 1 - 0.2 / (0.7 * (1 - met) + 0.3 * met)

    def draw(rng: Rng) -> list[tuple[Estimate | None, float]]:
        row = measure_criterion(matches_of(*answers_in_groups(rng, groups)), groups=groups)
        recalls = [(row.sensitivity, 0.8), (row.specificity, 0.8)]
        return [(row.accuracy, 0.8), (row.kappa, kappa), (row.bias, met - 0.7), *recalls]

    assert (coverage(draw) >= 0.92).all()


def test_calibrated_figures_in_twenty_groups_are_contained_as_often_as_promised() -> None:
    groups = np.repeat(np.arange(20), 20)

    def draw(rng: Rng) -> list[tuple[Estimate | None, float]]:
        people, judge = answers_in_groups(rng, groups)
        labelled = rng.choice(400, 100, replace=False).tolist()
        judged = {row: VERDICTS[answer] for row, answer in enumerate(judge)}
        rated = [RatedRow(row, judged[row], float(people[row])) for row in labelled]
        mean = labelled_mean(people[labelled].tolist(), labelled, judge.astype(float), groups=groups)
        return [(estimate_share(judged, rated, groups=groups), 0.7), (mean.estimate, 0.7)]

    assert (coverage(draw) >= 0.92).all()


def test_kappa_pooled_over_criteria_respects_submissions() -> None:
    truth = 1 - 0.2 / (0.7 * 0.38 + 0.3 * 0.62)

    def draw(rng: Rng) -> list[tuple[Estimate | None, float]]:
        # The five judgments of a submission have the correlation .6.
        rates, shares = (rng.beta(mean * 2 / 3, (1 - mean) * 2 / 3, (20, 1)) for mean in (0.7, 0.8))
        people = (rng.random((20, 5)) < rates).astype(int)
        judge = np.where(rng.random((20, 5)) < shares, people, 1 - people)
        matches = [match for number in range(5) for match in matches_of(people[:, number], judge[:, number], number)]
        return [(pool_kappa([], matches, level=0.95, groups=np.arange(20)), truth)]

    assert coverage(draw)[0] >= 0.9  # .94 of 2,000 draws; as independent judgments, .71


@pytest.mark.parametrize(("rate", "right"), [(0.7, 0.8), (0.9, 0.9)])
def test_specificity_by_labels_drawn_by_verdict_is_contained_as_often_as_promised(rate: float, right: float) -> None:
    def draw(rng: Rng) -> list[tuple[Estimate | None, float]]:
        people = rng.random(500) < rate
        judge = np.where(rng.random(500) < right, people, ~people).astype(int)
        judged = {row: VERDICTS[answer] for row, answer in enumerate(judge)}
        drawn = np.concatenate([rng.choice(np.flatnonzero(judge == each), 20, replace=False) for each in (0, 1)])
        rated = [RatedRow(row, judged[row], float(not people[row])) for row in drawn.tolist()]
        return [(recall_by_verdict(judged, rated, "UNMET"), right)]

    assert coverage(draw)[0] >= 0.92


def test_specificity_of_labels_by_verdict_has_an_interval() -> None:
    judge = [["MET"]] * 10 + [["UNMET"]] * 10 + [["MET"]] * 80
    people = [["MET"]] * 10 + [["MET"], ["UNMET"]] * 5
    row = agreement(run_of(ONE, judge), labels_of(ONE, people, "by_verdict")).criteria["c0"]
    assert row.specificity is not None
    assert row.specificity[:1] == (1.0,)
    assert row.specificity.low is not None
    assert 0.1 < row.specificity.low < 0.3  # up to a fifth of the 90 MET may be UNMET, by ten labels
    assert row.sensitivity is not None
    assert row.sensitivity.value == pytest.approx(90 / 95)
    assert row.sensitivity.low is not None


def topic_run(topics: Sequence[str]) -> list[GradedRow]:
    """Make a run whose rows have a topic in their metadata."""
    answers: Sequence[Sequence[str]] = [["MET" if number % 4 else "UNMET"] for number in range(len(topics))]
    rows = run_of(ONE, answers)
    return [row._replace(metadata={"topic": topic}) for row, topic in zip(rows, topics, strict=True)]


@pytest.mark.parametrize(("number", "warning"), [(4, "too few groups (4)"), (8, "few groups (8)"), (12, None)])
def test_few_groups_have_wide_intervals_and_fewer_have_none(number: int, warning: str | None) -> None:
    run = topic_run([f"topic {index % number}" for index in range(96)])
    labels = labels_of(ONE, [["MET" if number % 5 else "UNMET"] for number in range(96)])
    measured, corrected = agreement(run, labels, cluster="topic"), calibrate(run, labels, cluster="topic")
    alone = agreement(run, labels)
    row = measured.criteria["c0"]
    estimates = [row.accuracy, row.kappa, row.bias, row.sensitivity, measured.accuracy, measured.scores.bias]
    estimates += [corrected.score, corrected.criteria["c0"].rate]
    for estimate in estimates:
        assert estimate is not None
        assert (estimate.value is not None, estimate.low is None) == (True, number < 5)
    for result in (measured, corrected):
        assert [text for text in result.warnings if "few groups" in text] == (
            [next(text for text in result.warnings if text.startswith(warning))] if warning else []
        )
    if number >= 5:
        assert row.kappa.low is not None
        assert alone.criteria["c0"].kappa.low is not None
        assert row.kappa.low < alone.criteria["c0"].kappa.low


def test_every_figure_names_dependent_rows_and_takes_a_cluster() -> None:
    panel = panel_run(ONE, [[["MET"], ["MET"], ["UNMET"]], [["MET"], ["UNMET"], ["UNMET"]]] * 20)
    people: Sequence[Sequence[str]] = [["MET"]] * 30 + [["UNMET"]] * 10
    stated = [row._replace(report=with_confidence(row.report)) for row in run_of(ONE, [["MET"], ["UNMET"]] * 20)]
    for run, figures in ((panel, [panel_report]), (stated, [agreement, calibrate, reliability])):
        rows = [row._replace(submission=query_of(row)) for row in run]
        labels = labels_of(ONE, people)
        for figure in figures:
            alone, clustered = figure(rows, labels), figure(rows, labels, cluster="query")
            assert any("pass cluster='query'" in text for text in alone.warnings)
            assert not any("pass cluster=" in text for text in clustered.warnings)

    def grouped(row_id: str) -> int:
        return int(row_id) // 20

    report = panel_report(panel, labels_of(ONE, people), cluster=grouped)
    assert (report.panel.accuracy.low, report.judges["a"].adds.low, report.judges["b"].panel_gain.low) == (None,) * 3
    few = reliability(stated, labels_of(ONE, people), cluster=grouped)
    assert (few.accuracy.low, few.brier.low, few.bins[0].accuracy.low) == (None, None, None)
    (row,) = find_disagreements(stated, labels_of(ONE, people), cluster=grouped)
    assert (row.kappa.low, row.bias.low, row.p_value) == (None, None, None)
    (row,) = find_disagreements(stated, labels_of(ONE, people), cluster=lambda row_id: int(row_id) % 8)
    assert row.p_value is not None
    assert row.bias.low is not None
    assert (row.p_value < 0.05) is not (row.bias.low <= 0)


def query_of(row: GradedRow) -> Submission:
    """Return the submission of a row with one of ten queries."""
    return Submission(response=f"response {row.id}", query=f"query {int(row.id) % 10}")


def with_confidence(report: EvaluationReport | None) -> EvaluationReport:
    assert report is not None
    entries = tuple(entry.model_copy(update={"confidence": 0.9}) for entry in report.criteria)
    return report.model_copy(update={"report": entries})


def test_draw_for_labels_covers_groups_and_gives_each_row_the_same_chance() -> None:
    topics = [topic for number, topic in enumerate("abcdefghij") for _ in range(2 + 4 * (number % 5))]
    run = topic_run(topics)
    chances: Counter[int] = Counter()
    for seed in range(300):
        drawn = choose_for_labels(run, 20, cluster="topic", seed=seed)
        assert len({item.row for item in drawn}) == 20
        # A group with a share of 1/20 of the rows or more is in every draw.
        assert {topics[item.row] for item in drawn} >= set("bcdeghij")
        chances.update(item.row for item in drawn)
    assert max(abs(chances[row] / 300 - 20 / len(run)) for row in range(len(run))) < 0.12
    by_verdict = choose_for_labels(run, 10, by_verdict=True, cluster="topic")
    assert Counter(item.judged for item in by_verdict) == {"MET": 10, "UNMET": 10}
    assert len({topics[item.row] for item in by_verdict if item.judged == "MET"}) >= 7


def test_plan_for_rows_in_groups_needs_more_labels_and_more_groups() -> None:
    def plan(half_width: float, **groups: float) -> int | None:
        return plan_labels(half_width, judged=1000, rate=0.8, **groups)

    assert plan(0.1) == 59
    assert plan(0.1, groups=100, icc=0.3) == 74
    assert plan(0.1, groups=10, icc=0.3) is None
    with pytest.raises(ValueError, match="`icc` must be in"):
        plan(0.1, groups=10, icc=3)
    with pytest.raises(ValueError, match="`groups` must be at least 2"):
        plan(0.1, groups=1)


def test_intraclass_correlation_equals_the_recorded_one() -> None:
    texts = ["1111", "01", "0000", "111", "0100"]
    groups, values = np.array([(group, int(value)) for group, text in enumerate(texts) for value in text]).T
    assert intraclass_correlation(values, groups) == pytest.approx(0.647713226, abs=1e-9)
    assert intraclass_correlation([1.0, 0.0], np.arange(2)) is None
