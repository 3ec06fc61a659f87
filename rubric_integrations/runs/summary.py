"""What a run gives: a grade for each row, and a summary of all so far."""

from __future__ import annotations

from typing import Any, NamedTuple

from rubric_integrations._util.records import Record
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.results.usage import Spend
from rubric_integrations.submission.files import Row


class Graded(NamedTuple):
    """What became of one row.

    Attributes:
        row: The row.
        report: Its grade; incomplete where `judge_error` is set, None where the row could not be graded.
        judge_error: Why the grade could not be completed.
    """

    row: Row
    report: EvaluationReport | None
    judge_error: str | None = None

    @property
    def score(self) -> float | None:
        """The score of a complete grade; None where there is none."""
        return self.report.score if self.report and not self.judge_error else None

    def to_dict(self) -> dict[str, Any]:
        """The row and its report's own fields as JSON: a line of `grade --out`."""
        row, report = self.row, self.report
        line: dict[str, Any] = {"id": row.id}
        line["submission"] = row.submission.model_dump(mode="json", exclude_none=True) if row.submission else None
        line |= report.model_dump(mode="json") if report else {"score": None, "passed": False, "error": row.error}
        if self.judge_error:
            # What was found is kept, but a partial sum must not pass for a grade.
            line |= {"score": None, "passed": False, "error": self.judge_error}
        return line


class RunSummary(Record):
    """A run so far.

    Attributes:
        submissions: Rows that came to an end, whichever.
        graded: Those with a complete grade.
        passed: Those that passed.
        failed: Those that a judge failed at.
        ungradable: Those in which there was nothing to grade.
        abstentions: Criteria that were abstained from.
        score_sum: The sum of the scores there are.
        scored: How many there are.
        spend: What this run paid for, failed attempts included.
        reused: Judgments that came from the ledger.
        seconds: Since the run began.
        stopped: Why it ended before its time; None where it did not.
    """

    submissions: int = 0
    graded: int = 0
    passed: int = 0
    failed: int = 0
    ungradable: int = 0
    abstentions: int = 0
    score_sum: float = 0.0
    scored: int = 0
    spend: Spend = Spend()
    reused: int = 0
    seconds: float = 0.0
    stopped: str | None = None

    @property
    def mean_score(self) -> float | None:
        """The mean of the scores there are."""
        return self.score_sum / self.scored if self.scored else None
