"""OpenRubricRL's format."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, RubricError
from rubric_integrations.formats import read_document
from rubric_integrations.formats.openrubricrl import migrate
from rubric_integrations.judges import LMJudge
from tests.openai_server import OpenAIServer, Reply

CODE_QUALITY = Path(__file__).resolve().parents[2] / "examples/openrubricrl/code_quality.json"


def test_domain_examples_and_scale_reach_the_judge_and_the_report(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text='{"explanation": "e", "score": 7.5}')
    rubric = Rubric.from_file(CODE_QUALITY)
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url))
    report = rubric.grade_sync("def total(xs): ...", grader=grader)
    assert (report.score, report.scaled_score) == (pytest.approx(0.75), pytest.approx(7.5))
    first, second = sorted(server.calls, key=lambda call: "sight" in call.prompt)
    assert "The domain is code." in first.prompt
    assert "return xs[0] + xs[1]" in first.prompt
    assert [m["role"] for m in first.body["messages"]] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "- names: Names say what things are" in second.prompt


def test_file_of_an_older_schema_is_refused_and_readable_after_migration() -> None:
    old = {
        "name": "old", "scale": {"min": 0, "max": 10},
        "criteria": [{"name": "c", "description": "d", "weight": 1.0,
                      "examples": {"good": [{"input": "i", "output": "o", "score": 8}]}}],
    }  # fmt: skip
    with pytest.raises(RubricError, match="migrate"):
        read_document(old, "old")
    new, changes = migrate(old, "2.0.0")
    assert len(changes) == 2
    assert read_document(new, "new").version == "2.0.0"
    assert "version" not in old


def test_unknown_key_of_a_criterion_is_refused_with_the_most_similar_key_of_criteria() -> None:
    criterion = {"name": "c", "description": "d", "weight": 1.0, "exampels": {}}
    document = {"name": "n", "version": "1.0.0", "scale": {"min": 0, "max": 10}, "criteria": [criterion]}
    with pytest.raises(RubricError, match=r"`criteria\.0\.exampels`: .*did you mean `examples`"):
        read_document(document, "x")
