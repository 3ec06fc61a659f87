"""Explains a score to readers, line by line: the terms of the formula and why a submission did not pass.

The terms come from `scoring/formula.py`. They are shown only if their sum gives the score of the report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.formula import ROUNDING, Score, WeightedValue, score_parts, scored_value
from rubric_integrations.scoring.policies import CannotAssess
from rubric_integrations.scoring.report import CriterionReport, EvaluationReport


class ScoreTerm(NamedTuple):
    """The term of one criterion in the sum of a score.

    Attributes:
        criterion: The report of the criterion.
        value: The value in [0, 1] that is used in the sum. An abstention may have a value, depending on
            `cannot_assess`. None if the criterion is left out.
        words: The answer in words, such as `met`, `deducted` or `could not be judged: left out`.
    """

    criterion: CriterionReport
    value: float | None
    words: str

    @property
    def points(self) -> float | None:
        """The value times the weight. None if the criterion is left out."""
        return None if self.value is None else self.value * self.criterion.weight

    @property
    def cost(self) -> float:
        """The points that the answer loses, compared with the best possible answer. 0 if the criterion is left out."""
        if self.value is None:
            return 0.0
        weight = self.criterion.weight
        return -weight * self.value if weight < 0 else weight * (1 - self.value)


class ScoreSum(NamedTuple):
    """The calculation of a score from its terms.

    Attributes:
        terms: The criteria, in the order of the report.
        raw: The sum of the points. None if every criterion is left out.
        divisor: The number by which `raw` is divided: the sum of the positive weights that are not left out. For a
            rubric with only penalties, the sum of the absolute weights that are not left out.
        has_positive_weight: Whether the rubric has a positive weight. If not, the score is 1 + `raw` / `divisor`.
        score: The score in [0, 1] from this sum, before metrics and the length penalty. None if it is undefined.
        after: The later changes of the score (metrics, length penalty), each as text. Empty if there are none.
        problem: Why the terms do not give the score of the report. None if they do.
        fixed: The reason why the page cannot compute the score with other weights. None if it can.
    """

    terms: tuple[ScoreTerm, ...] = ()
    raw: float | None = None
    divisor: float = 0.0
    has_positive_weight: bool = True
    score: float | None = None
    after: tuple[str, ...] = ()
    problem: str | None = None
    fixed: str | None = None

    @property
    def in_words(self) -> str:
        """The last line of the calculation as text.

        Example:
            >>> ScoreSum(raw=4.0, divisor=27.0, score=4 / 27).in_words
            '4 of 27 = 0.148'
        """
        if self.raw is None or self.score is None:
            return "no criterion counts: the score is undefined"
        if self.has_positive_weight:
            return f"{self.raw:g} of {self.divisor:g} = {self.score:.3f}"
        return f"1 less {-self.raw:g} of {self.divisor:g} = {self.score:.3f}"


def sum_score(row: GradedRow) -> ScoreSum:
    """Return the terms of a row's score and whether their sum gives this score.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, grade_many
        >>> from rubric_integrations.runs.files import RunFile
        >>> rubric = [{"name": "answer", "weight": 3, "requirement": "States 42", "check": {"number": 42}},
        ...           {"name": "brief", "weight": 1, "requirement": "Is brief", "check": {"max_words": 2}}]
        >>> run = RunFile.of("tonight", grade_many(["It is 42."], rubric, PerCriterionGrader("offline")))
        >>> result = sum_score(run.rows[0])
        >>> [(term.criterion.name, term.words, term.points) for term in result.terms], result.in_words
        ([('answer', 'met', 3.0), ('brief', 'not met', 0.0)], '3 of 4 = 0.750')
    """
    report = row.report
    if report is None:
        return ScoreSum(problem=row.error or "it has no grade")
    if not report.criteria:
        reason = "the judge scored the submission as a whole"
        return ScoreSum(problem=reason, fixed=reason)
    settings = score_settings(row)
    policy = settings.cannot_assess
    terms = tuple(_term(criterion, policy) for criterion in report.criteria)
    score = score_parts([WeightedValue(term.criterion.weight, term.value, 0.0) for term in terms])
    has_positive_weight = any(term.criterion.weight > 0 for term in terms)
    counted = [term.criterion.weight for term in terms if term.value is not None]
    divisor = math.fsum(w for w in counted if w > 0) if has_positive_weight else -math.fsum(counted)
    return ScoreSum(
        terms=terms,
        raw=score.raw,
        divisor=divisor,
        has_positive_weight=has_positive_weight,
        score=score.normalized,
        after=tuple(_changes(report)),
        problem=_problem(report, score, settings),
        fixed=_why_fixed(report, settings),
    )


def why_not_passed(row: GradedRow) -> str:
    """Return a sentence that states why a row did not pass. An empty text if it passed.

    Example:
        >>> why_not_passed(GradedRow("a", None, None, "the row is empty"))
        'Not graded: the row is empty.'
    """
    report = row.report
    if report is None or not row.is_graded:
        reason = row.error or (report and report.error) or "it has no grade"
        return f"Not graded: {reason.rstrip('.')}."
    if report.passed:
        return ""
    reasons: list[str] = []
    gates = [criterion.name for criterion in report.criteria if criterion.required and not criterion.passed]
    if gates:
        reasons.append(f"{'each of ' if len(gates) > 1 else ''}{', '.join(gates[:_MOST_NAMES])} is required")
    settings = score_settings(row)
    mark, score = settings.pass_mark, report.score
    is_low = settings.normalize and mark is not None and score is not None and score < mark - ROUNDING
    if is_low:
        reasons.append(f"{score:.3f} is below the pass mark {mark:g}")
    if score is None:
        reasons.append("the score is undefined" if report.score_range is None else "its answers were enough to decide")
    if report.low_coverage:
        reasons.append(f"only {math.floor(100 * report.coverage)} % of the weight was judged")
    if report.partial:
        reasons.append("a part of the rubric is left out")
    if report.failed_count:
        reasons.append(f"{report.failed_count} criteria were not judged, and may have their worst value")
    sentence = f"Not passed: {'; '.join(reasons) or 'the score without what failed is below the pass mark'}."
    return f"{sentence} {_largest_loss(row)}".rstrip() if is_low else sentence


_MOST_NAMES = 8


class ScoreSettings(NamedTuple):
    """The settings that the score of a row depends on, as far as its line in the run file records them.

    Attributes:
        cannot_assess: How an abstention is scored. `skip` if the line does not record it.
        normalize: Whether the score is in [0, 1].
        pass_mark: The pass mark. None if the line does not record it.
        min_coverage: The smallest coverage that passes. None if the line does not record it.
        min_scores: The `min_score` of the criteria that have one, by name.
        has_groups: Whether the rubric has groups.
        is_partial: Whether a part of the rubric is left out. If so, no submission passes.
        is_known: Whether the line records all of these settings. Lines from earlier versions do not.
    """

    cannot_assess: CannotAssess
    normalize: bool
    pass_mark: float | None
    min_coverage: float | None
    min_scores: Mapping[str, float]
    has_groups: bool
    is_partial: bool
    is_known: bool


def score_settings(row: GradedRow) -> ScoreSettings:
    """Return the settings of the rubric and the grader that the score of a row depends on."""
    scoring = row.scoring or {}
    rubric, grader, criteria = (scoring.get(name) or {} for name in ("rubric", "grader", "criteria"))
    mark, coverage = _number(rubric.get("pass_mark")), _number(rubric.get("min_coverage"))
    # The fields of a criterion are recorded as texts.
    minimums = {name: _number(fields.get("min_score")) for name, fields in criteria.items()}
    return ScoreSettings(
        grader.get("cannot_assess", "skip"),
        grader.get("normalize", True) is not False,
        mark,
        coverage,
        {name: minimum for name, minimum in minimums.items() if minimum is not None},
        "groups" in rubric,
        "left_out" in rubric,
        mark is not None and coverage is not None and "cannot_assess" in grader,
    )


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, str | int | float) else None
    except ValueError:
        return None


def _term(criterion: CriterionReport, policy: CannotAssess) -> ScoreTerm:
    if criterion.not_applicable or not criterion.was_asked:
        words = "does not apply: left out" if criterion.not_applicable else "not asked: left out"
        return ScoreTerm(criterion, None, words)
    value = scored_value(WeightedValue(criterion.weight, criterion.value, worst_value(criterion)), policy)
    if criterion.error:
        words = "the judge failed"
    elif criterion.value is None:
        words = "could not be judged"
    else:
        return ScoreTerm(criterion, value, _answer(criterion))
    return ScoreTerm(criterion, value, f"{words}: {'left out' if value is None else f'counts {value:g}'}")


def _answer(criterion: CriterionReport) -> str:
    """Return an answer in words. For a penalty, the words state whether points are deducted."""
    if criterion.verdict in ("MET", "UNMET"):
        words = ("deducted", "not deducted") if criterion.weight < 0 else ("met", "not met")
        return words[criterion.verdict == "UNMET"]
    return criterion.verdict or f"{criterion.value:g}"


def worst_value(criterion: CriterionReport) -> float:
    """Return the value in [0, 1] of the answer that gives the lowest score. `cannot_assess="fail"` uses it."""
    values = [option.value for option in criterion.options if not option.na] or [0.0, 1.0]
    return max(values) if criterion.weight < 0 else min(values)


def _changes(report: EvaluationReport) -> Sequence[str]:
    changes: list[str] = []
    if report.metrics:
        metrics = ", ".join(f"{name} {'none' if v is None else f'{v:.3f}'}" for name, v in report.metrics.items())
        changes.append(f"blended with the metrics {metrics}")
    if report.length_penalty:
        changes.append(f"less {report.length_penalty:.3f} for the length")
    return changes


def _problem(report: EvaluationReport, score: Score, settings: ScoreSettings) -> str | None:
    if report.score_range is not None:
        return "grading ended early: the other criteria were not asked"
    if report.score is None:
        return report.error or ("the score is undefined" if score.normalized is None else "a judge failed")
    # Metrics and the length penalty come after the sum.
    known, own = (report.raw_score, score.raw) if _changes(report) else (report.score, score.normalized)
    if not settings.normalize:
        known, own = report.raw_score, score.raw
    if known is not None and own is not None and abs(known - own) <= ROUNDING * max(1.0, abs(known)):
        return None
    if settings.has_groups:
        return "a group of the rubric shares the weight of what could not be judged, or caps what is deducted"
    return "the run file does not say all that the score depends on"


def _why_fixed(report: EvaluationReport, settings: ScoreSettings) -> str | None:
    """Return why the page cannot compute the score with other weights, or None if it can."""
    if settings.has_groups:
        return "the rubric has groups, whose values depend on each other"
    if report.metrics:
        return "the score is blended with metrics"
    if report.length_penalty:
        return "a penalty for the length is subtracted"
    return None if settings.normalize else "the scores of this run are not normalized"


def _largest_loss(row: GradedRow) -> str:
    """Return a sentence with the criterion that costs the most points, or an empty text if the terms do not fit."""
    result = sum_score(row)
    if result.problem is not None or not result.divisor:
        return ""
    term = max(result.terms, key=lambda term: term.cost, default=None)
    if term is None or term.cost <= 0:
        return ""
    what = f"The deduction for {term.criterion.name}" if term.criterion.weight < 0 else term.criterion.name
    return f"{what} costs most ({term.cost:g} of {result.divisor:g})."
