"""What people read when they label: the question, the answers in words, and the reading of what they type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, Option, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.runs import RunFile, read_run
from rubric_integrations.runs.files import run_line
from rubric_integrations.scoring import Judgment, to_judgment
from rubric_integrations.trust import choose_for_labels
from rubric_integrations.trust.questions import QuestionToLabel, read_verdict

CLEAR = Criterion.model_validate(
    {
        "requirement": "How clear?",
        "scale": {"min": 1, "max": 5, "levels": {"1": "muddled", "2-4": "fair", "5": "clear"}},
    }
)
WHOLE = CLEAR.model_copy(update={"scale": CLEAR.scale.model_copy(update={"integer": True})})  # type: ignore[union-attr]
TONE = Criterion(
    requirement="Tone?",
    options=[
        Option(label="kind", value=1, description="thanks"), Option(label="none", na=True), Option(label="x", value=0)
    ],
)  # fmt: skip
PENALTY = Criterion(requirement="Is rude", weight=-3)
TO_TWELVE = Criterion.model_validate({"requirement": "How many?", "scale": {"min": 0, "max": 12, "integer": True}})
KEYS_TO_TWELVE = {**{str(n): str(n) for n in range(10)}, "10": "", "11": "", "12": "", "CANNOT_ASSESS": "?"}
VERDICTS = {"MET": "1", "UNMET": "2", "CANNOT_ASSESS": "3"}
COUNT = Criterion(requirement="Has a typo", weight=-1, per="occurrence", cap=3)


@pytest.mark.parametrize(
    ("criterion", "words", "keys", "typed"),
    [
        (Criterion(requirement="Is kind"), "Is this requirement met?", VERDICTS, False),
        (PENALTY, "Does this error occur?", VERDICTS, False),
        (TONE, "Which answer fits best?", {"x": "1", "kind": "2", "none": "3"}, False),
        (CLEAR, "Which number fits best?", {"1": "1", "5": "5", "CANNOT_ASSESS": "?"}, True),
        (WHOLE, "Which number fits best?", {**{str(n): str(n) for n in range(1, 6)}, "CANNOT_ASSESS": "?"}, False),
        (TO_TWELVE, "Which number fits best?", KEYS_TO_TWELVE, True),
        (COUNT, "How often does this occur?", {"0": "0", "1": "1", "2": "2", "3": "3", "CANNOT_ASSESS": "?"}, False),
    ],
)  # fmt: skip
def test_each_kind_of_criterion_has_its_question_and_a_key_for_each_answer(
    criterion: Criterion, words: str, keys: dict[str, str], typed: bool
) -> None:
    question = QuestionToLabel(criterion, "")
    assert (question.words, question.takes_number) == (words, typed)
    assert {answer.verdict: answer.key for answer in question.answers} == keys
    for answer in question.answers:
        assert read_verdict(criterion, answer.verdict) == answer.verdict


def test_answers_have_their_meanings_and_a_penalty_s_met_says_that_the_error_occurs() -> None:
    met = {answer.verdict: answer.meaning for answer in QuestionToLabel(PENALTY, "").answers}["MET"]
    assert "makes this error" in met
    assert [answer.meaning for answer in QuestionToLabel(TONE, "").answers] == ["", "thanks", ""]
    assert [answer.meaning for answer in QuestionToLabel(WHOLE, "").answers][:5] == ["muddled", *["fair"] * 3, "clear"]
    assert QuestionToLabel(CLEAR, "").range_text == "a number from 1 to 5, decimals allowed\n2-4: fair"


@pytest.mark.parametrize(
    ("typed", "verdict"),
    [("1,5", "1.5"), (" 2.50 ", "2.5"), (3, "3"), (4.5, "4.5"), ("5", "5"), ("cannot assess", "CANNOT_ASSESS")],
)
def test_number_with_a_decimal_comma_or_point_is_read(typed: object, verdict: str) -> None:
    assert read_verdict(CLEAR, typed) == verdict
    assert to_judgment(CLEAR, verdict).verdict == verdict


@pytest.mark.parametrize(
    ("criterion", "typed", "possible"),
    [
        (CLEAR, "99", "a number from 1 to 5, decimals allowed, or CANNOT_ASSESS"),
        (CLEAR, "abc", "a number from 1 to 5, decimals allowed, or CANNOT_ASSESS"),
        (CLEAR, "1,500", "from 1 to 5"),  # a thousand and a half, or one and a half
        (CLEAR, True, "from 1 to 5"),
        (WHOLE, "1,5", "a whole number from 1 to 5"),
        (PENALTY, "1,5", "use MET, UNMET or CANNOT_ASSESS"),
        (TONE, "rude", r"use one of \['kind', 'none', 'x'\]"),
    ],
)
def test_impossible_answer_is_refused_with_the_possible_ones(
    criterion: Criterion, typed: object, possible: str
) -> None:
    with pytest.raises(ValueError, match=possible):
        read_verdict(criterion, typed)


class Kind:
    """Says that each condition holds and each requirement is met."""

    async def judge(self, question: Question) -> Judgment:
        return to_judgment(question.criterion, "MET")


FULL = Rubric(
    [
        Criterion.model_validate(
            {
                "name": "c", "requirement": "Is right", "applies_when": "The user\nasks", "context": "The source.",
                "aspects": [{"name": "numbers", "description": "all of them"}, {"name": "names"}],
            }
        ),
        Criterion(name="plain", requirement="Is kind"),
    ],
    guidelines="Be strict.", domain="health_care",
)  # fmt: skip


def test_run_file_has_what_the_judge_reads_and_a_judgment_to_label_shows_it(tmp_path: Path) -> None:
    graded = list(grade_many([Submission(response="r")], FULL, PerCriterionGrader(Kind())))
    path = tmp_path / "run.jsonl"
    path.write_text("".join(map(run_line, graded)))
    for run in (path, RunFile.of("run", graded), graded, read_run(path)):
        first, second = (item.question for item in choose_for_labels(run, 1))
        assert first.guidelines == second.guidelines == "Be strict.\n\nThe domain is health care."
        assert first.texts == {
            "Only if": "The user asks (if this is not so, answer CANNOT_ASSESS)",
            "Consider": "\n- numbers: all of them\n- names",
            "Document of the criterion": "The source.",
        }
        assert second.texts == {}


def test_run_of_a_plain_rubric_has_no_further_fields_and_one_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    plain = Rubric([Criterion(requirement="Is kind")])
    line: dict[str, Any] = next(iter(grade_many(["r"], plain, PerCriterionGrader(Kind())))).to_dict()
    assert not {"guidelines", "applies_when", "context", "aspects"} & {*line, *line["report"][0]}
    (graded,) = grade_many(["r"], FULL, PerCriterionGrader(Kind()))
    earlier = graded.to_dict()
    del earlier["guidelines"]
    for entry in earlier["report"]:
        for name in ("applies_when", "context", "aspects"):
            entry.pop(name, None)
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(earlier) + "\n")
    question = choose_for_labels(path, 1)[0].question
    assert (question.guidelines, question.texts) == ("", {})
    assert [answer.verdict for answer in question.answers] == ["MET", "UNMET", "CANNOT_ASSESS"]
