"""What a ledger in a database records beside judgments: submissions, graders, failures and spending."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg

from rubric_integrations.judges.shared_spend import NOTHING, Allowance, Claim, Shares
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.runs.ledger.postgres.schema import Connection
from rubric_integrations.runs.ledger.postgres.worker import Read
from rubric_integrations.runs.ledger.protocol import MAX_MESSAGE

# Of two rows of one statement with the same key, PostgreSQL would refuse the second, and without an order two
# transactions could wait for each other: the rows of each statement are distinct and sorted.
_FILES = "INSERT INTO rubric_files VALUES (%s, %b) ON CONFLICT DO NOTHING"
_RUBRICS = """
INSERT INTO rubric_rubrics SELECT * FROM unnest(%s::text[], %s::text[]) AS x (hash, rubric) ORDER BY 1
ON CONFLICT DO NOTHING"""
_SUBMISSIONS = """
INSERT INTO rubric_submissions AS s (number, hash, id, submission, rubric)
SELECT * FROM (
    SELECT nextval('rubric_submissions_number_seq'), hash, id, submission, rubric FROM (
        SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[])
            WITH ORDINALITY AS x (hash, id, submission, rubric, place)
        WHERE NOT EXISTS (
            SELECT FROM rubric_submissions AS s WHERE s.hash = x.hash AND s.rubric IS NOT DISTINCT FROM x.rubric
        ) ORDER BY place
    ) AS y
) AS z ORDER BY hash
ON CONFLICT (hash) DO UPDATE SET rubric = excluded.rubric"""
_GRADER = """
INSERT INTO rubric_graders VALUES (%s, %s, clock_timestamp())
ON CONFLICT (hash) DO UPDATE SET at = excluded.at"""
_FAILURES = """
INSERT INTO rubric_failures AS f
SELECT key, kind, message, clock_timestamp(), times, %s
FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[]) AS x (key, kind, message, times) ORDER BY 1
ON CONFLICT (key) DO UPDATE SET kind = excluded.kind, message = excluded.message, at = excluded.at,
    times = f.times + excluded.times, batch = excluded.batch
WHERE f.batch <> excluded.batch"""
# Without the lock, two transactions would not see each other's claims, and would both be granted the same.
_LOCK_RUN = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 8241996540317))"
_OTHERS = """
SELECT coalesce(sum(calls), 0)::float8, coalesce(sum(cost), 0)::float8 FROM rubric_spending
WHERE run = %s AND part <> %s"""
# The formula of `Claim.granted`.
_CLAIM = """
INSERT INTO rubric_spending
SELECT %s, %s, greatest(%s::float8, least(%s::float8, %s::float8 - coalesce(sum(calls), 0)))::bigint,
    greatest(%s::float8, least(%s::float8, %s::float8 - coalesce(sum(cost), 0)))
FROM rubric_spending WHERE run = %s AND part <> %s
ON CONFLICT (run, part) DO UPDATE SET calls = excluded.calls, cost = excluded.cost
RETURNING calls::float8, cost"""


class SubmissionRecord(NamedTuple):
    """A row of a run.

    Attributes:
        hash: The digest of the id and the submission.
        id: The id of the row, as JSON.
        submission: The submission, as JSON.
        rubric_hash: The digest of the rubric that the row brought; None if it brought none.
        rubric: That rubric, as JSON.
        files: The bytes of its attachments, by their SHA-256.
    """

    hash: str
    id: str
    submission: str
    rubric_hash: str | None
    rubric: str | None
    files: dict[str, bytes]


class FailureOfKey(NamedTuple):
    """A failure of a judge, and the key of the judgment that it did not make.

    Attributes:
        key: The key.
        failure: The failure.
        batch: A unique text, so that a failure that is written twice counts once.
    """

    key: str
    failure: JudgeFailure
    batch: str

    @classmethod
    def of(cls, key: str, failure: JudgeFailure) -> FailureOfKey:
        """Make the record of a failure."""
        return cls(key, failure, uuid4().hex)


class ClaimOfPart(NamedTuple):
    """What one part of a run claims of its limits.

    Attributes:
        run: The name of the run, as JSON.
        part: A unique name of the part.
        claim: What it claims.
    """

    run: str
    part: str
    claim: Claim


def send_submissions(db: Connection, records: Sequence[SubmissionRecord]) -> Read[None]:
    """Record submissions with their rubrics and files, each once."""
    files = {digest: content for record in records for digest, content in record.files.items()}
    for digest, content in sorted(files.items()):
        db.execute(_FILES, (digest, content))
    rubrics = {record.rubric_hash: record.rubric for record in records if record.rubric_hash is not None}
    if rubrics:
        db.execute(_RUBRICS, (list(rubrics), list(rubrics.values())))
    # Numbered in the order of the run, which `rescore` keeps.
    rows = list({record.hash: record for record in records}.values())
    db.execute(_SUBMISSIONS, tuple([row[column] for row in rows] for column in range(4)))
    return lambda: [None] * len(records)


def send_grader(db: Connection, graders: Sequence[tuple[str, str]]) -> Read[None]:
    """Record grader configurations: their digests, and their JSON."""
    for grader in graders:
        db.execute(_GRADER, grader)
    return lambda: [None] * len(graders)


def send_failures(db: Connection, failures: Sequence[FailureOfKey]) -> Read[None]:
    """Record failures; of several failures of one key, the last is kept, and all are counted."""
    last: dict[str, FailureOfKey] = {}
    times: dict[str, int] = {}
    for failure in failures:
        last[failure.key] = failure
        times[failure.key] = times.get(failure.key, 0) + 1
    kinds = [failure.failure.kind for failure in last.values()]
    messages = [json.dumps(failure.failure.message[:MAX_MESSAGE]) for failure in last.values()]
    db.execute(_FAILURES, (failures[0].batch, list(last), kinds, messages, list(times.values())))
    return lambda: [None] * len(failures)


def send_claims(db: Connection, records: Sequence[ClaimOfPart]) -> Read[Shares]:
    """Record what parts of runs claim of their limits, and read what they are granted."""
    # In one order, because two transactions with the same runs would wait for each other.
    for run in sorted({record.run for record in records}):
        db.execute(_LOCK_RUN, (run,))
    cursors: list[tuple[psycopg.Cursor[Any], psycopg.Cursor[Any]]] = []
    for run, part, (spent, wanted, limit) in records:
        others = db.execute(_OTHERS, (run, part))
        amounts = (spent.calls, wanted.calls, limit.calls, spent.cost, wanted.cost, limit.cost)
        cursors.append((db.execute(_CLAIM, (run, part, *amounts, run, part)), others))

    def read() -> list[Shares]:
        return [Shares(*(Allowance(*(cursor.fetchone() or NOTHING)) for cursor in pair)) for pair in cursors]

    return read
