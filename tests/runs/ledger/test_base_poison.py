"""A run whose only missing rows are texts that make the server fail ends, and names these rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from rubric_integrations import PerCriterionGrader, grade_many
from rubric_integrations.graders import CallLimits, Grader, PerCriterionOneShotGrader
from rubric_integrations.judges import Cascade, LMJudge
from rubric_integrations.runs import Run
from rubric_integrations.runs.ledger import RunLedger, use_ledger
from rubric_integrations.submission import Submission
from tests.graders.rubrics import rubric_of
from tests.openai_server import Call, OpenAIServer, Reply

GOOD = [f"good {number}" for number in range(6)]
LIMITS = CallLimits(max_outage=0.5)


def reply(call: Call, delay: float = 0.0) -> Reply:
    """Fail on a poisoned text, and answer any other question, also about two criteria in one call."""
    if "poison" in call.prompt:
        return Reply(status=500)
    entries = [{"id": number, "explanation": "as scripted", "answer": "MET"} for number in (1, 2)]
    is_batch = "judgments" in call.prompt
    return Reply(delay=delay, text=json.dumps({"judgments": entries}) if is_batch else None)


def is_down(_call: Call) -> Reply:
    return Reply(status=500)


def per_criterion(url: str) -> Grader:
    return PerCriterionGrader(LMJudge("openai/m", api_base=url), limits=LIMITS)


def rows_of(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"id": text, "response": text} for text in texts]


def first_run(server: OpenAIServer, grader: Grader, address: str, poison: Sequence[str]) -> list[dict[str, str]]:
    """Grade all rows except the poisoned ones, and record these as failed. Return all rows."""
    server.script = reply
    assert failed_rows(grade_many(rows_of(GOOD), rubric_of(2), grader, ledger=address)) == []
    with use_ledger(address) as ledger:
        assert isinstance(ledger, RunLedger)
        for text in poison:
            ledger.record_submission(text, Submission(response=text))
            ledger.record_row(text, "transport: status 500")
    server.calls.clear()
    return rows_of([*poison, *GOOD])


def failed_rows(run: Run) -> list[str]:
    return [graded.row.submission.response for graded in run if graded.row.submission and graded.judge_error]


GRADERS: dict[str, Callable[[str], Grader]] = {
    "one judge": per_criterion,
    "one shot": lambda url: PerCriterionOneShotGrader(LMJudge("openai/m", api_base=url), limits=LIMITS),
    "panel": lambda url: PerCriterionGrader(
        judges=[LMJudge("openai/m", api_base=url), LMJudge("openai/n", api_base=url)], limits=LIMITS
    ),
    "cascade": lambda url: PerCriterionGrader(
        Cascade(LMJudge("openai/m", api_base=url), LMJudge("openai/n", api_base=url), escalate_below=0.0),
        limits=LIMITS,
    ),
}


@pytest.mark.parametrize("make_grader", GRADERS.values(), ids=GRADERS)
@pytest.mark.parametrize("poison", [["poison"], ["poison 1", "poison 2", "poison 3"]], ids=["one", "three"])
def test_resumed_run_with_only_poison_left_names_it(
    server: OpenAIServer,
    address: str,
    make_grader: Callable[[str], Grader],
    poison: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = first_run(server, make_grader(server.url), address, poison)
    server.script = reply
    with caplog.at_level(logging.WARNING):
        run = grade_many(rows, rubric_of(2), make_grader(server.url), ledger=address)
        assert failed_rows(run) == poison
    assert run.summary.stopped is None
    assert run.summary.graded == len(GOOD)
    assert run.summary.spend.calls == len(server.calls)
    answered = [call for call in server.calls if "poison" not in call.prompt]
    assert 1 <= len(answered) <= 2 * len(poison)
    warnings = [record for record in caplog.records if "only rows that failed before are left" in record.message]
    assert len(warnings) in (1, 2)  # one for each judge


def test_run_of_failed_rows_alone_names_them(server: OpenAIServer, address: str) -> None:
    first_run(server, per_criterion(server.url), address, ["poison"])
    run = grade_many(rows_of(["poison"]), rubric_of(2), per_criterion(server.url), ledger=address)
    assert failed_rows(run) == ["poison"]
    assert run.summary.stopped is None
    others = [call.prompt for call in server.calls if "poison" not in call.prompt]
    assert others
    assert all("good 0" in prompt for prompt in others)


@pytest.mark.parametrize("poison", [["poison"], ["poison 1", "poison 2"]], ids=["one", "two"])
def test_dead_server_after_a_poisoned_run_is_an_outage(server: OpenAIServer, address: str, poison: list[str]) -> None:
    rows = first_run(server, per_criterion(server.url), address, poison)
    server.script = is_down
    run = grade_many(rows, rubric_of(2), per_criterion(server.url), ledger=address)
    assert failed_rows(run) == []
    assert "the judge has not replied" in str(run.summary.stopped)
    assert run.summary.graded == len(GOOD)
    assert run.summary.spend.calls == len(server.calls)
    # The rows are still the only missing ones, and are named once the server is back.
    server.script = reply
    assert failed_rows(grade_many(rows, rubric_of(2), per_criterion(server.url), ledger=address)) == poison


def test_probe_counts_for_max_calls(server: OpenAIServer, address: str) -> None:
    rows = first_run(server, per_criterion(server.url), address, ["poison"])
    server.script = reply
    run = grade_many(rows, rubric_of(2), per_criterion(server.url), ledger=address, max_calls=1)
    assert failed_rows(run) == []
    assert len(server.calls) == 1
    assert "max_calls" in str(run.summary.stopped)


def test_first_run_names_the_poison_and_its_repetition_too(server: OpenAIServer, address: str) -> None:
    server.script = partial(reply, delay=0.05)
    for _ in range(2):
        run = grade_many(["poison", *GOOD], rubric_of(2), per_criterion(server.url), ledger=address, max_concurrency=3)
        assert (failed_rows(run), run.summary.stopped) == (["poison"], None)


def test_no_probe_is_sent_while_another_row_is_in_progress(server: OpenAIServer, address: str) -> None:
    rows = first_run(server, per_criterion(server.url), address, ["poison"])
    server.script = lambda call: reply(call, delay=0.5 if "slow" in call.prompt else 0.0)
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url), limits=CallLimits(max_outage=20))
    run = grade_many([*rows, *rows_of(["new", "slow"])], rubric_of(1), grader, ledger=address)
    assert failed_rows(run) == ["poison"]
    assert [call for call in server.calls if "good" in call.prompt] == []


def test_failure_with_a_fallback_verdict_is_recorded_too(server: OpenAIServer, address: str) -> None:
    server.script = partial(reply, delay=0.05)
    for _ in range(2):
        grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url), limits=LIMITS, on_failure="abstain")
        run = grade_many(["poison", *GOOD], rubric_of(2), grader, ledger=address, max_concurrency=3)
        assert [graded.report.failed_count for graded in run if graded.report] == [2, *[0] * len(GOOD)]
        assert run.summary.stopped is None
