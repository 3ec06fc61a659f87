"""Measures how often an attack changes a judge's verdict: the same questions with and without each attack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rubric_integrations.graders import CallLimits, PerCriterionGrader
from rubric_integrations.graders.base import DEFAULT_LIMITS
from rubric_integrations.redteam.attacks import ATTACKS, Attack
from rubric_integrations.redteam.report import Breach, ProbeReport
from rubric_integrations.redteam.structural import find_breach
from rubric_integrations.redteam.tasks import TASKS, Task
from rubric_integrations.redteam.trials import Trial, applies_to, build_report, is_right
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.usage import Spend, total_spend
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike


async def probe(
    judge: JudgeLike,
    attacks: Sequence[Attack] = ATTACKS,
    *,
    max_retries: int = 2,
    limits: CallLimits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] | None = None,
) -> ProbeReport:
    """Try attacks on a judge and report how often they succeed.

    Structural attacks are checked against the sanitizer and the parser, without a call. Behavioural attacks are put
    into the poor responses of two small tasks and judged, one criterion per call: about 270 short calls for the whole
    catalogue. An attack succeeds if the verdict differs from the true one; an abstention also counts as a success,
    because by default it removes the criterion from the score. A criterion that the judge gets wrong without an attack
    is left out.

    Args:
        judge: The judge to probe; anything that a grader accepts as `judge`.
        attacks: The attacks to try.
        max_retries: Retries after a lost or unreadable reply, at least 0.
        limits: The limits on concurrent calls and on the time of each.
        progress: Called after each submission with the number of judged submissions and their total.

    Raises:
        ValueError: A setting is missing or out of range.
        TypeError: `judge` cannot judge.

    Example:
        >>> import asyncio
        >>> report = asyncio.run(probe("offline", ATTACKS[:1]))
        >>> report.structural, report.breaches
        (1, ())
    """
    grader = PerCriterionGrader(judge, on_failure="abstain", max_retries=max_retries, limits=limits)
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
