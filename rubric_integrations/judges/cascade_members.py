"""Makes the judges of a cascade, and refuses those with which it would escalate everything, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from rubric_integrations.judges.protocol import Judge, Question, fingerprint_of
from rubric_integrations.judges.wrappers import innermost

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike


def check_threshold(escalate_below: object) -> float:
    """Check that a threshold is a confidence, and return it.

    Raises:
        ValueError: It is None, or out of range.
    """
    if escalate_below is None:
        raise ValueError(
            "`escalate_below` is None: a certificate with this threshold certifies nothing, so use the expensive judge "
            "alone, or name a threshold; with 0, every verdict on which the cheap judges agree is kept"
        )
    is_number = isinstance(escalate_below, int | float) and not isinstance(escalate_below, bool)
    if not is_number or not 0 <= float(cast("float", escalate_below)) <= 1:
        raise ValueError(f"`escalate_below` must be a confidence in [0, 1], got {escalate_below!r}")
    return float(cast("float", escalate_below))


def as_cheap_judge(judge: JudgeLike, escalate_below: float) -> Judge:
    """Make a cheap judge of whatever a user passes: one that states its confidence, if there is a threshold.

    Raises:
        ValueError: It would state none.
        TypeError: `judge` is nothing that can judge.
    """
    from rubric_integrations.judges import NAMED_JUDGES, as_judge

    is_named = isinstance(judge, str) and (judge in NAMED_JUDGES or judge.endswith(".json"))
    is_model = not is_named and not isinstance(judge, Judge)
    made = as_judge(judge)
    if escalate_below == 0:
        return made
    if is_model:
        from rubric_integrations.judges.lm_judge import LMJudge

        made = LMJudge(cast("Any", judge), confidence=True)
    if (is_lm_judge(made) and not cast("Any", innermost(made)).confidence) or judge == "offline":
        raise ValueError(
            f"the cheap judge {judge!r} states no confidence, so that `escalate_below={escalate_below!r}` would "
            "escalate every question: use LMJudge(..., confidence=True); or pass two cheap judges, and 0, so that they "
            "must agree"
        )
    _require_choice(made)
    return made


def _require_choice(judge: Judge) -> None:
    if not is_lm_judge(judge):
        return
    from rubric_integrations.judges.prompts.probabilities import Choice

    if Choice is None:
        raise ValueError(
            "the installed DSPy has no `dspy.experimental.Choice`, so that an LMJudge states no confidence and every "
            "question would be escalated: pass two cheap judges and `escalate_below=0`, or install a DSPy that has it"
        )


def is_lm_judge(judge: Judge) -> bool:
    """Whether the innermost judge is an `LMJudge`."""
    # To import the module takes two seconds; before that, nothing is one.
    module: Any = sys.modules.get("rubric_integrations.judges.lm_judge")
    return module is not None and isinstance(innermost(judge), module.LMJudge)


def may_state_confidence(judge: Judge, question: Question) -> bool:
    """Whether a judge may state a confidence for a question; an LMJudge does so for binary criteria alone."""
    return question.criterion.kind == "binary" or not is_lm_judge(judge)


def refuse_equal_answers(cheap: Sequence[Judge], strong: Judge) -> None:
    """Refuse judges whose second answer would say nothing that the first does not.

    Raises:
        ValueError: Two judges always give the same answer.
    """
    fingerprints = [fingerprint_of(judge) for judge in cheap]
    identity = fingerprint_of(strong)
    if any(judge is strong for judge in cheap) or (identity is not None and identity in fingerprints):
        raise ValueError("`cheap` and `strong` are the same judge: an escalation would ask it once more")
    for place, judge in enumerate(cheap):
        is_repeated = fingerprints[place] is not None and fingerprints[place] in fingerprints[:place]
        lm: Any = getattr(innermost(judge), "lm", None)
        if is_repeated and lm is not None and getattr(lm, "kwargs", {}).get("temperature") == 0:
            raise ValueError(
                f"`cheap` has {getattr(lm, 'model', 'a model')!r} twice at temperature 0, so that both answers are "
                "equal and never differ: set one, such as LMJudge(..., temperature=0.7), or name another model"
            )
