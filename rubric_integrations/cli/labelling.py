"""The commands `label` and `plan`.

Annotators answer on an HTML page or in the terminal, without seeing the judge's answers.
"""

from __future__ import annotations

import json
import math
import warnings
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer
from rich.console import Console
from rich.rule import Rule

from rubric_integrations._util.json import read_json_lines
from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import UNDEFINED, Exit, figures_table, out, print_json, print_lines, refuse
from rubric_integrations.cli.loading import (
    ClusterOption,
    JsonOption,
    LevelOption,
    load_run,
    print_caught,
    refuse_bad_input,
    require_level,
)
from rubric_integrations.cli.outputs import LABELS_FILE, PAGE, OutputFile, partial_path

if TYPE_CHECKING:
    from rubric_integrations.runs.files import RunFile
    from rubric_integrations.trust.planning import JudgmentToLabel
    from rubric_integrations.trust.questions import QuestionToLabel


def label(
    run: Annotated[Path, typer.Argument(help="A file that `grade --out` wrote.")],
    n: Annotated[
        int,
        typer.Option(
            "--n", min=1, help="The number of submissions to draw; with --by-verdict, of judgments of each verdict."
        ),
    ] = 50,
    by_verdict: Annotated[
        bool, typer.Option("--by-verdict", help="Draw judgments of each verdict on each criterion, also of rare ones.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Draw from as many groups as possible: rows with the same value of this column of the graded table, "
            "such as the questions about one document, or of `query`, or `id`.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the draw; the same seed draws the same.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("label.html"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file of --output if it exists and is not a report page.")
    ] = False,
    open_page: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open the page in a browser; by default if stdout is a terminal."),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Ask in the terminal, and write no page. Repeat the command to continue.")
    ] = False,
    labels: Annotated[
        Path, typer.Option("--out", help="With --terminal: the file of labels, to which each answer is added.")
    ] = Path("labels.jsonl"),
    rater: Annotated[str, typer.Option(help="With --terminal: your name, which is stored in each label.")] = "",
) -> None:
    """Draw judgments of a run for human labelling, without showing the judge's answers.

    Writes an HTML page, which works with the keyboard and exports the labels. With --terminal, asks in the terminal
    instead.

    Exit codes: 0 done; 2 bad usage or bad input; 130 interrupted by Ctrl-C, with the labels so far saved.
    """
    from rubric_integrations.runs.files import RunFileError, read_run
    from rubric_integrations.trust.planning import choose_for_labels

    if terminal and not rater.strip():
        refuse("--terminal needs --rater: name the rater, or the labels of several raters could not be separated")
    if rater and not terminal:
        refuse("--rater is for --terminal: the page asks for the name")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loaded = read_run(run)
            drawn = choose_for_labels(loaded, n, by_verdict=by_verdict, cluster=cluster, seed=seed)
        print_caught(caught)
        if lacking := sum(item.submission is None for item in drawn):
            refuse(
                f"{run}: {lacking:,} of the {len(drawn):,} judgments to label have no text: import the judgments with "
                "--responses, or raters would label texts that they cannot read"
            )
        if terminal:
            _ask(run, drawn, labels, rater.strip())
        else:
            _write_page(run, loaded, drawn, output, overwrite=overwrite, open_page=open_page)
    except (RunFileError, ImportError, ValueError) as error:
        refuse(str(error))


def _write_page(
    path: Path,
    run: RunFile,
    drawn: list[JudgmentToLabel],
    output: Path,
    *,
    overwrite: bool,
    open_page: bool | None,
) -> None:
    from rubric_integrations.reporting.page.render import page_parts

    file = OutputFile(output, option="--output", overwrite=overwrite, inputs=[path], replaces=PAGE)
    parts = page_parts([run], to_label=drawn)
    with file:
        for part in parts:
            file.write(part)
    out.print(plain(f"{output}: {len(drawn):,} judgments to label. Open it in a browser."), soft_wrap=True)
    if out.is_terminal if open_page is None else open_page:
        webbrowser.open(output.resolve().as_uri())


def _ask(run: Path, drawn: list[JudgmentToLabel], path: Path, rater: str) -> None:
    # A process that was killed has left its labels in the partial file next to this one.
    file = OutputFile(
        path, option="--out", overwrite=False, inputs=[run], replaces=LABELS_FILE, keep_partial=True
    )  # fmt: skip
    session = TerminalLabels(drawn, rater, [path, partial_path(path)])
    with file:
        for line in session.lines:
            file.write(line)
        is_interrupted = False
        try:
            for line in session.ask(out):
                file.write(line)
        except KeyboardInterrupt:
            is_interrupted = True
    out.print()
    out.print(plain(f"{path}: {session.done:,} of {len(drawn):,} judgments labelled by {rater}."), soft_wrap=True)
    if is_interrupted:
        raise typer.Exit(Exit.INTERRUPTED)


# The fields that must be equal for a label's submission to match a row.
_TEXTS = ("response", "thinking", "query", "reference", "context")
_HINTS = "n note, s skip, b back, q end"
_HINTS_OF_LABELLED = "c change, s next, b back, q end"

_Key = tuple[str, str, str]


class TerminalLabels:
    """Asks a rater in the terminal to label judgments. Judgments that the rater has already labelled are skipped.

    Args:
        drawn: The judgments to label, in the order in which they are shown.
        rater: The name of the rater.
        paths: The files of labels. They need not exist. Existing labels are kept.

    Attributes:
        lines: The lines of the existing files of labels, without duplicates.
    """

    def __init__(self, drawn: Sequence[JudgmentToLabel], rater: str, paths: Sequence[Path]):
        self.lines = list(dict.fromkeys(line for path in paths if path.exists() for line in _lines_of(path)))
        self._drawn = drawn
        self._rater = rater
        records = [cast("dict[str, Any]", json.loads(line)) for line in self.lines]
        # The verdict and the note of each label.
        self._labelled = {
            (str(record.get("id")), str(record.get("criterion")), str(record.get("requirement"))): (
                str(record.get("verdict")),
                str(record.get("reason") or ""),
            )
            for record in records
            if record.get("rater") == rater
        }

    @property
    def done(self) -> int:
        """The number of drawn judgments with a label by this rater."""
        return sum(self._label_of(item) is not None for item in self._drawn)

    def ask(self, console: Console) -> Iterator[str]:
        """Ask the rater for a label of each judgment that has none, and yield each new label as a line of JSON.

        The rater can type `q` to stop, `s` to skip a judgment, `n` for a note and `b` to go back to the previous
        judgment. To change the label of that judgment, the rater first types `c` and Enter.

        Raises:
            KeyboardInterrupt: The rater pressed Ctrl-C.
        """
        open_items = [(number, item) for number, item in enumerate(self._drawn, start=1) if not self._label_of(item)]
        at = 0
        while at < len(open_items):
            number, item = open_items[at]
            _show(console, item, f"judgment {number} of {len(self._drawn)}")
            label = self._label_of(item)
            answer, note = ("c", "") if label is None else (_read_command(console, label[0]), label[1])
            if answer == "c":
                answer, note = _read_answer(console, item.question, note)
            if answer == "q":
                return
            if answer == "b":
                at = max(0, at - 1)
                continue
            if answer != "s":
                self._labelled[_key(item)] = (answer, note)
                yield self._line(item, answer, note)
            at += 1
            while at < len(open_items) and self._label_of(open_items[at][1]):
                at += 1

    def _label_of(self, item: JudgmentToLabel) -> tuple[str, str] | None:
        """Return the verdict and the note of a judgment's label. None without a label or with an impossible verdict."""
        label = self._labelled.get(_key(item))
        try:
            return label and (item.question.read_answer(label[0]), label[1])
        except ValueError:
            return None

    def _line(self, item: JudgmentToLabel, verdict: str, note: str) -> str:
        from rubric_integrations.scoring.labels import submission_digest

        texts = item.submission.model_dump(mode="json", exclude_none=True) if item.submission else {}
        record = {
            "id": item.id, "criterion": item.criterion, "requirement": item.requirement, "verdict": verdict,
            "judged": item.judged, "reason": note, "rater": self._rater, "sampled": item.sampled, "blind": True,
            "submission": {name: texts[name] for name in _TEXTS if texts.get(name)},
            **({"digest": submission_digest(item.submission)} if item.submission else {}),
        }  # fmt: skip
        return json.dumps(record, ensure_ascii=False) + "\n"


def _key(item: JudgmentToLabel) -> _Key:
    return item.id, item.criterion, item.requirement


def _lines_of(path: Path) -> Iterator[str]:
    try:
        for number, record in read_json_lines(path):
            if not isinstance(record, dict):
                refuse(f"{path}:{number}: is {type(record).__name__}, not a label: name another file with --out")
            yield json.dumps(record, ensure_ascii=False) + "\n"
    except (OSError, ValueError) as error:
        refuse(f"{error}: name another file with --out")


def _show(console: Console, item: JudgmentToLabel, progress: str) -> None:
    console.print(Rule(plain(f"{progress}: {item.id}")))
    submission = item.submission
    if submission is not None:
        steps = submission.trajectory.text() if submission.trajectory else None
        documents = [(f"Document {number}", text) for number, text in enumerate(submission.context, start=1)]
        texts = [
            ("Task", submission.query), ("Thinking", submission.shown_thinking), ("Response", submission.response),
            ("Reference", submission.reference),
            *documents, ("Steps", None if submission.show_trajectory == "as_response" else steps),
        ]  # fmt: skip
        for title, text in texts:
            if text:
                console.print(title, style="bold")
                console.print(plain(text, keeps_lines=True), soft_wrap=True)
                console.print()
    question = item.question
    if question.guidelines:
        console.print("Guidelines for all criteria", style="bold")
        console.print(plain(question.guidelines, keeps_lines=True), soft_wrap=True)
        console.print()
    console.print(plain(f"{question.words}  {item.criterion}"), style="bold")
    console.print(plain(item.requirement, keeps_lines=True), soft_wrap=True)
    for heading, text in question.texts.items():
        console.print(plain(f"{heading}: {text}", keeps_lines=True), soft_wrap=True)
    if question.range_text:
        console.print(plain(question.range_text, keeps_lines=True), soft_wrap=True)
    for offered in question.answers:
        line = ": ".join(filter(None, (offered.verdict, offered.meaning)))
        console.print(plain(f"{offered.key or '=':>3}  {line}"), style="cyan", soft_wrap=True)
    if not question.answers:
        console.print("type = and your answer, or =CANNOT_ASSESS", style="cyan", soft_wrap=True)
    elif not all(offered.key for offered in question.answers) or question.takes_number:
        console.print("or type = and the answer", style="cyan", soft_wrap=True)


def _read_command(console: Console, verdict: str) -> str:
    """Print that a judgment has a label and read the rater's command: `c`, `s`, `b` or `q`."""
    console.print(plain(f"You have answered {verdict}   ({_HINTS_OF_LABELLED})"), style="cyan", soft_wrap=True)
    while True:
        try:
            typed = console.input("> ").strip()
        except EOFError:
            return "q"
        if typed in ("c", "s", "b", "q"):
            return typed
        console.print(plain(f"{typed!r}: the answer {verdict} stays ({_HINTS_OF_LABELLED})"), style="yellow")


def _read_answer(console: Console, question: QuestionToLabel, note: str) -> tuple[str, str]:
    """Read lines until one is an answer or a command. Return the answer, or `s`, `b` or `q`, and the note."""
    by_key = {offered.key: offered.verdict for offered in question.answers if offered.key}
    console.print(plain(f"({_HINTS})"), style="cyan", soft_wrap=True)
    while True:
        try:
            typed = console.input("> ").strip()
            if typed == "n":
                note = console.input("note: ").strip()
                continue
        except EOFError:
            return "q", note
        if typed in ("s", "b", "q"):
            return typed, note
        if typed in by_key:
            return by_key[typed], note
        is_number = question.range_text and typed[:1] in "+-.,0123456789"
        if typed and (typed.startswith("=") or is_number):
            try:
                answer = question.read_answer(typed.removeprefix("="))
            except ValueError as error:
                console.print(plain(f"{error} ({_HINTS})"), style="yellow", soft_wrap=True)
                continue
            if answer:
                return answer, note
        else:
            console.print(plain(f"{typed!r} is no answer ({_HINTS})"), style="yellow")


# The size in bytes from which a status is shown, because smaller files are read in less than a second.
_CORRELATIONS = (0.0, 0.5, 0.7, 0.9)


class _Figure(NamedTuple):
    """A mean score with a standard deviation, or a rate, that labels should correct.

    Attributes:
        name: The name of the figure.
        judged: The number of judged submissions.
        rate: The expected rate. None for a mean score.
        sd: The expected standard deviation of the scores. None for a rate.
        groups: The effective number of groups of submissions. None for independent submissions.
        icc: The correlation of two submissions in the same group.
    """

    name: str
    judged: int
    rate: float | None = None
    sd: float | None = None
    groups: float | None = None
    icc: float = 0.0

    @property
    def spread(self) -> float:
        return math.sqrt(self.rate * (1 - self.rate)) if self.rate is not None else self.sd or 0.0


def plan(
    run: Annotated[
        Path | None,
        typer.Argument(help="A run that gives --judged, --sd and --rate of each criterion.", show_default=False),
    ] = None,
    half_width: Annotated[
        float | None, typer.Option(help="Half the width of the interval that you want, such as 0.05.")
    ] = None,
    judged: Annotated[int | None, typer.Option(min=1, help="The number of judged submissions.")] = None,
    rate: Annotated[float | None, typer.Option(min=0, max=1, help="The expected rate of a criterion.")] = None,
    sd: Annotated[
        float | None, typer.Option(min=0, help="The expected standard deviation of the scores, instead of --rate.")
    ] = None,
    correlation: Annotated[
        float | None,
        typer.Option(min=-1, max=1, help="The expected correlation of judge and human labels; by default several."),
    ] = None,
    min_score: Annotated[
        float | None, typer.Option(help="Compute how many submissions a gate on this mean score needs at least.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="The probability of a wrong decision of that gate.")] = 0.05,
    cluster: ClusterOption = None,
    level: LevelOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Compute how many human labels an interval of a given width needs, and how many submissions a gate needs.

    The interval is for the mean score, or for the rate of a criterion, after `calibrate` corrects it with the labels.

    Exit codes: 0 done; 2 bad usage or bad input.
    """
    from rubric_integrations.trust.planning import FEWEST_LABELS

    require_level(level)
    if half_width is None and min_score is None:
        refuse("plan needs --half-width, for the number of labels, or --min-score, for the submissions of a gate")
    if half_width is not None and not 0 < half_width < math.inf:
        refuse(f"--half-width must be above 0, got {half_width!r}: 0.05 is an interval of 0.05 to each side")
    with refuse_bad_input(*([run] if run else [])):
        figures = _figures(run, judged, rate, sd, cluster) if half_width is not None else []
        correlations = _CORRELATIONS if correlation is None else (correlation,)
        labels = [_labels(one, half_width, correlations, level) for one in figures] if half_width is not None else []
        fewest = _fewest(min_score, alpha) if min_score is not None else None
    if as_json:
        print_json(
            {
                "half_width": half_width,
                "level": level,
                "fewest_labels": FEWEST_LABELS,
                "labels": [
                    {"figure": one.name, "judged": one.judged, "rate": one.rate, "sd": one.sd, "groups": one.groups,
                     "icc": one.icc, "correlation": r, "labels": count}
                    for one, counts in zip(figures, labels, strict=True)
                    for r, count in zip(correlations, counts, strict=True)
                ],
                "gate": fewest,
            }
        )  # fmt: skip
        return
    if half_width is not None:
        _print_labels(figures, labels, correlations, half_width, level)
        lines = [
            f"Fewer than {FEWEST_LABELS} labels are not recommended, whatever the width: the intervals are uneven."
        ]
        print_lines([*_impossible(figures, labels, level), *lines])
    if fewest is not None:
        print_lines(
            [
                f"A gate on a mean score of {min_score:g} at alpha = {alpha:g} needs at least {fewest['fixed']:,} "
                f"submissions, all perfect, and {fewest['sequential']:,} if it is evaluated after each."
            ]
        )


def _figures(
    run: Path | None, judged: int | None, rate: float | None, sd: float | None, cluster: str | None
) -> list[_Figure]:
    """Return the figures to plan for: from the options, or the mean score and each binary criterion of the run."""
    if run is None:
        if judged is None or (rate is None) == (sd is None):
            raise ValueError("plan needs --judged and exactly one of --rate and --sd, or a run that gives them")
        if cluster is not None:
            raise ValueError(f"--cluster {cluster} needs a run, whose rows have this column")
        return [_Figure("a rate" if rate is not None else "the mean score", judged, rate, sd)]
    if judged is not None or rate is not None or sd is not None:
        raise ValueError("--judged, --rate and --sd come from the run: leave them out, or leave out the run")
    return _figures_of(load_run(run), cluster)


def _figures_of(run: RunFile, cluster: str | None) -> list[_Figure]:
    import numpy as np

    from rubric_integrations.trust.matching import group_rows
    from rubric_integrations.trust.means import effective_groups, intraclass_correlation, select_groups

    groups = group_rows(run.rows, cluster)
    scores: dict[int, float] = {}
    answers: dict[str, dict[int, str]] = {}
    for index, row in enumerate(run.rows):
        if row.report is None or row.report.failed_count:
            continue
        if row.report.score is not None:
            scores[index] = row.report.score
        for entry in row.report.criteria:
            if entry.verdict is not None:
                answers.setdefault(entry.name, {})[index] = entry.verdict
    if len(scores) < 2:
        raise ValueError(f"{run.name}: has {len(scores)} scored submissions, and the spread needs two at least")

    def in_groups(figure: _Figure, values: dict[int, float]) -> _Figure:
        of_rows = select_groups(groups, list(values))
        if of_rows is None:
            return figure
        icc = intraclass_correlation(list(values.values()), of_rows)
        return figure._replace(groups=max(2.0, effective_groups(of_rows)), icc=icc or 0.0)

    figures = [in_groups(_Figure("the mean score", len(scores), sd=float(np.std([*scores.values()], ddof=1))), scores)]
    for name, verdicts in answers.items():
        if {"MET", "UNMET"} & set(verdicts.values()):
            met = {index: float(verdict == "MET") for index, verdict in verdicts.items()}
            figures.append(in_groups(_Figure(name, len(met), rate=sum(met.values()) / len(met)), met))
    return figures


def _labels(figure: _Figure, half_width: float, correlations: tuple[float, ...], level: float) -> list[int | None]:
    from rubric_integrations.trust import plan_labels

    return [
        plan_labels(
            half_width,
            judged=figure.judged,
            rate=figure.rate,
            sd=figure.sd,
            correlation=value,
            groups=figure.groups,
            icc=figure.icc,
            level=level,
        )
        for value in correlations
    ]


def _fewest(min_score: float, alpha: float) -> dict[str, float]:
    from rubric_integrations.trust import fewest_to_pass

    fixed, sequential = (fewest_to_pass(min_score, alpha, sequential=value) for value in (False, True))
    return {"min_score": min_score, "alpha": alpha, "fixed": fixed, "sequential": sequential}


def _print_labels(
    figures: list[_Figure], labels: list[list[int | None]], correlations: tuple[float, ...], half_width: float,
    level: float,
) -> None:  # fmt: skip
    title = (
        f"Labels for \N{PLUS-MINUS SIGN}{half_width:g} ({level:.0%}), by the judge's correlation r with human labels"
    )
    headings = [f"r = {value:g}" for value in correlations]
    has_groups = any(one.groups is not None for one in figures)
    of_groups = ("groups", "icc") if has_groups else ()
    table = figures_table(title, ("figure", "judged", "rate", "sd", *of_groups, *headings), text=["figure"])
    for one, counts in zip(figures, labels, strict=True):
        known = (one.rate, one.sd, *((one.groups, one.icc) if has_groups else ()))
        spread = (UNDEFINED if value is None else f"{value:.3g}" for value in known)
        texts = ("impossible" if count is None else f"{count:,}" for count in counts)
        table.add_row(plain(one.name), f"{one.judged:,}", *spread, *texts)
    out.print(table)


def _impossible(figures: list[_Figure], labels: list[list[int | None]], level: float) -> list[str]:
    """Return a line for each figure whose width cannot be reached, with the narrowest possible width."""
    from rubric_integrations.trust.statistics import normal_quantile, student_quantile

    lines: list[str] = []
    for one, counts in zip(figures, labels, strict=True):
        if None in counts:
            quantile = normal_quantile(level) if one.groups is None else student_quantile(one.groups - 1, level)
            of_groups = 0.0 if one.groups is None else one.icc / one.groups
            narrowest = quantile * one.spread * math.sqrt(1 / one.judged + of_groups)
            more = "submissions" if one.groups is None else "submissions of other groups"
            lines.append(
                f"{one.name}: impossible; labels for all {one.judged:,} submissions give "
                f"\N{PLUS-MINUS SIGN}{narrowest:.3f}: judge more {more}, or accept a wider interval."
            )
    return lines
