"""What arrived in a framework, as a table."""

from __future__ import annotations

from collections.abc import Mapping

COLUMNS = ("rubric", "rubric.right", "rubric.sourced", "rubric.rude")


def print_arrivals(framework: str, arrivals: Mapping[str, Mapping[str, object]]) -> None:
    """Print a row for each response, with what the framework holds under the name of each score."""
    print(f"\n| {framework} | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
    for response, values in arrivals.items():
        cells = [values.get(column, "-") for column in COLUMNS]
        texts = [f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells]
        print(f"| {response} | {' | '.join(texts)} |")
