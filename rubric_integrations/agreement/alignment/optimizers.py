"""DSPy's optimizers by name, as `align` uses them.

To add one, write a function that makes it, and add it to `OPTIMIZERS`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, cast

import dspy
from dspy.teleprompt import MIPROv2, Teleprompter
from dspy.teleprompt.gepa.gepa import GEPA

from rubric_integrations.agreement.alignment.calls import AlignmentCalls
from rubric_integrations.agreement.alignment.counted_model import CountedModel
from rubric_integrations.agreement.alignment.label_metric import judge_metric

# An experiment may end with any release of DSPy.
_ReAnchor: Any = (
    getattr(import_module("dspy.experimental"), "ReAnchor", None) if find_spec("dspy.experimental") else None
)

OptimizerName = Literal["gepa", "miprov2", "bootstrap", "reanchor"]
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


def _reanchor(settings: OptimizerSettings) -> Teleprompter:
    if _ReAnchor is None:
        raise ValueError("`optimizer` 'reanchor' is not part of the installed DSPy: it is an experiment of DSPy 3.4")
    return _ReAnchor(metric=judge_metric, num_threads=settings.threads, require_cache=False)


OPTIMIZERS: dict[OptimizerName, Callable[[OptimizerSettings], Teleprompter]] = {
    "gepa": _gepa,
    "miprov2": _miprov2,
    "bootstrap": _bootstrap,
    "reanchor": _reanchor,
}
"""The optimizers by name. GEPA rewrites the instructions by the raters' reasons, MIPROv2 searches for instructions and
demonstrations together, BootstrapFewShot collects demonstrations, and ReAnchor weighs stated probabilities."""


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
            setattr(own, name, CountedModel(value, calls))
    return own, type(optimizer).__name__


def decodes_again(optimizer: Teleprompter) -> bool:
    """Whether an optimizer tries many ways of decoding the same replies, so that each must be requested once."""
    return _ReAnchor is not None and isinstance(optimizer, _ReAnchor)


def run_optimizer(
    optimizer: Teleprompter, student: dspy.Module, trainset: list[dspy.Example], valset: list[dspy.Example]
) -> dspy.Module:
    """Let an optimizer improve a student; those that choose among candidates do so on `valset`."""
    parameters = inspect.signature(optimizer.compile).parameters
    sets = {"trainset": trainset, **({"valset": valset} if "valset" in parameters else {})}
    return cast("Any", optimizer).compile(student, **sets)
