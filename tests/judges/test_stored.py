"""A judgment is bought once: what a store is asked for, and what changes its keys. The store here is a dictionary."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, JudgeError, Option, PerCriterionGrader, Rubric, Scale
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import OptionDisplay, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.stored import JudgmentStore, Lease
from rubric_integrations.results.judgment import JudgeFailure, Judgment
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


class DictStore:
    def __init__(self) -> None:
        self.rows: dict[str, Judgment] = {}
        self.failures: list[JudgeFailure] = []

    async def store(self, judgments: Mapping[str, Judgment]) -> None:
        self.rows |= judgments

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        self.failures.append(failure)

    @property
    def stored(self) -> dict[str, Judgment]:
        return self.rows

    @asynccontextmanager
    async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
        yield self


def answers(call: Call) -> Reply:
    if "judgments" in call.prompt:
        given = enumerate(["MET", "A", "7"], start=1)
        return Reply(text=json.dumps({"judgments": [{"id": i, "explanation": "so", "answer": a} for i, a in given]}))
    if "overall_score" in call.prompt:
        return Reply(text='{"explanation": "so", "overall_score": 62.5}')
    return Reply(text='{"explanation": "so", "verdict": "MET", "choice": "A", "score": 7}')


GRADERS: list[Any] = [PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader]


@pytest.mark.parametrize("kind", GRADERS)
def test_a_second_grade_costs_no_call_and_is_the_same(server: OpenAIServer, kind: Any) -> None:
    server.script = answers
    store = DictStore()
    typed: JudgmentStore = store

    def grade(text: str = "Hello.", **settings: Any) -> Any:
        lm = dspy.LM("openai/m", api_base=server.url, api_key="none", cache=False)
        return RUBRIC.grade_sync(text, grader=kind(lm, **settings).with_store(typed), query="Greet.")

    first = grade()
    bought = len(server.calls)
    assert bought in (1, 3)
    assert grade() == first
    assert len(server.calls) == bought
    assert grade(cannot_assess="zero", length_penalty=None).score == first.score
    assert len(server.calls) == bought
    grade("Goodbye.")
    assert len(server.calls) == 2 * bought


def grade_with(server: OpenAIServer, store: DictStore, rubric: Rubric = RUBRIC, **change: Any) -> Any:
    lm = dspy.LM(change.get("model", "openai/m"), api_base=change.get("url", server.url), api_key="none", cache=False,
                 temperature=change.get("temperature"))  # fmt: skip
    judge = LMJudge(lm, system_prompt=change.get("system_prompt"))
    grader = PerCriterionGrader(judge, options=OptionDisplay(shuffle=False)).with_store(store, change.get("sample", 0))
    return rubric.grade_sync(change.get("text", "Hello."), grader=grader, query=change.get("query"))


@pytest.mark.parametrize(
    "change",
    [
        {"text": "Hello!"}, {"query": "Greet."}, {"model": "openai/n"}, {"temperature": 0.5}, {"sample": 1},
        {"system_prompt": "Be strict."}, {"url": "http://localhost"},
    ],
)  # fmt: skip
def test_whatever_may_change_an_answer_is_asked_anew(server: OpenAIServer, change: dict[str, Any]) -> None:
    server.script = answers
    if "url" in change:
        change = {"url": server.url.replace("127.0.0.1", "localhost")}
    store = DictStore()
    grade_with(server, store)
    grade_with(server, store, **change)
    assert len(server.calls) == 6


def changed(place: int, **change: Any) -> Rubric:
    criteria = list(RUBRIC.criteria)
    criteria[place] = criteria[place].model_copy(update=change)
    return RUBRIC.model_copy(update={"criteria": tuple(criteria)})


@pytest.mark.parametrize(
    ("rubric", "more"),
    [
        (changed(0, requirement="Is very kind"), 1),
        (changed(0, weight=-5.0), 1),  # what was a requirement is a penalty
        (changed(2, scale=Scale(min=0, max=20)), 1),
        (RUBRIC.model_copy(update={"guidelines": "Be strict."}), 3),
        (changed(0, weight=50.0), 0),
        (changed(0, name="kindness", required=True), 0),
        (RUBRIC.model_copy(update={"pass_mark": 0.1}), 0),
        (RUBRIC.model_copy(update={"criteria": tuple(reversed(RUBRIC.criteria))}), 0),
    ],
)
def test_the_wording_is_in_the_key_and_weights_names_and_places_are_not(
    server: OpenAIServer, rubric: Rubric, more: int
) -> None:
    server.script = answers
    store = DictStore()
    grade_with(server, store)
    grade_with(server, store, rubric)
    assert len(server.calls) == 3 + more


def test_a_kept_choice_gets_the_value_that_its_option_has_now(server: OpenAIServer) -> None:
    server.script = answers
    store = DictStore()
    assert grade_with(server, store).report[1].value == 0.0
    options = (Option(label="cold", value=0.5), Option(label="warm", value=1))
    assert grade_with(server, store, changed(1, options=options)).report[1].value == 0.5
    assert len(server.calls) == 3


def test_two_votes_of_one_model_are_two_answers(server: OpenAIServer) -> None:
    store = DictStore()
    lm = dspy.LM("openai/m", api_base=server.url, api_key="none", cache=False)
    for _ in range(2):
        Rubric([RUBRIC.criteria[0]]).grade_sync("a", grader=PerCriterionGrader(judges=[lm, lm]).with_store(store))
    assert (len(server.calls), len(store.rows)) == (2, 2)


def test_a_batch_with_a_hole_is_repaired_once_and_never_bought_again(server: OpenAIServer) -> None:
    def forgetful(call: Call) -> Reply:
        if call.number == 0:
            return Reply(text='{"judgments": [{"id": 1, "explanation": "so", "answer": "MET"}]}')
        return answers(call)

    server.script = forgetful
    store = DictStore()
    grader = PerCriterionOneShotGrader(LMJudge("openai/m", api_base=server.url)).with_store(store)
    first = RUBRIC.grade_sync("Hello.", grader=grader)
    assert (len(server.calls), len(store.failures)) == (2, 2)
    again = RUBRIC.grade_sync("Hello.", grader=grader)
    assert len(server.calls) == 2
    assert again == first


def test_failures_are_noted_and_asked_again(server: OpenAIServer) -> None:
    store = DictStore()
    server.script = lambda call: Reply(status=401) if call.number == 0 else Reply()
    rubric = Rubric([RUBRIC.criteria[0]])
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url)).with_store(store)
    with pytest.raises(JudgeError):
        rubric.grade_sync("Hello.", grader=grader)
    assert len(store.failures) == 1
    assert rubric.grade_sync("Hello.", grader=grader).score == 1.0


def test_an_answer_that_is_none_is_not_kept() -> None:
    class Confused:
        def fingerprint(self) -> str:
            return "confused"

        async def judge(self, question: Any) -> Judgment:
            return Judgment(verdict="MAYBE", value=1.0)

    store = DictStore()
    grader = PerCriterionGrader(Confused(), on_failure="abstain").with_store(store)
    assert Rubric([RUBRIC.criteria[0]]).grade_sync("a", grader=grader).failed_count == 1
    assert store.rows == {}


def test_a_judge_that_cannot_tell_what_it_depends_on_is_refused() -> None:
    class Mute:
        async def judge(self, question: Any) -> Judgment:
            return Judgment(verdict="MET", value=1.0)

    with pytest.raises(TypeError, match=r"Mute has no method `fingerprint\(\) -> str`"):
        PerCriterionGrader(Mute()).with_store(DictStore())


def test_metrics_share_a_store_and_noise_goes_past_it(server: OpenAIServer) -> None:
    store = DictStore()
    rubric = Rubric([RUBRIC.criteria[0]])
    example, pred = dspy.Example(question="q").with_inputs("question"), dspy.Prediction(answer="a")
    metrics = [
        RubricMetric(rubric, grader=PerCriterionGrader(LMJudge("openai/m", api_base=server.url)), store=store)
        for _ in range(2)
    ]
    for metric in metrics:
        assert float(metric(example, pred)) == 1.0
    assert len(server.calls) == 1
    metrics[0].noise([(example, pred)], repeats=3)
    assert len(server.calls) == 4
