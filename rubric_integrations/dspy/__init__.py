"""Makes a DSPy metric from a rubric: `dspy.Evaluate(metric=RubricMetric(rubric, judge=...))`.

The same metric works with `dspy.Evaluate` and the optimizers BootstrapFewShot, MIPROv2, SIMBA, GEPA and BetterTogether.
With `RubricMetric.as_reward_fn`, it also works with `dspy.BestOfN` and `dspy.Refine`.
"""

from rubric_integrations.dspy.examples import MisnamedField, to_examples
from rubric_integrations.dspy.feedback_text import RubricFunctionError, RubricScore, feedback
from rubric_integrations.dspy.history import HistoryRow, MetricSummary
from rubric_integrations.dspy.metric import RubricMetric
from rubric_integrations.graders.endpoint import JudgeOutage
from rubric_integrations.trust.judge_noise import JudgeNoise, NoiseAwareAcceptance

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
