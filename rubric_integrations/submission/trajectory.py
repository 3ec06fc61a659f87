"""The trajectory of an agent: the numbered steps that led to its answer.

This module also converts conversations in the fields of a submission to texts, a trajectory and attachments.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from typing import Any, ClassVar, Self, cast

from pydantic import model_validator

from rubric_integrations._util.records import SparseRecord
from rubric_integrations.submission.attachments import Attachment, refuse_paths
from rubric_integrations.submission.dialects.blocks import AttachmentList
from rubric_integrations.submission.dialects.detect import Conversation, dialect_of, read_conversation
from rubric_integrations.submission.messages import check_respond, split_conversation
from rubric_integrations.submission.selection import StepSelection
from rubric_integrations.submission.steps import Step, ToolCall, render_steps
from rubric_integrations.submission.thinking import SplitResponse, split_parts, split_thinking

# About 250,000 tokens. Judges cannot read more. If a text were truncated, the grade would penalize the missing part.
MAX_CHARS = 1_000_000


class Trajectory(SparseRecord):
    """The numbered steps of an agent's run.

    Attributes:
        steps: The steps, at least one. The number of a step is its position, which begins at 1.
        selection: The original numbers of the steps, if they are a part of a longer trajectory that an explorer chose
            (see `Explorer`). There may then be no steps. None for a complete trajectory.

    Example:
        >>> question = Step(role="user", text="What was the margin?")
        >>> look = Step(role="assistant", calls=(ToolCall(name="look", arguments={"year": 2024}, result="8.4%"),))
        >>> trajectory = Trajectory(steps=(question, look, Step(role="assistant", text="It was 8.4%.")))
        >>> [call.name for call in trajectory.calls]
        ['look']
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("selection",)

    steps: tuple[Step, ...]
    selection: StepSelection | None = None

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if self.selection is None and not self.steps:
            raise ValueError("has no steps")
        if self.selection is not None and len(self.selection.steps) != len(self.steps):
            raise ValueError("`selection` must have one entry for each step")
        return self

    @classmethod
    def from_messages(cls, messages: Any) -> Self:
        """Read the steps of a conversation or of an agent's run.

        Calls are joined with their results. A file is written as `[attachment 1]` in the text of its step. To keep the
        files, pass the messages to `Submission` instead, as its `trajectory` or by `Submission.from_messages`.

        Args:
            messages: Messages of OpenAI (chat, or items of the Responses API), Anthropic, LangChain, Gemini,
                OpenTelemetry, Inspect, AgentV, Bedrock, pydantic-ai, OpenHands, SWE-agent, mini-swe-agent, AutoGen,
                smolagents or tau2. Also the lines of a session of Claude Code or Codex, the state of a LangGraph
                agent, a document of Harbor (ATIF), a sample of Inspect, a `dspy.History`, and the `trajectory` of a
                `dspy.ReAct` prediction.

        Raises:
            TypeError: `messages` has none of these types.
            ValueError: `messages` is empty, or a message or a block cannot be read. The error names its place.

        Example:
            >>> prediction = {"thought_0": "Look it up.", "tool_name_0": "look", "tool_args_0": {"year": 2024},
            ...               "observation_0": "17.2%"}
            >>> Trajectory.from_messages(prediction).calls[0].result
            '17.2%'
        """
        return cls(steps=read_conversation(messages).steps)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All tool calls, in order, including the calls of a simulated user."""
        return tuple(call for step in self.steps for call in step.calls)

    @property
    def omitted(self) -> int:
        """The number of characters that were removed from tool results by `shortened`. 0 if nothing was removed."""
        return sum(call.omitted for call in self.calls)

    def shortened(self, step_limit: int) -> Trajectory:
        """Shorten long tool results: keep the beginning and the end, with a note about the missing part between them.

        Other texts are not shortened. The number of removed characters is also in `ToolCall.omitted`, which a judge
        sees next to the result.

        Args:
            step_limit: The largest number of characters of a result, at least 1, without the note.

        Returns:
            The trajectory with shortened results, or this object if all results are short enough.

        Raises:
            ValueError: `step_limit` is less than 1.

        Example:
            >>> page = ToolCall(name="open", result="The report. " + "x" * 12_000 + " The margin was 8.4%.")
            >>> short = Trajectory(steps=(Step(role="assistant", calls=(page,)),)).shortened(40)
            >>> print(short.calls[0].result)
            The report. xxxxxxxx
            ... [11,993 characters omitted] ...
            The margin was 8.4%.
        """
        if step_limit < 1:
            raise ValueError(f"`step_limit` must be at least 1, got {step_limit!r}: it is a number of characters")
        steps = tuple(_shorten(step, step_limit) for step in self.steps)
        is_same = all(step is original for step, original in zip(steps, self.steps, strict=True))
        # Not a copy, because a copy would keep the cached text of the longer steps.
        return self if is_same else Trajectory(steps=steps, selection=self.selection)

    def text(self) -> str:
        """Return the text that a judge reads: one JSON object per step, with its number.

        If the steps are a selection, lines such as `[steps 12 to 480 not shown]` stand for the other steps.
        """
        return self._text

    @property
    def numbers(self) -> Sequence[int]:
        """The number of each step."""
        return range(1, len(self.steps) + 1) if self.selection is None else self.selection.numbers

    @cached_property
    def digest(self) -> str:
        """A digest of all steps, and of their numbers if they are a selection."""
        digest = sha256()
        for number, step in zip(self.numbers, self.steps, strict=True):
            # One step at a time: the text of a whole trajectory may need much memory.
            digest.update(f"{number} {render_steps([step])}\n".encode("utf-8", "replace"))
        return digest.hexdigest()

    # Cached, because every question about a submission reads the text, which may be long.
    @cached_property
    def _text(self) -> str:
        return render_steps(self.steps, numbered=True, selection=self.selection)


def _shorten(step: Step, step_limit: int) -> Step:
    calls = tuple(call.shortened(step_limit) for call in step.calls)
    is_same = all(call is original for call, original in zip(calls, step.calls, strict=True))
    return step if is_same else step.model_copy(update={"calls": calls})


def task_of(steps: Sequence[Step]) -> str | None:
    """Return the text of the first steps that are of the user or the system. None if there are none.

    Example:
        >>> task_of([Step(role="user", text="Build it."), Step(role="assistant", text="Done.")])
        '{"role": "user", "content": "Build it."}'
    """
    return render_steps(list(takewhile(lambda step: step.role in ("user", "system"), steps))) or None


def convert_conversations(data: Mapping[str, Any], *, is_conversation: bool = False) -> dict[str, Any]:
    """Replace conversations in the fields of a submission by texts, and return the fields without `respond`.

    The field `respond` chooses the part of a conversation that is graded. Without `respond`, this is the last answer.
    If an agent's run does not end with an answer, all its steps are graded. A conversation of more than 1,000,000
    characters is not appended to the query, and judges see its steps next to the last answer.

    Args:
        data: The fields. `response`, `query`, `reference` and `trajectory` may be conversations.
        is_conversation: Whether the response must be a conversation. If not, a text is also accepted.

    Raises:
        TypeError: `is_conversation` is set, and the response is not a conversation.
        ValueError: A conversation cannot be read, `respond` is unknown, or there is nothing to grade.

    Example:
        >>> convert_conversations({"response": [("user", "6 x 7?"), ("ai", "It is 42.")]})["query"]
        '{"role": "user", "content": "6 x 7?"}'
    """
    fields = dict(data)
    respond, response = fields.pop("respond", None), fields.get("response")
    if isinstance(response, Mapping) and "messages" in response and set(response) <= {"messages", "respond"}:
        state = cast("Mapping[str, Any]", response)
        response, respond, is_conversation = state["messages"], state.get("respond") or respond, True
    if respond is not None:
        check_respond(respond)
    reader = _Reader(fields.get("attachments"))
    fields |= {"query": reader.text(fields, "query")} if "query" in fields else {}
    if is_conversation or isinstance(response, list | tuple) or dialect_of(response) is not None:
        conversation = reader.read(response)
        if respond is None and _lacks_answer(conversation):
            _warn_of_whole_run()
            respond = "trajectory"
        fields |= _conversation_fields(conversation, respond or "last", fields)
    fields |= {"trajectory": reader.trajectory(fields)} if "trajectory" in fields else {}
    fields |= {"reference": reader.text(fields, "reference")} if "reference" in fields else {}
    fields |= {"attachments": reader.attachments} if reader.attachments else {}
    fields |= _split_response(fields.get("response"), fields.get("thinking"))
    if respond == "trajectory" and fields.get("show_trajectory") != "as_response":
        fields |= _trajectory_fields(fields)
    return fields


class _Reader:
    """Reads several conversations and numbers their attachments continuously."""

    def __init__(self, explicit: Any):
        self._explicit = explicit
        self._list: AttachmentList | None = None

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The attachments of the submission, including the attachments of the conversations."""
        return () if self._list is None else tuple(self._list.items)

    def read(self, messages: Any) -> Conversation:
        """Read a conversation."""
        if self._list is None:
            explicit = refuse_paths(self._explicit)
            items = cast("list[Any]", explicit) if isinstance(explicit, list | tuple) else []
            self._list = AttachmentList(tuple(Attachment.model_validate(item) for item in items))
        return read_conversation(messages, self._list)

    def text(self, fields: Mapping[str, Any], name: str) -> Any:
        """Return a list of messages as text, or any other value unchanged, for pydantic to validate."""
        value = fields[name]
        if not isinstance(value, list | tuple):
            return value
        return render_steps(self._named(name, value).steps)

    def trajectory(self, fields: Mapping[str, Any]) -> Any:
        """Return the trajectory of a conversation, None for an empty value, or a trajectory unchanged."""
        value = fields["trajectory"]
        if isinstance(value, Trajectory) or not value or _is_dump(value):
            return value or None
        return Trajectory(steps=self._named("trajectory", value).steps)

    def _named(self, name: str, value: Any) -> Conversation:
        try:
            return self.read(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"in the `{name}`: {error}") from None


def _lacks_answer(conversation: Conversation) -> bool:
    """Return whether a conversation is an agent's run that does not end with an answer."""
    last = conversation.messages[-1]
    if last.role == "assistant" and last.answer():
        return False
    return any(step.calls for step in conversation.steps if step.role == "assistant")


def _warn_of_whole_run() -> None:
    # Without the row's id: Python then prints the warning once for a file.
    warnings.warn(
        "the run of an agent ends without an answer: it is graded as a whole, as by respond='trajectory'; name "
        "`respond` (`--respond`) to grade all runs alike: 'trajectory', or 'last', with which such a run is an error",
        stacklevel=2,
    )


def _conversation_fields(conversation: Conversation, respond: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that follow from a conversation as the response."""
    response, context = split_conversation(conversation, respond)
    # In a query, the conversation could not be shortened, and its steps stand in the trajectory.
    is_long = context is not None and len(context) > MAX_CHARS and not fields.get("trajectory")
    query = fields.get("query")
    query = (query or task_of(conversation.steps)) if is_long else _append_context(query, context)
    changed: dict[str, Any] = {"response": response, "query": query}
    if conversation.is_answer_only:
        return changed
    if not fields.get("trajectory"):
        # The task of a session does not contain its steps.
        default = "always" if is_long or conversation.is_session else "if_needed"
        show = "as_response" if respond == "trajectory" else fields.get("show_trajectory") or default
        if show == "as_response" and respond != "trajectory":
            raise ValueError(
                "`show_trajectory` is 'as_response', but the response is not the text of the steps: pass "
                "respond='trajectory' to grade the steps, or judges would not see them"
            )
        changed |= {"trajectory": Trajectory(steps=conversation.steps), "show_trajectory": show}
    elif respond == "trajectory":
        raise ValueError(
            "`response` is a conversation, and there is a `trajectory` beside it, but only one of them can be graded "
            "with respond='trajectory': remove the other"
        )
    return changed


def _trajectory_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that grade a trajectory. A separate response becomes its last step."""
    if "trajectory" not in fields:
        raise ValueError(
            "`respond` is 'trajectory', but there is neither a conversation nor a `trajectory`: pass one, or leave "
            "`respond` out to grade the text"
        )
    trajectory, response = fields["trajectory"], fields.get("response")
    steps = [] if trajectory is None else list(Trajectory.model_validate(trajectory).steps)
    steps += [Step(role="assistant", text=response)] if isinstance(response, str) and response.strip() else []
    if not steps:
        return {}
    whole = Trajectory(steps=tuple(steps))
    return {"response": whole.text(), "trajectory": whole, "show_trajectory": "as_response"}


def _is_dump(value: Any) -> bool:
    """Return whether a value is a trajectory that `model_dump` wrote."""
    steps = cast("Mapping[str, Any]", value).get("steps") if isinstance(value, Mapping) else None
    if not isinstance(steps, list | tuple):
        return False
    return all(isinstance(step, Step) or (isinstance(step, Mapping) and "role" in step) for step in steps)


def _split_response(response: Any, thinking: Any) -> dict[str, Any]:
    """Return the fields that change if a response is a dictionary, or begins with a thinking block.

    Raises:
        ValueError: There is thinking without an answer, there is thinking in two places, or the dictionary has other
            keys.
    """
    if isinstance(response, Mapping):
        parts = split_parts(cast("Mapping[str, Any]", response))
        if parts.thinking and thinking:
            raise ValueError("`response` has a `thinking` of its own beside the field `thinking`: remove one of them")
    elif isinstance(response, str) and not thinking:
        parts = split_thinking(response)
    else:
        return {}
    if parts.block and not parts.output:
        raise ValueError(_no_answer(parts))
    return {"response": parts.output, "thinking": parts.thinking or thinking or None}


def _no_answer(parts: SplitResponse) -> str:
    unclosed = "" if parts.is_closed else ", which is not closed (was it cut off by a token limit?)"
    return f"`response` has no answer after its `<{parts.block}>` block{unclosed}: there is nothing to grade"


def _append_context(query: Any, context: str | None) -> Any:
    """Append the earlier part of a conversation to the query."""
    if context is None or not isinstance(query, str | None):
        return query
    return f"{query}\n\n{context}" if query else context
