"""The command `label`: lets people answer the judge's questions, on a page or in the terminal."""

from __future__ import annotations

import warnings
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, err, out, refuse
from rubric_integrations.cli.output_checks import LABELS_FILE, PAGE, partial_path
from rubric_integrations.cli.output_file import OutputFile

if TYPE_CHECKING:
    from rubric_integrations.agreement.choosing import JudgmentToLabel
    from rubric_integrations.runs.run_files import RunFile


def label(
    run: Annotated[Path, typer.Argument(help="A file that `grade --out` wrote.")],
    n: Annotated[
        int,
        typer.Option(
            "--n", min=1, help="How many submissions to draw; with --by-verdict, how many judgments of each verdict."
        ),
    ] = 50,
    by_verdict: Annotated[
        bool, typer.Option("--by-verdict", help="Draw judgments of each verdict on each criterion, also of rare ones.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Which draw; the same seed draws the same.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("label.html"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file of --output if it exists and is no report page.")
    ] = False,
    open_page: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open the page in a browser; by default if stdout is a terminal."),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Ask in the terminal, and write no page. Repeat the command to go on.")
    ] = False,
    labels: Annotated[
        Path, typer.Option("--out", help="With --terminal: the file of labels, to which each answer is added.")
    ] = Path("labels.jsonl"),
    rater: Annotated[str, typer.Option(help="With --terminal: your name, which each label carries.")] = "",
) -> None:
    """Draw judgments of a run, and let people answer them without seeing the judge's answers.

    It writes a page that is used with the keyboard and exports the labels, or asks in the terminal.

    Exit codes: 0 done; 2 bad usage or bad input; 130 interrupted (Ctrl-C), with the labels so far written.
    """
    from rubric_integrations.agreement.choosing import choose_for_labels
    from rubric_integrations.runs.run_files import RunFileError, read_run

    if terminal and not rater.strip():
        refuse("--terminal needs --rater: name who answers, or the labels of several people could not be separated")
    if rater and not terminal:
        refuse("--rater is for --terminal: the page asks for the name")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loaded = read_run(run)
            drawn = choose_for_labels(loaded, n, by_verdict=by_verdict, seed=seed)
        for warning in caught:
            err.print(plain(str(warning.message)), style="yellow", soft_wrap=True)
        if terminal:
            _ask(run, drawn, labels, rater.strip())
        else:
            _write_page(run, loaded, drawn, output, overwrite=overwrite, open_page=open_page)
    except (RunFileError, ImportError, ValueError) as error:
        refuse(str(error))


def _write_page(
    path: Path,
    run: RunFile,
    drawn: list[JudgmentToLabel],
    output: Path,
    *,
    overwrite: bool,
    open_page: bool | None,
) -> None:
    from rubric_integrations.reporting.page.render import page_parts

    file = OutputFile(output, option="--output", overwrite=overwrite, inputs=[path], replaces=PAGE)
    parts = page_parts([run], to_label=drawn)
    with file:
        for part in parts:
            file.write(part)
    out.print(plain(f"{output}: {len(drawn):,} judgments to label. Open it in a browser."), soft_wrap=True)
    if out.is_terminal if open_page is None else open_page:
        webbrowser.open(output.resolve().as_uri())


def _ask(run: Path, drawn: list[JudgmentToLabel], path: Path, rater: str) -> None:
    from rubric_integrations.cli.label_terminal import TerminalLabels

    # A process that was killed has left its labels in the file beside this one.
    file = OutputFile(
        path, option="--out", overwrite=False, inputs=[run], replaces=LABELS_FILE, keep_partial=True
    )  # fmt: skip
    session = TerminalLabels(drawn, rater, [path, partial_path(path)])
    with file:
        for line in session.lines:
            file.write(line)
        is_interrupted = False
        try:
            for line in session.ask(out):
                file.write(line)
        except KeyboardInterrupt:
            is_interrupted = True
    out.print(plain(f"\n{path}: {session.done:,} of {len(drawn):,} judgments labelled by {rater}."), soft_wrap=True)
    if is_interrupted:
        raise typer.Exit(Exit.INTERRUPTED)
