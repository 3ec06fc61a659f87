"""What a judge returns or raises, without the secrets that it quotes: a server may repeat a key in any reply."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from rubric_integrations.judges.credentials import is_credential, redact
from rubric_integrations.judges.models import settings_of
from rubric_integrations.judges.protocol import BatchResult, OverallResult
from rubric_integrations.results.judgment import JudgeFailure, Judgment

Result = TypeVar("Result")


def secrets_of(judge: object) -> Mapping[str, Any]:
    """Return the settings of a judge's model; of a judge without one, the attributes that are credentials by name."""
    lm: Any = getattr(judge, "lm", None)
    if hasattr(lm, "kwargs"):
        return settings_of(lm)
    return {name: value for name, value in getattr(judge, "__dict__", {}).items() if is_credential(name)}


def redact_result(result: Result, secrets: Mapping[str, Any]) -> Result:
    """Replace secrets in the reasons and faults of a judgment, a batch or an overall score."""
    redacted: object = result
    if isinstance(result, Judgment):
        reason = redact(result.reason, secrets)
        redacted = result if reason == result.reason else result.model_copy(update={"reason": reason})
    elif isinstance(result, BatchResult):
        answers = {number: redact_result(answer, secrets) for number, answer in result.answers.items()}
        faults = {number: redact(fault, secrets) for number, fault in result.faults.items()}
        redacted = result._replace(answers=answers, faults=faults)
    elif isinstance(result, OverallResult):
        redacted = result._replace(reason=redact(result.reason, secrets))
    return cast("Result", redacted)


def redact_failure(failure: JudgeFailure, secrets: Mapping[str, Any]) -> JudgeFailure:
    """Return a failure as it is, or a copy without the secrets in its message, and without the cause that has them."""
    message = redact(failure.message, secrets)
    if message == failure.message:
        return failure
    redacted = copy.copy(failure)
    redacted.message, redacted.args = message, (f"{failure.kind}: {message}",)
    redacted.__cause__ = None
    return redacted
