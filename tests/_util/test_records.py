"""The base class of records, and the types of weights and values."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations._util.records import Record, UnitScore, Weight


class Example(Record):
    """A record with a weight and a value."""

    weight: Weight = 1.0
    value: UnitScore = 0.0


@pytest.mark.parametrize(
    "fields",
    [
        {"weight": True},
        {"weight": "1"},
        {"weight": float("inf")},
        {"weight": 2e15},
        {"value": 1.1},
        {"value": -0.1},
        {"value": float("nan")},
        {"wieght": 1.0},
    ],
)
def test_record_with_an_invalid_or_unknown_field_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        Example(**fields)


def test_record_is_frozen() -> None:
    record = Example()
    with pytest.raises(ValueError, match="frozen"):
        record.weight = 2.0  # pyright: ignore[reportAttributeAccessIssue]
