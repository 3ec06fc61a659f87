"""Weights of a panel's votes by the judges' accuracy, compared with equal weights on labels that they do not know."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence

from rubric_integrations._util.notebook import html_table
from rubric_integrations._util.records import Record
from rubric_integrations.agreement.intervals import estimate_mean
from rubric_integrations.agreement.matching import Match
from rubric_integrations.agreement.panels.figures import compare_panels, is_right, is_right_by_votes
from rubric_integrations.agreement.panels.panel_report import panel_matches
from rubric_integrations.agreement.panels.votes import answer_of, criterion_of, judge_names, vote_again, voted_entries
from rubric_integrations.agreement.rows import RunLike, read_rows
from rubric_integrations.graders.settings import Voting
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.rubric import Rubric

# The weight of a judge that is right in half of its answers would be 0, which no panel takes.
_LEAST_WEIGHT = 0.01
_FEW = 25


class PanelWeights(Record):
    """Weights for the votes of a panel, and what they gain over equal weights.

    Attributes:
        weights: The weight of each judge, by its name, in the order of the panel; the largest is 1.
        accuracies: How often each judge is right on the labels that the weights were made with.
        weighted: The share of right answers of the panel with these weights, on the other labels.
        equal: The same with equal weights.
        gain: The difference of both, in pairs.
        is_better: Whether the gain is surely above 0. If not, equal weights are as good, as far as the labels show.
        trained_on: The number of submissions that the weights were made with.
        warnings: What limits the figures.
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
        """The settings of a grader whose panel votes with these weights."""
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
    """Return settings by which a panel votes with weights on criteria of every kind."""
    return Voting(weights=tuple(weights), binary="weighted", ordinal="weighted_mean", nominal="weighted_mode")


def suggest_weights(
    run: RunLike,
    labels: Iterable[LabelledJudgment],
    *,
    rubric: Rubric | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> PanelWeights:
    """Suggest weights for the votes of a panel: for a judge that is right with probability p, `log(p / (1 - p))`.

    These are the best weights of judges whose errors are independent (Nitzan and Paroush 1982; Shapley and Grofman
    1984). The errors of models are not, so that equal weights are often as good. Half of the labelled submissions,
    drawn at random, make the weights, and the other half measures what they gain.

    Args:
        run: A run that a panel graded: the path of a file that `grade --out` wrote, results of `grade_many`, or
            reports.
        labels: People's labels of a part of it, drawn at random.
        rubric: The run's rubric, for reports of earlier versions, which lack the possible answers.
        seed: Which half makes the weights; the same seed draws the same one.
        level: The level of the intervals.

    Raises:
        ChosenLabelsError: Labels were chosen by people.
        ValueError: No panel graded the run, or a half has no label that people decided.
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
        (match.row, _is_right(match, weights, rubric), _is_right(match, dict.fromkeys(names, 1.0), rubric))
        for match in matches
        if _submission_key(match) not in train
    ]
    gain = compare_panels(pairs, level)
    return PanelWeights(
        weights=weights,
        accuracies=accuracies,
        weighted=_mean_by_row([(row, weighted) for row, weighted, _ in pairs], level),
        equal=_mean_by_row([(row, equal) for row, _, equal in pairs], level),
        gain=gain,
        is_better=gain.low is not None and gain.low > 0,
        trained_on=len(train),
        warnings=tuple(warnings),
    )


def _submission_key(match: Match) -> tuple[str, str]:
    """Identify a submission by its texts, so that samples with equal texts are in the same half."""
    submission = match.labels[0].submission
    return submission.query or "", submission.response.strip()


def _accuracy(matches: Sequence[Match], judge: str, train: set[tuple[str, str]]) -> float:
    """Estimate how often a judge is right, away from 0 and 1, where the weight would be infinite."""
    own = [
        right
        for match in matches
        if _submission_key(match) in train and (answer := answer_of(match.judged, judge))
        if (right := is_right(match._replace(judged=answer))) is not None
    ]
    return (sum(own) + 0.5) / (len(own) + 1)


def _is_right(match: Match, weights: dict[str, float], rubric: Rubric | None) -> bool:
    criterion = criterion_of(match.judged, rubric)
    votes = [vote.model_copy(update={"weight": weights[vote.judge]}) for vote in match.judged.votes]
    return is_right_by_votes(match, vote_again(criterion, votes, voting_with([1.0]).strategies[criterion.kind]))


def _mean_by_row(answers: Sequence[tuple[int, bool]], level: float) -> Estimate:
    of_rows: dict[int, list[bool]] = {}
    for row, right in answers:
        of_rows.setdefault(row, []).append(right)
    return estimate_mean([sum(of_row) / len(of_row) for of_row in of_rows.values()], level)
