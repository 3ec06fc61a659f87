"""Reads the trajectories of mini-swe-agent: its files and their `messages`.

- Calls are in OpenAI's `tool_calls`, or are the commands in `extra.actions`. Version 1 records neither. There, a text
  with exactly one fenced block of commands is a call.
- Results have the role `tool`. If the model writes its commands as text, results have the role `user`. A `returncode`
  other than 0 is a failure.
- With the Responses API, a message is the complete response of the model.
- If a person takes over the run, the calls belong to the user.
- The last message has the role `exit`. It contains the agent's submission, or the reason why the agent submitted
  nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import (
    AttachmentList,
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    code_field,
    get_field,
    list_field,
    number_field,
    object_field,
    read_block,
    result_text,
    text_field,
)
from rubric_integrations.submission.dialects.chat import is_item, read_message

_COMMAND_BEGINS = re.compile(r"```(?:bash|mswea_bash_command)[^\S\n]*\n|<mswea_bash_command>")
_COMMAND_ENDS = {"`": "\n```", "<": "</mswea_bash_command>"}
_OWN_MARKS = ("```mswea_bash_command", "<mswea_bash_command>")
_SENTINELS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
"""The output of the last command of every run, in version 2 and in version 1."""
_RETURN_CODE = re.compile(r"\s*<returncode>(-?\d+)</returncode>")


def matches_mini_swe_agent(conversation: Any) -> bool:
    """Return whether a value is a trajectory file of mini-swe-agent, or a list of its messages.

    The messages are recognized by the fields in `extra`, or by the format of the commands and results in the texts.
    """
    if isinstance(conversation, Mapping):
        is_own = str(conversation.get("trajectory_format")).startswith("mini-swe-agent")
        return is_own and isinstance(conversation.get("messages"), list)
    if not isinstance(conversation, list | tuple):
        return False
    messages = cast("list[Any]", conversation)
    if not all(isinstance(message, Mapping) and ("role" in message or "extra" in message) for message in messages):
        return False
    return any(map(_has_own_extra, messages)) or _has_own_text(messages)


def read_mini_swe_agent(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the messages of mini-swe-agent.

    Raises:
        UnknownBlockError: A result has no command before it, or no message has a command. The commands may then be in a
            field that this reader does not know.
    """
    items = conversation["messages"] if isinstance(conversation, Mapping) else conversation
    messages: list[Message] = []
    waiting: deque[str] = deque()
    for index, item in enumerate(items):
        place, extra = f"messages[{index}]", object_field(item, "extra")
        if _is_result(item, has_command=bool(waiting)):
            call_id = text_field(item, "tool_call_id", "call_id") or (waiting.popleft() if waiting else None)
            if call_id is None:
                raise UnknownBlockError(place, "is the result of a command, and no reader knows where the command is")
            messages.append(_read_result(item, call_id, place, attachments))
            continue
        waiting = deque()
        if get_field(item, "role") == "exit":
            messages.append(_read_exit(item, place))
            continue
        message = _read_message(item, place, attachments)
        if not any(isinstance(part, Call) for part in message.parts) and message.role in ("user", "assistant"):
            calls = [Call("bash", {"command": command}, f"{place}.{number}")
                     for number, command in enumerate(_commands(item, message, place))]  # fmt: skip
            message = message._replace(parts=[*message.parts, *calls])
        waiting = deque(part.id or "" for part in message.parts if isinstance(part, Call))
        messages.append(message._replace(cost=number_field(extra, "cost")) if message.role == "assistant" else message)
    replies = [message for message in messages if message.role == "assistant"]
    if replies and not any(isinstance(part, Call) for message in messages for part in message.parts):
        raise UnknownBlockError(replies[0].place, "has no command in a form that a reader knows, nor has any other")
    return messages


def _has_own_extra(message: Mapping[str, Any]) -> bool:
    extra = message.get("extra")
    if not isinstance(extra, Mapping):
        return False
    return isinstance(extra.get("actions"), list) or (message.get("role") == "exit" and "exit_status" in extra)


def _has_own_text(messages: list[Mapping[str, Any]]) -> bool:
    """Return whether messages contain a command of version 1, and not only an example of a command in an answer."""
    for message, following in pairwise([*messages, cast("Mapping[str, Any]", {})]):
        text = message.get("content")
        if message.get("role") == "assistant" and isinstance(text, str) and len(_find_commands(text)) == 1:
            observed = following.get("role") == "user" and _RETURN_CODE.match(str(following.get("content")))
            if observed or any(mark in text for mark in (*_OWN_MARKS, *_SENTINELS)):
                return True
    return False


def _find_commands(text: str) -> list[str]:
    commands, position, unclosed = list[str](), 0, set[str]()
    while begin := _COMMAND_BEGINS.search(text, position):
        mark = begin[0][0]
        # If one command has no end, no later one of its kind has. Each search would read the rest of the text.
        position = -1 if mark in unclosed else text.find(_COMMAND_ENDS[mark], begin.end())
        if position < 0:
            unclosed.add(mark)
            position = begin.end()
        else:
            commands.append(text[begin.end() : position].strip())
            position += len(_COMMAND_ENDS[mark])
    return commands


def _commands(item: Any, message: Message, place: str) -> list[str]:
    """Return the commands of a message without calls, from `extra.actions` or, in version 1, from its text."""
    extra = get_field(item, "extra")
    if isinstance(get_field(extra, "actions"), list):
        actions = list_field(extra, "actions", f"{place}.extra")
        commands = [text_field(action, "command") for action in actions]
        if None in commands:
            raise UnknownBlockError(f"{place}.extra.actions", "has an action without a `command`")
        return cast("list[str]", commands)
    # If a text has several blocks, mini-swe-agent executes none of them.
    commands = _find_commands(message.answer()) if message.role == "assistant" else []
    return commands if len(commands) == 1 else []


def _is_result(item: Any, *, has_command: bool) -> bool:
    if get_field(item, "role") == "tool" or get_field(item, "type") == "function_call_output":
        return True
    if get_field(item, "role") != "user":
        return False
    extra, content = get_field(item, "extra"), get_field(item, "content")
    if isinstance(extra, Mapping) and "interrupt_type" in extra:
        return False
    is_recorded = isinstance(extra, Mapping) and "returncode" in extra
    return has_command or is_recorded or (isinstance(content, str) and _RETURN_CODE.match(content) is not None)


def _read_result(item: Any, call_id: str, place: str, attachments: AttachmentList) -> Message:
    content = get_field(item, "content")
    text = result_text(get_field(item, "output") if content is None else content, place, attachments)
    code, shown = code_field(get_field(item, "extra"), "returncode"), _RETURN_CODE.match(text)
    code = int(shown[1]) if code is None and shown else code
    return Message("tool", [Result(text, call_id, None, None if code is None else bool(code))], place)


def _read_exit(item: Any, place: str) -> Message:
    status, submission = text_field(get_field(item, "extra"), "exit_status"), text_field(item, "content")
    if status == "Submitted" and submission:
        return Message("assistant", [Text(submission)], place)
    return Message("system", [Text(f"[exit: {status}]")], place)


def _read_message(item: Any, place: str, attachments: AttachmentList) -> Message:
    if get_field(item, "role") is not None:
        return read_message(item, place, attachments)
    parts: list[Part] = []
    for number, output in enumerate(list_field(item, "output", place)):
        read, output_place = read_block if is_item(output) else _read_text, f"{place}.output[{number}]"
        parts += read(output, output_place, attachments)
    return Message("assistant", parts, place)


def _read_text(item: Any, place: str, attachments: AttachmentList) -> list[Part]:
    return read_message(item, place, attachments).parts
