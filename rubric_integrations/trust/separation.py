"""How well criteria order pairs of answers: which candidates reproduce a preference, and how far a rubric separates.

A pair has a better and a worse answer. A criterion orders it rightly if the better answer has the higher signed value:
the value of the verdict, or its negative for a penalty. A missing value is NaN and never a number, because a failed
judge has given no verdict.

Pairs of one group depend on each other. A test of a candidate therefore counts groups: the group orders rightly if the
sum of the differences of its pairs is above 0. The candidates are corrected for their number by Holm's method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from rubric_integrations._util.records import Record
from rubric_integrations._util.text import counted
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.comparison import holm
from rubric_integrations.trust.means import Groups, estimate_bias, estimate_mean_share, select_groups
from rubric_integrations.trust.statistics import ROUNDING, special

FEWEST_GROUPS = 30
"""With fewer independent groups of pairs, there are counts and no verdict."""

# With a larger share of missing answers, the remaining pairs are not representative.
_MOST_LOST = 0.2
_LEAST_ASSESSED = 0.5
# The correlation of two criteria over the answers from which on one of them adds nothing.
REDUNDANT = 0.8

PruneReason = Literal[
    "always met",
    "never met",
    "rarely assessed",
    "the judge failed",
    "orders other pairs wrongly",
    "not shown to separate",
    "redundant",
]
"""Why a candidate is not kept."""

Decision = Literal["separates", "not shown to separate", "no verdict"]
"""Whether a rubric orders pairs that were not used to write or to choose its criteria."""


class PairCounts(NamedTuple):
    """How many pairs a criterion or a rubric orders rightly.

    Attributes:
        right: The number of pairs in which the better answer has the higher value.
        wrong: The number of pairs in which the worse answer has the higher value.
        tied: The number of pairs with equal values.
        missing: The number of pairs without a value for one of their answers.
    """

    right: int
    wrong: int
    tied: int
    missing: int = 0

    @property
    def share(self) -> float | None:
        """The share of pairs that are ordered rightly, in [0, 1]. A tie counts as half. None without a value."""
        pairs = self.right + self.wrong + self.tied
        return (self.right + self.tied / 2) / pairs if pairs else None

    def __str__(self) -> str:
        share = "" if self.share is None else f" (share {self.share:.2f})"
        missing = f", {self.missing} missing" if self.missing else ""
        return f"{self.right} right, {self.wrong} wrong, {self.tied} tied{missing}{share}"


class CandidateTest(Record):
    """The test of one candidate on pairs from which it was not written.

    Attributes:
        counts: How the candidate orders the pairs.
        met_share: The share of the judged answers for which the verdict is MET. None without a verdict.
        p_value: The one-sided p-value of the sign test over groups of pairs, after Holm's correction for all candidates
            of the test. None if no pair has a value.
        reason: Why the candidate is not kept. None if it is kept.
        is_tested: Whether there were enough groups for a verdict. If not, a kept candidate is only not refuted.
    """

    counts: PairCounts
    met_share: float | None
    p_value: float | None
    reason: PruneReason | None
    is_tested: bool


def signed_differences(values: Any, signs: Any) -> Any:
    """Return, for each pair and criterion, the signed value of the better answer minus that of the worse answer.

    Args:
        values: The values in [0, 1] of shape (pairs, 2, criteria): the better answer comes first. NaN is no value.
        signs: For each criterion, 1, or -1 for a penalty.
    """
    return (values[:, 0] - values[:, 1]) * signs


def count_pairs(values: Any, signs: Sequence[int]) -> list[PairCounts]:
    """Count, for each criterion, the pairs that it orders rightly; see `signed_differences`.

    Example:
        >>> count_pairs(np.array([[[1.0], [0.0]], [[1.0], [1.0]]]), [1])[0].share
        0.75
    """
    differences = signed_differences(values, np.asarray(signs))
    return [_counts(differences[:, place]) for place in range(values.shape[2])]


def sign_test(differences: Any, groups: Groups) -> Any:
    """Return the one-sided p-value of each criterion: that it orders more groups of pairs rightly than wrongly.

    Example:
        >>> float(sign_test(np.ones((5, 1)), np.arange(5))[0]) == 1 / 32
        True
    """
    totals = np.zeros((int(groups.max(initial=-1)) + 1, differences.shape[1]))
    np.add.at(totals, groups, np.nan_to_num(differences))
    right, wrong = (totals > ROUNDING).sum(0), (totals < -ROUNDING).sum(0)
    # The probability of at least `right` of `right + wrong` by chance.
    return np.where(right > 0, special().bdtrc(np.maximum(right - 1, 0), right + wrong, 0.5), 1.0)


def prune_candidates(
    values: Any,
    signs: Sequence[int],
    groups: Groups,
    *,
    failed: Any = None,
    present: Any = None,
    alpha: float = 0.05,
) -> list[CandidateTest]:
    """Test each candidate on pairs from which it was not written, and find the candidates to keep.

    Args:
        values: The values of the candidates, of shape (pairs, 2, candidates); see `signed_differences`.
        signs: For each candidate, 1, or -1 for a penalty.
        groups: The group of each pair, numbered from 0.
        failed: Whether the judge failed, with the shape of `values`. None if it never failed.
        present: Signed values of the criteria that the rubric already has, of shape (pairs, 2, criteria), or None.
        alpha: The probability that a candidate without any relation to the preference is called separating, over all
            candidates.

    Returns:
        One test for each candidate, in their order.

    Example:
        >>> values = np.zeros((40, 2, 2))
        >>> values[:, 0, 0] = 1.0
        >>> [test.reason for test in prune_candidates(values, [1, 1], np.arange(40))]
        [None, 'never met']
    """
    signed = np.asarray(signs)
    lost = np.zeros(values.shape, bool) if failed is None else failed
    differences = signed_differences(values, signed)
    has_enough = len(set(groups.tolist())) >= FEWEST_GROUPS
    p_values: dict[int, float] = dict(enumerate(sign_test(differences, groups).tolist()))
    adjusted = holm(p_values)
    tests: dict[int, CandidateTest] = {}
    columns = [] if present is None else [present[:, :, place].ravel() for place in range(present.shape[2])]
    # The best candidate comes first: of two redundant ones, it is the one that is kept.
    for place in sorted(p_values, key=lambda each: (p_values[each], each)):
        counts = _counts(differences[:, place])
        answers = values[:, :, place].ravel()
        judged = answers[~np.isnan(answers)]
        reason = _reason(judged, len(answers), int(lost[:, :, place].sum()), counts)
        if reason is None and has_enough and adjusted[place] > alpha:
            reason = "not shown to separate"
        column = answers * signed[place]
        if reason is None and any(_correlation(column, other) >= REDUNDANT for other in columns):
            reason = "redundant"
        if reason is None:
            columns.append(column)
        tests[place] = CandidateTest(
            counts=counts,
            met_share=float(judged.mean()) if len(judged) else None,
            p_value=adjusted[place] if counts.share is not None else None,
            reason=reason,
            is_tested=has_enough,
        )
    return [tests[place] for place in range(values.shape[2])]


def _reason(judged: Any, answers: int, lost: int, counts: PairCounts) -> PruneReason | None:
    """Return why a candidate is useless whatever the number of pairs, or None."""
    if lost > _MOST_LOST * answers:
        return "the judge failed"
    if len(judged) < _LEAST_ASSESSED * answers:
        return "rarely assessed"
    if len(judged) and (judged == judged[0]).all():
        return "always met" if judged[0] else "never met"
    return "orders other pairs wrongly" if counts.right <= counts.wrong else None


def _counts(differences: Any) -> PairCounts:
    missing = int(np.isnan(differences).sum())
    right, wrong = int((differences > ROUNDING).sum()), int((differences < -ROUNDING).sum())
    return PairCounts(right, wrong, len(differences) - missing - right - wrong, missing)


def _correlation(one: Any, other: Any) -> float:
    """Return the correlation of two criteria over the answers that both have judged. 0 if one of them is constant."""
    both = ~(np.isnan(one) | np.isnan(other))
    x, y = one[both], other[both]
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


class Separation(Record):
    """How far a rubric separates better from worse answers, on pairs that were not used to write or choose it.

    Attributes:
        decision: `separates` if the lower limit of `rubric` is above 0.5. `no verdict` with fewer than 30 groups, or if
            the judge failed on more than 20 % of the pairs.
        reason: Why there is no verdict. Empty if there is one.
        counts: How the rubric orders the pairs.
        groups: The number of independent groups of pairs.
        rubric: The share of pairs that the rubric orders rightly. A tie counts as half. Always giving the most frequent
            answer ties all pairs, and has the share 0.5.
        length: The same share for the number of words alone. Whether longer or shorter answers are better is learned
            from other pairs.
        over_length: The share of the rubric minus the share of length alone, in [-1, 1].
        base: The share for the rubric that was passed as `base`. None without one.
        over_base: The share of the rubric minus the share of `base`, in [-1, 1]. None without one.
        level: The confidence level of the intervals.
    """

    decision: Decision
    reason: str
    counts: PairCounts
    groups: int
    rubric: Estimate
    length: Estimate
    over_length: Estimate
    base: Estimate | None = None
    over_base: Estimate | None = None
    level: float = 0.95

    @property
    def headline(self) -> str:
        """One sentence with the decision, or with the counts and the reason for no verdict."""
        pairs = counted(self.counts.right + self.counts.wrong + self.counts.tied, "pair")
        if self.decision == "no verdict":
            return f"No verdict: {self.reason}. Of the report part, {self.counts}."
        if self.decision == "separates":
            shown = "separates better from worse answers"
        else:
            is_reversed = self.rubric.high is not None and self.rubric.high < 0.5
            shown = "prefers the worse answers" if is_reversed else "is not shown to separate"
        low, high = self.over_length.low, self.over_length.high
        beyond = "less than" if high is not None and high < 0 else "not shown to be more than"
        if low is not None and low > 0:
            beyond = "more than"
        base = "" if self.base is None else f", the base alone {self.base.with_limits(2)}"
        return (
            f"The rubric {shown}: it orders {self.rubric.with_limits(2)} of {pairs} rightly, {beyond} length alone "
            f"({self.length.with_limits(2)}); always the most frequent answer has 0.50{base}."
        )


def measure_separation(
    scores: Sequence[tuple[float | None, float | None]],
    lengths: Sequence[tuple[int, int]],
    groups: Groups,
    *,
    longer_is_better: bool,
    base: Sequence[tuple[float | None, float | None]] | None = None,
    level: float = 0.95,
) -> Separation:
    """Measure how far scores separate the better from the worse answers of pairs.

    Args:
        scores: For each pair, the score of the better and of the worse answer. None if the judge failed or abstained.
        lengths: For each pair, the number of words of the better and of the worse answer.
        groups: The group of each pair, numbered from 0.
        longer_is_better: How length alone orders the answers. Learn it from other pairs.
        base: The scores of the rubric without the drafted criteria, or None.
        level: The confidence level of the intervals.
    """
    rows = [place for place, pair in enumerate(scores) if _has_both(pair) and (not base or _has_both(base[place]))]
    shares = [_share(scores[row]) for row in rows]
    sign = 1 if longer_is_better else -1
    by_length = [_share((sign * lengths[row][0], sign * lengths[row][1])) for row in rows]
    own, of_base = select_groups(groups, rows), [_share(base[row]) for row in rows] if base else None
    count, lost = len({int(groups[row]) for row in rows}), len(scores) - len(rows)
    reason = ""
    if lost > _MOST_LOST * len(scores):
        reason = f"{lost} of {counted(len(scores), 'pair')} have no score, and the others may be easier ones"
    elif count < FEWEST_GROUPS:
        reason = f"{counted(count, 'independent group')} of pairs, below {FEWEST_GROUPS}"

    def estimate(values: Sequence[float]) -> Estimate:
        return _without_limits(estimate_mean_share(values, level, own), reason)

    def difference(from_values: Sequence[float]) -> Estimate:
        return _without_limits(estimate_bias(from_values, shares, level, own), reason)

    rubric = estimate(shares)
    shows = rubric.low is not None and rubric.low > 0.5
    return Separation(
        decision="no verdict" if reason else "separates" if shows else "not shown to separate",
        reason=reason,
        counts=PairCounts(shares.count(1.0), shares.count(0.0), shares.count(0.5), lost),
        groups=count,
        rubric=rubric,
        length=estimate(by_length),
        over_length=difference(by_length),
        base=None if of_base is None else estimate(of_base),
        over_base=None if of_base is None else difference(of_base),
        level=level,
    )


def longer_answers_win(lengths: Sequence[tuple[int, int]]) -> bool:
    """Return whether the better answer is more often the longer one than the shorter one.

    Example:
        >>> longer_answers_win([(9, 3), (4, 2), (1, 5)])
        True
    """
    return sum((better > worse) - (better < worse) for better, worse in lengths) >= 0


def _has_both(pair: tuple[float | None, float | None]) -> bool:
    return pair[0] is not None and pair[1] is not None


def _share(pair: tuple[float | None, float | None]) -> float:
    difference = (pair[0] or 0.0) - (pair[1] or 0.0)
    return 0.5 if abs(difference) <= ROUNDING else float(difference > 0)


def _without_limits(estimate: Estimate, reason: str) -> Estimate:
    return estimate._replace(low=None, high=None) if reason else estimate
