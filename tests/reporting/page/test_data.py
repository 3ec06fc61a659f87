"""The data of the report page: every row of a run is there, also where several have one id, in blocks of texts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import pytest

from rubric_integrations.reporting import report_page
from rubric_integrations.reporting.page import data
from rubric_integrations.runs import RunFile
from tests.reporting.page.runs import FIRST, compare, own_rubrics, run_of


def unpack(packed: str) -> dict[str, Any]:
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def data_of(*runs: RunFile) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the index of a page and its blocks."""
    return data_of_page(report_page(runs))


def data_of_page(page: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    (index,) = re.findall(r'<script type="text/plain" id="data">(.*)</script>', page)
    return unpack(index), [
        unpack(block) for block in re.findall(r'<script type="text/plain" class="block">(.*)</script>', page)
    ]


def test_rows_with_an_equal_id_are_all_shown_and_matched_in_their_order() -> None:
    first = run_of("first", "right=MET", "right=UNMET", "right=MET error=MET")
    second = run_of("second", "right=UNMET", "right=UNMET")
    first, second = (run._replace(rows=tuple(row._replace(id="a") for row in run.rows)) for run in (first, second))
    index, (block,) = data_of(first, second)
    assert [(row["id"], row.get("copy"), row["at"]) for row in index["rows"]] == [
        ("a", None, [0, 0]), ("a", 2, [0, 1]), ("a", 3, [0, 2])
    ]  # fmt: skip
    rows = block["rows"]
    # The texts are those of the last run that has the row, and the first one has its own where they differ.
    assert [row["response"] for row in rows] == ["right=UNMET", "right=UNMET", "right=MET error=MET"]
    assert [row["grades"][0].get("own") for row in rows] == [{"response": "right=MET"}, None, None]
    assert [grade and grade["answers"][0][2] for grade in rows[0]["grades"]] == ["MET", "UNMET"]
    assert [grade and grade["answers"][0][2] for grade in rows[1]["grades"]] == ["UNMET", "UNMET"]
    assert rows[2]["grades"][1] is None
    comparison = compare(first, second)
    assert comparison
    assert (comparison.figures.inputs, comparison.flips) == (2, 1)


def test_rows_of_one_rubric_have_a_column_for_each_criterion() -> None:
    index, _ = data_of(FIRST)
    assert (index["kind"], index["columns"]) == (
        "criteria",
        [["right", "", 3, True], ["error", "", -2, False], ["tone", "", 1, False]],
    )
    cells = index["rows"][1]["grades"][0]["cells"]
    assert [index["answers"][cell] for cell in cells] == [
        ["answered", "UNMET", 0.0], ["answered", "MET", 0.0], ["answered", "x", 0.0]
    ]  # fmt: skip


def test_rows_with_their_own_rubrics_have_a_column_for_each_tag_or_none() -> None:
    index, (block,) = data_of(own_rubrics("own", 3, "MET", "UNMET"))
    assert (index["kind"], index["columns"]) == ("tags", [["facts", "", None, False], ["style", "", None, False]])
    assert [row["grades"][0]["cells"] for row in index["rows"]] == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    assert [criterion[1] for criterion in block["criteria"]] == [
        f"Says {n}.{place}" for n in range(3) for place in (1, 2)
    ]
    run = own_rubrics("own", 3, "MET", "UNMET")
    untagged = run._replace(rows=[row._replace(tags={}, criterion_tags=()) for row in run.rows])
    index, _ = data_of(untagged)
    assert (index["kind"], index["columns"]) == ("tags", [])
    assert [row["grades"][0]["counts"] for row in index["rows"]] == [[1, 0, 1, 0, 0, 0, 0]] * 3
    assert "share no criteria and no tags" in report_page([untagged])


def test_long_run_is_split_into_blocks_that_each_have_their_criteria(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_BLOCK", 300)
    index, blocks = data_of(own_rubrics("own", 7, "MET", "UNMET"))
    assert len(blocks) > 2
    for number, row in enumerate(index["rows"]):
        block, place = row["at"]
        texts = blocks[block]["rows"][place]
        assert texts["response"] == f"It is {number}."
        names = [blocks[block]["criteria"][answer[0]][1] for answer in texts["grades"][0]["answers"]]
        assert names == [f"Says {number}.1", f"Says {number}.2"]


def test_partial_grade_is_marked_and_others_are_not() -> None:
    run = run_of("run", "right=MET")
    [row] = run.rows
    assert row.report
    partial = run._replace(rows=(row._replace(report=row.report.model_copy(update={"partial": True})),))
    for shown, mark in [(run, None), (partial, True)]:
        _, (block,) = data_of(shown)
        assert block["rows"][0]["grades"][0].get("partial") is mark


def test_criterion_that_does_not_apply_has_a_state_of_its_own() -> None:
    run = run_of("run", "right=MET")
    [row] = run.rows
    assert row.report
    verdict = {"verdict": "NOT_APPLICABLE", "value": None, "not_applicable": True, "passed": True}
    first, *others = row.report.criteria
    report = row.report.model_copy(update={"report": (first.model_copy(update=verdict), *others)})
    run = run._replace(rows=(row._replace(report=report),))
    index, (block,) = data_of(run)
    assert index["answers"][index["rows"][0]["grades"][0]["cells"][0]] == ["inapplicable", "NOT_APPLICABLE", None]
    assert block["rows"][0]["grades"][0]["answers"][0][1:3] == ["inapplicable", "NOT_APPLICABLE"]
