"""Agreement of judges with human labels on a data set: single judges, pairs of judges, and panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from rubric_integrations.rubric.criterion import VOTE_STRATEGIES, Criterion
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.judgment import Vote, to_judgment
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import CriterionReport, EvaluationReport
from rubric_integrations.scoring.voting import count_votes
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.benchmarks.sets import BenchmarkSet, Question, RecordedJudge
from rubric_integrations.trust.certification import Certificate
from rubric_integrations.trust.criterion_certificates import certify
from rubric_integrations.trust.matching import Match, answer_levels, group_rows, match_labels
from rubric_integrations.trust.means import (
    Groups,
    estimate_ac1,
    estimate_kappa_difference,
    estimate_shift,
    select_groups,
)
from rubric_integrations.trust.measure import CriterionAgreement, measure_criterion
from rubric_integrations.trust.statistics import krippendorff_alpha, level_distances

_CLUSTER = "cluster"


class JudgeFigures(NamedTuple):
    """A judge's agreement with human labels on all criteria of one kind.

    Attributes:
        kind: The kind of the criteria.
        judge: The judge.
        n: The number of judgments that both the annotators and the judge decided.
        unread: The number of failures, such as replies that could not be parsed.
        abstained: The number of judgments from which the judge abstained.
        accuracy: The share of judgments on which the judge and the human labels agree.
        kappa: Cohen's kappa without weights.
        weighted_kappa: Cohen's kappa with quadratic weights for ordered answers, or None for other answers.
        ac1: Gwet's AC1.
        bias: The judge's mean value minus the annotators' mean value, as a share of the scale. None for answers without
            an order.
    """

    kind: str
    judge: RecordedJudge
    n: int
    unread: int
    abstained: int
    accuracy: Estimate
    kappa: Estimate
    weighted_kappa: Estimate | None
    ac1: Estimate
    bias: Estimate | None

    @property
    def ranking_kappa(self) -> Estimate:
        """The kappa by which judges are ranked: the weighted one, if there is one.

        The kappa without weights is lower for more levels, because it counts a near miss as a full error.
        """
        return self.weighted_kappa or self.kappa


class JudgeDifference(NamedTuple):
    """A judge's figures minus another judge's figures, on the questions of one kind that both answered.

    Attributes:
        accuracy: The difference of the accuracies.
        kappa: The difference of the ranking kappas (see `JudgeFigures.ranking_kappa`). Undefined if one of them is.
    """

    accuracy: Estimate
    kappa: Estimate

    @property
    def not_better(self) -> tuple[str, ...]:
        """The names of the figures whose lower limit is not above 0. Empty if the judge is significantly better.

        Both figures are needed. If most answers are equal, a judge that always gives this answer has a high accuracy,
        and its kappa is 0.
        """
        figures = (("accuracy", self.accuracy), ("kappa", self.kappa))
        return tuple(name for name, estimate in figures if estimate.low is None or estimate.low <= 0)


class PeopleFigures(NamedTuple):
    """The agreement of a data set's raters with each other, on the criteria of one kind.

    Attributes:
        alpha: Krippendorff's alpha with equal distances between answers, or None without two raters of a judgment.
        weighted_alpha: Krippendorff's alpha with quadratic distances, or None for answers without an order.
    """

    alpha: float | None
    weighted_alpha: float | None


@dataclass(frozen=True)
class Benchmark:
    """Computes the figures of recorded judges on one data set.

    Attributes:
        data: The data set.
        level: The confidence level of the intervals. The intervals allow for the dependence of the items in a cluster.
    """

    data: BenchmarkSet
    level: float = 0.95

    def rows_of(self, judges: Sequence[RecordedJudge], strategy: str | None = None) -> list[GradedRow]:
        """Return the answers of one judge, or of several judges as a panel, as rows of a run. The rows have no texts.

        The rows of a panel contain only questions to which every judge replied.

        Args:
            judges: The judges.
            strategy: The voting strategy of a panel, or None for the default strategy of the kind of criteria.
        """
        rows: list[GradedRow] = []
        for item in self.data.items:
            answered = [name for name in item.labels if all((item.id, name) in judge.answers for judge in judges)]
            entries = tuple(
                _entry(item.criteria[name], {judge.label: judge.answers[item.id, name] for judge in judges}, strategy)
                for name in answered
            )
            failed = sum(entry.error is not None for entry in entries)
            report = EvaluationReport(
                score=None, raw_score=None, passed=False, complete=not failed, coverage=1.0, failed_count=failed,
                report=entries,
            )  # fmt: skip
            rows.append(GradedRow(item.id, None, report, None, metadata={_CLUSTER: item.cluster}))
        return rows

    @cached_property
    def labels(self) -> list[LabelledJudgment]:
        """The reference answer to each question of the data set, as a human label."""
        items = {item.id: item for item in self.data.items}
        return [
            LabelledJudgment(
                id=item, submission=_NO_TEXT, criterion=items[item].criteria[name], verdict=answer, rater="people",
                sampled="random", blind=True,
            )
            for (item, name), answer in self.data.references.items()
        ]  # fmt: skip

    @cached_property
    def _groups(self) -> Groups | None:
        return group_rows(self.rows_of([]), _CLUSTER)

    def _matches(self, judge: RecordedJudge, kind: str | None = None) -> list[Match]:
        matches = match_labels(self.rows_of([judge]), self.labels).matches
        return [match for match in matches if kind in (None, match.criterion.tags[0])]

    def _agreement(self, matches: Sequence[Match]) -> CriterionAgreement:
        return measure_criterion(matches, None, self.level, groups=self._groups)

    def _groups_of(self, matches: Sequence[Match]) -> Groups | None:
        return select_groups(self._groups, [match.row for match in matches])

    def measure(self, judge: RecordedJudge, kind: str) -> JudgeFigures:
        """Measure a judge's agreement with human labels on the criteria of one kind.

        Raises:
            ValueError: The judge has no reply to a question of this kind.
        """
        matches = self._matches(judge, kind)
        if not matches:
            raise ValueError(f"{judge.label} has no reply about {kind}: there is nothing to measure")
        equal = self._agreement([_with_equal_distances(match) for match in matches])
        places = {answer: place for place, answer in enumerate(equal.levels)}
        decided = [match for match in matches if match.right is not None]
        cells = [(places[match.answers[0]], places[match.judge_answer or ""]) for match in decided]
        criterion = matches[0].criterion
        return JudgeFigures(
            kind=kind,
            judge=judge,
            n=equal.n,
            unread=equal.failed,
            abstained=equal.judge_abstained,
            accuracy=equal.accuracy,
            kappa=equal.kappa,
            weighted_kappa=self._agreement(matches).kappa if criterion.kind == "ordinal" else None,
            ac1=estimate_ac1(equal.confusion, cells, self.level, self._groups_of(decided)),
            bias=None if criterion.kind == "nominal" else equal.bias,
        )

    def kinds_of(self, judge: RecordedJudge) -> set[str]:
        """Return the kinds of criteria about which a judge has answered questions."""
        return {match.criterion.tags[0] for match in self._matches(judge)}

    def compare(self, judge: RecordedJudge, other: RecordedJudge, kind: str) -> JudgeDifference:
        """Estimate a judge's accuracy and kappa minus another judge's, on the questions that both answered.

        Args:
            judge: The judge.
            other: The other judge.
            kind: The kind of the criteria.
        """
        others = {
            (match.row, match.judged.name): match for match in self._matches(other, kind) if match.right is not None
        }
        pairs = [
            (match, others[match.row, match.judged.name])
            for match in self._matches(judge, kind)
            if match.right is not None and (match.row, match.judged.name) in others
        ]
        groups = self._groups_of([match for match, _ in pairs])
        right = [(match.right or 0.0, other_match.right or 0.0) for match, other_match in pairs]
        rose, fell = ([float(pair == outcome) for pair in right] for outcome in ((1.0, 0.0), (0.0, 1.0)))
        return JudgeDifference(
            estimate_shift(rose, fell, self.level, groups), _kappa_difference(pairs, self.level, groups)
        )

    def people(self, kind: str) -> PeopleFigures:
        """Measure the agreement among the raters on the criteria of one kind."""
        units: list[list[int]] = []
        levels: list[str] = []
        criterion: Criterion | None = None
        for item in self.data.items:
            for name, labels in item.labels.items():
                if item.criteria[name].tags[0] == kind:
                    criterion = item.criteria[name]
                    levels = answer_levels(criterion)
                    units.append([levels.index(label) for label in labels.values() if label in levels])
        if criterion is None or all(len(unit) < 2 for unit in units):
            return PeopleFigures(None, None)
        values = [to_judgment(criterion, level).value or 0.0 for level in levels]
        alpha, weighted = (
            krippendorff_alpha(units, level_distances(values, weighting)) for weighting in ("nominal", "quadratic")
        )
        return PeopleFigures(alpha, weighted if criterion.kind == "ordinal" else None)

    def panel(self, judges: Sequence[RecordedJudge], strategy: str) -> RecordedJudge:
        """Combine judges into one judge, with a voting strategy for the kind of criteria.

        The result has answers only to the questions to which all judges replied.
        """
        answers = {
            (row.id, entry.name): entry.verdict
            for row in self.rows_of(judges, strategy)
            for entry in (row.report.criteria if row.report else ())
        }
        return RecordedJudge(f"panel of {len(judges)}", strategy, max(judge.date for judge in judges), answers)

    def unanimous(self, judges: Sequence[RecordedJudge], kind: str) -> tuple[float, JudgeFigures]:
        """Return the share of questions on which all judges agree, and the quality of these unanimous answers.

        The quality is the agreement of the answers with human labels. The share is over the questions of all kinds to
        which every judge replied.

        Args:
            judges: The judges.
            kind: The kind of criteria for the agreement with human labels.
        """
        everywhere, agreed = 0, dict[Question, str | None]()
        for row in self.rows_of(judges):
            for entry in row.report.criteria if row.report else ():
                everywhere += 1
                if entry.error is None and entry.agreement == 1 and all(vote.error is None for vote in entry.votes):
                    agreed[row.id, entry.name] = entry.verdict
        judge = RecordedJudge("where all agree", "", "", agreed)
        return len(agreed) / everywhere, self.measure(judge, kind)

    def certify(self, judges: Sequence[RecordedJudge], alpha: float) -> Certificate:
        """Certify that the answers on which all judges agree have an error rate of at most `alpha`.

        If no such guarantee is possible, the certificate has no threshold and names the reason.

        Only one judgment of each cluster is used, because the judgments of a cluster depend on each other.
        """
        return certify(self.rows_of(judges), self.labels, alpha=alpha, cluster=_CLUSTER)


_NO_TEXT = Submission(response="not in the data")
_UNREAD = "the reply could not be read"


def _kappa_difference(pairs: Sequence[tuple[Match, Match]], level: float, groups: Groups | None) -> Estimate:
    """Estimate the difference of the ranking kappas of two judges on the same questions."""
    if not pairs:
        return Estimate(None, None, None, 0)
    criterion = pairs[0][0].criterion
    levels = answer_levels(criterion)
    values = [to_judgment(criterion, answer).value or 0.0 for answer in levels]
    apart = level_distances(values, "nominal" if criterion.kind == "nominal" else "quadratic")
    people = [levels.index(match.answers[0]) for match, _ in pairs]
    judge, other = (
        [levels.index(match.judge_answer or "") for match in matches] for matches in zip(*pairs, strict=True)
    )
    return estimate_kappa_difference(people, judge, other, apart, level, groups)


def _with_equal_distances(match: Match) -> Match:
    return replace(match, criterion=match.criterion.model_copy(update={"scale_type": "nominal"}))


def _entry(criterion: Criterion, answers: Mapping[str, str | None], strategy: str | None) -> CriterionReport:
    """Return an entry of a report with the answer of one judge, or with the votes of several judges."""
    votes = tuple(_vote(criterion, name, answer) for name, answer in answers.items())
    unread = CriterionReport(
        name=criterion.name or "",
        requirement=criterion.full_requirement,
        weight=criterion.weight,
        options=criterion.choices,
        scale_type=criterion.scale_type,
        votes=votes if len(votes) > 1 else (),
        verdict=None,
        value=None,
        error=_UNREAD,
    )
    if all(vote.error is not None for vote in votes):
        return unread
    verdict, value, agreement = count_votes(criterion, votes, strategy or VOTE_STRATEGIES[criterion.kind][0])
    return unread.model_copy(update={"verdict": verdict, "value": value, "agreement": agreement, "error": None})


def _vote(criterion: Criterion, judge: str, answer: str | None) -> Vote:
    if answer is None:
        return Vote(judge=judge, verdict=None, value=None, error=_UNREAD)
    judgment = to_judgment(criterion, answer)
    return Vote(judge=judge, verdict=judgment.verdict, value=judgment.value)
