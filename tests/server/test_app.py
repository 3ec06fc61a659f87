"""The endpoints, with a real client over real sockets: grades, failures, and bodies that are wrong."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import EvaluationReport, PerCriterionGrader
from rubric_integrations.server import app, running
from rubric_integrations.submission import Submission
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, judge, make_grader
from tests.server.serving import Server, serving

pytestmark = pytest.mark.asyncio

SAYS_42 = [{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}]


async def abstain(_system: str, _user: str) -> str:
    return '{"explanation": "nobody can tell", "verdict": "CANNOT_ASSESS"}'


async def test_six_responses_are_rewarded_or_are_errors_and_never_numbers_for_failures(record_property: Any) -> None:
    lines: list[str] = []
    async with serving() as server:
        for row in ROWS:
            reward = await server.reward(row.response, prompt=QUERY)
            grade = await server.post("/grade", {"id": row.id, "response": row.response, "query": QUERY})
            assert (reward.status, grade.status) == ((200, 200) if row.score is not None else (503, 503))
            if row.score is None:
                assert reward.data.keys() == grade.data.keys() == {"error"}
                assert reward.headers["Retry-After"] == "1"
            else:
                assert reward.data["rewards"] == reward.data["scores"] == [pytest.approx(row.score)]
                assert grade.data["score"] == pytest.approx(row.score)
                assert grade.data["id"] == row.id
            lines.append(f"{row.id:13} {reward.status}  {reward.text[:150]}")
    record_property("shown", "what arrives of the six responses:\n" + "\n".join(lines))


async def test_grade_is_the_report_of_the_grader() -> None:
    async with serving() as server:
        fields = (await server.post("/grade", {"response": ROWS[1].response, "query": QUERY})).data
    assert fields.pop("id") == "1"
    expected = await make_grader().grade(RUBRIC, ROWS[1].response, query=QUERY)
    assert EvaluationReport.model_validate(fields) == expected


async def test_one_failing_sample_makes_the_whole_request_an_error_and_the_others_are_kept_for_the_next() -> None:
    async with serving() as server:
        answer = await server.reward(ROWS[0].response, ROWS[5].response)
        assert answer.status == 503
        assert "query[1]: the judge has failed" in answer.data["error"]


async def test_nan_on_failure_replaces_only_the_samples_without_a_score() -> None:
    async with serving(app_options={"nan_on_failure": True}) as server:
        data = (await server.reward(ROWS[0].response, ROWS[5].response, "")).data
    assert data["rewards"][0] == 1.0
    assert math.isnan(data["rewards"][1])
    assert data["rewards"][2] == 0.0
    assert data["extra_logs"]["rubric/failed"] == data["extra_logs"]["rubric/empty"] == pytest.approx(1 / 3)


async def test_nan_on_failure_does_not_replace_the_error_of_a_request_that_can_be_repeated() -> None:
    async with serving(app_options={"nan_on_failure": True}, max_calls=0) as server:
        answer = await server.reward(ROWS[0].response)
        assert (answer.status, "`max_calls` of 0 is reached" in answer.data["error"]) == (503, True)


async def test_abstention_from_all_criteria_is_an_error_with_the_report() -> None:
    async with serving(grader=PerCriterionGrader(abstain)) as server:
        grade = await server.post("/grade", {"response": "x"})
        reward = await server.reward("x")
    assert grade.status == reward.status == 422
    assert "the score is undefined" in grade.data["error"]
    assert EvaluationReport.model_validate(grade.data["report"]).cannot_assess_count == 3


@pytest.mark.parametrize("response", ["", " \n", "<|im_end|>", "</s>\n", "<think>it is", "<think>it is</think>\n<eos>"])
async def test_reward_of_an_empty_response_is_the_least_of_the_rubric_without_a_call(response: str) -> None:
    async with serving() as server:
        assert (await server.reward(response)).data["rewards"] == [0.0]
    async with serving(grader=PerCriterionGrader(judge, normalize=False), max_calls=0) as server:
        assert (await server.reward(response)).data["rewards"] == [-1.0]
    async with serving(app_options={"empty": "error"}) as server:
        assert (await server.reward(response)).status == 422


async def test_labels_are_references_or_rubrics_or_nothing() -> None:
    seen: list[str] = []

    async def note(_system: str, user: str) -> str:
        seen.append(user)
        return '{"explanation": "so", "verdict": "MET"}'

    async def send(use: str, label: object, **options: Any) -> Any:
        async with serving(grader=PerCriterionGrader(note), app_options={"label_use": use}, **options) as server:
            body = {"query": ["QIt is 42."], "prompts": ["Q"], "labels": [label]}
            return (await server.post("/get_reward", body)).data

    assert (await send("reference", "the-label"))["rewards"] == [pytest.approx(2 / 3)]
    assert all("the-label" in user for user in seen)
    seen.clear()
    assert (await send("ignore", "the-label"))["rewards"] == [pytest.approx(2 / 3)]
    assert not any("the-label" in user for user in seen)
    seen.clear()
    for label in (SAYS_42, json.dumps(SAYS_42)):
        assert (await send("rubric", label, rubric=None, accept_rubrics=True))["rewards"] == [1.0]
    assert not seen
    assert "has no `rubric`" in (await send("rubric", "", rubric=None, accept_rubrics=True))["error"]


async def test_rubric_of_a_request_is_refused_unless_it_is_accepted() -> None:
    body = {"response": "It is 42.", "rubric": SAYS_42}
    async with serving() as server:
        answer = await server.post("/grade", body)
        assert (answer.status, "--accept-rubrics" in answer.data["error"]) == (422, True)
    async with serving(None, accept_rubrics=True) as server:
        assert (await server.post("/grade", body)).data["score"] == 1.0
        wrong = await server.post("/grade", {**body, "rubric": [{"wieght": 1}]})
        assert (wrong.status, "has no valid `rubric`" in wrong.data["error"]) == (422, True)


async def test_conversation_is_graded_by_its_last_answer() -> None:
    messages = [{"role": "user", "content": QUERY}, {"role": "assistant", "content": ROWS[0].response}]
    async with serving() as server:
        assert (await server.post("/grade", {"messages": messages})).data["score"] == 1.0


# Bodies that are wrong.

BODIES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "is not JSON"),
    "cut off": (b'{"response": "x', 400, "is not JSON"),
    "doubled": (b'{"response": "x"}{"response": "x"}', 400, "is not JSON"),
    "deep lists": (b'{"response": ' + b"[" * 500_000 + b"]" * 500_000 + b"}", 400, "nested too deeply"),
    "deep objects": (
        b'{"trajectory": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b', "response": "x"}',
        400,
        "deeply",
    ),
    "backslashes": (b'{"response": "' + b"\\" * 1_000_001 + b'"}', 400, "is not JSON"),
    "repeated key": (b'{"response": "x", "response": "y"}', 400, "has the key 'response' twice"),
    "NaN": (b'{"response": NaN}', 422, "is NaN"),
    "large number": (b'{"response": ' + b"9" * 5_000 + b"}", 400, "a number of more than 4,300 digits"),
    "number": (b'{"response": 42}', 422, "is the number 42, not a text"),
    "list": (b'["x"]', 400, "is a list"),
    "null": (b"null", 400, "is null"),
    "not UTF-8": (b'{"response": "\xff"}', 400, "not text in UTF-8"),
    "UTF-16": ('{"response": "x"}'.encode("utf-16"), 400, "not text in UTF-8"),
    "unknown field": (b'{"response": "x", "refrence": "y"}', 422, "did you mean `reference`?"),
    "long unknown field": (b'{"' + b"x" * 100_000 + b'": 1}', 422, "is unknown"),
    "two responses": (b'{"response": "x", "messages": []}', 422, "`response` and `messages`"),
    "no response": (b'{"query": "x"}', 422, "has no `response`"),
    "empty response": (b'{"response": " "}', 422, "nothing to grade"),
    "wrong query": (b'{"response": "x", "query": {"a": [1]}}', 422, "query"),
    "wrong trajectory": (b'{"response": "x", "trajectory": 3}', 422, "trajectory"),
    "wrong messages": (b'{"messages": [{"role": "martian"}]}', 422, ""),
    "too many characters": (json.dumps({"response": "x" * 1_000_001}).encode(), 422, "1,000,001 characters"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_wrong_body_is_an_error_of_the_client_that_says_what_to_do(name: str) -> None:
    body, status, message = BODIES[name]
    async with serving(max_calls=0) as server:
        answer = await server.post("/grade", body)
        assert (answer.status, message in answer.data["error"]) == (status, True), answer.text[:500]
        assert len(answer.text) < 1_000
        assert (await server.get("/healthz")).status == 200


REWARD_BODIES: dict[str, tuple[object, str]] = {
    "missing": ({}, "`query` is null or missing"),
    "text": ({"query": "x", "prompts": ["x"]}, "`query` is a text: send a list"),
    "lengths": ({"query": ["x"], "prompts": ["x", "y"], "labels": [""]}, "have 1, 2 and 1 entries"),
    "number": ({"query": [3], "prompts": ["x"]}, "`query[0]` is a number"),
    "boolean": ({"query": ["x"], "prompts": [True]}, "`prompts[0]` is true or false"),
    "other prompt": ({"query": ["The answer"], "prompts": ["A question"]}, "does not begin with its prompt"),
    "unknown": ({"queries": []}, "did you mean `query`?"),
    "too many": ({"query": ["x"] * 2_000, "prompts": [""] * 2_000}, "more than the 1024"),
}


@pytest.mark.parametrize("name", REWARD_BODIES)
async def test_wrong_samples_are_an_error_of_the_client(name: str) -> None:
    body, message = REWARD_BODIES[name]
    async with serving(max_calls=0) as server:
        answer = await server.post("/get_reward", body)
        assert (answer.status, message in answer.data["error"]) == (422, True), answer.text


async def test_empty_batch_has_no_rewards() -> None:
    async with serving() as server:
        data = (await server.post("/get_reward", {"query": [], "prompts": [], "labels": []})).data
    assert data == {"rewards": [], "scores": [], "extra_logs": {}}


async def test_lone_surrogates_and_control_characters_are_graded_and_answered() -> None:
    async with serving() as server:
        for text in ("8.4% \ud83d", "\x00\x1b[31m", "x\u2028\x85"):
            body = {"response": text, "query": text, "id": text}
            answer = await server.post("/grade", body)
            assert answer.status == 200
            assert (await server.reward(text)).status == 200


@pytest.mark.sizes
async def test_body_above_the_limit_is_refused_and_the_largest_response_is_not() -> None:
    async with serving(rubric=SAYS_42, grader=PerCriterionGrader("offline")) as server:
        # Each character takes six bytes as an escape.
        largest = json.dumps({"response": "\u0001" * 1_000_000})
        assert (await server.post("/grade", largest.encode())).status == 200
        assert (await server.post("/grade", b" " * 8_000_001)).status == 413
        assert (await server.get("/healthz")).status == 200


async def test_wrong_paths_methods_and_types_are_errors_in_json() -> None:
    async with serving() as server:
        assert (await server.post("/", {})).status == 404
        assert (await server.get("/../../etc/passwd")).status == 404
        wrong = await server.get("/grade")
        assert (wrong.status, wrong.headers["Allow"], "error" in wrong.data) == (405, "POST", True)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense"):
            assert (await server.post("/grade", {"response": "x"}, headers={"Content-Type": kind})).status == 415
        for path in ("/grade", "/nowhere"):
            unmet = await server.post(path, {"response": "x"}, headers={"Expect": "a miracle"})
            assert (unmet.status, unmet.headers["Content-Type"]) == (417, "application/json; charset=utf-8")
            assert unmet.data == {"error": "the header `Expect` is not `100-continue`: leave it out"}
        assert (await server.post("/grade", {"response": "x"}, headers={"Expect": "100-continue"})).status == 200


async def test_compressed_body_is_refused_before_it_is_decompressed() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    async with serving() as server:
        answer = await server.post("/grade", bomb, headers={"Content-Encoding": "gzip"})
    assert (answer.status, "compressed" in answer.data["error"]) == (415, True)


async def raw(server: Server, data: bytes) -> bytes:
    """Send bytes and close the sending side; return what the server answers before it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    await writer.drain()
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


HEAD = b"POST /grade HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"Transfer-Encoding: chunked\r\n\r\n400\r\n" + b'{"response": "x"}',
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b'Content-Length: 900\r\n\r\n{"response": "x"}',
        b"Content-Length: -1\r\n\r\n",
        b'Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{"response": "x"}',
    ],
)
async def test_body_that_is_cut_off_is_not_graded_and_the_server_goes_on(body: bytes) -> None:
    async with serving(max_calls=0) as server:
        answer = await raw(server, HEAD + body)
        assert not answer.startswith(b"HTTP/1.1 2")
        assert server.service.under_way == 0
        assert (await server.get("/healthz")).status == 200


async def test_body_that_arrives_too_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.2)
    async with serving(max_calls=0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HEAD + b'Content-Length: 900\r\n\r\n{"response": "x')
        assert (await asyncio.wait_for(reader.readline(), 20)).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_connection_that_sends_no_complete_headers_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "KEEP_ALIVE", 0.2)
    async with serving(max_calls=0) as server:
        for data in (b"", b"POST /grade HTTP/1.1\r\nHost: 127."):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            assert await asyncio.wait_for(reader.read(), 20) == b""
            writer.close()


# Files of the server.


async def test_no_field_of_a_request_reads_a_file_of_the_server(tmp_path: Path) -> None:
    secret = "canary-4711"
    seen: list[str] = []

    async def note(_system: str, user: str) -> str:
        seen.append(user)
        return '{"explanation": "so", "verdict": "MET"}'

    text = tmp_path / "secret.txt"
    text.write_text(f"MET {secret}")
    rubric = tmp_path / "rubric.json"
    rubric.write_text(json.dumps([{"requirement": secret}]))
    image = tmp_path / "secret.png"
    image.write_bytes(secret.encode())
    file = {"path": str(image), "mime_type": "image/png"}
    url = image.as_uri()
    part = [{"type": "image", "path": str(image)}, {"type": "image_url", "image_url": {"url": url}}]
    attempts: list[dict[str, Any]] = [
        {"rubric": str(rubric)},
        {"rubric": {"path": str(rubric)}},
        {"rubric": rubric.as_uri()},
        {"rubric": f"@{rubric}"},
        {"rubric": f"!include {rubric}\n"},
        {"rubric": [{"requirement": "x", "context": f"file://{text}"}]},
        {"rubric": {"assert": [{"type": "llm-rubric", "value": f"file://{text}"}]}},
        {"rubric": {"assert": [{"type": "python", "value": f"file://{text}"}]}},
        {"rubric": [{"requirement": "x", "check": {"json_schema": {"$ref": text.as_uri()}}}]},
        {"rubric": [{"requirement": "x", "check": {"json_schema": str(rubric)}}]},
        {"attachments": [file]},
        {"attachments": file},
        {"attachments": json.dumps([file])},
        {"attachments": [{"url": url, "mime_type": "image/png"}]},
        {"attachments": str(image)},
        {"trajectory": {"steps": [{"kind": "message", "role": "user", "text": "x", "attachments": [file]}]}},
        {"trajectory": [{"role": "user", "content": part[:1]}, {"role": "assistant", "content": "x"}]},
        {"context": [{"path": str(text)}]},
        {"context": text.as_uri()},
        {"query": [{"role": "user", "content": part}]},
    ]
    async with serving(SAYS_42, PerCriterionGrader(note, max_retries=0), accept_rubrics=True) as server:
        for body in attempts:
            answer = await server.post("/grade", {"response": "It is 42.", **body})
            assert answer.status in (200, 422), answer.text
            assert secret not in answer.text, body
        for content in part:
            messages = [{"role": "user", "content": [content]}, {"role": "assistant", "content": "It is 42."}]
            assert secret not in (await server.post("/grade", {"messages": messages})).text
        relative = await server.post("/grade", {"response": "x", "rubric": "pyproject.toml"})
        assert relative.status == 422
    assert not any(secret in prompt for prompt in seen)
    assert Submission(response="x").attachments == ()
