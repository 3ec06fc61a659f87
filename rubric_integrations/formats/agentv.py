"""AgentV's format: rubric items in an evaluator, in an eval case, or in the assertions of a test.

The module also reads the cases of eval files of AgentV, promptfoo and others, each with its input and its rubric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

from pydantic import ValidationError

from rubric_integrations.formats import adk, agent_skills, checklist, datasets, prometheus
from rubric_integrations.formats.items import Reading, rubric_losses
from rubric_integrations.formats.parsing import faults_from_error, short
from rubric_integrations.formats.promptfoo import (
    NOTHING_READ,
    Suite,
    has_shared,
    read_only_test,
    read_test,
    suite_of,
    warn_of_losses,
)
from rubric_integrations.formats.refused import refuse_known
from rubric_integrations.formats.rubric_items import as_text, read_items
from rubric_integrations.formats.suite_files import load_with_tests
from rubric_integrations.rubric.answers import Scale, band_of
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

_RUBRIC_TYPES = {"rubric", "rubrics", "llm_judge", "llm-judge", "llm-grader", "llm_grader"}


def matches(document: Any) -> bool:
    """Return whether parsed data looks like AgentV's rubrics rather than native rubrics."""
    suite = suite_of(document)
    if suite is not None:
        return suite.dialect == "agentv"
    if isinstance(document, Mapping):
        keys = set(document)
        return bool(keys & {"rubrics", "evalcases", "execution", "evaluators"})
    if isinstance(document, Sequence) and not isinstance(document, str | bytes) and document:
        return all(isinstance(item, str) for item in document) or any(
            isinstance(item, Mapping)
            and "requirement" not in item
            and ({"expected_outcome", "outcome"} & set(item) or {"operator", "criteria"} <= set(item))
            for item in document
        )
    return False


def parse(document: Any, source: str) -> Reading:
    """Make one rubric from an AgentV document.

    The rubric has the items that all cases share. If the document has only one case, the rubric also has the items of
    that case.

    Raises:
        RubricError: The document has faults, or several cases have their own rubrics. The error lists every fault.
    """
    suite = suite_of(document)
    if suite is not None:
        return read_only_test(suite._replace(dialect="agentv"), source)
    faults: list[Fault] = []
    criteria = shared_criteria(document, faults)
    cases = eval_cases(document)
    if any(case.get("rubrics") for case in cases):
        if len(cases) > 1:
            message = "differ from case to case: read the file with `load_eval_cases`, which returns a rubric for each"
            faults.append(Fault("evalcases", "rubrics", message))
        else:
            criteria += read_items(cases[0]["rubrics"], "evalcases[0].rubrics", faults)
    return Reading(make_rubric(criteria, document, source, faults), [])


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as an AgentV document, with one message for each part that the format cannot express."""
    messages = rubric_losses(rubric, kept=("name",))
    items = [_item(key, criterion, messages) for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)]
    name = {"name": rubric.name} if rubric.name else {}
    return {**name, "rubrics": items}, messages


def shared_criteria(document: Any, faults: list[Fault]) -> list[Criterion]:
    """Read the criteria that apply to every case, from the document itself and from its evaluators.

    Args:
        document: The document, as parsed.
        faults: The list to which faults are appended.
    """
    if not isinstance(document, Mapping):
        return read_items(document, "rubrics", faults)
    criteria = read_items(document["rubrics"], "rubrics", faults) if "rubrics" in document else []
    execution: Any = document.get("execution")
    holder: Any = execution if isinstance(execution, Mapping) else document
    evaluators: Any = holder.get("evaluators") or []
    if not isinstance(evaluators, Sequence) or isinstance(evaluators, str):
        faults.append(Fault("execution", "evaluators", f"must be a list, got {short(evaluators)}"))
        return criteria
    for index, evaluator in enumerate(evaluators):
        where = f"execution.evaluators[{index}]"
        if not isinstance(evaluator, Mapping):
            faults.append(Fault(where, "", f"must be an evaluator, got {short(evaluator)}"))
            continue
        kind = evaluator.get("type")
        if str(kind) not in _RUBRIC_TYPES:
            faults.append(Fault(where, "type", f"is {short(kind)}: only evaluators of type rubric can be read"))
        elif "rubrics" in evaluator:
            criteria += read_items(evaluator["rubrics"], f"{where}.rubrics", faults)
    return criteria


def eval_cases(document: Any) -> list[Mapping[str, Any]]:
    """Return the parsed cases of an eval file. The list is empty for other documents."""
    cases: Any = document.get("evalcases") if isinstance(document, Mapping) else None
    if not isinstance(cases, Sequence) or isinstance(cases, str):
        return []
    return [case for case in cases if isinstance(case, Mapping)]


def make_rubric(criteria: list[Criterion], document: Any, source: str, faults: list[Fault]) -> Rubric:
    """Make a rubric from the criteria of a document, with the document's name.

    Raises:
        RubricError: `faults` is not empty, or the criteria do not form a valid rubric.
    """
    name: Any = document.get("name") if isinstance(document, Mapping) else None
    if not faults:
        try:
            return Rubric.model_validate({"criteria": criteria, **({"name": name} if isinstance(name, str) else {})})
        except ValidationError as error:
            faults = faults_from_error("", Rubric, error)
    raise RubricError(source, faults)


def _item(key: str, criterion: Criterion, losses: list[str]) -> dict[str, Any]:
    """Convert a criterion to an item of AgentV. Append what the format cannot express to `losses`."""
    item: dict[str, Any] = {"id": key, "expected_outcome": criterion.full_requirement, "weight": criterion.full_weight}
    if criterion.name is None:
        losses.append(f"`{key}`: the criterion gets this id, because the format requires one")
    if criterion.required:
        item["required"] = True
    if criterion.min_score:
        item["min_score"] = criterion.min_score
    elif criterion.min_score is not None:
        item["required"] = True
        losses.append(f"`{key}`: `min_score` 0 becomes `required`, which means the same: AgentV's start above 0")
    if criterion.is_penalty:
        losses.append(f"`{key}`: AgentV has no penalties and reads a negative weight differently")
    optional = ("tags", "importance", "metadata", "per", "context", "needs", "operator", "judge", "sensitive_to")
    notes = [field for field in optional if getattr(criterion, field)]
    losses += [f"`{key}`: `{field}` has no place in the format" for field in notes]
    losses.extend(
        f"`{key}`: `{field}` has no place in the format; the criterion becomes MET or UNMET"
        for field in ("check", "options", "applies_when", "aggregation", "aspects", "examples")
        if getattr(criterion, field) not in (None, ())
    )
    if criterion.scale is not None:
        levels = {band_of(level): text for level, text in criterion.scale.levels.items()}
        if _is_agentv_scale(criterion.scale) and any(band.low < band.high for band in levels):
            item["score_ranges"] = [
                {"score_range": [int(low), int(high)], "expected_outcome": text} for (low, high), text in levels.items()
            ]
        elif _is_agentv_scale(criterion.scale):
            item["score_ranges"] = {int(band.low): text for band, text in levels.items()}
        else:
            losses.append(f"`{key}`: the format has one scale, whole numbers from 0 to 10 with a text at 0")
    return item


def _is_agentv_scale(scale: Scale) -> bool:
    is_zero_to_ten = (scale.min, scale.max, scale.integer) == (0.0, 10.0, True)
    bands = [band_of(level) for level in scale.levels]
    if not is_zero_to_ten or any(end != int(end) for band in bands for end in band):
        return False
    if all(band.low == band.high for band in bands):
        return 0 in scale.levels
    return all(scale.text_at(number) is not None for number in range(11))


class EvalCase(NamedTuple):
    """One case of an eval file, with its rubric.

    Attributes:
        id: The id of the case, or its number from 1 if the file has no id.
        input: The input of the program under evaluation. Several messages become lines of `role: content`.
        expected_outcome: The author's description of a good response. Empty if the file has none.
        rubric: The criteria of the file and of the case. If there are none, the expected outcome is the only criterion.
        losses: One message for each part of the case that is left out of the rubric or changed.
    """

    id: str
    input: str
    expected_outcome: str
    rubric: Rubric
    losses: tuple[str, ...] = ()

    def as_langsmith(self) -> dict[str, Any]:
        """Return this case as a LangSmith example, for `client.create_examples(dataset_id=..., examples=[...])`.

        The metadata contains the rubric as a dictionary for `Rubric.from_dict`.
        """
        return {
            "inputs": {"input": self.input},
            "outputs": {"expected_outcome": self.expected_outcome},
            "metadata": {"id": self.id, "rubric": self.rubric.to_dict()},
        }


def has_cases(document: Any) -> bool:
    """Return whether parsed data is a file of cases, each with its own rubric, for `load_eval_cases`."""
    suite = suite_of(document)
    if suite is not None:
        return bool(suite.tests or suite.not_read)
    return bool(
        eval_cases(document)
        or prometheus.rows_of(document)
        or checklist.rows_of(document)
        or agent_skills.rows_of(document)
        or datasets.dataset_of(document)
        or adk.matches(document)
    )


def load_eval_cases(path: str | PathLike[str], *, strict: bool = False) -> Iterator[EvalCase]:
    """Yield the cases of a file of AgentV, promptfoo, Agent Skills, BiGGen-Bench, InfoBench or tau2, with rubrics.

    Also the rows of HealthBench, HealthBench Professional and gdpval, and the metrics or invocations of ADK.

    Some assertions cannot be read, for example because they need code of the file. A warning and `Rubric.left_out` list
    them, and a grade of the case is then `partial` and never `passed`. A case without any readable assertion is skipped
    with a warning.

    Args:
        path: The file, YAML, JSON or JSON Lines.
        strict: Whether to refuse a file if a part of it cannot be read.

    Raises:
        RubricError: The file cannot be read or has no cases, or one of its rubrics has faults.

    Example:
        >>> from tempfile import NamedTemporaryFile
        >>> with NamedTemporaryFile("w", suffix=".yaml") as file:
        ...     _ = file.write("evalcases: [{id: hello, input: Hi!, rubrics: [Greets back]}]")
        ...     file.flush()
        ...     [case] = load_eval_cases(file.name)
        >>> case.id, case.rubric.criteria[0].requirement
        ('hello', 'Greets back')
    """
    document, source = load_with_tests(path)
    suite = suite_of(document)
    if suite is not None:
        yield from _cases_of_suite(suite, source, strict=strict)
        return
    if rows := prometheus.rows_of(document):
        for case_id, row in rows:
            reference = as_text(row.get("reference_answer"))
            reading = prometheus.parse(row, f"{source}, case {case_id}")
            yield EvalCase(case_id, as_text(row.get("input")), reference, reading.rubric, tuple(reading.losses))
        return
    if checklist.rows_of(document):
        yield from _cases_of_checklists(document, source, strict=strict)
        return
    if agent_skills.matches(document):
        yield from _cases_of_skill(document, source, strict=strict)
        return
    if (dataset := datasets.dataset_of(document)) is not None:
        for case_id, row in datasets.rows_of(document, dataset):
            reading = dataset.parse(row, f"{source}, case {case_id}")
            yield EvalCase(case_id, datasets.input_of(row), "", reading.rubric, tuple(reading.losses))
        return
    if adk.matches(document):
        yield from _cases_of_adk(document, source, strict=strict)
        return
    cases = eval_cases(document)
    if not cases:
        raise _without_cases(document, source)
    faults: list[Fault] = []
    shared = shared_criteria(document, faults)
    if faults:
        raise RubricError(source, faults)
    for index, case in enumerate(cases):
        own = read_items(case.get("rubrics") or [], f"evalcases[{index}].rubrics", faults)
        expected = as_text(case.get("expected_outcome") or case.get("outcome"))
        if not shared and not own and expected:
            own = [Criterion(requirement=expected, weight=1.0, name="expected_outcome")]
        case_id = as_text(case.get("id")) or str(index + 1)
        rubric = make_rubric(shared + own, document, f"{source}, case {case_id}", faults)
        yield EvalCase(case_id, _input_text(case.get("input")), expected, rubric)


def _without_cases(document: Any, source: str) -> RubricError:
    """Return the error for a file without cases. For a file of another format, it names the format."""
    from rubric_integrations.formats.registry import FORMATS, detect

    refuse_known(document, source)
    name = detect(document)
    if name == "agentv" or (isinstance(document, Mapping) and name == "native"):
        return RubricError(source, [Fault("", "evalcases", "is missing or empty: there is no case to load")])
    FORMATS[name].parse(document, source)
    message = f"has one rubric, in the format {name}, and no cases: read it with `Rubric.from_file`"
    return RubricError(source, [Fault("", "", message)])


def _cases_of_adk(document: Any, source: str, *, strict: bool) -> Iterator[EvalCase]:
    for part in adk.parts_of(document, source):
        name = f"{source}, case {part.id}"
        rubric, losses, not_graded = adk.read_part(document, part, name)
        if strict and rubric.left_out:
            raise RubricError(name, [Fault("", "", text) for text in rubric.left_out])
        warn_of_losses(not_graded, name)
        yield EvalCase(part.id, part.input, part.expected, rubric, tuple(losses))


def _cases_of_checklists(document: Any, source: str, *, strict: bool) -> Iterator[EvalCase]:
    rows = checklist.rows_of(document)
    empty = [case_id for case_id, row in rows if not checklist.has_texts(row)]
    if empty and (strict or len(empty) == len(rows)):
        raise RubricError(source, [Fault(f"case {empty[0]}", "", "has nothing to judge, such as `nl_assertions`")])
    warn_of_losses([f"case {case_id} has nothing to judge, and is left out" for case_id in empty], source)
    for case_id, row in rows:
        if case_id in empty:
            continue
        name = f"{source}, case {case_id}"
        rubric, losses, _ = checklist.parse(row, name)
        if strict and rubric.left_out:
            raise RubricError(name, [Fault("", "", text) for text in rubric.left_out])
        yield EvalCase(case_id, checklist.input_of(row), "", rubric, tuple(losses))


def _cases_of_skill(document: Any, source: str, *, strict: bool) -> Iterator[EvalCase]:
    rows = agent_skills.rows_of(document)
    empty = [row_id for row_id, row in rows if not agent_skills.has_texts(row)]
    first = empty[0] if empty and (strict or len(empty) == len(rows)) else None
    warn_of_losses([f"eval {row_id} has no `assertions`, and is left out" for row_id in empty if not first], source)
    for index, (row_id, row) in enumerate(rows):
        if row_id in empty and row_id != first:
            continue
        rubric = agent_skills.parse_row(document, index, f"{source}, eval {row_id}").rubric
        yield EvalCase(row_id, as_text(row.get("prompt")), as_text(row.get("expected_output")), rubric)
    if not rows:
        raise RubricError(source, [Fault("", "evals", "is empty: there is no case to load")])


def _cases_of_suite(suite: Suite, source: str, *, strict: bool) -> Iterator[EvalCase]:
    """Yield a case for each test of a promptfoo suite."""
    if not suite.tests or (strict and suite.not_read):
        missing = Fault("", "tests", "is missing or empty: there is no case to load")
        raise RubricError(source, [Fault("", "", text) for text in suite.not_read] or [missing])
    warn_of_losses(suite.not_read, source)
    is_shared = has_shared(suite)
    is_empty = True
    for index, test in enumerate(suite.tests):
        losses: list[str] = []
        expected = as_text(test.get("criteria") or test.get("expected_outcome"))
        case_id = as_text(test.get("id") or test.get("description")) or str(index + 1)
        name = f"{source}, case {case_id}"
        if expected and not is_shared and not suite.has_own(index):
            criterion = Criterion(requirement=expected, weight=1.0, name="expected_outcome")
            rubric = make_rubric([criterion], suite.document, name, [])
        else:
            try:
                rubric, losses, _ = read_test(suite, index, name)
            except RubricError as error:
                is_last_of_none = is_empty and index == len(suite.tests) - 1
                if strict or is_last_of_none or not error.faults[0].message.startswith(NOTHING_READ):
                    raise
                warn_of_losses([f"the case {NOTHING_READ}, and is left out"], name)
                continue
            if strict and rubric.left_out:
                raise RubricError(name, [Fault("", "", text) for text in rubric.left_out])
            warn_of_losses(losses, name)
        is_empty = False
        variables: Any = test.get("vars")
        values = variables if isinstance(variables, Mapping) else {}
        request = test.get("input") or values.get("input") or next(iter(values.values()), None)
        yield EvalCase(case_id, _input_text(request), expected, rubric, tuple(losses))


def _input_text(value: Any) -> str:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return as_text(value)
    messages = [m for m in value if isinstance(m, Mapping)]
    if len(messages) == 1:
        return as_text(messages[0].get("content"))
    return "\n".join(f"{message.get('role', 'user')}: {as_text(message.get('content'))}" for message in messages)
