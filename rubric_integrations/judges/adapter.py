"""How a judge's reply becomes fields: lenient about form, strict about meaning.

DSPy's own adapters repair broken JSON and take the first thing that looks like a field, so that a judge who quotes
`{"verdict": "MET"}` from the submission before saying UNMET is read as MET. Here one JSON object is read, by the
JSON rules; anything ambiguous is no answer, and is asked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, cast, get_args, get_origin

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import TypeAdapter, ValidationError

from rubric_integrations.verdict import parse_verdict, plain_word

_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*</think(?:ing)?>", re.DOTALL)
_CODE_BLOCK = re.compile(r"\s*```\w*\s*\n(.*)\n\s*```\s*", re.DOTALL)

# What other rubric prompts call the same fields; a custom `system_prompt` may still ask for these names.
_ALIASES = {
    "criterion_status": "verdict",
    "criteria_evaluations": "judgments",
    "reason": "explanation",
    "reasoning": "explanation",
}

# What a text must hold for a judge to quote a verdict, a choice, a score or a list of judgments from it.
_QUOTABLE = re.compile(
    r"verdict|criterion_status|criteria_evaluations|judgments|overall_score|[\"'“](?:choice|score)\\?[\"'”]",
    re.IGNORECASE,
)


class JudgeAdapter(dspy.JSONAdapter):
    """A DSPy JSON adapter whose parser cannot be misled by a verdict that the judge quotes.

    Attributes:
        quotable: Whether the graded texts hold something that looks like a verdict. If so, the reply must be
            the JSON object and nothing else; if not, prose around the object is forgiven, for there is no
            forged object to quote.
    """

    def __init__(self, quotable: bool):
        super().__init__()
        self.quotable = quotable

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Read the output fields of a reply.

        Raises:
            dspy.utils.exceptions.AdapterParseError: The reply does not answer the signature unambiguously.
        """
        try:
            reply = _the_object(completion, self.quotable)
            return {name: _field(reply, name, field.annotation) for name, field in signature.output_fields.items()}
        except ValueError as error:
            raise AdapterParseError(
                "JudgeAdapter",
                cast("Any", signature),  # DSPy's annotation says an instance and means the class
                completion,
                f"{error}: {completion[:80]!r}",
            ) from None


def looks_quotable(*texts: str | None) -> bool:
    """Whether a judge could quote a verdict from these texts."""
    return any(_QUOTABLE.search(text or "") for text in texts)


def _the_object(completion: str, quotable: bool) -> dict[str, Any]:
    text = _THINKING.sub("", completion, count=1).strip()
    if block := _CODE_BLOCK.fullmatch(text):
        text = block[1].strip()
    start = 0 if quotable else text.find("{")
    decoder = json.JSONDecoder(strict=False, object_pairs_hook=_unique)
    if start < 0 or not text.startswith("{", start):
        raise ValueError("the reply is not a JSON object" + (" alone" if "{" in text else ""))
    try:
        reply, end = decoder.raw_decode(text, start)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the reply is not valid JSON ({error})") from None
    rest = text[end:].strip()
    if "{" in rest or (quotable and rest):
        raise ValueError("the reply holds more than one JSON object, or text after it")
    for alias, name in _ALIASES.items():
        if alias in reply and name not in reply:
            reply[name] = reply[alias]
    return reply


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("the reply gives one field twice")
    return result


def _field(reply: dict[str, Any], name: str, annotation: Any) -> Any:
    if name not in reply:
        # A verdict without its explanation is still the judge's verdict.
        if name == "explanation":
            return ""
        raise ValueError(f"the reply has no `{name}`")
    value = reply[name]
    if get_origin(annotation) is Literal:
        for choice in get_args(annotation):
            if isinstance(value, str) and plain_word(value) == plain_word(str(choice)):
                return choice
        raise ValueError(f"`{name}` is {value!r}, not one of {', '.join(map(str, get_args(annotation)))}")
    if get_origin(annotation) is list:
        return list(_entries(name, value, get_args(annotation)[0]))
    if isinstance(value, bool):
        raise ValueError(f"`{name}` is {value!r}, which is no answer")
    if isinstance(value, str) and parse_verdict(value) == "CANNOT_ASSESS":
        value = "CANNOT_ASSESS"
    if annotation is str and isinstance(value, int | float):
        value = str(value)
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"`{name}` is {value!r}: {error.errors()[0]['msg'].lower()}") from None


def _entries(name: str, value: Any, annotation: Any) -> Iterator[Any]:
    """The entries that are of the type; what the others were to answer stays unanswered, and is asked again."""
    if not isinstance(value, list):
        raise ValueError(f"`{name}` is {type(value).__name__}, not a list")
    entry_type: TypeAdapter[Any] = TypeAdapter(annotation)
    for entry in cast("list[Any]", value):
        with suppress(ValidationError):
            yield entry_type.validate_python(entry)
