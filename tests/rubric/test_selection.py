"""`Rubric.select`: some criteria of a rubric, with the scores and the judgments that they have in the full rubric."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import PerCriterionGrader, Rubric, RubricError, grade_many
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.rubric import Criterion, Node
from rubric_integrations.rubric.rubric import only_penalties
from rubric_integrations.runs import rescore
from rubric_integrations.scoring.formula import score_values
from rubric_integrations.trust import comparability
from tests.fakes import FakeIndependentJudge, FakeJudge, FakeOverallJudge
from tests.rubric.strategies import rubrics

RUBRIC = Rubric.from_yaml("""
name: margin
pass_mark: 0.5
criteria:
- {name: margin, requirement: States the margin, weight: 10, required: true, tags: [facts]}
- {requirement: Names the method, weight: 5, tags: [facts, method]}
- {name: slip, requirement: Uses gross revenue, weight: -4}
- {name: refund, requirement: Names the form, weight: 2, applies_when: The user asks for a refund}
""")
GROUPS = Rubric.from_yaml("""
- requirement: Facts
  weight: 6
  penalty_cap: 3
  criteria:
  - {name: a, requirement: a, weight: 1}
  - {name: b, requirement: b, weight: 3}
  - {name: slip, requirement: slip, weight: -2}
- {name: c, requirement: c, weight: 4}
- {ref: a, weight: 2}
""")


def test_selected_criteria_keep_their_keys_and_the_others_are_left_out() -> None:
    selected = RUBRIC.select(["slip"], tags=["method"])
    assert selected.keys == ("c2", "slip")
    assert selected.left_out == ("the criterion `margin` is not selected", "the criterion `refund` is not selected")
    assert (selected.name, selected.pass_mark) == ("margin", 0.5)
    assert [criterion.weight for criterion in selected.criteria] == [5, -4]
    assert selected.select("c2").left_out[-1] == "the criterion `slip` is not selected"
    assert RUBRIC.select(RUBRIC.keys) is RUBRIC


@pytest.mark.parametrize(
    ("names", "tags", "words"),
    [
        (["margn"], [], r"no criterion 'margn': did you mean `margin`\?"),
        (["zzz"], [], "no criterion 'zzz': it has `margin`, `c2`, `slip`, `refund`$"),
        ([], ["fact"], r"no tag 'fact': did you mean `facts`\?"),
        (["margin"], ["zzz"], "no tag 'zzz'"),
        ([], [], "the selection is empty"),
    ],
)
def test_name_that_the_rubric_lacks_is_refused_with_the_nearest(names: list[str], tags: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RUBRIC.select(names, tags)


def test_selection_without_a_weight_is_refused() -> None:
    rubric = Rubric([Criterion(requirement="a", name="a", weight=0), Criterion(requirement="b")])
    with pytest.raises(RubricError, match="the selection, in which 1 criterion is left: `criteria`: has only zero"):
        rubric.select(["a"])


@pytest.mark.parametrize(
    ("names", "weights"),
    [
        (["a"], [8]),  # in its group alone with its full weight, and once more with 2
        (["b", "c"], [6, 4]),
        (["slip"], [-3]),
        (["a", "slip"], [8, -12]),
    ],
)
def test_selected_criteria_share_the_weight_of_their_group(names: list[str], weights: list[float]) -> None:
    selected = GROUPS.select(names)
    assert [criterion.weight for criterion in selected.criteria] == pytest.approx(weights)
    again = Rubric.from_yaml(selected.to_yaml())
    assert (again.tree, again.criteria, again.left_out) == (selected.tree, selected.criteria, selected.left_out)


def test_penalties_alone_keep_their_effect_and_their_cap() -> None:
    with_c = GROUPS.select(["slip", "c"])
    # In the full rubric, the penalty takes 2 of the 4 points of a group with the weight 6, so 3 points.
    assert with_c.compute_score(["MET", "MET"]) == pytest.approx((4 - 3) / 4)
    group = next(iter(with_c.tree or ()))
    assert (group.weight, group.penalty_cap) == (-4.5, 4.5)


def test_cases_of_a_selection_expect_its_verdicts_alone() -> None:
    verdicts = {"margin": "MET", "c2": "UNMET"}
    both = {"name": "both", "response": "8 %", "evidence": {"margin": "8 %", "c2": "8"}}
    cases = [
        {**both, "expect": {"verdicts": verdicts, "min_score": 0.5}},
        {"name": "other", "response": "8 %", "expect": {"verdicts": {"slip": "UNMET"}}},
    ]
    (case,) = RUBRIC.with_cases(cases).select(["c2"]).cases
    assert (case.name, case.expect.verdicts, case.expect.min_score) == ("both", {"c2": "UNMET"}, None)
    assert case.evidence == {"c2": "8"}


weights = st.sampled_from([0, 1, 2, 5])
leaves: st.SearchStrategy[Any] = st.fixed_dictionaries({"requirement": st.just("r"), "weight": weights})
slips: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"requirement": st.just("r"), "weight": st.sampled_from([-1, -3])}
)


def penalty_group(penalties: list[Any], cap: int) -> dict[str, Any]:
    return {"requirement": "p", "weight": -cap, "penalty_cap": cap, "criteria": penalties}


capped = st.builds(penalty_group, st.lists(slips, min_size=1, max_size=2), st.sampled_from([1, 2]))


def group(weight: int, kept: list[Any], penalties: list[Any], cap: int | None) -> dict[str, Any]:
    limit = {"penalty_cap": cap} if penalties and cap else {}
    return {"requirement": "g", "weight": weight, "criteria": [*kept, *penalties], **limit}


def has_weight(entries: list[Any]) -> bool:
    return any(entry["weight"] for entry in entries)


def groups_of(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    positive = st.lists(children, min_size=1, max_size=3).filter(has_weight)
    return st.builds(group, weights, positive, st.lists(slips | capped, max_size=2), st.sampled_from([None, 1, 4]))


forests = st.lists(st.recursive(leaves, groups_of, max_leaves=12) | slips | capped, min_size=1, max_size=4)


def has_lone_penalties(nodes: tuple[Node, ...], kept: set[int]) -> bool:
    """Return whether a group with positive weights keeps penalties alone, of which its value would not depend."""
    for node in nodes:
        rest = [child.weight for child in node.children if kept & set(child.leaves)]
        if has_lone_penalties(node.children, kept):
            return True
        if rest and not node.has_only_penalties and not any(weight > 0 for weight in rest):
            return only_penalties(rest)
    return False


@settings(deadline=None)
@given(forest=forests, data=st.data())
def test_score_of_a_selection_is_the_score_if_the_others_do_not_apply(
    forest: list[dict[str, Any]], data: st.DataObject
) -> None:
    try:
        rubric = Rubric.from_dict(forest)
    except RubricError:
        return  # all effective weights are 0
    kept = sorted(data.draw(st.sets(st.integers(0, len(rubric) - 1), min_size=1)))
    values = [data.draw(st.sampled_from([0.0, 0.5, 1.0])) for _ in rubric.criteria]
    if not any(rubric.criteria[index].weight for index in kept):
        with pytest.raises(RubricError, match="has only zero weights"):
            rubric.select([rubric.keys[index] for index in kept])
        return
    selected = rubric.select([rubric.keys[index] for index in kept])
    assert [c.requirement for c in selected.criteria] == [rubric.criteria[index].requirement for index in kept]
    again = Rubric.from_dict(selected.to_dict())
    assert [c.weight for c in again.criteria] == pytest.approx([c.weight for c in selected.criteria])
    if rubric.tree is not None and has_lone_penalties(rubric.tree, set(kept)):
        return
    expected = score_values(rubric, values, "skip", set(range(len(rubric))) - set(kept)).normalized
    if expected is None and all(criterion.weight <= 0 for criterion in selected.criteria):
        return  # the full rubric has no score without a positive weight, and a rubric of penalties has one
    assert score_values(selected, [values[index] for index in kept], "skip").normalized == pytest.approx(expected)


@given(rubric=rubrics, data=st.data())
def test_selection_of_any_rubric_can_be_written_and_pickled(rubric: Rubric, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(rubric.keys))
    selected = rubric.select([key])
    assert (selected.keys, len(selected.left_out)) == ((key,), len(rubric) - 1)
    assert Rubric.from_json(selected.to_json()) == selected
    assert pickle.loads(pickle.dumps(selected)) == selected


@pytest.mark.parametrize("kind", [FakeJudge, FakeIndependentJudge])
def test_selection_asks_only_its_own_questions_and_reuses_stored_judgments(
    kind: type[FakeJudge], tmp_path: Path
) -> None:
    met = ("States the margin", "Names the method")
    judge = kind(lambda question: "MET" if question.criterion.requirement in met else "UNMET", fingerprint="f")
    grader, ledger = PerCriterionGrader(judge=judge), tmp_path / "run.sqlite"
    selected = RUBRIC.select(["margin"])
    first = next(iter(grade_many(["8 %"], selected, grader, ledger=ledger)))
    assert [question.criterion.name for question in judge.questions] == ["margin"]
    assert first.report is not None
    assert (first.report.score, first.report.passed, first.report.partial) == (1.0, False, True)
    whole = next(iter(grade_many(["8 %"], RUBRIC, grader, ledger=ledger)))
    assert [question.criterion.requirement for question in judge.questions].count("States the margin") == 1
    assert whole.report is not None
    assert whole.report.passed
    count = len(judge.questions)
    again = next(iter(grade_many(["8 %"], RUBRIC.select(["refund"], ["facts"]), grader, ledger=ledger)))
    assert (len(judge.questions), again.score) == (count, 1.0)


def test_judge_of_a_criterion_that_is_not_selected_need_not_be_on_the_panel() -> None:
    rubric = Rubric([Criterion(requirement="a", name="a", judge="other"), Criterion(requirement="b", name="b")])
    rubrics = RowRubrics(rubric, select=lambda each: each.select(["b"]))
    assert [graded.score for graded in grade_many(["text"], rubrics, PerCriterionGrader(judge=FakeJudge()))] == [1.0]
    with pytest.raises(ValueError, match="has the `judge` 'other'"):
        grade_many(["text"], RowRubrics(rubric), PerCriterionGrader(judge=FakeJudge()))


def test_ledger_of_a_selection_lacks_the_judgments_of_the_full_rubric(tmp_path: Path) -> None:
    ledger = tmp_path / "run.sqlite"
    grader = PerCriterionGrader(judge=FakeJudge("MET", fingerprint="f"))
    list(grade_many(["8 %"], RUBRIC.select(["margin"]), grader, ledger=ledger))
    whole, selected = (next(rescore(ledger, rubric)) for rubric in (RUBRIC, RUBRIC.select(["margin"])))
    assert (whole.missing, whole.score) == (3, None)
    assert (selected.missing, selected.score, selected.to_dict()["passed"]) == (0, 1.0, False)


@pytest.mark.parametrize(
    "grader",
    [
        PerCriterionGrader(judge=FakeJudge("MET", fingerprint="f")),
        PerCriterionOneShotGrader(judge=FakeIndependentJudge("MET")),
        RubricAsJudgeGrader(judge=FakeOverallJudge(80)),
    ],
)
def test_run_of_a_selection_is_not_compared_with_a_run_of_the_full_rubric(grader: Any) -> None:
    whole, selected, other = (
        list(grade_many(["8 %"], rubric, grader)) for rubric in (RUBRIC, RUBRIC.select(["margin"]), RUBRIC.select("c2"))
    )
    assert not any(graded.report.passed for graded in (*selected, *other) if graded.report)
    assert comparability(whole, selected).refused
    assert comparability(selected, other).refused
