"""The command `draft`: drafts a rubric from pairs of answers, feedback or a good answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted
from rubric_integrations.cli.console import (
    MAX_RANKED,
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
from rubric_integrations.cli.judge import OneJudgeOptions, model_on_same_server
from rubric_integrations.cli.loading import JsonOption, refuse_bad_input, require_different
from rubric_integrations.cli.options import (
    GraderOptions,
    JudgeOptions,
    LedgerOptions,
    Only,
    describe_requests,
    has_model,
    ledger_address,
)
from rubric_integrations.cli.outputs import OutputFile, ledger_files

if TYPE_CHECKING:
    from rubric_integrations.trust import CandidateTest, RubricDraft

_TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class DraftOptions:
    """The options of `draft` for the data, the base, the split and the output."""

    out_file: Annotated[Path, typer.Option("--out", help="Write the rubric to this .yaml file.")]
    pairs: Annotated[
        Path | None,
        typer.Option(help="Pairs of answers (JSON Lines): query, better (or chosen), worse (or rejected), reason."),
    ] = None
    feedback: Annotated[
        Path | None,
        typer.Option(
            help="Answers with feedback of people (JSON Lines): query, response, label (good, bad, or 0 to 1), reason."
        ),
    ] = None
    example: Annotated[
        Path | None, typer.Option(help="A good answer: a text file, or a file of rows with `response` and `query`.")
    ] = None
    base: Annotated[
        Path | None, typer.Option(help="A rubric in YAML. Its text is kept, and new criteria are appended to it.")
    ] = None
    seed: Annotated[int, typer.Option(help="The seed of the split into three parts.")] = 0
    max_candidates: Annotated[int, typer.Option(min=1, help="The most proposals that the judge reads.")] = 12
    max_rows: Annotated[int, typer.Option(min=1, help="The most pairs or labelled answers that are used.")] = 300
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out if it exists.")] = False


def draft(
    judge: Annotated[
        str,
        typer.Option(
            help="The model that answers the criteria, such as openai/gpt-5-mini, or the file of an aligned judge.",
            rich_help_panel=JudgeOptions.panel,
        ),
    ],
    proposer: Annotated[
        str,
        typer.Option(
            help="The model that proposes criteria, on the same server as --judge.", rich_help_panel=JudgeOptions.panel
        ),
    ],
    judge_options: OneJudgeOptions,
    options: DraftOptions,
    ledger_options: Annotated[
        LedgerOptions,
        Only(
            ("max_cost", "price"),
            {
                "ledger": "Store each judgment in this file: a stored one is not requested again. By default a file "
                "next to --out. The proposals are stored next to it (NAME.replies.jsonl)."
            },
        ),
    ],
    grader: Annotated[GraderOptions, Only(texts={"max_concurrency": "Maximum number of concurrent calls."})],
    as_json: JsonOption = False,
) -> None:
    """Draft a rubric from data: a model proposes criteria, and those that hold on other data are kept.

    The data are split into three parts: to propose criteria, to prune them, and to report how far the rubric separates
    better from worse answers. Each criterion has a comment with the quote that it comes from. Read and edit the draft:
    models propose worse criteria than people. A command that was stopped goes on with the same proposals.

    Exit codes: 0 a rubric is written; 1 no criterion is kept, and nothing is written; 2 bad usage or bad input; 3 a
    model cannot be used; 4 stopped by --max-cost; 130 stopped by Ctrl-C or SIGTERM.
    """
    from rubric_integrations.judges.store import StoreError
    from rubric_integrations.trust import DraftError, draft_rubric

    out_file = options.out_file
    ledger = ledger_address(ledger_options.ledger) if ledger_options.ledger else out_file.with_suffix(".sqlite")
    replies = (ledger if isinstance(ledger, Path) else out_file).with_suffix(".replies.jsonl")
    cases_file = out_file.with_suffix(".cases.yaml")
    inputs = [path for path in (options.pairs, options.feedback, options.example, options.base) if path is not None]
    if out_file.suffix.lower() not in (".yaml", ".yml"):
        refuse(f"`--out` {out_file} must end with .yaml: the draft is written with comments, which JSON does not have")
    require_different(inputs, "the data and the rubric")
    written = [*inputs, *ledger_files(ledger), replies]
    file = OutputFile(out_file, option="--out", overwrite=options.overwrite, inputs=written, may_be_rubric=True)
    # The text of a base is not changed, and gets no `cases`.
    beside = None
    if options.base:
        beside = OutputFile(cases_file, option="--out", overwrite=options.overwrite, inputs=written)
    try:
        with ExitStack() as stack:
            stack.enter_context(sigterm_interrupts())
            opened = stack.enter_context(file)
            with refuse_bad_input(*inputs):
                own_judge = judge_options.make_judge(judge)
                if has_model(judge):
                    err.print(plain(describe_requests([own_judge])), soft_wrap=True)
                result = draft_rubric(
                    pairs=options.pairs, feedback=options.feedback, example=_read_example(options.example),
                    model=model_on_same_server(proposer, judge_options), judge=own_judge, base=options.base,
                    seed=options.seed, max_cost=ledger_options.max_cost, prices=ledger_options.prices, ledger=ledger,
                    replies=replies, max_candidates=options.max_candidates, max_rows=options.max_rows,
                    max_concurrency=grader.max_concurrency, progress=True,
                )  # fmt: skip
            if result.criteria:
                opened.write(result.to_yaml())
            if beside is not None and result.cases:
                stack.enter_context(beside).write(result.cases_yaml())
            print_warnings(result.warnings)
            _print_draft(result, out_file if result.criteria else None, as_json=as_json)
            if not result.criteria:
                raise typer.Exit(Exit.NOT_PASSED)
    except DraftError as error:
        err.print(plain(str(error)), style="red", soft_wrap=True)
        raise typer.Exit(Exit.STOPPED if error.limit_reached else Exit.JUDGE_FAILED) from None
    except (StoreError, TypeError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        line = (
            f"Stopped. Nothing is written to {out_file}; the judgments and proposals so far are stored next to it, and "
            "are not requested again by the same command."
        )
        err.print(plain(line), soft_wrap=True)
        raise typer.Exit(Exit.INTERRUPTED) from None


def _read_example(path: Path | None) -> Any:
    """Return the good answers of a file: all of its text, or the rows of a table."""
    if path is None:
        return None
    if path.suffix.lower() in _TABLES:
        from rubric_integrations.submission.files import read_responses

        return list(read_responses(path))
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text: save the file as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None


def _print_draft(result: RubricDraft, written: Path | None, *, as_json: bool) -> None:
    """Print the criteria with their tests, the dropped proposals and the figures of the rubric."""
    if as_json:
        names = ("criteria", "dropped", "separation", "parts", "cases", "lint", "warnings", "spend")
        figures = {name: getattr(result, name) for name in names}
        print_json({**figures, "headline": result.headline, "rubric": None if written is None else str(written)})
        return
    columns = ("criterion", "requirement", "right", "wrong", "tied", "share", "report")
    table = figures_table("Criteria on the pairs for pruning", columns, text=["criterion", "requirement"])
    for each in result.criteria:
        report = UNDEFINED if each.report is None else figure(each.report.share, 2)
        table.add_row(plain(each.candidate.name), plain(each.candidate.requirement), *_cells(each.test), report)
    for each in result.dropped[:MAX_RANKED]:
        table.add_row(plain(f"({each.reason})"), plain(each.requirement), *_cells(each.test), UNDEFINED)
    out.print(table)
    if (left_out := len(result.dropped) - MAX_RANKED) > 0:
        print_lines([f"{counted(left_out, 'further dropped proposal')} not listed: see --json."])
    parts = ", ".join(f"{count:,} to {part}" for part, count in result.parts.items())
    end = "nothing is written" if written is None else f"written to {written}"
    print_lines([*result.lint, f"{parts}; {result.spend.summary()}.", result.headline, f"rubric: {end}"])


def _cells(test: CandidateTest | None) -> Sequence[str]:
    if test is None:
        return [UNDEFINED] * 4
    counts = test.counts
    return [f"{counts.right:,}", f"{counts.wrong:,}", f"{counts.tied:,}", figure(counts.share, 2)]
