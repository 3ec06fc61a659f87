"""The command `compare-judges`: whether a cheap judge is good enough in place of a strong one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import (
    Exit,
    figure,
    figures_table,
    out,
    print_json,
    print_lines,
    print_warnings,
)
from rubric_integrations.cli.loading import (
    ClusterOption,
    JsonOption,
    LabelsPaths,
    RubricOption,
    StrictOption,
    load_people_labels,
    load_rubric,
    load_run,
    refuse_bad_input,
    require_different,
)

if TYPE_CHECKING:
    from rubric_integrations.trust import JudgeChange, JudgeChanges, JudgeComparison


def compare_judges(
    strong: Annotated[Path, typer.Argument(help="The run of the strong judge: a file that `grade --out` wrote.")],
    cheap: Annotated[Path, typer.Argument(help="The run of the cheap judge, on the same responses.")],
    labels: LabelsPaths = None,
    margin: Annotated[float, typer.Option(help="The accepted loss of accuracy.")] = 0.03,
    alpha: Annotated[
        float, typer.Option(help="The probability of a wrong decision. All intervals have the level 1 - alpha.")
    ] = 0.05,
    cluster: ClusterOption = None,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 1 unless the cheap judge is good enough.")] = False,
    rubric: RubricOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two judges on the same human labels: whether the cheap one is good enough.

    It is "good enough" if its loss of accuracy is shown to be less than --margin, "not good enough" if the loss is
    shown to be more, and otherwise "not yet known". Differences are the cheap judge minus the strong one. To let it
    answer only where it is sure, see `certify`.

    Exit codes: 0 done; 1 not good enough, or not yet known (--gate); 2 bad usage or bad input.
    """
    from rubric_integrations.trust import compare_judges as compare

    paths = labels or []
    require_different([strong, cheap, *paths], "two runs and the human labels")
    with refuse_bad_input(strong, cheap, *paths):
        first, second, run_rubric = load_run(strong), load_run(cheap), load_rubric(rubric)
        answers = load_people_labels(paths, first, run_rubric, strict=strict)
        result = compare(first, second, answers, margin=margin, alpha=alpha, cluster=cluster)
    print_warnings(result.warnings)
    if as_json:
        print_json({**{name: getattr(result, name) for name in type(result).model_fields}, "headline": result.headline})
    else:
        _print_judges(result)
    if gate and result.decision != "good enough":
        raise typer.Exit(Exit.NOT_PASSED)


def _print_judges(result: JudgeComparison) -> None:
    title = f"{result.names[1]} minus {result.names[0]} [{1 - result.alpha:.0%} intervals]"
    table = figures_table(title, ("criterion", "figure", "strong", "cheap", "difference", "p (Holm)"),
                          text=["criterion", "figure"])  # fmt: skip
    rows = [*result.criteria.items(), *([("all criteria", result.overall)] if len(result.criteria) > 1 else [])]
    for name, row in rows:
        for number, (label, change) in enumerate(_figures(row)):
            table.add_row(
                plain("" if number else name), plain(label), figure(change.strong, 2), figure(change.cheap, 2),
                plain(change.difference.with_limits(2, signed=True)), figure(change.adjusted),
            )  # fmt: skip
    out.print(table)
    print_lines([f"{name}: {spend.summary()}" for name, spend in zip(result.names, result.spend, strict=True)])
    print_lines([f"{result.judgments:,} labelled judgments of {result.responses:,} responses. {result.headline}"])


def _figures(row: JudgeChanges) -> list[tuple[str, JudgeChange]]:
    recalls = [(f"recall of {answer}", change) for answer, change in row.recalls.items()]
    return [("accuracy", row.accuracy), ("kappa", row.kappa), ("bias", row.bias), *recalls]
