"""Reads files of tests with assertions, in the format of promptfoo and current AgentV. Each test has one rubric.

The rubric consists of the assertions of the file, of its default test and of the test. `assertions.py` reads them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rubric_integrations._util.records import encodable
from rubric_integrations.formats.assertions import (
    NEGATED,
    Context,
    Group,
    Notes,
    assertions_of,
    has_objects,
    is_judged,
    join,
    read_assertions,
)
from rubric_integrations.formats.items import Reading, criterion_losses, error_of, make_rubric, rubric_losses
from rubric_integrations.formats.parsing import short
from rubric_integrations.formats.suite_files import ASSERTION_LISTS, DEFAULTS, reason_not_read, with_tests
from rubric_integrations.rubric.rubric import Fault, Rubric

Dialect = Literal["agentv", "promptfoo"]

_SUITE_KEYS = {"tests", "scenarios", *ASSERTION_LISTS, *DEFAULTS}
_AGENTV_TEST_KEYS = {"id", "input", "criteria", "assertions", "expected_output"}


class Suite(NamedTuple):
    """A file of tests.

    Attributes:
        dialect: The project whose format the file has.
        document: The parsed file.
        tests: The parsed tests of the file.
        not_read: One message for each source of tests that is not read, such as code.
    """

    dialect: Dialect
    document: Mapping[str, Any]
    tests: list[Mapping[str, Any]]
    not_read: list[str]

    def has_own(self, index: int) -> bool:
        """Return whether a test has its own assertions."""
        return bool(assertions_of(self.tests[index])[1])


def suite_of(document: Any) -> Suite | None:
    """Return parsed data as a `Suite`, or None if it is neither a file of tests nor a list of assertions."""
    if isinstance(document, list | tuple) and any(is_judged(entry) for entry in document):
        document = {"assert": document}
    if not isinstance(document, Mapping) or not _SUITE_KEYS & set(document):
        return None
    data = with_tests(document, None)
    tests_in_file: Any = data.get("tests")
    entries = tests_in_file if isinstance(tests_in_file, list | tuple) else ()
    tests = [entry for entry in entries if isinstance(entry, Mapping)]
    not_read = [
        f"`tests`: {short(entry)} {reason_not_read(entry) if isinstance(entry, str) else 'is not a test'}"
        for entry in entries
        if not isinstance(entry, Mapping)
    ]
    if isinstance(tests_in_file, Mapping):
        not_read.append(f"`tests`: {short(tests_in_file)} is not a list of tests")
    lists = [assertions_of(holder)[1] for holder in (data, *tests)]
    entries = [entry for entries in lists if isinstance(entries, list | tuple) for entry in entries]
    is_agentv = (
        "assertions" in data
        or any(_AGENTV_TEST_KEYS & set(test) for test in tests)
        or any(isinstance(entry, str) or has_objects(entry) for entry in entries)
    )
    return Suite("agentv" if is_agentv else "promptfoo", data, tests, not_read)


NOTHING_READ = "has no assertion that is read"
"""The beginning of the fault message for a test without criteria."""


def has_shared(suite: Suite) -> bool:
    """Return whether a file has assertions that all its tests share."""
    return any(assertions_of(holder)[1] for _, holder in _holders(suite, None, Notes()))


def read_test(suite: Suite, index: int | None, source: str, not_read: Sequence[str] = ()) -> Reading:
    """Make the rubric of one test, from the assertions that all tests share and the test's own assertions.

    Args:
        suite: The file.
        index: The index of the test. None for a rubric of only the assertions that all tests share.
        source: The name of the file, for errors.
        not_read: Messages about sources of assertions that are not read. They become `left_out` of the rubric.

    Raises:
        RubricError: The test has faults or no readable assertion. The error lists every fault.
    """
    notes = Notes(losses=list(not_read), left_out=list(not_read))
    holders = _holders(suite, index, notes)
    is_promptfoo = suite.dialect == "promptfoo"
    thresholds = [holder["threshold"] for _, holder in holders[1:] if holder.get("threshold") is not None]
    threshold: Any = thresholds[-1] if is_promptfoo and thresholds else None
    context = Context(
        variables={name: value for _, holder in holders[1:] for name, value in _mapping(holder, "vars").items()},
        text_is_gate=is_promptfoo and threshold is None,
        item_is_gate=suite.dialect == "agentv" or threshold is None,
        is_promptfoo=is_promptfoo,
        changes_output=_changes_output(suite, [holder for _, holder in holders]),
    )
    groups: list[Group] = []
    for where, holder in holders:
        key, entries = assertions_of(holder)
        place = f"{where}.{key}" if where else key
        groups += read_assertions(entries, place, context, notes)
        if holder.get("assertScoringFunction") is not None:
            notes.leave_out(f"`{where or 'the file'}`: `assertScoringFunction` is code, and is not read")
    criteria = join([group for group in groups if group.criteria])
    if not criteria and not notes.faults:
        notes.faults.append(Fault("", "", f"{NOTHING_READ}, such as `llm-rubric` or `contains`"))
    fields: dict[str, Any] = {"pass_mark": threshold} if threshold is not None else {}
    fields |= {"left_out": tuple(notes.left_out)} if notes.left_out else {}
    name: Any = suite.document.get("name")
    fields |= {"name": name} if isinstance(name, str) and name else {}
    return Reading(make_rubric(criteria, fields, source, suite.dialect, notes.faults), notes.losses)


def read_only_test(suite: Suite, source: str) -> Reading:
    """Make the rubric of a file with one test, or of a file whose tests have only shared assertions.

    Raises:
        RubricError: The file has faults, or several tests have their own assertions. The error lists every fault.
    """
    own = [index for index in range(len(suite.tests)) if suite.has_own(index)]
    if len(suite.tests) > 1 and own:
        message = "differ from case to case: read the file with `load_eval_cases`, which returns a rubric for each"
        make_rubric([], {}, source, suite.dialect, [Fault("tests", "assert", message)])
    rubric, losses, _ = read_test(suite, own[0] if own else None, source, suite.not_read)
    rewordings = [
        f"`{key}`: the assertion is negated, and its text now begins with {NEGATED!r}"
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)
        if criterion.requirement.startswith(NEGATED)
    ]
    return Reading(rubric, losses + rewordings, not_graded=losses)


def warn_of_losses(messages: Sequence[str], source: str) -> None:
    """Warn that parts of a file are not graded, or not in the same way. Without messages, give no warning."""
    if messages:
        parts = "1 part of the file is" if len(messages) == 1 else f"{len(messages)} parts of the file are"
        message = f"{source}: {parts} not graded, or not as there: {'; '.join(messages[:3])}"
        # The text must be printable, even if a file contains half of an emoji.
        warnings.warn(encodable(f"{message}. `rubric-integrations convert` lists each"), stacklevel=4)


def _holders(suite: Suite, index: int | None, notes: Notes) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the file, its default test and the test with their places. In AgentV, a test may skip the first two."""
    holders: list[tuple[str, Mapping[str, Any]]] = [("", suite.document)]
    for key in DEFAULTS:
        default: Any = suite.document.get(key)
        if isinstance(default, Mapping):
            holders.append((key, default))
        elif default is not None:
            notes.leave_out(f"`{key}`: the file that it names is not read")
    if index is not None:
        if suite.dialect == "agentv" and _mapping(suite.tests[index], "execution").get("skip_defaults") is True:
            holders = [("", {})]
        test = suite.tests[index]
        if _mapping(test, "options").get("disableDefaultAsserts") is True:
            holders = [
                (place, {key: value for key, value in holder.items() if key not in ASSERTION_LISTS})
                for place, holder in holders
            ]
        holders.append((f"tests[{index}]", test))
    return holders


def _mapping(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value: Any = holder.get(key)
    return value if isinstance(value, Mapping) else {}


def _changes_output(suite: Suite, holders: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a test, the default test or a provider has code that changes the response."""
    providers: Any = suite.document.get("providers")
    entries = providers if isinstance(providers, list | tuple) else [providers]
    places = [
        *(_mapping(holder, "options") for holder in holders),
        *(entry for entry in entries if isinstance(entry, Mapping)),
    ]
    return any(place.get(key) is not None for place in places for key in ("transform", "postprocess"))


def matches(document: Any) -> bool:
    """Return whether parsed data is a file of tests or a list of assertions in promptfoo's format."""
    suite = suite_of(document)
    return suite is not None and suite.dialect == "promptfoo"


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as one test, with one message for each part that the format cannot express."""
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


def parse(document: Any, source: str) -> Reading:
    """Make one rubric from the assertions of a file.

    Raises:
        RubricError: The file has faults, or several tests have their own assertions. The error lists every fault.
    """
    suite = suite_of(document)
    if suite is None:
        raise error_of(source, "promptfoo", [Fault("", "tests", "is missing: there is no test with an `assert`")])
    return read_only_test(suite._replace(dialect="promptfoo"), source)
