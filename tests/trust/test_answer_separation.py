"""`check_separation`: pairs and labels, length alone, constant and redundant criteria, and lost answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.judges import Question
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import SeparationReport, check_separation
from rubric_integrations.trust.answer_separation import USE_COLUMNS, read_answers, redundant_pairs

RUBRIC = Rubric(
    [
        Criterion(name="right", requirement="Is right"),
        Criterion(name="wrong", requirement="Is wrong", weight=-1),
        Criterion(name="kind", requirement="Is kind"),
    ]
)


def pairs_of(count: int, **columns: Any) -> list[dict[str, Any]]:
    return [
        {"query": f"Question {n}?", "better": f"Right {n}.", "worse": f"Bad {n}{' word' * (n % 3)}.", **columns}
        for n in range(count)
    ]


def labels_of(count: int) -> list[dict[str, Any]]:
    return [{"response": f"{'Right' if n % 2 else 'Bad'} {n}.", "label": bool(n % 2)} for n in range(count)]


def answer(question: Question) -> Any:
    is_right = question.submission.response.startswith("Right")
    return {"right": "MET" if is_right else "UNMET", "wrong": "UNMET" if is_right else "MET", "kind": "MET"}[
        question.criterion.name or ""
    ]


def check(script: Any = answer, rubric: Rubric = RUBRIC, **source: Any) -> SeparationReport:
    return check_separation(
        rubric, PerCriterionGrader(ScriptedJudge(script), on_failure="abstain", max_retries=0), **source
    )


@pytest.mark.parametrize("source", [{"pairs": pairs_of(40)}, {"labels": labels_of(80)}])
def test_good_rubric_separates_more_than_length_alone(source: Any) -> None:
    report = check(**source)
    separation = report.separation
    assert separation.decision == "separates"
    assert separation.counts == (40, 0, 0, 0)
    assert separation.rubric.value == 1.0
    assert separation.over_length.low is not None
    assert separation.over_length.low > 0
    assert "always the most frequent answer has 0.50" in report.headline
    assert report.answers == report.spend.calls / 3 == 80


def test_constant_and_redundant_criteria_are_named() -> None:
    report = check(pairs=pairs_of(40))
    assert {name: row.constant for name, row in report.criteria.items()} == {
        "right": None, "wrong": None, "kind": "MET",
    }  # fmt: skip
    assert [row[:2] for row in report.redundant] == [("right", "wrong")]
    assert report.remarks == (
        "`kind` is always MET: it separates nothing",
        "`right` and `wrong` are redundant: their correlation is -1.00 over 80 answers",
    )
    assert report.criteria["wrong"].counts.right == 40
    assert report.table()[2] == ("kind", "0", "0", "40", "0.50", "0%", "0", "always MET")
    assert len(report.table()[0]) == len(USE_COLUMNS)
    assert all(remark in report.summary() for remark in report.remarks)


def test_few_rows_have_counts_and_no_verdict() -> None:
    report = check(pairs=pairs_of(14))
    assert report.separation.decision == "no verdict"
    assert report.headline == (
        "No verdict: 14 independent groups of pairs, below 30. Pairs: 14 right, 0 wrong, 0 tied (share 1.00)."
    )
    assert report.separation.rubric.low is None
    assert report.remarks == ()
    assert {row.constant for row in report.criteria.values()} == {None}


def test_length_that_explains_the_preference_is_not_exceeded() -> None:
    pairs = [{"better": f"Bad {n} {'and more ' * 9}", "worse": f"Bad {n}."} for n in range(60)]

    def prefers_long(question: Question) -> str:
        return "MET" if len(question.submission.response) > 40 else "UNMET"

    report = check(prefers_long, pairs=pairs)
    assert report.separation.length.value == report.separation.rubric.value == 1.0
    assert "not shown to be more than length alone" in report.headline


def test_rubric_without_relation_is_not_shown_to_separate() -> None:
    report = check("MET", pairs=pairs_of(60))
    assert report.separation.decision == "not shown to separate"
    assert report.separation.counts.tied == 60


def test_abstentions_and_failures_are_counted_and_are_no_values() -> None:
    def script(question: Question) -> Any:
        text, name = question.submission.response, question.criterion.name
        if name == "kind":
            return "CANNOT_ASSESS" if "Right" in text else "MET"
        return JudgeFailure("parse", "no JSON") if text == "Right 3." else answer(question)

    report = check(script, pairs=pairs_of(40))
    kind, right = report.criteria["kind"], report.criteria["right"]
    assert (kind.judged, kind.abstained, kind.failed) == (40, 40, 0)
    assert kind.counts.missing == 40
    assert (right.judged, right.failed, right.counts.missing) == (79, 1, 1)
    assert report.separation.counts.missing == 1


def test_answers_to_one_query_are_one_group() -> None:
    pairs = [{"query": "The same?", "better": f"Right {n}.", "worse": f"Bad {n}."} for n in range(40)]
    assert check(pairs=pairs).separation.groups == 1


def test_answer_in_several_pairs_is_graded_once() -> None:
    pairs = [{"query": "Q", "better": "Right.", "worse": f"Bad {n}."} for n in range(5)]
    assert check(pairs=pairs).spend.calls == 3 * 6


def test_human_labels_of_all_criteria_become_scores(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    lines = [
        {"response": f"{'Right' if n % 2 else 'Bad'} {n}.", "criterion": name, "verdict": verdict, "rater": rater}
        for n in range(80)
        for name, verdict in (("right", "MET" if n % 2 else "UNMET"), ("wrong", "UNMET"), ("kind", "MET"))
        for rater in ("a", "b")
    ]
    incomplete = {"response": "Right 99.", "criterion": "right", "verdict": "MET"}
    path.write_text("\n".join(map(json.dumps, [*lines, incomplete])))
    report = check(labels=path)
    assert (report.source, report.separation.counts.right, report.answers) == ("labels", 40, 80)


def test_labels_of_criteria_in_csv_are_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("response,criterion,verdict\nRight 1.,right,MET\nBad 2.,right,UNMET\n")
    rubric = Rubric([RUBRIC.criteria[0]])
    assert check(rubric=rubric, labels=path).separation.counts == (1, 0, 0, 0)


def test_files_of_pairs_and_of_labels_are_read(tmp_path: Path) -> None:
    pairs, labels = tmp_path / "pairs.jsonl", tmp_path / "labels.jsonl"
    pairs.write_text("\n".join(map(json.dumps, pairs_of(3))))
    labels.write_text("\n".join(map(json.dumps, labels_of(6))))
    assert check(pairs=str(pairs)).separation.counts.right == check(labels=labels).separation.counts.right == 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "pass either `pairs`"),
        ({"pairs": pairs_of(1), "labels": labels_of(2)}, "pass either `pairs`"),
        ({"pairs": []}, "there are no pairs"),
        ({"labels": [{"response": "a", "label": 1}, {"response": "b", "label": 1}]}, "no two answers have different"),
        ({"pairs": [{"better": "a"}]}, "no `worse`"),
        ({"labels": "missing.jsonl"}, "cannot be read"),
        ({"labels": "missing.csv"}, "cannot be read"),
    ],
)
def test_wrong_source_is_refused(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(**source)


def test_limit_stops_and_the_ledger_continues(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    grader = PerCriterionGrader(ScriptedJudge(answer))
    stopped = check_separation(RUBRIC, grader, pairs=pairs_of(40), ledger=ledger, max_calls=30)
    assert stopped.stopped is not None
    assert "Stopped: " in stopped.summary()
    assert stopped.separation.decision == "no verdict"
    complete = check_separation(RUBRIC, grader, pairs=pairs_of(40), ledger=ledger)
    assert complete.spend.calls == 240 - stopped.spend.calls


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 0.5, float("nan")])] * 4), min_size=30, max_size=36))
def test_redundant_pairs_are_those_of_numpy(rows: list[tuple[float, ...]]) -> None:
    values = np.array(rows)
    expected: list[tuple[str, str]] = []
    for one in range(4):
        for other in range(one + 1, 4):
            both = values[~np.isnan(values[:, one]) & ~np.isnan(values[:, other])][:, [one, other]]
            if len(both) >= 30 and (np.ptp(both, axis=0) > 0).all():
                correlation = np.corrcoef(both.T)[0, 1]
                expected += [("abcd"[one], "abcd"[other])] if abs(correlation) >= 0.8 else []
    assert [pair[:2] for pair in redundant_pairs(values, "abcd")] == expected


def test_distinct_answers_are_those_that_differ_in_any_part() -> None:
    rows = [{"query": query, "better": "a", "worse": "b"} for query in ("1", "2", "1")]
    paired = read_answers(RUBRIC, rows, None)
    assert (len(paired.pairs), len(paired.answers), paired.places) == (3, 4, [(0, 1), (2, 3), (0, 1)])
