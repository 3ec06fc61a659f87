"""Checks and automatic metrics: criteria that are decided in code, without a model and without cost.

`run_check` decides a `Check` on a submission, `run_metric` computes a `Metric`, and `register_metric` makes a function
of yours available to rubric files.

To add a condition to `Check`:

1. Add its field, `None` by default, to `Check` in `rubric_integrations/rubric/check.py`.
2. Write a function `(check, submission) -> str` in a module of this package. It returns the reason why the condition
   does not hold, or an empty string, and raises `JudgeFailure("check", ...)` if it cannot decide. A condition on the
   trajectory gets it from `trajectory_of` or `calls_of` in `trace.py`, which fail if it is missing or incomplete.
3. Add one line to `CHECKS` in `registry.py`. A condition without a function is a failure, never MET.

If the condition may have a value in [0, 1] in place of a verdict, add its name to `MeasureName` and `Check.measure`,
and its function to `MEASURES` in `registry.py`.

To add a type of metric, add its name to `MetricType` in `rubric/check.py`, and a function and one line to `METRICS` in
`metrics.py`.
"""

from rubric_integrations.checks.metrics import register_metric
from rubric_integrations.checks.run import run_check

__all__ = [
    "register_metric",
    "run_check",
]
