"""What is exported: no text of a submission without explanations, no secrets, and nothing that breaks an exporter."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge
from rubric_integrations.scoring import Judgment, NamedScore, Spend
from rubric_integrations.tracing.tracer import MAX_CHARS, event_attributes
from tests.fakes import FakeJudge
from tests.openai_server import Call, OpenAIServer, Reply
from tests.tracing.recorder import EXPLANATION, Recorder, attributes_of

CANARY = "canary-8f31"
KEY = "sk-key-77aa"
RUBRIC = Rubric([Criterion(name="kind", requirement="Is kind"), Criterion(name="right", requirement="Is right")])
SUBMISSION = Submission(
    response=f"{CANARY} response",
    thinking=f"{CANARY} thinking",
    query=f"{CANARY} query",
    reference=f"{CANARY} reference",
    context=(f"{CANARY} context",),
)


def reply_with_canary(call: Call) -> Reply:
    """Answer each form of question with a reason that has the canary."""
    answer: dict[str, Any] = {"explanation": CANARY, "verdict": "MET"}
    if "overall_score" in call.prompt:
        answer = {"explanation": CANARY, "overall_score": 80}
    return Reply(text=json.dumps(answer))


def judge_at(server: OpenAIServer) -> LMJudge:
    return LMJudge("openai/mock", api_base=server.url, api_key=KEY)


def grade(grader: Any, to_grade: Any = SUBMISSION) -> BaseException | None:
    try:
        RUBRIC.grade_sync(to_grade, grader)
    except ValueError as error:
        return error
    return None


@pytest.mark.parametrize("strategy", [PerCriterionGrader, RubricAsJudgeGrader])
def test_no_text_of_a_submission_or_a_reason_is_exported_without_explanations(
    strategy: Any, recorder: Recorder, server: OpenAIServer
) -> None:
    server.script = reply_with_canary
    assert grade(strategy(judge_at(server))) is None
    assert CANARY in recorder.exported_text()

    silent = Recorder()
    silent.instrument(explanations=False, openinference=True)
    assert grade(strategy(judge_at(server))) is None
    assert len(silent.spans) == 1
    assert CANARY not in silent.exported_text()
    assert not any(EXPLANATION in event for event in silent.events)


@pytest.mark.parametrize("strategy", [PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader])
def test_error_that_quotes_a_reply_is_not_exported_without_explanations(
    strategy: Any, server: OpenAIServer, recorder: Recorder
) -> None:
    recorder.instrument(explanations=False, openinference=True)
    server.script = lambda _call: Reply(text=f"I refuse: {CANARY}")
    error = grade(strategy(judge_at(server), max_retries=0))
    assert isinstance(error, JudgeError)
    assert CANARY in str(error)
    assert len(recorder.spans) == 1
    assert {event["error.type"] for event in recorder.events} <= {"JudgeError", "parse", "cancelled"}
    assert CANARY not in recorder.exported_text()


def test_error_without_a_kind_has_one_error_type_whatever_its_text() -> None:
    outcome = NamedScore(name="rubric.kind", kind="failure", weight=1.0, error=f"{CANARY}: so", explanation="so")
    assert event_attributes(outcome, None, explanations=False)["error.type"] == "judge_failure"


def test_error_about_the_input_is_not_exported_without_explanations(recorder: Recorder) -> None:
    recorder.instrument(explanations=False)
    error = grade(PerCriterionGrader(FakeJudge()), [{"role": CANARY, "nonsense": CANARY}])
    assert CANARY in str(error)
    assert attributes_of(recorder.spans[0])["error.type"] == type(error).__qualname__
    assert CANARY not in recorder.exported_text()


def test_run_exports_no_text_without_explanations(recorder: Recorder) -> None:
    recorder.instrument(explanations=False, openinference=True)
    judgment = Judgment(verdict="MET", value=1.0, reason=CANARY)
    rows = [{"id": CANARY, "response": CANARY, "metadata": {"note": CANARY}} for _ in range(3)]
    assert len(list(grade_many(rows, RUBRIC, PerCriterionGrader(FakeJudge(lambda _question: judgment))))) == 3
    assert len(recorder.spans) == 3
    assert CANARY not in recorder.exported_text()


@pytest.mark.parametrize("status", [200, 401, 400])
def test_key_of_the_judge_is_not_exported(status: int, recorder: Recorder, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=status, text=f"the key {KEY} is wrong")
    recorder.instrument(openinference=True)
    grade(PerCriterionGrader(judge_at(server), max_retries=0))
    assert len(recorder.spans) == 1
    assert KEY not in recorder.exported_text()


def test_long_reason_and_half_an_emoji_are_exported_shortened_and_escaped(recorder: Recorder) -> None:
    judgment = Judgment(verdict="MET", value=1.0, reason="\ud83d" + "x" * 10**6, spend=Spend(cost=float("nan")))
    report = RUBRIC.grade_sync("Fine.", PerCriterionGrader(FakeJudge(lambda _question: judgment)))
    assert len(report.criteria[0].reason) > 10**6
    explanation = recorder.events[1][EXPLANATION]
    assert (explanation[:7], explanation[-1], len(explanation)) == ("\\ud83dx", "…", MAX_CHARS)
    assert "rubric.cost" not in attributes_of(recorder.spans[0])
    assert len(recorder.exported_text().encode()) < 60_000


def test_error_with_half_an_emoji_is_exported_escaped(recorder: Recorder) -> None:
    class Grader(PerCriterionGrader):
        async def judge(self, rubric: Rubric, submission: Submission) -> Any:
            raise ValueError("half \ud83d")

    assert grade(Grader("offline")) is not None
    assert recorder.spans[0].status.description == "half \\ud83d"
    recorder.exported_text().encode()


async def test_error_that_cannot_be_written_as_text_is_raised_all_the_same(recorder: Recorder) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise TypeError("no text")

    class Grader(PerCriterionGrader):
        async def judge(self, rubric: Rubric, submission: Submission) -> Any:
            await asyncio.sleep(0)
            raise MuteError

    with pytest.raises(MuteError):
        await RUBRIC.grade("Fine.", Grader("offline"))
    assert len(recorder.spans) == 1
