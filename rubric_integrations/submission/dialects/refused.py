"""Recognizes forms of agent runs that no reader reads, and damaged documents, to refuse them with a clear error.

Without this module, the chat reader would read some of these forms as messages without calls. Other forms would not be
recognized as conversations, and would be graded as one JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from rubric_integrations.submission.dialects.agents import matches_atif
from rubric_integrations.submission.dialects.autogen import matches_autogen
from rubric_integrations.submission.dialects.blocks import AttachmentList, Message, UnknownBlockError
from rubric_integrations.submission.dialects.chat import matches_gemini
from rubric_integrations.submission.dialects.mini_swe_agent import matches_mini_swe_agent
from rubric_integrations.submission.dialects.openhands import matches_openhands
from rubric_integrations.submission.dialects.openhands_sdk import matches_openhands_sdk
from rubric_integrations.submission.dialects.swe_agent import matches_swe_agent


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
    "Gemini's response": (_is_gemini, (matches_gemini,)),
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
        return next(unread, None) or next(damaged, None)
    if not isinstance(conversation, list | tuple) or not conversation:
        return None
    items = cast("list[Any]", conversation)
    if not all(isinstance(item, Mapping) for item in items):
        return None
    return next((name for name, matches in _LISTS.items() if matches(items)), None)


def matches_refused(conversation: Any) -> bool:
    """Return whether a conversation must be refused.

    It is refused if it has a known form that is not supported, such as OpenTelemetry spans, or if it is a damaged
    document of a supported form. Unknown forms do not match.
    """
    return refused_form(conversation) is not None


def read_refused(conversation: Any, _attachments: AttachmentList) -> list[Message]:
    """Refuse a conversation with an error that names its form.

    Raises:
        UnknownBlockError: Always.
    """
    raise UnknownBlockError("messages", f"has {refused_form(conversation)}, which no reader knows")
