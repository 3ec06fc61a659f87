"""Checks an installed wheel, in an environment without the development tools: `make test-wheel` runs it.

    python tests/wheel/check.py names     # imports every public name; those of an extra may say that it is missing
    python tests/wheel/check.py readme    # imports every public name, and runs the README's blocks unchanged

The README's models are those of a local server, which finds no penalty and that everything else is met.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # at the end, so that `rubric_integrations` is the installed one

from tests.openai_server import Call, OpenAIServer, Reply  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")
README_PORT = 8000  # of the `--api-base` in the README's shell block
ANSWER = "[[ ## reasoning ## ]]\nIt says so.\n\n[[ ## answer ## ]]\nIt was 8.4%.\n\n[[ ## completed ## ]]"


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def import_public_names(missing_extras_are_faults: bool) -> None:
    package = importlib.import_module("rubric_integrations")
    assert not Path(str(package.__file__)).is_relative_to(ROOT / "rubric_integrations"), "this is not the wheel"
    modules = pkgutil.walk_packages(package.__path__, "rubric_integrations.")
    packages = [module.name for module in modules if module.ispkg and "._" not in module.name]
    imported, missing = 0, list[str]()
    for module in map(importlib.import_module, ["rubric_integrations", *packages]):
        for name in getattr(module, "__all__", ()):
            try:
                getattr(module, name)
                imported += 1
            except ModuleNotFoundError as error:
                if missing_extras_are_faults or "pip install" not in str(error):
                    raise
                missing.append(f"{module.__name__}.{name}")
    assert importlib.util.find_spec("rubric_integrations_judge"), "the wheel lacks the judge plugin of verifiers"
    library = importlib.import_module("rubric_integrations.library")
    assert all(library.load(name).cases for name in library.names()), "the wheel lacks the ready-made rubrics"
    assert library.measured_judges("coverage"), "the wheel lacks the figures of the recorded judges"
    print(f"{imported} public names imported; of extras that are not installed: {', '.join(missing) or 'none'}")


def script(call: Call) -> Reply:
    """Answer as a judge if there is a criterion, and as a DSPy program otherwise."""
    if not call.criterion:
        return Reply(text=ANSWER)
    return Reply("UNMET" if "gross" in call.criterion else "MET")


def run_readme() -> None:
    Path("rubric.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    Path("answer.txt").write_text("It was 8.4%.\n", encoding="utf-8")
    Path("answers.jsonl").write_text(json.dumps({"response": "It was 8.4%."}) + "\n", encoding="utf-8")
    for line in next(block for block in blocks("") if "rubric-integrations" in block).splitlines():
        print("$", line, flush=True)
        command, *arguments = shlex.split(line, comments=True)
        subprocess.run([Path(sys.executable).with_name(command), *arguments], check=True)
    for number, block in enumerate(blocks("python"), start=1):
        print(f"Python block {number}", flush=True)
        exec(compile(block, f"README.md, block {number}", "exec"), {"__name__": "readme"})


def main() -> None:
    with_readme = sys.argv[1:] == ["readme"]
    logging.disable(logging.INFO)  # GEPA logs each of its iterations
    os.chdir(tempfile.mkdtemp(prefix="check-wheel-"))
    with OpenAIServer(script, README_PORT) as server:
        os.environ |= {
            "COLUMNS": "120",
            "DSPY_CACHEDIR": str(Path("cache").absolute()),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_API_BASE": server.url,
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": server.url,
        }
        import_public_names(missing_extras_are_faults=with_readme)
        if with_readme:
            run_readme()
            print(f"The README's blocks ran, with {len(server.calls)} calls of models.")


if __name__ == "__main__":
    main()
