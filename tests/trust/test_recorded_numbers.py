"""The formulas give the numbers that an independent implementation recorded, to nine digits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust import SequentialGate
from rubric_integrations.trust.corrections import (
    RatedRow,
    Stratum,
    corrected_mean,
    corrected_rate,
    estimate_share,
    labelled_mean,
    rogan_gladen_rate,
)
from rubric_integrations.trust.statistics import cohen_kappa, estimate_rate_difference, gwet_ac1, level_distances

PEOPLE = [1, 0.8, 0.8, 0.6, 1, 0.4, 0.2, 1, 0.8, 0.6, 0.4, 1, 0.8, 0.2, 0.6, 1, 0.4, 0.8, 0.6, 1]
JUDGE = [1, 1, 0.8, 0.8, 1, 0.6, 0.2, 1, 1, 0.6, 0.6, 1, 0.8, 0.4, 0.8, 1, 0.2, 1, 0.6, 0.8]
RUN = JUDGE * 18 + [0, 0.2, 0.4, 0.6, 0.8, 1, 0.4, 0.6] * 5
# The share of two raters who say MET of ten submissions, of which the judge calls the first four and three others MET.
SHARES, MET = [1, 0.5, 1, 0, 0.5, 1, 1, 0, 0.5, 1], "1110101001"
TWO_RATERS = [
    RatedRow(row if judged == "1" else 60 + row, "MET" if judged == "1" else "UNMET", share, raters=2)
    for row, (share, judged) in enumerate(zip(SHARES, MET, strict=True))
]
BINARY = level_distances([0, 1])
FOUR_LEVELS = [[6, 2, 0, 0], [1, 9, 3, 0], [0, 2, 8, 2], [0, 0, 1, 6]]

CASES: dict[str, tuple[Callable[[], Estimate | None], tuple[float, float, float]]] = {
    "kappa of two levels": (
        lambda: cohen_kappa([[31, 4], [6, 19]], BINARY),
        (0.653179191, 0.435395950, 0.828102970),
    ),
    "kappa of a perfect judge": (lambda: cohen_kappa([[12, 0], [0, 8]], BINARY), (1, 0.725977007, 1)),
    "quadratic kappa": (
        lambda: cohen_kappa(FOUR_LEVELS, level_distances([0, 1 / 3, 2 / 3, 1])),
        (0.862671660, 0.594575473, 0.939228766),
    ),
    "rate": (
        lambda: corrected_rate([Stratum(620, 31, 27), Stratum(380, 19, 4)]),
        (0.62, 0.512390445, 0.719074790),
    ),
    "rate of a perfect judge": (
        lambda: corrected_rate([Stratum(700, 35, 35), Stratum(300, 15, 0)]),
        (0.7, 0.644102682, 0.753675444),
    ),
    "rate where people abstain": (
        lambda: corrected_rate([Stratum(620, 31, 27, 30), Stratum(380, 19, 2, 8)]),
        (0.763157895, 0.628906567, 0.872034278),
    ),
    "rate where all is labelled and people abstain": (
        lambda: corrected_rate([Stratum(500, 500, 450), Stratum(500, 500, 50, 100)]),
        (0.833333333, 0.802169751, 0.861665598),
    ),
    "rate of two raters": (
        lambda: estimate_share(dict(enumerate(["MET"] * 60 + ["UNMET"] * 40)), TWO_RATERS),
        (0.65, 0.442455414, 0.843151593),
    ),
    "mean": (
        lambda: labelled_mean(PEOPLE, range(20), RUN).estimate,
        (0.676506024, 0.553030821, 0.807574439),
    ),
    "mean where people abstain": (
        lambda: labelled_mean(PEOPLE, range(20), RUN, assessed=[1] * 14 + [0] * 6).estimate,
        (0.660027663, 0.484369011, 0.852678571),
    ),
    "mean where all is labelled and people abstain": (
        lambda: (
            labelled_mean(
                [1] * 450 + [0] * 50 + [1] * 50 + [0] * 450,
                range(1000),
                [1.0] * 500 + [0.0] * 500,
                assessed=[1] * 600 + [0] * 400,
            ).estimate
        ),
        (0.833333333, 0.801752492, 0.862201323),
    ),
    "mean without bounds": (
        lambda: corrected_mean(PEOPLE, JUDGE, 0.71, 400).estimate,
        (0.654819277, 0.573521179, 0.736117375),
    ),
    "rate by labels from elsewhere": (
        lambda: rogan_gladen_rate(met=620, judged=1000, sensitivity=(45, 50), specificity=(40, 50)),
        (0.6, 0.494592203, 0.716630785),
    ),
    "difference of paired rates": (
        lambda: estimate_rate_difference(rose=9, fell=3, pairs=60),
        (0.1, -0.019029449, 0.212577836),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_estimate_equals_the_recorded_one(case: str) -> None:
    compute, recorded = CASES[case]
    estimate = compute()
    assert estimate is not None
    assert estimate[:3] == pytest.approx(recorded, abs=1e-9)


def test_weight_of_the_judge_and_ac1_equal_the_recorded_ones() -> None:
    assert corrected_mean(PEOPLE, JUDGE, 0.71, 400).weight == pytest.approx(0.903614458, abs=1e-9)
    assert gwet_ac1([[31, 4], [6, 19]]) == pytest.approx(0.679487179, abs=1e-9)


def test_gates_equal_the_recorded_ones() -> None:
    scores = [1, 1, 0.8, 1, 1, 0.6, 1, 1, 1, 0.8] * 6
    gate, capitals, decisions = SequentialGate(0.8), list[float](), list[str]()
    for score in scores:
        decisions.append(gate.add(score))
        capitals.append(gate.capital)
    assert (capitals[9], capitals[29]) == pytest.approx((2.093298644, 12.767710687), abs=1e-9)
    assert decisions.index("pass") == 33
