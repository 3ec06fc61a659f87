"""Separates the thinking that a model writes before its answer from the answer.

A response that begins with `<think>` (DeepSeek, Qwen) or `<thinking>`, in any case, begins with thinking. The same rule
holds for every input that is graded. All functions take linear time, also for a megabyte of markers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_THINKING_BEGINS = re.compile(r"<(think(?:ing)?)>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_OUTPUT_BEGINS = re.compile(r"<output>", re.IGNORECASE)
_OUTPUT_ENDS = re.compile(r"</output>", re.IGNORECASE)
_SPACE = re.compile(r"\s*")
_MARKER = re.compile(r"\s*<(?:think(?:ing)?|output)>", re.IGNORECASE)


class SplitResponse(NamedTuple):
    """A response whose thinking is separate from its answer.

    Attributes:
        thinking: The content of the thinking blocks at the beginning; empty if there are none.
        output: The answer after them.
        block: The name of the last thinking block, in lower case, such as `think`; None if there is none.
        is_closed: Whether that block has an end. A block without an end is thinking up to the end of the text, so that
            `output` is empty.
    """

    thinking: str
    output: str
    block: str | None = None
    is_closed: bool = True


def split_thinking(text: str) -> SplitResponse:
    """Split a response at the end of the thinking blocks that it begins with.

    Markers elsewhere in the text are part of the answer. An answer within `<output>` and `</output>` is returned
    without these markers, unless there is text after `</output>`, which would be lost. A text without markers at its
    beginning is returned unchanged.

    Example:
        >>> split_thinking("<think>6 x 7</think>It is 42.")
        SplitResponse(thinking='6 x 7', output='It is 42.', block='think', is_closed=True)
    """
    if not _MARKER.match(text):
        return SplitResponse("", text)
    thinking: list[str] = []
    block, position = None, _skip_space(text, 0)
    while begins := _THINKING_BEGINS.match(text, position):
        block, ends = begins[1].lower(), _THINKING_ENDS.search(text, begins.end())
        thinking.append(text[begins.end() : ends.start() if ends else len(text)].strip())
        if ends is None:
            return SplitResponse(_join(thinking), "", block, is_closed=False)
        position = _skip_space(text, ends.end())
    return SplitResponse(_join(thinking), _without_output_markers(text[position:].strip()), block)


def split_completion(text: str, starts_in_thinking: bool = False) -> SplitResponse:
    """Split what a policy has written after a prompt, whose end may be the beginning of the thinking.

    Without a beginning, everything before `</think>` is thinking, as parsers of reasoning models take it.

    Args:
        text: The completion.
        starts_in_thinking: Whether the prompt ends with `<think>`: a completion without `</think>` is all thinking.

    Example:
        >>> split_completion("6 x 7</think>It is 42.").output, split_completion("6 x 7", starts_in_thinking=True).output
        ('It is 42.', '')
    """
    begins, ends = _THINKING_BEGINS.search(text), _THINKING_ENDS.search(text)
    has_no_begin = ends is not None and not (begins and begins.start() < ends.start())
    if has_no_begin or (starts_in_thinking and not _THINKING_BEGINS.match(text.lstrip())):
        text = f"<think>{text}"
    return split_thinking(text)


def split_parts(parts: Mapping[str, Any]) -> SplitResponse:
    """Return the parts of `{"thinking": ..., "output": ...}`; the output is split if there is no other thinking.

    Args:
        parts: The dictionary; both keys are optional.

    Raises:
        ValueError: The dictionary has other keys.
    """
    unknown = set(parts) - {"thinking", "output"}
    if unknown:
        raise ValueError(
            f"`response` has the unknown keys {sorted(map(str, unknown))!r}: use `thinking` and `output`, "
            "or `messages` and `respond`"
        )
    thinking, output = parts.get("thinking") or "", parts.get("output")
    output = "" if output is None else output
    return SplitResponse(thinking, output) if thinking or not isinstance(output, str) else split_thinking(output)


def thinking_blocks(text: str) -> Iterator[re.Match[str]]:
    """Yield the beginning and the end marker of each closed thinking block of a text, anywhere in it."""
    position = 0
    while (begins := _THINKING_BEGINS.search(text, position)) and (ends := _THINKING_ENDS.search(text, begins.end())):
        yield begins
        yield ends
        position = ends.end()


def output_block(text: str) -> str | None:
    """Return the content of the first `<output>` block of a text, anywhere in it; None if there is no closed one."""
    begins = _OUTPUT_BEGINS.search(text)
    ends = _OUTPUT_ENDS.search(text, begins.end()) if begins else None
    return text[begins.end() : ends.start()] if begins and ends else None


def _without_output_markers(answer: str) -> str:
    """Return the content of an answer that is one `<output>` block, also a block that is cut off before its end."""
    begins = _OUTPUT_BEGINS.match(answer)
    if begins is None:
        return answer
    ends = _OUTPUT_ENDS.search(answer, begins.end())
    if ends and ends.end() < len(answer):
        return answer
    content = answer[begins.end() : ends.start() if ends else len(answer)].strip()
    # A content with markers of its own would be split again when the submission is stored and read.
    return answer if _MARKER.match(content) else content


def _skip_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position


def _join(blocks: list[str]) -> str:
    return "\n\n".join(block for block in blocks if block)
