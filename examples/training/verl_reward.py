"""The reward file of a verl run: `reward.custom_reward_function.path=examples/training/verl_reward.py`.

Its criteria have checks, so that it runs without a model. For criteria in words, name a model in place of "offline".
"""

from pathlib import Path

from rubric_integrations.training import verl_reward

compute_score = verl_reward(Path(__file__).with_name("rubric.yaml"), "offline")
