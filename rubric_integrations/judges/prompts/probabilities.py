"""Probabilities beside the verdict, through DSPy's experimental `Choice`; absent without complaint where it is."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import dspy

# An experiment may end with any release.
Choice: Any = getattr(import_module("dspy.experimental"), "Choice", None) if find_spec("dspy.experimental") else None

_VERDICTS = (
    ("MET", "the requirement is met, or the error is committed"),
    ("UNMET", "it is not"),
    ("CANNOT_ASSESS", "what is given is not enough to tell"),
)


class VerdictProbabilities(NamedTuple):
    """How sure a judge says it is, and the value that its probabilities expect; each in [0, 1]."""

    confidence: float | None = None
    expected_value: float | None = None


def with_probabilities(signature: type[dspy.Signature], wanted: bool) -> type[dspy.Signature]:
    """The signature with a distribution for its verdict, if that is wanted and DSPy can decode one."""
    if not wanted or Choice is None:
        return signature
    return signature.with_updated_fields("verdict", type_=Choice[_VERDICTS])


def read_probabilities(answer: Any) -> tuple[Any, VerdictProbabilities]:
    """A prediction's verdict, and what was believed where it is a decoded distribution."""
    if Choice is None or not isinstance(answer, Choice):
        return answer, VerdictProbabilities()
    shares = {verdict: float(share) for verdict, share in (answer.probabilities or {}).items()}
    met, unmet = shares.get("MET", 0.0), shares.get("UNMET", 0.0)
    return answer.value, VerdictProbabilities(answer.confidence, met / (met + unmet) if met + unmet else None)
