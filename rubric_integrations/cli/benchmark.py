"""The command `benchmark`: grades public data with a judge, and compares it with human labels and other judges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import percent
from rubric_integrations.cli.console import (
    UNDEFINED,
    figures_table,
    out,
    print_lines,
    print_meanings,
    refuse,
)
from rubric_integrations.cli.grade import OutputOptions, RunFiles
from rubric_integrations.cli.options import (
    GraderOptions,
    JudgeOptions,
    LedgerOptions,
    ModulesOption,
    Only,
    import_modules,
    open_ledger_of_run,
)

if TYPE_CHECKING:
    from rich.text import Text

    from rubric_integrations.trust import Estimate
    from rubric_integrations.trust.benchmarks.figures import Benchmark
    from rubric_integrations.trust.benchmarks.sets import BenchmarkSet, RecordedJudge


def benchmark(
    sets: Annotated[
        str, typer.Option(metavar="NAMES", help="The sets, with commas: summhay, llmbar, llm_rubric, conala and ttcw.")
    ],
    judges: JudgeOptions,
    output: Annotated[
        OutputOptions,
        Only(
            ("overwrite", "quiet"),
            {"out": "Write one full report per line to this file (JSONL). Its ledger is next to it."},
        ),
    ],
    grader_options: Annotated[
        GraderOptions, Only(("strategy", "max_concurrency", "max_retries", "timeout", "max_outage", "chunk_size"))
    ],
    ledger_options: LedgerOptions,
    data: Annotated[
        Path,
        typer.Option(
            help="The folder with the data, which are not part of the library: a subfolder for each set, or clones of "
            "salesforce/summary-of-a-haystack and princeton-nlp/LLMBar."
        ),
    ] = Path("../shared/data"),
    modules: ModulesOption = None,
) -> None:
    """Measure how far a judge agrees with human labels on public data, and compare it with other judges.

    The other judges are not called. Their recorded answers to the questions of this run are used. The judge is called
    better than another judge only if the lower limits of both differences, of accuracy and of kappa, are above 0. One
    row is a judge that always gives the most frequent answer.

    Exit codes: 0 done; 2 bad usage or bad input; 3 a judge failed; 4 stopped by --max-cost or --max-calls; 130 stopped
    by Ctrl-C or SIGTERM.
    """
    from rubric_integrations.cli.results import RunResults, end_run
    from rubric_integrations.runs.files import read_run
    from rubric_integrations.runs.run import grade_many
    from rubric_integrations.trust.benchmarks.figures import Benchmark
    from rubric_integrations.trust.benchmarks.sets import commit_of, folder_of, judge_of_run, rows_to_grade
    from rubric_integrations.trust.gates import RowGates

    if not judges.judge or not judges.uses_model:
        refuse("`--judge`: name a model or the file of an aligned judge: this command measures how it judges")
    if grader_options.strategy == "holistic":
        refuse("`--strategy` 'holistic' answers no criterion, and there would be nothing to compare: leave it out")
    if output.out is None or not output.out.endswith(".jsonl"):
        refuse(f"`--out` {output.out!r}: name a file that ends with .jsonl: the run and its ledger are kept there")
    chosen = _load_sets(sets, data)
    files = RunFiles.of_options(
        str(data), None, output.out, ledger_options.ledger, uses_model=True, library=None, junit=None, others=()
    )
    outputs = files.open_outputs(overwrite=output.overwrite, resume=ledger_options.resume)
    files = files._replace(ledger=None) if ledger_options.resume is False else files
    rows = rows_to_grade(chosen)
    places = {row.id: place for place, row in enumerate(rows)}
    results = RunResults(outputs, RowGates(), None, suite="benchmark", judge=judges.display_name)
    try:
        import_modules(modules or ())
        # With `raise`, one failure would cancel the other questions about its submission, and these would count as
        # unread.
        policy = "abstain" if grader_options.on_failure == "raise" else grader_options.on_failure
        grader = replace(grader_options, on_failure=policy).make_grader(judges.make_judges())
        store = open_ledger_of_run(files.ledger, ledger_options.run_name)
        run = grade_many(
            rows, None, grader, ledger=store, max_concurrency=grader_options.max_concurrency,
            progress=not output.quiet, ordered=results.must_be_ordered, max_cost=ledger_options.max_cost,
            max_calls=ledger_options.max_calls, prices=ledger_options.prices, run=ledger_options.run_name,
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        refuse(str(error))
    results.collect(run, store, files.ledger, lambda row: places.pop(row.id))
    code = end_run(run.summary, results, files, "the criteria of the sets", quiet=True)
    written = results.partial or files.out
    if run.summary.graded and written:
        graded = read_run(written, in_memory=True).rows
        for each in chosen:
            folder = folder_of(each.name, data)
            commit = commit_of(folder)
            print_lines([f"{each.source.title} is read from {folder}{f', commit {commit}' if commit else ''}"])
            own = judge_of_run(each, graded, judges.display_name)
            _print_figures(Benchmark(each.restricted_to(own.answers)), own, len(each.references))
    raise typer.Exit(code)


def _load_sets(names: str, data: Path) -> list[BenchmarkSet]:
    """Load the sets of `--sets` and refuse a set without texts."""
    from rubric_integrations.trust.benchmarks.sets import BenchmarkDataError, load_set

    chosen: list[BenchmarkSet] = []
    for name in dict.fromkeys(part.strip() for part in names.split(",") if part.strip()):
        if name == "devai":
            refuse(
                "`--sets` 'devai': its public files have no responses, so that no judge can grade them: leave it out. "
                "The page docs/judges.md has its recorded judge"
            )
        try:
            chosen.append(load_set(name, data))
        except BenchmarkDataError as error:
            refuse(f"`--sets`: {error}")
    if not chosen:
        refuse(f"`--sets` {names!r} names no set: name some, such as summhay,llmbar")
    return chosen


def _print_figures(benchmark: Benchmark, own: RecordedJudge, questions: int) -> None:
    """Print tables for each kind of judgment: agreement with the labels, and the differences to other judges.

    Args:
        benchmark: The questions of the run.
        own: The judge of the run.
        questions: The number of questions of the whole set.
    """
    source, data = benchmark.data.source, benchmark.data
    print_lines([f"All judges are measured on the questions of this run: {len(data.references):,} of {questions:,}"])
    for kind in data.kinds:
        if kind not in benchmark.kinds_of(own):
            continue
        level = percent(benchmark.level)
        title = f"{source.title}, {kind} [{level} intervals by {source.cluster}]. Labels: {source.raters}"
        counts = figures_table(title, ("judge", "n", "unread", "abstained", "accuracy", "kappa"), text=["judge"])
        others = figures_table("", ("judge", "weighted kappa", "AC1", "bias"), text=["judge"])
        better = figures_table(
            "This run minus another judge", ("judge", "accuracy", "kappa", "this run is better"),
            text=["judge", "this run is better"],
        )  # fmt: skip
        for judge in (own, data.constant_judge, *data.judges):
            if kind not in benchmark.kinds_of(judge):
                continue
            row = benchmark.measure(judge, kind)
            counts.add_row(
                plain(judge.label), f"{row.n:,}", f"{row.unread:,}", f"{row.abstained:,}", _cell(row.accuracy),
                _cell(row.kappa),
            )  # fmt: skip
            others.add_row(plain(judge.label), _cell(row.weighted_kappa), _cell(row.ac1), _cell(row.bias, signed=True))
            if judge is not own:
                minus = benchmark.compare(own, judge, kind)
                better.add_row(
                    plain(judge.label), _cell(minus.accuracy, signed=True), _cell(minus.kappa, signed=True),
                    f"not shown: {', '.join(minus.not_better)}" if minus.not_better else "yes",
                )  # fmt: skip
        for table in (counts, others, better):
            out.print(table)
    print_meanings("kappa", "AC1", "bias")


def _cell(estimate: Estimate | None, *, signed: bool = False) -> Text:
    return plain(UNDEFINED if estimate is None else estimate.with_limits(2, signed=signed))
