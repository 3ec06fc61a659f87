"""`skills/` and `AGENTS.md`: what coding agents read. The commands of the skill are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.pages import check_examples, example_parts

ROOT = Path(__file__).resolve().parents[1]
SKILL = ROOT / "skills/rubric-integrations/SKILL.md"
TEXT = SKILL.read_text(encoding="utf-8")
# What the model answers, and the labels of a person. A reader of the skill has their own.
SETUP = """
<!-- setup
import json, re
def model_answers(system, user):
    words = {"refund of $40": "We refund your $40", "at fault": "you ordered the wrong size"}
    requirement, text = next((pair for pair in words.items() if pair[0] in user.rsplit("## kind ##")[-1]))
    verdict = "MET" if text in user.partition("## kind ##")[0] else "UNMET"
    return json.dumps({"explanation": f"It has {text!r}, or has not.", "verdict": verdict})
lines = [f"a{row},{name},{verdict},random" for row, verdicts in ((1, ("MET", "UNMET")), (2, ("MET", "MET")))
         for name, verdict in zip(("amount", "blame"), verdicts)]
open("labels.csv", "w").write("\\n".join(["id,criterion,verdict,sampled", *lines, ""]))
-->
"""


def test_skill_has_the_metadata_of_the_agent_skills_format() -> None:
    _, metadata, body = TEXT.split("---\n", 2)
    fields = yaml.safe_load(metadata)
    assert set(fields) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert fields["name"] == SKILL.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert 0 < len(fields["name"]) <= 64
    assert 0 < len(fields["description"]) <= 1024
    assert 0 < len(fields["compatibility"]) <= 500
    assert body.lstrip().startswith("# ")
    # An agent reads it as a whole.
    assert len(TEXT.splitlines()) < 500
    assert "<!--" not in TEXT


def test_skill_runs_each_command_that_it_names_with_an_output() -> None:
    run = [
        shlex.split(line)[1]
        for part in example_parts(SKILL)
        if part.kind == "sh"
        for line in part.text.replace("\\\n", " ").splitlines()
    ]
    assert run == [
        "library", "validate", "test", "test", "preview", "grade", "show", "label", "agree", "grade", "compare"
    ]  # fmt: skip
    blocks = re.findall(r"```sh\n.*?```", TEXT, re.DOTALL)
    assert sum(block.count("rubric-integrations ") for block in blocks) == len(run)
    # A command in the text would not be run.
    text = re.sub(r"```\w+.*?```", "", TEXT, flags=re.DOTALL)
    assert re.findall(r"`rubric-integrations [a-z]+", text) == []


@pytest.mark.guides
def test_commands_of_the_skill_print_what_it_shows_in_an_empty_folder(tmp_path: Path) -> None:
    page = tmp_path / "SKILL.md"
    page.write_text(TEXT.replace("\n## 1.", f"{SETUP}\n## 1.", 1), encoding="utf-8")
    folder = tmp_path / "work"
    folder.mkdir()
    check_examples(page, folder)


def test_page_for_agents_points_to_the_pages_with_the_rules_instead_of_repeating_them() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert {"CONTRIBUTING.md", "docs/architecture.md", "tests/README.md"} <= set(targets)
    assert len(text.split()) < 200
