"""Interprets what a model answered: verdicts, options by their code or label, numbers, and the entries of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rubric_integrations.judges.prompts.render import option_codes, options_of
from rubric_integrations.judges.prompts.signatures import CriterionJudgment
from rubric_integrations.judges.protocol import BatchResult, Question
from rubric_integrations.results.interpret import Interpretation, interpret_answer
from rubric_integrations.results.judgment import Judgment, parse_verdict
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


def interpret_choice(question: Question, reply: str) -> Interpretation:
    """Interpret a model's choice among the options as `describe_options` shows them.

    Raises:
        ValueError: This is neither a code nor a label.
    """
    word = reply.strip().strip("*_`\"'.()[] ")
    codes = option_codes(options_of(question))
    code = word.split(":", 1)[0].strip().upper()
    option = codes.get(code) if code == word.upper() or _repeats_line(codes, code, word) else None
    return interpret_answer(question.criterion, option.label if option else word, question.may_abstain)


def _repeats_line(codes: Mapping[str, Option], code: str, word: str) -> bool:
    """Whether a reply such as `B: clear` repeats the line of its own code, not that of another."""
    return code in codes and word.split(":", 1)[1].strip().casefold() == codes[code].label.strip().casefold()


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
        reason = candidates[0].explanation
        answers[number] = Judgment(verdict=verdict, value=value, reason=reason, neutralized=neutralized)
    return BatchResult(answers, faults, spend)
