"""Small runs of panels and their labels, for the tests of this package."""

from __future__ import annotations

from collections.abc import Sequence

from rubric_integrations import Rubric, Submission
from rubric_integrations.graders import Voting
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import JudgeFailure, to_judgment
from rubric_integrations.scoring.aggregate import aggregate_answers
from rubric_integrations.scoring.judgment import JudgeAnswers, Outcome
from rubric_integrations.scoring.policies import ScoringPolicies

JUDGES = ("a", "b", "c", "d", "e")
MAJORITY = Voting()


def panel_run(
    rubric: Rubric,
    votes: Sequence[Sequence[Sequence[str | None]]],
    voting: Voting = MAJORITY,
    text: str = "response",
) -> list[GradedRow]:
    """Make a run of a panel.

    Args:
        rubric: The rubric.
        votes: For each row, the answers of each judge to each criterion. None is a failure, and an empty text says that
            the judge was not asked.
        voting: How the panel votes.
        text: What the responses begin with.
    """
    policies = ScoringPolicies(True, "skip", "abstain", voting.strategies, True)
    rows: list[GradedRow] = []
    for number, of_row in enumerate(votes, start=1):
        panel = [
            JudgeAnswers(_outcomes(rubric, answers), judge, weight)
            for judge, answers, weight in zip(JUDGES, of_row, voting.weights or [1.0] * len(of_row), strict=False)
        ]
        report = aggregate_answers(rubric, panel, JudgeAnswers({}, judge="check"), policies)
        rows.append(GradedRow(str(number), Submission(response=f"{text} {number}"), report, None))
    return rows


def _outcomes(rubric: Rubric, answers: Sequence[str | None]) -> dict[int, Outcome]:
    outcomes: dict[int, Outcome] = {}
    for index, (criterion, answer) in enumerate(zip(rubric.criteria, answers, strict=True)):
        if answer is None:
            outcomes[index] = JudgeFailure("transport", "no reply")
        elif answer:
            outcomes[index] = to_judgment(criterion, answer)
    return outcomes
