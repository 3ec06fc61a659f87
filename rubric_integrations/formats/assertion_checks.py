r"""Converts assertions that promptfoo or AgentV evaluates in code to a `Check` with the same result for every text.

Both programs run in JavaScript, whose white space, lower case and regular expressions differ from Python's. Therefore,
most types become a pattern that matches like JavaScript. If there is no such pattern, the assertion is
refused, and the caller lists it as not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from rubric_integrations.formats.parsing import load_text, short
from rubric_integrations.rubric.check import Check
from rubric_integrations.rubric.rubric import RubricError

CODED_TYPES = frozenset(
    {
        "contains", "icontains", "contains-any", "contains-all", "icontains-any", "icontains-all", "starts-with",
        "ends-with", "equals", "regex", "is-json",
    }
)  # fmt: skip
"""The types of assertions that can become a check, written with hyphens and without `not-`."""

# White space in JavaScript: the body of a class in a pattern, and the same characters.
_SPACE = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SPACES = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
    "\u205f\u3000\ufeff"
)
_ANY = r"[\s\S]*"


def check_of(kind: str, value: Any, *, is_negated: bool, trims: bool, reads_numbers: bool) -> Check:
    r"""Return the check that has the same result as an assertion for every text.

    Args:
        kind: The type of the assertion, such as `starts-with`: one of `CODED_TYPES`.
        value: The value of the assertion, after its variables are filled in.
        is_negated: Whether the assertion passes if the condition is false.
        trims: Whether `equals`, `starts-with` and `ends-with` ignore white space around the response and the value, as
            in AgentV.
        reads_numbers: Whether `contains` accepts a number as text, and `is-json` accepts a schema, as in promptfoo.

    Raises:
        ValueError: No check has the same result as the assertion for every text. The message is a phrase whose
            subject is the assertion, such as `is negated`.

    Example:
        >>> check_of("starts-with", "a.b", is_negated=False, trims=False, reads_numbers=True).regex
        '\\Aa\\.b'
    """
    if kind == "is-json":
        if is_negated:
            raise ValueError("is negated")
        return _check({"json_schema": _schema(value) if reads_numbers else _no_schema(value)})
    if kind in ("contains", "icontains") and reads_numbers and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if kind.endswith(("-any", "-all")):
        texts = _texts(value, may_be_text=reads_numbers)
    elif isinstance(value, str) and value:
        texts = [value]
    else:
        raise ValueError(f"has the value {short(value)}, and not a text")
    if kind in ("contains", "contains-all") and not is_negated:
        return _check({"contains": texts[0] if len(texts) == 1 else tuple(texts)})
    pattern = _pattern(kind, texts, trims=trims)
    # The pattern is checked alone first, because an extra bracket would close the group around it.
    check = _check({"regex": pattern})
    return _check({"regex": rf"\A(?!{_ANY}(?:{pattern}))"}) if is_negated else check


def _check(fields: dict[str, Any]) -> Check:
    try:
        return Check.model_validate(fields)
    except ValidationError as error:
        raise ValueError(f"has a value that no check takes ({error.errors()[0]['msg'][:100]})") from None


def _texts(value: Any, *, may_be_text: bool) -> list[str]:
    """Return the texts of a list. A single text counts as a list of one, unless promptfoo would split it."""
    if isinstance(value, str) and may_be_text and value and not set(value) & {",", '"', "'"} and value.strip() == value:
        return [value]
    texts = value if isinstance(value, list | tuple) else ()
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"has the value {short(value)}, and not a list of texts")
    return list(texts)


def _pattern(kind: str, texts: list[str], *, trims: bool) -> str:
    """Return a pattern that matches somewhere in a text if, and only if, the condition is true for the text."""
    if kind == "regex":
        return python_pattern(texts[0])
    if trims and kind in ("equals", "starts-with", "ends-with"):
        start, end, texts = rf"\A[{_SPACE}]*", rf"[{_SPACE}]*\Z", [text.strip(_SPACES) for text in texts]
        if not texts[0]:
            raise ValueError("has a value of white space alone")
    else:
        start, end = r"\A", r"\Z"
    literals = [_any_case(text) if kind.startswith("icontains") else re.escape(text) for text in texts]
    if kind.endswith("-all"):
        return r"\A" + "".join(f"(?={_ANY}{literal})" for literal in literals)
    before = start if kind in ("equals", "starts-with") else ""
    after = end if kind in ("equals", "ends-with") else ""
    return f"{before}{'|'.join(literals)}{after}"


def _any_case(text: str) -> str:
    """Return a pattern for all texts that have the same lower case as this text.

    Raises:
        ValueError: The text has characters beyond ASCII, whose lower case may depend on the characters around them.
    """
    if not text.isascii():
        raise ValueError("ignores the case of characters beyond ASCII")
    parts = [f"[{char.lower()}{char.upper()}]" if char.isalpha() else re.escape(char) for char in text]
    # The lower case of the Kelvin sign is k. The lower case of a dotted capital I is an i followed by a combining dot
    # above.
    parts = [r"[kK\u212a]" if part == "[kK]" else part for part in parts]
    if parts[-1] == "[iI]":
        parts[-1] = r"[iI\u0130]"
    return "".join(parts)


_SETS = {"d": "0-9", "w": "A-Za-z0-9_", "s": _SPACE}
_WORD = "[A-Za-z0-9_]"
_BOUNDARY = f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))"
_CONTROL = "nrtfv"
_TOKEN = re.compile(
    r"(?P<set>\[\^?(?:[^\]\\\[]|\\.)+\])|(?P<escape>\\.)|(?P<open>\((?:\?[:=!]|(?!\?)))|(?P<close>\))"
    r"|(?P<quantifier>(?:[*+?]|\{\d+(?:,\d*)?\})\??)|(?P<special>[|^$.])|(?P<literal>[^\\\[\](){}*+?|^$.])",
    re.DOTALL,
)
_ANYTHING = frozenset({rf"[\{one}\{other}]" for one, other in ("sS", "Ss", "dD", "Dd", "wW", "Ww")})


def python_pattern(pattern: str) -> str:
    r"""Translate a JavaScript pattern without flags to Python.

    Raises:
        ValueError: The pattern uses syntax that has another meaning in Python. Or the pattern has a part such as `.`
            or `\D` without `*` or `+`. Such a part could match half of a character that JavaScript counts as two.

    Example:
        >>> python_pattern(r"^v\d+")
        '\\Av[0-9]+'
    """
    parts: list[str] = []
    groups: list[str] = []
    place, is_atom, must_repeat = 0, False, False
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        if token is None:
            raise ValueError(f"has a pattern whose syntax is not read at character {place + 1}")
        kind, text, place = str(token.lastgroup), token[0], token.end()
        if must_repeat and not (kind == "quantifier" and text[0] in "*+"):
            break
        must_repeat = False
        if kind == "quantifier":
            if not is_atom:
                raise ValueError(f"has a pattern in which {text!r} repeats nothing, or twice")
            parts.append(text)
            is_atom = False
            continue
        is_atom = kind in ("set", "escape", "literal") or text == "."
        if kind == "open":
            groups.append(text)
            part = text
        elif kind == "close":
            # A pattern with an extra bracket does not compile.
            is_atom = bool(groups) and groups.pop() not in ("(?=", "(?!")
            part = text
        elif kind == "set":
            must_repeat = text.startswith("[^") or text in _ANYTHING
            part = text if text in _ANYTHING else _set(text)
        elif kind == "escape":
            is_atom, must_repeat = text != r"\b", text[1] in "DWS"
            part = _escape(text[1])
        else:
            must_repeat = text == "."
            part = {"^": r"\A", "$": r"\Z", "|": "|", ".": r"[^\n\r\u2028\u2029]"}.get(text) or _literal(text)
        parts.append(part)
    if must_repeat:
        raise ValueError("has a pattern with `.` or an excluding class once, which may be half a character there")
    return "".join(parts)


def _literal(char: str) -> str:
    if ord(char) > 0xFFFF or 0xD800 <= ord(char) <= 0xDFFF:
        raise ValueError(f"has {char!r} in a pattern, which is two characters there")
    return re.escape(char)


def _escape(char: str) -> str:
    if char == "b":
        return _BOUNDARY
    if char.lower() in _SETS:
        return f"[{'^' if char.isupper() else ''}{_SETS[char.lower()]}]"
    if char in _CONTROL:
        return f"\\{char}"
    if char.isalnum() or char == "_" or not char.isascii():
        raise ValueError(f"has `\\{char}` in a pattern, which is not read")
    return re.escape(char)


def _set(text: str) -> str:
    r"""Translate a character class such as `[a-z\d.]`."""
    is_excluding = text.startswith("[^")
    members = re.findall(r"\\.|.", text[2 if is_excluding else 1 : -1], re.DOTALL)
    parts: list[str] = []
    for index, member in enumerate(members):
        is_range = member == "-" and 0 < index < len(members) - 1
        if is_range and any(len(end) > 1 and end[1].isalnum() for end in (members[index - 1], members[index + 1])):
            raise ValueError(f"has the class {text!r} in a pattern, whose range is not read")
        if is_range:
            parts.append("-")
        elif len(member) == 1:
            parts.append(rf"\{member}" if member in "-^&|~[" else _literal(member))
        elif member[1] in _SETS:
            parts.append(_SETS[member[1]])
        elif member[1] == "b" or member[1].isupper():
            raise ValueError(f"has `{member}` in a class of a pattern, which is not read")
        else:
            parts.append(_escape(member[1]))
    return f"[{'^' if is_excluding else ''}{''.join(parts)}]"


def _no_schema(value: Any) -> dict[str, Any]:
    if value is not None:
        raise ValueError("has a `value`, which is not read")
    return {}


_ANNOTATIONS = frozenset({"title", "description", "$schema"})
_LIMITS = frozenset({"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"})
_VALUES = frozenset({"type", "enum", "const", "required"})
_SCHEMA, _SCHEMA_LIST, _SCHEMA_MAP = (
    frozenset({"items", "additionalProperties", "not"}), frozenset({"anyOf", "allOf", "oneOf"}),
    frozenset({"properties"}),
)  # fmt: skip


def _schema(value: Any) -> dict[str, Any]:
    """Return a schema whose keywords all have the same meaning in promptfoo's validator and in ours.

    Raises:
        ValueError: The schema is not an object, or has another keyword.
    """
    if value is None:
        return {}
    if isinstance(value, str):
        # promptfoo parses a text as YAML.
        try:
            value = load_text(value, "yaml", "the schema")
        except RubricError:
            raise ValueError(f"has the schema {short(value)}, which is not YAML") from None
    if not isinstance(value, Mapping):
        raise ValueError(f"has the schema {short(value)}, and not an object")
    _check_schema(value)
    return dict(value)


def _check_schema(schema: object) -> None:
    """Check that a JSON Schema has only keywords that mean the same in other tools, at every depth."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise ValueError(f"has {short(schema)} in its schema, and not an object")
    for keyword, value in schema.items():
        if keyword in _SCHEMA:
            _check_schema(value)
        elif keyword in _SCHEMA_LIST and isinstance(value, list | tuple):
            for part in value:
                _check_schema(part)
        elif keyword in _SCHEMA_MAP and isinstance(value, Mapping):
            for part in value.values():
                _check_schema(part)
        elif keyword not in _ANNOTATIONS | _LIMITS | _VALUES:
            raise ValueError(f"has {short(keyword)} in its schema, which may mean something else here")
