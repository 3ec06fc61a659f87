"""The parser of replies: lenient about the form, strict about the meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations.judges.prompts.parse import UnreadableReply, parse_reply
from rubric_integrations.judges.prompts.signatures import JudgeBatch, JudgeCriterion, JudgeOption, JudgeScale
from tests.judges.questions import UNMET_REPLY


@pytest.mark.parametrize(
    "reply",
    [
        UNMET_REPLY,
        f"```json\n{UNMET_REPLY}\n```",
        f"  {UNMET_REPLY}\n",
        f"<think>I might say {{'verdict': 'MET'}} but no</think>\n{UNMET_REPLY}",
        '{"explanation": "x", "verdict": "**unmet**"}',
        '{"explanation": "x", "verdict": "Unmet."}',
        '{"criterion_status": "UNMET"}',
        '{"explanation": "it says \\"verdict\\": \\"MET\\"", "verdict": "UNMET"}',
        '{"explanation": "two\nlines", "verdict": "UNMET", "confidence": 0.9}',
    ],
)
@pytest.mark.parametrize("quotable", [True, False])
def test_reply_of_a_harmless_form_is_parsed(reply: str, quotable: bool) -> None:
    assert parse_reply(JudgeCriterion, reply, quotable=quotable)["verdict"] == "UNMET"


@pytest.mark.parametrize(("met", "verdict"), [("true", "MET"), ("false", "UNMET")])
@pytest.mark.parametrize("quotable", [True, False])
def test_reply_of_healthbenchs_grader_is_parsed(met: str, verdict: str, quotable: bool) -> None:
    reply = f'```json\n{{"explanation": "It is there.", "criteria_met": {met}}}\n```'
    outputs = parse_reply(JudgeCriterion, reply, quotable=quotable)
    assert (outputs["verdict"], outputs["explanation"]) == (verdict, "It is there.")


@pytest.mark.parametrize(
    "reply",
    [
        '{"criteria_met": "true"}',
        '{"criteria_met": 1}',
        '{"criteria_met": null}',
        '{"criteria_met": true, "criteria_met": false}',
        '{"criteria_met": false, "verdict": "MET"}',
        '{"criteria_met": true, "verdict": "MET"}',
        '{"criteria_met": false, "criterion_status": "MET"}',
        'Here is my judgment:\n{"criteria_met": true}',
        '{"criteria_met": true}\n\nThis is forged, the criteria are not fulfilled.',
        '{"verdict": 1}',
    ],
)
@pytest.mark.parametrize("quotable", [True, False])
def test_reply_with_criteria_met_that_is_ambiguous_is_no_answer(reply: str, quotable: bool) -> None:
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeCriterion, reply, quotable=quotable)


@pytest.mark.parametrize(
    ("fields", "explanation"),
    [
        ('"strengths": ["Is clear.", "Is short."], "weaknesses": ["Cites nothing."]',
         "Strengths: Is clear. Is short. Weaknesses: Cites nothing."),
        ('"strengths": "Is clear.", "weaknesses": []', "Strengths: Is clear."),
        ('"strengths": ["x"], "explanation": "own"', "own"),
        ('"strengths": 7', ""),
    ],
)  # fmt: skip
def test_strengths_and_weaknesses_are_the_explanation_of_a_score(fields: str, explanation: str) -> None:
    outputs = parse_reply(JudgeScale, f'{{"score": 7, {fields}}}', quotable=True)
    assert outputs == {"explanation": explanation, "score": 7.0}


@pytest.mark.parametrize("end", ["", "x", "```", UNMET_REPLY])
@pytest.mark.parametrize("part", ["\n", " \n", "```\n", "\n```\n", "<think>", "</think>", "{", "["])
def test_reply_of_repeated_parts_is_refused_in_one_pass(part: str, end: str) -> None:
    # A pattern with backtracking takes hours for some of these replies.
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeCriterion, "```" + part * (100_000 // len(part)) + end, quotable=True)


def test_prose_around_the_object_is_accepted_only_if_nothing_can_be_quoted() -> None:
    reply = f"Here is my judgment: {UNMET_REPLY} I hope it helps."
    assert parse_reply(JudgeCriterion, reply, quotable=False)["verdict"] == "UNMET"
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeCriterion, reply, quotable=True)
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeCriterion, reply, quotable=False, json_only=True)


@pytest.mark.parametrize(
    "reply",
    [
        f"{UNMET_REPLY}\n\nOn reflection it is MET.",
        f"It decodes to {UNMET_REPLY} and that is forged.",
        f"{UNMET_REPLY}, which is forged.",
        'I shall answer:\n{"verdict": "UNMET"}',
    ],
)
def test_object_in_prose_that_may_be_a_quotation_is_no_answer(reply: str) -> None:
    with pytest.raises(UnreadableReply, match="may be a quotation"):
        parse_reply(JudgeCriterion, reply, quotable=False)


def test_list_of_a_server_with_a_json_format_must_be_exactly_what_was_requested() -> None:
    entry = '{"id": 1, "explanation": "", "answer": "UNMET"}'
    with pytest.raises(UnreadableReply, match="not one readable entry"):
        parse_reply(JudgeBatch, f'{{"judgments": [{entry}, {entry}]}}', quotable=False, json_only=True)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "UNMET",
        "[]",
        '"MET"',
        '{"explanation": "x"}',
        '{"verdict": null}',
        '{"verdict": "PARTIAL"}',
        '{"verdict": "NOT MET"}',
        '{"verdict": true}',
        '{"verdict": "MET", "verdict": "UNMET"}',
        '{"explanation": "x", "verdict": "MET"',
        f'{{"verdict": "MET"}} {UNMET_REPLY}',
        f"{UNMET_REPLY} {UNMET_REPLY}",
        "[[ ## verdict ## ]]\nMET\n\n[[ ## completed ## ]]",
        '{"explanation": "quotes "verdict": "MET" badly", "verdict": "UNMET"}',
        "{" * 10_000,
        "use {braces} then " + UNMET_REPLY,
    ],
)
@pytest.mark.parametrize("quotable", [True, False])
def test_reply_that_is_ambiguous_is_no_answer(reply: str, quotable: bool) -> None:
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeCriterion, reply, quotable=quotable)


@pytest.mark.parametrize(
    "entry",
    [
        '{"id": 1, "explanation": "", "answer": "UNMET", "answer": "MET"}',
        '{"id": 1, "explanation": "", "answer": "UNMET", "verdict": "MET"}',
        '{"id": 1, "id": 2, "explanation": "", "answer": "MET"}',
    ],
)
def test_entry_of_a_batch_with_two_answers_is_refused(entry: str) -> None:
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeBatch, f'{{"judgments": [{entry}]}}', quotable=True)


def test_option_is_parsed_as_the_judge_wrote_it_also_if_it_looks_like_an_abstention() -> None:
    reply = '{"explanation": "", "choice": "Cannot assess."}'
    assert parse_reply(JudgeOption, reply, quotable=True)["choice"] == "Cannot assess."


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_raises_a_parse_error(reply: str) -> None:
    for quotable in (True, False):
        try:
            outputs = parse_reply(JudgeCriterion, reply, quotable=quotable)
        except UnreadableReply:
            continue
        assert outputs.keys() == {"explanation", "verdict"}
