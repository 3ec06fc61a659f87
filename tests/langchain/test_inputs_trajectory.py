"""The steps of LangGraph agents belong to the submission."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from rubric_integrations import PerCriterionGrader, Rubric, Submission
from rubric_integrations.langchain import RubricEvaluator, RubricRunnable
from tests.langchain.helpers import AgentModel
from tests.submission.conversations import parsed_lines

RUBRIC = Rubric.from_dict([{"weight": 1, "requirement": "States 17.2%", "check": {"contains": "17.2%"}}])


class RecordingGrader(PerCriterionGrader):
    """Records the submissions that it grades."""

    def __init__(self) -> None:
        super().__init__(judge="offline")
        self.submissions: list[Submission] = []

    async def judge(self, rubric: Rubric, submission: Submission) -> Any:
        self.submissions.append(submission)
        return await super().judge(rubric, submission)


@tool
def look(year: int) -> str:
    """Return the margin of a year."""
    return "17.2%" if year < 2026 else f"no such year: {year}"


def run_agent() -> dict[str, Any]:
    calls = [{"name": "look", "args": {"year": year}, "id": f"c{year}", "type": "tool_call"} for year in (2024, 2032)]
    usage: Any = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    first = AIMessage("I look both up.", tool_calls=calls, usage_metadata=usage)
    agent: Any = create_agent(AgentModel(responses=[first, AIMessage("It was 17.2%.")]), tools=[look])
    return agent.invoke({"messages": [("user", "What was the margin?")]})


@pytest.mark.parametrize("respond", ["last", "transcript", "trajectory"])
def test_evaluator_run_of_an_agent_has_its_trajectory(respond: Any) -> None:
    grader, runnable_grader, state = RecordingGrader(), RecordingGrader(), run_agent()
    inputs = {"question": "What was the margin?"}
    RubricEvaluator(RUBRIC, grader=grader, respond=respond)(inputs=inputs, outputs=state)
    RubricRunnable(RUBRIC, grader=runnable_grader, respond=respond).invoke({"output": state})
    (submission,) = grader.submissions
    assert runnable_grader.submissions == [submission]
    assert submission.trajectory is not None
    assert submission.show_trajectory == ("as_response" if respond == "trajectory" else "if_needed")
    steps = submission.trajectory.steps
    assert [(step.role, step.text) for step in steps] == [
        ("user", "What was the margin?"),
        ("assistant", "I look both up."),
        ("assistant", "It was 17.2%."),
    ]
    assert [(call.arguments, call.result, call.is_error) for call in steps[1].calls] == [
        ({"year": 2024}, "17.2%", False),
        ({"year": 2032}, "no such year: 2032", False),
    ]
    assert steps[1].tokens == 120
    if respond == "last":
        assert submission.response == "It was 17.2%."
    else:
        numbers = [line.get("step") for line in parsed_lines(submission.response)]
        assert numbers == ([1, 2, 3] if respond == "trajectory" else [None] * 3)


def test_evaluator_structured_response_has_the_trajectory_of_its_state() -> None:
    grader, state = RecordingGrader(), {**run_agent(), "structured_response": {"margin": "17.2%"}}
    RubricEvaluator(RUBRIC, grader=grader)(outputs=state)
    (submission,) = grader.submissions
    assert (submission.response, submission.show_trajectory) == ('{"margin": "17.2%"}', "if_needed")
    assert submission.trajectory is not None
    assert len(submission.trajectory.calls) == 2
