"""Runs the server until a signal stops it, and then finishes the grades in progress.

This is a separate module because programs with their own server do not use it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from rubric_integrations.server.service import GradingService

# The number of seconds that a connection may wait for the next request, or for the end of its first headers.
KEEP_ALIVE = 75.0
# The number of seconds for sending the last responses, after the grades have ended.
_LAST_ANSWERS = 5.0

_logger = logging.getLogger(__name__)


class _WithoutHeaders(logging.Filter):
    """Drops log records of invalid HTTP requests, because they quote headers, which may contain the token."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


_WITHOUT_HEADERS = _WithoutHeaders()


def make_runner(app: web.Application) -> web.AppRunner:
    """Create the `aiohttp` runner that serves an application.

    It closes idle connections, does not decompress bodies, and logs no headers, because these may contain the token.
    """
    http_logger = logging.getLogger(f"{__name__}.http")
    http_logger.addFilter(_WITHOUT_HEADERS)
    # Compressed bodies are refused, so they need not be decompressed, which could fill the memory.
    return web.AppRunner(
        app, access_log=None, logger=http_logger, keepalive_timeout=KEEP_ALIVE, auto_decompress=False,
        shutdown_timeout=_LAST_ANSWERS, handler_cancellation=True,
    )  # fmt: skip


async def run_until_signal(
    app: web.Application,
    service: GradingService,
    *,
    host: str = "127.0.0.1",
    port: int = 8100,
    grace: float = 30.0,
    announce: Callable[[str], None] = print,
) -> int:
    """Run the server until SIGTERM or SIGINT (Ctrl-C), then finish the grades in progress.

    A second signal cancels the grades in progress.

    Args:
        app: The application that `make_app` returned for the service.
        service: The service.
        host: The address to listen on.
        port: The port, or 0 for any free port.
        grace: The number of seconds that grades may take after the signal, at least 0.
        announce: A function that gets the URL of the server as soon as the server listens.

    Returns:
        The number of grades that were cancelled.

    Raises:
        OSError: The server cannot listen on this address and port.
    """
    runner = make_runner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        await site.start()
        with _signals() as next_signal:
            announce(_url(host, runner))
            await next_signal()
            _logger.info("stopping: %d grades are under way", service.under_way)
            await site.stop()
            return await _stop(service, grace, next_signal)
    finally:
        await runner.cleanup()


async def _stop(service: GradingService, grace: float, next_signal: Callable[[], asyncio.Future[None]]) -> int:
    stopping = asyncio.ensure_future(service.stop(grace))
    second = next_signal()
    await asyncio.wait([stopping, second], return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        second.cancel()
        return stopping.result()
    cancelled = await service.stop(0)
    await stopping
    return cancelled


@contextmanager
def _signals() -> Generator[Callable[[], asyncio.Future[None]]]:
    """Handle SIGINT and SIGTERM within the context, and yield a function that returns a future for the next signal."""
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[None]] = []

    def on_signal() -> None:
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def next_signal() -> asyncio.Future[None]:
        waiting.append(loop.create_future())
        return waiting[-1]

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        for number in numbers:
            loop.add_signal_handler(number, on_signal)
        handles = True
    except NotImplementedError:  # Windows, where Ctrl-C cancels the task
        handles = False
    try:
        yield next_signal
    finally:
        for number in numbers if handles else ():
            loop.remove_signal_handler(number)


def _url(host: str, runner: web.AppRunner) -> str:
    port = runner.addresses[0][1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
