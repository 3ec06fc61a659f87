"""Fuzz the readers for longer than the test suite can: `python -m tests.formats.fuzz_documents [documents] [seconds]`.

First it reads a number of randomly mutated documents. Then, if atheris is installed and seconds are set, it generates
texts for so many seconds, guided by the coverage of the readers. Each document must give a rubric or a `RubricError`,
within a second and in bounded memory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import resource
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import yaml

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import (
    agentv,
    assertions,
    native,
    openrubricrl,
    parsing,
    promptfoo,
    read_document,
    registry,
    rubric_items,
    suite_files,
    write_document,
)
from rubric_integrations.formats import parsing as faults
from rubric_integrations.formats.registry import FORMATS
from tests.formats.mutation import SEEDS, mutate


def read(document: Any) -> bool:
    """Return whether a document is a rubric; any exception but a `RubricError` is a bug and ends the run."""
    try:
        rubric = read_document(document, "fuzz")
    except RubricError:
        return False
    for to in FORMATS:
        with contextlib.suppress(RubricError):
            write_document(rubric, to)
    return True


def fuzz_randomly(count: int) -> None:
    """Read randomly mutated documents and print the results."""
    chance = random.Random(20261121)
    slowest, loaded, start = 0.0, 0, time.perf_counter()
    for _ in range(count):
        document = mutate(chance.choice(SEEDS), chance, chance.randrange(1, 7))
        began = time.perf_counter()
        loaded += read(document)
        slowest = max(slowest, time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{count} mutated documents in {time.perf_counter() - start:.0f} s: {loaded} load, {count - loaded} refused, "
        f"nothing else; slowest {slowest * 1000:.0f} ms; peak memory {peak} MB"
    )
    assert slowest < 1.0


def fuzz_by_coverage(seconds: int) -> None:
    """Read texts that atheris generates, until the time is over or a reader raises another error."""
    atheris: Any = importlib.import_module("atheris")

    def one_input(data: bytes) -> None:
        text = data.decode("utf-8", "ignore")
        for reader in (Rubric.from_yaml, Rubric.from_json):
            try:
                reader(text)
            except RubricError:
                continue

    suites = (assertions, promptfoo, rubric_items, suite_files)
    readers = (agentv, *suites, parsing, faults, registry, native, openrubricrl)
    for module in readers:
        for name, function in vars(module).items():
            if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                setattr(module, name, atheris.instrument_func(function))
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS):
            Path(corpus, f"{number}.json").write_text(json.dumps(seed), encoding="utf-8")
            Path(corpus, f"{number}.yaml").write_text(yaml.safe_dump(seed), encoding="utf-8")
        limits = [f"-max_total_time={seconds}", "-timeout=1", "-rss_limit_mb=1024", "-max_len=8000"]
        atheris.Setup([sys.argv[0], *limits, corpus], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    fuzz_randomly(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    if importlib.util.find_spec("atheris") and len(sys.argv) > 2:
        fuzz_by_coverage(int(sys.argv[2]))
