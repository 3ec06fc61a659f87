"""The condition `number`: the response states a number."""

from __future__ import annotations

from typing import cast

from rubric_integrations._util.numbers import read_quantities
from rubric_integrations.rubric.check import Check, NumberCheck
from rubric_integrations.submission.submission import Submission


def states_number(check: Check, submission: Submission) -> str:
    """Return the reason why the response does not state `check.number`, or an empty string.

    A number counts if it is within the tolerance and has the unit, where the check names one.
    """
    expected = cast("NumberCheck", check.number)
    margin = expected.tolerance + 1e-12 * abs(expected.value)  # 0.1 + 0.2 and 0.3 are the same number
    for quantity in read_quantities(submission.response):
        if (not expected.unit or quantity.unit == expected.unit) and abs(quantity.value - expected.value) <= margin:
            return ""
    within = f" within {expected.tolerance:g}" if expected.tolerance else ""
    return f"does not state the number {expected.value:g}{expected.unit if expected.unit == '%' else ''}{within}"
