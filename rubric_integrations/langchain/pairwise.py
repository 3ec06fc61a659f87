"""Compares outputs by their rubric scores, for LangSmith's comparative evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from langsmith.schemas import Example, Run

from rubric_integrations.formats.rubric_like import RubricLike
from rubric_integrations.langchain.evaluator import RubricEvaluator
from rubric_integrations.langchain.fields import FieldKey
from rubric_integrations.submission.messages import Respond

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike

# Scores are rounded sums: 0.3 - 0.2 is slightly less than 0.1, and must still be within a margin of 0.1.
_TOLERANCE = 1e-9


def compare_by_rubric(
    rubric: RubricLike | Callable[[Any], RubricLike],
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    key: str = "rubric_preference",
    tie_margin: float = 0.0,
    output_key: FieldKey | None = None,
    input_key: FieldKey | None = None,
    reference_key: FieldKey | None = None,
    context_key: FieldKey | None = None,
    respond: Respond = "last",
) -> Callable[[Sequence[Run], Example | None], dict[str, Any]]:
    """Make a comparator for `evaluate((experiment_a, experiment_b), evaluators=[compare_by_rubric(...)])`.

    Each run is graded on its own, so the order of the runs has no influence. The runs whose scores are within
    `tie_margin` of the best share a total of 1 equally; the others get 0. If one run could not be assessed, all get
    None.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary; or a function that returns one of these
            for an example.
        judge: What judges the criteria: a LangChain chat model, a model name, a `dspy.LM`, an async function or a
            judge. Pass either `judge` or `grader`.
        grader: A configured grader.
        key: The feedback key of the comparison.
        tie_margin: Scores that are at most this much below the best score are a tie, in [0, 1).
        output_key: The key of the response in the target's outputs, or a function of the outputs, as for
            `RubricEvaluator`.
        input_key: The key of the task in the inputs, or a function of the inputs.
        reference_key: The key of an exemplary answer in the example's outputs, or a function of them.
        context_key: The key of documents in the inputs, the output or the example's outputs, or a function of the
            inputs.
        respond: Which part of an output that is a list of messages is graded: the `"last"` answer, the whole
            `"transcript"`, or the `"trajectory"`, which is the transcript with numbered steps.

    Returns:
        A function of the runs and the example. It returns the feedback as a dict: `key`, `scores` by run id, and
        `comment`.

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` is none of the accepted types.
        ValueError: Neither or both of `judge` and `grader` are passed, or the margin is out of range.
    """
    margin = validate_margin(tie_margin)
    evaluator = RubricEvaluator(
        rubric,
        judge,
        grader=grader,
        output_key=output_key,
        input_key=input_key,
        reference_key=reference_key,
        context_key=context_key,
        respond=respond,
    )

    def compare(runs: Sequence[Run], example: Example | None) -> dict[str, Any]:
        results = [evaluator.evaluate_run(run, example).get("results", []) for run in runs]
        totals = [total for total, *_ in results]
        scores = [None if total.score is None else float(total.score) for total in totals]
        comment = "; ".join(
            f"{score if score is None else f'{score:.2f}'}: {total.comment}"
            for score, total in zip(scores, totals, strict=True)
        )
        shares = _shares(scores, margin)
        run_shares = {run.id: share for run, share in zip(runs, shares, strict=True)}
        return {"key": key, "scores": run_shares, "comment": comment}

    return compare


def preference(first: float | None, second: float | None, margin: float) -> float | None:
    """Return 1 if the first score is better, 0 if the second is, 0.5 for a tie, and None if a score is missing.

    Example:
        >>> preference(0.9, 0.5, margin=0.1), preference(0.5, 0.55, margin=0.1)
        (1.0, 0.5)
    """
    return _shares([first, second], margin)[0]


def validate_margin(margin: float) -> float:
    """Return the margin unchanged if it is valid.

    Raises:
        ValueError: The margin is not in [0, 1).
    """
    if isinstance(margin, bool) or not 0 <= margin < 1:
        raise ValueError(f"`tie_margin` must be at least 0 and below 1, got {margin!r}")
    return margin


def _shares(scores: Sequence[float | None], margin: float) -> list[float | None]:
    """Share a total of 1 equally among the scores within the margin of the best; all None if a score is missing."""
    known_scores = [score for score in scores if score is not None]
    if len(known_scores) < len(scores):
        return [None] * len(scores)
    threshold = max(known_scores) - margin - _TOLERANCE
    is_best = [score >= threshold for score in known_scores]
    return [best / sum(is_best) for best in is_best]
