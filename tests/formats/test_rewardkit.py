"""Harbor Reward Kit's judge files: their formula, their faults, and the way back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, RubricError
from rubric_integrations.formats import read_document, reading_losses, write_document
from rubric_integrations.formats.parsing import dump, load_text
from rubric_integrations.testing import ScriptedJudge
from tests.cli.commands import run

TEXT = """
[judge]
judge = "openai/gpt-5-mini"
mode = "individual"
samples = 3

[[criterion]]
description = "Names the dose in milligrams"
id = "d1"
weight = 2

[[criterion]]
name = "clarity"
description = "How clear is it?"
type = "likert"
points = 4

[[criterion]]
name = "share"
description = "Share of the side effects that it names"
type = "numeric"
max = 20
weight = 0.5

[[criterion]]
name = "depth"
description = "How deep is it?"
type = "rubric"
levels = ["shallow", "fair", "deep"]
optional = true

[[criterion]]
name = "harm"
description = "Recommends a double dose"
negate = true
files = ["/app/answer.md"]
annotations = { type = "positive", since = 2026-01-02 }
"""


def as_data(text: str = TEXT) -> dict[str, Any]:
    return load_text(text, "toml", "tests.toml")


def with_changes(criterion: dict[str, Any] | None = None, **tables: Any) -> dict[str, Any]:
    """Return a small file in which some keys of the criterion, or some tables, are replaced."""
    return {"criterion": [{"description": "Is kind", **(criterion or {})}], **tables}


def faults_of(document: Any) -> str:
    with pytest.raises(RubricError) as refusal:
        read_document(document, "judge.toml")
    return str(refusal.value)


def test_file_is_validated_graded_and_equal_after_conversion_and_back(tmp_path: Path) -> None:
    path, native, back = (tmp_path / name for name in ("judge.toml", "native.yaml", "back.toml"))
    path.write_text(TEXT)
    assert "valid: 5 criteria" in run("validate", path).stdout
    answers = {"names_the_dose_in_milligrams": "MET", "clarity": 2, "share": 5, "depth": "fair", "harm": "no"}
    report = Rubric.from_file(path).grade_sync("600 mg", PerCriterionGrader(ScriptedJudge(answers)))
    assert report.score == pytest.approx((2 + 1 / 3 + 0.5 * 0.25 + 0.5 + 1) / 5.5)
    converted = run("convert", path, "--to", "native", "--output", native)
    assert converted.exit_code == 0
    assert "lost: `judge`, `mode`, `samples` of `[judge]`: left out" in converted.stderr
    assert "lost: `harm`: the `files` are kept in its metadata" in converted.stderr
    written = run("convert", native, "--to", "rewardkit", "--output", back)
    assert (written.exit_code, written.stderr) == (0, "")
    assert Rubric.from_file(back) == Rubric.from_file(native) == Rubric.from_file(path)
    assert run("convert", native, "--to", "rewardkit").stdout == back.read_text()


def test_negated_criterion_has_reversed_options_and_keeps_the_denominator() -> None:
    rubric = read_document(as_data(), "x")
    assert [(option.label, option.value) for option in rubric.criteria[4].choices] == [("yes", 0.0), ("no", 1.0)]
    levels = read_document(with_changes({"type": "rubric", "levels": ["a", "b", "c"], "negate": True}), "x")
    assert [(option.label, option.value) for option in levels.criteria[0].choices] == [("c", 0), ("b", 0.5), ("a", 1)]
    likert = read_document(with_changes({"type": "likert", "points": 3, "negate": True}), "x")
    assert likert.compute_score(["3"]) == 0.0
    assert read_document(write_document(likert, "rewardkit")[0], "x") == likert


@pytest.mark.parametrize(
    ("annotations", "own", "expected"),
    [
        ({"type": "Negative verifier"}, {}, True), ({"type": "negative"}, {"negate": False}, False),
        ({"type": "positive"}, {"negate": True}, True), ({"importance": "nice to have"}, {}, False),
    ],
)  # fmt: skip
def test_annotations_decide_the_polarity_unless_negate_is_written(
    annotations: dict[str, str], own: dict[str, Any], expected: bool
) -> None:
    rubric = read_document(with_changes({"annotations": annotations, **own}), "x")
    assert (rubric.criteria[0].options is not None) is expected
    again = read_document(load_text(dump(write_document(rubric, "rewardkit")[0], "toml"), "toml", "x"), "x")
    assert again == rubric


def reference_value(entry: dict[str, Any], raw: Any) -> float:
    """Reward Kit's value of an answer, written down independently of the reader."""
    kind = entry["type"]
    value = {
        "binary": lambda: float(raw == "yes"),
        "likert": lambda: (raw - 1) / (entry["points"] - 1),
        "numeric": lambda: (raw - entry["min"]) / (entry["max"] - entry["min"]),
        "rubric": lambda: raw / (len(entry["levels"]) - 1),
    }[kind]()
    return 1 - value if entry["negate"] else value


def random_entry(chance: random.Random, index: int) -> tuple[dict[str, Any], Any, Any]:
    """Return a criterion, the answer of a judge there, and the same answer here."""
    kind = chance.choice(["binary", "likert", "numeric", "rubric"])
    entry: dict[str, Any] = {
        "description": f"Question {index}", "name": f"q{index}", "type": kind, "weight": chance.choice([1, 2.5, 0.25]),
        "negate": kind != "numeric" and chance.random() < 0.4, "optional": chance.random() < 0.3,
    }  # fmt: skip
    if kind == "likert":
        entry["points"] = chance.randint(2, 7)
        raw = chance.randint(1, entry["points"])
        return entry, raw, str(raw) if entry["negate"] else raw
    if kind == "numeric":
        entry |= {"min": -1.0, "max": 3.0}
        raw = chance.choice([-1.0, 0.25, 3.0])
        return entry, raw, raw
    if kind == "rubric":
        entry["levels"] = [f"text {level}" for level in range(chance.randint(2, 10))]
        raw = chance.randrange(len(entry["levels"]))
        return entry, raw, entry["levels"][raw]
    raw = chance.choice(["yes", "no"])
    return entry, raw, raw if entry["negate"] else "MET" if raw == "yes" else "UNMET"


def test_score_and_pass_equal_reward_kits_formula_on_random_verdicts() -> None:
    # The same was compared with `rewardkit.reward.aggregate_scores` of harbor-rewardkit 0.2.3 on 1,000 random files.
    chance = random.Random(51)
    decided = 0
    for _ in range(1_000):
        drawn = [random_entry(chance, index) for index in range(chance.randint(1, 5))]
        aggregation = chance.choice(["weighted-mean", "weighted_mean", "all-pass", "required-pass", "threshold"])
        entries = [entry for entry, _, _ in drawn]
        if all(entry["optional"] for entry in entries):
            continue
        threshold = chance.choice([0.25, 0.5, 1.0])
        scoring = {"aggregation": aggregation, "threshold": threshold}
        rubric = read_document({"criterion": entries, "scoring": scoring}, "x")
        values = [reference_value(entry, raw) for entry, raw, _ in drawn]
        weights = [entry["weight"] for entry in entries]
        mean = sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
        needed = [v for v, e in zip(values, entries, strict=True) if aggregation == "all-pass" or not e["optional"]]
        judge = ScriptedJudge({entry["name"]: answer for entry, _, answer in drawn})
        answers = [answer for _, _, answer in drawn]
        assert rubric.compute_score(answers) == pytest.approx(mean)
        if aggregation not in ("weighted-mean", "weighted_mean") and decided < 60:
            decided += 1
            expected = mean >= threshold - 1e-9 if aggregation == "threshold" else min(needed) >= 1 - 1e-9
            assert rubric.grade_sync("x", PerCriterionGrader(judge)).passed is expected, (entries, answers)
    assert decided == 60


def test_weighted_sum_is_the_raw_score() -> None:
    document = with_changes({"weight": 3}, scoring={"aggregation": "weighted-sum"})
    assert read_document(document, "x").compute_score(["MET"], normalize=False) == 3
    assert any("`weighted-sum`" in loss for loss in reading_losses(document))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (with_changes({"weight": -1}, scoring={"aggregation": "weighted-sum"}), "criterion[0] `weight`: is negative"),
        (with_changes({"weight": -1}), "criterion[0] `weight`: is negative"),
        (with_changes(scoring={"aggregation": "any-pass"}), "scoring `aggregation`: is any-pass"),
        (with_changes(scoring={"aggregation": "mean"}), "scoring `aggregation`: is 'mean', and not one of"),
        (with_changes(scoring={"aggregation": ["x"]}), "scoring `aggregation`: is ['x']"),
        (with_changes(scoring={"threshold": 1.5}), "scoring `threshold`: must be a number from 0 to 1, got 1.5"),
        (with_changes(scoring={"threshold": float("nan")}), "scoring `threshold`: must be a number from 0 to 1"),
        (with_changes(scoring={"treshold": 0.5}), "scoring `treshold`: is not a known key: did you mean `threshold`"),
        (with_changes(scoring=["x"]), "`scoring`: must be a table"),
        (with_changes({"optional": True}, scoring={"aggregation": "required-pass"}), "all criteria are optional"),
        (with_changes(judge={"prompt_template": "p.md"}), "judge `prompt_template`: names a file with instructions"),
        (with_changes(judge={"modell": "x"}), "judge `modell`: is not a known key: did you mean `model`"),
        (with_changes({"weigth": 1}), "criterion[0] `weigth`: is not a known key: did you mean `weight`"),
        (with_changes(criteria_file={}), "`criteria_file`: is not a known key"),
        (with_changes({"weight": float("inf")}), "criterion[0] `weight`: must be a finite number"),
        (with_changes({"weight": float("nan")}), "criterion[0] `weight`: must be a finite number"),
        (with_changes({"weight": "3"}), "criterion[0] `weight`: must be a finite number, got '3'"),
        (with_changes({"weight": 10**300}), "criterion[0] `weight`: is out of range"),
        (with_changes({"weight": 0}), "has only zero weights"),
        (with_changes({"negate": "yes"}), "criterion[0] `negate`: must be true or false"),
        (with_changes({"type": "scale"}), "criterion[0] `type`: "),
        (with_changes({"type": "likert", "points": 1}), "criterion[0] `points`: is out of range"),
        (with_changes({"type": "likert", "points": 10**300}), "criterion[0] `points`: is out of range"),
        (with_changes({"type": "likert", "points": 11, "negate": True}), "`negate`: is true for 11 points"),
        (with_changes({"type": "numeric", "min": 2, "max": 2}), "criterion[0] `max`: must be above `min` 2.0"),
        (with_changes({"type": "numeric", "min": -1e308, "max": 1e308}), "criterion[0] `max`: must be above `min`"),
        (with_changes({"type": "numeric", "negate": True}), "criterion[0] `negate`: is true for a number"),
        (with_changes({"type": "rubric"}), "criterion[0] `levels`: must be 2 to 10 texts"),
        (with_changes({"type": "rubric", "levels": ["a", " "]}), "criterion[0] `levels`: must be 2 to 10 texts"),
        (with_changes({"type": "rubric", "levels": ["a", "A"]}), "has the label 'a' twice"),
        (with_changes({"name": "two words"}), "criterion[0] `name`: must have 1 to 64 letters"),
        (with_changes({"description": " "}), "criterion[0] `description`: is empty"),
        ({"criterion": [{"name": "x"}]}, "criterion[0] `description`: is missing"),
        ({"criterion": ["x"], "judge": {}}, "criterion[0]: must be a table"),
        ({"judge": {}}, "`criterion`: is missing: add a table"),
        ({"judge": {}, "criterion": {}}, "`criterion`: must be a list of tables"),
        ({"reward": [{"name": "reward", "weights": {"a": 1.0}}]}, "`reward`: combines the scores of other files"),
    ],
)  # fmt: skip
def test_fault_names_the_table_the_key_and_the_way(document: Any, words: str) -> None:
    message = faults_of(document)
    assert words in message
    assert "is read as `rewardkit`" in message


def test_names_with_the_same_slug_are_refused_or_numbered_as_the_mode_says() -> None:
    long = "The report states the operating margin of the quarter number "
    criteria = [{"description": long + "one"}, {"description": long + "two"}]
    assert "is the name of two criteria: give one of them another `name`" in faults_of({"criterion": criteria})
    rubric = read_document({"criterion": criteria, "judge": {"mode": "individual"}}, "x")
    slug = "the_report_states_the_operating_margin_o"
    assert rubric.keys == (slug, f"{slug}_2")
    assert read_document({"criterion": [{"description": "???"}, {"description": "!!!"}]}, "x").keys == ("c1", "c2")


def test_long_level_is_the_description_of_its_option_and_is_written_back() -> None:
    document = with_changes({"name": "n", "type": "rubric", "levels": ["x" * 600, "y"], "weight": 1.0})
    rubric = read_document(document, "x")
    assert [(option.label, option.description) for option in rubric.criteria[0].choices] == [
        ("level 0", "x" * 600), ("y", None),
    ]  # fmt: skip
    assert write_document(rubric, "rewardkit") == (document, [])


@pytest.mark.parametrize(
    ("criterion", "words"),
    [
        ({"weight": -5}, "`weight`: is negative, and Reward Kit has no penalties"),
        ({"check": {"contains": "x"}}, "`check`: has no place in Reward Kit"),
        ({"applies_when": "it rains"}, "`applies_when`: has no place in Reward Kit"),
        ({"per": "occurrence", "cap": 3}, "`per`: has no place in Reward Kit"),
        (
            {"options": [{"label": "a", "value": 0}, {"label": "b", "value": 0.7}, {"label": "c", "value": 1}]},
            "`options`: must be at most 10 texts, at equal distances",
        ),
    ],
)
def test_rubric_that_would_have_another_score_is_not_written(criterion: dict[str, Any], words: str) -> None:
    rubric = Rubric.from_dict([{"name": "a", "requirement": "r", **criterion}])
    with pytest.raises(RubricError, match=r"^rewardkit: ") as refusal:
        write_document(rubric, "rewardkit")
    assert words in str(refusal.value)


def test_each_part_without_a_place_is_listed_when_a_rubric_is_written() -> None:
    options = [
        {"label": "good", "value": 1, "description": "kind"},
        {"label": "bad", "value": 0},
        {"label": "?", "na": True},
    ]
    criteria: list[dict[str, Any]] = [
        {"name": "a b", "requirement": "r", "required": True, "metadata": {"page": 3, "files": ["x"]}},
        {"name": "a_b", "requirement": "r", "options": options, "scale_type": "nominal"},
        {"requirement": "r", "scale": {"min": 0, "max": 3, "integer": True, "levels": {"0": "bad"}}, "tags": ["t"]},
    ]
    document, losses = write_document(
        Rubric.from_dict({"guidelines": "g", "pass_mark": 0.6, "criteria": criteria}), "rewardkit"
    )
    assert [table["name"] for table in document["criterion"]] == ["a_b", "a_b_2", "c3"]
    assert document["scoring"] == {"aggregation": "threshold", "threshold": 0.6}
    for words in (
        "`guidelines`", "`pass_mark` and required criteria become `threshold`", "'page' of its metadata", "`required`",
        "its name becomes 'a_b'", "its name becomes 'a_b_2'", "its options are ordered there", "the option '?'",
        "written from the worst to the best", "the descriptions of its options", "`levels` of its scale", "fractions",
        "`tags`",
    ):  # fmt: skip
        assert any(words in loss for loss in losses), (words, losses)
    assert load_text(dump(document, "toml"), "toml", "x") == document
