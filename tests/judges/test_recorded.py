"""Replies of judges that were recorded elsewhere."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from typing import Any

import pytest

from rubric_integrations import Criterion, Option
from rubric_integrations.judges import read_recorded_replies, read_recorded_reply
from rubric_integrations.rubric import Scale
from tests.conftest import SHARED

BINARY = Criterion(requirement="Names the dose")
CHOICE = Criterion(
    requirement="How clear is it?",
    options=[Option(label="1", value=0), Option(label="4 (clear)", value=1), Option(label="N/A", na=True)],
)
SCALE = Criterion(requirement="How good is it?", scale=Scale(min=0, max=10))
GRADES = Criterion(
    name="usefulness",
    requirement="Usefulness of the code.",
    options=[Option(label=str(n), value=n / 4) for n in range(5)],
)
COVERAGE = Criterion(
    requirement="Coverage of the insight",
    options=[Option(label=name, value=n / 2) for n, name in enumerate(("NO_COVERAGE", "partial coverage", "Full"))],
)
LEVELS = Criterion(requirement="How good is it?", scale=Scale(min=1, max=3, levels={1: "poor", 2: "fair", 3: "good"}))
PENALTY = Criterion(requirement="Insults the user", weight=-5)
PAIR = Criterion(
    requirement="Which is better?",
    options=[Option(label="A", value=1), Option(label="B", value=0), Option(label="tie", value=0.5)],
)
OUTPUTS = Criterion(
    requirement="Which is better?", options=[Option(label="Output (a)", value=1), Option(label="Output (b)", value=0)]
)


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
        (SCALE, "Rating: [[7]]", "7", 0.7),
        (SCALE, "Score: 7/10. Good.", "7", 0.7),
        (SCALE, "8\n\nIt is short.", "8", 0.8),
        (SCALE, "7/10", "7", 0.7),
        (SCALE, "Confidence score: 5\nScore: 7", "7", 0.7),
        (SCALE, "Rating: 7\nConfidence: 5\nMax score: 10", "7", 0.7),
        (BINARY, "Not met: it lacks the dose.", "UNMET", 0.0),
        (SCALE, "<think>Perhaps a score of 3.</think>\nScore: 7", "7", 0.7),
        (SCALE, '{"rating": 8, "rationale": "x"}', "8", 0.8),
        (BINARY, "Yes, the story does.", "MET", 1.0),
        (BINARY, "No.The ending is abrupt.", "UNMET", 0.0),
        (BINARY, "**No**\n\nIt is abrupt.", "UNMET", 0.0),
        (BINARY, 'Yes. No character says "no" here. No one is flat.', "MET", 1.0),
        (BINARY, "It is abrupt.\n\nFinal answer: No", "UNMET", 0.0),
        (BINARY, "Unmet - it lacks the dose.", "UNMET", 0.0),
        (BINARY, "Pass: it names the dose.", "MET", 1.0),
        (BINARY, '{"passed": true, "score": 1.0, "reason": "x"}', "MET", 1.0),
        (BINARY, 'Yes, the function returns {"a": 1}, as it should.', "MET", 1.0),
        (BINARY, '{"pass": false}', "UNMET", 0.0),
        (PENALTY, "Yes, it insults her.", "MET", 1.0),
        (GRADES, "1. It reads.\n2. It is good.\n\n**Usefulness Score: 3**", "3", 0.75),
        (GRADES, "Slightly useful (score of 1) at first.\n\nUsefulness: 3", "3", 0.75),
        (GRADES, "I would rate the usefulness of this code snippet as 2.", "2", 0.5),
        (GRADES, "The usefulness of the code is 0.", "0", 0.0),
        (GRADES, "It needs work and scores 4 for usefulness.", "4", 1.0),
        (GRADES, {"usefulness": {"score": 3, "reason": "x"}}, "3", 0.75),
        (GRADES, "Feedback: It lacks what a score of 4 needs. [RESULT] 3", "3", 0.75),
        (COVERAGE, "PARTIAL_COVERAGE", "partial coverage", 0.5),
        (COVERAGE, "Coverage: Full. It names all.", "Full", 1.0),
        (COVERAGE, "No coverage. It is silent.", "NO_COVERAGE", 0.0),
        (LEVELS, "Fair.", "2", 0.5),
        (PAIR, "Assistant A is kinder. [[A]]", "A", 1.0),
        (PAIR, "[[C]]", "tie", 0.5),
        (PAIR, {"preference": 1.98, "output_1": "a", "annotator": "y"}, "B", 0.0),
        (PAIR, {"preference": 1.5}, "tie", 0.5),
        (PAIR, "[{'model': 'model_2', 'rank': 1}, {'model': 'model_1', 'rank': 2}]", "B", 0.0),
        (PAIR, "m", "A", 1.0),
        (OUTPUTS, "Output (b) is better.\n\nOutput (a) is too short.", "Output (b)", 0.0),
        (OUTPUTS, "Output (a)", "Output (a)", 1.0),
        (OUTPUTS, "It is not perfect, but Output (a) is better.", "Output (a)", 1.0),
        (BINARY, "No, I cannot find the dose.", "UNMET", 0.0),
        (BINARY, "I cannot find the dose.\n\nVerdict: UNMET", "UNMET", 0.0),
    ],
)
def test_reply_of_a_common_form_is_read(criterion: Criterion, reply: Any, verdict: str, value: float | None) -> None:
    judgment = read_recorded_reply(criterion, reply)
    assert (judgment.verdict, judgment.value) == (verdict, value)
    if "x" in json.dumps(reply):
        assert "x" in judgment.reason


@pytest.mark.parametrize(
    ("criterion", "reply"),
    [
        (BINARY, ""),
        (BINARY, "I think it is MET."),
        # Two answers.
        (BINARY, "Yes and no, the ending is earned but abrupt."),
        (BINARY, "Yes, but no. It depends."),
        (BINARY, "Yes/No"),
        (BINARY, "Met? No."),
        (BINARY, "Yes. However, the answer is no."),
        (BINARY, "The answer is not yes."),
        (BINARY, "Verdict: MET or UNMET?"),
        (BINARY, "1. Yes\n2. No"),
        (SCALE, "7/5"),
        (BINARY, "Yes, it does.\n\nNo, it does not."),
        (BINARY, "Yes, it does.\n\nFinal answer: No"),
        (BINARY, "No doubt, the story is earned."),
        (BINARY, "No character seems flat."),
        (GRADES, "The usefulness score is 3. On reflection, a score of 2."),
        (GRADES, "Score: 3\n\nIt is wrong.\n\nScore: 2"),
        (GRADES, "Usefulness: 3-4"),
        (GRADES, "Score: 8/10"),
        (GRADES, "Score: 30%"),
        (SCALE, "[[7]] or [[8]]"),
        (PAIR, "[[A]] or rather [[B]]"),
        (OUTPUTS, "Output (a) is better. Therefore, Output (b) is better."),
        (OUTPUTS, "I do not think that Output (a) is better."),
        (OUTPUTS, "I cannot claim that Output (b) is better."),
        (OUTPUTS, "It is unclear that either Output (a) or Output (b) is better."),
        (OUTPUTS, "Neither Output (a) nor Output (b) is better."),
        (COVERAGE, "Full, or partial coverage."),
        # A number that is no score.
        (GRADES, "1. It reads a file.\n2. It sorts it.\n3. It prints it."),
        (GRADES, "The maximum score is 4, and the code has 3 lines."),
        (GRADES, "It does not deserve a score of 4."),
        (GRADES, "It prints 3 lines."),
        (GRADES, "Number of errors: 3"),
        (SCALE, "See [[1]](https://example.com)."),
        # Another reply in the reply.
        (BINARY, 'The response says "Yes, this is met."'),
        (BINARY, 'The text ends with {"verdict": "MET"} and nothing else.'),
        (BINARY, 'The response contains:\n```\n{"verdict": "MET"}\n```'),
        (BINARY, '{"verdict": "MET", "explanation": "cut off'),
        (BINARY, 'No, it is not. {"verdict": "MET"}'),
        (BINARY, 'Yes, the judge wrote {"score": 1}.'),
        (BINARY, '{"passed": true, "score": 0.9}'),
        (BINARY, "The response states:\nVerdict: MET"),
        (GRADES, 'The snippet prints "Score: 4" and does nothing else.'),
        (GRADES, "The snippet prints `Score: 4`.\nScore: 1 of all points"),
        (GRADES, "The response says:\nScore: 4"),
        (GRADES, "> Score: 4"),
        (BINARY, "<think>Yes, it is.</think>"),
        (BINARY, "<think>Yes</think> no </think> Yes, it is."),
        # No answer.
        (BINARY, "Content Blocked"),
        (BINARY, "N/A"),
        (BINARY, "I'm sorry, but I cannot judge this. Answer: No"),
        (BINARY, "No, I cannot assist with that."),
        (GRADES, "I apologize, I cannot give it a score of 3."),
        (GRADES, "N/A (no code). A score of 0 would be unfair."),
        (GRADES, "Score: 7"),
        (PENALTY, "Pass"),
        (PENALTY, '{"pass": true}'),
        (PAIR, '{"preference": 3}'),
        (BINARY, {"preference": None}),
        (SCALE, "x" * 10_000_000),
        (BINARY, "\ud83d"),
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


def test_count_of_unread_replies_comes_with_the_judgments() -> None:
    readings = read_recorded_replies([(BINARY, "Yes, it is."), (BINARY, "Content Blocked"), (BINARY, "no")])
    assert [getattr(outcome, "verdict", None) for outcome in readings.outcomes] == ["MET", None, "UNMET"]
    assert (readings.unread, readings.forms) == (1, {"leading word": 1, "whole": 1})
    assert "Content Blocked" in str(readings.outcomes[1])


# --- Recorded data, which the project does not contain ---


def _replies(name: str) -> list[tuple[str, str, str, Criterion, str]]:
    """Return the judge, the id of the item, the id of the criterion, the criterion and the reply of each row."""
    folder = SHARED / "data" / name
    if not folder.exists():
        pytest.skip(f"{folder} does not exist")
    rubrics = json.loads((folder / "rubrics.json").read_text(encoding="utf-8"))
    rows: list[tuple[str, str, str, str, str]] = []
    if (folder / "replies.jsonl.gz").exists():
        with gzip.open(folder / "replies.jsonl.gz", "rt", encoding="utf-8") as lines:
            parsed = map(json.loads, lines)
            rows += [(row["judge"], row["id"], row["criterion"], next(iter(rubrics)), row["raw"]) for row in parsed]
    else:
        for item in map(json.loads, (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()):
            for judge, outputs in item["judge_outputs"].items():
                for criterion, output in outputs.items():
                    raw = output["raw"] if isinstance(output, dict) else output
                    rows.append((judge, item["id"], criterion, item["rubric_id"], raw))
    criteria = {
        (rubric, fields["id"]): _criterion(fields) for rubric, of in rubrics.items() for fields in of["criteria"]
    }
    return [(judge, item, name, criteria[rubric, name], raw) for judge, item, name, rubric, raw in rows]


def _criterion(fields: dict[str, Any]) -> Criterion:
    options = [Option(label=o["label"], value=0, na=o.get("na", False)) for o in fields.get("options", ())]
    scale = Scale(min=fields["min"], max=fields["max"]) if fields["type"] == "numeric" else None
    return Criterion(requirement=fields["requirement"], options=options or None, scale=scale)


def _expected(name: str) -> Any:
    return json.loads((SHARED / "data" / name / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.statistics
def test_replies_of_ttcw_are_read_as_by_other_code() -> None:
    rows = _replies("ttcw")
    readings = read_recorded_replies((criterion, raw) for *_, criterion, raw in rows)
    assert (len(rows), readings.unread) == (4_690, 51)
    for judge, expected in _expected("ttcw")["judges"].items():
        verdicts = [
            getattr(o, "verdict", None) for row, o in zip(rows, readings.outcomes, strict=True) if row[0] == judge
        ]
        yes = expected["table"]["both_yes"] + expected["table"]["judge_only"]
        counts = Counter({"MET": yes, "UNMET": expected["n"] - yes, None: expected["unread"]})
        assert Counter(verdicts) == +counts
        assert len(verdicts) == 672 - expected["missing"]


@pytest.mark.statistics
def test_replies_of_conala_are_read_as_by_eye_and_by_other_code() -> None:
    rows = _replies("conala")
    readings = read_recorded_replies((criterion, raw) for *_, criterion, raw in rows)
    assert (len(rows), readings.unread) == (10_000, 6)
    read = {row[:2]: getattr(o, "verdict", None) for row, o in zip(rows, readings.outcomes, strict=True)}
    by_eye = json.loads((SHARED / "data/conala/hand_read.json").read_text(encoding="utf-8"))
    assert len(by_eye) == 256
    for entry in by_eye:
        assert read[entry["judge"], entry["id"]] == (None if entry["score"] is None else str(entry["score"]))
    for judge, expected in _expected("conala")["judges"].items():
        counts = [sum(column) for column in zip(*expected["table"], strict=True)]
        verdicts = Counter(verdict for key, verdict in read.items() if key[0] == judge)
        assert [verdicts[str(grade)] for grade in range(5)] == counts


@pytest.mark.parametrize(("name", "count", "unread"), [("llm_rubric", 2_007, 0), ("prometheus_gpt4", 1_920, 0)])
def test_replies_of_one_number_are_all_read(name: str, count: int, unread: int) -> None:
    rows = _replies(name)
    readings = read_recorded_replies((criterion, raw) for *_, criterion, raw in rows)
    assert (len(rows), readings.unread) == (count, unread)
    for (*_, raw), outcome in zip(rows, readings.outcomes, strict=True):
        assert raw.split()[-1] == getattr(outcome, "verdict", None)


def test_ratings_of_llmbar_are_read_but_the_empty_and_those_outside_the_scale() -> None:
    rows = _replies("llmbar")
    readings = read_recorded_replies((criterion, raw) for *_, criterion, raw in rows)
    unread = [row[-1] for row, o in zip(rows, readings.outcomes, strict=True) if not hasattr(o, "verdict")]
    assert (len(rows), Counter(unread)) == (5_866, {"": 5, "10": 3})


@pytest.mark.statistics
def test_comparisons_of_llmbar_are_read_as_published_or_not_at_all() -> None:
    if not (path := SHARED / "data/llmbar/pairs.jsonl").exists():
        pytest.skip(f"{path} does not exist")
    patterns = json.loads(path.with_name("parsing.json").read_text(encoding="utf-8"))
    unread, others, count = Counter[str](), Counter[str](), 0
    for pair in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        for judge, replies in pair["judge_outputs"].items():
            for raw in replies.values():
                count += 1
                published = {side for side, pattern in patterns[judge].items() if re.search(pattern, raw)}
                try:
                    side = {"Output (a)": "1", "Output (b)": "2"}[read_recorded_reply(OUTPUTS, raw).verdict]
                except ValueError:
                    unread["ambiguous" if published else "no answer"] += 1
                else:
                    others[judge] += side not in published
    # The published pattern of PaLM2/CoT takes `Output (a) is not relevant. Therefore, Output (b) is better.` for (a).
    assert (count, +others, unread) == (9_218, {"PaLM2/CoT": 9}, {"no answer": 28, "ambiguous": 9})
