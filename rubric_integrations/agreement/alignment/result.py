"""The result of an alignment."""

from __future__ import annotations

from dataclasses import dataclass

from rubric_integrations._util.notebook import html_table
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.results.usage import Spend


@dataclass(frozen=True)
class Alignment:
    """The result of an alignment.

    Attributes:
        judge: The aligned judge if it is kept, otherwise the judge as it was. Its `alignment` says how it came about;
            `judge.save("judge.json")` writes both.
        kept: Whether the test set proves a gain: the lower limit of `gain` is above 0.
        gain: The accuracy of the aligned judge on the test set less that of the judge before, with a one-sided lower
            limit in `low`, at the level of this attempt, and no upper limit. Undefined if the aligned judge was not
            better on the dev set: the test set was not looked at then.
        before: The accuracy of the judge before on the test set: the mean, over the submissions, of the share of
            questions that it answers as people do. An abstention is a wrong answer.
        after: The accuracy of the aligned judge.
        dev_before: The accuracy of the judge before on the dev set, without an interval.
        dev_after: The accuracy there of the aligned judge, which was chosen by it, so that it is too high.
        attempts: How many judges have been tried on this test set, this one included.
        spend: What the alignment cost: the calls of all candidates, of the model that proposes instructions, and of
            the measurements.
        shown: The smallest gain that so many labels show with a probability of 80 %.
        warnings: What limits the figures.
    """

    judge: LMJudge
    kept: bool
    gain: Estimate
    before: Estimate
    after: Estimate
    dev_before: float | None
    dev_after: float | None
    attempts: int
    spend: Spend
    shown: float
    warnings: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why the aligned judge is kept, or not."""
        if self.gain.value is None:
            return "not kept: not better on the dev set, so that the test set was not looked at"
        limit = "no lower limit" if self.gain.low is None else f"at least {self.gain.low:+.3f}"
        verdict = "kept" if self.kept else "not kept: the test set does not prove a gain"
        return f"{verdict}: {self.gain.value:+.3f}, {limit}, on {self.gain.n:,} submissions (attempt {self.attempts})"

    def summary(self) -> str:
        """Return the result as text, one figure a line."""
        return "\n".join([*(f"{name}: {value}" for name, value in self._rows()), *self.warnings])

    def _repr_html_(self) -> str:
        rows = [*self._rows(), *(("warning", warning) for warning in self.warnings)]
        return html_table("Alignment", ("figure", "value"), rows)

    def _rows(self) -> list[tuple[str, str]]:
        cost = "" if self.spend.cost is None else f", ${self.spend.cost:.4f}"
        return [
            ("result", self.reason),
            ("accuracy on the test set", f"{self.before} before, {self.after} after"),
            ("accuracy on the dev set", f"{shown_share(self.dev_before)} before, {shown_share(self.dev_after)} after"),
            ("smallest gain that is shown", f"{self.shown:.3f}"),
            ("spent", f"{self.spend.calls:,} calls{cost}"),
        ]


def shown_share(share: float | None) -> str:
    """Return a share as text."""
    return "undefined" if share is None else f"{share:.3f}"
