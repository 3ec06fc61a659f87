"""Saves and loads a judge: its prompts, few-shot examples, sampling settings and alignment. Computes its fingerprint.

A file may come from an untrusted source. It contains no server address and no key. Only instructions, field
descriptions and few-shot examples are loaded from DSPy's state in the file.

The fingerprint identifies everything that a judge's answers depend on. The model, its server and its sampling settings
are readable in it. Other settings are included as a digest. Credentials are left out (see `judges/credentials.py`).
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from operator import is_
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypeVar, cast

import dspy
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from rubric_integrations._util.json import read_json_file, write_whole_file
from rubric_integrations._util.records import Record
from rubric_integrations.judges.calling import ModelCaller
from rubric_integrations.judges.credentials import SAMPLING_SETTINGS, has_scheme, is_credential, redact, split_url
from rubric_integrations.judges.models.keys import server_url_of_environment
from rubric_integrations.judges.models.names import is_plain_lm, settings_of
from rubric_integrations.judges.prompts.signatures import Attachments, CopiedPrompts, is_example
from rubric_integrations.judges.protocol import AlignmentRecord, ReasonPolicy
from rubric_integrations.judges.thresholds import MODEL_NAME, require_kind
from rubric_integrations.scoring.labels import LabelledJudgment

# A file with a hundred long few-shot examples has less than a tenth of this size.
_MOST_BYTES = 50_000_000
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# Models that are functions or LangChain objects. They cannot be made again from their names.
_OBJECTS = ("generate_fn/", "langchain/")


class JudgeSettings(Record):
    """The arguments of `LMJudge`, besides the model and the prompts, on which the judge's answers depend.

    Attributes:
        confidence: Whether the judge requests probabilities.
        reason: Which answers have a reason.
        temperature: The sampling temperature. None for the default.
        max_tokens: The largest number of tokens in a reply. None for the provider's default.
        seed: The sampling seed.
        reasoning_effort: The effort of a reasoning model.
    """

    confidence: bool = False
    reason: ReasonPolicy = "always"
    temperature: Annotated[float, Field(ge=0)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None


class _SavedField(BaseModel):
    prefix: str
    description: str


class _SavedSignature(BaseModel):
    instructions: str
    fields: list[_SavedField]


class SavedPredictor(BaseModel):
    """The parts of a saved `dspy.Predict` that are loaded: instructions, few-shot examples, and decision thresholds."""

    signature: _SavedSignature
    demos: list[dict[str, JsonValue]]
    fields: dict[str, JsonValue] = {}


class JudgeFile(Record):
    """The contents of a judge's file.

    Attributes:
        alignment: How the judge was aligned. None if it was not aligned.
        settings: The judge's settings.
        examples: The labelled judgments that the judge shows as few-shot examples.
        max_examples: The largest number of examples that are shown before a question.
        prompts: The instructions and few-shot examples of each predictor, by the predictor's name.
        schemas: A digest of each predictor's signature, by the predictor's name.
    """

    alignment: AlignmentRecord | None = None
    settings: JudgeSettings = JudgeSettings()
    examples: tuple[LabelledJudgment, ...] = ()
    max_examples: Annotated[int, Field(ge=0)] = 4
    prompts: dict[str, SavedPredictor]
    schemas: dict[str, str]

    def model_name(self) -> str:
        """Return the name of the model that the judge was aligned for.

        Raises:
            ValueError: The judge was not aligned, so the file contains no model name. Or it was aligned for a model
                object, such as a function, which cannot be made from a name.
        """
        if self.alignment is None:
            raise ValueError("does not name a model, since its judge was not aligned")
        name = self.alignment.model
        if name.startswith(_OBJECTS) or not MODEL_NAME.fullmatch(name):
            raise ValueError(f"is for the model {name!r}, which cannot be called by its name alone")
        return name


_SECTIONS = frozenset(JudgeFile.model_fields) - {"prompts"}


def judge_file_text(file: JudgeFile, state: dict[str, object]) -> str:
    r"""Return the text of a judge's file. Lone surrogates are escaped, because UTF-8 cannot encode them.

    Args:
        file: The contents, without the prompts.
        state: The prompts, as DSPy writes them with its metadata.
    """
    sections = file.model_dump(mode="json", exclude={"prompts"}, exclude_defaults=True)
    for fields, example in zip(sections.get("examples", ()), file.examples, strict=True):
        # In a criterion, a default value that is written differs from a missing one, such as `value: 0` of an option.
        fields["criterion"] |= example.criterion.model_dump(mode="json", exclude_unset=True)
    text = json.dumps({**sections, **state}, ensure_ascii=False, indent=2)
    return _LONE_SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text) + "\n"


def read_judge_file(path: str | os.PathLike[str]) -> JudgeFile:
    """Read a judge's file.

    Raises:
        ValueError: The file cannot be read, or `LMJudge.save` has not written it. The message names the file.
    """
    content = read_json_file(Path(path), _MOST_BYTES)
    try:
        return _parse(content)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, details["loc"])).removeprefix("prompts.")
        raise ValueError(f"{path}: `{place}` is not as `LMJudge.save` writes it: {details['msg']}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parse(content: Any) -> JudgeFile:
    require_kind(content, None)
    if not isinstance(content, dict) or not isinstance(cast("Any", content).get("schemas"), dict):
        raise ValueError("`schemas` is missing: the file was not written by `LMJudge.save`, so that it may not fit")
    sections = cast("dict[str, Any]", content)
    prompts = {name: part for name, part in sections.items() if name in sections["schemas"]}
    known = {name: sections[name] for name in _SECTIONS if name in sections}
    return JudgeFile.model_validate({**known, "prompts": prompts})


# The attributes of a predictor that are loaded. DSPy would set any attribute, such as `config` with the address of
# another server. The user's key would then be sent to that server.
_LOADED = ("signature", "demos", "fields", "traces", "train")
_SETTING_TYPES = {"temperature": (int, float), "max_tokens": int, "seed": int, "reasoning_effort": str}


class SavedPrompts(CopiedPrompts):
    """A judge's prompts. They are saved and loaded without the model and its API key."""

    alignment: AlignmentRecord | None = None
    lm: dspy.BaseLM
    examples: Sequence[LabelledJudgment]
    max_examples: int
    _caller: ModelCaller

    def save(self, path: Any, save_program: bool = False, modules_to_serialize: Any = None) -> None:
        """Write the instructions, the few-shot examples and the alignment to a file, without the model and its key.

        Args:
            path: A `.json` file, or a `.pkl` file of DSPy, which has only the instructions and compiled examples.
            save_program: An argument of DSPy that is refused, because it would write the model and its key.
            modules_to_serialize: An argument of DSPy without effect.

        Raises:
            ValueError: `save_program` is set, a few-shot example has attachments (they would be loaded as texts), or an
                aligned judge is saved as `.pkl`.
        """
        if save_program:
            raise ValueError(
                "`save_program=True` would write the model with its key into the file: save the judge without it, and "
                "load the file into a judge that is made with the same settings"
            )
        if Path(path).suffix.lower() == ".json":
            write_whole_file(Path(path), self.file_text())
            return
        if self.alignment is not None:
            raise ValueError(f"{path}: only a .json file can say how the judge was aligned: name one")
        self._require_texts()
        super().save(path, modules_to_serialize=modules_to_serialize)

    def file_text(self) -> str:
        """Return the text that `save` writes to a `.json` file. Secrets in quoted replies are redacted.

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
        return redact(judge_file_text(file, self.state_with_versions()), settings_of(self.lm))

    # DSPy returns None, which no caller uses.
    def load(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, path: Any, allow_pickle: bool = False, allow_unsafe_lm_state: bool = False
    ) -> Self:
        """Load the prompts and the alignment from a file. This judge keeps its model and its settings.

        Args:
            path: A file that `save` wrote.
            allow_pickle: Whether to load a `.pkl` file, which can run any code.
            allow_unsafe_lm_state: An argument of DSPy without effect.

        Returns:
            This judge.

        Raises:
            ValueError: The file cannot be read, is damaged, or was saved for other signatures.

        Warns:
            UserWarning: The judge in the file was aligned for a model that is not this judge's model.
        """
        if Path(path).suffix.lower() != ".json":
            super().load(path, allow_pickle=allow_pickle, allow_unsafe_lm_state=allow_unsafe_lm_state)
            self.alignment = None
            return self
        file = read_judge_file(path)
        prompts = {name: {**part.model_dump(), "traces": [], "train": []} for name, part in file.prompts.items()}
        try:
            self.load_state({**prompts, "schemas": file.schemas})
        # DSPy checks the decision thresholds in the file, and raises several types of errors.
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
        """Load a state that `dump_state` returned. The model is not changed.

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
        # The default is left out, because a loaded judge has it too. It can then omit it if a server refuses it.
        if self._caller.has_default(self.lm):
            settings.pop("temperature")
        return JudgeSettings(confidence=self.confidence, reason=self.reason, **settings)

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
    """Prepare a DSPy state for saving: add a digest of each signature, and remove the models with their credentials."""
    parts = {name: {**part, "lm": None} for name, part in state.items()}
    return {**parts, "schemas": question_schemas(module)}


def check_schemas(module: dspy.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare a saved state for loading into a judge: keep only the prompts, because a file may be untrusted.

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
    """Return the data that determine each predictor's prompts: a digest of its signature, and its few-shot examples."""
    return {
        name: [
            _signature_digest(predictor.signature),
            predictor.fields,
            [dict(demo.items()) for demo in predictor.demos],
        ]
        for name, predictor in cast("Any", module).named_predictors()
    }


_PROMPT_PARTS = ("signature", "fields", "demos", "traces", "train")


def predictor_states(module: dspy.Module) -> list[tuple[object, ...]]:
    """Return the values that determine the prompts of each predictor, to detect whether a judge has changed."""
    # DSPy runs Python code for each look-up of a module's attribute, and searches all attributes for predictors.
    attributes: dict[str, Any] = object.__getattribute__(module, "__dict__")
    known = attributes.get(_PREDICTORS)
    if known is None:
        known = attributes[_PREDICTORS] = _KnownPredictors()
    return [(name, *map(get, _PROMPT_PARTS)) for name, get in known.of(module, attributes)]


_PREDICTORS = "_known_predictors"


class _KnownPredictors:
    """A cache of a judge's predictors. It is computed again after one of the judge's attributes was replaced.

    Optimizers replace an attribute or change a predictor in place. A predictor inside a list or another module could be
    replaced in a third way. A judge with such a predictor is therefore searched each time.
    """

    def __init__(self) -> None:
        # One tuple, so that another thread never reads the values of one search with the result of another.
        self._last: tuple[list[object], list[tuple[str, Callable[[str], object]]]] | None = None

    def __reduce__(self) -> Any:
        return _KnownPredictors, ()

    def of(self, module: dspy.Module, attributes: Mapping[str, object]) -> list[tuple[str, Callable[[str], object]]]:
        """Return the name of each predictor, and a function that looks up one of its attributes by name."""
        values, last = list(attributes.values()), self._last
        if last is not None and len(last[0]) == len(values) and all(map(is_, last[0], values)):
            return last[1]
        predictors: list[tuple[str, object]] = cast("Any", module).named_predictors()
        named: list[tuple[str, Callable[[str], object]]] = [(name, vars(value).get) for name, value in predictors]
        self._last = (values, named) if all(name.isidentifier() for name, _ in named) else None
        return named


# A signature never changes: an optimizer replaces it with a new one.
@lru_cache(maxsize=256)
def _signature_digest(signature: Any) -> str:
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


# Settings that change the price and the delay of an answer, but not the answer.
_IRRELEVANT = frozenset({"service_tier", "timeout", "num_retries", "max_retries"})
_URLS = ("api_base", "base_url")

T = TypeVar("T")


class Memo(Generic[T]):
    """A cache of the last result of a function. The result is valid until the state on which it depends changes.

    A judge is changed in place by `load`, by optimizers and by its user. No single method could invalidate the results.
    Therefore the state is compared by value with a copy of the last state. A pickle contains no result, because the
    state may contain credentials.
    """

    def __init__(self) -> None:
        # One tuple, so that another thread never reads the state of one result with the value of another.
        self._last: tuple[object, T] | None = None

    def __reduce__(self) -> Any:
        return Memo, ()

    def get(self, state: Sequence[object], compute: Callable[[], T]) -> T:
        """Return the last result if the state is equal to the last state. Otherwise compute a new result.

        Args:
            state: All values on which the result depends.
            compute: A function that computes the result.
        """
        last = self._last
        if last is None or last[0] != state:
            copied = _copy_of(state)
            self._last = last = (copied, compute())
        return last[1]


def _copy_of(value: Any) -> Any:
    """Copy the parts of a state that can be changed in place: collections and few-shot examples."""
    if isinstance(value, dict):
        return {name: _copy_of(item) for name, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_copy_of(item) for item in cast("list[Any]", value)]
    if isinstance(value, tuple):
        return tuple(_copy_of(item) for item in cast("tuple[Any, ...]", value))
    return value.copy() if is_example(value) else value


def model_state(lm: dspy.BaseLM) -> tuple[object, ...]:
    """Return the values that determine how a fingerprint describes a model, to detect whether they have changed."""
    return lm.model, settings_of(lm), client_of(lm), server_url_of_environment(lm.model)


def fingerprint_model_judge(
    module: dspy.Module,
    lm: dspy.BaseLM,
    examples: Sequence[LabelledJudgment],
    max_examples: int,
    confidence: bool,
    name: str | None = None,
    training_digest: str = "",
) -> str | None:
    """Compute a judge's fingerprint from its model, endpoint, settings, prompts and few-shot examples, as JSON.

    Args:
        module: The judge. Its predictors contain its prompts.
        lm: The judge's model.
        examples: The labelled judgments that the judge shows.
        max_examples: The largest number of examples that are shown before a question.
        confidence: Whether the judge requests probabilities.
        name: A name that replaces the model, its address and its client. None for no replacement.
        training_digest: A digest of the judgments whose labels shaped the prompts. Empty for a judge that was not
            aligned. Stored judgments of an aligned judge may be marked as `trained_on`. With this digest, an aligned
            judge does not share them with a judge that has the same prompts and was not aligned.

    Returns:
        The fingerprint. None if the model cannot be identified, such as a lambda without a name.
    """
    client = client_of(lm) if name is None else ""
    if client is None:
        return None
    settings = {name: value for name, value in settings_of(lm).items() if name not in _IRRELEVANT}
    url = next((str(settings[name]) for name in _URLS if settings.get(name)), None)
    server, path = split_url("" if name else url or server_url_of_environment(lm.model) or "")
    settings = cast("dict[str, Any]", _canonical({**settings, **dict.fromkeys(_URLS)}))
    readable = {name: settings.pop(name) for name in SAMPLING_SETTINGS & settings.keys()}
    shown = [_describe_example(example) for example in examples]
    parts = [prompt_state(module), shown, max_examples, confidence, *([training_digest] if training_digest else [])]
    prompts = json.dumps(parts, default=str, sort_keys=True)
    hidden = [path, settings] if path or settings else []
    # The name is a JSON object, because the name of a model could be the same text.
    state = [
        lm.model if name is None else {"name": name},
        server,
        readable,
        client,
        _digest(json.dumps(hidden, sort_keys=True)) if hidden else "",
    ]
    return json.dumps([*state, _digest(prompts)], sort_keys=True)


def _describe_example(example: LabelledJudgment) -> dict[str, Any]:
    fields: dict[str, Any] = example.model_dump(mode="json", exclude=_NOT_SHOWN)
    if example.submission.attachments:
        fields["submission"]["attachments"] = [file.identity() for file in example.submission.attachments]
    return fields


# The fields of an example that no prompt shows. A new field of a record must not change the keys of stored judgments.
_NOT_SHOWN: Any = {
    **dict.fromkeys(("id", "rater", "sampled", "judged", "blind", "digest"), True),
    "criterion": {"tags", "importance", "metadata", "applies_when", "per", "cap", "context", "judge"},
    "submission": {"context", "attachments"},
}


def client_of(lm: dspy.BaseLM) -> str | None:
    """Identify the client that sends a model's requests. Empty for DSPy itself, None if the client is unknown."""
    engine: Any = getattr(lm, "engine", None)
    if engine is not None and not isinstance(engine, str):
        fingerprint: object = getattr(engine, "fingerprint", None)
        return cast("str | None", fingerprint()) if callable(fingerprint) else None
    if is_plain_lm(lm):
        return ""
    fingerprint = getattr(lm, "fingerprint", None)
    if callable(fingerprint):
        return cast("str | None", fingerprint())
    # Other attributes of a user's LM, such as counters and clients, do not identify it.
    texts = {name: value for name, value in vars(lm).items() if isinstance(value, str) and not is_credential(name)}
    return f"{_name_of(type(lm))} {_digest(json.dumps(texts, sort_keys=True))}"


def _canonical(value: object, *, are_headers: bool = False) -> object:
    """Convert a setting to canonical JSON, without credentials and without empty values."""
    if isinstance(value, Mapping):
        items = {
            str(name): item for name, item in cast("Mapping[Any, Any]", value).items() if not is_credential(str(name))
        }
        members = {
            name.lower() if are_headers else name: _canonical(item, are_headers=name.endswith("headers"))
            for name, item in items.items()
        }
        return {name: member for name, member in members.items() if member not in (None, {}, [])}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in cast("list[object]", value)]
    if isinstance(value, set | frozenset):
        return sorted((_canonical(item) for item in cast("set[object]", value)), key=repr)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return None if has_scheme(value) else value
    if value is None or isinstance(value, bool | int | float):
        return value
    # The text of another object may contain its address in memory, which changes with each run.
    return _name_of(value if isinstance(value, type) else type(value))


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:32]
