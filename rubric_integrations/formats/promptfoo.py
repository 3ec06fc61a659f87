"""promptfoo's files of tests: their `llm-rubric` assertions.

Every assertion must hold for a test to pass, so that each criterion is required, unless the test has a `threshold`,
which becomes the pass mark. A `metric` names a sum over assertions, and becomes a tag.
"""

from __future__ import annotations

from typing import Any

from rubric_integrations.formats.items import Reading, error_of
from rubric_integrations.formats.losses import criterion_losses, rubric_losses
from rubric_integrations.formats.suites import read_only_test, suite_of, warn_of_losses
from rubric_integrations.rubric.errors import Fault
from rubric_integrations.rubric.rubric import Rubric


def matches(document: Any) -> bool:
    """Return whether parsed data is a file of tests or a list of assertions, and not one of AgentV."""
    suite = suite_of(document)
    return suite is not None and suite.dialect == "promptfoo"


def read(document: Any, source: str) -> Rubric:
    """Make one rubric of the assertions that a judge decides, and warn of those that are left out.

    Raises:
        RubricError: With every fault; one of them may be that several tests have assertions of their own.
    """
    reading = _read(document, source)
    warn_of_losses(reading.losses, source)
    return reading.rubric


def losses(document: Any) -> list[str]:
    """Return one message for everything that the rubric of a document does not hold."""
    return _read(document, "rubric").losses


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as one test, with one message for everything that it cannot express."""
    messages = rubric_losses(rubric, kept=("name", "pass_mark"))
    all_required = all(criterion.required and criterion.min_score is None for criterion in rubric.criteria)
    kept = ("weight", "required") if all_required else ("weight",)
    entries: list[dict[str, Any]] = []
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        has_metric = len(criterion.tags) == 1
        messages += criterion_losses(key, criterion, (*kept, "tags") if has_metric else kept)
        if criterion.is_penalty:
            messages.append(f"`{key}`: promptfoo has no penalties and reads a negative weight differently")
        if "{{" in criterion.requirement or criterion.requirement.startswith("file://"):
            messages.append(f"`{key}`: its requirement is taken for a template or a file")
        entry: dict[str, Any] = {"type": "llm-rubric", "value": criterion.full_requirement, "weight": criterion.weight}
        entries.append({**entry, **({"metric": criterion.tags[0]} if has_metric else {})})
    test: dict[str, Any] = {"assert": entries}
    if not all_required:
        test["threshold"] = rubric.pass_mark
    elif rubric.pass_mark != Rubric.model_fields["pass_mark"].default:
        messages.append(f"`pass_mark` {rubric.pass_mark:g} has no place beside required criteria")
    return {**({"name": rubric.name} if rubric.name else {}), "tests": [test]}, messages


def _read(document: Any, source: str) -> Reading:
    suite = suite_of(document)
    if suite is None:
        raise error_of(source, "promptfoo", [Fault("", "tests", "is missing: there is no test with an `assert`")])
    return read_only_test(suite._replace(dialect="promptfoo"), source)
