"""Agent runs whose calls are easily lost or counted as another's, up to the checks that count them."""

from __future__ import annotations

import json
from typing import Any, cast

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
    AUTOGEN,
    FAIL,
    FAILURE,
    GEMINI,
    LOOK,
    OPENAI,
    QUESTION,
    STEPS,
    TAU2,
    VERCEL,
    VERCEL_MODEL,
    atif_call,
    autogen_call,
    autogen_message,
    autogen_result,
    command_result,
    command_step,
    openhands_action,
    openhands_observation,
    sdk_action,
    sdk_event,
    smol_call,
    smol_step,
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


def test_atif_result_without_a_call_id_is_that_of_the_only_call_of_its_step() -> None:
    """Harbor's own agent, Terminus 2, writes its results without `source_call_id`."""
    call = atif_call("c1", {"keystrokes": "ls"})
    step = {"step_id": 1, "source": "agent", "message": "Looking.", "observation": {"results": [{"content": "a.txt"}]}}
    steps = Trajectory.from_messages({"steps": [{**step, "tool_calls": [call]}]}).steps
    assert [(step.role, [c.result for c in step.calls]) for step in steps] == [("assistant", ["a.txt"])]
    several = Trajectory.from_messages({"steps": [{**step, "tool_calls": [call, atif_call("c2", {})]}]}).steps
    assert [(step.role, [c.result for c in step.calls]) for step in several] == [
        ("assistant", [None, None]), ("tool", []),
    ]  # fmt: skip


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
    fields = {"action": "next", "tool_settings": {"a": 1}, "toolInvocations": []}
    assert Trajectory.from_messages([{"role": "user", "content": "x", **fields}]).steps[0].text == "x"


@pytest.mark.parametrize("key", ["toolInvocations", "toolCalls"])
def test_call_of_a_user_in_a_field_of_another_dialect_is_refused(key: str) -> None:
    message = {"role": "user", "content": "x", "tool_settings": {"a": 1}, key: [{"toolName": "rm"}]}
    with pytest.raises(ValueError, match=rf"`messages\[0\]\.{key}` may have calls or results"):
        Trajectory.from_messages([message])


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


def run_version_1(*commands: str, fence: str = "bash") -> list[dict[str, Any]]:
    """Return a run of mini-swe-agent 1 as a bare list: the commands are only in the texts."""
    steps = [(command_step(command, "I try.", fence), command_result("done", number)) for number, command in
             enumerate(commands)]  # fmt: skip
    return [{"role": "system", "content": "Write one bash block."}, {"role": "user", "content": "Clean up."},
            *(message for step in steps for message in step)]  # fmt: skip


@pytest.mark.parametrize("fence", ["bash", "mswea_bash_command"])
def test_commands_in_the_texts_of_mini_swe_agent_are_calls(fence: str) -> None:
    messages = run_version_1("ls", "rm -rf /", fence=fence)
    for form in (messages, {"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": messages}):
        submission = submission_of(form)
        assert submission.trajectory is not None
        first, second = submission.trajectory.calls
        assert (first.name, first.arguments, first.is_error) == ("bash", {"command": "ls"}, False)
        assert (second.arguments, second.is_error) == ({"command": "rm -rf /"}, True)
        assert second.result == "<returncode>1</returncode>\n<output>\ndone\n</output>"
        assert verdict(submission, tool_forbidden="*") == "UNMET"


def test_last_command_of_mini_swe_agent_alone_is_a_call() -> None:
    for command in ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "echo MINI_SWE_AGENT_FINAL_OUTPUT && git diff"):
        (call,) = Trajectory.from_messages([{"role": "user", "content": "x"}, command_step(command)]).calls
        assert call.arguments == {"command": command}


@pytest.mark.parametrize(
    "messages",
    [
        [
            {"role": "user", "content": "How do I list files?"},
            command_step("ls"),
            {"role": "user", "content": "Thanks."},
        ],
        [command_step("ls"), {"role": "user", "content": "What is <returncode>0</returncode>?"}],
        [{"role": "user", "content": "<returncode>0</returncode>"}, {"role": "assistant", "content": "A success."}],
    ],
)
def test_answer_with_a_bash_block_is_no_call(messages: list[Any]) -> None:
    assert dialect_of(messages) == "openai_chat"
    assert Trajectory.from_messages(messages).calls == ()


def test_run_of_mini_swe_agent_whose_commands_are_elsewhere_is_refused() -> None:
    step = {"role": "assistant", "content": "I try.\n<run>rm -rf /</run>"}
    file = {"trajectory_format": "mini-swe-agent-1", "messages": [{"role": "user", "content": "x"}, step]}
    with pytest.raises(ValueError, match=r"`messages\[1\]` has no command in a form that a reader knows"):
        Trajectory.from_messages(file)
    for result in (command_result("x"), {"role": "user", "content": "x", "extra": {"returncode": 0}}):
        with pytest.raises(ValueError, match=r"`messages\[2\]` is the result of a command"):
            Trajectory.from_messages({**file, "messages": [*file["messages"], result]})
    with pytest.raises(ValueError, match=r"`messages\[0\].extra.actions` has an action without a `command`"):
        Trajectory.from_messages([{"role": "assistant", "content": "x", "extra": {"actions": [{"code": "rm"}]}}])


def test_run_of_mini_swe_agent_that_ended_early_has_no_answer() -> None:
    action = {"role": "assistant", "content": "", "extra": {"actions": [{"command": "ls"}], "cost": 0.5}}
    human = {"role": "user", "content": "User command", "extra": {"actions": [{"command": "rm -rf /"}]}}
    result = {"role": "user", "content": "x", "extra": {"returncode": -1}}
    wrong = {"role": "user", "content": "Write one block.", "extra": {"interrupt_type": "FormatError"}}
    end = {"role": "exit", "content": "LimitsExceeded", "extra": {"exit_status": "LimitsExceeded", "submission": ""}}
    steps = Trajectory.from_messages([action, result, wrong, human, result, end]).steps
    assert [step.role for step in steps] == ["assistant", "user", "user", "system"]
    assert (steps[0].cost, steps[0].calls[0].is_error, steps[3].text) == (0.5, True, "[exit: LimitsExceeded]")
    # What a person types is not the agent's.
    assert verdict(submission_of([action, result, human, result]), tool_used={"name": "bash", "max": 1}) == "MET"


def test_responses_as_messages_of_mini_swe_agent_are_read() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "ls"}'}
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    response = {"object": "response", "output": [{"type": "reasoning", "summary": []}, text, call]}
    actions = {"actions": [{"command": "ls", "tool_call_id": "c1"}]}
    result = {"type": "function_call_output", "call_id": "c1", "output": "a.txt", "extra": {"returncode": 2}}
    (step,) = Trajectory.from_messages([{**response, "extra": actions}, result]).steps
    assert (step.text, step.calls[0].arguments) == ("[reasoning]\nI look.", {"command": "ls"})
    assert (step.calls[0].result, step.calls[0].is_error) == ("a.txt", True)


def test_events_of_openhands_without_a_source_are_the_agents() -> None:
    run = {"id": 1, "message": "Running", "action": "run", "args": {"command": "rm -rf /"}}
    observed = {"id": 2, "cause": 1, "observation": "run", "content": "denied", "extras": {}}
    assert verdict(submission_of([run, observed]), tool_forbidden="*") == "UNMET"
    unsigned = {"id": 0, "message": "x", "action": "message", "args": {"content": "x"}}
    with pytest.raises(ValueError, match=r"`history\[0\]` is a message without a `source`"):
        Trajectory.from_messages([unsigned, run, observed])
    assert dialect_of([{"action": "create", "args": {"name": "x"}}]) == "openai_chat"


def test_calls_of_the_openhands_sdk_that_fail_are_calls() -> None:
    invalid = {**sdk_action("c1", LOOK, "r1"), "action": None}
    reason = {"tool_name": "look", "tool_call_id": "c1"}
    for failed in (
        sdk_event("AgentErrorEvent", "agent", error="invalid arguments", **reason),
        sdk_event("UserRejectObservation", "environment", rejection_reason="invalid arguments", **reason),
    ):
        for form in ([invalid, failed], {"instance_id": "i", "history": [invalid, failed]}):
            (call,) = Trajectory.from_messages(form).calls
            assert (call.arguments, call.result, call.is_error) == (LOOK, "invalid arguments", True)
    # Without the call of the model, and without a source, as other writers leave them out.
    bare = {"kind": "ActionEvent", "tool_name": "terminal", "action": {"command": "rm -rf /"}}
    assert verdict(submission_of([bare]), tool_forbidden="*") == "UNMET"
    with pytest.raises(ValueError, match=r"`events\[1\]` is an event of the kind 'TeleportEvent'"):
        Trajectory.from_messages([bare, {"kind": "TeleportEvent", "source": "agent"}])


def test_reports_of_one_call_of_an_acp_server_are_one_call() -> None:
    report = sdk_event("ACPToolCallEvent", "agent", tool_call_id="c1", title="rm -rf /", status="pending")
    done = {
        **report,
        "status": "failed",
        "raw_input": {"command": "rm -rf /"},
        "raw_output": "denied",
        "is_error": True,
    }
    (call,) = Trajectory.from_messages([report, done]).calls
    assert (call.name, call.arguments, call.result) == ("rm -rf /", {"command": "rm -rf /"}, "denied")
    assert call.is_error


def test_messages_of_autogen_are_read_from_its_states() -> None:
    result = {"content": [autogen_result("c1", "17.2%")], "type": "FunctionExecutionResultMessage"}
    context = [
        {"content": "q", "source": "user", "type": "UserMessage"},
        {"content": [autogen_call("c1", LOOK)], "thought": "I look.", "source": "a", "type": "AssistantMessage"},
        result,
        {"content": "17.2%", "source": "a", "type": "AssistantMessage", "thought": None},
    ]
    agent = {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": context}}
    manager = {"type": "RoundRobinManagerState", "message_thread": AUTOGEN, "current_turn": 1}
    team = {"type": "TeamState", "agent_states": {"a": {"agent_state": agent, "message_buffer": []}, "m": manager}}
    steps = Trajectory.from_messages(agent).steps
    assert [(step.role, step.text) for step in steps] == [
        ("user", "q"),
        ("assistant", "I look."),
        ("assistant", "17.2%"),
    ]
    assert (steps[1].calls[0].result, steps[1].calls[0].is_error) == ("17.2%", False)
    for form in (manager, team, {"messages": AUTOGEN, "stop_reason": None}):
        assert Trajectory.from_messages(form).text() == render_steps(STEPS, numbered=True)


def test_summary_of_autogen_is_the_answer_and_makes_no_call_twice() -> None:
    calls, results = [autogen_call("c1", LOOK)], [autogen_result("c1", "17.2%")]
    summary = autogen_message("ToolCallSummaryMessage", "17.2%", tool_calls=calls, results=results)
    made = [autogen_message("ToolCallRequestEvent", calls), autogen_message("ToolCallExecutionEvent", results)]
    for messages in ([*made, summary], [summary]):
        submission = Submission.from_messages(messages)
        assert submission.response == "17.2%"
        assert submission.trajectory is not None
        (call,) = submission.trajectory.calls
        assert (call.arguments, call.result) == (LOOK, "17.2%")


def test_code_and_several_agents_of_autogen_are_read() -> None:
    code = [{"code": "rm()", "language": "python"}]
    messages = [
        autogen_message("UserInputRequestedEvent", "", "boss", request_id="1"),
        autogen_message("TextMessage", "Clean up.", "boss"),
        autogen_message("CodeGenerationEvent", "I do.", "coder", code_blocks=code, retry_attempt=0),
        autogen_message("CodeExecutionEvent", None, "coder", result={"exit_code": 1, "output": "no"}, retry_attempt=0),
        autogen_message("ThoughtEvent", "hm", "critic"),
        autogen_message("TextMessage", "Bad.", "critic"),
    ]
    steps = Trajectory.from_messages(messages).steps
    assert [(step.role, step.name) for step in steps] == [
        ("user", "boss"),
        ("assistant", "coder"),
        ("assistant", "critic"),
    ]
    (call,) = steps[1].calls
    assert (call.name, call.arguments, call.result, call.is_error) == (
        "execute_code",
        {"code_blocks": code},
        "no",
        True,
    )
    assert steps[2].text == "[thought]\nBad."
    with pytest.raises(ValueError, match=r"`messages\[1\]` is a message of the type 'SecretMessage'"):
        Trajectory.from_messages([AUTOGEN[0], autogen_message("SecretMessage", "x")])


def test_steps_of_a_code_agent_of_smolagents_are_read() -> None:
    code = [smol_call("call_1", "print(look(2024))", "python_interpreter")]
    error = {"type": "AgentParsingError", "message": "no code"}
    steps = [
        {"task": QUESTION},
        smol_step(1, code, "I look.", observations="17.2%", code_action="print(look(2024))"),
        smol_step(2, [], "hm", error=error),
        smol_step(3, [smol_call("call_3", "final_answer('x')", "python_interpreter")], observations="x",
                  action_output={"margin": 17.2}, is_final_answer=True),
    ]  # fmt: skip
    for form in (steps, {"output": {"margin": 17.2}, "state": "success", "steps": steps}):
        submission = Submission.from_messages(form)
        assert submission.response == '{"margin": 17.2}'
        assert submission.trajectory is not None
        assert [call.arguments for call in submission.trajectory.calls] == ["print(look(2024))", "final_answer('x')"]
        assert [step.role for step in submission.trajectory.steps] == ["user", *["assistant"] * 2, "system",
                                                                       *["assistant"] * 2]  # fmt: skip
        assert verdict(submission, no_errors=True) == "MET"


def test_calls_of_one_step_of_smolagents_share_its_result_or_its_error() -> None:
    two = [smol_call("c1", LOOK), smol_call("c2", FAIL)]
    first, second = Trajectory.from_messages([smol_step(1, two, observations="a\nb")]).calls
    assert (first.result, second.result) == ("[in the result of the last call of this step]", "a\nb")
    error = {"type": "AgentToolExecutionError", "message": FAILURE}
    failed = {**smol_step(1, two, error=error), "tool_calls": []}
    assert [call.is_error for call in Trajectory.from_messages([failed]).calls] == [True, True]
    with pytest.raises(ValueError, match=r"`steps\[0\]` failed \(AgentToolExecutionError\), and the call that failed"):
        Trajectory.from_messages([{**failed, "model_output_message": None}])
    last = smol_step(2, [], action_output="About 17%.", error={"type": "AgentMaxStepsError", "message": "Reached."})
    assert Submission.from_messages([{"task": QUESTION}, last]).response == "About 17%."


@pytest.mark.parametrize(
    ("message", "errors"),
    [
        (
            f"Error executing tool 'look' with arguments {FAIL}: ValueError: {FAILURE}\nPlease try again",
            [None, True, None],
        ),
        (f"Error executing tool 'search' with arguments {LOOK}: ValueError: {FAILURE}", [None, None, True]),
        (f"Error executing request to team member 'search' with arguments {LOOK}: {FAILURE}", [None, None, True]),
        ("Unknown tool search, should be one of: look.", [None, None, True]),
        # Two calls may have this beginning, and the text of an exception does not tell.
        ("Error executing tool 'look' with arguments {'other': 1}: ValueError", [True, True, True]),
        (f"{FAILURE}: Error executing tool 'search' with arguments {LOOK}: ", [True, True, True]),
        ("", [True, True, True]),
    ],
)
def test_error_of_a_step_of_smolagents_belongs_to_the_call_that_it_names(message: str, errors: list[Any]) -> None:
    calls = [smol_call("c1", LOOK), smol_call("c2", FAIL), smol_call("c3", LOOK, "search")]
    step = smol_step(1, calls, error={"type": "AgentToolExecutionError", "message": message})
    read = Trajectory.from_messages([step]).calls
    assert [call.is_error for call in read] == errors
    assert [call.result for call in read] == [message if error else None for error in errors]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": [{"text": "x"}], "toolCalls": [{"name": "rm"}]},
        {"role": "model", "parts": [{"text": "x"}], "toolCalls": [{"name": "rm"}]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "x"}], "tool_calls": [{"name": "rm"}]},
        {"role": "assistant", "parts": [{"type": "text", "text": "x"}], "toolInvocations": [{"toolName": "rm"}]},
    ],
)
def test_message_of_any_dialect_with_calls_in_an_unknown_field_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"`\w+\[0\].\w+` may have calls or results, and no reader knows this field"):
        Trajectory.from_messages([message])
    harmless = {"usage": {"tokens": 1}, "metadata": {"tools": ["rm"]}, "tools": [], "toolChoice": None}
    message = {key: value for key, value in message.items() if not key.lower().startswith("tool")}
    assert Trajectory.from_messages([{**message, **harmless}]).steps[0].text == "x"


def test_calls_that_langchain_has_only_as_openai_wrote_them_are_calls() -> None:
    call = {"id": "c1", "function": {"name": "look", "arguments": json.dumps(LOOK)}}
    for extra in ({"tool_calls": [call]}, {"function_call": call["function"]}):
        data = {"content": "", "additional_kwargs": extra}
        (read,) = Trajectory.from_messages([{"type": "ai", "data": data}]).calls
        assert (read.name, read.arguments) == ("look", LOOK)
    parsed = [{"name": "look", "args": LOOK, "id": "c1"}]
    both = {"type": "ai", "content": "", "tool_calls": parsed, "additional_kwargs": {"tool_calls": [call]}}
    assert len(Trajectory.from_messages([both]).calls) == 1


def test_invocations_of_version_4_of_vercel_are_calls() -> None:
    made = {"state": "result", "toolCallId": "c1", "toolName": "look", "args": LOOK, "result": "17.2%"}
    parts = [{"type": "step-start"}, {"type": "tool-invocation", "toolInvocation": made},
             {"type": "tool-invocation", "toolInvocation": {**made, "toolCallId": "c2", "state": "call"}},
             {"type": "source", "source": {"url": "https://example.com"}}]  # fmt: skip
    message = {"id": "m", "role": "assistant", "content": "", "parts": parts, "toolInvocations": [made]}
    first, second = Trajectory.from_messages([message]).calls
    assert (first.name, first.arguments, first.result) == ("look", LOOK, "17.2%")
    assert (second.arguments, second.result) == (LOOK, None)
    with pytest.raises(ValueError, match=r"parts\[0\]` is a call without a `toolInvocation.toolName`"):
        Trajectory.from_messages([{"role": "assistant", "parts": [{"type": "tool-invocation"}]}])


@pytest.mark.parametrize("outcome", ["failed", "retried", "denied", "interrupted"])
def test_call_of_pydantic_ai_that_did_not_succeed_failed(outcome: str) -> None:
    call = {"part_kind": "tool-call", "tool_name": "look", "args": "{}", "tool_call_id": "c"}
    result = {"part_kind": "tool-return", "tool_name": "look", "content": "", "tool_call_id": "c", "outcome": outcome}
    (read,) = Trajectory.from_messages(
        [{"kind": "response", "parts": [call]}, {"kind": "request", "parts": [result]}]
    ).calls
    assert read.is_error


def test_response_of_gemini_has_the_calls_that_its_client_made() -> None:
    contents = cast("list[Any]", GEMINI["contents"])
    end = {"content": contents[-1], "finishReason": "STOP"}
    response = {"candidates": [end], "automaticFunctionCallingHistory": contents[:-1], "modelVersion": "m"}
    assert Trajectory.from_messages(response).text() == render_steps(STEPS, numbered=True)
    part = {"text": None, "function_call": {"name": "rm", "args": {}, "id": None}, "thought": None}
    dumped = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finish_reason": "STOP"}]}
    assert verdict(submission_of(dumped), tool_forbidden="*") == "UNMET"
    with pytest.raises(ValueError, match=r"`candidates` has 2 candidates, and one is graded"):
        Trajectory.from_messages({"candidates": [end, end]})
    assert dialect_of({"candidates": [{"name": "Ada", "content": "A CV."}]}) is None
