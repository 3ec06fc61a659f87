"""The metric by which DSPy's optimizers compare a judge with people's labels, with feedback about each difference."""

from __future__ import annotations

import re
from typing import Any

import dspy

from rubric_integrations.judges.examples import ANSWER_FIELDS
from rubric_integrations.judges.metric_score import MetricScore
from rubric_integrations.judges.prompts.probabilities import read_probabilities
from rubric_integrations.judges.prompts.sanitize import neutralize
from rubric_integrations.results.judgment import normalize_word, parse_verdict

_PENALTY = "The criterion is a penalty: MET means that the submission commits the error."
# As `describe_scale` writes it.
_SCALE = re.compile(r"from (\S+) to (\S+), ")


def judge_metric(
    example: dspy.Example,
    prediction: dspy.Prediction | None,
    trace: object = None,
    pred_name: str | None = None,
    pred_trace: object = None,
) -> MetricScore:
    """Score a judge's answer against people's, for any optimizer of DSPy, as in `dspy.GEPA(metric=judge_metric)`.

    The score is 1 if both are the same answer, and 0 if not; on a scale, 1 less the difference as a share of the scale.
    It passes, and so may become a demonstration, only if both are the same. An abstention of the judge is wrong where
    people could tell.

    Args:
        example: A labelled judgment, as `as_example` makes it.
        prediction: What the judge returns for it; None or without an answer if it failed.
        trace: Not used: the same score serves evaluation and bootstrapping.
        pred_name: Not used: each example exercises one predictor.
        pred_trace: Not used.

    Returns:
        The score with feedback, which names both answers with their reasons.

    Example:
        >>> from rubric_integrations import Criterion, Submission
        >>> from rubric_integrations.judges import as_example
        >>> from rubric_integrations.results import LabelledJudgment
        >>> label = LabelledJudgment(
        ...     submission=Submission(response="About 42."), criterion=Criterion(requirement="Says exactly 42"),
        ...     verdict="UNMET", reason="It is a guess.",
        ... )
        >>> print(judge_metric(as_example(label), dspy.Prediction(explanation="42 occurs", verdict="MET")).feedback)
        People answered UNMET, because: It is a guess. The judge answered MET, because: 42 occurs.
    """
    labels: dict[str, Any] = dict(example.items())
    field = next(field for field in dict.fromkeys(ANSWER_FIELDS.values()) if field in labels)
    people = str(labels[field])
    judge = _answer(prediction, field)
    is_equal = judge is not None and _canonical(judge) == _canonical(people)
    score = float(is_equal)
    if field == "score" and judge is not None and not is_equal:
        score = _closeness(judge, people, str(labels.get("scale", "")))
    reasons = labels.get("explanation"), getattr(prediction, "explanation", None)
    their_reason, own_reason = (_because(reason) for reason in reasons)
    options = str(labels.get("options", ""))
    if judge is None:
        message = f"People answered {_shown(people, options)}{their_reason} The judge gave no answer{own_reason}"
    elif is_equal:
        message = f"Right: people also answered {_shown(people, options)}{their_reason}"
    else:
        message = (
            f"People answered {_shown(people, options)}{their_reason} The judge answered "
            f"{_shown(judge, options)}{own_reason}"
        )
    if labels.get("kind") == "penalty":
        message = f"{message} {_PENALTY}"
    return MetricScore(score, is_equal, message)


def _answer(prediction: dspy.Prediction | None, field: str) -> str | None:
    value: object = getattr(prediction, field, None)
    if value is None:
        return None
    answer, _ = read_probabilities(value)
    return str(answer)


def _canonical(answer: str) -> str | float:
    try:
        return float(answer)
    except ValueError:
        return parse_verdict(answer) or normalize_word(answer) or answer


def _closeness(judge: str, people: str, scale: str) -> float:
    """Return 1 less the difference of two numbers as a share of their scale; 0 if one is no number."""
    limits = _SCALE.search(scale)
    try:
        difference = abs(float(judge) - float(people))
        width = float(limits[2]) - float(limits[1]) if limits else 0.0
    except ValueError:
        return 0.0
    return max(0.0, 1.0 - difference / width) if width > 0 and difference < float("inf") else 0.0


def _because(reason: object) -> str:
    text = neutralize(str(reason or "").strip())
    return f", because: {text if text[-1] in '.!?' else f'{text}.'}" if text else "."


def _shown(answer: str, options: str) -> str:
    """Return an answer, with what it stands for if it is the code of an option."""
    line = next((line for line in options.splitlines() if line.startswith(f"{answer}: ")), None)
    return neutralize(answer if line is None else f"`{line}`")
