"""The votes of a panel in a run: the answers of each judge alone, and the panel's answer without one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.judgment import Vote
from rubric_integrations.rubric.criterion import VOTE_STRATEGIES, Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow
from rubric_integrations.scoring.voting import VoteResult, count_votes


def is_voted(entry: CriterionReport) -> bool:
    """Whether a panel of at least two judges answered a criterion; False if the criterion names one judge."""
    return bool(entry.votes) and len(entry.votes) + len(entry.not_asked) > 1 and not entry.not_applicable


def voted_entries(rows: Iterable[GradedRow]) -> dict[tuple[str, str], list[CriterionReport]]:
    """Group what panels answered by the criterion's name and words."""
    entries: dict[tuple[str, str], list[CriterionReport]] = {}
    for row in rows:
        for entry in row.report.criteria if row.report else ():
            if is_voted(entry):
                entries.setdefault((entry.name, entry.requirement), []).append(entry)
    return entries


def judge_names(entries: Iterable[CriterionReport]) -> list[str]:
    """Return the names of the judges, in the order of the panel."""
    names: dict[str, None] = {}
    for entry in entries:
        names |= dict.fromkeys([*(vote.judge for vote in entry.votes), *entry.not_asked])
    return list(names)


def criterion_of(entry: CriterionReport, rubric: Rubric | None) -> Criterion:
    """Return the criterion of an entry: that of the rubric, if it has it.

    Raises:
        ValueError: The rubric does not have it, and the report is of an earlier version.
    """
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True) if rubric else ():
        if (key, criterion.full_requirement) == (entry.name, entry.requirement):
            return criterion
    return entry.to_criterion()


def answer_of(entry: CriterionReport, judge: str) -> CriterionReport | None:
    """Return an entry with the answer of one judge in place of the panel's; None if the judge was not asked."""
    vote = next((vote for vote in entry.votes if vote.judge == judge), None)
    if vote is None:
        return None
    answer = {"verdict": vote.verdict, "value": vote.value, "reason": vote.reason, "error": vote.error, "votes": ()}
    return entry.model_copy(update=answer)


def find_strategy(criterion: Criterion, entries: Iterable[CriterionReport]) -> str | None:
    """Find the strategy by which a panel voted: the first that gives each of its verdicts; None if none does.

    A run does not store the strategy. Where several give the same verdicts, the usual one comes first: `majority`,
    `mean` or `mode`.
    """
    strategies = [criterion.aggregation] if criterion.aggregation else list(VOTE_STRATEGIES[criterion.kind])
    for entry in entries:
        if entry.error is None and len({vote.verdict for vote in entry.votes if vote.error is None}) > 1:
            strategies = [name for name in strategies if count_votes(criterion, entry.votes, name)[0] == entry.verdict]
    return strategies[0] if strategies else None


def vote_again(criterion: Criterion, votes: Sequence[Vote], strategy: str) -> VoteResult | None:
    """Combine votes by a strategy; None if all are failures."""
    return count_votes(criterion, votes, strategy) if any(vote.error is None for vote in votes) else None
