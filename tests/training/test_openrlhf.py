"""`openrlhf_reward`, called as OpenRLHF 0.11.2 calls it: one sample, in a thread, in `utils/agent.py`."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.graders import CallLimits
from rubric_integrations.graders.endpoint import JudgeOutage
from rubric_integrations.training import openrlhf_reward
from tests.fakes import FakeJudge
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader

PROMPT = f"<|im_start|>user\n{QUERY}<|im_end|>\n<|im_start|>assistant\n"
LOGS = ["rubric/coverage", "rubric.right", "rubric.sourced", "rubric.rude"]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/training/openrlhf_reward.py"


def graded_response(query: str, prompt: str, **settings: Any) -> str | None:
    """Return the response that the judge of a reward function was shown."""
    judge = FakeJudge()
    openrlhf_reward(RUBRIC, judge, **settings)([query], [prompt], [""])
    return judge.questions[0].submission.response if judge.questions else None


def test_five_responses_have_rewards_and_logs_of_the_same_names() -> None:
    reward_func = openrlhf_reward(RUBRIC, grader=make_grader())
    results = [reward_func([f"{PROMPT}{row.response}<|im_end|>"], [PROMPT], [""]) for row in ROWS[:-1]]
    assert [result["rewards"] for result in results] == [pytest.approx(row.score) for row in ROWS[:-1]]
    assert [result["scores"] for result in results] == [result["rewards"] for result in results]
    assert {tuple(result["extra_logs"]) for result in results} == {tuple(LOGS)}
    assert [math.isnan(result["extra_logs"]["rubric.right"]) for result in results] == [False] * 4 + [True]


def test_failure_ends_the_run_past_a_handler_of_exceptions() -> None:
    reward_func = openrlhf_reward(RUBRIC, grader=make_grader())
    # As OpenRLHF does, which logs an exception at the level INFO.
    with pytest.raises(JudgeOutage, match=r"no reward: .* was not judged"), suppress(Exception):
        reward_func([PROMPT + ROWS[-1].response], [PROMPT], [""])


def test_failure_is_nan_if_that_was_chosen_and_many_in_a_row_end_the_run() -> None:
    reward_func = openrlhf_reward(RUBRIC, grader=make_grader(), failed="nan", max_failures=3)
    failing, right = ([PROMPT + ROWS[number].response] for number in (-1, 0))
    for query in (failing, failing, right, failing, failing):
        result = reward_func(query, [PROMPT], [""])
        assert math.isnan(result["rewards"]) == (query is failing)
        assert list(result["extra_logs"]) == LOGS
    with pytest.raises(JudgeOutage, match="3 samples in a row failed"):
        reward_func(failing, [PROMPT], [""])


def test_undefined_score_is_nan_if_that_was_chosen() -> None:
    reward_func = openrlhf_reward(RUBRIC, FakeJudge("CANNOT_ASSESS"), failed="nan")
    result = reward_func([f"{PROMPT}a"], [PROMPT], [""])
    assert all(map(math.isnan, [result["rewards"], *result["extra_logs"].values()]))


@pytest.mark.parametrize(
    ("query", "prompt", "response"),
    [
        (f"{PROMPT}It was 8.4%.<|im_end|>", PROMPT, "It was 8.4%."),
        (f"{PROMPT}It was 8.4%.<|im_end|>\n<|endoftext|><|endoftext|>", PROMPT, "It was 8.4%."),
        # Some tokenizers add a space after a special token, or drop one, when they decode it.
        ("<s> [INST] How high? [/INST] 8.4%</s>", "<s>[INST] How high? [/INST]", " 8.4%"),
        ("<s>[INST]How high?[/INST] 8.4%</s>", "<s> [INST] How high? [/INST] ", " 8.4%"),
        # A policy that repeats its prompt, or writes the markers of the template, is graded with all that it wrote.
        (f"{PROMPT}{PROMPT}8.4%<|im_end|>", PROMPT, f"{PROMPT}8.4%"),
        (f"{PROMPT}9%<|im_end|>\n<|im_start|>assistant\n8.4%", PROMPT, "9%<|im_end|>\n<|im_start|>assistant\n8.4%"),
        (f"{PROMPT}8.4% \ud83d", PROMPT, "8.4% \\ud83d"),
        ("8.4%", "", "8.4%"),
        # OpenRLHF cuts a prompt that is too long at its beginning.
        (f"{PROMPT[9:]}8.4%", PROMPT, "8.4%"),
        (f"{PROMPT}<|im_end|>", PROMPT, None),
        (PROMPT, PROMPT, None),
    ],
)
def test_response_is_the_query_without_its_prompt_and_the_tokens_at_its_end(
    query: str, prompt: str, response: str | None
) -> None:
    graded = graded_response(query, prompt)
    assert (graded and graded.strip()) == (response and response.strip())


def test_megabyte_of_end_tokens_is_removed() -> None:
    assert graded_response(f"{PROMPT}8.4%" + "<|im_end|>\n" * 100_000, PROMPT) == "8.4%"


@pytest.mark.parametrize("query", ["8.4%", "", "\ufffd" + PROMPT[1:] + "8.4%"])
def test_query_that_does_not_begin_with_its_prompt_ends_the_run_instead_of_being_graded(query: str) -> None:
    with pytest.raises(JudgeOutage, match=r"does not begin with its prompt.*--data\.max_len"):
        graded_response(query, PROMPT, failed="nan")


def test_label_is_the_reference_and_the_prompt_the_task() -> None:
    judge = FakeJudge()
    openrlhf_reward(RUBRIC, judge)([f"{PROMPT}a"], [PROMPT], ["8.4%"])
    submission = judge.questions[0].submission
    assert (submission.query, submission.reference) == (PROMPT, "8.4%")


@pytest.mark.parametrize("count", [0, 2, 5])
def test_other_numbers_of_samples_get_lists(count: int) -> None:
    result = openrlhf_reward(RUBRIC, FakeJudge())([f"{PROMPT}a"] * count, [PROMPT] * count, [None] * count)
    assert [len(result["rewards"]), len(result["scores"])] == [count] * 2
    assert {name: len(values) for name, values in result["extra_logs"].items()} == dict.fromkeys(LOGS, count)


def test_lists_of_different_lengths_end_the_run() -> None:
    with pytest.raises(JudgeOutage, match="argument"):
        openrlhf_reward(RUBRIC, FakeJudge())(["a", "b"], ["a"], [None])


def test_threads_share_one_grader_and_its_concurrency_limit() -> None:
    judge = FakeJudge()
    reward_func = openrlhf_reward(RUBRIC, judge, limits=CallLimits(max_concurrency=2))
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(reward_func, [f"{PROMPT}{number}"], [PROMPT], [""]) for number in range(16)]
        assert len([future.result() for future in futures]) == 16
    assert judge.peak == 2


async def test_function_runs_in_a_thread_of_a_running_event_loop() -> None:
    result = await asyncio.to_thread(openrlhf_reward(RUBRIC, FakeJudge()), [f"{PROMPT}a"], [PROMPT], [""])
    assert result["rewards"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(("settings", "message"), [({"failed": 0.0}, "got 0.0"), ({"max_failures": 0}, "got 0")])
def test_setting_that_stands_for_a_failure_as_a_number_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        openrlhf_reward(RUBRIC, "offline", **settings)


@pytest.mark.processes
def test_reward_file_imports_nothing_heavy_and_its_function_pickles() -> None:
    code = f"""
import importlib.util, pickle, sys
spec = importlib.util.spec_from_file_location("reward_func", {str(EXAMPLE)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert not {{"dspy", "litellm", "langchain_core", "torch", "ray", "aiohttp"}} & set(sys.modules)
for reward_func in (module.reward_func, pickle.loads(pickle.dumps(module.reward_func))):
    print(reward_func(["Q: It was 8.4% of gross.</s>"], ["Q:"], [""])["rewards"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0.3333333333333333"] * 2
