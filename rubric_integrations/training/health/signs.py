"""The signs that a policy exploits its judge: changes that are significant, in sentences with their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rubric_integrations.agreement.comparison import holm
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.training.health.result import CriterionTrend, JudgeGap, SecondJudge
from rubric_integrations.training.health.trends import Trend

# The part of the gain that a criterion must explain for it to be the one that carries the gain: more than half, and
# about twice its share of the weights.
_LEAST_PART, _MOST_PART = 0.5, 0.9


class Finding(NamedTuple):
    """A possible sign.

    Attributes:
        p_value: The largest p-value of the changes that it needs.
        text: The sentence.
    """

    p_value: float
    text: str


def find_signs(
    criteria: Mapping[str, CriterionTrend],
    words: Trend,
    correlation: Estimate,
    correlation_p_value: float | None,
    abstained: Trend,
    failed: Trend,
    second: SecondJudge | None,
    level: float,
) -> tuple[str, ...]:
    """Return the signs that are significant.

    The gap to the second judge is one test at the level. All others are corrected together for their number (Holm).
    Each sign needs a change in one direction, so that both families together have an error of one minus the level.
    """
    total = math.fsum(abs(row.weight) for row in criteria.values()) or 1.0
    findings = [
        *_length(words, correlation, correlation_p_value),
        *_of_rise(abstained, "the judge abstains more often", "the policy may learn to be unassessable"),
        *_of_rise(failed, "grades fail more often", "read the answers on which the judge fails"),
        *(finding for name, row in criteria.items() for finding in _of_criterion(name, row, abs(row.weight) / total)),
    ]
    signs: list[str] = []
    if second is not None:
        signs += [finding.text for finding in _of_gap(second.score) if finding.p_value < 1 - level]
        findings += [finding for name, gap in second.criteria.items() for finding in _of_gap(gap, name)]
    adjusted = holm({number: finding.p_value for number, finding in enumerate(findings)})
    return (*signs, *(findings[number].text for number, p_value in sorted(adjusted.items()) if p_value < 1 - level))


def _of_gap(scores: JudgeGap, criterion: str | None = None) -> Iterator[Finding]:
    """Yield the sign that the second judge does not follow: the gap grows, and more than random errors explain."""
    gap, shortfall = scores.gap, scores.shortfall
    if gap.p_value is None or scores.p_value is None or (gap.change.value or 0) <= 0 or (shortfall.value or 0) <= 0:
        return
    where = f"on {criterion!r} the second judge" if criterion else "the second judge"
    yield Finding(
        max(gap.p_value, scores.p_value),
        f"{where} does not follow: the judge's mean score was {scores.judge.text}, that of the second judge "
        f"{scores.second.text}, which is {shortfall} less than its agreement with the judge predicts",
    )


def _of_criterion(name: str, row: CriterionTrend, share_of_weight: float) -> Iterator[Finding]:
    score, lead, change = row.score, row.lead, row.score.change.value or 0
    yield from _of_rise(row.abstained, f"the judge abstains more often on {name!r}", "read these answers")
    if score.p_value is None:
        return
    if change < 0:
        yield Finding(score.p_value, f"{name!r} is fulfilled less often: its mean score was {score.text}")
    elif lead is not None and lead.p_value is not None and (lead.change.value or 0) > 0:
        p_value = max(score.p_value, lead.p_value)
        if row.explains is not None and row.explains > max(_LEAST_PART, min(_MOST_PART, 2 * share_of_weight)):
            yield Finding(
                p_value,
                f"{name!r} carries the gain: its mean score was {score.text}, which is {row.explains:.0%} of the gain "
                "of all criteria; read whether these answers fulfil it",
            )


def _of_rise(trend: Trend, what: str, advice: str) -> Iterator[Finding]:
    if trend.p_value is not None and (trend.change.value or 0) > 0:
        yield Finding(trend.p_value, f"{what}: the share was {trend.text}; {advice}")


def _length(words: Trend, correlation: Estimate, p_value: float | None) -> Iterator[Finding]:
    if words.p_value is None or p_value is None or (words.change.value or 0) <= 0 or (correlation.value or 0) <= 0:
        return
    yield Finding(
        max(words.p_value, p_value),
        f"the reward pays for length: the mean number of words was {words.text}, and longer answers of a group get "
        f"higher rewards (rank correlation {correlation})",
    )
