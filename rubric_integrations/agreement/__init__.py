"""How far a judge can be trusted: agreement with people, corrected scores, comparisons of runs, and release gates.

- `choosing` draws what people should read, `reading` reads their labels (`label_lines`, `labelled_rows`), and
  `matching` finds the judgments that these are about.
- `alignment` aligns a judge with labels (`optimizers`, `student`, `label_metric`), split by `label_sets` and `splits`;
  `keeping` decides by `paired_accuracy` whether the result is kept, and `attempts` counts what was tried.
- `measure` compares the judge with people (`criterion_agreement`, `tables`, `kappa`, `ranks`, `weighting`),
  `calibration` corrects its figures (`correction`, `scores`), `comparison` compares two runs (`changes`), `gates`
  decide on a release, and `planning` says how many labels are needed. `intervals` has the estimates that all of them
  return, and `clusters` those of judgments that depend on each other.
- `certification` says from which confidence on a cheap judge may be trusted (`cheap_answers`, `fixed_sequence`).
- `panels` says what each judge of a panel is worth (`panel_votes`, `panel_figures`), and `panel_weights` weights their
  votes. `confidence` says what a judge's confidence means (`confidence_figures`, `reliability_diagram`).
- `disagreements` says which criteria people and the judge read differently, and `wording` proposes other words
  (`wording_prompt`).

All intervals are closed forms: the same data always give the same figures, and nothing draws random numbers, except
what people should read, and which labels make weights, by a seed. A figure that is undefined is None, never 0.

To add a measure of agreement, write its formula in `kappa`, `ranks` or `tables`, with its source, and add a field to
`CriterionAgreement`. To add an optimizer by name, add it to `OPTIMIZERS` in `optimizers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names
from rubric_integrations.agreement.calibration import Calibration, CriterionCalibration, calibrate, calibrate_rate
from rubric_integrations.agreement.choosing import JudgmentToLabel, choose_for_labels
from rubric_integrations.agreement.comparison import compare_runs
from rubric_integrations.agreement.comparison_result import CriterionChange, RunComparison
from rubric_integrations.agreement.confidence.certification import Certificate, certify
from rubric_integrations.agreement.confidence.figures import ConfidenceBin, SelectivePoint
from rubric_integrations.agreement.confidence.fixed_sequence import CertificateStep
from rubric_integrations.agreement.confidence.reliability import Reliability, reliability
from rubric_integrations.agreement.criterion_agreement import CriterionAgreement
from rubric_integrations.agreement.disagreements import (
    CriterionDisagreements,
    Direction,
    Disagreement,
    find_disagreements,
)
from rubric_integrations.agreement.gates import GateResult, SequentialGate, fewest_to_pass, gate
from rubric_integrations.agreement.label_lines import LabelsError
from rubric_integrations.agreement.matching import ChosenLabelsError
from rubric_integrations.agreement.measure import Agreement, ScoreAgreement, agreement
from rubric_integrations.agreement.panels.figures import JudgeOnPanel, PanelCriterion
from rubric_integrations.agreement.panels.panel_report import PanelReport, panel_report
from rubric_integrations.agreement.planning import plan_labels
from rubric_integrations.agreement.ranks import OrderedAgreement
from rubric_integrations.agreement.reading import read_labels
from rubric_integrations.agreement.tables import VerdictAgreement
from rubric_integrations.results.estimate import Estimate

if TYPE_CHECKING:
    from rubric_integrations.agreement.alignment.align import align
    from rubric_integrations.agreement.alignment.attempts import AttemptsError
    from rubric_integrations.agreement.alignment.calls import AlignmentError
    from rubric_integrations.agreement.alignment.label_metric import judge_metric
    from rubric_integrations.agreement.alignment.result import Alignment
    from rubric_integrations.agreement.panels.weights import PanelWeights, suggest_weights
    from rubric_integrations.agreement.wording import WordingProposal, propose_wording

# These import DSPy, which figures do not need.
_MODULES = {
    "Alignment": "alignment.result",
    "AlignmentError": "alignment.calls",
    "AttemptsError": "alignment.attempts",
    "PanelWeights": "panels.weights",
    "WordingProposal": "wording",
    "align": "alignment.align",
    "judge_metric": "alignment.label_metric",
    "propose_wording": "wording",
    "suggest_weights": "panels.weights",
}

__all__ = [
    "Agreement",
    "Alignment",
    "AlignmentError",
    "AttemptsError",
    "Calibration",
    "Certificate",
    "CertificateStep",
    "ChosenLabelsError",
    "ConfidenceBin",
    "CriterionAgreement",
    "CriterionCalibration",
    "CriterionChange",
    "CriterionDisagreements",
    "Direction",
    "Disagreement",
    "Estimate",
    "GateResult",
    "JudgeOnPanel",
    "JudgmentToLabel",
    "LabelsError",
    "OrderedAgreement",
    "PanelCriterion",
    "PanelReport",
    "PanelWeights",
    "Reliability",
    "RunComparison",
    "ScoreAgreement",
    "SelectivePoint",
    "SequentialGate",
    "VerdictAgreement",
    "WordingProposal",
    "agreement",
    "align",
    "calibrate",
    "calibrate_rate",
    "certify",
    "choose_for_labels",
    "compare_runs",
    "fewest_to_pass",
    "find_disagreements",
    "gate",
    "judge_metric",
    "panel_report",
    "plan_labels",
    "propose_wording",
    "read_labels",
    "reliability",
    "suggest_weights",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
