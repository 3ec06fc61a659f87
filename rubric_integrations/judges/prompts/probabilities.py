"""Requests the probability of each verdict, with DSPy's experimental `Choice`; has no effect where DSPy lacks it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import dspy

# An experiment may end with any release of DSPy.
Choice: Any = getattr(import_module("dspy.experimental"), "Choice", None) if find_spec("dspy.experimental") else None

_VERDICTS = (
    ("MET", "the requirement is met, or the error is committed"),
    ("UNMET", "it is not"),
    ("CANNOT_ASSESS", "what is given is not enough to tell"),
)


class VerdictProbabilities(NamedTuple):
    """What a judge's probabilities say about its verdict.

    Attributes:
        confidence: The confidence that the judge states, in [0, 1]; None where it states none.
        expected_value: The expected value in [0, 1] of MET and UNMET; None where it gives no probabilities.
    """

    confidence: float | None = None
    expected_value: float | None = None


def with_probabilities(signature: type[dspy.Signature], wanted: bool) -> type[dspy.Signature]:
    """Replace a signature's verdict by a distribution over the verdicts, if that is wanted and DSPy can decode one."""
    if not wanted or Choice is None:
        return signature
    return signature.with_updated_fields("verdict", type_=Choice[_VERDICTS])


def read_probabilities(answer: Any) -> tuple[Any, VerdictProbabilities]:
    """Separate a predicted verdict from its probabilities, where it is a decoded distribution."""
    if Choice is None or not isinstance(answer, Choice):
        return answer, VerdictProbabilities()
    probabilities = {verdict: float(share) for verdict, share in (answer.probabilities or {}).items()}
    met, unmet = probabilities.get("MET", 0.0), probabilities.get("UNMET", 0.0)
    expected = met / (met + unmet) if met + unmet else None
    return answer.value, VerdictProbabilities(answer.confidence, expected)
