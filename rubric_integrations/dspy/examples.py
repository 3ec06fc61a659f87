"""Reads the task, the response and the reference from DSPy examples and predictions, and converts eval cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import dspy

from rubric_integrations.dspy.attached_values import AttachedValues
from rubric_integrations.dspy.field_text import field_text
from rubric_integrations.formats.agentv_cases import EvalCase
from rubric_integrations.submission.dialects.registry import dialect_of
from rubric_integrations.submission.documents import document_texts
from rubric_integrations.submission.messages import Messages, Respond, is_conversation
from rubric_integrations.submission.submission import Submission

Field = str | Callable[[Any], str | Messages | None]
"""The source of a text: a field's name, or a function of the example (for a response: of the prediction)."""


class MisnamedField(BaseException):
    """A setting of a metric names or reads a field that the example or prediction does not have.

    It is not an `Exception`, for the same reason as `JudgeOutage`: DSPy would score every program 0 because of it.
    """


# What DSPy's modules add to the outputs that a program declares: ChainOfThought, ReAct, CodeAct, MultiChainComparison,
# RLM and ReActV2. A prediction does not know its signature, so the fields are recognized by their names.
_ADDED_BY_MODULES = frozenset({"reasoning", "rationale", "trajectory", "final_reasoning", "termination_reason"})


def to_examples(cases: Iterable[EvalCase]) -> list[dspy.Example]:
    """Convert AgentV eval cases to a DSPy devset.

    `input` is the input of each example; `id`, `expected_outcome` and `rubric` are labels. Score the devset with
    `RubricMetric(judge=...)`, which grades each example by its own rubric.

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
    context: Field | None,
    respond: Respond,
) -> Submission | None:
    """Make the submission of a prediction; None if there is nothing to grade.

    Args:
        example: The example.
        pred: The prediction; None if the program raised an error.
        query: The source of the task, as in `RubricMetric`.
        response: The source of the response.
        reference: The source of an exemplary answer.
        context: The source of documents.
        respond: The part to grade of a conversation.
    """
    fields = response_fields(response, pred)
    text = response_text(fields) if fields else None
    if not fields or not text or (isinstance(text, str) and not text.strip()):
        return None
    exemplary, files = text_of(reference, example, "reference"), AttachedValues()
    # A conversation holds its own task; the example's inputs would repeat how it began.
    task = None if isinstance(text, list) and query is None else query_of(query, example, files)
    # Only now, because the files of the task have the first numbers.
    text = response_text(fields, files)
    submission: dict[str, Any] = {"response": text, "query": task, "reference": exemplary}
    submission |= {"context": documents_of(context, example), "respond": respond}
    if files.attachments:
        submission["attachments"] = files.attachments
    if not isinstance(text, list):
        submission |= trajectory_fields(pred, grades_trajectory=respond == "trajectory")
    return Submission.model_validate(submission)


def query_of(field: Field | None, example: Any, files: AttachedValues | None = None) -> str | None:
    """Return the text of the task: that of the named field, or by default the example's inputs but its `rubric`.

    Args:
        field: The field's name, or a function of the example.
        example: The example.
        files: Collects the images and other files in it.

    Raises:
        MisnamedField: The example has no such field.
    """
    if field is not None:
        return text_of(field, example, "query", files)
    try:
        inputs = example.inputs()
    except (AttributeError, ValueError):
        return None  # DSPy raises a ValueError for an example whose inputs are not declared.
    return _with_labels({name: value for name, value in inputs.items() if name != "rubric"}, files) or None


def response_fields(field: Field | None, pred: Any) -> dict[str, Any] | None:
    """Return what to grade, by name: the named field, or by default the outputs that the program declares.

    None if there is no prediction.

    Raises:
        MisnamedField: The prediction has no such field.
    """
    if pred is None:
        return None
    if field is None and isinstance(pred, dspy.Example | Mapping):
        return declared_outputs(cast("Mapping[str, Any]", pred))
    return {"response": pred if field is None else _read_field(field, pred, "response")}


def response_text(fields: Mapping[str, Any], files: AttachedValues | None = None) -> str | list[Any]:
    """Return the text of the fields to grade.

    If a conversation is the only one, it is returned as a list of messages, so that its last answer can be graded with
    the rest as context.

    Args:
        fields: What `response_fields` returned.
        files: Collects the images and other files in them.
    """
    value = next(iter(fields.values())) if len(fields) == 1 else None
    return list(cast("Messages", value)) if is_conversation(value) else _with_labels(fields, files)


def trajectory_fields(pred: Any, *, grades_trajectory: bool = False) -> dict[str, Any]:
    """Return the fields of a submission for the steps that an agent recorded in a prediction; none without steps.

    They are in the `trajectory` of `dspy.ReAct`, or of a program of your own that returns chat messages under this
    name, or in the `history` of `dspy.ReActV2`. An observation often holds the right answer, so that a judge sees them
    only where a criterion needs them.

    Raises:
        MisnamedField: The trajectory is to be graded, and the prediction has none.

    Example:
        >>> trajectory_fields(dspy.Prediction(trajectory={"thought_0": "Look."}, answer="42"))
        {'trajectory': {'thought_0': 'Look.'}, 'show_trajectory': 'if_needed'}
    """
    fields = cast("Mapping[str, Any]", pred if isinstance(pred, dspy.Example | Mapping) else {})
    trajectory, history = fields.get("trajectory"), fields.get("history")
    if trajectory != {} and dialect_of(trajectory) != "dspy_react" and not is_conversation(trajectory):
        has_calls = isinstance(history, dspy.History) and any("tool_calls" in turn for turn in history.messages)
        trajectory = history if has_calls else None
    if trajectory is not None:
        return {"trajectory": trajectory, "show_trajectory": "if_needed"}
    if grades_trajectory:
        raise MisnamedField(
            "`respond` is 'trajectory', but the prediction has neither messages nor the trajectory of an agent: leave "
            "`respond` out to grade its outputs"
        )
    return {}


def declared_outputs(pred: Mapping[str, Any]) -> dict[str, Any]:
    """Return a prediction's fields without those that DSPy's modules add: reasoning, trajectories, tool calls.

    A tool's observation in a ReAct `trajectory` often contains the right answer, so that an agent which does not use
    it would be graded as right. If a prediction has no other fields, they are its declared outputs.

    Example:
        >>> declared_outputs(dspy.Prediction(trajectory={"observation_0": 42}, reasoning="...", answer="No idea."))
        {'answer': 'No idea.'}
    """
    fields = dict(pred.items())
    return {name: value for name, value in fields.items() if not _is_added(name, value)} or fields


def _is_added(name: str, value: Any) -> bool:
    if name == "history":  # of ReActV2; a program may declare a text of this name
        return isinstance(value, dspy.History)
    if name == "actions" and isinstance(value, list) and value:  # of Avatar
        return all(type(action).__name__ == "ActionOutput" for action in cast("list[object]", value))
    return name in _ADDED_BY_MODULES or isinstance(value, dspy.Reasoning)


def text_of(field: Field | None, source: Any, option: str, files: AttachedValues | None = None) -> str | None:
    """Return the text of one field; None if no field is named.

    Args:
        field: The field's name, or a function of `source`.
        source: The example or prediction.
        option: The setting that names the field, for the error message.
        files: Collects the images and other files in it.

    Raises:
        MisnamedField: `source` has no such field.
    """
    if field is None:
        return None
    value = _read_field(field, source, option)
    return None if value is None and callable(field) else field_text(value, files)


def documents_of(field: Field | None, example: Any) -> tuple[str, ...]:
    """Return the documents in one field of an example; none if no field is named.

    Raises:
        MisnamedField: The example has no such field.
    """
    return () if field is None else document_texts(_read_field(field, example, "context"))


def _read_field(field: Field, source: Any, option: str) -> Any:
    names = sorted(source.keys()) if hasattr(source, "keys") else []
    if callable(field):
        try:
            return field(source)
        except (AttributeError, KeyError) as error:
            if not _is_raised_by(source, error):
                raise
            raise MisnamedField(
                f"the function `{option}` reads a field that does not exist, {error}, but there are only {names!r}: "
                "read one of these, or DSPy would score every program 0"
            ) from error
    try:
        return source[field]
    except (KeyError, TypeError):
        raise MisnamedField(
            f"`{option}` names the field {field!r}, but there are only {names!r}: name one of these, "
            "or DSPy would score every program 0"
        ) from None


def _is_raised_by(source: Any, error: Exception) -> bool:
    """Whether a method of `source` itself raised the error, and not code that works on the value of a field."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_locals.get("self") is source


def _with_labels(fields: Mapping[str, Any], files: AttachedValues | None = None) -> str:
    """One field's text as it is; several as paragraphs that begin with their names."""
    if len(fields) == 1:
        return field_text(next(iter(fields.values())), files)
    return "\n\n".join(f"{name}: {field_text(value, files)}" for name, value in fields.items())
