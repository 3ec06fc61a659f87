"""The command `test`: runs the test cases of a rubric."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted
from rubric_integrations.cli.console import (
    MAX_RANKED,
    UNDEFINED,
    Exit,
    err,
    figures_table,
    out,
    print_json,
    print_lines,
    print_warnings,
    refuse,
    sigterm_interrupts,
)
from rubric_integrations.cli.loading import JsonOption, refuse_bad_input
from rubric_integrations.cli.options import (
    GraderOptions,
    JudgeOptions,
    LedgerAddress,
    LedgerOptions,
    ModulesOption,
    Only,
    caution_of,
    describe_requests,
    import_modules,
    ledger_address,
    ledger_exists,
)
from rubric_integrations.cli.outputs import JUNIT_FILE, OutputFile, ledger_files

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import Judge
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.trust.cases import CaseReport, CaseResult

_STYLES = {"as expected": "green", "different": "red", "failed": "bold magenta"}


@dataclass(frozen=True)
class CaseOptions:
    """The options of `test` for the cases and the output."""

    cases: Annotated[
        Path | None,
        typer.Option(help="A file of further cases. By default NAME.cases.yaml next to the rubric, if it exists."),
    ] = None
    repeat: Annotated[
        int,
        typer.Option(min=1, help="How often each case is graded: with 2 or more, the answers that differ are counted."),
    ] = 1
    junit: Annotated[
        Path | None, typer.Option(help="Write the results as JUnit XML, one test for each case, to this file.")
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --junit if it exists.")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of calls and their highest cost. Call no model.")
    ] = False
    modules: ModulesOption = None
    as_json: JsonOption = False


def test(
    rubric: Annotated[Path, typer.Argument(help="The rubric file, with its test cases under `cases`.")],
    judges: Annotated[
        JudgeOptions,
        Only(
            ("escalate_to", "escalate_below", "api_base", "api_key", "judge_option"),
            {
                "judge": "A model, such as openai/gpt-5-mini or ollama_chat/llama3.2; the file of an aligned judge; or "
                "offline, which uses no model. Not needed if checks decide all criteria. Several judges form a panel."
            },
        ),
    ],
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
            )
        ),
    ],
    ledger_options: Annotated[
        LedgerOptions,
        Only(
            ("max_cost", "max_calls", "price"),
            {
                "ledger": "Store each answer in this file, or in the PostgreSQL database of this URL: a stored one is "
                "not requested again."
            },
        ),
    ],
    options: CaseOptions,
) -> None:
    """Run the test cases of a rubric: grade each, and compare the verdicts and scores with the expected ones.

    With --repeat, a flip is a repeated answer that differs from the first answer about the same case.

    Exit codes: 0 all as expected; 1 a result differs; 2 bad usage or bad input; 3 a judge failed, or cannot be used;
    4 stopped by --max-cost or --max-calls; 130 stopped by Ctrl-C or SIGTERM.
    """
    from rubric_integrations.formats.registry import read_with_cases
    from rubric_integrations.judges.store import StoreError
    from rubric_integrations.trust.cases import check_grader, read_tested, run_cases

    ledger = ledger_address(ledger_options.ledger) if ledger_options.ledger else None
    files = [rubric, *([options.cases] if options.cases else [])]
    inputs = [*files, *ledger_files(ledger), *judges.judge_files]
    junit = options.junit and OutputFile(
        options.junit, option="--junit", overwrite=options.overwrite, inputs=inputs, replaces=JUNIT_FILE
    )
    import_modules(options.modules or ())
    try:
        with refuse_bad_input(*files):
            tested = read_tested(read_with_cases(rubric, options.cases), str(rubric))
            _require_judge(judges, tested)
            grader = replace(grader_options, on_failure="abstain").make_grader(members := judges.make_judges())
            check_grader(tested, grader)
            if options.dry_run:
                _print_plan(tested, grader, options.repeat, ledger, ledger_options, as_json=options.as_json)
                return
            _print_judges(judges, members, tested)
            start = time.monotonic()
            with sigterm_interrupts(), junit or nullcontext() as junit_file:
                report = run_cases(
                    tested, grader, repeat=options.repeat, ledger=ledger, max_cost=ledger_options.max_cost,
                    max_calls=ledger_options.max_calls, prices=ledger_options.prices, progress=True,
                    max_concurrency=grader_options.max_concurrency,
                )  # fmt: skip
                if junit_file:
                    junit_file.write(_junit(report, tested.name or rubric.stem, time.monotonic() - start))
    except (StoreError, TypeError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        stored = f"The answers so far are in {ledger_options.ledger}: repeat the command to go on." if ledger else ""
        err.print(plain(f"Stopped. {stored}".strip()), soft_wrap=True)
        raise typer.Exit(Exit.INTERRUPTED) from None
    print_warnings(report.warnings)
    if options.as_json:
        print_json({**{name: getattr(report, name) for name in type(report).model_fields}, "headline": report.headline})
    else:
        print_report(report)
    raise typer.Exit(_exit_code(report))


def _require_judge(judges: JudgeOptions, rubric: Rubric) -> None:
    """End the command with an error if a criterion needs a judge and none is named."""
    from rubric_integrations.rubric.criterion import all_criteria

    if judges.judge:
        return
    questions = all_criteria(rubric.criteria)
    if unanswered := next((question for question in questions if question.check is None), None):
        name = unanswered.name or unanswered.requirement
        refuse(
            f"`--judge` is missing: `{name}` has no `check`, and a judge must answer it: name one, such as "
            "openai/gpt-5-mini; or offline, which abstains from most criteria"
        )


def _print_plan(
    rubric: Rubric, grader: Grader, repeat: int, ledger: LedgerAddress | None, limits: LedgerOptions, *, as_json: bool
) -> None:
    """Print the number of calls that the command would make, and their highest cost."""
    from rubric_integrations.runs.dry_run import count_calls

    rows = [(case.submission, rubric.without_cases()) for case in rubric.cases]
    existing = ledger if ledger_exists(ledger) else None
    planned = count_calls(rows, grader, repeats=repeat, ledger=existing, prices=limits.prices)
    if as_json:
        print_json({"cases": len(rows), "repeat": repeat, **planned._asdict()})
    else:
        times = f", {repeat:,} times each" if repeat > 1 else ""
        print_lines([f"{counted(len(rows), 'case')}{times}: {planned.summary()}. Nothing was requested."])


def _print_judges(judges: JudgeOptions, members: list[Judge], rubric: Rubric) -> None:
    from rubric_integrations.judges.offline import WHAT_IT_IS

    if judges.judge:
        err.print(plain(describe_requests(members) if judges.uses_model else WHAT_IT_IS), soft_wrap=True)
    if warning := caution_of(members, rubric.criteria):
        err.print(plain(warning), style="yellow", soft_wrap=True)


def print_report(report: CaseReport) -> None:
    """Print the results of test cases: a table of the expectations, a table of the criteria, and the headline."""
    from rich.text import Text

    texts = ["case", "expectation", "expected", "obtained", "outcome", "reason"]
    if report.stopped and all(row.obtained is None for row in report.results):
        err.print(plain(f"No case was graded: {report.stopped}"), style="red", soft_wrap=True)
        return
    repeated = ["repeated"] if report.repeat > 1 else []
    shown = [row for row in report.results if len(report.results) <= MAX_RANKED or row.outcome != "as expected"]
    if shown:
        columns = [*texts[:5], *repeated, texts[5]]
        table = figures_table("Cases", columns, text=columns)
        for row in shown:
            table.add_row(
                plain(row.case), plain(row.expectation), plain(row.expected), plain(row.obtained or UNDEFINED),
                Text(row.outcome, style=_STYLES[row.outcome]), *([plain(_counts(row))] if repeated else []),
                plain("" if row.outcome == "as expected" else row.short_reason),
            )  # fmt: skip
        out.print(table)
    if len(shown) < len(report.results):
        print_lines([f"{len(report.results) - len(shown):,} expectations as expected are not listed."])
    flips = ["flips [95% interval]"] if repeated else []
    table = figures_table("Criteria", ["criterion", "as expected", "different", "failed", *flips], text=["criterion"])
    for name, criterion in report.criteria.items():
        counts = (f"{number:,}" for number in criterion[:3])
        table.add_row(plain(name), *counts, *([str(criterion.flips or UNDEFINED)] if flips else []))
    out.print(table)
    print_lines([f"{report.headline} {report.spend.summary()}."])
    if report.stopped:
        err.print(plain(f"Stopped: {report.stopped}."), style="red", soft_wrap=True)


def _counts(row: CaseResult) -> str:
    """Return how often each result was obtained. Empty if all are equal."""
    if len(set(row.repeated)) == 1:
        return ""
    counts = Counter("no answer" if text is None else text for text in row.repeated)
    return ", ".join(f"{count:,} x {text}" for text, count in counts.most_common())


def _junit(report: CaseReport, suite: str, seconds: float) -> str:
    """Return the results as JUnit XML: a test case for each case, which fails if one of its results differs."""
    from rubric_integrations.reporting.grades import JUnitReport

    junit = JUnitReport(suite)
    for name in dict.fromkeys(result.case for result in report.results):
        results = [result for result in report.results if result.case == name]
        wrong = [result for result in results if result.outcome != "as expected"]
        has_failed = any(result.outcome == "failed" for result in wrong)
        text = "\n".join(map(str, wrong))
        if not wrong:
            junit.add_test(name, f"{counted(len(results), 'expectation')} as expected")
        elif has_failed:
            junit.add_test(name, str(wrong[0]), "error", "not graded", text)
        else:
            junit.add_test(name, str(wrong[0]), "failure", "different", text)
    return junit.to_xml(seconds)


def _exit_code(report: CaseReport) -> Exit:
    if report.stopped:
        return Exit.JUDGE_FAILED if report.is_unusable else Exit.STOPPED
    if report.of_outcome("failed"):
        return Exit.JUDGE_FAILED
    return Exit.DONE if report.is_as_expected else Exit.NOT_PASSED
