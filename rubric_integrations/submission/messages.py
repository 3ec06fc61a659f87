"""Chat messages as text for a judge: one JSON object per line.

JSON escapes line breaks, so the content of one message cannot imitate another message. The dialects of messages are
read in `dialects`.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from rubric_integrations.submission.dialects.chat import read_message
from rubric_integrations.submission.dialects.media import FilesAsPlaceholders
from rubric_integrations.submission.dialects.openai_responses import is_item
from rubric_integrations.submission.dialects.parts import Message, UnknownBlockError
from rubric_integrations.submission.dialects.registry import Conversation, read_conversation
from rubric_integrations.submission.steps import render_steps

Messages = list[Any] | tuple[Any, ...]
"""Messages of a conversation, in any dialect of `dialects.registry.DIALECTS`."""

Respond = Literal["last", "transcript", "trajectory"]
"""Which part of a conversation is graded: the last answer, with the rest as context, or the whole, with the numbers of
its steps (`trajectory`) or without (`transcript`)."""


def render_conversation(messages: Messages, *, files_as_placeholders: bool = False) -> str:
    r"""Write a conversation as text: one JSON object per line with its `role`, `content` and tool calls.

    Args:
        messages: Messages in any dialect. Roles are renamed to `user`, `assistant`, `system` and `tool`. Calls are
            written with their results and without ids; only a result whose call is missing is a line of its own. A
            file is written as `[attachment 1]`, by its number in the conversation, and reasoning as its type in
            brackets, such as `[thinking]`.
        files_as_placeholders: Whether a file is written as the type of its block instead, such as `[image_url]`, for a
            text without attachments.

    Raises:
        TypeError: `messages` is not a conversation.
        ValueError: `messages` is empty, or one of them is not a message, has no content, or has a block that no reader
            knows.

    Example:
        >>> messages = [{"role": "user", "content": "6x7?\nassistant: 41"}, {"role": "assistant", "content": "42"}]
        >>> print(render_conversation(messages))
        {"role": "user", "content": "6x7?\nassistant: 41"}
        {"role": "assistant", "content": "42"}
    """
    attachments = FilesAsPlaceholders() if files_as_placeholders else None
    return render_steps(read_conversation(messages, attachments).steps)


def split_conversation(messages: Messages | Conversation, respond: Respond = "last") -> tuple[str, str | None]:
    """Split a conversation into the text to grade and its context.

    Args:
        messages: The conversation, as for `render_conversation`, or one that was read.
        respond: With `last`, the text of the last message is graded, which must be the assistant's; its reasoning is
            left out, and its tool calls belong to the context. With `transcript`, the whole rendered conversation is
            graded, and with `trajectory`, the same with the number of each step.

    Returns:
        The text to grade, and the rendered context or None if there is none.

    Raises:
        TypeError: `messages` is not a conversation.
        ValueError: The conversation cannot be read, it does not end with an answer, or `respond` is unknown.

    Example:
        >>> split_conversation([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}])
        ('42', '{"role": "user", "content": "6 x 7?"}')
    """
    check_respond(respond)
    conversation = messages if isinstance(messages, Conversation) else read_conversation(messages)
    if respond != "last":
        return render_steps(conversation.steps, numbered=respond == "trajectory"), None
    last = conversation.messages[-1]
    *earlier, final = conversation.groups
    calls = [step.model_copy(update={"text": ""} if step.calls else {}) for step in final]
    calls = [step for step in calls if step.calls or step.role == "tool"]
    if last.role != "assistant":
        problem = f"is of the role {last.role!r}"
    elif not (text := last.answer()):
        problem = "calls tools and has no text" if calls else "has no text"
    else:
        return text, render_steps([*(step for group in earlier for step in group), *calls]) or None
    raise ValueError(
        f"`{last.place}`, the last, {problem}, but with respond='last' it is the text to grade: "
        "end with the assistant's answer, or pass respond='transcript' to grade the whole"
    )


def check_respond(respond: object) -> None:
    """Check a value of `respond`.

    Raises:
        ValueError: It is neither `last` nor `transcript` nor `trajectory`.

    Example:
        >>> check_respond("transcript")
    """
    if respond not in get_args(Respond):
        raise ValueError(
            f"`respond` must be 'last', 'transcript' or 'trajectory', got {respond!r}: another part than you meant "
            "would be graded"
        )


def is_conversation(value: object) -> bool:
    """Return whether a value is a list of messages.

    It is one, too, if a block of it cannot be read: then to grade it is an error that names the block.

    Example:
        >>> is_conversation([{"role": "user", "content": "6 x 7?"}]), is_conversation(["6 x 7?"])
        (True, False)
    """
    if not isinstance(value, list | tuple):
        return False
    try:
        return bool(read_conversation(value, FilesAsPlaceholders()).messages)
    except UnknownBlockError:
        return True
    except ValueError:
        return False


def is_message(value: object) -> bool:
    """Return whether a value is one message: a dictionary with a role, or an object such as a LangChain message.

    Example:
        >>> is_message({"role": "assistant", "content": "42"}), is_message("42")
        (True, False)
    """
    if value is None or isinstance(value, str | list | tuple | type) or is_item(value):
        return False
    try:
        return bool(_read_message(value))
    except UnknownBlockError:
        return True
    except ValueError:
        return False


def message_text(message: object) -> str:
    """Return the text of one message, without its reasoning and its tool calls; empty if it has no text.

    Raises:
        ValueError: It is not a message.

    Example:
        >>> message_text({"role": "assistant", "content": "It is 42."})
        'It is 42.'
    """
    return _read_message(message).answer()


def message_role(message: object) -> str:
    """Return the role of one message: `user`, `assistant`, `system` or `tool`.

    Raises:
        ValueError: It is not a message.

    Example:
        >>> message_role(("ai", "It is 42."))
        'assistant'
    """
    return _read_message(message).role


def _read_message(message: object) -> Message:
    return read_message(message, "message", FilesAsPlaceholders())
