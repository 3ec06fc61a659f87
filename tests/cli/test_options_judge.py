"""The options that make the judges: `--judge`, `--api-base`, `--judge-option` and `--strategy`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rubric_integrations.cli.options import JUDGE_OPTIONS, JudgeOptions
from rubric_integrations.judges import Cascade, LMJudge, Thresholds
from rubric_integrations.judges.protocol import fingerprint_of
from tests.cli.commands import grade, read_lines, run
from tests.judges.questions import MET_REPLY
from tests.openai_server import OpenAIServer, Reply

ABSTENTION = '{"explanation": "x", "verdict": "CANNOT_ASSESS"}'


def test_model_name_with_a_base_url_makes_a_judge_of_that_server() -> None:
    judge = JudgeOptions(api_base="http://localhost:8000/v1").make_judge("openai/m")
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


def test_judge_options_reach_the_request_with_their_types(files: Path, server: OpenAIServer) -> None:
    options = ("temperature=0", "max_tokens=300", "seed=7", "system_prompt=Judge as a lawyer = a strict one.")
    arguments = [argument for option in options for argument in ("--judge-option", option)]
    result = grade(files, "--judge", "openai/mock", "--api-base", server.url, *arguments)
    assert result.exit_code == 0, result.output
    body = server.calls[0].body
    assert (body["temperature"], body["seed"]) == (0, 7)
    assert 300 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert "Judge as a lawyer = a strict one." in server.calls[0].prompt


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("temperature", "must be KEY=VALUE"),
        ("temprature=0", "'temprature' is not a known key: did you mean `temperature`?"),
        ("api_key=sk-secret", "known are"),
        ("temperature=warm", "temperature='warm': must be a number"),
        ("seed=1.5", "seed='1.5': must be a whole number"),
        ("temperature=-1", "temperature"),
        ("header.=sk-secret", "needs the name of a header"),
        ("header.X Team=sk-secret", "`headers` has the name 'X Team'"),
        ("header.X-Team: sk-secret", "'header.X-Team' must be KEY=VALUE"),
        ("header.X-Team=", "the value of 'X-Team' must be"),
        ("headers=sk-secret", "write `header.NAME=VALUE`"),
        ("max_tokens=0", "max_tokens"),
    ],
)
def test_judge_option_that_is_unknown_or_has_another_type_exits_with_2(files: Path, option: str, words: str) -> None:
    result = grade(files, "--judge", "openai/mock", "--api-base", "http://127.0.0.1:9/v1", "--judge-option", option)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert words in result.stderr
    assert "sk-secret" not in result.output


def test_headers_and_service_tier_reach_the_request_and_no_file(files: Path, server: OpenAIServer) -> None:
    options = ("header.X-Team=S3CRET=1", "header.X-Budget=7", "service_tier=flex")
    arguments = [argument for option in options for argument in ("--judge-option", option)]
    target = ("--judge", "openai/mock", "--api-base", server.url)
    result = grade(files, *target, *arguments, "--out", files / "run.jsonl")
    assert result.exit_code == 0, result.output
    assert server.calls[0].body["service_tier"] == "flex"
    assert (server.calls[0].headers["x-team"], server.calls[0].headers["x-budget"]) == ("S3CRET=1", "7")
    written = [file.read_bytes() for file in files.iterdir() if file.is_file()]
    assert (files / "run.sqlite").exists()
    assert not [content for content in [*written, result.output.encode()] if b"S3CRET" in content]


@pytest.mark.parametrize("key", JUDGE_OPTIONS)
def test_every_judge_option_changes_the_judge(key: str) -> None:
    def state(*options: str) -> tuple[str | None, object]:
        judge = JudgeOptions(api_key="k", judge_option=list(options)).make_judge("openai/mock")
        assert isinstance(judge, LMJudge)
        return judge.fingerprint(), judge.lm.kwargs

    values = {
        "a number": "0.5", "a whole number": "7", "text": "low", "true or false": "true",
        "always, if_lost or never": "never",
    }  # fmt: skip
    assert state(f"{key}={values[JUDGE_OPTIONS[key].kind]}") != state()


def test_command_that_resumes_a_run_does_not_show_the_value_of_a_header(
    files: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--judge", "openai/mock", "--api-base", server.url, "--judge-option", "header.X-Team=S3CRET")
    monkeypatch.setattr("sys.argv", ["rubric-integrations", "grade", *options, "--judge-option=header.X-Id=S3CRET"])
    result = grade(files, *options, "--out", files / "run.jsonl", "--max-calls", 1)
    assert "To go on: rubric-integrations grade" in result.stderr
    assert "header.X-Team=VALUE" in result.stderr
    assert "S3CRET" not in result.output


def test_api_key_reaches_the_request_and_no_file(files: Path, server: OpenAIServer) -> None:
    target = ("--judge", "openai/mock", "--api-base", server.url, "--api-key", "sk-S3CRET")
    result = grade(files, *target, "--out", files / "run.jsonl", "--junit", files / "junit.xml")
    assert result.exit_code == 0, result.output
    assert server.calls[0].headers["authorization"] == "Bearer sk-S3CRET"
    written = [file.read_bytes() for file in files.iterdir() if file.is_file()]
    assert not [content for content in [*written, result.output.encode()] if b"S3CRET" in content]


@pytest.mark.parametrize("form", ["{} {}", "{}={}"])
def test_command_that_resumes_a_run_shows_neither_the_key_nor_a_password(
    files: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    url = server.url.replace("://", "://me:S3CRET@") + "?key=S3CRET"
    shown = f"{form.format('--api-key', '--S3CRET')} {form.format('--api-base', url)}".split(" ")
    monkeypatch.setattr("sys.argv", ["rubric-integrations", "grade", *shown])
    options = ("--judge", "openai/mock", "--api-base", server.url, "--out", files / "run.jsonl", "--max-calls", 1)
    result = grade(files, *options)
    keys = f"{form.format('--api-key', 'KEY')} {form.format('--api-base', server.url)} --resume"
    assert f"To go on: rubric-integrations grade {keys}" in result.stderr
    assert "S3CRET" not in result.output


def test_key_of_the_environment_for_a_gateway_exits_with_2_in_one_line(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-S3CRET")
    result = grade(files, "--judge", "openai/m", "--api-base", "https://llm.example.com/v1")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "RUBRIC_INTEGRATIONS_API_KEY" in result.stderr
    assert "S3CRET" not in result.output
    offline = grade(files, "--api-key", "sk-S3CRET")
    assert (offline.exit_code, "`--api-key` has no effect on the judge 'offline'" in offline.stderr) == (2, True)


def test_header_that_is_repeated_exits_with_2(files: Path) -> None:
    options = ("--judge-option", "header.X-Team=a", "--judge-option", "header.x-team=b")
    result = grade(files, "--judge", "openai/m", *options)
    assert (result.exit_code, "has 'header.x-team' twice" in result.stderr) == (2, True), result.output


def test_judge_option_that_is_repeated_or_without_a_model_exits_with_2(files: Path) -> None:
    twice = grade(files, "--judge", "openai/m", "--judge-option", "seed=1", "--judge-option", "seed=2")
    assert (twice.exit_code, "twice" in twice.stderr) == (2, True)
    offline = grade(files, "--judge-option", "seed=1")
    assert (offline.exit_code, "`--judge-option` has no effect on the judge 'offline'" in offline.stderr) == (2, True)


def test_several_judges_are_a_panel(files: Path, server: OpenAIServer) -> None:
    server.script = lambda call: Reply("UNMET" if call.body["model"] == "two" else "MET")
    judges = ("--judge", "openai/one", "--judge", "openai/two", "--judge", "openai/three")
    result = grade(files, *judges, "--api-base", server.url, "--out", files / "run.jsonl")
    assert result.exit_code == 0, result.output
    line = read_lines(files / "run.jsonl")[0]
    assert line["judge"] == "openai/one, openai/two, openai/three"
    assert [vote["verdict"] for vote in line["report"][1]["votes"]] == ["MET", "UNMET", "MET"]
    assert line["score"] == 1.0


def test_offline_judge_on_a_panel_is_refused() -> None:
    with pytest.raises(ValueError, match="'offline' next to other judges uses no model"):
        JudgeOptions(["openai/m", "offline"]).make_judges()


def test_name_of_several_models_is_refused() -> None:
    with pytest.raises(ValueError, match="'name' would give one name to several models"):
        JudgeOptions(["openai/one", "openai/two"], judge_option=["name=llama"]).make_judges()
    (one, other) = JudgeOptions(["openai/one", "openai/one"], judge_option=["name=llama"]).make_judges()
    (unnamed,) = JudgeOptions(["openai/one"]).make_judges()
    assert fingerprint_of(one) == fingerprint_of(other) != fingerprint_of(unnamed)


def test_judge_is_offline_by_default(files: Path) -> None:
    assert "uses no model" in grade(files).stderr


def test_one_shot_strategy_makes_one_call_per_row(files: Path, server: OpenAIServer) -> None:
    (files / "two.yaml").write_text("- {requirement: Is kind}\n- {requirement: Is apt}\n")
    evaluations = [{"criterion_number": n, "criterion_status": "MET", "explanation": ""} for n in (1, 2)]
    server.script = lambda _call: Reply(text=json.dumps({"criteria_evaluations": evaluations}))
    options = ("--judge", "openai/mock", "--api-base", server.url, "--max-retries", 0)
    grade(files, *options, "--strategy", "one-shot", rubric="two.yaml")
    one_shot = len(server.calls)
    server.script = lambda _call: Reply("MET")
    grade(files, *options, rubric="two.yaml")
    assert (one_shot, len(server.calls) - one_shot) == (3, 6)


def test_holistic_strategy_scores_the_whole(files: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text='{"explanation": "Fine.", "overall_score": 85}')
    options = ("--judge", "openai/mock", "--api-base", server.url, "--strategy", "holistic")
    result = grade(files, *options, "--out", files / "run.jsonl")
    assert result.exit_code == 0, result.output
    assert [line["score"] for line in read_lines(files / "run.jsonl")] == [0.85] * 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--strategy", "holistic"), "cannot score a submission as a whole"),
        (
            ("--strategy", "one-shot", "--stop-when-decided"),
            "goes with `--strategy per-criterion`",
        ),
    ],
)
def test_strategy_that_does_not_fit_exits_with_2(files: Path, options: tuple[str, ...], words: str) -> None:
    result = grade(files, *options)
    assert (result.exit_code, words in result.stderr, len(result.stderr.splitlines())) == (2, True, 1)


def test_probe_takes_judge_options() -> None:
    result = run("probe", "--judge", "openai/m", "--judge-option", "heat=1")
    assert (result.exit_code, "not a known key" in result.stderr) == (2, True)


def test_cheap_judge_with_an_expensive_one_is_a_cascade() -> None:
    options = JudgeOptions(
        ["openai/m", "offline"], "openai/n", 0, api_base="http://localhost/v1", judge_option=["temperature=0.5"]
    )
    [cascade] = options.make_judges()
    assert isinstance(cascade, Cascade)
    models = [judge.lm.kwargs for judge in cascade.members if isinstance(judge, LMJudge)]
    assert [(model["api_base"], model["temperature"]) for model in models] == [("http://localhost/v1", 0.5)] * 2
    [confident] = JudgeOptions(["openai/m"], "openai/n", 0.8).make_judges()
    assert isinstance(confident, Cascade)
    assert [judge.confidence for judge in confident.members if isinstance(judge, LMJudge)] == [True, False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--escalate-to", "openai/n"], "`--escalate-to` needs `--escalate-below`"),
        (["--escalate-below", "0.8"], "`--escalate-below` has no effect without `--escalate-to`"),
        (["--escalate-to", "openai/n", "--escalate-below", "nan"], "--escalate-below"),
        (["--escalate-to", "openai/m", "--escalate-below", "0"], "are the same judge"),
        (["--escalate-to", "openai/n", "--escalate-below", "0.8", "--strategy", "one-shot"], "states no confidence"),
        (["--escalate-to", "openai/n", "--escalate-below", "0.8", "--strategy", "holistic"], "a Cascade cannot score"),
    ],
)
def test_options_that_make_no_cascade_exit_with_2(files: Path, options: list[str], words: str) -> None:
    result = grade(files, "--judge", "openai/m", *options)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_file_of_thresholds_is_a_judge_that_may_have_an_expensive_one(tmp_path: Path) -> None:
    path = tmp_path / "judge.json"
    Thresholds(judge="openai/m", pooled=0.9).save(path)
    options = JudgeOptions([str(path)], api_base="http://localhost/v1", judge_option=["temperature=0.5"])
    [alone] = options.make_judges()
    [cascade] = replace(options, escalate_to="openai/n").make_judges()
    for judge, count in ((alone, 1), (cascade, 2)):
        assert isinstance(judge, Cascade)
        assert (judge.escalate_below, len(judge.members)) == (0.9, count)
        [cheap] = judge.cheap
        assert isinstance(cheap, LMJudge)
        assert (cheap.confidence, cheap.lm.kwargs["api_base"], cheap.lm.kwargs["temperature"]) == (
            True, "http://localhost/v1", 0.5,
        )  # fmt: skip
    with pytest.raises(ValueError, match=r"`--escalate-below` has no effect on .*judge\.json, which has thresholds"):
        replace(options, escalate_to="openai/n", escalate_below=0.8).make_judges()
    Thresholds(pooled=0.9).save(path)
    with pytest.raises(ValueError, match="names no judge"):
        options.make_judges()


def test_graded_file_of_a_cascade_says_what_was_escalated(files: Path, server: OpenAIServer) -> None:
    server.script = lambda call: Reply(text=ABSTENTION if call.body["model"] == "cheap" else MET_REPLY)
    options = ("--judge", "openai/cheap", "--escalate-to", "openai/strong", "--escalate-below", "0")
    result = grade(files, *options, "--api-base", server.url, "--out", files / "run.jsonl")
    assert result.exit_code == 0, result.output
    assert "100% escalated" in result.stdout
    lines = read_lines(files / "run.jsonl")
    assert {line["judge"] for line in lines} == {"openai/cheap then openai/strong"}
    assert [line["report"][1]["escalated"] for line in lines] == [True] * 3
    assert (files / "run.sqlite").exists()


def test_confidence_is_a_flag_of_the_judge() -> None:
    judge = JudgeOptions(judge_option=["confidence=true"]).make_judge("openai/m")
    assert isinstance(judge, LMJudge)
    assert judge.confidence
    with pytest.raises(ValueError, match="confidence='yes': must be true or false"):
        JudgeOptions(judge_option=["confidence=yes"]).make_judge("openai/m")
