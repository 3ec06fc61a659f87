"""Criteria that are appended to the text of a rubric, and comments that never become a part of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Rubric
from rubric_integrations.formats.comments import (
    AppendError,
    CommentedEntry,
    append_criteria,
    comment_line,
    rubric_with,
    write_commented,
)

NEW: dict[str, Any] = {"name": "new", "weight": 2.0, "requirement": "Is new"}
ENTRY = CommentedEntry(NEW, ["from pair 7"])

TEXTS = [
    "- requirement: a\n",
    "- requirement: a",
    "# mine\n\n- {requirement: a, weight: 2}  # two\n# the end\n",
    "criteria:\n- requirement: a\n  weight: 2 # two\n# tail\nname: x\n",
    "criteria:\n  - {requirement: a, weight: 2}\n  # last\n",
    "name: q\ncriteria:\n  - requirement: |\n      a\n      b\n\n  - requirement: >+\n      a\n\n\nguidelines: g\n",
    "rubric:\r\n  criteria:\r\n    - requirement: a",
    "---\ncriteria:\n- requirement: a\n...\n",
    "\ufeffcriteria:\n- requirement: a\n",
    "criteria:\n- requirement: g\n  weight: 3\n  criteria:\n  - requirement: a\n    weight: 1\n",
    "sections:\n- criteria:\n  - requirement: a\n- criteria:\n  - requirement: b\n",
    "criteria:\n- &a\n  requirement: a\n  name: one\n- <<: *a\n  name: two\n",
    "criteria:\n\n\n - requirement: a\n   \n   # c\n\n\n",
    "criteria:\n- requirement: a b\n   c d\n   e #x\n# y\nname: n\n",
    'criteria:\n- requirement: "a\n\n   b"\n',
    "criteria: &all\n  - &first {requirement: a}\n  - {<<: *first, name: b}\n",
    "criteria: !!seq\n- requirement: a\n",
    "criteria:\n- requirement: a\ncases:\n- name: n\n  response: r\n  expect: {max_score: 1}\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_the_file_is_kept_byte_for_byte(text: str) -> None:
    result = append_criteria(text, [ENTRY, CommentedEntry({"requirement": "b"})])
    start = next(place for place in range(len(text), -1, -1) if result.startswith(text[:place]))
    before, after = text[:start], text[start:]
    assert result.startswith(before)
    assert result.endswith(after)
    assert "# from pair 7" in result
    assert Rubric.from_yaml(result).criteria[-2:] == Rubric.from_dict([NEW, {"requirement": "b"}]).criteria
    assert len(Rubric.from_yaml(result)) == len(Rubric.from_yaml(text)) + 2
    if "\r\n" in text:
        assert "\n" not in result.replace("\r\n", "")


@pytest.mark.parametrize(
    "text",
    [
        "criteria: [{requirement: a}]",
        '[{"requirement": "a"}]',
        "{criteria: \n [\n  {requirement: a}\n]}",
        "- &a\n  requirement: a\n- *a\n",
        "criteria: !!seq\n- # the first - one\n  requirement: a\n",
        "criteria: &all\n- requirement: a\nmetadata: {again: *all}\n",
        "requirement: a\n",
        "rubrics:\n- Is polite\n",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(AppendError, match=r"mine\.yaml: "):
        append_criteria(text, [ENTRY], "mine.yaml")


HOSTILE = [
    "a\n- requirement: evil",
    "a\r- requirement: evil",
    "a\u2028- requirement: evil",
    "a\x85- requirement: evil",
    "a\x0b\x0c\x1b[2J\x00b",
    "\ud800 half",
    "# x: &a *b !tag {[",
    "a" * 10_000,
    "\ufeff",
    "...\n---\n",
    "%YAML 1.1\n",
    "' \" | >",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_comment_is_one_line(text: str) -> None:
    line = comment_line(text)
    assert line.startswith("# ")
    assert line.isprintable()
    assert len(line) < 400
    result = append_criteria("- requirement: a\n", [CommentedEntry(NEW, [text])])
    assert len(Rubric.from_yaml(result)) == 2
    written = write_commented({"criteria": [NEW]}, [text], [[text]])
    assert Rubric.from_yaml(written) == Rubric.from_dict([NEW])


@settings(max_examples=50)
@given(st.text(min_size=1).filter(lambda text: bool(text.strip())), st.text(), st.sampled_from(TEXTS))
def test_any_requirement_and_comment_is_read_as_written(requirement: str, comment: str, text: str) -> None:
    valid = requirement.encode("utf-8", "replace").decode()
    try:
        result = append_criteria(text, [CommentedEntry({"requirement": valid}, [comment])])
    except AppendError:
        return
    assert Rubric.from_yaml(result).criteria[-1].requirement == valid


def test_rubric_with_keeps_groups_and_fields() -> None:
    rubric = Rubric.from_dict(
        {"pass_mark": 0.5, "criteria": [{"requirement": "g", "weight": 4, "criteria": [{"requirement": "a"}]}]}
    )
    extended = rubric_with(rubric, [NEW])
    assert extended.tree is not None
    assert [node.weight for node in extended.tree] == [4.0, 2.0]
    assert (extended.pass_mark, len(extended)) == (0.5, 2)
