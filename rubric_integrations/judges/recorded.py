"""Reads the replies of judges that were recorded elsewhere, such as the column of a data set.

Live replies are read by `prompts/parse.py`, which accepts only what the prompt requested. A recorded reply was written
for another prompt, and may be a single word, or `{"verdict": 1}`. Nobody requests it again, so that more forms are read
here. Do not read the reply of a live judge in this way: a judge that quotes a label from the text that it grades, and
is cut off, would be taken at that word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.judges.prompts.parse import parse_object, strengths_and_weaknesses
from rubric_integrations.results.interpret import interpret_answer
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.rubric.criterion import Criterion

_ANSWERS = ("verdict", "choice", "score", "answer", "label", "overall_score")
_REASONS = ("explanation", "reason", "reasoning")
_BINARY = {"1": "MET", "0": "UNMET", "true": "MET", "false": "UNMET"}


def read_recorded_reply(criterion: Criterion, reply: str | Mapping[str, Any]) -> Judgment:
    """Make a judgment of a recorded reply.

    Args:
        criterion: The criterion that the reply answers.
        reply: The reply: a verdict, the label of an option or a number alone; or one JSON object, as text or parsed,
            with the answer under `verdict`, `criterion_status`, `criteria_met`, `choice`, `score`, `answer`, `label` or
            `overall_score`. For a binary criterion, 1 and true are MET, 0 and false are UNMET. The reason is taken from
            `explanation`, `reason` or `reasoning`, or from `strengths` and `weaknesses`.

    Raises:
        ValueError: The reply names no answer to the criterion, or two different ones.

    Example:
        >>> read_recorded_reply(Criterion(requirement="Names the dose"), '{"criteria_met": true}').verdict
        'MET'
        >>> read_recorded_reply(Criterion(requirement="Names the dose"), "**Unmet**").value
        0.0
    """
    text = reply if isinstance(reply, str) else json.dumps(reply, default=str)
    if "{" not in text:
        return _judgment(criterion, text.strip(), "")
    fields = parse_object(text, strict=False).fields
    answers = {str(fields[name]): fields[name] for name in _ANSWERS if fields.get(name) is not None}
    if len(answers) != 1:
        names = ", ".join(f"`{name}`" for name in _ANSWERS)
        raise ValueError(f"the reply has {len(answers)} answers: exactly one of {names} must name it: {text[:80]!r}")
    reason = next((fields[name] for name in _REASONS if isinstance(fields.get(name), str)), "")
    return _judgment(criterion, next(iter(answers.values())), reason or strengths_and_weaknesses(fields))


def _judgment(criterion: Criterion, answer: Any, reason: str) -> Judgment:
    """Interpret an answer, first as it stands and then without the punctuation that models put around a word."""
    if isinstance(answer, list | dict) or (isinstance(answer, bool) and criterion.kind != "binary"):
        raise ValueError(f"{cast('Any', answer)!r} is no answer")
    text = str(answer)
    forms = [text, text.strip("*_`\"'. \n")]
    if criterion.kind == "binary":
        forms = [_BINARY.get(form.casefold(), form) for form in forms]
    try:
        verdict, value = interpret_answer(criterion, forms[0])
    except ValueError:
        verdict, value = interpret_answer(criterion, forms[1])
    return Judgment(verdict=verdict, value=value, reason=reason)
