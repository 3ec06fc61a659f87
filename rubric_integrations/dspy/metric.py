"""`RubricMetric`, the rubric metric for DSPy, and the guard that ends a run whose grades fail.

Without the guard, DSPy would count the failures of a judge as bad programs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import dspy

from rubric_integrations._host import HostGrader
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.terminal import counting_bar
from rubric_integrations.dspy.examples import ContextSource, submission_of
from rubric_integrations.dspy.feedback_text import PredictorCriteria, RubricScore, feedback, objective_scores, rubric_of
from rubric_integrations.dspy.history import HistoryRow, MetricHistory, MetricSummary, ReportCache
from rubric_integrations.dspy.noise import JudgeNoise, grade_repeatedly
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.graders.endpoint import MAX_FAILED_SUBMISSIONS, JudgeOutage, JudgeUnusable
from rubric_integrations.graders.grader import CriterionGrader
from rubric_integrations.judges import as_judge
from rubric_integrations.judges.lm_judge import JudgeWithModel
from rubric_integrations.judges.store import StoreError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow, RunFile, read_run, run_line
from rubric_integrations.scoring.labels import LabelledJudgment
from rubric_integrations.scoring.policies import CannotAssess
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, failure_kinds, tag_key
from rubric_integrations.submission.messages import NO_FIELDS, Fields, Respond, check_respond
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.calibration import calibrate

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.judges.models.names import ModelLike
    from rubric_integrations.runs.ledger import LedgerLike
    from rubric_integrations.trust.matching import Cluster

_logger = logging.getLogger(__name__)


class OutageGuard:
    """Refuses further grades, over all threads, once the run has to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_warned = False
        self.reset()

    def check(self) -> None:
        """Raise if the run has ended.

        Raises:
            JudgeOutage: It has ended since the last `reset`.
        """
        with self._lock:
            if self._message:
                raise JudgeOutage(self._message)

    def end_run(self, reason: object) -> NoReturn:
        """End the run for a reason, such as a `JudgeUnusable`, unless it has ended for another.

        Raises:
            JudgeOutage: Always.
        """
        with self._lock:
            if self._message is None:
                self._message = (
                    f"{str(reason).rstrip('.')}. The run ends here, because DSPy would score its programs 0. Fix the "
                    "judge, call the metric's `resume()` and start the run again: complete grades are cached and not "
                    "paid for twice"
                )
            # The traceback of the judge's error would hide this message.
            raise JudgeOutage(self._message) from None

    def warn_once(self, error: JudgeError) -> None:
        """Log once how DSPy counts rows whose grade failed."""
        with self._lock:
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            _logger.warning(
                "a row has no grade: %s. DSPy counts such a row as its `failure_score`, 0 by default, in averages, and "
                "ends an evaluation after `max_errors` (%d) of them. `summary()` has their number (`failed`), and the "
                "mean score of the others (`mean_score`)",
                error, dspy.settings.max_errors,
            )  # fmt: skip

    def record_success(self) -> None:
        """Record a complete grade."""
        with self._lock:
            self._failed_grades = 0

    def record_failure(self, report: EvaluationReport) -> None:
        """Record the report of an incomplete grade.

        Raises:
            JudgeOutage: It is one of too many in a row.
        """
        if failure_kinds(report) == {"transport"}:
            return  # an outage is measured in time: 16 threads collect 16 failures in a second of it
        with self._lock:
            self._failed_grades += 1
            is_outage = self._failed_grades >= MAX_FAILED_SUBMISSIONS
        if is_outage:
            self.end_run(f"the last {MAX_FAILED_SUBMISSIONS} submissions failed: {report.error}")

    def reset(self) -> None:
        """Forget all failures."""
        with self._lock:
            self._message: str | None = None
            self._failed_grades = 0


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
        judge_lm: The model of a judge that is written with DSPy, such as a module or a function that awaits a
            predictor, for its predictors without a model. Without it, calls of such predictors are errors.
        grader: A grader with settings of its own, in place of `judge`.
        ledger: Stores judgments beyond this metric's lifetime: a path, a URL, an open ledger or another
            `JudgmentStore`. In `summary`, a judgment from it counts with the cost of its original request.
        fields: What is read, each by the name of a field or by a function: the `query` of the example, by default all
            its inputs, labelled by name if there are several; the `response` of the prediction, by default all outputs
            that the program declares, without documents and without the `reasoning`, `trajectory` and other fields that
            DSPy's modules add; the `reference` of the example, by default none; and the `context`. A program that
            returns a mapping is graded by its usual name, such as `answer`, or else as JSON. A `dspy.Image`,
            `dspy.Audio` or `dspy.File` in the response or the task is sent to the judge as an attachment, with
            `[attachment 1]` in its place; other binary values are `[image]`.
        context: The documents that a judge is shown, such as retrieved passages: a field of the example or else of the
            prediction, or `lambda example, prediction: ...`. By default the lists of the prediction under `context`,
            `passages` or `documents`, if it has another output and `fields.response` is not set. What is shown as
            documents is not graded. Also `fields=Fields(context=...)`.
        respond: The part to grade of a response that is a list of chat messages: `"last"` grades the last message
            with the others as context, `"transcript"` grades all, and `"trajectory"` grades all with numbered steps.
            The trajectory of a `dspy.ReAct` or `dspy.ReActV2` prediction belongs to its submission; with
            `"trajectory"` it is graded, followed by the response.
        feedback: Writes a report as text for a reflecting model.
        criteria_for: For predictors of the program, the names of the criteria that each is responsible for. GEPA's
            feedback for a predictor then covers only these; a predictor without an entry gets the feedback on all. The
            predictors have the names of `program.named_predictors()`; the name of a module covers its predictors, so
            that `"answer"` is enough for `answer = dspy.ChainOfThought(...)`.
        cannot_assess: How an abstention counts: `"skip"`, `"zero"`, `"partial"`, `"fail"`, or a number in [0, 1], the
            share of a positive weight that it earns. With `grader`, set it there.
        limits: The limits on the judge's calls, by default `CallLimits()`; with `grader`, set them there. After
            `max_outage` seconds without a reply, `JudgeOutage` ends the run; until then lost calls are repeated. A
            wrong key, and a judge whose replies are never readable, end the run without waiting.
        cache_size: How many reports are cached, so that the same text is not graded twice, and how many rows
            `history` and `graded` have. With 0 nothing is cached and they are empty.
        library: Rubrics by name, or the path of a file with such a mapping, for examples whose `rubric` is a name.

    Raises:
        ValueError: Neither or both of `judge` and `grader` were passed, or a setting is unknown or out of range.
        TypeError: `rubric` is nothing that a rubric can be read from, or there is a `ledger`, and the judge has no
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
        judge_lm: ModelLike | None = None,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
        fields: Fields = NO_FIELDS,
        context: ContextSource | None = None,
        respond: Respond = "last",
        feedback: Callable[[EvaluationReport], str] = feedback,
        criteria_for: Mapping[str, Collection[str]] | None = None,
        cannot_assess: CannotAssess = "skip",
        limits: CallLimits | None = None,
        cache_size: int = 4096,
        library: Mapping[str, RubricLike] | str | Path | None = None,
    ):
        if isinstance(grader, CriterionGrader) and grader.may_leave_open:
            raise ValueError("`grader` has `stop_when_decided`: a score left open would be 0 to an optimizer")
        if isinstance(cache_size, bool) or cache_size < 0:
            raise ValueError(f"`cache_size` must be at least 0 reports, got {cache_size!r}")
        check_respond(respond)
        self._cache_size = cache_size
        self._start_empty()
        self.rubrics = RowRubrics(rubric, library)
        if judge_lm is not None:
            if judge is None:
                raise ValueError("`judge_lm` of `RubricMetric` goes with `judge`, not with `grader`: leave it out")
            judge = JudgeWithModel(as_judge(judge), judge_lm)
        opened = HostGrader("RubricMetric", judge, grader, ledger, cannot_assess=cannot_assess, limits=limits)
        self.grader = opened().for_run()
        if context is not None:
            if fields.context is not None:
                raise ValueError("`context` and `fields.context` are two names of one thing: pass one")
            fields = fields.model_copy(update={"context": context})
        self.fields = fields
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
            MisnamedField: One of the `fields` does not exist.
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

    def as_reward_fn(self) -> Callable[[Mapping[str, Any], Any], Any]:
        """Return this metric as the `reward_fn(inputs, prediction)` of `dspy.BestOfN` and `dspy.Refine`.

        A reward is a `RubricScore` whose text has the feedback. `dspy.Refine` shows it to the model that gives advice.
        Both drop an attempt whose grade failed. A warning is logged for each.

        Their examples have inputs and no labels, so a `reference` must be one of the inputs.
        """

        # `dspy.Refine` shows the source of this function to the model that gives advice.
        def reward(inputs: Mapping[str, Any], pred: Any) -> RubricScore:
            """Grade the outputs by a rubric: a score in [0, 1], and what is wrong with them."""
            return self._reward(inputs, pred)

        return reward

    def _reward(self, inputs: Mapping[str, Any], pred: Any) -> RubricScore:
        try:
            return self(dspy.Example(**inputs).with_inputs(*inputs), pred).with_feedback_text()
        except JudgeError as error:
            _logger.warning(
                "an attempt has no grade and is dropped: %s. `dspy.BestOfN` and `dspy.Refine` choose among the others, "
                "and may return None if there are none; with `fail_count=-1` they raise the error",
                error,
            )
            raise

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
        for (rubric, submission), repeated in zip(cases, reports, strict=True):
            for report in repeated:
                self._history.add(rubric, submission, report)
        return JudgeNoise.of(reports)

    def summary(
        self, labels: Iterable[LabelledJudgment] | None = None, *, cluster: Cluster | None = None
    ) -> MetricSummary:
        """Return the totals so far: gradings, coverage, failures, tokens and cost.

        They are correct under threads, where `dspy.track_usage` reports nothing. The average of `dspy.Evaluate` counts
        a row whose grade failed as its `failure_score`, 0 by default. Here, such rows are counted in `failed`, and
        `mean_score` is the mean of the others.

        Args:
            labels: People's labels of a random part of `graded`. With them, `calibration` has the mean score that
                people's answers would give, beside the judge's. The score that DSPy gets is always the judge's.
            cluster: Which texts depend on each other: `"query"` for several responses to one task, or a function of a
                row's id.

        Raises:
            ChosenLabelsError: All labels were chosen by people.
            ImportError: There are labels, and scipy is not installed.
            ValueError: No label belongs to a text in `graded`, or the scores do not follow from the criteria.
        """
        totals = self._history.summary()
        if labels is not None:
            totals["calibration"] = calibrate(self.graded, labels, rubric=self.rubrics.shared, cluster=cluster)
        return totals

    @property
    def graded(self) -> list[GradedRow]:
        """The latest grade of each text, as a run for `rubric_integrations.trust`; ids are made of the inputs."""
        return self._history.graded()

    def to_run(self, path: str | Path, *, overwrite: bool = False) -> RunFile:
        """Write the grades in `graded` to a run file, for `rubric-integrations report`, `show`, `label` and `compare`.

        An id is made of the inputs, so that two programs that were evaluated on the same examples can be compared.

        Args:
            path: The file, such as `run.jsonl`.
            overwrite: Whether to replace a file that exists.

        Returns:
            The run, as `read_run` reads it.

        Raises:
            FileExistsError: The file exists, and `overwrite` is False.
            ValueError: Nothing is graded yet.

        Example:
            >>> import dspy, tempfile
            >>> rubric_metric = RubricMetric([{"requirement": "Says 42", "check": {"number": 42}}], "offline")
            >>> example = dspy.Example(question="6 x 7?").with_inputs("question")
            >>> _ = rubric_metric(example, dspy.Prediction(answer="It is 42."))
            >>> rubric_metric.to_run(Path(tempfile.mkdtemp()) / "run.jsonl").rows[0].report.score
            1.0
        """
        file, results = Path(path), self._history.results()
        if not results:
            raise ValueError("the metric has graded nothing yet: run `dspy.Evaluate` first, or the file would be empty")
        if file.exists() and not overwrite:
            raise FileExistsError(f"{file}: exists: name another file, or pass `overwrite=True` to replace it")
        grader = self.grader.scoring_record()
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(run_line(result._replace(grader=grader)) for result in results)
        return read_run(file)

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
            example, pred, query=self.fields.query, response=self.fields.response, reference=self.fields.reference,
            context=self.fields.context, respond=self.respond,
        )  # fmt: skip

    def _report_for(self, rubric: Rubric, submission: Submission) -> EvaluationReport:
        """The cached report of a submission, or a new one."""
        self._outage_guard.check()

        def grade() -> EvaluationReport:
            # Checked again: this caller may have waited for another whose failure was the outage.
            self._outage_guard.check()
            start = time.perf_counter()
            try:
                report = self.grader.grade_sync(rubric, submission)
            except JudgeError as error:
                self._history.add(rubric, submission, error.report, time.perf_counter() - start, failed=True)
                self._outage_guard.warn_once(error)
                self._outage_guard.record_failure(error.report)
                raise
            except (JudgeUnusable, StoreError) as reason:
                self._outage_guard.end_run(reason)
            self._history.add(rubric, submission, report, time.perf_counter() - start)
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
