"""The condition `type_checks`: the Python code of the response has no type errors. The code is never executed.

The type checker runs as a process with a time limit, without the user's settings, plugins or environment. This is a
separate module because nothing else in the package starts a process. To add a type checker, add its name to
`TypeCheck.tool`, and its arguments and the reader of its output to `_CHECKERS`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, cast

from rubric_integrations.checks.registry import decides
from rubric_integrations.checks.structure import fenced_blocks
from rubric_integrations.rubric.check import Check, TypeCheck
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.submission.submission import Submission

# A type checker takes about two seconds, and longer on a busy machine.
MAX_SECONDS = 60.0
# Of what a type checker prints. Code of 100,000 characters has no more errors than that.
_MAX_OUTPUT = 50_000_000
_MAX_MESSAGE = 200
# Type checkers are large processes: more than one for each processor would only take memory.
_slots = threading.BoundedSemaphore(os.cpu_count() or 1)

_FILE = "response.py"
_SETTINGS = "pyrightconfig.json"
# Libraries that are not installed here do not make code wrong.
_PYRIGHT_SETTINGS = {
    "include": [_FILE],
    "typeCheckingMode": "standard",
    "enableTypeIgnoreComments": False,
    "reportMissingImports": "none",
    "reportMissingModuleSource": "none",
}
# An empty name of a settings file: mypy reads none then, and hence loads no plugins.
_MYPY = (
    "--config-file=", "--cache-dir=/dev/null" if os.name != "nt" else "--cache-dir=nul", "--ignore-missing-imports",
    "--check-untyped-defs", "--no-error-summary", "--no-color-output", "--no-pretty", "--hide-error-context",
)  # fmt: skip
# Variables without which programs do not start. Keys, and paths of modules and plugins, are not among them.
_VARIABLES = (
    "PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "XDG_CACHE_HOME",
    "SYSTEMROOT", "USERPROFILE", "LOCALAPPDATA", "TEMP",
)  # fmt: skip


class CodeError(NamedTuple):
    """One error of a type checker.

    Attributes:
        line: The number of its line in the code, from 1.
        message: What is wrong, in one line.
    """

    line: int
    message: str


def run_type_checker(tool: str, code: str) -> list[CodeError]:
    """Return the type errors of Python code.

    Raises:
        JudgeFailure: Of kind `check`: the type checker is not installed, crashed, or took longer than a minute.
    """
    arguments, read_errors = _CHECKERS[tool]
    # In an environment that is not activated, programs are beside Python.
    program = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
    if program is None:
        raise JudgeFailure("check", f"`{tool}` is not installed, which `type_checks` runs: pip install {tool}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        work = folder / "code"
        work.mkdir()
        (work / _FILE).write_text(code, encoding="utf-8")
        (work / _SETTINGS).write_text(json.dumps(_PYRIGHT_SETTINGS), encoding="utf-8")
        with _slots:
            status = _run([program, *arguments], work, folder / "out", folder / "err", tool)
        output, problem = _read(folder / "out"), _read(folder / "err")
    try:
        errors = read_errors(output)
    except (ValueError, LookupError, TypeError, AttributeError):
        errors = None
    # 0: no errors, 1: errors. mypy also returns 2 if the code cannot be parsed.
    if errors is None or bool(errors) != (status in (1, 2)) or status not in (0, 1, 2):
        message = " ".join((problem.strip() or output.strip() or "it printed nothing")[-_MAX_MESSAGE:].split())
        raise JudgeFailure("check", f"`{tool}` failed with the exit code {status}: {message}")
    return errors


def _run(command: list[str], folder: Path, output: Path, problem: Path, tool: str) -> int:
    """Run a program in a folder, and return its exit code."""
    # npm must not request anything: the package `pyright` installs its program with it when it is first used.
    environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ} | {"npm_config_offline": "true"}
    # Files, because a program that is ended may leave others that still hold its pipes.
    with output.open("wb") as out, problem.open("wb") as err:
        process = subprocess.Popen(  # noqa: S603 -- the tool is one of three names, the arguments are ours
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:
            message = f"`{tool}` took longer than {MAX_SECONDS:g} s: ask for shorter or simpler code"
            raise JudgeFailure("check", message) from None
        finally:
            if process.poll() is None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with those that it has started."""
    if os.name == "posix":
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_OUTPUT).decode("utf-8", "replace")


def _pyright_errors(output: str) -> list[CodeError]:
    """Read the JSON of pyright.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: It is not what pyright writes.
    """
    diagnostics = json.loads(output)["generalDiagnostics"]
    return [
        CodeError(int(diagnostic["range"]["start"]["line"]) + 1, " ".join(str(diagnostic["message"]).split()))
        for diagnostic in diagnostics
        if diagnostic["severity"] == "error"
    ]


def _mypy_errors(output: str) -> list[CodeError]:
    """Read the lines of mypy.

    Raises:
        ValueError: It crashed.
    """
    if "INTERNAL ERROR" in output:
        raise ValueError("mypy crashed")
    lines = re.findall(rf"^{re.escape(_FILE)}:(\d+): error: (.*)$", output, re.MULTILINE)
    return [CodeError(int(line), message.strip()) for line, message in lines]


_PYRIGHT = ("--project", _SETTINGS, "--outputjson")
_CHECKERS: dict[str, tuple[tuple[str, ...], Callable[[str], list[CodeError]]]] = {
    "pyright": (_PYRIGHT, _pyright_errors),
    "basedpyright": (_PYRIGHT, _pyright_errors),
    "mypy": ((*_MYPY, _FILE), _mypy_errors),
}


# About 3,000 lines, which a type checker reads in seconds.
MAX_CHARS = 100_000
_MAX_ERRORS = 3
_MAX_ERROR = 200

_LANGUAGES = ("python", "py", "python3")
# What makes a type checker look away. It may stand in a text, too, which then counts as well.
_SUPPRESSION = re.compile(r"#\s*(?:type:\s*ignore|(?:based)?pyright:|mypy:)|\bno_type_check\b", re.IGNORECASE)


@decides("type_checks")
def has_no_type_errors(check: Check, submission: Submission) -> str:
    """Return the first type errors of the code in the response, or an empty string.

    The code is in the fenced blocks of Python or, if there are none, in those without a language. Several blocks are
    one program, in their order. The numbers of lines are those of the response.

    Raises:
        JudgeFailure: Of kind `check`: the type checker is not installed, crashed or took too long, or the code has
            more than 100,000 characters.
    """
    code = _code_of(submission.response)
    if not code.strip():
        return "has no fenced block of Python code that is closed"
    if len(code) > MAX_CHARS:
        raise JudgeFailure(
            "check",
            f"the condition `type_checks` is for code of at most {MAX_CHARS:,} characters, and this has {len(code):,}: "
            "ask for shorter code",
        )
    for number, line in enumerate(code.split("\n"), start=1):
        if suppression := _SUPPRESSION.search(line):
            return f"turns type checking off in line {number} with {suppression[0]!r}"
    errors = run_type_checker(cast("TypeCheck", check.type_checks).tool, code)
    if not errors:
        return ""
    first = "; ".join(f"line {error.line}: {error.message}"[:_MAX_ERROR] for error in errors[:_MAX_ERRORS])
    more = f", and {len(errors) - _MAX_ERRORS} more" if len(errors) > _MAX_ERRORS else ""
    return f"has {len(errors)} type errors: {first}{more}" if len(errors) > 1 else f"has a type error in {first}"


def _code_of(text: str) -> str:
    """Return the code of a response, each line at its own number: all other lines are empty."""
    blocks = list(fenced_blocks(text))
    blocks = [block for block in blocks if block.language in _LANGUAGES] or [b for b in blocks if not b.language]
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.first_line - 1 - len(lines))
        lines += block.lines
    return "\n".join(lines)
