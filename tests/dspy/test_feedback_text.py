"""A report as feedback for a reflecting model."""

from __future__ import annotations

import dspy
import pytest

from rubric_integrations import Check, Criterion, EvaluationReport, Fields, PerCriterionGrader, Rubric
from rubric_integrations.dspy import RubricMetric, feedback
from rubric_integrations.dspy.feedback_text import objective_scores
from tests.dspy.programs import DEVSET, judge_at, judge_script, metric_at
from tests.openai_server import OpenAIServer, Reply


def test_feedback_does_not_depend_on_the_trace(metric: RubricMetric) -> None:
    pred = dspy.Prediction(answer="It is 8, or so I would think.")
    scores = [metric(DEVSET[1], pred), metric(DEVSET[1], pred, [], "predict", []), metric(DEVSET[1], pred, trace=[1])]
    assert len({str(score.feedback) for score in scores}) == 1


def test_feedback_orders_criteria_by_loss_and_lists_the_correct_ones_last(metric: RubricMetric) -> None:
    lines = metric(DEVSET[1], dspy.Prediction(answer="It is 8, or so I would think.")).feedback.splitlines()
    assert lines[0] == "Score 0.00 (not passed)."
    assert lines[1].startswith("UNMET (weight 8): Gives the right product")
    assert lines[2].startswith("UNMET (weight 2): Brief: has 8 words, more than 4")
    assert lines[3] == "As it should be: Is rude (avoided)"


def test_feedback_names_penalties_abstentions_and_failures(server: OpenAIServer) -> None:
    replies = {"a": Reply("UNMET"), "bad": Reply("MET"), "b": Reply("CANNOT_ASSESS"), "c": Reply(status=401)}
    server.script = lambda call: replies[call.criterion]
    weights = {"a": 1, "bad": -9, "b": 3, "c": 2}
    rubric = Rubric([Criterion(requirement=requirement, weight=weight) for requirement, weight in weights.items()])
    report = rubric.grade_sync("x", grader=PerCriterionGrader(judge_at(server), on_failure="abstain"))
    assert [line.split(":")[0] for line in feedback(report).splitlines()[1:]] == [
        "PENALTY (weight -9)", "UNMET (weight 1)", "CANNOT_ASSESS (weight 3)", "NOT JUDGED (weight 2)",
    ]  # fmt: skip


def test_objective_scores_invert_penalties_and_omit_abstentions(server: OpenAIServer) -> None:
    server.script = lambda call: Reply({"bad": "MET", "can't tell": "CANNOT_ASSESS"}.get(call.criterion, "UNMET"))
    rubric = Rubric([Criterion(requirement=r, weight=w) for r, w in [("a", 2), ("bad", -1), ("can't tell", 3)]])
    metric = metric_at(server, rubric)
    assert metric(DEVSET[0], dspy.Prediction(answer="x")).objective_scores == {"c1": 0.0, "c2": 0.0}


def test_objective_scores_of_a_program_that_raised_are_the_worst(server: OpenAIServer) -> None:
    assert metric_at(server)(DEVSET[0], None).objective_scores == {"right": 0.0, "brief": 0.0, "rude": 0.0}


def test_criteria_for_a_predictor_limit_its_feedback_and_not_its_score(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("UNMET")
    pred = dspy.Prediction(answer="one two three four five")
    metric = metric_at(server, criteria_for={"predict": ["brief"]})
    whole, part = metric(DEVSET[0], pred), metric(DEVSET[0], pred, [], "predict", [])
    assert "Gives the right product" in whole.feedback
    assert "Gives the right product" not in part.feedback
    assert "Brief: has 5 words" in part.feedback
    assert (float(whole), whole.objective_scores) == (float(part), part.objective_scores)
    assert metric(DEVSET[0], pred, [], "another", []).feedback == whole.feedback


def test_criteria_for_with_an_unknown_criterion_is_refused(server: OpenAIServer) -> None:
    with pytest.raises(ValueError, match=r"`criteria_for` maps 'predict' to 'brife'.*'brief'"):
        metric_at(server, criteria_for={"predict": ["brife"]})


def _count_criteria(report: EvaluationReport) -> str:
    return f"{len(report.criteria)} criteria"


def test_feedback_function_replaces_the_default_text(server: OpenAIServer) -> None:
    metric = metric_at(server, feedback=_count_criteria)
    assert metric(DEVSET[0], dspy.Prediction(answer="No.")).feedback == "3 criteria"


def test_feedback_with_a_reference_ends_with_it_unless_the_prediction_passed(server: OpenAIServer) -> None:
    server.script = judge_script
    metric = metric_at(server, fields=Fields(reference="gold"))
    example = dspy.Example(question="Product 0?", gold="It is 6, of course.").with_inputs("question")
    failed, passed = (metric(example, dspy.Prediction(answer=answer)) for answer in ("No.", "It is 6."))
    assert failed.feedback.endswith("\nA reference answer: It is 6, of course.")
    assert "exemplary" not in passed.feedback


def test_feedback_lists_criteria_that_do_not_apply_in_one_line() -> None:
    never = Check(contains="never there")
    criteria = [Criterion(requirement=text, applies_when=never) for text in ("Names the sum", "Names the date")]
    rubric = Rubric([Criterion(requirement="Is brief", check=Check(max_words=3)), *criteria])
    report = rubric.grade_sync("text", grader=PerCriterionGrader("offline"))
    assert feedback(report).splitlines()[1:] == [
        "As it should be: Is brief",
        "Does not apply here: Names the sum; Names the date",
    ]
    assert list(objective_scores(report)) == ["c1"]


def test_objective_scores_have_one_value_for_each_tag_also_without_a_response() -> None:
    rubric = Rubric(
        [
            Criterion(name="style", requirement='Says "42"', tags=("style",)),
            Criterion(name="rude", requirement="Insults", check=Check(contains="fool"), weight=-5, tags=("style",)),
        ]
    )
    metric = RubricMetric(rubric, judge="offline")
    example = dspy.Example(question="6 x 7?").with_inputs("question")
    score = metric(example, dspy.Prediction(answer="It is 42, fool."))
    assert score.objective_scores == {"tag.style": 0.5, "style": 1.0, "rude": 0.0}
    assert metric(example, dspy.Prediction(answer="")).objective_scores == {"tag.style": 0, "style": 0, "rude": 0}
    assert [row["tags"] for row in metric.history] == [{"style": 0.5}]
