"""The panel of a grader: its judges, their names in reports, and the weights of their votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.judges.protocol import Judge
from rubric_integrations.judges.validation import ValidatedJudge


class PanelMember(NamedTuple):
    """A judge on a panel.

    Attributes:
        judge: The judge.
        name: Its name in reports, unique on the panel.
        weight: The weight of its votes.
    """

    judge: Judge
    name: str
    weight: float

    def with_judge(self, judge: Judge) -> PanelMember:
        """Replace the judge, under the same name and weight."""
        return self._replace(judge=judge)


def make_panel(judges: Sequence[Judge], weights: Sequence[float] | None) -> tuple[PanelMember, ...]:
    """Make a panel of judges, each of which is validated from now on.

    A judge is called by its model's name or its class; a second one of the same name gets `#2`. A single judge is
    called `default`.

    Raises:
        ValueError: The weights are not as many as the judges.
    """
    all_weights = [1.0] * len(judges) if weights is None else list(weights)
    if len(all_weights) != len(judges):
        raise ValueError(
            f"`voting.weights` has {len(all_weights)} entries for {len(judges)} judges: give one for each judge"
        )
    names = ["default"] if len(judges) == 1 else _unique_names(judges)
    return tuple(
        PanelMember(ValidatedJudge(judge), name, weight)
        for judge, name, weight in zip(judges, names, all_weights, strict=True)
    )


def _unique_names(judges: Sequence[Judge]) -> list[str]:
    names = [str(getattr(getattr(judge, "lm", None), "model", type(judge).__name__)) for judge in judges]
    earlier = [names[:index].count(name) for index, name in enumerate(names)]
    return [f"{name}#{count + 1}" if count else name for name, count in zip(names, earlier, strict=True)]
