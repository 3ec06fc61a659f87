"""Evaluators that compare the tool calls of two conversations, with the parameters of agentevals and openevals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast, get_args

from rubric_integrations.checks.trajectory import ComparisonLimit, NumberedCall, compare_calls, same_arguments
from rubric_integrations.rubric.check import ArgumentsMode, ExpectedCall, Order
from rubric_integrations.submission.steps import Step, ToolCall
from rubric_integrations.submission.trajectory import Trajectory

ArgumentsMatch = ArgumentsMode | Sequence[str] | Callable[[Any, Any], bool]
"""How the arguments of two calls of a tool are compared: a mode, dotted paths, or a function of both arguments."""


def create_trajectory_match_evaluator(
    *,
    trajectory_match_mode: Order = "strict",
    tool_args_match_mode: ArgumentsMode = "exact",
    tool_args_match_overrides: Mapping[str, ArgumentsMatch] | None = None,
) -> Callable[..., dict[str, Any]]:
    """Create an evaluator that compares the tool calls of an agent with the tool calls of a reference conversation.

    The function has the same name and parameters as the function in agentevals and openevals. To migrate, change the
    import. The results differ in a few cases, for example in these two:

    - If a call matches several calls of the reference, agentevals and openevals pair it with the first of them and may
      then find no match for another call. This evaluator pairs as many calls as possible.
    - The modes for arguments always describe the agent's calls. In agentevals, these modes describe the
      reference's calls instead if `trajectory_match_mode` is `subset` or `unordered`.

    Args:
        trajectory_match_mode: How the calls are compared. `strict`: both conversations have the same sequence of roles,
            and each message has the same calls in any order. Texts and tool results may differ. `unordered`: the calls
            are the same, in any order. `superset`: the agent makes all calls of the reference and may make others.
            `subset`: the agent makes only calls of the reference. `in_order`: the agent makes all calls of the
            reference in their order, and may make others in between.
        tool_args_match_mode: How the arguments of two calls are compared. `exact`: they are equal. `superset`: the
            agent's call has all arguments of the reference and may have others. `subset`: the agent's call has only
            arguments of the reference. `ignore`: they are not compared.
        tool_args_match_overrides: Other comparisons for some tools, by the name of the tool: a mode, a list of dotted
            paths that must have equal values in both calls, or a function of the agent's arguments and the
            reference's arguments.

    Returns:
        A function of `outputs` and `reference_outputs`, each a list of messages or a dictionary with `messages`. It
        returns a dictionary with `key`, `score` (True or False), `comment` (the reason if the score is False, or None)
        and `metadata`. It raises a `ValueError` if there are no messages or a message cannot be read. It raises a
        `JudgeFailure` if the messages lack arguments on which the score depends, or contain too many calls.

    Raises:
        ValueError: A mode is unknown.

    Example:
        >>> evaluator = create_trajectory_match_evaluator(trajectory_match_mode="superset")
        >>> search = {"role": "assistant", "tool_calls": [{"name": "search", "args": {"query": "margin"}}]}
        >>> evaluator(outputs=[search], reference_outputs=[search])["score"]
        True
    """
    modes = _Modes(tool_args_match_mode, tool_args_match_overrides or {})
    if trajectory_match_mode not in get_args(Order):
        raise ValueError(_unknown("trajectory_match_mode", trajectory_match_mode, Order))

    def evaluate(*, outputs: Any, reference_outputs: Any, **_more: Any) -> dict[str, Any]:
        made, expected = _steps(outputs, "outputs"), _steps(reference_outputs, "reference_outputs")
        if trajectory_match_mode == "strict":
            reason = _compare_step_by_step(expected, made, modes)
        else:
            reason = _compare(expected, made, trajectory_match_mode, modes)
        key = f"trajectory_{trajectory_match_mode}_match"
        return {"key": key, "score": not reason, "comment": reason or None, "metadata": None}

    return evaluate


def create_async_trajectory_match_evaluator(
    *,
    trajectory_match_mode: Order = "strict",
    tool_args_match_mode: ArgumentsMode = "exact",
    tool_args_match_overrides: Mapping[str, ArgumentsMatch] | None = None,
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Create an asynchronous version of the evaluator that `create_trajectory_match_evaluator` returns.

    Args:
        trajectory_match_mode: Which calls the agent may make, compared with the reference: the same calls, message by
            message (`strict`) or in any order (`unordered`), possibly more calls in any order (`superset`) or in the
            reference's order (`in_order`), or possibly fewer calls (`subset`).
        tool_args_match_mode: Which arguments a call of the agent may have, compared with the reference: equal arguments
            (`exact`), possibly more (`superset`), possibly fewer (`subset`), or any (`ignore`).
        tool_args_match_overrides: Other comparisons for some tools, by the name of the tool: a mode, a list of dotted
            paths that must have equal values in both calls, or a function of the agent's arguments and the
            reference's arguments.

    Raises:
        ValueError: A mode is unknown.
    """
    evaluate = create_trajectory_match_evaluator(
        trajectory_match_mode=trajectory_match_mode,
        tool_args_match_mode=tool_args_match_mode,
        tool_args_match_overrides=tool_args_match_overrides,
    )

    async def evaluate_async(*, outputs: Any, reference_outputs: Any, **_more: Any) -> dict[str, Any]:
        return evaluate(outputs=outputs, reference_outputs=reference_outputs)

    return evaluate_async


class _Modes:
    """How the arguments of each tool are compared."""

    def __init__(self, mode: ArgumentsMode, overrides: Mapping[str, ArgumentsMatch]):
        self._mode, self._overrides = mode, overrides
        if mode not in get_args(ArgumentsMode):
            raise ValueError(_unknown("tool_args_match_mode", mode, ArgumentsMode))
        for name, match in overrides.items():
            is_mode = isinstance(match, str) and match in get_args(ArgumentsMode)
            is_list = isinstance(match, list | tuple) and match and all(isinstance(path, str) for path in match)
            if not (is_mode or is_list or callable(match)):
                raise ValueError(
                    f"{_unknown(f'tool_args_match_overrides[{name!r}]', match, ArgumentsMode)}, a list of dotted "
                    "paths, or a function"
                )

    def match(self, name: str) -> ArgumentsMatch:
        """Return how the arguments of a tool are compared."""
        return self._overrides.get(name, self._mode)

    def comparison(self) -> Callable[[ExpectedCall, ToolCall], bool | None]:
        """Return a function that compares two calls, with its own limit on the number of comparisons."""
        limit = ComparisonLimit()

        def compare(expected: ExpectedCall, made: ToolCall) -> bool | None:
            match = self.match(made.name)
            if expected.name != made.name or match == "ignore":
                return expected.name == made.name
            if made.arguments is None:
                return None
            if callable(match):
                return bool(match(made.arguments, expected.arguments))
            return same_arguments(cast("Any", expected.arguments), made.arguments, match, 0.0, limit)

        return compare


def _compare_step_by_step(expected: Sequence[Step], made: Sequence[Step], modes: _Modes) -> str:
    """Compare the roles of all steps, and the calls of each step in any order, as `strict` does in agentevals."""
    for number, (one, other) in enumerate(zip(expected, made, strict=False), start=1):
        if one.role != other.role:
            return f"step {number} is of the role {other.role!r}, and in the reference of {one.role!r}"
        if reason := _compare([one], [other], "unordered", modes, first=number):
            return reason
    counts = len(made), len(expected)
    return "" if counts[0] == counts[1] else f"has {counts[0]} steps, and the reference {counts[1]}"


def _compare(expected: Sequence[Step], made: Sequence[Step], order: Order, modes: _Modes, first: int = 1) -> str:
    expected_calls = [_expected(call, modes) for step in expected for call in step.calls]
    made_calls = [NumberedCall(number, call) for number, step in enumerate(made, start=first) for call in step.calls]
    return compare_calls(expected_calls, made_calls, order, modes.comparison())


def _expected(call: ToolCall, modes: _Modes) -> ExpectedCall:
    if call.arguments is None and modes.match(call.name) != "ignore":
        raise ValueError(
            f"the call of `{call.name}` in `reference_outputs` has no arguments, so that any would match: add them, or "
            "compare them by 'ignore'"
        )
    return ExpectedCall(name=call.name, arguments=call.arguments)


def _steps(messages: Any, name: str) -> list[Step]:
    """Return the steps of a conversation without tool results and without the calls of users.

    Neither is compared.
    """
    if isinstance(messages, Mapping) and "messages" in messages:
        messages = cast("Mapping[str, Any]", messages)["messages"]
    elif isinstance(messages, Mapping) and "role" not in messages:
        raise ValueError(f"`{name}` is a dictionary without `messages`: pass the messages, or nothing is compared")
    conversation = list(cast("Sequence[Any]", messages)) if isinstance(messages, list | tuple) else [messages]
    if messages is None or not conversation:
        raise ValueError(f"`{name}` has no messages: pass those of the agent's run, or nothing is compared")
    steps = Trajectory.from_messages(conversation).steps
    # The calls of a simulated user are not the agent's.
    without_calls = [step.model_copy(update={"calls": ()}) if step.role == "user" else step for step in steps]
    return [step for step in without_calls if step.role != "tool"]


def _unknown(setting: str, value: object, modes: Any) -> str:
    return f"`{setting}` is {value!r}: use one of {', '.join(map(repr, get_args(modes)))}"
