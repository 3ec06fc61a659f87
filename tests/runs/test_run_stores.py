"""A run takes any store of judgments as its ledger, and does without what that does not record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, grade_many
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import Grader, PerCriterionOneShotGrader
from rubric_integrations.judges import BatchResult, Question
from rubric_integrations.judges.store import Lease
from rubric_integrations.runs import open_ledger
from rubric_integrations.scoring import JudgeFailure, Judgment
from tests.fakes import batch_of
from tests.runs.scripted import SMALL_RUBRIC, InstantJudge, texts


class DictStore:
    """Stores judgments in memory."""

    def __init__(self) -> None:
        self.judgments: dict[str, Judgment] = {}

    @asynccontextmanager
    async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
        yield DictLease(self.judgments, {key: self.judgments[key] for key in keys if key in self.judgments})


class DictLease:
    def __init__(self, judgments: dict[str, Judgment], stored: Mapping[str, Judgment]):
        self._judgments, self.stored = judgments, stored

    def is_held(self) -> bool:
        return True

    async def store(self, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        self._judgments.update(judgments)
        return judgments

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        pass


def test_store_of_the_users_own_has_the_judgments_and_nobody_closes_it() -> None:
    judge, store = InstantJudge(), DictStore()
    grader = PerCriterionGrader(judge)
    runs = [grade_many(texts(4), SMALL_RUBRIC, grader, ledger=store, max_calls=12) for _ in range(2)]
    for run in runs:
        assert [graded.score for graded in run] == [1.0] * 4
        assert run.summary.stopped is None
    assert judge.calls == len(store.judgments) == 12
    assert (runs[1].summary.spend.calls, runs[1].summary.reused) == (0, 0)


class ChangingJudge:
    """Answers at once with the verdict that it has now, on which its fingerprint depends."""

    def __init__(self) -> None:
        self.verdict, self.fingerprints = "MET", 0

    def fingerprint(self) -> str:
        self.fingerprints += 1
        return self.verdict

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        return batch_of(dict.fromkeys(questions, self.verdict))

    async def judge(self, question: Question) -> Judgment:
        return (await self.judge_batch({1: question})).answers[1]


@pytest.mark.parametrize("make_grader", [PerCriterionGrader, PerCriterionOneShotGrader])
async def test_judge_that_is_changed_between_two_grades_gets_keys_of_its_own(
    make_grader: Callable[[Any], Grader],
) -> None:
    judge = ChangingJudge()
    grader = make_grader(judge).with_store(DictStore())
    for judge.verdict, score in (("MET", 1.0), ("UNMET", 0.0), ("MET", 1.0)):
        assert (await SMALL_RUBRIC.grade("kind", grader=grader)).score == score


async def test_fingerprint_is_computed_once_for_all_questions_about_a_submission(tmp_path: object) -> None:
    judge = ChangingJudge()
    with open_ledger(f"{tmp_path}/run.sqlite") as ledger:
        grader = PerCriterionGrader(judge).with_store(ledger)
        judge.fingerprints = 0
        await SMALL_RUBRIC.grade("kind", grader=grader)
        assert (judge.fingerprints, ledger.stored) == (1, 3)


def test_named_run_with_a_store_that_does_not_count_is_refused() -> None:
    run = grade_many(["a"], SMALL_RUBRIC, PerCriterionGrader(InstantJudge()), ledger=DictStore(), run="nightly")
    with pytest.raises(TypeError, match="`run` needs a `ledger` that counts what its processes spend, got DictStore"):
        list(run)


def test_metric_takes_the_address_of_a_ledger_as_its_store(tmp_path: object) -> None:
    judge, path = InstantJudge(), f"{tmp_path}/run.sqlite"
    for _ in range(2):
        metric = RubricMetric(SMALL_RUBRIC, grader=PerCriterionGrader(judge), ledger=path)
        assert metric({}, {"response": "kind"}) == 1.0
    assert judge.calls == 3
    with open_ledger(path) as ledger:
        assert len(ledger) == 3
