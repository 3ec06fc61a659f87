"""Recognizes forms of agent runs that no reader reads, to refuse them by their name.

Without them, the chat reader would take such a form for messages without calls, or call it no conversation at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import AttachmentList, Message, UnknownBlockError


def _swe_agent_steps(items: list[Any]) -> bool:
    return all(all(key in item for key in ("action", "observation", "response")) for item in items)


def _tau2_ticks(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("ticks"), list) and "task_id" in document and not document.get("messages")


def _spans(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("resourceSpans"), list)


_LISTS: dict[str, Callable[[list[Any]], bool]] = {
    "SWE-agent's `trajectory`, without its `history`": _swe_agent_steps,
}
_DOCUMENTS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "tau2's voice simulation (`ticks`)": _tau2_ticks,
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
