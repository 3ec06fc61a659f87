"""The data of the report page: an index of all rows and their texts in compressed blocks.

The index has the data that the table shows and filters. The browser unpacks a block when a submission in it is opened.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from rubric_integrations.reporting.page.figures import ColumnKey, TableColumns, column_key
from rubric_integrations.reporting.page.overview_figures import short_values
from rubric_integrations.reporting.page.shares import WeightShares, answer_values, overruling
from rubric_integrations.reporting.score_sum import ScoreSum, score_settings, sum_score, why_not_passed
from rubric_integrations.reporting.turns import (
    arguments_text,
    first_lines,
    is_of_steps,
    read_turns,
    shown_trajectory_text,
)
from rubric_integrations.rubric.answers import counting_scale
from rubric_integrations.runs.files import GradedRow, RowKey
from rubric_integrations.scoring.labels import submission_digest
from rubric_integrations.scoring.report import CriterionReport, desirability
from rubric_integrations.submission.attachments import MAX_BYTES_OF_FILE, StoredAttachment
from rubric_integrations.submission.steps import Step
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory
from rubric_integrations.trust.planning import JudgmentToLabel

# The most characters of one text, and of all texts of one trajectory. If a trajectory has very many texts, each keeps
# at least its beginning.
MAX_TEXT = 10_000
MAX_TEXTS = 300_000
_MIN_TEXT = 100

# The most bytes of all images of one page, because mail programs refuse larger files.
MAX_IMAGES = 5_000_000

# The types of images that may be shown, with their first bytes. SVG is not included, because it may contain scripts.
_BEGINNINGS = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


def shown_steps(trajectory: Trajectory) -> list[list[Any]]:
    """Return each step as a list for the page's script: its role, name, text and calls.

    Each call is a list of its name, arguments, result, and whether it failed. Unknown entries are None. Long texts are
    shortened and state the number of characters that are left out.
    """
    count = len(trajectory.steps) + 2 * len(trajectory.calls)
    limit = max(_MIN_TEXT, min(MAX_TEXT, MAX_TEXTS // count))
    return [_shown_step(step, limit) for step in trajectory.steps]


def _shown_step(step: Step, limit: int) -> list[Any]:
    calls = [
        [call.name, _cut(arguments_text(call.arguments), limit), _cut(call.result, limit), call.is_error]
        for call in step.calls
    ]
    return [step.role, step.name, _cut(step.text, limit), calls]


def _turns(submission: Submission) -> dict[str, Any]:
    """Return the turns of those texts of a submission that are conversations, by the name of the field.

    The turns of a field are the text before them, whether they are numbered, and a list of steps. A step that is in the
    submission's trajectory at the same place is None, because `shown_steps` has it.
    """
    steps = submission.trajectory.steps if submission.trajectory else ()
    turns: dict[str, Any] = {}
    for name in ("query", "response", "reference"):
        if name == "response" and is_of_steps(submission):
            turns[name] = ["", True, [None] * len(steps)]
        elif conversation := read_turns(getattr(submission, name) or ""):
            own = Trajectory(steps=conversation.steps)
            known = [_texts_of(step) for step in steps[: len(own.steps)]]
            known += [None] * (len(own.steps) - len(known))
            pairs = zip(own.steps, shown_steps(own), known, strict=True)
            shown = [None if _texts_of(step) == other else entry for step, entry, other in pairs]
            turns[name] = [conversation.before, conversation.is_numbered, shown]
    return turns


def _texts_of(step: Step) -> tuple[Any, ...]:
    """Return the parts of a step that its turn shows."""
    return step.role, step.name, step.text, [(c.name, c.arguments, c.result, c.is_error or None) for c in step.calls]


class Thumbnails:
    """Chooses the attachments that a page shows as images, up to 5,000,000 bytes in total."""

    def __init__(self) -> None:
        self._total = 0

    def of(self, attachments: Sequence[StoredAttachment]) -> list[list[Any]]:
        """Return each attachment as a list: its name, type, size, SHA-256, URL and image.

        The image is a `data:` URI. It is None for files that are not small bitmap images, and for images that would
        exceed the total.
        """
        return [[a.name, a.mime_type, a.size, a.sha256, a.url, self._image(a)] for a in attachments]

    def _image(self, attachment: StoredAttachment) -> str | None:
        """Return an image as a data URL. None if the page does not show such images, or if they are too large."""
        mime_type = attachment.mime_type.lower()
        beginnings = _BEGINNINGS.get(mime_type, ())
        if attachment.data is None or not beginnings:
            return None
        try:
            content = base64.b64decode(attachment.data, validate=True)
        except binascii.Error:
            return None
        if not content.startswith(beginnings) or (mime_type == "image/webp" and content[8:12] != b"WEBP"):
            return None
        if len(content) > MAX_BYTES_OF_FILE or self._total + len(content) > MAX_IMAGES:
            return None
        self._total += len(content)
        return f"data:{mime_type};base64,{base64.b64encode(content).decode()}"


def _cut(text: str | None, limit: int) -> str | None:
    if text is None or len(text) <= limit:
        return text
    return f"{text[:limit]} [{len(text) - limit:,} more characters are in the run file]"


# The size of a block in characters of JSON. A larger block takes longer to open and does not compress better.
_BLOCK = 500_000
# The compression level. A higher level takes up to three times as long and saves a few percent.
_LEVEL = 5
_KINDS = ("good", "part", "bad", "abstained", "failed", "open", "inapplicable")


class PageData:
    """Collects the data of a page, row by row. The texts of many rows form a block, which is kept compressed.

    Attributes:
        blocks: The compressed blocks so far, as text for the page.

    Args:
        names: The names of the runs.
        is_redacted: Whether the texts of the rows are left out. If so, the page states it.
    """

    def __init__(self, names: Sequence[str], *, is_redacted: bool = False):
        self.blocks: list[str] = []
        self._is_redacted = is_redacted
        self._names = list(names)
        self._shares = WeightShares(names[-1])
        self._thumbnails = Thumbnails()
        self._rows: list[dict[str, Any]] = []
        # For each criterion that may become a column: its weight, or None if it varies, and whether it is required.
        self._weights: dict[ColumnKey, tuple[float | None, bool]] = {}
        # Each distinct answer, with its state, verdict and desirability.
        self._answers: dict[tuple[str, str | None, float | None], int] = {}
        # The browser stores labels under this key. Therefore, other pages do not show them.
        self._digest = hashlib.sha256()
        self._start_block()

    def add(
        self,
        key: RowKey,
        grades: Sequence[GradedRow | None],
        shared: dict[ColumnKey, None],
        changed: Sequence[CriterionReport] = (),
    ) -> None:
        """Add one submission with its rows in the runs.

        Args:
            key: The id of the submission and its number among the submissions with the same id.
            grades: The row of the submission in each run. None for a run without this submission.
            shared: The criteria that may become columns.
            changed: The criteria whose answer differs between two runs.
        """
        row_id, number = key
        shown = next(row for row in reversed(grades) if row is not None)
        sums = [row and sum_score(row) for row in grades]
        self._shares.add(grades[-1], sums[-1])
        texts = _texts(shown)
        details = [
            row and {**self._details(row, of), **({} if row is shown else _own_texts(row, texts))}
            for row, of in zip(grades, sums, strict=True)
        ]
        if shown.attachments and texts:
            texts["files"] = self._thumbnails.of(shown.attachments)
        details = _json({**texts, "grades": details})
        entry: dict[str, Any] = {"id": row_id, "grades": [row and self._grade(row, shared) for row in grades]}
        if shown.submission is not None:
            entry["query"], entry["response"] = first_lines(shown.submission, _MAX_EXCERPT)
        if metadata := short_values(shown.metadata):
            entry["metadata"] = metadata
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

    def index(self, columns: TableColumns, to_label: Sequence[JudgmentToLabel] = ()) -> str:
        """Return the compressed index of all rows, after the last row was added. `add` must not be called afterwards.

        Args:
            columns: The columns of the list.
            to_label: The judgments that the page shows for labelling, in this order, without the judge's answers.
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
            "runs": self._names, "kind": columns.kind,
            "columns": [[*key, *self._weights.get(key, (None, False))] for key in columns.keys],
            "answers": list(self._answers),
            "rows": self._rows,
            **({"redacted": True} if self._is_redacted else {}),
        }  # fmt: skip
        self._digest.update(_json({**index, "rows": [row["id"] for row in self._rows]}).encode("utf-8", "replace"))
        index["key"] = self._digest.hexdigest()[:16]
        if not to_label:
            index["shares"] = self.shares
        else:
            # Most judgments share a question, which may have long guidelines and documents.
            texts = [_json(_question(item)) for item in to_label]
            questions = {text: place for place, text in enumerate(dict.fromkeys(texts))}
            index["questions"] = [json.loads(text) for text in questions]
            index["queue"] = [[i.row, questions[text], i.sampled] for i, text in zip(to_label, texts, strict=True)]
        return _pack(_json(index))

    @property
    def shares(self) -> dict[str, Any] | None:
        """The numbers with which the page computes the scores of the last run for other weights.

        None if no row has a grade.
        """
        return self._shares.data

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
        """Return the data of a row for the list: its score, the number of answers of each kind, and its columns."""
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
                weight, is_required = self._weights.get(key, (criterion.weight, False))
                same = weight if weight == criterion.weight else None
                self._weights[key] = (same, is_required or criterion.required)
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

    def _details(self, row: GradedRow, score_sum: ScoreSum | None) -> dict[str, Any]:
        """Return the data of a submission's view that are neither in the index nor in the row that is shown."""
        report = row.report
        if report is None or score_sum is None:
            return {"error": row.error or "not graded"}
        answers: list[list[Any]] = []
        settings = score_settings(row)
        for place, (c, term) in enumerate(zip(report.criteria, score_sum.terms, strict=True)):
            tags = row.criterion_tags[place] if place < len(row.criterion_tags) else ()
            text = _json(
                [c.name, c.requirement, c.weight, c.required, tags, answer_values(c, settings), *_possible_answers(c)]
            )
            position = self._criteria.setdefault(text, len(self._criteria))
            reason = c.error or c.shown_reason
            answers.append([position, *_answer(c), reason, term.words, term.value, *filter(None, [_more(c)])])
        details = {
            "why": why_not_passed(row) or None,
            "sum": [score_sum.in_words, score_sum.after, score_sum.problem] if answers else None,
            "overruling": overruling(row, score_sum) if answers else None,
            ("note" if row.is_graded else "error"): row.error,
            "coverage": round(report.coverage, 4),
            "low": report.low_coverage or None,
            "partial": report.partial or None,
            "penalty": report.length_penalty or None,
            # The number of characters of a long trajectory that the judge did not see.
            "omitted": report.omitted_characters or None,
            "explored": report.exploration and report.exploration.summary(),
            "metrics": report.metrics or None,
            "tags": row.tags or None,
            "reason": report.reason or None,
            "answers": answers,
        }
        return {name: value for name, value in details.items() if value is not None}


# The most characters of a text in the table, which shows one line.
_MAX_EXCERPT = 160


_TEXTS = ("query", "response", "thinking", "reference", "steps", "turns", "handed")


def _texts(row: GradedRow) -> dict[str, Any]:
    """Return the texts of the graded submission, with its steps and its turns."""
    if row.submission is None:
        return {}
    others = {"logprobs", "trajectory", "show_trajectory", "attachments"}
    texts = row.submission.model_dump(mode="json", exclude_none=True, exclude=others)
    if row.submission.trajectory is not None:
        texts["steps"] = shown_steps(row.submission.trajectory)
        # The page exports labels without the steps.
        texts["digest"] = submission_digest(row.submission)
    if turns := _turns(row.submission):
        texts["turns"] = turns
    # With `if_needed`, judges of most runs do not see the steps.
    is_cited = row.report is not None and any(entry.evidence for entry in row.report.criteria)
    handed = shown_trajectory_text(row) if is_cited or row.submission.show_trajectory != "if_needed" else None
    if handed is not None and handed != row.submission.response:
        texts["handed"] = _cut(handed, MAX_TEXTS)
    return texts


def _own_texts(row: GradedRow, shown: dict[str, Any]) -> dict[str, Any]:
    """Return the texts of a row that differ from the texts of the row that is shown."""
    texts = _texts(row)
    own = {name: texts.get(name) for name in _TEXTS if texts.get(name) != shown.get(name)}
    return {"own": own} if own else {}


def _possible_answers(row: CriterionReport) -> list[Any]:
    """Return the options and the ends of the scale of a criterion. An empty list for MET and UNMET."""
    if row.options:
        return [[option.label for option in row.options], None]
    scale = counting_scale(row.cap) if row.cap is not None else row.scale
    return [[], [scale.min, scale.max, scale.integer]] if scale is not None else []


def _question(item: JudgmentToLabel) -> dict[str, Any]:
    """Return the question of a judgment to label, without the submission and without the judge's answer."""
    question = item.question
    criterion = question.criterion
    scale = criterion.scale if criterion else None
    return {
        "name": item.criterion,
        "requirement": item.requirement,
        "words": question.words,
        "guidelines": question.guidelines,
        "answers": question.answers,
        "numbers": question.range_text,
        "range": [scale.min, scale.max, scale.integer] if scale else None,
        "typed": question.takes_number,
        "texts": list(question.texts.items()),
    }


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
    """Return the optional data of an answer: votes, sanitized text, confidence, escalation and cited steps."""
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
