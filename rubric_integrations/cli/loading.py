"""Reads the runs, human labels and rubrics of the commands about finished runs, with the options that they share."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, refuse

if TYPE_CHECKING:
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.files import RunFile
    from rubric_integrations.scoring.labels import LabelledJudgment
    from rubric_integrations.trust.matching import Cluster

_LARGE = 5_000_000

RunPath = Annotated[Path, typer.Argument(help="The run: a file that `grade --out` wrote.")]
LabelsPaths = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Human labels of a part of this run, drawn at random or by verdict: one file, or one for each rater. "
        "By default, the `labels` that the rows of the run have, if they cover all of them."
    ),
]
RubricOption = Annotated[
    Path | None,
    typer.Option(help="The run's rubric: needed if groups make its score."),
]
LevelOption = Annotated[float, typer.Option(help="The level of the intervals, above 0 and below 1.")]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict", help="Refuse a file of labels with an invalid line. By default, invalid lines are skipped."
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="COLUMN",
        help="Rows with the same value of this column of the graded table depend on each other, such as the questions "
        "about one document: their intervals are wider. Or `query`, or `id`.",
    ),
]
ClusterByOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-by",
        metavar="SEPARATOR",
        help="Rows are samples of one input if their ids are equal up to the last SEPARATOR: with /, the rows q1/1 and "
        "q1/2.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object with all figures.")]


@contextmanager
def refuse_bad_input(*files: Path) -> Generator[None]:
    """End the command with a message of one line if the block raises an error about its input.

    While the block reads large files, a status is shown.

    Warnings, for example about a last line that was cut off, are printed on stderr.

    Args:
        files: The files that the block reads.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with reading_status(*files):
                yield
        # The errors of runs, labels and rubrics are `ValueError`s.
        except (ValueError, OSError, ImportError) as error:
            refuse(str(error))
    print_caught(caught)


def reading_status(*files: Path) -> AbstractContextManager[object]:
    """Show a status on a terminal while a block reads files, if they are large."""
    size = sum(path.stat().st_size for path in files if path.is_file())
    names = " and ".join(str(path) for path in files)
    return err.status(plain(f"reading {names}")) if size > _LARGE and err.is_terminal else nullcontext()


def print_caught(caught: Sequence[warnings.WarningMessage]) -> None:
    """Print each warning once on stderr, on one line. A list of labels that are left out has several lines."""
    if not caught:
        return
    from rubric_integrations.trust.labels import InvalidLabelsWarning

    for warning in {(warning.category, str(warning.message)): warning for warning in caught}.values():
        # The reader of labels has already made these lines safe to print.
        is_list = issubclass(warning.category, InvalidLabelsWarning)
        err.print(plain(str(warning.message), keeps_lines=is_list), style="yellow", soft_wrap=True)


def require_level(level: float) -> None:
    """End the command with an error if a level of intervals is not between 0 and 1."""
    if not 0 < level < 1:
        refuse(f"--level must be above 0 and below 1, got {level!r}: 0.95 is usual")


def cluster_of(cluster: str | None, cluster_by: str | None, run: RunFile) -> Cluster | None:
    """Return how the rows of a run are grouped: by the column of --cluster, or by the ids as --cluster-by says.

    Raises:
        ValueError: Both options are set, or no id of the run has the separator.
    """
    if cluster is not None and cluster_by is not None:
        raise ValueError("--cluster and --cluster-by are two ways to say which rows belong together: name one")
    if cluster_by is None:
        return cluster
    if not cluster_by or not any(cluster_by in row.id for row in run.rows):
        raise ValueError(
            f"--cluster-by {cluster_by!r}: no id of the run has it, such as {run.rows[0].id!r}: name what separates "
            "the input from the number of the sample"
        )
    return lambda row_id: row_id.rpartition(cluster_by)[0] or row_id


def require_different(files: Sequence[Path], what: str) -> None:
    """End the command with an error if the same file is named twice, even under different names.

    Args:
        files: The files.
        what: A description of the files, for the message.
    """
    for first, second in combinations(files, 2):
        if first.exists() and second.exists() and first.samefile(second):
            refuse(f"{second}: is the same file as {first}: name {what}")


def load_run(path: Path) -> RunFile:
    """Read a run into memory, because the computation of its figures reads the rows several times.

    Raises:
        RunFileError: The file is not a run.
    """
    from rubric_integrations.runs.files import read_run

    return read_run(path, in_memory=True)


def load_rubric(path: Path | None) -> Rubric | None:
    """Read the rubric of a run, or return None if `path` is None.

    Raises:
        RubricError: (a ValueError) The file is not a valid rubric.
    """
    from rubric_integrations.rubric.rubric import Rubric

    return Rubric.from_file(path) if path else None


def load_labels(
    path: Path, run: RunFile | None, rubric: Rubric | None, *, strict: bool = False
) -> list[LabelledJudgment]:
    """Read a file of human labels.

    Args:
        path: The file of labels.
        run: The run that was labelled. None if it has not been graded yet.
        rubric: The rubric of the run. If None, the criteria are read from the run.
        strict: Whether an invalid line is an error. By default, it is skipped with a warning.

    Raises:
        LabelsError: (a ValueError) The file cannot be read, has no labels, or belongs to another rubric.
        ChosenLabelsError: (a ValueError) Every label has `sampled="chosen"`: annotators selected the
            judgments themselves.
    """
    from rubric_integrations.trust import read_labels
    from rubric_integrations.trust.matching import require_drawn

    labels = read_labels(path, rubric, run=run, strict=strict) if rubric else read_labels(path, run, strict=strict)
    require_drawn(labels)
    return labels


def load_people_labels(
    paths: Sequence[Path], run: RunFile, rubric: Rubric | None, *, strict: bool
) -> list[LabelledJudgment]:
    """Read the labels of one or more files. Without a file, read the labels in the rows of the run.

    Raises:
        LabelsError: (a ValueError) A file is a run, or cannot be read as labels.
    """
    from rubric_integrations.runs.files import is_run_file
    from rubric_integrations.trust import LabelsError

    if not paths:
        return load_own_labels(run, rubric, strict=strict)
    for path in filter(is_run_file, paths):
        raise LabelsError(
            f"{path}: is a run, and not human labels: to compare two judges on human labels, run `rubric-integrations "
            "compare-judges RUN RUN LABELS`"
        )
    return [label for path in paths for label in load_labels(path, run, rubric, strict=strict)]


def load_own_labels(run: RunFile, rubric: Rubric | None, *, strict: bool) -> list[LabelledJudgment]:
    """Read the labels in the rows of a run, which come from its file of responses.

    Args:
        run: The run.
        rubric: The rubric of the run. If None, the criteria are read from the run.
        strict: Whether an invalid answer to a criterion is an error.

    Raises:
        LabelsError: (a ValueError) No row has labels, or a label has an unknown criterion.
        ChosenLabelsError: (a ValueError) The labels cover only a part of the run. It is unknown whether this part was
            drawn at random.
    """
    from rubric_integrations.trust import ChosenLabelsError, LabelsError, read_labels

    try:
        labels = read_labels(run, rubric, strict=strict)
    except LabelsError as error:
        raise LabelsError(f"{error}; or name a file of labels after the run") from None
    if all(label.sampled == "chosen" for label in labels):
        raise ChosenLabelsError(
            f"the rows have {len(labels):,} labels, which do not cover all of the run: it is unknown whether they "
            "were drawn or chosen. Name a file of labels, with `sampled` on each line; in Python, pass "
            "`read_labels(run, sampled='random')`"
        )
    return labels


def require_matching(labels: Sequence[LabelledJudgment], matched: int, paths: Sequence[Path], run: Path) -> None:
    """End the command with an error if no label can be used for the run.

    A label can be used if it belongs to a judgment of the run, and if annotators did not select the judgment themselves
    (`sampled="chosen"`).

    Args:
        labels: The labels.
        matched: The number of labels that can be used.
        paths: The files of the labels.
        run: The file of the run.
    """
    if not matched:
        drawn = [label for label in labels if label.sampled != "chosen"]
        others = ", without the `chosen` ones," if len(drawn) < len(labels) else ""
        refuse(
            f"{', '.join(map(str, paths))}: none of its {len(drawn):,} labels{others} belongs to a judgment of {run}: "
            "labels are matched by the submission and by the words of the criterion; name the run that was labelled"
        )


# Assumed correlations of judge and human labels, from none to very high, if the correlation is unknown.
