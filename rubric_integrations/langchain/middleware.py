"""An agent that is graded before it answers: unmet criteria go back to it, at most so many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NotRequired

from langchain.agents.middleware.types import AgentMiddleware, AgentState, hook_config
from langchain_core.messages import AIMessage, HumanMessage

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.langchain.evaluator import resolve_grader
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike

_SENDER = "rubric"


class RubricState(AgentState[Any]):
    """What the middleware leaves in an agent's state.

    Attributes:
        rubric_report: The report of the last answer; None where there was nothing to grade.
        rubric_revisions: How often the agent was asked to revise.
    """

    rubric_report: NotRequired[EvaluationReport | None]
    rubric_revisions: NotRequired[int]


class RubricMiddleware(AgentMiddleware[RubricState]):
    """Grades the final answer of an agent made by `create_agent`, and asks it to revise what does not pass.

    The unmet criteria, each with the judge's reason, go back as a message, until the answer passes or
    `max_revisions` are used up; the last report is in the state as `rubric_report`. What the judge could not assess
    is not asked for: the agent cannot mend it. A judge that fails raises `JudgeError`.

    deepagents has a middleware of the same name for a rubric in prose: there a grading agent invents criteria on its
    first pass and says pass or fail, failing what it cannot confirm. Here the criteria are yours and typed: weights,
    penalties, gates, abstention, a score, and every criterion judged each time.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> RubricMiddleware(rubric, judge="offline", max_revisions=1).max_revisions
        1
    """

    state_schema = RubricState

    def __init__(
        self,
        rubric: Rubric | Callable[[AgentState[Any]], Rubric],
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        max_revisions: int = 2,
    ):
        """Set up the middleware.

        Args:
            rubric: The rubric, or a function that gives one for the agent's state.
            judge: Who judges, as for a grader.
            grader: In place of `judge`, a grader with settings of its own.
            max_revisions: How often an answer may be sent back, at least 0.

        Raises:
            ValueError: Neither or both of `judge` and `grader` are given, or the number is out of range.
        """
        super().__init__()
        if isinstance(max_revisions, bool) or max_revisions < 0:
            raise ValueError(f"`max_revisions` must be at least 0, got {max_revisions!r}")
        self.rubric, self.max_revisions = rubric, max_revisions
        self._grader = resolve_grader(judge, grader, "RubricMiddleware")

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: RubricState, runtime: Any) -> dict[str, Any]:
        """Grade the answer; LangChain calls this."""
        return run_sync(self._graded(state))

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: RubricState, runtime: Any) -> dict[str, Any]:
        """`after_agent`, asynchronously."""
        return await self._graded(state)

    async def _graded(self, state: RubricState) -> dict[str, Any]:
        messages, revisions = state["messages"], state.get("rubric_revisions", 0)
        answer = messages[-1] if messages else None
        if not isinstance(answer, AIMessage) or not answer.text.strip():
            return {"rubric_report": None, "rubric_revisions": revisions}
        rubric = self.rubric if isinstance(self.rubric, Rubric) else self.rubric(state)
        submission = Submission.from_messages([m for m in messages if m.name != _SENDER])
        report = await self._grader().grade(rubric, submission)
        demands = _demands(report)
        if report.passed or not demands or revisions >= self.max_revisions:
            return {"rubric_report": report, "rubric_revisions": revisions}
        return {
            "rubric_report": report,
            "rubric_revisions": revisions + 1,
            "messages": [HumanMessage(demands, name=_SENDER)],
            "jump_to": "model",
        }


def _demands(report: EvaluationReport) -> str:
    """What to mend, dearest first; empty where nothing can be."""
    unmet = [row for row in report.criteria if row.value is not None and not row.passed]
    lines = [
        f"- {'Avoid' if row.weight < 0 else 'Missing'}: {row.requirement} ({row.reason})"
        for row in sorted(unmet, key=lambda row: -abs(row.weight))
    ]
    return "\n".join(["Your answer does not pass yet. Answer again in full, and mend this:", *lines]) if lines else ""
