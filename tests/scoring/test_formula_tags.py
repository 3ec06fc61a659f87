"""The score of a tag is the score of the rubric that has only the criteria with this tag."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import RubricAsJudgeGrader
from rubric_integrations.scoring.formula import tag_scores
from tests.fakes import FakeJudge, FakeOverallJudge
from tests.scoring.rubrics import report_of

VERDICTS = {"MET": 1.0, "UNMET": 0.0, "CANNOT_ASSESS": None}
TAGGED = st.lists(
    st.builds(
        Criterion,
        requirement=st.just("r"),
        weight=st.integers(-20, 20).filter(bool).map(float),
        tags=st.lists(st.sampled_from(["safety", "style", "facts"]), unique=True),
    ),
    min_size=1,
    max_size=8,
)


@given(TAGGED, st.data(), st.sampled_from(["skip", "zero", "partial", "fail"]) | st.floats(0, 1))
def test_tag_scores_any_rubric_equal_scores_of_the_sub_rubrics(
    criteria: list[Criterion], data: st.DataObject, policy: Any
) -> None:
    verdicts = [data.draw(st.sampled_from(sorted(VERDICTS))) for _ in criteria]
    scores = tag_scores(Rubric(criteria), [VERDICTS[verdict] for verdict in verdicts], policy)
    assert set(scores) == {tag for criterion in criteria for tag in criterion.tags}
    for tag, score in scores.items():
        kept = [index for index, criterion in enumerate(criteria) if tag in criterion.tags]
        alone, answers = Rubric([criteria[index] for index in kept]), [verdicts[index] for index in kept]
        assert score.normalized == alone.compute_score(answers, True, policy)
        assert score.reported(normalize=False) == alone.compute_score(answers, False, policy)


@given(TAGGED, st.data())
def test_tag_of_every_criterion_has_the_score_of_the_rubric(criteria: list[Criterion], data: st.DataObject) -> None:
    rubric = Rubric([criterion.model_copy(update={"tags": ("all",)}) for criterion in criteria])
    report = report_of(rubric, *(data.draw(st.sampled_from(sorted(VERDICTS))) for _ in criteria))
    assert report.tags == {"all": report.score}


SAFETY = Criterion(name="insults", requirement="Insults", weight=-4, tags=("safety",))
FACTS = Criterion(name="margin", requirement="Margin", weight=4, tags=("facts", "figures"), metadata={"source": "p. 3"})
COST = Criterion(name="cost", requirement="Cost", weight=12, tags=("figures",))
RUBRIC = Rubric([SAFETY, FACTS, COST])


def test_report_tags_are_scores_on_the_branch_of_their_criteria() -> None:
    report = report_of(RUBRIC, "UNMET", "MET", "UNMET")
    assert (report.score, report.tags) == (0.25, {"safety": 1.0, "facts": 1.0, "figures": 0.25})
    assert report_of(RUBRIC, "MET", "MET", "UNMET").tags["safety"] == 0.0
    assert report_of(RUBRIC, "MET", "CANNOT_ASSESS", "UNMET").tags == {"safety": 0.0, "facts": None, "figures": 0.0}
    assert report_of(RUBRIC, "MET", "MET", "UNMET", normalize=False).tags == {"safety": -4, "facts": 4, "figures": 4}


def test_report_rows_carry_tags_and_metadata_and_files_have_them_only_if_present() -> None:
    report = report_of(RUBRIC, "UNMET", "MET", "UNMET")
    assert [row.tags for row in report.criteria] == [("safety",), ("facts", "figures"), ("figures",)]
    line: Any = report.model_dump(mode="json")
    assert line["tags"] == report.tags
    assert [row.get("metadata") for row in line["report"]] == [None, {"source": "p. 3"}, None]
    assert type(report).model_validate(line) == report
    plain: Any = report_of(Rubric([Criterion(requirement="r")]), "MET").model_dump(mode="json")
    assert "tags" not in plain
    assert not {"tags", "metadata"} & set(plain["report"][0])
    assert list(report.to_dataframe()["tags"]) == [row.tags for row in report.criteria]


def test_tags_failed_judge_has_no_scores_of_tags() -> None:
    judge = FakeJudge({"Insults": "UNMET", "Margin": RuntimeError("down"), "Cost": "MET"})
    with pytest.raises(JudgeError) as error:
        RUBRIC.grade_sync("text", PerCriterionGrader(judge, max_retries=0))
    assert error.value.report.tags == {"safety": None, "facts": None, "figures": None}
    lenient = PerCriterionGrader(judge, max_retries=0, on_failure="worst_case")
    assert RUBRIC.grade_sync("text", lenient).tags == {"safety": 1.0, "facts": 0.0, "figures": 0.75}


def test_tags_early_stop_leaves_tags_with_open_criteria_undefined() -> None:
    judge = FakeJudge({"Insults": "UNMET", "Margin": "MET", "Cost": "UNMET"})
    report = RUBRIC.grade_sync("text", PerCriterionGrader(judge, stop_when_decided=True))
    assert not report.passed
    assert report.tags == {
        tag: None if any(tag in row.tags and not row.was_asked for row in report.criteria) else score
        for tag, score in report_of(RUBRIC, "UNMET", "MET", "UNMET").tags.items()
    }
    assert None in report.tags.values()


def test_tags_holistic_judge_has_none() -> None:
    assert RUBRIC.grade_sync("text", RubricAsJudgeGrader(FakeOverallJudge(70))).tags == {}


def test_run_data_frame_has_a_column_for_each_tag() -> None:
    judge = FakeJudge({"Insults": "UNMET", "Margin": "MET", "Cost": "UNMET"})
    frame: Any = grade_many(["text"], RUBRIC, PerCriterionGrader(judge)).to_dataframe()
    assert frame.loc[0, ["tag.safety", "tag.facts", "tag.figures"]].tolist() == [1.0, 1.0, 0.25]


def test_metadata_is_not_part_of_the_question_that_a_judge_reads() -> None:
    from rubric_integrations.judges import Question
    from rubric_integrations.judges.prompts.render import criterion_inputs, describe_batch, describe_rubric
    from rubric_integrations.submission import Submission

    bare = FACTS.model_copy(update={"metadata": None, "tags": (), "importance": None})
    questions = [Question(Submission(response="-"), criterion) for criterion in (FACTS, bare)]
    assert criterion_inputs(questions[0]) == criterion_inputs(questions[1])
    assert describe_batch({1: questions[0]}) == describe_batch({1: questions[1]})
    assert describe_rubric(Rubric([FACTS])) == describe_rubric(Rubric([bare]))


@given(TAGGED, st.data())
def test_score_of_any_rubric_does_not_depend_on_metadata_documents_and_tags(
    criteria: list[Criterion], data: st.DataObject
) -> None:
    verdicts = [data.draw(st.sampled_from(sorted(VERDICTS))) for _ in criteria]
    notes = {"metadata": {"page": data.draw(st.integers())}, "context": "p. 3", "tags": ("other",)}
    noted = Rubric([criterion.model_copy(update=notes) for criterion in criteria])
    assert noted.compute_score(verdicts) == Rubric(criteria).compute_score(verdicts)
    assert Rubric.from_yaml(noted.to_yaml()) == noted
