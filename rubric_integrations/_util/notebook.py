"""How records look in a notebook: small tables of escaped text, in the notebook's own colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as HTML; every cell is text, whoever wrote it.

    Example:
        >>> html_table("t", ["a"], [["<b>"]]).count("&lt;b&gt;")
        1
    """

    def line(cells: Sequence[object], tag: str) -> str:
        shown = ("" if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in cells)
        return "".join(f'<{tag} style="text-align:left;vertical-align:top">{escape(text)}</{tag}>' for text in shown)

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    head = f"<thead><tr>{line(columns, 'th')}</tr></thead>"
    return f"<p><b>{escape(title)}</b></p><table>{head}<tbody>{body}</tbody></table>"


def frame(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> DataFrame:
    """Rows as a pandas DataFrame.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("`to_dataframe` needs pandas: pip install 'rubric-integrations[pandas]'") from None
    return pd.DataFrame([dict(row) for row in rows], columns=list(columns))
