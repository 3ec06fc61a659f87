"""A decision model as the value of `--judge`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubric_integrations.cli.options import JudgeOptions, describe_requests
from rubric_integrations.judges import DecisionJudge
from tests.cli.commands import run
from tests.decision_server import deciding
from tests.openai_server import OpenAIServer


def test_name_with_a_prefix_becomes_a_decision_judge_at_the_base_url() -> None:
    judge = JudgeOptions(api_base="http://localhost:8000", api_key="k").make_judge("typesafe/jev-1.13.0")
    assert isinstance(judge, DecisionJudge)
    assert (judge.model, judge.url) == ("jev-1.13.0", "http://localhost:8000/v1/systemone")
    assert describe_requests([judge]) == (
        "typesafe/jev-1.13.0: http://localhost:8000/v1/systemone, many criteria in one request"
    )


@pytest.mark.parametrize("option", ["temperature=0", "system_prompt=x", "confidence=true", "header.X-Team=a"])
def test_setting_of_a_language_model_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match="has no effect on the decision model 'typesafe/m'"):
        JudgeOptions(api_key="k", judge_option=[option]).make_judge("typesafe/m")


def test_grade_with_a_decision_model_writes_its_probabilities(tmp_path: Path) -> None:
    rubric, rows, out = tmp_path / "rubric.yaml", tmp_path / "rows.jsonl", tmp_path / "run.jsonl"
    rubric.write_text("- {requirement: Names exactly one river, weight: 1}\n")
    rows.write_text('{"response": "The Nile."}\n')
    with OpenAIServer(deciding()) as server:
        arguments = ["--judge", "typesafe/jev-1.13.0", "--api-base", server.url, "--out", out]
        result = run("grade", rubric, rows, *arguments, "--ledger", tmp_path / "ledger.sqlite")
    assert result.exit_code == 0, result.output
    assert result.output.count("decision models are weak at counting ('Names exactly one river')") == 1
    assert '"probabilities":{"MET":0.9,"UNMET":0.1,"CANNOT_ASSESS":0.1}' in out.read_text().replace(" ", "")


def test_preview_names_what_a_decision_model_may_judge_badly(tmp_path: Path) -> None:
    rubric, rows = tmp_path / "rubric.yaml", tmp_path / "rows.jsonl"
    rubric.write_text("- {requirement: Names exactly one river, weight: 1}\n")
    rows.write_text('{"response": "The Nile."}\n')
    result = run("preview", rows, "--rubric", rubric, "--judge", "typesafe/jev-1.13.0")
    assert result.exit_code == 0, result.output
    assert result.output.count("decision models are weak at counting ('Names exactly one river')") == 1
    assert f"{rows} --judge typesafe/jev-1.13.0" in result.output.replace("\n", " ")
    assert "decision models" not in run("preview", rows, "--rubric", rubric).output
    for arguments in (["--rubric", rubric, "--judge", "openai/gpt-5-mini"], ["--judge", "typesafe/jev-1.13.0"]):
        assert "has no effect here" in run("preview", rows, *arguments).output.replace("\n", " ")


def test_align_refuses_a_decision_model(tmp_path: Path) -> None:
    from rubric_integrations.cli.judge import _make_judge  # pyright: ignore[reportPrivateUsage]

    with pytest.raises(ValueError, match="has no instructions to align"):
        _make_judge("typesafe/m", JudgeOptions(api_key="k"))
