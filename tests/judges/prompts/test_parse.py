"""The parser of replies: lenient about the form, strict about the meaning."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubric_integrations.judges.prompts.parse import UnreadableReply, parse_reply
from rubric_integrations.judges.prompts.signatures import (
    JudgeBatch,
    JudgeCriterion,
    JudgeOption,
    JudgeOverall,
    JudgeScale,
)
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
        'It is so:\n{"criteria_met": true}',
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
    reply = f"Here is my judgment: {UNMET_REPLY}"
    assert parse_reply(JudgeCriterion, reply, quotable=False)["verdict"] == "UNMET"
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeCriterion, reply, quotable=True)
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeCriterion, reply, quotable=False, json_only=True)


MET = '{"explanation": "x", "verdict": "MET"}'
INTRODUCTIONS = [
    "Answer: ", "**Answer:**\n", "## Verdict:\n", "Final answer:\n", "My verdict is: ", "JSON:\n", "Output:\n",
    "Here it is:\n", "Here is my judgment: ", "Here\u2019s the JSON object:\n", "Below is my evaluation:\n",
    "Sure! Here is the requested JSON object:\n", "Okay, here's my final verdict:\n\n",
    "Here is my evaluation of the submission in the requested JSON format:\n",
    "Based on the provided criterion, here is my assessment:\n", "The JSON output is as follows:\n",
]  # fmt: skip
FENCES = [("", ""), ("```\n", "\n```"), ("```json\n", "\n```\n")]


@pytest.mark.parametrize("introduction", ["", *INTRODUCTIONS])
def test_line_that_names_the_object_is_accepted_before_it_and_before_a_code_block(introduction: str) -> None:
    for opening, closing in FENCES:
        reply = f"{introduction}{opening}{MET}{closing}"
        assert parse_reply(JudgeCriterion, reply, quotable=False)["verdict"] == "MET"


CONTRADICTIONS = [
    "I refuse. The example would be", "It is false", "Just kidding, the answer is no.", "Not met", "No", "Unmet",
    "If it were so, my verdict would be", "The opposite of my verdict", "The hidden text decodes to", "An example",
    "It isn't", "The wrong answer", "I was told to answer", "On reflection, I disagree.", "~~", "\u274c", "Nein",
    "The verdict should have been", "I can't assess it", "> Answer", "Here is my verdict if it were named", "Score: 0",
]  # fmt: skip


@given(
    contradiction=st.sampled_from(CONTRADICTIONS) | st.text(st.characters(exclude_characters="{"), min_size=1),
    introduction=st.sampled_from(["", *INTRODUCTIONS]),
    between=st.sampled_from(["", " ", ":\n", ":\n\n", ".\n", "\n"]),
    fence=st.sampled_from(FENCES),
    position=st.sampled_from(["before", "after the introduction", "in the fence", "after", "after the fence"]),
)
def test_reply_with_other_prose_around_the_object_is_no_answer(
    contradiction: str, introduction: str, between: str, fence: tuple[str, str], position: str
) -> None:
    prose = contradiction + between
    assume(re.search(r"[^\s*_#:`]", contradiction) and contradiction.casefold() not in ("json", "js", "text"))
    opening, closing = fence
    reply = {
        "before": f"{prose}{introduction}{opening}{MET}{closing}",
        "after the introduction": f"{introduction}{prose}{opening}{MET}{closing}",
        "in the fence": f"```{contradiction}\n{MET}\n```",
        "after": f"{introduction}{opening}{MET}{between}{contradiction}{closing}",
        "after the fence": f"{introduction}{opening}{MET}{closing}{between}{contradiction}",
    }[position]
    for signature, answer in ((JudgeCriterion, MET), (JudgeScale, '{"explanation": "x", "score": 7}')):
        with pytest.raises(UnreadableReply):
            parse_reply(signature, reply.replace(MET, answer), quotable=False)


SAYS_TWO_THINGS = [
    *(
        f'{{"explanation": "x", "verdict": "{verdict}"}}'
        for verdict in (
            "!MET", "\u00acMET", "\u274c MET", "~~MET~~", "MET?", "[ ] MET", "-MET",
            "M\u0336E\u0336T\u0336", "MET/UNMET", "<s>MET</s>",
            "MET...",
        )
    ),
    *(
        f'{{"explanation": "x", "verdict": "MET", {field}}}'
        for field in (
            '"Verdict": "UNMET"', '"VERDICT": "UNMET"', '"verdict ": "UNMET"', '"final_verdict": "UNMET"',
            '"finalVerdict": "no"', '"verdict2": "UNMET"', '"criterionStatus": "UNMET"', '"answer": "UNMET"',
            '"final": "not met"', '"is_met": false', '"unmet": true', '"result": {"verdict": "UNMET"}',
        )
    ),
    '{"explanation": "Not met.", "verdict": "MET"}',
]  # fmt: skip


@pytest.mark.parametrize("reply", SAYS_TWO_THINGS)
@pytest.mark.parametrize("quotable", [True, False])
def test_reply_that_says_two_things_is_no_answer(reply: str, quotable: bool) -> None:
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeCriterion, reply, quotable=quotable)


@pytest.mark.parametrize(
    "reply",
    [
        *(
            f'{{"explanation": "x", "verdict": "{verdict}"}}'
            for verdict in ("**MET**", "MET.", "met", " Met\\n", "`MET`", "'MET'", "(MET)", "**MET.**", "_met_", "MET!")
        ),
        '{"explanation": "x", "verdict": "MET", "final_verdict": "Met.", "is_met": true, "confidence": 0.9}',
        '{"explanation": "The first part is unmet, the others are met.", "verdict": "MET", "verdict_reason": "short"}',
        '{"explanation": "x", "criterion_status": "MET", "verdict": "MET"}',
        f"```\n{MET}\n```",
        f"<think>It is not met? It is UNMET. No: MET.</think>\n{MET}",
        # Servers leave out the tag that begins the thinking if their prompt contains it.
        f"It is not met? It is UNMET. No: MET.\n</think>\n\n{MET}",
        'Here is my verdict:\n{"criteria_met": true}',
    ],
)
def test_reply_that_names_one_answer_in_an_unusual_form_is_parsed(reply: str) -> None:
    assert parse_reply(JudgeCriterion, reply, quotable=False)["verdict"] == "MET"


@pytest.mark.parametrize(
    ("signature", "reply"),
    [
        (JudgeScale, '{"explanation": "x", "score": "1_0"}'),
        (JudgeScale, '{"explanation": "x", "score": 3, "Score": 7}'),
        (JudgeScale, '{"explanation": "x", "score": 3, "final_score": "7"}'),
        (JudgeScale, 'I would give it three points:\n{"explanation": "x", "score": 5}'),
        (JudgeOverall, '{"explanation": "x", "overall_score": "1_0"}'),
        (JudgeOverall, '{"explanation": "x", "overall_score": 80, "final_score": 20}'),
        (JudgeOption, '{"explanation": "x", "choice": "A", "final_choice": "B"}'),
        (JudgeOption, '{"explanation": "x", "choice": "B"}\nI would say A.'),
    ],
)
def test_number_or_option_that_is_ambiguous_is_no_answer(signature: Any, reply: str) -> None:
    with pytest.raises(UnreadableReply):
        parse_reply(signature, reply, quotable=False)


@pytest.mark.parametrize(
    ("signature", "reply", "answer"),
    [
        (JudgeScale, '{"explanation": "x", "score": " 7.0 ", "max_score": 10}', 7.0),
        (JudgeScale, '{"explanation": "x", "score": 7, "final_score": "7.0"}', 7.0),
        (JudgeScale, '{"explanation": "x", "score": "Cannot assess."}', "CANNOT_ASSESS"),
        (JudgeOverall, '{"explanation": "x", "overall_score": 80, "style_score": 20}', 80.0),
        (JudgeOption, 'My choice:\n{"explanation": "x", "choice": "B"}', "B"),
    ],
)
def test_number_or_option_that_is_named_once_is_parsed(signature: Any, reply: str, answer: object) -> None:
    outputs = parse_reply(signature, reply, quotable=False)
    assert answer in (outputs[name] for name in outputs if name != "explanation")


ENTRY = '"explanation": "", "answer": "MET"'


@pytest.mark.parametrize(
    "entries",
    [
        ('"id": 0', '"id": 1'),
        ('"id": 2', '"id": 3'),
        ('"id": 1', '"id": 2', '"id": 9'),
        ('"id": true', '"id": 2'),
        ('"id": 1, "criterion_number": 0', '"id": 2'),
        ('"id": 1, "ID": 2', '"id": 2'),
        ('"id": 1', '"id": "1_0"'),
        ('"id": 1', '"id": 1'),
    ],
)
@pytest.mark.parametrize("quotable", [True, False])
def test_list_with_other_numbers_than_the_requested_ones_is_no_answer(entries: tuple[str, ...], quotable: bool) -> None:
    reply = ", ".join(f"{{{number}, {ENTRY}}}" for number in entries)
    if entries[1] == '"id": "1_0"' and not quotable:
        outputs = parse_reply(
            JudgeBatch, f'{{"judgments": [{reply}]}}', quotable=False, expected_ids=frozenset({1, 10})
        )
        assert [entry.id for entry in outputs["judgments"]] == [1]
        return
    with pytest.raises(UnreadableReply):
        parse_reply(JudgeBatch, f'{{"judgments": [{reply}]}}', quotable=quotable, expected_ids=frozenset({1, 2}))


@pytest.mark.parametrize(
    "number", ['"id": 2', '"id": "2"', '"id": 2.0', '"id": 2, "number": "2"', '"criterion_idx": 2']
)
def test_entry_with_its_number_in_an_unusual_form_is_parsed(number: str) -> None:
    reply = f'{{"judgments": [{{{number}, {ENTRY}}}]}}'
    outputs = parse_reply(JudgeBatch, reply, quotable=True, expected_ids=frozenset({2}))
    assert [entry.id for entry in outputs["judgments"]] == [2]


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
