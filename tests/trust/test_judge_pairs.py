"""`compare_judges`: a cheap judge against a strong one on the same labels."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rubric_integrations import Criterion, Option, Rubric
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.trust import agreement, compare_judges
from tests.conftest import SHARED
from tests.trust.runs import binary_rubric, labels_of, run_of

RUBRIC = binary_rubric()


def people(count: int, met: float = 0.5) -> list[str]:
    return ["MET" if number < met * count else "UNMET" for number in range(count)]


def wrong_at(answers: Sequence[str], places: Sequence[int]) -> list[str]:
    """Return the answers with the opposite ones at some places."""
    other = {"MET": "UNMET", "UNMET": "MET"}
    return [other[answer] if place in places else answer for place, answer in enumerate(answers)]


def column(answers: Sequence[str | None], rubric: Rubric = RUBRIC) -> list[GradedRow]:
    return run_of(rubric, [[answer] for answer in answers])


def labels(answers: Sequence[str | None]) -> list[LabelledJudgment]:
    return labels_of(RUBRIC, [[answer] for answer in answers])


def test_judge_with_as_many_errors_is_good_enough_with_enough_labels() -> None:
    truth = people(400)
    strong, cheap = wrong_at(truth, range(0, 400, 20)), wrong_at(truth, range(10, 400, 20))
    result = compare_judges(column(strong), column(cheap), labels(truth), margin=0.05)
    assert (result.decision, result.reason, result.labels_needed) == ("good enough", "", None)
    accuracy = result.overall.accuracy
    assert (accuracy.strong, accuracy.cheap, accuracy.difference.value) == (0.95, 0.95, 0.0)
    assert accuracy.difference.low is not None
    assert accuracy.difference.low > -0.05
    assert (result.responses, result.judgments, result.missing) == (400, 400, 0)
    assert "is good enough: it loses less than 0.05" in result.headline


@pytest.mark.statistics
def test_few_labels_leave_it_open_and_tell_how_many_would_decide() -> None:
    truth = people(60)
    strong, cheap = wrong_at(truth, range(0, 60, 20)), wrong_at(truth, range(10, 60, 20))
    result = compare_judges(column(strong), column(cheap), labels(truth))
    assert result.decision == "not yet known"
    assert result.labels_needed is not None
    assert result.labels_needed > 60
    assert (
        f"roughly {result.labels_needed:,} labelled responses would decide, if the true difference is the measured "
        "+0.000" in result.headline
    )
    assert "the runs have only 60 responses: grade more by both judges, and label them" in result.headline
    rest = ["MET"] * 20_000
    more = compare_judges(column([*strong, *rest]), column([*cheap, *rest]), labels(truth))
    assert (more.labels_needed, "the runs have only" in more.headline) == (result.labels_needed, False)
    assert "`certify`" in result.headline


def test_raters_who_differ_are_told() -> None:
    truth, other = people(100), wrong_at(people(100), [1, 2])
    of_raters = [
        label.model_copy(update={"rater": rater})
        for rater, answers in (("ann", truth), ("bob", truth), ("cat", other))
        for label in labels(answers)
    ]
    result = compare_judges(column(truth), column(wrong_at(truth, [3])), of_raters)
    text = (
        "on 2 judgments, raters differ: accuracy, kappa and bias count their shares, recalls the most frequent answer"
    )
    assert any(text in warning for warning in result.warnings)
    result = compare_judges(column(truth), column(wrong_at(truth, [3])), labels(truth))
    assert not any("raters differ" in warning for warning in result.warnings)


def test_alpha_out_of_range_is_named() -> None:
    truth = people(10)
    with pytest.raises(ValueError, match="`alpha` must be above 0 and below 1, got 0"):
        compare_judges(column(truth), column(truth), labels(truth), alpha=0)


def test_large_loss_is_not_good_enough() -> None:
    truth = people(100)
    result = compare_judges(column(truth), column(wrong_at(truth, range(0, 100, 4))), labels(truth))
    assert result.decision == "not good enough"
    assert result.criteria["c0"].accuracy.adjusted is not None
    assert result.worse == ("c0",)
    assert result.labels_needed is None


def test_constant_judge_is_never_good_enough_however_frequent_its_answer_is() -> None:
    truth = people(1000, met=0.98)
    result = compare_judges(column(truth), column(["MET"] * 1000), labels(truth))
    assert result.overall.accuracy.difference.low is not None
    assert result.overall.accuracy.difference.low > -0.03
    assert result.decision == "not yet known"
    assert "better than chance" in result.reason
    assert result.labels_needed is None


def test_figures_are_those_of_agreement_and_differences_are_of_cheap_minus_strong() -> None:
    rubric = Rubric(
        [
            Criterion(requirement="Is right", name="right", weight=1.0),
            Criterion(requirement="Is rude", name="rude", weight=-1.0),
            Criterion(
                requirement="Is clear",
                name="clear",
                weight=1.0,
                options=[Option(label="no", value=0), Option(label="partly", value=0.5), Option(label="yes", value=1)],
            ),
        ]
    )
    levels = ["no", "partly", "yes"]
    truth = [["MET" if n % 2 else "UNMET", "UNMET" if n % 3 else "MET", levels[n % 3]] for n in range(60)]
    strong = [[a, b, levels[(n + (n % 10 == 0)) % 3]] for n, (a, b, _) in enumerate(truth)]
    cheap = [["MET", wrong_at([b], [0] if n % 6 == 0 else [])[0], levels[(n + 1) % 3 if n % 5 == 0 else n % 3]]
             for n, (_, b, _) in enumerate(truth)]  # fmt: skip
    runs, of_people = [run_of(rubric, answers) for answers in (strong, cheap)], labels_of(rubric, truth)
    result = compare_judges(runs[0], runs[1], of_people)
    measured = [agreement(run, of_people) for run in runs]
    for figure, of in (("accuracy", "micro_accuracy"), ("kappa", "micro_kappa")):
        change = getattr(result.overall, figure)
        assert (change.strong, change.cheap) == pytest.approx([getattr(each, of) for each in measured])
        assert change.difference.value == pytest.approx(change.cheap - change.strong)
    for name, row in result.criteria.items():
        for figure in ("accuracy", "kappa", "bias"):
            change = getattr(row, figure)
            values = [getattr(each.criteria[name], figure).value for each in measured]
            assert (change.strong, change.cheap) == pytest.approx(values), (name, figure)
    assert result.criteria["right"].recalls["MET"].difference.value == 0.0
    assert result.criteria["right"].recalls["UNMET"].difference.value == -1.0
    assert list(result.criteria["clear"].recalls) == levels
    assert list(result.overall.recalls) == ["UNMET", "MET"]
    # On the penalty, an error that the judge misses makes it more lenient.
    assert result.criteria["rude"].bias.difference.value == pytest.approx(-1 / 6)
    assert result.overall.bias.difference.value == pytest.approx(
        (0.5 + 1 / 6 + result.criteria["clear"].bias.difference.value) / 3  # type: ignore[operator]
    )


def test_kappa_is_none_where_only_one_answer_occurs() -> None:
    truth = ["MET"] * 50
    result = compare_judges(column(truth), column(truth), labels(truth))
    kappa = result.overall.kappa
    assert (kappa.strong, kappa.cheap, kappa.difference.value, kappa.p_value) == (None, None, None, None)
    assert result.decision == "not yet known"


def test_another_response_is_refused() -> None:
    truth = people(20)
    other = run_of(RUBRIC, [[answer] for answer in truth], text="other")
    with pytest.raises(ValueError, match=r"row '1' is another response in .* than in .*: both judges must"):
        compare_judges(column(truth), other, labels(truth))


def test_another_rubric_is_refused() -> None:
    truth = people(20)
    other = column(truth, Rubric([Criterion(requirement="Does something else", name="c0")]))
    with pytest.raises(ValueError, match=r"the judges cannot be compared: .*`c0`.*let both grade the same responses"):
        compare_judges(column(truth), other, labels(truth))


def test_labels_of_another_run_are_refused() -> None:
    truth = people(20)
    of_others = labels_of(RUBRIC, [[answer] for answer in truth], text="unknown")
    with pytest.raises(ValueError, match="no label belongs to a judgment that both judges answered"):
        compare_judges(column(truth), column(truth), of_others)
    drawn = labels_of(RUBRIC, [[answer] for answer in truth], sampled="by_verdict")
    with pytest.raises(ValueError, match="drawn by the judge's verdict"):
        compare_judges(column(truth), column(truth), drawn)


def test_abstention_is_an_answer_that_is_not_right() -> None:
    truth = people(40)
    cheap = ["CANNOT_ASSESS" if place < 10 else answer for place, answer in enumerate(truth)]
    result = compare_judges(column(truth), column(cheap), labels(truth))
    assert result.overall.accuracy.cheap == 0.75
    assert result.abstained == (0, 10)
    assert result.overall.kappa.difference.n == 30
    assert result.decision == "not good enough"


def test_failed_judgments_are_left_out_and_many_of_them_leave_it_open() -> None:
    truth = people(500)
    few: list[str | None] = [None if place < 10 else answer for place, answer in enumerate(truth)]
    result = compare_judges(column(truth), column(few), labels(truth))
    assert (result.decision, result.missing, result.judgments) == ("good enough", 10, 490)
    many: list[str | None] = [None if place % 5 == 0 else answer for place, answer in enumerate(truth)]
    result = compare_judges(column(truth), column(many), labels(truth))
    assert (result.decision, result.missing) == ("not yet known", 100)
    assert "no answer of one judge, and may be difficult" in result.reason
    # Rows that a stopped run lacks are judgments without an answer, too.
    result = compare_judges(column(truth), column(truth)[:400], labels(truth))
    assert (result.decision, result.missing) == ("not yet known", 100)
    assert any("100 rows are in only one of the runs" in warning for warning in result.warnings)


def test_rows_are_paired_by_id_and_number_whatever_their_order_and_number() -> None:
    truth = people(60)
    strong, cheap = column(truth), column(wrong_at(truth, [3]))
    twice = [row._replace(id="same") for row in strong], [row._replace(id="same") for row in cheap]
    of_people = [label.model_copy(update={"id": None}) for label in labels(truth)]
    result = compare_judges(*twice, of_people)
    assert result.overall.accuracy.difference.value == pytest.approx(-1 / 60)
    result = compare_judges(strong, [*reversed(cheap)][5:], labels(truth))
    assert (result.judgments, result.overall.accuracy.cheap) == (55, pytest.approx(54 / 55))


def test_rows_in_groups_widen_the_interval_and_few_groups_have_none() -> None:
    truth = people(200)
    cheap = wrong_at(truth, range(10))
    independent = compare_judges(column(truth), column(cheap), labels(truth)).overall
    grouped = compare_judges(
        column(truth), column(cheap), labels(truth), cluster=lambda row: (int(row) - 1) // 10
    ).overall
    for figure in ("accuracy", "kappa", "bias"):
        one, other = (getattr(each, figure).difference for each in (independent, grouped))
        assert one.value == other.value
        assert other.high - other.low > 1.5 * (one.high - one.low), figure
    few = compare_judges(column(truth), column(cheap), labels(truth), cluster=lambda row: int(row) % 3)
    assert (few.decision, few.overall.accuracy.difference.low) == ("not yet known", None)
    assert few.labels_needed is None


def test_criterion_that_is_worse_is_named_although_the_judge_is_good_enough() -> None:
    rubric = binary_rubric(10)
    truth = [[("MET", "UNMET")[(row + place) % 2] for place in range(10)] for row in range(300)]
    cheap = [[*wrong_at(answers[:1], [0] if row % 15 == 0 else []), *answers[1:]] for row, answers in enumerate(truth)]
    result = compare_judges(run_of(rubric, truth), run_of(rubric, cheap), labels_of(rubric, truth))
    assert (result.decision, result.worse) == ("good enough", ("c0",))
    assert result.headline.endswith("but it is significantly worse on c0.")


@pytest.mark.parametrize(("margin", "alpha"), [(0.0, 0.05), (1.0, 0.05), (0.03, 0.0), (0.03, 1.0)])
def test_margin_or_alpha_out_of_range_is_refused(margin: float, alpha: float) -> None:
    truth = people(20)
    with pytest.raises(ValueError, match=r"must be above 0 and below 1"):
        compare_judges(column(truth), column(truth), labels(truth), margin=margin, alpha=alpha)


@pytest.mark.statistics
@pytest.mark.skipif(not (SHARED / "data" / "summhay").exists(), reason="../shared/data does not exist")
def test_judges_of_summhay_are_compared_as_published() -> None:
    from rubric_integrations.trust.benchmarks.figures import Benchmark
    from rubric_integrations.trust.benchmarks.sets import load_set

    benchmark = Benchmark(load_set("summhay", SHARED / "data"))
    judges = {judge.label: judge for judge in benchmark.data.judges}
    runs = {label: benchmark.rows_of([judge]) for label, judge in judges.items()}

    def compare(strong: str, cheap: str, margin: float) -> str:
        return compare_judges(
            runs[f"{strong}, one insight a call"], runs[f"{cheap}, one insight a call"], benchmark.labels,
            margin=margin, cluster="cluster",
        ).decision  # fmt: skip

    assert compare("gpt-4o", "gemini-1.5-pro", 0.03) == "good enough"
    assert compare("gpt-4o", "claude3-haiku", 0.03) == "not good enough"
    assert compare("gemini-1.5-pro", "gpt-4o", 0.03) == "not yet known"
