"""Rows that bring their own rubric, labels and metadata, through `grade_many`, the ledger and `rescore`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, grade_many, runs
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.submission import ResponsesError, read_responses

OFFLINE = PerCriterionGrader("offline")


def says(number: int, weight: float = 1, name: str | None = None) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {"weight": weight, "requirement": f"States {number}", "check": {"number": number}, **named}


def scores(rows: Any, rubric: Any = None, **settings: Any) -> list[float | None]:
    return [graded.score for graded in grade_many(rows, rubric, OFFLINE, **settings)]


def test_each_row_is_graded_by_its_own_rubric() -> None:
    rows = [{"response": "It is 1.", "rubric": [says(1)]}, {"response": "It is 1.", "rubrics": [says(2), says(1)]}]
    results = list(grade_many(rows, None, OFFLINE))
    assert [graded.score for graded in results] == [1.0, 0.5]
    assert [len(graded.rubric or ()) for graded in results] == [1, 2]


def test_shared_rubric_and_that_of_the_row_are_joined_and_a_function_decides_alone() -> None:
    rows = [{"response": "1", "rubric": [says(1, name="own")]}, {"response": "1"}]
    shared = [says(2, weight=3, name="shared")]
    assert scores(rows, shared) == [0.25, 0.0]
    received: list[Any] = []

    def rubric_of(row: Any) -> Any:
        received.append(row)
        return shared

    assert scores(rows, rubric_of) == [0.0, 0.0]
    assert received == rows


def test_rows_without_a_rubric_of_their_own_need_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_function: object) -> None:
        raise AssertionError

    monkeypatch.setattr(runs.run, "run_in_thread", refuse)
    assert scores(["1", "2"], [says(1)]) == [1.0, 0.0]
    assert scores([{"response": "1", "rubric": [says(1)]}]) == [None]


FORMS: dict[str, Any] = {
    "list": [says(1)],
    "Rubric": Rubric.from_dict([says(1)]),
    "JSON": json.dumps([says(1)]),
    "YAML": "criteria:\n- requirement: States 1\n  check: {number: 1}\n",
    "Python": str([{**says(1), "requirement": "States 'one' as \"1\""}]),
    "name": "one",
}


@pytest.mark.parametrize("form", FORMS)
def test_rubric_of_a_row_has_any_form(form: str) -> None:
    assert scores([{"response": "1", "rubric": FORMS[form]}], library={"one": [says(1)]}) == [1.0]


def test_library_is_a_file_with_rubrics_by_name(tmp_path: Path) -> None:
    file = tmp_path / "library.yaml"
    file.write_text(json.dumps({"one": [says(1)], "two": [says(2)]}))
    rows = [{"response": "1", "rubric": name} for name in ("one", "two")]
    assert scores(rows, library=file) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("rubric", "words"),
    [
        (None, "row 1 has no `rubric`: give each row its own, or pass one that all rows share"),
        ("tone", "row 1 has the `rubric` 'tone', which names none"),
        ([], "row 1 has no valid `rubric`: "),
        ([{"requirment": "Says 42"}], "requirment"),
        ([says(2, name="shared")], "shared"),
        (42, "row 1 has no valid `rubric`|`rubric` must be"),
        (json.loads("[" * 400 + "]" * 400), "more than 100 levels deep"),
    ],
)
def test_row_without_a_valid_rubric_has_an_error_and_stops_no_other(rubric: Any, words: str) -> None:
    shared = None if rubric is None else [says(1, name="shared")]
    rows = [{"response": "1", "rubric": rubric}, {"response": "1", "rubric": [says(1, name="own")]}]
    run = grade_many(rows, shared, OFFLINE)
    first, second = run
    assert first.report is None
    assert first.row.error is not None
    assert any(word in first.row.error for word in words.split("|")), first.row.error
    assert "\n" not in first.row.error
    assert (second.score, run.summary.ungradable) == (1.0, 1)


def test_function_that_fails_is_the_error_of_its_row() -> None:
    def rubric_of(row: Mapping[str, Any]) -> Any:
        return row["no such key"]

    (graded,) = grade_many([{"response": "1"}], rubric_of, OFFLINE)
    assert graded.row.error == "row 1 has no rubric: the function of the row failed with KeyError: 'no such key'"


def test_labels_and_metadata_are_carried_to_the_line_of_the_row() -> None:
    row = {
        "id": "a", "response": "1", "rubric": {"name": "sums", "criteria": [says(1)]},
        "labels": {"c1": "MET"}, "metadata": {"source": "x"},
    }  # fmt: skip
    (graded,) = grade_many([row], None, OFFLINE)
    line = graded.to_dict()
    assert (line["labels"], line["metadata"], line["rubric"]) == ({"c1": "MET"}, {"source": "x"}, "sums")
    (plain,) = grade_many(["1"], [says(1)], OFFLINE)
    assert not {"labels", "metadata"} & plain.to_dict().keys()


def test_labels_in_the_rubric_of_a_row_are_its_labels() -> None:
    rubric = [{"criterion": f"States {i}", "points": 5, "tags": [], "criteria_met": i == 1} for i in range(2)]
    (graded,) = grade_many([{"response": "1", "rubrics": rubric}], None, OFFLINE)
    assert graded.row.labels == {"c1": "UNMET", "c2": "MET"}
    broken = [{**rubric[0], "criteria_met": "perhaps"}]
    (graded,) = grade_many([{"response": "1", "rubrics": broken}], None, OFFLINE)
    assert "criteria_met" in str(graded.row.error)


def test_column_of_another_meaning_is_no_mapping_of_labels() -> None:
    (graded,) = grade_many([{"response": "1", "labels": "positive", "metadata": 7}], [says(1)], OFFLINE)
    assert (graded.score, graded.row.labels, graded.row.metadata) == (1.0, None, None)


def test_ledger_notes_what_each_row_brought_and_rescore_joins_it_with_the_new_rubric(tmp_path: Path) -> None:
    own = [{"name": "own", "weight": 1, "requirement": "States the cost"}]
    rows = [{"id": "a", "response": "It states the cost.", "rubric": own}, {"id": "b", "response": "Nothing."}]
    shared = [{"name": "shared", "weight": 1, "requirement": "Says nothing"}]
    with Ledger(tmp_path / "run.sqlite") as ledger:
        before = list(grade_many(rows, shared, OFFLINE, ledger=ledger))
        same = list(rescore(ledger, shared))
        assert [result.report.score for result in same] == [graded.score for graded in before]
        assert [[row.name for row in result.report.criteria] for result in same] == [["shared", "own"], ["shared"]]
        heavier = list(rescore(ledger, [{**shared[0], "weight": 3}]))
        assert [result.missing for result in heavier] == [0, 0]
        assert [row.weight for row in heavier[0].report.criteria] == [3, 1]
        by_function = list(rescore(ledger, lambda row: json.loads(row.rubric) if row.rubric else shared))
        assert [[row.name for row in result.report.criteria] for result in by_function] == [["own"], ["shared"]]
        with pytest.raises(ValueError, match="row b has no `rubric`"):
            list(rescore(ledger))


def test_row_that_no_longer_brings_a_rubric_is_rescored_without_it(tmp_path: Path) -> None:
    with Ledger(tmp_path / "run.sqlite") as ledger:
        for row in ({"response": "1", "rubric": [says(2, name="own")]}, {"response": "1"}):
            list(grade_many([row], [says(1)], OFFLINE, ledger=ledger))
        assert [result.score for result in rescore(ledger, [says(1)])] == [1.0]


def test_rubric_file_is_read_from_the_folder_of_the_rows_only(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    (folder / "rubrics").mkdir(parents=True)
    (tmp_path / "outside.json").write_text(json.dumps([says(1)]))
    (folder / "rubrics" / "one.json").write_text(json.dumps([says(1)]))
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / ".env").write_text("OPENAI_API_KEY=secret")
    (folder / "visible.yaml").symlink_to(".env")
    names = ["rubrics/one.json", "../outside.json", str(tmp_path / "outside.json"), "link.json"]
    names += ["loop.json", ".env", "visible.yaml"]
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps({"response": "1", "rubric": name}) + "\n" for name in names))
    results = list(grade_many(read_responses(file), None, OFFLINE))
    assert [graded.score for graded in results] == [1.0, *[None] * 6]
    assert all("names none" in str(graded.row.error) for graded in results[1:])
    assert not any("secret" in str(graded.row.error) for graded in results)


def test_rows_of_a_table_bring_rubrics_labels_and_metadata(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    cell = json.dumps([says(1)]).replace('"', '""')
    file.write_text(f'response,Rubric,labels,metadata\n1,"{cell}","{{""c1"": ""MET""}}","{{""a"": 1}}"\n')
    (row,) = read_responses(file)
    assert (row.labels, row.metadata) == ({"c1": "MET"}, {"a": 1})
    assert scores([row]) == [1.0]
    named = tmp_path / "named.csv"
    named.write_text(file.read_text().replace("Rubric", "points"))
    (row,) = read_responses(named, rubric_column="points")
    assert scores([row]) == [1.0]


@pytest.mark.sizes
def test_parquet_rows_are_streamed_with_their_rubrics(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    rows: list[dict[str, Any]] = [
        {
            "id": f"r{i}",
            "response": str(i),
            "topic": "sums",
            "vector": [0.5],
            "rubric": [{"requirement": f"States {i % 2}", "check": {"number": i % 2}}],
        }
        for i in range(500)
    ]
    # In a table, every criterion has the fields of all of them.
    rows[0]["rubric"] = [{**rows[0]["rubric"][0], "name": "first"}]
    file = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    assert next(read_responses(file)).id == "r0"
    results = list(grade_many(read_responses(file), None, OFFLINE))
    assert [graded.row.id for graded in results] == [row["id"] for row in rows]
    assert sum(graded.score or 0 for graded in results) == 2
    assert results[0].report is not None
    assert results[0].report.criteria[0].name == "first"
    assert results[0].row.metadata == {"topic": "sums"}


def test_file_that_is_no_parquet_is_refused_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    file = tmp_path / "rows.parquet"
    file.write_text("response\n1\n")
    with pytest.raises(ResponsesError, match=r"rows\.parquet: is no Parquet file") as error:
        list(read_responses(file))
    assert "\n" not in str(error.value)


def test_rows_of_a_data_frame_bring_arrays() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    numpy = pytest.importorskip("numpy")
    frame = pandas.DataFrame({"response": ["1"], "rubric": [numpy.array([says(1)], dtype=object)]})
    assert scores(frame.to_dict("records")) == [1.0]
