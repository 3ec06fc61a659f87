"""What the commands about trust read: runs, people's labels and the rubric."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, refuse

if TYPE_CHECKING:
    from rubric_integrations.results.labels import LabelledJudgment
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.run_files import RunFile

# Reading less takes less than a second.
_LARGE = 5_000_000

RunPath = Annotated[Path, typer.Argument(help="The run: a file that `grade --out` wrote.")]
LabelsPath = Annotated[
    Path | None,
    typer.Argument(
        help="People's labels of a part of this run, drawn at random or by verdict. By default, the `labels` that the "
        "rows of the run have, if they cover all of them."
    ),
]
RubricOption = Annotated[
    Path | None,
    typer.Option(help="The run's rubric: needed if groups make its score."),
]
LevelOption = Annotated[float, typer.Option(help="The level of the intervals, above 0 and below 1.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object with all figures.")]


@contextmanager
def refuse_bad_input(*files: Path) -> Generator[None]:
    """End the command with one line if the block raises an error about its input; show that large files are read.

    Warnings, such as the one about a last line that was cut off, are printed on stderr.

    Args:
        files: The files that the block reads.
    """
    size = sum(path.stat().st_size for path in files if path.is_file())
    names = " and ".join(str(path) for path in files)
    status = err.status(plain(f"reading {names}")) if size > _LARGE and err.is_terminal else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if status:
            status.start()
        try:
            yield
        # Errors of runs, labels and rubrics are values that cannot be used.
        except (ValueError, OSError, ImportError) as error:
            refuse(str(error))
        finally:
            if status:
                status.stop()
    for warning in caught:
        err.print(plain(str(warning.message)), style="yellow", soft_wrap=True)


def require_level(level: float) -> None:
    """Refuse a level of intervals that is not between 0 and 1."""
    if not 0 < level < 1:
        refuse(f"--level must be above 0 and below 1, got {level!r}: 0.95 is usual")


def require_different(first: Path, second: Path, what: str) -> None:
    """Refuse one file in place of two, under any name.

    Args:
        first: One file.
        second: The other.
        what: What they should be, for the message.
    """
    if first.exists() and second.exists() and first.samefile(second):
        refuse(f"{second}: is the same file as {first}: name {what}")


def load_run(path: Path) -> RunFile:
    """Read a run into memory, since its figures need its rows several times.

    Raises:
        RunFileError: The file is no run.
    """
    from rubric_integrations.runs.run_files import read_run

    return read_run(path, in_memory=True)


def load_rubric(path: Path | None) -> Rubric | None:
    """Read the rubric of a run; None without one.

    Raises:
        RubricError: (a ValueError) The file is no rubric.
    """
    from rubric_integrations.rubric.rubric import Rubric

    return Rubric.from_file(path) if path else None


def load_labels(path: Path, run: RunFile | None, rubric: Rubric | None) -> list[LabelledJudgment]:
    """Read people's labels.

    Args:
        path: The file of labels.
        run: The run that was labelled; None if it has not been graded yet.
        rubric: Its rubric; if None, the run tells the criteria.

    Raises:
        LabelsError: (a ValueError) The file cannot be read, has no labels, or is about another rubric.
        ChosenLabelsError: (a ValueError) People chose all that they labelled.
    """
    from rubric_integrations.agreement.matching import require_drawn

    labels = _read_labels(path, run, rubric)
    require_drawn(labels)
    return labels


def load_own_labels(run: RunFile, rubric: Rubric | None) -> list[LabelledJudgment]:
    """Read the labels that the rows of a run have, as their file of responses had them.

    Args:
        run: The run.
        rubric: Its rubric; if None, the run tells the criteria.

    Raises:
        LabelsError: (a ValueError) No row has labels, or one has another criterion.
        ChosenLabelsError: (a ValueError) They cover only a part of the run.
    """
    from rubric_integrations.agreement import ChosenLabelsError, LabelsError, read_labels

    try:
        labels = read_labels(run, rubric)
    except LabelsError as error:
        raise LabelsError(f"{error}; or name a file of labels after the run") from None
    if all(label.sampled == "chosen" for label in labels):
        raise ChosenLabelsError(
            f"the rows have {len(labels):,} labels, which do not cover all of the run: nothing tells whether they were "
            "drawn or chosen. Name a file of labels, with `sampled` on each line; in Python, pass "
            "`read_labels(run, sampled='random')`"
        )
    return labels


def require_matching(labels: Sequence[LabelledJudgment], matched: int, path: Path, run: Path) -> None:
    """Refuse labels of which none counts for the run.

    Args:
        labels: The labels.
        matched: How many of them were drawn and belong to a judgment of the run.
        path: Their file.
        run: The file of the run.
    """
    if not matched:
        drawn = [label for label in labels if label.sampled != "chosen"]
        others = ", without the `chosen` ones," if len(drawn) < len(labels) else ""
        refuse(
            f"{path}: none of its {len(drawn):,} labels{others} belongs to a judgment of {run}: labels are matched by "
            "the submission and by the words of the criterion; name the run that was labelled"
        )


def _read_labels(path: Path, run: RunFile | None, rubric: Rubric | None) -> list[LabelledJudgment]:
    from rubric_integrations.agreement import read_labels

    return read_labels(path, rubric, run=run) if rubric else read_labels(path, run)
