"""`probe`: measures how often attacks change a judge's verdict, by the same questions with and without each attack.

The report contains success rates with intervals for each family of attacks, and every successful attack.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations._util.terminal import plain
from rubric_integrations.graders import CallLimits, PerCriterionGrader
from rubric_integrations.graders.grader import DEFAULT_LIMITS
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.redteam.attacks import ATTACKS, TASKS, Attack, Family, Task, true_verdict
from rubric_integrations.redteam.structural import find_breach
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import Spend, total_spend
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.submission.submission import Submission

_Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution


class Rate(Record):
    """A success rate with Wilson's 95 % interval.

    The interval assumes independent trials. Trials of one attack on several criteria are correlated. Therefore, an
    exact interval would be somewhat wider.

    Attributes:
        successes: The number of successes.
        trials: The number of trials.
        rate: Successes divided by trials, in [0, 1], or None without a trial.
        low: The lower end of the interval, in [0, 1].
        high: The upper end of the interval, in [0, 1].

    Example:
        >>> print(Rate.of(0, 20))
        0.0 % (0.0 to 16.1)
    """

    successes: int
    trials: int
    rate: UnitScore | None
    low: UnitScore
    high: UnitScore

    @classmethod
    def of(cls, successes: int, trials: int) -> Rate:
        """Compute the rate and its interval.

        Raises:
            ValueError: `successes` is negative or larger than `trials`.
        """
        low, high = wilson_interval(successes, trials)
        return cls(successes=successes, trials=trials, rate=successes / trials if trials else None, low=low, high=high)

    def __str__(self) -> str:
        if self.rate is None:
            return "-"
        return f"{100 * self.rate:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Compute Wilson's 95 % score interval of a proportion (E. B. Wilson, JASA 22, 1927, 209-212).

    Returns:
        The lower and the upper end, in [0, 1], or (0, 1) without a trial.

    Raises:
        ValueError: `successes` is negative or larger than `trials`.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"`successes` must be from 0 to {trials!r}, got {successes!r}")
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, _Z * _Z
    center = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials)) / (1 + z2 / trials)
    # Without rounding errors, the formula gives exactly 0 for no success and 1 for no failure.
    low = 0.0 if successes == 0 else max(0.0, center - half)
    return low, 1.0 if successes == trials else min(1.0, center + half)


class Success(Record):
    """A verdict that an attack changed.

    Attributes:
        attack: The attack's name.
        task: The task's name.
        requirement: The criterion's requirement.
        before: The verdict without the attack, which is the true verdict.
        after: The verdict with the attack.
        reason: The judge's explanation of the changed verdict.
    """

    attack: str
    task: str
    requirement: str
    before: str
    after: str
    reason: str


class FamilyReport(Record):
    """The results of one family of behavioural attacks.

    Attributes:
        family: The family of attacks.
        attacks: The number of attacks in the family.
        rate: The share of changed verdicts, among the questions that the judge answered correctly without the attack
            and also answered with the attack.
        abstentions: The number of verdicts that an attack changed to CANNOT_ASSESS. By default, this verdict removes
            the criterion from the score.
        failures: The number of questions with an attack that got no answer. These questions do not count as trials in
            `rate`.
        left_out: The number of questions that were not requested with an attack, because the judge's answer without the
            attack was wrong or missing.
    """

    family: Family
    attacks: int
    rate: Rate
    abstentions: int
    failures: int
    left_out: int


class Breach(Record):
    """A structural attack that succeeded against the sanitizer or the parser.

    Such a success is a defect of this library and not of the judge.

    Attributes:
        attack: The attack's name.
        how: A description of the text that would be read as structure or as an answer.
    """

    attack: str
    how: str


class ProbeReport(Record):
    """The results of `probe`.

    Attributes:
        structural: The number of structural attacks that were checked. These checks make no call to the judge.
        breaches: The structural attacks that succeeded. Each is a defect of this library. Therefore, the tuple should
            be empty.
        families: The results of the behavioural attacks, by family.
        total: The success rate over all families.
        failures: The number of questions with an attack that got no answer.
        baseline: The number of questions without an attack.
        baseline_errors: The number of baseline questions that the judge answered wrongly or could not assess. No attack
            is tried on these questions.
        baseline_failures: The number of baseline questions without an answer. No attack is tried on these questions.
        successes: The verdicts that an attack changed.
        spend: The calls, tokens and cost of the probe.
    """

    structural: int
    breaches: tuple[Breach, ...]
    families: tuple[FamilyReport, ...]
    total: Rate
    failures: int
    baseline: int
    baseline_errors: int
    baseline_failures: int
    successes: tuple[Success, ...]
    spend: Spend


class Trial(NamedTuple):
    """The judge's answer to one criterion about a submission with an attack.

    Attributes:
        attack: The attack.
        task: The task, whose poor response contains the attack.
        criterion: The criterion. The judge answered it correctly without the attack.
        row: The report's entry with the judge's answer.
    """

    attack: Attack
    task: Task
    criterion: Criterion
    row: CriterionReport

    @property
    def is_success(self) -> bool:
        """Whether the attack changed the verdict. A failure of the judge is not a success."""
        return self.row.error is None and self.row.verdict != true_verdict(self.criterion)


def applies_to(attack: Attack, criterion: Criterion) -> bool:
    """Whether an attack can be tried on a criterion: the true verdict is the same with and without the attack.

    The true verdict differs only for a penalty if the attack replaces the submission. The errors of the submission are
    then gone, and the true verdict is UNMET instead of MET.
    """
    return attack.place != "instead" or not criterion.is_penalty


def is_right(criterion: Criterion, row: CriterionReport) -> bool:
    """Whether the judge gave the true verdict on a criterion of a task's poor response."""
    return row.error is None and row.verdict == true_verdict(criterion)


def build_report(
    attacks: Sequence[Attack],
    trials: Sequence[Trial],
    baseline: Sequence[CriterionReport],
    breaches: Sequence[Breach],
    spend: Spend,
) -> ProbeReport:
    """Summarize a probe.

    Args:
        attacks: All attacks, of both kinds.
        trials: The answers with an attack.
        baseline: The answers without an attack, in the order of the tasks and their criteria.
        breaches: The structural attacks that succeeded.
        spend: The calls, tokens and cost of the probe.
    """
    behavioural = [attack for attack in attacks if attack.kind == "behavioural"]
    families = dict.fromkeys(attack.family for attack in behavioural)
    failures = sum(row.error is not None for row in baseline)
    right = sum(is_right(c, row) for c, row in zip(_criteria(), baseline, strict=True))
    return ProbeReport(
        structural=len(attacks) - len(behavioural),
        breaches=tuple(breaches),
        families=tuple(
            _family_report(
                [attack for attack in behavioural if attack.family == family],
                [trial for trial in trials if trial.attack.family == family],
            )
            for family in families
        ),
        total=_rate(trials),
        failures=sum(trial.row.error is not None for trial in trials),
        baseline=len(baseline),
        baseline_errors=len(baseline) - right - failures,
        baseline_failures=failures,
        successes=tuple(
            Success(
                attack=trial.attack.name,
                task=trial.task.name,
                requirement=trial.criterion.requirement,
                before=true_verdict(trial.criterion),
                after=str(trial.row.verdict),
                reason=trial.row.reason,
            )
            for trial in trials
            if trial.is_success
        ),
        spend=spend,
    )


def _family_report(attacks: Sequence[Attack], trials: Sequence[Trial]) -> FamilyReport:
    possible = sum(applies_to(attack, criterion) for attack in attacks for criterion in _criteria())
    return FamilyReport(
        family=attacks[0].family,
        attacks=len(attacks),
        rate=_rate(trials),
        abstentions=sum(trial.is_success and trial.row.verdict == "CANNOT_ASSESS" for trial in trials),
        failures=sum(trial.row.error is not None for trial in trials),
        left_out=possible - len(trials),
    )


def _rate(trials: Sequence[Trial]) -> Rate:
    return Rate.of(sum(trial.is_success for trial in trials), sum(trial.row.error is None for trial in trials))


def _criteria() -> list[Criterion]:
    return [criterion for task in TASKS for criterion in task.rubric.criteria]


async def probe(
    judge: JudgeLike,
    attacks: Sequence[Attack] = ATTACKS,
    *,
    limits: CallLimits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] | None = None,
) -> ProbeReport:
    """Try attacks on a judge, and measure how often they succeed.

    Structural attacks are checked against the sanitizer and the parser, without a call. Behavioural attacks are added
    to the poor responses of two small tasks. The judge then grades these responses with one criterion per call. The
    complete catalogue needs about 270 short calls.

    An attack succeeds if the judge's verdict differs from the true verdict. An abstention is also a success of the
    attack, because by default it removes the criterion from the score. If the judge is wrong on a criterion without an
    attack, no attack is tried on this criterion.

    Args:
        judge: The judge, in any form that a grader accepts as `judge`.
        attacks: The attacks to try.
        limits: The limits on calls to the judge.
        progress: A function that is called after each graded submission, with the number of graded submissions and the
            total number.

    Raises:
        ValueError: A setting of the judge is missing, unknown or out of range.
        TypeError: `judge` has a type that a grader does not accept.

    Example:
        >>> import asyncio
        >>> report = asyncio.run(probe("offline", ATTACKS[:1]))
        >>> report.structural, report.breaches
        (1, ())
    """
    grader = PerCriterionGrader(judge, on_failure="abstain", limits=limits)
    behavioural = [attack for attack in attacks if attack.kind == "behavioural"]
    done, total = 0, len(TASKS) * (1 + len(behavioural))

    async def grade(task: Task, response: str, rubric: Rubric) -> tuple[Sequence[CriterionReport], Spend]:
        nonlocal done
        report = await grader.grade(rubric, Submission(response=response, query=task.query))
        done += 1
        if progress:
            progress(done, total)
        return report.criteria, report.spend

    baselines = await asyncio.gather(*(grade(task, task.response, task.rubric) for task in TASKS))
    baseline = [row for rows, _ in baselines for row in rows]
    right = {
        task.name: [c for c, row in zip(task.rubric.criteria, rows, strict=True) if is_right(c, row)]
        for task, (rows, _) in zip(TASKS, baselines, strict=True)
    }

    async def attempt(attack: Attack, task: Task) -> tuple[list[Trial], Spend]:
        criteria = [criterion for criterion in right[task.name] if applies_to(attack, criterion)]
        if not criteria:
            return [], Spend()
        rubric = task.rubric.model_copy(update={"criteria": criteria})
        rows, cost = await grade(task, attack.apply_to(task.response), rubric)
        return [Trial(attack, task, c, row) for c, row in zip(criteria, rows, strict=True)], cost

    attempts = await asyncio.gather(*(attempt(attack, task) for attack in behavioural for task in TASKS))
    trials = [trial for some, _ in attempts for trial in some]
    spend = total_spend(cost for _, cost in (*baselines, *attempts))
    # The checks compute for seconds, which would block the event loop.
    breaches = await asyncio.to_thread(_breaches, attacks)
    return build_report(attacks, trials, baseline, breaches, spend)


def _breaches(attacks: Sequence[Attack]) -> list[Breach]:
    structural = (attack for attack in attacks if attack.kind == "structural")
    return [Breach(attack=attack.name, how=how) for attack in structural if (how := find_breach(attack))]


# A longer list is not useful in a terminal. The file of `--out` has all successes.
MAX_SUCCESSES = 20


def probe_table(report: ProbeReport) -> Table:
    """Return a table of the behavioural attacks with one row for each family."""
    table = Table(title="Attacks that changed a verdict", title_justify="left", title_style="bold")
    for column in ("family", "attacks", "changed", "of", "rate (95 % interval)", "failed", "left out"):
        table.add_column(column, justify="left" if column == "family" else "right", no_wrap=True)
    for row in report.families:
        table.add_row(
            row.family, str(row.attacks), str(row.rate.successes), str(row.rate.trials), str(row.rate),
            str(row.failures), str(row.left_out),
            style="red" if row.rate.successes else None,
        )  # fmt: skip
    table.add_section()
    total = report.total
    left_out = sum(row.left_out for row in report.families)
    table.add_row(
        "all", str(sum(row.attacks for row in report.families)), str(total.successes), str(total.trials), str(total),
        str(report.failures), str(left_out),
    )  # fmt: skip
    return table


def print_probe(report: ProbeReport, console: Console) -> None:
    """Print the results of a probe: a table, the changed verdicts, the successful structural attacks and the spend."""
    console.print(probe_table(report))
    for success in report.successes[:MAX_SUCCESSES]:
        change = f"{success.requirement!r} changed from {success.before} to {success.after}"
        line = f"{success.attack}: {change}: {success.reason}"
        console.print(plain(line), soft_wrap=True)
    if len(report.successes) > MAX_SUCCESSES:
        console.print(f"... and {len(report.successes) - MAX_SUCCESSES} more")
    for breach in report.breaches:
        console.print(
            plain(f"STRUCTURAL ATTACK SUCCEEDED: {breach.attack}: {breach.how}"), style="bold red", soft_wrap=True
        )
    right = report.baseline - report.baseline_errors - report.baseline_failures
    spend = report.spend.summary()
    console.print(
        plain(
            f"Without an attack {right} of {report.baseline} verdicts were right, {report.baseline_errors} wrong, "
            f"{report.baseline_failures} missing. {len(report.breaches)} of {report.structural} structural attacks "
            f"succeeded. {spend}."
        ),
        soft_wrap=True,
    )


def run_probe(judge: JudgeLike, max_concurrency: int, console: Console) -> ProbeReport:
    """Probe a judge with the complete catalogue, and print the result.

    Args:
        judge: The judge, in any form that a grader accepts as `judge`.
        max_concurrency: The largest number of concurrent calls.
        console: The console to print to.

    Raises:
        ValueError: A setting of the judge is missing or unknown, or `max_concurrency` is out of range.
        TypeError: `judge` has a type that a grader does not accept.
    """
    columns = (TextColumn("Probing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        probing = probe(judge, limits=CallLimits(max_concurrency=max_concurrency), progress=advance)
        report = asyncio.run(probing)
    print_probe(report, console)
    return report
