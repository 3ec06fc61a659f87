"""The rubric: weighted criteria with a pass mark, and methods to read, write, score and grade it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, ValidationError, model_validator

from rubric_integrations._util.notebook import html_table
from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.rubric.check import HybridMetric
from rubric_integrations.rubric.criterion import Criterion, Scale
from rubric_integrations.rubric.errors import RubricError, require_grader
from rubric_integrations.rubric.importance import Importance, ImportanceWeights
from rubric_integrations.rubric.rules import CheckedCriteria, check_hybrid_metrics, check_tree, criterion_keys
from rubric_integrations.rubric.tree import Node

if TYPE_CHECKING:
    from rubric_integrations.graders.base import Grader
    from rubric_integrations.results.report import EvaluationReport
    from rubric_integrations.scoring.formula import CannotAssess
    from rubric_integrations.submission.inputs import ToGradeInput

Blend = Literal["weighted_average", "multiplicative", "max", "min"]
"""How the values of hybrid metrics and the judge's score are combined."""


class Rubric(Record):
    """Weighted criteria with a pass mark.

    A field that is not set has its default, is not written by `to_dict`, and does not override in `shared + own`.

    Args:
        criteria: 1 to 1,000 criteria (in a tree: up to 10,000 leaves); reports list them in the same order.
        name: The name of the rubric in reports.
        description: A note for people; judges do not see it.
        guidelines: Instructions for the judge that hold for every criterion.
        pass_mark: The smallest score in [0, 1] that passes. Default 0.8.
        version: The version of the rubric, for people.
        domain: The subject area, shown to the judge, such as `creative_writing`.
        scale: A scale on which reports state the score too.
        hybrid_metrics: Automatic metrics that are blended with the judge's score; their weights sum to at most 1.
        blend: How they are blended: `weighted_average` (the default), `multiplicative`, `max` or `min`.
        metadata: Further data of the file; it has no effect.
        importance_weights: Weights by `importance` that replace the usual ones (see `Criterion`), for some or all.
        tree: The nesting of the criteria, as the readers make it from a file with nested criteria.

    Raises:
        RubricError: (a ValueError) The rubric cannot be scored as its author intends; one line for each fault.

    Example:
        >>> rubric = Rubric([Criterion(requirement="Is polite", weight=2), {"requirement": "Insults", "weight": -4}])
        >>> rubric.compute_score(["MET", "UNMET"])
        1.0
    """

    name: str | None = None
    description: str | None = None
    guidelines: str | None = None
    pass_mark: UnitScore = 0.8
    version: str | None = None
    domain: str | None = None
    scale: Scale | None = None
    hybrid_metrics: Annotated[tuple[HybridMetric, ...], AfterValidator(check_hybrid_metrics)] = ()
    blend: Blend = "weighted_average"
    metadata: dict[str, Any] | None = None
    importance_weights: ImportanceWeights | None = None
    tree: tuple[Node, ...] | None = None
    # The last field, because the weights of the criteria may depend on others.
    criteria: CheckedCriteria

    def __init__(
        self,
        criteria: Iterable[Criterion | Mapping[str, Any]],
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        guidelines: str | None = None,
        pass_mark: float | None = None,
        version: str | None = None,
        domain: str | None = None,
        scale: Scale | None = None,
        hybrid_metrics: Sequence[HybridMetric] | None = None,
        blend: Blend | None = None,
        metadata: dict[str, Any] | None = None,
        importance_weights: dict[Importance, float] | None = None,
        tree: Sequence[Node] | None = None,
    ):
        fields = {
            "criteria": tuple(criteria),
            "name": name,
            "description": description,
            "guidelines": guidelines,
            "pass_mark": pass_mark,
            "version": version,
            "domain": domain,
            "scale": scale,
            "hybrid_metrics": hybrid_metrics,
            "blend": blend,
            "metadata": metadata,
            "importance_weights": importance_weights,
            "tree": tree,
        }
        try:
            # None means "not set": pydantic records the fields that it receives in `model_fields_set`.
            super().__init__(**{field: value for field, value in fields.items() if value is not None})
        except ValidationError as error:
            raise _rubric_error(error) from None

    # As in pydantic's RootModel. Without it, `model_validate` would pass the fields of a file through `__init__`, where
    # None means "not set", and would accept `pass_mark: null`.
    __init__.__pydantic_base_init__ = True  # pyright: ignore[reportFunctionMemberAccess]

    @model_validator(mode="after")
    def _has_one_list_or_a_complete_tree(self) -> Self:
        check_tree(self.tree, self.criteria)
        return self

    @property
    def instructions(self) -> str:
        """The text that every judge receives beside the criteria: the guidelines and the domain."""
        domain = f"The domain is {self.domain.replace('_', ' ')}." if self.domain else ""
        return "\n\n".join(text for text in (self.guidelines, domain) if text)

    def __len__(self) -> int:
        return len(self.criteria)

    def __add__(self, other: Rubric) -> Rubric:
        """Join two rubrics, such as a shared one and a case's own: the fields that the right one sets override."""
        if self.tree is not None or other.tree is not None:
            raise ValueError("a rubric with a tree cannot be added to another: put one below a node of the other")
        fields = {
            field: getattr(rubric, field)
            for rubric in (self, other)
            for field in rubric.model_fields_set - {"criteria", "guidelines"}
        }
        fields["guidelines"] = "\n\n".join(text for text in (self.guidelines, other.guidelines) if text) or None
        try:
            return Rubric.model_validate({"criteria": self.criteria + other.criteria, **fields})
        except ValidationError as error:
            raise _rubric_error(error) from None

    def _repr_html_(self) -> str:
        rows = [
            (key, c.weight, c.kind, "required" if c.is_gate else "", c.requirement)
            for key, c in zip(self.keys, self.criteria, strict=True)
        ]
        title = f"{self.name or 'Rubric'}: {len(self)} criteria, passes from {self.pass_mark:g}"
        return html_table(title, ["criterion", "weight", "kind", "gate", "requirement"], rows)

    @property
    def keys(self) -> tuple[str, ...]:
        """A unique name for each criterion: its own name, or `c1`, `c2`, ... after its position."""
        return criterion_keys(self.criteria)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the criteria, in the order in which they first occur."""
        return tuple(dict.fromkeys(tag for criterion in self.criteria for tag in criterion.tags))

    @property
    def positive_weight(self) -> float:
        """The sum of the positive weights; P in the scoring formula."""
        return math.fsum(c.full_weight for c in self.criteria if c.weight > 0)

    @property
    def negative_weight(self) -> float:
        """The sum of the absolute values of the negative weights; N in the scoring formula."""
        return math.fsum(-c.full_weight for c in self.criteria if c.weight < 0)

    @classmethod
    def from_dict(cls, data: Sequence[Any] | Mapping[str, Any]) -> Rubric:
        """Read a rubric from lists and dictionaries, in any known format.

        The native shapes are: a list of criteria; a list of sections `{"criteria": [...]}`; `{"sections": [...]}`;
        `{"rubric": [...]}`; `{"criteria": [...], "guidelines": ..., ...}`.

        Raises `RubricError` with one line for each fault: its place, its field and the remedy.

        Example:
            >>> Rubric.from_dict([{"weight": 10.0, "requirement": "Is polite"}]).keys
            ('c1',)
        """
        from rubric_integrations.formats import read_document

        return read_document(data, source="rubric")

    @classmethod
    def from_json(cls, text: str) -> Rubric:
        """Read a rubric from JSON text. Raises `RubricError`."""
        from rubric_integrations.formats.documents import read_text

        return read_text(text, "json", source="rubric")

    @classmethod
    def from_yaml(cls, text: str) -> Rubric:
        """Read a rubric from YAML text (the safe subset, without tags that name code). Raises `RubricError`."""
        from rubric_integrations.formats.documents import read_text

        return read_text(text, "yaml", source="rubric")

    @classmethod
    def from_file(cls, source: str | PathLike[str] | IO[str] | IO[bytes]) -> Rubric:
        """Read a rubric from a path or an open file, YAML or JSON by its extension or content. Raises `RubricError`."""
        from rubric_integrations.formats.documents import read_file

        return read_file(source)

    def to_dict(self) -> dict[str, Any]:
        """Return this rubric as plain data, from which `from_dict` reads an equal rubric."""
        from rubric_integrations.formats import write_document

        return write_document(self)[0]

    def to_json(self) -> str:
        """Return this rubric as JSON text, from which `from_json` reads an equal rubric."""
        from rubric_integrations.formats.documents import write_text

        return write_text(self, "json")

    def to_yaml(self) -> str:
        """Return this rubric as YAML text, from which `from_yaml` reads an equal rubric."""
        from rubric_integrations.formats.documents import write_text

        return write_text(self, "yaml")

    def compute_score(
        self,
        verdicts: Sequence[str | float],
        normalize: bool = True,
        cannot_assess: CannotAssess = "skip",
        partial_credit: float = 0.5,
    ) -> float | None:
        """Score known verdicts, such as human labels, with the formula that every grader uses.

        Args:
            verdicts: One answer for each criterion, in order: `MET` or `UNMET`, an option's label, or a number on the
                scale; `CANNOT_ASSESS` for any criterion.
            normalize: Whether to return a score in [0, 1]; otherwise the raw weighted sum.
            cannot_assess: How an abstention counts: `skip`, `zero`, `partial` or `fail`.
            partial_credit: The share of a positive weight that an abstention earns under `partial`, in [0, 1].

        Returns:
            The score, or None if nothing that the score divides by was assessed.

        Raises:
            ValueError: The number of verdicts is not the number of criteria, or a verdict is unknown.
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
            grader: The grader, which holds the judge. There is no default.
            query: The task that the text answers.
            reference: An exemplary answer, to calibrate the judge.
            autograder: Another name for `grader`, for code that was written for the `rubric` package.

        Raises:
            JudgeError: A criterion could not be judged and the grader's `on_failure` is `"raise"`.
            ValueError: There is nothing to grade, or no grader.
        """
        return await require_grader(grader or autograder).grade(self, to_grade, query=query, reference=reference)

    def grade_sync(
        self,
        to_grade: ToGradeInput,
        grader: Grader | None = None,
        query: str | None = None,
        reference: str | None = None,
        *,
        autograder: Grader | None = None,
    ) -> EvaluationReport:
        """Grade one text like `grade`, without `await`; it also works in notebooks and threads with an event loop."""
        return require_grader(grader or autograder).grade_sync(self, to_grade, query=query, reference=reference)


def _rubric_error(error: ValidationError) -> RubricError:
    from rubric_integrations.formats.faults import faults_from_error

    return RubricError("Rubric", faults_from_error("", Rubric, error))
