"""The answer of a judge to one criterion (a verdict, an abstention or a failure), its value in [0, 1], and its cost.

The same functions interpret the answers of judges, human labels, and verdicts that a caller passes to be scored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from rubric_integrations._util.records import EncodableText, Record, SparseRecord, UnitScore, encodable
from rubric_integrations._util.text import counted
from rubric_integrations.rubric.criterion import Criterion


class TokenUsage(Record):
    """The tokens of calls to a provider. An answer from a judgment store or cache of this library uses no tokens.

    Attributes:
        prompt_tokens: The number of tokens sent.
        completion_tokens: The number of tokens received.
        cached_tokens: The number of sent tokens that the provider read from its prefix cache.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """The number of tokens sent and received."""
        return self.prompt_tokens + self.completion_tokens


class Spend(Record):
    """The cost of judgments in calls, tokens and US dollars, including failed attempts.

    Attributes:
        calls: The number of requests that were sent to a model, whether or not they were answered.
        usage: The tokens of the answered requests. None (unknown, not zero) if an answer did not report them.
        cost: The cost of the answered requests in US dollars. None (unknown, not zero) if the price of one is unknown.
        is_lower_bound: Whether a request was sent and not answered, for example because of a timeout. The provider may
            still charge for it, so that `usage` and `cost` are "at least".

    Example:
        >>> (Spend(calls=1, cost=0.5) + Spend(calls=1, cost=None)).cost is None
        True
    """

    calls: int = 0
    usage: TokenUsage | None = TokenUsage()
    cost: float | None = 0.0
    is_lower_bound: bool = False

    @property
    def total_tokens(self) -> int | None:
        """The number of tokens sent and received. None if a call did not report them."""
        return None if self.usage is None else self.usage.total_tokens

    def __add__(self, other: Spend) -> Spend:
        return total_spend((self, other))

    def summary(self) -> str:
        """Return calls, tokens and cost as a short text.

        Example:
            >>> Spend(calls=3, usage=None, cost=0.5).summary()
            '3 calls, tokens unknown, $0.5000'
            >>> Spend(calls=1, is_lower_bound=True).summary()
            '1 call, at least 0 tokens, at least $0.0000'
        """
        at_least = "at least " if self.is_lower_bound else ""
        tokens = "tokens unknown" if self.total_tokens is None else f"{at_least}{counted(self.total_tokens, 'token')}"
        cost = "price unknown" if self.cost is None else f"{at_least}${self.cost:.4f}"
        return f"{counted(self.calls, 'call')}, {tokens}, {cost}"


NO_SPEND = Spend()
"""The spend of an answer that needed no call."""

UNKNOWN_CALL = Spend(calls=1, usage=None, cost=None)
"""The spend of a call whose answer states neither its tokens nor its cost."""

UNANSWERED_CALL = Spend(calls=1, is_lower_bound=True)
"""The spend of a call that was sent and not answered. The provider may charge for it."""


class SpendTotal:
    """A running total of spends. Unlike the addition of `Spend` records, it creates no record for each partial sum.

    Example:
        >>> total = SpendTotal()
        >>> for cost in (0.5, 0.25):
        ...     total.add(Spend(calls=1, cost=cost))
        >>> total.spend.calls, total.cost
        (2, 0.75)
    """

    def __init__(self) -> None:
        self._calls = self._sent = self._received = self._cached = 0
        self._usage_is_known, self._is_lower_bound = True, False
        self.cost: float | None = 0.0

    def add(self, spend: Spend) -> None:
        """Add one spend."""
        self._calls += spend.calls
        self._is_lower_bound = self._is_lower_bound or spend.is_lower_bound
        usage = spend.usage
        if usage is None:
            self._usage_is_known = False
        else:
            self._sent += usage.prompt_tokens
            self._received += usage.completion_tokens
            self._cached += usage.cached_tokens
        self.cost = None if self.cost is None or spend.cost is None else self.cost + spend.cost

    @property
    def spend(self) -> Spend:
        """The total. Its tokens or cost are None if the tokens or cost of a part are unknown."""
        usage = TokenUsage(prompt_tokens=self._sent, completion_tokens=self._received, cached_tokens=self._cached)
        return Spend(
            calls=self._calls,
            usage=usage if self._usage_is_known else None,
            cost=self.cost,
            is_lower_bound=self._is_lower_bound,
        )


def total_spend(spends: Iterable[Spend]) -> Spend:
    """Add up spends. The total of an empty sequence is zero."""
    parts = list(spends)
    if len(parts) == 1:
        return parts[0]
    total = SpendTotal()
    for spend in parts:
        total.add(spend)
    return total.spend


Verdict = Literal["MET", "UNMET", "CANNOT_ASSESS"]
"""A judge's answer to a binary criterion. CANNOT_ASSESS is an abstention: the judge worked but could not decide."""

VERDICT_VALUES: dict[Verdict, float | None] = {"MET": 1.0, "UNMET": 0.0, "CANNOT_ASSESS": None}
"""The value in [0, 1] of each verdict. None for the abstention."""

_PUNCTUATION = re.compile(r"[\W_]+")


def normalize_word(text: str) -> str:
    """Lower-case a word and remove its punctuation, for comparison: `**Met.**` and `MET` become equal.

    Example:
        >>> normalize_word("Cannot assess.") == normalize_word("CANNOT_ASSESS")
        True
    """
    return _PUNCTUATION.sub("", text.casefold())


_MARKS = " \t\r\n*_`'\"\u2018\u2019\u201c\u201d\u00ab\u00bb"
_BRACKETS = ("()", "[]", "<>", "{}")
_SEPARATORS = re.compile(r"(?<=\w)[\s_-]+(?=\w)")


def strip_decoration(text: str) -> str:
    """Strip the decoration that models write around a short answer: emphasis, quotation marks, brackets, a final stop.

    Other signs are kept, because they may negate an answer, cross it out or question it: `!MET`, `~~MET~~`, `MET?`, or
    the empty box of `[ ] MET`.

    Example:
        >>> strip_decoration("**(MET).**"), strip_decoration("!MET")
        ('MET', '!MET')
    """
    core = text.strip(_MARKS)
    if core[-1:] in tuple(".,;:!"):
        core = core[:-1].rstrip(_MARKS)
    if core[:1] + core[-1:] in _BRACKETS:
        return core[1:-1].strip(_MARKS)
    return core[:-1] if core.endswith(")") and "(" not in core else core


def fold_answer(text: str) -> str:
    """Lower-case an answer and remove its decoration and the separators between words, for comparison.

    Example:
        >>> fold_answer("Cannot assess.") == fold_answer("CANNOT_ASSESS")
        True
    """
    return _SEPARATORS.sub("", strip_decoration(text).casefold())


_VERDICTS: dict[str, Verdict] = {fold_answer(verdict): verdict for verdict in VERDICT_VALUES}
_EXACT_VERDICTS: dict[str, Verdict] = {verdict: verdict for verdict in VERDICT_VALUES}


def parse_verdict(text: object) -> Verdict | None:
    """Parse a verdict, whatever its case and its decoration (`met`, `**MET**`, `Cannot assess.`).

    Returns:
        The verdict, or None if the text is not a verdict.
    """
    word = str(text)
    return _EXACT_VERDICTS[word] if word in _EXACT_VERDICTS else _VERDICTS.get(fold_answer(word))


class Judgment(SparseRecord):
    """A judge's answer to one criterion: a verdict or an abstention, never a failure.

    Attributes:
        verdict: The answer as text: MET, UNMET or CANNOT_ASSESS, an option's label, or a number on a scale.
        value: The value of the verdict in [0, 1]. None for an abstention.
        reason: Why, in the judge's words. Empty if the judge gives no reason. It begins with `given afterwards by` if
            another model gave it (see `Explained`).
        spend: The calls, tokens and cost of the judgment.
        neutralized: Whether text that imitates the structure of a prompt was changed before the judge saw it.
        confidence: The confidence in [0, 1] that the judge stated. None if it was not requested.
        expected_value: The mean of the values of all possible answers, weighted by the probability that the judge gives
            to each answer. In [0, 1]. None if probabilities were not requested.
        probabilities: The probability in [0, 1] of each answer that a decision model considered: of MET and UNMET, of
            each label of an option, or of each value of a scale. A second entry CANNOT_ASSESS, if it was asked
            separately, is the probability that the material does not suffice. None for other judges.
        model: The model that the reply names. None if the reply names none, or if the judge does not keep it.
        evidence: The numbers of the trajectory steps that the judge cites, counted from 1.
        escalated: Whether a `Cascade` passed the question on to its expensive judge.
        escalation_cost: For a judgment by a `Cascade`, the cost of its expensive judge in US dollars, included in
            `spend`. 0 if the answer of the cheap judge was kept, or if the answers came from a store. None if the price
            is unknown, or if the judge is not a `Cascade`.
        trained_on: Whether the judge was aligned with a human label of the same response and criterion. If so, the
            answer must not be used to measure the judge.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = (
        "probabilities", "model", "evidence", "escalated", "escalation_cost", "trained_on",
    )  # fmt: skip

    verdict: EncodableText
    value: UnitScore | None
    reason: EncodableText = ""
    spend: Spend = Spend()
    neutralized: bool = False
    confidence: UnitScore | None = None
    expected_value: UnitScore | None = None
    probabilities: dict[str, UnitScore] | None = None
    model: EncodableText | None = None
    evidence: tuple[int, ...] = ()
    escalated: bool = False
    escalation_cost: float | None = None
    trained_on: bool = False


FailureKind = Literal["transport", "parse", "check", "config", "cancelled"]
"""The reason why there is no judgment.

- `transport`: no reply arrived.
- `parse`: the reply is not a readable answer.
- `check`: a check could not be computed.
- `config`: the model, key or setting is wrong, and a retry cannot help.
- `cancelled`: the request was cancelled because another criterion had failed.
"""


class JudgeFailure(Exception):  # noqa: N818 -- the third outcome beside verdict and abstention, named as such
    """Raised when a judge gave no answer to a criterion. It is never scored as a verdict or as zero.

    Attributes:
        kind: The kind of the failure: `transport`, `parse`, `check`, `config` or `cancelled`.
        message: What went wrong, in one line, without the kind.
        retryable: Whether a retry may help.
        retry_after: The seconds that the provider asks to wait before a retry. None if it does not ask for a wait.
        rate_limited: Whether the provider refused the request because of a rate limit.
        about_text: Whether the cause is this text, for example because it is too long. Other texts may still succeed.
        repeats: The most repetitions of the request after such a failure, over all rounds of a grade. None if only the
            grader's settings limit them.
        unreachable: Whether the request did not reach any server, because of a setting or the network.
        spend: The calls, tokens and cost of the failed attempt.
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
        repeats: int | None = None,
        unreachable: bool = False,
        spend: Spend | None = None,
    ):
        message = encodable(message)  # it may quote a reply
        super().__init__(f"{kind}: {message}")
        self.kind: FailureKind = kind
        self.message = message
        self.retryable, self.retry_after, self.rate_limited = retryable, retry_after, rate_limited
        self.about_text, self.repeats, self.unreachable = about_text, repeats, unreachable
        self.spend = spend or Spend()

    def __reduce__(self) -> Any:
        return type(self), (self.kind, self.message), vars(self)


Outcome = Judgment | JudgeFailure
"""The result of one question to a judge: a judgment (abstentions included) or a failure."""


class JudgeAnswers(NamedTuple):
    """All answers of one judge to one submission.

    Attributes:
        outcomes: The outcome of each criterion that the judge was asked about, by the criterion's index in the rubric.
        judge: The judge's name in reports.
        weight: The weight of the judge's votes, used by the weighted voting strategies.
        spend: The spend of calls about several criteria. The spend of single judgments is in `outcomes`.
    """

    outcomes: Mapping[int, Outcome]
    judge: str = "judge"
    weight: float = 1.0
    spend: Spend = Spend()

    def merged(self, later: JudgeAnswers) -> JudgeAnswers:
        """Join these and later answers of the same judge. For the same criterion, the later answer is used."""
        return self._replace(outcomes={**self.outcomes, **later.outcomes}, spend=self.spend + later.spend)


class Vote(SparseRecord):
    """One panel member's answer to one criterion.

    Attributes:
        judge: The judge's name.
        weight: The weight of the vote, used by the weighted voting strategies.
        verdict: The answer. None if the judge failed.
        value: The value of the answer in [0, 1]. None for an abstention or a failure.
        reason: Why, in the judge's words.
        error: Why the judge gave no answer. None if there is an answer.
        model: The model that the reply names. None if it names none.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("model",)

    judge: str
    weight: float = 1.0
    verdict: EncodableText | None
    value: UnitScore | None
    reason: EncodableText = ""
    error: EncodableText | None = None
    model: EncodableText | None = None


class Interpretation(NamedTuple):
    """The normalized form of an answer and its value.

    Attributes:
        verdict: The answer in its normalized form: `MET`, the option's label as the author wrote it, or a plain number.
        value: The value of the answer in [0, 1]. None for an abstention.
    """

    verdict: str
    value: float | None


_OF_VERDICT = {verdict: Interpretation(verdict, value) for verdict, value in VERDICT_VALUES.items()}


def interpret_answer(criterion: Criterion, answer: object, may_abstain: bool = True) -> Interpretation:
    """Normalize an answer to a criterion of any kind and return it with its value.

    Args:
        criterion: The criterion.
        answer: The answer: MET or UNMET, the label of an option, a number on the scale, or CANNOT_ASSESS. For `per:
            occurrence`, the number of occurrences, which may exceed the `cap`.
        may_abstain: Whether CANNOT_ASSESS is accepted if the criterion has options, but none that is marked `na`. In
            all other cases, it is always accepted.

    Raises:
        ValueError: The text is not a valid answer to the criterion. It is never replaced by the nearest valid answer.

    Example:
        >>> interpret_answer(Criterion(requirement="Is polite"), "**met**")
        Interpretation(verdict='MET', value=1.0)
    """
    verdict = None if isinstance(answer, bool) else parse_verdict(answer)
    if criterion.kind == "binary":
        if verdict is None:
            raise ValueError(f"{answer!r} is no verdict: use MET, UNMET or CANNOT_ASSESS")
        return _OF_VERDICT[verdict]
    if criterion.options is not None:
        option = criterion.find_option(str(answer))
        if option is None and verdict == "CANNOT_ASSESS":
            option = criterion.na_option
        if option is not None:
            return Interpretation(option.label, None if option.na else option.value)
        if verdict != "CANNOT_ASSESS" or not may_abstain:
            raise ValueError(f"{answer!r} is no option: use one of {[o.label for o in criterion.options]!r}")
    elif verdict != "CANNOT_ASSESS":
        return _interpret_number(criterion, answer)
    return Interpretation("CANNOT_ASSESS", None)


def to_judgment(criterion: Criterion, answer: object, may_abstain: bool = True) -> Judgment:
    """Make a judgment from an answer to a criterion of any kind.

    Args:
        criterion: The criterion.
        answer: The answer: MET or UNMET, the label of an option, a number on the scale, or CANNOT_ASSESS. For `per:
            occurrence`, the number of occurrences, which may exceed the `cap`.
        may_abstain: Whether CANNOT_ASSESS is accepted if the criterion has options, but none that is marked `na`. In
            all other cases, it is always accepted.

    Raises:
        ValueError: The text is not a valid answer to the criterion.

    Example:
        >>> to_judgment(Criterion(requirement="Is polite"), "unmet").value
        0.0
    """
    verdict, value = interpret_answer(criterion, answer, may_abstain)
    return Judgment(verdict=verdict, value=value)


# `float` also reads `1_0` as 10.
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def parse_number(text: str) -> float:
    """Parse a decimal number in ASCII digits. White space around it is ignored.

    Raises:
        ValueError: The text is not a number.

    Example:
        >>> parse_number(" 7.50 ")
        7.5
    """
    if _NUMBER.fullmatch(text.strip()) is None:
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def _interpret_number(criterion: Criterion, answer: object) -> Interpretation:
    try:
        number = math.nan if isinstance(answer, bool) else parse_number(str(answer))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or criterion.scale is None:
        raise ValueError(f"{answer!r} is not a number")
    if criterion.cap is not None and number == int(number):
        # A number of occurrences above the cap is not an error of the judge, unlike a number outside of a scale.
        return Interpretation(f"{number:.15g}", criterion.scale.value_of(min(number, criterion.cap)))
    return Interpretation(f"{number:g}", criterion.scale.value_of(number))


def extreme_judgment(criterion: Criterion, end: Literal["worst", "low", "high"]) -> Judgment:
    """Make the judgment with the lowest or highest possible value of a criterion.

    Args:
        criterion: The criterion.
        end: `low` for the lowest value, `high` for the highest value, or `worst` for the value that gives the lowest
            score, which depends on the sign of the weight.
    """
    high = criterion.is_penalty if end == "worst" else end == "high"
    if criterion.options is not None:
        pick = max if high else min
        option = criterion.worst_option if end == "worst" else pick(criterion.choices, key=lambda o: o.value)
        return Judgment(verdict=option.label, value=option.value)
    if criterion.scale is not None:
        return Judgment(verdict=f"{criterion.scale.number_at(float(high)):g}", value=float(high))
    return Judgment(verdict="MET" if high else "UNMET", value=float(high))
