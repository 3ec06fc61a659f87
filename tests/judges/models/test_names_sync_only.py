"""LMs of a user's own that have no asynchronous call: they run in threads, several at a time."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge, as_judge
from rubric_integrations.judges.models.names import is_sync_only
from rubric_integrations.scoring import TokenUsage
from tests.dspy35 import dspy35_boundary
from tests.judges.questions import BINARY, MET_REPLY, question_about
from tests.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

RUBRIC = Rubric([Criterion(requirement=f"r{number}") for number in range(8)])
Step = Callable[[], object]


def nothing() -> None:
    return None


def response(text: str = MET_REPLY) -> Any:
    """The response of a legacy LM, in OpenAI's form."""
    choice = SimpleNamespace(message=SimpleNamespace(content=text, role="assistant"), finish_reason="stop")
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return SimpleNamespace(choices=[choice], usage=usage, model="mine")


class ForwardLM(dspy.BaseLM):
    """An LM with `forward` and nothing else, which runs a step of the test first."""

    def __init__(self, step: Step = nothing, **settings: Any):
        super().__init__("mine", **settings)
        self.step = step

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        self.step()
        return response()


class CallLM(dspy.BaseLM):
    """An LM that replaces the whole synchronous call, as LMs were written for early versions of DSPy."""

    def __init__(self, step: Step = nothing):
        super().__init__("mine")
        self.step = step

    def __call__(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        self.step()
        return [MET_REPLY]


class BothLM(ForwardLM):
    async def aforward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        return response()


class ForwardOfDSPy(dspy.LM):
    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        return response()


@pytest.mark.parametrize("lm", [ForwardLM(), CallLM(), ForwardOfDSPy("openai/mock", api_key="k", cache=False)])
async def test_lm_without_an_asynchronous_call_judges_and_leaves_no_trace(lm: dspy.BaseLM) -> None:
    threads: list[threading.Thread] = []
    if not isinstance(lm, dspy.LM):
        lm.step = lambda: threads.append(threading.current_thread())  # pyright: ignore[reportAttributeAccessIssue]
    with dspy.context(trace=[]):
        judgment = await LMJudge(lm).judge(question_about(BINARY))
        assert dspy.settings.trace == []
    assert (judgment.verdict, judgment.spend.calls, lm.history) == ("MET", 1, [])
    assert threading.current_thread() not in threads
    usage = None if isinstance(lm, CallLM) else TokenUsage(prompt_tokens=5, completion_tokens=2)
    assert judgment.spend.usage == usage


@pytest.mark.parametrize("lm", [ForwardLM(), CallLM(), ForwardOfDSPy("openai/mock", api_key="k", cache=False)])
def test_lm_without_an_asynchronous_call_is_refused_where_dspy_does_not_call_it(lm: dspy.BaseLM) -> None:
    with dspy35_boundary(), pytest.raises(ValueError, match=rf"`model` is of the class {type(lm).__name__}") as error:
        as_judge(lm)
    assert "make an engine of it, as in dspy.LM('name', engine=..., async_engine=...)" in str(error.value)
    assert "\n" not in str(error.value)


def test_only_an_lm_whose_synchronous_call_is_the_newer_one_runs_in_a_thread() -> None:
    assert [is_sync_only(lm) for lm in (ForwardLM(), CallLM(), ForwardOfDSPy("openai/mock"))] == [True] * 3
    dummy: Any = dspy.utils.DummyLM([{"a": "b"}])
    assert [is_sync_only(lm) for lm in (BothLM(), dspy.LM("openai/mock"), dummy)] == [False] * 3


@pytest.mark.parametrize("kind", [ForwardLM, CallLM])
@pytest.mark.parametrize("run", [run_sync, asyncio.run])
def test_calls_in_threads_are_concurrent(kind: type[Any], run: Callable[[Any], Any]) -> None:
    # Each call waits until all eight are under way, which are more than asyncio's default threads on a small machine.
    barrier = threading.Barrier(8)
    grader = PerCriterionGrader(LMJudge(kind(lambda: barrier.wait(10))))
    assert run(RUBRIC.grade("text", grader=grader)).score == 1.0


@pytest.mark.parametrize("kind", [ForwardLM, CallLM])
def test_call_that_hangs_in_its_thread_ends_with_the_timeout(kind: type[Any]) -> None:
    release = threading.Event()
    limits = CallLimits(timeout=0.2, max_outage=0)
    grader = PerCriterionGrader(LMJudge(kind(lambda: release.wait(30))), limits=limits, max_retries=0)
    try:
        with pytest.raises(JudgeError, match=r"transport: no reply within 0\.2 s"):
            Rubric([BINARY]).grade_sync("text", grader=grader)
    finally:
        release.set()


class RateError(Exception):
    status_code = 429


@pytest.mark.parametrize("kind", [ForwardLM, CallLM])
def test_temporary_error_of_a_users_lm_is_retried_and_any_other_is_not(kind: type[Any]) -> None:
    errors: list[Exception] = [RateError("slow down"), ConnectionError("reset")]

    def fail() -> None:
        if errors:
            raise errors.pop()

    grader = PerCriterionGrader(LMJudge(kind(fail)))
    report = Rubric([BINARY]).grade_sync("text", grader=grader)
    assert (report.score, report.spend.calls) == (1.0, 3)
    errors.append(KeyError("bug"))
    with pytest.raises(JudgeError, match="config: KeyError: 'bug'"):
        Rubric([BINARY]).grade_sync("text", grader=grader)
    assert errors == []


def test_end_of_the_program_in_a_thread_ends_the_grade() -> None:
    with pytest.raises(SystemExit):
        Rubric([BINARY]).grade_sync("text", grader=PerCriterionGrader(LMJudge(ForwardLM(lambda: sys.exit(3)))))


async def test_asynchronous_call_of_the_judge_as_a_program_uses_the_thread() -> None:
    prediction = await LMJudge(ForwardLM()).acall(response="The Nile.", criterion="Names the river")
    assert prediction.verdict == "MET"


async def test_own_synchronous_call_of_a_dspy_lm_is_used(server: OpenAIServer) -> None:
    class Counting(dspy.LM):
        calls = 0

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            Counting.calls += 1
            return super().__call__(*args, **kwargs)

    server.script = lambda _call: Reply("UNMET")
    lm = Counting("openai/mock", api_base=server.url, api_key="k", cache=False, num_retries=0)
    assert (await LMJudge(lm).judge(question_about(BINARY))).verdict == "UNMET"
    assert (Counting.calls, len(server.calls)) == (1, 1)
