"""The command `grade`: grades a file of responses, stores each judgment, and resumes a run that was interrupted."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, err, refuse
from rubric_integrations.cli.grade_output import print_how_to_resume, warn_of_batches
from rubric_integrations.cli.grader_options import GraderOptions
from rubric_integrations.cli.import_option import import_modules
from rubric_integrations.cli.interrupts import sigterm_interrupts
from rubric_integrations.cli.judge_arguments import (
    ApiBaseOption,
    ApiKeyOption,
    EscalateBelowOption,
    EscalateToOption,
    JudgeSettingsOption,
    StrategyOption,
)
from rubric_integrations.cli.judge_option import has_model, make_judges
from rubric_integrations.cli.ledger_option import open_ledger_of_run
from rubric_integrations.cli.parquet_output import ParquetOutput
from rubric_integrations.cli.ray_engine import RayLimits, grade_on_ray, refuse_local_options
from rubric_integrations.cli.run_files import RunFiles


def grade(
    context: typer.Context,
    rubric: Annotated[
        str,
        typer.Argument(help="The rubric: a YAML or JSON file. Leave it out where each row brings a `rubric`."),
    ],
    responses: Annotated[
        str | None,
        typer.Argument(
            help="What to grade: .jsonl, .csv or .parquet with a `response` (and optionally `query`, `reference`, "
            "`id`, `rubric`), or a text file, which is one response.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Grade in this process, or Parquet files on Ray, with --out a .parquet file or a folder."),
    ] = "local",
    judge: Annotated[
        list[str] | None,
        typer.Option(
            help="A model, such as openai/gpt-5-mini or ollama_chat/llama3.2; the file of an aligned judge, such as "
            "judge.json; or offline, without a model, the default. Several are a panel, which votes.",
        ),
    ] = None,
    escalate_to: EscalateToOption = None,
    escalate_below: EscalateBelowOption = None,
    api_base: ApiBaseOption = None,
    api_key: ApiKeyOption = None,
    judge_option: JudgeSettingsOption = None,
    strategy: StrategyOption = "per-criterion",
    query: Annotated[str | None, typer.Option(help="The task, for rows without a `query`.")] = None,
    response_column: Annotated[str | None, typer.Option(help="The column of the responses, if not `response`.")] = None,
    query_column: Annotated[str | None, typer.Option(help="The column of the tasks, if not `query`.")] = None,
    reference_column: Annotated[
        str | None, typer.Option(help="The column of exemplary responses, if not `reference`.")
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="The column of the ids, if not `id`.")] = None,
    rubric_column: Annotated[
        str | None, typer.Option(help="The column of the rows' own rubrics, if not `rubric`.")
    ] = None,
    library: Annotated[
        Path | None, typer.Option(help="A file of rubrics by name, for rows whose `rubric` is a name.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Write one full report per line to this file (JSONL); or the grades to a .parquet file, or to the "
            "parts of a folder: grades/.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of --out and --junit if they exist.")
    ] = False,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Store each judgment in this file, or in the PostgreSQL database of this URL, so that none is "
            "requested twice. By default a file beside --out, if a model judges and --out is a file."
        ),
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume", help="Reuse the judgments in the ledger (the default if it exists), or ignore them."
        ),
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import a Python module that registers custom metrics."),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Stop before spending more US dollars.")] = None,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before making more calls.")] = None,
    run_name: Annotated[
        str | None,
        typer.Option(
            "--run", help="Let --max-cost and --max-calls hold for all processes that use this name and this ledger."
        ),
    ] = None,
    gate: Annotated[
        bool,
        typer.Option(
            "--gate", help="Exit with 1 unless every submission passes; with --alpha, --min-score decides instead."
        ),
    ] = False,
    min_score: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 if the mean score is lower.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Let --min-score pass only if the true mean is surely higher: the probability of a wrong decision, "
            "such as 0.05."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="With --alpha: people's labels of a random part of the responses, which correct the mean."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="With --alpha: an earlier run, than which this one must not be worse (a file of --out)."),
    ] = None,
    margin: Annotated[
        float | None, typer.Option(min=0, help="How much worse than --baseline the run may be; by default 0.")
    ] = None,
    stop_early: Annotated[
        bool,
        typer.Option(
            "--stop-early",
            help="With --alpha: end the run once the gate is decided. The rows of the file must be in random order.",
        ),
    ] = False,
    min_pass_rate: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 if a smaller share of the submissions passes.")
    ] = None,
    min_coverage: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 if the mean coverage is lower.")
    ] = None,
    max_failed: Annotated[
        int | None,
        typer.Option(min=0, help="Exit with 3 only if the judge fails on more submissions than this; by default 0."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Write the results as JUnit XML, one test case per submission, to this file.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the summary line, problems and gates that failed.")
    ] = False,
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
    max_outage: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a judge that does not reply, before the run ends.")
    ] = 300.0,
    step_limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Show judges at most this many characters of a tool's result in a trajectory, and how many are "
            "omitted. By default all.",
        ),
    ] = None,
    chunk_size: Annotated[
        int | None,
        typer.Option(
            min=1_000,
            help="Judge longer responses in parts of at most this many characters: a criterion is met if any part "
            "meets it. By default whole.",
        ),
    ] = None,
) -> None:
    """Grade responses against a rubric, the one that each row brings, or both.

    Exit codes: 0 done; 1 not passed (--gate, --min-score, --min-pass-rate, --min-coverage); 2 bad usage or bad input;
    3 a judge failed and a grade is missing, or the judge cannot be used; 4 stopped by --max-cost or --max-calls; 130
    stopped by Ctrl-C or SIGTERM.

    A row that cannot be graded does not stop the others.
    """
    from rubric_integrations.cli.gates import Gates
    from rubric_integrations.cli.mean_gate import make_mean_gate
    from rubric_integrations.cli.rows_of_file import RowsOfFile
    from rubric_integrations.cli.run_end import end_run
    from rubric_integrations.cli.run_results import RunResults
    from rubric_integrations.formats.row_rubrics import RowRubrics
    from rubric_integrations.judges.offline import WHAT_IT_IS
    from rubric_integrations.judges.stored import StoreError
    from rubric_integrations.rubric.errors import RubricError
    from rubric_integrations.runs.runner import grade_many
    from rubric_integrations.submission.files import ResponsesError, read_responses

    judges = judge or ["offline"]
    uses_model = has_model(judges[0]) or escalate_to is not None
    files = RunFiles.of_options(
        rubric, responses, out, ledger, uses_model=uses_model, library=library, junit=junit,
        others=tuple(path for path in (labels, baseline) if path),
    )  # fmt: skip
    if engine == "ray":
        refuse_local_options(context, files)
    outputs = files.open_outputs(overwrite=overwrite, resume=resume)
    options = GraderOptions(
        strategy, cannot_assess, on_failure, max_retries, max_concurrency, timeout, max_outage, stop_when_decided,
        step_limit, chunk_size,
    )  # fmt: skip
    try:
        import_modules(modules or ())
        rubrics = RowRubrics(files.rubric, library)
        grader = options.make_grader(make_judges(
            judges, api_base, judge_option or (), api_key=api_key, escalate_to=escalate_to,
            escalate_below=escalate_below,
        ))  # fmt: skip
        if engine == "ray" and isinstance(outputs.out, ParquetOutput):
            limits = RayLimits(max_concurrency, max_cost, max_calls, run_name, max_failed or 0)
            raise typer.Exit(
                grade_on_ray(responses or rubric, rubrics, grader, files, outputs.out, limits, quiet=quiet)
            )
        read = partial(
            read_responses, files.responses, query, response_column=response_column, query_column=query_column,
            reference_column=reference_column, id_column=id_column, rubric_column=rubric_column,
        )  # fmt: skip
        rows = RowsOfFile(read, rubrics, files.responses, files.rubric)
    except (RubricError, ResponsesError, ValueError, TypeError) as error:
        refuse(str(error))
    if not len(rows):
        refuse(f"{files.responses}: is empty: there is nothing to grade")
    if not uses_model and not quiet:
        err.print(plain(WHAT_IT_IS), soft_wrap=True)
    mean_gate = make_mean_gate(
        min_score, alpha, labels=labels, baseline=baseline, margin=margin, rubric=rubrics.shared,
        stop_early=stop_early, count=len(rows), file=files.responses,
    )  # fmt: skip
    gates = Gates(gate and not mean_gate, min_score, min_pass_rate, min_coverage, max_failed, mean_gate)
    results = RunResults(
        outputs, gates, suite=rows.suite_name, judge=" then ".join(filter(None, (", ".join(judges), escalate_to)))
    )
    store = open_ledger_of_run(None if resume is False else files.ledger, run_name)
    run = grade_many(
        rows, rubrics.shared, grader, library=library, ledger=store, max_concurrency=max_concurrency,
        progress=len(rows) > 1 and not quiet, ordered=results.must_be_ordered, max_cost=max_cost,
        max_calls=max_calls, run=run_name, stop_when=mean_gate.sequential if mean_gate else None,
    )  # fmt: skip
    warn_of_batches(store)
    try:
        # The ledger first: if it cannot be used, no file of an earlier run has been touched.
        with store or nullcontext(), results.open(), sigterm_interrupts():
            results.collect(run, rows.take_place)
    except StoreError as error:
        refuse(f"{error}; the reports so far are in {results.partial}" if results.partial else str(error))
    except KeyboardInterrupt:
        print_how_to_resume("Stopped.", run.summary, files.ledger, results.partial)
        raise typer.Exit(Exit.INTERRUPTED) from None
    raise typer.Exit(end_run(run.summary, results, gates, files, rows.rubric_names, quiet=quiet))
