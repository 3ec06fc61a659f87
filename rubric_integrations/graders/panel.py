"""The panel of a grader: its judges, their names in reports, and the weights of their votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.graders.limited_judge import is_limited, limit_judge
from rubric_integrations.graders.limits import CallLimiter
from rubric_integrations.judges.protocol import Judge
from rubric_integrations.rubric.rubric import Rubric


class PanelMember(NamedTuple):
    """A judge on a panel.

    Attributes:
        judge: The judge.
        name: Its name in reports, unique on the panel.
        weight: The weight of its votes.
        model: The name of its model, or its class; unique on the panel.
    """

    judge: Judge
    name: str
    weight: float
    model: str

    def may_answer(self, rubric: Rubric, index: int) -> bool:
        """Whether the judge may answer a question of a rubric: any condition, and criteria that name no other judge."""
        return index >= len(rubric) or rubric.criteria[index].judge in (None, self.name)

    def with_judge(self, judge: Judge, limiter: CallLimiter) -> PanelMember:
        """Replace the judge, under the same name and weight; one without limits is limited by `limiter`."""
        return self._replace(judge=judge if is_limited(judge) else limit_judge(judge, limiter))


def make_panel(
    judges: Sequence[Judge], weights: Sequence[float] | None, limiter: CallLimiter
) -> tuple[PanelMember, ...]:
    """Make a panel of judges, each of which is validated and limited from now on.

    A judge is called by its `name`, its model's name or its class; a second one of the same name gets `#2`. A single
    judge is called `default`.

    Raises:
        ValueError: The weights are not as many as the judges.
    """
    all_weights = [1.0] * len(judges) if weights is None else list(weights)
    if len(all_weights) != len(judges):
        raise ValueError(
            f"`voting.weights` has {len(all_weights)} entries for {len(judges)} judges: give one for each judge"
        )
    models = _unique_names(judges)
    names = ["default"] if len(judges) == 1 else models
    return tuple(
        PanelMember(limit_judge(judge, limiter), name, weight, model)
        for judge, name, weight, model in zip(judges, names, all_weights, models, strict=True)
    )


def require_judges(rubric: Rubric, panel: Sequence[PanelMember]) -> None:
    """Check that every judge that a criterion of a rubric names is on a panel.

    Raises:
        ValueError: One is not.
    """
    names = [member.name for member in panel]
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        if criterion.judge is not None and criterion.judge not in names:
            others = ", ".join(map(repr, names))
            raise ValueError(
                f"`{key}` has the `judge` {criterion.judge!r}, which is not among the grader's judges ({others}): name "
                "one of them, where `default` is the judge of a grader with only one, or remove `judge`. Otherwise "
                "another judge would answer in its place"
            )


def _unique_names(judges: Sequence[Judge]) -> list[str]:
    names = [_name_of(judge) for judge in judges]
    earlier = [names[:index].count(name) for index, name in enumerate(names)]
    return [f"{name}#{count + 1}" if count else name for name, count in zip(names, earlier, strict=True)]


def _name_of(judge: Judge) -> str:
    lm = getattr(judge, "lm", None)
    # Judges without a model may have a `name` of another meaning.
    own = getattr(judge, "name", None) if lm is not None else None
    return str(own or getattr(lm, "model", type(judge).__name__))
