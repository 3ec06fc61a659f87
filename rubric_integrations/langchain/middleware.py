"""Agent middleware that grades the final answer and lets the agent revise it.

This is a separate module because it imports LangChain's agents.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, get_args

from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr, hook_config
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.utils.utils import LC_ID_PREFIX
from langgraph.channels import LastValue
from langgraph.constants import TAG_NOSTREAM
from langgraph.types import Command
from pydantic import ValidationError

from rubric_integrations._host import HostGrader
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.text import one_line
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction
from rubric_integrations.judges.store import StoreError
from rubric_integrations.langchain.inputs import FieldSelector
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import ungraded_report
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, failure_kinds
from rubric_integrations.submission.messages import message_text
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.runs.ledger import LedgerLike

try:
    from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer, internal_call_metadata

    _transformers, _metadata = (InternalCallTransformer,), internal_call_metadata()
except ImportError:  # an older LangChain, whose streams obey the tag alone
    _transformers, _metadata = (), {}

OnJudgeFailure = Literal["pass_through", "raise"]
"""What happens to an answer that the judge fails to grade: it is returned all the same, or the agent's call raises."""

_logger = logging.getLogger(__name__)

# The name of the messages that request a revision. They are removed from the conversation before it is graded.
_SENDER = "rubric"

# Callbacks and traces see the calls of the judge, whatever it is, and the stream of the agent's messages does not.
_INTERNAL_CALL: RunnableConfig = {"run_name": "rubric", "tags": [TAG_NOSTREAM], "metadata": _metadata}


class _ReportChannel(LastValue[EvaluationReport | None]):
    """Stores a report as plain values in a checkpoint, which a checkpointer with strict deserialization reads, too."""

    def checkpoint(self) -> Any:
        report = super().checkpoint()
        return report.model_dump(mode="json") if isinstance(report, EvaluationReport) else report

    def from_checkpoint(self, checkpoint: Any) -> _ReportChannel:
        return super().from_checkpoint(_as_report(checkpoint))

    def update(self, values: Sequence[Any]) -> bool:
        return super().update([_as_report(value) for value in values])


def _as_report(value: Any) -> Any:
    """Return a report of its plain values; None for those of another version, which must not end the conversation."""
    try:
        return EvaluationReport.model_validate(value) if isinstance(value, dict) else value
    except ValidationError:
        return None


class RubricState(AgentState[Any]):
    """The agent's state with the fields that the middleware adds.

    Attributes:
        rubric_report: The report of the model's most recent answer, or None if there was no text to grade. If the judge
            failed, its `score` is None, `passed` is False, and `error` has the reason.
        rubric_revisions: How many revisions were requested in this turn.
        rubric_message_id: The id of the model's most recent message in a turn that has not ended; None without one.
    """

    rubric_report: NotRequired[Annotated[EvaluationReport | None, _ReportChannel]]
    rubric_revisions: NotRequired[int]
    rubric_message_id: NotRequired[Annotated[str | None, PrivateStateAttr]]


class RubricMiddleware(AgentMiddleware[RubricState]):
    """Grades the final answer of an agent made by `create_agent`, and requests a revision if it does not pass.

    The request is a message that lists the unmet criteria with the judge's reasons. This repeats until the answer
    passes or `max_revisions` is reached. With a `response_format`, the `structured_response` is graded, as JSON. The
    most recent report is in the state as `rubric_report`, which is None if the turn has no answer. Criteria that the
    judge could not assess are not listed, because the agent cannot fix them. Only the model's own messages are graded,
    and not those of other middleware, such as the notice of `ModelCallLimitMiddleware`.

    Callbacks and traces see the judge's calls. The stream of the agent's messages does not contain them.

    If the judge fails, or does not grade the answer in time, the answer is returned with a report that has no score. A
    rubric that is not valid raises. So does a setting that the judge's provider refuses, such as a wrong key, unless an
    earlier answer was graded with it.

    deepagents has a middleware of the same name for a rubric in prose: a grading agent derives criteria from it, and
    fails every criterion that it cannot confirm. This middleware takes typed criteria with weights, penalties, required
    criteria and abstentions, computes a score, and judges every criterion each time.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary; or a function that returns one of these
            for the agent's state.
        judge: What judges the criteria: a LangChain chat model, a model name, a `dspy.LM`, an async function or a
            judge. Pass either `judge` or `grader`.
        grader: A configured grader.
        ledger: Where judgments are stored, and not requested again: the path of a file, the URL of a PostgreSQL
            database, or an open ledger. By default they are not stored.
        max_revisions: The maximum number of revisions in each turn, that is, each call of the agent; at least 0.
        on_judge_failure: With `"pass_through"`, a failure of the judge or of the ledger returns the answer without a
            score. With `"raise"`, it raises `JudgeError`, `StoreError` or, after `timeout`, `TimeoutError`.
        timeout: Seconds in which an answer must be graded, above 0, with all retries.

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` is none of the accepted types.
        ValueError: Neither or both of `judge` and `grader` are passed, or a setting is out of range.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> RubricMiddleware(rubric, judge="offline", max_revisions=1).max_revisions
        1
    """

    state_schema = RubricState
    transformers = _transformers

    def __init__(
        self,
        rubric: RubricLike | RubricFunction,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
        max_revisions: int = 2,
        on_judge_failure: OnJudgeFailure = "pass_through",
        timeout: float = 60.0,
    ):
        super().__init__()
        if on_judge_failure not in get_args(OnJudgeFailure):
            raise ValueError(f"`on_judge_failure` must be 'pass_through' or 'raise', got {on_judge_failure!r}")
        if not 0 < timeout < math.inf:
            raise ValueError(f"`timeout` must be above 0 seconds and finite, got {timeout!r}")
        if isinstance(max_revisions, bool) or max_revisions < 0:
            raise ValueError(f"`max_revisions` must be at least 0, got {max_revisions!r}")
        self.rubrics, self.max_revisions = RowRubrics(rubric if callable(rubric) else as_rubric(rubric)), max_revisions
        self.on_judge_failure, self.timeout = on_judge_failure, timeout
        self._grader = HostGrader("RubricMiddleware", judge, grader, ledger)
        self._has_graded = False

    def before_agent(self, state: RubricState, runtime: Any) -> dict[str, Any]:
        """Reset the report and the count of revisions, which a checkpointer restores from the previous turn."""
        return {"rubric_report": None, "rubric_revisions": 0, "rubric_message_id": None}

    def after_model(self, state: RubricState, runtime: Any) -> dict[str, Any]:
        """Record the id of the message that the model wrote. LangChain skips this hook if the model was not called."""
        return {"rubric_message_id": _last_id(state["messages"])}

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: RubricState, runtime: Any) -> Any:
        """Grade the answer. LangChain calls this hook when the agent has finished."""
        return run_sync(self.aafter_agent(state, runtime))

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: RubricState, runtime: Any) -> Any:
        """Grade the answer asynchronously, as `after_agent` does."""
        return await RunnableLambda(self._grade).ainvoke(state, _INTERNAL_CALL)

    async def _grade(self, state: RubricState) -> dict[str, Any] | Command[Any]:
        """Grade the agent's answer, and return the update of the agent's state."""
        revisions, message_id = state.get("rubric_revisions", 0), state.get("rubric_message_id")
        # Forgotten with the turn, because a middleware that ends the next one at its start skips `before_agent`.
        end = {"rubric_report": None, "rubric_revisions": revisions, "rubric_message_id": None}
        if message_id != _last_id(state["messages"]) and not _is_reply(state["messages"][-1]):
            # Without a message of the model in this turn, the report is that of an earlier turn.
            return {**end, "rubric_report": None if message_id is None else state.get("rubric_report")}
        submission = _submission(state)
        if submission is None:
            return end
        report = await self._report(self.rubrics.of(state, None), submission)
        request = _revision_request(report)
        has_failed = report.score is None and report.error is not None
        if report.passed or has_failed or not request or revisions >= self.max_revisions:
            return {**end, "rubric_report": report}
        messages = [HumanMessage(request, name=_SENDER)]
        update = {"rubric_report": report, "rubric_revisions": revisions + 1, "messages": messages, "jump_to": "model"}
        # LangGraph looks for messages to stream in the values of a dict, not in pairs. This one quotes the judge.
        return Command(update=list(update.items()))

    async def _report(self, rubric: Rubric, submission: Submission) -> EvaluationReport:
        """Grade an answer; return a report without a score if the judge fails and `on_judge_failure` allows it."""
        grader = self._grader()
        try:
            async with asyncio.timeout(self.timeout):
                report = await grader.grade(rubric, submission)
            self._has_graded = True
            return report
        except JudgeError as error:
            is_setting = failure_kinds(error.report) == {"config"} and not self._has_graded
            if is_setting or self.on_judge_failure == "raise":
                raise
            report, message = error.report, error.report.error or str(error)
        except (TimeoutError, StoreError) as error:
            is_late = isinstance(error, TimeoutError)
            message = f"the judge has not graded the answer within {self.timeout:g} s" if is_late else str(error)
            if self.on_judge_failure == "raise":
                raise type(error)(message) from None
            report = None
        _logger.warning("the agent's answer is returned without a grade: %s", one_line(message))
        return ungraded_report(rubric, message, report)


def _last_id(messages: Sequence[AnyMessage]) -> str | None:
    """Return the id of the last message of an AI, which is empty if it has none; None without such a message."""
    return next((message.id or "" for message in reversed(messages) if isinstance(message, AIMessage)), None)


def _is_reply(message: AnyMessage) -> bool:
    """Whether a chat model made a message, by the id or the metadata that LangChain gives to each reply.

    A middleware that ends the agent after the model's answer skips the hooks that come after its own.
    """
    return isinstance(message, AIMessage) and bool(
        message.response_metadata or (message.id or "").startswith(LC_ID_PREFIX)
    )


def _submission(state: RubricState) -> Submission | None:
    """Return the answer with the conversation before it, without requests for revisions; None if there is no answer."""
    messages = [message for message in state["messages"] if not _is_request(message)]
    structured = state.get("structured_response")
    answer = messages[-1] if messages else None
    if structured is None and (not isinstance(answer, AIMessage) or not message_text(answer)):
        return None
    return FieldSelector().select(None, {"messages": messages, "structured_response": structured}, None)


def _is_request(message: AnyMessage) -> bool:
    return message.name == _SENDER and isinstance(message, HumanMessage)


def _revision_request(report: EvaluationReport) -> str:
    """Return the message that lists the unmet criteria, highest weight first; empty if none was judged unmet."""
    unmet = [row for row in report.criteria if row.value is not None and not row.passed]
    lines = [
        f"- {'Avoid' if row.weight < 0 else 'Missing'}: {row.requirement} ({row.reason})"
        for row in sorted(unmet, key=lambda row: -abs(row.weight))
    ]
    return "\n".join(["Your answer does not pass yet. Answer again in full, and fix this:", *lines]) if lines else ""
