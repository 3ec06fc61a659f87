"""Simulates alignments: how often a judge is kept that is no better, and how often one that is.

    python benchmarks/alignment.py

Draws right and wrong answers, and decides by the functions of the library; no model is called. Each submission has
one question or three. A candidate changes a share of the answers, some to right ones and some to wrong ones.
"""

from __future__ import annotations

import numpy as np

from rubric_integrations.trust.alignment.keeping import estimate_gain, is_kept, smallest_gain

ALPHA = 0.05
CANDIDATES = 12


def right_answers(rng: np.random.Generator, submissions: int, questions: int, accuracy: float) -> np.ndarray:
    """Draw which answers of a judge are right, for each question of each submission."""
    return rng.random((submissions, questions)) < accuracy


def candidate(
    rng: np.random.Generator, right: np.ndarray, accuracy: float, gain: float, changed: float
) -> np.ndarray:  # fmt: skip
    """Draw which answers of a candidate are right: it corrects some, and spoils others."""
    corrected, spoilt = (changed + gain) / 2 / (1 - accuracy), (changed - gain) / 2 / accuracy
    draw = rng.random(right.shape)
    return np.where(right, draw >= spoilt, draw < corrected)


def differences(before: np.ndarray, after: np.ndarray) -> list[float]:
    """Return the gain of each submission: the share of right answers after less that before."""
    return list((after.mean(axis=1) - before.mean(axis=1)).tolist())


def kept_share(
    rng: np.random.Generator,
    repeats: int,
    test: int,
    questions: int,
    accuracy: float,
    *,
    gain: float,
    changed: float,
    attempts: int = 1,
    divide_by_number: bool = False,
) -> float:
    """Return how often at least one of some attempts on the same test set is kept.

    Each attempt chooses the best of 12 candidates on a dev set of half the size, and is tried only if it is better
    there than the judge, as in `align`. With `divide_by_number`, the k-th attempt is decided at alpha / k instead.
    """
    kept = 0
    for _ in range(repeats):
        dev_before = right_answers(rng, test // 2, questions, accuracy)
        test_before = right_answers(rng, test, questions, accuracy)
        number = 1
        for _ in range(attempts):
            on_dev = max(candidate(rng, dev_before, accuracy, gain, changed).mean() for _ in range(CANDIDATES))
            if on_dev <= dev_before.mean():
                continue
            after = candidate(rng, test_before, accuracy, gain, changed)
            alpha = ALPHA * (number + 1) if divide_by_number else ALPHA
            if is_kept(estimate_gain(differences(test_before, after), alpha, number)):
                kept += 1
                break
            number += 1
    return kept / repeats


def main() -> None:
    """Print the shares as tables."""
    rng = np.random.default_rng(0)
    print("An equally good judge, 1,000 alignments each: kept (alpha 5 %)")
    columns = (
        "test submissions, questions",
        "accuracy, changed answers",
        "one attempt",
        "ten attempts",
        "ten, alpha / k",
    )
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|")
    for test, questions in ((20, 1), (20, 3), (40, 3), (120, 1), (120, 3), (200, 3)):
        for accuracy, changed in ((0.8, 0.1), (0.8, 0.2), (0.7, 0.4), (0.95, 0.08)):
            one, ten, divided = (
                kept_share(
                    rng, 1_000, test, questions, accuracy, gain=0.0, changed=changed, attempts=attempts,
                    divide_by_number=divide_by_number,
                )
                for attempts, divide_by_number in ((1, False), (10, False), (10, True))
            )  # fmt: skip
            print(f"| {test}, {questions} | {accuracy:.2f}, {changed:.2f} | {one:.1%} | {ten:.1%} | {divided:.1%} |")
    print("\nA judge that is better, a fifth of the answers changed, accuracy 0.8: kept at the first attempt")
    print("| test submissions, questions | +5 points | +10 points | smallest gain that `align` names |")
    print("|---|---|---|---|")
    for test, questions in ((40, 1), (40, 3), (120, 1), (120, 3), (150, 1), (200, 1), (400, 1)):
        five, ten = (kept_share(rng, 500, test, questions, 0.8, gain=gain, changed=0.2) for gain in (0.05, 0.1))
        print(f"| {test}, {questions} | {five:.0%} | {ten:.0%} | {smallest_gain(test):.2f} |")


if __name__ == "__main__":
    main()
