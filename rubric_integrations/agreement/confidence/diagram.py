"""The reliability diagram as SVG, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from rubric_integrations.results.estimate import Estimate

_SIZE = 220
_MARGIN = 30


def diagram(points: Sequence[tuple[float, Estimate]]) -> str:
    """Draw confidence against accuracy: a point with its interval for each bin, and the line of perfect confidence.

    Example:
        >>> diagram([(0.9, Estimate(0.8, 0.6, 0.9, 20))]).count("<circle")
        1
    """
    low, high = _x(0), _x(1)
    parts = [
        f'<svg width="{_SIZE}" height="{_SIZE}" role="img" aria-label="accuracy by confidence" '
        'style="color:inherit" fill="none" stroke="currentColor" font-size="11">',
        f'<rect x="{low}" y="{_y(1)}" width="{high - low}" height="{high - low}" stroke-opacity=".4"/>',
        f'<line x1="{low}" y1="{_y(0)}" x2="{high}" y2="{_y(1)}" stroke-dasharray="4" stroke-opacity=".4"/>',
        f'<text x="{low}" y="{_SIZE - 8}" stroke="none" fill="currentColor">confidence, 0 to 1</text>',
        f'<text x="12" y="{_y(0)}" stroke="none" fill="currentColor" transform="rotate(-90 12 {_y(0)})">'
        "accuracy, 0 to 1</text>",
    ]
    for confidence, accuracy in points:
        if accuracy.value is None:
            continue
        x = _x(confidence)
        if accuracy.low is not None and accuracy.high is not None:
            parts.append(f'<line x1="{x}" y1="{_y(accuracy.low)}" x2="{x}" y2="{_y(accuracy.high)}"/>')
        parts.append(f'<circle cx="{x}" cy="{_y(accuracy.value)}" r="3" fill="currentColor"/>')
    return "".join([*parts, "</svg>"])


def _x(value: float) -> float:
    return round(_MARGIN + value * (_SIZE - 2 * _MARGIN), 1)


def _y(value: float) -> float:
    return round(_SIZE - _x(value), 1)
