"""Settings of graders as records: how a panel votes, the limits on calls and on texts, and how options are shown."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rubric_integrations._util.records import Record
from rubric_integrations.rubric.criterion import BinaryStrategy, Kind, NominalStrategy, OrdinalStrategy
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.submission import Submission, has_numbered_steps

PositiveWeight = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
"""A finite number above 0."""


class Voting(Record):
    """How the judges of a panel vote.

    Attributes:
        weights: The weight of each judge's votes, in the order of the panel; by default all are equal.
        binary: How votes on binary criteria are joined: `majority` (the default), `weighted`, `unanimous` (MET only if
            all judges say MET), `any` (MET if one does), `worst_case` or `best_case` (by the sign of the criterion's
            weight).
        ordinal: The same for ordered options and scales: `mean` (the default), `median`, `weighted_mean`, `mode`,
            `min`, `max`, `worst_case` or `best_case`.
        nominal: The same for unordered options: `mode` (the default), `weighted_mode` or `unanimous`.
        sequential: Whether the judges are asked one after another, the later ones only about those binary criteria
            whose result they can still change. Default False.

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
        """The strategy by the criterion's kind."""
        return {"binary": self.binary, "ordinal": self.ordinal, "scaled": self.ordinal, "nominal": self.nominal}


class CallLimits(Record):
    """The limits on a grader's calls to models.

    Attributes:
        max_concurrency: The most calls at the same time in each event loop, over all grades of the grader; at least 1.
            Default 64. A rate limit halves it for a while.
        max_retries: Retries after an unreadable reply, at least 0. Default 2. A judgment that is still lost is
            requested once more in each of two further rounds: 2 means up to five calls, and 0 one.
        timeout: Seconds for one attempt, above 0. Default 120.
        max_outage: Seconds for which a judgment is requested again and again while no reply arrives (the server is
            down, limits the rate, or is too slow), at least 0; beyond `max_retries`, unless that is 0. By default 300,
            and 7 for a server that has never replied and cannot be reached, whose URL may be wrong.

    Example:
        >>> CallLimits(max_retries=5).timeout
        120.0
    """

    max_concurrency: int = Field(default=64, ge=1, strict=True)
    max_retries: int = Field(default=2, ge=0, strict=True)
    timeout: float = Field(default=120.0, gt=0.0, allow_inf_nan=False)
    max_outage: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)

    @property
    def outage_seconds(self) -> float:
        """Seconds to wait for a server that does not reply any more."""
        return 300.0 if self.max_outage is None else self.max_outage

    @property
    def connect_seconds(self) -> float:
        """Seconds to wait for a server that has never replied and cannot be reached."""
        return 7.0 if self.max_outage is None else self.max_outage


class TextLimits(Record):
    """The limits on the texts that judges read.

    Attributes:
        step_limit: The most characters of a tool's result in a trajectory that judges are shown, at least 1. Of a
            longer one they are shown the beginning and the end, and how many characters are omitted; the report has
            the sum as `omitted_characters`. Checks in code read all of it. None (the default): nothing is cut.
        chunk_size: The most characters of a response that judges are shown in one call, at least 1,000. A longer one is
            split into parts, between paragraphs or between the steps of a trajectory, and a binary criterion is judged
            on each: it is MET if any part is MET, and UNMET if all parts are. Criteria with options or a scale are
            judged on the whole. For `PerCriterionGrader` alone. None (the default): nothing is split.

    Example:
        >>> TextLimits(step_limit=2_000)
        TextLimits(step_limit=2000, chunk_size=None)
    """

    step_limit: int | None = Field(default=None, ge=1, strict=True)
    chunk_size: int | None = Field(default=None, ge=1_000, strict=True)


class OptionDisplay(Record):
    """How a judge sees the options of multi-choice criteria.

    Attributes:
        shuffle: Whether their order depends on the submission, against position bias. Default True.
        seed: Which order; the same seed gives the same order. Default 0.
        may_abstain: Whether judges may answer CANNOT_ASSESS where no option is marked `na`. Default True.
    """

    shuffle: bool = True
    seed: int = 0
    may_abstain: bool = True


def with_retries(limits: CallLimits, max_retries: int | None) -> CallLimits:
    """Return limits with the `max_retries` of programs for the `rubric` package; None leaves the limits as they are.

    Raises:
        ValueError: The limits have a `max_retries` already, or the number is negative.
    """
    if max_retries is None:
        return limits
    if "max_retries" in limits.model_fields_set:
        raise ValueError("`max_retries` and `limits.max_retries` are two names of one setting: pass one")
    return CallLimits.model_validate({**limits.model_dump(exclude_unset=True), "max_retries": max_retries})


def shown_to_judges(submission: Submission, limits: TextLimits) -> Submission:
    """Return what judges read of a submission: all of it, or the one with shorter tool results."""
    return submission if limits.step_limit is None else submission.shortened(limits.step_limit)


def report_omissions(
    report: EvaluationReport, rubric: Rubric, submission: Submission, limits: TextLimits
) -> EvaluationReport:
    """Add to a report how many characters of the trajectory its judges were not shown."""
    judged = [criterion for criterion in rubric.criteria if criterion.check is None]
    if not judged or not has_numbered_steps(submission, judged) or (trajectory := submission.trajectory) is None:
        return report
    shown = trajectory if limits.step_limit is None else trajectory.shortened(limits.step_limit)
    return report.model_copy(update={"omitted_characters": shown.omitted}) if shown.omitted else report
