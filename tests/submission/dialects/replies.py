"""One answer as the reply of each provider, with its request, and forms of providers that are refused."""

from __future__ import annotations

from typing import Any, NamedTuple

QUESTION, ANSWER = "May I return it?", "You get a refund."
CALL_ARGUMENTS = {"order": 7}


class Exchange(NamedTuple):
    """A request to a provider, its reply with a text, and its reply with a call of `pay`."""

    request: dict[str, Any]
    reply: dict[str, Any]
    call: dict[str, Any]


def completion(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "refusal": None, **message}}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
            "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}, **fields}  # fmt: skip


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    items = [{"type": "reasoning", "id": "rs1", "summary": []}, *output]
    return {"id": "r1", "object": "response", "created_at": 1, "status": "completed", "error": None, "model": "m",
            "incomplete_details": None, "instructions": "Be kind.", "metadata": {}, "output": items,
            "text": {"format": {"type": "text"}}, "tools": [], "usage": {"total_tokens": 11}, **fields}  # fmt: skip


def generated(part: dict[str, Any], **fields: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", **fields}
    return {"candidates": [candidate], "usageMetadata": {"totalTokenCount": 11}, "modelVersion": "m"}


def converse(*blocks: dict[str, Any], reason: str = "end_turn") -> dict[str, Any]:
    message = {"role": "assistant", "content": list(blocks)}
    return {"ResponseMetadata": {"HTTPStatusCode": 200}, "output": {"message": message}, "stopReason": reason,
            "usage": {"totalTokens": 11}, "metrics": {"latencyMs": 1}}  # fmt: skip


def anthropic(*blocks: dict[str, Any], reason: str = "end_turn") -> dict[str, Any]:
    content = [{"type": "thinking", "thinking": "A refund?", "signature": "s"}, *blocks]
    return {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 4}}  # fmt: skip


def ollama(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "created_at": "2026-11-24T10:00:00Z", "message": {"role": "assistant", **message},
            "done": True, "done_reason": "stop", "eval_count": 4, **fields}  # fmt: skip


ASKED = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": QUESTION}]
FUNCTION = {"name": "pay", "arguments": '{"order": 7}'}
EXCHANGES = {
    "OpenAI (chat completion)": Exchange(
        {"model": "m", "messages": ASKED},
        completion({"content": ANSWER}),
        completion({"content": None, "tool_calls": [{"id": "t1", "type": "function", "function": FUNCTION}]}),
    ),
    "OpenAI (Responses API)": Exchange(
        {"model": "m", "instructions": "Be kind.", "input": QUESTION},
        response({"type": "message", "id": "m1", "status": "completed", "role": "assistant",
                  "content": [{"type": "output_text", "text": ANSWER, "annotations": []}]}),
        response({"type": "function_call", "id": "f1", "call_id": "t1", "status": "completed", **FUNCTION}),
    ),
    "Gemini": Exchange(
        {"systemInstruction": {"parts": [{"text": "Be kind."}]},
         "contents": [{"role": "user", "parts": [{"text": QUESTION}]}]},
        generated({"text": ANSWER}),
        generated({"functionCall": {"name": "pay", "args": CALL_ARGUMENTS}}),
    ),
    "Bedrock (Converse)": Exchange(
        {"modelId": "m", "system": [{"text": "Be kind."}],
         "messages": [{"role": "user", "content": [{"text": QUESTION}]}]},
        converse({"text": ANSWER}),
        converse({"toolUse": {"toolUseId": "t1", "name": "pay", "input": CALL_ARGUMENTS}}),
    ),
    "Anthropic": Exchange(
        {"model": "m", "system": "Be kind.", "messages": [{"role": "user", "content": QUESTION}]},
        anthropic({"type": "text", "text": ANSWER}),
        anthropic({"type": "tool_use", "id": "t1", "name": "pay", "input": CALL_ARGUMENTS}),
    ),
    "Ollama": Exchange(
        {"model": "m", "messages": ASKED, "stream": False},
        ollama({"content": ANSWER, "thinking": "A refund?"}),
        ollama({"content": "", "tool_calls": [{"function": {"name": "pay", "arguments": CALL_ARGUMENTS}}]}),
    ),
}  # fmt: skip

_TURN = {"invocation_id": "i1", "user_content": {"role": "user", "parts": [{"text": QUESTION}]},
         "final_response": {"role": "model", "parts": [{"text": ANSWER}]}}  # fmt: skip
_CASE = {"eval_id": "a", "conversation": [_TURN], "session_input": None}
_EVENT = {
    "id": "e1",
    "invocation_id": "i1",
    "author": "shop",
    "content": {"role": "model", "parts": [{"text": ANSWER}]},
}
_A2A = {"kind": "message", "role": "agent", "messageId": "m1", "parts": [{"kind": "text", "text": ANSWER}]}
_TASK = {"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "completed"}, "artifacts": []}
_CHOICE = {"delta": {"role": "assistant", "content": ANSWER}, "index": 0, "finish_reason": None}
SINGLE = "a single message of Strands, Bedrock, Gemini, OpenTelemetry, Vercel or pydantic-ai"
REFUSED_FORMS: list[tuple[str, Any]] = [
    ("an evaluation set of Google's ADK", {"eval_set_id": "s", "eval_cases": [_CASE]}),
    ("an evaluation set of Google's ADK", _CASE),
    ("an evaluation set of Google's ADK", {"evalSetId": "s", "evalCases": []}),
    ("a session or an event of Google's ADK", {"id": "s1", "app_name": "shop", "events": [_EVENT]}),
    ("a session or an event of Google's ADK", [_EVENT]),
    ("a message of LlamaIndex", {"role": "assistant", "blocks": [{"block_type": "text", "text": ANSWER}]}),
    ("a message of LlamaIndex", [{"role": "assistant", "blocks": [{"block_type": "text", "text": ANSWER}]}]),
    ("a message or a task of A2A", _A2A),
    ("a message or a task of A2A", [_A2A]),
    ("a message or a task of A2A", _TASK),
    ("a message or a task of A2A", {"jsonrpc": "2.0", "id": 1, "result": _TASK}),
    ("a message or a task of A2A", {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": ANSWER}]}),
    ("a choice of a chat completion", completion({"content": ANSWER})["choices"]),
    ("a chunk of a streamed reply", completion({}, object="chat.completion.chunk", choices=[_CHOICE])),
    ("a chunk of a streamed reply", [completion({}, object="chat.completion.chunk", choices=[_CHOICE])]),
    ("a chunk of a streamed reply", ollama({"content": "You"}, done=False)),
    ("a chunk of a streamed reply", {"type": "response.output_text.delta", "sequence_number": 1, "delta": "You"}),
    ("a chunk of a streamed reply", [{"type": "content_block_delta", "index": 0, "delta": {"text": "You"}}]),
    (SINGLE, {"role": "assistant", "content": [{"text": ANSWER}]}),
    (SINGLE, {"role": "model", "parts": [{"text": ANSWER}]}),
]  # fmt: skip
"""Values with the name of the form by which they are refused."""
NO_ANSWERS: list[tuple[str, Any]] = [
    ("2 choices", completion({}, choices=completion({"content": "a"})["choices"] * 2)),
    ("2 candidates", {"candidates": generated({"text": "a"})["candidates"] * 2}),
    ("0 choices", completion({}, choices=[])),
    ("ended by 'content_filter'", completion({}, choices=[
        {"index": 0, "finish_reason": "content_filter", "message": {"role": "assistant", "content": ""}}])),
    ("has the status 'failed' (overloaded)", response(status="failed", error={"code": "x", "message": "overloaded"})),
    ("ended by 'SAFETY'", generated({}, content=None, finishReason="SAFETY")),
    ("ended by 'SAFETY'", {"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"}),
    ("ended by 'guardrail_intervened'", converse(reason="guardrail_intervened")),
    ("ended by 'refusal'", {**anthropic(reason="refusal"), "content": []}),
    ("ended by 'load'", ollama({"content": ""}, done_reason="load")),
    ("the error of a request (slow down)", {"error": {"message": "slow down", "type": "rate_limit", "code": None}}),
    ("the error of a request (late)", {"type": "error", "error": {"type": "overloaded_error", "message": "late"}}),
    ("the error of a request (no quota)", {"error": {"code": 429, "message": "no quota", "status": "EXHAUSTED"}}),
]  # fmt: skip
"""Replies without a single answer, with a part of the error."""
