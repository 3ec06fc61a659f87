"""Reads the outputs of DSPy's predictions, and the text and the files of DSPy's values.

Other modules import this module only when they get a value of one of DSPy's types. The user's program has then already
imported DSPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from mimetypes import guess_type
from typing import Any, cast
from urllib.parse import urlsplit

import dspy

from rubric_integrations._util.json import json_lines
from rubric_integrations.submission.attachments import Attachment
from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.dialects.refused import refuse_provider_data
from rubric_integrations.submission.dialects.replies import matches_reply, reply_messages
from rubric_integrations.submission.messages import (
    Messages,
    document_texts,
    is_conversation,
    is_empty,
    plain_value,
    split_outputs,
    value_text,
)

# Fields that DSPy's modules (ChainOfThought, ReAct, CodeAct, MultiChainComparison, RLM and ReActV2) add to the outputs
# that a program declares. A prediction does not contain its signature. Therefore the fields are recognized by their
# names.
_ADDED_BY_MODULES = frozenset({"reasoning", "rationale", "trajectory", "final_reasoning", "termination_reason"})


class AttachedValues:
    """Collects the values that a judge gets as attachments, in the order in which they occur in the texts.

    Example:
        >>> files = AttachedValues()
        >>> files.add(dspy.Image("data:image/png;base64,AAAA")), len(files.attachments)
        ('[attachment 1]', 1)
    """

    def __init__(self) -> None:
        # By identity, because a value is read more than once. The values are kept: otherwise another value could get
        # the same identity.
        self._values: dict[int, tuple[dspy.Type, Attachment]] = {}

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The values that were added so far, as attachments."""
        return tuple(attachment for _, attachment in self._values.values())

    def add(self, value: dspy.Type) -> str | None:
        """Add a value, and return the text that replaces it. None if the value has neither bytes nor an HTTP address.

        Raises:
            pydantic.ValidationError: (a ValueError) The value cannot be an attachment, for example because it is too
                large.
        """
        if id(value) not in self._values:
            attachment = _attachment(value)
            if attachment is None:
                return None
            self._values[id(value)] = (value, attachment)
        return f"[attachment {list(self._values).index(id(value)) + 1}]"


def _attachment(value: dspy.Type) -> Attachment | None:
    if isinstance(value, dspy.Audio):
        return Attachment(data=value.data, mime_type=f"audio/{value.audio_format}")
    if isinstance(value, dspy.File) and value.file_data and value.file_data.startswith("data:"):
        return Attachment(data=value.file_data, name=value.filename)
    if isinstance(value, dspy.Image):
        if value.url.startswith("data:"):
            return Attachment(data=value.url)
        if value.url.startswith(("http://", "https://")):
            # Requests do not contain the type of an image at a URL. The URL does not always have a suffix.
            return Attachment(url=value.url, mime_type=guess_type(urlsplit(value.url).path)[0] or "image/png")
    return None


# The types of content parts that are not text, and the name that replaces them in a judge's prompt.
_BINARY_PARTS = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "audio_url": "audio", "input_audio": "audio",
    "video": "video", "video_url": "video", "input_video": "video",
    "file": "file", "input_file": "file", "document": "document",
}  # fmt: skip


def field_text(value: object, files: AttachedValues | None = None) -> str:
    """Return the text of a field's value: texts and `dspy.Code` unchanged, other data as JSON, never a Python repr.

    An image is written as `[image]`, and other binary values as `[audio]`, `[video]`, `[file]` or `[document]`, also
    inside lists, dictionaries and pydantic models. Base64 would fill a judge's prompt.

    Args:
        value: The value.
        files: Collects the values of the types `dspy.Image`, `dspy.Audio` and `dspy.File`. In the text, each of them is
            replaced by its number, such as `[attachment 1]`.

    Example:
        >>> field_text(dspy.Code(code="print(42)")), field_text({"chart": dspy.Image("data:image/png;base64,AAAA")})
        ('print(42)', '{"chart": "[image]"}')
    """
    simplify = partial(simplified, files)
    if isinstance(value, dspy.History):
        return json_lines([plain_value(message, simplify) for message in value.messages])
    return value_text(value, simplify)


def simplified(files: AttachedValues | None, value: object) -> object | None:
    """Return the text or the fields of a value of DSPy's types, or None for any other value.

    Args:
        files: Collects images and other files. Each collected file is replaced by its number, such as `[attachment 1]`.
            With None, a file is replaced by its type, such as `[image]`.
        value: The value.
    """
    if isinstance(value, dspy.Example):
        return dict(value.items())
    if not isinstance(value, dspy.Type):
        return None
    return (files and files.add(value)) or _type_text(value)


def _type_text(value: dspy.Type) -> str | None:
    """Return the text of a value of DSPy's types or of a user's subclass. None for data, such as citations."""
    if isinstance(value, dspy.Image):
        return "[image]"
    if isinstance(value, dspy.Audio):
        return "[audio]"
    try:
        content = cast("object", value.format())
    except (NotImplementedError, ValueError):  # Types that contain data do not implement it.
        return None
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    texts = [_part_text(part) for part in cast("list[object]", content)]
    return "\n".join(text for text in texts if text is not None) if texts and None not in texts else None


def _part_text(part: object) -> str | None:
    """Return the text of a content part that DSPy would send. None for a part that is neither text nor binary."""
    if not isinstance(part, Mapping):
        return None
    content = cast("Mapping[str, Any]", part)
    kind, source = content.get("type"), content.get("source")
    if kind == "text":
        return str(content.get("text", ""))
    # The source of a document may be text. The fields of the document then contain this text, with the title.
    is_text = isinstance(source, Mapping) and cast("Mapping[str, Any]", source).get("type") == "text"
    return f"[{_BINARY_PARTS[kind]}]" if kind in _BINARY_PARTS and not is_text else None


def declared_outputs(pred: Mapping[str, Any]) -> dict[str, Any]:
    """Return a prediction's fields without the fields that DSPy's modules add: reasoning, trajectories, tool calls.

    A tool's observation in a ReAct `trajectory` often contains the right answer. If the trajectory were graded, an
    agent that ignores the observation would still be graded as right. If DSPy's modules have added all fields of a
    prediction, all fields are returned.

    Example:
        >>> declared_outputs(dspy.Prediction(trajectory={"observation_0": 42}, reasoning="...", answer="No idea."))
        {'answer': 'No idea.'}
    """
    fields = dict(pred.items())
    return {name: value for name, value in fields.items() if not _is_added(name, value)} or fields


def _is_added(name: str, value: Any) -> bool:
    if name == "history":  # of ReActV2, but a program may declare a text of this name
        return isinstance(value, dspy.History)
    if name == "actions" and isinstance(value, list) and value:  # of Avatar
        return all(type(action).__name__ == "ActionOutput" for action in cast("list[object]", value))
    return name in _ADDED_BY_MODULES or isinstance(value, dspy.Reasoning)


def response_text(fields: Mapping[str, Any], files: AttachedValues | None = None) -> str | list[Any]:
    """Return the text of the fields to grade.

    The text is empty if all fields are empty. If the only field is a conversation, it is returned as a list of
    messages. Its last answer can then be graded with the rest as context.

    Args:
        fields: The outputs to grade, by name.
        files: Collects the images and other files in these outputs.
    """
    value = next(iter(fields.values())) if len(fields) == 1 else None
    if matches_reply(value):
        return reply_messages(value)
    if all(is_empty(value, partial(simplified, None)) for value in fields.values()):
        return ""
    if is_conversation(value):
        return list(cast("Messages", value))
    refuse_provider_data(plain_value(fields, partial(simplified, None)))
    return labelled_text(fields, files)


def trajectory_fields(pred: Any) -> dict[str, Any]:
    """Return the field `trajectory` of a submission, and how judges see it, from the steps in a prediction.

    The result is empty if the prediction has no steps.

    `dspy.ReAct` records the steps in the field `trajectory`, `dspy.ReActV2` in the field `history`. A user's program
    can also return chat messages in the field `trajectory`. An observation often contains the right answer. Therefore
    judges see the steps only for criteria that need them.

    Example:
        >>> trajectory_fields(dspy.Prediction(trajectory={"thought_0": "Look."}, answer="42"))
        {'trajectory': {'thought_0': 'Look.'}, 'show_trajectory': 'if_needed'}
    """
    fields = cast("Mapping[str, Any]", pred if isinstance(pred, dspy.Example | Mapping) else {})
    trajectory, history = fields.get("trajectory"), fields.get("history")
    if trajectory != {} and dialect_of(trajectory) != "dspy_react" and not is_conversation(trajectory):
        has_calls = isinstance(history, dspy.History) and any("tool_calls" in turn for turn in history.messages)
        trajectory = history if has_calls else None
    return {} if trajectory is None else {"trajectory": trajectory, "show_trajectory": "if_needed"}


def prediction_fields(pred: Any) -> dict[str, Any]:
    r"""Return the fields of a submission from a prediction: the outputs that its program declares and its trajectory.

    A list under a name of documents, such as `context`, becomes the context of the submission.

    Example:
        >>> prediction_fields(dspy.Prediction(reasoning="...", answer="42", unit="m", context=["6 x 7 is 42."]))
        {'response': 'answer: 42\n\nunit: m', 'context': ('6 x 7 is 42.',)}
    """
    files = AttachedValues()
    graded, documents = split_outputs(declared_outputs(pred))
    response = response_text(graded, files)
    fields: dict[str, Any] = {"attachments": files.attachments} if files.attachments else {}
    if documents:
        fields["context"] = context_texts(documents)
    return {"response": response, **fields, **({} if isinstance(response, list) else trajectory_fields(pred))}


def context_texts(documents: object) -> tuple[str, ...]:
    """Return the texts of one document, or of a list of documents, which may have types of DSPy.

    Empty documents are left out. A document that is not a text becomes JSON.

    Example:
        >>> context_texts([dspy.Example(title="a"), "b"])
        ('{"title": "a"}', 'b')
    """
    several = cast("list[object]", documents) if isinstance(documents, list | tuple) else [documents]
    simple = (simplified(None, document) for document in several)
    return document_texts([d if s is None else s for d, s in zip(several, simple, strict=True)])


def labelled_text(fields: Mapping[str, Any], files: AttachedValues | None = None) -> str:
    """Return the text of one field. For several fields, return a paragraph for each, such as `answer: 42`."""
    if len(fields) == 1:
        return field_text(next(iter(fields.values())), files)
    return "\n\n".join(f"{name}: {field_text(value, files)}" for name, value in fields.items())
