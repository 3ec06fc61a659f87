"""Every character of a step has a numbered line, by which it is searched and copied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations.submission import Step, ToolCall
from rubric_integrations.submission.step_lines import (
    LINE_CHARS,
    count_lines,
    cut_step,
    fold_search,
    matching_lines,
    step_fields,
)

TEXTS = st.text(alphabet=st.sampled_from('ab \n\t\x00é"ß😀\u2028'), max_size=60)
LONG_TEXTS = st.text(alphabet=st.sampled_from("a \x00\n"), min_size=LINE_CHARS - 10, max_size=LINE_CHARS * 4)
CALLS = st.builds(
    ToolCall,
    name=st.sampled_from(["bash", "x" * 200, "\x00\n"]),
    arguments=st.one_of(st.none(), st.just({"a": 1}), TEXTS),
    result=st.one_of(st.none(), TEXTS, LONG_TEXTS),
    is_error=st.booleans(),
)
STEPS = st.builds(
    Step, role=st.sampled_from(["user", "tool"]), text=TEXTS, calls=st.lists(CALLS, max_size=3).map(tuple)
)


@given(STEPS, st.data())
def test_search_finds_a_piece_of_each_field_in_the_line_where_it_begins(step: Step, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(list(step_fields(step))))
    start = data.draw(st.integers(0, len(field.text)))
    piece = field.text[start : start + data.draw(st.integers(1, 150))]
    if not (wanted := fold_search(piece)):
        return
    lines = matching_lines(step, wanted)
    assert lines, (piece, wanted)
    assert set(lines) <= set(range(1, count_lines(step) + 1))


@given(STEPS, TEXTS)
def test_search_finds_nothing_else(step: Step, text: str) -> None:
    wanted = fold_search(text)
    fields = [fold_search(field.text) for field in step_fields(step)]
    if wanted:
        assert bool(matching_lines(step, wanted)) == any(wanted in field for field in fields)


@given(st.text(alphabet=st.sampled_from('a \n\t"\\u0é\x01'), max_size=LINE_CHARS * 3), st.data())
def test_search_finds_a_piece_of_an_argument_as_the_agent_wrote_it(value: str, data: st.DataObject) -> None:
    step = Step(role="assistant", text="", calls=(ToolCall(name="bash", arguments={"command": value}),))
    start = data.draw(st.integers(0, len(value)))
    if wanted := fold_search(value[start : start + data.draw(st.integers(1, 50))]):
        lines = matching_lines(step, wanted)
        assert lines
        assert set(lines) <= set(range(1, count_lines(step) + 1))


def test_search_names_the_line_of_a_match_in_an_escaped_text() -> None:
    command = 'x"' * LINE_CHARS + '\necho "rm -rf /"\nls'
    step = Step(role="assistant", text="", calls=(ToolCall(name="bash", arguments={"command": command}, result="{}"),))
    (line,) = matching_lines(step, fold_search('echo "rm -rf /" ls'))
    text = next(step_fields(step)).text
    assert line == text.index("echo") // LINE_CHARS + 1
    assert matching_lines(step, 'echo \\"rm') == [line]


def test_search_reads_texts_of_any_length_in_one_pass() -> None:
    text = "a " * 200_000 + "Needle\nin  the" + " a" * 200_000
    step = Step(role="tool", text=text)
    assert matching_lines(step, "needle in the") == [1001]
    assert matching_lines(step, "a " * 60 + "b") == []


def test_gap_in_one_step_is_stated_between_its_lines() -> None:
    assert cut_step(Step(role="user", text="a\nb\nc"), [(1, 1), (3, 3)]).text == "a\n[line 2 not shown]\nc"
