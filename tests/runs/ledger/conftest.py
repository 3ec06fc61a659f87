"""The address of a ledger that does not exist yet, of each kind in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubric_integrations.runs.ledger.addresses import LEDGERS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.sqlite"


# Two schemes of one kind are tested once.
SCHEMES = list(dict(zip(LEDGERS.values(), LEDGERS, strict=True)).values())


@pytest.fixture(params=["file", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in SCHEMES)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new ledger: a file, and a database for each entry of the registry."""
    if request.param == "file":
        return str(tmp_path / "run.sqlite")
    return request.getfixturevalue(f"{request.param}_url")
