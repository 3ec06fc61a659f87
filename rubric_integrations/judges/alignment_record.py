"""What the file of an aligned judge says about its alignment, and which judgments it has seen people's labels of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256

from rubric_integrations._util.records import Record
from rubric_integrations.judges.protocol import BatchResult, Question
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.labels import judgment_digest


class AlignmentRecord(Record):
    """How a judge was aligned with people's labels, and how far it then agreed with people on labels it had not seen.

    Attributes:
        model: The name of the model that it was aligned for, without the address of its server.
        optimizer: The name of the optimizer, such as `GEPA`.
        labels: A digest of all labels, those of the test set included.
        trained_on: The digest of each judgment (see `judgment_digest`) whose label the optimizer saw, or by which its
            candidates were chosen. Figures about the judge leave these judgments out.
        test_set: A digest of the labels of the test set.
        attempts: How many judges have been tried on this test set, this one included.
        alpha: The probability of keeping a judge that is not better, over all attempts.
        before: The accuracy on the test set before the alignment.
        after: The accuracy on the test set after it.
        gain: The difference of both, with a one-sided lower limit.
        kept: Whether the lower limit is above 0. If not, the judge is as it was before, and has seen no label.
    """

    model: str
    optimizer: str
    labels: str
    trained_on: tuple[str, ...]
    test_set: str
    attempts: int
    alpha: float
    before: Estimate
    after: Estimate
    gain: Estimate
    kept: bool

    @cached_property
    def seen(self) -> frozenset[str]:
        """The digest of each judgment whose label has shaped the judge's prompts; none if it was not kept."""
        return frozenset(self.trained_on if self.kept else ())

    @cached_property
    def training_digest(self) -> str:
        """A digest of `seen`, for the judge's fingerprint; empty if the judge has seen no label."""
        return sha256("\n".join(sorted(self.seen)).encode()).hexdigest()[:32] if self.seen else ""


def is_trained_on(alignment: AlignmentRecord | None, question: Question) -> bool:
    """Return whether a judge was aligned with a label of the very judgment that a question asks for.

    A label may lack the query, so that both digests are looked up: with it and without it. About a part of a long
    response, the label of the whole counts.
    """
    if alignment is None or not alignment.seen:
        return False
    submission = question.submission
    if question.whole_response is not None:
        submission = submission.model_copy(update={"response": question.whole_response})
    without_query = submission.model_copy(update={"query": None})
    digests = {judgment_digest(labelled, question.criterion) for labelled in (submission, without_query)}
    return not alignment.seen.isdisjoint(digests)


def mark_batch(alignment: AlignmentRecord | None, questions: Mapping[int, Question], batch: BatchResult) -> BatchResult:
    """Mark those answers of a request to several questions whose labels the judge was aligned with."""
    trained = [number for number in batch.answers if is_trained_on(alignment, questions[number])]
    marked = {number: batch.answers[number].model_copy(update={"trained_on": True}) for number in trained}
    return batch._replace(answers={**batch.answers, **marked}) if marked else batch
