"""The report of a probe: success rates with intervals, by family of attacks, and every successful attack."""

from __future__ import annotations

import math

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.redteam.attacks import Family
from rubric_integrations.results.usage import Spend

_Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution


class Rate(Record):
    """A success rate with Wilson's 95 % interval.

    The interval assumes independent trials. Trials of one attack on several criteria are correlated, so the true
    interval is somewhat wider.

    Attributes:
        successes: The number of successes.
        trials: The number of trials.
        rate: Successes divided by trials, in [0, 1]; None without a trial.
        low: The lower end of the interval, in [0, 1].
        high: The upper end of the interval, in [0, 1].

    Example:
        >>> print(Rate.of(0, 20))
        0.0 % (0.0 to 16.1)
    """

    successes: int
    trials: int
    rate: UnitScore | None
    low: UnitScore
    high: UnitScore

    @classmethod
    def of(cls, successes: int, trials: int) -> Rate:
        """Compute the rate and its interval.

        Raises:
            ValueError: `successes` is negative or larger than `trials`.
        """
        low, high = wilson_interval(successes, trials)
        return cls(successes=successes, trials=trials, rate=successes / trials if trials else None, low=low, high=high)

    def __str__(self) -> str:
        if self.rate is None:
            return "-"
        return f"{100 * self.rate:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Compute Wilson's 95 % score interval of a proportion (E. B. Wilson, JASA 22, 1927, 209-212).

    Returns:
        The lower and the upper end, in [0, 1]; (0, 1) without a trial.

    Raises:
        ValueError: `successes` is negative or larger than `trials`.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"`successes` must be from 0 to {trials!r}, got {successes!r}")
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, _Z * _Z
    center = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials)) / (1 + z2 / trials)
    # Without rounding errors, the formula gives exactly 0 for no success and 1 for no failure.
    low = 0.0 if successes == 0 else max(0.0, center - half)
    return low, 1.0 if successes == trials else min(1.0, center + half)


class Success(Record):
    """A verdict that an attack changed.

    Attributes:
        attack: The attack's name.
        task: The task's name.
        requirement: The criterion's text.
        before: The verdict without the attack, which is the true one.
        after: The verdict with the attack.
        reason: The judge's explanation of the changed verdict.
    """

    attack: str
    task: str
    requirement: str
    before: str
    after: str
    reason: str


class FamilyReport(Record):
    """The results of one family of behavioural attacks.

    Attributes:
        family: The family.
        attacks: The number of attacks.
        rate: Changed verdicts among the questions that the judge answered both with and without the attack.
        abstentions: Changed verdicts that became CANNOT_ASSESS, which by default removes the criterion from the score.
        failures: Questions without an answer. They count neither as successes nor as trials of `rate`.
        left_out: Questions that were not requested, because the judge was wrong or failed without an attack.
    """

    family: Family
    attacks: int
    rate: Rate
    abstentions: int
    failures: int
    left_out: int


class Breach(Record):
    """A structural attack that succeeded against the sanitizer or the parser.

    It is a defect of this library, not of the judge.

    Attributes:
        attack: The attack's name.
        how: Which text would be read as structure or as an answer.
    """

    attack: str
    how: str


class ProbeReport(Record):
    """The results of a probe.

    Attributes:
        structural: The number of structural attacks that were checked, without a call to the judge.
        breaches: The structural attacks that succeeded; there should be none.
        families: The results of the behavioural attacks, by family.
        total: The success rate over all families.
        failures: The number of questions with an attack that got no answer.
        baseline: The number of questions without an attack.
        baseline_errors: The number of these that the judge got wrong or could not assess; no attack is tried on them.
        baseline_failures: The number of these that got no answer; no attack is tried on them.
        successes: Every verdict that an attack changed.
        spend: Calls, tokens and cost.
    """

    structural: int
    breaches: tuple[Breach, ...]
    families: tuple[FamilyReport, ...]
    total: Rate
    failures: int
    baseline: int
    baseline_errors: int
    baseline_failures: int
    successes: tuple[Success, ...]
    spend: Spend
