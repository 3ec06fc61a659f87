"""The value that `RubricMetric` returns: a score, feedback for a reflecting model, and scores for GEPA's Pareto front.

This module also chooses the rubric of an example, and selects the criteria for which a predictor is responsible.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any, Self

from rubric_integrations.formats.row_rubrics import RowRubrics, problem_of
from rubric_integrations.judges.metric_score import MetricScore
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.report import CriterionReport, EvaluationReport, higher_is_better, tag_key


class RubricFunctionError(BaseException):
    """An example has no valid rubric, or the function that should return its rubric failed.

    It is a `BaseException` and not an `Exception`, like `JudgeOutage`. DSPy catches every `Exception` of a metric and
    would score every program 0.
    """


def rubric_of(rubrics: RowRubrics, example: Any) -> Rubric:
    """Return the rubric by which the predictions for an example are graded.

    Raises:
        RubricFunctionError: The function failed or did not return a rubric, or the example has no valid rubric.
    """
    try:
        return rubrics.of(example, _own_rubric(example, has_shared=rubrics.shared is not None))
    except Exception as error:
        fields = sorted(example.keys()) if hasattr(example, "keys") else []
        raise RubricFunctionError(
            f"an example {problem_of(error)}, among its fields {fields!r}: let the function or the field hold a "
            "Rubric, the path of a rubric file, a list or a dictionary, or DSPy would score every program 0"
        ) from error


def _own_rubric(example: Any, *, has_shared: bool) -> Any:
    """Return the field `rubric` of an example. With a shared rubric, a field that is a program input is ignored."""
    if not hasattr(example, "get"):
        return None
    return None if has_shared and "rubric" in input_names(example) else example.get("rubric")


def input_names(example: Any) -> set[str]:
    """Return the names of the inputs of an example. Empty if the example declares no inputs."""
    try:
        return set(example.inputs().keys())
    except (AttributeError, ValueError):
        return set()


class PredictorCriteria:
    """Selects the criteria of a report on which a predictor of a program gets feedback.

    Args:
        criteria_for: The names of criteria for each predictor. A key is the name of the predictor, as in
            `program.named_predictors()`, or the name of a module that contains the predictor. `"answer"` covers
            `answer.predict`, the predictor of `answer = dspy.ChainOfThought(...)`. If several names match a predictor,
            the longest name is used.

    Raises:
        TypeError: The criteria of a predictor are a single text.
    """

    def __init__(self, criteria_for: Mapping[str, Collection[str]]):
        for predictor, names in criteria_for.items():
            if isinstance(names, str):
                raise TypeError(
                    f"`criteria_for` maps {predictor!r} to {names!r}, which would be read letter by letter: "
                    f"write a list, [{names!r}]"
                )
        self.criteria_for = {predictor: frozenset(names) for predictor, names in criteria_for.items()}
        self._names_seen, self._matched, self._reported = set[str](), set[str](), set[str]()

    def check_names(self, rubric: Rubric) -> None:
        """Check that the shared rubric of all examples has every criterion that `criteria_for` names.

        Raises:
            ValueError: The rubric lacks one of the criteria.
        """
        problem = self._unknown_name(rubric.keys)
        if problem:
            raise ValueError(f"{problem}, but the criteria are {list(rubric.keys)!r}")

    def add_rubric(self, rubric: Rubric) -> None:
        """Record the criteria of one example's rubric, to detect names in `criteria_for` that no rubric has."""
        if self.criteria_for:
            self._names_seen.update(rubric.keys)

    def part_for(self, pred_name: str | None, report: EvaluationReport) -> EvaluationReport:
        """Return the report on the criteria of a predictor, or the full report if the predictor has no entry.

        Warns:
            UserWarning: The predictor has no entry, and some entries have not matched any predictor so far, possibly
                because of a typing error. This is warned once for each predictor.

        Raises:
            RubricFunctionError: An entry names a criterion that the rubrics of the examples so far do not have.
        """
        if not self.criteria_for or pred_name is None:
            return report
        problem = self._unknown_name(self._names_seen)
        if problem:
            raise RubricFunctionError(
                f"{problem}, but the rubrics of the examples so far have only {sorted(self._names_seen)!r}: name one "
                "of these, or the feedback for this predictor would be empty"
            )
        matching = [name for name in self.criteria_for if f"{pred_name}.".startswith(f"{name}.")]
        if not matching:
            self._warn_once(pred_name)
            return report
        entry = max(matching, key=len)
        self._matched.add(entry)
        names = self.criteria_for[entry]
        return report.model_copy(update={"report": tuple(row for row in report.criteria if row.name in names)})

    def _unknown_name(self, known: Collection[str]) -> str | None:
        for predictor, names in self.criteria_for.items():
            unknown = sorted(names.difference(known))
            if unknown:
                return f"`criteria_for` maps {predictor!r} to {unknown[0]!r}"
        return None

    def _warn_once(self, pred_name: str) -> None:
        unmatched = sorted(self.criteria_for.keys() - self._matched)
        if not unmatched or pred_name in self._reported:
            return
        self._reported.add(pred_name)
        warnings.warn(
            f"`criteria_for` has no entry for the predictor {pred_name!r}, so its feedback covers all criteria, and no "
            f"predictor so far matches the entries {unmatched!r}: compare them with `program.named_predictors()`",
            UserWarning,
            stacklevel=4,
        )


def feedback(report: EvaluationReport) -> str:
    """Write a report as text for a reflecting model, such as the one of GEPA.

    The criteria with a loss come first, the largest loss at the top, each with the judge's reason. The criteria without
    a value (abstentions and failures) follow. One line lists all criteria without a loss, and one line lists all
    criteria that do not apply.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> print(feedback(rubric.grade_sync("41", grader=PerCriterionGrader(judge="offline"))))
        Score 0.00 (not passed).
        UNMET (weight 1): Says 42: does not state the number 42
    """
    score = "undefined" if report.score is None else f"{report.score:.2f}"
    lines = [f"Score {score} ({'passed' if report.passed else 'not passed'})."]
    with_value = [row for row in report.criteria if row.value is not None]
    with_loss = sorted((row for row in with_value if _loss(row) > 0), key=_loss, reverse=True)
    lines += [_line(row) for row in with_loss]
    lines += [_line(row) for row in report.criteria if row.value is None and row.was_asked and not row.not_applicable]
    correct = [row for row in with_value if _loss(row) == 0]
    if correct:
        texts = (f"{row.requirement} (avoided)" if row.weight < 0 else row.requirement for row in correct)
        lines.append("As it should be: " + "; ".join(texts))
    if inapplicable := [row.requirement for row in report.criteria if row.not_applicable]:
        lines.append("Does not apply here: " + "; ".join(inapplicable))
    if report.reason:
        lines.append(report.reason)
    return "\n".join(lines)


def objective_scores(report: EvaluationReport) -> dict[str, float]:
    """Return the values in [0, 1] of the criteria by name, and the scores of the tags as `tag.<tag>`.

    Higher is always better: the value of a penalty (a criterion with a negative weight) is inverted. Criteria without a
    value and tags without a score are left out, because GEPA does not accept None.
    """
    tags = {tag_key(tag): score for tag, score in report.tags.items() if score is not None}
    return tags | {
        row.name: higher_is_better(row.value, is_penalty=row.weight < 0)
        for row in report.criteria
        if row.value is not None
    }


def _loss(row: CriterionReport) -> float:
    """Return the points that a criterion cost: the subtracted points of a penalty, otherwise the missing points."""
    value = row.value or 0.0
    return -row.weight * value if row.weight < 0 else row.weight * (1 - value)


def _line(row: CriterionReport) -> str:
    outcome = "PENALTY" if row.weight < 0 and row.value else row.verdict or "NOT JUDGED"
    return f"{outcome} (weight {row.weight:g}): {row.requirement}: {row.explanation}"


class RubricScore(MetricScore):
    """The value that `RubricMetric` returns. It is a number in arithmetic and comparisons, and also has the feedback.

    `dspy.Evaluate` and the optimizers that `RubricMetric` names accept it. All operators, `round`, `sum`, `max` and the
    functions of `math` and `statistics` treat it as `float(score)`. NumPy treats it as text: convert it with
    `float(score)` first.

    Attributes:
        score: The score in [0, 1]. 0 if the report's score is undefined.
        passed: Whether the submission reaches the rubric's pass mark and meets its required criteria. This is the truth
            value of the object. Therefore only passing submissions become demonstrations of `BootstrapFewShot`.
        feedback: The unmet criteria with the judge's reasons, then the met criteria.
        coverage: The share in [0, 1] of the rubric's weight that was assessed.
        objective_scores: The value in [0, 1] of each criterion by name, and the score of each tag as `tag.<tag>`.
            Higher is better, also for penalties. Abstentions are left out. GEPA builds a Pareto front over these
            values.

    Example:
        >>> score = RubricScore(score=0.5, passed=False, feedback="UNMET: Is brief", coverage=1.0)
        >>> 2 * score, bool(score), f"{score}"
        (1.0, False, '0.500 not passed')
    """

    def __new__(
        cls,
        score: float,
        passed: bool | None = None,
        feedback: str = "",
        coverage: float = 1.0,
        objective_scores: Mapping[str, float] | None = None,
    ) -> Self:
        """Make the string part of the object: the digits of the score. Without `passed`, return a plain float."""
        return super().__new__(cls, score, passed, feedback, objective_scores)

    def __init__(  # pyright: ignore[reportInconsistentConstructor] -- as in `MetricScore`
        self,
        score: float,
        passed: bool,
        feedback: str,
        coverage: float,
        objective_scores: Mapping[str, float] | None = None,
    ):
        super().__init__(score, passed, feedback, objective_scores)
        self.coverage = coverage

    def __reduce__(self) -> tuple[type[RubricScore], tuple[Any, ...]]:
        fields = ("score", "passed", "feedback", "coverage", "objective_scores")
        return type(self), tuple(self._store[field] for field in fields)

    def with_feedback_text(self) -> RubricScore:
        """Copy this score and add the feedback to the copy's text, for a model that sees only the text."""
        _, fields = self.__reduce__()
        return _ScoreWithText(*fields)


class _ScoreWithText(RubricScore):
    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.feedback}"
