"""Finds the criterion and the submission that a label is about, in a rubric or in a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rubric_integrations.agreement.label_lines import LabelsError
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.submission.submission import Submission


class CriteriaOfLabels(Protocol):
    """Finds the criteria that labels name."""

    def find_criterion(self, name: str, requirement: str | None, row_id: str | None) -> Criterion:
        """Return the criterion of a name.

        Args:
            name: The criterion's name in the rubric.
            requirement: Its words when it was labelled; None if the label does not have them.
            row_id: The id of the row; None if the label does not have it.

        Raises:
            LabelsError: There is no such criterion, or it has other words.
        """
        ...


class RubricCriteria:
    """The criteria of a rubric."""

    def __init__(self, rubric: Rubric):
        words = [criterion.requirement for criterion in rubric.criteria]
        # Where words occur twice, only the name tells which judgment a label is about.
        self._criteria = {
            key: criterion if words.count(criterion.requirement) == 1 else criterion.model_copy(update={"name": key})
            for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)
        }

    def find_criterion(self, name: str, requirement: str | None, row_id: str | None) -> Criterion:
        """Return the criterion of a name in the rubric."""
        criterion = self._criteria.get(name)
        if criterion is None:
            raise LabelsError(f"the rubric has no criterion {name!r}; it has {list(self._criteria)[:20]!r}")
        if requirement not in (None, criterion.requirement, criterion.full_requirement):
            raise _other_words(name, requirement, criterion.requirement, "rubric")
        return criterion


class LabelledRows:
    """The criteria and the submissions of a run that was labelled."""

    def __init__(self, rows: Sequence[GradedRow]):
        self._rows: dict[str, list[GradedRow]] = {}
        self._entries: dict[str, dict[str, CriterionReport]] = {}
        for row in rows:
            self._rows.setdefault(row.id, []).append(row)
            for entry in row.report.criteria if row.report else ():
                self._entries.setdefault(entry.name, {}).setdefault(entry.requirement, entry)

    def find_criterion(self, name: str, requirement: str | None, row_id: str | None) -> Criterion:
        """Return the criterion of a name in a row, or in the whole run if it is the same in all rows."""
        of_row = [row.report.criteria for row in self._rows.get(row_id or "", []) if row.report]
        if of_row:
            known = list(dict.fromkeys(entry.name for entries in of_row for entry in entries))
            entries = {entry.requirement: entry for entries in of_row for entry in entries if entry.name == name}
        else:
            known, entries = list(self._entries), self._entries.get(name, {})
        where = f"row {row_id!r} of the run" if of_row else "run"
        if not entries:
            raise LabelsError(f"the {where} has no criterion {name!r}; it has {known[:20]!r}")
        if requirement is None and len(entries) > 1:
            raise LabelsError(
                f"the run has {len(entries):,} different criteria {name!r}, and the label has no `id` of a row in it: "
                "add the `id`, or the `requirement`"
            )
        entry = next(iter(entries.values())) if requirement is None else entries.get(requirement)
        if entry is None:
            raise _other_words(name, requirement, next(iter(entries)), where)
        return entry.to_criterion()

    def find_submission(self, row_id: str | None, own: Submission | None) -> Submission | None:
        """Return the submission of a row, as the run has it; what the label itself has if the run has another.

        Args:
            row_id: The id of the row; None if the label does not have it.
            own: What the label has, which may lack parts such as the context; None if it has nothing.

        Raises:
            LabelsError: The label has nothing, and the run has no such row, or several.
        """
        submissions = [row.submission for row in self._rows.get(row_id or "", []) if row.submission]
        if own is not None:
            return next((each for each in submissions if _text_of(each) == _text_of(own)), own)
        if row_id is not None and not submissions:
            raise LabelsError(
                f"is about the row {row_id!r}, which the run does not have: name the run that was labelled"
            )
        if len({each.model_dump_json() for each in submissions}) > 1:
            raise LabelsError(f"is about the row {row_id!r}, and the run has several with this id: add the `response`")
        return submissions[0] if submissions else None


def _other_words(name: str, requirement: str | None, now: str, where: str) -> LabelsError:
    return LabelsError(
        f"the requirement of `{name}` was {requirement!r} when it was labelled, and is {now!r} in the {where}: label "
        "it again, since an answer to other words says nothing about these"
    )


def _text_of(submission: Submission) -> str:
    # Programs that edit tables change the line breaks within a cell.
    return submission.response.replace("\r\n", "\n").strip()
