"""`count_calls`: as many calls as a grade would make, of every strategy, and none of them made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader, TextLimits
from rubric_integrations.judges import Cascade
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.runs.dry_run import count_calls
from rubric_integrations.testing import ScriptedJudge

RUBRIC = Rubric(
    [
        {"name": "kind", "requirement": "Is kind"},
        {"name": "refund", "requirement": "Refunds", "applies_when": "Asks for a refund"},
        {"name": "number", "requirement": "Says 42", "check": {"number": 42}},
        {"name": "steps", "requirement": "Few steps", "check": {"max_steps": 3}},
        {"name": "source", "requirement": "Names it", "needs": ["reference"]},
    ]
)
ROWS = [(Submission(response="It is 42."), RUBRIC), (Submission(response="It is 41.", reference="42"), RUBRIC)]
ANSWERS: dict[str, Any] = {"Asks for a refund": "MET", "overall": 80}


@pytest.mark.parametrize("strategy", [PerCriterionGrader, PerCriterionOneShotGrader])
def test_count_equals_the_calls_of_a_grade_in_which_each_condition_is_true(strategy: Any) -> None:
    judge = ScriptedJudge(ANSWERS, default="CANNOT_ASSESS")
    grader = strategy(judge, on_failure="abstain")
    planned = count_calls(ROWS, grader).calls
    assert judge.questions == []
    run = grade_many([submission for submission, _ in ROWS], RUBRIC, grader)
    list(run)
    assert planned == run.summary.spend.calls > 0


def test_overall_score_takes_one_call_for_each_submission() -> None:
    rubric = Rubric([{"requirement": "Is kind"}])
    assert count_calls([(ROWS[0][0], rubric)], RubricAsJudgeGrader(ScriptedJudge(ANSWERS)), repeats=3).calls == 3


def test_panel_and_cascade_count_the_calls_of_all_judges() -> None:
    rows = [(ROWS[0][0], Rubric([{"requirement": "Is kind"}]))]
    assert count_calls(rows, PerCriterionGrader(judges=[ScriptedJudge("MET"), ScriptedJudge("UNMET")])).calls == 2
    cascade = Cascade(ScriptedJudge("MET"), ScriptedJudge("UNMET"), 0.0)
    assert count_calls(rows, PerCriterionGrader(cascade)).calls == 2


def test_offline_judge_makes_no_call_and_costs_nothing() -> None:
    planned = count_calls(ROWS, PerCriterionGrader("offline"))
    assert (planned.calls, planned.cost) == (0, 0.0)


def test_parts_of_a_long_response_are_counted() -> None:
    rows = [(Submission(response="word " * 1_000), Rubric([{"requirement": "Is kind"}]))]
    grader = PerCriterionGrader(ScriptedJudge(), text_limits=TextLimits(chunk_size=1_000))
    assert count_calls(rows, grader).calls == 5


def test_cost_grows_with_the_calls_and_is_none_without_a_price() -> None:
    grader = PerCriterionGrader(LMJudge("openai/of-mine", api_key="none"))
    prices = {"openai/of-mine": (1.0, 2.0)}
    once, twice = (count_calls(ROWS, grader, repeats=repeats, prices=prices) for repeats in (1, 2))
    assert once.cost
    assert twice.cost == pytest.approx(2 * once.cost)
    assert count_calls(ROWS, grader).cost is None


def test_stored_answers_are_not_counted_and_the_ledger_is_unchanged(tmp_path: Path) -> None:
    grader = PerCriterionGrader(ScriptedJudge(ANSWERS, default="MET"), on_failure="abstain")
    ledger = tmp_path / "run.sqlite"
    list(grade_many([ROWS[0][0]], RUBRIC, grader, ledger=ledger))
    first = count_calls(ROWS, grader, ledger=ledger)
    assert (first.calls, first.stored) == (4, 3)
    assert count_calls(ROWS, grader, ledger=ledger) == first
    assert count_calls(ROWS, grader, repeats=2, ledger=ledger).calls == 11
