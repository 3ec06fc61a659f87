"""Means of bounded values, compared with recorded figures and with how often their intervals contain a known mean.

The cells of the whole table are in `benchmarks/coverage.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rubric_integrations import Submission
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.matching import Cluster, dependence_warnings, group_rows
from rubric_integrations.trust.means import (
    FOR_GATE,
    Groups,
    estimate_change,
    estimate_kappa_difference,
    estimate_mean,
    in_groups,
    kappa_influences,
    number_groups,
    widening,
)
from rubric_integrations.trust.statistics import cohen_kappa, level_distances

SKEWED = [0.9, 0.86, 0.84, 0.88, 0.0, 0.91, 0.85, 0.83, 0.87, 0.9] * 3
Rng = np.random.Generator


def grouped(totals: list[int], sizes: list[int]) -> tuple[list[float], Groups]:
    """Make the values 0 and 1 of groups, and the group of each value."""
    values = [float(place < total) for total, size in zip(totals, sizes, strict=True) for place in range(size)]
    return values, np.repeat(np.arange(len(sizes)), sizes)


def coverage(draw: Callable[[Rng], tuple[Estimate, float]], draws: int = 400) -> float:
    """Return how often an interval contains the truth."""
    cells = [draw(np.random.default_rng(seed)) for seed in range(draws)]
    return float(np.mean([e.low is not None and e.high is not None and e.low <= t <= e.high for e, t in cells]))


def failing_program(rng: Rng, count: int) -> np.ndarray:
    """Draw the scores of a program that gets about .86, and 0 for 7 % of its inputs."""
    scores = np.clip(rng.normal(0.86, 0.04, count), 0, 1)
    return np.where(rng.random(count) < 0.07, 0.0, scores)


@pytest.mark.parametrize(
    ("values", "low", "high"), [(SKEWED, 0.648023929, 0.859047505), ([0.7] * 20, 0.599116230, 0.743235901)]
)
def test_mean_of_independent_scores_has_the_recorded_limits(values: list[float], low: float, high: float) -> None:
    assert estimate_mean(values)[1:3] == pytest.approx((low, high), abs=1e-9)


def test_mean_of_a_gate_has_the_recorded_limit() -> None:
    assert estimate_mean(SKEWED, 0.9, imaginary=FOR_GATE).low == pytest.approx(0.663966763, abs=1e-9)


@pytest.mark.parametrize(
    ("totals", "sizes", "low", "high"),
    [
        ([8, 9, 4, 10, 7, 6, 9, 10, 3, 8], [10] * 10, 0.474690705, 0.894502464),
        ([25, 9, 4, 2, 7, 1, 0, 12], [30, 10, 5, 2, 8, 3, 2, 12], 0.441551588, 0.962377982),
    ],
)
def test_mean_of_rows_in_groups_has_the_recorded_limits(
    totals: list[int], sizes: list[int], low: float, high: float
) -> None:
    values, groups = grouped(totals, sizes)
    assert estimate_mean(values, groups=groups)[1:3] == pytest.approx((low, high), abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "low", "high"),
    [
        ([-1.0] * 200, -1, -0.968893945),
        ([0.0] * 50, -0.060622475, 0.060622475),
        ([0.0, 0.2, 0.0, 0.0, -0.1] * 5 + [0.0, 0.2, -0.8, 0.2, -0.1], -0.123036454, 0.109164188),
    ],
)
def test_change_has_the_recorded_limits(changes: list[float], low: float, high: float) -> None:
    """Recorded from the quantiles of `scipy.stats.pearson3` with the moments of the Dirichlet distribution."""
    assert estimate_change(changes)[1:3] == pytest.approx((low, high), abs=1e-9)


@pytest.mark.parametrize(("groups", "seen"), [(None, 30), (np.repeat(np.arange(50), 2), 100)])
@pytest.mark.parametrize("sign", [1, -1])
def test_rare_large_changes_that_a_sample_lacks_are_within_the_limits(
    groups: np.ndarray | None, seen: int, sign: int
) -> None:
    """Rows lose .028, and 3 % gain .9: 40 % of samples of 30 rows have no gain, and 5 % of samples of 50 pairs."""
    low, high = estimate_change([-0.028 * sign] * seen, 0.9, groups=groups, imaginary=FOR_GATE)[1:3]
    assert low is not None
    assert high is not None
    assert low < 0 < high


def test_kappa_of_rows_in_groups_has_the_recorded_limits() -> None:
    people, judge = ([int(digit) for digit in text] for text in ("11011010110111011001", "11010011110110011101"))
    table, apart = np.zeros((2, 2)), level_distances([0, 1])
    np.add.at(table, (people, judge), 1)
    times = widening(kappa_influences(people, judge, apart), np.repeat(np.arange(5), 4))
    assert times == pytest.approx(2.169788400, abs=1e-9)
    assert cohen_kappa(table / times, apart)[1:3] == pytest.approx((-0.075379226, 0.995825016), abs=1e-9)


def test_difference_of_kappas_of_independent_judgments_is_that_of_their_kappas() -> None:
    people, judge, other = [0, 1, 2] * 20, [0, 1, 2] * 15 + [1, 0, 0] * 5, [0, 1, 1] * 20
    apart = level_distances([0, 0.5, 1])
    estimate = estimate_kappa_difference(people, judge, other, apart, 0.95, None)
    tables = np.zeros((2, 3, 3))
    for table, answers in zip(tables, (judge, other), strict=True):
        np.add.at(table, (people, answers), 1)
    kappas = [cohen_kappa(table, apart).value or 0.0 for table in tables]
    assert estimate.value == pytest.approx(kappas[0] - kappas[1])
    undefined = estimate_kappa_difference([1] * 10, [1] * 10, [0, 1] * 5, level_distances([0, 1]), 0.95, None)
    assert undefined == Estimate(None, None, None, 10)


@pytest.mark.statistics
@pytest.mark.parametrize("other", ["equal", "constant"])
@pytest.mark.parametrize("size", [1, 8])
def test_difference_of_kappas_is_above_0_as_rarely_as_promised(other: str, size: int) -> None:
    """Two judges with the same kappa: both err in hard groups, or one guesses and the other is constant."""
    rng, count, seeds = np.random.default_rng(48), 40 * size if size > 1 else 150, 1000
    groups = np.arange(count) // size
    above = within = 0
    for _ in range(seeds):
        people = rng.random(count) < 0.35
        if other == "equal":
            errs = 0.3 + 0.4 * rng.random(groups[-1] + 1)[groups]
            one, two = (np.where(rng.random(count) < errs, rng.random(count) < 0.35, people) for _ in range(2))
        else:
            one, two = rng.random(count) < 0.5, np.zeros(count, bool)
        labels, first, second = (each.astype(int).tolist() for each in (people, one, two))
        of_rows = groups if size > 1 else None
        kappa = estimate_kappa_difference(labels, first, second, level_distances([0, 1]), 0.95, of_rows)
        assert kappa.low is not None
        assert kappa.high is not None
        above += kappa.low > 0
        within += kappa.low <= 0 <= kappa.high
    assert above / seeds <= 0.04
    assert within / seeds >= 0.93


def test_binary_scores_have_wilsons_interval_in_any_group_of_one() -> None:
    scores = [1.0, 0.0, 1.0, 1.0] * 5
    assert estimate_mean(scores) == estimate_mean(scores, groups=np.arange(20))
    assert estimate_mean(scores)[1:3] == pytest.approx((0.509961327, 0.896355841), abs=1e-9)


@pytest.mark.parametrize("count", [20, 50])
def test_mean_of_a_program_that_rarely_fails_is_contained(count: int) -> None:
    truth = float(failing_program(np.random.default_rng(0), 400_000).mean())
    assert coverage(lambda rng: (estimate_mean(failing_program(rng, count)), truth)) >= 0.94


def test_gate_at_the_threshold_passes_in_at_most_five_percent() -> None:
    truth = float(failing_program(np.random.default_rng(0), 400_000).mean())
    lows = [
        estimate_mean(failing_program(np.random.default_rng(seed), 50), 0.9, imaginary=FOR_GATE).low
        for seed in range(400)
    ]
    assert np.mean([low is not None and low > truth for low in lows]) <= 0.07


@pytest.mark.parametrize("sizes", [[10] * 10, [30, 20, 10, 10, 5, 5, 5, 5, 5, 5]])
def test_mean_of_rows_in_groups_is_contained(sizes: list[int]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)

    def draw(rng: Rng) -> tuple[Estimate, float]:
        # The intraclass correlation of these is .3.
        rates = rng.beta(0.8 * 7 / 3, 0.2 * 7 / 3, len(sizes))
        return estimate_mean((rng.random(len(groups)) < rates[groups]).astype(float), groups=groups), 0.8

    assert coverage(draw) >= 0.94


def test_picture_in_the_docs_shows_the_interval_of_rows_in_groups() -> None:
    values, groups = grouped([8, 9, 4, 10, 7, 6, 9, 10, 3, 8], [10] * 10)
    picture = (Path(__file__).resolve().parents[2] / "docs" / "groups.svg").read_text(encoding="utf-8")
    for name, of_rows in (("as 100 independent rows", None), ("as ten groups", groups)):
        estimate = estimate_mean(values, groups=of_rows)
        assert f"{name}: {estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]" in picture


def test_mean_of_fewer_than_five_groups_has_no_interval() -> None:
    values, groups = grouped([3, 4, 5, 6], [8] * 4)
    assert estimate_mean(values, groups=groups) == Estimate(18 / 32, None, None, 32)


def test_figure_of_fewer_than_five_groups_has_no_interval() -> None:
    groups = np.repeat(np.arange(4), 5)
    assert in_groups(Estimate(0.5, 0.4, 0.6, 20), np.zeros(20), groups) == Estimate(0.5, None, None, 20)


def test_groups_are_numbered_in_the_order_of_their_first_row() -> None:
    assert number_groups(["b", "a", "b", "c"]).tolist() == [0, 1, 0, 2]


def rows_of(ids: list[str], queries: list[str | None], topics: Sequence[Any] | None = None) -> list[GradedRow]:
    """Make rows without a grade."""
    return [
        GradedRow(
            row_id, Submission(response="x", query=query), None, None, metadata={"topic": topic} if topic else None
        )
        for row_id, query, topic in zip(ids, queries, topics or [None] * len(ids), strict=True)
    ]


def test_rows_are_grouped_by_a_column_a_query_an_id_or_a_function() -> None:
    rows = rows_of(["a/1", "a/2", "b/1", "b/1"], ["p", "q", "p", "p"], ["x", ["y"], "x", ["y"]])
    clusters: list[Cluster] = ["topic", "query", "id", lambda row_id: row_id.split("/")[0]]
    numbered = [group_rows(rows, cluster) for cluster in clusters]
    assert [groups.tolist() for groups in numbered if groups is not None] == [
        [0, 1, 0, 1], [0, 1, 0, 0], [0, 1, 2, 2], [0, 0, 1, 1],
    ]  # fmt: skip
    assert group_rows(rows, None) is None


def test_cluster_of_a_column_that_a_row_lacks_is_refused_with_the_known_ones() -> None:
    rows = rows_of(["a", "b"], [None, None], ["x", None])
    with pytest.raises(ValueError, match=r"'topic', and the row 'b' has no such column: it has `id`, `query`"):
        group_rows(rows, "topic")


@pytest.mark.parametrize("name", ["question", "Frage"])
def test_cluster_of_the_column_that_was_read_as_the_query_is_refused_with_its_name_in_the_run(name: str) -> None:
    with pytest.raises(ValueError, match=r"the tasks are in `query` and the ids in `id`, whatever their names in"):
        group_rows(rows_of(["a", "b"], ["p", "q"]), name)


def test_rows_with_one_id_or_one_query_are_named_without_a_cluster() -> None:
    by_id, by_query = rows_of(["a", "a", "b"], ["p"] * 3), rows_of(["a", "b", "c"], ["p", "p", "q"])
    assert "pass cluster='id' (in the shell --cluster id)" in dependence_warnings(by_id, None)[0]
    assert "such as 'p' on 2 rows" in dependence_warnings(by_query, None)[0]
    assert dependence_warnings(by_query, "query") == []


@pytest.mark.parametrize("name", ["context", "reference"])
@pytest.mark.parametrize(("equal", "is_named"), [(1, False), (2, True), (5, True), (6, False), (10, False)])
def test_rows_that_share_a_document_are_named_and_never_grouped(name: str, equal: int, is_named: bool) -> None:
    texts = [("same" if place < equal else f"other {place}") + " document" * 5 for place in range(10)]
    rows = [
        GradedRow(str(place), Submission.model_validate({"response": "x", name: text}), None, None)
        for place, text in enumerate(texts)
    ]
    warnings = dependence_warnings(rows, None)
    assert [f"{equal} of 10 rows share their `{name}`" in text for text in warnings] == ([True] if is_named else [])
    assert dependence_warnings(rows, "id") == []
    assert group_rows(rows, None) is None


def test_equal_short_references_say_nothing_about_their_rows() -> None:
    rows = [
        GradedRow(str(place), Submission(response="x", reference=("yes", "no", "B")[place % 3]), None, None)
        for place in range(12)
    ]
    assert dependence_warnings(rows, None) == []


def test_rows_of_one_query_or_of_different_ones_are_independent() -> None:
    assert dependence_warnings(rows_of(["a", "b"], ["p", "p"]), None) == []
    assert dependence_warnings(rows_of(["a", "b", "c"], ["p", "q", None]), None) == []
