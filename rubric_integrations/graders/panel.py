"""The panel of a grader: its judges, their names in reports, and the weights of their votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from rubric_integrations.graders.scheduler import CallLimiter, is_limited, limit_judge
from rubric_integrations.judges.composite import CompositeJudge
from rubric_integrations.judges.protocol import AlignmentRecord, Judge, fingerprint_of, innermost, refusal_of
from rubric_integrations.judges.store import JudgmentStore, StoredJudge
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric


class PanelMember(NamedTuple):
    """A judge on a panel.

    Attributes:
        judge: The judge.
        name: The name of the judge in reports, unique on the panel.
        weight: The weight of the judge's votes.
        model: The name of the judge's model, or of its class if it has no model. Unique on the panel.
    """

    judge: Judge
    name: str
    weight: float
    model: str

    def may_answer(self, criterion: Criterion) -> bool:
        """Return whether the judge may answer a criterion: the criterion names this judge or, as a condition, none."""
        return criterion.judge in (None, self.name)

    def with_judge(self, judge: Judge, limiter: CallLimiter) -> PanelMember:
        """Return this member with another judge. `limiter` limits the calls of the judge if nothing limits them yet."""
        return self._replace(judge=judge if is_limited(judge) else limit_judge(judge, limiter))


def make_panel(
    judges: Sequence[Judge], weights: Sequence[float] | None, limiter: CallLimiter
) -> tuple[PanelMember, ...]:
    """Make a panel of judges. The answers of each judge are validated, and its calls are limited.

    The name of a judge in the panel is:

    - `default` for a single judge
    - otherwise the `name` of the judge, the name of its model, or the name of its class
    - for a cascade, the names of its judges
    - for an aligned judge, a name such as `openai/gpt-5-mini (aligned)`

    A second judge with the same name gets the suffix `#2`.

    Raises:
        ValueError: The number of weights differs from the number of judges.
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
    """Wrap judges: each judgment is looked up in a store before the judge is asked. In a cascade, wrap each member.

    Raises:
        TypeError: A judge has no `fingerprint`.
    """
    duplicates = Counter[str]()

    def stored(judge: Judge) -> Judge:
        if isinstance(judge, CompositeJudge):
            return judge.with_members(stored)
        fingerprint = fingerprint_of(judge) or ""
        duplicates[fingerprint] += 1
        # Two equal judges on one panel give two independent answers, not one that counts twice.
        return StoredJudge(judge, store, sample, duplicate=duplicates[fingerprint] - 1)

    return [stored(judge) for judge in judges]


def describe_judge(judge: Judge) -> str | dict[str, Any]:
    """Return the fingerprint of a judge. For a cascade, return its description as JSON.

    The result is an empty text if a judge has no fingerprint.
    """
    if isinstance(judge, CompositeJudge):
        return judge.describe() or ""
    return fingerprint_of(judge) or ""


def require_judges(rubric: Rubric, panel: Sequence[PanelMember]) -> None:
    """Check that a panel has every judge that the criteria of a rubric name, and that the judges can answer them.

    Raises:
        ValueError: A criterion names a judge that is not on the panel, or a judge refuses a criterion.
    """
    names = [member.name for member in panel]
    choosy = [member for member in panel if hasattr(innermost(member.judge), "refusal")]
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        if criterion.judge is not None and criterion.judge not in names:
            others = ", ".join(map(repr, names))
            raise ValueError(
                f"`{key}` has the `judge` {criterion.judge!r}, which is not among the grader's judges ({others}): name "
                "one of them, where `default` is the judge of a grader with only one, or remove `judge`. Otherwise "
                "another judge would answer in its place"
            )
        for member in choosy:
            is_asked = criterion.check is None and criterion.judge in (None, member.name)
            if is_asked and (problem := refusal_of(member.judge, criterion)):
                raise ValueError(f"`{key}` {problem} (the judge {member.name!r} cannot answer it)")


def _name_of(judge: Judge) -> str:
    if isinstance(judge, CompositeJudge):
        return " then ".join(_name_of(innermost(member)) for member in judge.answering_members)
    lm = getattr(judge, "lm", None)
    # Judges without a model may have a `name` of another meaning.
    own = getattr(judge, "name", None) if lm is not None else None
    name = str(own or getattr(lm, "model", None) or getattr(judge, "model_name", type(judge).__name__))
    alignment = getattr(judge, "alignment", None)
    return f"{name} (aligned)" if isinstance(alignment, AlignmentRecord) and alignment.kept else name


def _unique_names(judges: Sequence[Judge]) -> list[str]:
    names = list(map(_name_of, judges))
    earlier = [names[:index].count(name) for index, name in enumerate(names)]
    return [f"{name}#{count + 1}" if count else name for name, count in zip(names, earlier, strict=True)]
