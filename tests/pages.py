"""Runs the examples of a page of the documentation, and compares what they print with what the page shows.

An example is a ```python block, or a ```sh block that calls `rubric-integrations` alone and is followed by its output.
If a ```text block follows an example directly, it is the output: what the example prints must be equal, up to white
space at the ends of lines; `...` stands for any text. A block that calls `print` must have one.

Pages name real models. Their requests to OpenAI are sent to a local server, whose answers the page scripts in an HTML
comment, which neither GitHub nor the site shows:

    <!-- setup
    model_answers = {"Gives the number": "MET", "Says please": ("UNMET", "It does not.")}
    -->

A set-up is Python, and shares its names with the blocks. `model_answers` is a mapping from a text in the requirement to
a verdict, or to a verdict with its reason; or a function of the system and the user prompt, which returns the reply. It
applies until another set-up replaces it.

A block with the name of a file as its title (```yaml title="rubric.yaml") is written to that file. The examples run in
an empty folder that contains these files, and `examples/` of the repository.

`python -m tests.pages docs/dspy.md` runs the examples of a page, and writes what they print into it.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.openai_server import Call, OpenAIServer, Reply

ROOT = Path(__file__).resolve().parents[1]
_PARTS = re.compile(
    r"^<!-- (?P<setup>setup)\n(?P<hidden>.*?)^-->$"
    r"|^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```\n"
    r"(?:\n?```text\n(?P<shown>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_OWN_COMMANDS = r"(?:rubric-integrations (?:[^\n]*\\\n)*[^\n]*\n)+"


class Part(NamedTuple):
    """A part of a page that its test runs.

    Attributes:
        kind: `setup`, `file`, `python` or `sh`.
        text: The code, or the content of the file.
        line: The number of its first line.
        title: The name of the file; empty for other parts.
        shown: The output that the page shows; None if it shows none.
        end_of_code: The place in the page behind the code.
        end: The place behind the output that the page shows, or else behind the code.
    """

    kind: str
    text: str
    line: int
    title: str = ""
    shown: str | None = None
    end_of_code: int = 0
    end: int = 0


def example_parts(page: Path) -> list[Part]:
    """Return what the test of a page runs, in order; nothing if no part of it is an example."""
    parts = list(_parts(page.read_text(encoding="utf-8")))
    return parts if any(part.kind in ("python", "sh") for part in parts) else []


def _parts(text: str) -> Iterator[Part]:
    for match in _PARTS.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        if match["setup"]:
            yield Part("setup", match["hidden"], line)
        elif match["title"]:
            if re.fullmatch(r"[\w-]+\.(?!diff)\w+", match["title"]) and match["language"] != "diff":
                yield Part("file", match["code"], line, match["title"])
        elif match["language"] == "python" or (
            # No other command: a page also shows how to install something, or to start a server.
            match["language"] == "sh" and match["shown"] and re.fullmatch(_OWN_COMMANDS, match["code"])
        ):
            ends = match.end("code") + len("```\n"), match.end()
            yield Part(match["language"], match["code"], line, "", match["shown"], *ends)


def run_examples(page: Path, folder: Path) -> Iterator[tuple[Part, str]]:
    """Run the examples of a page in a folder, and yield each of them with what it prints.

    Raises:
        AssertionError: A question to the scripted model has no answer.
    """
    parts = example_parts(page)
    names: dict[str, Any] = {"__name__": page.name}
    faults: list[str] = []

    def script(call: Call) -> Reply:
        try:
            return _reply(names.get("model_answers"), call)
        except Exception as error:  # noqa: BLE001 -- raised in the server's thread, and reported with the example
            faults.append(f"`model_answers` has no answer to {call.criterion or call.prompt!r}: {error!r}")
            return Reply(status=400)

    with contextlib.suppress(FileExistsError):
        (folder / "examples").symlink_to(ROOT / "examples")
    with OpenAIServer(script) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # Only where the page scripts answers: a page about keys and servers is run without any.
        if any("model_answers" in part.text for part in parts if part.kind == "setup"):
            for name, value in (("API_BASE", server.url), ("BASE_URL", server.url), ("API_KEY", "none")):
                patch.setenv(f"OPENAI_{name}", value)
        for part in parts:
            if part.kind == "file":
                Path(part.title).write_text(part.text, encoding="utf-8")
                continue
            place = f"{page.name}, line {part.line}"
            try:
                printed = _run_shell(part.text, folder) if part.kind == "sh" else _run_python(part, place, names)
            finally:
                assert not faults, f"{place}: {faults[0]}"
            if part.kind != "setup":
                # A reader's requests go to the provider.
                yield part, printed.replace(server.url, "https://api.openai.com/v1")


def fault(part: Part, printed: str) -> str | None:
    """Compare what an example prints with what its page shows; None if they agree."""
    if part.shown is None:
        return f"prints what the page does not show:\n{printed}" if printed and "print(" in part.text else None
    want, got = (re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE) for text in (part.shown, printed))
    checker = doctest.OutputChecker()
    if checker.check_output(want, got, doctest.ELLIPSIS):
        return None
    return checker.output_difference(doctest.Example("", want), got, doctest.ELLIPSIS)


def check_examples(page: Path, folder: Path) -> None:
    """Run the examples of a page.

    Raises:
        AssertionError: An example prints something other than the page shows, or a question has no scripted answer.
    """
    for part, printed in run_examples(page, folder):
        message = fault(part, printed)
        assert message is None, f"{page.name}, line {part.line}: {message}"


def write_outputs(page: Path) -> int:
    """Write into a page the outputs of its examples that it does not show, or shows otherwise; return their number."""
    text, changes = page.read_text(encoding="utf-8"), list[tuple[Part, str]]()
    with tempfile.TemporaryDirectory() as folder:
        changes = [(part, printed) for part, printed in run_examples(page, Path(folder)) if fault(part, printed)]
    for part, printed in reversed(changes):
        output = re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE)
        shown = f"\n```text\n{output}```\n" if output else ""
        text = text[: part.end_of_code] + shown + text[part.end :]
    page.write_text(text, encoding="utf-8")
    return len(changes)


def _reply(answers: Any, call: Call) -> Reply:
    if callable(answers):
        system, *others = (str(message["content"]) for message in call.body["messages"])
        return Reply(text=str(answers(system, "\n\n".join(others))))
    answer = next(answer for text, answer in answers.items() if text in call.criterion)
    verdict, reason = answer if isinstance(answer, tuple) else (answer, "as scripted")
    return Reply(text=json.dumps({"explanation": reason, "verdict": verdict}))


def _run_python(part: Part, place: str, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        # Line numbers of the page, for tracebacks.
        exec(compile("\n" * (part.line - 1) + part.text, place, "exec"), names)
    return output.getvalue()


def _run_shell(script: str, folder: Path) -> str:
    """Run a block of commands; the output has both streams."""
    programs = folder / ".bin"
    programs.mkdir(exist_ok=True)
    program = programs / "rubric-integrations"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rubric_integrations "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    command = ["bash", "-c", script]
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout


if __name__ == "__main__":
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"], os.environ["COLUMNS"] = "True", "120"
    for path in map(Path, sys.argv[1:]):
        sys.stdout.write(f"{path}: {write_outputs(path)} outputs written\n")
