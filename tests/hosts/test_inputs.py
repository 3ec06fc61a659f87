"""One input is graded in the same way in every host: the same text, and the same outcome."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from pydantic import RootModel

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.training import RubricReward
from tests.fakes import FakeJudge
from tests.hosts.every_host import EMPTY, FAILED, HOSTS
from tests.hosts.six_responses import OUTPUTS, ROWS, RUBRIC, judge, make_grader

ONE_CRITERION = Rubric([Criterion(requirement="Gives the right figure")])


@pytest.mark.filterwarnings("ignore:an input has")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_each_of_the_six_responses_has_the_same_outcome_in_every_host(host: str, row: Any) -> None:
    expected = FAILED if row.score is None else pytest.approx(row.score)
    assert HOSTS[host](RUBRIC, make_grader(), row.response) == expected
    assert HOSTS[host](RUBRIC, make_grader(), {"answer": row.response, "tokens": 3}) == expected


@pytest.mark.filterwarnings("ignore:.*is graded", "ignore:an input has")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("form", OUTPUTS)
def test_output_in_every_form_is_graded_by_the_same_text_in_every_host(host: str, form: str) -> None:
    fake = FakeJudge("MET")
    outcome = HOSTS[host](ONE_CRITERION, PerCriterionGrader(fake), OUTPUTS[form].value)
    graded = [question.submission.response for question in fake.questions]
    text = OUTPUTS[form].graded
    assert (outcome, graded) == ((EMPTY, []) if text is None else (1.0, [text]))


BYTES: dict[str, Any] = {
    "bytes": b"It is 42.",
    "response": {"response": bytearray(b"It is 42.")},
    "value": {"answer": {"figures": [memoryview(b"42")]}},
    "key": {"finding": {b"figure": 42}},
    "array": {"answer": np.array([b"It is 42."])},
    "model": {"answer": RootModel[Any](b"It is 42.")},
    "context": {"answer": "It is 42.", "context": [b"It is 41."]},
    "observation": {"answer": "It is 42.", "trajectory": {"thought_0": "?", "tool_name_0": "f", "tool_args_0": {},
                                                          "observation_0": b"42"}},
    "structured response": {"messages": [("user", "6 x 7?"), ("ai", "42")], "structured_response": {"figure": b"42"}},
}  # fmt: skip
IN_PROCESS = {name: host for name, host in HOSTS.items() if name not in ("file", "server")}  # JSON has no bytes


@pytest.mark.filterwarnings("ignore:an input has")
@pytest.mark.parametrize("host", IN_PROCESS)
@pytest.mark.parametrize("form", BYTES)
def test_bytes_are_an_error_of_their_row_and_never_shown_to_a_judge(host: str, form: str) -> None:
    fake = FakeJudge("MET")
    assert (IN_PROCESS[host](ONE_CRITERION, PerCriterionGrader(fake), BYTES[form]), fake.questions) == (EMPTY, [])


@pytest.mark.parametrize("completion", [b"It is 42.", [{"role": "assistant", "content": b"It is 42."}]])
async def test_completion_of_bytes_has_no_reward(completion: Any) -> None:
    assert await RubricReward(ONE_CRITERION, FakeJudge("MET"))(["6 x 7?"], [completion]) == [None]


@pytest.mark.filterwarnings("ignore:an input has")
def test_bytes_that_no_judge_reads_as_a_text_are_let_through() -> None:
    gif = {"data": b"GIF89a", "mime_type": "image/gif"}
    for host in IN_PROCESS.values():
        fake = FakeJudge("MET")
        value = {"answer": "It is 42.", "attachments": [gif], "raw": b"42", "metadata": {"raw": b"42"}}
        assert host(ONE_CRITERION, PerCriterionGrader(fake), value) == 1.0
        assert [len(question.submission.attachments) for question in fake.questions] == [1]


@pytest.mark.parametrize("host", HOSTS)
def test_misspelled_name_of_a_response_is_told_once_in_every_host(host: str) -> None:
    fake = FakeJudge("MET")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for number in range(3):
            output = {"answr": f"x{number}", "foo": "refund"}
            assert HOSTS[host](ONE_CRITERION, PerCriterionGrader(fake), output) == 1.0
    assert fake.questions[0].submission.response == '{"answr": "x0", "foo": "refund"}'
    texts = [str(warning.message) for warning in caught if "answr" in str(warning.message)]
    assert set(texts) == {
        "an input has no 'answer', but 'answr': all its fields are graded as JSON; if 'answr' is the response, rename "
        "it to 'answer'"
    }
    # In pydantic-evals, each output is a run of its own here.
    assert len(texts) == (3 if host == "pydantic-evals" else 1)


def losing_judge(losses: int) -> Any:
    """Return the judge of the six responses, whose first replies to each question are lost."""
    requests = Counter[str]()

    async def lose(system: str, user: str) -> str:
        requests[user] += 1
        if requests[user] <= losses:
            raise ConnectionError("the connection was closed")
        return await judge(system, user)

    return lose


@pytest.mark.parametrize("host", HOSTS)
def test_lost_reply_is_requested_again_in_every_host_and_a_failure_if_there_are_no_retries(host: str) -> None:
    right = ROWS[0].response
    assert HOSTS[host](RUBRIC, PerCriterionGrader(losing_judge(1), max_retries=1), right) == 1.0
    assert HOSTS[host](RUBRIC, PerCriterionGrader(losing_judge(9), max_retries=0), right) == FAILED
