"""Compares two judges on the same labels, by submission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.agreement.alignment.calls import AlignmentCalls, AlignmentStopped
from rubric_integrations.agreement.alignment.label_sets import LabelledQuestion
from rubric_integrations.judges.lm_judge import LMJudge

# With more failures, the rest says too little about the judges.
_MOST_FAILURES = 0.2


class PairedAccuracy(NamedTuple):
    """The accuracy of two judges on the same questions.

    Attributes:
        before: For each submission, the share of questions that the first judge answers as people do.
        after: The same of the second judge, in the same order.
        failures: How many questions are left out, because a judge failed.
    """

    before: list[float]
    after: list[float]
    failures: int

    @property
    def differences(self) -> list[float]:
        """For each submission, the share of the second judge less that of the first."""
        return [after - before for before, after in zip(self.before, self.after, strict=True)]


def compare_judges(
    before: LMJudge, after: LMJudge, items: Sequence[LabelledQuestion], calls: AlignmentCalls
) -> PairedAccuracy:
    """Measure two judges on the same questions. Where one fails, the question is left out for both.

    Raises:
        AlignmentStopped: No further call is made, or the judges failed too often.
    """
    answers = [run_sync(calls.measure(judge, items)) for judge in (before, after)]
    by_submission: dict[str, list[tuple[bool, bool]]] = {}
    failures = 0
    for item, first, second in zip(items, *answers, strict=True):
        if first is None or second is None:
            failures += 1
        else:
            by_submission.setdefault(item.submission, []).append((first, second))
    if failures > _MOST_FAILURES * len(items):
        raise AlignmentStopped(
            f"a judge failed on {failures:,} of {len(items):,} questions of a measurement, and the rest may be easier "
            "ones"
        )
    shares = [[sum(pair[side] for pair in pairs) / len(pairs) for pairs in by_submission.values()] for side in (0, 1)]
    return PairedAccuracy(shares[0], shares[1], failures)
