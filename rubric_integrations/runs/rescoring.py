"""What if the weights were others: a ledger scored by a new rubric, without a call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.graders import Grader, PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.graders.base import PanelMember
from rubric_integrations.judges.stored import Lease
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.ledger import Ledger, LedgerError
from rubric_integrations.scoring.formula import CannotAssess
from rubric_integrations.submission.files import Row

_GRADERS: dict[str, Any] = {
    kind.__name__: kind for kind in (PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader)
}


class Rescored(NamedTuple):
    """One submission by the new rubric.

    Attributes:
        row: What was graded.
        report: Its grade by what the ledger has; whole only where `missing` is 0.
        missing: How many judgments would have to be bought.
    """

    row: Row
    report: EvaluationReport
    missing: int

    @property
    def score(self) -> float | None:
        """The score; None where a judgment is missing: what is there does not tell it."""
        return None if self.missing else self.report.score


def rescore(ledger: Ledger, rubric: Rubric, cannot_assess: CannotAssess | None = None) -> Generator[Rescored]:
    """Score all that was graded with a ledger by a rubric, as the last run's grader would, without a call.

    New weights, names, pass marks, gates and option values cost nothing; new words are judgments that are missing.

    Args:
        ledger: The ledger of a run.
        rubric: The new rubric.
        cannot_assess: What an abstention counts; by default as in the run.

    Raises:
        LedgerError: The ledger has no run, or one of a grader of the user's own.
    """
    configuration = ledger.latest_grader()
    if configuration is None:
        raise LedgerError(f"`path` {str(ledger.path)!r} has no run: rescore the ledger of `grade_many` or of `grade`")
    if configuration["grader"] not in _GRADERS:
        raise LedgerError(
            f"the ledger's grader is {configuration['grader']!r}, not one of {sorted(_GRADERS)!r}: regrade it"
        )
    judges = [_Recorded(fingerprint) for fingerprint in configuration["judges"]]
    grader = _grader(configuration, judges, cannot_assess).with_store(_LookUp(ledger))
    for row_id, submission in ledger.submissions():
        before = sum(judge.missing for judge in judges)
        report = run_sync(grader.grade(rubric, submission))
        yield Rescored(Row(row_id, submission), report, sum(judge.missing for judge in judges) - before)


def _grader(
    configuration: Mapping[str, Any], judges: Sequence[_Recorded], cannot_assess: CannotAssess | None
) -> Grader:
    policies = configuration["policies"]
    strategies = policies["strategies"]
    grader: Grader = _GRADERS[configuration["grader"]](
        judges=judges, max_retries=0, on_failure="abstain", cannot_assess=cannot_assess or policies["cannot_assess"],
        partial_credit=policies["partial_credit"], normalize=policies["normalize"],
        auto_na_option=policies["may_abstain"], aggregation=strategies["binary"],
        ordinal_aggregation=strategies["ordinal"], nominal_aggregation=strategies["nominal"], **configuration["settings"],
    )  # fmt: skip
    seats = zip(judges, configuration["names"], configuration["weights"], strict=True)
    grader.panel = tuple(PanelMember(judge, name, weight) for judge, name, weight in seats)
    return grader


class _Recorded:
    """A judge that is no more than its fingerprint: what it has not said already, it cannot say."""

    def __init__(self, fingerprint: str):
        self._fingerprint = fingerprint
        self.missing = 0

    def fingerprint(self) -> str:
        return self._fingerprint

    async def judge(self, question: object) -> Judgment:
        raise self._absent(1)

    async def judge_batch(self, questions: Mapping[int, object]) -> Any:
        raise self._absent(len(questions))

    async def judge_overall(self, submission: object, rubric: object) -> Any:
        raise self._absent(1)

    def _absent(self, count: int) -> JudgeFailure:
        self.missing += count
        return JudgeFailure("config", "it is not in the ledger")


class _Found(NamedTuple):
    stored: Mapping[str, Judgment]

    async def store(self, judgments: Mapping[str, Judgment]) -> None:
        """Nothing is bought here."""

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        """That it is missing is not the judge's failure."""


class _LookUp:
    def __init__(self, ledger: Ledger):
        self._ledger = ledger

    @asynccontextmanager
    async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
        yield _Found(self._ledger.lookup(keys))
