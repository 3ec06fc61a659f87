"""Conditions on a whole trajectory, and what it lacks."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, Submission
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.submission import Step
from tests.checks.trajectories import call, calling, reason, run_of, verdict

RUN = calling([call("search_web", {"q": "a"}), call("search_files", {"q": "a"}), call("Delete_row", {"id": 1})])


def paid(*values: float | None, field: str) -> Submission:
    """Return a run whose steps of the assistant have these tokens, costs or durations."""
    steps = [Step.model_validate({"role": "assistant", field: value}) for value in values]
    return run_of(Step(role="user", text="How high?"), *steps)


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ({"tool_used": "search_web"}, ""),
        ({"tool_used": "search_*"}, ""),
        ({"tool_used": {"name": "search_*", "min": 2, "max": 2}}, ""),
        ({"tool_used": {"name": "fetch", "max": 2}}, ""),
        ({"tool_used": "search"}, "calls `search` 0 times, fewer than 1"),
        ({"tool_used": "delete_*"}, "calls `delete_*` 0 times, fewer than 1"),  # upper and lower case differ
        ({"tool_used": {"name": "search_*", "max": 1}}, "calls `search_*` 2 times, more than 1, in steps 2, 3"),
        ({"tool_used": ["search_*", "fetch", {"name": "Delete_row", "max": 0}]},
         "calls `fetch` 0 times, fewer than 1; calls `Delete_row` once, more than 0, in step 4"),
        ({"tool_forbidden": "delete_*"}, ""),
        ({"tool_forbidden": ["delete_*", "*_row"]}, "step 4 calls `Delete_row`, which is forbidden"),
        ({"max_steps": 3}, ""),
        ({"max_steps": 2}, "makes 3 steps, more than 2"),
        ({"no_repeated_calls": True}, ""),
        ({"max_steps": 0, "tool_forbidden": "*_web"},
         "step 2 calls `search_web`, which is forbidden; makes 3 steps, more than 0"),
    ],
)  # fmt: skip
def test_condition_on_the_tools_and_steps_holds_or_has_a_reason(conditions: dict[str, Any], text: str) -> None:
    judgment_reason = reason(RUN, **conditions)
    assert judgment_reason == (text or "the check holds: " + ", ".join(conditions))


@pytest.mark.parametrize(
    ("field", "condition", "values", "limit", "text"),
    [
        ("tokens", "max_tokens", [600, 400], 1000, ""),
        ("tokens", "max_tokens", [600, 401], 1000, "takes 1,001 tokens, more than 1,000"),
        ("cost", "max_cost", [0.1, 0.2], 0.3, ""),
        ("cost", "max_cost", [0.1, 0.25], 0.3, "costs $0.35, more than $0.3"),
        ("milliseconds", "max_seconds", [1000, 500.0], 1.5, ""),
        ("milliseconds", "max_seconds", [1000, 501.0], 1.5, "takes 1.501 s, more than 1.5 s"),
        # The known steps alone take too much, whatever the others take.
        ("tokens", "max_tokens", [None, 1001], 1000, "takes 1,001 tokens, more than 1,000"),
    ],
)
def test_total_of_all_steps_is_limited(
    field: str, condition: str, values: list[float | None], limit: float, text: str
) -> None:
    run = paid(*values, field=field)
    assert reason(run, **{condition: limit}) == (text or f"the check holds: {condition}")


@pytest.mark.parametrize(
    ("field", "condition"), [("tokens", "max_tokens"), ("cost", "max_cost"), ("milliseconds", "max_seconds")]
)
@pytest.mark.parametrize(("values", "where"), [([1, None, None], "steps 3, 4"), ([], "any step")])
def test_total_with_an_unknown_step_is_a_failure_that_names_it(
    field: str, condition: str, values: list[float | None], where: str
) -> None:
    with pytest.raises(JudgeFailure, match=f"`{condition}` needs the {field} of {where}, .*set `{field}`") as failure:
        verdict(paid(*values, field=field), **{condition: 1000})
    assert failure.value.kind == "check"


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ([False, False], "the check holds: no_errors"),
        ([], "the check holds: no_errors"),
        ([False, True, True], "step 3 calls `search`, which fails; step 4 calls `search`, which fails"),
        ([None, True], "step 3 calls `search`, which fails"),
    ],
)
def test_no_errors_names_the_steps_that_fail(errors: list[bool | None], text: str) -> None:
    assert reason(calling([call("search", is_error=error) for error in errors]), no_errors=True) == text


def test_no_errors_without_an_error_flag_is_a_failure_that_names_the_step() -> None:
    run = calling([call("search", is_error=False), call("search")])
    with pytest.raises(JudgeFailure, match="whether the calls in step 3 failed"):
        verdict(run, no_errors=True)


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        ([call("f", {"a": 1, "b": 2}), call("f", {"b": 2, "a": 1.0})], "step 3 repeats the call of `f` in step 2"),
        ([call("f", {"a": 1}), call("f", {"a": True}), call("g", {"a": 1})], ""),
        ([call("f", "x"), call("f", "x")], "step 3 repeats the call of `f` in step 2"),
        ([call("f"), call("g", {})], ""),
        ([call("f"), call("f", {}), call("f", {})], "step 4 repeats the call of `f` in step 3"),
    ],
)
def test_no_repeated_calls_compares_the_values_of_arguments(calls: list[Any], text: str) -> None:
    assert reason(calling(calls), no_repeated_calls=True) == (text or "the check holds: no_repeated_calls")


def test_no_repeated_calls_without_arguments_is_a_failure_if_the_tool_is_called_again() -> None:
    with pytest.raises(JudgeFailure, match="needs the arguments of the calls in step 3"):
        verdict(calling([call("f", {}), call("f")]), no_repeated_calls=True)


CONDITIONS: dict[str, Any] = {
    "tool_calls": [],
    "tool_used": "f",
    "tool_forbidden": "f",
    "max_steps": 9,
    "max_tokens": 9,
    "max_cost": 9,
    "max_seconds": 9,
    "no_errors": True,
    "no_repeated_calls": True,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_condition_without_the_trajectory_or_a_call_is_a_failure_that_says_what_to_do(condition: str) -> None:
    value = {condition: CONDITIONS[condition]}
    with pytest.raises(JudgeFailure, match=f"`{condition}` needs the submission's `trajectory`") as failure:
        verdict(Submission(response="x"), **value)
    assert failure.value.kind == "check"
    orphan = run_of(Step(role="assistant", calls=(call("g", {}, result="1"),)), Step(role="tool", text="8.4%"))
    with pytest.raises(JudgeFailure, match=f"`{condition}` needs all calls, .* step 2 .*: pass the whole run"):
        verdict(orphan, **value)


def test_result_that_may_belong_to_a_call_without_one_is_no_missing_call() -> None:
    run = run_of(Step(role="assistant", calls=(call("f", {}),)), Step(role="tool", text="8.4%"))
    assert verdict(run, tool_calls=["f"]) == "MET"


def test_checks_of_a_trajectory_stand_beside_other_criteria_of_a_rubric() -> None:
    rubric = Rubric.from_yaml("""
    - {name: margin, weight: 6, requirement: States the margin, check: {contains: 8.4%}}
    - {name: search, weight: 3, requirement: Searches first, check: {tool_calls: [search_web], order: in_order}}
    - {name: safe, weight: 1, requirement: Deletes nothing, check: {tool_forbidden: "Delete_*"}}
    """)
    report = rubric.grade_sync(RUN, grader=PerCriterionGrader("offline"))
    assert [row.verdict for row in report.criteria] == ["MET", "MET", "UNMET"]
    assert report.score == 0.9
    report = rubric.grade_sync("It was 8.4%.", grader=PerCriterionGrader("offline", on_failure="abstain"))
    assert [row.error is None for row in report.criteria] == [True, False, False]
    assert not report.complete
