"""`RubricMetric`, the rubric metric for DSPy, and the guard that ends a run if the judge keeps failing.

Without the guard, DSPy would score a program 0 because its judge failed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import dspy

from rubric_integrations._host import HostGrader
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.terminal import counting_bar
from rubric_integrations.dspy import feedback_text
from rubric_integrations.dspy.examples import ContextSource, submission_of
from rubric_integrations.dspy.feedback_text import PredictorCriteria, RubricScore, feedback, objective_scores, rubric_of
from rubric_integrations.dspy.history import HistoryRow, MetricHistory, MetricSummary, ReportCache
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.graders.endpoint import MAX_FAILED_SUBMISSIONS, JudgeOutage, JudgeUnusable
from rubric_integrations.graders.grader import CriterionGrader
from rubric_integrations.judges import as_judge
from rubric_integrations.judges.lm_judge import JudgeWithModel
from rubric_integrations.judges.protocol import JudgeLike, ModelLike
from rubric_integrations.judges.store import LedgerLike, StoreError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow, RunFile, read_run, run_line
from rubric_integrations.scoring.labels import LabelledJudgment
from rubric_integrations.scoring.policies import CannotAssess
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, failure_kinds, tag_key
from rubric_integrations.submission.messages import NO_FIELDS, Fields, Respond, check_respond
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.calibration import calibrate
from rubric_integrations.trust.judge_noise import JudgeNoise, grade_repeatedly
from rubric_integrations.trust.matching import Cluster

_logger = logging.getLogger(__name__)


class OutageGuard:
    """Ends a run, for all threads, if the judge keeps failing. After that, it refuses all grades until `reset`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_warned = False
        self.reset()

    def check(self) -> None:
        """Check that the run has not ended.

        Raises:
            JudgeOutage: The run has ended since the last `reset`.
        """
        with self._lock:
            if self._message:
                raise JudgeOutage(self._message)

    def end_run(self, reason: object) -> NoReturn:
        """End the run for a reason, such as a `JudgeUnusable`. If the run has already ended, keep the first reason.

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
        """Log a warning, once, that explains how DSPy counts rows whose grade failed."""
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
        """Record a complete grade. It resets the count of incomplete grades in a row."""
        with self._lock:
            self._failed_grades = 0

    def record_failure(self, report: EvaluationReport) -> None:
        """Record the report of an incomplete grade.

        A grade does not count if its only failures are missing replies. Such an outage ends the run after a certain
        duration and not after a number of grades.

        Raises:
            JudgeOutage: Too many grades in a row were incomplete.
        """
        if failure_kinds(report) == {"transport"}:
            return  # an outage is measured in seconds, because 16 threads can have 16 failures within one second
        with self._lock:
            self._failed_grades += 1
            is_outage = self._failed_grades >= MAX_FAILED_SUBMISSIONS
        if is_outage:
            self.end_run(f"the last {MAX_FAILED_SUBMISSIONS} submissions failed: {report.error}")

    def reset(self) -> None:
        """Allow grades again after the end of a run, and forget all recorded failures."""
        with self._lock:
            self._message: str | None = None
            self._failed_grades = 0


_NOT_COPIED = ("_cache", "_history", "_outage_guard")


class RubricMetric:
    """Grades a DSPy program's predictions against a rubric, as the metric of `dspy.Evaluate` or of an optimizer.

    It is tested with BootstrapFewShot, random search, MIPROv2, SIMBA, GEPA and BetterTogether.

    A text is graded once. A second call for the same text returns the cached report. Therefore GEPA's requests for
    feedback cost nothing and agree with the score. A copied or unpickled metric has the same settings, and empty caches
    and totals.

    Args:
        rubric: The rubric: a `Rubric`, the path of a rubric file, a list, a dictionary, or a function that returns one
            of these for an example. If an example has a field `rubric` that is not an input of the program, its
            criteria are added to this rubric. Pass None if every example has its own rubric.
        judge: The judge, as for a grader: a model name, a `dspy.LM`, an async function, a `Judge`, or `"offline"`.
            There is no default, because a judge without its own model would use the student's model.
        judge_lm: The model for the predictors of a judge that is written with DSPy, such as a module or a function that
            awaits a predictor. It is used by predictors that have no model. Without it, calls of such predictors are
            errors.
        grader: A grader with its own settings, instead of `judge`.
        ledger: Stores judgments beyond this metric's lifetime: a path, a URL, an open ledger or another
            `JudgmentStore`. `summary` counts a stored judgment with the cost of its original request.
        fields: The sources of the texts, each the name of a field or a function. `query` is read from the example, by
            default from all its inputs, labelled by name if there are several. `response` is read from the prediction,
            by default from all outputs that the program declares, without documents and without the fields that DSPy's
            modules add, such as `reasoning` and `trajectory`. `reference` is read from the example, by default from no
            field. If a program returns a mapping, the value with a usual name such as `answer` is graded, or else the
            mapping as JSON. A `dspy.Image`, `dspy.Audio` or `dspy.File` in the response or the task is sent to the
            judge as an attachment, and the text has `[attachment 1]` at its position. Other binary values become
            `[image]`.
        context: The source of documents that are shown to the judge, such as retrieved passages: the name of a field of
            the example or of the prediction, or `lambda example, prediction: ...`. If both have a
            field with this name, the example's field is used. By default, the documents are the lists under `context`,
            `passages` or `documents` of the prediction, if the prediction has other outputs and `fields.response` is
            not set. Documents are not graded. `fields=Fields(context=...)` has the same effect.
        respond: The part of a response to grade if the response is a list of chat messages. `"last"` grades the last
            message with the others as context, `"transcript"` grades all messages, and `"trajectory"` grades all
            messages with numbered steps. The trajectory of a `dspy.ReAct` or `dspy.ReActV2` prediction is a part of its
            submission. With `"trajectory"`, this trajectory is graded together with the response.
        feedback: A function that writes a report as text for a reflecting model.
        criteria_for: The names of the criteria for which each predictor of the program is responsible, by the name of
            the predictor as in `program.named_predictors()`. GEPA's feedback for a predictor then covers only these
            criteria. A predictor without an entry gets the feedback on all criteria. The name of a module covers its
            predictors: `"answer"` is enough for `answer = dspy.ChainOfThought(...)`.
        cannot_assess: The score of an abstention: `"skip"`, `"zero"`, `"partial"`, `"fail"`, or a number in [0, 1]. A
            number is the share of a positive weight that an abstention earns. If you pass a `grader`, set this in the
            grader.
        limits: The limits on the judge's calls, by default `CallLimits()`. If you pass a `grader`, set them in the
            grader. Calls without a reply are repeated for `max_outage` seconds. Then `JudgeOutage` ends the run. A
            wrong key, or a judge whose replies can never be parsed, ends the run without this wait.
        cache_size: The number of reports that are cached, and the largest number of rows in `history` and `graded`.
            With 0, nothing is cached and both are empty.
        library: Rubrics by name, or the path of a file with such a mapping, for examples whose `rubric` is a name.

    Raises:
        ValueError: Neither `judge` nor `grader` was passed, or both were, or a setting is unknown or out of range.
        TypeError: `rubric` has none of the accepted types, or there is a `ledger` and the judge has no `fingerprint`.
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
        opened = HostGrader(
            "RubricMetric", judge, grader, ledger, cannot_assess=cannot_assess, limits=limits,
            needs_reasons=feedback is feedback_text.feedback,
        )  # fmt: skip
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
        """Grade one prediction. DSPy calls this method, from any thread.

        The result does not depend on `trace`. GEPA passes a trace when it requests feedback. The common rule
        `if trace is not None: return bool` would therefore return no feedback.

        Raises:
            JudgeError: A criterion could not be judged, and the grader's `on_failure` is `"raise"`.
            JudgeOutage: The judge did not reply for `max_outage` seconds or cannot be used, or the store of judgments
                cannot be written.
            MisnamedField: One of the `fields` does not exist.
            RubricFunctionError: There is no rubric for the example, or the function `rubric` failed or did not return a
                rubric.
        """
        rubric, submission = self._case(example, pred)
        if submission is None:
            message = "The program raised an error." if pred is None else "The program returned an empty response."
            self._history.count_call("nothing_to_grade")
            # The worst value for every objective. Without values, failing would improve a program's rank on GEPA's
            # Pareto front.
            names = [*map(tag_key, rubric.tags), *rubric.keys]
            return RubricScore(0.0, False, message, 0.0, dict.fromkeys(names, 0.0))
        report = self._report_for(rubric, submission)
        message = self.feedback(self._predictor_criteria.part_for(pred_name, report))
        if submission.reference and not report.passed:
            message += f"\nA reference answer: {submission.reference}"
        return RubricScore(report.score or 0.0, report.passed, message, report.coverage, objective_scores(report))

    def as_reward_fn(self) -> Callable[[Mapping[str, Any], Any], Any]:
        """Return this metric as the `reward_fn(inputs, prediction)` of `dspy.BestOfN` and `dspy.Refine`.

        A reward is a `RubricScore` with the feedback in its text. `dspy.Refine` shows this text to the model that gives
        advice. Both modules drop an attempt whose grade failed, and a warning is logged for each such attempt.

        Both modules pass the inputs of an example but no labels. Therefore a `reference` must be one of the inputs.
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
                "and may return None or raise an error if most fail; with `fail_count=-1` they raise the first one",
                error,
            )
            raise

    def resume(self) -> None:
        """Allow grading again after a `JudgeOutage`, once its cause is fixed. Complete grades stay cached."""
        self.grader.call_limiter.reset()
        self._outage_guard.reset()

    def noise(self, predictions: Iterable[tuple[Any, Any]], repeats: int = 5, *, progress: bool = True) -> JudgeNoise:
        """Measure how much the judge contradicts itself: grade every text `repeats` times, without any cache.

        Args:
            predictions: Pairs of an example and a prediction, as in the `results` of `dspy.Evaluate`. Pairs with
                nothing to grade are left out.
            repeats: How often each text is graded, at least 2.
            progress: Whether to show a progress bar on stderr, if stderr is a terminal.

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
        bar = counting_bar("judge noise", len(cases) * repeats, enabled=progress)
        with bar as count_grade, self._history.counted_spend():
            reports = run_sync(grade_repeatedly(self.grader.without_cache(), cases, repeats, count_grade))
        for (rubric, submission), repeated in zip(cases, reports, strict=True):
            for report in repeated:
                self._history.add(rubric, submission, report)
        return JudgeNoise.of(reports)

    def summary(
        self, labels: Iterable[LabelledJudgment] | None = None, *, cluster: Cluster | None = None
    ) -> MetricSummary:
        """Return the totals so far: gradings, coverage, failures, tokens and cost.

        The totals are also correct in threads, where `dspy.track_usage` reports nothing. The average of `dspy.Evaluate`
        counts a row whose grade failed with its `failure_score`, 0 by default. Here, `failed` counts such rows, and
        `mean_score` is the mean of the others.

        Args:
            labels: Human labels of a random part of `graded`. With labels, `calibration` has the mean score that the
                human labels imply next to the judge's mean score. DSPy always gets the judge's score.
            cluster: Which texts depend on each other: `"query"` for several responses to one task, or a function of a
                row's id.

        Raises:
            ChosenLabelsError: All labels are marked as `"chosen"` instead of `"random"`.
            ImportError: There are labels, and scipy is not installed.
            ValueError: No label belongs to a text in `graded`, or the scores cannot be computed from the criteria.
        """
        totals = self._history.summary()
        if labels is not None:
            totals["calibration"] = calibrate(self.graded, labels, rubric=self.rubrics.shared, cluster=cluster)
        return totals

    @property
    def graded(self) -> list[GradedRow]:
        """The latest grade of each text, as the rows of a run for `rubric_integrations.trust`.

        The id of a row is a digest of the program's inputs.
        """
        return self._history.graded()

    def to_run(self, path: str | Path, *, overwrite: bool = False) -> RunFile:
        """Write the grades in `graded` to a run file, for `rubric-integrations report`, `show`, `label` and `compare`.

        The id of a row is a digest of the program's inputs. Therefore two programs that were evaluated on the same
        examples can be compared.

        Args:
            path: The file, such as `run.jsonl`.
            overwrite: Whether to replace an existing file.

        Returns:
            The run, as `read_run` reads it from the file.

        Raises:
            FileExistsError: The file exists, and `overwrite` is False.
            ValueError: The metric has graded nothing yet.

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
        """The latest computed grades, oldest first. They are rows for `pandas.DataFrame(rubric_metric.history)`."""
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
        """Return the rubric and the submission of a prediction. The submission is None if there is nothing to grade."""
        rubric = rubric_of(self.rubrics, example)
        self._predictor_criteria.add_rubric(rubric)
        return rubric, submission_of(
            example, pred, query=self.fields.query, response=self.fields.response, reference=self.fields.reference,
            context=self.fields.context, respond=self.respond,
        )  # fmt: skip

    def _report_for(self, rubric: Rubric, submission: Submission) -> EvaluationReport:
        """Return the cached report of a submission, or grade the submission."""
        self._outage_guard.check()

        def grade() -> EvaluationReport:
            # Checked again: this caller may have waited for another caller, whose grade ended the run.
            self._outage_guard.check()
            start = time.perf_counter()
            try:
                with self._history.counted_spend():
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

        state = [rubric.without_cases().model_dump_json(), submission.model_dump_json(), *self.grader.fingerprints()]
        key = sha256("\n".join(state).encode()).hexdigest()
        result = self._cache.get_or_compute(key, grade)
        if not result.is_new:
            self._history.count_call("cached")
        return result.report
