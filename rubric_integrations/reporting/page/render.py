"""Renders the report page: a template, a style sheet and a script, with the data of the runs packed into the file.

Text from models and users reaches the page only as text: the template escapes it, or the script sets it as
`textContent`. As a second defence, the content security policy allows no other script.
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
from rubric_integrations.reporting.page.redaction import redact_comparability, redact_over_time, redact_row
from rubric_integrations.reporting.page.runs_over_time import ComparedPair, RunsOverTime, draw, draw_small, follow_runs
from rubric_integrations.reporting.page.trust_figures import trust_figures
from rubric_integrations.runs.files import RunFile, import_notes, matched_rows
from rubric_integrations.scoring.labels import LabelledJudgment
from rubric_integrations.trust.comparable_runs import Comparability, comparability
from rubric_integrations.trust.comparison import sample_groups
from rubric_integrations.trust.planning import JudgmentToLabel

# The files of one script, whose hash is in the content security policy. `start.js` calls the functions of the others.
_SCRIPTS = (
    "data.js", "sums.js", "labels.js", "labelling.js", "words.js", "list.js", "markdown.js", "turns.js",
    "compare.js", "submission.js", "overrule.js", "whatif.js", "many.js", "overview.js", "print.js", "keys.js",
    "start.js",
)  # fmt: skip
_STYLES = (
    "base.css", "overview.css", "list.css", "submission.css", "labels.css", "compare.css", "whatif.css", "small.css",
    "print.css",
)  # fmt: skip
# The most criteria of a comparison, because nobody reads a longer table. The smallest p-values come first.
MOST_CRITERIA, MOST_CRITERIA_OF_MANY = 100, 20


def report_page(
    runs: Sequence[RunFile],
    title: str | None = None,
    *,
    to_label: Sequence[JudgmentToLabel] = (),
    labels: Sequence[LabelledJudgment] | None = None,
    redact: bool = False,
) -> str:
    """Render one run, a comparison of two runs, or many runs over time as an HTML page.

    Args:
        runs: One run, two runs, or more in chronological order. If there are more than two runs, and more than 12 runs
            or 3,000 rows in total, the page has the figures of all runs, but only the rows of the last run and the
            previous one.
        title: The heading of the page. Default: the name of the rubric.
        to_label: Judgments of the run for human labelling, as drawn by `choose_for_labels`. The page then becomes a
            labelling tool, which shows one judgment after another without the judge's answer.
        labels: Human labels of the last run. With labels, the page has a section about the judge's agreement with them.
            None leaves it out.
        redact: Whether to leave out all texts of submissions, judges and raters, the names of raters, attachments and
            metadata, for readers who must not see them. Ids, the rubric, answers, scores and spend are kept.

    Raises:
        ValueError: `runs` is empty, or `to_label` is combined with several runs or with `redact`.
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
    over_time: RunsOverTime | None = None,
    order: str = "",
    redact: bool = False,
) -> Iterator[str]:
    """Render a page as parts to write one after another. The complete page is never in memory.

    All rows are read before this function returns. Arguments and exceptions are the same as for `report_page`. In
    addition, `comparable` is the `comparability` of two runs, and `over_time` has the figures of more runs (see
    `follow_runs`). Both are computed if they are None. `order` is a text that states how the order of the runs was
    determined.
    """
    if not runs:
        raise ValueError("`runs` must be one run at least, got none")
    if to_label and len(runs) != 1:
        raise ValueError(f"`to_label` needs one run, got {len(runs)}: the judgments to label are those of one judge")
    if to_label and redact:
        raise ValueError("`redact` leaves out the texts that are to be labelled: make a page without it for raters")
    template = _template()
    if len(runs) > 2 and over_time is None:
        over_time = follow_runs(runs)
    if redact and over_time is not None:
        over_time = redact_over_time(over_time)
    # The runs whose rows are on the page.
    with_rows = range(len(runs)) if over_time is None else over_time.with_rows
    kept = [runs[place] for place in with_rows]
    summaries, facts = [SummaryFigures(run.pass_mark, run.missing) for run in kept], [FactFigures(run) for run in kept]
    shared, criteria, groups = SharedColumns(), ColumnFigures(), GroupFigures()
    if comparable is None and len(runs) == 2:
        comparable = comparability(*runs)
    if redact and comparable is not None:
        comparable = redact_comparability(comparable)
    comparison = (
        ComparisonFigures(comparable, sample_groups(runs)) if comparable is not None and len(runs) == 2 else None
    )
    data = PageData([run.name for run in kept], is_redacted=redact)
    for key, all_rows in matched_rows(kept):
        rows = [row and redact_row(row) for row in all_rows] if redact else all_rows
        for row, summary, fact in zip(rows, summaries, facts, strict=True):
            if row:
                summary.add(row)
                fact.add(row)
        if rows[-1]:
            criteria.add(rows[-1])
            groups.add(rows[-1])
        shared.add(rows)
        changed = comparison.add(key, *rows) if comparison else ()
        data.add(key, rows, shared.shared, changed)
    columns = shared.columns
    shown = [(run, summary.summary, fact.facts) for run, summary, fact in zip(kept, summaries, facts, strict=True)]
    pairs: Sequence[ComparedPair] = over_time.pairs if over_time else ()
    if comparison:
        pairs = [ComparedPair(0, 1, comparison.comparison)]
    script = _script(labels=bool(to_label))
    return template.generate(
        title=title or runs[-1].rubric or "Rubric report",
        # With many runs, the overview shows the last one.
        runs=shown[-1:] if over_time else shown,
        names=[run.name for run in runs],
        with_rows=list(with_rows),
        shown_pair=over_time.shown_pair if over_time else (0, 1),
        pairs=pairs,
        most=MOST_CRITERIA if len(pairs) == 1 else MOST_CRITERIA_OF_MANY,
        columns={key: place for place, key in enumerate(columns.keys)} if columns.kind == "criteria" else {},
        over_time=over_time,
        order=order,
        chart=draw(over_time, over_time.score) if over_time else None,
        sparks=[draw_small(over_time, line) for line in over_time.criteria] if over_time else (),
        kind=columns.kind,
        criteria=sorted(criteria.of(columns), key=lambda criterion: -criterion.loss),
        forgiven=criteria.forgiven,
        groups=groups.tables,
        redacted=redact,
        has_criteria=shared.has_criteria,
        bins=BINS,
        to_label=len(to_label),
        notes=[note for run in runs for note in (*([run.stop_note] if run.missing else []), *import_notes(run.rows))],
        trust=None if labels is None else trust_figures(kept, labels, redact=redact),
        index=data.index(columns, to_label),
        blocks=data.blocks,
        can_try=not to_label and data.shares is not None,
        style="".join(map(_asset, _STYLES)),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _script(*, labels: bool) -> str:
    """Return the complete script. It puts text from models and users into the document only with `textContent`.

    Args:
        labels: Whether the page is a tool to label judgments. The script of this view is long and is left out
            otherwise.
    """
    names = [name for name in _SCRIPTS if labels or name != "labelling.js"]
    return '(async () => {\n"use strict";\n' + "".join(map(_asset, names)) + "})();\n"


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
