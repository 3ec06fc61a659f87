"""The command `plan`: says how many labels, and how many submissions, a conclusion needs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import out, refuse
from rubric_integrations.cli.figures import UNDEFINED, print_json, print_lines
from rubric_integrations.cli.trust_inputs import JsonOption, LevelOption, load_run, refuse_bad_input, require_level

if TYPE_CHECKING:
    from rubric_integrations.runs.run_files import RunFile

# How well judges follow people, from barely to very well, if nobody knows it yet.
_CORRELATIONS = (0.0, 0.5, 0.7, 0.9)


class _Figure(NamedTuple):
    """What labels should correct: a mean score with a standard deviation, or a rate."""

    name: str
    judged: int
    rate: float | None = None
    sd: float | None = None

    @property
    def spread(self) -> float:
        return math.sqrt(self.rate * (1 - self.rate)) if self.rate is not None else self.sd or 0.0


def plan(
    run: Annotated[
        Path | None,
        typer.Argument(help="A run, which tells --judged, --sd and --rate of each criterion.", show_default=False),
    ] = None,
    half_width: Annotated[
        float | None, typer.Option(help="Half the width of the interval that you want, such as 0.05.")
    ] = None,
    judged: Annotated[int | None, typer.Option(min=1, help="The number of judged submissions.")] = None,
    rate: Annotated[float | None, typer.Option(min=0, max=1, help="The expected rate of a criterion.")] = None,
    sd: Annotated[
        float | None, typer.Option(min=0, help="The expected standard deviation of the scores, in place of --rate.")
    ] = None,
    correlation: Annotated[
        float | None,
        typer.Option(min=-1, max=1, help="The expected correlation of the judge with people; by default several."),
    ] = None,
    min_score: Annotated[
        float | None, typer.Option(help="How many submissions does a gate on this mean score need at least?")
    ] = None,
    alpha: Annotated[float, typer.Option(help="The probability of a wrong decision of that gate.")] = 0.05,
    level: LevelOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Say how many labels give a corrected figure the interval of a width, and what a gate needs at least.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.agreement.planning import FEWEST_LABELS

    require_level(level)
    if half_width is None and min_score is None:
        refuse("plan needs --half-width, for the number of labels, or --min-score, for that of a gate's submissions")
    if half_width is not None and not 0 < half_width < math.inf:
        refuse(f"--half-width must be above 0, got {half_width!r}: 0.05 is an interval of 0.05 to each side")
    with refuse_bad_input(*([run] if run else [])):
        figures = _figures(run, judged, rate, sd) if half_width is not None else []
        correlations = _CORRELATIONS if correlation is None else (correlation,)
        labels = [_labels(one, half_width, correlations, level) for one in figures] if half_width is not None else []
        fewest = _fewest(min_score, alpha) if min_score is not None else None
    if as_json:
        print_json(
            {
                "half_width": half_width,
                "level": level,
                "fewest_labels": FEWEST_LABELS,
                "labels": [
                    {"figure": one.name, "judged": one.judged, "rate": one.rate, "sd": one.sd, "correlation": r,
                     "labels": count}
                    for one, counts in zip(figures, labels, strict=True)
                    for r, count in zip(correlations, counts, strict=True)
                ],
                "gate": fewest,
            }
        )  # fmt: skip
        return
    if half_width is not None:
        _print_labels(figures, labels, correlations, half_width, level)
        lines = [
            f"Fewer than {FEWEST_LABELS} labels are not recommended, whatever the width: the intervals are uneven."
        ]
        print_lines([*_impossible(figures, labels, level), *lines])
    if fewest is not None:
        print_lines(
            [
                f"A gate on a mean score of {min_score:g} at alpha = {alpha:g} needs at least {fewest['fixed']:,} "
                f"submissions, all perfect, and {fewest['sequential']:,} if it is looked at after each."
            ]
        )


def _figures(run: Path | None, judged: int | None, rate: float | None, sd: float | None) -> list[_Figure]:
    """Return what to plan for: the options' figure, or the mean score and each binary criterion of the run."""
    if run is None:
        if judged is None or (rate is None) == (sd is None):
            raise ValueError("plan needs --judged and exactly one of --rate and --sd, or a run, which tells them")
        return [_Figure("a rate" if rate is not None else "the mean score", judged, rate, sd)]
    if judged is not None or rate is not None or sd is not None:
        raise ValueError("--judged, --rate and --sd come from the run: leave them out, or leave out the run")
    return _figures_of(load_run(run))


def _figures_of(run: RunFile) -> list[_Figure]:
    import numpy as np

    reports = [row.report for row in run.rows if row.report and not row.report.failed_count]
    scores = [report.score for report in reports if report.score is not None]
    if len(scores) < 2:
        raise ValueError(f"{run.name}: has {len(scores)} scored submissions, and the spread needs two at least")
    answers: dict[str, list[str]] = {}
    for report in reports:
        for entry in report.criteria:
            if entry.verdict is not None:
                answers.setdefault(entry.name, []).append(entry.verdict)
    binary = {name: verdicts for name, verdicts in answers.items() if {"MET", "UNMET"} & set(verdicts)}
    rates = [_Figure(name, len(of), rate=of.count("MET") / len(of)) for name, of in binary.items()]
    return [_Figure("the mean score", len(scores), sd=float(np.std(scores, ddof=1))), *rates]


def _labels(figure: _Figure, half_width: float, correlations: tuple[float, ...], level: float) -> list[int | None]:
    from rubric_integrations.agreement import plan_labels

    return [
        plan_labels(half_width, judged=figure.judged, rate=figure.rate, sd=figure.sd, correlation=value, level=level)
        for value in correlations
    ]


def _fewest(min_score: float, alpha: float) -> dict[str, float]:
    from rubric_integrations.agreement import fewest_to_pass

    fixed, sequential = (fewest_to_pass(min_score, alpha, sequential=value) for value in (False, True))
    return {"min_score": min_score, "alpha": alpha, "fixed": fixed, "sequential": sequential}


def _print_labels(
    figures: list[_Figure], labels: list[list[int | None]], correlations: tuple[float, ...], half_width: float,
    level: float,
) -> None:  # fmt: skip
    from rich.table import Table

    title = f"Labels for \N{PLUS-MINUS SIGN}{half_width:g} ({level:.0%}), by the judge's correlation r with people"
    table = Table(title=plain(title), title_justify="left", title_style="bold")
    headings = [f"r = {value:g}" for value in correlations]
    for name in ("figure", "judged", "rate", "sd", *headings):
        table.add_column(name, justify="left" if name == "figure" else "right", overflow="fold")
    for one, counts in zip(figures, labels, strict=True):
        spread = (UNDEFINED if value is None else f"{value:.3g}" for value in (one.rate, one.sd))
        texts = ("impossible" if count is None else f"{count:,}" for count in counts)
        table.add_row(plain(one.name), f"{one.judged:,}", *spread, *texts)
    out.print(table)


def _impossible(figures: list[_Figure], labels: list[list[int | None]], level: float) -> list[str]:
    """Say for which figures the width cannot be reached, and which width can."""
    from rubric_integrations.agreement.intervals import normal_quantile

    lines: list[str] = []
    for one, counts in zip(figures, labels, strict=True):
        if None in counts:
            narrowest = normal_quantile(level) * one.spread / math.sqrt(one.judged)
            lines.append(
                f"{one.name}: impossible; labels for all {one.judged:,} submissions give "
                f"\N{PLUS-MINUS SIGN}{narrowest:.3f}: judge more submissions, or accept a wider interval."
            )
    return lines
