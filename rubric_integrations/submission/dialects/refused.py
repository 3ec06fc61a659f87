"""Recognizes forms of agent runs that no reader reads, to refuse them by their name.

Without them, the chat reader would take such a form for messages without calls, or call it no conversation at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import AttachmentList, Message, UnknownBlockError

_AUTOGEN = ("TextMessage", "MultiModalMessage", "StopMessage", "HandoffMessage", "ToolCallRequestEvent",
            "ToolCallExecutionEvent", "ToolCallSummaryMessage", "StructuredMessage", "ThoughtEvent",
            "FunctionExecutionResultMessage")  # fmt: skip
_OPENHANDS_SDK = ("ActionEvent", "ObservationEvent", "MessageEvent", "SystemPromptEvent", "AgentErrorEvent")


def _autogen(items: list[Any]) -> bool:
    return all(item.get("type") in _AUTOGEN for item in items)


def _smolagents(items: list[Any]) -> bool:
    is_step = [("step_number" in item, "task" in item, "plan" in item) for item in items]
    has_output = any("model_output" in item or "model_output_message" in item for item in items)
    return all(map(any, is_step)) and has_output


def _openhands_sdk(items: list[Any]) -> bool:
    return all("source" in item and "kind" in item for item in items) and any(
        item["kind"] in _OPENHANDS_SDK for item in items
    )


def _mini_swe_agent(items: list[Any]) -> bool:
    extras = [item["extra"] for item in items if isinstance(item.get("extra"), Mapping) and "role" in item]
    return any(isinstance(extra.get("actions"), list) for extra in extras)


def _swe_agent_steps(items: list[Any]) -> bool:
    return all(all(key in item for key in ("action", "observation", "response")) for item in items)


def _tau2_ticks(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("ticks"), list) and "task_id" in document and not document.get("messages")


def _mini_swe_agent_file(document: Mapping[str, Any]) -> bool:
    return str(document.get("trajectory_format")).startswith("mini-swe-agent")


def _spans(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("resourceSpans"), list)


_LISTS: dict[str, Callable[[list[Any]], bool]] = {
    "AutoGen's messages": _autogen,
    "smolagents' steps": _smolagents,
    "events of the OpenHands SDK (version 1)": _openhands_sdk,
    "mini-swe-agent's messages": _mini_swe_agent,
    "SWE-agent's `trajectory`, without its `history`": _swe_agent_steps,
}
_DOCUMENTS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "tau2's voice simulation (`ticks`)": _tau2_ticks,
    "mini-swe-agent's trajectory file": _mini_swe_agent_file,
    "OpenTelemetry spans": _spans,
}


def refused_form(conversation: Any) -> str | None:
    """Return the name of the form of a conversation that no reader reads; None for any other value."""
    if isinstance(conversation, Mapping):
        document = cast("Mapping[str, Any]", conversation)
        return next((name for name, matches in _DOCUMENTS.items() if matches(document)), None)
    if not isinstance(conversation, list | tuple) or not conversation:
        return None
    items = cast("list[Any]", conversation)
    if not all(isinstance(item, Mapping) for item in items):
        return None
    return next((name for name, matches in _LISTS.items() if matches(items)), None)


def matches_refused(conversation: Any) -> bool:
    """Return whether a conversation is in a known form that no reader reads."""
    return refused_form(conversation) is not None


def read_refused(conversation: Any, _attachments: AttachmentList) -> list[Message]:
    """Refuse a conversation by the name of its form.

    Raises:
        UnknownBlockError: Always.
    """
    raise UnknownBlockError("messages", f"has {refused_form(conversation)}, which no reader knows")
