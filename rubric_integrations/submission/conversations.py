"""Converts the conversations in the fields of a submission to texts, a trajectory and attachments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.submission.attachments import Attachment, refuse_paths
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.registry import Conversation, dialect_of, read_conversation
from rubric_integrations.submission.messages import check_respond, split_conversation
from rubric_integrations.submission.steps import Step, render_steps
from rubric_integrations.submission.thinking import SplitResponse, split_parts, split_thinking
from rubric_integrations.submission.trajectory import Trajectory


def convert_conversations(data: Mapping[str, Any], *, is_conversation: bool = False) -> dict[str, Any]:
    """Return the fields of a submission with texts in place of conversations, and without `respond`.

    Args:
        data: The fields. `response`, `query`, `reference` and `trajectory` may be conversations.
        is_conversation: Whether the response is a conversation, whatever it looks like.

    Raises:
        TypeError: The response is no conversation although it should be one.
        ValueError: A conversation cannot be read, `respond` is unknown, or there is nothing to grade.

    Example:
        >>> convert_conversations({"response": [("user", "6 x 7?"), ("ai", "It is 42.")]})["query"]
        '{"role": "user", "content": "6 x 7?"}'
    """
    fields = dict(data)
    respond, response = fields.pop("respond", None), fields.get("response")
    if isinstance(response, Mapping) and "messages" in response and set(response) <= {"messages", "respond"}:
        state = cast("Mapping[str, Any]", response)
        response, respond, is_conversation = state["messages"], state.get("respond") or respond, True
    if respond is not None:
        check_respond(respond)
    reader = _Reader(fields.get("attachments"))
    fields |= {"query": reader.text(fields, "query")} if "query" in fields else {}
    if is_conversation or isinstance(response, list | tuple) or dialect_of(response) is not None:
        fields |= _of_conversation(reader.read(response), respond or "last", fields)
    fields |= {"trajectory": reader.trajectory(fields)} if "trajectory" in fields else {}
    fields |= {"reference": reader.text(fields, "reference")} if "reference" in fields else {}
    fields |= {"attachments": reader.attachments} if reader.attachments else {}
    fields |= _split_response(fields.get("response"), fields.get("thinking"))
    if respond == "trajectory" and fields.get("show_trajectory") != "as_response":
        fields |= _of_trajectory(fields)
    return fields


class _Reader:
    """Reads conversations one after the other, and numbers their attachments together."""

    def __init__(self, explicit: Any):
        self._explicit = explicit
        self._list: AttachmentList | None = None

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The attachments of the submission, with those of the conversations that were read."""
        return () if self._list is None else tuple(self._list.items)

    def read(self, messages: Any) -> Conversation:
        """Read a conversation."""
        if self._list is None:
            explicit = refuse_paths(self._explicit)
            items = cast("list[Any]", explicit) if isinstance(explicit, list | tuple) else []
            self._list = AttachmentList(tuple(Attachment.model_validate(item) for item in items))
        return read_conversation(messages, self._list)

    def text(self, fields: Mapping[str, Any], name: str) -> Any:
        """Return a list of messages as text; any other value unchanged, for pydantic to validate."""
        value = fields[name]
        if not isinstance(value, list | tuple):
            return value
        return render_steps(self._named(name, value).steps)

    def trajectory(self, fields: Mapping[str, Any]) -> Any:
        """Return the trajectory of a conversation; None if it is empty, and any other value unchanged."""
        value = fields["trajectory"]
        if isinstance(value, Trajectory) or not value or _is_dump(value):
            return value or None
        return Trajectory(steps=self._named("trajectory", value).steps)

    def _named(self, name: str, value: Any) -> Conversation:
        try:
            return self.read(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"in the `{name}`: {error}") from None


def _of_conversation(conversation: Conversation, respond: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a conversation as the response sets."""
    response, context = split_conversation(conversation, respond)
    changed: dict[str, Any] = {"response": response, "query": _append_context(fields.get("query"), context)}
    if not fields.get("trajectory"):
        show = "as_response" if respond == "trajectory" else "if_needed"
        changed |= {"trajectory": Trajectory(steps=conversation.steps), "show_trajectory": show}
    elif respond == "trajectory":
        raise ValueError(
            "`response` is a conversation, and there is a `trajectory` beside it, but only one of them can be graded "
            "with respond='trajectory': remove the other"
        )
    return changed


def _of_trajectory(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that grade a trajectory, with the response after it as its last step."""
    if "trajectory" not in fields:
        raise ValueError(
            "`respond` is 'trajectory', but there is neither a conversation nor a `trajectory`: pass one, or leave "
            "`respond` out to grade the text"
        )
    trajectory, response = fields["trajectory"], fields.get("response")
    steps = [] if trajectory is None else list(Trajectory.model_validate(trajectory).steps)
    steps += [Step(role="assistant", text=response)] if isinstance(response, str) and response.strip() else []
    if not steps:
        return {}
    whole = Trajectory(steps=tuple(steps))
    return {"response": whole.text(), "trajectory": whole, "show_trajectory": "as_response"}


def _is_dump(value: Any) -> bool:
    """Return whether a value is a trajectory that `model_dump` wrote."""
    steps = cast("Mapping[str, Any]", value).get("steps") if isinstance(value, Mapping) else None
    return isinstance(steps, list | tuple) and all(isinstance(step, Step) or "role" in step for step in steps)


def _split_response(response: Any, thinking: Any) -> dict[str, Any]:
    """Return the fields that change if a response is a dictionary, or begins with a thinking block.

    Raises:
        ValueError: There is thinking without an answer, there are two thinkings, or the dictionary has other keys.
    """
    if isinstance(response, Mapping):
        parts = split_parts(cast("Mapping[str, Any]", response))
        if parts.thinking and thinking:
            raise ValueError("`response` has a `thinking` of its own beside the field `thinking`: remove one of them")
    elif isinstance(response, str) and not thinking:
        parts = split_thinking(response)
    else:
        return {}
    if parts.block and not parts.output:
        raise ValueError(_no_answer(parts))
    return {"response": parts.output, "thinking": parts.thinking or thinking or None}


def _no_answer(parts: SplitResponse) -> str:
    unclosed = "" if parts.is_closed else ", which is not closed (was it cut off by a token limit?)"
    return f"`response` has no answer after its `<{parts.block}>` block{unclosed}: there is nothing to grade"


def _append_context(query: Any, context: str | None) -> Any:
    """Append the earlier part of a conversation to the query."""
    if context is None or not isinstance(query, str | None):
        return query
    return f"{query}\n\n{context}" if query else context
