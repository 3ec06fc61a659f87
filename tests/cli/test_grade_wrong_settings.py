"""A judge that cannot be reached ends a run within seconds, with the URL, the cause and what to do."""

from __future__ import annotations

import socket
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from rubric_integrations import JudgeError, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge, ModelSettings
from rubric_integrations.judges.models.names import lm_from_name
from tests.cli.commands import grade, write_inputs
from tests.openai_server import OpenAIServer, Reply

RUBRIC = Rubric.from_dict([{"requirement": "a"}, {"requirement": "b"}])


@pytest.fixture
def unused_url() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/v1"


@pytest.mark.processes
def test_server_that_is_not_running_ends_a_run_within_15_seconds(tmp_path: Path, unused_url: str) -> None:
    write_inputs(tmp_path)
    start = time.monotonic()
    result = grade(tmp_path, "--judge", "openai/mock", "--api-base", unused_url)
    assert (result.exit_code, time.monotonic() - start < 15) == (3, True)
    assert "No row was graded: the judge cannot be reached, after " in result.stderr
    assert f"(`api_base` is '{unused_url}': is the server running?)" in result.stderr


@pytest.mark.processes
@pytest.mark.parametrize("variable", [None, "OPENAI_BASE_URL"])
def test_single_grade_ends_within_15_seconds_too(
    unused_url: str, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    if variable:
        monkeypatch.setenv(variable, unused_url)
    start = time.monotonic()
    with pytest.raises(JudgeError, match="the judge cannot be reached") as error:
        RUBRIC.grade_sync("text", PerCriterionGrader(LMJudge("openai/mock", api_base=None if variable else unused_url)))
    assert time.monotonic() - start < 15
    assert f" is '{unused_url}': is the server running?)" in str(error.value)


def test_server_that_cannot_be_reached_is_waited_for_as_long_as_the_user_says(unused_url: str) -> None:
    start = time.monotonic()
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=unused_url), limits=CallLimits(max_outage=0.1))
    with pytest.raises(JudgeError, match="the judge cannot be reached, after"):
        RUBRIC.grade_sync("text", grader)
    assert time.monotonic() - start < 5


def test_server_that_has_replied_and_is_gone_for_a_moment_is_waited_for(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(drop=1 <= call.number < 12)
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url))
    assert RUBRIC.grade_sync("text", grader).score == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--judge", "openai/mock", "--api-base", "localhost:9999/v1"),
            "`api_base` is 'localhost:9999/v1', which does not begin with http:// or https://: write "
            "'http://localhost:9999/v1'",
        ),
        (
            ("--judge", "llama3", "--api-base", "http://localhost:9999/v1"),
            "the model name 'llama3' has no provider: write it before the name, such as 'openai/llama3'",
        ),
        pytest.param(
            ("--judge", "vllm/meta/llama"),
            "write 'hosted_vllm/' before the model's name, and pass its URL",
            marks=[pytest.mark.processes, pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is there")],
        ),
        (("--judge", "openai/mock"), "OPENAI_API_KEY"),
    ],
)
def test_wrong_setting_exits_with_2_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    write_inputs(tmp_path)
    result = grade(tmp_path, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "0 submissions" not in result.stdout


def test_url_in_an_error_has_no_password() -> None:
    with pytest.raises(ValueError, match="'host:1/v1'") as error:
        lm_from_name("openai/m", ModelSettings(api_base="me:secret@host:1/v1?key=secret"))
    assert "secret" not in str(error.value)
