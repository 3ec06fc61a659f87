"""Judges a long response in parts: a question for each part, and one judgment of the answers to all of them."""

from __future__ import annotations

from collections.abc import Sequence

from rubric_integrations.judges.prompts.signatures import PART_NOTE
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.escalations import total_escalation_cost
from rubric_integrations.results.judgment import JudgeFailure, Judgment, Outcome, Verdict
from rubric_integrations.results.usage import total_spend
from rubric_integrations.submission.chunks import split_response

_DECISIVE_FIRST: tuple[Verdict, ...] = ("MET", "CANNOT_ASSESS", "UNMET")


def split_question(question: Question, chunk_size: int) -> list[Question]:
    """Split a question on a binary criterion into one for each part of the response.

    The guidelines of each say which part it is, so that equal parts of two responses are different questions.

    Returns:
        The questions; the question itself, unchanged, if the response is short enough or the criterion has options or
        a scale, whose answers about parts cannot be joined.
    """
    submission = question.submission
    parts = split_response(submission, chunk_size) if question.criterion.kind == "binary" else [submission.response]
    if len(parts) == 1:
        return [question]
    return [
        question._replace(
            submission=submission.model_copy(update={"response": part}),
            guidelines=f"{question.guidelines}\n\n{PART_NOTE.format(number=number, count=len(parts))}".strip(),
            whole_response=question.whole_response or submission.response,
        )
        for number, part in enumerate(parts, start=1)
    ]


def join_outcomes(outcomes: Sequence[Outcome]) -> Judgment:
    """Join the answers about all parts of a response: MET if any part is MET, UNMET if all are.

    Without a part that is MET, a failure about any part is a failure of the whole, and else an abstention about any
    part is an abstention: what is looked for may be there.

    Returns:
        The judgment, with the reasons and the evidence of the parts that decide it, and the spend of all. It has no
        confidence, which a judge states for one part.

    Raises:
        JudgeFailure: No part is MET, and a part has no answer.
    """
    spend = total_spend(outcome.spend for outcome in outcomes)
    judgments = {number: outcome for number, outcome in enumerate(outcomes, start=1) if isinstance(outcome, Judgment)}
    verdicts = {judgment.verdict for judgment in judgments.values()}
    failures = {
        number: outcome for number, outcome in enumerate(outcomes, start=1) if isinstance(outcome, JudgeFailure)
    }
    if failures and "MET" not in verdicts:
        number, failure = next(iter(failures.items()))
        message = f"part {number} of {len(outcomes)}: {failure.message}"
        raise JudgeFailure(failure.kind, message, about_text=failure.about_text, spend=spend)
    verdict = next(verdict for verdict in _DECISIVE_FIRST if verdict in verdicts)
    deciding = {number: judgment for number, judgment in judgments.items() if judgment.verdict == verdict}
    return Judgment(
        verdict=verdict,
        value=next(iter(deciding.values())).value,
        reason="; ".join(f"part {number} of {len(outcomes)}: {part.reason}" for number, part in deciding.items()),
        spend=spend,
        neutralized=any(judgment.neutralized for judgment in judgments.values()),
        evidence=tuple(sorted({step for part in deciding.values() for step in part.evidence})),
        escalated=any(judgment.escalated for judgment in judgments.values()),
        escalation_cost=total_escalation_cost(judgments.values()),
        trained_on=any(judgment.trained_on for judgment in judgments.values()),
    )
