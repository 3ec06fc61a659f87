"""Settings of every test: no network beyond the loopback, no cache on disk, short waits between retries and probes."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Set before dspy is imported, which reads them then: the prices are those of its own snapshot, and its cache stays out
# of the home directory.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["DSPY_CACHEDIR"] = tempfile.mkdtemp(prefix="rubric-tests-")
# Set before the command line is imported, which reads the width of its tables then, whichever test imports it first.
os.environ["COLUMNS"] = "120"
# No test uses TLS, but each client of a model would read all certificates that the machine trusts: this is only one.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("certificate.pem"))

from rubric_integrations.graders import endpoint, scheduler
from tests.openai_server import OpenAIServer


class _PatientSys:
    """`sys` for `threading`: a thread that starts while another one installs its trace function tries again.

    Python 3.11 raises an error then, so that under `make coverage` threads of a pool sometimes died before their work.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def settrace(self, function: Any) -> None:
        for _ in range(10_000):
            try:
                return sys.settrace(function)
            except RuntimeError:
                time.sleep(0.0001)
        return sys.settrace(function)


if sys.version_info < (3, 12):
    threading._sys = _PatientSys()  # pyright: ignore[reportAttributeAccessIssue] -- no public hook

# A slow machine is no fault of the code, and two runs on one commit have the same result.
settings.register_profile("any machine", deadline=None, derandomize=True)
settings.load_profile("any machine")
# For `make test`. Tests that name their number of examples have as many in each profile.
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=25)
# To look for faults that no run has found yet: pytest --hypothesis-profile search tests/submission.
settings.register_profile("search", deadline=None, max_examples=2500)

SHARED = Path(__file__).resolve().parents[2] / "shared"

_connect = socket.socket.connect


def _loopback_only(self: socket.socket, address: Any) -> None:
    if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise ConnectionRefusedError(f"a test tried to reach {address!r}")
    _connect(self, address)


def _short_wait(_state: object) -> float:
    return 0.01


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(socket.socket, "connect", _loopback_only)
    monkeypatch.setattr(scheduler, "_backoff", _short_wait)
    monkeypatch.setattr(endpoint, "FIRST_PROBE", 0.01)
    monkeypatch.setattr(endpoint, "LONGEST_PROBE", 0.02)
    monkeypatch.setattr(endpoint, "_LONGEST_LOOK", 0.02)
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A server that answers MET until the test sets its `script`."""
    with OpenAIServer() as running:
        yield running


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server, shared by all tests that need one."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    from tests.postgres_server import running_server

    with running_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL schema."""
    from tests.postgres_server import new_schema

    with new_schema(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def _chromium() -> Iterator[tuple[Any, asyncio.AbstractEventLoop]]:  # pyright: ignore[reportUnusedFunction]
    """Chromium, started once in each worker, and the event loop in which Playwright runs."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("Chromium is not installed: apt-get install chromium, as .ci/run does")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield started, asyncio.get_running_loop()
        started.close()


@pytest.fixture
def browser(_chromium: tuple[Any, asyncio.AbstractEventLoop]) -> Iterator[Any]:
    """The worker's Chromium.

    Playwright marks its event loop as running until it is stopped, and `asyncio.run` fails meanwhile. The loop is
    therefore marked only during tests that use the browser.
    """
    started, loop = _chromium
    asyncio._set_running_loop(loop)
    yield started
    asyncio._set_running_loop(None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark each test that uses the browser or PostgreSQL, before the options of pytest select tests by marker."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for fixture, marker in (("browser", "browser"), ("postgres_server", "postgres")):
            if fixture in fixtures:
                item.add_marker(marker)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the million objects of the imported modules, which stay anyway."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # What tests make is garbage soon: to look at the same objects again and again takes a twentieth of the time.
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the figures that tests recorded with `record_property`."""
    passed = [report for report in terminalreporter.stats.get("passed", []) if report.when == "call"]
    properties = [pair for report in passed for pair in report.user_properties]
    agreed = sum(name == "conformance" for name, _ in properties)
    reasons = [value for name, value in properties if name == "inexpressible"]
    if agreed or reasons:
        terminalreporter.write_line(f"recorded scoring cases: {agreed} agree, {len(reasons)} cannot be expressed here")
    for line in [*(f"  {reason}" for reason in reasons), *(value for name, value in properties if name == "shown")]:
        terminalreporter.write_line(line)
