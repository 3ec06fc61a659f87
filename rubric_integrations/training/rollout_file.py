"""The file of a training run's graded completions, which the commands and pages for runs can read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from rubric_integrations._util.json_lines import json_lines
from rubric_integrations.runs.run_files import is_run_file
from rubric_integrations.training.rollouts import Rollout

_TAIL = 1 << 16


def rank() -> int:
    """Return the number of this process among those of the training run, from 0, as its launcher has set it."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


class RolloutFile:
    """A file of JSON Lines to which each step appends its graded completions.

    Each process of a training run writes a file of its own: that of the first has the name, and that of the process 3
    is `rollouts.rank3.jsonl` for `rollouts.jsonl`. A last line that a crash has cut off is removed first.

    Args:
        path: The file.

    Attributes:
        path: The file of this process.

    Raises:
        ValueError: The file exists and is something else.
    """

    def __init__(self, path: str | PathLike[str]):
        own = Path(path)
        self.path = own.with_name(f"{own.stem}.rank{rank()}{own.suffix}") if rank() else own
        if self.path.exists() and self.path.stat().st_size and not is_run_file(self.path):
            raise ValueError(f"`record` {str(self.path)!r} is not a file of graded completions: name a new one")
        self._is_checked = False

    def append(self, rollouts: Iterable[Rollout], step: int) -> None:
        """Append the completions of a step, in one write.

        Raises:
            OSError: The file cannot be written.
        """
        lines: list[dict[str, Any]] = []
        for rollout in rollouts:
            metadata = {"step": step, "group": rollout.group, "rank": rank(), "reward": rollout.reward}
            lines.append(rollout.graded.to_dict() | {"metadata": metadata})
        data = f"{json_lines(lines)}\n".encode()
        self._check()
        with self.path.open("ab") as file:
            file.write(data)

    def _check(self) -> None:
        """Remove the last line if it has no end: the next one would be joined with it, and the file unreadable."""
        if self._is_checked:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            position = size = file.seek(0, os.SEEK_END)
            while position > 0:
                position = max(0, position - _TAIL)
                file.seek(position)
                end = file.read(min(_TAIL, size - position)).rfind(b"\n")
                if end >= 0:
                    position += end + 1
                    break
            file.truncate(position)
        self._is_checked = True
