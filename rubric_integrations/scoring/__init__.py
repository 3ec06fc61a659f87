"""Turns judgments into a score, with pure functions: no I/O, no model and no randomness.

- `formula`: the score of weights and values. `vectorized` computes the same on arrays.
- `policies`: how abstentions (`cannot_assess`) and failures (`on_failure`) are scored.
- `voting` and `vote_strategies`: several judges' votes on one criterion become one verdict.
- `length`: the penalty for long responses.
- `bounds`: the range of a score while some criteria are not judged yet.
- `aggregate`: all of this, from the judges' answers to the report.

To add a voting strategy, see `vote_strategies`. To add a policy for abstentions, add its name to
`policies.CannotAssess`; the type checker then names every `match` that must handle it.

`score_many` is imported on first use, because it needs NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names
from rubric_integrations.scoring.bounds import ScoreRange, score_range
from rubric_integrations.scoring.formula import Score, WeightedValue, blend_scores, score_parts, score_values
from rubric_integrations.scoring.length import LengthPenalty, compute_length_penalty, word_count
from rubric_integrations.scoring.policies import CannotAssess, DefaultFallbackVerdicts, OnFailure
from rubric_integrations.scoring.voting import VoteResult, count_votes

if TYPE_CHECKING:
    from rubric_integrations.scoring.vectorized import score_many

__all__ = [
    "CannotAssess",
    "DefaultFallbackVerdicts",
    "LengthPenalty",
    "OnFailure",
    "Score",
    "ScoreRange",
    "VoteResult",
    "WeightedValue",
    "blend_scores",
    "compute_length_penalty",
    "count_votes",
    "score_many",
    "score_parts",
    "score_range",
    "score_values",
    "word_count",
]  # fmt: skip

__getattr__ = lazy_names(__name__, {"score_many": "vectorized"})


def __dir__() -> list[str]:
    return __all__
