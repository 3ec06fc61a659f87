"""The condition `type_checks`: code without type errors is MET, and a type checker that cannot tell is a failure."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Check
from rubric_integrations.checks import run_check, types
from rubric_integrations.scoring import JudgeFailure

RIGHT = "```python\ndef double(x: int) -> int:\n    return 2 * x\n```\nUse it:\n```py\nprint(double(3))\n```\n"
FAKE_OUTPUT = "response.py:7: error: Wrong type  [arg-type]"


def check_with(tool: str, response: str) -> Any:
    return run_check(Check.model_validate({"type_checks": {"tool": tool}}), response)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that puts a shell script on the PATH as `mypy`."""

    def install(script: str) -> Path:
        program = tmp_path / "mypy"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path

    return install


@pytest.mark.processes
@pytest.mark.parametrize("tool", ["pyright", "basedpyright", "mypy"])
def test_each_installed_type_checker_finds_the_wrong_line(tool: str) -> None:
    if not (shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))):
        pytest.skip(f"{tool} is not installed, which is not among the development tools: pip install {tool}")
    assert check_with(tool, RIGHT + "```python\nimport a_library_that_is_not_installed\n```").verdict == "MET"
    judgment = check_with(tool, RIGHT.replace("double(3)", 'double("a")'))
    assert judgment.verdict == "UNMET"
    assert judgment.reason.startswith("has a type error in line 7: Argument ")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("Use the function `double`.", "has no fenced block of Python code that is closed"),
        ("```python\nx: int = 1", "has no fenced block"),
        ("```bash\nls\n```", "has no fenced block"),
        ("``` x = 1 ``` and ```y = 2```", "has no fenced block"),
        ('```python\nx: int = "a"  # type: ignore\n```', "turns type checking off in line 2 with '# type: ignore'"),
        ("```\n# mypy: ignore-errors\n```", "turns type checking off in line 2"),
        ("```py\n#pyright: basic\n```", "turns type checking off in line 2"),
        ("```py\n@typing.no_type_check\ndef f(): ...\n```", "turns type checking off in line 2"),
        ("```py\nif not TYPE_CHECKING:\n    f()\n```", "turns type checking off in line 2 with 'if not TYPE_CHECKING'"),
        ("```py\nif TYPE_CHECKING:\n    x = 1\nelse:\n    f()\n```", "hides code from the type checker in line 2"),
        ("```py\nif TYPE_CHECKING: x = 1\nelif y: f()\n```", "hides code from the type checker in line 2"),
        (
            "```py\nimport typing as t\nif (not t.TYPE_CHECKING) and y: f()\n```",
            "hides code from the type checker in line 3",
        ),
        ("```py\nx = 1 if TYPE_CHECKING else f()\n```", "hides code from the type checker in line 2"),
        (
            "```py\nfrom typing import TYPE_CHECKING as T\nif not T: f()\n```",
            "hides code from the type checker in line 3",
        ),
        ("```py\ndef f():\n    if TYPE_CHECKING: return\n    g()\n```", "hides code from the type checker in line 3"),
        ("```py\nMYPY = False\nif not MYPY: f()\n```", "hides code from the type checker in line 3"),
    ],
)
def test_response_without_code_to_check_is_unmet_without_a_process(response: str, reason: str, fake: Any) -> None:
    fake("exit 3")
    judgment = check_with("mypy", response)
    assert judgment.verdict == "UNMET"
    assert reason in judgment.reason


@pytest.mark.parametrize(
    "code",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import A\nif x:\n    y = 1\nelse:\n    y = 2",
        "import typing\nif typing.TYPE_CHECKING:\n    import a\n    class B(a.A): ...\n",
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import a  # not when it runs, only for TYPE_CHECKING",
        "type_checking = True\nif not type_checking:\n    x = 1",
        "if x:\n    import a\nelif TYPE_CHECKING:\n    import b",
        "if TYPE_CHECKING:\n    if x:\n        import a\n    else:\n        import b",
    ],
)
def test_code_that_only_imports_under_type_checking_is_checked(code: str, fake: Any) -> None:
    fake("exit 0")
    assert check_with("mypy", f"```python\n{code}\n```").verdict == "MET"
    fake(f"echo '{FAKE_OUTPUT}'; exit 1")
    assert check_with("mypy", f"```python\n{code}\n```").reason.startswith("has a type error")


def test_type_checker_gets_the_code_at_its_lines_and_neither_settings_nor_secrets(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("MYPYPATH", "/plugins")
    folder = fake('env > "$(dirname "$0")/environment"; pwd >> "$(dirname "$0")/environment"; cat response.py >&2\n'
                  f'echo "{FAKE_OUTPUT}"; printf "%s\\n" "$@" > "$(dirname "$0")/arguments"; exit 1')  # fmt: skip
    monkeypatch.chdir(folder)
    (folder / "mypy.ini").write_text("[mypy]\nplugins = hostile\n")
    assert check_with("mypy", RIGHT).reason == "has a type error in line 7: Wrong type  [arg-type]"
    environment = (folder / "environment").read_text()
    assert "sk-canary" not in environment
    assert "MYPYPATH" not in environment
    assert str(folder) not in environment.splitlines()
    assert "--config-file=" in (folder / "arguments").read_text().splitlines()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'Segmentation fault' >&2; exit 139", "`mypy` failed with the exit code 139: Segmentation fault"),
        ("exit 1", "`mypy` failed with the exit code 1: it printed nothing"),
        ("echo 'response.py:1: error: INTERNAL ERROR -- see'; exit 2", "exit code 2: response.py:1: error: INTERNAL"),
        (f"echo '{FAKE_OUTPUT}'; exit 0", "`mypy` failed with the exit code 0"),
    ],
)
def test_type_checker_that_crashes_is_a_failure_and_no_verdict(script: str, problem: str, fake: Any) -> None:
    fake(script)
    with pytest.raises(JudgeFailure, match=problem) as failure:
        check_with("mypy", RIGHT)
    assert failure.value.kind == "check"


def test_type_checker_that_takes_too_long_is_ended_with_its_processes(
    fake: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake(f"sleep 600 &\necho $! > {tmp_path}/child; wait")
    monkeypatch.setattr(types, "MAX_SECONDS", 1.0)
    with pytest.raises(JudgeFailure, match=r"`mypy` took longer than 1 s: ask for shorter"):
        check_with("mypy", RIGHT)
    status = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")

    def is_running() -> bool:
        try:
            return status.read_text().split()[2] != "Z"
        except OSError:
            return False

    end = time.monotonic() + 10
    while is_running() and time.monotonic() < end:  # a signal takes a moment
        pass
    assert not is_running()


def test_type_checker_that_is_not_installed_is_a_failure_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(_program: str, path: str | None = None) -> None:
        del path

    monkeypatch.setattr(shutil, "which", find_nothing)
    with pytest.raises(JudgeFailure, match="`pyright` is not installed, which `type_checks` runs: pip install pyright"):
        check_with("pyright", RIGHT)


def test_long_code_is_a_failure_that_names_the_limit() -> None:
    with pytest.raises(JudgeFailure, match="at most 100,000 characters"):
        check_with("pyright", "```python\n" + "x = 1\n" * 20_000 + "```")
