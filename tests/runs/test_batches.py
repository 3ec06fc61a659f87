"""Batches against a local server that speaks the batch endpoints of OpenAI and Anthropic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, TextLimits, Voting
from rubric_integrations.judges import LMJudge, ModelSettings
from rubric_integrations.runs import (
    BatchError,
    CollectedBatches,
    Ledger,
    SubmittedBatches,
    collect_batches,
    submit_batches,
)
from rubric_integrations.runs.batches import collect as collecting
from rubric_integrations.runs.batches import providers, replay
from rubric_integrations.runs.batches import submit as submitting
from rubric_integrations.runs.batches.providers import AnthropicBatches, OpenAIBatches
from tests.batch_server import BatchServer
from tests.fakes import FakeJudge, FakeStore
from tests.openai_server import Call, OpenAIServer, Reply

MODELS = ("openai/gpt-4o", "anthropic/claude-sonnet-4-5")
RUBRIC = Rubric([Criterion(name=f"c{i}", weight=i + 1, requirement=f"requirement {i}") for i in range(3)])
TEXTS = [f"submission number {i} says so" for i in range(4)]
KEY = "sk-canary-5f2c"


def script(call: Call) -> Reply:
    """The verdict on a submission and a criterion, the same in every protocol."""
    text = json.dumps(call.body)
    submission = int(text.split("submission number ")[1].split()[0])
    criterion = int(text.rsplit("requirement ", 1)[1][0])
    return Reply(verdict="MET" if (submission + criterion) % 3 else "UNMET")


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(providers, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(collecting, "FIRST_LOOK", 0.01)


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with BatchServer(script) as server:
        yield server


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "run.sqlite") as ledger:
        yield ledger


def grader_for(server: BatchServer, model: str = MODELS[0], **settings: Any) -> PerCriterionGrader:
    return PerCriterionGrader(LMJudge(model, api_base=server.url, api_key=KEY), **settings)


def submit(server: BatchServer, ledger: Ledger, model: str = MODELS[0], rubric: Rubric = RUBRIC) -> SubmittedBatches:
    return submit_batches(TEXTS, rubric, grader_for(server, model), ledger=ledger)


def collect(server: BatchServer, ledger: Ledger, model: str = MODELS[0]) -> CollectedBatches:
    return collect_batches(ledger, grader_for(server, model))


def verdicts_in(ledger: Ledger, server: BatchServer, model: str = MODELS[0]) -> list[list[str | None]]:
    """The verdicts of a run with the ledger, which must make no call."""
    run = grade_many(TEXTS, RUBRIC, grader_for(server, model), ledger=ledger, max_calls=0)
    return [[c.verdict for c in graded.report.criteria] for graded in run if graded.report]


def expected_verdicts() -> list[list[str]]:
    return [["MET" if (row + i) % 3 else "UNMET" for i in range(3)] for row in range(len(TEXTS))]


@pytest.mark.parametrize("model", MODELS)
def test_collected_verdicts_are_those_that_the_model_gave(server: BatchServer, ledger: Ledger, model: str) -> None:
    assert submit(server, ledger, model) == SubmittedBatches(rows=4, batches=1, requests=12)
    collected = collect(server, ledger, model)
    assert (collected.batches, collected.judgments, collected.failed) == (1, 12, 0)
    assert verdicts_in(ledger, server, model) == expected_verdicts()
    assert Counter(server.requests).most_common(1)[0][1] == 1
    assert all(len(key) == 64 for key in server.requests)
    assert submit(server, ledger, model).requests == 0


def test_batches_of_a_database_are_collected_by_another_process(server: BatchServer, postgres_url: str) -> None:
    submitted = submit_batches(TEXTS, RUBRIC, grader_for(server), ledger=postgres_url)
    assert submitted == SubmittedBatches(rows=4, batches=1, requests=12)
    assert submit_batches(TEXTS, RUBRIC, grader_for(server), ledger=postgres_url).requests == 0
    collected = collect_batches(postgres_url, grader_for(server))
    assert (collected.batches, collected.judgments, collected.failed) == (1, 12, 0)
    run = grade_many(TEXTS, RUBRIC, grader_for(server), ledger=postgres_url, max_calls=0)
    assert [[c.verdict for c in graded.report.criteria] for graded in run if graded.report] == expected_verdicts()
    assert set(Counter(server.requests).values()) == {1}


def test_collected_judgments_equal_those_of_direct_calls_at_half_price(server: BatchServer, tmp_path: Path) -> None:
    with Ledger(tmp_path / "batch.sqlite") as batch, Ledger(tmp_path / "direct.sqlite") as direct:
        submit(server, batch)
        assert collect(server, batch).judgments == 12
        list(grade_many(TEXTS, RUBRIC, grader_for(server), ledger=direct))
        keys = server.requests[:12]
        halves, wholes = batch.lookup(keys), direct.lookup(keys)
        assert len(wholes) == 12
        for key in keys:
            half, whole = halves[key], wholes[key]
            if whole.spend.cost is not None and half.spend.cost is not None:
                assert half.spend.cost == pytest.approx(whole.spend.cost / 2)
            assert half.model_copy(update={"spend": whole.spend}) == whole
        # The very bytes: only their order differs.
        assert sorted(server.bodies[:12]) == sorted(server.bodies[12:])


def test_key_is_sent_to_the_server_and_is_in_no_file(server: BatchServer, tmp_path: Path) -> None:
    with Ledger(tmp_path / "run.sqlite") as ledger:
        submit(server, ledger)
        server.change_results = lambda lines: lines
        collect(server, ledger)
    assert server.keys == {f"Bearer {KEY}"}
    assert KEY.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert KEY.encode() not in b"".join(server.files.values())


def test_processes_that_submit_at_once_request_nothing_twice(server: BatchServer, tmp_path: Path) -> None:
    def submit_once(_number: int) -> SubmittedBatches:
        return submit_batches(TEXTS, RUBRIC, grader_for(server), ledger=tmp_path / "run.sqlite")

    with ThreadPoolExecutor(3) as threads:
        counts = list(threads.map(submit_once, range(3)))
    assert sorted(count.requests for count in counts) == [0, 0, 12]
    assert len(server.requests) == 12


class CrashError(Exception):
    """The end of a process, as far as one process can imitate it."""


def crash_at(number: int, original: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """Make a function that raises before or after its call of this number."""
    calls = 0

    def call(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not after:
            raise CrashError
        result = original(*arguments)
        if calls == number and after:
            raise CrashError
        return result

    return call


@pytest.mark.simulation
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_submit_that_crashed_at_any_step_requests_nothing_twice(
    server: BatchServer, ledger: Ledger, model: str, number: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for api in (OpenAIBatches, AnthropicBatches):
        monkeypatch.setattr(api, "framing", api.framing._replace(max_lines=7))  # two batches
    with monkeypatch.context() as patch:
        patch.setattr(submitting, "save", crash_at(number, submitting.save, after=after))
        with pytest.raises(CrashError):
            submit(server, ledger, model)
    submit(server, ledger, model)
    assert collect(server, ledger, model).failed == 0
    assert (len(server.requests), len(set(server.requests))) == (12, 12)
    assert verdicts_in(ledger, server, model) == expected_verdicts()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("after", [False, True])
def test_collect_that_crashed_stores_the_rest_the_next_time(
    server: BatchServer, ledger: Ledger, model: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(server, ledger, model)
    with monkeypatch.context() as patch:
        patch.setattr(collecting, "save", crash_at(1, collecting.save, after=after))
        with pytest.raises(CrashError):
            collect(server, ledger, model)
    collect(server, ledger, model)
    assert len(server.requests) == len(ledger) == 12
    assert verdicts_in(ledger, server, model) == expected_verdicts()


@pytest.mark.parametrize("model", MODELS)
def test_submitted_batch_is_found_on_a_later_page_of_the_list(
    server: BatchServer, ledger: Ledger, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(submitting, "save", crash_at(2, submitting.save, after=False))
        with pytest.raises(CrashError):
            submit(server, ledger, model)
    for number in range(3):
        with Ledger(tmp_path / f"{number}.sqlite") as other:
            submit_batches(TEXTS[number:], RUBRIC, grader_for(server, model), ledger=other)
    server.page_size, count = 1, len(server.requests)
    assert submit(server, ledger, model).requests == 0
    assert collect(server, ledger, model).judgments == 12
    assert len(server.requests) == count


def test_batch_of_another_server_is_not_submitted_again(server: BatchServer, ledger: Ledger) -> None:
    class Named(LMJudge):
        def fingerprint(self) -> str:
            return "one model at several addresses"

    submit_batches(TEXTS, RUBRIC, PerCriterionGrader(Named(MODELS[0], api_base=server.url)), ledger=ledger)
    with BatchServer(script) as other:
        grader = PerCriterionGrader(Named(MODELS[0], api_base=other.url))
        with pytest.raises(BatchError, match="same `api_base`"):
            collect_batches(ledger, grader)
        assert submit_batches(TEXTS, RUBRIC, grader, ledger=ledger).requests == 0


def test_rows_of_other_runs_in_the_ledger_are_left_alone(server: BatchServer, ledger: Ledger) -> None:
    own = [{"name": "c0", "requirement": "requirement 0", "check": {"contains": "0"}}]
    list(grade_many([{"id": "x", "response": "y", "rubric": own}], None, PerCriterionGrader("offline"), ledger=ledger))
    submit(server, ledger)
    assert collect(server, ledger).judgments == 12


def test_unfinished_batch_of_anthropic_is_recognized_once_it_has_ended(
    server: BatchServer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(submitting, "save", crash_at(2, submitting.save, after=False))
        with pytest.raises(CrashError):
            submit(server, ledger, MODELS[1])
    server.status = "in_progress"
    assert submit(server, ledger, MODELS[1]).waiting == 12
    assert collect(server, ledger, MODELS[1]).waiting == 1
    server.status = "completed"
    assert collect(server, ledger, MODELS[1]).judgments == len(server.requests) == 12


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fault", ["before", "after", 503])
def test_lost_submission_is_looked_for_before_it_is_repeated(
    server: BatchServer, ledger: Ledger, model: str, fault: str | int
) -> None:
    faults = [fault]
    server.fault = lambda method, path: (
        faults.pop() if faults and method == "POST" and path.endswith("/batches") else None
    )
    submit(server, ledger, model)
    assert collect(server, ledger, model).judgments == len(server.requests) == 12


@pytest.mark.parametrize("model", MODELS)
def test_rate_limited_requests_are_repeated(server: BatchServer, ledger: Ledger, model: str) -> None:
    seen = Counter[tuple[str, str]]()

    def fault(method: str, path: str) -> int | None:
        seen[method, path] += 1
        return 429 if seen[method, path] == 1 else None

    server.fault = fault
    submit(server, ledger, model)
    assert collect(server, ledger, model).judgments == len(server.requests) == 12


def test_refused_batch_is_an_error_and_can_be_submitted_again(server: BatchServer, ledger: Ledger) -> None:
    server.fault = lambda method, path: 400 if path.endswith("/batches") else None
    with pytest.raises(BatchError, match="HTTP 400"):
        submit(server, ledger)
    server.fault = lambda _method, _path: None
    assert submit(server, ledger).requests == 12


BAD_LINES: dict[str, Callable[[bytes], list[bytes]]] = {
    "cut off": lambda line: [line[: len(line) // 2]],
    "missing": lambda _line: [],
    "1 MB of one character": lambda _line: [b"A" * 1_000_000],
    "twice, and different": lambda line: [line, line.replace(b"as scripted", b"otherwise")],
    "no response": lambda line: [json.dumps({"custom_id": json.loads(line)["custom_id"]}).encode()],
    "an error": lambda line: [json.dumps({**json.loads(line), "response": None, "error": {"code": "x"}}).encode()],
    "an error of the server": lambda line: [line.replace(b'"status_code": 200', b'"status_code": 500')],
    "a body that is a list": lambda line: [json.dumps({**json.loads(line), "response": [1]}).encode()],
    "NaN": lambda line: [line.replace(b'"completion_tokens": 100', b'"completion_tokens": NaN')],
    "another verdict": lambda line: [line.replace(b"MET", b"PERHAPS")],
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_line_of_the_results_leaves_its_question_alone_unanswered(
    server: BatchServer, ledger: Ledger, name: str
) -> None:
    server.change_results = lambda lines: [*lines[:-1], *BAD_LINES[name](lines[-1])]
    submit(server, ledger)
    collected = collect(server, ledger)
    assert (collected.judgments, collected.failed) == (11, 1)
    assert len(ledger.failures()) == 1
    server.change_results = lambda lines: lines
    assert submit(server, ledger).requests == 1
    collect(server, ledger)
    assert verdicts_in(ledger, server) == expected_verdicts()


def test_format_that_a_server_refuses_is_left_out_of_the_next_batch(server: BatchServer, ledger: Ledger) -> None:
    body = {"error": {"message": "response_format json_schema is not supported", "type": "invalid_request_error"}}

    def refuse(lines: list[bytes]) -> list[bytes]:
        response = {"status_code": 400, "body": body}
        return [json.dumps({**json.loads(line), "response": response}).encode() for line in lines]

    server.change_results = refuse
    submit(server, ledger)
    assert collect(server, ledger).failed == 12
    server.change_results = lambda lines: lines
    submit(server, ledger)
    assert collect(server, ledger).judgments == 12
    formats = [json.loads(content)["response_format"]["type"] for content in server.bodies]
    assert formats == ["json_schema"] * 12 + ["json_object"] * 12
    assert submit_batches(["submission number 9 says so"], RUBRIC, grader_for(server), ledger=ledger).requests == 3
    assert json.loads(server.bodies[-1])["response_format"]["type"] == "json_object"


def test_lines_of_others_and_repeated_lines_change_nothing(server: BatchServer, ledger: Ledger) -> None:
    others = [b'{"custom_id": "' + b"0" * 64 + b'"}', b"[]", b"", b'{"custom_id": 5}', b"\xff\xfe"]
    server.change_results = lambda lines: [*lines, *others, *reversed(lines)]
    submit(server, ledger)
    collected = collect(server, ledger)
    assert (collected.judgments, collected.failed, collected.unknown) == (12, 0, 4)
    assert verdicts_in(ledger, server) == expected_verdicts()


@pytest.mark.parametrize(("status", "judgments"), [("expired", 8), ("cancelled", 8), ("failed", 0)])
def test_batch_that_did_not_complete_keeps_the_replies_it_has(
    server: BatchServer, ledger: Ledger, status: str, judgments: int
) -> None:
    server.change_results, server.status = lambda lines: lines[:8], status
    submit(server, ledger)
    collected = collect(server, ledger)
    assert (collected.judgments, collected.failed) == (judgments, 12 - judgments)
    assert collected.problems == ((f"the batch is {status}: as scripted", 12 - judgments),)
    assert submit(server, ledger).requests == 12 - judgments


def test_errored_and_expired_requests_of_anthropic_are_failures(server: BatchServer, ledger: Ledger) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}}

    def change(lines: list[bytes]) -> list[bytes]:
        keys = [json.loads(line)["custom_id"] for line in lines]
        results = [{"type": "errored", "error": error}, {"type": "expired"}, {"type": "succeeded"}]
        bad = [{"custom_id": key, "result": result} for key, result in zip(keys, results, strict=False)]
        return [*(json.dumps(line).encode() for line in bad), *lines[3:]]

    server.change_results = change
    submit(server, ledger, MODELS[1])
    collected = collect(server, ledger, MODELS[1])
    assert (collected.judgments, collected.failed) == (9, 3)
    problems = " ".join(message for message, _ in collected.problems)
    assert "too long" in problems
    assert "the request is expired" in problems


def test_batch_that_is_not_over_waits(server: BatchServer, ledger: Ledger) -> None:
    submit(server, ledger)
    server.status = "in_progress"
    collected = collect(server, ledger)
    assert (collected.batches, collected.waiting, collected.requests) == (0, 1, 12)

    def fault(_method: str, _path: str) -> None:
        server.status = "completed" if len(server.log) > 5 else "in_progress"

    server.fault = fault
    assert collect_batches(ledger, grader_for(server), wait=True).judgments == 12


def test_batches_are_split_by_the_limits_of_the_provider(
    server: BatchServer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenAIBatches, "framing", OpenAIBatches.framing._replace(max_bytes=20_000))
    counts = submit(server, ledger)
    assert counts.requests == 12
    assert counts.batches == len(server.batches) >= 2
    uploads = [content for name, content in server.files.items() if not name.startswith("file-out")]
    assert max(map(len, uploads)) <= 20_000


def test_criterion_with_a_condition_is_submitted_after_the_condition(server: BatchServer, ledger: Ledger) -> None:
    rubric = Rubric(
        [
            Criterion(requirement="requirement 1"),
            Criterion(requirement="requirement 2", applies_when="It holds in requirement 2"),
        ]
    )
    assert submit(server, ledger, rubric=rubric).requests == 8
    collect(server, ledger)
    # The condition holds for all submissions but the second and the last but one.
    second = submit(server, ledger, rubric=rubric).requests
    assert 0 < second < 4
    collect(server, ledger)
    run = list(grade_many(TEXTS, rubric, grader_for(server), ledger=ledger, max_calls=0))
    assert all(graded.report and graded.report.complete for graded in run)
    assert submit(server, ledger, rubric=rubric).requests == 0


def test_rows_with_rubrics_checks_and_evidence_are_submitted_where_a_judge_is_needed(
    server: BatchServer, ledger: Ledger
) -> None:
    own = [
        {"requirement": "requirement 1"},
        {"requirement": "Has number", "check": {"contains": "number"}},
        {"requirement": "requirement 2", "needs": ["reference"]},
    ]
    rows = [{"id": "a", "response": TEXTS[0], "rubric": own}, {"id": "b", "response": ""}]
    grader = grader_for(server)
    counts = submit_batches(rows, None, grader, ledger=ledger)
    assert (counts.requests, len(counts.errors)) == (1, 1)
    assert collect_batches(ledger, grader).judgments == 1
    graded = next(iter(grade_many(rows, None, grader, ledger=ledger, max_calls=0)))
    assert graded.report
    assert graded.report.complete


def test_panel_gets_a_batch_of_each_model(server: BatchServer, ledger: Ledger) -> None:
    judges = [LMJudge(model, api_base=server.url, api_key=KEY) for model in (MODELS[0], MODELS[0], MODELS[1])]
    grader = PerCriterionGrader(judges=judges, text_limits=TextLimits(chunk_size=1_000))
    assert submit_batches(TEXTS, RUBRIC, grader, ledger=ledger).batches == 3
    assert collect_batches(ledger, grader).judgments == 36
    assert len(list(grade_many(TEXTS, RUBRIC, grader, ledger=ledger, max_calls=0))) == 4


def test_batches_of_another_grader_are_left_alone(server: BatchServer, ledger: Ledger) -> None:
    submit(server, ledger)
    assert collect(server, ledger, MODELS[1]) == CollectedBatches()
    assert collect(server, ledger).judgments == 12


REFUSED: list[tuple[Callable[[LMJudge], Any], str]] = [
    (PerCriterionOneShotGrader, "one request for each criterion"),
    (lambda judge: PerCriterionGrader(judge, stop_when_decided=True), "stop_when_decided"),
    (lambda judge: PerCriterionGrader(judges=[judge, judge], voting=Voting(sequential=True)), "sequential"),
    (lambda _judge: PerCriterionGrader(FakeJudge(fingerprint="fake")), "need a model"),
    (lambda _judge: PerCriterionGrader("offline"), "need a model"),
    (
        lambda _judge: PerCriterionGrader(
            LMJudge("openai/gpt-4o", api_key=KEY, settings=ModelSettings(service_tier="flex"))
        ),
        "service_tier",
    ),
    (lambda _judge: PerCriterionGrader(LMJudge("gemini/gemini-2.5-flash", api_key=KEY)), "OpenAI's protocol"),
    (lambda _judge: PerCriterionGrader(LMJudge("openai/gpt-4o", api_key=KEY, confidence=True)), "confidence"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_grader_without_requests_for_a_batch_is_refused(
    make: Callable[[LMJudge], Any], message: str, ledger: Ledger
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        submit_batches(TEXTS, RUBRIC, make(LMJudge("openai/gpt-4o", api_key=KEY)), ledger=ledger)
    assert not ledger.batches()


def test_store_that_keeps_no_batches_is_refused(server: BatchServer) -> None:
    with pytest.raises(TypeError, match="stores batches"):
        submit_batches(TEXTS, RUBRIC, grader_for(server), ledger=cast("Any", FakeStore()))


def test_batch_of_a_later_version_is_refused(server: BatchServer, ledger: Ledger) -> None:
    ledger.save_batch("1", '{"id": "1", "more": 1}')
    with pytest.raises(BatchError, match="update the library"):
        submit(server, ledger)


def test_server_without_a_batch_api_is_refused(ledger: Ledger) -> None:
    page = Reply(status=404, raw=b"<html><title>Not found</title></html>")
    with OpenAIServer(lambda _call: page) as server:
        judge = LMJudge("openai/gpt-4o", api_base=server.url, api_key=KEY)
        with pytest.raises(BatchError):
            submit_batches(TEXTS, RUBRIC, PerCriterionGrader(judge), ledger=ledger)
