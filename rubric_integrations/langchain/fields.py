"""Selects the response, the task and the reference from the mappings that LangChain and LangSmith pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from rubric_integrations.submission.messages import Respond, is_conversation
from rubric_integrations.submission.submission import Submission

FieldKey = str | Callable[[Any], Any]
"""Selects one value of a mapping: its key, or a function of the mapping."""

# The names that are tried, in this order, if the user names no key and the mapping has several.
_USUAL_NAMES = {
    "output_key": ("output", "outputs", "response", "answer", "completion", "messages"),
    "input_key": ("input", "inputs", "query", "question", "prompt", "messages"),
    "reference_key": ("output", "reference", "reference_output", "expected_output", "answer", "expected"),
}


class FieldSelector(NamedTuple):
    """Selects the parts of a submission from inputs, outputs and reference outputs.

    A key that is None selects the only value of a mapping, or else the value under a usual name such as `output`. If
    the inputs or the reference outputs have no usual name, the whole mapping is used, as JSON.

    Attributes:
        output_key: Selects the response to grade from the outputs.
        input_key: Selects the task from the inputs.
        reference_key: Selects an exemplary answer from the reference outputs.
        respond: Which part of a conversation is the response: the `"last"` answer or the whole `"transcript"`.

    Example:
        >>> FieldSelector().select({"question": "6 x 7?"}, {"answer": "42", "tokens": 3}, None).response
        '42'
    """

    output_key: FieldKey | None = None
    input_key: FieldKey | None = None
    reference_key: FieldKey | None = None
    respond: Respond = "last"

    def select(self, inputs: Any, outputs: Any, reference_outputs: Any) -> Submission | None:
        """Return the submission to grade, or None if the outputs hold no text.

        Values that are not mappings are used as they are.

        Raises:
            ValueError: A mapping does not have the named key, or no key is named and the outputs hold several values,
                none of them under a usual name.
        """
        response = self._pick("output_key", outputs)
        if response is None or (isinstance(response, str) and not response.strip()):
            return None
        # A conversation contains its own task. The inputs are usually its first messages, and would be shown twice.
        contains_task = isinstance(response, list) and self.input_key is None
        return Submission.model_validate(
            {
                "response": response,
                "query": None if contains_task else self._pick("input_key", inputs),
                "reference": self._pick("reference_key", reference_outputs),
                "respond": self.respond,
            }
        )

    def _pick(self, setting: str, source: Any) -> Any:
        """Select the value for the setting `output_key`, `input_key` or `reference_key`."""
        key: FieldKey | None = getattr(self, setting)
        if callable(key):
            return _as_text(key(source))
        if not isinstance(source, Mapping):
            return _as_text(source)
        values = cast("Mapping[str, Any]", source)
        if key is not None:
            if key not in values:
                raise ValueError(
                    f"`{setting}` is {key!r}, but there are only {sorted(values)!r}: set it to one of these"
                )
            return _as_text(values[key])
        if len(values) == 1:
            return _as_text(next(iter(values.values())))
        usual_name = next((name for name in _USUAL_NAMES[setting] if name in values), None)
        if usual_name is not None:
            return _as_text(values[usual_name])
        if setting == "output_key" and values:
            raise ValueError(f"the outputs are {sorted(values)!r}: set `output_key` to the one to grade")
        return _as_text(dict(values)) if values else None


def _as_text(value: Any) -> Any:
    """Return text, None and conversations unchanged, the text of a LangChain message, and other values as JSON."""
    if value is None or isinstance(value, str):
        return value
    if is_conversation(value):
        return list(value)
    if hasattr(value, "content") and hasattr(value, "type"):
        return str(value.text)
    return json.dumps(value, ensure_ascii=False, default=str)
