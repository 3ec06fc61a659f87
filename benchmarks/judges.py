"""Writes docs/judges.md: how far recorded judges agree with people on public data, by kind of criterion.

    python benchmarks/judges.py [--data ../shared/data]

`make judges` runs it. It also writes `rubric_integrations/library/judges.json`, the figures of the questions that are
like those of the library's rubrics. Both depend on the data alone: the same data give the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.benchmarks.figures import Benchmark, JudgeFigures
from rubric_integrations.trust.benchmarks.sets import (
    CONSTANT_JUDGE,
    CRITERION_KINDS,
    REASONS_FIRST,
    SOURCES,
    BenchmarkDataError,
    BenchmarkSet,
    RecordedJudge,
    commit_of,
    load_set,
)

PAGE = ROOT / "docs" / "judges.md"
LIBRARY = ROOT / "rubric_integrations" / "library" / "judges.json"
READINGS = ROOT / "benchmarks" / "choices_read.csv"
DATA = ROOT.parent / "shared" / "data"
ALPHA = 0.2
# The panels have judges with one kind of prompt, so that they differ in the model alone. Votes have a strategy.
PANELS = (
    ("summhay", "one insight a call", ("mode", "median", "mean")),
    ("llmbar", "which of two is better", ("mode",)),
    ("ttcw", "yes or no, reasons optional", ("majority",)),
)
# The set, the kind of criterion, and the question in words.
QUESTIONS = (
    ("summhay", "fact in a text", "Does the summary cover this insight?"),
    ("devai", "requirement of a task", "Does the program do this?"),
    ("llmbar", "instruction followed", "Which of two outputs executes the instruction better?"),
    ("conala", "quality", "How useful is this code, from 0 to 4?"),
    ("ttcw", "creativity", "Does the story pass this test of creative writing?"),
)
# Single questions of LLM-Rubric, by their ids. The page has one table for each kind of question.
DIALOGUE_QUESTIONS = {
    "Q6": "How free of redundant elements are the assistant's utterances?",
    "Q7": "How concise are the assistant's responses?",
}
VOTES = {"mode": "most votes", "majority": "most votes", "median": "median", "mean": "rounded mean"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    data = parser.parse_args().data
    try:
        benchmarks, figures = measure(data)
    except BenchmarkDataError as error:
        sys.exit(str(error))
    PAGE.write_text(page(benchmarks, figures), encoding="utf-8")
    LIBRARY.write_text(library_judges(benchmarks, figures), encoding="utf-8")
    commit = commit_of(data)
    files = " and ".join(str(path.relative_to(ROOT)) for path in (PAGE, LIBRARY))
    print(f"{files} are written from {data}" + (f", commit {commit}" if commit else ""))


Figures = dict[tuple[str, str], list[JudgeFigures]]
"""The figures of the recorded judges, by the name of the set and the kind of criterion."""


def measure(data: Path) -> tuple[dict[str, Benchmark], Figures]:
    """Return the sets and the figures of their recorded judges."""
    benchmarks = {name: Benchmark(load_set(name, data)) for name in SOURCES}
    figures = {
        (name, kind): [benchmark.measure(judge, kind) for judge in benchmark.data.judges]
        for name, benchmark in benchmarks.items()
        for kind in benchmark.data.kinds
    }
    return benchmarks, figures


def library_judges(benchmarks: dict[str, Benchmark], figures: Figures) -> str:
    """Return the figures of single questions as JSON, one judge on each line."""
    rows = [(name, question, row) for name, kind, question in QUESTIONS for row in figures[name, kind]]
    dialogues = benchmarks["llm_rubric"].data
    for name, question in DIALOGUE_QUESTIONS.items():
        items = [item._replace(labels={name: item.labels[name]}) for item in dialogues.items]
        benchmark = Benchmark(replace(dialogues, items=items))
        rows += [("llm_rubric", question, benchmark.measure(judge, "quality")) for judge in dialogues.judges]
    lines = [
        json.dumps({
            "set": SOURCES[name].title, "question": question, "judge": row.judge.name, "prompt": row.judge.prompt,
            "n": row.n, "kappa": [None if each is None else round(each, 4) for each in row.ranking_kappa[:3]],
        })
        for name, question, row in rows
    ]  # fmt: skip
    return "[\n" + ",\n".join(lines) + "\n]\n"


def page(benchmarks: dict[str, Benchmark], figures: Figures) -> str:
    """Return the page as Markdown."""
    persons = {
        name: person_rows(benchmark)
        for name, benchmark in benchmarks.items()
        if benchmark.people(benchmark.data.kinds[0]).alpha is not None
    }
    return "\n".join([
        *introduction(benchmarks, figures, persons),
        *judges_section(benchmarks, figures),
        *persons_section(persons),
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


def number(value: float | None, *, signed: bool = False, digits: int = 2) -> str:
    """Return a figure without the zero before the point. A figure that rounds to 0 has no sign."""
    if value is None:
        return "-"
    text = f"{value:+.{digits}f}" if signed and round(value, digits) else f"{value:z.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def limits(estimate: Estimate | None, *, signed: bool = False) -> str:
    """Return a figure with its interval. A limit that rounds to .00 has a third digit, which shows its side of 0."""
    if estimate is None or estimate.value is None:
        return "-"
    value, low, high = (number(each, signed=signed) for each in estimate[:3])
    low, high = (
        number(limit, signed=signed, digits=3) if text == ".00" and round(limit or 0.0, 3) else text
        for limit, text in ((estimate.low, low), (estimate.high, high))
    )
    return value if estimate.low is None else f"{value} [{low}, {high}]"


def kappa_of(row: JudgeFigures) -> float:
    """Return the kappa by which a judge is ranked. An undefined kappa is below all others."""
    kappa = row.ranking_kappa.value
    return -math.inf if kappa is None else kappa


def kappas(rows: Iterable[JudgeFigures]) -> list[float]:
    """Return the ranking kappas that are defined, in ascending order."""
    return sorted(kappa for row in rows if (kappa := kappa_of(row)) > -math.inf)


class PersonRow(NamedTuple):
    """A judge, or one person, compared with the other people.

    Attributes:
        figures: The agreement with the other people.
        difference: The ranking kappa minus the kappa of one person on the same questions. None for the person.
    """

    figures: JudgeFigures
    difference: Estimate | None


def person_rows(benchmark: Benchmark) -> list[PersonRow]:
    """Return the figures of one person, and then of the judges, against the other people who answered."""
    beside = Benchmark(benchmark.data.with_one_rater())
    person, *judges = beside.data.judges
    kind = beside.data.kinds[0]
    rows = [PersonRow(beside.measure(judge, kind), beside.compare(judge, person, kind).kappa) for judge in judges]
    rows.sort(key=lambda row: -kappa_of(row.figures))
    return [PersonRow(beside.measure(person, kind), None), *rows]


def introduction(
    benchmarks: dict[str, Benchmark],
    figures: Figures,
    persons: dict[str, list[PersonRow]],
) -> list[str]:
    """Return the text on top, whose figures are those of the tables."""
    facts, stories = figures["summhay", "fact in a text"], figures["ttcw", "creativity"]
    opus = [next(row for row in rows if "opus" in row.judge.name.lower()) for rows in (facts, stories)]
    below = [
        row.judge.name for row in figures["llmbar", "instruction followed"] if row.kappa.high and row.kappa.high < 0
    ]
    lenient = [row for row in stories if row.bias and row.bias.low is not None and row.bias.low > 0]
    dialogues = [figures["llm_rubric", kind][0] for kind in benchmarks["llm_rubric"].data.kinds]
    rows = [(name, kind, question, max(figures[name, kind], key=kappa_of)) for name, kind, question in QUESTIONS]
    comparable = [row for *_, row in rows if row.kind != "creativity"]
    close = kappas(comparable)
    estimates = [row.ranking_kappa for row in comparable]
    overlap = max(each.low or -1.0 for each in estimates) <= min(each.high or 1.0 for each in estimates)
    on_facts, on_stories = (number(kappa_of(row)) for row in opus)
    grader = persons["conala"][1]
    alpha = number(benchmarks["ttcw"].people("creativity").alpha)
    constant = benchmarks["ttcw"].measure(benchmarks["ttcw"].data.constant_judge, "creativity")
    accuracies = sorted(row.accuracy.value for row in stories if row.accuracy.value is not None)
    pairs = benchmarks["llmbar"].data.items
    deceptive = percent(sum(pair.cluster.startswith("Adversarial/") for pair in pairs) / len(pairs))
    worse = " and ".join(dict.fromkeys(below))
    points = (
        f"**The first four kinds are not ranked.** The best judges have kappas from {number(close[0])} to "
        f"{number(close[-1])}{', and their intervals overlap' if overlap else ''}. In each of them, the question names "
        "what to compare the text with: an insight, a requirement, an instruction or a task. The form of the answer "
        "differs: yes or no, one of two, or a level with a description.",
        f"**Creativity is different.** Claude 3 Opus has kappa {on_facts} on insights in summaries, and {on_stories} "
        f"on creativity. Experts agree more with each other (alpha {alpha}). {len(lenient)} of {len(stories)} judges "
        "say yes significantly more often than the experts.",
        f"**Accuracy alone misleads.** On creativity, the answer no to everything has the accuracy "
        f"{number(constant.accuracy.value)}, more than every judge (at most {number(accuracies[-1])}), and kappa 0.",
        f"**The model matters.** On the same summaries, kappa is between {number(kappas(facts)[0])} and "
        f"{number(kappas(facts)[-1])}.",
        f"**A judge can be nearly as good as one person.** On CoNaLa, the kappa of {grader.figures.judge.name} with "
        f"other people is {number(kappa_of(grader.figures))}, and the kappa of one person with them is "
        f"{number(kappa_of(persons['conala'][0].figures))} ([one person](#a-judge-and-one-person)).",
        f"**A judge can be worse than chance.** {deceptive} of the pairs of LLMBar were made to deceive a judge. The "
        f"whole interval of kappa is below 0 for some prompts of {worse}.",
        f"**Ratings of whole dialogues are open.** On LLM-Rubric, kappa is at most {number(kappas(dialogues)[-1])}. "
        "The judge answered with one token, and one person rated each dialogue.",
    )
    minus = {
        (name, row.figures.judge.label): limits(row.difference, signed=True)
        for name, rows_of_set in persons.items()
        for row in rows_of_set
    }
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
            "Kappa is 1 for a judge that always agrees with people, and 0 for agreement by chance. For ordered "
            "answers, it is weighted: a near miss is a smaller error. Kappa without weights falls with the number of "
            "levels and cannot compare kinds. *Minus one person* is the difference to one of several people, where "
            "both are compared with the other people. The best recorded judge reaches:"
        )[:-1],
        *table(
            ("kind of criterion", "question", "set", "judge", "kappa", "minus one person"),
            [
                (
                    kind,
                    question,
                    SOURCES[name].title,
                    row.judge.name,
                    limits(row.ranking_kappa),
                    minus.get((name, row.judge.label), "-"),
                )
                for name, kind, question, row in rows
            ],
            text=4,
        ),
        *(line for point in points for line in prose(point, bullet=True)),
        "",
        *prose(
            "The figures belong to these models, prompts and texts of 2023 and 2024. The kinds differ in all three: a "
            "difference between kinds is an observation and not an experiment. Measure your judge on your own labels "
            "with [`agree`](trust.md)."
        ),
    ]


def judges_section(benchmarks: dict[str, Benchmark], figures: Figures) -> list[str]:
    """Return the tables of the recorded judges, by kind of criterion."""
    lines = [
        "## The recorded judges",
        "",
        *prose(
            "The 95 % intervals allow for clusters of dependent judgments. *Unread* replies are left out of the other "
            "figures: they state no answer, or two. *Weighted* is the kappa that counts a near miss as a smaller "
            "error. Rows are in the order of it, or of kappa without it. *Bias* is the judge's mean value minus "
            "people's, as a share of the scale. *Date* is the publication of the replies. The row in italics needs no "
            "judge: it always gives the answer that people give most often. It has kappa 0. Where its accuracy or AC1 "
            "is above those of the judges, only kappa shows which of them is useful."
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
    constant = benchmark.measure(benchmark.data.constant_judge, kind)
    cells = [
        [
            row.judge.name, row.judge.prompt, row.judge.date, f"{row.n:,}", f"{row.unread:,}", limits(row.accuracy),
            limits(row.kappa), *([limits(row.weighted_kappa)] if has_weighted else []), limits(row.ac1),
            *([limits(row.bias, signed=True)] if has_bias else []),
        ]
        for row in sorted(rows, key=lambda row: -kappa_of(row))
    ]  # fmt: skip
    zeros = [number(0.0)] * (2 if has_weighted else 1)
    cells.append(
        [
            f"*{CONSTANT_JUDGE}*", "-", "-", f"{constant.n:,}", "0", limits(constant.accuracy), *zeros,
            limits(constant.ac1), *([limits(constant.bias, signed=True)] if has_bias else []),
        ]
    )  # fmt: skip
    return [
        f"**{source.title}**: {source.raters}; {agreement}; clusters by {source.cluster}.",
        *table(columns, cells, text=3),
    ]


def persons_section(persons: dict[str, list[PersonRow]]) -> list[str]:
    """Return the tables of judges and one person, who are compared with the same other people."""
    lines = [
        "## A judge and one person",
        "",
        *prose(
            "Each person is left out in turn, and the others are the reference, for this person and for the judges. "
            "Therefore, these figures are a little lower than those above. With two others, only questions on which "
            "both agree count, for all rows. *Minus one person* is the difference of the kappas, weighted for ordered "
            "answers. The other sets have one label for each question."
        ),
    ]
    for name, rows in persons.items():
        is_weighted = rows[0].figures.weighted_kappa is not None
        lines += [
            f"**{SOURCES[name].title}**",
            *table(
                (
                    "judge", "prompt", "n", "accuracy", "kappa", *(["weighted"] if is_weighted else []),
                    "minus one person",
                ),
                [
                    [
                        row.judge.name, row.judge.prompt or "-", f"{row.n:,}", limits(row.accuracy), limits(row.kappa),
                        *([limits(row.weighted_kappa)] if is_weighted else []), limits(difference, signed=True),
                    ]
                    for row, difference in rows
                ],
                text=2,
            ),
        ]  # fmt: skip
    return lines


def subsets_section(benchmark: Benchmark) -> list[str]:
    """Return the accuracies of LLMBar by subset, as its authors publish them."""
    subsets = list(dict.fromkeys(item.cluster.rpartition("/")[0] for item in benchmark.data.items))
    rows = [
        (judge.name, judge.prompt, *(f"{accuracy:.1f}" for accuracy in published_accuracies(benchmark, judge).values()))
        for judge in benchmark.data.judges
    ]
    differing = Counter[str]()
    for judge in benchmark.data.judges:
        for question, answer in (judge.published or {}).items():
            differing[judge.label] += answer != judge.answers[question]
    (most, count), *_ = differing.most_common()
    readings = agreement_with_readings(benchmark.data)
    return [
        "### LLMBar as published",
        "",
        *prose(
            "Accuracy in percent over both orders of the outputs, by the rules of the authors: an unread choice is "
            "wrong, an unread rating is half right, and a reply that names both outputs may count as the first one. "
            "All other tables have the choice that a reply states. The rules differ in "
            f"{differing.total():,} replies, of which {count:,} are by {most}: most of them are like `Output (b) is "
            "better. Output (a) does not ...`, and count here as (a). "
            f"{readings.replies:,} replies were read one by one by a language model, without this code: all that "
            f"differ for that judge, and 100 of each of three others. {readings.choices:,} of the readings are the "
            "same (`benchmarks/choices_read.csv`)."
        )[:-1],
        *table(("judge", "prompt", *(subset.removeprefix("Adversarial/") for subset in subsets)), rows, text=2),
    ]


class ReadingAgreement(NamedTuple):
    """How far the reader agrees with the readings in `choices_read.csv`.

    Attributes:
        replies: The number of replies.
        choices: The number with the same choice, or without a choice in both readings.
        beginnings: The number with the same reading of whether the reply begins with its choice.
    """

    replies: int
    choices: int
    beginnings: int


def agreement_with_readings(data: BenchmarkSet) -> ReadingAgreement:
    """Compare the reader of choices with `choices_read.csv`. All its replies are to prompts for reasons first."""
    judges = {judge.name: judge for judge in data.judges if judge.published and REASONS_FIRST in judge.prompt}
    with READINGS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    choices = beginnings = 0
    for row in rows:
        judge, question = judges[row["judge"]], (row["id"], "better")
        shown = {"a": "12", "b": "21"}.get(row["choice"])
        choices += judge.answers[question] == (shown and shown[row["id"].endswith(":ba")])
        beginnings += (question in judge.verdict_first) == (row["begins"] == "yes")
    return ReadingAgreement(len(rows), choices, beginnings)


def published_accuracies(benchmark: Benchmark, judge: RecordedJudge) -> dict[str, float]:
    """Return a judge's accuracy on each subset of LLMBar, in percent, by the rules of its authors."""
    unread = 0.5 if judge.prompt.startswith("rating") else 0.0
    right: dict[str, list[float]] = {}
    for question, answer in (judge.published or judge.answers).items():
        value = unread if answer is None else float(answer == benchmark.data.references[question])
        right.setdefault(question[0].rpartition("/")[0], []).append(value)
    return {subset: 100 * sum(values) / len(values) for subset, values in right.items()}


def panels_section(benchmarks: dict[str, Benchmark], figures: Figures) -> list[str]:
    """Return the tables of panels: whether votes pay, and whether unanimity can be trusted."""
    votes: list[Sequence[str]] = []
    agreed: list[Sequence[str]] = []
    gains: list[Estimate] = []
    certified = 0
    for name, prompt, strategies in PANELS:
        benchmark = benchmarks[name]
        kind = benchmark.data.kinds[0]
        alone = [row for row in figures[name, kind] if row.judge.prompt == prompt and row.accuracy.value is not None]
        alone.sort(key=lambda row: -(row.accuracy.value or 0.0))
        judges, title = [row.judge for row in alone], benchmark.data.source.title
        votes.append((title, f"{judges[0].name} alone", "-", f"{alone[0].n:,}", "-", limits(alone[0].accuracy), "-"))
        for size in (2, 3, len(judges)):
            members, panel_name = judges[:size], f"the best {size}" if size < len(judges) else f"all {size}"
            for strategy in strategies if size > 2 else ():
                panel = benchmark.panel(members, strategy)
                row, gain = benchmark.measure(panel, kind), benchmark.compare(panel, judges[0], kind).accuracy
                gains.append(gain)
                ties = percent(tied_share(members)) if VOTES[strategy] == "most votes" else "-"
                votes.append(
                    (title, panel_name, VOTES[strategy], f"{row.n:,}", ties, limits(row.accuracy),
                     limits(gain, signed=True))
                )  # fmt: skip
            share, there = benchmark.unanimous(members, kind)
            certificate = benchmark.certify(members, ALPHA)
            certified += certificate.threshold is not None
            agreed.append(
                (title, panel_name, percent(1 - share), limits(complement(there.accuracy)),
                 "yes" if certificate.threshold is not None else "no", f"{certificate.n:,}")
            )  # fmt: skip
    better = sum(gain.low is not None and gain.low > 0 for gain in gains)
    worse = sum(gain.high is not None and gain.high < 0 for gain in gains)
    return [
        "## Do votes pay?",
        "",
        *prose(
            "Judges with one kind of prompt form a panel, the most accurate first. *Most votes* is a vote: the answer "
            "that most judges give, and in a tie the lower answer. *Tied* is the share of questions that this rule "
            "decides. The rounded mean is the library's default for ordered answers, and no vote. Two judges "
            "are left out, because the rule for ties would decide wherever they differ. "
            f"{better} of {len(gains)} panels are significantly more accurate than the best judge alone, and {worse} "
            "are significantly less accurate. The best judge was chosen by the same labels, which favours it a little."
        )[:-1],
        *table(("set", "panel", "answer", "n", "tied", "accuracy", "panel minus best judge"), votes, text=3),
        "## Is unanimity trustworthy?",
        "",
        *prose(
            "People decide where the judges differ. *Certified* means: with probability 90 %, at most "
            f"{percent(ALPHA)} of the unanimous answers are wrong (`certify`, by one answer of each of the *groups*). "
            f"This holds for {certified} of {len(agreed)} panels. On these sets, agreement among judges does not "
            "replace labels."
        )[:-1],
        *table(("set", "panel", "referred to people", "wrong where all agree", "certified", "groups"), agreed, text=2),
    ]


def tied_share(judges: Sequence[RecordedJudge]) -> float:
    """Return the share of questions with two most frequent answers, among those to which all judges replied."""
    questions = [each for each in judges[0].answers if all(each in judge.answers for judge in judges)]
    tied = 0
    for question in questions:
        counts = Counter(answer for judge in judges if (answer := judge.answers[question]) is not None).most_common(2)
        tied += len(counts) == 2 and counts[0][1] == counts[1][1]
    return tied / len(questions)


def complement(estimate: Estimate) -> Estimate:
    """Return 1 minus an estimate of a share."""
    value, low, high = (None if each is None else 1 - each for each in estimate[:3])
    return estimate._replace(value=value, low=high, high=low)


def reasons_section(benchmarks: dict[str, Benchmark]) -> list[str]:
    """Return the comparison of replies with reasons before the answer and replies without reasons, of one model."""
    rows: list[Sequence[str]] = []
    outcomes: dict[str, list[str]] = {}
    for name in ("conala", "llmbar"):
        benchmark = benchmarks[name]
        kind, title = benchmark.data.kinds[0], benchmark.data.source.title
        judges = {judge.label: judge for judge in benchmark.data.judges}
        for judge in judges.values():
            if REASONS_FIRST not in judge.prompt:
                continue
            bare = judge.prompt.replace(REASONS_FIRST, "a bare digit").removesuffix(", a bare digit")
            reasoned = judge.restricted_to(judge.answers.keys() - judge.verdict_first)
            gain = benchmark.compare(reasoned, judges[f"{judge.name}, {bare}"], kind)
            rows.append(
                (title, judge.name, bare, f"{len(judge.verdict_first):,}", f"{gain.accuracy.n:,}",
                 limits(gain.accuracy, signed=True), limits(gain.kappa, signed=True))
            )  # fmt: skip
            outcomes.setdefault(title, []).append(direction(gain.accuracy))
    sentences = [
        f"On {title}, reasons raise the accuracy significantly in {directions.count('up')} of {len(directions)} "
        f"comparisons, and lower it in {directions.count('down')}."
        for title, directions in outcomes.items()
    ]
    return [
        "## Reasons or none?",
        "",
        *prose(
            "A prompt that requests reasons first does not always get them: many replies begin with the answer, and "
            "explain it. These are counted here (*answer first*) and left out of the gains: the accuracy and the kappa "
            "of a model that gave reasons before its answer, minus those of its replies without reasons, on the same "
            "questions. The model chose these questions: they are not a random sample of the set. Kappa is weighted "
            "for CoNaLa."
        )[:-1],
        *table(
            ("set", "judge", "prompt without reasons", "answer first", "n", "gain in accuracy", "gain in kappa"),
            rows,
            text=3,
        ),
        *prose(
            " ".join(sentences) + " Whether reasons help with a choice between two outputs is therefore open. Read the "
            "replies of your judge before you pay for reasons. For several criteria in one call, see [Choosing a "
            "grader](graders.md)."
        ),
    ]


def direction(difference: Estimate) -> str:
    """Return whether a difference is significantly above 0 (`up`), below 0 (`down`), or neither (`open`)."""
    if difference.low is None or difference.high is None or difference.low <= 0 <= difference.high:
        return "open"
    return "up" if difference.low > 0 else "down"


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
            "ones. These are measured on the questions of your run alone, so that their figures may differ from this "
            "page. Your judge is called better than another one only if the intervals of both differences, of accuracy "
            "and of kappa, are above 0. Otherwise, the command names the figure that does not show it. The ledger is "
            "beside `judges.jsonl`: start the command again, and it resumes. `--data` names the folder of the data, or "
            "of clones of SummHay and LLMBar. DevAI has no "
            "responses, LLM-Rubric lacks the sources for three of its nine questions, and TTCW the texts of 12 stories."
        ),
        "## Sources",
        *table(("set", "repository", "commit", "licence", "items", "questions", "gradable rows"), rows, text=4),
        "A pair of LLMBar is two items. Questions that people answered with N/A have no figures.",
        "",
    ]


if __name__ == "__main__":
    main()
