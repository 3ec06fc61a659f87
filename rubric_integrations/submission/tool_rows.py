"""The rows that other tools write (`ROW_FORMATS`), and the columns of this library in each."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.inputs import row_fields
from rubric_integrations.submission.messages import value_text
from rubric_integrations.submission.submission import MAX_CHARS
from rubric_integrations.submission.tool_answers import (
    Fields,
    LayoutError,
    RowFormat,
    ToolAnswer,
    all_objects,
    as_mapping,
    failed_answer,
    has_keys,
    has_no_response,
    has_value,
    prefixed_values,
    prompt_of,
    query_of,
    response_of,
    short_values,
    unclear_answer,
    unread_rows,
)
from rubric_integrations.submission.traces import matches_langsmith_run, read_langsmith_run


def find_row_format(row: object) -> RowFormat | None:
    """Return the format of a row of another tool; None for a row of this library's columns and for any other.

    Example:
        >>> find_row_format({"custom_id": "a", "result": {"type": "expired"}}).name
        'Anthropic batch'
    """
    if not isinstance(row, Mapping):
        return None
    return next((known for known in ROW_FORMATS if known.matches(cast("Fields", row))), None)


def _openai_batch(row: Fields) -> Iterable[ToolAnswer]:
    row_id, response = str(row["custom_id"]), row.get("response") or {}
    body = response.get("body") or {}
    error = row.get("error") or (body.get("error") if isinstance(body, Mapping) else None)
    status = response.get("status_code")
    if error or not isinstance(body, Mapping) or not body or (isinstance(status, int) and status >= 400):
        return [failed_answer(row_id, error or f"status {status}")]
    if isinstance(body.get("output"), list):
        return [ToolAnswer({"id": row_id, "response": body["output"], "metadata": short_values(body, "model")})]
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        return [failed_answer(row_id, f"its body is `{body.get('object')}`, without `choices` or `output`")]
    answers = list[ToolAnswer]()
    for index, choice in enumerate(cast("list[Fields]", choices), start=1):
        choice_id = row_id if len(choices) == 1 else f"{row_id}-choice{index}"
        message = choice.get("message")
        metadata = short_values(body, "model") | short_values(choice, "finish_reason")
        fields = {"id": choice_id, "metadata": metadata}
        if isinstance(message, Mapping):
            answers.append(ToolAnswer({**fields, "response": [message]}))
        else:
            answers.append(ToolAnswer({**fields, "response": choice.get("text")}))
    return answers


def _anthropic_batch(row: Fields) -> Iterable[ToolAnswer]:
    row_id, result = str(row["custom_id"]), row["result"]
    message = result.get("message")
    if result["type"] != "succeeded" or not isinstance(message, Mapping):
        error = result.get("error") or {}
        return [failed_answer(row_id, error.get("error") or error or f"the request is {result['type']}")]
    if not message.get("content"):
        return [failed_answer(row_id, message.get("stop_details") or f"stop_reason {message.get('stop_reason')!r}")]
    metadata = short_values(message, "model", "stop_reason")
    response = [{"role": "assistant", "content": message["content"]}]
    return [ToolAnswer({"id": row_id, "response": response, "metadata": metadata})]


def _promptfoo(row: Fields) -> Iterable[ToolAnswer]:
    row_id = f"test{row['testIdx']}-prompt{row['promptIdx']}"
    response = row.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    # 1 is a failed assertion about an answer, 2 is an error of the provider.
    if row.get("failureReason") == 2 or output is None:
        return [failed_answer(row_id, row.get("error") or (isinstance(response, Mapping) and response.get("error")))]
    prompt, provider = as_mapping(row.get("prompt")), as_mapping(row.get("provider"))
    case = as_mapping(row.get("testCase"))
    metadata = short_values(case, "description") | short_values(as_mapping(row.get("vars")))
    metadata |= {"provider": provider.get("label") or provider.get("id"), "prompt": prompt.get("label")}
    fields = {"id": row_id, "response": response_of(output), "query": prompt_of(prompt.get("raw"))}
    return [ToolAnswer({**fields, "metadata": {name: value for name, value in metadata.items() if value is not None}})]


def _inspect_sample(row: Fields) -> Iterable[ToolAnswer]:
    epoch = row.get("epoch")
    row_id = str(row["id"]) if epoch in (None, 1) else f"{row['id']}-epoch{epoch}"
    error, output = row.get("error"), as_mapping(row.get("output"))
    if error or not output.get("choices"):
        return [failed_answer(row_id, error or output.get("error") or "its `output` has no choices")]
    target = row.get("target")
    reference = "\n".join(map(str, target)) if isinstance(target, list) else target
    conversation = {name: row.get(name) for name in ("messages", "output", "attachments", "epoch")}
    if dialect_of(conversation) != "inspect_ai":
        return [failed_answer(row_id, "its `messages` cannot be read")]
    metadata = dict(as_mapping(row.get("metadata")))
    fields = {"id": row_id, "response": conversation, "reference": reference or None}
    return [ToolAnswer({**fields, "rubric": metadata.pop("rubric", None), "metadata": metadata})]


def _langsmith_frame(row: Fields) -> Iterable[ToolAnswer]:
    row_id = str(row.get("id") or row.get("example_id"))
    groups = {kind: prefixed_values(row, f"{kind}.") for kind in ("inputs", "outputs", "reference")}
    outputs = groups["outputs"]
    usual = row_fields(outputs, warns=False).get("response") if len(outputs) > 1 else next(iter(outputs.values()), None)
    if has_value(row.get("error")):
        return [failed_answer(row_id, row["error"])]
    if usual is None and len(outputs) > 1:
        return [unclear_answer(row_id, [f"outputs.{name}" for name in outputs])]
    references = groups["reference"]
    reference = next(iter(references.values())) if len(references) == 1 else references or None
    reference = value_text(reference) if isinstance(reference, Mapping | list) else reference
    fields = {"id": row_id, "query": query_of(groups["inputs"]), "response": usual, "reference": reference}
    return [ToolAnswer(fields)]


def _ragas(row: Fields) -> Iterable[ToolAnswer]:
    task, response = row["user_input"], row.get("response")
    fields = {
        name: value for name, value in row.items() if name not in ("user_input", "retrieved_contexts", "response")
    }
    if any(str(name).startswith("score") for name in as_mapping(row.get("rubrics"))):
        del fields["rubrics"]  # The descriptions of ragas' own scores.
    if has_value(row.get("retrieved_contexts")):
        fields["context"] = _repr_list(row["retrieved_contexts"])
    messages = _repr_list(task)
    if not _is_ragas_chat(messages):
        return [ToolAnswer({**fields, "query": task, "response": response})]
    conversation = _ragas_messages(messages)
    if has_value(response):
        return [ToolAnswer({**fields, "query": conversation, "response": response})]
    return [ToolAnswer({**fields, "response": conversation})]


def _ragas_messages(messages: Sequence[Fields]) -> list[dict[str, Any]]:
    """Return the messages in OpenAI's form, with the ids of calls that ragas does not write: results are in order."""
    roles, made, waiting = {"human": "user", "ai": "assistant"}, 0, list[str]()
    converted = list[dict[str, Any]]()
    for message in messages:
        kind = str(message.get("type"))
        item: dict[str, Any] = {"role": roles.get(kind, kind), "content": message.get("content")}
        calls = message.get("tool_calls") or []
        if calls:
            waiting = [f"call{made + index}" for index in range(len(calls))]
            made += len(calls)
            item["tool_calls"] = [
                {"id": call_id, "function": {"name": call.get("name"), "arguments": call.get("args")}}
                for call_id, call in zip(waiting, calls, strict=True)
            ]
        elif kind == "tool" and waiting:
            item["tool_call_id"] = waiting.pop(0)
        converted.append(item)
    return converted


def _lm_eval(row: Fields) -> Iterable[ToolAnswer]:
    row_id, responses = str(row["doc_id"]), row["resps"]
    arguments = row["arguments"]
    is_choice = len(arguments) > 1 or any(
        isinstance(answers[0], list) and len(answers[0]) == 2 for answers in responses
    )
    if is_choice:
        raise LayoutError("has lm-eval samples of multiple choice, which have probabilities and no text to grade")
    first = next(iter(arguments.values())) if isinstance(arguments, Mapping) else arguments[0]
    prompt = next(iter(first.values()), None) if isinstance(first, Mapping) else first[0]
    shared = {"query": prompt_of(prompt), "reference": str(row.get("target") or "") or None}
    answers = responses[0]
    ids = [row_id if len(answers) == 1 else f"{row_id}-repeat{number}" for number in range(1, len(answers) + 1)]
    return [ToolAnswer({"id": own, "response": answer, **shared}) for own, answer in zip(ids, answers, strict=True)]


def _is_lm_eval(row: Fields) -> bool:
    answers, arguments = row.get("resps"), row.get("arguments")
    is_sample = (
        has_keys("doc_id", "doc")(row)
        and has_no_response(row)
        and isinstance(arguments, Mapping | list)
        and bool(arguments)
    )
    return is_sample and isinstance(answers, list) and bool(answers) and all(isinstance(a, list) and a for a in answers)


def _mt_bench(row: Fields) -> Iterable[ToolAnswer]:
    answers, choices = list[ToolAnswer](), cast("list[Fields]", row["choices"])
    for number, choice in enumerate(choices, start=1):
        choice_id = str(row["question_id"]) if len(choices) == 1 else f"{row['question_id']}-choice{number}"
        for turn, text in enumerate(choice["turns"], start=1):
            row_id = f"{choice_id}-turn{turn}"
            # FastChat writes these texts in place of an answer that failed.
            if text in ("$ERROR$", "ERROR"):
                answers.append(failed_answer(row_id, "FastChat wrote an error"))
            else:
                answers.append(ToolAnswer({"id": row_id, "response": text, "metadata": short_values(row, "model_id")}))
    return answers


def _is_mt_bench(row: Fields) -> bool:
    choices = row.get("choices")
    return (
        "question_id" in row
        and has_no_response(row)
        and all_objects(choices, lambda choice: isinstance(choice.get("turns"), list))
    )


_SHAREGPT_ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "bard": "assistant", "system": "system",
}  # fmt: skip


def _sharegpt(row: Fields) -> Iterable[ToolAnswer]:
    turns = cast("list[Fields]", row["conversations"])
    unknown = next((turn["from"] for turn in turns if turn["from"] not in _SHAREGPT_ROLES), None)
    row_id = row.get("id")
    if unknown is not None:
        return [failed_answer(str(row_id), f"the sender {unknown!r} is not known: use {', '.join(_SHAREGPT_ROLES)}")]
    messages = [{"role": _SHAREGPT_ROLES[turn["from"]], "content": turn["value"]} for turn in turns]
    if isinstance(system := row.get("system"), str) and system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return [ToolAnswer({"id": row_id, "response": messages})]


def _dspy(row: Fields) -> Iterable[ToolAnswer]:
    (name,) = prefixed_values(row, "pred_")
    fields = {key: value for key, value in row.items() if key not in (f"pred_{name}", f"example_{name}")}
    return [ToolAnswer({**fields, "response": row[f"pred_{name}"], "reference": row[f"example_{name}"]})]


def _is_dspy(row: Fields) -> bool:
    """Return whether exactly one field of the prediction, and the same one of the example, has DSPy's prefix."""
    fields = prefixed_values(row, "pred_")
    return len(fields) == 1 and list(fields) == list(prefixed_values(row, "example_")) and has_no_response(row)


def _is_openai_batch(row: Fields) -> bool:
    response = row.get("response")
    if "custom_id" not in row or "response" not in row or "result" in row:
        return False
    return ("body" in response or "status_code" in response) if isinstance(response, Mapping) else (
        response is None and bool(row.get("error"))
    )  # fmt: skip


def _is_anthropic_batch(row: Fields) -> bool:
    return "custom_id" in row and isinstance(as_mapping(row.get("result")).get("type"), str)


def _is_langsmith_frame(row: Fields) -> bool:
    return bool(prefixed_values(row, "outputs.")) and bool(prefixed_values(row, "inputs.")) and has_no_response(row)


def _is_ragas(row: Fields) -> bool:
    return "user_input" in row and ("response" in row or _is_ragas_chat(row["user_input"]))


def _is_sharegpt(row: Fields) -> bool:
    return all_objects(row.get("conversations"), has_keys("from", "value")) and has_no_response(row)


ROW_FORMATS = (
    RowFormat(
        "OpenAI batch input", has_keys("custom_id", "method", "url", "body"),
        unread_rows("the input of an OpenAI batch", "name its output file"),
    ),
    RowFormat("OpenAI batch", _is_openai_batch, _openai_batch, "the input file of the batch"),
    RowFormat("Anthropic batch", _is_anthropic_batch, _anthropic_batch, "the requests of the batch"),
    RowFormat("promptfoo results", has_keys("testIdx", "promptIdx", "testCase"), _promptfoo),
    RowFormat("Inspect log", has_keys("id", "epoch", "input", "target", "messages", "output"), _inspect_sample),
    RowFormat("LangSmith runs", matches_langsmith_run, read_langsmith_run),
    RowFormat(
        "LangSmith dataset", has_keys("dataset_id", "inputs", "outputs"),
        unread_rows("a LangSmith dataset", "its `outputs` are references; name an export of the runs"),
    ),
    RowFormat("LangSmith experiment", _is_langsmith_frame, _langsmith_frame),
    RowFormat("ragas results", _is_ragas, _ragas),
    RowFormat("lm-eval samples", _is_lm_eval, _lm_eval, repeats=True),
    RowFormat("MT-bench answers", _is_mt_bench, _mt_bench, "`question.jsonl`"),
    RowFormat("ShareGPT", _is_sharegpt, _sharegpt),
    RowFormat("DSPy evaluation", _is_dspy, _dspy),
)  # fmt: skip
"""The rows that tools write; the first that matches reads a row."""


def _is_ragas_chat(value: object) -> bool:
    return all_objects(value, lambda message: message.get("type") in ("human", "ai", "tool") and "content" in message)


def _repr_list(value: object) -> Any:
    """Return the list that a cell of a CSV file holds as Python or JSON; any other value unchanged."""
    # To parse Python takes several hundred times the memory of the text.
    if isinstance(value, str) and value.startswith("[") and len(value) <= MAX_CHARS:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            parsed = ast.literal_eval(value)
            return cast("list[Any]", parsed) if isinstance(parsed, list) else value
    return value
