"""Reads the content of Strands' spans, which by default is in their events and not in their attributes.

The events of a span are its messages, with the blocks of Amazon Bedrock as JSON, and its result, `gen_ai.choice`. The
result of an agent is a text, which is never parsed, because a model wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple, cast

from rubric_integrations._util.json import JsonObject, parse_json
from rubric_integrations.submission.messages import value_text

_ROLES = {
    "gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant",
    # A message with the results of tools, which is the user's in Bedrock.
    "gen_ai.tool.message": "user",
}  # fmt: skip
_CHOICE = "gen_ai.choice"


class SpanEvent(NamedTuple):
    """An event of a span: its name and its attributes."""

    name: str
    attributes: JsonObject


class EventContent(NamedTuple):
    """The input and the output of a span, from its events. None for a part that the events do not have."""

    input: Any
    output: Any


def is_of_strands(attributes: JsonObject) -> bool:
    """Return whether a span was written by Strands, in any version of its conventions."""
    return "strands-agents" in (attributes.get("gen_ai.system"), attributes.get("gen_ai.provider.name"))


def event_content(operation: str, events: Iterable[SpanEvent]) -> EventContent:
    """Return the content of a span of Strands.

    Args:
        operation: The operation of the span: `chat` for a request to a model, `execute_tool`, or the name of a kind of
            agent such as `invoke_agent`.
        events: The events of the span, in order.

    Example:
        >>> choice = SpanEvent("gen_ai.choice", {"message": "It is 42."})
        >>> event_content("invoke_agent", [choice]).output
        [{'role': 'assistant', 'content': [{'text': 'It is 42.'}]}]
    """
    messages, output = list[dict[str, Any]](), cast("Any", None)
    arguments: Any = None
    for event in events:
        if event.name == _CHOICE:
            output = event.attributes.get("message")
        elif event.name in _ROLES:
            content = event.attributes.get("content")
            arguments = content
            is_blocks = operation in ("chat", "invoke_agent")
            messages.append({"role": _ROLES[event.name], "content": _blocks(content) if is_blocks else content})
    if operation == "execute_tool":
        return EventContent(arguments, None if output is None else _result_text(_blocks(output)))
    if output is not None:
        output = _with_texts([{"role": "assistant", "content": _blocks(output) if operation == "chat" else output}])
    return EventContent(_with_texts(messages), output)


def _blocks(content: Any) -> Any:
    """Return the blocks that Strands wrote as JSON. Any other value is returned unchanged."""
    if isinstance(content, str):
        with suppress(ValueError):
            blocks = parse_json(content)
            return cast("Any", blocks) if isinstance(blocks, list) else content
    return content


def _with_texts(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return messages in which a text is one block, as in the others. None if there are no messages."""
    return [
        {**message, "content": [{"text": content}] if isinstance(content := message["content"], str) else content}
        for message in messages
    ] or None


def _result_text(blocks: Any) -> str:
    """Return the text of a tool's result: its texts, and its other blocks as JSON."""
    if not isinstance(blocks, list):
        return value_text(blocks)
    items = cast("list[Any]", blocks)
    texts = [item.get("text") if isinstance(item, dict) and len(item) == 1 else None for item in items]
    return "\n".join(
        text if isinstance(text, str) else value_text(item) for text, item in zip(texts, items, strict=True)
    )
