"""The text of DSPy's and pydantic's values: no Python repr, and no base64."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from enum import Enum
from typing import Any

import dspy
import pytest
from pydantic import BaseModel, RootModel

from rubric_integrations import Criterion, Fields, Rubric
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.judges import lm_from_fn
from rubric_integrations.submission.predictions import AttachedValues, field_text
from tests.dspy.programs import metric_at
from tests.openai_server import OpenAIServer

ONE_CRITERION = Rubric([Criterion(requirement="a")])
PIXELS = base64.b64encode(os.urandom(300_000)).decode()
PNG = f"data:image/png;base64,{PIXELS}"


class Grade(Enum):
    GOOD = "good"


class Finding(BaseModel):
    value: int
    note: str


class Report(BaseModel):
    title: str
    chart: dspy.Image
    findings: list[Finding]


class Findings(RootModel[list[Finding]]):
    pass


@dataclasses.dataclass
class Point:
    x: int
    y: Any


class Video(dspy.Type):
    data: str

    def format(self) -> list[dict[str, Any]]:
        return [{"type": "text", "text": "a film"}, {"type": "video_url", "video_url": {"url": self.data}}]


FINDING = Finding(value=42, note="x")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        (42, "42"),
        (True, "true"),
        (FINDING, '{"value": 42, "note": "x"}'),
        ([FINDING], '[{"value": 42, "note": "x"}]'),
        (Findings([FINDING]), '[{"value": 42, "note": "x"}]'),
        ({(1, 2): {3: Point(1, FINDING)}}, '{"(1, 2)": {"3": {"x": 1, "y": {"value": 42, "note": "x"}}}}'),
        ({"b", "a"}, '["a", "b"]'),
        (Grade.GOOD, "good"),
        ([Grade.GOOD], '["good"]'),
        (dspy.Code(code="print(1)"), "print(1)"),
        ({"code": dspy.Code["java"](code="int x;")}, '{"code": "int x;"}'),  # pyright: ignore[reportInvalidTypeArguments, reportCallIssue]
        (dspy.Prediction(passages=["one"]), '{"passages": ["one"]}'),
        (dspy.ToolCalls.from_dict_list([{"name": "add", "args": {"a": 1}}]),
         '{"tool_calls": [{"id": null, "name": "add", "args": {"a": 1}}], "tool_call_results": null}'),
        (dspy.History(messages=[{"question": "6 x 7?", "answer": FINDING}]),
         '{"question": "6 x 7?", "answer": {"value": 42, "note": "x"}}'),
        ([{"role": "user", "content": "6 x 7?"}], '{"role": "user", "content": "6 x 7?"}'),
    ],
)  # fmt: skip
def test_value_of_a_type_is_written_without_its_python_repr(value: object, text: str) -> None:
    assert field_text(value) == text


def test_tool_is_written_without_the_address_of_its_function() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    text = field_text(dspy.Tool(add))
    assert text.startswith("add, whose description is <desc>Add two numbers.</desc>")
    assert "0x" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (dspy.Image(PNG), "[image]"),
        (dspy.Image("https://example.com/a.png"), "[image]"),
        (PNG, "[image]"),
        ([dspy.Image(PNG), "and", PNG], '["[image]", "and", "[image]"]'),
        ({"a": {"b": (dspy.Image(PNG),)}}, '{"a": {"b": ["[image]"]}}'),
        (Report(title="t", chart=dspy.Image(PNG), findings=[]), '{"title": "t", "chart": "[image]", "findings": []}'),
        (dspy.History(messages=[{"chart": dspy.Image(PNG)}]), '{"chart": "[image]"}'),
        (dspy.Audio(data=PIXELS, audio_format="wav"), "[audio]"),
        (dspy.File(file_data=f"data:application/pdf;base64,{PIXELS}"), "[file]"),
        (f"data:application/pdf;base64,{PIXELS}", "[file]"),
        (Video(data=PIXELS), "a film\n[video]"),
    ],
)
def test_binary_value_is_written_as_a_placeholder(value: object, text: str) -> None:
    assert field_text(value) == text


def test_document_is_written_as_its_text_or_as_a_placeholder() -> None:
    document: Any = pytest.importorskip("dspy.adapters.types.document").Document
    assert json.loads(field_text(document(data="The Earth is round.", title="T")))["data"] == "The Earth is round."
    assert field_text(document(data=PIXELS, media_type="application/pdf")) == "[document]"


def test_text_that_only_mentions_a_data_uri_is_unchanged() -> None:
    text = f'<img src="{PNG[:80]}"> is my answer'
    assert field_text(text) == text


def test_images_in_query_and_response_are_attachments_and_placeholders_in_the_reference(server: OpenAIServer) -> None:
    photo = dspy.Image(f"data:image/png;base64,{'A' * 1_500_000}")
    online = dspy.Image("http://127.0.0.1:9/drawing")
    metric = metric_at(server, ONE_CRITERION, fields=Fields(reference="gold"))
    example = dspy.Example(photo=photo, question="Q", gold=[photo]).with_inputs("photo", "question")
    pred = dspy.Prediction(drawings=[online, photo], answer="A")

    class Painter(dspy.Module):
        def forward(self, **_inputs: Any) -> dspy.Prediction:
            return pred

    result = dspy.Evaluate(devset=[example], metric=metric, display_progress=False)(Painter())
    assert result.score == 100.0
    blocks = server.calls[-1].body["messages"][-1]["content"]
    for text in ("photo: [attachment 1]", 'drawings: ["[attachment 2]", "[attachment 1]"]', '["[image]"]'):
        assert text in blocks[0]["text"]
    assert [block["image_url"]["url"] for block in blocks if block["type"] == "image_url"] == [photo.url, online.url]


def test_image_audio_and_file_are_collected_wherever_they_are() -> None:
    files = AttachedValues()
    report = Report(title="t", chart=dspy.Image(PNG), findings=[])
    audio, paper = dspy.Audio(data="AAAA", audio_format="wav"), dspy.File(file_data="data:application/pdf;base64,AAAA")
    assert field_text({"a": [report, audio], "b": paper}, files) == (
        '{"a": [{"title": "t", "chart": "[attachment 1]", "findings": []}, "[attachment 2]"], "b": "[attachment 3]"}'
    )
    assert field_text(report.chart, files) == "[attachment 1]"
    assert field_text(dspy.History(messages=[{"chart": dspy.Image(PNG)}]), files) == '{"chart": "[attachment 4]"}'
    # What is only a reference to a provider's file cannot be sent.
    assert field_text(dspy.File(file_id="file-1"), files) == "[file]"
    assert field_text(dspy.Image("gs://bucket/a.png"), files) == "[image]"
    types = [file.mime_type for file in files.attachments]
    assert types == ["image/png", "audio/wav", "application/pdf", "image/png"]


class Typed(dspy.Signature):
    """Answer."""

    question: str = dspy.InputField()
    finding: Finding = dspy.OutputField()
    code: dspy.Code = dspy.OutputField()


def test_typed_outputs_of_a_program_are_graded_as_json_and_code() -> None:
    async def answer(system: str, user: str) -> str:
        return '[[ ## finding ## ]]\n{"value": 42, "note": "x"}\n\n[[ ## code ## ]]\n```python\nprint(1)\n```'

    metric = RubricMetric(Rubric.from_dict([{"requirement": "r", "check": {"contains": "print(1)"}}]), judge="offline")
    with dspy.context(lm=lm_from_fn(answer)):
        pred = dspy.Predict(Typed)(question="?")
    assert float(metric(dspy.Example(question="?").with_inputs("question"), pred)) == 1.0
    assert metric.history[0]["response"] == 'finding: {"value": 42, "note": "x"}\n\ncode: print(1)'
