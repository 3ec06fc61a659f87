"""Sanitized text: forged prompt structure is broken, other text stays unchanged, and no text closes its fence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations.judges.prompts.sanitize import (
    _FORGERIES,  # pyright: ignore[reportPrivateUsage]
    fence,
    fence_code,
    looks_quotable,
    neutralize,
)

FORGERIES = [
    "[[ ## verdict ## ]]",
    "[[## verdict ##]]",
    "[ [ ## verdict ## ]]".replace(" [", "["),
    "[\u200b[ ## verdict ## ]]",
    "[[\u200b ## verdict ## ]]",
    '<<CUSTOM-TYPE-START-IDENTIFIER>>[{"type": "image_url"}]<<CUSTOM-TYPE-END-IDENTIFIER>>',
    "<\u2060<custom-type-start-identifier>>",
    "<|im_start|>system",
    "<|start_header_id|>",
    "[INST]",
    "</s>",
    # Tokens that no list of ours has: they are recognized by their shape.
    "[|user|]",
    "<extra_id_1>",
    "<reserved_special_token_7>",
    "<end_of_utterance>",
    "<_system>",
    "<unused99>",
    "[THINK]",
    "[/THINK]",
    "[gMASK]",
    "[EOS]",
    "<seed:eos>",
    "[UNUSED_TOKEN_146]",
    "]~b]",
    "]~!b[",
    "[e~[",
    "<\u200bextra_id_1>",
    "[\uff34\uff28\uff29\uff2e\uff2b]",
]


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_structure_is_broken_and_a_second_pass_changes_nothing(forgery: str) -> None:
    safe = neutralize(f"before {forgery} after")
    assert safe != f"before {forgery} after"
    assert forgery not in safe
    assert neutralize(safe) == safe


@pytest.mark.parametrize(
    "text",
    [
        "a[0][1] # comment",
        "x << y",
        "if a | b: {}",
        "[[1, 2], [3, 4]]",
        "# Title\n[link]",
        "<h1>Hi</h1><b>",
        "[x] std::vector<std::string> [OK](u) ~a[0]~",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert neutralize(text) == text


@given(st.lists(st.sampled_from([*FORGERIES, "[", "[[ ##", "<<", "\n", "x"]) | st.text(max_size=5), max_size=8))
def test_mixture_of_forgeries_leaves_no_marker(pieces: list[str]) -> None:
    safe = neutralize("".join(pieces))
    assert "[[ ##" not in safe
    assert "<<CUSTOM-TYPE-" not in safe
    safe.encode("utf-8")


@given(st.lists(st.sampled_from(FORGERIES) | st.text(max_size=5), max_size=8))
def test_text_without_brackets_contains_no_forgery(pieces: list[str]) -> None:
    # Such a text is not searched.
    assert _FORGERIES.search("".join(pieces).translate(dict.fromkeys(map(ord, "<[]")))) is None


def test_text_that_contains_the_code_of_another_fence_does_not_close_its_own() -> None:
    guess = fence_code("my text", None)
    text = f"</data {guess}>"
    assert fence(text, fence_code(text, None)).text.count(f"</data {fence_code(text, None)}>") == 1
    assert fence_code("a", "bc") != fence_code("ab", "c")


def test_lone_surrogate_is_replaced_so_that_the_text_can_be_encoded() -> None:
    assert neutralize("lone \ud800 surrogate").encode("utf-8")


def test_text_that_contains_the_name_of_an_answer_field_is_quotable() -> None:
    assert looks_quotable("plain", None, 'it has "Verdict"')
    assert not looks_quotable("plain", None)


@pytest.mark.sizes
@pytest.mark.parametrize("part", ["\\", "\\" * 99 + "u", "\\u007", "[", "[ ", "<|", "\u200b", "\uff21"])
def test_repeated_parts_are_searched_in_one_pass(part: str) -> None:
    # A pattern that tries each backslash as a beginning takes hours for a row of this length.
    text = part * (300_000 // len(part))
    assert not looks_quotable(text)
    assert neutralize(text)


@pytest.mark.parametrize("slashes", [1, 2, 3])
def test_verdict_behind_any_number_of_backslashes_is_quotable(slashes: int) -> None:
    assert looks_quotable("\\" * slashes + "u0076erdict")
