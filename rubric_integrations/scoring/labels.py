"""Human labels, for measuring a judge and as few-shot examples, and `Estimate`, an estimate with its interval."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import model_validator

from rubric_integrations._util.records import EncodableText, SparseRecord
from rubric_integrations._util.text import decimal
from rubric_integrations.rubric.criterion import Criterion, Kind
from rubric_integrations.scoring.judgment import to_judgment
from rubric_integrations.submission.submission import Submission

_Item = TypeVar("_Item")


class Estimate(NamedTuple):
    """An estimated number with its confidence interval.

    Attributes:
        value: The number. None if it is undefined.
        low: The lower end of its interval. None if the data do not determine it.
        high: The upper end of its interval. None if the data do not determine it.
        n: The number of observations that it is based on.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        return f"{'undefined' if self.value is None else self.with_limits()} (n = {self.n:,})"

    def with_limits(self, digits: int = 3, *, signed: bool = False) -> str:
        """Return the number and its interval as text, or a dash if the number is undefined.

        Args:
            digits: The number of digits after the point.
            signed: Whether positive numbers have a sign, as for differences.
        """
        if self.value is None:
            return "-"
        value = decimal(self.value, digits, signed=signed)
        if self.low is None or self.high is None:
            return value
        low, high = (decimal(limit, digits, signed=signed) for limit in (self.low, self.high))
        return f"{value} [{low}, {high}]"


Sampled = Literal["random", "by_verdict", "chosen"]
"""How the judgments for human labels were selected.

- `random`: at random.
- `by_verdict`: at random, separately for each criterion and each verdict of the judge.
- `chosen`: not at random, such as the judgments that a reader overruled.
"""


NO_TEXT = Submission(response="(the run has no text of this row)")
"""The submission of a label whose run does not contain the text, such as a run from `read_judgments`."""


class LabelledJudgment(SparseRecord):
    """A human's judgment of one submission on one criterion.

    Attributes:
        submission: The submission that was judged.
        criterion: The criterion.
        verdict: The correct answer: a verdict, an option's label, or a number on the scale.
        reason: The reason for the verdict, in one sentence.
        id: The id of the row in its run. None if it is unknown.
        rater: The person who judged. None if unknown.
        sampled: How the judgment was selected for labelling: `random`, `by_verdict` (at random, separately for
            each verdict of the judge), or `chosen` (not at random, the default). Statistics about a judge leave out
            `chosen` labels, because they would not show how often the judge is right.
        judged: The judge's answer when the label was made. None if it is unknown.
        blind: Whether the rater answered without seeing the judge's answer.
        digest: The `submission_digest` of the submission that the rater read. If it is set, the label belongs only to
            rows with exactly these texts. None if it is unknown.

    Raises:
        pydantic.ValidationError: (a ValueError) The verdict does not answer the criterion.

    Example:
        >>> label = LabelledJudgment(
        ...     submission=Submission(response="It is 42."), criterion=Criterion(requirement="Says 42"), verdict="MET"
        ... )
        >>> label.verdict
        'MET'
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("id", "rater", "sampled", "judged", "blind", "digest")

    submission: Submission
    criterion: Criterion
    verdict: str
    reason: EncodableText = ""
    id: str | None = None
    rater: EncodableText | None = None
    sampled: Sampled = "chosen"
    judged: EncodableText | None = None
    blind: bool = False
    digest: str | None = None

    @model_validator(mode="after")
    def _require_an_answer_to_the_criterion(self) -> Self:
        to_judgment(self.criterion, self.verdict)
        return self

    def replacing(self, earlier: LabelledJudgment | None) -> LabelledJudgment:
        """Return this label as the replacement of an earlier label by the same rater on the same judgment.

        Without an earlier label, the result is this label. If the earlier label was sampled at random and this label is
        `chosen`, the result has the `sampled` of the earlier label. Otherwise, corrected judgments would disappear from
        the random sample. These are often the judgments on which rater and judge differ.
        """
        is_drawn = earlier is not None and earlier.sampled != "chosen" and self.sampled == "chosen"
        return self.model_copy(update={"sampled": earlier.sampled}) if earlier is not None and is_drawn else self


def rater_key(rater: str) -> str:
    """Return a rater's name for comparison, without case and without outer or repeated white space.

    Example:
        >>> rater_key("Ann ") == rater_key("ann")
        True
    """
    return " ".join(rater.split()).casefold()


def same_text(text: str | None) -> str:
    """Return a text for comparison, with Unix line breaks and without outer white space.

    Spreadsheet programs change both.
    """
    return (text or "").replace("\r\n", "\n").strip()


def submission_digest(submission: Submission) -> str:
    """Return a digest of the texts that a rater reads: response, query, reference, context and the complete trajectory.

    A label with this digest belongs to these texts, even if the row with its `id` has other texts later.

    Example:
        >>> submission_digest(Submission(response="It is 42."))
        '663a1a7464749d22d526756297076bc5'
    """
    return _texts_digest(submission, with_trajectory=True)


def _texts_digest(submission: Submission, *, with_trajectory: bool) -> str:
    texts = [submission.response, submission.query, submission.reference, *submission.context]
    parts: list[object] = [same_text(text) for text in texts]
    if with_trajectory and submission.trajectory is not None:
        parts.append({"trajectory": submission.trajectory.digest})
    return sha256(json.dumps(parts).encode()).hexdigest()[:32]


def has_digest(submission: Submission, digest: str) -> bool:
    """Return whether a label's digest belongs to a submission.

    Labels of earlier versions have a digest without the trajectory. They belong to all runs of an agent with equal
    texts.
    """
    return any(digest == _texts_digest(submission, with_trajectory=is_new) for is_new in (True, False))


def index_by_digest(items: Iterable[tuple[_Item, Submission]]) -> dict[str, _Item | None]:
    """Return the first item of each digest of a submission.

    The value is None for a digest of an earlier version (see `has_digest`) that several different submissions have.
    """
    index: dict[str, _Item | None] = {}
    earlier: dict[str, _Item | None] = {}
    owners: dict[str, str] = {}
    for item, submission in items:
        digest = submission_digest(submission)
        index.setdefault(digest, item)
        texts = _texts_digest(submission, with_trajectory=False)
        earlier.setdefault(texts, item)
        if owners.setdefault(texts, digest) != digest:
            earlier[texts] = None
    return earlier | index


def judgment_digest(submission: Submission, criterion: Criterion, *, with_trajectory: bool = True) -> str:
    """Return a digest that identifies a judgment: its query, response, trajectory and requirement.

    A judge keeps the digests of the labels that it was aligned with. Two submissions with equal query, response and
    trajectory have the same digest, whatever else they contain. Therefore, a label of one is not mistaken for a new
    label of the other. Windows line breaks, which spreadsheet programs write, do not change the digest.

    Args:
        submission: The submission with its complete trajectory.
        criterion: The criterion.
        with_trajectory: Whether the digest depends on the trajectory. Digests of earlier versions do not.

    Example:
        >>> criterion = Criterion(requirement="Says 42")
        >>> len(judgment_digest(Submission(response="It is 42."), criterion))
        32
    """
    parts: list[object] = [same_text(submission.query), same_text(submission.response), criterion.full_requirement]
    if with_trajectory and submission.trajectory is not None:
        parts.append({"trajectory": submission.trajectory.digest})
    return sha256(json.dumps(parts).encode()).hexdigest()[:32]


def select_examples(
    examples: Sequence[LabelledJudgment], kind: Kind, count: int, response: str
) -> list[LabelledJudgment]:
    """Select few-shot examples for criteria of one kind, balanced by verdict, in their original order.

    The selection does not depend on the criterion. Therefore, all criteria of a submission have the same prompt prefix,
    which the provider can cache.

    Args:
        examples: The examples to select from.
        kind: The kind of criterion. Examples of other kinds are left out.
        count: The largest number of examples to select.
        response: The response to grade. Examples with the same response are left out, because they contain the answer.
    """
    by_verdict: dict[str, list[LabelledJudgment]] = {}
    for example in examples:
        if example.criterion.kind == kind and example.submission.response.strip() != response.strip():
            by_verdict.setdefault(example.verdict, []).append(example)
    rounds = max(map(len, by_verdict.values()), default=0)
    alternating = [group[turn] for turn in range(rounds) for group in by_verdict.values() if turn < len(group)]
    selected = alternating[:count]
    return [example for example in examples if any(example is chosen for chosen in selected)]


def examples_of_criterion(criterion: Criterion, response: str) -> list[LabelledJudgment]:
    """Return the criterion's `examples` as labels, except examples with the same response as the one to grade."""
    return [
        LabelledJudgment(
            submission=Submission(response=example.output, query=example.input),
            criterion=criterion,
            verdict=example.score if isinstance(example.score, str) else f"{example.score:g}",
            reason=example.explanation,
        )
        for example in criterion.examples
        if example.output.strip() and example.output.strip() != response.strip()
    ]
