"""Turns judgments into a score, with pure functions: no I/O, no model and no randomness.

To add a voting strategy, see `scoring/voting.py`. To add a policy for abstentions, add its name to `CannotAssess` in
`rubric/answers.py`. The type checker then names every `match` that must handle it.

`score_many` is imported at first use, because it needs NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names
from rubric_integrations.scoring.aggregate import aggregate_answers
from rubric_integrations.scoring.formula import (
    Score,
    ScoreRange,
    WeightedValue,
    blend_scores,
    score_parts,
    score_range,
    score_values,
)
from rubric_integrations.scoring.judgment import (
    JudgeAnswers,
    JudgeFailure,
    Judgment,
    Spend,
    TokenUsage,
    Vote,
    to_judgment,
)
from rubric_integrations.scoring.labels import LabelledJudgment, submission_digest
from rubric_integrations.scoring.length import LengthPenalty, compute_length_penalty, word_count
from rubric_integrations.scoring.policies import CannotAssess, DefaultFallbackVerdicts, OnFailure
from rubric_integrations.scoring.report import (
    CriterionReport,
    Escalations,
    EvaluationReport,
    Exploration,
    JudgeError,
    NamedScore,
    outcomes_of,
)
from rubric_integrations.scoring.voting import VoteResult, count_votes

if TYPE_CHECKING:
    from rubric_integrations.scoring.vectorized import score_many

__all__ = [
    "CannotAssess",
    "CriterionReport",
    "DefaultFallbackVerdicts",
    "Escalations",
    "EvaluationReport",
    "Exploration",
    "JudgeAnswers",
    "JudgeError",
    "JudgeFailure",
    "Judgment",
    "LabelledJudgment",
    "LengthPenalty",
    "NamedScore",
    "OnFailure",
    "Score",
    "ScoreRange",
    "Spend",
    "TokenUsage",
    "Vote",
    "VoteResult",
    "WeightedValue",
    "aggregate_answers",
    "blend_scores",
    "compute_length_penalty",
    "count_votes",
    "outcomes_of",
    "score_many",
    "score_parts",
    "score_range",
    "score_values",
    "submission_digest",
    "to_judgment",
    "word_count",
]


__getattr__ = lazy_names(__name__, {"score_many": "vectorized"})


def __dir__() -> list[str]:
    return __all__
