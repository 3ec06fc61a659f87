"""Rubrics with criteria of every kind, and a script that answers them in every form of request."""

from __future__ import annotations

import json
import re
from typing import Any

from rubric_integrations import Criterion, Option, Rubric, Scale
from tests.openai_server import Call, Reply

CLARITY = (Option(label="muddled", value=0.0), Option(label="passable", value=0.4), Option(label="clear", value=1.0))
FIVE_KINDS = Rubric(
    [
        Criterion(name="fact", weight=10, requirement="States the fact"),
        Criterion(name="error", weight=-6, requirement="Commits the error"),
        Criterion(name="clarity", weight=5, requirement="How clear is it?", options=CLARITY),
        Criterion(
            name="method", weight=5, requirement="Is the method sound?", scale=Scale(levels={0: "no", 10: "yes"})
        ),
        Criterion.model_validate({"name": "brief", "weight": 4, "requirement": "Brief", "check": {"max_words": 5}}),
    ]
)
# The scripted answers by requirement; the reply names an option by the code under which the prompt shows it.
ANSWERS: dict[str, Any] = {
    "States the fact": "MET", "Commits the error": "UNMET", "How clear is it?": "passable", "Is the method sound?": 7,
}  # fmt: skip
# Computed by hand: (10 + 0 + 0.4 * 5 + 0.7 * 5 + 4) / 24.
SCORE = 19.5 / 24

THREE = Rubric([Criterion(requirement=r, weight=w) for r, w in [("a", 10), ("b", 5), ("c", -5)]])
ONE = Rubric([Criterion(requirement="r")])


def rubric_of(count: int) -> Rubric:
    """Return a rubric with the requirements `r0`, `r1`, ..."""
    return Rubric([Criterion(requirement=f"r{i}") for i in range(count)])


def code_of(prompt: str, label: str) -> str:
    """Find the code under which a prompt shows an option."""
    line = re.search(rf"^\s*(\S+): {re.escape(label)}$", prompt, re.MULTILINE)
    assert line, prompt
    return line[1]


def answer_to(requirement: str, prompt: str) -> Any:
    answer = ANSWERS[requirement]
    return code_of(prompt, answer) if answer in ("muddled", "passable", "clear") else answer


def script_for_five_kinds(call: Call) -> Reply:
    """Answer a request about `FIVE_KINDS` by `ANSWERS`, whatever its form."""
    prompt = str(call.body["messages"][-1]["content"])
    if "`overall_score`" in prompt:
        return Reply(text=json.dumps({"explanation": "all in all", "overall_score": 80}))
    if "`judgments`" in prompt:
        numbered = re.findall(r"^(\d+)\. \(\w+\) (.*)$", prompt, re.MULTILINE)
        entries = [{"id": int(n), "explanation": "e", "answer": answer_to(text, prompt)} for n, text in numbered]
        return Reply(text=json.dumps({"judgments": entries}))
    requirement = next(text for text in ANSWERS if f"\n{text}\n" in prompt)
    field = next(field for field in ("choice", "score", "verdict") if f"`{field}`" in prompt)
    return Reply(text=json.dumps({"explanation": "e", field: answer_to(requirement, prompt)}))
