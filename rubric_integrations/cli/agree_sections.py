"""What `agree` prints below its table: the judges of a panel, the confidence, and where people and the judge differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import out
from rubric_integrations.cli.figures import UNDEFINED, figure, print_lines, with_limits

if TYPE_CHECKING:
    from rubric_integrations.agreement import CriterionDisagreements, PanelReport, Reliability
    from rubric_integrations.results.labels import LabelledJudgment
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.run_files import RunFile

_JSON_CHARACTERS = 500


class Sections(NamedTuple):
    """The sections, as far as the run has what they are about.

    Attributes:
        panel: What each judge of a panel is worth; None if one judge graded the run.
        confidence: What the confidence means; None if no labelled judgment has one.
        disagreements: How people and the judge differ on each criterion.
        warnings: What limits the figures.
    """

    panel: PanelReport | None
    confidence: Reliability | None
    disagreements: Sequence[CriterionDisagreements]
    warnings: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Return the sections as JSON values; long texts are cut."""
        return {
            "panel": self.panel,
            "confidence": self.confidence,
            "disagreements": [_as_json(row) for row in self.disagreements],
        }

    def print(self) -> None:
        """Print the sections on stdout."""
        if self.panel is not None:
            _print_panel(self.panel)
        if self.confidence is not None:
            _print_confidence(self.confidence)
        differing = [row for row in self.disagreements if row.differ]
        if differing:
            _print_heading("Where they differ")
            print_lines([row.summary() for row in differing])


def measure_sections(
    run: RunFile, labels: Sequence[LabelledJudgment], rubric: Rubric | None, level: float, examples: int
) -> Sections:
    """Measure what the sections show.

    Args:
        run: The run.
        labels: People's labels of it.
        rubric: The run's rubric, if the caller has it.
        level: The level of the intervals.
        examples: The most disagreements of each criterion.
    """
    from rubric_integrations.agreement import find_disagreements, panel_report, reliability
    from rubric_integrations.agreement.panels.votes import is_voted

    entries = [entry for row in run.rows if row.report for entry in row.report.criteria]
    warnings: list[str] = []
    panel = confidence = None
    if any(map(is_voted, entries)):
        try:
            panel = panel_report(run, labels, rubric=rubric, level=level)
        except ValueError as error:
            warnings.append(f"nothing about the panel: {error}")
    if any(entry.confidence is not None for entry in entries):
        try:
            confidence = reliability(run, labels, level=level)
        except ValueError as error:
            warnings.append(f"nothing about the confidence: {error}")
    warnings += [*(panel.warnings if panel else ()), *(confidence.warnings if confidence else ())]
    return Sections(panel, confidence, find_disagreements(run, labels, examples=examples, level=level), warnings)


def _print_heading(text: str) -> None:
    out.print()
    out.print(plain(text), style="bold")


def _print_panel(panel: PanelReport) -> None:
    from rich.table import Table

    table = Table(title="Panel", title_justify="left", title_style="bold")
    for name in ("judge", "votes", "failed", "accuracy", "kappa", "adds", "panel less judge"):
        table.add_column(name, justify="left" if name == "judge" else "right", overflow="fold")
    for name, row in [*panel.judges.items(), ("the panel", panel.panel)]:
        table.add_row(
            plain(name), f"{row.votes:,}", f"{row.failed:,}", plain(with_limits(row.accuracy, 2)),
            figure(row.mean_kappa, 2), plain(with_limits(row.adds, 2, signed=True)),
            plain(with_limits(row.panel_gain, 2, signed=True)),
        )  # fmt: skip
    out.print()
    out.print(table)
    # The lines of the judges are in the table.
    lines = panel.summary().splitlines()[len(panel.judges) :]
    print_lines([line for line in lines if line not in panel.warnings and not line.startswith("panel: ")])


def _print_confidence(confidence: Reliability) -> None:
    from rich.table import Table

    table = Table(title="Confidence", title_justify="left", title_style="bold")
    for name in ("confidence", "n", "accuracy", "accuracy from there on", "coverage"):
        table.add_column(name, justify="right", overflow="fold")
    for row in confidence.bins:
        kept = next((point for point in confidence.selective if point.threshold == row.lowest), None)
        table.add_row(
            row.range, f"{row.accuracy.n:,}", plain(with_limits(row.accuracy, 2)),
            plain(with_limits(kept.accuracy, 2)) if kept else UNDEFINED, f"{kept.coverage:.0%}" if kept else UNDEFINED,
        )  # fmt: skip
    out.print()
    out.print(table)
    print_lines(
        [
            f"Brier score {with_limits(confidence.brier)}; calibration error {figure(confidence.calibration_error)}; "
            f"AUROC {figure(confidence.auroc)}; mean confidence less accuracy "
            f"{with_limits(confidence.overconfidence, signed=True)}."
        ]
    )


def _as_json(row: CriterionDisagreements) -> dict[str, Any]:
    from rubric_integrations.agreement.disagreements import shorten

    fields = {name: getattr(row, name) for name in type(row).model_fields if name not in ("criterion", "examples")}
    examples = [
        {
            **{name: getattr(example, name) for name in type(example).model_fields if name != "submission"},
            "judge_reason": shorten(example.judge_reason, _JSON_CHARACTERS),
            "people_reasons": [shorten(reason, _JSON_CHARACTERS) for reason in example.people_reasons],
            "response": shorten(example.submission.response, _JSON_CHARACTERS),
        }
        for example in row.examples
    ]
    return {**fields, "requirement": row.criterion.full_requirement, "examples": examples}
