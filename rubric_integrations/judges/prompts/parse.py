"""Parses a judge's reply into the fields of its signature: lenient about form, strict about meaning.

DSPy's own adapters repair broken JSON and take the first text that looks like a field. If a judge quotes `{"verdict":
"MET"}` from the submission and then answers UNMET, they would parse MET. This parser accepts one JSON object, which
must be valid JSON. Anything ambiguous is a parse failure, and the question is requested again. Around the object, only
a code block and one line such as `Here is my verdict:` are accepted. Such a line is accepted only from judges without a
reply format, and only if the object cannot be a quotation. All other prose may contradict the object.

If the judge forgets to escape a quotation, a quotation mark in the quoted text ends the judge's string. The rest of the
quoted text then becomes a part of the JSON. In an object, this part repeats a field, and a repeated field is refused.
In a list, this part can be complete entries. Therefore a list with an entry that was not requested is refused. A list
with repeated or invalid entries is refused if the judge may have quoted a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from rubric_integrations.judges.prompts.sanitize import incomplete_reply_problem
from rubric_integrations.scoring.judgment import (
    fold_answer,
    parse_number,
    parse_verdict,
    strip_decoration,
)

_WHOLE_NUMBER = re.compile(r"\s*(-?\d{1,9})(?:\.0)?\s*", re.ASCII)
_STEP = re.compile(r"\s*(?:steps?\s*)?#?(\d{1,9})\s*", re.IGNORECASE)


def parse_citations(value: object) -> list[int]:
    """Parse the numbers of steps, as models write them: a list, one number, or a text such as `steps 2, 5`.

    `judges/validation.py` checks that the steps exist.

    Returns:
        The numbers in the order of the reply. Empty for None and for an empty text.

    Raises:
        ValueError: An entry is not an integer of at least 0.

    Example:
        >>> parse_citations(["step 3", 5]), parse_citations("steps 2, 5")
        ([3, 5], [2, 5])
    """
    if value is None:
        return []
    if isinstance(value, str):
        entries: Sequence[object] = [part for part in value.strip("[] \n").split(",") if part.strip()]
    else:
        entries = value if isinstance(value, list | tuple) else [value]
    return [_number(entry) for entry in entries]


def _number(entry: object) -> int:
    if isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0:
        return entry
    match = _STEP.fullmatch(entry) if isinstance(entry, str) else None
    if match is None:
        raise ValueError(f"`evidence` has {entry!r}, which is not the number of a step")
    return int(match[1])


_THINKING_BEGINS = re.compile(r"\s*<think(?:ing)?>")
_THINKING_ENDS = re.compile(r"</think(?:ing)?>")
_OPENING_FENCE = r"```(?:json\w?|javascript|js|python|text|plaintext)?"
_BLOCK_BEGINS = re.compile(_OPENING_FENCE, re.IGNORECASE)

# The only prose that may stand before an object: one line that names what follows. It consists of allowed words,
# because no list of forbidden words could contain all ways to refuse, to deny or to give an example.
_OBJECT_NAME = (
    r"(?:(?:my|the) )?(?:(?:final|overall|(?:requested )?json|valid|structured|formatted|complete|detailed) ){0,3}"
    r"(?:(?:json|answer|verdict|judge?ment|evaluation|assessment|decision|conclusion|grading|grade|score|rating|choice"
    r"|output|response|result|reply|object)s?(?: |\b)){1,2}"
)
_SUBJECT = r"(?:the|this|your) (?:provided |given )?(?:criterion|criteria|requirements?|rubric|submission|response)"
_FORMAT = r"(?:(?:the|a|valid|requested|required|specified) ){0,3}(?:json(?: format| object)?|format)"
_PROSE_BEFORE = re.compile(
    rf"\s*(?:[*_#]{{0,6}} ?(?:(?:sure|certainly|of course|okay|ok|alright)[,.!]? )?(?:based on {_SUBJECT}, )?"
    rf"(?:here (?:it is|you go)|(?:here(?:['\u2019]s| is| are) |below is )?{_OBJECT_NAME}"
    rf"(?: ?(?:for|of|based on) {_SUBJECT})?(?: ?(?:in|as) {_FORMAT})?(?: ?is(?: as follows)?)?)"
    rf"[*_]{{0,3}}:[*_]{{0,3}}\s*)?(?:{_OPENING_FENCE}\s*)?",
    re.IGNORECASE,
)

# The names of the same fields in other rubric prompts. A custom `system_prompt` may request these names.
_ALIASES = {
    "criterion_status": "verdict",
    "criteria_evaluations": "judgments",
    "reason": "explanation",
    "reasoning": "explanation",
}

# HealthBench's grader answers with true or false under this name. A custom `system_prompt` may request it.
_IS_MET = "criteria_met"
_IS_MET_VERDICTS = {True: "MET", False: "UNMET"}

# Weak models leave this field out. Their answer then has no citations.
_EVIDENCE = "evidence"

# The names of the fields with the number and the answer of an entry, folded: in lower case and only letters.
_ID_NAMES = frozenset(
    {"id", "criterionid", "criterionnumber", "criterionidx", "criterionindex", "number", "index", "idx"}
)
_ENTRY_ANSWERS = ("answer", "verdict", "criterionstatus")

# A field whose name ends in one of these, such as `final_verdict`, repeats the answer or contradicts it. The field
# names of other questions do not count: `overall_score` is not a second `score`.
_ANSWER_NAMES = {
    "verdict": ("verdict", "criterionstatus", "criteriamet"),
    "choice": ("choice",),
    "score": ("score",),
    "overall_score": ("overallscore", "finalscore", "totalscore"),
    "judgments": ("judgments", "criteriaevaluations"),
}
# `max_score` is the end of a scale.
_LIMIT_NAMES = ("max", "min")
_NAME_SIGNS = re.compile(r"[\W\d_]+")
_NAMES_VERDICT = re.compile("met|assess", re.IGNORECASE)
_NEGATED = re.compile(r"(?:it )?(?:is |was )?(?:not|never|no longer)[ _-](?:fully |really )?(un)?met", re.IGNORECASE)


# The largest number of characters in a field that contains only a verdict.
_LONGEST_VERDICT = 60

# The smallest number of words in a reply that is a sentence, such as a refusal. A shorter reply is an accident, which a
# retry may correct.
_FEWEST_WORDS = 3
# Characters of a reply that an error quotes.
_LONGEST_QUOTE = 200


class UnreadableReply(ValueError):  # noqa: N818 -- a fault of the model, not of the program
    """Raised if a reply does not answer the signature unambiguously.

    `JudgeAdapter` converts it to the error that DSPy's own adapters raise.
    """


class NoVerdict(UnreadableReply):
    """Raised if a reply is a text that names no answer, such as "I cannot help with that".

    The question is requested only once more, because the model will probably repeat such a reply.
    """


class ReplyObject(NamedTuple):
    """The one JSON object of a reply.

    Attributes:
        fields: The object's fields, under the names of the signature.
        text: The object as the model wrote it.
    """

    fields: dict[str, Any]
    text: str


def parse_reply(
    signature: Any,
    text: str,
    *,
    quotable: bool | Callable[[], bool],
    expected_ids: frozenset[int] = frozenset(),
    json_only: bool = False,
    completing_texts: Collection[str] = (),
) -> dict[str, Any]:
    """Parse the output fields of a signature from a model's reply.

    Args:
        signature: The DSPy signature that was requested.
        text: The reply as the model wrote it. A re-serialized reply would hide a repeated field.
        quotable: Whether the graded texts contain text that looks like a verdict. If so, the reply must be only the
            JSON object. If not, a line such as `Here is my verdict:` is accepted before the object. The search for such
            text is slow. Pass a function to search only if the parser needs to know.
        expected_ids: The numbers of the criteria in a request about several criteria. A reply with other numbers is
            refused, because any of its entries may be about another criterion. Empty for no check.
        json_only: Whether the server accepted a JSON format and is known to follow the format. If so, the reply must be
            only the JSON object, whatever the texts contain.
        completing_texts: The texts that were shown to the judge, if it is unknown why the reply ended. Otherwise empty.
            A reply that was cut off inside a quotation can look complete, because the quoted text can contain the end
            of a JSON object. If the end of the reply may come from one of these texts, the reply is refused.

    Raises:
        NoVerdict: The reply is a text that names no answer.
        UnreadableReply: The reply does not answer the signature unambiguously.
    """

    def is_strict() -> bool:
        return json_only or (quotable() if callable(quotable) else quotable)

    try:
        reply = parse_object(text, is_strict)
        outputs: dict[str, Any] = {}
        for output in _outputs(signature):
            outputs[output.name] = (
                _parse_field(reply.fields, output)
                if output.entry is None
                else _parse_entries(reply.fields, output.name, output.entry, is_strict, expected_ids)
            )
        if completing_texts:
            _require_own_end(text, reply, outputs, completing_texts)
        return outputs
    except ValueError as error:
        if "{" not in text and len(text.split()) >= _FEWEST_WORDS and not _names_answer(signature, text):
            quote = " ".join(text.split())[:_LONGEST_QUOTE]
            raise NoVerdict(f"the judge gave no verdict: {quote!r}") from None
        raise UnreadableReply(f"{error}: {text[:80]!r}") from None


def _names_answer(signature: Any, text: str) -> bool:
    """Whether a text contains one of the answers that the signature allows, such as "met", or a number."""
    words = set(re.findall(r"\w+", text.casefold()))
    choices = {str(choice).casefold() for output in _outputs(signature) for choice in output.choices}
    return not words.isdisjoint(choices) or any(word[0].isdigit() for word in words)


def parse_object(text: str, is_strict: Callable[[], bool]) -> ReplyObject:
    """Parse the one JSON object of a reply. Thinking before the object and a code block around it are removed.

    Args:
        text: The reply as the model wrote it.
        is_strict: A function that returns whether the reply must be only the object. If not, one line such as `Here is
            my verdict:` is accepted before the object. It is called only if the reply contains more.

    Raises:
        ValueError: There is no object, there is more than one, or there is other text around it.
    """
    answer = _without_code_block((_without_thinking(text, is_strict) if "</" in text else text).strip())
    start = answer.find("{")
    if start < 0 or (start > 0 and (is_strict() or not _PROSE_BEFORE.fullmatch(answer, 0, start))):
        raise ValueError("the reply is not a JSON object" + (" alone" if start > 0 else ""))
    try:
        fields, end = _DECODER.raw_decode(answer, start)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the reply is not valid JSON ({error})") from None
    rest = answer[end:].strip()
    if rest and (rest != "```" or is_strict()):
        raise ValueError("the reply holds more than one JSON object, or text after it")
    return ReplyObject(_without_aliases(fields), answer[start:end])


def _without_thinking(text: str, is_strict: Callable[[], bool]) -> str:
    """Remove the thinking before an answer. Some servers leave out the tag that begins it, which is in their prompt.

    Raises:
        ValueError: The end of the thinking is not clear.
    """
    ends = list(_THINKING_ENDS.finditer(text))
    if not ends:
        return text
    is_marked = _THINKING_BEGINS.match(text) is not None
    if not is_marked and (text.lstrip().startswith(("{", "```")) or is_strict()):
        return text
    if len(ends) > 1:
        raise ValueError("the reply does not say where its thinking ends")
    return text[ends[0].end() :]


def _require_own_end(text: str, reply: ReplyObject, outputs: Mapping[str, Any], texts: Collection[str]) -> None:
    """Check that a reply without a finish reason was not cut off inside a quotation.

    Raises:
        ValueError: The reply may have been cut off inside a quotation.
    """
    explanations = [outputs.get("explanation"), *(entry.explanation for entry in outputs.get("judgments", ()))]
    if not any(explanations):  # they were not requested, and the judge may have written some
        entries = reply.fields.get("judgments", ())
        explanations = [fields.get("explanation") for fields in (reply.fields, *entries) if isinstance(fields, Mapping)]
    written = [explanation for explanation in explanations if isinstance(explanation, str) and explanation]
    if problem := incomplete_reply_problem(text, reply.text, written, texts):
        raise ValueError(
            f"the reply ends {problem}, and nothing reports whether it was cut off there: use a model whose client "
            "reports why a reply ended"
        )


def _without_code_block(answer: str) -> str:
    """Return the content of the code block if an answer is one code block. Otherwise return the answer unchanged."""
    if answer[:3] != "```":
        return answer
    first, _, rest = answer.partition("\n")
    content, _, last = rest.rpartition("\n")
    is_block = _BLOCK_BEGINS.fullmatch(first.rstrip()) and last.strip() == "```"
    return content.strip() if is_block else answer


def _without_aliases(reply: dict[str, Any]) -> dict[str, Any]:
    """Replace the other names under which models return a field. Refuse contradicting values."""
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
        if name not in reply:
            reply[name] = reply.pop(alias)
        elif name != "explanation" and _differ(reply, (alias, name)):
            raise ValueError(f"the reply gives both `{name}` and `{alias}`")
    return reply


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("the reply gives one field twice")
    return fields


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_unique)


class _Output(NamedTuple):
    """An output field of a signature.

    Attributes:
        name: The name of the field.
        annotation: The type of the field's value.
        choices: The allowed values by their original and their normalized spelling. Empty if any value is allowed.
        entry: The type of each entry if the field is a list of answers. Otherwise None.
    """

    name: str
    annotation: Any
    choices: Mapping[str, Any]
    entry: Any


@lru_cache(maxsize=64)
def _outputs(signature: Any) -> list[_Output]:
    return [_output(name, field.annotation) for name, field in signature.output_fields.items()]


def _output(name: str, annotation: Any) -> _Output:
    arguments = get_args(annotation) if get_origin(annotation) is Literal else ()
    choices = {fold_answer(str(choice)): choice for choice in arguments} | {str(choice): choice for choice in arguments}
    is_list = get_origin(annotation) is list and name != _EVIDENCE
    return _Output(name, annotation, choices, get_args(annotation)[0] if is_list else None)


def _parse_field(reply: Mapping[str, Any], output: _Output) -> Any:
    """Parse the value of one output field of a reply."""
    name, annotation, choices, _ = output
    if name == _EVIDENCE:
        return parse_citations(reply.get(name))
    # A verdict without its explanation is still the judge's verdict.
    if name == "explanation" and reply.get(name) is None:
        return strengths_and_weaknesses(reply)
    if name not in reply:
        raise ValueError(f"the reply has no `{name}`")
    value = reply[name]
    if name in _ANSWER_NAMES and (problem := _other_answer(reply, name, _ANSWER_NAMES[name])):
        raise ValueError(problem)
    if annotation is str and type(value) is str:
        return value
    if choices:
        if isinstance(value, str) and (word := value if value in choices else fold_answer(value)) in choices:
            return choices[word]
        raise ValueError(f"`{name}` is {value!r}, not one of {', '.join(map(str, get_args(annotation)))}")
    if isinstance(value, bool):
        raise ValueError(f"`{name}` is {value!r}, which is no answer")
    if isinstance(value, str) and annotation is not str:
        value = "CANNOT_ASSESS" if parse_verdict(value) == "CANNOT_ASSESS" else parse_number(value)
    if annotation is str and isinstance(value, int | float):
        value = str(value)
    try:
        return _type(annotation).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"`{name}` is {value!r}: {error.errors()[0]['msg'].lower()}") from None


def strengths_and_weaknesses(reply: Mapping[str, Any]) -> str:
    """Make an explanation from the lists `strengths` and `weaknesses` of a reply. Empty if it has neither.

    Example:
        >>> strengths_and_weaknesses({"score": 7, "strengths": ["Is short."], "weaknesses": []})
        'Strengths: Is short.'
    """
    parts: list[str] = []
    for name in ("strengths", "weaknesses"):
        value = reply.get(name)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        if text := " ".join(str(text) for text in texts if text):
            parts.append(f"{name.capitalize()}: {text}")
    return " ".join(parts)


def _parse_entries(
    reply: Mapping[str, Any], name: str, annotation: Any, is_strict: Callable[[], bool], expected_ids: frozenset[int]
) -> list[Any]:
    """Parse the entries of a list. Entries of a wrong type are left out, and their criteria get no answer.

    Raises:
        ValueError: There is no list, its numbers are not the numbers of the criteria, or the parsing is strict and a
            part of the reply may be a quotation. With wrong numbers, any entry may be about another criterion.
    """
    if name not in reply:
        raise ValueError(f"the reply has no `{name}`")
    if not isinstance(reply[name], list):
        raise ValueError(f"`{name}` is {type(reply[name]).__name__}, not a list")
    if problem := _other_answer(reply, name, _ANSWER_NAMES.get(name, ())):
        raise ValueError(problem)
    numbers = [_entry_number(entry) for entry in reply[name] if isinstance(entry, Mapping)]
    ids = [number for number in numbers if number is not None]
    if expected_ids:
        _require_numbers(ids, expected_ids)
    entry_type = _type(annotation)
    entries: list[Any] = []
    invalid = 0
    for entry in reply[name]:
        try:
            if isinstance(entry, Mapping) and _has_two_answers(entry):
                raise ValueError("two answers")
            entries.append(entry_type.validate_python(entry))
        except ValueError:
            invalid += 1
    is_suspect = (
        invalid
        or len(set(ids)) != len(ids)
        or any(isinstance(value, dict | list) for key, value in reply.items() if key != name)
    )
    if is_suspect and is_strict():
        raise ValueError(f"`{name}` is not one readable entry for each number, as if a quotation were part of it")
    return entries


def _entry_number(entry: Mapping[str, Any]) -> int | None:
    """Return the number of an entry. None if it has no valid number. Such an entry is not valid.

    Raises:
        ValueError: The entry has two numbers, or true or false as its number.
    """
    values = [value for name, value in entry.items() if _fold_name(name) in _ID_NAMES and value is not None]
    if any(isinstance(value, bool) for value in values) or len({str(value) for value in values}) > 1:
        raise ValueError(f"an entry has the numbers {values!r}")
    return parse_entry_number(values[0]) if values else None


def parse_entry_number(value: object) -> int | None:
    """Parse the number of an entry, as models write it. None if the value is not an integer.

    Example:
        >>> parse_entry_number("2"), parse_entry_number(True), parse_entry_number("1_0")
        (2, None, None)
    """
    match = _WHOLE_NUMBER.fullmatch(str(value))
    return int(match[1]) if match else None


def _require_numbers(ids: Sequence[int], expected: frozenset[int]) -> None:
    """Check that the numbers of entries identify the criterion of each entry.

    Raises:
        ValueError: A number was not requested, for example because the judge counted from 0. Or a number occurs twice
            and another number is missing, because the judge miscounted.
    """
    if unknown := set(ids) - expected:
        raise ValueError(f"an entry has the number {min(unknown)}, which was not requested")
    if len(set(ids)) < len(ids) and len(ids) >= len(expected) > len(set(ids)):
        raise ValueError("a number occurs twice, and another is missing")


def _has_two_answers(entry: Mapping[str, Any]) -> bool:
    own = next((name for name in entry if _fold_name(name) in _ENTRY_ANSWERS), None)
    return own is not None and _other_answer(entry, own, _ENTRY_ANSWERS) is not None


def _other_answer(fields: Mapping[str, Any], own: str, names: tuple[str, ...]) -> str | None:
    """Describe a further field that contradicts the answer in the field `own`. None if there is no such field.

    Args:
        fields: The fields of an object.
        own: The name of the field with the answer.
        names: The endings of the folded names of fields with the same meaning.
    """
    answer = fields[own]
    for name, value in _further_fields(fields):
        if name == own or value == answer:
            continue
        if _names_same_answer(name, names):
            differs = _canonical(value) != _canonical(answer)
        elif type(value) is str and not _NAMES_VERDICT.search(value):
            differs = False
        else:
            other = _verdict_of(_fold_name(name), value)
            differs = other is not None and parse_verdict(answer) not in (None, other)
        if differs:
            return f"the reply gives both `{own}` and `{name}`"
    return None


def _further_fields(fields: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the fields of an object and of the objects inside it. Inner fields have a path as their name."""
    # In most replies, no field is an object.
    if dict not in map(type, fields.values()):
        return fields.items()
    further: list[tuple[str, Any]] = []
    for name, value in fields.items():
        further.append((name, value))
        if type(value) is dict:
            inner = _further_fields(value)
            further += ((f"{name}.{other}", content) for other, content in inner)
    return further


def _canonical(value: object) -> object:
    """Return the canonical form of an answer, which is equal for all its spellings."""
    if isinstance(value, bool):
        return _IS_MET_VERDICTS[value]
    try:
        return parse_number(str(value))
    except ValueError:
        return parse_verdict(value) or fold_answer(str(value))


def _verdict_of(folded_name: str, value: object) -> str | None:
    """Return the verdict in the value of a field, such as `"not met"`, or false under `is_met`. None without one."""
    if type(value) is bool:
        is_negated = folded_name.endswith(("unmet", "notmet"))
        return _IS_MET_VERDICTS[value != is_negated] if folded_name.endswith("met") else None
    if type(value) is not str or len(value) > _LONGEST_VERDICT:
        return None
    match = _NEGATED.fullmatch(strip_decoration(value))
    return _IS_MET_VERDICTS[bool(match[1])] if match else parse_verdict(value)


@lru_cache(maxsize=256)
def _names_same_answer(name: str, names: tuple[str, ...]) -> bool:
    """Whether a field's name is one of the names of an answer, or ends in one of them, such as `final_verdict`."""
    folded = _fold_name(name)
    is_variant = folded.endswith(names) and not folded.startswith(_LIMIT_NAMES)
    return is_variant and (folded in names or name not in _ANSWER_NAMES)


@lru_cache(maxsize=256)
def _fold_name(name: str) -> str:
    return _NAME_SIGNS.sub("", name.casefold())


@lru_cache(maxsize=64)
def _type(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _differ(fields: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether fields with the same meaning have different values."""
    return len({str(fields[name]) for name in names if name in fields}) > 1
