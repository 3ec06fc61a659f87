"""A ledger in a PostgreSQL database, which processes on any number of machines share.

It is a separate package because it imports psycopg (extra `postgres`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.runs.ledger.postgres.ledger import PostgresLedger

__all__ = ["PostgresLedger"]

__getattr__ = lazy_names(__name__, {"PostgresLedger": "ledger"}, extras={"psycopg": "postgres"})


def __dir__() -> list[str]:
    return __all__
