"""`check_separation`: how far a rubric separates better from worse answers, and what each of its criteria adds.

The answers are pairs, or answers with labels, of which each is paired with at most one answer that has another label.
The figures of the rubric are those of `trust/separation.py`, with its intervals. The number of words alone is compared
in the direction that fits the same pairs better, which favours it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rubric_integrations._util.json import read_json_lines
from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import percent
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.graders import Grader
from rubric_integrations.judges.spend import Prices
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.rubric import Rubric, require_grader
from rubric_integrations.runs.ledger import use_ledger
from rubric_integrations.scoring.judgment import Spend
from rubric_integrations.scoring.labels import NO_TEXT, has_digest, submission_digest
from rubric_integrations.scoring.length import word_count
from rubric_integrations.scoring.report import CriterionReport, EvaluationReport
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.asked_again import ask_repeatedly
from rubric_integrations.trust.draft_sources import (
    AnswerPair,
    FeedbackLike,
    LabelledAnswer,
    PairsLike,
    pair_answers,
    read_feedback,
    read_pairs,
    split_source,
)
from rubric_integrations.trust.labels import read_labels
from rubric_integrations.trust.means import Groups, number_groups
from rubric_integrations.trust.separation import (
    REDUNDANT,
    PairCounts,
    Separation,
    count_pairs,
    longer_answers_win,
    measure_separation,
)
from rubric_integrations.trust.statistics import ROUNDING

AnswerSource = Literal["pairs", "labels"]

FEWEST_ANSWERS = 30
"""With fewer answers, a criterion has counts and no verdict."""


class CriterionUse(Record):
    """The answers to one criterion, over all answers that were graded.

    Attributes:
        counts: How the criterion orders the pairs.
        judged: The number of answers with a value.
        abstained: The number of abstentions.
        failed: The number of answers on which the judge failed.
        constant: The verdict, if all values are equal and at least 30 answers have one. Otherwise None.
    """

    counts: PairCounts
    judged: int
    abstained: int
    failed: int
    constant: str | None


class RedundantPair(NamedTuple):
    """Two criteria whose answers correlate with at least 0.8, or at most -0.8, over at least 30 answers.

    Attributes:
        first: The name of a criterion.
        second: The name of the other criterion.
        correlation: The correlation of their values.
        answers: The number of answers with a value of both.
    """

    first: str
    second: str
    correlation: float
    answers: int

    def __str__(self) -> str:
        return (
            f"`{self.first}` and `{self.second}` are redundant: their correlation is {self.correlation:.2f} over "
            f"{self.answers:,} answers"
        )


class SeparationReport(Record):
    """The result of `check_separation`.

    Attributes:
        source: Whether the answers were pairs or had labels.
        separation: How the rubric orders the pairs, next to length alone.
        criteria: The answers to each criterion, by its name.
        redundant: The pairs of redundant criteria.
        answers: The number of answers that were graded.
        failed: The number of answers on which the judge failed, or that were not graded.
        spend: The calls, tokens and cost.
        stopped: Why not all answers were graded, or None.
        is_unusable: Whether the judge could not be used.
    """

    source: AnswerSource
    separation: Separation
    criteria: dict[str, CriterionUse]
    redundant: tuple[RedundantPair, ...]
    answers: int
    failed: int
    spend: Spend
    stopped: str | None = None
    is_unusable: bool = False

    @property
    def headline(self) -> str:
        """The decision in one sentence, or the counts and the reason for no verdict."""
        if self.separation.decision == "no verdict":
            return f"No verdict: {self.separation.reason}. Pairs: {self.separation.counts}."
        return self.separation.headline

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is conspicuous about the criteria, one sentence each."""
        constant = [(name, row.constant) for name, row in self.criteria.items() if row.constant is not None]
        return (
            *(f"`{name}` is always {verdict}: it separates nothing" for name, verdict in constant),
            *map(str, self.redundant),
        )

    def summary(self) -> str:
        """Return the results as text."""
        stopped = [f"Stopped: {self.stopped}."] if self.stopped else []
        rows = [f"{name}: {row.counts}; {row.abstained:,} abstentions" for name, row in self.criteria.items()]
        return "\n".join([self.headline, *stopped, *rows, *self.remarks])

    def table(self) -> list[tuple[str, ...]]:
        """Return the cells of a table with `USE_COLUMNS`, a row for each criterion."""
        return [
            (
                name, f"{row.counts.right:,}", f"{row.counts.wrong:,}", f"{row.counts.tied:,}",
                "-" if row.counts.share is None else f"{row.counts.share:.2f}",
                percent(row.abstained / total) if (total := row.judged + row.abstained) else "-",
                f"{row.failed:,}", "-" if row.constant is None else f"always {row.constant}",
            )
            for name, row in self.criteria.items()
        ]  # fmt: skip

    def _repr_html_(self) -> str:
        return html_table(self.summary(), USE_COLUMNS, self.table())


USE_COLUMNS = ("criterion", "right", "wrong", "tied", "share", "abstained", "failed", "remarks")
"""The columns of `SeparationReport.table`."""


class PairedAnswers(NamedTuple):
    """Pairs of answers in groups, and their distinct answers.

    Attributes:
        source: Whether the answers were pairs or had labels.
        pairs: The pairs.
        groups: The group of each pair, numbered from 0.
        answers: The distinct answers.
        places: For each pair, the places of the better and of the worse answer.
    """

    source: AnswerSource
    pairs: list[AnswerPair]
    groups: Groups
    answers: list[Submission]
    places: list[tuple[int, int]]


def read_answers(rubric: Rubric, pairs: PairsLike | None, labels: FeedbackLike | None) -> PairedAnswers:
    """Read pairs, or pair labelled answers.

    Args:
        rubric: The rubric. If `labels` is a file with human labels of its criteria, as for `agreement`, the label of an
            answer is the score of these verdicts.
        pairs: The pairs, or None.
        labels: The labelled answers, or None.

    Raises:
        ValueError: There are both or neither, a row is invalid, or no two answers have different labels.

    Example:
        >>> rows = [{"response": "It is 42.", "label": "good"}, {"response": "It is 41.", "label": "bad"}]
        >>> read_answers(Rubric([{"requirement": "Says 42"}]), None, rows).places
        [(0, 1)]
    """
    if pairs is not None and labels is None:
        read = read_pairs(pairs)
        return _distinct("pairs", read, split_source(read).groups)
    if labels is None or pairs is not None:
        raise ValueError(
            "pass either `pairs`, with a `better` and a `worse` answer, or `labels`, with a `response` and a `label`"
        )
    is_file = isinstance(labels, str | PathLike)
    answers = (
        _scored_by_people(Path(labels), rubric) if is_file and _has_verdicts(Path(labels)) else read_feedback(labels)
    )
    return _distinct("labels", *pair_answers(answers, split_source(answers).groups))


def _has_verdicts(path: Path) -> bool:
    """Whether a file has human labels of single criteria, as the command `label` writes them."""
    if path.suffix.lower() in (".csv", ".tsv"):
        return True
    try:
        _, first = next(iter(read_json_lines(path)))
    except (OSError, ValueError, StopIteration):
        return False  # `read_feedback` names the problem
    return isinstance(first, Mapping) and {"criterion", "verdict"} <= first.keys()


def _scored_by_people(path: Path, rubric: Rubric) -> list[LabelledAnswer]:
    """Return each answer with the score of its human labels. Answers without a label of each criterion are left out.

    Raises:
        ValueError: A label is invalid or has no text.
    """
    submissions: dict[str, Submission] = {}
    verdicts: dict[str, dict[str, list[str]]] = {}
    keys = {criterion.full_requirement: key for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)}
    for label in read_labels(path, rubric):
        if label.submission.response == NO_TEXT.response:
            raise ValueError(f"{path}: a label has no `response`: add the texts, because they are graded")
        digest, own = label.digest, label.submission
        digest = submission_digest(own) if digest is None or has_digest(own, digest) else digest
        submissions.setdefault(digest, label.submission)
        verdicts.setdefault(digest, {}).setdefault(keys[label.criterion.full_requirement], []).append(label.verdict)
    answers: list[LabelledAnswer] = []
    for number, (digest, submission) in enumerate(submissions.items(), start=1):
        of_answer = verdicts[digest]
        if len(of_answer) == len(rubric.criteria):
            score = rubric.compute_score([Counter(of_answer[key]).most_common(1)[0][0] for key in rubric.keys])
            answers.append(LabelledAnswer(id=str(number), submission=submission, label=score))
    return answers


def _distinct(source: AnswerSource, pairs: list[AnswerPair], groups: Sequence[int]) -> PairedAnswers:
    """Return pairs with their distinct answers, so each is graded once."""
    if not pairs:
        lacking = "there are no pairs" if source == "pairs" else "no two answers have different labels"
        raise ValueError(f"{lacking}: nothing can be separated")
    places: dict[str, int] = {}
    answers: list[Submission] = []
    paired: list[tuple[int, int]] = []
    for pair in pairs:
        both: list[int] = []
        for answer in (pair.better, pair.worse):
            place = places.setdefault(answer.model_dump_json(), len(answers))
            if place == len(answers):
                answers.append(answer)
            both.append(place)
        paired.append((both[0], both[1]))
    return PairedAnswers(source, pairs, number_groups(groups), answers, paired)


def check_separation(
    rubric: RubricLike,
    grader: Grader,
    *,
    pairs: PairsLike | None = None,
    labels: FeedbackLike | None = None,
    ledger: LedgerLike | None = None,
    max_concurrency: int = 64,
    max_cost: float | None = None,
    max_calls: int | None = None,
    prices: Prices | None = None,
    progress: bool = False,
) -> SeparationReport:
    """Measure how far a rubric separates better from worse answers.

    Below 30 independent groups of pairs, there are counts and no verdict. Answers to one query are a group.

    Args:
        rubric: The rubric.
        grader: The grader with the judge. With `on_failure="abstain"`, one lost answer does not lose the others.
        pairs: The path of a file of JSON Lines, or rows, with a `better` and a `worse` answer (or `chosen` and
            `rejected`), and a `query`.
        labels: The path of a file of JSON Lines, or rows, with a `response` and a `label` of the whole answer: good or
            bad, true or false, or a number from 0 to 1. Or a file with human labels of all criteria, as for
            `agreement`. Each answer is paired with at most one other answer.
        ledger: The store of the answers. An answer in it is not requested again.
        max_concurrency: The largest number of concurrent calls.
        max_cost: The largest cost in US dollars.
        max_calls: The largest number of calls to models.
        prices: The prices of models (see `grade_many`).
        progress: Whether to show a progress bar.

    Raises:
        ValueError: There are both pairs and labels or neither, a row is invalid, or no labels differ.
        RubricError: (a ValueError) The rubric is invalid.
        ImportError: scipy is not installed.

    Example:
        >>> from rubric_integrations import PerCriterionGrader
        >>> rubric = Rubric([{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}])
        >>> rows = [{"query": "6 x 7?", "better": "It is 42.", "worse": "It is 41."}]
        >>> check_separation(rubric, PerCriterionGrader("offline"), pairs=rows).headline
        'No verdict: 1 independent group of pairs, below 30. Pairs: 1 right, 0 wrong, 0 tied (share 1.00).'
    """
    tested = as_rubric(rubric).without_cases()
    paired = read_answers(tested, pairs, labels)
    require_grader(grader).check_rubric(tested)
    with use_ledger(ledger) if ledger is not None else nullcontext() as store:
        [asked_once] = ask_repeatedly(
            [(answer, tested) for answer in paired.answers], grader, 1, store=store, max_concurrency=max_concurrency,
            max_cost=max_cost, max_calls=max_calls, prices=prices, progress=progress,
        )  # fmt: skip
    reports = asked_once.reports
    scores = [None if report is None or report.failed_count else report.score for report in reports]
    lengths = [(word_count(pair.better.response), word_count(pair.worse.response)) for pair in paired.pairs]
    values = _values(tested, reports)
    places = np.array(paired.places)
    counts = count_pairs(values[places], [-1 if criterion.is_penalty else 1 for criterion in tested.criteria])
    return SeparationReport(
        source=paired.source,
        separation=measure_separation(
            [(scores[better], scores[worse]) for better, worse in paired.places],
            lengths,
            paired.groups,
            longer_is_better=longer_answers_win(lengths),
        ),
        criteria={
            key: _use(tested, place, reports, counts[place], values[:, place]) for place, key in enumerate(tested.keys)
        },
        redundant=tuple(redundant_pairs(values, tested.keys)),
        answers=sum(report is not None for report in reports),
        failed=sum(report is None or report.failed_count > 0 for report in reports),
        spend=asked_once.spend,
        stopped=asked_once.stopped,
        is_unusable=asked_once.is_unusable,
    )


def _values(rubric: Rubric, reports: Sequence[EvaluationReport | None]) -> Any:
    """Return the value of each criterion for each answer. NaN without a value."""
    values = np.full((len(reports), len(rubric.criteria)), np.nan)
    for row, report in enumerate(reports):
        for column, entry in enumerate(report.criteria if report else ()):
            if entry.was_judged and entry.value is not None:
                values[row, column] = entry.value
    return values


def _use(
    rubric: Rubric, place: int, reports: Sequence[EvaluationReport | None], counts: PairCounts, values: Any
) -> CriterionUse:
    """Count the answers to a criterion."""
    entries: list[CriterionReport | None] = [
        report.criteria[place] if report and len(report.criteria) > place else None for report in reports
    ]
    judged = values[~np.isnan(values)]
    is_constant = len(judged) >= FEWEST_ANSWERS and float(np.ptp(judged)) <= ROUNDING
    verdicts = (
        entry.verdict for entry in entries if entry is not None and entry.was_judged and entry.value is not None
    )
    return CriterionUse(
        counts=counts,
        judged=len(judged),
        abstained=sum(entry is not None and entry.abstained for entry in entries),
        failed=sum(entry is None or entry.error is not None for entry in entries),
        constant=next(verdicts) if is_constant else None,
    )


def redundant_pairs(values: Any, names: Sequence[str]) -> list[RedundantPair]:
    """Return the pairs of criteria whose values correlate with at least 0.8 in absolute value.

    Args:
        values: The value of each criterion (columns) for each answer (rows). NaN without a value.
        names: The names of the criteria.

    Example:
        >>> column = np.arange(30) % 2
        >>> str(redundant_pairs(np.column_stack([column, 1 - column, column // 2]), ["a", "b", "c"])[0])
        '`a` and `b` are redundant: their correlation is -1.00 over 30 answers'
    """
    has_value = (~np.isnan(values)).astype(float)
    x = np.nan_to_num(values)
    count, sums = has_value.T @ has_value, x.T @ has_value
    covariance = count * (x.T @ x) - sums * sums.T
    variance = count * ((x**2).T @ has_value) - sums**2
    # The variance of a criterion depends on the other one: it is over the answers with a value of both.
    divisor = np.sqrt(np.maximum(variance * variance.T, 0.0))
    is_defined = (count >= FEWEST_ANSWERS) & (divisor > ROUNDING * np.maximum(count, 1.0) ** 2)
    correlation = np.divide(covariance, divisor, out=np.zeros_like(divisor), where=is_defined)
    return [
        RedundantPair(names[one], names[other], float(correlation[one, other]), int(count[one, other]))
        for one, other in np.argwhere(np.triu(np.abs(correlation) >= REDUNDANT, 1)).tolist()
    ]
