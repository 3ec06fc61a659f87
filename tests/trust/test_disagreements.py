"""Which criteria people and the judge read differently, and the clearest disagreements."""

from __future__ import annotations

import pytest

from rubric_integrations import Criterion, Option, Rubric, Scale
from rubric_integrations.runs import GradedRow
from rubric_integrations.trust import find_disagreements
from rubric_integrations.trust.disagreements import shorten
from rubric_integrations.trust.statistics import mcnemar_p_value
from tests.trust.runs import binary_rubric, labels_of, run_of

ONE, THREE = binary_rubric(), binary_rubric(3)


def test_criteria_that_are_surely_read_differently_come_first() -> None:
    # c0: always equal; c1: the judge is wrong at random; c2: it is too lenient.
    judge = [["MET", "MET", "MET"], ["UNMET", "UNMET", "MET"]] * 20
    people = [["MET", "UNMET", "MET"], ["UNMET", "MET", "UNMET"]] * 20
    lenient, random, equal = find_disagreements(run_of(THREE, judge), labels_of(THREE, people))
    assert (lenient.name, random.name, equal.name) == ("c2", "c1", "c0")
    assert (lenient.is_biased, random.is_biased) == (True, False)
    assert [str(direction) for direction in lenient.directions] == [
        "raters say UNMET where the judge says MET: 20 of 20"
    ]
    p_value = mcnemar_p_value(20, 0)
    assert (lenient.p_value, random.p_value, equal.p_value) == (p_value, pytest.approx(1.0, abs=0.2), None)
    assert lenient.adjusted == pytest.approx(2 * (p_value or 0))  # two criteria have a difference
    assert (lenient.differ, lenient.n, len(lenient.examples)) == (20, 40, 5)
    assert (equal.differ, equal.examples) == (0, ())


def test_clearest_disagreements_are_those_of_several_raters_and_of_a_sure_judge() -> None:
    run = _with(run_of(ONE, [["MET"]] * 5), [0.6, 0.9, 0.7, None, 0.5], "It names 4 g.")
    people = [["UNMET"]] * 5
    labels = labels_of(ONE, people, rater="ann") + labels_of(
        ONE, [[None], [None], ["UNMET"], [None], ["MET"]], rater="bo"
    )
    labels += labels_of(ONE, [[None]] * 4 + [["UNMET"]], rater="cy")
    labels = [label.model_copy(update={"reason": "only a guess"}) for label in labels]
    (row,) = find_disagreements(run, labels)
    assert [example.id for example in row.examples] == ["3", "5", "2", "1", "4"]
    first = row.examples[0]
    assert (first.raters, first.unanimous, first.people, first.judge) == (2, True, "UNMET", "MET")
    assert (first.judge_reason, first.people_reasons) == ("It names 4 g.", ("only a guess", "only a guess"))
    assert "3: raters say UNMET (2 raters, all alike), the judge says MET" in row.summary()
    assert "  judge: It names 4 g." in row.summary()
    assert (row.examples[1].unanimous, row.examples[1].raters) == (False, 3)


def _with(rows: list[GradedRow], confidences: list[float | None], reason: str) -> list[GradedRow]:
    changed: list[GradedRow] = []
    for row, confidence in zip(rows, confidences, strict=True):
        assert row.report is not None
        entry = row.report.criteria[0].model_copy(update={"confidence": confidence, "reason": reason})
        changed.append(row._replace(report=row.report.model_copy(update={"report": (entry,)})))
    return changed


def test_numbers_on_a_scale_differ_by_direction_and_options_by_label() -> None:
    rubric = Rubric(
        [
            Criterion(requirement="How sound?", name="sound", scale=Scale(min=0, max=100)),
            Criterion(
                requirement="Which way?",
                name="way",
                options=[Option(label="higher", value=0.0), Option(label="lower", value=1.0)],
                scale_type="nominal",
            ),
        ]
    )
    judge = [["50", "higher"], ["60", "lower"], ["70", "lower"], ["80", "CANNOT_ASSESS"]] * 5
    people = [["70", "higher"], ["70", "lower"], ["70", "higher"], ["60", "lower"]] * 5
    by_name = {row.name: row for row in find_disagreements(run_of(rubric, judge), labels_of(rubric, people))}
    assert [str(direction) for direction in by_name["sound"].directions] == [
        "raters rate higher than the judge: 10 of 20",
        "raters rate lower than the judge: 5 of 20",
    ]
    assert {str(direction) for direction in by_name["way"].directions} == {
        "raters say higher where the judge says lower: 5 of 10",
        "raters say lower where the judge says CANNOT_ASSESS: 5 of 10",
    }


def test_failures_and_labels_without_consensus_are_no_disagreements() -> None:
    labels = labels_of(ONE, [["MET"], ["MET"]], rater="ann") + labels_of(ONE, [[None], ["UNMET"]], rater="bo")
    (row,) = find_disagreements(run_of(ONE, [[None], ["MET"]]), labels)
    assert (row.n, row.differ, row.undecided, row.bias.value) == (0, 0, 1, 0.5)
    assert row.summary().startswith("c0: 0 of 0 differ (1 more have no majority)")


def test_labels_by_verdict_have_no_p_value() -> None:
    labels = labels_of(ONE, [["UNMET"]] * 10 + [["UNMET"]] * 10, "by_verdict")
    (row,) = find_disagreements(run_of(ONE, [["MET"]] * 10 + [["UNMET"]] * 90), labels)
    assert (row.p_value, row.adjusted, row.is_biased) == (None, None, False)
    assert row.bias.value == pytest.approx(0.1)


def test_negative_number_of_examples_is_refused_and_none_is_allowed() -> None:
    run, labels = run_of(ONE, [["MET"]] * 2), labels_of(ONE, [["UNMET"]] * 2)
    assert find_disagreements(run, labels, examples=0)[0].examples == ()
    with pytest.raises(ValueError, match="`examples` must be at least 0, got -1"):
        find_disagreements(run, labels, examples=-1)


@pytest.mark.parametrize(
    ("text", "shortened"),
    [
        ("", ""),
        (" a\n\n b ", "a b"),
        ("x" * 1_000_000, "x" * 10 + "…"),
        (" " * 1_000_000, "…"),
        ("\U0001f600" * 20, "\U0001f600" * 10 + "…"),
    ],
)
def test_texts_are_shortened_to_one_line(text: str, shortened: str) -> None:
    assert shorten(text, 10) == shortened


def test_page_escapes_what_people_and_models_write() -> None:
    run = _with(run_of(ONE, [["MET"]]), [None], "<script>")
    assert "<script>" not in find_disagreements(run, labels_of(ONE, [["UNMET"]]))[0]._repr_html_()  # pyright: ignore[reportPrivateUsage]
