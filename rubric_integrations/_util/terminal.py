"""Untrusted text for a terminal."""

from __future__ import annotations

from rich.text import Text


def plain(text: str) -> Text:
    """Untrusted text for a terminal: no markup, and no control characters, which could repaint the screen."""
    return Text("".join(ch if ch.isprintable() or ch in "\n\t" else "\N{REPLACEMENT CHARACTER}" for ch in text))
