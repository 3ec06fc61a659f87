"""Small data sets of our own, in the form that `load_set` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LEVELS = ("NO_COVERAGE", "PARTIAL_COVERAGE", "FULL_COVERAGE")


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def write_summaries(data: Path, answers: Mapping[str, str], *, people: str) -> None:
    """Write a set in the form of SummHay: two insights in each summary, and two summaries in each subtopic.

    Args:
        data: The folder of the data.
        answers: The levels that each judge gives, one digit for each insight.
        people: The levels that people give.
    """
    lines: list[dict[str, Any]] = []
    for number in range(len(people) // 2):
        places = {f"i{2 * number + part}": 2 * number + part for part in (0, 1)}
        lines.append({
            "id": f"summary{number}",
            "subtopic_id": f"topic{number // 2}",
            "query": f"Summarize meeting {number}",
            "response": f"Summary {number} of the meeting.",
            "criteria": [{"id": name, "requirement": f"Point {name}"} for name in places],
            "human_labels": {name: LEVELS[int(people[place])] for name, place in places.items()},
            "judge_labels": {
                judge: {name: LEVELS[int(levels[place])] for name, place in places.items()}
                for judge, levels in answers.items()
            },
        })  # fmt: skip
    write_lines(data / "summhay" / "items.jsonl", lines)


def write_pairs(data: Path, ratings: Iterable[tuple[str, str]], replies: Iterable[tuple[str, str]]) -> None:
    """Write a set in the form of LLMBar, in which the first output is always the better one.

    Args:
        data: The folder of the data.
        ratings: The replies of a judge that rates each output, for each pair.
        replies: The replies of a judge that compares both outputs, in both orders.
    """
    outputs: list[dict[str, Any]] = []
    for number, replies_of_pair in enumerate(ratings):
        for output, reply in enumerate(replies_of_pair, start=1):
            outputs.append({
                "id": f"Natural/{number}/output_{output}", "pair_id": f"Natural/{number}", "query": f"Task {number}",
                "response": f"Output {output} of {number}", "judge_outputs": {"GPT-4/Rating": {"overall": reply}},
            })  # fmt: skip
    write_lines(data / "llmbar" / "items.jsonl", outputs)
    pairs = (
        {
            "id": f"Natural/{number}",
            "human_labels": {"better": 1},
            "judge_outputs": {"GPT-4/CoT": dict(zip(("ab", "ba"), both_orders, strict=True))},
        }
        for number, both_orders in enumerate(replies)
    )
    write_lines(data / "llmbar" / "pairs.jsonl", pairs)
    patterns = {"GPT-4/CoT": {"1": r"Output \(a\)", "2": r"Output \(b\)"}}
    (data / "llmbar" / "parsing.json").write_text(json.dumps(patterns))
