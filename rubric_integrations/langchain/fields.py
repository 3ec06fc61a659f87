"""Which part of a run, an example or a keyword argument is the text, the task and the reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.messages import Respond, is_conversation
from rubric_integrations.submission.submission import Submission

Field = str | Callable[[Any], Any]
"""Where a text comes from: a key of the mapping, or a function of it."""

_NAMES = {
    "output_key": ("output", "outputs", "response", "answer", "completion", "messages"),
    "input_key": ("input", "inputs", "query", "question", "prompt", "messages"),
    "reference_key": ("output", "reference", "reference_output", "expected_output", "answer", "expected"),
}


class Fields(NamedTuple):
    """How texts are found; None takes a usual name, or the only key there is.

    Attributes:
        output_key: Of the outputs: the text to grade.
        input_key: Of the inputs: the task.
        reference_key: Of the reference outputs: an exemplary answer.
        respond: Which part of a conversation is graded.
    """

    output_key: Field | None = None
    input_key: Field | None = None
    reference_key: Field | None = None
    respond: Respond = "last"

    def submission(self, inputs: Any, outputs: Any, reference_outputs: Any) -> Submission | None:
        """What is to be graded; None where the outputs hold nothing.

        Raises:
            ValueError: A named key is not there, or none is named and there are several.
        """
        response = self._pick("output_key", outputs)
        if response is None or (isinstance(response, str) and not response.strip()):
            return None
        # A conversation brings its own task; the inputs, unless they are named, are how it began.
        brings_task = isinstance(response, list) and self.input_key is None
        return Submission.model_validate(
            {
                "response": response,
                "query": None if brings_task else self._pick("input_key", inputs),
                "reference": self._pick("reference_key", reference_outputs),
                "respond": self.respond,
            }
        )

    def _pick(self, option: str, source: Any) -> Any:
        chosen: Field | None = getattr(self, option)
        if callable(chosen):
            return _as_text(chosen(source))
        if not isinstance(source, Mapping):
            return _as_text(source)
        given = cast("Mapping[str, Any]", source)
        if chosen is not None:
            if chosen not in given:
                raise ValueError(f"`{option}` is {chosen!r}, but there are only {sorted(given)!r}: name one of these")
            return _as_text(given[chosen])
        if len(given) == 1:
            return _as_text(next(iter(given.values())))
        name = next((name for name in _NAMES[option] if name in given), None)
        if name is None and option == "output_key" and given:
            raise ValueError(f"the outputs are {sorted(given)!r}: say with `{option}` which of them is to be graded")
        return _as_text(given[name]) if name else _as_text(dict(given)) if given else None


def resolve_rubric(rubric: Rubric | Callable[[Any], Rubric], source: Any) -> Rubric:
    """The rubric, or the one that a function gives for this example."""
    return rubric if isinstance(rubric, Rubric) else rubric(source)


def _as_text(value: Any) -> Any:
    """A text, or a conversation as it is; other values as JSON."""
    if value is None or isinstance(value, str):
        return value
    if is_conversation(value):
        return list(value)
    if hasattr(value, "content") and hasattr(value, "type"):
        return str(value.text)  # one of LangChain's messages
    return json.dumps(value, ensure_ascii=False, default=str)
