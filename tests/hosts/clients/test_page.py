"""The examples of deepeval, Langfuse and Phoenix on the page of the hosts, with the real clients.

The clients of Langfuse and Phoenix send to a server of the test.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rubric_integrations import Rubric
from tests.hosts.page import run_example
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader
from tests.hosts.tables import print_arrivals

VERDICTS = [row for row in ROWS if row.score is not None]


class Recorder(BaseHTTPRequestHandler):
    """Records the JSON of each POST, and accepts it."""

    received: ClassVar[list[tuple[str, Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if "json" in self.headers["content-type"]:
            self.received.append((self.path, json.loads(body)))
        reply = b'{"id": "1", "data": [{"id": "1"}]}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep the output of the tests free of requests."""


@pytest.fixture
def recorder() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    Recorder.received.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Recorder.received
    server.shutdown()
    server.server_close()


def test_deepeval_metric_has_the_scores_and_fails_the_case_whose_judge_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
    monkeypatch.chdir(tmp_path)
    metric = run_example("deepeval")["RubricMetric"](RUBRIC, make_grader())
    deepeval: Any = import_module("deepeval")
    configs: Any = import_module("deepeval.evaluate")
    test_case: Any = import_module("deepeval.test_case").LLMTestCase
    result = deepeval.evaluate(
        [test_case(name=row.id, input=QUERY, actual_output=row.response) for row in ROWS], [metric],
        error_config=configs.ErrorConfig(ignore_errors=True),
        display_config=configs.DisplayConfig(print_results=False, show_indicator=False),
    )  # fmt: skip
    data = {case.name: case.metrics_data[0] for case in result.test_results}
    for row in ROWS:
        assert data[row.id].score == (row.score if row.score is None else pytest.approx(row.score))
    assert {name: cell.success for name, cell in data.items()} == {
        "right": True, "rude": False, "wrong": False, "empty-handed": False, "unclear": True, "failing": False,
    }  # fmt: skip
    assert "`right` was not judged" in data["failing"].error
    with capsys.disabled():
        failed = {"rubric": "error, test case failed"}
        print_arrivals("deepeval", {name: {"rubric": cell.score} for name, cell in data.items()} | {"failing": failed})


@pytest.mark.parametrize(
    ("pass_mark", "required", "passes"), [(0.5, False, True), (0.5, True, False), (0.8, False, False)]
)
def test_deepeval_metric_succeeds_if_the_report_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pass_mark: float, required: bool, passes: bool
) -> None:
    monkeypatch.setenv("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
    monkeypatch.chdir(tmp_path)
    criteria = [row.model_copy(update={"required": required and row.name == "rude"}) for row in RUBRIC.criteria]
    metric = run_example("deepeval")["RubricMetric"](Rubric(criteria, pass_mark=pass_mark), make_grader())
    test_case: Any = import_module("deepeval.test_case").LLMTestCase
    rude = next(row for row in ROWS if row.id == "rude")
    assert metric.measure(test_case(input=QUERY, actual_output=rude.response)) == pytest.approx(2 / 3)
    assert (metric.is_successful(), metric.threshold) == (passes, pass_mark)


def test_langfuse_gets_a_score_for_each_outcome_and_a_category_for_an_abstention(
    recorder: tuple[str, list[tuple[str, Any]]],
) -> None:
    url, received = recorder
    langfuse: Any = import_module("langfuse").Langfuse(public_key="pk-test", secret_key="sk-test", base_url=url)
    send_scores = run_example("langfuse")["send_scores"]
    for row in VERDICTS:
        send_scores(langfuse, langfuse.create_trace_id(seed=row.id), RUBRIC.grade_sync(row.response, make_grader()))
    langfuse.flush()
    langfuse.shutdown()
    scores = [score for path, body in received if path == "/api/public/scores" for score in body]
    of_rude = langfuse.create_trace_id(seed="rude")
    assert {score["name"]: score["value"] for score in scores if score["traceId"] == of_rude} == {
        "rubric": pytest.approx(2 / 3), "rubric.right": 1.0, "rubric.sourced": 1.0, "rubric.rude": 0.0,
    }  # fmt: skip
    assert [score["value"] for score in scores if score["dataType"] == "CATEGORICAL"] == ["CANNOT_ASSESS"]
    assert len(scores) == 4 * len(VERDICTS)


def test_phoenix_gets_an_annotation_for_each_outcome_and_a_label_alone_for_an_abstention(
    recorder: tuple[str, list[tuple[str, Any]]],
) -> None:
    url, received = recorder
    client: Any = import_module("phoenix.client").Client(base_url=url)
    annotate = run_example("phoenix")["annotate"]
    for row in VERDICTS:
        annotate(client, row.id, RUBRIC.grade_sync(row.response, make_grader()))
    sent = [annotation for _, body in received for annotation in body["data"]]
    of_rude = {cell["name"]: cell["result"]["score"] for cell in sent if cell["span_id"] == "rude"}
    assert of_rude == {
        "rubric": pytest.approx(2 / 3), "rubric.right": 1.0, "rubric.sourced": 1.0, "rubric.rude": 0.0,
    }  # fmt: skip
    [abstention] = [cell["result"] for cell in sent if "score" not in cell["result"]]
    assert abstention["label"] == "CANNOT_ASSESS"
