"""Files of labels, and labels that the rows of a run bring."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, Option, Rubric, Submission
from rubric_integrations.runs import Graded, GradedRow
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.scoring.labels import judgment_digest, submission_digest
from rubric_integrations.submission import Row, Step, ToolCall, Trajectory
from rubric_integrations.trust import LabelsError, agreement, read_labels
from rubric_integrations.trust.labels import InvalidLabelsWarning
from tests.trust.runs import binary_rubric, report_of, run_of

RUBRIC = Rubric(
    [
        Criterion(name="right", requirement="Is right"),
        Criterion(requirement="Tone?", options=[Option(label="plain", value=1), Option(label="x", value=0)]),
    ]
)


def label_line(**fields: Any) -> str:
    defaults = {"criterion": "right", "requirement": "Is right", "verdict": "MET", "submission": {"response": "r"}}
    return json.dumps(defaults | fields)


def test_read_labels_finds_criteria_by_their_key(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    second = label_line(criterion="c2", requirement="Tone?", verdict="plain", reason="So.")
    path.write_text(f"{label_line()}\n\n{second}\n")
    submission = Submission(response="r")
    expected = [
        LabelledJudgment(submission=submission, criterion=RUBRIC.criteria[0], verdict="MET"),
        LabelledJudgment(submission=submission, criterion=RUBRIC.criteria[1], verdict="plain", reason="So."),
    ]
    assert read_labels(path, RUBRIC) == read_labels(str(path), RUBRIC) == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            label_line(criterion="other"),
            r":1: the rubric has no criterion 'other'; it has \['right', 'c2'\]",
        ),
        ('{"criterion": "right", "verdict": "MET"}', "it has no `submission` and no `response`"),
        ('{"criterion": "right", "submission": {"response": "r"}}', ":1: is no label: it has no `verdict`"),
        (label_line(requirement="Was right"), "`right` was 'Was right' when it was labelled, and is 'Is right'"),
        (label_line(verdict="maybe"), "is not a label for this rubric: .*is no verdict"),
        (label_line(submission={"response": " "}), "`response` is empty"),
        ("nope", ":1: is not JSON: .* name a file of labels"),
        ("[]", ":1: is list, not a label: write one object a line"),
        ("", "labels.jsonl: has no labels: it is empty"),
    ],
)
def test_read_labels_of_another_rubric_are_refused(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(LabelsError, match=words):
        read_labels(path, RUBRIC)


def test_label_with_the_digest_of_another_text_is_left_out_with_a_warning(tmp_path: Path) -> None:
    run = run_of(binary_rubric(), [["MET"]] * 3)
    later = [row._replace(submission=Submission(response=f"new {row.id}")) for row in run[:2]]
    moved = [*later, run[2]._replace(id="9")]
    path = tmp_path / "labels.jsonl"
    base = {"criterion": "c0", "verdict": "UNMET", "sampled": "random"}
    lines = [base | {"id": row.id, "digest": submission_digest(row.submission)} for row in run if row.submission]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    labels = read_labels(path, run)
    assert [label.submission.response for label in labels] == ["response 1", "response 2", "response 3"]
    assert agreement(run, labels).labels == 3
    with pytest.warns(UserWarning, match=r":1: 2 labels, of which this is the first, are about other texts") as caught:
        (label,) = read_labels(path, moved)
    assert len(caught) == 1
    assert label.submission.response == "response 3"
    with pytest.raises(LabelsError, match=r"3 labels.*name the run that was labelled"):
        read_labels(path, later)
    # The labels themselves do not count for other texts, and are counted.
    measured = agreement(later, labels)
    assert (measured.labels, measured.unmatched) == (0, 3)
    assert any(text.startswith("2 labels are about other texts than the rows") for text in measured.warnings)


def agent_run(count: int = 3) -> list[GradedRow]:
    """Make a run in which an agent ends each of its trajectories with the same words."""
    rows = run_of(binary_rubric(), [["MET"]] * count)
    return [
        row._replace(submission=Submission(response="Done.", query="Build it.", trajectory=steps_of(row.id)))
        for row in rows
    ]


def steps_of(name: str) -> Trajectory:
    return Trajectory(steps=(Step(role="assistant", calls=(ToolCall(name="bash", result=f"exit code {name}"),)),))


def digest_labels(path: Path, digests: Sequence[str], ids: Sequence[str | None]) -> Path:
    lines = [
        {"criterion": "c0", "verdict": verdict, "sampled": "random", "digest": digest, "id": row_id}
        for digest, row_id, verdict in zip(digests, ids, ["MET", "UNMET", "UNMET"][: len(digests)], strict=True)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("ids", ["123", [None] * 3, ["x"] * 3])
def test_labels_of_runs_that_end_with_equal_texts_belong_to_their_trajectory(tmp_path: Path, ids: Any) -> None:
    run = agent_run()
    digests = [submission_digest(row.submission) for row in run if row.submission]
    assert len(set(digests)) == 3
    labels = read_labels(digest_labels(tmp_path / "labels.jsonl", digests, ids), run)
    assert [label.submission for label in labels] == [row.submission for row in run]
    measured = agreement(run, labels)
    assert (measured.labels, measured.unmatched) == (3, 0)
    changed = [row._replace(submission=run[0].submission) for row in run]
    with pytest.warns(UserWarning, match="2 labels, of which this is the first, are about other texts"):
        assert len(read_labels(digest_labels(tmp_path / "labels.jsonl", digests, ids), changed)) == 1


# The digest of "Done." and "Build it." that earlier versions computed for each of these rows.
EARLIER_DIGEST = "9dda6397dce106d953d618c33286ae5b"


def test_labels_of_earlier_versions_are_read_and_found_by_their_id(tmp_path: Path) -> None:
    run, path = agent_run(), tmp_path / "labels.jsonl"
    labels = read_labels(digest_labels(path, [EARLIER_DIGEST] * 3, "123"), run)
    assert [label.submission for label in labels] == [row.submission for row in run]
    assert agreement(run, labels).labels == 3
    (label,) = read_labels(digest_labels(path, [EARLIER_DIGEST], [None]), run[:1])
    assert agreement(run[:1], [label]).labels == 1


def test_label_of_an_earlier_version_of_one_of_several_runs_needs_its_id(tmp_path: Path) -> None:
    path = digest_labels(tmp_path / "labels.jsonl", [EARLIER_DIGEST] * 3, [None] * 3)
    with pytest.raises(LabelsError, match="several rows of the run have its texts with different steps: add the `id`"):
        read_labels(path, agent_run())


def test_labels_of_trajectories_are_no_labels_of_one_judgment(tmp_path: Path) -> None:
    run = agent_run()
    criterion = binary_rubric().criteria[0]
    labels = [
        LabelledJudgment(submission=row.submission, criterion=criterion, verdict="MET", sampled="random")
        for row in run
        if row.submission
    ]
    measured = agreement(run, labels)
    assert (measured.labels, measured.unmatched) == (3, 0)
    without = labels[0].model_copy(update={"submission": Submission(response="Done.", query="Build it.")})
    assert agreement(run, [*labels, without]).unmatched == 1
    assert len({judgment_digest(label.submission, criterion) for label in labels}) == 3


def test_label_with_neither_text_nor_digest_counts_by_its_id_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("id,criterion,verdict\n1,c0,MET\n2,c0,MET\n")
    with pytest.warns(UserWarning, match=r":2: 2 labels, of which this is the first, have no text and no `digest`"):
        assert len(read_labels(path, run_of(binary_rubric(), [["MET"]] * 2))) == 2


def own_rubric_run() -> list[GradedRow]:
    """Make a run in which each row has another criterion of the same name."""
    rubrics = {name: Rubric([Criterion(name="c1", requirement=f"Says {name}")]) for name in ("a", "b")}
    return [GradedRow(name, Submission(response=name), report_of(own, ["MET"]), None) for name, own in rubrics.items()]


def test_read_labels_of_a_run_takes_the_criteria_and_the_submission_of_each_row(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps({"id": name, "criterion": "c1", "verdict": "MET"}) + "\n" for name in "ba"))
    labels = read_labels(path, own_rubric_run())
    assert [(label.criterion.requirement, label.submission.response) for label in labels] == [
        ("Says b", "b"),
        ("Says a", "a"),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"id": "z"}, ":1: is about the row 'z', which the run does not have: name the run that was labelled"),
        ({"response": "a"}, ":1: the run has 2 different criteria 'c1', and the label has no `id` of a row in it"),
        ({}, ":1: is no label: it has no `submission` and no `response`: add one, or the `id` of the row"),
        ({"id": "a", "requirement": "Says b"}, "`c1` was 'Says b' when it was labelled, and is 'Says a' in the row"),
        ({"id": "a", "criterion": "c2"}, r":1: the row 'a' of the run has no criterion 'c2'; it has \['c1'\]"),
    ],
)
def test_read_labels_that_do_not_belong_to_the_run_are_refused(
    tmp_path: Path, line: dict[str, str], words: str
) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(json.dumps({"criterion": "c1", "verdict": "MET"} | line) + "\n")
    with pytest.raises(LabelsError, match=words):
        read_labels(path, own_rubric_run())


def test_read_labels_of_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match="cannot be read: No such file"):
        read_labels(tmp_path / "missing.jsonl", RUBRIC)


def test_label_with_unusual_line_separators_is_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    fields = {"criterion": "right", "verdict": "MET", "submission": {"response": "a\u2028b\u0085c"}}
    path.write_text(json.dumps(fields, ensure_ascii=False) + "\n" + label_line()[:-9], encoding="utf-8")
    with pytest.warns(UserWarning, match="labels.jsonl:2: is cut off"):
        labels = read_labels(path, RUBRIC)
    assert [label.submission.response for label in labels] == ["a\u2028b\u0085c"]


def test_label_with_a_repeated_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(label_line()[:-1] + ', "verdict": "UNMET"}\n')
    with pytest.raises(LabelsError, match=":1: has the key 'verdict' twice in one object"):
        read_labels(path, RUBRIC)


CSV = "ID, Criterion ,verdict,RATER,reason,Sampled,judged,blind,Response,Query,Notes\n"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_labels_of_a_table_are_read_with_a_byte_order_mark_and_any_line_ends(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "labels.csv"
    table = CSV + '7,right, met ,Ana,"So, ""yes"".",random,UNMET,TRUE,"a\nb",q,x\n8,c2,plain,,,,,,r\n'
    if delimiter != ",":
        table = table.replace('"So, ', '"So ').replace(",", delimiter)
    path.write_bytes(b"\xef\xbb\xbf" + table.replace("\n", "\r\n").encode())
    first, second = read_labels(path, RUBRIC)
    assert (first.id, first.verdict, first.rater, first.sampled) == ("7", "MET", "Ana", "random")
    assert (first.judged, first.blind, first.submission.query) == ("UNMET", True, "q")
    assert (second.verdict, second.rater, second.sampled, second.blind) == ("plain", None, "chosen", False)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("id,verdict\n1,MET\n", "labels.csv: has no column `criterion`; its columns are"),
        ("criterion,verdict,Verdict\n", "the column 'Verdict' is there twice"),
        ("criterion,verdict,response\nright,MET,r,x\n", ":2: has 4 fields, but the header has 3"),
        ('criterion,verdict,response\nright,MET,"r\n', "labels.csv: line 2: .* close each quote"),
        ("criterion,verdict,response,sampled\nright,MET,r,often\n", ":2: is not a label for this rubric: `sampled`"),
        ("criterion,verdict,response\nright,,r\nc2,nan\n", ":3: is no label: it has no `submission` and no `response`"),
        ("criterion,verdict,response\nright,,r\n", "has no labels: none of its lines has a `verdict`"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*are skipped")
def test_table_that_has_no_labels_for_the_rubric_is_refused(tmp_path: Path, table: str, words: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(table)
    with pytest.raises(LabelsError, match=words):
        read_labels(path, RUBRIC)


def test_lines_without_a_verdict_are_skipped_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    lines = [label_line(), label_line(verdict=None), label_line(verdict=" "), label_line(verdict=math.nan)]
    path.write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="3 of 4 lines have no `verdict` and are skipped"):
        assert len(read_labels(path, RUBRIC)) == 1


def test_invalid_lines_are_left_out_with_a_list_of_them_and_strict_refuses_the_file(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    lines = [
        label_line(), "no JSON", label_line(verdict="99", rater="Ben\n::error::"), '{"note": 1}', "[]",
        label_line(criterion="other"), label_line(rater="Ben", verdict="UNMET"),
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(InvalidLabelsWarning) as caught:
        labels = read_labels(path, RUBRIC)
    assert [(label.rater, label.verdict) for label in labels] == [(None, "MET"), ("Ben", "UNMET")]
    first, *listed = str(caught[0].message).splitlines()
    assert "labels.jsonl: 5 of 7 labels cannot be used and are left out" in first
    assert [int(line.split("jsonl:")[1].split(":")[0]) for line in listed] == [2, 3, 4, 5, 6]
    assert "'99' is no verdict: use MET, UNMET or CANNOT_ASSESS" in listed[1]
    with pytest.raises(LabelsError, match="jsonl:2: is not JSON"):
        read_labels(path, RUBRIC, strict=True)
    path.write_text("\n".join(lines[1:-1]))
    with pytest.raises(LabelsError, match=r"jsonl:1: is not JSON: .*; 4 more are no labels either"):
        read_labels(path, RUBRIC)


def test_valid_files_are_read_in_the_same_way_with_strict_and_without_a_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(f"{label_line(verdict=' met. ')}\n\n{label_line(rater='Ben', note='x', verdict='CANNOT_ASSESS')}")
    assert read_labels(path, RUBRIC) == read_labels(path, RUBRIC, strict=True)
    assert not recwarn.list


def test_answer_that_cannot_be_read_does_not_bring_back_the_one_that_it_replaced(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    answers = [("Ana", "MET"), ("Ben", "MET"), ("Ana", "99")]
    path.write_text("\n".join(label_line(rater=rater, verdict=verdict) for rater, verdict in answers))
    with pytest.warns(InvalidLabelsWarning, match="the rater's earlier answer is left out, too"):
        assert [label.rater for label in read_labels(path, RUBRIC)] == ["Ben"]
    path.write_text("\n".join(label_line(rater="Ana", verdict=verdict) for verdict in ("MET", "99")))
    with pytest.raises(LabelsError, match=":2: is not a label for this rubric: '99' is no verdict"):
        read_labels(path, RUBRIC)


def test_many_invalid_lines_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("criterion,verdict,response\nright,MET,r\n" + "right,99,other\n" * 30)
    with pytest.warns(InvalidLabelsWarning, match="30 of 31 labels") as caught:
        read_labels(path, RUBRIC, sampled="random")
    assert str(caught[0].message).splitlines()[-1] == "  and 10 more"


def test_long_cells_and_lone_surrogates_are_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(label_line(submission={"response": "x" * 1_000_000}, reason="half \ud83d", rater="\ud83d"))
    (label,) = read_labels(path, RUBRIC)
    assert (len(label.submission.response), label.reason) == (1_000_000, "half \\ud83d")
    assert label.model_dump_json().encode()
    table = tmp_path / "labels.csv"
    table.write_text("criterion,verdict,response\nright,MET," + "x" * 1_000_000)
    assert len(read_labels(table, RUBRIC)[0].submission.response) == 1_000_000


def test_several_raters_are_kept_and_the_later_label_of_one_rater_counts_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    answers = [("Ana", "MET"), ("Ben", "UNMET"), ("Ana", "UNMET")]
    path.write_text("\n".join(label_line(rater=rater, verdict=verdict) for rater, verdict in answers))
    with pytest.warns(UserWarning, match="labels.jsonl:3: the same rater has labelled a judgment before"):
        labels = read_labels(path, RUBRIC)
    assert [(label.rater, label.verdict) for label in labels] == [("Ben", "UNMET"), ("Ana", "UNMET")]


def test_fields_of_the_report_page_are_kept_and_labels_that_say_how_they_were_drawn_prevail(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(label_line(id="s1", was="UNMET", copy=1) + "\n" + label_line(id="s2", sampled="by_verdict"))
    first, second = read_labels(path, RUBRIC, sampled="random")
    assert (first.id, first.judged, first.sampled, second.sampled) == ("s1", "UNMET", "random", "by_verdict")


def test_label_of_a_run_has_the_documents_that_the_report_page_leaves_out(tmp_path: Path) -> None:
    graded = Submission(response="a\nb", query="q", context=("A document.",))
    run = [GradedRow("1", graded, report_of(RUBRIC, ["MET", "plain"]), None)]
    path = tmp_path / "labels.csv"
    path.write_bytes(b'id,criterion,verdict,response\n1,right,MET,"a\r\nb"\n1,c2,x,other\n')
    of_run, other = read_labels(path, RUBRIC, run=run)
    assert (of_run.submission, other.submission.response) == (graded, "other")


def run_file(tmp_path: Path, *labels: Any, tone: str = "plain") -> Path:
    """Write a run file as `grade --out` does, with people's answers in its rows; returns its path."""
    path = tmp_path / "run.jsonl"
    lines: list[str] = []
    for number, answers in enumerate(labels, start=1):
        row = Row(str(number), Submission(response=f"response {number}"), labels=answers)
        lines.append(json.dumps(Graded(row, report_of(RUBRIC, ["MET", tone]), None, RUBRIC).to_dict()) + "\n")
    path.write_text("".join(lines))
    return path


def test_labels_of_a_run_file_of_options_are_read_without_the_rubric(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(label_line(id="1", criterion="c2", requirement="Tone?", verdict="X", submission=None))
    run = run_file(tmp_path, None)
    (label,) = read_labels(path, run)
    assert (label.verdict, label.criterion.kind, label.criterion.options) == (
        "x",
        "ordinal",
        RUBRIC.criteria[1].options,
    )
    assert agreement(run, read_labels(path, run, sampled="random")).criteria["c2"].accuracy.value == 0.0


@pytest.mark.parametrize("tone", ["plain", "CANNOT_ASSESS"])
def test_labels_of_an_older_run_file_of_options_need_the_rubric(tmp_path: Path, tone: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(label_line(id="1", criterion="c2", requirement="Tone?", verdict="plain", submission=None))
    run = run_file(tmp_path, None, tone=tone)
    line = json.loads(run.read_text())
    del line["report"][1]["options"]
    run.write_text(json.dumps(line) + "\n")
    with pytest.raises(LabelsError, match="pass the rubric, too"):
        read_labels(path, run)
    assert read_labels(path, RUBRIC, run=run)[0].submission.response == "response 1"


def test_labels_of_rows_are_random_only_if_they_cover_all_judgments_of_their_criteria(tmp_path: Path) -> None:
    everything = run_file(tmp_path, {"right": "MET"}, {"right": "UNMET"})
    labels = read_labels(everything)
    assert [(label.id, label.verdict, label.sampled) for label in labels] == [
        ("1", "MET", "random"),
        ("2", "UNMET", "random"),
    ]
    assert agreement(everything, labels).criteria["right"].accuracy.value == 0.5
    for part in [({"right": "MET"}, None), ({"right": "MET"}, {"c2": "plain"})]:
        labels = read_labels(run_file(tmp_path, *part))
        assert {label.sampled for label in labels} == {"chosen"}
    assert {label.sampled for label in read_labels(run_file(tmp_path, *part), sampled="random")} == {"random"}


def test_labels_of_rows_by_several_raters_are_a_list(tmp_path: Path) -> None:
    labels = read_labels(run_file(tmp_path, {"right": ["MET", None, "UNMET"]}))
    assert [(label.rater, label.verdict) for label in labels] == [("1", "MET"), ("3", "UNMET")]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"other": "MET"}, "row '1': the row '1' of the run has no criterion 'other'"),
        ({"right": "yes"}, "row '1': is not a label .*'yes' is no verdict"),
        (None, "the run has no labels"),
    ],
)
def test_labels_of_rows_that_are_no_answers_are_refused(tmp_path: Path, labels: Any, words: str) -> None:
    with pytest.raises(LabelsError, match=words):
        read_labels(run_file(tmp_path, labels))


def test_labels_of_rows_that_are_no_answers_are_left_out_beside_others(tmp_path: Path) -> None:
    run = run_file(tmp_path, {"right": "yes"}, {"right": "MET"})
    with pytest.warns(InvalidLabelsWarning, match="the run: 1 of 2 labels|run.jsonl: 1 of 2 labels"):
        assert [label.id for label in read_labels(run)] == ["2"]
    with pytest.raises(LabelsError, match="row '1': is not a label"):
        read_labels(run, strict=True)


def test_read_labels_without_a_rubric_or_a_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(label_line())
    with pytest.raises(TypeError, match="`rubric` is None: pass the rubric of the labels"):
        read_labels(path)


def test_label_file_with_a_byte_order_mark_and_line_ends_of_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + f"{label_line()}\r\n{label_line(verdict='UNMET', rater='Ben')}\r\n".encode())
    assert [label.verdict for label in read_labels(path, RUBRIC)] == ["MET", "UNMET"]


@pytest.mark.filterwarnings("ignore:.*the later label counts")
def test_label_that_replaces_a_drawn_one_stays_drawn(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    first = label_line(rater="Ana", sampled="random", blind=True)
    path.write_text(f"{first}\n{label_line(rater='Ana', verdict='UNMET')}\n")
    (label,) = read_labels(path, RUBRIC)
    assert (label.verdict, label.sampled, label.blind) == ("UNMET", "random", False)
