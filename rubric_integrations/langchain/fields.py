"""Selects the response, the task and the reference from the mappings that LangChain and LangSmith pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from rubric_integrations.submission.documents import document_texts
from rubric_integrations.submission.messages import Respond, is_conversation, is_message, message_role, message_text
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.values import value_text

FieldKey = str | Callable[[Any], Any]
"""Selects one value of a mapping: its key, or a function of the mapping."""

# The names that are tried, in this order, if the user names no key and the mapping has several.
_USUAL_NAMES = {
    "output_key": ("output", "outputs", "structured_response", "response", "answer", "completion", "messages"),
    "input_key": ("input", "inputs", "query", "question", "prompt", "messages"),
    "reference_key": ("output", "reference", "reference_output", "expected_output", "answer", "expected"),
}


class FieldSelector(NamedTuple):
    """Selects the parts of a submission from inputs, outputs and reference outputs.

    A key that is None selects the only value of a mapping, or else the value under a usual name such as `output`. If
    the inputs or the reference outputs have no usual name, the whole mapping is used, as JSON.

    The value may be a text, a message, a prompt, a conversation, or the state of an agent. Of a state, the
    `structured_response` is used if it has one, otherwise the messages. Any other value, such as a pydantic model, is
    used as JSON.

    Attributes:
        output_key: Selects the response to grade from the outputs.
        input_key: Selects the task from the inputs.
        reference_key: Selects an exemplary answer from the reference outputs.
        context_key: Selects documents, such as retrieved passages: the key of the inputs, the outputs or the reference
            outputs, whichever has it first, or a function of the inputs. By default there are none.
        respond: Which part of a conversation is the response: the `"last"` answer, the whole `"transcript"`, or the
            `"trajectory"`, which is the transcript with numbered steps. The steps are the submission's trajectory in
            any case, also those of a state with a `structured_response`.

    Example:
        >>> FieldSelector().select({"question": "6 x 7?"}, {"answer": "42", "tokens": 3}, None).response
        '42'
    """

    output_key: FieldKey | None = None
    input_key: FieldKey | None = None
    reference_key: FieldKey | None = None
    respond: Respond = "last"
    context_key: FieldKey | None = None

    def select(
        self, inputs: Any, outputs: Any, reference_outputs: Any, attachments: Sequence[Any] = ()
    ) -> Submission | None:
        """Return the submission to grade, or None if the outputs hold no text.

        Values that are not mappings are used as they are. The attachments are those of `attachments_of`.

        Raises:
            ValueError: A mapping does not have the named key, or no key is named and the outputs hold several values,
                none of them under a usual name.
        """
        graded = self._pick("output_key", outputs)
        response = as_gradable(graded)
        if response is None or (isinstance(response, str) and not response.strip()):
            return None
        # A conversation contains its own task. The inputs are usually its first messages, and would be shown twice.
        contains_task = isinstance(response, list) and self.input_key is None
        task = None if contains_task else as_gradable(self._pick("input_key", inputs))
        return Submission.model_validate(
            {
                "response": response,
                "query": (self.input_key is None and task_of_state(graded)) or task,
                "reference": as_gradable(self._pick("reference_key", reference_outputs)),
                "context": self._documents(inputs, outputs, reference_outputs),
                "respond": self.respond,
                **({"attachments": list(attachments)} if attachments else {}),
                **({} if isinstance(response, list) else _steps_of_state(graded)),
            }
        )

    def _documents(self, inputs: Any, *others: Any) -> tuple[str, ...]:
        key = self.context_key
        if key is None or callable(key):
            return () if key is None else document_texts(key(inputs))
        sources = [cast("Mapping[str, Any]", source) for source in (inputs, *others) if isinstance(source, Mapping)]
        source = next((source for source in sources if key in source), None)
        if source is None:
            names = sorted({str(name) for source in sources for name in source})
            raise ValueError(f"`context_key` is {key!r}, but there are only {names!r}: set it to one of these")
        return document_texts(source[key])

    def _pick(self, setting: str, source: Any) -> Any:
        """Select the value for the setting `output_key`, `input_key` or `reference_key`."""
        key: FieldKey | None = getattr(self, setting)
        if callable(key):
            return key(source)
        if not isinstance(source, Mapping) or (key is None and is_message(cast("object", source))):
            return cast("object", source)
        values = cast("Mapping[str, Any]", source)
        if key is not None:
            if key not in values:
                raise ValueError(
                    f"`{setting}` is {key!r}, but there are only {sorted(values)!r}: set it to one of these"
                )
            return values[key]
        usual_name = next((name for name in _USUAL_NAMES[setting] if name in values), None)
        if usual_name in ("structured_response", "messages") and is_state(values):
            return values
        if len(values) == 1:
            return next(iter(values.values()))
        if usual_name is not None:
            return values[usual_name]
        if setting == "output_key" and values:
            raise ValueError(f"the outputs are {sorted(values)!r}: set `output_key` to the one to grade")
        return dict(values) if values else None


def as_gradable(value: Any) -> str | list[Any] | None:
    """Return the text of a value of LangChain, or its messages if it is a conversation; None if there is none.

    Example:
        >>> as_gradable({"messages": [("user", "6 x 7?"), ("ai", "42")], "structured_response": {"product": 42}})
        '{"product": 42}'
    """
    if value is None or isinstance(value, str):
        return value
    if is_state(value):
        answer = value.get("structured_response")
        return list(value["messages"]) or None if answer is None else value_text(answer, _langchain_text)
    if _is_chat_prompt(value):
        value = value.to_messages()
    if is_conversation(value):
        return list(value)
    return message_text(value) if is_message(value) else value_text(value, _langchain_text)


def is_state(value: Any) -> bool:
    """Return whether a value is the state of an agent: a mapping with `messages` or a `structured_response`.

    Example:
        >>> is_state({"messages": [("user", "6 x 7?")]}), is_state({"messages": 3})
        (True, False)
    """
    if not isinstance(value, Mapping):
        return False
    state = cast("Mapping[str, Any]", value)
    messages = state.get("messages")
    return is_conversation(messages) or messages == [] or state.get("structured_response") is not None


def task_of_state(state: Any) -> list[Any] | None:
    """Return the messages before the agent's structured response; None if the value is not a state with one.

    The last message of the model, which contains the response or calls a tool with it, is left out.
    """
    if not is_state(state) or state.get("structured_response") is None:
        return None
    messages: list[Any] = list(state["messages"]) if is_conversation(state.get("messages")) else []
    roles = [message_role(message) for message in messages]
    last = max((index for index, role in enumerate(roles) if role == "assistant"), default=len(roles))
    return messages[:last] or None


def _steps_of_state(state: Any) -> dict[str, Any]:
    """Return the fields of a submission for the messages of a state whose structured response is graded."""
    if not is_state(state) or not is_conversation(state.get("messages")):
        return {}
    return {"trajectory": list(state["messages"]), "show_trajectory": "if_needed"}


def _is_chat_prompt(value: Any) -> bool:
    """Return whether a value is a prompt of several messages. Importing LangChain's class would take a second."""
    return hasattr(value, "to_messages") and hasattr(value, "messages")


def _langchain_text(value: object) -> str | None:
    """Return the text of a message or a prompt inside of other data; None for any other value."""
    if hasattr(value, "to_messages") and hasattr(value, "to_string"):
        return str(cast("Any", value).to_string())
    return message_text(value) if not isinstance(value, Mapping) and is_message(value) else None
