"""A rubric as the reward of a training run: `GRPOTrainer(reward_funcs=RubricReward(rubric, "openai/gpt-5-mini"))`.

`reward` is the reward function of TRL, `completions` reads what the policy has written, `step_metrics` computes what is
logged, and `rollouts` are the graded completions, with `rollout_file` for their file. To add another trainer, write one
module that grades with these parts and reports a failure in the trainer's own way, never as a number.

`health` looks for signs in such a file that the policy exploits its judge: `reward_report`.
"""

from rubric_integrations.graders.outage import JudgeOutage
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.training.health.result import CriterionTrend, JudgeGap, RewardReport, SecondJudge, StepFigures
from rubric_integrations.training.health.reward_report import reward_report
from rubric_integrations.training.health.trends import Trend
from rubric_integrations.training.reward import RubricReward

__all__ = [
    "CriterionTrend",
    "Estimate",
    "JudgeGap",
    "JudgeOutage",
    "RewardReport",
    "RubricReward",
    "SecondJudge",
    "StepFigures",
    "Trend",
    "reward_report",
]
