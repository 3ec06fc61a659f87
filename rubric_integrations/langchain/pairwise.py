"""Which of two outputs is better, by their scores: for LangSmith's comparative evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from langsmith.schemas import Example, Run

from rubric_integrations.langchain.evaluator import RubricEvaluator
from rubric_integrations.rubric.rubric import Rubric

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike


def compare_by_rubric(
    rubric: Rubric | Callable[[Any], Rubric],
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    key: str = "rubric_preference",
    tie_margin: float = 0.0,
    **fields: Any,
) -> Callable[[Sequence[Run], Example | None], dict[str, Any]]:
    """A comparator for `evaluate((experiment_a, experiment_b), evaluators=[compare_by_rubric(...)])`.

    Each run is graded for itself. The best of them get 1 between them, those within the margin of it alike; a run
    that could not be assessed makes the comparison void: all get None.

    Args:
        rubric: The rubric, or a function that gives one for an example.
        judge: Who judges.
        grader: In place of `judge`, a grader with settings of its own.
        key: The key of the feedback.
        tie_margin: Scores that differ by at most this from the best are a tie, in [0, 1).
        **fields: `output_key`, `input_key`, `reference_key` and `respond`, as for `RubricEvaluator`.

    Raises:
        ValueError: Neither or both of `judge` and `grader` are given, or the margin is out of range.
    """
    margin = validate_margin(tie_margin)
    evaluator = RubricEvaluator(rubric, judge, grader=grader, **fields)

    def compare(runs: Sequence[Run], example: Example | None) -> dict[str, Any]:
        results = [evaluator.evaluate_run(run, example).get("results", []) for run in runs]
        totals = [total for total, *_ in results]
        scores = [None if total.score is None else float(total.score) for total in totals]
        said = "; ".join(
            f"{score if score is None else f'{score:.2f}'}: {total.comment}"
            for score, total in zip(scores, totals, strict=True)
        )
        shares = _shares(scores, margin)
        return {"key": key, "scores": {run.id: share for run, share in zip(runs, shares, strict=True)}, "comment": said}

    return compare


def preference(first: float | None, second: float | None, margin: float) -> float | None:
    """1 where the first score is better, 0 where the second is, 0.5 for a tie; None where one is missing.

    Example:
        >>> preference(0.9, 0.5, margin=0.1), preference(0.5, 0.55, margin=0.1)
        (1.0, 0.5)
    """
    return _shares([first, second], margin)[0]


def validate_margin(margin: float) -> float:
    """The margin.

    Raises:
        ValueError: It is not in [0, 1).
    """
    if isinstance(margin, bool) or not 0 <= margin < 1:
        raise ValueError(f"`tie_margin` must be at least 0 and below 1, got {margin!r}")
    return margin


def _shares(scores: Sequence[float | None], margin: float) -> list[float | None]:
    known = [score for score in scores if score is not None]
    if len(known) < len(scores):
        return [None] * len(scores)
    # A hair more, since 0.3 - 0.2 is not 0.1.
    best = [score >= max(known) - margin - 1e-9 for score in known]
    return [best_one / sum(best) for best_one in best]
