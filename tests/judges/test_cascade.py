"""A cheap judge first, and an expensive one only where the cheap one is not sure."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Mapping
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion
from rubric_integrations.judges import BatchResult, Cascade, LMJudge, OfflineJudge, Question
from rubric_integrations.judges.thresholds import is_kept
from rubric_integrations.scoring import JudgeFailure, Judgment, LabelledJudgment, Spend
from rubric_integrations.submission import Submission
from tests.fakes import FakeBatchJudge, FakeJudge, FakeModel
from tests.judges.questions import BINARY, CHOICE, UNMET_REPLY

QUESTION = Question(Submission(response="It is the Rhine."), BINARY)
CHEAP, STRONG = Spend(calls=1, cost=0.01), Spend(calls=1, cost=0.5)


def sure(confidence: float | None, verdict: str = "MET", *, spend: Spend = CHEAP) -> Judgment:
    value = {"MET": 1.0, "UNMET": 0.0}.get(verdict)
    return Judgment(verdict=verdict, value=value, confidence=confidence, reason="cheap", spend=spend)


def answering(answer: Judgment | Exception) -> FakeJudge:
    return FakeJudge(answer if isinstance(answer, Exception) else lambda _: answer)


def ask(cascade: Cascade, question: Question = QUESTION) -> Judgment:
    return asyncio.run(cascade.judge(question))


STRONG_ANSWER = Judgment(verdict="UNMET", value=0.0, reason="strong", spend=STRONG)
NOT_SURE = [
    pytest.param(sure(0.79), id="below the threshold"),
    pytest.param(sure(None), id="no confidence"),
    pytest.param(sure(0.99, "CANNOT_ASSESS"), id="abstention"),
    pytest.param(JudgeFailure("parse", "garbage", spend=CHEAP), id="failure"),
]


@pytest.mark.parametrize("cheap", NOT_SURE)
def test_answer_that_is_not_sure_is_escalated_and_both_are_paid(cheap: Judgment | Exception) -> None:
    judgment = ask(Cascade(answering(cheap), answering(STRONG_ANSWER), 0.8))
    assert (judgment.verdict, judgment.reason, judgment.escalated) == ("UNMET", "strong", True)
    assert judgment.spend == CHEAP + STRONG
    assert judgment.escalation_cost == 0.5


@pytest.mark.parametrize("confidence", [0.8, 0.95, 1.0])
def test_sure_answer_is_kept_and_the_expensive_judge_is_not_asked(confidence: float) -> None:
    strong = answering(STRONG_ANSWER)
    judgment = ask(Cascade(answering(sure(confidence)), strong, 0.8))
    assert (judgment.verdict, judgment.reason, judgment.escalated) == ("MET", "cheap", False)
    assert (judgment.spend, judgment.escalation_cost, strong.questions) == (CHEAP, 0.0, [])


@pytest.mark.parametrize("cheap", NOT_SURE)
def test_failure_of_the_expensive_judge_is_a_failure_and_never_the_cheap_answer(cheap: Judgment | Exception) -> None:
    broken = JudgeFailure("transport", "no reply", retryable=True, spend=STRONG)
    with pytest.raises(JudgeFailure, match="no reply") as error:
        ask(Cascade(answering(cheap), answering(broken), 0.8))
    assert error.value.spend == CHEAP + STRONG
    assert broken.spend == STRONG


def test_abstention_of_the_expensive_judge_is_the_answer() -> None:
    abstention = Judgment(verdict="CANNOT_ASSESS", value=None, reason="strong")
    assert ask(Cascade(answering(sure(0.1)), answering(abstention), 0.8)).value is None


def test_two_cheap_judges_that_agree_are_kept_without_a_confidence() -> None:
    strong = answering(STRONG_ANSWER)
    judgment = ask(Cascade([answering(sure(None)), answering(sure(None))], strong, 0))
    assert (judgment.verdict, judgment.escalated, judgment.spend) == ("MET", False, CHEAP + CHEAP)
    assert strong.questions == []


@pytest.mark.parametrize("second", [sure(0.9, "UNMET"), sure(0.9, "CANNOT_ASSESS"), JudgeFailure("parse", "x")])
def test_two_cheap_judges_that_differ_are_escalated(second: Judgment | Exception) -> None:
    assert ask(Cascade([answering(sure(0.9)), answering(second)], answering(STRONG_ANSWER), 0)).escalated


def test_second_cheap_judge_is_not_asked_once_the_question_is_escalated() -> None:
    second = answering(sure(0.9))
    assert ask(Cascade([answering(sure(0.3)), second], answering(STRONG_ANSWER), 0.8)).escalated
    assert second.questions == []


def test_cascade_may_be_the_expensive_judge_of_another() -> None:
    inner = Cascade(answering(sure(0.6)), answering(STRONG_ANSWER), 0.5)
    judgment = ask(Cascade(answering(sure(0.1)), inner, 0.8))
    assert (judgment.reason, judgment.escalated, judgment.escalation_cost) == ("cheap", True, 0.01)


def test_threshold_of_a_certificate_without_one_is_refused() -> None:
    with pytest.raises(ValueError, match="a certificate with this threshold certifies nothing"):
        Cascade(FakeJudge(), FakeJudge(), None)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), True, "0.8"])
def test_threshold_out_of_range_is_refused(threshold: Any) -> None:
    with pytest.raises(ValueError, match="`escalate_below` must be a confidence"):
        Cascade(FakeJudge(), FakeJudge(), threshold)


def test_model_as_cheap_judge_states_its_confidence_only_for_a_threshold() -> None:
    judges = [Cascade("openai/gpt-4.1-nano", "openai/gpt-4.1", threshold).cheap[0] for threshold in (0.8, 0)]
    assert [judge.confidence for judge in judges if isinstance(judge, LMJudge)] == [True, False]


@pytest.mark.parametrize("cheap", [LMJudge("openai/gpt-4.1-nano"), "offline"])
def test_cheap_judge_that_states_no_confidence_is_refused_with_a_threshold(cheap: Any) -> None:
    with pytest.raises(ValueError, match=r"states no confidence, so that `escalate_below=0\.8` would escalate"):
        Cascade(cheap, FakeJudge(), 0.8)


def test_judges_that_always_give_the_same_answer_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'openai/gpt-4\.1-nano' twice at temperature 0"):
        Cascade(["openai/gpt-4.1-nano"] * 2, FakeJudge(), 0)
    with pytest.raises(ValueError, match="are the same judge"):
        Cascade("openai/gpt-4.1", LMJudge("openai/gpt-4.1", confidence=True), 0.8)
    sampled = LMJudge("openai/gpt-4.1-nano", temperature=0.7)
    assert len(Cascade([sampled, sampled], FakeJudge(), 0).cheap) == 2
    with pytest.raises(ValueError, match="`cheap` is empty"):
        Cascade([], FakeJudge(), 0)


def test_fingerprint_covers_every_judge_and_the_threshold() -> None:
    def fingerprint(cheap: str | None = "a", strong: str = "b", threshold: float = 0.8) -> str | None:
        return Cascade(FakeJudge(fingerprint=cheap), FakeJudge(fingerprint=strong), threshold).fingerprint()

    others = [fingerprint("c"), fingerprint(strong="c"), fingerprint(threshold=0.9)]
    assert fingerprint() == fingerprint()
    assert len({fingerprint(), *others}) == 4
    assert fingerprint(None) is None


def test_pickled_and_copied_cascade_is_the_same_judge() -> None:
    cascade = Cascade("openai/gpt-4.1-nano", "openai/gpt-4.1", 0.8)
    for twin in (pickle.loads(pickle.dumps(cascade)), copy.copy(cascade), copy.deepcopy(cascade)):
        assert twin.fingerprint() == cascade.fingerprint()


def test_without_cache_with_examples_and_highest_cost_reach_all_judges() -> None:
    cached = dspy.LM("openai/gpt-4.1-nano", cache=True)
    cascade = Cascade(LMJudge(cached, confidence=True, framework_cache=True), "openai/gpt-4.1", 0.8)
    cheap = cascade.without_cache().cheap[0]
    assert isinstance(cheap, LMJudge)
    assert cheap.lm.cache is False
    example = LabelledJudgment(submission=QUESTION.submission, criterion=BINARY, verdict="MET")
    members = cascade.with_examples([example]).members
    assert [len(member.examples) for member in members if isinstance(member, LMJudge)] == [1, 1]
    assert cascade.fingerprint() != cascade.with_examples([example]).fingerprint()
    asyncio.run(cascade.prepare())
    costs = [member.highest_cost(1_000) for member in cascade.members if isinstance(member, LMJudge)]
    assert costs[0]
    assert costs[1]
    assert cascade.highest_cost(1_000) == costs[0] + costs[1]
    assert Cascade(FakeJudge(), "openai/gpt-4.1", 0.8).highest_cost(1_000) is None
    with pytest.raises(TypeError, match="OfflineJudge has no `with_examples`"):
        Cascade(OfflineJudge(), FakeJudge(), 0).with_examples([example])


def test_criterion_for_which_an_lm_judge_states_no_confidence_costs_no_cheap_call() -> None:
    strong = FakeJudge("plain")
    judgment = ask(Cascade("openai/gpt-4.1-nano", strong, 0.8), Question(QUESTION.submission, CHOICE))
    assert (judgment.verdict, judgment.escalated, judgment.spend.calls) == ("plain", True, 1)


def ask_batch(cascade: Cascade, numbers: int = 3) -> BatchResult:
    criteria = {number: Criterion(requirement=f"r{number}") for number in range(1, numbers + 1)}
    questions = {number: Question(QUESTION.submission, criterion) for number, criterion in criteria.items()}
    return asyncio.run(cascade.judge_batch(questions))


def batch(answers: Mapping[int, Judgment], spend: Spend, faults: Mapping[int, str] | None = None) -> BatchResult:
    return BatchResult(answers, faults or {}, spend)


def test_batch_asks_the_expensive_judge_once_about_the_escalated_questions_alone() -> None:
    cheap = FakeBatchJudge(batch({1: sure(0.9, spend=Spend()), 2: sure(0.2, spend=Spend())}, CHEAP, {3: "no answer"}))
    strong_answer = STRONG_ANSWER.model_copy(update={"spend": Spend()})
    strong = FakeBatchJudge(batch({2: strong_answer, 3: strong_answer}, STRONG))
    result = ask_batch(Cascade(cheap, strong, 0.8))
    assert (cheap.requests, strong.requests) == ([[1, 2, 3]], [[2, 3]])
    assert {number: answer.escalated for number, answer in result.answers.items()} == {1: False, 2: True, 3: True}
    assert {number: answer.escalation_cost for number, answer in result.answers.items()} == {1: 0.0, 2: 0.25, 3: 0.25}
    assert (result.faults, result.spend) == ({}, CHEAP + STRONG)


def test_batch_of_two_cheap_judges_escalates_what_they_differ_about() -> None:
    first = FakeBatchJudge(batch({1: sure(None), 2: sure(None), 3: sure(None, "CANNOT_ASSESS")}, CHEAP))
    second = FakeBatchJudge(batch({1: sure(None), 2: sure(None, "UNMET")}, CHEAP))
    strong = FakeBatchJudge(batch({2: STRONG_ANSWER, 3: STRONG_ANSWER}, STRONG))
    result = ask_batch(Cascade([first, second], strong, 0))
    assert (second.requests, strong.requests) == ([[1, 2]], [[2, 3]])
    assert result.answers[1].escalated is False


def test_batch_keeps_sure_answers_if_the_expensive_judge_fails() -> None:
    broken = JudgeFailure("transport", "no reply", spend=STRONG)
    cheap = FakeBatchJudge(batch({1: sure(0.9), 2: sure(0.2)}, CHEAP, {3: "x"}))
    result = ask_batch(Cascade(cheap, FakeBatchJudge(broken), 0.8))
    assert list(result.answers) == [1]
    assert [(result.failure(number).kind, result.failure(number).message) for number in (2, 3)] == [
        ("transport", "no reply")
    ] * 2
    assert result.failure(2).spend == Spend()
    assert result.spend == CHEAP + STRONG
    with pytest.raises(JudgeFailure, match="no reply") as error:
        ask_batch(Cascade(FakeBatchJudge(JudgeFailure("parse", "x", spend=CHEAP)), FakeBatchJudge(broken), 0.8))
    assert error.value.spend == CHEAP + STRONG


def test_threshold_of_zero_keeps_every_verdict_and_no_abstention() -> None:
    assert is_kept(0.0, None, 0)
    assert not is_kept(None, 1.0, 0)
    assert not is_kept(1.0, float("nan"), 0.5)


@pytest.mark.parametrize(("confidence", "escalated"), [(0.9, False), (0.7, True)])
def test_language_model_that_states_its_confidence_decides_by_it(confidence: float, escalated: bool) -> None:
    verdict = {"probabilities": {"MET": 0.9, "UNMET": 0.1, "CANNOT_ASSESS": 0.0}, "confidence": confidence}
    cheap = LMJudge(FakeModel(json.dumps({"explanation": "cheap", "verdict": verdict})), confidence=True)
    strong = LMJudge(FakeModel(UNMET_REPLY))
    judgment = ask(Cascade(cheap, strong, 0.8))
    assert (judgment.verdict, judgment.escalated) == ("UNMET" if escalated else "MET", escalated)
