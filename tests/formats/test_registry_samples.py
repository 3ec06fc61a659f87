"""The samples of rubric formats in ../shared: each is validated, graded and converted, or refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.formats import load_eval_cases
from rubric_integrations.submission.files import read_responses
from rubric_integrations.testing import ScriptedJudge
from tests.cli.commands import run
from tests.conftest import SHARED

FOLDER = SHARED / "data/rubric_formats"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="../shared/data/rubric_formats does not exist")

ANSWERS = {
    "rewardkit.toml": (["MET", 4, 75, "A source for some figures", "no"], 0.84375),
    "verifiers.toml": (["MET", "some paths"], 2.5 / 3),
    "verifiers.json": (["UNMET", "every path"], 1 / 3),
    "gdpval_rubric.json": (["MET", "MET", "UNMET"], 1.0),
    "healthbench_professional.jsonl": (["MET", "MET"], 0.0),
    "adk.evalset.json": (["MET", "UNMET"], 0.5),
}
REFUSED = {
    "apex_v1.json": "APEX-v1", "gandalf.json": "gandalf-the-grader", "mlflow_guidelines.json": "MLflow",
    "openrubrics.jsonl": "OpenRubrics", "prbench.json": "PRBench", "profbench.jsonl": "ProfBench",
    "rubrichub.jsonl": "RubricHub", "swe_atlas.json": "SWE-Atlas", "vertex_rows.jsonl": "Vertex AI",
    "vertex_rubrics.json": "Vertex AI", "rewardkit_reward.toml": "rewardkit",
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_sample_is_validated_graded_and_equal_after_conversion(name: str, tmp_path: Path) -> None:
    answers, score = ANSWERS[name]
    assert "valid: " in run("validate", FOLDER / name).stdout
    rubric = Rubric.from_file(FOLDER / name)
    judge = ScriptedJudge({c.requirement: answer for c, answer in zip(rubric.criteria, answers, strict=True)})
    # The score of Reward Kit's sample was computed by harbor-rewardkit 0.2.3: see ../shared/facts/formats.md.
    report = rubric.grade_sync("The margin is 8.4 percent.", PerCriterionGrader(judge))
    assert report.score == pytest.approx(score)
    native = tmp_path / "native.yaml"
    assert run("convert", FOLDER / name, "--to", "native", "--output", native).exit_code == 0
    assert Rubric.from_file(native) == rubric
    rubric_format = {"gdpval_rubric.json": "gdpval", "rewardkit.toml": "rewardkit"}.get(name)
    if rubric_format is not None:
        back = tmp_path / f"back{Path(name).suffix}"
        written = run("convert", native, "--to", rubric_format, "--output", back)
        assert (written.exit_code, written.stderr) == (0, "")
        assert Rubric.from_file(back) == rubric


def test_sample_with_two_metrics_is_two_cases_of_which_one_is_converted() -> None:
    path = FOLDER / "adk_test_config.json"
    assert "2 cases, 3 criteria" in run("validate", path).stdout
    with pytest.warns(UserWarning, match="`tool_trajectory_avg_score` is another metric"):
        cases = list(load_eval_cases(path))
    assert [(case.id.split("_")[2], case.rubric.pass_mark) for case in cases] == [("final", 0.8), ("tool", 1.0)]
    for case in cases:
        written = run("convert", path, "--case", case.id, "--to", "native")
        assert "lost: `tool_trajectory_avg_score`" in written.stderr
        assert Rubric.from_yaml(written.stdout) == case.rubric


@pytest.mark.parametrize("name", REFUSED)
def test_sample_of_another_format_is_refused_by_its_name(name: str) -> None:
    for command in (("validate", FOLDER / name), ("convert", FOLDER / name, "--to", "native")):
        result = run(*command)
        assert result.exit_code in (1, 2)
        assert REFUSED[name] in result.stderr


@pytest.mark.parametrize(("name", "score"), [("healthbench_professional.jsonl", 1.0), ("researchrubrics.jsonl", 1.0)])
def test_sample_of_rows_is_graded_by_its_own_criteria(name: str, score: float) -> None:
    judge = ScriptedJudge(lambda question: "UNMET" if question.criterion.is_penalty else "MET")
    [graded] = grade_many(read_responses(FOLDER / name), None, PerCriterionGrader(judge), progress=False)
    assert graded.report
    assert graded.report.score == score
