"""The response in the text of a rollout."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations.submission.thinking import response_of, split_completion

PROMPT = (
    "<|im_start|>system\nYou are brief.<|im_end|>\n<|im_start|>user\n6 x 7?  Think.<|im_end|>\n<|im_start|>assistant\n"
)


@given(prompt=st.text(), response=st.text(alphabet=st.characters(exclude_characters="<|>/")))
def test_response_is_what_follows_the_prompt_up_to_its_last_white_space(prompt: str, response: str) -> None:
    assert response_of(prompt + response, prompt) == response.rstrip()


@pytest.mark.parametrize(
    "end",
    ["<|im_end|>", "<|im_end|>\n", "</s>", "<|eot_id|>", "<|endoftext|><|endoftext|>", "<end_of_turn>\n",
     "<eos><pad><pad>", "<｜end▁of▁sentence｜>", "<|end_of_text|>", "<|return|>"],
)  # fmt: skip
def test_special_tokens_at_the_end_are_removed_and_those_before_are_kept(end: str) -> None:
    assert response_of(f"{PROMPT}It is 42.{end}", PROMPT) == "It is 42."
    assert response_of(f"{PROMPT}It{end} is 42.", PROMPT) == f"It{end} is 42."
    assert response_of(f"{PROMPT}{end}", PROMPT) == ""


def test_prompt_that_was_cut_at_its_beginning_is_recognized_by_its_end() -> None:
    assert response_of(PROMPT[30:] + "It is 42.<|im_end|>", PROMPT) == "It is 42."


def test_prompt_whose_white_space_was_changed_is_recognized() -> None:
    squeezed = re.sub(r"\s+", " ", PROMPT)
    assert response_of(f" {squeezed} It is 42.", PROMPT).strip() == "It is 42."


@pytest.mark.parametrize(
    "query", ["", "It is 42.", PROMPT[:-20], "6 x 7? It is 42.", "\n", PROMPT.replace("6", "5") + "42"]
)
def test_text_without_its_prompt_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match="does not begin with"):
        response_of(query, PROMPT)


@pytest.mark.sizes
@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, " " * 1_000_000, "<|" * 500_000, "\n<|im_end|>" * 90_000, "ab" * 500_000]
)
def test_texts_of_a_megabyte_take_no_quadratic_time(text: str) -> None:
    # With a quadratic time, each of these takes minutes.
    response = response_of(PROMPT + text, PROMPT)
    assert response == ("" if text.endswith((" ", "<|im_end|>")) else text)
    assert response_of(text + "x", text) == "x"
    assert response_of(text[1:] + "x", "z" + text) == "x"  # the prompt was cut at its beginning
    for prompt in (text + "y", "y" + text + "y"):
        with pytest.raises(ValueError, match="does not begin with"):
            response_of(text, prompt)


def test_thinking_that_the_prompt_has_begun_is_no_part_of_the_answer() -> None:
    response = response_of(f"{PROMPT}<think>\n6 x 7 is 42</think>It is 42.", f"{PROMPT}<think>\n")
    assert response == "<think>\n6 x 7 is 42</think>It is 42."
    assert split_completion(response).output == "It is 42."
    assert not split_completion(response_of(f"{PROMPT}<think>\nlet me see", f"{PROMPT}<think>\n")).output
