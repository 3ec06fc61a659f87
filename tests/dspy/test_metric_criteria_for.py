"""`criteria_for`: which criteria each predictor of a program is responsible for, under the names that GEPA uses."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import dspy
import pytest
from dspy.teleprompt.gepa.gepa import GEPA

from rubric_integrations import Rubric
from rubric_integrations.dspy import RubricFunctionError, RubricMetric
from tests.dspy.programs import DEVSET, metric_at, task_lm
from tests.openai_server import OpenAIServer, Reply

ITEMS: list[dict[str, Any]] = [
    {"name": "right", "requirement": "Gives the right product", "check": {"number": 6}},
    {"name": "brief", "requirement": "Brief", "check": {"max_words": 4}},
]
LONG_AND_WRONG = dspy.Prediction(answer="one two three four five")


def lines_for(criteria_for: Mapping[str, Any], pred_name: str) -> list[str]:
    """The names of the criteria in the feedback for a predictor."""
    metric = RubricMetric(ITEMS, judge="offline", criteria_for=criteria_for)
    text = metric(DEVSET[0], LONG_AND_WRONG, [], pred_name, []).feedback
    return [item["name"] for item in ITEMS if item["requirement"] in text]


@pytest.mark.parametrize("key", ["answer", "answer.predict"])
def test_predictor_of_a_chain_of_thought_is_named_with_or_without_its_suffix(key: str) -> None:
    assert lines_for({key: ["brief"]}, "answer.predict") == ["brief"]


def test_module_covers_all_its_predictors_and_the_longest_name_wins() -> None:
    criteria_for = {"agent": ["right"], "agent.extract": ["brief"]}
    assert lines_for(criteria_for, "agent.react") == ["right"]
    assert lines_for(criteria_for, "agent.extract.predict") == ["brief"]


def test_predictor_whose_name_only_begins_alike_is_another() -> None:
    with pytest.warns(UserWarning, match="answers"):
        assert lines_for({"answer": ["brief"]}, "answers.predict") == ["right", "brief"]


class TwoSteps(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.outline = dspy.ChainOfThought("question -> answer")
        self.final = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        self.outline(question=question)
        return self.final(question=question)


def test_gepa_with_a_chain_of_thought_receives_only_the_criteria_of_its_predictor(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("UNMET")
    metric = metric_at(server, criteria_for={"outline": ["brief"], "final": ["right"]})
    feedback: dict[str, set[str]] = {}

    def recording(example: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        score = metric(example, pred, trace, pred_name, pred_trace)
        if pred_name:
            feedback.setdefault(pred_name, set()).add(score.feedback)
        return score

    with dspy.context(lm=task_lm()), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        GEPA(
            metric=recording, max_metric_calls=20, reflection_lm=task_lm(), num_threads=1, component_selector="all"
        ).compile(TwoSteps(), trainset=DEVSET, valset=DEVSET)
    assert set(feedback) == {"outline.predict", "final"}
    assert not any("Gives the right product" in text for text in feedback["outline.predict"])
    assert not any("Brief" in text for text in feedback["final"])


def test_predictor_without_an_entry_is_reported_once_with_the_entries_that_matched_nothing() -> None:
    metric = RubricMetric(ITEMS, judge="offline", criteria_for={"anwser": ["brief"], "search": ["right"]})
    metric(DEVSET[0], LONG_AND_WRONG, [], "search", [])
    with pytest.warns(UserWarning, match=r"no entry for the predictor 'answer.predict'.*\['anwser'\]"):
        metric(DEVSET[0], LONG_AND_WRONG, [], "answer.predict", [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric(DEVSET[0], LONG_AND_WRONG, [], "answer.predict", [])


def test_predictor_without_an_entry_is_not_reported_if_every_entry_has_matched() -> None:
    metric = RubricMetric(ITEMS, judge="offline", criteria_for={"search": ["right"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric(DEVSET[0], LONG_AND_WRONG, [], "search", [])
        metric(DEVSET[0], LONG_AND_WRONG, [], "answer.predict", [])
        metric(DEVSET[0], LONG_AND_WRONG)


@pytest.mark.parametrize("rubric", [ITEMS, {"criteria": ITEMS}, Rubric.from_dict(ITEMS)])
def test_misspelt_criterion_is_refused_at_construction(rubric: Any) -> None:
    with pytest.raises(ValueError, match=r"`criteria_for` maps 'predict' to 'brife'.*'right', 'brief'"):
        RubricMetric(rubric, judge="offline", criteria_for={"predict": ["right", "brife"]})


def test_single_name_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(TypeError, match=r"`criteria_for` maps 'predict' to 'brief'.*\['brief'\]"):
        RubricMetric(ITEMS, judge="offline", criteria_for={"predict": "brief"})


def test_misspelt_criterion_with_a_rubric_function_ends_the_run_when_its_feedback_is_requested() -> None:
    metric = RubricMetric(lambda _example: ITEMS, judge="offline", criteria_for={"predict": ["right", "brife"]})
    assert float(metric(DEVSET[0], LONG_AND_WRONG)) == 0.0
    with pytest.raises(RubricFunctionError, match=r"`criteria_for` maps 'predict' to 'brife'.*'brief', 'right'"):
        metric(DEVSET[0], LONG_AND_WRONG, [], "predict", [])


def test_criterion_of_another_examples_rubric_is_no_misspelling() -> None:
    metric = RubricMetric(lambda example: example.rubric, judge="offline", criteria_for={"predict": ["right", "brief"]})
    examples = [dspy.Example(question="?", rubric=[item]).with_inputs("question") for item in ITEMS]
    for example in examples:
        metric(example, LONG_AND_WRONG)
    texts = [metric(example, LONG_AND_WRONG, [], "predict", []).feedback for example in examples]
    assert "Gives the right product" in texts[0]
    assert "Brief" in texts[1]
