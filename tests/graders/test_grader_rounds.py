"""Further rounds of a grade: only where they may help, with the best report and the spend of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import dspy
import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import Cascade, LMJudge
from rubric_integrations.judges.models.errors import FILTERED
from rubric_integrations.langchain import RubricRunnable
from rubric_integrations.scoring import EvaluationReport, JudgeFailure, Spend
from rubric_integrations.scoring.judgment import JudgeAnswers
from tests.fakes import FakeBatchJudge, FakeJudge, FakeOverallJudge, FakeStore, batch_of
from tests.graders.rubrics import rubric_of
from tests.openai_server import OpenAIServer, Reply

TEXT = Submission(response="text")


def unreadable() -> JudgeFailure:
    return JudgeFailure("parse", "prose", retryable=True, spend=Spend(calls=1))


async def test_grade_whose_replies_were_unreadable_is_completed_in_the_second_round() -> None:
    judge = FakeJudge({"r0": "MET", "r1": [*[unreadable() for _ in range(3)], "MET"]})
    report = await PerCriterionGrader(judge).grade(rubric_of(2), TEXT)
    assert (report.score, report.complete) == (1.0, True)
    assert report.spend.calls == len(judge.questions) == 5


@pytest.mark.parametrize(
    ("failure", "max_retries"), [(JudgeFailure("config", "wrong key"), 2), (JudgeFailure("parse", "prose"), 0)]
)
async def test_failure_that_a_second_round_cannot_help_or_may_not_has_one(
    failure: JudgeFailure, max_retries: int
) -> None:
    judge = FakeJudge(failure)
    with pytest.raises(JudgeError):
        await PerCriterionGrader(judge, max_retries=max_retries).grade(rubric_of(1), TEXT)
    assert len(judge.questions) == 1


async def test_reply_that_a_content_filter_stopped_has_no_second_round() -> None:
    filtered = JudgeFailure("parse", f"{FILTERED}: code 7", about_text=True, repeats=0)
    judge = FakeJudge({"r0": filtered, "r1": "MET"})
    with pytest.raises(JudgeError):
        await PerCriterionGrader(judge).grade(rubric_of(2), TEXT)
    assert len(judge.questions) == 2
    judge = FakeJudge({"r0": filtered, "r1": [*[unreadable() for _ in range(3)], "MET"]})
    report = await PerCriterionGrader(judge, on_failure="abstain").grade(rubric_of(2), TEXT)
    assert [row.verdict for row in report.criteria] == [None, "MET"]


async def test_incomplete_report_is_returned_with_the_spend_of_all_rounds() -> None:
    judge = FakeJudge({"r0": [unreadable(), "MET"], "r1": [unreadable()], "r2": ["MET", unreadable()]})
    grader = PerCriterionGrader(judge, max_retries=1, on_failure="abstain")
    report = await grader.grade(rubric_of(3), TEXT)
    assert [row.verdict for row in report.criteria] == ["MET", None, "MET"]
    assert report.spend.calls == len(judge.questions) == 7


@pytest.mark.parametrize(("unreadable_replies", "score"), [(4, 1.0), (5, None)])
def test_row_of_a_run_is_lost_only_after_three_rounds(unreadable_replies: int, score: float | None) -> None:
    judge = FakeJudge({"r0": [*[unreadable() for _ in range(unreadable_replies)], "MET"], "r1": "MET"})
    run = grade_many(["text"], rubric_of(2), PerCriterionGrader(judge))
    assert [graded.score for graded in run] == [score]
    assert run.summary.spend.calls == len(judge.questions)


async def test_round_of_a_grader_of_the_users_own_makes_one_attempt_and_counts_the_spend_of_all() -> None:
    class OwnGrader(PerCriterionGrader):
        async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[JudgeAnswers]:
            question = self.question(rubric, submission, 0, self.panel[0])
            try:
                judgment, lost = await self.call_limiter.call(partial(self.panel[0].judge.judge, question))
            except JudgeFailure as failure:
                return [JudgeAnswers({0: failure})]
            return [JudgeAnswers({0: judgment}, spend=lost)]

    judge = FakeJudge({"r0": [*[unreadable() for _ in range(4)], "MET"]})
    report = await OwnGrader(judge).grade(rubric_of(1), TEXT)
    assert (report.score, report.spend.calls, len(judge.questions)) == (1.0, 5, 5)


async def test_later_round_of_a_users_judge_that_calls_ours_requests_only_lost_judgments() -> None:
    class OwnGrader(PerCriterionGrader):
        async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[JudgeAnswers]:
            return list(await super().judge(rubric, submission))

    judge = FakeJudge({"r0": [*[unreadable() for _ in range(4)], "MET"], "r1": "MET"})
    report = await OwnGrader(judge).grade(rubric_of(2), TEXT)
    assert (report.score, report.spend.calls) == (1.0, 6)
    assert judge.requirements.count("r1") == 1


async def test_failure_of_an_unknown_kind_has_no_second_round() -> None:
    class OwnGrader(PerCriterionGrader):
        rounds = 0

        def aggregate(
            self, rubric: Rubric, submission: Submission, answers: Sequence[JudgeAnswers]
        ) -> EvaluationReport:
            type(self).rounds += 1
            return EvaluationReport(
                score=None, raw_score=None, passed=False, complete=False, coverage=0.0, failed_count=1, report=None,
                error="my own reason",
            )  # fmt: skip

    with pytest.raises(JudgeError, match="my own reason"):
        await OwnGrader(FakeJudge()).grade(rubric_of(1), TEXT)
    assert OwnGrader.rounds == 1


async def test_lost_condition_is_requested_again_and_then_its_criteria() -> None:
    rubric = Rubric([Criterion(requirement="r0", applies_when="it rains"), Criterion(requirement="r1")])
    judge = FakeJudge(lambda question: next(replies) if "it rains" in question.criterion.requirement else "MET")
    replies = iter([*[unreadable() for _ in range(3)], "MET"])
    report = await PerCriterionGrader(judge).grade(rubric, TEXT)
    assert (report.score, report.spend.calls, len(judge.questions)) == (1.0, 6, 6)
    assert judge.requirements.count("r1") == 1


async def test_further_round_of_a_panel_requests_only_lost_votes() -> None:
    panel = [FakeJudge({"r0": [*[unreadable() for _ in range(3)], "MET"], "r1": "MET"}) for _ in range(2)]
    report = await PerCriterionGrader(judges=panel).grade(rubric_of(2), TEXT)
    assert (report.score, report.spend.calls) == (1.0, 10)
    assert [judge.requirements.count("r1") for judge in panel] == [1, 1]


async def test_further_round_asks_each_judge_of_a_cascade_once() -> None:
    cheap, strong = FakeJudge("CANNOT_ASSESS"), FakeJudge(unreadable())
    with pytest.raises(JudgeError):
        await PerCriterionGrader(Cascade(cheap, strong, escalate_below=0)).grade(rubric_of(1), TEXT)
    assert (len(cheap.questions), len(strong.questions)) == (3, 5)


async def test_further_round_requests_what_a_batch_left_open_under_the_same_keys() -> None:
    judge = FakeBatchJudge(
        *[batch_of({1: "MET"}, {2: "no answer"}), batch_of({}, {2: "no answer"}), batch_of({2: "MET"})], fingerprint="f"
    )
    store = FakeStore()
    grader = PerCriterionOneShotGrader(judge).with_store(store)
    assert (await grader.grade(rubric_of(2), TEXT)).score == 1.0
    assert judge.requests == [[1, 2], [2], [2]]
    assert (await grader.grade(rubric_of(2), TEXT)).score == 1.0
    assert len(judge.requests) == 3


async def test_lost_score_of_the_whole_is_requested_five_times() -> None:
    judge = FakeOverallJudge(unreadable())
    report = await RubricAsJudgeGrader(judge, on_failure="abstain").grade(rubric_of(1), TEXT)
    assert (judge.requests, report.spend.calls) == (5, 5)


# -- at the server: five calls a criterion at most, whichever host grades

UNREADABLE = Reply(text='{"verdict": ')
QUESTION = dspy.Example(question="q").with_inputs("question")

HOSTS: dict[str, Callable[[PerCriterionGrader], object]] = {
    "grade_sync": lambda grader: rubric_of(1).grade_sync("text", grader=grader),
    "grade_many": lambda grader: list(grade_many(["text"], rubric_of(1), grader)),
    "RubricMetric": lambda grader: RubricMetric(rubric_of(1), grader=grader)(QUESTION, dspy.Prediction(answer="text")),
    "RubricRunnable": lambda grader: RubricRunnable(rubric_of(1), grader=grader).invoke({"output": "text"}),
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("max_retries", "calls"), [(0, 1), (1, 4), (2, 5)])
def test_unreadable_replies_are_requested_equally_often_in_every_host(
    server: OpenAIServer, host: str, max_retries: int, calls: int
) -> None:
    server.script = lambda _call: UNREADABLE
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url), max_retries=max_retries)
    with suppress(JudgeError):
        HOSTS[host](grader)
    assert len(server.calls) == calls


@pytest.mark.parametrize("host", HOSTS)
def test_fifth_reply_completes_a_grade_in_every_host(server: OpenAIServer, host: str) -> None:
    server.script = lambda call: UNREADABLE if call.number < 4 else Reply("MET")
    HOSTS[host](PerCriterionGrader(LMJudge("openai/mock", api_base=server.url)))
    assert len(server.calls) == 5
