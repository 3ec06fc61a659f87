"""The grade as a DSPy metric: `dspy.Evaluate(metric=RubricMetric(rubric, judge=...))`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from rubric_integrations.dspy.examples import Field, pick, query_of, response_of
from rubric_integrations.dspy.feedback import feedback, objective_scores
from rubric_integrations.dspy.score import RubricScore
from rubric_integrations.graders import Grader, PerCriterionGrader
from rubric_integrations.rubric import Rubric
from rubric_integrations.submission import Submission
from rubric_integrations.verdict import EvaluationReport, JudgeError, Spend

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike


class MetricSummary(TypedDict):
    """What a metric has done since it was made.

    Attributes:
        gradings: Calls of the metric that reached a judge or a check.
        passed: Those that passed.
        undefined: Those with nothing assessed, scored 0 for DSPy.
        failed: Those that ended in a judge's failure.
        nothing_to_grade: Calls for programs that raised or returned nothing.
        mean_coverage: Over `gradings`; None where there are none.
        calls: Requests to the judge.
        tokens: Their tokens.
        cost: US dollars; None where a price is not known.
    """

    gradings: int
    passed: int
    undefined: int
    failed: int
    nothing_to_grade: int
    mean_coverage: float | None
    calls: int
    tokens: int
    cost: float | None


class RubricMetric:
    """Grades a DSPy program's predictions against a rubric.

    Example:
        >>> import dspy
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> rubric_metric = RubricMetric(rubric, judge="offline")
        >>> example = dspy.Example(question="6 x 7?").with_inputs("question")
        >>> float(rubric_metric(example, dspy.Prediction(answer="It is 42.")))
        1.0
    """

    def __init__(
        self,
        rubric: Rubric | Callable[[Any], Rubric],
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        query: Field | None = None,
        response: Field | None = None,
        reference: Field | None = None,
    ):
        """Set up a metric.

        Args:
            rubric: The rubric, or a function that gives an example's own.
            judge: Who judges, as for a grader: a model name, a `dspy.LM`, an async function, a `Judge`, or
                `"offline"`. There is no default: a judge that is not named would run on the student's model.
            grader: In place of `judge`, a grader with settings of its own.
            query: The example's field that holds the task, or a function of the example; by default its inputs,
                labelled by name where there are several.
            response: The prediction's field to grade, or a function of the prediction; by default its outputs
                without their reasoning, labelled likewise.
            reference: The example's field with an exemplary answer, or a function of it; by default none.

        Raises:
            ValueError: Neither or both of `judge` and `grader` are given.
        """
        if (judge is None) == (grader is None):
            raise ValueError("`RubricMetric` needs either `judge`, such as 'openai/gpt-5-mini', or `grader`")
        self.rubric = rubric
        self.grader: Grader = grader or PerCriterionGrader(judge=judge)
        self.query, self.response, self.reference = query, response, reference
        self._lock = threading.Lock()
        self._counts = {"passed": 0, "undefined": 0, "failed": 0, "nothing_to_grade": 0}
        self._coverages: list[float] = []
        self._spend = Spend()

    def __call__(
        self, example: Any, pred: Any, trace: object = None, pred_name: str | None = None, pred_trace: object = None
    ) -> RubricScore:
        """Grade one prediction; DSPy calls this, from any thread.

        The answer does not depend on `trace`: GEPA passes one when it asks for feedback, and the classic
        `if trace is not None: return bool` would leave it without.

        Raises:
            JudgeError: A criterion could not be judged and the grader's `on_failure` is `"raise"`.
            ValueError: A named field is not there.
        """
        rubric = self.rubric if isinstance(self.rubric, Rubric) else self.rubric(example)
        response = response_of(self.response, pred)
        if not response or not response.strip():
            said = "The program raised an error." if pred is None else "The program returned an empty response."
            self._count("nothing_to_grade")
            # Worst in every objective: left out, a program would rise on GEPA's front by failing.
            return RubricScore(0.0, False, said, 0.0, dict.fromkeys(rubric.keys, 0.0))
        submission = Submission(
            response=response, query=query_of(self.query, example), reference=pick(self.reference, example, "reference")
        )
        try:
            report = self.grader.grade_sync(rubric, submission)
        except JudgeError as error:
            self._count("failed", error.report)
            raise
        self._count("undefined" if report.score is None else "passed" if report.passed else None, report)
        return RubricScore(
            report.score or 0.0, report.passed, feedback(report), report.coverage, objective_scores(report)
        )

    def summary(self) -> MetricSummary:
        """Gradings, coverage, failures, tokens and cost so far; right under threads, where DSPy's own is not."""
        with self._lock:
            graded = len(self._coverages)
            return MetricSummary(
                gradings=graded,
                passed=self._counts["passed"],
                undefined=self._counts["undefined"],
                failed=self._counts["failed"],
                nothing_to_grade=self._counts["nothing_to_grade"],
                mean_coverage=sum(self._coverages) / graded if graded else None,
                calls=self._spend.calls,
                tokens=self._spend.usage.total_tokens,
                cost=self._spend.cost,
            )

    def _count(self, outcome: str | None, report: EvaluationReport | None = None) -> None:
        with self._lock:
            if outcome:
                self._counts[outcome] += 1
            if report:
                self._coverages.append(report.coverage)
                self._spend += report.spend
