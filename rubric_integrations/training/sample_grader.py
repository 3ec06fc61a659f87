"""Grades one completion after another, for trainers that call a reward function with single samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rubric_integrations._host import HostGrader
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.length import least_score
from rubric_integrations.scoring.report import EvaluationReport, JudgeError
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.thinking import SplitResponse, split_completion

if TYPE_CHECKING:
    from rubric_integrations.graders import CallLimits, Grader
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.runs.ledger import LedgerLike


EmptyReward = float | Literal["least"]
"""The reward of a completion without an answer: a number, or the lowest reward that the rubric allows."""


class Reward(NamedTuple):
    """The reward of one completion.

    Attributes:
        score: The reward: the score of the report, or the `empty` of the grader.
        report: The report; None for an empty completion, which no judge was shown.
    """

    score: float
    report: EvaluationReport | None


class SampleGrader:
    """Grades completions with one grader for each process, which is made at the first completion.

    A pickle holds the settings and not the grader. Each process that a trainer starts therefore has a concurrency limit
    of its own, and reads API keys from its own environment.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary. A file is read now.
        judge: What judges the criteria, such as a model name. Pass either `judge` or `grader`.
        grader: A configured grader, with settings and limits of its own.
        ledger: Where judgments are stored and not requested a second time: the path of a file, for all processes of one
            machine; the URL of a PostgreSQL database; or an open ledger, which each process opens for itself.
        normalize: Whether rewards are in [0, 1]; if not, they are raw weighted sums. For `judge` only.
        limits: The limits on the calls of each process; by default `CallLimits()`. For `judge` only.
        empty: The reward of a completion without an answer. By default (`"least"`) the lowest reward that the rubric
            allows: 0, or with raw scores the sum of the negative weights.
        host: The public name whose arguments these are, for error messages.

    Raises:
        RubricError: The rubric or its file is invalid.
        ValueError: Neither or both of `judge` and `grader` are passed, a setting is out of range or does not go with
            `grader`, or the grader would turn failures into scores, or leave scores open.

    Example:
        >>> from rubric_integrations._util.event_loop import run_sync
        >>> samples = SampleGrader([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}], "offline")
        >>> [run_sync(samples.grade(text)).score for text in ("It is 42.", "It is 41.", "")]
        [1.0, 0.0, 0.0]
    """

    def __init__(
        self,
        rubric: RubricLike,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
        normalize: bool = True,
        limits: CallLimits | None = None,
        empty: EmptyReward = "least",
        host: str = "SampleGrader",
    ):
        self._grader = HostGrader(host, judge, grader, ledger, normalize=normalize, limits=limits, opens_late=True)
        check_empty(empty)
        if grader:
            from rubric_integrations.graders.grader import refuse_made_up_scores

            refuse_made_up_scores(grader)
        self.rubric: Rubric = as_rubric(rubric)
        least = grader.least_score(self.rubric) if grader else least_score(self.rubric, normalize=normalize)
        self.empty = least if empty == "least" else float(empty)
        self._is_checked = False

    async def grade(self, completion: str | SplitResponse, query: Any = None, reference: Any = None) -> Reward:
        """Grade one completion. The thinking before the answer is not shown to the judge.

        A completion that is blank, or is blank after its thinking, or ends within its thinking, is empty.

        Args:
            completion: What the policy has written after the prompt; or a text whose thinking is split from it already,
                such as a transcript, which is graded whole.
            query: The task: a text or a list of messages; None or an empty text if there is none.
            reference: An exemplary answer, in the same forms.

        Raises:
            JudgeError: A criterion could not be judged, or the judge abstained so that the score is undefined.
            ValueError: The completion is too long, or the query or the reference cannot be read.
        """
        from rubric_integrations.submission.inputs import as_submission

        parts = split_completion(completion) if isinstance(completion, str) else completion
        if not parts.output.strip():
            return Reward(self.empty, None)
        fields = {"thinking": parts.thinking, "output": parts.output}
        submission: Submission = as_submission(fields, query or None, reference or None)
        submission = submission.model_copy(update={"hide_thinking": True})
        report = await self._checked_grader().grade(self.rubric, submission)
        if report.score is None:
            raise JudgeError(
                f"the score is undefined, because the judge abstained on {report.cannot_assess_count} criteria", report
            )
        return Reward(report.score, report)

    def _checked_grader(self) -> Grader:
        grader = self._grader()
        if not self._is_checked:
            grader.check_rubric(self.rubric)
            self._is_checked = True
        return grader


def check_empty(empty: object) -> None:
    """Check the reward of an empty completion.

    Raises:
        ValueError: It is neither `"least"` nor a finite number.
    """
    is_number = isinstance(empty, int | float) and not isinstance(empty, bool) and math.isfinite(empty)
    if empty != "least" and not is_number:
        raise ValueError(f"`empty` must be a finite number or 'least', got {empty!r}: trainers compute with it")
