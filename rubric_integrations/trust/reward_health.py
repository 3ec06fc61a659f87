"""`reward_report`: searches the graded completions of a training run for signs that the policy exploits its judge.

The signs are sentences about significant changes, with numbers. A second judge can grade a sample, to be compared with
the first judge, which gives the reward. The module is imported at first use, because it imports graders.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.graders import Grader, PerCriterionGrader
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.runs.run import grade_many
from rubric_integrations.scoring.judgment import NO_SPEND, Spend
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.inputs import Row
from rubric_integrations.trust.comparison import holm
from rubric_integrations.trust.matching import RunLike
from rubric_integrations.trust.reward_figures import (
    DIFFERENCE,
    FEWEST_GROUPS,
    UNIT,
    CompletionArrays,
    CriterionColumn,
    CriterionKey,
    CriterionTrend,
    JudgeGap,
    RewardForm,
    RewardReport,
    RolloutScores,
    RunRows,
    SecondJudge,
    StepFigures,
    Thirds,
    Trend,
    is_compared,
    make_columns,
    measure_shortfall,
    measure_trend,
    read_scores,
    score_of,
)
from rubric_integrations.trust.statistics import ROUNDING, difference_p_value, estimate_difference, normal_quantile

_MOST_STEPS = 20


def step_figures(columns: CompletionArrays, judge: Any, second: Any) -> tuple[StepFigures, ...]:
    """Compute the figures of each training step. In a long run, neighbouring steps are combined.

    Args:
        columns: The completions.
        judge: The score of each completion by the first judge, or NaN if the second judge did not grade it.
        second: The score of each completion by the second judge, or NaN.
    """
    names = columns.names()
    joined = np.array_split(np.arange(len(columns.step_numbers)), min(_MOST_STEPS, len(columns.step_numbers)))
    number_of = np.concatenate([np.full(len(part), number) for number, part in enumerate(joined)])
    numbers = number_of[columns.steps]
    of_criteria = {
        names[key]: _means(column.scores, numbers[column.places], len(joined))
        for key, column in columns.criteria.items()
    }
    series = {
        name: _means(values, numbers, len(joined))
        for name, values in (
            ("reward", columns.rewards), ("words", columns.words), ("length_correlation", columns.correlations),
            ("coverage", columns.coverage), ("abstained", columns.abstained), ("failed", columns.failed),
            ("ungraded", columns.ungraded), ("equal_groups", columns.equal_groups), ("judge", judge),
            ("second", second),
        )
    }  # fmt: skip
    return tuple(
        StepFigures(
            first=columns.step_numbers[part[0]],
            last=columns.step_numbers[part[-1]],
            completions=int((numbers == number).sum()),
            reward_error=_standard_error(columns, numbers == number),
            criteria={name: values[number] for name, values in of_criteria.items()},
            **{name: values[number] for name, values in series.items()},
        )
        for number, part in enumerate(joined)
    )


def length_correlation(columns: CompletionArrays, level: float) -> tuple[Estimate, float | None]:
    """Return the mean rank correlation of length and reward within groups, and its p-value.

    The correlation is undefined without groups. With fewer than five independent clusters, it has no interval and no
    p-value.
    """
    has_value = ~np.isnan(columns.correlations)
    if not has_value.any():
        return Estimate(None, None, None, 0), None
    _, places = np.unique(columns.thirds.clusters[has_value], return_inverse=True)
    means: list[float] = (np.bincount(places, columns.correlations[has_value]) / np.bincount(places)).tolist()
    estimate = estimate_difference(means, level)
    if len(means) < FEWEST_GROUPS or estimate.low is None or estimate.high is None:
        return estimate._replace(low=None, high=None), None
    estimate = estimate._replace(low=max(-1.0, estimate.low), high=min(1.0, estimate.high))
    return estimate, difference_p_value(means)


def criterion_trends(columns: CompletionArrays, has_risen: bool, level: float) -> dict[str, CriterionTrend]:
    """Compute the change of each criterion from the first to the last third of the steps, by the criterion's name.

    Args:
        columns: The completions.
        has_risen: Whether the reward has risen significantly.
        level: The confidence level of the intervals, between 0 and 1.
    """
    names = columns.names()
    totals, weights = np.zeros(len(columns.steps)), np.zeros(len(columns.steps))
    for column in columns.criteria.values():
        decided = ~np.isnan(column.scores)
        totals[column.places[decided]] += abs(column.weight) * column.scores[decided]
        weights[column.places[decided]] += abs(column.weight)
    scores = {
        key: measure_trend(column.scores, columns.thirds.at(column.places), level, UNIT)
        for key, column in columns.criteria.items()
    }
    gains = {
        key: abs(columns.criteria[key].weight) * trend.change.value
        for key, trend in scores.items()
        if trend.change.value is not None
    }
    gain = math.fsum(gains.values())
    shares = {key: of_key / gain for key, of_key in gains.items()} if has_risen and gain > 0 else {}
    return {
        names[key]: _criterion_trend(columns, key, scores[key], shares.get(key), totals, weights, level)
        for key in columns.criteria
    }


def _criterion_trend(
    columns: CompletionArrays,
    key: CriterionKey,
    score: Trend,
    explains: float | None,
    totals: Any,
    weights: Any,
    level: float,
) -> CriterionTrend:
    """Measure how a criterion's score, abstentions and share in the gain develop over the steps."""
    column = columns.criteria[key]
    thirds, weight = columns.thirds.at(column.places), abs(column.weight)
    others = weights[column.places] - weight
    others[others <= ROUNDING * weight] = math.nan
    leads = column.scores - (totals[column.places] - weight * column.scores) / others
    abstained = np.isnan(column.scores).astype(float)
    return CriterionTrend(
        requirement=column.requirement,
        weight=column.weight,
        score=score,
        lead=None if np.isnan(leads).all() else measure_trend(leads, thirds, level, DIFFERENCE),
        explains=explains,
        abstained=measure_trend(abstained, thirds, level, UNIT),
        saturated=_saturated(column, columns),
    )


def _saturated(column: CriterionColumn, columns: CompletionArrays) -> Literal["fulfilled", "unfulfilled"] | None:
    """Return `CriterionTrend.saturated`. None if the last third has fewer than five groups with the criterion."""
    is_last = columns.thirds.last[column.places] & ~np.isnan(column.scores)
    if len(np.unique(columns.groups[column.places[is_last]])) < FEWEST_GROUPS:
        return None
    scores = column.scores[is_last]
    return "fulfilled" if scores.min() == 1 else "unfulfilled" if scores.max() == 0 else None


def _means(values: Any, numbers: Any, count: int) -> list[float | None]:
    has_value = ~np.isnan(values)
    counts = np.bincount(numbers[has_value], minlength=count)
    sums = np.bincount(numbers[has_value], values[has_value], minlength=count)
    return [float(total / number) if number else None for total, number in zip(sums, counts, strict=True)]


def _standard_error(columns: CompletionArrays, chosen: Any) -> float | None:
    """Return the standard error of a mean reward, where each group is one observation."""
    chosen = chosen & ~np.isnan(columns.rewards)
    _, places = np.unique(columns.groups[chosen], return_inverse=True)
    count = int(places.max()) + 1 if len(places) else 0
    if count < 2:
        return None
    rewards = columns.rewards[chosen]
    sums = np.bincount(places, rewards - rewards.mean())
    return math.sqrt(float(sums @ sums) * count / (count - 1)) / len(rewards)


class PairedScores(NamedTuple):
    """The scores of both judges for one criterion of one completion, with the criterion's weight."""

    judge: float
    second: float
    weight: float


class SecondGrades(NamedTuple):
    """The grades of a second judge.

    Attributes:
        sampled: The number of completions in the sample.
        pairs: The scores of the criteria that both judges decided, by the number of the completion.
        failed: The number of completions on which the second judge failed.
        spend: The calls, tokens and cost of the second judge.
        stopped: The reason why the sample was not graded completely, or None if it was.
    """

    sampled: int
    pairs: Mapping[int, Mapping[CriterionKey, PairedScores]]
    failed: int = 0
    spend: Spend = NO_SPEND
    stopped: str | None = None


class SecondGrading(NamedTuple):
    """The settings with which a second judge grades a sample of the completions.

    Attributes:
        second: The second judge, or a grader with it.
        rubric: The rubric for the second judge. None builds it from the reports.
        sample: The number of completions to grade, drawn evenly from the steps.
        seed: The random seed of the sample.
        ledger: A ledger that stores the judgments, or None.
        max_cost: The highest cost in US dollars, or None for no limit.
        max_concurrency: The largest number of concurrent calls.
    """

    second: JudgeLike | Grader
    rubric: RubricLike | None
    sample: int
    seed: int
    ledger: LedgerLike | None
    max_cost: float | None
    max_concurrency: int

    def grade(self, rows: RunRows, columns: CompletionArrays) -> SecondGrades:
        """Grade a sample of the completions.

        Raises:
            ValueError: A setting is out of range, or no completion can be graded a second time.
        """
        rubric = None if self.rubric is None else as_rubric(self.rubric)
        grader = self.second if isinstance(self.second, Grader) else PerCriterionGrader(self.second)
        chosen: dict[int, GradedRow] = {}
        for number in _draw(columns.steps, self.seed):
            if len(chosen) == self.sample:
                break
            row = rows[columns.sources[number]]
            if _can_be_graded(row):
                chosen[number] = row
        if not chosen:
            raise ValueError(
                "`second` can grade no completion: the run needs its submissions, without attachments, and criteria on "
                "which its judge has decided; pass the file of `RubricReward(record=...)`"
            )
        # The rows keep the order of the draw. If `max_cost` ends the run, all steps have similar numbers of grades.
        run = grade_many(
            [Row(str(number), row.submission, rubric=rubric or _rubric_of(row)) for number, row in chosen.items()],
            None,
            grader,
            ledger=self.ledger,
            max_cost=self.max_cost,
            max_concurrency=self.max_concurrency,
        )
        pairs: dict[int, dict[CriterionKey, PairedScores]] = {}
        failed = 0
        for graded in run:
            number = int(graded.row.id)
            if graded.report is None or graded.report.failed_count or graded.judge_error:
                failed += 1
            elif of_both := _pair(chosen[number].report, graded.report):
                pairs[number] = of_both
        if not pairs and not failed and not run.summary.stopped:
            raise ValueError(
                "the judges have decided on no criterion in common: pass the rubric of the training run as `rubric`"
            )
        return SecondGrades(len(chosen), pairs, failed, run.summary.spend, run.summary.stopped)


def compare_judges(grades: SecondGrades, columns: CompletionArrays, level: float) -> tuple[SecondJudge, Any, Any]:
    """Compare both judges on the sample.

    Returns:
        The comparison, the score of each completion by the first judge, and its score by the second judge. The scores
        are NaN for completions without a grade of both judges.
    """
    judge, second = np.full(len(columns.steps), math.nan), np.full(len(columns.steps), math.nan)
    of_criteria: dict[CriterionKey, tuple[list[int], list[float], list[float]]] = {}
    for number, pairs in grades.pairs.items():
        weights = [abs(pair.weight) for pair in pairs.values()]
        total = math.fsum(weights)
        if total:
            judge[number], second[number] = (
                math.fsum(weight * score for weight, score in zip(weights, scores, strict=True)) / total
                for scores in ([pair.judge for pair in pairs.values()], [pair.second for pair in pairs.values()])
            )
        for key, pair in pairs.items():
            places, of_judge, of_second = of_criteria.setdefault(key, ([], [], []))
            places.append(number)
            of_judge.append(pair.judge)
            of_second.append(pair.second)
    names, gaps = columns.names(), dict[str, JudgeGap]()
    for key in columns.criteria:
        if key in of_criteria:
            places, of_judge, of_second = of_criteria[key]
            gaps[names[key]] = _gap(np.array(of_judge), np.array(of_second), columns.thirds.at(places), level)
    comparison = SecondJudge(
        sampled=grades.sampled,
        compared=int((~np.isnan(judge)).sum()),
        score=_gap(judge, second, columns.thirds, level),
        criteria=gaps,
        spend=grades.spend,
    )
    return comparison, judge, second


# Beyond these mean scores, normalizing each criterion within its group amplifies wrong verdicts.
_LOW_MEAN, _HIGH_MEAN = 0.1, 0.9


def reward_form(criteria: Mapping[str, CriterionTrend], gaps: Mapping[str, Sequence[float]]) -> RewardForm:
    """Choose between the sum of the criteria and one reward for each, by their scores and the judge's noise.

    Args:
        criteria: The changes of the criteria, by their names.
        gaps: The differences between both judges' scores of a criterion, by its name. Empty without a second judge.
    """
    # A criterion of weight 0 is no part of the sum, and its part has the weight 0.
    means = {name: row.score.last for name, row in criteria.items() if row.score.last is not None and row.weight}
    saturated = tuple(name for name, mean in means.items() if not _LOW_MEAN <= mean <= _HIGH_MEAN)
    sizes = {name: [abs(gap) for gap in gaps[name]] for name in means if gaps.get(name)}
    noisy = tuple(
        name for name, gap in sizes.items() if 2 * math.fsum(gap) / len(gap) > min(means[name], 1 - means[name])
    )
    every = [gap for of_criterion in sizes.values() for gap in of_criterion]
    choice: Literal["sum", "parts"] | None = "sum" if saturated or noisy else "parts"
    return RewardForm(
        choice if len(means) > 1 else None,
        len(means),
        saturated,
        tuple(name for name in noisy if name not in saturated),
        math.fsum(every) / len(every) if every else None,
        len(every),
    )


def second_warnings(grades: SecondGrades) -> Iterator[str]:
    """Yield warnings if the second judge failed on completions or did not grade the complete sample."""
    if grades.failed:
        yield f"the second judge failed on {grades.failed:,} of {grades.sampled:,} completions, which are left out"
    if grades.stopped:
        yield f"the second judge did not grade the whole sample: {grades.stopped}"


def _gap(judge: Any, second: Any, thirds: Thirds, level: float) -> JudgeGap:
    shortfall, p_value = measure_shortfall(judge, second, thirds, level)
    return JudgeGap(
        judge=measure_trend(judge, thirds, level, UNIT),
        second=measure_trend(second, thirds, level, UNIT),
        gap=measure_trend(judge - second, thirds, level, DIFFERENCE),
        shortfall=shortfall,
        p_value=p_value,
    )


def _draw(steps: Any, seed: int) -> Iterator[int]:
    """Yield all completions in a random order, in which each prefix has a similar number of each step.

    Each round takes one random completion from each step. Within a round, the steps are in bit-reversed order, which
    covers the run evenly from the beginning.
    """
    rng = random.Random(seed)  # noqa: S311 -- a sample, and no secret
    count = int(steps.max()) + 1
    bits = max(1, (count - 1).bit_length())
    order = [step for place in range(1 << bits) if (step := int(f"{place:0{bits}b}"[::-1], 2)) < count]
    waiting: list[list[int]] = [[] for _ in range(count)]
    for number, step in enumerate(steps.tolist()):
        waiting[step].append(number)
    for of_step in waiting:
        rng.shuffle(of_step)
    while order:
        order = [step for step in order if waiting[step]]
        for step in order:
            yield waiting[step].pop()


def _can_be_graded(row: GradedRow) -> bool:
    """Whether a row has a submission without attachments, and a criterion that its judge decided."""
    report = row.report
    if row.submission is None or report is None or row.attachments or report.failed_count or not row.is_graded:
        return False
    return any(is_compared(entry) for entry in report.criteria)


def _rubric_of(row: GradedRow) -> Rubric:
    report = row.report
    return Rubric([entry.to_criterion() for entry in report.criteria if is_compared(entry)] if report else [])


def _pair(report: EvaluationReport | None, second: EvaluationReport) -> dict[CriterionKey, PairedScores]:
    others = {(entry.name, entry.requirement): score_of(entry) for entry in second.criteria if is_compared(entry)}
    pairs: dict[CriterionKey, PairedScores] = {}
    for entry in report.criteria if report else ():
        key = entry.name, entry.requirement
        judge, other = score_of(entry) if is_compared(entry) else None, others.get(key)
        if judge is not None and other is not None:
            pairs[key] = PairedScores(judge, other, entry.weight)
    return pairs


# A criterion carries the gain if it explains more than twice its share of the weights, between these two limits.
_LEAST_PART, _MOST_PART = 0.5, 0.9


class Finding(NamedTuple):
    """A possible sign that the policy exploits its judge.

    Attributes:
        p_value: The p-value of the change that the sign describes. If the sign requires several changes, this is the
            largest of their p-values.
        text: The sentence that describes the sign.
    """

    p_value: float
    text: str


def find_signs(
    criteria: Mapping[str, CriterionTrend],
    words: Trend,
    correlation: Estimate,
    correlation_p_value: float | None,
    abstained: Trend,
    failed: Trend,
    second: SecondJudge | None,
    level: float,
) -> tuple[str, ...]:
    """Return one sentence for each significant sign that the policy exploits its judge.

    The gap between the scores of both judges is tested alone. All other tests are one family, which is corrected by
    Holm's method. The p-values are two-sided and are compared with 1 - `level`. However, a sign requires a change in
    one direction. Therefore, the error probability of the first test is about half of 1 - `level`, and so is the error
    probability of the family. Together, they are about 1 - `level`.
    """
    total = math.fsum(abs(row.weight) for row in criteria.values()) or 1.0
    findings = [
        *_length(words, correlation, correlation_p_value),
        *_rise_findings(abstained, "the judge abstains more often", "the policy may learn to be unassessable"),
        *_rise_findings(failed, "grades fail more often", "read the answers on which the judge fails"),
        *(
            finding
            for name, row in criteria.items()
            for finding in _criterion_findings(name, row, abs(row.weight) / total)
        ),
    ]
    signs: list[str] = []
    if second is not None:
        signs += [finding.text for finding in _gap_findings(second.score) if finding.p_value < 1 - level]
        findings += [finding for name, gap in second.criteria.items() for finding in _gap_findings(gap, name)]
    adjusted = holm({number: finding.p_value for number, finding in enumerate(findings)})
    return (*signs, *(findings[number].text for number, p_value in sorted(adjusted.items()) if p_value < 1 - level))


def _gap_findings(scores: JudgeGap, criterion: str | None = None) -> Iterator[Finding]:
    """Yield the sign that the second judge's scores do not rise with the first judge's scores.

    The gap must grow, and it must grow by more than random errors of the second judge explain.
    """
    gap, shortfall = scores.gap, scores.shortfall
    if gap.p_value is None or scores.p_value is None or (gap.change.value or 0) <= 0 or (shortfall.value or 0) <= 0:
        return
    where = f"on {criterion!r} the second judge" if criterion else "the second judge"
    yield Finding(
        max(gap.p_value, scores.p_value),
        f"{where} does not follow: the judge's mean score was {scores.judge.text}, that of the second judge "
        f"{scores.second.text}, which is {shortfall} less than its agreement with the judge predicts",
    )


def _criterion_findings(name: str, row: CriterionTrend, share_of_weight: float) -> Iterator[Finding]:
    """Yield the findings about a criterion: it falls, it carries the gain, or the judge abstains more often."""
    score, lead, change = row.score, row.lead, row.score.change.value or 0
    yield from _rise_findings(row.abstained, f"the judge abstains more often on {name!r}", "read these answers")
    if score.p_value is None:
        return
    if change < 0:
        yield Finding(score.p_value, f"{name!r} is fulfilled less often: its mean score was {score.text}")
    elif lead is not None and lead.p_value is not None and (lead.change.value or 0) > 0:
        p_value = max(score.p_value, lead.p_value)
        if row.explains is not None and row.explains > max(_LEAST_PART, min(_MOST_PART, 2 * share_of_weight)):
            yield Finding(
                p_value,
                f"{name!r} carries the gain: its mean score was {score.text}, which is {row.explains:.0%} of the gain "
                "of all criteria; read whether these answers fulfil it",
            )


def _rise_findings(trend: Trend, what: str, advice: str) -> Iterator[Finding]:
    if trend.p_value is not None and (trend.change.value or 0) > 0:
        yield Finding(trend.p_value, f"{what}: the share was {trend.text}; {advice}")


def _length(words: Trend, correlation: Estimate, p_value: float | None) -> Iterator[Finding]:
    if words.p_value is None or p_value is None or (words.change.value or 0) <= 0 or (correlation.value or 0) <= 0:
        return
    yield Finding(
        max(words.p_value, p_value),
        f"the reward pays for length: the mean number of words was {words.text}, and longer answers of a group get "
        f"higher rewards (rank correlation {correlation})",
    )


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
    """Search a training run for signs that its policy exploits the judge.

    The report compares the last third of the training steps with the first third: the reward, the length of the
    responses, each criterion, abstentions and failures. The strongest sign needs a second judge: the first judge's
    scores rise, but the second judge's scores do not. A sign is a reason to read responses, and not a proof. For
    example, a policy that learns one skill first can also show a sign.

    Args:
        run: The file of `RubricReward(record=...)`, a list of such files from several processes, or results of
            `grade_many` whose `metadata` has a whole number as `step`. An optional `group` in `metadata` is the name of
            the prompt, and an optional `reward` replaces the score.
        second: A judge of another model family, or a grader, that grades a sample of the completions. It grades only
            criteria that the run's judge decided.
        rubric: The rubric for the second judge. By default, it is built from the reports, which contain names,
            requirements, weights and possible answers, but not the documents, examples and aspects of criteria.
        sample: The number of completions for the second judge, at least 1, drawn evenly from the steps.
        seed: The random seed of the sample.
        ledger: A ledger that stores the second judge's judgments. A later report with it requests no judgment again.
        max_cost: The highest cost of the second judge, in US dollars. None is no limit.
        max_concurrency: The largest number of concurrent calls of the second judge, at least 1.
        level: The confidence level of the intervals, between 0 and 1. The tests of the signs have the level 1 -
            `level`.

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
    columns: CompletionArrays,
    grades: SecondGrades | None = None,
    *,
    without_step: int = 0,
    level: float = 0.95,
) -> RewardReport:
    """Compute the figures and the signs of a training run from its completions, which are already read.

    Args:
        completions: The completions.
        columns: The same completions as arrays.
        grades: The grades of a second judge, or None without a second judge.
        without_step: The number of rows that were left out because they have no step.
        level: The confidence level of the intervals, between 0 and 1.
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
    comparison, gaps = None, dict[str, list[float]]()
    if grades is not None:
        names = columns.names()
        for key, pair in (item for pairs in grades.pairs.values() for item in pairs.items() if item[0] in names):
            gaps.setdefault(names[key], []).append(pair.judge - pair.second)
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
        form=reward_form(criteria, gaps),
        second=comparison,
        signs=find_signs(criteria, words, correlation, p_value, abstained, failed, comparison, level),
        warnings=(*_warnings(columns, without_step), *(second_warnings(grades) if grades else ())),
    )


def _warnings(columns: CompletionArrays, without_step: int) -> Iterator[str]:
    """Yield warnings about data that are missing or left out."""
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


def _fewest_groups(columns: CompletionArrays) -> int:
    thirds = columns.thirds
    return min(len(np.unique(thirds.clusters[is_in])) for is_in in (thirds.first, thirds.last))
