from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rubric_integrations.judges._direct import capture, template


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of the requests that used the fast path."""
    bodies: list[bytes] = []
    real = capture.post

    async def post(endpoint: Any, body: bytes) -> Any:
        bodies.append(body)
        return await real(endpoint, body)

    monkeypatch.setattr(capture, "post", post)
    return bodies


@pytest.fixture
def fresh_warnings() -> Iterator[None]:
    """Forget before and after the test whether the fast path is active, and what has been warned about."""
    cached = (template.fast_path_problem, template._is_active, template._warn_slow)  # pyright: ignore[reportPrivateUsage]
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()
