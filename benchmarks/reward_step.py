"""Measures how long a training step waits for its rewards: the first step, and the later ones.

    python benchmarks/reward_step.py
    python benchmarks/reward_step.py --completions 64 --latency 1000

The model is a mock server in a process of its own, which answers after the latency. A step grades 8 completions by 2
criteria, as one process of a TRL trainer does. The ideal is the latency, once: all judgments are requested at once. In
the first step the judge makes one call alone, to see that it can be used, and then the others.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ |= {"DSPY_CACHEDIR": tempfile.mkdtemp(), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

from benchmarks.server import mock_model
from rubric_integrations import Rubric
from rubric_integrations.judges import LMJudge
from rubric_integrations.training import RubricReward

RUBRIC = Rubric.from_dict([{"name": "right", "requirement": "Is right"}, {"name": "brief", "requirement": "Is brief"}])


async def step_times(url: str, completions: int, steps: int) -> list[float]:
    """Return the milliseconds of each step; the prompts of a step are those of two groups."""
    reward = RubricReward(RUBRIC, LMJudge("openai/mock", api_base=url, api_key="none"))
    times: list[float] = []
    for step in range(steps):
        prompts = [f"Question {2 * step + (2 * place) // completions}" for place in range(completions)]
        texts = [f"Answer {step} {place} " + "word " * 200 for place in range(completions)]
        begin = time.perf_counter()
        rewards = await reward(prompts=prompts, completions=texts)
        times.append(1000 * (time.perf_counter() - begin))
        if None in rewards:
            raise RuntimeError(f"step {step} has {rewards.count(None)} completions without a reward")
    return times


def main() -> None:
    """Print the time of the first step and the median of the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--completions", type=int, default=8, help="completions of a step (default 8)")
    parser.add_argument("--latency", type=float, default=200, help="milliseconds until a reply (default 200)")
    parser.add_argument("--steps", type=int, default=20, help="number of steps (default 20)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with mock_model() as address:
        first, *later = asyncio.run(step_times(f"{address}/{options.latency:g}/v1", options.completions, options.steps))
    print(f"{options.completions} completions x {len(RUBRIC)} criteria, judge of {options.latency:g} ms")
    print(f"first step   {first:6.0f} ms")
    print(f"later steps  {statistics.median(later):6.0f} ms (median of {len(later)}; slowest {max(later):.0f} ms)")


if __name__ == "__main__":
    main()
