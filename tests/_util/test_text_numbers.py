"""Numbers in texts."""

from __future__ import annotations

import pytest

from rubric_integrations._util.text import Quantity, decimal, percent, read_quantities


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


def test_number_that_rounds_to_zero_has_no_minus_sign() -> None:
    assert (decimal(-0.004, 2), decimal(-0.0, 3), decimal(-0.006, 2)) == ("0.00", "0.000", "-0.01")
    assert (decimal(-0.004, 2, signed=True), decimal(0.004, 3, signed=True)) == ("+0.00", "+0.004")


@pytest.mark.parametrize(("share", "text"), [(0.95, "95%"), (1 - 0.025, "97.5%"), (1 - 2 * 0.0005, "99.9%")])
def test_level_has_all_its_digits(share: float, text: str) -> None:
    assert percent(share) == text
