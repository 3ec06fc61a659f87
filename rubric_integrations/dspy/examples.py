"""Reads the task, the response and the reference from DSPy examples and predictions, and converts eval cases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import dspy

from rubric_integrations.formats.agentv_cases import EvalCase
from rubric_integrations.submission.messages import Messages, is_conversation, json_lines, render_conversation

Field = str | Callable[[Any], str | Messages | None]
"""The source of a text: a field's name, or a function of the example (for a response: of the prediction)."""


class MisnamedField(BaseException):
    """A setting of a metric names a field that the example or prediction does not have.

    It is not an `Exception`, for the same reason as `JudgeOutage`: DSPy would score every program 0 because of it.
    """


# The reasoning before an answer is not part of the answer.
_REASONING = ("reasoning", "rationale")


def to_examples(cases: Iterable[EvalCase]) -> list[dspy.Example]:
    """Convert AgentV eval cases to a DSPy devset.

    `input` is the input of each example; `id`, `expected_outcome` and `rubric` are labels. Score the devset with
    `RubricMetric(lambda example: example.rubric, judge=...)`.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"requirement": "Says 42"}])
        >>> to_examples([EvalCase(id="a", input="6 x 7?", expected_outcome="42", rubric=rubric)])[0].input
        '6 x 7?'
    """
    return [
        dspy.Example(
            id=case.id, input=case.input, expected_outcome=case.expected_outcome, rubric=case.rubric
        ).with_inputs("input")
        for case in cases
    ]


def query_of(field: Field | None, example: Any) -> str | None:
    """Return the text of the task: that of the named field, or by default the example's inputs.

    Raises:
        MisnamedField: The example has no such field.
    """
    if field is not None:
        return text_of(field, example, "query")
    try:
        return _with_labels(dict(example.inputs().items())) or None
    except (AttributeError, ValueError):
        return None  # DSPy raises a ValueError for an example whose inputs are not declared.


def response_of(field: Field | None, pred: Any) -> str | list[Any] | None:
    """Return what to grade: the named field, or by default the prediction's outputs without their reasoning.

    A conversation is returned as a list of messages, if it is the named field or the only output, so that its last
    answer can be graded with the rest as context. None if there is no prediction.

    Raises:
        MisnamedField: The prediction has no such field.
    """
    if pred is None:
        return None
    if field is not None:
        value = _read_field(field, pred, "response")
        return list(value) if is_conversation(value) else _text(value)
    if not isinstance(pred, dspy.Example):
        return pred if isinstance(pred, str) else str(pred)
    outputs = {name: value for name, value in pred.items() if name not in _REASONING}
    if len(outputs) == 1 and is_conversation(only := next(iter(outputs.values()))):
        return list(only)
    return _with_labels(outputs)


def text_of(field: Field | None, source: Any, option: str) -> str | None:
    """Return the text of one field; None if no field is named.

    Args:
        field: The field's name, or a function of `source`.
        source: The example or prediction.
        option: The setting that names the field, for the error message.

    Raises:
        MisnamedField: `source` has no such field.
    """
    if field is None:
        return None
    value = _read_field(field, source, option)
    return None if value is None and callable(field) else _text(value)


def _read_field(field: Field, source: Any, option: str) -> Any:
    if callable(field):
        return field(source)
    try:
        return source[field]
    except (KeyError, TypeError):
        names = sorted(source.keys()) if hasattr(source, "keys") else []
        raise MisnamedField(
            f"`{option}` names the field {field!r}, but there are only {names!r}: name one of these, "
            "or DSPy would score every program 0"
        ) from None


def _with_labels(fields: Mapping[str, Any]) -> str:
    """One field's text as it is; several as paragraphs that begin with their names."""
    if len(fields) == 1:
        return _text(next(iter(fields.values())))
    return "\n\n".join(f"{name}: {_text(value)}" for name, value in fields.items())


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dspy.History):
        return json_lines(value.messages)
    if is_conversation(value):
        return render_conversation(value)
    if isinstance(value, dict | list | tuple):
        return json.dumps(cast("object", value), ensure_ascii=False, default=str)
    return str(value)
