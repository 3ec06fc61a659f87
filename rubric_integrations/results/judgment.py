"""What a judge returns for one criterion: a verdict, an abstention or a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from rubric_integrations._util.records import EncodableText, Record, SparseRecord, UnitScore, encodable
from rubric_integrations.results.usage import Spend

Verdict = Literal["MET", "UNMET", "CANNOT_ASSESS"]
"""A judge's answer to a binary criterion. CANNOT_ASSESS is an abstention: the judge worked and could not tell."""

VERDICT_VALUES: dict[Verdict, float | None] = {"MET": 1.0, "UNMET": 0.0, "CANNOT_ASSESS": None}
"""The value in [0, 1] of each verdict; None for the abstention."""

_PUNCTUATION = re.compile(r"[\W_]+")


def normalize_word(text: str) -> str:
    """Lower-case a word and strip its punctuation, for comparison: `**Met.**` and `MET` give the same.

    Example:
        >>> normalize_word("Cannot assess.") == normalize_word("CANNOT_ASSESS")
        True
    """
    return _PUNCTUATION.sub("", text.casefold())


_VERDICTS: dict[str, Verdict] = {normalize_word(verdict): verdict for verdict in VERDICT_VALUES}


def parse_verdict(text: object) -> Verdict | None:
    """Parse a verdict, whatever its case and punctuation (`met`, `**MET**`, `Cannot assess.`).

    Returns:
        The verdict, or None if the text is none.
    """
    return _VERDICTS.get(normalize_word(str(text)))


class Judgment(SparseRecord):
    """A judge's answer to one criterion: a verdict or an abstention, never a failure.

    Attributes:
        verdict: MET, UNMET or CANNOT_ASSESS; an option's label; or a number on a scale, as text.
        value: The verdict's value in [0, 1]; None for an abstention.
        reason: Why, in the judge's words.
        spend: What the judgment cost.
        neutralized: Whether text that imitates the structure of a prompt was changed before the judge saw it.
        confidence: The confidence that the judge states, in [0, 1]; None where it was not requested.
        expected_value: The expected value in [0, 1] of the judge's probabilities; None where they were not requested.
        evidence: The numbers, from 1, of the steps of the trajectory that the judge cites.
        escalated: Whether a `Cascade` passed the question on to its expensive judge.
        escalation_cost: What the expensive judge of a `Cascade` cost for this judgment, in US dollars, as a part of
            `spend`: 0 if the cheap answer was kept, or came with the expensive one from a store. None if the price is
            unknown, and for other judges.
        trained_on: Whether the judge was aligned with a label of this very judgment, so that its answer says nothing
            about how often it is right.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("evidence", "escalated", "escalation_cost", "trained_on")

    verdict: EncodableText
    value: UnitScore | None
    reason: EncodableText = ""
    spend: Spend = Spend()
    neutralized: bool = False
    confidence: UnitScore | None = None
    expected_value: UnitScore | None = None
    evidence: tuple[int, ...] = ()
    escalated: bool = False
    escalation_cost: float | None = None
    trained_on: bool = False


FailureKind = Literal["transport", "parse", "check", "config", "cancelled"]
"""Why there is no judgment: no reply arrived; the reply is no answer; a check could not be computed; the model, key or
setting is wrong, so that a retry cannot help; or the request was cancelled because another criterion had failed."""


class JudgeFailure(Exception):  # noqa: N818 -- the third outcome beside verdict and abstention, named as such
    """A judge gave no answer to one criterion. It is never scored as a verdict or as zero.

    Attributes:
        kind: See `FailureKind`.
        message: What went wrong, in one line, without the kind.
        retryable: Whether a retry may help.
        retry_after: Seconds to wait that the provider requests; None where it requests none.
        rate_limited: Whether the provider refused the request for its rate.
        about_text: Whether the cause is this one text, such as one that is too long, so that others may succeed.
        spend: What the failed attempt cost.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        rate_limited: bool = False,
        about_text: bool = False,
        spend: Spend | None = None,
    ):
        message = encodable(message)  # it may quote a reply
        super().__init__(f"{kind}: {message}")
        self.kind: FailureKind = kind
        self.message = message
        self.retryable, self.retry_after, self.rate_limited = retryable, retry_after, rate_limited
        self.about_text = about_text
        self.spend = spend or Spend()

    def __reduce__(self) -> Any:
        return type(self), (self.kind, self.message), vars(self)


Outcome = Judgment | JudgeFailure
"""The result of one question to a judge: a judgment (abstentions included) or a failure."""


class JudgeAnswers(NamedTuple):
    """All answers of one judge to one submission.

    Attributes:
        outcomes: For each criterion that the judge was asked about, by its index in the rubric, the outcome.
        judge: The judge's name in reports.
        weight: The weight of the judge's votes, used by the weighted voting strategies.
        spend: What calls for several criteria at once cost; the spend of single judgments is in `outcomes`.
    """

    outcomes: Mapping[int, Outcome]
    judge: str = "judge"
    weight: float = 1.0
    spend: Spend = Spend()

    def merged(self, later: JudgeAnswers) -> JudgeAnswers:
        """Add answers that the same judge gave later."""
        return self._replace(outcomes={**self.outcomes, **later.outcomes}, spend=self.spend + later.spend)


class Vote(Record):
    """One panel member's answer to one criterion.

    Attributes:
        judge: The judge's name.
        weight: The weight of the vote, used by the weighted voting strategies.
        verdict: The answer; None where the judge failed.
        value: The answer's value in [0, 1]; None for an abstention or a failure.
        reason: Why, in the judge's words.
        error: Why there is no answer; None where there is one.
    """

    judge: str
    weight: float = 1.0
    verdict: EncodableText | None
    value: UnitScore | None
    reason: EncodableText = ""
    error: EncodableText | None = None
