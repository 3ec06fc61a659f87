"""The command `report`: a run, or two, as a page to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import app, out, refuse


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="A run that `grade --out` wrote, or two to compare.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Its heading; by default the rubric's name.")] = None,
) -> None:
    """Write a page that shows a run, or compares two: one file that needs no server and no network.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.reporting.page import RunFileError, read_run, report_page

    if len(runs) > 2:
        refuse(f"`runs` are {len(runs)}: give one, or two to compare")
    try:
        page = report_page([read_run(path) for path in runs], title)
        output.write_text(page, encoding="utf-8")
    except (RunFileError, ImportError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{output}: cannot be written: {error.strerror or error}")
    out.print(plain(f"{output}: {len(page.encode()) / 1000:,.0f} kB. Open it in a browser."), soft_wrap=True)
