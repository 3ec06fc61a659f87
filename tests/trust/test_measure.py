"""`agreement` compares a judge with people: figures, other implementations, and cases in which those are wrong."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from rubric_integrations import Criterion, Option, Rubric, Scale, Submission
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.trust import ChosenLabelsError, agreement
from tests.trust.runs import binary_rubric, labels_of, run_of

QUALITY = Criterion(
    requirement="How good is it?",
    name="quality",
    options=[
        Option(label="excellent", value=1.0),
        Option(label="poor", value=0.0),
        Option(label="cannot be judged", value=0.0, na=True),
        Option(label="good", value=0.6),
        Option(label="fair", value=0.3),
    ],
)
IN_ORDER = ["poor", "fair", "good", "excellent"]


def test_binary_agreement_equals_other_implementations() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    inter_rater = pytest.importorskip("statsmodels.stats.inter_rater", reason="statsmodels is not installed")
    rng = random.Random(1)
    people = [rng.choice(["MET", "UNMET"]) for _ in range(60)]
    judge = [answer if rng.random() < 0.8 else "UNMET" for answer in people]
    rubric = binary_rubric()
    row = agreement(run_of(rubric, [[a] for a in judge]), labels_of(rubric, [[a] for a in people])).criteria["c0"]
    scores = metrics.precision_recall_fscore_support(people, judge, labels=["MET"])
    assert row.per_verdict["MET"] == pytest.approx([float(value[0]) for value in scores])
    assert row.phi == pytest.approx(metrics.matthews_corrcoef(people, judge))
    assert row.kappa.value == pytest.approx(metrics.cohen_kappa_score(people, judge, labels=["UNMET", "MET"]))
    assert row.kappa.value == pytest.approx(inter_rater.cohens_kappa(np.array(row.confusion)).kappa)
    assert row.accuracy.value == pytest.approx(metrics.accuracy_score(people, judge))
    assert row.bias.value == pytest.approx((judge.count("MET") - people.count("MET")) / 60)


def test_ordinal_agreement_equals_other_implementations() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    rng = random.Random(2)
    scale = Criterion(requirement="How clear is it?", name="clarity", scale=Scale(min=1, max=5, integer=True))
    people = [str(rng.randint(1, 5)) for _ in range(50)]
    judge = [str(min(5, int(answer) + rng.choice([0, 0, 1]))) for answer in people]
    rubric = Rubric([scale])
    row = agreement(run_of(rubric, [[a] for a in judge]), labels_of(rubric, [[a] for a in people])).criteria["clarity"]
    assert row.levels == ("1", "2", "3", "4", "5")
    expected = metrics.cohen_kappa_score(people, judge, labels=list(row.levels), weights="quadratic")
    assert row.kappa.value == pytest.approx(expected)
    numbers = [list(map(int, people)), list(map(int, judge))]
    assert row.ordered is not None
    assert row.ordered.spearman == pytest.approx(stats.spearmanr(*numbers)[0])
    assert row.ordered.kendall == pytest.approx(stats.kendalltau(*numbers)[0])
    assert row.ordered.mae == pytest.approx(np.abs(np.subtract(numbers[0], numbers[1])).mean() / 4)


def test_alpha_among_people_is_perfect_only_if_they_agree() -> None:
    rubric = binary_rubric()
    first = labels_of(rubric, [["MET"], ["UNMET"], ["MET"], ["UNMET"]], rater="ana")
    run = run_of(rubric, [["MET"], ["MET"], ["MET"], ["UNMET"]])
    same = agreement(run, [*first, *labels_of(rubric, [["MET"], ["UNMET"], ["MET"], ["UNMET"]], rater="bo")])
    other = agreement(run, [*first, *labels_of(rubric, [["UNMET"], ["UNMET"], ["MET"], ["MET"]], rater="bo")])
    assert same.criteria["c0"].people_alpha == 1.0
    assert same.raters == ("ana", "bo")
    assert other.criteria["c0"].people_alpha == pytest.approx(0.125)
    assert (other.criteria["c0"].undecided, other.criteria["c0"].n) == (2, 4)


def test_unused_level_and_order_of_options_change_no_figure() -> None:
    answers = [("poor", "poor"), ("fair", "good"), ("excellent", "excellent"), ("fair", "fair"), ("poor", "fair")]

    def measure(labels: list[str]) -> tuple[float | None, float | None]:
        options = [option for label in labels for option in QUALITY.options or () if option.label == label]
        rubric = Rubric([QUALITY.model_copy(update={"options": tuple(options)})])
        run = run_of(rubric, [[judge] for _, judge in answers])
        row = agreement(run, labels_of(rubric, [[people] for people, _ in answers])).criteria["quality"]
        return row.kappa.value, row.adjacent_accuracy

    expected = measure(IN_ORDER)
    assert measure(["excellent", "poor", "cannot be judged", "good", "fair"]) == pytest.approx(expected)
    assert expected[1] == 1.0


def test_option_that_is_no_answer_is_no_level() -> None:
    rubric = Rubric([QUALITY])
    run = run_of(rubric, [["excellent"], ["cannot be judged"], ["poor"]])
    labels = labels_of(rubric, [["excellent"], ["cannot be judged"], ["poor"]])
    row = agreement(run, labels).criteria["quality"]
    assert row.levels == tuple(IN_ORDER)
    assert (row.n, row.judge_abstained, row.people_abstained, row.abstention_kappa) == (2, 1, 1, 1.0)


def test_accuracy_of_a_mixed_rubric_counts_all_kinds_of_criteria() -> None:
    rubric = Rubric([*binary_rubric().criteria, QUALITY])
    people = [["MET", "poor"], ["UNMET", "good"]] * 5
    judge = [["MET", "good"], ["UNMET", "poor"]] * 5
    total = agreement(run_of(rubric, judge), labels_of(rubric, people))
    assert (total.micro_accuracy, total.macro_accuracy, total.accuracy.value) == (0.5, 0.5, 0.5)


def test_judge_that_never_says_met_has_no_precision_and_is_not_wrong() -> None:
    rubric = binary_rubric()
    answers: list[list[str | None]] = [["UNMET"]] * 30
    row = agreement(run_of(rubric, answers), labels_of(rubric, answers)).criteria["c0"]
    assert row.per_verdict["MET"] == (None, None, None, 0)
    assert row.per_verdict["UNMET"][:3] == (1.0, 1.0, 1.0)
    assert row.kappa.value is None
    assert row.accuracy.low is not None
    assert 0.9 < row.accuracy.low < 1 == row.accuracy.high
    assert row.ac1 == 1.0


def test_equal_bias_on_all_submissions_has_an_interval_and_no_effect_size() -> None:
    rubric = Rubric([Criterion(requirement="How clear?", name="clarity", scale=Scale(min=0, max=10, integer=True))])
    answers = [["5"], ["6"], ["7"]]
    higher = [["6"], ["7"], ["8"]]
    total = agreement(run_of(rubric, higher), labels_of(rubric, answers))
    row = total.criteria["clarity"]
    assert row.bias.value == pytest.approx(0.1)
    assert total.scores.bias == row.bias
    assert row.bias.low is not None
    assert row.bias.low < 0 < 0.1 < (row.bias.high or 0)
    assert total.scores.p_value is not None
    assert total.scores.p_value > 0.05
    assert row.effect_size is None
    assert total.scores.effect_size is None


@pytest.mark.statistics
@pytest.mark.parametrize("shape", ["options", "scale"])
def test_bias_of_rare_errors_in_one_direction_is_contained(shape: str) -> None:
    """The judge calls 8 % of the best answers much worse. Student's interval contained that in .84 of samples."""
    answers = Scale(min=0, max=10, integer=True) if shape == "scale" else None
    options = [Option(label=str(n), value=n / 10) for n in range(11)] if shape == "options" else None
    rubric = Rubric([Criterion(requirement="How clear?", name="clarity", scale=answers, options=options)])
    labels = labels_of(rubric, [["10"]] * 40)
    rng, contained = random.Random(0), 0
    for _ in range(100):
        judge = [["2" if rng.random() < 0.08 else "10"] for _ in range(40)]
        total = agreement(run_of(rubric, judge), labels)
        for bias in (total.criteria["clarity"].bias, total.scores.bias):
            contained += bias.low is not None and bias.high is not None and bias.low <= -0.064 <= bias.high
    assert contained >= 0.95 * 200


def test_abstentions_lower_the_coverage_beside_the_accuracy() -> None:
    rubric = binary_rubric()
    judge = [["MET"]] * 10 + [["CANNOT_ASSESS"]] * 90
    row = agreement(run_of(rubric, judge), labels_of(rubric, [["MET"]] * 100)).criteria["c0"]
    assert (row.accuracy.value, row.n, row.coverage, row.judge_abstained) == (1.0, 10, 0.1, 90)


def test_failed_judgments_count_as_neither_right_nor_wrong() -> None:
    rubric = binary_rubric()
    row = agreement(run_of(rubric, [["MET"], [None]]), labels_of(rubric, [["MET"], ["MET"]])).criteria["c0"]
    assert (row.n, row.failed, row.accuracy.value) == (1, 1, 1.0)


def test_labels_drawn_by_verdict_are_weighted_by_the_judges_verdicts() -> None:
    rubric = binary_rubric()
    # Of 100 judgments, 90 are MET and all right; 10 are UNMET and half of them wrong. Ten of each are labelled.
    judge = [["MET"]] * 10 + [["UNMET"]] * 10 + [["MET"]] * 80
    people = [["MET"]] * 10 + [["MET"], ["UNMET"]] * 5
    row = agreement(run_of(rubric, judge), labels_of(rubric, people, "by_verdict")).criteria["c0"]
    assert row.accuracy.value == pytest.approx(0.95)
    assert row.per_verdict["UNMET"].recall == 1.0
    assert row.per_verdict["MET"].recall == pytest.approx(90 / 95)


def test_chosen_labels_are_refused_with_the_reason() -> None:
    rubric = binary_rubric()
    with pytest.raises(ChosenLabelsError, match=r"every label is `chosen` \(1 in all\)"):
        agreement(run_of(rubric, [["MET"]]), labels_of(rubric, [["UNMET"]], "chosen"))


def test_labels_of_other_words_or_other_texts_are_unmatched() -> None:
    rubric = binary_rubric()
    run = run_of(rubric, [["MET"], ["MET"]])
    reworded = binary_rubric().criteria[0].model_copy(update={"requirement": "Does another thing"})
    other = LabelledJudgment(submission=Submission(response="else"), criterion=rubric.criteria[0], verdict="MET")
    labels = [*labels_of(Rubric([reworded]), [["MET"]]), other.model_copy(update={"sampled": "random"})]
    total = agreement(run, labels)
    assert (total.labels, total.unmatched, total.criteria) == (0, 2, {})
    assert total.accuracy.value is None


def test_scores_by_peoples_answers_are_compared_with_the_judges_scores() -> None:
    rubric = binary_rubric(2)
    people = [["MET", "MET"], ["MET", "UNMET"], ["UNMET", "UNMET"]]
    judge = [["MET", "MET"], ["MET", "MET"], ["MET", "UNMET"]]
    scores = agreement(run_of(rubric, judge), labels_of(rubric, people)).scores
    assert scores.n == 3
    assert scores.bias.value == pytest.approx(1 / 3)
    assert scores.values is not None
    assert scores.values.mae == pytest.approx(1 / 3)
    assert math.isclose(scores.values.rmse, math.sqrt(0.5 / 3))


def test_summary_table_and_json_show_the_figures() -> None:
    rubric = binary_rubric()
    total = agreement(run_of(rubric, [["MET"], ["UNMET"]]), labels_of(rubric, [["MET"], ["UNMET"]]))
    assert "c0: accuracy 1.000" in total.summary()
    assert "coverage 100%" in total.summary()
    assert list(total.to_dataframe()["criterion"]) == ["c0"]
    assert "<td" in total._repr_html_()  # pyright: ignore[reportPrivateUsage] -- notebooks call it
    assert '"kappa":[1.0' in total.model_dump_json()


def test_distances_of_distributions_equal_other_implementations() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    rng = random.Random(5)
    scale = Criterion(requirement="How clear is it?", name="clarity", scale=Scale(min=1, max=5, integer=True))
    people = [rng.randint(1, 5) for _ in range(40)]
    judge = [min(5, answer + rng.choice([0, 1, 2])) for answer in people]
    rubric = Rubric([scale])
    total = agreement(run_of(rubric, [[str(a)] for a in judge]), labels_of(rubric, [[str(a)] for a in people]))
    for values in (total.criteria["clarity"].ordered, total.scores.values):
        assert values is not None
        assert values.emd == pytest.approx(stats.wasserstein_distance(people, judge) / 4)
        assert values.ks == pytest.approx(stats.ks_2samp(people, judge).statistic)
    apart = np.subtract(judge, people) / 4
    assert total.scores.p_value is not None
    assert stats.ttest_rel(judge, people).pvalue < total.scores.p_value < 0.05
    assert total.scores.effect_size == pytest.approx(apart.mean() / apart.std(ddof=1))
    assert total.criteria["clarity"].effect_size == total.scores.effect_size


def test_distance_of_distributions_is_a_share_of_the_criterions_range_and_not_of_what_occurs() -> None:
    rubric = Rubric([Criterion(requirement="How clear?", name="clarity", scale=Scale(min=0, max=100, integer=True))])
    people, judge = [["50"], ["51"], ["52"]], [["51"], ["52"], ["53"]]
    row = agreement(run_of(rubric, judge), labels_of(rubric, people)).criteria["clarity"]
    assert row.ordered is not None
    assert row.ordered.emd == pytest.approx(0.01)
    assert row.ordered.ks == pytest.approx(1 / 3)
    assert row.effect_size is None  # the same difference everywhere: no spread


def test_judge_that_mixes_submissions_up_has_equal_distributions_and_large_errors() -> None:
    rubric = Rubric([Criterion(requirement="How clear?", name="clarity", scale=Scale(min=0, max=10, integer=True))])
    row = agreement(run_of(rubric, [["0"], ["10"]]), labels_of(rubric, [["10"], ["0"]])).criteria["clarity"]
    assert row.ordered is not None
    assert (row.ordered.emd, row.ordered.ks, row.ordered.mae) == (0.0, 0.0, 1.0)


def test_pooled_kappa_of_one_criterion_is_its_kappa_and_of_several_is_not_raised_by_their_rates() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    rng = random.Random(6)
    one = [rng.choice(["MET", "UNMET"]) for _ in range(50)]
    judge = [answer if rng.random() < 0.8 else "UNMET" for answer in one]
    single = agreement(run_of(binary_rubric(), [[a] for a in judge]), labels_of(binary_rubric(), [[a] for a in one]))
    assert single.micro_kappa == pytest.approx(metrics.cohen_kappa_score(one, judge))
    # People say MET to 90 % on the first criterion and to 10 % on the second. The judge knows that, and nothing else.
    pairs = [("MET", "MET")] * 81 + [("MET", "UNMET")] * 9 + [("UNMET", "MET")] * 9 + [("UNMET", "UNMET")]
    other = {"MET": "UNMET", "UNMET": "MET"}
    rubric = binary_rubric(2)
    people, judged = ([[pair[place], other[pair[place]]] for pair in pairs] for place in (0, 1))
    total = agreement(run_of(rubric, judged), labels_of(rubric, people))
    assert total.criteria["c0"].chance_agreement == pytest.approx(0.82)
    assert total.micro_kappa == pytest.approx(0.0)
    flat = [[answer for row in rows for answer in row] for rows in (people, judged)]
    assert metrics.cohen_kappa_score(*flat) > 0.6


def test_pooled_kappa_of_labels_by_verdict_is_that_of_the_whole_run() -> None:
    rubric = binary_rubric()
    judge = [["MET"]] * 10 + [["UNMET"]] * 10 + [["MET"]] * 80
    people = [["MET"]] * 10 + [["MET"], ["UNMET"]] * 5
    by_verdict = agreement(run_of(rubric, judge), labels_of(rubric, people, "by_verdict"))
    whole = agreement(run_of(rubric, judge), labels_of(rubric, [*people, *[["MET"]] * 80]))
    assert by_verdict.micro_kappa == pytest.approx(whole.micro_kappa)
    assert by_verdict.criteria["c0"].effect_size is None


def test_options_that_are_no_answer_count_as_abstentions_of_both_sides() -> None:
    rubric = Rubric([QUALITY])
    na = "cannot be judged"
    people = [[na], [na], ["good"], ["good"], ["CANNOT_ASSESS"]]
    judge = [[na], ["good"], [na], ["good"], [na]]
    row = agreement(run_of(rubric, judge), labels_of(rubric, people)).criteria["quality"]
    assert (row.judge_abstained, row.people_abstained, row.both_abstained) == (3, 3, 2)
    assert row.abstention_kappa == pytest.approx(1 / 6)


def test_kappa_over_all_has_the_interval_of_one_criterion_and_one_for_dependent_judgments() -> None:
    rng = random.Random(8)
    people = [[rng.choice(["MET", "UNMET"])] * 4 for _ in range(60)]
    judge = [answers if rng.random() < 0.8 else ["UNMET" if answers[0] == "MET" else "MET"] * 4 for answers in people]
    one = agreement(
        run_of(binary_rubric(), [row[:1] for row in judge]), labels_of(binary_rubric(), [row[:1] for row in people])
    )
    assert one.kappa == pytest.approx(one.criteria["c0"].kappa)
    # Four criteria that always have the same answers tell nothing more than one of them.
    rubric = binary_rubric(4)
    four = agreement(run_of(rubric, judge), labels_of(rubric, people))
    assert (four.kappa.value, four.kappa.n) == (pytest.approx(four.micro_kappa), 240)
    assert four.kappa.low is not None
    assert one.kappa.low is not None
    assert four.kappa.low == pytest.approx(one.kappa.low, abs=0.05)
    assert f"kappa {four.kappa}" in four.summary()
    by_verdict = agreement(run_of(rubric, judge), labels_of(rubric, people, "by_verdict"))
    assert (by_verdict.kappa.value, by_verdict.kappa.low) == (by_verdict.micro_kappa, None)


@pytest.mark.parametrize(
    ("copies", "warning"),
    [
        (0.0, "not shown to agree with each other more than by chance on `c0` ("),
        (0.65, "raters agree little with each other on `c0` (0.4"),
        (0.97, None),
    ],
)
def test_people_who_agree_by_chance_alone_cannot_measure_a_judge(copies: float, warning: str | None) -> None:
    rng = random.Random(3)
    rubric = binary_rubric()
    truth = [rng.choice(["MET", "UNMET"]) for _ in range(100)]
    labels = [
        label.model_copy(update={"rater": rater})
        for rater in ("ana", "ben", "eva")
        for label in labels_of(rubric, [[a if rng.random() < copies else rng.choice(["MET", "UNMET"])] for a in truth])
    ]
    agreed = agreement(run_of(rubric, [[answer] for answer in truth]), labels)
    about_people = [text for text in agreed.warnings if "with each other" in text]
    assert len(about_people) == (warning is not None)
    assert warning is None or warning in agreed.summary()
    alone = agreement(run_of(rubric, [[a] for a in truth]), [label for label in labels if label.rater == "ana"])
    assert not any("with each other" in text for text in alone.warnings)
