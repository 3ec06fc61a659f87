"""Faults of a criterion, by the flips of its mutants: blind, sensitive to additions, gullible, or flaky.

A flip is an answer to a mutant that is no longer an expected answer of its case (see `ExpectedRange.is_flip`). A mutant
counts only if the judge's first answer to the unchanged case is an expected one. An answer that failed does not count.

- **Blind**: the upper limit of the flip rate of mutants that must change the verdict is below 0.5, with at least five
  mutants, and at most half of those without their evidence flip. The limit is exact, one-sided, at 95 % (Clopper and
  Pearson 1934). It has no correction for several criteria: a criterion that sees its evidence flips on far more than
  half, and is then called blind in far less than 5 % of cases.
- **Depends on length, tone or format, can be talked into it**: mutants flip more often than repeated answers to the
  same unchanged cases. The test is exact and conditional on the flips of each case (Birch 1964), and the lower limit of
  the flip rate must be above the share of repeated answers that flip. Cases whose expected answer is the lowest one,
  such as UNMET, are tested separately. If nothing was repeated, 20 % is assumed to be the judge's own share of flips.
- **Flaky**: more than 5 % of the repeated answers differ from the most frequent answer about their case, by the exact
  binomial test.

All tests but that for blindness are one family. Their level is alpha, divided by the number of tests that could be
significant (Tarone 1990). A test with few flips could not be, whatever its mutants are. If all criteria are good, the
probability of any finding in a rubric is at most alpha.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations._util.text import decimal
from rubric_integrations.trust.certification import lower_bound, upper_bound
from rubric_integrations.trust.mutations import AdditionKind, ChangeKind
from rubric_integrations.trust.statistics import check_alpha, special

FaultKind = Literal["blind", "length", "tone", "format", "claim", "flaky"]
"""A fault of a criterion."""

FEWEST_MUTANTS = 5
"""The smallest number of mutants with which a criterion can be called blind."""

BLIND_BELOW = 0.5
"""A criterion is blind if the upper limit of its flip rate is below this share."""

ACCEPTED_NOISE = 0.05
"""A criterion is flaky if significantly more than this share of its repeated answers differ."""

ASSUMED_NOISE = 0.2
"""The share of flips that is compared with the flips of mutants if no answer was repeated."""

LEVEL = 0.95
"""The confidence level of each one-sided limit."""


class CaseFlips(NamedTuple):
    """The flips of one case.

    Attributes:
        flips: The number of its mutants that flipped.
        mutants: The number of its mutants with an answer.
        repeat_flips: The number of repeated answers to the unchanged case that are flips, in the same direction.
        repeats: The number of repeated answers, without the first one.
    """

    flips: int
    mutants: int
    repeat_flips: int = 0
    repeats: int = 0


class FlipRate(Record):
    """The flips of several mutants or answers.

    Attributes:
        flips: The number of flips.
        count: The number of mutants or answers.
        low: The exact lower limit of the flip rate, one-sided at 95 %.
        high: The exact upper limit, one-sided at 95 %.

    Example:
        >>> print(FlipRate.of(0, 10))
        0 of 10 (at most 0.26)
    """

    flips: int
    count: int
    low: UnitScore
    high: UnitScore

    @classmethod
    def of(cls, flips: int, count: int) -> FlipRate:
        """Compute the limits of a flip rate."""
        delta = 1 - LEVEL
        return cls(
            flips=flips, count=count, low=lower_bound(flips, count, delta), high=upper_bound(flips, count, delta)
        )

    def __str__(self) -> str:
        return f"{self.flips:,} of {self.count:,} (at most {decimal(self.high, 2)})"


class AdditionFlips(Record):
    """The flips of mutants with additions of one kind, from cases of one side.

    Attributes:
        kind: What is added.
        from_lowest: Whether the expected answer of the cases is the lowest one, such as UNMET.
        rate: The flips of the mutants.
        noise: The flips of the repeated answers to the same cases.
        p_value: The one-sided p-value of the excess of the mutants' flips. None without mutants.
        is_significant: Whether the excess is significant.
    """

    kind: AdditionKind
    from_lowest: bool
    rate: FlipRate
    noise: FlipRate
    p_value: UnitScore
    is_significant: bool = False


class CriterionFlips(NamedTuple):
    """All flips of a criterion, as input of `find_faults`.

    Attributes:
        evidence: For each kind of mutation that must change the verdict, the number of flips and of mutants.
        additions: The flips of each case, by the addition and by whether the expected answer is the lowest one.
        differing: The number of answers to unchanged cases that differ from the most frequent one about their case.
        answers: The number of all answers to unchanged cases that were repeated.
    """

    evidence: Mapping[ChangeKind, tuple[int, int]]
    additions: Mapping[tuple[AdditionKind, bool], Sequence[CaseFlips]]
    differing: int = 0
    answers: int = 0


class CriterionFaults(Record):
    """The flips and the faults of one criterion.

    Attributes:
        faults: The faults that were found.
        evidence: The flips of all mutants that must change the verdict.
        evidence_kinds: The flips of these mutants by what is changed: `removed`, `number` or `negation`.
        additions: The flips of the mutants that must not change it.
        noise: The share of the repeated answers to unchanged cases that differ from the most frequent answer.
    """

    faults: tuple[FaultKind, ...]
    evidence: FlipRate
    evidence_kinds: dict[ChangeKind, FlipRate]
    additions: tuple[AdditionFlips, ...]
    noise: FlipRate


class ExactTest(NamedTuple):
    """An exact one-sided test.

    Attributes:
        p_value: The p-value.
        smallest: The smallest p-value that the test could have.
    """

    p_value: float
    smallest: float


def excess_test(cases: Sequence[CaseFlips]) -> ExactTest:
    """Test whether mutants flip more often than repeated answers to the same cases.

    If both flip equally often, the number of mutants among the flips of a case has a hypergeometric distribution. The
    test statistic is the sum over the cases. Without repeated answers, the flips are compared with `ASSUMED_NOISE`.

    Example:
        >>> round(excess_test([CaseFlips(5, 5, 0, 4), CaseFlips(4, 5, 0, 4)]).p_value, 5)
        0.00031
    """
    if any(case.repeats for case in cases):
        return _conditional(cases)
    return _binomial(sum(case.flips for case in cases), sum(case.mutants for case in cases), ASSUMED_NOISE)


def _conditional(cases: Sequence[CaseFlips]) -> ExactTest:
    distribution, flips = np.ones(1), 0
    for case in cases:
        if case.repeats and case.mutants:
            distribution = np.convolve(
                distribution, _hypergeometric(case.mutants, case.repeats, case.flips + case.repeat_flips)
            )
            flips += case.flips
    tail = float(distribution[flips:].sum())
    return ExactTest(min(1.0, tail), float(distribution[np.flatnonzero(distribution)[-1]]))


@cache
def _hypergeometric(mutants: int, repeats: int, flips: int) -> np.ndarray:
    """Return the probability of each number of mutants among the flips, if all answers flip equally often."""
    total = math.comb(mutants + repeats, flips)
    return np.array(
        [
            math.comb(mutants, k) * math.comb(repeats, flips - k) / total if k <= flips else 0.0
            for k in range(mutants + 1)
        ]
    )


def _binomial(flips: int, count: int, rate: float) -> ExactTest:
    """Test whether flips are more frequent than a rate."""
    p_value = 1.0 if flips == 0 else float(special().bdtrc(flips - 1, count, rate))
    return ExactTest(p_value, rate**count)


def tarone_level(smallest: Sequence[float], alpha: float) -> float:
    """Return the level of each test of a family, after Tarone's correction (1990).

    The level is alpha / k, where k is the smallest number for which at most k tests could have a p-value of at most
    alpha / k.

    Args:
        smallest: The smallest p-value that each test could have.
        alpha: The probability of any false finding in the family.

    Example:
        >>> tarone_level([0.5, 0.3, 0.001], 0.05), tarone_level([0.001, 0.001], 0.05)
        (0.05, 0.025)
    """
    return next(
        (alpha / k for k in range(1, len(smallest)) if sum(p_value <= alpha / k for p_value in smallest) <= k),
        alpha / max(1, len(smallest)),
    )


def is_blind(evidence: Mapping[ChangeKind, tuple[int, int]]) -> bool:
    """Whether a criterion does not react to its evidence.

    Args:
        evidence: For each kind of mutation that must change the verdict, the number of flips and of mutants.

    Example:
        >>> is_blind({"removed": (0, 3), "number": (0, 2)}), is_blind({"removed": (3, 3), "number": (0, 9)})
        (True, False)
    """
    flips, mutants = (sum(counts) for counts in zip(*evidence.values(), strict=True)) if evidence else (0, 0)
    removed, of_removed = evidence.get("removed", (0, 0))
    reacts = of_removed > 0 and removed > of_removed / 2
    return mutants >= FEWEST_MUTANTS and not reacts and upper_bound(flips, mutants, 1 - LEVEL) < BLIND_BELOW


def find_faults(criteria: Mapping[str, CriterionFlips], alpha: float = 0.05) -> dict[str, CriterionFaults]:
    """Return the flips and the faults of each criterion of a rubric, by its name.

    Args:
        criteria: The flips of each criterion.
        alpha: The probability of any finding but `blind`, if all criteria are good. Above 0 and below 1.

    Raises:
        ValueError: `alpha` is out of range.

    Example:
        >>> padded = [CaseFlips(5, 5, 0, 4), CaseFlips(5, 5, 0, 4)]
        >>> flips = CriterionFlips({"removed": (5, 5)}, {("length", False): padded}, differing=0, answers=10)
        >>> find_faults({"margin": flips})["margin"].faults
        ('length',)
    """
    check_alpha(alpha)
    tests = {
        name: {key: excess_test(cases) for key, cases in flips.additions.items() if any(case.mutants for case in cases)}
        for name, flips in criteria.items()
    }
    noise = {
        name: _binomial(flips.differing, flips.answers, ACCEPTED_NOISE)
        for name, flips in criteria.items()
        if flips.answers
    }
    family = [*noise.values(), *(test for of_name in tests.values() for test in of_name.values())]
    level = tarone_level([test.smallest for test in family], alpha)
    results: dict[str, CriterionFaults] = {}
    for name, flips in criteria.items():
        additions = tuple(
            _addition_flips(kind, from_lowest, flips.additions[kind, from_lowest], test.p_value, level)
            for (kind, from_lowest), test in tests[name].items()
        )
        faults: list[FaultKind] = ["blind"] if is_blind(flips.evidence) else []
        faults.extend(dict.fromkeys(addition.kind for addition in additions if addition.is_significant))
        if name in noise and noise[name].p_value <= level:
            faults.append("flaky")
        kinds: dict[ChangeKind, FlipRate] = {kind: FlipRate.of(*counts) for kind, counts in flips.evidence.items()}
        results[name] = CriterionFaults(
            faults=tuple(faults),
            evidence=FlipRate.of(
                sum(rate.flips for rate in kinds.values()), sum(rate.count for rate in kinds.values())
            ),
            evidence_kinds=kinds,
            additions=additions,
            noise=FlipRate.of(flips.differing, flips.answers),
        )
    return results


def _addition_flips(
    kind: AdditionKind, from_lowest: bool, cases: Sequence[CaseFlips], p_value: float, level: float
) -> AdditionFlips:
    rate = FlipRate.of(sum(case.flips for case in cases), sum(case.mutants for case in cases))
    noise = FlipRate.of(sum(case.repeat_flips for case in cases), sum(case.repeats for case in cases))
    own = noise.flips / noise.count if noise.count else ASSUMED_NOISE
    is_significant = p_value <= level and rate.low > own
    return AdditionFlips(
        kind=kind, from_lowest=from_lowest, rate=rate, noise=noise, p_value=p_value, is_significant=is_significant
    )
