"""The figures of `reward_report`: completions as arrays, and changes from the first to the last third of the steps.

Only the values that the figures need are kept in memory for each completion.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from rubric_integrations._util.records import EncodableText, Record, data_frame, html_table
from rubric_integrations.runs.files import GradedRow, RunFile
from rubric_integrations.scoring.judgment import Spend
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.scoring.length import word_count
from rubric_integrations.scoring.report import CriterionReport, higher_is_better
from rubric_integrations.trust.matching import RunLike, as_run, complete_score, criterion_keys, read_rows
from rubric_integrations.trust.statistics import ROUNDING, compare_values, special, student_quantile

if TYPE_CHECKING:
    from pandas import DataFrame

# Above this number, floats cannot represent all whole numbers.
_LARGEST = 10**15
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,15}\s*")

CriterionKey = tuple[str, str]
"""The name and the requirement of a criterion."""


class Answer(NamedTuple):
    """The answer of a judge to one criterion.

    Attributes:
        score: The score in [0, 1], where higher is better, also for a penalty. None for an abstention.
        weight: The weight of the criterion.
    """

    score: float | None
    weight: float


class RolloutScores(NamedTuple):
    """The values of one completion that the figures need.

    Attributes:
        row: The index of the completion among all rows.
        step: The training step.
        group: The name of the prompt, or None if it is unknown.
        reward: The reward, or None if the completion got no reward.
        words: The number of words of the response, or None without a response.
        coverage: The share of the rubric that was assessed, or None without a complete grade.
        failed: Whether the grade failed, or None if there was nothing to grade.
        answers: The judge's answers to the criteria. Empty if the grade failed.
    """

    row: int
    step: int
    group: str | None
    reward: float | None
    words: int | None = None
    coverage: float | None = None
    failed: bool | None = None
    answers: Mapping[CriterionKey, Answer] = {}


class RunRows:
    """A sequence of the rows of one or several runs. Rows of a file are read when they are needed.

    Args:
        run: The path of a file, a `RunFile`, or a list of paths, `RunFile`s and results.

    Raises:
        RunFileError: A file is not a run.
        TypeError: An item is neither a path nor a result.
    """

    def __init__(self, run: RunLike):
        self._parts: list[Sequence[GradedRow]] = []
        if isinstance(run, str | Path | RunFile):
            self._parts.append(as_run(run).rows)
            return
        others: list[Any] = []
        for item in run:
            if isinstance(item, str | Path | RunFile):
                self._parts.append(as_run(item).rows)
            else:
                others.append(item)
        self._parts.append(read_rows(others))

    def __iter__(self) -> Iterator[GradedRow]:
        for part in self._parts:
            yield from part

    def __getitem__(self, place: int) -> GradedRow:
        for part in self._parts:
            if place < len(part):
                return part[place]
            place -= len(part)
        raise IndexError(place)


def read_scores(rows: Iterable[GradedRow]) -> tuple[list[RolloutScores], int]:
    """Return the values of each completion of a run, and the number of rows without a training step.

    Rows without a step are left out.

    Raises:
        ValueError: No row has a step.
    """
    scores: list[RolloutScores] = []
    without_step = 0
    for place, row in enumerate(rows):
        step = _step_of((row.metadata or {}).get("step"))
        if step is None:
            without_step += 1
        else:
            scores.append(_scores_of(row, place, step))
    if not scores:
        raise ValueError(
            "no row has a training step: pass the file of `RubricReward(record=...)`, or rows whose `metadata` has a "
            "whole number as `step`"
        )
    return scores, without_step


def is_compared(entry: CriterionReport) -> bool:
    """Whether a second judge can grade a criterion: a judge, and not code, has decided it."""
    return entry.was_judged and entry.value is not None and not entry.computed


def score_of(entry: CriterionReport) -> float | None:
    """Return the score of a criterion, where higher is better, or None for an abstention."""
    return None if entry.value is None else higher_is_better(entry.value, is_penalty=entry.weight < 0)


def _scores_of(row: GradedRow, place: int, step: int) -> RolloutScores:
    """Convert a graded row to the figures of a completion."""
    metadata, report = row.metadata or {}, row.report
    group = metadata.get("group")
    reward = _number(metadata["reward"]) if "reward" in metadata else complete_score(row)
    scores = RolloutScores(
        row=place,
        step=step,
        group=None if group is None else str(group),
        reward=reward,
        words=word_count(row.submission.response) if row.submission else None,
    )
    if report is None:
        return scores
    if report.failed_count or not row.is_graded:
        return scores._replace(failed=True)
    answers = {
        (entry.name, entry.requirement): Answer(score_of(entry), entry.weight)
        for entry in report.criteria
        if entry.was_judged
    }
    return scores._replace(failed=False, coverage=report.coverage, answers=answers)


def _step_of(value: object) -> int | None:
    """Return a step that is a whole number or the text of a whole number, or None for other values."""
    if isinstance(value, str):
        return int(value) if _WHOLE_NUMBER.fullmatch(value) else None
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None


def _number(value: object) -> float | None:
    """Return a finite number of at most 10^15 in absolute value, or None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST and math.isfinite(value) else None


# With fewer independent groups, Student's interval is too narrow or useless.
FEWEST_GROUPS = 5
# With fewer prompts, each group of each step counts as independent.
_FEWEST_PROMPTS = 20

UNIT = (0.0, 1.0)
DIFFERENCE = (-1.0, 1.0)


class Trend(NamedTuple):
    """The change of a figure from the first to the last third of the training steps.

    Attributes:
        first: The mean in the first third, or None without a value there.
        last: The mean in the last third, or None without a value there.
        change: The mean of the last third minus the mean of the first third. The interval allows for the dependence of
            completions of one prompt. It is missing if a third has fewer than five groups of completions.
        p_value: The two-sided p-value of the change, or None without an interval.
    """

    first: float | None
    last: float | None
    change: Estimate
    p_value: float | None

    @property
    def text(self) -> str:
        """The change as text, such as `0.20 in the first third and 0.90 in the last (+0.70 [0.61, 0.79])`."""
        if self.first is None or self.last is None or self.change.value is None:
            return "undefined"
        limits = ""
        if self.change.low is not None and self.change.high is not None:
            limits = f" [{_brief(self.change.low)}, {_brief(self.change.high)}]"
        change = f"{'+' if self.change.value >= 0 else ''}{_brief(self.change.value)}{limits}"
        return f"{_brief(self.first)} in the first third and {_brief(self.last)} in the last ({change})"


class Thirds(NamedTuple):
    """The third of the steps and the cluster of each completion, as arrays.

    Attributes:
        first: Whether each completion is in the first third of the steps.
        last: Whether each completion is in the last third. False for all completions if the run has only one step.
        clusters: The number of each completion's cluster. Completions of a cluster depend on each other.
    """

    first: Any
    last: Any
    clusters: Any

    def at(self, places: Any) -> Thirds:
        """Return a `Thirds` with the thirds and clusters of only some of the completions.

        Args:
            places: The indices of these completions.
        """
        return Thirds(self.first[places], self.last[places], self.clusters[places])


def divide(steps: Any, prompts: Any, groups: Any) -> Thirds:
    """Mark the completions of the first and the last third of the steps, and choose the clusters for intervals.

    The clusters are the prompts. If a third has too few different prompts, the clusters are the groups instead.

    Args:
        steps: The number of each completion's step, from 0 and without gaps.
        prompts: The number of each completion's prompt.
        groups: The number of each completion's group. A group is the completions of one prompt in one step.
    """
    count = int(steps.max()) + 1
    size = max(1, count // 3)
    first, last = steps < size, (steps >= count - size) & (steps >= size)
    # Completions of one prompt in both thirds are a pair. With too few prompts, the variance between prompts cannot be
    # estimated, so groups are the clusters.
    fewest = min(len(np.unique(prompts[first])), len(np.unique(prompts[last])))
    return Thirds(first, last, prompts if fewest >= _FEWEST_PROMPTS else groups)


def measure_trend(values: Any, thirds: Thirds, level: float, bounds: tuple[float, float] | None = None) -> Trend:
    """Compare the mean of a figure in the first third of the steps with its mean in the last third.

    The variance is computed from sums over clusters. Therefore, a prompt with completions in both thirds is compared
    with itself. Values with `bounds` get two imaginary clusters in each third if each value equals a bound (as in a
    rate), or if all values of a third are equal. One cluster has the lowest possible value, and the other has the
    highest (Agresti and Caffo 2000). Therefore, the interval has a positive width even if all values are equal.

    Args:
        values: The figure of each completion, or NaN for a completion without a value.
        thirds: The third and the cluster of each completion.
        level: The confidence level of the interval, between 0 and 1.
        bounds: The lowest and the highest possible value, or None if there are no bounds.
    """
    has_value = ~np.isnan(values)
    parts: list[tuple[Any, Any]] = []
    for is_in in (thirds.first, thirds.last):
        chosen = is_in & has_value
        parts.append((values[chosen], thirds.clusters[chosen]))
    total = sum(len(of_third) for of_third, _ in parts)
    first, last = (float(of_third.mean()) if len(of_third) else None for of_third, _ in parts)
    if first is None or last is None:
        return Trend(first, last, Estimate(None, None, None, total), None)
    change = last - first
    interval = _interval(parts, bounds, level)
    if interval is None:
        return Trend(first, last, Estimate(change, None, None, total), None)
    center, half, p_value = interval
    widest = math.inf if bounds is None else bounds[1] - bounds[0]
    low, high = max(-widest, min(center - half, change)), min(widest, max(center + half, change))
    return Trend(first, last, Estimate(change, low, high, total), p_value)


def measure_shortfall(judge: Any, second: Any, thirds: Thirds, level: float) -> tuple[Estimate, float | None]:
    """Estimate the predicted rise of a second judge's scores minus their actual rise.

    If the second judge makes errors, its scores rise by less than the first judge's scores even if the policy really
    improves. Therefore, the second judge's scores are regressed on the first judge's scores and on an indicator of the
    last third. The coefficient of this indicator is the part of the second judge's rise that the first judge's scores
    do not predict. The shortfall is this coefficient with the opposite sign. Its variance is computed from sums over
    clusters.

    Args:
        judge: The scores of the first judge, or NaN outside the sample.
        second: The scores of the second judge.
        thirds: The third and the cluster of each completion.
        level: The confidence level of the interval, between 0 and 1.

    Returns:
        The shortfall and its two-sided p-value. The shortfall is undefined if the first judge's scores do not vary
        within the thirds. With fewer than five clusters in a third, it has no interval and no p-value.
    """
    chosen = (thirds.first | thirds.last) & ~np.isnan(judge)
    x, y, is_last, clusters = judge[chosen], second[chosen], thirds.last[chosen], thirds.clusters[chosen]
    undefined = Estimate(None, None, None, len(x)), None
    counts = [len(np.unique(clusters[is_in])) for is_in in (~is_last, is_last)]
    if not all(counts):
        return undefined
    sizes = np.where(is_last, is_last.sum(), -(~is_last).sum())
    x_rise, y_rise = float((x / sizes).sum()), float((y / sizes).sum())
    x_apart, y_apart = (
        values - np.where(is_last, values[is_last].mean(), values[~is_last].mean()) for values in (x, y)
    )
    spread = float(x_apart @ x_apart)
    if spread <= ROUNDING * len(x):
        return undefined
    slope = float(x_apart @ y_apart) / spread
    shortfall = slope * x_rise - y_rise
    residuals = y_apart - slope * x_apart
    influences = x_rise * x_apart * residuals / spread - residuals / sizes
    sums = np.bincount(np.unique(clusters, return_inverse=True)[1], influences)
    fewest = min(counts)
    if fewest < FEWEST_GROUPS:
        return Estimate(shortfall, None, None, len(x)), None
    variance = float(sums @ sums)
    if any(np.ptp(residuals[is_in]) <= ROUNDING for is_in in (~is_last, is_last)):
        # As for other changes, add imaginary clusters at the bounds, because equal residuals have no variance.
        variance += sum(2 / (count + 2) ** 2 for count in counts)
    variance *= fewest / (fewest - 1)
    if variance <= ROUNDING**2:  # the residuals differ, but have the same sum in each cluster
        return Estimate(shortfall, None, None, len(x)), None
    error = math.sqrt(variance)
    half = student_quantile(fewest - 1, level) * error
    p_value = 2 * float(special().stdtr(fewest - 1, -abs(shortfall) / error))
    return Estimate(shortfall, shortfall - half, shortfall + half, len(x)), p_value


def _interval(
    parts: list[tuple[Any, Any]], bounds: tuple[float, float] | None, level: float
) -> tuple[float, float, float] | None:
    """Return the center and the half width of the interval of a change and its p-value, or None without an interval."""
    numbers, clusters = np.unique(np.concatenate([of_third for _, of_third in parts]), return_inverse=True)
    sums, variance, center, fewest = np.zeros(len(numbers)), 0.0, 0.0, math.inf
    if bounds and not _need_bounds([of_third for of_third, _ in parts], bounds):
        bounds = None
    start = 0
    for sign, (values, of_third) in zip((-1.0, 1.0), parts, strict=True):
        places = clusters[start : start + len(of_third)]
        start += len(of_third)
        count = len(np.unique(places))
        fewest = min(fewest, count)
        added = 0.0 if bounds is None else len(values) / count
        size = len(values) + 2 * added
        mean = (float(values.sum()) + added * sum(bounds or (0.0, 0.0))) / size
        sums += sign * np.bincount(places, (values - mean) / size, len(numbers))
        variance += sum((added * (bound - mean) / size) ** 2 for bound in bounds or ())
        center += sign * mean
    if fewest < FEWEST_GROUPS:
        return None
    variance = (variance + float(sums @ sums)) * fewest / (fewest - 1)
    if variance <= (ROUNDING * max(1.0, *(float(np.abs(values).max()) for values, _ in parts))) ** 2:
        return None
    freedom, error = int(fewest) - 1 + (2 if bounds else 0), math.sqrt(variance)
    p_value = 2 * float(special().stdtr(freedom, -abs(center) / error))
    return center, student_quantile(freedom, level) * error, p_value


def _need_bounds(of_thirds: list[Any], bounds: tuple[float, float]) -> bool:
    """Whether imaginary clusters are needed: the values are rates, or all values of a third are equal."""
    are_rates = all(bool(((values == bounds[0]) | (values == bounds[1])).all()) for values in of_thirds)
    return are_rates or any(np.ptp(values) <= ROUNDING for values in of_thirds)


def _brief(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


# The ranks of two completions always have a correlation of 1 or -1.
_FEWEST_RANKED = 3


class CriterionColumn(NamedTuple):
    """The judge's answers to one criterion in the completions of a training run, as arrays.

    Attributes:
        requirement: The criterion's requirement.
        weight: The criterion's weight in the last completion.
        places: The indices of the completions with an answer.
        scores: The scores of these completions in [0, 1], where higher is better. NaN is an abstention.
    """

    requirement: str
    weight: float
    places: Any
    scores: Any


class CompletionArrays(NamedTuple):
    """The completions of a training run as arrays.

    Attributes:
        step_numbers: The steps of the run, in order.
        steps: The index of each completion's step in `step_numbers`.
        groups: The number of each completion's group. A group is the completions of one prompt in one step.
        thirds: The third of the steps and the cluster of each completion.
        rewards: The reward of each completion.
        words: The number of words of each response.
        coverage: The share of the rubric that was assessed.
        abstained: The share of criteria on which the judge abstained.
        failed: 1 if the grade failed, and 0 if not.
        ungraded: 1 if there was nothing to grade, and 0 if there was.
        equal_groups: 1 if all completions of the group have equal rewards, and 0 if not.
        correlations: The rank correlation of length and reward within the group.
        criteria: The answers to each criterion that at least five prompts share.
        left_out: The number of criteria that fewer than five prompts share. They are not in `criteria`.
        have_groups: Whether any completion has a group.
        sources: The index of each completion among all rows of the run.
    """

    step_numbers: list[int]
    steps: Any
    groups: Any
    thirds: Thirds
    rewards: Any
    words: Any
    coverage: Any
    abstained: Any
    failed: Any
    ungraded: Any
    equal_groups: Any
    correlations: Any
    criteria: dict[CriterionKey, CriterionColumn]
    left_out: int
    have_groups: bool
    sources: list[int]

    def names(self) -> dict[CriterionKey, str]:
        """Return the name by which the report lists each criterion."""
        return criterion_keys(self.criteria)


def make_columns(completions: Sequence[RolloutScores]) -> CompletionArrays:
    """Convert the completions of a run to arrays. There must be at least one completion."""
    step_numbers = sorted({completion.step for completion in completions})
    place_of = {step: place for place, step in enumerate(step_numbers)}
    prompt_names: dict[object, int] = {}
    group_names: dict[object, int] = {}
    prompts: list[int] = []
    groups: list[int] = []
    for number, completion in enumerate(completions):
        prompt = number if completion.group is None else completion.group
        prompts.append(prompt_names.setdefault(prompt, len(prompt_names)))
        groups.append(group_names.setdefault((completion.step, prompt), len(group_names)))
    steps = np.array([place_of[completion.step] for completion in completions])
    rewards, words = (_array(getattr(each, name) for each in completions) for name in ("reward", "words"))
    has_group = np.array([completion.group is not None for completion in completions])
    equal, correlations = _group_statistics(np.array(groups), has_group, rewards, words)
    criteria = _criteria(completions)
    prompts_of = {key: len({prompts[place] for place in column.places}) for key, column in criteria.items()}
    # A criterion of a few prompts cannot be compared between steps.
    fewest = min(FEWEST_GROUPS, len(prompt_names))
    shared = {key: column for key, column in criteria.items() if prompts_of[key] >= fewest}
    return CompletionArrays(
        step_numbers=step_numbers,
        steps=steps,
        groups=np.array(groups),
        thirds=divide(steps, np.array(prompts), np.array(groups)),
        rewards=rewards,
        words=words,
        coverage=_array(completion.coverage for completion in completions),
        abstained=_array(_abstained(completion) for completion in completions),
        failed=_array(completion.failed for completion in completions),
        ungraded=_array(completion.failed is None for completion in completions),
        equal_groups=equal,
        correlations=correlations,
        criteria=shared,
        left_out=len(criteria) - len(shared),
        have_groups=bool(has_group.any()),
        sources=[completion.row for completion in completions],
    )


def _array(values: Iterable[float | None]) -> Any:
    return np.array([math.nan if value is None else value for value in values], float)


def _abstained(completion: RolloutScores) -> float | None:
    scores = [answer.score for answer in completion.answers.values()]
    return sum(score is None for score in scores) / len(scores) if scores else None


def _criteria(completions: Sequence[RolloutScores]) -> dict[CriterionKey, CriterionColumn]:
    places: dict[CriterionKey, list[int]] = defaultdict(list)
    scores: dict[CriterionKey, list[float | None]] = defaultdict(list)
    weights: dict[CriterionKey, float] = {}
    for place, completion in enumerate(completions):
        for key, answer in completion.answers.items():
            places[key].append(place)
            scores[key].append(answer.score)
            weights[key] = answer.weight
    return {
        key: CriterionColumn(key[1], weights[key], np.array(of_key), _array(scores[key]))
        for key, of_key in places.items()
    }


def _group_statistics(groups: Any, has_group: Any, rewards: Any, words: Any) -> tuple[Any, Any]:
    """Return for each completion whether its group's rewards are equal, and the correlation of length and reward."""
    equal, correlations = np.full(len(groups), math.nan), np.full(len(groups), math.nan)
    chosen = np.flatnonzero(has_group & ~np.isnan(rewards))
    chosen = chosen[np.argsort(groups[chosen], kind="stable")]
    for members in np.split(chosen, np.flatnonzero(np.diff(groups[chosen])) + 1):
        if len(members) < 2:
            continue
        group_rewards = rewards[members]
        is_equal = np.ptp(group_rewards) <= ROUNDING * max(1.0, float(np.abs(group_rewards).max()))
        equal[members] = is_equal
        written = members[~np.isnan(words[members])]
        if is_equal or len(written) < _FEWEST_RANKED:
            continue
        compared = compare_values(words[written], rewards[written])
        if compared is not None and compared.spearman is not None:
            correlations[written] = compared.spearman
    return equal, correlations


class StepFigures(NamedTuple):
    """The figures of the completions of one training step, or of several neighbouring steps.

    A mean without values is None.

    Attributes:
        first: The number of the first step.
        last: The number of the last step.
        completions: The number of completions.
        reward: The mean reward.
        reward_error: The standard error of the mean reward, where each group of completions is one observation.
        words: The mean number of words of the responses.
        length_correlation: The mean rank correlation of length and reward within groups.
        coverage: The mean share of the rubric that the judge could assess.
        abstained: The share of criteria on which the judge abstained.
        failed: The share of grades that failed.
        ungraded: The share of completions without anything to grade.
        equal_groups: The share of completions in groups with equal rewards, from which the policy cannot learn.
        criteria: The mean score in [0, 1] of each criterion by its name, where higher is better: for a binary criterion
            the share of MET, and for a penalty the share of UNMET.
        judge: The mean score by the first judge, for the completions that the second judge also graded.
        second: The mean score by the second judge, for the same completions.
    """

    first: int
    last: int
    completions: int
    reward: float | None
    reward_error: float | None
    words: float | None
    length_correlation: float | None
    coverage: float | None
    abstained: float | None
    failed: float | None
    ungraded: float | None
    equal_groups: float | None
    criteria: dict[EncodableText, float | None]
    judge: float | None = None
    second: float | None = None


class CriterionTrend(NamedTuple):
    """The change of one criterion in a training run.

    Attributes:
        requirement: The criterion's requirement.
        weight: The criterion's weight in the last completion, negative for a penalty.
        score: The mean score in [0, 1], where higher is better. For a penalty, this is the share of completions without
            the error.
        lead: The criterion's score minus the weighted mean score of the other criteria. None if there are no other
            criteria.
        explains: The criterion's share of the weighted gain of all criteria, where 1 is the complete gain. None if the
            reward has not risen significantly.
        abstained: The share of abstentions.
        saturated: `fulfilled` if the score was 1 in all completions of the last third, or `unfulfilled` if it was 0 in
            all of them. The policy then cannot learn from the criterion. Otherwise None.
    """

    requirement: EncodableText
    weight: float
    score: Trend
    lead: Trend | None
    explains: float | None
    abstained: Trend
    saturated: Literal["fulfilled", "unfulfilled"] | None


class JudgeGap(NamedTuple):
    """The scores of two judges for the same completions, and their changes from the first to the last third of the run.

    Attributes:
        judge: The scores of the first judge, which gives the reward, in [0, 1]. Higher is better, also for penalties.
        second: The scores of the second judge, in [0, 1].
        gap: The first judge's score minus the second judge's score.
        shortfall: The expected rise of the second judge's scores minus their actual rise. The expected rise is computed
            from the rise of the first judge's scores and from the correlation of both judges' scores. Therefore, random
            errors of the second judge do not cause a shortfall. Undefined if the first judge's scores do not vary.
        p_value: The two-sided p-value of the shortfall, or None without an interval.
    """

    judge: Trend
    second: Trend
    gap: Trend
    shortfall: Estimate
    p_value: float | None


class SecondJudge(NamedTuple):
    """The comparison of the first judge with a second judge on a sample of the completions.

    Attributes:
        sampled: The number of completions in the sample.
        compared: The number of sampled completions with a score by both judges.
        score: The comparison of the completions' scores, which are weighted means over the criteria that both judges
            decided. If the growth of the gap and the shortfall are both significantly above 0, the policy has probably
            learned to deceive the first judge.
        criteria: The comparison of the scores of each criterion, by its name.
        spend: The calls, tokens and cost of the second judge.
    """

    sampled: int
    compared: int
    score: JudgeGap
    criteria: dict[EncodableText, JudgeGap]
    spend: Spend


class RewardForm(NamedTuple):
    """Whether a trainer should get the sum of the criteria or one reward for each (`RubricReward.parts`).

    A trainer that normalizes each part within its group gives a rare verdict a large advantage. This also amplifies
    wrong verdicts (`python benchmarks/reward_parts.py`).

    Attributes:
        choice: `"sum"` if a criterion is saturated or noisy. Otherwise `"parts"`, which may help. None if fewer than
            two criteria have scores in the last third of the steps.
        criteria: The number of criteria with scores in the last third, without criteria of weight 0.
        saturated: The criteria with a mean score below 0.1 or above 0.9 in the last third.
        noisy: The criteria whose rarer verdicts may mostly be errors: the mean difference between the judges is more
            than half of the share of the rarer verdict. Empty without a second judge.
        disagreement: The mean difference of both judges' scores in [0, 1], which is the share of different verdicts for
            binary criteria. None without second judgments.
        judgments: The number of second judgments.
    """

    choice: Literal["sum", "parts"] | None
    criteria: int
    saturated: tuple[EncodableText, ...] = ()
    noisy: tuple[EncodableText, ...] = ()
    disagreement: float | None = None
    judgments: int = 0

    @property
    def text(self) -> str:
        """The choice with its figures, in one line."""
        if self.choice is None:
            return "not known, because fewer than two criteria have scores in the last third"
        noise = "not known, without second judgments"
        if self.disagreement is not None:
            noise = f"{self.disagreement:.0%} (n = {self.judgments:,})"
        figures = [
            f"{len(self.saturated)} of {self.criteria} criteria have a mean score below 0.1 or above 0.9 in the last "
            f"third{_first_names(self.saturated)}"
        ]
        if self.noisy:
            figures.append(
                f"the rarer verdicts on {len(self.noisy)} may mostly be errors, because the judges differ"
                f"{_first_names(self.noisy)}"
            )
        choice = "parts may help" if self.choice == "parts" else "sum"
        return f"{choice}, because {', and '.join(figures)}; mean difference between the judges: {noise}"


def _first_names(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:5]] + (["..."] if len(names) > 5 else [])
    return f" ({', '.join(shown)})" if shown else ""


class RewardReport(Record):
    """The result of `reward_report`: figures of a training run and signs that the policy exploits its judge.

    All changes compare the last third of the steps with the first third.

    Attributes:
        completions: The number of completions.
        steps: The figures of the steps in order, with at most 20 entries. In a longer run, neighbouring steps are
            combined.
        reward: The mean reward.
        words: The mean number of words of the responses.
        length_correlation: The mean rank correlation of length and reward within groups, over all steps. It is above 0
            if longer responses get higher rewards. Undefined without groups.
        coverage: The mean share of the rubric that the judge could assess.
        abstained: The share of criteria on which the judge abstained.
        failed: The share of grades that failed.
        ungraded: The share of completions without anything to grade, such as empty ones.
        equal_groups: The share of completions in groups with equal rewards, from which the policy cannot learn.
        criteria: The change of each criterion that at least five prompts share, by its name.
        form: Whether the trainer should get the sum of the criteria or one reward for each.
        second: The comparison with a second judge, or None without a second judge.
        signs: Significant signs that the policy exploits its judge, one sentence each. If nothing changes in a run, the
            probability of any sign is at most about 5 % (with a `level` of 0.95).
        warnings: Limitations of the figures, one sentence each.
    """

    completions: int
    steps: tuple[StepFigures, ...]
    reward: Trend
    words: Trend
    length_correlation: Estimate
    coverage: Trend
    abstained: Trend
    failed: Trend
    ungraded: Trend
    equal_groups: Trend
    criteria: dict[EncodableText, CriterionTrend]
    form: RewardForm = RewardForm(None, 0)
    second: SecondJudge | None = None
    signs: tuple[EncodableText, ...] = ()
    warnings: tuple[EncodableText, ...] = ()

    def summary(self) -> str:
        """Return the signs and the figures as text."""
        lines = [f"sign: {sign}" for sign in self.signs] or ["no sign that the policy exploits its judge"]
        lines += [
            f"reward: {self.reward.text}",
            f"words: {self.words.text}",
            f"rank correlation of length and reward within groups: {self.length_correlation}",
            f"groups with equal rewards: {self.equal_groups.text}",
            f"abstentions: {self.abstained.text}",
            f"failed grades: {self.failed.text}",
        ]
        for name, row in self.criteria.items():
            part = "" if row.explains is None else f"; {row.explains:.0%} of the gain"
            saturated = f"; {row.saturated} throughout the last third: it teaches nothing" if row.saturated else ""
            lines.append(f"criterion {name!r}: {row.score.text}{part}{saturated}")
        lines.append(f"sum or parts: {self.form.text}")
        if self.second:
            spend = self.second.spend.summary()
            lines += [
                f"on {self.second.compared:,} completions, the judge: {self.second.score.judge.text}",
                f"and the second judge: {self.second.score.second.text}",
                f"the gap between them: {self.second.score.gap.text}",
                f"shortfall of the second judge from what its agreement predicts: {self.second.score.shortfall}",
                f"cost of the second judge: {spend}",
            ]
        return "\n".join([*lines, *self.warnings])

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with a row for each entry of `steps`, and a column for each criterion.

        The column of a criterion has the prefix `criterion.`, such as `criterion.right`.

        Raises:
            ImportError: pandas is not installed.
        """
        columns = self._columns()
        return data_frame([dict(zip(columns, row, strict=True)) for row in self._rows()], columns)

    def _repr_html_(self) -> str:
        return html_table(self.summary(), self._columns(), self._rows())

    def _columns(self) -> list[str]:
        own = [name for name in StepFigures._fields if name != "criteria"]
        return own + [f"criterion.{name}" for name in self.criteria]

    def _rows(self) -> list[list[object]]:
        own = [name for name in StepFigures._fields if name != "criteria"]
        return [
            [*(getattr(row, name) for name in own), *(row.criteria.get(name) for name in self.criteria)]
            for row in self.steps
        ]
