"""`drift`: asks a judge about rows of an earlier run again, and decides whether the judge has changed.

Most judges contradict themselves now and then, so that some answers differ although nothing has changed. Therefore, a
judge is called changed only if its answers or its abstentions moved in one direction, if the mean score moved, if the
new answers differ from the earlier ones more often than from each other, or if the accuracy by human labels moved. The
tests share one `alpha` by Holm's correction. The tests of directions and of differing answers are exact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import numpy as np

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import counted
from rubric_integrations.graders import Grader
from rubric_integrations.judges.spend import Prices
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow, RunFile
from rubric_integrations.runs.ledger import LedgerError, RunLedger, use_ledger
from rubric_integrations.scoring.judgment import Spend, total_spend
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.policies import CannotAssess
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.trust.asked_again import Asked, DrawnRow, ask_repeatedly, draw_rows
from rubric_integrations.trust.comparable_runs import (
    OTHER_QUESTIONS,
    PROGRAM_DOUBT,
    Comparability,
    comparability,
    recorded_part,
)
from rubric_integrations.trust.comparison import (
    RunChanges,
    RunComparison,
    compare_changes,
    holm,
)
from rubric_integrations.trust.judge_noise import JudgeNoise
from rubric_integrations.trust.judge_pairs import JudgeChange, compare_judges
from rubric_integrations.trust.matching import (
    Cluster,
    RunLike,
    as_run,
    criterion_keys,
    dependence_warnings,
    group_rows,
)
from rubric_integrations.trust.means import (
    Groups,
    estimate_mean_share,
    estimate_shift,
    select_groups,
)
from rubric_integrations.trust.statistics import ROUNDING, check_alpha, mcnemar_p_value

DriftDecision = Literal["changed", "not shown to have changed", "inconclusive"]
DriftTest = Literal["direction", "abstentions", "mean", "flips", "labels"]

# If more of the answers are lost, these may be the answers that changed.
_MOST_LOST = 0.1
_LEDGER_NAME = "drift"
# A check that was stopped is continued only in this time, because the judge may have changed since.
_LONGEST = timedelta(days=7)


class CriterionDrift(NamedTuple):
    """How the answers to one criterion changed.

    Attributes:
        flips: The share of the new answers that differ from the earlier ones. A flip is not an error: this share alone
            does not show that the judge has changed.
        own_flips: The share of the answers on which two new answers differ. None without a repetition.
        difference: The mean value of the new answers minus the mean value of the earlier ones. For a binary criterion,
            the difference of the MET rates.
        p_value: The exact two-sided p-value of the direction, by McNemar's test of the numbers of answers whose value
            rose and fell. For rows in groups, of the numbers of groups. None if nothing changed.
        adjusted: The p-value after Holm's correction for all criteria, or None if nothing changed.
        kappa: Cohen's kappa between the earlier and the new answers.
        abstentions: The share of abstentions of the new answers minus that of the earlier ones.
        abstentions_adjusted: The p-value of `abstentions` after Holm's correction for all criteria, or None if nothing
            changed.
    """

    flips: Estimate
    own_flips: Estimate | None
    difference: Estimate
    p_value: float | None
    adjusted: float | None
    kappa: Estimate
    abstentions: Estimate
    abstentions_adjusted: float | None


class DriftReport(Record):
    """The result of `drift`.

    Attributes:
        decision: `changed` if a test shows it. `inconclusive` if the check was stopped, or if more than a tenth of the
            new answers is missing. Without a change, also if the judge is another one than recorded or is asked
            otherwise, or if the rows are too few to show a change.
        reason: Why the check is inconclusive. Otherwise "".
        shown_by: The tests that show a change: `direction` (the answers to a criterion moved in one direction),
            `abstentions` (the abstentions on a criterion became more or less frequent), `mean` (the mean score),
            `flips` (the new answers differ from the earlier ones more often than from each other) and `labels` (the
            accuracy by the human labels).
        p_values: The p-value of each test after Holm's correction for the tests. None if nothing changed.
        same_judge: Whether the judge's fingerprint (model, server, settings and prompts) equals the recorded one. None
            if the run does not record it.
        other_judge: How the judges differ, if `same_judge` is false. Otherwise "".
        asked_otherwise: How the questions differ, such as by another strategy of the grader. Otherwise "".
        score: The mean score of the new answers minus the mean score of the earlier answers.
        criteria: The changes of each criterion. The key is the criterion's name, or its requirement if several criteria
            have this name.
        moved: The criteria whose answers moved in one direction, after Holm's correction.
        labels: The accuracy of the earlier and of the new answers, by the human labels. None without labels.
        rows: The number of rows with new answers.
        drawn: The number of rows that were drawn.
        lost: The number of answers that the judge failed to give again.
        noise: How much the judge contradicts itself now. None without a repetition.
        spend: The spend of the new requests.
        started: The time at which this check began, in ISO 8601. It is earlier than this call if a check that was
            stopped is continued.
        stopped: Why the check was stopped, or None.
        is_unusable: Whether the judge could not be used.
        alpha: The probability that a judge that has not changed is called changed.
        warnings: Limitations of the figures, one sentence each.
    """

    decision: DriftDecision
    reason: str
    shown_by: tuple[DriftTest, ...]
    p_values: dict[DriftTest, float | None]
    same_judge: bool | None
    other_judge: str
    asked_otherwise: str
    score: Estimate
    criteria: dict[str, CriterionDrift]
    moved: tuple[str, ...]
    labels: JudgeChange | None
    rows: int
    drawn: int
    lost: int
    noise: JudgeNoise | None
    spend: Spend
    started: str
    stopped: str | None
    is_unusable: bool
    alpha: float
    warnings: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The decision in one sentence."""
        if self.decision == "inconclusive":
            return f"inconclusive: {self.reason}."
        if self.decision == "not shown to have changed":
            return f"The judge is not shown to have changed, by {counted(self.rows, 'row')}."
        reasons = {
            "direction": f"the answers to {', '.join(self.moved)} moved in one direction",
            "abstentions": self._abstentions_text(),
            "mean": f"the mean score moved by {self.score.with_limits(signed=True)}",
            "flips": "the new answers differ from the earlier ones more often than from each other",
        }
        if self.labels:
            reasons["labels"] = f"the accuracy by the labels moved by {self.labels.difference.with_limits(signed=True)}"
        judge = "The judge has changed"
        if self.same_judge is False:
            judge += ", and is another one than the run's"
        elif self.asked_otherwise:
            judge += ", or the other way in which it is asked has changed its answers"
        return f"{judge}: {'; '.join(reasons[test] for test in self.shown_by)}."

    def _abstentions_text(self) -> str:
        moved = {
            name: row.abstentions.value or 0.0
            for name, row in self.criteria.items()
            if row.abstentions_adjusted is not None and row.abstentions_adjusted < self.alpha
        }
        sides = {
            "more": [name for name, value in moved.items() if value > 0],
            "less": [name for name, value in moved.items() if value < 0],
        }
        return "; ".join(
            f"the abstentions on {', '.join(names)} became {side} frequent" for side, names in sides.items() if names
        )

    @property
    def judge_line(self) -> str:
        """Whether the judge is the recorded one, in one sentence."""
        if self.same_judge is None:
            return "The run does not record the judge's settings: whether this judge is the same is unknown."
        otherwise = f"it is asked otherwise: {self.asked_otherwise}." if self.asked_otherwise else ""
        if self.same_judge:
            return f"The judge's fingerprint equals the recorded one{f', but {otherwise}' if otherwise else '.'}"
        other = "; ".join(filter(None, [self.other_judge, otherwise]))
        return f"The judge's fingerprint differs from the recorded one. {other}".strip()

    @property
    def labels_line(self) -> str:
        """Whether the agreement with human labels still holds, in one sentence. "" without labels."""
        labels = self.labels
        if labels is None or labels.strong is None or labels.cheap is None:
            return ""
        figures = f"accuracy {labels.strong:.3f} then and {labels.cheap:.3f} now, difference "
        figures += labels.difference.with_limits(signed=True)
        if (self.p_values.get("labels") or 1.0) < self.alpha:
            return f"The figures of `agree` and `calibrate` no longer hold ({figures}): grade the labelled rows again."
        return f"The agreement with the labels is not shown to have changed ({figures})."

    def summary(self) -> str:
        """Return the figures as text."""
        lines = [self.headline, self.judge_line, *filter(None, [self.labels_line])]
        lines += [
            f"{name}: {row.flips} flips{f', {row.own_flips} of its own' if row.own_flips else ''}, "
            f"difference {row.difference}, abstentions {row.abstentions}"
            for name, row in self.criteria.items()
        ]
        return "\n".join([*lines, *self.warnings])

    def _repr_html_(self) -> str:
        rows = [
            (name, str(row.flips), str(row.difference), row.adjusted, str(row.abstentions))
            for name, row in self.criteria.items()
        ]
        return html_table(self.summary(), ["criterion", "flips", "difference", "p (Holm)", "abstentions"], rows)


def drift(
    run: RunLike,
    grader: Grader,
    *,
    rubric: Rubric | None = None,
    labels: Iterable[LabelledJudgment] | None = None,
    sample: int = 200,
    repeat: int = 1,
    alpha: float = 0.05,
    cluster: Cluster | None = None,
    ledger: LedgerLike | None = None,
    max_concurrency: int = 64,
    max_cost: float | None = None,
    max_calls: int | None = None,
    prices: Prices | None = None,
    progress: bool = False,
) -> DriftReport:
    """Ask a judge about rows of an earlier run again, and decide whether the judge has changed.

    All criteria that a judge answered are asked again. Of a panel or a cascade, the final answers are compared.

    Args:
        run: The earlier run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        grader: The grader with the judge, set up as in the run.
        rubric: The rubric of the run. By default, the criteria are read from the run. It is needed if the judge read
            more than the run has, such as examples.
        labels: Human labels of the run, to test whether the judge's agreement with them still holds.
        sample: The number of rows to ask again. They are drawn by a hash of their text.
        repeat: How often each row is asked again: once or twice. Twice also finds a judge whose answers moved in both
            directions.
        alpha: The probability that a judge that has not changed is called changed.
        cluster: How to group rows that depend on each other, for the intervals.
        ledger: The ledger of this check: the path of a file that no other run uses. A check that was stopped continues
            from it. After a complete check, the next one asks again.
        max_concurrency: The largest number of concurrent calls.
        max_cost: The largest cost of this call in US dollars.
        max_calls: The largest number of calls to models.
        prices: The prices of models (see `grade_many`).
        progress: Whether to show a progress bar.

    Raises:
        ValueError: No row can be asked again, the rubric is not that of the run, an argument is out of range, or the
            ledger belongs to a run (`LedgerError`).
    """
    check_alpha(alpha)
    if repeat not in (1, 2):
        raise ValueError(f"`repeat` must be 1 or 2, got {repeat!r}")
    earlier = as_run(run, "the run", in_memory=True)
    drawn, warnings = draw_rows(earlier, rubric, sample)
    with use_ledger(ledger) if ledger is not None else nullcontext() as store:
        check = _begin(store)
        passes = ask_repeatedly(
            [(row.submission, row.rubric) for row in drawn], grader, repeat, store=check.ledger, first=2 * check.number,
            max_concurrency=max_concurrency, max_cost=max_cost, max_calls=max_calls, prices=prices, progress=progress,
        )  # fmt: skip
        if not passes[-1].stopped:
            check.record(complete=True)
    if check.is_continued:
        warnings.append(f"this check began at {check.started}, and was continued")
    spent = total_spend(each_pass.spend for each_pass in passes)
    return _report(earlier, drawn, passes, grader, _Settings(alpha, cluster, repeat, labels), check, spent, warnings)


class _Check(NamedTuple):
    """A check in a ledger.

    Attributes:
        ledger: The ledger, or None.
        number: The number of the check, from 1. The answers of each check have other numbers in the ledger.
        started: The time at which it began, in ISO 8601.
        stored: The number of answers in the ledger at its beginning.
        is_continued: Whether it was stopped before, with answers of its own in the ledger.
    """

    ledger: RunLedger | None
    number: int
    started: str
    stored: int
    is_continued: bool

    def record(self, *, complete: bool) -> None:
        """Record the state of the check. Without it, the next check would take the answers of this one for its own."""
        if self.ledger is not None:
            state = {"check": self.number, "started": self.started, "stored": self.stored, "complete": complete}
            self.ledger.record_grader({"grader": _LEDGER_NAME, **state})


def _begin(store: object) -> _Check:
    """Begin a check, or continue the latest check of the ledger if it is incomplete and began recently."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if store is None:
        return _Check(None, 1, now, 0, is_continued=False)
    if not isinstance(store, RunLedger):
        raise TypeError(f"`ledger` must be a path, a URL or a ledger, got {type(store).__name__}")
    state: dict[str, Any] = store.latest_grader() or {}
    if state.get("grader", _LEDGER_NAME) != _LEDGER_NAME or (not state and len(store)):
        raise LedgerError(
            f"`ledger` {store.address!r} is the ledger of a run: name another file, which only `drift` uses"
        )
    number, started, stored, is_continued = 1, now, len(store), False
    if state:
        age = datetime.now(UTC) - datetime.fromisoformat(state["started"])
        stored = state.get("stored", 0)
        is_continued = not state["complete"] and age <= _LONGEST and len(store) > stored
        number = state["check"] + (not is_continued)
        started, stored = (state["started"], stored) if is_continued else (now, len(store))
    check = _Check(store, number, started, stored, is_continued)
    check.record(complete=False)
    return check


class _Settings(NamedTuple):
    alpha: float
    cluster: Cluster | None
    repeat: int
    labels: Iterable[LabelledJudgment] | None


def _report(
    earlier: RunFile,
    drawn: Sequence[DrawnRow],
    passes: Sequence[Asked],
    grader: Grader,
    settings: _Settings,
    check: _Check,
    spent: Spend,
    warnings: list[str],
) -> DriftReport:
    """Return the report, which compares the answers of all passes with the answers of the earlier run."""
    policy: CannotAssess = grader.policies.cannot_assess
    record = grader.scoring_record()
    before = [each.answered(each.row.report, policy) for each in drawn]
    after = [
        [
            each.answered(report, policy)._replace(scoring={"grader": record})
            for each, report in zip(drawn, each_pass.reports, strict=True)
        ]
        for each_pass in passes
    ]
    same_judge, other_judge, asked_otherwise, judge_warnings = _compare_judge(earlier, before, after[0], record)
    lost = sum(
        sum(entry.error is not None for entry in row.report.criteria) if row.report else len(each.rubric)
        for rows in after
        for each, row in zip(drawn, rows, strict=True)
    )
    stopped = next((each_pass.stopped for each_pass in passes if each_pass.stopped), None)
    fields: dict[str, Any] = {
        "same_judge": same_judge, "other_judge": other_judge, "asked_otherwise": asked_otherwise,
        "rows": sum(row.report is not None for row in after[-1]), "drawn": len(drawn), "lost": lost, "spend": spent,
        "started": check.started, "stopped": stopped,
        "is_unusable": any(each_pass.is_unusable for each_pass in passes), "alpha": settings.alpha,
    }  # fmt: skip
    undefined = Estimate(None, None, None, 0)
    if stopped:
        return DriftReport(
            decision="inconclusive", shown_by=(), p_values={}, score=undefined, criteria={}, moved=(), labels=None,
            reason=f"the check was stopped after {fields['rows']:,} of {counted(len(drawn), 'row')} ({stopped})",
            noise=None, warnings=(*warnings, *judge_warnings), **fields,
        )  # fmt: skip
    groups = group_rows(before, settings.cluster)
    changes = RunChanges(
        None if groups is None else {(str(place), 1): int(group) for place, group in enumerate(groups)}
    )
    for place, rows in enumerate(zip(before, after[0], strict=True)):
        changes.add((str(place), 1), *rows)
    comparison = (
        compare_changes(changes, level=1 - settings.alpha, comparable=Comparability(passing=False))
        if changes.score.differences
        else None
    )
    labels, label_warnings = _labels_hold(settings, earlier, before, after[0])
    measured = change_tests([before, *after], changes, comparison, groups)
    if labels is not None:
        measured["labels"] = labels.p_value
    by_test = holm({test: p for test, p in measured.items() if p is not None})
    adjusted: dict[DriftTest, float | None] = {test: by_test.get(test) for test in measured}
    shown: tuple[DriftTest, ...] = tuple(test for test, p in adjusted.items() if p is not None and p < settings.alpha)
    criteria = criterion_drifts([before, *after], changes, comparison, groups, 1 - settings.alpha)
    reason = ""
    if lost > _MOST_LOST * sum(len(each.rubric) for each in drawn) * settings.repeat:
        shown, reason = (), f"{counted(lost, 'answer is', 'answers are')} missing and may have changed"
    elif not shown and same_judge is False:
        reason = "this check asked another judge than the run's, and its answers are not shown to differ"
    elif not shown and asked_otherwise:
        reason = "this check asked the judge otherwise than the run did, and its answers are not shown to differ"
    elif not shown:
        reason = _too_few(fields["rows"], groups, settings.alpha, len(measured) - 1)
    return DriftReport(
        decision="inconclusive" if reason else "changed" if shown else "not shown to have changed",
        reason=reason,
        shown_by=shown,
        p_values=adjusted,
        score=comparison.score if comparison else undefined,
        criteria=criteria,
        moved=tuple(
            name for name, row in criteria.items() if row.adjusted is not None and row.adjusted < settings.alpha
        ),
        labels=labels,
        noise=_noise(after) if settings.repeat > 1 else None,
        warnings=(
            *warnings,
            *judge_warnings,
            *([f"{counted(lost, 'answer is', 'answers are')} left out, because the judge failed"] if lost else []),
            *dependence_warnings(before, settings.cluster),
            *label_warnings,
        ),
        **fields,
    )


def _too_few(rows: int, groups: Groups | None, alpha: float, tests: int) -> str:
    """Return that a change of direction cannot be shown by so few rows, or "".

    If an answer to one criterion moved in all of n rows, the p-value of McNemar's test is 0.5 ** (n - 1).
    """
    count = rows if groups is None else len(set(groups.tolist()))
    needed = math.floor(math.log2(tests / alpha)) + 2
    if count >= needed:
        return ""
    units = counted(count, "row") if groups is None else counted(count, "group of rows", "groups of rows")
    return f"with {units}, no change of direction can be shown: at least {needed:,} are needed"


def _compare_judge(
    earlier: RunFile, before: Sequence[GradedRow], after: Sequence[GradedRow], record: dict[str, Any]
) -> tuple[bool | None, str, str, list[str]]:
    """Return whether the judge is the recorded one, how the judges and the questions differ, and other warnings."""
    names = ", ".join(record["names"])
    runs = [RunFile("the run", None, earlier.judge, before), RunFile("this check", None, names, after)]
    comparable = comparability(*runs)
    other_way = [text for text in comparable.warnings if text.endswith(OTHER_QUESTIONS)]
    warnings = [text for text in comparable.warnings if text not in (*other_way, comparable.other_judge)]
    recorded = {json.dumps(recorded_part(row, "grader").get("judges"), sort_keys=True) for row in before}
    otherwise = "; ".join(text.removesuffix(OTHER_QUESTIONS) for text in other_way)
    if "null" in recorded or not all(record["judges"]):
        return None, "", otherwise, warnings
    is_same = recorded == {json.dumps(record["judges"], sort_keys=True)}
    difference = comparable.other_judge.removesuffix(PROGRAM_DOUBT)
    if is_same:  # another explorer shows the judge other steps
        return True, "", "; ".join(filter(None, (otherwise, difference))), warnings
    return False, difference, otherwise, warnings


def change_tests(
    runs: Sequence[Sequence[GradedRow]],
    changes: RunChanges,
    comparison: RunComparison | None,
    groups: Groups | None = None,
) -> dict[DriftTest, float | None]:
    """Return the p-value of each test of the answers that a judge has changed. None if nothing changed.

    Args:
        runs: The rows with the earlier answers and with the new ones, once or twice, in the same order.
        changes: The differences of the first new rows from the earlier ones.
        comparison: The comparison of these rows. None if no row has a score in both.
        groups: The group of each row, or None if the rows are independent.
    """
    is_sure = comparison is not None and not comparison.caveat
    abstentions = [p for _, p in _abstentions(runs[0], runs[1], groups, 0.95).values() if p is not None]
    tests: dict[DriftTest, float | None] = {
        "direction": min(holm(_directions(changes)).values(), default=None),
        "abstentions": min(abstentions, default=None),
        "mean": comparison.p_value if comparison and is_sure else None,
    }
    if len(runs) > 2:
        tests["flips"] = odd_answers_p_value([_odd_answers(rows) for rows in zip(*runs, strict=True)])
    return tests


def _directions(changes: RunChanges) -> dict[tuple[str, str], float]:
    """Return the p-value of the direction of each criterion whose answers changed, by its name and words."""
    p_values = {key: direction_p_value(of.differences, of.groups) for key, of in changes.criteria.items()}
    return {key: p_value for key, p_value in p_values.items() if p_value is not None}


def direction_p_value(differences: Sequence[float], groups: Groups | None = None) -> float | None:
    """Compute the exact two-sided p-value that values moved in one direction, by McNemar's test of the signs.

    If a judge has not changed, its earlier and its new answers may be exchanged. Therefore, a difference is above 0 as
    often as below, however large it is. Of rows in groups, the sums of the groups are tested.

    Args:
        differences: The new value of each row minus its earlier value.
        groups: The group of each row, or None if the rows are independent.

    Returns:
        The p-value, or None if no value, or no sum of a group, moved.

    Example:
        >>> direction_p_value([1.0] * 6 + [0.0] * 20)
        0.03125
    """
    sums = np.asarray(differences, float)
    if groups is not None:
        sums = np.bincount(groups, sums)
    return mcnemar_p_value(int((sums > ROUNDING).sum()), int((sums < -ROUNDING).sum()), exact=True)


def _abstentions(
    before: Sequence[GradedRow], after: Sequence[GradedRow], groups: Groups | None, level: float
) -> dict[tuple[str, str], tuple[Estimate, float | None]]:
    """Return, by the name and the words of each criterion, how the share of abstentions moved.

    The p-value is that of `direction_p_value`, after Holm's correction for all criteria. None if nothing changed.
    """
    of_criteria: dict[tuple[str, str], list[tuple[int, bool, bool]]] = {}
    for place, (one, other) in enumerate(zip(before, after, strict=True)):
        new = {(entry.name, entry.requirement): entry.abstained for entry in _entries(other) if entry.was_judged}
        for entry in _entries(one):
            key = (entry.name, entry.requirement)
            if key in new:
                of_criteria.setdefault(key, []).append((place, entry.abstained, new[key]))
    shifts: dict[tuple[str, str], Estimate] = {}
    p_values: dict[tuple[str, str], float] = {}
    for key, of in of_criteria.items():
        of_groups = select_groups(groups, [place for place, _, _ in of])
        rose, fell = [float(now and not then) for _, then, now in of], [float(then and not now) for _, then, now in of]
        shifts[key] = estimate_shift(rose, fell, level, of_groups)
        p_value = direction_p_value(np.subtract(rose, fell).tolist(), of_groups)
        if p_value is not None:
            p_values[key] = p_value
    adjusted = holm(p_values)
    return {key: (shift, adjusted.get(key)) for key, shift in shifts.items()}


def _odd_answers(rows: Sequence[GradedRow]) -> tuple[int, int, int]:
    """Count the criteria on which the earlier answer, the first or the second new answer is the only different one."""
    counts = [0, 0, 0]
    entries = [{entry.requirement + entry.name: entry for entry in _entries(row)} for row in rows]
    for key in entries[0].keys() & entries[1].keys() & entries[2].keys():
        answers = [of[key].verdict for of in entries if of[key].was_judged]
        if len(answers) == 3 and len(set(answers)) == 2:
            counts[next(place for place in range(3) if answers.count(answers[place]) == 1)] += 1
    return counts[0], counts[1], counts[2]


def _entries(row: GradedRow) -> Sequence[CriterionReport]:
    return row.report.criteria if row.report else ()


def odd_answers_p_value(counts: Sequence[tuple[int, int, int]]) -> float | None:
    """Compute the p-value of a test that a judge differs from its earlier answers more often than from itself.

    Each criterion of a row has three answers: the earlier one and two new ones. If the judge has not changed, the
    answer that differs from the other two is equally often each of the three. Therefore, the counts of a row may be
    exchanged, and the p-value is exact: the probability of at least as many different earlier answers. Answers of one
    row may depend on each other.

    Args:
        counts: For each row, the number of criteria on which the earlier, the first new and the second new answer is
            the only different one.

    Returns:
        The one-sided p-value, or None if no answer differs.

    Example:
        >>> odd_answers_p_value([(1, 0, 0)] * 3) == 1 / 27
        True
    """
    observed = sum(earlier for earlier, _, _ in counts)
    distribution = np.ones(1)
    for of_row in counts:
        if any(of_row):
            step = np.bincount(of_row, minlength=max(of_row) + 1) / 3
            distribution = np.convolve(distribution, step)
    return None if len(distribution) == 1 else min(1.0, float(distribution[observed:].sum()))


def criterion_drifts(
    runs: Sequence[Sequence[GradedRow]],
    changes: RunChanges,
    comparison: RunComparison | None,
    groups: Groups | None,
    level: float,
) -> dict[str, CriterionDrift]:
    """Return the drift of each criterion by name: its flipped verdicts, its change of the score and its kappa.

    Args:
        runs: The rows with the earlier answers and with the new ones, once or twice, in the same order.
        changes: The differences of the first new rows from the earlier ones.
        comparison: The comparison of these rows. None if no row has a score in both.
        groups: The group of each row, or None if the rows are independent.
        level: The confidence level of the intervals, between 0 and 1.
    """
    flips: dict[tuple[str, str], list[tuple[int, bool, bool | None]]] = {}
    for place, rows in enumerate(zip(*runs, strict=True)):
        others = [{(entry.name, entry.requirement): entry for entry in _entries(row)} for row in rows[1:]]
        for entry in _entries(rows[0]):
            key = (entry.name, entry.requirement)
            new = [of[key] for of in others if key in of and of[key].was_judged]
            if len(new) == len(others):
                own = new[0].verdict != new[1].verdict if len(new) > 1 else None
                flips.setdefault(key, []).append((place, new[0].verdict != entry.verdict, own))
    names, compared = criterion_keys(flips), criterion_keys(changes.criteria)
    directions = _directions(changes)
    adjusted = holm(directions)
    abstentions = _abstentions(runs[0], runs[1], groups, level)
    undefined = Estimate(None, None, None, 0)
    drifts: dict[str, CriterionDrift] = {}
    for key, of in flips.items():
        of_groups = select_groups(groups, [place for place, _, _ in of])
        change = comparison.criteria[compared[key]] if comparison and key in compared else None
        own = [float(is_flip) for _, _, is_flip in of if is_flip is not None]
        drifts[names[key]] = CriterionDrift(
            flips=estimate_mean_share([float(is_flip) for _, is_flip, _ in of], level, of_groups),
            own_flips=estimate_mean_share(own, level, of_groups) if own else None,
            difference=change.difference if change else undefined,
            p_value=directions.get(key),
            adjusted=adjusted.get(key),
            kappa=change.kappa if change else undefined,
            abstentions=abstentions[key][0],
            abstentions_adjusted=abstentions[key][1],
        )
    return drifts


def _noise(after: Sequence[Sequence[GradedRow]]) -> JudgeNoise | None:
    reports = [
        [row.report for row in rows if row.report and not row.report.failed_count] for rows in zip(*after, strict=True)
    ]
    complete = [of_row for of_row in reports if len(of_row) == len(after)]
    return JudgeNoise.of(complete) if complete else None


def _labels_hold(
    settings: _Settings, earlier: RunFile, before: Sequence[GradedRow], after: Sequence[GradedRow]
) -> tuple[JudgeChange | None, list[str]]:
    """Compare the accuracy of the earlier and of the new answers, by the human labels of the drawn rows."""
    labels = list(settings.labels or ())
    if not labels:
        return None, []
    then, now = RunFile("then", None, earlier.judge, before), RunFile("now", None, earlier.judge, after)
    try:
        comparison = compare_judges(then, now, labels, alpha=settings.alpha, cluster=settings.cluster)
    except ValueError as error:
        return None, [f"nothing about the labels: {error}"]
    return comparison.overall.accuracy, []
