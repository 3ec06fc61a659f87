"""Eval files of AgentV and promptfoo: their cases, each with its input and the rubric that grades it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from rubric_integrations.formats.agentv import eval_cases, make_rubric, shared_criteria
from rubric_integrations.formats.agentv_items import as_text, read_items
from rubric_integrations.formats.parsing import load
from rubric_integrations.formats.suites import Suite, has_shared, read_test, suite_of, warn_of_losses
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.errors import Fault, RubricError
from rubric_integrations.rubric.rubric import Rubric


class EvalCase(NamedTuple):
    """One case of an eval file, with its rubric.

    Attributes:
        id: The case's id; its number, from 1, if the file has none.
        input: The input of the program under evaluation; several messages as `role: content` lines.
        expected_outcome: The author's description of a good response; empty if the file has none.
        rubric: The file's criteria and the case's own; without either, the expected outcome as the only criterion.
    """

    id: str
    input: str
    expected_outcome: str
    rubric: Rubric

    def as_langsmith(self) -> dict[str, Any]:
        """Return this case as a LangSmith example, for `client.create_examples(dataset_id=..., examples=[...])`.

        The metadata holds the rubric, from which `Rubric.from_dict` reads it.
        """
        return {
            "inputs": {"input": self.input},
            "outputs": {"expected_outcome": self.expected_outcome},
            "metadata": {"id": self.id, "rubric": self.rubric.to_dict()},
        }


def load_eval_cases(path: str | Path) -> Iterator[EvalCase]:
    """Yield the cases of an eval file of AgentV or promptfoo, each with the rubric that grades it.

    Args:
        path: The file, YAML or JSON.

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
    document, source = load(path)
    suite = suite_of(document)
    if suite is not None:
        yield from _cases_of_suite(suite, source)
        return
    faults: list[Fault] = []
    shared = shared_criteria(document, faults)
    cases = eval_cases(document)
    if not cases:
        faults.append(Fault("", "evalcases", "is missing or empty: there is no case to load"))
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


def _cases_of_suite(suite: Suite, source: str) -> Iterator[EvalCase]:
    if not suite.tests:
        raise RubricError(source, [Fault("", "tests", "is missing or empty: there is no case to load")])
    is_shared = has_shared(suite)
    for index, test in enumerate(suite.tests):
        expected = as_text(test.get("criteria") or test.get("expected_outcome"))
        case_id = as_text(test.get("id") or test.get("description")) or str(index + 1)
        name = f"{source}, case {case_id}"
        if expected and not is_shared and not suite.has_own(index):
            criterion = Criterion(requirement=expected, weight=1.0, name="expected_outcome")
            rubric = make_rubric([criterion], suite.document, name, [])
        else:
            rubric, losses = read_test(suite, index, name)
            warn_of_losses(losses, name)
        variables: Any = test.get("vars")
        values = cast("Mapping[str, Any]", variables) if isinstance(variables, Mapping) else {}
        request = test.get("input") or values.get("input") or next(iter(values.values()), None)
        yield EvalCase(case_id, _input_text(request), expected, rubric)


def _input_text(value: Any) -> str:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return as_text(value)
    messages = [cast("Mapping[str, Any]", m) for m in cast("Sequence[Any]", value) if isinstance(m, Mapping)]
    if len(messages) == 1:
        return as_text(messages[0].get("content"))
    return "\n".join(f"{message.get('role', 'user')}: {as_text(message.get('content'))}" for message in messages)
