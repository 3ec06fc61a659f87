"""Documents of a submission: in every accepted form, and in rows."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from pydantic import ValidationError

from rubric_integrations import PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.submission.inputs import read_row
from tests.fakes import FakeJudge


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("one", ("one",)),
        (["one", "two"], ("one", "two")),
        ([Document(page_content="one", metadata={"page": 3})], ("one",)),
        ([{"title": "a", "page": 3}], ('{"title": "a", "page": 3}',)),
        ([None, "", " ", "one"], ("one",)),
        (None, ()),
        ([], ()),
    ],
)
def test_documents_in_any_form_become_texts(value: Any, texts: tuple[str, ...]) -> None:
    assert Submission(response="r", context=value).context == texts


def test_documents_are_left_out_of_the_json_where_there_are_none() -> None:
    assert "context" not in Submission(response="r").model_dump()
    with_documents = Submission(response="r", context=("a", "b"))
    assert Submission.model_validate_json(with_documents.model_dump_json()) == with_documents


def test_documents_that_are_too_long_together_are_refused() -> None:
    with pytest.raises(ValidationError, match="has 1,200,000 characters in all, more than 1,000,000"):
        Submission(response="r", context=("x" * 600_000, "y" * 600_000))


@pytest.mark.parametrize("column", ["context", "documents", "Context"])
def test_row_with_a_column_of_documents_passes_them_on(column: str) -> None:
    submission = read_row({"response": "r", column: ["a", "b"]}, 1).submission
    assert submission is not None
    assert submission.context == ("a", "b")
    judge = FakeJudge("MET")
    list(
        grade_many(
            [{"response": "r", column: "a"}], Rubric.from_dict([{"requirement": "x"}]), PerCriterionGrader(judge)
        )
    )
    assert judge.questions[0].submission.context == ("a",)
