"""The command line reads no `.env`, which may belong to another project, or come with files of somebody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# LiteLLM reads the file first of all: the import may fail after that, before it takes seconds.
CODE = """
import os, sys
from rubric_integrations.cli import main
sys.argv = ["rubric-integrations", "--version"]
try:
    main()
except SystemExit:
    pass
sys.modules["litellm.types"] = None
try:
    import litellm
except ImportError:
    pass
print("key:", os.environ.get("OPENAI_API_KEY"))
"""


@pytest.mark.parametrize(("mode", "key"), [(None, "None"), ("DEV", "from-a-file")])
def test_litellm_reads_no_env_file_for_the_command_line_unless_the_user_wants_it(
    tmp_path: Path, mode: str | None, key: str
) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=from-a-file\n")
    variables = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "LITELLM_MODE")}
    variables["PYTHONPATH"] = str(Path(__file__).parents[2])
    if mode:
        variables["LITELLM_MODE"] = mode
    command = [sys.executable, "-c", CODE]  # with `-c`, LiteLLM looks for the file from the working directory
    run = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == f"key: {key}"
