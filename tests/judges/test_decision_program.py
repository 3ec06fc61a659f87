"""Programs of a decision judge: their requests, their strictness, and thresholds that DSPy's ReAnchor has tuned."""

from __future__ import annotations

import asyncio
import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import experimental

from rubric_integrations import Check, Criterion, Option, PerCriterionGrader, Rubric, Scale, Submission
from rubric_integrations.judges import Cascade, DecisionJudge
from rubric_integrations.judges.decisions import PROTOCOLS, DecisionProtocol
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.submission import Attachment
from tests.decision_server import deciding, reply_to, respond, state_of
from tests.judges.questions import TRAJECTORY
from tests.openai_server import Call, OpenAIServer, Reply

TONE = Criterion(
    requirement="Tone", name="tone",
    options=(Option(label="plain", value=1), Option(label="ornate", description="many", value=0)),
)  # fmt: skip
DEPTH = Criterion(requirement="Depth", name="depth", scale=Scale(min=1, max=3, levels={1: "none", 2: "some", 3: "all"}))
RUBRIC = Rubric(
    [
        Criterion(requirement="Names the river", name="river"),
        Criterion(requirement="Invents a source", name="a source!", weight=-2),
        TONE,
        DEPTH,
        Criterion(requirement="Names the refund", applies_when="The user asks for a refund"),
        Criterion(requirement="Is short", check=Check(max_words=9)),
        Criterion(requirement="Looks it up first", name="response", needs=("trajectory",)),
    ],
    guidelines="  Be brief.\n    And fair.",
)
RIVER = Rubric([Criterion(requirement="Names the river", name="river")])
NOTE = Attachment(data="QSBub3RlLg==", mime_type="text/plain")
BOTH = pytest.mark.parametrize("protocol", list(PROTOCOLS))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(deciding()) as running:
        yield running


def judge_at(server: OpenAIServer, protocol: DecisionProtocol = "system-one", **settings: Any) -> DecisionJudge:
    return DecisionJudge("jev-1.13.0", protocol=protocol, api_base=server.url, **settings)


def stated(call: Call) -> Reply:
    """Answer with the probability in the response."""
    probability = float(re.findall(r"0\.\d+", state_of(call)["response"])[0])
    return respond(reply_to(call.body, {}, probability))


def example(probability: float, threshold: float) -> dspy.Example:
    text = f"It is the Nile: {probability:.4f}"
    return dspy.Example(response=text, river=probability >= threshold).with_inputs("response")


def is_right(example: Any, prediction: Any, trace: Any = None) -> bool:
    return prediction.river == example.river


def tuned(judge: DecisionJudge, **thresholds: float) -> Any:
    program: Any = judge.program(RIVER)
    program.fields = {name: {"threshold": threshold} for name, threshold in thresholds.items()}
    return program


@BOTH
@pytest.mark.parametrize("settings", [{}, {"abstains": False}, {"max_questions": 3}])
@pytest.mark.parametrize(
    "inputs",
    [
        {"response": "The Nile.", "query": "Which river?", "reference": "Nile", "context": ["A book."]},
        {"response": 'A "quoted" ``` text', "thinking": "Hm", "trajectory": TRAJECTORY},
        {"response": "r", "trajectory": TRAJECTORY, "show_trajectory": "if_needed", "hide_thinking": True},
        {
            "response": "r",
            "trajectory": TRAJECTORY,
            "attachments": [NOTE],
        },
    ],
)
def test_program_sends_the_bytes_of_the_judge(
    server: OpenAIServer, protocol: DecisionProtocol, settings: dict[str, Any], inputs: dict[str, Any]
) -> None:
    judge = judge_at(server, protocol, **settings)
    rubric = RUBRIC if "trajectory" in inputs else Rubric(RUBRIC.criteria[:-1], guidelines=RUBRIC.guidelines)
    rubric.grade_sync(Submission(**inputs), grader=PerCriterionGrader(judge))
    expected = sorted(call.raw for call in server.calls)
    server.calls.clear()
    assert judge.program(rubric)(**inputs).river is True
    assert sorted(call.raw for call in server.calls) == expected


def test_program_has_a_field_for_each_criterion(server: OpenAIServer) -> None:
    judge = judge_at(server, abstains=False)
    program: Any = judge.program(RUBRIC)
    outputs = program.signature.output_fields
    assert isinstance(program, dspy.Predict)
    assert list(outputs) == ["river", "a_source", "tone", "depth", "c5", "criterion_7", "condition_1"]
    assert [outputs[name].annotation for name in ("river", "condition_1")] == [bool, bool]
    server.script = deciding({"q1": 0.2, "q4": [0.1, 0.2, 0.7], "q8": 0.4})
    prediction = program(response="The Nile.", trajectory=TRAJECTORY)
    assert [prediction[name] for name in ("river", "a_source", "c5", "condition_1")] == [False, True, True, False]
    assert prediction.depth.value == pytest.approx(1.6)
    assert prediction.depth.confidence == 0.7


def test_program_shows_that_the_material_is_not_sufficient(server: OpenAIServer) -> None:
    server.script = deciding({"q1_sufficient": 0.2})
    judge = judge_at(server)
    prediction = judge.program(RIVER)(response="The Nile.")
    assert (prediction.river, prediction.river_sufficient) == (True, False)
    judged = judge.with_program(tuned(judge, river=0.3))
    report = RIVER.grade_sync("The Nile.", grader=PerCriterionGrader(judged))
    assert report.criteria[0].verdict == "CANNOT_ASSESS"


def test_replies_are_cached_and_thresholds_reuse_them(server: OpenAIServer) -> None:
    judge = judge_at(server)
    for threshold in (0.3, 0.9, 0.95):
        assert tuned(judge, river=threshold)(response="The Nile.").river is (threshold <= 0.9)
    assert len(server.calls) == 1
    asyncio.run(judge.program(RIVER).acall(response="The Nile."))
    assert len(server.calls) == 1
    judge.program(RIVER, cache=False)(response="The Nile.")
    judge.program(RIVER)(response="The Nile.", query="Which?")
    judge_at(server, abstains=False).program(RIVER)(response="The Nile.")
    assert len(server.calls) == 4


def test_program_runs_with_and_without_an_event_loop(server: OpenAIServer) -> None:
    program: Any = judge_at(server).program(RIVER, cache=False)

    async def together() -> list[Any]:
        return await asyncio.gather(*(program.acall(response=f"The Nile {number}.") for number in range(4)))

    predictions = [program(response="The Nile."), *asyncio.run(together()), *asyncio.run(together())]
    assert [prediction.river for prediction in predictions] == [True] * 9
    assert len(server.calls) == 9


FAULTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "missing": lambda answers: answers.pop("q1"),
    "refused": lambda answers: answers.update(q1={"type": "refusal"}),
    "mistyped": lambda answers: answers.update(q1={"type": "choice", "choice": "x", "probabilities": {"x": 1}}),
    "too large": lambda answers: answers["q1"].update(noul=1.7),
    "text": lambda answers: answers["q1"].update(noul="0.9"),
    "sum": lambda answers: answers["q2"]["probabilities"].update(plain=0.9, ornate=0.8),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_of_one_question_is_a_failure_and_is_not_cached(server: OpenAIServer, fault: str) -> None:
    program = judge_at(server, abstains=False).program(Rubric([RIVER.criteria[0], TONE]))

    def faulty(call: Call) -> Reply:
        reply = reply_to(call.body, {})
        if ("q2" if fault == "sum" else "q1") in reply["answers"]:
            FAULTS[fault](reply["answers"])
        return respond(reply)

    server.script = faulty
    with pytest.raises(JudgeFailure, match="`tone`" if fault == "sum" else "`river`"):
        program(response="The Nile.")
    server.script = deciding()
    assert program(response="The Nile.").river is True


def test_extra_answer_does_not_become_an_output(server: OpenAIServer) -> None:
    def extra(call: Call) -> Reply:
        reply = reply_to(call.body, {})
        reply["answers"]["score"] = {"type": "noul", "noul": 1.0}
        return respond(reply)

    server.script = extra
    with pytest.warns(UserWarning, match="were not asked"):
        prediction = judge_at(server, abstains=False).program(RIVER)(response="The Nile.")
    assert prediction.toDict() == {"river": True}


def test_lost_reply_is_requested_again(server: OpenAIServer) -> None:
    replies = [respond(b"", 429, retry_after_ms="1"), respond(b"", 500)]

    def lost(call: Call) -> Reply:
        return replies.pop() if replies else respond(reply_to(call.body, {}))

    server.script = lost
    assert judge_at(server).program(RIVER)(response="The Nile.").river is True
    assert len(server.calls) == 3


def test_missing_evidence_and_an_empty_response_are_errors(server: OpenAIServer) -> None:
    program = judge_at(server).program(RUBRIC)
    with pytest.raises(JudgeFailure, match="`criterion_7`: needs the trajectory"):
        program(response="The Nile.")
    with pytest.raises(ValueError, match="nothing to grade"):
        program(response=" ")


def test_other_questions_than_the_judges_are_refused(server: OpenAIServer) -> None:
    judge = judge_at(server)
    program: Any = judge.program(RIVER)
    changed = program.signature.with_instructions("Be kind.")
    with pytest.raises(ValueError, match="`instructions` of the program is not"):
        program(response="r", signature=changed)
    with pytest.raises(ValueError, match="remove the `demos`"):
        program(response="r", demos=[dspy.Example(response="x", river=True)])
    program.fields = {"river": {"threshold": 0.7, "instructions": "Is it long?"}}
    with pytest.raises(ValueError, match="`river` of the program is not"):
        program(response="r")
    with pytest.raises(ValueError, match="`river` of the program is not"):
        judge.with_program(program)
    assert server.calls == []


def test_rubric_without_a_question_and_a_refused_criterion_have_no_program(server: OpenAIServer) -> None:
    with pytest.raises(ValueError, match="would have no question"):
        judge_at(server).program([{"requirement": "Is short", "check": {"max_words": 9}}])
    with pytest.raises(ValueError, match="counts occurrences"):
        judge_at(server).program([{"requirement": "Typos", "per": "occurrence", "cap": 5, "weight": -1}])


def test_reanchor_finds_the_threshold_and_the_judge_takes_it(server: OpenAIServer) -> None:
    server.script = stated
    judge = judge_at(server, abstains=False)
    examples = [example(number / 40 + 0.01, 0.72) for number in range(40)]
    optimizer = experimental.ReAnchor(is_right, num_threads=2)
    program = judge.program(RIVER)
    fitted = optimizer.compile(program, trainset=examples)
    assert 0.71 < fitted.fields["river"]["threshold"] <= 0.735
    assert program.fields == {}
    assert len(server.calls) == 40
    cascade = judge.with_program(fitted)
    assert isinstance(cascade, Cascade)
    assert (cascade.thresholds.source, cascade.thresholds.judge) == ("tuned", "typesafe/jev-1.13.0")
    for gold in examples:
        report = RIVER.grade_sync(gold.response, grader=PerCriterionGrader(cascade))
        assert (report.criteria[0].verdict == "MET") is fitted(response=gold.response).river is gold.river


def test_reanchor_requires_the_cache(server: OpenAIServer) -> None:
    server.script = stated
    program = judge_at(server, abstains=False).program(RIVER, cache=False)
    examples = [example(number / 10 + 0.05, 0.72) for number in range(10)]
    settings: dict[str, Any] = {"metric": is_right, "num_threads": 2}
    with pytest.raises(ValueError, match="do not cache responses"):
        experimental.ReAnchor(**settings).compile(program, trainset=examples)
    assert server.calls == []
    experimental.ReAnchor(**settings, require_cache=False).compile(program, trainset=examples)
    assert len(server.calls) > 10


@pytest.mark.parametrize("threshold", [0.1, 0.275, 0.3, 0.5, 0.7, 0.725, 0.9, 1.0])
def test_tuned_judge_gives_the_verdicts_of_the_program(server: OpenAIServer, threshold: float) -> None:
    server.script = stated
    judge = judge_at(server, abstains=False)
    program = tuned(judge, river=threshold)
    grader = PerCriterionGrader(judge.with_program(program))
    shares = {round(threshold + step, 4) for step in (-0.0001, 0, 0.0001)} | {0.0, 0.4999, 0.5, 0.9999}
    for share in sorted(share for share in shares if share < 1):
        text = f"It is the Nile: {share:.4f}"
        verdict = RIVER.grade_sync(text, grader=grader).criteria[0].verdict
        assert verdict == ("MET" if program(response=text).river else "UNMET")


def test_module_of_ones_own_has_the_thresholds_of_its_program(server: OpenAIServer) -> None:
    judge = judge_at(server)

    class Gate(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.judged = tuned(judge, river=0.8)

        def forward(self, text: str) -> Any:
            return dspy.Prediction(passed=self.judged(response=text).river)

    assert Gate()(text="The Nile.").passed is True
    (entry,) = judge.with_program(Gate()).thresholds.criteria
    assert (entry.requirement, entry.name, entry.met) == ("Names the river", "river", 0.8)


def test_program_of_another_judge_or_model_is_refused(server: OpenAIServer) -> None:
    judge = judge_at(server)
    with pytest.raises(ValueError, match="belongs to"):
        judge_at(server, abstains=False).with_program(judge.program(RIVER))
    with pytest.raises(TypeError, match="has 0 programs of a decision judge"):
        judge.with_program(dspy.Predict("a -> b"))
    program: Any = judge.program(RIVER)
    program.set_lm(dspy.LM("openai/x"))
    with pytest.raises(ValueError, match="another `lm`"):
        judge.with_program(program)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tone": {"weights": {"plain": 1.0, "ornate": 2.0}}}, "`tone` has tuned `weights`"),
        ({"depth": {"cuts": [0.4, 1.5]}}, "`depth` has tuned `cuts`"),
        ({"river_sufficient": {"threshold": 0.4}}, "abstains below 0.5"),
        ({"river": {"threshold": 0}}, "every answer is MET"),
    ],
)
def test_settings_without_a_threshold_of_the_judge_are_refused(
    server: OpenAIServer, fields: dict[str, Any], message: str
) -> None:
    judge = judge_at(server)
    program = judge.program(RUBRIC)
    program.fields = fields
    with pytest.raises(ValueError, match=message):
        judge.with_program(program)


def test_default_settings_of_reanchor_change_nothing(server: OpenAIServer) -> None:
    judge = judge_at(server)
    program = judge.program(RUBRIC)
    program.fields = {
        "river": {"threshold": 0.5}, "river_sufficient": {"threshold": 0.5}, "depth": {"cuts": [0.5, 1.5]},
        "tone": {"weights": {"plain": 1.0, "ornate": 1.0, "CANNOT_ASSESS": 1.0}},
    }  # fmt: skip
    assert judge.with_program(program).thresholds.criteria == ()


def test_saved_program_loads_without_an_address(server: OpenAIServer, tmp_path: Path) -> None:
    judge = judge_at(server, api_key="sk-secret")
    tuned(judge, river=0.95).save(tmp_path / "program.json")
    text = (tmp_path / "program.json").read_text()
    assert server.url not in text
    assert "sk-secret" not in text
    program: Any = judge.program(RIVER)
    program.load(tmp_path / "program.json")
    assert program(response="The Nile.").river is False
    assert judge.with_program(program).thresholds.criteria[0].met == 0.95


def test_state_of_another_rubric_is_refused(server: OpenAIServer) -> None:
    judge = judge_at(server)
    program: Any = judge.program([{"requirement": "Names the sea", "name": "river"}])
    program.load_state(tuned(judge, river=0.95).dump_state())
    with pytest.raises(ValueError, match="`river` of the program is not the question of the rubric"):
        judge.with_program(program)


def test_copies_and_pickles_of_a_program_have_its_questions(server: OpenAIServer) -> None:
    program = tuned(judge_at(server), river=0.95)
    client = pickle.loads(pickle.dumps(program.client))
    assert client.fields == program.client.fields
    for clone in (copy.deepcopy(program), program.deepcopy(), program.reset_copy()):
        assert clone.client is program.client
        assert clone.lm is program.client
        assert clone(response="The Nile.").river is False


def test_usage_is_tracked_once(server: OpenAIServer) -> None:
    program = judge_at(server).program(RIVER)
    for total in (88, 0):
        with dspy.track_usage() as usage:
            program(response="The Nile.")
        tokens = usage.get_total_tokens()
        assert sum(counts["prompt_tokens"] for counts in tokens.values()) == total


def test_judge_is_used_without_dspy() -> None:
    code = (
        "import sys; from rubric_integrations.judges import DecisionJudge; "
        "DecisionJudge('jev', api_key='k').fingerprint(); print('dspy' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
