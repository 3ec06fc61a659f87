"""A submission: one response to grade, with the task that it answers.

The module also splits long responses (at paragraphs, lines and words, or between the steps of a trajectory), and
decides whether a submission has the evidence that a criterion needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from rubric_integrations._util.records import EncodableText, SparseRecord
from rubric_integrations.rubric.criterion import Criterion, Evidence
from rubric_integrations.submission.attachments import Attachment, check_attachments, refuse_paths
from rubric_integrations.submission.dialects.blocks import refuse_bytes
from rubric_integrations.submission.messages import Messages, Respond, check_respond, document_texts
from rubric_integrations.submission.steps import Step, render_steps
from rubric_integrations.submission.trajectory import MAX_CHARS, Trajectory, convert_conversations, task_of


class Submission(SparseRecord):
    """One response to grade, with the task that it answers.

    `response`, `query`, `reference` and `trajectory` also accept conversations in any dialect. If `response` is a
    conversation, its last answer is graded, and the rest is appended to the query as context. With the additional field
    `respond="transcript"`, all messages are graded. With `respond="trajectory"`, all messages are graded as numbered
    steps, which a judge can cite. The steps of the conversation become the `trajectory` and its files become the
    `attachments`.

    A response that begins with a thinking block, `<think>` or `<thinking>`, is split into `thinking` and `response`. If
    `thinking` is set, the response is not split. The mapping `{"thinking": ..., "output": ...}` is also accepted.

    A lone surrogate (one half of a UTF-16 pair, such as half an emoji) cannot be written to a file. In all texts, it is
    replaced by its escape.

    Attributes:
        response: The text to grade. It is not blank and has at most 1,000,000 characters. Only a trajectory as the
            response may be longer.
        thinking: The model's reasoning before the response. Judges see it next to the response.
        hide_thinking: Whether the thinking is hidden from judges. A length penalty counts it in any case. False by
            default.
        query: The task that the response answers.
        reference: A reference response for comparison.
        context: Documents to compare the response with, such as retrieved passages. Judges see these documents. Pass
            one document or a list. A document is a text, a LangChain document, or any other value, which is shown as
            JSON. Empty documents are left out.
        logprobs: The natural logarithms of the probabilities of the response's tokens, for the perplexity metric.
        trajectory: The steps of the agent that led to the response, for checks in code and for judges.
        show_trajectory: How judges see the trajectory. `always`: next to the response. `if_needed`: next to the
            response, but only for criteria that need it. `as_response`: the response is the text of the trajectory.
        attachments: Images, PDFs, recordings and other files, which judges see. At most 100, with at most 30,000,000
            bytes in total. `[attachment 1]` in a text refers to the first one.

    Raises:
        pydantic.ValidationError: (a ValueError) The response is blank or has no text after its thinking, a text is too
            long, or a list is not a conversation.

    Example:
        >>> Submission(response="It is 42.", query="6 x 7?").response
        'It is 42.'
        >>> Submission(response="<think>6 x 7</think>It is 42.").thinking
        '6 x 7'
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = (
        "hide_thinking", "context", "trajectory", "show_trajectory", "attachments",
    )  # fmt: skip

    response: EncodableText
    thinking: EncodableText | None = None
    hide_thinking: bool = False
    query: EncodableText | None = None
    reference: EncodableText | None = None
    context: tuple[EncodableText, ...] = ()
    logprobs: tuple[float, ...] | None = Field(default=None, min_length=1)
    trajectory: Trajectory | None = None
    show_trajectory: Literal["always", "if_needed", "as_response"] = "always"
    attachments: tuple[Attachment, ...] = ()

    @property
    def shown_thinking(self) -> str | None:
        """The thinking that judges see. None if the submission has no thinking, or if the thinking is hidden."""
        return None if self.hide_thinking else self.thinking

    @classmethod
    def from_messages(
        cls,
        messages: Any,
        respond: Respond = "last",
        *,
        query: str | Messages | None = None,
        reference: str | Messages | None = None,
    ) -> Self:
        """Create a submission from a conversation.

        Args:
            messages: Messages in any dialect that `Trajectory.from_messages` reads.
            respond: The part to grade: the `last` answer, with the rest as context, the `transcript` of all messages,
                or the `trajectory`, which is the transcript with numbered steps.
            query: The task. With `last`, the rest of the conversation is appended to it as context.
            reference: A reference response for comparison.

        Raises:
            TypeError: `messages` is not a conversation.
            ValueError: A message or a block cannot be read, or the conversation does not end with an answer (`last`).

        Example:
            >>> chat = [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "It is 42."}]
            >>> Submission.from_messages(chat).response
            'It is 42.'
        """
        check_respond(respond)
        fields = {"response": messages, "respond": respond, "query": query, "reference": reference}
        return cls.model_validate(convert_conversations(fields, is_conversation=True))

    def shortened(self, step_limit: int) -> Self:
        """Return this submission with shortened tool results in its trajectory (see `Trajectory.shortened`).

        If the response is the text of the trajectory (`show_trajectory="as_response"`), it becomes the text of the
        shortened trajectory.

        Args:
            step_limit: The largest number of characters of a tool result, at least 1.

        Raises:
            ValueError: `step_limit` is less than 1.
        """
        trajectory = self.trajectory.shortened(step_limit) if self.trajectory else None
        if trajectory is None or trajectory is self.trajectory:
            return self
        response = trajectory.text() if self.show_trajectory == "as_response" else self.response
        return self.model_copy(update={"trajectory": trajectory, "response": response})

    def without_conversation(self) -> Self:
        """Return this submission without the conversation in its `query`, if its steps stand in the trajectory, too.

        `from_messages` and `respond="last"` append the conversation before the response to the query. This method keeps
        only the task: the query that was passed or, without one, the first messages of the user and the system. The
        trajectory is shown for all criteria, because judges would otherwise not see the conversation.
        """
        start = self._conversation_start
        if start is None or self.trajectory is None:
            return self
        query = (self.query or "")[:start].rstrip() or task_of(self.trajectory.steps)
        return self.model_copy(update={"query": query, "show_trajectory": "always"})

    def with_selection(self, trajectory: Trajectory) -> Self:
        """Return this submission with selected steps of its trajectory, as judges see it after an exploration.

        Args:
            trajectory: The selected steps (`Trajectory.selection`).
        """
        own = self.without_conversation()
        response = trajectory.text() if own.show_trajectory == "as_response" else own.response
        return own.model_copy(update={"trajectory": trajectory, "response": response})

    @property
    def _conversation_start(self) -> int | None:
        """The position in the query at which the steps of the trajectory begin. None if they are not in the query."""
        query, trajectory = self.query, self.trajectory
        if not query or trajectory is None or self.show_trajectory == "as_response" or trajectory.selection is not None:
            return None
        start = query.find(render_steps(trajectory.steps[:1]))
        if start < 0 or not (start == 0 or query[:start].endswith("\n\n")):
            return None
        lines = query[start:].split("\n")
        if len(lines) > len(trajectory.steps):
            return None
        pairs = zip(lines, trajectory.steps, strict=False)
        return start if all(line in _query_lines(step) for line, step in pairs) else None

    @model_validator(mode="before")
    @classmethod
    def _convert_conversations(cls, data: Any) -> Any:
        try:
            return convert_conversations(cast("Mapping[str, Any]", data)) if isinstance(data, Mapping) else data
        except TypeError as error:
            # pydantic reports only a ValueError as a fault of the data. A TypeError of one row would end a run.
            raise ValueError(str(error)) from None

    @field_validator("response", "thinking", "query", "reference", mode="before")
    @classmethod
    def _refuse_bytes(cls, value: Any) -> Any:
        return refuse_bytes(value)  # pydantic would decode some bytes as UTF-8

    @field_validator("context", mode="before")
    @classmethod
    def _convert_documents(cls, value: Any) -> Any:
        return document_texts(value)

    @field_validator("context")
    @classmethod
    def _limit_documents(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if (length := sum(map(len, value))) > MAX_CHARS:
            raise ValueError(
                f"has {length:,} characters in all, more than {MAX_CHARS:,}: leave documents out, or a judge would get "
                "a prompt that it cannot read completely"
            )
        return value

    @field_validator("attachments", mode="before")
    @classmethod
    def _refuse_paths(cls, value: Any) -> Any:
        return refuse_paths(value)

    @field_validator("attachments")
    @classmethod
    def _limit_attachments(cls, value: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
        return check_attachments(value)

    @field_validator("response")
    @classmethod
    def _require_text(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty: there is nothing to grade")
        return value

    @field_validator("thinking", "query", "reference")
    @classmethod
    def _limit_text(cls, value: str | None) -> str | None:
        if value is not None and len(value) > MAX_CHARS:
            raise ValueError(_too_long(value))
        return value

    @model_validator(mode="after")
    def _limit_response(self) -> Self:
        # The steps of a trajectory may be longer, because `step_limit` may cut them before a judge reads them.
        is_trajectory = self.show_trajectory == "as_response" and self.trajectory is not None
        if len(self.response) > MAX_CHARS and not is_trajectory:
            raise ValueError(f"`response` {_too_long(self.response)}")
        return self


def _query_lines(step: Step) -> tuple[str, ...]:
    """Return the forms in which a query may have a step. Of the last message, the text is the response."""
    line = render_steps([step])
    return (line, render_steps([step.model_copy(update={"text": ""})])) if step.calls else (line,)


def _too_long(text: str) -> str:
    return (
        f"has {len(text):,} characters, more than {MAX_CHARS:,}: "
        "shorten it, or a judge would grade a text that it cannot read completely"
    )


def error_line(error: Exception) -> str:
    """Return the first problem that an error reports, in one line and with the name of the wrong field."""
    if not isinstance(error, ValidationError):
        return str(error).partition("\n")[0]
    details = error.errors()[0]
    message = details["msg"].removeprefix("Value error, ")
    # Errors about a conversation have no location, because their message names the place in the conversation.
    field = f"`{'.'.join(map(str, details['loc']))}` " if details["loc"] else ""
    return f"{field}{message[:1].lower()}{message[1:]}"


# The best boundary first. Boundaries in the first half of a part are ignored, because the parts would be too many.
_BOUNDARIES = ("\n\n", "\n", " ")


def split_response(submission: Submission, chunk_size: int) -> list[str]:
    """Split a response into parts of at most `chunk_size` characters and leave out blank parts.

    A response that is the text of a trajectory (`show_trajectory="as_response"`) is split between steps, which keep
    their numbers. A single step that is longer than `chunk_size` is a separate part.

    Returns:
        The parts, in order. If the response is short enough, it is the only part.
    """
    response = submission.response
    if len(response) <= chunk_size:
        return [response]
    is_trajectory = submission.show_trajectory == "as_response"
    parts = _split_lines(response, chunk_size) if is_trajectory else _split_text(response, chunk_size)
    return [part for part in parts if part.strip()]


def _split_text(text: str, chunk_size: int) -> Iterator[str]:
    start = 0
    while len(text) - start > chunk_size:
        end = _boundary(text, start, start + chunk_size)
        yield text[start:end]
        start = end
    yield text[start:]


def _boundary(text: str, start: int, end: int) -> int:
    """Return the last position in the second half of a range at which a part may end."""
    middle = (start + end) // 2
    for boundary in _BOUNDARIES:
        position = text.rfind(boundary, middle, end)
        if position > -1:
            return position + len(boundary)
    return end


def _split_lines(text: str, chunk_size: int) -> Iterator[str]:
    """Split between lines. Each step is one line, because JSON escapes the line breaks in a step."""
    lines, size = list[str](), 0
    for line in text.split("\n"):
        if lines and size + len(line) > chunk_size:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    yield "\n".join(lines)


_NAMES: dict[Evidence, str] = {
    "trajectory": "the trajectory",
    "reference": "a reference",
    "query": "the query",
    "image": "an image",
    "context": "documents as context",
}


def missing_evidence(criterion: Criterion, submission: Submission) -> str | None:
    """Describe the evidence that a criterion `needs` and that a submission does not have. None if nothing is missing.

    Example:
        >>> criterion = Criterion(requirement="Looks the margin up before it is stated", needs=["trajectory"])
        >>> missing_evidence(criterion, Submission(response="It was 8.4%."))
        'needs the trajectory, which the submission does not have'
    """
    missing = [_NAMES[evidence] for evidence in criterion.needs if not _has(evidence, criterion, submission)]
    return f"needs {' and '.join(missing)}, which the submission does not have" if missing else None


def shown_trajectory(submission: Submission, criteria: Sequence[Criterion]) -> Trajectory | None:
    """Return the trajectory that a judge of some criteria sees next to the response.

    None if the submission has no trajectory, or if its `show_trajectory` hides it: `if_needed` shows it only if a
    criterion `needs` it, and `as_response` shows it only as the response.
    """
    if submission.show_trajectory == "always":
        return submission.trajectory
    is_needed = any("trajectory" in criterion.needs for criterion in criteria)
    return submission.trajectory if submission.show_trajectory == "if_needed" and is_needed else None


def has_numbered_steps(submission: Submission, criteria: Sequence[Criterion]) -> bool:
    """Whether a judge of some criteria sees numbered steps, either next to the response or as the response itself."""
    is_response = submission.show_trajectory == "as_response" and submission.trajectory is not None
    return is_response or shown_trajectory(submission, criteria) is not None


def _has(evidence: Evidence, criterion: Criterion, submission: Submission) -> bool:
    match evidence:
        case "trajectory":
            return submission.trajectory is not None
        case "image":
            return any(attachment.mime_type.lower().startswith("image/") for attachment in submission.attachments)
        case "context":
            return bool(submission.context or criterion.context)
        case "query" | "reference":
            return bool((getattr(submission, evidence) or "").strip())
