"""The results of a comparison of two runs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rubric_integrations._util.notebook import html_table
from rubric_integrations._util.records import Record
from rubric_integrations.results.estimate import Estimate

Decision = Literal["better", "worse", "unclear"]

_SIGNIFICANT = 0.05


class CriterionChange(NamedTuple):
    """How one criterion changed between two runs.

    Attributes:
        difference: The second run's mean value minus the first run's; for a binary criterion of its MET rates. For a
            penalty, where MET is the error, above 0 is worse.
        p_value: Of this criterion alone; None if nothing changed.
        adjusted: The p-value after Holm's correction for all criteria.
        requirement: The criterion's requirement.
        weight: Its weight in the second run, negative for a penalty.
    """

    difference: Estimate
    p_value: float | None
    adjusted: float | None
    requirement: str
    weight: float

    @property
    def decision(self) -> Decision:
        """`better` or `worse` in the sense of the rubric if the adjusted p-value is below 0.05, else `unclear`."""
        if self.adjusted is None or self.adjusted >= _SIGNIFICANT or not self.difference.value:
            return "unclear"
        return "better" if (self.difference.value > 0) == (self.weight >= 0) else "worse"


class RunComparison(Record):
    """The second run compared with the first, on the inputs that both have scored and at which no judge failed.

    Attributes:
        score: The difference of the mean scores, second minus first.
        p_value: Of the paired t-test; None if all differences are equal.
        passed: The difference of the shares of passed rows; None if inputs have several samples.
        criteria: The change of each criterion with an answer in both runs on two rows at least, by its name; by its
            words if several criteria have one name.
        inputs: The number of inputs in both runs.
        detectable: The smallest true difference that so many inputs show in 80 % of cases; None if the differences
            have no spread.
        corrected: The difference after correction by labels of both runs; None without labels.
        decision: `better` if the difference is surely above 0, `worse` if surely below `-margin`, else `unclear`; with
            labels, by the corrected difference.
        is_not_worse: Whether the difference is surely above `-margin`.
        unmatched: How many rows only one run has.
        warnings: What limits the figures.
    """

    score: Estimate
    p_value: float | None
    passed: Estimate | None
    criteria: dict[str, CriterionChange]
    inputs: int
    detectable: float | None
    corrected: Estimate | None
    decision: Decision
    is_not_worse: bool
    unmatched: int
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return the figures as text."""
        lines = [f"{self.decision}: the mean score changed by {self.score}"]
        if self.corrected is not None:
            lines.append(f"corrected by labels: {self.corrected}")
        if self.detectable is not None:
            lines.append(f"{self.inputs:,} inputs show a difference of {self.detectable:.3f} in 80 % of cases")
        changed = {name: row for name, row in self.criteria.items() if row.decision != "unclear"}
        lines += [f"{name}: {row.difference}, p = {row.adjusted:.3g} (Holm)" for name, row in changed.items()]
        return "\n".join([*lines, *self.warnings])

    def _repr_html_(self) -> str:
        rows = [(name, str(row.difference), row.p_value, row.adjusted) for name, row in self.criteria.items()]
        return html_table(self.summary(), ["criterion", "difference", "p", "p (Holm)"], rows)
