"""A rubric as the reward of a training run: `GRPOTrainer(reward_funcs=RubricReward(rubric, "openai/gpt-5-mini"))`.

`reward` is the reward function of TRL, `completions` reads what the policy has written, `step_metrics` computes what is
logged, and `rollouts` is the file of the graded completions. To add another trainer, write one module that grades with
these parts and reports a failure in the trainer's own way, never as a number.
"""

from rubric_integrations.graders.outage import JudgeOutage
from rubric_integrations.training.reward import RubricReward

__all__ = ["JudgeOutage", "RubricReward"]
