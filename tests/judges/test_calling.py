"""A server that refuses the requested reply format gets a simpler one, and the judge remembers which."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import PerCriterionOneShotGrader
from rubric_integrations.judges import LMJudge
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric([Criterion(requirement=f"r{number}") for number in range(4)])
# A model for which DSPy sends a JSON Schema, and one for which it sends JSON mode.
MODELS = ["openai/gpt-4o-mini", "openai/mock"]


def requested_format(call: Call) -> str:
    return str((call.body.get("response_format") or {"type": "none"})["type"])


def refusing(*formats: str, status: int = 400, message: str = "unknown parameter: response_format") -> Any:
    def script(call: Call) -> Reply:
        if requested_format(call) in formats:
            return Reply(status=status, raw=b'{"error": {"message": "%s"}}' % message.encode())
        return Reply(verdict="MET")

    return script


def judge_for(server: OpenAIServer, model: str, *, through_dspy: bool = False) -> LMJudge:
    callbacks: list[Any] = [BaseCallback()] if through_dspy else []
    return LMJudge(dspy.LM(model, api_base=server.url, api_key="k", cache=False, num_retries=0, callbacks=callbacks))


@pytest.mark.parametrize("through_dspy", [False, True])
@pytest.mark.parametrize("status", [400, 422])
def test_refused_schema_steps_down_to_json_mode_and_is_remembered(
    server: OpenAIServer, status: int, through_dspy: bool
) -> None:
    server.script = refusing("json_schema", status=status)
    judge = judge_for(server, MODELS[0], through_dspy=through_dspy)
    grader = PerCriterionGrader(judge)
    assert RUBRIC.grade_sync("text", grader=grader).score == 1.0
    first = len(server.calls)
    assert RUBRIC.grade_sync("another text", grader=grader).score == 1.0
    later = [requested_format(call) for call in server.calls[first:]]
    assert later == ["json_object"] * 4


@pytest.mark.parametrize("model", MODELS)
def test_refused_json_mode_steps_down_to_no_format(server: OpenAIServer, model: str) -> None:
    server.script = refusing("json_schema", "json_object")
    report = RUBRIC.grade_sync("text", grader=PerCriterionGrader(judge_for(server, model)))
    assert report.score == 1.0
    # Each refused request was a call.
    assert report.spend.calls == len(server.calls)
    server.calls.clear()
    RUBRIC.grade_sync("text", grader=PerCriterionGrader(judge_for(server, model), max_retries=0))
    assert requested_format(server.calls[-1]) == "none"


def test_one_shot_request_steps_down_too(server: OpenAIServer) -> None:
    def script(call: Call) -> Reply:
        if requested_format(call) == "json_schema":
            return Reply(status=400, raw=b'{"error": {"message": "json_schema is not supported"}}')
        entries = ", ".join(f'{{"id": {n}, "explanation": "", "answer": "MET"}}' for n in range(1, 5))
        return Reply(text=f'{{"judgments": [{entries}]}}')

    server.script = script
    grader = PerCriterionOneShotGrader(judge_for(server, MODELS[0]))
    assert RUBRIC.grade_sync("text", grader=grader).score == 1.0
    assert [requested_format(call) for call in server.calls] == ["json_schema", "json_object"]


def test_other_refusal_is_a_failure_and_is_not_sent_again(server: OpenAIServer) -> None:
    server.script = refusing("json_schema", "json_object", "none", message="the prompt is too long")
    with pytest.raises(JudgeError, match="too long"):
        Rubric([Criterion(requirement="r")]).grade_sync("text", grader=PerCriterionGrader(judge_for(server, MODELS[0])))
    assert len(server.calls) == 1


def test_format_that_is_refused_in_every_form_is_a_failure(server: OpenAIServer) -> None:
    server.script = refusing("json_schema", "json_object", "none")
    with pytest.raises(JudgeError, match="response_format"):
        Rubric([Criterion(requirement="r")]).grade_sync("text", grader=PerCriterionGrader(judge_for(server, MODELS[0])))
    assert [requested_format(call) for call in server.calls] == ["json_schema", "json_object", "none"]
