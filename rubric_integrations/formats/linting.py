"""Lint rules for valid rubrics. They only warn, because the author decides, and they call no model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rubric_integrations.formats.lint_phrases import absent_error, deciding_check, second_requirement, vague_standard
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.rubric.tree import Node
from rubric_integrations.scoring.formula import reaches_mark


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
    "vague": "a standard that judges interpret differently",
    "negated-penalty": "a penalty that describes the absence of an error",
    "near-duplicate": "two criteria have the same requirement, apart from case, articles and punctuation",
    "unreachable-pass-mark": "no combination of answers passes",
    "use-a-check": "code would decide the criterion in the same way",
}
"""The lint rules: their ids, and what each warns of."""


def lint(rubric: Rubric) -> list[LintWarning]:
    """Return the warnings for a rubric: first for each criterion, in order, then for the whole rubric.

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
    return [*warnings, *_near_duplicates(rubric), *_warnings_for_whole(rubric)]


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
    """Return whether the author describes each option, or some numbers of the scale."""
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
    """Yield each leaf with the place of its group: an author may repeat a requirement in another group on purpose."""
    for number, node in enumerate(nodes):
        if node.leaf is not None:
            yield node.leaf, place
        yield from _groups(node.children, f"{place}.{number}")


def _comparable(requirement: str) -> str:
    """Return a requirement without case, articles and the punctuation of sentences."""
    words = (word.rstrip(".,;:!?") for word in requirement.casefold().split())
    return " ".join(word for word in words if word not in {"", "a", "an", "the"})


def _warnings_for_whole(rubric: Rubric) -> Iterator[LintWarning]:
    best = _best_score(rubric)
    if not reaches_mark(best, rubric.pass_mark):
        message = f"the best possible score is {best:.3g}, below the pass mark of {rubric.pass_mark:g}: nothing passes"
        yield LintWarning("unreachable-pass-mark", "", message)


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
