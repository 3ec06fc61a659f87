"""Assertions that promptfoo and AgentV decide in code: checks with the same answers, or a case that cannot pass.

The answers of `CASES` are those of JavaScript (Node 18).
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rubric_integrations import PerCriterionGrader, Rubric, RubricError
from rubric_integrations.checks.registry import run_check
from rubric_integrations.cli import app
from rubric_integrations.formats import load_eval_cases
from rubric_integrations.formats.assertion_checks import check_of, python_pattern

CASES: list[tuple[str, Any, bool, list[str], list[str]]] = [
    ("contains", "1.5", False, ["is 1.5 now"], ["is 1x5", "1 .5"]),
    ("contains", 1969, False, ["In 1969."], ["In 1970."]),
    ("icontains", "Kit", False, ["a KIT", "\u212aIT"], ["k\u0130t", "ki t"]),
    ("icontains", "hi", False, ["HI", "h\u0130"], ["h"]),
    ("icontains", "s", False, ["S"], ["\u017f", "ß"]),
    ("contains-any", ["a|b", "c"], False, ["xa|b", "c"], ["a", "b"]),
    ("contains-any", "word", False, ["a word"], ["wor"]),
    ("contains-all", ["a.", "b"], False, ["b\na."], ["a.", "ab"]),
    ("icontains-any", ["YES", "no"], False, ["yes", "NO"], ["maybe"]),
    ("icontains-all", ["A", "b"], False, ["B\nA", "ab"], ["a", "b"]),
    ("starts-with", "a.", False, ["a.b"], [" a.", "ab", "x\na."]),
    ("equals", "a", False, ["a"], ["a\n", " a", "A", "ab"]),
    ("equals", "a", True, [" a\n", "\ufeffa"], ["\x1ca", "a b"]),
    ("starts-with", " a", True, ["\u00a0a b", "a"], ["b a"]),
    ("ends-with", "a ", True, ["b a\u2028", "a"], ["a b"]),
    ("regex", r"^\d+$", False, ["12"], ["12\n", "\u0661", "1a"]),
    ("regex", r"\bcat\b", False, ["a cat!", "écaté"], ["cats", "_cat"]),
    ("regex", r"[\w.+-]+@\w+\.[a-z]{2,3}", False, ["me+you@site.com"], ["mé@é.com"]),
    ("regex", r"a.*b", False, ["a😀b", "a\x85b"], ["a\u2028b", "a\nb"]),
    ("regex", r"(?:yes|no)\s*[^,]*$", False, ["yes\u00a0x"], ["yes\x1f,", "maybe"]),
    ("is-json", None, False, ['{"a": [1]}', " 1 "], ["{a: 1}", "```json\n{}\n```", "NaN"]),
    ("is-json", {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}, False,
     ['{"a": 1}', '{"a": 1.0, "b": null}'], ["{}", '{"a": "1"}', "[]"]),
    ("is-json", "type: object\nrequired: [a]", False, ['{"a": 1}'], ["{}", "[]"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "trims", "passing", "failing"), CASES)
def test_check_of_an_assertion_decides_as_javascript_does(
    kind: str, value: Any, trims: bool, passing: list[str], failing: list[str]
) -> None:
    check = check_of(kind, value, is_negated=False, trims=trims, reads_numbers=not trims)
    assert [run_check(check, text).verdict for text in passing + failing] == ["MET"] * len(passing) + ["UNMET"] * len(
        failing
    )
    if kind != "is-json":
        negated = check_of(kind, value, is_negated=True, trims=trims, reads_numbers=not trims)
        assert [run_check(negated, text).verdict for text in passing + failing] == ["UNMET"] * len(passing) + [
            "MET"
        ] * len(failing)


@pytest.mark.parametrize(
    "pattern",
    [
        "a.b", r"^\S$", "[^a]", r"\u0041", r"\p{L}+", "(?<=a)b", "(?i)a", r"(a)\1", "a++", "a{", "a)", "(a", ")(a",
        "😀", r"\Aa", "[[:alpha:]]", r"[\S]", r"[a-\d]", "*", "(?=a)*", r"\x41", "[]", "a" * 30_000,
    ],
)  # fmt: skip
def test_pattern_whose_meaning_may_differ_is_refused(pattern: str) -> None:
    for is_negated in (False, True):
        with pytest.raises(ValueError, match=r"pattern|character|no check takes"):
            check_of("regex", pattern, is_negated=is_negated, trims=False, reads_numbers=True)


def test_usual_pattern_is_translated() -> None:
    for pattern in (r"^(yes|no)$", r"\d{4}-\d{2}-\d{2}", r"[A-Z][a-z]+(?: [A-Z][a-z]+)*", r"(?!.*sorry)", r"a\/b\.c"):
        assert python_pattern(pattern)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("contains", ""), ("contains", ["a"]), ("contains", True), ("contains", 1.5), ("contains", None),
        ("equals", {"a": 1}), ("icontains", "Größe"),
        ("contains-any", "a, b"), ("contains-any", '"a"'), ("contains-any", []),
        ("contains-any", ["a", ""]), ("contains-all", [1]), ("equals", 7), ("is-json", "{type: object"),
        ("is-json", {"type": "string", "format": "email"}), ("is-json", {"properties": {"a": {"$ref": "#"}}}),
        ("is-json", {"type": "nothing"}),
    ],
)  # fmt: skip
def test_value_whose_meaning_may_differ_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"has|ignores"):
        check_of(kind, value, is_negated=False, trims=False, reads_numbers=True)


def read(document: Any) -> Rubric:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Rubric.from_dict(document)


def test_promptfoo_file_of_code_assertions_is_graded_by_checks() -> None:
    document = {
        "defaultTest": {"vars": {"year": 1969}},
        "tests": [{"vars": {"name": "Eagle"}, "assert": [
            {"type": "contains", "value": "{{ name }} in {{year}}", "metric": "facts", "weight": 2},
            {"type": "not-icontains", "value": "sorry"},
            {"type": "regex", "value": "x", "weight": 0},
        ]}],
    }  # fmt: skip
    rubric = read(document)
    assert rubric.left_out == ()
    assert [(c.weight, c.required, c.tags) for c in rubric.criteria] == [
        (2.0, True, ("facts",)), (1.0, True, ()), (0.0, False, ()),
    ]  # fmt: skip
    grader = PerCriterionGrader("offline")
    assert rubric.grade_sync("Eagle in 1969", grader=grader).passed
    report = rubric.grade_sync("Eagle in 1969. SORRY", grader=grader)
    assert (report.passed, report.partial, [row.verdict for row in report.criteria]) == (
        False, False, ["MET", "UNMET", "UNMET"],
    )  # fmt: skip


def test_agentv_assertions_are_negated_and_gated_as_there() -> None:
    document = {"tests": [{"id": "a", "assertions": [
        {"type": "equals", "value": " yes "},
        {"type": "contains", "value": "no", "negate": True, "required": True, "name": "polite"},
        {"type": "llm-rubric", "value": "Is rude", "negate": True},
    ]}]}  # fmt: skip
    rubric = read(document)
    assert rubric.left_out == ()
    assert [(c.name, c.required) for c in rubric.criteria] == [(None, False), ("polite", True), (None, False)]
    assert rubric.criteria[2].requirement == "This is not true of the response: Is rude"
    checks = [criterion.check for criterion in rubric.criteria if criterion.check]
    assert [run_check(check, "yes\n").verdict for check in checks] == ["MET", "MET"]


@pytest.mark.parametrize(
    ("assertion", "beside"),
    [
        ({"type": "javascript", "value": "true"}, {}),
        ({"type": "contains", "value": "{{ missing }}"}, {}),
        ({"type": "contains", "value": "{{ name | upper }}"}, {}),
        ({"type": "contains", "value": "{{ code }}"}, {}),
        ({"type": "contains-all", "value": ["{{ name }}"]}, {}),
        ({"type": "equals", "value": "file://expected.txt"}, {}),
        ({"type": "equals", "value": "x", "transform": "output.trim()"}, {}),
        ({"type": "equals", "value": "x"}, {"options": {"transform": "output.trim()"}}),
        ({"type": "not-is-json"}, {}),
        ({"type": "ends-with", "value": "x"}, {}),
        ({"type": "contains", "value": "x", "negate": True}, {}),
        ({"type": "assert-set", "threshold": 0.5, "assert": [{"type": "llm-rubric", "value": "y"}]}, {}),
        ({"type": "contains", "value": "x"}, {"assertScoringFunction": "file://score.js"}),
    ],
)
def test_case_with_an_assertion_that_is_not_read_is_partial_and_never_passes(
    assertion: dict[str, Any], beside: dict[str, Any]
) -> None:
    variables = {"name": "Ada", "code": "{{ name }}"}
    judged = {"type": "icontains", "value": "fine"} if not beside else {"type": "llm-rubric", "value": "Is fine"}
    rubric = read({"tests": [{"vars": variables, "assert": [judged, assertion], **beside}]})
    assert len(rubric.left_out) == 1
    report = Rubric(rubric.criteria[:1], left_out=rubric.left_out).grade_sync(
        "Is fine", grader=PerCriterionGrader("offline", on_failure="abstain")
    )
    assert (report.passed, report.partial) == (False, True)


def test_assertion_of_weight_0_that_is_not_read_does_not_keep_a_case_from_passing() -> None:
    assertions = [{"type": "latency", "threshold": 9, "weight": 0}, {"type": "contains", "value": "a"}]
    assert read({"tests": [{"assert": assertions}]}).left_out == ()
    assert read({"tests": [{"assert": [{**assertions[0], "weight": 1}, assertions[1]]}]}).left_out != ()


MIXED = {
    "tests": [
        {"description": "judged", "vars": {"q": "?"}, "assert": [{"type": "llm-rubric", "value": "Is polite"}]},
        {"description": "code", "vars": {"q": "?"}, "assert": [{"type": "javascript", "value": "true"}]},
        {"description": "both", "vars": {"q": "?"},
         "assert": [{"type": "python", "value": "1"}, {"type": "equals", "value": "a"}]},
    ]
}  # fmt: skip


def test_case_of_code_alone_does_not_refuse_the_file_unless_strict(tmp_path: Path) -> None:
    path = tmp_path / "promptfooconfig.json"
    path.write_text(json.dumps(MIXED))
    with pytest.warns(UserWarning, match="the case has no assertion that is read, and is left out"):
        cases = list(load_eval_cases(path))
    assert [(case.id, bool(case.rubric.left_out)) for case in cases] == [("judged", False), ("both", True)]
    with pytest.raises(RubricError, match="case code: has no assertion that is read"):
        list(load_eval_cases(path, strict=True))
    path.write_text(json.dumps({"tests": MIXED["tests"][1:2]}))
    with pytest.raises(RubricError, match="has no assertion that is read"):
        list(load_eval_cases(path))
    path.write_text(json.dumps({"tests": MIXED["tests"][2:]}))
    with pytest.raises(RubricError, match="`python` is not read"), warnings.catch_warnings():
        list(load_eval_cases(path, strict=True))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_validate_says_what_is_left_out_and_refuses_it_with_strict(tmp_path: Path) -> None:
    path = tmp_path / "promptfooconfig.json"
    path.write_text(json.dumps({"tests": MIXED["tests"][2:]}))
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert (result.exit_code, "1 part is left out, so that no such grade passes" in result.output) == (0, True)
    result = CliRunner().invoke(app, ["validate", "--strict", str(path)])
    assert result.exit_code == 1
    assert "`python` is not read" in result.output
    path.write_text(json.dumps({"tests": MIXED["tests"][:1]}))
    assert CliRunner().invoke(app, ["validate", "--strict", str(path)]).exit_code == 0
