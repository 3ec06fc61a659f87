"""The response in a rollout of OpenRLHF, which is one text: the prompt, the response and their special tokens."""

from __future__ import annotations

import re

from rubric_integrations.submission.thinking import split_thinking

# Special tokens that end a turn, of the chat templates in use. In the middle of a response they are kept: whether a
# policy writes them there is for the judge to see.
_END_TOKENS = re.compile(r"(?:\s*(?:<\|[\w▁ -]{1,40}\|>|<｜[\w▁ -]{1,40}｜>|</s>|<eos>|<pad>|<end_of_turn>))+\s*\Z")
_LAST_CHARACTERS = 2_000
# A template that makes models think ends the prompt with this marker, so that it is missing in the response.
_OPENS_THINKING = re.compile(r"<think(?:ing)?>\s*\Z", re.IGNORECASE)
# Characters of a prompt that was cut at its beginning, by which it is recognized, and attempts to find them.
_MIN_KEPT, _MAX_ATTEMPTS = 64, 100


def response_of(query: str, prompt: str) -> str:
    r"""Return the response in a rollout, without the special tokens at its end.

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
        raise ValueError(
            "does not begin with the text of the same number in `prompts`: send both as OpenRLHF does, because without "
            "the prompt the response cannot be recognized"
        )
    text = query[begin:]
    # Only the end is searched, so that a text full of white space takes no quadratic time.
    head, tail = text[:-_LAST_CHARACTERS], text[-_LAST_CHARACTERS:]
    response = head + _END_TOKENS.sub("", tail)
    opening = _OPENS_THINKING.search(prompt[-_LAST_CHARACTERS:])
    return opening[0] + response if opening else response


def has_answer(response: str) -> bool:
    """Whether a response has any text after its thinking; one that was cut off while it was thinking has none.

    Example:
        >>> has_answer("<think>6 x 7"), has_answer("<think>6 x 7</think>42")
        (False, True)
    """
    return bool(split_thinking(response).output.strip())


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
