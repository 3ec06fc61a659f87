"""The completions of a training run as arrays: one value for each completion, NaN where it has none."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rubric_integrations.agreement.intervals import ROUNDING
from rubric_integrations.agreement.matching import criterion_keys
from rubric_integrations.agreement.ranks import compare_values
from rubric_integrations.training.health.rollout_scores import CriterionKey, RolloutScores
from rubric_integrations.training.health.trends import FEWEST_GROUPS, Thirds, divide

# Ranks of two completions have a correlation of 1 or -1, whatever they are.
_FEWEST_RANKED = 3


class CriterionColumn(NamedTuple):
    """The answers to one criterion.

    Attributes:
        requirement: Its words.
        weight: Its weight in the last completion.
        places: The numbers of the completions with an answer.
        scores: Their scores in [0, 1], for which higher is better; NaN for an abstention.
    """

    requirement: str
    weight: float
    places: Any
    scores: Any


class Columns(NamedTuple):
    """The completions of a training run as arrays.

    Attributes:
        step_numbers: The steps of the run, in order.
        steps: The place of each completion's step among them.
        groups: The number of the completion's group: the completions of one prompt in one step.
        thirds: To which third of the steps the completions belong, and to which cluster.
        rewards: Their rewards.
        words: The numbers of words of their answers.
        coverage: The share of the rubric that was assessed.
        abstained: The share of criteria on which the judge abstained.
        failed: 1 if the grade failed, 0 if not.
        ungraded: 1 if there was nothing to grade, 0 if there was.
        equal_groups: 1 if all completions of its group have one reward, 0 if not.
        correlations: The rank correlation of length and reward within its group; equal for the group.
        criteria: The answers to each criterion that at least five prompts share.
        left_out: The number of the other criteria.
        have_groups: Whether any completion has a group.
        sources: The place of each completion among all rows of the run.
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
        """Return how the report names each criterion."""
        return criterion_keys(self.criteria)


def make_columns(completions: Sequence[RolloutScores]) -> Columns:
    """Return the columns of a run with at least one completion."""
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
    equal, correlations = _of_groups(np.array(groups), has_group, rewards, words)
    criteria = _criteria(completions)
    prompts_of = {key: len({prompts[place] for place in column.places}) for key, column in criteria.items()}
    # Each prompt may have criteria of its own: nothing can be compared between steps then.
    fewest = min(FEWEST_GROUPS, len(prompt_names))
    shared = {key: column for key, column in criteria.items() if prompts_of[key] >= fewest}
    return Columns(
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


def _of_groups(groups: Any, has_group: Any, rewards: Any, words: Any) -> tuple[Any, Any]:
    """Return for each completion whether its group's rewards are equal, and the correlation of length and reward."""
    equal, correlations = np.full(len(groups), math.nan), np.full(len(groups), math.nan)
    chosen = np.flatnonzero(has_group & ~np.isnan(rewards))
    chosen = chosen[np.argsort(groups[chosen], kind="stable")]
    for members in np.split(chosen, np.flatnonzero(np.diff(groups[chosen])) + 1):
        if len(members) < 2:
            continue
        of_group = rewards[members]
        is_equal = np.ptp(of_group) <= ROUNDING * max(1.0, float(np.abs(of_group).max()))
        equal[members] = is_equal
        written = members[~np.isnan(words[members])]
        if is_equal or len(written) < _FEWEST_RANKED:
            continue
        compared = compare_values(words[written], rewards[written])
        if compared is not None and compared.spearman is not None:
            correlations[written] = compared.spearman
    return equal, correlations
