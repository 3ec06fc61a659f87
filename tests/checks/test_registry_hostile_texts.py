"""Checks and metrics on hostile texts: each is decided with bounded work, or is a failure of its criterion alone."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from rubric_integrations import Check, Criterion, PerCriterionGrader, Rubric, Submission
from rubric_integrations.checks import register_metric, run_check
from rubric_integrations.checks import structure as json_schema_module
from rubric_integrations.checks.registry import CHECKS
from rubric_integrations.rubric import HybridMetric, Metric
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import FakeJudge


def doubling(leaf: dict[str, Any], keyword: str = "anyOf", depth: int = 12) -> dict[str, Any]:
    """Make a schema in which each reference leads to two others: the last schema is applied thousands of times."""
    names = [f"#/$defs/a{number}" for number in range(1, depth + 1)]
    schemas = {f"a{number}": {keyword: [{"$ref": name}] * 2} for number, name in enumerate(names)}
    return {"$defs": {**schemas, f"a{depth}": leaf}, "$ref": "#/$defs/a0"}


LONG_LIST = json.dumps(list(range(50_000)))

HOSTILE_SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "a schema that refers to itself": ({"$ref": "#"}, "1"),
    "a recursive schema and nested lists": ({"items": {"$ref": "#"}}, "[" * 900 + "]" * 900),
    "a factor and a long integer": ({"multipleOf": 0.1}, "1" * 401),
    "a long list": ({"items": {"type": "integer"}}, json.dumps([1] * 200_000)),
    "a long list of unique items": ({"uniqueItems": True}, json.dumps([1] * 200_000)),
    "a long list and an enum": ({"items": {"enum": list(range(1000))}}, json.dumps([-1] * 10_000)),
    "an ambiguous pattern of properties": ({"patternProperties": {"^(a|aa)+$": {}}}, json.dumps({"a" * 60 + "!": 1})),
    "an ambiguous pattern of many texts": ({"items": {"pattern": "^(a|aa)+$"}}, json.dumps(["a" * 60 + "!"] * 9)),
    "a long list that is quoted thousands of times": (doubling({"type": "string"}), LONG_LIST),
    "a long list that is sorted thousands of times": (
        doubling({"uniqueItems": True}, "allOf"),
        json.dumps(["x" * 900_000, 1]),
    ),
    "a long text that is quoted thousands of times": (doubling({"type": "array"}), json.dumps("x" * 900_000)),
    "a pattern that fills the memory": ({"pattern": "a{50000000}"}, '"a"'),
    "an invalid pattern": ({"pattern": "("}, '"a"'),
}


@pytest.mark.parametrize("case", HOSTILE_SCHEMAS)
@pytest.mark.sizes
def test_schema_that_cannot_be_decided_is_a_failure_that_names_the_condition(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_schema_module, "PATTERN_SECONDS", 0.1)
    schema, response = HOSTILE_SCHEMAS[case]
    with pytest.raises(JudgeFailure, match=r"json_schema|pattern .* took longer") as failure:
        run_check(Check.model_construct(None, json_schema=schema), response)
    assert failure.value.kind == "check"
    assert len(failure.value.message) < 500


def test_time_of_all_patterns_of_a_schema_is_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def search(_pattern: str, _text: str, *, seconds: float) -> bool:
        limits.append(seconds)
        return True

    monkeypatch.setattr(json_schema_module, "search", search)
    run_check(Check(json_schema={"items": {"pattern": "a"}}), json.dumps(["a"] * 20))
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] < limits[0] <= 1.0


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("[1, 1.0]", "UNMET"),
        ('[1, true, 0, false, "1", null]', "MET"),
        ('[{"a": 1, "b": 2}, {"b": 2, "a": 1}]', "UNMET"),
        ('[[1, 2], [2, 1], {"a": 1}, {"a": "1"}]', "MET"),
        ("[[1.0], [1]]", "UNMET"),
        ('"aa"', "MET"),
    ],
)
def test_unique_items_are_compared_as_json_schema_compares_values(response: str, verdict: str) -> None:
    assert run_check(Check(json_schema={"uniqueItems": True}), response).verdict == verdict


def test_unique_items_of_a_long_list_are_compared_once_each() -> None:
    # Integers with one hash: a set of them would compare every pair.
    response = json.dumps([i * (2**61 - 1) for i in range(20_000)])
    assert run_check(Check(json_schema={"uniqueItems": True}), response).verdict == "MET"


@pytest.mark.parametrize(
    ("schema", "response", "reason"),
    [
        ({"properties": {"a": {}}, "additionalProperties": False}, '{"b": 1}', "'b' was unexpected"),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, '{"xa": 1, "b": 1}', "'b' was unexpected"),
        ({"patternProperties": {"^x": {"type": "string"}}}, '{"xa": 1}', "at $.xa: 1 is not of type 'string'"),
        ({"additionalProperties": {"type": "string"}}, '{"a": 1}', "at $.a: 1 is not of type 'string'"),
    ],
)
def test_reason_of_properties_by_pattern_names_the_property(schema: Any, response: str, reason: str) -> None:
    assert reason in run_check(Check(json_schema=schema), response).reason


@pytest.mark.parametrize("condition", CHECKS)
def test_exception_of_a_condition_is_a_failure_that_names_it(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_error(_check: Check, _submission: Submission) -> str:
        raise ZeroDivisionError("no reason")

    monkeypatch.setitem(CHECKS, condition, raise_error)
    with pytest.raises(JudgeFailure, match=f"`{condition}` .*ZeroDivisionError: no reason"):
        run_check(Check.model_construct(None, **{condition: "a value of any type"}), "1")


async def test_check_that_raises_fails_its_criterion_and_leaves_the_others() -> None:
    rubric = Rubric(
        [Criterion(requirement="Is JSON", check=Check(json_schema={"$ref": "#"})), Criterion(requirement="Is kind")]
    )
    report = await rubric.grade("1", grader=PerCriterionGrader(FakeJudge(), on_failure="abstain"))
    assert report.failed_count == 1
    assert "json_schema" in (report.criteria[0].error or "")
    assert report.criteria[1].verdict == "MET"


async def test_checks_and_metrics_are_computed_outside_of_the_event_loop() -> None:
    threads: list[threading.Thread] = []

    @register_metric("thread of the metric")
    def record(_submission: Submission) -> float:  # pyright: ignore[reportUnusedFunction]
        threads.append(threading.current_thread())
        return 1.0

    config = {"metric_function": "thread of the metric"}
    rubric = Rubric(
        [Criterion(requirement="x", check=Check(metric=Metric(type="custom", config=config)))],
        hybrid_metrics=(HybridMetric(type="custom", config=config, name="x", weight=0.5),),
    )
    await rubric.grade("x", grader=PerCriterionGrader(FakeJudge()))
    assert len(threads) == 2
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("kind", ["bleu", "rouge"])
def test_metric_of_a_long_text_is_refused_and_names_the_limit(kind: Any) -> None:
    submission = Submission(response="a b " * 100_000, reference="b")
    with pytest.raises(JudgeFailure, match=f"`{kind}`.*400,000 characters"):
        run_check(Check(metric=Metric(type=kind)), submission)
    with pytest.raises(JudgeFailure, match=f"`{kind}`.*400,000 characters"):
        run_check(Check(metric=Metric(type=kind)), Submission(response="b", reference=submission.response))


@pytest.mark.parametrize(
    ("response", "reference"),
    [
        ("the cat sat on the mat", "a cat was sitting on the mat"),
        ("a b c d e f g", "g f e d c b a"),
        ("", "word"),
        ("x y z x y z " * 20, "z y x y " * 25),
        ("\u4e2d\u6587", "word"),
    ],
)
def test_rouge_l_equals_that_of_the_library(response: str, reference: str) -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    expected = scorer.RougeScorer(["rougeL"], use_stemmer=True).score(reference, response)["rougeL"].fmeasure
    submission = Submission.model_construct(response=response, reference=reference)
    assert run_check(Check(metric=Metric(type="rouge")), submission).value == pytest.approx(expected)


@pytest.mark.parametrize(("depth", "decided"), [(20, True), (200, False)])
def test_references_are_followed_as_deep_as_the_response_up_to_a_limit(depth: int, decided: bool) -> None:
    schema = {"type": "array", "items": {"$ref": "#"}}
    response = "[" * depth + "]" * depth
    if decided:
        assert run_check(Check(json_schema=schema), Submission(response=response)).verdict == "MET"
    else:
        with pytest.raises(JudgeFailure, match="nests too deeply, or refers to itself without an end"):
            run_check(Check(json_schema=schema), Submission(response=response))


def test_many_references_one_after_another_are_followed() -> None:
    item = {"anyOf": [{"$ref": "#/$defs/word"}, {"$ref": "#/$defs/number"}]}
    schema = {"$defs": {"word": {"type": "string"}, "number": {"type": "number"}}, "type": "array", "items": item}
    submission = Submission(response=json.dumps([1] * 200))
    assert run_check(Check(json_schema=schema), submission).verdict == "MET"
