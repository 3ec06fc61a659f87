"""Samples of one prompt: every figure counts them as one input by default."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.reporting import report_page
from rubric_integrations.runs import GradedRow
from rubric_integrations.runs.files import read_run, run_line
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import (
    SequentialGate,
    agreement,
    calibrate,
    choose_for_labels,
    compare_judges,
    compare_runs,
    drift,
    gate,
)
from rubric_integrations.trust.comparison import sample_groups
from rubric_integrations.trust.matching import dependence_warnings, group_rows
from tests.trust.runs import binary_rubric, labels_of, run_of, scores_run

PROMPTS, SAMPLES = 20, 10
ROWS = PROMPTS * SAMPLES
RUBRIC = binary_rubric()


def in_prompts(rows: Sequence[GradedRow]) -> list[GradedRow]:
    """Return the rows as samples: each prompt has `SAMPLES` of them, which follow each other."""
    return [row._replace(group=f"q{place // SAMPLES}") for place, row in enumerate(rows)]


def by_place(first: int) -> Callable[[str], int]:
    """Return the `cluster` of the same prompts, by ids that count the rows from `first`."""
    return lambda row_id: (int(row_id) - first) // SAMPLES


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


# 18 of 20 prompts are good, and all samples of a prompt are alike.
SCORES = [float(place // SAMPLES % 10 != 3) for place in range(ROWS)]
VERDICTS = [["MET" if score else "UNMET"] for score in SCORES]
PEOPLE = [["MET" if place // SAMPLES % 10 not in (3, 5) else "UNMET"] for place in range(ROWS)]


def judged(strong: bool = False) -> list[GradedRow]:
    return run_of(RUBRIC, PEOPLE if strong else VERDICTS)


def labels() -> list[LabelledJudgment]:
    return labels_of(RUBRIC, PEOPLE)


Figure = Callable[[Callable[[list[GradedRow]], list[GradedRow]], Any], Estimate]
FIGURES: dict[str, tuple[int, Figure]] = {
    "gate": (0, lambda of, cluster: gate(of(scores_run(SCORES)), 0.5, cluster=cluster).observed),
    "compare": (
        0,
        lambda of, cluster: (
            compare_runs(of(scores_run([0.5] * ROWS)), of(scores_run(SCORES)), cluster=cluster, anyway=True).score
        ),
    ),
    "agree": (1, lambda of, cluster: agreement(of(judged()), labels(), cluster=cluster).accuracy),
    "calibrate": (1, lambda of, cluster: calibrate(of(judged()), labels(), cluster=cluster).score),
    "compare-judges": (
        1,
        lambda of, cluster: (
            compare_judges(of(judged(strong=True)), of(judged()), labels(), cluster=cluster).overall.accuracy.difference
        ),
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_samples_widen_every_interval_as_a_cluster_does(name: str) -> None:
    first, figure = FIGURES[name]
    alone, samples = figure(list, None), figure(in_prompts, None)
    assert samples == figure(list, by_place(first))
    assert samples.value == alone.value
    assert width(samples) > 1.5 * width(alone)


def test_gate_that_passes_on_independent_rows_is_inconclusive_on_samples() -> None:
    rows = scores_run(SCORES)
    assert gate(rows, 0.8).decision == "pass"
    assert gate(in_prompts(rows), 0.8).decision == "inconclusive"


@pytest.mark.statistics
def test_program_at_the_threshold_passes_rarely_with_samples() -> None:
    rng = random.Random(8)
    runs = [[score for _ in range(PROMPTS) for score in [float(rng.random() < 0.7)] * SAMPLES] for _ in range(100)]
    passed = [
        sum(gate(of(scores_run(scores)), 0.7).decision == "pass" for scores in runs) for of in (list, in_prompts)
    ]  # fmt: skip
    assert passed[0] > 20
    assert passed[1] <= 10


def test_single_samples_are_independent_rows() -> None:
    rows = [row._replace(group=f"q{place}") for place, row in enumerate(scores_run(SCORES))]
    assert group_rows(rows, None) is None
    assert gate(rows, 0.5) == gate(scores_run(SCORES), 0.5)


def test_same_row_object_twice_is_no_group() -> None:
    row = scores_run([1.0])[0]
    assert group_rows([row, row], None) is None


def test_cluster_keeps_the_samples_of_a_prompt_together() -> None:
    rows = in_prompts(scores_run(SCORES))
    groups = group_rows(rows, "id")
    assert groups is not None
    assert groups.tolist() == [place // SAMPLES for place in range(ROWS)]
    halves = group_rows([row._replace(metadata={"half": int(row.id) < ROWS / 2}) for row in rows], "half")
    assert halves is not None
    assert len(set(halves.tolist())) == 2


def test_samples_of_one_prompt_give_no_warning_about_equal_queries() -> None:
    rows = [
        row._replace(submission=row.submission and row.submission.model_copy(update={"query": f"q{row.group}?"}))
        for row in in_prompts(scores_run(SCORES))
    ]
    assert dependence_warnings(rows, None) == []
    assert "such as" in dependence_warnings([row._replace(group=None) for row in rows], None)[0]


@pytest.mark.parametrize("known", [0, 1])
def test_comparison_knows_the_samples_of_one_run(known: int) -> None:
    runs = [scores_run([0.5] * ROWS), scores_run(SCORES)]
    both = compare_runs(in_prompts(runs[0]), in_prompts(runs[1]), anyway=True)
    runs[known] = in_prompts(runs[known])
    assert compare_runs(*runs, anyway=True).score == both.score
    assert both.inputs == PROMPTS


def test_drift_counts_prompts() -> None:
    rubric = Rubric([{"name": "a", "requirement": "Is a"}])
    rows = [{"id": f"q{place}", "responses": [f"{place} {n}" for n in range(4)]} for place in range(10)]
    before = list(grade_many(rows, rubric, PerCriterionGrader(ScriptedJudge(lambda _: "MET"))))
    now = PerCriterionGrader(
        ScriptedJudge(lambda question: "UNMET" if question.submission.response[0] in "012" else "MET")
    )
    samples = drift(before, now, sample=40)
    named = drift(before, now, sample=40, cluster=lambda row_id: row_id.partition("#")[0])
    alone = drift([graded._replace(row=graded.row._replace(group=None)) for graded in before], now, sample=40)
    p_values = [report.p_values["direction"] for report in (samples, named, alone)]
    assert p_values[0] == p_values[1] == 0.25
    assert (p_values[2] or 1) < 0.001


def test_labels_are_drawn_from_as_many_prompts_as_possible() -> None:
    drawn = choose_for_labels(in_prompts(judged()), PROMPTS, seed=1)
    assert len({one.row // SAMPLES for one in drawn}) == PROMPTS


def test_stop_rule_gets_one_score_of_each_prompt() -> None:
    rubric = Rubric([{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}])
    rows = [{"id": f"q{place}", "responses": ["42"] * SAMPLES} for place in range(PROMPTS)]
    rule = SequentialGate(0.8)
    graded = list(grade_many(rows, rubric, PerCriterionGrader("offline"), stop_when=rule))
    assert (rule.count, rule.decision) == (PROMPTS, "pass")
    assert len(graded) > (PROMPTS - 1) * SAMPLES


def test_report_page_has_the_interval_of_the_gate(tmp_path: Path) -> None:
    rubric = Rubric([{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}])
    rows = [
        {"id": f"q{place}", "responses": ["42" if place % 10 != 3 else "41"] * SAMPLES, "metadata": {"half": place % 2}}
        for place in range(PROMPTS)
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(run_line(result) for result in grade_many(rows, rubric, PerCriterionGrader("offline"))))
    run = read_run(path)
    observed = gate(run, 0.5, alpha=0.025).observed
    assert sample_groups([run, run]) is not None
    page = report_page([run])
    alone = report_page([run._replace(rows=[row._replace(group=None) for row in run.rows])])
    assert observed.value == 0.9
    assert page != alone
