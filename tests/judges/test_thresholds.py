"""Thresholds of criteria and verdicts: which verdict counts, and the file, which may come from a stranger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion
from rubric_integrations.judges import Cascade, LMJudge, as_judge
from rubric_integrations.judges.saved import read_judge_file
from rubric_integrations.judges.thresholds import CriterionThresholds, Thresholds, has_thresholds, read_thresholds
from rubric_integrations.scoring import Judgment
from tests.judges.questions import CHOICE

CRITERION = Criterion(requirement="Names the river", name="river")
PROBABILITY = st.one_of(st.floats(0, 1), st.integers(0, 100).map(lambda hundredths: hundredths / 100))
LIMIT = st.one_of(st.none(), PROBABILITY)


def decided(p: float) -> Judgment:
    """Make the answer of a decision judge that gives MET this probability."""
    verdict, value = ("MET", 1.0) if p >= 0.5 else ("UNMET", 0.0)
    probabilities = {"MET": p, "UNMET": 1 - p}
    return Judgment(
        verdict=verdict, value=value, confidence=max(p, 1 - p), expected_value=p, probabilities=probabilities
    )


def thresholds_of(met: float | None, unmet: float | None, pooled: float | None = 0.0) -> Thresholds:
    return Thresholds(
        pooled=pooled, criteria=(CriterionThresholds(requirement="Names the river", met=met, unmet=unmet),)
    )


def verdict_of(thresholds: Thresholds, judgment: Judgment, criterion: Criterion = CRITERION) -> str | None:
    kept = thresholds.decide(criterion, judgment)
    return None if kept is None else kept.verdict


@given(PROBABILITY)
def test_thresholds_of_one_half_and_no_thresholds_equal_the_judges_own_verdict(p: float) -> None:
    for thresholds in (thresholds_of(0.5, 0.5), Thresholds(), thresholds_of(0.5, None)):
        assert thresholds.decide(CRITERION, decided(p)) is not None
        assert verdict_of(thresholds, decided(p)) == decided(p).verdict


@given(PROBABILITY, LIMIT, LIMIT, LIMIT, st.tuples(PROBABILITY, PROBABILITY, PROBABILITY))
def test_higher_threshold_never_turns_an_abstention_into_a_verdict(
    p: float, met: float | None, unmet: float | None, pooled: float | None, more: tuple[float, float, float]
) -> None:
    higher = thresholds_of(
        None if met is None else max(met, more[0]),
        None if unmet is None else max(unmet, more[1]),
        None if pooled is None else max(pooled, more[2]),
    )
    if verdict_of(thresholds_of(met, unmet, pooled), decided(p)) is None:
        assert verdict_of(higher, decided(p)) is None


@given(PROBABILITY, PROBABILITY, PROBABILITY)
def test_verdict_that_counts_has_at_least_the_probability_of_its_threshold(p: float, met: float, unmet: float) -> None:
    kept = thresholds_of(met, unmet).decide(CRITERION, decided(p))
    if kept is None:
        assert p < met
        assert 1 - p < unmet
    else:
        assert kept.value == float(kept.verdict == "MET")
        assert kept.confidence == {"MET": p, "UNMET": 1 - p}[kept.verdict]
        assert {"MET": p, "UNMET": 1 - p}[kept.verdict] >= {"MET": met, "UNMET": unmet}[kept.verdict]
        assert kept.expected_value == p


@pytest.mark.parametrize(
    ("p", "met", "unmet", "pooled", "verdict"),
    [
        (0.4, 0.3, 0.8, 0.0, "MET"),  # a fitted threshold replaces the judge's verdict
        (0.6, 0.3, 0.3, 0.0, "MET"),  # both count: 0.3 above the threshold, and 0.1
        (0.6, 0.9, None, 0.0, None),  # UNMET has no threshold, and needs one half
        (0.1, 0.9, None, 0.95, None),
        (0.04, 0.9, None, 0.95, "UNMET"),
        (0.04, 0.9, None, None, None),  # nothing is certified for UNMET
        (0.92, 0.9, None, None, "MET"),
    ],
)
def test_threshold_of_a_criterion_comes_before_the_pooled_one(
    p: float, met: float | None, unmet: float | None, pooled: float | None, verdict: str | None
) -> None:
    assert verdict_of(thresholds_of(met, unmet, pooled), decided(p)) == verdict


def test_criterion_is_identified_by_its_requirement_and_not_by_its_name() -> None:
    thresholds = thresholds_of(0.99, 0.99)
    renamed, other = CRITERION.model_copy(update={"name": "other"}), Criterion(requirement="Else", name="river")
    assert verdict_of(thresholds, decided(0.9), renamed) is None
    assert verdict_of(thresholds, decided(0.9), other) == "MET"


def test_abstention_stays_one_and_a_judge_without_probabilities_is_kept_by_its_confidence() -> None:
    thresholds = thresholds_of(0.8, 0.1)
    abstention = Judgment(verdict="CANNOT_ASSESS", value=None, confidence=0.9, probabilities={"MET": 0.9, "UNMET": 0.1})
    stated = Judgment(verdict="MET", value=1.0, confidence=0.9)
    assert verdict_of(thresholds, abstention) is None
    assert verdict_of(thresholds, stated) == "MET"
    assert verdict_of(thresholds, stated.model_copy(update={"confidence": 0.7})) is None
    assert verdict_of(thresholds, stated.model_copy(update={"confidence": None})) is None
    option = Judgment(verdict="clear", value=1.0, confidence=0.4)
    assert verdict_of(Thresholds(), option, CHOICE) == "clear"
    assert verdict_of(Thresholds(pooled=0.5), option, CHOICE) is None


@given(LIMIT, LIMIT, LIMIT)
def test_description_of_a_run_gives_the_same_thresholds_again(
    met: float | None, unmet: float | None, pooled: float | None
) -> None:
    thresholds = thresholds_of(met, unmet, pooled)
    assert Thresholds.from_description(json.loads(json.dumps(thresholds.describe()))) == thresholds


CERTIFIED = Thresholds(
    judge="openai/gpt-4.1-nano", source="certified", alpha=0.05, delta=0.05, pooled=None,
    criteria=(CriterionThresholds(requirement="Names “the” river", name="river", met=0.9),), trained_on=("a", "b"),
)  # fmt: skip


def test_file_has_a_kind_and_gives_the_same_thresholds_again(tmp_path: Path) -> None:
    CERTIFIED.save(tmp_path / "judge.json")
    assert read_thresholds(tmp_path / "judge.json") == CERTIFIED
    assert json.loads((tmp_path / "judge.json").read_text(encoding="utf-8"))["kind"] == "thresholds"
    assert has_thresholds(tmp_path / "judge.json")


def test_file_of_thresholds_is_a_judge_without_an_expensive_one(tmp_path: Path) -> None:
    path = tmp_path / "judge.json"
    CERTIFIED.save(path)
    cascade = as_judge(path)
    assert isinstance(cascade, Cascade)
    assert (cascade.strong, cascade.thresholds) == (None, CERTIFIED)
    [cheap] = cascade.cheap
    assert isinstance(cheap, LMJudge)
    assert (cheap.lm.model, cheap.confidence) == ("openai/gpt-4.1-nano", True)
    assert Cascade("openai/gpt-4.1-nano", thresholds=path).fingerprint() == cascade.fingerprint()
    Thresholds(pooled=0.9).save(path)
    with pytest.raises(ValueError, match=r"judge\.json: names no judge: pass it together with the judge"):
        as_judge(path)


def test_file_of_another_kind_is_refused_and_a_newer_one_says_so(tmp_path: Path) -> None:
    aligned, newer, own = tmp_path / "aligned.json", tmp_path / "newer.json", tmp_path / "own.json"
    LMJudge("openai/gpt-4.1-nano").save(aligned)
    newer.write_text('{"kind": "jury", "judges": []}')
    CERTIFIED.save(own)
    with pytest.raises(ValueError, match=r"aligned\.json: has no thresholds"):
        read_thresholds(aligned)
    with pytest.raises(ValueError, match=r"own\.json: has thresholds and no prompts"):
        read_judge_file(own)
    assert not has_thresholds(aligned)
    for read in (read_thresholds, read_judge_file, as_judge):
        with pytest.raises(ValueError, match=r"newer\.json: was made by a newer version: .* `kind` 'jury'"):
            read(newer)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"judge": "openai/m@https://evil.example/v1"}, "is not the name of a model"),
        ({"judge": "other.json"}, "is not the name of a model"),
        ({"pooled": 1.1}, "`pooled`"),
        ({"pooled": True}, "`pooled`"),
        ({"criteria": [{"requirement": "a"}, {"requirement": "a", "met": 0.9}]}, "has a requirement twice"),
        ({"criteria": [{"requirement": "a", "met": "0.9"}]}, r"`criteria\.0\.met`"),
        ({"api_base": "https://evil.example"}, "`api_base`"),
    ],
)
def test_damaged_or_hostile_file_is_refused_with_its_name(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "judge.json"
    path.write_text(json.dumps({"kind": "thresholds", **change}))
    with pytest.raises(ValueError, match=rf"judge\.json: .*{words}"):
        read_thresholds(path)
    for text in ("[]", "{", '{"kind": "thresholds", "pooled": NaN}', '{"kind": "thresholds", "judge": "\\ud83d"}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"judge\.json: "):
            read_thresholds(path)
