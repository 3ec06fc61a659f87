"""The command `grade`: grades a file of responses, stores each judgment, and resumes an interrupted run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, refuse
from rubric_integrations.cli.options import (
    NOTHING_TO_GRADE,
    GraderOptions,
    JudgeOptions,
    LedgerAddress,
    LedgerOptions,
    ModulesOption,
    RowOptions,
    RubricArgument,
    caution_of,
    describe_requests,
    import_modules,
    ledger_address,
    ledger_exists,
    open_ledger_of_run,
)
from rubric_integrations.cli.outputs import (
    JUNIT_FILE,
    RUN_FILE,
    OutputFile,
    ParquetOutput,
    is_folder,
    is_regular,
    ledger_files,
    partial_path,
)

if TYPE_CHECKING:
    from rubric_integrations.rubric.rubric import Rubric


class RunOutputs(NamedTuple):
    """The output files of a run, before they are opened.

    Attributes:
        out: The file of the reports. None if they are not written.
        junit: The JUnit file. None if it is not written.
    """

    out: OutputFile | ParquetOutput | None
    junit: OutputFile | None


class RunFiles(NamedTuple):
    """The files of a run.

    Attributes:
        rubric: The file of the rubric. None if each row has its own rubric.
        library: The file of rubrics that rows refer to by name. None if there is none.
        responses: The file of responses.
        out: The file of the reports. None if they are not written.
        ledger: The ledger. None if judgments are not stored.
        junit: The JUnit file. None if it is not written.
        others: Further files that the run reads.
        writes_parquet: Whether the output is a Parquet file of grades, or a directory of Parquet files.
    """

    rubric: Path | None
    library: Path | None
    responses: Path
    out: Path | None
    ledger: LedgerAddress | None
    junit: Path | None
    others: tuple[Path, ...] = ()
    writes_parquet: bool = False

    @classmethod
    def of_options(
        cls,
        rubric: str | None,
        responses: str | None,
        out: str | None,
        ledger: str | None,
        *,
        uses_model: bool,
        library: Path | None,
        junit: Path | None,
        others: tuple[Path, ...],
    ) -> RunFiles:
        """Return the files from the options of `grade`. If a judge has a model, the ledger is by default next to `out`.

        Args:
            rubric: The first argument: the rubric, or the responses if there is no second argument.
            responses: The second argument, or None.
            out: `--out`.
            ledger: `--ledger`.
            uses_model: Whether a judge has a model. If so, its judgments are stored.
            library: `--library`.
            junit: `--junit`.
            others: Further files that the run reads.
        """
        if rubric is None:
            refuse(NOTHING_TO_GRADE)
        path = Path(out) if out else None
        writes_parquet = path is not None and (path.suffix.lower() == ".parquet" or is_folder(str(out)))
        is_stored = path is not None and uses_model and (writes_parquet or is_regular(path))
        default_ledger = path.with_suffix(".sqlite") if path and is_stored else None
        return cls(
            Path(rubric) if responses else None, library, Path(responses or rubric), path,
            ledger_address(ledger) if ledger else default_ledger, junit, others, writes_parquet,
        )  # fmt: skip

    @property
    def has_ledger(self) -> bool:
        """Whether the run has a ledger that already exists. This is assumed for any URL of a database."""
        return ledger_exists(self.ledger)

    def open_outputs(self, *, overwrite: bool, resume: bool | None) -> RunOutputs:
        """Return the files to write. End the command if the run would overwrite a file or cannot be resumed.

        Args:
            overwrite: Whether existing files may be replaced.
            resume: Whether the run resumes an earlier run, whose judgments are in the ledger. None means that it does
                if the ledger is an existing file.
        """
        rubrics = [path for path in (self.rubric, self.library) if path]
        inputs = [*rubrics, self.responses, *self.others, *ledger_files(self.ledger)]
        own = [self.out, partial_path(self.out)] if self.out else []
        # A database may have the judgments of any run. Its existence does not mean that this run is resumed.
        is_resumed = self.has_ledger and (resume is not False if isinstance(self.ledger, Path) else resume is True)
        out = self.out and self._open_reports(self.out, inputs, overwrite, is_resumed, is_stored=resume is not False)
        junit = self.junit and OutputFile(
            self.junit, option="--junit", overwrite=overwrite, inputs=[*inputs, *own], replaces=JUNIT_FILE
        )
        if resume and not self.has_ledger:
            refuse(f"--resume: there is no ledger {self.ledger or ''}: name it with --ledger, or leave --resume out")
        return RunOutputs(out, junit)

    def _open_reports(
        self, path: Path, inputs: Sequence[Path], overwrite: bool, resumes: bool, *, is_stored: bool
    ) -> OutputFile | ParquetOutput:
        if self.writes_parquet:
            return ParquetOutput(path, overwrite=overwrite, resumes=resumes, inputs=inputs)
        # A resumed run writes the reports again, from the judgments of the ledger.
        replaces = RUN_FILE if resumes else None
        return OutputFile(
            path, option="--out", overwrite=overwrite, inputs=inputs, replaces=replaces, keep_partial=True,
            is_stored=is_stored,
        )  # fmt: skip


@dataclass(frozen=True)
class OutputOptions:
    """The options for the output of `grade`."""

    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Write one full report per line to this file (JSONL); or the grades to a .parquet file, or to the "
            "parts of a folder: grades/.",
        ),
    ] = None
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of --out and --junit if they exist.")
    ] = False
    junit: Annotated[
        Path | None, typer.Option(help="Write the results as JUnit XML, one test case per submission, to this file.")
    ] = None
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the summary line, problems and gates that failed.")
    ] = False


@dataclass(frozen=True)
class GateOptions:
    """The options for the gates of `grade`."""

    panel: ClassVar[str] = "Gates"

    gate: Annotated[
        bool,
        typer.Option(
            "--gate", help="Exit with 1 unless every submission passes; with --alpha, --min-score decides instead."
        ),
    ] = False
    min_score: Annotated[float | None, typer.Option(min=0, max=1, help="Exit with 1 if the mean score is lower.")] = (
        None
    )
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Let --min-score pass only if the true mean is significantly higher: the probability of a wrong "
            "decision, such as 0.05."
        ),
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(help="With --alpha: human labels of a random part of the responses, which correct the mean."),
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Refuse a rubric if a part of it is left out, such as an assertion in JavaScript, and a file of "
            "--labels with an invalid line.",
        ),
    ] = False
    baseline: Annotated[
        Path | None,
        typer.Option(help="With --alpha: an earlier run (a file of --out). This run must not be worse."),
    ] = None
    margin: Annotated[
        float | None,
        typer.Option(min=0, help="The largest accepted decrease of the mean score from --baseline; by default 0."),
    ] = None
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway", help="Compare with a --baseline that has another rubric or other inputs; the result is marked."
        ),
    ] = False
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="With --alpha: rows with an equal value of this column depend on each other (id, query, or a column "
            "of the responses).",
        ),
    ] = None
    floor: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="With --alpha: the lowest possible score of a row. The gate then needs fewer rows."
        ),
    ] = None
    stop_early: Annotated[
        bool,
        typer.Option(
            "--stop-early",
            help="With --alpha: end the run once the gate is decided. The rows of the file must be in random order.",
        ),
    ] = False
    min_pass_rate: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 if a smaller share of the submissions passes.")
    ] = None
    min_coverage: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 if the mean coverage is lower.")
    ] = None
    max_failed: Annotated[
        int | None,
        typer.Option(min=0, help="Exit with 3 only if the judge fails on more submissions than this; by default 0."),
    ] = None


@dataclass(frozen=True)
class SelectionOptions:
    """The options that select some of the criteria."""

    panel: ClassVar[str] = "Grading"

    criterion: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Grade only this criterion, and those of --tag; repeat it for more. No row can pass."
        ),
    ] = None
    tag: Annotated[
        list[str] | None, typer.Option(help="Grade only the criteria with this tag; repeat it for more.")
    ] = None

    @property
    def is_set(self) -> bool:
        """Whether only some of the criteria are graded."""
        return bool(self.criterion or self.tag)

    def select(self, rubric: Rubric) -> Rubric:
        """Return the rubric with the selected criteria, or with all of them if none is named."""
        return rubric.select(self.criterion or (), self.tag or ()) if self.is_set else rubric

    def refuse_gates(self, gates: GateOptions) -> None:
        """End the command with an error if a gate counts rows that pass, although no row can pass."""
        for option, is_used in (("--gate", gates.gate), ("--min-pass-rate", gates.min_pass_rate is not None)):
            if self.is_set and is_used:
                refuse(
                    f"{option}: some of the criteria are graded, and so no submission can pass: leave out "
                    f"{option}, or --criterion and --tag; --min-score works with both"
                )


def grade(
    output: OutputOptions,
    row_options: RowOptions,
    judges: JudgeOptions,
    grader_options: GraderOptions,
    selection: SelectionOptions,
    ledger_options: LedgerOptions,
    gate_options: GateOptions,
    rubric: Annotated[str | None, RubricArgument] = None,
    responses: Annotated[
        str | None,
        typer.Argument(
            help="The responses: .jsonl, .csv or .parquet with a `response` (and optionally `query`, `reference`, "
            "`id`, `rubric`), a session of a coding agent or a folder of sessions, or a text file, which is one "
            "response.",
            show_default=False,
        ),
    ] = None,
    modules: ModulesOption = None,
) -> None:
    """Grade responses against a rubric, against the rubric of each row, or against both.

    Exit codes: 0 done; 1 not passed (--gate, --min-score, --min-pass-rate, --min-coverage); 2 bad usage or bad input;
    3 a judge failed and a grade is missing, or the judge cannot be used; 4 stopped by --max-cost or --max-calls; 130
    stopped by Ctrl-C or SIGTERM.

    A row that cannot be graded does not stop the other rows.
    """
    from rubric_integrations.cli.gates import make_mean_gate
    from rubric_integrations.cli.preview import print_reading
    from rubric_integrations.cli.results import RunResults, end_run
    from rubric_integrations.cli.rows import RowsOfFile
    from rubric_integrations.formats.linting import lint
    from rubric_integrations.formats.registry import read_file_and_format
    from rubric_integrations.formats.row_rubrics import RowRubrics
    from rubric_integrations.judges.offline import WHAT_IT_IS
    from rubric_integrations.runs.run import grade_many
    from rubric_integrations.trust.gates import RowGates

    library, quiet = row_options.library, output.quiet
    selection.refuse_gates(gate_options)
    files = RunFiles.of_options(
        rubric, responses, output.out, ledger_options.ledger, uses_model=judges.uses_model, library=library,
        junit=output.junit,
        others=(*filter(None, (gate_options.labels, gate_options.baseline)), *judges.judge_files),
    )  # fmt: skip
    outputs = files.open_outputs(overwrite=output.overwrite, resume=ledger_options.resume)
    files = files._replace(ledger=None) if ledger_options.resume is False else files
    try:
        import_modules(modules or ())
        shared, rubric_format = read_file_and_format(files.rubric) if files.rubric else (None, None)
        rubrics = RowRubrics(shared, library, selection.select)
        members, explorer = judges.make_judges(), judges.make_explorer(grader_options.explore)
        grader = grader_options.make_grader(members, explorer)
        file = row_options.open(files.responses)
        rows = RowsOfFile(file, rubrics, files.rubric, rubric_format, strict=gate_options.strict)
    except (ValueError, TypeError) as error:
        refuse(str(error))
    if not quiet:
        err.print(plain(describe_requests(grader.runtime.callers) if judges.uses_model else WHAT_IT_IS), soft_wrap=True)
        if shared and (warning := caution_of(members, shared.criteria)):
            err.print(plain(warning), style="yellow", soft_wrap=True)
        print_reading(row_options, file, len(rows))
        if selection.is_set:
            err.print("Only the criteria of --criterion and --tag are graded: no submission can pass.", soft_wrap=True)
    for warning in lint(shared) if shared else ():
        if warning.rule == "weight-in-text":
            err.print(plain(f"{files.rubric}: warning: {warning}"), style="yellow", soft_wrap=True)
    mean_gate = make_mean_gate(gate_options, rubric=rubrics.shared, rows=rows, file=files.responses)
    gates = RowGates(
        every_row=gate_options.gate and not mean_gate, min_score=gate_options.min_score,
        min_pass_rate=gate_options.min_pass_rate, min_coverage=gate_options.min_coverage,
        max_failed=gate_options.max_failed,
    )  # fmt: skip
    results = RunResults(outputs, gates, mean_gate, suite=rows.suite_name, judge=judges.display_name)
    store = open_ledger_of_run(files.ledger, ledger_options.run_name)
    try:
        run = grade_many(
            rows, rubrics, grader, ledger=store, max_concurrency=grader_options.max_concurrency,
            progress=len(rows) > 1 and not quiet, ordered=results.must_be_ordered, max_cost=ledger_options.max_cost,
            max_calls=ledger_options.max_calls, prices=ledger_options.prices, run=ledger_options.run_name,
            stop_when=mean_gate.sequential if mean_gate else None,
        )  # fmt: skip
    except ValueError as error:
        refuse(str(error))
    results.collect(run, store, files.ledger, rows.take_place)
    raise typer.Exit(end_run(run.summary, results, files, rows.rubric_names, quiet=quiet))
