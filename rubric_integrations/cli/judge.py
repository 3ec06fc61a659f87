"""The commands about a judge: `align`, `agree`, `calibrate`, `certify` and `probe`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

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
    print_meanings,
    print_warnings,
    refuse,
    sigterm_interrupts,
)
from rubric_integrations.cli.loading import (
    ClusterByOption,
    ClusterOption,
    JsonOption,
    LabelsPaths,
    LevelOption,
    RubricOption,
    RunPath,
    StrictOption,
    cluster_of,
    load_labels,
    load_people_labels,
    load_rubric,
    load_run,
    refuse_bad_input,
    require_different,
    require_level,
    require_matching,
)
from rubric_integrations.cli.options import (
    GraderOptions,
    JudgeOptions,
    LedgerAddress,
    LedgerOptions,
    Only,
    has_model,
    ledger_address,
    use_bundled_prices,
)
from rubric_integrations.cli.outputs import OutputFile, ledger_files

if TYPE_CHECKING:
    from rubric_integrations.judges.lm_judge import LMJudge
    from rubric_integrations.judges.protocol import ModelLike
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.files import RunFile
    from rubric_integrations.scoring.labels import LabelledJudgment
    from rubric_integrations.trust import (
        Agreement,
        Alignment,
        Calibration,
        Certificate,
        CriterionCertificates,
        CriterionDisagreements,
        PanelReport,
        Reliability,
    )
    from rubric_integrations.trust.matching import Cluster

# The judge options of commands that declare `--judge` themselves.
OneJudgeOptions = Annotated[JudgeOptions, Only(("api_base", "api_key", "judge_option"))]

_JSON_CHARACTERS = 500


class Sections(NamedTuple):
    """The optional sections of the output of `agree`.

    Attributes:
        panel: The figures of each judge of a panel and of the panel. None if a single judge graded the run.
        confidence: The reliability of the judge's confidence. None if no labelled judgment has a confidence.
        disagreements: The differences between the judge and the human labels on each criterion.
        warnings: Warnings about limitations of the figures, one sentence each.
    """

    panel: PanelReport | None
    confidence: Reliability | None
    disagreements: Sequence[CriterionDisagreements]
    warnings: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Return the sections as JSON values for `agree --json`, with shortened texts."""
        return {
            "panel": self.panel,
            "confidence": self.confidence,
            "disagreements": [_as_json(row) for row in self.disagreements],
        }

    def print(self) -> None:
        """Print the sections on stdout."""
        if self.panel is not None:
            _print_panel(self.panel)
        if self.confidence is not None:
            _print_confidence(self.confidence)
        differing = [row for row in self.disagreements if row.differ]
        if differing:
            _print_heading("Where they differ")
            print_lines([line for row in differing for line in row.summary().splitlines()])


def measure_sections(
    run: RunFile,
    labels: Sequence[LabelledJudgment],
    rubric: Rubric | None,
    level: float,
    examples: int,
    cluster: Cluster | None = None,
) -> Sections:
    """Compute the optional sections of the output of `agree` for a run.

    Args:
        run: The run.
        labels: The human labels of the run.
        rubric: The run's rubric. None if it is not available.
        level: The level of the intervals.
        examples: The largest number of disagreements for each criterion.
        cluster: How to group rows that depend on each other, as in `agreement`. None for independent rows.
    """
    from rubric_integrations.trust import find_disagreements, panel_report, reliability
    from rubric_integrations.trust.panels import is_voted

    entries = [entry for row in run.rows if row.report for entry in row.report.criteria]
    warnings: list[str] = []
    panel = confidence = None
    if any(map(is_voted, entries)):
        try:
            panel = panel_report(run, labels, rubric=rubric, cluster=cluster, level=level)
        except ValueError as error:
            warnings.append(f"nothing about the panel: {error}")
    if any(entry.confidence is not None for entry in entries):
        try:
            confidence = reliability(run, labels, cluster=cluster, level=level)
        except ValueError as error:
            warnings.append(f"nothing about the confidence: {error}")
    warnings += [*(panel.warnings if panel else ()), *(confidence.warnings if confidence else ())]
    disagreements = find_disagreements(run, labels, examples=examples, cluster=cluster, level=level)
    return Sections(panel, confidence, disagreements, warnings)


def _print_heading(text: str) -> None:
    out.print()
    out.print(plain(text), style="bold")


def _print_panel(panel: PanelReport) -> None:
    columns = ("judge", "votes", "failed", "accuracy", "kappa", "adds", "panel less judge")
    table = figures_table("Panel", columns, text=["judge"])
    for name, row in [*panel.judges.items(), ("the panel", panel.panel)]:
        table.add_row(
            plain(name), f"{row.votes:,}", f"{row.failed:,}", plain(row.accuracy.with_limits(2)),
            figure(row.mean_kappa, 2), plain(row.adds.with_limits(2, signed=True)),
            plain(row.panel_gain.with_limits(2, signed=True)),
        )  # fmt: skip
    out.print()
    out.print(table)
    # The lines about single judges are already in the table.
    lines = panel.summary().splitlines()[len(panel.judges) :]
    print_lines([line for line in lines if line not in panel.warnings and not line.startswith("panel: ")])


def _print_confidence(confidence: Reliability) -> None:
    """Print the accuracy at each confidence of the judge, and the calibration figures."""
    table = figures_table("Confidence", ("confidence", "n", "accuracy", "accuracy from there on", "coverage"))
    for row in confidence.bins:
        kept = next((point for point in confidence.selective if point.threshold == row.lowest), None)
        table.add_row(
            row.range, f"{row.accuracy.n:,}", plain(row.accuracy.with_limits(2)),
            plain(kept.accuracy.with_limits(2)) if kept else UNDEFINED, f"{kept.coverage:.0%}" if kept else UNDEFINED,
        )  # fmt: skip
    out.print()
    out.print(table)
    print_lines(
        [
            f"Brier score {confidence.brier.with_limits()}; calibration error {figure(confidence.calibration_error)}; "
            f"AUROC {figure(confidence.auroc)}; mean confidence less accuracy "
            f"{confidence.overconfidence.with_limits(signed=True)}."
        ]
    )


def _as_json(row: CriterionDisagreements) -> dict[str, Any]:
    from rubric_integrations.trust.disagreements import shorten

    fields = {name: getattr(row, name) for name in type(row).model_fields if name not in ("criterion", "examples")}
    examples = [
        {
            **{name: getattr(example, name) for name in type(example).model_fields if name != "submission"},
            "judge_reason": shorten(example.judge_reason, _JSON_CHARACTERS),
            "people_reasons": [shorten(reason, _JSON_CHARACTERS) for reason in example.people_reasons],
            "response": shorten(example.submission.response, _JSON_CHARACTERS),
        }
        for example in row.examples
    ]
    return {**fields, "requirement": row.criterion.full_requirement, "examples": examples}


DisagreementsOption = Annotated[
    int, typer.Option(min=0, help="The most disagreements to show for each criterion, the clearest first.")
]
_COLUMNS = ("criterion", "n", "coverage", "accuracy", "kappa", "AC1", "bias", "people's alpha")


def agree(
    run: RunPath,
    labels: LabelsPaths = None,
    rubric: RubricOption = None,
    cluster: ClusterOption = None,
    cluster_by: ClusterByOption = None,
    level: LevelOption = 0.95,
    disagreements: DisagreementsOption = 2,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how far a judge agrees with human labels, per criterion and in total, and show where they differ.

    The bias is the judge's mean minus the mean of the human labels. Figures are in [-1, 1]. A dash is an undefined
    figure. For a panel, the output shows how much each judge improves the panel's accuracy. For a judge that states its
    confidence, the output shows the accuracy at each confidence.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.trust import agreement

    require_level(level)
    require_different([run, *(labels or ())], "the run and the human labels")
    with refuse_bad_input(run, *(labels or ())):
        loaded, run_rubric = load_run(run), load_rubric(rubric)
        answers = load_people_labels(labels or (), loaded, run_rubric, strict=strict)
        groups = cluster_of(cluster, cluster_by, loaded)
        result = agreement(loaded, answers, rubric=run_rubric, cluster=groups, level=level)
        sections = measure_sections(loaded, answers, run_rubric, level, disagreements, groups)
    require_matching(answers, result.labels, labels or [run], run)
    if result.unmatched:
        print_warnings([f"{result.unmatched:,} of {len(answers):,} labels belong to no judgment of {run}"])
    print_warnings(list(dict.fromkeys([*result.warnings, *sections.warnings])))
    if as_json:
        print_json({**{name: getattr(result, name) for name in type(result).model_fields}, **sections.as_json()})
    else:
        _print_agreement(result, level)
        sections.print()


def _print_agreement(result: Agreement, level: float) -> None:
    """Print the agreement with human labels: a table of the criteria, and the totals."""
    table = figures_table(f"Agreement with human labels [{percent(level)} intervals]", _COLUMNS, text=["criterion"])
    for name, row in result.criteria.items():
        coverage = UNDEFINED if row.coverage is None else f"{row.coverage:.0%}"
        table.add_row(
            plain(name), f"{row.n:,}", coverage, plain(row.accuracy.with_limits(2)), plain(row.kappa.with_limits(2)),
            figure(row.ac1, 2), plain(row.bias.with_limits(2, signed=True)), figure(row.people_alpha, 2),
        )  # fmt: skip
    out.print(table)
    print_meanings("coverage", "kappa", "AC1", "bias")
    scores = result.scores
    raters = f" by {', '.join(result.raters)}" if result.raters else ""
    lines = [
        f"All criteria: accuracy {result.accuracy.with_limits()} over {result.accuracy.n:,} submissions, "
        f"{figure(result.micro_accuracy)} over all judgments; kappa {result.kappa.with_limits()} over all, and "
        f"{figure(result.mean_kappa)} on average."
    ]
    if len(result.criteria) > 1:
        lines.append(f"{result.kappa_text}.")
    if scores.values is not None:
        lines.append(
            f"Scores of {scores.n:,} submissions: the judge minus the human labels "
            f"{scores.bias.with_limits(signed=True)}; mean error {figure(scores.values.mae)}, distance of the "
            f"distributions {figure(scores.values.emd)}, correlation {figure(scores.values.pearson)}."
        )
    print_lines([*lines, f"{counted(result.labels, 'label')}{raters}, {result.blind:,} of them blind."])


@dataclass(frozen=True)
class AlignmentOptions:
    """The options of `align` for the search, the test of the aligned judge, and the output."""

    out_file: Annotated[Path, typer.Option("--out", help="Write the aligned judge to this .json file, if it is kept.")]
    optimizer: Annotated[
        Literal["gepa", "miprov2", "bootstrap"],
        typer.Option(help="Rewrite the instructions, search for instructions and examples, or collect examples."),
    ] = "gepa"
    alpha: Annotated[
        float, typer.Option(help="The probability of keeping a judge that is not better, over all attempts.")
    ] = 0.05
    seed: Annotated[int, typer.Option(help="The seed of the split of the labels and of the search.")] = 0
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False
    write_unchanged: Annotated[
        bool,
        typer.Option("--write-unchanged", help="If the aligned judge is not kept, write the original judge."),
    ] = False


def align(
    run: RunPath,
    judge: Annotated[
        str,
        typer.Option(
            help="The model to align, such as openai/gpt-5-mini, or the file of an aligned judge.",
            rich_help_panel=JudgeOptions.panel,
        ),
    ],
    judge_options: OneJudgeOptions,
    options: AlignmentOptions,
    ledger_options: Annotated[
        LedgerOptions,
        Only(
            ("max_cost", "max_calls"),
            {
                "ledger": "Store each answer in this file, or in the PostgreSQL database of this URL: a stored one is "
                "not requested again. By default a file next to --out."
            },
        ),
    ],
    grader: Annotated[GraderOptions, Only(texts={"max_concurrency": "Maximum number of concurrent calls."})],
    labels: LabelsPaths = None,
    reflection_model: Annotated[
        str | None,
        typer.Option(
            help="The model that proposes instructions, on the same server; by default that of --judge.",
            rich_help_panel=JudgeOptions.panel,
        ),
    ] = None,
    rubric: RubricOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Align a judge with human labels, and write it to a file if it is significantly better on other labels.

    A part of the labels is kept back for this test.

    You can use the file wherever you name a judge: `grade RUBRIC RESPONSES --judge judge.json`. Attempts on the same
    labels are counted in a file next to the first file of labels, or next to the run (for labels.jsonl, labels.lock).
    With each attempt, a larger gain is needed.

    Exit codes: 0 a judge is written; 1 no judge is written, because the aligned judge is not significantly better;
    2 bad usage or bad input; 3 the judge cannot be used; 4 stopped by --max-cost or --max-calls; 130 stopped by Ctrl-C
    or SIGTERM.
    """
    from rubric_integrations.runs.ledger.addresses import address_text
    from rubric_integrations.trust import AlignmentError
    from rubric_integrations.trust import align as align_judge

    out_file, ledger = options.out_file, ledger_options.ledger
    store = ledger_address(ledger) if ledger else out_file.with_suffix(".sqlite")
    label_files = labels or []
    attempts = (label_files[0] if label_files else run).with_suffix(".lock")
    file = _open_output(
        out_file, [run, *label_files, rubric, attempts, Path(judge)], store, overwrite=options.overwrite
    )
    require_different([run, *label_files], "the run and the human labels")
    with refuse_bad_input(run, *label_files):
        model = _make_judge(judge, judge_options)
        reflection = None if reflection_model is None else model_on_same_server(reflection_model, judge_options)
        loaded, run_rubric = load_run(run), load_rubric(rubric)
        answers = load_people_labels(label_files, loaded, run_rubric, strict=strict)
    try:
        with ExitStack() as stack:
            stack.enter_context(sigterm_interrupts())
            opened = stack.enter_context(file)
            alignment = align_judge(
                model, answers, options.optimizer, reflection_model=reflection, alpha=options.alpha,
                seed=options.seed, max_cost=ledger_options.max_cost, max_calls=ledger_options.max_calls, ledger=store,
                attempts=attempts, max_concurrency=grader.max_concurrency, progress=_print_progress,
            )  # fmt: skip
            is_written = alignment.kept or options.write_unchanged
            _print_alignment(alignment, out_file if is_written else None, as_json=as_json)
            if not is_written:
                raise typer.Exit(Exit.NOT_PASSED)
            opened.write(alignment.judge.file_text())
    except AlignmentError as error:
        err.print(plain(str(error)), style="red", soft_wrap=True)
        raise typer.Exit(Exit.STOPPED if error.limit_reached else Exit.JUDGE_FAILED) from None
    except (ValueError, TypeError, OSError, ImportError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        line = (
            f"Stopped. Nothing is written to {out_file}; the answers so far are in {address_text(store)}, and are "
            "not requested again by the same command."
        )
        err.print(plain(line), soft_wrap=True)
        raise typer.Exit(Exit.INTERRUPTED) from None
    raise typer.Exit(Exit.DONE if alignment.kept else Exit.NOT_PASSED)


def _open_output(
    out_file: Path, inputs: list[Path | None], ledger: LedgerAddress | None, *, overwrite: bool
) -> OutputFile:
    if out_file.suffix.lower() != ".json":
        refuse(f"`--out` {out_file} must end with .json: `--judge` takes any other name for a model")
    files = [path for path in inputs if path is not None]
    return OutputFile(
        out_file, option="--out", overwrite=overwrite, inputs=[*files, *(ledger_files(ledger) if ledger else ())]
    )


def _make_judge(judge: str, options: JudgeOptions) -> LMJudge:
    if not has_model(judge):
        raise ValueError(f"`--judge` {judge!r} has no model, and nothing to align: name a model")
    from rubric_integrations.judges.decisions import is_decision_model

    if is_decision_model(judge):
        raise ValueError(
            f"`--judge` {judge!r} is a decision model, which has no instructions to align: name a language model"
        )
    return cast("LMJudge", options.make_judge(judge))


def model_on_same_server(name: str, options: JudgeOptions) -> ModelLike:
    """Return a second model of a command, with the server and the key of its judge."""
    from rubric_integrations.judges.models.names import ModelSettings, lm_from_name

    use_bundled_prices(options.api_base)
    return lm_from_name(name, ModelSettings(api_base=options.api_base, api_key=options.api_key))


def _print_progress(text: str) -> None:
    err.print(plain(text), soft_wrap=True)


def _print_alignment(alignment: Alignment, written: Path | None, *, as_json: bool) -> None:
    print_warnings(alignment.warnings)
    if as_json:
        names = (
            "kept", "gain", "corrected_gain", "before", "after", "dev_before", "dev_after", "attempts", "spend",
            "shown", "warnings",
        )  # fmt: skip
        figures = {name: getattr(alignment, name) for name in names}
        print_json({**figures, "judge": None if written is None else str(written)})
        return
    lines = alignment.summary().splitlines()
    end = "nothing is written" if written is None else f"written to {written}"
    print_lines([*(line for line in lines if line not in alignment.warnings), f"judge: {end}"])


def calibrate(
    run: RunPath,
    labels: LabelsPaths = None,
    rubric: RubricOption = None,
    cluster: ClusterOption = None,
    cluster_by: ClusterByOption = None,
    level: LevelOption = 0.95,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Correct a run's mean score, and the rates of its criteria, with human labels of a part of the run.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.trust import calibrate as calibrate_run

    require_level(level)
    require_different([run, *(labels or ())], "the run and the human labels")
    with refuse_bad_input(run, *(labels or ())):
        loaded, run_rubric = load_run(run), load_rubric(rubric)
        answers = load_people_labels(labels or (), loaded, run_rubric, strict=strict)
        groups = cluster_of(cluster, cluster_by, loaded)
        result = calibrate_run(loaded, answers, rubric=run_rubric, cluster=groups, level=level)
    print_warnings(result.warnings)
    if as_json:
        print_json(result)
    else:
        _print_calibration(result, level)


def _print_calibration(result: Calibration, level: float) -> None:
    print_lines(result.score_lines)
    columns = ("criterion", "answer", "judge", "corrected", "labels")
    table = figures_table(f"Rates [{percent(level)} intervals]", columns, text=["criterion", "answer"])
    for name, row in result.criteria.items():
        for answer, rate, judged in row.rates:
            table.add_row(plain(name), plain(answer), figure(judged), plain(rate.with_limits()), f"{rate.n:,}")
    out.print(table)
    print_lines(result.abstention_lines)


def certify(
    cheap: Annotated[
        Path, typer.Argument(help="The rows, graded by the cheap judge alone: a file that `grade --out` wrote.")
    ],
    truth: Annotated[
        Path,
        typer.Argument(
            help="Human labels of a random part of the rows; or the run of the expensive judge on the same rows, or on "
            "a random sample of them."
        ),
    ],
    alpha: Annotated[float, typer.Option(help="The highest rate of wrong answers among those that are kept.")] = 0.1,
    delta: Annotated[float, typer.Option(help="The probability that the rate is higher than --alpha.")] = 0.1,
    by: Annotated[
        Literal["criterion"] | None,
        typer.Option(help="Certify MET and UNMET of each criterion, each with half of --delta."),
    ] = None,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="With --by criterion: write the thresholds to this .json file, for `--judge`."),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(help="With --out: the name of the cheap judge's model. By default, the name in its run."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False,
    cluster: ClusterOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find the lowest confidence at which a cheap judge can be trusted, for `grade --escalate-below`.

    Exit codes: 0 certified; 1 nothing can be certified; 2 bad usage or bad input.
    """
    from rubric_integrations.runs.files import is_run_file
    from rubric_integrations.trust import certify as certify_run

    require_different([cheap, truth], "the run of the cheap judge, and labels or the run of the expensive judge")
    if by is None and (out_file or judge):
        refuse("`--out` and `--judge` need `--by criterion`: one threshold is a number for `--escalate-below`")
    file = _open_output(out_file, [cheap, truth], None, overwrite=overwrite) if out_file else None
    with refuse_bad_input(cheap, truth):
        run = load_run(cheap)
        answers = load_run(truth) if is_run_file(truth) else load_labels(truth, run, None, strict=strict)
        if by is not None:
            certificates = certify_run(run, answers, alpha=alpha, delta=delta, cluster=cluster, by=by)
            _write_thresholds(certificates, judge, file, as_json=as_json)
            return
        certificate = certify_run(run, answers, alpha=alpha, delta=delta, cluster=cluster)
    print_warnings(certificate.warnings)
    if as_json:
        print_json(certificate)
    else:
        _print_certificate(certificate)
    if certificate.threshold is None:
        raise typer.Exit(Exit.NOT_PASSED)


def _write_thresholds(
    certificates: CriterionCertificates, judge: str | None, file: OutputFile | None, *, as_json: bool
) -> None:
    """Print the certificates of each criterion. If something is certified, write the thresholds to a file."""
    thresholds = certificates.thresholds(judge)
    is_certified = bool(certificates.certified) or certificates.pooled.threshold is not None
    if file is not None and is_certified:
        with file as opened:
            opened.write(thresholds.file_text())
    print_warnings(certificates.warnings)
    if as_json:
        print_json(certificates)
    else:
        columns = ("criterion", "verdict", "from", "labelled", "wrong", "at most", "labels missing")
        table = figures_table("Thresholds of each criterion", columns, text=["criterion", "verdict"])
        for row in certificates.table:
            table.add_row(*map(plain, map(str, row)))
        out.print(table)
        end = [] if file is None else [f"thresholds: {f'written to {file.path}' if is_certified else 'not written'}"]
        print_lines([certificates.headline, *end])
    if not is_certified:
        raise typer.Exit(Exit.NOT_PASSED)


def _print_certificate(certificate: Certificate) -> None:
    columns = ("confidence", "kept", "labelled", "wrong", "at most", "holds")
    table = figures_table("Thresholds, the highest first", columns, text=["holds"])
    for step in certificate.steps:
        table.add_row(
            repr(step.threshold), f"{step.share:.0%}", f"{step.kept:,}", f"{step.errors:,}", figure(step.bound),
            "yes" if step.holds else "no",
        )  # fmt: skip
    out.print(table)
    print_lines([certificate.headline])


def probe(
    judge: Annotated[
        str,
        typer.Option(
            help="The model to probe, such as openai/gpt-5-mini, or the file of an aligned judge.",
            rich_help_panel=JudgeOptions.panel,
        ),
    ],
    judge_options: OneJudgeOptions,
    grader: Annotated[GraderOptions, Only(("max_concurrency",))],
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the full report to this file (JSON).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False,
) -> None:
    """Measure how often attacks in a submission change a judge's verdict.

    Structural attacks forge parts of the prompt or of the reply. They are checked without a model and must all fail.
    Behavioural attacks try to persuade the judge. The share of successful ones is reported.

    Exit codes: 0 done; 1 a structural attack succeeded; 2 bad usage; 3 the judge answered no question.
    """
    from rubric_integrations.redteam.trials import run_probe

    inputs = replace(judge_options, judge=[judge]).judge_files
    report_file = OutputFile(out_file, option="--out", overwrite=overwrite, inputs=inputs) if out_file else None
    try:
        with ExitStack() as stack:
            # Opened before the first call, because the file may not be writable.
            file = stack.enter_context(report_file) if report_file else None
            report = run_probe(judge_options.make_judge(judge), grader.max_concurrency, out)
            if file:
                file.write(report.model_dump_json(indent=2) + "\n")
    except (ValueError, TypeError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    if report.baseline_failures == report.baseline:
        raise typer.Exit(Exit.JUDGE_FAILED)
    raise typer.Exit(Exit.NOT_PASSED if report.breaches else Exit.DONE)
