"""The condition `fields`: which fields of an answer in JSON have their expected values, and why others do not."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from rubric_integrations import Check, PerCriterionGrader, Rubric, RubricError, Submission
from rubric_integrations.checks import run_check
from rubric_integrations.formats.native import json_schema
from rubric_integrations.formats.registry import write_text
from rubric_integrations.scoring import JudgeFailure

INVOICE = {"invoice": {"total": 1234.5, "date": "Dec 31, 2024", "paid": True}, "items": [{"name": "Bolt"}], "id": 7}


def check_of(*fields: dict[str, Any], require: str = "share") -> Check:
    return Check.model_validate({"fields": {"expected": fields, "require": require}})


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ({"equals": 1234.5}, 1234.5, ""),
        ({"equals": 1234}, 1234.0, ""),
        ({"equals": 0.3}, 0.1 + 0.2, ""),
        ({"equals": 1234.5, "tolerance": 1}, 1235.5, ""),
        ({"equals": 1234.5, "tolerance": 1}, 1235.6, "`x` is 1235.6, not 1234.5 within 1"),
        ({"equals": 12345678901234567}, 12345678901234568, "`x` is 12345678901234568, not 12345678901234567"),
        ({"equals": 1.5}, int("9" * 400), "`x` is 9999"),
        ({"equals": 1}, True, "`x` is True, not 1"),
        ({"equals": True}, 1, "`x` is 1, not True"),
        ({"equals": 5, "tolerance": 1}, "5", "`x` is '5', not 5 within 1"),
        ({"equals": None}, None, ""),
        ({"equals": None}, 0, "`x` is 0, not None"),
        ({"equals": "Bolt"}, "bolt", "`x` is 'bolt', not 'Bolt'"),
        ({"equals": {"a": [1, {"b": 2}]}}, {"a": [1.0, {"b": 2}]}, ""),
        ({"equals": [1, 2]}, [2, 1], "`x` is [2, 1], not [1, 2]"),
        ({"equals": [1]}, [True], "`x` is [True], not [1]"),
        ({"equals": "2024-12-31", "date": True}, "31.12.2024", ""),
        ({"equals": "Dec 31, 2024", "date": True}, "2024-12-31T23:00:00Z", ""),
        ({"equals": "2024-03-04", "date": True}, "03/04/2024",
         "`x` is '03/04/2024', which is ambiguous: either number can be the month"),
        ({"equals": "2024-03-14", "date": True}, "03/14/2024", ""),
        ({"equals": "2024-03-14", "date": True}, "30.2.2024", "is not a date of the calendar"),
        ({"equals": "2024-03-14", "date": True}, 20240314, "`x` is 20240314, not the text of a date"),
    ],
)  # fmt: skip
def test_field_equals_by_value_or_the_reason_names_both(field: dict[str, Any], value: Any, reason: str) -> None:
    judgment = run_check(check_of({"path": "x", **field}), json.dumps({"x": value}))
    assert judgment.value == (0.0 if reason else 1.0)
    assert reason in judgment.reason
    assert len(judgment.reason) < 200


def test_value_is_the_weighted_share_and_require_all_gives_a_verdict() -> None:
    fields: list[dict[str, Any]] = [
        {"path": "invoice.total", "equals": 1234.5, "weight": 3},
        {"path": "items.0.name", "equals": "Bolt"},
        {"path": "items[0].name.first", "equals": "Bolt"},
        {"path": "items.1.name", "equals": "Nut", "weight": 2},
        {"path": "invoice.tax", "equals": 1},
    ]
    judgment = run_check(check_of(*fields), json.dumps(INVOICE))
    assert (judgment.value, judgment.verdict) == (0.5, "0.5")
    assert judgment.reason == (
        "`items[0].name.first` is missing (no 'first' in 'Bolt'); `items.1.name` is missing (no item '1' in a list of "
        "1); `invoice.tax` is missing (no key 'tax')"
    )
    assert run_check(check_of(*fields, require="all"), json.dumps(INVOICE)).verdict == "UNMET"
    assert run_check(check_of(*fields[:2], require="all"), json.dumps(INVOICE)).verdict == "MET"


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("Here it is:\n```json\n{}\n```\nBye.", ""),
        ("```JSON\n{}\n```", ""),
        ("~~~\n{}\n~~~", ""),
        ("The id is 7.", "is not JSON"),
        ("```json\n{}\n```\nor\n```json\n{}\n```", "is not JSON: it has 2 fenced blocks, any of which may be"),
        ("```json\n{}", "is not JSON"),
        ("```python\n{}\n```", "is not JSON"),
        ('{"id": 7, "id": 7}', "has the key 'id' twice"),
        ('{"id": 7, "other": NaN}', "has a number that is not finite"),
        ('{"id": 7, "other": 1e999}', "has a number that is not finite"),
        ("[" * 100_000, "is not JSON"),
        ("9" * 5_000, "has a number of more than 4,300 digits"),
    ],
)
def test_answer_is_json_alone_or_in_one_fenced_block(response: str, reason: str) -> None:
    judgment = run_check(check_of({"path": "id", "equals": 7}), response.replace("{}", '{"id": 7}'))
    assert judgment.value == (0.0 if reason else 1.0)
    assert reason in judgment.reason


def test_field_without_equals_is_compared_with_the_reference() -> None:
    check = check_of({"path": "id"}, {"path": "invoice.date", "date": True})
    reference = json.dumps({"id": 7, "invoice": {"date": "2024-12-31"}})
    assert run_check(check, Submission(response=json.dumps(INVOICE), reference=reference)).value == 1.0
    for wrong, problem in [
        (None, "has no `reference`"),
        ("seven", "`reference` is not JSON"),
        ('{"id": 7}', "lacks the field `invoice.date`"),
        ('{"id": 7, "invoice": {"date": "soon"}}', "expected date 'soon' of the submission's `reference` is not a"),
    ]:
        with pytest.raises(JudgeFailure, match=problem) as failure:
            run_check(check, Submission(response=json.dumps(INVOICE), reference=wrong))
        assert failure.value.kind == "check"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([], "at least 1 item"),
        ([{"path": "a..b", "equals": 1}], "has an empty part"),
        ([{"path": "a.0"}, {"path": "a[0]"}], "has the path 'a.0' twice"),
        ([{"path": "a", "equals": "x", "tolerance": 1}], "has a `tolerance`, and `equals` is 'x'"),
        ([{"path": "a", "equals": "03/04/2024", "date": True}], "'03/04/2024', which is ambiguous"),
        ([{"path": "a", "equals": 1, "date": True}], "is a date, and `equals` is 1"),
        ([{"path": "a", "date": True, "tolerance": 1}], "both `date` and `tolerance`"),
    ],
)
def test_field_that_could_never_equal_is_refused(fields: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Check.model_validate({"fields": fields})


def test_check_with_a_value_takes_no_other_condition_and_decides_no_applies_when() -> None:
    fields = [{"path": "a", "equals": 1}]
    with pytest.raises(ValidationError, match="has `fields` beside another condition"):
        Check.model_validate({"fields": fields, "contains": "a"})
    with pytest.raises(RubricError, match="has a `fields`, whose value is neither yes nor no"):
        Rubric.from_dict([{"requirement": "x", "applies_when": {"fields": fields}}])
    assert Check.model_validate({"fields": {"expected": fields, "require": "all"}, "contains": "a"}).measure is None


def test_fields_in_a_file_grade_a_response_and_survive_being_written() -> None:
    rubric = Rubric.from_yaml("""
- requirement: The fields of the invoice are right
  check:
    fields:
      - {path: invoice.date, equals: 2024-12-31, date: true}
      - {path: invoice.total, equals: 1200, tolerance: 20}
      - {path: note, equals: null}
""")
    jsonschema.validate([{"requirement": "x", "check": {"fields": [{"path": "note", "equals": None}]}}], json_schema())
    again = Rubric.from_yaml(write_text(rubric, "yaml"))
    for each in (rubric, again):
        report = each.grade_sync(json.dumps({**INVOICE, "note": None}), grader=PerCriterionGrader("offline"))
        assert report.score == pytest.approx(2 / 3)
