"""Small runs that several tests of the report page use."""

from __future__ import annotations

from typing import Any, NamedTuple

from rubric_integrations import Criterion, Option, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.reporting.page.figures import (
    ColumnFigures,
    Comparison,
    ComparisonFigures,
    CriterionFigures,
    SharedColumns,
    Summary,
    SummaryFigures,
)
from rubric_integrations.runs import RunFile
from rubric_integrations.runs.files import matched_rows
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend, to_judgment

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


def own_line(number: int, *verdicts: str, words: str = "") -> dict[str, Any]:
    """Return a line of a run file, as `grade --out` writes it for a row that brings its own rubric."""
    criteria: list[dict[str, Any]] = [
        {
            "name": f"c{place}", "requirement": f"{words}Says {number}.{place}", "weight": 3, "verdict": verdict,
            "value": float(verdict == "MET"), "reason": f"why {number}.{place}",
            "tags": [("facts", "style")[place % 2]],
        }
        for place, verdict in enumerate(verdicts, start=1)
    ]  # fmt: skip
    tags = {criterion["tags"][0]: criterion["value"] for criterion in criteria}
    score = sum(criterion["value"] for criterion in criteria) / len(criteria)
    fields = {"score": score, "raw_score": score, "passed": score > 0.5, "complete": True, "coverage": 1.0}
    submission = {"response": f"It is {number}.", "query": f"Question {number}?"}
    return {"id": f"s{number}", "submission": submission, **fields, "tags": tags, "report": criteria}


class Line(NamedTuple):
    """A result of `grade_many`, as the page reads it."""

    fields: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.fields


def own_rubrics(name: str, count: int, *verdicts: str, words: str = "") -> RunFile:
    """Return a run in which each row has criteria of its own, and the verdicts change from row to row."""
    turned = [verdicts[number % len(verdicts) :] + verdicts[: number % len(verdicts)] for number in range(count)]
    return RunFile.of(name, [Line(own_line(number, *turned[number], words=words)) for number in range(count)])


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


def summarize(run: RunFile) -> Summary:
    figures = SummaryFigures(run.pass_mark)
    for row in run.rows:
        figures.add(row)
    return figures.summary


def column_figures(run: RunFile) -> ColumnFigures:
    figures = ColumnFigures()
    for row in run.rows:
        figures.add(row)
    return figures


def criterion_figures(run: RunFile) -> list[CriterionFigures]:
    shared = SharedColumns()
    for row in run.rows:
        shared.add([row])
    return column_figures(run).of(shared.columns)


def compare(first: RunFile, second: RunFile) -> Comparison | None:
    figures = ComparisonFigures()
    for key, (before, after) in matched_rows([first, second]):
        figures.add(key, before, after)
    return figures.comparison


class AgreeableJudge:
    """Says that each condition and each requirement is met, and answers 3 on each scale."""

    async def judge(self, question: Question) -> Judgment:
        return to_judgment(question.criterion, "3" if question.criterion.scale else "MET")


CLEAR = {
    "name": "clear", "requirement": "How clear?",
    "scale": {"min": 1, "max": 5, "levels": {"1": "muddled", "2-4": "fair", "5": "good"}},
}  # fmt: skip
TYPO = {
    "name": "typo",
    "requirement": "Has a typo",
    "weight": -2,
    "context": "A list.",
    "applies_when": "It is English",
}
SHOWN = Rubric.from_dict({"criteria": [CLEAR, TYPO], "guidelines": "Be strict."})
SHOWN_RUN = RunFile.of(
    "run",
    grade_many(
        [{"response": text, "context": ["A source."]} for text in "ab"], SHOWN, PerCriterionGrader(AgreeableJudge())
    ),
)
