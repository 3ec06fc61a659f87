"""`rubric-integrations show`: a run in a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations import PerCriterionGrader, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.reporting import report_page
from rubric_integrations.runs.files import read_run, run_line
from rubric_integrations.scoring import Judgment
from rubric_integrations.submission import Submission
from tests.cli.commands import run
from tests.reporting.page.runs import RUBRIC, EchoJudge

ROWS = [
    {"id": "best", "query": "Is it?", "response": "right=MET error=UNMET tone=plain"},
    {"id": "worst", "response": "right=UNMET error=MET tone=x\n::error::[red]\x1b[2J"},
    {"id": "middle", "response": "right=MET error=MET tone=plain"},
    {"id": "lost", "response": "right=fails error=UNMET tone=x"},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "run.jsonl"
    graded = grade_many(ROWS, RUBRIC, PerCriterionGrader(EchoJudge()))
    file.write_text("".join(map(run_line, graded)))
    return file


def test_figures_criteria_and_the_lowest_rows_with_their_reasons(path: Path) -> None:
    lines = run("show", path, "--worst", 2).stdout.splitlines()
    assert lines[0] == "run run: 4 submissions by small, judged by EchoJudge"
    assert lines[1].startswith("mean score 0.500 [")
    assert lines[1].endswith("; 1 of 3 passed (33%), pass mark 0.8")
    rows = [line for line in lines if line.startswith("row ")]
    assert [line.split(":")[0] for line in rows] == ["row worst", "row middle"]
    assert "Not passed: right is required; 0.000 is below the pass mark 0.8." in rows[0]
    assert "- right +3: UNMET. because UNMET" in lines
    assert not any(line.lstrip().startswith("::error::") for line in lines)
    assert "\x1b" not in "".join(lines)


def test_rows_without_a_grade_come_last_and_say_why(path: Path) -> None:
    lines = run("show", path, "--worst", 4).stdout.splitlines()
    last = [line for line in lines if line.startswith("row ")][-1]
    assert last.startswith("row lost: not graded. Not graded: `right` was not judged: ")


def test_criterion_shows_the_rows_that_miss_it(path: Path) -> None:
    lines = run("show", path, "--criterion", "error").stdout.splitlines()
    assert [line for line in lines if line.startswith("row ")] == [
        "row worst: MET, score 0.000. because MET",
        "row middle: MET, score 0.500. because MET",
    ]
    refused = run("show", path, "--criterion", "eror")
    assert refused.exit_code == 2
    assert "no row has a criterion 'eror': the criteria are 'right', 'error', 'tone'" in refused.stderr


def test_rows_of_a_criterion_with_equal_answers_are_sorted_by_score_and_counted(tmp_path: Path) -> None:
    answers = ["right=MET error=MET tone=plain", "right=UNMET error=MET tone=x", "right=UNMET error=MET tone=plain"]
    file = tmp_path / "run.jsonl"
    file.write_text(
        "".join(map(run_line, grade_many([*answers, "error=UNMET"], RUBRIC, PerCriterionGrader(EchoJudge()))))
    )
    lines = run("show", file, "--criterion", "error", "--worst", 2).stdout.splitlines()
    heading = (
        "3 rows where it is not as the rubric wants, 2 of them shown: the worst answers first, and of equal answers"
    )
    assert f"{heading} the lowest scores" in lines
    assert [line.split(".")[0] for line in lines if line.startswith("row ")] == [
        "row 2: MET, score 0", "row 3: MET, score 0"
    ]  # fmt: skip
    assert "1 row where it is not as the rubric wants" in run("show", file, "--criterion", "tone").stdout


def test_run_of_an_agent_is_shown_as_turns_and_no_line_begins_with_its_text(tmp_path: Path) -> None:
    hostile = "\n::error::[red]\x1b[2J"
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": f"look{hostile}", "arguments": json.dumps({"q": hostile})},
    }
    messages = [
        {"role": "user", "content": f"right=MET error=UNMET tone=x{hostile}"},
        {"role": "assistant", "content": f"**I look**{hostile}", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "x" * 500 + hostile},
        {"role": "assistant", "content": "right=MET error=UNMET tone=plain"},
    ]
    file = tmp_path / "run.jsonl"
    for respond, title in (("trajectory", "response: 3 steps"), ("last", "query: 2 turns")):
        submission = Submission.model_validate({"response": messages, "respond": respond})
        file.write_text("".join(map(run_line, grade_many([submission], RUBRIC, PerCriterionGrader(EchoJudge())))))
        for options in ((), ("--row", "1"), ("--criterion", "right")):
            result = run("show", file, *options)
            assert result.exit_code == 0, result.output
            assert not any(line.lstrip().startswith("::error::") for line in result.stdout.splitlines())
            assert "\x1b" not in result.stdout
            assert '"role":' not in result.stdout
        result = run("show", file, "--row", "1").stdout
        assert title in result
        assert "calls look" in result
        assert "x" * 200 not in result.replace("\n", "").replace(" ", "")
    assert "steps: 3 steps" in result


def test_many_steps_are_shown_by_the_first_the_last_and_the_cited_ones(tmp_path: Path) -> None:
    class Citing(EchoJudge):
        async def judge(self, question: Question) -> Judgment:
            return (await super().judge(question)).model_copy(update={"evidence": (20,)})

    steps = [{"role": "assistant", "text": f"part {number} of many"} for number in range(1, 42)]
    row = {"id": "1", "response": ROWS[0]["response"], "trajectory": {"steps": steps}}
    file = tmp_path / "run.jsonl"
    for count, gaps in ((40, []), (41, ["[steps 4 to 19]", "[steps 21 to 36]"])):
        graded = grade_many([{**row, "trajectory": {"steps": steps[:count]}}], RUBRIC, PerCriterionGrader(Citing()))
        file.write_text("".join(map(run_line, graded)))
        result = run("show", file, "--row", "1").stdout
        assert [line for line in result.splitlines() if line.startswith("[steps")] == gaps
        assert result.count("of many") == (count if count == 40 else 9)
        assert "20. assistant, cited: right, error, tone" in result


def test_row_is_shown_in_full_down_to_the_sum(path: Path) -> None:
    result = run("show", path, "--row", "middle").stdout
    assert result.splitlines()[-1] == "2 of 4 = 0.500"
    assert "deducted" in result
    assert "no row has the id 'x': ids are such as 'best'" in run("show", path, "--row", "x").stderr
    assert run("show", path, "--row", "x", "--criterion", "tone").exit_code == 2


def test_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"response": "x"}\n')
    assert run("show", file).exit_code == 2


def test_models_without_a_version_and_those_that_replies_name_are_told(tmp_path: Path) -> None:
    class Alias(EchoJudge):
        async def judge(self, question: Question) -> Judgment:
            judgment = await super().judge(question)
            return judgment.model_copy(update={"model": f"m-{question.criterion.name}"})

        def fingerprint(self) -> str:
            return json.dumps(["openai/gpt-5", "", {}, "", "", "prompts"])

    file = tmp_path / "run.jsonl"
    file.write_text("".join(map(run_line, grade_many(ROWS[:1], RUBRIC, PerCriterionGrader(Alias())))))
    lines = run("show", file).stdout.splitlines()
    assert lines[1].startswith("the judge openai/gpt-5 names no version: its provider may replace the model behind it")
    assert lines[2] == "the replies name 3 models: m-right, m-error, m-tone: not one model judged the run"
    page = report_page([read_run(file)])
    assert "openai/gpt-5 names no version" in page
    assert "the replies name 3 models" in page
