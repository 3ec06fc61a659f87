"""The meaning of a model's answers: options by code or label, and the entries of a batch."""

from __future__ import annotations

import pytest

from rubric_integrations import Criterion, Option
from rubric_integrations.judges.calling import ParsedReply, interpret_choice, interpret_entries, interpret_reply
from rubric_integrations.judges.prompts.render import describe_options
from rubric_integrations.judges.prompts.signatures import CriterionJudgment
from rubric_integrations.scoring import Spend
from tests.judges.questions import BINARY, CHOICE, CLARITY, CLEAR, PENALTY, SCALE, question_about

REVERSED = question_about(CLEAR, options=tuple(reversed(CLARITY)))


@pytest.mark.parametrize("reply", ["A", "a", "**A**", "clear", "A: clear", "(A)"])
def test_choice_by_code_or_by_label_is_the_option(reply: str) -> None:
    assert describe_options(REVERSED).splitlines()[:2] == ["A: clear", "B: passable"]
    assert interpret_choice(REVERSED, reply).verdict == "clear"


@pytest.mark.parametrize("reply", ["D", "A: muddled", "A or B", ""])
def test_choice_that_names_no_option_or_two_is_refused(reply: str) -> None:
    with pytest.raises(ValueError, match="no option"):
        interpret_choice(REVERSED, reply)


def test_choice_among_labels_that_are_letters_is_the_label() -> None:
    letters = Criterion(requirement="r", options=(Option(label="B", value=0), Option(label="A", value=1)))
    assert interpret_choice(question_about(letters), "A").value == 1.0


def choice_of(*labels: str) -> Criterion:
    return Criterion(
        requirement="r", options=tuple(Option(label=label, value=i / len(labels)) for i, label in enumerate(labels))
    )


@pytest.mark.parametrize(
    "labels",
    [
        ("(B)", "(A)", "(C)"),
        ("B.", "A.", "C."),
        ("[B]", "[A]", "[C]"),
        ("'B'", "'A'", "'C'"),
        ("B+", "A+", "C+"),
        ("(b)", "A", "(c)"),
        ("yes", "(yes)", "yes."),
        ("A: yes", "B: no", "A"),
        ("#2", "#1", "A"),
        ("Cannot assess", "can be assessed", "MET"),
    ],
)
def test_choice_by_label_is_that_label_however_it_is_punctuated(labels: tuple[str, ...]) -> None:
    question = question_about(choice_of(*labels))
    codes = [line.split(":")[0] for line in describe_options(question).splitlines()]
    for label in labels:
        if label in codes:
            # The code of one option and the label of another.
            with pytest.raises(ValueError, match="names 2 options"):
                interpret_reply(question, label)
        else:
            assert interpret_reply(question, label).verdict == label


def test_choice_that_is_two_labels_without_their_punctuation_is_refused() -> None:
    with pytest.raises(ValueError, match="names 2 options"):
        interpret_choice(question_about(choice_of("(yes)", "yes.", "no")), "**yes**")
    assert interpret_choice(question_about(choice_of("(yes)", "no")), "**yes**").verdict == "(yes)"


def test_choice_that_repeats_its_whole_line_is_the_option() -> None:
    question = question_about(CHOICE)
    assert describe_options(question).splitlines()[1] == "B: ornate: many"
    assert interpret_choice(question, "B: ornate: many").verdict == "ornate"
    with pytest.raises(ValueError, match="no option"):
        interpret_choice(question, "A: ornate: many")


def test_reply_to_each_kind_of_criterion_is_interpreted() -> None:
    assert interpret_reply(question_about(BINARY), "met").verdict == "MET"
    assert interpret_reply(REVERSED, "A").value == 1.0
    assert interpret_reply(REVERSED, "Cannot assess.").verdict == "CANNOT_ASSESS"
    assert interpret_reply(question_about(SCALE), "3.0") == ("3", 0.5)


def entries(*answers: tuple[int, str]) -> list[CriterionJudgment]:
    return [CriterionJudgment(id=number, explanation="e", answer=answer) for number, answer in answers]


def test_entry_that_is_missing_repeated_or_invalid_is_a_fault_of_its_question_alone() -> None:
    questions = {number: question_about(PENALTY) for number in (1, 2, 3, 4)}
    reply = entries((1, "MET"), (2, "MET"), (2, "MET"), (3, "PARTLY"), (9, "MET"))
    batch = interpret_entries(questions, ParsedReply({"judgments": reply}, Spend(calls=1), "m-1"), neutralized=True)
    assert {number: judgment.verdict for number, judgment in batch.answers.items()} == {1: "MET"}
    assert (batch.answers[1].neutralized, batch.answers[1].model) == (True, "m-1")
    assert batch.faults[2] == "2 answers"
    assert "'PARTLY' is no verdict" in str(batch.faults[3])
    assert batch.faults[4] == "no answer"
    assert batch.spend == Spend(calls=1)
