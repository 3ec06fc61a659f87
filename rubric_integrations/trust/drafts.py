"""A drafted rubric with the evidence for each criterion, and its text as YAML with comments.

The criteria of a base come first and are not changed. If the base is a file, its text is kept, and the new criteria are
appended to it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import counted
from rubric_integrations.formats.comments import CommentedEntry, append_criteria, rubric_with, write_commented
from rubric_integrations.formats.parsing import SYNTAX, read_content
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.library.catalogue import PREFIX
from rubric_integrations.rubric.case import Case
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import NO_SPEND, Spend
from rubric_integrations.trust.draft_sources import DraftPart
from rubric_integrations.trust.proposals import CandidateCriterion
from rubric_integrations.trust.separation import FEWEST_GROUPS, CandidateTest, PairCounts, Separation

_DRAFT_NAME = "draft"


class DraftedCriterion(Record):
    """A criterion that is kept, with the evidence for it.

    Attributes:
        candidate: The criterion as proposed, with its quote and its source.
        test: Its test on the part for pruning. None for a draft from an example.
        report: How it orders the pairs of the part for the report. None for a draft from an example.
    """

    candidate: CandidateCriterion
    test: CandidateTest | None = None
    report: PairCounts | None = None

    @property
    def comments(self) -> list[str]:
        """The lines about the origin of the criterion and its tests, for a comment in the file of the rubric."""
        candidate = self.candidate
        lines = [f"From the {candidate.role} of {candidate.source}: {candidate.quote!r}."]
        if self.test is not None:
            doubt = "" if self.test.is_tested else f"; below {FEWEST_GROUPS} groups, no verdict"
            lines.append(f"On other pairs (prune): {self.test.counts}{doubt}.")
        return lines if self.report is None else [*lines, f"On the report part: {self.report}."]


class DroppedCriterion(Record):
    """A proposed criterion that is not kept.

    Attributes:
        requirement: The proposed requirement.
        quote: The quote of the proposal.
        reason: Why it is not kept.
        test: Its test on the part for pruning. None if no judge has read it.
    """

    requirement: str
    quote: str
    reason: str
    test: CandidateTest | None = None


class RubricDraft(Record):
    """A drafted rubric with the evidence for it. Read and edit it: nothing here shows that it is complete.

    Attributes:
        rubric: The criteria of `base`, unchanged, followed by the criteria that are kept, with test cases for these.
            None if there is no criterion at all.
        criteria: The criteria that are kept.
        dropped: The proposals that are not kept, with the reasons.
        separation: The figures of the rubric, from pairs that were used neither to propose nor to prune. None for a
            draft from an example, and if no criterion is kept.
        parts: The number of pairs or labelled answers of each part.
        cases: Test cases for the new criteria. Their expected verdicts are the judge's: check them.
        lint: The lint warnings about the new criteria.
        warnings: Warnings about failures, one sentence each.
        spend: The calls, tokens and cost, without stored judgments and replies.
        text: The rubric as YAML with comments. If `base` is a file, this is its unchanged text with the new criteria.
    """

    rubric: Rubric | None
    criteria: tuple[DraftedCriterion, ...]
    dropped: tuple[DroppedCriterion, ...]
    separation: Separation | None
    parts: dict[DraftPart, int]
    cases: tuple[Case, ...] = ()
    lint: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    spend: Spend = NO_SPEND
    text: str = ""

    @property
    def headline(self) -> str:
        """One sentence with the result on the part for the report, or why there is none."""
        if not self.criteria:
            reason = (
                f"{counted(len(self.dropped), 'proposal')} dropped" if self.dropped else "the model proposed no new one"
            )
            return f"No criterion is kept: {reason}."
        if self.separation is None:
            return f"{counted(len(self.criteria), 'criterion', 'criteria')} from examples: nothing is measured."
        return self.separation.headline

    def to_yaml(self) -> str:
        """Return the rubric as YAML, with a comment on the origin of each new criterion.

        Raises:
            ValueError: There is no rubric.
        """
        if self.rubric is None:
            raise ValueError(f"there is no rubric to write: {self.headline}")
        return self.text

    def cases_yaml(self) -> str:
        """Return the test cases as YAML, for a file next to a rubric whose text is not changed."""
        return write_commented(
            {"cases": [case.model_dump(mode="json", exclude_unset=True) for case in self.cases]},
            ["The expected verdicts are the judge's, and no person has checked them."],
        )

    def summary(self) -> str:
        """Return text with the kept and the dropped criteria, and the headline."""
        kept = [f"kept: {_described(each)}" for each in self.criteria]
        dropped = [f"dropped: {each.requirement} ({each.reason})" for each in self.dropped]
        return "\n".join([*kept, *dropped, *self.lint, *self.warnings, self.headline])

    def _repr_html_(self) -> str:
        rows = [
            (each.candidate.name, each.candidate.requirement, each.candidate.quote, "" if each.test is None
             else str(each.test.counts)) for each in self.criteria
        ]  # fmt: skip
        return html_table(self.headline, ["criterion", "requirement", "quote", "pairs for pruning"], rows)


def _described(criterion: DraftedCriterion) -> str:
    counts = "" if criterion.test is None else f" ({criterion.test.counts})"
    return f"{criterion.candidate.name}: {criterion.candidate.requirement}{counts}"


class BaseRubric(NamedTuple):
    """The rubric whose criteria come first, with the text of its file."""

    rubric: Rubric | None
    text: str | None
    source: str

    @classmethod
    def read(cls, base: RubricLike | None) -> BaseRubric:
        """Read the rubric. Check that criteria can be appended to the text of its file, before anything is paid for."""
        if base is None:
            return cls(None, None, "")
        rubric = as_rubric(base)
        if not isinstance(base, str | PathLike) or SYNTAX.get(Path(base).suffix.lower()) == "markdown":
            return cls(rubric, None, "base")
        text = read_content(base)  # an error if it is not a rubric's text
        if not str(base).startswith(PREFIX):
            text = Path(base).read_bytes().decode()  # with a byte order mark, and with its own line breaks
        probe = {"requirement": "Is a trial", **BaseRubric(rubric, None, "").weight("requirement")}
        append_criteria(text, [CommentedEntry(probe)], str(base))
        return cls(rubric, text, str(base))

    def weight(self, kind: str) -> dict[str, Any]:
        """Return the weight of a new criterion: the same for all, and the median of the weights of the base."""
        sign = -1.0 if kind == "penalty" else 1.0
        if self.rubric is None:
            return {"weight": sign}
        if any(criterion.has_derived_weight for criterion in self.rubric.criteria):
            return {"importance": "pitfall" if kind == "penalty" else "important"}
        nodes = self.rubric.tree or self.rubric.criteria
        weights = [abs(node.weight) for node in nodes if node.weight]
        return {"weight": sign * (statistics.median(weights) if weights else 1.0)}

    def entry(self, candidate: CandidateCriterion, comments: Sequence[str] = ()) -> CommentedEntry:
        """Return a candidate as an entry of a rubric file."""
        weight = self.weight(candidate.kind)
        return CommentedEntry({"name": candidate.name, **weight, "requirement": candidate.requirement}, comments)

    def with_criteria(self, candidates: Sequence[CandidateCriterion]) -> Rubric:
        """Return the base, or an empty rubric, with further criteria."""
        entries = [self.entry(candidate).data for candidate in candidates]
        if self.rubric is None:
            return Rubric.from_dict({"name": _DRAFT_NAME, "criteria": entries})
        return rubric_with(self.rubric.without_cases(), entries)

    def text_with(self, rubric: Rubric, criteria: Sequence[DraftedCriterion], header: Sequence[str]) -> str:
        """Return a drafted rubric as YAML with comments, or the unchanged text of the base with the new criteria.

        Args:
            rubric: The drafted rubric.
            criteria: The new criteria, which are the last ones of the rubric.
            header: Comments about the draft, one line each.
        """
        comments = [each.comments for each in criteria]
        if self.text is None:
            return write_commented(rubric.to_dict(), header, comments)
        if not criteria:
            return self.text
        notes = [[*header, *comments[0]], *comments[1:]]
        entries = [self.entry(each.candidate, note) for each, note in zip(criteria, notes, strict=True)]
        return append_criteria(self.text, entries, self.source)
