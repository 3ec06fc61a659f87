"""Replies of judges that were recorded elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rubric_integrations import Criterion, Option
from rubric_integrations.judges import read_recorded_reply
from rubric_integrations.rubric import Scale
from tests.conftest import SHARED

BINARY = Criterion(requirement="Names the dose")
CHOICE = Criterion(
    requirement="How clear is it?",
    options=[Option(label="1", value=0), Option(label="4 (clear)", value=1), Option(label="N/A", na=True)],
)
SCALE = Criterion(requirement="How good is it?", scale=Scale(min=0, max=10))


@pytest.mark.parametrize(
    ("criterion", "reply", "verdict", "value"),
    [
        (BINARY, '{"explanation": "x", "criteria_met": true}', "MET", 1.0),
        (BINARY, '```json\n{"explanation": "x", "criteria_met": false}\n```', "UNMET", 0.0),
        (BINARY, '{"verdict": 1, "reasoning": "x"}', "MET", 1.0),
        (BINARY, '{"verdict": 0, "reason": "x"}', "UNMET", 0.0),
        (BINARY, '{"verdict": true, "explanation": "x"}', "MET", 1.0),
        (BINARY, {"verdict": "UNMET", "explanation": "x"}, "UNMET", 0.0),
        (BINARY, '{"score": 1, "explanation": "x"}', "MET", 1.0),
        (BINARY, "**Met**", "MET", 1.0),
        (BINARY, "0", "UNMET", 0.0),
        (BINARY, "CANNOT_ASSESS", "CANNOT_ASSESS", None),
        (CHOICE, " 4 (clear)\n", "4 (clear)", 1.0),
        (CHOICE, "**1**", "1", 0.0),
        (CHOICE, "N/A", "N/A", None),
        (CHOICE, '{"choice": 1}', "1", 0.0),
        (SCALE, '{"score": 7.5, "strengths": ["x"], "weaknesses": []}', "7.5", 0.75),
        (SCALE, "8", "8", 0.8),
    ],
)
def test_reply_of_a_common_form_is_read(criterion: Criterion, reply: Any, verdict: str, value: float | None) -> None:
    judgment = read_recorded_reply(criterion, reply)
    assert (judgment.verdict, judgment.value) == (verdict, value)
    assert judgment.reason in ("x", "", "Strengths: x")
    assert ("x" in judgment.reason) == ("x" in json.dumps(reply))


@pytest.mark.parametrize(
    ("criterion", "reply"),
    [
        (BINARY, ""),
        (BINARY, "I think it is MET."),
        (BINARY, "2"),
        (BINARY, '{"verdict": 0.5}'),
        (BINARY, '{"verdict": 1, "criteria_met": false}'),
        (BINARY, '{"verdict": 0, "verdict": 1}'),
        (BINARY, '{"explanation": "MET"}'),
        (BINARY, '{"verdict": ["MET"]}'),
        (CHOICE, "4"),
        (CHOICE, "MET"),
        (SCALE, "11"),
        (SCALE, '{"score": true}'),
        (SCALE, "[7]"),
    ],
)
def test_reply_that_names_no_answer_or_two_is_refused(criterion: Criterion, reply: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the messages belong to the interpretation of answers
        read_recorded_reply(criterion, reply)


@pytest.mark.skipif(not (SHARED / "data").exists(), reason="../shared/data does not exist")
def test_recorded_replies_of_one_word_are_all_read(record_property: Any) -> None:
    rubrics = json.loads((SHARED / "data/llm_rubric/rubrics.json").read_text(encoding="utf-8"))
    questions = {
        criterion["id"]: Criterion(
            requirement=criterion["requirement"],
            options=[Option(label=o["label"], value=0, na=o.get("na", False)) for o in criterion["options"]],
        )
        for criterion in next(iter(rubrics.values()))["criteria"]
    }
    count = 0
    for line in (SHARED / "data/llm_rubric/items.jsonl").read_text(encoding="utf-8").splitlines():
        for outputs in json.loads(line)["judge_outputs"].values():
            for question, output in outputs.items():
                assert read_recorded_reply(questions[question], output["raw"]).verdict == output["raw"].strip()
                count += 1
    assert count == 2007
    record_property("shown", f"LLM-Rubric: {count} recorded replies of one word are read")
