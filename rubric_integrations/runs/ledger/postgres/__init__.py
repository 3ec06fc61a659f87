"""A ledger in a PostgreSQL database, which processes on any number of machines share.

`ledger` has the `PostgresLedger`, which uses the others: `server` connects and reads errors, `schema` has the tables,
`worker` runs transactions in a thread of its own, `leases` decides who may request a judgment, `records` writes
submissions, failures and spending, and `queries` reads what needs no lease.
"""

from rubric_integrations.runs.ledger.postgres.ledger import PostgresLedger

__all__ = ["PostgresLedger"]
