"""A recorder for each test, and no instrumentation after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rubric_integrations.tracing import uninstrument
from tests.tracing.recorder import Recorder


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Record all grades of the test, with explanations."""
    recorder = Recorder()
    recorder.instrument()
    yield recorder
    uninstrument()
