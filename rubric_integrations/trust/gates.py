"""Release gates: test whether a run's true mean score is above a threshold, with a limited probability of a wrong pass.

It is not sufficient that the observed mean is above the threshold. A program whose true mean is equal to the threshold
would then pass in half of all cases.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from rubric_integrations._util.text import counted, percent
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow, RunFile
from rubric_integrations.runs.run import Run
from rubric_integrations.runs.summary import Graded, names_text, shortfall_text, unassessed_criteria, unmet_criteria
from rubric_integrations.scoring.formula import reaches_mark
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.submission.inputs import Row
from rubric_integrations.trust.calibration import calibrate
from rubric_integrations.trust.comparison import (
    RunChanges,
    RunComparison,
    RunPair,
    left_out_warnings,
    pair_runs,
)
from rubric_integrations.trust.matching import (
    Cluster,
    RunLike,
    as_run,
    dependence_warnings,
    group_rows,
    group_warnings,
    is_trained_on,
)
from rubric_integrations.trust.means import FOR_GATE, Bounds, Groups, estimate_mean
from rubric_integrations.trust.planning import FEWEST_LABELS
from rubric_integrations.trust.statistics import ROUNDING, special

Decision = Literal["pass", "fail", "inconclusive"]
"""The decision of a gate: the true mean is above the threshold, below the threshold, or not yet decided."""

Change = Literal["unchanged", "not worse", "worse", "unclear"]
"""The result of the comparison with a baseline: `worse` means a loss of more than the margin."""

_MORE_SHOW_A_LOSS = "more submissions would show whether the run is worse than the baseline"
# The quantile of a power of 80 %.
_POWER = 0.8416
_BETS = 20
# The most rows and criteria that a result names.
_MAX_ROWS = _MAX_CRITERIA = 5
# If more submissions than this would be needed, `more` is None: the mean is too close to the threshold.
_MOST = 1_000_000
# Up to this number of submissions, the number that decides is searched exactly. Above, it is extrapolated.
_MANY = 10_000


class GateResult(NamedTuple):
    """The decision of a gate with its figures. Its text is the same in Python, in pytest and in the shell.

    Attributes:
        decision: `pass`, `fail` or `inconclusive`. A comparison without a margin whose change is unclear is `not shown
            to be worse`: a build may go on, but a loss is not excluded.
        observed: The tested figure, such as the mean score. `gate` and `gate_comparison` add its interval. The
            probability that the true mean is below the interval of `gate` is at most `alpha`, and so is the probability
            that it is above the interval.
        threshold: The value that the figure is compared with.
        more: The approximate number of additional submissions that would decide. None if the gate is decided, if the
            mean is too close to the threshold, or with labels.
        missing: The number of submissions without `EvaluationReport.gate_score`: a criterion failed, or too few
            criteria were assessed. A run passes only if it would also pass if all missing scores were 0 (or `floor`).
            It fails only if it would also fail if all missing scores were 1.
        baseline: The run's mean score minus the baseline's mean score. None without a baseline.
        warnings: Limitations of the figures, and differences between the run and the baseline other than their
            answers.
        change: The result of the comparison with the baseline: `unchanged` (every answer and score is equal, which
            passes), `not worse`, `worse` or `unclear`. None without a baseline.
        least_margin: If `change` is `unclear`, the smallest `margin` that this number of rows can confirm for an
            equally good program in 80 % of cases. Otherwise None.
        unmatched: The number of rows that are only in the run or only in the baseline.
        margin: The accepted loss against the baseline.
        alpha: The probability of a wrong pass. None if the gate compares the observed figure itself.
        settings: The settings that define the gate, such as "`min_score=0.8` `alpha=0.05`".
        finding: The observed figures as text.
        advice: How an inconclusive gate could be decided.
        rows: One line for each of the worst rows if the gate does not pass, and lines about the others.
    """

    decision: Decision | Literal["not shown to be worse"]
    observed: Estimate
    threshold: float
    more: int | None = None
    missing: int = 0
    baseline: Estimate | None = None
    warnings: tuple[str, ...] = ()
    change: Change | None = None
    least_margin: float | None = None
    unmatched: int = 0
    margin: float = 0.0
    alpha: float | None = None
    settings: str = ""
    finding: str = ""
    advice: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join([f"{self.decision}: {self.message()}", *self.warnings])

    @property
    def score(self) -> Estimate:
        """The figure of `observed`, which is the mean score for `gate`."""
        return self.observed

    @property
    def min_score(self) -> float:
        """The value of `threshold`, under the name that it has in `gate`."""
        return self.threshold

    @property
    def is_accepted(self) -> bool:
        """Whether a build may go on: the gate passes, or no margin demands proof and no loss is shown."""
        return self.decision in ("pass", "not shown to be worse")

    def message(self, baseline: str = "the baseline") -> str:
        """Return the settings, the observed figures and the advice as text.

        Args:
            baseline: The name of the baseline in the text.
        """
        parts = [f"{self.settings}: {self.finding}" if self.settings else self.finding]
        if self.baseline is not None:
            change = self.baseline.with_limits(signed=True)
            parts.append(f"{self.change}: the change from {baseline} is {change}, and it may be {self.margin:g} worse")
        if self.unmatched:
            parts.append(f"{counted(self.unmatched, 'row is', 'rows are')} in only one of the runs")
        return "; ".join([*parts, *self.advice])


def gate(
    run: RunLike,
    min_score: float,
    *,
    labels: Iterable[LabelledJudgment] | None = None,
    baseline: RunLike | None = None,
    margin: float = 0.0,
    cluster: Cluster | None = None,
    floor: float = 0.0,
    rubric: Rubric | None = None,
    alpha: float = 0.05,
    anyway: bool = False,
) -> GateResult:
    """Decide whether a run's true mean score is above a threshold, and optionally whether it is not below a baseline.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        min_score: The threshold, above 0 and below 1.
        labels: Human labels of a random part of the run, which correct the mean score. At least 50 submissions need a
            label for every criterion.
        baseline: An earlier run over the same inputs. The gate then passes only if the run is also not worse than the
            baseline. A run with the same answers and scores is `unchanged`, which passes.
        margin: The accepted loss: how much lower than the baseline the run's mean score may be, at least 0. With 0,
            most gates on equally good programs are inconclusive. `GateResult.least_margin` suggests a margin.
        cluster: How to group rows that depend on each other: `"id"`, `"query"`, a key of `metadata`, or a function that
            gets a row's id.
        floor: The lowest possible score of a row, at least 0 and below the threshold. Set it only if the rubric makes
            lower scores impossible. Do not take it from the scores of a run, because rare failures may be missing.
        rubric: The run's rubric. It is needed only with labels, if the rubric has groups.
        alpha: The probability of a wrong pass, and also of a wrong failure, above 0 and below 0.5.
        anyway: Whether to compare the run with the baseline although they cannot be compared (see `comparability`).

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves.
        ValueError: A setting is out of range, the run is empty or ended early, a score is not in [0, 1] or is below
            `floor`, there are too few labels, or the run and the baseline cannot be compared.
    """
    _check_settings(min_score, alpha, floor)
    if margin < 0:
        raise ValueError(f"`margin` must be at least 0, got {margin!r}: it is how much worse the run may be")
    graded = _finished_run(run)
    rows = graded.rows
    score, warnings = None, dependence_warnings(rows, cluster)
    if labels is not None:
        if floor:
            raise ValueError("`floor` has no effect on a gate with `labels`: leave one of them out")
        calibration = calibrate(rows, labels, rubric=rubric, cluster=cluster, level=1 - 2 * alpha, imaginary=FOR_GATE)
        score = calibration.score
        warnings += calibration.warnings
        if score.n < FEWEST_LABELS:
            reasons = "".join(f"; {warning}" for warning in calibration.warnings)
            raise ValueError(
                f"only {score.n} submissions have human labels of every criterion, and a gate needs {FEWEST_LABELS}: "
                f"label more of them, drawn at random{reasons}"
            )
        rows_of_mean = [row for row in rows if not is_trained_on(row)]
    else:
        rows_of_mean = rows
    scores = [None if row.report is None else row.report.gate_score for row in rows_of_mean]
    groups = group_rows(rows_of_mean, cluster)
    result = decide_mean(scores, min_score, alpha, score=score, groups=groups, floor=floor)
    result = result._replace(warnings=(*result.warnings, *warnings))
    earlier = None if baseline is None else as_run(baseline, "the baseline")
    if earlier is not None:
        pair = pair_runs(earlier, graded, cluster=cluster, anyway=anyway)
        result = _with_baseline(result, pair, margin, alpha, anyway=anyway)
    if result.decision != "pass":
        result = _add_rows(RowGates(min_score=min_score), rows).results(result)[0]
    return _without_decision(result, graded, earlier)


def gate_rows(
    run: RunLike,
    *,
    every_row: bool = False,
    min_score: float | None = None,
    min_pass_rate: float | None = None,
    min_coverage: float | None = None,
    max_failed: int | None = None,
) -> list[GateResult]:
    """Compare figures of a run with thresholds, and return a result for each threshold.

    These gates do not allow for chance. A program whose true pass rate is equal to the threshold passes in about half
    of all cases: see `gate`. If the run was stopped, all results are inconclusive.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        every_row: Whether every row must pass.
        min_score: The smallest mean score, in [0, 1]. A row counts as 0 if a criterion failed or too few criteria were
            assessed. Rows without a grade are left out.
        min_pass_rate: The smallest share of rows that pass, in [0, 1].
        min_coverage: The smallest mean coverage, in [0, 1].
        max_failed: The largest number of rows on which the judge may fail.

    Raises:
        ValueError: No threshold is set, a threshold is out of range, or the run is empty or ended early.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric, grade_many
        >>> rubric = Rubric([{"name": "answer", "requirement": "States 42", "check": {"number": 42}}])
        >>> run = grade_many(["42", "41"], rubric, PerCriterionGrader("offline"))
        >>> [print(result, result.rows) for result in gate_rows(run, min_pass_rate=0.9)]
        fail: `min_pass_rate=0.9`: 1 of 2 rows passed ('2: score 0.000; not met: answer',)
        [None]
    """
    shares = {"min_score": min_score, "min_pass_rate": min_pass_rate, "min_coverage": min_coverage}
    for name, value in shares.items():
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"`{name}` must be in [0, 1], got {value!r}")
    if not every_row and all(value is None for value in (*shares.values(), max_failed)):
        raise ValueError("no threshold is set, and every run would pass: set one, such as `min_pass_rate`")
    graded = _finished_run(run)
    gates = RowGates(
        every_row=every_row, min_score=min_score, min_pass_rate=min_pass_rate, min_coverage=min_coverage,
        max_failed=max_failed,
    )  # fmt: skip
    return [_without_decision(result, graded, None) for result in _add_rows(gates, graded.rows).results()]


def _finished_run(run: RunLike) -> RunFile:
    """Return a run that was not ended by an outage or a limit. Otherwise the rows before it would seem to be all."""
    graded = as_run(run, "the run", in_memory=True)
    if isinstance(run, Run) and run.summary.stopped:
        raise ValueError(
            f"the run has ended before all rows were graded ({run.summary.stopped}), and the gate would decide on the "
            "others alone: grade again with the same `ledger`; if a `SequentialGate` ended the run, use its `decision`"
        )
    if not graded.rows:
        raise ValueError("the run is empty: there is nothing to decide on")
    return graded


def _add_rows(gates: RowGates, rows: Sequence[GradedRow]) -> RowGates:
    for row in rows:
        judge_error = row.error if row.report and not row.is_graded else None
        gates.add(Graded(Row(row.id, row.submission, None if row.report else row.error), row.report, judge_error))
    return gates


def _without_decision(result: GateResult, run: RunFile, baseline: RunFile | None) -> GateResult:
    """Return an inconclusive result if the run has missing rows, or if it would pass against a baseline that has."""
    parts = [run] if baseline is None else [run, baseline]
    notes = [f"{part.stop_note}: grade the rest with the same ledger" for part in parts if part.missing]
    if not run.missing and (not notes or result.decision != "pass"):
        return result._replace(warnings=(*result.warnings, *notes))
    advice = () if baseline is None else (_MORE_SHOW_A_LOSS,)
    return result._replace(decision="inconclusive", more=None, advice=advice, warnings=(*result.warnings, *notes))


def _with_baseline(result: GateResult, pair: RunPair, margin: float, alpha: float, *, anyway: bool) -> GateResult:
    """Combine the decision on the mean with the comparison with the baseline."""
    changes, level = pair.changes, 1 - 2 * alpha
    score = changes.require_scores()
    estimate = score.bounded_change(level, FOR_GATE) if score.are_bounded else score.mean_change(level)
    change: Change = "unclear"
    if changes.are_unchanged:
        change = "unchanged"
    elif estimate.low is not None and estimate.low > -margin and (anyway or not changes.is_partial):
        change = "not worse"
    elif estimate.high is not None and estimate.high < -margin:
        change = "worse"
    decision = result.decision
    if change == "worse":
        decision = "fail"
    elif change == "unclear" and decision == "pass":
        decision = "inconclusive"
    least_margin = _least_margin(changes, estimate) if change == "unclear" and not changes.is_partial else None
    advice = list(result.advice) if result.more else []
    if least_margin is not None:
        advice.append(f"`margin=` {least_margin:.2f} is the smallest that so many rows could show")
    if not advice:
        is_above = result.observed.low is not None and result.observed.low > result.threshold
        advice = [_MORE_SHOW_A_LOSS] if is_above else list(result.advice)
    few = group_warnings(score.groups)
    warnings = dict.fromkeys((*result.warnings, *pair.comparable.all_warnings, *few, *left_out_warnings(changes)))
    return result._replace(
        decision=decision,
        more=None if decision == "fail" else result.more,
        baseline=estimate,
        warnings=tuple(warnings),
        change=change,
        least_margin=least_margin,
        unmatched=changes.unmatched,
        margin=margin,
        advice=tuple(advice) if decision == "inconclusive" else (),
    )


def _least_margin(changes: RunChanges, estimate: Estimate) -> float | None:
    """Return the margin at which an equally good program would pass in 80 % of cases, rounded up."""
    error = changes.score.standard_error()
    if estimate.value is None or estimate.low is None or error is None:
        return None
    return max(0.01, math.ceil(100 * (estimate.value - estimate.low + _POWER * error) - 1e-9) / 100)


def decide_mean(
    scores: Sequence[float | None],
    min_score: float,
    alpha: float = 0.05,
    *,
    score: Estimate | None = None,
    groups: Groups | None = None,
    floor: float = 0.0,
) -> GateResult:
    """Decide whether the true mean of scores in [0, 1] is above a threshold.

    The decision is `pass` if the lower end of the interval of `estimate_mean` is above the threshold, and `fail` if the
    upper end is below the threshold. For independent scores of 0 and 1, the upper end is exact (Clopper and Pearson
    1934): a program at the threshold fails with a probability of at most `alpha`.

    Args:
        scores: The scores, or None for a submission without a score.
        min_score: The threshold, above 0 and below 1.
        alpha: The probability of a wrong pass, and also of a wrong failure.
        score: The mean after correction with labels, with its interval at the level `1 - 2 alpha`. None without labels.
        groups: The group of each submission, or None if they are independent. Fewer than five groups are inconclusive.
        floor: The lowest possible score of a submission.

    Raises:
        ValueError: A score is not in [0, 1], or below the floor.

    Example:
        >>> decide_mean([1.0] * 8, 0.7).decision, decide_mean([1.0] * 9, 0.7).decision
        ('inconclusive', 'pass')
        >>> decide_mean([0.8] * 9, 0.7).decision, decide_mean([0.8] * 9, 0.7, floor=0.6).decision
        ('inconclusive', 'pass')
    """
    present = [value for value in scores if value is not None]
    outside = next((value for value in present if not 0 <= value <= 1), None)
    if outside is not None:
        raise ValueError(
            f"scores must be in [0, 1], got {outside!r}: grade with `normalize=True`, as a threshold between 0 and 1 "
            "would mean nothing for raw points"
        )
    if (lowest_score := min(present, default=1.0)) < floor:
        raise ValueError(
            f"`floor` is {floor!r}, and a submission has the score {lowest_score!r}: it is a score below which none "
            "can be; leave it out, or the gate would pass too often"
        )
    missing = len(scores) - len(present)
    level, bounds = 1 - 2 * alpha, Bounds(floor, 1.0)

    def estimate_with(missing_score: float) -> Estimate:
        values = [missing_score if value is None else value for value in scores]
        return estimate_for_gate(values, level, groups, bounds)

    groups_present = None if groups is None else groups[[value is not None for value in scores]]
    if groups_present is not None:
        groups_present = np.unique(groups_present, return_inverse=True)[1]
    estimate = score or estimate_for_gate(present, level, groups_present, bounds)
    low, high = estimate.low, estimate.high
    if missing and score:
        share = missing / len(scores)
        low, high = low and low * (1 - share), high and high * (1 - share) + share
    elif missing:
        low, high = estimate_with(floor).low, estimate_with(1.0).high
    corrected = ", corrected by labels" if score else ""
    interval = "no interval" if estimate.low is None else f"{percent(level)} interval"
    mean = f"the mean score is {estimate.with_limits()} ({interval}, n = {estimate.n:,}){corrected}"
    limits = f"; {counted(missing, 'row')} without a score may be anything from 0 to 1" if missing else ""
    finding = (mean if estimate.n else "no row has a score") + limits
    result = GateResult(
        "inconclusive", estimate, min_score, missing=missing, warnings=tuple(group_warnings(groups)), alpha=alpha,
        settings=_settings(min_score, alpha), finding=finding,
    )  # fmt: skip
    if low is not None and low > min_score:
        return result._replace(decision="pass")
    if high is not None and high < min_score:
        return result._replace(decision="fail")
    more = None if score else _more_needed(present, min_score, level, groups_present, bounds)
    alone = _side(estimate, min_score) if missing else None
    if alone:
        decides = "the row without a score decides" if missing == 1 else "the rows without a score decide"
        advice = f"the other rows alone would {alone}: {decides}"
    elif more:
        needs_floor = floor == 0 and min(present) > 0 and (estimate.value or 0) > min_score
        fewer = " (fewer with `floor=`, if the rubric lets no row score 0)" if needs_floor else ""
        of_groups = " of further groups" if groups is not None else ""
        advice = f"about {counted(more, 'more submission')}{of_groups} would decide{fewer}"
    elif estimate.n < (fewest := fewest_to_pass(min_score, alpha, floor=floor)):
        advice = f"a pass needs at least {counted(fewest, 'submission')} with a score"
    elif score:
        advice = "more labels would decide"
    else:
        advice = "the mean is too close to the threshold to decide"
    return result._replace(more=None if alone else more, advice=(advice,))


def _side(estimate: Estimate, min_score: float) -> str | None:
    """Return the decision by the interval of a mean: `pass`, `fail`, or None for an interval around the threshold."""
    if estimate.low is not None and estimate.low > min_score:
        return "pass"
    return "fail" if estimate.high is not None and estimate.high < min_score else None


# The level at alpha = .05, for which `FOR_GATE` was selected.
_LEVEL_OF_LIMITS = 0.9


def estimate_for_gate(scores: Sequence[float], level: float, groups: Groups | None, bounds: Bounds) -> Estimate:
    """Estimate a mean by `estimate_mean`, with exact limits (Clopper-Pearson) for independent scores of 0 and 1.

    The lower limit is exact for all levels but .9. `FOR_GATE` was selected for .9, where the probability of a wrong
    pass is at most .066. At .8, it would be up to .18 instead of .1, and at .98 up to .013 instead of .01.
    """
    estimate, met = estimate_mean(scores, level, groups=groups, bounds=bounds, imaginary=FOR_GATE), sum(scores)
    count = len(scores)
    is_grouped = groups is not None and groups.max(initial=-1) + 1 < len(groups)
    if estimate.high is None or estimate.low is None or is_grouped or not np.isin(scores, (0.0, 1.0)).all():
        return estimate
    low, high = estimate.low, estimate.high
    if met and not math.isclose(level, _LEVEL_OF_LIMITS):
        low = min(low, float(special().betaincinv(met, count - met + 1, (1 - level) / 2)))
    if met < count:
        high = float(special().betaincinv(met + 1, count - met, (1 + level) / 2))
    return estimate._replace(low=low, high=high)


def fewest_to_pass(min_score: float, alpha: float = 0.05, *, sequential: bool = False, floor: float = 0.0) -> int:
    """Return the smallest number of submissions with which a gate can pass, if all of them have the score 1.

    Args:
        min_score: The threshold, above 0 and below 1.
        alpha: The probability of a wrong pass, above 0 and below 0.5.
        sequential: Whether the gate is a `SequentialGate`, which ignores `floor`.
        floor: The lowest possible score of a submission.

    Raises:
        ValueError: A setting is out of range.

    Example:
        >>> [fewest_to_pass(threshold) for threshold in (0.7, 0.8, 0.9, 0.95, 0.99)]
        [9, 13, 27, 54, 270]
        >>> [fewest_to_pass(threshold, sequential=True) for threshold in (0.7, 0.8, 0.9, 0.95, 0.99)]
        [13, 20, 43, 88, 450]
    """
    _check_settings(min_score, alpha, floor)
    if sequential:
        gate, count = SequentialGate(min_score, alpha), 1
        while gate.add(1.0) != "pass":
            count += 1
        return count
    bounds = Bounds(floor, 1.0)

    def passes(count: int) -> bool:
        estimate = estimate_for_gate([1.0] * count, 1 - 2 * alpha, None, bounds)
        return estimate.low is not None and estimate.low > min_score

    return _first(passes, 2)


def gate_comparison(
    comparison: RunComparison,
    *,
    before: str = "the first run",
    after: str = "the second run",
    anyway: bool = False,
) -> GateResult:
    """Decide whether a build may go on after its run was compared with an earlier run, as `compare --gate` does.

    With the `margin` of `compare_runs`, the gate passes only if a larger loss is excluded. Without it, the gate fails
    only if a loss is shown, and an unclear change is `not shown to be worse`.

    Args:
        comparison: The result of `compare_runs`.
        before: The name of the first run in the text.
        after: The name of the second run in the text.
        anyway: Whether the rows that both runs have decide, although a run was stopped, or the second run has lost more
            than a tenth of the first run's scores. By default, the gate is then inconclusive.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric, grade_many
        >>> from rubric_integrations.trust import compare_runs
        >>> rubric = Rubric([{"requirement": "Says 42", "check": {"number": 42}}])
        >>> grader = PerCriterionGrader("offline")
        >>> before, after = (list(grade_many([text] * 9, rubric, grader)) for text in ("42", "41"))
        >>> print(gate_comparison(compare_runs(before, after)).message())
        worse: the second run is worse than the first run
    """
    verdict, margin = comparison.verdict, comparison.margin
    decision, advice = "inconclusive", ()
    if comparison.stopped and not anyway:
        finding = f"{'; '.join(comparison.stopped)}: grade them, or pass `anyway=True` to compare the others"
    elif comparison.decision == "worse":
        decision, finding = "fail", f"{verdict}: {after} is worse than {before}"
    elif comparison.is_partial and not anyway:
        finding = (
            f"{verdict}: more than a tenth of the scored rows of {before} have no score in {after}: grade them, or "
            "pass `anyway=True` to compare the others alone"
        )
    elif not comparison.has_interval:
        finding = f"{verdict}: the change has no interval and may have any size"
    elif comparison.decision != "unclear":
        decision, finding = "pass", f"{verdict}: {after} is not shown to be worse than {before}"
    elif not margin:
        decision, finding = "not shown to be worse", f"{verdict}: {after} may still be worse than {before}"
        advice = ("`margin=` demands proof that the loss is small",)
    elif comparison.is_not_worse:
        decision, finding = "pass", f"{verdict}: {after} is shown not to be worse than {before} by more than {margin:g}"
    else:
        finding = f"{verdict}: {after} may be worse than {before} by more than {margin:g}"
        advice = ("more rows or a larger `margin=` may decide",)
    observed = comparison.corrected or comparison.score
    return GateResult(
        decision, observed, -margin, warnings=comparison.warnings, margin=margin, finding=finding, advice=advice
    )


class RowGates:
    """Gates that compare figures of a run with thresholds. Rows are added one by one, and use little memory.

    A row on which a judge failed has neither a score nor a pass. The mean score counts a row as 0 if a criterion failed
    or too few criteria were assessed. A gate that is None or False is not tested.

    Args:
        every_row: Whether every row must pass.
        min_score: The smallest mean score.
        min_pass_rate: The smallest share of rows that pass.
        min_coverage: The smallest mean coverage.
        max_failed: The largest number of rows on which the judge may fail.
    """

    def __init__(
        self, *, every_row: bool = False, min_score: float | None = None, min_pass_rate: float | None = None,
        min_coverage: float | None = None, max_failed: int | None = None,
    ):  # fmt: skip
        self.every_row, self.max_failed = every_row, max_failed
        self.min_score, self.min_pass_rate, self.min_coverage = min_score, min_pass_rate, min_coverage
        self._low, self._not_passed, self._uncovered, self._failed = (_WorstRows() for _ in range(4))
        self._rows = self._scored = self._counted = self._covered = self._lacking = 0
        self._score_sum = self._coverage_sum = 0.0

    def add(self, graded: Graded, place: int | None = None) -> None:
        """Add the next row.

        Args:
            graded: The row with its grade.
            place: The position of the row in its file. By default, the number of rows that were added before it.
        """
        place = self._rows if place is None else place
        self._rows += 1
        report, score = graded.report, graded.score
        row_id, text, worth = graded.row.id, shortfall_text(graded), -1.0 if score is None else score
        if graded.judge_error:
            self._failed.add(place, row_id, text, worth, ())
        lacks_answers = report is not None and (report.failed_count > 0 or report.low_coverage)
        if not graded.judge_error and (score is not None or lacks_answers):
            self._scored += score is not None
            self._lacking += lacks_answers
            self._counted += 1
            self._score_sum += graded.gate_score or 0.0
            if self.min_score is not None and not reaches_mark(graded.gate_score, self.min_score):
                self._low.add(place, row_id, text, worth, unmet_criteria(graded))
        if report is None or graded.judge_error or not report.passed:
            self._not_passed.add(place, row_id, text, worth, unmet_criteria(graded))
        if report is not None:
            self._coverage_sum += report.coverage
            self._covered += 1
            if self.min_coverage is not None and not reaches_mark(report.coverage, self.min_coverage):
                missing = unassessed_criteria(graded)
                text = f"coverage {report.coverage:.3f}; not assessed: {names_text(missing)}"
                self._uncovered.add(place, row_id, text, report.coverage, missing)

    def results(self, mean: GateResult | None = None) -> list[GateResult]:
        """Return the result of each gate, for the rows so far.

        Args:
            mean: The result of a statistical gate on the mean score, which replaces the comparison with `min_score`.
        """
        rows, failed = self._rows, self._failed.count
        passed = rows - self._not_passed.count
        share, passed_text = passed / max(rows, 1), f"{passed} of {counted(rows, 'row')} passed"
        results: list[GateResult] = []

        def add(setting: str, limit: float, value: float | None, count: int, finding: str, worst: _WorstRows) -> None:
            is_met = failed <= limit if setting == "max_failed" else reaches_mark(value, limit)
            text = "True" if setting == "every_row" else f"{limit:g}"
            results.append(
                GateResult(
                    "pass" if is_met else "fail", Estimate(value, None, None, count), limit,
                    settings=f"`{setting}={text}`", finding=finding, rows=() if is_met else tuple(worst.lines()),
                )
            )  # fmt: skip

        if self.max_failed is not None:
            finding = f"the judge failed on {failed} of {counted(rows, 'row')}"
            add("max_failed", self.max_failed, failed, rows, finding, self._failed)
        if self.every_row:
            add("every_row", 1.0, share, rows, passed_text, self._not_passed)
        if mean:
            results.append(mean if mean.decision == "pass" else mean._replace(rows=tuple(self._low.lines())))
        elif self.min_score is not None:
            value = self._score_sum / self._counted if self._scored else None
            finding = "no row has a score" if value is None else f"the mean score is {value:.3f}"
            if self._lacking and value is not None:
                lacking = counted(self._lacking, "row counts", "rows count")
                finding += f", where {lacking} as 0, because too many of the answers are missing"
            add("min_score", self.min_score, value, self._counted, finding, self._low)
        if self.min_pass_rate is not None:
            add("min_pass_rate", self.min_pass_rate, share, rows, passed_text, self._not_passed)
        if self.min_coverage is not None:
            value = self._coverage_sum / self._covered if self._covered else None
            finding = "no row was assessed" if value is None else f"the mean coverage is {value:.3f}"
            add("min_coverage", self.min_coverage, value, self._covered, finding, self._uncovered)
        return results


class _WorstRows:
    """The rows that make a gate fail: the worst of them, their number, and the number for each unmet criterion."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self.count = 0
        self._criteria: Counter[str] = Counter()

    def add(self, place: int, row_id: str, text: str, worth: float, criteria: Iterable[CriterionReport]) -> None:
        self.count += 1
        self._criteria.update(row.name for row in criteria)
        # The first entry of a heap is its smallest. With both signs reversed, the best and latest row is dropped first.
        entry = (-worth, -place, f"{row_id}: {text}")
        (heapq.heappush if len(self._heap) < _MAX_ROWS else heapq.heappushpop)(self._heap, entry)

    def lines(self) -> Iterator[str]:
        yield from (text for *_, text in sorted(self._heap, reverse=True))
        if self.count > len(self._heap):
            yield f"and {counted(self.count - len(self._heap), 'more row')}"
        common = [f"{name} in {counted(count, 'row')}" for name, count in self._criteria.most_common(_MAX_CRITERIA)]
        if common and self.count > 1:
            yield f"criteria: {', '.join(common)}"


class SequentialGate:
    """A gate that is tested after every submission. It stops a run as soon as the decision is clear.

    Pass it to a run: `grade_many(..., stop_when=SequentialGate(0.8))`. Submissions must be independent. For rows in
    groups, grade all rows and use `gate(cluster=...)`.

    **The submissions must be in random order**. Shuffle them first (`random.Random(0).shuffle(rows)`), because a file
    that begins with the easy submissions would pass. Each run needs a new gate, because a gate keeps the scores that
    were added before.

    The test is a betting martingale (Waudby-Smith and Ramdas 2024), which bets on scores above the threshold. For the
    scores x_i and the threshold m, its capital is `mean_k prod_i (1 + l_k (x_i - m))`. The mean is over 20 stakes
    `l_k = (k - 1/2) / (20 m)`, for k from 1 to 20. The gate passes when the capital reaches `1 / alpha`. If the true
    mean is not above m, the probability that this ever happens is at most `alpha`. The test for a failure is the same,
    with 1 - x_i and 1 - m.

    Args:
        min_score: The threshold, above 0 and below 1.
        alpha: The probability of a wrong pass, and also of a wrong failure, above 0 and below 0.5.

    Attributes:
        decision: The decision so far. It does not change after it is `pass` or `fail`.
        count: The number of submissions so far, including submissions without a score.
        missing: The number of submissions without a score.

    Raises:
        ValueError: A setting or a score is out of range.

    Example:
        >>> gate = SequentialGate(0.8)
        >>> scores = [1, 1, 0.8, 1, 1, 0.6, 1, 1, 1, 0.8] * 6
        >>> next(number for number, score in enumerate(scores, start=1) if gate.add(score) == "pass")
        34
    """

    def __init__(self, min_score: float, alpha: float = 0.05):
        _check_settings(min_score, alpha)
        self.min_score, self.alpha = min_score, alpha
        self.decision: Decision = "inconclusive"
        self.count = self.missing = 0
        shares = (np.arange(1, _BETS + 1) - 0.5) / _BETS
        self._log_above, self._log_below = np.zeros(_BETS), np.zeros(_BETS)
        self._bets_above, self._bets_below = shares / min_score, shares / (1 - min_score)

    def add(self, score: float | None) -> Decision:
        """Add the score of the next submission, in [0, 1], and return the decision so far.

        A submission without a score (None) counts as 0 in the test for a pass and as 1 in the test for a failure.

        Raises:
            ValueError: The score is not in [0, 1].
        """
        if score is not None and not 0 <= score <= 1:
            raise ValueError(f"`score` must be in [0, 1], got {score!r}")
        lowest, highest = (0.0, 1.0) if score is None else (score, score)
        self.count += 1
        self.missing += score is None
        self._log_above += np.log1p(self._bets_above * (lowest - self.min_score))
        self._log_below += np.log1p(self._bets_below * (self.min_score - highest))
        if self.decision == "inconclusive":
            if self._capital(self._log_above) >= 1 / self.alpha:
                self.decision = "pass"
            elif self._capital(self._log_below) >= 1 / self.alpha:
                self.decision = "fail"
        return self.decision

    def __call__(self, score: float | None) -> str | None:
        """Add a score, and return the decision as a sentence, or None if the gate is still inconclusive.

        This is the interface of `stop_when` of `grade_many`.
        """
        if self.add(score) == "inconclusive":
            return None
        side = "above" if self.decision == "pass" else "below"
        return (
            f"{self.decision} {self.result.finding}: the mean score is {side} {self.min_score:g} (alpha {self.alpha:g})"
        )

    @property
    def result(self) -> GateResult:
        """The decision so far as the result of a gate. It has no interval, which would be too narrow."""
        undecided = "not decided " if self.decision == "inconclusive" else ""
        missing = f", {self.missing:,} without a score" if self.missing else ""
        return GateResult(
            self.decision, Estimate(None, None, None, self.count), self.min_score, missing=self.missing,
            alpha=self.alpha, settings=_settings(self.min_score, self.alpha),
            finding=f"{undecided}after {counted(self.count, 'submission')}{missing}",
        )  # fmt: skip

    @property
    def capital(self) -> float:
        """The evidence that the mean is above the threshold. The gate passes when it reaches `1 / alpha`."""
        return self._capital(self._log_above)

    @staticmethod
    def _capital(logs: np.ndarray) -> float:
        # A larger value would overflow. The decision is made long before.
        return float(np.exp(np.minimum(logs, 700.0)).mean())


def _settings(min_score: float, alpha: float) -> str:
    return f"`min_score={min_score:g}` `alpha={alpha:g}`"


def _check_settings(min_score: float, alpha: float, floor: float = 0.0) -> None:
    if not 0 < min_score < 1:
        raise ValueError(
            f"`min_score` must be above 0 and below 1, got {min_score!r}: no run could be above or below it"
        )
    if not 0 < alpha < 0.5:
        raise ValueError(f"`alpha` must be above 0 and below 0.5, got {alpha!r}")
    if not 0 <= floor < min_score:
        raise ValueError(
            f"`floor` must be at least 0 and below `min_score` {min_score:g}, got {floor!r}: it is a score below which "
            "no submission can be"
        )


def _more_needed(
    scores: Sequence[float], min_score: float, level: float, groups: Groups | None, bounds: Bounds
) -> int | None:
    """Estimate the number of additional submissions that would decide, if they have similar scores and groups."""
    if len(scores) < 2:
        return None

    if groups is not None:
        # Additional rows fill one group after the other.
        order = np.argsort(groups, kind="stable")
        scores, groups = np.asarray(scores, float)[order].tolist(), groups[order]

    def limits_of(count: int) -> tuple[float, float]:
        repeated = None
        if groups is not None:
            # Each repetition of the rows has new groups.
            repeated = np.resize(groups, count) + (np.arange(count) // len(scores)) * (int(groups.max()) + 1)
        values = np.resize(scores, count)
        estimate = estimate_for_gate(values.tolist(), level, repeated, bounds)
        return bounds if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)

    def is_decided(count: int) -> bool:
        low, high = limits_of(count)
        return low > min_score or high < min_score

    many = max(_MANY, len(scores))
    if is_decided(many):
        return _first(is_decided, len(scores)) - len(scores)
    # For larger numbers, the width of the interval is taken to fall with the square root of the number.
    mean, (low, high) = math.fsum(scores) / len(scores), limits_of(many)
    if abs(mean - min_score) <= ROUNDING:
        return None
    needed = many * ((mean - low if mean > min_score else high - mean) / (mean - min_score)) ** 2
    return math.ceil(needed) - len(scores) if needed <= _MOST else None


def _first(holds: Callable[[int], bool], start: int) -> int:
    """Return the first count from `start` at which a condition is true. It must stay true for larger counts."""
    high = start
    while not holds(high):
        high *= 2
    low = max(start, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
