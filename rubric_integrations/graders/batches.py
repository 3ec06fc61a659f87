"""One request about several criteria: the answers, one more request for lost ones, and the groups of a submission."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from rubric_integrations.graders.rounds import Round
from rubric_integrations.graders.scheduler import CallLimiter
from rubric_integrations.judges.protocol import Judge, Question, Request, answer, split_for
from rubric_integrations.scoring.judgment import JudgeFailure, Outcome, Spend
from rubric_integrations.submission.submission import shown_trajectory


async def ask_in_one_request(
    limiter: CallLimiter, judge: Judge, state: Round, ends_at_failure: bool, questions: Mapping[int, Question]
) -> tuple[dict[int, Outcome], Spend]:
    """Ask several questions about one submission. In the first round, answers that were lost are asked for once more.

    Args:
        limiter: Makes the calls and repeats failed ones.
        judge: The judge.
        state: The round of the grade.
        ends_at_failure: Whether a final failure of one question ends the grade, so that no further request is made.
        questions: The questions by the index of their criterion.

    Returns:
        The outcome of each question, and the spend of all requests.
    """
    outcomes, spend = await _request(limiter, judge, state, questions)
    failures = {index: outcome for index, outcome in outcomes.items() if isinstance(outcome, JudgeFailure)}
    lost = {index: questions[index] for index, failure in failures.items() if failure.retryable}
    if state.earlier or not lost or (ends_at_failure and len(lost) < len(failures)):
        return outcomes, spend
    more, cost = await _request(limiter, judge, state, lost)
    return outcomes | more, spend + cost


async def _request(
    limiter: CallLimiter, judge: Judge, state: Round, questions: Mapping[int, Question]
) -> tuple[dict[int, Outcome], Spend]:
    # Numbered by the position in the rubric. Otherwise, an answer to one call could be read as an answer to another.
    numbered = {index + 1: question for index, question in questions.items()}
    request = Request(next(iter(questions.values())).submission, questions=numbered, retries=state.retries)
    result, lost = await limiter.outcome(partial(answer, judge, request), state.retries)
    if isinstance(result, JudgeFailure):
        # Each criterion fails for the same reason, but the spend of the attempts is counted once.
        failure = JudgeFailure(result.kind, result.message, about_text=result.about_text, repeats=result.repeats)
        return dict.fromkeys(questions, failure), result.spend
    outcomes: dict[int, Outcome] = {number - 1: judgment for number, judgment in result.answers.items()}
    return outcomes | {number - 1: result.failure(number) for number in result.faults}, result.spend + lost


def groups_of(judge: Judge, questions: Iterable[tuple[int, Question]]) -> Iterator[Mapping[int, Question]]:
    """Group questions whose answers do not depend on each other: each group is one request.

    The questions of a group are about the same text: the response or the same part of it, with or without the
    trajectory. A judge with a method `split` may split a group further, for example because of its server's limit.

    Args:
        judge: The judge.
        questions: The questions with the index of their criterion. A criterion has a question for each part.
    """
    groups: dict[tuple[str, bool], dict[int, Question]] = {}
    for index, question in questions:
        sees_trajectory = shown_trajectory(question.submission, [question.criterion]) is not None
        groups.setdefault((question.guidelines, sees_trajectory), {})[index] = question
    for group in groups.values():
        yield from split_for(judge, group)
