"""A compiled judge on disk: instructions and demonstrations, and the form of the questions that they were made for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, cast

import dspy
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError


def question_schemas(module: dspy.Module) -> dict[str, str]:
    """The form of each predictor's question by the predictor's name: a digest of its fields, their order and types."""
    return {name: _schema(cast("Any", predictor).signature) for name, predictor in module.named_predictors()}


def add_schemas(module: dspy.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """What to save of what DSPy would: all but the models, whose headers it would write with the secrets in them."""
    parts = {name: {**part, "lm": None} for name, part in state.items()}
    return {**parts, "schemas": question_schemas(module)}


def check_schemas(module: dspy.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """What DSPy is to load of what was saved; a model that stands there is left out, as its address may be anyone's.

    Raises:
        ValueError: It is no judge's state, or one for questions of another form.
    """
    saved = state.get("schemas")
    if not isinstance(saved, dict):
        raise ValueError("`schemas` is missing: this is not what `LMJudge.save` writes; its demos would fit by chance")
    forms = question_schemas(module)
    for name, form in forms.items():
        if name not in state or cast("dict[str, str]", saved).get(name) != form:
            raise ValueError(
                f"`{name}` was saved for a question of another form than this judge asks, with other fields or types: "
                "its demonstrations would teach the wrong one. Make the judge with the same settings or compile it anew"
            )
    return {name: {**cast("dict[str, Any]", state[name]), "lm": None} for name in forms}


def prompt_state(module: dspy.Module) -> dict[str, Any]:
    """What each predictor's prompts are made of: a digest of its signature, and its demonstrations."""
    return {
        name: [_digest(predictor.signature), predictor.fields, [dict(demo.items()) for demo in predictor.demos]]
        for name, predictor in cast("Any", module).named_predictors()
    }


# Signatures do not change: an optimizer puts another in the place of one.
@lru_cache(maxsize=256)
def _digest(signature: Any) -> str:
    return sha256(json.dumps([signature.dump_state(), _schema(signature)], sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=256)
def _schema(signature: Any) -> str:
    fields = {name: _type(field.annotation) for name, field in signature.fields.items()}
    return sha256(json.dumps(list(fields.items()), sort_keys=True).encode()).hexdigest()[:16]


def _type(annotation: Any) -> object:
    try:
        return TypeAdapter(annotation).json_schema()
    except PydanticUserError:
        return repr(annotation)
