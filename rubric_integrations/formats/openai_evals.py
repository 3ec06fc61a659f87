"""Graders of OpenAI's evals and fine-tuning jobs: the JSON of an eval (`testing_criteria`), or of a single grader.

The criteria of an eval are independent, and each must pass. Therefore, they have the weight 1 and are required. A
`multi` grader is read if its `calculate_output` is a weighted sum of its graders. These graders are read:

- `string_check`: a check with the same result.
- `label_model`: a criterion with the labels as options. A passing label has the value 1, and any other label 0.
- `score_model`: a criterion on the scale `range`. Its `pass_threshold` is the smallest value that passes.

`python` is code, and is never run. OpenAI does not publish the functions behind `text_similarity`. Both are listed in
`left_out` of an eval, and refused in a `multi`, whose score would be another one without them.

The requirement consists of the words of the prompt. In the prompt, `{{ sample.output_text }}` is the response. An
`{{ item.x }}` is the query or the reference if its name is in `_QUERIES` or `_REFERENCES`, or if a `string_check`
compares the response with it. Other templates are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rubric_integrations.formats.assertion_checks import check_of
from rubric_integrations.formats.items import Reading, error_of, make_rubric, may_be_meant, read_criterion
from rubric_integrations.formats.parsing import short, unknown_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

Role = Literal["response", "query", "reference"]

_QUERIES = (
    "query", "question", "input", "prompt", "request", "task", "instruction", "instructions", "user_input",
    "user_query", "user_message",
)  # fmt: skip
_REFERENCES = (
    "reference", "reference_answer", "reference_output", "answer", "correct_answer", "expected", "expected_answer",
    "expected_output", "expected_response", "ideal", "ground_truth", "target", "gold",
)  # fmt: skip
_WORDS: dict[Role, str] = {"response": "[the response]", "query": "[the query]", "reference": "[the reference]"}
_SAMPLE = "sample.output_text"
_TEMPLATE = re.compile(r"(?<!\{)\{\{([^{}]{0,200})\}\}(?!\})")
_ITEM = re.compile(r"\{\{\s{0,50}(item\.\w{1,100})\s{0,50}\}\}")
_MARKS = ("{{", "}}", "{%", "{#")

# The keys of each type of grader, apart from `type` and `name`.
_KEYS: dict[str, tuple[str, ...]] = {
    "string_check": ("input", "reference", "operation"),
    "text_similarity": ("input", "reference", "evaluation_metric", "pass_threshold"),
    "label_model": ("input", "labels", "passing_labels"),
    "score_model": ("input", "range", "pass_threshold"),
    "python": ("source", "pass_threshold", "image_tag"),
    "multi": ("graders", "calculate_output"),
}
# A document of only one grader has one of these keys.
_OWN_KEYS = {"operation", "evaluation_metric", "labels", "input", "source", "graders", "calculate_output"}
_PARTS = ("input_text", "output_text", "text")
_EVAL = "testing_criteria"


def matches(document: Any) -> bool:
    """Return whether parsed data is an eval, a page of evals (`evals.list`), or a single grader of OpenAI."""
    data = document if isinstance(document, Mapping) else {}
    return _EVAL in data or bool(_evals_of_page(data)) or (_type_of(data) in _KEYS and bool(_OWN_KEYS & set(data)))


def write(_rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Raise `RubricError`, because this format can only be read."""
    raise RubricError("openai_evals", [Fault("", "", "is a format that is only read: write another one")])


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from an eval or a grader.

    Raises:
        RubricError: The document has faults, or no grader that is read. The error lists every fault.
    """
    data: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
    if evals := _evals_of_page(data):
        if len(evals) > 1:
            names = [short(entry.get("name")) for entry in evals[:5]]
            message = f"are {len(evals)} evals ({', '.join(names)}), each a rubric: keep one of them in the file"
            raise error_of(source, "openai_evals", [Fault("data", "", message)])
        [data] = evals
    notes = _Notes()
    reader = _Reader(notes)
    if _EVAL in data:
        criteria = reader.read_eval(data)
    elif _type_of(data) == "multi":
        criteria = reader.read_multi(data)
    else:
        criteria = reader.read_grader(data, "", _Use("a single grader"))
    fields: dict[str, Any] = {"name": data["name"]} if data.get("name") else {}
    if criteria and not notes.is_open:
        # Only the thresholds of the graders decide whether a response passes.
        fields["pass_mark"] = 0.0
    if notes.left_out and not criteria and not notes.faults:
        notes.faults.append(Fault("", "", f"has no grader that is read: {notes.left_out[0]}"))
    fields |= {"left_out": tuple(notes.left_out)} if notes.left_out else {}
    rubric = make_rubric(criteria, fields, source, "openai_evals", notes.faults)
    return Reading(rubric, notes.left_out + notes.losses, not_graded=notes.left_out)


def _type_of(data: Mapping[str, Any]) -> str:
    kind: Any = data.get("type")
    return kind if isinstance(kind, str) else ""


def _evals_of_page(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the evals of a page that `evals.list` returned. The list is empty for other data."""
    entries: Any = data.get("data")
    evals: list[Any] = list(entries) if isinstance(entries, list | tuple) else []
    return evals if all(isinstance(entry, Mapping) and _EVAL in entry for entry in evals) else []


@dataclass
class _Notes:
    """The faults and the losses of a document.

    Attributes:
        faults: The reasons to refuse the document.
        losses: One message for each part that is left out or changed.
        left_out: One message for each grader that is not read, although its result counts.
        is_open: Whether a pass depends on more than the thresholds of the graders.
        items: By role, the name of the template that stands for it.
    """

    faults: list[Fault] = field(default_factory=list[Fault])
    losses: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])
    is_open: bool = False
    items: dict[Role, str] = field(default_factory=dict[Role, str])


class _Use(NamedTuple):
    """The use of a grader.

    Attributes:
        kind: Where the grader is.
        weight: The weight of its criterion.
        formula: The `calculate_output` of the `multi` around it. None outside of a `multi`.
    """

    kind: Literal["an eval", "a single grader", "a multi"]
    weight: float = 1.0
    formula: str | None = None


class _Reader:
    """Reads the graders of one document, whose templates must agree about the query and the reference."""

    def __init__(self, notes: _Notes):
        self._notes = notes

    def read_eval(self, data: Mapping[str, Any]) -> list[Criterion]:
        """Return the criteria of an eval."""
        graders: Any = data[_EVAL]
        others = sorted(map(str, set(data) - {_EVAL, "name", "object"}))
        self._notes.losses += [f"`{key}` beside the graders is left out" for key in others if data[key] is not None]
        if not isinstance(graders, list | tuple) or not graders:
            self._notes.faults.append(Fault("", _EVAL, f"must be a list of graders, got {short(graders)}"))
            return []
        self._claim_references(graders)
        criteria: list[Criterion] = []
        for index, grader in enumerate(graders):
            criteria += self.read_grader(grader, f"{_EVAL}[{index}]", _Use("an eval"))
        return criteria

    def read_multi(self, data: Mapping[str, Any]) -> list[Criterion]:
        """Return the criteria of a `multi` grader, with their weights in its formula."""
        graders: Any = data.get("graders")
        formula: Any = data.get("calculate_output")
        self._refuse_unknown_keys(data, "multi", "")
        self._notes.is_open = True
        if not isinstance(graders, Mapping) or not graders:
            message = f"must be graders by key, got {short(graders)}: the formula refers to their keys"
            self._notes.faults.append(Fault("", "graders", message))
            return []
        try:
            weights = linear_weights(formula, [str(key) for key in graders])
        except ValueError as error:
            message = (
                f"{error}, in {formula!r}: only a weighted sum of the graders, such as `0.7 * a + 0.3 * b`, is read"
            )
            self._notes.faults.append(Fault("", "calculate_output", message))
            return []
        total = math.fsum(weights.values())
        if abs(total - 1) > 1e-9:
            self._notes.losses.append(
                f"`calculate_output`: its weights sum to {total:g}, and our score is its number divided by this sum"
            )
        self._claim_references([grader for key, grader in graders.items() if str(key) in weights])
        criteria: list[Criterion] = []
        for key, grader in graders.items():
            if (weight := weights.get(str(key))) is None:
                self._notes.losses.append(f"`{key}` is not in `calculate_output`, and is left out")
            elif isinstance(grader, Mapping):
                use = _Use("a multi", weight, str(formula))
                criteria += self.read_grader({**grader, "name": str(key)}, f"graders.{key}", use)
            else:
                self._notes.faults.append(Fault("graders", str(key), f"must be a grader, got {short(grader)}"))
        return criteria

    def _claim_references(self, graders: Sequence[Any]) -> None:
        """Record the template with which a `string_check` compares the response as the reference.

        It is the reference in all prompts, also in those before the `string_check`.
        """
        for grader in graders:
            data: Mapping[str, Any] = grader if isinstance(grader, Mapping) else {}
            if _type_of(data) == "string_check" and (name := _item_in(data.get("reference"))):
                self._notes.items.setdefault("reference", name)

    def read_grader(self, grader: Any, where: str, use: _Use) -> list[Criterion]:
        """Return a list with the criterion of a grader. It is empty if the grader has faults or is left out."""
        if not isinstance(grader, Mapping):
            self._notes.faults.append(Fault(where, "", f"must be a grader such as a label_model, got {short(grader)}"))
            return []
        kind = _type_of(grader)
        if kind not in _KEYS or kind == "multi":
            message = "is a `multi` inside another grader" if kind == "multi" else f"is {short(grader.get('type'))}"
            known = ", ".join(name for name in _KEYS if name != "multi")
            self._notes.faults.append(Fault(where, "type", f"{message}: use one of {known}"))
            return []
        self._refuse_unknown_keys(grader, kind, where)
        if kind in ("python", "text_similarity"):
            self._leave_out(grader, kind, where, use)
            return []
        count = len(self._notes.faults)
        fields = {
            "string_check": self._string_check,
            "label_model": self._label_model,
            "score_model": self._score_model,
        }[kind](grader, where, use)
        if fields is None or len(self._notes.faults) > count:
            return []
        gate = {"required": True} if use.kind == "an eval" and kind != "score_model" else {}
        self._notes.is_open |= kind != "score_model" and use.kind != "an eval"
        name = {"name": grader["name"]} if grader.get("name") else {}
        return read_criterion({**name, "weight": use.weight, **fields, **gate}, where, self._notes.faults)

    def _refuse_unknown_keys(self, grader: Mapping[str, Any], kind: str, where: str) -> None:
        known = ["type", "name", *_KEYS[kind]]
        for key in sorted(str(key) for key, value in grader.items() if key not in known and value is not None):
            if key not in ("model", "sampling_params") and may_be_meant(key, known):
                self._notes.faults.append(unknown_key(where, key, known))
            else:
                self._notes.losses.append(f"`{grader.get('name') or where or kind}`: `{key}` has no place in a rubric")

    def _leave_out(self, grader: Mapping[str, Any], kind: str, where: str, use: _Use) -> None:
        """Record a grader that is not read. In a `multi`, it is a fault, because the score would be another one."""
        reason = "`python` is code, which is not run"
        if kind == "text_similarity":
            metric = short(grader.get("evaluation_metric"))
            reason = f"`text_similarity` with {metric} is not read, because OpenAI does not publish its function"
        if use.formula is None:
            self._notes.left_out.append(f"`{grader.get('name') or where or kind}`: {reason}")
            return
        message = f"{reason}, and weighs {use.weight:g} in {use.formula!r}: replace it by a grader that is read"
        self._notes.faults.append(Fault(where, "type", message))

    def _string_check(self, grader: Mapping[str, Any], where: str, _use: _Use) -> dict[str, Any] | None:
        """Return the fields of the criterion of a `string_check`."""
        texts = {key: grader.get(key) for key in ("input", "reference")}
        operation: Any = grader.get("operation")
        faults = self._notes.faults
        faults += [
            Fault(where, key, f"must be a text, got {short(text)}")
            for key, text in texts.items()
            if not isinstance(text, str)
        ]
        if operation not in ("eq", "ne", "like", "ilike"):
            faults.append(Fault(where, "operation", f"is {short(operation)}: use eq, ne, like or ilike"))
        if not all(isinstance(text, str) for text in texts.values()) or operation not in ("eq", "ne", "like", "ilike"):
            return None
        if operation in ("eq", "ne") and self._is_response(texts["reference"]):
            texts = {"input": texts["reference"], "reference": texts["input"]}
        if not self._is_response(texts["input"]):
            message = f"is {short(texts['input'])}: only the response, {{{{ {_SAMPLE} }}}}, can be compared"
            faults.append(Fault(where, "input", message))
            return None
        return self._comparison(str(operation), str(texts["reference"]), where)

    def _comparison(self, operation: str, reference: str, where: str) -> dict[str, Any] | None:
        """Return the fields of a criterion that compares the response with a text, or with the row's reference."""
        words = {"eq": "equals", "ne": "differs from"}.get(operation, "contains")
        end = ", in upper or lower case" if operation == "ilike" else ""
        if name := _item_in(reference):
            if self._claim("reference", name, where, "reference"):
                mode = {"eq": "equals", "ne": "differs"}.get(operation, "contains")
                check = {"reference": mode, **({"ignore_case": True} if operation == "ilike" else {})}
                return {"requirement": f"The response {words} the reference{end}", "check": check}
            return None
        if not reference or any(mark in reference for mark in _MARKS):
            message = f"is {short(reference)}: only a fixed text, or one {{{{ item.answer }}}}, is read"
            self._notes.faults.append(Fault(where, "reference", message))
            return None
        if operation in ("eq", "ne"):
            check: Any = check_of("equals", reference, is_negated=operation == "ne", trims=False, reads_numbers=False)
        else:
            check = {"contains": reference, **({"ignore_case": True} if operation == "ilike" else {})}
        return {"requirement": f"The response {words} {short(reference)}{end}", "check": check}

    def _is_response(self, text: Any) -> bool:
        match = _TEMPLATE.fullmatch(text) if isinstance(text, str) else None
        return match is not None and _role_of(match[1].strip()) == "response"

    def _label_model(self, grader: Mapping[str, Any], where: str, _use: _Use) -> dict[str, Any] | None:
        """Return the fields of the criterion of a `label_model`."""
        labels, passing = _texts(grader.get("labels")), _texts(grader.get("passing_labels"))
        faults = self._notes.faults
        if len({label.strip().casefold() for label in labels}) < max(2, len(labels)):
            message = f"must be texts that differ in more than their case, got {short(grader.get('labels'))}"
            faults.append(Fault(where, "labels", message))
        if not passing or not set(passing) <= set(labels):
            message = f"must be some of the labels {short(labels)}, got {short(grader.get('passing_labels'))}"
            faults.append(Fault(where, "passing_labels", message))
        prompt = self._prompt(grader, where)
        return prompt and {
            **prompt,
            "options": [{"label": label, "value": float(label in passing)} for label in labels],
            "scale_type": "nominal",
        }

    def _score_model(self, grader: Mapping[str, Any], where: str, use: _Use) -> dict[str, Any] | None:
        """Return the fields of the criterion of a `score_model`."""
        span: Any = [0, 1] if grader.get("range") is None else grader["range"]
        ends = [float(end) for end in span if _is_number(end)] if isinstance(span, list | tuple) else []
        if len(ends) != 2 or len(span) != 2 or not ends[0] < ends[1]:
            self._notes.faults.append(Fault(where, "range", f"must be two numbers, low and high, got {short(span)}"))
            return None
        low, high = ends
        if use.formula is not None and (low, high) != (0.0, 1.0):
            message = (
                f"is from {low:g} to {high:g}, and its number is part of {use.formula!r}: only 0 to 1 is read there, "
                "because our formula has shares from 0 to 1"
            )
            self._notes.faults.append(Fault(where, "range", message))
        prompt = self._prompt(grader, where)
        fields = prompt and {**prompt, "scale": {"min": low, "max": high}}
        threshold: Any = grader.get("pass_threshold")
        name = grader.get("name") or where or "score_model"
        if threshold is None or use.formula is not None:
            self._notes.is_open = True
            if threshold is not None:
                self._notes.losses.append(f"`{name}`: `pass_threshold` has no effect in a `multi`, and is left out")
            elif use.formula is None:
                self._notes.losses.append(f"`{name}`: has no `pass_threshold`, and is not required for a pass")
        elif not _is_number(threshold) or threshold > high:
            message = f"must be a number of at most {high:g}, the end of the range, got {short(threshold)}"
            self._notes.faults.append(Fault(where, "pass_threshold", message))
        elif fields is not None and threshold > low:
            fields["min_score"] = (threshold - low) / (high - low)
        return fields

    def _prompt(self, grader: Mapping[str, Any], where: str) -> dict[str, Any] | None:
        """Return the requirement of a grader and the evidence that it needs. None if its messages have faults."""
        messages: Any = grader.get("input")
        faults = self._notes.faults
        if not isinstance(messages, list | tuple) or not messages:
            faults.append(Fault(where, "input", f"must be a list of messages, got {short(messages)}"))
            return None
        count = len(faults)
        texts: list[str] = []
        roles: dict[str, Role] = {}
        for index, message in enumerate(messages):
            place = f"{where + '.' if where else ''}input[{index}]"
            text = self._message_text(message, place)
            self._find_templates(text, place, roles)
            filled = _TEMPLATE.sub(lambda match: _WORDS.get(roles.get(match[1].strip(), "response"), match[0]), text)
            # A message of nothing but the response is where a judge sees the response anyway.
            if not self._is_response(text.strip()):
                texts.append(filled.strip())
        if len(faults) > count:
            return None
        if "response" not in roles.values():
            message = f"has no {{{{ {_SAMPLE} }}}}: the judge would be asked about something else"
            faults.append(Fault(where, "input", message))
            return None
        changed = [f"`{{{{ {name} }}}}` becomes {_WORDS[role]!r}" for name, role in roles.items()]
        self._notes.losses.append(f"`{grader.get('name') or where or 'grader'}`: in the prompt, {', '.join(changed)}")
        needs = tuple(role for role in ("query", "reference") if role in roles.values())
        return {"requirement": "\n\n".join(filter(None, texts)), **({"needs": needs} if needs else {})}

    def _message_text(self, message: Any, place: str) -> str:
        """Return the text of a message. It must be an instruction, and not an answer of the grader's model."""
        content: Any = message.get("content") if isinstance(message, Mapping) else None
        parts: Sequence[Any] = content if isinstance(content, list | tuple) else [content]
        contents = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") in _PARTS else part for part in parts
        ]
        texts = [text for text in contents if isinstance(text, str)]
        if len(texts) < len(parts) or not texts:
            problem = f"must be texts, got {short(content)}: images, audio and files are not read"
            self._notes.faults.append(Fault(place, "content", problem))
            return ""
        text = "\n".join(texts)
        if message.get("role") == "assistant" and not self._is_response(text.strip()):
            problem = "is 'assistant', an answer of the grader's model: write it into the prompt as an example"
            self._notes.faults.append(Fault(place, "role", problem))
        return text

    def _find_templates(self, text: str, place: str, roles: dict[str, Role]) -> None:
        """Add the role of each template of a text to `roles`, and a fault for each template without a role."""
        for name in dict.fromkeys(match[1].strip() for match in _TEMPLATE.finditer(text)):
            role = self._role_in_document(name)
            if role is None:
                known = ", ".join((*_QUERIES, *_REFERENCES))
                message = (
                    f"has the template {{{{ {name} }}}}: only {{{{ {_SAMPLE} }}}}, {{{{ item.response }}}}, and for "
                    f"the query or the reference {{{{ item.x }}}} are read, where x is one of {known}: rename it"
                )
                self._notes.faults.append(Fault(place, "content", message))
            elif self._claim(role, name, place, "content"):
                roles[name] = role
        if any(mark in _TEMPLATE.sub("", text) for mark in _MARKS):
            message = "has braces of a template that are not read: only {{ item.x }} and {{ sample.output_text }} are"
            self._notes.faults.append(Fault(place, "content", message))

    def _role_in_document(self, name: str) -> Role | None:
        """Return the role of a template, which an earlier grader may have compared with the response."""
        return "reference" if self._notes.items.get("reference") == name else _role_of(name)

    def _claim(self, role: Role, name: str, where: str, key: str) -> bool:
        """Record the template for a role. If another template already has the role, add a fault and return False."""
        other = self._notes.items.setdefault(role, name)
        if other != name:
            message = f"has {{{{ {name} }}}} and {{{{ {other} }}}}, and a row has one {role}: use one of them in a file"
            self._notes.faults.append(Fault(where, key, message))
        return other == name


def _role_of(name: str) -> Role | None:
    if name in (_SAMPLE, "item.response"):
        return "response"
    space, _, key = name.partition(".")
    if space == "item" and key in _QUERIES:
        return "query"
    return "reference" if space == "item" and key in _REFERENCES else None


def _item_in(text: Any) -> str:
    """Return the name in a text that consists of one template, such as `item.answer`. Empty for any other text."""
    match = _ITEM.fullmatch(text) if isinstance(text, str) else None
    return match[1] if match else ""


def _texts(value: Any) -> list[str]:
    """Return a list of texts. It is empty if the value is another one."""
    entries: Sequence[Any] = value if isinstance(value, list | tuple) else ()
    return list(entries) if all(isinstance(entry, str) and entry.strip() for entry in entries) else []


def _is_number(value: Any) -> bool:
    # Larger integers cannot be converted to a float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX


_MAX = 1e300
_MAX_FORMULA = 1_000
_MAX_NESTING = 30
_FUNCTIONS = frozenset({"min", "max", "abs", "floor", "ceil", "exp", "sqrt", "log"})
_TOKEN = re.compile(r"\s*(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[A-Za-z_]\w*|[-+*/^(),])", re.ASCII)

_Sum = dict[str, float]
"""A linear expression: the factor of each key, and under the empty key a constant."""


def linear_weights(formula: Any, keys: Sequence[str]) -> dict[str, float]:
    """Return the factor of each key in a formula that is a weighted sum of keys.

    The formula is parsed, and never evaluated as code. Numbers, keys, brackets and the four operators are read.

    Args:
        formula: The formula, such as `0.7 * help + 0.3 * queue` or `(help + queue) / 2`.
        keys: The known keys.

    Raises:
        ValueError: The formula is not such a sum, or a factor is not above 0. The message is its predicate.

    Example:
        >>> linear_weights("(2 * help + queue) / 4", ["help", "queue"])
        {'help': 0.5, 'queue': 0.25}
    """
    if not isinstance(formula, str) or not formula.strip():
        raise ValueError("is no formula")
    if len(formula) > _MAX_FORMULA:
        raise ValueError(f"has more than {_MAX_FORMULA:,} characters")
    parser = _Formula(formula, keys)
    weights = parser.parse()
    constant = weights.pop("", 0.0)
    if not weights:
        raise ValueError("names no grader")
    if constant:
        raise ValueError(f"adds the constant {constant:g}")
    for key, weight in weights.items():
        if not math.isfinite(weight) or weight > 1e9:
            raise ValueError(f"has a number that is too large for {key!r}")
        if weight <= 0:
            raise ValueError(f"has the factor {weight:g} for {key!r}, and not one above 0")
    return weights


class _Formula:
    """A parser of linear expressions by recursive descent."""

    def __init__(self, text: str, keys: Sequence[str]):
        self._keys = frozenset(keys)
        self._tokens = self._split(text.rstrip())
        self._place = 0

    def parse(self) -> _Sum:
        """Return the sum that the complete formula stands for."""
        result = self._sum(0)
        if self._place < len(self._tokens):
            raise ValueError(f"has {self._tokens[self._place]!r} where an operator or the end is expected")
        return result

    def _split(self, text: str) -> list[str]:
        tokens: list[str] = []
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(f"has {text[place:].strip()[:1]!r}, which is not read")
            tokens.append(match[0].strip())
            place = match.end()
        return tokens

    def _take(self, *accepted: str) -> str:
        """Return the next token and go on, if it is accepted. Otherwise, return an empty text."""
        if self._place < len(self._tokens) and self._tokens[self._place] in accepted:
            self._place += 1
            return self._tokens[self._place - 1]
        return ""

    def _sum(self, depth: int) -> _Sum:
        result = self._product(depth)
        while sign := self._take("+", "-"):
            other = self._product(depth)
            factor = 1.0 if sign == "+" else -1.0
            result = {key: result.get(key, 0.0) + factor * other.get(key, 0.0) for key in {**result, **other}}
        return result

    def _product(self, depth: int) -> _Sum:
        """Read factors and divisors. At most one of the factors has keys, and no divisor has any."""
        result = self._value(depth)
        while sign := self._take("*", "/", "^"):
            other = self._value(depth)
            if sign == "^":
                raise ValueError("has a power")
            if sign == "/":
                if _named(other):
                    raise ValueError("divides by a grader")
                divisor = other.get("", 0.0)
                if not divisor:
                    raise ValueError("divides by 0")
                result = {key: value / divisor for key, value in result.items()}
            elif _named(result) and _named(other):
                raise ValueError("multiplies graders")
            else:
                terms, number = (result, other) if _named(result) else (other, result)
                result = {key: value * number.get("", 0.0) for key, value in terms.items()}
        return result

    def _value(self, depth: int) -> _Sum:
        """Read a number, a key or an expression in brackets, after any signs."""
        if depth > _MAX_NESTING:
            raise ValueError(f"nests deeper than {_MAX_NESTING} levels")
        factor = 1.0
        while sign := self._take("+", "-"):
            factor = -factor if sign == "-" else factor
        if self._take("("):
            inner = self._sum(depth + 1)
            if not self._take(")"):
                raise ValueError("has a bracket that is not closed")
            return {key: factor * value for key, value in inner.items()}
        token = self._tokens[self._place] if self._place < len(self._tokens) else ""
        self._place += 1
        if token[:1].isdigit() or token[:1] == ".":
            return {"": factor * float(token)}
        if token in self._keys:
            return {token: factor}
        if token in _FUNCTIONS:
            raise ValueError(f"calls {token}()")
        if not token:
            raise ValueError("ends where a value is expected")
        if not token[0].isalpha() and token[0] != "_":
            raise ValueError(f"has {token!r} where a value is expected")
        raise ValueError(f"names {token!r}, which is no grader")


def _named(terms: _Sum) -> bool:
    return any(terms)
