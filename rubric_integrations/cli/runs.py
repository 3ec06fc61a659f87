"""The commands about finished runs: `compare`, `report`, `show`, `rescore` and `import`. None of them calls a model."""

from __future__ import annotations

import re
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted, percent
from rubric_integrations.cli.console import (
    MAX_RANKED,
    UNDEFINED,
    Exit,
    err,
    figures_table,
    out,
    print_gate,
    print_json,
    print_lines,
    print_warnings,
    refuse,
)
from rubric_integrations.cli.loading import (
    ClusterByOption,
    ClusterOption,
    JsonOption,
    LevelOption,
    RubricOption,
    StrictOption,
    cluster_of,
    load_labels,
    load_rubric,
    load_run,
    refuse_bad_input,
    require_different,
    require_level,
)
from rubric_integrations.cli.options import ledger_address, ledger_exists, open_ledger
from rubric_integrations.cli.outputs import PAGE, OutputFile, ledger_files

if TYPE_CHECKING:
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.files import RunFile
    from rubric_integrations.runs.summary import Graded
    from rubric_integrations.scoring.labels import LabelledJudgment
    from rubric_integrations.trust import RunComparison


AnywayOption = Annotated[
    bool,
    typer.Option(
        "--anyway",
        help="Compare runs with different rubrics or inputs nevertheless; the result is marked as not comparable.",
    ),
]


def compare(
    before: Annotated[Path, typer.Argument(help="The first run: a file that `grade --out` wrote.")],
    after: Annotated[Path, typer.Argument(help="The second run, over the same inputs with the same ids.")],
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="Human labels of a random part of the inputs, in both runs: one file with both, or the first "
            "run's and then the second run's. They correct the difference."
        ),
    ] = None,
    margin: Annotated[
        float,
        typer.Option(
            min=0, help="The largest accepted decrease of the mean score. With it, --gate passes only with proof."
        ),
    ] = 0.0,
    cluster: ClusterOption = None,
    cluster_by: ClusterByOption = None,
    gate: Annotated[
        bool,
        typer.Option(
            "--gate",
            help="Exit with 1 if the second run is worse or has lost more than a tenth of the scored rows, or the "
            "change has no interval. With --margin, also if a larger loss is not excluded.",
        ),
    ] = False,
    anyway: AnywayOption = False,
    rubric: RubricOption = None,
    level: LevelOption = 0.95,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs over the same inputs: the scores, the passed rows, and each criterion.

    The second run is "better" if its mean score is significantly higher. It is "worse" if its mean score is
    significantly lower by more than --margin. It is "unchanged" if every answer and score is the same. Otherwise, the
    comparison is "unclear".

    An unclear change is not shown to be worse. Without --margin, --gate accepts it.

    Exit codes: 0 done; 1 the second run is worse or has lost rows, the change has no interval, or a loss of more than
    --margin is not excluded (--gate); 2 bad usage or bad input.
    """
    from rubric_integrations.trust import compare_runs, gate_comparison

    require_level(level)
    require_different([before, after], "two runs")
    if labels and len(labels) > 2:
        refuse(f"--labels are {len(labels)} files: name one, or one for each run")
    with refuse_bad_input(before, after):
        first, second, run_rubric = load_run(before), load_run(after), load_rubric(rubric)
        result = compare_runs(
            first, second, labels=_load_labels(labels, first, second, run_rubric, strict=strict), rubric=run_rubric,
            level=level, cluster=cluster_of(cluster, cluster_by, first), margin=margin, anyway=anyway,
        )  # fmt: skip
    if result.corrected is not None and not result.corrected.n:
        refuse("--labels: no input has labels of each criterion in both runs: label the same inputs in both")
    print_warnings(result.warnings)
    if as_json:
        print_json(result)
    else:
        _print(result, margin, level)
    if gate:
        decided = gate_comparison(result, before=str(before), after=str(after), anyway=anyway)
        if not print_gate(decided._replace(settings="--gate"), quiet=as_json):
            raise typer.Exit(Exit.NOT_PASSED)


def _load_labels(
    paths: list[Path] | None, first: RunFile, second: RunFile, rubric: Rubric | None, *, strict: bool
) -> list[LabelledJudgment] | None:
    if not paths:
        return None
    both = first._replace(rows=[*first.rows, *second.rows])
    of_files = [both] if len(paths) == 1 else [first, second]
    return [
        label
        for path, run in zip(paths, of_files, strict=True)
        for label in load_labels(path, run, rubric, strict=strict)
    ]


def _print(result: RunComparison, margin: float, level: float) -> None:
    """Print the result of a comparison: the change of the mean score, and a table of the criteria."""
    p_value = "" if result.p_value is None else f", p = {result.p_value:.3g}"
    counts = counted(result.inputs, "input")
    if result.in_groups:
        counts = f"{counted(result.score.n, 'row')} in {counted(result.inputs, 'group')}"
    lines = [
        f"{result.verdict}: the mean score{' of the rows' if result.in_groups else ''} changed by "
        f"{result.score.with_limits(signed=True)} over {counts} ({percent(level)} interval{p_value})."
    ]
    lines += [f"Not comparable: {reason}." for reason in result.not_comparable]
    if result.caveat and result.cautious is not None:
        lines.append(f"With the interval that allows for them: {result.cautious.with_limits(signed=True)}.")
    if result.score.low is None:
        lines.append("The change has no interval: there are too few inputs or groups, or all raw scores changed alike.")
    if result.corrected is not None:
        labelled = f"{counted(result.corrected.n, 'labelled input')}, which decide"
        lines.append(f"Corrected by {labelled}: {result.corrected.with_limits(signed=True)}.")
    if margin:
        state = "It is shown not to be" if result.is_not_worse else "It may be"
        lines.append(f"{state} worse by more than {margin:g}.")
    if result.detectable:
        lines.append(
            f"With so many inputs, a true change of {result.detectable:.3f} is detected in 80 % of cases; a smaller "
            "one often stays unclear."
        )
    if result.passed is not None:
        lines.append(f"Share of passed rows: {result.passed.with_limits(signed=True)}.")
    if result.changed_text:
        lines.append(f"{result.changed_text}.")
    if result.unmatched:
        lines.append(f"Rows in only one of the runs: {result.unmatched:,}.")
    print_lines(lines)
    columns = ("criterion", "change", "p", "p (Holm)", "inputs", "changed answers", "kappa")
    table = figures_table("Criteria", columns, text=["criterion"])
    for name, row in result.criteria.items():
        p_values = (UNDEFINED if value is None else f"{value:.3g}" for value in (row.p_value, row.adjusted))
        change = "unchanged" if row.decision == "unchanged" else row.difference.with_limits(signed=True)
        changed = UNDEFINED if row.changed is None else f"{row.changed:,} of {row.answers:,}"
        kappa = plain(row.kappa.with_limits(2))
        table.add_row(plain(name), plain(change), *p_values, f"{row.difference.n:,}", changed, kappa)
    if result.criteria:
        out.print(table)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="A file that `grade --out` wrote, two files to compare, or more in chronological order. A folder "
            "means all files of runs in it."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file of --output if it exists and is not a report page.")
    ] = False,
    anyway: AnywayOption = False,
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="Human labels of the last run: the page then shows how far the judge can be trusted. Repeat the "
            "option for the file of each rater."
        ),
    ] = None,
    strict: StrictOption = False,
    title: Annotated[str | None, typer.Option(help="The page's heading; by default the rubric's name.")] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Leave out all texts of submissions, judges and raters, the names of raters, attachments and "
            "metadata. Ids, the rubric, answers and scores stay.",
        ),
    ] = False,
) -> None:
    """Write an HTML page that shows one run, compares two runs, or follows many runs. It needs no server.

    With more than two runs, runs that cannot be compared are shown as separate series. --anyway has an effect only with
    two runs.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.reporting.page.render import page_parts
    from rubric_integrations.reporting.page.runs_over_time import follow_runs
    from rubric_integrations.runs.files import read_run
    from rubric_integrations.trust import read_labels
    from rubric_integrations.trust.comparable_runs import comparability

    runs, order = _run_files(runs)
    require_different(labels or [], "the file of each rater once")
    file = OutputFile(output, option="--output", overwrite=overwrite, inputs=[*runs, *(labels or [])], replaces=PAGE)
    with refuse_bad_input(*runs, *(labels or [])):
        loaded = [read_run(path) for path in runs]
        of_people = (
            [label for path in labels for label in read_labels(path, loaded[-1], strict=strict)] if labels else None
        )
        comparable, over_time = None, None
        if len(loaded) > 2:
            over_time = follow_runs(loaded)
            print_warnings([f"{run.name} starts a series: {run.reason}" for run in over_time.runs if run.reason])
        else:
            comparable = comparability(*loaded).require(anyway)
            print_warnings(comparable.all_warnings)
        parts = page_parts(
            loaded, title, labels=of_people, comparable=comparable, over_time=over_time, order=order, redact=redact
        )
    size = 0
    with file:
        for part in parts:
            file.write(part)
            size += len(part.encode("utf-8", "replace"))
    out.print(plain(f"{output}: {size / 1000:,.0f} kB. Open it in a browser."), soft_wrap=True)


def _run_files(paths: list[Path]) -> tuple[list[Path], str]:
    """Return the files of runs, with the files of directories in chronological order, and a text about this order."""
    from rubric_integrations.runs.files import is_run_file, run_date

    files: list[Path] = []
    orders: list[str] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        lines = list(path.glob("*.jsonl"))
        runs = [file for file in lines if is_run_file(file)]
        if not runs:
            refuse(f"{path}: is a folder without a run: name a folder of files that `grade --out` wrote")
        if others := sorted(file.name for file in lines if file not in runs):
            err.print(plain(f"{path}: left out, because they are no runs: {', '.join(others)}"), soft_wrap=True)
        dates = {file: run_date(file) for file in runs}
        known = [date for date in dates.values() if date]
        is_dated = len(known) == len(runs)
        order = "by the dates in the files" if is_dated else "by file name"
        files += sorted(runs, key=lambda file: (dates[file] if is_dated else "", _natural(file.stem)))
        orders.append(f"The order of the runs is {order}: {', '.join(file.name for file in files[-len(runs) :])}.")
    if orders:
        print_lines(orders)
    return files, (orders[0].partition(":")[0] + "." if len(paths) == 1 and orders else "")


def _natural(name: str) -> list[tuple[int, str]]:
    """Return the sort key of a name. With it, `run-9` comes before `run-10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def show(
    run: Annotated[Path, typer.Argument(help="A file that `grade --out` wrote.")],
    worst: Annotated[int, typer.Option(min=0, help="The number of rows with the lowest scores to show.")] = 5,
    criterion: Annotated[
        str | None,
        typer.Option(
            help="Show this criterion, and the rows with the worst answers to it, of these the lowest scores."
        ),
    ] = None,
    row: Annotated[
        str | None, typer.Option(metavar="ID", help="Show one row in full, from its answers to its score.")
    ] = None,
) -> None:
    """Show a finished run: its figures, the points lost on each criterion, and the worst rows with the judge's reasons.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rich.text import Text

    from rubric_integrations.reporting.shown_run import UnknownNameError, show_criterion, show_row, show_run
    from rubric_integrations.runs.files import IncompleteRunWarning, RunFileError, read_run

    if criterion is not None and row is not None:
        refuse("--criterion and --row show two things: name one")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteRunWarning)  # the figures have it
            loaded = read_run(run)
        if row is not None:
            parts = show_row(loaded, row)
        else:
            parts = show_run(loaded, worst) if criterion is None else show_criterion(loaded, criterion, worst)
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, Text))
    except (RunFileError, UnknownNameError) as error:
        refuse(str(error) if isinstance(error, RunFileError) else f"{run}: {error}")


def rescore(
    ledger: Annotated[
        str, typer.Argument(help="The ledger of a run, such as run.sqlite, or the URL of a PostgreSQL database.")
    ],
    rubric: Annotated[
        Path | None,
        typer.Option(help="The new rubric. A row's own rubric is added to it. By default, only the rows' own rubrics."),
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write one full report per line to this file (JSONL).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False,
    cannot_assess: Annotated[
        Literal["skip", "zero", "partial", "fail"] | None,
        typer.Option(help="How an abstention counts; by default as in the run."),
    ] = None,
) -> None:
    """Score the submissions of a run with another rubric, without calls to a model.

    If a row had its own rubric in the run, the row's rubric is added to the new rubric.

    The new rubric can have other weights, names, pass marks and required criteria. If it changes the text of a
    criterion, the ledger has no judgments of that criterion. The output states how many judgments are missing.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.reporting.grades import ranking_table
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.files import run_line
    from rubric_integrations.runs.rescoring import rescore as rescore_ledger
    from rubric_integrations.runs.summary import Graded

    address = ledger_address(ledger)
    if not ledger_exists(address):
        refuse(f"{ledger}: there is no such ledger")
    inputs = [*ledger_files(address), *([rubric] if rubric else [])]
    file = OutputFile(out_file, option="--out", overwrite=overwrite, inputs=inputs) if out_file else None
    ranked: list[Graded] = []
    count = missing = incomplete = 0
    scores = 0.0
    with refuse_bad_input():
        new_rubric = Rubric.from_file(rubric) if rubric else None
        with open_ledger(address) as opened, ExitStack() as stack:
            sink = stack.enter_context(file) if file else None
            for result in rescore_ledger(opened, new_rubric, cannot_assess):
                count += 1
                missing += result.missing
                incomplete += bool(result.missing)
                scores += result.score or 0.0
                # One more than are shown. With more than MAX_RANKED, no ranking is printed.
                if len(ranked) <= MAX_RANKED:
                    problem = "judgments are missing" if result.missing else None
                    ranked.append(Graded(result.row, result.report, problem))
                if sink:
                    sink.write(run_line(result))
    if count <= MAX_RANKED:
        out.print(ranking_table(ranked))
    complete = count - incomplete
    mean = f"mean {scores / complete:.3f}" if complete else "no score"
    name = (new_rubric.name or "the rubric") if new_rubric else "the rows' own rubrics"
    out.print(plain(f"{complete} of {count} scored by {name}: {mean}, without a call."), soft_wrap=True)
    if missing:
        line = f"{counted(missing, 'new judgment')} would have to be requested."
        err.print(plain(line), style="yellow", soft_wrap=True)


def import_(
    judgments: Annotated[
        Path,
        typer.Argument(help="Recorded judgments (JSONL or CSV): `id`, `criterion`, `reply` or `verdict`, and `judge`."),
    ],
    rubric: Annotated[Path, typer.Option(help="The rubric that the judges applied.")],
    out_file: Annotated[Path, typer.Option("--out", help="Write the run to this file (JSONL).")],
    responses: Annotated[
        Path | None,
        typer.Option(help="The responses that were judged, by their `id`; without them, the run has no texts."),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(help="Read only this judge; repeat it for more. By default, all judges of the file are a panel."),
    ] = None,
    show_unread: Annotated[
        bool, typer.Option("--show-unread", help="List every reply that could not be read; by default the first five.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False,
) -> None:
    """Make a run from judgments that another program recorded, for `agree`, `calibrate`, `compare` and `report`.

    A reply that cannot be read is a failure of its judge. Such replies are counted, and their rows have no score.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.runs.files import run_line
    from rubric_integrations.runs.imported import read_judgments

    inputs = [judgments, rubric, *([responses] if responses else [])]
    file = OutputFile(out_file, option="--out", overwrite=overwrite, inputs=inputs)
    with refuse_bad_input(*inputs):
        run = read_judgments(judgments, rubric, responses=responses, judge=judge or None)
    with file:
        for result in run:
            file.write(run_line(result))
    shown = run.unread_replies if show_unread else run.unread_replies[:_MOST_UNREAD]
    print_warnings([f"{reply.id}, {reply.criterion}, {reply.judge}: {reply.problem}" for reply in shown])
    if run.unread > len(shown):
        print_warnings([f"and {run.unread - len(shown):,} more, which --show-unread lists"])
    scores = [result.score for result in run if result.score is not None]
    mean = f"mean score {sum(scores) / len(scores):.3f} of {len(scores):,}" if scores else "no score"
    judges = ", ".join(run.judges) + (", whose votes are joined" if len(run.judges) > 1 else "")
    print_lines([f"{out_file}: {counted(len(run), 'row')} judged by {judges}: {mean}; {run.summary()}."])


_MOST_UNREAD = 5
