"""A question that the judge refuses is not asked again by the same metric, evaluator or reward."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric, grade_many
from rubric_integrations._host import HostGrader
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import CallLimits, Grader, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge
from rubric_integrations.training import RubricReward
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric.from_dict([{"requirement": name} for name in ("first", "second", "third")])


# With several calls at a time, one that was cancelled may reach the server when the next grade is counted.
ONE_AT_A_TIME = CallLimits(max_concurrency=1)


def completion(content: str | None, finish_reason: str = "stop", **fields: str) -> Reply:
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": content} | fields}
    return Reply(raw=json.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}).encode())


REFUSALS = {
    "refusal": completion(None, refusal="I cannot help with that."),
    "content filter": completion(None, "content_filter"),
    "prose": Reply(text="I would rather not judge this."),
}


def script(reply: Reply) -> Callable[[Call], Reply]:
    """Refuse the second criterion of the text "bad", and answer everything else."""
    # A line starts with "bad": the random code of a fence contains it in one of 400 processes.
    return lambda call: reply if "\nbad" in call.prompt and call.criterion == "second" else Reply()


def grade(grader: Grader, text: str) -> float | None:
    try:
        return RUBRIC.grade_sync(text, grader).score
    except JudgeError:
        return None


def requests(server: OpenAIServer, grade_text: Callable[[str], object], text: str) -> int:
    before = len(server.calls)
    grade_text(text)
    return len(server.calls) - before


@pytest.mark.parametrize("reply", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("with_ledger", [False, True], ids=["no ledger", "ledger"])
def test_refused_text_is_asked_once_and_others_as_before(
    server: OpenAIServer, tmp_path: Path, reply: Reply, with_ledger: bool
) -> None:
    server.script = script(reply)
    ledger = tmp_path / "run.sqlite" if with_ledger else None
    host = HostGrader("Host", LMJudge("openai/m", api_base=server.url), None, ledger, limits=ONE_AT_A_TIME)
    assert grade(host(), "bad") is None
    second_calls = [call for call in server.calls if call.criterion == "second"]
    assert len(second_calls) == (1 if reply is REFUSALS["content filter"] else 2)
    assert [requests(server, lambda text: grade(host(), text), "bad") for _ in range(3)] == [0, 0, 0]
    assert grade(host(), "good") == 1.0
    assert requests(server, lambda text: grade(host(), text), "bad, but another text") > 0
    server.script = script(Reply())
    host().call_limiter.reset()
    assert grade(host(), "bad") == 1.0
    host.close()


@pytest.mark.parametrize("make", [PerCriterionOneShotGrader, RubricAsJudgeGrader])
@pytest.mark.parametrize("reply", REFUSALS.values(), ids=REFUSALS)
def test_refusal_of_a_whole_text_is_remembered_by_every_strategy(
    server: OpenAIServer, make: Callable[..., Grader], reply: Reply
) -> None:
    server.script = lambda _call: reply
    host = HostGrader("Host", None, make(LMJudge("openai/m", api_base=server.url)))
    assert grade(host(), "bad") is None
    assert [requests(server, lambda text: grade(host(), text), "bad") for _ in range(2)] == [0, 0]


@pytest.mark.parametrize("on_failure", ["raise", "abstain"])
def test_panel_asks_only_the_judge_that_has_not_refused(server: OpenAIServer, on_failure: Any) -> None:
    server.script = lambda call: REFUSALS["content filter"] if call.body["model"] == "m" else Reply()
    judges = [LMJudge("openai/m", api_base=server.url), LMJudge("openai/n", api_base=server.url)]
    host = HostGrader("Host", None, PerCriterionGrader(judges=judges, on_failure=on_failure))
    assert [grade(host(), "text") for _ in range(2)] == [1.0, 1.0]
    assert [call.body["model"] for call in server.calls].count("m") == 3
    assert [call.body["model"] for call in server.calls].count("n") == 6


@pytest.mark.parametrize("fault", [Reply(status=503), Reply(drop=True), Reply(text="It is met.")])
def test_lost_or_unreadable_reply_is_asked_again(server: OpenAIServer, fault: Reply) -> None:
    server.script = script(fault)
    limits = CallLimits(max_outage=0, max_retries=0)
    host = HostGrader("Host", LMJudge("openai/m", api_base=server.url), None, limits=limits)
    assert grade(host(), "bad") is None
    server.script = script(Reply())
    if fault.text is None:
        assert grade(host(), "bad") == 1.0


def test_graders_of_the_user_and_runs_ask_again(server: OpenAIServer) -> None:
    server.script = script(REFUSALS["refusal"])
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url), limits=ONE_AT_A_TIME)
    host = HostGrader("Host", None, grader)
    for _ in range(2):
        assert grade(host(), "bad") is None
        assert requests(server, lambda text: grade(grader, text), "bad") >= 2
        assert requests(server, lambda text: list(grade_many([text], RUBRIC, grader)), "bad") >= 2


def test_refusals_are_counted_in_each_grade_and_an_answer_in_between_is_kept(server: OpenAIServer) -> None:
    replies = iter([REFUSALS["refusal"], Reply()] * 3)
    server.script = lambda call: next(replies) if call.criterion == "second" else Reply()
    host = HostGrader("Host", LMJudge("openai/m", api_base=server.url), None)
    assert [grade(host(), "bad") for _ in range(3)] == [1.0, 1.0, 1.0]


def test_metric_forgets_with_resume_and_its_copies_remember_nothing(server: OpenAIServer) -> None:
    server.script = script(REFUSALS["content filter"])
    metric = RubricMetric(RUBRIC, LMJudge("openai/m", api_base=server.url), limits=ONE_AT_A_TIME)

    def call(metric: RubricMetric) -> Callable[[str], object]:
        def grade_answer(text: str) -> None:
            with pytest.raises(JudgeError, match="content filter"):
                metric(dspy.Example(question="?").with_inputs("question"), dspy.Prediction(answer=text))

        return grade_answer

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call(metric), ["bad"] * 8))
    assert [requests(server, call(metric), "bad") for _ in range(2)] == [0, 0]
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert [requests(server, call(other), "bad") > 0 for _ in range(2)] == [True, False]
    metric.resume()
    assert [requests(server, call(metric), "bad") > 0 for _ in range(2)] == [True, False]


def test_reward_asks_once_over_its_steps(server: OpenAIServer) -> None:
    server.script = script(REFUSALS["content filter"])
    reward = RubricReward(RUBRIC, LMJudge("openai/m", api_base=server.url), stop_after=1.0)

    def step(text: str) -> list[float | None]:
        return asyncio.run(reward(prompts=["?", "?"], completions=[text, "good"]))

    assert step("bad") == [None, 1.0]
    assert requests(server, step, "bad") == 3  # the other completion
