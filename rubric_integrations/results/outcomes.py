"""A report as named scores, as every evaluation framework shows it: one for the whole, one for each criterion."""

from __future__ import annotations

from typing import Literal

from rubric_integrations._util.records import EncodableText, Record
from rubric_integrations.results.criterion_report import NOT_APPLICABLE, CriterionReport
from rubric_integrations.results.report import EvaluationReport

OutcomeKind = Literal["verdict", "abstention", "failure", "not applicable"]

CANNOT_ASSESS = "CANNOT_ASSESS"


class Outcome(Record):
    """One score of a report under its name, or why there is none.

    Attributes:
        name: The name that the framework shows, such as `rubric`, and `rubric.margin` for a criterion.
        kind: Whether there is a verdict, an abstention, a failure, or a criterion that does not apply. The whole
            report has a `"verdict"` if it has a score, and an `"abstention"` if its score is undefined.
        score: Higher is better, also for penalties: 0 if the error was committed, 1 if it was not. That of a criterion
            is in [0, 1], that of the whole is the score of the report. None unless `kind` is `"verdict"`.
        label: The verdict in words, such as `MET`; `passed` or `not passed` for the whole. None for a failure.
        explanation: The judge's reason, or the error.
        error: Why there is no answer; None unless `kind` is `"failure"`.
        weight: The weight of the criterion; None for the whole.
    """

    name: str
    kind: OutcomeKind
    score: float | None = None
    label: EncodableText | None = None
    explanation: EncodableText = ""
    error: EncodableText | None = None
    weight: float | None = None


def outcomes_of(report: EvaluationReport, name: str = "rubric", failure: Exception | None = None) -> list[Outcome]:
    """Return the outcome of the whole report, and then one for each criterion for which an answer was requested.

    Args:
        report: The report, or the incomplete one of a `JudgeError`.
        name: The name of the whole, which the names of the criteria begin with.
        failure: Why the grade has failed, such as the `JudgeError`. The whole then has no score, because the sum over
            the other criteria would look like one.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict(
        ...     [
        ...         {"name": "right", "requirement": "Says 42", "check": {"number": 42}},
        ...         {"name": "rude", "requirement": "Is rude", "weight": -1, "check": {"contains": "fool"}},
        ...     ]
        ... )
        >>> from rubric_integrations import PerCriterionGrader
        >>> report = rubric.grade_sync("It is 42.", PerCriterionGrader("offline"))
        >>> [(outcome.name, outcome.score, outcome.label) for outcome in outcomes_of(report)]
        [('rubric', 1.0, 'passed'), ('rubric.right', 1.0, 'MET'), ('rubric.rude', 1.0, 'UNMET')]
    """
    return [_whole(report, name, failure), *(_outcome(row, name) for row in report.criteria if row.was_asked)]


def higher_is_better(value: float, *, is_penalty: bool) -> float:
    """Return the score of a criterion's value, or the value of a score: for a penalty, 1 minus it.

    Frameworks average scores and show a higher average as an improvement. The score of a penalty is therefore 0 if the
    error was committed.

    Example:
        >>> higher_is_better(1.0, is_penalty=True), higher_is_better(1.0, is_penalty=False)
        (0.0, 1.0)
    """
    return 1 - value if is_penalty else value


def _whole(report: EvaluationReport, name: str, failure: Exception | None) -> Outcome:
    if failure is not None:
        return Outcome(name=name, kind="failure", explanation=f"not graded: {failure}", error=str(failure))
    label = "passed" if report.passed else "not passed"
    kind: OutcomeKind = "abstention" if report.score is None else "verdict"
    label = CANNOT_ASSESS if report.score is None else label
    return Outcome(name=name, kind=kind, score=report.score, label=label, explanation=summary_of(report))


def _outcome(row: CriterionReport, name: str) -> Outcome:
    outcome = Outcome(
        name=f"{name}.{row.name}", kind="failure", explanation=row.explanation, error=row.error, weight=row.weight
    )
    if row.error:
        return outcome
    if row.not_applicable:
        return outcome.model_copy(update={"kind": "not applicable", "label": NOT_APPLICABLE})
    if row.value is None:
        return outcome.model_copy(update={"kind": "abstention", "label": CANNOT_ASSESS})
    score = higher_is_better(row.value, is_penalty=row.weight < 0)
    return outcome.model_copy(update={"kind": "verdict", "score": score, "label": row.verdict})


def summary_of(report: EvaluationReport) -> str:
    """Return in one line whether a report passed, its coverage, and the criteria that are not fulfilled."""
    unmet = [row.name for row in report.criteria if row.value is not None and not row.passed]
    parts = [
        "passed" if report.passed else "not passed",
        f"coverage {report.coverage:.0%}",
        f"unmet: {', '.join(unmet)}" if unmet else "",
        report.reason,
    ]
    return "; ".join(part for part in parts if part)
