"""One conversation in every dialect: a question, two calls at once, of which one fails, one more, and the answer."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import dspy
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from rubric_integrations.submission import Step, ToolCall

QUESTION, PLAN, ANSWER = "What was the margin?", "I look up both years.", "It was 17.2%, up from 8.4%."
LOOK, FAIL, RETRY = {"year": 2024}, {"year": 2032}, {"year": 2023, "unit": "%"}
FAILURE = "no such year: 2032"

STEPS = (
    Step(role="user", text=QUESTION),
    Step(
        role="assistant",
        text=PLAN,
        calls=(
            ToolCall(name="look", arguments=LOOK, result="17.2%", is_error=False),
            ToolCall(name="look", arguments=FAIL, result=FAILURE, is_error=True),
        ),
    ),
    Step(role="assistant", calls=(ToolCall(name="look", arguments=RETRY, result="8.4%", is_error=False),)),
    Step(role="assistant", text=ANSWER),
)


def _change_calls(**changes: Any) -> tuple[Step, ...]:
    return tuple(
        step.model_copy(update={"calls": tuple(call.model_copy(update=changes) for call in step.calls)})
        for step in STEPS
    )


# Some dialects do not record whether a tool failed.
STEPS_WITHOUT_ERRORS = _change_calls(is_error=None)
_FIRST, _SECOND = STEPS[1].calls
# ReAct makes one call at a time, and its trajectory has neither the task nor the answer.
REACT_STEPS = (
    STEPS[1].model_copy(update={"calls": (_FIRST,)}),
    Step(role="assistant", calls=(_SECOND.model_copy(update={"result": f"Execution error in look: {FAILURE}"}),)),
    STEPS[2],
)


class Example(NamedTuple):
    """The conversation in one dialect, and the steps that it expresses."""

    conversation: Any
    steps: tuple[Step, ...]


def openai_call(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": json.dumps(arguments)}}


OPENAI = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": PLAN, "tool_calls": [openai_call("c1", LOOK), openai_call("c2", FAIL)]},
    {"role": "tool", "tool_call_id": "c2", "content": FAILURE},
    {"role": "tool", "tool_call_id": "c1", "content": "17.2%"},
    {"role": "assistant", "content": None, "tool_calls": [openai_call("c3", RETRY)]},
    {"role": "tool", "tool_call_id": "c3", "content": [{"type": "text", "text": "8.4%"}]},
    {"role": "assistant", "content": ANSWER},
]
RESPONSES = [
    {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": PLAN}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": json.dumps(LOOK)},
    {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "look", "arguments": json.dumps(FAIL)},
    {"type": "function_call_output", "call_id": "c1", "output": "17.2%"},
    {"type": "function_call_output", "call_id": "c2", "output": FAILURE},
    {"type": "function_call", "id": "fc_3", "call_id": "c3", "name": "look", "arguments": json.dumps(RETRY)},
    {"type": "function_call_output", "call_id": "c3", "output": [{"type": "input_text", "text": "8.4%"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
]
ANTHROPIC = [
    {"role": "user", "content": QUESTION},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": PLAN},
            {"type": "tool_use", "id": "c1", "name": "look", "input": LOOK},
            {"type": "tool_use", "id": "c2", "name": "look", "input": FAIL},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "17.2%"},
            {
                "type": "tool_result",
                "tool_use_id": "c2",
                "content": [{"type": "text", "text": FAILURE}],
                "is_error": True,
            },
        ],
    },
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c3", "name": "look", "input": RETRY}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c3", "content": "8.4%"}]},
    {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
]


def claude_code_line(uuid: str, message: dict[str, Any], parent: str | None = None) -> dict[str, Any]:
    line = {"type": message["role"], "uuid": uuid, "parentUuid": parent, "sessionId": "s", "isSidechain": False}
    return {**line, "cwd": "/home/ann/shop", "message": message}


def _split(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a line for each block of the model's messages, as Claude Code writes them."""
    lines: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        is_model = message["role"] == "assistant"
        for block in message["content"] if is_model else [None]:
            own = {**message, "id": f"m{number}", "content": [block]} if is_model else message
            lines.append(claude_code_line(f"u{len(lines)}", own, f"u{len(lines) - 1}" if lines else None))
    return lines


CLAUDE_CODE = _split(ANTHROPIC)
CODEX: list[dict[str, Any]] = [
    {"timestamp": "2026-11-20T10:00:00Z", "type": "response_item", "payload": item} for item in RESPONSES
]
for _call_id, _code in (("c1", 0), ("c2", 1), ("c3", 0)):
    _end = {"type": "exec_command_end", "call_id": _call_id, "exit_code": _code}
    CODEX.append({"timestamp": "2026-11-20T10:00:00Z", "type": "event_msg", "payload": _end})


def langchain_call(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": "look", "args": arguments, "id": call_id, "type": "tool_call"}


_CALLS: list[Any] = [langchain_call("c1", LOOK), langchain_call("c2", FAIL)]
LANGCHAIN = [
    HumanMessage(QUESTION),
    # As `langchain` 1 does it: the calls are blocks of the content, too.
    AIMessage([{"type": "text", "text": PLAN}, *_CALLS], tool_calls=_CALLS),
    ToolMessage("17.2%", tool_call_id="c1", name="look"),
    ToolMessage(FAILURE, tool_call_id="c2", name="look", status="error"),
    AIMessage("", tool_calls=[langchain_call("c3", RETRY)]),
    ToolMessage([{"type": "text", "text": "8.4%"}], tool_call_id="c3", name="look"),
    AIMessage(ANSWER),
]
GEMINI = {
    "contents": [
        {"role": "user", "parts": [{"text": QUESTION}]},
        {
            "role": "model",
            "parts": [
                {"text": PLAN},
                {"functionCall": {"name": "look", "args": LOOK}},
                {"functionCall": {"name": "look", "args": FAIL}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look", "response": {"output": "17.2%"}}},
                {"functionResponse": {"name": "look", "response": {"error": FAILURE}}},
            ],
        },
        {"role": "model", "parts": [{"function_call": {"name": "look", "args": RETRY, "id": "c3"}}]},
        {
            "role": "user",
            "parts": [{"function_response": {"name": "look", "response": {"result": "8.4%"}, "id": "c3"}}],
        },
        {"role": "model", "parts": [{"text": ANSWER}]},
    ]
}


def otel_call(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": "look", "arguments": arguments}


OPENTELEMETRY = [
    {"role": "user", "parts": [{"type": "text", "content": QUESTION}]},
    {
        "role": "assistant",
        "parts": [{"type": "text", "content": PLAN}, otel_call("c1", LOOK), otel_call("c2", FAIL)],
        "finish_reason": "tool_call",
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "17.2%"}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c2", "response": FAILURE}]},
    {"role": "assistant", "parts": [otel_call("c3", RETRY)]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c3", "response": "8.4%"}]},
    {"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]},
]


def atif_call(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"tool_call_id": call_id, "function_name": "look", "arguments": arguments}


ATIF = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s",
    "agent": {"name": "a", "version": "1"},
    "steps": [
        {"step_id": 1, "timestamp": "2026-01-01T10:00:00Z", "source": "user", "message": QUESTION},
        {
            "step_id": 2,
            "timestamp": "2026-01-01T10:00:02.5Z",
            "source": "agent",
            "message": PLAN,
            "tool_calls": [atif_call("c1", LOOK), atif_call("c2", FAIL)],
            "observation": {
                "results": [
                    {"source_call_id": "c1", "content": "17.2%"},
                    {"source_call_id": "c2", "content": FAILURE},
                ]
            },
            "metrics": {"prompt_tokens": 100, "completion_tokens": 20, "cost_usd": 0.25},
        },
        {
            "step_id": 3,
            "source": "agent",
            "message": "",
            "tool_calls": [atif_call("c3", RETRY)],
            "observation": {"results": [{"source_call_id": "c3", "content": [{"type": "text", "text": "8.4%"}]}]},
        },
        {"step_id": 4, "source": "agent", "message": ANSWER},
    ],
}


def agentv_call(call_id: str, arguments: dict[str, Any], status: str, output: str) -> dict[str, Any]:
    result = {"status": status, "output": output}
    return {"type": "tool_use", "id": call_id, "name": "look", "input": arguments, "result": result}


_AGENTV = {"v": 1, "agent": "codex"}
AGENTV = [
    {**_AGENTV, "type": "user", "content": [{"type": "text", "text": QUESTION}]},
    {
        **_AGENTV,
        "type": "assistant",
        "input_tokens": 100,
        "output_tokens": 20,
        "content": [
            {"type": "text", "text": PLAN},
            agentv_call("c1", LOOK, "success", "17.2%"),
            agentv_call("c2", FAIL, "error", FAILURE),
        ],
    },
    {**_AGENTV, "type": "assistant", "content": [agentv_call("c3", RETRY, "success", "8.4%")]},
    {**_AGENTV, "type": "assistant", "content": [{"type": "text", "text": ANSWER}]},
]


def inspect_call(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "function": "look", "arguments": arguments, "type": "function"}


INSPECT = {
    "id": 1,
    "epoch": 1,
    "output": {"model": "m", "choices": []},
    "messages": [
        {"role": "user", "content": QUESTION, "source": "input"},
        {"role": "assistant", "content": PLAN, "tool_calls": [inspect_call("c1", LOOK), inspect_call("c2", FAIL)]},
        {"role": "tool", "content": "17.2%", "tool_call_id": "c1", "function": "look", "error": None},
        {
            "role": "tool",
            "content": "",
            "tool_call_id": "c2",
            "function": "look",
            "error": {"type": "unknown", "message": FAILURE},
        },
        {"role": "assistant", "content": [], "tool_calls": [inspect_call("c3", RETRY)]},
        {"role": "tool", "content": "attachment://0f", "tool_call_id": "c3", "function": "look"},
        {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
    ],
    "attachments": {"0f": "8.4%"},
}


def dspy_calls(*calls: tuple[str, dict[str, Any], str, bool]) -> dspy.ToolCalls:
    made = [dspy.ToolCalls.ToolCall(id=call_id, name="look", args=arguments) for call_id, arguments, _, _ in calls]
    results = [
        {"call_id": call_id, "name": "look", "value": value, "is_error": is_error}
        for call_id, _, value, is_error in calls
    ]
    return dspy.ToolCalls(tool_calls=made, tool_call_results={"tool_call_results": results})


HISTORY = dspy.History(
    messages=[
        {
            "question": QUESTION,
            "next_thought": dspy.Reasoning(content=PLAN),
            "tool_calls": dspy_calls(("c1", LOOK, "17.2%", False), ("c2", FAIL, FAILURE, True)),
        },
        {"tool_calls": dspy_calls(("c3", RETRY, "8.4%", False))},
        {"tool_calls": dspy.ToolCalls(tool_calls=[]), "answer": ANSWER},
    ]
)
REACT = {
    "thought_0": PLAN,
    "tool_name_0": "look",
    "tool_args_0": LOOK,
    "observation_0": "17.2%",
    "thought_1": "",
    "tool_name_1": "look",
    "tool_args_1": FAIL,
    "observation_1": f"Execution error in look: {FAILURE}",
    "thought_2": "",
    "tool_name_2": "look",
    "tool_args_2": RETRY,
    "observation_2": "8.4%",
}


def openhands_action(number: int, call_id: str, arguments: dict[str, Any], reply: str, thought: str = "") -> Any:
    message = {"role": "assistant", "content": thought, "tool_calls": [openai_call(call_id, arguments)]}
    metadata = {
        "function_name": "look",
        "tool_call_id": call_id,
        "model_response": {"id": reply, "choices": [{"message": message}]},
        "total_calls_in_response": 1,
    }
    args = {"name": "look", "arguments": arguments, "thought": thought}
    return {
        "id": number,
        "timestamp": "2026-01-01T10:00:00",
        "source": "agent",
        "message": "I am calling the tool.",
        "action": "call_tool_mcp",
        "args": args,
        "tool_call_metadata": metadata,
    }


def openhands_observation(number: int, cause: int, content: str, kind: str = "run", **more: Any) -> Any:
    event = {"id": number, "source": "agent", "message": f"Command `{cause}` executed.", "cause": cause}
    return {**event, "observation": kind, "content": content, "extras": {}, **more}


OPENHANDS = [
    {"id": 0, "source": "user", "message": QUESTION, "action": "message", "args": {"content": QUESTION}},
    {"id": 1, "source": "user", "message": "Retrieving", "action": "recall", "args": {"query": QUESTION}},
    {"id": 2, "source": "agent", "message": "", "cause": 1, "observation": "recall", "content": "Added", "extras": {}},
    openhands_action(3, "c1", LOOK, "reply-1", PLAN),
    openhands_observation(4, 3, "17.2%", extras={"metadata": {"exit_code": 0}}),
    openhands_action(5, "c2", FAIL, "reply-1"),
    openhands_observation(6, 5, FAILURE, "error"),
    openhands_action(7, "c3", RETRY, "reply-2"),
    openhands_observation(8, 7, "8.4%", success=True),
    {"id": 9, "source": "agent", "message": "Done", "action": "finish", "args": {"final_thought": ANSWER}},
    {"id": 10, "source": "environment", "message": "", "observation": "agent_state_changed", "content": ""},
]
_SWE: dict[str, Any] = {"agent": "main", "message_type": "observation"}


def swe_message(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a message of OpenAI as SWE-agent writes it: with the ids of its calls in a list."""
    fields = {key: value for key, value in message.items() if key != "tool_call_id"}
    ids = {"tool_call_ids": [message["tool_call_id"]]} if "tool_call_id" in message else {}
    return {**fields, **ids, "content": message["content"] or "", **_SWE, **more}


SWE_AGENT = {
    "trajectory": [{"action": "look", "observation": "17.2%", "response": PLAN, "thought": PLAN}],
    "info": {"exit_status": "submitted", "submission": None},
    "history": [
        swe_message({"role": "user", "content": "A demonstration."}, is_demo=True),
        swe_message({"role": "assistant", "content": "", "tool_calls": [openai_call("c1", {"year": 1})]}, is_demo=True),
        swe_message({"role": "tool", "tool_call_id": "c1", "content": "of another run"}, is_demo=True),
        *(swe_message(message, action="look" if message.get("tool_calls") else "") for message in OPENAI),
    ],
}


def tau2_call(call_id: str, arguments: dict[str, Any], requestor: str = "assistant") -> dict[str, Any]:
    return {"id": call_id, "name": "look", "arguments": arguments, "requestor": requestor}


def tau2_result(call_id: str, content: str, *, error: bool = False, requestor: str = "assistant") -> dict[str, Any]:
    return {"role": "tool", "id": call_id, "content": content, "error": error, "requestor": requestor}


TAU2 = [
    {"role": "user", "content": QUESTION, "tool_calls": None, "turn_idx": 0, "cost": 0.5},
    {"role": "assistant", "content": PLAN, "tool_calls": [tau2_call("c1", LOOK), tau2_call("c2", FAIL)]},
    {"role": "tool", "tool_messages": [tau2_result("c1", "17.2%"), tau2_result("c2", FAILURE, error=True)]},
    {"role": "assistant", "content": None, "tool_calls": [tau2_call("c3", RETRY)], "raw_data": {"id": "x"}},
    tau2_result("c3", "8.4%"),
    {"role": "assistant", "content": ANSWER, "tool_calls": None},
]


def bedrock_call(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": call_id, "name": "look", "input": arguments}}


def bedrock_result(call_id: str, content: dict[str, Any], status: str) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": call_id, "content": [content], "status": status}}


BEDROCK = [
    {"role": "user", "content": [{"text": QUESTION}]},
    {"role": "assistant", "content": [{"text": PLAN}, bedrock_call("c1", LOOK), bedrock_call("c2", FAIL)]},
    {
        "role": "user",
        "content": [
            bedrock_result("c1", {"json": "17.2%"}, "success"),
            bedrock_result("c2", {"text": FAILURE}, "error"),
        ],
    },
    {"role": "assistant", "content": [bedrock_call("c3", RETRY)]},
    {"role": "user", "content": [bedrock_result("c3", {"text": "8.4%"}, "success")]},
    {"role": "assistant", "content": [{"text": ANSWER}]},
]


def pydantic_call(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"part_kind": "tool-call", "tool_name": "look", "args": arguments, "tool_call_id": call_id}


def pydantic_result(call_id: str, content: str, outcome: str = "success") -> dict[str, Any]:
    result = {"part_kind": "tool-return", "tool_name": "look", "content": content, "tool_call_id": call_id}
    return {**result, "outcome": outcome, "metadata": None}


PYDANTIC_AI = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": QUESTION}], "instructions": None},
    {
        "kind": "response",
        "parts": [
            {"part_kind": "text", "content": PLAN, "citations": None},
            pydantic_call("c1", json.dumps(LOOK)),
            pydantic_call("c2", FAIL),
        ],
    },
    {"kind": "request", "parts": [pydantic_result("c1", "17.2%"), pydantic_result("c2", FAILURE, "failed")]},
    {"kind": "response", "parts": [pydantic_call("c3", RETRY)]},
    {"kind": "request", "parts": [pydantic_result("c3", "8.4%")]},
    {"kind": "response", "parts": [{"part_kind": "text", "content": ANSWER}]},
]


def vercel_part(call_id: str, arguments: dict[str, Any], **output: Any) -> dict[str, Any]:
    return {"type": "tool-look", "toolCallId": call_id, "input": arguments, **output}


VERCEL = [
    {"id": "m1", "role": "user", "parts": [{"type": "text", "text": QUESTION}]},
    {
        "id": "m2",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "text", "text": PLAN, "state": "done"},
            vercel_part("c1", LOOK, state="output-available", output="17.2%"),
            vercel_part("c2", FAIL, state="output-error", errorText=FAILURE),
            {"type": "step-start"},
            {
                **vercel_part("c3", RETRY, state="output-available", output="8.4%"),
                "type": "dynamic-tool",
                "toolName": "look",
            },
            {"type": "step-start"},
            {"type": "text", "text": ANSWER},
        ],
    },
]


def vercel_block(kind: str, call_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "toolCallId": call_id, "toolName": "look", **fields}


VERCEL_MODEL = [
    {"role": "user", "content": QUESTION},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": PLAN},
            vercel_block("tool-call", "c1", input=LOOK),
            vercel_block("tool-call", "c2", input=FAIL),
        ],
    },
    {
        "role": "tool",
        "content": [
            vercel_block("tool-result", "c1", output={"type": "text", "value": "17.2%"}),
            vercel_block("tool-result", "c2", output={"type": "error-text", "value": FAILURE}),
        ],
    },
    {"role": "assistant", "content": [vercel_block("tool-call", "c3", args=RETRY)]},
    {"role": "tool", "content": [vercel_block("tool-result", "c3", result="8.4%")]},
    {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
]


def mini_action(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"command": json.dumps(arguments), "tool_call_id": call_id}


def mini_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of OpenAI as mini-swe-agent writes it: with the commands, and with the code of a result."""
    if message["role"] == "tool":
        code = int(message["content"] == FAILURE)
        return {**message, "extra": {"raw_output": message["content"], "returncode": code, "exception_info": None}}
    calls = message.get("tool_calls") or []
    actions = [mini_action(call["id"], json.loads(call["function"]["arguments"])) for call in calls]
    return {**message, "extra": {"actions": actions, "cost": 0.25}} if actions else message


MINI_SWE_AGENT = {
    "trajectory_format": "mini-swe-agent-1.1",
    "info": {"exit_status": "Submitted", "submission": ANSWER, "config": {}},
    "messages": [
        *(mini_message(message) for message in OPENAI[:-1]),
        {"role": "exit", "content": ANSWER, "extra": {"exit_status": "Submitted", "submission": ANSWER}},
    ],
}


def command_step(command: str, text: str = "", fence: str = "bash") -> dict[str, Any]:
    """Return a message of version 1 of mini-swe-agent: the command is only in the text."""
    return {"role": "assistant", "content": f"{text}\n\n```{fence}\n{command}\n```"}


def command_result(output: str, code: int = 0) -> dict[str, Any]:
    return {"role": "user", "content": f"<returncode>{code}</returncode>\n<output>\n{output}\n</output>"}


def sdk_event(kind: str, source: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"{kind}-1", "timestamp": "2026-01-01T10:00:00", "source": source, "kind": kind, **fields}


def sdk_text(text: str) -> dict[str, Any]:
    return {"cache_prompt": False, "type": "text", "text": text}


def sdk_message(role: str, text: str, source: str) -> dict[str, Any]:
    return sdk_event(
        "MessageEvent", source, llm_message={"role": role, "content": [sdk_text(text)], "tool_calls": None}
    )


def sdk_action(call_id: str, arguments: dict[str, Any], reply: str, thought: str = "") -> dict[str, Any]:
    call = {"id": call_id, "name": "look", "arguments": json.dumps(arguments), "origin": "completion"}
    fields = {"tool_name": "look", "tool_call_id": call_id, "tool_call": call, "llm_response_id": reply}
    thoughts = [sdk_text(thought)] if thought else []
    return sdk_event("ActionEvent", "agent", thought=thoughts, action={**arguments, "kind": "LookAction"}, **fields)


def sdk_observation(call_id: str, text: str, *, is_error: bool = False) -> dict[str, Any]:
    observation = {"content": [sdk_text(text)], "is_error": is_error, "kind": "LookObservation"}
    return sdk_event(
        "ObservationEvent",
        "environment",
        tool_name="look",
        tool_call_id=call_id,
        observation=observation,
        action_id="a",
    )


OPENHANDS_SDK = [
    sdk_event("ConversationStateUpdateEvent", "environment", key="agent_status", value="running"),
    sdk_message("user", QUESTION, "user"),
    sdk_action("c1", LOOK, "reply-1", PLAN),
    sdk_action("c2", FAIL, "reply-1"),
    sdk_observation("c2", FAILURE, is_error=True),
    sdk_observation("c1", "17.2%"),
    sdk_action("c3", RETRY, "reply-2"),
    sdk_observation("c3", "8.4%"),
    {
        **sdk_action("c4", {}, "reply-3"),
        "tool_name": "finish",
        "action": {"message": ANSWER, "kind": "FinishAction"},
    },
    {**sdk_observation("c4", ANSWER), "tool_name": "finish"},
]


def autogen_call(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "name": "look", "arguments": json.dumps(arguments)}


def autogen_result(call_id: str, content: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"call_id": call_id, "name": "look", "content": content, "is_error": is_error}


def autogen_message(kind: str, content: Any, source: str = "weather", **fields: Any) -> dict[str, Any]:
    return {
        "id": "m",
        "source": source,
        "models_usage": None,
        "metadata": {},
        "content": content,
        "type": kind,
        **fields,
    }


AUTOGEN = [
    autogen_message("TextMessage", QUESTION, "user"),
    autogen_message("ThoughtEvent", PLAN),
    autogen_message("ToolCallRequestEvent", [autogen_call("c1", LOOK), autogen_call("c2", FAIL)]),
    autogen_message(
        "ToolCallExecutionEvent", [autogen_result("c1", "17.2%"), autogen_result("c2", FAILURE, is_error=True)]
    ),
    autogen_message("ToolCallRequestEvent", [autogen_call("c3", RETRY)]),
    autogen_message("ToolCallExecutionEvent", [autogen_result("c3", "8.4%")]),
    autogen_message("TextMessage", ANSWER),
]


def smol_call(call_id: str, arguments: Any, name: str = "look") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def smol_step(number: int, calls: list[Any], text: str | None = None, **fields: Any) -> dict[str, Any]:
    step = {"step_number": number, "tool_calls": calls, "error": None, "model_output": text, "observations": None}
    message = {"role": "assistant", "content": text, "tool_calls": calls}
    return {**step, "model_output_message": message, "action_output": None, "is_final_answer": False, **fields}


SMOLAGENTS = [
    {"task": QUESTION, "task_images": None},
    smol_step(1, [smol_call("c1", LOOK)], PLAN, observations="17.2%"),
    {
        **smol_step(2, [smol_call("c2", FAIL)], error={"type": "AgentToolExecutionError", "message": FAILURE}),
        "tool_calls": [],
    },
    smol_step(3, [smol_call("c3", RETRY)], observations="8.4%"),
    smol_step(4, [smol_call("c4", {"answer": ANSWER}, "final_answer")], observations=ANSWER, is_final_answer=True),
]
# The results of calls that a model makes at once are one text: here it makes one at a time.
SMOLAGENTS_STEPS = (
    STEPS[0],
    STEPS[1].model_copy(update={"calls": (_FIRST,)}),
    Step(role="assistant", calls=(_SECOND,)),
    *STEPS[2:],
)

EXAMPLES = {
    "openai_chat": Example(OPENAI, STEPS_WITHOUT_ERRORS),
    "openai_responses": Example(RESPONSES, STEPS_WITHOUT_ERRORS),
    "anthropic": Example(ANTHROPIC, STEPS),
    "langchain": Example(LANGCHAIN, STEPS),
    "claude_code": Example(CLAUDE_CODE, STEPS),
    "codex": Example(CODEX, STEPS),
    "gemini": Example(GEMINI, STEPS),
    "opentelemetry": Example(OPENTELEMETRY, STEPS_WITHOUT_ERRORS),
    "atif": Example(ATIF, STEPS_WITHOUT_ERRORS),
    "agentv": Example(AGENTV, STEPS),
    "inspect_ai": Example(INSPECT, STEPS),
    "dspy_history": Example(HISTORY, STEPS),
    "dspy_react": Example(REACT, REACT_STEPS),
    "openhands": Example(OPENHANDS, STEPS),
    "swe_agent": Example(SWE_AGENT, STEPS_WITHOUT_ERRORS),
    "tau2": Example(TAU2, STEPS),
    "bedrock": Example(BEDROCK, STEPS),
    "vercel": Example(VERCEL, STEPS),
    "pydantic_ai": Example(PYDANTIC_AI, STEPS),
    "openhands_sdk": Example(OPENHANDS_SDK, STEPS),
    "mini_swe_agent": Example(MINI_SWE_AGENT, STEPS),
    "autogen": Example(AUTOGEN, STEPS),
    "smolagents": Example(SMOLAGENTS, SMOLAGENTS_STEPS),
    "reply": Example({"object": "response", "output": RESPONSES}, STEPS_WITHOUT_ERRORS),
}

REFUSED = {
    "SWE-agent's `trajectory`, without its `history`": SWE_AGENT["trajectory"],
    "tau2's voice simulation (`ticks`)": {"task_id": "1", "ticks": [{"tick_id": 0}], "messages": []},
    "OpenTelemetry spans": {"resourceSpans": []},
}
"""A conversation in each form that is refused by its name."""
