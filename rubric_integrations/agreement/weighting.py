"""Weights labels that were drawn by the judge's verdict, so that they stand for the whole run.

Such labels have more of the rare verdicts than the run has. Each label of a verdict v stands for p_v / n_v judgments:
the share of the verdict in the run, by the number of its labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from rubric_integrations.agreement.correction import Stratum, corrected_rate
from rubric_integrations.agreement.kappa import Matrix
from rubric_integrations.agreement.matching import Match
from rubric_integrations.results.estimate import Estimate


def verdict_weights(matches: Sequence[Match], judged: Mapping[str, int] | None) -> dict[str, float] | None:
    """Return, for each verdict of the judge, how many judgments of the run a labelled one stands for.

    Args:
        matches: The labelled judgments of a criterion.
        judged: How often the judge gave each verdict in the run; None for labels that were drawn at random.
    """
    if judged is None:
        return None
    labelled = Counter(match.judge_answer for match in matches)
    return {verdict: count / labelled[verdict] for verdict, count in judged.items() if labelled[verdict]}


def weight_table(table: Matrix, levels: Sequence[str], judged: Mapping[str, int]) -> Matrix:
    """Weight each column of a confusion table by how often the judge gives its answer in the run.

    The sum of the result is the effective sample size (Kish). If the run has an answer without a label, nothing is
    known of its column, and the result is empty: all zeros.
    """
    columns = table.sum(axis=0)
    counts = np.array([judged.get(answer, 0) for answer in levels], float)
    if not columns.sum() or (counts[columns == 0] > 0).any():
        return np.zeros_like(table)
    weights = np.divide(counts, columns, out=np.zeros_like(counts), where=columns > 0)
    total = float((weights * columns).sum())
    return table * weights * total / float((weights**2 * columns).sum())


def rate_bias(
    judged: Mapping[str, int], labelled: Mapping[str, int], met: Mapping[str, int], level: float = 0.95
) -> Estimate:
    """Estimate the judge's MET rate less people's, by labels that were drawn by the judge's verdict.

    Args:
        judged: How often the judge says MET, and UNMET, in the run.
        labelled: How many labels there are for each verdict.
        met: On how many of them people say MET.
        level: The level of the interval.

    Example:
        >>> print(rate_bias({"MET": 90, "UNMET": 10}, {"MET": 10, "UNMET": 10}, {"MET": 10, "UNMET": 5}))
        -0.050 [-0.090, 0.150] (n = 20)
    """
    strata = [Stratum(count, labelled.get(verdict, 0), met.get(verdict, 0)) for verdict, count in judged.items()]
    people, judge = corrected_rate(strata, level), judged.get("MET", 0) / sum(judged.values())
    if people.value is None or people.low is None or people.high is None:
        return people
    return Estimate(judge - people.value, judge - people.high, judge - people.low, people.n)
