"""The commands `label` and `plan`: human labels of a run's judgments, and how many of them an interval needs."""

from __future__ import annotations

import math
import warnings
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import percent
from rubric_integrations.cli.console import UNDEFINED, figures_table, out, print_json, print_lines, refuse
from rubric_integrations.cli.loading import (
    ClusterOption,
    JsonOption,
    LevelOption,
    load_run,
    print_caught,
    refuse_bad_input,
    require_level,
)
from rubric_integrations.cli.outputs import PAGE, OutputFile

if TYPE_CHECKING:
    from rubric_integrations.runs.files import RunFile
    from rubric_integrations.trust.planning import JudgmentToLabel


def label(
    run: Annotated[Path, typer.Argument(help="A file that `grade --out` wrote.")],
    n: Annotated[
        int,
        typer.Option(
            "--n", min=1, help="The number of submissions to draw; with --by-verdict, of judgments of each verdict."
        ),
    ] = 50,
    by_verdict: Annotated[
        bool, typer.Option("--by-verdict", help="Draw judgments of each verdict on each criterion, also of rare ones.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Draw from as many groups as possible: rows with the same value of this column of the graded table, "
            "such as the questions about one document, or of `query`, or `id`.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the draw; the same seed draws the same.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("label.html"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file of --output if it exists and is not a report page.")
    ] = False,
    open_page: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open the page in a browser; by default if stdout is a terminal."),
    ] = None,
) -> None:
    """Draw judgments of a run for human labelling, without showing the judge's answers.

    Writes an HTML page, which works with the keyboard and exports the labels.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.runs.files import RunFileError, read_run
    from rubric_integrations.trust.planning import choose_for_labels

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loaded = read_run(run)
            drawn = choose_for_labels(loaded, n, by_verdict=by_verdict, cluster=cluster, seed=seed)
        print_caught(caught)
        if lacking := sum(item.submission is None for item in drawn):
            refuse(
                f"{run}: {lacking:,} of the {len(drawn):,} judgments to label have no text: import the judgments with "
                "--responses, or raters would label texts that they cannot read"
            )
        _write_page(run, loaded, drawn, output, overwrite=overwrite, open_page=open_page)
    except (RunFileError, ImportError, ValueError) as error:
        refuse(str(error))


def _write_page(
    path: Path,
    run: RunFile,
    drawn: list[JudgmentToLabel],
    output: Path,
    *,
    overwrite: bool,
    open_page: bool | None,
) -> None:
    """Write the page on which the drawn judgments are labelled, and open it in a browser."""
    from rubric_integrations.reporting.page.render import page_parts

    file = OutputFile(output, option="--output", overwrite=overwrite, inputs=[path], replaces=PAGE)
    parts = page_parts([run], to_label=drawn)
    with file:
        for part in parts:
            file.write(part)
    out.print(plain(f"{output}: {len(drawn):,} judgments to label. Open it in a browser."), soft_wrap=True)
    if out.is_terminal if open_page is None else open_page:
        webbrowser.open(output.resolve().as_uri())


_CORRELATIONS = (0.0, 0.5, 0.7, 0.9)


class _Figure(NamedTuple):
    """A mean score with a standard deviation, or a rate, that labels should correct.

    Attributes:
        name: The name of the figure.
        judged: The number of judged submissions.
        rate: The expected rate. None for a mean score.
        sd: The expected standard deviation of the scores. None for a rate.
        groups: The effective number of groups of submissions. None for independent submissions.
        icc: The correlation of two submissions in the same group.
    """

    name: str
    judged: int
    rate: float | None = None
    sd: float | None = None
    groups: float | None = None
    icc: float = 0.0

    @property
    def spread(self) -> float:
        return math.sqrt(self.rate * (1 - self.rate)) if self.rate is not None else self.sd or 0.0


def plan(
    run: Annotated[
        Path | None,
        typer.Argument(help="A run that gives --judged, --sd and --rate of each criterion.", show_default=False),
    ] = None,
    half_width: Annotated[
        float | None, typer.Option(help="Half the width of the interval that you want, such as 0.05.")
    ] = None,
    judged: Annotated[int | None, typer.Option(min=1, help="The number of judged submissions.")] = None,
    rate: Annotated[float | None, typer.Option(min=0, max=1, help="The expected rate of a criterion.")] = None,
    sd: Annotated[
        float | None, typer.Option(min=0, help="The expected standard deviation of the scores, instead of --rate.")
    ] = None,
    correlation: Annotated[
        float | None,
        typer.Option(min=-1, max=1, help="The expected correlation of judge and human labels; by default several."),
    ] = None,
    min_score: Annotated[
        float | None, typer.Option(help="Compute how many submissions a gate on this mean score needs at least.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="The probability of a wrong decision of that gate.")] = 0.05,
    cluster: ClusterOption = None,
    level: LevelOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Compute how many human labels an interval of a given width needs, and how many submissions a gate needs.

    The interval is for the mean score, or for the rate of a criterion, after `calibrate` corrects it with the labels.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.trust.planning import FEWEST_LABELS

    require_level(level)
    if half_width is None and min_score is None:
        refuse("plan needs --half-width, for the number of labels, or --min-score, for the submissions of a gate")
    if half_width is not None and not 0 < half_width < math.inf:
        refuse(f"--half-width must be above 0, got {half_width!r}: 0.05 is an interval of 0.05 to each side")
    with refuse_bad_input(*([run] if run else [])):
        figures = _figures(run, judged, rate, sd, cluster) if half_width is not None else []
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
                    {"figure": one.name, "judged": one.judged, "rate": one.rate, "sd": one.sd, "groups": one.groups,
                     "icc": one.icc, "correlation": r, "labels": count}
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
                f"submissions, all perfect, and {fewest['sequential']:,} if it is evaluated after each."
            ]
        )


def _figures(
    run: Path | None, judged: int | None, rate: float | None, sd: float | None, cluster: str | None
) -> list[_Figure]:
    """Return the figures to plan for: from the options, or the mean score and each binary criterion of the run."""
    if run is None:
        if judged is None or (rate is None) == (sd is None):
            raise ValueError("plan needs --judged and exactly one of --rate and --sd, or a run that gives them")
        if cluster is not None:
            raise ValueError(f"--cluster {cluster} needs a run, whose rows have this column")
        return [_Figure("a rate" if rate is not None else "the mean score", judged, rate, sd)]
    if judged is not None or rate is not None or sd is not None:
        raise ValueError("--judged, --rate and --sd come from the run: leave them out, or leave out the run")
    return _figures_of(load_run(run), cluster)


def _figures_of(run: RunFile, cluster: str | None) -> list[_Figure]:
    """Measure the spread of the scores and of each binary criterion, which decides how many labels are needed."""
    import numpy as np

    from rubric_integrations.trust.matching import group_rows
    from rubric_integrations.trust.means import effective_groups, intraclass_correlation, select_groups

    groups = group_rows(run.rows, cluster)
    scores: dict[int, float] = {}
    answers: dict[str, dict[int, str]] = {}
    for index, row in enumerate(run.rows):
        if row.report is None or row.report.failed_count:
            continue
        if row.report.score is not None:
            scores[index] = row.report.score
        for entry in row.report.criteria:
            if entry.verdict is not None:
                answers.setdefault(entry.name, {})[index] = entry.verdict
    if len(scores) < 2:
        raise ValueError(f"{run.name}: has {len(scores)} scored submissions, and the spread needs two at least")

    def in_groups(figure: _Figure, values: dict[int, float]) -> _Figure:
        of_rows = select_groups(groups, list(values))
        if of_rows is None:
            return figure
        icc = intraclass_correlation(list(values.values()), of_rows)
        return figure._replace(groups=max(2.0, effective_groups(of_rows)), icc=icc or 0.0)

    figures = [in_groups(_Figure("the mean score", len(scores), sd=float(np.std([*scores.values()], ddof=1))), scores)]
    for name, verdicts in answers.items():
        if {"MET", "UNMET"} & set(verdicts.values()):
            met = {index: float(verdict == "MET") for index, verdict in verdicts.items()}
            figures.append(in_groups(_Figure(name, len(met), rate=sum(met.values()) / len(met)), met))
    return figures


def _labels(figure: _Figure, half_width: float, correlations: tuple[float, ...], level: float) -> list[int | None]:
    """Return the number of labels that a figure needs, for each correlation of the judge with human labels."""
    from rubric_integrations.trust import plan_labels

    return [
        plan_labels(
            half_width,
            judged=figure.judged,
            rate=figure.rate,
            sd=figure.sd,
            correlation=value,
            groups=figure.groups,
            icc=figure.icc,
            level=level,
        )
        for value in correlations
    ]


def _fewest(min_score: float, alpha: float) -> dict[str, float]:
    from rubric_integrations.trust import fewest_to_pass

    fixed, sequential = (fewest_to_pass(min_score, alpha, sequential=value) for value in (False, True))
    return {"min_score": min_score, "alpha": alpha, "fixed": fixed, "sequential": sequential}


def _print_labels(
    figures: list[_Figure], labels: list[list[int | None]], correlations: tuple[float, ...], half_width: float,
    level: float,
) -> None:  # fmt: skip
    """Print how many labels each figure needs."""
    title = f"Labels for \N{PLUS-MINUS SIGN}{half_width:g} ({percent(level)}), "
    title += "by the judge's correlation r with human labels"
    headings = [f"r = {value:g}" for value in correlations]
    has_groups = any(one.groups is not None for one in figures)
    of_groups = ("groups", "icc") if has_groups else ()
    table = figures_table(title, ("figure", "judged", "rate", "sd", *of_groups, *headings), text=["figure"])
    for one, counts in zip(figures, labels, strict=True):
        known = (one.rate, one.sd, *((one.groups, one.icc) if has_groups else ()))
        spread = (UNDEFINED if value is None else f"{value:.3g}" for value in known)
        texts = ("impossible" if count is None else f"{count:,}" for count in counts)
        table.add_row(plain(one.name), f"{one.judged:,}", *spread, *texts)
    out.print(table)


def _impossible(figures: list[_Figure], labels: list[list[int | None]], level: float) -> list[str]:
    """Return a line for each figure whose width cannot be reached, with the narrowest possible width."""
    from rubric_integrations.trust.statistics import normal_quantile, student_quantile

    lines: list[str] = []
    for one, counts in zip(figures, labels, strict=True):
        if None in counts:
            quantile = normal_quantile(level) if one.groups is None else student_quantile(one.groups - 1, level)
            of_groups = 0.0 if one.groups is None else one.icc / one.groups
            narrowest = quantile * one.spread * math.sqrt(1 / one.judged + of_groups)
            more = "submissions" if one.groups is None else "submissions of other groups"
            lines.append(
                f"{one.name}: impossible; labels for all {one.judged:,} submissions give "
                f"\N{PLUS-MINUS SIGN}{narrowest:.3f}: judge more {more}, or accept a wider interval."
            )
    return lines
