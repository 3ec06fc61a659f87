"""The command `compare`: compares two runs over the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, err, out, refuse
from rubric_integrations.cli.figures import UNDEFINED, print_json, print_lines, print_warnings, with_limits
from rubric_integrations.cli.trust_inputs import (
    JsonOption,
    LevelOption,
    RubricOption,
    load_labels,
    load_rubric,
    load_run,
    refuse_bad_input,
    require_different,
    require_level,
)

if TYPE_CHECKING:
    from rubric_integrations.agreement import RunComparison
    from rubric_integrations.results.labels import LabelledJudgment
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.run_files import RunFile


def compare(
    before: Annotated[Path, typer.Argument(help="The first run: a file that `grade --out` wrote.")],
    after: Annotated[Path, typer.Argument(help="The second run, over the same inputs with the same ids.")],
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="People's labels of a random part of the inputs, in both runs: one file with both, or the first "
            "run's and then the second run's. They correct the difference."
        ),
    ] = None,
    margin: Annotated[float, typer.Option(min=0, help="How much lower the second run's mean score may be.")] = 0.0,
    cluster_by: Annotated[
        str | None,
        typer.Option(
            metavar="SEPARATOR",
            help="Rows are samples of one input if their ids are equal up to the last SEPARATOR: with /, the rows "
            "q1/1 and q1/2.",
        ),
    ] = None,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 1 if the second run is worse.")] = False,
    mixed: Annotated[
        bool,
        typer.Option(
            "--mixed",
            help="Allow rows that the runs grade by different rubrics, whose scores measure different things.",
        ),
    ] = False,
    rubric: RubricOption = None,
    level: LevelOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs over the same inputs: the scores, the passed rows, and each criterion.

    The second run is better if its mean score is surely higher, worse if it is surely lower by more than --margin, and
    otherwise the comparison is unclear.

    Exit codes: 0 done; 1 the second run is worse (--gate); 2 bad usage or bad input.
    """
    from rubric_integrations.agreement import compare_runs
    from rubric_integrations.reporting.page.mismatch import rubric_mismatch

    require_level(level)
    require_different([before, after], "two runs")
    if labels and len(labels) > 2:
        refuse(f"--labels are {len(labels)} files: name one, or one for each run")
    with refuse_bad_input(before, after):
        first, second, run_rubric = load_run(before), load_run(after), load_rubric(rubric)
        if not mixed and (mismatch := rubric_mismatch([first, second])):
            raise ValueError(
                f"the runs are of different rubrics: {mismatch}: pass --mixed to compare them nevertheless"
            )
        if cluster_by is not None:
            _require_separator(cluster_by, first)
        result = compare_runs(
            first, second, labels=_load_labels(labels, first, second, run_rubric), rubric=run_rubric, level=level,
            cluster=_input_of(cluster_by) if cluster_by else None, margin=margin,
        )  # fmt: skip
    if result.corrected is not None and not result.corrected.n:
        refuse("--labels: no input has labels of each criterion in both runs: label the same inputs in both")
    print_warnings(result.warnings)
    if as_json:
        print_json(result)
    else:
        _print(result, margin, level)
    if gate and result.decision == "worse":
        err.print(plain(f"gate failed: --gate: {after} is worse than {before}"), style="red", soft_wrap=True)
        raise typer.Exit(Exit.NOT_PASSED)


def _load_labels(
    paths: list[Path] | None, first: RunFile, second: RunFile, rubric: Rubric | None
) -> list[LabelledJudgment] | None:
    if not paths:
        return None
    both = first._replace(rows=[*first.rows, *second.rows])
    of_files = [both] if len(paths) == 1 else [first, second]
    return [label for path, run in zip(paths, of_files, strict=True) for label in load_labels(path, run, rubric)]


def _require_separator(separator: str, run: RunFile) -> None:
    if not separator or not any(separator in row.id for row in run.rows):
        raise ValueError(
            f"--cluster-by {separator!r}: no id of the first run has it, such as {run.rows[0].id!r}: name what "
            "separates the input from the number of the sample"
        )


def _input_of(separator: str) -> Callable[[str], str]:
    return lambda row_id: row_id.rpartition(separator)[0] or row_id


def _print(result: RunComparison, margin: float, level: float) -> None:
    from rich.table import Table

    p_value = "" if result.p_value is None else f", p = {result.p_value:.3g}"
    lines = [
        f"{result.decision}: the mean score changed by {with_limits(result.score, signed=True)} over "
        f"{result.inputs:,} inputs ({level:.0%} interval{p_value})."
    ]
    if result.score.low is None:
        lines.append("All inputs changed alike, so that the change has no interval.")
    if result.corrected is not None:
        labelled = f"{result.corrected.n:,} labelled inputs, which decide"
        lines.append(f"Corrected by {labelled}: {with_limits(result.corrected, signed=True)}.")
    if margin:
        state = "It is surely not" if result.is_not_worse else "It may be"
        lines.append(f"{state} worse by more than {margin:g}.")
    if result.detectable:
        lines.append(f"So many inputs show a true change of {result.detectable:.3f} in 80 % of cases.")
    if result.passed is not None:
        lines.append(f"Share of passed rows: {with_limits(result.passed, signed=True)}.")
    if result.unmatched:
        lines.append(f"Rows in only one of the runs: {result.unmatched:,}.")
    print_lines(lines)
    table = Table(title="Criteria", title_justify="left", title_style="bold")
    for name in ("criterion", "change", "p", "p (Holm)", "inputs"):
        table.add_column(
            name,
            justify="left" if name == "criterion" else "right",
            overflow="fold",
            min_width=len(name) if name == "criterion" else None,
        )
    for name, row in result.criteria.items():
        p_values = (UNDEFINED if value is None else f"{value:.3g}" for value in (row.p_value, row.adjusted))
        change = with_limits(row.difference, signed=True)
        table.add_row(plain(name), plain(change), *p_values, f"{row.difference.n:,}")
    out.print(table)
