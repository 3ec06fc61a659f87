"""A judge whose model gives scripted replies, and one example question for each kind of prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dspy
from dspy import lm15

from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.prompts import signatures
from rubric_integrations.judges.prompts.render import (
    PromptInputs,
    describe_batch,
    describe_rubric,
    render_inputs,
    render_question,
)
from rubric_integrations.judges.protocol import Question
from rubric_integrations.rubric.criterion import Criterion, Option, Scale
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

POOR_RESPONSE = "I do not know."
_QUERY = "When did people first walk on the moon?"
_YEAR, _PLACE = Criterion(requirement="States the year 1969"), Criterion(requirement="Names the landing site")
_CLEAR = Criterion(
    requirement="How clear is it?", options=(Option(label="not", value=0.0), Option(label="yes", value=1.0))
)
_RATED = Criterion(requirement="How complete is it?", scale=Scale())
_RUBRIC = Rubric([_YEAR, _PLACE])


class ScriptedEngine:
    """A DSPy engine that records the last request and answers it with `reply`.

    It takes no JSON format, so that replies are read as leniently as those of any model.
    """

    supports_response_schema = False
    supported_params: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.reply = "{}"
        self.request: Any = None

    def __deepcopy__(self, memo: object) -> ScriptedEngine:
        # DSPy copies a model before it calls it: the caller must still see the request.
        return self

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Record the request and return the scripted reply."""
        self.request = request
        message = lm15.Message.assistant(self.reply)
        return lm15.Response(
            id=None, model=request.model, message=message, finish_reason="stop", usage=lm15.Usage(input_tokens=1)
        )


class _AsyncEngine:
    supports_response_schema = ScriptedEngine.supports_response_schema
    supported_params = ScriptedEngine.supported_params

    def __init__(self, engine: ScriptedEngine):
        self._engine = engine

    def __deepcopy__(self, memo: object) -> _AsyncEngine:
        return self

    async def complete(self, request: lm15.Request) -> lm15.Response:
        return self._engine.complete(request)


def scripted_judge() -> tuple[ScriptedEngine, LMJudge]:
    """Make a judge, and the engine that records its requests and holds its replies."""
    engine = ScriptedEngine()
    lm = dspy.LM("probe/scripted", engine=engine, async_engine=_AsyncEngine(engine), cache=False)
    return engine, LMJudge(lm)


class PromptCase(NamedTuple):
    """One kind of prompt, with an example question about a submission.

    Attributes:
        name: The kind, such as `"per criterion"`.
        signature: The DSPy signature of the prompt.
        inputs: The rendered inputs of the prompt.
        true_answer: The answer that is true of `POOR_RESPONSE`: the requirement does not hold.
        reply_with: Makes the reply of a judge that gives the true answer, with an explanation put in unescaped.
        read_values: Requests the answer from a judge, and returns the values that the judge reads: 0 for each is true.
    """

    name: str
    signature: Any
    inputs: PromptInputs
    true_answer: str
    reply_with: Callable[[str], str]
    read_values: Callable[[LMJudge], Any]


def prompt_cases(response: str) -> Iterator[PromptCase]:
    """Yield a case for each kind of prompt, all about the same submission."""
    submission = Submission(response=response, query=_QUERY)
    yield _single_case("per criterion", signatures.JudgeCriterion, Question(submission, _YEAR), "verdict", "UNMET")
    yield _single_case("options", signatures.JudgeOption, Question(submission, _CLEAR), "choice", "A")
    yield _single_case("scale", signatures.JudgeScale, Question(submission, _RATED), "score", "0.0")
    yield _batch_case("one shot", submission, quoting_entry=1)
    yield _batch_case("one shot, in the last entry", submission, quoting_entry=2)
    yield _overall_case(submission)


def _single_case(name: str, signature: Any, question: Question, field: str, true_answer: str) -> PromptCase:
    async def read_values(judge: LMJudge) -> list[float | None]:
        return [(await judge.judge(question)).value]

    def reply_with(explanation: str) -> str:
        return f'{{"explanation": "{explanation}", "{field}": "{true_answer}"}}'

    return PromptCase(name, signature, render_question(question), true_answer, reply_with, read_values)


def _batch_case(name: str, submission: Submission, quoting_entry: int) -> PromptCase:
    questions = {1: Question(submission, _YEAR), 2: Question(submission, _PLACE)}
    inputs = render_inputs(submission, "", {"criteria": describe_batch(questions)})

    async def read_values(judge: LMJudge) -> list[float | None]:
        return [answer.value for answer in (await judge.judge_batch(questions)).answers.values()]

    def reply_with(explanation: str) -> str:
        entries = (
            f'{{"id": {n}, "explanation": "{explanation if n == quoting_entry else "No."}", "answer": "UNMET"}}'
            for n in questions
        )
        return f'{{"judgments": [{", ".join(entries)}]}}'

    return PromptCase(name, signatures.JudgeBatch, inputs, "UNMET", reply_with, read_values)


def _overall_case(submission: Submission) -> PromptCase:
    inputs = render_inputs(submission, "", {"criteria": describe_rubric(_RUBRIC)})

    async def read_values(judge: LMJudge) -> list[float]:
        return [(await judge.judge_overall(submission, _RUBRIC)).percent]

    def reply_with(explanation: str) -> str:
        return f'{{"explanation": "{explanation}", "overall_score": 0}}'

    return PromptCase("holistic", signatures.JudgeOverall, inputs, "0.0", reply_with, read_values)
