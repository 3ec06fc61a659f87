"""Programs written for the `rubric` package run with only their imports changed.

The programs are our own; the names and arguments that they use are those of the `rubric` package.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rubric_integrations import LengthPenalty, PerCriterionGrader, Rubric
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.scoring import DefaultFallbackVerdicts, compute_length_penalty, word_count
from rubric_integrations.scoring.length import CountFn, PenaltyType
from rubric_integrations.submission import normalize_to_grade_input, parse_thinking_output
from tests.fakes import FakeModel

CRITERIA: list[dict[str, Any]] = [
    {"weight": 10.0, "requirement": "Gives the base margin of the fourth quarter as 17.2%"},
    {"weight": 8.0, "requirement": "Splits the change with Shapley values"},
    {"weight": -15.0, "requirement": "Counts all deliveries where only cash deliveries belong"},
]


def fake_model(*met: str) -> Any:
    """Make a `generate_fn` that answers MET to these requirements, in the fields that the `rubric` package reads."""

    async def generate(system_prompt: str, user_prompt: str) -> str:
        if "1. (requirement)" in user_prompt:
            texts = [c["requirement"] for c in CRITERIA]
            entries = [
                {"criterion_number": n, "criterion_status": "MET" if t in met else "UNMET", "explanation": "seen"}
                for n, t in enumerate(texts, 1)
            ]
            return json.dumps({"criteria_evaluations": entries})
        if "overall_score" in user_prompt:
            return '{"overall_score": 85}'
        status = "MET" if any(f"\n{text}\n" in user_prompt for text in met) else "UNMET"
        return f'```json\n{{"criterion_status": "{status}", "explanation": "seen"}}\n```'

    return generate


async def test_program_with_a_per_criterion_grader_runs() -> None:
    rubric = Rubric.from_dict(CRITERIA)
    grader = PerCriterionGrader(
        generate_fn=fake_model("Gives the base margin of the fourth quarter as 17.2%"),
        system_prompt="This replaces the grader's own prompt",
    )
    result = await rubric.grade(query="What was the margin?", to_grade="It was 17.2%.", autograder=grader)
    assert result.score == pytest.approx(10 / 18)
    assert f"Score: {result.score:.2f}" == "Score: 0.56"
    assert result.report is not None
    for criterion in result.report:
        assert criterion.verdict in ("MET", "UNMET")
        assert criterion.requirement
        assert criterion.reason == "seen"
    assert (result.raw_score, result.llm_raw_score, result.error) == (10.0, 10.0, None)


async def test_programs_with_the_other_graders_have_the_same_raw_scale() -> None:
    rubric = Rubric.from_dict(CRITERIA)
    model = fake_model(*(c["requirement"] for c in CRITERIA[:2]))
    at_once = await rubric.grade("text", autograder=PerCriterionOneShotGrader(model, normalize=False))
    whole = await rubric.grade("text", autograder=RubricAsJudgeGrader(model, normalize=False))
    assert (at_once.score, at_once.raw_score) == (18.0, 18.0)
    assert (whole.raw_score, whole.llm_raw_score, whole.report) == (pytest.approx(15.3), 85.0, None)


async def test_program_with_fallback_verdicts_runs() -> None:
    rubric = Rubric.from_dict(CRITERIA)
    with pytest.raises(ValueError, match="parse"):
        await rubric.grade("text", autograder=PerCriterionGrader(generate_fn=FakeModel("not JSON"), max_retries=2))
    conservative: DefaultFallbackVerdicts = {"positive": "UNMET", "negative": "MET"}
    grader = PerCriterionGrader(generate_fn=FakeModel("not JSON"), default_fallback_verdicts=conservative)
    result = await rubric.grade("text", autograder=grader)
    assert (result.score, result.raw_score, result.error is not None) == (0.0, -15.0, True)


async def test_program_with_a_length_penalty_runs() -> None:
    def tokens(text: str) -> int:
        return len(text.split())

    count: CountFn = tokens
    penalty_type: PenaltyType = "OUTPUT_ONLY"
    grader = PerCriterionGrader(
        generate_fn=fake_model(CRITERIA[0]["requirement"], CRITERIA[2]["requirement"]),
        normalize=False,
        length_penalty=LengthPenalty(
            free_budget=8, max_cap=10, penalty_at_cap=50.0, exponent=1.6, penalty_type=penalty_type, count_fn=count
        ),
    )
    rubric = Rubric.from_dict(CRITERIA)
    result = await rubric.grade({"thinking": "long " * 100, "output": "short"}, autograder=grader)
    assert (result.score, result.raw_score) == (-5.0, -5.0)
    long = await rubric.grade({"thinking": "", "output": "word " * 12}, autograder=grader)
    assert (long.score, long.raw_score, long.length_penalty) == (-55.0, -5.0, 50.0)
    marked = await rubric.grade("<thinking>why</thinking><output>short</output>", autograder=grader)
    assert marked.score == -5.0


async def test_program_that_computes_rewards_of_a_batch_runs() -> None:
    grader = PerCriterionGrader(generate_fn=fake_model(CRITERIA[1]["requirement"]), normalize=False)

    async def compute_rewards_batch(
        responses: list[str], rubrics: list[Rubric], queries: list[str] | None = None
    ) -> list[float | None]:
        tasks = [
            rubric.grade(response, autograder=grader, query=queries[i] if queries else None)
            for i, (response, rubric) in enumerate(zip(responses, rubrics, strict=True))
        ]
        return [result.score for result in await asyncio.gather(*tasks)]

    assert await compute_rewards_batch(["a", "b"], [Rubric.from_dict(CRITERIA)] * 2, ["q", "q"]) == [8.0, 8.0]


def test_helper_functions_have_the_same_names_and_results() -> None:
    assert word_count("three short words") == 3
    assert parse_thinking_output("<thinking>a</thinking><output>b</output>") == {"thinking": "a", "output": "b"}
    assert normalize_to_grade_input("plain") == {"thinking": "", "output": "plain"}
    assert normalize_to_grade_input({"output": "b"}) == {"thinking": "", "output": "b"}
    penalty = LengthPenalty(free_budget=1, max_cap=3)
    assert compute_length_penalty("one two three", penalty) == 0.5
    assert compute_length_penalty({"thinking": "one two three", "output": "x"}, penalty) == 0.5
