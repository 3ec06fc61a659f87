"""`certify(..., by="criterion")`: two promises for each criterion, ties, missing labels, and the thresholds' file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.judges import Cascade, Question, Thresholds
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import Judgment, LabelledJudgment
from rubric_integrations.trust import CriterionCertificates, agreement, certify
from rubric_integrations.trust.certification import SureAnswer, kept_needed, upper_bound
from rubric_integrations.trust.criterion_certificates import VerdictCertificate, certify_verdict
from tests.fakes import FakeJudge
from tests.trust.runs import run_of
from tests.trust.test_certification import with_confidence

FACTS, TONE = Criterion(requirement="States facts", name="facts"), Criterion(requirement="Is polite", name="tone")
Answer = tuple[str, float]


def judged(answers: Sequence[Sequence[Answer]], *criteria: Criterion) -> list[GradedRow]:
    """Make a run in which a decision judge gives each row these verdicts with these probabilities."""
    rubric = Rubric(list(criteria or (FACTS,)))
    rows = run_of(rubric, [[verdict for verdict, _ in row] for row in answers])
    return [_with_probabilities(row, of_row) for row, of_row in zip(rows, answers, strict=True)]


def _with_probabilities(row: GradedRow, answers: Sequence[Answer]) -> GradedRow:
    assert row.report
    entries: list[Any] = []
    for entry, (verdict, p) in zip(row.report.criteria, answers, strict=True):
        shares = {verdict: p, {"MET": "UNMET", "UNMET": "MET"}[verdict]: 1 - p}
        entries.append(entry.model_copy(update={"confidence": p, "probabilities": shares}))
    return row._replace(report=row.report.model_copy(update={"report": tuple(entries)}))


def label(number: int, verdict: str, criterion: Criterion = FACTS) -> LabelledJudgment:
    submission = Submission(response=f"response {number}")
    return LabelledJudgment(
        submission=submission, criterion=criterion, verdict=verdict, id=str(number), sampled="random", blind=True
    )


def strict(rows: Any, labels: Sequence[LabelledJudgment]) -> CriterionCertificates:
    return certify(rows, labels, alpha=0.05, delta=0.05, by="criterion")


def test_72_answers_without_an_error_are_needed_for_a_verdict_and_fewer_say_how_many_are_missing() -> None:
    needed = kept_needed(0.0, 0.05, 0.025)
    assert needed == 72
    for met, unmet in ((72, 71), (100, 0)):
        verdicts = ["MET"] * met + ["UNMET"] * unmet
        certificates = strict(
            judged([[(verdict, 0.9)] for verdict in verdicts]), [label(n, v) for n, v in enumerate(verdicts, start=1)]
        )
        entry = certificates.criteria["facts"]
        assert (entry.met.threshold, entry.met.labels_missing, entry.met.errors) == (0.9, 0, 0)
        assert (entry.unmet.threshold, entry.unmet.labelled, entry.unmet.labels_missing) == (
            None,
            unmet,
            needed - unmet,
        )
        assert f"UNMET not certified (about {needed - unmet} labelled UNMET answer" in certificates.summary()


def test_wrong_unmet_that_the_pooled_rate_hides_is_not_certified_and_has_the_pooled_threshold() -> None:
    rows = judged([[("MET", 0.97)]] * 900 + [[("UNMET", 0.97)]] * 100)
    truths = ["MET"] * 900 + ["MET", "UNMET", "UNMET", "UNMET"] * 25
    labels = [label(number, verdict) for number, verdict in enumerate(truths, start=1)]
    certificates = strict(rows, labels)
    assert certificates.pooled.threshold == 0.97
    entry = certificates.criteria["facts"]
    assert (entry.met.threshold, entry.unmet.threshold, entry.unmet.labels_missing) == (0.97, None, None)
    assert "UNMET not certified (25 of 100 labelled answers wrong, which is too many)" in certificates.summary()
    assert "counts from the pooled 0.97, which promises nothing about one criterion" in certificates.headline
    assert "These promises hold one by one, and not jointly" in certificates.headline
    assert "with probability 97.5%, at most 5.0% of the answers called so are wrong by labels" in certificates.headline
    [kept] = certificates.thresholds().criteria
    assert (kept.requirement, kept.name, kept.met, kept.unmet) == ("States facts", "facts", 0.97, None)
    assert "<td" in certificates._repr_html_()  # pyright: ignore[reportPrivateUsage]


def test_answers_tied_at_one_are_tested_together() -> None:
    # 55 of 100 answers are rounded to 1.00. None of the thresholds separates them.
    probabilities = ([1.0] * 55 + [0.99] * 20 + [0.9] * 25) * 3
    answers = [SureAnswer(p, False) for p in probabilities]
    certificate = certify_verdict("MET", probabilities, answers, 0.05, 0.025)
    assert [(step.threshold, step.kept, step.share) for step in certificate.steps] == [
        (1.0, 165, 0.55), (0.99, 225, 0.75), (0.9, 300, 1.0),
    ]  # fmt: skip
    wrong = [SureAnswer(p, p == 1.0 and n % 10 == 0) for n, p in enumerate(probabilities)]
    assert certify_verdict("MET", probabilities, wrong, 0.05, 0.025).threshold is None


def test_threshold_that_keeps_too_few_labels_is_left_out_of_the_sequence() -> None:
    # Half of 120 labelled answers are too few for a certificate, and all of them are enough.
    probabilities = [0.99] * 60 + [0.9] * 60
    answers = [SureAnswer(p, False) for p in probabilities]
    certificate = certify_verdict("MET", probabilities, answers, 0.05, 0.025)
    assert [step.threshold for step in certificate.steps] == [0.9]
    assert (certificate.threshold, certificate.kept) == (0.9, 120)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(50, 100), st.booleans()), max_size=120),
    st.lists(st.integers(50, 100), max_size=40),
    st.sampled_from([0.05, 0.2, 0.5]),
)
def test_certified_threshold_has_an_exact_bound_below_alpha(
    labelled: list[tuple[int, bool]], others: list[int], alpha: float
) -> None:
    answers = [SureAnswer(hundredths / 100, is_wrong) for hundredths, is_wrong in labelled]
    probabilities = [part.confidence or 0.0 for part in answers] + [hundredths / 100 for hundredths in others]
    certificate: VerdictCertificate = certify_verdict("UNMET", probabilities, answers, alpha, 0.025)
    assert certificate.labelled == len(answers)
    if certificate.threshold is None:
        assert certificate.labels_missing != 0
        return
    kept = [part.is_wrong for part in answers if (part.confidence or 0.0) >= certificate.threshold]
    assert (certificate.kept, certificate.errors) == (len(kept), sum(kept))
    assert certificate.bound == upper_bound(sum(kept), len(kept), 0.025) <= alpha
    assert certificate.labels_missing == 0


def simulate(count: int, source: random.Random) -> list[tuple[float, bool]]:
    """Draw the answers of an overconfident judge: their probabilities with two decimals, and whether they are wrong."""
    drawn = [source.betavariate(4, 0.4) for _ in range(count)]
    return [(max(0.5, round(p, 2)), source.random() < error_at(p)) for p in drawn]


def error_at(p: float) -> float:
    return 0.03 + 0.5 * (1 - p)


@cache
def true_error(threshold: float) -> float:
    source = random.Random(0)
    drawn = [p for p in (source.betavariate(4, 0.4) for _ in range(20_000)) if max(0.5, round(p, 2)) >= threshold]
    return sum(map(error_at, drawn)) / len(drawn)


@pytest.mark.statistics
def test_promise_about_a_verdict_is_broken_in_at_most_half_of_delta_of_simulated_runs() -> None:
    source, broken, certified = random.Random(3), 0, 0
    for _ in range(200):
        answers = [SureAnswer(*drawn) for drawn in simulate(300, source)]
        threshold = certify_verdict("MET", [a.confidence or 0 for a in answers], answers, 0.06, 0.05).threshold
        certified += threshold is not None
        broken += threshold is not None and true_error(threshold) > 0.06
    assert certified > 20
    assert broken <= 20


def test_criteria_are_independent_of_each_other_and_one_answer_of_a_group_counts() -> None:
    rows = judged([[("MET", 0.9), ("UNMET", 0.95)]] * 80, FACTS, TONE)
    labels = [label(n, "MET") for n in range(1, 81)] + [label(n, "UNMET", TONE) for n in range(1, 81)]
    certificates = strict(rows, labels)
    assert (certificates.criteria["facts"].met.threshold, certificates.criteria["tone"].unmet.threshold) == (0.9, 0.95)
    assert certificates.certified == 2
    grouped = certify(
        rows, labels, alpha=0.05, delta=0.05, by="criterion", cluster=lambda row_id: str(int(row_id) % 20)
    )
    assert grouped.criteria["facts"].met.labelled == 20
    alone = strict(rows, labels[:80])
    assert list(alone.criteria) == ["facts"]
    assert "1 binary criterion without labels: not certified" in alone.summary()


def test_cascade_keeps_what_is_certified_and_marks_the_labels_that_were_used() -> None:
    def answer(question: Question) -> Judgment:
        p = 0.9 if int(question.submission.response.split()[1]) % 2 else 0.2
        verdict, value = ("MET", 1.0) if p > 0.5 else ("UNMET", 0.0)
        shares: dict[str, float] = {"MET": p, "UNMET": 1 - p}
        return Judgment(verdict=verdict, value=value, confidence=max(p, 1 - p), probabilities=shares)

    rows = [{"id": str(number), "response": f"response {number}"} for number in range(1, 201)]
    rubric, cheap = Rubric([FACTS]), FakeJudge(answer)
    run = list(grade_many(rows, rubric, PerCriterionGrader(cheap)))
    labels = [label(n, "MET") for n in range(1, 161, 2)]
    thresholds = strict(run, labels).thresholds()
    assert (thresholds.source, thresholds.alpha, thresholds.delta) == ("certified", 0.05, 0.05)
    assert len(thresholds.trained_on) == 80
    other = Rubric([FACTS.model_copy(update={"name": "renamed"})])
    cascade = Cascade(cheap, thresholds=thresholds.model_copy(update={"pooled": None}))
    graded = list(grade_many(rows, other, PerCriterionGrader(cascade)))
    entries = [row.report.criteria[0] for row in graded if row.report]
    assert [entry.verdict for entry in entries[:2]] == ["MET", "CANNOT_ASSESS"]
    assert "UNMET has the probability 0.8, and never counts, because nothing is certified" in entries[1].reason
    assert sum(entry.trained_on for entry in entries) == 80
    with pytest.raises(ValueError, match="aligned with all 80 labels"):
        agreement(graded, labels)
    with pytest.raises(ValueError, match="`cheap` was graded by a cascade"):
        certify(graded, [label(200, "MET")], by="criterion")


def test_truth_of_an_expensive_judge_marks_nothing_as_used() -> None:
    rows = judged([[("MET", 0.9)]] * 80)
    certificates = strict(rows, run_of(Rubric([FACTS]), [["MET"]] * 80))  # type: ignore[arg-type]
    assert (certificates.certified, certificates.trained_on) == (1, ())


def test_file_names_the_judge_of_the_run_or_the_one_that_is_passed(tmp_path: Path) -> None:
    rows = judged([[("MET", 0.9)]] * 80)
    named = [row._replace(scoring={"grader": {"names": ["openai/gpt-4.1-nano"]}}) for row in rows]
    labels = [label(n, "MET") for n in range(1, 81)]
    path = tmp_path / "judge.json"
    strict(named, labels).save(path)
    cascade = Cascade("openai/gpt-4.1-nano", thresholds=path)
    assert (cascade.thresholds.judge, cascade.thresholds.criteria[0].met) == ("openai/gpt-4.1-nano", 0.9)
    assert strict(rows, labels).thresholds().judge is None
    assert strict(rows, labels).thresholds("typesafe/jev-1.13.0").judge == "typesafe/jev-1.13.0"
    assert isinstance(strict(rows, labels).thresholds(), Thresholds)


def test_run_without_probabilities_and_another_grouping_are_refused() -> None:
    rows = run_of(Rubric([FACTS]), [["MET"]] * 80)
    labels = [label(n, "MET") for n in range(1, 81)]
    with pytest.raises(ValueError, match="needs the probability of each verdict, and the run has none"):
        strict(rows, labels)
    stated = [with_confidence(row, 0.8) for row in rows]
    assert strict(stated, labels).criteria["facts"].met.threshold == 0.8
    with pytest.raises(ValueError, match="`by` must be None or 'criterion', got 'row'"):
        certify(stated, labels, by="row")  # type: ignore[call-overload]
