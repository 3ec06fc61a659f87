"""The response in a rollout that is one text, as OpenRLHF has it: the prompt, the response and their special tokens."""

from __future__ import annotations

import re

# Special tokens that end a turn, of the chat templates in use. In the middle of a response they are kept: whether a
# policy writes them there is for the judge to see.
_END_TOKEN = re.compile(r"(?:<\|[\w▁ -]{1,40}\|>|<｜[\w▁ -]{1,40}｜>|</s>|<eos>|<pad>|<end_of_turn>)\Z")
_LONGEST_TOKEN = 44
_LAST_CHARACTERS = 100
# A template that makes models think ends the prompt with this marker, so that it is missing in the response.
_OPENS_THINKING = re.compile(r"<think(?:ing)?>\s*\Z", re.IGNORECASE)
# Characters of a prompt that was cut at its beginning, by which it is recognized, and attempts to find them.
_MIN_KEPT, _MAX_ATTEMPTS = 64, 100


def response_of(query: str, prompt: str) -> str:
    r"""Return the response in a rollout, without the special tokens and the white space at its end.

    Args:
        query: The prompt and the response. Of a prompt that was too long, OpenRLHF keeps the end; and some tokenizers
            do not preserve its white space.
        prompt: The prompt. If it ends with `<think>`, the response begins with it.

    Raises:
        ValueError: `query` does not begin with the prompt.

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
