"""The command `certify`: from which confidence on a cheap judge may be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, out
from rubric_integrations.cli.figures import figure, print_json, print_lines, print_warnings
from rubric_integrations.cli.trust_inputs import JsonOption, load_labels, load_run, refuse_bad_input, require_different

if TYPE_CHECKING:
    from rubric_integrations.agreement import Certificate


def certify(
    cheap: Annotated[
        Path, typer.Argument(help="The rows, graded by the cheap judge alone: a file that `grade --out` wrote.")
    ],
    truth: Annotated[
        Path,
        typer.Argument(
            help="People's labels of a random part of it; or the run of the expensive judge on the same rows, or on a "
            "random sample of them."
        ),
    ],
    alpha: Annotated[float, typer.Option(help="The highest rate of wrong answers among those that are kept.")] = 0.1,
    delta: Annotated[float, typer.Option(help="The probability that this promise does not hold.")] = 0.1,
    as_json: JsonOption = False,
) -> None:
    """Find the confidence from which on a cheap judge may be trusted, for `grade --escalate-below`.

    Exit codes: 0 certified; 1 nothing can be certified; 2 bad usage or bad input.
    """
    from rubric_integrations.agreement import certify as certify_run
    from rubric_integrations.runs.run_files import is_run_file

    require_different([cheap, truth], "the run of the cheap judge, and labels or the run of the expensive judge")
    with refuse_bad_input(cheap, truth):
        run = load_run(cheap)
        answers = load_run(truth) if is_run_file(truth) else load_labels(truth, run, None)
        certificate = certify_run(run, answers, alpha=alpha, delta=delta)
    print_warnings(certificate.warnings)
    if as_json:
        print_json(certificate)
    else:
        _print(certificate)
    if certificate.threshold is None:
        raise typer.Exit(Exit.NOT_PASSED)


def _print(certificate: Certificate) -> None:
    from rich.table import Table

    table = Table(title=plain("Thresholds, the highest first"), title_justify="left", title_style="bold")
    for name in ("confidence", "kept", "labelled", "wrong", "at most", "holds"):
        table.add_column(name, justify="left" if name == "holds" else "right")
    for step in certificate.steps:
        table.add_row(
            repr(step.threshold), f"{step.share:.0%}", f"{step.kept:,}", f"{step.errors:,}", figure(step.bound),
            "yes" if step.holds else "no",
        )  # fmt: skip
    out.print(table)
    print_lines([certificate.headline])
