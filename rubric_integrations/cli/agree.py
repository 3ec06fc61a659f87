"""The command `agree`: measures how far a judge agrees with people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import out
from rubric_integrations.cli.figures import UNDEFINED, figure, print_json, print_lines, print_warnings, with_limits
from rubric_integrations.cli.trust_inputs import (
    JsonOption,
    LabelsPath,
    LevelOption,
    RubricOption,
    RunPath,
    load_labels,
    load_own_labels,
    load_rubric,
    load_run,
    refuse_bad_input,
    require_different,
    require_level,
    require_matching,
)

if TYPE_CHECKING:
    from rubric_integrations.agreement import Agreement

_COLUMNS = ("criterion", "n", "coverage", "accuracy", "kappa", "AC1", "bias", "people's alpha")


def agree(
    run: RunPath,
    labels: LabelsPath = None,
    rubric: RubricOption = None,
    level: LevelOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Measure how far a judge agrees with people, per criterion and in total.

    The bias is the judge's mean minus people's. Figures are in [-1, 1], and a dash is a figure that is undefined.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.agreement import agreement

    require_level(level)
    if labels is not None:
        require_different(run, labels, "the run, and the labels that people gave")
    with refuse_bad_input(run, *([labels] if labels else [])):
        loaded, run_rubric = load_run(run), load_rubric(rubric)
        answers = load_labels(labels, loaded, run_rubric) if labels else load_own_labels(loaded, run_rubric)
        result = agreement(loaded, answers, rubric=run_rubric, level=level)
    require_matching(answers, result.labels, labels or run, run)
    if result.unmatched:
        print_warnings([f"{result.unmatched:,} of {len(answers):,} labels belong to no judgment of {run}"])
    print_warnings(result.warnings)
    if as_json:
        print_json(result)
    else:
        _print(result, level)


def _print(result: Agreement, level: float) -> None:
    from rich.table import Table

    table = Table(
        title=plain(f"Agreement with people [{level:.0%} intervals]"), title_justify="left", title_style="bold"
    )
    for name in _COLUMNS:
        table.add_column(
            name,
            justify="left" if name == "criterion" else "right",
            overflow="fold",
            min_width=len(name) if name == "criterion" else None,
        )
    for name, row in result.criteria.items():
        coverage = UNDEFINED if row.coverage is None else f"{row.coverage:.0%}"
        table.add_row(
            plain(name), f"{row.n:,}", coverage, plain(with_limits(row.accuracy, 2)), plain(with_limits(row.kappa, 2)),
            figure(row.ac1, 2), plain(with_limits(row.bias, 2, signed=True)), figure(row.people_alpha, 2),
        )  # fmt: skip
    out.print(table)
    scores = result.scores
    raters = f" by {', '.join(result.raters)}" if result.raters else ""
    lines = [
        f"All criteria: accuracy {with_limits(result.accuracy)} over {result.accuracy.n:,} submissions, "
        f"{figure(result.micro_accuracy)} over all judgments; kappa {figure(result.micro_kappa)} over all, and "
        f"{figure(result.mean_kappa)} on average."
    ]
    if scores.values is not None:
        lines.append(
            f"Scores of {scores.n:,} submissions: the judge minus people {with_limits(scores.bias, signed=True)}; "
            f"mean error {figure(scores.values.mae)}, distance of the distributions {figure(scores.values.emd)}, "
            f"correlation {figure(scores.values.pearson)}."
        )
    print_lines([*lines, f"{result.labels:,} labels{raters}, {result.blind:,} of them blind."])
