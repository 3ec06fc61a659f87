"""The documents tell the truth: every Python block of a page runs, in order, as one program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_the_code_on_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DOCS.parent)
    names: dict[str, Any] = {"__name__": page}
    for number, block in enumerate(blocks(page), start=1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    assert len(names) > 1
