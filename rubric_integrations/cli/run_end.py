"""The end of a run of `grade`: prints its results and its gates, and decides on the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, err
from rubric_integrations.cli.gates import Gates, print_failed_gates
from rubric_integrations.cli.grade_output import print_how_to_resume, print_results

if TYPE_CHECKING:
    from rubric_integrations.cli.run_files import RunFiles
    from rubric_integrations.cli.run_results import RunResults
    from rubric_integrations.runs.summary import RunSummary


def end_run(
    summary: RunSummary, results: RunResults, gates: Gates, files: RunFiles, rubric: str, *, quiet: bool
) -> Exit:
    """Print a run that has ended by itself, and return the exit code.

    Args:
        summary: The run's summary.
        results: Its results.
        gates: Its gates.
        files: Its files.
        rubric: The names of its rubrics.
        quiet: Whether to print only the summary line, problems and gates that failed.
    """
    if summary.judge_is_unusable and not summary.graded:
        err.print(plain(f"No row was graded: {summary.stopped}"), style="red", soft_wrap=True)
        return Exit.JUDGE_FAILED
    print_results(results.first, summary, rubric, None if results.partial else files.out, quiet=quiet)
    if summary.stopped and not gates.is_decided_early:
        print_how_to_resume(f"Stopped: {summary.stopped}.", summary, files.ledger, results.partial)
        return Exit.JUDGE_FAILED if summary.judge_is_unusable else Exit.STOPPED
    has_failed_gate = print_failed_gates(results.tally.failures(summary))
    if gates.mean and not quiet:
        gates.mean.print_if_passed()
    return _exit_code(summary, has_failed_gate, gates.max_failed or 0)


def _exit_code(summary: RunSummary, has_failed_gate: bool, max_failed: int) -> Exit:
    if summary.failed > max_failed:
        return Exit.JUDGE_FAILED
    if summary.ungradable:
        return Exit.BAD_INPUT
    if has_failed_gate:
        return Exit.NOT_PASSED
    return Exit.DONE
