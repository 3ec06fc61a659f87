"""Long texts: what is computed on them runs in a thread, so that it does not hold other submissions up."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from rubric_integrations import Criterion, LengthPenalty, PerCriterionGrader, Rubric
from rubric_integrations._util.event_loop import LONG_TEXT_CHARS
from rubric_integrations.graders import Grader, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import LMJudge, calling
from rubric_integrations.judges.prompts import render
from tests.fakes import FakeJudge, FakeModel
from tests.openai_server import OpenAIServer, Reply

RUBRIC = Rubric([Criterion(requirement="Is kind")])
SHORT, LONG = "a " * 10, "a " * LONG_TEXT_CHARS
JUDGED = {"explanation": "", "verdict": "MET", "overall_score": 90}
REPLY = json.dumps({**JUDGED, "judgments": [{"id": 1, "explanation": "", "answer": "MET"}]})


def note_threads(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[bool]:
    """Replace a function by one that also notes whether it runs in the thread of the event loop."""
    original, on_loop = getattr(module, name), list[bool]()

    def noting(*arguments: Any, **named: Any) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return original(*arguments, **named)

    monkeypatch.setattr(module, name, noting)
    return on_loop


@pytest.mark.parametrize(("text", "is_on_loop"), [(SHORT, True), (LONG, False)])
async def test_length_of_a_text_is_counted_in_a_thread_if_it_is_long(text: str, is_on_loop: bool) -> None:
    on_loop: list[bool] = []

    def count(counted: str) -> int:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return len(counted)

    grader = PerCriterionGrader(FakeJudge("MET"), length_penalty=LengthPenalty(count_fn=count))
    assert (await RUBRIC.grade(text, grader=grader)).complete
    assert on_loop == [is_on_loop]


@pytest.mark.parametrize(("text", "is_on_loop"), [(SHORT, True), (LONG, False)])
@pytest.mark.parametrize("grader_type", [PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader])
async def test_prompt_is_rendered_in_a_thread_if_a_text_is_long(
    monkeypatch: pytest.MonkeyPatch, grader_type: type[Grader], text: str, is_on_loop: bool
) -> None:
    on_loop = note_threads(monkeypatch, render, "_render_shared")
    assert (await RUBRIC.grade(text, grader=grader_type(LMJudge(FakeModel(REPLY))))).complete
    assert on_loop == [is_on_loop]


@pytest.mark.parametrize(("explanation", "is_on_loop"), [(SHORT, True), (LONG, False)])
async def test_reply_is_parsed_in_a_thread_if_it_is_long(
    monkeypatch: pytest.MonkeyPatch, server: OpenAIServer, explanation: str, is_on_loop: bool
) -> None:
    server.script = lambda _call: Reply(text=json.dumps({"explanation": explanation, "verdict": "MET"}))
    judge = LMJudge("openai/m", api_base=server.url)
    await RUBRIC.grade("warm up: the first reply is compared with what DSPy reads", grader=PerCriterionGrader(judge))
    on_loop = note_threads(monkeypatch, calling, "parse_reply")
    assert (await RUBRIC.grade("x", grader=PerCriterionGrader(judge))).complete
    assert on_loop == [is_on_loop]
