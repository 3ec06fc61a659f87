"""Rubric files: reading them into a `Rubric`, writing a rubric, converting between formats, and linting.

A format is a module with the functions `matches`, `read`, `losses` and `write` of `RubricFormat`. To add one:

1. Write the module in this package.
2. Add one line to `FORMATS` in `registry.py`, before `native`.

Reading detects the format, and the tests for conversion and for mutated documents run for every format of `FORMATS`.
"""

from rubric_integrations.formats.agentv_cases import EvalCase, load_eval_cases
from rubric_integrations.formats.documents import read_document, reading_losses, write_document
from rubric_integrations.formats.linting import LintWarning, lint
from rubric_integrations.formats.rubric_like import RubricLike, as_rubric

__all__ = [
    "EvalCase",
    "LintWarning",
    "RubricLike",
    "as_rubric",
    "lint",
    "load_eval_cases",
    "read_document",
    "reading_losses",
    "write_document",
]
