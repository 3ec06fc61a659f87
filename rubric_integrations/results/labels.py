"""Judgments that people made: what a judge is shown as examples, and later measured by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import model_validator

from rubric_integrations._util.records import Record
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.rubric.criterion import Criterion, Kind
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission, error_line


class LabelledJudgment(Record):
    """One criterion, one submission, and the right answer.

    Attributes:
        submission: What was judged.
        criterion: What was asked.
        verdict: The answer: a verdict, an option's label, or a number on the scale.
        reason: Why, in a sentence.

    Raises:
        pydantic.ValidationError: (a ValueError) where the verdict is no answer to the criterion.
    """

    submission: Submission
    criterion: Criterion
    verdict: str
    reason: str = ""

    @model_validator(mode="after")
    def _answers_the_criterion(self) -> Self:
        to_judgment(self.criterion, self.verdict)
        return self


class LabelsError(ValueError):
    """A file holds no labels, or not for this rubric."""


def read_labels(path: Path, rubric: Rubric) -> list[LabelledJudgment]:
    """Read the answers that a reader of a report page overruled, as the page exports them.

    Args:
        path: JSON, a label a line: `criterion` (its name), `requirement`, `verdict`, `submission`, maybe `reason`.
        rubric: Whose criteria they are about, found by name; the words must be the same.

    Raises:
        LabelsError: The file cannot be read, or a line is no label for this rubric.
    """
    criteria = dict(zip(rubric.keys, rubric.criteria, strict=True))
    labels: list[LabelledJudgment] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LabelsError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            criterion = criteria[told["criterion"]]
            if told.get("requirement", criterion.requirement) != criterion.requirement:
                raise ValueError(f"`{told['criterion']}` asked {told['requirement']!r} when it was labelled")
            labels.append(
                LabelledJudgment(
                    submission=Submission.model_validate(told["submission"]),
                    criterion=criterion,
                    verdict=told["verdict"],
                    reason=told.get("reason", ""),
                )
            )
        except KeyError as error:
            message = f"{path}:{number}: has no {error}, or the rubric has no criterion of that name"
            raise LabelsError(f"{message}; it has {list(criteria)!r}") from None
        except (ValueError, TypeError) as error:
            raise LabelsError(f"{path}:{number}: is no label for this rubric: {error_line(error)}") from None
    return labels


def choose_examples(
    examples: Sequence[LabelledJudgment], kind: Kind, count: int, graded: str
) -> list[LabelledJudgment]:
    """At most `count` examples of a kind, as many of each verdict as there can be, in the order given.

    One about the text being graded is left out: it would give the answer away. The choice does not depend on the
    criterion, so that the prompt stays the same for all criteria of a submission.
    """
    if not examples:
        return []
    by_verdict: dict[str, list[LabelledJudgment]] = {}
    for example in examples:
        if example.criterion.kind == kind and example.submission.response.strip() != graded.strip():
            by_verdict.setdefault(example.verdict, []).append(example)
    rounds = max(map(len, by_verdict.values()), default=0)
    turns = [group[turn] for turn in range(rounds) for group in by_verdict.values() if turn < len(group)]
    chosen = turns[:count]
    return [example for example in examples if any(example is picked for picked in chosen)]


def own_examples(criterion: Criterion, graded: str) -> list[LabelledJudgment]:
    """The examples that a rubric gives with a criterion, but for one about the text being graded."""
    return [
        LabelledJudgment(
            submission=Submission(response=example.output, query=example.input),
            criterion=criterion,
            verdict=example.score if isinstance(example.score, str) else f"{example.score:g}",
            reason=example.explanation,
        )
        for example in criterion.examples
        if example.output.strip() and example.output.strip() != graded.strip()
    ]
