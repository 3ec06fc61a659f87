"""Parses JSON, YAML, TOML and Markdown from untrusted sources, and describes faults: the place, the field and the fix.

Parsing runs no code, and limits size, depth and YAML aliases. A repeated key is an error, because one of its values
would be lost. Line numbers are available for tools that show faults in an editor or a review.
"""

from __future__ import annotations

import datetime
import difflib
import json
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rubric_integrations._util.json import refuse_endless
from rubric_integrations._util.records import encodable
from rubric_integrations.library import catalogue
from rubric_integrations.rubric.rubric import Fault, RubricError

# The keys of other projects that often occur in native files, with the project and the native key.
_WORDS_OF_OTHERS = {
    "points": ("HealthBench", "weight"),
    "criterion": ("HealthBench", "requirement"),
    "title": ("RaR", "name"),
    "description": ("RaR", "requirement"),
    "outcome": ("AgentV", "requirement"),
    "expected_outcome": ("AgentV", "requirement"),
}


def faults_from_error(where: str, model: type[BaseModel], error: ValidationError) -> list[Fault]:
    """Convert a pydantic error to faults.

    Args:
        where: The place of the validated data in the document, such as `criteria[2]`.
        model: The model that validated the data.
        error: The error.
    """
    return [_fault(where, model, details) for details in error.errors()]


def unknown_key(where: str, key: str, known: Collection[str]) -> Fault:
    """Make the fault for an unknown key. Its hint is a similar known key, or the list of all known keys."""
    if key in _WORDS_OF_OTHERS and _WORDS_OF_OTHERS[key][1] in known:
        project, word = _WORDS_OF_OTHERS[key]
        remedy = f"it is the word of {project} for `{word}`: rename it."
        return Fault(where, key, f"is not a known key: {remedy} Ignored, it would change the score silently")
    close = difflib.get_close_matches(key, list(known), n=1)
    names = ", ".join(f"`{name}`" for name in sorted(known))
    hint = f"did you mean `{close[0]}`?" if close else f"known are {names}."
    return Fault(where, key, f"is not a known key: {hint} Ignored, it would change the score silently")


def short(value: object) -> str:
    """Return the `repr` of a value, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fault(where: str, model: type[BaseModel], details: ErrorDetails) -> Fault:
    """Convert an error of pydantic to a fault with the field, what is wrong, and the fix."""
    path = [part for part in map(str, details["loc"]) if not part.startswith("<")]
    field = ".".join(path)
    value = details["input"]
    match details["type"]:
        case "extra_forbidden":
            return unknown_key(where, path[-1], _model_at(model, path[:-1]).model_fields)._replace(field=field)
        case "missing":
            message = "is missing: add it"
        case "invalid_key":
            message = (
                f"must be the name of a field, got {short(value)}: in braces, a comma ends a value. Write a number "
                "with a decimal point, such as 3.5, and put a text that contains a comma in quotes"
            )
        case "float_type" | "float_parsing" | "finite_number" | "int_type" | "int_parsing" | "int_from_float":
            message = f"must be a finite number, got {short(value)}: {_number_remedy(value)}"
        case "greater_than_equal" | "less_than_equal" | "greater_than" | "less_than":
            message = f"is out of range, got {short(value)}: {details['msg'].lower()}"
        case "model_type":
            message = f"must have keys and values, such as `{{key: value}}`, got {short(value)}"
        case "string_type":
            message = f"must be text, got {short(value)}: put it in quotes, because YAML converts yes, no and dates"
        case "bool_type" | "bool_parsing":
            message = f"must be true or false, got {short(value)}"
        case "value_error":
            message = details["msg"].removeprefix("Value error, ")
        case _:
            message = f"{details['msg'].lower()}, got {short(value)}"
    return Fault(where, field, message)


def _number_remedy(value: object) -> str:
    if isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value):
        return f"write it with a decimal point, {value.replace(',', '.')}"
    return "write it plainly, such as 10 or -15"


def _model_at(model: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """Return the class of the record at a path of field names and indexes, such as `["check", "number"]`."""
    for part in path:
        if part in model.model_fields:
            model = next(_models_in(model.model_fields[part].annotation), model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


Syntax = Literal["json", "yaml", "toml", "markdown"]

MARKDOWN_KEY = "markdown"
"""The only key of a parsed Markdown document, whose value is its text. `formats/markdown.py` reads it."""

MAX_DEPTH = 50
# The limit on values after all aliases are expanded. A rubric has about ten values for each criterion.
MAX_NODES = 100_000
# A thousand criteria of 3,000 characters fit. A larger file is not a rubric.
MAX_BYTES = 10_000_000

# YAML reads an unquoted word such as `0x1f`, `1_000` or `1:30` as a number. The time for this is quadratic in its
# length.
_MAX_NUMBER = 1000
_NUMBER = re.compile(r"[-+]?\d[\w.:+-]*")
# The most characters of a TOML file, and the most dots in one of its lines.
_MAX_TOML, _MAX_DOTS = 1_000_000, 300
_YAML_LINE_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
# Python refuses to print integers of more than 4,300 digits. A float has at most 308 digits before its point.
_MAX_BITS = 1024

SYNTAX: dict[str, Syntax] = {
    ".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".md": "markdown", ".markdown": "markdown",
}  # fmt: skip
"""The syntax of a file by the ending of its name, in lower case."""

AS_YAML = "write it as YAML or JSON, such as `- {weight: 10, requirement: Names a source}`"
# Almost any text is valid YAML. A list in such a file would be read as criteria of weight 1, with `(-5)` as part of a
# text.
_OTHER_FORMATS = {
    **dict.fromkeys((".mdx", ".rst"), "a document with markup"),
    **dict.fromkeys((".txt", ".text"), "plain text"),
    **dict.fromkeys((".csv", ".tsv", ".xlsx", ".xls", ".ods"), "a table"),
}

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str, syntax: Syntax, source: str) -> Any:
    """Parse a document into lists, dictionaries and scalars.

    Raises:
        RubricError: The text has a syntax error, repeats a key, nests deeper than 50 levels, or has more than 100,000
            values after the expansion of its aliases.
    """
    if syntax == "markdown":
        return {MARKDOWN_KEY: text}
    try:
        if syntax == "json":
            return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_unique_pairs)
        if syntax == "toml":
            bound_toml(text)
            return _without_dates(tomllib.loads(text.removeprefix("\ufeff")))
        bound_yaml(text)
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 -- a SafeLoader
    except tomllib.TOMLDecodeError as error:
        message = f"is not TOML: {_without_parentheses(str(error))}"
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        remedy = _yaml_remedy(text, mark.line, mark.column) if mark else ""
        message = f"is not YAML: {error.problem or error.context}{place}{remedy}"
    except (yaml.YAMLError, ValueError) as error:
        message = str(error).splitlines()[0]
    except RecursionError:
        message = f"nests deeper than {MAX_DEPTH} levels"
    raise RubricError(source, [Fault("", "", message)])


def _yaml_remedy(text: str, line_index: int, column: int) -> str:
    """Return how to fix a common error in handwritten YAML. Empty for any other error."""
    line = "".join(_YAML_LINE_BREAK.split(text)[line_index : line_index + 1])
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return ": indent with spaces, because YAML allows no tabs there"
    if line[column : column + 1] == ":" and line.count(": ") > 1:
        return ": put the text in quotes, because it contains a colon"
    if line[column : column + 1] == ":":
        return ": begin this line in the same column as the lines beside it"
    if line[column : column + 1] in ("`", "@", "%"):
        return f": put the text in quotes, because it begins with {line[column]!r}"
    return ""


def dump(data: Any, syntax: Syntax) -> str:
    """Write a document as JSON, YAML, TOML or Markdown text, from which `parse` reads an equal document.

    TOML has tables, lists of tables, and values without None. Half of an emoji is written as its escape. Only the
    document of a Markdown text is written as Markdown. Any other document is written as YAML then.
    """
    if syntax == "markdown" and set(data) == {MARKDOWN_KEY}:
        return str(data[MARKDOWN_KEY])
    if syntax == "json":
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    if syntax == "toml":
        return _toml_of(data)
    text = yaml.safe_dump(data, allow_unicode=True, sort_keys=False, width=100)
    # PyYAML writes some line separators unescaped but reads them as newlines. In ASCII, it escapes them.
    return text if yaml.safe_load(text) == data else yaml.safe_dump(data, sort_keys=False, width=100)


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _toml_of(document: Mapping[str, Any]) -> str:
    """Write a table as TOML: first its values, then each table and each list of tables below its own header."""
    own: list[str] = []
    tables: list[str] = []
    for key, value in document.items():
        entries: Any = [value] if isinstance(value, Mapping) else value
        header = f"[{_toml_key(key)}]" if isinstance(value, Mapping) else f"[[{_toml_key(key)}]]"
        if isinstance(entries, list) and entries and all(isinstance(entry, Mapping) for entry in entries):
            tables += [header + "\n" + "".join(_toml_line(*item) for item in entry.items()) for entry in entries]
        else:
            own.append(_toml_line(key, value))
    return "\n".join(["".join(own), *tables] if own else tables)


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _toml_value(key)


def _toml_line(key: str, value: Any) -> str:
    return f"{_toml_key(key)} = {_toml_value(value)}\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml_key(key)} = {_toml_value(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, str):
        # The strings of JSON are those of TOML, which also escapes the control character DEL.
        return json.dumps(encodable(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def check_depth(data: Any, depth: int = 0) -> None:
    """Check the nesting depth of data.

    Raises:
        ValueError: The data nests deeper than 50 levels.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nests deeper than {MAX_DEPTH} levels")
    if isinstance(data, dict):
        for value in data.values():
            check_depth(value, depth + 1)
    elif isinstance(data, list | tuple):
        for value in data:
            check_depth(value, depth + 1)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        _refuse_repeated(next(key for key, count in counts.items() if count > 1))
    return result


def _refuse_repeated(key: object) -> NoReturn:
    raise ValueError(f"has the key {key!r} twice in one object: the first value would be lost, so remove one")


class _UniqueKeyLoader(_Loader):
    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            # YAML allows several merge keys (`<<`), and a mapping may override the merged values.
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key.value, str):
                if key.value in seen:
                    _refuse_repeated(key.value)
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def bound_yaml(text: str) -> None:
    """Check the depth and the number of values of YAML text without building them.

    An alias counts as many values as the node that it repeats, because a few nested aliases can expand to billions of
    values.

    Raises:
        ValueError: There are too many levels or values, a number is too long, or an alias refers to its own node or a
            later node.
    """
    total, depth = 0, 0
    sizes: dict[str, int] = {}
    open_anchors: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"has the alias *{event.anchor} inside the node that it repeats, or before it")
            total += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if len(event.value) > _MAX_NUMBER and event.implicit[0] and _NUMBER.fullmatch(event.value):
                raise ValueError(f"has a number of {len(event.value):,} characters: put a text in quotes")
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            total += 1
            depth += 1
            open_anchors.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            anchor, start = open_anchors.pop()
            if anchor:
                sizes[anchor] = total - start + 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nests deeper than {MAX_DEPTH} levels")
        if total > MAX_NODES:
            raise ValueError(f"has more than {MAX_NODES:,} values after the expansion of its aliases")


def bound_toml(text: str) -> None:
    """Check that `tomllib` parses a text in seconds: its time is quadratic in the number of parts of a dotted key.

    Raises:
        ValueError: The text or one of its lines is too long.
    """
    if len(text) > _MAX_TOML:
        raise ValueError(f"has {len(text):,} characters, more than the {_MAX_TOML:,} of a TOML file: split the rubric")
    if any(line.count(".") > _MAX_DOTS for line in text.split("\n")):
        raise ValueError(f"has a line with more than {_MAX_DOTS} dots: write a long text on several lines")


def _without_dates(value: Any) -> Any:
    """Return the data of a TOML file with its dates and times as text, as in JSON."""
    if isinstance(value, dict):
        return {key: _without_dates(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_dates(inner) for inner in value]
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value


def _without_parentheses(message: str) -> str:
    return message.replace("(at ", "at ").removesuffix(")")


def load(source: str | PathLike[str] | IO[str] | IO[bytes]) -> tuple[Any, str]:
    """Parse a file.

    Args:
        source: A path or an open file.

    Returns:
        The data and the name of the file.

    Raises:
        RubricError: The file cannot be read, is too large, is not text, or is not JSON, YAML, TOML or Markdown.
    """
    name = _name_of(source)
    if (other := _OTHER_FORMATS.get(Path(name).suffix.lower())) is not None:
        problem = f"is {other}, in which the weights of the criteria cannot be found: {AS_YAML}"
        raise RubricError(name, [Fault("", "", problem)])
    return load_text(read_content(source), SYNTAX.get(Path(name).suffix.lower()), name), name


def read_content(source: str | PathLike[str] | IO[str] | IO[bytes]) -> str:
    """Return the text of a path or an open file. A path such as `library:groundedness` names a rubric of the library.

    Raises:
        RubricError: The file cannot be read, is larger than 10 MB, or is not text.
    """
    name = _name_of(source)
    if isinstance(source, str | PathLike) and name.startswith(catalogue.PREFIX):
        return catalogue.text(name)
    if isinstance(source, str | PathLike):
        path = Path(source)
        try:
            refuse_endless(path)
            with path.open("rb") as file:
                content: str | bytes = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RubricError(name, [Fault("", "", f"cannot be read: {reason}")]) from None
    else:
        content = source.read(MAX_BYTES + 1)
    if isinstance(content, bytes):
        if len(content) > MAX_BYTES:
            raise RubricError(name, [Fault("", "", f"is larger than {MAX_BYTES:,} bytes: it is no rubric")])
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            fault = Fault("", "", f"is not text (byte {error.start} is {content[error.start]:#04x}): save it as UTF-8")
            raise RubricError(name, [fault]) from None
    return content


def _name_of(source: str | PathLike[str] | IO[str] | IO[bytes]) -> str:
    return str(Path(source)) if isinstance(source, str | PathLike) else str(getattr(source, "name", "rubric"))


def load_text(text: str, syntax: Syntax | None, source: str) -> Any:
    """Parse JSON, YAML or TOML text. If `syntax` is None, text that starts with `[` or `{` is JSON.

    Raises:
        RubricError: The text is too large, nests too deeply, or has a syntax error.
    """
    if len(text) > MAX_BYTES:
        raise RubricError(source, [Fault("", "", f"has {len(text):,} characters, more than {MAX_BYTES:,}")])
    if syntax is None:
        syntax = "json" if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") else "yaml"
    document = parse(text, syntax, source)
    check_document(document, source)
    if syntax == "yaml" and _has_headings(text, document):
        message = (
            f"{source}: is a list of texts below lines that begin with `#`, which are comments in YAML. If it is "
            "Markdown, name it .md: its headings become tags there, and a number such as (-5) is refused"
        )
        warnings.warn(encodable(message), stacklevel=3)
    return document


_HEADING = re.compile(r"^#{1,6} +\S", re.MULTILINE)


def _has_headings(text: str, document: Any) -> bool:
    """Return whether a YAML document would be a list of criteria below headings in Markdown, too."""
    is_list = isinstance(document, list) and bool(document) and all(isinstance(entry, str) for entry in document)
    return is_list and _HEADING.search(text) is not None


def check_document(document: Any, source: str) -> None:
    """Check that parsed data can be traversed recursively and that its values can be printed in messages.

    Raises:
        RubricError: The data nests deeper than 50 levels, has more than 100,000 values, or has an integer of more than
            308 digits.
    """
    try:
        check_depth(document)
        _check_values(document)
    except ValueError as error:
        raise RubricError(source, [Fault("", "", str(error))]) from None
    except RecursionError:
        raise RubricError(source, [Fault("", "", f"nests deeper than {MAX_DEPTH} levels")]) from None


def _check_values(document: Any) -> None:
    values, count = [document], 0
    while values:
        value = values.pop()
        count += 1
        if count > MAX_NODES:
            raise ValueError(f"has more than {MAX_NODES:,} values")
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise ValueError("has a whole number of more than 308 digits: write a smaller one, or a text in quotes")
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list | tuple):
            values += value


_STEP = re.compile(r"[^.\[\]]+")
_MARKDOWN_PLACE = re.compile(r"line (\d{1,9})")
# The message of a syntax error contains its line and column, followed by how to fix it.
_PLACE = re.compile(r"at line (\d+), column \d+(?:: |$)")


class Positions:
    r"""The line numbers of the fields of a JSON, YAML, TOML or Markdown document, counted from 1.

    In a document that cannot be parsed, every line number is 1.

    Args:
        text: The document.
        syntax: Its syntax. None for JSON or YAML.

    Example:
        >>> Positions("criteria:\n- requirement: Is polite\n  weight: x").line("criteria[0]", "weight")
        3
    """

    def __init__(self, text: str, syntax: Syntax | None = None):
        self._root: Node | None = None
        self._toml: dict[str, int] = {}
        self._markdown = text.splitlines() if syntax == "markdown" else []
        if len(text) > MAX_BYTES or syntax == "markdown":
            return
        try:
            # Almost all JSON is valid YAML, but YAML does not allow tabs as indentation. Replacing them by spaces keeps
            # the line numbers.
            plain = text.removeprefix("\ufeff").replace("\t", " ")
            # On thousands of nested lists, PyYAML's parser in C overflows its stack and ends the process.
            bound_yaml(plain)
            self._root = yaml.compose(plain, Loader=_Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            self._toml = _toml_lines(text)

    def line(self, where: str, field: str) -> int:
        """Return the line of a field or, if it is missing, of the innermost object around it.

        Args:
            where: The place of the object, such as `criteria[2].criteria[0]`. Empty for the document itself.
            field: The name of the field, or a path such as `check.number`. Empty for the object itself.
        """
        if self._markdown and (place := _MARKDOWN_PLACE.fullmatch(where)):
            return int(place[1])
        if self._root is None:
            return self._toml.get(f"{where}.{field}".strip("."), self._toml.get(where, 1))
        if isinstance(self._root, MappingNode) and _child(self._root, "requirement"):
            # A document with a single criterion has the place `criteria[0]`.
            where = where.removeprefix("criteria[0]")
        node, line = self._root, 1
        for step in [*_STEP.findall(where), *_STEP.findall(field)]:
            child = _child(node, step)
            if child is None and isinstance(node, MappingNode):
                # The places of a rubric under the key `rubric` begin below that key.
                wrapped = _child(node, "rubric")
                child = _child(wrapped[0], step) if wrapped else None
            if child is None and node is self._root and isinstance(node, SequenceNode) and step == "criteria":
                # A document that is a list of criteria has the place `criteria`.
                continue
            if child is None:
                break
            node, line = child
        return line

    def line_of_text(self, text: str) -> int:
        """Return the line where the first value with this text begins, or 1 if there is none."""
        first = text.split("\n", 1)[0]
        for number, line in enumerate(self._markdown, start=1):
            if line.rstrip().endswith(first):
                return number
        seen: set[int] = set()
        nodes = [self._root] if self._root else []
        while nodes:
            node = nodes.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, ScalarNode) and node.value == text:
                return node.start_mark.line + 1
            if isinstance(node, SequenceNode):
                nodes += reversed(node.value)
            elif isinstance(node, MappingNode):
                nodes += [value for _, value in reversed(node.value)]
        return 1


_TOML_HEADER = re.compile(r"(\[\[?)\s*([\w-]+)\s*\]")
_TOML_KEY = re.compile(r"([\w-]+)\s*=")


def _toml_lines(text: str) -> dict[str, int]:
    """Return the line number of each table of a TOML document, such as `criterion[1]`, and of each key at its top."""
    lines: dict[str, int] = {}
    place = ""
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.split("\n"), start=1):
        if header := _TOML_HEADER.match(line.strip()):
            name = header[2]
            place = f"{name}[{counts[name]}]" if header[1] == "[[" else name
            counts[name] += 1
            lines[place] = number
        elif key := _TOML_KEY.match(line.strip()):
            lines.setdefault(f"{place}.{key[1]}".lstrip("."), number)
    return lines


def syntax_error_line(message: str) -> int | None:
    """Return the line number in the message of a syntax error. None if there is none."""
    place = _PLACE.search(message)
    return int(place[1]) if place else None


def _child(node: Node, step: str) -> tuple[Node, int] | None:
    """Return the value under a key or an index, and the line where the key or the entry begins."""
    if isinstance(node, SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        value = node.value[int(step)]
        return value, value.start_mark.line + 1
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == step:
                return value, key.start_mark.line + 1
    return None
