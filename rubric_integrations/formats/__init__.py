"""Rubric files: reading them into a `Rubric`, writing a rubric, converting between formats, and linting.

A format is a module with the functions `matches`, `read` and `write` of `RubricFormat`. To add one:

1. Write the module in this package.
2. Add one line to `FORMATS` in `registry.py`, before `native`.

Reading detects the format, and the tests for conversion and for mutated documents run for every format of `FORMATS`.
"""

from rubric_integrations.formats.agentv_cases import EvalCase, load_eval_cases
from rubric_integrations.formats.documents import read_document, read_file, read_text, write_document, write_text
from rubric_integrations.formats.linting import RULES, LintWarning, lint
from rubric_integrations.formats.openrubricrl import migrate
from rubric_integrations.formats.openrubricrl_scores import normalize_score
from rubric_integrations.formats.registry import FORMATS, Format, RubricFormat, detect
from rubric_integrations.formats.rubric_like import RubricLike, as_rubric
from rubric_integrations.formats.schema import json_schema

__all__ = [
    "FORMATS",
    "RULES",
    "EvalCase",
    "Format",
    "LintWarning",
    "RubricFormat",
    "RubricLike",
    "as_rubric",
    "detect",
    "json_schema",
    "lint",
    "load_eval_cases",
    "migrate",
    "normalize_score",
    "read_document",
    "read_file",
    "read_text",
    "write_document",
    "write_text",
]
