"""The grade as a DSPy metric: `dspy.Evaluate(metric=RubricMetric(rubric, judge=...))`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypedDict, cast

import dspy

from rubric_integrations.formats.agentv import EvalCase
from rubric_integrations.graders import Grader, PerCriterionGrader
from rubric_integrations.rubric import Rubric
from rubric_integrations.submission import Submission
from rubric_integrations.verdict import CriterionReport, EvaluationReport, JudgeError, Spend

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike

Field = str | Callable[[Any], str | None]
"""Where a text comes from: a field's name, or a function of the example (for a response: of the prediction)."""

# What a program says on the way to its answer is not the answer.
_REASONING = ("reasoning", "rationale")


class RubricScore(dspy.Prediction, str):
    """What a DSPy metric returns: it sums, compares and multiplies as a number, with its feedback beside it.

    Three habits of DSPy's consumers shape it. BootstrapFewShot tests its truth, and a plain `dspy.Prediction` is
    always true, so that wrong answers become demonstrations: this one is true exactly if the submission passed.
    `Evaluate(save_as_json=...)` fails on a plain one, after the run is paid for: this one is written as its digits.
    SIMBA takes a float for a bare number and shows its rule writer neither value nor feedback: so it is a text.

    Attributes:
        score: In [0, 1]; 0 where the report's score is undefined, with `coverage` 0 beside it.
        passed: Whether the rubric's pass mark and gates are met.
        feedback: What was unmet and why, then what was met.
        coverage: The share of the rubric's weight that was assessed.
    """

    def __new__(cls, score: float, passed: bool, feedback: str, coverage: float) -> Self:
        """A text of the score's digits."""
        return str.__new__(cls, repr(float(score)))

    def __init__(self, score: float, passed: bool, feedback: str, coverage: float):
        super().__init__(score=score, passed=passed, feedback=feedback, coverage=coverage)

    def __bool__(self) -> bool:
        return bool(self._store["passed"])

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) if isinstance(other, dspy.Example) else float(self) == other

    def __hash__(self) -> int:
        return hash(float(self))

    def __mul__(self, other: Any) -> Any:  # a text would repeat itself
        return float(self) * other

    def __rmul__(self, other: Any) -> Any:
        return float(self) * other

    def __str__(self) -> str:
        return f"{float(self):.3f} {'passed' if self else 'not passed'}"

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __reduce__(self) -> tuple[type[RubricScore], tuple[Any, ...]]:
        return RubricScore, tuple(self._store.values())


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
        response = None if pred is None else self._response(pred)
        if not response or not response.strip():
            said = "The program raised an error." if pred is None else "The program returned an empty response."
            self._count("nothing_to_grade")
            return RubricScore(score=0.0, passed=False, feedback=said, coverage=0.0)
        rubric = self.rubric if isinstance(self.rubric, Rubric) else self.rubric(example)
        submission = Submission(
            response=response, query=self._query(example), reference=_pick(self.reference, example, "reference")
        )
        try:
            report = self.grader.grade_sync(rubric, submission)
        except JudgeError as error:
            self._count("failed", error.report)
            raise
        self._count("undefined" if report.score is None else "passed" if report.passed else None, report)
        return RubricScore(
            score=report.score or 0.0, passed=report.passed, feedback=feedback(report), coverage=report.coverage
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

    def _query(self, example: Any) -> str | None:
        if self.query is not None:
            return _pick(self.query, example, "query")
        try:
            return _labelled(dict(example.inputs().items())) or None
        except (AttributeError, ValueError):
            return None  # an example that does not say which of its fields are inputs

    def _response(self, pred: Any) -> str | None:
        if self.response is not None:
            return _pick(self.response, pred, "response")
        if not isinstance(pred, dspy.Example):
            return pred if isinstance(pred, str) else str(pred)
        return _labelled({name: value for name, value in pred.items() if name not in _REASONING})


def to_examples(cases: Iterable[EvalCase]) -> list[dspy.Example]:
    """AgentV's cases as a DSPy devset: `input` is the input; `expected_outcome` and `rubric` are labels.

    Score them with `RubricMetric(lambda example: example.rubric, judge=...)`.
    """
    return [
        dspy.Example(
            id=case.id, input=case.input, expected_outcome=case.expected_outcome, rubric=case.rubric
        ).with_inputs("input")
        for case in cases
    ]


def feedback(report: EvaluationReport) -> str:
    """A report in words that a reflecting model can act on: what cost most first, what was met in one line.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> print(feedback(rubric.grade_sync("41", grader=PerCriterionGrader(judge="offline"))))
        Score 0.00 (not passed).
        UNMET (weight 1): Says 42: does not state the number 42
    """
    score = "undefined" if report.score is None else f"{report.score:.2f}"
    lines = [f"Score {score} ({'passed' if report.passed else 'not passed'})."]
    lost = [row for row in report.criteria if row.value is not None and _lost(row) > 0]
    lines += [_line(row) for row in sorted(lost, key=_lost, reverse=True)]
    lines += [_line(row) for row in report.criteria if row.value is None]
    kept = [row for row in report.criteria if row.value is not None and _lost(row) == 0]
    met = [f"{row.requirement} (avoided)" if row.weight < 0 else row.requirement for row in kept]
    if met:
        lines.append("As it should be: " + "; ".join(met))
    return "\n".join(lines)


def _lost(row: CriterionReport) -> float:
    value = row.value or 0.0
    return -row.weight * value if row.weight < 0 else row.weight * (1 - value)


def _line(row: CriterionReport) -> str:
    what = "PENALTY" if row.weight < 0 and row.value else row.verdict or "NOT JUDGED"
    return f"{what} (weight {row.weight:g}): {row.requirement}: {row.error or row.reason}"


def _pick(field: Field | None, source: Any, option: str) -> str | None:
    if field is None:
        return None
    if callable(field):
        return field(source)
    try:
        return _text(source[field])
    except (KeyError, TypeError):
        known = sorted(source.keys()) if hasattr(source, "keys") else []
        raise ValueError(f"`{option}` names the field {field!r}, but there are only {known!r}: name one") from None


def _labelled(fields: Mapping[str, Any]) -> str:
    if len(fields) == 1:
        return _text(next(iter(fields.values())))
    return "\n\n".join(f"{name}: {_text(value)}" for name, value in fields.items())


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict | list | tuple):
        return json.dumps(cast("object", value), ensure_ascii=False, default=str)
    return str(value)
