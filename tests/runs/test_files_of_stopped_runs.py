"""A run that was stopped does not look whole: not in its summary, not in its file, and to no gate."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rubric_integrations import PerCriterionGrader, grade_many
from rubric_integrations.pytest_plugin import RubricGate
from rubric_integrations.reporting import report_page
from rubric_integrations.reporting.grades import JUnitReport
from rubric_integrations.reporting.shown_run import UnknownNameError, show_criterion, show_row, show_run
from rubric_integrations.runs import Graded, Run, read_run, rescore, write_parquet
from rubric_integrations.runs.files import IncompleteRunWarning, RunFile, expected_rows, run_line
from rubric_integrations.scoring.judgment import UNANSWERED_CALL
from rubric_integrations.trust import (
    agreement,
    calibrate,
    certify,
    choose_for_labels,
    comparability,
    compare_runs,
    find_disagreements,
    gate,
    panel_report,
    read_labels,
    reliability,
    reward_report,
)
from tests.cli.commands import run as run_command
from tests.runs.scripted import SMALL_RUBRIC, InstantJudge, texts


def run_of(submissions: Any, **limits: Any) -> Run:
    return grade_many(submissions, SMALL_RUBRIC, PerCriterionGrader(InstantJudge()), **limits)


def written(run: Run, path: Path) -> Path:
    path.write_text("".join(map(run_line, run)))
    return path


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    return written(run_of(texts(40), max_calls=60), tmp_path / "stopped.jsonl")


def printed(run: RunFile) -> str:
    console = Console(record=True, width=200)
    for part in show_run(run, 0):
        console.print(part)
    return console.export_text()


def test_stopped_run_is_told_by_its_summary_its_file_show_and_page(stopped: Path) -> None:
    run = run_of(texts(40), max_calls=60)
    assert len(list(run)) == 20
    assert (run.summary.rows, run.summary.done) == (40, "20 of 40")
    with pytest.warns(IncompleteRunWarning, match="20 of 40 rows: the run was stopped or is still in progress"):
        read = read_run(stopped)
    assert (read.expected, read.missing) == (40, 20)
    assert [("run" in json.loads(line)) for line in stopped.read_text().splitlines()] == [True] + [False] * 19
    assert "40 submissions" in printed(read)
    assert "20 submissions not graded" in printed(read)
    page = "".join(report_page([read]))
    assert "20 are missing" in page
    assert "20 <small>of 40" in page


def test_whole_run_is_whole_and_a_number_that_is_unknown_is_not_guessed(tmp_path: Path) -> None:
    whole = read_run(written(run_of(texts(9)), tmp_path / "whole.jsonl"))
    assert (whole.expected, whole.missing) == (9, 0)
    unknown = read_run(written(run_of(iter(texts(9)), max_calls=6), tmp_path / "unknown.jsonl"))
    assert (unknown.expected, unknown.missing) == (None, 0)


@pytest.mark.filterwarnings("ignore::rubric_integrations.runs.files.IncompleteRunWarning")
def test_gate_on_the_file_of_a_stopped_run_is_inconclusive(stopped: Path, tmp_path: Path) -> None:
    whole = written(run_of(texts(40)), tmp_path / "whole.jsonl")
    assert gate(whole, 0.5).decision == "pass"
    results = list(run_of(texts(40), max_calls=60))
    for run in (stopped, read_run(stopped), results, RunFile.of("run", results)):
        result = gate(run, 0.5)
        assert result.decision == "inconclusive"
        assert any("20 of 40 rows" in warning for warning in result.warnings)
    assert gate(whole, 0.5, baseline=stopped, anyway=True).decision == "inconclusive"
    with pytest.warns(IncompleteRunWarning):
        compare_runs(whole, stopped)


def test_first_line_has_the_number_in_whatever_order_results_arrive(tmp_path: Path) -> None:
    results: list[Graded] = list(run_of(texts(50), ordered=False))
    in_order = sorted(results, key=lambda graded: int(graded.row.id))
    for order in (results, in_order):
        assert order[0].run is not None
        assert RunFile.of("run", order).expected == 50


def test_concatenated_and_cut_files_are_expected_to_have_the_rows_of_all_runs(stopped: Path, tmp_path: Path) -> None:
    other = written(run_of(texts(30)), tmp_path / "other.jsonl")
    both, cut = tmp_path / "both.jsonl", tmp_path / "cut.jsonl"
    both.write_text(other.read_text() + stopped.read_text())
    cut.write_text("".join(other.read_text().splitlines(keepends=True)[:10]))
    with pytest.warns(IncompleteRunWarning):
        assert (read_run(both).expected, read_run(cut).missing) == (70, 20)
    # A file of an earlier version says nothing, and what is appended to it does not change that.
    old = tmp_path / "old.jsonl"
    lines = [{name: value for name, value in json.loads(line).items() if name != "run"} for line in cut.open()]
    old.write_text("".join(json.dumps(line) + "\n" for line in lines) + stopped.read_text())
    assert read_run(old).expected is None
    assert expected_rows([{"rows": "many"}]) is None


def test_unanswered_request_is_read_back_and_no_spend_has_a_field_that_earlier_versions_refuse(tmp_path: Path) -> None:
    (graded,) = run_of(["right"])
    assert graded.report
    spend = graded.report.spend + UNANSWERED_CALL
    path = tmp_path / "run.jsonl"
    path.write_text(run_line(graded._replace(report=graded.report.model_copy(update={"spend": spend}))))
    (row,) = read_run(path).rows
    assert row.report
    assert row.report.spend == spend
    assert '"is_lower_bound"' not in path.read_text()
    assert "at least $" in printed(read_run(path))


def test_resumed_run_tells_what_all_starts_have_spent(tmp_path: Path) -> None:
    ledger = tmp_path / "run.sqlite"
    judge = InstantJudge()
    for calls in (60, 120):
        run = grade_many(texts(40), SMALL_RUBRIC, PerCriterionGrader(judge), ledger=ledger, max_calls=60)
        assert len(list(run)) == calls / 3
        assert (run.summary.spend.calls, run.summary.spend_of_all_starts.calls) == (60, calls)


LABELLED = [{"id": str(number), "response": text, "labels": {"c1": "MET"}} for number, text in enumerate(texts(40))]
READERS: dict[str, Callable[[Any], object]] = {
    "agreement": lambda run: agreement(run, []),
    "calibrate": lambda run: calibrate(run, []),
    "certify": lambda run: certify(run, []),
    "choose_for_labels": lambda run: choose_for_labels(run, 2),
    "comparability": comparability,
    "compare_runs": lambda run: compare_runs(run, run),
    "find_disagreements": lambda run: find_disagreements(run, []),
    "gate": lambda run: gate(run, 0.5),
    "panel_report": panel_report,
    "read_labels": lambda run: read_labels(run, sampled="random"),
    "reliability": lambda run: reliability(run, []),
    "reward_report": reward_report,
}


@pytest.mark.parametrize("kind", ["path", "file", "results"])
@pytest.mark.parametrize("name", READERS)
def test_each_function_that_reads_a_stopped_run_warns(name: str, kind: str, tmp_path: Path) -> None:
    results = list(run_of(LABELLED, max_calls=60))
    path = tmp_path / "stopped.jsonl"
    path.write_text("".join(map(run_line, results)))
    run = {"path": path, "file": RunFile.of("run", results), "results": results}[kind]
    # Most of them need labels or steps, and raise after the warning.
    with pytest.warns(IncompleteRunWarning, match="20 of 40 rows"), suppress(ValueError):
        READERS[name](run)


def test_show_says_that_rows_are_missing_for_a_criterion_and_for_an_id_that_it_does_not_have(stopped: Path) -> None:
    with pytest.warns(IncompleteRunWarning):
        run = read_run(stopped)
    assert any("20 of 40 rows" in str(part) for part in show_criterion(run, "c1"))
    with pytest.raises(UnknownNameError, match=r"no row has the id '33'.*20 of 40 rows"):
        list(show_row(run, "33"))


def test_report_says_on_stderr_that_rows_are_missing(stopped: Path, tmp_path: Path) -> None:
    whole = written(run_of(texts(40)), tmp_path / "whole.jsonl")
    for runs in ([stopped], [whole, stopped], [whole, stopped, written(run_of(texts(40)), tmp_path / "third.jsonl")]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = run_command("report", *runs, "--output", tmp_path / "page.html")
        assert (result.exit_code, "stopped: 20 of 40 rows" in result.stderr) == (0, True), result.output


def test_ledger_of_a_stopped_run_is_rescored_as_such_until_the_run_is_resumed(tmp_path: Path) -> None:
    ledger, grader = tmp_path / "run.sqlite", PerCriterionGrader(InstantJudge())
    rows = [*texts(39), {"id": "empty", "response": ""}]
    list(grade_many(rows, SMALL_RUBRIC, grader, ledger=ledger, max_calls=60))
    with pytest.warns(IncompleteRunWarning, match=r"run\.sqlite: \d+ of 40 rows"):
        results = list(rescore(ledger, SMALL_RUBRIC))
    assert RunFile.of("run", results).expected == 40
    rescored = tmp_path / "rescored.jsonl"
    (tmp_path / "rubric.yaml").write_text(SMALL_RUBRIC.to_yaml())
    result = run_command("rescore", ledger, "--rubric", tmp_path / "rubric.yaml", "--out", rescored)
    assert "of 40 rows: the run was stopped" in result.stderr
    with pytest.warns(IncompleteRunWarning):
        read_run(rescored)
    # The row that has nothing to grade is not in the ledger, and is not missing.
    list(grade_many(rows, SMALL_RUBRIC, grader, ledger=ledger))
    results = list(rescore(ledger, SMALL_RUBRIC))
    assert (len(results), RunFile.of("run", results).expected) == (39, None)


def test_ledger_of_a_generator_and_of_an_abandoned_run(tmp_path: Path) -> None:
    ledger, grader = tmp_path / "run.sqlite", PerCriterionGrader(InstantJudge())
    list(grade_many(iter(texts(40)), SMALL_RUBRIC, grader, ledger=ledger, max_calls=60))
    assert list(rescore(ledger, SMALL_RUBRIC))  # the number is unknown
    next(iter(grade_many(texts(400), SMALL_RUBRIC, grader, ledger=ledger, max_concurrency=1)))
    with pytest.warns(IncompleteRunWarning, match="of 400 rows"):
        list(rescore(ledger, SMALL_RUBRIC))


def test_parquet_file_and_data_frame_of_a_stopped_run(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "grades.parquet"
    with pytest.warns(IncompleteRunWarning, match="20 of 40 rows"):
        write_parquet(run_of(texts(40), max_calls=60), path)
    assert parquet.read_metadata(path).metadata[b"submissions"] == b"40"
    for submissions, limits, submitted in ((texts(40), {}, b"40"), (iter(texts(40)), {"max_calls": 60}, None)):
        write_parquet(run_of(submissions, **limits), path, overwrite=True)
        assert parquet.read_metadata(path).metadata.get(b"submissions") == submitted
    pytest.importorskip("pandas")
    with pytest.warns(IncompleteRunWarning, match="20 of 40 rows"):
        assert len(run_of(texts(40), max_calls=60).to_dataframe()) == 20


def test_junit_file_of_a_stopped_run_has_an_error() -> None:
    def junit_of(run: Run) -> JUnitReport:
        junit = JUnitReport("suite")
        for graded in run:
            junit.add(graded)
        return junit

    stopped = junit_of(run_of(texts(40), max_calls=60))
    assert 'tests="20" failures="0" errors="0"' in stopped.to_xml(1.0, decided_early=True)
    text = stopped.to_xml(1.0)
    assert 'tests="21" failures="0" errors="1"' in text
    assert "20 of 40 rows: the run was stopped" in text
    for run in (run_of(texts(40)), run_of(iter(texts(40)), max_calls=60)):
        assert 'errors="0"' in junit_of(run).to_xml(1.0)


@pytest.mark.filterwarnings("ignore::rubric_integrations.runs.files.IncompleteRunWarning")
def test_gate_in_pytest_fails_on_a_stopped_run(stopped: Path) -> None:
    for run in (stopped, list(run_of(texts(40), max_calls=60))):
        with pytest.raises(AssertionError, match="20 of 40 rows"):
            RubricGate({})(run, min_score=0.5)
