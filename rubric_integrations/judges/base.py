"""What a judge is: anything that answers one criterion about one submission."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from rubric_integrations.rubric import Criterion
from rubric_integrations.submission import Submission
from rubric_integrations.verdict import Judgment


class Question(NamedTuple):
    """One criterion asked of one submission.

    Attributes:
        submission: The text, with its query and reference.
        criterion: What is asked.
        guidelines: The rubric's words to the judge for every criterion; empty where it has none.
    """

    submission: Submission
    criterion: Criterion
    guidelines: str = ""


@runtime_checkable
class Judge(Protocol):
    """Write your own judge by giving a class this one method.

    Answer with a `Judgment`. Where there is no answer raise `JudgeFailure`; returning UNMET instead would
    turn your outage into somebody's bad grade.
    """

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion about one submission."""
        ...
