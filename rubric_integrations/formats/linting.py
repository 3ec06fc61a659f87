"""Lint rules for valid rubrics. They only warn, because the author decides, and they call no model."""

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

MIN_CRITERIA, MAX_CRITERIA = 2, 40
# The comparison of all pairs takes quadratic time: beyond this number the linter would seem to hang.
MAX_COMPARED = 200
SIMILARITY = 0.9

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
    """A likely mistake in a valid rubric.

    Attributes:
        rule: The id of the rule, a key of `RULES`.
        where: The place in the rubric, such as `criteria[2]`; empty for the rubric itself.
        message: What may go wrong, and what to do.
    """

    rule: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.rule}]" if self.where else f"{self.message} [{self.rule}]"


RULES: dict[str, str] = {
    "compound": "one criterion has several requirements",
    "vague": "a word that judges interpret differently",
    "negated-penalty": "a penalty that is phrased as an absence",
    "near-duplicate": "two criteria have nearly the same requirement",
    "unreachable-pass-mark": "no combination of answers passes",
    "use-a-check": "code could decide the criterion",
    "count": "too few or too many criteria",
}
"""The lint rules: their ids, and what each warns of."""


def lint(rubric: Rubric) -> list[LintWarning]:
    """Return the warnings for a rubric: first for each criterion, in order, then for the whole rubric.

    Example:
        >>> rubric = Rubric.from_dict([{"requirement": "Is polite and good"}, {"requirement": "Says why"}])
        >>> [warning.rule for warning in lint(rubric)]
        ['compound', 'vague']
    """
    warnings = [
        LintWarning(rule, f"criteria[{index}]", message)
        for index, criterion in enumerate(rubric.criteria)
        for rule, message_for in _CRITERION_RULES.items()
        if (message := message_for(criterion))
    ]
    return [*warnings, *_near_duplicates(rubric), *_warnings_for_whole(rubric)]


def _compound(criterion: Criterion) -> str:
    parts = _COMPOUND.findall(criterion.requirement)
    if criterion.kind != "binary" or criterion.check or not parts:
        return ""
    return f"has several requirements ({parts[0]!r}): split it, because judges disagree on a half-met requirement"


def _vague(criterion: Criterion) -> str:
    word = None if criterion.check else _VAGUE.search(criterion.requirement)
    return f"{word[0]!r} is vague, and judges interpret it differently: name the evidence to look for" if word else ""


def _negated_penalty(criterion: Criterion) -> str:
    phrase = _ABSENCE.search(criterion.requirement) if criterion.is_penalty else None
    if phrase is None:
        return ""
    remedy = "MET lowers the score, so describe the error, not its absence"
    return f"is a penalty that begins with {phrase[0].strip()!r}: {remedy}"


def _use_a_check(criterion: Criterion) -> str:
    if criterion.check or criterion.kind != "binary":
        return ""
    for pattern, remedy in ((_COUNTED, "min_words or max_words"), (_LITERAL, "contains"), (_SHAPE, "json_schema")):
        if pattern.search(criterion.requirement):
            return f"could be decided in code, without cost and without error: add a check with {remedy}"
    return ""


_CRITERION_RULES: dict[str, Callable[[Criterion], str]] = {
    "compound": _compound,
    "vague": _vague,
    "negated-penalty": _negated_penalty,
    "use-a-check": _use_a_check,
}


def _near_duplicates(rubric: Rubric) -> Iterator[LintWarning]:
    texts = [" ".join(criterion.requirement.casefold().split()) for criterion in rubric.criteria[:MAX_COMPARED]]
    matcher = difflib.SequenceMatcher(autojunk=False)
    for (i, one), (j, other) in combinations(enumerate(texts), 2):
        matcher.set_seqs(one[:400], other[:400])
        # The quick ratios are upper bounds of `ratio()`, which is slow.
        if all(ratio() > SIMILARITY for ratio in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)):
            message = f"has nearly the same requirement as criteria[{i}], which therefore counts twice: remove one"
            yield LintWarning("near-duplicate", f"criteria[{j}]", message)


def _warnings_for_whole(rubric: Rubric) -> Iterator[LintWarning]:
    best = _best_score(rubric)
    if not reaches_mark(best, rubric.pass_mark):
        message = f"the best possible score is {best:.3g}, below the pass mark of {rubric.pass_mark:g}: nothing passes"
        yield LintWarning("unreachable-pass-mark", "", message)
    if len(rubric) < MIN_CRITERIA:
        yield LintWarning("count", "", "has 1 criterion: a single verdict decides the whole score")
    elif len(rubric) > MAX_CRITERIA:
        advice = "small weights have almost no effect on the score: group the criteria"
        yield LintWarning("count", "", f"has {len(rubric)} criteria: {advice}")


def _best_score(rubric: Rubric) -> float:
    """Return the highest score that any combination of answers reaches, without abstentions."""

    def value(criterion: Criterion) -> float:
        """Return the best value: the highest one, or the lowest one for a penalty."""
        values = [option.value for option in criterion.choices] or [0.0, 1.0]
        return min(values) if criterion.is_penalty else max(values)

    gained = math.fsum(c.full_weight * value(c) for c in rubric.criteria if c.weight > 0)
    if rubric.positive_weight:
        return gained / rubric.positive_weight
    return 1 - math.fsum(-c.full_weight * value(c) for c in rubric.criteria) / rubric.negative_weight
