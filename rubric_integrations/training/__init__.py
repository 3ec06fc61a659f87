"""Rubric grades as the rewards of training runs.

- TRL: `GRPOTrainer(reward_funcs=RubricReward(rubric, "openai/gpt-5-mini"))`.
- verl: `verl_reward` returns the function `compute_score` of a reward file.
- ms-swift: `ms_swift_rewards` returns entries for `swift.rewards.orms`.
- slime and miles: `slime_reward` returns the function that `--custom-rm-path` names.
- OpenRLHF: `openrlhf_reward` returns the function `reward_func` of a reward file.
- verifiers: the judge plugin `rubric_integrations_judge`. Its name is set in the configuration of verifiers.

`rubric_integrations.trust.reward_report` searches the graded completions of a training run for signs that the policy
exploits its judge.

To add another trainer, write one module. It must report a failure as the trainer expects it, and never as a number. Use
`SampleGrader` if the trainer passes one completion at a time. Importing this package does not import a trainer, because
each name is imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.graders.endpoint import JudgeOutage
    from rubric_integrations.training.ms_swift import ms_swift_rewards
    from rubric_integrations.training.openrlhf import openrlhf_reward
    from rubric_integrations.training.reward import RubricReward
    from rubric_integrations.training.sample_grader import SampleGrader
    from rubric_integrations.training.slime import slime_reward
    from rubric_integrations.training.verl import verl_reward

_MODULES = {
    "JudgeOutage": "reward",
    "RubricReward": "reward",
    "SampleGrader": "sample_grader",
    "ms_swift_rewards": "ms_swift",
    "openrlhf_reward": "openrlhf",
    "slime_reward": "slime",
    "verl_reward": "verl",
}

__all__ = [
    "JudgeOutage",
    "RubricReward",
    "SampleGrader",
    "ms_swift_rewards",
    "openrlhf_reward",
    "slime_reward",
    "verl_reward",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
