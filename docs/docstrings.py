"""For the site alone: docstrings say `Example:` where mkdocstrings knows only `Examples:` for what it shows as code."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section in every docstring."""

    def on_object(self, *, obj: griffe.Object, **_kwargs: Any) -> None:
        """Rename it in one."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
