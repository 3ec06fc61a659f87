"""The steps of `dspy.ReAct` and `dspy.ReActV2` belong to the submission."""

from __future__ import annotations

from typing import Any

import dspy
import pytest

from rubric_integrations import PerCriterionGrader, Rubric, Submission
from rubric_integrations.dspy import MisnamedField, RubricMetric
from tests.submission.conversations import CHAT, parsed_lines

RUBRIC = Rubric.from_dict([{"weight": 1, "requirement": "States 17.2%", "check": {"contains": "17.2%"}}])
SIGNATURE: Any = "question -> answer"
EXAMPLE = dspy.Example(question="What was the margin?").with_inputs("question")


def look(year: int) -> str:
    """Return the margin of a year."""
    if year > 2026:
        raise ValueError("no such year")
    return "17.2%"


def graded_submissions(*predictions: Any, **settings: Any) -> list[Submission]:
    """Return the submissions that one metric passes to its grader; a cached one is missing."""
    submissions: list[Submission] = []

    class RecordingGrader(PerCriterionGrader):
        async def judge(self, rubric: Rubric, submission: Submission) -> Any:
            submissions.append(submission)
            return await super().judge(rubric, submission)

    metric = RubricMetric(RUBRIC, grader=RecordingGrader(judge="offline"), **settings)
    for prediction in predictions:
        metric(EXAMPLE, prediction)
    return submissions


def react(*years: int) -> dspy.Prediction:
    """Run a real `dspy.ReAct` that looks these years up, and then answers."""
    turns = [(f"Look up {year}.", "look", f'{{"year": {year}}}') for year in years] + [("Done.", "finish", "{}")]
    replies = [dict(zip(("next_thought", "next_tool_name", "next_tool_args"), turn, strict=True)) for turn in turns]
    answer = {"reasoning": "It is there.", "answer": "It was 17.2%."}
    lm: Any = dspy.utils.DummyLM([*replies, answer])
    with dspy.context(lm=lm):
        return dspy.ReAct(SIGNATURE, tools=[look])(question="What was the margin?")


def test_react_prediction_has_its_trajectory_beside_the_answer() -> None:
    (submission,) = graded_submissions(react(2032, 2024))
    assert (submission.response, submission.show_trajectory) == ("It was 17.2%.", "if_needed")
    assert submission.trajectory is not None
    assert [(call.name, call.arguments, call.is_error) for call in submission.trajectory.calls] == [
        ("look", {"year": 2032}, True),
        ("look", {"year": 2024}, False),
    ]
    assert "no such year" in (submission.trajectory.calls[0].result or "")
    assert submission.trajectory.steps[1].text == "Look up 2024."


def test_react_prediction_with_respond_trajectory_is_graded_with_its_answer() -> None:
    submission, empty = graded_submissions(
        react(2024), dspy.Prediction(trajectory={}, answer="17.2%"), respond="trajectory"
    )
    assert submission.show_trajectory == "as_response"
    lines = parsed_lines(submission.response)
    assert [(line["step"], line["content"]) for line in lines] == [
        (1, "Look up 2024."),
        (2, "Done."),
        (3, "It was 17.2%."),
    ]
    assert parsed_lines(empty.response) == [{"step": 1, "role": "assistant", "content": "17.2%"}]
    with pytest.raises(MisnamedField, match="neither messages nor the trajectory of an agent"):
        graded_submissions(dspy.Prediction(answer="17.2%"), respond="trajectory")


def test_react_v2_prediction_has_its_trajectory() -> None:
    tool_calls = {"tool_calls": [{"name": "look", "args": {"year": 2024}}, {"name": "look", "args": {"year": 2032}}]}
    submit = {"tool_calls": [{"name": "submit", "args": {"answer": "It was 17.2%."}}]}
    lm: Any = dspy.utils.DummyLM(
        [{"next_thought": "Look.", "tool_calls": calls} for calls in (tool_calls, submit)], adapter=dspy.JSONAdapter()
    )
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        prediction = dspy.ReActV2(SIGNATURE, tools=[look])(question="What was the margin?")
    (submission,) = graded_submissions(prediction)
    assert submission.response == "It was 17.2%."
    assert submission.trajectory is not None
    roles = [(step.role, step.text, len(step.calls)) for step in submission.trajectory.steps]
    assert roles == [
        ("user", "What was the margin?", 0),
        ("assistant", "Look.", 2),
        ("assistant", "Look.", 1),
        ("assistant", "It was 17.2%.", 0),
    ]
    assert [call.is_error for call in submission.trajectory.calls] == [False, True, False]


def test_prediction_with_another_trajectory_is_a_new_grade() -> None:
    trajectories: list[Any] = [CHAT[:1], CHAT[:2], CHAT[:2], {"code_output_0": "42"}]
    predictions = [dspy.Prediction(trajectory=trajectory, answer="17.2%") for trajectory in trajectories]
    submissions = graded_submissions(*predictions)
    counts = [len(submission.trajectory.steps) if submission.trajectory else None for submission in submissions]
    assert counts == [1, 2, None]
