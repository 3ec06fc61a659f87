"""The results of grading: judgments, failures, reports, their cost, and human labels."""

from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.escalations import Escalations
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.judgment import JudgeFailure, Judgment, Vote
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.results.outcomes import Outcome, outcomes_of
from rubric_integrations.results.report import EvaluationReport, JudgeError
from rubric_integrations.results.usage import Spend, TokenUsage

__all__ = [
    "CriterionReport",
    "Escalations",
    "EvaluationReport",
    "JudgeError",
    "JudgeFailure",
    "Judgment",
    "LabelledJudgment",
    "Outcome",
    "Spend",
    "TokenUsage",
    "Vote",
    "outcomes_of",
    "to_judgment",
]  # fmt: skip
