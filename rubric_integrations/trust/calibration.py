"""Corrects the mean score and the rates of a run with human labels of a part of it (`calibrate`).

`calibrate_rate` corrects a rate with labels of other submissions. `corrections.py` has the formulas.
"""

from __future__ import annotations

import math
import warnings as python_warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from rubric_integrations._util.records import Record, html_table
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.formula import Score, WeightedValue, score_parts, score_values
from rubric_integrations.scoring.judgment import to_judgment
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.trust.corrections import (
    FOR_LABELS,
    RatedRow,
    corrected_mean,
    estimate_share,
    labelled_mean,
    rogan_gladen_rate,
)
from rubric_integrations.trust.matching import (
    Cluster,
    Match,
    RunLike,
    chosen_warning,
    complete_score,
    dependence_warnings,
    group_matches,
    group_rows,
    group_warnings,
    is_trained_on,
    judged_rows,
    match_labels,
    read_rows,
)
from rubric_integrations.trust.means import Groups, in_groups, select_groups
from rubric_integrations.trust.planning import FEWEST_LABELS
from rubric_integrations.trust.statistics import Matrix, compare_values

_ROUNDING = 1e-6


class UnexplainedScoreError(ValueError):
    """Raised if the score of a row cannot be recomputed from the answers to its criteria.

    This happens, for example, if the rubric has groups and is not passed. The score from the annotators' answers then
    cannot be computed either.
    """


class ScorePair(NamedTuple):
    """The scores of one submission.

    Attributes:
        row: The index of its row in the run.
        people: The score from the annotators' answers.
        judge: The score from the judge's answers.
    """

    row: int
    people: float
    judge: float


class LabelledScore(NamedTuple):
    """The scores of a submission whose criteria all have labels.

    Attributes:
        row: The index of its row in the run.
        people: The mean of the scores from each rater's answers, or None if no rater could assess the submission.
        assessed: The share of the raters who could assess the submission.
        judge: The score from the judge's answers, or None if the judge failed or could not assess the submission.
    """

    row: int
    people: float | None
    assessed: float
    judge: float | None


def labelled_scores(
    rows: Sequence[GradedRow], matches: Sequence[Match], rubric: Rubric | None = None
) -> tuple[list[LabelledScore], int]:
    """Score each labelled submission from the annotators' answers.

    A submission is scored if each of its criteria that a judge decides has a label. Each rater's answers give one
    score. If a rater gave no answer to a criterion, the mean value of all raters' answers is used.

    Args:
        rows: The rows of the run.
        matches: The labelled judgments.
        rubric: The rubric of the run. Without it, the score of a row must be the weighted mean of its criteria. Reports
            of earlier versions do not record which criteria have a check. For such reports without the rubric, criteria
            with a check need labels too.

    Returns:
        The scores, and the number of labelled submissions that lack a label on some criterion.

    Raises:
        UnexplainedScoreError: (a ValueError) The judge's score of a row does not follow from its answers.
    """
    of_rows: dict[int, dict[str, Match]] = {}
    for match in matches:
        of_rows.setdefault(match.row, {})[match.judged.name] = match
    answers: dict[int, list[list[float | None]]] = {}
    for index, of_row in of_rows.items():
        report = rows[index].report
        of_raters = _values_of_raters(report, of_row, rubric) if report else None
        if of_raters is not None:
            answers[index] = of_raters
    reports = {index: report for index in answers if (report := rows[index].report) is not None}
    scored = {index: score for index in reports if (score := complete_score(rows[index])) is not None}
    by_judge = [_score(reports[index], [entry.value for entry in reports[index].criteria], rubric) for index in scored]
    scores = list(scored.values())
    is_raw = _unequal(scores, [score.normalized for score in by_judge]) is not None
    place = _unequal(scores, [score.raw for score in by_judge]) if is_raw else None
    if place is not None:
        raise UnexplainedScoreError(
            f"the score of row {rows[list(scored)[place]].id!r} is {scores[place]!r}, and its criteria alone give "
            f"{by_judge[place].normalized!r}: pass the run's `rubric`, whose groups may explain it; scores with "
            "metrics, penalties for length or other policies for abstentions cannot be corrected"
        )
    labelled: list[LabelledScore] = []
    for index, report in reports.items():
        of_raters = [_score(report, values, rubric).reported(normalize=not is_raw) for values in answers[index]]
        own = [score for score in of_raters if score is not None]
        people = math.fsum(own) / len(own) if own else None
        labelled.append(LabelledScore(index, people, len(own) / len(of_raters), scored.get(index)))
    return labelled, len(of_rows) - len(answers)


def score_pairs(rows: Sequence[GradedRow], matches: Sequence[Match], rubric: Rubric | None = None) -> list[ScorePair]:
    """Return the scores of the submissions that both the annotators and the judge scored.

    The annotators score a submission if each criterion that a judge decides has a label, and if at least one rater
    could assess the submission. The arguments are explained in `labelled_scores`.
    """
    labelled, _ = labelled_scores(rows, matches, rubric)
    return [
        ScorePair(score.row, score.people, score.judge)
        for score in labelled
        if score.people is not None and score.judge is not None
    ]


def _unequal(scores: Sequence[float], others: Sequence[float | None]) -> int | None:
    """Return the index of the first score that differs from its counterpart, or None if all are equal."""
    pairs = enumerate(zip(scores, others, strict=True))
    return next((place for place, (a, b) in pairs if b is None or abs(a - b) > _ROUNDING), None)


def _values_of_raters(
    report: EvaluationReport, matches: Mapping[str, Match], rubric: Rubric | None
) -> list[list[float | None]] | None:
    """Return each rater's value of each criterion, or None if a criterion lacks a label."""
    checked = {key for key, c in zip(rubric.keys, rubric.criteria, strict=True) if c.check} if rubric else set[str]()
    # Labels without a rater's name: several labels of one judgment count as different raters.
    by_criterion = {name: _values_by_rater(match) for name, match in matches.items()}
    raters = list(dict.fromkeys(rater for values in by_criterion.values() for rater in values))
    of_raters: list[list[float | None]] = [[] for _ in raters]
    for entry in report.criteria:
        values = by_criterion.get(entry.name)
        if values is None and not (entry.computed or entry.name in checked or entry.not_applicable):
            return None
        default = entry.value if values is None else matches[entry.name].people_value
        for rater, of_rater in zip(raters, of_raters, strict=True):
            of_rater.append(default if values is None else values.get(rater, default))
    return of_raters


def _values_by_rater(match: Match) -> dict[str | int, float | None]:
    unnamed = count()
    values = [to_judgment(match.criterion, answer).value for answer in match.answers]
    return {
        next(unnamed) if label.rater is None else label.rater: value
        for label, value in zip(match.labels, values, strict=True)
    }


def _score(report: EvaluationReport, values: Sequence[float | None], rubric: Rubric | None) -> Score:
    absent = [index for index, entry in enumerate(report.criteria) if entry.not_applicable]
    if rubric is not None and len(rubric) == len(values):
        return score_values(rubric, values, not_applicable=absent)
    weights = [entry.weight for entry in report.criteria]
    return score_parts([WeightedValue(w, value, 0.0) for w, value in zip(weights, values, strict=True)])


# If annotators and the judge differ on fewer labelled submissions, the interval of an unbounded mean is too narrow.
_FEW_DIFFERENCES = 5
# The sum of sensitivity and specificity, minus 1. Below this value, the correction divides by a number close to 0.
_WEAK_JUDGE = 0.3


class CriterionCalibration(Record):
    """The corrected figures of one criterion.

    Attributes:
        name: The criterion's name.
        rate: For a binary criterion, the share of submissions that annotators would call MET. None for other criteria.
        options: For criteria with options or numbers, the share of the submissions to which annotators would give each
            answer.
        judge_rates: The uncorrected share of each of the judge's answers, with abstentions.
        assessable: The share of the submissions that annotators could assess. `rate` and `options` are shares of these
            submissions.
    """

    name: str
    rate: Estimate | None
    options: dict[str, Estimate]
    judge_rates: dict[str, float]
    assessable: Estimate = Estimate(None, None, None, 0)

    @property
    def abstention_text(self) -> str:
        """A clause that names the share of submissions that annotators can assess, or "" if they can assess all."""
        share = self.assessable
        return "" if share.value in (None, 1.0) else f"{self.name}: annotators can assess {share} of the submissions"

    @property
    def rates(self) -> list[tuple[str, Estimate, float | None]]:
        """Each answer with its corrected share and the judge's uncorrected share. A binary criterion has only MET.

        The judge's share is 0 for an answer that it never gave, and None if it gave no answer at all.
        """
        rates = self.options if self.rate is None else {"MET": self.rate}
        judged = self.judge_rates
        return [(answer, rate, judged.get(answer, 0.0) if judged else None) for answer, rate in rates.items()]


class Calibration(Record):
    """The mean score and the rates of a run, corrected with human labels.

    Attributes:
        score: The mean score from the annotators' answers, estimated for all submissions that annotators can assess. A
            submission with several raters counts with the mean of their scores. The estimate is undefined if labels
            were drawn by the judge's verdict, if no submission has a label for every criterion, or if the scores cannot
            be recomputed from the criteria. `warnings` names the reason.
        judge_score: The judge's uncorrected mean score of the submissions on which it did not fail, or None if no
            submission has a score.
        criteria: The corrected figures of each criterion, by its name.
        weight: How much the judge's scores of the unlabelled submissions influence `score`, from 0 (not at all) to 1
            (fully).
        labels_saved: The share of labels that the judge's scores replace, in [0, 1]. Without these scores, the same
            interval would need `1 / (1 - labels_saved)` times as many labels. None if it is undefined.
        assessable: The share of the submissions to which annotators can give a score, because they can assess at least
            one criterion.
        warnings: Limitations of the figures, one sentence each.
    """

    score: Estimate
    judge_score: float | None
    criteria: dict[str, CriterionCalibration]
    weight: float
    labels_saved: float | None
    assessable: Estimate = Estimate(None, None, None, 0)
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return text with the mean score, a line for each answer to each criterion, and the warnings."""
        lines = [
            f"{name}: {answer} {rate}, by the judge {'undefined' if judged is None else f'{judged:.3f}'}"
            for name, row in self.criteria.items()
            for answer, rate, judged in row.rates
        ]
        return "\n".join([*self.score_lines, *lines, *self.abstention_lines, *self.warnings])

    @property
    def abstention_lines(self) -> list[str]:
        """Sentences with the share of submissions that annotators can assess, for each criterion with abstentions."""
        return [
            f"{row.abstention_text}; its rates are about these."
            for row in self.criteria.values()
            if row.abstention_text
        ]

    @property
    def score_lines(self) -> list[str]:
        """Sentences with the judge's mean score, the corrected mean score, and the share of labels saved."""
        if self.judge_score is None:
            return ["The run has no mean score."]
        judged = f"Mean score: {self.judge_score:.3f} by the judge"
        if self.score.value is None:
            return [f"{judged}; these labels do not correct it."]
        lines = [f"{judged}, {self.score} by human labels."]
        if self.assessable.value not in (None, 1.0):
            lines.append(f"Annotators can assess {self.assessable} of the submissions; the mean score is about these.")
        if self.labels_saved is not None:
            lines.append(
                f"The judge saves {self.labels_saved:.0%} of the labels that the same interval would need without it."
            )
        return lines

    def _repr_html_(self) -> str:
        rows = [
            (name, answer, judged, str(rate))
            for name, row in self.criteria.items()
            for answer, rate, judged in row.rates
        ]
        return html_table(
            " ".join([*self.score_lines, *self.abstention_lines]), ("criterion", "answer", "judge", "corrected"), rows
        )


def calibrate(
    run: RunLike,
    labels: Iterable[LabelledJudgment],
    *,
    rubric: Rubric | None = None,
    cluster: Cluster | None = None,
    level: float = 0.95,
    imaginary: float = FOR_LABELS,
) -> Calibration:
    """Correct the mean score and the rates of a run with human labels of a part of it.

    If every judgment is labelled, the mean score and the rates are computed from the labels only.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        labels: Human labels of a part of the same run, drawn at random or by the judge's verdict. For labels of other
            submissions, use `calibrate_rate`. If the judge was aligned with a label of a submission, the submission and
            its labels are left out, because the judge makes fewer errors there. The omission does not bias the mean if
            the labels of the alignment were drawn at random. It causes a small bias if they were drawn by the judge's
            verdict.
        rubric: The run's rubric. It is needed only if the rubric has groups.
        cluster: How to group rows that depend on each other, such as the questions about one document: a column of the
            graded table, `"id"`, `"query"`, or a function that gets a row's id. The intervals are then computed for
            groups of rows.
        level: The confidence level of the intervals, between 0 and 1.
        imaginary: The interval of the mean is computed as if this number of additional labels had the worst possible
            score, because rare scores may be missing in the labels. The default, 0.5, was selected by simulation. A
            gate uses 1, because it decides by one end of the interval.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves, such as
            only the judge's errors. If only some labels are chosen, these are left out with a warning.
        ValueError: No label belongs to the run, the judge was aligned with all labels that belong to it, or a row does
            not have the column of `cluster`.
    """
    rows = read_rows(run)
    groups = group_rows(rows, cluster)
    matched = match_labels(rows, labels)
    matches = matched.matches
    if not matches:
        left_out = f"; {chosen_warning(len(matched.chosen))}" if matched.chosen else ""
        raise ValueError(
            f"none of the {len(matched.unmatched):,} labels belongs to a judgment of this run: for labels of other "
            f"submissions there is `calibrate_rate`{left_out}"
        )
    # The labels are a random sample of these rows only, so they estimate the judge's errors on these rows only.
    new_rows = {index: row for index, row in enumerate(rows) if not is_trained_on(row)}
    warnings: list[str] = []
    if len(new_rows) < len(rows):
        warnings.append(
            f"the judge was aligned with labels of {len(rows) - len(new_rows):,} submissions: the figures are about "
            f"the other {len(new_rows):,}"
        )
    judge = {index: complete_score(row) for index, row in new_rows.items() if row.report}
    mean = _calibrate_mean(rows, matches, rubric, judge, level, imaginary, groups)
    criteria: dict[str, CriterionCalibration] = {}
    for key, of_criterion in group_matches(matches).items():
        judged = judged_rows(rows, of_criterion[0])
        criteria[key] = _calibrate_criterion(of_criterion, judged, level, groups)
        labelled = {match.judge_answer for match in of_criterion}
        warnings += [
            f"{key}: no label is of a judgment with the judge's {verdict}, on {number:,} of {len(judged):,} "
            "submissions: the rate of human labels there is unknown and counts as 0.5, with limits of 0 and 1; draw "
            "labels with `choose_for_labels(..., by_verdict=True)` (`label --by-verdict`): labels that you choose do "
            "not count"
            for verdict, number in Counter(judged.values()).items()
            if verdict not in labelled
        ]
    return Calibration(
        score=mean.estimate, judge_score=mean.judge_score, criteria=criteria, weight=mean.weight,
        labels_saved=mean.labels_saved, assessable=mean.assessable,
        warnings=(
            *mean.warnings, *warnings, *dependence_warnings(rows, cluster),
            *group_warnings(select_groups(groups, [match.row for match in matches])), *matched.warnings,
        ),
    )  # fmt: skip


class _CalibratedMean(NamedTuple):
    """The fields of a `Calibration` that belong to the mean score."""

    judge_score: float | None
    warnings: list[str]
    estimate: Estimate = Estimate(None, None, None, 0)
    weight: float = 0.0
    labels_saved: float | None = None
    assessable: Estimate = Estimate(None, None, None, 0)


def _calibrate_mean(
    rows: Sequence[GradedRow],
    matches: Sequence[Match],
    rubric: Rubric | None,
    judge: Mapping[int, float | None],
    level: float,
    imaginary: float,
    groups: Groups | None,
) -> _CalibratedMean:
    """Correct the mean score.

    Args:
        rows: The rows of the run.
        matches: The labelled judgments.
        rubric: The rubric of the run.
        judge: The judge's score of each row, by the row's index. None is a row without a score.
        level: The confidence level of the interval, between 0 and 1.
        imaginary: The number of imaginary labels, as in `calibrate`.
        groups: The group of each row of the run.
    """
    scores = [score for score in judge.values() if score is not None]
    judge_score = math.fsum(scores) / len(scores) if scores else None
    if not all(match.is_random for match in matches):
        line = "labels were drawn by the judge's verdict: they correct the rates, and not the mean score"
        return _CalibratedMean(judge_score, [line])
    try:
        labelled, partly = labelled_scores(rows, matches, rubric)
    except UnexplainedScoreError as error:
        return _CalibratedMean(judge_score, [str(error)])
    if not labelled or judge_score is None:
        line = "no submission has a label for each of its criteria: they correct the rates alone"
        return _CalibratedMean(judge_score, [line])
    warnings: list[str] = []
    if partly:
        warnings.append(
            f"{partly:,} labelled submissions lack a label on some criterion: their labels correct the rates, and not "
            "the mean score"
        )
    people = [score.people for score in labelled if score.people is not None]
    bounded = min(*scores, *people) >= 0 and max(*scores, *people) <= 1
    pairs = [(score.people, score.judge) for score in labelled if score.people is not None and score.judge is not None]
    compared = compare_values([of_people for of_people, _ in pairs], [of_judge for _, of_judge in pairs])
    correlation = compared.pearson if compared else None
    saved = None if correlation is None else max(0.0, correlation) ** 2
    if not bounded:
        corrected = corrected_mean(
            [of_people for of_people, _ in pairs], [of_judge for _, of_judge in pairs], judge_score, len(scores),
            level=level,
        )  # fmt: skip
        estimate = corrected.estimate
        of_pairs = select_groups(groups, [score.row for score in labelled if None not in (score.people, score.judge)])
        if of_pairs is not None:
            y, f = np.array(pairs).T
            rest = y - y.mean() - corrected.weight * (f - f.mean())
            estimate = in_groups(estimate, rest, of_pairs, level)
        if len(pairs) < FEWEST_LABELS:
            warnings.append(
                f"scores without bounds have an honest interval from {FEWEST_LABELS} labelled submissions on, and "
                f"there are {len(pairs)}"
            )
        if sum(abs(one - other) > 1e-9 for one, other in pairs) < _FEW_DIFFERENCES:
            warnings.append(
                f"human labels and the judge differ on fewer than {_FEW_DIFFERENCES} labelled submissions: the "
                "interval of the mean may be too narrow; label more, or read the rates of the criteria"
            )
        return _CalibratedMean(judge_score, warnings, estimate, corrected.weight, saved)
    if missing := len(judge) - len(scores):
        warnings.append(
            f"{missing:,} submissions have no score by the judge: each counts as the mean of the others, as far as it "
            "has no label"
        )
    places = {index: place for place, index in enumerate(judge)}
    of_labels = [places[score.row] for score in labelled]
    run = [judge_score if score is None else score for score in judge.values()]
    of_run = select_groups(groups, list(judge))
    assessed = [score.assessed for score in labelled]
    corrected = labelled_mean(
        [score.people or 0.0 for score in labelled], of_labels, run, assessed=assessed, level=level,
        imaginary=imaginary, groups=of_run,
    )  # fmt: skip
    share = labelled_mean(assessed, of_labels, run, level=level, groups=of_run).estimate
    assessable = share._replace(value=corrected.assessable)
    return _CalibratedMean(judge_score, warnings, corrected.estimate, corrected.weight, saved, assessable)


def calibrate_rate(judged: Mapping[str, int], confusion: Sequence[Sequence[int]], *, level: float = 0.95) -> Estimate:
    """Correct the rate of MET that the judge gave in a run.

    The correction uses human labels of other submissions, which are not in the run.

    The correction assumes that the judge's sensitivity and specificity are the same on both sets of submissions.

    Args:
        judged: The number of the judge's MET and UNMET verdicts in the run, such as `{"MET": 620, "UNMET": 380}`.
        confusion: The 2 x 2 table of the labelled submissions. The rows are the annotators' UNMET and MET, and the
            columns are the judge's UNMET and MET.
        level: The confidence level of the interval, between 0 and 1.

    Raises:
        ValueError: According to the labels, the judge is not better than chance. Or the annotators gave only one of the
            two verdicts, or `judged` has other verdicts than MET and UNMET.

    Warns:
        UserWarning: The judge is hardly better than chance: its sensitivity and specificity add up to less than 1.3.

    Example:
        >>> print(calibrate_rate({"MET": 620, "UNMET": 380}, [[40, 10], [5, 45]]))
        0.600 [0.495, 0.717] (n = 100)
    """
    others = [verdict for verdict in judged if verdict not in ("MET", "UNMET")]
    if others:
        raise ValueError(
            f"`judged` has {others!r}: count MET and UNMET alone, as labels from elsewhere say nothing about others"
        )
    (true_unmet, false_met), (false_unmet, true_met) = confusion
    estimate = rogan_gladen_rate(
        met=judged.get("MET", 0),
        judged=sum(judged.values()),
        sensitivity=(true_met, true_met + false_unmet),
        specificity=(true_unmet, true_unmet + false_met),
        level=level,
    )
    if estimate is None:
        raise ValueError(
            "the labels show a judge that is no better than chance, or have only one of the verdicts: its rate says "
            "nothing about the true rate; label some submissions of this run, and use `calibrate`"
        )
    informedness = true_met / (true_met + false_unmet) + true_unmet / (true_unmet + false_met) - 1
    if informedness < _WEAK_JUDGE:
        python_warnings.warn(
            "the judge is hardly better than chance on these labels: its corrected rate changes much with each of "
            "them; label some submissions of this run, and use `calibrate`",
            stacklevel=2,
        )
    return estimate


def _calibrate_criterion(
    matches: Sequence[Match], judged: Mapping[int, str], level: float, groups: Groups | None
) -> CriterionCalibration:
    """Correct the rates of one criterion's answers with its human labels."""
    criterion = matches[0].criterion
    rated = [
        (RatedRow(match.row, verdict, 0.0, match.assessed, len(match.people_values)), match.shares)
        for match in matches
        if (verdict := match.judge_answer) is not None
    ]
    assessed = [RatedRow(row.row, row.verdict, row.assessed, raters=max(1, row.raters)) for row, _ in rated]

    def estimate_rate_of(answer: str) -> Estimate:
        rows = [row._replace(share=shares.get(answer, 0.0)) for row, shares in rated]
        return estimate_share(judged, rows, level, groups)

    def value_of(answer: str) -> float:
        return to_judgment(criterion, answer).value or 0.0

    is_binary = criterion.kind == "binary"
    answers = {answer for _, shares in rated for answer in shares}
    options = [option.label for option in criterion.choices] or sorted(answers, key=value_of)
    counts = Counter(judged.values())
    return CriterionCalibration(
        name=matches[0].judged.name,
        rate=estimate_rate_of("MET") if is_binary else None,
        options={} if is_binary else {option: estimate_rate_of(option) for option in options},
        judge_rates={verdict: count / counts.total() for verdict, count in counts.items()},
        assessable=estimate_share(judged, assessed, level, groups),
    )


def verdict_weights(matches: Sequence[Match], judged: Mapping[int, str] | None) -> dict[str, float] | None:
    """Return the weight of a label with each verdict of the judge, for labels that were drawn by this verdict.

    The weight is the count of the verdict in the run, divided by the number of labels with this verdict.

    Args:
        matches: The labelled judgments of a criterion.
        judged: The judge's verdict in each row of the run, or None for labels that were drawn at random.

    Returns:
        The weights by the judge's verdict, without verdicts that have no label. None if `judged` is None.
    """
    if judged is None:
        return None
    labelled = Counter(match.judge_answer for match in matches)
    counts = Counter(judged.values())
    return {verdict: count / labelled[verdict] for verdict, count in counts.items() if labelled[verdict]}


def weight_table(table: Matrix, levels: Sequence[str], judged: Mapping[str, int]) -> Matrix:
    """Weight each column of a confusion table by the frequency of its answer among the judge's verdicts in the run.

    The sum of the result is Kish's effective sample size. If an answer of the judge occurs in the run but has no label,
    its column cannot be weighted. The result is then a table of zeros.

    Args:
        table: The confusion table of counts, with the judge's answers as columns.
        levels: The answer of each column.
        judged: The number of times that the judge gives each answer in the run.
    """
    columns = table.sum(axis=0)
    counts = np.array([judged.get(answer, 0) for answer in levels], float)
    if not columns.sum() or (counts[columns == 0] > 0).any():
        return np.zeros_like(table)
    weights = np.divide(counts, columns, out=np.zeros_like(counts), where=columns > 0)
    total = float((weights * columns).sum())
    return table * weights * total / float((weights**2 * columns).sum())
