"""What is likely to go wrong with a sound rubric. Warnings, never errors, and no model: the author decides."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import reaches_mark

FEWEST, MOST = 2, 40
# Comparing every pair of more would take longer than the warning is worth.
MOST_COMPARED = 200

_COMPOUND = re.compile(r"\b(?:and|as well as|or)\b|;", re.IGNORECASE)
_VAGUE = re.compile(
    r"\b(good|nice|appropriate(?:ly)?|adequate(?:ly)?|reasonable|reasonably|properly|suitable|effective(?:ly)?|"
    r"high[- ]quality|user[- ]friendly|well[- ]written|etc)\b",
    re.IGNORECASE,
)
_ABSENCE = re.compile(
    r"^\W*(?:(?:does|do|did|is|are|was|has|have|must|should|can)\s?(?:not|n['’]t)|avoids?|never|no|without|lacks?)\b",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r"\b(?:at most|no more than|fewer than|under|at least|more than|up to)\s+\d+\s+words?\b", re.IGNORECASE
)
_LITERAL = re.compile(
    r"\b(?:contains?|includes?|mentions?|quotes?|uses?)\b[^.]*[\"“'‘][^\"”'’]{2,}[\"”'’]", re.IGNORECASE
)
_SHAPE = re.compile(r"\b(?:valid|well-formed|parsable|parseable)\s+JSON\b", re.IGNORECASE)


class LintWarning(NamedTuple):
    """One thing worth a second look.

    Attributes:
        rule: The rule's id.
        where: The place in the rubric; empty for the rubric itself.
        message: What may go wrong, and what to do.
    """

    rule: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.rule}]" if self.where else f"{self.message} [{self.rule}]"


RULES: dict[str, str] = {
    "compound": "one criterion asks for several things",
    "vague": "a word that every judge reads otherwise",
    "negated-penalty": "a penalty that is phrased as an absence",
    "near-duplicate": "two criteria ask for nearly the same",
    "unreachable-pass-mark": "no combination of answers passes",
    "use-a-check": "code could decide the criterion",
    "count": "too few criteria to say anything, or too many to keep apart",
}


def lint(rubric: Rubric) -> list[LintWarning]:
    """The warnings for a rubric, in the order of its criteria and then of the whole.

    Example:
        >>> rubric = Rubric.from_dict([{"requirement": "Is polite and good"}, {"requirement": "Says why"}])
        >>> [warning.rule for warning in lint(rubric)]
        ['compound', 'vague']
    """
    found = [
        LintWarning(rule, f"criteria[{index}]", message)
        for index, criterion in enumerate(rubric.criteria)
        for rule, look in _LOOKS.items()
        if (message := look(criterion))
    ]
    return found + list(_near_duplicates(rubric)) + list(_whole(rubric))


def _compound(criterion: Criterion) -> str:
    parts = _COMPOUND.findall(criterion.requirement)
    if criterion.kind != "binary" or criterion.check or not parts:
        return ""
    return f"asks for several things at once ({parts[0]!r}): split it, or a half met requirement will be judged by mood"


def _vague(criterion: Criterion) -> str:
    word = None if criterion.check else _VAGUE.search(criterion.requirement)
    return f"{word[0]!r} means something else to every judge: say what would show it" if word else ""


def _negated_penalty(criterion: Criterion) -> str:
    phrase = _ABSENCE.search(criterion.requirement) if criterion.is_penalty else None
    if phrase is None:
        return ""
    return (
        f"is a penalty that begins with {phrase[0].strip()!r}: MET costs points, so describe the error, not its absence"
    )


def _use_a_check(criterion: Criterion) -> str:
    if criterion.check or criterion.kind != "binary":
        return ""
    for pattern, remedy in ((_COUNTED, "min_words or max_words"), (_LITERAL, "contains"), (_SHAPE, "json_schema")):
        if pattern.search(criterion.requirement):
            return f"could be decided by code, for free and without error: give it a check with {remedy}"
    return ""


_LOOKS: dict[str, Callable[[Criterion], str]] = {
    "compound": _compound,
    "vague": _vague,
    "negated-penalty": _negated_penalty,
    "use-a-check": _use_a_check,
}


def _near_duplicates(rubric: Rubric) -> Iterator[LintWarning]:
    texts = [" ".join(criterion.requirement.casefold().split()) for criterion in rubric.criteria[:MOST_COMPARED]]
    matcher = difflib.SequenceMatcher(autojunk=False)
    for (i, one), (j, other) in combinations(enumerate(texts), 2):
        matcher.set_seqs(one[:400], other[:400])
        if matcher.real_quick_ratio() > 0.9 and matcher.quick_ratio() > 0.9 and matcher.ratio() > 0.9:
            message = f"asks nearly the same as criteria[{i}]: what it says twice counts twice"
            yield LintWarning("near-duplicate", f"criteria[{j}]", message)


def _whole(rubric: Rubric) -> Iterator[LintWarning]:
    best = _best_score(rubric)
    if not reaches_mark(best, rubric.pass_mark):
        message = f"the best possible score is {best:.3g}, below the pass mark of {rubric.pass_mark:g}: nothing passes"
        yield LintWarning("unreachable-pass-mark", "", message)
    if not FEWEST <= len(rubric) <= MOST:
        advice = "a single verdict decides everything" if len(rubric) < FEWEST else "small weights drown: group them"
        yield LintWarning("count", "", f"has {len(rubric)} criteria: {advice}")


def _best_score(rubric: Rubric) -> float:
    def best(criterion: Criterion) -> float:
        return max(option.value for option in criterion.choices) if criterion.options else 1.0

    if not rubric.positive_weight:
        least = [min(o.value for o in c.choices) if c.options else 0.0 for c in rubric.criteria]
        lost = math.fsum(-c.weight * v for c, v in zip(rubric.criteria, least, strict=True))
        return 1 - lost / rubric.negative_weight
    return math.fsum(c.weight * best(c) for c in rubric.criteria if c.weight > 0) / rubric.positive_weight
