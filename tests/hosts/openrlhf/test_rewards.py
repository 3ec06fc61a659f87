"""The rollout executor and the dynamic filtering of the real OpenRLHF, without vLLM and a GPU, call a reward file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rubric_integrations.graders.endpoint import JudgeOutage
from tests.hosts.byte_tokenizer import END, byte_tokenizer
from tests.hosts.model_server import reply
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, Row
from tests.openai_server import OpenAIServer, Reply

agent: Any = pytest.importorskip(
    "openrlhf.utils.agent", reason="OpenRLHF is not installed: make test-host-openrlhf", exc_type=ImportError
)
# A failed criterion cancels the requests about the others, and LiteLLM leaves a coroutine behind then.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
PROMPT = f"<|im_start|>user\n{QUERY}{END}\n<|im_start|>assistant\n"
ROOT = Path(__file__).resolve().parents[3]
REWARD_FILE = """
from rubric_integrations.training import openrlhf_reward
reward_func = openrlhf_reward({path!r}, "openai/judge", failed={failed!r})
"""


@pytest.fixture
def judge_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    with OpenAIServer(reply) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


@pytest.fixture(params=["raise"])
def executor(request: pytest.FixtureRequest, tmp_path: Path, judge_server: OpenAIServer) -> Any:
    """What an engine of OpenRLHF makes of `--reward.remote_url reward.py`."""
    del judge_server
    rubric, file = tmp_path / "rubric.yaml", tmp_path / "reward.py"
    rubric.write_text(RUBRIC.to_yaml(), encoding="utf-8")
    file.write_text(REWARD_FILE.format(path=str(rubric), failed=request.param), encoding="utf-8")
    return agent.SingleTurnAgentExecutor([str(file)])


failed_is_nan = pytest.mark.parametrize("executor", ["nan"], indirect=True)


class Policy:
    """Stands in for a vLLM engine, which generates one response."""

    def __init__(self, response: str):
        self.tokens = byte_tokenizer()(response + END)["input_ids"]

    async def generate(self, prompt: object, parameters: object, multi_modal_data: object = None) -> Any:
        del prompt, parameters, multi_modal_data
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=self.tokens, finish_reason="stop", logprobs=None)])


async def roll_out(executor: Any, row: Row, max_length: int = 2000) -> Any:
    parameters = SimpleNamespace(max_tokens=200, logprobs=None)
    return await executor.execute(PROMPT, "", parameters, max_length, byte_tokenizer(), Policy(row.response))


def experience_of(output: Any) -> Any:
    """Return the tensors that OpenRLHF trains on."""
    return generator()._process_response_into_experience(output)


def generator() -> Any:
    """Return OpenRLHF's generator of samples, with vLLM replaced by an empty module."""
    modules = {"vllm": {"SamplingParams": object}, "openrlhf.trainer.ray.vllm_engine": {"batch_vllm_engine_call": None}}
    for name, contents in modules.items():
        module = sys.modules.setdefault(name, ModuleType(name))
        vars(module).update(contents)
    samples: Any = import_module("openrlhf.trainer.ppo_utils.samples_generator")
    filtering = SimpleNamespace(dynamic_filtering_range=(0.0, 2.0))
    strategy = SimpleNamespace(args=SimpleNamespace(algo=filtering))
    return samples.SamplesGenerator(strategy, [], [], byte_tokenizer(), [])


async def test_six_responses_get_rewards_and_one_ends_the_run(executor: Any) -> None:
    for row in ROWS[:-1]:
        experience = experience_of(await roll_out(executor, row))
        logs = {name: round(value.item(), 2) for name, value in experience.info.items() if name.startswith("rubric")}
        print(f"| {row.id} | {experience.rewards.item():.2f} | {logs} |")
        assert experience.rewards.shape == experience.scores.shape == (1,)
        assert experience.rewards.item() == experience.scores.item() == pytest.approx(row.score)
        assert set(logs) == {"rubric/coverage", "rubric.right", "rubric.sourced", "rubric.rude"}
        assert (logs["rubric.right"] != logs["rubric.right"]) == (row.id == "unclear")
    with pytest.raises(JudgeOutage, match="was not judged") as caught:
        await roll_out(executor, ROWS[-1])
    print(f"| failing | {type(caught.value).__name__}: {str(caught.value)[:100]} |")


async def test_judge_is_shown_the_response_without_prompt_and_special_tokens(
    executor: Any, judge_server: OpenAIServer
) -> None:
    await roll_out(executor, ROWS[0])
    prompt = judge_server.calls[0].prompt
    assert prompt.count(ROWS[0].response) == 1
    assert f"{ROWS[0].response}{END}" not in prompt
    assert prompt.count(QUERY) == 1


async def test_prompt_that_openrlhf_has_cut_ends_the_run(executor: Any) -> None:
    with pytest.raises(JudgeOutage, match="does not begin with its prompt"):
        await roll_out(executor, ROWS[0], max_length=220)


async def test_response_without_an_answer_gets_the_least_reward(executor: Any, judge_server: OpenAIServer) -> None:
    output = await roll_out(executor, Row("empty", "", 0.0))
    assert (output["reward"], judge_server.calls) == (0.0, [])


class Engine:
    """The part of OpenRLHF's engine that computes rewards; it is an actor of Ray."""

    def __init__(self, file: str):
        self.executor = agent.SingleTurnAgentExecutor([file])

    async def generate_responses(self, number: int) -> list[float]:
        outputs = await asyncio.gather(*(roll_out(self.executor, ROWS[number]) for _ in range(2)))
        return [output["reward"] for output in outputs]


@pytest.mark.timeout(200)
def test_failure_in_an_engine_of_ray_reaches_the_driver_at_once(executor: Any) -> None:
    ray: Any = import_module("ray")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    names = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "LITELLM_LOCAL_MODEL_COST_MAP")
    variables = {name: os.environ[name] for name in names} | {"PYTHONPATH": path}
    ray.init(
        address="local", num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
        runtime_env={"env_vars": variables},
    )  # fmt: skip
    try:
        engine = ray.remote(Engine).remote(executor.reward_endpoints[0])
        assert ray.get(engine.generate_responses.remote(0)) == [1.0, 1.0]
        with pytest.raises(Exception, match="was not judged"):
            ray.get(engine.generate_responses.remote(len(ROWS) - 1))
    finally:
        ray.shutdown()


@failed_is_nan
@pytest.mark.parametrize("verdict", [None, "CANNOT_ASSESS"])
async def test_group_with_a_sample_without_a_reward_is_dropped_by_dynamic_filtering(
    executor: Any, judge_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, verdict: str | None
) -> None:
    samples = generator()
    ray: Any = import_module("openrlhf.trainer.ppo_utils.samples_generator").ray

    def ready(references: list[Any], **_options: object) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]

    def reference(value: Any) -> Any:
        return value

    async def kept(*rows: Row) -> int:
        group = [await roll_out(executor, row) for row in rows]

        def dispatch(*_arguments: object, **_options: object) -> list[Any]:
            return [group]

        monkeypatch.setattr(samples, "_dispatch_prompts_to_vllm", dispatch)
        monkeypatch.setattr(ray, "wait", ready)
        monkeypatch.setattr(ray, "get", reference)
        prompts = iter([(None, [PROMPT], [""], [None])])
        experiences, _, _ = samples._generate_vllm(prompts, 1, dynamic_filtering=True)
        return len(experiences)

    assert await kept(ROWS[0], ROWS[1]) == 2
    if verdict:
        judge_server.script = lambda _call: Reply(verdict)
        assert await kept(Row("a", "unknown", None), Row("b", "unknown, too", None)) == 0
    else:
        assert await kept(ROWS[0], ROWS[-1]) == 0
