"""The pytest plugin, in pytest runs of its own: it gates on a run, and costs other projects nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations._util.lazy import EXTRAS
from rubric_integrations.pytest_plugin import RubricGate
from rubric_integrations.runs import GradedRow
from rubric_integrations.trust import fewest_to_pass
from tests.trust.runs import binary_rubric, run_of

pytest_plugins = ["pytester"]

PLUGIN = "rubric_integrations.pytest_plugin"
ROOT = Path(__file__).resolve().parents[1]
RUBRIC = binary_rubric(2)
# Loads numpy and scipy before an inner run does: pytester unloads what such a run has imported.
assert fewest_to_pass(0.8) == 13


def write_run(path: Path, rows: Sequence[GradedRow]) -> None:
    lines = [
        {"id": row.id, "submission": row.submission.model_dump(exclude_none=True)} | row.report.model_dump(mode="json")
        for row in rows
        if row.submission and row.report
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_good_and_bad(folder: Path, count: int = 30) -> None:
    write_run(folder / "good.jsonl", run_of(RUBRIC, [["MET", "MET"]] * count))
    write_run(folder / "bad.jsonl", run_of(RUBRIC, [["UNMET", "MET"]] * count))


def run_tests(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile("import pytest\n" + source)
    return pytester.runpytest_inprocess("--disable-plugin-autoload", "-p", PLUGIN, *options)


def test_entry_point_is_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"rubric_integrations": PLUGIN}


def test_plugin_imports_nothing_of_the_library_before_a_gate_is_called() -> None:
    code = (
        f"import sys, {PLUGIN};"
        "ours = {name for name in sys.modules if name.startswith('rubric_integrations')};"
        "print(sorted(ours | ({'numpy', 'scipy', 'pydantic', 'dspy', 'langsmith'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    light = ["rubric_integrations", "rubric_integrations._util", "rubric_integrations._util.lazy", PLUGIN]
    assert done.stdout.strip() == repr(light)


def test_gate_passes_a_good_run_and_fails_a_bad_one_with_the_figures(pytester: pytest.Pytester) -> None:
    write_good_and_bad(pytester.path)
    result = run_tests(
        pytester,
        """
def test_good(rubric_gate):
    assert rubric_gate("good.jsonl", min_score=0.8).decision == "pass"
def test_bad(rubric_gate):
    rubric_gate("bad.jsonl", min_score=0.8)
""",
        "--junitxml=junit.xml",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            '*rubric_gate("bad.jsonl", min_score=0.8)',
            "E *a pass at 0.8 needs at least 13 submissions (alpha 0.05)",
            "E *rubric gate: fail: `min_score=0.8` `alpha=0.05`: the mean score is 0.500 [[]*, *] (90% *, n = 30)*",
            "E *  1: score 0.500; not met: c0",
            "E *  and 25 more rows",
        ]
    )
    # The place of the failure is the line of the test, not of the plugin.
    assert "pytest_plugin.py" not in result.stdout.str()
    assert (
        'name="rubric_gate" value="pass: `min_score=0.8` `alpha=0.05`: the mean score is 1.000'
        in (pytester.path / "junit.xml").read_text()
    )


def test_inconclusive_run_fails_unless_it_is_allowed_and_says_how_many_more(pytester: pytest.Pytester) -> None:
    write_run(pytester.path / "near.jsonl", run_of(RUBRIC, [["MET", "MET"]] * 9 + [["UNMET", "MET"]]))
    result = run_tests(
        pytester,
        """
def test_refused(rubric_gate):
    rubric_gate("near.jsonl", min_score=0.9)
def test_allowed(rubric_gate):
    assert rubric_gate("near.jsonl", min_score=0.9, allow_inconclusive=True).more > 20
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *a pass at 0.9 needs at least 27 submissions*",
            "E *inconclusive: *: the mean score is 0.950 *; about * more submissions*",
        ]
    )


def test_closest_marker_sets_what_a_call_leaves_out(pytester: pytest.Pytester) -> None:
    write_good_and_bad(pytester.path, count=15)
    write_run(pytester.path / "before.jsonl", run_of(RUBRIC, [["MET", "MET"]] * 13 + [["UNMET", "MET"]] * 2))
    result = run_tests(
        pytester,
        """
pytestmark = pytest.mark.rubric_gate(min_score=0.8)
def test_of_the_module(rubric_gate):
    assert rubric_gate("good.jsonl").min_score == 0.8
@pytest.mark.rubric_gate(min_score=0.7, alpha=0.01)
def test_closer(rubric_gate):
    result = rubric_gate("good.jsonl", allow_inconclusive=True)
    assert (result.min_score, result.decision) == (0.7, "inconclusive")
    assert rubric_gate("good.jsonl", min_score=0.5, alpha=0.05).decision == "pass"
@pytest.mark.rubric_gate(margin=0.5)
def test_baseline(rubric_gate):
    rubric_gate("good.jsonl", baseline="before.jsonl", min_score=0.75)
    assert rubric_gate("before.jsonl", baseline="good.jsonl", min_score=0.7, cluster="id").change == "not worse"
    with pytest.raises(AssertionError, match=r"unclear: the change from .*; `margin=` 0.23 is the smallest"):
        rubric_gate("before.jsonl", baseline="good.jsonl", min_score=0.7, margin=0.01)
    assert rubric_gate("good.jsonl", min_score=0.8, floor=0.5).decision == "pass"
""",
        "--strict-markers",
    )
    result.assert_outcomes(passed=3)


def test_other_gates_are_required_and_recorded(pytester: pytest.Pytester) -> None:
    write_good_and_bad(pytester.path)
    result = run_tests(
        pytester,
        """
from rubric_integrations.trust import compare_runs, gate_comparison, gate_rows
def test_rows(rubric_gate):
    rubric_gate.require(*gate_rows("good.jsonl", min_pass_rate=0.9, min_coverage=1))
    rubric_gate.require(*gate_rows("bad.jsonl", min_pass_rate=0.9, min_coverage=1))
def test_comparison(rubric_gate):
    rubric_gate.require(gate_comparison(compare_runs("bad.jsonl", "good.jsonl", margin=0.02)))
    rubric_gate.require(gate_comparison(compare_runs("good.jsonl", "bad.jsonl")))
def test_inconclusive(rubric_gate):
    from rubric_integrations.trust import gate
    result = gate("bad.jsonl", 0.49)
    assert result.decision == "inconclusive"
    rubric_gate.require(result, allow_inconclusive=True)
    rubric_gate.require(result)
""",
        "--junitxml=junit.xml",
    )
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            '*gate_rows("bad.jsonl", min_pass_rate=0.9, min_coverage=1))',
            "E *rubric gate: fail: `min_pass_rate=0.9`: 0 of 30 rows passed",
            "E *  1: score 0.500; not met: c0",
            "E *rubric gate: fail: worse: the second run is worse than the first run*",
            "E *rubric gate: inconclusive: `min_score=0.49`*",
        ]
    )
    assert "pytest_plugin.py" not in result.stdout.str()
    assert (pytester.path / "junit.xml").read_text().count('name="rubric_gate"') == 8


def test_misuse_fails_instead_of_passing_without_a_gate(pytester: pytest.Pytester) -> None:
    write_good_and_bad(pytester.path)
    result = run_tests(
        pytester,
        """
@pytest.mark.rubric_gate(min_score=0.8)
def test_without_the_argument(): pass
@pytest.mark.rubric_gate(min_scor=0.8)
def test_misspelt(rubric_gate): pass
def test_without_a_threshold(rubric_gate): rubric_gate("good.jsonl")
""",
    )
    result.assert_outcomes(errors=2, failed=1)
    result.stdout.fnmatch_lines_random(
        [
            "*test_without_the_argument is marked with `rubric_gate`, and has no argument `rubric_gate`*",
            "*the marker `rubric_gate` cannot have 'min_scor'*",
            "*ValueError: `rubric_gate` has no threshold*",
        ]
    )


def test_example_in_the_docs_gates_and_fails_with_the_message_that_the_page_shows() -> None:
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    block = next(text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "rubric_gate" in text)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/ci.md", "exec"), names)
    gate = RubricGate({"min_score": 0.8, "alpha": 0.05})
    names["test_release"](gate)
    names["answers"][9:] = ["It is 41."]
    with pytest.raises(AssertionError) as error:
        names["test_release"](gate)
    assert f"AssertionError: {error.value}\n" in page
    assert [result.decision for result in gate.results] == ["pass", "inconclusive"]


def test_project_without_scipy_fails_only_where_a_gate_is_called(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_good_and_bad(pytester.path)
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(EXTRAS, "agreement", ("scipy",))
    result = run_tests(
        pytester,
        """
def test_other(): pass
def test_gate(rubric_gate): rubric_gate("good.jsonl", min_score=0.8)
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*ImportError: intervals need scipy: pip install*"])


CASES = """
from rubric_integrations import PerCriterionGrader
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.testing import ScriptedJudge
"""


def test_cases_of_a_rubric_pass_fail_with_the_differences_or_raise_an_error(pytester: pytest.Pytester) -> None:
    (pytester.path / "rubric.yaml").write_text("- {name: margin, requirement: States the margin}\n")
    (pytester.path / "rubric.cases.yaml").write_text(
        "- {name: states it, response: It was 8.4%., expect: {verdicts: {margin: MET}}}\n"
    )
    result = run_tests(
        pytester,
        CASES
        + """
def test_right(rubric_cases):
    assert rubric_cases("rubric.yaml", PerCriterionGrader(ScriptedJudge("MET"))).is_as_expected
def test_wrong(rubric_cases):
    rubric_cases("rubric.yaml", PerCriterionGrader(ScriptedJudge(("UNMET", "It does not."))), repeat=2)
def test_lost(rubric_cases):
    failing = ScriptedJudge(JudgeFailure("parse", "no JSON"))
    rubric_cases("rubric.yaml", grader=PerCriterionGrader(failing, max_retries=0))
def test_lost_later(rubric_cases):
    answers = iter(["MET", JudgeFailure("parse", "no JSON")])
    later = ScriptedJudge(lambda _question: next(answers))
    rubric_cases("rubric.yaml", PerCriterionGrader(later, max_retries=0), repeat=2)
def test_none(rubric_cases):
    rubric_cases([{"requirement": "Is kind"}], PerCriterionGrader("offline"))
""",
        "--junitxml=junit.xml",
    )
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: rubric cases: 1 case: 0 of 1 expectation as expected, 1 different.",
            "E*states it: margin: expected MET, obtained UNMET: It does not.",
            "E*margin: flips 0.000 (n = 1)",
            "*RuntimeError: rubric cases without an answer, which is no fault of the rubric: 1 case: *",
            "*RuntimeError: rubric cases without an answer, which is no fault of the rubric: 1 case: 1 of 1 *",
            "E*1 result without an answer.",
            "*ValueError: the rubric has no test cases*",
        ]
    )
    assert "1 case: 1 of 1 expectation as expected." in (pytester.path / "junit.xml").read_text()
