"""Prints the results of `grade`: tables, problems, one summary line, and how to resume a run that stopped."""

from __future__ import annotations

import heapq
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations._util.terminal import plain, spend_text
from rubric_integrations.cli.console import err, out, refuse
from rubric_integrations.cli.judge_option import without_secrets
from rubric_integrations.cli.ledger_option import LedgerAddress, ledger_exists

if TYPE_CHECKING:
    from rubric_integrations.runs.summary import Graded, RunSummary

# The MAX_TABLES worst submissions get a table each, and up to MAX_RANKED a ranking. More would not be read in a
# terminal; `--out` has every submission.
MAX_TABLES = 3
MAX_RANKED = 50
MAX_TAGS = 20
# Kinds of problems, and rows of one kind, that are printed.
MAX_KINDS = 20
MAX_IDS = 8


class FirstResults:
    """Collects the results that are printed in the end, so that memory does not grow with the run.

    Attributes:
        problems: The rows without a complete grade, by kind of problem.
    """

    def __init__(self) -> None:
        # At most one more than are ranked.
        self._first: list[tuple[int, Graded]] = []
        self.problems = _Problems()
        self._worst: list[tuple[float, int, Graded]] = []
        self._count = 0

    def add(self, graded: Graded, place: int) -> None:
        """Add the next result.

        Args:
            graded: The result.
            place: The position of its row in the file of responses.
        """
        self._count += 1
        if len(self._first) <= MAX_RANKED:
            self._first.append((place, graded))
        if problem := graded.judge_error or graded.row.error:
            self.problems.add(place, graded.row.id, problem)
        elif graded.report and not (graded.report.passed and graded.score is not None and graded.score >= 1):
            bound = graded.report.score_range
            worth = graded.score if graded.score is not None else bound[1] if bound else 0.0
            # A heap's first entry is its smallest: with both signs turned, the best and latest row is dropped first.
            entry = (-worth, -place, graded)
            (heapq.heappush if len(self._worst) < MAX_TABLES else heapq.heappushpop)(self._worst, entry)

    @property
    def results(self) -> list[Graded]:
        """The results that came first, at most one more than are ranked, in the order of their rows."""
        return [graded for _, graded in sorted(self._first, key=lambda entry: entry[0])]

    def with_tables(self) -> list[Graded]:
        """Return the results that get a table: all of a small run; of a larger one, the worst that lack anything."""
        if self._count <= MAX_TABLES:
            return self.results
        return [graded for *_, graded in sorted(self._worst, reverse=True)]


class _Problems:
    """Problems by kind, each with its first message, its first rows and their number."""

    def __init__(self) -> None:
        # By kind: the number of its rows, and the place, the id and the message of the first ones.
        self._kinds: dict[str, tuple[int, list[tuple[int, str, str]]]] = {}
        self._more = 0

    def add(self, place: int, row_id: str, problem: str) -> None:
        kind = _kind_of(problem, row_id)
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            self._more += 1
            return
        count, rows = self._kinds.get(kind, (0, []))
        self._kinds[kind] = (count + 1, sorted([*rows, (place, row_id, problem)])[: MAX_IDS + 1])

    def lines(self) -> list[str]:
        lines: list[str] = []
        for count, [(_, row_id, problem), *others] in sorted(self._kinds.values(), key=lambda kind: kind[1]):
            first, ids = f"{row_id}: {problem}", ", ".join(other_id for _, other_id, _ in others)
            rows = "1 more row" if count == 2 else f"{count - 1} more rows"
            cut = ", ..." if count - 1 > len(others) else ""
            lines.append(f"{first} (and {rows} alike: {ids}{cut})" if count > 1 else first)
        return [*lines, f"and {self._more} more rows with other problems"] if self._more else lines


def _kind_of(problem: str, row_id: str) -> str:
    """Return a problem without what differs between rows: ids, criteria, and numbers such as lines and ports."""
    text = problem.removeprefix(f"row {row_id}")
    return re.sub(r"\d+", "#", re.sub(r"`[^`]*` was not judged", "", text))


def print_results(
    first: FirstResults, summary: RunSummary, rubric: str, out_file: Path | None, *, quiet: bool = False
) -> None:
    """Print a finished run: tables and ranking, problems on stderr, and a summary line.

    Args:
        first: What to print of the rows.
        summary: The run's summary.
        rubric: The name of the run's rubric.
        out_file: The file with the reports, if there is one.
        quiet: Whether to print neither tables nor ranking.
    """
    if not quiet:
        _print_tables(first, summary)
    for problem in first.problems.lines():
        err.print(plain(problem), style="red", soft_wrap=True)
    out.print(plain(_summary_text(summary, rubric, out_file)), soft_wrap=True)


def _print_tables(first: FirstResults, summary: RunSummary) -> None:
    from rubric_integrations.reporting.terminal import groups_table, ranking_table, report_table, tags_table

    for graded in first.with_tables():
        out.print(report_table(graded))
        if graded.rubric and graded.rubric.tree is not None and graded.report and graded.report.report:
            out.print(groups_table(graded, graded.rubric))
        if graded.report and graded.report.tags and not graded.judge_error:
            out.print(tags_table(graded))
    if summary.submissions <= MAX_RANKED:
        out.print(ranking_table(first.results))
    if summary.tags and summary.submissions > 1:
        tags = sorted(summary.tags.items(), key=lambda item: item[1])
        texts = [f"{tag} {score:.3f}" for tag, score in tags[:MAX_TAGS]]
        more = f" and {len(tags) - MAX_TAGS} more" if len(tags) > MAX_TAGS else ""
        out.print(plain(f"Mean scores of the tags, the lowest first: {', '.join(texts)}{more}."), soft_wrap=True)


def _summary_text(summary: RunSummary, rubric: str, out_file: Path | None) -> str:
    scored = f" of {summary.scored}" if summary.scored < summary.graded else ""
    mean = "no score" if summary.mean_score is None else f"mean{scored} {summary.mean_score:.3f}"
    spend = spend_text(summary.spend.calls, summary.spend.total_tokens, summary.spend.cost)
    reused = f", {summary.reused} judgments from the ledger" if summary.reused else ""
    cut = f", {summary.omitted_characters:,} characters of tool results omitted" if summary.omitted_characters else ""
    escalated = f", {summary.escalations.summary()}" if summary.escalations.judgments else ""
    reports = f" Reports: {out_file}" if out_file else ""
    return (
        f"{summary.graded} of {summary.submissions} graded by {rubric}: {mean}, "
        f"{summary.passed} passed; {spend}{reused}{escalated}{cut}.{reports}"
    )


def print_how_to_resume(
    reason: str, summary: RunSummary, ledger: LedgerAddress | None, partial: Path | None = None
) -> None:
    """Print why a run stopped, what is done, the command that resumes it, and the file of the reports so far."""
    from rubric_integrations.runs.ledger.addresses import address_text
    from rubric_integrations.runs.progress import summary_line

    lines = [f"{reason} {summary.submissions} submissions were done: {summary_line(summary)}."]
    if ledger and ledger_exists(ledger):
        # The ledger lets the run continue, so `--overwrite` is not needed, and `--resume` must not be repeated.
        arguments = [argument for argument in sys.argv[1:] if argument not in ("--overwrite", "--resume")]
        command = shlex.join(["rubric-integrations", *without_secrets(arguments), "--resume"])
        lines.append(f"The judgments are stored in {address_text(ledger)}. To go on: {command}")
    if partial:
        lines.append(f"The reports so far are in {partial}; the next run starts that file again.")
    for line in lines:
        err.print(plain(line), soft_wrap=True)


def warn_of_batches(ledger: object) -> None:
    """Warn if requests of a ledger are in batches that are not collected: this run would pay for them again."""
    from rubric_integrations.runs.batches.records import BatchError, BatchLedger, load

    if not isinstance(ledger, BatchLedger):
        return
    try:
        waiting = sum(len(batch.keys) for batch in load(ledger) if not batch.collected)
    except BatchError as error:
        refuse(str(error))
    if waiting:
        line = (
            f"{waiting:,} requests of this ledger are in batches that are not collected: run `rubric-integrations "
            "collect` first, or this run requests those that it needs again, at the full price"
        )
        err.print(plain(line), style="yellow", soft_wrap=True)
