"""The state of rubric files: faults, warnings, and both as reports for machines (JSON, and SARIF 2.1.0 for CI)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from rubric_integrations.formats.lint import RULES, LintWarning, lint
from rubric_integrations.rubric.errors import Fault, RubricError
from rubric_integrations.rubric.rubric import Rubric


class Checked(NamedTuple):
    """One file.

    Attributes:
        path: The file.
        faults: What makes it unusable.
        warnings: What may go wrong with it, if it is sound.
        summary: What is in it, if it is sound.
    """

    path: Path
    faults: tuple[Fault, ...]
    warnings: tuple[LintWarning, ...]
    summary: str


def check_file(path: Path) -> Checked:
    """Read one file and lint it; each case of an AgentV eval file is a rubric of its own."""
    try:
        rubrics = _rubrics(path)
    except RubricError as error:
        return Checked(path, error.faults, (), "")
    warnings = [warning for rubric in rubrics for warning in lint(rubric)]
    criteria = [criterion for rubric in rubrics for criterion in rubric.criteria]
    penalties = sum(criterion.is_penalty for criterion in criteria)
    checks = sum(criterion.check is not None for criterion in criteria)
    cases = f"{len(rubrics)} cases, " if len(rubrics) > 1 else ""
    summary = f"{cases}{len(criteria)} criteria, {penalties} of them penalties, {checks} with a check"
    return Checked(path, (), tuple(dict.fromkeys(warnings)), summary)


def _rubrics(path: Path) -> list[Rubric]:
    from rubric_integrations.formats.agentv import load_eval_cases
    from rubric_integrations.formats.parsing import load

    document, _ = load(path)
    if isinstance(document, dict) and document.get("evalcases"):
        return [case.rubric for case in load_eval_cases(path)]
    return [Rubric.from_file(path)]


def as_json(checked: list[Checked]) -> str:
    """A JSON list, an object a file: `file`, `sound`, `faults`, `warnings`."""
    files = [
        {
            "file": str(result.path),
            "sound": not result.faults,
            "faults": [fault._asdict() for fault in result.faults],
            "warnings": [warning._asdict() for warning in result.warnings],
        }
        for result in checked
    ]
    return json.dumps(files, ensure_ascii=False, indent=2)


def as_sarif(checked: list[Checked]) -> str:
    """A SARIF log: faults are errors of the rule `broken`, warnings are of the linter's rules."""
    results: list[dict[str, Any]] = []
    for result in checked:
        results += [_result("broken", "error", str(fault), result.path) for fault in result.faults]
        results += [_result(warning.rule, "warning", str(warning), result.path) for warning in result.warnings]
    rules = {"broken": "the rubric cannot be used", **RULES}
    driver = {
        "name": "rubric-integrations",
        "rules": [{"id": rule, "shortDescription": {"text": text}} for rule, text in rules.items()],
    }
    log = {
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, ensure_ascii=False, indent=2)


def _result(rule: str, level: str, message: str, path: Path) -> dict[str, Any]:
    place = {"physicalLocation": {"artifactLocation": {"uri": path.as_posix()}, "region": {"startLine": 1}}}
    return {"ruleId": rule, "level": level, "message": {"text": message}, "locations": [place]}
