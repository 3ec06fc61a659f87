"""Attachments: their part of a stored judgment's key, models that cannot be sent them, and what a call may cost."""

from __future__ import annotations

import base64
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage

from rubric_integrations import PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge, Question, as_example
from rubric_integrations.judges.store import StoredJudge
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.scoring import JudgeFailure, LabelledJudgment
from rubric_integrations.submission import Attachment
from tests.fakes import FakeModel, FakeStore
from tests.judges.prompts.test_signatures_cache_control import claude
from tests.judges.questions import ANSWER_TO_EVERYTHING, BINARY, MET_REPLY, RUBRIC, judge_at
from tests.judges.test_fast_path_attachments import CHART, NOTES, ONLINE, PDF, PNG, submission
from tests.langchain.helpers import chat_model
from tests.openai_server import OpenAIServer, Reply

ONE_CRITERION = Rubric([BINARY])
OTHER_PIXEL = Attachment(data=PNG[:-1] + b"\x00", name="chart.png")


async def key_of(*attachments: Attachment, response: str = "See [attachment 1].") -> str:
    store = FakeStore()
    judge = StoredJudge(LMJudge("openai/gpt-4.1"), store)
    return judge._key("criterion", Question(submission(*attachments, response=response), BINARY), [])  # pyright: ignore[reportPrivateUsage]


async def test_key_depends_on_every_byte_and_contains_no_bytes() -> None:
    changed = [
        (),
        (CHART,),
        (OTHER_PIXEL,),
        (CHART, OTHER_PIXEL),
        (OTHER_PIXEL, CHART),
        (Attachment(data=PNG, name="other.png"),),
        (Attachment(data=PNG, name="chart.png", mime_type="image/webp"),),
        (Attachment(data=PNG, name="chart.png", detail="low"),),
        (ONLINE,),
    ]
    keys = [await key_of(*attachments) for attachments in changed]
    assert len(set(keys)) == len(changed)
    assert await key_of(Attachment(data=base64.b64encode(PNG).decode(), name="chart.png")) == keys[1]
    # The same as before submissions had attachments.
    assert keys[0] == await key_of()


def test_fingerprint_depends_on_the_attachments_of_examples() -> None:
    def fingerprint(*attachments: Attachment) -> str | None:
        label = LabelledJudgment(submission=submission(*attachments), criterion=BINARY, verdict="MET")
        return LMJudge("openai/gpt-4.1", examples=[label]).fingerprint()

    assert len({fingerprint(), fingerprint(CHART), fingerprint(OTHER_PIXEL)}) == 3


def test_ledger_stores_the_bytes_of_a_file_once_and_rescores_its_rows(server: OpenAIServer, tmp_path: Path) -> None:
    image = Attachment(data=PNG * 2_000, name="chart.png")
    submissions = [submission(image, ONLINE, response=f"[attachment 1] number {number}") for number in range(5)]
    with Ledger(tmp_path / "run.sqlite") as ledger:
        grader = PerCriterionGrader(judge_at(server))
        before = [row.score for row in grade_many(submissions, ONE_CRITERION, grader, ledger=ledger)]
        again = list(rescore(ledger, ONE_CRITERION))
    assert [row.score for row in again] == before == [1.0] * 5
    assert [row.row.submission for row in again] == submissions
    assert len(server.calls) == 5
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as db:
        assert db.execute("SELECT content FROM files").fetchall() == [(image.content,)]
        rows = db.execute("SELECT submission FROM submissions").fetchall()
        assert all(len(text) < 1_000 for (text,) in rows)


def test_every_grader_sends_the_attachments(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text=ANSWER_TO_EVERYTHING)
    one = Rubric([BINARY])
    for make_grader in (PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader):
        server.calls.clear()
        one.grade_sync(submission(CHART), grader=make_grader(judge_at(server)))
        assert [base64.b64encode(PNG) in call.raw for call in server.calls] == [True]


def test_anthropic_caches_the_prompt_up_to_the_end_of_the_attachments(server: OpenAIServer) -> None:
    rubric = Rubric.from_dict([{"weight": 1, "requirement": f"Has axis {number}"} for number in range(2)])
    list(grade_many([submission(CHART)], rubric, PerCriterionGrader(claude(server))))
    blocks = [block for message in server.calls[0].body["messages"] for block in message["content"]]
    assert [block["type"] for block in blocks] == ["text", "text", "image", "text"]
    assert [block["type"] for block in blocks if "cache_control" in block] == ["image"]
    assert blocks[-1]["text"].startswith("[[ ## kind ## ]]")


def test_refusal_of_images_is_a_failure_of_these_rows_alone(server: OpenAIServer) -> None:
    refusal = b'{"error": {"message": "this model does not support image input"}}'
    server.script = lambda call: Reply(status=400, raw=refusal) if b"image_url" in call.raw else Reply("MET")
    rows = [submission(CHART, response=f"row {number}") for number in range(8)] + [Submission(response="text")]
    grader = PerCriterionGrader(judge_at(server), max_retries=0)
    results = list(grade_many(rows, ONE_CRITERION, grader))
    assert [row.score for row in results] == [None] * 8 + [1.0]
    assert "does not support image input" in str(results[0].judge_error)
    assert "1 attachments, image/png: use a judge that reads these types" in str(results[0].judge_error)


async def test_function_of_two_texts_cannot_be_sent_attachments() -> None:
    model = FakeModel(MET_REPLY)
    judge = LMJudge(model)
    with pytest.raises(JudgeFailure, match="which a function of two texts cannot be sent") as caught:
        await judge.judge(Question(submission(CHART), BINARY))
    assert (caught.value.kind, caught.value.about_text) == ("config", True)
    assert not model.prompts
    assert (await judge.judge(Question(submission(), BINARY))).verdict == "MET"


class RecordingModel(FakeMessagesListChatModel):
    """A scripted chat model that records what it was sent."""

    received: list[Any]

    def _generate(self, messages: Any, *arguments: Any, **settings: Any) -> Any:
        self.received.append(messages[-1].content)
        return super()._generate(messages, *arguments, **settings)


async def test_chat_model_receives_content_blocks_of_langchain() -> None:
    model = RecordingModel(responses=[AIMessage(MET_REPLY)], received=[])
    speech = Attachment(data=b"RIFF", name="speech.wav")
    assert (await LMJudge(model).judge(Question(submission(CHART, PDF, speech), BINARY))).verdict == "MET"
    encoded = [base64.b64encode(file.content or b"").decode() for file in (CHART, PDF, speech)]
    assert [block for block in model.received[0] if block["type"] != "text"] == [
        {"type": "image", "base64": encoded[0], "mime_type": "image/png"},
        {"type": "file", "base64": encoded[1], "mime_type": "application/pdf", "filename": "document.pdf"},
        {"type": "audio", "base64": encoded[2], "mime_type": "audio/wav"},
    ]
    with pytest.raises(JudgeFailure, match=r"has only a URL, and the client of .* may download it on this machine"):
        await LMJudge(model).judge(Question(submission(ONLINE), BINARY))


async def test_recording_that_langchain_has_no_form_for_is_a_failure_about_the_submission() -> None:
    model = RecordingModel(responses=[AIMessage(MET_REPLY)], received=[])
    speech = Attachment(data=b"fLaC", name="speech.flac")
    with pytest.raises(JudgeFailure, match=r"audio/flac|audio/x-flac") as caught:
        await LMJudge(model).judge(Question(submission(speech), BINARY))
    assert (caught.value.kind, caught.value.about_text) == ("config", True)
    assert not model.received


def test_optimizer_and_simpler_requests_send_the_attachments(server: OpenAIServer) -> None:
    refusal = b'{"error": {"message": "response_format is not supported"}}'
    server.script = lambda call: Reply(status=400, raw=refusal) if "response_format" in call.body else Reply("MET")
    label = LabelledJudgment(submission=submission(CHART), criterion=BINARY, verdict="MET")
    assert judge_at(server)(**as_example(label).inputs()).verdict == "MET"
    assert ONE_CRITERION.grade_sync(submission(CHART), grader=PerCriterionGrader(judge_at(server))).score == 1.0
    assert all(base64.b64encode(PNG) in call.raw for call in server.calls)
    with pytest.raises(Exception, match="a function of two texts cannot be sent attachments"):
        LMJudge(FakeModel(MET_REPLY))(**as_example(label).inputs())


async def test_chat_openai_sends_the_files(server: OpenAIServer) -> None:
    speech = Attachment(data=b"RIFF", name="speech.wav")
    question = Question(submission(CHART, ONLINE, PDF, speech), BINARY)
    await LMJudge(chat_model(server, lambda _call: Reply("MET"))).judge(question)
    blocks = [block for block in server.calls[0].body["messages"][-1]["content"] if block["type"] != "text"]
    data = [base64.b64encode(file.content or b"").decode() for file in (CHART, PDF, speech)]
    assert blocks == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data[0]}"}},
        {"type": "image_url", "image_url": {"url": ONLINE.url}},
        {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{data[1]}", "filename": "document.pdf"}},
        {"type": "input_audio", "input_audio": {"data": data[2], "format": "wav"}},
    ]


@pytest.mark.parametrize("model", ["gemini/gemini-2.5-flash", "bedrock/claude", "anthropic/claude-sonnet-4-5"])
async def test_url_is_refused_where_the_client_may_download_it(model: str) -> None:
    with pytest.raises(JudgeFailure, match=re.escape(f"the client of {model!r} may download it")):
        await LMJudge(model, api_key="k").judge(Question(submission(ONLINE), BINARY))


def test_offline_judge_abstains_on_what_an_attachment_may_contain() -> None:
    rubric = Rubric.from_dict([{"weight": 1, "requirement": "States the margin as 17.2%"}])
    (row,) = rubric.grade_sync(submission(CHART), grader=PerCriterionGrader("offline")).criteria
    assert (row.verdict, row.reason) == ("CANNOT_ASSESS", "the text does not mention 17.2%; attachments are not read")


def test_spend_limit_counts_attachments(server: OpenAIServer) -> None:
    def started(max_cost: float, *attachments: Attachment) -> int:
        server.calls.clear()
        judge = judge_at(server, model="openai/gpt-4.1-mini", max_tokens=10)
        grader = PerCriterionGrader(judge, max_retries=0)
        list(grade_many([submission(*attachments)], ONE_CRITERION, grader, max_cost=max_cost))
        return len(server.calls)

    # 100,000 tokens of an image are $0.04, and 2,000,000 of a text are $0.80.
    large = Attachment(data=b"n\n" * 500_000, name="large.csv")
    assert [started(0.03), started(0.03, CHART), started(0.06, CHART)] == [1, 0, 1]
    assert [started(0.5, large), started(1, large)] == [0, 1]
    assert started(0.06, NOTES) == 1


def test_compiled_judge_with_attachments_in_its_examples_is_not_saved(tmp_path: Path) -> None:
    judge = LMJudge("openai/gpt-4.1")
    judge.criterion.demos = [
        as_example(LabelledJudgment(submission=submission(CHART), criterion=RUBRIC.criteria[0], verdict="MET"))
    ]
    with pytest.raises(ValueError, match="`criterion` has few-shot examples with attachments"):
        judge.save(tmp_path / "judge.json")
