"""What an answer means for a criterion: a verdict, an option's label or a number becomes a value in [0, 1].

Every answer is interpreted here: a judge's, a human label, a known verdict that is to be scored.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from rubric_integrations.results.judgment import VERDICT_VALUES, Judgment, parse_verdict
from rubric_integrations.rubric.criterion import Criterion


class Interpretation(NamedTuple):
    """What an answer means.

    Attributes:
        verdict: The answer in its canonical form: `MET`, the option's label as the author wrote it, a plain number.
        value: Its value in [0, 1]; None for an abstention.
    """

    verdict: str
    value: float | None


def interpret_answer(criterion: Criterion, answer: object, may_abstain: bool = True) -> Interpretation:
    """Normalize an answer to a criterion of any kind, and give its value.

    Args:
        criterion: The criterion.
        answer: MET or UNMET; the label of an option; a number on the scale; for `per: occurrence`, a number of
            occurrences, which may exceed the `cap`; or CANNOT_ASSESS.
        may_abstain: Whether CANNOT_ASSESS is an answer where no option is marked `na`.

    Raises:
        ValueError: This is no answer to the criterion. It is never replaced by the nearest one.

    Example:
        >>> interpret_answer(Criterion(requirement="Is polite"), "**met**")
        Interpretation(verdict='MET', value=1.0)
    """
    verdict = None if isinstance(answer, bool) else parse_verdict(answer)
    if criterion.kind == "binary":
        if verdict is None:
            raise ValueError(f"{answer!r} is no verdict: use MET, UNMET or CANNOT_ASSESS")
        return Interpretation(verdict, VERDICT_VALUES[verdict])
    if criterion.options is not None:
        option = criterion.find_option(str(answer))
        if option is None and verdict == "CANNOT_ASSESS":
            option = criterion.na_option
        if option is not None:
            return Interpretation(option.label, None if option.na else option.value)
        if verdict != "CANNOT_ASSESS" or not may_abstain:
            raise ValueError(f"{answer!r} is no option: use one of {[o.label for o in criterion.options]!r}")
    elif verdict != "CANNOT_ASSESS":
        return _interpret_number(criterion, answer)
    return Interpretation("CANNOT_ASSESS", None)


def to_judgment(criterion: Criterion, answer: object, may_abstain: bool = True) -> Judgment:
    """Make a judgment of an answer to a criterion of any kind; takes and raises what `interpret_answer` does.

    Example:
        >>> to_judgment(Criterion(requirement="Is polite"), "unmet").value
        0.0
    """
    verdict, value = interpret_answer(criterion, answer, may_abstain)
    return Judgment(verdict=verdict, value=value)


def _interpret_number(criterion: Criterion, answer: object) -> Interpretation:
    try:
        number = math.nan if isinstance(answer, bool) else float(str(answer))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or criterion.scale is None:
        raise ValueError(f"{answer!r} is not a number")
    if criterion.cap is not None and number == int(number):
        # More occurrences than count are no error of the judge, unlike a number outside of a scale.
        return Interpretation(f"{number:.15g}", criterion.scale.value_of(min(number, criterion.cap)))
    return Interpretation(f"{number:g}", criterion.scale.value_of(number))


def extreme_judgment(criterion: Criterion, end: Literal["worst", "low", "high"]) -> Judgment:
    """Make the judgment at one end of what a criterion allows.

    Args:
        criterion: The criterion.
        end: `worst` for the answer with the lowest score, by the sign of the weight; `low` or `high` for the lowest or
            highest value.
    """
    high = criterion.is_penalty if end == "worst" else end == "high"
    if criterion.options is not None:
        pick = max if high else min
        option = criterion.worst_option if end == "worst" else pick(criterion.choices, key=lambda o: o.value)
        return Judgment(verdict=option.label, value=option.value)
    if criterion.scale is not None:
        return Judgment(verdict=f"{criterion.scale.number_at(float(high)):g}", value=float(high))
    return Judgment(verdict="MET" if high else "UNMET", value=float(high))
