"""DSPy's optimizers by name, as `align` uses them.

To add one, write a function that makes it, and add it to `OPTIMIZERS`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import dspy
from dspy.teleprompt import MIPROv2, Teleprompter
from dspy.teleprompt.gepa.gepa import GEPA

from rubric_integrations.agreement.alignment_calls import AlignmentCalls
from rubric_integrations.agreement.label_metric import judge_metric
from rubric_integrations.agreement.proposer_model import ProposerModel

OptimizerName = Literal["gepa", "miprov2", "bootstrap"]
"""The optimizers that `align` knows by name."""


class OptimizerSettings(NamedTuple):
    """What an optimizer is made with.

    Attributes:
        proposer: The model that proposes instructions.
        threads: The most calls at the same time.
        seed: The seed of the search.
    """

    proposer: dspy.BaseLM
    threads: int
    seed: int


def _gepa(settings: OptimizerSettings) -> Teleprompter:
    return GEPA(
        metric=cast("Any", judge_metric), auto="light", reflection_lm=cast("Any", settings.proposer),
        component_selector="all", num_threads=settings.threads, seed=settings.seed,
    )  # fmt: skip


def _miprov2(settings: OptimizerSettings) -> Teleprompter:
    return MIPROv2(
        metric=judge_metric, auto="light", prompt_model=settings.proposer, task_model=settings.proposer,
        num_threads=settings.threads, seed=settings.seed,
    )  # fmt: skip


def _bootstrap(settings: OptimizerSettings) -> Teleprompter:
    return dspy.BootstrapFewShot(metric=judge_metric)


OPTIMIZERS: dict[OptimizerName, Callable[[OptimizerSettings], Teleprompter]] = {
    "gepa": _gepa,
    "miprov2": _miprov2,
    "bootstrap": _bootstrap,
}
"""The optimizers by name. GEPA rewrites the instructions by the raters' reasons, MIPROv2 searches for instructions and
demonstrations together, and BootstrapFewShot collects demonstrations."""


def make_optimizer(
    optimizer: Teleprompter | str, settings: OptimizerSettings, calls: AlignmentCalls
) -> tuple[Teleprompter, str]:
    """Return an optimizer, and its name; one of a user's own as a copy, whose models count towards the limits.

    Raises:
        TypeError: It is neither a name nor an optimizer of DSPy.
        ValueError: There is no optimizer of this name.
    """
    if isinstance(optimizer, str):
        make = OPTIMIZERS.get(cast("OptimizerName", optimizer))
        if make is None:
            names = ", ".join(map(repr, OPTIMIZERS))
            raise ValueError(f"`optimizer` must be one of {names}, or an optimizer of DSPy, got {optimizer!r}")
        made = make(settings)
        return made, type(made).__name__
    if not isinstance(cast("object", optimizer), Teleprompter):
        raise TypeError(
            f"`optimizer` must be a name or an optimizer of DSPy, such as `dspy.GEPA(metric=judge_metric, ...)`, got "
            f"{type(optimizer).__name__}"
        )
    own = copy.copy(optimizer)
    for name, value in vars(optimizer).items():
        if isinstance(value, dspy.BaseLM):
            setattr(own, name, ProposerModel(value, calls))
    return own, type(optimizer).__name__


def run_optimizer(
    optimizer: Teleprompter, student: dspy.Module, trainset: list[dspy.Example], valset: list[dspy.Example]
) -> dspy.Module:
    """Let an optimizer improve a student; those that choose among candidates do so on `valset`."""
    parameters = inspect.signature(optimizer.compile).parameters
    sets = {"trainset": trainset, **({"valset": valset} if "valset" in parameters else {})}
    return cast("Any", optimizer).compile(student, **sets)
