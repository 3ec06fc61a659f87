"""`drift` asks a judge again, and tells a judge that has changed from one that contradicts itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations, product
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Check, Criterion, Rubric, Submission, grade_many
from rubric_integrations.graders import PerCriterionGrader, PerCriterionOneShotGrader
from rubric_integrations.judges import Cascade, LMJudge, Question
from rubric_integrations.runs import Ledger
from rubric_integrations.runs.files import RunFile, run_line
from rubric_integrations.runs.ledger import LedgerError
from rubric_integrations.scoring import JudgeFailure, Judgment
from rubric_integrations.submission.attachments import StoredAttachment
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import DriftReport, drift
from rubric_integrations.trust.judge_drift import direction_p_value, odd_answers_p_value
from tests.conftest import SHARED
from tests.openai_server import OpenAIServer, Reply
from tests.trust.runs import labels_of

RUBRIC = Rubric(
    [Criterion(name="a", requirement="Is a", weight=1.0), Criterion(name="b", requirement="Is b", weight=2.0)]
)
Verdict = Callable[[int, str], bool]


class Model:
    """A judge whose answers a test replaces: first those of the run, and then those of the check."""

    def __init__(self, is_met: Verdict):
        self.is_met: Verdict = is_met
        self.calls = 0
        self.judge = ScriptedJudge(self._answer)

    def _answer(self, question: Question) -> str | Judgment:
        self.calls += 1
        number = int(question.submission.response.split()[-1])
        return "MET" if self.is_met(number, question.criterion.name or "") else "UNMET"


def even(number: int, _criterion: str) -> bool:
    return number % 2 == 0


def noisy(rate: float, seed: int = 0) -> Verdict:
    rng = random.Random(seed)
    return lambda number, criterion: even(number, criterion) != (rng.random() < rate)


def rows(count: int) -> list[dict[str, str]]:
    return [{"id": str(number), "response": f"text {number}"} for number in range(count)]


def graded(model: Model, count: int = 100, **settings: Any) -> list[Any]:
    return list(grade_many(rows(count), RUBRIC, PerCriterionGrader(model.judge), **settings))


def test_steady_judge_is_not_shown_to_have_changed() -> None:
    model = Model(even)
    run = graded(model)
    report = drift(run, PerCriterionGrader(model.judge), repeat=2)
    assert (report.decision, report.shown_by, report.same_judge) == ("not shown to have changed", (), True)
    assert (report.rows, report.drawn, report.lost, report.stopped) == (100, 100, 0, None)
    assert report.criteria["a"].flips.value == 0
    assert report.criteria["a"].own_flips is not None
    assert report.noise is not None
    assert report.noise.flip_rates == {"a": 0.0, "b": 0.0}
    assert model.calls == 200 * 3
    assert report.p_values == {"direction": None, "abstentions": None, "mean": None, "flips": None}


def test_answers_that_moved_in_one_direction_are_a_change() -> None:
    model = Model(even)
    run = graded(model)
    model.is_met = lambda number, criterion: number % 2 == 0 or (criterion == "a" and number < 30)
    report = drift(run, PerCriterionGrader(model.judge))
    assert (report.decision, report.shown_by, report.moved) == ("changed", ("direction", "mean"), ("a",))
    assert report.criteria["a"].flips.value == 0.15
    assert report.criteria["a"].own_flips is None
    assert report.headline.startswith("The judge has changed: the answers to a moved in one direction; the mean score")


def test_flips_in_both_directions_are_a_change_only_with_a_repetition() -> None:
    model = Model(even)
    run = graded(model)
    model.is_met = lambda number, _criterion: (number % 2 == 0) != (number < 20)
    assert drift(run, PerCriterionGrader(model.judge)).decision == "not shown to have changed"
    report = drift(run, PerCriterionGrader(model.judge), repeat=2)
    assert (report.decision, report.shown_by) == ("changed", ("flips",))
    assert report.criteria["b"].flips.value == 0.2
    assert report.criteria["b"].own_flips is not None
    assert report.criteria["b"].own_flips.value == 0.0


@pytest.mark.statistics
def test_judge_that_contradicts_itself_is_not_changed() -> None:
    decisions = [
        drift(graded(model, 60), PerCriterionGrader(model.judge), repeat=2).decision
        for model in (Model(noisy(0.05, seed)) for seed in range(20))
    ]
    assert decisions.count("changed") <= 3


def test_p_value_of_odd_answers_is_that_of_all_exchanges() -> None:
    counts = [(2, 0, 1), (0, 0, 0), (1, 1, 0), (0, 0, 3)]
    observed = sum(earlier for earlier, _, _ in counts)
    sums = [sum(choice) for choice in product(*counts)]
    assert odd_answers_p_value(counts) == pytest.approx(sum(value >= observed for value in sums) / len(sums))
    assert len(set(permutations((1, 0, 0)))) == 3
    assert odd_answers_p_value([(0, 0, 0)] * 5) is None
    assert odd_answers_p_value([]) is None


def test_p_value_of_the_direction_is_the_exact_one_of_mcnemars_test() -> None:
    assert direction_p_value([1.0] * 9 + [0.0] * 50 + [-1.0] * 3) == pytest.approx(299 * 2 / 4096)
    # 6 of 6 are below .05 with the mid-p value after the correction for a second test, and above with the exact one.
    model = Model(even)
    run = graded(model, 60)
    model.is_met = lambda number, criterion: even(number, criterion) or (criterion == "a" and number < 12)
    report = drift(run, PerCriterionGrader(model.judge))
    assert (report.criteria["a"].p_value, report.criteria["a"].adjusted) == (0.03125, 0.03125)
    # The sizes of the changes of options do not count, and rows of one group count once.
    assert direction_p_value([0.1, 0.9, -0.5]) == 1.0
    assert direction_p_value([1.0] * 10 + [-1.0], np.array([0] * 10 + [1])) == 1.0
    assert direction_p_value([1.0, -1.0], np.array([0, 0])) is None
    assert direction_p_value([]) is None


@given(st.integers(1, 60), st.floats(0.001, 0.3))
def test_direction_is_significant_in_at_most_alpha_of_samples_whatever_the_number_of_changes(
    changes: int, alpha: float
) -> None:
    rejected = [
        comb(changes, rose) / 2**changes
        for rose in range(changes + 1)
        if (direction_p_value([1.0] * rose + [-1.0] * (changes - rose)) or 1.0) < alpha
    ]
    assert sum(rejected) <= alpha + 1e-12


def test_sample_is_the_same_each_time_whatever_the_order_of_the_rows() -> None:
    model = Model(even)
    run = graded(model)
    texts: list[set[str]] = []
    for each in (run, list(reversed(run))):
        model.judge.questions.clear()
        assert drift(each, PerCriterionGrader(model.judge), sample=10).rows == 10
        texts.append({question.submission.response for question in model.judge.questions})
    assert len(texts[0]) == 10
    assert texts[0] == texts[1]


def test_rows_with_the_same_text_are_asked_once() -> None:
    model = Model(even)
    same = [{"id": str(number), "response": f"text {number % 5}"} for number in range(40)]
    run = list(grade_many(same, RUBRIC, PerCriterionGrader(model.judge)))
    assert drift(run, PerCriterionGrader(model.judge)).drawn == 5
    # Rows with the same id but other texts are other rows.
    alike = [{"id": "one", "response": f"text {number}"} for number in range(6)]
    run = list(grade_many(alike, RUBRIC, PerCriterionGrader(model.judge)))
    model.is_met = lambda number, _criterion: number != 0
    report = drift(run, PerCriterionGrader(model.judge))
    assert (report.rows, report.criteria["a"].flips.value) == (6, pytest.approx(4 / 6))


def test_check_that_was_stopped_continues_and_a_complete_one_asks_again(tmp_path: Path) -> None:
    model, ledger = Model(even), tmp_path / "run.drift.sqlite"
    run, grader = graded(model, 20), PerCriterionGrader(model.judge)
    model.calls = 0
    stopped = drift(run, grader, repeat=2, ledger=ledger, max_calls=50)
    assert (stopped.decision, stopped.criteria, stopped.spend.calls) == ("inconclusive", {}, 50)
    assert "stopped after 5 of 20 rows" in stopped.headline
    # The judge changes between both parts: the answers of the first part stay.
    model.is_met = lambda number, criterion: not even(number, criterion)
    report = drift(run, grader, repeat=2, ledger=ledger, max_calls=30)
    assert (report.stopped, model.calls, report.rows) == (None, 80, 20)
    assert report.criteria["a"].flips.value == 0.0
    assert any("was continued" in warning for warning in report.warnings)
    # The check is complete. The next one must not take its answers for new ones.
    report = drift(run, grader, repeat=2, ledger=ledger)
    assert (model.calls, report.criteria["a"].flips.value, report.decision) == (160, 1.0, "changed")
    assert not any("was continued" in warning for warning in report.warnings)


def test_row_that_changed_between_both_parts_is_asked_anew(tmp_path: Path) -> None:
    model, ledger = Model(even), tmp_path / "run.drift.sqlite"
    grader = PerCriterionGrader(model.judge)
    run = graded(model, 20)
    assert drift(run, grader, ledger=ledger, max_calls=20).stopped
    model.calls = 0
    others = list(grade_many([{"id": str(n), "response": f"other {n}"} for n in range(20)], RUBRIC, grader))
    model.calls = 0
    assert drift(others, grader, ledger=ledger).rows == 20
    assert model.calls == 40


def test_check_that_stored_no_answer_is_not_continued(tmp_path: Path) -> None:
    model, ledger = Model(even), tmp_path / "run.drift.sqlite"
    run, grader = graded(model, 20), PerCriterionGrader(model.judge)
    assert drift(run, grader, ledger=ledger, max_calls=0).stopped
    report = drift(run, grader, ledger=ledger)
    assert not any("was continued" in warning for warning in report.warnings)
    # The same after a complete check.
    assert drift(run, grader, ledger=ledger, max_calls=0).stopped
    assert not any("was continued" in warning for warning in drift(run, grader, ledger=ledger).warnings)


def test_stopped_check_that_goes_on_with_another_judge_asks_it_about_all_rows(tmp_path: Path) -> None:
    model, ledger = Model(even), tmp_path / "run.drift.sqlite"
    run = graded(model, 20)
    assert drift(run, PerCriterionGrader(model.judge), ledger=ledger, max_calls=20).stopped
    other = Model(lambda number, criterion: not even(number, criterion))
    report = drift(run, PerCriterionGrader(other.judge), ledger=ledger)
    assert (other.calls, report.criteria["a"].flips.value, report.same_judge) == (40, 1.0, False)


def test_check_that_was_stopped_long_ago_is_not_continued(tmp_path: Path) -> None:
    model, path = Model(even), tmp_path / "run.drift.sqlite"
    run, grader = graded(model, 20), PerCriterionGrader(model.judge)
    assert drift(run, grader, ledger=path, max_calls=20).stopped
    with Ledger(path) as ledger:
        state = ledger.latest_grader()
        assert state is not None
        ledger.record_grader({**state, "started": "2020-01-01T00:00:00+00:00"})
    model.calls = 0
    assert drift(run, grader, ledger=path).started > "2021"
    assert model.calls == 40


def test_ledger_of_a_run_is_refused(tmp_path: Path) -> None:
    model, ledger = Model(even), tmp_path / "run.sqlite"
    run = graded(model, 5, ledger=ledger)
    with pytest.raises(LedgerError, match="is the ledger of a run: name another file"):
        drift(run, PerCriterionGrader(model.judge), ledger=ledger)


def test_another_judge_is_told_and_unknown_without_a_record() -> None:
    model = Model(even)
    run = graded(model, 20)
    other = ScriptedJudge("MET")
    report = drift(run, PerCriterionGrader(other))
    assert (report.same_judge, report.decision) == (False, "changed")
    assert report.judge_line.startswith("The judge's fingerprint differs from the recorded one. another judge")
    assert "the program's" not in report.judge_line
    unrecorded = [row._replace(scoring=None) for row in RunFile.of("run", run).rows]
    report = drift(unrecorded, PerCriterionGrader(model.judge))
    assert report.same_judge is None
    assert "does not record the judge's settings" in report.judge_line


def test_failures_are_left_out_and_many_of_them_decide_nothing() -> None:
    model = Model(even)
    run = graded(model, 100)

    def answer(question: Question, most: int) -> str | JudgeFailure:
        number = int(question.submission.response.split()[-1])
        return JudgeFailure("parse", "no verdict") if number < most else "MET"

    few = drift(run, PerCriterionGrader(ScriptedJudge(lambda question: answer(question, 5)), on_failure="abstain"))
    assert (few.lost, few.decision, few.criteria["a"].flips.n) == (10, "changed", 95)
    many = drift(run, PerCriterionGrader(ScriptedJudge(lambda question: answer(question, 20)), on_failure="abstain"))
    assert (many.lost, many.decision, many.shown_by) == (40, "inconclusive", ())
    assert "40 answers are missing" in many.headline


def test_final_answers_of_panels_and_cascades_are_compared() -> None:
    models = [Model(even), Model(even), Model(lambda number, _criterion: True)]
    panel = PerCriterionGrader(judges=[model.judge for model in models])
    run = list(grade_many(rows(30), RUBRIC, panel))
    models[0].is_met = lambda number, _criterion: number % 2 == 0 or number == 1
    report = drift(run, panel)
    # Two of three still answer UNMET, except about row 1.
    assert report.criteria["a"].flips.value == pytest.approx(1 / 30)
    cascade = PerCriterionGrader(Cascade([models[0].judge, models[1].judge], models[2].judge, 0))
    run = list(grade_many(rows(30), RUBRIC, cascade))
    models[1].is_met = models[0].is_met
    report = drift(run, cascade)
    # They differed about row 1, and the strong judge answered MET. Now they agree on the same answer.
    assert (report.criteria["a"].flips.value, report.same_judge) == (0.0, True)


def test_rubric_of_the_run_is_needed_if_judges_read_more_and_another_one_is_refused() -> None:
    with_context = Rubric([Criterion(name="a", requirement="Is a", context="A document."), RUBRIC.criteria[1]])
    model = Model(even)
    grader = PerCriterionGrader(model.judge)
    run = list(grade_many(rows(20), with_context, grader))
    with pytest.raises(ValueError, match=r"criterion `a` \(`context`\): pass the rubric of the run"):
        drift(run, grader)
    assert drift(run, grader, rubric=with_context).decision == "not shown to have changed"
    contexts = {question.criterion.name: question.criterion.context for question in model.judge.questions[-40:]}
    assert contexts == {"a": "A document.", "b": None}
    with pytest.raises(ValueError, match="the criterion `a` of `rubric` has other context than in the run"):
        drift(run, grader, rubric=RUBRIC)
    with pytest.raises(ValueError, match=r"`rubric` lacks the criterion `a` 'Is a' of the row"):
        drift(run, grader, rubric=Rubric([Criterion(name="a", requirement="Is A")]))
    with pytest.raises(ValueError, match="other instructions"):
        drift(run, grader, rubric=Rubric(with_context.criteria, guidelines="Be strict."))


def test_only_judged_criteria_are_asked_and_other_weights_are_no_other_rubric() -> None:
    checked = Rubric([*RUBRIC.criteria, Criterion(name="words", requirement="Is brief", check=Check(max_words=5))])
    model = Model(even)
    grader = PerCriterionOneShotGrader(model.judge)
    run = list(grade_many(rows(20), checked, grader))
    report = drift(run, grader)
    assert list(report.criteria) == ["a", "b"]
    assert report.score.value == 0.0
    heavier = Rubric([criterion.model_copy(update={"weight": 5.0}) for criterion in checked.criteria])
    assert drift(run, grader, rubric=heavier).decision == "not shown to have changed"


def test_rows_without_texts_or_files_are_told_and_none_at_all_is_an_error() -> None:
    model = Model(even)
    all_rows = list(RunFile.of("run", graded(model, 20)).rows)
    file = StoredAttachment.model_validate({"path": "chart.png", "mime_type": "image/png"})
    partly = [row._replace(submission=None) if place < 3 else row for place, row in enumerate(all_rows)]
    partly[5] = partly[5]._replace(attachments=(file,))
    report = drift(partly, PerCriterionGrader(model.judge))
    assert report.drawn == 16
    assert any("3 of 20 rows cannot be asked again, because the run lacks their texts" in w for w in report.warnings)
    assert any("1 of 20 rows cannot be asked again, because the run lacks their files" in w for w in report.warnings)
    with pytest.raises(ValueError, match="there is nothing to ask again"):
        drift([row._replace(submission=None) for row in all_rows], PerCriterionGrader(model.judge))
    with pytest.raises(ValueError, match="no row has an answer of a judge"):
        drift([row._replace(report=None) for row in all_rows], PerCriterionGrader(model.judge))


def test_run_that_was_stopped_is_checked_by_its_rows(tmp_path: Path) -> None:
    model = Model(even)
    path = tmp_path / "run.jsonl"
    path.write_text("".join(run_line(each) for each in graded(model, 30)[:20]))
    with pytest.warns(UserWarning, match="20 of 30 rows"):
        assert drift(path, PerCriterionGrader(model.judge)).rows == 20


def test_labels_hold_or_no_longer_hold() -> None:
    model = Model(even)
    run = graded(model)
    answers = [["MET" if even(number, "") else "UNMET"] * 2 for number in range(100)]
    labels = [
        label.model_copy(update={"submission": Submission(response=f"text {int(label.id or 0) - 1}"), "id": None})
        for label in labels_of(RUBRIC, answers)
    ]
    report = drift(run, PerCriterionGrader(model.judge), labels=labels)
    assert report.labels is not None
    assert (report.labels.strong, report.labels.cheap) == (1.0, 1.0)
    assert "not shown to have changed (accuracy 1.000 then and 1.000 now" in report.labels_line
    model.is_met = lambda number, criterion: even(number, criterion) != (number % 4 == 0)
    report = drift(run, PerCriterionGrader(model.judge), labels=labels)
    assert "no longer hold (accuracy 1.000 then and 0.750 now" in report.labels_line
    others = [label.model_copy(update={"submission": Submission(response="unknown")}) for label in labels]
    report = drift(run, PerCriterionGrader(model.judge), labels=others)
    assert (report.labels, report.labels_line) == (None, "")
    assert any("nothing about the labels" in warning for warning in report.warnings)


def test_model_is_asked_again_although_its_client_has_a_cache(server: OpenAIServer) -> None:
    import dspy

    lm = dspy.LM("openai/mock", api_base=server.url, api_key="none", cache=True)
    grader = PerCriterionGrader(LMJudge(lm))
    run = list(grade_many(rows(5), RUBRIC, grader))
    before = len(server.calls)
    server.script = lambda _call: Reply(verdict="UNMET")
    report = drift(run, grader, repeat=2)
    assert (len(server.calls) - before, report.decision) == (20, "changed")
    assert (report.same_judge, report.criteria["a"].flips.value) == (True, 1.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sample": 0}, "`sample`"),
        ({"repeat": 3}, "`repeat`"),
        ({"alpha": 0}, "`alpha` must be above 0 and below 1, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], words: str) -> None:
    model = Model(even)
    with pytest.raises(ValueError, match=words):
        drift(graded(model, 5), PerCriterionGrader(model.judge), **settings)


def test_undefined_figures_are_none() -> None:
    model = Model(lambda number, _criterion: True)
    run = graded(model, 10)
    report: DriftReport = drift(run, PerCriterionGrader(model.judge), cluster=lambda row: int(row) % 2)
    assert report.criteria["a"].kappa.value is None
    assert (report.criteria["a"].p_value, report.criteria["a"].flips.low) == (None, None)


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_judge_that_now_abstains_has_changed(share: float) -> None:
    model = Model(even)
    run = graded(model)

    def answer(question: Question) -> str:
        number = int(question.submission.response.split()[-1])
        return "CANNOT_ASSESS" if number < share * 100 else "MET" if even(number, "") else "UNMET"

    report = drift(run, PerCriterionGrader(ScriptedJudge(answer)))
    assert (report.decision, report.shown_by) == ("changed", ("abstentions",))
    assert "abstentions on a, b became more frequent" in report.headline
    # The other way round, and for rows in groups.
    run = list(grade_many(rows(100), RUBRIC, PerCriterionGrader(ScriptedJudge(answer))))
    report = drift(run, PerCriterionGrader(model.judge), cluster=lambda row: int(row) // 2)
    assert report.shown_by == ("abstentions",)
    assert "abstentions on a, b became less frequent" in report.headline


def test_too_few_rows_to_show_a_change_are_inconclusive() -> None:
    model = Model(even)
    report = drift(graded(model, 3), PerCriterionGrader(model.judge))
    assert report.decision == "inconclusive"
    assert "with 3 rows, no change of direction can be shown: at least 7 are needed" in report.headline
    assert drift(graded(model, 6), PerCriterionGrader(model.judge)).decision == "inconclusive"
    assert drift(graded(model, 7), PerCriterionGrader(model.judge)).decision == "not shown to have changed"
    report = drift(graded(model, 40), PerCriterionGrader(model.judge), cluster=lambda row: int(row) % 4)
    assert "with 4 groups of rows, no change of direction can be shown: at least 7 are needed" in report.headline
    model = Model(even)
    run = graded(model, 8)
    model.is_met = lambda number, criterion: not even(number, criterion)
    assert drift(run, PerCriterionGrader(model.judge), repeat=2).decision == "changed"


def test_accuracy_that_dropped_is_a_change() -> None:
    model = Model(even)
    run = graded(model)
    answers = [["MET" if even(number, "") else "UNMET"] * 2 for number in range(100)]
    labels = labels_of(RUBRIC, answers)
    labels = [
        label.model_copy(update={"submission": Submission(response=f"text {int(label.id or 0) - 1}"), "id": None})
        for label in labels
    ]
    # As many answers move up as down.
    model.is_met = lambda number, _criterion: (number % 2 == 0) != (number < 20)
    report = drift(run, PerCriterionGrader(model.judge), labels=labels)
    assert (report.decision, report.shown_by) == ("changed", ("labels",))
    assert "no longer hold" in report.labels_line
    assert "the accuracy by the labels moved by -0.200" in report.headline


def test_another_judge_without_a_change_is_inconclusive() -> None:
    model, other = Model(even), Model(even)
    report = drift(graded(model), PerCriterionGrader(other.judge))
    assert (report.same_judge, report.decision) == (False, "inconclusive")
    assert report.headline.startswith("inconclusive: this check asked another judge than the run's")
    other.is_met = lambda number, criterion: not even(number, criterion)
    assert drift(graded(model), PerCriterionGrader(Model(lambda _number, _criterion: True).judge)).headline.startswith(
        "The judge has changed, and is another one than the run's: "
    )


def test_judge_that_is_asked_by_another_strategy_is_inconclusive_without_a_change() -> None:
    model = Model(even)
    run = graded(model)
    report = drift(run, PerCriterionOneShotGrader(model.judge))
    assert (report.same_judge, report.decision, report.warnings) == (True, "inconclusive", ())
    assert report.judge_line == (
        "The judge's fingerprint equals the recorded one, but it is asked otherwise: the grader's `strategy` is "
        "PerCriterionGrader in the run and PerCriterionOneShotGrader in this check."
    )
    assert report.reason.startswith("this check asked the judge otherwise than the run did")
    model.is_met = lambda _number, _criterion: True
    headline = drift(run, PerCriterionOneShotGrader(model.judge)).headline
    assert headline.startswith("The judge has changed, or the other way in which it is asked has changed its answers:")


def test_required_criterion_of_the_run_is_no_difference_of_the_check() -> None:
    model = Model(even)
    rubric = Rubric([criterion.model_copy(update={"required": True}) for criterion in RUBRIC.criteria])
    run = list(grade_many(rows(20), rubric, PerCriterionGrader(model.judge)))
    for of_check in (None, rubric):
        report = drift(run, PerCriterionGrader(model.judge), rubric=of_check)
        assert (report.same_judge, report.warnings) == (True, ())


@pytest.mark.parametrize(("count", "words"), [(1, "with 1 row, no change"), (2, "with 2 rows, no change")])
def test_reason_counts_one_row_and_two_rows(count: int, words: str) -> None:
    model = Model(even)
    assert words in drift(graded(model, count), PerCriterionGrader(model.judge)).reason


@pytest.mark.skipif(not (SHARED / "data" / "ttcw").exists(), reason="../shared/data does not exist")
def test_versions_of_claude_are_changes_of_a_judge_and_each_is_equal_to_itself() -> None:
    from benchmarks.judge_changes import is_changed, with_scores
    from rubric_integrations.trust.benchmarks.figures import Benchmark
    from rubric_integrations.trust.benchmarks.sets import load_set

    ttcw = Benchmark(load_set("ttcw", SHARED / "data"))
    runs = {judge.name: with_scores(ttcw.rows_of([judge])) for judge in ttcw.data.judges if "Claude" in judge.name}
    assert set(runs) >= {"Claude 1.3", "Claude 2.1", "Claude 3 Opus"}
    assert is_changed([runs["Claude 1.3"], runs["Claude 2.1"]])[0]
    assert is_changed([runs["Claude 2.1"], runs["Claude 3 Opus"]])[0]
    assert not is_changed([runs["Claude 3 Opus"]] * 3)[0]
