"""A judge's answer to one criterion: a verdict, an abstention or a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.results.usage import Spend

Verdict = Literal["MET", "UNMET", "CANNOT_ASSESS"]
"""A judge's answer to a binary criterion. CANNOT_ASSESS is an abstention: the judge worked, and could not tell."""

VERDICT_VALUES: dict[Verdict, float | None] = {"MET": 1.0, "UNMET": 0.0, "CANNOT_ASSESS": None}
"""The value in [0, 1] of each verdict; None for the abstention, which has none."""


_DRESS = re.compile(r"[\W_]+")


def plain_word(text: str) -> str:
    """A word without the form a model may dress it in, for comparison: `**Met.**` and `MET` give the same.

    Example:
        >>> plain_word("Cannot assess.") == plain_word("CANNOT_ASSESS")
        True
    """
    return _DRESS.sub("", text.casefold())


def parse_verdict(text: object) -> Verdict | None:
    """Read a verdict in any harmless form (`met`, `**MET**`, `Cannot assess.`); None where it is no verdict."""
    return _VERDICTS.get(plain_word(str(text)))


_VERDICTS: dict[str, Verdict] = {plain_word(verdict): verdict for verdict in VERDICT_VALUES}


class Judgment(Record):
    """An answer to one criterion: a verdict or an abstention, never a failure.

    Attributes:
        verdict: The judge's word.
        value: Its value in [0, 1]; None for an abstention.
        reason: Why, in the judge's words.
        spend: What it cost to obtain.
        neutralized: Whether text that imitates prompt structure was defused before the judge saw it.
        confidence: How sure the judge says it is, in [0, 1]; None where it was not asked.
        expected_value: The value expected of its probabilities, in [0, 1]; None where it was not asked.
    """

    verdict: str
    value: UnitScore | None
    reason: str = ""
    spend: Spend = Spend()
    neutralized: bool = False
    confidence: UnitScore | None = None
    expected_value: UnitScore | None = None


FailureKind = Literal["transport", "parse", "check", "config"]


class JudgeFailure(Exception):  # noqa: N818 -- the third outcome beside verdict and abstention, named as such
    """A judge gave no answer to one criterion. Never a verdict, never a zero.

    Attributes:
        kind: `transport` (no reply), `parse` (a reply that is no answer), `check` (a check could not be
            computed) or `config` (wrong model, key or setting: asking again cannot help).
        retryable: Whether asking again may help.
        retry_after: Seconds that the provider asks to wait, where it does.
        rate_limited: Whether the provider wants fewer calls.
        spend: What the attempt cost all the same.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        rate_limited: bool = False,
        spend: Spend | None = None,
    ):
        super().__init__(f"{kind}: {message}")
        self.kind: FailureKind = kind
        self.retryable, self.retry_after, self.rate_limited = retryable, retry_after, rate_limited
        self.spend = spend or Spend()


class Vote(Record):
    """One judge's answer to one criterion.

    Attributes:
        judge: Who.
        weight: How much the vote counts, under the strategies that weigh.
        verdict: The answer; None where the judge failed.
        value: Its value in [0, 1]; None for an abstention or a failure.
        reason: Why.
        error: Why there is no answer.
    """

    judge: str
    weight: float = 1.0
    verdict: str | None
    value: UnitScore | None
    reason: str = ""
    error: str | None = None


Outcome = Judgment | JudgeFailure
"""What became of one question: an answer (abstentions included) or a failure, never mixed."""


CANCELLED = "not asked to the end, since another criterion had failed"
"""How the failure of a criterion ends that was merely cancelled: it is not the one to tell of."""


class JudgeAnswers(NamedTuple):
    """One judge's answers.

    Attributes:
        answers: One for each place in the rubric that it was asked about.
        judge: Who.
        weight: How much its votes count, under the strategies that weigh.
        spend: What calls for several criteria at once cost.
    """

    answers: Mapping[int, Outcome]
    judge: str = "judge"
    weight: float = 1.0
    spend: Spend = Spend()

    def joined(self, other: JudgeAnswers) -> JudgeAnswers:
        """This judge's answers with those that it gave later."""
        return self._replace(answers={**self.answers, **other.answers}, spend=self.spend + other.spend)
