"""Grades one completion after another, for trainers that call a reward function with single samples."""

from __future__ import annotations

import math
import threading
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rubric_integrations.formats.rubric_like import RubricLike, as_rubric
from rubric_integrations.results.report import EvaluationReport, JudgeError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.least_score import least_score
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.thinking import SplitResponse, split_completion

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike

DEFAULT_CONCURRENCY = 64


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
        normalize: Whether rewards are in [0, 1]; if not, they are raw weighted sums. For `judge` only.
        empty: The reward of a completion without an answer. By default (`"least"`) the lowest reward that the rubric
            allows: 0, or with raw scores the sum of the negative weights.
        ledger: The path of a file, for all processes of one machine, or the URL of a PostgreSQL database, where
            judgments are stored and not requested a second time.
        max_concurrency: The largest number of concurrent calls of each process, at least 1. For `judge` only.

    Raises:
        RubricError: The rubric or its file is invalid.
        TypeError: `ledger` is an open ledger.
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
        normalize: bool = True,
        empty: float | Literal["least"] = "least",
        ledger: str | PathLike[str] | None = None,
        max_concurrency: int = DEFAULT_CONCURRENCY,
    ):
        if (judge is None) == (grader is None):
            passed = "neither" if judge is None else "both"
            raise ValueError(f"pass either `judge`, such as 'openai/gpt-5-mini', or `grader`, got {passed}")
        if grader and (not normalize or max_concurrency != DEFAULT_CONCURRENCY):
            raise ValueError(
                "`normalize` and `max_concurrency` are settings of the `grader` that was passed: set them there; "
                "here they would have no effect"
            )
        check_empty(empty)
        if max_concurrency < 1:
            raise ValueError(f"`max_concurrency` must be at least 1, got {max_concurrency!r}")
        if grader:
            from rubric_integrations.graders.made_up_scores import refuse_made_up_scores

            refuse_made_up_scores(grader)
        self.rubric: Rubric = as_rubric(rubric)
        self._judge, self._configured, self._normalize = judge, grader, normalize
        self._ledger, self._max_concurrency = _ledger_address(ledger), max_concurrency
        least = grader.least_score(self.rubric) if grader else least_score(self.rubric, normalize=normalize)
        self.empty = least if empty == "least" else float(empty)
        self._forget_grader()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_grader")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget_grader()

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
        from rubric_integrations.graders.rounds import grade_in_rounds
        from rubric_integrations.submission.inputs import as_submission

        parts = split_completion(completion) if isinstance(completion, str) else completion
        if not parts.output.strip():
            return Reward(self.empty, None)
        fields = {"thinking": parts.thinking, "output": parts.output}
        submission: Submission = as_submission(fields, query or None, reference or None)
        submission = submission.model_copy(update={"hide_thinking": True})
        report = await grade_in_rounds(self._shared_grader(), self.rubric, submission)
        if report.score is None:
            raise JudgeError(
                f"the score is undefined, because the judge abstained on {report.cannot_assess_count} criteria", report
            )
        return Reward(report.score, report)

    def _shared_grader(self) -> Grader:
        # Threads must share one grader, because the grader holds the concurrency limit.
        with self._lock:
            if self._grader is None:
                self._grader = self._make_grader()
            return self._grader

    def _make_grader(self) -> Grader:
        from rubric_integrations.graders import PerCriterionGrader
        from rubric_integrations.graders.settings import CallLimits

        limits = CallLimits(max_concurrency=self._max_concurrency)
        grader = self._configured or PerCriterionGrader(self._judge, normalize=self._normalize, limits=limits)
        grader.check_rubric(self.rubric)
        if self._ledger is None:
            return grader
        from rubric_integrations.runs.ledger import open_ledger
        from rubric_integrations.runs.stores import RunStore

        return RunStore(open_ledger(self._ledger)).attach(grader)

    def _forget_grader(self) -> None:
        self._lock, self._grader = threading.Lock(), None


def check_empty(empty: object) -> None:
    """Check the reward of an empty completion.

    Raises:
        ValueError: It is neither `"least"` nor a finite number.
    """
    is_number = isinstance(empty, int | float) and not isinstance(empty, bool) and math.isfinite(empty)
    if empty != "least" and not is_number:
        raise ValueError(f"`empty` must be a finite number or 'least', got {empty!r}: trainers compute with it")


def _ledger_address(ledger: object) -> str | None:
    if ledger is None:
        return None
    if not isinstance(ledger, str | PathLike):
        kind = type(ledger).__name__
        raise TypeError(
            f"`ledger` must be an address, got an open {kind}: pass its path or URL, which each process opens for "
            "itself; a connection cannot be sent to another process"
        )
    from rubric_integrations.runs.ledger.addresses import scheme_of

    text = str(ledger)
    # The processes of a trainer may have other working directories.
    return text if scheme_of(text) else str(Path(text).absolute())
