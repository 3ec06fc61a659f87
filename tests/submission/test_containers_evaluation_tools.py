"""Files of evaluation tools that are more than rows: tasks in another file, events, tables, YAML, and saved runs."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.submission import ResponsesError, Row, read_responses
from tests.submission.test_containers import (
    ALPACA_ANNOTATIONS,
    DEEPEVAL,
    DEEPEVAL_ROWS,
    MT_BENCH,
    MT_BENCH_ROWS,
    PROMPTFOO,
    PROMPTFOO_ROWS,
    evals_spec,
    event,
    read,
)


def write_lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def first_row(path: Path) -> Row:
    return next(iter(read_responses(path)))


# MT-bench.

QUESTIONS = [
    {"question_id": 81, "category": "math", "turns": ["6 x 7?", "And 7 x 6?"], "reference": ["42", "the same"]},
    {"question_id": 82, "turns": ["5 x 7?"]},
]


@pytest.mark.parametrize("folder", ["model_answer", "reference_answer", "."])
def test_mt_bench_answers_are_joined_with_the_questions_in_the_folder_or_above(
    tmp_path: Path, folder: str, recwarn: pytest.WarningsRecorder
) -> None:
    path = write_lines(tmp_path / folder / "m.jsonl", *MT_BENCH)
    write_lines(tmp_path / "question.jsonl", *QUESTIONS)
    rows = {row.id: row for row in read_responses(path)}
    assert not recwarn
    first, second = rows["81-turn1"].submission, rows["81-turn2"].submission
    assert first
    assert second
    assert (first.query, first.response, first.reference) == ("6 x 7?", "one", "42")
    messages = [json.loads(line) for line in str(second.query).splitlines()]
    assert [message["content"] for message in messages] == ["6 x 7?", "one", "And 7 x 6?"]
    assert (second.response, second.reference) == ("two", "the same")
    assert rows["82-choice2-turn1"].error == MT_BENCH_ROWS[3][1]


def test_mt_bench_without_its_questions_warns(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a" / "model_answer" / "m.jsonl", *MT_BENCH)
    write_lines(tmp_path / "question.jsonl", *QUESTIONS)  # two folders above
    with pytest.warns(UserWarning, match=r"whose tasks are in `question\.jsonl`"):
        assert read(path) == MT_BENCH_ROWS
    write_lines(path.parent / "question.jsonl", QUESTIONS[1])
    with pytest.warns(UserWarning, match="has not all questions, such as .81."):
        assert [row[2] for row in read(path)] == [None, None, "5 x 7?", None]
    (path.parent / "question.jsonl").write_text('{"question_id": 81, "turns"\n')
    with pytest.raises(
        ResponsesError, match=r"m\.jsonl: has its tasks in a file that cannot be read: .*question\.jsonl"
    ):
        read(path)


# AlpacaEval.


def test_alpaca_eval_annotations_grade_the_model_and_not_its_baseline(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "annotations.jsonl", *ALPACA_ANNOTATIONS)
    row = first_row(path)
    assert row.submission
    assert (row.submission.response, row.submission.reference) == ("It is 42.", None)
    assert row.metadata == {
        "generator": "model", "baseline": "baseline", "preference": 2.0, "annotator": "a", "dataset": "d"
    }  # fmt: skip
    assert [row[1] for row in read(path, response_column="output_1")] == ["It is 41."]
    unnamed = {name: value for name, value in ALPACA_ANNOTATIONS[0].items() if not name.startswith("generator")}
    with pytest.raises(ResponsesError, match="has no `response` column"):
        read(write_lines(tmp_path / "pairs.jsonl", unnamed))


# DSPy.


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_evaluation_that_dspy_saved_is_read(tmp_path: Path, suffix: str) -> None:
    dspy = pytest.importorskip("dspy")

    class Program(dspy.Module):
        def forward(self, question: str) -> Any:
            return dspy.Prediction(reasoning="a sum,\nin lines", answer=f"{question} It is 42.", tags=["a", "b"])

    def one(example: Any, prediction: Any, trace: Any = None) -> float:
        return 1.0

    devset = [dspy.Example(question=text, answer="42").with_inputs("question") for text in ("6 x 7?", "7 x 6?")]
    path = tmp_path / f"saved{suffix}"
    saved: dict[str, Any] = {f"save_as_{suffix[1:]}": str(path)}
    dspy.Evaluate(devset=devset, metric=one, num_threads=1, **saved)(Program())
    rows = list(read_responses(path))
    assert [
        (row.submission.response, row.submission.query, row.submission.reference) for row in rows if row.submission
    ] == [(f"{text} It is 42.", text, "42") for text in ("6 x 7?", "7 x 6?")]


# promptfoo.

GRADES = "Status,Score,Named Scores,Grader Reason,Comment"
ONE_PROMPT = f"answer,[echo] Twice: {{{{answer}}}},{GRADES}\n41,It is 42.,PASS,1,,,\n"
TWO_PROMPTS = f"answer,[echo] Say,{GRADES},[echo] Twice,{GRADES}\n41,It is 41.,PASS,1,,,,It is 42.,PASS,1,,,\n"


@pytest.mark.parametrize("table", [ONE_PROMPT, TWO_PROMPTS])
def test_table_of_promptfoo_is_refused_by_its_name(tmp_path: Path, table: str) -> None:
    path = tmp_path / "output.csv"
    path.write_text(table)
    # Else the variable `answer` would be graded.
    with pytest.raises(ResponsesError, match=r"is a table of promptfoo.*-o results\.json"):
        read(path)


def test_named_column_of_a_table_of_promptfoo_is_graded(tmp_path: Path) -> None:
    path = tmp_path / "output.csv"
    path.write_text(ONE_PROMPT)
    assert read(path, response_column="[echo] Twice: {{answer}}") == [("1", "It is 42.", None)]


def test_yaml_results_of_promptfoo_are_read_as_their_json(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    data = {"evalId": "eval-1", "results": {"version": 3, "results": PROMPTFOO}, "config": {}}
    path = tmp_path / "output.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    assert read(path) == PROMPTFOO_ROWS
    whole = path.read_text()
    for end in (whole.index("  version:"), whole.index("  - id: u01"), whole.index("config:")):
        path.write_text(whole[:end])
        with pytest.raises(ResponsesError, match="without `config`, its end"):
            read(path)
    path.write_text(whole)
    text = path.rename(tmp_path / "output.txt")
    with pytest.raises(ResponsesError, match=r"is promptfoo's results as YAML: rename it to `\.yaml`"):
        read(text)


# YAML.


@pytest.mark.parametrize("suffix", [".yaml", ".yml"])
def test_yaml_rows_are_read_and_a_text_stays_one(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"f{suffix}"
    path.write_text("- {id: a, response: It is 42., query: 6 x 7?}\n- {id: 2026-01-01, response: 2026-01-02}\n")
    assert read(path) == [("a", "It is 42.", "6 x 7?"), ("2026-01-01", "2026-01-02", None)]
    path.write_text("run:\n  rows: &rows\n  - {response: x}\n  - {response: y}\nmore: *rows\n")
    assert [row[1] for row in read(path, rows="run.rows")] == ["x", "y"]
    with pytest.raises(ResponsesError, match=r"one object with lists of objects: .*`run\.rows` \(2\).*`\.txt` file"):
        read(path)
    for text in ("It is 42.", "name: build\nsteps:\n- run: make\n"):
        path.write_text(text)
        assert read(path) == [("f", text, None)]


EXPLODING = "a: &a [x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in pairwise("abcdefg")
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- response: a\n- response: [b\n", "is not YAML"),
        ("- {response: a, response: b}", "has the key 'response' twice"),
        (EXPLODING, "more than 100,000 values"),
        ("response: a\n---\nresponse: b\n", "found another document"),
        ("- {2026-01-01: a, response: b}", "keys must be str"),
        ("- {1: a, '1': b, response: c}", "has the key '1' twice"),
        ("- &a [*a]", "inside the node that it repeats"),
        ("- response: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("[" * 5000, "nests deeper|nesting depth"),
    ],
)  # fmt: skip
def test_yaml_that_is_cut_or_explodes_is_one_error(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(ResponsesError, match=words) as error:
        read(path)
    assert "\n" not in str(error.value)
    assert "`.txt` file" in str(error.value)


# deepeval.


def test_deepeval_run_is_read_with_documents_and_calls(tmp_path: Path) -> None:
    run = {"testCases": DEEPEVAL[:2], "conversationalTestCases": DEEPEVAL[2:], "metricsScores": [], "testPassed": 2}
    for data in (run, {"testRunData": run}):
        path = write_lines(tmp_path / "run.json", data)
        assert read(path) == DEEPEVAL_ROWS
    case = first_row(path)
    assert case.submission
    assert case.submission.context == ("a table",)
    assert case.submission.trajectory
    assert [(call.name, call.arguments, call.result) for call in case.submission.trajectory.calls] == [
        ("times", {"a": 6}, "42")
    ]
    assert case.metadata == {"success": True}


def test_deepeval_results_in_python_have_unique_ids(tmp_path: Path) -> None:
    shared = {"name": "refund", "success": True, "metrics_data": [], "conversational": False, "turns": None}
    results = [{**shared, "input": f"{factor} x 7?", "actual_output": "42"} for factor in (6, 7)]
    path = write_lines(tmp_path / "run.json", {"test_results": results, "confident_link": None})
    assert read(path) == [("refund-1", "42", "6 x 7?"), ("refund-2", "42", "7 x 7?")]


# openai/evals.

GRADED = evals_spec("evals.elsuite.modelgraded.classify:ModelBasedClassify")
ANSWER = event(0, "e.0", "sampling", prompt="6 x 7?", sampled=['It is "42".\nSure.'])
JUDGED = event(
    1, "e.0", "sampling", prompt=[{"role": "user", "content": 'Is it right?\nIt is "42".\nSure.'}], sampled=["Y"]
)
SCORE = event(2, "e.0", "metrics", choice="Y", score=1.0)


def test_answers_of_a_model_graded_eval_are_read_and_not_its_judges(tmp_path: Path) -> None:
    other = event(3, "e.1", "sampling", prompt="7 x 6?", sampled=["41"])
    path = write_lines(tmp_path / "log.jsonl", GRADED, ANSWER, other, JUDGED, SCORE)
    assert read(path) == [("e.0", 'It is "42".\nSure.', "6 x 7?")]


@pytest.mark.parametrize(
    "events",
    [
        [GRADED, JUDGED, SCORE],
        [GRADED, JUDGED, ANSWER, SCORE],
        [GRADED, ANSWER, JUDGED, JUDGED, SCORE],
        [evals_spec("evals.elsuite.basic.match:Match"), ANSWER, JUDGED],
        [ANSWER, JUDGED],
    ],
)
def test_log_of_evals_in_which_the_answer_is_not_certain_is_refused(tmp_path: Path, events: list[Any]) -> None:
    with pytest.raises(ResponsesError, match=r"samplings of 'e\.0', and which of them is the answer is not certain"):
        read(write_lines(tmp_path / "log.jsonl", *events))
