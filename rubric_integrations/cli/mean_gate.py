"""The gate `--min-score` with `--alpha`: whether the true mean score of a run surely reaches the threshold."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations._util.terminal import plain
from rubric_integrations.agreement import Estimate, GateResult, SequentialGate, fewest_to_pass, gate
from rubric_integrations.agreement.gates import decide_mean
from rubric_integrations.agreement.planning import FEWEST_LABELS
from rubric_integrations.cli.console import err, refuse
from rubric_integrations.cli.figures import print_lines, print_warnings, with_limits
from rubric_integrations.cli.trust_inputs import load_labels, refuse_bad_input
from rubric_integrations.reporting.page.mismatch import rubric_mismatch
from rubric_integrations.runs.run_files import GradedRow, RunFile, read_run

if TYPE_CHECKING:
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.summary import Graded


class MeanGate:
    """Decides by the scores of a run whether its true mean is above the threshold, below it, or not yet known.

    Memory holds one number for each row. With labels or a baseline, which are matched with rows, it holds the rows.

    Args:
        min_score: The threshold, above 0 and below 1.
        alpha: The probability of a wrong decision, at each side.
        labels: A file of people's labels of a random part of the run, by which the mean is corrected.
        baseline: An earlier run over the same inputs; the gate passes only if this run is also not worse.
        margin: How much worse than the baseline the run may be.
        rubric: The rubric of the run, which labels need.
        stop_early: Whether the run ends as soon as the gate is decided.
    """

    def __init__(
        self, min_score: float, alpha: float, *, labels: Path | None, baseline: Path | None, margin: float,
        rubric: Rubric | None, stop_early: bool,
    ):  # fmt: skip
        self.min_score, self.alpha = min_score, alpha
        self._labels_path, self._baseline_path, self._margin, self._rubric = labels, baseline, margin, rubric
        self._scores, self._missing = array("d"), 0
        self._rows: list[GradedRow] = []
        with refuse_bad_input(*(path for path in (labels, baseline) if path)):
            self.fewest = fewest_to_pass(min_score, alpha, sequential=stop_early)
            self.sequential = SequentialGate(min_score, alpha) if stop_early else None
            self._baseline = read_run(baseline) if baseline else None
            if labels and rubric is None:
                raise ValueError("--labels: needs a rubric of the whole run, and here each row brings its own")
            self._labels = load_labels(labels, None, rubric) if labels else None
        if self._labels is not None:
            drawn = [label for label in self._labels if label.sampled != "chosen"]
            self._labelled = len({label.id or label.submission.response for label in drawn})
            if self._labelled < FEWEST_LABELS:
                refuse(
                    f"--labels {labels}: has labels of {self._labelled:,} submissions, and a gate needs "
                    f"{FEWEST_LABELS}: label more of them, drawn at random"
                )

    @property
    def is_decided_early(self) -> bool:
        """Whether the scores so far have decided the gate, so that the run needs no further row."""
        return self.sequential is not None and self.sequential.decision != "inconclusive"

    @property
    def _name(self) -> str:
        return f"--min-score {self.min_score:g} --alpha {self.alpha:g}"

    def warn_of_few(self, count: int, file: Path) -> None:
        """Print, before any call is paid for, that a run of so many submissions cannot pass.

        Args:
            count: The number of submissions in the file.
            file: The file.
        """
        rows = [(count, file, "submissions")]
        labelled = [(self._labelled, self._labels_path, "labelled submissions")] if self._labels is not None else []
        for number, path, what in rows + labelled:
            if number < self.fewest:
                text = f"{self._name} needs at least {self.fewest:,} {what}, and {path} has {number:,}"
                err.print(plain(f"{text}: this run cannot pass, however high its scores are"), style="yellow",
                          soft_wrap=True)  # fmt: skip

    def add(self, graded: Graded) -> None:
        """Add the next row."""
        score = None if graded.report is None or graded.report.failed_count else graded.score
        if self._labels is not None or self._baseline is not None:
            self._rows.extend(RunFile.of("run", [graded]).rows)
        elif score is None:
            self._missing += 1
        else:
            self._scores.append(score)

    @cached_property
    def result(self) -> GateResult:
        """The decision on the rows so far; made once."""
        if self.sequential:
            # The interval of a run that stopped by its own scores would be too narrow.
            unknown = Estimate(None, None, None, self.sequential.count)
            return GateResult(self.sequential.decision, unknown, self.min_score, None, self.sequential.missing)
        if self._labels is None and self._baseline is None:
            return decide_mean([*self._scores, *[None] * self._missing], self.min_score, self.alpha)
        with refuse_bad_input():
            if self._baseline and (
                mismatch := rubric_mismatch([self._baseline, RunFile("run", None, None, self._rows)])
            ):
                raise ValueError(f"--baseline: the runs are of different rubrics: {mismatch}")
            result = gate(
                self._rows, self.min_score, labels=self._labels, baseline=self._baseline, margin=self._margin,
                rubric=self._rubric, alpha=self.alpha,
            )  # fmt: skip
        print_warnings(result.warnings)
        return result

    def message(self) -> str:
        """Describe the decision, and what it rests on."""
        result = self.result
        if self.sequential:
            missing = f", {result.missing:,} without a score" if result.missing else ""
            undecided = "" if result.decision != "inconclusive" else "not decided "
            return f"{self._name} --stop-early: {undecided}after {result.score.n:,} submissions{missing}"
        corrected = ", corrected by labels" if self._labels is not None else ""
        sure = f"{1 - 2 * self.alpha:.0%} interval, n = {result.score.n:,}"
        mean = f"the mean score is {with_limits(result.score)} ({sure}){corrected}"
        score = mean if result.score.n else "no row has a score"
        parts = [f"{self._name}: {score}"]
        if result.missing:
            parts.append(f"{result.missing:,} rows without a score may be anything from 0 to 1")
        if result.baseline is not None:
            change = with_limits(result.baseline, signed=True)
            parts.append(f"the change from {self._baseline_path} is {change}, and it may be {self._margin:g} worse")
        return "; ".join([*parts, *self._advice(result)])

    def print_if_passed(self) -> None:
        """Print the decision if the gate passes; a gate that does not is printed with those that failed."""
        if self.result.decision == "pass":
            print_lines([f"gate passed: {self.message()}"])

    def _advice(self, result: GateResult) -> Sequence[str]:
        if result.decision != "inconclusive":
            return ()
        if result.more:
            return (f"about {result.more:,} more submissions would decide",)
        if result.score.n < self.fewest:
            return (f"a pass needs at least {self.fewest:,} submissions",)
        if result.score.low is not None and result.score.low > self.min_score and result.baseline is not None:
            return ("more submissions would show whether the run is worse than the baseline",)
        if self._labels is not None:
            return ("more labels would decide",)
        return ("the mean is too close to the threshold to decide",)


def make_mean_gate(
    min_score: float | None, alpha: float | None, *, labels: Path | None, baseline: Path | None,
    margin: float | None, rubric: Rubric | None, stop_early: bool, count: int, file: Path,
) -> MeanGate | None:  # fmt: skip
    """Make the gate of the options of `grade`, which `MeanGate` describes; None without `--alpha`.

    Options without effect are refused, and a file with too few submissions for a pass is reported.

    Args:
        min_score: The threshold.
        alpha: The probability of a wrong decision.
        labels: A file of people's labels.
        baseline: An earlier run.
        margin: How much worse than the baseline the run may be.
        rubric: The rubric of the run.
        stop_early: Whether the run ends as soon as the gate is decided.
        count: The number of submissions in the file of responses.
        file: The file of responses.
    """
    if alpha is None:
        options = {"--labels": labels, "--baseline": baseline, "--margin": margin, "--stop-early": stop_early or None}
        for option, value in options.items():
            if value is not None:
                refuse(f"{option}: is for a gate with --alpha, and would have no effect: add --alpha 0.05")
        return None
    if min_score is None:
        refuse("--alpha: needs --min-score: it is the probability that this gate decides wrongly")
    if margin is not None and baseline is None:
        refuse("--margin: is how much worse than --baseline the run may be: name the baseline, too")
    if stop_early and (labels is not None or baseline is not None):
        refuse("--stop-early: decides by the scores alone: leave out --labels and --baseline, which need the whole run")
    mean_gate = MeanGate(
        min_score, alpha, labels=labels, baseline=baseline, margin=margin or 0.0, rubric=rubric, stop_early=stop_early
    )
    mean_gate.warn_of_few(count, file)
    return mean_gate
