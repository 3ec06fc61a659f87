"""The statistical gate of `grade`: with `--alpha`, `--min-score` passes only if the mean score is significantly higher.

`rubric_integrations.trust.gates` decides. This module checks the options, and collects the scores of a run with little
memory.
"""

from __future__ import annotations

from array import array
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, print_warnings, refuse
from rubric_integrations.cli.loading import load_labels, refuse_bad_input
from rubric_integrations.runs.files import GradedRow, RunFile, read_run
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust import GateResult, SequentialGate, fewest_to_pass, gate
from rubric_integrations.trust.gates import decide_mean
from rubric_integrations.trust.matching import dependence_warnings
from rubric_integrations.trust.planning import FEWEST_LABELS

if TYPE_CHECKING:
    from rubric_integrations.cli.grade import GateOptions
    from rubric_integrations.cli.rows import RowsOfFile
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.summary import Graded


class MeanGate:
    """Decides whether the mean score of a run is significantly above a threshold, significantly below it, or neither.

    The gate keeps a few numbers for each row in memory. With labels, a baseline, a cluster or several samples of a
    prompt, it keeps complete rows.

    Args:
        options: The options of `grade`.
        min_score: The threshold, above 0 and below 1.
        alpha: The largest probability of a wrong pass, and also of a wrong failure.
        rubric: The rubric of the run. Needed with labels.
        has_samples: Whether several rows are samples of one prompt.
    """

    def __init__(
        self, options: GateOptions, min_score: float, alpha: float, rubric: Rubric | None, *, has_samples: bool
    ):
        self._has_samples = has_samples
        labels, baseline = options.labels, options.baseline
        self.min_score, self.alpha, self.baseline_path = min_score, alpha, baseline
        self._options, self._rubric, self._floor = options, rubric, options.floor or 0.0
        self._queries = _Queries()
        self._scores, self._missing = array("d"), 0
        self._rows: list[GradedRow] = []
        with refuse_bad_input(*(path for path in (labels, baseline) if path)):
            self.fewest = fewest_to_pass(min_score, alpha, sequential=options.stop_early, floor=self._floor)
            self.sequential = SequentialGate(min_score, alpha) if options.stop_early else None
            self._baseline = read_run(baseline) if baseline else None
            if labels and rubric is None:
                raise ValueError("--labels: needs a rubric of the whole run, and here each row brings its own")
            self._labels = load_labels(labels, None, rubric, strict=options.strict) if labels else None
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
        """Whether the scores so far have decided the gate. If so, the run needs no further rows."""
        return self.sequential is not None and self.sequential.decision != "inconclusive"

    def warn_of_few(self, count: int, file: Path) -> None:
        """Print a warning before the first call, if the run has too few submissions to pass.

        Args:
            count: The number of independent submissions in the file.
            file: The file.
        """
        rows = [(count, file, "prompts" if self._has_samples else "submissions")]
        labelled = [(self._labelled, self._options.labels, "labelled submissions")] if self._labels is not None else []
        for number, path, what in rows + labelled:
            if number < self.fewest:
                need = f"--min-score {self.min_score:g} --alpha {self.alpha:g} needs at least {self.fewest:,} {what}"
                text = f"{need}, and {path} has {number:,}: this run cannot pass, however high its scores are"
                err.print(plain(text), style="yellow", soft_wrap=True)

    def add(self, graded: Graded) -> None:
        """Add the next graded row to the rows that decide the gate."""
        score = graded.gate_score
        if self._keeps_rows:
            self._rows.extend(RunFile.of("run", [graded]).rows)
        elif score is None:
            self._missing += 1
        else:
            self._scores.append(score)
        if not self._keeps_rows:
            self._queries.add(graded)

    @property
    def _keeps_rows(self) -> bool:
        if self.sequential is not None:
            return False
        return self._has_samples or any(
            part is not None for part in (self._labels, self._baseline, self._options.cluster)
        )

    @cached_property
    def result(self) -> GateResult:
        """The decision of the gate, from the scores of the rows so far. It is computed once."""
        if not self._keeps_rows:
            print_warnings(self._queries.warnings)
        if self.sequential:
            result = self.sequential.result
            return result._replace(settings=f"{result.settings} --stop-early")
        with refuse_bad_input():
            if not self._keeps_rows:
                scores = [*self._scores, *[None] * self._missing]
                return decide_mean(scores, self.min_score, self.alpha, floor=self._floor)
            options = self._options
            result = gate(
                self._rows, self.min_score, labels=self._labels, baseline=self._baseline, margin=options.margin or 0.0,
                rubric=self._rubric, alpha=self.alpha, cluster=options.cluster, floor=self._floor,
                anyway=options.anyway,
            )  # fmt: skip
        print_warnings(result.warnings)
        return result


class _Queries:
    """Counts the rows of each query with little memory: only repeated texts are kept."""

    def __init__(self) -> None:
        self._counts = Counter[int]()
        self._repeated: dict[int, str] = {}
        self._groups = set[str]()

    def add(self, graded: Graded) -> None:
        if (group := graded.row.group) in self._groups:
            return  # a further sample of a prompt, of which the gate counts the first one
        self._groups.update(() if group is None else (group,))
        query = graded.row.submission.query if graded.row.submission else None
        if query is not None:
            key = hash(query)
            self._counts[key] += 1
            if self._counts[key] == 2:
                self._repeated[key] = query

    @property
    def warnings(self) -> list[str]:
        """The warnings about rows with the same query, because such rows depend on each other."""
        queries = (self._repeated.get(key, str(key)) for key in self._counts.elements())
        rows = [
            GradedRow(str(number), Submission(response="-", query=query), None, None)
            for number, query in enumerate(queries)
        ]
        return dependence_warnings(rows, None) if self._repeated else []


def make_mean_gate(options: GateOptions, *, rubric: Rubric | None, rows: RowsOfFile, file: Path) -> MeanGate | None:
    """Make the `MeanGate` from the options of `grade`, or return None without `--alpha`.

    Options without effect are refused, and a file with too few submissions for a pass is reported.

    Args:
        options: The options.
        rubric: The rubric of the run.
        rows: The rows of the file of responses.
        file: The file of responses.
    """
    labels, baseline, margin, stop_early = options.labels, options.baseline, options.margin, options.stop_early
    if options.alpha is None:
        needless = {
            "--labels": labels,
            "--baseline": baseline,
            "--margin": margin,
            "--stop-early": stop_early or None,
            "--cluster": options.cluster,
            "--floor": options.floor,
        }
        for option, value in needless.items():
            if value is not None:
                refuse(f"{option}: is for a gate with --alpha, and would have no effect: add --alpha 0.05")
        return None
    if options.min_score is None:
        refuse("--alpha: needs --min-score: it is the probability that this gate decides wrongly")
    if margin is not None and baseline is None:
        refuse("--margin: is how much worse than --baseline the run may be: name the baseline, too")
    if stop_early and (labels is not None or baseline is not None):
        refuse("--stop-early: decides by the scores alone: leave out --labels and --baseline, which need the whole run")
    if stop_early and options.cluster is not None:
        refuse(
            "--stop-early: cannot take --cluster: after each row it bets on an independent one, and rows of one group "
            "would pass too often: leave out one of them"
        )
    if stop_early and options.floor is not None:
        refuse("--stop-early: cannot use --floor, which would have no effect: leave out one of them")
    columns = ("id", "query", *sorted(rows.metadata or ()))
    if options.cluster is not None and options.cluster not in columns:
        known = ", ".join(columns)
        refuse(
            f"--cluster {options.cluster}: not all rows of {file} have this column: name one of {known}; the tasks are "
            "in `query` and the ids in `id`, whatever their names in the file"
        )
    mean_gate = MeanGate(options, options.min_score, options.alpha, rubric, has_samples=rows.inputs < len(rows))
    mean_gate.warn_of_few(rows.inputs, file)
    return mean_gate
