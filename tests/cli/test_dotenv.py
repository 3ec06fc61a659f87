"""The command line reads no `.env`, which may belong to another project, or come with files of somebody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from rubric_integrations.cli import main
sys.argv = ["rubric-integrations", "doctor"]
try:
    main()
except SystemExit:
    pass
import litellm, os
print("mode:", os.environ.get("LITELLM_MODE"), "key:", os.environ.get("OPENAI_API_KEY"))
"""


def test_litellm_reads_no_env_file_for_the_command_line(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=from-a-file\n")
    variables = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "LITELLM_MODE")}
    variables["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", CODE]  # with `-c`, LiteLLM looks for the file from the working directory
    run = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "mode: PRODUCTION key: None"
