"""Displays records in notebooks and converts them to pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from rubric_integrations._util.extras import install_command

if TYPE_CHECKING:
    from pandas import DataFrame


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table without colours of its own. All text is escaped, because models and users write it.

    Example:
        >>> html_table("t", ["a"], [["<b>"]]).count("&lt;b&gt;")
        1
    """

    def cells_of(values: Sequence[object], tag: str) -> str:
        texts = ("" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        return "".join(f'<{tag} style="text-align:left;vertical-align:top">{escape(text)}</{tag}>' for text in texts)

    body = "".join(f"<tr>{cells_of(row, 'td')}</tr>" for row in rows)
    head = f"<thead><tr>{cells_of(columns, 'th')}</tr></thead>"
    return f"<p><b>{escape(title)}</b></p><table>{head}<tbody>{body}</tbody></table>"


def data_frame(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> DataFrame:
    """Return rows as a pandas DataFrame.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise ImportError(f"`to_dataframe` needs pandas: {install_command('pandas')}") from None
    return pd.DataFrame([dict(row) for row in rows], columns=list(columns))
