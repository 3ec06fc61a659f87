"""The condition `type_checks`: the Python code of the response has no type errors. The code is never executed.

The type checker runs as a process with a time limit, without the user's settings, plugins or environment. This is a
separate module because nothing else in the package starts a process. To add a type checker, add its name to
`TypeCheck.tool`, and its arguments and the reader of its output to `_CHECKERS`.
"""

from __future__ import annotations

import ast
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

# A type checker usually takes about two seconds, and longer on a busy machine.
MAX_SECONDS = 60.0
# The most bytes of a type checker's output. Code of 100,000 characters has no longer list of errors.
_MAX_OUTPUT = 50_000_000
_MAX_MESSAGE = 200
# Type checkers are large processes. More than one for each processor would only use memory.
_slots = threading.BoundedSemaphore(os.cpu_count() or 1)

_FILE = "response.py"
_SETTINGS = "pyrightconfig.json"
# A missing library on this machine must not count as an error of the code.
_PYRIGHT_SETTINGS = {
    "include": [_FILE],
    "typeCheckingMode": "standard",
    "enableTypeIgnoreComments": False,
    "reportMissingImports": "none",
    "reportMissingModuleSource": "none",
}
# With an empty name of the settings file, mypy reads no settings. Therefore, it loads no plugins.
_MYPY = (
    "--config-file=", "--cache-dir=/dev/null" if os.name != "nt" else "--cache-dir=nul", "--ignore-missing-imports",
    "--check-untyped-defs", "--no-error-summary", "--no-color-output", "--no-pretty", "--hide-error-context",
)  # fmt: skip
# Variables that programs need to start. Keys, and paths of modules and plugins, are not included.
_VARIABLES = (
    "PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "XDG_CACHE_HOME",
    "SYSTEMROOT", "USERPROFILE", "LOCALAPPDATA", "TEMP",
)  # fmt: skip


class CodeError(NamedTuple):
    """One error of a type checker.

    Attributes:
        line: The line number of the error in the code, from 1.
        message: What is wrong, in one line.
    """

    line: int
    message: str


def run_type_checker(tool: str, code: str) -> list[CodeError]:
    """Return the type errors of Python code.

    Raises:
        JudgeFailure: Of kind `check`, if the type checker is not installed, crashed, or took longer than a minute.
    """
    arguments, read_errors = _CHECKERS[tool]
    # In an environment that is not activated, programs are in the directory of Python.
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
    """Run a program in a folder and return its exit code."""
    # npm must not access the network. The package `pyright` would use it to install its program at the first use.
    environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ} | {"npm_config_offline": "true"}
    # Files instead of pipes, because child processes of a killed program may keep its pipes open.
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
    """Kill a process and its child processes."""
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
    """Parse the JSON output of pyright.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: The output does not have the form that pyright writes.
    """
    diagnostics = json.loads(output)["generalDiagnostics"]
    return [
        CodeError(int(diagnostic["range"]["start"]["line"]) + 1, " ".join(str(diagnostic["message"]).split()))
        for diagnostic in diagnostics
        if diagnostic["severity"] == "error"
    ]


def _mypy_errors(output: str) -> list[CodeError]:
    """Parse the lines of mypy's output.

    Raises:
        ValueError: mypy crashed.
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


# The most characters of the code: about 3,000 lines. A type checker reads them in seconds.
MAX_CHARS = 100_000
_MAX_ERRORS = 3
_MAX_ERROR = 200

_LANGUAGES = ("python", "py", "python3")
# Comments, decorators and conditions that turn off type checking. A match inside a string counts, too.
_SUPPRESSION = re.compile(
    r"#\s*(?:type:\s*ignore|(?:based)?pyright:|mypy:)|\bno_type_check\b"
    r"|\bif\s+not\s+(?:\w+\.)?(?-i:TYPE_CHECKING)\b",
    re.IGNORECASE,
)
# Names that are true for a type checker. Only mypy knows the second one.
_FLAGS = {"TYPE_CHECKING", "MYPY"}


@decides("type_checks")
def has_no_type_errors(check: Check, submission: Submission) -> str:
    """Return the first type errors of the code in the response, or an empty string.

    The code is in the fenced blocks of Python or, if there are none, in the fenced blocks without a language. Several
    blocks are joined to one program, in their order. Line numbers refer to the response.

    Raises:
        JudgeFailure: Of kind `check`, if the type checker is not installed, crashed or took too long, or if the code
            has more than 100,000 characters.
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
    if (number := _line_with_hidden_code(code)) is not None:
        return f"hides code from the type checker in line {number}"
    errors = run_type_checker(cast("TypeCheck", check.type_checks).tool, code)
    if not errors:
        return ""
    first = "; ".join(f"line {error.line}: {error.message}"[:_MAX_ERROR] for error in errors[:_MAX_ERRORS])
    more = f", and {len(errors) - _MAX_ERRORS} more" if len(errors) > _MAX_ERRORS else ""
    return f"has {len(errors)} type errors: {first}{more}" if len(errors) > 1 else f"has a type error in {first}"


def _line_with_hidden_code(code: str) -> int | None:
    """Return the first line whose use of `TYPE_CHECKING` hides code from type checkers, or None.

    Only `if TYPE_CHECKING:` without `else` and without a jump hides no code, because its own block is checked.
    """
    if not any(flag in code for flag in _FLAGS):
        return None
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = _FLAGS | {
        alias.asname for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
        if alias.name in _FLAGS and alias.asname
    }  # fmt: skip
    jumps = (ast.Return, ast.Raise, ast.Continue, ast.Break)
    ifs = [node for node in nodes if isinstance(node, ast.If) and not node.orelse]
    harmless = {id(node.test) for node in ifs if not isinstance(node.body[-1], jumps)}
    lines = [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in harmless
        if (node.id if isinstance(node, ast.Name) else node.attr) in names
    ]
    return min(lines, default=None)


def _code_of(text: str) -> str:
    """Return the code of a response with the line numbers of the response. All other lines are empty."""
    blocks = list(fenced_blocks(text))
    blocks = [block for block in blocks if block.language in _LANGUAGES] or [b for b in blocks if not b.language]
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.first_line - 1 - len(lines))
        lines += block.lines
    return "\n".join(lines)
