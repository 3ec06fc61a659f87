"""Writes conversations, values and documents as text for a judge: chat messages as one JSON object per line.

JSON escapes line breaks. Therefore the content of a message cannot imitate another message.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, cast, get_args

from pydantic import BaseModel, RootModel

from rubric_integrations._util.records import Record
from rubric_integrations.submission.dialects.blocks import (
    FilesAsPlaceholders,
    Message,
    UnknownBlockError,
    refuse_bytes,
)
from rubric_integrations.submission.dialects.chat import is_item, read_message
from rubric_integrations.submission.dialects.detect import Conversation, read_conversation
from rubric_integrations.submission.steps import Step, render_steps

Messages = list[Any] | tuple[Any, ...]
"""Messages of a conversation, in any dialect of `submission.dialects.detect.DIALECTS`."""

Respond = Literal["last", "transcript", "trajectory"]
"""The part of a conversation that is graded.

`last` is the last answer, with the rest as context. `transcript` is the text of all messages. `trajectory` is the same
text with the number of each step.
"""


FieldSource = str | Callable[[Any], Any]
"""Selects one value in the data of a framework: the name of the value, or a function of the data."""


class Fields(Record):
    """The sources of a submission's fields in the data of a framework, such as DSPy or a trainer.

    A source is the name of a value in the data (a column, a key or a field of an example). A source can also be a
    function that receives the data and returns the value. With None, the usual source of the framework is used.

    Attributes:
        response: The text that is graded.
        query: The task that the response answers.
        reference: A reference response.
        context: Documents, such as retrieved passages: a text or a list.

    Example:
        >>> Fields(reference="answer", context="passages").query is None
        True
    """

    response: FieldSource | None = None
    query: FieldSource | None = None
    reference: FieldSource | None = None
    context: FieldSource | None = None


NO_FIELDS = Fields()


def render_conversation(messages: Messages, *, files_as_placeholders: bool = False) -> str:
    r"""Write a conversation as text: one JSON object per line with its `role`, `content` and tool calls.

    Args:
        messages: Messages in any dialect. Roles are renamed to `user`, `assistant`, `system` and `tool`. Calls are
            written with their results and without ids. A result without a call is a separate line. A file is written as
            `[attachment 1]`, by its number in the conversation. Reasoning is written as its type in brackets, such as
            `[thinking]`.
        files_as_placeholders: Whether a file is written as the type of its block, such as `[image_url]`, instead of its
            number. Use this for a text without attachments.

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
        messages: The conversation: messages in any dialect, or a `Conversation`.
        respond: With `last`, the text of the last message is graded, which must be a message of the assistant. Its
            reasoning is left out and its tool calls are part of the context. For a session of a coding agent, the
            context is only the prompts of the user. With `transcript`, the text of all messages is graded. With
            `trajectory`, the same text with the number of each step is graded.

    Returns:
        The text to grade and the text of the context. The text of the context is None if the conversation has no
        context.

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
        before = [step for group in earlier for step in group]
        return text, _prompts(before) if conversation.is_session else render_steps([*before, *calls]) or None
    raise ValueError(
        f"`{last.place}`, the last, {problem}, but with respond='last' it is the text to grade: "
        "end with the assistant's answer, or pass respond='transcript' to grade the whole"
    )


def _prompts(steps: list[Step]) -> str | None:
    prompts = [step for step in steps if step.role == "user"]
    return prompts[0].text if len(prompts) == 1 else render_steps(prompts) or None


def check_respond(respond: object) -> None:
    """Check a value of `respond`.

    Raises:
        ValueError: The value is neither `last` nor `transcript` nor `trajectory`.

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

    A list of messages that contain an unreadable block also counts. When this list is graded, an error names the block.

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
    """Return the text of one message, without its reasoning and its tool calls. Empty for a message without text.

    Raises:
        ValueError: The value is not a message.

    Example:
        >>> message_text({"role": "assistant", "content": "It is 42."})
        'It is 42.'
    """
    return _read_message(message).answer()


def message_role(message: object) -> str:
    """Return the role of one message: `user`, `assistant`, `system` or `tool`.

    Raises:
        ValueError: The value is not a message.

    Example:
        >>> message_role(("ai", "It is 42."))
        'assistant'
    """
    return _read_message(message).role


def _read_message(message: object) -> Message:
    return read_message(message, "message", FilesAsPlaceholders())


Simplify = Callable[[object], object | None]
"""The type of a function that returns the text or the fields of a framework's value, such as `dspy.Code`.

It returns None for any other value.
"""

_DATA_URI = re.compile(r"\s*data:(\w+)/[^,\s]*;base64,[\w+/=\s%-]*")
_MEDIA = ("image", "audio", "video")


def _no_special_type(_value: object) -> None:
    return None


def value_text(value: object, simplify: Simplify = _no_special_type) -> str:
    """Return a value as text.

    A text is returned unchanged. A conversation is returned as its text, and None as the empty text. Any other value
    becomes JSON.

    A value that becomes JSON is converted by `plain_value` first, which replaces images and base64 by placeholders.

    Args:
        value: The value.
        simplify: A function that returns the text or the fields of a value that has a type of a framework, and None for
            any other value. It is called before any other conversion, also for nested values.

    Raises:
        ValueError: The value is or contains bytes.

    Example:
        >>> value_text({"answer": 42}), value_text(None)
        ('{"answer": 42}', '')
    """
    if simplify(value) is None and is_conversation(value):
        return render_conversation(cast("list[Any]", value), files_as_placeholders=True)
    plain = plain_value(value, simplify)
    if plain is None or isinstance(plain, str):
        return plain or ""
    return json.dumps(plain, ensure_ascii=False, default=str) if isinstance(plain, dict | list | bool) else str(plain)


def plain_value(value: object, simplify: Simplify = _no_special_type) -> Any:
    """Convert a value, and all values in it, to values that JSON can represent.

    Pydantic models and dataclasses become dictionaries. Enums become their values, and sets become sorted lists. The
    keys of dictionaries become texts. Images and base64 become placeholders such as `[image]`, because they would fill
    the judge's prompt. Other values, such as dates, are not changed.

    Args:
        value: The value.
        simplify: A function that returns the text or the fields of a value that has a type of a framework, and None for
            any other value. It is called before any other conversion.

    Raises:
        ValueError: The value is or contains bytes.

    Example:
        >>> plain_value({(1, 2): {"x"}})
        {'(1, 2)': ['x']}
    """
    refuse_bytes(value)
    simple = simplify(value)
    if simple is not None:
        return simple if isinstance(simple, str) else plain_value(simple, simplify)
    if isinstance(value, Enum):
        return plain_value(value.value, simplify)
    if isinstance(value, str):
        data_uri = _DATA_URI.fullmatch(value)
        return value if data_uri is None else f"[{data_uri[1] if data_uri[1] in _MEDIA else 'file'}]"
    if type(value).__module__.partition(".")[0] == "PIL":
        return "[image]"
    if isinstance(value, RootModel):
        return plain_value(cast("RootModel[object]", value).root, simplify)
    fields = _fields(value)
    if fields is not None:
        return {
            str(refuse_bytes(name.value if isinstance(name, Enum) else name)): plain_value(item, simplify)
            for name, item in fields.items()
        }
    if isinstance(value, set | frozenset):
        return sorted((plain_value(item, simplify) for item in cast("set[object]", value)), key=str)
    if isinstance(value, list | tuple):
        return [plain_value(item, simplify) for item in cast("list[object]", value)]
    return value


def _fields(value: object) -> Mapping[Any, object] | None:
    """Return the fields of a model, a dataclass or a mapping, or None for any other value."""
    if isinstance(value, BaseModel):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return cast("Mapping[Any, object]", value) if isinstance(value, Mapping) else None


def document_texts(documents: object) -> tuple[str, ...]:
    """Return the texts of one document, or of a list of documents, without the empty ones.

    The text of a LangChain document is its `page_content`. Any other value that is not a text becomes JSON.

    Example:
        >>> document_texts(["The margin was 8.4%.", {"page": 3}, " "]), document_texts(None)
        (('The margin was 8.4%.', '{"page": 3}'), ())
    """
    is_list = isinstance(documents, Sequence) and not isinstance(documents, str | bytes)
    several = cast("Sequence[object]", documents) if is_list else [documents]
    texts = (_text_of(document) for document in several)
    return tuple(text for text in texts if text.strip())


DOCUMENT_NAMES = ("context", "documents", "passages")
"""The names of documents in a row, and of retrieved documents in the outputs of a program."""


class Outputs(NamedTuple):
    """The outputs of a program.

    Attributes:
        graded: The outputs to grade, by name.
        documents: The documents that the program retrieved.
    """

    graded: dict[str, Any]
    documents: tuple[Any, ...]


def split_outputs(outputs: Mapping[str, Any], documents_name: str | None = None) -> Outputs:
    """Separate the retrieved documents of a program from the outputs to grade.

    If documents were graded, the response would get credit for their content. An output counts as documents if it is a
    list under one of `DOCUMENT_NAMES`, such as `context`. If a program has no other output, its documents are graded as
    the response.

    Args:
        outputs: The outputs by name.
        documents_name: An additional name under which an output counts as documents. This output may have any type.

    Example:
        >>> split_outputs({"context": ["The margin was 8.4%."], "answer": "No idea."})
        Outputs(graded={'answer': 'No idea.'}, documents=('The margin was 8.4%.',))
    """

    def is_documents(name: str) -> bool:
        return name == documents_name or (name in DOCUMENT_NAMES and isinstance(outputs[name], list | tuple))

    graded = {name: value for name, value in outputs.items() if not is_documents(name)}
    if not graded or len(graded) == len(outputs):
        return Outputs(dict(outputs), ())
    values = [value for name, value in outputs.items() if name not in graded]
    lists = [cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value] for value in values]
    return Outputs(graded, tuple(document for documents in lists for document in documents))


def is_empty(value: object, simplify: Simplify = _no_special_type) -> bool:
    """Return whether an output has nothing to grade: None, a blank text, or a list that contains only such values.

    A mapping or a model with fields is not empty, even if all its values are None.

    Args:
        value: The output.
        simplify: A function that returns the text or the fields of a value that has a type of a framework, and None for
            any other value.

    Example:
        >>> is_empty(["", " "]), is_empty({}), is_empty({"page": None}), is_empty(0)
        (True, True, False, False)
    """
    plain = plain_value(value, simplify)
    if isinstance(plain, list | tuple):
        return all(is_empty(item) for item in cast("list[object]", plain))
    return plain is None or plain == {} or (isinstance(plain, str) and not plain.strip())


def _text_of(document: object) -> str:
    content: Any = getattr(document, "page_content", None)
    return content if isinstance(content, str) else value_text(document)
