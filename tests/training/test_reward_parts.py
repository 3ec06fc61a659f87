"""`RubricReward.parts`: one reward function for each criterion, and one grading for all of them."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import logging
import math
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, LengthPenalty, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits, RubricAsJudgeGrader
from rubric_integrations.rubric import Option, Scale
from rubric_integrations.runs import read_run
from rubric_integrations.scoring import to_judgment
from rubric_integrations.training import JudgeOutage, RubricReward
from tests.fakes import Answers, FakeJudge
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, judge, make_grader

RIGHT, RUDE, WRONG, EMPTY_HANDED, UNCLEAR, FAILING = (row.response for row in ROWS)
SIXTEEN = [f"Answer {number}" for number in range(16)]
GDPO = "normalize_then_sum"


async def judge_by_words(system: str, user: str) -> str:
    return await judge(system, user)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition is still false")


async def call(parts: Any, completions: list[Any], prompts: list[Any] | None = None, **columns: Any) -> list[Any]:
    """Call all parts as TRL does: with the same lists, at the same time."""
    prompts = [QUERY] * len(completions) if prompts is None else prompts
    return await asyncio.gather(*(part(prompts=prompts, completions=completions, **columns) for part in parts))


def make_parts(answers: Answers = "MET", **settings: Any) -> tuple[Any, FakeJudge]:
    own = FakeJudge(answers)
    return RubricReward(RUBRIC, grader=PerCriterionGrader(own, max_retries=0)).parts(**settings), own


async def test_parts_of_a_step_are_graded_once_with_the_scores_of_the_criteria() -> None:
    parts, own = make_parts(lambda question: "MET" if question.criterion.weight < 0 else "UNMET")
    assert [part.__name__ for part in parts] == ["rubric.right", "rubric.sourced", "rubric.rude"]
    assert parts.weights == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert await call(parts, SIXTEEN) == [[0.0] * 16] * 3
    assert len(own.questions) == 48


async def test_penalty_without_the_error_has_the_reward_one() -> None:
    parts = RubricReward(RUBRIC, grader=make_grader()).parts()
    assert await call(parts, [RIGHT, RUDE, WRONG, EMPTY_HANDED]) == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0]]


@pytest.mark.parametrize(("aggregation", "right"), [("sum_then_normalize", None), (GDPO, 1.0)])
async def test_failed_grade_is_none_in_all_parts_and_an_abstention_by_the_aggregation(
    aggregation: Any, right: float | None
) -> None:
    reward = RubricReward(RUBRIC, grader=make_grader())
    scores = await call(reward.parts(aggregation=aggregation), [UNCLEAR, FAILING, RIGHT, RIGHT])
    # The judge abstains on `right` of the first completion.
    assert [part[:2] for part in scores] == [[None, None], [right, None], [right, None]]
    assert [part[2:] for part in scores] == [[1.0, 1.0]] * 3


@pytest.mark.parametrize(
    ("cannot_assess", "expected"),
    [("zero", [0.0, 1.0]), ("partial", [0.5, 1.0]), ("fail", [0.0, 0.0]), (0.3, [0.3, 1])],
)
async def test_abstention_with_a_score_counts_in_the_parts_as_in_the_reward(cannot_assess: Any, expected: Any) -> None:
    rubric = Rubric([Criterion(name="right", requirement="a"), Criterion(name="rude", requirement="b", weight=-4.0)])
    grader = PerCriterionGrader(FakeJudge("CANNOT_ASSESS"), cannot_assess=cannot_assess)
    scores = await call(RubricReward(rubric, grader=grader).parts(), ["text"])
    assert scores == [[pytest.approx(value)] for value in expected]


@pytest.mark.parametrize(("empty", "expected"), [("least", 0.0), (None, None)])
async def test_completion_without_an_answer_has_the_least_reward_in_each_part_or_none(
    empty: Any, expected: float | None
) -> None:
    parts = RubricReward(RUBRIC, grader=make_grader(), empty=empty).parts()
    assert await call(parts, ["", "<think>The", []]) == [[expected] * 3] * 3


WEIGHTS = st.lists(st.sampled_from([-8.0, -3.0, -1.0, 0.0, 1.0, 2.0, 10.0]), min_size=1, max_size=5).filter(any)
VALUES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_weighted_sum_of_the_parts_ranks_as_the_weighted_sum_of_the_rubric(data: st.DataObject) -> None:
    weights = data.draw(WEIGHTS)
    rows = data.draw(st.lists(st.tuples(*(VALUES for _ in weights)), min_size=2, max_size=4))
    names = data.draw(st.permutations([f"k{number}" for number in range(len(weights))]))
    groups = {"first": names[:1], "other": names[1:2]} if len(names) > 2 and data.draw(st.booleans()) else "criterion"
    criteria = [
        Criterion(name=f"k{number}", requirement=f"r{number}", weight=weight, scale=Scale(min=0, max=1))
        for number, weight in enumerate(weights)
    ]

    def answer(question: Any) -> Any:
        number, key = int(question.submission.response), int(question.criterion.name[1:])
        return to_judgment(question.criterion, rows[number][key])

    reward = RubricReward(Rubric(criteria), grader=PerCriterionGrader(FakeJudge(answer), normalize=False))
    by_row = data.draw(st.booleans()) and groups != "criterion"
    split = RubricReward(lambda row: Rubric(criteria), grader=reward.grader) if by_row else reward
    parts = split.parts(groups)  # pyright: ignore[reportArgumentType]
    texts = [str(number) for number in range(len(rows))]
    scores = asyncio.run(call(parts, texts))
    totals = asyncio.run(reward([QUERY] * len(texts), texts))
    assert all(0 <= score <= 1 for part in scores for score in part)
    sums = [
        math.fsum(weight * part[row] for weight, part in zip(parts.weights, scores, strict=True))
        for row in range(len(rows))
    ]
    for first, second in zip(range(len(rows)), range(1, len(rows)), strict=False):
        difference = (totals[first] or 0) - (totals[second] or 0)
        assert math.copysign(1, difference) * (sums[first] - sums[second]) > -1e-9
        assert (abs(difference) > 1e-9) == (abs(sums[first] - sums[second]) > 1e-10)


async def test_options_counts_and_checks_are_parts_like_verdicts() -> None:
    rubric = Rubric(
        [
            Criterion(
                name="tone",
                requirement="t",
                weight=4,
                options=[Option(label="cold", value=0.25), Option(label="kind", value=1)],
            ),
            Criterion(name="sources", requirement="s", weight=2, per="occurrence", cap=5),
            Criterion(name="figure", requirement="f", weight=-5, check={"contains": "9"}),  # pyright: ignore[reportArgumentType]
        ]
    )
    own = FakeJudge({"t": "cold", "s": "3"})
    parts = RubricReward(rubric, own).parts()
    # The weight of `sources` is that of five occurrences.
    assert parts.weights == pytest.approx([4 / 14, 10 / 14, 5 / 14])
    assert await call(parts, ["It was 9%."]) == [[0.25], [0.6], [0.0]]


async def test_groups_are_weighted_means_and_the_rest_is_one_part() -> None:
    parts, _ = make_parts(
        lambda question: "UNMET" if question.criterion.name == "sourced" else "MET", by={"facts": ["right", "sourced"]}
    )
    assert [part.__name__ for part in parts] == ["rubric.facts", "rubric.other"]
    assert parts.weights == pytest.approx([1.0, 1 / 3])
    assert await call(parts, ["text"]) == [[pytest.approx(2 / 3)], [0.0]]
    whole, _ = make_parts(by={"all": ["right", "sourced", "rude"]})
    assert [part.__name__ for part in whole] == ["rubric.all"]


async def test_part_with_an_abstention_in_a_group_is_none() -> None:
    answers = {"Gives the right figure": "CANNOT_ASSESS", "Names a source": "MET", "Is rude": "UNMET"}
    parts, _ = make_parts(answers, by={"facts": ["right", "sourced"]}, aggregation=GDPO)
    assert await call(parts, ["text"]) == [[None], [1.0]]


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", GDPO])
async def test_abstention_on_a_criterion_of_weight_zero_leaves_the_other_parts(aggregation: Any) -> None:
    """The criterion is only observed: the trainer's sum is the same without its part."""
    rubric = [{"name": "seen", "requirement": "a", "weight": 0}, {"name": "right", "requirement": "b", "weight": 3}]
    answers = {"a": "CANNOT_ASSESS", "b": "MET"}
    reward = RubricReward(rubric, FakeJudge(answers))
    assert await call(reward.parts(aggregation=aggregation), ["text"]) == [[None], [1.0]]
    assert await call(reward.parts({"all": ["seen", "right"]}, aggregation), ["text"]) == [[1.0]]
    by_row = RubricReward(None, FakeJudge(answers)).parts({"facts": ["right"]}, aggregation)
    assert await call(by_row, ["text"], rubric=[rubric]) == [[1.0], [None]]


async def test_record_has_the_reward_of_a_completion_without_a_verdict_of_weight_zero(tmp_path: Path) -> None:
    rubric = [{"name": "seen", "requirement": "a", "weight": 0}, {"name": "right", "requirement": "b", "weight": 3}]
    judge = FakeJudge({"a": "CANNOT_ASSESS", "b": "MET"})
    await call(RubricReward(rubric, judge, record=tmp_path / "run.jsonl").parts(), ["text"])
    assert json.loads((tmp_path / "run.jsonl").read_text())["metadata"]["reward"] == 1.0


async def test_rubrics_of_rows_are_split_by_groups_with_equal_weights() -> None:
    own = [
        {"name": "margin", "requirement": "8.4", "weight": 6, "check": {"contains": "8.4"}},
        {"name": "fool", "requirement": "fool", "weight": -2, "check": {"contains": "fool"}},
    ]
    parts = RubricReward(None, "offline").parts({"facts": ["margin", "sources"], "tone": ["polite"]})
    assert [part.__name__ for part in parts] == ["rubric.facts", "rubric.tone", "rubric.other"]
    assert parts.weights == [1.0, 1.0, 1.0]
    # Each part is its share of the 8 points of the row; `tone` has no criterion in this row.
    assert await call(parts, [RIGHT, "8.4, fool"], rubric=[own, own]) == [[0.75, 0.75], [None, None], [0.25, 0.0]]
    grouped = [{"name": "margin", "requirement": "A", "criteria": [{"requirement": "b"}, {"requirement": "c"}]}]
    scores = await call(parts, [RIGHT, RIGHT, ""], rubric=[own, grouped, grouped])
    assert scores == [[0.75, None, None], [None] * 3, [0.25, None, None]]


async def test_name_in_by_that_no_row_of_the_first_step_has_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    own = [{"name": "margin", "requirement": "8.4", "check": {"contains": "8.4"}}]
    parts = RubricReward(None, "offline").parts({"facts": ["margin", "sorces"]})
    for _ in range(2):
        await call(parts, [RIGHT, ""], rubric=[own, own])
    assert [record.message for record in caplog.records] == [
        "no row of the first step has the criteria ['sorces'], which `by` names: if they are misspelled, correct "
        "them, or their criteria would count in the part 'other'"
    ]
    caplog.clear()
    await call(RubricReward(None, "offline").parts({"facts": ["margin"]}), [RIGHT, RIGHT], rubric=[own, own])
    assert caplog.records == []


async def test_row_with_criteria_in_addition_to_the_shared_rubric_is_refused() -> None:
    own = [{"name": "long", "requirement": "Is long", "check": {"min_words": 99}}]
    for by in ("criterion", {"facts": ["right"]}):
        parts = RubricReward(RUBRIC, grader=make_grader()).parts(by)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match="own criteria, such as 'long'"):
            await call(parts, [RIGHT, RIGHT], rubric=[None, own])


def test_pieces_of_a_rubric_that_are_no_weighted_sum_are_refused_by_name() -> None:
    tree: Any = {
        "requirement": "A",
        "weight": 3,
        "penalty_cap": 1,
        "criteria": [{"requirement": "a"}, {"requirement": "b", "weight": -2}],
    }
    metric: Any = {"name": "overlap", "type": "bleu", "weight": 0.3}
    rubrics = {
        "groups of criteria and `penalty_cap`": [tree],
        r"`applies_when` \(of 'c1'\)": [{"requirement": "a", "applies_when": "There is a figure"}],
        "`hybrid_metrics`": {"criteria": [{"requirement": "a"}], "hybrid_metrics": [metric]},
    }
    for message, data in rubrics.items():
        reward = RubricReward(data, "offline")  # pyright: ignore[reportArgumentType]
        for by in ("criterion", {"all": ["c1"]}):
            with pytest.raises(ValueError, match=message):
                reward.parts(by)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("reward", "arguments", "message"),
    [
        ({"grader": PerCriterionGrader("offline", length_penalty=LengthPenalty())}, {}, "`length_penalty`"),
        ({"grader": RubricAsJudgeGrader(judge_by_words)}, {}, "RubricAsJudgeGrader, which gives no verdicts"),
        ({"empty": -3}, {}, "`empty` must be 'least' or None for parts, got -3"),
        ({"rubric": None}, {}, "needs a rubric that all rows share"),
        ({}, {"by": "tag"}, "`by` must be 'criterion' or a mapping"),
        ({}, {"by": {}}, "`by` must be 'criterion' or a mapping"),
        ({}, {"by": {"facts": "right"}}, "must give each part a list"),
        ({}, {"by": {"facts": []}}, "must give each part a list"),
        ({}, {"by": {"": ["right"]}}, "must give each part a list"),
        ({}, {"by": {"facts": ["right", 3]}}, "must give each part a list"),
        ({}, {"by": {"facts": ["rihgt"]}}, "`by` names 'rihgt', which is no criterion"),
        ({}, {"by": {"facts": ["right"], "all": ["right"]}}, "the criterion 'right' twice"),
        ({}, {"aggregation": "mean"}, "`aggregation` must be one of"),
        ({"rubric": [{"requirement": "a", "weight": 1e-305}, {"requirement": "b", "weight": -1e5}]}, {}, "too large"),
    ],
)
def test_argument_that_cannot_be_used_is_refused_before_the_first_step(
    reward: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    settings: dict[str, Any] = {"rubric": RUBRIC, **({} if "grader" in reward else {"judge": "offline"}), **reward}
    with pytest.raises(ValueError, match=message):
        RubricReward(**settings).parts(**arguments)


async def test_required_criteria_and_min_score_change_no_reward() -> None:
    plain = [{"name": "a", "requirement": "a", "weight": 2}, {"name": "b", "requirement": "b"}]
    gated = [{**plain[0], "required": True}, {**plain[1], "min_score": 0.9}]
    scores = [await call(RubricReward(data, FakeJudge("UNMET")).parts(), ["text"]) for data in (plain, gated)]
    assert scores[0] == scores[1] == [[0.0], [0.0]]


# One grading for all parts of a batch.


async def test_equal_batch_of_the_next_step_is_graded_again() -> None:
    parts, own = make_parts()
    for _ in range(3):
        await call(parts, SIXTEEN, trainer_state=SimpleNamespace(global_step=1))
    assert len(own.questions) == 3 * 48


async def test_copied_lists_share_the_grading_at_once_and_one_after_another() -> None:
    parts, own = make_parts()
    messages = [[{"role": "assistant", "content": text}] for text in SIXTEEN]
    copies = [(list([QUERY] * 16), copy.deepcopy(messages)) for _ in parts]
    await asyncio.gather(*(part(*lists) for part, lists in zip(parts, copies, strict=True)))
    assert len(own.questions) == 48
    for part, lists in zip(parts, copies, strict=True):
        await part(*lists)
    assert len(own.questions) == 96


@pytest.mark.parametrize(
    "changes",
    [
        {"completions": ["Answer 1"]},
        {"prompts": ["Another question"]},
        {"reference": ["It was 9%."]},
        {"trainer_state": SimpleNamespace(global_step=8)},
    ],
)
async def test_part_that_missed_a_step_gets_no_grade_of_another_batch(changes: dict[str, Any]) -> None:
    """Only the first part is called in the first step, and the second part first in the next one."""
    parts, own = make_parts()
    batch = {
        "prompts": [QUERY],
        "completions": ["Answer"],
        "reference": ["8.4%"],
        "trainer_state": SimpleNamespace(global_step=7),
    }
    await parts[0](**batch)
    await parts[1](**{**batch, **changes})
    assert len(own.questions) == 6


async def test_list_that_the_trainer_fills_again_is_another_batch() -> None:
    parts, own = make_parts(lambda question: "MET" if question.submission.response == "second" else "UNMET")
    prompts, completions = [QUERY], ["first"]
    await parts[0](prompts, completions)
    completions[0] = "second"
    assert await parts[1](prompts, completions) == [1.0]
    assert {question.submission.response for question in own.questions} == {"first", "second"}


async def test_column_that_changes_after_the_call_is_graded_as_it_was() -> None:
    parts, own = make_parts()
    references = ["It was 8.4%."]
    task = asyncio.ensure_future(parts[0]([QUERY], ["text"], reference=references))
    await asyncio.sleep(0)
    references[0] = "It was 9%."
    await task
    assert {question.submission.reference for question in own.questions} == {"It was 8.4%."}


async def test_function_of_the_row_reads_all_columns_of_a_batch() -> None:
    def rubric_of(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"name": "a", "requirement": "a", "check": {"contains": row["figure"]}}]

    parts = RubricReward(rubric_of, "offline").parts({"a": ["a"]})
    assert await parts[0]([QUERY], [RIGHT], figure=["8.4"]) == [1.0]
    assert await parts[1]([QUERY], [RIGHT], figure=["9"]) == [None]
    assert await parts[0]([QUERY], [RIGHT], figure=["9"]) == [0.0]


async def test_fifty_groups_at_the_same_time_are_graded_once_each() -> None:
    parts, own = make_parts()
    await asyncio.gather(*(call(parts, [f"text {number}", "same"]) for number in range(50)))
    assert len(own.questions) == 50 * 2 * 3


async def test_cancelled_part_does_not_cancel_the_others() -> None:
    parts, own = make_parts()
    prompts = [QUERY] * 16
    tasks = [asyncio.ensure_future(part(prompts, SIXTEEN)) for part in parts]
    await asyncio.sleep(0)
    tasks[0].cancel()
    scores = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(scores[0], asyncio.CancelledError)
    assert scores[1:] == [[1.0] * 16, [0.0] * 16]
    assert len(own.questions) == 48


async def test_grading_ends_when_all_its_parts_are_cancelled_and_the_next_step_begins_anew() -> None:
    release = asyncio.Event()

    async def answer(question: Any) -> str:
        await release.wait()
        return "MET"

    parts, own = make_parts(answer)
    tasks = [asyncio.ensure_future(part([QUERY], ["text"])) for part in parts[:2]]
    await until(lambda: own.questions)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: not own.in_flight)
    sent = len(own.questions)
    release.set()
    assert await call(parts, ["text"]) == [[1.0], [1.0], [0.0]]
    assert len(own.questions) == sent + 3


async def test_outage_is_raised_in_every_part_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    parts = RubricReward(RUBRIC, grader=make_grader()).parts()
    with caplog.at_level(logging.WARNING):
        results = await asyncio.gather(*(part([QUERY] * 4, [FAILING] * 4) for part in parts), return_exceptions=True)
    assert [type(result) for result in results] == [JudgeOutage] * 3
    assert len([record for record in caplog.records if "4 of 4 completions have no reward" in record.message]) == 1
    assert await call(parts, [RIGHT]) == [[1.0]] * 3


async def test_metrics_columns_and_the_record_are_written_once(tmp_path: Path) -> None:
    metrics: list[str] = []
    columns: dict[str, list[Any]] = {}

    def log_metric(name: str, value: float) -> None:
        metrics.append(name)

    reward = RubricReward(RUBRIC, grader=make_grader(), record=tmp_path / "run.jsonl")
    await call(
        reward.parts(aggregation=GDPO),
        [RIGHT, RUDE, UNCLEAR, FAILING, ""],
        trainer_state=SimpleNamespace(global_step=4),
        log_metric=log_metric,
        log_extra=columns.__setitem__,
    )
    assert len(metrics) == len(set(metrics)) == 8
    assert columns["rubric/rude"] == [1.0, 0.0, 1.0, None, None]
    rewards = [json.loads(line)["metadata"]["reward"] for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert rewards == [pytest.approx(4 / 3), pytest.approx(1.0), None, None, 0.0]
    assert len(read_run(tmp_path / "run.jsonl").rows) == 5


async def test_ledger_serves_an_equal_batch_of_a_later_step(tmp_path: Path) -> None:
    own = FakeJudge("MET", fingerprint="scripted")
    parts = RubricReward(RUBRIC, own, ledger=tmp_path / "run.sqlite").parts()
    assert await call(parts, SIXTEEN) == await call(parts, SIXTEEN)
    assert len(own.questions) == 48


def test_pickled_list_shares_one_grading_and_warns_once_about_the_weights(caplog: pytest.LogCaptureFixture) -> None:
    parts = RubricReward(RUBRIC, judge_by_words).parts()
    asyncio.run(parts[0]([QUERY], [RIGHT]))
    data = [pickle.dumps(parts), *map(pickle.dumps, parts)]
    assert len([record for record in caplog.records if "`AsyncGRPOTrainer`" in record.message]) == 1
    copied = pickle.loads(data[0])
    assert copied.weights == parts.weights
    assert [part.__name__ for part in copied] == [part.__name__ for part in parts]
    assert asyncio.run(call(copied, [RIGHT, RUDE])) == [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]
    shared = {id(part._shared) for part in copied}
    assert len(shared) == 1
    single = pickle.loads(data[3])
    assert asyncio.run(single([QUERY], [RUDE])) == [0.0]


def test_pickled_parts_of_equal_weights_need_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    pickle.dumps(RubricReward([{"requirement": "a"}, {"requirement": "b"}], "offline").parts())
    assert caplog.records == []


def test_parts_on_two_event_loops_at_the_same_time_are_refused_with_the_reason() -> None:
    started, release = threading.Event(), threading.Event()

    async def answer(question: Any) -> str:
        started.set()
        await asyncio.to_thread(release.wait, 10)
        return "MET"

    parts, own = make_parts(answer)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(parts[0]([QUERY], ["text"]))))
    thread.start()
    started.wait(10)
    with pytest.raises(RuntimeError, match=r"two event loops.*call all parts on the same loop"):
        asyncio.run(parts[1]([QUERY], ["text"]))
    release.set()
    thread.join(10)
    assert results == [[1.0]]
    # A finished grading needs no loop.
    assert asyncio.run(parts[1]([QUERY], ["text"])) == [1.0]
    assert len(own.questions) == 3


def test_threads_with_batches_of_their_own_are_graded_separately() -> None:
    parts, own = make_parts()
    results: dict[int, Any] = {}

    def train(number: int) -> None:
        results[number] = asyncio.run(call(parts, [f"text {number}"] * 4))

    threads = [threading.Thread(target=train, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(results.values()) == [[[1.0] * 4, [1.0] * 4, [0.0] * 4]] * 6
    assert len(own.questions) == 6 * 4 * 3


def test_grading_whose_event_loop_has_ended_is_not_awaited() -> None:
    async def never(question: Any) -> str:
        await asyncio.Event().wait()
        return "MET"

    parts, own = make_parts(never)

    async def leave() -> None:
        asyncio.ensure_future(parts[0]([QUERY], ["text"]))  # noqa: RUF006 -- cancelled at the end of the loop
        await until(lambda: own.questions)

    asyncio.run(leave())
    own.answers = "MET"
    assert asyncio.run(parts[1]([QUERY], ["text"])) == [1.0]


async def test_error_of_a_batch_reaches_every_part() -> None:
    parts, _ = make_parts()
    results = await asyncio.gather(*(part([QUERY], ["a", "b"]) for part in parts), return_exceptions=True)
    assert [str(result)[:30] for result in results] == ["there are 1 prompts for 2 comp"] * 3


async def test_step_without_completions_has_no_rewards() -> None:
    assert await call(make_parts()[0], []) == [[], [], []]


def test_parts_are_coroutine_functions_for_trainers_with_names_of_their_reward() -> None:
    parts = RubricReward(RUBRIC, judge_by_words, name="margin", limits=CallLimits(max_retries=0)).parts()
    assert isinstance(parts, list)
    assert all(inspect.iscoroutinefunction(part.__call__) for part in parts)
    assert repr(parts[0]) == "<reward 'margin.right'>"
    for part in (parts[0], pickle.loads(pickle.dumps(parts[0]))):
        assert inspect.iscoroutinefunction(part) == hasattr(inspect, "markcoroutinefunction")
