"""The slots of a prompt template: what stands in place of the inputs, and what is filled in for it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from rubric_integrations._util.text_cache import cache_by_text
from rubric_integrations.judges.prompts.attachments import Attachments
from rubric_integrations.judges.prompts.shown_files import ShownFile

_SLOT = f"slot{secrets.token_hex(12)}"
# DSPy checks that the bytes of a file are base64: the slot for them is alphanumeric, and a multiple of four long.
_FILE_SLOT = f"slotFile{secrets.token_hex(7)}"
_SLOTS = re.compile(rf"{_SLOT}(\w+){_SLOT}|{_FILE_SLOT}(\d{{5}})A".encode())
# DSPy checks that a URL is one.
_SCHEME = re.compile(r"https?://")


class Slots(NamedTuple):
    """The parts of a request's body.

    Attributes:
        constants: The bytes that are the same in all requests, one more than there are slots.
        names: The name of each slot between them.
    """

    constants: tuple[bytes, ...]
    names: tuple[str, ...]

    def fill(self, inputs: Mapping[str, Any]) -> bytes:
        """Fill in the inputs, and return the bytes of the body."""
        values = _values(inputs)
        parts = [
            part for pair in zip(self.constants, (values[name] for name in self.names), strict=False) for part in pair
        ]
        return b"".join([*parts, self.constants[-1]])


def find_slots(body: bytes) -> Slots:
    """Find the slots in the body of a request whose inputs are those of `slot_inputs`."""
    constants, names, end = list[bytes](), list[str](), 0
    for match in _SLOTS.finditer(body):
        constants.append(body[end : match.start()])
        names.append((match[1] or match[2]).decode())
        end = match.end()
    return Slots((*constants, body[end:]), tuple(names))


def slot_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs of the same form, with slots in place of all that differs from question to question."""
    return {name: _slot_input(name, value) for name, value in inputs.items()}


def form_of(inputs: Mapping[str, Any]) -> object:
    """Return what a template depends on beside its texts, and beside the bytes, names and URLs of its files."""
    files = (file for value in inputs.values() if isinstance(value, Attachments) for file in value.files)
    return tuple(inputs), tuple((file.kind, file.mime_type, _scheme(file), file.detail) for file in files)


def _slot_input(name: str, value: Any) -> Any:
    if not isinstance(value, Attachments):
        return f"{_SLOT}{name}{_SLOT}"
    return Attachments(files=tuple(_slot_file(file, number) for number, file in enumerate(value.files)))


def _slot_file(file: ShownFile, number: int) -> ShownFile:
    slot = f"{_SLOT}{_content_slot(number)}{_SLOT}"
    content = slot if file.kind == "text" else _scheme(file) + slot if file.is_url else f"{_FILE_SLOT}{number:05d}A"
    return file._replace(label=f"{_SLOT}{_label_slot(number)}{_SLOT}", content=content)


def _values(inputs: Mapping[str, Any]) -> dict[str, bytes]:
    """Return what is filled in for each slot, by its name."""
    values: dict[str, bytes] = {}
    for name, value in inputs.items():
        if not isinstance(value, Attachments):
            values[name] = _encode(value)
            continue
        for number, file in enumerate(value.files):
            values[_label_slot(number)] = _encode(file.label)
            # Base64 is the same in JSON.
            is_base64 = file.kind != "text" and not file.is_url
            content = file.content.encode() if is_base64 else _encode(file.content.removeprefix(_scheme(file)))
            values[f"{number:05d}" if is_base64 else _content_slot(number)] = content
    return values


def _scheme(file: ShownFile) -> str:
    match = _SCHEME.match(file.content) if file.is_url else None
    return match[0] if match else ""


def _label_slot(number: int) -> str:
    return f"label_{number}"


def _content_slot(number: int) -> str:
    return f"content_{number}"


@cache_by_text
def _encode(text: str) -> bytes:
    from rubric_integrations.judges._direct.capture import encode_json_text

    return encode_json_text(text)
