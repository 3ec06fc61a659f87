"""What a judge returns or raises, without the secrets that it quotes: a server may repeat a key in any reply."""

from __future__ import annotations

import copy
from typing import Any, TypeVar, cast

from rubric_integrations.judges.credentials import is_credential, redactor
from rubric_integrations.judges.models import settings_of
from rubric_integrations.judges.protocol import BatchResult, OverallResult
from rubric_integrations.results.judgment import JudgeFailure, Judgment

Result = TypeVar("Result")


class Redactor:
    """Replaces the secrets of one judge, and those of the environment, in whatever it returns or raises.

    Args:
        judge: The judge. Its secrets are the settings of its model; of a judge without a model, the attributes that are
            credentials by name. They are collected once.
    """

    def __init__(self, judge: object):
        lm: Any = getattr(judge, "lm", None)
        named = {name: value for name, value in getattr(judge, "__dict__", {}).items() if is_credential(name)}
        self._redact = redactor(settings_of(lm) if hasattr(lm, "kwargs") else named)

    def result(self, result: Result) -> Result:
        """Replace secrets in the reasons and faults of a judgment, a batch or an overall score."""
        redacted: object = result
        if isinstance(result, Judgment):
            reason = self._redact(result.reason)
            redacted = result if reason == result.reason else result.model_copy(update={"reason": reason})
        elif isinstance(result, BatchResult):
            answers = {number: self.result(answer) for number, answer in result.answers.items()}
            faults = {number: self._redact(fault) for number, fault in result.faults.items()}
            redacted = result._replace(answers=answers, faults=faults)
        elif isinstance(result, OverallResult):
            redacted = result._replace(reason=self._redact(result.reason))
        return cast("Result", redacted)

    def failure(self, failure: JudgeFailure) -> JudgeFailure:
        """Return a failure as it is, or a copy without the secrets in its message, and without the cause with them."""
        message = self._redact(failure.message)
        if message == failure.message:
            return failure
        redacted = copy.copy(failure)
        redacted.message, redacted.args = message, (f"{failure.kind}: {message}",)
        redacted.__cause__ = None
        return redacted
