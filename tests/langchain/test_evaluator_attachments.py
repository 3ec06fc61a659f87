"""Attachments of LangSmith examples, and those that openevals evaluators are called with."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from langsmith import Client, evaluate

from rubric_integrations import Rubric
from rubric_integrations.langchain import RubricEvaluator, offline_client
from tests.langchain.helpers import chat_model, make_examples, number_target
from tests.openai_server import Call, OpenAIServer, Reply

pytestmark = pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")

RUBRIC = Rubric.from_dict([{"weight": 1, "requirement": "Has axes"}])
PNG, ENCODED = b"\x89PNG", base64.b64encode(b"\x89PNG").decode()
DATA_URI = f"data:image/png;base64,{ENCODED}"


def sent_images(call: Call) -> list[str]:
    content = call.body["messages"][-1]["content"]
    return [block["image_url"]["url"] for block in content if block["type"] == "image_url"]


def test_attachments_of_a_dataset_are_loaded_and_sent_to_the_judge(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def list_examples(self: Client, *, include_attachments: bool = False, **_more: Any) -> Any:
        reader = io.BytesIO(PNG)
        info = {"presigned_url": "http://127.0.0.1:9/secret", "reader": reader, "mime_type": "image/png"}
        attachments = {"chart.png": info} if include_attachments else None
        return iter([example.model_copy(update={"attachments": attachments}) for example in make_examples(1)])

    client = offline_client()
    monkeypatch.setattr(type(client), "list_examples", list_examples)
    judge = chat_model(server, lambda _call: Reply("MET"))
    evaluators: list[Any] = [RubricEvaluator(RUBRIC, judge=judge, name=name) for name in ("first", "second")]
    rows: Any = evaluate(number_target, data="dataset", evaluators=evaluators, upload_results=False, client=client)
    results = {result.key: result.score for result in next(iter(rows))["evaluation_results"]["results"]}
    assert (results["first"], results["second"]) == (1.0, 1.0)
    assert [sent_images(call) for call in server.calls] == [[DATA_URI]] * 2


@pytest.mark.parametrize(
    ("attachments", "images"),
    [
        ({"mime_type": "image/png", "data": ENCODED}, [DATA_URI]),
        (
            [{"mime_type": "image/png", "data": DATA_URI}, "https://example.com/b.png"],
            [DATA_URI, "https://example.com/b.png"],
        ),
        ({"a.png": {"presigned_url": "https://example.com/a.png", "mime_type": None}}, ["https://example.com/a.png"]),
    ],
)
def test_attachments_of_openevals_callers_are_sent_to_the_judge(
    server: OpenAIServer, attachments: Any, images: list[str]
) -> None:
    evaluator = RubricEvaluator(RUBRIC, judge=chat_model(server, lambda _call: Reply("MET")))
    assert evaluator(inputs="Draw.", outputs="See [attachment 1].", attachments=attachments)["score"] == 1.0
    assert sent_images(server.calls[0]) == images


@pytest.mark.parametrize("attachments", [None, {}, []])
def test_no_attachments_leave_the_prompt_as_it_is(server: OpenAIServer, attachments: Any) -> None:
    evaluator = RubricEvaluator(RUBRIC, judge=chat_model(server, lambda _call: Reply("MET")))
    evaluator(inputs="Draw.", outputs="None.", attachments=attachments)
    assert isinstance(server.calls[0].body["messages"][-1]["content"], str)


def test_path_among_the_attachments_is_never_read(server: OpenAIServer) -> None:
    evaluator = RubricEvaluator(RUBRIC, judge=chat_model(server))
    with pytest.raises(ValueError, match="only read in a file of responses"):
        evaluator(inputs="Draw.", outputs="x", attachments={"mime_type": "text/plain", "path": "/etc/passwd"})
    assert not server.calls
