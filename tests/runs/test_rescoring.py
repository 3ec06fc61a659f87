"""Scoring the submissions of a run with another rubric, from its ledger."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, LengthPenalty, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge
from rubric_integrations.runs import Ledger, LedgerError, rescore
from rubric_integrations.scoring import EvaluationReport, Spend, word_count
from tests.fakes import FakeJudge, FakeOverallJudge
from tests.graders.rubrics import ONE
from tests.judges.test_store import RUBRIC as RUBRIC_OF_EVERY_KIND
from tests.judges.test_store import answer_script
from tests.openai_server import OpenAIServer
from tests.runs.scripted import SMALL_RUBRIC, InstantJudge


def own_count(text: str) -> int:
    return len(text)


# A function of this name is not ours.
own_count.__name__ = own_count.__qualname__ = "word_count"


def without_spend(report: EvaluationReport | None) -> EvaluationReport:
    assert report is not None
    assert report.spend.calls > 0
    criteria = tuple(row.model_copy(update={"spend": Spend()}) for row in report.criteria)
    return report.model_copy(update={"spend": Spend(), "report": report.report and criteria})


@pytest.mark.parametrize("kind", [PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader])
def test_run_of_each_grader_with_a_panel_rescored_gives_the_same_reports(
    server: OpenAIServer, tmp_path: Path, kind: Any
) -> None:
    server.script = answer_script
    judges = [LMJudge(dspy.LM(f"openai/{name}", api_base=server.url, api_key="none", cache=False)) for name in "ab"]
    with Ledger(tmp_path / "run.sqlite") as ledger:
        run = grade_many(["Hello.", "Bye."], RUBRIC_OF_EVERY_KIND, kind(judges=judges), ledger=ledger)
        before = list(run)
        call_count = len(server.calls)
        after = list(rescore(ledger, RUBRIC_OF_EVERY_KIND))
        assert [result.missing for result in after] == [0, 0]
        # The same reports, but for the calls: those were made in the run, and rescoring makes none.
        assert [result.report for result in after] == [without_spend(graded.report) for graded in before]
        assert ledger.failures() == []
    assert len(server.calls) == call_count


def test_new_weights_need_no_judgment_and_a_new_requirement_is_missing(tmp_path: Path) -> None:
    judge = InstantJudge()
    heavier = Rubric([criterion.model_copy(update={"weight": 9.0}) for criterion in SMALL_RUBRIC.criteria])
    longer = Rubric([*SMALL_RUBRIC.criteria, Criterion(requirement="new")])
    with Ledger(tmp_path / "run.sqlite") as ledger:
        list(grade_many(["good", "bad"], SMALL_RUBRIC, PerCriterionGrader(judge), ledger=ledger))
        assert [(result.score, result.missing) for result in rescore(ledger, heavier)] == [(1.0, 0), (0.0, 0)]
        assert [(result.score, result.missing) for result in rescore(ledger, longer)] == [(None, 1), (None, 1)]
        light = Rubric([*SMALL_RUBRIC.criteria, Criterion(requirement="new", weight=0.01)])
        assert [result.to_dict()["passed"] for result in rescore(ledger, light)] == [False, False]
    assert judge.calls == 6


def test_run_that_refuses_its_judge_leaves_the_grader_of_the_last_run(tmp_path: Path) -> None:
    with Ledger(tmp_path / "run.sqlite") as ledger:
        list(grade_many(["good"], SMALL_RUBRIC, PerCriterionGrader(InstantJudge()), ledger=ledger))
        with pytest.raises(TypeError, match="cannot be identified"):
            list(grade_many(["good"], ONE, PerCriterionGrader(FakeJudge("MET")), ledger=ledger))
        assert [result.score for result in rescore(ledger, SMALL_RUBRIC)] == [1.0]


def test_rescored_run_has_the_abstention_policy_of_its_grader(tmp_path: Path) -> None:
    abstains = FakeJudge("CANNOT_ASSESS", fingerprint="f")
    with Ledger(tmp_path / "run.sqlite") as ledger:
        grader = PerCriterionGrader(abstains, cannot_assess=0.3)
        [graded] = grade_many(["good"], ONE, grader, ledger=ledger)
        scores = [[result.score for result in rescore(ledger, ONE, policy)] for policy in (None, "zero", 0.75)]
    assert (graded.score, scores) == (0.3, [[0.3], [0.0], [0.75]])


@pytest.mark.parametrize("kind", [PerCriterionGrader, RubricAsJudgeGrader])
@pytest.mark.parametrize("count_fn", [None, word_count])
def test_rescored_run_has_the_length_penalty_of_its_grader(tmp_path: Path, kind: Any, count_fn: Any) -> None:
    penalty = LengthPenalty(free_budget=1, max_cap=2, penalty_at_cap=0.4, count_fn=count_fn)
    grader = kind(FakeOverallJudge(100, fingerprint="f"), length_penalty=penalty)
    with Ledger(tmp_path / "run.sqlite") as ledger:
        run = list(grade_many(["Two words", "Thinking"], ONE, grader, ledger=ledger))
        after = list(rescore(ledger, ONE))
    assert [(graded.score, graded.report and graded.report.length_penalty) for graded in run] == [(0.6, 0.4), (1.0, 0)]
    assert [(result.score, result.report.length_penalty) for result in after] == [(0.6, 0.4), (1.0, 0)]
    recorded = [(graded.grader or {})["length_penalty"] for graded in run]
    assert [result.grader["length_penalty"] for result in after] == recorded


@pytest.mark.parametrize("count_fn", [len, partial(len), own_count])
def test_run_with_an_own_count_of_the_length_is_refused(tmp_path: Path, count_fn: Any) -> None:
    penalty = LengthPenalty(free_budget=1, max_cap=2, penalty_at_cap=0.4, count_fn=count_fn)
    grader = PerCriterionGrader(judge := InstantJudge(), length_penalty=penalty)
    with Ledger(tmp_path / "run.sqlite") as ledger:
        list(grade_many(["good"], SMALL_RUBRIC, grader, ledger=ledger))
        with pytest.raises(LedgerError, match="cannot be rebuilt: run `grade_many` again"):
            list(rescore(ledger, SMALL_RUBRIC))
        [graded] = grade_many(["good"], SMALL_RUBRIC, grader, ledger=ledger)
    assert (graded.score, judge.calls) == (0.6, 3)


def test_run_of_a_version_that_did_not_record_the_length_penalty_gives_a_warning(tmp_path: Path) -> None:
    with Ledger(tmp_path / "run.sqlite") as ledger:
        grader = PerCriterionGrader(InstantJudge())
        list(grade_many(["good"], SMALL_RUBRIC, grader, ledger=ledger))
        earlier = grader.configuration()
        del earlier["settings"]["length_penalty"]
        ledger.record_grader(earlier)
        with pytest.warns(UserWarning, match="length penalty") as caught:
            assert [result.score for result in rescore(ledger, SMALL_RUBRIC)] == [1.0]
    assert [warning.filename for warning in caught] == [__file__]


def test_ledger_of_a_version_with_other_names_of_settings_is_rescored_by_them(tmp_path: Path) -> None:
    grader = PerCriterionGrader(FakeJudge("CANNOT_ASSESS", fingerprint="f"), cannot_assess="partial")
    with Ledger(tmp_path / "run.sqlite") as ledger:
        list(grade_many(["good"], ONE, grader, ledger=ledger))
        earlier = grader.configuration()
        earlier["settings"] |= {"partial_credit": 0.2, "limits": {"step_limit": 500, "chunk_size": 2_000}}
        ledger.record_grader(earlier)
        [rescored] = rescore(ledger, ONE)
    assert (rescored.score, rescored.grader["text_limits"]) == (0.2, {"step_limit": 500, "chunk_size": 2_000})


@pytest.mark.parametrize("change", [{"rounding": 2}, {"voting": {"binary": "coin"}}, {"options": 7}])
def test_ledger_with_settings_of_a_later_version_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    grader = PerCriterionGrader(InstantJudge())
    with Ledger(tmp_path / "run.sqlite") as ledger:
        list(grade_many(["good"], SMALL_RUBRIC, grader, ledger=ledger))
        later = grader.configuration()
        later["settings"] |= change
        ledger.record_grader(later)
        with pytest.raises(LedgerError, match="cannot rebuild the grader of its last run") as caught:
            list(rescore(ledger, SMALL_RUBRIC))
        assert "\n" not in str(caught.value)
        [graded] = grade_many(["good"], SMALL_RUBRIC, grader, ledger=ledger)
        assert graded.score == 1.0


def test_ledger_without_a_run_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path / "run.sqlite") as ledger, pytest.raises(LedgerError, match="has no run"):
        list(rescore(ledger, SMALL_RUBRIC))


def test_ledger_of_a_grader_class_of_the_user_is_refused(tmp_path: Path) -> None:
    class OwnGrader(PerCriterionGrader):
        pass

    with Ledger(tmp_path / "run.sqlite") as ledger:
        list(grade_many(["good"], SMALL_RUBRIC, OwnGrader(InstantJudge()), ledger=ledger))
        with pytest.raises(LedgerError, match="the grader 'OwnGrader', which is not one of"):
            list(rescore(ledger, SMALL_RUBRIC))
