"""Decodes what a text may hide from a search: a capable judge reads base64 or look-alike letters, and may quote them.

Only what judges are known to decode without a tool is decoded here, once and not in layers. Everything takes linear
time.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from rubric_integrations._util.text_cache import cache_by_text

# Characters that are invisible (Unicode calls them default-ignorable).
INVISIBLE_CHARS = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"[{INVISIBLE_CHARS}]")
# Tag characters are ASCII, moved to a block that no font shows.
_TAG_CHARS = {0xE0000 + code: code for code in range(0x20, 0x7F)}
# Cyrillic and Greek letters that look like Latin ones, and quotation marks that look like those of JSON.
_LOOK_ALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u0475\u051b\u0432\u043c\u043d\u0442\u043a\u0433"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0405\u0408\u0474"
    "\u03b1\u03b5\u03b9\u03bd\u03bf\u03c1\u03c4\u03c5\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4"
    "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb",
    "aeopcyxijsdvqbmhtkrABEKMHOPCTXISJVaeivoptuABEZHIKMNOPT" + '"' * 7,
)
# The most plain characters for which one character stands, such as a ligature of three letters.
_LONGEST_PLAIN_CHARS = 3
_BACKSLASHES = re.compile(r"\\{2,}")
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|u\{([0-9a-f]{1,6})\}|U([0-9a-f]{8}))|%([0-9a-f]{2})", re.IGNORECASE
)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}")
_HEXADECIMAL = re.compile(r"(?:[0-9A-Fa-f]{2}[\s:,]?){8,}")
_BINARY = re.compile(r"(?:[01]{8}[\s,]?){8,}")
_DECIMAL = re.compile(r"(?:\d{2,3}[\s,]+){8,}")


@cache_by_text
def compact_forms(text: str) -> tuple[str, ...]:
    r"""Return a text as it may be read, in each form lower-cased and without white space: as it is, and decoded.

    Example:
        >>> compact_forms("v \\x65 r")[:2]
        ('v\\x65r', 'ver')
    """
    compact = ("".join(form.split()).casefold() for form in _forms(text))
    return tuple(dict.fromkeys(form for form in compact if form))


def _forms(text: str) -> Iterator[str]:
    visible = _readable(text)
    plain = _unescaped(visible)
    yield visible
    yield plain
    yield _readable("\n".join(_decoded_tokens(plain)))
    yield codecs.encode(plain, "rot13")
    yield plain[::-1]


def _readable(text: str) -> str:
    """Replace the characters of a text by the plain ones as which a reader sees them."""
    if text.isascii():
        return text
    visible = _INVISIBLE.sub("", text.translate(_TAG_CHARS))
    return "".join(map(_plain_char, visible)).translate(_LOOK_ALIKES)


@lru_cache(maxsize=4096)
def _plain_char(char: str) -> str:
    # One character at a time: Unicode sorts a long run of combining marks in quadratic time.
    decomposed = unicodedata.normalize("NFKD", char)
    if len(decomposed) == 1:
        return "" if unicodedata.combining(decomposed) else decomposed
    plain = "".join(part for part in decomposed if not unicodedata.combining(part))
    # Longer ones are no letters of a verdict, and would make a text up to 18 times as long.
    return plain if len(plain) <= _LONGEST_PLAIN_CHARS else char


def _unescaped(text: str) -> str:
    """Resolve the escapes of programming languages, of URLs and of HTML."""
    if "\\" in text or "%" in text:
        text = _ESCAPE.sub(_char, _BACKSLASHES.sub(r"\\", text))
    return html.unescape(text) if "&" in text else text


def _char(escape: re.Match[str]) -> str:
    code = int(next(filter(None, escape.groups())), 16)
    return chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else ""


def _decoded_tokens(text: str) -> Iterator[str]:
    """Yield what the long tokens of a text are in base64, or as the numbers of characters."""
    for token in _BASE64.findall(text):
        standard = token.replace("-", "+").replace("_", "/")
        try:
            yield base64.b64decode(standard[: len(standard) - (len(standard) % 4 == 1)] + "==").decode(errors="ignore")
        except binascii.Error:
            continue
    for token in _HEXADECIMAL.findall(text):
        digits = re.sub(r"[\s:,]", "", token)
        yield bytes.fromhex(digits).decode(errors="ignore")
    for token in _BINARY.findall(text):
        yield "".join(chr(int(code, 2)) for code in re.findall("[01]{8}", token))
    for token in _DECIMAL.findall(text):
        yield "".join(chr(int(code)) for code in token.replace(",", " ").split())
