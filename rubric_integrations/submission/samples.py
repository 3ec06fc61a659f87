"""Several samples of one prompt in one row: a list of responses under one of `SAMPLE_COLUMNS`.

Scripts over vLLM, best-of-n and evaluations write such rows. Each sample becomes a row of its own, with an id such as
`q1#2`, and all of them get the prompt's id as their `Row.group`. Samples of one prompt depend on each other: with 10
samples of each of 20 prompts, there are 20 independent inputs and not 200.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from rubric_integrations._util.json import JsonObject, parse_json
from rubric_integrations.submission.columns import (
    COLUMNS,
    SAMPLE_COLUMNS,
    USUAL_COLUMNS,
    ColumnNames,
    find_columns,
    fold,
)
from rubric_integrations.submission.messages import is_conversation, is_message, message_role

# The text of a sample that is an object, such as vLLM's `CompletionOutput` or an entry of a best-of-n list.
_TEXTS = ("text", "response", "output", "completion", "answer", "content", "message", "generated_text")
# Fields of a row that belong to one response. For several samples, they would belong to none of them.
_OF_ONE_RESPONSE = ("thinking", "trajectory", "labels")
# Columns that can stand next to samples, because they are read in another way.
_NO_RESPONSES = ("messages", *SAMPLE_COLUMNS)


def sample_column(row: JsonObject, columns: ColumnNames = USUAL_COLUMNS) -> str | None:
    """Return the name of the column in which a row has its samples, or None if the row has one response or none.

    Example:
        >>> sample_column({"prompt": "6 x 7?", "responses": ["42", "41"]}), sample_column({"output": ["42", "41"]})
        ('responses', None)
    """
    if columns.response is not None:
        named = next((name for name in row if str(name) == columns.response), None)
        return named if named is not None and fold(named) in SAMPLE_COLUMNS and _items(row[named]) is not None else None
    own = find_columns(tuple(row), columns)["response"]
    if any(row[name] not in (None, "") and fold(name) not in _NO_RESPONSES for name in own):
        return None
    present = {fold(name): name for name in row}
    for name in SAMPLE_COLUMNS:
        # `outputs` is also the name of a response, and `choices` often has the options of a question.
        # The choices of a provider's own reply are read by its format.
        is_known = name in present and not (name == "choices" and "object" in row)
        items = _items(row[present[name]]) if is_known else None
        if items is not None and (name not in ("outputs", "choices") or _are_samples(items, name)):
            return present[name]
    return None


def split_samples(row: JsonObject, columns: ColumnNames = USUAL_COLUMNS) -> list[dict[str, Any]] | None:
    """Return a row for each sample of a row, without new ids, or None if the row has no samples.

    Raises:
        ValueError: The list is empty or not a list of samples, or the row has fields that belong to one response.

    Example:
        >>> split_samples({"prompt": "6 x 7?", "samples": [{"text": "42", "score": 0.9}, {"text": "41"}]})
        [{'prompt': '6 x 7?', 'response': '42'}, {'prompt': '6 x 7?', 'response': '41'}]
    """
    column = sample_column(row, columns)
    if column is None:
        return None
    items = _items(row[column]) or []
    if not items:
        raise ValueError(f"`{column}` is an empty list: there is nothing to grade")
    names_of = find_columns(tuple(row), columns)
    if len(items) > 1:
        for field in _OF_ONE_RESPONSE:
            if name := next((name for name in names_of[field] if row[name] not in (None, "", [], {})), None):
                raise ValueError(
                    f"`{name}` belongs to one response, and `{column}` has {len(items)} samples: write one row for "
                    "each sample, or it would be taken for a part of all of them"
                )
    others = {name: value for name, value in row.items() if name != column and name not in names_of["response"]}
    others |= _request(row, names_of)
    response = columns.response or "response"
    return [{**others, response: _sample(item, f"{column}[{index}]")} for index, item in enumerate(items)]


def refuse_samples(row: JsonObject, columns: ColumnNames = USUAL_COLUMNS) -> str | None:
    """Return why a row cannot be read as one response, if it has several samples. Otherwise None.

    Example:
        >>> refuse_samples({"responses": ["42", "41"]})[:70]
        'has 2 samples in `responses`, and only one response can be graded here'
    """
    column = sample_column(row, columns)
    if column is None or len(items := _items(row[column]) or []) < 2:
        return None
    return (
        f"has {len(items)} samples in `{column}`, and only one response can be graded here: pass one row for each "
        "sample, or grade the file or the list by `grade_many`, or all would be graded as one"
    )


def _items(value: object) -> list[Any] | None:
    """Return the list of samples in a column, or None for a value that is not a list, such as a text in a cell."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parse_json(value)
        except ValueError:
            return None
    elif hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1:
        value = cast("Any", value).tolist()
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else None


def _are_samples(items: list[Any], column: str) -> bool:
    """Return whether a list under a name that has other meanings is a list of samples."""
    # A text in `choices` that no model has ended may be an option of a question, as in CommonsenseQA.
    texts = {"message", "finish_reason" if column == "choices" else "text"}
    # Several blocks with a `type` are the content of one message.
    no_samples = {"role", "type"}
    if items and all(
        isinstance(item, Mapping) and texts & item.keys() and not no_samples & item.keys() for item in items
    ):
        return True
    if not items or column != "outputs" or is_conversation(items):
        return False
    return any(isinstance(item, str) for item in items) or all(map(is_conversation, items))


def _request(row: JsonObject, names_of: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the messages next to samples as their task.

    Raises:
        ValueError: The messages end with an answer. Which of the answers is to be graded would be unclear.
    """
    name = next((name for name in names_of["response"] if fold(name) == "messages" and row[name]), None)
    if name is None:
        return {}
    messages = _items(row[name]) or []
    if not is_conversation(messages) or message_role(messages[-1]) != "user":
        raise ValueError(
            f"`{name}` does not end with a message of the user, and other columns have samples: leave its answer out, "
            "or remove the samples, or it would be unclear which answer is graded"
        )
    # The messages that the model got are more than a `query` next to them, which may repeat the last one.
    return {**dict.fromkeys(names_of["query"]), "query": messages}


def _sample(item: Any, place: str) -> Any:
    """Return the response of one sample: a text, messages, or the text of an object.

    Raises:
        ValueError: The sample has another form.
    """
    if item is None or isinstance(item, str) or (isinstance(item, list | tuple) and is_conversation(item)):
        return item
    if isinstance(item, Mapping) and not is_message(cast("object", item)):
        sample = cast("JsonObject", item)
        names = [name for name in sample if fold(name) in _TEXTS and sample[name] is not None]
        value = sample[names[0]] if len(names) == 1 else None
        if isinstance(value, str) or is_conversation(value):
            return value
        if isinstance(value, Mapping) and is_message(cast("object", value)):
            return [value]
    if isinstance(item, Mapping) and is_message(cast("object", item)):
        raise ValueError(
            f"`{place}` is a message, which may be a sample or a turn of one conversation: write each sample as a text "
            "or as a list of messages, or a conversation as `messages`"
        )
    keys = f" with the keys {list(cast('JsonObject', item))[:_MAX_KEYS]!r}" if isinstance(item, Mapping) else ""
    raise ValueError(
        f"`{place}` is {type(item).__name__}{keys}, and a sample is a text, a list of messages, or an object with one "
        f"of {', '.join(_TEXTS)}: write the text of each sample"
    )


_MAX_KEYS = 10


def has_task_columns(row: JsonObject) -> bool:
    """Return whether a row has a task, an id, a reference or a rubric under a usual name. Otherwise it may be data."""
    return _have_task(tuple(row))


# Most rows of a run have the same columns.
@lru_cache(maxsize=256)
def _have_task(names: tuple[str, ...]) -> bool:
    folded = {fold(name) for name in names}
    return any(folded.intersection(COLUMNS[field]) for field in ("query", "id", "reference", "rubric"))


def count_samples(row: JsonObject) -> int:
    """Return the number of the samples of a row, or 1 if it has none.

    Example:
        >>> count_samples({"id": "a", "responses": ["42", "41"]}), count_samples({"response": "42"})
        (2, 1)
    """
    column = sample_column(row) if has_task_columns(row) else None
    return max(1, len(_items(row[column]) or [])) if column is not None else 1
