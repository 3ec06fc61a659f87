"""Judgments that people made: what a judge is shown as examples, and later measured by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import model_validator

from rubric_integrations.answers import read_answer
from rubric_integrations.criterion import Criterion, Kind
from rubric_integrations.record import Record
from rubric_integrations.submission import Submission


class LabelledJudgment(Record):
    """One criterion, one submission, and the right answer.

    Attributes:
        submission: What was judged.
        criterion: What was asked.
        verdict: The answer: a verdict, an option's label, or a number on the scale.
        reason: Why, in a sentence.

    Raises:
        pydantic.ValidationError: (a ValueError) where the verdict is no answer to the criterion.
    """

    submission: Submission
    criterion: Criterion
    verdict: str
    reason: str = ""

    @model_validator(mode="after")
    def _answers_the_criterion(self) -> Self:
        read_answer(self.criterion, self.verdict)
        return self


def choose_examples(
    examples: Sequence[LabelledJudgment], kind: Kind, count: int, graded: str
) -> list[LabelledJudgment]:
    """At most `count` examples of a kind, as many of each verdict as there can be, in the order given.

    One about the text being graded is left out: it would give the answer away. The choice does not depend on the
    criterion, so that the prompt stays the same for all criteria of a submission.
    """
    by_verdict: dict[str, list[LabelledJudgment]] = {}
    for example in examples:
        if example.criterion.kind == kind and example.submission.response.strip() != graded.strip():
            by_verdict.setdefault(example.verdict, []).append(example)
    rounds = max(map(len, by_verdict.values()), default=0)
    turns = [group[turn] for turn in range(rounds) for group in by_verdict.values() if turn < len(group)]
    chosen = turns[:count]
    return [example for example in examples if any(example is picked for picked in chosen)]


def own_examples(criterion: Criterion, graded: str) -> list[LabelledJudgment]:
    """The examples that a rubric gives with a criterion, but for one about the text being graded."""
    return [
        LabelledJudgment(
            submission=Submission(response=example.output, query=example.input),
            criterion=criterion,
            verdict=example.score if isinstance(example.score, str) else f"{example.score:g}",
            reason=example.explanation,
        )
        for example in criterion.examples
        if example.output.strip() and example.output.strip() != graded.strip()
    ]
