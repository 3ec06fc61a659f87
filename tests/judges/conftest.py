from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rubric_integrations.judges import fast_path, provider


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of the requests that used the fast path."""
    bodies: list[bytes] = []
    real = provider.CapturedRequest.send

    async def send(request: Any, body: bytes, lm: Any) -> Any:
        bodies.append(body)
        return await real(request, body, lm)

    monkeypatch.setattr(provider.CapturedRequest, "send", send)
    return bodies


@pytest.fixture
def fresh_warnings() -> Iterator[None]:
    """Forget before and after the test whether the fast path is active, and what has been warned about."""
    cached = (fast_path.fast_path_problem, fast_path._is_active, fast_path._warn_slow)  # pyright: ignore[reportPrivateUsage]
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()
