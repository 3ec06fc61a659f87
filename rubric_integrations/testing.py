"""A judge with scripted answers, for your tests.

Pass a `ScriptedJudge` wherever a judge is accepted: as `judge=` of a grader, a metric, an evaluator or a middleware.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import TypeAlias
from uuid import uuid4

from rubric_integrations.judges.protocol import BatchResult, OverallResult, Question
from rubric_integrations.rubric import Criterion, Rubric, Scale
from rubric_integrations.rubric.criterion import CONDITION_PREFIX
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Judgment, Spend, to_judgment
from rubric_integrations.submission.submission import Submission

__all__ = ["ScriptedAnswer", "ScriptedJudge"]

ScriptedAnswer: TypeAlias = str | float | tuple[str | float, str] | Judgment | Exception
"""An answer of a `ScriptedJudge`: a verdict, an option's label or a number on a scale, each alone or in a tuple with a
reason. Also a complete `Judgment`, or an exception, which is raised."""

_ONE_CALL = Spend(calls=1)
_OVERALL = Criterion(name="overall", requirement="overall", weight=1, scale=Scale(min=0, max=100))


class ScriptedJudge:
    """A judge with scripted answers, for tests. It calls no model, costs nothing and records the questions.

    It answers all kinds of requests: single criteria, several criteria in one request (`PerCriterionOneShotGrader`),
    and an overall score from 0 to 100 (`RubricAsJudgeGrader`). The key of the overall score in `answers` is
    `"overall"`. The judge works with a ledger and in worker processes. A copy in another process records its own
    questions.

    Args:
        answers: One answer for every question, a mapping of answers, or a function of the `Question`, which may be
            async. The keys of a mapping are names or requirements of criteria, or texts of conditions
            (`applies_when`).
        default: The answer to criteria that the mapping does not contain. Without a default, such a criterion fails.

    Attributes:
        questions: The questions so far, in the order of their arrival.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict(
        ...     [
        ...         {"name": "margin", "weight": 3, "requirement": "States the margin"},
        ...         {"name": "source", "weight": 1, "requirement": "Names the source"},
        ...     ]
        ... )
        >>> judge = ScriptedJudge({"margin": "MET", "source": ("UNMET", "It names none.")})
        >>> report = rubric.grade_sync("It was 8.4%.", PerCriterionGrader(judge))
        >>> report.score, report.criteria[1].reason
        (0.75, 'It names none.')
        >>> judge.questions[0].submission.response
        'It was 8.4%.'

        For an abstention, script the verdict `"CANNOT_ASSESS"`. For a failure, script an exception:

        >>> from rubric_integrations.scoring import JudgeFailure
        >>> judge = ScriptedJudge({"margin": "CANNOT_ASSESS", "source": JudgeFailure("transport", "no reply")})
        >>> grader = PerCriterionGrader(judge, on_failure="abstain")
        >>> rubric.grade_sync("It was 8.4%.", grader).criteria[1].error
        'transport: no reply'
    """

    def __init__(
        self,
        answers: ScriptedAnswer
        | Mapping[str, ScriptedAnswer]
        | Callable[[Question], ScriptedAnswer | Awaitable[ScriptedAnswer]] = "MET",
        default: ScriptedAnswer | None = None,
    ):
        if default is not None and not isinstance(answers, Mapping):
            raise ValueError("`default` goes with a mapping of answers, and has no effect without one: leave it out")
        self.answers, self.default = answers, default
        self.questions: list[Question] = []
        # Two functions cannot be compared. With equal fingerprints, a store could return the answers of another one.
        scripted = uuid4().hex if callable(answers) else sha256(repr((answers, default)).encode()).hexdigest()
        self._fingerprint = f"scripted {scripted}"

    def fingerprint(self) -> str:
        """Return a digest of the answers. If they are a function, only copies of this judge have the same digest."""
        return self._fingerprint

    def highest_cost(self, text_bytes: int) -> float:
        """Return the cost of an answer in US dollars, which is always 0."""
        return 0.0

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion with its scripted answer.

        Raises:
            JudgeFailure: The scripted answer is a `JudgeFailure`, is missing, or is not valid for the criterion.
            Exception: The scripted answer is another exception.
        """
        self.questions.append(question)
        return await self._judge(question)

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria in one request, each with its scripted answer."""
        self.questions.extend(questions.values())
        judgments: dict[int, Judgment] = {}
        faults: dict[int, str | JudgeFailure] = {}
        for number, question in questions.items():
            try:
                judgments[number] = (await self._judge(question)).model_copy(update={"spend": NO_SPEND})
            except JudgeFailure as failure:
                faults[number] = failure.message
        return BatchResult(judgments, faults, _ONE_CALL)

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Return the scripted answer to `"overall"` as the overall score, from 0 to 100.

        Raises:
            JudgeFailure: The scripted answer is a `JudgeFailure`, is missing, or is not a number from 0 to 100.
        """
        judgment = await self.judge(Question(submission, _OVERALL, rubric.instructions))
        if judgment.value is None:
            raise JudgeFailure("config", f"{judgment.verdict!r} is not a score: script a number from 0 to 100")
        return OverallResult(
            100 * judgment.value, judgment.reason, judgment.spend, neutralized=False, model=judgment.model
        )

    async def _judge(self, question: Question) -> Judgment:
        """Convert the scripted answer to a question to a judgment."""
        criterion = question.criterion
        answer = self._answer(question)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise copy.copy(answer)  # if the same exception were raised again, its traceback would grow each time
        if isinstance(answer, Judgment):
            return answer
        verdict, reason = answer if isinstance(answer, tuple) else (answer, "as scripted")
        try:
            judgment = to_judgment(criterion, verdict, question.may_abstain)
        except ValueError as error:
            raise JudgeFailure("config", f"the scripted answer to {_label(criterion)!r} is invalid: {error}") from None
        return judgment.model_copy(update={"reason": reason, "spend": _ONE_CALL})

    def _answer(self, question: Question) -> ScriptedAnswer | Awaitable[ScriptedAnswer]:
        answers, criterion = self.answers, question.criterion
        if not isinstance(answers, Mapping):
            return answers(question) if callable(answers) else answers
        for key in (criterion.name, criterion.requirement, criterion.requirement.removeprefix(CONDITION_PREFIX)):
            if key is not None and key in answers:
                return answers[key]
        if self.default is None:
            return JudgeFailure("config", f"no answer is scripted for {_label(criterion)!r}: add it, or `default=`")
        return self.default


def _label(criterion: Criterion) -> str:
    return criterion.name or criterion.requirement.removeprefix(CONDITION_PREFIX)
