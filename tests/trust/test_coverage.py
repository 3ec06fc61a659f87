"""The table of `benchmarks/coverage.py`: what it simulates, and which cells it marks; with few draws, its figures."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from benchmarks.coverage import EXCUSES, FIGURES, INTERVALS, Cell, Design, Figure, Result, Sample, simulate
from rubric_integrations import redteam, trust
from rubric_integrations.scoring.labels import Estimate


def interval_fields() -> Iterator[str]:
    """Yield the fields of all records of `trust` and `redteam` that are intervals, or contain some."""

    def has_interval(annotation: Any) -> bool:
        return annotation is Estimate or any(map(has_interval, get_args(annotation)))

    for package in (trust, redteam):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, record in vars(import_module(module.name)).items():
                is_own = inspect.isclass(record) and record.__module__ == module.name
                if is_own and not name.startswith("_") and name not in ("Bounds", "ExpectedRange"):
                    for field, annotation in get_type_hints(record).items():
                        if has_interval(annotation) or (field == "low" and annotation is not Estimate):
                            yield f"{name}.{field}"


def test_each_interval_of_a_record_is_simulated() -> None:
    assert set(interval_fields()) == set(INTERVALS)
    assert set(INTERVALS.values()) <= {figure.name for figure in FIGURES}


@pytest.mark.parametrize(
    ("result", "promise", "is_broken"),
    [
        (Result(1836, 2000, 0.1), None, True),
        (Result(1842, 2000, 0.1), None, False),
        (Result(121, 2000, 0.1), 0.05, True),
        (Result(118, 2000, 0.1), 0.05, False),
    ],
)
def test_promise_is_broken_only_beyond_the_chance_of_the_draws(
    result: Result, promise: float | None, is_broken: bool
) -> None:
    assert result.is_broken(promise) is is_broken


def test_only_documented_cells_have_an_excuse() -> None:
    equal, unequal, few = Design(100, 10, 0.3), Design(100, 10, 0.3, False), Design(10, 5)
    assert [Cell("mean score", "beta(4, 1)", design).excuse for design in (equal, unequal, few)] == [None, "b", "c"]
    assert Cell("compare_runs: score", "3 % lose .9", Design(50)).excuse == "a"
    assert Cell("gate with a baseline", "3 % lose .9", Design(50)).excuse is None
    assert Cell("agreement: accuracy", "people .8, judge .85", Design(30)).excuse == "d"
    assert Cell("compare_runs: cautious", "3 % gain .9", Design(50)).excuse is None
    assert Cell("agreement: alpha of raters", "people .5, judge .85", equal).excuse == "e"
    assert {"a", "b", "c", "d", "e"} == set(EXCUSES)


def test_very_unequal_groups_are_excused_down_to_ninety_percent() -> None:
    cell = Cell("agreement: kappa", "people .8, judge .85", Design(500, 50, 0.3, False))
    assert [Result(count, 2000, 0.1).mark(cell) for count in (1890, 1830, 1760)] == ["", "b", "!"]


@pytest.mark.parametrize(("is_equal", "largest"), [(True, 10), (False, 30)])
def test_rows_are_in_groups_with_the_correlation(is_equal: bool, largest: int) -> None:
    sample = Sample(np.random.default_rng(0), Design(100, 10, 0.3, is_equal))
    assert sample.groups is not None
    sizes = np.bincount(sample.groups)
    assert (len(sizes), sizes.sum()) == (10, 100)
    assert sizes.max() == pytest.approx(largest, abs=2)
    answers = np.array([sample.happens(0.8) for _ in range(4000)])
    first, second = np.flatnonzero(sample.groups == 9)[:2]
    assert np.corrcoef(answers[:, first], answers[:, second])[0, 1] == pytest.approx(0.3, abs=0.05)
    assert answers.mean() == pytest.approx(0.8, abs=0.01)


@pytest.mark.statistics
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_figure_keeps_its_promise(figure: Figure) -> None:
    draws = 40 if figure.name.endswith("(...)") else 200
    cells = [cell for cell in figure.cells if cell.excuse is None]
    for cell in cells[:: max(1, len(cells) // 4)]:
        assert not simulate(cell, draws).is_broken(figure.promise), cell
