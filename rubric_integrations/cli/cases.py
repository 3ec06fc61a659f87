"""The command `test`: runs the test cases of a rubric, mutates them, and measures how far it separates answers."""

from __future__ import annotations

import functools
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
    from rubric_integrations.reporting.grades import JUnitReport
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.trust.answer_separation import SeparationReport
    from rubric_integrations.trust.cases import CaseReport, CaseResult
    from rubric_integrations.trust.criterion_probe import MutationReport

_STYLES = {"as expected": "green", "different": "red", "failed": "bold magenta"}


@dataclass(frozen=True)
class CaseOptions:
    """The options of `test` for the cases and the output."""

    cases: Annotated[
        Path | None,
        typer.Option(help="A file of further cases. By default NAME.cases.yaml next to the rubric, if it exists."),
    ] = None
    repeat: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How often each case is graded: with 2 or more, the answers that differ are counted. Default: 1, or 5 "
            "with --mutations.",
        ),
    ] = None
    mutations: Annotated[
        bool,
        typer.Option(
            "--mutations",
            help="Also grade changed cases: whether each criterion reacts to its evidence, and not to length, tone, "
            "format or the claim that the response is correct.",
        ),
    ] = False
    mutants: Annotated[
        int, typer.Option(min=1, help="The most mutants of each kind, for each criterion, with --mutations.")
    ] = 10
    seed: Annotated[int, typer.Option(help="The number by which mutants are selected.")] = 0
    pairs: Annotated[
        Path | None,
        typer.Option(help="JSON Lines with a better and a worse answer: whether the rubric orders them rightly."),
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(
            help="JSON Lines with a response and a label (good or bad, or 0 to 1), or human labels of all criteria: "
            "whether the rubric separates good from bad."
        ),
    ] = None
    junit: Annotated[
        Path | None, typer.Option(help="Write the results as JUnit XML, one test for each case, to this file.")
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --junit if it exists.")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of calls and their highest cost. Call no model.")
    ] = False
    modules: ModulesOption = None
    as_json: JsonOption = False

    @property
    def repetitions(self) -> int:
        """How often each case is graded."""
        return self.repeat or (_REPEAT_OF_MUTATIONS if self.mutations else 1)


# The judge's own flips, with which those of its mutants are compared.
_REPEAT_OF_MUTATIONS = 5


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

    With --repeat, a flip is a repeated answer that differs from the first answer about the same case. With --mutations,
    a flip is an answer that is no longer the expected one. With --pairs or --labels, the rubric needs no cases.

    Exit codes: 0 all as expected; 1 a result differs, or a criterion has a fault (--mutations); 2 bad usage or bad
    input; 3 a judge failed on a case, a mutant or an answer, or cannot be used; 4 stopped by --max-cost or --max-calls;
    130 stopped by Ctrl-C or SIGTERM.
    """
    from rubric_integrations.formats.registry import read_with_cases
    from rubric_integrations.judges.store import StoreError
    from rubric_integrations.runs.ledger.addresses import address_text
    from rubric_integrations.trust.answer_separation import read_answers
    from rubric_integrations.trust.cases import check_grader

    ledger = ledger_address(ledger_options.ledger) if ledger_options.ledger else None
    files = [rubric, *(path for path in (options.cases, options.pairs, options.labels) if path)]
    inputs = [*files, *ledger_files(ledger), *judges.judge_files]
    junit = options.junit and OutputFile(
        options.junit, option="--junit", overwrite=options.overwrite, inputs=inputs, replaces=JUNIT_FILE
    )
    import_modules(options.modules or ())
    try:
        with refuse_bad_input(*files):
            tested = _require_cases(read_with_cases(rubric, options.cases), rubric, options)
            _require_judge(judges, tested)
            grader = replace(grader_options, on_failure="abstain").make_grader(members := judges.make_judges())
            check_grader(tested, grader)
            if options.pairs or options.labels:  # an error before anything is paid for
                read_answers(tested.without_cases(), options.pairs, options.labels)
            if options.dry_run:
                _print_plan(tested, grader, options, ledger, ledger_options)
                return
            _print_judges(judges, members, tested)
            start = time.monotonic()
            with sigterm_interrupts(), junit or nullcontext() as junit_file:
                results = _run(tested, grader, options, ledger, ledger_options, grader_options.max_concurrency)
                if junit_file:
                    junit_file.write(_junit(results, tested.name or rubric.stem, time.monotonic() - start))
    except (StoreError, TypeError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        stored = f" The answers so far are in {address_text(ledger)}: repeat the command to go on." if ledger else ""
        err.print(plain(f"Stopped.{stored}"), soft_wrap=True)
        raise typer.Exit(Exit.INTERRUPTED) from None
    _print_results(results, as_json=options.as_json)
    raise typer.Exit(_exit_code(results))


class _Results(NamedTuple):
    """The reports of the command. A report that was not requested is None."""

    cases: CaseReport | None
    mutations: MutationReport | None
    separation: SeparationReport | None


def _require_cases(rubric: Rubric, path: Path, options: CaseOptions) -> Rubric:
    """End the command with an error if the rubric has no cases, and if nothing else is tested."""
    from rubric_integrations.trust.cases import read_tested

    has_answers = options.pairs is not None or options.labels is not None
    return rubric if has_answers and not options.mutations and not rubric.cases else read_tested(rubric, str(path))


def _run(
    rubric: Rubric,
    grader: Grader,
    options: CaseOptions,
    ledger: LedgerAddress | None,
    limits: LedgerOptions,
    max_concurrency: int,
) -> _Results:
    """Grade the cases, their mutants, and the answers of --pairs or --labels, within common limits."""
    from rubric_integrations.scoring.judgment import NO_SPEND
    from rubric_integrations.trust.answer_separation import check_separation
    from rubric_integrations.trust.cases import run_cases
    from rubric_integrations.trust.criterion_probe import probe_criteria

    cases, mutations, separation = None, None, None
    spent = NO_SPEND
    if rubric.cases:
        cases = run_cases(
            rubric, grader, repeat=options.repetitions, ledger=ledger, max_cost=limits.max_cost,
            max_calls=limits.max_calls, prices=limits.prices, progress=True,
            max_concurrency=max_concurrency,
        )  # fmt: skip
        spent = cases.spend
    if cases and options.mutations:
        mutations = probe_criteria(
            rubric, grader, cases=cases, mutants=options.mutants, seed=options.seed, ledger=ledger,
            max_cost=limits.max_cost, max_calls=limits.max_calls, prices=limits.prices, progress=True,
            max_concurrency=max_concurrency,
        )  # fmt: skip
        spent = mutations.spend
    is_stopped = any(report.stopped for report in (cases, mutations) if report)
    if (options.pairs or options.labels) and not is_stopped:
        separation = check_separation(
            rubric, grader, pairs=options.pairs, labels=options.labels, ledger=ledger,
            max_cost=None if limits.max_cost is None else max(0.0, limits.max_cost - (spent.cost or 0.0)),
            max_calls=None if limits.max_calls is None else max(0, limits.max_calls - spent.calls),
            prices=limits.prices, progress=True,
            max_concurrency=max_concurrency,
        )  # fmt: skip
        if separation.stopped and not separation.is_unusable and spent.calls:
            stopped = f"{separation.stopped}; the cases had used the rest"
            separation = separation.model_copy(update={"stopped": stopped})
    return _Results(cases, mutations, separation)


def _print_results(results: _Results, *, as_json: bool) -> None:
    """Print all reports, as tables or as one JSON object."""
    cases, mutations, separation = results
    print_warnings(cases.warnings if cases else ())
    if as_json:
        others = {"mutations": mutations, "separation": separation}
        print_json({
            **(_to_json(cases) if cases else {}),
            **{name: _to_json(report) for name, report in others.items() if report},
        })  # fmt: skip
        return
    if cases:
        _print_report(cases)
    if mutations and not (cases and cases.stopped):
        _print_mutations(mutations)
    if separation:
        _print_separation(separation)


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
    rubric: Rubric, grader: Grader, options: CaseOptions, ledger: LedgerAddress | None, limits: LedgerOptions
) -> None:
    """Print the number of calls that the command would make, and their highest cost."""
    from rubric_integrations.runs.dry_run import PlannedCalls, count_calls
    from rubric_integrations.trust.answer_separation import read_answers
    from rubric_integrations.trust.criterion_probe import MutationPlan

    graded = rubric.without_cases()
    rows = {"cases": ([(case.submission, graded) for case in rubric.cases], options.repetitions)}
    if options.mutations:
        plan = MutationPlan(rubric, grader, options.mutants, options.seed)
        rows["mutants"] = ([(row.submission, row.rubric) for row in plan.rows(plan.select())], 1)
    if options.pairs or options.labels:
        rows["answers"] = ([(each, graded) for each in read_answers(graded, options.pairs, options.labels).answers], 1)
    existing = ledger if ledger_exists(ledger) else None
    planned = [
        count_calls(each, grader, repeats=repeats, ledger=existing, prices=limits.prices)
        for each, repeats in rows.values()
        if each
    ]
    total = functools.reduce(PlannedCalls.joined, planned)
    counts = {name: len(each) for name, (each, _) in rows.items()}
    if options.as_json:
        print_json({**counts, "repeat": options.repetitions, **total._asdict()})
    else:
        times = f", {options.repetitions:,} times each" if options.repetitions > 1 else ""
        texts = [f"{counted(counts['cases'], 'case')}{times}"] if counts["cases"] else []
        texts += [counted(counts[name], name.removesuffix("s")) for name in counts if name != "cases"]
        print_lines([f"{', '.join(texts)}: {total.summary()}. Nothing was requested."])


def _print_judges(judges: JudgeOptions, members: list[Judge], rubric: Rubric) -> None:
    from rubric_integrations.judges.offline import WHAT_IT_IS

    if judges.judge:
        err.print(plain(describe_requests(members) if judges.uses_model else WHAT_IT_IS), soft_wrap=True)
    if warning := caution_of(members, rubric.criteria):
        err.print(plain(warning), style="yellow", soft_wrap=True)


def _print_report(report: CaseReport) -> None:
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


def _print_mutations(report: MutationReport) -> None:
    """Print the flips of the mutants of each criterion, the faults, and how much the figures prove."""
    from rubric_integrations.trust.criterion_probe import COLUMNS

    table = figures_table("Mutations (flips/mutants)", COLUMNS, text=["criterion", "faults"])
    for cells, row in zip(report.table(), report.criteria.values(), strict=True):
        table.add_row(*map(plain, cells), style="red" if row.faults else None)
    out.print(table)
    lines: list[str] = []
    for name, row in report.criteria.items():
        lines += row.findings
        lines += [f"`{name}`: {text}" for text in row.untested]
        if row.left_out:
            lines.append(f"`{name}`: no mutants of {', '.join(row.left_out)}, which the judge answers otherwise")
        if row.failed:
            lines.append(f"`{name}`: the judge failed on {counted(row.failed, 'mutant')}: left out of the figures")
    print_lines([*lines, report.proof, f"{report.headline} {report.spend.summary()}, with the unchanged cases."])
    _print_stopped(report.stopped)


def _print_separation(report: SeparationReport) -> None:
    """Print how far the rubric separates answers, next to length alone, and the answers to each criterion."""
    from rubric_integrations.trust.answer_separation import USE_COLUMNS

    separation = report.separation
    table = figures_table("Separation [95% intervals]", ["score", "pairs in the right order"], text=["score"])
    table.add_row("rubric", plain(separation.rubric.with_limits(2)))
    table.add_row("number of words alone", plain(separation.length.with_limits(2)))
    table.add_row("always the most frequent answer", "0.50")
    table.add_row("rubric minus words alone", plain(separation.over_length.with_limits(2, signed=True)))
    out.print(table)
    table = figures_table("Criteria on these answers", USE_COLUMNS, text=["criterion", "remarks"])
    for cells in report.table():
        table.add_row(*map(plain, cells))
    out.print(table)
    print_lines([*report.remarks, f"{report.headline} {counted(report.answers, 'answer')}, {report.spend.summary()}."])
    _print_stopped(report.stopped)


def _print_stopped(reason: str | None) -> None:
    if reason:
        err.print(plain(f"Stopped: {reason}."), style="red", soft_wrap=True)


def _add_mutations(junit: JUnitReport, report: MutationReport) -> None:
    """Add a test for each criterion to a JUnit report, which fails if the criterion has a fault.

    It has an error if the judge failed on a mutant. If not all mutants were graded, there is one more error.
    """
    for name, row in report.criteria.items():
        if row.failed:
            message = f"the judge failed on {counted(row.failed, 'mutant')}"
            junit.add_test(f"mutations: {name}", message, "error", "not graded", "\n".join([message, *row.findings]))
        elif row.faults:
            details, kinds = "\n".join(row.findings), ", ".join(row.faults)
            junit.add_test(f"mutations: {name}", row.findings[0], "failure", kinds, details)
        elif any(each.criterion == name and each.flipped is not None for each in report.mutants):
            junit.add_test(f"mutations: {name}", "no fault")
    if report.stopped:
        junit.add_test("mutations", report.stopped, "error", "not graded", report.headline)


def _add_separation(junit: JUnitReport, report: SeparationReport) -> None:
    """Add a test for the separation of answers to a JUnit report, which has an error if the judge failed on one."""
    if report.failed:
        message = report.stopped or f"the judge failed on {counted(report.failed, 'answer')}"
        junit.add_test("separation", message, "error", "not graded", report.headline)
    else:
        junit.add_test("separation", report.headline)


def _to_json(report: CaseReport | MutationReport | SeparationReport) -> dict[str, Any]:
    """Return the fields of a report, with its headline."""
    fields = {name: getattr(report, name) for name in type(report).model_fields}
    return {**fields, "headline": report.headline}


def _counts(row: CaseResult) -> str:
    """Return how often each result was obtained. Empty if all are equal."""
    if len(set(row.repeated)) == 1:
        return ""
    counts = Counter("no answer" if text is None else text for text in row.repeated)
    return ", ".join(f"{count:,} x {text}" for text, count in counts.most_common())


def _junit(all_results: _Results, suite: str, seconds: float) -> str:
    """Return the results as JUnit XML: a test case for each case, which fails if one of its results differs.

    Each criterion with mutants is a test case, too, and so is the separation of answers, which has no failures.
    """
    from rubric_integrations.reporting.grades import JUnitReport

    junit, rows = JUnitReport(suite), all_results.cases.results if all_results.cases else ()
    for name in dict.fromkeys(result.case for result in rows):
        results = [result for result in rows if result.case == name]
        wrong = [result for result in results if result.outcome != "as expected"]
        failed = [result for result in results if result.lost]
        text = "\n".join(map(str, wrong))
        if failed and failed[0].outcome != "failed":
            message = f"{failed[0]} ({counted(failed[0].lost, 'repetition')} without an answer)"
            junit.add_test(name, message, "error", "not graded", text or message)
        elif not wrong:
            junit.add_test(name, f"{counted(len(results), 'expectation')} as expected")
        elif failed:
            junit.add_test(name, str(failed[0]), "error", "not graded", text)
        else:
            junit.add_test(name, str(wrong[0]), "failure", "different", text)
    if all_results.mutations:
        _add_mutations(junit, all_results.mutations)
    if all_results.separation:
        _add_separation(junit, all_results.separation)
    return junit.to_xml(seconds)


def _judge_failed(results: _Results) -> bool:
    cases, mutations, separation = results
    return bool((cases and cases.lost) or (mutations and mutations.failed)) or (
        separation is not None and separation.failed > 0
    )


def _exit_code(results: _Results) -> Exit:
    cases, mutations = results.cases, results.mutations
    if stopped := [report for report in results if report and report.stopped]:
        return Exit.JUDGE_FAILED if stopped[0].is_unusable else Exit.STOPPED
    if _judge_failed(results):
        return Exit.JUDGE_FAILED
    has_fault = bool(mutations) and any(row.faults for row in mutations.criteria.values())
    return Exit.NOT_PASSED if has_fault or (cases and not cases.is_as_expected) else Exit.DONE
