"""Agent middleware that grades the final answer and lets the agent revise it.

This is a separate module because it imports LangChain's agents.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_args, get_type_hints

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
from rubric_integrations.graders import Grader
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike, StoreError
from rubric_integrations.langchain.inputs import FieldSelector
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import ungraded_report
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, failure_kinds
from rubric_integrations.submission.messages import message_text
from rubric_integrations.submission.submission import Submission

try:
    from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer, internal_call_metadata

    _transformers, _metadata = (InternalCallTransformer,), internal_call_metadata()
except ImportError:  # an older LangChain, whose streams need only the tag
    _transformers, _metadata = (), {}

OnJudgeFailure = Literal["pass_through", "raise"]
"""The behaviour after a failure of the judge: return the answer without a grade, or raise an error."""

_logger = logging.getLogger(__name__)

# The name of the messages that request a revision. They are removed from the conversation before it is graded.
_SENDER = "rubric"

# Callbacks and traces get the calls of every kind of judge. The stream of the agent's messages does not.
_INTERNAL_CALL: RunnableConfig = {"tags": [TAG_NOSTREAM], "metadata": _metadata}


class _ReportChannel(LastValue[EvaluationReport | None]):
    """Stores a report in a checkpoint as plain values, because a strict checkpointer deserializes only such values."""

    def checkpoint(self) -> Any:
        report = super().checkpoint()
        return report.model_dump(mode="json") if isinstance(report, EvaluationReport) else report

    def from_checkpoint(self, checkpoint: Any) -> _ReportChannel:
        return super().from_checkpoint(_as_report(checkpoint))

    def update(self, values: Sequence[Any]) -> bool:
        return super().update([_as_report(value) for value in values])


def _as_report(value: Any) -> Any:
    """Parse a report from its plain values. None if another version wrote them, because the agent must not fail."""
    try:
        return EvaluationReport.model_validate(value) if isinstance(value, dict) else value
    except ValidationError:
        return None


class RubricState(AgentState[Any]):
    """The agent's state with the fields that the middleware adds. With a `name`, their keys end with `_` and the name.

    Attributes:
        rubric_report: The report of the model's most recent answer, or None if there was no text to grade. If the judge
            failed, the report's `score` is None, `passed` is False, and `error` has the reason.
        rubric_revisions: The number of revisions that were requested in this turn.
        rubric_message_id: The id of the model's most recent message in the current turn. None if there is no such
            message, or if the turn has ended.
    """

    rubric_report: NotRequired[Annotated[EvaluationReport | None, _ReportChannel]]
    rubric_revisions: NotRequired[int]
    rubric_message_id: NotRequired[Annotated[str | None, PrivateStateAttr]]


# Seconds. The default, which is enough for judges alone.
_SHORT_FOR_EXPLORER = 60.0
_STATE_KEYS = ("rubric_report", "rubric_revisions", "rubric_message_id")


@cache
def _state_schema(keys: tuple[str, ...]) -> Any:
    """Make a state like `RubricState` with other keys for its fields, which are in the order of `_STATE_KEYS`."""
    if keys == _STATE_KEYS:
        return RubricState
    hints = get_type_hints(RubricState, include_extras=True)
    create: Any = TypedDict
    return create("RubricState", {key: hints[field] for field, key in zip(_STATE_KEYS, keys, strict=True)})


class _UniqueName(str):
    """The name of a middleware, which cannot be compared with an equal name of another `RubricMiddleware`.

    `create_agent` compares the names in order to find duplicates. Its error message does not say how to fix them.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _UniqueName) and other is not self and str.__eq__(self, other):
            raise ValueError(
                f"two middlewares of the agent have the name {str(self)!r}: pass different names, such as "
                '`RubricMiddleware(..., name="tone")`, or the report of one would overwrite the report of the other'
            )
        return str.__eq__(self, other)


class RubricMiddleware(AgentMiddleware[RubricState]):
    """Grades the final answer of an agent made by `create_agent`, and requests a revision if it does not pass.

    The request is a message that lists the unmet criteria with the judge's reasons. The request is repeated
    until an answer passes or `max_revisions` is reached. Criteria that the judge could not assess are not listed,
    because the agent cannot fix them. With a `response_format`, the `structured_response` is graded as JSON. Only
    messages of the model are graded. Messages of other middleware, such as the notice of `ModelCallLimitMiddleware`,
    are not graded.

    The most recent report is in the state as `rubric_report`. It is None if the turn has no answer. Callbacks and
    traces get the judge's calls. The stream of the agent's messages does not contain them.

    If the judge fails, or does not grade the answer in time, the answer is returned with a report that has no score. An
    invalid rubric raises an error. A setting that the judge's provider refuses, such as a wrong key, also raises an
    error, but only until this middleware has graded its first answer. Later, such a setting counts as a failure of the
    judge.

    deepagents has a middleware with the same name for a rubric in prose. There, a grading agent derives criteria from
    the prose, and a criterion that the agent cannot confirm counts as failed. This middleware has typed criteria with
    weights, penalties, required criteria and abstentions. It computes a score and judges every criterion each time.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list, a dictionary, or a function that returns one of these for
            the agent's state.
        judge: The judge: a LangChain chat model, a model name, a `dspy.LM`, an async function or a `Judge`. Pass either
            `judge` or `grader`.
        grader: A configured grader, instead of `judge`.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. By default, judgments are not stored.
        max_revisions: The largest number of revisions in each turn (one call of the agent), at least 0.
        on_judge_failure: With `"pass_through"`, the answer is returned without a score if the judge or the ledger
            fails. With `"raise"`, `JudgeError` or `StoreError` is raised, or `TimeoutError` after `timeout`.
        timeout: The time limit for grading one answer with all retries, in seconds, above 0. An explorer
            (`TextLimits.explorer`) makes up to eight requests first, one after another: allow several minutes for it.
        name: A name for an agent with several of these middlewares, made of letters, digits and `_`. With the name
            `tone`, the keys in the state are `rubric_report_tone` and `rubric_revisions_tone`, and the runs in traces
            are called `rubric_tone`. The default name adds no suffix.

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` has none of the accepted types.
        ValueError: Neither `judge` nor `grader` is passed, or both are, or a setting is out of range.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> RubricMiddleware(rubric, judge="offline", max_revisions=1).max_revisions
        1
    """

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
        name: str = "rubric",
    ):
        super().__init__()
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"`name` must consist of letters, digits and `_`, because the state has it, got {name!r}")
        if on_judge_failure not in get_args(OnJudgeFailure):
            raise ValueError(f"`on_judge_failure` must be 'pass_through' or 'raise', got {on_judge_failure!r}")
        if not 0 < timeout < math.inf:
            raise ValueError(f"`timeout` must be above 0 seconds and finite, got {timeout!r}")
        if isinstance(max_revisions, bool) or max_revisions < 0:
            raise ValueError(f"`max_revisions` must be at least 0, got {max_revisions!r}")
        self.rubrics, self.max_revisions = RowRubrics(rubric if callable(rubric) else as_rubric(rubric)), max_revisions
        self.on_judge_failure, self.timeout = on_judge_failure, timeout
        self._grader = HostGrader(
            "RubricMiddleware", judge, grader, ledger, remembers_refusals=False, needs_reasons=True
        )
        if grader is not None and grader.text_limits.explorer is not None and timeout <= _SHORT_FOR_EXPLORER:
            requests = grader.text_limits.explorer.limits.max_requests
            warnings.warn(
                f"`timeout` of {timeout:g} s is too short for the grader's explorer, which makes up to {requests} "
                "requests one after another before the judge is asked: pass a longer `timeout`, such as 300, or long "
                "runs get no grade",
                stacklevel=2,
            )
        self._has_graded = False
        suffix = "" if name == _SENDER else f"_{name}"
        self._name = _UniqueName(type(self).__name__ + suffix)
        self._keys = tuple(key + suffix for key in _STATE_KEYS)
        self._report_key, self._revisions_key, self._message_id_key = self._keys
        self._config: RunnableConfig = {**_INTERNAL_CALL, "run_name": f"rubric{suffix}"}

    @property
    def state_schema(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride] -- it has the keys of an object
        """The type of the state: a `RubricState`, whose keys end with the name if there is one."""
        return _state_schema(self._keys)

    @property
    def name(self) -> str:
        """The name of the middleware's nodes in the graph of the agent, such as `RubricMiddleware_tone`."""
        return self._name

    def before_agent(self, state: RubricState, runtime: Any) -> dict[str, Any]:
        """Reset the report and the count of revisions, which a checkpointer restores from the previous turn."""
        return {self._report_key: None, self._revisions_key: 0, self._message_id_key: None}

    def after_model(self, state: RubricState, runtime: Any) -> dict[str, Any]:
        """Record the id of the message that the model wrote, because only messages of the model are graded.

        LangChain skips this hook if the model was not called.
        """
        return {self._message_id_key: _last_id(state["messages"])}

    @hook_config(can_jump_to=["model"])
    def after_agent(self, state: RubricState, runtime: Any) -> Any:
        """Grade the answer. LangChain calls this hook when the agent has finished."""
        return run_sync(self.aafter_agent(state, runtime))

    @hook_config(can_jump_to=["model"])
    async def aafter_agent(self, state: RubricState, runtime: Any) -> Any:
        """Grade the answer asynchronously, as `after_agent` does."""
        return await RunnableLambda(self._grade).ainvoke(state, self._config)

    async def _grade(self, state: RubricState) -> dict[str, Any] | Command[Any]:
        """Grade the agent's answer, and return the update of the agent's state."""
        revisions, message_id = state.get(self._revisions_key, 0), state.get(self._message_id_key)
        # The id is removed at the end of a turn, because `before_agent` is skipped if another middleware ends the next
        # turn at its start.
        end = {self._report_key: None, self._revisions_key: revisions, self._message_id_key: None}
        if message_id != _last_id(state["messages"]) and not _is_reply(state["messages"][-1]):
            # Without a message of the model in this turn, the report in the state belongs to an earlier turn.
            return {**end, self._report_key: None if message_id is None else state.get(self._report_key)}
        try:
            submission = _submission(state)
        except ValueError as error:  # the answer cannot be graded, for example because it contains bytes
            if self.on_judge_failure == "raise":
                raise
            return {**end, self._report_key: _ungraded(self.rubrics.of(state, None), str(error))}
        if submission is None:
            return end
        report = await self._report(self.rubrics.of(state, None), submission)
        request = _revision_request(report)
        has_failed = report.score is None and report.error is not None
        if report.passed or has_failed or not request or revisions >= self.max_revisions:
            return {**end, self._report_key: report}
        messages = [HumanMessage(request, name=_SENDER)]
        counts = {self._report_key: report, self._revisions_key: revisions + 1}
        update = {**counts, "messages": messages, "jump_to": "model"}
        # LangGraph streams messages that it finds in a dict, but not in pairs. This message quotes the judge and must
        # not be streamed.
        return Command(update=list(update.items()))

    async def _report(self, rubric: Rubric, submission: Submission) -> EvaluationReport:
        """Grade an answer. If the judge fails and `on_judge_failure` allows it, return a report without a score."""
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
        return _ungraded(rubric, message, report)


def _ungraded(rubric: Rubric, message: str, report: EvaluationReport | None = None) -> EvaluationReport:
    _logger.warning("the agent's answer is returned without a grade: %s", one_line(message))
    return ungraded_report(rubric, message, report)


def _last_id(messages: Sequence[AnyMessage]) -> str | None:
    """Return the id of the last AI message. An empty text if it has no id, None if there is no such message."""
    return next((message.id or "" for message in reversed(messages) if isinstance(message, AIMessage)), None)


def _is_reply(message: AnyMessage) -> bool:
    """Whether a chat model made a message, according to the id or the metadata that LangChain gives to each reply.

    This is needed because a middleware that ends the agent after the model's answer skips the later hooks, such as
    `RubricMiddleware.after_model`.
    """
    return isinstance(message, AIMessage) and bool(
        message.response_metadata or (message.id or "").startswith(LC_ID_PREFIX)
    )


def _submission(state: RubricState) -> Submission | None:
    """Return the answer with the conversation before it, without revision requests. None if there is no answer."""
    messages = [message for message in state["messages"] if not _is_request(message)]
    structured = state.get("structured_response")
    answer = messages[-1] if messages else None
    if structured is None and (not isinstance(answer, AIMessage) or not message_text(answer)):
        return None
    return FieldSelector().select(None, {"messages": messages, "structured_response": structured}, None)


def _is_request(message: AnyMessage) -> bool:
    return message.name == _SENDER and isinstance(message, HumanMessage)


def _revision_request(report: EvaluationReport) -> str:
    """Return the message that lists the unmet criteria, highest weight first. Empty if no criterion is unmet."""
    unmet = [row for row in report.criteria if row.value is not None and not row.passed]
    lines = [
        f"- {'Avoid' if row.weight < 0 else 'Missing'}: {row.requirement} ({row.shown_reason})"
        for row in sorted(unmet, key=lambda row: -abs(row.weight))
    ]
    return "\n".join(["Your answer does not pass yet. Answer again in full, and fix this:", *lines]) if lines else ""
