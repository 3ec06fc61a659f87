"""Shows a finished run in a terminal: its figures, its worst rows, examples for a criterion, and one row in full.

Text from models and users is printed without markup and control characters. Such text never begins a line,
because a CI system would interpret a line such as `::error::` in a log as a command. Therefore, it is in a frame, or
after a word on a line that is not wrapped.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted, one_line
from rubric_integrations.reporting.page.figures import (
    ColumnFigures,
    CriterionFigures,
    SharedColumns,
    Summary,
    SummaryFigures,
)
from rubric_integrations.reporting.score_sum import sum_score, why_not_passed
from rubric_integrations.reporting.turns import arguments_text, first_lines, is_of_steps, read_turns
from rubric_integrations.runs.files import GradedRow, RunFile
from rubric_integrations.scoring.report import CriterionReport, ReplyModels, desirability, merge_models
from rubric_integrations.submission.steps import Step
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.comparable_runs import recorded_part
from rubric_integrations.trust.model_versions import (
    NO_VERSION,
    fingerprints,
    names_other_model,
    replies_text,
    unversioned_models,
)

# The most characters of a text in a list of rows. A row in full has the complete text.
_MAX_EXCERPT = 160
# As on the page: of more steps, only the first, the last and the cited ones are shown.
_MOST_STEPS, _FIRST_STEPS, _LAST_STEPS = 40, 3, 5


class UnknownNameError(ValueError):
    """Raised if a run has no row with the requested id, or no criterion with the requested name."""


def show_run(run: RunFile, count: int = 5) -> Iterator[RenderableType]:
    """Yield the figures of a run, the points that each criterion costs, and the rows with the lowest scores.

    Args:
        run: The run.
        count: The largest number of rows to show.
    """
    summary, shared, columns = SummaryFigures(missing=run.missing), SharedColumns(), ColumnFigures()
    versions = _Versions()
    for row in run.rows:
        summary.add(row)
        versions.add(row)
        shared.add([row])
        columns.add(row)
    yield from map(plain, _figures(run, summary.summary, versions.lines))
    if criteria := columns.of(shared.columns):
        yield _criteria_table(criteria, shared.columns.kind)
    for row in _lowest(run.rows, count):
        yield Text()
        yield from _short_row(row)


def show_criterion(run: RunFile, name: str, count: int = 5) -> Iterator[RenderableType]:
    """Yield the figures of one criterion and the rows with the worst answers to it.

    Args:
        run: The run.
        name: The criterion's name.
        count: The number of rows to show.

    Raises:
        UnknownNameError: No row has a criterion with this name.
    """
    columns, names = ColumnFigures(), dict[str, None]()
    worst, total = list[tuple[float, float, int, GradedRow, CriterionReport]](), 0
    for place, row in enumerate(run.rows):
        criteria = row.report.criteria if row.report else ()
        names.update(dict.fromkeys(criterion.name for criterion in criteria))
        for criterion in criteria:
            if criterion.name != name:
                continue
            columns.add(row._replace(report=row.report and row.report.model_copy(update={"report": (criterion,)})))
            value = desirability(criterion)
            if value is None or value == 1:
                continue
            total += 1
            entry = (-value, -_sort_score(row), -place, row, criterion)
            (heapq.heappush if len(worst) < count else heapq.heappushpop)(worst, entry)
    if name not in names:
        listed = ", ".join(map(repr, list(names)[:20])) or "none, since a judge gave one overall score"
        raise UnknownNameError(f"no row has a criterion {name!r}: the criteria are {listed}")
    if run.missing:
        yield plain(run.stop_note)
    shared = SharedColumns()
    shared.shared = dict.fromkeys(columns.keys)
    yield _criteria_table(columns.of(shared.columns), "criteria")
    shown = f", {len(worst)} of them shown" if len(worst) < total else ""
    order = ": the worst answers first, and of equal answers the lowest scores" if len(worst) > 1 else ""
    yield plain(f"{counted(total, 'row')} where it is not as the rubric wants{shown}{order}")
    for *_, row, criterion in sorted(worst, key=lambda entry: entry[:3], reverse=True):
        yield Text()
        yield plain(f"row {row.id}: {criterion.verdict}, score {_score(row)}. {_cut(criterion.explanation)}")
        yield from _excerpts(row)


def show_row(run: RunFile, row_id: str) -> Iterator[RenderableType]:
    """Yield all rows with this id, each with its texts, its answers, and the calculation of its score.

    Args:
        run: The run.
        row_id: The row's id.

    Raises:
        UnknownNameError: No row has the id.
    """
    has_row = False
    for row in run.rows:
        if row.id == row_id:
            has_row = True
            yield from _whole_row(row)
    if not has_row:
        listed = ", ".join(repr(key[0]) for key in run.row_keys()[:10])
        stopped = f"; {run.stop_note}" if run.missing else ""
        raise UnknownNameError(f"no row has the id {row_id!r}: ids are such as {listed}{stopped}")


class _Versions:
    """Collects the judges' models of a run, row by row."""

    def __init__(self) -> None:
        self._records: dict[str, None] = {}
        self._models: ReplyModels = {}

    def add(self, row: GradedRow) -> None:
        self._records[json.dumps(recorded_part(row, "grader").get("judges"))] = None
        if row.report is not None:
            self._models = merge_models(self._models, row.report.reply_models)

    @property
    def lines(self) -> list[str]:
        """The models whose names name no version, and the models of the replies, if they are not the requested ones."""
        aliases = dict.fromkeys(model for record in self._records for model in unversioned_models(record))
        lines = [f"the judge {one_line(model)} {NO_VERSION}" for model in aliases]
        requested = [str(model) for record in self._records for model, *_ in fingerprints(record)]
        return [*lines, replies_text(self._models)] if names_other_model(self._models, requested) else lines


def _figures(run: RunFile, summary: Summary, versions: Iterable[str]) -> Iterator[str]:
    """Yield the figures of a run, one line each."""
    judge = f", judged by {run.judge}" if run.judge else ""
    rubric = run.rubric or "a rubric without a name"
    yield f"run {run.name}: {counted(summary.submissions, 'submission')} by {rubric}{judge}"
    yield from versions
    if summary.missing:
        yield run.stop_note
    score = summary.score
    mean = "none" if score is None or score.value is None else f"{score.value:.3f}"
    if score is not None and score.low is not None and score.high is not None:
        mean += f" [{score.low:.3f}, {score.high:.3f}]"
    share = f" ({summary.passed / summary.graded:.0%})" if summary.graded else ""
    mark = "" if run.pass_mark is None else f", pass mark {run.pass_mark:g}"
    yield f"mean score {mean}; {summary.passed:,} of {summary.graded:,} passed{share}{mark}"
    parts = [f"{counted(summary.failed, 'submission')} not graded"] if summary.failed else []
    parts += [f"{counted(summary.abstained, 'answer')} could not be judged"] if summary.abstained else []
    cost = "cost unknown" if summary.cost is None else f"{summary.at_least}${summary.cost:.4f}"
    yield "; ".join([*parts, f"{counted(summary.calls, 'call')}, {cost}"])


def _criteria_table(criteria: Iterable[CriterionFigures], kind: str) -> Table:
    title = "Points lost in a row, on average"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("criterion" if kind == "criteria" else "tag", overflow="fold")
    for name in ("weight", "points lost", "as wanted", "partly", "not", "not judged"):
        table.add_column(name, justify="right")
    for c in criteria:
        weight = "varies" if c.weight is None else f"{c.weight:+g}"
        counts = (c.met, c.partly, c.unmet, c.abstained + c.failed)
        table.add_row(plain(c.name), weight, f"{c.lost:.2f} of {c.worst:.4g}", *(f"{count:,}" for count in counts))
    return table


def _lowest(rows: Iterable[GradedRow], count: int) -> list[GradedRow]:
    """Return the rows with the lowest scores, the lowest first. Rows without a score come last."""
    return heapq.nsmallest(count, rows, key=_sort_score)


def _sort_score(row: GradedRow) -> float:
    score = row.report.score if row.report and row.is_graded else None
    return math.inf if score is None else score


def _short_row(row: GradedRow) -> Iterator[Text]:
    yield _headline(row)
    for criterion in row.report.criteria if row.report else ():
        value = desirability(criterion)
        if criterion.error or (value is not None and value < 1):
            answer = "judge failed" if criterion.error else criterion.verdict
            yield plain(f"- {criterion.name} {criterion.weight:+g}: {answer}. {_cut(criterion.explanation)}")
    yield from _excerpts(row)


def _headline(row: GradedRow) -> Text:
    return plain(f"row {row.id}: {_score(row)}. {why_not_passed(row)}".rstrip())


def _excerpts(row: GradedRow) -> Iterator[Text]:
    if row.submission is not None:
        texts = zip(("query", "response"), first_lines(row.submission, _MAX_EXCERPT + 1), strict=True)
        yield from (plain(f"{name}: {_cut(text)}") for name, text in texts if text)


def _whole_row(row: GradedRow) -> Iterator[RenderableType]:
    """Yield all parts of a row: its texts, its answers, and how they add up to the score."""
    yield _headline(row)
    if row.submission is not None:
        yield from _texts(row.submission, row.report.criteria if row.report else ())
        if row.report and row.report.exploration:
            yield plain(f"an explorer showed the judge {row.report.exploration.summary()}")
    if row.report is None:
        return
    result = sum_score(row)
    table = Table(title="From the answers to the score", title_justify="left", title_style="bold")
    for name in ("criterion", "answer", "reason"):
        table.add_column(name, overflow="fold")
    table.add_column("points", justify="right", no_wrap=True)
    for term in result.terms:
        name = f"{term.criterion.name} {term.criterion.weight:+g}" + (", required" if term.criterion.required else "")
        points = "" if term.points is None else f"{term.points or 0.0:g}"
        table.add_row(plain(name), plain(term.words), plain(term.criterion.explanation, keeps_lines=True), points)
    if result.terms:
        yield table
    if result.problem is None:
        yield plain(", ".join([result.in_words, *result.after]))
    else:
        yield plain(f"These answers do not add up to the score: {result.problem}.")


def _texts(submission: Submission, criteria: Sequence[CriterionReport]) -> Iterator[RenderableType]:
    """Yield the texts of a submission in frames, and a conversation or an agent's run as turns."""
    trajectory, is_run = submission.trajectory, is_of_steps(submission)
    for title in ("query", "response", "reference"):
        text = getattr(submission, title) or ""
        turns = None if is_run and title == "response" else read_turns(text)
        if turns is not None:
            if turns.before:
                yield _panel(title, turns.before)
            yield plain(f"{title}: {counted(len(turns.steps), 'turn')}")
            yield from (_turn(step) for step in turns.steps)
        elif text and not (is_run and title == "response"):
            yield _panel(title, text)
    if trajectory is not None:
        title = "response" if is_run else "steps"
        yield plain(f"{title}: {counted(len(trajectory.steps), 'step')}; `report` shows calls and results in full")
        last = 0
        for number in _shown_numbers(len(trajectory.steps), criteria):
            if number > last + 1:
                yield plain(f"[steps {last + 1} to {number - 1}]" if number > last + 2 else f"[step {number - 1}]")
            citing = ", ".join(entry.name for entry in criteria if number in entry.evidence)
            yield _turn(trajectory.steps[number - 1], f"{number}. ", f", cited: {citing}" if citing else "")
            last = number


def _shown_numbers(count: int, criteria: Sequence[CriterionReport]) -> Sequence[int]:
    """Return the numbers of the steps that are printed. Of many, these are the first, the last and the cited steps."""
    if count <= _MOST_STEPS:
        return range(1, count + 1)
    cited = {number for entry in criteria for number in entry.evidence if number <= count}
    return sorted({*range(1, _FIRST_STEPS + 1), *range(count - _LAST_STEPS + 1, count + 1), *cited})


def _turn(step: Step, number: str = "", citing: str = "") -> RenderableType:
    """Return a turn in a frame: its text, and one line for each call with the beginning of its result."""
    lines = [plain(step.text, keeps_lines=True)] if step.text else []
    for call in step.calls:
        result = "" if call.result is None else f" -> {_cut(call.result)}"
        failed = "FAILED " if call.is_error else ""
        lines.append(plain(f"{failed}calls {call.name} {_cut(arguments_text(call.arguments) or '')}{result}"))
    title = f"{number}{step.role}{f' {step.name}' if step.name else ''}{citing}"
    return Panel(Text("\n").join(lines), title=plain(one_line(title)), title_align="left")


def _panel(title: str, text: str) -> Panel:
    return Panel(plain(text, keeps_lines=True), title=title, title_align="left")


def _score(row: GradedRow) -> str:
    report = row.report
    if report is None or not row.is_graded:
        return "not graded"
    if report.score_range:
        low, high = report.score_range
        return f"{'undefined' if low is None else f'{low:.3f}'}..{high:.3f}"
    passed = ", passed" if report.passed else ""
    return f"{'undefined' if report.score is None else f'{report.score:.3f}'}{passed}"


def _cut(text: str) -> str:
    """Return the beginning of a text as one line."""
    words = one_line(" ".join(text[: 4 * _MAX_EXCERPT].split()))
    return words if len(words) <= _MAX_EXCERPT else f"{words[:_MAX_EXCERPT]}..."
