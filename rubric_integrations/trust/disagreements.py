"""`find_disagreements`: the criteria on which annotators and the judge differ, in which direction, and examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import one_line
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.comparison import holm
from rubric_integrations.trust.matching import (
    Cluster,
    Match,
    RunLike,
    group_matches,
    group_rows,
    judged_rows,
    match_labels,
    read_rows,
)
from rubric_integrations.trust.means import Groups, estimate_bias, estimate_shift, p_value_of, select_groups
from rubric_integrations.trust.measure import measure_criterion
from rubric_integrations.trust.statistics import mcnemar_p_value

_SHOWN_CHARACTERS = 160


class Direction(NamedTuple):
    """A pair of different answers of annotators and the judge, with unweighted counts of judgments.

    Attributes:
        people: The annotators' answer.
        judge: The judge's answer.
        times: The number of judgments with these two answers.
        of: The number of judgments to which annotators give this answer. For a scale, the number of all judgments.
        is_order: Whether the answers are the words `higher` and `lower` instead of numbers, for a criterion with a
            scale.
    """

    people: str
    judge: str
    times: int
    of: int
    is_order: bool = False

    def __str__(self) -> str:
        if self.is_order:
            return f"raters rate {self.people} than the judge: {self.times:,} of {self.of:,}"
        return f"raters say {self.people} where the judge says {self.judge}: {self.times:,} of {self.of:,}"


class Disagreement(Record):
    """A judgment on which the annotators and the judge differ.

    Attributes:
        id: The id of the row in the run.
        submission: The graded submission.
        people: The most frequent answer of the raters.
        judge: The judge's answer.
        raters: The number of raters who labelled the judgment.
        unanimous: Whether all raters gave the same answer.
        confidence: The judge's confidence, in [0, 1], or None if it states no confidence.
        judge_reason: The judge's reason.
        people_reasons: The reasons of the raters who gave one.
    """

    id: str
    submission: Submission
    people: str
    judge: str
    raters: int
    unanimous: bool
    confidence: float | None
    judge_reason: str
    people_reasons: tuple[str, ...]

    def __str__(self) -> str:
        raters = f" ({self.raters} raters{', all alike' if self.unanimous else ''})" if self.raters > 1 else ""
        lines = [f"{one_line(self.id)}: raters say {self.people}{raters}, the judge says {self.judge}"]
        lines.append(f"  response: {shorten(self.submission.response)}")
        lines += [f"  rater: {shorten(reason)}" for reason in self.people_reasons]
        lines += [f"  judge: {shorten(self.judge_reason)}"] if self.judge_reason else []
        return "\n".join(lines)


class CriterionDisagreements(Record):
    """The differences between annotators and the judge on one criterion.

    Attributes:
        name: The criterion's name in the results of a run.
        criterion: The criterion.
        n: The number of labelled judgments that have an answer of the judge and a most frequent answer of the raters.
            Abstentions count as answers.
        differ: The number of these judgments on which the two answers differ.
        undecided: The number of other labelled judgments, without a most frequent answer of the raters. They count in
            `kappa`, `bias` and `p_value`, but not in `differ`, `directions` and `examples`.
        kappa: Cohen's kappa, the agreement beyond chance.
        bias: The judge's mean value minus the annotators' mean value.
        p_value: The p-value of the bias, from its interval. For a binary criterion, it is the mid-p value of McNemar's
            test if rows are independent and raters agree. None if it is undefined, or if labels were drawn by the
            judge's verdict.
        adjusted: The p-value after Holm's correction for all criteria. None if `p_value` is None.
        is_biased: Whether the bias is significant: the adjusted p-value is below 1 - `level`.
        directions: The pairs of different answers, the most frequent first.
        examples: The clearest disagreements, the clearest first.
    """

    name: str
    criterion: Criterion
    n: int
    differ: int
    undecided: int
    kappa: Estimate
    bias: Estimate
    p_value: float | None
    adjusted: float | None
    is_biased: bool
    directions: tuple[Direction, ...]
    examples: tuple[Disagreement, ...]

    def summary(self) -> str:
        """Return the differences as text, with the clearest disagreements. Long texts are truncated."""
        sure = f", p = {self.adjusted:.2g} (Holm)" if self.adjusted is not None else ""
        differ = f"{self.differ:,} of {self.n:,} differ" + (
            f" ({self.undecided:,} more have no majority)" if self.undecided else ""
        )
        lines = [f"{one_line(self.name)}: {differ}, kappa {self.kappa}, bias {self.bias}{sure}"]
        lines += [f"  {direction}" for direction in self.directions]
        return "\n".join([*lines, *(f"  {line}" for example in self.examples for line in str(example).splitlines())])

    def _repr_html_(self) -> str:
        rows = [
            (example.id, example.people, example.judge, shorten(example.submission.response),
             " / ".join(map(shorten, example.people_reasons)), shorten(example.judge_reason))
            for example in self.examples
        ]  # fmt: skip
        title = f"{self.name}: {'; '.join(map(str, self.directions)) or 'no difference'}"
        return html_table(title, ["row", "people", "judge", "response", "people's reasons", "judge's reason"], rows)


def shorten(text: str, characters: int = _SHOWN_CHARACTERS) -> str:
    r"""Return a text in one line, truncated with "…" if it is longer than a number of characters.

    Example:
        >>> shorten("one\ntwo three", 7)
        'one two…'
    """
    # Only the beginning is split into words, because a text may have a megabyte.
    line = " ".join(text[: 4 * characters].split())
    return line if len(line) <= characters and len(text) <= 4 * characters else f"{line[:characters].rstrip()}…"


def find_disagreements(
    run: RunLike,
    labels: Iterable[LabelledJudgment],
    *,
    examples: int = 5,
    cluster: Cluster | None = None,
    level: float = 0.95,
) -> list[CriterionDisagreements]:
    """Find the criteria on which annotators and the judge differ.

    Criteria with a significant bias of the judge come first. The other criteria follow, with the lowest kappa first.

    Args:
        run: The run that was labelled: the path of a file that `grade --out` wrote, results of `grade_many`, or
            reports.
        labels: Human labels of a part of the run, drawn at random or by the judge's verdict.
        examples: The largest number of disagreements to return for each criterion, at least 0. Disagreements on which
            several raters agree come first, then disagreements with a high confidence of the judge, then a large
            difference between the values.
        cluster: How to group rows that depend on each other: a column of the graded table, `"id"`, `"query"`, or a
            function that gets a row's id. The intervals and the test are then computed for groups of rows.
        level: The confidence level of the intervals, between 0 and 1. The test has the level 1 - `level`.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves.
        ValueError: `examples` is negative, or a row does not have the column of `cluster`.
    """
    if isinstance(examples, bool) or examples < 0:
        raise ValueError(f"`examples` must be at least 0, got {examples!r}")
    rows = read_rows(run)
    groups = group_rows(rows, cluster)
    by_criterion = group_matches(match_labels(rows, labels).matches)
    p_values = {name: _p_value(matches, groups) for name, matches in by_criterion.items()}
    adjusted = holm({name: p_value for name, p_value in p_values.items() if p_value is not None})
    results: list[CriterionDisagreements] = []
    for name, matches in by_criterion.items():
        is_random = all(match.is_random for match in matches)
        verdicts = None if is_random else judged_rows(rows, matches[0])
        figures = measure_criterion(matches, verdicts, level, groups=groups)
        answered = [match for match in matches if match.judged.was_judged and match.consensus is not None]
        differing = [match for match in answered if match.judge_answer != match.consensus]
        results.append(
            CriterionDisagreements(
                name=name,
                criterion=matches[0].criterion,
                n=len(answered),
                differ=len(differing),
                undecided=sum(match.judged.was_judged and match.consensus is None for match in matches),
                kappa=figures.kappa,
                bias=figures.bias,
                p_value=p_values[name],
                adjusted=adjusted.get(name),
                is_biased=name in adjusted and adjusted[name] < 1 - level,
                directions=tuple(_directions(answered)),
                examples=tuple(_describe(match, rows) for match in sorted(differing, key=_clearness)[:examples]),
            )
        )
    return sorted(results, key=_order)


def _order(row: CriterionDisagreements) -> tuple[bool, float, float]:
    kappa = 1.0 if row.kappa.value is None else row.kappa.value
    return not row.is_biased, (row.adjusted or 0.0) if row.is_biased else 0.0, kappa if row.differ else 2.0


def _p_value(matches: Sequence[Match], groups: Groups | None) -> float | None:
    """Return the p-value of a bias of the judge. None if the labels were not drawn at random."""
    if not all(match.is_random for match in matches):
        return None
    decided = [match for match in matches if match.right is not None]
    differences = [(match.judged.value or 0.0) - (match.people_value or 0.0) for match in decided]
    of_rows = select_groups(groups, [match.row for match in decided])
    is_binary = matches[0].criterion.kind == "binary"
    if is_binary and of_rows is None and all(difference in (-1, 0, 1) for difference in differences):
        return mcnemar_p_value(differences.count(1), differences.count(-1))
    if is_binary:
        rose, fell = ([max(0.0, sign * difference) for difference in differences] for sign in (1, -1))
        return p_value_of(lambda level: estimate_shift(rose, fell, level, of_rows))
    people, judge = [match.people_value or 0.0 for match in decided], [match.judged.value or 0.0 for match in decided]
    return p_value_of(lambda level: estimate_bias(people, judge, level, of_rows))


def _directions(answered: Sequence[Match]) -> list[Direction]:
    if answered and answered[0].criterion.kind == "scaled":
        return _orders(answered)
    pairs = Counter((match.consensus or "", match.judge_answer or "") for match in answered)
    people = Counter(match.consensus or "" for match in answered)
    return [Direction(*pair, times, people[pair[0]]) for pair, times in pairs.most_common() if pair[0] != pair[1]]


def _orders(answered: Sequence[Match]) -> list[Direction]:
    """Count the judgments that annotators rate higher than the judge, and the judgments that they rate lower."""
    values = [(match.people_value, match.judged.value) for match in answered]
    decided = [(own, other) for own, other in values if own is not None and other is not None]
    higher, lower = sum(own > other for own, other in decided), sum(own < other for own, other in decided)
    directions = [
        Direction("higher", "lower", higher, len(decided), is_order=True),
        Direction("lower", "higher", lower, len(decided), is_order=True),
    ]
    return sorted((row for row in directions if row.times), key=lambda row: -row.times)


def _clearness(match: Match) -> tuple[bool, int, float, float]:
    """Return a sort key that orders the clearest disagreements first."""
    is_shared = len(match.labels) > 1 and len(set(match.answers)) == 1
    confidence = match.judged.confidence
    apart = abs((match.judged.value or 0.0) - (match.people_value or 0.0))
    return not is_shared, -len(match.labels), -(-1.0 if confidence is None else confidence), -apart


def _describe(match: Match, rows: Sequence[GradedRow]) -> Disagreement:
    row = rows[match.row]
    return Disagreement(
        id=row.id,
        submission=row.submission or match.labels[0].submission,
        people=match.consensus or "",
        judge=match.judge_answer or "",
        raters=len(match.labels),
        unanimous=len(set(match.answers)) == 1,
        confidence=match.judged.confidence,
        judge_reason=match.judged.shown_reason,
        people_reasons=tuple(label.reason for label in match.labels if label.reason.strip()),
    )
