"""What the file of an aligned judge says about its alignment."""

from __future__ import annotations

from rubric_integrations._util.records import Record
from rubric_integrations.results.estimate import Estimate


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
        kept: Whether the lower limit is above 0.
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
