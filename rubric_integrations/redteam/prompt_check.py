"""Checks whether an attack would be read as structure in a judge's prompt.

The patterns here spell the markers as adapters and chat templates do. They are not the patterns of the sanitizer: with
those, the check could not find what the sanitizer misses.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import NamedTuple

from dspy.adapters.chat_adapter import field_header_pattern

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.redteam.attack_texts import CONTROL_TOKENS, TYPE_END, TYPE_START
from rubric_integrations.redteam.attacks import Attack
from rubric_integrations.redteam.scripted_judge import POOR_RESPONSE, prompt_cases, scripted_judge
from rubric_integrations.results.judgment import JudgeFailure

_HEADER = re.compile(r"\[\[\s*#+\s*\w+\s*#+\s*\]\]")


class _Prompt(NamedTuple):
    """The messages of one request: the system message, the user message around the submission, and the submission."""

    system: str
    around: str
    submission: str


def prompt_breach(attack: Attack) -> str | None:
    """Describe which part of an attack would be read as structure in a judge's prompt; None if the prompt is safe.

    Prompts about one criterion and about several are checked. Outside the submission's fence, the messages must be the
    same as without the attack. Inside it, there must be no field header, no custom type, no control token and no fence
    with the right code, even after Unicode normalization.

    Example:
        >>> from rubric_integrations.redteam import ATTACKS
        >>> prompt_breach(ATTACKS[0]) is None
        True
    """
    attacked_response = attack.apply_to(POOR_RESPONSE)
    for name in ("per criterion", "one shot"):
        clean, attacked = _clean_prompt(name), run_sync(_sent_prompt(name, attacked_response))
        if isinstance(attacked, str):
            return f"{name}: {attacked}"
        if clean.system != attacked.system or clean.around != attacked.around:
            return f"{name}: the prompt differs outside of the submission's fence"
        if "".join(attacked.submission.split()) != "".join(attacked_response.split()):
            return f"{name}: the text is not shown whole"
        if marker := _find_marker(attacked.submission):
            return f"{name}: {marker!r} is read as structure"
    return None


@cache
def _clean_prompt(name: str) -> _Prompt:
    """Return the prompt without an attack, which is the same for every attack."""
    prompt = run_sync(_sent_prompt(name, POOR_RESPONSE))
    if isinstance(prompt, str):
        raise AssertionError(prompt)
    return prompt


async def _sent_prompt(name: str, response: str) -> _Prompt | str:
    """Return the prompt that a judge sends about a response; a message if it sends none or a malformed one."""
    engine, judge = scripted_judge()
    case = next(case for case in prompt_cases(response) if case.name == name)
    engine.reply = case.reply_with("")
    try:
        await case.read_values(judge)
    except JudgeFailure as failure:
        return f"no request was sent: {failure}"
    messages = engine.request.messages
    if len(messages) != 1 or any(part.type != "text" for part in messages[0].parts):
        return f"there are {len(messages)} messages with parts of the types {[p.type for p in messages[0].parts]!r}"
    user = "".join(part.text for part in messages[0].parts)
    system = engine.request.system
    # The query stands before the submission and is ours, so the first fence has the right code.
    code = re.findall(r"<data (\w+)>", user)[0]
    before, opening, rest = user.partition(f"[[ ## submission ## ]]\n<data {code}>\n")
    inside, closing, after = rest.partition(f"\n</data {code}>")
    headers = field_header_pattern.findall(user)
    around = (before + opening + closing + after).replace(code, "CODE") + repr(headers)
    return _Prompt(system if isinstance(system, str) else "".join(part.text for part in system or ()), around, inside)


def _find_marker(text: str) -> str | None:
    """Find a marker in a text, also one in look-alike characters."""
    folded = _fold(text)
    header = _HEADER.search(folded)
    tokens = (token for token in (*CONTROL_TOKENS, TYPE_START, TYPE_END) if _fold(token) in folded)
    return header[0] if header else next(tokens, None)


def _fold(text: str) -> str:
    """Remove invisible characters and normalize the rest, so that look-alike characters become the same."""
    visible = (ch for ch in text if unicodedata.category(ch) not in ("Cf", "Mn"))
    return unicodedata.normalize("NFKC", "".join(visible)).casefold()
