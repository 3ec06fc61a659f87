"""The endpoints of the server, the authentication of requests, and the parsing of request bodies.

If the server has a token, each request must contain the token. Without a token, only programs on this machine may send
requests, but not web pages. Request bodies are untrusted. They must be strict JSON, and they cannot name a file of this
machine.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import difflib
import hmac
import ipaddress
import json
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from statistics import fmean
from typing import Any, Literal, NamedTuple, cast

from aiohttp import web
from aiohttp.web_exceptions import HTTPRequestEntityTooLarge

from rubric_integrations._util.json import has_more_values, parse_json
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.server.service import GradingService, RequestProblem, metrics_text
from rubric_integrations.submission.inputs import Row, read_row
from rubric_integrations.submission.thinking import response_of, split_completion

MIN_TOKEN = 16
"""The smallest number of characters of a token, which makes it hard to guess."""

_TOKEN = re.compile(r"[!-~]+")


def check_token(token: str) -> str:
    """Check the token that requests to the server need, and return it without white space at its ends.

    Raises:
        ValueError: The token is too short, or has characters that an HTTP header cannot contain. The message does not
            show the token.

    Example:
        >>> check_token(" 0123456789abcdef ")
        '0123456789abcdef'
    """
    token = token.strip()
    if len(token) < MIN_TOKEN or not _TOKEN.fullmatch(token):
        raise ValueError(
            f"the token has {len(token)} characters: it needs at least {MIN_TOKEN}, all of them visible ASCII, such as "
            "those of `openssl rand -hex 32`"
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether a host name or address can be reached only from this machine.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def check_access(request: web.Request, token: str | None) -> None:
    """Check that a request may use the server.

    Args:
        request: The request.
        token: The required token, or None if the server listens only on this machine and needs no token.

    Raises:
        RequestProblem: (403) The request comes from a web page, or the server has no token and the `Host` header is not
            this machine. (401) The token is missing or wrong.
    """
    if "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none":
        raise RequestProblem(403, "the request comes from a web page: only programs may use this server")
    if token is not None:
        if not _has_token(request.headers.get("Authorization", ""), token):
            raise RequestProblem(401, "the token is missing or wrong: send `Authorization: Bearer TOKEN`")
    elif not is_loopback(_host_of(request)):
        # DNS rebinding: a page could give its own name the address 127.0.0.1 and then have the origin of this server.
        raise RequestProblem(
            403, "the header `Host` is not that of this machine: use http://127.0.0.1, or start the server with a token"
        )


def _has_token(header: str, token: str) -> bool:
    scheme, _, credential = header.partition(" ")
    if scheme.lower() == "basic":
        # HTTP clients send this for http://name:TOKEN@host, if the user cannot set a header.
        try:
            credential = base64.b64decode(credential, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(credential.strip().encode("utf-8", "surrogateescape"), token.encode())


def _host_of(request: web.Request) -> str:
    host = request.headers.get("Host", "")
    return re.sub(r":\d*\Z", "", host)


LabelUse = Literal["reference", "rubric", "ignore"]
"""The use of OpenRLHF's labels: as reference responses, as rubrics, or not at all."""

SUBMISSION_FIELDS = (
    "id", "response", "messages", "respond", "thinking", "query", "reference", "context", "attachments", "trajectory",
    "rubric",
)  # fmt: skip
"""The fields of the body of `/grade`: the fields of a file of responses, without their other names."""

BODY_SECONDS = 60.0
"""The number of seconds within which the complete body of a request must arrive."""

MAX_VALUES = 100_000
"""The largest number of JSON values in a request body, enough for about 30,000 messages."""

# The number of characters of an unknown field's name that an error shows.
_MAX_NAME = 40


class Sample(NamedTuple):
    """One sample (a prompt and a response) of a request to `/get_reward`.

    Attributes:
        row: The row to grade. None if the response is empty, or if it ends within its thinking.
        rubric: The sample's own rubric. If `label_use` is `rubric`, this is the label of the sample. Otherwise None.
    """

    row: Row | None
    rubric: Any = None


async def read_body(request: web.Request) -> bytes:
    """Read the body of a request.

    Raises:
        RequestProblem: (415) The body is not declared as JSON, or is compressed. (413) The body is too large. (408) The
            body takes too long to arrive. (400) The body is incomplete.
    """
    if request.content_type != "application/json":
        # A web page may send other types without a CORS preflight request.
        raise RequestProblem(415, f"the body has the type {request.content_type!r}: send JSON, as `application/json`")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise RequestProblem(415, "the body is compressed: send it as it is, because a small one could fill the memory")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except HTTPRequestEntityTooLarge:
        raise RequestProblem(
            413, "the body is larger than the server accepts: send less, or start it with a larger `--max-body`"
        ) from None
    except TimeoutError:
        raise RequestProblem(408, f"the body did not arrive within {BODY_SECONDS:g} s: send it again") from None
    except (web.RequestPayloadError, ConnectionError):
        raise RequestProblem(400, "the body is cut off: send it again") from None


def parse_body(body: bytes) -> Mapping[str, Any]:
    """Parse the body of a request, which must be a JSON object.

    Raises:
        RequestProblem: (400) The body is not a JSON object. (413) The body has more than 100,000 values.

    Example:
        >>> parse_body(b'{"response": "It is 42."}')
        {'response': 'It is 42.'}
    """
    try:
        value = parse_json(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RequestProblem(400, f"the body is not text in UTF-8 (byte {error.start}): encode it") from None
    except ValueError as error:
        raise RequestProblem(400, f"the body {error}") from None
    if not isinstance(value, Mapping):
        raise RequestProblem(400, f'the body is {_kind(value)}: send an object, such as {{"response": "..."}}')
    if has_more_values(value, MAX_VALUES):
        raise RequestProblem(413, f"the body has more than {MAX_VALUES:,} values, such as messages: send less at once")
    return value


def read_submission(data: Mapping[str, Any]) -> Row:
    """Convert the body of a request to `/grade` to a row.

    Raises:
        RequestProblem: (422) A field is unknown, or there is nothing to grade.
    """
    _refuse_unknown(data, SUBMISSION_FIELDS)
    if data.get("response") is not None and data.get("messages") is not None:
        raise RequestProblem(422, "the body has `response` and `messages`: send one, because only one can be graded")
    try:
        row = read_row(data, 1)
    except (ValueError, TypeError, RecursionError) as error:
        raise RequestProblem(422, str(error) or "the body is nested too deeply") from None
    if row.submission is None:
        raise RequestProblem(422, (row.error or "").removeprefix(f"row {row.id}").lstrip(": "))
    return row


def read_samples(data: Mapping[str, Any], label_use: LabelUse) -> list[Sample]:
    """Convert the body of a request to `/get_reward` to samples.

    Raises:
        RequestProblem: (422) The lists are missing or differ in length, or a sample cannot be read.
    """
    _refuse_unknown(data, ("query", "prompts", "labels"))
    queries, prompts = _list_of(data, "query"), _list_of(data, "prompts")
    raw_labels = _list_of(data, "labels") if data.get("labels") is not None else [None] * len(queries)
    if not len(queries) == len(prompts) == len(raw_labels):
        raise RequestProblem(
            422,
            f"`query`, `prompts` and `labels` have {len(queries)}, {len(prompts)} and {len(raw_labels)} entries: send "
            "as many of each, or a response would be graded with the prompt of another",
        )
    entries = zip(queries, prompts, raw_labels, strict=True)
    return [_sample(*entry, number, label_use) for number, entry in enumerate(entries)]


def _sample(query: object, prompt: object, label: object, number: int, label_use: LabelUse) -> Sample:
    """Convert one entry of an OpenRLHF request to a sample."""
    for name, value in (("query", query), ("prompts", prompt)):
        if not isinstance(value, str):
            raise RequestProblem(422, f"`{name}[{number}]` is {_kind(value)}: send a text")
    try:
        response = response_of(cast("str", query), cast("str", prompt))
    except ValueError as error:
        raise RequestProblem(422, f"`query[{number}]`: {error}: send `query` and `prompts` as OpenRLHF does") from None
    label = None if isinstance(label, float) and math.isnan(label) else label
    rubric = label if label_use == "rubric" and label != "" else None
    thinking, output, *_ = split_completion(response)
    if not output.strip():
        return Sample(None, rubric)
    parts, reference = {"thinking": thinking, "output": output}, None
    if label_use == "reference" and label not in (None, ""):
        reference = label if isinstance(label, str) else json.dumps(label, ensure_ascii=False)
    row = read_row({"response": parts, "query": prompt or None, "reference": reference}, number)
    if row.submission is None:
        raise RequestProblem(422, f"`query[{number}]`: {(row.error or '').removeprefix(f'row {number}').lstrip(': ')}")
    # A policy could learn to persuade the judge in its thinking.
    submission = row.submission.model_copy(update={"hide_thinking": True})
    return Sample(row._replace(submission=submission, rubric=rubric), rubric)


def _list_of(data: Mapping[str, Any], name: str) -> list[object]:
    value = data.get(name)
    if not isinstance(value, list):
        raise RequestProblem(422, f"`{name}` is {_kind(value)}: send a list with an entry for each sample")
    return value


def _refuse_unknown(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in data:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
            shown = name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "..."
            raise RequestProblem(422, f"the field {shown!r} is unknown, and would have no effect: {hint}")


def _kind(value: object) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    if value is None:
        return "null or missing"
    return names.get(type(value), "a number")


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# This endpoint needs no token: load balancers send none, and the state is not a secret.
_OPEN_TO_ALL = "/healthz"

_logger = logging.getLogger(__name__)


def make_app(
    service: GradingService,
    *,
    token: str | None = None,
    label_use: LabelUse = "reference",
    empty: Literal["least", "error"] = "least",
    nan_on_failure: bool = False,
    max_body: int = 8_000_000,
) -> web.Application:
    """Create an `aiohttp` application that serves grades over HTTP.

    It has the endpoints `POST /grade`, `POST /get_reward`, `GET /healthz` and `GET /metrics`. If a submission gets no
    score, the response is an HTTP error and never a number. If a request has several samples, one sample without a
    score is enough for the error.

    Args:
        service: The service that grades the submissions.
        token: The token that requests need, at least 16 characters. Without a token, let the server listen only on this
            machine. The server then refuses requests with another host in the `Host` header.
        label_use: The use of the labels of `/get_reward`: a reference response (`reference`), a rubric for each sample
            (`rubric`), or no use (`ignore`).
        empty: The result of `/get_reward` for a response without text after its thinking. `least` is the lowest reward
            that the rubric allows, which teaches a policy not to be silent. `error` is an HTTP error.
        nan_on_failure: Whether `/get_reward` returns NaN for a sample without a score, instead of an HTTP error. Use it
            only for OpenRLHF with dynamic filtering, which drops the group of the sample. Without dynamic filtering,
            NaN would spread to other samples.
        max_body: The largest size of a request body in bytes, at least 1.

    Raises:
        ValueError: The token is too short or cannot be sent in a header, or `max_body` is out of range.

    Example:
        >>> from rubric_integrations import PerCriterionGrader
        >>> says_42 = [{"requirement": "Says 42", "check": {"number": 42}}]
        >>> app = make_app(GradingService(says_42, PerCriterionGrader("offline")))
        >>> sorted({str(route.resource.canonical) for route in app.router.routes()})
        ['/get_reward', '/grade', '/healthz', '/metrics']
    """
    if max_body < 1:
        raise ValueError(f"`max_body` must be at least 1 byte, got {max_body!r}: no request would be accepted")
    endpoints = _Endpoints(service, label_use, empty, nan_on_failure)
    app = web.Application(
        middlewares=[_guard(service, None if token is None else check_token(token))], client_max_size=max_body
    )
    app.on_response_prepare.append(_as_json)
    app.router.add_post("/grade", endpoints.grade)
    app.router.add_post("/get_reward", endpoints.get_reward)
    app.router.add_get("/healthz", endpoints.healthz)
    app.router.add_get("/metrics", endpoints.metrics)
    return app


class _Endpoints:
    def __init__(
        self, service: GradingService, label_use: LabelUse, empty: Literal["least", "error"], nan_on_failure: bool
    ):
        self._service, self._empty = service, empty
        self._label_use: LabelUse = label_use
        self._nan_on_failure = nan_on_failure

    async def grade(self, request: web.Request) -> web.Response:
        body = await read_body(request)
        row = await self._service.read(lambda: read_submission(parse_body(body)), len(body))
        report = await self._service.grade(row)
        return _json({"id": row.id, **report.model_dump(mode="json")})

    async def get_reward(self, request: web.Request) -> web.Response:
        body = await read_body(request)
        samples = await self._service.read(lambda: read_samples(parse_body(body), self._label_use), len(body))
        # Checked before any grade begins. Otherwise each attempt of a request that is too large would cost calls.
        self._service.check_capacity(len(samples))
        results = await asyncio.gather(*map(self._reward, samples), return_exceptions=True)
        rewards: list[float] = []
        logs: list[dict[str, float]] = []
        for number, result in enumerate(results):
            if isinstance(result, RequestProblem) and not (self._nan_on_failure and result.is_outcome):
                raise result.about(f"query[{number}]")
            if isinstance(result, BaseException) and not isinstance(result, RequestProblem):
                raise result
            reward, log = (math.nan, _logs(None, has_failed=True)) if isinstance(result, RequestProblem) else result
            rewards.append(reward)
            logs.append(log)
        means = {name: fmean(log[name] for log in logs) for name in (logs[0] if logs else {})}
        # NaN is not JSON, but OpenRLHF reads it. It occurs only with `nan_on_failure`.
        return _json({"rewards": rewards, "scores": rewards, "extra_logs": means}, allow_nan=self._nan_on_failure)

    async def healthz(self, _request: web.Request) -> web.Response:
        state = self._service.state
        return _json({"status": state}, 200 if state == "ok" else 503)

    async def metrics(self, _request: web.Request) -> web.Response:
        text = metrics_text(self._service)
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _reward(self, sample: Sample) -> tuple[float, dict[str, float]]:
        if sample.row is not None:
            report = await self._service.grade(sample.row)
            return cast("float", report.score), _logs(report)
        if self._empty == "error":
            raise RequestProblem(422, "has no text after the prompt and the thinking: there is nothing to grade")
        rubric = await self._service.rubric_of(Row("empty", None, rubric=sample.rubric))
        return self._service.grader.least_score(rubric), _logs(None)


def _guard(service: GradingService, token: str | None) -> Any:
    """Make the middleware that checks the token, turns exceptions into responses, and counts requests."""

    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        begun_at = time.monotonic()
        resource = request.match_info.route.resource
        endpoint = resource.canonical if resource else "other"
        try:
            if token is None or endpoint != _OPEN_TO_ALL:
                check_access(request, token)
            response = await handler(request)
        except RequestProblem as problem:
            if problem.status >= 500:
                _logger.warning("%s is answered with %d: %a", endpoint, problem.status, problem.message)
            response = _error(problem)
        except web.HTTPException as error:
            response = _error(RequestProblem(error.status, _ROUTING.get(error.status, error.reason)))
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
        except Exception:
            _logger.exception("%s has failed", endpoint)
            response = _error(RequestProblem(500, "the server has failed: see its output"))
        service.metrics.count_request(endpoint, response.status, time.monotonic() - begun_at)
        return response

    return guard


async def _as_json(_request: web.Request, response: web.StreamResponse) -> None:
    """Convert an error that aiohttp raises before it calls the middleware, which is 417 for the header `Expect`."""
    if isinstance(response, web.HTTPException):
        error = _error(RequestProblem(response.status, _ROUTING.get(response.status, response.reason)))
        response.body, response.content_type = error.body, error.content_type
        response.headers["Content-Length"] = str(len(cast("bytes", error.body)))


_ROUTING = {
    404: "there is no such path: send POST to /grade or /get_reward, or GET to /healthz or /metrics",
    405: "the path exists for another method: send POST to /grade and /get_reward, and GET to /healthz and /metrics",
    417: "the header `Expect` is not `100-continue`: leave it out",
}


def _error(problem: RequestProblem) -> web.Response:
    response = _json(problem.to_dict(), problem.status)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _json(data: Any, status: int = 200, *, allow_nan: bool = False) -> web.Response:
    text = json.dumps(data, allow_nan=allow_nan)
    return web.Response(text=text, status=status, content_type="application/json")


def _logs(report: EvaluationReport | None, *, has_failed: bool = False) -> dict[str, float]:
    """Return the values that OpenRLHF logs for a sample. All samples need the same names, or the training would end.

    The verdicts on criteria are not included, because an abstention has no number. `/metrics` has them.
    """
    return {
        "rubric/passed": float(report.passed) if report else 0.0,
        "rubric/coverage": report.coverage if report else 0.0,
        "rubric/abstentions": float(report.cannot_assess_count) if report else 0.0,
        "rubric/empty": float(report is None and not has_failed),
        "rubric/failed": float(has_failed),
    }
