"""What a model judge's answers depend on, as a text without secrets.

Readable are the model, its server and its sampling settings. All other settings are in a digest, except credentials:
these change no answer, and a short one could be guessed from any digest. `credentials.py` decides what is a credential.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import dspy

from rubric_integrations.judges.credentials import SAMPLING_SETTINGS, has_scheme, is_credential
from rubric_integrations.judges.models import settings_of
from rubric_integrations.judges.models.keys import server_url_of_environment
from rubric_integrations.judges.saving import prompt_state
from rubric_integrations.results.labels import LabelledJudgment

# Settings that change the price and the delay of an answer, and not the answer.
_IRRELEVANT = frozenset({"service_tier", "timeout", "num_retries", "max_retries"})
_URLS = ("api_base", "base_url")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def fingerprint_model_judge(
    module: dspy.Module,
    lm: dspy.BaseLM,
    examples: Sequence[LabelledJudgment],
    max_examples: int,
    confidence: bool,
    name: str | None = None,
    training_digest: str = "",
) -> str | None:
    """Describe a model, its endpoint and settings, and a judge's prompts and few-shot examples, as JSON.

    Args:
        module: The judge, whose predictors hold its prompts.
        lm: The judge's model.
        examples: The labelled judgments that it shows.
        max_examples: How many of them it shows at most.
        confidence: Whether it requests probabilities.
        name: What stands for the model, its address and its client; None if they stand for themselves.
        training_digest: See `AlignmentRecord`. Whether a stored judgment is `trained_on` depends on it, so that the
            answers of two judges with the same prompts, of which one has seen the labels, must not be mixed.

    Returns:
        The fingerprint; None for a model that cannot be identified, such as a lambda without a name.
    """
    client = _client_of(lm) if name is None else ""
    if client is None:
        return None
    settings = {name: value for name, value in settings_of(lm).items() if name not in _IRRELEVANT}
    url = next((str(settings[name]) for name in _URLS if settings.get(name)), None)
    server, path = _split_url("" if name else url or server_url_of_environment(lm.model) or "")
    settings = cast("dict[str, Any]", _canonical({**settings, **dict.fromkeys(_URLS)}))
    readable = {name: settings.pop(name) for name in SAMPLING_SETTINGS & settings.keys()}
    shown = [_describe_example(example) for example in examples]
    parts = [prompt_state(module), shown, max_examples, confidence, *([training_digest] if training_digest else [])]
    prompts = json.dumps(parts, default=str, sort_keys=True)
    hidden = [path, settings] if path or settings else []
    # An object, so that no model's name is equal to it.
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


# What no prompt shows of an example: a new field of a record must not change the keys of stored judgments.
_NOT_SHOWN: Any = {
    **dict.fromkeys(("id", "rater", "sampled", "judged", "blind"), True),
    "criterion": {"tags", "importance", "metadata", "applies_when", "per", "cap", "context", "judge"},
    "submission": {"context", "attachments"},
}


def _client_of(lm: dspy.BaseLM) -> str | None:
    """Identify what sends a model's requests: empty for DSPy itself, None where that is unknown."""
    engine: Any = getattr(lm, "engine", None)
    if engine is not None and not isinstance(engine, str):
        fingerprint: object = getattr(engine, "fingerprint", None)
        return cast("str | None", fingerprint()) if callable(fingerprint) else None
    if type(lm) is dspy.LM:
        return ""
    fingerprint = getattr(lm, "fingerprint", None)
    if callable(fingerprint):
        return cast("str | None", fingerprint())
    # What a user's own LM keeps beside that, such as counters and clients, does not identify it.
    texts = {name: value for name, value in vars(lm).items() if isinstance(value, str) and not is_credential(name)}
    return f"{_name_of(type(lm))} {_digest(json.dumps(texts, sort_keys=True))}"


def _split_url(url: str) -> tuple[str, list[object]]:
    """Return a URL's server, and its path and parameters, in one spelling and without credentials."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    shown_port = f":{port}" if port and port != _DEFAULT_PORTS.get(parts.scheme) else ""
    path = parts.path.rstrip("/")
    query = sorted(pair for pair in parse_qsl(parts.query) if not is_credential(pair[0]))
    return f"{parts.scheme}://{host}{shown_port}" if host else "", [path, query] if path or query else []


def _canonical(value: object, *, are_headers: bool = False) -> object:
    """Return a setting as JSON, the same for equal settings, without credentials and settings that are not set."""
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
    # The text of another object may have its address in memory, which changes with each run.
    return _name_of(value if isinstance(value, type) else type(value))


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:32]
