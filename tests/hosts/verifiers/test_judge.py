"""`Task.score` of the real verifiers runs the judge plugin on hand-made traces."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.model_server import reply
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC
from tests.openai_server import Call, OpenAIServer, Reply

vf: Any = pytest.importorskip("verifiers.v1", reason="verifiers is not installed: make test-host-verifiers")
ID = "rubric_integrations_judge"


@pytest.fixture
def judge_server() -> Iterator[OpenAIServer]:
    with OpenAIServer(reply) as server:
        yield server


@pytest.fixture
def settings(judge_server: OpenAIServer, tmp_path: Path) -> dict[str, Any]:
    """The configuration of the judge, as a file of verifiers has it."""
    path = tmp_path / "rubric.yaml"
    path.write_text(RUBRIC.to_yaml(), encoding="utf-8")
    return {"id": ID, "path": str(path), "model": "some/judge", "base_url": judge_server.url}


def task_with(settings: dict[str, Any], **data: Any) -> Any:
    config = import_module("verifiers.v1.configs.task").TaskConfig(judges=[settings])
    return vf.Task(vf.TaskData(prompt=QUERY, **data), config)


def trace_of(task: Any, response: str) -> Any:
    types = import_module("verifiers.v1.types")
    node = import_module("verifiers.v1.graph").MessageNode
    trace = import_module("verifiers.v1.trace")
    agent = import_module("verifiers.v1.configs.agent").AgentConfig
    return trace.Trace(
        task=trace.TraceTask(type="Task", data=task.data),
        agent=trace.AgentInfo(config=agent()),
        nodes=[
            node(message=types.UserMessage(content=QUERY)),
            node(parent=0, message=types.AssistantMessage(content=response), sampled=True),
        ],
    )


async def score(settings: dict[str, Any], response: str) -> tuple[Any, str]:
    """Score a response, and return its trace and the error that verifiers would record."""
    task = task_with(settings)
    trace = trace_of(task, response)
    try:
        await task.score(trace)
    except vf.TaskError as error:
        return trace, str(error)
    return trace, ""


def figures(trace: Any) -> dict[str, float | None]:
    rewards = {name: reward and reward.score for name, reward in trace.rewards.items()}
    return {name: value if value is None else round(value, 2) for name, value in {**rewards, **trace.metrics}.items()}


async def test_six_responses_have_rewards_metrics_and_one_error(settings: dict[str, Any]) -> None:
    arrived = {row.id: await score(settings, row.response) for row in ROWS}
    for name, (trace, error) in arrived.items():
        print(f"| {name} | {figures(trace)} | {error[:90]} |")
    verdicts = {name: figures(trace) for name, (trace, _) in arrived.items()}
    full = {"rubric/coverage": 1.0}
    assert verdicts == {
        "right": {"rubric": 1.0, "rubric.right": 1.0, "rubric.sourced": 1.0, "rubric.rude": 1.0, **full},
        "rude": {"rubric": 0.67, "rubric.right": 1.0, "rubric.sourced": 1.0, "rubric.rude": 0.0, **full},
        "wrong": {"rubric": 0.33, "rubric.right": 0.0, "rubric.sourced": 1.0, "rubric.rude": 1.0, **full},
        "empty-handed": {"rubric": 0.0, "rubric.right": 0.0, "rubric.sourced": 0.0, "rubric.rude": 0.0, **full},
        "unclear": {"rubric": 1.0, "rubric.sourced": 1.0, "rubric.rude": 1.0, "rubric/coverage": 0.5},
        "failing": {"rubric": None},
    }
    assert [name for name, (_, error) in arrived.items() if error] == ["failing"]


async def test_failed_grade_leaves_what_the_judge_cost_and_why_it_failed_on_the_trace(settings: dict[str, Any]) -> None:
    trace, error = await score(settings, ROWS[-1].response)
    assert "JudgeError" in error
    assert trace.info["rubric"]["score"] is None
    assert "parse" in trace.info["rubric"]["error"]
    assert trace.extra_usage


async def test_score_that_is_undefined_is_an_error(settings: dict[str, Any], judge_server: OpenAIServer) -> None:
    judge_server.script = lambda _call: Reply("CANNOT_ASSESS")
    trace, error = await score(settings, "The margin was high.")
    assert figures(trace) == {"rubric": None}
    assert "undefined" in error


@pytest.mark.parametrize("response", ["", "<think>The margin was 8.4%", "<think>8.4%</think>  "])
async def test_reply_without_an_answer_gets_the_least_reward(
    settings: dict[str, Any], judge_server: OpenAIServer, response: str
) -> None:
    raw, _ = await score({**settings, "normalize": False}, response)
    normalized, _ = await score(settings, response)
    assert (figures(raw), figures(normalized)) == ({"rubric": -1.0}, {"rubric": 0.0})
    assert judge_server.calls == []


async def test_trace_in_which_a_tool_writes_the_end_of_a_thinking_is_graded_whole(
    settings: dict[str, Any], judge_server: OpenAIServer
) -> None:
    _, error = await score({**settings, "view": "full_trace"}, "you fool</think>The margin was 8.4%.")
    assert not error
    assert all("you fool" in json.dumps(call.body) for call in judge_server.calls)
    assert judge_server.calls


async def test_rollouts_with_equal_settings_share_one_grader_and_its_ledger(
    settings: dict[str, Any], judge_server: OpenAIServer, tmp_path: Path
) -> None:
    ledger = {**settings, "ledger": str(tmp_path / "run.sqlite")}
    for weight in (1.0, 2.0):
        await score({**ledger, "weight": weight}, ROWS[0].response)
    core: Any = import_module("rubric_integrations.training.verifiers")
    assert len(judge_server.calls) == len(RUBRIC)
    assert core._sample_grader.cache_info().hits >= 1


async def test_endpoint_gets_the_model_the_key_and_the_settings_of_verifiers(
    settings: dict[str, Any], judge_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "key-of-the-judge")
    await score({**settings, "api_key_var": "JUDGE_KEY", "sampling": {"temperature": 0.5, "seed": 3}}, ROWS[0].response)
    call: Call = judge_server.calls[0]
    assert call.headers["authorization"] == "Bearer key-of-the-judge"
    assert (call.body["model"], call.body["temperature"], call.body["seed"]) == ("some/judge", 0.5, 3)


async def test_model_of_this_library_is_used_without_an_endpoint(settings: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "check.yaml"
    path.write_text('- {name: exact, requirement: "Says 8.4%", check: {contains: "8.4%"}}', encoding="utf-8")
    trace, error = await score({**settings, "path": str(path), "base_url": "", "model": "offline"}, ROWS[0].response)
    assert (figures(trace)["rubric"], error) == (1.0, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": "p.txt"}, "`prompt` is 'p.txt'"),
        ({"timeout": {"read": 5}}, "`timeout` sets .'read': 5.0., which has no effect"),
        ({"sampling": {"top_p": 0.5}}, "`sampling` has .'top_p'."),
        ({"max_concurrency": 0}, "greater than or equal to 1"),
    ],
)
def test_setting_without_effect_is_refused_before_the_first_rollout(
    settings: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        task_with({**settings, **change})


async def test_default_timeouts_of_verifiers_are_accepted(settings: dict[str, Any]) -> None:
    defaults = import_module("verifiers.v1.configs.client").ClientTimeoutConfig().model_dump()
    trace, error = await score({**settings, "timeout": defaults}, ROWS[0].response)
    assert (figures(trace)["rubric"], error) == (1.0, "")


async def test_field_that_a_task_lacks_is_an_error(settings: dict[str, Any]) -> None:
    _, error = await score({**settings, "answer_field": "solution"}, ROWS[0].response)
    assert "'solution'" in error


def test_configuration_on_the_page_about_training_is_valid() -> None:
    page = Path(__file__).resolve().parents[3].joinpath("docs/training.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (entry,) = tomllib.loads(block)["env"]["taskset"]["task"]["judges"]
    (judge,) = task_with(entry).plugged_judges()
    assert (type(judge).__name__, judge.reward_name) == ("RubricGrader", "rubric")
