"""Stored judgments: each is requested once, its key depends on all that could change it, and it is validated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, JudgeError, Option, PerCriterionGrader, Rubric, Scale, Submission
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import (
    GRADERS,
    CallLimits,
    Grader,
    OptionDisplay,
    PerCriterionOneShotGrader,
    RubricAsJudgeGrader,
)
from rubric_integrations.judges import JudgmentStore, LMJudge
from rubric_integrations.judges.store import Lease, StoredJudge
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from tests.fakes import FakeBatchJudge, FakeJudge, FakeOverallJudge, FakeStore, batch_of
from tests.judges.questions import BINARY, question_about
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric(
    [
        Criterion(name="kind", weight=5, requirement="Is kind"),
        Criterion(name="tone", weight=3, requirement="tone",
                  options=[Option(label="cold", value=0), Option(label="warm", value=1)]),
        Criterion(name="depth", weight=2, requirement="depth", scale=Scale(min=0, max=10)),
    ],
    guidelines="Be fair.",
)  # fmt: skip
KIND = Rubric([RUBRIC.criteria[0]])


def answer_script(call: Call) -> Reply:
    if "judgments" in call.prompt:
        answers = {1: "MET", 2: "A", 3: "7"}
        numbers = [i for i in answers if f"\n{i}. (" in call.prompt]
        entries = [{"id": i, "explanation": "so", "answer": answers[i]} for i in numbers]
        return Reply(text=json.dumps({"judgments": entries}))
    if "overall_score" in call.prompt:
        return Reply(text='{"explanation": "so", "overall_score": 62.5}')
    return Reply(text='{"explanation": "so", "verdict": "MET", "choice": "A", "score": 7}')


@pytest.mark.parametrize("grader_name", GRADERS)
def test_second_grade_makes_no_call_and_is_equal(server: OpenAIServer, grader_name: str) -> None:
    server.script = answer_script
    store = FakeStore()
    typed: JudgmentStore = store

    def grade(text: str = "Hello.", **settings: Any) -> Any:
        judge = LMJudge("openai/m", api_base=server.url)
        grader = GRADERS[grader_name](judge, **settings).with_store(typed)
        return RUBRIC.grade_sync(text, grader=grader, query="Greet.")

    first = grade()
    calls = len(server.calls)
    assert calls in (1, 3)
    assert grade() == first
    assert len(server.calls) == calls
    assert grade(cannot_assess="zero", length_penalty=None).score == first.score
    assert len(server.calls) == calls
    grade("Goodbye.")
    assert len(server.calls) == 2 * calls


def grade_with(server: OpenAIServer, store: FakeStore, rubric: Rubric = RUBRIC, **change: Any) -> Any:
    judge = LMJudge(
        change.get("model", "openai/m"),
        api_base=change.get("url", server.url),
        temperature=change.get("temperature"),
        system_prompt=change.get("system_prompt"),
    )
    grader = PerCriterionGrader(judge, options=OptionDisplay(shuffle=False)).with_store(store, change.get("sample", 0))
    return rubric.grade_sync(change.get("text", "Hello."), grader=grader, query=change.get("query"))


@pytest.mark.parametrize(
    "change",
    [
        {"text": "Hello!"}, {"query": "Greet."}, {"model": "openai/n"}, {"temperature": 0.5}, {"sample": 1},
        {"system_prompt": "Be strict."}, {"url": "http://localhost"},
    ],
)  # fmt: skip
def test_change_of_anything_that_may_change_an_answer_requests_it_again(
    server: OpenAIServer, change: dict[str, Any]
) -> None:
    server.script = answer_script
    if "url" in change:
        change = {"url": server.url.replace("127.0.0.1", "localhost")}
    store = FakeStore()
    grade_with(server, store)
    grade_with(server, store, **change)
    assert len(server.calls) == 6


def changed(position: int, **change: Any) -> Rubric:
    criteria = list(RUBRIC.criteria)
    criteria[position] = criteria[position].model_copy(update=change)
    return RUBRIC.model_copy(update={"criteria": tuple(criteria)})


@pytest.mark.parametrize(
    ("rubric", "more"),
    [
        (changed(0, requirement="Is very kind"), 1),
        (changed(0, weight=-5.0), 1),  # the requirement has become a penalty
        (changed(2, scale=Scale(min=0, max=20)), 1),
        (RUBRIC.model_copy(update={"guidelines": "Be strict."}), 3),
        (changed(0, weight=50.0), 0),
        (changed(0, name="kindness", required=True), 0),
        (RUBRIC.model_copy(update={"pass_mark": 0.1}), 0),
        (RUBRIC.model_copy(update={"criteria": tuple(reversed(RUBRIC.criteria))}), 0),
    ],
)
def test_key_contains_the_wording_and_neither_weights_names_nor_positions(
    server: OpenAIServer, rubric: Rubric, more: int
) -> None:
    server.script = answer_script
    store = FakeStore()
    grade_with(server, store)
    grade_with(server, store, rubric)
    assert len(server.calls) == 3 + more


def test_stored_choice_gets_the_value_that_its_option_has_now(server: OpenAIServer) -> None:
    server.script = answer_script
    store = FakeStore()
    assert grade_with(server, store).report[1].value == 0.0
    options = (Option(label="cold", value=0.5), Option(label="warm", value=1))
    assert grade_with(server, store, changed(1, options=options)).report[1].value == 0.5
    assert len(server.calls) == 3


def test_two_equal_judges_on_a_panel_give_two_answers(server: OpenAIServer) -> None:
    store = FakeStore()
    lm = dspy.LM("openai/m", api_base=server.url, api_key="none", cache=False)
    for _ in range(2):
        KIND.grade_sync("a", grader=PerCriterionGrader(judges=[lm, lm]).with_store(store))
    assert (len(server.calls), len(store.rows)) == (2, 2)


def test_batch_without_some_answers_is_completed_once_and_then_stored(server: OpenAIServer) -> None:
    def incomplete_at_first(call: Call) -> Reply:
        if call.number == 0:
            return Reply(text='{"judgments": [{"id": 1, "explanation": "so", "answer": "MET"}]}')
        return answer_script(call)

    server.script = incomplete_at_first
    store = FakeStore()
    grader = PerCriterionOneShotGrader(LMJudge("openai/m", api_base=server.url)).with_store(store)
    first = RUBRIC.grade_sync("Hello.", grader=grader)
    assert (len(server.calls), len(store.failures)) == (2, 2)
    again = RUBRIC.grade_sync("Hello.", grader=grader)
    assert len(server.calls) == 2
    assert again == first


def test_failure_is_recorded_and_its_question_requested_again(server: OpenAIServer) -> None:
    store = FakeStore()
    server.script = lambda call: Reply(status=401) if call.number == 0 else Reply()
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url)).with_store(store)
    with pytest.raises(JudgeError):
        KIND.grade_sync("Hello.", grader=grader)
    assert len(store.failures) == 1
    assert KIND.grade_sync("Hello.", grader=grader).score == 1.0


async def test_wait_for_the_lease_of_another_takes_no_slot_and_no_time_of_the_call() -> None:
    leased, other_is_done = asyncio.Event(), asyncio.Event()

    class BusyStore(FakeStore):
        @asynccontextmanager
        async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
            if not leased.is_set():
                leased.set()
                async with asyncio.timeout(20):
                    await other_is_done.wait()
                await asyncio.sleep(0.1)  # longer than the timeout
            yield self

    limits = CallLimits(max_concurrency=1, timeout=0.05)
    grader = PerCriterionGrader(FakeJudge(fingerprint="fake"), limits=limits, max_retries=0).with_store(BusyStore())
    waiting = asyncio.create_task(KIND.grade("Hello.", grader=grader))
    await leased.wait()
    assert (await KIND.grade("Bye.", grader=grader)).score == 1.0
    other_is_done.set()
    assert (await waiting).score == 1.0


# -- validation


def test_invalid_answer_of_a_judge_is_not_stored() -> None:
    store = FakeStore()
    maybe = Judgment(verdict="MAYBE", value=1.0)
    judges: dict[Any, FakeJudge] = {
        PerCriterionGrader: FakeJudge(lambda _question: maybe, fingerprint="f"),
        PerCriterionOneShotGrader: FakeBatchJudge(batch_of({1: "MAYBE"}), fingerprint="f"),
        RubricAsJudgeGrader: FakeOverallJudge(150, fingerprint="f"),
    }
    for grader, judge in judges.items():
        report = KIND.grade_sync("a", grader=grader(judge, on_failure="abstain", max_retries=0).with_store(store))
        assert report.failed_count == 1
    assert store.rows == {}
    assert {failure.kind for failure in store.failures} == {"parse"}


def test_stored_verdict_that_is_no_answer_is_a_parse_failure() -> None:
    store = FakeStore()
    judge = FakeJudge(fingerprint="f")
    grader = PerCriterionGrader(judge, on_failure="abstain").with_store(store)
    assert KIND.grade_sync("a", grader=grader).score == 1.0
    store.replace_all("YES")
    report = KIND.grade_sync("a", grader=grader)
    assert report.score is None
    assert report.criteria[0].error == (
        "parse: a stored judgment is not valid: 'YES' is no verdict: use MET, UNMET or CANNOT_ASSESS"
    )


def test_stored_verdict_in_another_form_becomes_canonical() -> None:
    store = FakeStore()
    grader = PerCriterionGrader(FakeJudge("UNMET", fingerprint="f")).with_store(store)
    KIND.grade_sync("a", grader=grader)
    store.replace_all("**Met.**")
    row = KIND.grade_sync("a", grader=grader).criteria[0]
    assert (row.verdict, row.value) == ("MET", 1.0)


@pytest.mark.parametrize("score", ["150", "nan", "-1"])
def test_stored_overall_score_out_of_range_is_a_parse_failure(score: str) -> None:
    store = FakeStore()
    grader = RubricAsJudgeGrader(FakeOverallJudge(50, fingerprint="f"), on_failure="abstain").with_store(store)
    assert KIND.grade_sync("a", grader=grader).score == 0.5
    store.replace_all(score)
    report = KIND.grade_sync("a", grader=grader)
    assert report.score is None
    assert "parse: the score" in (report.error or "")


def test_stored_batch_verdict_that_is_no_answer_is_a_parse_failure() -> None:
    store = FakeStore()
    judge = FakeBatchJudge(batch_of({1: "MET"}), fingerprint="f")
    grader = PerCriterionOneShotGrader(judge, on_failure="abstain").with_store(store)
    assert KIND.grade_sync("a", grader=grader).score == 1.0
    store.replace_all("YES")
    report = KIND.grade_sync("a", grader=grader)
    assert (report.score, report.criteria[0].verdict) == (None, None)
    assert "parse: a stored judgment is not valid" in (report.criteria[0].error or "")


async def test_stored_abstention_is_no_answer_where_judges_may_not_abstain() -> None:
    store = FakeStore()
    judge = StoredJudge(FakeJudge("plain", fingerprint="f"), store)
    question = question_about(Criterion(requirement="t", options=(Option(label="plain", value=1),
                                        Option(label="x", value=0))), may_abstain=False)  # fmt: skip
    assert (await judge.judge(question)).value == 1.0
    store.replace_all("CANNOT_ASSESS")
    with pytest.raises(JudgeFailure, match="no option"):
        await judge.judge(question)


def test_store_is_opened_at_an_address(tmp_path: Path) -> None:
    judge = FakeJudge(fingerprint="f")
    for _ in range(2):
        grader = PerCriterionGrader(judge).with_store(tmp_path / "judgments.sqlite")
        KIND.grade_sync("a", grader=grader)
    assert len(judge.questions) == 1


def test_judge_without_a_fingerprint_is_refused() -> None:
    with pytest.raises(TypeError, match=r"FakeJudge cannot be identified.*`fingerprint\(\) -> str`"):
        PerCriterionGrader(FakeJudge()).with_store(FakeStore())


def test_metrics_share_a_store_and_noise_does_not_use_it(server: OpenAIServer) -> None:
    store = FakeStore()
    example, pred = dspy.Example(question="q").with_inputs("question"), dspy.Prediction(answer="a")
    metrics = [
        RubricMetric(
            Rubric([BINARY]), grader=PerCriterionGrader(LMJudge("openai/m", api_base=server.url)), ledger=store
        )
        for _ in range(2)
    ]
    for metric in metrics:
        assert float(metric(example, pred)) == 1.0
    assert len(server.calls) == 1
    metrics[0].noise([(example, pred)], repeats=3)
    assert len(server.calls) == 4


class OvertakenStore(FakeStore):
    """A store in which another process has stored a judgment by the time that this one stores its own."""

    def __init__(self, verdict: str, value: float | None):
        super().__init__()
        self.theirs = Judgment(verdict=verdict, value=value, reason="theirs", spend=Spend(calls=3))

    async def store(self, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        self.rows |= dict.fromkeys(list(judgments)[:1], self.theirs)
        return await super().store(judgments)


@pytest.mark.parametrize(
    ("grader", "verdict", "value"),
    [
        (PerCriterionGrader(FakeJudge(fingerprint="f")), "UNMET", 0.0),
        (PerCriterionOneShotGrader(FakeBatchJudge(batch_of({1: "MET", 2: "MET"}), fingerprint="f")), "UNMET", 0.0),
        (RubricAsJudgeGrader(FakeOverallJudge(100, fingerprint="f")), "50.0", None),
    ],
    ids=["criterion", "batch", "whole"],
)
def test_judgment_that_comes_too_late_is_the_stored_one(grader: Grader, verdict: str, value: float | None) -> None:
    store = OvertakenStore(verdict, value)
    stored = grader.with_store(store)
    rubric = Rubric([Criterion(requirement="Is kind"), Criterion(requirement="Is apt")])
    first, again = (rubric.grade_sync("a", grader=stored) for _ in range(2))
    assert first.score in (0.0, 0.5)
    assert first == again


def test_one_stored_batch_verdict_that_is_no_answer_fails_its_criterion_only() -> None:
    store = FakeStore()
    judge = FakeBatchJudge(batch_of({1: "MET", 2: "MET"}), fingerprint="f")
    grader = PerCriterionOneShotGrader(judge, on_failure="abstain", max_retries=1).with_store(store)
    rubric = Rubric([Criterion(requirement="Is kind"), Criterion(requirement="Is apt")])
    assert rubric.grade_sync("a", grader=grader).score == 1.0
    first = next(iter(store.rows))
    store.rows[first] = store.rows[first].model_copy(update={"verdict": "YES"})
    report = rubric.grade_sync("a", grader=grader)
    assert [row.verdict for row in report.criteria] == [None, "MET"]
    assert "a stored judgment is not valid" in (report.criteria[0].error or "")
    assert len(judge.requests) == 1


@pytest.mark.parametrize("grader_name", GRADERS)
def test_key_depends_on_documents_only_where_there_are_some(grader_name: str) -> None:
    make_judge: Any = {
        "PerCriterionGrader": lambda: FakeJudge(fingerprint="m"),
        "PerCriterionOneShotGrader": lambda: FakeBatchJudge(batch_of({1: "MET"}), fingerprint="m"),
        "RubricAsJudgeGrader": lambda: FakeOverallJudge(50, fingerprint="m"),
    }[grader_name]

    def keys(submission: Submission, rubric: Rubric = KIND) -> set[str]:
        store = FakeStore()
        GRADERS[grader_name](make_judge()).with_store(store).grade_sync(rubric, submission)
        return set(store.rows)

    plain = keys(Submission(response="Hello."))
    assert keys(Submission(response="Hello.", context=())) == plain
    assert keys(Submission(response="Hello.", context=(" ",))) == plain
    assert keys(Submission(response="Hello.", context=("a",))).isdisjoint(plain)
    two, one = (Submission(response="Hello.", context=texts) for texts in (("a", "b"), ("ab",)))
    assert keys(two).isdisjoint(keys(one))
    noted = {"tags": ("t",), "metadata": {"page": 3}, "importance": "essential"}
    assert keys(Submission(response="Hello."), Rubric([KIND.criteria[0].model_copy(update=noted)])) == plain
    sourced = Rubric([KIND.criteria[0].model_copy(update={"context": "p. 3"})])
    assert keys(Submission(response="Hello."), sourced).isdisjoint(plain)
