"""Builds the data for the page's script: an index of all rows, and blocks of texts that the browser reads when needed.

The index has what the list of submissions shows, filters and sorts. The texts, which are almost all of a run, are in
blocks of some rows, each compressed by itself: to open a submission, the browser unpacks one block.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from rubric_integrations.agreement.choosing import JudgmentToLabel
from rubric_integrations.reporting.page.columns import ColumnKey, Columns, column_key
from rubric_integrations.reporting.page.figures import desirability
from rubric_integrations.reporting.page.steps import Thumbnails, shown_steps
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.runs.run_files import GradedRow, RowKey
from rubric_integrations.submission.trajectory import Trajectory

# Characters of JSON. A larger block takes longer to open, and compresses no better.
_BLOCK = 500_000
# Level 6 saves 4 % of the size of ordinary text, and takes up to three times as long.
_LEVEL = 4
_KINDS = ("good", "part", "bad", "abstained", "failed", "open", "inapplicable")


class PageData:
    """Collects the data of a page, row by row; only compressed texts are kept.

    Attributes:
        blocks: The packed blocks so far.
    """

    def __init__(self, names: Sequence[str]):
        self.blocks: list[str] = []
        self._names = list(names)
        self._thumbnails = Thumbnails()
        self._rows: list[dict[str, Any]] = []
        # Each distinct answer once: its state, verdict and desirability.
        self._answers: dict[tuple[str, str | None, float | None], int] = {}
        # The browser stores labels under this key, so that another page does not show them.
        self._digest = hashlib.sha256()
        self._start_block()

    def add(
        self,
        key: RowKey,
        grades: Sequence[GradedRow | None],
        shared: dict[ColumnKey, None],
        changed: Sequence[CriterionReport] = (),
    ) -> None:
        """Add one submission with its row in each run; None where a run does not have it.

        Args:
            key: The submission's id, and its number among those with an equal id.
            grades: The rows.
            shared: The criteria that may become columns.
            changed: The criteria whose answer differs between two runs.
        """
        row_id, number = key
        shown = next(row for row in grades if row is not None)
        details = _json({**self._texts(shown), "grades": [row and self._details(row, shown) for row in grades]})
        entry: dict[str, Any] = {"id": row_id, "grades": [row and self._grade(row, shared) for row in grades]}
        if number > 1:
            entry["copy"] = number
        if changed:
            entry["changed"] = [column_key(criterion) for criterion in changed]
        entry["at"] = [len(self.blocks), len(self._block)]
        self._rows.append(entry)
        self._block.append(details)
        self._size += len(details)
        if self._size >= _BLOCK:
            self._end_block()

    def index(self, columns: Columns, to_label: Sequence[JudgmentToLabel] = ()) -> str:
        """End the last block, and return the packed index; `add` cannot be called after it.

        Args:
            columns: The columns of the list.
            to_label: The judgments that the page shows to be labelled, in this order, without the judge's answers.
        """
        if self._block:
            self._end_block()
        places = {key: place for place, key in enumerate(columns.keys)}
        for row in self._rows:
            if "changed" in row:
                row["changed"] = [places.get(key, -1) for key in row["changed"]]
            for grade in row["grades"]:
                if grade and "answers" in grade:
                    answers, tags = grade.pop("answers"), grade.pop("tags")
                    if columns.kind == "criteria":
                        grade["cells"] = [answers.get(key) for key in columns.keys]
                    else:
                        grade["cells"] = [tags.get(tag) for tag, _ in columns.keys]
        index: dict[str, Any] = {
            "runs": self._names, "kind": columns.kind, "columns": columns.keys, "answers": list(self._answers),
            "rows": self._rows,
        }  # fmt: skip
        self._digest.update(_json({**index, "rows": [row["id"] for row in self._rows]}).encode("utf-8", "replace"))
        index["key"] = self._digest.hexdigest()[:16]
        if to_label:
            index["queue"] = [[i.row, i.criterion, i.requirement, i.sampled, i.answers] for i in to_label]
        return _pack(_json(index))

    def _start_block(self) -> None:
        self._block: list[str] = []
        self._size = 0
        self._criteria: dict[str, int] = {}

    def _end_block(self) -> None:
        text = f'{{"criteria":[{",".join(self._criteria)}],"rows":[{",".join(self._block)}]}}'
        self._digest.update(text.encode("utf-8", "replace"))
        self.blocks.append(_pack(text))
        self._start_block()

    def _grade(self, row: GradedRow, shared: dict[ColumnKey, None]) -> dict[str, Any]:
        """Return what the list shows of a row: its score, the number of answers of each kind, and the columns."""
        report = row.report
        if report is None:
            return {"error": True}
        answers: dict[ColumnKey, int] = {}
        counts = [0] * len(_KINDS)
        for criterion in report.criteria:
            answer = _answer(criterion)
            counts[_KINDS.index(_kind(*answer))] += 1
            if (key := column_key(criterion)) in shared:
                answers[key] = self._answers.setdefault(answer, len(self._answers))
        grade = {
            "score": report.score,
            "range": report.score_range,
            "passed": report.passed,
            "error": (row.error is not None and not row.is_graded) or None,
            "counts": counts if report.criteria else None,
            "split": any(c.agreement is not None and c.agreement < 1 for c in report.criteria if c.votes) or None,
            "answers": answers,
            "tags": {tag: None if score is None else round(score, 4) for tag, score in row.tags.items()},
        }
        return {name: value for name, value in grade.items() if value is not None}

    def _texts(self, row: GradedRow) -> dict[str, Any]:
        """Return what was graded: the texts, the steps, and the attachments."""
        if row.submission is None:
            return {}
        others = {"logprobs", "trajectory", "show_trajectory", "attachments"}
        texts = row.submission.model_dump(mode="json", exclude_none=True, exclude=others)
        if row.submission.trajectory is not None:
            texts["steps"] = shown_steps(row.submission.trajectory)
        if row.attachments:
            texts["files"] = self._thumbnails.of(row.attachments)
        return texts

    def _details(self, row: GradedRow, shown: GradedRow) -> dict[str, Any]:
        """Return what the page of a submission shows, beyond what is in the index and in the row that is shown."""
        report = row.report
        if report is None:
            return {"error": row.error or "not graded"}
        answers: list[list[Any]] = []
        for place, c in enumerate(report.criteria):
            tags = row.criterion_tags[place] if place < len(row.criterion_tags) else ()
            text = _json([c.name, c.requirement, c.weight, c.required, tags])
            position = self._criteria.setdefault(text, len(self._criteria))
            answers.append([position, *_answer(c), c.error or c.reason, *filter(None, [_more(c)])])
        details = {
            ("note" if row.is_graded else "error"): row.error,
            "coverage": round(report.coverage, 4),
            "penalty": report.length_penalty or None,
            # How much of a long trajectory the judge did not see.
            "omitted": report.omitted_characters or None,
            # The steps of another run are not on the page, so that what it cites cannot be shown.
            "unlinked": (row is not shown and _steps_of(row) != _steps_of(shown)) or None,
            "metrics": report.metrics or None,
            "tags": row.tags or None,
            "reason": report.reason or None,
            "answers": answers,
        }
        return {name: value for name, value in details.items() if value is not None}


def _steps_of(row: GradedRow) -> Trajectory | None:
    return row.submission and row.submission.trajectory


def _answer(row: CriterionReport) -> tuple[str, str | None, float | None]:
    """Return the state of an answer, its verdict and its desirability."""
    desirable = desirability(row)
    if row.not_applicable:
        state = "inapplicable"
    else:
        state = "failed" if row.error else "open" if not row.was_asked else "abstained" if row.abstained else "answered"
    return state, row.verdict, None if desirable is None else round(desirable, 4)


def _kind(state: str, _verdict: str | None, desirable: float | None) -> str:
    return state if state != "answered" else {1.0: "good", 0.0: "bad"}.get(desirable or 0.0, "part")


def _more(row: CriterionReport) -> dict[str, Any]:
    """Return what few answers have: votes, sanitized text, confidence, an escalation, and the steps that it cites."""
    more: dict[str, Any] = {}
    if row.votes:
        more["votes"] = [[vote.judge, vote.verdict, vote.reason or vote.error] for vote in row.votes]
        more["agreement"] = row.agreement
    if row.neutralized:
        more["neutralized"] = True
    if row.confidence is not None:
        more["confidence"] = row.confidence
    if row.escalated:
        more["escalated"] = True
    if row.evidence:
        more["evidence"] = row.evidence
    return more


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pack(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), _LEVEL, mtime=0)).decode()
