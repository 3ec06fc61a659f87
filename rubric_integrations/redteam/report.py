"""What a probe found: rates with intervals, by family of attacks, and every success."""

from __future__ import annotations

import math

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.redteam.attacks import Family
from rubric_integrations.results.usage import Spend

_Z = 1.959963984540054  # the normal distribution's 97.5 % quantile


class Rate(Record):
    """How often something happened, with Wilson's 95 % interval.

    The interval takes the trials for independent. Those of one attack on several criteria are not quite, so that the
    true one is somewhat wider.

    Attributes:
        successes: How often.
        trials: Out of how many.
        rate: Their ratio in [0, 1]; None without a trial.
        low, high: The interval's ends in [0, 1].

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
        """The rate of some successes in some trials.

        Raises:
            ValueError: There are more successes than trials, or fewer than none.
        """
        low, high = wilson(successes, trials)
        return cls(successes=successes, trials=trials, rate=successes / trials if trials else None, low=low, high=high)

    def __str__(self) -> str:
        if self.rate is None:
            return "-"
        return f"{100 * self.rate:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of a proportion (E. B. Wilson, JASA 22, 1927, 209-212); (0, 1) without a trial.

    Raises:
        ValueError: There are more successes than trials, or fewer than none.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"`successes` must be from 0 to {trials!r}, got {successes!r}")
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, _Z * _Z
    center = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials)) / (1 + z2 / trials)
    # At the ends the formula gives 0 and 1 but for rounding.
    low = 0.0 if successes == 0 else max(0.0, center - half)
    return low, 1.0 if successes == trials else min(1.0, center + half)


class Success(Record):
    """A verdict that an attack moved.

    Attributes:
        attack: The attack's name.
        task: Which of the probe's tasks.
        requirement: What was asked.
        before: The verdict without the attack, which is the true one.
        after: The verdict with it.
        reason: Why, in the judge's words.
    """

    attack: str
    task: str
    requirement: str
    before: str
    after: str
    reason: str


class FamilyReport(Record):
    """What became of one family of behavioural attacks.

    Attributes:
        family: Which.
        attacks: How many texts.
        rate: Moved verdicts out of those that were answered, with and without the attack.
        abstentions: Of those that moved, how many became CANNOT_ASSESS, which by default leaves the criterion out.
        failures: Questions without an answer: neither success nor resistance, and not in `rate`.
        left_out: Questions not asked, because the judge was wrong or failed without any attack.
    """

    family: Family
    attacks: int
    rate: Rate
    abstentions: int
    failures: int
    left_out: int


class Breach(Record):
    """A structural attack that got through the shield or the parser: a fault of this library, not of the judge.

    Attributes:
        attack: The attack's name.
        how: What would be read as what.
    """

    attack: str
    how: str


class ProbeReport(Record):
    """How a judge stood up to attacks.

    Attributes:
        structural: How many structural attacks were checked, against the shield and the parser, without the judge.
        breaches: Which of them got through; none should.
        families: The behavioural attacks, by family.
        total: Over all families.
        failures: Questions with an attack that got no answer.
        baseline: Questions asked without an attack.
        baseline_errors: Of these, how many the judge got wrong or abstained from; their attacks are left out.
        baseline_failures: Of these, how many got no answer; their attacks are left out.
        successes: Every verdict that moved.
        spend: What the probe cost.
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
