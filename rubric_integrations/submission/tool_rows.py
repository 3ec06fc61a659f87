"""The rows that other tools write (`ROW_FORMATS`), and their conversion to the columns of this library."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from rubric_integrations._util.json import JsonObject, read_json_lines
from rubric_integrations.submission.dialects.blocks import first_field
from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.dialects.replies import matches_reply
from rubric_integrations.submission.inputs import holds_messages, row_fields
from rubric_integrations.submission.messages import value_text
from rubric_integrations.submission.request_logs import LOG_FORMATS
from rubric_integrations.submission.session_files import SESSION_FORMATS
from rubric_integrations.submission.text_files import LayoutError
from rubric_integrations.submission.tool_answers import (
    RawRow,
    RowFormat,
    all_objects,
    as_mapping,
    failed_answer,
    has_keys,
    has_no_response,
    has_value,
    list_at,
    object_at,
    parsed_json,
    parsed_python,
    prefixed_values,
    prompt_of,
    query_of,
    response_of,
    short_values,
    text_at,
    unclear_answer,
    unread_rows,
)
from rubric_integrations.submission.traces import TRACE_FORMATS


def find_row_format(row: object) -> RowFormat | None:
    """Return the format of a row that another tool wrote, or None for any other row.

    Example:
        >>> find_row_format({"custom_id": "a", "result": {"type": "expired"}}).name
        'Anthropic batch'
    """
    if not isinstance(row, Mapping):
        return None
    return next((known for known in ROW_FORMATS if known.matches(cast("JsonObject", row))), None)


def _openai_batch(row: JsonObject) -> Iterable[RawRow]:
    row_id, response = str(row["custom_id"]), row.get("response") or {}
    body = response.get("body") or {}
    error = row.get("error") or (body.get("error") if isinstance(body, Mapping) else None)
    status = response.get("status_code")
    if error or not isinstance(body, Mapping) or not body or (isinstance(status, int) and status >= 400):
        return [failed_answer(row_id, error or f"status {status}")]
    if not body.get("choices") and not isinstance(body.get("output"), list):
        return [failed_answer(row_id, f"its body is `{body.get('object')}`, without `choices` or `output`")]
    reply = {"object": "response", **body} if "output" in body else body
    if not matches_reply(reply):
        raise ValueError("its `choices` cannot be read")
    return _reply_answers(row_id, reply)


def _reply_answers(row_id: str | None, reply: JsonObject) -> list[RawRow]:
    """Return the answer of a provider's reply, or one answer for each of its choices."""
    choices = cast("list[JsonObject]", reply.get("choices") or [])
    if len(choices) < 2:
        metadata = short_values(reply, "model") | short_values(choices[0] if choices else {}, "finish_reason")
        own_id = {} if row_id is None else {"id": row_id}
        return [RawRow({**own_id, "response": reply, "metadata": metadata})]
    replies = enumerate(({**reply, "choices": [choice]} for choice in choices), start=1)
    if row_id is None:
        return [answer._replace(sample=n) for n, one in replies for answer in _reply_answers(None, one)]
    return [
        answer._replace(group=row_id) for n, one in replies for answer in _reply_answers(f"{row_id}-choice{n}", one)
    ]


def _reply(row: JsonObject) -> Iterable[RawRow]:
    """Return the answers of a reply in a row, with the task and the other fields that a script wrote next to it."""
    beside = {name: row[name] for name in _BESIDE_REPLIES if "choices" in row and row.get(name) not in (None, "", [])}
    return [
        answer._replace(fields={**beside, **answer.fields}) for answer in _reply_answers(text_at(row, "id"), row)
    ]  # fmt: skip


# A provider may repeat the prompt of a completion, and writes none of the other names.
_BESIDE_REPLIES = ("query", "prompt", "question", "reference", "context", "rubric")


def _anthropic_batch(row: JsonObject) -> Iterable[RawRow]:
    row_id, result = str(row["custom_id"]), row["result"]
    message = result.get("message")
    if result["type"] != "succeeded" or not isinstance(message, Mapping):
        error = result.get("error") or {}
        return [failed_answer(row_id, error.get("error") or error or f"the request is {result['type']}")]
    if not message.get("content"):
        return [failed_answer(row_id, message.get("stop_details") or f"stop_reason {message.get('stop_reason')!r}")]
    metadata = short_values(message, "model", "stop_reason")
    response = [{"role": "assistant", "content": message["content"]}]
    return [RawRow({"id": row_id, "response": response, "metadata": metadata})]


def _promptfoo(row: JsonObject) -> Iterable[RawRow]:
    row_id = f"test{row['testIdx']}-prompt{row['promptIdx']}"
    response = row.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    # 1 means a failed assertion about an answer, and 2 means an error of the provider.
    if row.get("failureReason") == 2 or output is None or output != output:  # noqa: PLR0124
        return [failed_answer(row_id, row.get("error") or (isinstance(response, Mapping) and response.get("error")))]
    prompt, provider = object_at(row, "prompt"), as_mapping(row.get("provider"))
    case = as_mapping(row.get("testCase"))
    metadata = short_values(case, "description") | short_values(as_mapping(row.get("vars")))
    metadata |= {"provider": provider.get("label") or provider.get("id"), "prompt": prompt.get("label")}
    fields = {"id": row_id, "response": response_of(output), "query": prompt_of(prompt.get("raw"))}
    return [RawRow({**fields, "metadata": {name: value for name, value in metadata.items() if value is not None}})]


def _inspect_sample(row: JsonObject) -> Iterable[RawRow]:
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
    fields = {"id": row_id, "response": conversation, "reference": reference if has_value(reference) else None}
    return [RawRow({**fields, "rubric": metadata.pop("rubric", None), "metadata": metadata})]


def _langsmith_frame(row: JsonObject) -> Iterable[RawRow]:
    """Return the answer in a row of LangSmith's experiment results, which were converted to a table."""
    # The columns are those of all rows. A row has only some of them, such as a failed row that has an `outputs.output`.
    filled = {name: value for name, value in row.items() if has_value(value)}
    row_id = str(first_field(filled, "id", "example_id"))
    outputs, references = prefixed_values(filled, "outputs."), prefixed_values(filled, "reference.")
    if has_value(row.get("error")):
        return [failed_answer(row_id, row["error"])]
    outputs = {name: parsed_json(value) if holds_messages(name) else value for name, value in outputs.items()}
    usual = row_fields(outputs, warns=False).get("response") if len(outputs) > 1 else next(iter(outputs.values()), None)
    if usual is None and len(outputs) > 1:
        return [unclear_answer(row_id, [f"outputs.{name}" for name in outputs])]
    reference = next(iter(references.values())) if len(references) == 1 else references or None
    reference = value_text(reference) if isinstance(reference, Mapping | list) else reference
    fields = {
        "id": row_id,
        "query": query_of(prefixed_values(filled, "inputs.")),
        "response": usual,
        "reference": reference,
    }
    return [RawRow(fields)]


def _ragas(row: JsonObject) -> Iterable[RawRow]:
    """Return the answer in a row of ragas, which may be a conversation."""
    task, response = row["user_input"], row.get("response")
    fields = {
        name: value for name, value in row.items() if name not in ("user_input", "retrieved_contexts", "response")
    }
    if any(str(name).startswith("score") for name in as_mapping(row.get("rubrics"))):
        del fields["rubrics"]  # The descriptions of ragas' own scores.
    if has_value(row.get("retrieved_contexts")):
        fields["context"] = _repr_list(row["retrieved_contexts"])
    # Next to a response, a text is the task of one turn, and not the list of several turns in a cell.
    messages = task if "response" in row else _repr_list(task)
    if not _is_ragas_chat(messages):
        return [RawRow({**fields, "query": task, "response": response})]
    conversation = _ragas_messages(messages)
    if has_value(response):
        return [RawRow({**fields, "query": conversation, "response": response})]
    return [RawRow({**fields, "response": conversation})]


def _ragas_messages(messages: Sequence[JsonObject]) -> list[dict[str, Any]]:
    """Return the messages in OpenAI's form.

    ragas writes no ids of calls. Therefore each result gets the id of the next call in order.
    """
    roles, made, waiting = {"human": "user", "ai": "assistant"}, 0, deque[str]()
    converted = list[dict[str, Any]]()
    for message in messages:
        kind = str(message.get("type"))
        item: dict[str, Any] = {"role": roles.get(kind, kind), "content": message.get("content")}
        calls = list_at(message, "tool_calls")
        if calls:
            waiting = deque(f"call{made + index}" for index in range(len(calls)))
            made += len(calls)
            item["tool_calls"] = [
                {"id": call_id, "function": {"name": call.get("name"), "arguments": call.get("args")}}
                for call_id, call in zip(waiting, calls, strict=True)
            ]
        elif kind == "tool" and waiting:
            item["tool_call_id"] = waiting.popleft()
        converted.append(item)
    return converted


def _lm_eval(row: JsonObject) -> Iterable[RawRow]:
    """Return one answer for each repeat of a sample of lm-eval."""
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
    rows = [RawRow({"id": own, "response": answer, **shared}) for own, answer in zip(ids, answers, strict=True)]
    return [row._replace(group=row_id) for row in rows]


def _is_lm_eval(row: JsonObject) -> bool:
    answers, arguments = row.get("resps"), row.get("arguments")
    is_sample = (
        has_keys("doc_id", "doc")(row)
        and has_no_response(row)
        and isinstance(arguments, Mapping | list)
        and bool(arguments)
    )
    return is_sample and isinstance(answers, list) and bool(answers) and all(isinstance(a, list) and a for a in answers)


def _mt_bench(row: JsonObject, questions: Mapping[str, JsonObject] | None = None) -> Iterable[RawRow]:
    """Return one answer for each turn of each choice in a row of MT-Bench."""
    answers, choices = list[RawRow](), cast("list[JsonObject]", row["choices"])
    question = None if questions is None else _question_of(str(row["question_id"]), questions)
    for number, choice in enumerate(choices, start=1):
        choice_id = str(row["question_id"]) if len(choices) == 1 else f"{row['question_id']}-choice{number}"
        messages = list[dict[str, Any]]()
        # Each turn repeats the turns before it, whose size would grow with the square of their number.
        if question is not None and len(choice["turns"]) > _MAX_TURNS:
            answers.append(failed_answer(choice_id, f"it has more than {_MAX_TURNS} turns: write one row for each"))
            continue
        for index, text in enumerate(choice["turns"]):
            row_id, fields = f"{choice_id}-turn{index + 1}", dict[str, Any]()
            if question is not None:
                messages.append({"role": "user", "content": question["turns"][index]})
                fields["query"] = list(messages) if index else messages[0]["content"]
                references = question.get("reference")
                fields["reference"] = dict(enumerate(references)).get(index) if isinstance(references, list) else None
                messages.append({"role": "assistant", "content": text})
            # FastChat writes one of these texts instead of an answer that failed.
            if text in ("$ERROR$", "ERROR"):
                answers.append(failed_answer(row_id, "FastChat wrote an error"))
            else:
                metadata = short_values(row, "model_id")
                answers.append(RawRow({"id": row_id, "response": text, **fields, "metadata": metadata}))
    # The second turn depends on the first one, too.
    return [answer._replace(group=str(row["question_id"])) for answer in answers]


def _with_questions(known: RowFormat, path: Path) -> RowFormat:
    """Join the answers of MT-bench with their tasks. FastChat writes the tasks into the folder above the answers."""
    folder = path.absolute().parent
    file = next((file for file in (folder / _QUESTIONS, folder.parent / _QUESTIONS) if file.is_file()), None)
    if file is None:
        return known
    try:
        rows = [row for _, row in read_json_lines(file) if isinstance(row, Mapping)]
    except ValueError as error:
        raise LayoutError(f"has its tasks in a file that cannot be read: {error}") from None
    questions = {str(row["question_id"]): row for row in cast("list[JsonObject]", rows) if _has_turns(row)}
    return known._replace(read=partial(_mt_bench, questions=questions), tasks_are_in=None)


_QUESTIONS = "question.jsonl"
# MT-bench has two turns.
_MAX_TURNS = 100


def _question_of(question_id: str, questions: Mapping[str, JsonObject]) -> JsonObject | None:
    question = questions.get(question_id)
    if question is None:
        warnings.warn(
            f"`{_QUESTIONS}` has not all questions, such as {question_id!r}: the judge sees its answers without them",
            stacklevel=2,
        )
    return question


def _has_turns(row: JsonObject) -> bool:
    return "question_id" in row and isinstance(row.get("turns"), list)


def _is_mt_bench(row: JsonObject) -> bool:
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


def _sharegpt(row: JsonObject) -> Iterable[RawRow]:
    turns = cast("list[JsonObject]", row["conversations"])
    unknown = next((turn["from"] for turn in turns if turn["from"] not in _SHAREGPT_ROLES), None)
    row_id = row.get("id")
    if unknown is not None:
        return [failed_answer(str(row_id), f"the sender {unknown!r} is not known: use {', '.join(_SHAREGPT_ROLES)}")]
    messages = [{"role": _SHAREGPT_ROLES[turn["from"]], "content": turn["value"]} for turn in turns]
    if isinstance(system := row.get("system"), str) and system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return [RawRow({"id": row_id, "response": messages})]


def _tau_bench(row: JsonObject) -> Iterable[RawRow]:
    row_id, info = f"{row['task_id']}-trial{row['trial']}", as_mapping(row.get("info"))
    if not row["traj"]:
        return [failed_answer(row_id, info.get("error") or "its `traj` is empty")]
    metadata = short_values(row, "task_id", "trial", "reward")
    return [RawRow({"id": row_id, "response": [_tau_message(m) for m in row["traj"]], "metadata": metadata})]


def _tau_message(message: Any) -> Any:
    """Return a message with the status of its tool result, which tau-bench shows only at the beginning of the text."""
    if not isinstance(message, Mapping) or message.get("role") != "tool":
        return message
    has_failed = str(message.get("content")).startswith("Error")
    return {**message, "status": "error" if has_failed else "success"}


def _tau2(row: JsonObject) -> Iterable[RawRow]:
    row_id = str(row["task_id"]) if row.get("trial") is None else f"{row['task_id']}-trial{row['trial']}"
    if not row.get("messages"):
        voice = "it is a voice simulation (`ticks`), which no reader reads"
        return [failed_answer(row_id, voice if row.get("ticks") else f"it ended by {row['termination_reason']!r}")]
    messages = list_at(row, "messages")
    metadata = short_values(row, "task_id", "trial", "termination_reason")
    metadata |= short_values(as_mapping(row.get("reward_info")), "reward")
    return [RawRow({"id": row_id, "response": messages, "metadata": metadata})]


def _openhands(row: JsonObject) -> Iterable[RawRow]:
    if not row["history"]:
        return [failed_answer(row["instance_id"], row.get("error") or "its `history` is empty")]
    metadata = short_values(as_mapping(row.get("metadata")), "agent_class") | short_values(row, "error")
    return [RawRow({"id": row["instance_id"], "response": row["history"], "metadata": metadata})]


def _is_openhands(row: JsonObject) -> bool:
    names = ("instance_id", "instruction", "history", "test_result")
    return has_keys(*names)(row) and isinstance(row["history"], list) and has_no_response(row)


def _dspy(row: JsonObject) -> Iterable[RawRow]:
    name, *others = prefixed_values(row, "pred_")
    if others:
        raise LayoutError(
            f"has several outputs (pred_{', pred_'.join((name, *others))}): name the one to grade by `response_column` "
            f"(`--response-column pred_{name} --reference-column example_{name}`)"
        )
    fields = {key: value for key, value in row.items() if key not in (f"pred_{name}", f"example_{name}")}
    return [RawRow({**fields, "response": row[f"pred_{name}"], "reference": row[f"example_{name}"]})]


def _is_dspy(row: JsonObject) -> bool:
    """Return whether a row has fields with DSPy's prefix of predictions, and equal ones with its prefix of examples."""
    fields = prefixed_values(row, "pred_")
    return bool(fields) and list(fields) == list(prefixed_values(row, "example_")) and has_no_response(row)


def _alpaca_eval(row: JsonObject) -> Iterable[RawRow]:
    # The first output is the output of the baseline, to which the output of the model was compared.
    metadata = {"generator": row["generator_2"], "baseline": row["generator_1"]}
    metadata |= short_values(row, "preference", "annotator", "dataset")
    task = {name: row[name] for name in ("instruction", "input") if name in row}
    return [RawRow({**task, "response": row["output_2"], "metadata": metadata})]


_ALPACA_EVAL = ("instruction", "output_1", "generator_1", "output_2", "generator_2", "preference")


def _is_alpaca_eval(row: JsonObject) -> bool:
    return has_keys(*_ALPACA_EVAL)(row) and has_no_response(row)


def _deepeval(row: JsonObject) -> Iterable[RawRow]:
    """Return the answer in a test case of DeepEval, which may be a conversation."""
    camel_case = "metricsData" in row

    def key(name: str) -> str:
        first, *others = name.split("_")
        return first + "".join(map(str.capitalize, others)) if camel_case else name

    metadata = {**short_values(row, "success", "scenario", "expectedOutcome"), **as_mapping(row.get("metadata"))}
    context = [*list_at(row, key("retrieval_context")), *list_at(row, "context")]
    fields = {
        "id": row["name"], "reference": row.get(key("expected_output")), "context": context, "metadata": metadata,
    }  # fmt: skip
    is_conversation = bool(row.get("turns"))
    answer = row.get(key("actual_output"))
    if not is_conversation and answer is None:
        return [failed_answer(row["name"], "it has no actual output")]
    turns = row["turns"] if is_conversation else [{"role": "user", "content": row["input"]}, {**row, "content": answer}]
    messages = list[dict[str, Any]]()
    for turn in turns:
        calls = list_at(turn, key("tools_called"))
        ids = [f"call{len(messages)}-{number}" for number in range(len(calls))]
        if calls:
            tool_calls = [
                {"id": own, "function": {"name": call["name"], "arguments": object_at(call, key("input_parameters"))}}
                for own, call in zip(ids, calls, strict=True)
            ]
            messages.append({"role": "assistant", "content": None, "tool_calls": tool_calls})
        for own, call in zip(ids, calls, strict=True):
            if call.get("output") is not None:
                messages.append({"role": "tool", "tool_call_id": own, "content": value_text(call["output"])})
        messages.append({"role": turn.get("role", "assistant"), "content": turn["content"]})
    if is_conversation:
        return [RawRow({**fields, "response": messages})]
    steps = {"trajectory": messages} if len(messages) > 2 else {}
    return [RawRow({**fields, **steps, "query": row["input"], "response": answer})]


def _is_deepeval(row: JsonObject) -> bool:
    metrics = row.get("metricsData", row.get("metrics_data"))
    has_task = isinstance(row.get("input"), str) or isinstance(row.get("turns"), list)
    is_case = isinstance(row.get("name"), str) and isinstance(metrics, list) and has_task
    return is_case and has_no_response({name: value for name, value in row.items() if name != "actual_output"})


class _EvalsLog:
    """The answers in a log of openai/evals, which contains the events of all samples.

    If a model graded the samples, a sample has two samplings: its answer, and the reply of the judge, whose prompt
    contains the answer. Otherwise a sample has one sampling. Logs with other samplings are refused: the data may have
    contained the answers, or a program may have called its model twice.
    """

    def __init__(self) -> None:
        self._is_graded = False
        self._samplings: dict[str, list[JsonObject]] = {}

    def read(self, row: JsonObject) -> list[RawRow]:
        if "spec" in row:
            evaluation = as_mapping(as_mapping(row["spec"].get("run_config")).get("eval_spec"))
            self._is_graded = "modelgraded" in str(evaluation.get("cls"))
        kind, sample = row.get("type"), str(row.get("sample_id"))
        samplings = self._samplings.setdefault(sample, [])
        if kind == "error" and not samplings:
            return [failed_answer(sample, row["data"])]
        if kind == "sampling":
            samplings.append(row["data"])
        if kind != ("metrics" if self._is_graded else "sampling"):
            return []
        is_known = len(samplings) == 1
        if self._is_graded:
            is_known = len(samplings) == 2 and _is_shown(samplings[0]["sampled"], samplings[1]["prompt"])
        if not is_known:
            raise LayoutError(
                f"has {len(samplings)} samplings of {sample!r}, and which of them is the answer is not certain: write "
                "a line with an `id`, a `query` and a `response` for each sample"
            )
        return list(_sampled_answers(sample, samplings[0]))


def _is_shown(sampled: Any, prompt: Any) -> bool:
    messages = prompt if isinstance(prompt, list) else [{"content": prompt}]
    shown = "\n".join(str(message["content"]) for message in messages)
    return all(text in shown for text in (sampled if isinstance(sampled, list) else [sampled]))


def _sampled_answers(sample: str, data: JsonObject) -> Iterator[RawRow]:
    sampled, metadata = data["sampled"], short_values(data, "model")
    texts = cast("list[Any]", sampled) if isinstance(sampled, list) else [sampled]
    for number, text in enumerate(texts, start=1):
        row_id = sample if len(texts) == 1 else f"{sample}-choice{number}"
        fields = {"id": row_id, "query": prompt_of(data["prompt"]), "response": text, "metadata": metadata}
        yield RawRow(fields, group=sample)


def _with_events(known: RowFormat, _: Path) -> RowFormat:
    return known._replace(read=_EvalsLog().read)


def _is_evals_log(row: JsonObject) -> bool:
    is_header = set(row) == {"spec"} and has_keys("run_id", "eval_name")(as_mapping(row["spec"]))
    is_end = "final_report" in row and row.keys() <= {"final_report", "run_id"}
    return is_header or is_end or has_keys("run_id", "event_id", "sample_id", "type", "data", "created_at")(row)


def is_promptfoo_table(names: Iterable[str]) -> bool:
    """Return whether names are the columns of a CSV file of promptfoo, which repeats some columns for each prompt."""
    columns = set(names)
    is_table = columns >= {"Status", "Score", "Named Scores", "Grader Reason", "Comment"}
    return is_table and any(name.startswith("[") and "] " in name for name in columns)


PROMPTFOO_TABLE = (
    "is a table of promptfoo, with a column of answers for each prompt: write the results as JSON (`-o results.json`)"
)


def _promptfoo_table(_: JsonObject) -> Iterable[RawRow]:
    raise LayoutError(f"{PROMPTFOO_TABLE}, or name that column by `response_column` (`--response-column`)")


def _is_inspect_sample(row: JsonObject) -> bool:
    # A failed sample may have no output.
    return has_keys("id", "epoch", "input", "target", "messages")(row) and not _INSPECT_KEYS.isdisjoint(row)


_INSPECT_KEYS = frozenset({"output", "scores", "store", "events", "attachments", "setup", "model_usage"})


def _is_openai_batch(row: JsonObject) -> bool:
    response = row.get("response")
    if "custom_id" not in row or "response" not in row or "result" in row:
        return False
    return ("body" in response or "status_code" in response) if isinstance(response, Mapping) else (
        response is None and bool(row.get("error"))
    )  # fmt: skip


def _is_anthropic_batch(row: JsonObject) -> bool:
    return "custom_id" in row and isinstance(as_mapping(row.get("result")).get("type"), str)


def _is_langsmith_frame(row: JsonObject) -> bool:
    return bool(prefixed_values(row, "outputs.")) and bool(prefixed_values(row, "inputs.")) and has_no_response(row)


def _is_ragas(row: JsonObject) -> bool:
    if "user_input" not in row or "response" in row:
        return "user_input" in row
    # The header of a table has no values.
    is_header = row["user_input"] is None and has_no_response(row)
    return is_header or _is_ragas_chat(_repr_list(row["user_input"]))


def _is_tau_bench(row: JsonObject) -> bool:
    is_run = row.keys() >= {"task_id", "traj", "reward", "trial"} and isinstance(row["traj"], list)
    return is_run and has_no_response(row)


def _is_tau2(row: JsonObject) -> bool:
    is_simulation = row.keys() >= {"task_id", "start_time", "termination_reason"}
    return is_simulation and ("messages" in row or "ticks" in row) and "response" not in row


def _is_sharegpt(row: JsonObject) -> bool:
    return all_objects(row.get("conversations"), has_keys("from", "value")) and has_no_response(row)


def _is_reply(row: JsonObject) -> bool:
    """Return whether a row is a provider's reply, and not a script's row with a task next to the reply's choices."""
    is_of_script = "object" not in row and any(has_value(row.get(name)) for name in ("query", "prompt", "question"))
    return matches_reply(row) and not (is_of_script and "choices" in row)


def _repeats(read: Callable[[JsonObject], Iterable[RawRow]], name: str, row: JsonObject) -> Iterable[RawRow]:
    """Return the answers of a row with the value of `name` as their group: epochs or trials repeat its task."""
    return [answer._replace(group=str(row[name])) for answer in read(row)]


ROW_FORMATS = (
    RowFormat(
        "OpenAI batch input", has_keys("custom_id", "method", "url", "body"),
        unread_rows("the input of an OpenAI batch", "name its output file"),
    ),
    RowFormat("OpenAI batch", _is_openai_batch, _openai_batch, "the input file of the batch", has_all_calls=True),
    RowFormat(
        "Anthropic batch", _is_anthropic_batch, _anthropic_batch, "the requests of the batch", has_all_calls=True,
    ),
    *LOG_FORMATS,
    RowFormat("replies of a provider", _is_reply, _reply, has_all_calls=True),
    RowFormat("promptfoo results", has_keys("testIdx", "promptIdx", "testCase"), _promptfoo),
    RowFormat("promptfoo table", is_promptfoo_table, _promptfoo_table),
    RowFormat(
        "Inspect log", _is_inspect_sample, partial(_repeats, _inspect_sample, "id"), has_all_calls=True,
    ),
    RowFormat(
        "LangSmith dataset", has_keys("dataset_id", "inputs", "outputs"),
        unread_rows("a LangSmith dataset", "its `outputs` are references; name an export of the runs"),
    ),
    *TRACE_FORMATS,
    *SESSION_FORMATS,
    RowFormat("LangSmith experiment", _is_langsmith_frame, _langsmith_frame),
    RowFormat("ragas results", _is_ragas, _ragas),
    RowFormat("lm-eval samples", _is_lm_eval, _lm_eval, repeats=True),
    RowFormat(
        "MT-bench answers", _is_mt_bench, _mt_bench, "`question.jsonl`, which is neither in its folder nor above",
        prepare=_with_questions,
    ),
    RowFormat("ShareGPT", _is_sharegpt, _sharegpt),
    RowFormat("DSPy evaluation", _is_dspy, _dspy),
    RowFormat("AlpacaEval annotations", _is_alpaca_eval, _alpaca_eval),
    RowFormat("deepeval test run", _is_deepeval, _deepeval),
    RowFormat(
        "openai/evals log", _is_evals_log, unread_rows("an event of a log", "name the log"), prepare=_with_events,
    ),
    RowFormat(
        "tau-bench results", _is_tau_bench, partial(_repeats, _tau_bench, "task_id"), respond="trajectory",
        has_all_calls=True,
    ),
    RowFormat(
        "tau2 results", _is_tau2, partial(_repeats, _tau2, "task_id"), respond="trajectory", has_all_calls=True,
    ),
    RowFormat("OpenHands output", _is_openhands, _openhands, has_all_calls=True),
)  # fmt: skip
"""The formats of rows that tools write. The first format that matches reads a row."""


def _is_ragas_chat(value: object) -> bool:
    return all_objects(value, lambda message: message.get("type") in ("human", "ai", "tool") and "content" in message)


def _repr_list(value: object) -> Any:
    """Return the list in a cell of a CSV file, written as Python or JSON. Any other value is returned unchanged."""
    parsed = parsed_python(value) if isinstance(value, str) else value
    return cast("list[Any]", parsed) if isinstance(parsed, list) else value
