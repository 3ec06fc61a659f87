"""How far a judge can be trusted: agreement with people, corrected scores, comparisons of runs, and release gates.

- `choosing` draws what people should read, `reading` reads their labels (`label_lines`, `labelled_rows`), and
  `matching` finds the judgments that these are about.
- `measure` compares the judge with people (`criterion_agreement`, `kappa`, `ranks`, `weighting`), `calibration`
  corrects its figures (`correction`, `scores`), `comparison` compares two runs, `gates` decide on a release, and
  `planning` says how many labels are needed. `certification` says from which confidence on a cheap judge may be
  trusted (`cheap_answers`, `fixed_sequence`). `intervals` has the estimates that all of them return.

All intervals are closed forms: the same data always give the same figures, and nothing draws random numbers, except
what people should read. A figure that is undefined is None, never 0.

To add a measure of agreement, write its formula in `kappa` or `ranks`, with its source, and add a field to
`CriterionAgreement`.
"""

from rubric_integrations.agreement.calibration import Calibration, CriterionCalibration, calibrate, calibrate_rate
from rubric_integrations.agreement.certification import Certificate, certify
from rubric_integrations.agreement.choosing import JudgmentToLabel, choose_for_labels
from rubric_integrations.agreement.comparison import CriterionChange, RunComparison, compare_runs
from rubric_integrations.agreement.criterion_agreement import CriterionAgreement, VerdictAgreement
from rubric_integrations.agreement.fixed_sequence import CertificateStep
from rubric_integrations.agreement.gates import GateResult, SequentialGate, fewest_to_pass, gate
from rubric_integrations.agreement.label_lines import LabelsError
from rubric_integrations.agreement.matching import ChosenLabelsError
from rubric_integrations.agreement.measure import Agreement, ScoreAgreement, agreement
from rubric_integrations.agreement.planning import plan_labels
from rubric_integrations.agreement.ranks import OrderedAgreement
from rubric_integrations.agreement.reading import read_labels
from rubric_integrations.results.estimate import Estimate

__all__ = [
    "Agreement",
    "Calibration",
    "Certificate",
    "CertificateStep",
    "ChosenLabelsError",
    "CriterionAgreement",
    "CriterionCalibration",
    "CriterionChange",
    "Estimate",
    "GateResult",
    "JudgmentToLabel",
    "LabelsError",
    "OrderedAgreement",
    "RunComparison",
    "ScoreAgreement",
    "SequentialGate",
    "VerdictAgreement",
    "agreement",
    "calibrate",
    "calibrate_rate",
    "certify",
    "choose_for_labels",
    "compare_runs",
    "fewest_to_pass",
    "gate",
    "plan_labels",
    "read_labels",
]
