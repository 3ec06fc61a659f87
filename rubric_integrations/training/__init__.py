"""Rubric grades as rewards of training runs.

- verl: `verl_reward` makes the function `compute_score` of a reward file.
- OpenRLHF: `openrlhf_reward` makes the function `reward_func` of a reward file.
- verifiers: the judge plugin `rubric_integrations_judge`, which its configuration names.

Importing this package imports no trainer: each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.training.openrlhf import openrlhf_reward
    from rubric_integrations.training.verl import verl_reward

_MODULES = {"openrlhf_reward": "openrlhf", "verl_reward": "verl"}

__all__ = ["openrlhf_reward", "verl_reward"]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
