"""Settings of graders: how a panel votes, limits on calls and texts, and how options are shown."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, field_serializer, field_validator, model_validator

from rubric_integrations._util.records import Record, SparseRecord
from rubric_integrations.judges.exploration import TrajectoryExplorer, describe_explorer
from rubric_integrations.rubric.criterion import BinaryStrategy, Kind, NominalStrategy, OrdinalStrategy
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.submission import Submission, has_numbered_steps

PositiveWeight = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
"""A finite number above 0."""


class Voting(Record):
    """How the judges of a panel vote.

    Attributes:
        weights: The weight of each judge's votes, in the order of the panel. By default, all weights are equal.
        binary: How votes on binary criteria are joined: `majority` (the default), `weighted`, `unanimous` (MET only if
            all votes are MET), `any` (MET if at least one vote is MET), `worst_case` or `best_case` (by the sign of the
            criterion's weight).
        ordinal: How votes on ordered options and scales are joined: `mean` (the default), `median`, `weighted_mean`,
            `mode`, `min`, `max`, `worst_case` or `best_case`.
        nominal: How votes on unordered options are joined: `mode` (the default), `weighted_mode` or `unanimous` (if
            the votes differ, an abstention or, if this is not allowed, the most frequent option).
        sequential: Whether the judges are asked one after another. The later judges are then not asked about a binary
            criterion if their votes can no longer change its verdict. Default False.

    Example:
        >>> Voting(binary="unanimous", sequential=True).ordinal
        'mean'
    """

    weights: tuple[PositiveWeight, ...] | None = None
    binary: BinaryStrategy = "majority"
    ordinal: OrdinalStrategy = "mean"
    nominal: NominalStrategy = "mode"
    sequential: bool = False

    @property
    def strategies(self) -> dict[Kind, str]:
        """The voting strategy for each kind of criterion."""
        return {"binary": self.binary, "ordinal": self.ordinal, "scaled": self.ordinal, "nominal": self.nominal}


class CallLimits(Record):
    """The limits on a grader's calls to models.

    Attributes:
        max_concurrency: The most calls at the same time in each event loop, over all grades of the grader. At least 1.
            Default: 64, or the limit of the run. If the grader and the run both have a limit, the smaller one applies.
            After a rate limit, the number is halved for a while.
        max_retries: The number of retries after an unreadable reply, at least 0. Default 2. Unless it is 0, a judgment
            that is still missing after the retries is requested once more in each of two further rounds. Therefore 2
            means up to five calls (1 + 2 + 2), and 0 means one call. With any value, a request is also repeated with
            a simpler reply format or without the default temperature if the server refuses these by name.
        timeout: The timeout of one attempt in seconds, above 0. Default 120.
        max_outage: The seconds for which a judgment is requested repeatedly while no reply arrives, because the server
            is down, limits the rate, or is too slow. At least 0. These attempts are not limited by `max_retries`. The
            only exception is `max_retries=0`: then no such attempt is repeated. Default: 300. For a server that was
            never reached, the default is 7, because its URL may be wrong.

    Example:
        >>> CallLimits(max_retries=5).timeout
        120.0
    """

    max_concurrency: int | None = Field(default=None, ge=1, strict=True)
    max_retries: int = Field(default=2, ge=0, strict=True)
    timeout: float = Field(default=120.0, gt=0.0, allow_inf_nan=False)
    max_outage: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)

    @property
    def concurrency(self) -> int:
        """The concurrency limit outside of a run."""
        return self.concurrency_in(64)

    def concurrency_in(self, max_concurrency: int) -> int:
        """Return the concurrency limit in a run: the grader's or the run's (`max_concurrency`), the smaller one."""
        return max_concurrency if self.max_concurrency is None else min(self.max_concurrency, max_concurrency)

    @property
    def outage_seconds(self) -> float:
        """The seconds to wait for a server that has stopped replying."""
        return 300.0 if self.max_outage is None else self.max_outage

    @property
    def connect_seconds(self) -> float:
        """The seconds to wait for a server that was never reached."""
        return 7.0 if self.max_outage is None else self.max_outage

    def longest_wait(self, judgments: int) -> float:
        """Return the longest time in seconds until a number of judgments that are requested together have ended.

        It is a bound for one judge and criteria without `applies_when`, before and after the judge's first reply:

            rounds * max_outage + 2 * (max_retries + rounds) * (waves * timeout + 60) + 8 * timeout

        There are 3 rounds, or 1 if `max_retries` is 0, and `waves` is the number of judgments divided by the smaller
        one of `max_concurrency` and 20, rounded up. 60 is the longest wait in seconds that a server can request.
        Usually, the wait is much shorter. A server that limits the rate (429) can make it longer, because the
        concurrency is then lowered.

        Args:
            judgments: The number of judgments: submissions times criteria. With `chunk_size`, each part of a long
                response is another judgment.

        Example:
            >>> CallLimits(timeout=20, max_retries=1, max_outage=60).longest_wait(16)
            980.0
        """
        from rubric_integrations.graders.endpoint import LONGEST_WAIT, LOST_CALLS, MAX_FAILED_SUBMISSIONS
        from rubric_integrations.graders.rounds import MAX_ROUNDS

        rounds = MAX_ROUNDS if self.max_retries else 1
        # Before the first readable reply, fewer calls are sent together.
        waves = math.ceil(judgments / min(self.concurrency, MAX_FAILED_SUBMISSIONS))
        attempts = 2 * (self.max_retries + rounds) * (waves * self.timeout + LONGEST_WAIT)
        return rounds * self.outage_seconds + attempts + LOST_CALLS * self.timeout


class TextLimits(SparseRecord):
    """The limits on the texts that judges read.

    Attributes:
        step_limit: The most characters of a tool's result in a trajectory that judges see, at least 1. If a result
            is longer, judges see its beginning, its end and the number of omitted characters. The report has the total
            as `omitted_characters`. Checks read the complete result. None (the default) for no limit.
        chunk_size: The most characters of a response that judges see in one call, at least 1,000. A longer response is
            split into parts, between paragraphs or between the steps of a trajectory. A binary criterion is judged on
            each part: it is MET if any part is MET, and UNMET if all parts are UNMET. Criteria with options or a scale
            are judged on the full response. Only for `PerCriterionGrader`. None (the default) for no limit.
        explorer: An `Explorer` that reads a long trajectory with tools, once for each submission, and chooses the steps
            that judges see. Checks read the complete trajectory. The report has an `exploration`. None (the default)
            to show all steps.
        explore_above: The number of characters of a trajectory above which it is explored, at least 0. Default: 50,000.
            Shorter trajectories are shown completely, without a request of the explorer.

    Raises:
        pydantic.ValidationError: (a ValueError) A limit is out of range, or there is an `explore_above` without an
            `explorer`.

    Example:
        >>> TextLimits(step_limit=2_000).explore_above
        50000
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("explorer", "explore_above")

    model_config = ConfigDict(arbitrary_types_allowed=True)

    step_limit: int | None = Field(default=None, ge=1, strict=True)
    chunk_size: int | None = Field(default=None, ge=1_000, strict=True)
    explorer: TrajectoryExplorer | None = None
    explore_above: int = Field(default=50_000, ge=0, strict=True)

    @field_validator("explorer", mode="before")
    @classmethod
    def _require_explorer(cls, value: object) -> object:
        # A class has the attributes of its objects, too.
        if value is None or (isinstance(value, TrajectoryExplorer) and not isinstance(value, type)):
            return value
        raise ValueError(f"must be an Explorer, got {value!r}: pass `Explorer(MODEL)`, or nothing would be explored")

    @model_validator(mode="after")
    def _check_explorer(self) -> Self:
        if self.explorer is None and "explore_above" in self.model_fields_set:
            raise ValueError("`explore_above` has no effect without an `explorer`: pass `explorer=Explorer(MODEL)`")
        return self

    @field_serializer("explorer")
    def _describe_explorer(self, explorer: TrajectoryExplorer | None) -> dict[str, Any] | None:
        return None if explorer is None else describe_explorer(explorer)


class OptionDisplay(Record):
    """How a judge sees the options of multi-choice criteria.

    Attributes:
        shuffle: Whether the options are shuffled for each submission, to reduce position bias. Default True.
        seed: The seed of the shuffle. The same seed gives the same order. Default 0.
        may_abstain: Whether judges may answer CANNOT_ASSESS to a criterion with options, none of which is marked `na`.
            To all other criteria, they always may. Default True.
    """

    shuffle: bool = True
    seed: int = 0
    may_abstain: bool = True


def with_retries(limits: CallLimits, max_retries: int | None) -> CallLimits:
    """Return limits with the argument `max_retries` of a grader applied. None leaves the limits unchanged.

    Raises:
        ValueError: `limits.max_retries` is set, too, or the number is negative.
    """
    if max_retries is None:
        return limits
    if "max_retries" in limits.model_fields_set:
        raise ValueError("`max_retries` and `limits.max_retries` are two names of one setting: pass one")
    return CallLimits.model_validate({**limits.model_dump(exclude_unset=True), "max_retries": max_retries})


def shown_to_judges(submission: Submission, limits: TextLimits) -> Submission:
    """Return the submission as judges see it. Tool results that are longer than `step_limit` are shortened."""
    return submission if limits.step_limit is None else submission.shortened(limits.step_limit)


def report_omissions(
    report: EvaluationReport, rubric: Rubric, submission: Submission, limits: TextLimits
) -> EvaluationReport:
    """Add the number of trajectory characters that judges did not see to a report."""
    judged = [criterion for criterion in rubric.criteria if criterion.check is None]
    if not judged or not has_numbered_steps(submission, judged) or (trajectory := submission.trajectory) is None:
        return report
    shown = trajectory if limits.step_limit is None else trajectory.shortened(limits.step_limit)
    # A selection of an explorer leaves out characters, too, and the report has them in its `exploration`.
    omitted = shown.omitted - (trajectory.omitted if trajectory.selection else 0)
    return report.model_copy(update={"omitted_characters": omitted}) if omitted else report
