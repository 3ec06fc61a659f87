"""How far a judge can be trusted: agreement with people, corrected scores, comparisons of runs, and release gates.

- `choosing` draws what people should read, `reading` reads their labels (`label_lines`, `labelled_rows`), and
  `matching` finds the judgments that these are about.
- `alignment` aligns a judge with labels (`optimizers`, `student`, `label_metric`), split by `label_sets` and `splits`;
  `keeping` decides by `paired_accuracy` whether the result is kept, and `attempts` counts what was tried.
- `measure` compares the judge with people (`criterion_agreement`, `tables`, `kappa`, `ranks`, `weighting`),
  `calibration` corrects its figures (`correction`, `scores`), `comparison` compares two runs, `gates` decide on a
  release, and `planning` says how many labels are needed. `intervals` has the estimates that all of them return.

All intervals are closed forms: the same data always give the same figures, and nothing draws random numbers, except
what people should read. A figure that is undefined is None, never 0.

To add a measure of agreement, write its formula in `kappa`, `ranks` or `tables`, with its source, and add a field to
`CriterionAgreement`. To add an optimizer by name, add it to `OPTIMIZERS` in `optimizers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names
from rubric_integrations.agreement.calibration import Calibration, CriterionCalibration, calibrate, calibrate_rate
from rubric_integrations.agreement.choosing import JudgmentToLabel, choose_for_labels
from rubric_integrations.agreement.comparison import CriterionChange, RunComparison, compare_runs
from rubric_integrations.agreement.criterion_agreement import CriterionAgreement
from rubric_integrations.agreement.gates import GateResult, SequentialGate, fewest_to_pass, gate
from rubric_integrations.agreement.label_lines import LabelsError
from rubric_integrations.agreement.matching import ChosenLabelsError
from rubric_integrations.agreement.measure import Agreement, ScoreAgreement, agreement
from rubric_integrations.agreement.planning import plan_labels
from rubric_integrations.agreement.ranks import OrderedAgreement
from rubric_integrations.agreement.reading import read_labels
from rubric_integrations.agreement.tables import VerdictAgreement
from rubric_integrations.results.estimate import Estimate

if TYPE_CHECKING:
    from rubric_integrations.agreement.alignment import align
    from rubric_integrations.agreement.alignment_calls import AlignmentError
    from rubric_integrations.agreement.alignment_result import Alignment
    from rubric_integrations.agreement.attempts import AttemptsError
    from rubric_integrations.agreement.label_metric import judge_metric

# These import DSPy.
_MODULES = {
    "Alignment": "alignment_result",
    "AlignmentError": "alignment_calls",
    "AttemptsError": "attempts",
    "align": "alignment",
    "judge_metric": "label_metric",
}

__all__ = [
    "Agreement",
    "Alignment",
    "AlignmentError",
    "AttemptsError",
    "Calibration",
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
    "align",
    "calibrate",
    "calibrate_rate",
    "choose_for_labels",
    "compare_runs",
    "fewest_to_pass",
    "gate",
    "judge_metric",
    "plan_labels",
    "read_labels",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
