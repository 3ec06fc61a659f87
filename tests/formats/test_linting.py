"""The lint rules, on sentences that each show one reason to warn, or not to."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubric_integrations import Check, Criterion, Option, Rubric
from rubric_integrations.formats import lint
from rubric_integrations.formats.linting import RULES
from rubric_integrations.rubric import Scale

RUBRIC_FILE = Path(__file__).resolve().parents[2] / "examples/quarterly_margin/rubric.yaml"

EXAMPLES = {
    "compound": "- {requirement: Is polite and names the price}\n- {requirement: Says why}",
    "vague": "- {requirement: Uses appropriate words}\n- {requirement: Says why}",
    "negated-penalty": "- {requirement: Avoids jargon, weight: -3}\n- {requirement: Says why}",
    "near-duplicate": "- {requirement: States the margin of it}\n- {requirement: states margin of it.}",
    "unreachable-pass-mark": "- {requirement: r, options: [{label: a, value: 0}, {label: b, value: 0.5}]}\n- "
    "{requirement: s, weight: 1}",
    "use-a-check": "- {requirement: Has at most 90 words}\n- {requirement: Says why}",
    "weight-in-text": "- {requirement: (10) Names the price, weight: 1}\n- {requirement: Says why}",
}


def rules_for(*criteria: Criterion | str) -> list[str]:
    """Return the ids of the rules that warn of a rubric of these criteria and a faultless one."""
    whole = [Criterion(requirement=item) if isinstance(item, str) else item for item in (*criteria, "Says why")]
    return [warning.rule for warning in lint(Rubric(whole))]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_warns_of_its_mistake(rule: str) -> None:
    assert rule in [warning.rule for warning in lint(Rubric.from_yaml(EXAMPLES[rule]))]


def test_careful_rubric_has_no_warnings() -> None:
    assert lint(Rubric.from_file(RUBRIC_FILE)) == []


@pytest.mark.parametrize(
    "requirement",
    [
        "Names the cause and gives a remedy",
        "Does the reply greet the customer and offer a refund?",
        "The answer should define inflation and explain why it matters",
        "Is the letter honest and does it keep to one page?",
        "The pump has been installed, and the pressure has been measured",
        "Defines inflation and its consequences",
        "Names the author and the year",
        "Is the letter accurate and concise?",
        "Is the guide friendly, concise, and accurate?",
        "Clearly and politely declines the request",
        "States the price, as well as the delivery date",
    ],
)
def test_requirement_that_can_be_half_met_is_compound(requirement: str) -> None:
    assert rules_for(requirement) == ["compound"]


@pytest.mark.parametrize(
    "requirement",
    [
        "Names a doctor or a pharmacist",
        "Does not invent figures or sources",
        "Names a payment method (card and cash are accepted)",
        "Names a vegetable such as leek and tells which",
        "Explains the difference between debit and credit",
        "States that the shop opens at nine and closes at five",
        "Names a drug that thins the blood and lowers the pressure",
        "Uses the figures to identify and explain the loss",
        "Is the letter clear and easy to understand?",
        "Is the summary honest and accurate?",
        "Describes the research and development of the firm",
        'Quotes the title "War and Peace"',
        "Names the head of the department of science and technology",
        "Names the capital; either spelling is accepted",
    ],
)
def test_requirement_with_one_answer_is_not_compound(requirement: str) -> None:
    assert rules_for(requirement) == []


@pytest.mark.parametrize(
    "requirement",
    [
        "Is the tone appropriate for the reader?",
        "Uses an appropriate tone",
        "Does the reply effectively address the complaint?",
        "Are the sources used properly?",
        "The layout is user-friendly",
        "Layout: assesses whether the pictures of the leaflet are suitable for the readers whom it addresses",
    ],
)
def test_standard_that_readers_set_differently_is_vague(requirement: str) -> None:
    assert rules_for(requirement) == ["vague"]


@pytest.mark.parametrize(
    "requirement",
    [
        "Names the most effective remedy",
        "Explains how to store milk properly",
        "States that the remedy can be effective",
        'Tells who wrote "A good read"',
        "Formats the dates properly, as described in the style guide",
        "Names pens, paper, ink etc.",
        "Is the length appropriate, neither below a page nor above two?",
        "Does the leaflet adequately describe the risks, including nausea and fever?",
        "Effective pictures: assesses whether each picture of the leaflet has a caption that states what it shows",
    ],
)
def test_word_that_is_no_standard_of_the_response_is_not_vague(requirement: str) -> None:
    assert rules_for(requirement) == []


def test_vague_word_is_accepted_if_every_level_is_described() -> None:
    requirement = "Is the tone appropriate for the reader?"
    bare = (Option(label="no", value=0), Option(label="yes", value=1))
    described = tuple(option.model_copy(update={"description": "Greets and thanks."}) for option in bare)
    assert rules_for(Criterion(requirement=requirement, options=bare)) == ["vague"]
    assert rules_for(Criterion(requirement=requirement, options=described)) == []
    assert rules_for(Criterion(requirement=requirement, scale=Scale(min=1, max=5))) == ["vague"]
    assert rules_for(Criterion(requirement=requirement, scale=Scale(min=1, max=5, levels={1: "a", 5: "b"}))) == []


@pytest.mark.parametrize(
    "requirement",
    [
        "Avoids jargon",
        "Refrains from blaming the customer",
        "Does not contain errors",
        "Does not give unsafe advice",
        "Does not contradict itself",
        "Doesn't invent a source",
        "Never insults the reader",
        "Does not blame the customer",
        "Is free of spelling mistakes",
        "Without unnecessary repetition",
        "No irrelevant details",
    ],
)
def test_penalty_for_the_absence_of_an_error_is_a_negated_penalty(requirement: str) -> None:
    assert rules_for(Criterion(requirement=requirement, weight=-8)) == ["negated-penalty"]
    assert rules_for(Criterion(requirement=requirement, weight=8)) == []


@pytest.mark.parametrize(
    "requirement",
    [
        "Does not mention liver damage",
        "Doesn't ask for the age of the child",
        "Fails to advise an emergency call",
        "Never names a source",
        "No mention of the deadline",
        "Lacks a summary",
        "Omits the dose",
        "Avoids answering the question",
        "Does not follow the format of the letter",
        "Is not in French",
        "Does not warn of harmful interactions",
        "Does not include dangerous symptoms to watch for",
        "Does not correct errors of the customer",
        "Does not contradict the false claim",
        "Avoids making a recommendation",
    ],
)
def test_penalty_for_an_omission_is_accepted(requirement: str) -> None:
    assert rules_for(Criterion(requirement=requirement, weight=-8)) == []


@pytest.mark.parametrize(
    "requirement",
    [
        "Has at most 90 words",
        "The response should contain at least 200 words.",
        "Is the reply no more than 50 words long?",
        'Contains the word "refund"',
        "Does the output include the phrases 'thank you' and 'goodbye'?",
        "Is valid JSON",
    ],
)
def test_requirement_that_a_check_decides_alike_gets_that_advice(requirement: str) -> None:
    assert rules_for(requirement) == ["use-a-check"]
    assert rules_for(Criterion(requirement=requirement, check=Check(max_words=90))) == []


@pytest.mark.parametrize(
    "requirement",
    [
        "Has a title of at most 9 words",
        "Each paragraph has at most 90 words",
        'Mentions the idea of "fair play"',
        'Contains a pun on the word "bank"',
        'Uses the word "bank" in three sentences',
        "Uses the customer's words for the firm's product",
        "Explains what valid JSON is",
    ],
)
def test_requirement_that_needs_a_reader_gets_no_advice_to_use_a_check(requirement: str) -> None:
    assert "use-a-check" not in rules_for(requirement)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Names the risks of loans", "Names the risks of stocks"),
        ("Gives the figure for 2023", "Gives the figure for 2024"),
        ("Names a drug", "Does not name a drug"),
        ("Says that prices follow wages", "Says that wages follow prices"),
        ("Has a C compiler", "Has a C++ compiler"),
        ("指出支撑位", "指出压力位"),
    ],
)
def test_requirements_that_differ_in_one_word_are_no_duplicates(one: str, other: str) -> None:
    assert "near-duplicate" not in rules_for(one, other)


def test_requirement_that_is_repeated_in_another_group_is_no_duplicate() -> None:
    def groups(*requirements: str) -> Rubric:
        children = [{"requirement": requirement, "weight": 1} for requirement in requirements]
        return Rubric.from_dict(
            [{"requirement": place, "weight": 1, "criteria": children} for place in ("Oslo", "Rome")]
        )

    assert lint(groups("States the price", "Says why")) == []
    repeated = lint(groups("States the price", "States the price"))
    assert [warning.where for warning in repeated] == ["criteria[1]", "criteria[3]"]


def test_repeated_requirement_is_reported_once_for_each_repetition() -> None:
    warnings = lint(Rubric.from_dict([{"requirement": "Says why", "weight": weight} for weight in (1, 2, 3)]))
    assert [(warning.rule, warning.where) for warning in warnings] == [
        ("near-duplicate", "criteria[1]"),
        ("near-duplicate", "criteria[2]"),
    ]
    assert all("criteria[0]" in warning.message for warning in warnings)


@pytest.mark.parametrize("example", EXAMPLES.values())
def test_no_advice_takes_a_criterion_or_a_weight_out(example: str) -> None:
    for warning in lint(Rubric.from_yaml(example)):
        assert not {"remove", "delete", "drop"} & set(warning.message.replace(",", " ").split())


def test_single_criterion_and_many_criteria_are_no_mistake() -> None:
    assert lint(Rubric.from_dict([{"requirement": "Says why"}])) == []
    assert rules_for(*(f"Gives the figure of year {year}" for year in range(60))) == []


def test_statement_that_may_be_supported_or_contradicted_is_no_duplicate_and_no_absent_error() -> None:
    rubric = Rubric.from_dict(
        [
            {"requirement": "The text does not contain errors", "operator": "supports"},
            {"requirement": "The text does not contain errors", "operator": "contradicts", "weight": -5},
        ]
    )
    assert lint(rubric) == []


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        ("(10) States the margin", "(10)"),
        ("(-5) Blames the customer", "(-5)"),
        ("**[10]** States the margin", "[10]"),
        ("10 points: states the margin", "10 points"),
        ("20% - States the margin", "20%"),
        ("States the margin (10 points)", "(10 points)"),
        ("States the margin (20%).", "(20%)"),
        ("States the margin - 5 pts", "5 pts"),
        ("States the margin: 5 points", "5 points"),
        ("States the margin, worth 5 points", "5 points"),
        ("States the margin as 17.2%", ""),
        ("States the margin: 17.2%", ""),
        ("Says that the index rose by 5 points", ""),
        ("50% of the answers are right", ""),
        ("Gives the range 10% - 20%", ""),
        ("Cites Smith (2023)", ""),
        ("Has at most 300 words", ""),
    ],
)
def test_lint_number_that_is_written_like_a_weight_is_warned_about(requirement: str, text: str) -> None:
    rubric = Rubric.from_dict([{"requirement": requirement, "weight": 1}])
    messages = [warning.message for warning in lint(rubric) if warning.rule == "weight-in-text"]
    assert [message.split(": ")[0] for message in messages] == (
        [f"has {text!r} in its text, and the weight 1"] if text else []
    )


def test_lint_number_that_is_the_weight_or_the_number_of_the_criterion_is_not_warned_about() -> None:
    same = Rubric.from_dict([{"requirement": "(10) States the margin", "weight": 10}])
    numbered = Rubric.from_dict([f"({number}) States the margin of year {number}" for number in (1, 2, 3)])
    assert not [w for rubric in (same, numbered) for w in lint(rubric) if w.rule == "weight-in-text"]
