"""Whether the confidence that a judge states means something: how often it is right at which confidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rubric_integrations._util.notebook import data_frame, html_table
from rubric_integrations._util.records import Record
from rubric_integrations.agreement.confidence.diagram import diagram
from rubric_integrations.agreement.confidence.figures import (
    ConfidenceBin,
    SelectivePoint,
    accuracy_at_coverage,
    accuracy_of,
    auroc,
    divide_by_confidence,
    estimate_loss,
    expected_error,
    make_bin,
    overconfidence,
    squared_error,
    state_judgment,
)
from rubric_integrations.agreement.matching import match_labels
from rubric_integrations.agreement.panels.figures import is_right
from rubric_integrations.agreement.rows import RunLike, read_rows
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.labels import LabelledJudgment

if TYPE_CHECKING:
    from pandas import DataFrame

_COLUMNS = ("lowest", "highest", "mean confidence", "n", "accuracy")
_FEW_ERRORS = 10


class Reliability(Record):
    """What a judge's confidence says about how often it is right.

    Attributes:
        accuracy: The share of the judgments on which people agree.
        bins: The reliability diagram: for each confidence, or range of it, how often the judge is right.
        overconfidence: The mean confidence less the accuracy: above 0, the judge claims more than it holds.
        brier: The mean of (confidence - right)^2; 0 is perfect, and 0.25 is that of a confidence of 0.5 throughout.
        expected_brier: The mean of (expected value - people's value)^2, where MET is 1; undefined if the judge states
            no probabilities.
        calibration_error: The mean distance of confidence and accuracy in the bins (ECE). It depends on the bins, and
            with few judgments it is too large, even for a perfect confidence. None without a judgment.
        auroc: How often a right judgment has a higher confidence than a wrong one, where a tie counts as half: 0.5 is
            chance. None if all judgments are right, or all wrong.
        selective: The accuracy of the surest 10 %, 20 %, ... 100 %. Judgments with equal confidence stay together.
        n: The number of judgments that people and the judge decided.
        without_confidence: How many more have no confidence.
        warnings: What limits the figures.
    """

    accuracy: Estimate
    bins: tuple[ConfidenceBin, ...]
    overconfidence: Estimate
    brier: Estimate
    expected_brier: Estimate
    calibration_error: float | None
    auroc: float | None
    selective: tuple[SelectivePoint, ...]
    n: int
    without_confidence: int
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return the figures as text, with a line for each bin and each coverage."""
        lines = [f"accuracy {self.accuracy}, mean confidence less accuracy {self.overconfidence}"]
        error, auroc = (
            "undefined" if value is None else f"{value:.3f}" for value in (self.calibration_error, self.auroc)
        )
        lines.append(f"Brier score {self.brier}, calibration error {error}, AUROC {auroc}")
        lines += [f"confidence {row.range}: accuracy {row.accuracy}" for row in self.bins]
        lines += [
            f"surest {row.coverage:.0%} (at least {row.threshold:.3g}): accuracy {row.accuracy}"
            for row in self.selective
        ]
        return "\n".join([*lines, *self.warnings])

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with one row for each bin.

        Raises:
            ImportError: pandas is not installed.
        """
        return data_frame([dict(zip(_COLUMNS, row, strict=True)) for row in self._rows()], _COLUMNS)

    def _repr_html_(self) -> str:
        rows = [[str(cell) if isinstance(cell, Estimate) else cell for cell in row] for row in self._rows()]
        title = f"Confidence and accuracy of {self.n:,} judgments: Brier score {self.brier}"
        points = [(row.confidence, row.accuracy) for row in self.bins]
        return diagram(points) + html_table(title, _COLUMNS, rows)

    def _rows(self) -> list[tuple[object, ...]]:
        return [(row.lowest, row.highest, row.confidence, row.accuracy.n, row.accuracy) for row in self.bins]


def reliability(run: RunLike, labels: Iterable[LabelledJudgment], *, bins: int = 5, level: float = 0.95) -> Reliability:
    """Measure what the confidence of a judge says about how often it is right.

    The judgments of one submission depend on each other: all intervals are those at the effective number of judgments.

    Args:
        run: A run of a judge with `confidence=True`: the path of a file that `grade --out` wrote, results of
            `grade_many`, or reports.
        labels: People's labels of a part of it, drawn at random.
        bins: Into how many bins the confidences are divided, at least 1, with about as many judgments in each. If there
            are no more different confidences, each has a bin of its own.
        level: The level of the intervals.

    Raises:
        ChosenLabelsError: Labels were chosen by people.
        ValueError: `bins` is less than 1, or no labelled judgment has a confidence.
    """
    if isinstance(bins, bool) or bins < 1:
        raise ValueError(f"`bins` must be at least 1, got {bins!r}")
    matches = match_labels(read_rows(run), labels).matches
    random = [match for match in matches if match.is_random]
    decided = [(match, right) for match in random if (right := is_right(match)) is not None]
    stated = [state_judgment(match, right) for match, right in decided if match.judged.confidence is not None]
    if not stated:
        raise ValueError(
            "no labelled judgment has a confidence: grade with `LMJudge(model, confidence=True)`, and draw labels at "
            "random; one judge, and not a panel, states a confidence, on binary criteria"
        )
    expected = [item for item in stated if item.expected is not None]
    in_bins = divide_by_confidence(stated, bins)
    of_bins = [make_bin(items, level) for items in in_bins]
    errors = sum(not item.right for item in stated)
    warnings: list[str] = []
    if len(random) < len(matches):
        warnings.append(
            f"{len(matches) - len(random):,} labelled judgments are left out: they were drawn by the judge's verdict, "
            "and have more of the rare verdicts than the run"
        )
    rarer = min(errors, len(stated) - errors)
    if rarer < _FEW_ERRORS:
        kind = "wrong" if rarer == errors else "right"
        warnings.append(
            f"only {rarer:,} of {len(stated):,} judgments are {kind}: label more to see what confidence tells"
        )
    return Reliability(
        accuracy=accuracy_of(stated, level),
        bins=tuple(of_bins),
        overconfidence=estimate_loss(stated, overconfidence, level, least=-1.0),
        brier=estimate_loss(stated, squared_error, level),
        expected_brier=estimate_loss(expected, expected_error, level),
        calibration_error=sum(
            len(items) * abs(row.confidence - (row.accuracy.value or 0.0))
            for items, row in zip(in_bins, of_bins, strict=True)
        )
        / len(stated),
        auroc=auroc(stated),
        selective=tuple(accuracy_at_coverage(stated, level)),
        n=len(stated),
        without_confidence=len(decided) - len(stated),
        warnings=tuple(warnings),
    )
