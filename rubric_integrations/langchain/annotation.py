"""The rubric as a form for people: LangSmith's annotation queues, and what people answered as labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langsmith.schemas import AnnotationQueueRubricItem, Feedback, Run

from rubric_integrations.langchain.fields import Field, Fields
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.messages import Respond


def annotation_queue_rubric(rubric: Rubric, key_prefix: str = "rubric") -> list[AnnotationQueueRubricItem]:
    """The items for `client.create_annotation_queue(..., rubric_items=...)`, under the keys that the judge uses.

    People and judge then answer the same questions, side by side; `labels_from_feedback` reads what people said.

    Example:
        >>> from rubric_integrations import Rubric
        >>> annotation_queue_rubric(Rubric.from_dict([{"weight": 1, "requirement": "Is kind"}]))[0]["feedback_key"]
        'rubric.c1'
    """
    return [
        _item(f"{key_prefix}.{key}", criterion) for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)
    ]


def labels_from_feedback(
    feedback: Iterable[Feedback],
    runs: Iterable[Run],
    rubric: Rubric,
    *,
    key_prefix: str = "rubric",
    output_key: Field | None = None,
    input_key: Field | None = None,
    respond: Respond = "last",
) -> list[LabelledJudgment]:
    """What people answered, as labelled judgments: examples for a judge, or what to align it by.

    Feedback under other keys, about other runs, or without a score is left out; a value of `CANNOT_ASSESS` is an
    answer. What the judge itself gave is in LangSmith under the same keys: pass only feedback of people, such as
    `client.list_feedback(run_ids=..., feedback_source_type=["app"])`.

    Args:
        feedback: The answers.
        runs: The runs that they are about.
        rubric: The rubric of the queue.
        key_prefix: What comes before the dot in the keys.
        output_key: The key of the outputs that was graded, or a function of them, as for `RubricEvaluator`.
        input_key: The same for the task, of the inputs.
        respond: Of a conversation, what was graded.

    Raises:
        ValueError: A score is no answer to its criterion.
    """
    fields = Fields(output_key, input_key, None, respond)
    submissions = {run.id: fields.submission(run.inputs, run.outputs, None) for run in runs}
    asked = {f"{key_prefix}.{key}": criterion for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)}
    labels: list[LabelledJudgment] = []
    for answer in feedback:
        criterion, submission = asked.get(answer.key), submissions.get(answer.run_id) if answer.run_id else None
        verdict = _verdict(criterion, answer) if criterion else None
        if criterion and submission and verdict:
            reason = answer.comment or ""
            labels.append(LabelledJudgment(submission=submission, criterion=criterion, verdict=verdict, reason=reason))
    return labels


def _item(key: str, criterion: Criterion) -> AnnotationQueueRubricItem:
    if criterion.options is not None:
        worth = {f"{o.value:g}": f"{o.label}: {o.description}" if o.description else o.label for o in criterion.choices}
    elif criterion.scale is not None:
        levels = criterion.scale.levels or {criterion.scale.min: "lowest", criterion.scale.max: "highest"}
        worth = {f"{criterion.scale.value_of(level):g}": f"{level:g}: {text}" for level, text in levels.items()}
    elif criterion.is_penalty:
        worth = {"1": "MET: the error was committed", "0": "UNMET: it was not"}
    else:
        worth = {"1": "MET", "0": "UNMET"}
    return AnnotationQueueRubricItem(
        feedback_key=key, description=criterion.requirement, score_descriptions=worth, is_required=criterion.is_gate
    )


def _verdict(criterion: Criterion, answer: Feedback) -> str | None:
    """The answer in the criterion's own words, of a score in [0, 1] or of a value; None where there is neither."""
    said: Any = answer.value
    if answer.score is None:
        return said if isinstance(said, str) and said else None
    score = float(answer.score)
    if not 0 <= score <= 1:
        raise ValueError(f"the feedback `{answer.key}` has the score {answer.score!r}, which is not between 0 and 1")
    if criterion.options is not None:
        nearest = min(criterion.choices, key=lambda option: abs(option.value - score))
        if abs(nearest.value - score) > 1e-6:
            raise ValueError(f"the feedback `{answer.key}` has the score {score!r}, which is that of no option")
        return nearest.label
    if criterion.scale is not None:
        return f"{criterion.scale.number_at(score):g}"
    if score not in (0.0, 1.0):
        raise ValueError(f"the feedback `{answer.key}` has the score {score!r}: MET is 1 and UNMET is 0")
    return "MET" if score else "UNMET"
