"""The command `grade`: grades a file of responses, stores each judgment, and resumes a run that was interrupted."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, err, refuse, unwritable
from rubric_integrations.cli.grade_output import FirstResults, print_how_to_resume, print_results
from rubric_integrations.cli.judge_option import has_model, make_judge

if TYPE_CHECKING:
    from rubric_integrations.runs.summary import RunSummary
    from rubric_integrations.submission.files import Row


def grade(
    rubric: Annotated[Path, typer.Argument(help="The rubric: a YAML or JSON file.")],
    responses: Annotated[
        Path,
        typer.Argument(
            help="What to grade: .jsonl or .csv with a `response` (and optionally `query`, `reference`, `id`), or a "
            "text file, which is one response."
        ),
    ],
    judge: Annotated[
        str,
        typer.Option(help="A model, such as openai/gpt-5-mini or ollama_chat/llama3.2; or offline, without a model."),
    ] = "offline",
    api_base: Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server.")] = None,
    query: Annotated[str | None, typer.Option(help="The task, for rows without a `query`.")] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write one full report per line to this file (JSONL).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Store each judgment in this file, so that none is requested twice. By default beside --out, if a "
            "model judges."
        ),
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume", help="Reuse the judgments in the ledger (the default if it exists), or ignore them."
        ),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Stop before spending more US dollars.")] = None,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before making more calls.")] = None,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 1 unless every submission passes.")] = False,
    stop_when_decided: Annotated[
        bool,
        typer.Option(
            "--stop-when-decided", help="Skip the criteria of a submission that can no longer change `passed`."
        ),
    ] = False,
    cannot_assess: Annotated[
        Literal["skip", "zero", "partial", "fail"], typer.Option(help="How an abstention counts.")
    ] = "skip",
    on_failure: Annotated[
        Literal["raise", "abstain", "worst_case"],
        typer.Option(help="After a judge failure: leave the submission ungraded, or count the failure as this."),
    ] = "raise",
    max_concurrency: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent calls to the judge.")] = 64,
    max_retries: Annotated[int, typer.Option(min=0, help="Retries after a failed call or an unreadable reply.")] = 2,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one call.")] = 120.0,
) -> None:
    """Grade responses against a rubric.

    Exit codes: 0 done; 1 not passed (with --gate); 2 bad usage or bad input; 3 a judge failed and a grade is missing;
    4 stopped by --max-cost or --max-calls; 130 stopped by Ctrl-C or SIGTERM.

    A row that cannot be graded does not stop the others.
    """
    from rubric_integrations.graders import CallLimits, PerCriterionGrader
    from rubric_integrations.judges.offline import WHAT_IT_IS
    from rubric_integrations.judges.stored import StoreError
    from rubric_integrations.rubric.errors import RubricError
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.runner import grade_many
    from rubric_integrations.submission.files import ResponsesError, read_responses

    ledger_path = ledger or (out_file.with_suffix(".sqlite") if out_file and has_model(judge) else None)
    has_ledger = ledger_path is not None and ledger_path.exists()
    if resume and not has_ledger:
        refuse(f"--resume: there is no ledger {ledger_path or ''}: name it with --ledger, or leave --resume out")
    try:
        loaded = Rubric.from_file(rubric)
        grader = PerCriterionGrader(
            make_judge(judge, api_base), cannot_assess=cannot_assess, on_failure=on_failure, max_retries=max_retries,
            limits=CallLimits(max_concurrency=max_concurrency, timeout=timeout), stop_when_decided=stop_when_decided,
        )  # fmt: skip
        rows = _Rows(partial(read_responses, responses, query))
    except (RubricError, ResponsesError, ValueError, TypeError) as error:
        refuse(str(error))
    if not len(rows):
        refuse(f"{responses}: is empty: there is nothing to grade")
    resumes = has_ledger and resume is not False
    if out_file and out_file.exists() and not (overwrite or resumes):
        refuse(f"{out_file}: exists: name another file, or pass --overwrite, which deletes its contents")
    if not has_model(judge):
        err.print(plain(WHAT_IT_IS), soft_wrap=True)
    run = grade_many(
        rows, loaded, grader, ledger=None if resume is False else ledger_path, max_concurrency=max_concurrency,
        progress=len(rows) > 1, max_cost=max_cost, max_calls=max_calls,
    )  # fmt: skip
    first = FirstResults()
    with ExitStack() as stack:
        try:
            sink = stack.enter_context(out_file.open("w", encoding="utf-8")) if out_file else None
            # Containers and CI stop a process with SIGTERM: end the run as Ctrl-C does, so that it can be resumed.
            previous = signal.signal(signal.SIGTERM, _interrupt)
            stack.callback(signal.signal, signal.SIGTERM, previous or signal.SIG_DFL)
            for graded in run:
                first.add(graded)
                if sink:
                    line = {**graded.to_dict(), "rubric": loaded.name, "judge": judge}
                    sink.write(json.dumps(line, ensure_ascii=False) + "\n")
                    sink.flush()
        except OSError as error:
            refuse(unwritable(out_file, error))
        except StoreError as error:
            refuse(str(error))
        except KeyboardInterrupt:
            print_how_to_resume("Stopped.", run.summary, ledger_path)
            raise typer.Exit(Exit.INTERRUPTED) from None
    print_results(first, run.summary, loaded, out_file)
    if run.summary.stopped:
        print_how_to_resume(f"Stopped: {run.summary.stopped}.", run.summary, ledger_path)
        raise typer.Exit(Exit.STOPPED)
    raise typer.Exit(_exit_code(run.summary, gate))


class _Rows:
    """The rows of a file, read again on each iteration; counted once, for the progress bar, before any call is paid."""

    def __init__(self, read: Callable[[], Iterator[Row]]):
        self._read = read
        self._count = sum(1 for _ in read())

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return self._read()


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _exit_code(summary: RunSummary, gate: bool) -> Exit:
    if summary.failed:
        return Exit.JUDGE_FAILED
    if summary.ungradable:
        return Exit.BAD_INPUT
    if gate and summary.passed < summary.submissions:
        return Exit.NOT_PASSED
    return Exit.DONE
