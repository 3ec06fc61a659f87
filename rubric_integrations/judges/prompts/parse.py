"""How a judge's reply becomes fields: lenient about form, strict about meaning.

DSPy's own adapters repair broken JSON and take the first thing that looks like a field, so that a judge who quotes
`{"verdict": "MET"}` from the submission before saying UNMET is read as MET. Here one JSON object is read, by the
JSON rules; anything ambiguous is no answer, and is asked again.

A quotation that the judge forgot to escape can also close its string and go on as JSON. In an object that forges a
field twice; in a list it can forge entries of its own, so that a list is read only if it is what was asked for, whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Self, cast, get_args, get_origin

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import TypeAdapter, ValidationError

from rubric_integrations.judges.prompts.sanitize import looks_quotable
from rubric_integrations.results.judgment import parse_verdict, plain_word

_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*</think(?:ing)?>", re.DOTALL)
_THINKING_ENDS = re.compile(r"</think(?:ing)?>")
_CODE_BLOCK = re.compile(r"\s*```\w*\s*\n(.*)\n\s*```\s*", re.DOTALL)

# What other rubric prompts call the same fields; a custom `system_prompt` may still ask for these names.
_ALIASES = {
    "criterion_status": "verdict",
    "criteria_evaluations": "judgments",
    "reason": "explanation",
    "reasoning": "explanation",
}

# Under any of these an entry of a list may answer; under two of them it answers twice.
_ENTRY_ANSWERS = ("answer", "verdict", "criterion_status")

# How `describe_batch` begins each criterion; a criterion's own text cannot begin a line.
_NUMBERED = re.compile(r"^(\d+)\. \((?:requirement|penalty|choice|score)\) ", re.MULTILINE)


class JudgeAdapter(dspy.JSONAdapter):
    """A DSPy JSON adapter whose parser cannot be misled by a verdict that the judge quotes.

    Attributes:
        quotable: Whether the graded texts hold something that looks like a verdict. If so, the reply must be
            the JSON object and nothing else; if not, prose around the object is forgiven, for there is no
            forged object to quote.
        asked: The numbers of the criteria that are asked in one call; an entry under another is not the judge's own.
    """

    def __init__(self, quotable: bool, asked: frozenset[int] = frozenset()):
        super().__init__()
        self.quotable, self.asked = quotable, asked

    @classmethod
    def reading(cls, inputs: Mapping[str, Any], quotable: bool | None = None) -> Self:
        """The adapter for the reply to a question with these texts; whether they are quotable, where that is known."""
        if quotable is None:
            quotable = looks_quotable(*(str(text) for text in inputs.values()))
        return cls(quotable, frozenset(map(int, _NUMBERED.findall(str(inputs.get("criteria", ""))))))

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """`read`, for DSPy, whose callbacks hear of it."""
        return self.read(signature, completion)

    def read(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Read the output fields of a reply.

        Raises:
            dspy.utils.exceptions.AdapterParseError: The reply does not answer the signature unambiguously.
        """
        try:
            reply = _the_object(completion, self.quotable)
            return {name: self._read(reply, name, annotation) for name, annotation in _outputs(cast("Any", signature))}
        except ValueError as error:
            raise AdapterParseError(
                "JudgeAdapter",
                cast("Any", signature),  # DSPy's annotation says an instance and means the class
                completion,
                f"{error}: {completion[:80]!r}",
            ) from None

    def _read(self, reply: Mapping[str, Any], name: str, annotation: Any) -> Any:
        value = _field(reply, name, annotation)
        return self._entries(reply, name, get_args(annotation)[0]) if get_origin(annotation) is list else value

    def _entries(self, reply: Mapping[str, Any], name: str, annotation: Any) -> list[Any]:
        """The entries that are of the type; what the others were to answer stays unanswered, and is asked again.

        Raises:
            ValueError: The texts are quotable, and something in the reply may be part of a quotation.
        """
        entry_type = _type(annotation)
        entries: list[Any] = []
        broken = 0
        for entry in reply[name]:
            try:
                if isinstance(entry, Mapping) and _differ(cast("Mapping[str, Any]", entry), _ENTRY_ANSWERS):
                    raise ValueError("two answers")
                entries.append(entry_type.validate_python(entry))
            except ValueError:
                broken += 1
        numbers = [getattr(entry, "id", None) for entry in entries]
        if self.quotable and (
            broken
            or len(set(numbers)) != len(numbers)
            or (self.asked and not self.asked.issuperset(numbers))
            or any(isinstance(value, dict | list) for key, value in reply.items() if key != name)
        ):
            raise ValueError(f"`{name}` is not one readable entry for each number, as if a quotation were part of it")
        return entries


def _the_object(completion: str, quotable: bool) -> dict[str, Any]:
    thinking = _THINKING.match(completion)
    if quotable and thinking and len(_THINKING_ENDS.findall(completion)) > 1:
        raise ValueError("the reply does not say where its thinking ends")
    text = completion[thinking.end() if thinking else 0 :].strip()
    if block := _CODE_BLOCK.fullmatch(text):
        text = block[1].strip()
    start = 0 if quotable else text.find("{")
    if start < 0 or not text.startswith("{", start):
        raise ValueError("the reply is not a JSON object" + (" alone" if "{" in text else ""))
    try:
        reply, end = _DECODER.raw_decode(text, start)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the reply is not valid JSON ({error})") from None
    rest = text[end:].strip()
    if "{" in rest or (quotable and rest):
        raise ValueError("the reply holds more than one JSON object, or text after it")
    for alias, name in _ALIASES.items():
        if alias not in reply:
            continue
        if name != "explanation" and _differ(reply, (alias, name)):
            raise ValueError(f"the reply gives both `{name}` and `{alias}`")
        if name not in reply:
            reply[name] = reply.pop(alias)
    return reply


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("the reply gives one field twice")
    return result


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_unique)


def _field(reply: Mapping[str, Any], name: str, annotation: Any) -> Any:
    if name not in reply:
        # A verdict without its explanation is still the judge's verdict.
        if name == "explanation":
            return ""
        raise ValueError(f"the reply has no `{name}`")
    value = reply[name]
    if get_origin(annotation) is Literal:
        choice = _choices(annotation).get(plain_word(value)) if isinstance(value, str) else None
        if choice is not None:
            return choice
        raise ValueError(f"`{name}` is {value!r}, not one of {', '.join(map(str, get_args(annotation)))}")
    if get_origin(annotation) is list:
        if not isinstance(value, list):
            raise ValueError(f"`{name}` is {type(value).__name__}, not a list")
        return cast("list[Any]", value)
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


@lru_cache(maxsize=64)
def _outputs(signature: Any) -> list[tuple[str, Any]]:
    return [(name, field.annotation) for name, field in signature.output_fields.items()]


@lru_cache(maxsize=64)
def _choices(annotation: Any) -> dict[str, Any]:
    return {plain_word(str(choice)): choice for choice in get_args(annotation)}


@lru_cache(maxsize=64)
def _type(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _differ(given: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether one answer is given under several names, and not the same."""
    return len({str(given[name]) for name in names if name in given}) > 1
