"""Parses a judge's reply into the fields of its signature: lenient about form, strict about meaning.

DSPy's own adapters repair broken JSON and take the first thing that looks like a field, so that a judge that quotes
`{"verdict": "MET"}` from the submission before it answers UNMET is read as MET. Here one JSON object is read by the
rules of JSON. Anything ambiguous is a parse failure, and the question is requested again. Prose around the object is
read only from judges that no format could be requested of, and only if it cannot be a quotation.

A quotation that the judge forgot to escape can also close its string and continue as JSON. In an object it then repeats
a field; in a list it can forge whole entries, so that a list is accepted only if it is exactly what was requested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

from dspy.utils.exceptions import AdapterParseError
from pydantic import TypeAdapter, ValidationError

from rubric_integrations.judges.prompts.citations import parse_citations
from rubric_integrations.judges.prompts.quotation import may_be_completed, prose_problem
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

# HealthBench's grader answers with true or false under this name. A custom `system_prompt` may request it.
_IS_MET = "criteria_met"
_IS_MET_VERDICTS = {True: "MET", False: "UNMET"}

# Weak models leave it out, and their answer is one without citations.
_EVIDENCE = "evidence"

# An entry of a list may hold its answer under any of these names; under two of them it answers twice.
_ENTRY_ANSWERS = ("answer", "verdict", "criterion_status")


class ReplyObject(NamedTuple):
    """The one JSON object of a reply.

    Attributes:
        fields: Its fields, under the names of the signature.
        text: The object as the model wrote it.
        before: The prose before it, without thinking.
        after: The prose after it.
    """

    fields: dict[str, Any]
    text: str
    before: str
    after: str


def parse_reply(
    signature: Any,
    text: str,
    *,
    quotable: bool,
    expected_ids: frozenset[int] = frozenset(),
    json_only: bool = False,
    completing_texts: Collection[str] = (),
) -> dict[str, Any]:
    """Parse the output fields of a signature from a model's reply.

    Args:
        signature: The DSPy signature that was requested.
        text: The reply as the model wrote it. A re-serialized reply would hide a repeated field.
        quotable: Whether the graded texts contain something that looks like a verdict. If so, the reply must be the
            JSON object and nothing else; if not, prose around the object is accepted, unless it names another answer.
        expected_ids: The numbers of the criteria in a request about several; an entry under another number is not
            the judge's own.
        json_only: Whether the server accepted a JSON format, so that the reply must be the JSON object and nothing
            else, whatever the texts contain.
        completing_texts: The texts that the judge was shown, if nothing reports why the reply ended. One of them may
            have completed a reply that was cut off, and such a reply is refused.

    Raises:
        dspy.utils.exceptions.AdapterParseError: The reply does not answer the signature unambiguously.
    """
    strict = quotable or json_only
    try:
        reply = parse_object(text, strict)
        outputs = {
            name: _parse_entries(reply.fields, name, get_args(annotation)[0], strict, expected_ids)
            if get_origin(annotation) is list and name != _EVIDENCE
            else _parse_field(reply.fields, name, annotation)
            for name, annotation in _outputs(signature)
        }
        _require_own_answer(reply, signature, outputs)
        if completing_texts and may_be_completed(reply.text, completing_texts):
            raise ValueError(
                "the reply ends as a text that the judge was shown, and nothing reports whether it was cut off there: "
                "use a model whose client reports why a reply ended"
            )
        return outputs
    except ValueError as error:
        raise AdapterParseError("JudgeAdapter", signature, text, f"{error}: {text[:80]!r}") from None


def parse_object(text: str, strict: bool) -> ReplyObject:
    """Parse the one JSON object of a reply, without the thinking before it and a code block around it.

    Args:
        text: The reply as the model wrote it.
        strict: Whether the reply must be the object and nothing else.

    Raises:
        ValueError: There is no object, or more than one, or it may not be read in one way only.
    """
    thinking = _THINKING.match(text)
    if strict and thinking and len(_THINKING_ENDS.findall(text)) > 1:
        raise ValueError("the reply does not say where its thinking ends")
    answer = text[thinking.end() if thinking else 0 :].strip()
    answer = _without_code_block(answer)
    start = 0 if strict else answer.find("{")
    if start < 0 or not answer.startswith("{", start):
        raise ValueError("the reply is not a JSON object" + (" alone" if "{" in answer else ""))
    try:
        fields, end = _DECODER.raw_decode(answer, start)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the reply is not valid JSON ({error})") from None
    rest = answer[end:]
    if "{" in rest or (strict and rest.strip()):
        raise ValueError("the reply holds more than one JSON object, or text after it")
    # The words true and false around the object may name another answer, and no rule would find out.
    if _IS_MET in fields and (answer[:start].strip() or rest.strip()):
        raise ValueError(f"the reply has `{_IS_MET}`, and is more than a JSON object")
    return ReplyObject(_without_aliases(fields), answer[start:end], answer[:start], rest)


def _require_own_answer(reply: ReplyObject, signature: Any, outputs: Mapping[str, Any]) -> None:
    """Check that the prose around an object leaves no doubt that the object is the judge's answer.

    Raises:
        ValueError: It may be a quotation.
    """
    if not (reply.before.strip() or reply.after.strip()):
        return
    missing = [name for name in outputs if name not in reply.fields and name != _EVIDENCE]
    verdicts = [outputs[name] for name, annotation in _outputs(signature) if get_origin(annotation) is Literal]
    problem = f"its JSON object has no `{missing[0]}`" if missing else None
    problem = problem or prose_problem(reply.before, reply.after, verdicts)
    if problem:
        raise ValueError(f"the reply is more than a JSON object, and {problem}, so that the object may be a quotation")


def _without_code_block(answer: str) -> str:
    """Return the content of an answer that is one code block."""
    first, _, rest = answer.partition("\n")
    content, _, last = rest.rpartition("\n")
    is_block = _BLOCK_BEGINS.fullmatch(first.rstrip()) and last.strip() == "```"
    return content.strip() if is_block else answer


def _without_aliases(reply: dict[str, Any]) -> dict[str, Any]:
    if _IS_MET in reply:
        is_met = reply.pop(_IS_MET)
        if not isinstance(is_met, bool):
            raise ValueError(f"`{_IS_MET}` is {is_met!r}, not true or false")
        if other := next((name for name in ("verdict", "criterion_status") if name in reply), None):
            raise ValueError(f"the reply gives both `{other}` and `{_IS_MET}`")
        reply["verdict"] = _IS_MET_VERDICTS[is_met]
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
    if name == _EVIDENCE:
        return parse_citations(reply.get(name))
    if name not in reply:
        # A verdict without its explanation is still the judge's verdict.
        if name == "explanation":
            return strengths_and_weaknesses(reply)
        raise ValueError(f"the reply has no `{name}`")
    value = reply[name]
    if get_origin(annotation) is Literal:
        choice = _choices(annotation).get(normalize_word(value)) if isinstance(value, str) else None
        if choice is not None:
            return choice
        raise ValueError(f"`{name}` is {value!r}, not one of {', '.join(map(str, get_args(annotation)))}")
    if isinstance(value, bool):
        raise ValueError(f"`{name}` is {value!r}, which is no answer")
    if isinstance(value, str) and annotation is not str and parse_verdict(value) == "CANNOT_ASSESS":
        value = "CANNOT_ASSESS"
    if annotation is str and isinstance(value, int | float):
        value = str(value)
    try:
        return _type(annotation).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"`{name}` is {value!r}: {error.errors()[0]['msg'].lower()}") from None


def strengths_and_weaknesses(reply: Mapping[str, Any]) -> str:
    """Return an explanation of the lists `strengths` and `weaknesses` of a reply; empty if it has neither.

    Example:
        >>> strengths_and_weaknesses({"score": 7, "strengths": ["Is short."], "weaknesses": []})
        'Strengths: Is short.'
    """
    parts: list[str] = []
    for name in ("strengths", "weaknesses"):
        value = reply.get(name)
        texts = [value] if isinstance(value, str) else cast("list[Any]", value) if isinstance(value, list) else []
        if text := " ".join(str(text) for text in texts if text):
            parts.append(f"{name.capitalize()}: {text}")
    return " ".join(parts)


def _parse_entries(
    reply: Mapping[str, Any], name: str, annotation: Any, strict: bool, expected_ids: frozenset[int]
) -> list[Any]:
    """Parse the entries of a list that have the right type; the criteria of the others stay without an answer.

    Raises:
        ValueError: There is no list, or the parsing is strict and something in the reply may be part of a quotation.
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
    if strict and (
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
