"""The reward file of an OpenRLHF run: `--reward.remote_url examples/training/openrlhf_reward.py`.

Its criteria have checks, so that it runs without a model. For criteria in words, name a model in place of "offline".
"""

from pathlib import Path

from rubric_integrations.training import openrlhf_reward

reward_func = openrlhf_reward(Path(__file__).with_name("rubric.yaml"), "offline")
