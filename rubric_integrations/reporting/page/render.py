"""Renders the report page: a template, a style sheet and a script, with the data of the runs packed into the file.

Text from models and users reaches the page only as text: the template escapes it, or it is packed as base64 and put
into the document with `textContent`. As a second defence, a content security policy allows no other script.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from rubric_integrations._util.extras import install_command
from rubric_integrations.reporting.page.figures import compare, criterion_figures, summarize
from rubric_integrations.reporting.page.loading import RunFile
from rubric_integrations.reporting.page.view import page_data

_BINS = 20


def report_page(runs: Sequence[RunFile], title: str | None = None) -> str:
    """Render one run, or two to compare, as an HTML page.

    Args:
        runs: One run, or two.
        title: The page's heading; by default the rubric's name.

    Raises:
        ValueError: There is no run, or there are more than two.
        ImportError: The extra `report` is not installed.

    Example:
        >>> report_page([RunFile.of("tonight", [])], "Nothing yet")[:15]
        '<!doctype html>'
    """
    if not 1 <= len(runs) <= 2:
        raise ValueError(f"`runs` must be one run, or two to compare, got {len(runs)}")
    data = json.dumps(page_data(runs), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    script = _asset("page.js")
    return _template().render(
        title=title or runs[0].rubric or "Rubric report",
        runs=[(run, summarize(run.rows)) for run in runs],
        comparison=compare(*runs) if len(runs) == 2 else None,
        criteria=criterion_figures(runs[-1]),
        histogram=[_histogram(run) for run in runs],
        bins=_BINS,
        data=base64.b64encode(gzip.compress(data, mtime=0)).decode(),
        style=_asset("page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _histogram(run: RunFile) -> list[int]:
    """Count the scores in equal bins over [0, 1]; scores below 0 or above 1 count in the first or the last bin."""
    counts = [0] * _BINS
    for row in run.rows:
        if row.report and row.report.score is not None:
            counts[min(_BINS - 1, max(0, int(row.report.score * _BINS)))] += 1
    return counts


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise ImportError(f"a report page needs jinja2: {install_command('report')}") from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_asset("page.html"))


def _asset(name: str) -> str:
    return resources.files("rubric_integrations.reporting.page").joinpath(name).read_text(encoding="utf-8")
