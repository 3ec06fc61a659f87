"""The command `calibrate`: corrects a run's mean score and rates by people's labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import out
from rubric_integrations.cli.figures import figure, print_json, print_lines, print_warnings, with_limits
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
)

if TYPE_CHECKING:
    from rubric_integrations.agreement import Calibration


def calibrate(
    run: RunPath,
    labels: LabelsPath = None,
    rubric: RubricOption = None,
    level: LevelOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Correct a run's mean score, and the rates of its criteria, by people's labels of a part of it.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.agreement import calibrate as calibrate_run

    require_level(level)
    if labels is not None:
        require_different(run, labels, "the run, and the labels that people gave")
    with refuse_bad_input(run, *([labels] if labels else [])):
        loaded, run_rubric = load_run(run), load_rubric(rubric)
        answers = load_labels(labels, loaded, run_rubric) if labels else load_own_labels(loaded, run_rubric)
        result = calibrate_run(loaded, answers, rubric=run_rubric, level=level)
    print_warnings(result.warnings)
    if as_json:
        print_json(result)
    else:
        _print(result, level)


def _print(result: Calibration, level: float) -> None:
    from rich.table import Table

    print_lines(result.score_lines)
    table = Table(title=plain(f"Rates [{level:.0%} intervals]"), title_justify="left", title_style="bold")
    for name in ("criterion", "answer", "judge", "corrected", "labels"):
        table.add_column(name, justify="left" if name in ("criterion", "answer") else "right", overflow="fold")
    for name, row in result.criteria.items():
        for answer, rate, judged in row.rates:
            table.add_row(plain(name), plain(answer), figure(judged), plain(with_limits(rate)), f"{rate.n:,}")
    out.print(table)
