"""The files of a run of `grade`: those that it reads, those that it writes, and which of them may exist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rubric_integrations.cli.console import refuse
from rubric_integrations.cli.ledger_option import LedgerAddress, ledger_address, ledger_exists
from rubric_integrations.cli.output_checks import (
    JUNIT_FILE,
    RUN_FILE,
    is_folder,
    is_regular,
    ledger_files,
    partial_path,
)
from rubric_integrations.cli.output_file import OutputFile
from rubric_integrations.cli.parquet_output import ParquetOutput


class RunOutputs(NamedTuple):
    """The files that a run writes, not opened yet.

    Attributes:
        out: The file of the reports; None if they are not written.
        junit: The JUnit file; None if it is not written.
    """

    out: OutputFile | ParquetOutput | None
    junit: OutputFile | None


class RunFiles(NamedTuple):
    """The files of a run.

    Attributes:
        rubric: The rubric; None if each row brings its own.
        library: The rubrics that rows name; None if there are none.
        responses: What to grade.
        out: The file of the reports; None if they are not written.
        ledger: The ledger; None if judgments are not stored.
        junit: The JUnit file; None if it is not written.
        others: Further files that the run reads.
        writes_parquet: Whether the reports are grades in a Parquet file, or in the parts of a folder.
    """

    rubric: Path | None
    library: Path | None
    responses: Path
    out: Path | None
    ledger: LedgerAddress | None
    junit: Path | None
    others: tuple[Path, ...] = ()
    writes_parquet: bool = False

    @classmethod
    def of_options(
        cls,
        rubric: str,
        responses: str | None,
        out: str | None,
        ledger: str | None,
        *,
        uses_model: bool,
        library: Path | None,
        junit: Path | None,
        others: tuple[Path, ...],
    ) -> RunFiles:
        """Return the files that the options of `grade` name, with a ledger beside the reports of a model.

        Args:
            rubric: The first argument: the rubric; or the responses, if there is no second one.
            responses: The second argument, if there is one.
            out: `--out`.
            ledger: `--ledger`.
            uses_model: Whether a judge has a model, whose judgments are worth storing.
            library: `--library`.
            junit: `--junit`.
            others: Further files that the run reads.
        """
        path = Path(out) if out else None
        writes_parquet = path is not None and (path.suffix.lower() == ".parquet" or is_folder(str(out)))
        is_stored = path is not None and uses_model and (writes_parquet or is_regular(path))
        default_ledger = path.with_suffix(".sqlite") if path and is_stored else None
        return cls(
            Path(rubric) if responses else None, library, Path(responses or rubric), path,
            ledger_address(ledger) if ledger else default_ledger, junit, others, writes_parquet,
        )  # fmt: skip

    @property
    def has_ledger(self) -> bool:
        """Whether the ledger exists."""
        return ledger_exists(self.ledger)

    def open_outputs(self, *, overwrite: bool, resume: bool | None) -> RunOutputs:
        """Return the files to write, and refuse a run that would overwrite another file, or that cannot be resumed.

        Args:
            overwrite: Whether existing files may be replaced.
            resume: Whether to reuse the judgments of the ledger; None means: if it exists.
        """
        rubrics = [path for path in (self.rubric, self.library) if path]
        inputs = [*rubrics, self.responses, *self.others, *ledger_files(self.ledger)]
        own = [self.out, partial_path(self.out)] if self.out else []
        # A database has the judgments of any run: that it exists does not mean that this run is resumed.
        is_resumed = self.has_ledger and (resume is not False if isinstance(self.ledger, Path) else resume is True)
        out = self.out and self._open_reports(self.out, inputs, overwrite, is_resumed)
        junit = self.junit and OutputFile(
            self.junit, option="--junit", overwrite=overwrite, inputs=[*inputs, *own], replaces=JUNIT_FILE
        )
        if resume and not self.has_ledger:
            refuse(f"--resume: there is no ledger {self.ledger or ''}: name it with --ledger, or leave --resume out")
        return RunOutputs(out, junit)

    def _open_reports(
        self, path: Path, inputs: Sequence[Path], overwrite: bool, resumes: bool
    ) -> OutputFile | ParquetOutput:
        if self.writes_parquet:
            return ParquetOutput(path, overwrite=overwrite, resumes=resumes, inputs=inputs)
        # A resumed run writes the reports again, from the judgments of the ledger.
        replaces = RUN_FILE if resumes else None
        return OutputFile(
            path, option="--out", overwrite=overwrite, inputs=inputs, replaces=replaces, keep_partial=True
        )
