"""Recognizes forms of agent runs that no reader reads, and damaged documents, to refuse them with a clear error.

Without this module, the chat reader would read some of these forms as messages without calls. Other forms would not be
recognized as conversations, and would be graded as one JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from rubric_integrations.submission.dialects.agents import matches_atif
from rubric_integrations.submission.dialects.autogen import matches_autogen
from rubric_integrations.submission.dialects.bedrock import matches_bedrock
from rubric_integrations.submission.dialects.blocks import AttachmentList, Message, UnknownBlockError, get_field
from rubric_integrations.submission.dialects.chat import ROLES, matches_gemini, matches_opentelemetry
from rubric_integrations.submission.dialects.mini_swe_agent import matches_mini_swe_agent
from rubric_integrations.submission.dialects.openhands import matches_openhands
from rubric_integrations.submission.dialects.openhands_sdk import matches_openhands_sdk
from rubric_integrations.submission.dialects.pydantic_ai import matches_pydantic_ai
from rubric_integrations.submission.dialects.replies import matches_reply, provider_of
from rubric_integrations.submission.dialects.swe_agent import matches_swe_agent
from rubric_integrations.submission.dialects.unread_tools import unread_tool
from rubric_integrations.submission.dialects.vercel import matches_vercel


def _swe_agent_steps(items: list[Any]) -> bool:
    return all(all(key in item for key in ("action", "observation", "response")) for item in items)


def _tau2_ticks(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("ticks"), list) and "task_id" in document and not document.get("messages")


def _spans(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("resourceSpans"), list)


def _is_swe_agent(document: Mapping[str, Any]) -> bool:
    info = document.get("info")
    has_end = isinstance(info, Mapping) and ("exit_status" in info or "submission" in info)
    has_run = "history" in document or "trajectory" in document
    return (has_run and has_end) or ("trajectory" in document and _has_item(document.get("history"), "role", "agent"))


def _is_atif(document: Mapping[str, Any]) -> bool:
    is_named = str(document.get("schema_version")).startswith("ATIF")
    return is_named or _has_item(document.get("steps"), "step_id", "source", "message")


def _is_gemini(document: Mapping[str, Any]) -> bool:
    return "candidates" in document and not _GEMINI_KEYS.isdisjoint(document)


_GEMINI_KEYS = frozenset({
    "usageMetadata", "usage_metadata", "modelVersion", "model_version", "promptFeedback", "prompt_feedback",
})  # fmt: skip


def _is_mini_swe_agent(document: Mapping[str, Any]) -> bool:
    return str(document.get("trajectory_format")).startswith("mini-swe-agent")


def _is_autogen(document: Mapping[str, Any]) -> bool:
    has_messages = any(key in document for key in ("llm_context", "agent_states", "message_thread"))
    return has_messages and str(document.get("type")).endswith("State")


def _is_openhands(document: Mapping[str, Any]) -> bool:
    return all(key in document for key in ("instance_id", "history")) and (
        "test_result" in document or "git_patch" in document
    )


def _has_item(items: Any, *keys: str) -> bool:
    entries = cast("list[Any]", items) if isinstance(items, list) else []
    return any(isinstance(item, Mapping) and all(key in item for key in keys) for item in entries)


_Marker = Callable[[Mapping[str, Any]], bool]


def _is_adk_eval(document: Mapping[str, Any]) -> bool:
    is_set = "eval_cases" in document and ("eval_set_id" in document or _has_item(document["eval_cases"], "eval_id"))
    is_camel = "evalCases" in document and "evalSetId" in document
    has_turns = any(_has_item(document.get("conversation"), key) for key in ("user_content", "userContent"))
    return is_set or is_camel or has_turns or ("eval_case_results" in document or "evalCaseResults" in document)


def _is_adk_run(document: Mapping[str, Any]) -> bool:
    """Return whether an object is an event of ADK, or a session, which has a list of events."""
    ids = ("invocation_id", "invocationId")
    is_event = "author" in document and any(key in document for key in ids)
    return is_event or any(_has_item(document.get("events"), "author", key) for key in ids)


def _is_llamaindex(document: Mapping[str, Any]) -> bool:
    return "role" in document and _has_item(document.get("blocks"), "block_type")


def _is_haystack(document: Mapping[str, Any]) -> bool:
    content = document.get("content")
    return "role" in document and (_has_item(content, "tool_call") or _has_item(content, "tool_call_result"))


def _is_semantic_kernel(document: Mapping[str, Any]) -> bool:
    return document.get("content_type") == "message" and _has_item(document.get("items"), "content_type")


def _is_agno(document: Mapping[str, Any]) -> bool:
    return "role" in document and ("tool_args" in document or "tool_call_error" in document)


def _is_a2a(document: Mapping[str, Any]) -> bool:
    """Return whether an object is a message or a task of A2A, or the JSON-RPC response that contains one."""
    if document.get("jsonrpc") == "2.0" and isinstance(document.get("result"), Mapping):
        return _is_a2a(cast("Mapping[str, Any]", document["result"]))
    has_id = any(key in document for key in ("messageId", "message_id"))
    is_message = has_id and "role" in document and isinstance(document.get("parts"), list)
    is_task = isinstance(get_field(document.get("status"), "state"), str) and "id" in document
    has_context = any(key in document for key in ("contextId", "context_id", "artifacts"))
    return is_message or (is_task and has_context)


def _is_choice(document: Mapping[str, Any]) -> bool:
    return "finish_reason" in document and isinstance(get_field(document.get("message"), "role"), str)


def _is_chunk(document: Mapping[str, Any]) -> bool:
    named = document.get("type")
    kind = named if isinstance(named, str) else ""
    is_ollama = document.get("done") is False and "model" in document and "created_at" in document
    is_event = kind.startswith("response.") and "sequence_number" in document and "response" not in document
    is_delta = kind.startswith(("message_", "content_block_")) and ("delta" in document or "content_block" in document)
    return document.get("object") == "chat.completion.chunk" or is_ollama or is_event or is_delta


def _is_single_message(document: Mapping[str, Any]) -> bool:
    """Return whether an object is one message of a dialect that is read only as a list of messages."""
    readers = (matches_bedrock, matches_gemini, matches_opentelemetry, matches_vercel, matches_pydantic_ai)
    is_message = document.get("role") in (*ROLES, "model") or document.get("kind") in ("request", "response")
    return is_message and any(matches([document]) for matches in readers)


class _Form(NamedTuple):
    """A form of a provider or a framework that is refused: the test of its marks, and what to grade instead."""

    matches: _Marker
    remedy: str


_SINGLE_MESSAGE = "a single message of Strands, Bedrock, Gemini, OpenTelemetry, Vercel or pydantic-ai"
_ANSWER = "pass the text of the answer, or the messages as `{'role': ..., 'content': ...}`"
_UNREAD = "a session or a log of a tool"
_FORMS: dict[str, _Form] = {
    "an evaluation set of Google's ADK": _Form(
        _is_adk_eval, "write a row with the agent's own answer for each case, because a set has expected answers"
    ),
    "a session or an event of Google's ADK": _Form(_is_adk_run, "pass the list of the `content` of its events"),
    "a message of LlamaIndex": _Form(_is_llamaindex, _ANSWER),
    "a message of Haystack": _Form(_is_haystack, _ANSWER),
    "a message of Semantic Kernel": _Form(_is_semantic_kernel, _ANSWER),
    "a message of Agno": _Form(
        _is_agno, "pass the messages with only `role`, `content`, `tool_calls` and `tool_call_id`"
    ),
    "a message or a task of A2A": _Form(_is_a2a, _ANSWER),
    "a choice of a chat completion": _Form(_is_choice, "pass its `message` in a list"),
    "a chunk of a streamed reply": _Form(_is_chunk, "join the chunks and pass the text, or request without `stream`"),
    _SINGLE_MESSAGE: _Form(_is_single_message, "pass it in a list"),
}
"""Forms of providers and frameworks. A list with an item of such a form is also refused, unless it is a message."""

_LISTS: dict[str, Callable[[list[Any]], bool]] = {
    "SWE-agent's `trajectory`, without its `history`": _swe_agent_steps,
}
_DOCUMENTS: dict[str, _Marker] = {
    "tau2's voice simulation (`ticks`)": _tau2_ticks,
    "OpenTelemetry spans": _spans,
}
_DAMAGED: dict[str, tuple[_Marker, tuple[Callable[[Any], bool], ...]]] = {
    "SWE-agent's `.traj`": (_is_swe_agent, (matches_swe_agent,)),
    "ATIF": (_is_atif, (matches_atif,)),
    "Gemini's response": (_is_gemini, (matches_reply,)),
    "mini-swe-agent's trajectory": (_is_mini_swe_agent, (matches_mini_swe_agent,)),
    "AutoGen's state": (_is_autogen, (matches_autogen,)),
    "OpenHands' `output.jsonl`": (_is_openhands, (matches_openhands, matches_openhands_sdk)),
}
"""For each kind of document, the test of its marks and the tests of the readers that accept complete documents."""


def refused_form(conversation: Any) -> str | None:
    """Return the name of the form of a conversation that must be refused. None for any other conversation.

    A conversation is refused if it has a known form that is not supported, such as OpenTelemetry spans, or if it is a
    damaged document of a supported form. Unknown forms are not refused here.
    """
    if isinstance(conversation, Mapping):
        document = cast("Mapping[str, Any]", conversation)
        damaged = (
            f"a damaged document of {name}"
            for name, (has_marks, readers) in _DAMAGED.items()
            if has_marks(document) and not any(matches(document) for matches in readers)
        )
        unread = (name for name, matches in _DOCUMENTS.items() if matches(document))
        form = next(unread, None) or provider_form(document) or next(damaged, None)
        return form or (None if unread_tool(document) is None else _UNREAD)
    if not isinstance(conversation, list | tuple) or not conversation:
        return None
    items = cast("list[Any]", conversation)
    if not all(isinstance(item, Mapping) for item in items):
        return None
    unread = (form for item in items if (form := provider_form(item, is_alone=False)))
    return next(unread, None) or next((name for name, matches in _LISTS.items() if matches(items)), None)


def provider_form(document: Mapping[str, Any], *, is_alone: bool = True) -> str | None:
    """Return the name of the form of a provider or a framework that an object has and that is refused, or None."""
    forms = ((name, form) for name, form in _FORMS.items() if is_alone or name != _SINGLE_MESSAGE)
    return next((name for name, form in forms if form.matches(document)), None)


def refuse_provider_data(value: object) -> None:
    """Refuse data that contains the reply of a provider or the message of a framework, because it becomes JSON.

    Args:
        value: The data, with only lists and dictionaries as containers.

    Raises:
        ValueError: There is such a value. The message names its place in the data, such as `steps.0`.
    """
    waiting: list[tuple[str, object, bool]] = [("", value, True)]
    while waiting:
        place, item, is_alone = waiting.pop()
        if isinstance(item, Mapping):
            data = cast("Mapping[str, Any]", item)
            if not place and refused_form(data):
                read_refused(data, AttachmentList())
            form = provider_form(data, is_alone=is_alone)
            if form is None and place and (name := provider_of(data)) not in (None, "error"):
                form = f"a reply of {name}"
            if form is not None:
                raise ValueError(
                    f"`{place}` is {form} beside other data: pass it alone, or name its place (for a file by "
                    "`--response-column`), or its ids and its usage would be graded as JSON"
                )
            waiting += [(f"{place}.{name}" if place else str(name), inner, True) for name, inner in data.items()]
        elif isinstance(item, list):
            entries = enumerate(cast("list[object]", item))
            waiting += [(f"{place}.{number}" if place else str(number), inner, False) for number, inner in entries]


def matches_refused(conversation: Any) -> bool:
    """Return whether a conversation must be refused.

    It is refused if it has a known form that is not supported, such as OpenTelemetry spans, or if it is a damaged
    document of a supported form. Unknown forms do not match.
    """
    return refused_form(conversation) is not None


def read_refused(conversation: Any, _attachments: AttachmentList) -> list[Message]:
    """Refuse a conversation with an error that names its form.

    Raises:
        UnknownBlockError: Always, except for a tool of `UNREAD_TOOLS`.
        ValueError: The conversation is the export of such a tool.
    """
    if tool := unread_tool(conversation):
        raise ValueError(tool)
    form = refused_form(conversation)
    problem = f"has {form}, which no reader knows"
    raise UnknownBlockError("messages", problem, *(_FORMS[form].remedy,) if form in _FORMS else ())
