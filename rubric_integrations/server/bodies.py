"""Reads the bodies of requests: a submission, or the samples of OpenRLHF.

Bodies come from others. They are parsed as strict JSON, and nothing in them can name a file of this machine.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from aiohttp import web
from aiohttp.web_exceptions import HTTPRequestEntityTooLarge

from rubric_integrations._util.json_lines import parse_json
from rubric_integrations.server.problems import RequestProblem
from rubric_integrations.submission.rollout_text import response_of
from rubric_integrations.submission.rows import Row, read_row
from rubric_integrations.submission.thinking import split_completion

LabelUse = Literal["reference", "rubric", "ignore"]
"""What the labels of OpenRLHF are: exemplary responses, rubrics, or nothing that grades need."""

SUBMISSION_FIELDS = (
    "id", "response", "messages", "respond", "thinking", "query", "reference", "context", "attachments", "trajectory",
    "rubric",
)  # fmt: skip
"""The fields of the body of `/grade`: those of a file of responses, each under one name."""

BODY_SECONDS = 60.0
"""Seconds in which the whole body of a request must arrive."""

# Characters of an unknown field's name that are sent back.
_MAX_NAME = 40


class Sample(NamedTuple):
    """One sample of `/get_reward`.

    Attributes:
        row: What is graded; None if the response is empty, or ended while the model was thinking.
        rubric: The rubric that the label brings; None if it brings none.
    """

    row: Row | None
    rubric: Any = None


async def read_json(request: web.Request) -> Mapping[str, Any]:
    """Read the body of a request, which must be a JSON object.

    Raises:
        RequestProblem: (415) It is not declared as JSON, or is compressed; (413) it is too large; (408) it takes too
            long; (400) it is cut off, is not JSON, or is no object.
    """
    if request.content_type != "application/json":
        # Another type could be sent by the page of any website, without a question to this server.
        raise RequestProblem(415, f"the body has the type {request.content_type!r}: send JSON, as `application/json`")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise RequestProblem(415, "the body is compressed: send it as it is, because a small one could fill the memory")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
    except HTTPRequestEntityTooLarge:
        raise RequestProblem(
            413, "the body is larger than the server accepts: send less, or start it with a larger `--max-body`"
        ) from None
    except TimeoutError:
        raise RequestProblem(408, f"the body did not arrive within {BODY_SECONDS:g} s: send it again") from None
    except (web.RequestPayloadError, ConnectionError):
        raise RequestProblem(400, "the body is cut off: send it again") from None
    try:
        value = parse_json(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RequestProblem(400, f"the body is not text in UTF-8 (byte {error.start}): encode it") from None
    except ValueError as error:
        raise RequestProblem(400, f"the body {error}") from None
    if not isinstance(value, Mapping):
        raise RequestProblem(400, f'the body is {_kind(value)}: send an object, such as {{"response": "..."}}')
    return cast("Mapping[str, Any]", value)


def read_submission(data: Mapping[str, Any]) -> Row:
    """Return the row of the body of `/grade`.

    Raises:
        RequestProblem: (422) A field is unknown, or there is nothing to grade.
    """
    _refuse_unknown(data, SUBMISSION_FIELDS)
    if data.get("response") is not None and data.get("messages") is not None:
        raise RequestProblem(422, "the body has `response` and `messages`: send one, because only one can be graded")
    try:
        row = read_row(data, 1)
    except (ValueError, TypeError, RecursionError) as error:
        raise RequestProblem(422, str(error) or "the body is nested too deeply") from None
    if row.submission is None:
        raise RequestProblem(422, (row.error or "").removeprefix(f"row {row.id}").lstrip(": "))
    return row


def read_samples(data: Mapping[str, Any], label_use: LabelUse) -> list[Sample]:
    """Return the samples of the body of `/get_reward`.

    Raises:
        RequestProblem: (422) The lists are missing or differ in length, or a sample cannot be read.
    """
    _refuse_unknown(data, ("query", "prompts", "labels"))
    queries, prompts = _list_of(data, "query"), _list_of(data, "prompts")
    raw_labels = _list_of(data, "labels") if data.get("labels") is not None else [None] * len(queries)
    if not len(queries) == len(prompts) == len(raw_labels):
        raise RequestProblem(
            422,
            f"`query`, `prompts` and `labels` have {len(queries)}, {len(prompts)} and {len(raw_labels)} entries: send "
            "as many of each, or a response would be graded with the prompt of another",
        )
    entries = zip(queries, prompts, raw_labels, strict=True)
    return [_sample(*entry, number, label_use) for number, entry in enumerate(entries)]


def _sample(query: object, prompt: object, label: object, number: int, label_use: LabelUse) -> Sample:
    for name, value in (("query", query), ("prompts", prompt)):
        if not isinstance(value, str):
            raise RequestProblem(422, f"`{name}[{number}]` is {_kind(value)}: send a text")
    try:
        response = response_of(cast("str", query), cast("str", prompt))
    except ValueError as error:
        raise RequestProblem(422, f"`query[{number}]`: {error}: send `query` and `prompts` as OpenRLHF does") from None
    label = None if isinstance(label, float) and math.isnan(label) else label
    rubric = label if label_use == "rubric" and label != "" else None
    thinking, output, *_ = split_completion(response)
    if not output.strip():
        return Sample(None, rubric)
    parts, reference = {"thinking": thinking, "output": output}, None
    if label_use == "reference" and label not in (None, ""):
        reference = label if isinstance(label, str) else json.dumps(label, ensure_ascii=False)
    row = read_row({"response": parts, "query": prompt or None, "reference": reference}, number)
    if row.submission is None:
        raise RequestProblem(422, f"`query[{number}]`: {(row.error or '').removeprefix(f'row {number}').lstrip(': ')}")
    # A policy could persuade the judge in its thoughts.
    submission = row.submission.model_copy(update={"hide_thinking": True})
    return Sample(row._replace(submission=submission, rubric=rubric), rubric)


def _list_of(data: Mapping[str, Any], name: str) -> list[object]:
    value = data.get(name)
    if not isinstance(value, list):
        raise RequestProblem(422, f"`{name}` is {_kind(value)}: send a list with an entry for each sample")
    return cast("list[object]", value)


def _refuse_unknown(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in data:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
            shown = name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "..."
            raise RequestProblem(422, f"the field {shown!r} is unknown, and would have no effect: {hint}")


def _kind(value: object) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    if value is None:
        return "null or missing"
    return names.get(type(value), "a number")
