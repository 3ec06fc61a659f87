"""The command `grade`: files of responses, a ledger beside the reports, and a way to go on."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, app, err, out, refuse
from rubric_integrations.reporting.terminal import groups_table, ranking_table, report_table
from rubric_integrations.runs.progress import summary_line

if TYPE_CHECKING:
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.summary import Graded, RunSummary
    from rubric_integrations.submission.files import Row

# Up to this many submissions each get a table; of more, the ranking says enough, and `--out` has the rest.
MAX_TABLES = 12
MAX_RANKED = 50


@app.command()
def grade(
    rubric: Annotated[Path, typer.Argument(help="The rubric: a YAML or JSON file.")],
    responses: Annotated[
        Path,
        typer.Argument(
            help="What to grade: .jsonl or .csv with a `response` (and `query`, `reference`, `id`), or a text."
        ),
    ],
    judge: Annotated[
        str, typer.Option(help="A model, such as openai/gpt-5-mini or ollama_chat/llama3.2; or offline: no model.")
    ] = "offline",
    api_base: Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server.")] = None,
    query: Annotated[str | None, typer.Option(help="The task, for rows that name none.")] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write one full report a line (JSONL).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out.")] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(help="Where judgments are kept, each bought once; by default beside --out, if a model judges."),
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option("--resume/--no-resume", help="Go on with the ledger (the default if there is one), or without."),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Stop before more US dollars are spent.")] = None,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before more calls are made.")] = None,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 1 unless every submission passes.")] = False,
    stop_when_decided: Annotated[
        bool, typer.Option("--stop-when-decided", help="Ask no more of a submission once nothing can change `passed`.")
    ] = False,
    cannot_assess: Annotated[
        Literal["skip", "zero", "partial", "fail"], typer.Option(help="What an abstention counts.")
    ] = "skip",
    on_failure: Annotated[
        Literal["raise", "abstain", "worst_case"],
        typer.Option(help="What a judge's failure does: leave the submission ungraded, or count as this."),
    ] = "raise",
    max_concurrency: Annotated[int, typer.Option(min=1, help="Calls to the judge under way at once.")] = 32,
    max_retries: Annotated[int, typer.Option(min=0, help="Further attempts after a lost or unreadable reply.")] = 2,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one call.")] = 120.0,
) -> None:
    """Grade responses against a rubric.

    Exit codes: 0 done; 1 not passed (with --gate); 2 bad usage or bad input; 3 a judge failed and a grade is missing;
    4 stopped by --max-cost or --max-calls; 130 stopped by Ctrl-C or SIGTERM.

    Rows that can be graded are graded, whatever becomes of the others.
    """
    from rubric_integrations.graders import PerCriterionGrader
    from rubric_integrations.judges.offline import WHAT_IT_IS
    from rubric_integrations.judges.stored import StoreError
    from rubric_integrations.rubric.errors import RubricError
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.runner import grade_many
    from rubric_integrations.submission.files import ResponsesError, read_responses

    kept_in = ledger or (out_file.with_suffix(".sqlite") if out_file and judge != "offline" else None)
    if resume and not (kept_in and kept_in.exists()):
        refuse(f"--resume: there is no ledger {kept_in or ''}: name it with --ledger, or leave --resume out")
    resuming = kept_in is not None and kept_in.exists() and resume is not False
    try:
        loaded = Rubric.from_file(rubric)
        grader = PerCriterionGrader(
            judge=judge, api_base=api_base, cannot_assess=cannot_assess, on_failure=on_failure,
            max_retries=max_retries, timeout=timeout, stop_when_decided=stop_when_decided,
        )  # fmt: skip
        rows = _Rows(partial(read_responses, responses, query))
    except (RubricError, ResponsesError, ValueError, TypeError) as error:
        refuse(str(error))
    if not len(rows):
        refuse(f"{responses}: is empty: there is nothing to grade")
    if out_file and out_file.exists() and not (overwrite or resuming):
        refuse(f"{out_file}: exists: name another file, or pass --overwrite, which loses what it holds")
    if judge == "offline":
        err.print(plain(WHAT_IT_IS), soft_wrap=True)
    run = grade_many(
        rows, loaded, grader, ledger=None if resume is False else kept_in, max_concurrency=max_concurrency,
        progress=len(rows) > 1, max_cost=max_cost, max_calls=max_calls,
    )  # fmt: skip
    shown = _Shown()
    with ExitStack() as stack:
        try:
            sink = stack.enter_context(out_file.open("w", encoding="utf-8")) if out_file else None
            signal.signal(signal.SIGTERM, _interrupt)
            for graded in run:
                shown.add(graded)
                if sink:
                    sink.write(
                        json.dumps({**graded.to_dict(), "rubric": loaded.name, "judge": judge}, ensure_ascii=False)
                        + "\n"
                    )
                    sink.flush()
        except OSError as error:
            refuse(f"{out_file}: cannot be written: {error.strerror or error}")
        except StoreError as error:
            refuse(str(error))
        except KeyboardInterrupt:
            _tell_how_to_go_on("Stopped.", run.summary, kept_in)
            raise typer.Exit(130) from None
    _show(shown, run.summary, loaded, out_file)
    if run.summary.stopped:
        _tell_how_to_go_on(f"Stopped: {run.summary.stopped}.", run.summary, kept_in)
        raise typer.Exit(Exit.STOPPED)
    raise typer.Exit(_exit_code(run.summary, gate))


class _Rows:
    """The rows of a file, counted once before anything is paid for, and read again as they are graded."""

    def __init__(self, read: Callable[[], Iterator[Row]]):
        self._read = read
        self._count = sum(1 for _ in read())

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return self._read()


class _Shown:
    """The first results, as many as are shown; of the others only what went wrong, and not all of that."""

    def __init__(self) -> None:
        self.results: list[Graded] = []
        self.problems: list[str] = []
        self.more_problems = 0

    def add(self, graded: Graded) -> None:
        if len(self.results) <= MAX_RANKED:
            self.results.append(graded)
        if problem := graded.judge_error or graded.row.error:
            if len(self.problems) < MAX_RANKED:
                self.problems.append(f"{graded.row.id}: {problem}")
            else:
                self.more_problems += 1


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _tell_how_to_go_on(why: str, summary: RunSummary, ledger: Path | None) -> None:
    command = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
    lines = [f"{why} {summary.submissions} submissions were done: {summary_line(summary)}."]
    if ledger and ledger.exists():
        lines.append(
            f"What was bought is in {ledger}. To go on: {shlex.join(['rubric-integrations', *command, '--resume'])}"
        )
    for line in lines:
        err.print(plain(line), soft_wrap=True)


def _show(shown: _Shown, summary: RunSummary, rubric: Rubric, out_file: Path | None) -> None:
    if summary.submissions <= MAX_TABLES:
        for graded in shown.results:
            out.print(report_table(graded))
            if rubric.tree is not None and graded.report and graded.report.report:
                out.print(groups_table(graded, rubric))
    if summary.submissions <= MAX_RANKED:
        out.print(ranking_table(shown.results))
    for problem in shown.problems:
        err.print(plain(problem), style="red", soft_wrap=True)
    if shown.more_problems:
        err.print(plain(f"and {shown.more_problems} more"), style="red")
    of = f" of {summary.scored}" if summary.scored < summary.graded else ""
    mean = "no score" if summary.mean_score is None else f"mean{of} {summary.mean_score:.3f}"
    cost = "price unknown" if summary.spend.cost is None else f"${summary.spend.cost:.4f}"
    reused = f", {summary.reused} judgments from the ledger" if summary.reused else ""
    out.print(
        plain(
            f"{summary.graded} of {summary.submissions} graded by {rubric.name or 'the rubric'}: {mean}, "
            f"{summary.passed} passed; "
            f"{summary.spend.calls} calls, {summary.spend.usage.total_tokens} tokens, {cost}{reused}."
            + (f" Reports: {out_file}" if out_file else "")
        ),
        soft_wrap=True,
    )


def _exit_code(summary: RunSummary, gate: bool) -> Exit:
    if summary.failed:
        return Exit.JUDGE_FAILED
    if summary.ungradable:
        return Exit.BAD_INPUT
    if gate and summary.passed < summary.submissions:
        return Exit.NOT_PASSED
    return Exit.DONE
