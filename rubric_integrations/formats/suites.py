"""Files of tests with assertions, as promptfoo and current AgentV write them: their cases, and a rubric for each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from rubric_integrations._util.records import encodable
from rubric_integrations.formats.assertions import Context, Group, assertions_of, is_judged, join, read_assertions
from rubric_integrations.formats.items import Reading, make_rubric
from rubric_integrations.rubric.errors import Fault

Dialect = Literal["agentv", "promptfoo"]

_DEFAULTS = ("default_test", "defaultTest")
_SUITE_KEYS = {"tests", "assert", "assertions", *_DEFAULTS}
_AGENTV_TEST_KEYS = {"id", "input", "criteria", "assertions", "expected_output"}


class Suite(NamedTuple):
    """A file of tests.

    Attributes:
        dialect: The project that reads the file.
        document: The file, as parsed.
        tests: Its tests, as parsed.
    """

    dialect: Dialect
    document: Mapping[str, Any]
    tests: list[Mapping[str, Any]]

    def has_own(self, index: int) -> bool:
        """Whether a test has assertions of its own."""
        return bool(assertions_of(self.tests[index])[1])


def suite_of(document: Any) -> Suite | None:
    """Return the file of tests that parsed data is, or a list of assertions as one; None for other data."""
    if isinstance(document, list | tuple) and any(is_judged(entry) for entry in cast("Sequence[Any]", document)):
        document = {"assert": document}
    if not isinstance(document, Mapping) or not _SUITE_KEYS & set(cast("Mapping[str, Any]", document)):
        return None
    data = cast("Mapping[str, Any]", document)
    tests_in_file: Any = data.get("tests")
    is_list = isinstance(tests_in_file, Sequence) and not isinstance(tests_in_file, str)
    entries = cast("Sequence[Any]", tests_in_file) if is_list else ()
    tests = [cast("Mapping[str, Any]", entry) for entry in entries if isinstance(entry, Mapping)]
    lists = [assertions_of(holder)[1] for holder in (data, *tests)]
    entries = [entry for entries in lists if isinstance(entries, list | tuple) for entry in entries]
    is_agentv = (
        "assertions" in data
        or any(_AGENTV_TEST_KEYS & set(test) for test in tests)
        or any(isinstance(entry, str) or _has_objects(entry) for entry in entries)
    )
    return Suite("agentv" if is_agentv else "promptfoo", data, tests)


def has_shared(suite: Suite) -> bool:
    """Whether a file has assertions that all its tests share."""
    return any(assertions_of(holder)[1] for _, holder in _holders(suite, None, []))


def read_test(suite: Suite, index: int | None, source: str) -> Reading:
    """Make the rubric of one test: the assertions that all tests share, and its own.

    Args:
        suite: The file.
        index: The position of the test; None for the shared assertions alone.
        source: The name of the file, for errors.

    Raises:
        RubricError: With every fault.
    """
    faults: list[Fault] = []
    losses: list[str] = []
    test: Mapping[str, Any] = {} if index is None else suite.tests[index]
    threshold: Any = test.get("threshold") if suite.dialect == "promptfoo" else None
    variables: Any = test.get("vars")
    context = Context(
        variables=cast("Mapping[str, Any]", variables) if isinstance(variables, Mapping) else {},
        text_is_gate=suite.dialect == "promptfoo" and threshold is None,
        item_is_gate=suite.dialect == "agentv" or threshold is None,
        metric_is_tag=suite.dialect == "promptfoo",
    )
    groups: list[Group] = []
    for where, holder in _holders(suite, index, losses):
        key, entries = assertions_of(holder)
        place = f"{where}.{key}" if where else key
        groups += read_assertions(entries, place, context, faults, losses)
    criteria = join(groups)
    if not criteria and not faults:
        faults.append(Fault("", "", "has no assertion that a judge decides, such as `llm-rubric`"))
    fields = {"pass_mark": threshold} if threshold is not None else {}
    name: Any = suite.document.get("name")
    fields |= {"name": name} if isinstance(name, str) and name else {}
    return Reading(make_rubric(criteria, fields, source, suite.dialect, faults), losses)


def read_only_test(suite: Suite, source: str) -> Reading:
    """Make the one rubric of a file.

    Raises:
        RubricError: With every fault; one of them may be that several tests have assertions of their own.
    """
    own = [index for index in range(len(suite.tests)) if suite.has_own(index)]
    if len(suite.tests) > 1 and own:
        message = "differ from case to case: read the file with `load_eval_cases`, which returns a rubric for each"
        make_rubric([], {}, source, suite.dialect, [Fault("tests", "assert", message)])
    return read_test(suite, own[0] if own else None, source)


def warn_of_losses(messages: list[str], source: str) -> None:
    """Warn that parts of a file are not graded."""
    if messages:
        parts = "1 part of the file is" if len(messages) == 1 else f"{len(messages)} parts of the file are"
        message = f"{source}: {parts} not graded, or not as there: {'; '.join(messages[:3])}"
        # Whoever prints or sends it must be able to, also where a file has half an emoji.
        warnings.warn(encodable(f"{message}. `rubric-integrations convert` lists each"), stacklevel=4)


def _holders(suite: Suite, index: int | None, losses: list[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the file, its default test and the test, each with its place."""
    holders: list[tuple[str, Mapping[str, Any]]] = [("", suite.document)]
    for key in _DEFAULTS:
        default: Any = suite.document.get(key)
        if isinstance(default, Mapping):
            holders.append((key, cast("Mapping[str, Any]", default)))
        elif default is not None:
            losses.append(f"`{key}`: the file that it names is not read")
    if index is not None:
        holders.append((f"tests[{index}]", suite.tests[index]))
    return holders


def _has_objects(entry: Any) -> bool:
    """Whether an assertion has a list of rubric items that are objects."""
    contents = cast("Mapping[str, Any]", entry).values() if isinstance(entry, Mapping) else ()
    return any(
        isinstance(item, Mapping) for content in contents if isinstance(content, list | tuple) for item in content
    ) and is_judged(entry)
