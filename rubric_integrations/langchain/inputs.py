"""Selects the response, task, reference, attachments and rubric from the mappings of LangChain and LangSmith."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from rubric_integrations.submission.attachments import MAX_BYTES, attachment_fields
from rubric_integrations.submission.inputs import join_fields, output_fields
from rubric_integrations.submission.messages import Respond, document_texts, split_outputs
from rubric_integrations.submission.submission import Submission, error_line


def attachments_of(value: object) -> list[Any]:
    """Return the attachments of a submission, for its field `attachments`.

    Args:
        value: The attachments in one of two forms. The first is the `attachments` of a LangSmith example: a mapping
            from names to dictionaries with `reader`, `presigned_url` and `mime_type`. The second is the form of
            openevals: `{"mime_type": ..., "data": ...}`, a URL, or a list of these.

    Example:
        >>> attachments_of({"mime_type": "image/gif", "data": "R0lGODlh"})
        [{'mime_type': 'image/gif', 'data': 'R0lGODlh'}]
    """
    if isinstance(value, Mapping) and all(isinstance(info, Mapping) for info in value.values()):
        return [_langsmith_fields(name, info) for name, info in value.items()]
    return attachment_fields(value)


def _langsmith_fields(name: str, info: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"name": name, "mime_type": info.get("mime_type")}
    reader: Any = info.get("reader")
    if reader is None:
        return {**fields, "url": info.get("presigned_url")}
    # Other evaluators have read the same file object, or will read it.
    reader.seek(0)
    content = reader.read(MAX_BYTES + 1)
    reader.seek(0)
    return {**fields, "data": content}


FieldKey = str | Callable[[Any], Any]
"""Selects one value of a mapping: its key, or a function of the mapping."""


# The names under which users know these settings.
_FIELDS = {"output_key": "Fields.response", "input_key": "Fields.query", "reference_key": "Fields.reference"}


class FieldSelector(NamedTuple):
    """Selects the parts of a submission from inputs, outputs and reference outputs.

    If a key is None, the value under a usual name such as `output` is used, or else the mapping as JSON. All
    integrations of this library share this rule (see `output_fields`, `task_fields` and `reference_fields`).

    The value may be a text, a message, a prompt, a conversation, or the state of an agent. From a state, the
    `structured_response` is used if there is one, otherwise the messages. Any other value, such as a pydantic model, is
    converted to JSON.

    Attributes:
        output_key: Selects the response to grade from the outputs.
        input_key: Selects the task from the inputs.
        reference_key: Selects a reference answer from the reference outputs.
        context_key: Selects documents, such as retrieved passages: a key or a function of the inputs. A key is looked
            up in the inputs, then in the outputs, then in the reference outputs. By default, the value under a usual
            name is used.
        respond: The part of a conversation that is the response: the `"last"` answer, the full `"transcript"`, or the
            `"trajectory"`, which is the transcript with numbered steps. With every setting, the steps become the
            submission's trajectory, also for a state with a `structured_response`.

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
        self,
        inputs: Any,
        outputs: Any,
        reference_outputs: Any,
        attachments: Sequence[Any] = (),
        own: Mapping[str, Any] = {},
    ) -> Submission | None:
        """Return the submission to grade. Returns None if the outputs contain no text.

        Values that are not mappings are used unchanged.

        Args:
            inputs: The inputs of the run.
            outputs: The outputs of the run.
            reference_outputs: The outputs of the example.
            attachments: Attachments, as `attachments_of` returns them.
            own: Fields of the submission that replace the fields of the response.

        Raises:
            ValueError: A mapping does not have the named key, or a value cannot be graded.
        """
        output = self._pick("output_key", outputs)
        if output is outputs and isinstance(output, Mapping) and isinstance(self.context_key, str):
            output = split_outputs(output, self.context_key).graded
        fields = {**output_fields(output), **own}
        response = fields["response"]
        if not response or (isinstance(response, str) and not response.strip()):
            return None
        task, reference = self._pick("input_key", inputs), self._pick("reference_key", reference_outputs)
        # A conversation contains its own task. The inputs are usually its first messages, and would be shown twice.
        fields = join_fields(fields, task, reference, keeps_task=self.input_key is not None)
        if self.context_key is not None:
            fields["context"] = self._documents(inputs, outputs, reference_outputs) or fields.get("context", ())
        files = [*attachments, *fields.get("attachments", ())]
        fields |= {"respond": self.respond, **({"attachments": files} if files else {})}
        try:
            return Submission.model_validate(fields)
        except ValidationError as error:
            raise ValueError(error_line(error)) from None

    def _documents(self, inputs: Any, *others: Any) -> tuple[str, ...]:
        key = self.context_key
        if key is None or callable(key):
            return () if key is None else document_texts(key(inputs))
        sources = [source for source in (inputs, *others) if isinstance(source, Mapping)]
        source = next((source for source in sources if key in source), None)
        if source is None:
            names = sorted({str(name) for source in sources for name in source})
            raise ValueError(f"`Fields.context` is {key!r}, but there are only {names!r}: set it to one of these")
        return document_texts(source[key])

    def _pick(self, setting: str, source: Any) -> Any:
        """Select the value for the setting `output_key`, `input_key` or `reference_key`."""
        key: FieldKey | None = getattr(self, setting)
        if callable(key):
            return key(source)
        if key is None or not isinstance(source, Mapping):
            return source
        if key not in source:
            raise ValueError(
                f"`{_FIELDS[setting]}` is {key!r}, but there are only {sorted(source)!r}: set it to one of these"
            )
        return source[key]


def own_rubric(*sources: Any) -> Any:
    """Return the first value under the key `rubric` that is not None. None if no mapping has such a value."""
    for source in sources:
        if isinstance(source, Mapping) and (rubric := source.get("rubric")) is not None:
            return rubric
    return None


def without_rubric(source: Any) -> Any:
    """Return a mapping without its `rubric`, and any other value unchanged.

    A rubric must not be shown to the judge as a part of the task or of the reference.
    """
    if not isinstance(source, Mapping) or "rubric" not in source:
        return source
    return {key: value for key, value in source.items() if key != "rubric"} or None
