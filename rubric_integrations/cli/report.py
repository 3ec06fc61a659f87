"""The command `report`: writes an HTML page that shows one run or compares two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import out, refuse, unwritable


def report(
    runs: Annotated[list[Path], typer.Argument(help="A file that `grade --out` wrote, or two to compare.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="The page's heading; by default the rubric's name.")] = None,
) -> None:
    """Write an HTML page that shows one run or compares two. It is one file, and needs no server and no network.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.reporting.page import RunFileError, read_run, report_page

    if len(runs) > 2:
        refuse(f"`runs` are {len(runs)} files: name one, or two to compare")
    try:
        page = report_page([read_run(path) for path in runs], title)
        output.write_text(page, encoding="utf-8")
    except (RunFileError, ImportError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(unwritable(output, error))
    out.print(plain(f"{output}: {len(page.encode()) / 1000:,.0f} kB. Open it in a browser."), soft_wrap=True)
