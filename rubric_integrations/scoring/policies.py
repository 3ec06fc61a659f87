"""The settings for abstentions (`cannot_assess`) and failures (`on_failure`), and their validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypedDict, assert_never, get_args

from rubric_integrations.rubric.answers import AbstentionPolicy, CannotAssess
from rubric_integrations.rubric.criterion import Criterion, Kind
from rubric_integrations.scoring.judgment import Judgment, extreme_judgment


class DefaultFallbackVerdicts(TypedDict, total=False):
    """The verdicts that replace a failed judgment, by the sign of the criterion's weight.

    A missing key means UNMET.
    """

    positive: Literal["MET", "UNMET"]
    negative: Literal["MET", "UNMET"]


OnFailure = Literal["raise", "abstain", "worst_case"] | DefaultFallbackVerdicts
"""How a failed judgment is scored.

- `raise`: the grade ends with a `JudgeError`.
- `abstain`: the failure counts as an abstention.
- `worst_case`: the criterion has the value that gives the lowest score.
- `DefaultFallbackVerdicts`: the criterion has the verdict for the sign of its weight.
"""


class ScoringPolicies(NamedTuple):
    """The settings of a grader that decide how answers become a score.

    Attributes:
        normalize: Whether `score` is in [0, 1]. If False, it is the raw weighted sum.
        cannot_assess: How an abstention is scored.
        on_failure: How a failed judgment is scored.
        strategies: The voting strategy for each kind of criterion.
        may_abstain: Whether judges may abstain from a criterion that has options, but none that is marked `na`. From
            all other criteria, they always may.
    """

    normalize: bool
    cannot_assess: CannotAssess
    on_failure: OnFailure
    strategies: Mapping[Kind, str]
    may_abstain: bool

    def strategy_for(self, criterion: Criterion) -> str:
        """Return the voting strategy for a criterion: its own `aggregation`, or the panel's."""
        return criterion.aggregation or self.strategies[criterion.kind]


def fallback_judgment(criterion: Criterion, on_failure: OnFailure) -> Judgment | None:
    """Return the judgment that replaces a failed one. None if the failure counts as an abstention or is raised.

    For a criterion with options or a scale, the fallback verdict MET means the highest value, and UNMET the lowest.

    Example:
        >>> fallback_judgment(Criterion(requirement="r", weight=-1), "worst_case").verdict
        'MET'
    """
    if isinstance(on_failure, Mapping):
        verdict = on_failure.get("negative" if criterion.is_penalty else "positive", "UNMET")
        return extreme_judgment(criterion, "high" if verdict == "MET" else "low")
    match on_failure:
        case "worst_case":
            return extreme_judgment(criterion, "worst")
        case "raise" | "abstain":
            return None
        case _:
            assert_never(on_failure)


def validate_abstention_policy(cannot_assess: object) -> None:
    """Check the setting `cannot_assess`. Graders call this function before the first request.

    Raises:
        ValueError: The policy has an unknown name, or is a number outside [0, 1] or NaN.
    """
    if isinstance(cannot_assess, int | float) and not isinstance(cannot_assess, bool):
        if not 0.0 <= cannot_assess <= 1.0:
            raise ValueError(f"`cannot_assess` must be in [0, 1], got {cannot_assess!r}: scores would leave [0, 1]")
    elif cannot_assess not in get_args(AbstentionPolicy):
        policies = ", ".join(map(repr, get_args(AbstentionPolicy)))
        raise ValueError(f"`cannot_assess` must be one of {policies} or a number in [0, 1], got {cannot_assess!r}")


def validate_failure_policy(on_failure: object) -> None:
    """Check the setting `on_failure`. Graders call this function before the first request.

    Raises:
        ValueError: The policy has an unknown name, or a fallback has a key other than `positive` and `negative` or a
            verdict other than MET and UNMET.
    """
    if isinstance(on_failure, Mapping):
        if set(on_failure) <= {"positive", "negative"} and all(v in ("MET", "UNMET") for v in on_failure.values()):
            return
    elif on_failure in ("raise", "abstain", "worst_case"):
        return
    raise ValueError(
        "`on_failure` must be 'raise', 'abstain', 'worst_case' or "
        f"{{'positive': 'UNMET', 'negative': 'MET'}}, got {on_failure!r}"
    )
