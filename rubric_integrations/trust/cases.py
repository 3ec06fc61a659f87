"""`run_cases`: grades the test cases of a rubric, and compares the results with the expected ones.

With repetitions, it also counts flips. A flip is an answer to a criterion that differs from the first answer about the
same case. The share of flips among the repeated answers estimates the probability that two answers of the judge about
one case differ. The repeated answers of a case share its first answer, and depend on each other. Therefore, a case
counts as one observation for the interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from os import PathLike
from statistics import fmean
from typing import Literal, NamedTuple

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import counted, one_line
from rubric_integrations.formats.registry import RubricLike, as_rubric, read_with_cases
from rubric_integrations.graders import Grader, RubricAsJudgeGrader
from rubric_integrations.judges.spend import Prices
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.case import Case, Expectation, Expected
from rubric_integrations.rubric.rubric import Rubric, require_grader
from rubric_integrations.runs.ledger import use_ledger
from rubric_integrations.scoring.judgment import Spend, parse_number, total_spend
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.scoring.report import CriterionReport, EvaluationReport
from rubric_integrations.trust.asked_again import Asked, ask_repeatedly
from rubric_integrations.trust.disagreements import shorten
from rubric_integrations.trust.gates import estimate_for_gate
from rubric_integrations.trust.means import UNIT

CaseOutcome = Literal["as expected", "different", "failed"]
"""The outcome of one expectation. `failed`: a judge or a check gave no answer, which says nothing about the rubric."""

_LEVEL = 0.95
# Scores are sums of floats, and numbers are written with six digits.
_ROUNDING = 1e-6
_REASON_CHARACTERS = 300


class CaseResult(Record):
    """The result of one expectation of a case.

    Attributes:
        case: The name of the case.
        kind: The kind of expectation: the `verdict` on a criterion, the `score`, or whether the response has `passed`.
        criterion: The name of the criterion. None for a score and for `passed`.
        expected: The expected result as text, such as `MET`, `3 to 5` or `at least 0.8`.
        obtained: The result as text. None if the judge failed.
        outcome: Whether the result is `as expected`, `different`, or the judge `failed`. With repetitions, of the first
            answer.
        reason: The judge's reason for its verdict, all verdicts for a score, or why there is no result.
        repeated: The results of all repetitions, including the first one.
    """

    case: str
    kind: Literal["verdict", "score", "passed"]
    criterion: str | None
    expected: str
    obtained: str | None
    outcome: CaseOutcome
    reason: str
    repeated: tuple[str | None, ...]

    @property
    def lost(self) -> int:
        """The number of repetitions without an answer."""
        return self.repeated.count(None)

    @property
    def expectation(self) -> str:
        """The name of the criterion, or the kind of expectation."""
        return self.criterion or self.kind

    @property
    def short_reason(self) -> str:
        """The reason in one line, shortened."""
        return shorten(self.reason, _REASON_CHARACTERS)

    def __str__(self) -> str:
        reason = f": {self.short_reason}" if self.reason else ""
        obtained = "no answer" if self.obtained is None else self.obtained
        # The names are the author's, and may be of any text.
        return one_line(f"{self.case}: {self.expectation}: expected {self.expected}, obtained {obtained}{reason}")


class CriterionCases(NamedTuple):
    """The results of one criterion.

    Attributes:
        as_expected: The number of cases with the expected verdict.
        different: The number of cases with another verdict.
        failed: The number of cases without an answer, of the cases that expect a verdict.
        flips: The share in [0, 1] of the repeated answers that differ from the first answer about the same case, with
            its 95 % interval. `n` is the number of cases with repeated answers. None without repetitions, and for a
            criterion that a check decides.
    """

    as_expected: int
    different: int
    failed: int
    flips: Estimate | None


class CaseReport(Record):
    """The result of `run_cases`.

    Attributes:
        results: The result of each expectation, in the order of the cases.
        criteria: The results by the name of the criterion.
        cases: The number of cases.
        repeat: How often each case was graded.
        spend: The spend of the requests.
        stopped: Why the run was stopped by a limit or an unusable judge, or None.
        is_unusable: Whether the judge could not be used.
        warnings: Limitations of the test, one sentence each.
    """

    results: tuple[CaseResult, ...]
    criteria: dict[str, CriterionCases]
    cases: int
    repeat: int
    spend: Spend
    stopped: str | None = None
    is_unusable: bool = False
    warnings: tuple[str, ...] = ()

    def of_outcome(self, outcome: CaseOutcome) -> list[CaseResult]:
        """Return the results with an outcome."""
        return [result for result in self.results if result.outcome == outcome]

    @property
    def is_as_expected(self) -> bool:
        """Whether each result is as expected."""
        return len(self.of_outcome("as expected")) == len(self.results)

    @property
    def lost(self) -> int:
        """The number of results without an answer, over all repetitions."""
        return sum(result.lost for result in self.results)

    @property
    def headline(self) -> str:
        """The numbers of results by outcome, in one sentence."""
        different, failed = (len(self.of_outcome(outcome)) for outcome in ("different", "failed"))
        right = len(self.results) - different - failed
        parts = [f"{right:,} of {counted(len(self.results), 'expectation')} as expected"]
        parts += [f"{different:,} different"] if different else []
        reason = "the run was stopped" if self.stopped else "a judge or a check failed"
        parts += [f"{failed:,} without an answer, because {reason}"] if failed else []
        return f"{counted(self.cases, 'case')}: {', '.join(parts)}."

    def summary(self) -> str:
        """Return the headline, each result that is not as expected, and the flips, as text."""
        lines = [self.headline, *(f"Stopped: {self.stopped}." for _ in [self.stopped] if self.stopped)]
        lines += [str(result) for result in self.results if result.outcome != "as expected"]
        lines += [f"{counted(self.lost, 'result')} without an answer."] if self.lost else []
        lines += [f"{name}: flips {row.flips}" for name, row in self.criteria.items() if row.flips]
        return "\n".join([*lines, *self.warnings])

    def _repr_html_(self) -> str:
        rows = [
            (row.case, row.expectation, row.expected, row.obtained, row.outcome, row.short_reason)
            for row in self.results
        ]
        columns = ["case", "expectation", "expected", "obtained", "outcome", "reason"]
        return html_table(self.headline, columns, rows)


def run_cases(
    rubric: RubricLike,
    grader: Grader,
    *,
    repeat: int = 1,
    ledger: LedgerLike | None = None,
    max_concurrency: int = 64,
    max_cost: float | None = None,
    max_calls: int | None = None,
    prices: Prices | None = None,
    progress: bool = False,
) -> CaseReport:
    """Grade the test cases of a rubric, and compare the verdicts and scores with the expected ones.

    A judge that fails is not a difference: the outcome of the expectation is `failed`. To obtain the other verdicts of
    such a case, use a grader with `on_failure="abstain"`. The answers come from the judge, not from a cache. Only a
    `ledger` stores them.

    Args:
        rubric: The rubric with its `cases`. For the path of a file, the cases of the file `NAME.cases.yaml` next to it
            are added (see `formats.read_with_cases`).
        grader: The grader with the judge.
        repeat: How often each case is graded. With 2 or more, flips are counted. Each repetition asks the judge again.
        ledger: The store of the answers: the path of a file, or an open ledger. An answer in it, also of `grade`, is
            not requested again. The cases do not become rows of the ledger.
        max_concurrency: The largest number of concurrent calls.
        max_cost: The largest cost in US dollars.
        max_calls: The largest number of calls to models.
        prices: The prices of models (see `grade_many`).
        progress: Whether to show a progress bar.

    Raises:
        ValueError: There are no cases, `repeat` is below 1, or the grader gives no verdict on each criterion, or no
            score in [0, 1], that a case expects.
        RubricError: (a ValueError) The rubric or a case is invalid.
        ImportError: `repeat` is above 1 and scipy is not installed.

    Example:
        >>> from rubric_integrations import PerCriterionGrader
        >>> case = {"name": "wrong", "response": "It is 41.", "expect": {"verdicts": {"answer": "UNMET"}}}
        >>> rubric = Rubric([{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}], cases=[case])
        >>> run_cases(rubric, PerCriterionGrader("offline")).headline
        '1 case: 1 of 1 expectation as expected.'
    """
    if repeat < 1:
        raise ValueError(f"`repeat` must be at least 1, got {repeat!r}")
    tested = read_tested(rubric)
    check_grader(tested, require_grader(grader))
    plain = tested.without_cases()
    with use_ledger(ledger) if ledger is not None else nullcontext() as store:
        passes = ask_repeatedly(
            [(case.submission, plain) for case in tested.cases], grader, repeat, store=store,
            max_concurrency=max_concurrency, max_cost=max_cost, max_calls=max_calls, prices=prices, progress=progress,
        )  # fmt: skip
    reports = list(zip(*(each_pass.reports for each_pass in passes), strict=True))
    return _report(tested, reports, passes, repeat)


def read_tested(rubric: RubricLike, name: str | None = None) -> Rubric:
    """Return a rubric with its cases. For a path, the cases of the file next to it are included.

    Args:
        rubric: The rubric.
        name: The name of the rubric in errors. By default the path, if it is one.

    Raises:
        ValueError: The rubric has no cases.
        RubricError: (a ValueError) The rubric or a case is invalid.
    """
    if isinstance(rubric, str | PathLike):
        read, name = read_with_cases(rubric), str(rubric)
    else:
        read = as_rubric(rubric)
    if not read.cases:
        source = f"{name}: " if name else ""
        raise ValueError(
            f"{source}the rubric has no test cases: write them under `cases`, each with a `name`, a `response` and "
            "what to `expect`, such as {verdicts: {margin: MET}}"
        )
    return read


def check_grader(rubric: Rubric, grader: Grader) -> None:
    """Check that a grader gives the results that the cases of a rubric expect.

    Raises:
        ValueError: The grader gives one overall score, skips criteria, or its scores are not in [0, 1].
    """
    grader.check_rubric(rubric)
    if isinstance(grader, RubricAsJudgeGrader) and (case := next((c for c in rubric.cases if c.expect.verdicts), None)):
        raise ValueError(
            f"the case {case.name!r} expects verdicts, and `RubricAsJudgeGrader` (`--strategy holistic`) gives only an "
            "overall score: use another grader, or expect only scores"
        )
    if getattr(grader, "may_leave_open", False):
        raise ValueError(
            "`grader` has `stop_when_decided`, and would skip criteria of which cases expect verdicts: leave it out"
        )
    if not grader.policies.normalize and any(case.expect.has_score for case in rubric.cases):
        raise ValueError("`grader` has `normalize=False`, and the expected scores are in [0, 1]: leave it out")


def _report(
    rubric: Rubric, reports: Sequence[tuple[EvaluationReport | None, ...]], passes: Sequence[Asked], repeat: int
) -> CaseReport:
    """Compare the reports of each case, one of each repetition, with its expectations."""
    last = passes[-1]
    results = tuple(
        result
        for case, repeated in zip(rubric.cases, reports, strict=True)
        for result in _case_results(case, repeated, last.stopped or "it was not graded")
    )
    verdicts = [result for result in results if result.kind == "verdict"]
    criteria: dict[str, CriterionCases] = {}
    for key in rubric.keys:
        outcomes = [result.outcome for result in verdicts if result.criterion == key]
        criteria[key] = CriterionCases(
            outcomes.count("as expected"), outcomes.count("different"), outcomes.count("failed"),
            _flips(key, reports) if repeat > 1 else None,
        )  # fmt: skip
    untested = [key for key, row in criteria.items() if not sum(row[:3])]
    warnings = [f"no case expects a verdict on {', '.join(untested)}"] if untested else []
    return CaseReport(
        results=results,
        criteria=criteria,
        cases=len(rubric.cases),
        repeat=repeat,
        spend=total_spend(each_pass.spend for each_pass in passes),
        stopped=last.stopped,
        is_unusable=last.is_unusable,
        warnings=tuple(warnings),
    )


class _Observed(NamedTuple):
    """The result that a report has for one expectation.

    Attributes:
        text: The result as text. None if the judge failed.
        is_right: Whether it is as expected.
        reason: The reason for the result, or why there is none.
    """

    text: str | None
    is_right: bool
    reason: str


def _case_results(case: Case, reports: Sequence[EvaluationReport | None], reason: str) -> Iterator[CaseResult]:
    """Yield the result of each expectation of a case.

    Args:
        case: The case.
        reports: Its report of each repetition. None if it was not graded.
        reason: Why a case was not graded.
    """
    missing = _Observed(None, False, reason)
    expect = case.expect
    for name, expected in expect.verdicts.items():
        seen = [_verdict(report, name, expected) if report else missing for report in reports]
        yield _case_result(case, "verdict", name, _expected_text(expected), seen)
    if expect.min_score is not None or expect.max_score is not None:
        seen = [_score(report, expect) if report else missing for report in reports]
        yield _case_result(case, "score", None, _expected_score(expect), seen)
    if expect.passed is not None:
        seen = [_passed(report, expected=expect.passed) if report else missing for report in reports]
        yield _case_result(case, "passed", None, _passed_text(passed=expect.passed), seen)


def _case_result(
    case: Case,
    kind: Literal["verdict", "score", "passed"],
    criterion: str | None,
    expected: str,
    seen: Sequence[_Observed],
) -> CaseResult:
    """Make the result of an expectation from what each repetition obtained. The first repetition decides."""
    first = seen[0]
    return CaseResult(
        case=case.name,
        kind=kind,
        criterion=criterion,
        expected=expected,
        obtained=first.text,
        outcome="failed" if first.text is None else "as expected" if first.is_right else "different",
        reason=first.reason,
        repeated=tuple(each.text for each in seen),
    )


def _entry(report: EvaluationReport, name: str) -> CriterionReport | None:
    return next((entry for entry in report.criteria if entry.name == name), None)


def _verdict(report: EvaluationReport, name: str, expected: Expected) -> _Observed:
    """Compare the verdict on a criterion with the expected one. A fallback verdict of `on_failure` is a failure."""
    if (entry := _entry(report, name)) is None:
        return _Observed(None, False, report.error or "the report has no verdict on it")
    if entry.error is not None or entry.verdict is None:
        return _Observed(None, False, entry.error or "it was not asked")
    return _Observed(entry.verdict, is_expected(entry, expected), entry.explanation)


def is_expected(entry: CriterionReport, expected: Expected) -> bool:
    """Return whether an answer to a criterion is the expected one (see `Expectation.verdicts`).

    Args:
        entry: The entry of a report, with a verdict.
        expected: The expected verdict, normalized as in `Rubric.cases`.
    """
    if expected == "CANNOT_ASSESS":
        # Also an option that is marked `na`.
        return entry.value is None and not entry.not_applicable
    if isinstance(expected, str):
        return entry.verdict == expected
    if entry.value is None or entry.verdict is None:
        return False
    low, high = expected if isinstance(expected, tuple) else (expected, expected)
    return low - _ROUNDING <= parse_number(entry.verdict) <= high + _ROUNDING


def _score(report: EvaluationReport, expect: Expectation) -> _Observed:
    if (failure := _failure(report)) is not None:
        return _Observed(None, False, failure)
    if report.score is None:
        return _Observed("undefined", False, _verdicts_text(report))
    low = 0.0 if expect.min_score is None else expect.min_score
    high = 1.0 if expect.max_score is None else expect.max_score
    is_right, seems_right = (
        low - _ROUNDING <= score <= high + _ROUNDING for score in (report.score, round(report.score, 3))
    )
    # A score outside the limits is not printed as a rounded one within them.
    digits = 3 if is_right == seems_right else 6
    return _Observed(f"{report.score:.{digits}f}", is_right, _verdicts_text(report))


def _passed(report: EvaluationReport, *, expected: bool) -> _Observed:
    if (failure := _failure(report)) is not None:
        return _Observed(None, False, failure)
    return _Observed(_passed_text(passed=report.passed), report.passed == expected, _verdicts_text(report))


def _failure(report: EvaluationReport) -> str | None:
    """Return why a report has no score that can be compared, or None."""
    if report.failed_count or None in report.metrics.values() or (report.score is None and report.error):
        return report.error or "a judge or a metric failed"
    return None


def _verdicts_text(report: EvaluationReport) -> str:
    return ", ".join(f"{entry.name} {entry.verdict}" for entry in report.criteria) or report.reason


def _passed_text(*, passed: bool) -> str:
    return "passed" if passed else "not passed"


def _expected_text(expected: Expected) -> str:
    return f"{expected[0]:g} to {expected[1]:g}" if isinstance(expected, tuple) else str(expected)


def _expected_score(expect: Expectation) -> str:
    if expect.min_score is not None and expect.max_score is not None:
        return f"{expect.min_score:g} to {expect.max_score:g}"
    return f"at least {expect.min_score:g}" if expect.max_score is None else f"at most {expect.max_score:g}"


def _flips(key: str, reports: Sequence[tuple[EvaluationReport | None, ...]]) -> Estimate | None:
    """Estimate the share of repeated answers to a criterion that differ from the first answer about the same case.

    None for a criterion that a check decides.
    """
    shares: list[float] = []
    for repeated in reports:
        entries = [entry for report in repeated if report is not None and (entry := _entry(report, key)) is not None]
        if any(entry.computed for entry in entries):
            return None
        answers = [entry.verdict for entry in entries if entry.error is None and entry.verdict is not None]
        if len(answers) > 1:
            shares.append(fmean(answer != answers[0] for answer in answers[1:]))
    return estimate_flips(shares)


def estimate_flips(shares: Sequence[float], level: float = _LEVEL) -> Estimate:
    """Estimate the mean share of answers that differ, over independent cases.

    The limits are exact (Clopper-Pearson) if each share is 0 or 1, except the lower one, which is at most as high.
    Otherwise they are the limits of `estimate_mean`, which are valid for every distribution of the shares.

    Args:
        shares: The share of the differing answers of each case, in [0, 1].
        level: The confidence level of the interval.

    Example:
        >>> print(estimate_flips([0, 0, 0, 0, 0, 0, 0, 0.25]))
        0.031 [0.000, 0.385] (n = 8)
    """
    return estimate_for_gate(shares, level, None, UNIT) if shares else Estimate(None, None, None, 0)
