"""Interprets what a model answered: verdicts, options by their code or label, numbers, and the entries of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rubric_integrations.judges.examples import ANSWER_FIELDS
from rubric_integrations.judges.prompts.probabilities import read_probabilities
from rubric_integrations.judges.prompts.render import describe_option, option_codes, options_of
from rubric_integrations.judges.prompts.signatures import CitedJudgment, CriterionJudgment
from rubric_integrations.judges.protocol import BatchResult, Question
from rubric_integrations.results.interpret import Interpretation, interpret_answer
from rubric_integrations.results.judgment import JudgeFailure, Judgment, parse_verdict
from rubric_integrations.results.usage import Spend
from rubric_integrations.rubric.criterion import Option


def interpret_reply(question: Question, answer: str) -> Interpretation:
    """Interpret a model's answer to a question of any kind; an option may be named by its code or its label.

    Raises:
        ValueError: This is no answer to the question.
    """
    if question.criterion.options is not None and parse_verdict(answer) is None:
        return interpret_choice(question, answer)
    return interpret_answer(question.criterion, answer, question.may_abstain)


def interpret_fields(
    question: Question, fields: Mapping[str, Any], spend: Spend, neutralized: bool, *, trained_on: bool = False
) -> Judgment:
    """Make the judgment of the fields of a reply about one criterion.

    Args:
        question: The question.
        fields: The fields of the reply, by name.
        spend: What the request cost.
        neutralized: Whether sanitizing changed a text of the request.
        trained_on: Whether the judge was aligned with a label of this judgment.

    Raises:
        JudgeFailure: They are no answer to the question.
    """
    answer, probabilities = read_probabilities(fields[ANSWER_FIELDS[question.criterion.kind]])
    try:
        verdict, value = interpret_reply(question, str(answer))
    except ValueError as error:
        raise JudgeFailure("parse", str(error), retryable=True, spend=spend) from None
    return Judgment(
        verdict=verdict,
        value=value,
        reason=fields["explanation"],
        spend=spend,
        neutralized=neutralized,
        confidence=probabilities.confidence,
        expected_value=probabilities.expected_value,
        evidence=tuple(fields.get("evidence", ())),
        trained_on=trained_on,
    )


def interpret_choice(question: Question, reply: str) -> Interpretation:
    """Interpret a model's choice among the options as `describe_options` shows them.

    A reply is compared with the codes, the labels and the whole lines, first but for case and white space, and then
    without the punctuation around it. Labels may differ in punctuation alone.

    Raises:
        ValueError: This names no option, or more than one.
    """
    codes = option_codes(options_of(question))
    for form in (_folded, _undressed):
        word = form(reply)
        labels = [option.label for code, option in codes.items() if word and word in _names(code, option, form)]
        if len(labels) > 1:
            raise ValueError(f"{reply!r} names {len(labels)} options, {labels!r}: any of them could be meant")
        if labels:
            return interpret_answer(question.criterion, labels[0], question.may_abstain)
    return interpret_answer(question.criterion, reply, question.may_abstain)


def _names(code: str, option: Option, form: Callable[[str], str]) -> set[str]:
    """Return what an option may be called: its code, its label, and its line without and with the description."""
    return {
        form(name) for name in (code, option.label, f"{code}: {option.label}", f"{code}: {describe_option(option)}")
    }


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _undressed(text: str) -> str:
    """Strip the punctuation in which models write a short answer."""
    return _folded(text).strip("*_`\"'.()[] ")


def interpret_entries(
    questions: Mapping[int, Question], entries: Sequence[CriterionJudgment], spend: Spend, neutralized: bool
) -> BatchResult:
    """Assign the entries of a batch reply to its questions.

    A missing, repeated or unreadable answer is a fault of its question alone; an entry under a number that was not
    requested is ignored.

    Args:
        questions: The questions by number.
        entries: The entries of the reply.
        spend: What the request cost.
        neutralized: Whether sanitizing changed a text of the request.
    """
    by_number: dict[int, list[CriterionJudgment]] = {}
    for entry in entries:
        by_number.setdefault(entry.id, []).append(entry)
    answers: dict[int, Judgment] = {}
    faults: dict[int, str] = {}
    for number, question in questions.items():
        candidates = by_number.get(number, [])
        if len(candidates) != 1:
            faults[number] = f"{len(candidates)} answers" if candidates else "no answer"
            continue
        try:
            verdict, value = interpret_reply(question, candidates[0].answer)
        except ValueError as error:
            faults[number] = str(error)
            continue
        entry = candidates[0]
        evidence = tuple(entry.evidence) if isinstance(entry, CitedJudgment) else ()
        answers[number] = Judgment(
            verdict=verdict, value=value, reason=entry.explanation, neutralized=neutralized, evidence=evidence
        )
    return BatchResult(answers, faults, spend)
