"""The files of a run of `grade`: those that it reads, those that it writes, and which of them may exist."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rubric_integrations.cli.console import refuse
from rubric_integrations.cli.output_file import is_regular, ledger_files, partial_path, refuse_inputs


class RunFiles(NamedTuple):
    """The files of a run.

    Attributes:
        rubric: The rubric.
        responses: What to grade.
        out: The file of the reports; None if they are not written.
        ledger: The ledger; None if judgments are not stored.
        junit: The JUnit file; None if it is not written.
    """

    rubric: Path
    responses: Path
    out: Path | None
    ledger: Path | None
    junit: Path | None

    @property
    def has_ledger(self) -> bool:
        """Whether the ledger exists."""
        return self.ledger is not None and self.ledger.exists()

    def check(self, *, overwrite: bool, resume: bool | None) -> None:
        """Refuse a run that would overwrite a file unintentionally, or that cannot be resumed.

        Args:
            overwrite: Whether the file of the reports may be replaced.
            resume: Whether to reuse the judgments of the ledger; None means: if it exists.
        """
        inputs = [self.rubric, self.responses, *ledger_files(self.ledger)]
        refuse_inputs("--out", self.out, inputs)
        refuse_inputs("--junit", self.junit, [*inputs, *([self.out, partial_path(self.out)] if self.out else ())])
        if resume and not self.has_ledger:
            refuse(f"--resume: there is no ledger {self.ledger or ''}: name it with --ledger, or leave --resume out")
        resumes = self.has_ledger and resume is not False
        if self.out and is_regular(self.out) and self.out.exists() and not (overwrite or resumes):
            refuse(f"{self.out}: exists: name another file, or pass --overwrite, which deletes its contents")
