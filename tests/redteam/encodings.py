"""Encodings in which an attack hides its text, and from which a capable judge reads it."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable

_CYRILLIC = str.maketrans("aceiopxyMTEH", "\u0430\u0441\u0435\u0456\u043e\u0440\u0445\u0443\u041c\u0422\u0415\u041d")


def _escape(template: str) -> Callable[[str], str]:
    return lambda text: "".join(template.format(ord(char)) for char in text)


def _letters(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(char) if char.isalpha() else char for char in text)


def _bold(char: str) -> str:
    return chr(0x1D400 + ord(char) - ord("A")) if char.isupper() else chr(0x1D41A + ord(char) - ord("a"))


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal escapes": _escape("\\x{:02x}"),
    "Unicode escapes": _escape("\\u{:04x}"),
    "percent": _escape("%{:02X}"),
    "HTML": _escape("&#{};"),
    "tag characters": lambda text: "".join(chr(0xE0000 + ord(char)) for char in text),
    "Cyrillic": lambda text: text.translate(_CYRILLIC),
    "full width": lambda text: "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text),
    "combining marks": _letters(lambda char: char + "\u0301"),
    "zero-width spaces": "\u200b".join,
    "mathematical letters": _letters(_bold),
    "ROT13": lambda text: codecs.encode(text, "rot13"),
    "reversed": lambda text: text[::-1],
    "spaced": " ".join,
}
"""What each encoding is called, and how it encodes a text."""
