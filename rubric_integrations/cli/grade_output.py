"""Prints the results of `grade`: tables, problems, one summary line, and how to resume a run that stopped."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations._util.terminal import plain, spend_text
from rubric_integrations.cli.console import err, out

if TYPE_CHECKING:
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.summary import Graded, RunSummary

# Up to MAX_TABLES submissions get a table each, and up to MAX_RANKED a ranking. More would not be read in a terminal;
# `--out` has every submission.
MAX_TABLES = 12
MAX_RANKED = 50


class FirstResults:
    """Collects the results that are printed in the end, so that memory does not grow with the run.

    Attributes:
        results: The first results, at most one more than are ranked.
        problems: The first rows without a complete grade, with the reason.
        more_problems: The number of such rows that `problems` does not hold.
    """

    def __init__(self) -> None:
        self.results: list[Graded] = []
        self.problems: list[str] = []
        self.more_problems = 0

    def add(self, graded: Graded) -> None:
        """Add the next result."""
        if len(self.results) <= MAX_RANKED:
            self.results.append(graded)
        if problem := graded.judge_error or graded.row.error:
            if len(self.problems) < MAX_RANKED:
                self.problems.append(f"{graded.row.id}: {problem}")
            else:
                self.more_problems += 1


def print_results(first: FirstResults, summary: RunSummary, rubric: Rubric, out_file: Path | None) -> None:
    """Print a finished run: tables and ranking if it is small, problems on stderr, and a summary line."""
    from rubric_integrations.reporting.terminal import groups_table, ranking_table, report_table

    if summary.submissions <= MAX_TABLES:
        for graded in first.results:
            out.print(report_table(graded))
            if rubric.tree is not None and graded.report and graded.report.report:
                out.print(groups_table(graded, rubric))
    if summary.submissions <= MAX_RANKED:
        out.print(ranking_table(first.results))
    for problem in first.problems:
        err.print(plain(problem), style="red", soft_wrap=True)
    if first.more_problems:
        err.print(plain(f"and {first.more_problems} more"), style="red")
    out.print(plain(_summary_text(summary, rubric, out_file)), soft_wrap=True)


def _summary_text(summary: RunSummary, rubric: Rubric, out_file: Path | None) -> str:
    scored = f" of {summary.scored}" if summary.scored < summary.graded else ""
    mean = "no score" if summary.mean_score is None else f"mean{scored} {summary.mean_score:.3f}"
    spend = spend_text(summary.spend.calls, summary.spend.total_tokens, summary.spend.cost)
    reused = f", {summary.reused} judgments from the ledger" if summary.reused else ""
    reports = f" Reports: {out_file}" if out_file else ""
    return (
        f"{summary.graded} of {summary.submissions} graded by {rubric.name or 'the rubric'}: {mean}, "
        f"{summary.passed} passed; {spend}{reused}.{reports}"
    )


def print_how_to_resume(reason: str, summary: RunSummary, ledger: Path | None) -> None:
    """Print why a run stopped, what is done, and the command that resumes it."""
    from rubric_integrations.runs.progress import summary_line

    lines = [f"{reason} {summary.submissions} submissions were done: {summary_line(summary)}."]
    if ledger and ledger.exists():
        # The ledger lets the run continue, so `--overwrite` is not needed, and `--resume` must not be repeated.
        arguments = [argument for argument in sys.argv[1:] if argument not in ("--overwrite", "--resume")]
        command = shlex.join(["rubric-integrations", *arguments, "--resume"])
        lines.append(f"The judgments are stored in {ledger}. To go on: {command}")
    for line in lines:
        err.print(plain(line), soft_wrap=True)
