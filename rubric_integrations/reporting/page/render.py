"""Renders the report page: a template, a style sheet and a script, with the data of the runs packed into the file.

The data are an index of all rows, and the texts in compressed blocks. The browser unpacks a block when a submission in
it is opened.

Text from models and users reaches the page only as text: the template escapes it, or the script sets it as
`textContent`. As a second defence, a content security policy allows no other script.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from rubric_integrations._util.lazy import install_command
from rubric_integrations.reporting.page.figures import (
    BINS,
    ColumnFigures,
    ColumnKey,
    ComparisonFigures,
    SharedColumns,
    SummaryFigures,
    TableColumns,
    column_key,
    desirability,
    trust_figures,
)
from rubric_integrations.rubric.answers import counting_scale
from rubric_integrations.runs.files import GradedRow, RowKey, RunFile, import_notes, matched_rows
from rubric_integrations.scoring.labels import LabelledJudgment
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.submission.attachments import MAX_BYTES_OF_FILE, StoredAttachment
from rubric_integrations.submission.trajectory import Trajectory
from rubric_integrations.trust.comparable_runs import Comparability, comparability
from rubric_integrations.trust.planning import JudgmentToLabel

# Characters of one text, and of all texts of one trajectory. Each of very many texts has at least its beginning.
MAX_TEXT = 10_000
MAX_TEXTS = 300_000
_MIN_TEXT = 100

# Bytes of the images of one page: mail programs refuse larger files.
MAX_IMAGES = 5_000_000

# What a browser draws as pixels, by the first bytes. SVG is not among them, because it is a document with scripts.
_BEGINNINGS = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


def shown_steps(trajectory: Trajectory) -> list[list[Any]]:
    """Return each step as its role, its name, its text and its calls, for the page's script.

    A call is its name, its arguments, its result, and whether it failed; None where the trace does not tell. Long texts
    are cut, and say how many characters are left out.
    """
    count = len(trajectory.steps) + 2 * len(trajectory.calls)
    limit = max(_MIN_TEXT, min(MAX_TEXT, MAX_TEXTS // count))
    return [
        [
            step.role,
            step.name,
            _cut(step.text, limit),
            [
                [call.name, _cut(_arguments(call.arguments), limit), _cut(call.result, limit), call.is_error]
                for call in step.calls
            ],
        ]
        for step in trajectory.steps
    ]


class Thumbnails:
    """Decides which attachments a page shows as images, up to 5,000,000 bytes in all."""

    def __init__(self) -> None:
        self._total = 0

    def of(self, attachments: Sequence[StoredAttachment]) -> list[list[Any]]:
        """Return each attachment as its name, its type, its size, its SHA-256, its address, and its image.

        The image is a `data:` URI, and None for other files than small images of pixels.
        """
        return [[a.name, a.mime_type, a.size, a.sha256, a.url, self._image(a)] for a in attachments]

    def _image(self, attachment: StoredAttachment) -> str | None:
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


def _arguments(arguments: dict[str, Any] | str | None) -> str | None:
    if arguments is None or isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, default=str)


def _cut(text: str | None, limit: int) -> str | None:
    if text is None or len(text) <= limit:
        return text
    return f"{text[:limit]} [{len(text) - limit:,} more characters are in the run file]"


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

    def index(self, columns: TableColumns, to_label: Sequence[JudgmentToLabel] = ()) -> str:
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
            # Most judgments share their question, which may have long guidelines and documents.
            texts = [_json(_question(item)) for item in to_label]
            questions = {text: place for place, text in enumerate(dict.fromkeys(texts))}
            index["questions"] = [json.loads(text) for text in questions]
            index["queue"] = [[i.row, questions[text], i.sampled] for i, text in zip(to_label, texts, strict=True)]
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
            text = _json([c.name, c.requirement, c.weight, c.required, tags, *_possible_answers(c)])
            position = self._criteria.setdefault(text, len(self._criteria))
            answers.append([position, *_answer(c), c.error or c.reason, *filter(None, [_more(c)])])
        details = {
            ("note" if row.is_graded else "error"): row.error,
            "coverage": round(report.coverage, 4),
            "low": report.low_coverage or None,
            "partial": report.partial or None,
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


def _possible_answers(row: CriterionReport) -> list[Any]:
    """Return the options and the ends of the scale of a criterion that has them; nothing for MET and UNMET."""
    if row.options:
        return [[option.label for option in row.options], None]
    scale = counting_scale(row.cap) if row.cap is not None else row.scale
    return [[], [scale.min, scale.max, scale.integer]] if scale is not None else []


def _question(item: JudgmentToLabel) -> dict[str, Any]:
    """Return what the page shows of a judgment to label, beside the submission: never the judge's answer."""
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


# One function, whose hash the content security policy names. `start.js` runs what the others define.
_SCRIPTS = (
    "data.js", "labels.js", "labelling.js", "words.js", "list.js", "submission.js", "overrule.js", "start.js",
)  # fmt: skip
_STYLES = ("base.css", "overview.css", "list.css", "submission.css", "labels.css", "small.css")


def report_page(
    runs: Sequence[RunFile],
    title: str | None = None,
    *,
    to_label: Sequence[JudgmentToLabel] = (),
    labels: Sequence[LabelledJudgment] | None = None,
) -> str:
    """Render one run, or two to compare, as an HTML page.

    Args:
        runs: One run, or two.
        title: The page's heading; by default the rubric's name.
        to_label: Judgments of the run that people shall label, as `choose_for_labels` draws them. The page then opens
            as a tool that shows one after another, without what the judge answered.
        labels: People's labels of the last run: the page gets a section that says how far the judge can be trusted.
            None leaves it out.

    Raises:
        ValueError: There is no run, or there are more than two; or two with `to_label`.
        ImportError: The extra `report` is not installed.

    Example:
        >>> report_page([RunFile.of("tonight", [])], "Nothing yet")[:15]
        '<!doctype html>'
    """
    return "".join(page_parts(runs, title, to_label=to_label, labels=labels))


def page_parts(
    runs: Sequence[RunFile],
    title: str | None = None,
    *,
    to_label: Sequence[JudgmentToLabel] = (),
    labels: Sequence[LabelledJudgment] | None = None,
    comparable: Comparability | None = None,
) -> Iterator[str]:
    """Render a page as parts to write one after the other, so that memory never holds the whole page.

    All rows are read before this returns. Arguments and exceptions are those of `report_page`. `comparable` is the
    `comparability` of two runs; it is computed if it is None.
    """
    if not 1 <= len(runs) <= 2:
        raise ValueError(f"`runs` must be one run, or two to compare, got {len(runs)}")
    if to_label and len(runs) != 1:
        raise ValueError("`to_label` needs one run, got 2: the judgments to label are those of one judge")
    template = _template()
    summaries = [SummaryFigures() for _ in runs]
    if comparable is None:
        comparable = comparability(*runs) if len(runs) == 2 else Comparability()
    shared, criteria, comparison = SharedColumns(), ColumnFigures(), ComparisonFigures(comparable)
    data = PageData([run.name for run in runs])
    for key, rows in matched_rows(runs):
        for row, summary in zip(rows, summaries, strict=True):
            if row:
                summary.add(row)
        if rows[-1]:
            criteria.add(rows[-1])
        shared.add(rows)
        changed = comparison.add(key, *rows) if len(rows) == 2 else ()
        data.add(key, rows, shared.shared, changed)
    columns = shared.columns
    script = _script()
    return template.generate(
        title=title or runs[0].rubric or "Rubric report",
        runs=[(run, summary.summary) for run, summary in zip(runs, summaries, strict=True)],
        comparison=comparison.comparison if len(runs) > 1 else None,
        kind=columns.kind,
        criteria=criteria.of(columns),
        has_criteria=shared.has_criteria,
        bins=BINS,
        to_label=len(to_label),
        notes=[note for run in runs for note in import_notes(run.rows)],
        trust=None if labels is None else trust_figures(runs, labels),
        index=data.index(columns, to_label),
        blocks=data.blocks,
        style="".join(map(_asset, _STYLES)),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _script() -> str:
    """Return the whole script: text from models and users is put into the document with `textContent` only."""
    return '(async () => {\n"use strict";\n' + "".join(map(_asset, _SCRIPTS)) + "})();\n"


def _template() -> Any:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise ImportError(f"a report page needs jinja2: {install_command('report')}") from None
    loader = FunctionLoader(_asset)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html")


def _asset(name: str) -> str:
    return resources.files("rubric_integrations.reporting.page").joinpath(name).read_text(encoding="utf-8")
