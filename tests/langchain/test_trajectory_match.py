"""`create_trajectory_match_evaluator`: agentevals' parameters, and a pairing wherever there is one."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langsmith import evaluate
from langsmith.schemas import Example

from rubric_integrations.langchain import (
    create_async_trajectory_match_evaluator,
    create_trajectory_match_evaluator,
    offline_client,
)
from rubric_integrations.scoring import JudgeFailure

Calls = list[tuple[str, Any]]


def conversation(*steps: Calls) -> list[dict[str, Any]]:
    """Return messages in OpenAI's form: for each step a message with its calls and one with each result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What was the margin?"}]
    for calls in steps:
        functions = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]
        messages.append({"role": "assistant", "content": None, "tool_calls": [{"function": f} for f in functions]})
        messages += [{"role": "tool", "content": "8.4%"} for _ in calls]
    return [*messages, {"role": "assistant", "content": "It was 8.4%."}]


def score(made: Any, expected: Any, **settings: Any) -> bool:
    return create_trajectory_match_evaluator(**settings)(outputs=made, reference_outputs=expected)["score"]


def is_longer(made: dict[str, Any], expected: dict[str, Any]) -> bool:
    return len(made) > len(expected)


A, B = ("search", {"q": "a"}), ("search", {"q": "b"})
ORDERS = ("strict", "unordered", "subset", "superset")


@pytest.mark.parametrize(
    ("made", "expected", "orders"),
    [
        (conversation([A, B]), conversation([A, B]), set(ORDERS)),
        (conversation([A, B]), conversation([B, A]), set(ORDERS)),  # calls of one message have no order
        (conversation([A], [B]), conversation([A, B]), {"unordered", "subset", "superset"}),
        (conversation([A], [B]), conversation([B], [A]), {"unordered", "subset", "superset"}),
        (conversation([A, B]), conversation([A]), {"superset"}),
        (conversation([A]), conversation([A, B]), {"subset"}),
        (conversation([A]), conversation([B]), set()),
        ({"messages": conversation([A])}, {"messages": conversation([A])}, set(ORDERS)),
        (conversation([A])[1:], conversation([A]), {"unordered", "subset", "superset"}),
        (conversation([A])[:-1], conversation([A]), {"unordered", "subset", "superset"}),
    ],
)
def test_mode_compares_messages_or_calls_as_in_agentevals(made: Any, expected: Any, orders: set[str]) -> None:
    assert {order for order in ORDERS if score(made, expected, trajectory_match_mode=order)} == orders


@pytest.mark.parametrize("order", ORDERS)
def test_pairing_that_agentevals_misses_is_there(order: str) -> None:
    made, expected = conversation([A, B]), conversation([("search", {}), A])
    assert score(made, expected, trajectory_match_mode=order, tool_args_match_mode="superset")


@pytest.mark.parametrize("order", ORDERS)
def test_modes_and_functions_of_arguments_describe_the_agents_side_in_every_order(order: str) -> None:
    more, less = conversation([("f", {"a": 1, "b": 2})]), conversation([("f", {"a": 1})])
    settings: dict[str, Any] = {"trajectory_match_mode": order}
    for mode, is_more in (("superset", True), ("subset", False)):
        assert score(more, less, **settings, tool_args_match_mode=mode) == is_more
        assert score(less, more, **settings, tool_args_match_mode=mode) != is_more
    for match, is_same in (
        ("ignore", True),
        (["a"], True),
        (["a", "b"], False),
        (["c"], False),
        (is_longer, True),
    ):
        assert score(more, less, **settings, tool_args_match_overrides={"f": match}) == is_same
        assert not score(more, less, **settings, tool_args_match_overrides={"g": match})


def test_result_has_the_keys_of_agentevals_and_the_reason() -> None:
    evaluator = create_trajectory_match_evaluator(trajectory_match_mode="superset", tool_args_match_mode="ignore")
    result = evaluator(inputs={}, outputs=conversation([A]), reference_outputs=conversation([A, ("fetch", {})]))
    assert result == {
        "key": "trajectory_superset_match",
        "score": False,
        "comment": "makes no call that is the expected call 2, `fetch` with {}",
        "metadata": None,
    }
    assert evaluator(outputs=conversation([A]), reference_outputs=conversation([A]))["comment"] is None


def test_strict_comment_names_the_step() -> None:
    evaluator = create_trajectory_match_evaluator()
    result = evaluator(outputs=conversation([A], [B]), reference_outputs=conversation([A], [A]))
    assert result["comment"].startswith("makes no call that is the expected call 1, `search`")
    assert "step 3 calls `search`, which matches no expected call left" in result["comment"]


@pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")
def test_langsmith_calls_the_evaluator_with_langchain_messages() -> None:
    calls = [{"name": "search", "args": {"q": "a"}, "id": "c1"}]
    run = [HumanMessage("How high?"), AIMessage("", tool_calls=calls), ToolMessage("8.4%", tool_call_id="c1")]
    example = Example(id=uuid.uuid4(), inputs={"question": "How high?"}, outputs={"messages": run})

    def target(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"messages": run, **inputs}

    rows: Any = evaluate(
        target,
        data=[example],
        evaluators=[create_trajectory_match_evaluator()],
        client=offline_client(),
        upload_results=False,
    )
    [result] = [result for row in rows for result in row["evaluation_results"]["results"]]
    assert (result.key, result.score) == ("trajectory_strict_match", True)


async def test_asynchronous_evaluator_returns_the_same() -> None:
    evaluator = create_async_trajectory_match_evaluator(trajectory_match_mode="subset")
    result = await evaluator(inputs={}, outputs=conversation([A]), reference_outputs=conversation([A, B]))
    assert (result["key"], result["score"]) == ("trajectory_subset_match", True)


UNKNOWN = [{"role": "assistant", "tool_calls": [{"name": "search", "id": "c1"}]}]


@pytest.mark.parametrize(
    ("outputs", "references", "error", "message"),
    [
        (None, conversation([A]), ValueError, "`outputs` has no messages"),
        (conversation([A]), [], ValueError, "`reference_outputs` has no messages"),
        ({"answer": "8.4%"}, conversation([A]), ValueError, "`outputs` is a dictionary without `messages`"),
        (conversation([A]), ["8.4%"], ValueError, "not a message"),
        (UNKNOWN, conversation([A])[1:2], JudgeFailure, "needs the arguments of the calls in step 1"),
        (conversation([A]), UNKNOWN, ValueError, "`search` in `reference_outputs` has no arguments"),
    ],
)
def test_what_the_messages_lack_is_an_error_and_no_score(
    outputs: Any, references: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        score(outputs, references, trajectory_match_mode="unordered")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trajectory_match_mode": "exact"}, "`trajectory_match_mode` is 'exact': use one of 'strict'"),
        ({"tool_args_match_mode": "partial"}, "`tool_args_match_mode` is 'partial': use one of 'exact'"),
        ({"tool_args_match_overrides": {"f": "partial"}}, r"`tool_args_match_overrides\['f'\]` is 'partial'"),
        (
            {"tool_args_match_overrides": {"f": []}},
            r"\['f'\]` is \[\]: use one of .*, a list of dotted paths",
        ),
    ],
)
def test_unknown_mode_is_refused_when_the_evaluator_is_created(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_trajectory_match_evaluator(**settings)


@pytest.mark.parametrize("order", ORDERS)
def test_calls_of_a_simulated_user_are_not_the_agents(order: str) -> None:
    call = {"id": "c1", "name": "reboot", "arguments": {}, "requestor": "user"}
    made = [
        {"role": "user", "content": "I turn it off.", "tool_calls": [call]},
        {"role": "tool", "id": "c1", "content": "off", "error": False, "requestor": "user"},
        {"role": "assistant", "content": "Thanks."},
    ]
    expected = [{"role": "user", "content": "I turn it off."}, {"role": "assistant", "content": "Thanks."}]
    assert score(made, expected, trajectory_match_mode=order)
