"""The condition `tool_calls`: orders, modes of arguments, and what a trace lacks."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Submission
from rubric_integrations.rubric.check import ArgumentsMode, Order
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.submission import Step, ToolCall
from tests.checks.trajectories import Arguments, call, calling, reason, run_of, verdict

ORDERS: tuple[Order, ...] = get_args(Order)
MODES: tuple[ArgumentsMode, ...] = get_args(ArgumentsMode)
SEARCH, FETCH, DELETE = call("search", {"q": "a"}), call("fetch", {"id": 1}), call("delete", {"id": 1})


@pytest.mark.parametrize(
    ("expected", "made", "orders"),
    [
        (["search", "fetch"], [SEARCH, FETCH], {"strict", "in_order", "superset", "subset", "unordered"}),
        (["search", "fetch"], [FETCH, SEARCH], {"superset", "subset", "unordered"}),
        (["search", "fetch"], [SEARCH, DELETE, FETCH], {"in_order", "superset"}),
        (["search", "fetch"], [FETCH, DELETE, SEARCH], {"superset"}),
        (["search", "fetch"], [SEARCH], {"subset"}),
        (["search", "search"], [SEARCH], {"subset"}),
        (["search"], [SEARCH, SEARCH], {"in_order", "superset"}),
        (["search"], [DELETE], set()),
        ([], [], {"strict", "in_order", "superset", "subset", "unordered"}),
        ([], [SEARCH], {"in_order", "superset"}),
    ],
)
def test_order_says_whether_others_may_be_made_and_expected_calls_be_missing(
    expected: list[str], made: list[ToolCall], orders: set[str]
) -> None:
    met = {order for order in ORDERS if verdict(calling(made), tool_calls=expected, order=order) == "MET"}
    assert met == orders
    assert (verdict(calling(made), tool_calls=expected) == "MET") == ("strict" in orders)


@pytest.mark.parametrize(
    ("expected", "made", "modes"),
    [
        ({"a": 1}, {"a": 1.0}, {"exact", "superset", "subset", "ignore"}),
        ({"a": 1}, {"a": 1, "b": 2}, {"superset", "ignore"}),
        ({"a": 1, "b": 2}, {"a": 1}, {"subset", "ignore"}),
        ({"a": 1}, {"a": True}, {"ignore"}),
        ({"a": None}, {"b": None}, {"ignore"}),
        ({"a": {"b": [1, {"c": "x"}]}}, {"a": {"b": [1.0, {"c": "x"}]}}, {"exact", "superset", "subset", "ignore"}),
        # Values are compared as wholes: only the keys of the arguments themselves may be more or fewer.
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, {"ignore"}),
        ({"a": [1, 2]}, {"a": [1]}, {"ignore"}),
        ({}, {"a": 1}, {"superset", "ignore"}),
        ("not JSON", "not JSON", {"exact", "superset", "subset", "ignore"}),
        ("not JSON", "not  JSON", {"ignore"}),
        ({}, "{}", {"ignore"}),
        ({"a": "1"}, {"a": 1}, {"ignore"}),
        ({"a": 1}, {"a": 10**400}, {"ignore"}),
    ],
)
def test_arguments_are_compared_as_the_mode_of_the_check_or_of_the_call_says(
    expected: Arguments, made: Arguments, modes: set[str]
) -> None:
    run = calling([call("search", made)])
    expectation = {"name": "search", "arguments": expected}
    assert {mode for mode in MODES if verdict(run, tool_calls=[expectation], arguments=mode) == "MET"} == modes
    own = [[{**expectation, "match": mode}] for mode in MODES]
    assert {mode for mode, calls in zip(MODES, own, strict=True) if verdict(run, tool_calls=calls) == "MET"} == modes


@pytest.mark.parametrize(
    ("match", "tolerance", "made", "is_met"),
    [
        (["filters.years.0"], 0.0, {"filters": {"years": [2024, 2025]}, "q": "other"}, True),
        (["filters.years[0]"], 0.0, {"filters": {"years": [2023]}}, False),
        (["filters.years.0", "q"], 0.0, {"filters": {"years": [2024]}}, False),
        (["filters.years.0"], 0.0, {"filters": "2024"}, False),
        (["filters.years.0"], 1.0, {"filters": {"years": [2023]}}, True),
        ("exact", 1.0, {"filters": {"years": [2025.0]}, "q": "a"}, True),
        ("exact", 0.5, {"filters": {"years": [2025.0]}, "q": "a"}, False),
        ("exact", 1.0, {"filters": {"years": [True]}, "q": "a"}, False),
        ("exact", 1.0, {"filters": {"years": [10**400]}, "q": "a"}, False),
    ],
)
def test_call_may_have_dotted_paths_and_a_tolerance_of_its_own(
    match: Any, tolerance: float, made: Arguments, is_met: bool
) -> None:
    arguments = {"filters": {"years": [2024]}, "q": "a"}
    expected = {"name": "search", "arguments": arguments, "match": match, "tolerance": tolerance}
    run = calling([call("search", made)])
    assert (verdict(run, tool_calls=[expected]) == "MET") == is_met


def test_pairs_that_agentevals_misses_exist() -> None:
    # The first expected call matches both calls, and takes the only partner of the second if it takes the first.
    expected = [{"name": "search", "arguments": {}}, {"name": "search", "arguments": {"q": "a"}}]
    run = calling([call("search", {"q": "a"}), call("search", {"q": "b"})])
    for order in ("superset", "subset", "unordered"):
        assert verdict(run, tool_calls=expected, order=order, arguments="superset") == "MET"


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ({"tool_calls": ["fetch", "fetch"]}, "step 2 calls `search` where `fetch` is expected as call 1"),
        ({"tool_calls": [{"name": "search", "arguments": {}}]},
         "step 2 calls `search` with other arguments where `search` with {} is expected as call 1"),
        ({"tool_calls": ["search"]}, "step 3 calls `fetch`, after all 1 expected calls"),
        ({"tool_calls": ["search", "fetch", "delete"]}, "makes 2 calls, and not the expected call 3, `delete`"),
        ({"tool_calls": ["fetch", "search"], "order": "in_order"},
         "makes no call after the call in step 3 that is the expected call 2, `search`"),
        ({"tool_calls": ["delete", "search", "search"], "order": "superset"},
         "makes no call that is the expected call 1, `delete`; makes no call that is the expected call 3, `search` "
         "(`search` is called in step 2)"),
        ({"tool_calls": [{"name": "search", "arguments": {"q": "x" * 500}}], "order": "superset"},
         "makes no call that is the expected call 1, `search` with {\"q\": \"" + "x" * 90
         + "... (`search` is called in step 2)"),
        ({"tool_calls": [], "order": "subset"},
         "step 2 calls `search`, which matches no expected call left; step 3 calls `fetch`, which matches no expected "
         "call left"),
    ],
)  # fmt: skip
def test_reason_names_the_steps_and_the_expected_calls(conditions: dict[str, Any], text: str) -> None:
    assert reason(calling([SEARCH, FETCH]), **conditions) == text


def test_reason_of_many_calls_is_short() -> None:
    text = reason(calling([DELETE] * 9), tool_calls=[], order="subset")
    assert text.count("delete") == 3
    assert text.endswith("; and 6 more")


UNKNOWN = call("search")


@pytest.mark.parametrize(
    ("made", "conditions", "outcome"),
    [
        ([UNKNOWN], {}, "fails"),
        ([UNKNOWN], {"arguments": "ignore"}, "MET"),
        ([UNKNOWN, call("search", {"q": "a"})], {"order": "superset"}, "MET"),
        ([UNKNOWN, call("search", {"q": "b"})], {"order": "superset"}, "fails"),
        ([UNKNOWN, DELETE], {"order": "subset"}, "UNMET"),
        ([UNKNOWN, DELETE], {}, "UNMET"),
        ([call("fetch")], {"order": "superset"}, "UNMET"),
    ],
)
def test_arguments_that_the_trace_lacks_are_a_failure_if_the_answer_depends_on_them(
    made: list[ToolCall], conditions: dict[str, Any], outcome: str
) -> None:
    expected = [{"name": "search", "arguments": {"q": "a"}}]
    if outcome != "fails":
        assert verdict(calling(made), tool_calls=expected, **conditions) == outcome
        return
    with pytest.raises(JudgeFailure, match="needs the arguments of the calls in step 2") as failure:
        verdict(calling(made), tool_calls=expected, **conditions)
    assert failure.value.kind == "check"


@pytest.mark.parametrize(
    ("made", "order", "message"),
    [
        ([SEARCH] * 2_001, "subset", "1 expected calls with 2,001 calls: at most 200 with 2,000"),
        ([call("search", {"q": [0] * 2_100_000})], "strict", "more than 2,000,000 comparisons"),
    ],
)
@pytest.mark.sizes
def test_trace_that_is_too_large_to_compare_is_a_failure(made: list[ToolCall], order: str, message: str) -> None:
    expected = [{"name": "search", "arguments": made[0].arguments}]
    with pytest.raises(JudgeFailure, match=message):
        verdict(calling(made), tool_calls=expected, order=order)


def test_deeply_nested_arguments_are_compared() -> None:
    nested: Any = 1
    for _ in range(5_000):
        nested = [nested]
    made = ToolCall.model_construct(name="search", arguments={"q": nested}, is_error=None, result=None)
    run = Submission.model_construct(response="x", trajectory=run_of(Step(role="user")).trajectory)
    run.trajectory.__dict__["steps"] = (Step.model_construct(role="assistant", calls=(made,)),)  # type: ignore[union-attr]
    assert verdict(run, tool_calls=[{"name": "search", "arguments": {"q": 1}}]) == "UNMET"


# The laws of orders and modes.

# Few names and values, so that a call often matches several expected calls.
ARGUMENTS = st.dictionaries(st.sampled_from("ab"), st.sampled_from([1, 1.0, True]), max_size=2)
MADE = st.builds(call, st.sampled_from(["f", "f", "g"]), ARGUMENTS)
EXPECTED = st.fixed_dictionaries(
    {"name": st.sampled_from(["f", "f", "g"]), "arguments": ARGUMENTS},
    optional={"match": st.sampled_from(["superset", "superset", *MODES])},
)
Expected = dict[str, Any]


def is_met(expected: list[Expected], made: list[ToolCall], **conditions: Any) -> bool:
    return verdict(calling(made), tool_calls=expected, **conditions) == "MET"


def pairings(expected: list[Expected], made: list[ToolCall]) -> int:
    """Return how many expected calls the best of all pairings serves."""
    return max(
        len(chosen)
        for size in range(min(len(expected), len(made)) + 1)
        for chosen in combinations(expected, size)
        for order in permutations(made, size)
        if all(is_met([one], [other]) for one, other in zip(chosen, order, strict=True))
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(EXPECTED, max_size=3), st.lists(MADE, max_size=3), st.randoms())
def test_orders_agree_with_all_pairings_and_subsequences_and_with_each_other(
    expected: list[Expected], made: list[ToolCall], random: Any
) -> None:
    met = {order: is_met(expected, made, order=order) for order in ORDERS}
    most = pairings(expected, made)
    assert met["superset"] == (most == len(expected))
    assert met["subset"] == (most == len(made))
    assert met["unordered"] == (met["superset"] and met["subset"])
    subsequences = [list(chosen) for chosen in combinations(made, len(expected))]
    assert met["in_order"] == any(is_met(expected, chosen) for chosen in subsequences)
    assert met["strict"] <= met["in_order"] <= met["superset"]
    assert met["strict"] <= met["unordered"]
    shuffled = random.sample(expected, len(expected)), random.sample(made, len(made))
    for order in ("superset", "subset", "unordered"):
        assert is_met(*shuffled, order=order) == met[order]


@settings(max_examples=50)
@given(ARGUMENTS, ARGUMENTS)
def test_modes_of_arguments_are_nested(expected: dict[str, Any], made: dict[str, Any]) -> None:
    calls = [{"name": "f", "arguments": expected}]
    met = {mode: is_met(calls, [call("f", made)], arguments=mode) for mode in MODES}
    assert met["exact"] == (met["superset"] and met["subset"])
    assert met["ignore"]
