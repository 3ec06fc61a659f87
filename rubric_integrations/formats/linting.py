"""Lint rules for valid rubrics: warnings about requirements that judges answer unreliably. No model is called.

The patterns are designed to miss a mistake rather than give a false warning. `benchmarks/lint_precision.py` measures
how many warnings about published rubrics are right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Node, Rubric
from rubric_integrations.scoring.formula import reaches_mark

_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|‘[^’]*’|(?<!\w)'[^']*'(?!\w)|`[^`]*`|\([^()]*\)|\[[^\[\]]*\]")
_EXAMPLES = re.compile(r"\b(?:such as|including|like|for example|for instance|e\.g\.|i\.e\.)[^.;?]*", re.IGNORECASE)
_ONE_IDEA = re.compile(
    r"\bbetween\b[^,.;?]{1,120}?\band\b|\b(?:pros and cons|terms and conditions|research and development|"
    r"supply and demand|trial and error|back and forth|questions? and answers?|and so on)\b",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^[^:.?!]{1,150}:(?=(?:\W*\w+){8})")

# Verbs of requirements. The words of the second group can also be nouns ("notes", "lists"). Therefore, an article must
# follow them.
_VERBS = re.findall(
    r"\w+",
    "acknowledge add advise analyze apologize assess attribute avoid calculate cite clarify compare compute conclude "
    "contain convey correct create define demonstrate describe discuss emphasize ensure evaluate exclude explain "
    "express follow give greet highlight identify illustrate include indicate introduce justify keep maintain mention "
    "omit propose provide recommend refer refrain reject remain remind respond specify suggest summarize tell verify",
)
_NOUN_LIKE = re.findall(
    r"\w+", "address answer ask call cover decline list name note offer present quote report show state use"
)
_ARTICLE = r"(?:the|an?|its?|their|his|her|them|that|at|each|all|every|any|no|one|only|how|why|what|whether|\d+)\b"


def _third_person(verb: str) -> str:
    if verb.endswith("ss"):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if verb.endswith("fy") else f"{verb}s"


def _any_of(forms: list[str]) -> str:
    return rf"(?:{'|'.join(forms)})\b"


_BASE, _THIRD = _any_of([*_VERBS, *_NOUN_LIKE]), _any_of([_third_person(verb) for verb in (*_VERBS, *_NOUN_LIKE)])
_SECOND_BASE = rf"(?:{_any_of(_VERBS)}\s+\w+|{_any_of(_NOUN_LIKE)}\s+{_ARTICLE})"
_SECOND_THIRD = (
    rf"(?:{_any_of([_third_person(verb) for verb in _VERBS])}\s+\w+|"
    rf"{_any_of([_third_person(verb) for verb in _NOUN_LIKE])}\s+{_ARTICLE})"
)

# The words after one of these words belong to a statement, a condition or a purpose within one requirement.
_CLAUSE = r"that|which|who|whose|whom|where|when|while|if|whether|because|since|as"
_PLAIN = rf"(?:(?!\b(?:{_CLAUSE}|how|by|to|for)\b)[^.;?])"
_NO_CLAUSE = rf"^(?:(?!\b(?:{_CLAUSE})\b)[^.;?]){{0,300}}?"
_AND = r",?\s+and\s+(?:also\s+|then\s+|\w+ly\s+)?"
_MODAL = r"(?:does|do|did|should|must|could|can|will|would|may)"
_FINITE = r"(?:is|are|was|were|has|have|does|do|should|must)\b"
_WORDS = r"(?:(?!(?:of|for|in|to|with|on|from|about|and|as|at|by|or|how|what|why|if|that|which)\b)[\w'’-]+,?\s+)"

_COMPOUND = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # "should name the cause and explain the remedy", "Names the cause and explains the remedy"
        rf"\b{_MODAL}\b[^.;?]{{0,80}}?\b{_BASE}\s+{_PLAIN}{{3,200}}?(?P<join>{_AND}{_SECOND_BASE})",
        rf"^\W*(?:\w+ly\s+)?(?:is|are|has|{_THIRD})\s+{_PLAIN}{{3,200}}?(?P<join>{_AND}{_SECOND_THIRD})",
        # "is honest and does it follow", "has been trained, and the loss has been measured"
        rf"{_NO_CLAUSE}(?P<join>\band\s+{_FINITE}\s+\w+)",
        rf"{_NO_CLAUSE}(?P<join>,\s+and\s+(?:the|an?|its?|their|they|there|all|each|every|this|these|no)\b)"
        rf"(?:(?!\b(?:{_CLAUSE})\b)[^,.;?]){{1,80}}?\b{_FINITE}",
        # "defines the term and its limits", "names the author and the year", "names the price, as well as the date"
        rf"{_NO_CLAUSE}\b(?:{_BASE}|{_THIRD})\s+{_PLAIN}{{3,120}}?(?P<join>\s+and\s+(?:its|their)\s+\w+)",
        rf"(?:\b{_MODAL}\b[^.;?]{{0,60}}?\b(?:define|mention|name)|^\W*(?:defines|mentions|names|states))\s+"
        rf"{_WORDS}{{1,5}}?(?P<join>and\s+(?!\w+ing\b){_WORDS}*\w+)",
        rf"{_NO_CLAUSE}(?P<join>,\s+as well as\s+(?:the|an?|its|their)\s+\w+)",
    )
]

# The words of one line have nearly the same meaning. Two lines are two qualities. A response can have one without the
# other.
_QUALITIES = [
    "accurate|accurately|correct|correctly|factual|factually|truthful|truthfully|honest|honestly",
    "clear|clearly|understandable|readable|easy to (?:understand|read|follow)",
    "concise|concisely|brief|briefly|succinct|succinctly|short",
    "complete|completely|comprehensive|comprehensively|thorough|thoroughly|detailed",
    "polite|politely|respectful|respectfully|friendly|courteous|courteously|empathetic|kind",
    "relevant",
    "consistent(?! with)|consistently|coherent|coherently",
    "creative|creatively|original|humorous|humorously|funny|engaging|catchy",
    "feasible|practical|actionable",
]
_QUALITY = rf"(?:(?:\w+ly\s+)?(?:{'|'.join(_QUALITIES)}))"
_QUALITY_LIST = re.compile(rf"\b{_QUALITY}(?:\s*,\s*{_QUALITY}){{0,4}}\s*,?\s+and\s+{_QUALITY}(?!\w)", re.IGNORECASE)
_FAMILIES = [re.compile(rf"\b(?:{family})\b", re.IGNORECASE) for family in _QUALITIES]

_STANDARD = (
    r"(?:good|nice|appropriate|adequate|reasonable|proper|suitable|effective|high[- ]quality|user[- ]friendly|"
    r"well[- ]written)"
)
_ADVERB = r"(?:appropriately|adequately|reasonably|properly|suitably|effectively)"
_ENDS = r"(?=\s*(?:$|[.,?!;)]|and\b|for\b|to\b|in\b|given\b|within\b|as\b))"
_VAGUE = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:is|are|was|were|appears?|seems?|remains?|sounds?)\s+(?:\w+ly\s+)?(?:\w+\s+and\s+)?(?P<word>{_STANDARD}){_ENDS}",
        rf"^\W*(?:is|are|was|were)\s+[^.,;?]{{1,120}}?(?<!more )(?<!most )(?<!be )\b(?P<word>{_STANDARD}){_ENDS}",
        rf"\b(?:uses?|gives?|provides?|makes?|offers?|produces?|includes?|demonstrates?|shows?)\s+(?:an?\s+|the\s+)?"
        rf"(?:\w+ly\s+)?(?P<word>{_STANDARD})\s+\w",
        rf"^\W*(?:does|do|did|is|are|was|were|has|have)\s+(?:(?!\b(?:{_CLAUSE}|how|to|be|not|avoid|refrain)\b)[^.;,?])"
        rf"{{1,120}}?\b(?P<word>{_ADVERB})\b",
        rf"^\W*(?P<word>{_ADVERB})\s+{_THIRD}",
        rf"\b(?:assess|evaluate|check)(?:es|s)?\s+(?:if|whether)\s+(?:(?!\b(?:{_CLAUSE}|how|to|be|not)\b)[^.;,?])"
        rf"{{1,120}}?\b(?P<word>{_ADVERB})\b",
    )
]
_EVIDENCE = re.compile(
    r"\b(?:according to|as (?:outlined|described|specified|defined|required|stated|set out|per)|per the|in line with|"
    r"such as|e\.g\.|i\.e\.|for example|namely|meaning|including|includes|covering|avoiding|neither|by \w+ing|"
    r"with correct)\b|\(",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"\b(?:states?|says?|mentions?|explains?|concludes?|argues?|discuss(?:es)?)\s+(?:that|why|how)\b", re.I
)

_FAULT = (
    r"(?:errors?|mistakes?|typos?|jargon|filler|repetitions?|hallucinations?|contradictions?|false\w*|wrong\w*|"
    r"incorrect\w*|inaccura\w+|irrelevant|unnecessary|unneeded|redundant|fabricated|invented|made-up|misleading|"
    r"insulting|rude|unsupported|unverified|excessive|"
    r"(?:harmful|unsafe|dangerous|offensive|biased) (?:advice|claims?|content|instructions?|language|recommendations?|"
    r"statements?|suggestions?))"
)
_WRONGDOING = (
    r"(?:invents?|hallucinates?|fabricates?|contradicts? (?:itself|the (?:context|source|text))|exaggerates?|misleads?|"
    r"misrepresents?|misstates?|insults?|blames?|leaks?|violates?|lies?|plagiarizes?|omits?|ignores?|overstates?|"
    r"distorts?)"
)
# "Avoids answering" is itself an error.
_SPEECH = (
    r"(?:answer|address|discuss|mention|stat|explain|giv|provid|nam|ask|respond|engag|recommend|advis|commit|warn|mak|"
    r"tak)ing"
)
_NOT = r"(?:(?:does|do|did|is|are|was|has|have|must|should|can)\s?(?:not|n['’]t)|never|no|without|lacks?)"
_ABSENCE = [
    re.compile(rf"^\W*(?:the\s+\w+\s+)?{pattern}", re.IGNORECASE)
    for pattern in (
        rf"(?:avoids?|refrains? from)\b(?!\s+(?:{_SPEECH}|the (?:question|topic|subject|issue))\b)",
        r"(?:is|are)\s+free\s+(?:of|from)\b",
        rf"{_NOT}\s+{_WRONGDOING}\b",
        rf"{_NOT}\s+(?:(?:have|has|contains?|includes?|makes?|uses?|gives?|adds?)\s+(?:an?\s+|any\s+)?(?:\w+\s+)?)?"
        rf"(?:an?\s+|any\s+)?{_FAULT}\b",
    )
]

_WHOLE = r"^\W*(?:(?:does|is|has)?\s*(?:the|a)\s+(?:response|output|answer|reply|text)\s+)?(?:(?:should|must)\s+)?"
_BE = r"(?:(?:has|have|is|be|contains?|uses?|stays?|keeps?)\s+)?"
_LIMIT = r"(?:at most|no more than|not more than|fewer than|less than|under|at least|more than|up to|exactly)"
_TEXT = r"(?:\"[^\"]{2,}\"|“[^”]{2,}”|'[^']{2,}'|‘[^’]{2,}’)"
_CHECKS = {
    "min_words or max_words": rf"{_WHOLE}{_BE}{_LIMIT}\s+\d+\s+words(?:\s+(?:long|in total|in length))?\W*$",
    "contains": rf"{_WHOLE}(?:contains?|includes?|uses?|quotes?)\s+(?:the\s+)?(?:(?:exact|literal)\s+)?"
    rf"(?:(?:word|phrase|term|text|string|sentence)s?\s+)?{_TEXT}(?:\s*(?:,|and|,\s*and)\s*{_TEXT}){{0,9}}"
    r"(?:\s+as (?:required|requested|specified)[\w\s]{0,40})?[\s.?!]*$",
    "json_schema": rf"{_WHOLE}{_BE}(?:valid|well-formed|parse?able)\s+JSON\W*$",
}
_BY_CHECK = {check: re.compile(pattern, re.IGNORECASE) for check, pattern in _CHECKS.items()}


_AMOUNT = r"[-+\u2212]?\d{1,3}(?:\.\d+)?"
_BRACKETED = rf"[(\[]\s*(?:weight:?\s*)?{_AMOUNT}\s*(?:points?|pts?\.?|%)?\s*[)\]]"
_UNIT = rf"{_AMOUNT}\s*(?:points?\b|pts?\b\.?|%)"
_WEIGHT_IN_TEXT = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"^\W{{0,3}}?(?P<text>{_BRACKETED}|{_AMOUNT}\s*(?:points?|pts?)\b|{_AMOUNT}\s*%(?=\s*[:\u2013\u2014-]))",
        rf"(?P<text>{_BRACKETED})[\s.*_]*$",
        # Not the second number of a range.
        rf"(?:[^\d%\s]\s*[|\u2013\u2014-]|\bworth\b)\s*(?P<text>{_UNIT})[\s.*_]*$",
        rf":\s*(?P<text>{_AMOUNT}\s*(?:points?|pts?))\b[\s.*_]*$",
    )
]


def weight_in_text(requirement: str) -> str:
    """Return a number at the beginning or the end of a requirement that is written like a weight, such as `(10)`.

    Example:
        >>> weight_in_text("(-5) Blames the customer"), weight_in_text("States the margin as 17.2%")
        ('(-5)', '')
    """
    matches = (pattern.search(requirement) for pattern in _WEIGHT_IN_TEXT)
    return next((match["text"] for match in matches if match), "")


def _without_quotations(requirement: str) -> str:
    """Return a requirement without quotations and brackets, because words in them do not state requirements."""
    return _QUOTED.sub(" X ", requirement)


def second_requirement(requirement: str) -> str:
    """Return the words that join a second requirement to the first, such as `and gives a`, or an empty text."""
    text = _without_quotations(_HEADING.sub("", requirement)).replace("such that", "so")
    for sentence in re.split(r"(?<=[.;?!])\s+", _ONE_IDEA.sub(" X ", _EXAMPLES.sub("", text))):
        for pattern in _COMPOUND:
            if match := pattern.search(sentence.strip()):
                return match["join"].strip(" ,")
        if (qualities := _QUALITY_LIST.search(sentence)) and _are_different(qualities[0]):
            return qualities[0]
    return ""


def _are_different(qualities: str) -> bool:
    return any(one.search(qualities) and other.search(qualities) for one, other in combinations(_FAMILIES, 2))


def vague_standard(requirement: str) -> str:
    """Return a vague word that sets the standard of a requirement, such as `appropriate`. Empty if there is none."""
    text = _HEADING.sub("", requirement)
    if _REPORTED.search(text):
        return ""
    for sentence in re.split(r"(?<=[.;?!])\s+", text.strip()):
        plain = sentence if _EVIDENCE.search(sentence) else _without_quotations(sentence)
        for pattern in _VAGUE:
            if (match := pattern.search(plain)) and not _EVIDENCE.search(plain):
                return match["word"]
    return ""


def absent_error(requirement: str) -> str:
    """Return the words that require the absence of an error, such as `Avoids`. Empty if there are no such words."""
    return next((match[0].strip() for pattern in _ABSENCE if (match := pattern.search(requirement))), "")


def deciding_check(requirement: str) -> str:
    """Return the condition of a check that can decide a requirement without a judge. Empty if there is none."""
    return next((check for check, pattern in _BY_CHECK.items() if pattern.search(requirement)), "")


class LintWarning(NamedTuple):
    """A likely mistake in a valid rubric.

    Attributes:
        rule: The id of the lint rule, such as `compound`. A key of `RULES`.
        where: The place in the rubric, such as `criteria[2]`. Empty for the rubric itself.
        message: What may go wrong and how to fix it.
    """

    rule: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.rule}]" if self.where else f"{self.message} [{self.rule}]"


RULES: dict[str, str] = {
    "compound": "one criterion has several requirements",
    "vague": "a standard that judges interpret differently",
    "negated-penalty": "a penalty that describes the absence of an error",
    "near-duplicate": "two criteria have the same requirement, apart from case, articles and punctuation",
    "unreachable-pass-mark": "even the best answers stay below the pass mark",
    "use-a-check": "code would decide the criterion in the same way",
    "weight-in-text": "a number that is written like a weight, but is part of the requirement",
}
"""The description of each lint rule, by its id."""


def lint(rubric: Rubric) -> list[LintWarning]:
    """Return the lint warnings for a rubric: first for each criterion in order and then for the rubric itself.

    Example:
        >>> rubric = Rubric.from_dict([{"requirement": "Is polite and gives good advice"}])
        >>> [warning.rule for warning in lint(rubric)]
        ['compound', 'vague']
    """
    warnings = [
        LintWarning(rule, f"criteria[{index}]", message)
        for index, criterion in enumerate(rubric.criteria)
        for rule, message_for in _CRITERION_RULES.items()
        if (message := message_for(criterion))
    ]
    return [*warnings, *_weights_in_texts(rubric), *_near_duplicates(rubric), *_warnings_for_whole(rubric)]


def _compound(criterion: Criterion) -> str:
    words = "" if criterion.kind != "binary" or criterion.check else second_requirement(criterion.requirement)
    if not words:
        return ""
    remedy = "split it and share its weight between the parts, because judges disagree on a half-met requirement"
    return f"has several requirements ({words!r}): {remedy}"


def _vague(criterion: Criterion) -> str:
    word = "" if criterion.check or _has_described_levels(criterion) else vague_standard(criterion.requirement)
    return f"{word!r} is vague, and judges interpret it differently: name the evidence to look for" if word else ""


def _has_described_levels(criterion: Criterion) -> bool:
    """Return whether a criterion has descriptions of all its options, or of some numbers of its scale."""
    if criterion.scale:
        return bool(criterion.scale.levels)
    return bool(criterion.choices) and all(option.description for option in criterion.choices)


def _negated_penalty(criterion: Criterion) -> str:
    words = absent_error(criterion.requirement) if criterion.is_penalty and not criterion.operator else ""
    if not words:
        return ""
    remedy = "MET lowers the score, so keep the weight and describe the error itself"
    return f"is a penalty for a response without the error ({words!r}): {remedy}"


def _use_a_check(criterion: Criterion) -> str:
    check = "" if criterion.check or criterion.kind != "binary" else deciding_check(criterion.requirement)
    return f"would be decided alike in code, without cost and without error: add a check with {check}" if check else ""


_CRITERION_RULES: dict[str, Callable[[Criterion], str]] = {
    "compound": _compound,
    "vague": _vague,
    "negated-penalty": _negated_penalty,
    "use-a-check": _use_a_check,
}


def _weights_in_texts(rubric: Rubric) -> Iterator[LintWarning]:
    texts = [weight_in_text(criterion.requirement) for criterion in rubric.criteria]
    amounts = [float(re.sub(r"[^\d.+-]", "", text.replace("\u2212", "-")).strip(".") or 0) for text in texts]
    if len(amounts) > 1 and amounts == [float(number) for number in range(1, len(amounts) + 1)]:
        return  # the criteria are numbered
    for index, (criterion, text, amount) in enumerate(zip(rubric.criteria, texts, amounts, strict=True)):
        if text and criterion.weight != amount:
            message = (
                f"has {text!r} in its text, and the weight {criterion.weight:g}: no format reads a weight there; if it "
                f"is one, write `weight: {amount:g}`, and only the words as the requirement"
            )
            yield LintWarning("weight-in-text", f"criteria[{index}]", message)


def _near_duplicates(rubric: Rubric) -> Iterator[LintWarning]:
    groups = dict(_groups(rubric.tree or ()))
    places: dict[tuple[str, str], int] = {}
    for index, criterion in enumerate(rubric.criteria):
        first = places.setdefault((groups.get(index, ""), _comparable(criterion.full_requirement)), index)
        if first != index:
            remedy = "write what is different in this one, or merge the two and add their weights"
            message = f"asks the same as criteria[{first}], so that one answer counts twice: {remedy}"
            yield LintWarning("near-duplicate", f"criteria[{index}]", message)


def _groups(nodes: Sequence[Node], place: str = "") -> Iterator[tuple[int, str]]:
    """Yield each leaf with its group, because an author may repeat a requirement in another group on purpose."""
    for number, node in enumerate(nodes):
        if node.leaf is not None:
            yield node.leaf, place
        yield from _groups(node.children, f"{place}.{number}")


def _comparable(requirement: str) -> str:
    """Return a requirement in lower case, without articles and punctuation, for comparison."""
    words = (word.rstrip(".,;:!?") for word in requirement.casefold().split())
    return " ".join(word for word in words if word not in {"", "a", "an", "the"})


def _warnings_for_whole(rubric: Rubric) -> Iterator[LintWarning]:
    best = _best_score(rubric)
    if not reaches_mark(best, rubric.pass_mark):
        message = (
            f"the best possible score is {best:.3g}, below the pass mark of {rubric.pass_mark:g}: nothing passes, "
            "unless criteria are left out"
        )
        yield LintWarning("unreachable-pass-mark", "", message)


def _best_score(rubric: Rubric) -> float:
    """Return the highest score that any combination of answers can reach, without abstentions."""

    def value(criterion: Criterion) -> float:
        """Return the best value: the highest one, or the lowest one for a penalty."""
        values = [option.value for option in criterion.choices] or [0.0, 1.0]
        return min(values) if criterion.is_penalty else max(values)

    gained = math.fsum(c.full_weight * value(c) for c in rubric.criteria if c.weight > 0)
    if rubric.positive_weight:
        return gained / rubric.positive_weight
    return 1 - math.fsum(-c.full_weight * value(c) for c in rubric.criteria) / rubric.negative_weight
