"""The command `probe`: how often attacks in a text move a judge's verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations.cli.console import Exit, app, out, refuse


@app.command()
def probe(
    judge: Annotated[str, typer.Option(help="The model to probe, such as openai/gpt-5-mini.")],
    api_base: Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server.")] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the whole report (JSON).")] = None,
    max_concurrency: Annotated[int, typer.Option(min=1, help="Calls to the judge under way at once.")] = 16,
) -> None:
    """Attack a judge with texts that forge verdicts, give orders or flatter, and tell how often its verdict moved.

    Attacks on the prompt's structure must fail for any judge; those that cajole are reported as a rate.

    Exit codes: 0 done; 1 an attack on the structure got through; 2 bad usage; 3 the judge gave no verdict at all.
    """
    from rubric_integrations.redteam.table import run_probe

    if out_file and out_file.exists():
        refuse(f"{out_file}: exists: name another file, or what it holds would be lost")
    try:
        report = run_probe(judge, api_base, out_file, max_concurrency, out)
    except (ValueError, TypeError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{out_file}: cannot be written: {error.strerror or error}")
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if report.baseline_failures == report.baseline:
        raise typer.Exit(Exit.JUDGE_FAILED)
    raise typer.Exit(Exit.NOT_PASSED if report.breaches else Exit.DONE)
