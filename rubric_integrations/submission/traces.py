"""Reads traces that other tools export: LangSmith, Langfuse, Phoenix, MLflow, OpenTelemetry's GenAI and OpenInference.

A trace has one answer: the output of its root span. The output of a step is never an answer. If a tool writes one row
for each span, the spans of a trace are joined by the id of the trace (`join_traces`).

A value is parsed once, where its writer encodes it. A text within it is never read as messages, because a model could
have written it. If an export does not tell a text from the JSON of a value, the value is `MaybeJson`.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, cast

from rubric_integrations._util.json import JsonObject, parse_json
from rubric_integrations.submission.dialects.blocks import (
    FilesAsPlaceholders,
    Message,
    Result,
    Text,
    first_field,
    read_arguments,
)
from rubric_integrations.submission.dialects.detect import read_conversation
from rubric_integrations.submission.inputs import is_row, is_state, row_fields
from rubric_integrations.submission.messages import is_conversation, is_message, value_text
from rubric_integrations.submission.span_events import EventContent, SpanEvent, event_content, is_of_strands
from rubric_integrations.submission.steps import Step, ToolCall, join_calls
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
    is_short_python,
    list_at,
    object_at,
    parsed_json,
    parsed_python,
    prefixed_values,
    query_of,
    response_of,
    text_at,
    unknown_form,
    unread_rows,
)


@dataclass(frozen=True)
class MaybeJson:
    """A text that may be the JSON of a value, or a text that a model wrote. The export does not tell which.

    Attributes:
        text: The text.
        value: The parsed value, an object or a list.
    """

    text: str
    value: Any


class Span(NamedTuple):
    """One step of a trace, in a common form for all tracing platforms.

    Attributes:
        trace: The id of the trace.
        id: The id of the span.
        parent: The id of the span that contains this span. None for a root span.
        kind: `chat` for a call of a model, `tool` for a call of a tool, or `step`. Spans of OpenTelemetry's GenAI can
            also be an `agent` or a `request`. None if the span is not a step of a language model.
        name: The name of the step, or of the called tool.
        start: The start time, as the platform wrote it. It gives the order of the spans of a trace.
        input: The task, the messages or the arguments, perhaps `MaybeJson`. None if the trace does not contain it.
        output: The answer, the messages or the result, perhaps `MaybeJson`. None if the trace does not contain the
            output.
        error: The reason of a failure. None if the step did not fail.
    """

    trace: str
    id: str
    parent: str | None
    kind: str | None
    name: str
    start: str
    input: Any = None
    output: Any = None
    error: str | None = None


MAX_OPEN_SPANS = 100_000
"""The largest number of spans in memory that belong to incomplete traces."""


# From the spans of a trace to its answer.


class TraceEnds(NamedTuple):
    """The ends of the traces in a file of spans.

    Attributes:
        last: The number of the last row of each trace, by the id of the trace.
        damaged: The ids of the traces with a row that cannot be read. None is the id of a row of an unknown trace.
    """

    last: dict[str, int]
    damaged: set[str | None]


def find_ends(known: RowFormat, rows: Iterable[RawRow]) -> TraceEnds:
    """Find the last row of each trace. Then `join_traces` keeps only the traces in memory that are not complete yet."""
    ends = TraceEnds({}, set())
    for row in rows:
        spans = _spans_of(known, row)
        if spans is None:
            ends.damaged.add(_trace_of(row.fields))
        ends.last.update(dict.fromkeys((span.trace for span in spans or ()), row.number))
    return ends


def join_traces(known: RowFormat, rows: Iterable[RawRow], ends: TraceEnds) -> Iterator[RawRow]:
    """Yield the answers of the traces in a file of spans, each at the place of the last row of the trace.

    A row that is not a span is yielded with an error.

    Args:
        known: The format of the rows, with `spans`.
        rows: The rows of the file.
        ends: The ends of the traces in the same rows.

    Raises:
        LayoutError: No span belongs to a language model, no trace has content, LangSmith's file contains only parts of
            runs, or the spans of too many traces are mixed.
    """
    waiting, count, has_content, has_model, has_answers = dict[str, dict[str, Span]](), 0, False, False, False
    for row in rows:
        spans = _spans_of(known, row) or []
        if not spans:
            yield row._replace(fields={}, error=row.error or unknown_form(row, known), tool=known, source=row.fields)
        for span in spans:
            waiting.setdefault(span.trace, {})[span.id] = span
            has_model = has_model or span.kind is not None
            has_content = has_content or (span.kind is not None and (span.input, span.output) != (None, None))
        count += len(spans)
        for trace in dict.fromkeys(span.trace for span in spans if ends.last[span.trace] == row.number):
            complete = list(waiting.pop(trace).values())
            count -= len(complete)
            # An export may contain only a part of a program's runs, and none of these is the answer of the program.
            if known.name == _LANGSMITH and all(span.parent is not None for span in complete):
                continue
            has_answers = True
            is_whole = ends.damaged.isdisjoint({trace, None})
            for answer in trace_answers(complete):
                fields, error, *_ = answer if is_whole else failed_answer(trace, _LOST)
                yield row._replace(fields=fields, error=error, tool=known, source=row.fields)
        if count > MAX_OPEN_SPANS:
            raise LayoutError(
                f"has more than {MAX_OPEN_SPANS:,} spans of traces that are mixed with each other: sort its rows by "
                "their trace, or memory would not hold them"
            )
    if not has_model:
        raise LayoutError(
            "has no span of a language model: its spans need the attributes of OpenTelemetry's GenAI (`gen_ai.*`) or "
            "of OpenInference (`openinference.span.kind`)"
        )
    if known.name == _LANGSMITH and not has_answers:
        raise LayoutError(f"has {known.name}, but only parts of runs and no whole run")
    if not has_content:
        raise LayoutError(
            f"has {known.name} without content, so that there is nothing to grade: turn the recording of inputs and "
            "outputs on, which many tools leave off "
            "(`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY`), and export again"
        )


def _spans_of(known: RowFormat, row: RawRow) -> list[Span] | None:
    """Return the spans of a row, or None if the row cannot be read."""
    with suppress(*_MALFORMED):
        if known.spans and row.error is None and known.matches(row.fields):
            return list(known.spans(row.fields))
    return None


def _trace_of(row: JsonObject) -> str | None:
    """Return the id of the trace of a row that cannot be read as spans, or None if the row may be of any trace."""
    context = as_mapping(row.get("context"))
    trace = first_field(row, "trace_id", "traceId", "context.trace_id") or context.get("trace_id")
    return trace if isinstance(trace, str) else None


_LOST = "another row of the file cannot be read, which may be a call of this trace: correct that row or remove it"


# The errors that the readers raise for malformed rows.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


def trace_answers(spans: Iterable[Span], trace: Span | None = None) -> list[RawRow]:
    """Return the answer of one trace in a list.

    The list is empty if `trace` is None and no span is a step of a language model.

    Args:
        spans: The spans, in any order.
        trace: The trace as one span, if the tool records an input and an output of the complete trace. If this span has
            an output, its input and output are used instead of the root span's.
    """
    # A number of nanoseconds with fewer digits is earlier.
    ordered = sorted(spans, key=lambda span: (len(span.start) if span.start.isdecimal() else 0, span.start))
    if trace is None and not any(span.kind for span in ordered):
        return []
    answering = [trace] if trace and trace.output is not None else _answering(ordered)
    answering = answering or [(trace or ordered[-1])._replace(output=None)]
    own = answering[-1]
    if own.error or own.output is None:
        return [failed_answer(own.trace, own.error or "its root span has no output")]
    try:
        tasks = _tasks(own) if len(answering) > 1 else set[str]()
        if not all(set() < _tasks(earlier) <= tasks for earlier in answering[:-1]):
            names = ", ".join(repr(span.name) for span in answering[:5])
            return [failed_answer(own.trace, f"none of its {len(answering)} outermost spans ({names}) contains the "
                                             "others: trace them within one span that has the answer")]  # fmt: skip
        return [_answer(own, ordered)]
    except _MALFORMED as error:
        return [failed_answer(own.trace, f"its output cannot be read: {error}")]


def _tasks(span: Span) -> set[str]:
    """Return the texts of the user's messages in the input of a span."""
    return {message.answer() for message in _read(_messages(span.input)) if _is_task(message)}


def _answering(spans: Sequence[Span]) -> list[Span]:
    """Return the spans that may contain the answer, in order. The last one has the answer if it repeats all others.

    They are the roots with an output or an error. Without such roots, they are the outermost agents or requests of
    OpenTelemetry's GenAI, because only these are known to contain all messages.
    """
    ids = {span.id for span in spans}
    roots = [span for span in spans if span.parent is None] or [span for span in spans if span.parent not in ids]
    ended = [
        span
        for span in roots
        if span.kind != _REQUEST and (span.error or (span.output is not None and span.kind != "tool"))
    ]
    if ended:
        return ended
    levels = dict[int, list[Span]]()
    above = _spans_above(spans)
    for span in spans:
        depth = above[span.id].agents
        if above[span.id].has_tool:
            continue
        if span.kind == "agent" and span.output is not None:
            levels.setdefault(2 * depth, []).append(span)
        elif span.kind == _REQUEST:
            # A request outside of all agents may have only written a title.
            levels.setdefault(2 * depth - 1 if depth else len(spans) * 2, []).append(span)
    requests = levels[min(levels)] if levels else []
    # The output of a tool is not an answer, even if the tool is the root.
    return requests or [root._replace(output=None) for root in roots[-1:]]


# A request of OpenTelemetry's GenAI to a model, which contains all messages of the conversation.
_REQUEST = "request"


class _Above(NamedTuple):
    """The spans around a span: the number of agents, whether one is a tool, and whether one has the same name."""

    agents: int = 0
    has_tool: bool = False
    is_repeated: bool = False


def _spans_above(spans: Sequence[Span]) -> defaultdict[str, _Above]:
    """Return what is around each span, by its id. Nothing is around spans that contain each other."""
    ids = {span.id for span in spans}
    within = defaultdict[str | None, list[Span]](list)
    for span in spans:
        within[span.parent if span.parent in ids else None].append(span)
    above, names = defaultdict[str, _Above](_Above), Counter[str]()
    agents = tools = 0
    waiting = [(span, 1) for span in within[None]]
    while waiting:
        span, change = waiting.pop()
        if change > 0:
            above[span.id] = _Above(agents, tools > 0, names[span.name] > 0)
            # Removed, because several spans may have one id.
            waiting += [(span, -1), *((child, 1) for child in within.pop(span.id, []))]
        if span.kind == "tool":
            tools += change
            names[span.name] += change
        agents += change * (span.kind == "agent")
    return above


def _answer(own: Span, spans: Sequence[Span]) -> RawRow:
    """Return the answer of a trace. The calls in its messages and its spans become the trajectory.

    Without calls there is no trajectory. A trace may lack some calls, and a check must not conclude from an empty
    trajectory that there were none.
    """
    is_certain = not any(isinstance(value, MaybeJson) for value in (own.input, own.output))
    recorded = _recorded_calls(spans, own.output)
    own = own._replace(input=_settled(own.input, recorded), output=_settled(own.output, recorded))
    output = own.output
    if isinstance(output, Mapping) and not _messages(cast("JsonObject", output)):
        values = cast("JsonObject", output)
        output = next(iter(values.values())) if len(values) == 1 else row_fields(values, warns=False).get("response")
        if output in (None, [], {}, ""):
            names = ", ".join(repr(name) for name in values)
            return failed_answer(own.trace, f"its output has no answer, or none that is known by its name: {names}")
        if not {"choices", "candidates"}.isdisjoint(values):
            return failed_answer(own.trace, "its output is the reply of a provider that cannot be read")
    history, replied = _messages(own.input), _messages(output)
    sent = replied if any(_is_task(message) for message in _read(replied)) else history + replied
    messages = _read(sent)
    response = messages[-1].answer() if replied else response_of(output)
    if replied and (structured := as_mapping(output).get("structured_response")) is not None:
        response = value_text(structured)
    elif replied and (messages[-1].role != "assistant" or not response):
        return failed_answer(own.trace, f"its last message, of the role {messages[-1].role!r}, has no answer")
    if not replied and all_objects(output, has_keys("role")):
        return failed_answer(own.trace, "the messages of its output are empty")
    last = max((index for index, message in enumerate(messages) if _is_task(message)), default=None)
    groups = join_calls(messages)
    # Only a request to a model is known to contain the earlier calls of its trace. In any other span, calls before the
    # task belong to earlier turns, not to this one.
    start = 0 if last is None or own.kind in ("chat", _REQUEST) else last
    turn, others = _with_recorded([step for group in groups[start:] for step in group], recorded, keeps=is_certain)
    steps = [step for group in groups[:start] for step in group] + turn
    steps += [] if replied else [Step(role="assistant", text=value_text(response))]
    steps[-1:-1] = others
    calls = any(step.calls for step in (*turn, *others))
    trajectory = {"steps": [step.model_dump() for step in steps]} if calls else None
    if last is None or len(messages) != len(sent):
        query: Any = history or query_of(own.input)
    else:
        is_text = last == 0 and all(isinstance(part, Text) and part.kind == "text" for part in messages[0].parts)
        query = messages[0].answer() if is_text else sent[: last + 1]
    fields = {"id": own.trace, "query": query, "response": response, "metadata": {"name": own.name}}
    return RawRow({**fields, **({"trajectory": trajectory} if trajectory else {})})


def _recorded_calls(spans: Sequence[Span], answer: object) -> list[ToolCall]:
    """Return the calls of a trace's spans, in order. Replies of models also have calls without a span of a tool.

    Args:
        spans: The spans of the trace.
        answer: The output that has the answer. A reply that may be the text of the answer has no calls.
    """
    above = _spans_above(spans)
    calls = [
        ToolCall(
            name=span.name,
            arguments=_call_arguments(span.input),
            result=span.error if span.output is None else _result_text(span.output),
            is_error=bool(span.error),
        )
        for span in spans
        # A tool's span inside a span with the same name is the same call, for example recorded by the tool's server.
        if span.kind == "tool" and not above[span.id].is_repeated
    ]  # fmt: skip
    outputs = [span.output for span in spans if span.kind in ("chat", _REQUEST) and span.output is not None]
    # A program records all replies of its models as texts, or all as messages.
    are_texts, texts = any(isinstance(output, str) for output in outputs), _texts(answer)
    requested = list[Step]()
    for output in outputs:
        if not isinstance(output, MaybeJson) or not (are_texts or output.text in texts):
            with suppress(*_MALFORMED):
                requested += [step for group in join_calls(_read(_messages(output))) for step in group]
    unmatched = _Unmatched(calls)
    return calls + [call for step in requested for call in step.calls if unmatched.take(call) is None]


def _texts(value: object) -> set[str]:
    """Return all texts in a value, at every depth."""
    values = [value]
    for item in values:  # which grows
        if isinstance(item, MaybeJson):
            values += [item.text, item.value]
        elif isinstance(item, Mapping | list):
            values += item.values() if isinstance(item, Mapping) else cast("list[object]", item)
    return {item for item in values if isinstance(item, str)}


class _Unmatched:
    """The calls of a trace's spans to which no call in a message was matched yet.

    Args:
        calls: The calls of the spans.
        is_strict: Whether arguments that were recorded as one text must be the only argument of a call in a message.
    """

    def __init__(self, calls: Iterable[ToolCall], *, is_strict: bool = False) -> None:
        self._is_strict = is_strict
        self._by_name = defaultdict[str, deque[ToolCall]](deque)
        for call in calls:
            self._by_name[call.name].append(call)

    def take(self, call: ToolCall) -> ToolCall | None:
        """Remove and return the recorded call that a call in a message is, or None if there is none.

        The search ends after some calls with the same name. Otherwise, its time would grow with the square of their
        number.
        """
        waiting = self._by_name[call.name]
        for index, recorded in enumerate(islice(waiting, _MAX_COMPARED)):
            if _is_same(call, recorded, is_strict=self._is_strict):
                del waiting[index]
                return recorded
        return None

    def ids(self) -> set[int]:
        """Return the identities of these calls."""
        return {id(call) for waiting in self._by_name.values() for call in waiting}


_MAX_COMPARED = 32


def _is_same(call: ToolCall, recorded: ToolCall, *, is_strict: bool) -> bool:
    """Return whether a call in a message can be a call of a span with the same name, by its arguments.

    A span also records the values of defaults. Some tools record the arguments in an object, or as a list or one text.
    """
    own, other = call.arguments, recorded.arguments
    if isinstance(own, dict) and isinstance(other, dict):
        return any(_contains(holder, own) for holder in islice((other, *other.values()), _MAX_COMPARED))
    if is_strict and isinstance(own, dict) and isinstance(other, str):
        return [other] == [value_text(value) for value in own.values()]
    return own == other or type(own) is not type(other)


def _contains(holder: object, arguments: Mapping[str, Any]) -> bool:
    if isinstance(holder, Mapping):
        fields = cast("JsonObject", holder)
        return all(name in fields and fields[name] == value for name, value in arguments.items())
    is_short = isinstance(holder, list) and len(holder) <= _MAX_COMPARED
    return is_short and bool(arguments) and all(value in holder for value in arguments.values())


def _with_recorded(
    steps: Sequence[Step], recorded: Sequence[ToolCall], *, keeps: bool
) -> tuple[list[Step], list[Step]]:
    """Return steps whose calls are replaced by the recorded ones, and the other recorded calls as steps.

    A span records its call when it happens. Therefore nothing in a message changes it.

    Args:
        steps: The steps of the messages.
        recorded: The calls of the spans.
        keeps: Whether the messages are certain, so that they can add what a span does not record.
    """
    unmatched = _Unmatched(recorded)

    def joined(call: ToolCall) -> ToolCall:
        own = unmatched.take(call)
        if own is None or not keeps:
            return own or call
        return ToolCall(
            name=own.name,
            arguments=call.arguments if own.arguments is None else own.arguments,
            result=call.result if own.result is None else own.result,
            is_error=own.is_error or bool(call.is_error),
        )

    turn = [
        step.model_copy(update={"calls": tuple(map(joined, step.calls))})
        if step.calls and step.role != "user"
        else step
        for step in steps
    ]
    others = unmatched.ids()
    return turn, [Step(role="assistant", calls=(call,)) for call in recorded if id(call) in others]


def _settled(value: Any, recorded: Sequence[ToolCall]) -> Any:
    """Return a value that may be a text: parsed, unless it would then have a call that no span has."""
    if not isinstance(value, MaybeJson):
        return value
    unmatched = _Unmatched(recorded, is_strict=True)
    steps = [step for group in join_calls(_read(_messages(value))) for step in group]
    if all(unmatched.take(call) for step in steps for call in step.calls):
        return value.value
    # Without the trace's id: Python then prints the warning once for a file.
    warnings.warn(
        "a text in a trace may be the JSON of messages, or a text that a model wrote, and the export does not tell "
        "which: its calls, which no span has, are left out, and it is read as a text; name an export with their spans, "
        "or Langfuse's JSON of one trace",
        stacklevel=2,
    )
    return value.text


def _call_arguments(sent: Any) -> dict[str, Any] | str | None:
    """Return the arguments of a tool's span. LangChain writes them as Python text."""
    sent = sent.text if isinstance(sent, MaybeJson) else sent
    is_python = isinstance(sent, str) and sent.startswith("{")
    arguments = read_arguments(sent)
    return read_arguments(parsed_python(sent)) if is_python and isinstance(arguments, str) else arguments


def _result_text(output: Any) -> str:
    """Return the result of a tool's span. LangChain writes a message with the result."""
    if isinstance(output, MaybeJson):
        return output.text
    return value_text(as_mapping(output).get("content", output) if is_message(output) else output)


def _is_task(message: Message) -> bool:
    return message.role == "user" and not any(isinstance(part, Result) for part in message.parts)


def _read(messages: list[Any]) -> list[Message]:
    return read_conversation(messages, FilesAsPlaceholders()).messages if messages else []


def _messages(value: object) -> list[Any]:
    """Return the messages in an input or an output of a step. Empty for a value of any other form."""
    value = value.value if isinstance(value, MaybeJson) else value
    if is_conversation(value):
        return list(cast("list[Any]", value))
    if not isinstance(value, Mapping):
        return []
    fields = cast("JsonObject", value)
    # The replies of OpenAI, Gemini and Google's ADK.
    for replies, name in (
        (fields.get("choices"), "message"),
        (fields.get("candidates"), "content"),
        ([fields], "content"),
    ):
        if all_objects(replies, lambda reply, name=name: isinstance(reply.get(name), Mapping)):
            return [cast("list[Any]", replies)[0][name]]
    for name in ("messages", "output"):
        if is_conversation(fields.get(name)):
            return list(fields[name])
    return [fields] if is_message(fields) else []


# LangSmith.


_LANGSMITH = "LangSmith runs"


def _langsmith_spans(row: JsonObject) -> Iterator[Span]:
    """Yield a run and the runs inside it. The id of the trace is the id of its root run."""
    runs, trace = [row], None
    while runs:
        run = runs.pop()
        span = _langsmith_span(run, trace)
        trace = span.trace
        yield span
        runs += [{"parent_run_id": span.id, **child} for child in reversed(list_at(run, "child_runs"))]


def _langsmith_span(row: JsonObject, trace: str | None) -> Span:
    """Convert a run of LangSmith to a span."""
    parent, run_id = row.get("parent_run_id"), _id(first_field(row, "id", "run_id"))
    parent = _id(parent) if has_value(parent) else None
    trace = trace or (_id(row.get("trace_id")) if parent else run_id)
    kind = {"tool": "tool", "llm": "chat"}.get(text_at(row, "run_type") or "", "step")
    sent, received = _object(row.get("inputs")), _object(row.get("outputs"))
    error = str(row["error"]) if has_value(row.get("error")) else None
    if kind == "tool":
        inputs, outputs = as_mapping(sent), as_mapping(received)
        sent = inputs["input"] if list(inputs) == ["input"] else sent
        received = outputs["output"] if list(outputs) == ["output"] else received
    elif isinstance(received, Mapping):
        received = _generation(cast("JsonObject", received))
        if parent is None and error is None:
            error = _unclear_outputs(received)
    return Span(trace, run_id, parent, kind, str(row.get("name")), str(row.get("start_time")), sent, received, error)


def _object(value: object) -> Any:
    """Return an object that a table has as its JSON. A text that is not the JSON of an object stays a text."""
    decoded = _decoded(value)
    return value if isinstance(value, str) and value and not isinstance(decoded, Mapping) else decoded


def _unclear_outputs(outputs: JsonObject) -> str | None:
    """Return the reason why the answer in the outputs of a run is not certain, or None if it is certain."""
    if isinstance(outputs.get("messages"), list) and not is_state(outputs):
        return "its `outputs.messages` cannot be read"
    if len(outputs) < 2 or _messages(outputs) or is_row(outputs):
        return None
    places = [f"outputs.{name}" for name in outputs]
    return (
        f"it has several outputs ({', '.join(places)[:_MAX_PLACES]}): name the one to grade by `response_column` "
        f"(`--response-column {places[0]}`)"
    )


# The largest number of characters of output names in an error.
_MAX_PLACES = 150


def _generation(outputs: JsonObject) -> Any:
    """Return the first reply in the outputs of a LangChain model. Any other outputs are returned unchanged."""
    generations: Any = outputs.get("generations")
    while isinstance(generations, list) and generations:
        generations = cast("list[Any]", generations)[0]
    reply = as_mapping(generations)
    messages = [reply["message"]] if isinstance(reply.get("message"), Mapping) else None
    return outputs if not reply else {"messages": messages} if is_conversation(messages) else reply.get("text")


def _is_langsmith_run(row: JsonObject) -> bool:
    return has_keys("run_type", "inputs", "start_time")(row) and ("outputs" in row or has_no_response(row))


# Langfuse.

# Prefixes that integrations write before the name of a tool.
_TOOL_PREFIX = re.compile(r"^(execute_tool |running tool: )")


def _langfuse_spans(row: JsonObject) -> list[Span]:
    return [_langfuse_span(row)]


def _langfuse_span(row: JsonObject) -> Span:
    kinds = {"TOOL": "tool", "GENERATION": "chat"}
    kind = kinds.get(text_at(row, "type") or "", "step")
    attributes = as_mapping(as_mapping(parsed_json(row.get("metadata"))).get("attributes"))
    name = str(attributes.get("gen_ai.tool.name") or _TOOL_PREFIX.sub("", str(text_at(row, "name"))))
    parent = first_field(row, "parentObservationId", "parent_observation_id")
    trace, start = first_field(row, "traceId", "trace_id"), first_field(row, "startTime", "start_time")
    message = first_field(row, "statusMessage", "status_message")
    error = str(message or "it failed") if text_at(row, "level") == "ERROR" else None
    return Span(
        _id(trace), _id(row["id"]), _id(parent) if has_value(parent) else None, kind, name, str(start),
        _maybe_json(row.get("input")), _maybe_json(row.get("output")), error,
    )  # fmt: skip


def _is_langfuse_observation(row: JsonObject) -> bool:
    is_export = has_keys("id", "traceId", "type", "startTime")(row)
    is_in_storage = has_keys("id", "trace_id", "type", "start_time", "parent_observation_id")(row)
    return (is_export or is_in_storage) and ("output" in row or has_no_response(row))


def _read_langfuse_trace(row: JsonObject) -> list[RawRow]:
    return trace_answers([], _langfuse_whole(row))


def _langfuse_whole(trace: JsonObject, *, is_json: bool = False) -> Span:
    values = [_decoded(trace.get(name)) if is_json else _maybe_json(trace.get(name)) for name in ("input", "output")]
    error = "its level is ERROR" if text_at(trace, "level") == "ERROR" and values[1] is None else None
    return Span(_id(trace["id"]), "", None, "step", str(trace.get("name") or ""), "", values[0], values[1], error)


def _is_langfuse_trace(row: JsonObject) -> bool:
    has_content = "input" in row or "output" in row
    return has_keys("id", "timestamp")(row) and has_content and ("bookmarked" in row or "htmlPath" in row)


def _read_langfuse_document(data: JsonObject) -> list[RawRow]:
    trace = data["trace"]
    spans = [_langfuse_span({"traceId": trace["id"], **row}) for row in list_at(data, "observations")]
    return trace_answers(spans, _langfuse_whole(trace, is_json=True))


def _is_langfuse_document(data: JsonObject) -> bool:
    return "observations" in data and "id" in as_mapping(data.get("trace"))


def _id(value: object) -> str:
    """Return an id of a trace or a span.

    Raises:
        ValueError: The id is missing. Its spans would be joined to other spans without an id, or become a separate
            trace.
    """
    if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
        raise ValueError(f"{value!r} is not an id")
    return str(value)


def _decoded(value: object) -> Any:
    """Return a value that its tool writes as JSON text, or None if it is missing or empty. Other texts stay texts."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = parse_json(value)
    return value if has_value(value) and value not in ([], {}) else None


def _maybe_json(value: object) -> Any:
    """Return a value of a tool that writes texts and the JSON of values alike, or None if it is missing or empty."""
    parsed = parsed_json(value)
    if isinstance(value, str) and not isinstance(parsed, str):
        return MaybeJson(value, parsed) if parsed else None
    return _decoded(value) if not isinstance(value, str) else value or None


# Phoenix, and OpenInference in the spans of OpenTelemetry.


def _phoenix_spans(row: JsonObject) -> list[Span]:
    context = as_mapping(row.get("context")) or prefixed_values(row, "context.")
    attributes = object_at({"attributes": parsed_json(row.get("attributes"))}, "attributes")
    attributes = attributes or prefixed_values(row, "attributes.")
    parent, status = row.get("parent_id"), text_at(row, "status_code")
    kind, start = str(text_at(row, "span_kind")), str(row.get("start_time"))
    error = str(row.get("status_message") or "it failed") if status == "ERROR" else None
    span = Span(
        _id(context["trace_id"]), _id(context["span_id"]), _id(parent) if has_value(parent) else None, kind,
        str(row.get("name")), start, error=error,
    )  # fmt: skip
    return [_openinference_span(attributes, span)]


def _openinference_span(attributes: JsonObject, span: Span) -> Span:
    """Add the kind, name, input and output to a span from its OpenInference attributes."""
    nested = _nested(attributes)
    kind = {"LLM": "chat", "TOOL": "tool", "AGENT": "agent"}.get(str(span.kind).upper(), "step")
    model, tool = object_at(nested, "llm"), object_at(nested, "tool")
    names = ("input_messages", "output_messages")
    long = next(
        (name for name in names if isinstance(text := model.get(name), str) and not is_short_python(text)), None
    )
    if long is not None and isinstance(parsed_json(model[long]), str):
        reason = f"its `llm.{long}` are Python text with too many values to parse: export JSON"
        return span._replace(kind=kind, output="", error=reason)
    values = [_openinference_value(object_at(nested, name)) for name in ("input", "output")]
    messages = [_openinference_messages(_messages_at(model, name)) for name in names]
    if messages[0] and isinstance(values[0], str) and not any(message["role"] == "user" for message in messages[0]):
        # The OpenAI Agents SDK records only the instructions as a message if the task is one text.
        messages[0].append({"role": "user", "content": values[0]})
    values = [sent or value for sent, value in zip(messages, values, strict=True)]
    if kind == "tool":
        # A handoff to another agent is not a call of its own, but the result of one.
        is_handoff = not tool and values == [None, None] and span.name.startswith("handoff")
        own = text_at(tool, "name") or span.name
        return span._replace(
            kind="step" if is_handoff else kind, name=own, input=_keyword_arguments(values[0]), output=values[1]
        )
    # Only the messages of a request are known to contain all messages of its conversation.
    is_request = kind == "chat" and bool(messages[0]) and bool(messages[1] or span.error)
    return span._replace(kind=_REQUEST if is_request else kind, input=values[0], output=values[1])


def _keyword_arguments(sent: Any) -> Any:
    """Return the arguments of a tool of smolagents, whose span has the arguments of a Python call.

    They are `kwargs`, or `args` if the agent passed one value. Any other input is returned unchanged.
    """
    call = as_mapping(read_arguments(sent) if isinstance(sent, str) else sent)
    if not {"args", "kwargs"} <= call.keys() <= {"args", "kwargs", "sanitize_inputs_outputs"}:
        return sent
    positional, named = call["args"], call["kwargs"]
    if not isinstance(positional, list) or not isinstance(named, Mapping) or (positional and named):
        return sent
    values = cast("list[Any]", positional)
    return named if not values else values[0] if len(values) == 1 else values


def _openinference_value(holder: JsonObject) -> Any:
    """Return an input or an output. Its type says whether a text is JSON, or was written by a program or a model."""
    value = holder.get("value")
    is_text = isinstance(value, str) and not str(holder.get("mime_type")).startswith("application/json")
    return value or None if is_text else _decoded(value)


def _messages_at(model: JsonObject, name: str) -> list[Any]:
    """Return a list of messages, which pandas writes to a CSV in Python's form.

    Raises:
        ValueError: The value is neither a list nor a text of one.
    """
    value = parsed_json(model.get(name))
    return list_at({name: parsed_python(value) if isinstance(value, str) else value}, name)


def _openinference_messages(items: list[Any]) -> list[dict[str, Any]]:
    """Return messages of OpenInference in OpenAI's form."""
    converted = list[dict[str, Any]]()
    for item in items:
        message = _nested(item)["message"]
        contents = [object_at(part, "message_content") for part in list_at(message, "contents")]
        content = message.get("content") or [
            {"type": "text", "text": part["text"]} if part.get("text") is not None
            else {"type": "image_url", "image_url": as_mapping(as_mapping(part.get("image")).get("image"))}
            for part in contents
        ]  # fmt: skip
        calls = [object_at(call, "tool_call") for call in list_at(message, "tool_calls")]
        converted.append({
            "role": message.get("role"), "content": content or None,
            **({"tool_calls": calls} if calls else {}),
            **({"tool_call_id": message["tool_call_id"]} if message.get("tool_call_id") else {}),
        })  # fmt: skip
    return converted


class _Nested(dict[str, Any]):
    """An object that `_nested` made, so that it need not be copied again."""


def _nested(flat: JsonObject) -> dict[str, Any]:
    """Return flat attributes such as `llm.output_messages.0.message.role` as objects and lists."""
    nested = _Nested()
    for path, value in flat.items():
        *parents, name = str(path).split(".", _MAX_NESTED)
        place = nested
        for parent in parents:
            inner = place.get(parent)
            if not isinstance(inner, _Nested):
                inner = place[parent] = _Nested(cast("JsonObject", inner) if isinstance(inner, Mapping) else {})
            place = inner
        if value is not None or name not in place:
            place[name] = value
    return {name: _listed(value) for name, value in nested.items()}


def _listed(value: object) -> Any:
    if not isinstance(value, Mapping):
        return value
    fields = {name: _listed(item) for name, item in cast("JsonObject", value).items()}
    if fields and all(name.isdecimal() for name in fields):
        return [fields[name] for name in sorted(fields, key=int)]
    return fields


_MAX_NESTED = 12


def _is_phoenix_span(row: JsonObject) -> bool:
    context = as_mapping(row.get("context")) or prefixed_values(row, "context.")
    has_attributes = "attributes" in row or any(name.startswith("attributes.") for name in row)
    return has_keys("span_kind", "parent_id")(row) and context.keys() >= {"span_id", "trace_id"} and has_attributes


# MLflow.


def _read_mlflow_trace(row: JsonObject) -> list[RawRow]:
    info, spans = row["info"], row["data"]["spans"]
    trace_id = _id(first_field(info, "trace_id", "request_id"))
    answers = trace_answers([_mlflow_span(span, trace_id) for span in spans])
    state = first_field(info, "state", "status")
    if state != "OK" and (not answers or answers[0].error is None):
        return [failed_answer(trace_id, f"its state is {state}")]
    return answers or [failed_answer(trace_id, "it has no spans")]


def _mlflow_span(row: JsonObject, trace_id: str) -> Span:
    """Convert a span of MLflow."""
    attributes = object_at(row, "attributes")
    if not attributes:
        raise ValueError("a span has no attributes, which have its type")
    kind = text_at({"spanType": _decoded(attributes.get("mlflow.spanType"))}, "spanType")
    kinds = {"TOOL": "tool", "CHAT_MODEL": "chat", "LLM": "chat"}
    parent = first_field(row, "parent_span_id", "parent_id")
    status = object_at(row, "status")
    code = str(text_at(status, "code") or text_at(row, "status_code"))
    failure = status.get("message") or row.get("status_message") or "it failed"
    values = [_decoded(attributes.get(f"mlflow.span{name}")) for name in ("Inputs", "Outputs")]
    start = first_field(row, "start_time_unix_nano", "start_time")
    return Span(
        trace_id, str(first_field(row, "span_id") or as_mapping(row.get("context")).get("span_id")),
        _id(parent) if has_value(parent) else None, kinds.get(kind or "", "step"), str(row.get("name")), str(start),
        values[0], values[1], str(failure) if code.endswith("ERROR") else None,
    )  # fmt: skip


def _is_mlflow_trace(row: JsonObject) -> bool:
    info, data = as_mapping(row.get("info")), as_mapping(row.get("data"))
    return isinstance(data.get("spans"), list) and ("trace_id" in info or "request_id" in info)


def _read_mlflow_row(row: JsonObject) -> list[RawRow]:
    trace = parsed_json(row["trace"])
    if isinstance(trace, Mapping) and _is_mlflow_trace(cast("JsonObject", trace)):
        return _read_mlflow_trace(cast("JsonObject", trace))
    trace_id, state = _id(row["trace_id"]), str(row.get("state")).rpartition(".")[2]
    values = [_maybe_json(row[name]) for name in ("request", "response")]
    error = None if state == "OK" else f"its state is {state}"
    return trace_answers([], Span(trace_id, "", None, "step", "", "", values[0], values[1], error))


# OpenTelemetry.


def _otlp_spans(row: JsonObject) -> Iterator[Span]:
    """Yield the spans of one export request."""
    for resource in row["resourceSpans"]:
        for scope in list_at(resource, "scopeSpans") or list_at(resource, "instrumentationLibrarySpans"):
            for span in list_at(scope, "spans"):
                events = [SpanEvent(str(e.get("name")), _otlp_attributes(e)) for e in span.get("events") or []]
                own = Span(
                    _id(span["traceId"]), _id(span["spanId"]), _parent(span.get("parentSpanId")), None,
                    str(span.get("name")), str(span.get("startTimeUnixNano")),
                )  # fmt: skip
                yield _otel_span(own, _otlp_attributes(span), events, object_at(span, "status"))


def _otlp_attributes(holder: JsonObject) -> dict[str, Any]:
    return {_id(item["key"]): _otlp_value(object_at(item, "value")) for item in list_at(holder, "attributes")}


def _otlp_value(value: JsonObject) -> Any:
    kind, content = next(iter(value.items()), ("", cast("Any", None)))
    if kind == "arrayValue":
        return [_otlp_value(item) for item in list_at(content, "values")]
    if kind == "kvlistValue":
        return {item["key"]: _otlp_value(object_at(item, "value")) for item in list_at(content, "values")}
    return text_at(value, kind) if kind == "stringValue" else content


def _sdk_spans(row: JsonObject) -> list[Span]:
    """Return the span of a line that `ReadableSpan.to_json` of OpenTelemetry's SDK wrote."""
    context, attributes = row["context"], row["attributes"] or {}
    events = [SpanEvent(str(e.get("name")), as_mapping(e.get("attributes"))) for e in row.get("events") or []]
    span = Span(
        _id(context["trace_id"]), _id(context["span_id"]), _parent(row.get("parent_id")), None, str(row.get("name")),
        str(row.get("start_time")),
    )  # fmt: skip
    return [_otel_span(span, attributes, events, object_at(row, "status"))]


def _parent(parent: object) -> str | None:
    return _id(parent) if has_value(parent) else None


def _otel_span(span: Span, own: JsonObject, events: Sequence[SpanEvent], status: JsonObject) -> Span:
    """Add the content to a span of OpenTelemetry, from attributes of its `gen_ai` convention or of OpenInference.

    The attributes of the events are added to the span's own. Strands' events have content of their own.
    """
    attributes = {name: value for fields in (*(e.attributes for e in events), own) for name, value in fields.items()}
    code = str(first_field(status, "code", "status_code"))
    message = first_field(status, "message", "description") or attributes.get("error.type") or "it failed"
    error = str(message) if code == "2" or code.endswith("ERROR") else None
    span = span._replace(error=error)
    if kind := text_at(attributes, "openinference.span.kind"):
        return _openinference_span(attributes, span._replace(kind=kind))
    if not any(key.startswith("gen_ai.") for key in attributes):
        return span
    operation = str(text_at(attributes, "gen_ai.operation.name"))
    is_of_events = is_of_strands(own)
    if operation == "execute_tool":
        return _otel_tool(span, attributes, event_content(operation, events) if is_of_events else None)
    values = [_decoded(attributes.get(f"gen_ai.{key}.messages")) for key in ("input", "output")]
    if not error and any(value is not None and not all_objects(value, has_keys("role")) for value in values):
        error = "its `gen_ai.*.messages` are not a JSON list of messages: a limit of attributes may have cut them off"
    if is_of_events and values == [None, None]:
        values = list(event_content(operation, events))
    is_agent = operation in ("invoke_agent", "create_agent", "invoke_workflow")
    is_request = operation in ("chat", "text_completion", "generate_content", "None")
    # A cycle of Strands' event loop repeats the messages of the requests in it.
    is_request = is_request and "event_loop.cycle_id" not in own
    kind = "agent" if is_agent else _REQUEST if is_request else "step"
    return span._replace(kind=kind, input=values[0], output=values[1], error=error)


def _otel_tool(span: Span, attributes: JsonObject, content: EventContent | None) -> Span:
    """Convert the span of a tool call. Strands records its failure only as a status."""
    values = [attributes.get(f"gen_ai.tool.call.{key}") for key in ("arguments", "result")]
    if content is not None:
        values = [value if value is not None else other for value, other in zip(values, content, strict=True)]
    tool = text_at(attributes, "gen_ai.tool.name") or _TOOL_PREFIX.sub("", span.name)
    has_failed = first_field(attributes, "gen_ai.tool.status", "tool.status") == "error"
    error = span.error or ("its status is 'error'" if has_failed else None)
    return span._replace(kind="tool", name=tool, input=values[0], output=values[1], error=error)


def _is_otlp(row: JsonObject) -> bool:
    return all_objects(row.get("resourceSpans"), lambda resource: isinstance(resource.get("scopeSpans"), list))


def _is_sdk_span(row: JsonObject) -> bool:
    context = as_mapping(row.get("context"))
    is_span = has_keys("kind", "parent_id", "status", "attributes")(row) and "span_kind" not in row
    return is_span and context.keys() >= {"trace_id", "span_id"}


def _of_spans(
    name: str, matches: Callable[[JsonObject], bool], spans: Callable[[JsonObject], Iterable[Span]]
) -> RowFormat:
    """Return a format in which a trace has several rows."""

    def read(row: JsonObject) -> Iterable[RawRow]:
        return trace_answers(spans(row))

    return RowFormat(name, matches, read, spans=spans)


TRACE_FORMATS = (
    _of_spans(_LANGSMITH, _is_langsmith_run, _langsmith_spans),
    _of_spans("OTLP spans", _is_otlp, _otlp_spans),
    _of_spans("OpenTelemetry spans", _is_sdk_span, _sdk_spans),
    _of_spans("Phoenix spans", _is_phoenix_span, _phoenix_spans),
    _of_spans("Langfuse observations", _is_langfuse_observation, _langfuse_spans),
    RowFormat("Langfuse trace", _is_langfuse_document, _read_langfuse_document),
    RowFormat("Langfuse traces", _is_langfuse_trace, _read_langfuse_trace),
    RowFormat(
        "Langfuse dataset", has_keys("datasetId", "expectedOutput"),
        unread_rows("a Langfuse dataset", "its outputs are references; name an export of the traces"),
    ),
    RowFormat("MLflow traces", _is_mlflow_trace, _read_mlflow_trace),
    RowFormat("MLflow table", has_keys("trace_id", "trace", "request", "response", "state"), _read_mlflow_row),
)  # fmt: skip
"""The formats of rows of tracing tools. The first format that matches reads a row."""
