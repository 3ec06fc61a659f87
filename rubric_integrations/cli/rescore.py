"""The command `rescore`: what a run would have come to with other weights."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import app, err, out, refuse
from rubric_integrations.reporting.terminal import ranking_table

MAX_RANKED = 50


@app.command()
def rescore(
    ledger: Annotated[Path, typer.Argument(help="The ledger of a run, such as run.sqlite.")],
    rubric: Annotated[Path, typer.Option(help="The new rubric.")],
    out_file: Annotated[Path | None, typer.Option("--out", help="Write one full report a line (JSONL).")] = None,
    cannot_assess: Annotated[
        Literal["skip", "zero", "partial", "fail"] | None,
        typer.Option(help="What an abstention counts; by default as in the run."),
    ] = None,
) -> None:
    """Score the submissions of a run by another rubric, without a call.

    Weights, names, marks and gates may change for free; the judgments on new words are counted, not bought.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.rubric.errors import RubricError
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.ledger import Ledger, LedgerError
    from rubric_integrations.runs.rescoring import Rescored
    from rubric_integrations.runs.rescoring import rescore as rescored
    from rubric_integrations.runs.summary import Graded

    if not ledger.exists():
        refuse(f"{ledger}: there is no such ledger")
    shown: list[Graded] = []
    count = missing = incomplete = 0
    scores = 0.0

    def line(result: Rescored) -> str:
        row = {"id": result.row.id, "missing": result.missing, **result.report.model_dump(mode="json")}
        return json.dumps({**row, "score": result.score}, ensure_ascii=False) + "\n"

    try:
        loaded = Rubric.from_file(rubric)
        with Ledger(ledger) as opened, ExitStack() as stack:
            sink = stack.enter_context(out_file.open("w", encoding="utf-8")) if out_file else None
            for result in rescored(opened, loaded, cannot_assess):
                count += 1
                missing += result.missing
                incomplete += bool(result.missing)
                scores += result.score or 0.0
                if len(shown) <= MAX_RANKED:
                    shown.append(Graded(result.row, result.report, "judgments are missing" if result.missing else None))
                if sink:
                    sink.write(line(result))
    except (RubricError, LedgerError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{out_file}: cannot be written: {error.strerror or error}")
    if count <= MAX_RANKED:
        out.print(ranking_table(shown))
    whole = count - incomplete
    mean = f"mean {scores / whole:.3f}" if whole else "no score"
    out.print(plain(f"{whole} of {count} scored by {loaded.name or 'the rubric'}: {mean}, at no cost."), soft_wrap=True)
    if missing:
        err.print(plain(f"{missing} judgments are new and would have to be bought."), style="yellow", soft_wrap=True)
