"""The command `grade`: grades a file of responses, stores each judgment, and resumes an interrupted run."""

from __future__ import annotations

import heapq
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted
from rubric_integrations.cli.console import MAX_RANKED, Exit, err, out, refuse, sigterm_interrupts
from rubric_integrations.cli.options import (
    NOTHING_TO_GRADE,
    GraderOptions,
    JudgeOptions,
    LedgerAddress,
    LedgerOptions,
    ModulesOption,
    RowOptions,
    RubricArgument,
    import_modules,
    ledger_address,
    ledger_exists,
    open_ledger_of_run,
    without_secrets,
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
    from rubric_integrations.judges import Judge
    from rubric_integrations.runs.summary import Graded, RunSummary

# The number of worst submissions that are printed as a table. `--out` has every submission.
MAX_TABLES = 3
MAX_TAGS = 20
# The most kinds of problems, and the most rows of one kind, that are printed.
MAX_KINDS = 20
MAX_IDS = 8


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


class Problems:
    """Counts problems of rows by kind, and keeps the first message and the first rows of each kind.

    Attributes:
        count: The number of all problems.
    """

    def __init__(self) -> None:
        self.count = 0
        # By kind: the number of rows, and the position, id and message of the first rows.
        self._kinds: dict[str, tuple[int, list[tuple[int, str, str]]]] = {}
        self._more = 0

    def add(self, place: int, row_id: str, problem: str) -> None:
        """Add the problem of a row at a position in the file of responses."""
        self.count += 1
        kind = _kind_of(problem, row_id)
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            self._more += 1
            return
        count, rows = self._kinds.get(kind, (0, []))
        self._kinds[kind] = (count + 1, sorted([*rows, (place, row_id, problem)])[: MAX_IDS + 1])

    def lines(self, rest: str = "") -> list[str]:
        """Return a line for each kind of problem. `rest` is appended if a line names only some of its rows."""
        lines: list[str] = []
        for count, [(_, row_id, problem), *others] in sorted(self._kinds.values(), key=lambda kind: kind[1]):
            first, ids = f"{row_id}: {problem}", ", ".join(other_id for _, other_id, _ in others)
            cut = f", ...{rest}" if count - 1 > len(others) else ""
            lines.append(f"{first} (and {counted(count - 1, 'more row')} alike: {ids}{cut})" if count > 1 else first)
        return [*lines, f"and {counted(self._more, 'more row')} with other problems{rest}"] if self._more else lines


def _kind_of(problem: str, row_id: str) -> str:
    """Return a problem without the parts that differ between rows: ids, criteria, and other numbers."""
    text = problem.removeprefix(f"row {row_id}")
    return re.sub(r"\d+", "#", re.sub(r"`[^`]*` was not judged", "", text))


def print_results(
    first: FirstResults, summary: RunSummary, rubric: str, out_file: Path | None, *, quiet: bool = False
) -> None:
    """Print a finished run: tables and ranking, problems on stderr, and a summary line.

    Args:
        first: The rows to print.
        summary: The run's summary.
        rubric: The name of the run's rubric.
        out_file: The file with the reports, if there is one.
        quiet: Whether to leave out tables and ranking.
    """
    if not quiet:
        _print_tables(first, summary)
    for problem in first.problems.lines(f"; all are in {out_file}" if out_file else "; `--out FILE` writes all"):
        err.print(plain(problem), style="red", soft_wrap=True)
    out.print(plain(_summary_text(summary, rubric, out_file)), soft_wrap=True)


def _print_tables(first: FirstResults, summary: RunSummary) -> None:
    from rubric_integrations.reporting.grades import groups_table, ranking_table, report_table, tags_table

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
    from rubric_integrations.runs.ledger.addresses import address_text
    from rubric_integrations.runs.summary import summary_line

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


def describe_requests(judges: Sequence[Judge]) -> str:
    """Describe in one line who sends the requests of the judges' models, where to, and why."""
    from rubric_integrations.judges.fast_path import describe_path
    from rubric_integrations.judges.protocol import innermost

    members: list[Any] = [member for judge in judges for member in getattr(judge, "members", (judge,))]
    models = [lm for member in members if (lm := getattr(innermost(member), "lm", None)) is not None]
    return "; ".join(dict.fromkeys(f"{lm.model}: {describe_path(lm)}" for lm in models))


def warn_of_batches(ledger: object) -> None:
    """Warn if a ledger has batches that are not collected, because this run would pay for their requests again."""
    from rubric_integrations.runs.batches.base import BatchError, BatchLedger, load

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


def grade(
    output: OutputOptions,
    row_options: RowOptions,
    judges: JudgeOptions,
    grader_options: GraderOptions,
    ledger_options: LedgerOptions,
    gate_options: GateOptions,
    rubric: Annotated[str | None, RubricArgument] = None,
    responses: Annotated[
        str | None,
        typer.Argument(
            help="The responses: .jsonl, .csv or .parquet with a `response` (and optionally `query`, `reference`, "
            "`id`, `rubric`), or a text file, which is one response.",
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
    from rubric_integrations.cli.gates import Gates, RowsOfFile, RunResults, end_run, make_mean_gate
    from rubric_integrations.cli.preview import print_reading
    from rubric_integrations.formats.linting import lint
    from rubric_integrations.formats.registry import read_file_and_format
    from rubric_integrations.formats.row_rubrics import RowRubrics
    from rubric_integrations.judges.offline import WHAT_IT_IS
    from rubric_integrations.judges.store import StoreError
    from rubric_integrations.rubric.rubric import RubricError
    from rubric_integrations.runs.run import grade_many
    from rubric_integrations.submission.files import ResponsesError

    library, quiet = row_options.library, output.quiet
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
        rubrics = RowRubrics(shared, library)
        grader = grader_options.make_grader(members := judges.make_judges())
        rows = RowsOfFile(
            row_options.reader(files.responses),
            rubrics,
            files.responses,
            files.rubric,
            rubric_format,
            strict=gate_options.strict,
        )
    except (RubricError, ResponsesError, ValueError, TypeError) as error:
        refuse(str(error))
    if not len(rows):
        refuse(f"{files.responses}: is empty: there is nothing to grade")
    if not quiet:
        err.print(plain(describe_requests(members) if judges.uses_model else WHAT_IT_IS), soft_wrap=True)
        print_reading(row_options, files.responses, len(rows))
    for warning in lint(shared) if shared else ():
        if warning.rule == "weight-in-text":
            err.print(plain(f"{files.rubric}: warning: {warning}"), style="yellow", soft_wrap=True)
    mean_gate = make_mean_gate(gate_options, rubric=rubrics.shared, rows=rows, file=files.responses)
    gates = Gates(
        gate_options.gate and not mean_gate, gate_options.min_score, gate_options.min_pass_rate,
        gate_options.min_coverage, gate_options.max_failed, mean_gate,
    )  # fmt: skip
    results = RunResults(outputs, gates, suite=rows.suite_name, judge=judges.display_name)
    store = open_ledger_of_run(files.ledger, ledger_options.run_name)
    try:
        run = grade_many(
            rows, rubrics.shared, grader, library=library, ledger=store, max_concurrency=grader_options.max_concurrency,
            progress=len(rows) > 1 and not quiet, ordered=results.must_be_ordered, max_cost=ledger_options.max_cost,
            max_calls=ledger_options.max_calls, prices=ledger_options.prices, run=ledger_options.run_name,
            stop_when=mean_gate.sequential if mean_gate else None,
        )  # fmt: skip
    except ValueError as error:
        refuse(str(error))
    warn_of_batches(store)
    try:
        # Open the ledger first. If it cannot be used, the files of an earlier run stay unchanged.
        with store or nullcontext(), results.open(), sigterm_interrupts():
            results.collect(run, rows.take_place)
    except StoreError as error:
        refuse(f"{error}; the reports so far are in {results.partial}" if results.partial else str(error))
    except KeyboardInterrupt:
        print_how_to_resume("Stopped.", run.summary, files.ledger, results.partial)
        raise typer.Exit(Exit.INTERRUPTED) from None
    raise typer.Exit(end_run(run.summary, results, gates, files, rows.rubric_names, quiet=quiet))
