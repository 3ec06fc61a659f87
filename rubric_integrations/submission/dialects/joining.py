"""Joins the calls of tools with their results, and messages to the steps of a conversation."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from rubric_integrations._util.records import encodable
from rubric_integrations.submission.dialects.parts import Call, Message, Result, Text
from rubric_integrations.submission.steps import Step, ToolCall


@dataclass
class _OpenCall:
    """A call that may still get its result."""

    call: Call
    message: int
    result: Result | None = None

    def close(self) -> ToolCall:
        result = self.result
        return ToolCall(
            name=encodable(self.call.name),
            arguments=self.call.arguments,
            result=None if result is None else result.text,
            is_error=None if result is None else result.is_error,
        )


@dataclass
class _OpenStep:
    """A step to which texts and calls are still added; `result` is set for a result whose call is missing."""

    texts: list[str] = field(default_factory=list[str])
    calls: list[_OpenCall] = field(default_factory=list[_OpenCall])
    result: Result | None = None


class _OpenCalls:
    """The calls without a result, by their id, or by their name and their position if they have none."""

    def __init__(self) -> None:
        self._by_key: defaultdict[str | tuple[str | None], deque[_OpenCall]] = defaultdict(deque)

    def add(self, call: _OpenCall) -> None:
        call_id = call.call.id
        if call_id is None:
            self._by_key[(call.call.name,)].append(call)
            self._by_key[(None,)].append(call)
            return
        waiting = self._by_key[call_id]
        # Some models number the calls of each message from zero: a result belongs to the newest of them.
        if waiting and waiting[-1].message != call.message:
            waiting.clear()
        waiting.append(call)

    def take(self, result: Result) -> _OpenCall | None:
        """Return the earliest open call that a result belongs to; None if its call is missing or has a result."""
        waiting = self._by_key.get((result.name,) if result.id is None else result.id, deque())
        while waiting:
            call = waiting.popleft()
            if call.result is None:
                return call
        return None


def join_calls(messages: Iterable[Message]) -> list[list[Step]]:
    """Return the steps that each message begins; a message that only holds results of earlier calls begins none.

    A result is joined to the call with its id, or without an id to the earliest call of its name, or without a name to
    the earliest call, that has no result. A result without such a call is a step of the role `tool`, also a second
    result of one call. A text or a call after a result begins a new step.
    """
    open_calls = _OpenCalls()
    groups = [(message, _open_steps(message, number, open_calls)) for number, message in enumerate(messages)]
    return [[_close(step, message, is_first=step is steps[0]) for step in steps] for message, steps in groups]


def _open_steps(message: Message, number: int, open_calls: _OpenCalls) -> list[_OpenStep]:
    steps: list[_OpenStep] = []
    step: _OpenStep | None = None
    for part in message.parts:
        if isinstance(part, Result):
            call = open_calls.take(part)
            if call is None:
                steps.append(_OpenStep(result=part))
            else:
                call.result = part
            step = None
            continue
        if step is None:
            step = _OpenStep()
            steps.append(step)
        if isinstance(part, Text):
            step.texts.append(part.text)
        else:
            step.calls.append(_OpenCall(part, number))
            open_calls.add(step.calls[-1])
    return steps if steps or message.parts else [_OpenStep()]


def _close(step: _OpenStep, message: Message, *, is_first: bool) -> Step:
    if step.result is not None:
        # A step of the role `tool` has no field for it.
        prefix = "[error]\n" if step.result.is_error else ""
        return Step(role="tool", name=step.result.name, text=prefix + step.result.text)
    # The first step of a message has what the whole message took.
    spent = (message.tokens, message.cost, message.milliseconds)
    tokens, cost, milliseconds = spent if is_first else (None if amount is None else 0 for amount in spent)
    return Step(
        role=message.role,
        name=message.name,
        text="\n".join(step.texts),
        calls=tuple(call.close() for call in step.calls),
        tokens=tokens,
        cost=cost,
        milliseconds=milliseconds,
    )
