"""Reads the files that a configuration of promptfoo or AgentV names: its tests, its default test and its scenarios.

Only CSV, JSON, JSONL and YAML files in the directory of the configuration are read. A glob may name several of them.
The attachments of test cases in a rubric file are read, too.
Code is not run, and nothing is fetched from the network. If a source of tests is code, a spreadsheet or a URL, its name
stays in the list of tests. `promptfoo.py` then reports that these tests are not read.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from rubric_integrations.formats.parsing import (
    MAX_BYTES,
    MAX_NODES,
    check_document,
    load,
    load_text,
    parse,
    read_content,
    short,
)
from rubric_integrations.rubric.rubric import Fault, RubricError
from rubric_integrations.submission.attachments import attachment_fields, read_paths

DEFAULTS = ("default_test", "defaultTest")
"""The keys of the default test, from which all tests of a file inherit."""

ASSERTION_LISTS = ("assert", "assertions")
"""The keys of the list of assertions in a test or a file."""

MAX_FILES = 1_000
_CODE = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".py", ".rb")
_SHEETS = (".xlsx", ".xls", ".ods")
_REMOTE = re.compile(r"(?!file:)([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_FUNCTION = re.compile(r":\w+$")
_GLOB = re.compile(r"[*?\[]")
_CASE_FILES = ("case.yaml", "case.yml")


def load_with_tests(source: str | PathLike[str] | IO[str] | IO[bytes]) -> tuple[Any, str]:
    """Parse a file. For a configuration of promptfoo or AgentV, insert the tests that are in other files.

    A `.jsonl` file is read as a list with one entry for each line.

    Args:
        source: A path or an open file. Other files are read only for a path.

    Returns:
        The data and the name of the file.

    Raises:
        RubricError: A file cannot be read, or is outside the directory of the configuration. Or the files exceed one of
            the limits of 1,000 files, 10 MB and 100,000 values.
    """
    if isinstance(source, str | PathLike) and Path(source).suffix.lower() == ".jsonl":
        return _parse_lines(read_content(source), str(source)), str(source)
    document, name = load(source)
    if isinstance(source, str | PathLike) and isinstance(document, Mapping):
        followed = with_tests(document, Files(Path(source).parent, name))
        followed = with_attachments(followed, "cases", Path(source).parent, name)
        if followed is not document:
            check_document(followed, name)
        return followed, name
    return document, name


def with_attachments(document: Mapping[Any, Any], key: str, folder: Path, source: str) -> Mapping[Any, Any]:
    """Replace the `path` of each attachment of test cases by the content of the file.

    Args:
        document: The mapping with the cases. If it has no such paths, it is returned unchanged.
        key: The key of the list of cases.
        folder: The folder of the file. A path must not lead out of it.
        source: The name of the file, for errors.

    Raises:
        RubricError: A file of an attachment cannot be read, or is outside of the folder.
    """
    cases = document.get(key)
    if not isinstance(cases, list):
        return document
    with_paths = [
        isinstance(case, Mapping) and "expect" in case and "attachments" in case for case in cast("list[Any]", cases)
    ]
    if not any(with_paths):
        return document
    read: list[Any] = []
    for index, (case, has_path) in enumerate(zip(cast("list[Any]", cases), with_paths, strict=True)):
        try:
            files = {"attachments": read_paths(attachment_fields(case["attachments"]), folder)} if has_path else {}
        except ValueError as error:
            raise RubricError(source, [Fault(f"{key}[{index}]", "attachments", str(error))]) from None
        read.append({**case, **files} if has_path else case)
    return {**document, key: read}


def _parse_lines(text: str, name: str) -> list[Any]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    document = [parse(line, "json", f"{name}, line {number}") for number, line in lines]
    check_document(document, name)
    return document


def reason_not_read(name: str) -> str:
    """Return the reason why the tests of a source are not read, such as `is a spreadsheet: save it as CSV`."""
    if remote := _REMOTE.match(name):
        return f"is at {remote[1]}://, from which nothing is fetched: save it as CSV or JSON beside the configuration"
    suffix = _suffix(name)
    if suffix in _CODE:
        return "is code, which is not run: write its tests to a CSV or JSON file beside the configuration"
    if suffix in _SHEETS:
        return "is a spreadsheet: save it as CSV"
    if name.startswith("scenarios["):
        return f"stands for more than {MAX_NODES:,} tests"
    return "is followed only where the configuration is read from its file"


def _suffix(name: str) -> str:
    return PurePosixPath(_FUNCTION.sub("", name.partition("#")[0])).suffix.lower()


class Files:
    """Reads files inside one directory.

    Args:
        folder: The directory of the configuration.
        source: The name of the configuration, for errors.
    """

    def __init__(self, folder: Path, source: str):
        self._root = folder.resolve()
        self._source = source
        self._files = 0
        self._bytes = 0

    def tests(self, name: str, where: str, *, are_rows: bool) -> list[Any]:
        """Return the tests in the files that a name or a glob matches.

        If the name is a URL, code or a spreadsheet, no file is read, and the list contains only the name.

        Args:
            name: The name, with or without `file://`.
            where: The place of the name in the configuration.
            are_rows: Whether each entry of a YAML file is read like a row of a CSV file. promptfoo reads the files of
                `{path: ...}` in this way.

        Raises:
            RubricError: There is no such file, or it cannot be read.
        """
        if _REMOTE.match(name) or _suffix(name) in (*_CODE, *_SHEETS):
            return [name]
        return [test for path in self._paths(name, where) for test in self._tests_of(path, where, are_rows)]

    def mapping(self, name: str, where: str) -> Any:
        """Return the only test in a file, or the name of the file if the file is not read.

        Raises a `RubricError` if there is no such file, if it cannot be read, or if it does not have exactly one test.
        """
        tests = self.tests(name, where, are_rows=False)
        if len(tests) != 1:
            raise self._error(where, f"{name!r} has {len(tests)} tests, and not one")
        return tests[0]

    def _error(self, where: str, message: str) -> RubricError:
        return RubricError(self._source, [Fault(where, "", message)])

    def _paths(self, name: str, where: str) -> list[Path]:
        """Return the files for which a name in a configuration stands, all inside of its folder."""
        pattern = PurePosixPath(name.removeprefix("file://"))
        outside = f"names {name!r}, which is outside the folder of the configuration: copy it there, or it is not read"
        if pattern.is_absolute() or Path(pattern).is_absolute() or {"..", "~"} & set(pattern.parts):
            raise self._error(where, outside)
        is_glob = _GLOB.search(str(pattern)) is not None
        try:
            matches = self._root.glob(str(pattern)) if is_glob else iter([self._root / pattern])
            paths = sorted(itertools.islice(matches, MAX_FILES + 1))
            if len(paths) > MAX_FILES:
                raise self._error(where, f"{name!r} stands for more than {MAX_FILES:,} files")
            if any(not path.resolve().is_relative_to(self._root) for path in paths):
                raise self._error(where, outside)
            # As in promptfoo, a glob does not match hidden files.
            paths = [
                path
                for path in paths
                if not (is_glob and any(part.startswith(".") for part in path.relative_to(self._root).parts))
            ]
            paths = [file for path in paths for file in (_case_files(path) if path.is_dir() else [path])]
            if not paths or not all(path.is_file() for path in paths):
                raise self._error(where, f"names {name!r}, which stands for no file in {str(self._root)!r}")
            if any(not path.resolve().is_relative_to(self._root) for path in paths):
                raise self._error(where, outside)
        except (OSError, ValueError, NotImplementedError, RuntimeError) as error:
            if isinstance(error, RubricError):
                raise
            raise self._error(where, f"names {name!r}, which cannot be read: {error}") from None
        return paths

    def _tests_of(self, path: Path, where: str, are_rows: bool) -> list[Any]:
        """Read the tests of one file, within the limits for all files."""
        text = read_content(path)
        self._files += 1
        self._bytes += len(text)
        if self._files > MAX_FILES or self._bytes > MAX_BYTES:
            message = f"the files of tests are more than {MAX_FILES:,}, or have more than {MAX_BYTES:,} characters"
            raise self._error(where, message)
        suffix, name = path.suffix.lower(), str(path)
        if suffix == ".csv":
            return [_test_of_row(row, name, number) for number, row in enumerate(_rows(text, name), start=1)]
        if suffix == ".jsonl":
            document: Any = _parse_lines(text, name)
        elif suffix in (".json", ".yaml", ".yml"):
            document = load_text(text, "json" if suffix == ".json" else "yaml", name)
        else:
            raise self._error(where, f"names {path.name!r}: tests are read from CSV, JSON, JSONL and YAML files")
        tests = document if isinstance(document, list) else [document]
        for index, test in enumerate(tests):
            if not isinstance(test, Mapping):
                raise RubricError(name, [Fault(f"[{index}]", "", f"must be a test, got {short(test)}")])
            if "tests" in test and "config" not in test:  # a scenario has both
                raise RubricError(name, [Fault("", "tests", "is a configuration of its own: name its tests instead")])
        if path.name in _CASE_FILES:
            tests = [{"id": path.parent.name, **test} for test in tests]
        if are_rows and suffix in (".yaml", ".yml"):
            return [
                _test_of_row({str(key): _cell(cell) for key, cell in row.items()}, name, number)
                for number, row in enumerate(tests, start=1)
            ]
        return [_with_templates(test, document) for test in tests]


def _case_files(folder: Path) -> list[Path]:
    """Return the `case.yaml` of each subdirectory, as AgentV finds its cases."""
    matches = (sorted(folder.glob(f"*/{name}")) for name in _CASE_FILES)
    return sorted(itertools.islice(itertools.chain.from_iterable(matches), MAX_FILES + 1))


def with_tests(document: Mapping[str, Any], files: Files | None) -> Mapping[str, Any]:
    """Return a configuration with the tests of its files, scenarios and templates inserted.

    Args:
        document: The parsed configuration.
        files: Reads the files. None to leave their names in the list of tests.

    Raises:
        RubricError: A file cannot be read, or there are more than 100,000 tests.
    """
    changes: dict[str, Any] = {}
    for key in DEFAULTS:
        if isinstance(document.get(key), str) and files:
            changes[key] = files.mapping(document[key], key)
        elif isinstance(document.get(key), Mapping):
            changes[key] = _with_templates(document[key], document)
    tests: Any = document.get("tests")
    # promptfoo does not accept a single test.
    if tests is not None and not (isinstance(tests, Mapping) and "path" not in tests):
        changes["tests"] = _expanded(tests, "tests", document, files)
    scenarios: Any = document.get("scenarios")
    if scenarios is not None:
        own = changes.get("tests", [])
        crossed = _crossed(scenarios, document, files)
        changes["tests"] = [*(own if isinstance(own, list) else []), *crossed]
        changes["scenarios"] = None
    changes = {key: value for key, value in changes.items() if value is not document.get(key)}
    own_lists = _with_templates(document, document)
    changes |= {key: own_lists[key] for key in ASSERTION_LISTS if own_lists.get(key) is not document.get(key)}
    if not changes:
        return document
    return {key: value for key, value in {**document, **changes}.items() if value is not None}


def _expanded(tests: Any, where: str, root: Any, files: Files | None) -> list[Any]:
    """Return the list of tests, in which names of files are replaced by the tests in these files."""
    is_list = isinstance(tests, list | tuple)
    entries = tests if is_list else [tests]
    result: list[Any] = []
    for index, entry in enumerate(entries):
        place = f"{where}[{index}]" if is_list else where
        path: Any = entry.get("path") if isinstance(entry, Mapping) else None
        name: Any = path if isinstance(path, str) else entry
        if isinstance(name, str):
            result += files.tests(name, place, are_rows=path is not None) if files else [name]
        else:
            result.append(_with_templates(entry, root))
    return result


def _crossed(scenarios: Any, root: Any, files: Files | None) -> Iterator[Any]:
    """Yield each test of each scenario combined with each of its configurations, merged like in promptfoo."""
    for index, scenario in enumerate(_expanded(scenarios, "scenarios", root, files)):
        where = f"scenarios[{index}]"
        if not isinstance(scenario, Mapping):
            yield scenario
            continue
        configs = _mappings(_expanded(scenario.get("config") or [{}], f"{where}.config", root, files))
        tests = _mappings(_expanded(scenario.get("tests") or [{}], f"{where}.tests", root, files))
        if len(configs) * len(tests) > MAX_NODES:
            yield where
            continue
        for config, test in itertools.product(configs, tests):
            yield config if isinstance(config, str) else test if isinstance(test, str) else _merged(config, test)


def _mappings(entries: list[Any]) -> list[Any]:
    return [entry for entry in entries if isinstance(entry, str | Mapping)]


def _merged(config: Mapping[str, Any], test: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {**config, **test}
    for key in ("vars", "options"):
        both = [holder[key] for holder in (config, test) if isinstance(holder.get(key), Mapping)]
        if len(both) == 2:
            merged[key] = {**both[0], **both[1]}
    for key in ASSERTION_LISTS:
        lists = [holder[key] for holder in (config, test) if isinstance(holder.get(key), list)]
        if len(lists) == 2:
            merged[key] = [*lists[0], *lists[1]]
    names = [str(name) for name in (merged.pop("id", None), test.get("description")) if name]
    return {**merged, **({"description": ", ".join(names)} if names else {})}


def _with_templates(holder: Any, root: Any) -> Any:
    """Return a test, a set or a file in which each `$ref: '#/...'` is replaced by the assertions that it refers to.

    A template inside a template is not replaced. It is refused later. Therefore, a cycle of templates ends.
    """
    target = _target(holder, root)
    if target is not holder or not isinstance(holder, Mapping):
        return target
    changes: dict[str, Any] = {}
    for key in ASSERTION_LISTS:
        entries = _target(holder.get(key), root)
        if isinstance(entries, list):
            listed = [_with_templates(entry, root) for entry in entries]
            if any(new is not old for new, old in zip(listed, entries, strict=True)):
                entries = listed
        if entries is not holder.get(key):
            changes[key] = entries
    return {**holder, **changes} if changes else holder


def _target(value: Any, root: Any) -> Any:
    """Return the target of a `$ref` inside the file, with the other keys next to it. Any other value is unchanged."""
    data = value if isinstance(value, Mapping) else {}
    reference: Any = data.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return value
    target = root
    for step in reference[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isascii() and key.isdecimal() and int(key[:9]) < len(target):
            target = target[int(key)]
        else:
            return value
    if not isinstance(target, Mapping):
        return target
    return {**target, **{key: data[key] for key in data if key != "$ref"}}


def _rows(text: str, name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file as dictionaries by column name. Rows without any text are skipped."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [column.strip() for column in next(reader, [])]
        if len(set(header)) < len(header):
            repeated = Counter(header).most_common(1)[0][0]
            raise RubricError(name, [Fault("line 1", "", f"has the column {short(repeated)} twice: remove one")])
        for cells in reader:
            if not any(cells):
                continue
            if len(cells) != len(header):
                message = f"has {len(cells)} cells, and the header {len(header)}: put a text with a comma in quotes"
                raise RubricError(name, [Fault(f"line {reader.line_num}", "", message)])
            yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise RubricError(name, [Fault(f"line {reader.line_num}", "", f"is not CSV: {error}")]) from None


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


_CONFIG = re.compile(r"__config:__expected(\d*):threshold")
_IGNORED = ("__prefix", "__suffix", "__metric", "__threshold", "__description", "__metadata", "__provider")


def _test_of_row(row: Mapping[str, str], name: str, number: int) -> dict[str, Any]:
    """Return the test in a row of a table: assertions in `__expected` columns and variables in other columns.

    Raises:
        RubricError: A cell is not a number, or promptfoo has no such column.
    """
    where = f"row {number}"
    variables: dict[str, str] = {}
    entries: list[dict[str, Any]] = []
    thresholds: dict[int, float] = {}
    for key, cell in row.items():
        if key.startswith("__expected"):
            if cell.strip():
                entries.append(assertion_of_cell(cell.strip()))
        elif key.startswith("__config:"):
            if (config := _CONFIG.fullmatch(key)) is None:
                message = "is no column of promptfoo: name it `__config:__expected1:threshold`"
                raise RubricError(name, [Fault(where, key, message)])
            if cell.strip():
                thresholds[int(config[1] or 1) - 1] = _number(cell, name, where, key)
        elif key and not key.startswith(_IGNORED):
            variables[key.removeprefix("vars.")] = cell
    metric = row.get("__metric", "").strip()
    for index, entry in enumerate(entries):
        entry.update({"metric": metric} if metric else {})
        entry.update({"threshold": thresholds[index]} if index in thresholds else {})
    threshold = row.get("__threshold", "").strip()
    return {
        "description": row.get("__description", "").strip() or row.get("id", "").strip() or f"Row #{number}",
        "vars": variables,
        **({"assert": entries} if entries else {}),
        **({"threshold": _number(threshold, name, where, "__threshold")} if threshold else {}),
    }


def _number(cell: str, name: str, where: str, key: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise RubricError(name, [Fault(where, key, f"must be a number, got {short(cell)}")]) from None


_TYPES = (
    r"agent-rubric|answer-relevance|bleu|classifier|contains|contains-all|contains-any|contains-html|contains-json|"
    r"contains-sql|contains-xml|context-faithfulness|context-recall|context-relevance|conversation-relevance|cost|"
    r"equals|factuality|finish-reason|g-eval|gleu|guardrails|icontains|icontains-all|icontains-any|is-html|is-json|"
    r"is-refusal|is-sql|is-valid-function-call|is-valid-openai-function-call|is-valid-openai-tools-call|is-xml|"
    r"javascript|latency|levenshtein|llm-rubric|meteor|model-graded-closedqa|model-graded-factuality|moderation|"
    r"perplexity|perplexity-score|pi|python|regex|rouge-n|ruby|search-rubric|similar|skill-used|starts-with|"
    r"tool-call-f1|trace-error-spans|trace-span-count|trace-span-duration|trajectory:goal-success|"
    r"trajectory:step-count|trajectory:tool-args-match|trajectory:tool-sequence|trajectory:tool-used|webhook|"
    r"word-count"
)
# The pattern of promptfoo. Any other text must be equal to the response, even if it is a misspelled type.
_ASSERTION = re.compile(rf"(not-)?({_TYPES})(?:\(\d+(?:\.\d+)?\))?(?::([\s\S]*))?")
_PREFIXES = {
    "javascript:": "javascript", "fn:": "javascript", "eval:": "javascript", "grade:": "llm-rubric",
    "llm-rubric:": "llm-rubric", "python:": "python",
}  # fmt: skip


def assertion_of_cell(text: str) -> dict[str, Any]:
    """Return the assertion in a cell of `__expected`: `type: value`, or a text that must be equal.

    Example:
        >>> assertion_of_cell("icontains-any: yes, sure"), assertion_of_cell("Paris")
        ({'type': 'icontains-any', 'value': ['yes', 'sure']}, {'type': 'equals', 'value': 'Paris'})
    """
    for prefix, kind in _PREFIXES.items():
        if text.startswith(prefix):
            return {"type": kind, "value": text.removeprefix(prefix).strip()}
    if text.startswith("file://") and _suffix(text) in _CODE:
        return {"type": "python" if _suffix(text) == ".py" else "javascript", "value": text}
    match = _ASSERTION.fullmatch(text)
    if match is None:
        return {"type": "equals", "value": text}
    entry: dict[str, Any] = {"type": f"{match[1] or ''}{match[2]}"}
    if match[3] is None:
        return entry
    is_list = match[2].endswith(("-all", "-any"))
    return {**entry, "value": [part.strip() for part in match[3].split(",")] if is_list else match[3].strip()}
