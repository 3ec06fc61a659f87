"""The inputs that can be graded, and their conversion to a `Submission`.

An input is a text, a mapping, a row of named fields, or a value of an evaluation framework. The accepted names of
fields are in `submission/columns.py`. Values of NumPy and pandas become plain Python values.
"""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast

from pydantic import BaseModel, ValidationError

from rubric_integrations._util.json import parse_json
from rubric_integrations.submission.attachments import attachment_fields, read_paths
from rubric_integrations.submission.columns import (
    COLUMNS,
    MAX_NAME,
    MAX_NAMES,
    TASK_ID,
    USUAL_COLUMNS,
    ColumnNames,
    find_columns,
    find_misspelled,
    find_unused,
    fold,
    list_names,
    missing_column,
    repeated_column,
)
from rubric_integrations.submission.dialects.blocks import FilesAsPlaceholders
from rubric_integrations.submission.dialects.detect import dialect_of, read_conversation
from rubric_integrations.submission.dialects.refused import refuse_provider_data
from rubric_integrations.submission.dialects.replies import matches_reply, reply_messages, request_messages
from rubric_integrations.submission.dialects.unread_tools import unread_tool
from rubric_integrations.submission.messages import (
    Messages,
    Respond,
    is_conversation,
    is_empty,
    is_message,
    message_role,
    message_text,
    plain_value,
    split_conversation,
    split_outputs,
    value_text,
)
from rubric_integrations.submission.samples import count_samples, has_task_columns, refuse_samples, split_samples
from rubric_integrations.submission.submission import Submission, error_line
from rubric_integrations.submission.thinking import output_block, split_parts, split_thinking, thinking_blocks

# Recognized by their names, because pandas may not be installed and is slow to import.
_MISSING = frozenset({"NAType", "NaTType"})
_PLAIN = (str, int, float, bool, type(None))


MAX_DEPTH = 100
"""The largest depth of nested lists and mappings in a value. A deeper value would end a run with a `RecursionError`."""


# Python writes numbers of at most 4,300 digits.
_MAX_BITS = 13_000


class NestingError(ValueError):
    """Raised if a value is nested more than `MAX_DEPTH` levels deep, or contains itself."""

    def __init__(self, message: str = f"is nested more than {MAX_DEPTH} levels deep: write it flatter, or as text"):
        super().__init__(message)


def without_arrays(value: Any, depth: int = 0) -> Any:
    """Replace arrays by lists, NumPy scalars by Python values, and missing values of pandas by None, at every depth.

    Any other value is returned unchanged.

    Args:
        value: The value.
        depth: The number of lists and mappings around the value.

    Raises:
        NestingError: The value is nested more than 100 levels deep, contains itself, or has a number that cannot be
            written.

    Example:
        >>> import numpy as np
        >>> without_arrays({"context": np.array(["one", "two"]), "id": np.int64(0)})
        {'context': ['one', 'two'], 'id': 0}
    """
    kind = type(value)
    if kind in _PLAIN:
        if kind is int and value.bit_length() > _MAX_BITS:
            raise NestingError("is a number of more than 4,000 digits, which Python does not write: write it as text")
        return value
    if depth > MAX_DEPTH:
        raise NestingError
    if kind is dict or isinstance(value, Mapping):
        return {name: without_arrays(item, depth + 1) for name, item in cast("Mapping[Any, Any]", value).items()}
    if kind is list or kind is tuple:
        return kind(without_arrays(item, depth + 1) for item in value)
    if kind.__module__ == "numpy":
        # An array of objects contains Python objects, which may contain arrays again.
        return without_arrays(value.tolist(), depth + 1) if hasattr(value, "tolist") else value
    if kind.__name__ in _MISSING and kind.__module__.startswith("pandas."):
        return None
    return value


class ThinkingOutputDict(TypedDict, total=False):
    """A response whose reasoning is separate from its answer. Both keys are optional. Only `output` is graded."""

    thinking: str
    output: str


ToGradeInput = str | ThinkingOutputDict | Mapping[str, Any] | Messages | Submission
"""The types that can be graded: a text, messages of any dialect, a mapping, a `Submission`.

A `dspy.Prediction`, a message or a prompt of LangChain, a pydantic model and a dataclass are also accepted. Models and
dataclasses are graded as JSON.
"""


def parse_thinking_output(text: str) -> ThinkingOutputDict:
    """Split a text at thinking and output markers anywhere in it, as the `rubric` package does.

    The thinking is the content of the first `<thinking>` or `<think>` block. The output is the content of the first
    `<output>` block. Without an `<output>` block, the output is the text without its thinking. With an `<output>`
    block, text outside of the block is lost. For this reason, grading uses `split_thinking`, which splits only at the
    beginning of a text and loses nothing.

    Example:
        >>> parse_thinking_output("<thinking>hm</thinking>42")
        {'thinking': 'hm', 'output': '42'}
    """
    markers = list(thinking_blocks(text))
    thinking = text[markers[0].end() : markers[1].start()].strip() if markers else ""
    output = output_block(text)
    if output is None and markers:
        begins = [0, *(marker.end() for marker in markers[1::2])]
        ends = [*(marker.start() for marker in markers[::2]), len(text)]
        output = "".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))
    return {"thinking": thinking, "output": text if output is None else output.strip()}


def normalize_to_grade_input(to_grade: str | ThinkingOutputDict | Mapping[str, Any] | Messages) -> ThinkingOutputDict:
    """Convert a response in any accepted form to its thinking and its output text.

    A text is split only at markers at its beginning. The output is empty if a thinking block has no end. The output of
    chat messages is the last answer. If `respond` is set to `"transcript"` or `"trajectory"`, as in `{"messages":
    [...], "respond": "transcript"}`, the output is the text of all messages.

    Raises:
        TypeError: `to_grade` is neither a text nor a mapping nor a list.
        ValueError: `to_grade` is a mapping with other keys than `thinking` and `output`, or a list that is not a
            conversation.

    Example:
        >>> normalize_to_grade_input("42 <thinking>is it?</thinking>")
        {'thinking': '', 'output': '42 <thinking>is it?</thinking>'}
    """
    if conversation := _find_conversation(to_grade):
        parts = split_thinking(split_conversation(*conversation)[0])
    elif isinstance(to_grade, str):
        parts = split_thinking(to_grade)
    elif isinstance(to_grade, Mapping):
        parts = split_parts(cast("Mapping[str, Any]", to_grade))
    else:
        raise _wrong_type(to_grade)
    return {"thinking": parts.thinking, "output": parts.output}


def as_submission(
    to_grade: ToGradeInput, query: str | Messages | None = None, reference: str | Messages | None = None
) -> Submission:
    """Convert any accepted input to a `Submission`.

    Args:
        to_grade: The response, in any form of `ToGradeInput`.
        query: The task. It replaces the task of a `Submission`.
        reference: A reference response for comparison. It replaces the reference of a `Submission`.

    Raises:
        TypeError: `to_grade` has none of the accepted types.
        ValueError: `to_grade` is empty or too long. Or it is a mapping that has fields of a row but no response. Or it
            is a list that is not a conversation.

    Example:
        >>> as_submission({"thinking": "hm", "output": "42"}).response
        '42'
        >>> as_submission({"product": 42}).response
        '{"product": 42}'
    """
    try:
        return _to_submission(to_grade, {"query": query, "reference": reference})
    except ValidationError as error:
        raise ValueError(error_line(error)) from None


def _to_submission(to_grade: ToGradeInput, context: dict[str, Any]) -> Submission:
    """Convert a value of any supported type to a submission with the fields of `context`."""
    if isinstance(to_grade, Submission):
        replaced = {name: text for name, text in context.items() if text is not None}
        # Only the replaced fields and the attachments are validated. The response must not be split a second time.
        own = {"response": "-", "attachments": to_grade.attachments}
        valid = Submission.model_validate({**own, **replaced}) if replaced else to_grade
        return to_grade.model_copy(update={name: getattr(valid, name) for name in (*replaced, "attachments")})
    if isinstance(to_grade, str):
        return Submission.model_validate({"response": to_grade, **context})
    if isinstance(to_grade, Mapping) and _is_thinking_output(to_grade):
        return Submission.model_validate({"response": to_grade, **context})
    if isinstance(to_grade, Mapping) and is_row(to_grade):
        return _submission_of_row(to_grade, context)
    if conversation := _find_conversation(to_grade):
        return Submission.from_messages(without_arrays(conversation[0]), conversation[1], **context)
    if not isinstance(to_grade, Mapping) and not _has_text(to_grade):
        raise _wrong_type(to_grade)
    fields = output_fields(to_grade)
    return Submission.model_validate({**fields, **{name: text for name, text in context.items() if text is not None}})


def _submission_of_row(data: Mapping[str, Any], context: dict[str, Any]) -> Submission:
    row = read_row({**data, **{name: text for name, text in context.items() if text is not None}}, 1)
    if row.submission is None:
        raise ValueError((row.error or "").removeprefix(f"row {row.id}").lstrip(": "))
    ignored = [name for name in ("rubric", "labels") if getattr(row, name) is not None]
    if ignored:
        _warn_of_unused(tuple(ignored))
    return row.submission


def is_row(data: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a row, with usual names of fields (`COLUMNS`) among its keys.

    A mapping that is only a value, a conversation or the reply of a provider is not a row.
    """
    if matches_reply(data):
        return False
    columns = find_columns(tuple(data), USUAL_COLUMNS)
    if columns["response"]:
        # A sample of Inspect has its messages next to the raw reply, and an agent's run has its steps next to the
        # answer.
        output = data.get("output")
        if isinstance(output, Mapping) and "choices" in output:
            return "object" in output or dialect_of(data) != "inspect_ai"
        is_run = "trajectory_format" in data or "steps" in data
        return not is_run or dialect_of(data) not in ("mini_swe_agent", "smolagents")
    # A `task_id` alone is also a usual name in the JSON that a program returns.
    is_named = any(fold(name) != TASK_ID for names in columns.values() for name in names)
    return is_named and dialect_of(data) is None and not is_message(data)


def _has_text(value: object) -> bool:
    """Return whether a value other than a text or a mapping can be graded: a message, a record or a prediction."""
    is_record = isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type))
    return is_record or _is_chat_prompt(value) or _is_of_dspy(value) or is_message(value)


def _wrong_type(to_grade: object) -> TypeError:
    return TypeError(
        f"`to_grade` must be a text, {{'thinking': ..., 'output': ...}}, a list of messages or a Submission, "
        f"got {type(to_grade).__name__}: its repr would have been graded"
        + ("; pass a table to `grade_many`, which grades its rows" if hasattr(to_grade, "columns") else "")
    )


def _find_conversation(to_grade: object) -> tuple[Any, Respond] | None:
    """Return the messages of an input and its `respond`, or None if the input is not a conversation."""
    if isinstance(to_grade, Mapping) and "messages" in to_grade and set(to_grade) <= {"messages", "respond"}:
        fields = cast("Mapping[str, Any]", to_grade)
        respond = fields.get("respond")
        return fields["messages"], "last" if respond is None else respond
    return None if dialect_of(to_grade) is None else (to_grade, "last")


# Names that some data sets use for the task, and others for something else. A warning asks the user about them.
_LIKE_TASKS = frozenset({
    "task", "task_description", "instructions", "user_input", "user_query", "user_question", "user_prompt",
    "user_message", "problem", "question_text", "prompt_text", "conversation",
})  # fmt: skip

# A program must not set the reference of its output, nor the part of it that is graded.
_OF_OUTPUTS = ("thinking", "query", "context", "attachments", "trajectory")
_NOT_OF_OUTPUTS = ("reference", "respond", "rubric", "labels")
# The largest depth of mappings under names of a response, such as `{"output": {"answer": ...}}`. Deeper mappings are
# data.
_MAX_NESTED = 8

# The largest number of characters of a metadata value. Longer texts are usually data of other steps, and would only
# make the run larger.
_MAX_METADATA = 200


# The largest number of characters of a row's error.
_MAX_ERROR = 1000


class Row(NamedTuple):
    """One row of a file of responses.

    Attributes:
        id: The value of the row's `id` column. If the row has no id, this is the number of the row, from 1, or in JSON
            Lines the number of its line. For a text file, this is the name of the file.
        submission: The submission to grade. None if the row cannot be graded.
        error: The reason why the row cannot be graded. None if it can be graded.
        rubric: The row's own rubric as it was written, in any accepted form of a rubric. None if the row does not have
            its own rubric.
        labels: Human labels by the name of the criterion. None if the row has no labels.
        metadata: The row's `metadata`, and the short values of columns that are not read as fields. Metadata is copied
            to the results. It is neither judged nor scored.
        group: The prompt or the task of which this row is one of several samples. Rows with the same group depend on
            each other: intervals and gates count them as one input. None for an independent row.
    """

    id: str
    submission: Submission | None
    error: str | None = None
    rubric: Any = None
    labels: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    group: str | None = None

    def with_error(self, error: str) -> Row:
        """Return this row without a submission, and with an error in one line of about 1,000 characters at most.

        A message that quotes an id or a value may have more lines, and be longer. Its beginning, and its end with the
        remedy, are kept.
        """
        error = " ".join(error.splitlines())
        if len(error) > _MAX_ERROR:
            error = f"{error[: _MAX_ERROR // 2]} ... {error[-_MAX_ERROR // 2 :]}"
        return self._replace(submission=None, error=error)


def read_row(
    data: Mapping[str, Any],
    number: int | str,
    query: str | None = None,
    columns: ColumnNames = USUAL_COLUMNS,
    folder: Path | None = None,
    *,
    warns: bool = True,
) -> Row:
    """Convert one row of named fields, from a file or a caller, to a submission.

    The comparison of column names ignores case and outer white space, and treats spaces and hyphens as underscores.
    None, NaN and the missing values of pandas count as missing. Arrays are read as lists. If the row cannot be graded,
    the `error` of the result is set, and no exception is raised.

    Args:
        data: The row: a `response`, and optionally a `query`, `reference`, `context`, `attachments`, `trajectory`,
            `thinking`, `id`, `rubric`, `labels` and `metadata`, each under any usual name. The values of `attachments`,
            `trajectory`, `rubric`, `labels` and `metadata` are lists or mappings, or their JSON as text.
        number: The number of the row, from 1, or another identifier. It becomes the id of a row without an id.
        query: The task of a row without a task.
        columns: The names of columns that replace the usual ones.
        folder: The folder of the file that contains the row. Attachments may name files in this folder by their `path`.
            A response that is a number or a truth value is graded as its JSON. None for a row that is not in a file:
            both are then errors.
        warns: Whether a warning names the columns that are not read as fields.

    Example:
        >>> read_row({"output": "42", "question": "6 x 7?"}, 1).submission.query
        '6 x 7?'
    """
    name, plain = "", dict[str, Any]()
    data = {"response": data} if columns.response is None and matches_reply(data) else data
    try:
        for name, value in data.items():
            plain[name] = _parsed(without_arrays(value)) if holds_messages(name) else without_arrays(value)
        data, name = plain, "structured_response"  # the only column that `row_fields` converts
        fields = row_fields(plain, columns, warns=warns)
        for name in [name for name in ("trajectory", "labels", "metadata", "context") if name in fields]:
            parsed = _parsed(fields[name])
            # A document may be the text of an object.
            fields[name] = fields[name] if name == "context" and isinstance(parsed, dict) else parsed
    except ValueError as error:
        row_id = own_id(data, columns) or str(number)
        return Row(row_id, None).with_error(f"row {row_id}: `{name}` {error}")
    row_id = str(fields.pop("id", "")).strip() or str(number)
    rubric, labels, metadata = (fields.pop(name, None) for name in ("rubric", "labels", "metadata"))
    _drop_tokens(fields)
    _warn_of_text_of_messages(fields.get("response") if warns else None)
    has_steps = "trajectory" in fields and fields.get("respond") == "trajectory"
    # A mapping under `messages` is a conversation that cannot be read.
    if _is_nested(fields.get("response")) and fields["response"] is not data.get("messages"):
        try:
            fields = output_fields(fields.pop("response")) | fields
        except ValueError as error:
            return Row(row_id, None).with_error(f"row {row_id}: `response`: {error_line(error)}")
    if dialect_of(fields.get("response")) is None and not has_steps:
        # `respond` is only for conversations. Next to a text, it is an unrelated column with any content.
        fields.pop("respond", None)
    if (problem := _column_problem(data, columns)) is not None:
        return Row(row_id, None).with_error(f"row {row_id} {problem}")
    if folder is not None and isinstance(fields.get("response"), bool | int | float):
        fields["response"] = json.dumps(fields["response"])
    if isinstance(fields.get("response"), bool | int | float | None):
        column = find_columns(tuple(data), columns)["response"][0]
        return Row(row_id, None).with_error(
            f"row {row_id}: `{column}` {_not_a_text(fields.get('response', data[column]))}"
        )
    try:
        if "attachments" in fields:
            entries = attachment_fields(fields["attachments"])
            fields["attachments"] = entries if folder is None else read_paths(entries, folder)
    except ValueError as error:
        return Row(row_id, None).with_error(f"row {row_id}: `attachments` {error}")
    try:
        submission = Submission.model_validate(_with_query(fields, query))
    except ValidationError as error:
        return Row(row_id, None).with_error(f"row {row_id}: {error_line(error)}")
    metadata = other_columns(data, columns) | dict(_mapping(metadata) or {})
    return Row(row_id, submission, None, rubric, _mapping(labels), metadata or None, own_task(data, columns))


def _column_problem(data: Mapping[str, Any], columns: ColumnNames) -> str | None:
    """Return the end of an error about the columns of a row, or None if there is no problem.

    A column may be missing or repeated, or have several samples. Or the row was written by a tool that no reader reads.
    """
    problem = unread_tool(data) if columns.response is None else None
    problem = problem or refuse_samples(data, columns)
    missing = missing_column(data, columns)
    if problem is not None or missing is None:
        repeated = None if problem else repeated_column(tuple(data), columns)
        return f"has {repeated}" if repeated else problem
    names = list_names(data, "fields")
    if missing == "response":
        return f"has no `response` ({names}): nothing to grade"
    return f"has no column {missing!r} ({names}): it cannot be graded"


def _drop_tokens(fields: dict[str, Any]) -> None:
    """Remove a `context` of whole numbers from the fields of a row. Ollama writes the tokens of its prompt there."""
    context = fields.get("context")
    if isinstance(context, list) and context and all(type(item) is int for item in cast("list[Any]", context)):
        del fields["context"]
        warnings.warn(
            "a row has whole numbers as documents, such as the tokens in Ollama's `context`: the judge does not see "
            "them; write the texts of the documents",
            stacklevel=3,
        )


# pandas writes a list into a CSV file in this way, which is not JSON.
_PYTHON_MESSAGES = re.compile(r"\s*\[\{'(?:role|content|type)': ")


def _warn_of_text_of_messages(response: object) -> None:
    if not isinstance(response, str):
        return
    messages = None
    with suppress(NestingError):
        messages = _parsed(response)
    if is_conversation(messages) or is_state(messages) or _PYTHON_MESSAGES.match(response):
        # Without the row's id, so that Python prints it once for a file.
        warnings.warn(
            "a response is a text that contains a list of messages: all of this text is graded, and no check sees its "
            "calls; if it is the conversation, write it as JSON into a column `messages`",
            stacklevel=3,
        )


def _with_query(fields: dict[str, Any], query: str | None) -> dict[str, Any]:
    """Return the fields of a row with the caller's task if the row has none, such as an empty cell of a CSV file."""
    own = fields.get("query")
    is_missing = own is None or (isinstance(own, str) and not own.strip())
    return fields if query is None or not is_missing else {**fields, "query": query}


def other_columns(data: Mapping[str, Any], columns: ColumnNames) -> dict[str, Any]:
    """Return the short values of the columns that are not read as fields, such as a topic, a split or a model name."""
    by_name = {str(name): value for name, value in data.items()}  # a name may be a number or a tuple
    tasks = (name for name in by_name if fold(name) == TASK_ID)  # also for `--cluster task_id`
    others = ((name, by_name.get(name)) for name in (*find_unused(tuple(data), columns), *tasks))
    return {
        name: value
        for name, value in others
        if isinstance(value, bool | int | float | str) and not _is_missing(value) and len(str(value)) <= _MAX_METADATA
    }


def own_id(data: Mapping[str, Any], columns: ColumnNames = USUAL_COLUMNS) -> str | None:
    """Return the id that a row contains, or None if the row has no id."""
    value: object = _select(data, ("id",), columns).get("id", "")
    with suppress(ValueError, RecursionError):  # a number or a list that Python does not write
        return str(value).strip() or None
    return None


def own_task(data: Mapping[str, Any], columns: ColumnNames = USUAL_COLUMNS) -> str | None:
    """Return the `task_id` of a row if it is the row's id, or None for any other id.

    Example:
        >>> own_task({"task_id": "HumanEval/0"}), own_task({"task_id": "HumanEval/0", "id": "a"})
        ('HumanEval/0', None)
    """
    name = _present_columns(data, {"id": find_columns(tuple(data), columns)["id"]}).get("id", "")
    return own_id(data, columns) if columns.id is None and fold(name) == TASK_ID else None


def _warn_of_other_response(data: Mapping[str, Any], names: Iterable[str]) -> None:
    present = [name for name in names if not _is_empty_cell(data[name])]
    other = next((name for name in present[1:] if str(data[name]) != str(data[present[0]])), None)
    if other is not None:
        # Without the row's id, so that Python prints it once for a file.
        warnings.warn(
            f"a row has both `{present[0]}` and `{other}`: `{present[0]}` is graded, and `{other}` is not read; remove "
            "or rename one of them, or name the one to grade by `response_column` (`--response-column`)",
            stacklevel=3,
        )


def row_fields(data: Mapping[str, Any], columns: ColumnNames = USUAL_COLUMNS, *, warns: bool = True) -> dict[str, Any]:
    """Return the values of a row by their fields, without missing values.

    If two columns contain different responses, the first column is read, and a warning names the second column. Another
    warning names the columns that are not read as fields. `warns=False` turns off this second warning.

    Example:
        >>> row_fields({"Answer": "42", "question": "6 x 7?", "reference": None})
        {'response': '42', 'query': '6 x 7?'}
    """
    values = _select(data, tuple(COLUMNS), columns)
    unused = find_unused(tuple(data), columns) if warns and "response" in values else ()
    if unused and (request := _request_of(data, columns)):
        unused = tuple(name for name in unused if name != request)
    if unused:
        _warn_of_unused(unused, asks_for_task="query" not in values)
    return values


def _select(data: Mapping[str, Any], fields: tuple[str, ...], columns: ColumnNames = USUAL_COLUMNS) -> dict[str, Any]:
    """Return the first value of each of some fields in a mapping. Fields without a value are left out."""
    names_of = find_columns(tuple(data), columns)
    present = _present_columns(data, {field: names_of[field] for field in fields})
    values = {field: data[name] for field, name in present.items()}
    if present.get("response") == "structured_response":
        # This is the state of an agent, whose messages led to the response. The model's schema declares all fields of
        # the response.
        values["response"] = value_text(values["response"], _simplify)
        return {**_state_fields(data), **values}
    if matches_reply(values.get("response")):
        return _with_request(data, values, columns)
    if "response" in values:
        _warn_of_other_response(data, names_of["response"])
    if present.get("query") and fold(present["query"]) == "input" and columns.query is None:
        values["query"] = _with_instruction(data, names_of["query"], values["query"])
    return values


def _present_columns(data: Mapping[str, Any], names_of: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the column from which each field is read: the first one that is not empty.

    A field whose columns are all empty is left out. Only the response is then read from the first column that is not
    missing, so that the error of the row names it.
    """
    present: dict[str, str] = {}
    for field, names in names_of.items():
        for name in names:
            if not _is_empty_cell(data[name]):
                present[field] = name
                break
            if field == "response" and field not in present and not _is_missing(data[name]):
                present[field] = name
    return present


_REQUESTS = ("request", "request_body", "messages", "input", "inputs", "prompt")


def _request_of(data: Mapping[str, Any], columns: ColumnNames = USUAL_COLUMNS) -> str | None:
    """Return the name of the request whose reply is the response of a row. None if the row has no reply or request."""
    if not any(matches_reply(data[name]) for name in find_columns(tuple(data), columns)["response"]):
        return None
    names = sorted((name for name in data if fold(name) in _REQUESTS), key=lambda name: _REQUESTS.index(fold(name)))
    return next((name for name in names if is_conversation(request_messages(data[name]))), None)


def _with_request(data: Mapping[str, Any], values: dict[str, Any], columns: ColumnNames) -> dict[str, Any]:
    """Return the values of a row with a provider's reply, joined with the messages of the request, if the row has them.

    The reply alone contains neither the task nor earlier tool calls.
    """
    name = _request_of(data, columns)
    # A reply without an answer is refused later, with the id of the row.
    with suppress(ValueError):
        if name is not None:
            response = [*request_messages(data[name]), *reply_messages(values["response"])]
            others = {field: value for field, value in values.items() if field != "query" or value is not data[name]}
            return {**others, "response": response}
    return values


def source_columns(data: Mapping[str, Any], columns: ColumnNames = USUAL_COLUMNS) -> dict[str, tuple[str, ...]]:
    """Return, for each field that has a value in a row, the columns that the value comes from.

    Example:
        >>> source_columns({"Answer": "42", "instruction": "Multiply.", "input": "6 x 7"})
        {'response': ('Answer',), 'query': ('instruction', 'input')}
    """
    names_of = find_columns(tuple(data), columns)
    present = _present_columns(data, names_of)
    sources: dict[str, tuple[str, ...]] = {field: (name,) for field, name in present.items()}
    if present.get("response") == "structured_response":
        return {**{field: ("messages",) for field in _state_fields(data) if field in COLUMNS}, **sources}
    query = present.get("query")
    if query and fold(query) == "input" and columns.query is None:
        task = _with_instruction(data, names_of["query"], data[query])
        instruction = next((name for name in names_of["query"] if fold(name) == "instruction"), None)
        if instruction and task != data[query]:
            sources["query"] = (instruction, query)
    return sources


def _with_instruction(data: Mapping[str, Any], names: Sequence[str], task: object) -> object:
    """Return the `instruction` of a row and its `input` as one text. If one of them is empty, return the other."""
    instruction = next((data[name] for name in names if fold(name) == "instruction"), None)
    if not isinstance(instruction, str) or not isinstance(task, str):
        return task
    return "\n\n".join(text for text in (instruction, task) if text.strip())


def _is_nested(response: object) -> bool:
    """Return whether the response of a row is a value whose fields are read like the output of a program."""
    if isinstance(response, Mapping):
        fields = cast("Mapping[str, Any]", response)
        if is_message(fields):
            return dialect_of(fields) is None
        is_state = "messages" in fields and set(fields) <= {"messages", "respond"}
        return not is_state and not _is_thinking_output(fields) and dialect_of(fields) is None
    return not isinstance(response, str | bool | int | float | list | tuple) and _has_text(response)


def _is_thinking_output(data: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a `ThinkingOutputDict`, even if it has no response."""
    return set(data) <= {"thinking", "output"} and isinstance(data.get("output"), str | None)


# Columns with rubrics in a format that is recognized and not read (see `formats/refused.py`).
_OTHER_RUBRICS = {"rubric_groups": "Vertex AI"}


def _warn_of_unused(names: tuple[str, ...], *, asks_for_task: bool = False) -> None:
    # Shortened and written by `!r`, because a model may have written the names. Without the row's id: Python then
    # prints the warning once for a run.
    listed = ", ".join(repr(name[:MAX_NAME]) for name in names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    task = next((name for name in names if fold(name) in _LIKE_TASKS), None) if asks_for_task else None
    hint = f"; if {task!r} is the task, name it by `query_column` (`--query-column`): there is no other" if task else ""
    rubric = next((name for name in names if fold(name) in _OTHER_RUBRICS), None)
    hint += f"; {rubric!r} has rubrics of {_OTHER_RUBRICS[fold(rubric)]}, which are not read" if rubric else ""
    warnings.warn(
        f"an input has {listed}{more}: not graded, and not shown to the judge; use a name that docs/files.md lists if "
        f"it should be{hint}",
        stacklevel=2,
    )


def warn_of_misspelled(data: Mapping[str, Any]) -> None:
    """Warn that a mapping is graded as JSON, if one of its keys is probably a misspelled name of a response."""
    if misspelled := find_misspelled(tuple(map(str, data))):
        # Without the row's id, so that Python prints it once for a run.
        warnings.warn(
            f"an input has no {misspelled[1]!r}, but {misspelled[0]!r}: all its fields are graded as JSON; if "
            f"{misspelled[0]!r} is the response, rename it to {misspelled[1]!r}",
            stacklevel=2,
        )


def as_row(item: Any, number: int, *, warns: bool = True) -> Row:
    """Return the row of one submission. Its `error` is set if there is nothing to grade.

    Args:
        item: A `Row`, a mapping with the columns that `read_responses` reads, a row of a data frame, a `dspy.Example`,
            or anything that `Rubric.grade` accepts.
        number: The position of the submission, from 1. It becomes the id of a submission without an id.
        warns: Whether a warning names the columns that are not read as fields. Pass False if a function of the user may
            read them.

    Example:
        >>> as_row({"id": "a", "response": "It is 42."}, 1).id, as_row("It is 42.", 2).id
        ('a', '2')
    """
    if isinstance(item, Row):
        return item
    item = _plain_item(item)
    if isinstance(item, Mapping):
        data = cast("Mapping[str, Any]", item)
        if not _is_thinking_output(data) and is_row(data):
            return read_row(data, number, warns=warns)
    try:
        return Row(str(number), as_submission(cast("ToGradeInput", item)))
    except (ValueError, TypeError) as error:
        return Row(str(number), None).with_error(f"row {number}: {error_line(error)}")
    except RecursionError:  # records within records
        return Row(str(number), None).with_error(f"row {number}: {NestingError()}")


def _plain_item(item: Any) -> Any:
    """Return an example of DSPy or a row of pandas as a dictionary, an array as a list, and other values unchanged."""
    if _is_of_dspy(item, "Example") and not _is_of_dspy(item, "Prediction"):
        return dict(item.items())
    if type(item).__name__ == "Series" and type(item).__module__.partition(".")[0] == "pandas":
        return item.to_dict()
    return without_arrays(item) if hasattr(item, "tolist") else item


def count_rows_of_item(item: Any) -> int:
    """Return the number of rows of a submission, as `rows_of_item` returns them."""
    plain = _plain_item(item)
    return count_samples(cast("Mapping[str, Any]", plain)) if isinstance(plain, Mapping) else 1


def rows_of_item(
    item: Any, number: int, *, warns: bool = True, tasks: Counter[str] | None = None
) -> list[tuple[Any, Row]]:
    """Return the row of a submission together with the submission, or one pair for each sample of a mapping.

    Args:
        item: Anything that `as_row` accepts. The samples of a mapping are in a column such as `responses`.
        number: The position of the submission, from 1.
        warns: Whether a warning names the columns that are not read as fields.
        tasks: The number of earlier rows by `task_id`, which are counted on. A later row of a task gets its number.

    Example:
        >>> [row.id for _, row in rows_of_item({"id": "a", "query": "6 x 7?", "responses": ["42", "41"]}, 1)]
        ['a#1', 'a#2']
    """
    plain = _plain_item(item)
    if not isinstance(plain, Mapping):
        return [(item, as_row(item, number, warns=warns))]
    data = cast("Mapping[str, Any]", plain)
    pairs = _pairs_of(item, data, number, warns=warns)
    task = None if tasks is None else own_task(data)
    if tasks is None or task is None or all(task not in (row.id, row.group) for _, row in pairs):
        return pairs
    earlier = tasks[task]
    tasks[task] += len(pairs)
    if not earlier:
        return pairs
    own = f"{task}#{earlier + 1}"
    return [(value, row._replace(id=own + row.id.removeprefix(task), group=task)) for value, row in pairs]


def _pairs_of(item: Any, data: Mapping[str, Any], number: int, *, warns: bool) -> list[tuple[Any, Row]]:
    """Return the row of a mapping, or a row for each of its samples. Earlier rows are not considered."""
    try:
        samples = split_samples(data) if has_task_columns(data) else None
    except ValueError as error:
        row_id = own_id(data) or str(number)
        return [(item, Row(row_id, None).with_error(f"row {row_id}: {error}"))]
    if samples is None:
        return [(item, as_row(item, number, warns=warns))]
    rows = [(sample, as_row(sample, number, warns=warns)) for sample in samples]
    if len(rows) == 1:
        return rows
    return [
        (sample, row._replace(id=f"{row.id}#{place}", group=row.group or row.id))
        for place, (sample, row) in enumerate(rows, start=1)
    ]


def _is_missing(value: object) -> bool:
    """Whether a value is None, or NaN as in an empty cell of a data frame."""
    return value is None or (isinstance(value, float) and value != value)  # noqa: PLR0124


def evidence_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `thinking`, `attachments` and `trajectory` of a row for a `Submission`, without missing values.

    Example:
        >>> evidence_fields({"thinking": None, "attachments": "https://example.com/chart.png"})
        {'attachments': [{'url': 'https://example.com/chart.png'}]}
    """
    fields = {name: data[name] for name in ("thinking", "attachments", "trajectory") if data.get(name) is not None}
    if "attachments" in fields:
        fields["attachments"] = attachment_fields(fields["attachments"])
    if "trajectory" in fields:
        fields["trajectory"] = _parsed(fields["trajectory"])
    return fields


def _is_empty_cell(value: object) -> bool:
    """Whether a value is missing or a blank text, as an empty cell of a table is read."""
    return _is_missing(value) or (isinstance(value, str) and not value.strip())


def holds_messages(name: str) -> bool:
    """Return whether the name of a column, or the last name of a path, means that it contains a conversation."""
    return fold(name).rpartition(".")[2] == "messages"


def _parsed(value: object) -> object:
    """Parse a text that is a JSON object or list. Any other value is returned unchanged."""
    parsed: object = None
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError):
            parsed = parse_json(value)
    return value if parsed is None else without_arrays(parsed)


def _mapping(value: object) -> Mapping[str, Any] | None:
    """Return a mapping, or None for any other value, because the column then has another meaning."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _not_a_text(value: object) -> str:
    """Describe why a value that is not a text cannot be graded."""
    if value is None:
        return "is null: there is nothing to grade"
    if _is_missing(value):
        return "is NaN, an empty cell: there is nothing to grade"
    number = "" if isinstance(value, bool) else "the number "
    return f"is {number}{value!r}, not a text: write {str(value)!r}"


def submission_of(output: object, task: object = None, reference: object = None) -> Submission:
    """Make a submission from a program's output, its inputs and a reference answer.

    Raises:
        ValueError: The output is empty, is too long, or is a conversation without an answer.

    Example:
        >>> submission = submission_of({"answer": "42"}, {"question": "6 x 7?"})
        >>> submission.query, submission.response
        ('6 x 7?', '42')
    """
    if isinstance(output, Submission):
        return as_submission(output, task_fields(task).get("query"), reference_fields(reference).get("reference"))
    try:
        return Submission.model_validate(join_fields(output_fields(output), task, reference))
    except ValidationError as error:
        raise ValueError(error_line(error)) from None


def join_fields(fields: dict[str, Any], task: object, reference: object, *, keeps_task: bool = False) -> dict[str, Any]:
    """Return the fields of a submission: the fields of an output, with a task and a reference.

    Args:
        fields: The fields that `output_fields` returned.
        task: The inputs of the program.
        reference: A reference answer.
        keeps_task: Whether to add the task even if the output contains a conversation. A conversation usually contains
            the task.

    Example:
        >>> join_fields(output_fields("42"), {"question": "6 x 7?"}, None)
        {'response': '42', 'query': '6 x 7?'}
    """
    own, of_task, of_reference = fields.get("query"), task_fields(task), reference_fields(reference)
    if has_task(fields["response"]) and not keeps_task:
        query = None
    elif isinstance(own, list) and not keeps_task:
        query = own
    else:
        query = of_task.get("query") or own
    # The documents of the inputs have precedence, because the program read them before the documents that it retrieved.
    joined = {**of_reference, **fields, **of_task, "query": query}
    return {name: value for name, value in joined.items() if value is not None}


def output_fields(output: object) -> dict[str, Any]:
    """Return the fields of a submission from the output of a program: its `response` and other named fields.

    - A mapping may have keys that are usual names of a response (`COLUMNS`), such as `answer`. The first such key that
      has a value gives the response. The fields `thinking`, `query`, `context`, `attachments` and `trajectory` are also
      read. A warning names all other fields.
    - A mapping without a usual name of a response is graded as JSON. A list of documents under a usual name of the
      context is not graded and becomes the `context`.
    - If an output is the state of an agent with a `structured_response`, its messages are the trajectory.
    - A `dspy.Prediction` is graded on all outputs that its program declares.
    - A text, a message and a conversation are graded unchanged, and any other value as JSON.

    Text inside a value never becomes a field. The response is empty if all outputs are empty.

    Example:
        >>> output_fields({"answer": "42", "thinking": "6 x 7", "tokens": None})
        {'response': '42', 'thinking': '6 x 7'}
    """
    fields: dict[str, Any] = {}
    for _ in range(_MAX_NESTED):
        if not isinstance(output, Mapping) or matches_reply(output):
            break
        named = _named_fields(cast("Mapping[str, Any]", output), "response", _OF_OUTPUTS)
        if named is None:
            break
        if unused := find_unused(tuple(cast("Mapping[str, Any]", output)), USUAL_COLUMNS, _NOT_OF_OUTPUTS):
            _warn_of_unused(unused)
        output = named.pop("response")
        fields = {**_readable(named), **fields}
    if _is_of_dspy(output, "Prediction"):
        from rubric_integrations.submission.predictions import prediction_fields

        return {**prediction_fields(output), **fields}
    if matches_reply(output):
        return {"response": reply_messages(output), **fields}
    if not is_state(output) and not is_conversation(output):
        refuse_provider_data(plain_value(output, _simplify))
    if isinstance(output, Mapping) and not is_state(output) and not is_message(cast("object", output)):
        warn_of_misspelled(cast("Mapping[str, Any]", output))
        output, documents = split_outputs(cast("Mapping[str, Any]", output))
        fields = {**({"context": documents} if documents else {}), **fields}
        is_blank = all(is_empty(value, _simplify) for value in output.values())
    else:
        is_blank = is_empty(output, _simplify)
    return {"response": "" if is_blank else as_gradable(output) or "", **fields}


def task_fields(task: object) -> dict[str, Any]:
    """Return the fields of a submission from the inputs of a program: the `query` and documents as `context`.

    A mapping may have a key that is a usual name of a task (`COLUMNS`). The value of this key is then the query.
    Without such a key, the query is the only value of the mapping, or the mapping as JSON if it has several values.

    Example:
        >>> task_fields({"question": "6 x 7?", "documents": ["A table."]})
        {'query': '6 x 7?', 'context': ['A table.']}
    """
    return _fields_of(task, "query", ("query",))


def reference_fields(reference: object) -> dict[str, Any]:
    """Return the fields of a submission from a reference answer: the `reference` and documents as `context`.

    A mapping may have a key that is a usual name of a reference or of a response (`COLUMNS`). The value of this key is
    then the reference. Without such a key, the reference is the only value of the mapping, or the mapping as JSON if it
    has several values.

    Example:
        >>> reference_fields({"answer": "42"})
        {'reference': '42'}
    """
    return _fields_of(reference, "reference", ("reference", "response"))


def _fields_of(value: object, field: str, names: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if isinstance(value, Mapping) and not is_message(cast("object", value)):
        data = cast("Mapping[str, Any]", value)
        named = next((named for name in names if (named := _named_fields(data, name, ("context",)))), None)
        if named is not None:
            value = next(named.pop(name) for name in names if name in named)
            fields = {name: named[name] for name in ("context",) if name in named}
            # The examples of a data set may have other values, which a judge does not need.
            if field == "query" and (unused := find_unused(tuple(data), USUAL_COLUMNS)):
                _warn_of_unused(unused)
        elif len(data) == 1 and not is_state(data):
            value = next(iter(data.values()))
    return {field: as_gradable(value) or None, **fields}


def _named_fields(data: Mapping[str, Any], field: str, beside: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the values of a field and of other fields in a mapping, or None if the mapping has no name of the field.

    The value of the field is None if it is missing.

    Args:
        data: The mapping.
        field: The field.
        beside: The names of the other fields.
    """
    data = without_arrays(data)
    if not find_columns(tuple(data), USUAL_COLUMNS)[field]:
        return None
    return {field: None, **_select(data, (field, *beside))}


def _readable(fields: dict[str, Any]) -> dict[str, Any]:
    """Convert the other fields of an output to the forms of a submission. A trajectory without steps is left out."""
    readable = dict(fields)
    _drop_tokens(readable)
    if "thinking" in fields:
        readable["thinking"] = value_text(fields["thinking"], _simplify)
    if "query" in fields:
        readable["query"] = as_gradable(fields["query"])
    if "attachments" in fields:
        readable["attachments"] = attachment_fields(fields["attachments"])
    if "trajectory" in fields:
        trajectory = readable.pop("trajectory")
        # An observation often contains the right answer.
        if dialect_of(trajectory) == "dspy_react" or is_conversation(trajectory):
            readable |= {"trajectory": trajectory, "show_trajectory": "if_needed"}
    return readable


def has_task(response: object) -> bool:
    """Return whether a response is a conversation with a message of the user, and so contains its task.

    Example:
        >>> has_task([("user", "6 x 7?"), ("ai", "42")]), has_task([("ai", "42")]), has_task("42")
        (True, False, False)
    """
    if not isinstance(response, list):
        return False
    with suppress(ValueError):
        messages = read_conversation(response, FilesAsPlaceholders()).messages
        return any(message.role == "user" for message in messages)
    return True


def as_gradable(value: Any) -> str | list[Any] | None:
    """Return the text of a value, or the list of messages if the value is a conversation. Return None for None.

    For the state of an agent (see `is_state`), return its `structured_response` as text. If the state has no
    `structured_response`, return its messages.

    Example:
        >>> as_gradable({"messages": [("user", "6 x 7?"), ("ai", "42")], "structured_response": {"product": 42}})
        '{"product": 42}'
    """
    if value is None or isinstance(value, str):
        return value
    if is_state(value):
        answer = value.get("structured_response")
        return list(value["messages"]) or None if answer is None else value_text(answer, _simplify)
    if _is_chat_prompt(value):
        value = value.to_messages()
    if is_conversation(value):
        return list(value)
    if isinstance(value, Mapping | list | tuple) and not value:
        return ""
    return message_text(value) if is_message(value) else value_text(value, _simplify)


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


def _state_fields(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a submission from the messages of a state whose structured response is graded.

    The query contains the messages before the last message of the model. The last message contains the structured
    response, or calls a tool with it.
    """
    if not is_conversation(state.get("messages")):
        return {}
    messages: list[Any] = list(state["messages"])
    roles = [message_role(message) for message in messages]
    last = max((index for index, role in enumerate(roles) if role == "assistant"), default=len(roles))
    query = {"query": messages[:last]} if messages[:last] else {}
    return {**query, "trajectory": messages, "show_trajectory": "if_needed"}


def _is_chat_prompt(value: Any) -> bool:
    """Return whether a value is a LangChain prompt of several messages, without importing LangChain, which is slow."""
    return hasattr(value, "to_messages") and hasattr(value, "messages")


def _is_of_dspy(value: object, name: str | None = None) -> bool:
    """Return whether a value has a class of DSPy, or the DSPy class with this name, without importing DSPy."""
    classes = (cls for cls in type(value).__mro__ if cls.__module__.partition(".")[0] == "dspy")
    return any(name is None or cls.__name__ == name for cls in classes)


def _simplify(value: object) -> object | None:
    """Return the text or the fields of a LangChain or DSPy value inside other data, or None for any other value."""
    if hasattr(value, "to_messages") and hasattr(value, "to_string"):
        return str(cast("Any", value).to_string())
    if _is_of_dspy(value):
        from rubric_integrations.submission.predictions import simplified

        return simplified(None, value)
    if isinstance(value, Mapping):
        return None
    if matches_reply(value):
        return cast("BaseModel", value).model_dump(warnings=False)
    return message_text(value) if is_message(value) else None


def own_rubric_of(metadata: object) -> Any:
    """Return the `rubric` in the metadata of a row, or None if the metadata have no rubric.

    The metadata may be a mapping or an object.

    Example:
        >>> own_rubric_of({"rubric": [{"requirement": "Says 42"}]})
        [{'requirement': 'Says 42'}]
    """
    if isinstance(metadata, Mapping):
        return cast("Mapping[str, Any]", metadata).get("rubric")
    return getattr(metadata, "rubric", None)
