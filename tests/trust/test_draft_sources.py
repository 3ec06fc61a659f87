"""The data of a draft: what is read, what is refused, and that no group is in two of the three parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations.submission import Submission
from rubric_integrations.trust.draft_sources import (
    PARTS,
    AnswerPair,
    LabelledAnswer,
    pair_answers,
    read_examples,
    read_feedback,
    read_pairs,
    sample_groups,
    split_source,
)
from tests.trust.planted_pairs import planted_pairs

TEXTS = st.sampled_from([f"text {number}" for number in range(12)])
PAIRS = st.lists(
    st.tuples(st.sampled_from(["", "q1", "q2", "Q1 "]), TEXTS, TEXTS).filter(lambda pair: pair[1] != pair[2]),
    min_size=1,
    max_size=30,
)


def made(rows: list[tuple[str, str, str]]) -> list[AnswerPair]:
    return [
        AnswerPair(
            id=str(number),
            better=Submission(response=better, query=query or None),
            worse=Submission(response=worse, query=query or None),
        )
        for number, (query, better, worse) in enumerate(rows)
    ]


@given(PAIRS, st.integers(0, 5))
def test_no_query_and_no_text_is_in_two_parts(rows: list[tuple[str, str, str]], seed: int) -> None:
    split = split_source(made(rows), seed)
    parts: dict[str, set[str]] = {}
    for (query, better, worse), part in zip(rows, split.parts, strict=True):
        for key in (better, worse, *([query.strip().casefold()] if query else [])):
            parts.setdefault(key, set()).add(part)
    assert {len(own) for own in parts.values()} == {1}
    assert "propose" in split.parts
    assert sorted(place for part in PARTS for place in split.rows(part)) == list(range(len(rows)))


@given(PAIRS)
def test_order_of_rows_does_not_change_their_parts(rows: list[tuple[str, str, str]]) -> None:
    forward, backward = split_source(made(rows)).parts, split_source(made(rows[::-1])).parts
    assert forward == backward[::-1]


def test_split_has_its_shares_and_later_rows_move_no_earlier_ones() -> None:
    pairs = read_pairs(planted_pairs(2_000))
    split = split_source(pairs[:1_500], seed=3)
    shares = [split.parts.count(part) / 1_500 for part in PARTS]
    assert shares == pytest.approx([0.3, 0.35, 0.35], abs=0.04)
    assert split_source(pairs, seed=3).parts[:1_500] == split.parts
    assert split_source(pairs[:1_500], seed=4).parts != split.parts


def test_further_answer_to_a_query_does_not_move_it() -> None:
    for number in range(30):
        rows = [(f"q{number}", "a", "b")]
        assert set(split_source(made([*rows, (f"q{number}", "0", "1")])).parts) == set(split_source(made(rows)).parts)


def test_sample_takes_complete_groups() -> None:
    pairs = read_pairs([{**pair, "query": f"q{number // 3}"} for number, pair in enumerate(planted_pairs(90))])
    drawn = sample_groups(pairs, 31, seed=1)
    assert len(drawn) == 30
    assert {place // 3 for place in drawn} == {place // 3 for place in drawn[::3]}
    assert drawn != sample_groups(pairs, 31, seed=2)
    assert sample_groups(pairs, 90) == list(range(90))


def test_pairs_are_read_under_the_names_of_preference_data(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "6 x 7?", "chosen": [{"role": "assistant", "content": "42"}], "rejected": "41", "reason": "right"},
        {"id": "b", "query": "q", "better": "one", "worse": "two", "source": "x"},
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    pairs = read_pairs(path)
    assert [(pair.id, pair.better.response, pair.worse.response, pair.reason) for pair in pairs] == [
        ("1", "42", "41", "right"),
        ("b", "one", "two", ""),
    ]
    assert (pairs[0].better.query, pairs[1].worse.query) == ("6 x 7?", "q")
    assert read_pairs(pairs) == pairs


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"query": "q", "better": "a"}], "has no `worse` or `rejected`"),
        ([{"better": "a", "worse": " a "}], "two equal answers"),
        (["text"], "is str and not an object"),
        ([{"better": "a", "worse": "b", "reason": 3}], "`reason` that is 3"),
        ({"better": "a", "worse": "b"}, "is one row: put it into a list"),
        ([{"better": "a", "worse": " "}], "row 1"),
    ],
)
def test_rows_that_are_no_pairs_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_pairs(rows)


def test_file_that_is_missing_or_broken_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none.jsonl: cannot be read"):
        read_pairs(tmp_path / "none.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"better": "a", "worse": "b"}\n{"better": "a"}\n')
    with pytest.raises(ValueError, match=r"bad.jsonl:2: has no `worse`"):
        read_pairs(str(tmp_path / "bad.jsonl"))


@pytest.mark.parametrize(
    ("label", "expected"), [("good", 1.0), ("FAIL", 0.0), (True, 1.0), (0.25, 0.25), (0, 0.0), (None, None)]
)
def test_labels_are_read_in_several_forms(label: Any, expected: float | None) -> None:
    (row,) = read_feedback([{"response": "a", "label": label, "comment": "why"}])
    assert (row.label, row.reason) == (expected, "why")


@pytest.mark.parametrize("label", [5, -1, "ok", float("nan"), float("inf"), "4"])
def test_label_on_another_scale_is_refused(label: Any) -> None:
    with pytest.raises(ValueError, match="has the `rating`"):
        read_feedback([{"response": "a", "rating": label}])


def test_report_has_a_reason_and_no_answer() -> None:
    (row,) = read_feedback([{"id": "bug", "reason": "The total is wrong."}])
    assert row == LabelledAnswer(id="bug", reason="The total is wrong.")
    with pytest.raises(ValueError, match="has no `response`"):
        read_feedback([{"label": "bad"}])
    with pytest.raises(ValueError, match="neither a `label` nor a `reason`"):
        read_feedback([{"response": "a"}])


def test_answers_are_paired_within_their_group_first() -> None:
    rows = [{"response": f"{name}{label}", "label": label} for name in "ab" for label in (0, 1)]
    pairs, groups = pair_answers(read_feedback([*rows, {"response": "c", "label": 1}]), [0, 0, 1, 1, 2])
    assert [(pair.better.response, pair.worse.response) for pair in pairs] == [("a1", "a0"), ("b1", "b0")]
    assert groups == [0, 1]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), max_size=30))
def test_each_answer_is_in_one_pair_with_a_lower_label(labels: list[float | None]) -> None:
    answers = [
        LabelledAnswer(id=str(number), submission=Submission(response=f"{number}"), label=label, reason="r")
        for number, label in enumerate(labels)
    ]
    pairs, groups = pair_answers(answers, list(range(len(labels))))
    used = [each.response for pair in pairs for each in (pair.better, pair.worse)]
    assert len(set(used)) == len(used) == 2 * len(groups)
    for pair in pairs:
        assert (labels[int(pair.better.response)] or 0.0) > (labels[int(pair.worse.response)] or 0.0)


def test_pairs_that_join_two_groups_are_one_group() -> None:
    rows = [{"response": str(n), "label": label} for n, label in enumerate([0, 0, 1, 1])]
    assert pair_answers(read_feedback(rows), [0, 0, 1, 1])[1] == [0, 0]


def test_examples_are_one_answer_or_several() -> None:
    assert [row.id for row in read_examples(["one", {"id": "x", "response": "two"}])] == ["1", "x"]
    for nothing in ([], " ", [""]):
        with pytest.raises(ValueError, match="`example`"):
            read_examples(nothing)
