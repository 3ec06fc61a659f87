"""How many labels are needed, and which judgments people should read."""

from __future__ import annotations

import math

from rubric_integrations.agreement.intervals import normal_quantile

# With 20 labels, the lower end of a corrected figure is above the truth in up to 6.7 % of runs, where 2.5 % are
# promised; with 50, in up to 4.8 %. Gates therefore need as many.
FEWEST_LABELS = 50


def plan_labels(
    half_width: float,
    *,
    judged: int,
    rate: float | None = None,
    sd: float | None = None,
    correlation: float = 0.0,
    level: float = 0.95,
) -> int | None:
    """Return how many labels give a corrected figure the interval of a width; at least 50.

    `n = (1 - r^2) / ((h / (z sd))^2 - r^2 / N)`.

    Args:
        half_width: Half the width of the interval, h, above 0.
        judged: The number of judged submissions, N.
        rate: The expected rate, in [0, 1], for a pass rate.
        sd: The expected standard deviation of the scores, in place of `rate`.
        correlation: The expected correlation r of the judge with people, in [0, 1].
        level: The level of the interval.

    Returns:
        The number; None if even a label for every submission would not be enough.

    Raises:
        ValueError: An argument is out of range, or not exactly one of `rate` and `sd` is set.

    Example:
        >>> [plan_labels(0.05, judged=1000, rate=0.8, correlation=r) for r in (0, 0.5, 0.7, 0.9)]
        [246, 197, 143, 59]
    """
    if (rate is None) == (sd is None):
        raise ValueError("set exactly one of `rate` and `sd`")
    for name, value, least, most in (("half_width", half_width, 0, math.inf), ("correlation", correlation, -1, 1)):
        if not least <= value <= most or (name == "half_width" and value == 0):
            raise ValueError(f"`{name}` is out of range, got {value!r}")
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError(f"`rate` must be in [0, 1], got {rate!r}")
    spread = math.sqrt(rate * (1 - rate)) if rate is not None else float(sd or 0.0)
    if spread == 0:
        return min(FEWEST_LABELS, judged)
    # What the judge explains beyond chance; one that contradicts people explains nothing.
    explained = max(0.0, correlation) ** 2
    precision = (half_width / (normal_quantile(level) * spread)) ** 2
    rest = precision - explained / judged
    if rest <= 0:
        return None
    needed = math.ceil((1 - explained) / rest)
    return None if needed > judged else max(min(FEWEST_LABELS, judged), needed)
