"""The examples of `docs/hosts.md` for frameworks that the usual environment does not have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs/hosts.md"


def run_example(title: str) -> dict[str, Any]:
    """Run the block with a title, and return the names that it defines."""
    [code] = re.findall(rf'^```python title="{title}"\n(.*?)^```', PAGE.read_text(encoding="utf-8"), re.M | re.S)
    names: dict[str, Any] = {"__name__": title}
    exec(compile(code, f"hosts.md, {title}", "exec"), names)
    return names
