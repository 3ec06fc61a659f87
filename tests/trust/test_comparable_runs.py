"""Which runs can be compared: those that grade each row by the same rubric, on the same inputs, by the same judge."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Check, Criterion, LengthPenalty, Option, PerCriterionGrader, Rubric, Scale, grade_many
from rubric_integrations.graders import CallLimits, TextLimits, Voting
from rubric_integrations.judges import Explained, Explorer, ExplorerLimits, Question
from rubric_integrations.reporting import report_page
from rubric_integrations.rubric import HybridMetric
from rubric_integrations.runs import Graded, ImportedRun, RunFile, read_judgments, read_run
from rubric_integrations.runs.files import run_line
from rubric_integrations.runs.rescoring import rescore
from rubric_integrations.scoring import Judgment, to_judgment
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import Comparability, comparability, compare_runs, gate
from tests.fakes import FakeExplorer
from tests.reporting.page.runs import FIRST, SECOND, own_rubrics, run_of

NOTHING = Comparability()


class FixedJudge:
    """Gives the same answer to each kind of criterion."""

    def __init__(self, model: str = "judge-2025-01-01", answer: str = "MET", **settings: object):
        self._parts, self._answer = [f"openai/{model}", "", settings, "", "", "prompts"], answer

    async def judge(self, question: Question) -> Judgment:
        criterion = question.criterion
        answer = self._answer if criterion.kind == "binary" else "partly" if criterion.options else "5"
        return to_judgment(criterion, answer)

    def fingerprint(self) -> str:
        return json.dumps(self._parts)


def grade(
    rubric: Rubric, judge: object = None, rows: Iterable[dict[str, Any]] | None = None, **settings: Any
) -> list[Graded]:
    """Grade ten rows."""
    grader = PerCriterionGrader(judge or FixedJudge(), **settings)  # type: ignore[arg-type]
    own = rows or (
        {"id": str(number), "response": f"It is {number}.", "query": f"Q{number}", "reference": "R"}
        for number in range(10)
    )
    return list(grade_many(own, rubric, grader))


def answers(*values: float) -> list[Option]:
    return [Option(label=name, value=value) for name, value in zip(("no", "partly", "yes"), values, strict=True)]


def one(**fields: Any) -> Rubric:
    return Rubric([Criterion(name="c", requirement="Is it right?", **fields)])


POLITE, RIGHT = {"requirement": "Is polite", "weight": 2}, {"requirement": "Is right", "weight": 3}
BLEU = HybridMetric(name="m", type="bleu", weight=0.5)
GROUPS = """
- {name: facts, weight: 4, criteria: [{name: a, requirement: Is right, weight: 1}]}
- {name: style, weight: 4, criteria: [{requirement: Is short, weight: 1}, {requirement: Swears, weight: -1}]}
"""
CAPPED = GROUPS.replace("{name: style, weight: 4,", "{name: style, weight: 4, penalty_cap: 0.5,")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (one(options=answers(0, 0.5, 1)), one(options=answers(0, 0.9, 1)), "options 'no' = 0, 'partly' = 0.5, 'yes'"),
        (one(scale=Scale(min=0, max=10)), one(scale=Scale(min=0, max=20)), "has the scale 0 to 10 in before and 0 to"),
        (one(check=Check(contains="It")), one(check=Check(contains="is")), 'the check {"contains": "It"} in before'),
        (one(weight=-8), one(weight=-3), "criterion `c` of the row '0' has the weight -8 in before and -3 in after"),
        (one(applies_when="It rains"), one(), "has the applies_when It rains in before and none in after"),
        (one(context="A" * 999), one(context="B" * 999), "has the context sha256:"),
        (Rubric.from_yaml(GROUPS), Rubric.from_yaml(CAPPED), "the rubric has the groups "),
        (
            Rubric(one().criteria, guidelines="Be strict."), Rubric(one().criteria, guidelines="Be kind."),
            "the rubric has the instructions Be strict. in before and Be kind. in after",
        ),
        (one(), Rubric(one().criteria, hybrid_metrics=[BLEU]), "the rubric has the hybrid_metrics none in before"),
        (one(), Rubric([Criterion(name="c", requirement="Is it kind?")]), "in only one of before and after"),
    ],
)  # fmt: skip
def test_whatever_gives_equal_answers_another_score_is_refused(before: Rubric, after: Rubric, words: str) -> None:
    runs = grade(before), grade(after)
    assert words in comparability(*runs).refused[0]
    refusal = r"the runs cannot be compared: .* pass anyway=True"
    with pytest.raises(ValueError, match=refusal):
        compare_runs(*runs)
    with pytest.raises(ValueError, match=refusal):
        gate(runs[1], 0.1, baseline=runs[0])
    marked = compare_runs(*runs, anyway=True)
    for warnings in (marked.warnings, gate(runs[1], 0.1, baseline=runs[0], anyway=True).warnings):
        assert any(warning.startswith("not comparable: ") for warning in warnings)
    assert marked.summary().startswith("NOT COMPARABLE, and ")
    assert marked.not_comparable == comparability(*runs).refused


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"normalize": False}, "the grader has the normalize true in before and false in after"),
        ({"length_penalty": LengthPenalty(free_budget=1, max_cap=9)}, "the grader has the length_penalty none in befo"),
    ],
)
def test_another_way_to_score_is_refused(settings: dict[str, Any], words: str) -> None:
    assert words in comparability(grade(one()), grade(one(), **settings)).refused[0]


def test_another_policy_for_abstentions_is_refused_only_if_a_judge_abstained() -> None:
    assert comparability(grade(one()), grade(one(), cannot_assess="zero")) == NOTHING
    judge = FixedJudge(answer="CANNOT_ASSESS")
    runs = grade(one(), judge), grade(one(), judge, cannot_assess="zero")
    assert comparability(*runs).refused == ("the grader has the cannot_assess skip in before and zero in after",)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (one(options=answers(0, 0.5, 1)), one(options=answers(0, 0.5, 1)[::-1])),
        (one(tags=["a"]), one(tags=["b"], metadata={"author": "x"})),
        (Rubric([POLITE, RIGHT]), Rubric([RIGHT, POLITE])),
        (one(), Rubric([Criterion(name="another_name", requirement="Is it right?")], name="named", version="2")),
        (
            Rubric.from_yaml("- {name: c, weight: 3, requirement: 'Says 42', check: {contains: '42'}}"),
            Rubric.from_json(
                '{"criteria": [{"check": {"contains": "42"}, "requirement": "Says 42", "weight": 3.0, "name": "c"}]}'
            ),
        ),
        (Rubric.from_yaml(GROUPS), Rubric.from_yaml("".join(f"{line}\n" for line in reversed(GROUPS.split("\n"))))),
    ],
)
def test_notes_names_and_the_order_of_criteria_do_not_matter(before: Rubric, after: Rubric) -> None:
    assert comparability(grade(before), grade(after)) == NOTHING


def test_criteria_in_another_order_are_still_compared_one_by_one() -> None:
    changed = compare_runs(grade(Rubric([POLITE, RIGHT])), grade(Rubric([RIGHT, POLITE]), FixedJudge(answer="UNMET")))
    assert {name: change.requirement for name, change in changed.criteria.items()} == {
        "c1": "Is right", "c2": "Is polite",
    }  # fmt: skip
    assert [change.difference.value for change in changed.criteria.values()] == [-1, -1]


def test_ledgers_retries_and_failure_policies_do_not_matter(tmp_path: Path) -> None:
    limits = CallLimits(max_retries=0, max_concurrency=1)
    with_ledger = list(
        grade_many(
            [{"id": "0", "response": "It is 0.", "query": "Q0"}], one(),
            PerCriterionGrader(FixedJudge(), limits=limits), ledger=tmp_path / "run.sqlite",
        )
    )  # fmt: skip
    assert comparability(grade(one()), with_ledger) == NOTHING
    assert comparability(grade(one()), grade(one(), limits=limits, on_failure="abstain")) == NOTHING
    (rescored,) = rescore(tmp_path / "run.sqlite", one())
    (tmp_path / "rescored.jsonl").write_text(run_line(rescored))
    assert comparability(with_ledger, tmp_path / "rescored.jsonl") == NOTHING


def test_what_only_decides_who_passes_is_a_warning_without_the_share_of_passed_rows() -> None:
    runs = grade(one()), grade(Rubric(one(required=True).criteria, pass_mark=0.5))
    result = comparability(*runs)
    assert (result.refused, result.passing) == ((), False)
    assert [warning.split(" in before")[0] for warning in result.warnings] == [
        "the criterion `c` of the row '0' has the required false", "the rubric has the pass_mark 0.8",
    ]  # fmt: skip
    assert compare_runs(*runs).passed is None


def rows(**fields: Any) -> list[dict[str, Any]]:
    first = {"id": "0", "response": "It is 0.", "query": "Q0", "reference": "R", "context": ["C"]}
    return [{**first, "id": str(number), **(fields if number == 0 else {})} for number in range(20)]


def test_other_queries_under_the_same_ids_are_refused() -> None:
    result = comparability(grade(one()), grade(one(), rows=rows()))
    assert result.refused[0].startswith(
        "9 of 10 rows have another `query` under the same id, such as '1': Q1 in before"
    )


def test_row_numbers_of_earlier_versions_are_not_compared_with_the_same_task_ids() -> None:
    text = "It is 1."
    texts = [{"id": str(number + 1), "metadata": {"task_id": number}, "response": text} for number in range(10)]
    now = [{"task_id": number, "response": text} for number in range(10)]
    for runs in ((texts, now), (now, texts)):
        before, after = (grade(one(), rows=rows) for rows in runs)
        assert comparability(before, after).refused[0].startswith("9 of 9 rows have another `task_id` under the same")
    # Next to another id, it may be any number.
    others = [{**row, "metadata": {"task_id": f"celery {row['id']}"}} for row in texts]
    assert not comparability(grade(one(), rows=texts), grade(one(), rows=others)).refused
    assert not comparability(grade(one(), rows=now), grade(one(), rows=now)).refused


@pytest.mark.parametrize("fields", [{"query": "Q 0"}, {"reference": "S"}, {"context": ["D"]}])
def test_few_other_inputs_are_a_warning(fields: dict[str, Any]) -> None:
    result = comparability(grade(one(), rows=rows()), grade(one(), rows=rows(**fields)))
    assert not result.refused
    assert result.warnings[0].startswith(f"1 of 20 rows has another `{next(iter(fields))}` under the same id")


@pytest.mark.parametrize("fields", [{"query": " Q0\r\n"}, {"query": None}, {"response": "It is 1."}])
def test_inputs_that_are_lacking_or_differ_in_white_space_are_the_same(fields: dict[str, Any]) -> None:
    assert comparability(grade(one(), rows=rows()), grade(one(), rows=rows(**fields))) == NOTHING


@pytest.mark.parametrize(("judge", "words"), [("m", None), ("n", "another judge: m in")])
def test_imported_judge_is_the_same_in_another_file(tmp_path: Path, judge: str, words: str | None) -> None:
    runs: list[ImportedRun] = []
    for name, of_run in (("monday.csv", "m"), ("tuesday.csv", judge)):
        (tmp_path / name).write_text(f"id,criterion,verdict,judge\na,c,MET,{of_run}\nb,c,UNMET,{of_run}\n")
        runs.append(read_judgments(tmp_path / name, one()))
    warnings = comparability(*runs).warnings
    assert [text.startswith(words or "") for text in warnings if "another judge" in text] == ([True] if words else [])


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        (FixedJudge("other-2025-01-01"), "another judge: FixedJudge, with other model"),
        (FixedJudge(temperature=1), 'another judge: FixedJudge, with other settings ({} and {"temperature": 1})'),
    ],
)
def test_another_judge_or_setting_is_a_warning(judge: FixedJudge, words: str) -> None:
    runs = grade(one()), grade(one(), judge)
    assert comparability(*runs).warnings[0].startswith(words)
    assert words in compare_runs(*runs).warnings[0]
    assert words in str(gate(runs[1], 0.5, baseline=runs[0]))


@pytest.mark.parametrize(
    ("model", "floats"),
    [("gpt-5-mini", True), ("gpt-4o-2024-08-06", False), ("gpt-4-0613", False), ("mistral-large-latest", True)],
)
def test_name_of_a_model_without_a_date_is_a_warning(model: str, floats: bool) -> None:
    run = grade(one(), FixedJudge(model))
    warnings = comparability(run, run).warnings
    assert [warning.startswith(f"the judge openai/{model} is a name without a date") for warning in warnings] == (
        [True] * floats
    )


def test_model_that_only_explains_answers_is_no_other_judge() -> None:
    explained = [grade(one(), Explained(FixedJudge(), FixedJudge(model))) for model in ("a-2025-01-01", "gpt-5-mini")]
    assert comparability(grade(one()), explained[0]) == NOTHING
    assert comparability(*explained) == NOTHING
    other = grade(one(), Explained(FixedJudge("other-2025-01-01"), FixedJudge()))
    assert comparability(grade(one()), other).warnings[0].startswith("another judge")


def test_settings_of_a_panel_count_only_if_there_is_one() -> None:
    voting = Voting(binary="any")
    assert comparability(grade(one()), grade(one(), voting=voting)) == NOTHING
    judges = [FixedJudge(), FixedJudge("b-2025-01-01")]
    panels = [
        list(grade_many(rows(), one(), PerCriterionGrader(judges=judges, voting=how)))
        for how in (Voting(), Voting(binary="any"))
    ]
    assert comparability(*panels).warnings[0].startswith("the grader's `voting` is ")


def test_run_of_an_earlier_version_is_compared_with_a_warning(tmp_path: Path) -> None:
    def old(run: Sequence[Graded], name: str) -> Path:
        lines = [json.loads(run_line(graded)) for graded in run]
        for line in lines:
            del line["scoring"], line["judge"]
            for entry in line["report"]:
                entry.pop("options", None)
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    new = grade(one(options=answers(0, 0.5, 1)))
    for runs in ((old(new, "a.jsonl"), new), (old(new, "a.jsonl"), old(new, "b.jsonl"))):
        result = comparability(*runs)
        assert (result.refused, len(result.warnings)) == ((), 1)
        assert "cannot be checked" in result.warnings[0]


def test_run_file_written_in_python_names_the_judge(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(map(run_line, grade(one()))))
    assert read_run(path).judge == RunFile.of("run", grade(one())).judge == "FixedJudge"
    assert comparability(path, grade(one())) == NOTHING


def test_page_shows_how_the_runs_differ() -> None:
    runs = [RunFile.of(name, grade(one(weight=weight))) for name, weight in (("old", 1), ("new", 2))]
    page = report_page(runs)
    assert "<b>NOT COMPARABLE, and unchanged.</b>" in page
    assert (
        "<li>not comparable: the criterion `c` of the row &#39;0&#39; has the weight 1 in old and 2 in new</li>" in page
    )


def test_rows_with_their_own_rubrics_match_if_each_row_has_the_same_in_both_runs() -> None:
    first, second = own_rubrics("first", 3, "MET"), own_rubrics("second", 5, "UNMET")
    assert not comparability(first).refused
    assert not comparability(first, second).refused
    assert not comparability(FIRST, SECOND).refused


def test_row_with_another_requirement_in_the_second_run_does_not_match() -> None:
    (reason,) = comparability(
        own_rubrics("first", 3, "MET"), own_rubrics("second", 3, "MET", words="Clearly: ")
    ).refused
    assert reason == (
        "the row 's0' has the criterion `c1` 'Clearly: Says 0.1' (weight 3) in only one of first and second"
    )


def test_row_that_is_twice_in_a_run_with_other_criteria_does_not_match() -> None:
    run = own_rubrics("own", 2, "MET")
    (reason,) = comparability(run._replace(rows=[r._replace(id="a") for r in run.rows])).refused
    assert "in only one of its rows in own" in reason


def test_runs_without_a_common_row_match_if_they_have_a_rubric_in_common() -> None:
    others = SECOND._replace(rows=[row._replace(id=f"other {row.id}") for row in SECOND.rows])
    assert not comparability(FIRST, others).refused
    assert not comparability(FIRST, run_of("none")).refused
    own = own_rubrics("own", 2, "MET")
    moved = own._replace(rows=[row._replace(id=f"other {row.id}") for row in own.rows])
    assert comparability(FIRST, moved).refused == ("first and own have no row and no rubric in common",)


def named(models: Sequence[str]) -> list[Graded]:
    """Make a run whose replies name these models, one for each row."""

    def answer(question: Question) -> Judgment:
        number = int(question.submission.response.split()[-1])
        return Judgment(verdict="MET", value=1.0, model=models[number % len(models)])

    rows = [f"text {number}" for number in range(6)]
    return list(grade_many(rows, Rubric([Criterion(requirement="Is kind")]), PerCriterionGrader(ScriptedJudge(answer))))


def test_run_whose_replies_name_two_models_says_so_and_another_model_is_told() -> None:
    one, two = named(["m-2025-01-01"]), named(["m-2025-01-01", "m-2025-06-01"])
    warnings = comparability(one, two).warnings
    assert "after: the replies name 2 models: m-2025-01-01, m-2025-06-01: not one model judged the run" in warnings
    other = comparability(one, named(["m-2025-06-01"])).warnings
    assert "the replies name the model m-2025-01-01 in before and m-2025-06-01 in after" in other
    assert not any("replies name" in warning for warning in comparability(one, named(["m-2025-01-01"])).warnings)


def test_summary_of_a_run_has_the_models_that_its_replies_name() -> None:
    run = grade_many(
        ["text 0", "text 1"], Rubric([Criterion(requirement="Is kind")]),
        PerCriterionGrader(ScriptedJudge(lambda _question: Judgment(verdict="MET", value=1.0, model="m-1"))),
    )  # fmt: skip
    assert (run.summary.models, len(list(run)), run.summary.models) == ({}, 2, {"": ("m-1",)})


def explorer_run(explorer: FakeExplorer | None, judge: FixedJudge | None = None) -> list[Graded]:
    limits: dict[str, Any] = {} if explorer is None else {"text_limits": TextLimits(explorer=explorer, explore_above=7)}
    return grade(one(), judge, **limits)


def test_run_with_another_explorer_compares_as_a_run_with_another_judge() -> None:
    assert comparability(explorer_run(FakeExplorer()), explorer_run(FakeExplorer())) == NOTHING
    other = comparability(explorer_run(FakeExplorer()), explorer_run(FakeExplorer(fingerprint="other")))
    words = "another explorer of long trajectories: explorer in before and other in after"
    assert other.other_judge == f"{words}: the change may be the judges' and not the program's"
    assert other.warnings == (other.other_judge,)
    lacking = comparability(explorer_run(None), explorer_run(FakeExplorer()))
    assert lacking.warnings == (f"{words.replace('explorer in', 'none in').replace('other in', 'explorer in')}"
                                ": the change may be the judges' and not the program's",)  # fmt: skip
    both = comparability(explorer_run(None), explorer_run(FakeExplorer(), FixedJudge("b-2025-01-01")))
    assert both.other_judge.startswith("another judge: ")
    assert "; another explorer of long trajectories: none in before" in both.other_judge


def test_explorer_is_named_by_its_model_and_by_its_limits() -> None:
    def run(model: str, **limits: int) -> list[Graded]:
        return grade(one(), text_limits=TextLimits(explorer=Explorer(model, limits=ExplorerLimits(**limits))))

    dated = "openai/gpt-5-mini-2025-08-07"
    few = comparability(run(dated), run(dated, max_requests=3))
    assert f"trajectories: {dated}, with other settings, prompts or limits" in few.other_judge
    floating = comparability(run("openai/gpt-5-mini"), run("openai/gpt-5-mini"))
    assert floating.other_judge == ""
    assert any("openai/gpt-5-mini is a name without a date" in text for text in floating.warnings)
