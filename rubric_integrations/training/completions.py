"""Reads the completions of a policy: the answer to grade, without the thinking, or that there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from rubric_integrations.submission.dialects.registry import read_conversation
from rubric_integrations.submission.messages import Respond
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.thinking import SplitResponse, split_completion, split_thinking

# Where parsers of chat templates put the thinking of a message.
_THINKING_FIELDS = ("reasoning_content", "reasoning", "thinking")


class NoAnswerError(ValueError):
    """A completion has no answer: it is blank, its thinking was cut off, or it ends with a tool call or its result."""


def read_completion(
    prompt: Any,
    completion: Any,
    *,
    respond: Respond = "last",
    starts_in_thinking: bool = False,
    show_thinking: bool = False,
    reference: Any = None,
    context: Any = None,
) -> Submission:
    """Return the submission of one completion, in the standard or the conversational format of TRL.

    Args:
        prompt: A text, or messages.
        completion: A text, or the messages that follow the prompt, with tool calls and their results between.
        respond: What is graded of messages, as for `Submission.from_messages`.
        starts_in_thinking: Whether the completion begins inside of a thinking block, because the chat template has
            written its beginning. A prompt that is a text shows it by itself.
        show_thinking: Whether judges are shown the thinking of the answer; that of earlier messages is always left out.
        reference: An exemplary answer, or None.
        context: Documents, or None.

    Raises:
        NoAnswerError: There is no answer to grade.
        TypeError: `completion` is neither a text nor a list of messages.
        ValueError: The texts or messages cannot be read.

    Example:
        >>> read_completion("6 x 7?", "<think>6 times 7</think>It is 42.").response
        'It is 42.'
        >>> read_completion("6 x 7?<think>", "6 times 7, that is")
        Traceback (most recent call last):
            ...
        rubric_integrations.training.completions.NoAnswerError: the thinking has no end
    """
    fields: dict[str, Any] = {"query": prompt, "hide_thinking": not show_thinking}
    fields |= {"reference": None if reference == "" else reference, "context": () if context is None else context}
    if isinstance(completion, str):
        starts_in_thinking |= isinstance(prompt, str) and prompt.rstrip().lower().endswith(("<think>", "<thinking>"))
        parts = split_completion(completion, starts_in_thinking)
        _require_answer(parts)
        return _submission(fields, parts.output, parts.thinking)
    if not isinstance(completion, list | tuple):
        raise TypeError(f"a completion must be a text or a list of messages, got {type(completion).__name__}")
    messages: list[Any] = [
        _without_thinking(message, starts_in_thinking) for message in cast("Sequence[Any]", completion)
    ]
    if not messages:
        raise NoAnswerError("there are no messages")
    if respond != "last":
        return _submission({**fields, "respond": respond}, messages, "")
    last = read_conversation(messages).messages[-1]
    if last.role != "assistant":
        raise NoAnswerError(f"the last message is of the role {last.role!r}")
    thinking = _thinking_of(messages[-1])
    _require_answer(SplitResponse(thinking, last.answer()) if thinking else split_thinking(last.answer()))
    return _submission(fields, messages, thinking)


def group_of(prompt: Any) -> str:
    """Return a short name of the group of completions that answer a prompt, equal in all processes and steps.

    Example:
        >>> group_of("6 x 7?") == group_of("6 x 7?"), len(group_of("6 x 7?"))
        (True, 12)
    """
    text = json.dumps(prompt, sort_keys=True, default=lambda value: type(value).__name__)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _submission(fields: Mapping[str, Any], response: Any, thinking: str) -> Submission:
    # With a thinking of its own, the response is not split again.
    return Submission.model_validate({**fields, "response": response, "thinking": thinking or None})


def _require_answer(parts: SplitResponse) -> None:
    if not parts.is_closed:
        raise NoAnswerError("the thinking has no end")
    if not parts.output.strip():
        raise NoAnswerError("there is no text" + (" after the thinking" if parts.thinking else ""))


def _without_thinking(message: Any, starts_in_thinking: bool) -> Any:
    """Return an assistant's message whose thinking is apart from its text; any other message unchanged."""
    if not isinstance(message, Mapping):
        return message
    fields = cast("Mapping[str, Any]", message)
    content = fields.get("content")
    if content is None:
        content = ""  # a message without content is not one that a reader accepts, but it is one without an answer
    if fields.get("role") != "assistant" or not isinstance(content, str):
        return fields
    thinking = _thinking_of(fields)
    # What the trainer has parsed does not begin with thinking any more.
    parts = split_completion(content, starts_in_thinking and not thinking)
    thinking = "\n\n".join(text for text in (thinking, parts.thinking) if text)
    return {**fields, "content": parts.output, **({_THINKING_FIELDS[0]: thinking} if thinking else {})}


def _thinking_of(message: Any) -> str:
    fields: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
    texts = (fields.get(name) for name in _THINKING_FIELDS)
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")
