"""Parses judge replies that another program recorded with its own prompt.

These replies cannot be requested again, and their forms differ. Therefore `READERS` has one reader for each form. A
reply stays unread if no reader finds an answer, or if two readers find different answers. Unread replies are counted.
The answer is never guessed.

Never use this module for a live judge. `judges/prompts/parse.py` parses live replies strictly, and an unclear reply is
requested again.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from rubric_integrations.judges.prompts.parse import parse_object, strengths_and_weaknesses
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import (
    Interpretation,
    JudgeFailure,
    Judgment,
    fold_answer,
    interpret_answer,
    strip_decoration,
)

# Characters of a reply. A longer text is not the reply of a judge but another file that was passed by mistake.
_LONGEST_REPLY = 1_000_000
# Characters of a reply that an error quotes.
_LONGEST_QUOTE = 80


class Statement(NamedTuple):
    """An answer that a reply states.

    Attributes:
        answer: The answer, as the reply writes it.
        start: The position in the reply where the statement begins.
    """

    answer: object
    start: int


Reader = Callable[[Criterion, str], Iterable[Statement]]
"""A function that finds the answers of one form in a reply. If the reply states several answers, it yields all of
them."""


class Readings(NamedTuple):
    """The judgments of recorded replies, and the number of replies that could not be read.

    Attributes:
        outcomes: The judgment of each reply, in order. For an unread reply, a failure with the reason.
        unread: The number of failures. Report it next to every figure that you compute from the judgments.
        forms: The number of replies that each reader read, by the name of the reader. If several readers find the same
            answer in a reply, the reply counts for the first of them.
    """

    outcomes: tuple[Judgment | JudgeFailure, ...]
    unread: int
    forms: Mapping[str, int]


def read_recorded_replies(replies: Iterable[tuple[Criterion, str | Mapping[str, Any]]]) -> Readings:
    """Make judgments from many recorded replies, and count the replies that cannot be read.

    Args:
        replies: Pairs of a criterion and the reply to it. For the accepted forms of a reply, see `read_recorded_reply`.

    Example:
        >>> criterion = Criterion(requirement="The ending feels earned")
        >>> readings = read_recorded_replies([(criterion, "Yes, it does."), (criterion, "Content Blocked")])
        >>> readings.outcomes[0].verdict, readings.unread
        ('MET', 1)
    """
    outcomes: list[Judgment | JudgeFailure] = []
    forms = Counter[str]()
    for criterion, reply in replies:
        try:
            judgment, form = _read(criterion, reply)
        except ValueError as error:
            outcomes.append(JudgeFailure("parse", str(error)))
        else:
            outcomes.append(judgment)
            forms[form] += 1
    return Readings(tuple(outcomes), sum(isinstance(outcome, JudgeFailure) for outcome in outcomes), dict(forms))


def read_recorded_reply(criterion: Criterion, reply: str | Mapping[str, Any]) -> Judgment:
    """Make a judgment from a reply that another program recorded.

    A reply may have one of these forms:

    - an answer, alone or followed by an explanation (`Yes, the story ...`).
    - an answer after its name (`**Usefulness Score: 3**` or `The final rating is 3`).
    - a JSON object with the answer under a common name (`verdict`, `score` or `criteria_met`).
    - the forms of benchmarks: `[[7]]` and `[[A]]` of MT-bench, `[RESULT] 5` of Prometheus, an annotation of AlpacaEval,
      and `Output (a) is better.` of LLMBar.

    Args:
        criterion: The criterion that the reply answers. If the reply compares two responses, the criterion's options
            are the first response, the second response and possibly a tie, such as `A`, `B` and `tie`, or `Output (a)`
            and `Output (b)`.
        reply: The reply, as text or as parsed JSON. For a binary criterion, yes, true and 1 mean MET.

    Raises:
        ValueError: The reply states no answer to the criterion, or two different answers.

    Example:
        >>> read_recorded_reply(Criterion(requirement="The ending feels earned"), "No, it is abrupt.").verdict
        'UNMET'
        >>> read_recorded_reply(Criterion(requirement="Names the dose"), '{"criteria_met": true}').value
        1.0
    """
    return _read(criterion, reply)[0]


def _read(criterion: Criterion, reply: str | Mapping[str, Any]) -> tuple[Judgment, str]:
    """Return the judgment of a reply, and the name of the reader that read it."""
    text = reply if isinstance(reply, str) else json.dumps(reply, default=str)
    if len(text) > _LONGEST_REPLY:
        raise ValueError(f"the reply has {len(text):,} characters, more than {_LONGEST_REPLY:,}: {_quote(text)}")
    text = _without_thinking(text).strip()
    if not text:
        raise ValueError("the reply is empty")
    if _JSON.search(text):
        return _judgment_of_object(criterion, text), "json"
    if whole := _interpret(criterion, text):
        return Judgment(verdict=whole.verdict, value=whole.value), "whole"
    if _REFUSAL.match(text):
        raise ValueError(f"the reply is a refusal or an apology: {_quote(text)}")
    meanings: dict[Interpretation | str, str] = {}
    for readers in (MARK_READERS, READERS):
        for name, reader in readers.items():
            for answer, start in reader(criterion, text):
                problem = "in a quotation" if _is_quoted(text, start) else "which is no answer to the criterion"
                meaning = None if problem == "in a quotation" else _interpret(criterion, answer)
                meanings.setdefault(meaning or f"{answer!r}, {problem}", name)
        if meanings:
            break
    if len(meanings) != 1:
        answers = " and ".join(entry if isinstance(entry, str) else repr(entry.verdict) for entry in meanings)
        problem = f"states different answers ({answers})" if meanings else "states no answer in a form that is known"
        raise ValueError(f"the reply {problem}: {_quote(text)}")
    ((interpretation, name),) = meanings.items()
    if isinstance(interpretation, str):
        raise ValueError(f"the reply states {interpretation}: {_quote(text)}")
    return Judgment(verdict=interpretation.verdict, value=interpretation.value, reason=text), name


def _quote(text: str) -> str:
    return repr(" ".join(text[: 4 * _LONGEST_QUOTE].split())[:_LONGEST_QUOTE])


_THINKING_END = re.compile(r"</think(?:ing)?>")


def _without_thinking(text: str) -> str:
    """Remove a thinking section from the beginning of a reply.

    Raises:
        ValueError: The thinking section has no end tag, or several end tags.
    """
    if not text.lstrip().startswith(("<think>", "<thinking>")):
        return text
    parts = _THINKING_END.split(text)
    if len(parts) != 2:
        raise ValueError(f"the reply has {len(parts) - 1} ends of its thinking instead of one: {_quote(text)}")
    return parts[1]


# --- The meaning of an answer ---

_BINARY = {
    "1": "MET", "true": "MET", "yes": "MET", "met": "MET",
    "0": "UNMET", "false": "UNMET", "no": "UNMET", "unmet": "UNMET", "not met": "UNMET",
}  # fmt: skip
# Not for penalties: "pass" does not say whether the response contains the described error.
_PASSES = {"pass": "MET", "passed": "MET", "fail": "UNMET", "failed": "UNMET"}
_ABSTENTIONS = ("N/A", "CANNOT_ASSESS")
# The longest description, in characters, that a judge may write instead of the option or the number.
_LONGEST_WORDS = 60

_SIDE = re.compile(
    r"(?:(?:output|model|response|assistant|answer|option|system|candidate|text|summary|completion)[\W_]*)?"
    r"(a|b|1|2|first|second|tie|tied|draw|equal|c)\W*",
    re.IGNORECASE,
)
_SIDES: Mapping[str, int] = {"a": 1, "1": 1, "first": 1, "b": 2, "2": 2, "second": 2}


def _interpret(criterion: Criterion, answer: object) -> Interpretation | None:
    """Interpret an answer as it is written, and then without the decoration around it. None if it is not an answer."""
    if isinstance(answer, list | dict) or (isinstance(answer, bool) and criterion.kind != "binary"):
        return None
    text = f"{answer:g}" if isinstance(answer, float) else str(answer).strip()
    # A list is not an answer, even if it has only one number.
    bare = text if text.startswith("[") else strip_decoration(text)
    words = _words(criterion)
    for form in (text, words.get(text.casefold()), bare, words.get(fold_answer(bare)), _side_of(criterion, bare)):
        try:
            if form is not None:
                return interpret_answer(criterion, form)
        except ValueError:
            continue
    return None


def _words(criterion: Criterion) -> dict[str, str]:
    """Return the answers of a criterion by the words that mean them. The words are in lower case and folded."""
    if criterion.kind == "binary":
        return _BINARY | ({} if criterion.is_penalty else _PASSES) | {"notmet": "UNMET"}
    if criterion.options is not None:
        texts = [(option.label, option.label) for option in criterion.options]
        texts += [(option.description or "", option.label) for option in criterion.options]
    else:
        levels = criterion.scale.levels if criterion.scale else {}
        texts = [(text, f"{level:g}") for level, text in levels.items() if isinstance(level, float | int)]
    words: dict[str, str] = {}
    for text, answer in texts:
        if text and len(text) <= _LONGEST_WORDS:
            words.setdefault(text.casefold(), answer)
            words.setdefault(fold_answer(text), answer)
    return words


def _side(text: str) -> int | None:
    """Return the side of a comparison that a text names: 1, 2, or 0 for a tie. None if the text names no side."""
    if text in ("m", "M"):  # AlpacaEval's names of the two responses
        return 1 if text == "m" else 2
    match = _SIDE.fullmatch(text.strip())
    return _SIDES.get(match[1].casefold(), 0) if match else None


def _sides(criterion: Criterion) -> dict[int, str]:
    """Return the options of a comparison by their side. Empty if the criterion is not a comparison."""
    labels = [option.label for option in criterion.options or ()]
    sides = {side: label for label in labels if (side := _side(label)) is not None}
    is_comparison = len(labels) in (2, 3) and len(sides) == len(labels) and {1, 2} <= sides.keys()
    return sides if is_comparison else {}


def _side_of(criterion: Criterion, text: str) -> str | None:
    side = _side(text)
    return None if side is None else _sides(criterion).get(side)


# --- The readers of texts ---

_WHOLE_END = r"""(?=[*_"'\])]*(?:[.,;:!\u2013\u2014]|\s*\(|\s-\s|\s*\n|\s*\Z|\s{2,}))"""
_DECORATION = r"""[\s*_"'`#>\[(]{0,6}"""
_LABEL = r"\b(?:answer|verdict|judge?ment|decision|choice|conclusion|result|rating|score|grade|label)"

_ITEM = r"(?:-\s|\d+[.)]\s*)?[*_]*"

_NUMBER = (
    r"(?P<number>(?<![\w.])[-+]?\d+(?:\.\d+)?)(?![\w%]|\.\d|-\w|\s*(?:-|\u2013|to|or)\s*\d)"
    r"(?:\s*(?:/|out of)\s*(?P<maximum>\d+(?:\.\d+)?))?"
)
# `maximum score of 5` and `does not deserve a score of 4` state no score.
_NO_STATEMENT = re.compile(
    r"(?:max(?:imum)?|min(?:imum)?|highest|lowest|possible|passing|than|not|n't|never|rather|instead of|would have)"
    r"(?:\s+(?:deserve|merit|warrant|receive|get|earn|justify|reach|give|award|assign)\w*)?(?:\s+(?:an?|the|it))*"
    r"(?:\s+possible)?\s+\Z",
    re.IGNORECASE,
)
_OF_SCORE = re.compile(
    r"\b(?P<label>score[sd]?|scoring|rat(?:e|es|ed|ing)|grade[sd]?)\b"
    rf"(?:[^.\n:;\d]{{0,80}}?\b(?:is|of|as|at|be|an?|to)|[^\n:.=]{{0,40}}[:=]|)\s*{_DECORATION}{_NUMBER}",
    re.IGNORECASE,
)
_LABELLED = rf"^{_DECORATION}{_ITEM}(?P<label>[A-Za-z][\w ]{{0,60}})(?:\([\d \-\u2013]+\))?[*_\s]*[:=]\s*{_DECORATION}"
_LINE = re.compile(rf"{_LABELLED}{_NUMBER}", re.MULTILINE)
_WHOLE_LINE = re.compile(rf"{_LABELLED}{_NUMBER}[*_\])\"'.]*\s*$", re.MULTILINE)
_RESULT = re.compile(rf"(?P<label>\[RESULT\])\s*:?\s*{_NUMBER}", re.IGNORECASE)
_BRACKETS = re.compile(r"\[\[\s*([^\[\]\n]{1,40}?)\s*\]\](?!\()")
_FIRST_LINE = re.compile(rf"(?P<label>[\s*_\"'`#>]{{0,6}}){_NUMBER}[*_\])]*\.?\s*?(?:\n|\s-\s|\Z)")
_LIST = re.compile(r"^\s*\d+[.):]\s", re.MULTILINE)
_QUOTES = re.compile(
    r"\b(?:sa(?:ys?|id)|reads?|states?|claims?|contains?|ends?|writes?|wrote|quot\w+|inject\w*|embedded|hidden)\b",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"(?:no[,.]\s*)?(?:unfortunately,?\s*)?(?:i(?:['\u2019]m| am)? (?:\w+ )?(?:sorry|apologi[sz]e)\b|(?:my )?apologies"
    r"|sorry\b|as an ai\b|(?:content )?blocked\b"
    r"|(?:i (?:am )?)?(?:cannot|can['\u2019]t|won['\u2019]t|unable to|not able to)"
    r" (?:assist|help|answer|assess|evaluate|judge|rate|grade|score|comply|provide|give|determine|fulfill)\b)",
    re.IGNORECASE,
)


def _read_brackets(criterion: Criterion, text: str) -> Iterator[Statement]:
    """Find `[[7]]` and `[[A]]`, the form of MT-bench."""
    del criterion
    yield from (Statement(match[1], match.start()) for match in _BRACKETS.finditer(text))


def _read_result(criterion: Criterion, text: str) -> Iterator[Statement]:
    """Find `[RESULT] 5`, the form of Prometheus."""
    yield from _numbers(criterion, _RESULT.finditer(text))


def _read_last_line(criterion: Criterion, text: str) -> Iterator[Statement]:
    """Find `Usefulness: 3` as the last line. Also yield the other lines of this form, which must state the same."""
    lines = [match for match in _WHOLE_LINE.finditer(text) if _is_name(criterion, match["label"])]
    if lines and not text[lines[-1].end() :].strip() and _maximum(criterion) is not None:
        yield from _numbers(criterion, lines)


def _read_leading_word(criterion: Criterion, text: str) -> Iterator[Statement]:
    """Find an answer word at the beginning, such as `Yes, the story ...`, and answer words that begin other lines."""
    # `Output (a): ...` begins a description, and `A good answer` a sentence.
    if _sides(criterion):
        return
    pattern = _word_pattern(tuple(_answer_words(criterion)))
    first = pattern.leading.match(text)
    if first is None:
        return
    yield Statement(first["word"], 0)
    others = [*pattern.line.finditer(text, first.end()), pattern.again.match(text, first.end())]
    yield from (Statement(match["word"], match.start("word")) for match in others if match)
    if refusal := _REFUSAL.match(text[first.end() :].lstrip(" ,.;:*\n")):
        yield Statement(refusal[0], 0)


def _read_labelled_word(criterion: Criterion, text: str) -> Iterator[Statement]:
    """Find an answer in words after its name, such as `Final answer: No` or `**Coverage: partial**`."""
    pattern = _word_pattern(tuple(_answer_words(criterion)))
    named = (match for match in pattern.named.finditer(text) if _is_name(criterion, match["label"]))
    yield from (Statement(match["word"], match.start("label")) for match in (*pattern.labelled.finditer(text), *named))


def _read_score(criterion: Criterion, text: str) -> Iterator[Statement]:
    """Find a number after its name, such as `**Usefulness Score: 3**` or `receives a score of 3`."""
    if _maximum(criterion) is None:
        return
    scores = (match for match in _OF_SCORE.finditer(text) if not _NO_STATEMENT.search(_before(match)))
    yield from _numbers(criterion, scores)
    yield from _numbers(criterion, (m for m in _LINE.finditer(text) if _is_name(criterion, m["label"])))
    if subject := _subject(criterion):
        yield from _numbers(criterion, _of_subject(subject).finditer(text))


def _before(match: re.Match[str]) -> str:
    return match.string[max(0, match.start() - 60) : match.start()]


def _read_leading_number(criterion: Criterion, text: str) -> Iterator[Statement]:
    """Find a number alone on the first line, unless the reply is a numbered list."""
    match = _FIRST_LINE.match(text)
    if match and not _LIST.search(text):
        yield from _numbers(criterion, [match])


def _read_preference(criterion: Criterion, text: str) -> Iterator[Statement]:
    """Find the better of two responses, such as `Output (a) is better.` of LLMBar."""
    if _sides(criterion):
        for match in _PREFERENCE.finditer(text):
            if not _IN_DOUBT.search(_before(match)):
                yield Statement(match["side"], match.start())


# `I do not think that Output (a) is better` states no preference.
_IN_DOUBT = re.compile(r"(?:\b(?:can)?not|\bn?either|n't|\bwhether|\bif|\bdoubt\w*)\b[^.,;:\n]*\Z", re.IGNORECASE)
_PREFERENCE = re.compile(
    r"(?:^\W*(?P<alone>)|\b)(?:output|response|assistant|model|answer)\s*\(?(?P<side>[ab12])\b\)?"
    r"(?:(?(alone)[*.]*\s*$|(?!))|\s+is\s+(?:(?:the|a|clearly|slightly|much|overall)\s+)*(?:better|superior|preferred|best)"
    r"(?=\s*(?:[.,;!*\n]|\Z|overall|than|because|since|as\b|for the given)))",
    re.IGNORECASE | re.MULTILINE,
)

MARK_READERS: dict[str, Reader] = {
    "brackets": _read_brackets,
    "result": _read_result,
    "last line": _read_last_line,
}
"""The readers of forms that the prompt of a benchmark requests, such as `[[7]]`, by name.

They run before `READERS`, because the prose before such an answer may name other numbers, such as `this deserves no
score of 5`.
"""

READERS: dict[str, Reader] = {
    "leading word": _read_leading_word,
    "labelled word": _read_labelled_word,
    "score": _read_score,
    "leading number": _read_leading_number,
    "preference": _read_preference,
}
"""The readers of all other replies, by name. If two of them find different answers, the reply stays unread."""


class _WordPatterns(NamedTuple):
    leading: re.Pattern[str]
    line: re.Pattern[str]
    again: re.Pattern[str]
    labelled: re.Pattern[str]
    named: re.Pattern[str]


def _answer_words(criterion: Criterion) -> list[str]:
    """Return the answers of a criterion that are words, not numbers, in all spellings. The longest comes first."""
    words = {answer for answer in _words(criterion) if not answer.replace(".", "").isdigit()}
    return sorted({*words, *map(str.casefold, _ABSTENTIONS), "cannot assess"}, key=lambda word: (-len(word), word))


@lru_cache(maxsize=256)
def _word_pattern(words: tuple[str, ...]) -> _WordPatterns:
    """Compile the patterns that find the words of a verdict in a text."""
    spellings = "|".join(r"[\s_-]*".join(map(re.escape, re.split(r"[\s_-]+", word))) for word in words)
    word = rf"(?P<word>{spellings}){_WHOLE_END}"
    label = rf"(?:(?:(?:my|the|final|overall)\s+)*{_LABEL}\s*(?::|is)\s*)?"

    def compiled(pattern: str) -> re.Pattern[str]:
        return re.compile(pattern, re.IGNORECASE | re.MULTILINE)

    return _WordPatterns(
        leading=compiled(rf"\A{_DECORATION}{label}{_DECORATION}{word}"),
        line=compiled(rf"^{_DECORATION}{word}"),
        again=compiled(rf"[\s,.;:/*]*(?:(?:and|but|or)\s+)?{word}"),
        labelled=compiled(rf"(?P<label>{_LABEL})[*_\s]*(?::|=|\bis\b)\s*{_DECORATION}{word}"),
        named=compiled(rf"^{_DECORATION}{_ITEM}(?P<label>[a-z][\w ]{{0,60}}?)[*_\s]*[:=]\s*{_DECORATION}{word}"),
    )


def _is_quoted(text: str, start: int) -> bool:
    """Whether a statement is inside a quotation, for example of the response that was judged."""
    before, _, line = text[max(0, start - 1_000) : start].rpartition("\n")
    is_first = not line.strip(" \t*_#>-`")
    introduction = before.rstrip("\n `").rpartition("\n")[2] if is_first else ""
    is_open = line.count('"') % 2 == 1 or line.count("`") % 2 == 1 or line.count("\u201c") > line.count("\u201d")
    return (
        is_open or line.lstrip().startswith(">") or (introduction.endswith(":") and bool(_QUOTES.search(introduction)))
    )


def _numbers(criterion: Criterion, matches: Iterable[re.Match[str]]) -> Iterator[Statement]:
    for match in matches:
        number, maximum = match["number"], match["maximum"]
        is_of_scale = maximum is None or float(maximum) == _maximum(criterion)
        yield Statement(float(number) if is_of_scale else f"{number}/{maximum}", match.start("label"))


def _maximum(criterion: Criterion) -> float | None:
    """Return the highest number that is a valid answer. None if the answers are not numbers."""
    if criterion.scale is not None:
        return criterion.scale.max
    labels = [option.label for option in criterion.choices if option.label.replace(".", "", 1).isdigit()]
    return max(map(float, labels), default=None)


_WORD = re.compile(r"[^\W\d_]{3,}")
_GENERIC = frozenset(("score", "rating", "grade", "final", "overall", "total", "the", "result", "mark"))


def _subject(criterion: Criterion) -> str | None:
    """Return the noun by which a reply may name the score: the criterion's name, or the word before `of`.

    For the requirement `Usefulness of the code`, this is `Usefulness`.
    """
    return criterion.name or next(iter(re.findall(r"\A(\w+) of\b", criterion.requirement)), None)


@lru_cache(maxsize=256)
def _of_subject(subject: str) -> re.Pattern[str]:
    name = re.escape(subject)
    return re.compile(
        rf"\b(?P<label>{name})\b[^.\n:;\d]{{0,80}}?\b(?:is|as|at)\s+{_DECORATION}{_NUMBER}", re.IGNORECASE
    )


def _is_name(criterion: Criterion, label: str) -> bool:
    """Whether the text before a colon names the answer, such as `Score`, `Usefulness` or `Usefulness score`."""
    words = set(_WORD.findall(label.casefold()))
    known = set(_WORD.findall(f"{criterion.name or ''} {criterion.requirement}".casefold()))
    return bool(words) and words <= known | _GENERIC


# --- JSON ---

_ANSWERS = (
    "verdict", "choice", "score", "answer", "label", "overall_score", "rating", "grade", "judgment", "judgement",
    "decision", "result", "met", "is_met", "pass", "passed", "winner", "preference",
)  # fmt: skip
# Other JSON objects in prose, such as objects in the code that was judged, are not answers.
_JSON = re.compile(
    r"""\A\s*(?:```\w*\s*)?[\[{]\s*["'{\]}]"""
    rf"""|["'](?:{"|".join((*_ANSWERS, "criterion_status", "criteria_met"))})["']\s*:"""
)
_REASONS = ("explanation", "reason", "reasoning", "rationale", "feedback")


def _judgment_of_object(criterion: Criterion, text: str) -> Judgment:
    """Make a judgment from a reply with a JSON object, or with AlpacaEval's list of ranks.

    Raises:
        ValueError: There is no object, there is text around it that `parse_object` does not accept, or the object does
            not state exactly one answer.
    """
    if ranks := _ranked_first(text):
        interpretation, reason = _interpret(criterion, ranks), ""
    else:
        reply = parse_object(text, is_strict=lambda: False)
        answer, reason = _answer_of(criterion, reply.fields, text)
        interpretation = _interpret(criterion, answer)
    if interpretation is None:
        raise ValueError(f"the reply has no answer to the criterion in its JSON object: {_quote(text)}")
    return Judgment(verdict=interpretation.verdict, value=interpretation.value, reason=reason)


def _answer_of(criterion: Criterion, fields: Mapping[str, Any], text: str) -> tuple[Any, str]:
    """Return the answer in a JSON object, and its reason.

    Raises:
        ValueError: The object has no answer, or two different answers.
    """
    names = _ANSWERS if not criterion.is_penalty else [name for name in _ANSWERS if not name.startswith("pass")]
    answers = {str(fields[name]).casefold(): fields[name] for name in names if fields.get(name) is not None}
    if not answers:
        name = fold_answer(criterion.name or "")
        own = [value for field, value in fields.items() if name and fold_answer(field) == name]
        inner = own or (list(fields.values()) if len(fields) == 1 else [])
        if len(inner) == 1 and isinstance(inner[0], dict):
            return _answer_of(criterion, inner[0], text)
        answers = {str(value): value for value in own}
    meanings = {_interpret(criterion, answer) for answer in answers.values()}
    if len(answers) != 1 and (len(meanings) != 1 or None in meanings):
        raise ValueError(
            f"the reply has {len(answers)} answers: exactly one of {', '.join(f'`{name}`' for name in _ANSWERS)} must "
            f"name it: {_quote(text)}"
        )
    answer = next(iter(answers.values()))
    if "preference" in fields and isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = _preferred(float(answer))
    reason = next((fields[name] for name in _REASONS if isinstance(fields.get(name), str)), "")
    return answer, reason or strengths_and_weaknesses(fields)


def _preferred(preference: float) -> str:
    """Return the preferred response of an AlpacaEval annotation.

    Args:
        preference: 1 plus the preference for the second response in [0, 1]. 1.5 and 0 are a tie.
    """
    if preference in (0, 1.5):
        return "tie"
    if not 1 <= preference <= 2:
        raise ValueError(f"`preference` is {preference!r}, not a number from 1 to 2")
    return "1" if preference < 1.5 else "2"


def _ranked_first(text: str) -> str | None:
    """Return the name of the response with rank 1 in a list of ranks, as AlpacaEval's annotators write it."""
    try:
        entries = ast.literal_eval(text) if text.startswith("[") and len(text) <= 10_000 else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    ranked = entries if isinstance(entries, list) else []
    is_ranking = len(ranked) == 2 and all(isinstance(e, dict) and {"model", "rank"} <= e.keys() for e in ranked)
    if not is_ranking or sorted(str(entry["rank"]) for entry in ranked) != ["1", "2"]:
        return None
    return next(str(entry["model"]) for entry in ranked if str(entry["rank"]) == "1")
