"""Copies and pickles a judge's prompts."""

from __future__ import annotations

import copy
from typing import Any, Self

import dspy

from rubric_integrations.judges.prompts.signatures import judge_signatures


class CopiedPrompts(dspy.Module):
    """A judge's prompts, which can be copied, optimized as a copy, and sent to another process.

    Attributes:
        confidence: Whether probabilities are requested, by which the signatures differ.
    """

    confidence: bool

    def __copy__(self) -> Self:
        judge = type(self).__new__(type(self))
        dspy.Module.__setstate__(judge, dspy.Module.__getstate__(self))
        return judge

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, which cannot hold the classes of DSPy's signatures."""
        state: dict[str, Any] = super().__getstate__()
        return state | {name: state[name].dump_state(json_mode=False) for name in judge_signatures(self.confidence)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name, signature in judge_signatures(self.confidence).items():
            predictor = dspy.Predict(signature)
            predictor.load_state(state[name])
            setattr(self, name, predictor)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the prompts, so that they can be optimized; the model, with its connections and locks, is shared."""
        judge = copy.copy(self)
        judge.history = []
        for name, predictor in self.named_predictors():
            setattr(judge, name, copy.deepcopy(predictor, memo))
        return judge
