"""How far a judge can be trusted: agreement with human labels, corrected scores, run comparisons, release gates.

All intervals are computed by formulas, without resampling. Therefore, the same data always give the same figures.
Random numbers have a seed, and are used only to draw samples and to split labels. An undefined figure is None and never
0.

To add a measure of agreement, write its formula in `trust/statistics.py`, with its source, and add a field to
`CriterionAgreement`. To add an optimizer by name, add it to `OPTIMIZERS` in `trust/alignment/optimizers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.calibration import Calibration, CriterionCalibration, calibrate, calibrate_rate
from rubric_integrations.trust.certification import Certificate, CertificateStep
from rubric_integrations.trust.comparable_runs import Comparability, comparability
from rubric_integrations.trust.comparison import CriterionChange, RunComparison, compare_runs
from rubric_integrations.trust.confidence import ConfidenceBin, Reliability, SelectivePoint, reliability
from rubric_integrations.trust.criterion_certificates import (
    CriterionCertificate,
    CriterionCertificates,
    VerdictCertificate,
    certify,
)
from rubric_integrations.trust.disagreements import CriterionDisagreements, Direction, Disagreement, find_disagreements
from rubric_integrations.trust.gates import GateResult, SequentialGate, fewest_to_pass, gate, gate_comparison, gate_rows
from rubric_integrations.trust.judge_pairs import (
    JudgeChange,
    JudgeChanges,
    JudgeComparison,
    compare_judges,
)
from rubric_integrations.trust.labels import LabelsError, read_labels
from rubric_integrations.trust.matching import ChosenLabelsError, VerdictAgreement
from rubric_integrations.trust.measure import Agreement, CriterionAgreement, ScoreAgreement, agreement
from rubric_integrations.trust.panels import JudgeOnPanel, PanelCriterion, PanelReport, panel_report
from rubric_integrations.trust.planning import JudgmentToLabel, choose_for_labels, plan_labels
from rubric_integrations.trust.statistics import OrderedAgreement

if TYPE_CHECKING:
    from rubric_integrations.trust.alignment.align import Alignment, AttemptsError, align
    from rubric_integrations.trust.alignment.calls import AlignmentError
    from rubric_integrations.trust.alignment.optimizers import judge_metric
    from rubric_integrations.trust.alignment.wording import WordingProposal, propose_wording
    from rubric_integrations.trust.answer_separation import (
        CriterionUse,
        RedundantPair,
        SeparationReport,
        check_separation,
    )
    from rubric_integrations.trust.cases import CaseReport, CaseResult, CriterionCases, run_cases
    from rubric_integrations.trust.criterion_faults import AdditionFlips, CriterionFaults, FlipRate
    from rubric_integrations.trust.criterion_probe import (
        MutantResult,
        MutationReport,
        ProbedCriterion,
        probe_criteria,
    )
    from rubric_integrations.trust.draft_sources import AnswerPair, LabelledAnswer, read_feedback, read_pairs
    from rubric_integrations.trust.drafting import DraftError, draft_rubric
    from rubric_integrations.trust.drafts import DraftedCriterion, DroppedCriterion, RubricDraft
    from rubric_integrations.trust.judge_drift import CriterionDrift, DriftReport, drift
    from rubric_integrations.trust.judge_noise import JudgeNoise, NoiseAwareAcceptance, noise
    from rubric_integrations.trust.panels import PanelWeights, suggest_weights
    from rubric_integrations.trust.proposals import CandidateCriterion
    from rubric_integrations.trust.reward_figures import (
        CriterionTrend,
        JudgeGap,
        RewardReport,
        SecondJudge,
        StepFigures,
        Trend,
    )
    from rubric_integrations.trust.reward_health import reward_report
    from rubric_integrations.trust.separation import CandidateTest, PairCounts, Separation

# These import DSPy or the runner, which figures do not need.
_MODULES = {
    "AdditionFlips": "criterion_faults",
    "Alignment": "alignment.align",
    "AlignmentError": "alignment.calls",
    "AnswerPair": "draft_sources",
    "AttemptsError": "alignment.align",
    "CandidateCriterion": "proposals",
    "CandidateTest": "separation",
    "CaseReport": "cases",
    "CaseResult": "cases",
    "CriterionCases": "cases",
    "CriterionDrift": "judge_drift",
    "CriterionFaults": "criterion_faults",
    "CriterionTrend": "reward_figures",
    "CriterionUse": "answer_separation",
    "DraftError": "drafting",
    "DraftedCriterion": "drafts",
    "DriftReport": "judge_drift",
    "DroppedCriterion": "drafts",
    "JudgeGap": "reward_figures",
    "JudgeNoise": "judge_noise",
    "LabelledAnswer": "draft_sources",
    "FlipRate": "criterion_faults",
    "MutantResult": "criterion_probe",
    "MutationReport": "criterion_probe",
    "NoiseAwareAcceptance": "judge_noise",
    "PairCounts": "separation",
    "PanelWeights": "panels",
    "ProbedCriterion": "criterion_probe",
    "RedundantPair": "answer_separation",
    "RewardReport": "reward_figures",
    "RubricDraft": "drafts",
    "SecondJudge": "reward_figures",
    "Separation": "separation",
    "SeparationReport": "answer_separation",
    "StepFigures": "reward_figures",
    "Trend": "reward_figures",
    "WordingProposal": "alignment.wording",
    "align": "alignment.align",
    "check_separation": "answer_separation",
    "draft_rubric": "drafting",
    "drift": "judge_drift",
    "judge_metric": "alignment.optimizers",
    "noise": "judge_noise",
    "probe_criteria": "criterion_probe",
    "propose_wording": "alignment.wording",
    "read_feedback": "draft_sources",
    "read_pairs": "draft_sources",
    "reward_report": "reward_health",
    "run_cases": "cases",
    "suggest_weights": "panels",
}

__all__ = [
    "AdditionFlips",
    "Agreement",
    "Alignment",
    "AlignmentError",
    "AnswerPair",
    "AttemptsError",
    "Calibration",
    "CandidateCriterion",
    "CandidateTest",
    "CaseReport",
    "CaseResult",
    "Certificate",
    "CertificateStep",
    "ChosenLabelsError",
    "Comparability",
    "ConfidenceBin",
    "CriterionAgreement",
    "CriterionCalibration",
    "CriterionCases",
    "CriterionCertificate",
    "CriterionCertificates",
    "CriterionChange",
    "CriterionDisagreements",
    "CriterionDrift",
    "CriterionFaults",
    "CriterionTrend",
    "CriterionUse",
    "Direction",
    "Disagreement",
    "DraftError",
    "DraftedCriterion",
    "DriftReport",
    "DroppedCriterion",
    "Estimate",
    "FlipRate",
    "GateResult",
    "JudgeChange",
    "JudgeChanges",
    "JudgeComparison",
    "JudgeGap",
    "JudgeNoise",
    "JudgeOnPanel",
    "JudgmentToLabel",
    "LabelledAnswer",
    "LabelsError",
    "MutantResult",
    "MutationReport",
    "NoiseAwareAcceptance",
    "OrderedAgreement",
    "PairCounts",
    "PanelCriterion",
    "PanelReport",
    "PanelWeights",
    "ProbedCriterion",
    "RedundantPair",
    "Reliability",
    "RewardReport",
    "RubricDraft",
    "RunComparison",
    "ScoreAgreement",
    "SecondJudge",
    "SelectivePoint",
    "Separation",
    "SeparationReport",
    "SequentialGate",
    "StepFigures",
    "Trend",
    "VerdictAgreement",
    "VerdictCertificate",
    "WordingProposal",
    "agreement",
    "align",
    "calibrate",
    "calibrate_rate",
    "certify",
    "check_separation",
    "choose_for_labels",
    "comparability",
    "compare_judges",
    "compare_runs",
    "draft_rubric",
    "drift",
    "fewest_to_pass",
    "find_disagreements",
    "gate",
    "gate_comparison",
    "gate_rows",
    "judge_metric",
    "noise",
    "panel_report",
    "plan_labels",
    "probe_criteria",
    "propose_wording",
    "read_feedback",
    "read_labels",
    "read_pairs",
    "reliability",
    "reward_report",
    "run_cases",
    "suggest_weights",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
