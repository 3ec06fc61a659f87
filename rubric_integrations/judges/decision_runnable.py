"""`RunnableDecisionJudge`, the judge that calls a decision model of LangChain, such as one of your own classes.

LangChain checks only the types of answers. Here, an answer counts only if it passes the checks of `decisions.py`, as if
it came from a server. LangChain is imported when a question is asked. The module imports no DSPy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from hashlib import sha256
from importlib import import_module
from typing import Any, cast

from pydantic import ValidationError

from rubric_integrations.judges.credentials import is_credential, redactor, split_url
from rubric_integrations.judges.decision_judge import DecisionJudge, retry_after_of
from rubric_integrations.judges.decision_mapping import TEMPLATE
from rubric_integrations.judges.decisions import PROTOCOLS, DecisionReply, TypedQuestion
from rubric_integrations.scoring.judgment import UNANSWERED_CALL, JudgeFailure, Spend

# Settings that do not change an answer.
_IRRELEVANT = frozenset({"callbacks", "max_retries", "name", "tags", "metadata", "timeout", "verbose"})


class RunnableDecisionJudge(DecisionJudge):
    """A judge that calls a `BaseDecisionModel` of LangChain.

    The model decides about addresses, keys and retries. Attachments must be text.

    Args:
        runnable: The decision model.
        abstains: As in `DecisionJudge`.
        max_questions: As in `DecisionJudge`.
    """

    def __init__(self, runnable: Any, *, abstains: bool = True, max_questions: int | None = None):
        # Not by the constructor of `DecisionJudge`, because the address and the key are in the model.
        self._runnable = runnable
        self.model, self.protocol, self.abstains, self.max_questions = (
            runnable.model,
            "system-one",
            abstains,
            max_questions,
        )
        self._format, self._url, self._api_key, self._has_warned = PROTOCOLS["system-one"], "", None, False

    def __reduce__(self) -> Any:
        arguments = {"abstains": self.abstains, "max_questions": self.max_questions}
        return partial(type(self), self._runnable, **arguments), ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._kind}, {self.model!r})"

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self.model

    @property
    def runs_user_code(self) -> bool:
        """True, because the model may be a class of the user."""
        return True

    def fingerprint(self) -> str:
        """Return a text that identifies the model's class, name and settings, and the questions of this judge."""
        settings = self._runnable.model_dump(mode="json", exclude={"model"}, fallback=_class_name)
        text = json.dumps(_without_credentials(settings), sort_keys=True)
        digest = sha256(text.encode()).hexdigest()[:16]
        return json.dumps(["decisions", "langchain", self._kind, self.model, digest, self.abstains, TEMPLATE])

    async def decide(
        self, state: Mapping[str, Any], questions: Mapping[str, TypedQuestion], images: Sequence[str] = ()
    ) -> tuple[DecisionReply, Spend]:
        """Ask typed questions about a state in one call, and return the checked reply with its spend.

        Raises:
            JudgeFailure: There is no reply, or no part of it can be used.
        """
        request = {"state": dict(state), "questions": {name: _question(text) for name, text in questions.items()}}
        try:
            response: Any = await self._runnable.ainvoke(request)
        except Exception as error:  # noqa: BLE001 -- each client has its own classes
            raise self._failure_of(error) from None
        try:
            body = json.dumps(response.model_dump(mode="json", warnings=False)).encode()
        except (AttributeError, TypeError, ValueError):
            body = repr(response).encode()  # not JSON, and therefore a failure
        return self.read_reply(body, questions)

    def _failure_of(self, error: Exception) -> JudgeFailure:
        """Return the failure for an error of the model, depending on its type and HTTP status."""
        names = [kind.__name__ for kind in type(error).__mro__]
        message = self._redact(self._about(f"{names[0]}: {str(error).partition(chr(10))[0]}"))
        if "ModelRefusalError" in names:
            # LangChain does not say which question was refused, and drops the other answers.
            return JudgeFailure("parse", message, about_text=True, repeats=0, spend=UNANSWERED_CALL)
        if isinstance(error, ValidationError):
            return JudgeFailure("parse", message, retryable=True, spend=UNANSWERED_CALL)
        response: Any = getattr(error, "response", None)
        status: object = getattr(error, "status_code", None) or getattr(response, "status_code", None)
        if isinstance(status, int) and status not in (401, 403, 404, 405):
            headers: object = getattr(response, "headers", None)
            after = retry_after_of(cast("Mapping[str, str]", headers)) if isinstance(headers, Mapping) else None
            return self._refused(status, f"HTTP {status}: {self._redact(str(error))}", after)
        is_lost = isinstance(error, OSError) or any("timeout" in name.lower() or "Connect" in name for name in names)
        if is_lost and not isinstance(status, int):
            return JudgeFailure("transport", message, retryable=True, spend=UNANSWERED_CALL)
        return JudgeFailure("config", message, spend=UNANSWERED_CALL)

    @property
    def _kind(self) -> str:
        kind: type[Any] = type(self._runnable)
        return f"{kind.__module__}.{kind.__qualname__}"

    @cached_property
    def _redact(self) -> Any:
        fields = {name: getattr(self._runnable, name, None) for name in type(self._runnable).model_fields}
        return redactor({name: _revealed(value) for name, value in fields.items()})


def _question(question: TypedQuestion) -> Any:
    # The stubs of an older version have no such module.
    types: Any = import_module("langchain_core.decisions")
    text = f"Guidelines: {question.guidelines}\n\n{question.text}" if question.guidelines else question.text
    if question.kind == "yes or no":
        return types.Noul(instructions=text)
    if question.kind == "score":
        return types.Score(instructions=text, criteria=[level for level, _ in question.answers])
    return types.Choice(instructions=text, criteria=dict(question.answers))


def _class_name(value: object) -> str:
    return type(value).__name__


def _revealed(value: Any) -> Any:
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value


def _without_credentials(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {
            name: _without_credentials(member)
            for name, member in members.items()
            if name not in _IRRELEVANT and not is_credential(name)
        }
    if isinstance(value, list):
        return [_without_credentials(member) for member in cast("list[Any]", value)]
    return split_url(value) if isinstance(value, str) and "://" in value else value
