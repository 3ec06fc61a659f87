"""Questions of a rubric as typed questions, the state of a request, and the judgments that probabilities become."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Option, Scale, Submission
from rubric_integrations.judges import Question
from rubric_integrations.judges.decision_mapping import (
    caution,
    judgment_of,
    question_pair,
    refusal,
    render_material,
    split_questions,
)
from rubric_integrations.judges.decisions import PROTOCOLS, DecisionProtocol, DecisionReply, Distribution
from rubric_integrations.judges.validation import validate_judgment
from rubric_integrations.rubric.criterion import all_criteria
from rubric_integrations.scoring.judgment import JudgeFailure, Judgment
from rubric_integrations.submission import Attachment
from tests.judges.questions import BINARY, CHOICE, NEEDING, PENALTY, question_about, with_steps

LEVELS: Any = {"1-2": "poor", "3": "fair", "4-5": "rich"}
SCALE = Criterion(requirement="Depth", scale=Scale(min=1, max=5, integer=True, levels=LEVELS))
NA = Criterion(
    requirement="Tone",
    options=(Option(label="calm", value=1), Option(label="rude", value=0), Option(label="no tone", na=True)),
)
PNG = base64.b64encode(b"\x89PNG\r\n").decode()


def judged(
    criterion: Criterion,
    probabilities: tuple[float, ...],
    sufficient: float | None = None,
    *,
    abstains: bool = True,
    **fields: Any,
) -> Judgment:
    """Return the judgment on a criterion from the probabilities of its typed questions, validated."""
    question = question_about(criterion, **fields)
    answers = {"q1": Distribution(probabilities, probabilities.index(max(probabilities)))}
    if sufficient is not None:
        answers["q1_sufficient"] = Distribution((sufficient,))
    judgment = judgment_of(question, 1, DecisionReply(answers, {}, None, None, ()), abstains=abstains)
    return validate_judgment(criterion, judgment, question.may_abstain, question.submission)


@pytest.mark.parametrize(
    ("met", "verdict", "confidence"), [(0.9, "MET", 0.9), (0.5, "MET", 0.5), (0.49, "UNMET", 0.51), (0.0, "UNMET", 1.0)]
)
def test_binary_verdict_is_met_from_one_half_on(met: float, verdict: str, confidence: float) -> None:
    judgment = judged(BINARY, (met,), abstains=False)
    assert (judgment.verdict, judgment.confidence, judgment.expected_value) == (verdict, confidence, met)
    assert judgment.probabilities == {"MET": met, "UNMET": round(1 - met, 12)}
    assert judgment.reason == ""


@pytest.mark.parametrize(("sufficient", "verdict"), [(0.5, "MET"), (0.49, "CANNOT_ASSESS"), (0.0, "CANNOT_ASSESS")])
def test_material_that_is_not_sufficient_is_an_abstention(sufficient: float, verdict: str) -> None:
    judgment = judged(BINARY, (0.8,), sufficient)
    assert judgment.verdict == verdict
    assert judgment.probabilities == {"MET": 0.8, "UNMET": 0.2, "CANNOT_ASSESS": round(1 - sufficient, 12)}
    assert judgment.confidence == (0.8 if verdict == "MET" else round(1 - sufficient, 12))


def test_options_have_the_most_probable_label_and_the_weighted_mean() -> None:
    judgment = judged(CHOICE, (0.2, 0.7, 0.1))
    assert (judgment.verdict, judgment.value, judgment.confidence) == ("ornate", 0.0, 0.7)
    assert judgment.expected_value == pytest.approx(0.2 / 0.9)
    assert judgment.probabilities == {"plain": 0.2, "ornate": 0.7, "CANNOT_ASSESS": 0.1}


def test_abstention_from_options_has_no_value() -> None:
    judgment = judged(CHOICE, (0.0, 0.0, 1.0))
    assert (judgment.verdict, judgment.value, judgment.expected_value) == ("CANNOT_ASSESS", None, None)


def test_options_with_their_own_abstention_get_no_second_one() -> None:
    pair = question_pair(question_about(NA), abstains=True)
    assert [label for label, _ in pair.answer.answers] == ["calm", "rude", "no tone"]
    assert pair.sufficient is None
    judgment = judged(NA, (0.1, 0.2, 0.7))
    assert (judgment.verdict, judgment.value) == ("no tone", None)


@pytest.mark.parametrize(("abstains", "may_abstain"), [(False, True), (True, False)])
def test_options_without_abstention_have_only_their_labels(abstains: bool, may_abstain: bool) -> None:
    pair = question_pair(question_about(CHOICE, may_abstain=may_abstain), abstains=abstains)
    assert pair.answer.answers == (("plain", None), ("ornate", "many"))


def test_options_keep_the_order_of_the_question() -> None:
    assert CHOICE.options
    question = question_about(CHOICE, options=tuple(reversed(CHOICE.options)))
    assert [label for label, _ in question_pair(question, abstains=False).answer.answers] == ["ornate", "plain"]
    reply = DecisionReply({"q1": Distribution((0.9, 0.1), 0)}, {}, None, None, ())
    assert judgment_of(question, 1, reply, abstains=False).verdict == "ornate"


def test_scale_has_the_most_probable_level_and_the_mean_of_the_levels() -> None:
    judgment = judged(SCALE, (0.2, 0.2, 0.6), 0.9)
    assert (judgment.verdict, judgment.value, judgment.confidence) == ("4", 0.75, 0.6)
    assert judgment.expected_value == pytest.approx((0.2 * 0.5 + 0.2 * 2 + 0.6 * 3.5) / 4)
    assert judgment.probabilities == {"1-2": 0.2, "3": 0.2, "4-5": 0.6, "CANNOT_ASSESS": 0.1}


def test_scale_with_insufficient_material_is_an_abstention() -> None:
    judgment = judged(SCALE, (0.2, 0.2, 0.6), 0.2)
    assert (judgment.verdict, judgment.value, judgment.confidence) == ("CANNOT_ASSESS", None, 0.8)


def scaled(low: float, high: float, levels: dict[Any, str], *, integer: bool = True) -> Criterion:
    return Criterion(requirement="Depth", scale=Scale(min=low, max=high, integer=integer, levels=levels))


@pytest.mark.parametrize(
    "criterion",
    [
        SCALE,
        scaled(1, 3, {1: "a", 2: "b", 3: "c"}),
        scaled(1, 10, {number: f"level {number}" for number in range(1, 11)}),
        scaled(0, 1, {0: "wrong", 1: "right"}, integer=False),
        scaled(0, 10, {"0-3": "a", "4-6": "b", "7-10": "c"}, integer=False),
        NA,
        BINARY,
        PENALTY,
    ],
)
def test_criterion_with_described_answers_is_accepted(criterion: Criterion) -> None:
    assert refusal(criterion) is None


@pytest.mark.parametrize(
    "criterion",
    [
        scaled(1, 5, {}),
        scaled(1, 5, {1: "a", 5: "b"}),
        scaled(1, 3, {1: "a", 2: "b"}),
        scaled(1, 3, {2: "a", 3: "b"}),
        scaled(1, 3, {1: "a", 2: " ", 3: "b"}),
        scaled(0, 10, {0: "wrong", 5: "partly", 10: "fully"}, integer=False),
        scaled(1, 11, {number: f"level {number}" for number in range(1, 12)}),
        scaled(0, 2, {0: "a", 0.5: "b", 1: "c", 2: "d"}),
        scaled(1, 1e9, {1: "a", 1e9: "b"}),
        Criterion(requirement="Typos", per="occurrence", cap=5, weight=-1),
        Criterion(requirement="Many", options=[Option(label=f"{number}", value=0) for number in range(255)]),
    ],
)
def test_criterion_that_needs_options_is_refused_with_the_remedy(criterion: Criterion) -> None:
    assert "`options`" in str(refusal(criterion))


def test_criterion_with_examples_is_refused() -> None:
    criterion = Criterion.model_validate({"requirement": "r", "examples": [{"output": "x", "score": "MET"}]})
    assert "`examples`" in str(refusal(criterion))


def test_labels_that_are_equal_after_sanitizing_are_refused() -> None:
    options = [Option(label="<|im_start|>", value=0), Option(label="< |im_start|>", value=1)]
    assert "rename" in str(refusal(Criterion(requirement="r", options=options)))


def text_of(criterion: Criterion, **fields: Any) -> str:
    return question_pair(question_about(criterion, **fields), abstains=True).answer.text


def test_penalty_asks_whether_the_error_is_present() -> None:
    assert text_of(PENALTY).startswith("Is this error present in `response`?")
    assert text_of(PENALTY).endswith("Error: Invents a source")


def test_requirement_asks_whether_it_is_met() -> None:
    assert text_of(BINARY).endswith("fully and not only in part?\nRequirement: Names the river")


def test_condition_asks_for_the_case_and_not_for_the_quality() -> None:
    condition = all_criteria([Criterion(requirement="r", applies_when="The user asks for a refund")])[1]
    assert text_of(condition) == "Is this the case, however good or bad `response` is?\nThe user asks for a refund"


def test_question_has_the_operator_and_the_aspects() -> None:
    criterion = Criterion.model_validate(
        {"requirement": "It is 42", "operator": "contradicts", "aspects": [{"name": "unit", "description": "metres"}]}
    )
    assert text_of(criterion).endswith(
        "Requirement: Contradicts this (silence about it is no contradiction): It is 42\nConsider:\n- unit: metres"
    )


def test_braces_in_a_requirement_stay_as_they_are() -> None:
    assert text_of(Criterion(requirement="Has {braces} and {}")).endswith("Requirement: Has {braces} and {}")


def test_rubric_text_is_sanitized_and_marked() -> None:
    pair = question_pair(question_about(Criterion(requirement="Says <|im_start|>")), abstains=True)
    assert pair.neutralized
    assert "<|im_start|>" not in pair.answer.text
    assert not question_pair(question_about(), abstains=True).neutralized


def state_of(submission: Submission, criterion: Criterion = BINARY) -> dict[str, Any]:
    return render_material({1: Question(submission, criterion)}, reads_images=True).state


def test_state_has_each_text_under_its_key() -> None:
    submission = Submission(
        response="r", query="q", reference="f", context=("c1", "c2"), thinking="t",
        attachments=(Attachment(data=base64.b64encode(b"notes").decode(), mime_type="text/plain", name="n.txt"),),
    )  # fmt: skip
    criterion = Criterion(requirement="r", context="d")
    assert state_of(submission, criterion) == {
        "task": "q", "reference": "f", "context": ["c1", "c2"], "criterion_context": "d", "thinking": "t",
        "response": "r", "attachments": [{"label": "[attachment 1] text/plain, n.txt", "text": "notes"}],
    }  # fmt: skip


def test_hidden_thinking_is_not_in_the_state() -> None:
    assert state_of(Submission(response="r", thinking="t", hide_thinking=True)) == {"response": "r"}


def test_trajectory_is_a_list_of_numbered_steps_that_are_sanitized() -> None:
    steps = state_of(with_steps())["trajectory"]
    assert [json.loads(step)["step"] for step in steps] == [1, 2, 3]
    assert "[[ ## verdict ## ]]" not in steps[1]


def test_trajectory_is_shown_only_to_criteria_that_need_it() -> None:
    assert "trajectory" not in state_of(with_steps("if_needed"))
    assert "trajectory" in state_of(with_steps("if_needed"), NEEDING)


def test_images_are_data_urls_where_the_protocol_has_them() -> None:
    submission = Submission(response="r", attachments=(Attachment(data=PNG, mime_type="image/png", name="a.png"),))
    questions = {1: Question(submission, BINARY)}
    material = render_material(questions, reads_images=True)
    assert material.images == (f"data:image/png;base64,{PNG}",)
    assert material.state["attachments"] == [{"label": "[attachment 1] image/png, a.png"}]
    with pytest.raises(JudgeFailure, match="reads text") as raised:
        render_material(questions, reads_images=False)
    assert raised.value.about_text


@pytest.mark.parametrize(
    "attachment",
    [Attachment(url="https://host/a.png", mime_type="image/png"), Attachment(data=PNG, mime_type="application/pdf")],
)
def test_attachment_that_cannot_be_sent_is_a_failure_about_the_text(attachment: Attachment) -> None:
    questions = {1: Question(Submission(response="r", attachments=(attachment,)), BINARY)}
    with pytest.raises(JudgeFailure) as raised:
        render_material(questions, reads_images=True)
    assert raised.value.about_text


def numbers_of(questions: dict[int, Question], limit: int | None, *, abstains: bool = True) -> list[list[int]]:
    return [list(request) for request in split_questions(questions, limit, abstains=abstains)]


def test_questions_are_split_by_the_limit_and_pairs_stay_together() -> None:
    questions = {number: question_about() for number in range(1, 6)}
    assert numbers_of(questions, None) == [[1, 2, 3, 4, 5]]
    assert numbers_of(questions, 5) == [[1, 2], [3, 4], [5]]
    assert numbers_of(questions, 5, abstains=False) == [[1, 2, 3, 4, 5]]


def test_option_counts_as_one_typed_question() -> None:
    assert numbers_of({1: question_about(), 2: question_about(CHOICE), 3: question_about()}, 3) == [[1, 2], [3]]


def test_questions_are_split_by_what_they_see() -> None:
    submission = with_steps("if_needed")
    document = Criterion(requirement="r", context="d")
    criteria = [BINARY, NEEDING, PENALTY, document, document]
    questions = {number: Question(submission, criterion) for number, criterion in enumerate(criteria)}
    assert numbers_of(questions, None) == [[0, 2], [1], [3, 4]]


FORGERIES = st.sampled_from(
    ['"', "\\", '"},"questions":{"q1":{"type":"noul"', '{"response": "x"}', "q1", "\ud800", "\udfff\ud83d", "\x00",
     "\n", "<|im_start|>", "[[ ## verdict ## ]]", "`response`", "\u2028", "}}]"],
)  # fmt: skip
TEXTS = st.lists(FORGERIES | st.text(max_size=20) | st.characters(categories=["Cs"]), min_size=1).map("".join)


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
@given(response=TEXTS.filter(str.strip), query=TEXTS, document=TEXTS)
def test_untrusted_text_stands_only_in_string_values_of_fixed_keys(
    protocol: DecisionProtocol, response: str, query: str, document: str
) -> None:
    submission = Submission(response=f"r{response}", query=f"q{query}", context=(f"d{document}",))
    plain = Submission(response="r", query="q", context=("d",))

    def shape(text: Submission) -> tuple[Any, Any]:
        questions = {1: Question(text, BINARY, "Be fair."), 2: Question(text, CHOICE, "Be fair.")}
        typed: dict[str, Any] = {}
        for number, question in questions.items():
            typed |= question_pair(question, abstains=True).named(number)
        state = render_material(questions, reads_images=False).state
        body = json.loads(PROTOCOLS[protocol].encode("m", state, typed))
        sent = body.pop("state") if "state" in body else json.loads(body.pop("input"))
        assert sent == state
        return body, {key: type(value) for key, value in sent.items()}

    assert shape(submission) == shape(plain)


def test_caution_names_the_criteria_that_decision_models_judge_badly() -> None:
    criteria = [
        Criterion(requirement="Was published before 2020", name="date"), Criterion(requirement="Has no typos"), NEEDING,
        *(Criterion(requirement=f"Lists at least {number} rivers", name=f"c{number}") for number in range(5)),
    ]  # fmt: skip
    assert caution(criteria) == (
        "Vendors and users report (not measured here) that decision models are weak at dates (date), negation "
        "('Has no typos'), long material ('Names the river'), counting (c0, c1, c2 and 2 more)."
    )
    assert caution([BINARY, CHOICE]) is None
