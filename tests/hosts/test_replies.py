"""Nothing with the marks of a provider is graded as JSON, in any host."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from tests.fakes import FakeJudge
from tests.hosts.every_host import EMPTY, HOSTS, Outcome
from tests.hosts.six_responses import QUERY
from tests.submission.dialects.replies import ANSWER, EXCHANGES, NO_ANSWERS, REFUSED_FORMS

RUBRIC = Rubric([Criterion(requirement="Promises a refund")])


def grade(host: str, output: Any) -> tuple[Outcome, list[Any]]:
    fake = FakeJudge("MET")
    outcome = HOSTS[host](RUBRIC, PerCriterionGrader(fake), output)
    return outcome, [question.submission for question in fake.questions]


@pytest.mark.parametrize("host", HOSTS)
def test_reply_of_every_provider_is_graded_by_its_answer_and_its_task_in_every_host(host: str) -> None:
    for exchange in EXCHANGES.values():
        for output in (exchange.reply, {"output": exchange.reply}):
            outcome, [submission] = grade(host, output)
            assert (outcome, submission.response) == (1.0, ANSWER)
            has_task = host not in ("grade_many", "LangChain, after a chain")
            assert submission.query == (QUERY if has_task else None)


@pytest.mark.parametrize("host", HOSTS)
def test_form_of_a_provider_is_refused_in_every_host(host: str) -> None:
    for _, value in [*REFUSED_FORMS, *NO_ANSWERS]:
        # A list of outputs is not an output of every host.
        for output in (value, {"answer": value}) if isinstance(value, dict) else ({"answer": value},):
            assert grade(host, output) == (EMPTY, [])
    for exchange in EXCHANGES.values():
        assert grade(host, {"raw": exchange.reply, "score": 3}) == (EMPTY, [])
