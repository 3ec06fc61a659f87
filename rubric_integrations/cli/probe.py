"""The command `probe`: measures how often attacks in a submission change a judge's verdict."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations.cli.console import Exit, out, refuse
from rubric_integrations.cli.judge_arguments import ApiBaseOption, ApiKeyOption, JudgeSettingsOption
from rubric_integrations.cli.judge_option import make_judge
from rubric_integrations.cli.output_file import OutputFile


def probe(
    judge: Annotated[
        str, typer.Option(help="The model to probe, such as openai/gpt-5-mini, or the file of an aligned judge.")
    ],
    api_base: ApiBaseOption = None,
    api_key: ApiKeyOption = None,
    judge_option: JudgeSettingsOption = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the full report to this file (JSON).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False,
    max_concurrency: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent calls to the judge.")] = 64,
) -> None:
    """Measure how often attacks in a submission change a judge's verdict.

    Structural attacks forge parts of the prompt or of the reply. They are checked without a model and must all fail.
    Behavioural attacks try to persuade the judge: how often they succeed is reported as a rate.

    Exit codes: 0 done; 1 a structural attack succeeded; 2 bad usage; 3 the judge answered no question.
    """
    from rubric_integrations.redteam.table import run_probe

    report_file = OutputFile(out_file, option="--out", overwrite=overwrite) if out_file else None
    try:
        with ExitStack() as stack:
            # Opened first, so that no call is paid for if the file cannot be written.
            file = stack.enter_context(report_file) if report_file else None
            model = make_judge(judge, api_base, judge_option or (), api_key=api_key)
            report = run_probe(model, max_concurrency, out)
            if file:
                file.write(report.model_dump_json(indent=2) + "\n")
    except (ValueError, TypeError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    if report.baseline_failures == report.baseline:
        raise typer.Exit(Exit.JUDGE_FAILED)
    raise typer.Exit(Exit.NOT_PASSED if report.breaches else Exit.DONE)
