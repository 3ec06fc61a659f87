"""Runs of judgments that another program recorded: `read_judgments` and the command `import`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Rubric
from rubric_integrations.judges import LMJudge
from rubric_integrations.reporting.page import report_page
from rubric_integrations.runs import JudgmentsError, read_judgments, read_run
from rubric_integrations.runs.files import import_notes, run_line
from rubric_integrations.trust import agreement, align, calibrate, compare_runs, panel_report, read_labels
from tests.cli.commands import run as run_command
from tests.conftest import SHARED

RUBRIC = Rubric.from_dict(
    [
        {"name": "end", "requirement": "The ending feels earned", "weight": 1},
        {"name": "grade", "requirement": "How good is it?", "weight": 1, "scale": {"min": 0, "max": 10}},
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": "a", "criterion": "end", "judge": "x", "reply": "Yes, it does.", "topic": "one"},
    {"id": "a", "criterion": "grade", "judge": "x", "reply": "Score: 8/10", "topic": "one"},
    {"id": "b", "criterion": "end", "judge": "x", "reply": "Content Blocked", "topic": "two"},
    {"id": "b", "criterion": "grade", "judge": "x", "verdict": 3, "reply": "It is 3, I think", "topic": "two"},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_run(path: Path, results: Any) -> Path:
    path.write_text("".join(map(run_line, results)), encoding="utf-8")
    return path


def label(row_id: str, verdict: str, criterion: str = "end", **fields: Any) -> dict[str, Any]:
    return {"id": row_id, "criterion": criterion, "verdict": verdict, "sampled": "random", "blind": True, **fields}


def test_judgments_of_samples_without_their_responses_are_of_one_group(tmp_path: Path) -> None:
    ids = ["a#1", "a#2", "t", "t#2", "u#3#1", "u#3#2", "b", "c#1", "#1", "#2"]
    rows = [{"id": row_id, "criterion": "end", "verdict": "MET"} for row_id in ids]
    run = read_judgments(write(tmp_path / "j.jsonl", rows), RUBRIC)
    assert [result.row.group for result in run] == ["a", "a", "t", "t", "u", "u", None, None, None, None]
    assert list(read_run(write_run(tmp_path / "run.jsonl", run)).row_groups())[:2] == ["a", "a"]


def test_recorded_replies_become_a_run_in_which_an_unread_one_is_a_failure(tmp_path: Path) -> None:
    run = read_judgments(write(tmp_path / "j.jsonl", ROWS), RUBRIC)
    assert [result.score for result in run] == [0.9, None]
    assert (run.judges, run.replies, run.unread, run.missing, run.without_text) == (("x",), 4, 1, 0, 2)
    assert run.unread_replies[0][:3] == ("b", "end", "x")
    assert "Content Blocked" in run.unread_replies[0].problem
    assert "Content Blocked" in (run[1].judge_error or "")
    assert run[1].report is not None
    assert (run[1].report.criteria[1].value, run[1].report.criteria[1].reason) == (0.3, "It is 3, I think")
    row = read_run(write_run(tmp_path / "run.jsonl", run)).rows[0]
    assert row.metadata == {"topic": "one"}
    assert row.scoring is not None
    assert row.scoring["grader"]["judges"] == [{"imported": "x", "file": "j.jsonl"}]


def test_csv_and_json_lines_give_the_same_run(tmp_path: Path) -> None:
    lines = ["id,criterion,model,raw,verdict", 'a,END,x,"Yes, it ""does"".",', "a,How good is it?,x,,8"]
    (tmp_path / "j.csv").write_text("\n".join(lines), encoding="utf-8")
    (result,) = read_judgments(tmp_path / "j.csv", RUBRIC)
    assert (result.score, result.report and result.report.criteria[0].reason) == (0.9, 'Yes, it "does".')


def test_responses_give_the_texts_their_labels_and_their_columns(tmp_path: Path) -> None:
    texts = [{"id": name, "response": f"text {name}", "labels": {"end": "MET"}, "plot": 1} for name in ("c", "b", "a")]
    run = read_judgments(write(tmp_path / "j.jsonl", ROWS), RUBRIC, responses=write(tmp_path / "r.jsonl", texts))
    assert [result.row.id for result in run] == ["b", "a"]
    assert (run.without_text, run.without_judgment) == (0, 1)
    assert run[1].row.submission is not None
    assert run[1].row.submission.response == "text a"
    path = write_run(tmp_path / "run.jsonl", run)
    assert agreement(path, read_labels(path, sampled="random")).criteria["end"].n == 1
    assert "no texts" not in report_page([read_run(path)])


def test_several_judges_are_a_panel_and_one_can_be_chosen(tmp_path: Path) -> None:
    rows = [
        {"id": str(n), "criterion": "end", "judge": judge, "reply": "Yes." if n % step else "No."}
        for n in range(12)
        for judge, step in (("x", 2), ("y", 3), ("z", 4))
    ]
    path, rubric = write(tmp_path / "j.jsonl", rows), Rubric.from_dict([RUBRIC.to_dict()["criteria"][0]])
    panel = read_judgments(path, rubric)
    assert panel.judges == ("x", "y", "z")
    assert panel[0].report is not None
    assert [vote.judge for vote in panel[0].report.criteria[0].votes] == ["x", "y", "z"]
    labels = write(tmp_path / "l.jsonl", [label(str(n), "MET" if n % 2 else "UNMET") for n in range(12)])
    run = read_run(write_run(tmp_path / "run.jsonl", panel))
    report = panel_report(run, read_labels(labels, run))
    assert report.judges["x"].accuracy.value == 1.0
    assert read_judgments(path, rubric, judge="y").judges == ("y",)
    assert read_judgments(path, rubric, judge=["z", "x"]).judges == ("x", "z")


def test_judgment_that_the_file_lacks_is_a_failure_and_counted(tmp_path: Path) -> None:
    run = read_judgments(write(tmp_path / "j.jsonl", ROWS[:1]), RUBRIC)
    assert (run.missing, run.unread, run[0].score) == (1, 0, None)
    assert "no reply is recorded" in (run[0].judge_error or "")


CHECKED = Rubric.from_dict(
    [
        RUBRIC.to_dict()["criteria"][0],
        {"name": "says", "requirement": "Says 42", "weight": 1, "check": {"contains": ["42"]}},
        {"name": "like", "requirement": "Is 42", "weight": 1, "check": {"metric": {"type": "accuracy"}}},
        {"name": "code", "requirement": "Its code is short", "weight": 1, "applies_when": {"contains": ["code"]}},
    ]
)
TEXTS = [
    {"id": "a", "response": "42", "reference": "42"},
    {"id": "b", "response": "It is 42 by code.", "reference": "42"},
    {"id": "c", "response": "code", "reference": "42"},
]


@pytest.mark.parametrize("judges", [["x"], ["x", "y"]])
def test_checks_are_computed_from_the_responses_and_their_lines_are_ignored(tmp_path: Path, judges: list[str]) -> None:
    rows = [{"id": name, "criterion": "end", "judge": judge, "reply": "Yes."} for name in "abc" for judge in judges]
    rows += [{"id": "b", "criterion": "code", "judge": judge, "reply": "No."} for judge in judges]
    lines = [{"id": name, "criterion": "like", "judge": "code", "verdict": 0.3} for name in "abc"]
    lines += [{"id": "a", "criterion": "says", "judge": "code", "reply": "a score"}] * 2
    path, texts = write(tmp_path / "j.jsonl", [*lines, *rows]), write(tmp_path / "r.jsonl", TEXTS)
    run = read_judgments(path, CHECKED, responses=texts)
    assert [result.score for result in run] == [1.0, 0.5, None]
    assert run[0].report is not None
    assert [(entry.value, entry.computed) for entry in run[0].report.criteria[1:3]] == [(1.0, True), (1.0, True)]
    assert run[0].report.criteria[3].not_applicable
    # Only the row `c`, which the condition applies to, lacks a judgment.
    assert (run.judges, run.ignored, run.unread, run.missing) == (tuple(judges), 5, 0, len(judges))
    assert "5 judgments of checks are ignored" in run.summary()
    notes = import_notes(read_run(write_run(tmp_path / "run.jsonl", run)).rows)
    assert notes == [f"imported from j.jsonl: 0 of {4 * len(judges)} replies could not be read"]


def test_checks_without_responses_are_failures_that_say_what_to_pass(tmp_path: Path) -> None:
    path = write(tmp_path / "j.jsonl", [{"id": "a", "criterion": "end", "reply": "Yes."}])
    run = read_judgments(path, Rubric(CHECKED.criteria[:2]))
    assert (run[0].score, run.unread, run.missing) == (None, 0, 0)
    assert "pass the file of the responses as `responses` (`--responses`)" in (run[0].judge_error or "")
    assert "no text, which checks need: pass the responses" in run.summary()


def test_rubric_of_checks_alone_needs_no_judgment(tmp_path: Path) -> None:
    path = write(tmp_path / "j.jsonl", [{"id": "a", "criterion": "says", "judge": "x", "verdict": False}])
    run = read_judgments(path, Rubric(CHECKED.criteria[1:2]), responses=write(tmp_path / "r.jsonl", TEXTS))
    assert ([result.score for result in run], run.judges, run.without_judgment) == ([1.0], ("x",), 2)


def test_run_without_texts_is_marked_and_measured_by_ids(tmp_path: Path) -> None:
    rows = [{"id": str(n), "criterion": "end", "reply": "Yes." if n % 3 else "No."} for n in range(60)]
    rubric = Rubric.from_dict([RUBRIC.to_dict()["criteria"][0]])
    rows.append({"id": "60", "criterion": "end", "reply": "Content Blocked"})
    path = write_run(tmp_path / "run.jsonl", read_judgments(write(tmp_path / "j.jsonl", rows), rubric, judge="x"))
    run = read_run(path)
    file = write(tmp_path / "l.jsonl", [label(str(n), "MET" if n % 3 else "UNMET") for n in range(61)])
    with pytest.warns(UserWarning, match="have no text"):
        labels = read_labels(file, run)
    agreed = agreement(run, labels)
    note = "imported from j.jsonl: 1 of 61 replies could not be read; no texts"
    assert (agreed.criteria["end"].n, agreed.criteria["end"].kappa.value, agreed.criteria["end"].failed) == (60, 1.0, 1)
    assert note in agreed.summary()
    assert any(note in warning for warning in calibrate(run, labels).warnings)
    page = report_page([run], labels=labels)
    assert note in page
    assert "judged by <bdi>x</bdi>" in page
    compared = compare_runs(run, run)
    assert any(note in warning for warning in compared.warnings)
    with pytest.raises(ValueError, match="import them with `--responses`"):
        compare_runs(run, run, labels=labels)
    with pytest.raises(ValueError, match="has no text of the row"):
        align(LMJudge("openai/gpt-5-mini"), labels)
    assert "raters would label texts that they cannot read" in run_command("label", path, "--n", "5").stderr


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "has no judgments"),
        ([{"criterion": "end", "reply": "Yes."}], "line 1 has no `id`"),
        ([{"id": "a", "reply": "Yes."}], "line 1 has no `criterion`: use one of ['end', 'grade']"),
        ([{"id": "a", "criterion": "end"}], "line 1 has neither a `reply` nor a `verdict`"),
        ([{"id": "a", "criterion": "start", "reply": "Yes."}], "line 1 names the criterion 'start'"),
        ([ROWS[0], ROWS[0]], "line 2 judges the row 'a' on `end` by 'x', as line 1 does"),
        ([["a"]], "line 1 is list, not an object"),
    ],
)
def test_file_that_is_wrong_is_refused_in_one_line(tmp_path: Path, rows: list[Any], problem: str) -> None:
    path = write(tmp_path / "j.jsonl", rows)
    with pytest.raises(JudgmentsError) as caught:
        read_judgments(path, RUBRIC)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_row_judge_and_column_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "j.jsonl", ROWS)
    with pytest.raises(JudgmentsError, match="the responses have no row 'a', and 1 more ids"):
        read_judgments(path, RUBRIC, responses=write(tmp_path / "r.jsonl", [{"id": "c", "response": "text"}]))
    with pytest.raises(JudgmentsError, match=r"no judge 'y': it has \['x'\]"):
        read_judgments(path, RUBRIC, judge="y")
    (tmp_path / "j.csv").write_text("id,criterion,text\na,end,Yes", encoding="utf-8")
    with pytest.raises(JudgmentsError, match="neither a column `reply` nor `verdict`"):
        read_judgments(tmp_path / "j.csv", RUBRIC)
    with pytest.raises(JudgmentsError, match="cannot be read"):
        read_judgments(tmp_path / "none.jsonl", RUBRIC)


def test_hostile_replies_are_unread_and_never_end_the_run(tmp_path: Path) -> None:
    replies = ["\ud83d", "x" * 10_000_000, 'It says {"verdict": "MET"} and no more.', "", "[[1]] [[0]]", "{" * 5_000]
    rows = [{"id": str(n), "criterion": "end", "reply": reply} for n, reply in enumerate(replies)]
    rows.append({"id": "half", "criterion": "end", "reply": "Yes, \ud83d it is."})
    rubric = Rubric.from_dict([RUBRIC.to_dict()["criteria"][0]])
    path = write(tmp_path / "j.jsonl", rows)
    (tmp_path / "rubric.json").write_text(rubric.to_json(), encoding="utf-8")
    out = tmp_path / "run.jsonl"
    result = run_command("import", path, "--rubric", tmp_path / "rubric.json", "--out", out, "--show-unread")
    assert result.exit_code == 0
    assert "6 of 7 replies could not be read" in " ".join(result.stdout.split())
    assert len(result.stderr.splitlines()) == 6
    assert [row.report and row.report.score for row in read_run(out).rows] == [None] * 6 + [1.0]
    again = run_command("import", path, "--rubric", tmp_path / "rubric.json", "--out", out)
    assert (again.exit_code, len(again.stderr.splitlines())) == (2, 1)


@pytest.mark.statistics
def test_import_of_ttcw_gives_the_figures_of_other_code(tmp_path: Path) -> None:
    folder = SHARED / "data" / "ttcw"
    if not folder.exists():
        pytest.skip(f"{folder} does not exist")
    items = [json.loads(line) for line in (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    criteria = json.loads((folder / "rubrics.json").read_text(encoding="utf-8"))["ttcw"]["criteria"]
    rubric = Rubric.from_dict([{"name": c["id"], "requirement": c["requirement"], "weight": 1} for c in criteria])
    with gzip.open(folder / "replies.jsonl.gz", "rt", encoding="utf-8") as lines:
        (tmp_path / "j.jsonl").write_text(lines.read(), encoding="utf-8")
    labels = [
        label(item["id"], "MET" if 2 * sum(of.values()) > len(of) else "UNMET", name)
        for item in items
        for name, of in item["human_labels"].items()
    ]
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["judges"]
    for judge in ("gpt4", "gemini-pro"):
        results = read_judgments(tmp_path / "j.jsonl", rubric, judge=judge)
        run = read_run(write_run(tmp_path / "run.jsonl", results))
        with pytest.warns(UserWarning, match="have no text"):
            agreed = agreement(run, read_labels(write(tmp_path / "l.jsonl", labels), rubric, run=run))
        own = expected[judge]
        assert (results.unread, sum(row.n for row in agreed.criteria.values())) == (own["unread"], own["n"])
        assert agreed.micro_accuracy == pytest.approx(own["accuracy"], abs=1e-6)
        assert agreed.pooled_kappa.value == pytest.approx(own["kappa"], abs=1e-6)
        for name, row in agreed.criteria.items():
            of_test = own["by_test"][name]
            assert row.accuracy.value == pytest.approx(of_test["accuracy"], abs=1e-6)
            assert row.kappa.value == pytest.approx(of_test["kappa"], abs=1e-6)
