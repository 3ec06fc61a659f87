"""The error that ends a program whose judge is down."""

from __future__ import annotations


class JudgeOutage(BaseException):
    """The judge is down or cannot be used, or grades keep failing; it ends an optimization or a training run.

    It is not an `Exception`, as `KeyboardInterrupt` is not: DSPy catches every `Exception` that a metric raises and
    scores the program 0, so that `Evaluate`, MIPROv2 and GEPA would finish and report the outage as bad programs.
    """
