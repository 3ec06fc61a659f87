"""Agent runs whose calls are easily lost or counted as another's, up to the checks that count them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from rubric_integrations import Submission
from rubric_integrations.submission import Trajectory
from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.steps import render_steps
from tests.checks.trajectories import reason, verdict
from tests.submission.dialects.examples import (
    ATIF,
    LOOK,
    OPENAI,
    STEPS,
    TAU2,
    VERCEL,
    VERCEL_MODEL,
    openhands_action,
    openhands_observation,
    swe_message,
    tau2_call,
    tau2_result,
    vercel_part,
)


def submission_of(messages: Any) -> Submission:
    """Return a submission with a trajectory."""
    return Submission.model_validate({"response": "Done.", "trajectory": messages})


def test_calls_of_tau2s_simulated_user_are_not_the_agents() -> None:
    user = [
        {"role": "user", "content": None, "tool_calls": [tau2_call("u1", {}, "user")]},
        tau2_result("u1", "ok", error=True, requestor="user"),
        {"role": "assistant", "content": "Thanks."},
    ]
    submission = submission_of(user)
    assert submission.trajectory is not None
    assert submission.trajectory.steps[0].calls[0].result == "ok"
    assert verdict(submission, tool_used="look") == "UNMET"
    assert verdict(submission, tool_forbidden="look") == "MET"
    assert verdict(submission, tool_calls=[]) == "MET"
    assert verdict(submission, no_errors=True) == "MET"
    both = submission_of([*TAU2, *user])
    assert verdict(both, tool_used={"name": "look", "min": 3, "max": 3}) == "MET"
    assert "step 2 calls `look`" in reason(both, tool_forbidden="look")


def test_call_whose_requestor_is_not_its_role_is_refused() -> None:
    message = {"role": "user", "content": None, "tool_calls": [tau2_call("u1", {})]}
    with pytest.raises(ValueError, match=r"`messages\[0\]` \(user\) has a call whose `requestor` is 'assistant'"):
        Trajectory.from_messages([message])


def test_call_of_a_user_in_other_dialects_is_refused() -> None:
    call = {"id": "c1", "name": "look", "args": {}}
    with pytest.raises(ValueError, match=r"`messages\[0\]` is the user's and calls a tool"):
        Trajectory.from_messages([{"role": "user", "content": "x", "tool_calls": [call]}])
    # Gemini's contents need no role.
    (step,) = Trajectory.from_messages({"contents": [{"parts": [{"functionCall": {"name": "look"}}]}]}).steps
    assert step.role == "assistant"


def test_commands_of_openhands_are_calls() -> None:
    command = {"command": "rm -rf /", "thought": "Clean up.", "blocking": False}
    run = {"id": 1, "source": "agent", "message": "Running command", "action": "run", "args": command}
    observed = openhands_observation(2, 1, "denied", extras={"metadata": {"exit_code": 1}})
    for history in (
        [run, observed],
        [[run, observed]],
        {"instance_id": "i", "test_result": {}, "history": [[run, observed]]},
    ):
        submission = submission_of(history)
        assert submission.trajectory is not None
        (step,) = submission.trajectory.steps
        assert (step.text, step.calls[0].name, step.calls[0].result) == ("Clean up.", "run", "denied")
        assert step.calls[0].is_error
        assert verdict(submission, tool_forbidden="*") == "UNMET"
    # The observation of a command that the trace lacks is not joined to another.
    lost = Trajectory.from_messages([run, openhands_observation(2, 9, "whose?")])
    assert [step.role for step in lost.steps] == ["assistant", "tool"]
    assert lost.calls[0].result is None
    # A call that could not be parsed is no action, and its error has no cause.
    unparsed = {**openhands_observation(3, 0, "no such command", "error"), "cause": None}
    assert verdict(submission_of([run, observed, unparsed]), tool_forbidden="look") == "MET"
    running = Trajectory.from_messages(
        [run, openhands_observation(2, 1, "...", extras={"metadata": {"exit_code": -1}})]
    )
    assert running.calls[0].is_error is None


def test_action_of_openhands_without_the_reply_of_the_model_has_its_own_arguments() -> None:
    action = openhands_action(1, "c1", {"year": 2024}, "reply")
    action["tool_call_metadata"]["model_response"] = None
    (call,) = Trajectory.from_messages([action]).calls
    assert (call.name, call.arguments) == ("look", {"name": "look", "arguments": {"year": 2024}})


@pytest.mark.parametrize(
    "step",
    [
        {"source": "agent", "message": "", "action": "run"},
        {"source": "agent", "message": "", "actions": [{"command": "rm -rf /"}]},
        {"source": "agent", "message": "", "tool_call_metadata": {"function_name": "rm"}},
    ],
)
def test_atif_step_with_a_foreign_field_is_refused(step: dict[str, Any]) -> None:
    for steps in ({"steps": [step]}, [{**step, "step_id": 1}]):
        with pytest.raises(ValueError, match=r"`steps\[0\]\.\w+` is not a field of ATIF"):
            Trajectory.from_messages(steps)


def test_atif_step_with_its_optional_fields_is_read() -> None:
    optional = {"model_name": "m", "reasoning_effort": "low", "is_copied_context": True, "llm_call_count": 1}
    step = {"step_id": 1, "source": "agent", "message": "x", "extra": {"action": "run"}, "id": "a", "vendor": None}
    for steps in ({"steps": [{**step, **optional}]}, [{**step, **optional}], {**ATIF, "steps": [step]}):
        assert Trajectory.from_messages(steps).steps[0].text == "x"


@pytest.mark.parametrize(
    "fields",
    [
        {"toolInvocations": [{"toolName": "rm", "args": {}}]},
        {"action": "rm -rf /"},
        {"tool_uses": [{"name": "rm"}]},
        {"observations": {"rm": "done"}},
    ],
)
def test_chat_message_with_calls_in_an_unknown_field_is_refused(fields: dict[str, Any]) -> None:
    (key,) = fields
    with pytest.raises(ValueError, match=rf"`messages\[0\]\.{key}` may have calls or results"):
        Trajectory.from_messages([{"role": "assistant", "content": "Done.", **fields}])


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "m1", "name": "bot", "refusal": None, "annotations": [], "audio": None, "function_call": None},
        {"tool_calls": None, "tools": [{"name": "look"}], "tool_choice": {"type": "auto"}, "tool_call_chunks": []},
        {"model": "m", "timestamp": 1, "metadata": {"action": "x"}, "usage": {"total_tokens": 3}, "reasoning": "hm"},
        {"toolInvocations": [], "action": None, "transaction": {"id": 1}, "interactions": [1], "action_id": "a1"},
    ],
)
def test_chat_message_with_harmless_fields_is_read_as_without_them(fields: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": "Done."}
    steps = Trajectory.from_messages([{**message, **fields}]).steps
    assert [step.text for step in steps] == ["Done."]


def test_chat_message_of_a_user_may_have_any_field() -> None:
    messages = [{"role": "user", "content": "x", "action": "next", "tool_settings": {"a": 1}}]
    assert Trajectory.from_messages(messages).steps[0].text == "x"


def test_error_of_a_result_is_kept_whatever_the_form_of_its_call() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "look"}}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "", "error": {"type": "timeout", "message": "late"}}
    for message in (result, {**result, "function": "look"}, {**result, "content": "late", "error": True}):
        (call_read,) = Trajectory.from_messages([call, message]).calls
        assert call_read.is_error
        assert "late" in str(call_read.result)
    (fine,) = Trajectory.from_messages([call, {**result, "content": "17.2%", "error": None}]).calls
    assert (fine.result, fine.is_error) == ("17.2%", None)


def test_results_with_ids_in_a_list_are_joined_in_any_chat() -> None:
    messages = [{key: value for key, value in swe_message(one).items() if key != "agent"} for one in OPENAI]
    assert dialect_of(messages) == "openai_chat"
    assert [call.result for call in Trajectory.from_messages(messages).calls] == ["17.2%", "no such year: 2032", "8.4%"]
    two = {"role": "tool", "tool_call_ids": ["c1", "c2"], "content": "x"}
    with pytest.raises(ValueError, match=r"`messages\[0\].tool_call_ids` has 2 ids"):
        Trajectory.from_messages([two])


def test_commands_in_swe_agents_text_form_are_calls() -> None:
    history = [
        swe_message({"role": "system", "content": "You are an agent."}),
        swe_message({"role": "user", "content": "Fix it."}),
        swe_message(
            {"role": "assistant", "content": "I clean up.\n```\nrm -rf /\n```"}, action="rm -rf /", thought="t"
        ),
        swe_message({"role": "user", "content": "denied"}),
        swe_message({"role": "assistant", "content": "I give up."}, action="", thought="I give up."),
    ]
    submission = submission_of({"history": history, "trajectory": [], "info": {}})
    assert submission.trajectory is not None
    (call,) = submission.trajectory.calls
    assert (call.name, call.arguments, call.result) == ("bash", {"command": "rm -rf /"}, "denied")
    assert verdict(submission, tool_forbidden="*") == "UNMET"


def test_run_of_pydantic_ai_is_read_from_its_objects_and_its_json() -> None:
    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[TextPart("I look."), ToolCallPart("look", {"year": 2032}, "c1")])
        if len(messages) == 3:
            return ModelResponse(parts=[ToolCallPart("look", '{"year": 2024}', "c2")])
        return ModelResponse(parts=[TextPart("17.2%")])

    agent = Agent(FunctionModel(answer), instructions="Be exact.", retries=2)

    @agent.tool_plain
    def look(year: int) -> str:
        if year > 2026:
            raise ModelRetry("no such year")
        return "17.2%"

    messages = agent.run_sync("What was the margin?").all_messages()
    for form in (messages, ModelMessagesTypeAdapter.dump_python(messages, mode="json")):
        steps = Trajectory.from_messages(form).steps
        assert [step.role for step in steps] == ["system", "user", "assistant", "assistant", "assistant"]
        assert (steps[0].text, steps[2].text, steps[-1].text) == ("Be exact.", "I look.", "17.2%")
        first, second = steps[2].calls[0], steps[3].calls[0]
        assert "no such year" in str(first.result)
        assert (first.is_error, first.arguments) == (True, {"year": 2032})
        assert (second.result, second.is_error, second.arguments) == ("17.2%", False, {"year": 2024})
        assert Submission.from_messages(form).response == "17.2%"


def test_model_messages_of_vercel_are_read_as_its_ui_messages() -> None:
    assert dialect_of(VERCEL_MODEL) == "vercel"
    assert Trajectory.from_messages(VERCEL_MODEL).text() == render_steps(STEPS, numbered=True)
    # The answer is the text of the last step.
    assert Submission.from_messages(VERCEL).response == STEPS[-1].text


def test_part_of_vercel_without_an_output_is_a_call_without_a_result() -> None:
    states: dict[str, Any] = {"input-streaming": {}, "input-available": {}, "output-denied": {}}
    parts = [vercel_part(state, LOOK, state=state) for state in states]
    source = {"type": "source-url", "sourceId": "s", "url": "https://example.com", "title": "R"}
    message = {"role": "assistant", "parts": [*parts, {"type": "reasoning", "text": "hm"}, source]}
    first, second = Trajectory.from_messages([message]).steps
    assert [(call.result, call.is_error) for call in first.calls] == [(None, None), (None, None), ("[denied]", True)]
    assert second.text == '[reasoning]\n[citation {"title": "R", "url": "https://example.com"}]'
    with pytest.raises(ValueError, match=r"parts\[0\]` is a part of the type 'data-chart'"):
        Trajectory.from_messages([{"role": "assistant", "parts": [{"type": "data-chart", "data": {}}]}])
