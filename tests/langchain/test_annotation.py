"""`annotation_queue_rubric` and `labels_from_feedback`: criteria for human annotators, and their answers as labels."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langsmith.schemas import Feedback

from rubric_integrations import Criterion, Option, Rubric, Scale
from rubric_integrations.langchain import RubricEvaluator, annotation_queue_rubric, labels_from_feedback
from tests.langchain.helpers import make_run

RUBRIC = Rubric(
    [
        Criterion(name="kind", requirement="Is kind", required=True),
        Criterion(name="rude", weight=-1, requirement="Is rude"),
        Criterion(
            name="tone", requirement="tone", options=[Option(label="cold", value=0), Option(label="warm", value=1)]
        ),
        Criterion(name="depth", requirement="depth", scale=Scale(min=0, max=10)),
    ]
)
RUN = make_run({"output": "Hello."})


def make_feedback(key: str, run_id: uuid.UUID = RUN.id, **fields: Any) -> Feedback:
    now = datetime.now(UTC)
    return Feedback(id=uuid.uuid4(), created_at=now, modified_at=now, run_id=run_id, trace_id=run_id, key=key, **fields)


def test_queue_items_have_the_keys_of_the_evaluator_and_describe_scores() -> None:
    items = annotation_queue_rubric(RUBRIC)
    assert [item.get("feedback_key") for item in items] == RubricEvaluator(RUBRIC, judge="offline").feedback_keys[1:]
    assert items[0].get("is_required")
    assert items[0].get("score_descriptions") == {"1": "MET", "0": "UNMET"}
    assert items[1].get("score_descriptions") == {"0": "MET: the error was committed", "1": "UNMET: it was not"}
    assert items[2].get("score_descriptions") == {"0": "cold", "1": "warm"}
    assert items[3].get("score_descriptions") == {"0": "0: lowest", "1": "10: highest"}


def test_labels_from_feedback_scores_and_values_become_verdicts() -> None:
    answers = [
        make_feedback("rubric.kind", score=1, comment="friendly"),
        make_feedback("rubric.rude", score=1),
        make_feedback("rubric.tone", score=1.0),
        make_feedback("rubric.depth", score=0.7),
        make_feedback("rubric.kind", value="CANNOT_ASSESS"),
    ]
    labels = labels_from_feedback(answers, [RUN], RUBRIC)
    assert [label.verdict for label in labels] == ["MET", "UNMET", "warm", "7", "CANNOT_ASSESS"]
    assert labels[0].reason == "friendly"
    assert labels[0].submission.query == "q"


def test_labels_from_feedback_other_keys_and_runs_and_empty_answers_are_skipped() -> None:
    answers = [
        make_feedback("rubric", score=1),
        make_feedback("other", score=1),
        make_feedback("rubric.kind", uuid.uuid4(), score=1),
        make_feedback("rubric.kind"),
    ]
    assert labels_from_feedback(answers, [RUN], RUBRIC) == []


@pytest.mark.parametrize(("key", "score"), [("rubric.kind", 0.5), ("rubric.tone", 0.5), ("rubric.kind", 3)])
def test_labels_from_feedback_impossible_score_raises(key: str, score: float) -> None:
    with pytest.raises(ValueError, match=f"the feedback `{key}` has the score"):
        labels_from_feedback([make_feedback(key, score=score)], [RUN], RUBRIC)


def test_annotation_queue_describes_each_number_of_a_band() -> None:
    levels = {"1-2": "poor", "3": "fair", "4-5": "good"}
    rubric = Rubric.from_dict([{"requirement": "r", "scale": {"min": 1, "max": 5, "integer": True, "levels": levels}}])
    [item] = annotation_queue_rubric(rubric)
    assert item.get("score_descriptions") == {
        "0": "1: poor", "0.25": "2: poor", "0.5": "3: fair", "0.75": "4: good", "1": "5: good",
    }  # fmt: skip


def test_labels_from_feedback_keep_the_run_the_rater_and_how_runs_were_drawn() -> None:
    source = {"type": "app", "user_id": "u-1", "user_name": "Ana"}
    now = datetime.now(UTC)
    first = make_feedback("rubric.kind", score=1, feedback_source=source)
    changed = first.model_copy(update={"id": uuid.uuid4(), "score": 0, "modified_at": now + timedelta(hours=1)})
    # LangSmith lists the latest first.
    answers = [changed, first, make_feedback("rubric.kind", score=1)]
    labels = labels_from_feedback(answers, [RUN], RUBRIC, sampled="random")
    assert [(label.id, label.rater, label.sampled) for label in labels] == [
        (str(RUN.id), "u-1", "random"),
        (str(RUN.id), None, "random"),
        (str(RUN.id), "u-1", "random"),
    ]
    assert [label.verdict for label in labels] == ["MET", "MET", "UNMET"]
    assert labels_from_feedback(answers, [RUN], RUBRIC)[0].sampled == "chosen"
