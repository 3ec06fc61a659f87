"""Scripted judges, models and stores, for tests that need no server.

Use `OpenAIServer` (`tests/openai_server.py`) where the request itself matters, and these fakes everywhere else.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

from rubric_integrations.judges import BatchResult, ExplorerLimits, OverallResult, Question
from rubric_integrations.judges.exploration import ExplorationRequest, ExplorerReply
from rubric_integrations.judges.store import Lease
from rubric_integrations.rubric import Rubric
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend, to_judgment
from rubric_integrations.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.judges import LMJudge

ONE_CALL = Spend(calls=1)

Answer = object
"""A verdict, an exception that is raised, or an object that is returned unchanged, such as a `Judgment`."""

Answers = str | Exception | Mapping[str, Answer] | Callable[[Question], Answer | Awaitable[Answer]]


class FakeJudge:
    """A judge with scripted answers, which records the questions.

    Args:
        answers: One verdict or exception for every question; the answers by requirement, where a list holds the
            answers to the first, the second, ... request, and its last one is repeated; or a function of the question,
            which may be async.
        spend: What each judgment costs.
        fingerprint: What `fingerprint` returns; None for a judge without that method.

    Attributes:
        questions: The questions, in the order in which they arrived.
        in_flight: The number of questions without an answer yet.
        peak: The highest number of them at any time.
    """

    def __init__(self, answers: Answers = "MET", *, spend: Spend = ONE_CALL, fingerprint: str | None = None):
        self.answers, self.spend = answers, spend
        self.questions: list[Question] = []
        self.in_flight = self.peak = 0
        if fingerprint is not None:
            self.fingerprint = lambda: fingerprint

    @property
    def requirements(self) -> list[str]:
        """The requirement of each question."""
        return [question.criterion.requirement for question in self.questions]

    async def judge(self, question: Question) -> Judgment:
        self.questions.append(question)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            answer = self._answer(question)
            if inspect.isawaitable(answer):
                answer = cast("Answer", await answer)
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, str):
            return cast("Judgment", answer)
        return to_judgment(question.criterion, answer).model_copy(update={"spend": self.spend})

    def _answer(self, question: Question) -> Answer:
        if callable(self.answers):
            return self.answers(question)
        if isinstance(self.answers, str | Exception):
            return self.answers
        requirement = question.criterion.requirement
        answer = self.answers[requirement]
        if isinstance(answer, list):
            series = cast("list[Answer]", answer)
            return series[min(self.requirements.count(requirement), len(series)) - 1]
        return answer


class FakeBatchJudge(FakeJudge):
    """A judge of several criteria in one request, which returns scripted results.

    Args:
        results: The result of the first, the second, ... request; the last one is repeated. An exception is raised.
        spend: What each single judgment costs.
        fingerprint: What `fingerprint` returns; None for a judge without that method.

    Attributes:
        requests: The numbers of the questions of each request.
    """

    def __init__(self, *results: object, spend: Spend = ONE_CALL, fingerprint: str | None = None):
        super().__init__(spend=spend, fingerprint=fingerprint)
        self.results = results
        self.requests: list[list[int]] = []

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        self.requests.append(list(questions))
        result = self.results[min(len(self.requests), len(self.results)) - 1]
        if isinstance(result, Exception):
            raise result
        return cast("BatchResult", result)


class FakeIndependentJudge(FakeJudge):
    """A judge of several criteria in one request, whose answers do not depend on each other.

    The arguments are those of `FakeJudge`. An answer "no answer" or a `JudgeFailure` is a fault of one question. An
    exception for every question (`answers`) is raised.

    Attributes:
        requests: The requirements of each request with several questions.
    """

    independent_answers = True

    def __init__(self, answers: Answers = "MET", *, spend: Spend = ONE_CALL, fingerprint: str | None = None):
        super().__init__(answers, spend=spend, fingerprint=fingerprint)
        self.requests: list[list[str]] = []

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        self.requests.append([question.criterion.requirement for question in questions.values()])
        if isinstance(self.answers, Exception):
            raise self.answers
        answers: dict[int, Judgment] = {}
        faults: dict[int, str | JudgeFailure] = {}
        for number, question in questions.items():
            self.questions.append(question)
            answer = self._answer(question)
            if isinstance(answer, JudgeFailure) or answer == "no answer":
                faults[number] = cast("JudgeFailure | str", answer)
            else:
                answers[number] = to_judgment(question.criterion, cast("str", answer))
        return BatchResult(answers, faults, self.spend)


class FakeOverallJudge(FakeJudge):
    """A judge that scores every submission as a whole with the same number.

    Args:
        percent: The score, which need not be valid; an exception is raised, and an object of `result` returned.
        result: What to return in place of an `OverallResult`.
        fingerprint: What `fingerprint` returns; None for a judge without that method.

    Attributes:
        requests: The number of requests.
    """

    def __init__(self, percent: object, *, result: object = None, fingerprint: str | None = None):
        super().__init__(fingerprint=fingerprint)
        self.percent, self.result, self.requests = percent, result, 0

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        self.requests += 1
        if isinstance(self.percent, Exception):
            raise self.percent
        if self.result is not None:
            return cast("OverallResult", self.result)
        return OverallResult(cast("Any", self.percent), "as scripted", ONE_CALL, neutralized=False)


def batch_of(answers: Mapping[int, str], faults: Mapping[int, str] | None = None) -> BatchResult:
    """Make a batch result of verdicts on binary criteria, which are not checked, and of faults."""
    values = {"MET": 1.0, "UNMET": 0.0}
    judgments = {number: Judgment(verdict=answer, value=values.get(answer)) for number, answer in answers.items()}
    return BatchResult(judgments, faults or {}, ONE_CALL)


class FakeModel:
    """An async function `(system_prompt, user_prompt) -> reply` with scripted replies, which records the prompts.

    Args:
        replies: The first, the second, ... reply; the last one is repeated. An exception is raised.

    Attributes:
        prompts: The system prompt and the user prompt of each call.
    """

    def __init__(self, *replies: str | Exception):
        self.replies = replies
        self.prompts: list[tuple[str, str]] = []

    async def __call__(self, system_prompt: str, user_prompt: str) -> str:
        self.prompts.append((system_prompt, user_prompt))
        reply = self.replies[min(len(self.prompts), len(self.replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        return reply


class FakeStore:
    """A judgment store in memory, for one process that never requests a key twice at the same time.

    Attributes:
        rows: The stored judgments by key.
        failures: The failures that were recorded.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Judgment] = {}
        self.failures: list[JudgeFailure] = []

    @property
    def stored(self) -> Mapping[str, Judgment]:
        return self.rows

    def is_held(self) -> bool:
        return True

    async def store(self, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        self.rows = {**judgments, **self.rows}
        return {key: self.rows[key] for key in judgments}

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        self.failures.append(failure)

    @asynccontextmanager
    async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
        yield self

    def replace_all(self, verdict: str) -> None:
        """Replace every stored verdict, as if the file had been changed."""
        self.rows = {key: row.model_copy(update={"verdict": verdict, "value": None}) for key, row in self.rows.items()}


def judge_with(model: Any, **arguments: Any) -> LMJudge:
    """Make an `LMJudge`; settings of the model are passed as its `ModelSettings`."""
    from rubric_integrations.judges import LMJudge, ModelSettings

    names = [field.name for field in fields(ModelSettings) if field.name in arguments]
    return LMJudge(model, settings=ModelSettings(**{name: arguments.pop(name) for name in names}), **arguments)


class FakeExplorer:
    """An explorer with scripted replies, which records the requests.

    Args:
        replies: The calls of the first, the second, ... request of each exploration; the last ones are repeated. A text
            is a whole reply, and an exception is raised. Or a function of the request.
        limits: The limits of one exploration.
        fingerprint: What `fingerprint` returns.

    Attributes:
        requests: The requests, in the order in which they arrived.
    """

    def __init__(
        self,
        *replies: Any,
        limits: ExplorerLimits | None = None,
        fingerprint: str | None = "explorer",
        spend: Spend = ONE_CALL,
    ):
        self.replies, self.limits, self.spend = replies, limits or ExplorerLimits(), spend
        self.requests: list[ExplorationRequest] = []
        self.identity = fingerprint

    def fingerprint(self) -> str | None:
        return self.identity

    async def explore(self, request: ExplorationRequest) -> ExplorerReply:
        self.requests.append(request)
        await asyncio.sleep(0)
        scripted = self.replies[min(len(request.turns), len(self.replies) - 1)]
        reply: Any = scripted(request) if callable(scripted) else scripted
        if isinstance(reply, Exception):
            raise reply
        return ExplorerReply(reply if isinstance(reply, str) else tool_calls(*reply), self.spend)


def tool_calls(*calls: tuple[str, Mapping[str, Any]]) -> str:
    """Return the reply of an explorer with these calls of tools."""
    return json.dumps({"tool_calls": [{"name": name, "args": arguments} for name, arguments in calls]})
