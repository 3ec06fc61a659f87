"""Test cases of a rubric: responses with the verdicts and scores that a grade of each is expected to give.

Cases test a rubric and its judge, like the unit tests of a program. A grade does not depend on them: no prompt, score,
ledger or run file contains them, and two rubrics that differ only in their cases are equal.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeGuard, cast

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from rubric_integrations._util.records import EncodableText, Record, UnitScore, encodable
from rubric_integrations.rubric.criterion import Criterion

if TYPE_CHECKING:
    from rubric_integrations.submission import Submission

MAX_CASES = 1_000
MAX_NAME = 200

NOT_APPLICABLE = "NOT_APPLICABLE"
"""The verdict on a criterion whose condition (`applies_when`) is false, in a report and in a case."""


def _read_expected(value: object) -> str | int | float | tuple[int | float, int | float]:
    """Check the form of an expected verdict. Its meaning depends on the criterion (see `normalize_expected`)."""
    if isinstance(value, bool):
        raise ValueError(f"is {str(value).lower()}: put an option's label in quotes, because YAML converts yes and no")
    if _is_number(value):
        return value
    if isinstance(value, str) and value.strip():
        return encodable(value)
    if isinstance(value, list | tuple):
        ends = [end for end in cast("Sequence[object]", value) if _is_number(end)]
        if len(ends) == len(cast("Sequence[object]", value)) == 2 and ends[0] <= ends[1]:
            return ends[0], ends[1]
    raise ValueError(
        f"is no verdict, got {_short(repr(value))}: write MET, UNMET, CANNOT_ASSESS, NOT_APPLICABLE, an option's "
        "label, a number, or a range such as [3, 5], the smaller number first"
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    # A larger whole number has no value as a float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


Expected = Annotated[
    str | int | float | tuple[int | float, int | float],
    BeforeValidator(_read_expected, json_schema_input_type=str | float | tuple[float, float]),
]
"""An expected verdict: MET, UNMET, CANNOT_ASSESS, NOT_APPLICABLE, an option's label, a number, or a range of numbers.

A range is a list of its lowest and its highest number. Both are included.
"""


def _read_evidence(value: object) -> str | int:
    """Check the form of evidence: a text that is not blank, or the number of a step."""
    if isinstance(value, str) and value.strip():
        return encodable(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(
        f"is no evidence, got {_short(repr(value))}: write a sentence of the response, or the number of a step of the "
        "trajectory, counted from 1"
    )


EvidenceOfVerdict = Annotated[str | int, BeforeValidator(_read_evidence, json_schema_input_type=str | int)]
"""The part of a case that decides a verdict: a sentence of the response, or the number of a step of the trajectory."""


def _form_of(evidence: object) -> str:
    return "<by criterion>" if isinstance(evidence, Mapping) else "<for all>"


_CriterionName = Annotated[str, Field(min_length=1, max_length=200)]
# The tags are not names of fields: `formats.parsing` leaves texts in angle brackets out of a fault's place.
_Evidence = Annotated[
    Annotated[EvidenceOfVerdict, Tag("<for all>")]
    | Annotated[dict[_CriterionName, EvidenceOfVerdict], Tag("<by criterion>")],
    Discriminator(_form_of),
]


class Expectation(Record):
    """The expected result of a case. At least one field is set.

    Attributes:
        verdicts: The expected verdicts by the name of the criterion (see `Rubric.keys`): `MET`, `UNMET`,
            `CANNOT_ASSESS`, an option's label, a number, or a range such as `[3, 5]`. `NOT_APPLICABLE` is for criteria
            with `applies_when`. `not applicable`, `met` and similar spellings are accepted. If a rubric contains the
            case, its spelling is normalized.
        min_score: The smallest expected score in [0, 1].
        max_score: The largest expected score in [0, 1].
        passed: Whether the response is expected to pass.

    Raises:
        pydantic.ValidationError: (a ValueError) No field is set, or `min_score` exceeds `max_score`.

    Example:
        >>> Expectation(verdicts={"margin": "MET"}, min_score=0.8).verdicts
        {'margin': 'MET'}
    """

    verdicts: dict[_CriterionName, Expected] = Field(default_factory=dict[str, Expected], max_length=1_000)
    min_score: UnitScore | None = None
    max_score: UnitScore | None = None
    passed: bool | None = Field(default=None, strict=True)

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if not self.verdicts and self.min_score is None and self.max_score is None and self.passed is None:
            raise ValueError(
                "expects nothing, and such a case could not fail: write `verdicts`, `min_score`, `max_score` or "
                "`passed`"
            )
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise ValueError(
                f"has the `min_score` {self.min_score:g} above the `max_score` {self.max_score:g}: no score could be "
                "as expected"
            )
        return self

    @property
    def has_score(self) -> bool:
        """Whether a score, or whether the response passes, is expected."""
        return self.min_score is not None or self.max_score is not None or self.passed is not None


class Case(Record):
    """A response with the result that a rubric is expected to give it.

    `query`, `reference`, `context`, `attachments` and `trajectory` have the forms that they have in a row of a file of
    responses.

    Attributes:
        name: The name of the case, unique in its rubric.
        response: The text to grade.
        query: The task that the response answers: a text, or a list of messages.
        reference: A reference response for comparison.
        context: A document, or a list of documents.
        attachments: The files of the response. In a rubric file, `path` may name a file in the folder of this file.
        trajectory: The steps of the agent that led to the response, in any dialect.
        evidence: The part of the case that decides a verdict: a sentence of the response, or the number of a step of
            the trajectory, counted from 1. A mapping has the evidence of each criterion by its name. A single value
            applies to every criterion of `expect.verdicts`. Mutations delete it and expect another verdict, if it is
            clear whose evidence it is: with several verdicts such as MET, write a mapping.
        expect: The expected verdicts and scores.

    Raises:
        pydantic.ValidationError: (a ValueError) The case cannot be graded, or the response or the trajectory does not
            contain the `evidence`.

    Example:
        >>> case = Case(
        ...     name="states it", response="The margin was 17.2%.", evidence="The margin was 17.2%.",
        ...     expect=Expectation(verdicts={"margin": "MET"}),
        ... )
        >>> case.evidence_of("margin"), case.submission.response
        ('The margin was 17.2%.', 'The margin was 17.2%.')
    """

    name: str = Field(min_length=1, max_length=MAX_NAME)
    response: EncodableText
    query: Any = None
    reference: Any = None
    context: Any = None
    attachments: Any = None
    trajectory: Any = None
    evidence: _Evidence | None = None
    expect: Expectation

    @field_validator("name")
    @classmethod
    def _is_visible(cls, name: str) -> str:
        if not name.strip():
            raise ValueError("is blank: name the case, because reports list it by its name")
        return name

    @property
    def submission(self) -> Submission:
        """The submission to grade.

        Raises:
            ValueError: The case cannot be graded.
        """
        from rubric_integrations.submission.inputs import read_row

        parts = ("response", "query", "reference", "context", "attachments", "trajectory")
        row = read_row({part: value for part in parts if (value := getattr(self, part)) is not None}, 1, warns=False)
        if row.submission is None:
            raise ValueError((row.error or "").removeprefix("row 1").lstrip(": "))
        return row.submission

    def evidence_of(self, criterion: str) -> str | int | None:
        """Return the evidence for the verdict on a criterion. None if the case names none.

        Args:
            criterion: The name of the criterion.
        """
        if isinstance(self.evidence, Mapping):
            return self.evidence.get(criterion)
        return self.evidence if criterion in self.expect.verdicts else None

    @model_validator(mode="after")
    def _can_be_graded(self) -> Self:
        """Check that the case is a submission, and that the submission contains the evidence."""
        submission = self.submission
        entries = self.evidence.values() if isinstance(self.evidence, Mapping) else (self.evidence,)
        steps = len(submission.trajectory.steps) if submission.trajectory else 0
        for evidence in entries:
            if isinstance(evidence, str) and not find_evidence(self.response, evidence):
                raise ValueError(
                    f"the case {self.name!r} has the `evidence` {_short(repr(evidence))}, which is not in its "
                    "`response`: copy a sentence of the response, or give the number of a step of the `trajectory`"
                )
            if isinstance(evidence, int) and evidence > steps:
                raise ValueError(
                    f"the case {self.name!r} has step {evidence} as its `evidence`, and "
                    + (f"its `trajectory` has {steps} steps: steps are counted from 1" if steps else "no `trajectory`")
                )
        return self


def find_evidence(response: str, evidence: str) -> list[slice]:
    r"""Return the places of a sentence in a response. White space of any kind and length is the same.

    Example:
        >>> find_evidence("So:\nit is  42.", "it is 42.")
        [slice(4, 14, None)]
    """
    # Possessive quantifiers, because no word begins with white space: the search takes linear time.
    pattern = r"\s++".join(map(re.escape, evidence.split()))
    return [slice(*match.span()) for match in re.finditer(pattern, response)] if pattern else []


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_cases(cases: Sequence[Case], criteria: Sequence[Criterion], keys: Sequence[str]) -> tuple[Case, ...]:
    """Check the cases of a rubric against its criteria, and return them with normalized verdicts.

    Args:
        cases: The cases.
        criteria: The criteria of the rubric.
        keys: The name of each criterion (see `Rubric.keys`).

    Raises:
        pydantic.ValidationError: (a ValueError) There are too many cases, two cases have one name, or a case expects a
            verdict that a criterion cannot have. The error has one line for each fault.
    """
    if len(cases) > MAX_CASES:
        raise ValueError(f"has {len(cases):,} cases, more than {MAX_CASES:,}: split them into several files")
    by_name = dict(zip(keys, criteria, strict=True))
    faults = [*_repeated_names(cases)]
    checked: list[Case] = []
    for index, case in enumerate(cases):
        faults += _unknown_evidence(index, case, by_name)
        verdicts: dict[str, Expected] = {}
        for name, expected in case.expect.verdicts.items():
            try:
                verdicts[name] = normalize_expected(_criterion_named(name, by_name), expected)
            except ValueError as error:
                message = f"the case {case.name!r} {error}"
                faults.append(_error((index, "expect", "verdicts", name), message, expected))
        expect = case.expect.model_copy(update={"verdicts": verdicts})
        checked.append(case if expect == case.expect else case.model_copy(update={"expect": expect}))
    if faults:
        raise ValidationError.from_exception_data("Rubric", faults)
    return tuple(checked)


def _repeated_names(cases: Iterable[Case]) -> Iterator[InitErrorDetails]:
    names: set[str] = set()
    for index, case in enumerate(cases):
        if case.name in names:
            message = f"{case.name!r} is the name of an earlier case, too: rename one of them"
            yield _error((index, "name"), message, case.name)
        names.add(case.name)


def _unknown_evidence(index: int, case: Case, by_name: Mapping[str, Criterion]) -> Iterator[InitErrorDetails]:
    for name in case.evidence if isinstance(case.evidence, Mapping) else ():
        if name not in by_name:
            yield _error((index, "evidence", name), f"the case {case.name!r} {_unknown_name(name, by_name)}", name)
        elif name not in case.expect.verdicts:
            message = f"has evidence for {name!r}, of which it expects no verdict: add one to `expect.verdicts`"
            yield _error((index, "evidence", name), f"the case {case.name!r} {message}", name)


def _error(place: tuple[int | str, ...], message: str, value: object) -> InitErrorDetails:
    # The message is a parameter, because braces in a template have a meaning.
    problem = PydanticCustomError("value_error", "{message}", {"message": message})
    return InitErrorDetails(type=problem, loc=place, input=value)


def _criterion_named(name: str, by_name: Mapping[str, Criterion]) -> Criterion:
    if name not in by_name:
        raise ValueError(_unknown_name(name, by_name))
    return by_name[name]


def _unknown_name(name: str, by_name: Mapping[str, Criterion]) -> str:
    return f"names {name!r}, which is not a criterion: {_hint(name, list(by_name))}"


def _hint(text: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(text, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"use one of {_short(', '.join(known))}"


def normalize_expected(criterion: Criterion, expected: Expected) -> Expected:
    """Return an expected verdict in its normalized form: a word in capitals, an option's label as written, a number.

    Args:
        criterion: The criterion.
        expected: The expected verdict, as written.

    Raises:
        ValueError: The criterion cannot have this verdict.

    Example:
        >>> normalize_expected(Criterion(requirement="Is polite"), "unmet")
        'UNMET'
    """
    from rubric_integrations.scoring.judgment import fold_answer, interpret_answer, parse_verdict

    if isinstance(expected, tuple):
        return _checked_range(criterion, expected)
    option = criterion.find_option(str(expected))
    if option is not None:
        return option.label
    if fold_answer(str(expected)) == fold_answer(NOT_APPLICABLE):
        if criterion.applies_when is None:
            raise ValueError(f"expects {NOT_APPLICABLE}, and the criterion applies always: it has no `applies_when`")
        return NOT_APPLICABLE
    if parse_verdict(expected) == "CANNOT_ASSESS":
        return "CANNOT_ASSESS"
    try:
        verdict = interpret_answer(criterion, expected).verdict
    except ValueError as error:
        raise ValueError(_wrong_verdict(criterion, expected, error)) from None
    if criterion.kind != "scaled":
        return verdict
    return expected if isinstance(expected, int | float) else float(verdict)


def _wrong_verdict(criterion: Criterion, expected: Expected, error: ValueError) -> str:
    if criterion.kind == "scaled":
        return f"expects a verdict that is not possible: {error}"
    if criterion.kind == "binary":
        known = ["MET", "UNMET", "CANNOT_ASSESS", *([NOT_APPLICABLE] if criterion.applies_when is not None else [])]
        return f"expects {expected!r}, which is not a verdict: {_hint(str(expected).upper(), known)}"
    labels = [option.label for option in criterion.options or ()]
    return f"expects {expected!r}, which is not an option: {_hint(str(expected), labels)}"


def _checked_range(criterion: Criterion, expected: tuple[float, float]) -> Expected:
    """Return a range of numbers. Raises a ValueError if it does not lie on the scale of the criterion."""
    if criterion.scale is None:
        kind = "options" if criterion.options else "MET and UNMET"
        raise ValueError(f"expects the range {list(expected)!r} of a criterion with {kind}: write one of its verdicts")
    low, high = expected
    # A number of occurrences may exceed the cap.
    if low < criterion.scale.min or (high > criterion.scale.max and criterion.cap is None):
        scale = f"{criterion.scale.min:g} to {criterion.scale.max:g}"
        raise ValueError(f"expects the range {list(expected)!r}, which is not on the scale from {scale}")
    return expected


def renamed_cases(cases: Iterable[Case], names: Mapping[str, str]) -> Iterator[Case]:
    """Yield cases of a rubric for a rubric that contains some of its criteria, or all, under other names.

    Expected scores, and whether a response passes, are left out, because the score of the other rubric depends on more
    criteria. A case that expects nothing else is left out.

    Args:
        cases: The cases.
        names: The new name of each criterion by its old name. The verdicts on other criteria are left out.
    """
    for case in cases:
        verdicts = {names[name]: expected for name, expected in case.expect.verdicts.items() if name in names}
        if verdicts:
            changed: dict[str, Any] = {"expect": Expectation(verdicts=verdicts)}
            if isinstance(case.evidence, Mapping):
                evidence = {names[name]: value for name, value in case.evidence.items() if name in names}
                changed["evidence"] = evidence or None
            yield case.model_copy(update=changed)


def with_unique_names(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return cases of several rubrics. A case with the name of an earlier one gets a number."""
    by_name: dict[str, Case] = {}
    for case in cases:
        name, number = case.name, 2
        while name in by_name:
            suffix = f" ({number})"
            name, number = f"{case.name[: MAX_NAME - len(suffix)]}{suffix}", number + 1
        by_name[name] = case if name == case.name else case.model_copy(update={"name": name})
    return tuple(by_name.values())
