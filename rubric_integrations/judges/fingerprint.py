"""What a model judge's answers depend on, as a text without credentials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import dspy

from rubric_integrations.judges.credentials import public_settings
from rubric_integrations.judges.saving import prompt_state
from rubric_integrations.results.labels import LabelledJudgment

# Settings that change the price and the delay of an answer, and not the answer.
_IRRELEVANT = frozenset({"service_tier"})


def fingerprint_model_judge(
    module: dspy.Module,
    lm: dspy.BaseLM,
    examples: Sequence[LabelledJudgment],
    max_examples: int,
    confidence: bool,
) -> str:
    """Describe a model, its endpoint and sampling settings, and a judge's prompts and few-shot examples, as JSON.

    Args:
        module: The judge, whose predictors hold its prompts.
        lm: The judge's model.
        examples: The labelled judgments that it shows.
        max_examples: How many of them it shows at most.
        confidence: Whether it requests probabilities.
    """
    settings = {name: value for name, value in public_settings(lm.kwargs).items() if name not in _IRRELEVANT}
    shown: list[Any] = [example.model_dump(mode="json") for example in examples]
    engine = getattr(getattr(lm, "engine", None), "fingerprint", str)()
    state = [lm.model, settings, engine, prompt_state(module), shown, max_examples, confidence]
    return json.dumps(state, default=str, sort_keys=True)
