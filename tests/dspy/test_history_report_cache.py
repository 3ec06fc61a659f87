"""Each text is graded once: the cache of reports, alone and in the metric."""

from __future__ import annotations

import threading
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, Fields, PerCriterionGrader, Rubric
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.dspy.history import ReportCache
from tests.dspy.programs import DEVSET, RUBRIC, judge_at, metric_at
from tests.openai_server import OpenAIServer, Reply


@pytest.mark.parametrize("threads", [1, 16])
def test_same_text_at_the_same_time_is_judged_once(server: OpenAIServer, threads: int) -> None:
    server.script = lambda _call: Reply("MET", delay=0.05)
    metric = metric_at(server)
    runner = dspy.Parallel(num_threads=threads, disable_progress_bar=True)
    scores: Any = runner([(metric, (DEVSET[0], dspy.Prediction(answer="It is 6."))) for _ in range(48)])
    assert {float(score) for score in scores} == {0.5}
    summary = metric.summary()
    assert (len(server.calls), summary["gradings"], summary["cached"]) == (2, 1, 47)


def test_texts_rubrics_or_judges_that_differ_are_judged_separately(server: OpenAIServer) -> None:
    judge = judge_at(server)
    metric = RubricMetric(
        lambda example: Rubric([Criterion(requirement=example.get("requirement", "a"))]),
        fields=Fields(reference="gold"),
        grader=PerCriterionGrader(judge),
    )

    def calls_for(answer: str = "x", **fields: str) -> int:
        before = len(server.calls)
        metric(dspy.Example(**{"q": "?", "gold": "g", **fields}).with_inputs("q"), dspy.Prediction(answer=answer))
        return len(server.calls) - before

    assert [calls_for(), calls_for()] == [1, 0]
    for change in ({"answer": "y"}, {"q": "other?"}, {"gold": "h"}, {"requirement": "b"}):
        assert calls_for(**change) == 1, change
    judge.criterion.demos = [dspy.Example(submission="s", criterion="c", explanation="e", verdict="MET")]
    assert calls_for() == 1  # a compiled judge may answer differently


@pytest.mark.parametrize(("size", "answers", "calls"), [(0, "aaa", 3), (1, "abab", 4), (2, "abab", 2), (2, "abcba", 4)])
def test_cache_size_limits_the_number_of_cached_reports(
    server: OpenAIServer, size: int, answers: str, calls: int
) -> None:
    metric = metric_at(server, Rubric([Criterion(requirement="r")]), cache_size=size)
    for answer in answers:
        metric(DEVSET[0], dspy.Prediction(answer=answer))
    assert len(server.calls) == calls


def test_waiting_thread_after_an_interrupted_computation_takes_over() -> None:
    cache, started, released = ReportCache(size=1), threading.Event(), threading.Event()
    report = RUBRIC.grade_sync("x", grader=PerCriterionGrader("offline"))

    def interrupted() -> Any:
        started.set()
        released.wait(timeout=10)
        raise KeyboardInterrupt

    def compute_first() -> None:
        with pytest.raises(KeyboardInterrupt):
            cache.get_or_compute("k", interrupted)

    results: list[bool] = []

    def compute_second() -> None:
        results.append(cache.get_or_compute("k", lambda: report).is_new)

    threads = [threading.Thread(target=compute_first), threading.Thread(target=compute_second)]
    threads[0].start()
    assert started.wait(timeout=10)
    threads[1].start()
    released.set()
    for thread in threads:
        thread.join(timeout=10)
    assert results == [True]


def test_computation_that_raises_is_not_cached() -> None:
    cache = ReportCache(size=1)
    report = RUBRIC.grade_sync("x", grader=PerCriterionGrader("offline"))

    def fail() -> Any:
        raise RuntimeError("no answer")

    with pytest.raises(RuntimeError, match="no answer"):
        cache.get_or_compute("k", fail)
    assert [cache.get_or_compute("k", lambda: report).is_new for _ in range(2)] == [True, False]
