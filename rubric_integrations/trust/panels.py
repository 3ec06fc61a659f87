"""`panel_report`: measures each judge of a panel. `suggest_weights`: suggests weights of the votes by accuracy.

The figures are each judge's agreement with human labels, the accuracy of the panel without the judge, and the
correlation of the judges' errors. Suggested weights are compared with equal weights on labels that were not used to
compute them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rubric_integrations._util.records import Record, data_frame, html_table
from rubric_integrations.graders.settings import Voting
from rubric_integrations.rubric.criterion import VOTE_STRATEGIES, Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.judgment import Spend, Vote, to_judgment, total_spend
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.scoring.voting import VoteResult, count_votes
from rubric_integrations.trust.matching import (
    Cluster,
    Match,
    RunLike,
    answer_levels,
    criterion_keys,
    dependence_warnings,
    group_matches,
    group_rows,
    group_warnings,
    match_labels,
    read_rows,
)
from rubric_integrations.trust.means import Groups, estimate_mean, estimate_shift, select_groups
from rubric_integrations.trust.measure import CriterionAgreement, estimate_accuracy, measure_criterion
from rubric_integrations.trust.statistics import fleiss_kappa, krippendorff_alpha, level_distances

if TYPE_CHECKING:
    from pandas import DataFrame


def is_voted(entry: CriterionReport) -> bool:
    """Whether a panel of at least two judges answered a criterion. False if the criterion names one judge."""
    return bool(entry.votes) and len(entry.votes) + len(entry.not_asked) > 1 and not entry.not_applicable


def voted_entries(rows: Iterable[GradedRow]) -> dict[tuple[str, str], list[CriterionReport]]:
    """Return the reports' entries that a panel answered, grouped by the criterion's name and requirement."""
    entries: dict[tuple[str, str], list[CriterionReport]] = {}
    for row in rows:
        for entry in row.report.criteria if row.report else ():
            if is_voted(entry):
                entries.setdefault((entry.name, entry.requirement), []).append(entry)
    return entries


def judge_names(entries: Iterable[CriterionReport]) -> list[str]:
    """Return the names of the judges, in the order of the panel."""
    names: dict[str, None] = {}
    for entry in entries:
        names |= dict.fromkeys([*(vote.judge for vote in entry.votes), *entry.not_asked])
    return list(names)


def criterion_of(entry: CriterionReport, rubric: Rubric | None) -> Criterion:
    """Return the criterion of an entry, from the rubric if it contains the criterion, otherwise from the report.

    Raises:
        ValueError: The rubric does not contain the criterion, and the report is from an earlier version.
    """
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True) if rubric else ():
        if (key, criterion.full_requirement) == (entry.name, entry.requirement):
            return criterion
    return entry.to_criterion()


def answer_of(entry: CriterionReport, judge: str) -> CriterionReport | None:
    """Return a report's entry with one judge's answer instead of the panel's, or None if the judge has no vote."""
    vote = next((vote for vote in entry.votes if vote.judge == judge), None)
    if vote is None:
        return None
    answer = {"verdict": vote.verdict, "value": vote.value, "reason": vote.reason, "error": vote.error, "votes": ()}
    return entry.model_copy(update=answer)


def find_strategy(criterion: Criterion, entries: Iterable[CriterionReport]) -> str | None:
    """Find the voting strategy of a panel: the first strategy that reproduces all its verdicts.

    A run does not store the strategy. If several strategies give the same verdicts, the default strategy is returned:
    `majority`, `mean` or `mode`. None if no strategy reproduces all verdicts.
    """
    strategies = [criterion.aggregation] if criterion.aggregation else list(VOTE_STRATEGIES[criterion.kind])
    for entry in entries:
        if entry.error is None and len({vote.verdict for vote in entry.votes if vote.error is None}) > 1:
            strategies = [name for name in strategies if count_votes(criterion, entry.votes, name)[0] == entry.verdict]
    return strategies[0] if strategies else None


def vote_again(criterion: Criterion, votes: Sequence[Vote], strategy: str) -> VoteResult | None:
    """Combine votes on a criterion by a voting strategy, such as the votes without one judge.

    Returns None if there is no vote, or if all votes are failures.
    """
    return count_votes(criterion, votes, strategy) if any(vote.error is None for vote in votes) else None


UNDEFINED = Estimate(None, None, None, 0)


class JudgeOnPanel(Record):
    """The figures of one judge of a panel, or of the panel itself.

    Attributes:
        votes: The number of judgments in the run that were requested from the judge.
        failed: The number of these judgments without an answer.
        abstained: The number of these judgments that the judge could not assess.
        agrees: The share of the judge's answers that are equal to the panel's answer. None without an answer.
        coverage: The share of the labelled judgments that both the judge and the annotators decided. None without
            labels.
        accuracy: The share of judgments on which the judge and the annotators agree, as the mean over the labelled
            submissions.
        mean_kappa: The mean kappa of the criteria whose kappa is defined.
        adds: The panel's share of right answers with this judge, minus its share without this judge. A missing answer
            counts as wrong, and a tie gives the answer with the lower score. Undefined for the panel itself.
        panel_gain: The panel's share of right answers, minus the share of this judge alone. Undefined for the panel
            itself.
        criteria: The agreement with human labels on each criterion. Empty without labels.
    """

    votes: int
    failed: int
    abstained: int
    agrees: float | None
    coverage: float | None
    accuracy: Estimate
    mean_kappa: float | None
    adds: Estimate
    panel_gain: Estimate
    criteria: dict[str, CriterionAgreement]


class PanelCriterion(NamedTuple):
    """Agreement of a panel's judges with each other on one criterion. These figures need no labels.

    Attributes:
        strategy: The voting strategy that explains the panel's verdicts, or None if no strategy explains all of them.
        n: The number of submissions with votes of the panel.
        fleiss_kappa: Fleiss' kappa of the judges' answers, for submissions that all judges decided. None for a scale
            with decimals or more than 21 numbers, and if all answers are equal.
        alpha: Krippendorff's alpha of the judges' answers, for submissions that at least two judges decided.
            Abstentions count as missing answers. None for a scale with decimals or more than 21 numbers.
    """

    strategy: str | None
    n: int
    fleiss_kappa: float | None
    alpha: float | None


class VotedMatch(NamedTuple):
    """A labelled judgment of a panel.

    Attributes:
        match: The judgment with its human labels.
        criterion: The criterion, which defines how votes are combined.
        strategy: The panel's voting strategy.
    """

    match: Match
    criterion: Criterion
    strategy: str


def measure_judge(
    answers: Sequence[tuple[CriterionReport, CriterionReport]],
    matches: Sequence[Match],
    adds: Estimate = UNDEFINED,
    panel_gain: Estimate = UNDEFINED,
    level: float = 0.95,
    groups: Groups | None = None,
) -> JudgeOnPanel:
    """Compute the figures of one judge of a panel, or of the panel itself.

    Args:
        answers: The judge's answers in the run, each with the panel's answer.
        matches: The labelled judgments, with the judge's answer instead of the panel's answer.
        adds: The panel's share of right answers with this judge, minus its share without this judge. Undefined for the
            panel itself.
        panel_gain: The panel's share of right answers, minus the share of this judge alone. Undefined for the panel
            itself.
        level: The confidence level of the intervals, between 0 and 1.
        groups: The group of each row of the run, or None if the rows are independent.
    """
    valid = [(own, panel) for own, panel in answers if own.verdict is not None and own.error is None]
    criteria = {
        key: measure_criterion(group, None, level, groups=groups) for key, group in group_matches(matches).items()
    }
    kappas = [row.kappa.value for row in criteria.values() if row.kappa.value is not None]
    return JudgeOnPanel(
        votes=len(answers),
        failed=sum(own.error is not None for own, _ in answers),
        abstained=sum(own.abstained for own, _ in answers),
        agrees=sum(own.verdict == panel.verdict for own, panel in valid) / len(valid) if valid else None,
        coverage=sum(row.n for row in criteria.values()) / len(matches) if matches else None,
        accuracy=estimate_accuracy(matches, level, groups),
        mean_kappa=sum(kappas) / len(kappas) if kappas else None,
        adds=adds,
        panel_gain=panel_gain,
        criteria=criteria,
    )


class Discordance(NamedTuple):
    """A judgment that two panels answered, with the raters who agree with only one of them.

    Attributes:
        row: The index of the row.
        rose: The share of the raters who give only the first panel's answer.
        fell: The share of the raters who give only the second panel's answer.
    """

    row: int
    rose: float
    fell: float


def compare_panels(pairs: Sequence[Discordance], level: float = 0.95, groups: Groups | None = None) -> Estimate:
    """Estimate the first panel's share of right answers minus the second panel's share, from paired judgments.

    Args:
        pairs: The judgments.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each row of the run, or None if the rows are independent.
    """
    of_rows: dict[int, list[Discordance]] = {}
    for pair in pairs:
        of_rows.setdefault(pair.row, []).append(pair)
    rose = [sum(pair.rose for pair in of_row) / len(of_row) for of_row in of_rows.values()]
    fell = [sum(pair.fell for pair in of_row) / len(of_row) for of_row in of_rows.values()]
    return estimate_shift(rose, fell, level, select_groups(groups, list(of_rows)), clustered=True)


def discordance(match: Match, one: Match | None, other: Match | None) -> Discordance:
    """Return the shares of raters who agree with only one of two panel answers to a judgment.

    Args:
        match: The judgment with its labels.
        one: The judgment with the first panel's answer, or None if this panel has no answer.
        other: The judgment with the second panel's answer, or None if this panel has no answer.
    """
    answers = [None if each is None else each.judge_answer for each in (one, other)]
    if answers[0] == answers[1]:
        return Discordance(match.row, 0.0, 0.0)
    return Discordance(match.row, *(0.0 if each is None else each.right or 0.0 for each in (one, other)))


def with_result(match: Match, result: VoteResult | None) -> Match | None:
    """Return a labelled judgment with its answer replaced by a voting result, or None if `result` is None."""
    if result is None:
        return None
    update = {"verdict": result.verdict, "value": result.value, "error": None}
    return replace(match, judged=match.judged.model_copy(update=update))


def what_judge_adds(
    voted: Sequence[VotedMatch], judge: str, level: float = 0.95, groups: Groups | None = None
) -> Estimate:
    """Estimate the panel's share of right answers with a judge, minus its share without this judge.

    Undefined if the vote of another judge was skipped on any judgment, because earlier votes had already decided.
    """
    pairs: list[Discordance] = []
    for match, criterion, strategy in voted:
        entry = match.judged
        if any(name != judge for name in entry.not_asked):
            return UNDEFINED
        others = [vote for vote in entry.votes if vote.judge != judge]
        is_same = len(others) == len(entry.votes)
        without = match if is_same else with_result(match, vote_again(criterion, others, strategy))
        pairs.append(discordance(match, match, without))
    return compare_panels(pairs, level, groups)


def panel_before_judge(
    matches: Sequence[Match], judge: str, level: float = 0.95, groups: Groups | None = None
) -> Estimate:
    """Estimate the panel's share of right answers minus one judge's share, for judgments with a vote of this judge."""
    pairs: list[Discordance] = []
    for match in matches:
        answer = answer_of(match.judged, judge)
        if answer is not None and match.people_value is not None:
            pairs.append(discordance(match, match, replace(match, judged=answer)))
    return compare_panels(pairs, level, groups)


def correlate_errors(
    matches: Sequence[Match], judges: Sequence[str]
) -> tuple[dict[str, dict[str, float | None]], float | None]:
    """Compute the correlation of the errors of each pair of judges, and the mean of the defined correlations.

    The correlation is None if one of the judges has no errors, or only errors, on the judgments that both decided.
    """
    errors: dict[str, dict[int, float]] = {judge: {} for judge in judges}
    for number, match in enumerate(matches):
        for judge in judges:
            answer = answer_of(match.judged, judge)
            right = replace(match, judged=answer).right if answer else None
            if right is not None:
                errors[judge][number] = 1 - right
    table: dict[str, dict[str, float | None]] = {judge: {} for judge in judges}
    for one, other in combinations(judges, 2):
        both = [(errors[one][number], errors[other][number]) for number in errors[one].keys() & errors[other].keys()]
        table[one][other] = table[other][one] = _correlation(both)
    values = [value for one, other in combinations(judges, 2) if (value := table[one][other]) is not None]
    return table, sum(values) / len(values) if values else None


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    values = np.array(pairs, float)
    spread = values.std(axis=0)
    return float(np.corrcoef(values.T)[0, 1]) if spread.all() else None


def compare_judges(
    entries: Sequence[CriterionReport], criterion: Criterion, strategy: str | None, panel_size: int
) -> PanelCriterion:
    """Measure the agreement of a panel's judges with each other on one criterion, without labels.

    Args:
        entries: The report's entries of the criterion, with the votes.
        criterion: The criterion.
        strategy: The voting strategy that explains the panel's verdicts, or None if no strategy explains all of them.
        panel_size: The number of judges on the panel.
    """
    levels = answer_levels(criterion)
    places = {answer: place for place, answer in enumerate(levels)}
    # A number of occurrences above the `cap` has the value 1 and counts as the highest level.
    units = [
        [places.get(vote.verdict or "", len(levels) - 1) for vote in entry.votes if vote.value is not None]
        for entry in (entries if levels else ())
    ]
    values = [to_judgment(criterion, answer).value or 0.0 for answer in levels]
    apart = level_distances(values, "nominal" if criterion.kind == "nominal" else "quadratic")
    complete = [unit for unit in units if len(unit) == panel_size]
    return PanelCriterion(
        strategy=strategy,
        n=len(entries),
        fleiss_kappa=fleiss_kappa(complete, len(levels)) if levels else None,
        alpha=krippendorff_alpha(units, apart) if levels else None,
    )


_COLUMNS = ("judge", "votes", "failed", "abstained", "agrees", "coverage", "accuracy", "kappa", "adds", "panel_gain")


class PanelReport(Record):
    """The figures of each judge of a panel, and of the panel itself.

    Attributes:
        judges: The figures of each judge by its name, in the order of the panel.
        panel: The figures of the panel itself.
        criteria: The agreement of the judges with each other, by criterion.
        error_correlations: The correlation of the errors of each pair of judges, by both names. None if one of the two
            judges has no errors or only errors.
        error_correlation: The mean of the defined correlations. None without labels, or if no correlation is defined.
        effective_judges: The number of judges with independent errors that would be about as accurate as this panel:
            `k / (1 + (k - 1) r)` for k judges with the mean correlation r (Kish 1965; Clemen and Winkler 1985). None if
            `error_correlation` is None.
        spend: The calls, tokens and cost of the panel. Costs of single judges are not recorded.
        labels: The number of labels that the figures are computed from.
        warnings: Limitations of the figures, one sentence each.
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
        """Return the figures as text: a line for each judge, a line for the panel, and the warnings."""
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
        spend = self.spend.summary()
        lines.append(f"cost of the panel: {spend}; votes do not tell the cost of each judge")
        return "\n".join([*lines, *self.warnings])

    def _findings(self) -> list[str]:
        """Return lines with the judges that significantly improve or worsen the panel, or are better than the panel."""
        adds = {name: judge.adds for name, judge in self.judges.items()}
        alone = {name: judge.panel_gain for name, judge in self.judges.items()}
        useful = [name for name, row in adds.items() if row.low is not None and row.low > 0]
        harmful = [name for name, row in adds.items() if row.high is not None and row.high < 0]
        better = [name for name, row in alone.items() if row.high is not None and row.high < 0]
        lines = [f"judges that significantly add right answers: {', '.join(useful) or 'none, by these labels'}"]
        lines += [f"judges without which the panel is significantly better: {', '.join(harmful)}"] if harmful else []
        return lines + (
            [f"judges that are significantly better alone than the panel: {', '.join(better)}"] if better else []
        )

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
    cluster: Cluster | None = None,
    level: float = 0.95,
) -> PanelReport:
    """Measure the accuracy of each judge of a panel, its contribution, and the agreement between the judges.

    Without labels, the result has only the figures that compare the judges with each other. Judges that agree may all
    make the same errors.

    Args:
        run: A run that a panel graded (`judges=[...]`): the path of a file that `grade --out` wrote, results of
            `grade_many`, or reports.
        labels: Human labels of some of its judgments, drawn at random.
        rubric: The run's rubric. It is needed only for reports of earlier versions, which lack the possible answers.
        cluster: How to group rows that depend on each other: a column of the graded table, `"id"`, `"query"`, or a
            function that gets a row's id. The intervals are then computed for groups of rows.
        level: The confidence level of the intervals, between 0 and 1.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves.
        ValueError: No panel graded the run, the rubric is needed but missing, or a row does not have the column of
            `cluster`.
    """
    rows = read_rows(run)
    groups = group_rows(rows, cluster)
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
            [replace(match, judged=answer) for match in matches if (answer := answer_of(match.judged, name))],
            what_judge_adds(voted, name, level, groups),
            panel_before_judge(matches, name, level, groups),
            level,
            groups,
        )
        for name in names
    }
    if matches:
        warnings += dependence_warnings(rows, cluster)
        warnings += group_warnings(select_groups(groups, [match.row for match in matches]))
    correlations, mean = correlate_errors(matches, names)
    divisor = None if mean is None else 1 + (len(names) - 1) * mean
    return PanelReport(
        judges=judges,
        panel=measure_judge([(entry, entry) for entry in entries], matches, level=level, groups=groups),
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
    """Match labels with the answers of a panel, and return the matches with warnings.

    Judgments that no panel answered are ignored. Labels that were drawn by the panel's verdict are left out with a
    warning.
    """
    matches = [match for match in match_labels(rows, labels).matches if is_voted(match.judged)]
    random = [match for match in matches if match.is_random]
    if len(random) == len(matches):
        return random, []
    return random, [
        f"{len(matches) - len(random):,} labelled judgments are left out: they were drawn by the verdict of the panel, "
        "and say nothing about how often its judges are right; draw labels at random"
    ]


# A judge that is right in half of its answers would get the weight 0, which a panel does not accept.
_LEAST_WEIGHT = 0.01
_FEW = 25


class PanelWeights(Record):
    """Weights for the votes of a panel, and the gain over equal weights.

    Attributes:
        weights: The weight of each judge by its name, in the order of the panel. The largest weight is 1.
        accuracies: The share of right answers of each judge, on the submissions that were used for the weights.
        weighted: The panel's share of right answers with these weights, on the other labelled submissions.
        equal: The panel's share of right answers with equal weights, on the same submissions.
        gain: The value of `weighted` minus the value of `equal`, with an interval for paired judgments.
        is_better: Whether the interval of the gain is above 0. If not, the labels do not show that the weights are
            better than equal weights.
        trained_on: The number of submissions that were used for the weights.
        warnings: Limitations of the figures, one sentence each.
    """

    weights: dict[str, float]
    accuracies: dict[str, float]
    weighted: Estimate
    equal: Estimate
    gain: Estimate
    is_better: bool
    trained_on: int
    warnings: tuple[str, ...] = ()

    @property
    def voting(self) -> Voting:
        """The `Voting` settings for a grader whose panel uses these weights."""
        return voting_with(list(self.weights.values()))

    def summary(self) -> str:
        """Return the weights and the gain as text."""
        lines = [f"{name}: weight {weight:.2f}" for name, weight in self.weights.items()]
        lines.append(f"on the other labels: {self.weighted} with these weights, {self.equal} with equal ones")
        lines.append(f"gain {self.gain}: {'keep the weights' if self.is_better else 'equal weights are as good'}")
        return "\n".join([*lines, *self.warnings])

    def _repr_html_(self) -> str:
        rows = [(name, weight, self.accuracies[name]) for name, weight in self.weights.items()]
        verdict = "keep the weights" if self.is_better else "equal weights are as good"
        return html_table(f"Gain of the weights {self.gain}: {verdict}", ["judge", "weight", "accuracy"], rows)


def voting_with(weights: Sequence[float]) -> Voting:
    """Return `Voting` settings with one weight for each judge and a weighted strategy for each kind of criterion."""
    return Voting(weights=tuple(weights), binary="weighted", ordinal="weighted_mean", nominal="weighted_mode")


def suggest_weights(
    run: RunLike,
    labels: Iterable[LabelledJudgment],
    *,
    rubric: Rubric | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> PanelWeights:
    """Suggest weights for the votes of a panel from the judges' accuracy according to human labels.

    A judge that is right with probability p gets a weight proportional to `log(p / (1 - p))`. These weights are optimal
    for judges with independent errors (Nitzan and Paroush 1982; Shapley and Grofman 1984). The errors of models are not
    independent. Therefore, equal weights are often as good. A random half of the labelled submissions gives the
    weights, and the other half measures the gain.

    Args:
        run: A run that a panel graded: the path of a file that `grade --out` wrote, results of `grade_many`, or
            reports.
        labels: Human labels of some of its judgments, drawn at random.
        rubric: The run's rubric. It is needed only for reports of earlier versions, which lack the possible answers.
        seed: The random seed that selects the half for the weights. The same seed selects the same half.
        level: The confidence level of the intervals, between 0 and 1.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves.
        ValueError: Fewer than two submissions that a panel graded have a label that is not an abstention, or the rubric
            is needed but missing.
    """
    rows = read_rows(run)
    names = judge_names(entry for of_criterion in voted_entries(rows).values() for entry in of_criterion)
    matches, warnings = panel_matches(rows, labels)
    matches = [match for match in matches if match.people_value is not None]
    submissions = sorted({_submission_key(match) for match in matches})
    random.Random(seed).shuffle(submissions)  # noqa: S311 -- not for secrets
    train = set(submissions[: len(submissions) // 2])
    if not train:
        raise ValueError(
            f"weights need labels of at least two submissions that a panel graded, got {len(submissions)}: label more"
        )
    accuracies = {name: _accuracy(matches, name, train) for name in names}
    log_odds = {name: math.log(p / (1 - p)) for name, p in accuracies.items()}
    largest = max(log_odds.values())
    if largest <= 0:
        warnings.append("no judge is right in more than half of its answers: align them before you weight them")
        weights = dict.fromkeys(names, 1.0)
    else:
        weights = {name: max(_LEAST_WEIGHT, value / largest) for name, value in log_odds.items()}
        if useless := [name for name, value in log_odds.items() if value <= 0]:
            listed = ", ".join(f"`{name}`" for name in useless)
            warnings.append(f"{listed}: right in no more than half of the answers: leave it out of the panel")
    if len(train) < _FEW:
        warnings.append(f"weights of {len(train)} submissions depend on chance: label at least {2 * _FEW}")
    pairs = [
        (match, _vote(match, weights, rubric), _vote(match, dict.fromkeys(names, 1.0), rubric))
        for match in matches
        if _submission_key(match) not in train
    ]
    gain = compare_panels([discordance(*pair) for pair in pairs], level)
    return PanelWeights(
        weights=weights,
        accuracies=accuracies,
        weighted=_mean_by_row([(match.row, weighted) for match, weighted, _ in pairs], level),
        equal=_mean_by_row([(match.row, equal) for match, _, equal in pairs], level),
        gain=gain,
        is_better=gain.low is not None and gain.low > 0,
        trained_on=len(train),
        warnings=tuple(warnings),
    )


def _submission_key(match: Match) -> tuple[str, str]:
    """Return the texts that identify a submission. Samples with equal texts must be in the same half."""
    submission = match.labels[0].submission
    return submission.query or "", submission.response.strip()


def _accuracy(matches: Sequence[Match], judge: str, train: set[tuple[str, str]]) -> float:
    """Estimate the share of a judge's right answers, smoothed because the weight is infinite at 0 and 1."""
    own = [
        right
        for match in matches
        if _submission_key(match) in train and (answer := answer_of(match.judged, judge))
        if (right := replace(match, judged=answer).right) is not None
    ]
    return (sum(own) + 0.5) / (len(own) + 1)


def _vote(match: Match, weights: dict[str, float], rubric: Rubric | None) -> Match | None:
    """Return a judgment with the result of weighted votes, or None if all votes are failures."""
    criterion = criterion_of(match.judged, rubric)
    votes = [vote.model_copy(update={"weight": weights[vote.judge]}) for vote in match.judged.votes]
    return with_result(match, vote_again(criterion, votes, voting_with([1.0]).strategies[criterion.kind]))


def _mean_by_row(answers: Sequence[tuple[int, Match | None]], level: float) -> Estimate:
    of_rows: dict[int, list[float]] = {}
    for row, match in answers:
        of_rows.setdefault(row, []).append(0.0 if match is None else match.right or 0.0)
    return estimate_mean([sum(of_row) / len(of_row) for of_row in of_rows.values()], level)
