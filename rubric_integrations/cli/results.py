"""The results of a `grade` run: prints them, writes them to files, and chooses the exit code."""

from __future__ import annotations

import heapq
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted
from rubric_integrations.cli.console import MAX_RANKED, Exit, err, out, print_gate, refuse, sigterm_interrupts
from rubric_integrations.cli.options import LedgerAddress, ledger_exists, without_secrets
from rubric_integrations.cli.outputs import OutputFile, ParquetOutput
from rubric_integrations.cli.rows import Problems
from rubric_integrations.judges.store import StoreError
from rubric_integrations.reporting.grades import JUnitReport, groups_table, ranking_table, report_table, tags_table
from rubric_integrations.runs.batches.base import BatchError, BatchLedger, load
from rubric_integrations.runs.files import run_line
from rubric_integrations.runs.ledger.addresses import address_text
from rubric_integrations.runs.summary import Graded, RunSummary, summary_line
from rubric_integrations.trust.model_versions import names_other_model, replies_text

if TYPE_CHECKING:
    from rubric_integrations.cli.gates import MeanGate
    from rubric_integrations.cli.grade import RunFiles, RunOutputs
    from rubric_integrations.runs.ledger import RunLedger
    from rubric_integrations.runs.run import Run
    from rubric_integrations.submission.inputs import Row
    from rubric_integrations.trust.gates import RowGates

# The number of worst submissions that are printed as a table. `--out` has every submission.
MAX_TABLES = 3
MAX_TAGS = 20


class FirstResults:
    """Collects only the results that are printed at the end. Therefore, the use of memory does not grow with the run.

    Attributes:
        problems: The rows without a complete grade, by kind of problem.
    """

    def __init__(self) -> None:
        # At most one result more than the ranking has.
        self._first: list[tuple[int, Graded]] = []
        self.problems = Problems()
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
            # The first entry of a heap is its smallest. With both signs reversed, the best and latest row is dropped
            # first.
            entry = (-worth, -place, graded)
            (heapq.heappush if len(self._worst) < MAX_TABLES else heapq.heappushpop)(self._worst, entry)

    @property
    def results(self) -> list[Graded]:
        """The results that arrived first, in the order of their rows. At most 51: one more than are ranked."""
        return [graded for _, graded in sorted(self._first, key=lambda entry: entry[0])]

    def with_tables(self) -> list[Graded]:
        """Return the results to print as tables: all results of a small run, or the worst results of a larger run.

        In a larger run, results with the full score and rows without a complete grade are left out.
        """
        if self._count <= MAX_TABLES:
            return self.results
        return [graded for *_, graded in sorted(self._worst, reverse=True)]


def print_results(
    first: FirstResults,
    summary: RunSummary,
    rubric: str,
    out_file: Path | None,
    *,
    judge: str = "",
    quiet: bool = False,
) -> None:
    """Print a finished run: tables and ranking, problems on stderr, and a summary line.

    Args:
        first: The rows to print.
        summary: The run's summary.
        rubric: The name of the run's rubric.
        out_file: The file with the reports, if there is one.
        judge: The names of the judges. Models that replies name are printed if they have other names, or are several of
            one judge.
        quiet: Whether to leave out tables and ranking.
    """
    if not quiet:
        _print_tables(first, summary)
        if summary.submissions > MAX_TABLES and not summary.stopped:
            out.print(plain(_next_commands(len(first.with_tables()), summary.submissions, out_file)), soft_wrap=True)
    for problem in first.problems.lines(f"; all are in {out_file}" if out_file else "; `--out FILE` writes all"):
        err.print(plain(problem), style="red", soft_wrap=True)
    # The name of a cascade is `a then b`, the name of an aligned judge ends in ` (aligned)`.
    if (models := replies_text(summary.models)) and names_other_model(summary.models, re.split(r",? ", judge)):
        err.print(plain(f"{models[0].upper()}{models[1:]}."), soft_wrap=True)
    out.print(plain(_summary_text(summary, rubric, out_file)), soft_wrap=True)


def _print_tables(first: FirstResults, summary: RunSummary) -> None:
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


def _next_commands(count: int, submissions: int, out_file: Path | None) -> str:
    """Say which submissions the tables show, and name the two commands that show more."""
    shown = {
        0: f"None of {submissions:,} submissions is shown: no graded one lost points",
        1: f"Of {submissions:,} submissions, only the worst is shown",
    }.get(count, f"Of {submissions:,} submissions, only the {count} worst are shown")
    is_readable = out_file is not None and out_file.suffix != ".parquet" and out_file.is_file()
    name = shlex.quote(str(out_file)) if is_readable else "run.jsonl"
    first = "To go on" if is_readable else f"To go on, add `--out {name}`; then"
    return (
        f"{shown}. {first}: `rubric-integrations show {name}` prints the figures of the run and its "
        f"worst rows, `rubric-integrations report {name}` makes a page with all of them."
    )


def _summary_text(summary: RunSummary, rubric: str, out_file: Path | None) -> str:
    scored = f" of {summary.scored}" if summary.scored < summary.graded else ""
    mean = "no score" if summary.mean_score is None else f"mean{scored} {summary.mean_score:.3f}"
    spend = summary.spend.summary()
    reused = f", {counted(summary.reused, 'judgment')} from the ledger" if summary.reused else ""
    cut = f", {summary.omitted_characters:,} characters of tool results omitted" if summary.omitted_characters else ""
    escalated = f", {summary.escalations.summary()}" if summary.escalations.judgments else ""
    reports = f" Reports: {out_file}" if out_file else ""
    return (
        f"{summary.graded} of {max(summary.submissions, summary.rows or 0)} graded by {rubric}: {mean}, "
        f"{summary.passed} passed; {spend}{reused}{escalated}{cut}.{reports}"
    )


def print_how_to_resume(
    reason: str, summary: RunSummary, ledger: LedgerAddress | None, partial: Path | None = None
) -> None:
    """Print why a run stopped, how far it came, the command that resumes it, and the file with the reports so far."""
    is_limit = summary.stopped is not None and not summary.judge_is_unusable
    is_named = any(argument.partition("=")[0] == "--run" for argument in sys.argv[1:])
    if is_limit and not is_named:
        reason = f"{reason.removesuffix('.')}, which counts this start alone."
    total = f"{summary.done} submissions" if summary.rows else counted(summary.submissions, "submission")
    lines = [f"{reason} {total} done: {summary_line(summary)}."]
    if ledger and ledger_exists(ledger):
        # The run continues from the ledger. Therefore, `--overwrite` is not needed, and `--resume` must not be
        # repeated.
        arguments = [argument for argument in sys.argv[1:] if argument not in ("--overwrite", "--resume")]
        command = shlex.join(["rubric-integrations", *without_secrets(arguments), "--resume"])
        # The limits of a run with a name include the earlier spend.
        stops_at_once = is_limit and (is_named or not summary.spend.calls)
        how = "To go on, raise the limit." if stops_at_once else f"To go on: {command}"
        # Failed requests of earlier starts are not in the ledger.
        spent = summary.spend_of_all_starts.model_copy(update={"is_lower_bound": False}).summary()
        in_all = f" All starts together have spent at least {spent}." if summary.reused else ""
        lines.append(f"The judgments are stored in {address_text(ledger)}.{in_all} {how}")
    if partial:
        lines.append(f"The reports so far are in {partial}; the next run starts that file again.")
    for line in lines:
        err.print(plain(line), soft_wrap=True)


def _warn_of_batches(ledger: object) -> None:
    """Warn if a ledger has batches that are not collected, because this run would pay for their requests again."""
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


def end_run(summary: RunSummary, results: RunResults, files: RunFiles, rubric: str, *, quiet: bool) -> Exit:
    """Print the results of a run that was not interrupted and return the exit code.

    Args:
        summary: The run's summary.
        results: The run's results.
        files: The run's files.
        rubric: The names of the run's rubrics.
        quiet: Whether to print only the summary line, problems and failed gates.
    """
    if summary.judge_is_unusable and not summary.graded:
        err.print(plain(f"No row was graded: {summary.stopped}"), style="red", soft_wrap=True)
        return Exit.BAD_INPUT if summary.has_wrong_setting else Exit.JUDGE_FAILED
    print_results(
        results.first, summary, rubric, None if results.partial else files.out, judge=results.judge, quiet=quiet
    )
    if summary.stopped and not results.is_decided_early:
        print_how_to_resume(f"Stopped: {summary.stopped}.", summary, files.ledger, results.partial)
        return Exit.JUDGE_FAILED if summary.judge_is_unusable else Exit.STOPPED
    mean, baseline = (results.mean.result, str(results.mean.baseline_path)) if results.mean else (None, "")
    are_accepted = [
        print_gate(result, baseline=baseline, quiet=quiet or result.alpha is None)
        for result in results.gates.results(mean)
    ]
    if mean and not mean.is_accepted:
        against = f" (against the baseline: {mean.change})" if mean.change else ""
        err.print(plain(f"gate decision: {mean.decision}{against}"), style="red", soft_wrap=True)
    if summary.failed > (results.gates.max_failed or 0):
        return Exit.JUDGE_FAILED
    if summary.ungradable:
        return Exit.BAD_INPUT
    return Exit.DONE if all(are_accepted) else Exit.NOT_PASSED


class RunResults:
    """Collects the results of one run and writes them to the output files.

    Args:
        outputs: The files to write.
        gates: The gates of the run, to which each row is added.
        mean: The statistical gate on the mean score. None without `--alpha`.
        suite: The name of the suite in the JUnit file.
        judge: The names of the judges, for the files.

    Attributes:
        first: The results to print.
        judge: The names of the judges.
    """

    def __init__(self, outputs: RunOutputs, gates: RowGates, mean: MeanGate | None, *, suite: str, judge: str):
        self.first, self.gates, self.mean, self.judge = FirstResults(), gates, mean, judge
        self._out, self._junit_file = outputs
        self._junit = JUnitReport(suite) if self._junit_file else None
        # The results whose lines have the number of rows of the run. Only the first line of the complete file keeps it.
        self._marked: list[tuple[Graded, int]] = []

    @property
    def is_decided_early(self) -> bool:
        """Whether the run may end before its last row, because the gate on the mean is decided."""
        return self.mean is not None and self.mean.is_decided_early

    @property
    def must_be_ordered(self) -> bool:
        """Whether the results must arrive in the order of the rows.

        This is the case if they cannot be sorted later, for example because the output is a pipe.
        """
        return self._out is not None and self._out.is_direct

    @property
    def partial(self) -> Path | None:
        """The file with the reports of an interrupted run. None if there is none."""
        return self._out.left_partial if self._out else None

    def collect(
        self, run: Run, store: RunLedger | None, ledger: LedgerAddress | None, place_of: Callable[[Row], int]
    ) -> None:
        """Iterate over the run to its end and write its results. End the command if it is interrupted.

        Args:
            run: The run. Its results may arrive in any order.
            store: The run's ledger. It is opened before the output files: if it cannot be used, the files of an earlier
                run stay unchanged.
            ledger: The address of the ledger, for the message about an interrupted run.
            place_of: Returns the position of a row in the file of responses. Called once for each result.
        """
        _warn_of_batches(store)
        try:
            files = (self._out or nullcontext(), self._junit_file or nullcontext())
            with store or nullcontext(), files[0], files[1], sigterm_interrupts():
                self._collect(run, place_of)
        except StoreError as error:
            refuse(f"{error}; the reports so far are in {self.partial}" if self.partial else str(error))
        except KeyboardInterrupt:
            print_how_to_resume("Stopped.", run.summary, ledger, self.partial)
            raise typer.Exit(Exit.INTERRUPTED) from None

    def _collect(self, run: Run, place_of: Callable[[Row], int]) -> None:
        for graded in run:
            self._add(graded, place_of(graded.row))
        for graded, place in self._marked[:-1]:
            self._write(graded._replace(run=None), place)
        if run.summary.stopped and self._out and not self.is_decided_early:
            # The reports of some rows must not replace the complete reports of an earlier run.
            self._out.leave_unfinished()
        if self._junit_file and self._junit:
            self._junit_file.write(self._junit.to_xml(run.summary.seconds, decided_early=self.is_decided_early))

    def _add(self, graded: Graded, place: int) -> None:
        self.first.add(graded, place)
        self.gates.add(graded, place)
        if self.mean:
            self.mean.add(graded)
        if self._junit:
            self._junit.add(graded, place)
        if graded.run and isinstance(self._out, OutputFile):
            self._marked.append((graded, place))
        self._write(graded, place)

    def _write(self, graded: Graded, place: int) -> None:
        if isinstance(self._out, ParquetOutput):
            self._out.write(graded)
        elif self._out:
            self._out.write(run_line(graded, judge=self.judge), place)
