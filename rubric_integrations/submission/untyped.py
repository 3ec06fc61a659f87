"""A submission from the values of an evaluation framework, which may be of any type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.submission.inputs import as_submission
from rubric_integrations.submission.messages import is_conversation
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.values import value_text


def submission_of(output: object, task: object = None, reference: object = None) -> Submission:
    """Return the submission that a program's output, its inputs and an exemplary answer make.

    Each may be a text, a conversation, a mapping with one of these as its only value, or any other value, which is
    written as JSON. The task is left out if the output is a conversation, which contains it.

    Raises:
        ValueError: The output is empty, too long, or a conversation without an answer.

    Example:
        >>> submission = submission_of({"answer": "42"}, {"question": "6 x 7?"})
        >>> submission.query, submission.response
        ('6 x 7?', '42')
    """
    response = _text_or_messages(output)
    query = None if isinstance(response, list) else _text_or_messages(task) or None
    return as_submission(response, query, _text_or_messages(reference) or None)


def own_rubric_of(metadata: object) -> Any:
    """Return the value under `rubric` in the metadata of a row, which may be a mapping or an object; None without it.

    Example:
        >>> own_rubric_of({"rubric": [{"requirement": "Says 42"}]})
        [{'requirement': 'Says 42'}]
    """
    if isinstance(metadata, Mapping):
        return cast("Mapping[str, Any]", metadata).get("rubric")
    return getattr(metadata, "rubric", None)


def _text_or_messages(value: object) -> str | list[Any]:
    if isinstance(value, Mapping) and len(cast("Mapping[str, Any]", value)) == 1:
        value = next(iter(cast("Mapping[str, Any]", value).values()))
    if isinstance(value, Mapping | list | tuple) and not value:
        return ""
    return list(cast("list[Any]", value)) if is_conversation(value) else value_text(value)
