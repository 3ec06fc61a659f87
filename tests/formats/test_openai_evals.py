"""Evals and graders of OpenAI: their criteria, their score and their pass, and each refusal."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import PerCriterionGrader, Rubric, RubricError, Submission
from rubric_integrations.formats import load_eval_cases, read_document, reading_losses, write_document
from rubric_integrations.formats.openai_evals import linear_weights
from rubric_integrations.testing import ScriptedJudge
from tests.conftest import SHARED
from tests.formats.mutation import mutate
from tests.formats.samples import HELP, OPENAI_EVAL, OPENAI_MULTI, ROUTE, TONE

SAMPLES = SHARED / "data/rubric_formats"
needs_samples = pytest.mark.skipif(not SAMPLES.exists(), reason="../shared/data/rubric_formats does not exist")
PYTHON = OPENAI_EVAL["testing_criteria"][3]
EVAL = {**OPENAI_EVAL, "testing_criteria": [ROUTE, TONE, HELP]}

pytestmark = pytest.mark.filterwarnings("ignore:.*not graded, or not as there:UserWarning")


def eval_of(*graders: Any) -> dict[str, Any]:
    return {"object": "eval", "name": "e", "testing_criteria": list(graders)}


def multi_of(formula: Any, **graders: Any) -> dict[str, Any]:
    return {**OPENAI_MULTI, "calculate_output": formula, "graders": {**OPENAI_MULTI["graders"], **graders}}


def prompt(*texts: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for text in texts]


def test_graders_of_an_eval_become_required_criteria_of_equal_weight() -> None:
    rubric = Rubric.from_dict(EVAL)
    route, tone, helps = rubric.criteria
    assert (rubric.name, rubric.pass_mark, rubric.left_out) == ("Tickets", 0.0, ())
    assert [criterion.weight for criterion in rubric.criteria] == [1.0, 1.0, 1.0]
    assert route.check is not None
    assert (route.name, route.check.reference, route.required) == ("route", "equals", True)
    assert (tone.requirement, tone.required, tone.scale_type) == ("Label the tone.", True, "nominal")
    assert [(option.label, option.value) for option in tone.options or ()] == [("kind", 1), ("cool", 1), ("rude", 0)]
    assert helps.scale is not None
    assert (helps.requirement, helps.scale.min, helps.scale.max) == ("Rate [the response]", 1, 5)
    assert (helps.min_score, helps.required) == (0.75, False)


def test_pass_of_an_eval_is_that_of_all_its_graders_for_random_answers() -> None:
    rubric = Rubric.from_dict(EVAL)
    chance = random.Random(51)
    passes = 0
    for _ in range(1000):
        label, number = chance.choice(["kind", "cool", "rude"]), chance.choice([1, 2, 3.5, 3.999, 4, 4.5, 5])
        response = chance.choice(["billing", "Billing", "billing ", "other"])
        judge = ScriptedJudge({"tone": label, "help": number})
        submission = Submission(response=response, query="q", reference="billing")
        report = rubric.grade_sync(submission, PerCriterionGrader(judge))
        # OpenAI: each grader has its own pass, and a row passes if all of them do.
        results = [response == "billing", label in TONE["passing_labels"], number >= HELP["pass_threshold"]]
        assert report.passed == all(results)
        assert report.score == pytest.approx((results[0] + results[1] + (number - 1) / 4) / 3)
        passes += report.passed
    assert 0 < passes < 1000


@pytest.mark.parametrize(
    ("formula", "total"),
    [
        ("0.75 * help + 0.25 * route", 1),
        ("(3*help + route)/4", 1),
        ("help + route", 2),
        ("-(-help) + .5e1 * (route * 2) / 4", 3.5),
        ("0.1 * (help + 2 * (help + route))", 0.5),
    ],
)
def test_score_of_a_weighted_sum_is_its_number_divided_by_its_weights(formula: str, total: float) -> None:
    rubric = Rubric.from_dict(multi_of(formula))
    chance = random.Random(formula)
    for _ in range(200):
        values = {"route": float(chance.random() < 0.5), "help": round(chance.random(), 4)}
        judge = ScriptedJudge({"help": values["help"]})
        submission = Submission(response="a" if values["route"] else "b", reference="a")
        score = rubric.grade_sync(submission, PerCriterionGrader(judge)).score
        expected = eval(formula, {"__builtins__": {}}, values)
        assert score == pytest.approx(expected / total)
    losses = [loss for loss in reading_losses(multi_of(formula)) if "calculate_output" in loss]
    assert losses == (
        []
        if total == 1
        else [f"`calculate_output`: its weights sum to {total:g}, and our score is its number divided by this sum"]
    )


_keys = st.sampled_from(["help", "route", "other"])
_numbers = st.sampled_from(["0", "1", "2", ".5", "1e3", "0.25", "3."])
_formulas = st.recursive(
    _keys | _numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" + ", "-", "*", " / "]), inner).map("".join),
        inner.map("({})".format),
        inner.map("-{}".format),
    ),
    max_leaves=12,
)


@given(_formulas)
def test_random_formula_is_read_as_python_evaluates_it_or_refused(formula: str) -> None:
    keys = ["help", "route", "other"]

    def number(*values: float) -> float:
        try:
            return float(eval(formula, {"__builtins__": {}}, dict(zip(keys, values, strict=True))))
        except ZeroDivisionError:
            return math.nan

    try:
        weights = linear_weights(formula, keys)
    except ValueError:
        return
    chance = random.Random(formula)
    for _ in range(5):
        values = [chance.random() for _ in keys]
        ours = math.fsum(weights.get(key, 0.0) * value for key, value in zip(keys, values, strict=True))
        assert ours == pytest.approx(number(*values), rel=1e-6, abs=1e-9)
    assert all(weight > 0 for weight in weights.values())


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("help * route", "multiplies graders"),
        ("help / route", "divides by a grader"),
        ("help / 0 + route", "divides by 0"),
        ("help / (1 - 1)", "divides by 0"),
        ("help + 0.5", "adds the constant 0.5"),
        ("1 - help", "adds the constant 1"),
        ("0.5", "names no grader"),
        ("help - route", "has the factor -1 for 'route'"),
        ("0 * help + route", "has the factor 0 for 'help'"),
        ("max(help, route)", "calls max()"),
        ("min(help, route)", "calls min()"),
        ("help ^ 2", "has a power"),
        ("help ** 2", "has '*' where a value is expected"),
        ("(help + route", "has a bracket that is not closed"),
        ("help + route)", "has ')' where an operator or the end is expected"),
        ("help route", "has 'route' where an operator or the end is expected"),
        ("help +", "ends where a value is expected"),
        ("* help", "has '*' where a value is expected"),
        ("help + tone", "names 'tone', which is no grader"),
        ("__import__('os')", 'has "\'", which is not read'),
        ("__import__(os)", "names '__import__', which is no grader"),
        ("help; route", "has ';', which is not read"),
        ("help if route else 1", "has 'if' where an operator or the end is expected"),
        ("1e308 * 10 * help", "has a number that is too large for 'help'"),
        ("1e400 * help", "has a number that is too large for 'help'"),
        ("(" * 60 + "help" + ")" * 60, "nests deeper than 30 levels"),
        ("help + " * 300 + "help", "has more than 1,000 characters"),
        ("\u0663 * help", "which is not read"),
        ("", "is no formula"),
        (None, "is no formula"),
        (1, "is no formula"),
    ],
)
def test_formula_that_is_no_weighted_sum_is_refused_and_quoted(formula: Any, words: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict(multi_of(formula))
    message = str(refusal.value)
    assert f"`calculate_output`: {words}" in message or words in message
    assert repr(formula) in message
    assert "only a weighted sum of the graders" in message


def test_grader_that_is_not_in_the_formula_is_left_out_and_listed() -> None:
    document = multi_of("help", extra=PYTHON)
    assert Rubric.from_dict(document).keys == ("help",)
    losses = reading_losses(document)
    assert "`route` is not in `calculate_output`, and is left out" in losses
    assert "`extra` is not in `calculate_output`, and is left out" in losses


@pytest.mark.parametrize(
    ("operation", "reference", "met", "unmet"),
    [
        ("eq", "a (b)", ["a (b)"], ["a (b) ", "A (b)", "a (b)\n", "x a (b)"]),
        ("ne", "a", ["b", "A", "a "], ["a"]),
        ("like", "a.b", ["xa.by"], ["axb", "A.B"]),
        ("ilike", "a.b", ["xA.By"], ["axb"]),
        ("eq", "{{ item.queue }}", ["the ref"], ["the ref ", "The ref", "ref"]),
        ("ne", "{{item.queue}}", ["the ref ", "The ref"], ["the ref"]),
        ("like", "{{ item.queue }}", ["x the ref."], ["x The ref"]),
        ("ilike", "{{ item.queue }}", ["x The REF."], ["x the re"]),
    ],
)
def test_string_check_decides_like_the_operation(
    operation: str, reference: str, met: list[str], unmet: list[str]
) -> None:
    rubric = Rubric.from_dict({**ROUTE, "operation": operation, "reference": reference})
    for response in met + unmet:
        report = rubric.grade_sync(Submission(response=response, reference="the ref"), PerCriterionGrader("offline"))
        assert report.score == float(response in met)


def test_response_as_the_reference_of_a_string_check_is_compared_in_either_order() -> None:
    swapped = {**ROUTE, "input": "{{ item.queue }}", "reference": "{{ sample.output_text }}"}
    assert Rubric.from_dict(swapped) == Rubric.from_dict(ROUTE)
    with pytest.raises(RubricError, match=r"only the response, .* can be compared"):
        Rubric.from_dict({**swapped, "operation": "like"})


def test_template_that_a_string_check_compares_is_the_reference_of_every_prompt() -> None:
    grader = {**HELP, "input": prompt("Is {{ sample.output_text }} like {{ item.queue }}, as {{ item.request }}?")}
    document = eval_of(grader, ROUTE)
    assert (
        Rubric.from_dict(document).criteria[0].requirement == "Is [the response] like [the reference], as [the query]?"
    )
    assert Rubric.from_dict(document).criteria[0].needs == ("query", "reference")
    assert (
        "`help`: in the prompt, `{{ sample.output_text }}` becomes '[the response]', `{{ item.queue }}` becomes "
        "'[the reference]', `{{ item.request }}` becomes '[the query]'"
    ) in reading_losses(document)


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (eval_of(), "`testing_criteria`: must be a list of graders, got []"),
        ({**EVAL, "testing_criteria": {"a": TONE}}, "`testing_criteria`: must be a list of graders"),
        (eval_of("tone"), "testing_criteria[0]: must be a grader such as a label_model, got 'tone'"),
        (eval_of({**TONE, "type": "label"}), "testing_criteria[0] `type`: is 'label': use one of string_check"),
        (eval_of(OPENAI_MULTI), "`type`: is a `multi` inside another grader"),
        (multi_of("help", help=OPENAI_MULTI), "graders.help `type`: is a `multi` inside another grader"),
        ({**OPENAI_MULTI, "graders": [HELP]}, "`graders`: must be graders by key"),
        (multi_of("help", help=3), "graders `help`: must be a grader, got 3"),
        (multi_of("help + route", route=PYTHON), "`python` is code, which is not run, and weighs 1 in 'help + route'"),
        (multi_of("help", help=HELP), "graders.help `range`: is from 1 to 5, and its number is part of 'help'"),
        (eval_of(PYTHON), "has no grader that is read: `length`: `python` is code"),
        (eval_of({**TONE, "lables": []}), "`lables`: is not a known key: did you mean `labels`?"),
        (eval_of({**TONE, "labels": ["a"], "passing_labels": ["a"]}), "`labels`: must be texts that differ"),
        (eval_of({**TONE, "labels": ["kind", "Kind ", "cool"]}), "`labels`: must be texts that differ"),
        (eval_of({**TONE, "labels": ["kind", 1]}), "`labels`: must be texts that differ"),
        (eval_of({**TONE, "labels": "kind"}), "`labels`: must be texts that differ"),
        (eval_of({**TONE, "passing_labels": []}), "`passing_labels`: must be some of the labels"),
        (eval_of({**TONE, "passing_labels": ["Kind"]}), "`passing_labels`: must be some of the labels"),
        (eval_of({**HELP, "range": [5, 1]}), "`range`: must be two numbers, low and high, got [5, 1]"),
        (eval_of({**HELP, "range": [1, 1]}), "`range`: must be two numbers"),
        (eval_of({**HELP, "range": [0, 1, 2]}), "`range`: must be two numbers"),
        (eval_of({**HELP, "range": [0, True]}), "`range`: must be two numbers"),
        (eval_of({**HELP, "range": [0, math.inf]}), "`range`: must be two numbers"),
        (eval_of({**HELP, "range": [0, 2**1024 - 1]}), "`range`: must be two numbers"),
        (eval_of({**HELP, "pass_threshold": 2**1024 - 1}), "`pass_threshold`: must be a number of at most 5"),
        (eval_of({**ROUTE, "input": "{{ sample.output_text }} "}), "`input`: is '{{ sample.output_text }} '"),
        (eval_of({**ROUTE, "reference": "{{ item.queue }} "}), "`reference`: is '{{ item.queue }} '"),
        ({"object": "list", "data": [EVAL, "b"]}, "has no `criteria`"),
        (eval_of({**HELP, "range": 5}), "`range`: must be two numbers"),
        (eval_of({**HELP, "pass_threshold": 6}), "`pass_threshold`: must be a number of at most 5"),
        (eval_of({**HELP, "pass_threshold": "4"}), "`pass_threshold`: must be a number of at most 5"),
        (eval_of({**HELP, "input": "Rate {{ sample.output_text }}"}), "`input`: must be a list of messages"),
        (eval_of({**HELP, "input": []}), "`input`: must be a list of messages"),
        (eval_of({**HELP, "input": prompt("Is it funny?")}), "`input`: has no {{ sample.output_text }}"),
        (eval_of({**HELP, "input": prompt("{{ sample.output_text }}")}), "is empty: write what the judge should"),
        (eval_of({**HELP, "input": prompt(7)}), "input[0] `content`: must be texts, got 7"),
        (eval_of({**HELP, "input": prompt([])}), "input[0] `content`: must be texts, got []"),
        (eval_of({**HELP, "input": ["Rate"]}), "input[0] `content`: must be texts, got None"),
        (eval_of({**HELP, "input": prompt([{"type": "input_image", "image_url": "x"}])}), "`content`: must be texts"),
        (
            eval_of({**HELP, "input": [*HELP["input"], *prompt("5", role="assistant")]}),
            "input[1] `role`: is 'assistant', an answer of the grader's model",
        ),
        (eval_of({**ROUTE, "operation": "neq"}), "`operation`: is 'neq': use eq, ne, like or ilike"),
        (eval_of({**ROUTE, "operation": ["eq"]}), "`operation`: is ['eq']: use eq"),
        (eval_of({**ROUTE, "input": "{{ sample.output_json.queue }}"}), "`input`: is '{{ sample.output_json.queue }}'"),
        (eval_of({**ROUTE, "reference": ""}), "`reference`: is '': only a fixed text"),
        (eval_of({**ROUTE, "reference": "q: {{ item.queue }}"}), "`reference`: is 'q: {{ item.queue }}'"),
        (eval_of({**ROUTE, "reference": "{{ item.tags[0] }}"}), "`reference`: is '{{ item.tags[0] }}'"),
        (eval_of({**ROUTE, "reference": None}), "`reference`: must be a text, got None"),
        (
            eval_of(ROUTE, {**ROUTE, "name": "b", "reference": "{{ item.answer }}"}),
            "has {{ item.answer }} and {{ item.queue }}, and a row has one reference: use one of them in a file",
        ),
        (eval_of(TONE, TONE), "'tone'"),
        ({"object": "list", "data": [EVAL, {**EVAL, "name": "b"}]}, "data: are 2 evals ('Tickets', 'b'), each a"),
    ],
)  # fmt: skip
def test_eval_that_cannot_be_graded_alike_is_refused_by_its_place(document: Any, line: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict(document)
    assert line in str(refusal.value)


@pytest.mark.parametrize(
    "template",
    [
        "{{ item.queue }}", "{{ item.request.text }}", "{{ item }}", "{{ sample.output_json }}", "{{ sample.choices }}",
        "{{ item['request'] }}", "{{ item.request | upper }}", "{{ x }}", "{{}}", "{% if item.task %}a{% endif %}",
        "{# a #}", "{{ item.request", "item.request }}", "{{{ item.request }}}", "{{ item.request\n}} {{",
        "{{ Item.request }}", "{{ item.Request }}", "{{ item.question }} {{ item.request }}",
    ],
)  # fmt: skip
def test_template_without_a_known_meaning_is_refused(template: str) -> None:
    grader = {**HELP, "input": prompt("Rate {{ sample.output_text }}", template)}
    with pytest.raises(RubricError, match=r"input\[1\] `content`: has"):
        Rubric.from_dict(eval_of(grader))


def test_unread_graders_are_left_out_and_no_grade_passes() -> None:
    similar = {
        "type": "text_similarity", "name": "close", "input": "{{ sample.output_text }}", "pass_threshold": 0.8,
        "reference": "{{ item.answer }}", "evaluation_metric": "rouge_l",
    }  # fmt: skip
    rubric = Rubric.from_dict(eval_of(TONE, similar, PYTHON))
    assert rubric.left_out == (
        "`close`: `text_similarity` with 'rouge_l' is not read, because OpenAI does not publish its function",
        "`length`: `python` is code, which is not run",
    )
    report = rubric.grade_sync("Hello", PerCriterionGrader(ScriptedJudge("kind")))
    assert (report.score, report.partial, report.passed) == (1.0, True, False)


@pytest.mark.parametrize(
    ("threshold", "number", "passed"),
    [(1, 1, True), (0, 1, True), (-3, 1, True), (3, 3, True), (3, 2.99, False), (5, 5, True), (5, 4.9, False)],
)
def test_threshold_of_a_score_decides_the_pass_alone(threshold: float, number: float, passed: bool) -> None:
    rubric = Rubric.from_dict(eval_of({**HELP, "pass_threshold": threshold}))
    report = rubric.grade_sync("Hello", PerCriterionGrader(ScriptedJudge(number)))
    assert report.passed is passed is (number >= threshold)


def test_score_without_a_threshold_is_not_required_and_the_pass_mark_decides() -> None:
    document = eval_of({**HELP, "pass_threshold": None, "range": None})
    rubric = Rubric.from_dict(document)
    assert (rubric.criteria[0].is_gate, rubric.pass_mark) == (False, 0.8)
    assert rubric.criteria[0].scale is not None
    assert (rubric.criteria[0].scale.min, rubric.criteria[0].scale.max) == (0, 1)
    assert "`help`: has no `pass_threshold`, and is not required for a pass" in reading_losses(document)


def test_mutated_eval_keeps_the_meaning_of_each_grader_or_is_refused() -> None:
    chance, count = random.Random(5), 0
    for _ in range(2000):
        document = mutate(OPENAI_EVAL, chance, chance.randrange(1, 4))
        try:
            rubric = read_document(document, "mutated")
        except RubricError:
            continue
        if "testing_criteria" not in document:
            continue
        count += 1
        graders = [grader for grader in document["testing_criteria"] if grader["type"] != "python"]
        assert len(rubric) + len(rubric.left_out) == len(document["testing_criteria"])
        for grader, criterion in zip(graders, rubric.criteria, strict=True):
            values = {option.label: option.value for option in criterion.options or ()}
            if grader["type"] == "label_model":
                assert values == {label: float(label in grader["passing_labels"]) for label in grader["labels"]}
            elif grader["type"] == "score_model":
                low, high = grader.get("range") or (0, 1)
                threshold = grader.get("pass_threshold")
                assert criterion.scale is not None
                assert (criterion.scale.min, criterion.scale.max) == (low, high)
                assert (criterion.min_score is None) == (threshold is None or threshold <= low)
            else:
                assert criterion.check is not None
    assert count > 100


def test_rubric_of_an_eval_is_equal_after_the_native_format() -> None:
    for document in (EVAL, OPENAI_MULTI, TONE, HELP, ROUTE):
        rubric = Rubric.from_dict(document)
        assert read_document(json.loads(json.dumps(write_document(rubric)[0])), "native") == rubric
        with pytest.raises(RubricError, match="is only read"):
            write_document(rubric, "openai_evals")


@needs_samples
def test_samples_are_read_and_graded_with_the_published_numbers() -> None:
    rubric = Rubric.from_file(SAMPLES / "openai_multi.json")
    judge = ScriptedJudge({"help": 0.5})
    submission = Submission(response="Queue: Billing", reference="billing")
    assert rubric.grade_sync(submission, PerCriterionGrader(judge)).score == pytest.approx(0.65)
    rubric = Rubric.from_file(SAMPLES / "openai_eval.json")
    assert (rubric.keys, len(rubric.left_out)) == (("queue", "tone", "help"), 2)
    judge = ScriptedJudge({"tone": "rude", "help": 7})
    submission = Submission(response="billing", query="Where is my money?", reference="billing")
    assert rubric.grade_sync(submission, PerCriterionGrader(judge)).score == pytest.approx(2 / 3)
    with pytest.raises(RubricError):
        list(load_eval_cases(SAMPLES / "openai_eval.json"))
