"""The instrumentation is on or off for the whole process, and leaves everything else as it is."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from langsmith.run_helpers import tracing_context
from opentelemetry import _logs

from rubric_integrations.graders.grader import observed
from rubric_integrations.langchain import RubricEvaluator
from rubric_integrations.tracing import instrument, uninstrument
from tests.hosts.six_responses import ROWS, RUBRIC, make_grader
from tests.langchain.helpers import NUMBER_RUBRIC, chat_model, number_script, number_text
from tests.langchain.test_evaluator_tracing import RecordingClient
from tests.openai_server import OpenAIServer
from tests.runs.processes import call_in_process
from tests.tracing.recorder import EXPLANATION, Recorder

TEXT = ROWS[0].response


def grade() -> float | None:
    return RUBRIC.grade_sync(TEXT, make_grader()).score


def test_second_instrument_replaces_the_settings_of_the_first(recorder: Recorder) -> None:
    recorder.instrument(explanations=False)
    grade()
    assert len(recorder.spans) == 1
    assert [EXPLANATION in event for event in recorder.events] == [False] * 4


def test_grades_after_uninstrument_are_not_recorded(recorder: Recorder) -> None:
    for _ in range(2):
        uninstrument()
        assert grade() == 1.0
    assert (recorder.spans, recorder.events) == ([], [])
    recorder.instrument()
    grade()
    assert len(recorder.spans) == 1


def test_instrument_without_an_sdk_changes_no_grade(recorder: Recorder) -> None:
    instrument()
    assert grade() == 1.0
    assert (recorder.spans, recorder.events) == ([], [])


@pytest.mark.parametrize("missing", ["opentelemetry", "Logger.enabled"])
def test_missing_or_old_api_is_an_import_error_with_the_command_that_installs_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "opentelemetry":
        monkeypatch.setitem(sys.modules, "opentelemetry", None)
    else:
        monkeypatch.delattr(_logs.Logger, "enabled")
    with pytest.raises(ImportError, match=r"1\.45 or newer: pip install opentelemetry-api --upgrade"):
        instrument()


@pytest.mark.processes
def test_importing_the_adapter_imports_no_opentelemetry() -> None:
    code = "import sys, rubric_integrations.tracing; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def record_in_this_process(_argument: Any) -> list[Any]:
    """Instrument this process before its SDK is set up, as global providers, and grade once."""
    from opentelemetry import trace

    instrument()
    recorder = Recorder()
    trace.set_tracer_provider(recorder.tracer_provider)
    _logs.set_logger_provider(recorder.logger_provider)
    score = RUBRIC.grade_sync(TEXT, make_grader()).score
    return [score, [span.name for span in recorder.spans], len(recorder.events)]


@pytest.mark.processes
def test_process_of_its_own_is_recorded_if_it_is_instrumented_also_before_the_sdk_is_set_up() -> None:
    assert call_in_process(record_in_this_process, None) == [1.0, ["evaluate answers"], 4]


def is_observed_in_this_process(_argument: Any) -> bool:
    grade = RUBRIC.grade(TEXT, make_grader())
    is_observed = observed(make_grader(), RUBRIC, TEXT, grade) is not grade
    grade.close()
    return is_observed


@pytest.mark.processes
def test_other_process_is_not_recorded_by_the_instrumentation_of_this_one(recorder: Recorder) -> None:
    assert call_in_process(is_observed_in_this_process, None) is False


def test_runs_in_langsmith_are_the_same_with_and_without_opentelemetry(
    recorder: Recorder, server: OpenAIServer
) -> None:
    def runs() -> list[tuple[Any, ...]]:
        client = RecordingClient()
        evaluator = RubricEvaluator(NUMBER_RUBRIC, judge=chat_model(server, number_script))
        with tracing_context(enabled=True, client=client):
            assert evaluator(inputs={}, outputs={"output": number_text(6)})["score"] == 1.0
        return sorted(
            (run["name"], run["run_type"], client.root_of(run)["name"], bool(run.get("error")))
            for run in client.traced.values()
        )

    recorded = runs()
    assert len(recorder.spans) == 1
    uninstrument()
    assert runs() == recorded
    assert len(recorded) == 4
    assert len(recorder.spans) == 1
