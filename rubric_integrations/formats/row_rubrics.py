"""Chooses the rubric of each row: the rubric that all rows share, the row's own, or both."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

from rubric_integrations.formats.parsing import load, short
from rubric_integrations.formats.registry import RubricLike, as_rubric, read_document, read_text
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

RubricFunction = Callable[[Any], RubricLike]
"""A function that returns the rubric of a row, an example, an input or a state."""

# Rubrics that are kept, because the next rows may have the same ones.
_MAX_CACHED = 1_000
# Characters of a rubric as Python writes it, which takes long to read.
_MAX_LITERAL = 100_000


class RowRubrics:
    """Finds the rubric of each row.

    A row that brings its own rubric is graded by the shared criteria and by its own. A function decides alone.

    Args:
        rubric: The rubric that all rows share; None if each row brings its own; or a function of the row.
        library: Rubrics by name, which a row may bring as its name; or the file that has them as a mapping.

    Attributes:
        shared: The rubric that all rows share; None if there is none.
        has_function: Whether a function returns the rubric of each row.
        library: Rubrics by name.

    Raises:
        RubricError: A file or the data is not a rubric.
        TypeError: `rubric` is none of the accepted types.

    Example:
        >>> rubrics = RowRubrics([{"name": "tone", "requirement": "Is polite"}])
        >>> rubrics.of("any row", [{"name": "answer", "requirement": "Says 42"}]).keys
        ('tone', 'answer')
    """

    def __init__(
        self,
        rubric: RubricLike | RubricFunction | None,
        library: Mapping[str, RubricLike] | str | PathLike[str] | None = None,
    ):
        self.has_function = callable(rubric) and not isinstance(rubric, Rubric)
        self._function = cast("RubricFunction", rubric) if self.has_function else None
        self.shared = None if rubric is None or self.has_function else as_rubric(cast("RubricLike", rubric))
        self.library = _read_library(library) if isinstance(library, str | PathLike) else dict(library or {})
        self._cache: dict[str, Rubric] = {}

    def of(self, row: Any, own: Any) -> Rubric:
        """Return the rubric of a row: what `own_of` returns, joined with the shared one. Raises as both do."""
        return self.join(self.own_of(row, own))

    def own_of(self, row: Any, own: Any) -> Rubric | None:
        """Return the rubric that a row brings, or that the function returns for it; None if there is neither.

        Args:
            row: The row, for a function.
            own: The rubric that the row brings: a `Rubric`, lists and dictionaries, a text with these as JSON or YAML,
                the path of a file as a `Path`, or a name of the library; None if it brings none.

        Raises:
            RubricError: What the row brings is not a rubric.
            TypeError: It is of none of these types.
            ValueError: Its name is not in the library, or the function failed.
        """
        if self._function is not None:
            try:
                return as_rubric(self._function(row))
            except Exception as error:
                name = type(error).__name__
                raise ValueError(f"has no rubric: the function of the row failed with {name}: {error}") from error
        if own is None or isinstance(own, Rubric):
            return own
        key = _cache_key(own)
        if key is not None and (cached := self._cache.get(key)) is not None:
            return cached
        rubric = self._read(own)
        if key is not None:
            # Other threads may read it: it is replaced as a whole.
            if len(self._cache) >= _MAX_CACHED:
                self._cache = {}
            self._cache[key] = rubric
        return rubric

    def join(self, own: Rubric | None) -> Rubric:
        """Return the rubric by which a row is graded.

        Raises:
            RubricError: Both have a criterion of the same name.
            ValueError: There is neither a shared rubric nor one of the row's own, or they cannot be joined.
        """
        if own is None and self.shared is None:
            raise ValueError("has no `rubric`: give each row its own, or pass one that all rows share")
        rubrics = [rubric for rubric in (self.shared, own) if rubric is not None]
        return rubrics[0] if len(rubrics) == 1 else rubrics[0] + rubrics[1]

    def _read(self, own: Any) -> Rubric:
        if not isinstance(own, str):
            try:
                return as_rubric(own if isinstance(own, Path) else _without_nulls(own))
            except RecursionError:
                raise ValueError("has a `rubric` that is nested too deeply") from None
        if own in self.library:
            return as_rubric(self.library[own])
        is_data = own.lstrip().startswith(("[", "{"))
        if is_data and not _is_json(own) and (document := _python_data(own)) is not None:
            return as_rubric(_without_nulls(document))
        if is_data or "\n" in own.strip():
            return read_text(own, None, "rubric")
        known = f"the library has {sorted(self.library)[:20]!r}" if self.library else "there is no library"
        raise ValueError(
            f"has the `rubric` {short(own)}, which names none ({known}) and is no file in the folder of the rows, "
            "or a hidden one: correct the name, write the criteria into the row as a list, or rename the column if it "
            "means something else"
        )


def problem_of(error: Exception) -> str:
    """Say in one line why a row has no rubric."""
    if isinstance(error, RubricError):
        return "has no valid `rubric`: " + "; ".join(line.strip() for line in str(error).splitlines())
    return str(error)


def _read_library(path: str | PathLike[str]) -> dict[str, Any]:
    document, source = load(path)
    if not isinstance(document, Mapping):
        message = f"is {type(document).__name__}, not rubrics by name: write `name: [criteria]` for each"
        raise RubricError(source, [Fault("", "", message)])
    rubrics = cast("Mapping[Any, Any]", document)
    return {str(name): read_document(rubric, f"{source}: {name}") for name, rubric in rubrics.items()}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _python_data(text: str) -> Any:
    """Return the data of a cell that has it as Python writes it, as pandas does to CSV; None for any other text."""
    try:
        return ast.literal_eval(text.strip()) if len(text) <= _MAX_LITERAL else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _cache_key(own: object) -> str | None:
    """Return what two equal rubrics have in common; None if there is nothing."""
    if isinstance(own, str | Path):
        return repr(own)
    try:
        return json.dumps(own, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None


def _without_nulls(value: Any) -> Any:
    """Return data from a table, where each dictionary has the keys of all, without the keys that have no value."""
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {key: _without_nulls(item) for key, item in items if item is not None}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_without_nulls(item) for item in cast("Sequence[Any]", value)]
    return value
