"""Chooses the rubric of each row: the rubric that all rows share, the row's own rubric, or both."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, cast

from rubric_integrations.formats.agentv import has_cases, load_eval_cases
from rubric_integrations.formats.parsing import MARKDOWN_KEY, short
from rubric_integrations.formats.registry import RubricLike, as_rubric, read_document, read_text
from rubric_integrations.formats.suite_files import load_with_tests
from rubric_integrations.library.catalogue import PREFIX
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

RubricFunction = Callable[[Any], RubricLike]
"""A function that returns the rubric of a row, an example, an input or a state."""

# The most rubrics in the cache, because the next rows may have the same rubrics.
_MAX_CACHED = 1_000
# The most characters of a rubric in Python syntax, because parsing it takes long.
_MAX_LITERAL = 100_000


class RowRubrics:
    """Finds the rubric of each row.

    A row with its own rubric is graded with the shared criteria and its own criteria. If a function returns the rubric,
    there are no shared criteria. The rubrics have no test cases, because a run must neither show nor store them.

    Args:
        rubric: The rubric that all rows share, a function that returns the rubric of a row, or None if each row has its
            own rubric.
        library: Rubrics by name, or a file that contains such a mapping. A row can then refer to its rubric by name.
            Also a file of cases, such as the evals of an Agent Skill: a row refers to the rubric of a case by its id.
        select: Selects some criteria of the rubric that grades a row, such as `Rubric.select`. None grades all of them.

    Attributes:
        shared: The rubric that all rows share, with all its criteria. None if there is none.
        has_function: Whether a function returns the rubric of each row.
        library: Rubrics by name.

    Raises:
        RubricError: A file or the data is not a rubric.
        TypeError: `rubric` has another type.

    Example:
        >>> rubrics = RowRubrics([{"name": "tone", "requirement": "Is polite"}])
        >>> rubrics.of("any row", [{"name": "answer", "requirement": "Says 42"}]).keys
        ('tone', 'answer')
    """

    def __init__(
        self,
        rubric: RubricLike | RubricFunction | None,
        library: Mapping[str, RubricLike] | str | PathLike[str] | None = None,
        select: Callable[[Rubric], Rubric] | None = None,
    ):
        self.has_function = callable(rubric) and not isinstance(rubric, Rubric)
        self._function = cast("RubricFunction", rubric) if self.has_function else None
        has_shared = rubric is not None and not self.has_function
        self.shared = as_rubric(cast("RubricLike", rubric)).without_cases() if has_shared else None
        self.library = _read_library(library) if isinstance(library, str | PathLike) else dict(library or {})
        self._cache: dict[str, Rubric] = {}
        self._select = select

    def of(self, row: Any, own: Any) -> Rubric:
        """Return the rubric of a row: its own rubric, joined with the shared rubric.

        Args:
            row: The row. If a function returns the rubrics, it is called with this row.
            own: The row's own rubric, in any form of `own_of`, or a name in the library. None if the row has no rubric.

        Raises:
            RubricError: `own` is not a valid rubric, or both rubrics have a criterion with the same name.
            TypeError: `own` has another type.
            ValueError: There is no rubric for the row, the name is not in the library, the function failed, or the two
                rubrics cannot be joined.
        """
        return self.join(self.own_of(row, own))

    def own_of(self, row: Any, own: Any) -> Rubric | None:
        """Return the rubric of this row alone, without the shared rubric. None if the row has no rubric.

        If this object was made with a function, the function's rubric is returned and `own` is ignored.

        Args:
            row: The row, which is passed to the function, if there is one.
            own: The row's own rubric: a `Rubric`, lists and dictionaries, JSON or YAML text, the `Path` of a file, a
                name in the library, or `library:` and the name of a ready-made rubric. None if the row has no rubric.

        Raises:
            RubricError: `own` is not a valid rubric.
            TypeError: `own` has another type.
            ValueError: The name is not in the library, or the function failed or returned no valid rubric.
        """
        if self._function is not None:
            try:
                return as_rubric(self._function(row)).without_cases()
            except Exception as error:
                name = type(error).__name__
                raise ValueError(f"has no rubric: the function of the row failed with {name}: {error}") from error
        if own is None or isinstance(own, Rubric):
            return own and own.without_cases()
        key = _cache_key(own)
        if key is not None and (cached := self._cache.get(key)) is not None:
            return cached
        rubric = self._read(own).without_cases()
        if key is not None:
            # Other threads may read the cache. Therefore, it is replaced instead of cleared.
            if len(self._cache) >= _MAX_CACHED:
                self._cache = {}
            self._cache[key] = rubric
        return rubric

    def join(self, own: Rubric | None) -> Rubric:
        """Return the rubric for grading a row: the shared rubric, its own rubric, or both joined.

        Raises:
            RubricError: Both rubrics have a criterion with the same name.
            ValueError: There is neither a shared rubric nor an own rubric, the two cannot be joined, or the rubric has
                no criterion that is selected.
        """
        if own is None and self.shared is None:
            raise ValueError("has no `rubric`: give each row its own, or pass one that all rows share")
        if own is None:
            return self._selected_shared
        return self._selected(own if self.shared is None else self.shared + own)

    def check_shared(self, check: Callable[[Rubric], None]) -> None:
        """Call a function with the rubric of a row that does not have its own, if there is one.

        Args:
            check: A function that raises an error if the rubric cannot be used.
        """
        try:
            rubric = self.join(None)
        except ValueError:
            return  # there is no shared rubric, or only the rubrics of rows have the selected criteria
        check(rubric)

    @cached_property
    def _selected_shared(self) -> Rubric:
        assert self.shared is not None  # noqa: S101 -- `join` has checked it
        return self._selected(self.shared)

    def _selected(self, rubric: Rubric) -> Rubric:
        if self._select is None:
            return rubric
        try:
            return self._select(rubric)
        except ValueError as error:
            raise ValueError(f"cannot be graded by the selected criteria: {error}") from None

    def _read(self, own: Any) -> Rubric:
        """Read the rubric of a row: a value, the name of a rubric of the library, JSON, YAML or a Python literal."""
        if isinstance(own, int) and self.library:
            own = str(own)
        if not isinstance(own, str):
            try:
                return as_rubric(own if isinstance(own, Path) else _without_nulls(own))
            except RecursionError:
                raise ValueError("has a `rubric` that is nested too deeply") from None
        if own in self.library:
            return as_rubric(self.library[own])
        if own.startswith(PREFIX):
            return as_rubric(own)
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
    """Return in one line why a row has no valid rubric."""
    if isinstance(error, RubricError):
        return "has no valid `rubric`: " + "; ".join(line.strip() for line in str(error).splitlines())
    return str(error)


def _read_library(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the rubrics of a file by name: a mapping of rubrics, or a file of cases, whose names are their ids."""
    document, source = load_with_tests(path)
    if has_cases(document):
        cases = [(case.id, case.rubric) for case in load_eval_cases(path)]
        repeated = [case_id for case_id, count in Counter(case_id for case_id, _ in cases).items() if count > 1]
        if repeated:
            message = f"has {repeated[0]!r} more than once: rows refer to a case by its id, so rename one"
            raise RubricError(source, [Fault("", "id", message)])
        return dict(cases)
    if not isinstance(document, Mapping) or set(document) == {MARKDOWN_KEY}:
        kind = "a Markdown file" if isinstance(document, Mapping) else type(document).__name__
        message = f"is {kind}, not rubrics by name: write `name: [criteria]` for each"
        raise RubricError(source, [Fault("", "", message)])
    return {str(name): read_document(rubric, f"{source}: {name}") for name, rubric in document.items()}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _python_data(text: str) -> Any:
    """Return the data of a text in Python syntax, which pandas writes into CSV cells. None for any other text."""
    try:
        return ast.literal_eval(text.strip()) if len(text) <= _MAX_LITERAL else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _cache_key(own: object) -> str | None:
    """Return a key that is the same for equal rubrics. None if there is no such key."""
    if isinstance(own, str | Path):
        return repr(own)
    try:
        return json.dumps(own, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None


def _without_nulls(value: Any) -> Any:
    """Return data from a table without the keys that have no value. Tables give each dictionary the same keys."""
    if isinstance(value, Mapping):
        items = value.items()
        return {key: _without_nulls(item) for key, item in items if item is not None}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_without_nulls(item) for item in value]
    return value
