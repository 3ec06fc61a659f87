"""The report of one criterion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import field_serializer

from rubric_integrations._util.records import EncodableText, SparseRecord, UnitScore, Weight
from rubric_integrations.results.judgment import Vote, parse_verdict
from rubric_integrations.results.usage import Spend
from rubric_integrations.rubric.answers import Option, Scale
from rubric_integrations.rubric.criterion import Criterion

NOT_APPLICABLE = "NOT_APPLICABLE"
"""The verdict in the report of a criterion whose condition (`applies_when`) does not hold."""

ReprArgs = Iterable[tuple[str | None, Any]]


class CriterionReport(SparseRecord):
    """The result of one criterion: a verdict, an abstention or a failure.

    Attributes:
        name: The criterion's key in its rubric: its name, or `c1`, `c2`, ... by its position.
        requirement: The criterion's requirement, with what its `operator` means in words.
        weight: The weight of the value 1 in the score: the criterion's weight, for `per: occurrence` times its `cap`.
        verdict: The verdict that was scored, CANNOT_ASSESS or NOT_APPLICABLE; None for a failure without a fallback
            verdict.
        value: The value of the verdict in [0, 1]; None for an abstention, a criterion that does not apply, or a failure
            without a fallback verdict.
        reason: The judge's reason for the verdict.
        error: Why the judge failed; None if it did not. If there is also a verdict, it is the fallback of `on_failure`.
        required: Whether `passed` of the whole report depends on this criterion.
        passed: Whether this criterion passes its gate, which one that does not apply does; False for an abstention or
            a failure.
        spend: Calls, tokens and cost of this criterion.
        neutralized: Whether text that imitates the structure of the prompt was sanitized before the judge read it.
        votes: The votes of a panel, including those of judges that failed; empty for a single judge.
        agreement: The share in [0, 1] of the panel's votes that equal the verdict; 1 for a single judge, None if no
            judge answered.
        not_asked: The judges of a panel that got no request, because they could no longer change the verdict, or
            because the decision whether the submission passes did not need them.
        confidence: The confidence of a single judge in [0, 1], if it was requested; the score does not use it.
        expected_value: The expected value in [0, 1] of a single judge's probabilities, if they were requested; the
            score does not use it.
        not_applicable: Whether the criterion's condition (`applies_when`) does not hold, so that it is left out.
        tags: The criterion's tags.
        metadata: The criterion's further data; None if it has none.
        evidence: The numbers, from 1, of the steps of the trajectory that the judge cites; all of them exist.
        escalated: Whether a `Cascade` passed the question on to its expensive judge.
        escalation_cost: What the expensive judge of a `Cascade` cost, in US dollars, as a part of the report's spend: 0
            if the cheap answer was kept. None if the price is unknown, and if no cascade answered.
        trained_on: Whether a judge was aligned with a label of this very judgment: figures about the judge leave it
            out.
        options: The answers of a multi-choice criterion; empty for others.
        scale_type: Whether they are ordered (`ordinal`) or not (`nominal`).
        scale: The numbers of a criterion with a scale; None for others.
        cap: The largest number of occurrences that counts, for `per: occurrence`; None for others.
        computed: Whether the criterion has a check, so that code answers it, and no judge.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = (
        "not_applicable", "tags", "metadata", "evidence", "escalated", "escalation_cost",
        "trained_on", "options", "scale_type", "scale", "cap", "computed",
    )  # fmt: skip

    name: str
    requirement: str
    weight: Weight
    verdict: EncodableText | None
    value: UnitScore | None
    reason: EncodableText = ""
    error: EncodableText | None = None
    required: bool = False
    passed: bool = False
    spend: Spend = Spend()
    neutralized: bool = False
    votes: tuple[Vote, ...] = ()
    agreement: float | None = None
    not_asked: tuple[str, ...] = ()
    confidence: UnitScore | None = None
    expected_value: UnitScore | None = None
    not_applicable: bool = False
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    evidence: tuple[int, ...] = ()
    escalated: bool = False
    escalation_cost: float | None = None
    trained_on: bool = False
    options: tuple[Option, ...] = ()
    scale_type: Literal["ordinal", "nominal"] = "ordinal"
    scale: Scale | None = None
    cap: int | None = None
    computed: bool = False

    @field_serializer("options")
    def _write_options_briefly(self, options: tuple[Option, ...]) -> list[dict[str, Any]]:
        return [option.model_dump(mode="json", exclude_unset=True) for option in options]

    def __repr_args__(self) -> ReprArgs:
        """Yield the most important fields, so that a printed report stays readable."""
        yield "name", self.name
        yield "verdict", self.verdict
        yield ("error", self.error) if self.error else ("reason", self.reason)

    @property
    def explanation(self) -> str:
        """The error, or the judge's reason with the steps that it cites, as readers of a report get it.

        Example:
            >>> row = {"name": "c1", "requirement": "r", "weight": 1.0, "verdict": "MET", "value": 1.0}
            >>> CriterionReport(**row, reason="It looked.", evidence=(2, 5)).explanation
            'It looked. (steps 2, 5)'
        """
        if self.error or not self.evidence:
            return self.error or self.reason
        steps = f"({'step' if len(self.evidence) == 1 else 'steps'} {', '.join(map(str, self.evidence))})"
        return f"{self.reason} {steps}".strip()

    def to_criterion(self) -> Criterion:
        """Return the criterion, as far as the report has it: its name, words, weight and possible answers.

        Raises:
            ValueError: The report is of an earlier version, which did not keep options and scales, and its verdict
                shows that the criterion has them.
        """
        is_binary = not self.options and self.scale is None and self.cap is None
        if is_binary and self.verdict not in (None, NOT_APPLICABLE) and parse_verdict(self.verdict) is None:
            raise ValueError(
                f"the report is from an earlier version, and lacks the possible answers to `{self.name}`, of which "
                f"{self.verdict!r} is one: pass the rubric, too"
            )
        return Criterion(
            name=self.name,
            requirement=self.requirement,
            weight=self.weight / (self.cap or 1),
            options=self.options or None,
            scale_type=self.scale_type,
            scale=self.scale if self.cap is None else None,
            per=None if self.cap is None else "occurrence",
            cap=self.cap,
        )

    @property
    def was_judged(self) -> bool:
        """Whether there is a judge's answer, which may be an abstention; False for a failure."""
        return self.verdict is not None and self.error is None and not self.not_applicable

    @property
    def was_asked(self) -> bool:
        """Whether a judgment was requested; False if `stop_when_decided` decided without this criterion."""
        return self.verdict is not None or self.error is not None

    @property
    def abstained(self) -> bool:
        """Whether the judge worked and could not tell; False for a failure and for a criterion that does not apply."""
        return self.value is None and self.was_asked and not self.error and not self.not_applicable

    @property
    def lost_votes(self) -> int:
        """The number of judges of the panel that failed."""
        return sum(vote.error is not None for vote in self.votes)
