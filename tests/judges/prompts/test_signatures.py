"""The DSPy adapter of a judge: which text it parses, and what it takes from the question's inputs."""

from __future__ import annotations

import pytest
from dspy.utils.exceptions import AdapterParseError

from rubric_integrations.judges.prompts.render import describe_batch, render_question
from rubric_integrations.judges.prompts.signatures import JudgeAdapter, JudgeCriterion
from tests.judges.questions import BINARY, CHOICE, MET_REPLY, REPEATED_VERDICT, UNMET_REPLY, question_about


def test_adapter_parses_the_completion() -> None:
    assert JudgeAdapter(quotable=True).parse(JudgeCriterion, UNMET_REPLY)["verdict"] == "UNMET"


def test_adapter_with_the_raw_text_does_not_parse_what_dspy_made_of_it() -> None:
    adapter = JudgeAdapter(quotable=False)
    adapter.raw_text = REPEATED_VERDICT
    with pytest.raises(AdapterParseError, match="twice"):
        adapter.parse(JudgeCriterion, MET_REPLY)


def test_adapter_for_inputs_searches_them_for_quotable_text() -> None:
    plain, quoting = (render_question(question_about(response=text)).inputs for text in ("Nile.", 'a "verdict"'))
    assert not JudgeAdapter.for_inputs(plain).quotable
    assert JudgeAdapter.for_inputs(quoting).quotable
    assert JudgeAdapter.for_inputs(plain, quotable=True).quotable


def test_adapter_for_a_batch_expects_the_numbers_of_its_criteria() -> None:
    criteria = describe_batch({2: question_about(BINARY), 5: question_about(CHOICE)})
    assert JudgeAdapter.for_inputs({"criteria": criteria}).expected_ids == {2, 5}
    assert JudgeAdapter.for_inputs({"criterion": "7. (requirement) x"}).expected_ids == frozenset()
