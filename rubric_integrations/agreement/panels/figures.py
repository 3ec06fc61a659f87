"""Figures about the judges of a panel: each alone, what it adds, and how far the judges err and agree together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from rubric_integrations._util.records import Record
from rubric_integrations.agreement.clusters import estimate_clustered_difference
from rubric_integrations.agreement.criterion_agreement import CriterionAgreement, answer_levels, measure_criterion
from rubric_integrations.agreement.intervals import estimate_mean
from rubric_integrations.agreement.kappa import fleiss_kappa, krippendorff_alpha, level_distances
from rubric_integrations.agreement.matching import Match, group_matches
from rubric_integrations.agreement.panels.votes import answer_of, vote_again
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.voting import VoteResult

UNDEFINED = Estimate(None, None, None, 0)


class JudgeOnPanel(Record):
    """One judge of a panel, or the panel as a whole.

    Attributes:
        votes: How many judgments were requested of it, in the whole run.
        failed: How many of them have no answer.
        abstained: How many of them it could not assess.
        agrees: The share of its answers that equal the panel's; None without an answer.
        coverage: The share of the labelled judgments that it and people decided; None without labels.
        accuracy: The share of equal answers: the mean over the labelled submissions.
        mean_kappa: The mean kappa of the criteria that have one.
        adds: How much larger the panel's share of right answers is with this judge than without it. No answer is not
            right. Undefined for the panel as a whole. A panel of two decides ties for the lower score.
        panel_gain: How much larger the panel's share of right answers is than that of this judge alone.
        criteria: Agreement with people on each criterion; empty without labels.
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
    """How far the judges of a panel agree with each other on one criterion. These figures need no labels.

    Attributes:
        strategy: How the panel votes, as far as its verdicts show it; None if no strategy gives all of them.
        n: How many submissions the panel answered.
        fleiss_kappa: Fleiss' kappa among the judges, of the submissions that all of them decided; None for a scale with
            more than 21 numbers, and if all answers are the same.
        alpha: Krippendorff's alpha among them, of all submissions that two judges decided. An abstention is a gap, and
            no level.
    """

    strategy: str | None
    n: int
    fleiss_kappa: float | None
    alpha: float | None


class VotedMatch(NamedTuple):
    """A labelled judgment of a panel.

    Attributes:
        match: The judgment, with people's answers.
        criterion: Its criterion, by which votes are joined.
        strategy: How the panel voted.
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
) -> JudgeOnPanel:
    """Measure one judge.

    Args:
        answers: Its answers in the run, each with the panel's.
        matches: Those that people labelled, with the judge's answer in place of the panel's.
        adds: What the judge adds.
        panel_gain: What the panel has before the judge alone.
        level: The level of the intervals.
    """
    valid = [(own, panel) for own, panel in answers if own.verdict is not None and own.error is None]
    criteria = {key: measure_criterion(group, None, level) for key, group in group_matches(matches).items()}
    kappas = [row.kappa.value for row in criteria.values() if row.kappa.value is not None]
    return JudgeOnPanel(
        votes=len(answers),
        failed=sum(own.error is not None for own, _ in answers),
        abstained=sum(own.abstained for own, _ in answers),
        agrees=sum(own.verdict == panel.verdict for own, panel in valid) / len(valid) if valid else None,
        coverage=sum(row.n for row in criteria.values()) / len(matches) if matches else None,
        accuracy=accuracy_by_submission(matches, level),
        mean_kappa=sum(kappas) / len(kappas) if kappas else None,
        adds=adds,
        panel_gain=panel_gain,
        criteria=criteria,
    )


def is_right(match: Match) -> bool | None:
    """Whether the judge's answer equals people's; None if one of them did not decide."""
    if match.people_value is None or match.judge_answer is None or match.judged.value is None:
        return None
    return match.judge_answer == match.consensus


def accuracy_by_submission(matches: Sequence[Match], level: float = 0.95) -> Estimate:
    """Estimate the mean over the labelled submissions of the share of equal answers."""
    shares: dict[int, list[bool]] = {}
    for match in matches:
        if (right := is_right(match)) is not None:
            shares.setdefault(match.row, []).append(right)
    return estimate_mean([sum(of_row) / len(of_row) for of_row in shares.values()], level)


def compare_panels(pairs: Sequence[tuple[int, bool, bool]], level: float = 0.95) -> Estimate:
    """Estimate how much larger the share of right answers of one panel is than that of another, in pairs.

    Args:
        pairs: For each judgment, the index of its submission, and whether the one and the other panel is right.
        level: The level of the interval.
    """
    of_rows: dict[int, list[tuple[bool, bool]]] = {}
    for row, one, other in pairs:
        of_rows.setdefault(row, []).append((one, other))
    rose = [sum(one and not other for one, other in of_row) / len(of_row) for of_row in of_rows.values()]
    fell = [sum(other and not one for one, other in of_row) / len(of_row) for of_row in of_rows.values()]
    return estimate_clustered_difference(rose, fell, level)


def is_right_by_votes(match: Match, result: VoteResult | None) -> bool:
    """Whether the result of other votes equals people's answer; no result is not right."""
    if result is None:
        return False
    judged = match.judged.model_copy(update={"verdict": result.verdict, "value": result.value, "error": None})
    return match._replace(judged=judged).judge_answer == match.consensus


def what_judge_adds(voted: Sequence[VotedMatch], judge: str, level: float = 0.95) -> Estimate:
    """Estimate how much larger the panel's share of right answers is with a judge than without it.

    Undefined if it depends on votes that were not requested, because the panel was already decided.
    """
    pairs: list[tuple[int, bool, bool]] = []
    for match, criterion, strategy in voted:
        entry, right = match.judged, match.judge_answer == match.consensus
        if any(name != judge for name in entry.not_asked):
            return UNDEFINED
        others = [vote for vote in entry.votes if vote.judge != judge]
        if len(others) == len(entry.votes):
            pairs.append((match.row, right, right))
        else:
            pairs.append((match.row, right, is_right_by_votes(match, vote_again(criterion, others, strategy))))
    return compare_panels(pairs, level)


def panel_before_judge(matches: Sequence[Match], judge: str, level: float = 0.95) -> Estimate:
    """Estimate how much larger the panel's share of right answers is than that of one judge, where it was asked."""
    pairs: list[tuple[int, bool, bool]] = []
    for match in matches:
        answer = answer_of(match.judged, judge)
        if answer is not None and match.people_value is not None:
            alone = match._replace(judged=answer)
            pairs.append((match.row, match.judge_answer == match.consensus, alone.judge_answer == match.consensus))
    return compare_panels(pairs, level)


def correlate_errors(
    matches: Sequence[Match], judges: Sequence[str]
) -> tuple[dict[str, dict[str, float | None]], float | None]:
    """Compute the correlation of the errors of each two judges, and its mean over the pairs that have one.

    A judge without an error, and one that always errs, has no correlation.
    """
    errors: dict[str, dict[int, float]] = {judge: {} for judge in judges}
    for number, match in enumerate(matches):
        for judge in judges:
            answer = answer_of(match.judged, judge)
            right = is_right(match._replace(judged=answer)) if answer else None
            if right is not None:
                errors[judge][number] = float(not right)
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
    """Measure how far the judges of a panel agree with each other on one criterion."""
    levels = answer_levels(criterion)
    places = {answer: place for place, answer in enumerate(levels)}
    # An occurrence above the `cap` has the value 1, and is the highest level.
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
