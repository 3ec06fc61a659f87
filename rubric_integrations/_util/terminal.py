"""Text for a terminal: untrusted text without control characters, and spend in one line."""

from __future__ import annotations

from rich.text import Text


def plain(text: str) -> Text:
    r"""Make untrusted text safe to print: no markup, and a replacement character for each control character.

    Control characters could move the cursor and overwrite what the terminal already shows.

    Example:
        >>> plain("[red]\x1b[2J").plain
        '[red]�[2J'
    """
    return Text("".join(ch if ch.isprintable() or ch in "\n\t" else "\N{REPLACEMENT CHARACTER}" for ch in text))


def spend_text(calls: int, tokens: int | None, cost: float | None) -> str:
    """Describe calls, tokens and cost in US dollars; None means unknown.

    Example:
        >>> spend_text(3, None, 0.5)
        '3 calls, tokens unknown, $0.5000'
    """
    tokens_part = "tokens unknown" if tokens is None else f"{tokens} tokens"
    cost_part = "price unknown" if cost is None else f"${cost:.4f}"
    return f"{calls} calls, {tokens_part}, {cost_part}"
