"""Every grade makes one span below the caller's, and events, wherever it runs and however it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import dspy
import pytest
from opentelemetry import trace
from opentelemetry.sdk._logs import LogRecordProcessor
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from rubric_integrations import (
    Criterion,
    EvaluationReport,
    JudgeError,
    PerCriterionGrader,
    Rubric,
    Submission,
    grade_many,
)
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import RubricAsJudgeGrader
from rubric_integrations.langchain import RubricEvaluator
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend, TokenUsage
from rubric_integrations.tracing import uninstrument
from tests.fakes import FakeJudge
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader
from tests.tracing.recorder import EXPLANATION, LABEL, NAME, SCORE, Recorder, attributes_of, ids_of, parent_of

TEXT = ROWS[0].response
KIND = Rubric([Criterion(name="kind", requirement="Is kind")], name="tone")


# What arrives.


def test_six_responses_arrive_with_scores_labels_and_error_types(
    recorder: Recorder, record_property: Callable[[str, object], None]
) -> None:
    callers: dict[tuple[int, int] | None, str] = {}
    for row in ROWS:
        with recorder.tracer.start_as_current_span("caller") as caller:
            callers[ids_of(caller)] = row.id
            list(grade_many([{"query": QUERY, "response": row.response}], RUBRIC, make_grader()))
    names = ["answers", "answers.right", "answers.sourced", "answers.rude"]
    table = {
        callers[parent_of(span)]: {
            event[NAME]: event.get(SCORE, event.get("error.type", event.get(LABEL)))
            for event in recorder.events_of(span)
        }
        for span in recorder.spans
    }
    assert list(table) == [row.id for row in ROWS]
    for row, values in table.items():
        record_property("shown", f"{row:12} {' '.join(f'{values[name]!s:14.14}' for name in names)}")
    assert [list(values) for values in table.values()] == [names] * 6
    assert [list(values.values()) for values in table.values()] == [
        [1.0, 1.0, 1.0, 1.0],
        [pytest.approx(2 / 3), 1.0, 1.0, 0.0],
        [pytest.approx(1 / 3), 0.0, 1.0, 1.0],
        [0.0, 0.0, 0.0, 0.0],
        [1.0, "CANNOT_ASSESS", 1.0, 1.0],
        ["JudgeError", "parse", "cancelled", "cancelled"],
    ]
    assert [event for event in recorder.events if "error.type" in event and (SCORE in event or LABEL in event)] == []


def test_span_has_the_figures_of_the_report_and_its_events(recorder: Recorder) -> None:
    usage = TokenUsage(prompt_tokens=70, completion_tokens=7, cached_tokens=50)
    judge = FakeJudge("MET", spend=Spend(calls=1, usage=usage, cost=0.25))
    KIND.grade_sync("Please.", PerCriterionGrader(judge))
    [span], [whole, kind] = recorder.spans, recorder.records
    assert (span.name, span.kind, span.status.status_code) == ("evaluate tone", SpanKind.INTERNAL, StatusCode.UNSET)
    assert attributes_of(span) == {
        "rubric.name": "tone",
        "rubric.judge.model": "FakeJudge",
        "rubric.score": 1.0,
        "rubric.passed": True,
        "rubric.coverage": 1.0,
        "rubric.cannot_assess_count": 0,
        "rubric.failed_count": 0,
        "rubric.calls": 1,
        "rubric.cost": 0.25,
        "gen_ai.usage.input_tokens": 70,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 50,
    }
    assert {record.log_record.event_name for record in (whole, kind)} == {"gen_ai.evaluation.result"}
    assert recorder.events_of(span) == [attributes_of(whole.log_record), attributes_of(kind.log_record)]
    assert attributes_of(kind.log_record).items() >= {NAME: "tone.kind", SCORE: 1.0, LABEL: "MET"}.items()
    assert span.start_time is not None
    assert whole.log_record.timestamp is not None
    assert whole.log_record.timestamp >= span.start_time


def test_unknown_tokens_and_cost_are_left_out_of_the_span(recorder: Recorder) -> None:
    KIND.grade_sync("Please.", PerCriterionGrader(FakeJudge(spend=Spend(calls=1, usage=None, cost=None))))
    assert not {"rubric.cost", "gen_ai.usage.input_tokens"} & set(attributes_of(recorder.spans[0]))


def test_holistic_grade_has_one_event_with_the_judges_reason(recorder: Recorder) -> None:
    async def generate(system: str, user: str) -> str:
        return '{"explanation": "Good.", "overall_score": 85}'

    KIND.grade_sync("Please.", RubricAsJudgeGrader(generate))
    [event] = recorder.events
    assert (event[NAME], event[SCORE]) == ("tone", 0.85)
    assert "Good." in event[EXPLANATION]


def test_panel_is_named_by_all_its_models(recorder: Recorder) -> None:
    KIND.grade_sync("Please.", PerCriterionGrader(judges=[FakeJudge("MET"), FakeJudge("MET")]))
    assert attributes_of(recorder.spans[0])["rubric.judge.model"] == "FakeJudge, FakeJudge#2"


def test_criterion_that_no_judgment_was_requested_for_has_no_event(recorder: Recorder) -> None:
    rubric = Rubric(
        [Criterion(name="must", requirement="Is right", required=True), Criterion(name="kind", requirement="Is kind")],
        name="tone",
    )
    judge = FakeJudge({"Is right": "UNMET", "Is kind": "MET"})
    report = rubric.grade_sync("No.", PerCriterionGrader(judge, stop_when_decided=True))
    assert report.not_asked == ("kind",)
    assert [event[NAME] for event in recorder.events] == ["tone", "tone.must"]


def test_unsampled_span_is_not_recorded_and_its_events_are() -> None:
    recorder = Recorder(ALWAYS_OFF)
    recorder.instrument()
    try:
        KIND.grade_sync("Please.", PerCriterionGrader(FakeJudge()))
    finally:
        uninstrument()
    assert (len(recorder.spans), len(recorder.events)) == (0, 2)


def test_openinference_attributes_have_each_score_and_who_gave_it(recorder: Recorder) -> None:
    recorder.instrument(openinference=True)
    rubric = Rubric.from_dict(
        [
            {"name": "kind", "requirement": "Is kind"},
            {"name": "open", "requirement": "Is open"},
            {"name": "right", "requirement": "Says 42", "check": {"number": 42}},
        ]
    )
    judge = FakeJudge({"Is kind": "MET", "Is open": JudgeFailure("transport", "gone")})
    rubric.grade_sync("It is 42.", PerCriterionGrader(judge, on_failure="abstain", max_retries=0))
    attributes = attributes_of(recorder.spans[0])
    assert attributes["openinference.span.kind"] == "EVALUATOR"
    evaluations = {
        attributes[f"evaluations.{number}.evaluation.name"]: (
            attributes.get(f"evaluations.{number}.evaluation.score"),
            attributes.get(f"evaluations.{number}.evaluation.label"),
            attributes.get(f"evaluations.{number}.evaluation.annotator_kind"),
        )
        for number in range(3)
    }
    assert evaluations == {
        "rubric": (1.0, "not passed", "LLM"),
        "rubric.kind": (1.0, "MET", "LLM"),
        "rubric.right": (1.0, "MET", "CODE"),
    }
    assert not any(name.startswith("evaluations.3.") for name in attributes)


# Whose child the span is.


def sync(grader: PerCriterionGrader) -> None:
    RUBRIC.grade_sync(TEXT, grader)


def in_thread(grader: PerCriterionGrader) -> None:
    asyncio.run(asyncio.to_thread(RUBRIC.grade_sync, TEXT, grader))


def in_own_loop(grader: PerCriterionGrader) -> None:
    asyncio.run(RUBRIC.grade(TEXT, grader))


def in_task(grader: PerCriterionGrader) -> None:
    async def main() -> EvaluationReport:
        return await asyncio.create_task(RUBRIC.grade(TEXT, grader))

    asyncio.run(main())


def sync_in_running_loop(grader: PerCriterionGrader) -> None:
    async def main() -> None:
        RUBRIC.grade_sync(TEXT, grader)

    asyncio.run(main())


def in_run(grader: PerCriterionGrader) -> None:
    list(grade_many([TEXT], RUBRIC, grader))


def in_dspy_metric(grader: PerCriterionGrader) -> None:
    RubricMetric(RUBRIC, grader=grader)(dspy.Example(question=QUERY), dspy.Prediction(answer=TEXT))


def in_langsmith_evaluator(grader: PerCriterionGrader) -> None:
    RubricEvaluator(RUBRIC, grader=grader)(inputs={"question": QUERY}, outputs={"answer": TEXT})


WAYS = [sync, in_thread, in_own_loop, in_task, sync_in_running_loop, in_run, in_dspy_metric, in_langsmith_evaluator]


@pytest.mark.parametrize("grade", WAYS, ids=lambda way: way.__name__)
def test_span_is_a_child_of_the_callers_current_span(
    grade: Callable[[PerCriterionGrader], None], recorder: Recorder
) -> None:
    with recorder.tracer.start_as_current_span("caller") as caller:
        grade(make_grader())
        assert trace.get_current_span() is caller
    [span] = recorder.spans
    assert parent_of(span) == ids_of(caller)
    assert len(recorder.events_of(span)) == 4


def test_spans_of_several_threads_and_event_loops_are_children_of_their_own_callers(recorder: Recorder) -> None:
    callers: dict[int, tuple[int, int]] = {}
    grader = make_grader()

    def work(number: int) -> None:
        rubric = Rubric(RUBRIC.criteria, name=f"rubric-{number}")
        with recorder.tracer.start_as_current_span("caller") as caller:
            callers[number] = ids_of(caller)
            if number % 2:
                rubric.grade_sync(TEXT, grader)
            else:
                asyncio.run(rubric.grade(TEXT, make_grader()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    parents = {int(span.name.rpartition("-")[2]): parent_of(span) for span in recorder.spans}
    assert parents == callers


def test_spans_that_a_judge_makes_are_children_of_the_span_of_its_grade(recorder: Recorder) -> None:
    current: list[tuple[int, int]] = []

    async def judge(system: str, user: str) -> str:
        current.append(ids_of(trace.get_current_span()))
        return '{"explanation": "so", "verdict": "MET"}'

    report = RUBRIC.grade_sync(TEXT, PerCriterionGrader(judge))
    assert report.spend.calls == 3
    assert current == [ids_of(recorder.spans[0])] * 3


def test_grade_within_a_judge_has_a_span_of_its_own(recorder: Recorder) -> None:
    inner = PerCriterionGrader(FakeJudge("MET"))

    async def judge(system: str, user: str) -> str:
        report = await Rubric(KIND.criteria, name="inner").grade("Please.", inner)
        return f'{{"explanation": "so", "verdict": "{"MET" if report.passed else "UNMET"}"}}'

    KIND.grade_sync("Please.", PerCriterionGrader(judge))
    first, second = recorder.spans
    assert (first.name, second.name) == ("evaluate inner", "evaluate tone")
    assert parent_of(first) == ids_of(second)


def test_dspy_evaluate_records_each_prediction_once(recorder: Recorder) -> None:
    class Program(dspy.Module):
        def forward(self, question: str) -> Any:
            return dspy.Prediction(answer=TEXT if question == "high" else ROWS[1].response)

    examples = [dspy.Example(question=name).with_inputs("question") for name in ("high", "low")]
    metric = RubricMetric(RUBRIC, grader=make_grader())
    with recorder.tracer.start_as_current_span("caller"):
        result: Any = dspy.Evaluate(devset=examples, metric=metric, num_threads=2, display_progress=False)(Program())
    assert result.score == pytest.approx(100 * (1 + 2 / 3) / 2, abs=0.01)
    assert sorted(attributes_of(span)["rubric.score"] for span in recorder.spans) == [pytest.approx(2 / 3), 1.0]
    # The threads of `dspy.Evaluate` do not get the context variables of its caller, as docs/tracing.md says.
    assert {parent_of(span) for span in recorder.spans} == {None}


def test_report_from_the_cache_of_the_metric_has_no_span(recorder: Recorder) -> None:
    metric = RubricMetric(RUBRIC, grader=make_grader())
    for _ in range(2):
        metric(dspy.Example(question=QUERY), dspy.Prediction(answer=TEXT))
    assert len(recorder.spans) == 1


# Rounds.


@pytest.mark.parametrize("first", [JudgeFailure("parse", "no JSON"), None], ids=["two rounds", "one round"])
def test_grade_in_several_rounds_is_recorded_once_with_all_its_calls(
    first: JudgeFailure | None, recorder: Recorder
) -> None:
    answers = [*([first] * 2 if first else []), "MET"]
    grader = PerCriterionGrader(FakeJudge({"Is kind": answers}), max_retries=1)
    [graded] = grade_many(["Please."], KIND, grader)
    assert graded.score == 1.0
    [span] = recorder.spans
    assert span.status.status_code == StatusCode.UNSET
    assert [event[SCORE] for event in recorder.events] == [1.0, 1.0]
    assert graded.report is not None
    assert attributes_of(span)["rubric.calls"] == graded.report.spend.calls


def test_same_grade_twice_in_one_task_makes_two_spans(recorder: Recorder) -> None:
    grader = make_grader()

    async def main() -> None:
        for _ in range(2):
            await grader.grade(RUBRIC, TEXT)

    asyncio.run(main())
    assert len(recorder.spans) == 2


# Failures.


class UnluckyError(Exception):
    """An error of a judge of the user's own."""


async def grade_and_get_error(rubric: Rubric, to_grade: Any, grader: PerCriterionGrader) -> BaseException:
    try:
        await rubric.grade(to_grade, grader)
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("the grade did not fail")


async def test_failed_grade_has_an_error_type_and_raises_the_same_error(recorder: Recorder) -> None:
    error = await grade_and_get_error(RUBRIC, ROWS[-1].response, make_grader())
    assert isinstance(error, JudgeError)
    [span] = recorder.spans
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, str(error))
    attributes = attributes_of(span)
    assert attributes.items() >= {"error.type": "JudgeError", "rubric.failed_count": 3}.items()
    # The first failure may cancel the other calls before they are sent.
    assert attributes["rubric.calls"] == error.report.spend.calls
    assert 1 <= error.report.spend.calls <= 3
    assert not {"rubric.score", "rubric.passed"} & set(attributes)
    assert span.events == ()


async def test_error_that_is_no_failure_of_a_judge_ends_the_span_and_is_raised_untouched(recorder: Recorder) -> None:
    unlucky = UnluckyError("no luck")

    class Grader(PerCriterionGrader):
        async def judge(self, rubric: Rubric, submission: Submission) -> Any:
            raise unlucky

    assert await grade_and_get_error(KIND, "Please.", Grader("offline")) is unlucky
    [span], [event] = recorder.spans, recorder.events
    assert (span.status.status_code, attributes_of(span)["error.type"]) == (StatusCode.ERROR, "UnluckyError")
    assert (event[NAME], event["error.type"], event[EXPLANATION]) == ("tone", "UnluckyError", "not graded: no luck")


async def test_cancelled_grade_ends_its_span_without_events(recorder: Recorder) -> None:
    has_begun = asyncio.Event()

    async def wait(_question: Any) -> str:
        has_begun.set()
        await asyncio.sleep(60)
        return "MET"

    task = asyncio.create_task(KIND.grade("Please.", PerCriterionGrader(FakeJudge(wait))))
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [span] = recorder.spans
    assert (span.status.status_code, attributes_of(span)["error.type"]) == (StatusCode.ERROR, "CancelledError")
    assert recorder.events == []


async def test_fallback_verdict_of_a_failed_judge_is_an_error_without_a_score(recorder: Recorder) -> None:
    grader = PerCriterionGrader(FakeJudge(JudgeFailure("transport", "gone")), on_failure="worst_case", max_retries=0)
    report = await KIND.grade("Please.", grader)
    assert report.score == 0.0
    [whole, kind] = recorder.events
    assert whole[SCORE] == 0.0
    assert (kind["error.type"], kind.get(SCORE)) == ("transport", None)


async def test_criterion_whose_condition_failed_has_the_kind_of_that_failure(recorder: Recorder) -> None:
    rubric = Rubric([Criterion(name="kind", requirement="Is kind", applies_when="The user complains")])
    grader = PerCriterionGrader(FakeJudge(JudgeFailure("parse", "no JSON")), on_failure="abstain", max_retries=0)
    await rubric.grade("Please.", grader)
    assert recorder.events[1]["error.type"] == "parse"


class BrokenSpans(SpanProcessor):
    """Raises when a span starts, or when it ends."""

    def __init__(self, method: str):
        self._method = method

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self._method == "on_start":
            raise UnluckyError("on_start")

    def on_end(self, span: Any) -> None:
        if self._method == "on_end":
            raise UnluckyError("on_end")


class BrokenEvents(LogRecordProcessor):
    """Raises when an event is emitted."""

    def on_emit(self, log_record: Any) -> None:
        raise UnluckyError("on_emit")

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


@pytest.mark.parametrize("method", ["on_start", "on_end", "on_emit"])
async def test_error_of_a_processor_is_logged_once_and_changes_no_grade(
    method: str, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    if method == "on_emit":
        recorder.logger_provider.add_log_record_processor(BrokenEvents())
    else:
        recorder.tracer_provider.add_span_processor(BrokenSpans(method))
    for _ in range(2):
        assert (await RUBRIC.grade(TEXT, make_grader())).score == 1.0
        assert isinstance(await grade_and_get_error(RUBRIC, ROWS[-1].response, make_grader()), JudgeError)
    [message] = [message for message in caplog.messages if "did not record a grade" in message]
    assert f"UnluckyError: {method}" in message


async def test_log_of_an_error_of_a_processor_does_not_quote_the_error_of_the_grade(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.tracer_provider.add_span_processor(BrokenSpans("on_end"))
    error = await grade_and_get_error(RUBRIC, ROWS[-1].response, make_grader())
    assert "I would rather not answer" in str(error)
    assert "UnluckyError: on_end" in caplog.text
    assert "I would rather not answer" not in caplog.text


@pytest.mark.parametrize("rubric", [None, "a text", 7])
async def test_wrong_type_of_rubric_raises_the_same_error_with_and_without_spans(
    rubric: Any, recorder: Recorder
) -> None:
    def attempt() -> Awaitable[BaseException]:
        async def grade() -> BaseException:
            try:
                await make_grader().grade(rubric, TEXT)
            except Exception as error:  # noqa: BLE001
                return error
            raise AssertionError("the grade did not fail")

        return grade()

    traced = await attempt()
    uninstrument()
    assert (type(traced), str(traced)) == (type(await attempt()), str(traced))


def test_report_of_a_recorded_grade_equals_that_of_another_one(recorder: Recorder) -> None:
    judgment = Judgment(verdict="MET", value=1.0, reason="so")
    traced = KIND.grade_sync("Please.", PerCriterionGrader(FakeJudge(lambda _question: judgment)))
    uninstrument()
    assert KIND.grade_sync("Please.", PerCriterionGrader(FakeJudge(lambda _question: judgment))) == traced
