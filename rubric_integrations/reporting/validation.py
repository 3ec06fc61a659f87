"""Checks rubric files, and writes their faults and warnings as JSON or as SARIF 2.1.0 for continuous integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from rubric_integrations._util.text import counted
from rubric_integrations.checks.metrics import unregistered_metrics
from rubric_integrations.formats.linting import RULES, LintWarning, lint
from rubric_integrations.formats.parsing import Positions, syntax_error_line
from rubric_integrations.formats.registry import Format, detect
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError


class CheckedFile(NamedTuple):
    """The result of checking one rubric file.

    Attributes:
        path: The file.
        faults: The faults of the file. Empty if the file is valid.
        warnings: The warnings of the linter about questions that judges may answer unreliably. Empty if the file is
            invalid.
        summary: A text with the format and the numbers of criteria, penalties and checks. Empty if the file is invalid.
        fault_lines, warning_lines: The line number of each fault and of each warning, from 1.
    """

    path: Path
    faults: tuple[Fault, ...]
    warnings: tuple[LintWarning, ...]
    summary: str
    fault_lines: tuple[int, ...] = ()
    warning_lines: tuple[int, ...] = ()


def check_file(path: Path, *, strict: bool = False) -> CheckedFile:
    """Read and lint one file. Each case of an AgentV eval file is checked as a separate rubric.

    Args:
        path: The file.
        strict: Whether each part of the file that a rubric leaves out (`Rubric.left_out`) counts as a fault.
    """
    try:
        rubrics, rubric_format = _read_rubrics(path, strict=strict)
    except RubricError as error:
        positions = _positions(path)
        lines = [syntax_error_line(fault.message) or positions.line(fault.where, fault.field) for fault in error.faults]
        return CheckedFile(path, error.faults, (), "", tuple(lines))
    unregistered = [fault for rubric in rubrics for fault in unregistered_metrics(rubric)]
    if unregistered:
        places = dict.fromkeys(unregistered)
        faults = tuple(unregistered_fault(where, name) for where, name in places)
        positions = _positions(path)
        return CheckedFile(path, faults, (), "", tuple(positions.line_of_text(name) for _, name in places))
    # If several cases of an eval file have the same warning, it is shown once, at its first line.
    requirements: dict[LintWarning, str] = {}
    for rubric in rubrics:
        for warning in lint(rubric):
            requirements.setdefault(warning, _requirement_of(warning, rubric))
    positions = _positions(path) if requirements else Positions("")
    criteria = [criterion for rubric in rubrics for criterion in rubric.criteria]
    penalties = sum(criterion.is_penalty for criterion in criteria)
    checks = sum(criterion.check is not None for criterion in criteria)
    cases = f"{len(rubrics)} cases, " if len(rubrics) > 1 else ""
    summary = f"{cases}{counted(len(criteria), 'criterion', 'criteria')}, {penalties} of them penalties, "
    summary += f"{checks} with a check; read in the format {rubric_format}"
    if left_out := sum(len(rubric.left_out) for rubric in rubrics):
        summary += f"; {counted(left_out, 'part is', 'parts are')} left out, so that no such grade passes"
    lines = tuple(positions.line_of_text(text) if text else 1 for text in requirements.values())
    return CheckedFile(path, (), tuple(requirements), summary, (), lines)


def _requirement_of(warning: LintWarning, rubric: Rubric) -> str:
    """Return the requirement of the criterion that a warning is about. Empty for a warning about the full rubric."""
    index = warning.where.removeprefix("criteria[").removesuffix("]")
    return rubric.criteria[int(index)].requirement if index.isdecimal() else ""


def _positions(path: Path) -> Positions:
    try:
        return Positions(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        return Positions("")


def unregistered_fault(where: str, name: str) -> Fault:
    """Make the fault for a custom metric without a registered function."""
    remedy = "pass --import with the module that calls `register_metric`"
    message = f"names the custom metric {name!r}, which is not registered: {remedy}"
    return Fault(where, "metric_function", message)


def _read_rubrics(path: Path, *, strict: bool) -> tuple[list[Rubric], Format]:
    """Read all rubrics of a file, and detect its format."""
    from rubric_integrations.formats.agentv import has_cases, load_eval_cases
    from rubric_integrations.formats.suite_files import load_with_tests

    document, _ = load_with_tests(path)
    if has_cases(document):
        return [case.rubric for case in load_eval_cases(path, strict=strict)], detect(document)
    rubric = Rubric.from_file(path)
    if strict and rubric.left_out:
        raise RubricError(str(path), [Fault("", "", text) for text in rubric.left_out])
    return [rubric], detect(document)


def as_json(files: list[CheckedFile]) -> str:
    """Write a JSON list with one object per file: `file`, `sound` (whether it is valid), `faults`, `warnings`.

    Each fault and each warning has its `line`.
    """
    objects = [
        {
            "file": str(file.path),
            "sound": not file.faults,
            "faults": [
                {**fault._asdict(), "line": line} for fault, line in zip(file.faults, file.fault_lines, strict=True)
            ],
            "warnings": [
                {**warning._asdict(), "line": line}
                for warning, line in zip(file.warnings, file.warning_lines, strict=True)
            ],
        }
        for file in files
    ]
    return json.dumps(objects, ensure_ascii=False, indent=2)


def as_sarif(files: list[CheckedFile]) -> str:
    """Write a SARIF log. Faults are errors of the rule `broken`. Warnings have the rules of the linter."""
    results: list[dict[str, Any]] = []
    for file in files:
        for fault, line in zip(file.faults, file.fault_lines, strict=True):
            results.append(_result("broken", "error", str(fault), file.path, line))
        for warning, line in zip(file.warnings, file.warning_lines, strict=True):
            results.append(_result(warning.rule, "warning", str(warning), file.path, line))
    rules = {"broken": "the rubric cannot be used", **RULES}
    driver = {
        "name": "rubric-integrations",
        "rules": [{"id": rule, "shortDescription": {"text": text}} for rule, text in rules.items()],
    }
    log = {"version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(log, ensure_ascii=False, indent=2)


def _result(rule: str, level: str, message: str, path: Path, line: int) -> dict[str, Any]:
    location = {"physicalLocation": {"artifactLocation": {"uri": path.as_posix()}, "region": {"startLine": line}}}
    return {"ruleId": rule, "level": level, "message": {"text": message}, "locations": [location]}
