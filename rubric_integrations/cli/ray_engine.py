"""`grade --engine ray`: Ray grades the rows of Parquet files, and the command writes the grades."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, err, refuse
from rubric_integrations.cli.interrupts import sigterm_interrupts
from rubric_integrations.cli.ledger_option import open_ledger
from rubric_integrations.cli.parquet_output import ParquetOutput

if TYPE_CHECKING:
    from rubric_integrations.cli.run_files import RunFiles
    from rubric_integrations.formats.row_rubrics import RowRubrics
    from rubric_integrations.graders import Grader

# What `grade` does with each result, in this process: Ray's processes return grades, and not reports.
_LOCAL_OPTIONS = (
    "query", "response_column", "query_column", "reference_column", "id_column", "rubric_column", "resume", "modules",
    "gate", "min_score", "alpha", "labels", "baseline", "margin", "stop_early", "min_pass_rate", "min_coverage",
    "junit",
)  # fmt: skip
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class RayLimits(NamedTuple):
    """The limits of a run that Ray distributes.

    Attributes:
        max_concurrency: The largest number of concurrent calls of all actors.
        max_cost: The most to spend, in US dollars; None for any amount.
        max_calls: The largest number of calls; None for any number.
        run: The name under which the ledger counts them; None for a new one.
        max_failed: On how many rows the judge may fail.
    """

    max_concurrency: int
    max_cost: float | None
    max_calls: int | None
    run: str | None
    max_failed: int


def refuse_local_options(context: typer.Context, files: RunFiles) -> None:
    """Refuse the options of the running command that have no meaning with `--engine ray`.

    Args:
        context: The command.
        files: The files of the run.
    """
    chosen = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in _LOCAL_OPTIONS and _is_chosen(context, parameter.name)
    ]
    if chosen:
        refuse(f"--engine ray: leave out {', '.join(sorted(chosen))}, or grade with --engine local")
    if not files.writes_parquet:
        refuse("--engine ray writes grades: name a .parquet file or a folder, such as grades/, with --out")


def _is_chosen(context: typer.Context, name: str) -> bool:
    # Typer has its own copy of click, whose enum is not public.
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def grade_on_ray(
    rows: str,
    rubrics: RowRubrics,
    grader: Grader,
    files: RunFiles,
    output: ParquetOutput,
    limits: RayLimits,
    *,
    quiet: bool,
) -> Exit:
    """Grade Parquet files on Ray, write the grades, and return the exit code.

    Args:
        rows: The files: a path, a pattern of paths, a folder, or a URL that Ray can read.
        rubrics: The rubrics.
        grader: The grader.
        files: The files of the run.
        output: Where the grades are written.
        limits: The limits.
        quiet: Whether to print no progress.
    """
    from rubric_integrations.graders.endpoint import JudgeUnusable
    from rubric_integrations.ray import grade_dataset, import_ray_data

    try:
        data = import_ray_data()
    except ImportError as error:
        refuse(f"--engine ray: {error}")
    paths = _paths(rows)
    if files.ledger:
        # Here, where its error has one line, before any actor is started.
        open_ledger(files.ledger).close()
    counts = _Counts()
    with _running_ray(data) as ray_error:
        try:
            graded = grade_dataset(
                _read_rows(data, paths, rows), rubrics.shared, grader, library=rubrics.library, ledger=files.ledger,
                max_concurrency=limits.max_concurrency, max_cost=limits.max_cost, max_calls=limits.max_calls,
                run=limits.run,
            )  # fmt: skip
            with output, sigterm_interrupts(), err.status("grading on Ray") as status:
                for table in graded.iter_batches(batch_size=None, batch_format="pyarrow"):
                    output.write_table(table)
                    counts.add(table)
                    if not quiet:
                        status.update(plain(str(counts)))
                if counts.not_graded:
                    output.leave_unfinished()
        except KeyboardInterrupt:
            again = "the same command resumes from the ledger" if files.ledger else "without a ledger, nothing is kept"
            err.print(f"Stopped: {again}.", soft_wrap=True)
            return Exit.INTERRUPTED
        except (OSError, TypeError, ValueError, ray_error) as error:
            kind, message = _cause_of(error)
            err.print(plain(message), style="red", soft_wrap=True)
            return Exit.JUDGE_FAILED if kind == JudgeUnusable.__name__ else Exit.BAD_INPUT
    err.print(plain(str(counts)), soft_wrap=True)
    if counts.not_graded:
        err.print(plain(f"Stopped: {counts.error_of_others}"), soft_wrap=True)
        return Exit.STOPPED
    if counts.failed > limits.max_failed:
        return Exit.JUDGE_FAILED
    return Exit.BAD_INPUT if counts.ungradable else Exit.DONE


@contextmanager
def _running_ray(data: Any) -> Generator[type[Exception]]:
    """Start Ray, or connect to the cluster of RAY_ADDRESS, and yield the class of its errors."""
    # Ray's own lines are not about anything that the user of a command can change, and its errors are printed by us.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    ray: Any = import_module("ray")
    # An actor would otherwise fetch LiteLLM's list of prices from the web at its first priced call.
    environment = {"env_vars": {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}}
    ray.init(log_to_driver=False, logging_level="ERROR", runtime_env=environment)
    try:
        data.DataContext.get_current().enable_progress_bars = False
        yield import_module("ray.exceptions").RayError
    finally:
        ray.shutdown()


def _paths(rows: str) -> str | list[str]:
    """Return the files that a path, a pattern or a URL names, and refuse one that names none."""
    if _URL.match(rows):
        if glob.has_magic(rows):
            refuse(f"{rows}: Ray reads no patterns in a URL: name the folder")
        return rows
    matching = [rows] if Path(rows).exists() else sorted(glob.glob(rows))  # noqa: PTH207 -- also absolute ones
    if not matching:
        refuse(f"{rows}: there is no such file")
    # Ray's processes have a working directory of their own.
    return [str(Path(path).absolute()) for path in matching]


def _read_rows(data: Any, paths: str | list[str], rows: str) -> Any:
    """Read the needed columns of Parquet files as a dataset, and refuse those without responses or ids."""
    from rubric_integrations.submission.rows import (
        USUAL_COLUMNS,
        describe_missing_column,
        fold,
        missing_column,
        needed_columns,
    )

    ds = data.read_parquet(paths)
    names = ds.schema().names
    if (missing := missing_column(names, USUAL_COLUMNS)) is not None:
        refuse(f"{rows}: {describe_missing_column(names, missing)}")
    if "id" not in map(fold, names):
        refuse(
            f"{rows}: has no column 'id': add one; with --engine ray, the rows of each block would be numbered alike"
        )
    return ds.select_columns(needed_columns(names, USUAL_COLUMNS))


class _Counts:
    """What the grades so far amount to."""

    def __init__(self) -> None:
        self.rows = self.graded = self.passed = self.failed = self.ungradable = self.not_graded = self.calls = 0
        self.cost: float | None = 0.0
        self.score_sum, self.scored = 0.0, 0
        self.error_of_others = ""

    def add(self, table: Any) -> None:
        """Count the rows of a table of grades."""
        from rubric_integrations.runs.arrow_batches import NOT_GRADED

        for row in table.select(["score", "passed", "coverage", "error", "calls", "cost"]).to_pylist():
            self.rows += 1
            self.passed += row["passed"]
            self.calls += row["calls"]
            # Where nothing was requested, there is nothing to pay.
            if row["calls"] and self.cost is not None:
                self.cost = None if row["cost"] is None else self.cost + row["cost"]
            if row["score"] is not None:
                self.score_sum, self.scored = self.score_sum + row["score"], self.scored + 1
            error = row["error"]
            if error is None:
                self.graded += 1
            elif error.startswith(NOT_GRADED):
                self.not_graded += 1
                self.error_of_others = error
            elif row["coverage"] is None:
                self.ungradable += 1
            else:
                self.failed += 1

    def __str__(self) -> str:
        mean = f", mean score {self.score_sum / self.scored:.3f}" if self.scored else ""
        problems = {"failed": self.failed, "ungradable": self.ungradable, "not graded": self.not_graded}
        others = "".join(f", {count:,} {name}" for name, count in problems.items() if count)
        cost = "" if self.cost is None else f", ${self.cost:.2f}"
        return (
            f"{self.rows:,} rows: {self.graded:,} graded, {self.passed:,} passed{others}{mean}; "
            f"{self.calls:,} calls{cost}, with those of the ledger"
        )


def _cause_of(error: Exception) -> tuple[str, str]:
    """Return the class and the message of the error that ended a run: Ray's errors have its traceback as their text."""
    ours = re.findall(r"^rubric_integrations\.[\w.]*?(\w+): (.+)", str(error), re.MULTILINE)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ours[-1] if ours else (type(error).__name__, lines[-1] if lines else type(error).__name__)
