"""Serves grades over HTTP: the rewards of a training run, and the report of a submission.

Usually, `rubric-integrations serve` starts the server. `make_app` is for a program with its own `aiohttp` server. To
add an endpoint, write a handler in `server/app.py` and add it to the routes there.
"""

from __future__ import annotations

from rubric_integrations.server.app import make_app
from rubric_integrations.server.service import GradingService

__all__ = ["GradingService", "make_app"]
