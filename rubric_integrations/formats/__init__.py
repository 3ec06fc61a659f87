"""Rubric files: reads them into a `Rubric`, writes a rubric, converts between formats, and lints.

A format is a module with the functions `matches`, `parse` and `write` of `RubricFormat`. To add one:

1. Write the module in this package.
2. Add one line to `FORMATS` in `formats/registry.py`, before `native`.

The format of a document is detected when it is read. The tests for conversion and for mutated documents run for every
format of `FORMATS`.
"""

from rubric_integrations.formats.agentv import EvalCase, load_eval_cases
from rubric_integrations.formats.linting import LintWarning, lint
from rubric_integrations.formats.registry import (
    RubricLike,
    as_rubric,
    read_document,
    read_with_cases,
    reading_losses,
    write_document,
)

__all__ = [
    "EvalCase",
    "LintWarning",
    "RubricLike",
    "as_rubric",
    "lint",
    "load_eval_cases",
    "read_document",
    "read_with_cases",
    "reading_losses",
    "write_document",
]
