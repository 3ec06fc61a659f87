"""Small runs that several tests of the report page use."""

from __future__ import annotations

from rubric_integrations import Criterion, Option, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges.protocol import Question
from rubric_integrations.reporting import RunFile
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend

RUBRIC = Rubric(
    [
        Criterion(name="right", requirement="Is right", weight=3, required=True),
        Criterion(name="error", requirement="Has an error", weight=-2),
        Criterion(
            name="tone",
            requirement="Tone?",
            weight=1,
            options=[Option(label="plain", value=1), Option(label="x", value=0)],
        ),
    ],
    name="small",
)


class EchoJudge:
    """Answers each criterion as the response says, such as `right=MET error=fails`; the others are abstentions."""

    async def judge(self, question: Question) -> Judgment:
        answers = dict(part.split("=") for part in question.submission.response.split() if "=" in part)
        answer = answers.get(question.criterion.name or "", "CANNOT_ASSESS")
        if answer == "fails":
            raise JudgeFailure("transport", "no reply", spend=Spend(calls=1))
        value = {"MET": 1.0, "UNMET": 0.0, "plain": 1.0, "x": 0.0}.get(answer)
        return Judgment(verdict=answer, value=value, reason=f"because {answer}", spend=Spend(calls=1, cost=0.5))


def run_of(name: str, *responses: str, rubric: Rubric = RUBRIC) -> RunFile:
    rows = [{"id": f"s{number}", "response": text, "query": "Why?"} for number, text in enumerate(responses)]
    graded = grade_many(rows, rubric, PerCriterionGrader(EchoJudge(), max_retries=0))
    return RunFile.of(name, graded, rubric=rubric.name, judge="echo")


FIRST = run_of(
    "first",
    "right=MET error=UNMET tone=plain",
    "right=UNMET error=MET tone=x",
    "right=MET error=fails tone=x",
    "right=MET error=UNMET",
)
SECOND = run_of(
    "second",
    "right=MET error=UNMET tone=plain",
    "right=MET error=UNMET tone=x",
    "right=MET error=UNMET tone=x",
    "right=MET error=MET",
)
