"""A LangSmith evaluator that grades runs against a rubric, and a comparator of two experiments by their scores.

Code that is written for openevals can call the evaluator with keyword arguments.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from langsmith.evaluation import EvaluationResult, EvaluationResults, RunEvaluator
from langsmith.run_trees import RunTree
from langsmith.schemas import Example, Run

from rubric_integrations._host import HostGrader
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction, problem_of
from rubric_integrations.graders import Grader
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.langchain.annotation import SummaryEvaluator
from rubric_integrations.langchain.feedback import evaluation_run, feedback_key, to_feedback
from rubric_integrations.langchain.inputs import (
    FieldSelector,
    attachments_of,
    own_rubric,
    without_rubric,
)
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.labels import LabelledJudgment
from rubric_integrations.scoring.report import EvaluationReport, JudgeError
from rubric_integrations.submission.messages import NO_FIELDS, Fields, Respond
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.matching import Cluster


class RubricEvaluator(RunEvaluator):
    """Grades the runs of a target in `client.evaluate` and `aevaluate`, and single outputs as an openevals evaluator.

    The feedback `rubric` is the overall score. Each criterion has a feedback `rubric.<name>`, with a score in [0, 1]
    and the judge's reason as the comment. Higher scores are better, also for penalties. A penalty that is MET has the
    score 0, because the error was committed. A penalty that is UNMET has the score 1. An abstention has no score and
    the value `"CANNOT_ASSESS"`. A criterion that `stop_when_decided` left open has no feedback. A run whose
    target failed gets no score. A criterion that could not be judged becomes an error row. Neither of the two failures
    counts as a score of 0.

    The attachments of an example are sent to the judge together with the output, as the bytes that LangSmith has
    loaded. For an existing experiment, LangSmith loads none.

    Each evaluation is recorded as one run in LangSmith, and the calls of a LangChain judge are its children. The
    feedback is linked to that run.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list, a dictionary, or a function that returns one of these for
            an example. If an example has its own `rubric` in its outputs or its metadata, its runs are graded by the
            criteria of both rubrics. Pass None if each example has its own rubric. With None, the rubric of an example
            may also be in its inputs. If the evaluator is called with keyword arguments, a function gets `inputs`
            instead of the example.
        judge: The judge: a LangChain chat model, a model name, a `dspy.LM`, an async function or a `Judge`. Pass either
            `judge` or `grader`.
        grader: A configured grader, instead of `judge`.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. By default, judgments are not stored.
        name: The feedback key of the score, and the part before the dot in the keys of the criteria.
        fields: The sources of the texts. `response` is read from the target's outputs, `query` from the inputs and
            `reference` from the example's outputs. Each is a key or a function of that mapping. By default, each is the
            value under a usual name, such as `output` or `answer`, or else the mapping as JSON. `context` is a key that
            is looked up in the inputs, the outputs and the example's outputs, or a function of the inputs. By default,
            it is the value under `context`, `documents` or `passages`.
        respond: The part that is graded if the output is a list of messages: the `"last"` answer, the full
            `"transcript"`, or the `"trajectory"`, which is the transcript with numbered steps.
        library: Rubrics by name, or the path of a file with such a mapping, for examples whose `rubric` is a name.

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` has none of the accepted types.
        ValueError: Neither `judge` nor `grader` is passed, or both are.

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
        rubric: RubricLike | RubricFunction | None = None,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
        name: str = "rubric",
        fields: Fields = NO_FIELDS,
        respond: Respond = "last",
        library: Mapping[str, RubricLike] | str | Path | None = None,
    ):
        self.rubrics, self.name = RowRubrics(rubric, library), name
        self.fields = FieldSelector(fields.response, fields.query, fields.reference, respond, fields.context)
        self._grader = HostGrader("RubricEvaluator", judge, grader, ledger)
        # The grades by run. They are collected only after a call of `corrected_mean`.
        self._graded: dict[str, GradedRow] | None = None

    @property
    def feedback_keys(self) -> list[str]:
        """The keys of all feedback. LangSmith records errors under these keys.

        They do not include the criteria of examples with their own rubrics, which are not known in advance.
        """
        names = self.rubrics.shared.keys if self.rubrics.shared else ()
        return [self.name, *(feedback_key(self.name, name) for name in names)]

    def corrected_mean(self, labels: Iterable[LabelledJudgment], *, cluster: Cluster | None = None) -> SummaryEvaluator:
        """Return a summary evaluator that corrects the mean score of an experiment with human labels.

        Pass it together with this evaluator:
        `evaluate(..., evaluators=[evaluator], summary_evaluators=[corrected_mean])`. The experiment gets one feedback
        `rubric.score.corrected`. Its score is the mean score that the human labels imply, its comment has the interval,
        and its `source_info` has `corrected: True`. The feedback of single runs is not changed, because the score of
        one run cannot be corrected.

        Args:
            labels: Labels of a random part of the experiment's runs, for each criterion that the judge decides. The
                feedback is an error row without a score if no label belongs to a run, or if all labels are marked as
                `"chosen"` instead of `"random"`.
            cluster: Which runs depend on each other: `"query"` for several runs of one example, or a function of a
                run's id.

        Raises:
            ImportError: scipy is not installed. It is raised at the end of the experiment, and LangSmith logs it.
        """
        from rubric_integrations.langchain.annotation import corrected_mean_evaluator

        self._graded = {}
        key = feedback_key(self.name, "score.corrected")
        return corrected_mean_evaluator(self._graded, labels, self.rubrics.shared, key, self._judge_names, cluster)

    def evaluate_run(
        self, run: Run, example: Example | None = None, evaluator_run_id: uuid.UUID | None = None
    ) -> EvaluationResults:
        """Grade one run. This can be called from any thread, also from a thread with a running event loop."""
        with self._trace(run, example, evaluator_run_id) as traced_run:
            return _link(traced_run, evaluator_run_id, run_sync(self._evaluate(run, example)))

    async def aevaluate_run(
        self, run: Run, example: Example | None = None, evaluator_run_id: uuid.UUID | None = None
    ) -> EvaluationResults:
        """Grade one run asynchronously, as `evaluate_run` does."""
        with self._trace(run, example, evaluator_run_id) as traced_run:
            return _link(traced_run, evaluator_run_id, await self._evaluate(run, example))

    # openevals evaluators accept any further keyword argument, such as prompt variables, and their callers pass some.
    # They are ignored here, because this evaluator must be able to replace an openevals evaluator. LangSmith loads the
    # attachments of a dataset only for evaluators with a positional parameter of this name.
    def __call__(
        self,
        attachments: Any = None,
        *,
        inputs: Any = None,
        outputs: Any = None,
        reference_outputs: Any = None,
        **_more: Any,
    ) -> dict[str, Any]:
        """Grade one output and return a dict like an openevals evaluator: `key`, `score`, `comment`, `metadata`.

        `metadata` contains `passed`, `coverage`, the judge's name, the calls, the tokens, the cost, the names of the
        criteria that were `not_asked`, and the feedback of the others under `criteria`. The score is None if no
        criterion was assessed. Further keyword arguments are ignored.

        Args:
            attachments: Files for the judge: `{"mime_type": ..., "data": ...}` with base64 or a `data:` URI, a URL, a
                list of these, or the attachments of a LangSmith example.
            inputs: The task, or a mapping that contains it.
            outputs: The response, or a mapping that contains it.
            reference_outputs: A reference answer, or a mapping that contains it.

        Raises:
            JudgeError: A criterion could not be judged.
            ValueError: The outputs contain no text or lack the key in `Fields.response`, or an attachment is invalid.
        """
        return run_sync(self.acall(attachments, inputs=inputs, outputs=outputs, reference_outputs=reference_outputs))

    async def acall(
        self,
        attachments: Any = None,
        *,
        inputs: Any = None,
        outputs: Any = None,
        reference_outputs: Any = None,
        **_more: Any,
    ) -> dict[str, Any]:
        """Grade one output asynchronously, as `__call__` does.

        Raises:
            JudgeError: A criterion could not be judged.
            ValueError: The outputs contain no text or lack the key in `Fields.response`, or an attachment is invalid.
        """
        values = {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs}
        with evaluation_run(type(self).__name__, values) as traced_run:
            submission = self._select(inputs, outputs, reference_outputs, attachments)
            if submission is None:
                raise ValueError(f"`outputs` is {outputs!r}: there is nothing to grade")
            rubric = self._rubric(inputs, reference_outputs, None, inputs)
            report = await self._grader().grade(rubric, submission)
            total, *rows = to_feedback(rubric, report, self.name, self._judge_names())
            criteria = [row.model_dump(include={"key", "score", "value", "comment"}, exclude_none=True) for row in rows]
            result = {
                "key": total.key,
                "score": total.score,
                "comment": total.comment,
                "metadata": {**total.evaluator_info, "criteria": criteria},
            }
            if traced_run:
                traced_run.end(outputs=result)
            return result

    def _select(self, inputs: Any, outputs: Any, references: Any, attachments: Any) -> Submission | None:
        files = attachments_of(attachments)
        return self.fields.select(without_rubric(inputs), outputs, without_rubric(references), files)

    def _rubric(self, example: Any, references: Any, metadata: Any, inputs: Any) -> Rubric:
        own = own_rubric(references, metadata, *([] if self.rubrics.shared else [inputs]))
        try:
            return self.rubrics.of(example, own)
        except ValueError as error:
            raise ValueError(f"the example {problem_of(error)}") from error

    def _trace(
        self, run: Run, example: Example | None, run_id: uuid.UUID | None
    ) -> AbstractContextManager[RunTree | None]:
        """Record the evaluation of a run as one run in LangSmith."""
        values = {"inputs": run.inputs, "outputs": run.outputs, "reference_outputs": example and example.outputs}
        metadata = {"target_run_id": str(run.id)}
        if run.session_id:
            metadata["experiment"] = str(run.session_id)
        return evaluation_run(type(self).__name__, values, run_id=run_id, metadata=metadata)

    async def _evaluate(self, run: Run, example: Example | None) -> EvaluationResults:
        """Grade one run, and return its feedback. A failure is feedback without a score."""
        references, metadata = (example.outputs, example.metadata) if example else (None, None)
        rubric = self._rubric(example, references, metadata, run.inputs)
        attachments = example.attachments if example else None
        submission = None if run.error else self._select(run.inputs, run.outputs, references, attachments)
        if submission is None:
            problem = f"the target failed: {run.error}" if run.error else "the target returned nothing"
            return EvaluationResults(results=[EvaluationResult(key=self.name, comment=f"not graded: {problem}")])
        try:
            report = await self._grader().grade(rubric, submission)
            self._collect(run, submission, report, report.error)
        except JudgeError as error:
            self._collect(run, submission, error.report, str(error))
            # The judged criteria are reported. Their sum is not, because it would look like the score.
            total, *rows = to_feedback(rubric, error.report, self.name, self._judge_names())
            failure = {"score": None, "comment": f"not graded: {error}", "extra": {"error": True}}
            return EvaluationResults(results=[total.model_copy(update=failure), *rows])
        return EvaluationResults(results=to_feedback(rubric, report, self.name, self._judge_names()))

    def _judge_names(self) -> str:
        return ", ".join(member.model for member in self._grader().panel)

    def _collect(self, run: Run, submission: Submission, report: EvaluationReport, error: str | None) -> None:
        if self._graded is not None:
            self._graded[str(run.id)] = GradedRow(str(run.id), submission, report, error)


def _link(traced_run: RunTree | None, run_id: uuid.UUID | None, results: EvaluationResults) -> EvaluationResults:
    """Link feedback to the run of its evaluation, and set the feedback as the outputs of that run."""
    rows = results.get("results", [])
    source_run_id = traced_run.id if traced_run else run_id
    if traced_run:
        outputs = {row.key: row.value if row.score is None else row.score for row in rows}
        is_error = bool(rows[0].extra)
        traced_run.end(outputs=outputs, error=rows[0].comment if is_error else None)
    return EvaluationResults(results=[row.model_copy(update={"source_run_id": source_run_id}) for row in rows])


# Scores are rounded sums: 0.3 - 0.2 is slightly less than 0.1, and must still be within a margin of 0.1.
_TOLERANCE = 1e-9


def compare_by_rubric(
    rubric: RubricLike | RubricFunction,
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    ledger: LedgerLike | None = None,
    key: str = "rubric_preference",
    tie_margin: float = 0.0,
    fields: Fields = NO_FIELDS,
    respond: Respond = "last",
) -> Callable[[Sequence[Run], Example | None], dict[str, Any]]:
    """Make a comparator for `evaluate((experiment_a, experiment_b), evaluators=[compare_by_rubric(...)])`.

    Each run is graded separately. Therefore the order of the runs has no influence. The best runs, whose scores are
    within `tie_margin` of the best score, share a total of 1 equally. All other runs get 0. If a run could not be
    assessed, all runs get None. Attachments of examples are not sent to the judge, because LangSmith loads none here.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list, a dictionary, or a function that returns one of these for
            an example.
        judge: The judge: a LangChain chat model, a model name, a `dspy.LM`, an async function or a `Judge`. Pass either
            `judge` or `grader`.
        grader: A configured grader, instead of `judge`.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. By default, judgments are not stored.
        key: The feedback key of the comparison.
        tie_margin: The largest distance from the best score that counts as a tie, in [0, 1).
        fields: The sources of the texts of an example and its runs, each a key or a function. By default, the value
            under a usual name, such as `output` or `question`.
        respond: The part that is graded if the output is a list of messages: the `"last"` answer, the full
            `"transcript"`, or the `"trajectory"`, which is the transcript with numbered steps.

    Returns:
        A function of the runs and the example. It returns the feedback as a dict with `key`, `scores` by run id, and
        `comment`.

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` has none of the accepted types.
        ValueError: Neither `judge` nor `grader` is passed, or both are, or the margin is out of range.
    """
    margin = validate_margin(tie_margin)
    evaluator = RubricEvaluator(
        rubric,
        judge,
        grader=grader,
        ledger=ledger,
        fields=fields,
        respond=respond,
    )

    def compare(runs: Sequence[Run], example: Example | None) -> dict[str, Any]:
        results = [evaluator.evaluate_run(run, example).get("results", []) for run in runs]
        totals = [total for total, *_ in results]
        scores = [None if total.score is None else float(total.score) for total in totals]
        comment = "; ".join(
            f"{score if score is None else f'{score:.2f}'}: {total.comment}"
            for score, total in zip(scores, totals, strict=True)
        )
        shares = _shares(scores, margin)
        run_shares = {run.id: share for run, share in zip(runs, shares, strict=True)}
        return {"key": key, "scores": run_shares, "comment": comment}

    return compare


def preference(first: float | None, second: float | None, margin: float) -> float | None:
    """Compare two scores: 1 if the first is better, 0 if the second is better, 0.5 for a tie, None if one is missing.

    Example:
        >>> preference(0.9, 0.5, margin=0.1), preference(0.5, 0.55, margin=0.1)
        (1.0, 0.5)
    """
    return _shares([first, second], margin)[0]


def validate_margin(margin: float) -> float:
    """Return the margin unchanged if it is valid.

    Raises:
        ValueError: The margin is not in [0, 1).
    """
    if isinstance(margin, bool) or not 0 <= margin < 1:
        raise ValueError(f"`tie_margin` must be at least 0 and below 1, got {margin!r}")
    return margin


def _shares(scores: Sequence[float | None], margin: float) -> list[float | None]:
    """Share a total of 1 equally among the scores within the margin of the best. All None if a score is missing."""
    known_scores = [score for score in scores if score is not None]
    if len(known_scores) < len(scores):
        return [None] * len(scores)
    threshold = max(known_scores) - margin - _TOLERANCE
    is_best = [score >= threshold for score in known_scores]
    return [best / sum(is_best) for best in is_best]
