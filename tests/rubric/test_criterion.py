"""Criteria and checks that are made in Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from rubric_integrations import Check, Criterion


@pytest.mark.parametrize(
    "make",
    [
        lambda: Criterion(requirement="a", weight=True),
        lambda: Criterion(requirement=""),
        lambda: Criterion(requirement="a", wieght=3),  # pyright: ignore[reportCallIssue]
        Check,
    ],
)
def test_constructor_with_a_fault_raises_a_validation_error(make: Callable[[], object]) -> None:
    with pytest.raises(ValidationError):
        make()
