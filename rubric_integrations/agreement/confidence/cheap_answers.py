"""The answers of a cheap judge, and which of them are wrong by people's labels or by an expensive judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from rubric_integrations.agreement.matching import Match, match_labels
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.escalations import is_of_cascade
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.runs.run_files import GradedRow, RunFile, matched_rows

Signal = Literal["confidence", "agreement", "none"]
"""What says how sure a cheap judge is: its confidence; the agreement of a panel of cheap judges; or nothing."""

Place = tuple[int, int]
"""The index of a row in the run, and of an entry in its report."""


class CheapAnswers(NamedTuple):
    """The answers of a cheap judge in a run.

    Attributes:
        confidences: For each answer, how sure it is, above 0 and up to 1; None if no threshold keeps it: a failure, an
            abstention, or an answer on which a panel differs.
        signal: Where this comes from.
        unsure: The number of answers without a confidence, in a run with some: those to criteria with options, a scale
            or a check. They are not among `confidences`.
        trained_on: The number of answers with whose labels the judge was aligned. They are not among `confidences`.
    """

    confidences: dict[Place, float | None]
    signal: Signal
    unsure: int
    trained_on: int


class Truths(NamedTuple):
    """What is known about answers of a cheap judge.

    Attributes:
        wrong: Whether the answer is wrong, for each place of which the truth is known.
        unknown: The number of places without a truth: people are divided, or the expensive judge failed.
        unmatched: The number of labels, or of the expensive judge's answers, to which no answer belongs.
    """

    wrong: dict[Place, bool]
    unknown: int
    unmatched: int


def read_answers(rows: Sequence[GradedRow]) -> CheapAnswers:
    """Read the answers of a run, and how sure they are.

    Raises:
        ValueError: A cascade gave some of the answers.
    """
    entries = {
        (row, place): entry
        for row, graded in enumerate(rows)
        if graded.report
        for place, entry in enumerate(graded.report.criteria)
        if entry.was_asked and not entry.not_applicable
    }
    if any(is_of_cascade(entry) for entry in entries.values()):
        raise ValueError(
            "`cheap` was graded by a cascade, which has the cheap judge's answer only where it is sure: grade the rows "
            "by the cheap judge alone; with the same ledger, it finds its answers there"
        )
    usable = {place: entry for place, entry in entries.items() if not entry.trained_on}
    signal: Signal = "none"
    if any(entry.confidence is not None for entry in usable.values()):
        signal = "confidence"
    elif any(entry.votes for entry in usable.values()):
        signal = "agreement"
    confidences = {
        place: _confidence(entry, signal)
        for place, entry in usable.items()
        if signal != "confidence" or entry.confidence is not None or entry.error
    }
    return CheapAnswers(confidences, signal, len(usable) - len(confidences), len(entries) - len(usable))


def truths_of_labels(rows: Sequence[GradedRow], labels: Iterable[LabelledJudgment]) -> Truths:
    """Compare the answers of a run with people's labels.

    Raises:
        ChosenLabelsError: All labels were chosen by people.
        ValueError: Labels were drawn by the judge's verdict.
    """
    matched = match_labels(rows, labels)
    matches = matched.matches
    if not all(match.is_random for match in matches):
        raise ValueError(
            "labels were drawn by the judge's verdict: they are not as the run is, so that a bound on its errors would "
            "not hold; draw judgments with `choose_for_labels(run, count)`"
        )
    places = {
        (match.row, place): match
        for match in matches
        for place, entry in enumerate(_entries(rows[match.row]))
        if entry is match.judged
    }
    wrong = {place: _differs(match) for place, match in places.items() if match.consensus is not None}
    return Truths(wrong, len(matches) - len(wrong), len(matched.unmatched))


def truths_of_run(rows: Sequence[GradedRow], strong: Sequence[GradedRow]) -> Truths:
    """Compare the answers of a run with those of an expensive judge, on the rows that it has graded.

    Raises:
        ValueError: Rows with equal ids have different responses, or a cascade gave some of the answers.
    """
    if any(is_of_cascade(entry) for row in strong for entry in _entries(row)):
        raise ValueError(
            "`truth` was graded by a cascade, whose answers are the cheap judge's where it is sure: these would all "
            "seem right; grade a random sample of the rows by the expensive judge alone"
        )
    wrong: dict[Place, bool] = {}
    unknown = unmatched = 0
    by_identity = {id(row): index for index, row in enumerate(rows)}
    runs = [RunFile("cheap", None, None, rows), RunFile("strong", None, None, strong)]
    for (row_id, _), (cheap_row, strong_row) in matched_rows(runs):
        if strong_row is None:
            continue
        if cheap_row is None:
            unmatched += len(_entries(strong_row))
            continue
        if _response(cheap_row) != _response(strong_row) and None not in (_response(cheap_row), _response(strong_row)):
            raise ValueError(
                f"row {row_id!r} is another response in the run of the expensive judge: rows are paired by their ids, "
                "so grade the same rows by both judges"
            )
        index = by_identity[id(cheap_row)]
        places = _places_by_words(cheap_row)
        for entry in _entries(strong_row):
            place = places.get((entry.name, entry.requirement))
            if place is None:
                unmatched += 1
            elif not entry.was_judged:
                unknown += 1
            else:
                wrong[index, place] = entry.verdict != _entries(cheap_row)[place].verdict
    return Truths(wrong, unknown, unmatched)


def _confidence(entry: CriterionReport, signal: Signal) -> float | None:
    """Return how sure an answer is; None if a cascade never keeps it."""
    if entry.value is None or entry.error:
        return None
    if signal == "confidence":
        # A threshold of 0 would keep answers without a confidence, too.
        return entry.confidence or None
    differs = any(vote.error or vote.verdict != entry.verdict for vote in entry.votes)
    return None if differs else 1.0


def _differs(match: Match) -> bool:
    return match.judge_answer != match.consensus


def _entries(row: GradedRow) -> Sequence[CriterionReport]:
    return row.report.criteria if row.report else ()


def _response(row: GradedRow) -> str | None:
    return row.submission.response if row.submission else None


def _places_by_words(row: GradedRow) -> Mapping[tuple[str, str], int]:
    words = [(entry.name, entry.requirement) for entry in _entries(row)]
    counts = Counter(words)
    return {pair: place for place, pair in enumerate(words) if counts[pair] == 1}
