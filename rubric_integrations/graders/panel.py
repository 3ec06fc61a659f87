"""The panel of a grader: its judges, their names in reports, and the weights of their votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from rubric_integrations.graders.scheduler import CallLimiter, is_limited, limit_judge
from rubric_integrations.judges.cascade import Cascade
from rubric_integrations.judges.protocol import AlignmentRecord, Judge, fingerprint_of, innermost
from rubric_integrations.judges.store import JudgmentStore, StoredJudge
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
        return index >= len(rubric.criteria) or rubric.criteria[index].judge in (None, self.name)

    def with_judge(self, judge: Judge, limiter: CallLimiter) -> PanelMember:
        """Replace the judge, under the same name and weight; one without limits is limited by `limiter`."""
        return self._replace(judge=judge if is_limited(judge) else limit_judge(judge, limiter))


def make_panel(
    judges: Sequence[Judge], weights: Sequence[float] | None, limiter: CallLimiter
) -> tuple[PanelMember, ...]:
    """Make a panel of judges, each of which is validated and limited from now on.

    A judge is called by its `name`, its model's name or its class, a cascade by the names of its judges, and an aligned
    judge `openai/gpt-5-mini (aligned)`; a second one of the same name gets `#2`. A single judge is called `default`.

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


def stored_judges(judges: Sequence[Judge], store: JudgmentStore, sample: int) -> list[Judge]:
    """Make judges that look up every judgment in a store; of a cascade, each of its judges does.

    Raises:
        TypeError: A judge has no `fingerprint`.
    """
    duplicates = Counter[str]()

    def stored(judge: Judge) -> Judge:
        if isinstance(judge, Cascade):
            return judge.with_members(stored)
        fingerprint = fingerprint_of(judge) or ""
        duplicates[fingerprint] += 1
        # Two equal judges on one panel give two independent answers, not one that counts twice.
        return StoredJudge(judge, store, sample, duplicate=duplicates[fingerprint] - 1)

    return [stored(judge) for judge in judges]


def describe_judge(judge: Judge) -> str | dict[str, Any]:
    """Return what a judge's answers depend on, as JSON; an empty text if it has no fingerprint."""
    if isinstance(judge, Cascade):
        return judge.describe() or ""
    return fingerprint_of(judge) or ""


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


def _name_of(judge: Judge) -> str:
    if isinstance(judge, Cascade):
        return " then ".join(_name_of(innermost(member)) for member in judge.members)
    lm = getattr(judge, "lm", None)
    # Judges without a model may have a `name` of another meaning.
    own = getattr(judge, "name", None) if lm is not None else None
    name = str(own or getattr(lm, "model", type(judge).__name__))
    alignment = getattr(judge, "alignment", None)
    return f"{name} (aligned)" if isinstance(alignment, AlignmentRecord) and alignment.kept else name


def _unique_names(judges: Sequence[Judge]) -> list[str]:
    names = list(map(_name_of, judges))
    earlier = [names[:index].count(name) for index, name in enumerate(names)]
    return [f"{name}#{count + 1}" if count else name for name, count in zip(names, earlier, strict=True)]
