"""What of a DSPy example and prediction is graded, and eval cases as a DSPy devset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import dspy

from rubric_integrations.formats.agentv import EvalCase
from rubric_integrations.submission.messages import Messages, is_conversation, json_lines, render

Field = str | Callable[[Any], str | Messages | None]
"""Where a text comes from: a field's name, or a function of the example (for a response: of the prediction)."""


class MisnamedField(BaseException):
    """A metric was told to read a field that is not there.

    Not an `Exception`, for the reason that `JudgeOutage` is none: DSPy would score every program 0 for it.
    """


# What a program says on the way to its answer is not the answer.
_REASONING = ("reasoning", "rationale")


def to_examples(cases: Iterable[EvalCase]) -> list[dspy.Example]:
    """AgentV's cases as a DSPy devset: `input` is the input; `expected_outcome` and `rubric` are labels.

    Score them with `RubricMetric(lambda example: example.rubric, judge=...)`.
    """
    return [
        dspy.Example(
            id=case.id, input=case.input, expected_outcome=case.expected_outcome, rubric=case.rubric
        ).with_inputs("input")
        for case in cases
    ]


def query_of(field: Field | None, example: Any) -> str | None:
    """The task: the field's text, or by default the example's inputs."""
    if field is not None:
        return pick(field, example, "query")
    try:
        return _labelled(dict(example.inputs().items())) or None
    except (AttributeError, ValueError):
        return None  # an example that does not say which of its fields are inputs


def response_of(field: Field | None, pred: Any) -> str | list[Any] | None:
    """What to grade: the field's text, or by default the prediction's outputs without their reasoning.

    A conversation that is all there is comes as it is, so that its last answer can be told from its context.
    """
    if pred is None:
        return None
    if field is not None:
        value = _get(field, pred, "response")
        return list(value) if is_conversation(value) else _text(value)
    if not isinstance(pred, dspy.Example):
        return pred if isinstance(pred, str) else str(pred)
    outputs = {name: value for name, value in pred.items() if name not in _REASONING}
    if len(outputs) == 1 and is_conversation(only := next(iter(outputs.values()))):
        return list(only)
    return _labelled(outputs)


def pick(field: Field | None, source: Any, option: str) -> str | None:
    """One field's text; None where no field is named.

    Raises:
        MisnamedField: The field is not there.
    """
    if field is None:
        return None
    found = _get(field, source, option)
    return None if found is None and callable(field) else _text(found)


def _get(field: Field, source: Any, option: str) -> Any:
    if callable(field):
        return field(source)
    try:
        return source[field]
    except (KeyError, TypeError):
        known = sorted(source.keys()) if hasattr(source, "keys") else []
        raise MisnamedField(f"`{option}` names the field {field!r}, but there are only {known!r}: name one") from None


def _labelled(fields: Mapping[str, Any]) -> str:
    if len(fields) == 1:
        return _text(next(iter(fields.values())))
    return "\n\n".join(f"{name}: {_text(value)}" for name, value in fields.items())


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dspy.History):
        return json_lines(value.messages)
    if is_conversation(value):
        return render(value)
    if isinstance(value, dict | list | tuple):
        return json.dumps(cast("object", value), ensure_ascii=False, default=str)
    return str(value)
