"""The model that a reply names is kept beside the judgment, whoever sends the request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15

from rubric_integrations import Criterion, Rubric, grade_many
from rubric_integrations.graders import Grader, PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import Cascade, Explained, LMJudge
from rubric_integrations.judges.models.errors import Completion, completion_from_history, completion_of_response
from rubric_integrations.scoring import EvaluationReport
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric([Criterion(name=name, requirement=f"is {name}") for name in ("kind", "short")])
VERSION = "mock-2025-01-01"


def reply_to(call: Call, model: str | None = VERSION) -> Reply:
    """The reply to a request of any grader, which names a model, or none."""
    answer: dict[str, Any] = {"explanation": "e", "verdict": "MET"}
    if "overall_score" in call.prompt:
        answer = {"explanation": "e", "overall_score": 80}
    elif '"judgments"' in call.prompt:
        answer = {"judgments": [{"id": number, "explanation": "e", "answer": "MET"} for number in (1, 2)]}
    message = {"role": "assistant", "content": json.dumps(answer)}
    body: dict[str, Any] = {
        "id": "x", "object": "chat.completion", "created": 0,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
    }  # fmt: skip
    return Reply(raw=json.dumps(body | ({"model": model} if model else {})).encode())


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(reply_to) as server:
        yield server


def judge_at(server: OpenAIServer, **settings: Any) -> LMJudge:
    return LMJudge("openai/mock", api_base=server.url, api_key="k", **settings)


def lm_at(server: OpenAIServer, **settings: Any) -> dspy.LM:
    return dspy.LM("openai/mock", api_base=server.url, api_key="k", **settings)


def langchain_judge(server: OpenAIServer) -> LMJudge:
    openai = pytest.importorskip("langchain_openai")
    return LMJudge(openai.ChatOpenAI(model="mock", base_url=server.url, api_key="k", max_retries=0))


WAYS: dict[str, Callable[[OpenAIServer], Grader]] = {
    "template": lambda server: PerCriterionGrader(judge_at(server)),
    "callbacks": lambda server: PerCriterionGrader(
        LMJudge(lm_at(server, callbacks=[dspy.utils.callback.BaseCallback()]))
    ),
    "litellm": lambda server: PerCriterionGrader(LMJudge(lm_at(server, extra_headers={"X-Team": "a"}))),
    "langchain": lambda server: PerCriterionGrader(langchain_judge(server)),
    "one call": lambda server: PerCriterionOneShotGrader(judge_at(server)),
    "overall": lambda server: RubricAsJudgeGrader(judge_at(server)),
    "explained": lambda server: PerCriterionGrader(Explained(judge_at(server, reason="never"), by=judge_at(server))),
    "cascade": lambda server: PerCriterionGrader(
        Cascade([judge_at(server), judge_at(server, name="b")], escalate_below=0)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_model_that_the_reply_names_is_kept_in_every_way_and_an_unnamed_one_is_none(
    server: OpenAIServer, way: str
) -> None:
    run = grade_many(["text"], RUBRIC, WAYS[way](server))
    (graded,) = run
    assert graded.judge_error is None
    assert run.summary.models == {"": (VERSION,)}
    server.script = lambda call: reply_to(call, None)
    # For such a reply, DSPy's own field has the requested name.
    unnamed = grade_many(["text"], RUBRIC, WAYS[way](server))
    assert [graded.judge_error for graded in unnamed] == [None]
    assert unnamed.summary.models == {}


@pytest.mark.parametrize("way", ["template", "one call", "overall"])
def test_model_of_a_reply_is_read_from_the_ledger_and_from_the_file_of_the_run(
    server: OpenAIServer, way: str, tmp_path: Path
) -> None:
    for _ in range(2):
        run = grade_many(["text"], RUBRIC, WAYS[way](server), ledger=tmp_path / "run.sqlite")
        (graded,) = run
        assert graded.report is not None
        assert run.summary.models == {"": (VERSION,)}
        assert EvaluationReport.model_validate_json(graded.report.model_dump_json()) == graded.report
    assert len(server.calls) in (1, 2)


def test_votes_of_a_panel_name_the_model_of_each_judge(server: OpenAIServer) -> None:
    judges = [judge_at(server, name="first"), judge_at(server, name="second")]
    for grader in (PerCriterionGrader(judges=judges), RubricAsJudgeGrader(judges=judges)):
        (graded,) = grade_many(["text"], RUBRIC, grader)
        assert graded.report is not None
        assert graded.report.reply_models == {"first": (VERSION,), "second": (VERSION,)}


def test_two_judges_of_a_cascade_are_two_judges_and_no_change_of_the_model(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(
        verdict="CANNOT_ASSESS" if call.body["model"] == "mock" else "MET", model=f"{call.body['model']}-1"
    )
    strong = LMJudge("openai/large", api_base=server.url, api_key="k")
    run = grade_many(["text"], RUBRIC, PerCriterionGrader(Cascade(judge_at(server), strong, escalate_below=0)))
    assert [graded.judge_error for graded in run] == [None]
    assert run.summary.models == {"expensive judge": ("large-1",)}


def test_name_of_a_model_in_a_reply_is_redacted_cut_and_no_part_of_the_key(
    server: OpenAIServer, tmp_path: Path
) -> None:
    ledger = tmp_path / "run.sqlite"
    list(grade_many(["text"], RUBRIC, PerCriterionGrader(judge_at(server)), ledger=ledger))
    server.script = lambda call: reply_to(call, "sk-secret-1234 " + "x" * 10_000)
    secret = LMJudge("openai/mock", api_base=server.url, api_key="sk-secret-1234")
    # The key of a judgment has neither the API key nor the model that an earlier reply named.
    run = grade_many(["text"], RUBRIC, PerCriterionGrader(secret), ledger=ledger, max_calls=0)
    assert [graded.judge_error for graded in run] == [None]
    assert run.summary.models == {"": (VERSION,)}
    (graded,) = grade_many(["another text"], RUBRIC, PerCriterionGrader(secret), ledger=ledger)
    assert graded.report is not None
    ((model,),) = graded.report.reply_models.values()
    assert model.startswith("*** xxx")
    assert len(model) <= 200


def response_of(data: dict[str, Any] | None) -> lm15.Response:
    return lm15.Response(
        id=None, model="requested", message=lm15.Message.assistant("{}"), finish_reason="stop", usage=lm15.Usage(),
        provider_data=data,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ({"model": "claude-sonnet-4-5-20250929"}, "claude-sonnet-4-5-20250929"),
        ({"modelVersion": "gemini-2.5-pro-002"}, "gemini-2.5-pro-002"),
        ({"model": ""}, None),
        ({"model": 3}, None),
        ({"model": None, "modelVersion": ["a"]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_model_is_read_from_the_reply_of_every_protocol_and_never_from_the_request(
    data: dict[str, Any] | None, model: str | None
) -> None:
    response = response_of(data)
    completions: list[Completion] = [
        completion_of_response(response), completion_from_history({"response": response}, caches=False)
    ]  # fmt: skip
    assert [completion.model for completion in completions] == [model, model]
