"""Requests, keys and the loop of an exploration, without a model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Submission
from rubric_integrations.judges import ExplorerLimits
from rubric_integrations.judges.exploration import ExplorationLoop, ExplorationRequest, ExplorationTask, ExplorerReply
from rubric_integrations.scoring import JudgeFailure, Spend
from rubric_integrations.submission import Step, Trajectory
from tests.fakes import tool_calls

STEPS = tuple(Step(role="user", text=f"Message {number}") for number in range(1, 11))
WHOLE = Submission(response="Done.", trajectory=Trajectory(steps=STEPS))
CRITERIA = [Criterion(requirement="Builds it"), Criterion(requirement="Never deletes", weight=-1)]


def task_of(submission: Submission = WHOLE, **changes: Any) -> ExplorationTask:
    return ExplorationTask(submission, changes.get("guidelines", ""), changes.get("criteria", CRITERIA))


def take(loop: ExplorationLoop, *texts: str) -> list[ExplorationRequest]:
    """Give replies to the requests of a loop, and return these requests."""
    requests: list[ExplorationRequest] = []
    for text in texts:
        request = loop.next_request()
        assert request is not None
        requests.append(request)
        loop.take(ExplorerReply(text, Spend()))
    return requests


def test_loop_ends_at_a_valid_submit() -> None:
    loop = ExplorationLoop(task_of(), ExplorerLimits())
    requests = take(loop, tool_calls(("list", {})), tool_calls(("submit", {"steps": [2]})))
    assert [(len(request.turns), request.left) for request in requests] == [(0, 7), (1, 6)]
    assert loop.next_request() is None
    assert loop.selected().numbers == (2,)


def test_loop_ends_with_its_requests_and_announces_the_last_one() -> None:
    loop = ExplorationLoop(task_of(), ExplorerLimits(max_requests=3))
    requests = take(loop, "?", "?", "?")
    assert loop.next_request() is None
    assert ["last one" in turn.results for turn in requests[2].turns] == [False, True]
    with pytest.raises(JudgeFailure, match="submitted no steps of the trajectory in 3 requests") as error:
        loop.selected()
    assert (error.value.kind, error.value.about_text, error.value.repeats) == ("parse", True, 0)


def test_key_depends_on_every_reply_and_on_no_result_twice() -> None:
    loop, other = ExplorationLoop(task_of(), ExplorerLimits()), ExplorationLoop(task_of(), ExplorerLimits())
    keys = [request.key("f") for request in take(loop, tool_calls(("list", {})), "?", tool_calls(("list", {})))]
    others = [request.key("f") for request in take(other, tool_calls(("list", {})), "!", tool_calls(("list", {})))]
    assert len(set(keys)) == 3
    assert (keys[:2], keys[2] == others[2]) == (others[:2], False)
    assert all(key.startswith("explore ") and len(key) == 72 for key in keys)


@pytest.mark.parametrize(
    "other",
    [
        task_of(WHOLE.model_copy(update={"response": "x"})),
        task_of(WHOLE.model_copy(update={"query": "x"})),
        task_of(WHOLE.model_copy(update={"reference": "x"})),
        task_of(WHOLE.model_copy(update={"trajectory": Trajectory(steps=STEPS[:-1])})),
        task_of(guidelines="x"),
        task_of(criteria=CRITERIA[:1]),
        task_of(criteria=[CRITERIA[0], Criterion(requirement="Never deletes", weight=1)]),
    ],
)
def test_digest_of_a_task_depends_on_each_of_its_texts(other: ExplorationTask) -> None:
    assert task_of().digest != other.digest


def test_digest_of_a_task_ignores_weights_names_and_settings_of_the_trajectory() -> None:
    heavy = [Criterion(requirement="Builds it", weight=7, name="a"), Criterion(requirement="Never deletes", weight=-3)]
    assert task_of(criteria=heavy).digest == task_of().digest
    steps = tuple(step.model_copy(update={"cost": 1.0, "tokens": 3}) for step in STEPS)
    priced = WHOLE.model_copy(update={"trajectory": Trajectory(steps=steps)})
    assert task_of(priced).digest == task_of().digest


def test_probe_about_another_submission_is_its_first_request() -> None:
    loop = ExplorationLoop(task_of(), ExplorerLimits(max_requests=4))
    request = take(loop, "?", "?")[1]
    other = WHOLE.model_copy(update={"query": "another"})
    probe = request.with_submission(other)
    assert isinstance(probe, ExplorationRequest)
    assert (probe.submission, probe.turns, probe.left) == (other, (), 3)
    assert request.with_submission(Submission(response="no steps")) is request


def test_size_of_a_request_grows_with_its_turns() -> None:
    loop = ExplorationLoop(task_of(), ExplorerLimits())
    first, second = take(loop, tool_calls(("list", {})), "?")
    assert second.text_bytes > first.text_bytes + 500


WRONG_REPLIES = [
    ("x" * 50_001, "the reply has 50,001 characters, more than 50,000"),
    (tool_calls(("read", {"step": {"number": 1}})), "neither a text, a number nor a list of them"),
    (tool_calls(("submit", {"steps": [[1]]})), "neither a text, a number nor a list of them"),
    ('{"tool_calls": ' + "[" * 20_000, "not valid JSON"),
    ('{"tool_calls": [{"name": "read", "args": {"step": ' + "9" * 5_000 + "}}]}", "digits"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_REPLIES)
def test_reply_that_cannot_be_written_into_the_next_request_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ExplorerReply(text, Spend()).calls()


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("\ud800")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
NAMES = st.sampled_from(["list", "read", "search", "submit", "first_step", "step", "text", "steps", "lines", "absent"])
WILD_CALLS = st.fixed_dictionaries({"name": st.one_of(NAMES, JSON), "args": st.dictionaries(NAMES, JSON, max_size=3)})


@given(st.lists(st.one_of(st.lists(st.one_of(WILD_CALLS, JSON), max_size=4), JSON), min_size=1, max_size=4))
def test_loop_survives_any_reply_and_its_results_can_be_sent(replies: list[Any]) -> None:
    loop = ExplorationLoop(task_of(), ExplorerLimits(max_requests=len(replies) + 1))
    for reply in replies:
        if loop.next_request() is not None:
            loop.take(ExplorerReply(json.dumps({"tool_calls": reply}), Spend()))
    request = loop.next_request()
    for turn in request.turns if request else ():
        json.loads(turn.results)
        json.dumps([[call.name, call.arguments] for call in turn.calls], ensure_ascii=False).encode()
        turn.results.encode()
    if loop.tools.has_submission:
        loop.selected().text().encode()


def test_submission_without_a_trajectory_is_refused() -> None:
    with pytest.raises(ValueError, match="has no trajectory"):
        task_of(Submission(response="x"))
