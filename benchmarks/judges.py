"""Writes docs/judges.md: how far recorded judges agree with people on public data, by kind of criterion.

    python benchmarks/judges.py [--data ../shared/data]

`make judges` runs it. The page depends on the data alone: the same data give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.benchmarks.figures import Benchmark, JudgeFigures
from rubric_integrations.trust.benchmarks.sets import (
    CRITERION_KINDS,
    SOURCES,
    BenchmarkDataError,
    RecordedJudge,
    commit_of,
    load_set,
)

PAGE = ROOT / "docs" / "judges.md"
DATA = ROOT.parent / "shared" / "data"
ALPHA = 0.2
# The panels have judges with one kind of prompt, so that they differ in the model alone.
PANELS = (
    ("summhay", "one insight a call"),
    ("llmbar", "which of two is better"),
    ("ttcw", "yes or no, reasons optional"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    data = parser.parse_args().data
    try:
        text = page(data)
    except BenchmarkDataError as error:
        sys.exit(str(error))
    PAGE.write_text(text, encoding="utf-8")
    commit = commit_of(data)
    print(f"{PAGE.relative_to(ROOT)} is written from {data}" + (f", commit {commit}" if commit else ""))


def page(data: Path) -> str:
    """Return the page as Markdown."""
    benchmarks = {name: Benchmark(load_set(name, data)) for name in SOURCES}
    figures = {
        (name, kind): [benchmark.measure(judge, kind) for judge in benchmark.data.judges]
        for name, benchmark in benchmarks.items()
        for kind in benchmark.data.kinds
    }
    return "\n".join([
        *introduction(benchmarks, figures),
        *judges_section(benchmarks, figures),
        *subsets_section(benchmarks["llmbar"]),
        *panels_section(benchmarks, figures),
        *reasons_section(benchmarks),
        *sources_section(benchmarks),
    ])  # fmt: skip


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1) -> list[str]:
    """Return the lines of a table, of which the first columns are texts and the others are figures."""
    rule = ["---" if place < text else "---:" for place in range(len(columns))]
    return ["", *(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)), ""]


def prose(text: str, *, bullet: bool = False) -> list[str]:
    """Return the lines of a paragraph, or of a point of a list."""
    lines = textwrap.wrap(
        ("- " if bullet else "") + text, 118, subsequent_indent="  " if bullet else "", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return lines if bullet else [*lines, ""]


def number(value: float | None, *, signed: bool = False) -> str:
    """Return a figure with two digits and without the zero before the point."""
    if value is None:
        return "-"
    text = f"{value:+.2f}" if signed else f"{value:.2f}"
    if text in ("-0.00", "+0.00"):
        text = "0.00"
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def limits(estimate: Estimate | None, *, signed: bool = False) -> str:
    """Return a figure with its interval."""
    if estimate is None or estimate.value is None:
        return "-"
    value, low, high = (number(each, signed=signed) for each in estimate[:3])
    return value if estimate.low is None else f"{value} [{low}, {high}]"


def best(rows: Sequence[JudgeFigures]) -> JudgeFigures:
    """Return the figures of the judge with the highest kappa."""
    return max(rows, key=lambda row: row.kappa.value or 0.0)


def introduction(benchmarks: dict[str, Benchmark], figures: dict[tuple[str, str], list[JudgeFigures]]) -> list[str]:
    """Return the text on top, whose figures are those of the tables."""
    facts, stories = figures["summhay", "fact in a text"], figures["ttcw", "creativity"]
    opus = [next(row for row in rows if "opus" in row.judge.name.lower()) for rows in (facts, stories)]
    below = [
        row.judge.name for row in figures["llmbar", "instruction followed"] if row.kappa.high and row.kappa.high < 0
    ]
    lenient = [row for row in stories if row.bias and row.bias.low is not None and row.bias.low > 0]
    dialogues = [figures["llm_rubric", kind][0] for kind in benchmarks["llm_rubric"].data.kinds]
    summary = (
        ("summhay", "fact in a text", "Does the summary cover this insight?"),
        ("devai", "requirement of a task", "Does the program do this?"),
        ("llmbar", "instruction followed", "Which of two outputs executes the instruction better?"),
        ("conala", "quality", "How useful is this code, from 0 to 4?"),
        ("ttcw", "creativity", "Does the story pass this test of creative writing?"),
    )
    rows = [(name, kind, question, best(figures[name, kind])) for name, kind, question in summary]
    weakest, strongest = (number(choose(row.kappa.value or 0 for row in facts)) for choose in (min, max))
    on_facts, on_stories = (number(row.kappa.value) for row in opus)
    alpha = number(benchmarks["ttcw"].people("creativity").alpha)
    worse = " and ".join(dict.fromkeys(below))
    rating = number(max(row.kappa.value or 0 for row in dialogues))
    points = (
        f"**The kind of question matters.** Claude 3 Opus has kappa {on_facts} on insights in summaries, and "
        f"{on_stories} on creativity.",
        f"**So does the model.** On the same summaries, kappa is between {weakest} and {strongest}.",
        "**Write requirements that a reader can check**, and name each fact that the text must contain, as in the "
        "first three rows.",
        f"**Do not rely on these judges for creativity.** Experts agree with each other (alpha {alpha}), and no judge "
        f"comes near. {len(lenient)} of {len(stories)} judges say yes significantly more often than the experts.",
        "**A judge can be worse than chance.** On the deceptive pairs of LLMBar, the whole interval of kappa is below "
        f"0 for some prompts of {worse}.",
        f"**Ratings of whole dialogues are open.** On LLM-Rubric, kappa is at most {rating}. The judge answered with "
        "one token, and one person rated each dialogue.",
    )
    return [
        "# Which judges agree with people",
        "",
        *prose(
            "Language models answered questions that people had answered, too. This page measures how far they agree, "
            "on six public data sets. `make judges` writes it from recorded replies. [One command](#your-own-judge) "
            "adds your own judge."
        ),
        "## For somebody who writes criteria",
        "",
        *prose(
            "Kappa is 1 for a judge that always agrees with people, and 0 for agreement by chance. The best recorded "
            "judge reaches:"
        )[:-1],
        *table(
            ("kind of criterion", "question", "set", "judge", "kappa"),
            [
                (kind, question, SOURCES[name].title, row.judge.name, limits(row.kappa))
                for name, kind, question, row in rows
            ],
            text=4,
        ),
        *(line for point in points for line in prose(point, bullet=True)),
        "",
        *prose(
            "The figures belong to these models, prompts and texts of 2023 and 2024. The kinds differ in all three: "
            "their order is an observation and not an experiment. Measure your judge on your own labels with "
            "[`agree`](trust.md)."
        ),
    ]


def judges_section(benchmarks: dict[str, Benchmark], figures: dict[tuple[str, str], list[JudgeFigures]]) -> list[str]:
    """Return the tables of the recorded judges, by kind of criterion."""
    lines = [
        "## The recorded judges",
        "",
        *prose(
            "The 95 % intervals allow for clusters of dependent judgments. *Unread* replies are left "
            "out of the other figures. *Weighted* is the kappa that counts a near miss as a smaller error. *Bias* is "
            "the judge's mean value minus people's, as a share of the scale. *Date* is the publication of the replies."
        ),
    ]
    for kind in CRITERION_KINDS:
        lines += [f"### {kind.capitalize()}", ""]
        for (name, own_kind), rows in figures.items():
            if own_kind == kind:
                lines += set_table(benchmarks[name], kind, rows)
    return lines


def set_table(benchmark: Benchmark, kind: str, rows: Sequence[JudgeFigures]) -> list[str]:
    """Return the table of the judges of one set on the criteria of one kind."""
    source, people = benchmark.data.source, benchmark.people(kind)
    agreement = "own agreement unknown"
    if people.alpha is not None:
        agreement = f"own agreement: alpha {number(people.alpha)}"
        if people.weighted_alpha is not None:
            agreement += f", weighted {number(people.weighted_alpha)}"
    has_weighted = any(row.weighted_kappa is not None for row in rows)
    has_bias = any(row.bias is not None for row in rows)
    columns = ["judge", "prompt", "date", "n", "unread", "accuracy", "kappa"]
    columns += [*(["weighted"] if has_weighted else []), "AC1", *(["bias"] if has_bias else [])]
    cells = [
        [
            row.judge.name, row.judge.prompt, row.judge.date, f"{row.n:,}", f"{row.unread:,}", limits(row.accuracy),
            limits(row.kappa), *([limits(row.weighted_kappa)] if has_weighted else []), limits(row.ac1),
            *([limits(row.bias, signed=True)] if has_bias else []),
        ]
        for row in sorted(rows, key=lambda row: -(row.kappa.value or 0.0))
    ]  # fmt: skip
    return [
        f"**{source.title}**: {source.raters}; {agreement}; clusters by {source.cluster}.",
        *table(columns, cells, text=3),
    ]


def subsets_section(benchmark: Benchmark) -> list[str]:
    """Return the accuracies of LLMBar by subset, as its authors publish them."""
    subsets = list(dict.fromkeys(item.cluster.rpartition("/")[0] for item in benchmark.data.items))
    rows = [
        (judge.name, judge.prompt, *(f"{accuracy:.1f}" for accuracy in published_accuracies(benchmark, judge).values()))
        for judge in benchmark.data.judges
    ]
    return [
        "### LLMBar as published",
        "",
        *prose(
            "Accuracy in percent over both orders of the outputs. As the authors count, an unread choice is wrong, and "
            "an unread rating is half right."
        )[:-1],
        *table(("judge", "prompt", *(subset.removeprefix("Adversarial/") for subset in subsets)), rows, text=2),
    ]


def published_accuracies(benchmark: Benchmark, judge: RecordedJudge) -> dict[str, float]:
    """Return a judge's accuracy on each subset of LLMBar, in percent, by the rules of its authors."""
    unread = 0.5 if judge.prompt.startswith("rating") else 0.0
    right: dict[str, list[float]] = {}
    for question, answer in judge.answers.items():
        value = unread if answer is None else float(answer == benchmark.data.references[question])
        right.setdefault(question[0].rpartition("/")[0], []).append(value)
    return {subset: 100 * sum(values) / len(values) for subset, values in right.items()}


def panels_section(benchmarks: dict[str, Benchmark], figures: dict[tuple[str, str], list[JudgeFigures]]) -> list[str]:
    """Return the tables of panels: whether votes pay, and whether unanimity can be trusted."""
    votes: list[Sequence[str]] = []
    agreed: list[Sequence[str]] = []
    gains: list[Estimate] = []
    certified = 0
    for name, prompt in PANELS:
        benchmark = benchmarks[name]
        kind = benchmark.data.kinds[0]
        alone = [row for row in figures[name, kind] if row.judge.prompt == prompt]
        alone.sort(key=lambda row: -(row.accuracy.value or 0.0))
        judges, title = [row.judge for row in alone], benchmark.data.source.title
        votes.append((title, f"{judges[0].name} alone", f"{alone[0].n:,}", limits(alone[0].accuracy), "-"))
        for size in (2, 3, len(judges)):
            panel = benchmark.panel(judges[:size])
            row, gain = benchmark.measure(panel, kind), benchmark.compare(panel, judges[0])
            gains.append(gain)
            votes.append(
                (title, f"the best {size}" if size < len(judges) else f"all {size}", f"{row.n:,}",
                 limits(row.accuracy), limits(gain, signed=True))
            )  # fmt: skip
            share, there = benchmark.unanimous(judges[:size], kind)
            certificate = benchmark.certify(judges[:size], ALPHA)
            certified += certificate.threshold is not None
            wrong = there.accuracy._replace(
                value=1 - (there.accuracy.value or 0.0), low=1 - (there.accuracy.high or 0.0),
                high=1 - (there.accuracy.low or 0.0),
            )  # fmt: skip
            agreed.append(
                (title, f"the best {size}" if size < len(judges) else f"all {size}", percent(1 - share), limits(wrong),
                 "yes" if certificate.threshold is not None else "no", f"{certificate.n:,}")
            )  # fmt: skip
    better = sum(gain.low is not None and gain.low > 0 for gain in gains)
    worse = sum(gain.high is not None and gain.high < 0 for gain in gains)
    return [
        "## Do votes pay?",
        "",
        *prose(
            "Judges with one kind of prompt vote, the most accurate first. A tie counts as the lower answer. "
            f"{better} of {len(gains)} panels are significantly better than the best judge alone, and {worse} are "
            "significantly worse. The best judge was chosen by the same labels, which favours it a little."
        )[:-1],
        *table(("set", "panel", "n", "accuracy", "panel minus best judge"), votes, text=2),
        "## Is unanimity trustworthy?",
        "",
        *prose(
            "People decide where the judges differ. *Certified* means: with probability 90 %, at most "
            f"{percent(ALPHA)} of the unanimous answers are wrong (`certify`). This holds for {certified} of "
            f"{len(agreed)} panels. On these sets, agreement among judges does not replace labels."
        )[:-1],
        *table(("set", "panel", "referred to people", "wrong where all agree", "certified", "labels"), agreed, text=2),
    ]


def reasons_section(benchmarks: dict[str, Benchmark]) -> list[str]:
    """Return the comparison of prompts with and without reasons, of one model on the same questions."""
    rows: list[Sequence[str]] = []
    for name, mark in (("conala", "reasons first"), ("llmbar", "reasons first")):
        benchmark = benchmarks[name]
        judges = {judge.label: judge for judge in benchmark.data.judges}
        for judge in judges.values():
            if mark not in judge.prompt:
                continue
            bare = judge.prompt.replace("reasons first", "a bare digit").removesuffix(", a bare digit")
            without = judges[f"{judge.name}, {bare}"]
            gain = benchmark.compare(judge, without)
            rows.append((benchmark.data.source.title, judge.name, bare, f"{gain.n:,}", limits(gain, signed=True)))
    return [
        "## Reasons or none?",
        "",
        "The accuracy of a model with reasons first, minus its accuracy without, on the same questions.",
        *table(("set", "judge", "prompt without reasons", "n", "gain by reasons"), rows, text=3),
        *prose(
            "Reasons help with the grades of CoNaLa. With the pairs of LLMBar, they harm some judges and surely help "
            "none. For several criteria in one call, see [Choosing a grader](graders.md)."
        ),
    ]


def sources_section(benchmarks: dict[str, Benchmark]) -> list[str]:
    """Return how to measure a judge of one's own, and where the data come from."""
    rows = [
        (
            f"`{name}`", f"[{source.repository}](https://github.com/{source.repository})", f"`{source.commit[:10]}`",
            source.licence, f"{len(benchmarks[name].data.items):,}", f"{len(benchmarks[name].data.references):,}",
            f"{len(benchmarks[name].data.rows):,}",
        )
        for name, source in SOURCES.items()
    ]  # fmt: skip
    return [
        "## Your own judge",
        "",
        "```bash",
        "rubric-integrations benchmark --judge openai/gpt-5-mini --sets summhay,llmbar --max-cost 5 --out judges.jsonl",
        "```",
        "",
        *prose(
            "The command grades the same texts with the library's prompt, and prints your judge above the recorded "
            "ones, with paired differences of the accuracies. Its ledger is beside `judges.jsonl`: start it again, and "
            "it resumes. `--data` names the folder of the data, or of clones of SummHay and LLMBar. DevAI has no "
            "responses, LLM-Rubric lacks the sources for three of its nine questions, and TTCW the texts of 12 stories."
        ),
        "## Sources",
        *table(("set", "repository", "commit", "licence", "items", "questions", "gradable rows"), rows, text=4),
        "A pair of LLMBar is two items. Questions that people answered with N/A have no figures.",
        "",
    ]


if __name__ == "__main__":
    main()
