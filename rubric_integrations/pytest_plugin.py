"""A pytest plugin: the fixture `rubric_gate` tests a run, and `rubric_cases` runs the test cases of a rubric.

pytest imports this module in every project where the library is installed. Therefore it imports the rest of the library
only when a test calls the gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rubric_integrations.formats import RubricLike
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges.spend import Prices
    from rubric_integrations.judges.store import LedgerLike
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.scoring.labels import LabelledJudgment
    from rubric_integrations.trust import CaseReport, GateResult
    from rubric_integrations.trust.matching import Cluster, RunLike

_MARKER = "rubric_gate"
_SETTINGS = ("min_score", "alpha", "margin", "floor", "allow_inconclusive")


class RubricGate:
    """Fails a test unless the mean score of a run is significantly above a threshold, or `require` another gate.

    The fixture `rubric_gate` returns an object of this class.

    Args:
        settings: The settings of the test's marker. If a call passes the same argument, the argument is used instead.

    Attributes:
        results: The decisions of the calls so far.
    """

    def __init__(self, settings: dict[str, Any] | None = None):
        self._settings = settings or {}
        self.results: list[GateResult] = []

    def __call__(
        self,
        run: RunLike,
        min_score: float | None = None,
        *,
        labels: Iterable[LabelledJudgment] | None = None,
        baseline: RunLike | None = None,
        margin: float | None = None,
        cluster: Cluster | None = None,
        floor: float | None = None,
        rubric: Rubric | None = None,
        alpha: float | None = None,
        allow_inconclusive: bool | None = None,
        anyway: bool = False,
    ) -> GateResult:
        """Decide like `rubric_integrations.trust.gate`, and fail the test unless the decision is `pass`.

        Args:
            run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
            min_score: The threshold, above 0 and below 1. By default, the marker's `min_score`.
            labels: Human labels of a random part of the run. They are used to correct the mean score.
            baseline: An earlier run over the same inputs. The run must not be worse than this baseline.
            margin: How much worse than the baseline the run may be, at least 0 (default 0).
            cluster: Which rows depend on each other: `"id"`, `"query"`, a key of `metadata`, or a function of the id.
            floor: The lowest score that the rubric can give to a row (default 0).
            rubric: The run's rubric. It is needed with `labels` if the rubric's score is computed from groups.
            alpha: The probability of a wrong pass, and also of a wrong failure, above 0 and below 0.5 (default 0.05).
            allow_inconclusive: Whether an inconclusive decision also passes (default False).
            anyway: Whether the baseline may have another rubric or other inputs. The result has a warning
                for each difference.

        Returns:
            The decision with the mean score and its interval.

        Raises:
            AssertionError: The run fails, or is inconclusive. The message has the number of submissions that a pass
                needs.
            ImportError: scipy is not installed.
            ValueError: There is no threshold, a setting is out of range, the run is empty or ended early, there are too
                few labels, or the run and the baseline cannot be compared.
        """
        __tracebackhide__ = True  # pytest then shows the line of the test as the place of the failure.
        from rubric_integrations.trust import fewest_to_pass, gate

        values = {
            "min_score": min_score, "margin": margin, "floor": floor, "alpha": alpha,
            "allow_inconclusive": allow_inconclusive,
        }  # fmt: skip
        settings: dict[str, Any] = {**self._settings, **{name: v for name, v in values.items() if v is not None}}
        if "min_score" not in settings:
            raise ValueError(
                "`rubric_gate` has no threshold: pass `min_score`, or mark the test with "
                "`@pytest.mark.rubric_gate(min_score=0.8)`"
            )
        level: float = settings.get("alpha", 0.05)
        lowest: float = settings.get("floor", 0.0)
        result = gate(
            run, settings["min_score"], labels=labels, baseline=baseline, margin=settings.get("margin", 0.0),
            cluster=cluster, floor=lowest, rubric=rubric, alpha=level, anyway=anyway,
        )  # fmt: skip
        fewest = fewest_to_pass(result.threshold, level, floor=lowest)
        need = f"a pass at {result.threshold:g} needs at least {fewest:,} submissions (alpha {level:g})\n"
        self._require([result], settings.get("allow_inconclusive", False), need)
        return result

    def require(self, *results: GateResult, allow_inconclusive: bool | None = None) -> None:
        """Fail the test unless the results of other gates of `rubric_integrations.trust` allow a build to go on.

        Args:
            results: The results, such as `*gate_rows(run, min_pass_rate=0.9)` or `gate_comparison(...)`.
            allow_inconclusive: Whether inconclusive results also pass. By default, the marker's setting, or False.

        Raises:
            AssertionError: A result is not accepted. The message has its figures and the worst rows.
        """
        __tracebackhide__ = True
        if allow_inconclusive is None:
            allow_inconclusive = bool(self._settings.get("allow_inconclusive", False))
        self._require(results, allow_inconclusive)

    def _require(self, results: Sequence[GateResult], allow_inconclusive: bool, need: str = "") -> None:
        __tracebackhide__ = True
        self.results += results
        refused = [
            "\n  ".join([f"rubric gate: {result}", *result.rows])
            for result in results
            if not (result.is_accepted or (allow_inconclusive and result.decision == "inconclusive"))
        ]
        if refused:
            raise AssertionError(need + "\n".join(refused))


@pytest.fixture
def rubric_gate(request: pytest.FixtureRequest) -> Iterable[RubricGate]:
    """Gate a release: `rubric_gate(run, min_score=0.8)` fails unless the mean score is significantly above 0.8."""
    gate = RubricGate(_settings_of(request.node))
    yield gate
    # These properties are written to JUnit files. A build then also shows the figures of a gate that passed.
    request.node.user_properties.extend((_MARKER, str(result)) for result in gate.results)


class RubricCases:
    """Fails a test unless a judge gives the test cases of a rubric the expected verdicts and scores.

    The fixture `rubric_cases` returns an object of this class.

    Attributes:
        reports: The results of the calls so far.
    """

    def __init__(self) -> None:
        self.reports: list[CaseReport] = []

    def __call__(
        self,
        rubric: RubricLike,
        grader: Grader,
        *,
        repeat: int = 1,
        ledger: LedgerLike | None = None,
        max_concurrency: int = 64,
        max_cost: float | None = None,
        max_calls: int | None = None,
        prices: Prices | None = None,
    ) -> CaseReport:
        """Run the test cases of a rubric like `rubric_integrations.trust.run_cases`, and fail the test at a difference.

        Args:
            rubric: The rubric with its `cases`, or the path of its file.
            grader: The grader with the judge.
            repeat: How often each case is graded.
            ledger: The store of the answers. An answer in it is not requested again.
            max_concurrency: The largest number of concurrent calls.
            max_cost: The largest cost in US dollars.
            max_calls: The largest number of calls to models.
            prices: The prices of models (see `grade_many`).

        Returns:
            The result of each expectation.

        Raises:
            AssertionError: A result differs from the expected one. The message lists the differences with the judge's
                reasons.
            RuntimeError: A judge or a check failed, or a limit stopped the run. This says nothing about the rubric.
            ValueError: The rubric or a case is invalid, or the grader cannot give the expected results.
        """
        __tracebackhide__ = True  # pytest then shows the line of the test as the place of the failure.
        from rubric_integrations.trust import run_cases

        report = run_cases(
            rubric, grader, repeat=repeat, ledger=ledger, max_concurrency=max_concurrency, max_cost=max_cost,
            max_calls=max_calls, prices=prices,
        )  # fmt: skip
        self.reports.append(report)
        if report.stopped or report.lost:
            raise RuntimeError(f"rubric cases without an answer, which is no fault of the rubric: {report.summary()}")
        if not report.is_as_expected:
            raise AssertionError(f"rubric cases: {report.summary()}")
        return report


@pytest.fixture
def rubric_cases(request: pytest.FixtureRequest) -> Iterable[RubricCases]:
    """Run the test cases of a rubric: `rubric_cases("rubric.yaml", grader)` fails at an unexpected verdict or score."""
    cases = RubricCases()
    yield cases
    request.node.user_properties.extend(("rubric_cases", report.headline) for report in cases.reports)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `rubric_gate` with pytest."""
    config.addinivalue_line(
        "markers",
        "rubric_gate(min_score, alpha=0.05, margin=0.0, floor=0.0, allow_inconclusive=False): the settings of the "
        "fixture `rubric_gate`, which fails a test unless a run's true mean score is surely above `min_score`",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a marked test that does not use the fixture, because it would pass without a gate."""
    if item.get_closest_marker(_MARKER) and _MARKER not in getattr(item, "fixturenames", ()):
        pytest.fail(
            f"{item.name} is marked with `rubric_gate`, and has no argument `rubric_gate`: no run would be gated. Add "
            "the argument, and call it with the run",
            pytrace=False,
        )


def _settings_of(item: pytest.Item) -> dict[str, Any]:
    """Return the settings of the test's markers. The closest marker overrides the others."""
    settings: dict[str, Any] = {}
    for marker in item.iter_markers(_MARKER):
        unknown = [*marker.args, *(name for name in marker.kwargs if name not in _SETTINGS)]
        if unknown:
            names = ", ".join(f"`{name}`" for name in _SETTINGS)
            pytest.fail(
                f"the marker `rubric_gate` cannot have {unknown[0]!r}: its settings are {names}, by name", pytrace=False
            )
        settings = {**marker.kwargs, **settings}
    return settings
