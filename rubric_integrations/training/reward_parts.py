"""The parts of a rubric as separate reward functions that share one grading (`RubricReward.parts`).

A trainer that gets one reward function for each criterion can normalize each criterion within the group of completions
before it adds them (GDPO, arXiv 2601.05242). Independent functions would grade each completion once for each criterion.

- A score is in [0, 1], and higher is better, also for a penalty: `s = 1 - v` for a penalty with the value `v`.
- The weight of a part is the sum of |w| over its criteria, divided by the sum of all positive `w`. Therefore, the
  weighted sum of the parts is the raw score divided by the sum of the positive weights, plus a constant.
- The score of a part with several criteria is their mean, weighted by |w|.
- If each row has its own rubric, no weight is the same in all rows. The weight of each part is then 1, and its score is
  the sum of |w| * s over its criteria, divided by the sum of |w| over all criteria of the row. For the completions of
  one prompt, the sum of the parts again differs from the raw score only by a factor and a constant.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

from rubric_integrations.graders import Grader
from rubric_integrations.graders.grader import CriterionGrader
from rubric_integrations.rubric.rubric import Rubric, has_caps
from rubric_integrations.scoring.formula import WeightedValue, scored_value
from rubric_integrations.scoring.policies import CannotAssess
from rubric_integrations.scoring.report import CriterionReport, higher_is_better
from rubric_integrations.training.rollouts import Rollout, RolloutReader, StepLog

Aggregation = Literal["sum_then_normalize", "normalize_then_sum"]
"""How TRL combines several rewards: `multi_objective_aggregation` of `GRPOConfig`."""

PartsBy = Literal["criterion"] | Mapping[str, Sequence[str]]
"""One part for each criterion, or the names of the criteria of each part."""

OTHER = "other"
"""The name of the part with the criteria that no group names."""

_logger = logging.getLogger(__name__)


class PartLayout(NamedTuple):
    """The parts of a rubric, and the rules for their scores.

    Attributes:
        names: The names of the parts.
        weights: The weight of each part, at least 0.
        indices: The index of the part of each criterion, by the criterion's name.
        other: The index of the part with all other criteria, or None if there is no such part.
        has_shared_rubric: Whether all rows have the same rubric. If not, each row has its own.
        needs_all: Whether all parts of a completion are missing if one of them is, apart from criteria of weight 0.
        cannot_assess: How an abstention is scored.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    indices: Mapping[str, int]
    other: int | None
    has_shared_rubric: bool
    needs_all: bool
    cannot_assess: CannotAssess

    def scores(self, rollout: Rollout) -> list[float | None]:
        """Return the score of each part for a completion, in [0, 1], or None for a part without a score.

        All scores are None if the grade failed, and 0 if the completion has no answer and is not left out.
        """
        nothing: list[float | None] = [None] * len(self.names)
        report = rollout.graded.report
        if rollout.is_empty:
            return nothing if rollout.reward is None else [0.0] * len(self.names)
        if report is None or rollout.failure or any(row.error for row in report.criteria):
            return nothing
        rows: list[list[tuple[float, float | None]]] = [[] for _ in self.names]
        for row in report.criteria:
            rows[self._index_of(row.name)].append((abs(row.weight), score_of_criterion(row, self.cannot_assess)))
        # A part without criteria in this row is no abstention: it is missing for all completions of the prompt.
        if self.needs_all and any(score is None and weight for part in rows for weight, score in part):
            return nothing
        if self.has_shared_rubric:
            return [_mean(part) for part in rows]
        total = math.fsum(weight for part in rows for weight, _ in part)
        return [_mean(part, total) if total else None for part in rows]

    def with_reward(self, rollout: Rollout) -> Rollout:
        """Return a completion with the weighted sum of its parts as the reward.

        The reward is None if a part is missing. With a rubric for each row, a part without criteria in this row is left
        out.
        """
        scores = self.scores(rollout)
        known = [weight * score for weight, score in zip(self.weights, scores, strict=True) if score is not None]
        report = rollout.graded.report
        abstains = report is not None and any(
            row.weight and score_of_criterion(row, self.cannot_assess) is None for row in report.criteria
        )
        is_whole = bool(known) and not abstains
        return rollout._replace(reward=math.fsum(known) if is_whole else None)

    def check_rubric(self, rubric: Rubric) -> None:
        """Refuse the rubric of a row whose score is not a weighted sum over its criteria.

        Raises:
            ValueError: The rubric has groups, caps, conditions or hybrid metrics. The message names them.
        """
        refuse_rubric(rubric)

    def check_rows(self, rollouts: Sequence[Rollout]) -> None:
        """Refuse rows with further criteria, for which there is no part and no weight.

        Raises:
            ValueError: There is a shared rubric, and a row has its own rubric in addition.
        """
        own = next((rollout.graded.row.rubric for rollout in rollouts if rollout.graded.row.rubric), None)
        if self.has_shared_rubric and own is not None:
            raise ValueError(
                f"a row has its own criteria, such as {own.keys[0]!r}, in addition to the rubric of all rows, but the "
                "weights of the parts are the same for all rows: pass `RubricReward` a function that returns the "
                "complete rubric of a row, and `parts(by={...})`"
            )

    def _index_of(self, criterion: str) -> int:
        if self.other is None:
            return self.indices[criterion]
        return self.indices.get(criterion, self.other)


def refuse_rubric(rubric: Rubric, option: str = "parts") -> None:
    """Refuse a rubric whose score is not a weighted sum over its criteria.

    Args:
        rubric: The rubric.
        option: The name of the method or the parameter that needs such a rubric, for the error message.

    Raises:
        ValueError: The rubric has groups, caps, conditions or hybrid metrics. The message names them.
    """
    reasons = ["groups of criteria"] if rubric.tree is not None else []
    if rubric.tree is not None and has_caps(rubric.tree):
        reasons.append("`penalty_cap`")
    if name := next((key for key, row in zip(rubric.keys, rubric.criteria, strict=True) if row.applies_when), None):
        reasons.append(f"`applies_when` (of {name!r})")
    if rubric.hybrid_metrics:
        reasons.append("`hybrid_metrics`")
    if reasons:
        raise ValueError(
            f"`{option}` cannot split a rubric with {' and '.join(reasons)}: its score is not a weighted sum over the "
            f"criteria, which the parts would replace. Remove them, or leave out `{option}`"
        )


def refuse_grader(grader: Grader, option: str = "parts") -> None:
    """Refuse a grader whose scores are not weighted sums over verdicts on criteria.

    Args:
        grader: The grader.
        option: The name of the method or the parameter that needs such a grader, for the error message.

    Raises:
        ValueError: The grader has a length penalty, or gives no verdicts on single criteria.
    """
    if grader.length_penalty is not None:
        raise ValueError(
            f"`grader` has a `length_penalty`, which belongs to no part and would be lost with `{option}`: remove it, "
            "and add a criterion with a check such as `max_words`"
        )
    if not isinstance(grader, CriterionGrader):
        raise ValueError(
            f"`grader` is a {type(grader).__name__}, which gives no verdicts on single criteria: `{option}` needs them"
        )


def plan_parts(reader: RolloutReader, by: PartsBy, aggregation: Aggregation) -> PartLayout:
    """Choose the criteria and the weight of each part, after a check of all settings.

    Raises:
        ValueError: A setting is unknown, or the rubric, the grader or `empty` cannot be split. The message names it.
    """
    if aggregation not in get_args(Aggregation):
        raise ValueError(f"`aggregation` must be one of {get_args(Aggregation)}, got {aggregation!r}")
    grader, shared = reader.grader, reader.rubrics.shared
    refuse_grader(grader)
    if not (reader.empty is None or reader.empty == "least"):
        raise ValueError(f"`empty` must be 'least' or None for parts, got {reader.empty!r}: a sum cannot be split")
    if shared is not None:
        refuse_rubric(shared)
    needs_all = aggregation == "sum_then_normalize"
    if by == "criterion":
        if shared is None:
            raise ValueError(
                "`by='criterion'` needs a rubric that all rows share, because a trainer has the same parts in each "
                "step: group the criteria of the rows by their names, such as `by={'facts': ['margin', 'sources']}`"
            )
        groups = {key: [key] for key in shared.keys}
    else:
        groups = _check_groups(by, shared)
    indices = {name: index for index, names in enumerate(groups.values()) for name in names}
    other = list(groups).index(OTHER) if OTHER in groups and by != "criterion" else None
    weights = [1.0] * len(groups) if shared is None else _weights(shared, groups)
    return PartLayout(
        tuple(groups), tuple(weights), indices, other, shared is not None, needs_all, grader.policies.cannot_assess
    )


def _check_groups(by: object, shared: Rubric | None) -> dict[str, list[str]]:
    """Return the names of the criteria of each part, with the part of all other criteria if there can be any.

    Raises:
        ValueError: `by` is not a mapping of names to lists of names, or names a criterion twice or one that is unknown.
    """
    if not isinstance(by, Mapping) or not by:
        raise ValueError(f"`by` must be 'criterion' or a mapping such as {{'facts': ['margin']}}, got {by!r}")
    groups: dict[str, list[str]] = {}
    for part, names in cast("Mapping[object, object]", by).items():
        is_list = isinstance(names, Sequence) and not isinstance(names, str)
        criteria = list(cast("Sequence[object]", names)) if is_list else []
        if not (isinstance(part, str) and part and criteria and all(isinstance(name, str) for name in criteria)):
            raise ValueError(f"`by` must give each part a list of names of criteria, got {part!r}: {names!r}")
        groups[part] = cast("list[str]", criteria)
    named = [name for names in groups.values() for name in names]
    if repeated := next((name for name in named if named.count(name) > 1), None):
        raise ValueError(f"`by` names the criterion {repeated!r} twice: its weight would count twice")
    known = named if shared is None else list(shared.keys)
    if unknown := next((name for name in named if name not in known), None):
        raise ValueError(f"`by` names {unknown!r}, which is no criterion of the rubric ({known!r}): correct the name")
    others = [name for name in known if name not in named]
    if others or shared is None:
        groups[OTHER] = [*groups.get(OTHER, []), *others]
    return groups


def _weights(rubric: Rubric, groups: Mapping[str, Sequence[str]]) -> list[float]:
    """Return the weight of each part, as a share of the positive weights (without any, of all weights).

    Raises:
        ValueError: The ratio of two weights is too large for a number.
    """
    of_criteria = dict(zip(rubric.keys, (row.full_weight for row in rubric.criteria), strict=True))
    positive = math.fsum(weight for weight in of_criteria.values() if weight > 0)
    divisor = positive or math.fsum(map(abs, of_criteria.values()))
    weights = [math.fsum(abs(of_criteria[name]) for name in names) for names in groups.values()]
    if not all(math.isfinite(weight / divisor) for weight in weights):
        raise ValueError(f"the penalties are too large for the positive weights, whose sum is {divisor!r}: change them")
    return [weight / divisor for weight in weights]


def score_of_criterion(row: CriterionReport, cannot_assess: CannotAssess) -> float | None:
    """Return the score of a criterion in [0, 1], where higher is better, or None for an abstention that is left out."""
    value = row.value
    if value is None and row.abstained:
        worst = row.to_criterion().worst_value
        value = scored_value(WeightedValue(row.weight, None, worst), cannot_assess)
    return None if value is None else higher_is_better(value, is_penalty=row.weight < 0)


def _mean(part: Sequence[tuple[float, float | None]], divisor: float = 0.0) -> float | None:
    """Return the weighted sum of scores, divided by the divisor or by the sum of the weights. None if one is missing.

    A missing score of weight 0 counts only if all weights are 0. The scores then have equal weights.
    """
    if any(weight for weight, _ in part):
        part = [(weight, score) for weight, score in part if weight]
    scores = [score for _, score in part if score is not None]
    if not part or len(scores) < len(part):
        return None
    weights = [weight for weight, _ in part]
    if not divisor and not math.fsum(weights):
        weights = [1.0] * len(part)
    total = math.fsum(weight * score for weight, score in zip(weights, scores, strict=True))
    return min(1.0, total / (divisor or math.fsum(weights)))


RunStep = Callable[[Sequence[Any], Sequence[Any], Mapping[str, Any], StepLog, PartLayout], Awaitable[list[Rollout]]]
"""Grades the completions of a step, records and logs them."""


class _Inputs(NamedTuple):
    """Everything on which the grades of a batch depend. The lists are copies, because a trainer may change its own."""

    step: Any
    prompts: list[Any]
    completions: list[Any]
    columns: dict[str, list[Any]]

    def is_equal(self, other: _Inputs) -> bool:
        """Return whether both are the same batch. False if a value cannot be compared, such as an array."""
        try:
            return bool(self == other)
        except Exception:  # noqa: BLE001 -- whatever objects the columns contain
            return False


@dataclass(eq=False, slots=True)
class _Batch:
    """A batch that is being graded, or was graded.

    Attributes:
        inputs: The batch.
        loop: The event loop on which it is graded.
        task: The grading, with the scores of the parts of each completion.
        left: The parts that have not taken their scores yet. Each part takes them once.
        waiting: The number of calls that wait for the end of the grading.
    """

    inputs: _Inputs
    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[list[list[float | None]]]
    left: set[int]
    waiting: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether there will be no scores, because the grading was cancelled or its event loop has ended."""
        return bool(self.task.cancelling()) or self.task.cancelled() or (self.loop.is_closed() and not self.task.done())


class SharedGrading:
    """Grades each batch once for all parts of a rubric.

    The first part that is called with a batch starts its grading. The other parts take their scores from it. Each part
    takes the scores of a grading once. Therefore, the next batch is graded again, even if it is equal. Only a ledger
    reuses judgments of earlier batches.

    A pickle contains the settings, but no batches.

    Args:
        run_step: Grades a batch.
        reader: Reads the completions. It defines the columns on which the grades depend.
        layout: The parts.
    """

    def __init__(self, run_step: RunStep, reader: RolloutReader, layout: PartLayout):
        self._run_step, self._reader, self._layout = run_step, reader, layout
        self._has_warned, self._has_seen_names = False, False
        self._start()

    async def scores(
        self, part: int, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any], log: StepLog
    ) -> list[float | None]:
        """Return the scores of one part for the completions of a batch.

        Raises:
            RuntimeError: Another part has started the grading of this batch on another event loop.
        """
        batch = self._join(part, self._inputs_of(prompts, completions, columns, log), columns, log)
        batch.waiting += 1
        try:
            # Without the shield, the cancellation of one part would cancel the grading of all parts.
            scores = batch.task.result() if batch.task.done() else await asyncio.shield(batch.task)
        finally:
            batch.waiting -= 1
            if not batch.waiting and not batch.task.done():
                batch.task.cancel()  # no part waits any more
        return [of_completion[part] for of_completion in scores]

    def _join(self, part: int, inputs: _Inputs, columns: Mapping[str, Any], log: StepLog) -> _Batch:
        """Return the grading of a batch from which the part has not taken its scores yet, or start a new one."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._batches = [batch for batch in self._batches if not batch.is_lost]
            batches = (batch for batch in self._batches if part in batch.left and batch.inputs.is_equal(inputs))
            batch = next(batches, None)
            if batch is None:
                task = loop.create_task(self._grade(inputs, columns, log))
                batch = _Batch(inputs, loop, task, set(range(len(self._layout.names))))
                # A part that was not called must not take scores of an earlier batch later.
                self._batches = [batch for batch in self._batches if not batch.task.done()] + [batch]
            elif batch.loop is not loop and not batch.task.done():
                raise RuntimeError(
                    "the parts of a `RubricReward` were called on two event loops at the same time, but they share one "
                    "grading and its connections, which belong to one event loop: call all parts on the same loop, as "
                    "TRL does, or make a `RubricReward` for each loop"
                )
            batch.left.discard(part)
            if not batch.left:
                self._batches.remove(batch)
            return batch

    async def _grade(self, inputs: _Inputs, columns: Mapping[str, Any], log: StepLog) -> list[list[float | None]]:
        own = {**columns, **inputs.columns}
        rollouts = await self._run_step(inputs.prompts, inputs.completions, own, log, self._layout)
        self._check_names(rollouts)
        return [self._layout.scores(rollout) for rollout in rollouts]

    def _check_names(self, rollouts: Sequence[Rollout]) -> None:
        """Log the names in `by` that are in no rubric of the first graded step. Only rubrics of rows can lack one."""
        reports = [rollout.graded.report for rollout in rollouts if rollout.graded.report is not None]
        if self._has_seen_names or not reports:
            return
        self._has_seen_names = True
        seen = {row.name for report in reports for row in report.criteria}
        if missing := [name for name in self._layout.indices if name not in seen]:
            _logger.warning(
                "no row of the first step has the criteria %r, which `by` names: if they are misspelled, correct "
                "them, or their criteria would count in the part %r",
                missing[:5], OTHER,
            )  # fmt: skip

    def _inputs_of(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any], log: StepLog
    ) -> _Inputs:
        reader = self._reader
        names = columns if reader.rubrics.has_function else (reader.reference, reader.context, "rubric")
        read = {name: list(columns[name]) for name in names if isinstance(columns.get(name), list | tuple)}
        step = getattr(log.trainer_state, "global_step", None)
        return _Inputs(step, list(prompts), list(completions), read)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._batches: list[_Batch] = []

    def __getstate__(self) -> dict[str, Any]:
        if not self._has_warned and (not self._layout.needs_all or len(set(self._layout.weights)) > 1):
            self._has_warned = True
            _logger.warning(
                "the parts of a rubric are pickled. `AsyncGRPOTrainer` adds the parts without their weights and does "
                "not normalize each part: pass it the `RubricReward` itself"
            )
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_batches")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()


class RewardPart:
    """The reward function of one part of a rubric, made by `RubricReward.parts`. TRL awaits it.

    Args:
        shared: The grading that all parts share.
        index: The index of the part.
        name: The name of the reward, such as `rubric.margin`.
    """

    def __init__(self, shared: SharedGrading, index: int, name: str):
        self._shared, self._index = shared, index
        self.__name__ = name
        if mark := getattr(inspect, "markcoroutinefunction", None):
            mark(self)  # for TRL before 1.14, as in `RubricReward`

    def __reduce__(self) -> Any:
        return RewardPart, (self._shared, self._index, self.__name__)

    def __repr__(self) -> str:
        return f"<reward {self.__name__!r}>"

    async def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        trainer_state: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return the score of this part for each completion of a step, in [0, 1], or None for a missing score.

        The first part that is called in a step grades the completions, and logs the metrics of `RubricReward`.

        Args:
            prompts: The prompt of each completion.
            completions: The completions.
            trainer_state: TRL's state.
            log_extra: A function that adds a column to TRL's table of completions.
            log_metric: A function that logs a number.
            columns: The other columns of the dataset.

        Raises:
            JudgeOutage: As for `RubricReward`, in all parts.
            RuntimeError: Another part is grading the same step on another event loop.
            ValueError: As for `RubricReward`, or a row has its own criteria in addition to the rubric of all rows.
        """
        log = StepLog(trainer_state, log_extra, log_metric)
        return await self._shared.scores(self._index, prompts, completions, columns, log)


class RewardParts(list[RewardPart]):
    """The reward functions of all parts of a rubric, for the argument `reward_funcs` of a trainer.

    Args:
        parts: The reward functions.
        weights: The weight of each part.

    Attributes:
        weights: The weight of each part, at least 0, for `reward_weights` of the trainer's configuration.
    """

    def __init__(self, parts: Sequence[RewardPart], weights: Sequence[float]):
        super().__init__(parts)
        self.weights = list(weights)


def make_parts(
    run_step: RunStep, reader: RolloutReader, name: str, by: PartsBy, aggregation: Aggregation
) -> RewardParts:
    """Return the reward functions of the parts of a rubric. This implements `RubricReward.parts`.

    Args:
        run_step: Grades a batch.
        reader: Reads the completions.
        name: The beginning of the name of each part.
        by: The parts.
        aggregation: How the trainer combines the parts.
    """
    layout = plan_parts(reader, by, aggregation)
    shared = SharedGrading(run_step, reader, layout)
    parts = [RewardPart(shared, index, f"{name}.{part}") for index, part in enumerate(layout.names)]
    return RewardParts(parts, layout.weights)
