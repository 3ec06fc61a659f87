"""Asks for labels in a terminal: one judgment after another, without the judge's answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.rule import Rule

from rubric_integrations._util.json_lines import read_json_lines
from rubric_integrations._util.terminal import plain
from rubric_integrations.agreement.choosing import JudgmentToLabel
from rubric_integrations.cli.console import refuse

# What makes the submission of a label the same as that of a row.
_TEXTS = ("response", "thinking", "query", "reference", "context")
_HINTS = "n note, s skip, b back, q end"

_Key = tuple[str, str, str]


class TerminalLabels:
    """Asks one rater for the judgments that the file of labels does not have yet.

    Args:
        drawn: The judgments to label, in the order in which they are shown.
        rater: Who answers.
        paths: The files of labels that may exist. Their labels are kept.

    Attributes:
        lines: The lines of these files, each once.
    """

    def __init__(self, drawn: Sequence[JudgmentToLabel], rater: str, paths: Sequence[Path]):
        self.lines = list(dict.fromkeys(line for path in paths if path.exists() for line in _lines_of(path)))
        self._drawn = drawn
        self._rater = rater
        records = [cast("dict[str, Any]", json.loads(line)) for line in self.lines]
        self._labelled = {
            (str(record.get("id")), str(record.get("criterion")), str(record.get("requirement")))
            for record in records
            if record.get("rater") == rater
        }

    @property
    def done(self) -> int:
        """The number of drawn judgments with a label by this rater."""
        return sum(_key(item) in self._labelled for item in self._drawn)

    def ask(self, console: Console) -> Iterator[str]:
        """Ask for each judgment without a label, and yield the line of each answer, until all are shown or `q`.

        After `b`, the judgment before is asked again, and its later label counts.

        Raises:
            KeyboardInterrupt: The rater pressed Ctrl-C.
        """
        open_items = [item for item in self._drawn if _key(item) not in self._labelled]
        at = 0
        while at < len(open_items):
            item = open_items[at]
            _show(console, item, f"{self.done + 1} of {len(self._drawn)}")
            answer, note = _read_answer(console, item.answers)
            if answer == "q":
                return
            if answer == "b":
                at = max(0, at - 1)
                continue
            if answer != "s":
                self._labelled.add(_key(item))
                yield self._line(item, answer, note)
            at += 1

    def _line(self, item: JudgmentToLabel, verdict: str, note: str) -> str:
        texts = item.submission.model_dump(mode="json", exclude_none=True) if item.submission else {}
        record = {
            "id": item.id, "criterion": item.criterion, "requirement": item.requirement, "verdict": verdict,
            "judged": item.judged, "reason": note, "rater": self._rater, "sampled": item.sampled, "blind": True,
            "submission": {name: texts[name] for name in _TEXTS if texts.get(name)},
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
            ("Task", submission.query), ("Response", submission.response), ("Reference", submission.reference),
            *documents, ("Steps", None if submission.show_trajectory == "as_response" else steps),
        ]  # fmt: skip
        for title, text in texts:
            if text:
                console.print(title, style="bold")
                console.print(plain(text), soft_wrap=True)
                console.print()
    console.print(plain(item.criterion), style="bold")
    console.print(plain(item.requirement), soft_wrap=True)
    offered = "   ".join(f"{number} {answer}" for number, answer in enumerate(item.answers, start=1))
    other = "" if item.answers else "type = and your answer, or =CANNOT_ASSESS"
    console.print(plain(f"{offered}{other}   ({_HINTS})"), style="cyan", soft_wrap=True)


def _read_answer(console: Console, answers: Sequence[str]) -> tuple[str, str]:
    """Read keys until one decides: return the answer, or `s`, `b` or `q`, and the note."""
    note = ""
    while True:
        try:
            typed = console.input("> ").strip()
        except EOFError:
            return "q", note
        if typed in ("s", "b", "q"):
            return typed, note
        if typed == "n":
            note = console.input("note: ").strip()
        elif typed.isdecimal() and 1 <= int(typed) <= len(answers):
            return answers[int(typed) - 1], note
        elif typed.startswith("=") and typed[1:].strip() and not answers:
            return typed[1:].strip(), note
        else:
            console.print(plain(f"{typed!r} is no answer ({_HINTS})"), style="yellow")
