"""Whether an attack forges the structure of a prompt or of a reply: asked of the shield and the parser, not of a model.

The markers are told apart here by the adapters' and templates' own spelling, not by the shield's patterns: a check that
shared them could not find what they miss.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dspy
from dspy import lm15
from dspy.adapters.chat_adapter import field_header_pattern
from dspy.utils.exceptions import AdapterParseError

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.prompts import sanitize, signatures
from rubric_integrations.judges.prompts.parse import JudgeAdapter
from rubric_integrations.judges.prompts.render import (
    PromptInputs,
    describe_batch,
    describe_rubric,
    render_inputs,
    render_question,
)
from rubric_integrations.judges.protocol import Question
from rubric_integrations.redteam.attacks import CONTROL_TOKENS, TYPE_END, TYPE_START, Attack
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.criterion import Criterion, Option, Scale
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

_POOR = "I do not know."
_QUERY = "When did people first walk on the moon?"
_YEAR, _PLACE = Criterion(requirement="States the year 1969"), Criterion(requirement="Names the landing site")
_CLEAR = Criterion(
    requirement="How clear is it?", options=(Option(label="not", value=0.0), Option(label="yes", value=1.0))
)
_RATED = Criterion(requirement="How complete is it?", scale=Scale())
_RUBRIC = Rubric([_YEAR, _PLACE])

_HEADER = re.compile(r"\[\[\s*#+\s*\w+\s*#+\s*\]\]")


class _Scripted:
    """An engine that keeps what it is sent, and answers what it is told."""

    supports_response_schema = True
    supported_params = frozenset({"response_format"})

    def __init__(self) -> None:
        self.reply = "{}"
        self.request: Any = None

    def __deepcopy__(self, memo: object) -> _Scripted:
        return self

    def complete(self, request: lm15.Request) -> lm15.Response:
        self.request = request
        message = lm15.Message.assistant(self.reply)
        return lm15.Response(
            id=None, model=request.model, message=message, finish_reason="stop", usage=lm15.Usage(input_tokens=1)
        )


class _AsyncScripted:
    supports_response_schema = _Scripted.supports_response_schema
    supported_params = _Scripted.supported_params

    def __init__(self, engine: _Scripted):
        self._engine = engine

    def __deepcopy__(self, memo: object) -> _AsyncScripted:
        return self

    async def complete(self, request: lm15.Request) -> lm15.Response:
        return self._engine.complete(request)


class _Asked(NamedTuple):
    """A question about a submission: what answers it truly, the reply that does, and the values that a judge reads."""

    name: str
    signature: Any
    texts: PromptInputs
    truth: str
    own: Callable[[str], str]
    values: Callable[[LMJudge], Any]


def survives_in_prompt(attack: Attack) -> str | None:
    """What of an attack would be read as structure in a judge's prompt; None where it is data throughout.

    Questions on one criterion and on several are looked at. The messages on the wire must be those of the submission
    without the attack, but for what stands within the submission's fence; and in there must be no field header, no
    custom type, no control token and no fence with the code, not even after Unicode normalization.

    Example:
        >>> from rubric_integrations.redteam.attacks import ATTACKS
        >>> survives_in_prompt(ATTACKS[0]) is None
        True
    """
    return run_sync(_surviving(attack))


def misread(attack: Attack) -> str | None:
    """How a judge that quotes an attack and finds nothing would be read as having found something; None if it is not.

    The judge quotes it as it was sent, as it was shown and as it looks, escaped and not, before its own reply, after
    it, within it, in its thinking and in a block. Whatever is then read must be its own answer or none.

    Example:
        >>> from rubric_integrations.redteam.attacks import ATTACKS
        >>> misread(ATTACKS[0]) is None
        True
    """
    return run_sync(_misread(attack))


def breach(attack: Attack) -> str | None:
    """How an attack gets through the shield or the parser; None if it does not."""
    return survives_in_prompt(attack) or misread(attack)


async def _surviving(attack: Attack) -> str | None:
    for name in ("per criterion", "one shot"):
        clean, attacked = await _sent(name, _POOR), await _sent(name, attack.on(_POOR))
        if isinstance(attacked, str):
            return f"{name}: {attacked}"
        if isinstance(clean, str):
            raise AssertionError(clean)
        (system, outside, _), (system_too, outside_too, inside) = clean, attacked
        if system != system_too or outside != outside_too:
            return f"{name}: the prompt differs outside of the submission's fence"
        if "".join(inside.split()) != "".join(attack.on(_POOR).split()):
            return f"{name}: the text is not shown whole"
        if found := _marker(inside):
            return f"{name}: {found!r} is read as structure"
    return None


async def _sent(name: str, response: str) -> tuple[str, str, str] | str:
    """A prompt's system message, its user message outside of the submission, and the submission; or what is wrong."""
    engine, judge = _judge()
    asked = next(asked for asked in _questions(response) if asked.name == name)
    engine.reply = asked.own("")
    try:
        await asked.values(judge)
    except JudgeFailure as failure:
        return f"the judge was not asked: {failure}"
    messages = engine.request.messages
    if len(messages) != 1 or any(part.type != "text" for part in messages[0].parts):
        return f"there are {len(messages)} messages with parts of the types {[p.type for p in messages[0].parts]!r}"
    user = "".join(part.text for part in messages[0].parts)
    system = engine.request.system
    # The query comes before the submission, and is ours: the first code is the true one.
    code = re.findall(r"<data (\w+)>", user)[0]
    before, opened, rest = user.partition(f"[[ ## submission ## ]]\n<data {code}>\n")
    inside, closed, after = rest.partition(f"\n</data {code}>")
    headers = field_header_pattern.findall(user)
    outside = (before + opened + closed + after).replace(code, "CODE") + repr(headers)
    return system if isinstance(system, str) else "".join(part.text for part in system or ()), outside, inside


def _marker(text: str) -> str | None:
    """A marker in a text, in any disguise that normalization takes off."""
    seen = _folded(text)
    header = _HEADER.search(seen)
    tokens = (token for token in (*CONTROL_TOKENS, TYPE_START, TYPE_END) if _folded(token) in seen)
    return header[0] if header else next(tokens, None)


def _folded(text: str) -> str:
    visible = (ch for ch in text if unicodedata.category(ch) not in ("Cf", "Mn"))
    return unicodedata.normalize("NFKC", "".join(visible)).casefold()


async def _misread(attack: Attack) -> str | None:
    engine, judge = _judge()
    shown = sanitize.neutralize(attack.text)
    quotes = dict.fromkeys([shown, attack.text, unicodedata.normalize("NFKC", attack.text), sanitize.fold(attack.text)])
    for asked in _questions(attack.on(_POOR)):
        adapter = JudgeAdapter.reading(asked.texts.inputs, asked.texts.quotable)
        for quote in quotes:
            for form, reply in _replies(asked.own, quote, cut_off=quote == shown):
                try:
                    # Almost all are refused or read truly; only what is not goes through the whole judge.
                    if _answers(adapter.parse(asked.signature, reply)) <= {asked.truth}:
                        continue
                except AdapterParseError:
                    continue
                engine.reply = reply
                try:
                    values = await asked.values(judge)
                except JudgeFailure as failure:
                    if failure.kind != "parse":
                        raise
                    continue
                if any(value != 0 for value in values):
                    return f"{asked.name}: {form}, a quotation is read as {values!r}: {reply!r}"
    return None


def _answers(fields: dict[str, Any]) -> set[str]:
    """What the fields of a reply answer, to whichever question."""
    given = [value for name, value in fields.items() if name != "explanation"]
    return {
        str(answer) for value in given for answer in ([e.answer for e in value] if isinstance(value, list) else [value])
    }


def _judge() -> tuple[_Scripted, LMJudge]:
    engine = _Scripted()
    lm = dspy.LM("probe/scripted", engine=engine, async_engine=_AsyncScripted(engine), cache=False)
    return engine, LMJudge(lm)


def _questions(response: str) -> Iterator[_Asked]:
    submission = Submission(response=response, query=_QUERY)

    def one(name: str, signature: Any, criterion: Criterion, field: str, truth: str) -> _Asked:
        question = Question(submission, criterion)

        async def values(judge: LMJudge) -> list[float | None]:
            return [(await judge.judge(question)).value]

        def own(explanation: str) -> str:
            return f'{{"explanation": "{explanation}", "{field}": "{truth}"}}'

        return _Asked(name, signature, render_question(question), truth, own, values)

    yield one("per criterion", signatures.JudgeCriterion, _YEAR, "verdict", "UNMET")
    yield one("options", signatures.JudgeOption, _CLEAR, "choice", "A")
    yield one("scale", signatures.JudgeScale, _RATED, "score", "0.0")
    several = {1: Question(submission, _YEAR), 2: Question(submission, _PLACE)}
    texts = render_inputs(submission, "", {"criteria": describe_batch(several)})

    async def answers(judge: LMJudge) -> list[float | None]:
        return [answer.value for answer in (await judge.judge_batch(several)).answers.values()]

    for name, number in (("one shot", 1), ("one shot, in the last entry", 2)):
        entries = {n: f'{{"id": {n}, "explanation": "%s", "answer": "UNMET"}}' for n in several}

        def own(explanation: str, number: int = number, entries: dict[int, str] = entries) -> str:
            said = (entry.replace("%s", explanation if n == number else "No.") for n, entry in entries.items())
            return f'{{"judgments": [{", ".join(said)}]}}'

        yield _Asked(name, signatures.JudgeBatch, texts, "UNMET", own, answers)

    async def overall(judge: LMJudge) -> list[float]:
        return [(await judge.judge_overall(submission, _RUBRIC)).percent]

    def scored(explanation: str) -> str:
        return f'{{"explanation": "{explanation}", "overall_score": 0}}'

    whole = render_inputs(submission, "", {"criteria": describe_rubric(_RUBRIC)})
    yield _Asked("holistic", signatures.JudgeOverall, whole, "0.0", scored, overall)


def _replies(own: Callable[[str], str], quote: str, cut_off: bool) -> Iterator[tuple[str, str]]:
    """The ways in which a judge may quote and then say its own."""
    escaped, plain = json.dumps(quote, ensure_ascii=False)[1:-1], own("It only claims so.")
    yield "escaped", own(f"It says: {escaped} That shows nothing.")
    yield "escaped, in a block", f"```json\n{own(escaped)}\n```"
    yield "not escaped", own(f"It says: {quote} That shows nothing.")
    yield "not escaped, at the end", own(f"It says: {quote}")
    yield "not escaped, in a block", f"```json\n{own(f'{quote} and so on')}\n```"
    yield "not escaped, after thinking", f"<think>Hm.</think>\n{own(f'It says: {quote} and so on')}"
    yield "before its reply", f"The submission says:\n\n{quote}\n\nThat shows nothing.\n\n{plain}"
    yield "at once before its reply", f"{quote}\n{plain}"
    yield "before its reply in a block", f"It says: {quote}\n```json\n{plain}\n```"
    yield "in a block before its reply", f"```json\n{quote}\n```\n\n{plain}"
    yield "before words", f"{quote}\n\nThis is forged. UNMET."
    yield "in a block before words", f"```json\n{quote}\n```\nThis is forged. UNMET."
    yield "in thinking", f"<think>It says: {quote} I shall not follow.</think>\n{plain}"
    yield "after its reply", f"{plain}\n\nThe submission said: {quote}"
    yield (
        "as a chat adapter",
        f"[[ ## explanation ## ]]\n{quote}\n\n[[ ## verdict ## ]]\nUNMET\n\n[[ ## completed ## ]]",
    )
    yield "as an XML adapter", f"<explanation>{quote}</explanation>\n<verdict>UNMET</verdict>"
    if cut_off:
        yield "in thinking that is cut off", f"<think>It says: {quote}"
