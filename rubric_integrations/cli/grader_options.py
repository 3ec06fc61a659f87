"""The grader that the options of `grade` describe: a strategy, its judges and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import Judge

Strategy = Literal["per-criterion", "one-shot", "holistic"]


class GraderOptions(NamedTuple):
    """The options of `grade` that are settings of a grader.

    Attributes:
        strategy: One call per criterion, one call for all criteria, or one score of the whole.
        cannot_assess: How an abstention counts.
        on_failure: How a judge failure counts.
        max_retries: Retries after a failed call.
        max_concurrency: Maximum number of concurrent calls.
        timeout: Seconds for one call.
        max_outage: Seconds for which a judge may not reply before the run ends.
        stop_when_decided: Whether to skip criteria that cannot change `passed`.
        step_limit: The most characters of a tool's result that judges are shown; None for all.
        chunk_size: The most characters of a response in one call; None for all.
        normalize: Whether scores are in [0, 1]; if not, they are sums of weights.
    """

    strategy: Strategy
    cannot_assess: Literal["skip", "zero", "partial", "fail"]
    on_failure: Literal["raise", "abstain", "worst_case"]
    max_retries: int
    max_concurrency: int
    timeout: float
    max_outage: float
    stop_when_decided: bool
    step_limit: int | None = None
    chunk_size: int | None = None
    normalize: bool = True

    @classmethod
    def for_batches(cls, step_limit: int | None, chunk_size: int | None) -> GraderOptions:
        """Make the options of a grader whose requests are submitted in batches, so that it calls no model itself."""
        return cls("per-criterion", "skip", "raise", 2, 64, 120.0, 300.0, False, step_limit, chunk_size)

    def make_grader(self, judges: list[Judge]) -> Grader:
        """Make the grader, with one judge or a panel.

        Raises:
            ValueError: An option does not go with the strategy.
            TypeError: A judge cannot do what the strategy needs.
        """
        from rubric_integrations.graders import (
            CallLimits,
            PerCriterionGrader,
            PerCriterionOneShotGrader,
            RubricAsJudgeGrader,
        )

        shared: dict[str, Any] = {
            "judges": judges,
            "cannot_assess": self.cannot_assess,
            "on_failure": self.on_failure,
            "max_retries": self.max_retries,
            "normalize": self.normalize,
            "limits": CallLimits(
                max_concurrency=self.max_concurrency,
                timeout=self.timeout,
                max_outage=self.max_outage,
                step_limit=self.step_limit,
                chunk_size=self.chunk_size,
            ),
        }
        if self.strategy == "per-criterion":
            return PerCriterionGrader(**shared, stop_when_decided=self.stop_when_decided)
        if self.stop_when_decided:
            raise ValueError(
                "`--stop-when-decided` goes with `--strategy per-criterion`: with "
                f"{self.strategy} one call answers everything"
            )
        return PerCriterionOneShotGrader(**shared) if self.strategy == "one-shot" else RubricAsJudgeGrader(**shared)
