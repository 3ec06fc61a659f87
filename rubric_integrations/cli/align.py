"""The command `align`: aligns a judge with people's labels, and writes it if other labels prove a gain."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, err, refuse
from rubric_integrations.cli.figures import print_json, print_lines, print_warnings
from rubric_integrations.cli.interrupts import sigterm_interrupts
from rubric_integrations.cli.judge_arguments import ApiBaseOption, ApiKeyOption, JudgeSettingsOption
from rubric_integrations.cli.judge_option import has_model, make_judge
from rubric_integrations.cli.output_checks import ledger_files
from rubric_integrations.cli.output_file import OutputFile
from rubric_integrations.cli.trust_inputs import (
    JsonOption,
    LabelsPaths,
    RubricOption,
    RunPath,
    load_people_labels,
    load_rubric,
    load_run,
    refuse_bad_input,
    require_different,
)

if TYPE_CHECKING:
    from rubric_integrations.agreement import Alignment
    from rubric_integrations.judges.lm_judge import LMJudge
    from rubric_integrations.judges.models import ModelLike


def align(
    run: RunPath,
    judge: Annotated[
        str, typer.Option(help="The model to align, such as openai/gpt-5-mini, or the file of an aligned judge.")
    ],
    out_file: Annotated[Path, typer.Option("--out", help="Write the aligned judge to this .json file, if it is kept.")],
    labels: LabelsPaths = None,
    optimizer: Annotated[
        Literal["gepa", "miprov2", "bootstrap"],
        typer.Option(help="Rewrite the instructions, search for instructions and examples, or collect examples."),
    ] = "gepa",
    reflection_model: Annotated[
        str | None,
        typer.Option(help="The model that proposes instructions, on the same server; by default that of --judge."),
    ] = None,
    api_base: ApiBaseOption = None,
    api_key: ApiKeyOption = None,
    judge_option: JudgeSettingsOption = None,
    rubric: RubricOption = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="Store each answer in this file, so that none is requested twice. By default beside --out."),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Stop before spending more US dollars.")] = None,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before making more calls.")] = None,
    alpha: Annotated[
        float, typer.Option(help="The probability of keeping a judge that is not better, over all attempts.")
    ] = 0.05,
    seed: Annotated[int, typer.Option(help="Which split of the labels, and which search.")] = 0,
    max_concurrency: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent calls.")] = 64,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False,
    write_unchanged: Annotated[
        bool,
        typer.Option("--write-unchanged", help="If the aligned judge is not kept, write the judge as it was."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Align a judge with people's labels, and write it to a file if labels that it has not seen prove a gain.

    The file works wherever a judge goes: `grade RUBRIC RESPONSES --judge judge.json`. Each attempt on the same labels
    is counted in a file beside the first of them (labels.lock), and makes the proof harder.

    Exit codes: 0 the aligned judge is kept; 1 it is not kept, because it is not proven to be better; 2 bad usage or bad
    input; 3 the judge cannot be used; 4 stopped by --max-cost or --max-calls; 130 stopped by Ctrl-C or SIGTERM.
    """
    from rubric_integrations.agreement import AlignmentError
    from rubric_integrations.agreement import align as align_judge

    store = ledger or out_file.with_suffix(".sqlite")
    label_files = labels or []
    attempts = (label_files[0] if label_files else run).with_suffix(".lock")
    file = _open_output(out_file, [run, *label_files, rubric, attempts, Path(judge)], store, overwrite=overwrite)
    require_different([run, *label_files], "the run, and the labels that people gave")
    with refuse_bad_input(run, *label_files):
        model = _make_judge(judge, api_base, judge_option or [], api_key)
        reflection = _reflection_model(reflection_model, api_base, api_key)
        loaded, run_rubric = load_run(run), load_rubric(rubric)
        answers = load_people_labels(label_files, loaded, run_rubric)
    try:
        with ExitStack() as stack:
            stack.enter_context(sigterm_interrupts())
            opened = stack.enter_context(file)
            alignment = align_judge(
                model, answers, optimizer, reflection_model=reflection, alpha=alpha, seed=seed, max_cost=max_cost,
                max_calls=max_calls, ledger=store, attempts=attempts, max_concurrency=max_concurrency,
                progress=_print_progress,
            )  # fmt: skip
            is_written = alignment.kept or write_unchanged
            _print(alignment, out_file if is_written else None, as_json=as_json)
            if not is_written:
                raise typer.Exit(Exit.NOT_PASSED)
            opened.write(alignment.judge.file_text())
    except AlignmentError as error:
        err.print(plain(str(error)), style="red", soft_wrap=True)
        raise typer.Exit(Exit.STOPPED if error.limit_reached else Exit.JUDGE_FAILED) from None
    except (ValueError, TypeError, OSError, ImportError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        err.print(plain(f"Stopped. Nothing is written to {out_file}; the answers until now are in {store}, and are not "
                        "requested again by the same command."), soft_wrap=True)  # fmt: skip
        raise typer.Exit(Exit.INTERRUPTED) from None
    raise typer.Exit(Exit.DONE if alignment.kept else Exit.NOT_PASSED)


def _open_output(out_file: Path, inputs: list[Path | None], ledger: Path, *, overwrite: bool) -> OutputFile:
    if out_file.suffix.lower() != ".json":
        refuse(f"`--out` {out_file} must end with .json: `--judge` takes any other name for a model")
    files = [path for path in inputs if path is not None]
    return OutputFile(out_file, option="--out", overwrite=overwrite, inputs=[*files, *ledger_files(ledger)])


def _make_judge(judge: str, api_base: str | None, options: list[str], api_key: str | None) -> LMJudge:
    if not has_model(judge):
        raise ValueError(f"`--judge` {judge!r} has no model, and nothing to align: name a model")
    return cast("LMJudge", make_judge(judge, api_base, options, api_key=api_key))


def _reflection_model(name: str | None, api_base: str | None, api_key: str | None) -> ModelLike | None:
    from rubric_integrations.judges.models.from_name import ModelOptions, lm_from_name

    return lm_from_name(name, ModelOptions(api_base=api_base, api_key=api_key)) if name is not None else None


def _print_progress(text: str) -> None:
    err.print(plain(text), soft_wrap=True)


def _print(alignment: Alignment, written: Path | None, *, as_json: bool) -> None:
    print_warnings(alignment.warnings)
    if as_json:
        names = ("kept", "gain", "before", "after", "dev_before", "dev_after", "attempts", "spend", "shown", "warnings")
        figures = {name: getattr(alignment, name) for name in names}
        print_json({**figures, "judge": None if written is None else str(written)})
        return
    lines = alignment.summary().splitlines()
    end = "nothing is written" if written is None else f"written to {written}"
    print_lines([*(line for line in lines if line not in alignment.warnings), f"judge: {end}"])
