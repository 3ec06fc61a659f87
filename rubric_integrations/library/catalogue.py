"""The rubrics that the library contains, and the recorded agreement of judges like theirs with people."""

from __future__ import annotations

import difflib
import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

PREFIX = "library:"
"""The beginning of a path that names a rubric of the library, such as `library:groundedness`."""


class _Source(NamedTuple):
    """Where judges were measured that answer a question like the questions of a rubric.

    Attributes:
        criteria: The criteria with a question like the measured one.
        data: The title of the data set.
        question: The measured question, as `judges.json` has it.
        prompt: A part of the prompts that are like the rubric's. Empty for all prompts.
    """

    criteria: tuple[str, ...]
    data: str
    question: str
    prompt: str = ""


_INSIGHT = "Does the summary cover this insight?"
_USEFULNESS = "How useful is this code, from 0 to 4?"
_SOURCES: dict[str, tuple[_Source, ...]] = {
    "correctness": (_Source(("same_answer",), "CoNaLa", _USEFULNESS, "with the reference"),),
    "groundedness": (),
    "relevance": (),
    "coverage": (_Source(("one_point", "half_of_the_points", "every_point"), "SummHay", _INSIGHT),),
    "summary": (_Source(("outcome",), "SummHay", _INSIGHT),),
    "instructions": (
        _Source(("task", "content", "form"), "LLMBar", "Which of two outputs executes the instruction better?"),
    ),
    "conciseness": (
        _Source(("opening", "closing", "background"), "LLM-Rubric", "How concise are the assistant's responses?"),
        _Source(("repetition",), "LLM-Rubric", "How free of redundant elements are the assistant's utterances?"),
    ),
    "tools": (),
    "agent": (_Source(("goal",), "DevAI", "Does the program do this?"),),
}  # fmt: skip


class MeasuredJudge(NamedTuple):
    """The recorded agreement of one judge with people on a question like the questions of a rubric.

    The figures belong to this judge and its prompt. They say nothing about the prompts of this library.

    Attributes:
        data: The title of the data set.
        question: The question that people and the judge answered.
        criteria: The criteria of the rubric with a similar question.
        judge: The name of the judge.
        prompt: The kind of its prompt.
        n: The number of judgments that both people and the judge decided.
        kappa: Cohen's kappa, with quadratic weights for ordered answers. None if it is undefined.
        low: The lower limit of the 95 % interval of `kappa`. None if it is undefined.
        high: The upper limit of this interval. None if it is undefined.
    """

    data: str
    question: str
    criteria: tuple[str, ...]
    judge: str
    prompt: str
    n: int
    kappa: float | None
    low: float | None
    high: float | None


def names() -> tuple[str, ...]:
    """Return the names of the rubrics in the library.

    Example:
        >>> names()[:3]
        ('correctness', 'groundedness', 'relevance')
    """
    return tuple(_SOURCES)


def text(name: str) -> str:
    """Return the YAML file of a rubric as text, with its comments and its test cases.

    Args:
        name: The name of the rubric, with or without the prefix `library:`.

    Raises:
        RubricError: (a ValueError) The library has no such rubric.
    """
    name = name.removeprefix(PREFIX)
    if name not in _SOURCES:
        close = difflib.get_close_matches(name, _SOURCES, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"the library has {', '.join(_SOURCES)}"
        raise RubricError(f"{PREFIX}{name}", [Fault("", "", f"is not in the library: {hint}")])
    return files(__package__ or "").joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def load(name: str) -> Rubric:
    """Return a rubric of the library, with its test cases.

    Wherever the path of a rubric file is accepted, `library:NAME` is accepted, too.

    Args:
        name: The name of the rubric, one of `names()`.

    Raises:
        RubricError: (a ValueError) The library has no such rubric.

    Example:
        >>> rubric = load("groundedness")
        >>> rubric.keys, len(rubric.cases)
        (('supported', 'unsupported', 'contradicted'), 8)
    """
    return Rubric.from_file(f"{PREFIX}{name.removeprefix(PREFIX)}")


def measured_judges(name: str) -> tuple[MeasuredJudge, ...]:
    """Return the recorded agreement of judges like the judge of a rubric with people.

    "Like" means: the question is similar. Data, prompt and model are others. The figures are those of the page
    "Which judges agree with people". Measure your own judge with `trust.agreement`.

    Args:
        name: The name of the rubric, one of `names()`.

    Returns:
        The judges by question, the highest kappa first. Empty if no such judge was measured.

    Raises:
        RubricError: (a ValueError) The library has no such rubric.

    Example:
        >>> best = measured_judges("coverage")[0]
        >>> best.data, best.judge, best.n, measured_judges("groundedness")
        ('SummHay', 'gemini-1.5-pro', 1419, ())
    """
    text(name)
    judges = [
        MeasuredJudge(
            row["set"], row["question"], source.criteria, row["judge"], row["prompt"], row["n"], *row["kappa"]
        )
        for source in _SOURCES[name.removeprefix(PREFIX)]
        for row in _recorded()
        if (row["set"], row["question"]) == (source.data, source.question) and source.prompt in row["prompt"]
    ]
    return tuple(sorted(judges, key=lambda judge: (judge.question, 2 if judge.kappa is None else -judge.kappa)))


@cache
def _recorded() -> list[dict[str, Any]]:
    """Return the figures that `benchmarks/judges.py` wrote."""
    return json.loads(files(__package__ or "").joinpath("judges.json").read_text(encoding="utf-8"))
