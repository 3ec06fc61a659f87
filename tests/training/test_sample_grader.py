"""`SampleGrader`: one grader a process, empty completions, ledgers, pickles and refused arguments."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, RubricError
from rubric_integrations.graders import CallLimits
from rubric_integrations.runs.ledger import open_ledger
from rubric_integrations.scoring import JudgeError
from rubric_integrations.submission.thinking import SplitResponse
from rubric_integrations.training.sample_grader import (
    NO_REWARD,
    FailureLimit,
    Reward,
    SampleGrader,
    column_text,
    normalize_in_groups,
)
from tests.fakes import FakeJudge

RUBRIC = Rubric([Criterion(name="right", weight=10, requirement="a"), Criterion(weight=-15, requirement="b")])


async def rewards(samples: SampleGrader, *completions: str) -> list[float]:
    return [reward.score for reward in await asyncio.gather(*map(samples.grade, completions))]


async def test_concurrent_samples_share_one_grader_and_its_concurrency_limit() -> None:
    judge = FakeJudge("MET")
    samples = SampleGrader(RUBRIC, judge, normalize=False, limits=CallLimits(max_concurrency=3))
    assert await rewards(samples, *"abcdefgh") == [-5.0] * 8
    assert judge.peak == 3


@pytest.mark.parametrize("completion", ["", " \n", "<think>8.4%", "<think>8.4%</think>\n", "<think></think>"])
async def test_completion_without_an_answer_gets_the_least_reward_and_costs_no_call(completion: str) -> None:
    judge = FakeJudge("MET")
    settings: list[dict[str, Any]] = [{}, {"normalize": False}, {"empty": -20.0}]
    assert [(await SampleGrader(RUBRIC, judge, **each).grade(completion)).score for each in settings] == [
        0.0, -15.0, -20.0,
    ]  # fmt: skip
    assert judge.questions == []


async def test_least_reward_follows_the_scores_of_a_configured_grader() -> None:
    grader = PerCriterionGrader(FakeJudge(), normalize=False)
    assert await rewards(SampleGrader(RUBRIC, grader=grader), "", "a") == [-15.0, -5.0]


async def test_thinking_before_the_answer_is_not_graded() -> None:
    judge = FakeJudge()
    await SampleGrader(RUBRIC, judge).grade("<think>plan</think>It was 8.4%.")
    assert {question.submission.response for question in judge.questions} == {"It was 8.4%."}


async def test_completion_with_half_an_emoji_and_a_megabyte_is_graded() -> None:
    assert await rewards(SampleGrader(RUBRIC, FakeJudge()), "\ud83d" + "a" * 900_000) == [0.0]


async def test_completion_that_no_judge_can_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="characters"):
        await SampleGrader(RUBRIC, FakeJudge()).grade("a" * 1_000_001)


async def test_failed_judge_is_an_error() -> None:
    grader = PerCriterionGrader(FakeJudge({"a": "MET", "b": ValueError("down")}), max_retries=0)
    with pytest.raises(JudgeError, match="down"):
        await SampleGrader(RUBRIC, grader=grader).grade("a")


async def test_undefined_score_is_an_error_that_says_so() -> None:
    with pytest.raises(JudgeError, match="abstained on 2 criteria") as caught:
        await SampleGrader(RUBRIC, FakeJudge("CANNOT_ASSESS")).grade("a")
    assert caught.value.report.cannot_assess_count == 2


async def test_ledger_requests_no_judgment_twice_in_another_process_or_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    judge = FakeJudge(fingerprint="judge")
    samples = SampleGrader(RUBRIC, judge, ledger="rewards.sqlite")
    assert await rewards(samples, "a") == [0.0]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    copy = pickle.loads(pickle.dumps(SampleGrader(RUBRIC, "offline", ledger=tmp_path / "rewards.sqlite")))
    copy._grader._judge = judge
    assert await rewards(copy, "a") == [0.0]
    assert len(judge.questions) == 2, "a ledger in the other folder would be empty"


def test_pickle_holds_the_settings_without_the_grader_and_works_in_another_event_loop() -> None:
    samples = SampleGrader([{"weight": 2, "requirement": "42", "check": {"number": 42}}], "offline", normalize=False)
    assert asyncio.run(rewards(samples, "It is 42.")) == [2.0]
    copy = pickle.loads(pickle.dumps(samples))
    assert asyncio.run(rewards(copy, "It is 42.", "41")) == [2.0, 0.0]
    assert asyncio.run(rewards(samples, "41")) == [0.0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SampleGrader(RUBRIC), ValueError, "got neither"),
        (lambda: SampleGrader(RUBRIC, "offline", grader=PerCriterionGrader("offline")), ValueError, "got both"),
        (lambda: SampleGrader(RUBRIC, grader=PerCriterionGrader("offline"), normalize=False), ValueError, "set it"),
        (lambda: SampleGrader("no-such-file.yaml", "offline"), RubricError, "no-such-file"),
    ],
)
def test_argument_that_cannot_work_is_refused_at_once(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


async def test_open_ledger_is_opened_by_each_process_for_itself(tmp_path: Path) -> None:
    judge = FakeJudge(fingerprint="judge")
    with open_ledger(tmp_path / "run.sqlite") as ledger:
        assert await rewards(SampleGrader(RUBRIC, judge, ledger=ledger), "a") == [0.0]
        samples = SampleGrader(RUBRIC, "offline", ledger=ledger)
        copy = pickle.loads(pickle.dumps(samples))
        copy._grader._judge = judge
        assert await rewards(copy, "a") == [0.0]
    assert len(judge.questions) == 2


@pytest.mark.parametrize(
    "settings", [{"on_failure": "worst_case"}, {"on_failure": "abstain"}, {"stop_when_decided": True}]
)
def test_grader_whose_scores_the_judge_did_not_give_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"`grader` has `(on_failure|stop_when_decided)"):
        SampleGrader(RUBRIC, grader=PerCriterionGrader("offline", **settings))


@pytest.mark.parametrize("empty", [None, float("nan"), float("inf"), True, "none"])
def test_reward_of_an_empty_completion_that_is_no_number_is_refused(empty: Any) -> None:
    with pytest.raises(ValueError, match="`empty` must be a finite number or 'least'"):
        SampleGrader(RUBRIC, "offline", empty=empty)


async def test_text_that_is_split_already_is_graded_whole() -> None:
    judge = FakeJudge()
    transcript = "user: what is on the page?\ntool: bold</think>, says the page\nassistant: nothing."
    await SampleGrader(RUBRIC, judge).grade(SplitResponse("", transcript))
    assert {question.submission.response for question in judge.questions} == {transcript}


async def test_grade_for_synchronous_callers_has_the_same_result_inside_an_event_loop() -> None:
    samples = SampleGrader(RUBRIC, FakeJudge("MET"), normalize=False)
    assert samples.grade_sync("a", "q", "r").score == (await samples.grade("a", "q", "r")).score == -5.0
    with pytest.raises(JudgeError, match="abstained"):
        SampleGrader(RUBRIC, FakeJudge("CANNOT_ASSESS")).grade_sync("a")


async def test_metrics_have_the_same_names_for_verdicts_abstentions_and_empty_completions() -> None:
    samples = SampleGrader(RUBRIC, FakeJudge({"a": "MET", "b": "CANNOT_ASSESS"}))
    reward = await samples.grade("a")
    assert samples.metrics(reward) == {"rubric/coverage": 0.4, "rubric.right": 1.0, "rubric.c2": None}
    assert samples.metrics(reward, no_verdict=-1.0)["rubric.c2"] == -1.0
    empty = await samples.grade("")
    assert samples.metrics(empty) == {"rubric/coverage": 0.0, "rubric.right": None, "rubric.c2": None}
    assert samples.metrics(empty, no_verdict=-1.0, no_answer=0.0) == dict.fromkeys(samples.metrics(empty), 0.0)
    assert list(samples.metrics(Reward(0.0, None))) == list(samples.metrics(reward))
    failed = samples.metrics(NO_REWARD, no_verdict=math.nan, no_answer=0.0)
    assert len(failed) == 3
    assert all(value is not None and math.isnan(value) for value in failed.values())


def test_failure_limit_counts_only_failures_in_a_row() -> None:
    limit, error = FailureLimit(2), ValueError("down")
    for outcome in (error, None, error, None, None, error):
        limit.count(outcome)
    with pytest.raises(ValueError, match="2 samples in a row failed, the last one because down") as caught:
        limit.count(error)
    assert caught.value.__cause__ is error


async def test_failed_grade_is_no_reward_until_too_many_fail_in_a_row() -> None:
    limit = FailureLimit(2)
    right, failing = SampleGrader(RUBRIC, FakeJudge("MET")), SampleGrader(RUBRIC, FakeJudge("CANNOT_ASSESS"))
    assert await limit.reward(failing.grade("a")) is NO_REWARD
    assert (await limit.reward(right.grade("a"))).score == 0.0
    assert await limit.reward(failing.grade("a")) is NO_REWARD
    with pytest.raises(ValueError, match="2 samples in a row failed"):
        await limit.reward(failing.grade("a"))
    too_long = "x" * 1_000_001
    with pytest.raises(ValueError, match="1,000,001"):
        await FailureLimit(2).reward(right.grade(too_long))
    assert await FailureLimit(2).reward(right.grade(too_long), ValueError) is NO_REWARD


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(-10, 10) | st.just(math.nan)), max_size=12),
    st.booleans(),
)
def test_rewards_are_normalized_within_their_group_as_if_the_missing_ones_were_not_there(
    samples: list[tuple[str, float]], is_scaled: bool
) -> None:
    rewards, groups = [reward for _, reward in samples], [group for group, _ in samples]
    normalized = normalize_in_groups(rewards, groups, is_scaled=is_scaled)
    known = [index for index, reward in enumerate(rewards) if not math.isnan(reward)]
    alone = normalize_in_groups([rewards[i] for i in known], [groups[i] for i in known], is_scaled=is_scaled)
    assert [normalized[index] for index in known] == alone
    assert all(normalized[index] == 0.0 for index in range(len(rewards)) if index not in known)
    for group in set(groups):
        values = [(rewards[i], normalized[i]) for i in known if groups[i] == group]
        assert math.fsum(value for _, value in values) == pytest.approx(0, abs=1e-6)
        if len(values) > 1:
            deviation = stdev(reward for reward, _ in values) + 1e-6 if is_scaled else 1.0
            mean = fmean(reward for reward, _ in values)
            assert [value for _, value in values] == pytest.approx(
                [(reward - mean) / deviation for reward, _ in values]
            )


@pytest.mark.parametrize(
    ("value", "text"), [("a", "a"), ("", None), (None, None), (8.4, "8.4"), ({"a": 1}, '{"a": 1}')]
)
def test_value_of_a_column_is_a_text_or_none(value: object, text: str | None) -> None:
    assert column_text(value) == text
