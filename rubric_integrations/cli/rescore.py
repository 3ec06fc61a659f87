"""The command `rescore`: scores the submissions of a run with another rubric, without calls to a model."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, out, refuse
from rubric_integrations.cli.ledger_option import ledger_address, ledger_exists, open_ledger
from rubric_integrations.cli.output_checks import ledger_files
from rubric_integrations.cli.output_file import OutputFile

if TYPE_CHECKING:
    from rubric_integrations.runs.rescoring import Rescored
    from rubric_integrations.runs.summary import Graded

# A longer ranking is not read in a terminal; `--out` has every submission.
MAX_RANKED = 50


def rescore(
    ledger: Annotated[
        str, typer.Argument(help="The ledger of a run, such as run.sqlite, or the URL of a PostgreSQL database.")
    ],
    rubric: Annotated[
        Path | None,
        typer.Option(
            help="The new rubric, to which those are added that rows brought to the run; none, for these alone."
        ),
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write one full report per line to this file (JSONL).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False,
    cannot_assess: Annotated[
        Literal["skip", "zero", "partial", "fail"] | None,
        typer.Option(help="How an abstention counts; by default as in the run."),
    ] = None,
) -> None:
    """Score the submissions of a run with another rubric, without calls to a model.

    The rubric that a row brought to the run is added to the new one.

    Weights, names, pass marks and gates can change. Criteria with a new text have no judgments yet: those are counted.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.reporting.terminal import ranking_table
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.rescoring import rescore as rescore_ledger
    from rubric_integrations.runs.summary import Graded

    address = ledger_address(ledger)
    if not ledger_exists(address):
        refuse(f"{ledger}: there is no such ledger")
    inputs = [*ledger_files(address), *([rubric] if rubric else [])]
    file = OutputFile(out_file, option="--out", overwrite=overwrite, inputs=inputs) if out_file else None
    ranked: list[Graded] = []
    count = missing = incomplete = 0
    scores = 0.0
    try:
        new_rubric = Rubric.from_file(rubric) if rubric else None
        with open_ledger(address) as opened, ExitStack() as stack:
            sink = stack.enter_context(file) if file else None
            for result in rescore_ledger(opened, new_rubric, cannot_assess):
                count += 1
                missing += result.missing
                incomplete += bool(result.missing)
                scores += result.score or 0.0
                # One more than are shown: more than MAX_RANKED means that no ranking is printed.
                if len(ranked) <= MAX_RANKED:
                    problem = "judgments are missing" if result.missing else None
                    ranked.append(Graded(result.row, result.report, problem))
                if sink:
                    sink.write(_line(result))
    except ValueError as error:
        refuse(str(error))
    if count <= MAX_RANKED:
        out.print(ranking_table(ranked))
    complete = count - incomplete
    mean = f"mean {scores / complete:.3f}" if complete else "no score"
    name = (new_rubric.name or "the rubric") if new_rubric else "the rows' own rubrics"
    out.print(plain(f"{complete} of {count} scored by {name}: {mean}, without a call."), soft_wrap=True)
    if missing:
        line = f"{missing} judgments are new and would have to be requested."
        err.print(plain(line), style="yellow", soft_wrap=True)


def _line(result: Rescored) -> str:
    fields = {"id": result.row.id, "missing": result.missing, **result.report.model_dump(mode="json")}
    return json.dumps({**fields, "score": result.score, "rubric": result.rubric.name}, ensure_ascii=False) + "\n"
