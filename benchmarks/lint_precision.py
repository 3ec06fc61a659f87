"""Draws a sample of the linter's warnings about published rubrics, and prints how many of a judged sample are right.

python benchmarks/lint_precision.py count
python benchmarks/lint_precision.py draw SEED [new|held-out]
python benchmarks/lint_precision.py report

`count` prints the number of warnings of each rule and collection, `draw` prints 100 warnings with their texts for a
person to judge, and `report` prints the precision of the judgments in `lint_sample.csv`. The rubrics are in
`../shared/data/rubric_corpus` and stay there: the CSV file refers to them by id, and has no text of theirs.

The sample is stratified. Each rule has a quota, which is divided evenly among the collections that the rule warns of,
because one collection of templates would otherwise be most of the sample. What a rule cannot fill goes to the others.
With `new`, the sample has no criterion that was judged before, and with `held-out` it is also from the half of the
rubrics that nobody looked at to improve the rules.

The samples in `lint_sample.csv`: `before` has seed 1807 and the rules before they were improved, `second` has seed
1808, is held out, and has the improved rules before their last corrections, and `after` has seed 1810, is new, and has
the rules of today. To draw it again, take its rows out of the file first.
"""

from __future__ import annotations

import csv
import json
import random
import re
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import LintWarning, lint, read_document
from tests.conftest import SHARED
from tests.formats.test_corpus import as_native, as_native_node

CORPUS = SHARED / "data/rubric_corpus"
JUDGED = HERE / "lint_sample.csv"
QUOTAS = {"compound": 40, "vague": 25, "near-duplicate": 15, "use-a-check": 12, "count": 8}


class Case(NamedTuple):
    """A warning about a rubric of the corpus."""

    source: str
    rubric_id: str
    rubric: Rubric
    warning: LintWarning

    @property
    def criterion(self) -> int:
        """The index of the criterion, or -1 for the rubric itself."""
        match = re.search(r"\d+", self.warning.where)
        return int(match[0]) if match else -1


def rubrics() -> Iterator[tuple[str, str, Rubric]]:
    """Return the collection, the id and the rubric of each readable rubric of the corpus."""
    for name in ("rubrics.jsonl", "paperbench_trees.jsonl"):
        for line in (CORPUS / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            document = [as_native_node(row["tree"])] if "tree" in row else as_native(row)
            try:
                yield row["source"], row["id"], read_document(document, row["id"])
            except RubricError as error:
                print(f"skipped {row['id']}: {error.faults[0].message}", file=sys.stderr)


def judgments() -> list[dict[str, str]]:
    """Return the rows of the judged samples."""
    with JUDGED.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cases() -> list[Case]:
    """Return every warning of the linter about the corpus."""
    return [Case(source, name, rubric, warning) for source, name, rubric in rubrics() for warning in lint(rubric)]


def draw(seed: int, candidates: list[Case]) -> list[Case]:
    """Return 100 warnings, by the quotas of the rules."""
    generator = random.Random(seed)  # noqa: S311 - a reproducible sample, not a secret
    pools: dict[str, list[Case]] = {}
    for rule in QUOTAS:
        by_source: defaultdict[str, list[Case]] = defaultdict(list)
        for case in candidates:
            if case.warning.rule == rule:
                by_source[case.source].append(case)
        shuffled = [generator.sample(group, len(group)) for _, group in sorted(by_source.items())]
        pools[rule] = [case for case in chain(*zip_longest(*shuffled)) if case is not None]
    chosen = {rule: pool[: QUOTAS[rule]] for rule, pool in pools.items()}
    rest = zip_longest(*(pool[QUOTAS[rule] :] for rule, pool in pools.items()))
    spare = [case for case in chain(*rest) if case is not None]
    return [*chain(*chosen.values()), *spare][: sum(QUOTAS.values())]


def print_sample(seed: int, *, new: bool = False, held_out: bool = False) -> None:
    """Print a sample with its texts, for a person to judge."""
    judged = {(row["rubric"], row["criterion"]) for row in judgments()}
    candidates = [
        case
        for case in cases()
        if not (new and (case.rubric_id, str(case.criterion)) in judged)
        and not (held_out and zlib.crc32(case.rubric_id.encode()) % 2 == 0)
    ]
    for number, (_, name, rubric, warning) in enumerate(draw(seed, candidates)):
        places = [int(place) for place in re.findall(r"criteria\[(\d+)\]", f"{warning.where} {warning.message}")]
        print(f"{number}\t{name}\t{places[0] if places else -1}\t{warning.rule}\t{warning.message}")
        print(*(f"    {rubric.criteria[place].requirement}" for place in places), sep="\n")


def print_counts() -> None:
    """Print the number of warnings of each rule and collection."""
    criteria = Counter[str]()
    for source, _, rubric in rubrics():
        criteria[source] += len(rubric)
    warnings = Counter((case.warning.rule, case.source) for case in cases())
    for (rule, source), number in sorted(warnings.items()):
        print(f"{rule:16}{source:24}{number:7} on {criteria[source]} criteria")


def print_report() -> None:
    """Print the precision of each judged sample, and how many of its warnings the linter still gives."""
    today = {(case.rubric_id, str(case.criterion), case.warning.rule) for case in cases()}
    totals: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in judgments():
        is_given = (row["rubric"], row["criterion"], row["rule"]) in today
        collection = row["rubric"].split("/")[0]
        for subset in ("all", row["rule"], f"{row['rule']}, {collection}"):
            totals[row["sample"], subset].update([row["verdict"], f"{row['verdict']} given" if is_given else ""])
    print(f"{'sample':10}{'warnings':40}{'right':>6}{'of':>6}   still given: right, wrong")
    for (sample, subset), counts in sorted(totals.items()):
        still = f"{counts['right given']}, {counts['wrong given']}"
        print(f"{sample:10}{subset:40}{counts['right']:6}{counts['right'] + counts['wrong']:6}   {still}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["count"]:
            print_counts()
        case ["draw", seed]:
            print_sample(int(seed))
        case ["draw", seed, "held-out"]:
            print_sample(int(seed), new=True, held_out=True)
        case ["draw", seed, "new"]:
            print_sample(int(seed), new=True)
        case ["report"]:
            print_report()
        case _:
            sys.exit(__doc__)
