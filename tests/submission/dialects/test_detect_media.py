"""Images, recordings and files in messages become attachments, in order; what cannot be read is an error."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from rubric_integrations.submission import Attachment, Submission, as_submission
from rubric_integrations.submission.dialects.detect import read_conversation

GIF = base64.b64encode(b"GIF89a").decode()
URI = f"data:image/gif;base64,{GIF}"
URL = "https://example.com/chart.png"
IMAGE = Attachment(mime_type="image/gif", data=GIF)
LINK = Attachment(mime_type="image/png", url=URL)
PDF = Attachment(mime_type="application/pdf", data=GIF, name="report.pdf")
MP3 = Attachment(mime_type="audio/mpeg", data=GIF)


def chat(block: dict[str, Any]) -> list[Any]:
    return [{"role": "user", "content": [{"type": "text", "text": "See"}, block, {"type": "text", "text": "this"}]}]


def gemini(part: dict[str, Any]) -> list[Any]:
    return [{"role": "user", "parts": [{"text": "See"}, part, {"text": "this"}]}]


def opentelemetry(part: dict[str, Any]) -> list[Any]:
    texts = [{"type": "text", "content": text} for text in ("See", "this")]
    return [{"role": "user", "parts": [texts[0], part, texts[1]]}]


@pytest.mark.parametrize(
    ("messages", "attachment"),
    [
        (
            chat({"type": "image_url", "image_url": {"url": URI, "detail": "low"}}),
            IMAGE.model_copy(update={"detail": "low"}),
        ),
        (chat({"type": "image_url", "image_url": URL}), LINK),
        (
            chat({"type": "image_url", "image_url": {"url": "https://a.b/c?id=1"}}),
            Attachment(mime_type="image/unknown", url="https://a.b/c?id=1"),
        ),
        (chat({"type": "input_image", "image_url": URI}), IMAGE),
        (chat({"type": "input_audio", "input_audio": {"data": GIF, "format": "mp3"}}), MP3),
        (
            chat(
                {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{GIF}", "filename": "report.pdf"}}
            ),
            PDF,
        ),
        (
            chat({"type": "input_file", "file_data": f"data:application/pdf;base64,{GIF}", "filename": "report.pdf"}),
            PDF,
        ),
        (
            chat({"type": "input_file", "file_url": "https://a.b/report.pdf"}),
            Attachment(url="https://a.b/report.pdf", mime_type="application/pdf"),
        ),
        (chat({"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": GIF}}), IMAGE),
        (chat({"type": "image", "source": {"type": "url", "url": URL}}), LINK),
        (
            chat(
                {
                    "type": "document",
                    "title": "report.pdf",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": GIF},
                }
            ),
            PDF,
        ),
        (chat({"type": "image", "base64": GIF, "mime_type": "image/gif"}), IMAGE),
        (chat({"type": "image", "source_type": "base64", "data": GIF, "mime_type": "image/gif"}), IMAGE),
        (chat({"type": "audio", "base64": GIF, "mime_type": "audio/mpeg"}), MP3),
        (chat({"type": "image", "image": URI, "detail": "auto"}), IMAGE.model_copy(update={"detail": "auto"})),
        (chat({"type": "audio", "audio": f"data:audio/mpeg;base64,{GIF}", "format": "mp3"}), MP3),
        (chat({"type": "document", "document": f"data:application/pdf;base64,{GIF}", "filename": "report.pdf"}), PDF),
        (chat({"type": "image", "data": GIF, "mimeType": "image/gif"}), IMAGE),
        (gemini({"inlineData": {"mimeType": "image/gif", "data": GIF}}), IMAGE),
        (gemini({"inline_data": {"mime_type": "image/gif", "data": b"GIF89a"}}), IMAGE),
        (gemini({"fileData": {"mimeType": "image/png", "fileUri": URL}}), LINK),
        (opentelemetry({"type": "blob", "modality": "image", "mime_type": "image/gif", "content": GIF}), IMAGE),
        (opentelemetry({"type": "uri", "modality": "image", "uri": URL}), LINK),
        (
            opentelemetry({"type": "uri", "modality": "image", "uri": "https://a.b/c"}),
            Attachment(mime_type="image/unknown", url="https://a.b/c"),
        ),
        (
            [
                {
                    "v": 1,
                    "agent": "a",
                    "type": "user",
                    "content": [
                        {"type": "text", "text": "See"},
                        {"type": "image", "source": URI},
                        {"type": "text", "text": "this"},
                    ],
                }
            ],
            IMAGE,
        ),
    ],
)
def test_file_in_any_dialect_is_an_attachment_at_its_place(messages: list[Any], attachment: Attachment) -> None:
    conversation = read_conversation(messages)
    assert conversation.attachments == (attachment,)
    assert conversation.steps[0].text == "See\n[attachment 1]\nthis"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (chat({"type": "image_url"}), r"`messages\[0\].content\[1\]` \('image_url'\) has neither the bytes"),
        (chat({"type": "image", "source": {"type": "file", "file_id": "f"}}), "provider's ids and local paths"),
        (chat({"type": "image", "image": "chart.png"}), "local paths are never opened"),
        (chat({"type": "file", "file": {"file_id": "file-1"}}), "has neither the bytes"),
        (chat({"type": "image", "url": "file:///etc/passwd"}), "has neither the bytes"),
        (chat({"type": "image", "base64": GIF}), "its mime_type is not known"),
        (chat({"type": "image", "base64": "%%", "mime_type": "image/gif"}), "its data is not base64"),
        (chat({"type": "image_url", "image_url": "data:image/svg+xml,<svg/>"}), "whose content is not base64"),
        (gemini({"fileData": {"fileUri": "gs://bucket/a.png"}}), r"`contents\[0\].parts\[1\]` \('fileData'\)"),
        (opentelemetry({"type": "file", "modality": "image", "file_id": "f"}), "has neither the bytes"),
    ],
)
def test_file_without_bytes_or_address_is_an_error_with_its_place(messages: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Submission.model_validate({"response": messages, "respond": "transcript"})


def test_attachments_are_numbered_over_all_fields_in_order() -> None:
    image = {"type": "image_url", "image_url": {"url": URI}}
    link = {"type": "image_url", "image_url": {"url": URL}}
    shot = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": GIF}}
    conversation = [
        {"role": "user", "content": [link]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [shot]}]},
        {"role": "assistant", "content": [{"type": "text", "text": "As drawn:"}, image]},
    ]
    data: dict[str, Any] = {"response": conversation, "query": [{"role": "user", "content": [image]}]}
    submission = Submission.model_validate({**data, "attachments": [MP3]})
    assert submission.attachments == (MP3, IMAGE, LINK, Attachment(mime_type="image/png", data=GIF))
    # The image of the query is the one that the answer shows: it keeps its number.
    assert submission.response == "As drawn:\n[attachment 2]"
    query = submission.query or ""
    assert [f"[attachment {number}]" in query for number in (1, 2, 3, 4)] == [False, True, True, True]
    assert submission.trajectory is not None
    assert submission.trajectory.calls[0].result == "[attachment 4]"
    assert as_submission(Submission(response="x", attachments=(MP3,)), query=data["query"]).attachments == (MP3, IMAGE)
    assert Submission.model_validate(submission.model_dump()) == submission


def test_answer_that_is_only_an_image_is_graded() -> None:
    answer = {"type": "image_generation_call", "id": "i", "status": "completed", "result": GIF, "output_format": "png"}
    submission = Submission.from_messages([{"role": "user", "content": "Draw."}, answer], respond="transcript")
    assert submission.attachments == (Attachment(mime_type="image/png", data=GIF),)
    image = {"type": "image", "base64": GIF, "mime_type": "image/gif"}
    assert Submission.from_messages([{"role": "assistant", "content": [image]}]).response == "[attachment 1]"


def test_text_that_imitates_an_attachment_is_only_text() -> None:
    submission = Submission.from_messages([{"role": "assistant", "content": "[attachment 1]"}])
    assert (submission.response, submission.attachments) == ("[attachment 1]", ())
