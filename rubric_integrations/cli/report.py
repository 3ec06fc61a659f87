"""The command `report`: writes an HTML page that shows one run or compares two."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, out, refuse
from rubric_integrations.cli.output_checks import PAGE
from rubric_integrations.cli.output_file import OutputFile
from rubric_integrations.cli.trust_inputs import require_different


def report(
    runs: Annotated[list[Path], typer.Argument(help="A file that `grade --out` wrote, or two to compare.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file of --output if it exists and is no report page.")
    ] = False,
    mixed: Annotated[
        bool,
        typer.Option(
            "--mixed",
            help="Allow rows that the runs grade by different rubrics, whose scores measure different things.",
        ),
    ] = False,
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="People's labels of the last run: the page then says how far the judge can be trusted. Repeat it for "
            "each rater's file."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's heading; by default the rubric's name.")] = None,
) -> None:
    """Write an HTML page that shows one run or compares two. It is one file, and needs no server and no network.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.agreement import LabelsError, read_labels
    from rubric_integrations.reporting.page.mismatch import rubric_mismatch
    from rubric_integrations.reporting.page.render import page_parts
    from rubric_integrations.runs.run_files import RunFileError, read_run

    if len(runs) > 2:
        refuse(f"`runs` are {len(runs)} files: name one, or two to compare")
    require_different(labels or [], "the file of each rater once")
    file = OutputFile(output, option="--output", overwrite=overwrite, inputs=[*runs, *(labels or [])], replaces=PAGE)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loaded = [read_run(path) for path in runs]
            of_people = [label for path in labels for label in read_labels(path, loaded[-1])] if labels else None
        for warning in caught:
            err.print(plain(str(warning.message)), style="yellow", soft_wrap=True)
        if not mixed and (mismatch := rubric_mismatch(loaded)):
            refuse(f"`runs` are of different rubrics: {mismatch}: pass --mixed to show them nevertheless")
        parts = page_parts(loaded, title, labels=of_people)
    except (RunFileError, LabelsError, ImportError) as error:
        refuse(str(error))
    size = 0
    with file:
        for part in parts:
            file.write(part)
            size += len(part.encode("utf-8", "replace"))
    out.print(plain(f"{output}: {size / 1000:,.0f} kB. Open it in a browser."), soft_wrap=True)
