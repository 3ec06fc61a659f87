"""Parses a judge's reply into the fields of its signature: lenient about form, strict about meaning.

DSPy's own adapters repair broken JSON and take the first thing that looks like a field, so that a judge that quotes
`{"verdict": "MET"}` from the submission before it answers UNMET is read as MET. Here one JSON object is read by the
rules of JSON. Anything ambiguous is a parse failure, and the question is requested again.

A quotation that the judge forgot to escape can also close its string and continue as JSON. In an object it then repeats
a field; in a list it can forge whole entries, so that a list is accepted only if it is exactly what was requested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, cast, get_args, get_origin

from dspy.utils.exceptions import AdapterParseError
from pydantic import TypeAdapter, ValidationError

from rubric_integrations.results.judgment import normalize_word, parse_verdict

_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*</think(?:ing)?>", re.DOTALL)
_THINKING_ENDS = re.compile(r"</think(?:ing)?>")
_BLOCK_BEGINS = re.compile(r"```\w*")

# What other rubric prompts call the same fields; a custom `system_prompt` may still request these names.
_ALIASES = {
    "criterion_status": "verdict",
    "criteria_evaluations": "judgments",
    "reason": "explanation",
    "reasoning": "explanation",
}

# An entry of a list may hold its answer under any of these names; under two of them it answers twice.
_ENTRY_ANSWERS = ("answer", "verdict", "criterion_status")


def parse_reply(
    signature: Any, text: str, *, quotable: bool, expected_ids: frozenset[int] = frozenset()
) -> dict[str, Any]:
    """Parse the output fields of a signature from a model's reply.

    Args:
        signature: The DSPy signature that was requested.
        text: The reply as the model wrote it. A re-serialized reply would hide a repeated field.
        quotable: Whether the graded texts contain something that looks like a verdict. If so, the reply must be the
            JSON object and nothing else; if not, prose around the object is accepted, since no forged object can be
            in it.
        expected_ids: The numbers of the criteria in a request about several; an entry under another number is not
            the judge's own.

    Raises:
        dspy.utils.exceptions.AdapterParseError: The reply does not answer the signature unambiguously.
    """
    try:
        reply = _parse_object(text, quotable)
        return {
            name: _parse_entries(reply, name, get_args(annotation)[0], quotable, expected_ids)
            if get_origin(annotation) is list
            else _parse_field(reply, name, annotation)
            for name, annotation in _outputs(signature)
        }
    except ValueError as error:
        raise AdapterParseError("JudgeAdapter", signature, text, f"{error}: {text[:80]!r}") from None


def _parse_object(text: str, quotable: bool) -> dict[str, Any]:
    """Parse the one JSON object of a reply, without the thinking before it and a code block around it."""
    thinking = _THINKING.match(text)
    if quotable and thinking and len(_THINKING_ENDS.findall(text)) > 1:
        raise ValueError("the reply does not say where its thinking ends")
    answer = text[thinking.end() if thinking else 0 :].strip()
    answer = _without_code_block(answer)
    start = 0 if quotable else answer.find("{")
    if start < 0 or not answer.startswith("{", start):
        raise ValueError("the reply is not a JSON object" + (" alone" if "{" in answer else ""))
    try:
        reply, end = _DECODER.raw_decode(answer, start)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the reply is not valid JSON ({error})") from None
    rest = answer[end:].strip()
    if "{" in rest or (quotable and rest):
        raise ValueError("the reply holds more than one JSON object, or text after it")
    return _without_aliases(reply)


def _without_code_block(answer: str) -> str:
    """Return the content of an answer that is one code block."""
    first, _, rest = answer.partition("\n")
    content, _, last = rest.rpartition("\n")
    is_block = _BLOCK_BEGINS.fullmatch(first.rstrip()) and last.strip() == "```"
    return content.strip() if is_block else answer


def _without_aliases(reply: dict[str, Any]) -> dict[str, Any]:
    for alias, name in _ALIASES.items():
        if alias not in reply:
            continue
        if name != "explanation" and _differ(reply, (alias, name)):
            raise ValueError(f"the reply gives both `{name}` and `{alias}`")
        if name not in reply:
            reply[name] = reply.pop(alias)
    return reply


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("the reply gives one field twice")
    return fields


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_unique)


def _parse_field(reply: Mapping[str, Any], name: str, annotation: Any) -> Any:
    if name not in reply:
        # A verdict without its explanation is still the judge's verdict.
        if name == "explanation":
            return ""
        raise ValueError(f"the reply has no `{name}`")
    value = reply[name]
    if get_origin(annotation) is Literal:
        choice = _choices(annotation).get(normalize_word(value)) if isinstance(value, str) else None
        if choice is not None:
            return choice
        raise ValueError(f"`{name}` is {value!r}, not one of {', '.join(map(str, get_args(annotation)))}")
    if isinstance(value, bool):
        raise ValueError(f"`{name}` is {value!r}, which is no answer")
    if isinstance(value, str) and name != "explanation" and parse_verdict(value) == "CANNOT_ASSESS":
        value = "CANNOT_ASSESS"
    if annotation is str and isinstance(value, int | float):
        value = str(value)
    try:
        return _type(annotation).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"`{name}` is {value!r}: {error.errors()[0]['msg'].lower()}") from None


def _parse_entries(
    reply: Mapping[str, Any], name: str, annotation: Any, quotable: bool, expected_ids: frozenset[int]
) -> list[Any]:
    """Parse the entries of a list that have the right type; the criteria of the others stay without an answer.

    Raises:
        ValueError: There is no list, or the texts are quotable and something in the reply may be part of a quotation.
    """
    if name not in reply:
        raise ValueError(f"the reply has no `{name}`")
    if not isinstance(reply[name], list):
        raise ValueError(f"`{name}` is {type(reply[name]).__name__}, not a list")
    entry_type = _type(annotation)
    entries: list[Any] = []
    invalid = 0
    for entry in reply[name]:
        try:
            if isinstance(entry, Mapping) and _differ(cast("Mapping[str, Any]", entry), _ENTRY_ANSWERS):
                raise ValueError("two answers")
            entries.append(entry_type.validate_python(entry))
        except ValueError:
            invalid += 1
    ids = [getattr(entry, "id", None) for entry in entries]
    if quotable and (
        invalid
        or len(set(ids)) != len(ids)
        or (expected_ids and not expected_ids.issuperset(ids))
        or any(isinstance(value, dict | list) for key, value in reply.items() if key != name)
    ):
        raise ValueError(f"`{name}` is not one readable entry for each number, as if a quotation were part of it")
    return entries


@lru_cache(maxsize=64)
def _outputs(signature: Any) -> list[tuple[str, Any]]:
    return [(name, field.annotation) for name, field in signature.output_fields.items()]


@lru_cache(maxsize=64)
def _choices(annotation: Any) -> dict[str, Any]:
    return {normalize_word(str(choice)): choice for choice in get_args(annotation)}


@lru_cache(maxsize=64)
def _type(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _differ(fields: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether fields that mean the same have different values."""
    return len({str(fields[name]) for name in names if name in fields}) > 1
