"""The metrics, as Prometheus reads them."""

from __future__ import annotations

import re

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.server.service import ServerMetrics
from tests.hosts.six_responses import ROWS
from tests.server.serving import serving

SAMPLE = re.compile(r'([a-z_:]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (\S+)')


def samples(text: str) -> dict[str, float]:
    """Return the value of each line, and check that it has the format of Prometheus."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    matches = [SAMPLE.fullmatch(line) for line in lines]
    assert all(matches), lines
    return {
        f"{match[1]}{match[2] or ''}".removeprefix("rubric_integrations_"): float(match[3])
        for match in matches
        if match
    }


@pytest.mark.asyncio
async def test_metrics_count_requests_grades_verdicts_and_calls() -> None:
    async with serving() as server:
        for row in ROWS:
            await server.reward(row.response)
        await server.post("/grade", b"{")
        await server.get("/nowhere" + "x" * 100)
        answer = await server.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    values = samples(answer.text)
    assert values['requests_total{endpoint="/get_reward",status="200"}'] == 5
    assert values['requests_total{endpoint="/get_reward",status="503"}'] == 1
    assert values['requests_total{endpoint="/grade",status="400"}'] == 1
    assert values['requests_total{endpoint="other",status="404"}'] == 1
    assert values['grades_total{outcome="graded"}'] == 5
    assert values['grades_total{outcome="failed"}'] == 1
    assert values["abstentions_total"] == values['criterion_abstentions_total{criterion="right"}'] == 1
    assert values['criterion_value_sum{criterion="rude"}'] == 2
    assert values['criterion_values_total{criterion="rude"}'] == 5
    assert values["judge_calls_total"] == 18
    assert values["grades_under_way"] == 0
    assert values["up"] == 1
    assert values['request_seconds_bucket{endpoint="/get_reward",le="+Inf"}'] == 6
    buckets = [
        value for name, value in values.items() if name.startswith('request_seconds_bucket{endpoint="/get_reward"')
    ]
    assert buckets == sorted(buckets)


@pytest.mark.asyncio
async def test_names_of_criteria_are_escaped_and_those_of_requests_are_not_counted() -> None:
    rubric = Rubric([Criterion(name='a"b\\c\nd', requirement="x", check={"contains": "x"})])  # pyright: ignore[reportArgumentType]
    own = [{"name": "of-the-request", "requirement": "y", "check": {"contains": "y"}}]
    async with serving(rubric, PerCriterionGrader("offline"), accept_rubrics=True) as server:
        assert (await server.post("/grade", {"response": "x", "rubric": own})).status == 200
        text = (await server.get("/metrics")).text
    assert samples(text)['criterion_values_total{criterion="a\\"b\\\\c\\nd"}'] == 1
    assert "of-the-request" not in text


def test_time_at_the_bound_of_a_bucket_belongs_to_it() -> None:
    metrics = ServerMetrics()
    for seconds in (0.05, 0.05001, 180.0, 181.0):
        metrics.count_request("/grade", 200, seconds)
    values = samples("\n".join(metrics.lines()))
    assert values['request_seconds_bucket{endpoint="/grade",le="0.05"}'] == 1
    assert values['request_seconds_bucket{endpoint="/grade",le="180.0"}'] == 3
    assert values['request_seconds_bucket{endpoint="/grade",le="+Inf"}'] == 4
