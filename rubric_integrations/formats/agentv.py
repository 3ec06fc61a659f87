"""AgentV's rubrics: items in an evaluator, in an eval case, or both, each read as a criterion.

A string is a binary criterion; `expected_outcome` (or `outcome`, or `criteria`) is the requirement, `id` the name,
`weight` 1 and `required` false by default. `score_ranges` make a scale of 0 to 10, read as v = x / 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from rubric_integrations.formats.faults import faults_from_error, short, unknown_key
from rubric_integrations.formats.parsing import load
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.errors import Fault, RubricError
from rubric_integrations.rubric.rubric import Rubric

_OUTCOMES = ("expected_outcome", "outcome", "criteria")
_ITEM_KEYS = {"id", *_OUTCOMES, "weight", "required", "min_score", "score_ranges"}
_RUBRIC_TYPES = {"rubric", "rubrics", "llm_judge", "llm-judge", "llm-grader", "llm_grader"}


class EvalCase(NamedTuple):
    """One case of an eval file, with the rubric that is its own.

    Attributes:
        id: The case's id.
        input: What the program is given; several messages as `role: content` lines.
        expected_outcome: What the author expects, in words; empty where not said.
        rubric: The file's rubric and the case's own; where there is neither, the expected outcome alone.
    """

    id: str
    input: str
    expected_outcome: str
    rubric: Rubric

    def as_langsmith(self) -> dict[str, Any]:
        """This case as LangSmith takes examples: `client.create_examples(dataset_id=..., examples=[...])`.

        The rubric is in the metadata, where `Rubric.from_dict` reads it back.
        """
        return {
            "inputs": {"input": self.input},
            "outputs": {"expected_outcome": self.expected_outcome},
            "metadata": {"id": self.id, "rubric": self.rubric.to_dict()},
        }


def is_agentv(document: Any) -> bool:
    """Whether parsed data is shaped like AgentV's rubrics rather than the native ones."""
    if isinstance(document, Mapping):
        keys = set(cast("Mapping[str, Any]", document))
        return bool(keys & {"rubrics", "evalcases", "execution", "evaluators"})
    if isinstance(document, Sequence) and not isinstance(document, str | bytes) and document:
        items = cast("Sequence[Any]", document)
        return all(isinstance(item, str) for item in items) or any(
            isinstance(item, Mapping) and "requirement" not in item and {"expected_outcome", "outcome"} & set(item)
            for item in items
        )
    return False


def read(document: Any, source: str) -> Rubric:
    """Make one rubric of an AgentV document: its shared one, or that of its only case.

    Raises:
        RubricError: With every fault found; or the file has several cases with rubrics of their own.
    """
    faults: list[Fault] = []
    shared = _shared(document, faults)
    cases = _cases(document)
    own = [case for case in cases if case.get("rubrics")]
    if own and len(cases) > 1:
        faults.append(
            Fault(
                "evalcases", "rubrics", "differ from case to case: read the file with `load_eval_cases`, a rubric each"
            )
        )
    items = shared + (_items(own[0]["rubrics"], "evalcases[0].rubrics", faults) if len(cases) == 1 and own else [])
    return _rubric(items, document, source, faults)


def load_eval_cases(path: str | Path) -> Iterator[EvalCase]:
    """Yield the cases of an eval file, each with the rubric that grades it.

    Raises:
        RubricError: The file cannot be read, or one of its rubrics is broken.

    Example:
        >>> from tempfile import NamedTemporaryFile
        >>> with NamedTemporaryFile("w", suffix=".yaml") as file:
        ...     _ = file.write("evalcases: [{id: hello, input: Hi!, rubrics: [Greets back]}]")
        ...     file.flush()
        ...     [case] = load_eval_cases(file.name)
        >>> case.id, case.rubric.criteria[0].requirement
        ('hello', 'Greets back')
    """
    document, source = load(path)
    faults: list[Fault] = []
    shared = _shared(document, faults)
    cases = _cases(document)
    if not cases:
        faults.append(Fault("", "evalcases", "is missing or empty: there is no case to load"))
    if faults:
        raise RubricError(source, faults)
    for index, case in enumerate(cases):
        where = f"evalcases[{index}]"
        own = _items(case.get("rubrics") or [], f"{where}.rubrics", faults)
        expected = _text(case.get("expected_outcome") or case.get("outcome"))
        if not shared and not own and expected:
            own = [Criterion(requirement=expected, weight=1.0, name="expected_outcome")]
        case_id = _text(case.get("id")) or str(index + 1)
        rubric = _rubric(shared + own, document, f"{source}, case {case_id}", faults)
        yield EvalCase(case_id, _input(case.get("input")), expected, rubric)


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """A rubric as an AgentV document, and what of it the format cannot hold."""
    losses = [
        f"`{field}` has no place in the format"
        for field in sorted(rubric.model_fields_set - {"criteria", "name", "tree"})
        if getattr(rubric, field) not in (None, (), {})
    ]
    if rubric.tree is not None:
        losses.append("the tree is flattened into its leaves, with the weights that are theirs of the whole")
    rubrics = [_item(key, criterion, losses) for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)]
    named = {"name": rubric.name} if rubric.name else {}
    return {**named, "rubrics": rubrics}, losses


def _item(key: str, criterion: Criterion, losses: list[str]) -> dict[str, Any]:
    item: dict[str, Any] = {"id": key, "expected_outcome": criterion.requirement, "weight": criterion.weight}
    if criterion.name is None:
        losses.append(f"`{key}`: the criterion gets this id, since the format wants one")
    if criterion.required:
        item["required"] = True
    if criterion.min_score:
        item["min_score"] = criterion.min_score
    elif criterion.min_score is not None:
        item["required"] = True
        losses.append(f"`{key}`: `min_score` 0 becomes `required`, which says the same: AgentV's begin above 0")
    if criterion.is_penalty:
        losses.append(f"`{key}`: AgentV reads a negative weight otherwise: it has no penalties")
    losses.extend(
        f"`{key}`: `{field}` has no place in the format; the criterion becomes MET or UNMET"
        for field in ("check", "options", "aggregation", "aspects", "examples")
        if getattr(criterion, field) not in (None, ())
    )
    if criterion.scale is not None:
        scale = criterion.scale
        levels = {int(level): text for level, text in scale.levels.items() if level == int(level)}
        if (
            (scale.min, scale.max, scale.integer) == (0.0, 10.0, True)
            and 0 in levels
            and len(levels) == len(scale.levels)
        ):
            item["score_ranges"] = levels
        else:
            losses.append(f"`{key}`: the format has one scale, whole numbers from 0 to 10 with a text at 0")
    return item


def _shared(document: Any, faults: list[Fault]) -> list[Criterion]:
    """The criteria that hold for every case."""
    if not isinstance(document, Mapping):
        return _items(document, "rubrics", faults)
    data = cast("Mapping[str, Any]", document)
    found = _items(data["rubrics"], "rubrics", faults) if "rubrics" in data else []
    execution: Any = data.get("execution")
    holder: Any = execution if isinstance(execution, Mapping) else data
    evaluators: Any = holder.get("evaluators") or []
    if not isinstance(evaluators, Sequence) or isinstance(evaluators, str):
        faults.append(Fault("execution", "evaluators", f"must be a list, got {short(evaluators)}"))
        return found
    for index, evaluator in enumerate(cast("Sequence[Any]", evaluators)):
        where = f"execution.evaluators[{index}]"
        if not isinstance(evaluator, Mapping):
            faults.append(Fault(where, "", f"must be an evaluator, got {short(evaluator)}"))
            continue
        settings = cast("Mapping[str, Any]", evaluator)
        if str(settings.get("type")) not in _RUBRIC_TYPES:
            kind = settings.get("type")
            faults.append(Fault(where, "type", f"is {short(kind)}: only evaluators of type rubric can be read"))
        elif "rubrics" in settings:
            found += _items(settings["rubrics"], f"{where}.rubrics", faults)
    return found


def _cases(document: Any) -> list[Mapping[str, Any]]:
    cases: Any = cast("Any", document).get("evalcases") if isinstance(document, Mapping) else None
    if not isinstance(cases, Sequence) or isinstance(cases, str):
        return []
    return [cast("Mapping[str, Any]", case) for case in cast("Sequence[Any]", cases) if isinstance(case, Mapping)]


def _rubric(criteria: list[Criterion], document: Any, source: str, faults: list[Fault]) -> Rubric:
    name: Any = cast("Any", document).get("name") if isinstance(document, Mapping) else None
    if not faults:
        try:
            return Rubric(criteria, **({"name": name} if isinstance(name, str) else {}))
        except ValidationError as error:
            faults = [*faults, *faults_from_error("", Rubric, error)]
    raise RubricError(source, faults)


def _items(items: Any, where: str, faults: list[Fault]) -> list[Criterion]:
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        faults.append(Fault(where, "", f"must be a list of rubric items, got {short(items)}"))
        return []
    criteria: list[Criterion] = []
    for index, item in enumerate(cast("Sequence[Any]", items)):
        place = f"{where}[{index}]"
        fields = _fields(item, index, place, faults)
        if fields is not None:
            try:
                criteria.append(Criterion.model_validate(fields))
            except ValidationError as error:
                faults += faults_from_error(place, Criterion, error)
    return criteria


def _fields(item: Any, index: int, where: str, faults: list[Fault]) -> dict[str, Any] | None:
    """A rubric item in the native words; None where it has faults that those could not tell."""
    if isinstance(item, str):
        return {"name": f"rubric-{index + 1}", "requirement": item, "weight": 1.0}
    if not isinstance(item, Mapping):
        faults.append(
            Fault(where, "", f"must be a text or an object with `id` and `expected_outcome`, got {short(item)}")
        )
        return None
    data = {str(key): value for key, value in cast("Mapping[object, Any]", item).items()}
    known = len(faults)
    if "required_min_score" in data:
        faults.append(
            Fault(where, "required_min_score", "was removed from AgentV: use `min_score` in (0, 1], tenths of it")
        )
    faults += [unknown_key(where, key, _ITEM_KEYS) for key in sorted(data.keys() - _ITEM_KEYS - {"required_min_score"})]
    outcomes = {key: data[key] for key in _OUTCOMES if data.get(key)}
    if len(set(map(str, outcomes.values()))) != 1:
        said = f"is said {len(outcomes)} times: keep one" if outcomes else "is missing: say what to look for"
        faults.append(Fault(where, "expected_outcome", said))
    if (least := data.get("min_score")) is not None and not (_is_number(least) and 0 < least <= 1):
        faults.append(Fault(where, "min_score", f"must be in (0, 1], got {short(least)}"))
    levels = _levels(data["score_ranges"], where, faults) if "score_ranges" in data else None
    if len(faults) > known:
        return None
    fields: dict[str, Any] = {
        "name": data.get("id", f"rubric-{index + 1}"),
        "requirement": next(iter(outcomes.values())),
        "weight": data.get("weight", 1.0),
    }
    fields |= {key: data[key] for key in ("required", "min_score") if data.get(key) is not None}
    if levels is not None:
        fields["scale"] = {"min": 0.0, "max": 10.0, "integer": True, "levels": levels}
    return fields


def _levels(ranges: Any, where: str, faults: list[Fault]) -> dict[int, str]:
    """The lower bound of each score range with its text; the ranges must cover 0 to 10 without a gap or an overlap."""
    bounds: list[tuple[int, int, str]] = []
    if isinstance(ranges, Mapping):
        try:
            starts = sorted((int(str(key)), _text(text)) for key, text in cast("Mapping[Any, Any]", ranges).items())
        except ValueError:
            starts = []
        ends = [start for start, _ in starts[1:]]
        bounds = [(start, end - 1, text) for (start, text), end in zip(starts, [*ends, 11], strict=False)]
    elif isinstance(ranges, Sequence) and not isinstance(ranges, str):
        for entry in cast("Sequence[Any]", ranges):
            data: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
            pair: Any = data.get("score_range")
            if not (isinstance(pair, Sequence) and len(cast("Sequence[Any]", pair)) == 2 and all(map(_is_whole, pair))):
                bounds = []
                break
            bounds.append((int(pair[0]), int(pair[1]), _text(next((data[k] for k in _OUTCOMES if data.get(k)), None))))
    covered = [score for low, high, _ in sorted(bounds) for score in range(low, high + 1)]
    if covered != list(range(11)) or not all(text.strip() for *_, text in bounds):
        message = (
            "must give every whole score from 0 to 10 one text: a map of lower bounds that starts at 0, or a list of "
        )
        faults.append(Fault(where, "score_ranges", message + "{score_range: [low, high], expected_outcome: ...}"))
    return {low: text for low, _, text in bounds}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _input(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        messages = [cast("Mapping[str, Any]", m) for m in cast("Sequence[Any]", value) if isinstance(m, Mapping)]
        if len(messages) == 1:
            return _text(messages[0].get("content"))
        return "\n".join(f"{message.get('role', 'user')}: {_text(message.get('content'))}" for message in messages)
    return _text(value)
