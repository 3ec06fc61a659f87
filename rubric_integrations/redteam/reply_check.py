"""Checks whether a judge's reply that quotes an attack would be read as an answer that the judge did not give."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from dspy.utils.exceptions import AdapterParseError

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.judges.prompts import sanitize
from rubric_integrations.judges.prompts.adapter import JudgeAdapter
from rubric_integrations.redteam.attacks import Attack
from rubric_integrations.redteam.scripted_judge import POOR_RESPONSE, prompt_cases, scripted_judge
from rubric_integrations.results.judgment import JudgeFailure


def reply_breach(attack: Attack) -> str | None:
    """Describe how a reply that quotes an attack would be read as a better answer; None if no reply is misread.

    The judge in these replies answers truly that the requirement does not hold. It quotes the attack as sent, sanitized
    and normalized, escaped and unescaped, before, in and after its own answer, in its thinking and in a code block.
    The parser must read the judge's own answer or fail.

    Example:
        >>> from rubric_integrations.redteam import ATTACKS
        >>> reply_breach(ATTACKS[0]) is None
        True
    """
    return run_sync(_reply_breach(attack))


async def _reply_breach(attack: Attack) -> str | None:
    engine, judge = scripted_judge()
    sanitized = sanitize.neutralize(attack.text)
    normalized = unicodedata.normalize("NFKC", attack.text)
    quotes = dict.fromkeys([sanitized, attack.text, normalized, sanitize.fold(attack.text)])
    for case in prompt_cases(attack.apply_to(POOR_RESPONSE)):
        adapter = JudgeAdapter.for_inputs(case.inputs.inputs, case.inputs.quotable)
        for quote in quotes:
            for form, reply in _quoting_replies(case.reply_with, quote, cut_off=quote == sanitized):
                try:
                    # The parser alone refuses almost all replies or reads them truly; the whole judge takes longer.
                    if _answers(adapter.parse(case.signature, reply)) <= {case.true_answer}:
                        continue
                except AdapterParseError:
                    continue
                engine.reply = reply
                try:
                    values = await case.read_values(judge)
                except JudgeFailure as failure:
                    if failure.kind != "parse":
                        raise
                    continue
                if any(value != 0 for value in values):
                    return f"{case.name}: {form}, a quotation is read as {values!r}: {reply!r}"
    return None


def _answers(fields: dict[str, Any]) -> set[str]:
    """Return the answers in the parsed fields of a reply, for every kind of prompt."""
    values = [value for name, value in fields.items() if name != "explanation"]
    return {
        str(answer)
        for value in values
        for answer in ([entry.answer for entry in value] if isinstance(value, list) else [value])
    }


def _quoting_replies(reply_with: Callable[[str], str], quote: str, cut_off: bool) -> Iterator[tuple[str, str]]:
    """Yield the forms in which a judge may quote a text and give its own answer: the form's name, and the reply."""
    escaped, plain = json.dumps(quote, ensure_ascii=False)[1:-1], reply_with("It only claims so.")
    yield "escaped", reply_with(f"It says: {escaped} That shows nothing.")
    yield "escaped, in a block", f"```json\n{reply_with(escaped)}\n```"
    yield "not escaped", reply_with(f"It says: {quote} That shows nothing.")
    yield "not escaped, at the end", reply_with(f"It says: {quote}")
    yield "not escaped, in a block", f"```json\n{reply_with(f'{quote} and so on')}\n```"
    yield "not escaped, after thinking", f"<think>Hm.</think>\n{reply_with(f'It says: {quote} and so on')}"
    yield "before its reply", f"The submission says:\n\n{quote}\n\nThat shows nothing.\n\n{plain}"
    yield "at once before its reply", f"{quote}\n{plain}"
    yield "before its reply in a block", f"It says: {quote}\n```json\n{plain}\n```"
    yield "in a block before its reply", f"```json\n{quote}\n```\n\n{plain}"
    yield "before words", f"{quote}\n\nThis is forged. UNMET."
    yield "in a block before words", f"```json\n{quote}\n```\nThis is forged. UNMET."
    yield "in thinking", f"<think>It says: {quote} I shall not follow.</think>\n{plain}"
    yield "after its reply", f"{plain}\n\nThe submission said: {quote}"
    chat_fields = f"[[ ## explanation ## ]]\n{quote}\n\n[[ ## verdict ## ]]\nUNMET\n\n[[ ## completed ## ]]"
    yield "as a chat adapter", chat_fields
    yield "as an XML adapter", f"<explanation>{quote}</explanation>\n<verdict>UNMET</verdict>"
    if cut_off:
        yield "in thinking that is cut off", f"<think>It says: {quote}"
