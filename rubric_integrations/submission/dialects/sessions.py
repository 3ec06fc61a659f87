"""Common parts of the readers of sessions of coding agents: what is left out, is masked, or is not an answer.

The results of a session may contain the files of a developer. Keys of known forms and home folders are masked. The text
around a key is kept, because it is evidence. All functions take linear time.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, cast

from rubric_integrations._util.text import counted
from rubric_integrations.submission.dialects.blocks import Call, Message, Part, Text, UnknownBlockError

_MAX_REASON = 300

MASKED = "[masked key]"
"""The text that replaces a key."""

_KEYS = re.compile(
    r"""
    (?<![A-Za-z0-9])(?:
        sk-(?:ant-|proj-|or-|svcacct-)[\w-]{16,} | sk-[A-Za-z0-9]{20,}   # Anthropic, OpenAI, OpenRouter
      | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9]) | AIza[\w-]{30,}
      | xox[abeoprs]-[\w-]{10,} | (?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}
      | hf_[A-Za-z0-9]{20,} | gsk_[A-Za-z0-9]{20,} | xai-[A-Za-z0-9]{20,} | lsv2_\w{20,} | npm_[A-Za-z0-9]{30,}
      | pypi-[\w-]{40,}
    )
    | (?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}                    # JSON Web Tokens
    | -----BEGIN[A-Z ]{1,30}PRIVATE\ KEY-----[A-Za-z0-9+/=\s\\]*         # without the line after it
    | (?P<name>
        (?<!\w)[A-Z0-9_]{0,40}(?:API_?KEY|SECRET|TOKEN|PASSWORD)[A-Z0-9_]{0,40}=["']?   # lines of a `.env` file
      | (?i:authorization:\ {0,4}(?:bearer|basic)\ {1,4})
      )(?!\[masked)[^\s"'$<>{}()\[\];,]{8,}
    """,
    re.VERBOSE,
)
_HOMES = re.compile(r"(?<![\w.~-])(?:/(?:home|Users)/|[A-Za-z]:\\{1,2}Users\\{1,2})[\w.@+-]{1,64}")


class Mask:
    """Masks keys and home folders, and counts the keys.

    Attributes:
        keys: The number of masked keys.

    Example:
        >>> mask = Mask()
        >>> mask.text("cat /home/ann/.env: GITHUB_TOKEN=0123456789"), mask.keys
        ('cat ~/.env: GITHUB_TOKEN=[masked key]', 1)
    """

    def __init__(self) -> None:
        self.keys = 0

    def text(self, text: str) -> str:
        """Return a text without the keys of known forms, and with `~` in place of a home folder."""
        text, count = _KEYS.subn(lambda match: f"{match['name'] or ''}{MASKED}", text)
        self.keys += count
        return _HOMES.sub("~", text)

    def messages(self, messages: Iterable[Message]) -> list[Message]:
        """Return messages whose texts, arguments and results are masked."""
        return [message._replace(parts=[self._part(part) for part in message.parts]) for message in messages]

    def _part(self, part: Part) -> Part:
        if isinstance(part, Call):
            return part._replace(arguments=self._value(part.arguments))
        return part._replace(text=self.text(part.text))

    def _value(self, value: Any) -> Any:
        # The depth of arguments is limited when they are read.
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            entries = cast("dict[str, Any]", value)
            names = {name: self.text(name) for name in entries}
            # Two different names must not become one.
            is_unique = len(set(names.values())) == len(names)
            return {names[name] if is_unique else name: self._value(item) for name, item in entries.items()}
        return value


def finish_session(tool: str, messages: list[Message], notes: Sequence[str]) -> list[Message]:
    """Return the messages of a session with masked keys and home folders, and warn of what is not shown.

    Args:
        tool: The name of the agent, for the warning.
        messages: The messages. If calls follow the last text of the last one, the text is not an answer.
        notes: The parts of the session that were left out.
    """
    mask = Mask()
    messages = mask.messages(messages)
    if messages and _announces_calls(messages[-1]):
        messages[-1] = without_answer(messages[-1])
    if mask.keys:
        notes = [*notes, f"{counted(mask.keys, 'key')} in it {'was' if mask.keys == 1 else 'were'} masked"]
    if notes:
        warnings.warn(f"a session of {tool}: {'; '.join(notes)}", stacklevel=2)
    return messages


def _announces_calls(message: Message) -> bool:
    kinds = [
        part.kind if isinstance(part, Text) else "call"
        for part in message.parts
        if isinstance(part, Text | Call) and not (isinstance(part, Text) and part.kind == "note")
    ]
    return kinds[-1:] == ["call"]


def without_answer(message: Message) -> Message:
    """Return a message whose texts are steps, but are not an answer."""
    parts = [part._replace(kind="note") if isinstance(part, Text) else part for part in message.parts]
    return message._replace(parts=parts)


def unfinished(place: str, problem: str, reason: object = None) -> UnknownBlockError:
    """Return the error of a session without an end.

    Args:
        place: The place in the session.
        problem: What is wrong.
        reason: The reason that the agent recorded: a text, a list of texts, or nothing.
    """
    texts = cast("list[Any]", reason) if isinstance(reason, list) else [reason]
    named = " ".join(" ".join(text for text in texts if isinstance(text, str)).split())[:_MAX_REASON]
    return UnknownBlockError(place, f"{problem}{f' ({named})' if named else ''}", "grade a session that ended")
