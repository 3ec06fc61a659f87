"""What a process of a cluster gets as a pickle: graders, metrics, evaluators, ledgers, results and errors."""

from __future__ import annotations

import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import cloudpickle
import dspy
import openai
import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

import rubric_integrations
from rubric_integrations import (
    Check,
    Criterion,
    JudgeError,
    PerCriterionGrader,
    Rubric,
    RubricError,
    Submission,
    grade_many,
)
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import Grader, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge, lm_from_fn
from rubric_integrations.judges.decisions import ErrorInReply
from rubric_integrations.judges.models.errors import ResponseError
from rubric_integrations.judges.models.responses import ErrorResponse
from rubric_integrations.judges.protocol import RunStopped
from rubric_integrations.judges.spend import SpendLimit, SpendLimitReached
from rubric_integrations.judges.store import LeaseExpired
from rubric_integrations.langchain import RubricEvaluator, RubricMiddleware, RubricRunnable, RubricStringEvaluator
from rubric_integrations.rubric import Fault
from rubric_integrations.runs import Ledger
from rubric_integrations.scoring import JudgeFailure, Spend
from rubric_integrations.server.service import RequestProblem
from rubric_integrations.submission.dialects.blocks import UnknownBlockError
from rubric_integrations.trust import AlignmentError, DraftError
from rubric_integrations.trust.alignment.calls import AlignmentStopped
from tests.openai_server import OpenAIServer
from tests.runs.processes import call_in_process

RUBRIC = Rubric([Criterion(name="kind", requirement="Is kind"), Criterion(requirement="x", check=Check(contains="e"))])
REPLY = '{"explanation": "so", "verdict": "MET"}'


async def reply_met(system: str, user: str) -> str:
    return REPLY


def chat_model(url: str) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4.1", base_url=url, api_key="key", temperature=0.5, cache=False)  # pyright: ignore[reportArgumentType]


MODELS: dict[str, Callable[[str], Any]] = {
    "name": lambda url: LMJudge("openai/m", api_base=url),
    "dspy.LM": lambda url: dspy.LM("openai/m", api_base=url, api_key="key", cache=False),
    "langchain": chat_model,
    "langchain without a client": lambda _: FakeListChatModel(responses=[REPLY] * 9),
    "function": lambda _: reply_met,
    "named function": lambda _: lm_from_fn(reply_met, fingerprint="always MET"),
    "offline": lambda _: "offline",
}

LIBRARIES = pytest.mark.parametrize("library", [pickle, cloudpickle])


def grade(grader: Grader) -> tuple[float | None, list[str]]:
    return RUBRIC.grade_sync("Please.", grader=grader).score, grader.fingerprints()


@LIBRARIES
@pytest.mark.parametrize("model", MODELS)
def test_pickled_grader_that_was_used_grades_with_the_same_fingerprint(
    server: OpenAIServer, model: str, library: Any
) -> None:
    grader = PerCriterionGrader(MODELS[model](server.url))
    expected = grade(grader)
    assert expected[1] != [""]
    assert grade(pickle.loads(library.dumps(grader))) == expected


@LIBRARIES
def test_pickled_panel_with_a_store_of_every_strategy_keeps_its_fingerprints(
    server: OpenAIServer, library: Any, tmp_path: Path
) -> None:
    judges = [make(server.url) for make in MODELS.values()]
    store = Ledger(tmp_path / "run.sqlite")
    graders: list[Grader] = [
        PerCriterionGrader(judges=judges).with_store(store).for_run(4, SpendLimit(5)),
        PerCriterionOneShotGrader(judges=judges[:2]).with_store(store),
        RubricAsJudgeGrader(judges=judges[:2]).with_store(store),
        PerCriterionGrader(generate_fn=reply_met),
    ]
    for grader in graders:
        again: Grader = pickle.loads(library.dumps(grader))
        assert again.fingerprints() == grader.fingerprints()
        assert again.configuration() == grader.configuration()


@pytest.mark.processes
@pytest.mark.parametrize("by_value", [True, False])
def test_grader_in_another_process_shares_the_ledger_and_the_keys(
    server: OpenAIServer, tmp_path: Path, by_value: bool
) -> None:
    with Ledger(tmp_path / "run.sqlite") as ledger:
        judges = [make(server.url) for make in MODELS.values()]
        grader = PerCriterionGrader(judges=judges, on_failure="abstain").with_store(ledger)
        expected = grade(grader)
        calls = len(server.calls)
        assert calls == 3
        assert call_in_process(grade, grader, by_value=by_value) == expected
        assert len(server.calls) == calls


@LIBRARIES
def test_pickles_of_a_ledger_open_it_once(tmp_path: Path, library: Any) -> None:
    with Ledger(tmp_path / "run.sqlite") as ledger:
        one, other = (pickle.loads(library.dumps(ledger)) for _ in range(2))
        assert one is other is not ledger
        assert one.path == ledger.path
        one.close()
        later: Ledger = pickle.loads(library.dumps(ledger))
        assert len(later) == 0
        later.close()


@LIBRARIES
def test_pickled_metric_and_evaluators_grade(server: OpenAIServer, library: Any, tmp_path: Path) -> None:
    judge = LMJudge("openai/m", api_base=server.url)
    example, prediction = dspy.Example(question="q").with_inputs("question"), dspy.Prediction(answer="Please.")
    metric = RubricMetric(RUBRIC, judge=judge, ledger=Ledger(tmp_path / "run.sqlite"))
    evaluator = RubricEvaluator(RUBRIC, judge=chat_model(server.url))
    uses: list[tuple[Any, Callable[[Any], Any]]] = [
        (metric, lambda metric: float(metric(example, prediction))),
        (evaluator, lambda evaluator: evaluator(inputs={}, outputs={"a": "Please."})["score"]),
        (RubricRunnable(RUBRIC, judge=judge), lambda runnable: runnable.invoke({"output": "Please."}).score),
        (RubricStringEvaluator(RUBRIC, judge=judge), lambda it: it.evaluate_strings(prediction="Please.")["score"]),
        (RubricMiddleware(RUBRIC, judge=judge, name="tone"), type),
    ]
    for value, use in uses:
        expected = use(value)
        assert use(pickle.loads(library.dumps(value))) == expected


@LIBRARIES
def test_pickled_results_are_equal(library: Any) -> None:
    run = grade_many(["Please.", ""], RUBRIC, PerCriterionGrader("offline"), max_calls=5)
    results = list(run)
    for value in (results, run.summary, RUBRIC, Submission(response="x"), results[0].report):
        assert pickle.loads(library.dumps(value)) == value
    assert [graded.score for graded in pickle.loads(library.dumps(run))] == [graded.score for graded in results]


def test_chat_model_with_a_client_of_its_user_cannot_be_pickled() -> None:
    key, client = SecretStr("key"), openai.DefaultHttpxClient()
    model = ChatOpenAI(model="m", base_url="http://127.0.0.1:9/v1", api_key=key, http_client=client)
    with pytest.raises(TypeError, match="`http_client` of ChatOpenAI holds connections"):
        pickle.dumps(PerCriterionGrader(model))


def error_types() -> Iterator[type[BaseException]]:
    for module in pkgutil.walk_packages(rubric_integrations.__path__, "rubric_integrations."):
        if not module.name.endswith("__main__"):
            for value in vars(import_module(module.name)).values():
                if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == module.name:
                    yield value


REPORT = RUBRIC.grade_sync("Please.", grader=PerCriterionGrader("offline"))
# The errors whose constructors need more than a message.
ARGUMENTS: dict[type[BaseException], tuple[Any, ...]] = {
    ErrorInReply: (429, "slow down"),
    JudgeError: ("no answer", REPORT),
    JudgeFailure: ("parse", "no answer"),
    LeaseExpired: ("transport", "too late"),
    DraftError: ("it failed", Spend(calls=7)),
    AlignmentError: ("the limit is reached", Spend(calls=3)),
    AlignmentStopped: ("the limit is reached",),
    RubricError: ("rubric.yaml", [Fault("criteria[0]", "weight", "is missing")]),
    RequestProblem: (503, "the judge has failed", 5),
    UnknownBlockError: ("messages[0]", "has an unknown type"),
    ResponseError: (ErrorResponse(400, b"no"),),
}


@LIBRARIES
def test_every_pickled_error_has_its_message_and_its_attributes(library: Any) -> None:
    kinds = set(error_types())
    assert kinds >= {*ARGUMENTS, RunStopped, SpendLimitReached}
    for kind in kinds:
        error = kind(*ARGUMENTS.get(kind, ("it failed",)))
        again = pickle.loads(library.dumps(error))
        assert type(again) is kind
        assert (str(again), vars(again)) == (str(error), vars(error))
    failure = JudgeFailure("transport", "lost", retryable=True, retry_after=2.0, spend=Spend(calls=3))
    assert vars(pickle.loads(library.dumps(failure))) == vars(failure)
