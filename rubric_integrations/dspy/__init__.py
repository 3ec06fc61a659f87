"""A rubric as a DSPy metric: `dspy.Evaluate(metric=RubricMetric(rubric, judge=...))`, and for every optimizer.

The same metric serves `dspy.Evaluate`, the optimizers (BootstrapFewShot, MIPROv2, SIMBA, GEPA, BetterTogether) and, by
`RubricMetric.as_reward_fn`, `dspy.BestOfN` and `dspy.Refine`.
"""

from rubric_integrations.dspy.examples import MisnamedField, to_examples
from rubric_integrations.dspy.feedback_text import feedback
from rubric_integrations.dspy.history import HistoryRow, MetricSummary
from rubric_integrations.dspy.metric import RubricMetric
from rubric_integrations.dspy.noise import JudgeNoise, NoiseAwareAcceptance
from rubric_integrations.dspy.rubric_source import RubricFunctionError
from rubric_integrations.dspy.score import RubricScore
from rubric_integrations.graders.outage import JudgeOutage

__all__ = [
    "HistoryRow",
    "JudgeNoise",
    "JudgeOutage",
    "MetricSummary",
    "MisnamedField",
    "NoiseAwareAcceptance",
    "RubricFunctionError",
    "RubricMetric",
    "RubricScore",
    "feedback",
    "to_examples",
]
