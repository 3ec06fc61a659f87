"""Counts how often `draft_rubric` calls criteria separating that are not, with planted pairs and recorded judges.

    python benchmarks/drafting.py [--seeds 1000] [--end-to-end 100] [--data ../shared/data]

Each planted draft has 300 pairs and 12 candidates. A candidate without a signal is met by both answers of a pair with
the same probability. With a signal, it is met by the better answer more often. The pairs are alone or in groups of
three about one query, whose answers are alike. The columns:

- `kept`: the share of the drafts that keep a criterion without a signal as shown to separate. (With fewer than 30
  groups for pruning, nothing is shown, and only refuted criteria are dropped.)
- `separates`: the share of the drafts whose rubric "separates" on the part for the report. Without a signal, it is
  false.
- `always`: the same if the best candidate is always kept. It tests the figure of the report alone.
- `in sample`: the same if the figure comes from the part by which the best candidate was chosen, as in other tools.
- `detected`: the share of the candidates with a signal that are kept.

`--end-to-end` makes complete drafts without a signal, with a scripted model and judge. The last table makes drafts from
feedback with recorded answers: the criteria are those of the data set, and people's overall labels make the pairs.
TTCW has no overall label. The mean over its criteria replaces it, so its row of people is circular.
Intervals are Jeffreys intervals. The exit code is 1 if a share of false "separates" is significantly above 5 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import RubricDraft, draft_rubric
from rubric_integrations.trust.benchmarks.sets import BenchmarkItem, BenchmarkSet, load_set
from rubric_integrations.trust.separation import measure_separation, prune_candidates
from rubric_integrations.trust.statistics import estimate_rate

Array = Any
"""A NumPy array."""

PAIRS, CANDIDATES, ALPHA = 300, 12, 0.05


class Planted(NamedTuple):
    """A planted kind of pairs.

    Attributes:
        gain: How much more often the better answer meets a candidate with a signal.
        signals: The number of candidates with a signal.
        group: The number of pairs about one query.
        alike: The share of the verdicts that all answers of a query share.
        pairs: The number of pairs.
    """

    gain: float = 0.0
    signals: int = 0
    group: int = 1
    alike: float = 0.0
    pairs: int = PAIRS


KINDS = {
    "no signal": Planted(),
    "no signal, groups of 3": Planted(group=3, alike=0.7),
    "no signal, 60 pairs": Planted(pairs=60),
    "3 of 12 with .20": Planted(0.2, 3),
    "3 of 12 with .40": Planted(0.4, 3),
    "3 of 12 with .40, groups of 3": Planted(0.4, 3, 3, 0.3),
}


class Outcome(NamedTuple):
    """One planted draft: whether each step called something separating."""

    kept_noise: bool
    separates: bool
    always: bool
    in_sample: bool
    detected: int


def draw(planted: Planted, pairs: int, rates: Array, rng: np.random.Generator) -> Array:
    """Return the values of the candidates on pairs, of shape (pairs, 2, candidates)."""
    shape = (pairs, 2, CANDIDATES)
    shifts = np.zeros((2, CANDIDATES))
    shifts[0, : planted.signals], shifts[1, : planted.signals] = planted.gain / 2, -planted.gain / 2
    values = rng.random(shape) < np.clip(rates + shifts, 0.02, 0.98)
    queries = np.arange(pairs) // planted.group
    common = (rng.random((queries.max() + 1, 2, CANDIDATES)) < np.clip(rates + shifts, 0.02, 0.98))[queries]
    return np.where(rng.random(shape) < planted.alike, common, values).astype(float)


def simulate(planted: Planted, seed: int, name: str) -> Outcome:
    """Make one planted draft from its matrices of verdicts."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    rates = rng.uniform(0.1, 0.9, CANDIDATES)
    queries = planted.pairs // planted.group
    pruned, reported = (rng.binomial(queries, 0.35) * planted.group for _ in range(2))
    values = [draw(planted, max(1, count), rates, rng) for count in (pruned, reported)]
    groups = [np.arange(len(each)) // planted.group for each in values]
    tests = prune_candidates(values[0], [1] * CANDIDATES, groups[0])
    kept = [place for place, test in enumerate(tests) if test.reason is None]
    p_values = [1.0 if test.p_value is None else test.p_value for test in tests]
    best = p_values.index(min(p_values))

    def separates(part: int, places: Sequence[int]) -> bool:
        scores = [(float(better), float(worse)) for better, worse in values[part][:, :, list(places)].mean(2)]
        lengths = [(1, 1)] * len(scores)
        result = measure_separation(scores, lengths, groups[part], longer_is_better=True)
        return result.decision == "separates"

    return Outcome(
        tests[0].is_tested and any(place >= planted.signals for place in kept),
        bool(kept) and separates(1, kept),
        separates(1, [best]),
        separates(0, [best]),
        sum(place < planted.signals for place in kept),
    )


def draft_without_signal(seed: int) -> RubricDraft:
    """Make a complete draft of 150 pairs without a signal, with a scripted model and judge."""
    pairs = [
        {"query": f"q{number}", "better": f"An answer, number {number}.", "worse": f"A reply, number {number}."}
        for number in range(150)
    ]

    async def proposer(_system: str, prompt: str) -> str:
        quote = prompt.partition("better answer>\n")[2].partition("\n")[0]
        number = zlib.crc32(quote.encode()) % 100
        return json.dumps(
            {"proposals": [{"requirement": f"Is of kind {number + n}", "kind": "requirement", "quote": quote}
                           for n in range(2)]}
        )  # fmt: skip

    def verdict(question: Any) -> str:
        text = f"{seed} {question.criterion.requirement} {question.submission.response}"
        return "MET" if zlib.crc32(text.encode()) % 1000 < 500 else "UNMET"

    return draft_rubric(pairs=pairs, model=proposer, judge=ScriptedJudge(verdict), seed=seed, max_candidates=8)


def feedback_of(data: BenchmarkSet, overall: str | None) -> dict[str, tuple[float, str]]:
    """Return, for each item with a text, its overall human label in [0, 1] and its text.

    Without an overall criterion, the label is the mean over the criteria.
    """
    texts = {row.id: row.submission.response for row in data.rows if row.submission is not None}
    rows: dict[str, tuple[float, str]] = {}
    for item in data.items:
        names = list(item.labels) if overall is None else [overall]
        values = [
            value for name in names if (value := _value(item, name, data.references.get((item.id, name)))) is not None
        ]
        text = " ".join(texts.get(item.id, "").split())
        rows[item.id] = (float(np.mean(values)), f"Item {item.id}. {text[:2_000]}")
    return rows


def _value(item: BenchmarkItem, name: str, answer: str | None) -> float | None:
    from rubric_integrations.scoring.judgment import to_judgment

    return None if answer is None else to_judgment(item.criteria[name], answer).value


def draft_from_records(
    data: BenchmarkSet, answers: dict[tuple[str, str], str | None], overall: str | None, seed: int
) -> RubricDraft:
    """Make a draft from feedback whose candidates are the criteria of a data set, with recorded answers.

    A criterion with several options is MET with the best one.
    """
    rows = feedback_of(data, overall)
    items = {item.id: item for item in data.items}
    names = [name for name in next(iter(items.values())).criteria if name != overall]
    requirement = {f"Criterion {name} of the data set": name for name in names}

    async def proposer(_system: str, prompt: str) -> str:
        quote = prompt.partition("Item ")[2].partition("\n")[0]
        entries = [{"requirement": text, "kind": "requirement", "quote": f"Item {quote}"} for text in requirement]
        start = zlib.crc32(quote.encode()) % len(entries)
        return json.dumps({"proposals": [*entries[start:], *entries[:start]][:6]})

    def verdict(question: Any) -> Any:
        item = question.submission.response.split(". ")[0].removeprefix("Item ")
        name = requirement[question.criterion.requirement]
        value = _value(items[item], name, answers.get((item, name)))
        return JudgeFailure("parse", "no recorded answer") if value is None else "MET" if value == 1 else "UNMET"

    feedback = [{"id": name, "response": text, "label": label} for name, (label, text) in rows.items()]
    return draft_rubric(
        feedback=feedback, model=proposer, judge=ScriptedJudge(verdict), seed=seed, max_candidates=20, max_rows=1_000
    )


def _share(count: int, total: int) -> str:
    low, high = estimate_rate(count, total)[1:3]
    return f"{count / total:.1%} [{low or 0:.1%}, {high or 0:.1%}]"


def _planted(seeds: int, console: Console) -> bool:
    """Print the table of planted drafts. Return whether a share of false results is significantly too high."""
    table = Table(title=f"{seeds:,} planted drafts")
    for column in ("pairs", "kept", "separates", "always", "in sample", "detected"):
        table.add_column(column, justify="left" if column == "pairs" else "right", overflow="fold")
    is_broken = False
    for name, planted in KINDS.items():
        outcomes = [simulate(planted, seed, name) for seed in range(seeds)]
        sums = [sum(bool(outcome[place]) for outcome in outcomes) for place in range(4)]
        if not planted.signals:
            lows = [estimate_rate(count, seeds).low or 0.0 for count in (sums[1], sums[2])]
            is_broken |= max(lows) > ALPHA
        detected = sum(outcome.detected for outcome in outcomes)
        share = _share(detected, planted.signals * seeds) if planted.signals else "-"
        table.add_row(name, *(_share(count, seeds) for count in sums), share)
    console.print(table)
    return is_broken


def _complete(seeds: int, console: Console) -> bool:
    drafts = [draft_without_signal(seed) for seed in range(seeds)]
    false = sum(draft.separation is not None and draft.separation.decision == "separates" for draft in drafts)
    kept = sum(bool(draft.criteria) for draft in drafts)
    console.print(
        f"{seeds:,} complete drafts without a signal: kept {_share(kept, seeds)}, separates {_share(false, seeds)}"
    )
    return (estimate_rate(false, seeds).low or 0.0) > ALPHA


def _recorded(data: Path, seeds: int, console: Console) -> None:
    """Print the table of drafts from recorded answers, over several seeds of the split."""
    table = Table(title=f"Drafts from recorded answers, {seeds} seeds of the split")
    for column in ("set", "judge", "kept", "separates", "not shown", "no verdict", "nothing kept", "share", "pairs"):
        table.add_column(column, justify="left" if column in ("set", "judge") else "right", overflow="fold")
    for name, overall in (("llm_rubric", "Q0"), ("ttcw", None)):
        loaded = load_set(name, data)
        judges: dict[str, Any] = {"people": dict(loaded.references)}
        judges |= {judge.label: dict(judge.answers) for judge in loaded.judges}
        for label, answers in judges.items():
            drafts = [draft_from_records(loaded, answers, overall, seed) for seed in range(seeds)]
            counts = Counter(each.separation.decision if each.separation else "nothing kept" for each in drafts)
            shares = [each.separation.rubric.value for each in drafts if each.separation and each.separation.rubric.n]
            pairs = [each.separation.rubric.n for each in drafts if each.separation]
            table.add_row(
                name, label, f"{np.mean([len(each.criteria) for each in drafts]):.1f}", str(counts["separates"]),
                str(counts["not shown to separate"]), str(counts["no verdict"]), str(counts["nothing kept"]),
                f"{np.mean([share for share in shares if share is not None]):.2f}" if shares else "-",
                f"{np.mean(pairs):.0f}" if pairs else "-",
            )  # fmt: skip
    console.print(table)


def main() -> None:
    """Print the tables, and exit with 1 if a share of false results is significantly above 5 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--end-to-end", type=int, default=100)
    parser.add_argument("--recorded", type=int, default=20, help="seeds of the drafts from recorded answers")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    console = Console(width=150)
    is_broken = _planted(options.seeds, console) if options.seeds else False
    if options.end_to_end:
        is_broken |= _complete(options.end_to_end, console)
    if options.recorded:
        if options.data.is_dir():
            _recorded(options.data, options.recorded, console)
        else:
            console.print(f"no folder {options.data}: no drafts from recorded answers")
    sys.exit(int(is_broken))


if __name__ == "__main__":
    main()
