"""Renders the report page: a template, a style sheet and a script, with the data of the runs packed into the file.

Text from models and users reaches the page only as text: the template escapes it, or the script sets it as
`textContent`. As a second defence, a content security policy allows no other script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from rubric_integrations._util.lazy import install_command
from rubric_integrations.reporting.page.data import PageData
from rubric_integrations.reporting.page.figures import (
    BINS,
    ColumnFigures,
    ComparisonFigures,
    SharedColumns,
    SummaryFigures,
)
from rubric_integrations.reporting.page.overview_figures import FactFigures, GroupFigures
from rubric_integrations.reporting.page.redaction import redact_comparability, redact_row
from rubric_integrations.reporting.page.trust_figures import trust_figures
from rubric_integrations.runs.files import RunFile, import_notes, matched_rows
from rubric_integrations.scoring.labels import LabelledJudgment
from rubric_integrations.trust.comparable_runs import Comparability, comparability
from rubric_integrations.trust.planning import JudgmentToLabel

# One function, whose hash the content security policy names. `start.js` runs what the others define.
_SCRIPTS = (
    "data.js", "labels.js", "labelling.js", "words.js", "list.js", "markdown.js", "submission.js",
    "overrule.js", "overview.js", "print.js", "keys.js", "start.js",
)  # fmt: skip
_STYLES = ("base.css", "overview.css", "list.css", "submission.css", "labels.css", "small.css", "print.css")


def report_page(
    runs: Sequence[RunFile],
    title: str | None = None,
    *,
    to_label: Sequence[JudgmentToLabel] = (),
    labels: Sequence[LabelledJudgment] | None = None,
    redact: bool = False,
) -> str:
    """Render one run, or two to compare, as an HTML page.

    Args:
        runs: One run, or two.
        title: The page's heading; by default the rubric's name.
        to_label: Judgments of the run that people shall label, as `choose_for_labels` draws them. The page then opens
            as a tool that shows one after another, without what the judge answered.
        labels: People's labels of the last run: the page gets a section that says how far the judge can be trusted.
            None leaves it out.
        redact: Whether to leave out all texts of submissions, judges and raters, attachments and metadata, for readers
            who may not see them. Ids, the rubric, answers, scores and spend stay.

    Raises:
        ValueError: There is no run, or there are more than two; or two with `to_label`, or `redact` with it.
        ImportError: The extra `report` is not installed.

    Example:
        >>> report_page([RunFile.of("tonight", [])], "Nothing yet")[:15]
        '<!doctype html>'
    """
    return "".join(page_parts(runs, title, to_label=to_label, labels=labels, redact=redact))


def page_parts(
    runs: Sequence[RunFile],
    title: str | None = None,
    *,
    to_label: Sequence[JudgmentToLabel] = (),
    labels: Sequence[LabelledJudgment] | None = None,
    comparable: Comparability | None = None,
    redact: bool = False,
) -> Iterator[str]:
    """Render a page as parts to write one after the other, so that memory never holds the whole page.

    All rows are read before this returns. Arguments and exceptions are those of `report_page`. `comparable` is the
    `comparability` of two runs; it is computed if it is None.
    """
    if not 1 <= len(runs) <= 2:
        raise ValueError(f"`runs` must be one run, or two to compare, got {len(runs)}")
    if to_label and len(runs) != 1:
        raise ValueError("`to_label` needs one run, got 2: the judgments to label are those of one judge")
    if to_label and redact:
        raise ValueError("`redact` leaves out the texts that are to be labelled: make a page without it for raters")
    template = _template()
    summaries, facts = [SummaryFigures(run.pass_mark) for run in runs], [FactFigures(run) for run in runs]
    if comparable is None:
        comparable = comparability(*runs) if len(runs) == 2 else Comparability()
    if redact:
        comparable = redact_comparability(comparable)
    shared, criteria, comparison = SharedColumns(), ColumnFigures(), ComparisonFigures(comparable)
    groups = GroupFigures()
    data = PageData([run.name for run in runs], is_redacted=redact)
    for key, all_rows in matched_rows(runs):
        rows = [row and redact_row(row) for row in all_rows] if redact else all_rows
        for row, summary, fact in zip(rows, summaries, facts, strict=True):
            if row:
                summary.add(row)
                fact.add(row)
        if rows[-1]:
            criteria.add(rows[-1])
            groups.add(rows[-1])
        shared.add(rows)
        changed = comparison.add(key, *rows) if len(rows) == 2 else ()
        data.add(key, rows, shared.shared, changed)
    columns = shared.columns
    script = _script()
    return template.generate(
        title=title or runs[0].rubric or "Rubric report",
        runs=[(run, summary.summary, fact.facts) for run, summary, fact in zip(runs, summaries, facts, strict=True)],
        comparison=comparison.comparison if len(runs) > 1 else None,
        kind=columns.kind,
        criteria=sorted(criteria.of(columns), key=lambda criterion: -criterion.loss),
        forgiven=criteria.forgiven,
        groups=groups.tables,
        redacted=redact,
        has_criteria=shared.has_criteria,
        bins=BINS,
        to_label=len(to_label),
        notes=[note for run in runs for note in import_notes(run.rows)],
        trust=None if labels is None else trust_figures(runs, labels, redact=redact),
        index=data.index(columns, to_label),
        blocks=data.blocks,
        style="".join(map(_asset, _STYLES)),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _script() -> str:
    """Return the whole script: text from models and users is put into the document with `textContent` only."""
    return '(async () => {\n"use strict";\n' + "".join(map(_asset, _SCRIPTS)) + "})();\n"


def _template() -> Any:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise ImportError(f"a report page needs jinja2: {install_command('report')}") from None
    loader = FunctionLoader(_asset)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html")


def _asset(name: str) -> str:
    return resources.files("rubric_integrations.reporting.page").joinpath(name).read_text(encoding="utf-8")
