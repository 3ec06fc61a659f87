"""Checks and automatic metrics: criteria that code decides, without a model and without cost.

`run_check` decides a `Check` on a submission, `run_metric` computes a `Metric`, and `register_metric` makes your own
function available to rubric files.

To add a condition to `Check`:

1. Add its field, `None` by default, to `Check` in `rubric/check.py`.
2. Write a function `(check, submission) -> str` in a module of this package, decorated with `@decides("<field>")`. It
   returns the reason why the condition is not met, or an empty string. It raises `JudgeFailure("check", ...)` if it
   cannot decide. A condition on the trajectory reads the trajectory with `trajectory_of` or `calls_of` in
   `checks/trajectory.py`, which raise a failure if the trajectory is missing or incomplete. A condition without a
   function is a failure, never MET.

Import a new module below, which registers its functions. If the condition may have a value in [0, 1] instead of a
verdict, add its name to `MeasureName` and `Check.measure`, and a function with `@measures("<field>")`.

To add a type of metric, add its name to `MetricType` in `rubric/check.py`, and a function and one line to `METRICS` in
`checks/metrics.py`.
"""

# Importing these modules registers their conditions.
from rubric_integrations.checks import structure as structure
from rubric_integrations.checks import text as text
from rubric_integrations.checks import trajectory as trajectory
from rubric_integrations.checks.metrics import register_metric
from rubric_integrations.checks.registry import run_check

__all__ = [
    "register_metric",
    "run_check",
]
