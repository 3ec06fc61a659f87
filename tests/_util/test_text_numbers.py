"""Numbers in texts."""

from __future__ import annotations

import pytest

from rubric_integrations._util.text import Quantity, read_quantities


@pytest.mark.parametrize(
    ("text", "quantities"),
    [
        ("1,234.5 and 17.2%", [Quantity(1234.5, ""), Quantity(17.2, "%")]),
        ("$1.2 and €3,000", [Quantity(1.2, "$"), Quantity(3000, "€")]),
        ("-5 to \u22126, 3-4", [Quantity(-5, ""), Quantity(-6, ""), Quantity(3, ""), Quantity(4, "")]),
        ("Q4 2023, v2, 1e3, 17.2 %.", [Quantity(2023, ""), Quantity(1000, ""), Quantity(17.2, "%")]),
        ("1,23 is no thousand; (12)", [Quantity(12, "")]),
        ("", []),
    ],
)
def test_numbers_in_a_text_are_read_with_their_units(text: str, quantities: list[Quantity]) -> None:
    assert list(read_quantities(text)) == quantities
