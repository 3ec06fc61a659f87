"""The judge that asks a language model: a DSPy module that can be saved, loaded and compiled."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import dspy
from dspy.utils.exceptions import AdapterParseError, DSPyError, LMProviderError, is_retryable_lm_error

from rubric_integrations.judges.adapter import JudgeAdapter, looks_quotable
from rubric_integrations.judges.base import Question
from rubric_integrations.judges.shield import Fenced, fence, fence_code
from rubric_integrations.judges.signatures import JudgeCriterion
from rubric_integrations.verdict import VERDICT_VALUES, JudgeFailure, Judgment, Spend, TokenUsage


class LMJudge(dspy.Module):
    """Asks one language model one criterion at a time.

    It runs on its own LM and adapter and leaves no trace, so that inside `dspy.Evaluate` or an optimizer it neither
    falls back on the student's model nor writes into the student's demonstrations. Called as a DSPy module, with the
    fields of its signature, it can be optimized like any other.

    Attributes:
        lm: The language model that judges.
        predict: The DSPy predictor; its instructions and demonstrations are what `save` keeps.

    Example:
        >>> LMJudge(dspy.LM("openai/gpt-5-mini")).lm.model
        'openai/gpt-5-mini'
    """

    def __init__(self, lm: dspy.BaseLM, system_prompt: str | None = None):
        """Make a judge.

        Args:
            lm: The language model.
            system_prompt: Instructions in place of the built-in ones. The layout of the inputs and the form of
                the reply are added to them.
        """
        super().__init__()
        signature = JudgeCriterion.with_instructions(system_prompt) if system_prompt else JudgeCriterion
        self.lm = lm
        self.predict = dspy.Predict(signature)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Judge one criterion given as the signature's fields; for DSPy's optimizers."""
        with dspy.context(adapter=_adapter(inputs)):
            return self.predict(lm=self.lm, **inputs)

    async def aforward(self, **inputs: Any) -> dspy.Prediction:
        """`forward`, asynchronously."""
        with dspy.context(adapter=_adapter(inputs)):
            return await self.predict.acall(lm=self.lm, **inputs)

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion about one submission.

        Raises:
            JudgeFailure: The model gave no reply, or one that is no answer.
        """
        inputs, neutralized = _inputs(question)
        absent = tuple(name for name, text in inputs.items() if not text)
        entries: list[dict[str, Any]] = []
        # The copy sends what DSPy would append to its histories to us: tokens and cost, without the memory.
        lm = self.lm.copy(num_retries=0, update_history=entries.append)
        context = dspy.context(
            adapter=_adapter(inputs), trace=None, disable_history=False, track_usage=False, usage_tracker=None,
            send_stream=None,
        )  # fmt: skip
        try:
            with context:
                prediction = await self.predict.acall(
                    lm=lm,
                    signature=_without(cast("Any", self.predict.signature), absent),
                    **{name: text for name, text in inputs.items() if text},
                )
        except DSPyError as error:
            raise _failure(error, _spend(entries, self.lm)) from error
        except (ValueError, TypeError, ImportError) as error:
            raise JudgeFailure("config", _first_line(error), spend=_spend(entries, self.lm)) from error
        return Judgment(
            verdict=prediction.verdict,
            value=VERDICT_VALUES[prediction.verdict],
            reason=prediction.explanation,
            spend=_spend(entries, self.lm),
            neutralized=neutralized,
        )


def _inputs(question: Question) -> tuple[dict[str, str], bool]:
    """The signature's inputs in order, every text fenced; and whether fencing had to defuse anything."""
    submission, criterion = question.submission, question.criterion
    code = fence_code(question.guidelines, submission.query, submission.reference, submission.response)
    texts = {
        "guidelines": question.guidelines,
        "query": submission.query or "",
        "reference": submission.reference or "",
        "submission": submission.response,
        "criterion": criterion.requirement,
    }
    fenced = {name: fence(text, code) for name, text in texts.items() if text}
    if submission.thinking:
        thinking, output = fence(submission.thinking, f"{code} thinking"), fence(submission.response, f"{code} output")
        text, neutralized = f"{thinking.text}\n{output.text}", thinking.neutralized or output.neutralized
        fenced["submission"] = Fenced(text, neutralized)
    inputs = {name: fenced[name].text if name in fenced else "" for name in texts}
    inputs["kind"] = "penalty" if criterion.is_penalty else "requirement"
    inputs["criterion"] = inputs.pop("criterion")
    return inputs, any(text.neutralized for text in fenced.values())


def _adapter(inputs: dict[str, Any]) -> JudgeAdapter:
    return JudgeAdapter(quotable=looks_quotable(*(str(text) for text in inputs.values())))


@lru_cache(maxsize=256)
def _without(signature: type[dspy.Signature], absent: tuple[str, ...]) -> type[dspy.Signature]:
    for name in absent:
        signature = signature.delete(name)
    return signature


def _spend(entries: list[dict[str, Any]], lm: dspy.BaseLM) -> Spend:
    total = Spend(calls=0 if entries else 1)
    for entry in entries:
        usage: dict[str, Any] = entry["usage"] or {}
        if not usage and lm.cache:
            continue  # answered by DSPy's own cache, at no cost
        details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
        tokens = TokenUsage(
            prompt_tokens=usage.get("prompt_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
            cached_tokens=details.get("cached_tokens") or 0,
        )
        total += Spend(calls=1, usage=tokens, cost=entry["cost"])
    return total


def _failure(error: DSPyError, spend: Spend) -> JudgeFailure:
    if isinstance(error, AdapterParseError):
        return JudgeFailure("parse", _first_line(error), retryable=True, spend=spend)
    if is_retryable_lm_error(error):
        return JudgeFailure("transport", _first_line(error), retryable=True, retry_after=error.retry_after, spend=spend)
    kind = "transport" if type(error) is LMProviderError else "config"
    return JudgeFailure(kind, _first_line(error), spend=spend)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
