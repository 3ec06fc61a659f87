"""Attachments: what is read, from which sources, and what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rubric_integrations import Submission
from rubric_integrations.submission import Attachment, Row, read_responses
from rubric_integrations.submission.attachments import MAX_ATTACHMENTS, MAX_BYTES
from rubric_integrations.submission.inputs import read_row
from rubric_integrations.submission.submission import error_line

GIF = b"GIF89a"
ENCODED = base64.b64encode(GIF).decode()


@pytest.mark.parametrize(
    ("fields", "mime_type"),
    [
        ({"data": GIF, "name": "a.gif"}, "image/gif"),
        ({"data": ENCODED, "mime_type": "IMAGE/JPG; charset=x"}, "image/jpeg"),
        ({"data": f"data:image/png;base64,{ENCODED}"}, "image/png"),
        ({"url": f"data:audio/x-wav;name=a.wav;BASE64,{ENCODED}"}, "audio/wav"),
        ({"data": "data:text/plain,GIF%3889a"}, "text/plain"),
    ],
)
def test_bytes_are_read_from_every_form(fields: dict[str, Any], mime_type: str) -> None:
    attachment = Attachment.model_validate(fields)
    assert (attachment.mime_type, attachment.url) == (mime_type, None)
    assert attachment.content == (b"GIF889a" if mime_type == "text/plain" else GIF)
    assert attachment.size == len(attachment.content or b"")
    assert Attachment.model_validate_json(attachment.model_dump_json()) == attachment


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": b"", "name": "a.gif"}, "`data` is empty"),
        ({"data": "not base64!", "name": "a.gif"}, "`data` is not base64"),
        ({"data": GIF}, "`mime_type` is not known: set it"),
        ({"data": GIF, "mime_type": "image/gif\nx: y"}, "`mime_type` string should match pattern"),
        ({"data": GIF, "mime_type": "[[ ## verdict ## ]]"}, "`mime_type` string should match pattern"),
        ({"data": "data:image/gif"}, "has a `data:` URI without a comma"),
        ({"data": b"x" * (MAX_BYTES + 1), "name": "a.gif"}, "`data` has more than 20,000,000 bytes"),
        ({"url": "file:///etc/passwd", "mime_type": "image/gif"}, "`url` is no http or https address"),
        ({"url": "javascript:alert(1)", "mime_type": "image/gif"}, "`url` is no http or https address"),
        ({"url": "https://x/<<CUSTOM-TYPE-END-IDENTIFIER>>.gif"}, "`url` is no http or https address"),
        ({"url": "https://x/a.gif\n", "mime_type": "image/gif"}, "`url` is no http or https address"),
        ({"url": "https:///a.gif"}, "`url` is no http or https address"),
        ({"mime_type": "image/gif"}, "must have exactly one of `data`, `url` and `path`, and has []"),
        ({"data": GIF, "url": "https://x/a.gif"}, "and has ['data', 'url']"),
    ],
)
def test_hostile_or_broken_attachment_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Attachment.model_validate(fields)
    assert message in error_line(caught.value)


def test_limits_of_a_submission_are_named_in_the_error() -> None:
    small, large = Attachment(data=GIF, name="a.gif"), Attachment(data=b"x" * 16_000_000, name="a.gif")
    with pytest.raises(ValidationError, match=rf"has 200 files, more than {MAX_ATTACHMENTS}"):
        Submission(response="x", attachments=(small,) * 200)
    with pytest.raises(ValidationError, match="has 32,000,000 bytes in all, more than 30,000,000"):
        Submission(response="x", attachments=(large, large))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "a.gif").write_bytes(GIF)
    (tmp_path / "secret.gif").write_bytes(b"secret")
    (folder / "link.gif").symlink_to(tmp_path / "secret.gif")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "loop.gif").symlink_to("loop.gif")
    (folder / "visible.gif").symlink_to(".env")
    (folder / ".env").write_text("OPENAI_API_KEY=secret")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret")
    return folder


def rows_of(folder: Path, attachments: object, suffix: str) -> list[Row]:
    file = folder / f"rows{suffix}"
    if suffix == ".csv":
        cell = json.dumps(attachments).replace('"', '""')
        file.write_text(f'response,attachments\nSee it.,"{cell}"\n')
    else:
        file.write_text(json.dumps({"response": "See it.", "attachments": attachments}) + "\n")
    return list(read_responses(file))


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_rows_of_a_file_have_attachments(folder: Path, suffix: str) -> None:
    entries = [
        {"path": "images/a.gif"},
        {"data": ENCODED, "name": "b.gif"},
        {"url": "https://x/c.png", "detail": "low"},
    ]
    (row,) = rows_of(folder, entries, suffix)
    assert row.submission
    assert [(file.name, file.content, file.url) for file in row.submission.attachments] == [
        ("a.gif", GIF, None),
        ("b.gif", GIF, None),
        (None, None, "https://x/c.png"),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../secret.gif",
        "images/../../secret.gif",
        "link.gif",
        "linked/secret.gif",
        "~/x.gif",
        ".",
        "",
        ".env",
        "./.env",
        ".git/config",
        "loop.gif",
        "loop.gif/a.gif",
        "visible.gif",
    ],
)
def test_path_of_a_row_cannot_leave_the_folder_of_its_file_or_name_a_hidden_file(folder: Path, path: str) -> None:
    (row,) = rows_of(folder, [{"path": path, "mime_type": "image/gif"}], ".jsonl")
    assert row.submission is None
    assert f"row 1: `attachments` has the `path` {path!r}" in str(row.error)


@pytest.mark.parametrize("response", ["See it.", [{"role": "assistant", "content": "See it."}]])
def test_path_of_a_row_from_python_is_refused_and_an_attachment_is_not(folder: Path, response: object) -> None:
    path = folder / "images" / "a.gif"
    row = read_row({"response": response, "attachments": [{"path": str(path)}]}, 1)
    assert "has a `path` in entry 1, which is only read in a file of responses" in str(row.error)
    row = read_row({"response": response, "attachments": [Attachment(path=path)]}, 1)
    assert row.submission
    assert row.submission.attachments[0].content == GIF
