"""The same six responses for every framework: four verdicts, an abstention and a failure.

The tests of each framework print what arrives there. The judge is a function, so that no test needs a server.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from rubric_integrations import Criterion, PerCriterionGrader, Rubric

RUBRIC = Rubric(
    [
        Criterion(name="right", requirement="Gives the right figure", weight=2),
        Criterion(name="sourced", requirement="Names a source", weight=1),
        Criterion(name="rude", requirement="Is rude", weight=-1),
    ],
    name="answers",
)
QUERY = "How high was the margin?"


class Row(NamedTuple):
    """One response, and the score of the whole; None if its grade failed."""

    id: str
    response: str
    score: float | None


ROWS = [
    Row("right", "The margin was 8.4%, says the annual report.", 1.0),
    Row("rude", "The margin was 8.4%, says the annual report, you fool.", 2 / 3),
    Row("wrong", "It was 9%, says the annual report.", 1 / 3),
    Row("empty-handed", "Look it up yourself, you fool.", 0.0),
    # Nobody can tell whether the figure is right: the score is that of the others.
    Row("unclear", "The margin was as expected, says the annual report.", 1.0),
    # The judge answers prose whatever it is asked.
    Row("failing", "[make the judge fail] The margin was 8.4%.", None),
]


async def judge(system: str, user: str) -> str:
    """Answer by the words of the response, as a model would in JSON."""
    submission, _, criterion = user.partition("## kind ##")
    if "[make the judge fail]" in submission:
        if "right figure" not in criterion:
            # The failure of the first criterion cancels the others, also on a machine with other load.
            await asyncio.sleep(0.5)
        return "I would rather not answer."
    if "right figure" in criterion:
        verdict = "CANNOT_ASSESS" if "as expected" in submission else "MET" if "8.4%" in submission else "UNMET"
    elif "source" in criterion:
        verdict = "MET" if "annual report" in submission else "UNMET"
    else:
        verdict = "MET" if "fool" in submission else "UNMET"
    return json.dumps({"explanation": "compared the words", "verdict": verdict})


def make_grader() -> PerCriterionGrader:
    """Return a grader with that judge, which does not repeat an unreadable reply."""
    return PerCriterionGrader(judge, max_retries=0)


class Output(NamedTuple):
    """A value that a program returns, and the text that is graded of it; None if there is nothing to grade."""

    value: Any
    graded: str | None


_RIGHT = ROWS[0].response
_CHAT = [{"role": "user", "content": QUERY}, {"role": "assistant", "content": _RIGHT}]

OUTPUTS = {
    "text": Output(_RIGHT, _RIGHT),
    "response": Output({"response": _RIGHT}, _RIGHT),
    "several names": Output({"answer": "I would say 9%.", "output": _RIGHT}, _RIGHT),
    "another spelling": Output({"Answer": _RIGHT}, _RIGHT),
    "outputs": Output({"outputs": _RIGHT, "completion": "I would say 9%."}, _RIGHT),
    "further keys": Output({"answer": _RIGHT, "tokens": 12, "score": 1.0}, _RIGHT),
    "within another": Output({"output": {"answer": _RIGHT, "tokens": 12}}, _RIGHT),
    "first without a value": Output({"output": None, "answer": _RIGHT}, _RIGHT),
    "thinking": Output({"thinking": "9%?", "output": _RIGHT}, _RIGHT),
    "messages": Output(_CHAT, _RIGHT),
    "state": Output({"messages": _CHAT, "remaining_steps": 3}, _RIGHT),
    "structured response": Output({"messages": _CHAT, "structured_response": {"margin": 8.4}}, '{"margin": 8.4}'),
    "message": Output({"role": "assistant", "content": _RIGHT}, _RIGHT),
    "one other key": Output({"finding": _RIGHT}, json.dumps({"finding": _RIGHT})),
    "other keys": Output({"margin": "8.4%", "source": "report"}, '{"margin": "8.4%", "source": "report"}'),
    "structured value": Output({"answer": {"margin": "8.4%"}}, '{"margin": "8.4%"}'),
    "JSON in a text": Output('{"response": "8.4%"}', '{"response": "8.4%"}'),
    "empty text": Output("", None),
    "empty value": Output({"answer": ""}, None),
    "blank value": Output({"answer": " \n"}, None),
    "null": Output({"answer": None}, None),
    "empty mapping": Output({}, None),
    "empty messages": Output({"messages": []}, None),
    "empty list": Output({"answer": []}, None),
    "other keys, all empty": Output({"finding": " ", "sources": [], "figures": [""]}, None),
    "other keys, one empty": Output({"finding": "", "page": 0}, '{"finding": "", "page": 0}'),
    "passages beside": Output({"answer": _RIGHT, "passages": ["It was 9%."]}, _RIGHT),
}
"""Outputs of programs in each form that hosts pass, by what is special about them."""
