"""The attachments of a submission as a DSPy type, so that they are never part of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from pydantic import ConfigDict

from rubric_integrations.judges.prompts.shown_files import ShownFile

# The names of formats in `input_audio`, where they differ from those of MIME types.
_AUDIO_FORMATS = {"mpeg": "mp3", "mp4": "m4a", "x-m4a": "m4a", "x-flac": "flac"}


class Attachments(dspy.Type):
    """The files of a submission, each as a line with its number and type, and the file.

    The forms are those of `dspy.Image`, `dspy.File` and `dspy.Audio`. A list of these types would leave the brackets,
    quotation marks and commas of a list in the prompt.
    """

    model_config = ConfigDict(frozen=True)

    files: tuple[ShownFile, ...]

    def format(self) -> list[dict[str, Any]]:
        """Return the content blocks."""
        return [block for file in self.files for block in ({"type": "text", "text": f"{file.label}\n"}, _block(file))]

    def __str__(self) -> str:
        """Return the blocks between DSPy's markers, as `str` of a `dspy.Image` does."""
        return str(self.serialize_model())


def with_attachments(texts: Mapping[str, str], files: Sequence[ShownFile]) -> dict[str, Any]:
    """Return all inputs of a signature: the texts, and the files in a field of their own if there are any."""
    return {**texts, "attachments": Attachments(files=tuple(files))} if files else dict(texts)


def texts_of_inputs(inputs: Mapping[str, Any]) -> list[str]:
    """Return what a judge reads as text of the inputs of a signature."""
    return [
        text
        for value in inputs.values()
        for text in (
            [text for file in value.files for text in file.texts] if isinstance(value, Attachments) else [str(value)]
        )
    ]


def _block(file: ShownFile) -> dict[str, Any]:
    if file.kind == "text":
        return {"type": "text", "text": f"{file.content}\n"}
    if file.kind == "audio":
        subtype = file.mime_type.partition("/")[2]
        return {
            "type": "input_audio",
            "input_audio": {"data": file.content, "format": _AUDIO_FORMATS.get(subtype, subtype)},
        }
    uri = file.content if file.is_url else f"data:{file.mime_type};base64,{file.content}"
    if file.kind == "document":
        # Without a name, which the line before it has: DSPy refuses one in requests to chat models of LangChain.
        return {"type": "file", "file": {"file_data": uri}}
    return {"type": "image_url", "image_url": {"url": uri, **({"detail": file.detail} if file.detail else {})}}
