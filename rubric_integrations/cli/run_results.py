"""Hands each result of a run to what needs it: the terminal, the gates, the file of reports and the JUnit file."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations.cli.gates import Gates, GateTally
from rubric_integrations.cli.grade_output import FirstResults
from rubric_integrations.cli.parquet_output import ParquetOutput
from rubric_integrations.reporting.junit import JUnitReport

if TYPE_CHECKING:
    from rubric_integrations.cli.run_files import RunOutputs
    from rubric_integrations.runs.runner import Run
    from rubric_integrations.runs.summary import Graded
    from rubric_integrations.submission.files import Row


class RunResults:
    """The results of one run, as they come.

    Args:
        outputs: The files to write.
        gates: The gates of the run.
        suite: The name of the suite in the JUnit file.
        judge: The judges' names, for the files.

    Attributes:
        first: What to print.
        tally: What the gates need.
    """

    def __init__(self, outputs: RunOutputs, gates: Gates, *, suite: str, judge: str):
        self.first, self.tally = FirstResults(), GateTally(gates)
        self._gates, self._judge = gates, judge
        self._out, self._junit_file = outputs
        self._junit = JUnitReport(suite) if self._junit_file else None

    @property
    def must_be_ordered(self) -> bool:
        """Whether the results must come in the order of the rows, since they cannot be sorted later."""
        return self._out is not None and self._out.is_direct

    @property
    def partial(self) -> Path | None:
        """The file with the reports of a run that was interrupted; None if there is none."""
        return self._out.left_partial if self._out else None

    @contextmanager
    def open(self) -> Generator[None]:
        """Open the files for the block, before the first call, so that none is paid for if one cannot be written."""
        with ExitStack() as stack:
            for file in (self._out, self._junit_file):
                if file:
                    stack.enter_context(file)
            yield

    def collect(self, run: Run, place_of: Callable[[Row], int]) -> None:
        """Iterate the run to its end, and write its results.

        Args:
            run: The run, whose results may come in any order.
            place_of: Returns the position of a row in the file of responses; it is called once for each result.
        """
        for graded in run:
            self._add(graded, place_of(graded.row))
        if run.summary.stopped and self._out and not self._gates.is_decided_early:
            # The reports of some rows must not replace those of all rows, which an earlier run may have written.
            self._out.leave_unfinished()
        if self._junit_file and self._junit:
            self._junit_file.write(self._junit.to_xml(run.summary.seconds))

    def _add(self, graded: Graded, place: int) -> None:
        self.first.add(graded, place)
        self.tally.add(graded, place)
        if self._junit:
            self._junit.add(graded, place)
        if isinstance(self._out, ParquetOutput):
            self._out.write(graded)
        elif self._out:
            # The metadata of a Parquet row may hold dates and bytes.
            line = json.dumps({**graded.to_dict(), "judge": self._judge}, ensure_ascii=False, default=str)
            self._out.write(line + "\n", place)
