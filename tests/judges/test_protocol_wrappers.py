"""Wrappers of judges: what they pass on, and how the judge inside is replaced."""

from __future__ import annotations

from rubric_integrations.judges import JudgeWrapper, Question
from rubric_integrations.judges.protocol import innermost
from rubric_integrations.scoring import Judgment
from tests.fakes import FakeBatchJudge, FakeJudge, FakeOverallJudge, batch_of
from tests.judges.questions import NILE, RUBRIC, judge_at, question_about
from tests.openai_server import OpenAIServer


class CountingJudge(JudgeWrapper):
    """Counts the questions."""

    count = 0

    async def judge(self, question: Question) -> Judgment:
        self.count += 1
        return await super().judge(question)


async def test_wrapper_passes_every_kind_of_question_on() -> None:
    judge = CountingJudge(FakeJudge())
    assert (await judge.judge(question_about())).verdict == "MET"
    assert judge.count == 1
    batch = batch_of({1: "MET"})
    assert await CountingJudge(FakeBatchJudge(batch)).judge_batch({1: question_about()}) is batch
    assert (await CountingJudge(FakeOverallJudge(50)).judge_overall(NILE, RUBRIC)).percent == 50


def test_fingerprint_of_a_wrapper_is_that_of_the_judge_inside() -> None:
    assert CountingJudge(FakeJudge(fingerprint="f")).fingerprint() == "f"
    assert CountingJudge(FakeJudge()).fingerprint() is None


def test_innermost_is_the_judge_inside_all_wrappers() -> None:
    judge = FakeJudge()
    assert innermost(CountingJudge(JudgeWrapper(judge))) is judge
    assert innermost(judge) is judge


def test_wrapping_copies_the_wrapper_around_another_judge() -> None:
    first, second = FakeJudge(), FakeJudge()
    wrapper = CountingJudge(first)
    other = wrapper.wrapping(second)
    assert (type(other), other.inner, wrapper.inner) == (CountingJudge, second, first)


def test_without_cache_reaches_the_judge_inside_and_keeps_the_wrapper(server: OpenAIServer) -> None:
    wrapper = CountingJudge(judge_at(server, cache=True))
    uncached = wrapper.without_cache()
    assert isinstance(uncached, CountingJudge)
    assert (wrapper.inner.lm.cache, uncached.inner.lm.cache) == (True, False)
    plain = CountingJudge(FakeJudge())
    assert innermost(plain.without_cache()) is plain.inner
