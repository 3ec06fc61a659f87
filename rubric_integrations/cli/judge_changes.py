"""The commands `compare-judges` and `drift`: whether a cheap judge is good enough, and whether a judge has changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted, percent
from rubric_integrations.cli.console import (
    UNDEFINED,
    Exit,
    err,
    figure,
    figures_table,
    out,
    print_json,
    print_lines,
    print_warnings,
    refuse,
    sigterm_interrupts,
)
from rubric_integrations.cli.loading import (
    ClusterOption,
    JsonOption,
    LabelsPaths,
    RubricOption,
    RunPath,
    StrictOption,
    load_people_labels,
    load_rubric,
    load_run,
    refuse_bad_input,
    require_different,
)
from rubric_integrations.cli.options import GraderOptions, JudgeOptions, LedgerOptions, Only, describe_requests

if TYPE_CHECKING:
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.files import RunFile
    from rubric_integrations.scoring.labels import LabelledJudgment
    from rubric_integrations.trust import DriftReport, JudgeChange, JudgeChanges, JudgeComparison


def compare_judges(
    strong: Annotated[Path, typer.Argument(help="The run of the strong judge: a file that `grade --out` wrote.")],
    cheap: Annotated[Path, typer.Argument(help="The run of the cheap judge, on the same responses.")],
    labels: LabelsPaths = None,
    margin: Annotated[float, typer.Option(help="The accepted loss of accuracy.")] = 0.03,
    alpha: Annotated[
        float, typer.Option(help="The probability of a wrong decision. All intervals have the level 1 - alpha.")
    ] = 0.05,
    cluster: ClusterOption = None,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 1 unless the cheap judge is good enough.")] = False,
    rubric: RubricOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two judges on the same human labels: whether the cheap one is good enough.

    It is "good enough" if its loss of accuracy is shown to be less than --margin, "not good enough" if the loss is
    shown to be more, and otherwise "not yet known". Differences are the cheap judge minus the strong one. To let it
    answer only where it is sure, see `certify`.

    Exit codes: 0 done; 1 not good enough, or not yet known (--gate); 2 bad usage or bad input.
    """
    from rubric_integrations.trust import compare_judges as compare

    paths = labels or []
    require_different([strong, cheap, *paths], "two runs and the human labels")
    with refuse_bad_input(strong, cheap, *paths):
        first, second, run_rubric = load_run(strong), load_run(cheap), load_rubric(rubric)
        answers = load_people_labels(paths, first, run_rubric, strict=strict)
        result = compare(first, second, answers, margin=margin, alpha=alpha, cluster=cluster)
    print_warnings(result.warnings)
    if as_json:
        print_json({**{name: getattr(result, name) for name in type(result).model_fields}, "headline": result.headline})
    else:
        _print_judges(result)
    if gate and result.decision != "good enough":
        raise typer.Exit(Exit.NOT_PASSED)


def _print_judges(result: JudgeComparison) -> None:
    """Print the table of the figures of both judges, their spend and the decision."""
    title = f"{result.names[1]} minus {result.names[0]} [{percent(1 - result.alpha)} intervals]"
    table = figures_table(title, ("criterion", "figure", "strong", "cheap", "difference", "p (Holm)"),
                          text=["criterion", "figure"])  # fmt: skip
    rows = [*result.criteria.items(), *([("all criteria", result.overall)] if len(result.criteria) > 1 else [])]
    for name, row in rows:
        for number, (label, change) in enumerate(_figures(row)):
            table.add_row(
                plain("" if number else name), plain(label), figure(change.strong, 2), figure(change.cheap, 2),
                plain(change.difference.with_limits(2, signed=True)), _p_value(change.adjusted),
            )  # fmt: skip
    out.print(table)
    print_lines([f"{name}: {spend.summary()}" for name, spend in zip(result.names, result.spend, strict=True)])
    judgments = counted(result.judgments, "labelled judgment")
    print_lines([f"{judgments} of {counted(result.responses, 'response')}. {result.headline}"])


def _p_value(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.3g}"


def _figures(row: JudgeChanges) -> list[tuple[str, JudgeChange]]:
    recalls = [(f"recall of {answer}", change) for answer, change in row.recalls.items()]
    return [("accuracy", row.accuracy), ("kappa", row.kappa), ("bias", row.bias), *recalls]


@dataclass(frozen=True)
class DriftOptions:
    """The options of `drift` for the rows, the human labels, the test and the output."""

    rubric: Annotated[
        Path | None,
        typer.Option(help="The run's rubric: needed if the judge read more than the run has, such as examples."),
    ] = None
    labels: Annotated[
        list[Path] | None,
        typer.Option(help="Human labels of the run: whether the agreement with them still holds."),
    ] = None
    sample: Annotated[int, typer.Option(min=1, help="The number of rows to ask again.")] = 200
    repeat: Annotated[
        int,
        typer.Option(
            min=1, max=2, help="How often each row is asked: 2 also finds answers that moved in both directions."
        ),
    ] = 1
    alpha: Annotated[
        float, typer.Option(help="The probability that a judge that has not changed is called changed.")
    ] = 0.05
    gate: Annotated[
        bool, typer.Option("--gate", help="Exit with 1 if the judge has changed, or the check is inconclusive.")
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all figures.")] = False


def drift(
    run: RunPath,
    judges: JudgeOptions,
    grader_options: Annotated[
        GraderOptions,
        Only(
            (
                "strategy",
                "cannot_assess",
                "max_concurrency",
                "max_retries",
                "timeout",
                "max_outage",
                "step_limit",
                "chunk_size",
                "explore",
                "explore_above",
            )
        ),
    ],
    limits: Annotated[LedgerOptions, Only(("max_cost", "max_calls", "price"))],
    options: DriftOptions,
    cluster: ClusterOption = None,
    strict: StrictOption = False,
) -> None:
    """Ask a judge about rows of an earlier run again, and tell whether the judge has changed.

    A judge that contradicts itself now and then is not called changed. It is "changed" if its answers or abstentions on
    a criterion moved in one direction, if the mean score or the accuracy by the labels moved, or, with --repeat 2, if
    the new answers differ from the earlier ones more often than from each other. Without a change, the check is
    "inconclusive" if the judge is another one than recorded, or if the rows are too few. The new answers are stored
    next to the run (run.drift.sqlite): a check that was stopped continues, and the next check after a complete one asks
    again.

    Exit codes: 0 done; 1 changed, or inconclusive (--gate); 2 bad usage or bad input; 3 the judge cannot be used;
    4 stopped by --max-cost or --max-calls; 130 stopped by Ctrl-C or SIGTERM.
    """
    from rubric_integrations.judges.spend import PRICE_UNKNOWN
    from rubric_integrations.judges.store import StoreError
    from rubric_integrations.trust import drift as check

    if not judges.judge:
        refuse("`--judge`: name the judge of the run")
    paths, ledger = options.labels or [], run.with_suffix(".drift.sqlite") if judges.uses_model else None
    require_different([run, *paths], "the run and the human labels")
    try:
        with refuse_bad_input(run, *paths):
            loaded, run_rubric = load_run(run), load_rubric(options.rubric)
            labels = _labels(paths, loaded, run_rubric, strict=strict)
            explorer = judges.make_explorer(grader_options.explore)
            grader = replace(grader_options, on_failure="abstain").make_grader(judges.make_judges(), explorer)
            if judges.uses_model:
                err.print(plain(describe_requests(grader.runtime.callers)), soft_wrap=True)
            with sigterm_interrupts():
                report = check(
                    loaded, grader, rubric=run_rubric, labels=labels, sample=options.sample, repeat=options.repeat,
                    alpha=options.alpha, cluster=cluster, ledger=ledger, max_cost=limits.max_cost,
                    max_calls=limits.max_calls, prices=limits.prices, progress=True,
                    max_concurrency=grader_options.max_concurrency,
                )  # fmt: skip
    except (StoreError, TypeError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        err.print(plain(f"Stopped. {_how_to_continue(ledger)}"), soft_wrap=True)
        raise typer.Exit(Exit.INTERRUPTED) from None
    print_warnings(report.warnings)
    if options.as_json:
        print_json({**{name: getattr(report, name) for name in type(report).model_fields}, "headline": report.headline})
    else:
        _print_drift(report)
    if report.stopped:
        # Without a price, the same command would be stopped again: `stopped` says what to change.
        if report.spend.calls and PRICE_UNKNOWN not in report.stopped:
            err.print(plain(_how_to_continue(ledger)), soft_wrap=True)
        raise typer.Exit(Exit.JUDGE_FAILED if report.is_unusable else Exit.STOPPED)
    if options.gate and report.decision != "not shown to have changed":
        raise typer.Exit(Exit.NOT_PASSED)


def _labels(paths: list[Path], run: RunFile, rubric: Rubric | None, *, strict: bool) -> list[LabelledJudgment] | None:
    """Read the labels of the files, or of the rows of the run if they have labels of all of them."""
    from rubric_integrations.trust import ChosenLabelsError, LabelsError

    try:
        return load_people_labels(paths, run, rubric, strict=strict)
    except (LabelsError, ChosenLabelsError):
        if paths:
            raise
        return None


def _how_to_continue(ledger: Path | None) -> str:
    stored = f"The answers so far are in {ledger}, and are not requested again: " if ledger else ""
    return f"{stored}repeat the command to go on."


def _print_drift(report: DriftReport) -> None:
    """Print the table of the criteria, the mean score and the decision."""
    is_repeated = any(row.own_flips for row in report.criteria.values())
    has_abstentions = any(row.abstentions_adjusted is not None for row in report.criteria.values())
    own, abstained = ["flips of its own"] * is_repeated, ["abstained"] * has_abstentions
    columns = ("criterion", "flips", *own, "change", "p (Holm)", *abstained, "kappa")
    table = figures_table(
        f"Answers, new and earlier [{percent(1 - report.alpha)} intervals]", columns, text=["criterion"]
    )
    for name, row in report.criteria.items():
        own = [plain(UNDEFINED if row.own_flips is None else row.own_flips.with_limits(2))] * is_repeated
        abstained = [plain(row.abstentions.with_limits(2, signed=True))] * has_abstentions
        table.add_row(
            plain(name), plain(row.flips.with_limits(2)), *own, plain(row.difference.with_limits(2, signed=True)),
            _p_value(row.adjusted), *abstained, plain(row.kappa.with_limits(2)),
        )  # fmt: skip
    if report.criteria:
        out.print(table)
        change = report.score.with_limits(signed=True)
        print_lines([f"Mean score: {change}. {counted(report.rows, 'row')}, {report.spend.summary()}."])
    print_lines([report.judge_line, *filter(None, [report.labels_line]), report.headline])
