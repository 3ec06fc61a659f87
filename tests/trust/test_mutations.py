"""Mutations of cases: which evidence they change, which text they add, and from which cases they start."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Check, Criterion, Option, Scale, Submission
from rubric_integrations.rubric.case import Case, Expectation, find_evidence
from rubric_integrations.submission import Step, Trajectory
from rubric_integrations.trust.mutations import (
    MUST_CHANGE,
    SENSITIVITIES,
    Mutant,
    evidence_for,
    expected_range,
    mutations_of,
    select_mutants,
    sentence_spans,
)

MARGIN = Criterion(requirement="States the margin as 17.2%")
RESPONSE = "Sales rose in Asia, e.g. in Japan. The base margin was 17.2% in Q4 2023. Taxes are not part of it."


def case_with(verdict: Any = "MET", response: str = RESPONSE, **fields: Any) -> Case:
    return Case(name="case", response=response, expect=Expectation(verdicts={"margin": verdict}), **fields)


def texts_of(criterion: Criterion, kind: str, case: Case, seed: int = 0) -> list[str]:
    mutants = mutations_of(case, "margin", criterion, seed)
    return [mutant.submission.response for mutant in mutants if mutant.kind == kind]


def kinds_of(criterion: Criterion, case: Case) -> set[str]:
    return {mutant.kind for mutant in mutations_of(case, "margin", criterion)}


def test_removed_sentence_is_every_sentence_with_the_evidence() -> None:
    response = "- Sales rose.\n- The margin was\n  17.2%.\n\nAgain: the margin was 17.2%. Costs fell."
    removed = texts_of(MARGIN, "removed", case_with(response=response, evidence="was 17.2%."))
    assert "- Sales rose.\nCosts fell." in removed
    assert not [text for text in removed if "17.2" in text]
    assert "- Sales rose.\n- [...]\n\n[...] Costs fell." in removed


def test_number_of_the_evidence_is_changed_everywhere_and_no_other_number() -> None:
    response = "In Q4 2023 the margin was 17.2%, not 117.2 or 17.25. So 17.2% it is."
    [text] = texts_of(MARGIN, "number", case_with(response=response, evidence="the margin was 17.2%"))
    changed = text.partition("margin was ")[2][:4]
    assert changed != "17.2"
    assert text == response.replace("was 17.2%", f"was {changed}%").replace("So 17.2%", f"So {changed}%")


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The margin was 17.2%.", "The margin was not 17.2%."),
        ("The margin was not 17.2%.", "The margin was 17.2%."),
        ("It isn't safe.", "It is safe."),
        ("You can't take it.", "You can take it."),
        ("It won't rain on the day.", "It will rain on the day."),
        ("Never take the pill.", "Take the pill."),
        ("Do not take the pill.", "Take the pill."),
        ("It has been raised to 5.", "It has not been raised to 5."),
        ("The margin was not only high.", "It is not true that the margin was not only high."),
        ("Take the pill to bed.", "The following is false: Take the pill to bed."),
    ],
)
def test_negation_of_the_evidence_is_inserted_or_removed(sentence: str, expected: str) -> None:
    response = f"Read this to the end. {sentence} That is all of it."
    negated = texts_of(MARGIN, "negation", case_with(response=response, evidence=sentence))
    assert f"Read this to the end. {expected} That is all of it." in negated


def test_evidence_without_a_number_or_in_another_language_has_no_mutant_for_it() -> None:
    assert "number" not in kinds_of(MARGIN, case_with(evidence="Taxes are not part of it."))
    german = case_with(response="Die Marge lag bei 17,2 %. Der Umsatz stieg.", evidence="Die Marge lag bei 17,2 %.")
    assert kinds_of(MARGIN, german) == {"removed", "number", "length", "format"}


def test_evidence_that_is_the_complete_response_is_only_replaced() -> None:
    removed = texts_of(MARGIN, "removed", case_with(response="The margin was 17.2%.", evidence="17.2%"))
    assert "[...]" in removed
    assert all(text.strip() for text in removed)


def test_step_of_the_evidence_is_deleted_from_the_trajectory() -> None:
    steps = [{"role": "user", "content": "Margin?"}, {"role": "assistant", "content": "I look it up."}]
    case = case_with(trajectory=steps, evidence=2)
    [mutant] = [mutant for mutant in mutations_of(case, "margin", MARGIN) if mutant.must_change]
    assert mutant.name == "step 2 deleted"
    assert mutant.submission.trajectory == Trajectory(steps=(Step(role="user", text="Margin?"),))
    assert mutant.submission.response == RESPONSE


def test_only_step_of_a_trajectory_is_not_deleted() -> None:
    case = case_with(trajectory=[{"role": "assistant", "content": "I look it up."}], evidence=1)
    assert not kinds_of(MARGIN, case) & set(MUST_CHANGE)


def test_single_evidence_of_several_met_verdicts_is_ambiguous() -> None:
    def case(evidence: Any, **verdicts: Any) -> Case:
        return Case(name="case", response=RESPONSE, evidence=evidence, expect=Expectation(verdicts=verdicts))

    assert evidence_for(case("17.2%", margin="MET", other="UNMET"), "margin") == "17.2%"
    assert evidence_for(case("17.2%", margin="MET", other="MET"), "margin") is None
    assert evidence_for(case({"margin": "17.2%"}, margin="MET", other="MET"), "margin") == "17.2%"
    assert evidence_for(case({"margin": "17.2%"}, margin="MET", other="MET"), "other") is None


def test_case_without_evidence_has_no_mutant_that_must_change_the_verdict() -> None:
    assert kinds_of(MARGIN, case_with()) == {"length", "tone", "format"}


def test_claim_starts_only_where_a_better_answer_exists() -> None:
    penalty = Criterion(requirement="States another margin", weight=-5)
    assert "claim" in kinds_of(MARGIN, case_with("UNMET"))
    assert "claim" in kinds_of(penalty, case_with("MET"))
    assert "claim" not in kinds_of(penalty, case_with("UNMET"))


def test_evidence_of_an_unmet_criterion_is_not_changed() -> None:
    assert not kinds_of(MARGIN, case_with("UNMET", evidence="17.2%")) & set(MUST_CHANGE)


def test_number_of_an_error_is_not_changed() -> None:
    penalty = Criterion(requirement="Recommends more than 4 g", weight=-5)
    kinds = kinds_of(penalty, case_with(response="Take up to 6 g of it a day.", evidence="up to 6 g"))
    assert kinds & set(MUST_CHANGE) == {"removed", "negation"}


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_criterion_has_no_mutants_to_which_it_is_sensitive(sensitivity: Any) -> None:
    criterion = MARGIN.model_copy(update={"sensitive_to": (sensitivity,)})
    assert kinds_of(criterion, case_with()) == set(SENSITIVITIES) - {sensitivity}


def test_check_has_no_mutants_and_json_has_no_added_text() -> None:
    check = Criterion(requirement="Names it", check=Check(contains="17.2%"))
    assert kinds_of(check, case_with(evidence="17.2%")) == set()
    assert kinds_of(MARGIN, case_with(response='{"margin": "17.2%"}', evidence="17.2%")) == {"removed", "number"}


def test_repeated_sentence_is_not_added_if_occurrences_are_counted() -> None:
    counting = Criterion(requirement="Names a margin", per="occurrence", cap=3)
    names = [mutant.name for mutant in mutations_of(case_with(1), "margin", counting)]
    assert names
    assert not [name for name in names if "repeated" in name]


@pytest.mark.parametrize("verdict", ["CANNOT_ASSESS", "NOT_APPLICABLE"])
def test_case_without_an_expected_answer_has_no_mutants(verdict: str) -> None:
    criterion = Criterion(requirement="States the margin", applies_when="There is a margin")
    assert mutations_of(case_with(verdict, evidence="17.2%"), "margin", criterion) == ()
    assert mutations_of(case_with(evidence="17.2%"), "another", criterion) == ()


def test_expected_range_has_the_values_of_options_and_numbers() -> None:
    options = Criterion(
        requirement="r",
        options=[
            Option(label="none", value=0.2),
            Option(label="some", value=0.5),
            Option(label="NA", value=0, na=True),
        ],
    )
    assert expected_range(options, "some") == (0.5, 0.5, True, False)
    assert expected_range(options, "NA") is None
    scale = Criterion(requirement="r", scale=Scale(min=1, max=5))
    assert expected_range(scale, (2, 4)) == (0.25, 0.75, True, True)
    assert expected_range(scale, 1) == (0.0, 0.0, False, True)
    nominal = options.model_copy(update={"scale_type": "nominal"})
    assert expected_range(nominal, "some") == (1.0, 1.0, True, True)


@pytest.mark.parametrize(
    ("kind", "weight", "flips"),
    [
        ("removed", 1, {None, 0.2}),
        ("removed", -1, {None, 0.2}),
        ("length", 1, {None, 0.2, 0.9}),
        ("claim", 1, {None, 0.9}),
        ("claim", -1, {None, 0.2}),
    ],
)
def test_flip_is_an_answer_in_the_direction_of_the_mutation(kind: Any, weight: float, flips: set[float | None]) -> None:
    criterion = Criterion(requirement="r", weight=weight, scale=Scale(min=0, max=10))
    expected = expected_range(criterion, (4, 6))
    assert expected is not None
    assert {value for value in (None, 0.2, 0.4, 0.6, 0.9) if expected.is_flip(value, kind, criterion)} == flips


texts = st.text(st.sampled_from("aZ1 .,!?\n-*#not the is 。é{}\"'"), min_size=1, max_size=60).filter(str.strip)


@given(before=texts, evidence=texts, after=texts, seed=st.integers(), verdict=st.sampled_from(["MET", "UNMET"]))
def test_mutants_differ_from_the_case_and_from_each_other(
    before: str, evidence: str, after: str, seed: int, verdict: str
) -> None:
    case = case_with(verdict, response=f"{before} {evidence} {after}", evidence=evidence)
    mutants = mutations_of(case, "margin", MARGIN, seed)
    responses = [case.submission.response, *(mutant.submission.response for mutant in mutants)]
    assert len({response.strip() for response in responses}) == len(responses)
    assert mutants == mutations_of(case, "margin", MARGIN, seed)
    for mutant in mutants:
        assert Submission.model_validate(mutant.submission.model_dump()) == mutant.submission
        if mutant.kind == "removed" and mutant.name == "sentence deleted":
            assert not find_evidence(mutant.submission.response, evidence) or evidence.strip() in "[...]"


@given(st.text(max_size=80))
def test_sentences_cover_the_text_except_blank_ends(text: str) -> None:
    spans = sentence_spans(text)
    assert "".join(text[start:end] for start, end in spans).strip() == text.strip()


def test_response_with_many_dots_is_mutated_in_linear_time() -> None:
    # A search that begins again at each dot would take hours.
    assert len(sentence_spans("It is 42. " + "." * 200_000 + "x")) == 2


def test_evidence_that_is_repeated_often_is_removed_everywhere() -> None:
    response = "Sales rose. " + "It is 42. " * 4_000 + "Taxes fell."
    mutants = mutations_of(case_with(response=response, evidence="It is 42."), "margin", MARGIN)
    assert "Sales rose. Taxes fell." in [mutant.submission.response for mutant in mutants]


def test_other_seed_changes_the_order_and_the_numbers() -> None:
    orders = {
        tuple(mutant.name for mutant in mutations_of(case_with(evidence="17.2%"), "margin", MARGIN, seed))
        for seed in range(5)
    }
    assert len(orders) == 5


def test_select_mutants_takes_from_each_case_in_turn() -> None:
    def mutants(name: str, count: int) -> list[Mutant]:
        submission = Submission(response="r")
        return [Mutant(case=name, kind="tone", name=str(n), submission=submission) for n in range(count)]

    selected = select_mutants([mutants("a", 3), [], mutants("b", 1)], 3)
    assert [(mutant.case, mutant.name) for mutant in selected] == [("a", "0"), ("b", "0"), ("a", "1")]


@pytest.mark.parametrize("run", [".", " ", "\n", "- ", "1.", "。", "a.", "> ", "the "])
def test_long_runs_of_marks_are_mutated_in_linear_time(run: str) -> None:
    case = case_with(response=f"The margin was 17.2%. {run * 20_000}x", evidence="17.2%")
    assert kinds_of(MARGIN, case) >= {"removed", "number"}
