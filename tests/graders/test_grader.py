"""What all graders share: settings, accepted inputs, faults under every policy, length penalties, event loops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from rubric_integrations import (
    Criterion,
    EvaluationReport,
    JudgeError,
    LengthPenalty,
    PerCriterionGrader,
    Rubric,
    Submission,
    grade_many,
)
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.graders import GRADERS, CallLimits
from rubric_integrations.judges import LMJudge
from rubric_integrations.judges.spend import SpendLimit
from tests.fakes import FakeJudge
from tests.graders.rubrics import FIVE_KINDS, ONE, SCORE, THREE, rubric_of, script_for_five_kinds
from tests.openai_server import OpenAIServer, Reply

WHOLE = "RubricAsJudgeGrader"


def test_five_kinds_of_criteria_have_the_same_score_under_each_grader(
    server: OpenAIServer, record_property: Any
) -> None:
    server.script = script_for_five_kinds
    lines = ["five kinds of criterion, one server:"]
    for name, grader in GRADERS.items():
        server.calls.clear()
        report = FIVE_KINDS.grade_sync(
            "Four words, no more.", grader=grader(LMJudge("openai/mock", api_base=server.url))
        )
        lines.append(
            f"{name:<25} score {report.score:.4f} raw {report.raw_score:.2f} judge's own {report.llm_raw_score:.2f} "
            f"calls {report.spend.calls} tokens {report.spend.total_tokens}"
        )
        assert report.spend.calls == len(server.calls) == (4 if name == "PerCriterionGrader" else 1)
        assert report.token_usage is not None
        assert report.token_usage.prompt_tokens == sum(len(call.prompt) // 4 for call in server.calls)
        if name == WHOLE:
            assert (report.score, report.llm_raw_score, report.report) == (0.8, 80.0, None)
            assert report.raw_score == pytest.approx(19.2)
        else:
            assert report.score == pytest.approx(SCORE)
            assert [row.verdict for row in report.criteria] == ["MET", "UNMET", "passable", "7", "MET"]
            assert [row.value for row in report.criteria] == [1.0, 0.0, 0.4, 0.7, 1.0]
    for line in lines:
        record_property("shown", line)


# -- faults, for every grader and policy

FAULTS = {
    "prose": "I think it is met.",
    "truncated": '{"explanation": "cut off he',
    "wrong answer": '{"explanation": "e", "verdict": "PARTLY", "judgments": [], "overall_score": 1000}',
    "NaN": '{"explanation": "e", "verdict": NaN, "judgments": NaN, "overall_score": NaN}',
    "empty": "",
    "refusal": "I'm sorry, but I can't help with that.",
    "duplicates": '{"verdict": "MET", "verdict": "UNMET", "judgments": [{"id": 1, "explanation": "", "answer": "MET"}, '
    '{"id": 1, "explanation": "", "answer": "MET"}], "overall_score": 1, "overall_score": 2}',
}
IN_A_CODE_BLOCK = (
    '```json\n{"explanation": "e", "verdict": "MET", "overall_score": 100, '
    '"judgments": [{"id": 1, "explanation": "e", "answer": "MET"}]}\n```'
)


@pytest.mark.parametrize("grader_name", GRADERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_handled_by_the_policy_under_each_grader(server: OpenAIServer, grader_name: str, fault: str) -> None:
    server.script = lambda _call: Reply(text=FAULTS[fault])
    judge = LMJudge("openai/mock", api_base=server.url)

    def grade(on_failure: Any) -> EvaluationReport:
        return ONE.grade_sync("text", grader=GRADERS[grader_name](judge, max_retries=0, on_failure=on_failure))

    with pytest.raises(JudgeError) as error:
        grade("raise")
    assert error.value.report.complete is False
    for policy, score in [("abstain", None), ("worst_case", 0.0), ({"positive": "MET"}, 1.0)]:
        report = grade(policy)
        assert (report.score, report.complete, report.failed_count) == (score, False, 1)
        assert (report.passed, report.coverage) == (False, 0.0)
        assert report.error


@pytest.mark.parametrize("grader_name", GRADERS)
def test_code_block_around_the_reply_is_accepted_by_each_grader(server: OpenAIServer, grader_name: str) -> None:
    server.script = lambda _call: Reply(text=IN_A_CODE_BLOCK)
    grader = GRADERS[grader_name](LMJudge("openai/mock", api_base=server.url))
    assert ONE.grade_sync("text", grader=grader).score == 1.0


# -- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "exactly one of `judge`"),
        ({"judge": "offline", "generate_fn": FakeJudge().judge}, "exactly one of"),
        ({"judge": "offline", "cannot_assess": "ignore"}, "'ignore'"),
        ({"judge": "offline", "cannot_assess": 2}, "cannot_assess"),
        ({"judge": "offline", "on_failure": "pass"}, "'pass'"),
        ({"judge": "offline", "default_fallback_verdicts": {"positive": "MAYBE"}}, "MAYBE"),
        ({"judge": "offline", "default_fallback_verdicts": {}, "on_failure": "abstain"}, "two names"),
        ({"judge": "offline", "max_retries": -1}, "max_retries"),
    ],
)
def test_invalid_setting_is_refused_when_the_grader_is_made(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PerCriterionGrader(**settings)


async def test_grade_without_a_grader_is_refused() -> None:
    for judge, fix in (("offline", "judge='offline'"), (FakeJudge(), r"judge=\.\.\.")):
        with pytest.raises(
            TypeError, match=f"`grader` must be a grader, got .*: pass `grader=PerCriterionGrader\\({fix}"
        ):
            THREE.grade_sync("text", cast("Any", judge))
        with pytest.raises(TypeError, match="`grader` must be a grader"):
            grade_many(["text"], THREE, cast("Any", judge))
    with pytest.raises(ValueError, match="`grader` is missing"):
        await THREE.grade("text")
    report = await THREE.grade(to_grade="text", query="q", autograder=PerCriterionGrader(FakeJudge()))
    assert report.complete


async def test_generate_of_a_subclass_replaces_the_users_function() -> None:
    class Polite(PerCriterionGrader):
        async def generate(self, system_prompt: str, user_prompt: str) -> str:
            return await super().generate(system_prompt + "\nPlease.", user_prompt)

    prompts: list[str] = []

    async def generate(system_prompt: str, _user_prompt: str) -> str:
        prompts.append(system_prompt)
        return '{"explanation": "e", "verdict": "MET"}'

    assert (await ONE.grade("text", grader=Polite(generate_fn=generate))).score == 1.0
    assert prompts[0].endswith("Please.")
    with pytest.raises(TypeError, match="made with `generate_fn`"):
        await Polite("offline").generate("s", "u")


# -- inputs


@pytest.mark.parametrize(
    ("to_grade", "error", "words"),
    [
        ("", ValueError, "empty"),
        (" \n", ValueError, "empty"),
        ({"thinking": "only"}, ValueError, "empty"),
        ("x" * 5_000_000, ValueError, "5,000,000 characters"),
        (None, TypeError, "NoneType"),
        (3, TypeError, "int"),
    ],
)
async def test_input_that_cannot_be_graded_is_refused_before_any_request(
    to_grade: Any, error: type[Exception], words: str
) -> None:
    judge = FakeJudge()
    with pytest.raises(error, match=words):
        await THREE.grade(to_grade, grader=PerCriterionGrader(judge))
    assert judge.questions == []


@pytest.mark.parametrize("nothing", ["  ", {"output": ""}, {"thinking": "hm", "output": " "}])
def test_empty_response_is_refused_with_one_line(nothing: Any) -> None:
    with pytest.raises(ValueError, match=r"^`response` is empty: there is nothing to grade$"):
        ONE.grade_sync(nothing, grader=PerCriterionGrader("offline"))


async def test_guidelines_query_and_reference_reach_the_judge() -> None:
    judge = FakeJudge()
    rubric = Rubric([Criterion(requirement="a")], guidelines="Be fair.")
    await rubric.grade({"thinking": "hm", "output": "text"}, PerCriterionGrader(judge), "q", "r")
    assert judge.questions[0].guidelines == "Be fair."
    assert judge.questions[0].submission == Submission(response="text", thinking="hm", query="q", reference="r")


# -- length penalties


def test_length_penalty_is_subtracted_last() -> None:
    rubric = Rubric([Criterion(requirement="r", weight=10)], pass_mark=0.8)
    penalty = LengthPenalty(free_budget=2, max_cap=4, penalty_at_cap=0.5)
    grader = PerCriterionGrader(FakeJudge("MET"), length_penalty=penalty)
    report = rubric.grade_sync("one two three four five", grader=grader)
    assert (report.score, report.raw_score, report.length_penalty, report.passed) == (0.5, 10.0, 0.5, False)
    assert rubric.grade_sync("one two", grader=grader).score == 1.0
    raw = PerCriterionGrader(
        FakeJudge("UNMET"), normalize=False, length_penalty=LengthPenalty(free_budget=2, max_cap=4, penalty_at_cap=50)
    )
    assert rubric.grade_sync("one two three four five", grader=raw).score == -50.0


@pytest.mark.parametrize("count", [-1, 2.5, True, None])
def test_count_function_that_returns_no_length_is_refused(count: Any) -> None:
    grader = PerCriterionGrader(FakeJudge("MET"), length_penalty=LengthPenalty(count_fn=lambda _text: count))
    with pytest.raises(ValueError, match="count_fn"):
        ONE.grade_sync("text", grader=grader)


# -- event loops


def test_grade_sync_works_in_threads_and_in_a_running_loop() -> None:
    grader = PerCriterionGrader(FakeJudge())
    scores: list[float | None] = []

    def grade() -> None:
        scores.append(rubric_of(3).grade_sync("text", grader=grader).score)

    threads = [threading.Thread(target=grade) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def inside_a_loop() -> float | None:
        return rubric_of(3).grade_sync("text", grader=grader).score

    scores.append(asyncio.run(inside_a_loop()))
    assert scores == [1.0] * 9


def test_one_grader_serves_several_loops() -> None:
    grader = PerCriterionGrader(FakeJudge(), limits=CallLimits(max_concurrency=1))
    for _ in range(3):
        assert asyncio.run(rubric_of(5).grade("text", grader=grader)).score == 1.0


def test_grade_sync_on_the_librarys_own_loop_is_refused() -> None:
    async def nested() -> None:
        ONE.grade_sync("text", grader=PerCriterionGrader(FakeJudge()))

    with pytest.raises(RuntimeError, match="await"):
        run_sync(nested())


# -- copies


def test_copies_of_a_grader_leave_the_original_unchanged() -> None:
    judge, other = FakeJudge(), FakeJudge("UNMET")
    grader = PerCriterionGrader(judge)
    assert ONE.grade_sync("text", grader=grader.with_judges([other])).score == 0.0
    assert ONE.grade_sync("text", grader=grader).score == 1.0
    assert grader.for_run(3, SpendLimit()).call_limiter.limits.max_concurrency == 3
    assert grader.call_limiter.limits == CallLimits()
    with pytest.raises(ValueError, match="zip"):
        grader.with_judges([judge, other])
