"""The examples of `docs/hosts.md` for frameworks that the usual environment does not have."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs/hosts.md"


def run_example(title: str) -> dict[str, Any]:
    """Run the block with a title, and return the names that it defines.

    Raises:
        AssertionError: It prints something other than the page shows below it.
    """
    block = rf'^```python title="{title}"\n(.*?)^```\n(?:\n```text\n(.*?)^```)?'
    [(code, shown)] = re.findall(block, PAGE.read_text(encoding="utf-8"), re.M | re.S)
    names: dict[str, Any] = {"__name__": title}
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, f"hosts.md, {title}", "exec"), names)
    # A framework may print lines of its own before.
    assert output.getvalue().endswith(shown)
    assert bool(shown) is ("print(" in code)
    return names
