"""Grades Ray datasets, on one machine or on a cluster (extra `ray`).

Ray distributes the rows, and may repeat the work of a lost actor. With a ledger, stored judgments are not requested
again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from rubric_integrations._host import HostGrader, portable_ledger
from rubric_integrations._util.lazy import install_command
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.graders import Grader
from rubric_integrations.judges.spend import Prices
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.runs.tables import grade_batches, import_arrow

__all__ = ["GradeBatches", "grade_dataset"]

CALLS_PER_ACTOR = 256
"""The number of concurrent calls per actor, from which `grade_dataset` computes the number of actors."""

# While one thread waits for the last judgments of its block, the other threads work on the next blocks.
_THREADS = 3
# An actor waits for replies most of the time. The other CPUs are free for tasks that read and write.
_CPUS_PER_ACTOR = 0.5
# By default, Ray would retry without limit, even if a row crashes every process that grades it.
_MAX_TASK_RETRIES = 3


class GradeBatches:
    """An actor class for `ray.data.Dataset.map_batches` that grades batches of rows.

    `grade_dataset` uses it with settings that suit most datasets. Use it directly if you need other settings, with
    `batch_format="pyarrow"`. All threads of an actor share the grader, its limits and one connection to the ledger.

    Args:
        rubric: The rubric of all rows, in any form except a function. None if each row has its own rubric in a column.
        grader: The grader. Each actor gets a pickled copy, which contains API keys that were passed in code but no keys
            from environment variables.
        library: Rubrics by name, or the path of a file with such a mapping, for rows whose `rubric` is a name.
        ledger: The path of a file if all actors run on one machine, the URL of a PostgreSQL database, or an open
            ledger, which each actor opens again.
        max_concurrency: The largest number of concurrent calls of this actor, at least 1.
        columns: The names of columns that are copied from the rows to the grades.
        max_cost: The largest cost, in US dollars. Rows that were not graded because of this limit have an `error` that
            begins with "not graded". The limit applies to each batch or, with `run`, to all batches of all actors
            together.
        max_calls: The largest number of calls to models. It has the same effect as `max_cost`.
        prices: The prices of a million input and output tokens in US dollars, by the name of the model or of the class
            of your judge. By default, the prices of DSPy's price list.
        run: The name under which the ledger counts calls and cost for these limits, such as `"nightly"`. It requires a
            `ledger`.

    Raises:
        LedgerError: The ledger cannot be used.
        TypeError: There is a ledger, and the judge has no `fingerprint`.

    Example:
        >>> import pyarrow as pa
        >>> from rubric_integrations import PerCriterionGrader
        >>> says_42 = [{"requirement": "Says 42", "check": {"number": 42}}]
        >>> grade = GradeBatches(says_42, PerCriterionGrader("offline"))
        >>> grade(pa.table({"id": ["a"], "response": ["It is 42."]})).column("score").to_pylist()
        [1.0]
    """

    def __init__(
        self,
        rubric: RubricLike | None,
        grader: Grader,
        *,
        library: Mapping[str, RubricLike] | str | Path | None = None,
        ledger: LedgerLike | None = None,
        max_concurrency: int = 64,
        columns: Sequence[str] = (),
        max_cost: float | None = None,
        max_calls: int | None = None,
        prices: Prices | None = None,
        run: str | None = None,
    ):
        store = HostGrader("GradeBatches", None, grader, ledger).store
        self._settings: dict[str, Any] = {
            "rubric": rubric, "grader": grader, "library": library, "ledger": store,
            "max_concurrency": max_concurrency, "columns": columns, "max_cost": max_cost, "max_calls": max_calls,
            "prices": prices, "run": run,
        }  # fmt: skip

    def __call__(self, batch: Any) -> Any:
        """Return the grades of a `pyarrow.Table` as a table with one row for each input row."""
        return import_arrow().Table.from_batches(grade_batches([batch], **self._settings))


def grade_dataset(
    ds: Any,
    rubric: RubricLike | None,
    grader: Grader,
    *,
    library: Mapping[str, RubricLike] | str | Path | None = None,
    ledger: LedgerLike | None = None,
    max_concurrency: int = 64,
    actors: int | None = None,
    columns: Sequence[str] = (),
    ordered: bool = True,
    rows_per_block: int = 64,
    max_cost: float | None = None,
    max_calls: int | None = None,
    prices: Prices | None = None,
    run: str | None = None,
) -> Any:
    """Grade the rows of a Ray dataset (extra `ray`), and return a lazy dataset of the grades.

    The grades have the schema of `write_parquet`: `id`, `score`, `passed`, `coverage`, `error`, `calls`, `cost` and
    `verdicts`, followed by the chosen columns of the rows. If a row is invalid or its judge fails, it has an `error`.

    If an actor is lost, Ray repeats its block up to three times. With a ledger, only judgments in progress are then
    requested again. Without a ledger, all judgments of the block are requested again, and each execution of the dataset
    requests all judgments again.

    Args:
        ds: A `ray.data.Dataset` with the columns that `read_responses` reads. A row without an `id` gets its number
            within its block as its id. This id is not unique, because rows of other blocks have the same numbers.
        rubric: The rubric of all rows, in any form except a function. None if each row has its own rubric in a column.
        grader: The grader. Each actor gets a pickled copy, which contains API keys that were passed in code but no keys
            from environment variables.
        library: Rubrics by name, or the path of a file with such a mapping, for rows whose `rubric` is a name. A file
            is read by this function, not by the actors.
        ledger: The path of a file if Ray runs on one machine, the URL of a PostgreSQL database, or an open ledger,
            which each actor opens again.
        max_concurrency: The largest number of concurrent calls of all actors together. Each actor gets an equal part.
            A lower limit in the `CallLimits` of the grader takes precedence.
        actors: The number of actors, at least 1. By default, one actor for every 256 calls of `max_concurrency`. Each
            actor takes half a CPU.
        columns: The names of columns that are copied from the rows to the grades.
        ordered: Whether the grades keep the order of the rows (`preserve_order` of `ds.context`). If not, each
            block is returned as soon as it is ready.
        rows_per_block: The number of rows in a block, at least 1. The rows of a block are graded and returned together.
            If an actor is lost, they are also graded again together.
        max_cost: The largest cost on all machines together, in US dollars. It requires a `ledger`. When it is reached,
            the remaining rows get an `error` that begins with "not graded".
        max_calls: The largest number of calls on all machines together. It requires a `ledger` and has the same effect
            as `max_cost`.
        prices: The prices of a million input and output tokens in US dollars, by the name of the model or of the class
            of your judge. By default, the prices of DSPy's price list.
        run: The name under which the ledger counts calls and cost for these limits, such as `"nightly"`. Earlier
            datasets with the same name count too. By default, a new name, under which only this dataset counts.

    Raises:
        ImportError: Ray is not installed.
        TypeError: `rubric` is a function.
        ValueError: A number is out of range, a limit or `run` is set without a ledger, the rubric is invalid, the
            grader cannot use the rubric, or the ledger is a file and Ray runs on several machines. If the ledger or the
            judge cannot be used, Ray raises its own error when the dataset is executed.
    """
    data = import_ray_data()
    for name, value in {"max_concurrency": max_concurrency, "rows_per_block": rows_per_block}.items():
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value!r}")
    max_concurrency = grader.call_limiter.limits.concurrency_in(max_concurrency)
    size = math.ceil(max_concurrency / CALLS_PER_ACTOR) if actors is None else actors
    if not 1 <= size <= max_concurrency:
        raise ValueError(
            f"`actors` must be from 1 to `max_concurrency` ({max_concurrency}), got {size!r}: each makes a call"
        )
    # An actor has its own working directory.
    address = None if ledger is None else portable_ledger(ledger)
    if address is None and (max_cost is not None or max_calls is not None or run is not None):
        raise ValueError(
            "`max_cost`, `max_calls` and `run` need a `ledger`, which counts what all actors spend: name one, or each "
            "actor would have a limit of its own"
        )
    if address is not None:
        _refuse_file_of_several_machines(address)
    rubrics = RowRubrics(rubric, library)
    if rubrics.has_function:
        raise TypeError("`rubric` is a function: give each row its rubric in a column `rubric`")
    if rubrics.shared is not None:
        grader.check_rubric(rubrics.shared)
    has_limit = max_cost is not None or max_calls is not None
    settings = {
        "rubric": rubrics.shared, "grader": grader, "library": rubrics.library, "ledger": address,
        "max_concurrency": max_concurrency // size, "columns": list(columns), "max_cost": max_cost,
        "max_calls": max_calls, "prices": prices, "run": f"ray-{uuid4().hex}" if has_limit and run is None else run,
    }  # fmt: skip
    options = {"max_concurrency": _THREADS, "max_restarts": -1, "max_task_retries": _MAX_TASK_RETRIES}
    with warnings.catch_warnings():
        # These options have no successor yet in the versions of Ray that the extra allows. They still work in all of
        # these versions.
        warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated")
        graded = ds.repartition(target_num_rows_per_block=rows_per_block).map_batches(
            GradeBatches,
            batch_size=None,
            batch_format="pyarrow",
            fn_constructor_kwargs=settings,
            compute=data.ActorPoolStrategy(
                size=size, max_tasks_in_flight_per_actor=_THREADS + 1, enable_true_multi_threading=True
            ),
            num_cpus=_CPUS_PER_ACTOR,
            **options,
        )
    if ordered:
        graded.context.execution_options.preserve_order = True
    return graded


def import_ray_data() -> Any:
    """Import `ray.data`.

    Raises:
        ImportError: Ray Data is not installed.
    """
    try:
        return import_module("ray.data")
    except ImportError as error:
        raise ImportError(f"Ray Data is not installed: {install_command('ray')}") from error


def _refuse_file_of_several_machines(ledger: LedgerLike) -> None:
    from rubric_integrations.runs.ledger import Ledger
    from rubric_integrations.runs.ledger.addresses import path_of

    ray: Any = import_module("ray")
    address = ledger.path if isinstance(ledger, Ledger) else ledger
    if not isinstance(address, str | Path) or path_of(address) is None or not ray.is_initialized():
        return
    machines = sum(node["Alive"] for node in ray.nodes())
    if machines > 1:
        raise ValueError(
            f"`ledger` {address!r} is a file, and Ray runs on {machines} machines: name a PostgreSQL database, such as "
            "'postgresql://user@host/database'; with a file, each machine would request all that another one has stored"
        )
