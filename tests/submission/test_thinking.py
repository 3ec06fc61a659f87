"""Thinking blocks: the same split in every way in, and an error where nothing is left to grade."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rubric_integrations import LengthPenalty, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.scoring import compute_length_penalty
from rubric_integrations.submission import (
    as_submission,
    normalize_to_grade_input,
    parse_thinking_output,
    read_responses,
)
from rubric_integrations.submission.inputs import as_row
from rubric_integrations.submission.thinking import split_thinking

Convert = Callable[[Any], Submission | None]


def from_jsonl(response: Any) -> Submission | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text(json.dumps({"response": response}) + "\n", encoding="utf-8")
        return next(iter(read_responses(path))).submission


WAYS_IN: dict[str, Convert] = {
    "a bare response": as_submission,
    "Submission": lambda response: Submission(response=response),
    "model_validate": lambda response: Submission.model_validate({"response": response, "query": None}),
    "a mapping in grade_many": lambda response: as_row({"query": "Q", "response": response}, 1).submission,
    "a bare response in grade_many": lambda response: as_row(response, 1).submission,
    "a row of a file": from_jsonl,
}


@pytest.mark.parametrize("convert", WAYS_IN.values(), ids=WAYS_IN)
@pytest.mark.parametrize(
    ("response", "thinking", "output"),
    [
        ("<thinking>hm</thinking>42", "hm", "42"),
        ("<think>\nhm\n</think>\n\n42", "hm", "42"),
        (" \n<THINK>hm</Think>42", "hm", "42"),
        ("<think>hm</thinking>42", "hm", "42"),
        ("<think>\n\n</think>\n\n42", None, "42"),
        ("<think>a</think><thinking>b</thinking>42", "a\n\nb", "42"),
        ("<thinking>hm</thinking><output>42</output>", "hm", "42"),
        ("<think>hm</think>42 <think>is it?</think>", "hm", "42 <think>is it?</think>"),
        ("42 <thinking>is it?</thinking>", None, "42 <thinking>is it?</thinking>"),
        ("<thinker>hm</thinker>42", None, "<thinker>hm</thinker>42"),
        ("  42 ", None, "  42 "),
        ("<output>42</output>\n", None, "42"),
        ("<output>42", None, "42"),
        ("<output>good</output> INSULT", None, "<output>good</output> INSULT"),
        ("<think>hm</think><output>a</output><output>b</output>", "hm", "<output>a</output><output>b</output>"),
        ({"thinking": "hm", "output": "42"}, "hm", "42"),
        ({"thinking": None, "output": "<think>hm</think>42"}, "hm", "42"),
        ({"thinking": "own", "output": "<think>hm</think>42"}, "own", "<think>hm</think>42"),
        ({"output": "42"}, None, "42"),
    ],
)
def test_response_with_thinking_is_split_in_every_way_in(
    convert: Convert, response: Any, thinking: str | None, output: str
) -> None:
    submission = convert(response)
    assert submission is not None
    assert (submission.thinking, submission.response) == (thinking, output)


def test_last_answer_of_a_conversation_is_split() -> None:
    chat = [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "<think>hm</think>42"}]
    for submission in (
        as_submission(chat),
        Submission.from_messages(chat),
        Submission.model_validate({"response": chat}),
    ):
        assert (submission.thinking, submission.response) == ("hm", "42")
    assert normalize_to_grade_input(chat) == {"thinking": "hm", "output": "42"}


def test_explicit_thinking_leaves_the_response_alone() -> None:
    submission = Submission(response="<thinking>a</thinking>42", thinking="own")
    assert (submission.thinking, submission.response) == ("own", "<thinking>a</thinking>42")
    assert as_row({"thinking": "own", "response": "<think>a</think>42"}, 1).submission == Submission(
        response="<think>a</think>42", thinking="own"
    )


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ("<think>I was cut off", r"^`response` has no answer after its `<think>` block, which is not closed .*cut off"),
        ("<THINKING> \n", r"^`response` has no answer after its `<thinking>` block, which is not closed"),
        ("<think>hm</think> \n", r"^`response` has no answer after its `<think>` block: there is nothing to grade$"),
        ("<think>a</think><thinking>b", r"^`response` has no answer after its `<thinking>` block, which is not closed"),
        (
            "<think>a</think><output> </output>",
            r"^`response` has no answer after its `<think>` block: there is nothing",
        ),
        ("<output> </output>", r"^`response` is empty: there is nothing to grade$"),
    ],
)
def test_thinking_without_an_answer_is_refused(response: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        as_submission(response)
    with pytest.raises(ValueError, match="nothing to grade"):
        Submission(response=response)
    for item in (response, {"response": response}):
        row = as_row(item, 3)
        assert row.submission is None
        assert str(row.error).startswith("row 3: `response` ")


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ({"answer": "42"}, r"`response` has the unknown keys \['answer'\]: use `thinking` and `output`"),
        ({"output": 42}, "Input should be a valid string"),
    ],
)
def test_submission_whose_response_is_another_dictionary_is_refused(response: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Submission(response=response)
    assert as_row({"response": response}, 1).submission == Submission(response="42")


def test_thinking_in_two_places_is_refused() -> None:
    with pytest.raises(ValueError, match="`thinking` of its own"):
        Submission.model_validate({"response": {"thinking": "a", "output": "42"}, "thinking": "b"})


def test_reward_of_a_thought_that_is_not_an_answer_is_the_same_everywhere() -> None:
    rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"contains": "42"}}])
    text = "<think>42? No.</think>I do not know."
    grader = PerCriterionGrader("offline")
    scores = [graded.score for graded in grade_many([text, {"query": "Q", "response": text}], rubric, grader)]
    assert [*scores, rubric.grade_sync(text, grader).score] == [0.0, 0.0, 0.0]


def test_length_penalty_counts_an_unclosed_block_as_thinking() -> None:
    settings = LengthPenalty(free_budget=0, max_cap=4, penalty_at_cap=4.0, exponent=1.0, penalty_type="OUTPUT_ONLY")
    assert compute_length_penalty("<think>a b c", settings) == 0.0
    assert compute_length_penalty("<think>a b</think>c", settings) == 1.0


MARKERS = ["<think>", "</think>", "<thinking>", "</THINKING>", "<output>", "</output>", "a", " ", "\n"]
MARKED_TEXTS = st.lists(st.sampled_from(MARKERS), max_size=12).map("".join)


@given(MARKED_TEXTS)
@example("<output> <output>x</output>")
@example("<output><think>a</think>b</output>")
@example("<think></think><think>a")
def test_split_response_is_split_once_and_loses_no_text(text: str) -> None:
    parts = split_thinking(text)
    if not parts.thinking:
        assert split_thinking(parts.output).output == parts.output
    assert (parts.thinking + parts.output).count("a") == text.count("a")
    assert parts.output in text
    if parts.output.strip():
        submission = Submission(response=text)
        assert Submission.model_validate(submission.model_dump()) == submission


@pytest.mark.parametrize("text", ["<thinking>", "<think></think>", "<output>", "</think>", "<think><output>", "<", " "])
@pytest.mark.parametrize("split", [split_thinking, parse_thinking_output])
def test_split_of_a_megabyte_takes_linear_time(text: str, split: Callable[[str], object]) -> None:
    start = time.process_time()
    split(text * (1_000_000 // len(text)))
    assert time.process_time() - start < 2
