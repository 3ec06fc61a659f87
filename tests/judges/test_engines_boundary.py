"""What is sent on each route to a model is counted in the reports, with the boundary of the installed DSPy and 3.5's.

The boundary of 3.5 is an imitation (`tests/dspy35.py`).
"""

from __future__ import annotations

import base64
import json
import pickle
import warnings
from collections.abc import Callable, Generator
from contextlib import nullcontext
from typing import Any, cast

import dspy
import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge, ModelSettings, Question
from rubric_integrations.judges.models.names import file_problem
from rubric_integrations.judges.prompts.render import ShownFile
from rubric_integrations.judges.prompts.signatures import Attachments
from rubric_integrations.trust.alignment.calls import AlignmentCalls, CountedModel
from tests.dspy35 import dspy35_boundary
from tests.fakes import FakeStore
from tests.judges.questions import CRITERIA, Listener
from tests.openai_server import OpenAIServer, Reply
from tests.wire_corpus import probabilities, script

RUBRIC = Rubric(CRITERIA)


@pytest.fixture(params=["installed", "3.5"])
def boundary(request: pytest.FixtureRequest) -> Generator[str]:
    with dspy35_boundary() if request.param == "3.5" else nullcontext():
        yield request.param


def chat_model(server: OpenAIServer) -> ChatOpenAI:
    return ChatOpenAI(model="mock", base_url=server.url, api_key=SecretStr("k"), max_retries=0)


def function_judge(server: OpenAIServer) -> LMJudge:
    async def generate(system: str, user: str) -> str:
        model = chat_model(server)
        return str((await model.ainvoke([("system", system), ("user", user)])).content)

    return LMJudge(generate)


def lm_of(server: OpenAIServer, model: str = "openai/mock", **settings: Any) -> dspy.LM:
    return dspy.LM(model, api_base=server.url, api_key="k", cache=False, num_retries=0, **settings)


ROUTES: dict[str, Callable[[OpenAIServer], LMJudge]] = {
    "name": lambda server: LMJudge("openai/mock", api_base=server.url, api_key="k"),
    "vLLM": lambda server: LMJudge("hosted_vllm/mock", api_base=server.url),
    "dspy.LM": lambda server: LMJudge(lm_of(server)),
    "listener": lambda server: LMJudge(lm_of(server, callbacks=[Listener()])),
    "DSPy's cache": lambda server: LMJudge(lm_of(server).copy(cache=True), framework_cache=True),
    "probabilities": lambda server: LMJudge("openai/mock", api_base=server.url, api_key="k", confidence=True),
    "LangChain": lambda server: LMJudge(chat_model(server)),
    "function": function_judge,
    "headers": lambda server: LMJudge(
        "openai/mock", api_base=server.url, api_key="k", settings=ModelSettings(headers={"x-team": "a"})
    ),
    "Anthropic": lambda server: LMJudge("anthropic/claude-sonnet-4-5", api_base=server.url, api_key="k"),
}
LONG = "The margin was 17.2%. It fell. " * 200


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("boundary")
@pytest.mark.parametrize("route", ROUTES)
def test_every_request_is_counted_and_none_has_a_placeholder(server: OpenAIServer, route: str) -> None:
    server.script = probabilities if route == "probabilities" else script
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        judge = ROUTES[route](server)
        run = grade_many([f"{LONG} {number}" for number in range(3)], RUBRIC, PerCriterionGrader(judge))
        reports = [graded.report for graded in run]
        graders = (PerCriterionOneShotGrader(judge), RubricAsJudgeGrader(judge))
        reports += [RUBRIC.grade_sync(LONG, grader=grader) for grader in graders]
    assert [report and report.failed_count for report in reports] == [0] * 5
    sent = [call for call in server.calls if call.path.endswith(("/completions", "/messages"))]
    assert len(sent) == sum(report.spend.calls for report in reports if report) == 3 * len(CRITERIA) + 2
    assert not any("slot" in call.raw.decode() for call in sent)
    assert len([entry for entry in caught if "eight times" in str(entry.message)]) <= 1


@pytest.mark.parametrize("route", ["name", "vLLM", "listener", "probabilities", "Anthropic"])
def test_bodies_are_the_same_with_both_boundaries(server: OpenAIServer, route: str) -> None:
    server.script = probabilities if route == "probabilities" else script
    bodies: list[list[bytes]] = []
    for boundary in (nullcontext(), dspy35_boundary()):
        server.calls.clear()
        with boundary:
            list(grade_many([LONG], RUBRIC, PerCriterionGrader(ROUTES[route](server)), max_concurrency=1))
        bodies.append([call.raw for call in server.calls])
    assert bodies[0] == bodies[1]
    assert len(bodies[0]) == len(CRITERIA)


def test_attachments_are_blocks_or_parts_by_the_boundary(boundary: str) -> None:
    image = ShownFile("image", "[attachment 1]", "image/gif", base64.b64encode(b"GIF89a").decode())
    kinds = [type(item).__name__ for item in Attachments(files=(image,)).format()]
    assert kinds == (["dict", "dict"] if boundary == "installed" else ["TextPart", "ImagePart"])


@pytest.mark.usefixtures("boundary")
def test_judge_module_without_a_model_gets_the_remedy(server: OpenAIServer) -> None:
    class Module(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.answer = dspy.Predict("submission, criterion -> verdict")

        async def judge(self, question: Question) -> str:
            reply = await self.answer.acall(submission=question.submission.response, criterion="c")
            return str(reply.verdict)

    student = lm_of(server)
    with dspy.context(lm=student), pytest.raises(JudgeError, match="without a model of its own"):
        RUBRIC.grade_sync("It is 42.", grader=PerCriterionGrader(cast("Any", Module()), max_retries=0))
    assert server.calls == []


@pytest.mark.usefixtures("boundary")
def test_model_of_an_alignment_counts_its_requests_and_stores_replies_by_rollout(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text="[[ ## a ## ]]\nyes\n\n[[ ## completed ## ]]")
    calls = AlignmentCalls(ROUTES["name"](server), FakeStore(), max_calls=None, max_cost=None, max_concurrency=2)
    model = CountedModel(lm_of(server), calls)
    predict = dspy.Predict("q -> a")
    for rollout in (1, 2, 1):
        copied = model.copy(rollout_id=rollout, temperature=1.0)
        assert predict(q="Why?", lm=copied).a == "yes"
    assert len(server.calls) == calls.spend.calls == 2
    assert [json.loads(call.raw)["temperature"] for call in server.calls] == [1.0, 1.0]


@pytest.mark.parametrize("route", ["name", "listener", "LangChain", "Anthropic"])
def test_adapter_of_the_program_does_not_change_what_a_judge_sends(server: OpenAIServer, route: str) -> None:
    server.script = script
    bodies: list[list[bytes]] = []
    for adapter in (None, dspy.XMLAdapter()):
        server.calls.clear()
        with dspy.context(adapter=adapter):
            list(grade_many([LONG], RUBRIC, PerCriterionGrader(ROUTES[route](server)), max_concurrency=1))
        bodies.append([call.raw for call in server.calls])
    assert bodies[0] == bodies[1] != []


VARIABLES = {"openai/mock": "OPENAI_BASE_URL", "hosted_vllm/mock": "HOSTED_VLLM_API_BASE", "groq/mock": "GROQ_API_BASE"}


@pytest.mark.parametrize("model", VARIABLES)
def test_server_of_the_environment_gets_the_same_requests_as_that_of_an_argument(
    server: OpenAIServer, sent: list[bytes], monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    server.script = script
    requests: list[Any] = []
    for name in (None, VARIABLES[model]):
        server.calls.clear()
        if name:
            monkeypatch.setenv(name, server.url)
        judge = LMJudge(model, api_base=None if name else server.url)
        list(grade_many([LONG], RUBRIC, PerCriterionGrader(judge), max_concurrency=1))
        requests.append([(call.path, call.headers.get("authorization"), call.raw) for call in server.calls])
    assert requests[0] == requests[1]
    assert len(sent) == 2 * len(CRITERIA)


OWN_ENGINE = {"name": "openai/gpt-4o-mini", "vLLM": "hosted_vllm/mock", "Anthropic": "anthropic/claude-sonnet-4-5"}


@pytest.mark.usefixtures("boundary")
@pytest.mark.parametrize("route", OWN_ENGINE)
def test_model_whose_requests_this_library_sends_keeps_what_depends_on_its_engine(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    server.script = script
    model, files = OWN_ENGINE[route], [ShownFile("image", "a", "image/png", "https://example.com/a.png", is_url=True)]
    judge = LMJudge(model, api_base=server.url, api_key="k")
    before = judge.fingerprint()
    list(grade_many([LONG], RUBRIC, PerCriterionGrader(judge)))
    assert judge.fingerprint() == before is not None
    # The client of LiteLLM could download the file.
    assert (file_problem(judge.lm, files) is None) == (route != "vLLM")
    assert (judge.highest_cost(1000, 100) is None) == (route == "vLLM")
    formats = [call.body.get("response_format") or call.body.get("output_config") for call in server.calls]
    assert all("json_schema" in json.dumps(form) for form in formats)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    with pytest.raises(ValueError, match="that key is not sent"):
        LMJudge(dspy.LM("openai/mock", api_base="https://example.com/v1"))


def test_programs_with_the_model_of_a_judge_are_copied_pickled_and_saved(server: OpenAIServer) -> None:
    server.script = script
    judge = ROUTES["name"](server)
    list(grade_many([LONG], RUBRIC, PerCriterionGrader(judge)))
    server.script = lambda _call: Reply(text="[[ ## a ## ]]\nyes\n\n[[ ## completed ## ]]")
    program = dspy.Predict("q -> a")
    program.set_lm(judge.lm)
    saved: Any = json.loads(json.dumps(program.dump_state()))
    loaded = dspy.Predict("q -> a")
    loaded.load_state(saved)
    assert "api_key" not in saved["lm"]
    loaded.set_lm(pickle.loads(pickle.dumps(judge.lm)))
    for copied in (program.deepcopy(), loaded):
        assert copied(q="Why?").a == "yes"
