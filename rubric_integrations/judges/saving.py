"""Saves and loads a judge: its instructions and few-shot examples, the schemas they were made for, its alignment."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, cast

import dspy
from dspy.utils.saving import get_dependency_versions
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from rubric_integrations.judges.alignment_record import AlignmentRecord
from rubric_integrations.judges.copying import CopiedPrompts
from rubric_integrations.judges.credentials import redact
from rubric_integrations.judges.judge_file import (
    JudgeFile,
    JudgeSettings,
    judge_file_text,
    read_judge_file,
    write_judge_file,
)
from rubric_integrations.judges.models import settings_of
from rubric_integrations.judges.prompts.attachments import Attachments
from rubric_integrations.results.labels import LabelledJudgment

# What is loaded of a predictor. DSPy would set any attribute, such as `config` with the address of another server, to
# which the user's key would be sent.
_LOADED = ("signature", "demos", "fields", "traces", "train")
_SETTING_TYPES = {"temperature": (int, float), "max_tokens": int, "seed": int, "reasoning_effort": str}


class SavedPrompts(CopiedPrompts):
    """A judge's prompts, which are saved and loaded without its model and the key in it."""

    alignment: AlignmentRecord | None = None
    lm: dspy.BaseLM
    examples: Sequence[LabelledJudgment]
    max_examples: int

    def save(self, path: Any, save_program: bool = False, modules_to_serialize: Any = None) -> None:
        """Write the instructions, the few-shot examples and the alignment to a file, without the model and its key.

        Args:
            path: A `.json` file; or a `.pkl` file of DSPy, which has the instructions and compiled examples alone.
            save_program: Refused; an argument of DSPy.
            modules_to_serialize: Has no effect; an argument of DSPy.

        Raises:
            ValueError: `save_program` is set, which would write the model and its key, too; a few-shot example has
                attachments, which would be texts when the file is loaded; or an aligned judge is saved as `.pkl`.
        """
        if save_program:
            raise ValueError(
                "`save_program=True` would write the model with its key into the file: save the judge without it, and "
                "load the file into a judge that is made with the same settings"
            )
        if Path(path).suffix.lower() == ".json":
            write_judge_file(Path(path), self.file_text())
            return
        if self.alignment is not None:
            raise ValueError(f"{path}: only a .json file can say how the judge was aligned: name one")
        self._require_texts()
        super().save(path, modules_to_serialize=modules_to_serialize)

    def file_text(self) -> str:
        """Return what `save` writes to a `.json` file, without secrets that a compiled example quotes from a reply.

        Raises:
            ValueError: A few-shot example has attachments.
        """
        self._require_texts()
        file = JudgeFile(
            alignment=self.alignment,
            settings=self._settings(),
            examples=tuple(self.examples),
            max_examples=self.max_examples if self.examples else 4,
            prompts={},
            schemas={},
        )
        state: dict[str, object] = {**self.dump_state(), "metadata": {"dependency_versions": get_dependency_versions()}}
        return redact(judge_file_text(file, state), settings_of(self.lm))

    # DSPy returns None, which no caller uses.
    def load(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, path: Any, allow_pickle: bool = False, allow_unsafe_lm_state: bool = False
    ) -> Self:
        """Load what `save` wrote; the model and its settings stay this judge's own.

        Args:
            path: The file.
            allow_pickle: Whether to load a `.pkl` file, which can run any code.
            allow_unsafe_lm_state: Has no effect; an argument of DSPy.

        Returns:
            This judge.

        Raises:
            ValueError: The file cannot be read, is damaged, or was saved for other signatures.

        Warns:
            UserWarning: The judge of the file was aligned for another model than this judge's.
        """
        if Path(path).suffix.lower() != ".json":
            super().load(path, allow_pickle=allow_pickle, allow_unsafe_lm_state=allow_unsafe_lm_state)
            self.alignment = None
            return self
        file = read_judge_file(path)
        prompts = {name: {**part.model_dump(), "traces": [], "train": []} for name, part in file.prompts.items()}
        try:
            self.load_state({**prompts, "schemas": file.schemas})
        # What the file has for DSPy's decisions is checked by DSPy, with errors of several kinds.
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError(f"{path}: {error}") from error
        if file.examples:
            self.examples, self.max_examples = file.examples, file.max_examples
        self.alignment = file.alignment
        if file.alignment and file.alignment.model != self.lm.model:
            warnings.warn(
                f"{path}: the judge was aligned for the model {file.alignment.model!r}, and this one is "
                f"{self.lm.model!r}: the figures of the alignment do not carry over; align this model, too, or measure "
                "its agreement with people",
                stacklevel=2,
            )
        return self

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return the instructions and compiled few-shot examples, without the model."""
        return add_schemas(self, super().dump_state(json_mode=json_mode))

    def load_state(self, state: dict[str, Any], *, allow_unsafe_lm_state: bool = False) -> None:
        """Load what `dump_state` returned; the model stays the module's own.

        Raises:
            ValueError: The state was saved for other signatures.
        """
        super().load_state(check_schemas(self, state), allow_unsafe_lm_state=allow_unsafe_lm_state)

    def _settings(self) -> JudgeSettings:
        settings: dict[str, Any] = {
            name: value
            for name, value in settings_of(self.lm).items()
            if isinstance(value, _SETTING_TYPES.get(name, ()))
        }
        # The default is left out: the judge that is loaded has it, too, and may drop it if a server refuses it.
        if not settings.get("temperature"):
            settings.pop("temperature", None)
        return JudgeSettings(confidence=self.confidence, **settings)

    def _require_texts(self) -> None:
        compiled = {
            name: any(
                isinstance(value, Attachments) for demo in cast("Any", predictor).demos for value in demo.values()
            )
            for name, predictor in self.named_predictors()
        }
        shown = {"examples": any(example.submission.attachments for example in self.examples)}
        for name, has_attachments in {**compiled, **shown}.items():
            if has_attachments:
                raise ValueError(
                    f"`{name}` has few-shot examples with attachments, which would be texts when the file is loaded: "
                    "compile the judge on examples without attachments"
                )


def question_schemas(module: dspy.Module) -> dict[str, str]:
    """Return a digest of each predictor's signature (its fields, their order and types), by the predictor's name."""
    return {name: _schema_digest(cast("Any", predictor).signature) for name, predictor in module.named_predictors()}


def add_schemas(module: dspy.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare a DSPy state for saving: add the schemas, leave out the models, whose headers may hold credentials."""
    parts = {name: {**part, "lm": None} for name, part in state.items()}
    return {**parts, "schemas": question_schemas(module)}


def check_schemas(module: dspy.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare a saved state for loading into a judge: keep the prompts alone, since a file may come from anybody.

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
    return {name: {**{key: state[name][key] for key in _LOADED if key in state[name]}, "lm": None} for name in schemas}


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
