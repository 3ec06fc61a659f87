"""JSON and YAML from strangers: parsed without running code, growing without bound, or losing a repeated key."""

from __future__ import annotations

import json
from collections.abc import Hashable
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, NoReturn

import yaml
from yaml.nodes import MappingNode

from rubric_integrations.rubric.errors import Fault, RubricError

Syntax = Literal["json", "yaml"]

MAX_DEPTH = 50
# With every alias spelled out. A full rubric has some ten nodes a criterion.
MAX_NODES = 100_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str, syntax: Syntax, source: str) -> Any:
    """Parse a document into lists, dictionaries and scalars.

    Raises:
        RubricError: The text is not of that syntax, repeats a key, nests deeper than 50 levels, or has aliases
            that multiply beyond 100,000 nodes.
    """
    try:
        if syntax == "json":
            return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_unique_pairs)
        _bound_yaml(text)
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 -- a SafeLoader
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        message = f"is not YAML: {error.problem or error.context}{place}"
    except (yaml.YAMLError, ValueError) as error:
        message = str(error).splitlines()[0]
    except RecursionError:
        message = f"nests deeper than {MAX_DEPTH} levels"
    raise RubricError(source, [Fault("", "", message)])


def dump(data: Any, syntax: Syntax) -> str:
    """Write a document so that `parse` gives it back."""
    if syntax == "json":
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    text = yaml.safe_dump(data, allow_unicode=True, sort_keys=False, width=100)
    # PyYAML writes some line separators bare and reads them back as plain newlines.
    return text if yaml.safe_load(text) == data else yaml.safe_dump(data, sort_keys=False, width=100)


def check_depth(data: Any, depth: int = 0) -> None:
    """Refuse data that nests deeper than 50 levels.

    Raises:
        ValueError: It does.
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
        keys = [key for key, _ in pairs]
        _refuse_repeated(next(key for key in keys if keys.count(key) > 1))
    return result


def _refuse_repeated(key: object) -> NoReturn:
    raise ValueError(f"has the key {key!r} twice in one object: the first value would be lost, so take one out")


class _UniqueKeyLoader(_Loader):
    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            # Two merge keys are legal YAML, and merged values are meant to be overridden.
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key.value, str):
                if key.value in seen:
                    _refuse_repeated(key.value)
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _bound_yaml(text: str) -> None:
    """Walk the events without building anything, counting each alias as large as what it stands for."""
    total, depth = 0, 0
    sizes: dict[str, int] = {}
    open_anchors: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"has the alias *{event.anchor} inside what it stands for, or before it")
            total += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
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
            raise ValueError(f"has more than {MAX_NODES:,} values once its aliases are spelled out")


# A thousand criteria of 3,000 characters fit; a file beyond this is not a rubric.
MAX_BYTES = 10_000_000

_SYNTAX: dict[str, Syntax] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def load(source: str | PathLike[str] | IO[str] | IO[bytes]) -> tuple[Any, str]:
    """Parse a file, by path or open, and tell its name.

    Raises:
        RubricError: It cannot be read, is too large, is not text, or is neither JSON nor YAML.
    """
    if isinstance(source, str | PathLike):
        path = Path(source)
        name = str(path)
        try:
            with path.open("rb") as file:
                content: str | bytes = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RubricError(name, [Fault("", "", f"cannot be read: {reason}")]) from None
    else:
        name = str(getattr(source, "name", "rubric"))
        content = source.read(MAX_BYTES + 1)
    if isinstance(content, bytes):
        if len(content) > MAX_BYTES:
            raise RubricError(name, [Fault("", "", f"is larger than {MAX_BYTES:,} bytes: that is no rubric")])
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            fault = Fault("", "", f"is not text (byte {error.start} is {content[error.start]:#04x}): save it as UTF-8")
            raise RubricError(name, [fault]) from None
    return load_text(content, _SYNTAX.get(Path(name).suffix.lower()), name), name


def load_text(text: str, syntax: Syntax | None, source: str) -> Any:
    """Parse JSON or YAML text; without a syntax, JSON where the text starts like it.

    Raises:
        RubricError: It is too large, nests too deep, or is not of its syntax.
    """
    if len(text) > MAX_BYTES:
        raise RubricError(source, [Fault("", "", f"has {len(text):,} characters, more than {MAX_BYTES:,}")])
    if syntax is None:
        syntax = "json" if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") else "yaml"
    document = parse(text, syntax, source)
    bounded(document, source)
    return document


def bounded(document: Any, source: str) -> None:
    """Refuse parsed data that nests too deep to walk."""
    try:
        check_depth(document)
    except (ValueError, RecursionError):
        raise RubricError(source, [Fault("", "", "nests deeper than 50 levels")]) from None
