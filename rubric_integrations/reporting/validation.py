"""Checks rubric files, and writes their faults and warnings as JSON or as SARIF 2.1.0 for continuous integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from rubric_integrations.formats.linting import RULES, LintWarning, lint
from rubric_integrations.rubric.errors import Fault, RubricError
from rubric_integrations.rubric.rubric import Rubric


class CheckedFile(NamedTuple):
    """The state of one rubric file.

    Attributes:
        path: The file.
        faults: Why the file cannot be used; empty if it is valid.
        warnings: What judges may answer unreliably; empty if the file is invalid.
        summary: The number of criteria, penalties and checks; empty if the file is invalid.
    """

    path: Path
    faults: tuple[Fault, ...]
    warnings: tuple[LintWarning, ...]
    summary: str


def check_file(path: Path) -> CheckedFile:
    """Read and lint one file. Each case of an AgentV eval file is checked as a separate rubric."""
    try:
        rubrics = _read_rubrics(path)
    except RubricError as error:
        return CheckedFile(path, error.faults, (), "")
    warnings = [warning for rubric in rubrics for warning in lint(rubric)]
    criteria = [criterion for rubric in rubrics for criterion in rubric.criteria]
    penalties = sum(criterion.is_penalty for criterion in criteria)
    checks = sum(criterion.check is not None for criterion in criteria)
    cases = f"{len(rubrics)} cases, " if len(rubrics) > 1 else ""
    summary = f"{cases}{len(criteria)} criteria, {penalties} of them penalties, {checks} with a check"
    return CheckedFile(path, (), tuple(dict.fromkeys(warnings)), summary)


def _read_rubrics(path: Path) -> list[Rubric]:
    from rubric_integrations.formats.agentv_cases import load_eval_cases
    from rubric_integrations.formats.parsing import load

    document, _ = load(path)
    if isinstance(document, dict) and document.get("evalcases"):
        return [case.rubric for case in load_eval_cases(path)]
    return [Rubric.from_file(path)]


def as_json(files: list[CheckedFile]) -> str:
    """Write a JSON list with one object per file: `file`, `sound` (whether it is valid), `faults`, `warnings`."""
    objects = [
        {
            "file": str(file.path),
            "sound": not file.faults,
            "faults": [fault._asdict() for fault in file.faults],
            "warnings": [warning._asdict() for warning in file.warnings],
        }
        for file in files
    ]
    return json.dumps(objects, ensure_ascii=False, indent=2)


def as_sarif(files: list[CheckedFile]) -> str:
    """Write a SARIF log. Faults are errors of the rule `broken`; warnings belong to the linter's rules."""
    results: list[dict[str, Any]] = []
    for file in files:
        results += [_result("broken", "error", str(fault), file.path) for fault in file.faults]
        results += [_result(warning.rule, "warning", str(warning), file.path) for warning in file.warnings]
    rules = {"broken": "the rubric cannot be used", **RULES}
    driver = {
        "name": "rubric-integrations",
        "rules": [{"id": rule, "shortDescription": {"text": text}} for rule, text in rules.items()],
    }
    log = {"version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(log, ensure_ascii=False, indent=2)


def _result(rule: str, level: str, message: str, path: Path) -> dict[str, Any]:
    location = {"physicalLocation": {"artifactLocation": {"uri": path.as_posix()}, "region": {"startLine": 1}}}
    return {"ruleId": rule, "level": level, "message": {"text": message}, "locations": [location]}
