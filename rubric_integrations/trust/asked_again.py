"""Draws rows of a run, for `drift` and `noise`, and asks a judge about them, or about test cases, several times.

Of a run, only criteria that a judge answered are asked again. The rows are drawn by a hash of their text. Therefore,
each draw from the same run has the same rows, also when it is repeated next month.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from rubric_integrations._util.text import counted
from rubric_integrations.graders import Grader
from rubric_integrations.judges.spend import Prices
from rubric_integrations.judges.store import JudgmentStore
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow, RunFile
from rubric_integrations.runs.run import grade_many
from rubric_integrations.runs.summary import record_rubric
from rubric_integrations.scoring.judgment import NO_SPEND, Spend
from rubric_integrations.scoring.labels import submission_digest
from rubric_integrations.scoring.policies import CannotAssess
from rubric_integrations.scoring.report import CriterionReport, EvaluationReport
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.comparable_runs import recorded_part

# Fields of a criterion that a judge does not read.
_NOT_READ = frozenset(("min_score",))


class DrawnRow(NamedTuple):
    """A row of a run that is asked again.

    Attributes:
        row: The row of the run.
        submission: The row's submission.
        rubric: The criteria of the row that a judge answered, with the names in the run.
    """

    row: GradedRow
    submission: Submission
    rubric: Rubric

    def answered(self, report: EvaluationReport | None, cannot_assess: CannotAssess) -> GradedRow:
        """Return the row with the entries of a report about the drawn criteria, and the score of their answers.

        Args:
            report: The report of the run, or of a new grade. None if there is no new grade.
            cannot_assess: How an abstention is scored.
        """
        row = self.row._replace(scoring={"grader": recorded_part(self.row, "grader")})
        if report is None:
            return row._replace(report=None)
        names = self.rubric.keys
        # Whether a criterion is required decides only whether a row passes, and a criterion from the run lacks it.
        entries = tuple(
            entry.model_copy(update={"required": False}) for entry in report.criteria if entry.name in names
        )
        verdicts = [entry.verdict or "" for entry in entries if entry.was_judged]
        score = (
            self.rubric.compute_score(verdicts, cannot_assess=cannot_assess) if len(verdicts) == len(names) else None
        )
        update = {"report": entries, "score": score, "failed_count": sum(entry.error is not None for entry in entries)}
        return row._replace(report=report.model_copy(update=update))


def draw_rows(run: RunFile, rubric: Rubric | None, sample: int) -> tuple[list[DrawnRow], list[str]]:
    """Draw rows by a hash of their text, and return them with warnings about rows that cannot be asked again.

    Of rows with the same text and criteria, only the first can be drawn: a judge's answers about them may come from one
    request.

    Args:
        run: The run.
        rubric: The rubric of the run, or None to read the criteria from the run.
        sample: The largest number of rows.

    Raises:
        ValueError: No row can be asked again, `sample` is less than 1, `rubric` is another rubric than that of the run,
            or a judge read more of a criterion than the run has.
    """
    if sample < 1:
        raise ValueError(f"`sample` must be at least 1, got {sample!r}")
    drawable: dict[str, tuple[GradedRow, Submission]] = {}
    attached = textless = judged = 0
    for row in run.rows:
        entries = judged_entries(row.report)
        if not entries:
            continue
        judged += 1
        if row.submission is None:
            textless += 1
        elif row.attachments:
            attached += 1
        else:
            parts = [
                submission_digest(row.submission),
                row.submission.shown_thinking,
                *(e.requirement for e in entries),
            ]
            drawable.setdefault(sha256(repr(parts).encode()).hexdigest(), (row, row.submission))
    if not drawable:
        lacking = "no row has an answer of a judge to a criterion" if not judged else "no row has a text without files"
        raise ValueError(f"{run.name}: {lacking}: there is nothing to ask again; name a file that `grade --out` wrote")
    drawn = [
        DrawnRow(row, submission, _rubric_of(row, rubric)) for _, (row, submission) in sorted(drawable.items())[:sample]
    ]
    warnings = [
        f"{count:,} of {counted(judged, 'row')} cannot be asked again, because {reason}"
        for count, reason in ((textless, "the run lacks their texts"), (attached, "the run lacks their files"))
        if count
    ]
    return drawn, warnings


def judged_entries(report: EvaluationReport | None) -> list[CriterionReport]:
    """Return the entries of a report that a judge answered. A check is answered by code."""
    return [entry for entry in (report.criteria if report else ()) if entry.was_judged and not entry.computed]


def _rubric_of(row: GradedRow, rubric: Rubric | None) -> Rubric:
    """Return the criteria of a row that a judge answered, with the names in the run."""
    entries = judged_entries(row.report)
    if rubric is None:
        criteria = [_criterion_of(row, entry) for entry in entries]
        return Rubric(criteria, guidelines=row.guidelines or None)
    if rubric.instructions != row.guidelines:
        raise ValueError(
            f"`rubric` has other instructions than the rubric of the row {row.id!r}: the judge would be asked "
            "otherwise; pass the rubric of the run"
        )
    recorded = record_rubric(rubric, None).get("criteria", {})
    criteria = [
        _criterion_in(rubric, row, entry, recorded).model_copy(update={"name": entry.name}) for entry in entries
    ]
    return Rubric(criteria, guidelines=rubric.instructions or None)


def _criterion_of(row: GradedRow, entry: CriterionReport) -> Criterion:
    """Return the criterion of an entry, from the run alone."""
    lacking = recorded_part(row, "criteria").get(entry.name, {}).keys() - _NOT_READ
    if lacking:
        raise ValueError(
            f"the run does not have all that the judge read of the criterion `{entry.name}` "
            f"({', '.join(f'`{name}`' for name in sorted(lacking))}): pass the rubric of the run as `rubric` (in the "
            "shell --rubric FILE)"
        )
    return entry.to_criterion()


def _criterion_in(
    rubric: Rubric, row: GradedRow, entry: CriterionReport, recorded: Mapping[str, Mapping[str, object]]
) -> Criterion:
    """Find the criterion of an entry in a rubric, with the same answers and the same other fields."""
    same = [
        (key, criterion)
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)
        if criterion.full_requirement == entry.requirement
    ]
    key, criterion = next((pair for pair in same if pair[0] == entry.name), same[0] if same else ("", None))
    if criterion is None:
        raise ValueError(
            f"`rubric` lacks the criterion `{entry.name}` {entry.requirement!r} of the row {row.id!r}: pass the rubric "
            "of the run, or leave it out"
        )
    own, of_run = (
        {name: value for name, value in fields.items() if name not in _NOT_READ}
        for fields in (recorded.get(key, {}), recorded_part(row, "criteria").get(entry.name, {}))
    )
    answers = (criterion.options or (), criterion.scale if criterion.cap is None else None, criterion.cap)
    if row.scoring is not None and own != of_run:
        fields = sorted(name for name in own.keys() | of_run.keys() if own.get(name) != of_run.get(name))
        raise ValueError(f"the criterion `{key}` of `rubric` has other {' and '.join(fields)} than in the run")
    if tuple(answers) != (tuple(entry.options), entry.scale if entry.cap is None else None, entry.cap):
        raise ValueError(f"the criterion `{key}` of `rubric` has other answers than in the run")
    return criterion


class Asked(NamedTuple):
    """The answers of one repetition.

    Attributes:
        reports: The report of each row, or None if it has none. It is incomplete if the judge failed.
        spend: The spend of the requests.
        stopped: Why not all rows were asked, or None.
        is_unusable: Whether the judge could not be used at all.
    """

    reports: list[EvaluationReport | None]
    spend: Spend
    stopped: str | None
    is_unusable: bool


def ask_repeatedly(
    rows: Sequence[tuple[Submission, Rubric]],
    grader: Grader,
    repeats: int,
    *,
    store: JudgmentStore | None = None,
    first: int = 0,
    max_concurrency: int = 64,
    max_cost: float | None = None,
    max_calls: int | None = None,
    prices: Prices | None = None,
    progress: bool = False,
) -> list[Asked]:
    """Ask a judge about rows several times, without a cache. A limit that stops the run ends the repetitions.

    Args:
        rows: Pairs of a submission and its rubric.
        grader: The grader with the judge.
        repeats: How often each row is asked.
        store: The store of the answers, or None to store none. A stored answer is not requested again.
        first: The number of the first answers in the store. Answers with other numbers are independent.
        max_concurrency: The largest number of concurrent calls.
        max_cost: The largest cost of all requests, in US dollars.
        max_calls: The largest number of calls.
        prices: The prices of models (see `grade_many`).
        progress: Whether to show a progress bar.

    Returns:
        The answers of each repetition. Fewer than `repeats` if a limit stopped the run.
    """
    uncached = grader.without_cache()
    named = [Row(str(place), submission, rubric=None) for place, (submission, _) in enumerate(rows)]
    passes: list[Asked] = []
    spent = NO_SPEND
    for number in range(repeats):
        run = grade_many(
            named, lambda row: rows[int(row.id)][1],
            uncached if store is None else uncached.with_store(store, first + number),
            max_concurrency=max_concurrency, progress=progress,
            max_cost=None if max_cost is None else max(0.0, max_cost - (spent.cost or 0.0)),
            max_calls=None if max_calls is None else max(0, max_calls - spent.calls), prices=prices,
        )  # fmt: skip
        reports: list[EvaluationReport | None] = [None] * len(rows)
        for graded in run:
            reports[int(graded.row.id)] = graded.report
        summary = run.summary
        spent, stopped = spent + summary.spend, summary.stopped
        if stopped and number and not summary.judge_is_unusable:
            stopped = f"{stopped}; the first answers had used the rest"
        passes.append(Asked(reports, summary.spend, stopped, summary.judge_is_unusable))
        if stopped:
            break
    return passes
