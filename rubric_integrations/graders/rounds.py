"""The rounds of a grade: judgments that were lost in one round are requested again in the next one.

A `Round` is passed on as an argument. Only the method `judge` of a grader, which users override with two parameters,
reads the round in progress from its context (`Grader.round_in_progress`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from rubric_integrations.judges.protocol import Retries
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.aggregate import OverallAnswer
from rubric_integrations.scoring.judgment import FailureKind, JudgeAnswers, JudgeFailure, Outcome
from rubric_integrations.scoring.report import EvaluationReport, failure_kinds

if TYPE_CHECKING:
    from rubric_integrations.graders.exploring import GradeExploration

MAX_ROUNDS = 3
"""The number of rounds of a grade. With two retries, this makes five attempts at each judgment: three in the first
round and one in each further round. If 13 % of the replies are unreadable, 1 of 27,000 judgments is lost after five
attempts.
"""

_LOST: tuple[FailureKind, ...] = ("transport", "parse")
"""The kinds of failures after which a later round requests the judgment again."""

Criteria: TypeAlias = Mapping[int, Criterion]
"""Criteria and conditions of a rubric, by their index in `JudgeAnswers.outcomes`."""

Answers: TypeAlias = Sequence[JudgeAnswers] | Sequence[OverallAnswer]
"""The answers of a panel: each judge's answers to the criteria, or each judge's overall score."""


@dataclass(eq=False, slots=True)
class Round:
    """One round of a grade.

    Attributes:
        limiter: The limiter of the grader. It distinguishes the round from that of a grade inside of this one.
        retries: How often a request of this round is repeated.
        left: The number of rounds that may follow.
        earlier: The answers at the end of the round before. Empty in the first round.
        exploration: The exploration of the grade's trajectory. None before it begins, and without an explorer.
        is_continued: Whether the answers of this round include the answers of the earlier rounds. They do not if a
            user's `judge` requests everything again.
    """

    limiter: object
    retries: Retries
    left: int
    earlier: Answers = ()
    exploration: GradeExploration | None = None
    is_continued: bool = False

    def may_repeat(self, failure: JudgeFailure) -> bool:
        """Return whether a judgment with this failure is requested again in a later round."""
        return self.left > 0 and failure.kind in _LOST and failure.repeats is None

    def next(self, answers: Sequence[Any], report: EvaluationReport, outage: float) -> Round | None:
        """Return the round that makes one attempt at each judgment that is missing, or None if the grade ends.

        Args:
            answers: The answers of this round.
            report: The most complete report so far.
            outage: The seconds for which a request is repeated while no reply arrives.
        """
        if not report.failed_count or not self.left:
            return None
        failures, kinds = judge_failures(answers), failure_kinds(report)
        # A content filter or a refusal is about the text, which does not change.
        is_final = bool(failures) and all(failure.repeats is not None for failure in failures)
        if is_final or not kinds or not kinds <= set(_LOST):
            return None
        # After an outage of `max_outage` seconds, a later round does not wait once more.
        retries = Retries(0, 0.0 if "transport" in kinds else outage)
        return replace(self, retries=retries, left=self.left - 1, earlier=answers, is_continued=False)

    def best_of(self, earlier: EvaluationReport, later: EvaluationReport) -> EvaluationReport:
        """Return the more complete one of the report so far and the report of this round, with the spend of both."""
        if self.is_continued:
            return later
        best = min(later, earlier, key=lambda report: report.failed_count)
        return best.model_copy(update={"spend": earlier.spend + later.spend})


current_round: ContextVar[Round | None] = ContextVar("current_round", default=None)
"""The round of the grade in progress, or None outside of a grade."""


def without_lost(answers: JudgeAnswers) -> JudgeAnswers:
    """Return the answers of a judge without those that a later round requests again."""
    return answers._replace(outcomes={index: o for index, o in answers.outcomes.items() if not _is_lost(o)})


def judge_failures(answers: Sequence[Any]) -> list[JudgeFailure]:
    """Return the failures among the answers of a panel, except cancelled requests."""
    outcomes: list[object] = []
    for judge_answer in answers:
        if isinstance(judge_answer, JudgeAnswers):
            outcomes += judge_answer.outcomes.values()
        else:
            outcomes.append(getattr(judge_answer, "failure", None))
    return [outcome for outcome in outcomes if isinstance(outcome, JudgeFailure) and outcome.kind != "cancelled"]


def _is_lost(outcome: Outcome) -> bool:
    if not isinstance(outcome, JudgeFailure) or outcome.repeats is not None:
        return False
    return outcome.kind in (*_LOST, "cancelled")
