"""Who may use the server: tokens, web pages and names of other hosts."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import pytest

from rubric_integrations.server.app import check_token, is_loopback
from tests.server.serving import Answer, Server, serving

TOKEN = "0123456789-secret-token"
WITH_TOKEN = {"token": TOKEN}
BODY = {"response": "8.4%, says the annual report"}


async def send(server: Server, headers: dict[str, str]) -> Answer:
    return await server.post("/grade", BODY, headers=headers)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "header",
    [
        None, "", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \udcff\udcfe",
        f"Digest {TOKEN}", TOKEN, "Basic !!!", "Basic eDp4", f"Basic {TOKEN}",
    ],
)  # fmt: skip
async def test_request_without_the_token_is_refused_and_makes_no_call(header: str | None) -> None:
    async with serving(app_options=WITH_TOKEN, max_calls=0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        line = "" if header is None else f"Authorization: {header}\r\n"
        head = f"POST /grade HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{line}Content-Length: 2\r\n\r\n{{}}"
        writer.write(head.encode("utf-8", "surrogateescape"))
        answer = (await reader.read()).decode()
        writer.close()
    assert answer.startswith("HTTP/1.1 401")
    assert "WWW-Authenticate: Bearer" in answer
    assert TOKEN not in answer


@pytest.mark.asyncio
async def test_token_is_accepted_as_a_header_and_in_a_url_and_health_needs_none() -> None:
    async with serving(app_options=WITH_TOKEN) as server:
        assert (await send(server, {"Authorization": f"Bearer {TOKEN}"})).status == 200
        assert (await send(server, {"Authorization": f"bearer  {TOKEN}", "Host": "grader.example"})).status == 200
        # OpenRLHF sends no headers of the user, but its client makes one of a URL like this.
        url = f"http://any:{TOKEN}@127.0.0.1:{server.port}/grade"
        async with aiohttp.ClientSession() as session, session.post(url, json=BODY) as response:
            assert response.status == 200
        assert (await server.get("/healthz")).status == 200
        assert (await server.get("/metrics")).status == 401


@pytest.mark.asyncio
async def test_token_is_in_no_log_and_no_answer_also_of_a_request_that_is_not_http(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[bytes] = []
    async with serving(app_options=WITH_TOKEN, max_calls=0) as server:
        answers.append((await send(server, {"Authorization": f"Bearer {TOKEN}"})).text.encode())
        for line in (f"Authorization: Bearer {TOKEN}\x00", f"Auth orization: {TOKEN}", "A: " + TOKEN * 1_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n".encode())
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 10)
            writer.close()
        answers.append((await server.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})).text.encode())
    output = capfd.readouterr()
    assert TOKEN not in caplog.text + output.out + output.err + b"".join(answers).decode()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_request_of_a_web_page_is_refused_also_with_the_token(headers: dict[str, str]) -> None:
    for options in (None, WITH_TOKEN):
        async with serving(app_options=options, max_calls=0) as server:
            answer = await send(server, {**headers, "Authorization": f"Bearer {TOKEN}"})
            assert answer.status == 403
            assert "Access-Control-Allow-Origin" not in answer.headers
            async with server.session.options(server.url + "/grade", headers=headers) as preflight:
                assert preflight.status == 403


@pytest.mark.asyncio
async def test_host_of_another_name_is_refused_without_a_token() -> None:
    async with serving(max_calls=0) as server:
        for host in (
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "",
            "[::2]:80",
        ):
            assert (await send(server, {"Host": host})).status == 403, host
            assert (await server.get("/healthz", headers={"Host": host})).status == 403, host
    async with serving() as server:
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1", "[::1]:8000", "127.3.2.1:1"):
            assert (await send(server, {"Host": host})).status == 200, host


@pytest.mark.parametrize(
    "token", ["", "short", " " * 40, "x" * 15, "0123456789 abcdefgh", "ü" * 20, "0123456789abcdef\n\x00"]
)
def test_token_that_is_short_or_cannot_be_sent_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ValueError, match="at least 16") as error:
        check_token(token)
    assert not token.strip() or token.strip() not in str(error.value)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com", "127.0.0.1.nip.io"]
)
def test_host_that_other_machines_reach_is_no_loopback(host: str) -> None:
    assert not is_loopback(host)
