"""An exploration: requests to a model that reads a long trajectory with tools and chooses the steps that judges see.

This module has the requests, the replies and the loop. It imports no DSPy. `Explorer`, which calls the model, is in
`judges/explorer.py`, the tools are in `judges/trajectory_tools.py`, and `graders/exploring.py` makes the calls of a
grader.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, runtime_checkable

from rubric_integrations._util.records import encodable
from rubric_integrations.judges.prompts.parse import parse_object
from rubric_integrations.judges.prompts.render import batch_inputs
from rubric_integrations.judges.protocol import Question, Request, Retries
from rubric_integrations.judges.trajectory_tools import (
    ExplorerLimits,
    ToolRequest,
    TrajectoryTools,
)
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import JudgeFailure, Spend
from rubric_integrations.submission.step_lines import count_characters
from rubric_integrations.submission.steps import render_steps
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory

# A part of every key of a stored reply. Raise it if requests change in a way that no fingerprint shows.
_VERSION = 1

KEY_PREFIX = "explore "
"""The beginning of the keys under which stores keep the replies of explorers. They are not judgments."""

_LONGEST_MESSAGE, _LONGEST_REPLY = 300, 50_000


class ExplorerReply(NamedTuple):
    """The reply of an explorer's model to one request.

    Attributes:
        text: The reply as the model wrote it. Empty if it cannot be read.
        spend: The token usage and the cost of the request.
        problem: Why there is no text, such as a reply that was cut off. The explorer reads it. Empty if there is one.
        model: The model that the reply names. None if it names none.
    """

    text: str
    spend: Spend
    problem: str = ""
    model: str | None = None

    def calls(self) -> list[ToolRequest]:
        """Return the calls of tools in the reply. The calls themselves are checked when they are executed.

        Raises:
            ValueError: The reply is not one JSON object with a list of calls.

        Example:
            >>> text = '{"tool_calls": [{"name": "list", "args": {}}]}'
            >>> ExplorerReply(text, Spend()).calls()
            [ToolRequest(name='list', arguments={})]
        """
        if self.problem:
            raise ValueError(self.problem)
        if len(self.text) > _LONGEST_REPLY:  # it would be a part of all further requests
            raise ValueError(f"the reply has {len(self.text):,} characters, more than {_LONGEST_REPLY:,}")
        entries: Any = parse_object(self.text, lambda: False).fields.get("tool_calls")
        if isinstance(entries, dict):  # the form in which DSPy describes its type `ToolCalls`
            entries = entries.get("tool_calls")
        if not isinstance(entries, list) or not entries:
            raise ValueError("the reply has no list `tool_calls` with at least one call")
        return [_tool_request(number, entry) for number, entry in enumerate(entries, start=1)]


def _tool_request(number: int, entry: Any) -> ToolRequest:
    """Read one call of a reply, strictly.

    Raises:
        ValueError: The entry is not an object with the name and the arguments of a tool.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ValueError(f"call {number} is not an object with a `name` and `args`")
    arguments: Any = entry.get("args", {})
    if not isinstance(arguments, dict):
        raise ValueError(f"`args` of call {number} is not an object")
    return ToolRequest(encodable(entry["name"]), {encodable(name): _value(v, number) for name, v in arguments.items()})


def _value(value: Any, number: int) -> Any:
    """Return an argument that can be written into the next request.

    Raises:
        ValueError: The argument is nested more deeply than any argument of a tool.
    """
    values: list[Any] = value if isinstance(value, list) else [value]
    if any(isinstance(item, list | dict) for item in values):
        raise ValueError(f"`args` of call {number} has a value that is neither a text, a number nor a list of them")
    flat = [encodable(item) if isinstance(item, str) else item for item in values]
    return flat if isinstance(value, list) else flat[0]


class Turn(NamedTuple):
    """One request that was answered, with the results of the calls in its reply.

    Attributes:
        calls: The calls in the reply. Empty if the reply cannot be read.
        results: The results as one line of JSON, as the model reads them.
        digest: A digest of the reply.
    """

    calls: Sequence[ToolRequest]
    results: str
    digest: str


class ExplorationTask:
    """The texts of the first request of an exploration: all that the model knows besides the results of its calls.

    Args:
        submission: The submission with the complete trajectory.
        guidelines: The rubric's instructions for all criteria.
        criteria: All criteria and conditions that need a judge.

    Attributes:
        submission: The submission.
        trajectory: Its trajectory.
    """

    def __init__(self, submission: Submission, guidelines: str, criteria: Sequence[Criterion]):
        if submission.trajectory is None:
            raise ValueError("`submission` has no trajectory, so there is nothing to explore")
        self.submission, self.guidelines, self.criteria = submission, guidelines, tuple(criteria)
        self.trajectory: Trajectory = submission.trajectory

    @cached_property
    def texts(self) -> dict[str, str]:
        """The texts by the field of the request. Missing texts are left out."""
        own = self.submission.without_conversation()
        is_response = own.show_trajectory == "as_response"
        questions = {n: Question(_NO_TEXT, criterion) for n, criterion in enumerate(self.criteria, start=1)}
        texts = {
            "guidelines": self.guidelines,
            "query": own.query,
            "reference": own.reference,
            "submission": None if is_response else own.response,
            **batch_inputs(questions),
        }
        return {name: text for name, text in texts.items() if text}

    @cached_property
    def characters(self) -> int:
        """The number of characters of all steps."""
        return sum(map(count_characters, self.trajectory.steps))

    @cached_property
    def digest(self) -> str:
        """A digest of the trajectory and of all texts."""
        digest = sha256(json.dumps([_VERSION, sorted(self.texts.items())]).encode())
        for step in self.trajectory.steps:
            # One step at a time: the text of a whole trajectory may need much memory.
            digest.update(f"\n{render_steps([step])}".encode("utf-8", "replace"))
        return digest.hexdigest()

    @cached_property
    def text_bytes(self) -> int:
        """The size of the texts in bytes of UTF-8."""
        return sum(len(text.encode("utf-8", "replace")) for text in self.texts.values())


_NO_TEXT = Submission(response="-")


class ExplorationRequest(Request):
    """One request of an exploration.

    Args:
        task: The texts of the first request.
        turns: The earlier requests of the exploration.
        left: The number of requests that may follow.
        retries: How often the request is repeated. None for the limits of the grader.
    """

    __slots__ = ("left", "task", "turns")

    def __init__(self, task: ExplorationTask, turns: Sequence[Turn], left: int, retries: Retries | None = None):
        super().__init__(task.submission, retries=retries)
        self.task, self.turns, self.left = task, tuple(turns), left

    @property
    def guidelines(self) -> str:
        """The rubric's instructions for all criteria."""
        return self.task.guidelines

    @property
    def criteria(self) -> Sequence[Criterion]:
        """All criteria and conditions that need a judge."""
        return self.task.criteria

    @property
    def text_bytes(self) -> int:
        """The size of all texts of the request in bytes of UTF-8, without the explorer's own instructions."""
        calls = sum(len(json.dumps([call.name, call.arguments])) for turn in self.turns for call in turn.calls)
        return self.task.text_bytes + calls + sum(len(turn.results.encode("utf-8", "replace")) for turn in self.turns)

    def with_submission(self, submission: Submission) -> Request:
        """Return the first request about another submission. The same request if that one has no trajectory."""
        if submission.trajectory is None:
            return self
        left = self.left + len(self.turns)
        return ExplorationRequest(ExplorationTask(submission, self.guidelines, self.criteria), (), left, self.retries)

    def send_to(self, judge: Any) -> Any:
        """Call the method of an explorer for a request."""
        return judge.explore(self)

    def key(self, fingerprint: str) -> str:
        """Return the key under which a store keeps the reply.

        The results of tools depend only on the trajectory, the limits and the replies. Therefore, the key has digests
        of the replies instead of the results.

        Args:
            fingerprint: The fingerprint of the explorer.
        """
        parts = [fingerprint, self.task.digest, *(turn.digest for turn in self.turns)]
        return f"{KEY_PREFIX}{sha256(json.dumps(parts).encode()).hexdigest()}"


@runtime_checkable
class TrajectoryExplorer(Protocol):
    """The protocol of an explorer. `Explorer` implements it with a language model.

    An explorer may also have the methods `prepare`, `without_cache` and `highest_cost` of a judge (see `Judge`).
    """

    @property
    def limits(self) -> ExplorerLimits:
        """The limits of one exploration."""
        ...

    def fingerprint(self) -> str | None:
        """Return a text that identifies the model, its settings, the prompts and the limits. None if it cannot."""
        ...

    async def explore(self, request: ExplorationRequest) -> ExplorerReply:
        """Send one request to the model.

        Raises:
            JudgeFailure: There is no reply. A reply that cannot be read is not a failure (`ExplorerReply.problem`).
        """
        ...


def describe_explorer(explorer: TrajectoryExplorer) -> dict[str, Any]:
    """Describe an explorer as JSON: its fingerprint and its limits, from which `rescore` reads its stored replies."""
    return {"fingerprint": explorer.fingerprint() or "", "limits": explorer.limits.model_dump()}


def require_reply(reply: object) -> ExplorerReply:
    """Check that an explorer has returned a reply.

    Raises:
        JudgeFailure: Of kind `config`, if it has returned another object.
    """
    if not isinstance(reply, ExplorerReply):
        raise JudgeFailure("config", f"`explore` must return an ExplorerReply, got {type(reply).__name__}")
    return reply


class ExplorationLoop:
    """The loop of one exploration: makes the next request, and executes the calls in its reply.

    It ends when the explorer has submitted its selection, or when its requests are used up.

    Args:
        task: The texts of the first request.
        limits: The limits of the exploration.

    Attributes:
        task: The texts of the first request.
        tools: The tools, with the part of the trajectory that was submitted.
        requests: The number of requests that were answered.
    """

    def __init__(self, task: ExplorationTask, limits: ExplorerLimits):
        self.task, self.tools, self.requests = task, TrajectoryTools(task.trajectory, limits), 0
        self._limits, self._turns = limits, list[Turn]()

    def next_request(self, retries: Retries | None = None) -> ExplorationRequest | None:
        """Return the next request. None if the exploration has ended."""
        left = self._limits.max_requests - self.requests
        if self.tools.is_finished or left <= 0:
            return None
        return ExplorationRequest(self.task, self._turns, left - 1, retries)

    def take(self, reply: ExplorerReply) -> None:
        """Execute the calls in the reply to the last request. It may search the complete trajectory."""
        self.requests += 1
        left = self._limits.max_requests - self.requests
        calls: list[ToolRequest] = []
        try:
            calls = reply.calls()
        except ValueError as error:
            results: dict[str, Any] = {"error": f"no tool was called, because {_short(error)}"}
        else:
            results = {"results": self.tools.run(calls, is_last=left == 0)}
        tool_calls = max(self._limits.max_tool_calls - self.tools.calls, 0)
        results |= {"requests_left": left, "tool_calls_left": tool_calls}
        if left == 1:
            results["next"] = "your next request is the last one: call only `submit`, or the exploration is lost"
        digest = sha256(json.dumps([reply.text, reply.problem]).encode()).hexdigest()
        self._turns.append(Turn(tuple(calls), json.dumps(results, ensure_ascii=False), digest))

    def selected(self) -> Trajectory:
        """Return the part of the trajectory that was submitted.

        Raises:
            JudgeFailure: Nothing was submitted. The kind is `parse`, and the failure is about the text and final.
        """
        if not self.tools.has_submission:
            raise JudgeFailure(
                "parse",
                f"the explorer has submitted no steps of the trajectory in {self._limits.max_requests} requests: raise "
                "`ExplorerLimits.max_requests`, or use another model",
                about_text=True,
                repeats=0,
            )
        return self.tools.selected()


def _short(error: ValueError) -> str:
    return encodable(str(error))[:_LONGEST_MESSAGE]
