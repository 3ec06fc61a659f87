"""The scorer in real Inspect evaluations: metrics, unscored samples, epochs with reducers, and scoring of logs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader
from rubric_integrations.inspect_ai import rubric_scorer
from tests.fakes import FakeJudge
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, judge, make_grader
from tests.hosts.tables import print_arrivals

inspect_ai: Any = pytest.importorskip("inspect_ai", reason="Inspect is not installed: make test-host-inspect")
Sample: Any = import_module("inspect_ai.dataset").Sample
log_module: Any = import_module("inspect_ai.log")

Evaluate = Callable[..., Any]
RESPONSES = {row.id: row.response for row in ROWS}
SAYS_42 = [{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}]
NAN = pytest.approx(math.nan, nan_ok=True)


def response_of(state: Any) -> str:
    return RESPONSES[state.sample_id]


def always(text: str) -> Callable[[Any], str]:
    def respond(_state: Any) -> str:
        return text

    return respond


def six_samples() -> list[Any]:
    return [Sample(id=row.id, input=QUERY) for row in ROWS]


def scores_of(log: Any) -> dict[Any, Any]:
    return {sample.id: sample.scores["rubric_scorer"] for sample in log.samples}


def metrics_of(log: Any, reducer: str | None = None) -> dict[str, tuple[float, int, int]]:
    """Return the mean of each key, and how many samples have a score and have none."""
    return {
        result.name: (result.metrics["mean"].value, result.scored_samples, result.unscored_samples)
        for result in log.results.scores
        if result.reducer == reducer
    }


def test_six_responses_have_their_scores_and_a_failure_that_metrics_leave_out(
    evaluate: Evaluate, capsys: pytest.CaptureFixture[str]
) -> None:
    log = evaluate(six_samples(), rubric_scorer(RUBRIC, grader=make_grader()), response_of)
    scores = scores_of(log)
    for row in ROWS:
        if row.score is not None:
            assert scores[row.id].value["rubric"] == pytest.approx(row.score)
    assert scores["rude"].value == {
        "rubric": pytest.approx(2 / 3), "rubric.right": 1.0, "rubric.sourced": 1.0, "rubric.rude": 0.0,
    }  # fmt: skip
    assert scores["unclear"].value["rubric.right"] == NAN
    failed = scores["failing"]
    assert (failed.value, failed.reason) == (NAN, "grader_failed")
    assert "`right` was not judged" in failed.explanation
    assert "error" in failed.metadata["criteria"]["rubric.right"]
    assert metrics_of(log) == {
        "rubric": (pytest.approx(0.6), 5, 1), "rubric.right": (0.5, 4, 2), "rubric.sourced": (0.8, 5, 1),
        "rubric.rude": (0.6, 5, 1),
    }  # fmt: skip
    arrivals = {
        row.id: value if isinstance(value := scores[row.id].value, dict) else {"rubric": f"unscored ({failed.reason})"}
        for row in ROWS
    }
    with capsys.disabled():
        print_arrivals("Inspect AI", arrivals)


def test_explanation_and_metadata_have_the_reason_of_each_criterion(evaluate: Evaluate) -> None:
    log = evaluate(six_samples()[1:2], rubric_scorer(RUBRIC, grader=make_grader()), response_of)
    score = scores_of(log)["rude"]
    assert score.answer == RESPONSES["rude"]
    assert score.explanation.splitlines()[0] == "not passed; coverage 100%; unmet: rude"
    assert score.explanation.splitlines()[-1] == "rubric.rude: MET. compared the words"
    assert (score.metadata["passed"], score.metadata["coverage"]) == (False, 1.0)
    assert score.metadata["criteria"]["rubric.rude"] == {
        "score": 0.0, "label": "MET", "explanation": "compared the words",
    }  # fmt: skip


def test_epochs_are_reduced_by_the_verdicts_and_leave_failures_and_abstentions_out(evaluate: Evaluate) -> None:
    epochs_of = {
        "mixed": ("right", "wrong"), "once": ("failing", "wrong"), "never": ("failing", "failing"),
        "half": ("unclear", "rude"), "same": ("right", "right"),
    }  # fmt: skip

    def respond(state: Any) -> str:
        return RESPONSES[epochs_of[state.sample_id][state.epoch - 1]]

    log = evaluate(
        [Sample(id=name, input=QUERY) for name in epochs_of], rubric_scorer(RUBRIC, grader=make_grader()), respond,
        inspect_ai.Epochs(2, ["mean", "mode", "pass_at_1", "pass_at_2"]),
    )  # fmt: skip
    reduced = {
        reduction.reducer: {sample.sample_id: sample.value for sample in reduction.samples}
        for reduction in log.reductions
    }
    assert reduced["mean"]["mixed"] == {
        "rubric": pytest.approx(2 / 3), "rubric.right": 0.5, "rubric.sourced": 1.0, "rubric.rude": 1.0,
    }  # fmt: skip
    assert reduced["mean"]["once"]["rubric"] == reduced["mode"]["once"]["rubric"] == pytest.approx(1 / 3)
    assert all(reduced[name]["never"] == NAN for name in reduced)
    assert reduced["mean"]["half"]["rubric.right"] == reduced["mode"]["half"]["rubric.right"] == 1.0
    assert reduced["mode"]["same"]["rubric"] == 1.0
    assert (reduced["pass_at_1"]["mixed"]["rubric"], reduced["pass_at_2"]["mixed"]["rubric"]) == (0.5, 1.0)
    # One scored epoch says nothing about two.
    assert (reduced["pass_at_1"]["half"]["rubric.right"], reduced["pass_at_2"]["half"]["rubric.right"]) == (1.0, NAN)
    assert reduced["pass_at_2"]["once"]["rubric"] == NAN
    assert metrics_of(log, "mean")["rubric"] == (pytest.approx((2 / 3 + 1 / 3 + 5 / 6 + 1) / 4), 4, 1)
    assert metrics_of(log, "pass_at_2")["rubric.right"][1:] == (2, 3)


def test_criteria_that_early_stopping_leaves_open_have_no_number_and_keep_their_keys(evaluate: Evaluate) -> None:
    grader = PerCriterionGrader(judge, stop_when_decided=True)
    samples = [Sample(id=name, input=QUERY) for name in ("right", "empty-handed")]
    log = evaluate(samples, rubric_scorer(RUBRIC, grader=grader), response_of, inspect_ai.Epochs(2, "mean"))
    scores = scores_of(log)
    assert list(scores["empty-handed"].value) == list(scores["right"].value)
    assert any(math.isnan(value) for value in scores["empty-handed"].value.values())


def test_sample_with_a_rubric_of_its_own_has_its_criteria_in_the_metadata(evaluate: Evaluate) -> None:
    brief = [{"name": "brief", "requirement": "Is brief", "check": {"max_words": 5}}]
    samples = [
        Sample(id="plain", input="6 x 7?"),
        Sample(id="own", input="6 x 7?", metadata={"rubric": SAYS_42}),
        Sample(id="text", input="6 x 7?", metadata={"rubric": json.dumps([{**SAYS_42[0], "name": "other"}])}),
    ]
    log = evaluate(samples, rubric_scorer(brief, "offline"), always("It is 41."), inspect_ai.Epochs(2, "mean"))
    scores = scores_of(log)
    assert {name: score.value for name, score in scores.items()} == {
        "plain": {"rubric": 1.0, "rubric.brief": 1.0},
        "own": {"rubric": 0.5, "rubric.brief": 1.0},
        "text": {"rubric": 0.5, "rubric.brief": 1.0},
    }
    assert scores["own"].metadata["criteria"]["rubric.answer"]["score"] == 0.0
    own_only = evaluate(samples[1:], rubric_scorer(judge="offline"), always("It is 42."))
    assert {name: score.value for name, score in scores_of(own_only).items()} == {
        "own": {"rubric": 1.0}, "text": {"rubric": 1.0},
    }  # fmt: skip


def test_empty_completion_is_unscored(evaluate: Evaluate) -> None:
    log = evaluate([Sample(id="empty", input="6 x 7?")], rubric_scorer(SAYS_42, "offline"), always(" \n"))
    score = scores_of(log)["empty"]
    assert (score.value, score.reason) == (NAN, "no_response")


def test_task_and_target_reach_the_judge_as_query_and_reference(evaluate: Evaluate) -> None:
    prompts: list[str] = []

    async def recording_judge(system: str, user: str) -> str:
        prompts.append(user)
        return await judge(system, user)

    evaluate([Sample(input=QUERY, target="Forty-two.")], rubric_scorer(RUBRIC, recording_judge), always("Some text"))
    assert len(prompts) == 3
    assert all(QUERY in prompt and "Forty-two." in prompt for prompt in prompts)


def agent_messages(question: Any = QUERY) -> list[Any]:
    messages: Any = import_module("inspect_ai.model")
    call = import_module("inspect_ai.tool").ToolCall(id="1", function="search", arguments={"query": "margin"})
    return [
        messages.ChatMessageUser(content=question),
        messages.ChatMessageAssistant(content="", tool_calls=[call]),
        messages.ChatMessageTool(content="8.4%", tool_call_id="1", function="search"),
    ]


SEARCHED = [{"name": "searched", "requirement": "Searches", "check": {"tool_calls": [{"name": "search"}]}}]


@pytest.mark.parametrize("respond", ["last", "trajectory"])
def test_tool_calls_are_checked_also_if_the_last_answer_is_graded(evaluate: Evaluate, respond: Any) -> None:
    scorer = rubric_scorer(SEARCHED, "offline", respond=respond)
    log = evaluate([Sample(id="agent", input=agent_messages())], scorer, always("The margin was 8.4%."))
    assert scores_of(log)["agent"].value == {"rubric": 1.0, "rubric.searched": 1.0}


def image_question(image: str) -> list[Any]:
    model: Any = import_module("inspect_ai.model")
    return [model.ContentText(text=QUERY), model.ContentImage(image=image)]


def test_judge_of_the_last_answer_sees_files_always_and_steps_if_needed(evaluate: Evaluate) -> None:
    model = FakeJudge(lambda question: "MET")
    rubric = [{"requirement": "Plain"}, {"requirement": "Looks it up", "needs": ["trajectory", "image"]}]
    sample = Sample(id="agent", input=agent_messages(image_question("data:image/png;base64,iVBORw0KGgo=")))
    log = evaluate([sample], rubric_scorer(rubric, model), always("The margin was 8.4%."))
    assert scores_of(log)["agent"].value["rubric"] == 1.0
    submission = model.questions[0].submission
    assert (submission.response, submission.query) == ("The margin was 8.4%.", QUERY)
    assert (submission.show_trajectory, [file.mime_type for file in submission.attachments]) == (
        "if_needed", ["image/png"],
    )  # fmt: skip


def test_last_answer_is_graded_without_messages_that_cannot_be_read(
    evaluate: Evaluate, caplog: pytest.LogCaptureFixture
) -> None:
    data = import_module("inspect_ai.model").ContentData(data={"unknown": 1})
    sample = Sample(id="a", input=[import_module("inspect_ai.model").ChatMessageUser(content=[data])])
    with caplog.at_level("WARNING"):
        log = evaluate([sample], rubric_scorer(SAYS_42, "offline"), always("It is 42."))
    assert scores_of(log)["a"].value == {"rubric": 1.0, "rubric.answer": 1.0}
    assert "sample 'a' is graded without its steps and files" in caplog.text
    score = scores_of(evaluate([sample], rubric_scorer(SEARCHED, "offline"), always("It is 42.")))["a"]
    assert (score.reason, "`trajectory`, which is missing" in score.explanation) == ("grader_failed", True)


def test_log_keeps_the_path_of_the_rubric_and_is_scored_again_in_python_and_in_the_shell(
    evaluate: Evaluate, tmp_path: Path
) -> None:
    (tmp_path / "rubric.json").write_text(json.dumps(SAYS_42))
    log = evaluate([Sample(id="a", input="6 x 7?")], rubric_scorer("rubric.json", "offline"), always("It is 41."))
    arguments = log_module.read_eval_log(log.location).eval.scorers[0].options
    assert arguments == {"rubric": "rubric.json", "judge": "offline"}
    (tmp_path / "rubric.json").write_text(json.dumps([{**SAYS_42[0], "check": {"number": 41}}]))
    again = inspect_ai.score(log, rubric_scorer(**arguments), action="overwrite", display="none")
    assert (metrics_of(log)["rubric"][0], metrics_of(again)["rubric"][0]) == (0.0, 1.0)
    command = [
        sys.executable, "-m", "inspect_ai", "score", log.location, "--action", "overwrite", "--overwrite",
        "--display", "plain", "--scorer", "rubric_integrations/rubric_scorer", "-S", "rubric=rubric.json",
        "-S", "judge=offline",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert metrics_of(log_module.read_eval_log(log.location))["rubric"] == (1.0, 1, 0)


def test_name_of_a_grader_from_a_log_is_refused(evaluate: Evaluate) -> None:
    scorer = rubric_scorer(SAYS_42, grader=PerCriterionGrader("offline"))
    log = evaluate([Sample(id="a", input="6 x 7?")], scorer, always("It is 42."))
    with pytest.raises(TypeError, match="`grader` of `rubric_scorer` must be a grader, got 'PerCriterionGrader'"):
        rubric_scorer(**log.eval.scorers[0].options)


def test_names_with_any_characters_are_keys_of_the_metrics(evaluate: Evaluate) -> None:
    rubric = [{**SAYS_42[0], "name": name} for name in ("cites [§] 3? *", "l'été/a:b")]
    log = evaluate([Sample(id="a", input="6 x 7?")], rubric_scorer(rubric, "offline"), always("It is 42."))
    assert set(metrics_of(log)) == {"rubric", "rubric.cites [§] 3? *", "rubric.l'été/a:b"}


def test_invalid_rubric_of_a_sample_is_an_error_of_the_sample_and_no_score(evaluate: Evaluate) -> None:
    sample = Sample(id="a", input="6 x 7?", metadata={"rubric": [{"weight": 1}]})
    with pytest.raises(AssertionError, match="requirement"):
        evaluate([sample], rubric_scorer(SAYS_42, "offline"), always("It is 42."))
