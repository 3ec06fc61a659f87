"""The rubric metric for DSPy: `dspy.Evaluate(metric=RubricMetric(rubric, judge=...))`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.progress import counting_bar
from rubric_integrations.agreement.calibration import calibrate
from rubric_integrations.dspy.criteria_for import PredictorCriteria
from rubric_integrations.dspy.examples import Field, submission_of
from rubric_integrations.dspy.feedback_text import feedback, objective_scores
from rubric_integrations.dspy.history import HistoryRow, MetricHistory, MetricSummary
from rubric_integrations.dspy.noise import JudgeNoise, grade_repeatedly
from rubric_integrations.dspy.outage import OutageGuard
from rubric_integrations.dspy.report_cache import ReportCache
from rubric_integrations.dspy.rubric_source import rubric_of
from rubric_integrations.dspy.score import RubricScore
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction
from rubric_integrations.formats.rubric_like import RubricLike
from rubric_integrations.graders import Grader, PerCriterionGrader
from rubric_integrations.graders.by_criterion import CriterionGrader
from rubric_integrations.graders.endpoint import JudgeUnusable
from rubric_integrations.graders.rounds import grade_in_rounds
from rubric_integrations.judges.stored import StoreError
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.results.report import EvaluationReport, JudgeError, tag_key
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.ledger.addresses import as_store
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.scoring.policies import CannotAssess
from rubric_integrations.submission.messages import Respond, check_respond
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.runs.ledger import LedgerLike

_NOT_COPIED = ("_cache", "_history", "_outage_guard")


class RubricMetric:
    """Grades a DSPy program's predictions against a rubric; the metric of `dspy.Evaluate` and of every optimizer.

    A text is graded once: a second call for the same texts returns the cached report, so that GEPA's requests for
    feedback cost nothing and agree with the score. A copy of a metric, and one from a pickle, has the same settings and
    starts with empty caches and totals.

    Args:
        rubric: The rubric: a `Rubric`, the path of a rubric file, a list or a dictionary. An example with a field
            `rubric` of its own, which is no input of the program, is graded by both; None if every example has one. Or
            a function that returns one of these for an example.
        judge: The judge, as for a grader: a model name, a `dspy.LM`, an async function, a `Judge`, or `"offline"`.
            There is no default, because a judge without a model of its own would run on the student's model.
        grader: A grader with settings of its own, in place of `judge`.
        query: The example's field that holds the task, or a function of the example. By default all inputs of the
            example, labelled by name if there are several.
        response: The prediction's field to grade, or a function of the prediction. By default all outputs
            that the program declares, labelled by name if there are several: without the `reasoning`, `trajectory` and
            other fields that DSPy's modules add. A `dspy.Image`, `dspy.Audio` or `dspy.File` in it or in the task is
            sent to the judge as an attachment, with `[attachment 1]` in its place; other binary values are `[image]`.
        reference: The example's field that holds an exemplary answer, or a function of the example. By default none.
        context: The example's field that holds documents, such as retrieved passages (a text or a list), or a function
            of the example. By default none.
        respond: The part to grade of a response that is a list of chat messages: `"last"` grades the last message
            with the others as context, `"transcript"` grades all, and `"trajectory"` grades all with numbered steps.
            The trajectory of a `dspy.ReAct` or `dspy.ReActV2` prediction belongs to its submission; with
            `"trajectory"` it is graded, followed by the response.
        feedback: Writes a report as text for a reflecting model.
        criteria_for: For predictors of the program, the names of the criteria that each is responsible for. GEPA's
            feedback for a predictor then covers only these; a predictor without an entry gets the feedback on all. The
            predictors have the names of `program.named_predictors()`; the name of a module covers its predictors, so
            that `"answer"` is enough for `answer = dspy.ChainOfThought(...)`.
        on_abstain: How an abstention counts: `"skip"` (the default), `"zero"`, `"partial"` or `"fail"`. With
            `grader`, set the grader's `cannot_assess` instead.
        max_outage: The seconds, at least 0, for which the judge may not reply before `JudgeOutage` ends the run; until
            then lost calls are repeated. By default that of the grader (`CallLimits.max_outage`, 300). A wrong key, and
            a judge whose replies are never readable, end the run without waiting.
        cache_size: How many reports are cached, so that the same text is not graded twice, and how many rows
            `history` and `graded` have. With 0 nothing is cached and they are empty.
        library: Rubrics by name, or the path of a file with such a mapping, for examples whose `rubric` is a name.
        store: Stores judgments beyond this metric's lifetime: a `Ledger`, a path, a URL or another `JudgmentStore`.
            In `summary`, a judgment from the store counts with the cost of its original request.

    Raises:
        ValueError: Neither or both of `judge` and `grader` were passed, or a setting is unknown or out of range.
        TypeError: `rubric` is nothing that a rubric can be read from, or there is a `store`, and the judge has no
            `fingerprint`.
        RubricError: The file or the data of `rubric` is not a rubric.

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
        rubric: RubricLike | RubricFunction | None = None,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        query: Field | None = None,
        response: Field | None = None,
        reference: Field | None = None,
        context: Field | None = None,
        respond: Respond = "last",
        feedback: Callable[[EvaluationReport], str] = feedback,
        criteria_for: Mapping[str, Collection[str]] | None = None,
        on_abstain: CannotAssess | None = None,
        max_outage: float | None = None,
        cache_size: int = 4096,
        library: Mapping[str, RubricLike] | str | Path | None = None,
        store: LedgerLike | None = None,
    ):
        if (judge is None) == (grader is None):
            raise ValueError("`RubricMetric` needs either `judge`, such as 'openai/gpt-5-mini', or `grader`")
        if isinstance(grader, CriterionGrader) and grader.may_leave_open:
            raise ValueError("`grader` has `stop_when_decided`: a score left open would be 0 to an optimizer")
        if grader is not None and on_abstain is not None:
            raise ValueError("`on_abstain` goes with `judge`: set `cannot_assess` of the `grader` instead")
        if isinstance(cache_size, bool) or cache_size < 0:
            raise ValueError(f"`cache_size` must be at least 0 reports, got {cache_size!r}")
        check_respond(respond)
        self._cache_size = cache_size
        self._start_empty()
        if grader is None:
            grader = PerCriterionGrader(judge=judge, cannot_assess=on_abstain or "skip")
        self.rubrics = RowRubrics(rubric, library)
        grader = grader.for_run(max_outage=max_outage)
        self.grader = grader if store is None else grader.with_store(as_store(store))
        self.query, self.response, self.reference, self.context = query, response, reference, context
        self.respond: Respond = respond
        self.feedback = feedback
        self._predictor_criteria = PredictorCriteria(criteria_for or {})
        if self.rubrics.shared is not None:
            self._predictor_criteria.check_names(self.rubrics.shared)

    def __call__(
        self, example: Any, pred: Any, trace: object = None, pred_name: str | None = None, pred_trace: object = None
    ) -> RubricScore:
        """Grade one prediction; DSPy calls this, from any thread.

        The result does not depend on `trace`. GEPA passes one when it requests feedback, so the common
        `if trace is not None: return bool` would return no feedback.

        Raises:
            JudgeError: A criterion could not be judged, and the grader's `on_failure` is `"raise"`.
            JudgeOutage: The judge was unreachable for `max_outage` seconds, cannot be used, or its store cannot be
                written.
            MisnamedField: `query`, `response`, `reference` or `context` names a field that does not exist.
            RubricFunctionError: The function `rubric` failed, or returned no rubric; or the example has none.
        """
        rubric, submission = self._case(example, pred)
        if submission is None:
            message = "The program raised an error." if pred is None else "The program returned an empty response."
            self._history.count_call("nothing_to_grade")
            # The worst value for every objective: without values, a program would rise on GEPA's front by failing.
            names = [*map(tag_key, rubric.tags), *rubric.keys]
            return RubricScore(0.0, False, message, 0.0, dict.fromkeys(names, 0.0))
        report = self._report_for(rubric, submission)
        message = self.feedback(self._predictor_criteria.part_for(pred_name, report))
        if submission.reference and not report.passed:
            message += f"\nAn exemplary answer: {submission.reference}"
        return RubricScore(report.score or 0.0, report.passed, message, report.coverage, objective_scores(report))

    def as_reward_fn(self) -> Callable[[Mapping[str, Any], Any], float]:
        """Return this metric as the `reward_fn(inputs, prediction)` of `dspy.BestOfN` and `dspy.Refine`, in [0, 1].

        Their examples have inputs and no labels, so a `reference` must be one of the inputs.
        """

        def reward(inputs: Mapping[str, Any], pred: Any) -> float:
            return float(self(dspy.Example(**inputs).with_inputs(*inputs), pred))

        return reward

    def resume(self) -> None:
        """Allow grading again after a `JudgeOutage`, once the judge is fixed; complete grades are still cached."""
        self.grader.call_limiter.reset()
        self._outage_guard.reset()

    def noise(self, predictions: Iterable[tuple[Any, Any]], repeats: int = 5, *, progress: bool = True) -> JudgeNoise:
        """Measure how much the judge contradicts itself: grade every text `repeats` times, without any cache.

        Args:
            predictions: Pairs of an example and a prediction, as in the `results` of `dspy.Evaluate`; those with
                nothing to grade are left out.
            repeats: How often each text is graded, at least 2.
            progress: Whether to show a progress bar on stderr, if that is a terminal.

        Raises:
            JudgeError: A grade could not be completed.
            ValueError: `repeats` is below 2, or there is nothing to grade.
        """
        if repeats < 2:
            raise ValueError(f"`repeats` must be at least 2, got {repeats!r}: one grade cannot contradict itself")
        cases = [
            (rubric, submission)
            for rubric, submission in (self._case(*pair) for pair in predictions)
            if submission is not None
        ]
        if not cases:
            raise ValueError("`predictions` has nothing to grade: pass pairs of an example and a prediction")
        with counting_bar("judge noise", len(cases) * repeats, enabled=progress) as count_grade:
            reports = run_sync(grade_repeatedly(self.grader.without_cache(), cases, repeats, count_grade))
        for (_, submission), repeated in zip(cases, reports, strict=True):
            for report in repeated:
                self._history.add(submission, report)
        return JudgeNoise.of(reports)

    def summary(self, labels: Iterable[LabelledJudgment] | None = None) -> MetricSummary:
        """Return the totals so far: gradings, coverage, failures, tokens and cost.

        They are correct under threads, where `dspy.track_usage` reports nothing.

        Args:
            labels: People's labels of a random part of `graded`. With them, `calibration` has the mean score that
                people's answers would give, beside the judge's. The score that DSPy gets is always the judge's.

        Raises:
            ChosenLabelsError: All labels were chosen by people.
            ImportError: There are labels, and scipy is not installed.
            ValueError: No label belongs to a text in `graded`, or the scores do not follow from the criteria.
        """
        totals = self._history.summary()
        if labels is not None:
            totals["calibration"] = calibrate(self.graded, labels, rubric=self.rubrics.shared)
        return totals

    @property
    def graded(self) -> list[GradedRow]:
        """The latest grade of each text, as a run for `rubric_integrations.agreement`; ids are made of the inputs."""
        return self._history.graded()

    @property
    def history(self) -> list[HistoryRow]:
        """The latest computed grades, oldest first, as rows for `pandas.DataFrame(rubric_metric.history)`."""
        return self._history.rows()

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings for a copy or a pickle, without the caches, the totals and their locks."""
        return {name: value for name, value in vars(self).items() if name not in _NOT_COPIED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start_empty()

    def _start_empty(self) -> None:
        self._cache, self._history = ReportCache(self._cache_size), MetricHistory(self._cache_size)
        self._outage_guard = OutageGuard()

    def _case(self, example: Any, pred: Any) -> tuple[Rubric, Submission | None]:
        """The rubric and the submission of a prediction; no submission if there is nothing to grade."""
        rubric = rubric_of(self.rubrics, example)
        self._predictor_criteria.add_rubric(rubric)
        return rubric, submission_of(
            example, pred, query=self.query, response=self.response, reference=self.reference, context=self.context,
            respond=self.respond,
        )  # fmt: skip

    def _report_for(self, rubric: Rubric, submission: Submission) -> EvaluationReport:
        """The cached report of a submission, or a new one."""
        self._outage_guard.check()

        def grade() -> EvaluationReport:
            # Checked again: this caller may have waited for another whose failure was the outage.
            self._outage_guard.check()
            start = time.perf_counter()
            try:
                report = run_sync(grade_in_rounds(self.grader, rubric, submission))
            except JudgeError as error:
                self._history.add(submission, error.report, time.perf_counter() - start, failed=True)
                self._outage_guard.record_failure(error.report)
                raise
            except (JudgeUnusable, StoreError) as reason:
                self._outage_guard.end_run(reason)
            self._history.add(submission, report, time.perf_counter() - start)
            if report.failed_count:
                self._outage_guard.record_failure(report)
            else:
                self._outage_guard.record_success()
            return report

        state = [rubric.model_dump_json(), submission.model_dump_json(), *self.grader.fingerprints()]
        key = sha256("\n".join(state).encode()).hexdigest()
        result = self._cache.get_or_compute(key, grade)
        if not result.is_new:
            self._history.count_call("cached")
        return result.report
