"""Making a judge of whatever a user passes as `judge=`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import dspy
import pytest
from langchain_core.language_models import FakeMessagesListChatModel

from rubric_integrations import PerCriterionGrader, judges
from rubric_integrations.judges import Cascade, Judge, JudgeLike, LMJudge, OfflineJudge, as_judge
from tests.fakes import FakeJudge, FakeModel
from tests.judges.questions import MET_REPLY, UNMET_REPLY, judge_one


def test_public_names_exist() -> None:
    assert sorted(dir(judges)) == sorted(judges.__all__)
    assert all(getattr(judges, name) is not None for name in judges.__all__)


def test_as_judge_returns_a_judge_unchanged_and_makes_one_of_a_model() -> None:
    judge = FakeJudge()
    assert as_judge(judge) is judge
    assert isinstance(as_judge("offline"), OfflineJudge)
    for model in ("openai/mock", dspy.LM("openai/mock"), FakeModel(MET_REPLY)):
        assert isinstance(as_judge(model), LMJudge)


def test_every_kind_of_judge_has_the_type_judge_like() -> None:
    async def reply(system_prompt: str, user_prompt: str) -> str:
        return MET_REPLY

    chat_model = FakeMessagesListChatModel(responses=[])
    # The type checker compares each of them with `JudgeLike`.
    accepted: list[JudgeLike] = [
        "openai/mock", "offline", dspy.LM("openai/mock"), chat_model, chat_model.bind(stop=["."]), reply,
        FakeModel(MET_REPLY), FakeJudge(), LMJudge("openai/mock"),
    ]  # fmt: skip
    assert all(isinstance(as_judge(judge), Judge) for judge in accepted)
    file: JudgeLike = Path("judge.json")
    with pytest.raises(ValueError, match=r"judge\.json"):
        as_judge(file)


def test_judge_like_resolves_in_the_hints_of_a_users_function() -> None:
    def grade_with(judge: JudgeLike) -> None: ...

    assert get_type_hints(grade_with)["judge"] == JudgeLike
    assert {str, Path, Judge} < set(get_args(JudgeLike))


def test_as_judge_of_another_object_names_all_kinds_and_the_type() -> None:
    with pytest.raises(TypeError, match=r"Judge, 'offline', a model name, a dspy\.LM, a LangChain .*got int"):
        as_judge(3)  # pyright: ignore[reportArgumentType]


def test_grader_as_a_judge_is_refused_with_the_right_parameter() -> None:
    grader: Any = PerCriterionGrader("offline")
    for judges_of_panel in ([grader], ["offline", grader]):
        with pytest.raises(TypeError, match="is a grader, PerCriterionGrader: pass it as `grader=`"):
            PerCriterionGrader(judges=judges_of_panel)
    with pytest.raises(TypeError, match="pass it as `grader=`"):
        PerCriterionGrader(grader)
    with pytest.raises(TypeError, match="pass it as `grader=`"):
        Cascade(grader, "offline", 0.5)


def test_class_as_a_judge_is_refused() -> None:
    with pytest.raises(TypeError, match=r"is the class OfflineJudge: pass an object, `OfflineJudge\(...\)`"):
        as_judge(OfflineJudge)  # pyright: ignore[reportArgumentType]


def test_as_judge_of_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="empty model name"):
        as_judge(" ")


@pytest.mark.parametrize("judge", ["offline", FakeJudge()])
def test_system_prompt_with_a_judge_is_refused(judge: Any) -> None:
    with pytest.raises(ValueError, match="`system_prompt` goes with a model"):
        as_judge(judge, system_prompt="Be strict.")


def test_system_prompt_with_a_model_replaces_the_instructions() -> None:
    model = FakeModel(UNMET_REPLY)
    judge_one(as_judge(model, system_prompt="You are the strictest judge."))
    assert "You are the strictest judge." in model.prompts[0][0]
    assert "criterion of a rubric" not in model.prompts[0][0]
