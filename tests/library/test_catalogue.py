"""The ready-made rubrics: their files, their test cases, and the figures of judges like theirs."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, RubricError, grade_many
from rubric_integrations.formats import as_rubric, lint
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.library import load, measured_judges, names, text
from rubric_integrations.rubric.case import Case
from rubric_integrations.scoring.formula import reaches_mark, score_values
from tests.fakes import FakeJudge

ROOT = Path(__file__).resolve().parents[2]
VALUES = {"MET": 1.0, "UNMET": 0.0}
CASES = [pytest.param(name, case, id=f"{name}-{case.name}") for name in names() for case in load(name).cases]


def test_each_file_of_the_package_is_in_the_catalogue() -> None:
    files = {path.stem for path in (ROOT / "rubric_integrations" / "library").glob("*.yaml")}
    assert (files, len(names())) == (set(names()), 9)


@pytest.mark.parametrize("name", names())
def test_rubric_is_named_versioned_silent_in_lint_and_has_eight_cases(name: str) -> None:
    rubric = load(name)
    assert (rubric.name, lint(rubric), len(rubric.cases)) == (name, [], 8)
    assert rubric.version
    assert rubric.description
    assert rubric.pass_mark == 0.8
    assert all(criterion.name and criterion.kind == "binary" for criterion in rubric.criteria)
    assert any(criterion.is_penalty for criterion in rubric.criteria)


@pytest.mark.parametrize("name", names())
def test_each_criterion_of_a_judge_is_met_in_one_case_and_not_met_in_another(name: str) -> None:
    rubric = load(name)
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        if criterion.check is None:
            expected = {case.expect.verdicts.get(key) for case in rubric.cases}
            assert {"MET", "UNMET"} <= expected, key


@pytest.mark.parametrize(("name", "case"), CASES)
def test_verdicts_that_code_decides_are_as_expected_without_a_judge(name: str, case: Case) -> None:
    rubric, judge = load(name), FakeJudge("MET")
    report = rubric.grade_sync(case.submission, PerCriterionGrader(judge=judge))
    answered_by_judge = {question.criterion.name for question in judge.questions}
    for row in report.criteria:
        if row.name not in answered_by_judge and not row.not_applicable:
            assert row.verdict == case.expect.verdicts[row.name], row.name
        else:
            assert case.expect.verdicts.get(row.name) != "CANNOT_ASSESS", row.name


@pytest.mark.parametrize(("name", "case"), CASES)
def test_expected_score_follows_from_the_expected_verdicts(name: str, case: Case) -> None:
    rubric, expect = load(name), case.expect
    free = [key for key in rubric.keys if key not in expect.verdicts]
    for answers in product(VALUES, repeat=len(free)):
        verdicts = {**expect.verdicts, **dict(zip(free, answers, strict=True))}
        values = [VALUES.get(str(verdicts[key])) for key in rubric.keys]
        others = {place for place, key in enumerate(rubric.keys) if verdicts[key] == "NOT_APPLICABLE"}
        score = score_values(rubric, values, "skip", others).normalized
        gates = all(values[place] == 1 for place, criterion in enumerate(rubric.criteria) if criterion.required)
        passed = gates and score is not None and reaches_mark(score, rubric.pass_mark)
        assert expect.passed in (None, passed), verdicts
        if score is not None:
            assert (expect.min_score or 0.0) - 1e-9 <= score, verdicts
            assert score <= (1.0 if expect.max_score is None else expect.max_score) + 1e-9, verdicts


def test_name_in_the_library_is_accepted_like_the_path_of_a_file() -> None:
    rubric = load("relevance")
    for path in ("library:relevance", Path("library:relevance")):
        assert Rubric.from_file(path) == as_rubric(path) == RowRubrics(path).shared == rubric
    graded = next(iter(grade_many(["No."], "library:conciseness", PerCriterionGrader("offline"))))
    assert graded.report is not None
    assert graded.report.criteria[1].verdict == "MET"
    assert load("library:relevance") == rubric


@pytest.mark.parametrize("name", ["relevnce", "", "../relevance", "relevance.yaml", "judges", "\x1b[31m"])
def test_unknown_name_is_refused_and_opens_no_file(name: str) -> None:
    for read in (load, text, measured_judges, RowRubrics):
        with pytest.raises(RubricError, match="is not in the library"):
            read(f"library:{name}")
    with pytest.raises(RubricError, match="did you mean `relevance`"):
        load("relevnce")


def test_measured_judges_are_rows_of_the_published_tables() -> None:
    lines = (ROOT / "docs" / "judges.md").read_text(encoding="utf-8").splitlines()
    for name in names():
        keys = set(load(name).keys)
        for judge in measured_judges(name):
            assert keys.issuperset(judge.criteria)
            assert judge.kappa is not None
            if judge.data != "LLM-Rubric":  # whose tables have several questions
                kappa = f"{judge.kappa:.2f}".replace("0.", ".")
                row = f"| {judge.judge} | {judge.prompt} | "
                assert any(
                    line.startswith(row) and f" {judge.n:,} |" in line and f"| {kappa} [" in line for line in lines
                ), judge


def test_rubrics_without_a_like_judge_are_not_measured() -> None:
    unmeasured = {name for name in names() if not measured_judges(name)}
    assert unmeasured == {"groundedness", "relevance", "tools"}
    kappas = [judge.kappa for judge in measured_judges("coverage")]
    assert kappas == sorted(kappas, key=lambda kappa: -(kappa or 0))
