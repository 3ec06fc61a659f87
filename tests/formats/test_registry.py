"""The registered formats: detection, conversion, and the examples of each format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, RubricError, Submission
from rubric_integrations.checks import register_metric
from rubric_integrations.formats import load_eval_cases, read_document, write_document
from rubric_integrations.formats.registry import FORMATS, Format, detect
from rubric_integrations.judges import LMJudge
from tests.formats.mutation import EXAMPLES, ODD_VALUES
from tests.formats.samples import READ_ONLY, SAMPLES
from tests.openai_server import OpenAIServer, Reply
from tests.rubric.strategies import rubrics


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_file_is_detected_graded_and_equal_after_writing(path: Path, server: OpenAIServer) -> None:
    @register_metric("distinct_words")
    def distinct_words(submission: Submission) -> float:  # pyright: ignore[reportUnusedFunction]
        words = submission.response.lower().split()
        return len(set(words)) / len(words)

    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert detect(document) == path.parent.name
    cases = list(load_eval_cases(path)) if "evalcases" in document else []
    rubric = cases[0].rubric if cases else Rubric.from_file(path)
    server.script = lambda call: Reply(
        text=json.dumps({"explanation": "e", "verdict": "MET", "score": 5 if "whole numbers" in call.prompt else 4.0})
    )
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url))
    report = rubric.grade_sync("One two three three.", grader=grader)
    assert report.complete
    assert report.score is not None
    again, losses = write_document(rubric, path.parent.name)
    assert losses == []
    assert read_document(again, path.name) == rubric


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rubric=rubrics)
def test_conversion_of_any_rubric_to_any_format_is_lossless_or_reports_its_losses(rubric: Rubric) -> None:
    # Formats without penalties, or with nothing else; of a single criterion on a scale; and those that are only read.
    refused = {
        "openrubricrl": not rubric.positive_weight,
        "paperbench": bool(rubric.negative_weight),
        "agent_skills": bool(rubric.negative_weight),
        "markdown": True,  # a text that is Markdown, see test_markdown.py
        "rewardkit": any(map(has_no_place_in_rewardkit, rubric.criteria)),
    }
    for to in FORMATS:
        try:
            document, losses = write_document(rubric, to)
        except RubricError:
            assert refused.get(to, to in ("prometheus", *READ_ONLY)), to
            continue
        again = read_document(json.loads(json.dumps(document)), "again")
        assert again == rubric or losses, to


def has_no_place_in_rewardkit(criterion: Criterion) -> bool:
    """Return whether a criterion would have another score in Reward Kit."""
    values = sorted(option.value for option in criterion.choices)
    even = [index / (len(values) - 1) for index in range(len(values))]
    return (
        criterion.is_penalty
        or any(part is not None for part in (criterion.applies_when, criterion.check, criterion.per))
        or values != pytest.approx(even)
        or len(values) > 10
    )


ONE_TO_FIVE: dict[str, Any] = {"min": 1, "max": 5, "integer": True, "levels": dict(enumerate("abcde", start=1))}


@pytest.mark.parametrize(("name", "document"), SAMPLES)
def test_sample_of_a_format_is_claimed_by_that_format_alone(name: Format, document: Any) -> None:
    claims = [
        other for other, rubric_format in FORMATS.items() if other != "native" and rubric_format.matches(document)
    ]
    assert claims == ([] if name == "native" else [name])
    assert detect(document) == name


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in READ_ONLY])
def test_written_document_is_detected_as_its_format(name: Format) -> None:
    scale = {"scale": ONE_TO_FIVE} if name == "prometheus" else {}
    rubric = Rubric([{"requirement": "r", "name": "n", "weight": 1.0, **scale}], name="x", version="1.0.0")
    assert detect(write_document(rubric, name)[0]) == name


@pytest.mark.parametrize("document", ODD_VALUES)
def test_detection_never_fails_and_falls_back_to_native(document: Any) -> None:
    assert detect(document) in FORMATS
    assert list(FORMATS)[-1] == "native"


def test_conversion_to_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=rf"'toml'.*{', '.join(sorted(FORMATS))}"):
        write_document(Rubric([{"requirement": "r"}]), "toml")


@pytest.mark.parametrize("name", ["agentv", "openrubricrl"])
def test_conversion_lists_tags_importance_and_metadata_as_losses(name: str) -> None:
    rubric = Rubric(
        [Criterion(name="a", requirement="r", importance="essential", tags=("t",), metadata={"page": 3})],
        importance_weights={"essential": 5},
    )
    document, losses = FORMATS[name].write(rubric)
    assert "importance_weights" in "\n".join(losses)
    for field in ("tags", "importance", "metadata"):
        assert any(loss.startswith(f"`a`: `{field}` has no place in the") for loss in losses)
    assert FORMATS[name].parse(document, "file").rubric.criteria[0].requirement == "r"


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in READ_ONLY])
def test_evidence_operator_judge_and_sensitivities_are_kept_or_listed_as_losses(name: Format) -> None:
    scale = ONE_TO_FIVE if name == "prometheus" else None
    fields: dict[str, Any] = {"name": "a", "requirement": "r", "needs": ["query"], "judge": "second", "scale": scale}
    rubric = Rubric([Criterion(**fields, operator=None if scale else "supports", sensitive_to=("length",))])
    document, losses = write_document(rubric, name)
    lost = [
        field
        for field in ("needs", "operator", "judge", "sensitive_to")
        if any(f"`a`: `{field}`" in loss for loss in losses)
    ]
    expected = ["needs", *(() if scale else ("operator",)), "judge", "sensitive_to"]
    assert lost == ([] if name == "native" else expected)
    criterion = read_document(document, "file").criteria[0]
    assert (criterion.operator, criterion.sensitive_to) == ((None, ()) if lost else ("supports", ("length",)))


def test_conversion_to_agentv_writes_bands_that_cover_its_scale_as_score_ranges() -> None:
    levels = {"0-3": "poor", "4-9": "fair", "10": "perfect"}
    scale = {"min": 0, "max": 10, "integer": True, "levels": levels}
    rubric = Rubric.from_dict([{"name": "a", "requirement": "r", "scale": scale}])
    document, losses = FORMATS["agentv"].write(rubric)
    assert losses == []
    ranges = [entry["score_range"] for entry in document["rubrics"][0]["score_ranges"]]
    assert ranges == [[0, 3], [4, 9], [10, 10]]
    [criterion] = FORMATS["agentv"].parse(document, "file").rubric.criteria
    assert criterion.scale is not None
    assert criterion.scale.levels == {0: "poor", 4: "fair", 10: "perfect"}
    scale["levels"] = {"0-3": "poor"}
    _, losses = FORMATS["agentv"].write(Rubric.from_dict([{"name": "a", "requirement": "r", "scale": scale}]))
    assert losses == ["`a`: the format has one scale, whole numbers from 0 to 10 with a text at 0"]
