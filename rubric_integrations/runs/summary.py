"""The results of a run: the grade of each row, and a summary of the run, in one line or as a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, NamedTuple

from pydantic import Field

from rubric_integrations._util.records import Record, html_table
from rubric_integrations.rubric.criterion import Criterion, describe_condition
from rubric_integrations.rubric.rubric import Node, Rubric
from rubric_integrations.scoring.judgment import NO_SPEND, Spend
from rubric_integrations.scoring.report import (
    NO_ESCALATIONS,
    CriterionReport,
    Escalations,
    EvaluationReport,
    ReplyModels,
    desirability,
    merge_models,
    tag_key,
)
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
        submissions: The submissions of the run. If they have a length, the bar shows their number and the remaining
            time.
        outage_seconds: Returns how long the run has been waiting for the judge's endpoint, in seconds, or None if it is
            not waiting.

    Yields:
        A function that updates the bar with the summary of the run so far.
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
        """The text after the numbers of the bar. It is redrawn several times a second, even while no result arrives."""

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
        spend.summary(), *escalated, rate,
    ]  # fmt: skip
    return ", ".join(parts)


def short_summary_line(summary: RunSummary) -> str:
    """Describe the results, the spend and the speed of a run so briefly that they fit next to a progress bar.

    The bar and the text together fit a line of 80 columns.

    Example:
        >>> from rubric_integrations.runs.summary import RunSummary
        >>> short_summary_line(RunSummary(submissions=10, failed=1, seconds=5.0))
        '1 failed, 0 abst., 0 tok, $0.00 2.0/s'
    """
    spend = summary.spend
    tokens = "tokens unknown" if spend.total_tokens is None else f"{spend.total_tokens:,} tok"
    at_least = ">=" if spend.is_lower_bound else ""
    cost = "$?" if spend.cost is None else f"{at_least}${spend.cost:.2f}"
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
        "submissions": summary.done,
        "mean score": None if summary.mean_score is None else round(summary.mean_score, 3),
        "passed": summary.passed,
        "failed": summary.failed,
        "abstentions": summary.abstentions,
        "calls": summary.spend.calls,
        "US dollars, at least" if summary.spend.is_lower_bound else "US dollars": summary.spend.cost,
    }
    if summary.escalations.judgments:
        cells["cascade"] = summary.escalations.summary()
    return html_table(summary.stopped or "Run so far", list(cells), [list(cells.values())])


# The rubrics of rows can have any number of different tags.
_MAX_TAGS = 1_000


class Graded(NamedTuple):
    """The result of a run for one row.

    Attributes:
        row: The row.
        report: The row's report. It is incomplete if `judge_error` is set, and None if the row had nothing to grade.
        judge_error: The first failure of a judge, if the grade is incomplete. None if no judge failed.
        rubric: The rubric that graded the row. None if the row had nothing to grade.
        grader: The settings of the grader that determine its scores (`Grader.scoring_record`). None if the row had
            nothing to grade.
        run: The `id` of the run and the number of its `rows`, for the first line of a run file. It is set in the first
            result and in each result whose row precedes all earlier ones. None in other results, and if the number is
            unknown.
    """

    row: Row
    report: EvaluationReport | None
    judge_error: str | None = None
    rubric: Rubric | None = None
    grader: Mapping[str, Any] | None = None
    run: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        """Return one line, without the long texts of `row`, `report` and `rubric`."""
        problem = self.judge_error or self.row.error
        state = f"error={problem!r}" if problem else f"passed={bool(self.report and self.report.passed)}"
        return f"Graded(id={self.row.id!r}, score={self.score}, {state})"

    @property
    def score(self) -> float | None:
        """The score of a complete grade. None if the grade is incomplete, or if the report has no score."""
        return self.report.score if self.report and not self.judge_error else None

    @property
    def gate_score(self) -> float | None:
        """The score that counts for a stop rule or a release gate.

        None if `score` is None, if the judge failed on a criterion, or if the coverage is below the rubric's
        `min_coverage`.
        """
        return self.report.gate_score if self.report and not self.judge_error else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row and the fields of its report as JSON values, as `grade --out` writes them."""
        row, report = self.row, self.report
        line: dict[str, Any] = {"id": row.id}
        line["submission"] = _stored(row.submission) if row.submission else None
        line |= report.model_dump(mode="json") if report else {"score": None, "passed": False, "error": row.error}
        if self.judge_error:
            # The criteria that were judged stay in the line, but a partial sum must not be mistaken for a grade.
            line |= {"score": None, "passed": False, "error": self.judge_error}
        line |= {name: value for name in ("labels", "metadata", "group") if (value := getattr(row, name)) is not None}
        rubric = self.rubric
        if self.grader:
            line["judge"] = ", ".join(self.grader["names"])
        if rubric and self.grader:
            line["scoring"] = {**record_rubric(rubric, report), "grader": self.grader}
        if self.run:
            line["run"] = dict(self.run)
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


_MAX_NAMES = 8


def unmet_criteria(graded: Graded) -> list[CriterionReport]:
    """Return the criteria that are not met, or not fully met.

    This includes penalties whose error is present.
    """
    criteria = graded.report.criteria if graded.report else ()
    return [row for row in criteria if (value := desirability(row)) is not None and value < 1]


def unassessed_criteria(graded: Graded) -> list[CriterionReport]:
    """Return the criteria with an abstention or a failure of a judge."""
    criteria = graded.report.criteria if graded.report else ()
    return [row for row in criteria if row.abstained or row.error is not None]


def names_text(criteria: list[CriterionReport]) -> str:
    """Return the names of criteria as text: at most eight names and, if there are more, the number of the others."""
    names = [row.name for row in criteria]
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def shortfall_text(graded: Graded) -> str:
    """Describe a row in one line: the reason why it has no grade, or its score and the criteria that are not met.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric, grade_many
        >>> rubric = Rubric([{"name": "answer", "requirement": "States 42", "check": {"number": 42}}])
        >>> [shortfall_text(graded) for graded in grade_many(["41"], rubric, PerCriterionGrader("offline"))]
        ['score 0.000; not met: answer']
    """
    if graded.report is None or graded.judge_error:
        return graded.judge_error or graded.row.error or "has no grade"
    score, bounds = graded.report.score, graded.report.score_range
    if bounds:
        low, high = bounds
        text = f"score {'undefined' if low is None else f'{low:.3f}'}..{high:.3f}"
    else:
        text = "score undefined" if score is None else f"score {score:.3f}"
    unmet = unmet_criteria(graded)
    parts = [text, f"not met: {names_text(unmet)}" if unmet else "", graded.report.missing_text]
    return "; ".join(filter(None, parts))


# Fields of a criterion that its answer depends on and that its entry in the report does not have.
_NOT_IN_REPORT = frozenset(
    ("min_score", "check", "applies_when", "context", "aspects", "examples", "aggregation", "needs", "judge")
)
# The largest number of characters of a recorded setting. Of longer settings, such as a document, the digest is
# recorded.
_MAX_SETTING = 200


def record_rubric(rubric: Rubric, report: EvaluationReport | None) -> dict[str, Any]:
    """Return the settings of a rubric that a score depends on and that the report does not have, as JSON for run files.

    Args:
        rubric: The rubric of the score.
        report: The report with the score. If the report is None or has no entries, it does not describe the criteria.
            The returned `rubric` then contains a digest of the criteria.

    Returns:
        A mapping with two keys. `rubric` contains the settings of the rubric. `criteria` contains additional fields of
        the criteria, by the name of the criterion. It is absent if no criterion has such fields. Fields that do not
        change a score, such as tags and metadata, are not included.
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
        fields = [
            criterion.model_dump_json(exclude={"tags", "metadata", "name", "sensitive_to"})
            for criterion in rubric.criteria
        ]
        settings["criteria"] = _brief(sorted(fields))
    return {"rubric": settings, **({"criteria": criteria} if criteria else {})}


def _group_text(node: Node, rubric: Rubric) -> str:
    """Describe a group with all its contents. The text does not depend on the order of the children."""
    if node.leaf is not None:
        return json.dumps([node.weight, rubric.criteria[node.leaf].full_requirement])
    return json.dumps([node.weight, node.penalty_cap, sorted(_group_text(child, rubric) for child in node.children)])


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(text) <= _MAX_SETTING:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _texts_of(criterion: Criterion) -> dict[str, Any]:
    """Return the `CRITERION_TEXTS` of a criterion. Annotators of the run can then read the same texts as the judge."""
    texts: dict[str, Any] = {}
    if criterion.applies_when is not None:
        texts["applies_when"] = describe_condition(criterion.applies_when)
    if criterion.context is not None:
        texts["context"] = criterion.context
    if criterion.aspects:
        texts["aspects"] = [aspect.model_dump(mode="json") for aspect in criterion.aspects]
    return texts


def _stored(submission: Submission) -> dict[str, Any]:
    """Return a submission as a run file stores it: with small attachments, and with a description of large ones."""
    fields = submission.model_dump(mode="json", exclude_none=True, exclude={"attachments"})
    attachments = store_attachments(submission.attachments)
    if attachments:
        fields["attachments"] = [attachment.model_dump(mode="json") for attachment in attachments]
    return fields


class RunSummary(Record):
    """Counts, sums and spend of a run so far.

    Attributes:
        submissions: The number of finished rows, with or without a grade.
        rows: The number of submissions that the run was given. None if it is unknown, for example for a generator.
        graded: The number of rows with a complete grade.
        passed: The number of rows with a complete grade that passed.
        failed: The number of rows whose grade is incomplete because a judge failed.
        ungradable: The number of rows that had nothing to grade.
        abstentions: The number of criteria, over all rows, on which a judge abstained.
        score_sum: The sum of the scores of the `scored` rows.
        scored: The number of rows with a score.
        models: The models that the replies of each judge name: up to ten, by the judge's name. A single judge, also the
            cheap judge of a cascade, has the name "". With two models of one judge, not one model judged the run.
        tag_sums: For each tag, the sum of its scores and their number. Only the first 1,000 tags of a run are counted.
        omitted_characters: The number of characters of trajectories, over all rows, that were left out of the judge's
            prompt (see `TextLimits.step_limit`).
        escalations: For runs with a `Cascade`: the number and the cost of all its answers, and of the answers that its
            expensive judge gave.
        spend: Calls, tokens and cost of this run, including failed attempts. Judgments from the ledger cost nothing.
            `usage` or `cost` is None if the tokens or the price of a call are unknown.
        spend_of_all_starts: `spend`, and the spend of the judgments that came from the ledger when they were requested.
            Requests without a stored judgment, which an earlier start of this run has made, are not included.
        reused: The number of judgments that came from the ledger.
        seconds: The time since the run began, in seconds.
        stopped: The reason why the run ended before all rows were graded: a limit, or the decision of `stop_when`. None
            if the run did not end early.
        judge_is_unusable: Whether the run ended because the judge is down, refuses every call, or never gives a
            readable reply.
        has_wrong_setting: Whether the run ended because a setting of the judge is wrong and prevents every request.
    """

    submissions: int = 0
    rows: int | None = None
    graded: int = 0
    passed: int = 0
    failed: int = 0
    ungradable: int = 0
    abstentions: int = 0
    score_sum: float = 0.0
    scored: int = 0
    models: ReplyModels = Field(default_factory=dict[str, tuple[str, ...]])
    tag_sums: dict[str, tuple[float, int]] = Field(default_factory=dict[str, tuple[float, int]], repr=False)
    omitted_characters: int = 0
    escalations: Escalations = Field(default=NO_ESCALATIONS, repr=False)
    spend: Spend = Spend()
    spend_of_all_starts: Spend = Field(default=NO_SPEND, repr=False)
    reused: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    judge_is_unusable: bool = False
    has_wrong_setting: bool = False

    @property
    def done(self) -> str:
        """The number of finished rows, and the number of all rows if some are missing, such as "65 of 200"."""
        rows = self.rows or 0
        return f"{self.submissions:,}" + (f" of {rows:,}" if self.submissions < rows else "")

    @property
    def mean_score(self) -> float | None:
        """The mean score of the rows that have a score, or None if no row has one."""
        return self.score_sum / self.scored if self.scored else None

    @property
    def tags(self) -> dict[str, float]:
        """The mean score of each tag, over the rows that have a score for the tag."""
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
                "models": merge_models(self.models, report.reply_models) if report else self.models,
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
