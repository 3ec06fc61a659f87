"""The commands of `rubric-integrations`, in the order in which `--help` lists them."""

from __future__ import annotations

from collections.abc import Callable

from rubric_integrations.cli.agree import agree
from rubric_integrations.cli.align import align
from rubric_integrations.cli.calibrate import calibrate
from rubric_integrations.cli.certify import certify
from rubric_integrations.cli.collect import collect
from rubric_integrations.cli.compare import compare
from rubric_integrations.cli.convert import convert
from rubric_integrations.cli.doctor import doctor
from rubric_integrations.cli.grade import grade
from rubric_integrations.cli.label import label
from rubric_integrations.cli.migrate import migrate
from rubric_integrations.cli.plan import plan
from rubric_integrations.cli.probe import probe
from rubric_integrations.cli.report import report
from rubric_integrations.cli.rescore import rescore
from rubric_integrations.cli.schema import schema
from rubric_integrations.cli.serve import serve
from rubric_integrations.cli.submit import submit
from rubric_integrations.cli.validate import validate

COMMANDS: dict[str, Callable[..., None]] = {
    "grade": grade,
    "submit": submit,
    "collect": collect,
    "serve": serve,
    "rescore": rescore,
    "report": report,
    "label": label,
    "agree": agree,
    "calibrate": calibrate,
    "certify": certify,
    "compare": compare,
    "align": align,
    "plan": plan,
    "probe": probe,
    "validate": validate,
    "convert": convert,
    "migrate": migrate,
    "schema": schema,
    "doctor": doctor,
}
