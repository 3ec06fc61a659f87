"""`sensitive_to` of a criterion: data for tests of the rubric, which changes no prompt, key, score or comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.judges import LMJudge
from rubric_integrations.runs.summary import record_rubric
from tests.openai_server import OpenAIServer

PLAIN = Criterion(name="brief", requirement="Is brief")
SENSITIVE = PLAIN.model_copy(update={"sensitive_to": ("length", "tone")})


def test_sensitivities_are_neither_in_a_prompt_nor_in_a_key_of_the_ledger(server: OpenAIServer, tmp_path: Path) -> None:
    judge = LMJudge("openai/mock", api_base=server.url, api_key="none")
    for criterion in (PLAIN, SENSITIVE):
        graded = grade_many(["Yes."], Rubric([criterion]), PerCriterionGrader(judge), ledger=tmp_path / "ledger.sqlite")
        assert [row.score for row in graded] == [1.0]
    assert len(server.calls) == 1
    PerCriterionGrader(judge).grade_sync(Rubric([SENSITIVE]), Submission(response="Yes."))
    assert server.calls[0].body == server.calls[1].body
    assert "sensitive" not in server.calls[1].prompt


def test_sensitivities_do_not_make_runs_incomparable() -> None:
    assert record_rubric(Rubric([PLAIN]), None) == record_rubric(Rubric([SENSITIVE]), None)


def test_sensitivities_survive_yaml_and_are_left_out_if_there_are_none() -> None:
    rubric = Rubric([PLAIN, SENSITIVE.model_copy(update={"name": "other"})])
    text = rubric.to_yaml()
    assert text.count("sensitive_to") == 1
    assert Rubric.from_yaml(text) == rubric
    assert (rubric + Rubric([Criterion(requirement="Is kind")])).criteria[1].sensitive_to == ("length", "tone")


@pytest.mark.parametrize("value", [["size"], ["length", "length"], "length"])
def test_unknown_or_repeated_sensitivity_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="sensitive_to"):
        Criterion.model_validate({"requirement": "Is brief", "sensitive_to": value})
