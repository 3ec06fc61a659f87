"""Looks for signs in a training run that its policy exploits the judge: `reward_report("rollouts.jsonl")`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rubric_integrations.agreement.intervals import normal_quantile
from rubric_integrations.agreement.rows import RunLike
from rubric_integrations.graders import Grader
from rubric_integrations.training.health.columns import Columns, make_columns
from rubric_integrations.training.health.figures import (
    criterion_trends,
    length_correlation,
    step_figures,
)
from rubric_integrations.training.health.result import RewardReport
from rubric_integrations.training.health.rollout_scores import RolloutScores, RunRows, read_scores
from rubric_integrations.training.health.second_judge import (
    SecondGrades,
    SecondGrading,
    compare_judges,
    second_warnings,
)
from rubric_integrations.training.health.signs import find_signs
from rubric_integrations.training.health.trends import FEWEST_GROUPS, UNIT, Trend, measure_trend

if TYPE_CHECKING:
    from rubric_integrations.formats.rubric_like import RubricLike
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.runs.ledger import LedgerLike


def reward_report(
    run: RunLike,
    *,
    second: JudgeLike | Grader | None = None,
    rubric: RubricLike | None = None,
    sample: int = 200,
    seed: int = 0,
    ledger: LedgerLike | None = None,
    max_cost: float | None = None,
    max_concurrency: int = 64,
    level: float = 0.95,
) -> RewardReport:
    """Look for signs in a training run that its policy exploits the judge.

    It compares the last third of the steps with the first one: the reward, the length of the answers, each criterion,
    abstentions and failures. The strongest sign needs a second judge: the scores of the first one rise, and those of
    the second do not follow. A sign is a reason to read answers, and no proof: a policy that learns one skill first
    shows some of them too.

    Args:
        run: The file of `RubricReward(record=...)`; a list of the files of several processes; or results of
            `grade_many` whose `metadata` has a `step`, a whole number. A `group` there is the name of the prompt, and
            a `reward` stands in place of the score.
        second: A judge of another model family, which grades a sample; or a grader with settings of its own. It gets
            the criteria on which the run's judge has decided.
        rubric: The rubric for the second judge. By default it is made of the reports, which have names, requirements,
            weights and possible answers, but neither documents nor examples nor aspects of criteria.
        sample: The number of completions for the second judge, at least 1, drawn evenly over the steps.
        seed: The seed of the draw.
        ledger: Stores each judgment of the second judge, so that a second report requests none again.
        max_cost: The most that the second judge may cost, in US dollars.
        max_concurrency: The largest number of concurrent calls of the second judge, at least 1.
        level: The level of the intervals, and of the signs.

    Raises:
        ImportError: scipy is not installed.
        RunFileError: A file is not a run.
        TypeError: An item of `run` is neither a path nor a result.
        ValueError: No row has a step, a setting is out of range, or `second` can grade no completion.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric, grade_many
        >>> rubric = Rubric.from_dict([{"name": "right", "requirement": "Says 42", "check": {"number": 42}}])
        >>> rows = [
        ...     {"response": "42" if step > 3 else "41", "metadata": {"step": step, "group": str(prompt)}}
        ...     for step in range(9)
        ...     for prompt in range(4)
        ... ]
        >>> report = reward_report(grade_many(rows, rubric, PerCriterionGrader("offline")))
        >>> print(report.reward.text)
        0.00 in the first third and 1.00 in the last (+1.00 [0.64, 1.00])
    """
    if isinstance(sample, bool) or sample < 1:
        raise ValueError(f"`sample` must be at least 1, got {sample!r}: the second judge would grade nothing")
    if second is None and rubric is not None:
        raise ValueError("`rubric` is for the second judge: pass `second`, or it would not be used")
    normal_quantile(level)  # refuses a level before anything is requested
    rows = RunRows(run)
    completions, without_step = read_scores(rows)
    columns = make_columns(completions)
    grades = None
    if second is not None:
        grading = SecondGrading(second, rubric, sample, seed, ledger, max_cost, max_concurrency)
        grades = grading.grade(rows, columns)
    return measure_rewards(completions, columns, grades, without_step=without_step, level=level)


def measure_rewards(
    completions: Sequence[RolloutScores],
    columns: Columns,
    grades: SecondGrades | None = None,
    *,
    without_step: int = 0,
    level: float = 0.95,
) -> RewardReport:
    """Return the report of completions that were read before.

    Args:
        completions: The completions.
        columns: The same as arrays.
        grades: What a second judge has graded, or None.
        without_step: The number of rows that were left out.
        level: The level of the intervals, and of the signs.
    """

    def trend(values: Any, bounds: tuple[float, float] | None = UNIT) -> Trend:
        return measure_trend(values, columns.thirds, level, bounds)

    rewards = columns.rewards[~np.isnan(columns.rewards)]
    are_bounded = bool(len(rewards)) and bool(((rewards >= 0) & (rewards <= 1)).all())
    reward, words = trend(columns.rewards, UNIT if are_bounded else None), trend(columns.words, None)
    correlation, p_value = length_correlation(columns, level)
    abstained, failed = trend(columns.abstained), trend(columns.failed)
    criteria = criterion_trends(columns, reward.change.low is not None and reward.change.low > 0, level)
    judge = second = np.full(len(completions), math.nan)
    comparison = None
    if grades is not None:
        comparison, judge, second = compare_judges(grades, columns, level)
    return RewardReport(
        completions=len(completions),
        steps=step_figures(columns, judge, second),
        reward=reward,
        words=words,
        length_correlation=correlation,
        coverage=trend(columns.coverage),
        abstained=abstained,
        failed=failed,
        ungraded=trend(columns.ungraded),
        equal_groups=trend(columns.equal_groups),
        criteria=criteria,
        second=comparison,
        signs=find_signs(criteria, words, correlation, p_value, abstained, failed, comparison, level),
        warnings=(*_warnings(columns, without_step), *(second_warnings(grades) if grades else ())),
    )


def _warnings(columns: Columns, without_step: int) -> Iterator[str]:
    if without_step:
        yield f"{without_step:,} rows are left out, because their `metadata` has no whole number as `step`"
    if len(columns.step_numbers) == 1:
        yield "there is one step, so that nothing can be compared"
    elif _fewest_groups(columns) < FEWEST_GROUPS:
        yield (
            f"a third of the steps has fewer than {FEWEST_GROUPS} groups of completions: there are no intervals, and "
            "no signs"
        )
    if not columns.have_groups:
        yield "the rows have no `group`: completions count as independent, and length is not compared with reward"
    if columns.left_out:
        yield (
            f"{columns.left_out:,} criteria are left out, because fewer than {FEWEST_GROUPS} prompts have them: only "
            "the reward and the gap to a second judge include them"
        )
    if np.isnan(columns.rewards).all():
        yield "no completion has a reward"


def _fewest_groups(columns: Columns) -> int:
    thirds = columns.thirds
    return min(len(np.unique(thirds.clusters[is_in])) for is_in in (thirds.first, thirds.last))
