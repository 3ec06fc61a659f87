"""Saves and loads a compiled judge: its instructions and few-shot examples, and the schemas that they were made for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, cast

import dspy
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from rubric_integrations.judges.prompts.attachments import Attachments


class SavedPrompts(dspy.Module):
    """A DSPy module that saves and loads its instructions and few-shot examples, never its model and the key in it."""

    def save(self, path: Any, save_program: bool = False, modules_to_serialize: Any = None) -> None:
        """Write the instructions and few-shot examples to a file, `.json` or `.pkl`, without the model.

        Raises:
            ValueError: `save_program` is set, which would write the model and its key, too; or a few-shot example has
                attachments, which a file of DSPy has as texts, and which would be texts when it is loaded.
        """
        for name, predictor in self.named_predictors():
            values = (value for demo in cast("Any", predictor).demos for _, value in demo.items())
            if any(isinstance(value, Attachments) for value in values):
                raise ValueError(
                    f"`{name}` has few-shot examples with attachments, which would be texts when the file is loaded: "
                    "compile the judge on examples without attachments"
                )
        if save_program:
            raise ValueError(
                "`save_program=True` would write the model with its key into the file: save the judge without it, and "
                "load the file into a judge that is made with the same settings"
            )
        super().save(path, modules_to_serialize=modules_to_serialize)

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return what `save` writes: the instructions and few-shot examples, without the model."""
        return add_schemas(self, super().dump_state(json_mode=json_mode))

    def load_state(self, state: dict[str, Any], *, allow_unsafe_lm_state: bool = False) -> None:
        """Load what `dump_state` returned; the model stays the module's own.

        Raises:
            ValueError: The state was saved for other signatures.
        """
        super().load_state(check_schemas(self, state), allow_unsafe_lm_state=allow_unsafe_lm_state)


def question_schemas(module: dspy.Module) -> dict[str, str]:
    """Return a digest of each predictor's signature (its fields, their order and types), by the predictor's name."""
    return {name: _schema_digest(cast("Any", predictor).signature) for name, predictor in module.named_predictors()}


def add_schemas(module: dspy.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare a DSPy state for saving: add the schemas, leave out the models, whose headers may hold credentials."""
    parts = {name: {**part, "lm": None} for name, part in state.items()}
    return {**parts, "schemas": question_schemas(module)}


def check_schemas(module: dspy.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare a saved state for loading into a judge; a saved model is left out, since its address may be anyone's.

    Raises:
        ValueError: The state was not written by `LMJudge.save`, or was saved for another signature.
    """
    saved = state.get("schemas")
    if not isinstance(saved, dict):
        raise ValueError("`schemas` is missing: the file was not written by `LMJudge.save`, so that it may not fit")
    schemas = question_schemas(module)
    for name, schema in schemas.items():
        if name not in state or cast("dict[str, str]", saved).get(name) != schema:
            raise ValueError(
                f"`{name}` was saved for a question of another form than this judge's, with other fields or types: its "
                "few-shot examples would teach the wrong one. Make the judge with the same settings or compile it again"
            )
    return {name: {**cast("dict[str, Any]", state[name]), "lm": None} for name in schemas}


def prompt_state(module: dspy.Module) -> dict[str, Any]:
    """Return what each predictor's prompts are made of: a digest of its signature, and its few-shot examples."""
    return {
        name: [_digest(predictor.signature), predictor.fields, [dict(demo.items()) for demo in predictor.demos]]
        for name, predictor in cast("Any", module).named_predictors()
    }


# A signature never changes: an optimizer replaces it by another one.
@lru_cache(maxsize=256)
def _digest(signature: Any) -> str:
    state = json.dumps([signature.dump_state(), _schema_digest(signature)], sort_keys=True)
    return sha256(state.encode()).hexdigest()[:16]


@lru_cache(maxsize=256)
def _schema_digest(signature: Any) -> str:
    fields = {name: _type_schema(field.annotation) for name, field in signature.fields.items()}
    return sha256(json.dumps(list(fields.items()), sort_keys=True).encode()).hexdigest()[:16]


def _type_schema(annotation: Any) -> object:
    try:
        return TypeAdapter(annotation).json_schema()
    except PydanticUserError:
        return repr(annotation)
