"""`compare_by_rubric`: the preference between runs by their scores."""

from __future__ import annotations

from typing import Any

import pytest
from langsmith.evaluation.evaluator import comparison_evaluator
from langsmith.run_helpers import tracing_context

from rubric_integrations import Fields
from rubric_integrations.langchain import compare_by_rubric
from tests.langchain.helpers import NUMBER_RUBRIC, chat_model, make_examples, make_run, number_script, number_text
from tests.openai_server import OpenAIServer


def test_compare_runs_within_the_margin_share_the_preference(server: OpenAIServer) -> None:
    compare = compare_by_rubric(NUMBER_RUBRIC, judge=chat_model(server, number_script), tie_margin=0.1)
    runs = [make_run({"output": number_text(number)}) for number in (6, 1, 12)]
    scores = compare(runs, None)["scores"]
    assert [scores[run.id] for run in runs] == [0.5, 0.0, 0.5]


def test_compare_failed_run_gives_no_preference(server: OpenAIServer) -> None:
    compare = compare_by_rubric(NUMBER_RUBRIC, judge=chat_model(server, number_script))
    runs = [make_run({"output": number_text(6)}), make_run(None, "Boom")]
    assert list(compare(runs, None)["scores"].values()) == [None, None]


def test_compare_output_key_selects_what_is_graded(server: OpenAIServer) -> None:
    compare = compare_by_rubric(NUMBER_RUBRIC, judge=chat_model(server, number_script), fields=Fields(response="draft"))
    runs = [
        make_run({"output": number_text(1), "draft": number_text(6)}),
        make_run({"output": number_text(6), "draft": number_text(1)}),
    ]
    assert list(compare(runs, None)["scores"].values()) == [1.0, 0.0]


def test_compare_margin_out_of_range_raises() -> None:
    with pytest.raises(ValueError, match="`tie_margin`"):
        compare_by_rubric(NUMBER_RUBRIC, judge="offline", tie_margin=1.0)


def test_compare_inside_langsmiths_comparison_evaluator_returns_the_scores(server: OpenAIServer) -> None:
    evaluator: Any = comparison_evaluator(compare_by_rubric(NUMBER_RUBRIC, judge=chat_model(server, number_script)))
    runs = [make_run({"output": number_text(number)}) for number in (6, 1)]
    with tracing_context(enabled=False):
        result = evaluator.compare_runs(runs, make_examples(1)[0])
    assert list(result.scores.values()) == [1.0, 0.0]
