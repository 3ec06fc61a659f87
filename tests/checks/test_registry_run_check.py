"""Checks on responses: which conditions hold, and with which reason they do not."""

from __future__ import annotations

import pytest

from rubric_integrations import Check, Submission
from rubric_integrations.checks import run_check
from rubric_integrations.checks.registry import CHECKS
from rubric_integrations.scoring import JudgeFailure


@pytest.mark.parametrize(
    ("check", "response", "verdict"),
    [
        (Check(contains="17.2%"), "it is 17.2%", "MET"),
        (Check(contains=("a", "b")), "only a", "UNMET"),
        (Check(contains="ABC", ignore_case=True), "abc", "MET"),
        (Check(not_contains="sorry"), "Sorry", "MET"),
        (Check(not_contains="sorry", ignore_case=True), "Sorry", "UNMET"),
        (Check(equals="42"), " 42\n", "MET"),
        (Check(equals="42"), "42.", "UNMET"),
        (Check(reference="equals"), Submission(response="a b", reference="a b"), "MET"),
        (Check(reference="equals"), Submission(response="a b", reference="a b\n"), "UNMET"),
        (Check(reference="differs"), Submission(response="a b", reference="a b\n"), "MET"),
        (Check(reference="differs", ignore_case=True), Submission(response="A", reference="a"), "UNMET"),
        (Check(reference="contains"), Submission(response="It is B.", reference="b"), "UNMET"),
        (Check(reference="contains", ignore_case=True), Submission(response="It is B.", reference="b"), "MET"),
        (Check(equals="Yes", max_words=1, ignore_case=True), "yes", "MET"),
        (Check(max_words=1, ignore_case=False), "yes", "MET"),
        (Check(regex=r"^\d+$"), "123", "MET"),
        (Check(regex=r"\bRED\b", ignore_case=True), "it is red", "MET"),
        (Check.model_validate({"number": 1234.5}), "1,234.5 units", "MET"),
        (Check.model_validate({"number": "17.2%"}), "17.2 points", "UNMET"),
        (Check.model_validate({"number": "17.2%"}), "about 17.2%", "MET"),
        (Check.model_validate({"number": {"value": 17, "tolerance": 0.5}}), "17.4", "MET"),
        (Check.model_validate({"number": {"value": 17, "tolerance": 0.3}}), "17.4", "UNMET"),
        (Check.model_validate({"number": 0.3}), "0.30", "MET"),
        (Check(json_schema={"type": "object", "required": ["a"]}), '{"a": 1}', "MET"),
        (Check(json_schema={"type": "object", "required": ["a"]}), "{}", "UNMET"),
        (Check(json_schema={"type": "object"}), "not json", "UNMET"),
        (Check(json_schema={"type": "array"}), "[" * 100_000, "UNMET"),
        (Check(min_words=2, max_words=3), "one two three", "MET"),
        (Check(min_words=2), "one", "UNMET"),
        (Check(max_words=2), "one two three", "UNMET"),
        (Check(contains="a", max_words=1), "a b", "UNMET"),
    ],
)
def test_check_on_a_response_gives_the_verdict_and_a_reason(
    check: Check, response: str | Submission, verdict: str
) -> None:
    judgment = run_check(check, response)
    assert judgment.verdict == verdict
    assert judgment.reason
    assert judgment.spend.calls == 0


@pytest.mark.parametrize("reference", [None, ""])
def test_comparison_with_a_missing_reference_is_a_failure(reference: str | None) -> None:
    with pytest.raises(JudgeFailure, match="needs the submission's `reference`, which is missing"):
        run_check(Check(reference="contains"), Submission(response="a", reference=reference))


@pytest.mark.parametrize(
    ("check", "response", "reason"),
    [
        (Check(min_words=2, max_words=3), "one", "has 1 words, fewer than 2"),
        (Check(min_words=2, max_words=3), "one two three four", "has 4 words, more than 3"),
        (Check(contains=("a", "b"), equals="c"), "a", "does not contain 'b'; is not 'c'"),
        (Check(not_contains=("a", "b", "z")), "ab", "contains 'a', 'b'"),
        (Check(regex="x", max_words=1), "y", "has no match of the pattern"),
        (Check.model_validate({"number": {"value": 17.2, "unit": "%", "tolerance": 0.5}}), "17.2",
         "does not state the number 17.2% within 0.5"),
        (Check(json_schema={"required": ["a"]}), "{}", "at $: 'a' is a required property"),
        (Check(contains="a", min_words=1), "a", "the check holds: contains, min_words"),
    ],
)  # fmt: skip
def test_reason_of_a_check_names_each_failed_condition_once(check: Check, response: str, reason: str) -> None:
    assert run_check(check, response).reason == reason


@pytest.mark.parametrize("condition", CHECKS)
def test_condition_without_a_function_is_a_failure_and_never_met(
    condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Check.model_construct(None, **{condition: "a value of any type"})
    monkeypatch.delitem(CHECKS, condition)
    with pytest.raises(JudgeFailure, match=f"`{condition}` has no function") as failure:
        run_check(check, "1")
    assert failure.value.kind == "check"
