"""Proposes a sharper wording of a criterion that people and the judge read differently."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import dspy

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.notebook import html_table
from rubric_integrations._util.records import EncodableText, Record
from rubric_integrations.agreement.disagreements import CriterionDisagreements, Disagreement
from rubric_integrations.agreement.wording_prompt import ProposeWording, render_cases
from rubric_integrations.graders.limits import CallLimiter
from rubric_integrations.graders.settings import CallLimits
from rubric_integrations.judges.calling import ModelCaller
from rubric_integrations.judges.credentials import redact
from rubric_integrations.judges.models import settings_of, to_lm, without_framework_cache
from rubric_integrations.judges.models.prices import load_prices
from rubric_integrations.judges.prompts.sanitize import neutralize
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.usage import Spend
from rubric_integrations.rubric.criterion import Criterion

if TYPE_CHECKING:
    from rubric_integrations.judges.models import ModelLike

_MAX_CASES = 10
_MAX_RETRIES = 2
_LONGEST = 1_500
# A criterion that names a verdict, or speaks to the judge, would decide its answers in place of the text.
_VERDICTS = re.compile(r"\b(?:MET|UNMET|CANNOT[_ ]ASSESS)\b|\b(?:verdict|un-?met)\b")
_TO_THE_JUDGE = re.compile(
    r"\b(?:judges?|graders?|evaluators?|you)\s+(?:should|must|may|can|will|always|never|are|have)\b"
    r"|\b(?:ignore|disregard)\b.{0,60}\b(?:instructions?|criteri\w+|rubrics?|previous|above)\b"
    r"|\b(?:always|never|automatically)\s+(?:pass|fail|accept|reject|mark|score|grade|rate|answer|give)\b"
    r"|\b(?:mark|rate|answer|count)\s+(?:it|this|them)\s+(?:as|with)\b",
    re.IGNORECASE | re.DOTALL,
)
_MARKUP = re.compile(r"```|^\s{0,3}#{1,6}\s|<\s*/?\s*\w+[^<>]*>|^\s*[{\[]", re.MULTILINE)


class WordingProposal(Record):
    """A proposed wording of a criterion. It changes nothing: read it, edit it, and put it into the rubric.

    Attributes:
        requirement: The proposed requirement.
        rationale: How people and the judge read the criterion, in the model's words.
        before: The requirement as it is.
        criterion: The criterion with the proposed requirement. All else is as before: weight, answers, name.
        cases: The number of disagreements that the model was shown.
        spend: What the proposal cost, failed attempts included.
    """

    requirement: EncodableText
    rationale: EncodableText
    before: str
    criterion: Criterion
    cases: int
    spend: Spend = Spend()

    def summary(self) -> str:
        """Return the old and the new wording, and the rationale, as text."""
        return f"before: {self.before}\nproposed: {self.requirement}\nrationale: {self.rationale}"

    def _repr_html_(self) -> str:
        return html_table("A proposed wording", ["before", "proposed"], [(self.before, self.requirement)])


def propose_wording(
    criterion: Criterion, disagreements: CriterionDisagreements | Sequence[Disagreement], model: ModelLike
) -> WordingProposal:
    """Propose a requirement that says what people take a criterion to mean.

    The model is shown at most ten disagreements. Labels of the old wording do not measure the new one: label some of
    the submissions again. In a run with a ledger, only the criterion with the new wording is judged again.

    Args:
        criterion: The criterion of the rubric.
        disagreements: How people and the judge differ on it, by `find_disagreements`, or some of the disagreements.
        model: A model name, a `dspy.LM`, a LangChain chat model, or an async function of two prompts.

    Raises:
        JudgeFailure: The model did not reply, or not with a wording that can be used.
        ValueError: There is no disagreement, or a check decides the criterion.
        TypeError: `model` is none of the four kinds.
    """
    cases = disagreements.examples if isinstance(disagreements, CriterionDisagreements) else disagreements
    if criterion.check is not None:
        raise ValueError("a check decides this criterion, and no judge reads its wording: change the check")
    if not cases:
        raise ValueError("there is no disagreement from which a wording could be learnt: pass at least one")
    return run_sync(_propose(criterion, cases[:_MAX_CASES], model))


async def _propose(criterion: Criterion, cases: Sequence[Disagreement], model: ModelLike) -> WordingProposal:
    lm = without_framework_cache(to_lm(model))
    await load_prices(lm)
    caller = ModelCaller(False, lm.kwargs.get("temperature") if isinstance(model, str) else None)
    predict, prompt, limits = dspy.Predict(ProposeWording), render_cases(criterion, cases), CallLimits()

    async def attempt() -> WordingProposal:
        try:
            reply = await asyncio.wait_for(caller.call(lm, predict, prompt), limits.timeout)
        except TimeoutError:
            raise JudgeFailure(
                "transport", f"no reply within {limits.timeout:g} seconds", retryable=True, spend=Spend(calls=1)
            ) from None
        requirement, rationale = (
            redact(str(reply.fields[name]), settings_of(lm)).strip() for name in ("requirement", "explanation")
        )
        if problem := _problem(requirement, criterion):
            raise JudgeFailure("parse", f"the proposed wording {problem}", retryable=True, spend=reply.spend)
        return WordingProposal(
            requirement=requirement,
            rationale=rationale,
            before=criterion.requirement,
            criterion=criterion.model_copy(update={"requirement": requirement}),
            cases=len(cases),
            spend=reply.spend,
        )

    proposal, lost = await CallLimiter(_MAX_RETRIES, limits).call(attempt)
    return proposal.model_copy(update={"spend": proposal.spend + lost})


def _problem(requirement: str, criterion: Criterion) -> str | None:
    """Say why a proposed requirement cannot be used; None if it can."""
    before = criterion.requirement
    if not requirement:
        return "is empty"
    if " ".join(requirement.split()).casefold() == " ".join(before.split()).casefold():
        return "is the present one"
    if len(requirement) > max(_LONGEST, 3 * len(before)):
        return f"has {len(requirement):,} characters"
    if neutralize(requirement) != requirement or (_MARKUP.search(requirement) and not _MARKUP.search(before)):
        return "contains markup"
    if _VERDICTS.search(requirement) and not _VERDICTS.search(before):
        return "names a verdict, and would decide the judge's answer"
    if _TO_THE_JUDGE.search(requirement) and not _TO_THE_JUDGE.search(before):
        return "is an instruction to the judge, and not about the judged text"
    return None
