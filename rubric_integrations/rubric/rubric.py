"""What is asked: the criteria, and how they are read, written, scored and graded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from pydantic import field_validator, model_validator

from rubric_integrations._util.notebook import html_table
from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.rubric.check import HybridMetric
from rubric_integrations.rubric.criterion import Criterion, Scale
from rubric_integrations.rubric.tree import Node

if TYPE_CHECKING:
    from rubric_integrations.graders.base import Grader
    from rubric_integrations.results.report import EvaluationReport
    from rubric_integrations.scoring.formula import CannotAssess
    from rubric_integrations.submission.submission import ToGradeInput

MAX_CRITERIA = 1_000
# A tree's leaves: each list in it is still a list of at most MAX_CRITERIA.
MAX_LEAVES = 10_000
DEFAULT_PASS_MARK = 0.8

Blend = Literal["weighted_average", "multiplicative", "max", "min"]
"""How hybrid metrics and the judge's score become one."""


class Rubric(Record):
    """Weighted criteria, and the mark that passes.

    Attributes:
        criteria: One to 1,000 criteria (of a tree: its leaves); their order is the order of every report.
        name: What to call the rubric in reports.
        description: A note for people; no judge sees it.
        guidelines: What a judge should know for every criterion.
        pass_mark: The least score in [0, 1] that passes. Default 0.8.
        version: The file's own version.
        domain: What the rubric is about; told to the judge.
        scale: The scale on which reports also give the score.
        hybrid_metrics: Automatic metrics that are blended with the judge's score; weights at most 1 in all.
        blend: How: `weighted_average`, `multiplicative`, `max` or `min`.
        metadata: What else the file says about itself; without effect.
        tree: How the criteria are grouped, where the file nests them.

    Raises:
        pydantic.ValidationError: (a ValueError) for a rubric that could not be scored as its author meant;
            the readers (`from_file` and its siblings) raise `RubricError`, one line a fault.

    Example:
        >>> rubric = Rubric([Criterion(requirement="Is polite", weight=2), {"requirement": "Insults", "weight": -4}])
        >>> rubric.compute_score(["MET", "UNMET"])
        1.0
    """

    name: str | None = None
    description: str | None = None
    guidelines: str | None = None
    pass_mark: UnitScore = DEFAULT_PASS_MARK
    version: str | None = None
    domain: str | None = None
    scale: Scale | None = None
    hybrid_metrics: tuple[HybridMetric, ...] = ()
    blend: Blend = "weighted_average"
    metadata: dict[str, Any] | None = None
    tree: tuple[Node, ...] | None = None
    criteria: tuple[Criterion, ...]

    def __init__(self, criteria: Iterable[Criterion | Mapping[str, Any]] = (), /, **fields: Any):
        super().__init__(**{"criteria": tuple(criteria), **fields})

    @field_validator("criteria")
    @classmethod
    def _scorable(cls, criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
        if not criteria:
            raise ValueError("has no criteria: give at least one")
        if len(criteria) > MAX_LEAVES:
            raise ValueError(f"has {len(criteria)} criteria, more than {MAX_LEAVES}: split the rubric")
        if all(criterion.weight == 0 for criterion in criteria):
            raise ValueError("has only zero weights, so that no answer could change its score: give one a weight")
        first: dict[str, int] = {}
        for index, criterion in enumerate(criteria):
            if criterion.name is not None and first.setdefault(criterion.name, index) != index:
                earlier = first[criterion.name]
                raise ValueError(f"[{index}] repeats the `name` {criterion.name!r} of [{earlier}]: rename one of them")
        return criteria

    @field_validator("hybrid_metrics")
    @classmethod
    def _blendable(cls, metrics: tuple[HybridMetric, ...]) -> tuple[HybridMetric, ...]:
        total = math.fsum(metric.weight for metric in metrics)
        if total > 1 + 1e-6:
            raise ValueError(f"has weights that sum to {total:g}, more than 1: nothing would be left for the judge")
        names = [metric.name for metric in metrics]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"has the `name` {twice!r} twice: rename one of them")
        return metrics

    @model_validator(mode="after")
    def _one_list_or_a_whole_tree(self) -> Self:
        if self.tree is None:
            if len(self.criteria) > MAX_CRITERIA:
                raise ValueError(f"has {len(self.criteria)} criteria, more than {MAX_CRITERIA}: split the rubric")
        elif [leaf for node in self.tree for leaf in node.leaves] != list(range(len(self.criteria))):
            raise ValueError("has a `tree` whose leaves are not its criteria, in order")
        return self

    @property
    def instructions(self) -> str:
        """What every judge is told beside the criteria: the guidelines and the domain."""
        domain = f"The domain is {self.domain.replace('_', ' ')}." if self.domain else ""
        return "\n\n".join(text for text in (self.guidelines, domain) if text)

    def __len__(self) -> int:
        return len(self.criteria)

    def __add__(self, other: Rubric) -> Rubric:
        """Join a file-level rubric (left) and a case's own (right), whose fields win where it sets them."""
        if self.tree is not None or other.tree is not None:
            raise ValueError("a rubric with a tree cannot be added to another: put one below a node of the other")
        fields = {
            field: getattr(rubric, field)
            for rubric in (self, other)
            for field in rubric.model_fields_set - {"criteria", "guidelines"}
        }
        both = [text for text in (self.guidelines, other.guidelines) if text]
        return Rubric(self.criteria + other.criteria, guidelines="\n\n".join(both) or None, **fields)

    def _repr_html_(self) -> str:
        rows = [
            (key, c.weight, c.kind, "required" if c.is_gate else "", c.requirement)
            for key, c in zip(self.keys, self.criteria, strict=True)
        ]
        title = f"{self.name or 'Rubric'}: {len(self)} criteria, passes from {self.pass_mark:g}"
        return html_table(title, ["criterion", "weight", "kind", "gate", "requirement"], rows)

    @property
    def keys(self) -> tuple[str, ...]:
        """A unique name for every criterion: its own, or `c1`, `c2`, ... by its place."""
        taken = {criterion.name for criterion in self.criteria if criterion.name is not None}
        keys: list[str] = []
        for number, criterion in enumerate(self.criteria, start=1):
            key = criterion.name or f"c{number}"
            while criterion.name is None and key in taken:
                key += "_"
            keys.append(key)
        return tuple(keys)

    @property
    def positive_weight(self) -> float:
        """P, the sum of the positive weights."""
        return math.fsum(c.weight for c in self.criteria if c.weight > 0)

    @property
    def negative_weight(self) -> float:
        """N, the sum of the absolute values of the negative weights."""
        return math.fsum(-c.weight for c in self.criteria if c.weight < 0)

    # The doors upstairs: a rubric is data, and each of these only fetches the room that does the work.

    @classmethod
    def from_dict(cls, data: Sequence[Any] | Mapping[str, Any]) -> Rubric:
        """Read a rubric from lists and dictionaries, in any of the native shapes.

        The shapes: a list of criteria; a list of sections `{"criteria": [...]}`; `{"sections": [...]}`;
        `{"rubric": [...]}`; `{"criteria": [...], "guidelines": ..., ...}`.

        Raises:
            RubricError: One line a fault, with its place, its field and the remedy.

        Example:
            >>> Rubric.from_dict([{"weight": 10.0, "requirement": "Is polite"}]).keys
            ('c1',)
        """
        from rubric_integrations.formats import read_document

        return read_document(data, source="rubric")

    @classmethod
    def from_json(cls, text: str) -> Rubric:
        """Read a rubric from JSON text. Raises `RubricError`."""
        from rubric_integrations.formats import read_text

        return read_text(text, "json", source="rubric")

    @classmethod
    def from_yaml(cls, text: str) -> Rubric:
        """Read a rubric from YAML text (the safe subset: no tags that name code). Raises `RubricError`."""
        from rubric_integrations.formats import read_text

        return read_text(text, "yaml", source="rubric")

    @classmethod
    def from_file(cls, source: str | PathLike[str] | IO[str] | IO[bytes]) -> Rubric:
        """Read a rubric from a path or an open file; YAML or JSON by its ending, else by its content.

        Raises:
            RubricError: The file is not there, is not text, or is not a rubric.
        """
        from rubric_integrations.formats import read_file

        return read_file(source)

    def to_dict(self) -> dict[str, Any]:
        """This rubric as plain data; `from_dict` gives an equal rubric back."""
        from rubric_integrations.formats import write_document

        return write_document(self)[0]

    def to_json(self) -> str:
        """This rubric as JSON text; `from_json` gives an equal rubric back."""
        from rubric_integrations.formats import write_text

        return write_text(self, "json")

    def to_yaml(self) -> str:
        """This rubric as YAML text; `from_yaml` gives an equal rubric back."""
        from rubric_integrations.formats import write_text

        return write_text(self, "yaml")

    def compute_score(
        self,
        verdicts: Sequence[str | float],
        normalize: bool = True,
        cannot_assess: CannotAssess = "skip",
        partial_credit: float = 0.5,
    ) -> float | None:
        """Score known verdicts, such as human labels, with the same aggregator as every grader.

        Args:
            verdicts: One answer a criterion, in order: `MET` or `UNMET`, an option's label, a number on the scale;
                `CANNOT_ASSESS` for any.
            normalize: Whether to return a score in [0, 1]; if not, the raw weighted sum.
            cannot_assess: What an abstention counts: `skip`, `zero`, `partial` or `fail`.
            partial_credit: The share of a positive weight that `partial` gives, in [0, 1].

        Returns:
            The score, or None where nothing that the score divides by was assessed.

        Raises:
            ValueError: The number of verdicts is not the number of criteria, or one is unknown.
        """
        from rubric_integrations.scoring.formula import score_verdicts

        return score_verdicts(self, verdicts, normalize, cannot_assess, partial_credit)

    async def grade(
        self,
        to_grade: ToGradeInput,
        grader: Grader | None = None,
        query: str | None = None,
        reference: str | None = None,
        *,
        autograder: Grader | None = None,
    ) -> EvaluationReport:
        """Grade one text against this rubric.

        Args:
            to_grade: The text, or `{"thinking": ..., "output": ...}`, or a `Submission`.
            grader: Who grades, and how. There is no default.
            query: The task that the text answers.
            reference: An exemplary answer, to calibrate the judge.
            autograder: The name that `grader` has in the `rubric` package.

        Raises:
            JudgeError: A criterion could not be judged and the grader's `on_failure` is `"raise"`.
            ValueError: There is nothing to grade, or no grader.
        """
        return await _the_grader(grader, autograder).grade(self, to_grade, query=query, reference=reference)

    def grade_sync(
        self,
        to_grade: ToGradeInput,
        grader: Grader | None = None,
        query: str | None = None,
        reference: str | None = None,
        *,
        autograder: Grader | None = None,
    ) -> EvaluationReport:
        """`grade` for callers without an event loop, and for notebooks and threads that have one."""
        return _the_grader(grader, autograder).grade_sync(self, to_grade, query=query, reference=reference)


def _the_grader(grader: Grader | None, autograder: Grader | None) -> Grader:
    chosen = grader or autograder
    if chosen is None:
        raise ValueError(
            "`grader` is missing: pass one, such as PerCriterionGrader(judge='openai/gpt-5-mini'); "
            "with a default, your text would go to a model that you did not choose"
        )
    return chosen
