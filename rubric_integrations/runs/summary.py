"""The results of a run: the grade of each row, and a summary of the whole run, in one line or as a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, NamedTuple

from pydantic import Field

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.terminal import spend_text
from rubric_integrations.rubric.criterion import Criterion, describe_condition
from rubric_integrations.rubric.rubric import Node, Rubric
from rubric_integrations.scoring.judgment import Spend
from rubric_integrations.scoring.report import NO_ESCALATIONS, Escalations, EvaluationReport, tag_key
from rubric_integrations.submission.attachments import store_attachments
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.submission import Submission


def _no_outage() -> float | None:
    return None


@contextmanager
def progress_bar(
    submissions: object, outage_seconds: Callable[[], float | None] = _no_outage
) -> Generator[Callable[[RunSummary], None]]:
    """Show a progress bar on stderr while the block runs, if stderr is a terminal.

    Args:
        submissions: The submissions of the run. The bar shows their number and the time left if they have a length.
        outage_seconds: For how long the run has been waiting for the judge's endpoint; None if it is not.

    Yields:
        A function that draws the bar for the summary of the run so far.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Details(ProgressColumn):
        """What the bar says beside the numbers, redrawn several times a second, also while no result comes."""

        max_refresh = None

        def render(self, task: Task) -> Text:
            seconds = outage_seconds()
            text = task.fields["details"] if seconds is None else f"waiting for the endpoint, {seconds:.0f} s"
            return Text(text, no_wrap=True)

    console = Console(stderr=True)
    columns = (
        BarColumn(bar_width=8), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(compact=True), Details(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        total = len(submissions) if isinstance(submissions, Sized) else None
        task = progress.add_task("", total=total, details="")

        def show(summary: RunSummary) -> None:
            progress.update(task, completed=summary.submissions, details=short_summary_line(summary))

        yield show


def summary_line(summary: RunSummary) -> str:
    """Describe the results, the spend and the speed of a run in one line.

    Example:
        >>> from rubric_integrations.runs.summary import RunSummary
        >>> summary_line(RunSummary(submissions=10, failed=1, seconds=5.0))
        '1 failed, 0 abstentions, 0 calls, 0 tokens, $0.0000, 2.0/s'
    """
    spend = summary.spend
    reused = [f"{summary.reused} from the ledger"] if summary.reused else []
    escalated = [summary.escalations.summary()] if summary.escalations.judgments else []
    rate = f"{summary.submissions / summary.seconds:.1f}/s" if summary.seconds else "-/s"
    parts = [
        f"{summary.failed} failed", f"{summary.abstentions} abstentions", *reused,
        spend_text(spend.calls, spend.total_tokens, spend.cost), *escalated, rate,
    ]  # fmt: skip
    return ", ".join(parts)


def short_summary_line(summary: RunSummary) -> str:
    """Describe a run as `summary_line` does, short enough for one line of 80 columns beside the bar and two times.

    Example:
        >>> from rubric_integrations.runs.summary import RunSummary
        >>> short_summary_line(RunSummary(submissions=10, failed=1, seconds=5.0))
        '1 failed, 0 abst., 0 tok, $0.00 2.0/s'
    """
    spend = summary.spend
    tokens = "tokens unknown" if spend.total_tokens is None else f"{spend.total_tokens:,} tok"
    cost = "$?" if spend.cost is None else f"${spend.cost:.2f}"
    rate = f"{summary.submissions / summary.seconds:.1f}/s" if summary.seconds else ""
    return f"{summary.failed} failed, {summary.abstentions} abst., {tokens}, {cost} {rate}"


def summary_table(summary: RunSummary) -> str:
    """Return the results and the spend of a run as an HTML table, for notebooks.

    Example:
        >>> from rubric_integrations.runs.summary import RunSummary
        >>> "<td" in summary_table(RunSummary(submissions=10))
        True
    """
    cells: dict[str, object] = {
        "submissions": summary.submissions,
        "mean score": None if summary.mean_score is None else round(summary.mean_score, 3),
        "passed": summary.passed,
        "failed": summary.failed,
        "abstentions": summary.abstentions,
        "calls": summary.spend.calls,
        "US dollars": summary.spend.cost,
    }
    if summary.escalations.judgments:
        cells["cascade"] = summary.escalations.summary()
    return html_table(summary.stopped or "Run so far", list(cells), [list(cells.values())])


# Rows may bring tags of their own without end.
_MAX_TAGS = 1_000


class Graded(NamedTuple):
    """The result of a run for one row.

    Attributes:
        row: The row.
        report: The row's report; incomplete if `judge_error` is set, None if the row had nothing to grade.
        judge_error: Why the grade is incomplete: the first failure of a judge; None if no judge failed.
        rubric: What the row was graded by; None if there was nothing to grade.
        grader: What the scores of the grader depend on (`Grader.scoring_record`); None if there was nothing to grade.
    """

    row: Row
    report: EvaluationReport | None
    judge_error: str | None = None
    rubric: Rubric | None = None
    grader: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        """Return one line; `row`, `report` and `rubric` have the texts, which would fill a screen."""
        problem = self.judge_error or self.row.error
        state = f"error={problem!r}" if problem else f"passed={bool(self.report and self.report.passed)}"
        return f"Graded(id={self.row.id!r}, score={self.score}, {state})"

    @property
    def score(self) -> float | None:
        """The score of a complete grade; None where the grade is incomplete or has no score."""
        return self.report.score if self.report and not self.judge_error else None

    @property
    def gate_score(self) -> float | None:
        """The score that counts for a gate; None also where a criterion failed or too little was assessed."""
        return self.report.gate_score if self.report and not self.judge_error else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row and the fields of its report as JSON values, as `grade --out` writes them."""
        row, report = self.row, self.report
        line: dict[str, Any] = {"id": row.id}
        line["submission"] = _stored(row.submission) if row.submission else None
        line |= report.model_dump(mode="json") if report else {"score": None, "passed": False, "error": row.error}
        if self.judge_error:
            # The criteria that were judged stay in the line, but a reader must not take a partial sum for a grade.
            line |= {"score": None, "passed": False, "error": self.judge_error}
        line |= {name: value for name in ("labels", "metadata") if (value := getattr(row, name)) is not None}
        rubric = self.rubric
        if self.grader:
            line["judge"] = ", ".join(self.grader["names"])
        if rubric and self.grader:
            line["scoring"] = {**record_rubric(rubric, report), "grader": self.grader}
        if rubric and rubric.instructions:
            line["guidelines"] = rubric.instructions
        if rubric and line.get("report"):
            for entry, criterion in zip(line["report"], rubric.criteria, strict=False):
                if criterion.applies_when is not None or criterion.context is not None or criterion.aspects:
                    entry.update(_texts_of(criterion))
        return line | {"rubric": rubric.name if rubric else None, "pass_mark": rubric.pass_mark if rubric else None}

    def to_record(self) -> dict[str, Any]:
        """Return the row of a data frame: the grade, the score of each tag, and the verdict on each criterion."""
        report = self.report
        return {
            "id": self.row.id,
            "score": self.score,
            "passed": bool(report and report.passed and not self.judge_error),
            "coverage": report.coverage if report else None,
            "cost": report.cost if report else None,
            "error": self.judge_error or self.row.error,
            "omitted_characters": report.omitted_characters if report else None,
            "escalated": report.escalations.share if report else None,
            **{tag_key(tag): score for tag, score in (report.tags if report else {}).items()},
            **{criterion.name: criterion.verdict for criterion in (report.criteria if report else ())},
        }


# What a criterion's answer depends on and its entry in the report does not have.
_NOT_IN_REPORT = frozenset(
    ("min_score", "check", "applies_when", "context", "aspects", "examples", "aggregation", "needs", "judge")
)
# Longer settings, such as a document, are recorded by their digest.
_MAX_SETTING = 200


def record_rubric(rubric: Rubric, report: EvaluationReport | None) -> dict[str, Any]:
    """Describe as JSON what a score depends on and its report does not have, for run files.

    Args:
        rubric: The rubric of the score.
        report: The report; the record of a report without entries has a digest of the criteria.

    Returns:
        `criteria`, the further fields of each criterion that has some, and `rubric`, the settings of the rubric. Notes
        for people, such as tags and metadata, are not in it.
    """
    criteria = {
        key: {name: _brief(value) for name, value in fields.items()}
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)
        if (fields := criterion.model_dump(mode="json", include=set(_NOT_IN_REPORT), exclude_defaults=True))
    }
    settings: dict[str, Any] = {"pass_mark": rubric.pass_mark, "min_coverage": rubric.min_coverage}
    if rubric.left_out:
        settings["left_out"] = _brief(rubric.left_out)
    if rubric.instructions:
        settings["instructions"] = _brief(rubric.instructions)
    if rubric.hybrid_metrics:
        metrics = [metric.model_dump(mode="json", exclude_defaults=True) for metric in rubric.hybrid_metrics]
        settings["hybrid_metrics"] = _brief([rubric.blend, *metrics])
    if rubric.tree is not None:
        settings["groups"] = _brief(sorted(_group_text(node, rubric) for node in rubric.tree))
    if report is None or not report.criteria:
        fields = [criterion.model_dump_json(exclude={"tags", "metadata", "name"}) for criterion in rubric.criteria]
        settings["criteria"] = _brief(sorted(fields))
    return {"rubric": settings, **({"criteria": criteria} if criteria else {})}


def _group_text(node: Node, rubric: Rubric) -> str:
    """Describe a group with everything in it, whatever the order of its children."""
    if node.leaf is not None:
        return json.dumps([node.weight, rubric.criteria[node.leaf].full_requirement])
    return json.dumps([node.weight, node.penalty_cap, sorted(_group_text(child, rubric) for child in node.children)])


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(text) <= _MAX_SETTING:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _texts_of(criterion: Criterion) -> dict[str, Any]:
    """Return the `CRITERION_TEXTS` of a criterion, so that people who label the run see what the judge saw."""
    texts: dict[str, Any] = {}
    if criterion.applies_when is not None:
        texts["applies_when"] = describe_condition(criterion.applies_when)
    if criterion.context is not None:
        texts["context"] = criterion.context
    if criterion.aspects:
        texts["aspects"] = [aspect.model_dump(mode="json") for aspect in criterion.aspects]
    return texts


def _stored(submission: Submission) -> dict[str, Any]:
    """Return a submission as a run file stores it: with small attachments, and a description of large ones."""
    fields = submission.model_dump(mode="json", exclude_none=True, exclude={"attachments"})
    attachments = store_attachments(submission.attachments)
    if attachments:
        fields["attachments"] = [attachment.model_dump(mode="json") for attachment in attachments]
    return fields


class RunSummary(Record):
    """Counts, sums and spend of a run so far.

    Attributes:
        submissions: Rows that are done, with or without a grade.
        graded: Rows with a complete grade.
        passed: Rows with a complete grade that passed.
        failed: Rows whose grade is incomplete because a judge failed.
        ungradable: Rows that had nothing to grade.
        abstentions: Criteria, over all rows, that a judge abstained from.
        score_sum: The sum of the scores of the `scored` rows.
        scored: Rows with a score.
        tag_sums: For each tag, the sum of its scores and their number; for the first 1,000 tags of a run.
        omitted_characters: Characters of trajectories that no judge was shown, over all rows (see
            `TextLimits.step_limit`).
        escalations: How many answers came from the expensive judge of a `Cascade`, and what the cheap one has saved.
        spend: Calls, tokens and cost of this run, failed attempts included; judgments from the ledger cost nothing.
            Its `usage` and `cost` are None where the tokens or the price of a call are unknown.
        reused: Judgments that came from the ledger.
        seconds: Time since the run began, in seconds.
        stopped: Why the run ended before all rows were graded: a limit, or the decision of `stop_when`; None if it did
            not.
        judge_is_unusable: Whether it ended because the judge is down, refuses every call, or is never readable.
        has_wrong_setting: Whether it ended because a setting of the judge keeps every request from being sent.
    """

    submissions: int = 0
    graded: int = 0
    passed: int = 0
    failed: int = 0
    ungradable: int = 0
    abstentions: int = 0
    score_sum: float = 0.0
    scored: int = 0
    tag_sums: dict[str, tuple[float, int]] = Field(default_factory=dict[str, tuple[float, int]], repr=False)
    omitted_characters: int = 0
    escalations: Escalations = Field(default=NO_ESCALATIONS, repr=False)
    spend: Spend = Spend()
    reused: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    judge_is_unusable: bool = False
    has_wrong_setting: bool = False

    @property
    def mean_score(self) -> float | None:
        """The mean score of the rows that have one; None if no row has."""
        return self.score_sum / self.scored if self.scored else None

    @property
    def tags(self) -> dict[str, float]:
        """The mean score of each tag, over the rows in which it has one."""
        return {tag: total / count for tag, (total, count) in self.tag_sums.items()}

    def with_result(self, graded: Graded) -> RunSummary:
        """Return this summary with one more row counted.

        Example:
            >>> RunSummary().with_result(Graded(Row("1", None, "row 1: `response` is empty"), None)).ungradable
            1
        """
        report, score = graded.report, graded.score
        is_complete = report is not None and graded.judge_error is None
        return self.model_copy(
            update={
                "submissions": self.submissions + 1,
                "graded": self.graded + is_complete,
                "passed": self.passed + bool(report and is_complete and report.passed),
                "failed": self.failed + (graded.judge_error is not None),
                "ungradable": self.ungradable + (report is None),
                "abstentions": self.abstentions + (report.cannot_assess_count if report else 0),
                "omitted_characters": self.omitted_characters + (report.omitted_characters if report else 0),
                "escalations": self.escalations + report.escalations if report else self.escalations,
                "score_sum": self.score_sum + (score or 0.0),
                "scored": self.scored + (score is not None),
                "tag_sums": self._add_tags(report.tags) if report and is_complete and report.tags else self.tag_sums,
            }
        )

    def _add_tags(self, scores: Mapping[str, float | None]) -> dict[str, tuple[float, int]]:
        sums = dict(self.tag_sums)
        for tag, score in scores.items():
            if score is not None and (tag in sums or len(sums) < _MAX_TAGS):
                total, count = sums.get(tag, (0.0, 0))
                sums[tag] = (total + score, count + 1)
        return sums
