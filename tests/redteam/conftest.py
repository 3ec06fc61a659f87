"""Switches off the caches of rendered texts, for tests that patch the sanitizer or the parser."""

from __future__ import annotations

import sys

import pytest

from rubric_integrations._util import text


@pytest.fixture
def without_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache no text, so that a test's patches apply to every text and do not affect other tests."""
    monkeypatch.setattr(text, "MAX_CACHED_CHARS", -1)
    for name, module in list(sys.modules.items()):
        if name.startswith("rubric_integrations."):
            for value in vars(module).values():
                if cached := getattr(value, "__dict__", {}).get("cached_function"):
                    cached.cache_clear()
