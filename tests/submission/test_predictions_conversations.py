"""Conversations in the fields of DSPy examples and predictions."""

from __future__ import annotations

import json
from typing import Any

import dspy
import pytest
from langchain_core.messages import AIMessage, HumanMessage

from rubric_integrations import Criterion, Fields, PerCriterionGrader, Rubric, Submission
from rubric_integrations._util.json import json_lines
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.submission.messages import render_conversation
from tests.fakes import FakeModel
from tests.submission.conversations import ANSWER, CHAT, QUESTION, parsed_lines

RUBRIC = Rubric.from_dict([{"weight": 1, "requirement": "States 17.2%", "check": {"contains": "17.2%"}}])


def graded_submission(example: dspy.Example, pred: Any, **fields: Any) -> Submission:
    """Return the submission that a metric passes to its grader."""
    submissions: list[Submission] = []

    class RecordingGrader(PerCriterionGrader):
        async def judge(self, rubric: Rubric, submission: Submission) -> Any:
            submissions.append(submission)
            return await super().judge(rubric, submission)

    RubricMetric(RUBRIC, grader=RecordingGrader(judge="offline"), **fields)(example, pred)
    return submissions[0]


def test_dspy_history_is_rendered_as_its_turns() -> None:
    turns = [{"question": "What?\n{}", "answer": "17\u2028"}, {"question": "Sure?", "answer": "Yes."}]
    history = dspy.History(messages=turns)
    example = dspy.Example(question="And now?", history=history).with_inputs("question", "history")
    query = graded_submission(example, dspy.Prediction(answer="17.2%")).query or ""
    assert query == f"question: And now?\n\nhistory: {json_lines(turns)}"
    only_history = dspy.Example(history=history).with_inputs("history")
    assert parsed_lines(graded_submission(only_history, dspy.Prediction(answer="17.2%")).query) == turns
    assert parsed_lines(graded_submission(only_history, dspy.Prediction(history=history)).response) == turns


def test_dspy_fields_with_messages_are_rendered() -> None:
    example = dspy.Example(chat=CHAT[:-1], wanted=[ANSWER], rows=[{"a": 1}]).with_inputs("chat")
    prediction = dspy.Prediction(reply=[HumanMessage("Hm"), AIMessage("17.2%")])
    submission = graded_submission(example, prediction, fields=Fields(reference="wanted"))
    assert submission.query == render_conversation([HumanMessage("Hm")])
    assert submission.reference == render_conversation([ANSWER])
    assert submission.response == "17.2%"

    def chat(example: dspy.Example) -> list[Any]:
        return example.chat

    def answer(_pred: dspy.Prediction) -> list[Any]:
        return [ANSWER]

    selected = graded_submission(example, dspy.Prediction(reply="x"), fields=Fields(query=chat, response=answer))
    assert (selected.query, selected.response) == (render_conversation(CHAT[:-1]), ANSWER["content"])


def test_dspy_fields_with_other_lists_are_written_as_json() -> None:
    example = dspy.Example(chat=CHAT[:-1]).with_inputs("chat")
    assert graded_submission(example, dspy.Prediction(rows=[{"a": 1}])).response == '[{"a": 1}]'
    broken = [QUESTION, {"role": "critic", "content": "x"}]
    assert graded_submission(example, dspy.Prediction(reply=broken)).response == json.dumps(broken)


@pytest.mark.parametrize(("respond", "start"), [("last", "It is 42."), ("transcript", '{"role": "user"')])
def test_dspy_prediction_with_a_conversation_is_graded_by_respond(respond: Any, start: str) -> None:
    model = FakeModel('{"explanation": "so", "verdict": "MET"}')
    metric = RubricMetric(Rubric([Criterion(requirement="a")]), judge=model, respond=respond)
    turns = [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "It is 42."}]
    assert metric(dspy.Example(q="go").with_inputs("q"), dspy.Prediction(messages=turns)).passed
    assert model.prompts[0][1].split("## submission ##")[1].splitlines()[2].startswith(start)
