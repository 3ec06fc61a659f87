"""What each judge of a panel is worth: its agreement with people, and what the panel would be without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rubric_integrations._util.notebook import data_frame, html_table
from rubric_integrations._util.records import Record
from rubric_integrations._util.terminal import spend_text
from rubric_integrations.agreement.matching import Match, criterion_keys, match_labels
from rubric_integrations.agreement.panels.figures import (
    JudgeOnPanel,
    PanelCriterion,
    VotedMatch,
    compare_judges,
    correlate_errors,
    measure_judge,
    panel_before_judge,
    what_judge_adds,
)
from rubric_integrations.agreement.panels.votes import (
    answer_of,
    criterion_of,
    find_strategy,
    is_voted,
    judge_names,
    voted_entries,
)
from rubric_integrations.agreement.rows import RunLike, read_rows
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.results.usage import Spend, total_spend
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow

if TYPE_CHECKING:
    from pandas import DataFrame

_COLUMNS = ("judge", "votes", "failed", "abstained", "agrees", "coverage", "accuracy", "kappa", "adds", "panel_gain")


class PanelReport(Record):
    """What each judge of a panel is worth.

    Attributes:
        judges: The judges, by name, in the order of the panel.
        panel: The panel as a whole.
        criteria: The agreement of the judges with each other, by criterion.
        error_correlations: For each two judges, the correlation of their errors; None if one of them has none.
        error_correlation: Its mean over the pairs of judges; None without labels.
        effective_judges: How many judges with independent errors were as good: `k / (1 + (k - 1) r)`, with the mean
            correlation r (Kish 1965; Clemen and Winkler 1985). None without labels.
        spend: What the panel cost. Votes do not tell which judge cost how much.
        labels: The number of labels that the figures rest on.
        warnings: What limits the figures.
    """

    judges: dict[str, JudgeOnPanel]
    panel: JudgeOnPanel
    criteria: dict[str, PanelCriterion]
    error_correlations: dict[str, dict[str, float | None]]
    error_correlation: float | None
    effective_judges: float | None
    spend: Spend
    labels: int
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return the figures as text: a line for each judge, and one for the panel."""
        lines = [f"{name}: {self._describe(judge)}" for name, judge in self.judges.items()]
        if self.labels:
            lines.append(f"panel: accuracy {self.panel.accuracy}")
            lines += self._findings()
        if self.effective_judges is not None:
            lines.append(
                f"{len(self.judges)} judges are as good as {self.effective_judges:.1f} with independent errors "
                f"(correlation {self.error_correlation:.2f})"
            )
        alphas = [f"{name} {row.alpha:.2f}" for name, row in self.criteria.items() if row.alpha is not None]
        if alphas:
            lines.append(f"agreement among the judges (alpha): {', '.join(alphas)}")
        spend = spend_text(self.spend.calls, self.spend.total_tokens, self.spend.cost)
        lines.append(f"cost of the panel: {spend}; votes do not tell the cost of each judge")
        return "\n".join([*lines, *self.warnings])

    def _findings(self) -> list[str]:
        """Say of which judges it is sure what they do for the panel."""
        adds = {name: judge.adds for name, judge in self.judges.items()}
        alone = {name: judge.panel_gain for name, judge in self.judges.items()}
        useful = [name for name, row in adds.items() if row.low is not None and row.low > 0]
        harmful = [name for name, row in adds.items() if row.high is not None and row.high < 0]
        better = [name for name, row in alone.items() if row.high is not None and row.high < 0]
        lines = [f"judges that surely add right answers: {', '.join(useful) or 'none, by these labels'}"]
        lines += [f"judges without which the panel is surely better: {', '.join(harmful)}"] if harmful else []
        return lines + ([f"judges that are surely better alone than the panel: {', '.join(better)}"] if better else [])

    def _describe(self, judge: JudgeOnPanel) -> str:
        agrees = "no answer" if judge.agrees is None else f"agrees with the panel in {judge.agrees:.0%}"
        counts = f"{agrees}, {judge.failed:,} of {judge.votes:,} failed"
        return f"accuracy {judge.accuracy}, adds {judge.adds}, {counts}" if self.labels else counts

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with a row for each judge, and one for the panel.

        Raises:
            ImportError: pandas is not installed.
        """
        return data_frame([dict(zip(_COLUMNS, row, strict=True)) for row in self._rows()], _COLUMNS)

    def _repr_html_(self) -> str:
        rows = [[str(cell) if isinstance(cell, Estimate) else cell for cell in row] for row in self._rows()]
        return html_table(f"A panel of {len(self.judges)} judges on {self.labels:,} labels", _COLUMNS, rows)

    def _rows(self) -> list[tuple[object, ...]]:
        return [
            (name, row.votes, row.failed, row.abstained, row.agrees, row.coverage, row.accuracy, row.mean_kappa,
             row.adds, row.panel_gain)
            for name, row in [*self.judges.items(), ("panel", self.panel)]
        ]  # fmt: skip


def panel_report(
    run: RunLike,
    labels: Iterable[LabelledJudgment] | None = None,
    *,
    rubric: Rubric | None = None,
    level: float = 0.95,
) -> PanelReport:
    """Measure what each judge of a panel is worth.

    Without labels, the result has only the figures that compare the judges with each other. Judges that agree may all
    be wrong in the same way.

    Args:
        run: A run that a panel graded (`judges=[...]`): the path of a file that `grade --out` wrote, results of
            `grade_many`, or reports.
        labels: People's labels of a part of it, drawn at random.
        rubric: The run's rubric, for reports of earlier versions, which lack the possible answers.
        level: The level of the intervals.

    Raises:
        ChosenLabelsError: Labels were chosen by people.
        ValueError: No panel graded the run, or the rubric is needed.
    """
    rows = read_rows(run)
    by_criterion = voted_entries(rows)
    if not by_criterion:
        raise ValueError("the run has no votes: pass one that a panel graded (`judges=[...]`)")
    keys = criterion_keys(by_criterion)
    entries = [entry for of_criterion in by_criterion.values() for entry in of_criterion]
    names = judge_names(entries)
    criteria = {pair: criterion_of(of_criterion[0], rubric) for pair, of_criterion in by_criterion.items()}
    strategies = {pair: find_strategy(criteria[pair], of_criterion) for pair, of_criterion in by_criterion.items()}
    matches, warnings = panel_matches(rows, labels or ())
    voted: list[VotedMatch] = []
    for match in matches:
        pair = match.judged.name, match.judged.requirement
        strategy = strategies[pair]
        if strategy and match.people_value is not None:
            voted.append(VotedMatch(match, criteria[pair], strategy))
    if any(entry.not_asked for entry in entries):
        warnings.append(
            "the judges were asked one after another: the figures of later judges are about disputed judgments, and "
            "what the earlier ones add is unknown"
        )
    if unexplained := [keys[pair] for pair, strategy in strategies.items() if strategy is None]:
        listed = ", ".join(f"`{name}`" for name in unexplained)
        warnings.append(f"no strategy explains the votes on {listed}: what judges add there is not counted")
    judges = {
        name: measure_judge(
            [(answer, entry) for entry in entries if (answer := answer_of(entry, name))],
            [match._replace(judged=answer) for match in matches if (answer := answer_of(match.judged, name))],
            what_judge_adds(voted, name, level),
            panel_before_judge(matches, name, level),
            level,
        )
        for name in names
    }
    correlations, mean = correlate_errors(matches, names)
    divisor = None if mean is None else 1 + (len(names) - 1) * mean
    return PanelReport(
        judges=judges,
        panel=measure_judge([(entry, entry) for entry in entries], matches, level=level),
        criteria={
            keys[pair]: compare_judges(of_criterion, criteria[pair], strategies[pair], len(names))
            for pair, of_criterion in by_criterion.items()
        },
        error_correlations=correlations,
        error_correlation=mean,
        effective_judges=len(names) / divisor if divisor and divisor > 0 else None,
        spend=total_spend(row.report.spend for row in rows if row.report),
        labels=sum(len(match.labels) for match in matches),
        warnings=tuple(warnings),
    )


def panel_matches(rows: Sequence[GradedRow], labels: Iterable[LabelledJudgment]) -> tuple[list[Match], list[str]]:
    """Match labels with what a panel answered; those that were drawn by its verdict are left out, with a warning."""
    matches = [match for match in match_labels(rows, labels).matches if is_voted(match.judged)]
    random = [match for match in matches if match.is_random]
    if len(random) == len(matches):
        return random, []
    return random, [
        f"{len(matches) - len(random):,} labelled judgments are left out: they were drawn by the verdict of the panel, "
        "and say nothing about how often its judges are right; draw labels at random"
    ]
