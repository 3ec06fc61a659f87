"""The grade as a LangSmith evaluator: one feedback a criterion, and one for the score."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from langsmith.evaluation import EvaluationResult, EvaluationResults, RunEvaluator
from langsmith.schemas import Example, Run

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.langchain.fields import Field, Fields, resolve_rubric
from rubric_integrations.langchain.offline import suppress_tracing_if_offline
from rubric_integrations.results.report import CriterionReport, EvaluationReport, JudgeError
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.messages import Respond

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike


class RubricEvaluator(RunEvaluator):
    """Grades runs of a target in `client.evaluate` and `aevaluate`, and texts in the way of openevals.

    Each criterion is a feedback `rubric.<name>`: its value in [0, 1] as the score (1 for MET, also of a penalty, where
    MET means that the error was committed), the judge's reason as the comment; an abstention has no score and the
    value `"CANNOT_ASSESS"`. The feedback `rubric` is the score of the whole. A target that failed gets no score, and a
    criterion that the judge failed at is an error row, never a zero.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> evaluator = RubricEvaluator(rubric, judge="offline")
        >>> result = evaluator(inputs={"question": "6 x 7?"}, outputs={"answer": "It is 42."})
        >>> result["key"], result["score"]
        ('rubric', 1.0)
    """

    def __init__(
        self,
        rubric: Rubric | Callable[[Any], Rubric],
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        key_prefix: str = "rubric",
        output_key: Field | None = None,
        input_key: Field | None = None,
        reference_key: Field | None = None,
        respond: Respond = "last",
    ):
        """Set up an evaluator.

        Args:
            rubric: The rubric, or a function that gives one for an example (in the openevals way, for the inputs).
            judge: Who judges, as for a grader: a LangChain chat model, a model name, a `dspy.LM`, an async function.
            grader: In place of `judge`, a grader with settings of its own.
            key_prefix: The key of the score, and what comes before the dot in the criteria's keys.
            output_key: The key of the target's outputs that is graded, or a function of them; by default the only
                one, or one with a usual name such as `output` or `answer`.
            input_key: The same for the task, of the inputs.
            reference_key: The same for an exemplary answer, of the example's outputs.
            respond: Of an output that is a list of messages, grade the `"last"` or the whole `"transcript"`.

        Raises:
            ValueError: Neither or both of `judge` and `grader` are given.
        """
        self.rubric, self.key_prefix = rubric, key_prefix
        self.fields = Fields(output_key, input_key, reference_key, respond)
        self._grader = resolve_grader(judge, grader, "RubricEvaluator")

    @property
    def feedback_keys(self) -> list[str]:
        """The keys of all feedback, where the rubric is the same for all examples; LangSmith files errors by them."""
        names = self.rubric.keys if isinstance(self.rubric, Rubric) else ()
        return [self.key_prefix, *map(self._key, names)]

    def evaluate_run(
        self, run: Run, example: Example | None = None, evaluator_run_id: uuid.UUID | None = None
    ) -> EvaluationResults:
        """Grade one run; also from threads and from within a running event loop."""
        with suppress_tracing_if_offline():
            return run_sync(self._evaluate(run, example))

    async def aevaluate_run(
        self, run: Run, example: Example | None = None, evaluator_run_id: uuid.UUID | None = None
    ) -> EvaluationResults:
        """Grade one run."""
        with suppress_tracing_if_offline():
            return await self._evaluate(run, example)

    def __call__(
        self, *, inputs: Any = None, outputs: Any = None, reference_outputs: Any = None, **_more: Any
    ) -> dict[str, Any]:
        """Grade in the way of openevals, and return its dict: `key`, `score`, `comment`, `metadata`.

        `metadata` has `passed`, `coverage` and, under `criteria`, the feedback of each criterion. The score is None
        where nothing was assessed.

        Raises:
            JudgeError: A criterion could not be judged.
            ValueError: There is nothing to grade.
        """
        return run_sync(self.acall(inputs=inputs, outputs=outputs, reference_outputs=reference_outputs))

    async def acall(
        self, *, inputs: Any = None, outputs: Any = None, reference_outputs: Any = None, **_more: Any
    ) -> dict[str, Any]:
        """`__call__`, asynchronously.

        Raises:
            JudgeError: A criterion could not be judged.
            ValueError: There is nothing to grade.
        """
        submission = self.fields.submission(inputs, outputs, reference_outputs)
        if submission is None:
            raise ValueError(f"`outputs` is {outputs!r}: there is nothing to grade")
        rubric = resolve_rubric(self.rubric, inputs)
        with suppress_tracing_if_offline():
            report = await self._grader().grade(rubric, submission)
        total, *rows = self._results(rubric, report)
        criteria = [row.model_dump(include={"key", "score", "value", "comment"}, exclude_none=True) for row in rows]
        return {
            "key": total.key,
            "score": total.score,
            "comment": total.comment,
            "metadata": {**total.evaluator_info, "criteria": criteria},
        }

    async def _evaluate(self, run: Run, example: Example | None) -> EvaluationResults:
        rubric = resolve_rubric(self.rubric, example)
        references = example.outputs if example else None
        submission = None if run.error else self.fields.submission(run.inputs, run.outputs, references)
        if submission is None:
            said = f"not graded: the target failed: {run.error}" if run.error else "not graded: the target gave nothing"
            return EvaluationResults(results=[EvaluationResult(key=self.key_prefix, comment=said)])
        try:
            report = await self._grader().grade(rubric, submission)
        except JudgeError as error:
            # What was judged is kept; a partial sum must not pass for the score.
            total, *rows = self._results(rubric, error.report)
            failed = {"score": None, "comment": f"not graded: {error}", "extra": {"error": True}}
            return EvaluationResults(results=[total.model_copy(update=failed), *rows])
        return EvaluationResults(results=self._results(rubric, report))

    def _results(self, rubric: Rubric, report: EvaluationReport) -> list[EvaluationResult]:
        total = EvaluationResult(
            key=self.key_prefix,
            score=report.score,
            comment=_in_a_line(report),
            feedback_config={"type": "continuous", "min": 0.0, "max": 1.0} if report.score is not None else None,
            evaluator_info={
                "passed": report.passed,
                "coverage": report.coverage,
                "raw_score": report.raw_score,
                "calls": report.spend.calls,
                "total_tokens": report.token_usage.total_tokens,
                "cost": report.cost,
            },
        )
        rows = zip(rubric.criteria, report.criteria, strict=True) if report.report else ()
        return [total, *(self._result(criterion, row) for criterion, row in rows)]

    def _result(self, criterion: Criterion, row: CriterionReport) -> EvaluationResult:
        key, config = self._key(row.name), feedback_config(criterion)
        if row.error:
            return EvaluationResult(key=key, comment=f"not judged: {row.error}", extra={"error": True})
        if row.value is None:
            return EvaluationResult(key=key, value="CANNOT_ASSESS", comment=row.reason, feedback_config=config)
        said = row.reason if criterion.kind == "binary" else f"{row.verdict}: {row.reason}"
        return EvaluationResult(key=key, score=row.value, comment=said, feedback_config=config)

    def _key(self, name: str) -> str:
        return f"{self.key_prefix}.{name}"


def feedback_config(criterion: Criterion) -> dict[str, Any]:
    """How LangSmith is to show a criterion's feedback: its verdicts or options by value, or a number in [0, 1]."""
    if criterion.kind == "binary":
        met = "MET: the error was committed" if criterion.is_penalty else "MET"
        unmet = "UNMET: it was not" if criterion.is_penalty else "UNMET"
        return {"type": "categorical", "categories": [{"value": 1.0, "label": met}, {"value": 0.0, "label": unmet}]}
    options = criterion.choices if criterion.options is not None else ()
    if options and len({option.value for option in options}) == len(options):
        return {"type": "categorical", "categories": [{"value": o.value, "label": o.label} for o in options]}
    return {"type": "continuous", "min": 0.0, "max": 1.0}


def resolve_grader(judge: JudgeLike | None, grader: Grader | None, who: str) -> Callable[[], Grader]:
    """A grader with this judge, made when it is first needed: until then neither it nor DSPy is loaded.

    Raises:
        ValueError: Neither or both are given.
    """
    if (judge is None) == (grader is None):
        raise ValueError(f"`{who}` needs either `judge`, such as ChatOpenAI(model='gpt-5-mini'), or `grader`")
    made, lock = [grader] if grader else [], threading.Lock()

    def get() -> Grader:
        with lock:  # one grader, since it holds the cap on concurrency
            if not made:
                from rubric_integrations.graders import PerCriterionGrader

                made.append(PerCriterionGrader(judge))
            return made[0]

    return get


def _in_a_line(report: EvaluationReport) -> str:
    unmet = [row.name for row in report.criteria if row.value is not None and not row.passed]
    parts = ["passed" if report.passed else "not passed", f"coverage {report.coverage:.0%}"]
    return "; ".join(
        [*parts, *(["unmet: " + ", ".join(unmet)] if unmet else []), *([report.reason] * bool(report.reason))]
    )
