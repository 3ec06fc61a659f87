"""What is graded of a completion: the answer, without thinking, and with what happened before it as context."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations.training.rollouts import NoAnswerError, group_of, read_completion

CALL = {"type": "function", "function": {"name": "look_up", "arguments": {"table": "margins"}}}
USER = [{"role": "user", "content": "How high?"}]


def assistant(content: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def tool(content: str) -> dict[str, Any]:
    return {"role": "tool", "name": "look_up", "content": content}


def test_conversation_with_tools_is_graded_by_its_last_answer_with_the_calls_as_context() -> None:
    completion = [assistant("", tool_calls=[CALL]), tool("8.4"), assistant("It was 8.4%.")]
    submission = read_completion(USER, completion)
    assert submission.response == "It was 8.4%."
    assert submission.query is not None
    assert all(text in submission.query for text in ("How high?", "look_up", "margins", "8.4"))
    assert submission.trajectory is not None


@pytest.mark.parametrize(
    "completion",
    [
        "",
        " \n",
        "<think>8.4?",
        "<THINK>8.4?</think> ",
        "<thinking>8.4?</thinking>",
        [],
        [assistant("")],
        [assistant(None)],
        [assistant("<think>8.4?")],
        [assistant("", reasoning_content="8.4?")],
        [assistant([{"type": "text", "text": "<think>8.4?"}])],  # pyright: ignore[reportArgumentType]
        [assistant("", tool_calls=[CALL])],
        [assistant("", tool_calls=[CALL]), tool("8.4")],
    ],
    ids=repr,
)
def test_completion_without_an_answer_is_reported_as_such(completion: Any) -> None:
    with pytest.raises(NoAnswerError):
        read_completion(USER if isinstance(completion, list) else "How high?", completion)


@pytest.mark.parametrize("begin", ["<think>hm</think>", "hm</think>\n", "<think>hm</think> <think>hm</think>\n"])
def test_thinking_is_split_from_the_answer_also_without_its_beginning(begin: str) -> None:
    for completion in (f"{begin}It was 8.4%.", [assistant(f"{begin}It was 8.4%.")]):
        submission = read_completion("How high?", completion)
        assert (submission.response, "hm" in (submission.thinking or "")) == ("It was 8.4%.", True)
        assert submission.shown_thinking is None
        assert "hm" in str(read_completion("How high?", completion, show_thinking=True).shown_thinking)


def test_thinking_of_earlier_messages_is_not_shown_to_the_judge() -> None:
    completion = [assistant("<think>secret</think>", tool_calls=[CALL]), tool("8.4"), assistant("It was 8.4%.")]
    for respond in ("last", "trajectory"):
        assert "secret" not in read_completion(USER, completion, respond=respond).model_dump_json(exclude={"thinking"})


def test_prompt_that_ends_inside_of_thinking_makes_a_completion_without_its_end_empty() -> None:
    assert read_completion("How high?<think>\n", "hm</think>It was 8.4%.").response == "It was 8.4%."
    with pytest.raises(NoAnswerError, match="no end"):
        read_completion("How high?<think>\n", "It was 8.4%, judge")
    with pytest.raises(NoAnswerError):
        read_completion(USER, [assistant("It was 8.4%")], starts_in_thinking=True)


def test_thinking_that_the_trainer_has_parsed_is_not_looked_for_in_the_text() -> None:
    message = assistant("It was 8.4%.", reasoning_content="hm")
    submission = read_completion(USER, [message], starts_in_thinking=True)
    assert (submission.response, submission.thinking) == ("It was 8.4%.", "hm")


def test_markers_inside_of_an_answer_are_part_of_it() -> None:
    text = "Write <think> first, and </think> later."
    assert read_completion("How?", text).response == text


def test_trajectory_that_ends_with_a_tool_is_graded_if_all_messages_are() -> None:
    completion = [assistant("", tool_calls=[CALL]), tool("8.4")]
    assert "look_up" in read_completion(USER, completion, respond="trajectory").response


def test_half_an_emoji_and_a_megabyte_are_read_and_more_is_refused() -> None:
    assert "ud83d" in read_completion("How high?", "8.4% \ud83d").response
    assert len(read_completion("How high?", "x" * 1_000_000).response) == 1_000_000
    with pytest.raises(ValueError, match="1,000,001"):
        read_completion("How high?", "x" * 1_000_001)


@pytest.mark.parametrize("completion", [None, 8.4, float("nan"), b"8.4", {"content": "8.4"}])
def test_completion_of_another_type_is_refused(completion: Any) -> None:
    with pytest.raises(TypeError, match="a text or a list of messages"):
        read_completion("How high?", completion)


def test_reference_and_documents_belong_to_the_submission() -> None:
    submission = read_completion("How high?", "8.4%", reference="It was 8.4%.", context=["margins.csv: 8.4"])
    assert (submission.reference, submission.context) == ("It was 8.4%.", ("margins.csv: 8.4",))


def test_group_depends_on_the_prompt_alone() -> None:
    assert group_of(USER) == group_of([dict(reversed(USER[0].items()))]) != group_of("How high?")
    assert group_of("half an emoji \ud83d") == group_of("half an emoji \ud83d")
