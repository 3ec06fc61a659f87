"""The judge without a model: it searches a response for the quoted texts and numbers of a requirement, or abstains.

The demo uses this judge. It is also a baseline for other judges. It does not understand meaning. If a requirement has
neither a quoted text nor a percentage nor an amount of money, the judge abstains.
"""

from __future__ import annotations

import re

from rubric_integrations._util.text import Quantity, read_quantities
from rubric_integrations.judges.protocol import Question
from rubric_integrations.scoring.judgment import NO_SPEND, VERDICT_VALUES, Judgment, Verdict

WHAT_IT_IS = (
    "The offline judge uses no model: it runs checks, looks for the numbers and quoted words that a requirement names, "
    "and abstains (CANNOT_ASSESS) on the rest."
)

_QUOTED = re.compile(r"[\"“”]([^\"“”]{1,200})[\"“”]|(?<!\w)['‘]([^'‘’]{1,200})['’](?!\w)")


class OfflineJudge:
    """A judge that searches a response for a requirement's anchors: quoted texts, percentages and amounts of money.

    It uses no model. It abstains (CANNOT_ASSESS) if a requirement has no anchors.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "States the margin as 17.2%"}])
        >>> rubric.grade_sync("It was 17.2%.", grader=PerCriterionGrader("offline")).report[0].reason
        'mentions 17.2%'
    """

    def fingerprint(self) -> str:
        """Return the judge's name. The name identifies the judge, because its answers depend only on the texts."""
        return "offline"

    @property
    def runs_user_code(self) -> bool:
        """Whether an answer may run a user's code, which only a subclass does."""
        return type(self) is not OfflineJudge

    def highest_cost(self, text_bytes: int) -> float:
        """Return the cost of an answer, which is always 0."""
        return 0.0

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion: MET if every anchor occurs, UNMET if one is missing, CANNOT_ASSESS without anchors.

        The answer is also CANNOT_ASSESS in these cases:

        - An anchor is missing, but the submission has attachments, which may contain it.
        - The criterion is a penalty and all its anchors occur. Words alone do not distinguish an error from a warning
          against the error.
        - The criterion is not binary, or its operator is `contradicts`.
        """
        if question.criterion.kind != "binary":
            return _answer("CANNOT_ASSESS", "without a model only MET and UNMET can be decided")
        if question.criterion.operator == "contradicts":
            return _answer("CANNOT_ASSESS", "without a model a contradiction looks like silence")
        requirement, response = question.criterion.requirement, question.submission.response
        quoted = [first or second for first, second in _QUOTED.findall(requirement)]
        numbers = [number for number in read_quantities(requirement) if number.unit]
        if not quoted and not numbers:
            return _answer("CANNOT_ASSESS", "the requirement names no number with a unit and quotes no text")
        stated = set(read_quantities(response))
        absent = [repr(text) for text in quoted if text.casefold() not in response.casefold()]
        absent += [_show(number) for number in numbers if number not in stated]
        if absent and question.submission.attachments:
            return _answer("CANNOT_ASSESS", f"the text does not mention {', '.join(absent)}; attachments are not read")
        if absent:
            return _answer("UNMET", "does not mention " + ", ".join(absent))
        named = ", ".join([*map(repr, quoted), *map(_show, numbers)])
        if question.criterion.is_penalty:
            return _answer("CANNOT_ASSESS", f"mentions {named}, which may be the error or a warning against it")
        return _answer("MET", f"mentions {named}")


def _answer(verdict: Verdict, reason: str) -> Judgment:
    return Judgment(verdict=verdict, value=VERDICT_VALUES[verdict], reason=reason, spend=NO_SPEND)


def _show(number: Quantity) -> str:
    return f"{number.value:g}%" if number.unit == "%" else f"{number.unit}{number.value:,g}"
