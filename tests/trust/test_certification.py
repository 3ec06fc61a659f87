"""From which confidence on a cheap judge may be trusted: the promise, ties, kinds of truth, and what is refused."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.judges import Cascade, Question
from rubric_integrations.judges.thresholds import is_kept
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import Judgment, LabelledJudgment, to_judgment
from rubric_integrations.scoring.labels import Sampled
from rubric_integrations.trust import ChosenLabelsError, certify
from rubric_integrations.trust.certification import (
    SureAnswer,
    fixed_sequence_steps,
    kept_needed,
    thresholds_of,
    upper_bound,
)
from tests.cli.trust_files import write_run
from tests.fakes import FakeJudge
from tests.trust.runs import binary_rubric, run_of

ALPHA = DELTA = 0.1
ONE = binary_rubric(1)


def cheap_run(confidences: Sequence[float | None], rubric: Rubric = ONE) -> list[GradedRow]:
    """Make a run in which the cheap judge says MET everywhere, with one confidence a row; None is a failure."""
    answers = [["MET" if confidence is not None else None] * len(rubric) for confidence in confidences]
    rows = run_of(rubric, answers)
    return [with_confidence(row, confidence) for row, confidence in zip(rows, confidences, strict=True)]


def with_confidence(row: GradedRow, confidence: float | None, **changes: Any) -> GradedRow:
    assert row.report
    entries = [entry.model_copy(update={"confidence": confidence, **changes}) for entry in row.report.criteria]
    return row._replace(report=row.report.model_copy(update={"report": tuple(entries)}))


def truth_labels(wrong: Sequence[bool], sampled: Sampled = "random", rubric: Rubric = ONE) -> list[LabelledJudgment]:
    """Make people's labels of the first rows of a run: UNMET where the cheap judge is wrong."""
    return [
        LabelledJudgment(
            submission=Submission(response=f"response {number}"), criterion=criterion, id=str(number), sampled=sampled,
            verdict="UNMET" if is_wrong else "MET",
        )
        for number, is_wrong in enumerate(wrong, start=1)
        for criterion in rubric.criteria
    ]  # fmt: skip


def simulate(count: int, source: random.Random) -> tuple[list[float], list[bool]]:
    """Draw the confidences of a cheap judge that is wrong in about 10 % of all answers, and less where it is surer."""
    # Judges state few different numbers.
    confidences = [round(source.betavariate(5, 1), 2) for _ in range(count)]
    return confidences, [source.random() < error_at(confidence) for confidence in confidences]


def error_at(confidence: float) -> float:
    return min(0.5, 0.62 * (1.0 - confidence))


@cache
def true_error(threshold: float) -> float:
    """Compute the error rate among what a threshold keeps, from many draws."""
    kept = [c for c in POPULATION if c >= threshold]
    return math.fsum(map(error_at, kept)) / len(kept)


POPULATION = simulate(10_000, random.Random(1))[0]


@pytest.mark.parametrize("labels", [100, 300])
def test_promise_is_broken_in_at_most_delta_of_simulated_runs_and_a_naive_threshold_breaks_it(labels: int) -> None:
    source, alpha, runs = random.Random(labels), 0.06, 300
    broken = naive_broken = certified = 0
    for _ in range(runs):
        confidences, wrong = simulate(labels, source)
        answers = [SureAnswer(confidence, error) for confidence, error in zip(confidences, wrong, strict=True)]
        steps = [(threshold, 0.0) for threshold in thresholds_of(confidences)]
        held = [step.threshold for step in fixed_sequence_steps(answers, steps, alpha, DELTA) if step.holds]
        certified += bool(held)
        broken += bool(held) and true_error(held[-1]) > alpha
        # The lowest threshold with at most alpha of errors in the sample.
        naive = [t for t, _ in steps if sum(a.is_wrong for a in answers if (a.confidence or 0) >= t)
                 <= alpha * sum((a.confidence or 0) >= t for a in answers)]  # fmt: skip
        naive_broken += bool(naive) and true_error(naive[-1]) > alpha
    assert certified > runs / 8
    assert broken / runs <= DELTA + 0.03
    assert naive_broken / runs > 0.3


@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([0.05, 0.1, 0.3]))
def test_upper_bound_is_the_rate_at_which_so_few_errors_have_probability_delta(
    errors: int, others: int, delta: float
) -> None:
    count = errors + others
    bound = upper_bound(errors, count, delta)
    if errors >= count:
        assert bound == 1
    else:
        below = math.fsum(math.comb(count, k) * bound**k * (1 - bound) ** (count - k) for k in range(errors + 1))
        assert below == pytest.approx(delta, rel=1e-6)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, 0.0, 0.5, 0.9, 0.95, 0.99, 1.0]), st.booleans()), min_size=1, max_size=80
    ),
    st.sampled_from([0.05, 0.2, 0.5, 0.9]),
)
def test_certificate_counts_exactly_what_a_cascade_keeps_with_its_threshold(
    answers: list[tuple[float | None, bool]], alpha: float
) -> None:
    confidences, wrong = [pair[0] for pair in answers], [pair[1] for pair in answers]
    certificate = certify(cheap_run(confidences), truth_labels(wrong), alpha=alpha, delta=DELTA)
    assert certificate.n == len(answers)
    assert (certificate.threshold is None) == (certificate.reason is not None)
    if certificate.threshold is not None:
        assert certificate.bound is not None
        assert certificate.bound <= alpha
        value = [None if confidence is None else 1.0 for confidence in confidences]
        kept = [is_kept(v, c, certificate.threshold) for v, c in zip(value, confidences, strict=True)]
        assert certificate.kept.value == pytest.approx(sum(kept) / len(kept))
        assert certificate.kept_labels == sum(kept)
        assert certificate.errors == sum(error for error, of_kept in zip(wrong, kept, strict=True) if of_kept)


SURE = [0.99] * 80 + [0.6] * 20
WRONG = [False] * 80 + [True] * 20


def test_certificate_keeps_the_sure_answers_and_says_how_to_use_it() -> None:
    certificate = certify(cheap_run(SURE), truth_labels(WRONG))
    assert (certificate.threshold, certificate.n, certificate.errors, certificate.truth) == (0.99, 100, 0, "labels")
    assert certificate.kept.value == 0.8
    assert [step.holds for step in certificate.steps] == [True, False]
    assert "Certified: use `escalate_below=0.99`" in certificate.summary()
    assert "at most 10.0% of them are wrong by labels (0 of 80 labelled ones are)" in certificate.summary()
    assert "the confidence 0.99 for 80% of its answers, which no threshold separates" in certificate.summary()
    assert "<td" in certificate._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert Cascade(FakeJudge(), FakeJudge(), certificate.threshold).escalate_below == 0.99


def test_run_of_the_expensive_judge_on_a_sample_of_the_rows_is_the_truth() -> None:
    cheap = cheap_run(SURE)
    strong = run_of(ONE, [["UNMET" if error else "MET"] for error in WRONG])
    assert certify(cheap, strong).threshold == certify(cheap, truth_labels(WRONG)).threshold
    sample = certify(cheap, random.Random(0).sample(strong, 60))
    assert (sample.n, sample.truth, sample.threshold) == (60, "the strong judge", 0.99)
    assert "how often human labels differ is not known" in sample.summary()
    abstaining = certify(cheap, run_of(ONE, [["CANNOT_ASSESS"]] * 100))
    assert "80 of 80 labelled answers are wrong by the strong judge" in abstaining.summary()
    failed = certify(cheap, run_of(ONE, [["MET"]] * 99 + [[None]]))
    assert "1 judgments are left out, because the raters are divided or the strong judge failed" in failed.warnings


def test_truth_may_be_a_path_and_must_not_be_the_run_itself(tmp_path: Path) -> None:
    cheap = write_run(tmp_path / "cheap.jsonl", cheap_run(SURE))
    strong = write_run(tmp_path / "strong.jsonl", run_of(ONE, [["MET"]] * 100))
    assert certify(cheap, strong).threshold == 0.6
    with pytest.raises(ValueError, match="`truth` is the run of the cheap judge itself"):
        certify(cheap, cheap)


def test_too_few_labels_certify_nothing_and_the_number_needed_is_about_enough() -> None:
    few = certify(cheap_run(SURE), truth_labels([False] * 20))
    assert few.threshold is None
    assert few.labels_needed is not None
    assert "Nothing is certified, so escalate everything: where the judge is surest, 0 of 20" in few.summary()
    enough = [0.99] * few.labels_needed
    assert certify(cheap_run(enough), truth_labels([False] * few.labels_needed)).threshold == 0.99
    assert kept_needed(0.2, ALPHA, DELTA) is None


def test_alpha_below_the_error_of_the_judge_certifies_nothing_whatever_the_number_of_labels() -> None:
    wrong = [number % 4 == 0 for number in range(400)]
    certificate = certify(cheap_run([0.9] * 400), truth_labels(wrong))
    assert (certificate.threshold, certificate.labels_needed) == (None, None)
    assert "100 of 400 labelled answers are wrong by labels, more than 10.0%: labels cannot" in certificate.summary()
    near = certify(cheap_run([0.9] * 40), truth_labels([number % 8 == 0 for number in range(40)]))
    assert (near.threshold, near.labels_needed) == (None, None)
    assert "no more than 10.0% may be" in near.summary()


def test_one_judgment_of_each_submission_counts_and_of_each_input_with_a_cluster() -> None:
    rubric = binary_rubric(3)
    cheap, labels = cheap_run([0.9] * 60, rubric), truth_labels([False] * 60, rubric=rubric)
    assert certify(cheap, labels).n == 60
    assert certify(cheap, labels) == certify(cheap, list(reversed(labels)))
    assert certify(cheap, labels, cluster=lambda row_id: str(int(row_id) % 12)).n == 12


def half_wrong_labels(count: int) -> list[LabelledJudgment]:
    """Make labels of two criteria, on the second of which the cheap judge is always wrong."""
    return [
        label.model_copy(update={"verdict": "UNMET" if label.criterion.name == "c1" else "MET"})
        for label in truth_labels([False] * count, rubric=binary_rubric(2))
    ]


def test_draw_depends_on_the_judgments_alone_and_has_all_criteria() -> None:
    rows, labels = cheap_run([0.9] * 100, binary_rubric(2)), half_wrong_labels(100)
    errors = {certify(order, labels, alpha=0.9).errors for order in (rows, rows[::-1])}
    assert len(errors) == 1
    assert 30 < (errors.pop() or 0) < 70
    with pytest.raises(TypeError, match="seed"):
        certify(rows, labels, seed=1)  # type: ignore[call-arg]


def test_wrong_criterion_is_named_though_all_together_are_certified() -> None:
    rubric = binary_rubric(4)
    cheap = cheap_run([0.9] * 200, rubric)
    labels = [
        label.model_copy(update={"verdict": "UNMET" if label.criterion.name == "c2" and number % 40 < 12 else "MET"})
        for number, label in enumerate(truth_labels([False] * 200, rubric=rubric))
    ]
    certificate = certify(cheap, labels, alpha=0.15)
    assert certificate.threshold == 0.9
    named = [warning for warning in certificate.warnings if "`c" in warning]
    assert len(named) == 1
    assert named[0].startswith(
        "of the answers that are kept, 60 of 200 to `c2` are wrong, significantly more than 15.0%"
    )


def test_criterion_that_is_wrong_by_chance_is_not_named() -> None:
    wrong = [number % 10 == 0 for number in range(200)]
    warnings = certify(cheap_run([0.9] * 200), truth_labels(wrong), alpha=0.15).warnings
    assert not any("are wrong" in warning for warning in warnings)


def test_cluster_is_a_column_and_rows_with_one_query_are_named_without_it() -> None:
    rows = [
        row._replace(
            submission=Submission(response=f"response {row.id}", query=f"query {int(row.id) % 30}"),
            metadata={"topic": int(row.id) % 12},
        )
        for row in cheap_run([0.9] * 60)
    ]
    certificate = certify(rows, truth_labels([False] * 60), alpha=0.3, cluster="topic")
    assert (certificate.n, certificate.threshold) == (12, 0.9)
    assert not any("query" in warning for warning in certificate.warnings)
    alone = certify(rows, truth_labels([False] * 60))
    assert alone.n == 60
    assert any("--cluster query" in warning for warning in alone.warnings)
    with pytest.raises(ValueError, match="`cluster` is 'theme'"):
        certify(rows, truth_labels([False] * 60), cluster="theme")


def test_rows_with_one_id_are_one_cluster_without_a_warning() -> None:
    rows = cheap_run([0.9] * 60)
    rows = [row._replace(id=str((int(row.id) - 1) // 2 + 1), submission=None) for row in rows]
    strong = [row._replace(id=str((int(row.id) - 1) // 2 + 1), submission=None) for row in run_of(ONE, [["MET"]] * 60)]
    certificate = certify(rows, strong)
    assert certificate.n == 30
    assert not any("cluster" in warning for warning in certificate.warnings)


def test_run_without_confidence_certifies_all_verdicts_or_nothing() -> None:
    certificate = certify(run_of(ONE, [["MET"]] * 60), truth_labels([False] * 60))
    assert (certificate.threshold, certificate.signal, certificate.kept.value) == (0.0, "none", 1.0)
    assert "the run has no confidence" in certificate.summary()


def test_panel_of_cheap_judges_is_certified_where_all_agree() -> None:
    def answer(question: Question) -> Judgment:
        differs = int(question.submission.response.split()[1]) > 50
        return to_judgment(question.criterion, "UNMET" if differs else "MET")

    grader = PerCriterionGrader(judges=[FakeJudge("MET"), FakeJudge(answer)])
    run = list(grade_many([{"id": str(n), "response": f"response {n}"} for n in range(1, 101)], ONE, grader))
    certificate = certify(run, truth_labels([False] * 50 + [True] * 50))
    assert (certificate.threshold, certificate.signal, certificate.kept.value) == (0.0, "agreement", 0.5)
    assert "Answers with agreement are kept" in certificate.summary()


def test_answers_without_a_confidence_are_left_out_with_a_warning() -> None:
    rubric = Rubric([Criterion(requirement="Does 0", name="c0"), Criterion(requirement="Is checked", name="check")])
    rows = cheap_run([0.9] * 60, rubric)
    mixed: list[GradedRow] = []
    for row in rows:
        assert row.report
        first, second = row.report.criteria
        entries = (first, second.model_copy(update={"confidence": None}))
        mixed.append(row._replace(report=row.report.model_copy(update={"report": entries})))
    certificate = certify(mixed, truth_labels([False] * 60, rubric=rubric))
    assert (certificate.n, certificate.kept.value) == (60, 1.0)
    assert "60 judgments state no confidence" in certificate.summary()


def test_answers_by_whose_labels_the_judge_was_aligned_are_left_out() -> None:
    rows = cheap_run([0.9] * 60)
    rows[:10] = [with_confidence(row, 0.9, trained_on=True) for row in rows[:10]]
    certificate = certify(rows, truth_labels([False] * 60))
    assert certificate.n == 50
    assert "10 judgments are left out, because the judge was aligned" in certificate.summary()


def test_input_by_which_the_promise_would_not_hold_is_refused() -> None:
    cheap, labels = cheap_run(SURE), truth_labels(WRONG)
    with pytest.raises(ChosenLabelsError):
        certify(cheap, truth_labels(WRONG, "chosen"))
    with pytest.raises(ValueError, match="labels were drawn by the judge's verdict"):
        certify(cheap, truth_labels(WRONG, "by_verdict"))
    with pytest.raises(ValueError, match="`cheap` was graded by a cascade"):
        certify([with_confidence(cheap[0], 0.9, escalated=True), *cheap[1:]], labels)
    with pytest.raises(ValueError, match="`truth` was graded by a cascade"):
        certify(cheap, [with_confidence(cheap[0], 0.9, escalation_cost=0.0), *cheap[1:]])
    with pytest.raises(ValueError, match="row '1' is another response in the run of the expensive judge"):
        certify(cheap, run_of(ONE, [["MET"]], text="other"))
    for value in (0, 1, float("nan"), -0.1):
        with pytest.raises(ValueError, match="`alpha` must be above 0 and below 1"):
            certify(cheap, labels, alpha=value)
        with pytest.raises(ValueError, match="`delta` must be above 0 and below 1"):
            certify(cheap, labels, delta=value)
    for nothing in ([], truth_labels([True], rubric=Rubric([Criterion(requirement="Else")]))):
        with pytest.raises(ValueError, match="belongs to a judgment of `cheap`"):
            certify(cheap, nothing)
