"""An explorer chooses the steps of a long trajectory once, and all criteria are judged on them."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import (
    CallLimits,
    Grader,
    PerCriterionOneShotGrader,
    RubricAsJudgeGrader,
    TextLimits,
    Voting,
)
from rubric_integrations.judges import Cascade, Explorer, ExplorerLimits, Question
from rubric_integrations.judges.exploration import KEY_PREFIX, TrajectoryExplorer
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.runs.batches.replay import judges_of
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from rubric_integrations.submission import Step, ToolCall, Trajectory
from tests.fakes import (
    FakeBatchJudge,
    FakeExplorer,
    FakeIndependentJudge,
    FakeJudge,
    FakeOverallJudge,
    FakeStore,
    batch_of,
)

STEPS = tuple(
    Step(
        role="assistant",
        text=f"Now I do part {number}.",
        calls=(ToolCall(name="bash", arguments={"command": "make"}, result=f"line a\nexit code {number}"),),
    )
    for number in range(1, 101)
)
LONG = Submission(response="Done.", query="Build it.", trajectory=Trajectory(steps=STEPS))
TWO = Rubric.from_dict([{"weight": 1, "requirement": "Builds it"}, {"weight": 1, "requirement": "Never deletes"}])
SEARCH = [("search", {"text": "Exit  CODE 42"}), ("search", {"text": "rm -rf"})]
SUBMIT_ONE = [("submit", {"steps": [1]})]
SUBMIT = [("submit", {"steps": [42], "lines": ["7:3-4"], "absent": ["rm -rf"]})]
SHOWN = """\
[steps 1 to 6 not shown]
{"step": 7, "shown_lines": "2-4 of 4", "role": "assistant", "content": "[line 1 not shown]", "tool_calls": [{"name": \
"bash", "arguments": {"command": "make"}, "result": "line a\\nexit code 7"}]}
[steps 8 to 41 not shown]
{"step": 42, "role": "assistant", "content": "Now I do part 42.", "tool_calls": [{"name": "bash", "arguments": \
{"command": "make"}, "result": "line a\\nexit code 42"}]}
[steps 43 to 100 not shown]
[searches in all steps without a match: "rm -rf"]"""


def limits_of(explorer: TrajectoryExplorer, **limits: Any) -> TextLimits:
    return TextLimits(explorer=explorer, **{"explore_above": 1_000, **limits})


def grader_of(judge: Any, explorer: TrajectoryExplorer, **settings: Any) -> PerCriterionGrader:
    return PerCriterionGrader(judge, text_limits=limits_of(explorer), **settings)


def shown_to(judge: FakeJudge) -> set[str]:
    return {question.submission.trajectory.text() for question in judge.questions if question.submission.trajectory}


class SeenBatch(FakeBatchJudge):
    async def judge_batch(self, questions: Any) -> Any:
        self.questions += questions.values()
        return await super().judge_batch(questions)


class SeenOverall(FakeOverallJudge):
    async def judge_overall(self, submission: Submission, rubric: Rubric) -> Any:
        self.questions.append(Question(submission, rubric.criteria[0]))
        return await super().judge_overall(submission, rubric)


GRADERS: Sequence[tuple[type[Grader], Any]] = [
    (PerCriterionGrader, FakeJudge),
    (PerCriterionGrader, FakeIndependentJudge),
    (PerCriterionOneShotGrader, lambda: SeenBatch(batch_of({1: "MET", 2: "MET"}))),
    (RubricAsJudgeGrader, lambda: SeenOverall(90)),
]


@pytest.mark.parametrize(("grader_type", "make_judge"), GRADERS)
async def test_all_criteria_are_judged_on_one_selection_with_original_numbers(
    grader_type: type[Grader], make_judge: Any
) -> None:
    judge, explorer = make_judge(), FakeExplorer(SEARCH, SUBMIT)
    report = await TWO.grade(LONG, grader=grader_type(judge, text_limits=limits_of(explorer)))
    assert shown_to(judge) == {SHOWN}
    assert len(explorer.requests) == 2
    exploration = report.exploration
    assert exploration is not None
    assert (exploration.steps, exploration.total_steps, exploration.requests) == (2, 100, 2)
    assert exploration.absent == ("rm -rf",)
    assert exploration.characters < exploration.total_characters
    assert not exploration.ran_out


@pytest.mark.parametrize("sequential", [True, False])
async def test_panel_is_asked_about_one_exploration(sequential: bool) -> None:
    judges, explorer = [FakeJudge(), FakeJudge()], FakeExplorer(SUBMIT_ONE)
    grader = PerCriterionGrader(judges=judges, voting=Voting(sequential=sequential), text_limits=limits_of(explorer))
    report = await TWO.grade(LONG, grader=grader)
    assert len(explorer.requests) == 1
    assert report.score == 1.0
    assert len(set().union(*map(shown_to, judges))) == 1


async def test_cascade_and_early_stopping_see_the_selection() -> None:
    cheap, strong, explorer = FakeJudge("CANNOT_ASSESS"), FakeJudge(), FakeExplorer(SUBMIT_ONE)
    await TWO.grade(LONG, grader=grader_of(Cascade(cheap, strong, 0), explorer, stop_when_decided=True))
    assert shown_to(cheap) == shown_to(strong) != set()
    assert len(explorer.requests) == 1


async def test_steps_as_the_response_are_replaced_by_the_selection() -> None:
    whole = Submission.model_validate({"response": "Done.", "trajectory": LONG.trajectory, "respond": "trajectory"})
    judge, explorer = FakeJudge(), FakeExplorer(SUBMIT_ONE)
    await TWO.grade(whole, grader=grader_of(judge, explorer))
    (response,) = {question.submission.response for question in judge.questions}
    assert response.startswith('{"step": 1, ')
    assert response.endswith("[steps 2 to 101 not shown]")
    assert {question.whole_response for question in judge.questions} == {whole.response}
    assert "submission" not in explorer.requests[0].task.texts


async def test_conversation_in_the_query_is_not_shown_next_to_the_selection() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Build it."}]
    for number in range(100):
        call = {"id": str(number), "type": "function", "function": {"name": "bash", "arguments": '{"a": 1}'}}
        messages += [{"role": "assistant", "content": "x" * 100, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": str(number), "content": "fine"}]
    whole = Submission.from_messages([*messages, {"role": "assistant", "content": "Done."}], query="Task")
    judge, explorer = FakeJudge(), FakeExplorer([("submit", {"steps": [2]})])
    await TWO.grade(whole, grader=grader_of(judge, explorer))
    (shown,) = {question.submission.query for question in judge.questions}
    assert shown == "Task"
    assert {question.submission.show_trajectory for question in judge.questions} == {"always"}
    assert explorer.requests[0].task.texts["query"] == "Task"


@pytest.mark.parametrize("above", [0, 10**6])
async def test_short_trajectory_is_shown_unchanged(above: int) -> None:
    judge, explorer = FakeJudge(), FakeExplorer(SUBMIT_ONE)
    short = LONG if above else Submission(response="Done.")
    report = await TWO.grade(
        short, grader=PerCriterionGrader(judge, text_limits=limits_of(explorer, explore_above=above))
    )
    assert all(question.submission == short and question.whole_response is None for question in judge.questions)
    assert explorer.requests == []
    assert report.exploration is None


async def test_short_trajectory_has_the_same_ledger_keys_with_and_without_an_explorer() -> None:
    stores = FakeStore(), FakeStore()
    plain = PerCriterionGrader(FakeJudge(fingerprint="j")).with_store(stores[0])
    exploring = PerCriterionGrader(
        FakeJudge(fingerprint="j"), text_limits=limits_of(FakeExplorer(SUBMIT_ONE), explore_above=10**6)
    ).with_store(stores[1])
    assert await TWO.grade(LONG, grader=plain) == await TWO.grade(LONG, grader=exploring)
    assert stores[0].rows == stores[1].rows


async def test_hidden_trajectory_and_checks_alone_are_not_explored() -> None:
    explorer, hidden = FakeExplorer(SUBMIT_ONE), LONG.model_copy(update={"show_trajectory": "if_needed"})
    await TWO.grade(hidden, grader=grader_of(FakeJudge(), explorer))
    checks = Rubric.from_dict([{"weight": 1, "requirement": "Says done", "check": {"contains": "Done"}}])
    await checks.grade(LONG, grader=grader_of(FakeJudge(), explorer))
    assert explorer.requests == []


WITH_CHECK = Rubric.from_dict(
    [
        {"weight": 1, "requirement": "Builds it"},
        {"weight": 1, "requirement": "Never deletes"},
        {"weight": 1, "requirement": "Runs part 99", "check": {"max_steps": 200}},
    ]
)


@pytest.mark.parametrize("reply", ["I have read everything. MET!", '{"tool_calls": []}', [("list", {})]])
async def test_exploration_without_a_submission_is_one_final_failure_of_all_judged_criteria(reply: Any) -> None:
    judge, explorer = FakeJudge(), FakeExplorer(reply, limits=ExplorerLimits(max_requests=3))
    with pytest.raises(JudgeError) as error:
        await WITH_CHECK.grade(LONG, grader=grader_of(judge, explorer))
    report = error.value.report
    assert [row.verdict for row in report.criteria] == [None, None, "MET"]
    assert "could not be explored" in (report.error or "")
    assert "in 3 requests" in (report.error or "")
    assert (len(explorer.requests), judge.questions) == (3, [])
    assert report.spend.calls == 3


async def test_host_that_remembers_refusals_does_not_repeat_a_failed_exploration() -> None:
    explorer = FakeExplorer("?", limits=ExplorerLimits(max_requests=3))
    grader = grader_of(FakeJudge(), explorer, on_failure="abstain").remembering_refusals()
    for _ in range(3):
        assert (await TWO.grade(LONG, grader=grader)).failed_count == 2
    assert len(explorer.requests) == 3
    grader.call_limiter.reset()
    await TWO.grade(LONG, grader=grader)
    assert len(explorer.requests) == 6


@pytest.mark.parametrize(("grader_type", "make_judge"), GRADERS)
async def test_failed_exploration_ends_every_kind_of_grade(grader_type: type[Grader], make_judge: Any) -> None:
    judge, explorer = make_judge(), FakeExplorer(JudgeFailure("config", "broken"))
    with pytest.raises(JudgeError, match="the trajectory could not be explored: broken"):
        await TWO.grade(LONG, grader=grader_type(judge, text_limits=limits_of(explorer)))
    assert judge.questions == []


def test_strategy_that_does_not_explore_refuses_an_explorer() -> None:
    class Own(Grader):
        async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[Any]:
            return []

        def aggregate(self, rubric: Rubric, submission: Submission, answers: Sequence[Any]) -> Any:
            return None

    with pytest.raises(ValueError, match=r"`TextLimits\.explorer` has no effect on Own"):
        Own("offline", text_limits=limits_of(FakeExplorer()))


def test_grader_with_an_explorer_can_be_pickled() -> None:
    grader = grader_of("offline", Explorer("openai/gpt-5-mini"))
    loaded = pickle.loads(pickle.dumps(grader))
    assert loaded.settings() == grader.settings()
    assert loaded.runtime.explorer is not None


async def test_unfinished_submission_is_a_selection_that_the_report_names() -> None:
    judge = FakeJudge()
    explorer = FakeExplorer([("submit", {"steps": [3], "more": True})], "?", limits=ExplorerLimits(max_requests=2))
    report = await TWO.grade(LONG, grader=grader_of(judge, explorer))
    assert report.exploration is not None
    assert report.exploration.ran_out
    assert report.exploration.summary() == "1 of 100 steps, exploration unfinished"
    assert '{"step": 3, ' in shown_to(judge).pop()


async def test_lost_request_is_repeated_in_later_rounds_and_continues_the_exploration() -> None:
    lost = iter([False, True, True, False, False])

    def second(_: Any) -> Any:
        return JudgeFailure("transport", "no reply") if next(lost) else SUBMIT_ONE

    judge, explorer = FakeJudge(), FakeExplorer([("list", {})], second)
    next(lost)
    report = await TWO.grade(LONG, grader=grader_of(judge, explorer))
    assert report.complete
    assert [len(request.turns) for request in explorer.requests] == [0, 1, 1, 1]
    assert judge.requirements == ["Builds it", "Never deletes"]


@pytest.mark.parametrize("kind", ["transport", "config"])
async def test_failed_exploration_counts_as_the_failure_policy_says(kind: Any) -> None:
    explorer = FakeExplorer(JudgeFailure(kind, "broken"))
    grader = grader_of(FakeJudge(), explorer, on_failure="abstain", limits=CallLimits(max_retries=0))
    report = await WITH_CHECK.grade(LONG, grader=grader)
    assert [row.verdict for row in report.criteria] == [None, None, "MET"]
    assert (report.score, report.coverage) == (1.0, pytest.approx(1 / 3))
    assert (report.failed_count, report.exploration) == (2, None)


async def test_citation_of_a_step_that_was_not_shown_is_no_judgment() -> None:
    async def cite(question: Question) -> Judgment:
        return Judgment(verdict="MET", value=1.0, evidence=(evidence,))

    explorer = FakeExplorer([("submit", {"steps": [90, 7]})])
    evidence = 90
    report = await TWO.grade(LONG, grader=grader_of(FakeJudge(cite), explorer))
    assert report.criteria[0].evidence == (90,)
    evidence = 8
    with pytest.raises(JudgeError, match="only the steps 7, 90, which were shown"):
        await TWO.grade(LONG, grader=grader_of(FakeJudge(cite), explorer, limits=CallLimits(max_retries=0)))


async def test_each_request_is_a_call_within_the_limits_of_the_run() -> None:
    explorer = FakeExplorer([("list", {})], SEARCH, SUBMIT)
    run = grade_many([LONG, LONG], TWO, grader_of(FakeJudge(), explorer), max_calls=4)
    results = [graded async for graded in run]
    assert (run.summary.stopped, run.summary.spend.calls) == ("`max_calls` of 4 is reached", 4)
    assert results == []


async def test_cost_of_an_exploration_is_reserved_and_needs_both_prices() -> None:
    priced = Spend(calls=1, cost=0.4)
    explorer = FakeExplorer([("list", {})], SEARCH, SUBMIT, spend=priced)
    run = grade_many([LONG], TWO, grader_of(FakeJudge(spend=priced), explorer), max_cost=1.0)
    assert [graded async for graded in run] == []
    assert run.summary.spend.cost == pytest.approx(0.8)
    assert "`max_cost` of $1 is reached" in (run.summary.stopped or "")


async def test_concurrency_and_timeout_apply_to_each_request() -> None:
    class SlowExplorer(FakeExplorer):
        async def explore(self, request: Any) -> Any:
            await asyncio.sleep(10)

    grader = grader_of(FakeJudge(), SlowExplorer(), limits=CallLimits(max_retries=0, timeout=0.01))
    with pytest.raises(JudgeError, match=r"could not be explored: no reply within 0\.01 s"):
        await TWO.grade(LONG, grader=grader)


async def test_ledger_replays_each_reply_and_counts_no_exploration_as_a_judgment(tmp_path: Path) -> None:
    path, explorer = tmp_path / "run.sqlite", FakeExplorer(SEARCH, SUBMIT)
    with Ledger(path) as ledger:
        grader = grader_of(FakeJudge(fingerprint="one"), explorer)
        first = [graded async for graded in grade_many([LONG], TWO, grader, ledger=ledger)]
        assert (len(ledger), ledger.stored, ledger.reused) == (2, 2, 0)
    with Ledger(path) as ledger:
        again = grade_many([LONG], TWO, grader_of(FakeJudge(fingerprint="one"), explorer), ledger=ledger)
        assert [graded.report async for graded in again] == [graded.report for graded in first]
        assert (again.summary.reused, again.summary.spend.calls) == (2, 0)
        other = grade_many([LONG], TWO, grader_of(FakeJudge(fingerprint="two"), explorer), ledger=ledger)
        assert [graded.score async for graded in other] == [1.0]
        assert (other.summary.reused, other.summary.spend.calls) == (0, 2)
    assert len(explorer.requests) == 2


async def test_equal_rows_in_progress_together_explore_once(tmp_path: Path) -> None:
    explorer, judge = FakeExplorer(SEARCH, SUBMIT), FakeJudge(fingerprint="j")
    rows = [LONG.model_copy(deep=True) for _ in range(8)]
    run = grade_many(rows, TWO, grader_of(judge, explorer), ledger=tmp_path / "run.sqlite")
    assert [graded.score async for graded in run] == [1.0] * 8
    assert (len(explorer.requests), len(judge.questions)) == (2, 2)


@pytest.mark.parametrize(
    "change", ["query", "response", "reference", "trajectory", "criteria", "guidelines", "explorer"]
)
async def test_another_input_of_the_exploration_explores_again(change: str) -> None:
    store, explorer = FakeStore(), FakeExplorer(SUBMIT_ONE)
    await TWO.grade(LONG, grader=grader_of(FakeJudge(fingerprint="j"), explorer).with_store(store))
    submission, rubric = LONG, TWO
    if change == "trajectory":
        submission = LONG.model_copy(
            update={"trajectory": Trajectory(steps=(*STEPS[:-1], Step(role="tool", text="x")))}
        )
    elif change == "criteria":
        rubric = Rubric.from_dict([{"weight": 1, "requirement": "Builds all"}])
    elif change == "guidelines":
        rubric = TWO.model_copy(update={"guidelines": "Be strict."})
    elif change == "explorer":
        explorer.identity = "another"
    else:
        submission = LONG.model_copy(update={change: "another text"})
    await rubric.grade(submission, grader=grader_of(FakeJudge(fingerprint="j"), explorer).with_store(store))
    assert len(explorer.requests) == 2


async def test_weights_and_names_do_not_change_the_exploration_and_runs_can_be_rescored(tmp_path: Path) -> None:
    path, explorer = tmp_path / "run.sqlite", FakeExplorer(SEARCH, SUBMIT)
    judge = FakeJudge({"Builds it": "MET", "Never deletes": "UNMET"}, fingerprint="j")
    before = [graded.score async for graded in grade_many([LONG], TWO, grader_of(judge, explorer), ledger=path)]
    heavier = Rubric.from_dict(
        [{"weight": 3, "requirement": c.requirement, "name": f"n{c.weight:g}"} for c in TWO.criteria[:1]]
        + [{"weight": 1, "requirement": "Never deletes"}]
    )
    (rescored,) = await asyncio.to_thread(lambda: list(rescore(path, heavier)))
    assert (before, rescored.score, rescored.missing) == ([0.5], 0.75, 0)
    assert rescored.report.exploration is not None
    other = Rubric.from_dict([{"weight": 1, "requirement": "Builds it"}])
    (missing,) = await asyncio.to_thread(lambda: list(rescore(path, other)))
    assert (missing.score, missing.missing) == (None, 1)


class Killed(BaseException):
    """Ends a grade like the end of its process."""


@pytest.mark.parametrize("at", range(5))
async def test_run_that_is_killed_at_any_request_asks_at_most_one_twice(tmp_path: Path, at: int) -> None:
    path, sent = tmp_path / "run.sqlite", list[str]()

    def note(name: str) -> None:
        sent.append(name)
        if len(sent) == at + 1:
            raise Killed

    class Explorer(FakeExplorer):
        async def explore(self, request: Any) -> Any:
            note(f"request {len(request.turns)}")
            return await super().explore(request)

    async def verdict(question: Question) -> str:
        note(question.criterion.requirement)
        return "MET"

    score: float | None = None
    for _ in range(2):
        grader = grader_of(
            FakeJudge(verdict, fingerprint="j"),
            Explorer([("list", {})], SEARCH, SUBMIT),
            limits=CallLimits(max_concurrency=1),
        )
        with Ledger(path) as ledger:
            try:
                score = (await TWO.grade(LONG, grader=grader.with_store(ledger))).score
            except Killed:
                continue
    names = ["request 0", "request 1", "request 2", "Builds it", "Never deletes"]
    assert sorted(sent) == sorted([*names, names[at]])
    assert score == 1.0


async def test_old_ledger_opens_unchanged_and_keeps_its_judgments(tmp_path: Path) -> None:
    path, judge = tmp_path / "old.sqlite", FakeJudge(fingerprint="j")
    assert [g.score async for g in grade_many(["It is 42."], TWO, PerCriterionGrader(judge), ledger=path)] == [1.0]
    explorer = FakeExplorer(SUBMIT_ONE)
    run = grade_many(["It is 42.", LONG], TWO, grader_of(judge, explorer), ledger=path)
    assert [graded.score async for graded in run] == [1.0, 1.0]
    assert run.summary.reused == 2
    with Ledger(path) as ledger:
        assert len(ledger) == 4


async def test_explorer_without_a_fingerprint_is_refused_with_a_ledger(tmp_path: Path) -> None:
    grader = grader_of(FakeJudge(fingerprint="j"), FakeExplorer(SUBMIT_ONE, fingerprint=None))
    with pytest.raises(TypeError, match="FakeExplorer cannot be identified"):
        grader.with_store(tmp_path / "run.sqlite")


async def test_key_of_a_reply_begins_with_its_own_prefix() -> None:
    store = FakeStore()
    grader = grader_of(FakeJudge(fingerprint="j"), FakeExplorer(SEARCH, SUBMIT)).with_store(store)
    await TWO.grade(LONG, grader=grader)
    assert sum(key.startswith(KEY_PREFIX) for key in store.rows) == 2


def test_batches_refuse_an_explorer_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"`TextLimits\.explorer` decides by each reply"):
        judges_of(grader_of(FakeJudge(), FakeExplorer()))


def test_settings_without_an_explorer_do_not_mention_it() -> None:
    assert "text_limits" in PerCriterionGrader("offline", text_limits=TextLimits(step_limit=5)).settings()
    settings = PerCriterionGrader("offline").settings()
    assert "explore" not in json.dumps(settings)
    described = grader_of("offline", FakeExplorer()).scoring_record()["text_limits"]
    assert described == {
        "explorer": {"fingerprint": "explorer", "limits": ExplorerLimits().model_dump()}, "explore_above": 1_000,
    }  # fmt: skip


async def test_step_limit_applies_to_the_selection_and_omissions_are_counted_apart() -> None:
    long = "head" + "x" * 9_992 + "tail"
    steps = (*STEPS, Step(role="assistant", calls=(ToolCall(name="open", result=long),)))
    whole = LONG.model_copy(update={"trajectory": Trajectory(steps=steps)})
    judge, explorer = FakeJudge(), FakeExplorer([("submit", {"steps": [101], "lines": ["7:4-4"]})])
    report = await TWO.grade(whole, grader=PerCriterionGrader(judge, text_limits=limits_of(explorer, step_limit=100)))
    assert report.omitted_characters == 9_900
    assert "[9,900 characters omitted]" in shown_to(judge).pop()


async def test_samples_of_a_judge_share_the_exploration_that_without_cache_repeats() -> None:
    store, explorer = FakeStore(), FakeExplorer(SUBMIT_ONE)
    grader = grader_of(FakeJudge(fingerprint="j"), explorer).with_store(store, sample=0)
    other = grader_of(FakeJudge(fingerprint="j"), explorer).with_store(store, sample=1)
    await TWO.grade(LONG, grader=grader)
    await TWO.grade(LONG, grader=other)
    assert len(explorer.requests) == 1
    await TWO.grade(LONG, grader=grader.without_cache())
    assert len(explorer.requests) == 2


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"explore_above": 4}, "`explore_above` has no effect without an `explorer`"),
        ({"explorer": "openai/gpt-5-mini"}, r"must be an Explorer, got 'openai/gpt-5-mini': pass `Explorer\(MODEL\)`"),
        ({"explorer": Explorer}, "must be an Explorer, got <class"),
        ({"explorer": FakeJudge()}, "must be an Explorer"),
        ({"explorer": FakeExplorer(), "explore_above": -1}, "greater than or equal to 0"),
    ],
)
def test_wrong_settings_are_refused(limits: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextLimits(**limits)
