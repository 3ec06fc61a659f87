"""Recorded judges on public data: small sets of our own, and the figures that other code computed of the real ones."""

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.benchmarks.figures import Benchmark
from rubric_integrations.trust.benchmarks.sets import (
    SOURCES,
    BenchmarkDataError,
    BenchmarkItem,
    BenchmarkSet,
    RecordedJudge,
    commit_of,
    load_set,
)
from rubric_integrations.trust.means import estimate_ac1
from rubric_integrations.trust.statistics import gwet_ac1
from tests.conftest import SHARED
from tests.trust.benchmark_data import LEVELS, write_pairs, write_summaries

DATA = SHARED / "data"
needs_data = pytest.mark.skipif(not (DATA / "devai").exists(), reason="../shared/data does not exist")
FACT = "fact in a text"
# The level of each of 24 insights, by people and by two judges.
PEOPLE = "012012012012012012012012"
GOOD = "012012012012012012" + "120120"
POOR = "012012012012" + "200200" + "122122"


def summaries(data: Path) -> Benchmark:
    write_summaries(data, {"good": GOOD, "poor": POOR}, people=PEOPLE)
    return Benchmark(load_set("summhay", data))


def test_figures_of_a_recorded_judge_are_those_of_its_answers(tmp_path: Path) -> None:
    benchmark = summaries(tmp_path)
    good, poor = benchmark.data.judges
    figures = benchmark.measure(good, FACT)
    assert (figures.n, figures.unread, figures.accuracy.value) == (24, 0, 0.75)
    assert figures.kappa.value == pytest.approx(0.625)
    assert figures.ac1.value == pytest.approx(0.625)
    assert figures.bias is not None
    assert figures.bias.value == 0
    assert figures.accuracy.low is not None
    gain = benchmark.compare(good, poor, FACT).accuracy
    poor_accuracy = sum(one == other for one, other in zip(POOR, PEOPLE, strict=True)) / 24
    assert gain.value == pytest.approx(0.75 - poor_accuracy)
    assert gain.n == 24


def test_unread_replies_are_counted_and_left_out_of_the_figures(tmp_path: Path) -> None:
    benchmark = summaries(tmp_path)
    good, _ = benchmark.data.judges
    unread = good._replace(answers={**good.answers, ("summary0", "i0"): None, ("summary11", "i23"): None})
    figures = benchmark.measure(unread, FACT)
    assert (figures.n, figures.unread, figures.accuracy.value) == (22, 2, pytest.approx(17 / 22))


def test_panel_of_two_is_unanimous_where_both_judges_agree(tmp_path: Path) -> None:
    benchmark = summaries(tmp_path)
    share, figures = benchmark.unanimous(benchmark.data.judges, FACT)
    agreed = [place for place in range(24) if GOOD[place] == POOR[place]]
    assert share == len(agreed) / 24
    assert figures.accuracy.value == pytest.approx(sum(GOOD[place] == PEOPLE[place] for place in agreed) / len(agreed))
    certificate = benchmark.certify(benchmark.data.judges, 0.2)
    assert (certificate.signal, certificate.n) == ("agreement", 6)


def test_equal_ratings_prefer_the_second_output_in_one_order_and_the_first_in_the_other(tmp_path: Path) -> None:
    write_pairs(
        tmp_path,
        ratings=[("7", "3"), ("5", "5"), ("", "4"), ("10", "9"), ("1", "2"), ("3", "2")],
        replies=[("Output (a) is better.", "Output (b) is better."), ("Output (a) is better.", "Output (a) is better.")]
        + [("unclear", "Output (b) is better.")] * 4,
    )
    benchmark = Benchmark(load_set("llmbar", tmp_path))
    ratings, choices = benchmark.data.judges
    figures = benchmark.measure(ratings, "instruction followed")
    assert (figures.n, figures.unread) == (10, 2)
    assert figures.accuracy.value == pytest.approx((2 + 1 + 2 + 0 + 2) / 10)
    figures = benchmark.measure(choices, "instruction followed")
    assert (figures.n, figures.unread, figures.accuracy.value) == (8, 4, pytest.approx(7 / 8))


def choices_of(data: Path, *replies: str) -> RecordedJudge:
    """Read replies to pairs, of which the first output is shown first. The prompt requests reasons first."""
    write_pairs(data, ratings=[("7", "3")] * len(replies), replies=[(reply, "unclear") for reply in replies])
    return load_set("llmbar", data).judges[1]


def test_choice_is_what_the_reply_states_and_the_authors_rule_is_kept_apart(tmp_path: Path) -> None:
    replies = {
        "Output (b) is better.\n\nOutput (a) does not run.": ("2", "1"),
        "Output (a) does not run. Therefore, Output (b) is better.": ("2", "1"),
        "Output (b) does not run. Therefore, Output (a) is better.": ("1", "1"),
        "Output (b) is better. Output (a) is short. Therefore, Output (a) is better.": (None, "1"),
        "I cannot claim that either Output (a) or Output (b) is better.": (None, "1"),
        "Output (b)": ("2", "2"),
        "": (None, None),
    }
    judge = choices_of(tmp_path, *replies)
    assert judge.published is not None
    questions = [(f"Natural/{number}:ab", "better") for number in range(len(replies))]
    assert [(judge.answers[each], judge.published[each]) for each in questions] == [*replies.values()]


def test_replies_that_begin_with_the_verdict_are_named(tmp_path: Path) -> None:
    replies = {
        "Output (b) is better.\n\nOutput (a) is short.": True,
        "In this case, Output (a) is better. It runs.": True,
        "# Explanation:\nOutput (a) is better.\nIt runs.": True,
        "Both are short, but Output (a) is better because it runs. Therefore, Output (a) is better.": True,
        "Output (a) adds 3.7 and 6.2 to 9.9. Output (b) does not. Therefore, Output (a) is better.": False,
        '1. Output (a) says "no." 2. Output (b) is long.\nTherefore, Output (b) is better.': False,
        "Both are good.": False,
        "": False,
    }
    judge = choices_of(tmp_path, *replies)
    first = [(f"Natural/{number}:ab", "better") in judge.verdict_first for number in range(len(replies))]
    assert first == [*replies.values()]


def test_weighted_kappa_ranks_judges_of_ordered_answers_and_does_not_fall_with_more_levels(tmp_path: Path) -> None:
    benchmark = summaries(tmp_path)
    good, poor = (benchmark.measure(judge, FACT) for judge in benchmark.data.judges)
    assert good.weighted_kappa is not None
    assert good.ranking_kappa is good.weighted_kappa
    gain = benchmark.compare(good.judge, poor.judge, FACT).kappa
    assert gain.value == pytest.approx((good.ranking_kappa.value or 0) - (poor.ranking_kappa.value or 0))
    write_pairs(tmp_path, ratings=[("7", "3")] * 6, replies=[("Output (a)", "Output (b)")] * 6)
    pairs = Benchmark(load_set("llmbar", tmp_path))
    figures = pairs.measure(pairs.data.judges[0], "instruction followed")
    assert figures.ranking_kappa is figures.kappa


def rated(people: Sequence[Mapping[str, str]], judge: str) -> BenchmarkSet:
    """Return a set with one binary question an item, the labels of its raters and the answers of a judge."""
    criterion = Criterion(name="c", requirement="It runs", tags=(FACT,))
    answers = {"1": "MET", "0": "UNMET"}
    items = [
        BenchmarkItem(f"i{n}", f"{n}", {"c": criterion}, {"c": {k: answers[v] for k, v in labels.items()}})
        for n, labels in enumerate(people)
    ]
    return BenchmarkSet("summhay", items, [RecordedJudge("judge", "", "", recorded(judge))])


def recorded(digits: str) -> dict[tuple[str, str], str | None]:
    return {(f"i{n}", "c"): {"1": "MET", "0": "UNMET", "?": None}[digit] for n, digit in enumerate(digits)}


def test_one_rater_is_compared_with_the_other_raters_like_the_judge() -> None:
    data = rated(
        [dict(zip("abc", three, strict=True)) for three in ("111", "110", "000", "101")] + [{"a": "1"}], "0001?"
    )
    person, judge = (beside := data.with_one_rater()).judges
    # With three raters, the two others of a rater may differ: then there is no reference.
    assert sorted(item for item, _ in beside.references) == sorted(
        [f"i{n}/{rater}" for n in (0, 2) for rater in "abc"] + ["i1/c", "i3/b"]
    )
    benchmark = Benchmark(beside)
    assert (benchmark.measure(person, FACT).n, benchmark.measure(person, FACT).accuracy.value) == (8, 0.75)
    assert benchmark.measure(judge, FACT).accuracy.value == pytest.approx(4 / 8)
    assert benchmark.compare(judge, person, FACT).accuracy.value == pytest.approx(4 / 8 - 6 / 8)


def test_judge_that_always_gives_the_most_frequent_answer_has_kappa_0_and_is_not_better() -> None:
    people, lenient = "0" * 60 + "1" * 30, "0" * 5 + "1" * 85
    data = rated([{"a": label} for label in people], lenient)
    benchmark, constant = Benchmark(data), data.constant_judge
    assert set(constant.answers.values()) == {"UNMET"}
    figures = benchmark.measure(constant, FACT)
    assert (figures.accuracy.value, figures.kappa.value) == (pytest.approx(2 / 3), 0)
    minus = benchmark.compare(constant, data.judges[0], FACT)
    assert minus.accuracy.low is not None
    assert minus.accuracy.low > 0
    assert minus.not_better == ("kappa",)


def test_judge_is_better_only_if_accuracy_and_kappa_are() -> None:
    people = "01" * 40
    data = rated([{"a": label} for label in people], "01" * 20 + "10" * 20)
    benchmark, judge = Benchmark(data), data.judges[0]
    perfect = judge._replace(answers=recorded(people))
    assert benchmark.compare(perfect, judge, FACT).not_better == ()
    assert benchmark.compare(judge, judge, FACT).not_better == ("accuracy", "kappa")


def test_difference_of_an_undefined_kappa_is_undefined_and_not_0() -> None:
    data = rated([{"a": "1"}] * 10, "1" * 10)
    benchmark, judge = Benchmark(data), data.judges[0]
    varied = judge._replace(answers=recorded("1010101010"))
    for one, other in ((judge, varied), (varied, judge)):
        minus = benchmark.compare(one, other, FACT)
        assert (minus.kappa.value, minus.kappa.low) == (None, None)
        assert "kappa" in minus.not_better
    nothing = benchmark.compare(judge, judge._replace(answers={}), FACT)
    assert (nothing.accuracy.value, nothing.kappa.value) == (None, None)


def test_set_of_some_questions_has_the_answers_of_its_judges_to_them() -> None:
    data = rated([{"a": label} for label in "0101"], "01?0")
    some = data.restricted_to({("i1", "c"), ("i2", "c")})
    assert [item.id for item in some.items] == ["i1", "i2"]
    assert some.judges[0].answers == {("i1", "c"): "MET", ("i2", "c"): None}
    assert set(some.constant_judge.answers) == {("i1", "c"), ("i2", "c")}


def test_panel_votes_by_the_strategy_that_is_named(tmp_path: Path) -> None:
    write_summaries(tmp_path, {"one": "0000", "two": "0000", "three": "2222"}, people="0000")
    benchmark = Benchmark(load_set("summhay", tmp_path))
    for strategy, answer in (("mode", LEVELS[0]), ("median", LEVELS[0]), ("mean", LEVELS[1])):
        panel = benchmark.panel(benchmark.data.judges, strategy)
        assert set(panel.answers.values()) == {answer}
        assert panel.prompt == strategy


def test_clone_of_summhay_is_read_like_the_folder(tmp_path: Path) -> None:
    write_summaries(tmp_path, {"good": GOOD, "poor-9fs": POOR}, people=PEOPLE)
    lines = [json.loads(line) for line in (tmp_path / "summhay" / "items.jsonl").read_text().splitlines()]
    words = {"NO_COVERAGE": "not_covered", "PARTIAL_COVERAGE": "partially_covered", "FULL_COVERAGE": "fully_covered"}
    entries = [
        {
            "subtopic_id": line["subtopic_id"],
            "subtopic": line["query"],
            "summary": [line["response"]],
            "reference_insights": [
                {"insight_id": each["id"], "insight": each["requirement"]} for each in line["criteria"]
            ],
            "annotation": [
                {"insight_id": name, "coverage": words[level]} for name, level in line["human_labels"].items()
            ],
        }
        | {
            f"predictions_{prompt}": [
                {"insight_id": name, "coverage": level} for name, level in line["judge_labels"][judge].items()
            ]
            for judge, prompt in (("good", "prompted_good"), ("poor-9fs", "9fs_poor"))
        }
        for line in lines
    ]
    clone = tmp_path / "clones" / "summary-of-a-haystack"
    (clone / "data").mkdir(parents=True)
    (clone / "data" / "eval_benchmark_data.json").write_text(json.dumps(entries))
    for named in (clone, tmp_path / "clones"):
        read = load_set("summhay", named)
        folder = load_set("summhay", tmp_path)
        assert (read.items, read.judges, read.rows) == (folder.items, folder.judges, folder.rows)


def test_interval_of_ac1_has_the_width_that_resampled_clusters_show() -> None:
    rng = np.random.default_rng(7)
    groups = np.repeat(np.arange(60), 5)
    people = rng.integers(0, 3, 300)
    is_right = rng.random(60)[groups] < 0.6
    judge = np.where(is_right, people, rng.integers(0, 3, 300))

    def table(rows: Any) -> np.ndarray:
        counts = np.zeros((3, 3))
        np.add.at(counts, (people[rows], judge[rows]), 1)
        return counts

    cells = list(zip(people.tolist(), judge.tolist(), strict=True))
    estimate = estimate_ac1(table(np.arange(300)), cells, 0.95, groups)
    assert estimate.low is not None
    assert estimate.high is not None
    clusters = (rng.integers(0, 60, 60) for _ in range(500))
    draws = [gwet_ac1(table((5 * drawn[:, None] + np.arange(5)).ravel())) or 0.0 for drawn in clusters]
    low, high = np.quantile(draws, [0.025, 0.975])
    assert estimate.high - estimate.low == pytest.approx(high - low, rel=0.2)


def test_missing_or_malformed_data_are_refused_with_the_folder(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkDataError, match=r"'nothing' is not a set: name some of summhay, devai"):
        load_set("nothing", tmp_path)
    with pytest.raises(
        BenchmarkDataError, match=r"ttcw: there is no such folder.*github.com/salesforce/creativity_eval"
    ):
        load_set("ttcw", tmp_path)
    write_summaries(tmp_path, {}, people="0011")
    (tmp_path / "summhay" / "items.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(BenchmarkDataError, match=r"does not have the form of the set SummHay: KeyError"):
        load_set("summhay", tmp_path)
    assert commit_of(tmp_path) is None


def expected_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "expected.json").read_text(encoding="utf-8"))


def check_expected(name: str) -> None:
    """Compare each judge's figures with those that other code computed."""
    benchmark, expected = Benchmark(load_set(name, DATA)), expected_of(name)["judges"]
    scale = {"summhay": 2, "conala": 4}.get(name, 1)
    for judge, figures in zip(benchmark.data.judges, expected.values(), strict=True):
        row = benchmark.measure(judge, benchmark.data.kinds[0])
        assert row.bias is not None
        assert (row.n, row.unread) == (figures["n"], figures["unread"])
        ours = (row.accuracy.value, row.kappa.value, row.ac1.value, row.bias.value and scale * row.bias.value)
        assert ours == pytest.approx([figures[key] for key in ("accuracy", "kappa", "ac1", "bias")], abs=1e-6)
        if row.weighted_kappa is not None:
            assert row.weighted_kappa.value == pytest.approx(figures["kappa_quadratic"], abs=1e-6)


@needs_data
def test_judge_of_devai_has_the_expected_figures() -> None:
    check_expected("devai")


@pytest.mark.statistics
@needs_data
@pytest.mark.parametrize("name", ["summhay", "conala", "ttcw"])
def test_judges_of_a_set_have_the_expected_figures(name: str) -> None:
    check_expected(name)


@pytest.mark.statistics
@needs_data
def test_people_of_ttcw_and_conala_have_the_expected_alpha() -> None:
    experts = Benchmark(load_set("ttcw", DATA)).people("creativity")
    assert experts.alpha == pytest.approx(expected_of("ttcw")["people"]["krippendorff_alpha_nominal"], abs=1e-6)
    graders = Benchmark(load_set("conala", DATA)).people("quality")
    alphas = expected_of("conala")["people"]["krippendorff_alpha"]
    assert (graders.alpha, graders.weighted_alpha) == pytest.approx((alphas["nominal"], alphas["interval"]), abs=1e-6)


@pytest.mark.statistics
@needs_data
def test_each_question_of_llm_rubric_has_the_expected_accuracy() -> None:
    data, expected = load_set("llm_rubric", DATA), expected_of("llm_rubric")
    for name, criterion in data.items[0].criteria.items():
        items = [item._replace(labels={name: item.labels[name]}) for item in data.items]
        row = Benchmark(replace(data, items=items)).measure(data.judges[0], criterion.tags[0])
        figures = expected[f"{name}|first_token_llm"]
        assert (row.n, row.accuracy.value) == (figures["n"], pytest.approx(figures["accuracy"], abs=1e-6))


@pytest.fixture(scope="module")
def page_module() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "judges.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_judges", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_undefined_kappa_is_ranked_last_and_undefined_limits_stay_undefined(page_module: ModuleType) -> None:
    data = rated([{"a": "1"}] * 10, "1" * 10)
    undefined = Benchmark(data).measure(data.judges[0], FACT)
    worse = rated([{"a": label} for label in "0101010101"], "1010101010")
    below_0 = Benchmark(worse).measure(worse.judges[0], FACT)
    assert (undefined.kappa.value, below_0.kappa.value) == (None, -1)
    assert max([undefined, below_0], key=page_module.kappa_of) is below_0
    assert page_module.kappas([undefined, below_0]) == [-1]
    nothing = page_module.complement(Estimate(None, None, None, 0))
    assert nothing == Estimate(None, None, None, 0)


def test_tied_votes_are_counted_without_unread_replies(page_module: ModuleType) -> None:
    judges = [rated([], digits).judges[0] for digits in ("0101", "0110", "?111")]
    assert page_module.tied_share(judges) == 0
    assert page_module.tied_share(judges[:2]) == 0.5
    assert page_module.tied_share([*judges[:2], judges[2]._replace(answers=recorded("??11"))]) == 0
    assert page_module.tied_share([*judges[:2], judges[2]._replace(answers=recorded("11?1"))]) == 0.25


@pytest.mark.statistics
@needs_data
def test_llmbar_has_the_ninety_published_accuracies(page_module: ModuleType) -> None:
    benchmark, expected = Benchmark(load_set("llmbar", DATA)), expected_of("llmbar")
    lines = [(DATA / "llmbar" / name).open(encoding="utf-8").readline() for name in ("items.jsonl", "pairs.jsonl")]
    names = [name for line in lines for name in json.loads(line)["judge_outputs"]]
    ours = {
        f"{subset}|{name}": accuracy
        for name, judge in zip(names, benchmark.data.judges, strict=True)
        for subset, accuracy in page_module.published_accuracies(benchmark, judge).items()
    }
    assert len(ours) == 90
    assert ours == pytest.approx({key: expected[key]["published"] for key in ours}, abs=1e-3)


@pytest.mark.statistics
@needs_data
def test_choices_are_read_as_they_were_one_by_one(page_module: ModuleType) -> None:
    data = load_set("llmbar", DATA)
    replies = list(csv.DictReader(page_module.READINGS.open(encoding="utf-8")))
    assert {(row["judge"], row["id"]) for row in replies if row["judge"] == "PaLM2"} >= {
        (judge.name, item)
        for judge in data.judges
        if judge.name == "PaLM2" and judge.published
        for (item, name), answer in judge.answers.items()
        if answer != judge.published[item, name]
    }
    assert page_module.agreement_with_readings(data) == page_module.ReadingAgreement(447, 447, 445)


@pytest.mark.statistics
@pytest.mark.timeout(600)
@pytest.mark.skipif(not all((DATA / name).exists() for name in SOURCES), reason="../shared/data does not exist")
def test_page_of_judges_is_what_the_data_give(page_module: ModuleType) -> None:
    measured = page_module.measure(DATA)
    assert page_module.page(*measured) == page_module.PAGE.read_text(encoding="utf-8"), "run `make judges`"
    assert page_module.library_judges(*measured) == page_module.LIBRARY.read_text(encoding="utf-8")
