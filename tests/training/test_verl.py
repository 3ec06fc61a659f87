"""`verl_reward`, called as verl 0.9.1 calls it: `naive.py`, `_call_with_kwargs_async` in `trainer/ppo/reward.py`."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rubric_integrations import Criterion, Fields, LengthPenalty, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits, RubricAsJudgeGrader, endpoint
from rubric_integrations.judges import LMJudge
from rubric_integrations.scoring import JudgeError
from rubric_integrations.training import verl_reward
from tests.fakes import FakeJudge
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader
from tests.openai_server import OpenAIServer, Reply

KEYS = ["score", "rubric/coverage", "rubric.right", "rubric.sourced", "rubric.rude"]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/training/verl_reward.py"
SAMPLE: dict[str, Any] = {"data_source": "answers", "ground_truth": ""}


async def test_six_responses_have_scores_the_same_keys_and_one_error() -> None:
    compute_score = verl_reward(RUBRIC, grader=make_grader())
    samples = [{**SAMPLE, "solution_str": row.response, "extra_info": {"query": QUERY}} for row in ROWS]
    results = await asyncio.gather(*(compute_score(**sample) for sample in samples), return_exceptions=True)
    *complete, failure = results
    assert [result["score"] for result in complete if isinstance(result, dict)] == [
        pytest.approx(row.score) for row in ROWS[:-1]
    ]
    assert {tuple(result) for result in complete if isinstance(result, dict)} == {tuple(KEYS)}
    assert isinstance(complete[4], dict)
    assert complete[4]["rubric.right"] is None
    assert isinstance(failure, JudgeError)


async def test_failure_says_which_manager_to_use_and_can_be_sent_to_the_driver() -> None:
    compute_score = verl_reward(RUBRIC, grader=make_grader())
    with pytest.raises(JudgeError, match="Keep the reward manager `naive`") as caught:
        await compute_score(**SAMPLE, solution_str=ROWS[-1].response)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.report.failed_count


async def test_empty_solution_has_the_keys_of_all_others() -> None:
    compute_score = verl_reward(RUBRIC, "offline", normalize=False)
    result = await compute_score(**SAMPLE, solution_str="<think>8.4")
    assert (list(result), result["score"], result["rubric.right"]) == (KEYS, -1.0, None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (QUERY, QUERY),
        (np.array([{"role": "user", "content": QUERY}], dtype=object), f'{{"role": "user", "content": "{QUERY}"}}'),
        (np.array(["8.4%", "8.40 %"], dtype=object), '["8.4%", "8.40 %"]'),
        ({"margin": 8.4}, '{"margin": 8.4}'),
        (8.4, "8.4"),
        ("", None),
        (None, None),
    ],
)
async def test_task_and_reference_may_be_whatever_a_parquet_file_holds(value: object, text: str | None) -> None:
    judge = FakeJudge()
    compute_score = verl_reward(RUBRIC, judge, fields=Fields(query="question"))
    await compute_score("answers", "It was 8.4%.", value, extra_info={"question": value, "index": 3})
    submission = judge.questions[0].submission
    assert (submission.query, submission.reference) == (text, text)


async def test_arguments_of_a_reward_model_and_of_the_configuration_are_ignored() -> None:
    compute_score = verl_reward(RUBRIC, FakeJudge())
    more = {"reward_router_address": "host:1", "reward_model_tokenizer": None, "anything": 1}
    assert (await compute_score(**SAMPLE, solution_str="a", extra_info=None, **more))["score"] is not None


def test_function_is_one_that_verl_awaits_and_that_every_pickle_carries() -> None:
    compute_score = verl_reward(RUBRIC, "offline")
    assert inspect.iscoroutinefunction(compute_score)
    assert inspect.iscoroutinefunction(partial(compute_score, extra=1))
    copy = pickle.loads(pickle.dumps(compute_score))
    assert asyncio.run(copy(**SAMPLE, solution_str=""))["score"] == 0.0


def test_grader_that_was_passed_is_pickled_with_the_function() -> None:
    compute_score = verl_reward(RUBRIC, grader=PerCriterionGrader("offline", normalize=False))
    copy = pickle.loads(pickle.dumps(compute_score))
    assert asyncio.run(copy(**SAMPLE, solution_str=""))["score"] == -1.0


@pytest.mark.parametrize(("text", "names"), [("unclear", "['rubric.right']"), ("failing", "`right`")])
async def test_gdpo_raises_where_a_criterion_has_no_verdict(text: str, names: str) -> None:
    compute_score = verl_reward(RUBRIC, grader=make_grader(), gdpo=True)
    response = next(row.response for row in ROWS if row.id == text)
    with pytest.raises(JudgeError, match="no reward for a sample of 'answers'") as caught:
        await compute_score(**SAMPLE, solution_str=response)
    assert names in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).report == caught.value.report


async def test_gdpo_gives_every_criterion_a_number_and_an_empty_solution_zeros() -> None:
    compute_score = pickle.loads(pickle.dumps(verl_reward(RUBRIC, "offline", normalize=False, gdpo=True)))
    assert await compute_score(**SAMPLE, solution_str=" ") == dict.fromkeys(KEYS, 0.0) | {"score": -1.0}
    compute_score = verl_reward(RUBRIC, grader=make_grader(), gdpo=True)
    results = [await compute_score(**SAMPLE, solution_str=row.response) for row in ROWS[:4]]
    assert [list(result) for result in results] == [KEYS] * 4
    assert [result["rubric.rude"] for result in results] == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("cannot_assess", ["fail", "zero", 0.0])
async def test_gdpo_gives_an_abstention_the_value_that_the_grader_gives_it(cannot_assess: Any) -> None:
    judge = FakeJudge(lambda question: "CANNOT_ASSESS" if question.criterion.name == "right" else "MET")
    grader = PerCriterionGrader(judge, cannot_assess=cannot_assess)
    compute_score = verl_reward(RUBRIC, grader=grader, gdpo=True)
    result = await compute_score(**SAMPLE, solution_str="a")
    assert (result["rubric.right"], result["rubric.sourced"]) == (0.0, 1.0)
    assert None not in (await compute_score(**SAMPLE, solution_str="")).values()
    assert (await verl_reward(RUBRIC, grader=grader)(**SAMPLE, solution_str="a"))["rubric.right"] is None


CONDITIONAL = Rubric([Criterion(requirement="a"), Criterion(name="b", requirement="b", applies_when="It is late")])


@pytest.mark.parametrize(
    ("rubric", "settings", "message"),
    [
        (CONDITIONAL, {"judge": "offline"}, r"`gdpo` cannot split a rubric with `applies_when` \(of 'b'\)"),
        (RUBRIC, {"grader": RubricAsJudgeGrader(LMJudge("openai/mock"))}, "no verdicts .*: `gdpo` needs them"),
        (RUBRIC, {"grader": PerCriterionGrader("offline", length_penalty=LengthPenalty())}, "`length_penalty`, which"),
    ],
)
def test_gdpo_refuses_a_score_that_is_no_sum_over_the_criteria(
    rubric: Rubric, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        verl_reward(rubric, **settings, gdpo=True)
    assert verl_reward(rubric, **settings)


@pytest.mark.parametrize(
    "fault",
    [
        Reply(text="I'm sorry, I can't help with that."),
        Reply(text=""),
        Reply(drop=True),
        Reply(status=503),
        Reply(status=400, text="content_filter"),
    ],
)
@pytest.mark.parametrize("gdpo", [False, True])
def test_lost_reply_refusal_and_outage_are_errors_and_the_next_event_loop_works(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, fault: Reply, gdpo: bool
) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PROBE", 0.0)
    limits = CallLimits(max_retries=1, max_outage=0.05)
    compute_score = verl_reward(RUBRIC, LMJudge("openai/mock", api_base=server.url), limits=limits, gdpo=gdpo)
    compute_score = pickle.loads(pickle.dumps(compute_score))

    def score(text: str, reply: Reply) -> float | None:
        server.script = lambda _call: reply
        return asyncio.run(compute_score(**SAMPLE, solution_str=text))["score"]

    assert score("a", Reply()) == pytest.approx(2 / 3)
    with pytest.raises(JudgeError, match="no reward for a sample"):
        score("b", fault)
    assert score("c", Reply()) == pytest.approx(2 / 3)


@pytest.mark.processes
def test_reward_file_imports_nothing_heavy_and_grades_in_a_process_of_its_own() -> None:
    code = f"""
import asyncio, importlib.util, sys
spec = importlib.util.spec_from_file_location("custom_module_1", {str(EXAMPLE)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert not {{"dspy", "litellm", "langchain_core", "torch", "verl", "ray", "aiohttp"}} & set(sys.modules)
texts = ["It was 8.4%, says the annual report.", "It was 8.4% of gross.", ""]
print([asyncio.run(module.compute_score("answers", text, ""))["score"] for text in texts])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1.0, 0.3333333333333333, 0.0]"
