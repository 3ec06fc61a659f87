"""Rubric grades as the rewards of training runs.

- TRL: `GRPOTrainer(reward_funcs=RubricReward(rubric, "openai/gpt-5-mini"))`.
- verl: `verl_reward` makes the function `compute_score` of a reward file.
- OpenRLHF: `openrlhf_reward` makes the function `reward_func` of a reward file.
- verifiers: the judge plugin `rubric_integrations_judge`, which its configuration names.

`reward_report` looks for signs in the graded completions of a run that the policy exploits its judge.

To add another trainer, write one module that reports a failure in the trainer's own way, never as a number: around
`SampleGrader`, where the trainer passes one completion at a time. Importing this package imports no trainer: each name
is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.graders.outage import JudgeOutage
    from rubric_integrations.results.estimate import Estimate
    from rubric_integrations.training.health.result import (
        CriterionTrend,
        JudgeGap,
        RewardReport,
        SecondJudge,
        StepFigures,
    )
    from rubric_integrations.training.health.reward_report import reward_report
    from rubric_integrations.training.health.trends import Trend
    from rubric_integrations.training.openrlhf import openrlhf_reward
    from rubric_integrations.training.reward import RubricReward
    from rubric_integrations.training.verl import verl_reward

_MODULES = {
    "CriterionTrend": "health.result",
    "Estimate": "health.result",
    "JudgeGap": "health.result",
    "JudgeOutage": "reward",
    "RewardReport": "health.result",
    "RubricReward": "reward",
    "SecondJudge": "health.result",
    "StepFigures": "health.result",
    "Trend": "health.trends",
    "openrlhf_reward": "openrlhf",
    "reward_report": "health.reward_report",
    "verl_reward": "verl",
}

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
    "openrlhf_reward",
    "reward_report",
    "verl_reward",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
