"""The registry of dialects (`DIALECTS`), and functions that detect and read a conversation in any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rubric_integrations.submission.attachments import Attachment
from rubric_integrations.submission.dialects.agents import (
    matches_agentv,
    matches_atif,
    matches_dspy_history,
    matches_dspy_react,
    matches_inspect_ai,
    read_agentv,
    read_atif,
    read_dspy_history,
    read_dspy_react,
    read_inspect_ai,
)
from rubric_integrations.submission.dialects.autogen import matches_autogen, read_autogen
from rubric_integrations.submission.dialects.bedrock import matches_bedrock, read_bedrock
from rubric_integrations.submission.dialects.blocks import AttachmentList, Call, Message, get_field
from rubric_integrations.submission.dialects.chat import (
    matches_anthropic,
    matches_gemini,
    matches_langchain,
    matches_openai_chat,
    matches_openai_responses,
    matches_opentelemetry,
    read_anthropic,
    read_gemini,
    read_langchain,
    read_openai_chat,
    read_openai_responses,
    read_opentelemetry,
)
from rubric_integrations.submission.dialects.claude_code import (
    has_only_results,
    matches_claude_code,
    read_claude_code,
)
from rubric_integrations.submission.dialects.codex import matches_codex, read_codex
from rubric_integrations.submission.dialects.mini_swe_agent import matches_mini_swe_agent, read_mini_swe_agent
from rubric_integrations.submission.dialects.openhands import matches_openhands, read_openhands
from rubric_integrations.submission.dialects.openhands_sdk import matches_openhands_sdk, read_openhands_sdk
from rubric_integrations.submission.dialects.pydantic_ai import matches_pydantic_ai, read_pydantic_ai
from rubric_integrations.submission.dialects.refused import matches_refused, read_refused
from rubric_integrations.submission.dialects.replies import matches_reply, read_reply
from rubric_integrations.submission.dialects.smolagents import matches_smolagents, read_smolagents
from rubric_integrations.submission.dialects.swe_agent import matches_swe_agent, read_swe_agent
from rubric_integrations.submission.dialects.tau2 import matches_tau2, read_tau2
from rubric_integrations.submission.dialects.vercel import matches_vercel, read_vercel
from rubric_integrations.submission.steps import Step, join_calls


class Dialect(NamedTuple):
    """A format of conversations.

    Attributes:
        matches: Returns whether a value is a conversation in this dialect. It checks the structure of the conversation
            and never raises an error.
        read: Reads a conversation that matches. It returns the messages and collects the attachments.
    """

    matches: Callable[[Any], bool]
    read: Callable[[Any, AttachmentList], list[Message]]


DIALECTS: dict[str, Dialect] = {
    "dspy_react": Dialect(matches_dspy_react, read_dspy_react),
    "dspy_history": Dialect(matches_dspy_history, read_dspy_history),
    "refused": Dialect(matches_refused, read_refused),
    "reply": Dialect(matches_reply, read_reply),
    "claude_code": Dialect(matches_claude_code, read_claude_code),
    "codex": Dialect(matches_codex, read_codex),
    "openhands": Dialect(matches_openhands, read_openhands),
    "openhands_sdk": Dialect(matches_openhands_sdk, read_openhands_sdk),
    "mini_swe_agent": Dialect(matches_mini_swe_agent, read_mini_swe_agent),
    "autogen": Dialect(matches_autogen, read_autogen),
    "smolagents": Dialect(matches_smolagents, read_smolagents),
    "swe_agent": Dialect(matches_swe_agent, read_swe_agent),
    "tau2": Dialect(matches_tau2, read_tau2),
    "bedrock": Dialect(matches_bedrock, read_bedrock),
    "vercel": Dialect(matches_vercel, read_vercel),
    "pydantic_ai": Dialect(matches_pydantic_ai, read_pydantic_ai),
    "atif": Dialect(matches_atif, read_atif),
    "agentv": Dialect(matches_agentv, read_agentv),
    "inspect_ai": Dialect(matches_inspect_ai, read_inspect_ai),
    "gemini": Dialect(matches_gemini, read_gemini),
    "opentelemetry": Dialect(matches_opentelemetry, read_opentelemetry),
    "openai_responses": Dialect(matches_openai_responses, read_openai_responses),
    "langchain": Dialect(matches_langchain, read_langchain),
    "anthropic": Dialect(matches_anthropic, read_anthropic),
    "openai_chat": Dialect(matches_openai_chat, read_openai_chat),
}
"""All dialects by name. At most one matches a conversation, apart from the last one, which matches every list.

The last dialect reads the lists that no other dialect matches.
"""

SESSIONS = ("claude_code", "codex")
"""The dialects of coding agents. A file with one of their conversations is a session, with an id and metadata."""

_WITH_CALLS_OF_USERS = ("tau2", "openhands", "mini_swe_agent")


class Conversation(NamedTuple):
    """A conversation after reading.

    Attributes:
        messages: The messages.
        groups: One list for each message, with the steps that the message became (see `join_calls`).
        attachments: The attachments of the submission, including the files of the conversation.
        is_session: Whether a coding agent wrote it. Its steps are then a trajectory, and not a part of the task.
        is_answer_only: Whether it is only the answer of a session, whose steps are not known.
    """

    messages: list[Message]
    groups: list[list[Step]]
    attachments: tuple[Attachment, ...]
    is_session: bool = False
    is_answer_only: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all messages, in order.

        Raises:
            ValueError: Only the answer is known.
        """
        if self.is_answer_only:
            raise ValueError(
                "`messages` has only the answer of a run: grade it by respond='last', or pass the output of `claude -p "
                "--output-format stream-json --verbose`, or a run with calls would seem to have none"
            )
        return tuple(step for group in self.groups for step in group)


def dialect_of(conversation: Any) -> str | None:
    """Return the name of the dialect of a conversation, or None if the value is not a conversation.

    Example:
        >>> dialect_of([{"role": "user", "parts": [{"text": "6 x 7?"}]}]), dialect_of("6 x 7?")
        ('gemini', None)
    """
    if conversation is None or isinstance(conversation, str):
        return None
    return next((name for name, dialect in DIALECTS.items() if dialect.matches(conversation)), None)


def read_conversation(conversation: Any, attachments: AttachmentList | None = None) -> Conversation:
    """Read a conversation in any dialect, or the `messages` in the state of an agent.

    Args:
        conversation: The conversation.
        attachments: The list to which the files of the conversation are added. Pass a list with the submission's own
            attachments. None begins an empty list.

    Raises:
        TypeError: The value is not a conversation.
        ValueError: The conversation is empty or contains itself, or a message or a block cannot be read.
        UnknownBlockError: (a ValueError) A block has an unknown type, or a file has neither bytes nor an address.

    Example:
        >>> read_conversation({"messages": [("user", "6 x 7?"), ("ai", "It is 42.")]}).steps[1].text
        'It is 42.'
    """
    name = dialect_of(conversation)
    if name is None and isinstance(get_field(conversation, "messages"), list | tuple):
        conversation = get_field(conversation, "messages")
        name = dialect_of(conversation)
    if name is None:
        raise TypeError(
            f"`messages` must be a list of messages, got {type(conversation).__name__}: pass the messages, or a "
            "document of a dialect that docs/agents.md lists"
        )
    if isinstance(conversation, list | tuple | Mapping) and not conversation:
        raise ValueError("`messages` is empty: pass at least one message, or there is nothing to grade")
    attachments = AttachmentList() if attachments is None else attachments
    try:
        messages = DIALECTS[name].read(conversation, attachments)
    except RecursionError:
        raise ValueError("`messages` contains itself or is nested too deeply: pass only the messages") from None
    if not messages:
        raise ValueError("`messages` is empty: pass at least one message, or there is nothing to grade")
    if name not in _WITH_CALLS_OF_USERS:
        _refuse_calls_of_users(messages)
    is_answer_only = name == "claude_code" and has_only_results(conversation)
    groups = join_calls(messages)
    return Conversation(messages, groups, tuple(attachments.items), name in SESSIONS, is_answer_only)


def _refuse_calls_of_users(messages: list[Message]) -> None:
    for message in messages:
        if message.role == "user" and any(isinstance(part, Call) for part in message.parts):
            raise ValueError(
                f"`{message.place}` is the user's and calls a tool: write the role 'assistant' if the agent made the "
                "call, or no check would count it"
            )
