"""What a model judge's answers depend on, as a text without credentials."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import dspy

from rubric_integrations.judges.saving import prompt_state
from rubric_integrations.results.labels import LabelledJudgment

# Keyword arguments that hold credentials; excluded from fingerprints, which are written to ledgers.
_CREDENTIALS = re.compile(r"key|secret|password|credential|headers|auth|token(?!s)", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/@]*@")


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
    settings = {name: value for name, value in lm.kwargs.items() if not _CREDENTIALS.search(name)}
    for name in ("api_base", "base_url"):
        if name in settings:
            settings[name] = _USER_IN_URL.sub("", str(settings[name]))
    shown: list[Any] = [example.model_dump(mode="json") for example in examples]
    engine = getattr(getattr(lm, "engine", None), "fingerprint", str)()
    state = [lm.model, settings, engine, prompt_state(module), shown, max_examples, confidence]
    return json.dumps(state, default=str, sort_keys=True)
