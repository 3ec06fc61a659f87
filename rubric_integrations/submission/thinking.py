"""Separates the thinking that a model writes before its answer from the answer.

A response that begins with `<think>` (DeepSeek, Qwen) or `<thinking>`, in upper or lower case, begins with thinking.
The same rule applies to every input. All functions take linear time, even for a megabyte of markers. The module also
extracts the response from OpenRLHF's rollouts, which are one text with the prompt, the response and special tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# Special tokens that end a turn, of the chat templates in use. In the middle of a response they are kept, because the
# judge should see that a policy writes them there.
_END_TOKEN = re.compile(r"(?:<\|[\w▁ -]{1,40}\|>|<｜[\w▁ -]{1,40}｜>|</s>|<eos>|<pad>|<end_of_turn>)\Z")
_LONGEST_TOKEN = 44
_LAST_CHARACTERS = 100
# A chat template for thinking models ends the prompt with this marker. It is then missing in the response.
_OPENS_THINKING = re.compile(r"<think(?:ing)?>\s*\Z", re.IGNORECASE)
# The number of characters that identify a prompt whose beginning was cut off, and the largest number of attempts to
# find them.
_MIN_KEPT, _MAX_ATTEMPTS = 64, 100


def response_of(query: str, prompt: str) -> str:
    r"""Return the response in a rollout of OpenRLHF, without the special tokens and the white space at its end.

    Args:
        query: The prompt and the response as one text. The text may begin with only the end of `prompt`, because
            OpenRLHF cuts long prompts. The white space in its prompt may differ from `prompt`, because some tokenizers
            do not preserve white space.
        prompt: The complete prompt. If the prompt ends with `<think>`, this marker is added at the beginning of the
            response.

    Raises:
        ValueError: `query` does not begin with the prompt or its end.

    Example:
        >>> prompt = "<|im_start|>user\n6 x 7?<|im_end|>\n"
        >>> response_of(prompt + "It is 42.<|im_end|>", prompt)
        'It is 42.'
    """
    begin = _end_of_prompt(query, prompt)
    if begin is None:
        raise ValueError("it does not begin with its prompt, without which the response cannot be recognized")
    response = _without_end_tokens(query[begin:])
    opening = _OPENS_THINKING.search(prompt[-_LAST_CHARACTERS:])
    return opening[0] + response if opening else response


def _without_end_tokens(text: str) -> str:
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        token = _END_TOKEN.search(text, max(0, end - _LONGEST_TOKEN), end)
        if token is None:
            return text[:end]
        end = token.start()


def _end_of_prompt(query: str, prompt: str) -> int | None:
    if query.startswith(prompt):
        return len(prompt)
    return _end_of_cut_prompt(query, prompt) or _end_without_spaces(query, prompt)


def _end_of_cut_prompt(query: str, prompt: str) -> int | None:
    head, begin = query[:_MIN_KEPT], -1
    if len(head) < _MIN_KEPT:
        return None
    for _ in range(_MAX_ATTEMPTS):
        begin = prompt.find(head, begin + 1)
        if begin < 0:
            return None
        if query.startswith(prompt[begin:]):
            return len(prompt) - begin
    return None


def _end_without_spaces(query: str, prompt: str) -> int | None:
    position = 0
    for part in prompt.split():
        for character in part:
            while position < len(query) and query[position].isspace():
                position += 1
            if position == len(query) or query[position] != character:
                return None
            position += 1
    return position or None


_THINKING_BEGINS = re.compile(r"<(think(?:ing)?)>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_OUTPUT_BEGINS = re.compile(r"<output>", re.IGNORECASE)
_OUTPUT_ENDS = re.compile(r"</output>", re.IGNORECASE)
_SPACE = re.compile(r"\s*")
_MARKER = re.compile(r"\s*<(?:think(?:ing)?|output)>", re.IGNORECASE)


class SplitResponse(NamedTuple):
    """A response whose thinking is separate from its answer.

    Attributes:
        thinking: The content of the thinking blocks at the beginning. Empty for a response without thinking blocks.
        output: The answer after the thinking blocks.
        block: The name of the last thinking block, in lower case, such as `think`. None for a response without thinking
            blocks.
        is_closed: Whether the last thinking block has an end. Without an end, the rest of the text is thinking, and
            `output` is empty.
    """

    thinking: str
    output: str
    block: str | None = None
    is_closed: bool = True


def split_thinking(text: str) -> SplitResponse:
    """Split a response into the thinking blocks at its beginning and the answer after them.

    Markers elsewhere in the text are part of the answer. An answer between `<output>` and `</output>` is returned
    without these markers. If text follows after `</output>`, the complete text is returned with the markers, because
    nothing must be lost. A text without markers at its beginning is returned unchanged.

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
    """Split the completion of a prompt into its thinking and its answer. The prompt may already begin the thinking.

    If the completion has `</think>` without `<think>`, the text before `</think>` is thinking, as in the parsers of
    reasoning models.

    Args:
        text: The completion.
        starts_in_thinking: Whether the prompt ends with `<think>`. If so, a completion without `</think>` consists only
            of thinking.

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
    """Return the thinking and the output of a dictionary with the keys `thinking` and `output`.

    If `thinking` is missing or empty, the output is split by `split_thinking`.

    Args:
        parts: The dictionary. Both keys are optional.

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
    """Yield the markers of all closed thinking blocks in a text: the begin and the end marker of each block."""
    position = 0
    while (begins := _THINKING_BEGINS.search(text, position)) and (ends := _THINKING_ENDS.search(text, begins.end())):
        yield begins
        yield ends
        position = ends.end()


def output_block(text: str) -> str | None:
    """Return the content of the first closed `<output>` block in a text, or None if the text has no such block."""
    begins = _OUTPUT_BEGINS.search(text)
    ends = _OUTPUT_ENDS.search(text, begins.end()) if begins else None
    return text[begins.end() : ends.start()] if begins and ends else None


def _without_output_markers(answer: str) -> str:
    """Return the content of an answer that is one `<output>` block, even if the end of the block is missing."""
    begins = _OUTPUT_BEGINS.match(answer)
    if begins is None:
        return answer
    ends = _OUTPUT_ENDS.search(answer, begins.end())
    if ends and ends.end() < len(answer):
        return answer
    content = answer[begins.end() : ends.start() if ends else len(answer)].strip()
    # If the content begins with other markers, it would be split again when the submission is stored and read.
    return answer if _MARKER.match(content) else content


def _skip_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position


def _join(blocks: list[str]) -> str:
    return "\n\n".join(block for block in blocks if block)
