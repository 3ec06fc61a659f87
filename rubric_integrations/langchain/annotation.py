"""Shows the criteria of a rubric to annotators in a LangSmith queue, and reads feedback from LangSmith.

The answers of annotators are read as labels. The feedback of `RubricEvaluator` is read as a run. This module also has a
summary evaluator: the mean score of an experiment, corrected with human labels.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langsmith import Client
from langsmith.evaluation import EvaluationResult
from langsmith.schemas import AnnotationQueueRubricItem, Example, Feedback, Run

from rubric_integrations._host import check_fields
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.graders.per_criterion import PerCriterionGrader
from rubric_integrations.langchain.feedback import MET_PENALTY, UNMET_PENALTY, feedback_key
from rubric_integrations.langchain.inputs import FieldSelector, without_rubric
from rubric_integrations.rubric.answers import Band, Scale, band_of
from rubric_integrations.rubric.criterion import Criterion, all_criteria, condition_indices
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow, RunFile
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring.aggregate import aggregate_answers
from rubric_integrations.scoring.judgment import JudgeAnswers, JudgeFailure, Outcome, to_judgment
from rubric_integrations.scoring.labels import LabelledJudgment, Sampled
from rubric_integrations.scoring.report import EvaluationReport, higher_is_better
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.messages import NO_FIELDS, Fields, Respond
from rubric_integrations.trust.calibration import Calibration, calibrate
from rubric_integrations.trust.matching import Cluster


def annotation_queue_rubric(rubric: RubricLike, name: str = "rubric") -> list[AnnotationQueueRubricItem]:
    """Make the items for `client.create_annotation_queue(..., rubric_items=...)`, one for each criterion.

    The items have the same feedback keys as `RubricEvaluator`. Therefore LangSmith shows the answers of annotators and
    of the judge side by side. `labels_from_feedback` reads the answers of annotators. Higher scores are better, also
    for penalties: 0 means that the error was committed.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary.
        name: The part before the dot in the feedback keys.

    Example:
        >>> from rubric_integrations import Rubric
        >>> annotation_queue_rubric(Rubric.from_dict([{"weight": 1, "requirement": "Is kind"}]))[0]["feedback_key"]
        'rubric.c1'
    """
    return [_queue_item(key, criterion) for key, criterion in _criteria_by_feedback_key(rubric, name).items()]


def labels_from_feedback(
    feedback: Iterable[Feedback],
    runs: Iterable[Run],
    rubric: RubricLike,
    *,
    name: str = "rubric",
    fields: Fields = NO_FIELDS,
    respond: Respond = "last",
    sampled: Sampled = "chosen",
) -> list[LabelledJudgment]:
    """Convert the feedback of annotators to labelled judgments.

    Use the labels as few-shot examples for a judge, to optimize a judge, or to measure it.

    Feedback with other keys, about other runs, or with neither a score nor a value is skipped. The value
    `CANNOT_ASSESS` is a valid answer. In LangSmith, the judge's own feedback has the same keys. Therefore pass only
    feedback of annotators, such as `client.list_feedback(run_ids=..., feedback_source_type=["app"])`.

    The `id` of a label is the id of its run. The `rater` is the id of the user, if LangSmith has it. The labels are
    sorted by the time of their last change. Therefore the newer of two answers by the same user is used.

    Args:
        feedback: The feedback of annotators.
        runs: The runs that the feedback is about.
        rubric: The rubric of the queue: a `Rubric`, the path of a rubric file, a list or a dictionary.
        name: The part before the dot in the feedback keys.
        fields: The sources of `response` in the outputs and of `query` in the inputs, each a key or a function. By
            default, the value under a usual name, such as `output` or `question`.
        respond: The part of a conversation that was graded: the `"last"` answer, the full `"transcript"`, or the
            `"trajectory"`.
        sampled: How the runs in the queue were selected: `"random"` if they were drawn at random, otherwise
            `"chosen"`. Chosen labels can be few-shot examples, but they cannot measure the judge.

    Raises:
        ValueError: A score is not a possible answer to its criterion.
    """
    check_fields("labels_from_feedback", fields, "response", "query")
    selector = FieldSelector(fields.response, fields.query, None, respond)
    submissions = {run.id: selector.select(run.inputs, run.outputs, None) for run in runs}
    criteria = _criteria_by_feedback_key(rubric, name)
    labels: list[LabelledJudgment] = []
    for answer in sorted(feedback, key=_last_change):
        criterion, submission = criteria.get(answer.key), submissions.get(answer.run_id) if answer.run_id else None
        verdict = _verdict(criterion, answer) if criterion else None
        if criterion and submission and verdict:
            label = LabelledJudgment(
                submission=submission, criterion=criterion, verdict=verdict, reason=answer.comment or "",
                id=str(answer.run_id), rater=_rater(answer), sampled=sampled,
            )  # fmt: skip
            labels.append(label)
    return labels


def read_experiment(
    experiment: str | Iterable[Mapping[str, Any]],
    rubric: RubricLike,
    *,
    client: Client | None = None,
    name: str = "rubric",
    fields: Fields = NO_FIELDS,
    respond: Respond = "last",
) -> RunFile:
    """Read the feedback that `RubricEvaluator` wrote about an experiment as a run, for the report page and `trust`.

    The score and `passed` are read from LangSmith. A criterion without feedback becomes a failure of the judge, unless
    `stop_when_decided` left it open. The feedback contains no votes, tokens or costs.

    Args:
        experiment: The result of `evaluate`, a list of the rows of `aevaluate`, or the name of an experiment in
            LangSmith.
        rubric: The rubric of the experiment.
        client: The client that reads an experiment by its name. By default, `langsmith.Client()`.
        name: The `name` of the evaluator. It is the key of the score, and the part before the dot in the keys of
            criteria.
        fields: The `fields` of the evaluator.
        respond: The `respond` of the evaluator.

    Raises:
        ValueError: No run of the experiment has feedback of the evaluator.

    Example:
        >>> from datetime import UTC, datetime
        >>> from rubric_integrations.langchain import RubricEvaluator
        >>> rubric = [{"requirement": "Says 42", "check": {"number": 42}}]
        >>> run = Run(id=uuid.uuid4(), trace_id=uuid.uuid4(), name="a", run_type="chain", start_time=datetime.now(UTC),
        ...           inputs={"question": "6 x 7?"}, outputs={"answer": "It is 42."})
        >>> rows = [{"run": run, "evaluation_results": RubricEvaluator(rubric, "offline").evaluate_run(run)}]
        >>> read_experiment(rows, rubric).rows[0].report.score
        1.0
    """
    shared, title = as_rubric(rubric), experiment if isinstance(experiment, str) else "experiment"
    if isinstance(experiment, str):
        pairs = _stored_feedback(client or Client(), experiment)
    else:
        pairs = ((row["run"], row.get("example"), row["evaluation_results"]["results"]) for row in experiment)
    selector = FieldSelector(fields.response, fields.query, fields.reference, respond, fields.context)
    graded: list[Graded] = []
    judge: object = None
    for run, example, answers in pairs:
        by_key: dict[str, Any] = {answer.key: answer for answer in answers}
        if name not in by_key:
            continue
        total = by_key[name]
        judge = _info_of(total).get("judge") or judge
        references = without_rubric(example.outputs) if example else None
        submission = None if run.error else selector.select(without_rubric(run.inputs), run.outputs, references)
        row = Row(str(run.id), submission, None if submission else total.comment)
        report = _report_of(shared, by_key, total, name) if submission else None
        graded.append(Graded(row, report, total.comment if report and report.failed_count else None, shared))
    if not graded:
        raise ValueError(f"no run of the experiment has feedback {name!r}: pass the `name` of its `RubricEvaluator`")
    return RunFile.of(title, graded, rubric=shared.name, judge=judge if isinstance(judge, str) else None)


def _stored_feedback(client: Client, project: str) -> Iterator[tuple[Run, Example | None, list[Feedback]]]:
    """Yield the runs of an experiment with the feedback of evaluators, without the feedback of annotators."""
    runs = list(client.list_runs(project_name=project, is_root=True))
    answers: dict[uuid.UUID | None, list[Feedback]] = {run.id: [] for run in runs}
    example_ids = [run.reference_example_id for run in runs if run.reference_example_id]
    examples = {example.id: example for example in client.list_examples(example_ids=example_ids)} if example_ids else {}
    for feedback in client.list_feedback(run_ids=[run.id for run in runs]) if runs else ():
        if feedback.run_id in answers and not (feedback.feedback_source and feedback.feedback_source.type == "app"):
            answers[feedback.run_id].append(feedback)
    for run in runs:
        yield run, examples.get(run.reference_example_id) if run.reference_example_id else None, answers[run.id]


def _info_of(total: Feedback | EvaluationResult) -> Mapping[str, Any]:
    """Return the `evaluator_info` of a score, which LangSmith stores as the metadata of the feedback's source."""
    if isinstance(total, EvaluationResult):
        return total.evaluator_info
    return (total.feedback_source.metadata if total.feedback_source else None) or {}


def _report_of(
    rubric: Rubric, by_key: Mapping[str, Any], total: Feedback | EvaluationResult, name: str
) -> EvaluationReport:
    """Rebuild the report of a run from its feedback."""
    conditions = condition_indices(rubric.criteria)
    outcomes: dict[int, Outcome] = {}
    not_asked = _info_of(total).get("not_asked") or ()
    for index, (key, criterion) in enumerate(zip(rubric.keys, rubric.criteria, strict=True)):
        if key in not_asked:
            continue
        answer = by_key.get(feedback_key(name, key))
        comment = (answer.comment if answer else None) or "it has no feedback"
        condition = conditions[index]
        verdict = _verdict(criterion, answer) if answer else None
        if condition is not None:
            applies = verdict is not None or not comment.startswith("does not apply")
            outcomes[condition] = to_judgment(all_criteria(rubric.criteria)[condition], "MET" if applies else "UNMET")
        if verdict is None:
            outcomes[index] = JudgeFailure("transport", comment.removeprefix("not judged: "))
        else:
            reason = comment.removeprefix(f"{verdict}: ")
            outcomes[index] = to_judgment(criterion, verdict).model_copy(update={"reason": reason})
    policies = PerCriterionGrader("offline").policies
    report = aggregate_answers(rubric, [JudgeAnswers(outcomes)], JudgeAnswers({}), policies, may_leave_open=True)
    if report.failed_count:
        return report
    # The evaluator may have had other policies, metrics or a penalty for the length.
    score = None if total.score is None else float(total.score)
    return report.model_copy(update={"score": score, "passed": bool(_info_of(total).get("passed", report.passed))})


def _last_change(answer: Feedback) -> float:
    time = answer.modified_at or answer.created_at
    return time.timestamp() if time else 0.0


def _rater(answer: Feedback) -> str | None:
    source = answer.feedback_source
    user = (source.user_id or source.user_name) if source else None
    return str(user) if user else None


def _criteria_by_feedback_key(rubric: RubricLike, key_prefix: str) -> dict[str, Criterion]:
    rubric = as_rubric(rubric)
    return {
        feedback_key(key_prefix, name): criterion for name, criterion in zip(rubric.keys, rubric.criteria, strict=True)
    }


def _queue_item(key: str, criterion: Criterion) -> AnnotationQueueRubricItem:
    return AnnotationQueueRubricItem(
        feedback_key=key,
        description=criterion.full_requirement,
        score_descriptions=_score_descriptions(criterion),
        is_required=criterion.is_gate,
    )


def _score_descriptions(criterion: Criterion) -> dict[str, str]:
    """Describe the scores in [0, 1] that an annotator can choose, by their text form such as `"0.5"`."""
    if criterion.options is not None:
        choices = [(option.value, option.label, option.description) for option in criterion.choices]
        texts = {value: f"{label}: {description}" if description else label for value, label, description in choices}
        return {_score_text(criterion, value): text for value, text in texts.items()}
    if criterion.scale is not None:
        scale = criterion.scale
        levels = scale.levels or {scale.min: "lowest", scale.max: "highest"}
        numbers = [(number, text) for level, text in levels.items() for number in _numbers_of(level, scale)]
        return {_score_text(criterion, scale.value_of(number)): f"{number:g}: {text}" for number, text in numbers}
    if criterion.is_penalty:
        return {"0": MET_PENALTY, "1": UNMET_PENALTY}
    return {"1": "MET", "0": "UNMET"}


# An annotator sees one button for each described score.
_MAX_BUTTONS = 11


def _numbers_of(level: float | Band, scale: Scale) -> list[float]:
    """Return the numbers of a level. For a band: its integers on a scale of integers if they are few, else its ends."""
    low, high = band_of(level)
    if scale.integer and high - low < _MAX_BUTTONS:
        return [float(number) for number in range(math.ceil(low), math.floor(high) + 1)]
    return [low, high] if low < high else [low]


def _score_text(criterion: Criterion, value: float) -> str:
    return f"{higher_is_better(value, is_penalty=criterion.is_penalty):g}"


def _verdict(criterion: Criterion, answer: Feedback) -> str | None:
    """Convert a score in [0, 1] or a value to a verdict, an option label or a number. None if there is neither."""
    value: Any = answer.value
    if answer.score is None:
        return value if isinstance(value, str) and value else None
    score = float(answer.score)
    if not 0 <= score <= 1:
        raise ValueError(f"the feedback `{answer.key}` has the score {answer.score!r}, which is not between 0 and 1")
    score = higher_is_better(score, is_penalty=criterion.is_penalty)
    if criterion.options is not None:
        nearest = min(criterion.choices, key=lambda option: abs(option.value - score))
        if abs(nearest.value - score) > 1e-6:
            raise ValueError(f"the feedback `{answer.key}` has the score {answer.score!r}, which no option has")
        return nearest.label
    if criterion.scale is not None:
        return f"{criterion.scale.number_at(score):g}"
    if score not in (0.0, 1.0):
        raise ValueError(f"the feedback `{answer.key}` has the score {answer.score!r}: it must be 1 or 0")
    return "MET" if score else "UNMET"


SummaryEvaluator = Callable[[Sequence[Run], Sequence[Example]], EvaluationResult]
"""A summary evaluator, as `client.evaluate` accepts it in `summary_evaluators`."""


def corrected_mean_evaluator(
    graded: dict[str, GradedRow],
    labels: Iterable[LabelledJudgment],
    rubric: Rubric | None,
    key: str,
    judge_names: Callable[[], str],
    cluster: Cluster | None = None,
) -> SummaryEvaluator:
    """Make a summary evaluator that computes the mean score of the collected grades, corrected with human labels.

    Args:
        graded: The grades that an evaluator has collected, by the id of the run. The summary
            evaluator removes the grades of the experiment that it summarizes.
        labels: Human labels of a random part of the experiment.
        rubric: The rubric of all runs. None if the runs have different rubrics.
        key: The feedback key.
        judge_names: A function that returns the names of the judges. It is called after the runs were graded.
        cluster: Which runs depend on each other. None for independent runs.
    """
    labels = list(labels)

    def corrected_mean(runs: Sequence[Run], examples: Sequence[Example]) -> EvaluationResult:
        rows = [graded.pop(str(run.id), None) for run in runs]
        try:
            calibration = calibrate([row for row in rows if row], labels, rubric=rubric, cluster=cluster)
        except ValueError as error:
            return EvaluationResult(key=key, comment=f"not corrected: {error}", extra={"error": True})
        return _feedback(calibration, key, judge_names())

    return corrected_mean


def _feedback(calibration: Calibration, key: str, judge: str) -> EvaluationResult:
    """Convert a calibration to feedback with the corrected score."""
    score, judge_score = calibration.score, calibration.judge_score
    by_judge = "none" if judge_score is None else f"{judge_score:.3f}"
    comment = "; ".join([f"{score} by human labels, {by_judge} by the judge", *calibration.warnings])
    return EvaluationResult(
        key=key,
        score=score.value,
        comment=comment,
        evaluator_info={
            "corrected": True,
            "judge": judge,
            "low": score.low,
            "high": score.high,
            "labelled": score.n,
            "judge_score": judge_score,
        },
    )
