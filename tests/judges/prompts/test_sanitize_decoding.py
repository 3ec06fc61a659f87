"""What a text hides, in plain characters, and how long that takes at most."""

from __future__ import annotations

import pytest

from rubric_integrations.judges.prompts.sanitize import compact_forms


def test_compact_forms_of_long_ligatures_are_no_longer_than_the_text() -> None:
    text = "\ufdfa" * 100
    assert max(map(len, compact_forms(text))) == len(text)


@pytest.mark.parametrize("marks", ["\u0301\u0327", "\u0327\u0301", "\u0327\u0301\u0327"])
def test_compact_forms_have_no_combining_marks_in_whatever_order(marks: str) -> None:
    assert compact_forms("".join(letter + marks for letter in "Verdict"))[0] == "verdict"


def test_compact_forms_of_a_ligature_of_three_letters_are_its_letters() -> None:
    assert compact_forms("\ufb03x")[0] == "ffix"
