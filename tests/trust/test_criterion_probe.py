"""`probe_criteria` with scripted judges: planted faults through real mutants, failures, ledgers, limits and texts."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import (
    Check,
    Criterion,
    Option,
    PerCriterionGrader,
    Rubric,
    Scale,
)
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import Question
from rubric_integrations.rubric.case import Case
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import MutationReport, ProbedCriterion, criterion_probe, probe_criteria, run_cases
from rubric_integrations.trust.criterion_probe import COLUMNS, MutationPlan
from rubric_integrations.trust.mutations import mutations_of

SENTENCE = "The margin was 17.2% in Q4."
WITH = [f"{SENTENCE} Sales rose in Asia.", f"Sales fell, and costs rose. {SENTENCE}"]
WITHOUT = ["Nothing is known about sales.", "It is too early to call it a success."]


def cases_of(name: str, yes: Any = "MET", no: Any = "UNMET", evidence: Any = SENTENCE) -> list[dict[str, Any]]:
    named = {} if evidence is None else {"evidence": evidence}
    with_it = [{"response": text, **named, "expect": {"verdicts": {name: yes}}} for text in WITH]
    without = [{"response": text, "expect": {"verdicts": {name: no}}} for text in WITHOUT]
    return [{"name": f"case {number}", **case} for number, case in enumerate([*with_it, *without])]


MARGIN = Criterion(name="margin", requirement="States the margin as 17.2%")
RUBRIC = Rubric([MARGIN], cases=cases_of("margin"))


def sees_margin(text: str) -> bool:
    return SENTENCE in text and f"not true that t{SENTENCE[1:]}" not in text and f"false: {SENTENCE}" not in text


def probe(answer: Callable[[str], Any], rubric: Rubric = RUBRIC, **settings: Any) -> MutationReport:
    judge = ScriptedJudge(lambda question: answer(question.submission.response))
    return probe_criteria(rubric, PerCriterionGrader(judge, on_failure="abstain", max_retries=0), **settings)


def margin_of(report: MutationReport) -> ProbedCriterion:
    return report.criteria["margin"]


def verdict(is_met: bool) -> str:
    return "MET" if is_met else "UNMET"


def test_good_criterion_has_no_fault_and_its_mutants_flip_only_without_their_evidence() -> None:
    report = probe(lambda text: verdict(sees_margin(text)))
    margin = margin_of(report)
    assert margin.faults == ()
    assert margin.findings == margin.untested == margin.left_out == ()
    assert all(mutant.flipped is mutant.must_change for mutant in report.mutants)
    assert (margin.result.evidence.flips, margin.result.evidence.count) == (10, 10)
    assert set(margin.result.evidence_kinds) == {"removed", "number", "negation"}
    assert [(row.kind, row.from_lowest, row.rate.count) for row in margin.result.additions] == [
        ("length", False, 10), ("tone", False, 10), ("format", False, 10),
        ("length", True, 10), ("tone", True, 10), ("format", True, 10), ("claim", True, 10),
    ]  # fmt: skip
    assert report.table() == [("margin", "10/10", *["0/10, 0/10*"] * 3, "0/10*", "0/20", "-")]
    assert len(report.table()[0]) == len(COLUMNS)


COIN = (sha256(str(number).encode()).digest()[0] < 128 for number in count())


PLANTED: list[tuple[Callable[[str], str], str, str]] = [
    (lambda text: verdict("sales" not in text and "early" not in text), "blind", "`margin` is blind: 0 of 10"),
    (lambda text: verdict(sees_margin(text) or len(text) > 150), "length", "`margin` depends on length: 8 of 10"),
    (lambda text: verdict(sees_margin(text) and len(text) < 150), "length", "another verdict than MET"),
    (lambda text: verdict(sees_margin(text) or "correct" in text), "claim", "can be talked into `margin`"),
    (lambda text: verdict(sees_margin(text) and "#" not in text and "*" not in text and "---" not in text),
     "format", "if it should, write `sensitive_to: [format]`"),
    (lambda text: verdict(next(COIN)), "flaky", "contradicts itself on `margin`"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "fault", "words"), PLANTED)
def test_planted_fault_is_found_and_explained(answer: Callable[[str], str], fault: str, words: str) -> None:
    report = probe(answer)
    margin = margin_of(report)
    assert fault in margin.faults
    assert any(words in finding for finding in margin.findings), margin.findings
    assert margin.findings[0] in report.summary()
    assert fault in report.table()[0][-1]


def test_declared_sensitivity_is_not_tested() -> None:
    rubric = Rubric([MARGIN.model_copy(update={"sensitive_to": ("length",)})], cases=cases_of("margin"))
    report = probe(lambda text: verdict(sees_margin(text) and len(text) < 150), rubric)
    assert margin_of(report).faults == ()
    assert margin_of(report).untested == ("not tested for length: it is `sensitive_to` it",)
    assert not [mutant for mutant in report.mutants if mutant.kind == "length"]


def test_rubric_without_evidence_says_so() -> None:
    report = probe(lambda text: verdict(sees_margin(text)), Rubric([MARGIN], cases=cases_of("margin", evidence=None)))
    assert "not tested for blindness: name `evidence`" in margin_of(report).untested
    assert "`margin`: not tested for blindness: name `evidence`" in report.summary()


def test_criterion_without_cases_is_named() -> None:
    rubric = Rubric([MARGIN, Criterion(name="tone", requirement="Is kind")], cases=cases_of("margin"))
    report = probe(lambda text: verdict(sees_margin(text)), rubric)
    assert report.criteria["tone"].untested == ("not tested: no case expects a verdict on it",)


def test_few_mutants_are_not_enough_for_blindness() -> None:
    report = probe(lambda text: verdict("sales" not in text), mutants=4)
    assert "blind" not in margin_of(report).faults
    assert "not tested for blindness: 4 of at least 5 mutants; add cases with `evidence`" in margin_of(report).untested


def test_case_that_the_judge_answers_otherwise_has_no_mutants() -> None:
    report = probe(lambda text: verdict(sees_margin(text) and "Asia" not in text))
    assert margin_of(report).left_out == ("case 0",)
    assert "case 0" not in {mutant.case for mutant in report.mutants}


def test_failed_judge_is_neither_a_flip_nor_the_absence_of_one() -> None:
    def answer(text: str) -> Any:
        is_polite = any(word in text for word in ("Thank you", "happy", "pleasure", "hope", "hesitate"))
        return JudgeFailure("parse", "no JSON") if is_polite else verdict(sees_margin(text))

    report = probe(answer)
    failed = [mutant for mutant in report.mutants if mutant.error]
    assert {mutant.kind for mutant in failed} == {"tone"}
    assert {(mutant.verdict, mutant.flipped) for mutant in failed} == {(None, None)}
    assert report.failed == margin_of(report).failed == len(failed) == 20
    assert margin_of(report).faults == ()
    assert margin_of(report).untested == ("not tested for tone: the judge failed on its mutants",)


def test_abstention_is_a_flip() -> None:
    report = probe(lambda text: verdict(sees_margin(text)) if text in (*WITH, *WITHOUT) else "CANNOT_ASSESS")
    assert all(mutant.flipped for mutant in report.mutants)


def test_penalty_starts_from_the_error_and_is_talked_away() -> None:
    penalty = Criterion(name="margin", requirement="States a margin of 17.2%", weight=-5)
    rubric = Rubric([penalty], cases=cases_of("margin"))
    report = probe(lambda text: verdict(sees_margin(text) and "correct" not in text), rubric)
    assert margin_of(report).faults == ("claim",)
    assert set(margin_of(report).result.evidence_kinds) == {"removed", "negation"}


def test_criteria_in_a_group_with_a_negative_weight_are_penalties() -> None:
    rubric = Rubric.from_yaml("""
criteria:
  - {name: kind, weight: 1, requirement: Is kind}
  - name: errors
    weight: -2
    requirement: Has errors
    criteria: [{name: margin, weight: 1, requirement: States a wrong margin}]
""").with_cases([Case.model_validate(case) for case in cases_of("margin")])
    report = probe(lambda text: verdict(sees_margin(text) and "correct" not in text), rubric)
    assert margin_of(report).faults == ("claim",)


@pytest.mark.parametrize(
    ("fields", "yes", "no"),
    [
        ({"options": [Option(label="none", value=0), Option(label="some", value=1)]}, "some", "none"),
        ({"options": [Option(label="none", value=0.5), Option(label="some", value=0.5)], "scale_type": "nominal"},
         "some", "none"),
        ({"scale": Scale(min=0, max=10)}, 9, 1),
        ({"per": "occurrence", "cap": 3}, 1, 0),
    ],
)  # fmt: skip
def test_options_and_scales_are_blind_or_not(fields: dict[str, Any], yes: Any, no: Any) -> None:
    expected = {"yes": [8, 10] if yes == 9 else yes, "no": [0, 2] if no == 1 else no}
    rubric = Rubric([Criterion(name="kind", requirement="r", **fields)], cases=cases_of("kind", **expected))
    good = probe(lambda text: yes if sees_margin(text) else no, rubric).criteria["kind"]
    assert (good.faults, good.left_out) == ((), ())
    assert good.result.evidence.flips == good.result.evidence.count == 10
    blind = probe(lambda text: yes if "Sales " in text else no, rubric).criteria["kind"]
    assert blind.faults == ("blind",)
    gullible = probe(lambda text: yes if sees_margin(text) or "correct" in text else no, rubric).criteria["kind"]
    assert gullible.faults == ("claim",)


def test_check_is_not_tested() -> None:
    check = Criterion(name="margin", requirement="Names it", check=Check(contains="17.2%"))
    report = probe_criteria(Rubric([check], cases=cases_of("margin")), PerCriterionGrader("offline"))
    assert report.mutants == ()
    assert margin_of(report).untested == ("not tested: a check decides it",)


def test_ambiguous_evidence_is_not_used_and_named() -> None:
    cases = [
        {**case, "expect": {"verdicts": dict.fromkeys(("margin", "kind"), "MET")}} for case in cases_of("margin")[:2]
    ]
    report = probe(lambda _text: "MET", Rubric([MARGIN, Criterion(name="kind", requirement="Is kind")], cases=cases))
    assert "not tested for blindness: name `evidence` for each criterion of a case" in margin_of(report).untested
    assert [row.faults for row in report.criteria.values()] == [(), ()]


def test_same_seed_gives_the_same_report_and_another_seed_other_mutants() -> None:
    first, again, other = (probe(lambda text: verdict(sees_margin(text)), seed=seed) for seed in (1, 1, 2))
    assert [mutant.name for mutant in first.mutants] == [mutant.name for mutant in again.mutants]
    assert {mutant.name for mutant in first.mutants} != {mutant.name for mutant in other.mutants}
    assert pickle.loads(pickle.dumps(first)) == first


def test_ledger_answers_a_second_probe_and_the_cases_of_a_report_are_not_asked_again(tmp_path: Path) -> None:
    judge = ScriptedJudge(lambda question: verdict(sees_margin(question.submission.response)))
    grader = PerCriterionGrader(judge)
    report = run_cases(RUBRIC, grader, repeat=5, ledger=tmp_path / "ledger.sqlite")
    assert len(judge.questions) == 20
    first = probe_criteria(RUBRIC, grader, cases=report, ledger=tmp_path / "ledger.sqlite")
    requests = len(judge.questions)
    assert requests == 20 + len(first.mutants)
    assert margin_of(first).result.noise.count == 20
    second = probe_criteria(RUBRIC, grader, ledger=tmp_path / "ledger.sqlite")
    assert len(judge.questions) == requests
    assert second.criteria == first.criteria


def test_number_of_questions_is_planned_before_the_judge_is_asked() -> None:
    judge = ScriptedJudge(lambda question: verdict(sees_margin(question.submission.response)))
    grader = PerCriterionGrader(judge)
    plan = MutationPlan(RUBRIC, grader)
    planned = sum(len(row.rubric.criteria) for row in plan.rows(plan.select()))
    probe_criteria(RUBRIC, grader, repeat=2)
    assert len(judge.questions) == planned + 8


def test_limit_stops_the_mutants_and_keeps_what_was_answered() -> None:
    report = probe(lambda text: verdict(sees_margin(text)), max_calls=25)
    assert report.stopped is not None
    assert report.stopped == "`max_calls` of 5 is reached; the unchanged cases had used the rest"
    assert margin_of(report).untested == ("not completely tested: the run was stopped",)
    assert len(report.mutants) == 5
    assert report.spend.calls == 25


def test_one_shot_grader_is_asked_about_all_criteria_as_in_the_unchanged_cases() -> None:
    rubric = Rubric([MARGIN, Criterion(name="other", requirement="Is kind")], cases=cases_of("margin"))
    seen: list[int] = []

    def answer(question: Question) -> str:
        seen.append(1)
        return verdict(sees_margin(question.submission.response))

    report = probe_criteria(rubric, PerCriterionOneShotGrader(ScriptedJudge(answer)))
    assert len(seen) == 2 * (20 + len(report.mutants))
    assert margin_of(report).faults == ()


def test_criteria_with_the_same_added_text_are_one_row() -> None:
    criteria = [Criterion(name=name, requirement=name) for name in ("margin", "other")]
    cases = [{**case, "expect": {"verdicts": dict.fromkeys(("margin", "other"), "MET")}} for case in cases_of("margin")]
    plan = MutationPlan(Rubric(criteria, cases=cases), PerCriterionGrader("offline"))
    rows = plan.rows(plan.select())
    assert {len(row.mutants) for row in rows if not next(iter(row.mutants.values())).must_change} == {2}


def test_guidelines_and_conditions_stay_in_the_questions() -> None:
    criterion = Criterion(name="margin", requirement="States it", applies_when="There is a margin")
    rubric = Rubric([criterion], guidelines="Be strict.", cases=cases_of("margin"))
    judge = ScriptedJudge(
        lambda question: (
            "MET" if question.criterion.is_condition else verdict(sees_margin(question.submission.response))
        )
    )
    report = probe_criteria(rubric, PerCriterionGrader(judge))
    assert margin_of(report).faults == ()
    assert {question.guidelines for question in judge.questions} == {"Be strict."}


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"mutants": 0}, "`mutants` must be at least 1"), ({"alpha": 0}, "`alpha`"), ({"repeat": 0}, "`repeat`")],
)
def test_setting_out_of_range_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        probe(lambda text: "MET", **settings)


def test_grader_without_verdicts_and_rubric_without_cases_are_refused() -> None:
    with pytest.raises(ValueError, match="has no test cases"):
        probe(lambda text: "MET", RUBRIC.without_cases())
    with pytest.raises(ValueError, match="only an overall score"):
        probe_criteria(RUBRIC, RubricAsJudgeGrader(ScriptedJudge("MET")))


def test_unrepeated_answers_are_compared_with_the_assumed_noise() -> None:
    report = probe(lambda text: verdict(sees_margin(text) and len(text) < 150), repeat=1)
    assert margin_of(report).faults == ("length",)
    assert any("20 %, which is assumed" in finding for finding in margin_of(report).findings)


def test_report_in_a_notebook_escapes_the_names_of_criteria() -> None:
    rubric = Rubric([MARGIN.model_copy(update={"name": "<b>"})], cases=cases_of("<b>"))
    assert "<b><" not in probe(lambda text: "MET", rubric)._repr_html_()  # pyright: ignore[reportPrivateUsage]


def test_many_cases_are_read_only_until_there_are_enough_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def counting(case: Case, key: str, criterion: Criterion, seed: int) -> Any:
        reads.append(case.name)
        return mutations_of(case, key, criterion, seed)

    monkeypatch.setattr(criterion_probe, "mutations_of", counting)
    cases = [{**case, "name": f"{number} {case['name']}"} for number in range(50) for case in cases_of("margin")]
    plan = MutationPlan(Rubric([MARGIN], cases=cases), PerCriterionGrader("offline"), mutants=3)
    assert len(plan.select()["margin"]) == 3 + 3 * 3 + 4 * 3
    assert len(reads) <= 2 * 9


def answers_with(fault: str, seed: int) -> Callable[[str], str]:
    """Return the answers of a judge with a planted fault, of which 2 % are wrong by chance."""
    numbers = random.Random(seed)

    def answer(text: str) -> str:
        is_met = {
            "none": sees_margin(text),
            "blind": "sales" not in text and "early" not in text,
            "length": sees_margin(text) and len(text) < 150,
            "claim": sees_margin(text) or "correct" in text,
            "flaky": numbers.random() < 0.5,
        }[fault]
        return verdict(is_met != (numbers.random() < 0.02))

    return answer


@pytest.mark.statistics
@pytest.mark.parametrize("fault", ["none", "blind", "length", "claim", "flaky"])
def test_planted_fault_is_found_through_real_mutants_of_many_seeds(fault: str) -> None:
    faults = [margin_of(probe(answers_with(fault, seed), seed=seed)).faults for seed in range(25)]
    assert sum(fault in each for each in faults) >= (0 if fault == "none" else 20)
    assert sum(bool(set(each) - {fault}) for each in faults) <= 3
