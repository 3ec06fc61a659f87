"""Switches off the caches of rendered texts, for tests that patch the sanitizer or the parser."""

from __future__ import annotations

import pytest

from rubric_integrations._util import text_cache


@pytest.fixture
def without_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache no text, so that a test's patches apply to every text and do not affect other tests."""
    monkeypatch.setattr(text_cache, "MAX_CACHED_CHARS", 0)
