"""Reads the task, the response and the reference from DSPy examples and predictions, and converts eval cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

import dspy

from rubric_integrations.formats.agentv import EvalCase
from rubric_integrations.submission.inputs import has_task, output_fields
from rubric_integrations.submission.messages import FieldSource, Messages, Outputs, Respond, split_outputs
from rubric_integrations.submission.predictions import (
    AttachedValues,
    context_texts,
    declared_outputs,
    field_text,
    labelled_text,
    response_text,
    trajectory_fields,
)
from rubric_integrations.submission.submission import Submission

Field = str | Callable[[Any], str | Messages | None]
"""The source of a text: the name of a field, or a function that returns the text.

For the task and the reference, the field belongs to the example, and the function takes the example. For the response,
the field belongs to the prediction, and the function takes the prediction.
"""

ContextSource = FieldSource | Callable[[Any, Any], Any]
"""The source of documents: the name of a field of the example or of the prediction, or a function.

The function takes the example, or the example and the prediction.
"""


class MisnamedField(BaseException):
    """A setting of a metric names or reads a field that the example or the prediction does not have.

    It is a `BaseException` and not an `Exception`, like `JudgeOutage`. DSPy catches every `Exception` of a metric and
    would score every program 0.
    """


def to_examples(cases: Iterable[EvalCase]) -> list[dspy.Example]:
    """Convert AgentV eval cases to a DSPy devset.

    The field `input` of each example is an input. `id`, `expected_outcome` and `rubric` are labels. Score the devset
    with `RubricMetric(judge=...)`, which grades each example by its own rubric.

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


def submission_of(
    example: Any,
    pred: Any,
    *,
    query: Field | None,
    response: Field | None,
    reference: Field | None,
    context: ContextSource | None,
    respond: Respond,
) -> Submission | None:
    """Make the submission of a prediction. Returns None if there is nothing to grade.

    Args:
        example: The example.
        pred: The prediction. SIMBA passes None if the program raised an error.
        query: The source of the task: the name of a field of the example, or a function of the example. None for all
            inputs of the example.
        response: The source of the response: the name of a field of the prediction, or a function of the prediction.
            None for all outputs except documents.
        reference: The source of a reference answer, of the same form as `query`. None for no reference.
        context: The source of documents. None for the documents in the prediction.
        respond: The part of a conversation that is graded.
    """
    if pred is None:
        return None
    # A prediction is graded by the outputs that its program declares. Any other value is graded as in every host.
    named = context if isinstance(context, str) and context not in _named_values(example) else None
    if response is None and not isinstance(pred, dspy.Example):
        beside = output_fields(split_outputs(pred, named).graded if named and isinstance(pred, Mapping) else pred)
        fields = {"response": beside.pop("response")}
    else:
        fields, documents = response_fields(response, pred, named)
        beside: dict[str, Any] = {"context": context_texts(documents)} if documents else {}
    text = response_text(fields) if fields else None
    if not text or (isinstance(text, str) and not text.strip()):
        return None
    exemplary, files = text_of(reference, example, "reference"), AttachedValues()
    own_task = beside.pop("query", None)
    # A conversation contains its own task. The example's inputs would repeat its first messages.
    task = None if has_task(text) and query is None else query_of(query, example, files) or own_task
    # Only now, because the files of the task have the first numbers.
    text = response_text(fields, files)
    submission = {**beside, "response": text, "query": task, "reference": exemplary, "respond": respond}
    if context is not None:
        submission["context"] = context_texts(_read_context(context, example, pred))
    if files.attachments:
        submission["attachments"] = [*files.attachments, *beside.get("attachments", ())]
    if not isinstance(text, list) and "trajectory" not in beside:
        submission |= _trajectory_fields(pred, is_graded=respond == "trajectory")
    return Submission.model_validate(submission)


def query_of(field: Field | None, example: Any, files: AttachedValues | None = None) -> str | None:
    """Return the text of the task: the named field, or by default all inputs of the example except `rubric`.

    Args:
        field: The field's name, or a function of the example. None for the default.
        example: The example.
        files: Collects the images and other files in the task.

    Raises:
        MisnamedField: The example has no such field.
    """
    if field is not None:
        return text_of(field, example, "query", files)
    try:
        inputs = example.inputs()
    except (AttributeError, ValueError):
        return None  # DSPy raises a ValueError for an example whose inputs are not declared.
    return labelled_text({name: value for name, value in inputs.items() if name != "rubric"}, files) or None


def response_fields(field: Field | None, pred: Any, documents_name: str | None = None) -> Outputs:
    """Return the outputs of a prediction to grade: the named field, or by default all outputs except documents.

    Args:
        field: The field's name, or a function of the prediction. None for the default.
        pred: The prediction.
        documents_name: The name of the output with the documents, if the user names it.

    Raises:
        MisnamedField: The prediction has no such field.
    """
    if field is not None:
        return Outputs({"response": _read_field(field, pred, "response")}, ())
    return split_outputs(declared_outputs(pred), documents_name)


def _read_context(context: ContextSource, example: Any, pred: Any) -> Any:
    """Return the documents: a field of the example, else a field of the prediction, or the result of a function."""
    fields = {**_named_values(pred), **_named_values(example)}
    if isinstance(context, str):
        return _read_field(context, fields, "context")
    arguments = (example, pred) if _takes_two(context) else (example,)
    try:
        return context(*arguments)
    except (AttributeError, KeyError) as error:
        if not any(_is_raised_by(source, error) for source in arguments):
            raise
        raise _misread_field("context", error, sorted(fields)) from error


def _named_values(source: Any) -> dict[str, Any]:
    return dict(source.items()) if isinstance(source, dspy.Example | Mapping) else {}


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except ValueError:  # Some functions in C, such as `operator.itemgetter`, have no signature.
        return False
    is_needed = [p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters]
    return sum(is_needed) > 1


def _trajectory_fields(pred: Any, *, is_graded: bool) -> dict[str, Any]:
    fields = trajectory_fields(pred)
    if is_graded and not fields:
        raise MisnamedField(
            "`respond` is 'trajectory', but the prediction has neither messages nor the trajectory of an agent: leave "
            "`respond` out to grade its outputs"
        )
    return fields


def text_of(field: Field | None, source: Any, option: str, files: AttachedValues | None = None) -> str | None:
    """Return the text of one field. Returns None if no field is named.

    Args:
        field: The field's name, or a function of `source`.
        source: The example or prediction.
        option: The setting that names the field, for the error message.
        files: Collects the images and other files in the field.

    Raises:
        MisnamedField: `source` has no such field.
    """
    if field is None:
        return None
    value = _read_field(field, source, option)
    return None if value is None and callable(field) else field_text(value, files)


def _read_field(field: Field, source: Any, option: str) -> Any:
    """Read a field of an example or a prediction by its name, or with a function."""
    names = sorted(source.keys()) if hasattr(source, "keys") else []
    if callable(field):
        try:
            return field(source)
        except (AttributeError, KeyError) as error:
            if not _is_raised_by(source, error):
                raise
            raise _misread_field(option, error, names) from error
    try:
        return source[field]
    except (KeyError, TypeError):
        raise MisnamedField(
            f"`{option}` names the field {field!r}, but there are only {names!r}: name one of these, "
            "or DSPy would score every program 0"
        ) from None


def _misread_field(option: str, error: Exception, names: list[str]) -> MisnamedField:
    return MisnamedField(
        f"the function `{option}` reads a field that does not exist, {error}, but there are only {names!r}: read one "
        "of these, or DSPy would score every program 0"
    )


def _is_raised_by(source: Any, error: Exception) -> bool:
    """Whether a method of `source` raised the error, and not code that processes the value of a field."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_locals.get("self") is source
