"""Labelled judgments as DSPy examples: few-shot examples for a prompt, or a trainset for an optimizer of judges."""

from __future__ import annotations

import dspy

from rubric_integrations.judges.prompts.attachments import with_attachments
from rubric_integrations.judges.prompts.render import option_code, render_question
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.criterion import Kind

ANSWER_FIELDS: dict[Kind, str] = {"binary": "verdict", "ordinal": "choice", "nominal": "choice", "scaled": "score"}
"""The output field that holds the answer, by the criterion's kind."""


def as_example(labelled: LabelledJudgment) -> dspy.Example:
    """Make a DSPy example of a labelled judgment, for an optimizer of judges or as a few-shot example.

    Its inputs are the fields of the question's signature, as a judge receives them. Its labels are `explanation`, and
    `verdict`, `choice` (the option's code) or `score`, by the criterion's kind.

    Example:
        >>> from rubric_integrations import Criterion, Submission
        >>> label = LabelledJudgment(
        ...     submission=Submission(response="It is 42."), criterion=Criterion(requirement="Says 42"), verdict="MET"
        ... )
        >>> as_example(label).verdict
        'MET'
    """
    question = Question(labelled.submission, labelled.criterion)
    prompt = render_question(question)
    inputs = with_attachments(prompt.inputs, prompt.files)
    field = ANSWER_FIELDS[labelled.criterion.kind]
    answer = option_code(question, labelled.verdict) if field == "choice" else labelled.verdict
    return dspy.Example(**inputs, explanation=labelled.reason, **{field: answer}).with_inputs(*inputs)
