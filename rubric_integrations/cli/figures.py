"""How commands print figures: estimates as text, and records as one JSON object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, out

if TYPE_CHECKING:
    from rubric_integrations.agreement import Estimate

UNDEFINED = "-"


def figure(value: float | None, digits: int = 3) -> str:
    """Return a figure as text, and a dash if it is undefined."""
    return UNDEFINED if value is None else f"{value:.{digits}f}"


def difference(value: float | None, digits: int = 3) -> str:
    """Return a difference as text, with its sign, and a dash if it is undefined."""
    return UNDEFINED if value is None else f"{value:+.{digits}f}"


def with_limits(estimate: Estimate, digits: int = 3, *, signed: bool = False) -> str:
    """Return an estimate with its interval as text, without the number of observations."""
    write = difference if signed else figure
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return write(estimate.value, digits)
    return f"{write(estimate.value, digits)} [{write(estimate.low, digits)}, {write(estimate.high, digits)}]"


def print_lines(lines: Sequence[str]) -> None:
    """Print lines on stdout, without markup."""
    for line in lines:
        out.print(plain(line), soft_wrap=True)


def print_warnings(lines: Sequence[str]) -> None:
    """Print warnings on stderr, so that they are seen where stdout is JSON, too."""
    for line in lines:
        err.print(plain(f"warning: {line}"), style="yellow", soft_wrap=True)


def print_json(figures: Any) -> None:
    """Print a record, or a dictionary, as one JSON object on stdout. An undefined figure is null, never NaN."""
    text = json.dumps(_plain(figures), ensure_ascii=False, indent=2, allow_nan=False)
    print(text)  # noqa: T201 -- rich would wrap the lines


def _plain(value: Any) -> Any:
    """Convert records to dictionaries, also named tuples, which pydantic would write as lists without names."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
