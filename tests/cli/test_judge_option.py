"""The options `--judge` and `--api-base`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubric_integrations.cli.judge_option import make_judge
from rubric_integrations.judges import LMJudge
from tests.cli.commands import grade


def test_model_name_with_a_base_url_makes_a_judge_of_that_server() -> None:
    judge = make_judge("openai/m", "http://localhost:8000/v1")
    assert isinstance(judge, LMJudge)
    assert judge.lm.kwargs["api_base"] == "http://localhost:8000/v1"


@pytest.mark.parametrize(
    ("judge", "words"),
    [("offline", "`--api-base` has no effect on the judge 'offline'"), ("", "is an empty model name")],
)
def test_base_url_without_a_model_exits_with_2(files: Path, judge: str, words: str) -> None:
    result = grade(files, "--judge", judge, "--api-base", "http://localhost:8000/v1")
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
