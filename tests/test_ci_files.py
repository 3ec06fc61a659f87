"""`action.yml` and `.pre-commit-hooks.yaml`: what a runner and pre-commit make of them, executed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from rubric_integrations.cli.console import Exit
from tests.cli.commands import run

ROOT = Path(__file__).resolve().parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
[HOOK] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

# The action.


class Step(NamedTuple):
    """What a step of the action left for its runner."""

    exit_code: int
    log: str
    summary: str
    outputs: dict[str, str]


def run_step(folder: Path, program: str, name: str = "Grade", **inputs: str) -> Step:
    """Run a step as GitHub's runner does.

    Args:
        folder: The working directory.
        program: The content of the programs `rubric-integrations` and `python`.
        name: The name of the step.
        inputs: The inputs of the action that are not the default.
    """
    values = {key: inputs.get(key, str(entry.get("default", ""))) for key, entry in ACTION["inputs"].items()}
    environment = {
        variable: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], expression)
        for variable, expression in STEPS[name]["env"].items()
    }
    runner = folder.parent / f"{folder.name}.runner"
    runner.mkdir(exist_ok=True)
    for command in ("rubric-integrations", "python"):
        (runner / command).write_text(program, encoding="utf-8")
        (runner / command).chmod(0o755)
    files = {"GITHUB_STEP_SUMMARY": runner / "summary.md", "GITHUB_OUTPUT": runner / "output"}
    for path in files.values():
        path.write_text("")
    (runner / "step.sh").write_text(STEPS[name]["run"], encoding="utf-8")
    environment |= {variable: str(path) for variable, path in files.items()}
    environment |= {"GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": "/actions/a b", "PYTHONPATH": str(ROOT)}
    environment |= {"PATH": f"{runner}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(runner / "step.sh")]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return Step(done.returncode, done.stdout + done.stderr, files["GITHUB_STEP_SUMMARY"].read_text(), outputs)


REAL = f'#!/bin/sh\nexec "{sys.executable}" -m rubric_integrations "$@"\n'
# Prints each argument on a line, with its line breaks as `|`.
RECORDER = "#!/bin/bash\nfor argument; do printf '%s\\n' \"<${argument//$'\\n'/|}>\"; done\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a rubric that code decides, and files of responses of which 30, none and 9 of 10 are right."""
    place = tmp_path / "my evals"
    place.mkdir()
    (place / "the rubric.yaml").write_text("- {name: answer, requirement: Says 42, check: {number: 42}}\n")
    for name, answers in (("right", ["42"] * 30), ("wrong", ["41"] * 30), ("few", [*["42"] * 9, "41"])):
        lines = [f'{{"id": "{number} ```\\n# [x](y)", "response": "{text}"}}\n' for number, text in enumerate(answers)]
        (place / f"{name} ones.jsonl").write_text("".join(lines))
    (place / "broken.jsonl").write_text('{"id": "a", "response": ')
    (place / "judged.yaml").write_text("- {requirement: Is kind}\n")
    return place


@pytest.mark.guides
@pytest.mark.parametrize(
    ("responses", "options", "outcome", "exit_code", "shown"),
    [
        ("right ones", "--min-score 0.8\n--alpha 0.05\n", "passed", 0, "30 of 30 graded"),
        ("wrong ones", "--min-score 0.8\n--alpha 0.05\n", "failed", 1, "gate decision: fail"),
        ("few ones", "--min-score=0.8\n\n  --alpha=0.05  \n", "inconclusive", 1, "gate decision: inconclusive"),
        ("few ones", "--gate\r\n", "failed", 1, "gate failed: --gate"),
        ("few ones", "--min-score 0.8\n--alpha 0.05\n--min-pass-rate 1", "failed", 1, "gate decision: inconclusive"),
        ("broken", "", "bad-input", 2, "line 1 is not JSON"),
        ("missing", "", "bad-input", 2, "missing.jsonl"),
        ("right ones", "--gate yes", "bad-input", 2, "unexpected extra argument"),
        ("right ones", "--no-such-option", "bad-input", 2, "No such option"),
    ],
)
def test_action_has_the_exit_code_the_outcome_and_the_summary_of_the_run(
    folder: Path, responses: str, options: str, outcome: str, exit_code: int, shown: str
) -> None:
    files = {"rubric": "the rubric.yaml", "responses": f"{responses}.jsonl", "out": "my run.jsonl"}
    step = run_step(folder, REAL, judge="offline", options=options, **files)
    assert (step.exit_code, step.outputs) == (exit_code, {"outcome": outcome, "exit-code": str(exit_code)}), step.log
    assert (folder / "my run.jsonl").exists() or exit_code == Exit.BAD_INPUT
    heading, blank, *lines = step.summary.splitlines()
    assert (heading, blank, lines[-1]) == (f"### Rubric: {outcome}", "", "")
    # Each line is code. Therefore, no text of a response or of an id is Markdown.
    assert all(line.startswith("    ") for line in lines[:-1])
    assert shown in " ".join(step.summary.split())
    assert "\x1b" not in step.summary


@pytest.mark.guides
def test_action_distinguishes_a_judge_that_failed_and_a_run_that_stopped_from_a_gate_that_failed(folder: Path) -> None:
    files = {"rubric": "judged.yaml", "responses": "few ones.jsonl"}
    # Nothing listens at this port.
    options = "--min-score 0.8\n--api-base http://127.0.0.1:1/v1\n--api-key none\n--max-outage 0\n--max-retries 0"
    step = run_step(folder, REAL, judge="openai/gpt-5-mini", options=options, **files)
    assert (step.exit_code, step.outputs["outcome"]) == (Exit.JUDGE_FAILED, "judge-failed"), step.log
    step = run_step(folder, "#!/bin/sh\nexit 4\n", judge="offline", **files)
    assert (step.exit_code, step.outputs) == (4, {"outcome": "stopped", "exit-code": "4"})
    # A runner that cancels a step sends SIGINT.
    assert run_step(folder, "#!/bin/sh\nexit 130\n", judge="offline", **files).outputs["outcome"] == "stopped"


HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    '"; touch pwned; "',
    "'; touch pwned; '",
    "a\ntouch pwned",
    "a\noutcome=passed",
    "${{ github.token }} $HOME ~ *",
    "--import=pwned",
    "\\",
    "é\u2028 %0A::error::x",
]


@pytest.mark.processes
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", ["rubric", "responses", "judge", "out"])
def test_action_passes_a_hostile_input_as_one_argument(folder: Path, name: str, text: str) -> None:
    values = {"rubric": "r", "responses": "s", "judge": "j", "out": "o", name: text}
    step = run_step(folder, RECORDER, **values)
    shown = {key: value.replace("\n", "|") for key, value in values.items()}
    arguments = [
        "grade", "--quiet", f"--out={shown['out']}", f"--judge={shown['judge']}", "--", shown["rubric"],
        shown["responses"],
    ]  # fmt: skip
    assert step.log.split("\n") == [*(f"<{argument}>" for argument in arguments), ""]
    assert step.outputs == {"outcome": "passed", "exit-code": "0"}
    assert not (folder / "pwned").exists()


@pytest.mark.processes
@pytest.mark.parametrize("text", HOSTILE)
def test_action_passes_each_line_of_hostile_options_as_an_option_and_its_value(folder: Path, text: str) -> None:
    step = run_step(folder, RECORDER, responses="s", judge="j", options=f"--cluster {text}\n--judge-option=a b=c\n")
    first, *others = text.split("\n")
    arguments = [
        "grade", "--quiet", "--out=run.jsonl", "--judge=j", "--cluster", first, *others, "--judge-option=a b=c", "--",
        "s",
    ]  # fmt: skip
    assert step.log.split("\n") == [*(f"<{argument}>" for argument in arguments), ""]
    assert not (folder / "pwned").exists()


@pytest.mark.processes
@pytest.mark.parametrize("inputs", [{"judge": "offline"}, {"responses": "right ones.jsonl"}, {}])
def test_action_without_responses_or_a_judge_calls_nothing_and_names_the_inputs(
    folder: Path, inputs: dict[str, str]
) -> None:
    step = run_step(folder, RECORDER, rubric="the rubric.yaml", **inputs)
    assert (step.exit_code, step.outputs["outcome"]) == (Exit.BAD_INPUT, "bad-input")
    assert step.log == "The input `responses` or `judge` is missing: name the file of responses and the judge.\n"
    assert step.log in step.summary


@pytest.mark.processes
@pytest.mark.parametrize(
    ("extras", "requirement"),
    [
        ("report", "/actions/a b[report]"),
        ("report,litellm", "/actions/a b[report,litellm]"),
        ("", "/actions/a b"),
        ('x] "; $(touch pwned)', '/actions/a b[x] "; $(touch pwned)]'),
    ],
)
def test_action_installs_the_package_of_its_own_path(folder: Path, extras: str, requirement: str) -> None:
    step = run_step(folder, RECORDER, "Install", extras=extras)
    *options, last = step.log.splitlines()
    assert options == [f"<{word}>" for word in ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]]
    assert last == f"<{requirement}>"
    assert not (folder / "pwned").exists()


def test_action_has_no_expression_in_a_script_and_no_address_of_a_registry() -> None:
    for step in STEPS.values():
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
        assert set(step["env"].values()) <= {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]}
    assert not re.search(r"https?:|pypi|index", (ROOT / "action.yml").read_text(encoding="utf-8"))
    used = {value for step in STEPS.values() for value in step["env"].values()}
    assert len(used) == len(ACTION["inputs"])
    assert {entry["value"] for entry in ACTION["outputs"].values()} == {
        f"${{{{ steps.grade.outputs.{name} }}}}" for name in ACTION["outputs"]
    }


def test_page_about_ci_names_the_inputs_the_outputs_and_the_hook() -> None:
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    [paragraph] = re.findall(r"^\*\*In one step\.\*\*(.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    names = set(re.findall(r"`([a-z-]+)`", paragraph))
    assert {"rubric", "responses", "judge", "options", "outcome", "exit-code", "inconclusive"} == names
    assert names <= {*ACTION["inputs"], *ACTION["outputs"], "inconclusive"}
    assert f"`{HOOK['id']}`" in page


# The hook.


def selected(paths: Mapping[str, str]) -> list[str]:
    """Return the paths that pre-commit passes to the hook. It compares them with regular expressions, anywhere."""
    types = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}
    return [
        path
        for path in paths
        if re.search(HOOK["files"], path)
        and not re.search(HOOK["exclude"], path)
        and types.get(Path(path).suffix) in HOOK["types_or"]
    ]


GOOD = "- {requirement: Says why, check: {contains: because}}\n"
VAGUE = "- {requirement: Is good and names the price}\n"
RUBRICS = {
    "rubric.yaml": GOOD,
    "a b/refunds-rubric.yml": GOOD,
    "é/refunds.rubric.json": '[{"requirement": "Says why"}]',
    "evals/rubrics/deep/one.yaml": GOOD,
    "--strict.rubric.yaml": GOOD,
}
OTHERS = {
    "package.json": "{}",
    "rubric.md": "# Rubric",
    "rubrics/README.md": "# Rubrics",
    "rubric.cases.yaml": "- {response: x}",
    "schema/rubric.schema.json": "{}",
    "prubric.yaml": "a: 1",
    "evals/responses.jsonl": "{}",
}


def run_hook(folder: Path, contents: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Write files, and run the hook on those that it selects, as pre-commit does in the repository's folder."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(folder)
    _, *arguments = shlex.split(HOOK["entry"])
    result = run(*arguments, *HOOK["args"], *selected(contents))
    return result.exit_code, result.stdout + result.stderr


def test_hook_is_a_command_of_the_installed_package_with_the_keys_of_pre_commit() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert (HOOK["id"], HOOK["language"]) == ("rubric-validate", "python")
    assert shlex.split(HOOK["entry"])[0] in scripts


def test_hook_selects_rubrics_and_passes_if_they_have_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert selected(RUBRICS | OTHERS) == list(RUBRICS)
    exit_code, text = run_hook(tmp_path, RUBRICS | OTHERS, monkeypatch)
    assert (exit_code, "5 files: 5 valid, 0 invalid" in text) == (0, True), text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rubric.yaml", VAGUE, "--fail-on-warnings: 2 warnings"),
        ("rubrics/a b.yaml", "- {wieght: 3, requirement: a}", "rubrics/a b.yaml: criteria[0] `wieght`"),
        ("rubrics/ci.yaml", "jobs: {build: {steps: []}}", "rubrics/ci.yaml: "),
        ("rubrics/empty.json", "", "rubrics/empty.json: "),
        ("rubrics/cut.json", "{", "rubrics/cut.json: "),
        ("--help.rubric.yaml", VAGUE, "--fail-on-warnings: 2 warnings"),
    ],
)
def test_hook_fails_on_a_warning_or_a_file_that_is_not_a_rubric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, message: str
) -> None:
    exit_code, text = run_hook(tmp_path, {name: content, "good.rubric.yaml": GOOD}, monkeypatch)
    assert (exit_code, message in text) == (Exit.NOT_PASSED, True), text
    assert "Traceback" not in text


def test_hook_checks_hundreds_of_files_in_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"rubrics/number {number}.yaml": GOOD for number in range(300)}
    assert HOOK["require_serial"] is True
    exit_code, text = run_hook(tmp_path, files, monkeypatch)
    assert (exit_code, "300 files: 300 valid, 0 invalid" in text) == (0, True)


def test_hook_without_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # pre-commit does not run a hook without a file, unless its user sets `always_run`.
    exit_code, text = run_hook(tmp_path, OTHERS, monkeypatch)
    assert (exit_code, "Missing argument" in text) == (Exit.BAD_INPUT, True)
