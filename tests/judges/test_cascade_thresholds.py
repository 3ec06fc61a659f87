"""A cascade with thresholds: abstentions without an expensive judge, requests, stored judgments and records."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.judges import BatchResult, Cascade, CriterionThresholds, DecisionJudge, Question, Thresholds
from rubric_integrations.judges.protocol import answers_independently
from rubric_integrations.judges.store import StoredJudge
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from rubric_integrations.scoring.labels import judgment_digest
from tests.fakes import FakeBatchJudge, FakeJudge, FakeStore, batch_of
from tests.graders.rubrics import rubric_of

UNIT = st.floats(0, 1)
CHEAP, STRONG = Spend(calls=1, cost=0.01), Spend(calls=1, cost=0.5)
SUBMISSION = Submission(response="It is the Rhine.")


class DecisionLikeJudge:
    """A judge that gives scripted probabilities of MET, by requirement. An exception is a fault."""

    independent_answers = True

    def __init__(self, probabilities: Mapping[str, float | Exception], fingerprint: str = "decision"):
        self.probabilities, self._fingerprint = probabilities, fingerprint
        self.requests: list[list[str]] = []

    def fingerprint(self) -> str:
        return self._fingerprint

    def _judgment(self, question: Question) -> Judgment:
        p = self.probabilities[question.criterion.requirement]
        if isinstance(p, Exception):
            raise p
        verdict, value = ("MET", 1.0) if p >= 0.5 else ("UNMET", 0.0)
        probabilities: dict[str, float] = {"MET": p, "UNMET": 1 - p}
        return Judgment(
            verdict=verdict, value=value, confidence=max(p, 1 - p), expected_value=p, probabilities=probabilities,
            spend=Spend(),
        )  # fmt: skip

    async def judge(self, question: Question) -> Judgment:
        self.requests.append([question.criterion.requirement])
        return self._judgment(question).model_copy(update={"spend": CHEAP})

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        self.requests.append([question.criterion.requirement for question in questions.values()])
        answers: dict[int, Judgment] = {}
        faults: dict[int, str | JudgeFailure] = {}
        for number, question in questions.items():
            try:
                answers[number] = self._judgment(question)
            except JudgeFailure as failure:
                faults[number] = failure
        return BatchResult(answers, faults, CHEAP)


def questions_of(count: int) -> dict[int, Question]:
    return {number: Question(SUBMISSION, Criterion(requirement=f"r{number}")) for number in range(count)}


def ask(judge: Any, questions: Mapping[int, Question]) -> BatchResult:
    return asyncio.run(judge.judge_batch(questions))


def limits(requirement: str, met: float | None, unmet: float | None) -> Thresholds:
    return Thresholds(criteria=(CriterionThresholds(requirement=requirement, met=met, unmet=unmet),))


def test_without_an_expensive_judge_an_answer_that_is_not_certain_is_an_abstention_with_its_reason() -> None:
    cascade = Cascade(DecisionLikeJudge({"r0": 0.95, "r1": 0.7, "r2": 0.01}), escalate_below=0.9)
    for ask_it in (ask, ask_singly):
        answers = ask_it(cascade, questions_of(3)).answers
        assert [answers[number].verdict for number in range(3)] == ["MET", "CANNOT_ASSESS", "UNMET"]
        assert (answers[1].value, answers[1].confidence, answers[1].escalated) == (None, None, False)
        assert answers[1].reason == "not certain: MET has the probability 0.7, and counts from 0.9"
        assert answers[1].probabilities == {"MET": 0.7, "UNMET": pytest.approx(0.3)}


def ask_singly(judge: Any, questions: Mapping[int, Question]) -> BatchResult:
    return BatchResult({n: asyncio.run(judge.judge(question)) for n, question in questions.items()}, {}, Spend())


def test_without_an_expensive_judge_a_failure_is_a_failure_and_never_an_abstention() -> None:
    refusal = JudgeFailure("parse", "refused", about_text=True)
    cascade = Cascade(DecisionLikeJudge({"r0": 0.95, "r1": refusal}), thresholds=Thresholds(pooled=0.9))
    result = ask(cascade, questions_of(2))
    assert (list(result.answers), result.faults[1]) == ([0], refusal)
    with pytest.raises(JudgeFailure, match="refused"):
        ask_singly(cascade, questions_of(2))
    broken = FakeBatchJudge(JudgeFailure("transport", "no reply", spend=CHEAP))
    with pytest.raises(JudgeFailure, match="no reply") as error:
        ask(Cascade(broken, escalate_below=0.9), questions_of(2))
    assert error.value.spend == CHEAP


def test_cheap_judges_that_differ_abstain_without_an_expensive_judge_and_say_so() -> None:
    judges = [DecisionLikeJudge({"r0": 0.9, "r1": 0.9}, "a"), DecisionLikeJudge({"r0": 0.1, "r1": 0.8}, "b")]
    for ask_it in (ask, ask_singly):
        answers = ask_it(Cascade(judges, escalate_below=0), questions_of(2)).answers
        assert answers[0].reason == "the cheap judges differ: MET and UNMET"
        assert [answers[number].verdict for number in range(2)] == ["CANNOT_ASSESS", "MET"]


def test_fitted_threshold_changes_the_verdict_and_not_what_is_stored() -> None:
    store = FakeStore()
    cheap = DecisionLikeJudge({"r0": 0.4})
    for thresholds, verdict in ((limits("r0", 0.3, 0.8), "MET"), (limits("r0", 0.9, 0.5), "UNMET")):
        cascade = Cascade(cheap, thresholds=thresholds).with_members(lambda judge: StoredJudge(judge, store))
        assert ask(cascade, questions_of(1)).answers[0].verdict == verdict
    assert len(cheap.requests) == 1
    [stored] = store.rows.values()
    assert stored.verdict == "UNMET"


@settings(max_examples=25)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=4), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=4)
)
def test_keys_of_stored_judgments_do_not_depend_on_thresholds(
    probabilities: list[float], own: list[tuple[float, float]]
) -> None:
    criteria = tuple(
        CriterionThresholds(requirement=f"r{n}", met=met, unmet=unmet) for n, (met, unmet) in enumerate(own)
    )
    cheap = DecisionLikeJudge({f"r{n}": p for n, p in enumerate(probabilities)})
    keys: list[list[str]] = []
    for judge in (cheap, Cascade(cheap, thresholds=Thresholds(pooled=0.7, criteria=criteria))):
        store = FakeStore()
        stored = judge.with_members(lambda member, store=store: StoredJudge(member, store)) if isinstance(
            judge, Cascade) else StoredJudge(judge, store)  # fmt: skip
        ask(stored, questions_of(len(probabilities)))
        keys.append(sorted(store.rows))
    assert keys[0] == keys[1]


def test_escalated_questions_are_single_requests_under_the_keys_of_a_run_of_the_expensive_judge() -> None:
    store, alone = FakeStore(), FakeStore()
    cheap, strong = DecisionLikeJudge({"r0": 0.99, "r1": 0.6, "r2": 0.4}), FakeBatchJudge(spend=STRONG, fingerprint="s")
    cascade = Cascade(cheap, strong, 0.9)
    assert answers_independently(cascade)
    stored = cascade.with_members(lambda judge: StoredJudge(judge, store))
    result = ask(stored, questions_of(3))
    assert (cheap.requests, strong.requests, strong.requirements) == ([["r0", "r1", "r2"]], [], ["r1", "r2"])
    assert {n: (a.escalated, a.escalation_cost) for n, a in result.answers.items()} == {
        0: (False, 0.0), 1: (True, 0.5), 2: (True, 0.5),
    }  # fmt: skip
    assert result.spend == CHEAP + STRONG + STRONG
    assert all(answer.spend == Spend() for answer in result.answers.values())
    ask_singly(StoredJudge(strong, alone), {1: questions_of(3)[1], 2: questions_of(3)[2]})
    assert set(alone.rows) < set(store.rows)
    ask(stored, questions_of(3))
    assert (len(cheap.requests), strong.requirements) == (1, ["r1", "r2"] * 2)


def test_independent_expensive_judge_gets_one_request_about_the_escalated_questions() -> None:
    cheap, strong = DecisionLikeJudge({"r0": 0.99, "r1": 0.6, "r2": 0.4}), DecisionLikeJudge({"r1": 1, "r2": 1}, "s")
    result = ask(Cascade(cheap, strong, 0.9), questions_of(3))
    assert strong.requests == [["r1", "r2"]]
    assert [result.answers[number].escalated for number in range(3)] == [False, True, True]


def test_failures_of_single_escalated_questions_keep_their_kind_and_the_others_their_answers() -> None:
    refusal = JudgeFailure("parse", "refused", about_text=True, spend=STRONG)
    strong = FakeJudge({"r1": refusal, "r2": "MET"}, spend=STRONG)
    result = ask(Cascade(DecisionLikeJudge({"r0": 0.99, "r1": 0.6, "r2": 0.6}), strong, 0.9), questions_of(3))
    assert sorted(result.answers) == [0, 2]
    failure = result.failure(1)
    assert (failure.kind, failure.message, failure.about_text, failure.spend) == ("parse", "refused", True, Spend())
    assert result.spend == CHEAP + STRONG + STRONG


def test_error_that_ends_a_run_is_raised_by_a_single_escalated_question() -> None:
    class Stop(BaseException):
        pass

    def stop(question: Question) -> Judgment:
        raise Stop

    with pytest.raises(Stop):
        ask(Cascade(DecisionLikeJudge({"r0": 0.6, "r1": 0.6}), FakeJudge(stop), 0.9), questions_of(2))


def test_one_shot_cascade_of_other_judges_still_sends_one_request() -> None:
    cheap = FakeBatchJudge(batch_of({0: "MET", 1: "CANNOT_ASSESS"}))
    strong = FakeBatchJudge(batch_of({1: "MET"}))
    cascade = Cascade(cheap, strong, 0)
    ask(cascade, questions_of(2))
    assert not answers_independently(cascade)
    assert strong.requests == [[1]]


def test_labels_that_were_used_mark_every_answer_to_their_questions() -> None:
    questions = questions_of(3)
    seen = [judgment_digest(SUBMISSION, questions[number].criterion) for number in (0, 1)]
    thresholds = Thresholds(pooled=0.9, trained_on=tuple(seen))
    cheap = DecisionLikeJudge({"r0": 0.99, "r1": 0.6, "r2": 0.99})
    for strong, ask_it in ((None, ask), (None, ask_singly), (FakeJudge(), ask), (FakeJudge(), ask_singly)):
        answers = ask_it(Cascade(cheap, strong, thresholds=thresholds), questions).answers
        assert [answers[number].trained_on for number in range(3)] == [True, True, False]


RUBRIC = rubric_of(3)
ROWS = [{"id": str(number), "response": f"It is {number}."} for number in range(5)]


def grades(judge: Any, ledger: Any = None) -> list[list[str | None]]:
    run = grade_many(ROWS, RUBRIC, PerCriterionGrader(judge), ledger=ledger)
    return [[entry.verdict for entry in graded.report.criteria] for graded in run if graded.report]


@pytest.mark.parametrize("strong", [None, FakeJudge("MET", fingerprint="strong")])
def test_rescore_with_other_thresholds_makes_no_call_and_equals_a_new_run(tmp_path: Path, strong: Any) -> None:
    cheap = DecisionLikeJudge({"r0": 0.95, "r1": 0.6, "r2": 0.2})
    first, other = Thresholds(pooled=0.9), Thresholds(pooled=0.5, criteria=limits("r2", 0.1, 0.95).criteria)
    with Ledger(tmp_path / "run.sqlite") as ledger:
        before = grades(Cascade(cheap, strong, thresholds=first), ledger)
        count = len(cheap.requests)
        again = [[row.verdict for row in result.report.criteria] for result in rescore(ledger, RUBRIC)]
        after = list(rescore(ledger, RUBRIC, thresholds=other))
        assert len(cheap.requests) == count
        assert again == before
        assert all(result.missing == 0 for result in after)
        assert [[row.verdict for row in result.report.criteria] for result in after] == [["MET", "MET", "MET"]] * 5
        assert grades(Cascade(cheap, strong, thresholds=other), ledger)[0] == ["MET", "MET", "MET"]
        assert len(cheap.requests) == count


def test_rescore_gives_thresholds_to_a_run_of_the_cheap_judge_alone(tmp_path: Path) -> None:
    cheap = DecisionLikeJudge({"r0": 0.95, "r1": 0.6, "r2": 0.2})
    with Ledger(tmp_path / "run.sqlite") as ledger:
        assert grades(cheap, ledger)[0] == ["MET", "MET", "UNMET"]
        [result, *_] = rescore(ledger, RUBRIC, thresholds=Thresholds(pooled=0.9))
        assert [row.verdict for row in result.report.criteria] == ["MET", "CANNOT_ASSESS", "CANNOT_ASSESS"]
        longer = Rubric([*RUBRIC.criteria, Criterion(requirement="new")])
        assert [result.missing for result in rescore(ledger, longer, thresholds=Thresholds(pooled=0.9))] == [1] * 5


def test_record_of_a_run_has_the_thresholds_and_a_digest_of_the_labels(tmp_path: Path) -> None:
    cheap = DecisionLikeJudge({"r0": 0.95, "r1": 0.6, "r2": 0.2})
    thresholds = limits("r0", 0.9, 0.8).model_copy(update={"trained_on": ("a" * 32,)})
    with Ledger(tmp_path / "run.sqlite") as ledger:
        grades(Cascade(cheap, thresholds=thresholds), ledger)
        configuration = ledger.latest_grader()
        assert configuration is not None
        [recorded] = configuration["judges"]
        assert (recorded["cheap"], recorded["strong"], recorded["escalate_below"]) == (["decision"], None, 0.0)
        assert recorded["thresholds"]["criteria"] == [{"requirement": "r0", "met": 0.9, "unmet": 0.8}]
        assert len(recorded["thresholds"]["trained_on"]) == 32
        with pytest.warns(UserWarning, match="do not mark the answers that must not measure the judge"):
            list(rescore(ledger, RUBRIC))


def test_description_of_a_cascade_without_thresholds_is_as_before() -> None:
    def describe(make: Callable[..., Cascade], *settings: Any, **more: Any) -> Any:
        return make(FakeJudge(fingerprint="a"), FakeJudge(fingerprint="b"), *settings, **more).describe()

    assert describe(Cascade, 0.8) == {"cheap": ["a"], "strong": "b", "escalate_below": 0.8}
    fingerprint = Cascade(FakeJudge(fingerprint="a"), FakeJudge(fingerprint="b"), 0.8).fingerprint()
    assert fingerprint == 'cascade {"cheap": ["a"], "strong": "b", "escalate_below": 0.8}'
    assert describe(Cascade, thresholds=Thresholds(pooled=0.8)) == describe(Cascade, 0.8)
    others: Sequence[Any] = [
        describe(Cascade, thresholds=value) for value in (limits("r0", 0.9, None), limits("r0", None, 0.9))
    ]
    assert others[0] != others[1]


def test_two_kinds_of_thresholds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`escalate_below` is 0\.8, and `thresholds` have their own"):
        Cascade(FakeJudge(), FakeJudge(), 0.8, Thresholds())
    with pytest.raises(ValueError, match="states no confidence"):
        Cascade("offline", thresholds=limits("r0", 0.9, None))


def test_thresholds_of_another_judge_are_warned_of_and_its_own_are_not() -> None:
    thresholds = Thresholds(judge="typesafe/jev-1.13.0", pooled=0.9)
    with pytest.warns(
        UserWarning, match="made for the judge 'typesafe/jev-1.13.0', and the cheap judge is .*gpt-6-luna"
    ):
        Cascade(DecisionJudge("gpt-6-luna", protocol="openai-decisions", api_key="k"), thresholds=thresholds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Cascade(DecisionJudge("jev-1.13.0", protocol="system-one", api_key="k"), thresholds=thresholds)
        Cascade(DecisionLikeJudge({}), thresholds=thresholds)
