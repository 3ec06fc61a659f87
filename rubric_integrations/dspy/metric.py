"""The grade as a DSPy metric: `dspy.Evaluate(metric=RubricMetric(rubric, judge=...))`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import dspy

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.dspy.examples import Field, pick, query_of, response_of
from rubric_integrations.dspy.feedback_text import feedback, objective_scores
from rubric_integrations.dspy.history import HistoryRow, MetricHistory, MetricSummary
from rubric_integrations.dspy.noise import JudgeNoise, grade_repeatedly
from rubric_integrations.dspy.outage import OutageGuard
from rubric_integrations.dspy.report_cache import ReportCache
from rubric_integrations.dspy.score import RubricScore
from rubric_integrations.graders import Grader, PerCriterionGrader
from rubric_integrations.graders.by_criterion import CriterionGrader
from rubric_integrations.results.report import EvaluationReport, JudgeError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import CannotAssess
from rubric_integrations.submission.messages import Respond, check_respond
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.judges.stored import JudgmentStore


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
        respond: Respond = "last",
        feedback: Callable[[EvaluationReport], str] = feedback,
        criteria_for: Mapping[str, Collection[str]] | None = None,
        on_abstain: CannotAssess | None = None,
        max_judge_failures: int = 5,
        memory: int = 4096,
        store: JudgmentStore | None = None,
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
            respond: Of a response that is a list of chat messages, grade the `last`, with the rest as context, or the
                whole `transcript`.
            feedback: How a report is put into words for a model that reflects.
            criteria_for: The names of the criteria that each of a program's predictors answers for; GEPA then hears
                of those alone when it improves one. A predictor that is not named answers for all.
            on_abstain: What an abstention counts: `skip` (the default), `zero`, `partial` or `fail`. A grader
                brings its own `cannot_assess`.
            max_judge_failures: After so many failed grades in a row, `JudgeOutage` ends the run.
            memory: How many reports are kept, so that the same text is not judged twice, and how many rows
                `history` has; 0 keeps none.
            store: Where judgments are kept beyond this metric, such as a `Ledger` on disk. What comes from it counts
                in `summary` with what it cost when it was bought.

        Raises:
            ValueError: Neither or both of `judge` and `grader` are given, or a setting is unknown or out of range.
            TypeError: There is a `store`, and the judge cannot tell what its answers depend on.
        """
        if (judge is None) == (grader is None):
            raise ValueError("`RubricMetric` needs either `judge`, such as 'openai/gpt-5-mini', or `grader`")
        if isinstance(grader, CriterionGrader) and grader.may_leave_open:
            raise ValueError("`grader` has `stop_when_decided`: a score left open would be 0 to an optimizer")
        if grader is not None and on_abstain is not None:
            raise ValueError("`on_abstain` goes with `judge`; give the `grader` its `cannot_assess` instead")
        if isinstance(memory, bool) or memory < 0:
            raise ValueError(f"`memory` must be at least 0 reports, got {memory!r}")
        self.rubric = rubric
        grader = grader or PerCriterionGrader(judge=judge, cannot_assess=on_abstain or "skip")
        self.grader = grader if store is None else grader.with_store(store)
        self.feedback = feedback
        self.criteria_for = {name: frozenset(criteria) for name, criteria in (criteria_for or {}).items()}
        if isinstance(rubric, Rubric):
            _check_names(self.criteria_for, rubric)
        self._memo, self._guard = ReportCache(memory), OutageGuard(max_judge_failures)
        check_respond(respond)
        self.query, self.response, self.reference, self.respond = query, response, reference, respond
        self._account = MetricHistory(memory)

    def __call__(
        self, example: Any, pred: Any, trace: object = None, pred_name: str | None = None, pred_trace: object = None
    ) -> RubricScore:
        """Grade one prediction; DSPy calls this, from any thread.

        The answer does not depend on `trace`: GEPA passes one when it asks for feedback, and the classic
        `if trace is not None: return bool` would leave it without.

        Raises:
            JudgeError: A criterion could not be judged and the grader's `on_failure` is `"raise"`.
            JudgeOutage: That happened `max_judge_failures` times in a row.
            MisnamedField: A named field is not there.
        """
        rubric, submission = self._case(example, pred)
        if submission is None:
            said = "The program raised an error." if pred is None else "The program returned an empty response."
            self._account.note("nothing_to_grade")
            # Worst in every objective: left out, a program would rise on GEPA's front by failing.
            return RubricScore(0.0, False, said, 0.0, dict.fromkeys(rubric.keys, 0.0))
        report = self._bought(rubric, submission)
        about = self.criteria_for.get(pred_name or "")
        told = (
            report
            if about is None
            else report.model_copy(update={"report": tuple(row for row in report.criteria if row.name in about)})
        )
        said = self.feedback(told)
        if submission.reference and not report.passed:
            said += f"\nAn exemplary answer: {submission.reference}"
        return RubricScore(report.score or 0.0, report.passed, said, report.coverage, objective_scores(report))

    def as_reward_fn(self) -> Callable[[Mapping[str, Any], Any], float]:
        """This metric as the `reward_fn(inputs, prediction)` of `dspy.BestOfN` and `dspy.Refine`, in [0, 1].

        Their inputs hold no labels: name no `reference` that is none of the inputs.
        """

        def reward(inputs: Mapping[str, Any], pred: Any) -> float:
            return float(self(dspy.Example(**inputs).with_inputs(*inputs), pred))

        return reward

    def resume(self) -> None:
        """Go on after a `JudgeOutage`, once the judge is mended; what was graded is remembered."""
        self._guard.reset()

    def noise(self, predictions: Iterable[tuple[Any, Any]], repeats: int = 5) -> JudgeNoise:
        """How much the judge contradicts itself: every text is judged anew `repeats` times, past every cache.

        Args:
            predictions: Pairs of an example and a prediction, as in the `results` of `dspy.Evaluate`; those with
                nothing to grade are left out.
            repeats: How often each is judged, at least 2.

        Raises:
            JudgeError: A grade could not be completed.
            ValueError: `repeats` is below 2, or there is nothing to grade.
        """
        if repeats < 2:
            raise ValueError(f"`repeats` must be at least 2, got {repeats!r}: one grade cannot contradict itself")
        cases = [(rubric, text) for rubric, text in (self._case(*pair) for pair in predictions) if text is not None]
        if not cases:
            raise ValueError("`predictions` holds nothing to grade")
        reports = run_sync(grade_repeatedly(self.grader.without_cache(), cases, repeats))
        for (_, submission), text in zip(cases, reports, strict=True):
            for report in text:
                self._account.add(submission, report)
        return JudgeNoise.of(reports)

    def _case(self, example: Any, pred: Any) -> tuple[Rubric, Submission | None]:
        rubric = self.rubric if isinstance(self.rubric, Rubric) else self.rubric(example)
        response = response_of(self.response, pred)
        if not response or (isinstance(response, str) and not response.strip()):
            return rubric, None
        reference = pick(self.reference, example, "reference")
        # A conversation brings its own task; the inputs, unless they are named, are how it began.
        query = None if isinstance(response, list) and self.query is None else query_of(self.query, example)
        texts = {"response": response, "query": query, "reference": reference}
        return rubric, Submission.model_validate({**texts, "respond": self.respond})

    def _bought(self, rubric: Rubric, submission: Submission) -> EvaluationReport:
        self._guard.check()

        def grade() -> EvaluationReport:
            self._guard.check()  # again: this caller may have waited for the one who met the outage
            start = time.perf_counter()
            try:
                report = self.grader.grade_sync(rubric, submission)
            except JudgeError as error:
                self._account.add(submission, error.report, time.perf_counter() - start, failed=True)
                self._guard.failed(str(error))
                raise
            self._account.add(submission, report, time.perf_counter() - start)
            if report.failed_count:
                self._guard.failed(report.error or "no answer")
            else:
                self._guard.worked()
            return report

        state = [rubric.model_dump_json(), submission.model_dump_json(), *self.grader.fingerprints()]
        bought = self._memo.once(sha256("\n".join(state).encode("utf-8", "surrogatepass")).hexdigest(), grade)
        if not bought.paid:
            self._account.note("remembered")
        return bought.report

    def summary(self) -> MetricSummary:
        """Gradings, coverage, failures, tokens and cost so far; right under threads, where DSPy's own is not."""
        return self._account.summary()

    @property
    def history(self) -> list[HistoryRow]:
        """The last grades that were bought, oldest first, a row each: `pandas.DataFrame(rubric_metric.history)`."""
        return self._account.history()


def _check_names(criteria_for: Mapping[str, Collection[str]], rubric: Rubric) -> None:
    for predictor, names in criteria_for.items():
        unknown = sorted(set(names) - set(rubric.keys))
        if unknown:
            raise ValueError(
                f"`criteria_for` maps {predictor!r} to {unknown[0]!r}, but the criteria are {list(rubric.keys)!r}"
            )
