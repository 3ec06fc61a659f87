"""The endpoints of the server."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable
from statistics import fmean
from typing import Any, Literal, cast

from aiohttp import web

from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.server.access import check_access, check_token
from rubric_integrations.server.bodies import LabelUse, Sample, read_json, read_samples, read_submission
from rubric_integrations.server.metrics import metrics_text
from rubric_integrations.server.problems import RequestProblem
from rubric_integrations.server.service import GradingService
from rubric_integrations.submission.rows import Row

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Load balancers send no token, and the state is no secret.
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
    """Make an `aiohttp` application that serves grades.

    It has `POST /grade`, `POST /get_reward`, `GET /healthz` and `GET /metrics`. A grade without a score is an HTTP
    error and never a number, also if only one sample of a request has none.

    Args:
        service: Grades the submissions.
        token: The token that requests need, at least 16 characters. Without one, the server must listen on this machine
            alone, and refuses requests to other hosts' names.
        label_use: What the labels of `/get_reward` are: exemplary responses (`reference`), a rubric for each sample
            (`rubric`), or nothing that the grade needs (`ignore`).
        empty: What `/get_reward` answers for a response without text after its thinking: the `least` reward of the
            rubric, so that a policy does not learn to be silent, or an `error`.
        nan_on_failure: Whether `/get_reward` answers NaN for a sample without a score, in place of an error. Only for
            OpenRLHF with dynamic filtering, which drops the group; everywhere else NaN would spread.
        max_body: The largest body of a request, in bytes, at least 1.

    Raises:
        ValueError: The token is too short or cannot be sent, or `max_body` is out of range.

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
        row = read_submission(await read_json(request))
        report = await self._service.grade(row)
        return _json({"id": row.id, **report.model_dump(mode="json")})

    async def get_reward(self, request: web.Request) -> web.Response:
        samples = read_samples(await read_json(request), self._label_use)
        # Before any grade begins: otherwise each attempt of a request that is too large would pay for a part of it.
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
        # NaN is no JSON, but OpenRLHF reads it; without `nan_on_failure`, there is none.
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


_ROUTING = {
    404: "there is no such path: send POST to /grade or /get_reward, or GET to /healthz or /metrics",
    405: "the path exists for another method: send POST to /grade and /get_reward, and GET to /healthz and /metrics",
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
    """Return what OpenRLHF logs for a sample: the same names for each, or it would end the training.

    The verdicts on criteria are in `/metrics`, because one that the judge abstains from has no number.
    """
    return {
        "rubric/passed": float(report.passed) if report else 0.0,
        "rubric/coverage": report.coverage if report else 0.0,
        "rubric/abstentions": float(report.cannot_assess_count) if report else 0.0,
        "rubric/empty": float(report is None and not has_failed),
        "rubric/failed": float(has_failed),
    }
