"""Matches human labels with the judgments of a run, and computes figures from the confusion table of a criterion.

The rows of a table are the human answers, and its columns are the judge's answers. A table has counts or weights.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow, RunFile, expected_rows, import_notes, is_run_file, read_run
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring.judgment import to_judgment
from rubric_integrations.scoring.labels import LabelledJudgment, has_digest, index_by_digest, rater_key, same_text
from rubric_integrations.scoring.report import NOT_APPLICABLE, CriterionReport, EvaluationReport
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory
from rubric_integrations.trust.means import FEW_GROUPS, FEWEST_GROUPS, Groups, number_groups, select_groups
from rubric_integrations.trust.statistics import Matrix

_Parts = tuple[str, ...]
# A label may lack these parts. For example, a report page does not export documents.
_OPTIONAL_PARTS = ("query", "reference", "context", "trajectory")


def _parts_of(submission: Submission) -> _Parts:
    """Return the names of the parts that identify a submission, without the parts that it lacks."""
    return ("response", *(name for name in _OPTIONAL_PARTS if getattr(submission, name)))


def _text_of(submission: Submission, parts: _Parts) -> tuple[object, ...]:
    values = (getattr(submission, name) for name in parts)
    return tuple(
        value if isinstance(value, tuple) else value.digest if isinstance(value, Trajectory) else same_text(value)
        for value in values
    )


def may_be(submission: Submission | None, label: LabelledJudgment) -> bool:
    """Whether a row's submission can be the labelled submission: it has all parts of the label, with equal texts.

    Parts that the label lacks are ignored. A row without a submission can be any submission. For a label with a digest,
    the digest decides.
    """
    if submission is None:
        return True
    if label.digest is not None:
        return has_digest(submission, label.digest)
    parts = _parts_of(label.submission)
    return _text_of(submission, parts) == _text_of(label.submission, parts)


class RowsByText:
    """An index of the rows of a run by the texts of their submissions."""

    def __init__(self, rows: Sequence[GradedRow]):
        self._submissions = [(index, row.submission) for index, row in enumerate(rows) if row.submission is not None]
        # One index for each combination of parts that labels have. Sixteen combinations are possible.
        self._first: dict[_Parts, dict[tuple[object, ...], int | None]] = {}

    def find(self, label: LabelledJudgment) -> int | None:
        """Return the index of the first row with the label's submission, or None if no row has it.

        Parts that the label lacks, such as the context, are not compared. If the matching rows differ in these parts,
        the result is also None.
        """
        submission = label.submission
        if label.digest is not None:
            return self._by_digest.get(label.digest)
        parts = _parts_of(submission)
        if parts not in self._first:
            self._first[parts] = self._index(parts)
        return self._first[parts].get(_text_of(submission, parts))

    @cached_property
    def _by_digest(self) -> dict[str, int | None]:
        return index_by_digest(self._submissions)

    def _index(self, parts: _Parts) -> dict[tuple[object, ...], int | None]:
        first: dict[tuple[object, ...], int | None] = {}
        whole: dict[tuple[object, ...], tuple[object, ...]] = {}
        for index, submission in self._submissions:
            key, everything = _text_of(submission, parts), _text_of(submission, ("response", *_OPTIONAL_PARTS))
            first.setdefault(key, index)
            if whole.setdefault(key, everything) != everything:
                first[key] = None
        return first


class ChosenLabelsError(ValueError):
    """Raised if every label has `sampled="chosen"`, which means that annotators selected the judgments themselves.

    Such labels are not a sample of the run. Figures about the judge cannot be estimated from them.
    """


@dataclass(frozen=True)
class Match:
    """One judgment of a run with its human labels.

    Attributes:
        row: The index of the row in the run.
        criterion: The criterion.
        judged: The report's entry with the judge's answer.
        labels: One label of each rater. If a rater labelled the judgment twice, this is the later label.
    """

    row: int
    criterion: Criterion
    judged: CriterionReport
    labels: tuple[LabelledJudgment, ...]

    @cached_property
    def answers(self) -> list[str]:
        """The raters' answers in the form in which answers are compared, including abstentions."""
        return [answer for answer, _ in self._answers_and_values]

    @cached_property
    def judge_answer(self) -> str | None:
        """The judge's answer in the form in which answers are compared.

        None if the judge failed, or if the judgment was not requested.
        """
        verdict = self.judged.verdict
        return None if verdict is None or self.judged.error is not None else canonical_answer(self.criterion, verdict)

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of each answer among the raters who could assess the submission. Empty without such a rater."""
        counts = Counter(answer for answer, value in self._answers_and_values if value is not None)
        return {answer: count / counts.total() for answer, count in counts.items()}

    @cached_property
    def people_values(self) -> list[float]:
        """The values of the raters' answers, in [0, 1], without abstentions."""
        return [value for _, value in self._answers_and_values if value is not None]

    @property
    def people_value(self) -> float | None:
        """The mean of `people_values`, or None if no rater could assess the submission."""
        values = self.people_values
        return sum(values) / len(values) if values else None

    @property
    def assessed(self) -> float:
        """The share of the raters who could assess the submission."""
        return len(self.people_values) / len(self.labels)

    @property
    def right(self) -> float | None:
        """The share of the raters who give the judge's answer, among the raters who could assess the submission.

        None if no rater could assess it, or if the judge abstained or failed.
        """
        answer, shares = self.judge_answer, self.shares
        return shares.get(answer, 0.0) if answer is not None and self.judged.value is not None and shares else None

    @cached_property
    def _answers_and_values(self) -> list[tuple[str, float | None]]:
        judgments = [to_judgment(self.criterion, label.verdict) for label in self.labels]
        return [(canonical_answer(self.criterion, judgment.verdict), judgment.value) for judgment in judgments]

    @property
    def is_random(self) -> bool:
        """Whether the judgment was drawn at random, by all its labels. False if it was drawn by the judge's verdict."""
        return all(label.sampled == "random" for label in self.labels)

    @cached_property
    def consensus(self) -> str | None:
        """The most frequent answer of the raters, or None if several answers are equally frequent."""
        return consensus_of(self.answers)


class Matches(NamedTuple):
    """The result of matching labels with the judgments of a run.

    Attributes:
        matches: The judgments with labels, in the order of the run.
        unmatched: The labels that belong to no judgment of the run.
        chosen: The labels of judgments that annotators selected themselves. They are left out.
        trained_on: The labels that were used to align the judge. They are left out.
        copies: The number of labels without a rater that are left out, because they repeat earlier labels.
        of_other_texts: The number of unmatched labels that have the `id` of a row but belong to another text.
        notes: Notes for the figures: what could not be read of an imported run, and who the raters seem to be.
    """

    matches: list[Match]
    unmatched: list[LabelledJudgment]
    chosen: list[LabelledJudgment]
    trained_on: list[LabelledJudgment]
    copies: int = 0
    of_other_texts: int = 0
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> list[LabelledJudgment]:
        """The labels of all matches."""
        return [label for match in self.matches for label in match.labels]

    @property
    def warnings(self) -> list[str]:
        """Limitations of figures from these labels, such as labels that are left out or are not blind."""
        warnings = [*self.notes, *([chosen_warning(len(self.chosen))] if self.chosen else [])]
        if self.trained_on:
            warnings.append(
                f"the judge was aligned with {len(self.trained_on):,} of the labels: they say nothing about it, and "
                "are left out"
            )
        if self.of_other_texts:
            warnings.append(
                f"{self.of_other_texts:,} labels are about other texts than the rows with their ids: they do not count"
            )
        if self.copies:
            warnings.append(
                f"{self.copies:,} labels without a rater repeat earlier labels and do not count: if they are of "
                "another person, give each label its `rater`"
            )
        labels = self.labels
        if seen := sum(not label.blind for label in labels):
            warnings.append(
                f"{seen:,} of {len(labels):,} labels are not marked as blind: raters who see the judge's answer tend "
                "to agree with it"
            )
        return warnings


def answers_of(criterion: Criterion, labels: Iterable[LabelledJudgment]) -> list[str]:
    """Return raters' answers to a criterion in the form in which answers are compared, including abstentions."""
    return [canonical_answer(criterion, to_judgment(criterion, label.verdict).verdict) for label in labels]


def consensus_of(answers: Sequence[str]) -> str | None:
    """Return the most frequent answer, or None if several answers are equally frequent."""
    counts = Counter(answers).most_common(2)
    return counts[0][0] if len(counts) == 1 or counts[0][1] > counts[1][1] else None


def labels_by_rater(labels: Iterable[LabelledJudgment]) -> tuple[LabelledJudgment, ...]:
    """Return the last label of each rater on one judgment, and all labels without a rater."""
    of_raters: dict[str | int, LabelledJudgment] = {}
    for number, label in enumerate(labels):
        rater = number if label.rater is None else label.rater
        of_raters[rater] = label.replacing(of_raters.pop(rater, None))
    return tuple(of_raters.values())


def match_labels(rows: Sequence[GradedRow], labels: Iterable[LabelledJudgment]) -> Matches:
    """Match each label with the judgment of the same submission on a criterion with the same requirement.

    A label with the `id` of a row belongs to this row if the submission is the same. In a run without submissions, only
    the id is compared.

    A label without a known `id` belongs to the first row with the same submission. Therefore, if several rows have
    equal texts, their labels need ids. Otherwise all these labels count for the first of the rows. Parts that the
    label's submission lacks, such as the context, are not compared. If the matching rows differ in these parts, the
    label is unmatched.

    If one rater labelled a judgment several times, the last label counts. Names that differ only in case or white space
    are of one rater, with a warning. Labels without a rater count as labels of different raters. They are left out if
    they only repeat the verdicts of earlier labels, as in a file that is read twice.

    Labels with `sampled="chosen"` are left out. The remaining labels are still a random sample. Therefore, one file may
    contain both kinds of labels. Labels that were used to align the judge are also left out. The remaining labels are
    then a random sample of the judgments that were not used for the alignment.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`.
        ValueError: The judge was aligned with all labels that belong to the run.
    """
    labels, notes = _unify_raters(labels)
    require_drawn(labels)
    by_id: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_id.setdefault(row.id, []).append(index)
    by_text = RowsByText(rows)
    by_judgment: dict[tuple[int, int], list[LabelledJudgment]] = {}
    unmatched: list[LabelledJudgment] = []
    of_other_texts = 0
    for label in labels:
        of_id = by_id.get(label.id, []) if label.id is not None else []
        if of_id:
            place = next((index for index in of_id if may_be(rows[index].submission, label)), None)
            of_other_texts += place is None
        else:
            place = by_text.find(label)
        entry = None if place is None else _entry_of(rows[place].report, label.criterion)
        if place is None or entry is None:
            unmatched.append(label)
            continue
        by_judgment.setdefault((place, entry), []).append(label)
    copies = _remove_copies(by_judgment.values())
    matches: list[Match] = []
    chosen: list[LabelledJudgment] = []
    trained_on: list[LabelledJudgment] = []
    for (place, entry), all_labels in sorted(by_judgment.items(), key=lambda item: item[0]):
        report, of_judgment = rows[place].report, labels_by_rater(all_labels)
        if report is not None and report.criteria[entry].trained_on:
            trained_on.extend(of_judgment)
            continue
        drawn = tuple(label for label in of_judgment if label.sampled != "chosen")
        chosen.extend(label for label in of_judgment if label.sampled == "chosen")
        if report is not None and drawn:
            matches.append(Match(place, drawn[0].criterion, report.criteria[entry], drawn))
    if trained_on and not matches:
        raise ValueError(
            f"the judge was aligned with all {len(trained_on):,} labels that belong to this run: they say nothing "
            "about it; label other judgments, which `choose_for_labels` draws"
        )
    notes = (*import_notes(rows), *notes, *_judge_as_rater_warnings(rows, matches))
    return Matches(matches, unmatched, chosen, trained_on, copies, of_other_texts, notes)


def _unify_raters(labels: Iterable[LabelledJudgment]) -> tuple[list[LabelledJudgment], list[str]]:
    """Give all labels of a rater the first spelling of the name, and return a warning for each other spelling."""
    first: dict[str, str] = {}
    others: dict[str, str] = {}
    unified: list[LabelledJudgment] = []
    for label in labels:
        rater = label.rater
        name = None if rater is None else first.setdefault(rater_key(rater), rater)
        if rater is not None and name is not None and rater != name:
            others[rater] = name
        unified.append(label if rater == name else label.model_copy(update={"rater": name}))
    return unified, [f"the raters {name!r} and {other!r} are counted as one rater" for other, name in others.items()]


_FEWEST_EQUAL, _MOST_EQUAL = 30, 0.99


def _judge_as_rater_warnings(rows: Sequence[GradedRow], matches: Sequence[Match]) -> list[str]:
    """Return a warning for each rater whose labels seem to be the judge's own answers."""
    models: set[str] = set()
    are_equal: dict[str | None, list[bool]] = {}
    for match in matches:
        if match.judged.computed or match.judge_answer is None:
            continue
        recorded = (rows[match.row].scoring or {}).get("grader") or {}
        for model in (*recorded.get("names", ()), *([match.judged.model] if match.judged.model else [])):
            models |= {rater_key(model), rater_key(model.rpartition("/")[2])}
        for label, answer in zip(match.labels, match.answers, strict=True):
            are_equal.setdefault(label.rater, []).append(answer == match.judge_answer)
    warnings: list[str] = []
    for rater, equal in are_equal.items():
        whose = "without a rater" if rater is None else f"of {rater!r}"
        if rater is not None and {rater_key(rater), rater_key(rater.rpartition("/")[2])} & models:
            warnings.append(f"the rater {rater!r} is the run's judge: its own answers say nothing about it")
        elif len(equal) >= _FEWEST_EQUAL and sum(equal) > _MOST_EQUAL * len(equal):
            warnings.append(
                f"{sum(equal):,} of {len(equal):,} labels {whose} equal the judge's answers: if they were copied from "
                "the run, they say nothing about the judge"
            )
    return warnings


def _remove_copies(judgments: Iterable[list[LabelledJudgment]]) -> int:
    """Remove labels without a rater that repeat earlier labels, and return their number.

    The n-th label without a rater of each judgment counts as a label of the n-th unnamed rater. An unnamed rater's
    labels are removed if all their verdicts repeat the verdicts of one earlier unnamed rater.
    """
    unnamed = [(labels, [label for label in labels if label.rater is None]) for labels in judgments]
    most = max((len(own) for _, own in unnamed), default=0)
    copied = [
        number
        for number in range(1, most)
        if any(
            all(_is_copy(own[number], own[earlier]) for _, own in unnamed if len(own) > number)
            for earlier in range(number)
        )
    ]
    removed = 0
    for labels, own in unnamed:
        kept = [label for number, label in enumerate(own) if number not in copied]
        if len(kept) < len(own):
            labels[:] = [*(label for label in labels if label.rater is not None), *kept]
            removed += len(own) - len(kept)
    return removed


def _is_copy(label: LabelledJudgment, earlier: LabelledJudgment) -> bool:
    return (label.verdict, label.sampled) == (earlier.verdict, earlier.sampled)


def criterion_keys(criteria: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the key that results use for each criterion: its name, if no other criterion has the same name.

    Otherwise the key is the requirement, or the name and the requirement if the requirement is not unique either.

    Args:
        criteria: The name and the requirement of each criterion.
    """
    names, requirements = (Counter(parts) for parts in ([pair[place] for pair in criteria] for place in (0, 1)))
    return {
        (name, words): name if names[name] == 1 else words if requirements[words] == 1 else f"{name}: {words}"
        for name, words in criteria
    }


def group_matches(matches: Iterable[Match]) -> dict[str, list[Match]]:
    """Group labelled judgments by their criterion.

    The key is the criterion's name. If several criteria have this name, the key is the requirement, or the name and the
    requirement if another criterion has this requirement.
    """
    groups: dict[tuple[str, str], list[Match]] = {}
    for match in matches:
        groups.setdefault((match.judged.name, match.judged.requirement), []).append(match)
    keys = criterion_keys(groups)
    return {keys[pair]: of_criterion for pair, of_criterion in groups.items()}


def judged_rows(rows: Sequence[GradedRow], match: Match) -> dict[int, str]:
    """Return the judge's verdicts on the criterion of a match, by the index of the row in the run.

    CANNOT_ASSESS is included. Failures, criteria that do not apply, and judgments that were used to align the judge are
    left out.
    """
    words = (match.judged.name, match.judged.requirement)
    return {
        index: canonical_answer(match.criterion, entry.verdict)
        for index, row in enumerate(rows)
        for entry in (row.report.criteria if row.report else ())
        if (entry.name, entry.requirement) == words and not entry.trained_on
        if entry.verdict is not None and entry.was_judged
    }


def require_drawn(labels: Collection[LabelledJudgment]) -> None:
    """Check that at least one label is of a judgment that was drawn, at random or by the judge's verdict.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`.
    """
    if labels and all(label.sampled == "chosen" for label in labels):
        raise ChosenLabelsError(
            f"every label is `chosen` ({len(labels):,} in all), because its `sampled` says so or is missing: labels of "
            "judgments that somebody looked for would make the judge seem worse or better than it is. If the rows were "
            "drawn at random, write 'random' as `sampled` of each label (a column of the file); otherwise draw what to "
            "read with `choose_for_labels` (`rubric-integrations label`)"
        )


def chosen_warning(count: int) -> str:
    """Return the warning that `count` labels with `sampled="chosen"` are left out."""
    return (
        f"`chosen` labels are left out ({count:,}): raters looked for these judgments, so that they say nothing about "
        "how often the judge is right"
    )


def _entry_of(report: EvaluationReport | None, criterion: Criterion) -> int | None:
    entries = report.criteria if report else ()
    same = [index for index, entry in enumerate(entries) if entry.requirement == criterion.full_requirement]
    # The same requirement with other options is another question.
    same = [index for index in same if _is_answer(criterion, entries[index].verdict)]
    # If a requirement occurs twice in a rubric, the name decides.
    named = [index for index in same if criterion.name is not None and entries[index].name == criterion.name]
    return next(iter(named or same), None)


def _is_answer(criterion: Criterion, verdict: str | None) -> bool:
    try:
        return verdict in (None, NOT_APPLICABLE) or bool(to_judgment(criterion, verdict))
    except ValueError:
        return False


def canonical_answer(criterion: Criterion, verdict: str) -> str:
    """Return an answer in the form in which answers are compared: the answer itself, with one exception.

    For a criterion that counts occurrences up to a `cap`, a larger number becomes the `cap`.
    """
    is_number = criterion.cap is not None and verdict.replace(".", "", 1).isdigit()
    return f"{min(float(verdict), criterion.cap or 0):g}" if is_number else verdict


RunLike = str | Path | RunFile | Iterable[Any]
"""A run: the path of a file that `grade --out` wrote, a `RunFile`, results of `grade_many`, or reports."""


def as_run(run: RunLike, name: str = "the run", *, in_memory: bool = False) -> RunFile:
    """Return a run as a `RunFile`, with an `IncompleteRunWarning` if it has missing rows.

    The id of the row of a report is the report's position, from 1.

    Args:
        run: The run.
        name: The name of the result if the run has no file. Otherwise the result has the name of the file.
        in_memory: Whether the rows of the result are a list. If not, rows of a file are read when they are needed.

    Raises:
        RunFileError: A file is not a run.
        TypeError: An item is neither a result nor a report.
    """
    if isinstance(run, str | Path):
        run = read_run(Path(run), in_memory=in_memory)
    else:
        if not isinstance(run, RunFile):
            results = list(run)
            rows = [_as_row(item, number) for number, item in enumerate(results, start=1)]
            expected = expected_rows(getattr(result, "run", None) for result in results)
            run = RunFile(name, None, None, rows, expected=expected)
        run.warn_if_incomplete()
    return run._replace(rows=list(run.rows)) if in_memory else run


def read_rows(run: RunLike) -> Sequence[GradedRow]:
    """Return the rows of a run, in memory (see `as_run`)."""
    return as_run(run, in_memory=True).rows


def same_submission(one: GradedRow, other: GradedRow) -> bool | None:
    """Whether two rows have the same response, with equal other parts. None if one of the rows has no text.

    Parts that one of the submissions lacks, such as the query, are not compared.
    """
    first, second = one.submission, other.submission
    if first is None or second is None:
        return None
    if any(
        same_text(getattr(first, name)) != same_text(getattr(second, name)) for name in ("response", "shown_thinking")
    ):
        return False
    pairs = [(getattr(first, name), getattr(second, name)) for name in _OPTIONAL_PARTS]
    pairs.append((one.attachments, other.attachments))
    return all(
        same_text(a) == same_text(b) if isinstance(a, str) and isinstance(b, str) else a == b
        for a, b in pairs
        if a and b
    )


def complete_score(row: GradedRow) -> float | None:
    """Return the score of a row, or None if it has no score or the judge failed on a criterion.

    A score with a fallback value for a failed criterion does not count.
    """
    return None if row.report is None or row.report.failed_count else row.report.score


Cluster = str | Callable[[str], Hashable]
"""How to group rows that depend on each other: `"id"`, `"query"`, a key of `metadata` (a column of the graded table),
or a function that gets a row's id. Rows with equal values are a group.

Several samples of one prompt (`GradedRow.group`) are one group, also without a `cluster`."""


def group_rows(rows: Sequence[GradedRow], cluster: Cluster | None) -> Groups | None:
    """Return the group of each row, or None if the rows are independent.

    The samples of one prompt always belong to the same group: a `cluster` groups them by the value of the first one.
    Without a `cluster`, every other row is its own group.

    Raises:
        ValueError: `cluster` is a column, and a row has no value in it.
    """
    firsts = dict[str, int]()
    places = [
        place if row.group is None else firsts.setdefault(row.group, place) for place, row in enumerate(rows)
    ]  # fmt: skip
    if cluster is not None:
        return number_groups([_cluster_key(rows[place], cluster) for place in places])
    return select_groups(number_groups(places), range(len(rows)))


def dependence_warnings(rows: Sequence[GradedRow], cluster: Cluster | None) -> list[str]:
    """Return a warning if rows have equal ids or queries, but `cluster` is not set. Otherwise the list is empty.

    Such rows depend on each other, and intervals for independent rows are too narrow. There is no warning about the
    samples of one prompt, which are a group without a `cluster`.

    There is no warning about queries if all rows have the same query: the run is about this query, and its rows are
    independent. If 2 to half of the rows have the same context or reference, they may depend on each other. They are
    never grouped by it.
    """
    if cluster is not None:
        return []
    rows = list({place if row.group is None else row.group: row for place, row in enumerate(rows)}.values())
    for name in ("id", "query"):
        counts = Counter(key for row in rows if (key := _cluster_key(row, name)) is not None)
        if 1 < len(counts) < counts.total():
            key, most = counts.most_common(1)[0]
            shown = reprlib.repr(key)
            return [
                f"{counts.total():,} rows have {len(counts):,} different values of `{name}`, such as {shown} on {most} "
                f"rows: such rows depend on each other, so that the intervals are too narrow; pass cluster={name!r} "
                f"(in the shell --cluster {name})"
            ]
    return [warning for name in ("context", "reference") if (warning := _shared_text_warning(rows, name))]


# Characters. Shorter references, such as "yes" or "B", are equal without saying anything about their rows.
_SHARED_TEXT = 40


def _shared_text_warning(rows: Sequence[GradedRow], name: str) -> str | None:
    """Return a warning if 2 to half of the rows have the same context or the same reference."""
    counts = Counter(
        value
        for row in rows
        if row.submission and len("".join(value := getattr(row.submission, name) or "")) >= _SHARED_TEXT
    )
    shared = [count for count in counts.values() if 2 <= count <= len(rows) / 2]
    if not shared:
        return None
    return (
        f"{sum(shared):,} of {len(rows):,} rows share their `{name}` with other rows, at most {max(shared):,} the "
        "same: if such rows depend on each other, the intervals are too narrow; add a column that names the group, and "
        "pass it as `cluster` (in the shell --cluster)"
    )


def group_warnings(groups: Groups | None) -> list[str]:
    """Return a warning if there are too few groups for an interval, or if few groups make the interval wide."""
    count = 0 if groups is None else len(np.unique(groups))
    if groups is None or count >= FEW_GROUPS:
        return []
    if count < FEWEST_GROUPS:
        return [
            f"too few groups ({count:,}): the figures have no interval, which needs {FEWEST_GROUPS} groups; label rows "
            "of more groups"
        ]
    return [f"few groups ({count:,}): the intervals are wide; {FEW_GROUPS} groups or more make them narrower"]


def _cluster_key(row: GradedRow, cluster: Cluster) -> Hashable:
    """Return the value by which a row is grouped with dependent rows."""
    if callable(cluster):
        return cluster(row.id)
    if cluster == "id":
        return row.id
    if cluster == "query":
        return row.submission.query if row.submission else None
    metadata = row.metadata or {}
    if cluster not in metadata:
        known = ", ".join(f"`{name}`" for name in ("id", "query", *metadata))
        raise ValueError(
            f"`cluster` is {cluster!r}, and the row {row.id!r} has no such column: it has {known}. In a run, the tasks "
            "are in `query` and the ids in `id`, whatever their names in the table that was graded; its further "
            "columns are in `metadata`"
        )
    value: object = metadata[cluster]
    return value if isinstance(value, Hashable) else repr(value)


def is_trained_on(row: GradedRow) -> bool:
    """Whether a label of one of the row's judgments was used to align the judge.

    The judge makes fewer errors on such rows. Therefore, they are left out of estimates.
    """
    return row.report is not None and any(entry.trained_on for entry in row.report.criteria)


def is_run(value: object) -> bool:
    """Whether a value is a run (results, reports or a run's file) and not a rubric. A path's file is inspected."""
    if isinstance(value, str | Path):
        return is_run_file(Path(value))
    if isinstance(value, Rubric | Mapping | PathLike):
        return False
    if isinstance(value, list | tuple) and not isinstance(value, RunFile):
        return any(isinstance(item, GradedRow | EvaluationReport | Graded) for item in value[:1])
    return isinstance(value, Iterable)


def _as_row(item: Any, number: int) -> GradedRow:
    if isinstance(item, GradedRow):
        return item
    if isinstance(item, EvaluationReport):
        return GradedRow(str(number), None, item, item.error)
    if not hasattr(item, "to_dict"):
        raise TypeError(
            f"a run must have reports or results of `grade_many`, got {type(item).__name__}: pass the path of a file "
            "that `grade --out` wrote, a list of `Graded`, or a list of reports"
        )
    return RunFile.of("run", [item]).rows[0]


# A scale with more numbers has no confusion table, because nearly all cells would be empty.
_MAX_LEVELS = 21


class VerdictAgreement(NamedTuple):
    """Precision, recall and F1 of one answer, such as MET, with the human labels as the truth.

    Attributes:
        precision: Among the judgments to which the judge gives this answer, the share on which the human labels agree.
            None if the judge never gives this answer.
        recall: Among the human labels with this answer, the share on which the judge also gives it. None if no rater
            gives this answer.
        f1: The harmonic mean of precision and recall. None if both are undefined.
        support: The number of human labels with this answer.
    """

    precision: float | None
    recall: float | None
    f1: float | None
    support: int


def answer_levels(criterion: Criterion) -> list[str]:
    """Return the possible answers to a criterion, without abstentions.

    Answers that have an order are sorted by their value, the lowest first. The list is empty for a scale with decimals
    or with more than 21 numbers.
    """
    if criterion.kind == "binary":
        return ["UNMET", "MET"]
    if criterion.options is not None:
        in_order = sorted(criterion.choices, key=lambda option: option.value)
        return [option.label for option in (in_order if criterion.kind == "ordinal" else criterion.choices)]
    scale = criterion.scale
    if scale is None or not scale.integer or scale.max - scale.min >= _MAX_LEVELS:
        return []
    return [f"{number:g}" for number in range(int(scale.min), int(scale.max) + 1)]


def verdict_agreement(weighted: Matrix, table: Matrix, place: int, support: int) -> VerdictAgreement:
    """Compute precision, recall and F1 of one answer.

    Args:
        weighted: The confusion table, weighted if its labels were drawn by the judge's verdict.
        table: The confusion table without weights.
        place: The index of the answer in the table.
        support: The number of human labels with this answer.
    """
    right, judge, people = weighted[place, place], weighted[:, place].sum(), weighted[place].sum()
    column = table[:, place].sum()  # a column has one verdict of the judge, so weights do not change the precision
    precision = float(table[place, place] / column) if column else None
    recall = float(right / people) if people else None
    f1 = float(2 * right / (judge + people)) if judge + people else None
    return VerdictAgreement(precision, recall, f1, support)


def phi_coefficient(table: Matrix) -> float | None:
    """Compute the Matthews correlation of a 2 x 2 table, or None if a row or a column is empty."""
    divisor = float(np.prod([table.sum(axis=0), table.sum(axis=1)])) ** 0.5
    return float(table[0, 0] * table[1, 1] - table[0, 1] * table[1, 0]) / divisor if divisor else None


def adjacent_share(table: Matrix) -> float | None:
    """Compute the share of judgments on which the human answer and the judge's answer are equal or neighbours.

    The rows and columns of the table must be in the order of the answers' values.

    None for an empty table.
    """
    places = np.arange(len(table))
    near = np.abs(np.subtract.outer(places, places)) <= 1
    return float(table[near].sum() / table.sum()) if table.sum() else None


def chance_agreement(table: Matrix) -> float | None:
    """Compute the share of equal answers that is expected by chance.

    It is computed from the frequencies of the human answers and of the judge's answers, as if both were independent.

    None for an empty table.

    Example:
        >>> chance_agreement(np.array([[81.0, 9.0], [9.0, 1.0]]))
        0.82
    """
    total = float(table.sum())
    return float(table.sum(axis=0) @ table.sum(axis=1)) / total**2 if total else None
