"""Model-graded evals of openai/evals: a `prompt` that ends in a choice, with a score for each choice.

The file has one eval, under the name of the eval. It becomes a criterion with the `choice_strings` as options. In
the prompt, `{completion}` is the response, `{input}` the query and `{ideal}` the reference. Prompts with other
variables, and prompts that compare several completions, are refused. In openai/evals, a reply without a choice gets the
lowest score. Here, such a reply is a failure of the judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rubric_integrations.formats.items import Reading, error_of, make_rubric, read_criterion
from rubric_integrations.formats.parsing import short
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

_VARIABLE = re.compile(r"\{\{|\}\}|\{(\w*)\}")
_TEXTS = {"completion": "[the response]", "input": "[the query]", "ideal": "[the reference]", "{{": "{", "}}": "}"}
_EVIDENCE = {"input": "query", "ideal": "reference"}
_READ = frozenset({"prompt", "choice_strings", "choice_scores", "input_outputs"})
# Keys that change the prompt of the judge, and that a criterion cannot express.
_REFUSED = frozenset({"args", "output_template", "completion_sample_templates", "format_type"})


def matches(document: Any) -> bool:
    """Return whether parsed data is an object with evals by name."""
    return bool(_evals(document))


def write(_rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Raise `RubricError`, because this format can only be read."""
    raise RubricError("modelgraded", [Fault("", "", "is a format that is only read: write another one")])


def _evals(document: Any) -> Mapping[str, Mapping[str, Any]]:
    evals = document if isinstance(document, Mapping) else {}
    is_eval = [isinstance(entry, Mapping) and {"prompt", "choice_strings"} <= entry.keys() for entry in evals.values()]
    return evals if is_eval and all(is_eval) else {}


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from the only eval of a file.

    Raises:
        RubricError: The file has faults or several evals. The error lists every fault.
    """
    evals = _evals(document)
    if len(evals) != 1:
        message = f"are {sorted(map(str, evals))}, each a rubric: keep one of them in the file"
        raise error_of(source, "modelgraded", [Fault("evals", "", message)])
    [(name, data)] = evals.items()
    messages = [f"`{name}`: `{key}` is left out" for key in sorted(map(str, set(data) - _READ - _REFUSED))]
    message = "is not read: what the judge is shown would be another text"
    faults = [Fault(str(name), key, message) for key in sorted(_REFUSED & set(data))]
    values = _values(data, str(name), faults)
    if values and not all(0 <= value <= 1 for value in values.values()):
        low, high = min(values.values()), max(values.values())
        values = {label: (value - low) / (high - low) for label, value in values.items()} if high > low else values
        messages.append(f"`{name}`: scores from {low:g} to {high:g} become shares from 0 to 1")
    prompt, needs = _prompt(data, str(name), faults, messages)
    criteria: list[Criterion] = []
    if not faults:
        shares = list(values.values())
        is_ordered = shares == sorted(shares) or shares == sorted(shares, reverse=True)
        fields = {
            "name": name,
            "requirement": prompt,
            "weight": 1.0,
            "options": [{"label": label, "value": value} for label, value in values.items()],
            "scale_type": "ordinal" if is_ordered else "nominal",
            **({"needs": needs} if needs else {}),
        }
        criteria = read_criterion(fields, str(name), faults)
    return Reading(make_rubric(criteria, {"name": name}, source, "modelgraded", faults), messages)


def _values(data: Mapping[str, Any], name: str, faults: list[Fault]) -> dict[str, float]:
    """Return the score of each choice, in the order of the choices."""
    choices: Any = data.get("choice_strings")
    if choices == "from_n":
        faults.append(
            Fault(name, "choice_strings", "is from_n, a comparison of several completions: nothing is graded")
        )
        return {}
    labels: list[Any] = list(choices) if isinstance(choices, str | list | tuple) else []
    are_texts = all(isinstance(label, str) and label for label in labels)
    if len(labels) < 2 or not are_texts or len(set(labels)) < len(labels):
        faults.append(Fault(name, "choice_strings", f"must be different texts, got {short(choices)}"))
        return {}
    scores: Any = data.get("choice_scores")
    if scores == "from_strings":
        scores = {label: float(label) for label in labels if re.fullmatch(r"\d+", label)}
    if scores is None:
        message = f"is missing: add a score for each of {short(labels)}, or nothing says what a choice earns"
        faults.append(Fault(name, "choice_scores", message))
        return {}
    numbers = {
        label: float(score)
        for label, score in (scores.items() if isinstance(scores, Mapping) else ())
        if isinstance(score, int | float) and not isinstance(score, bool) and abs(score) < 1e6
    }
    if numbers.keys() != set(labels):
        message = f"must have one number for each of {short(labels)}, got {short(scores)}"
        faults.append(Fault(name, "choice_scores", message))
        return {}
    return {label: numbers[label] for label in labels}


def _prompt(
    data: Mapping[str, Any], name: str, faults: list[Fault], messages: list[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the prompt with its variables replaced by words, and the evidence that it needs."""
    prompt: Any = data.get("prompt")
    outputs: Any = data.get("input_outputs")
    if outputs is not None and outputs != {"input": "completion"}:
        message = f"is {short(outputs)}: only the completion for `input` is read, and not a comparison of several"
        faults.append(Fault(name, "input_outputs", message))
    if not isinstance(prompt, str):
        faults.append(Fault(name, "prompt", f"must be a text, got {short(prompt)}"))
        return "", ()
    tokens = [match[1] if match[1] is not None else match[0] for match in _VARIABLE.finditer(prompt)]
    unknown = sorted({token for token in tokens if token not in _TEXTS})
    if unknown:
        message = f"has the variables {unknown}, which each sample fills in: write their texts into the prompt"
        faults.append(Fault(name, "prompt", message))
        return "", ()
    if "completion" not in tokens:
        faults.append(Fault(name, "prompt", "has no {completion}: the judge would be asked about something else"))
    changed = [f"`{{{token}}}` becomes {_TEXTS[token]!r}" for token in dict.fromkeys(tokens) if token.isalpha()]
    messages.append(f"`{name}`: in the prompt, {', '.join(changed)}")
    text = _VARIABLE.sub(lambda match: _TEXTS[match[1] if match[1] is not None else match[0]], prompt)
    return text.strip(), tuple(evidence for token, evidence in _EVIDENCE.items() if token in tokens)
