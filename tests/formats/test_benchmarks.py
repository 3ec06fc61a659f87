"""Rubrics of benchmarks: Prometheus, BiGGen-Bench, tau2, InfoBench, openai/evals, and PaperBench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import load_eval_cases, reading_losses, write_document
from rubric_integrations.formats.registry import detect
from rubric_integrations.rubric import node_values
from tests.conftest import SHARED
from tests.formats.samples import FLASK, INFOBENCH, MODELGRADED, ROW, SCORES, TASK, TREE, WILDBENCH

CORPUS = SHARED / "data/rubric_corpus"
needs_corpus = pytest.mark.skipif(not CORPUS.exists(), reason="../shared/data/rubric_corpus does not exist")


@pytest.mark.parametrize("document", [SCORES, ROW, [ROW], {"planning_0": ROW}])
def test_five_descriptions_become_the_levels_of_a_scale(document: Any) -> None:
    [criterion] = Rubric.from_dict(document).criteria
    assert criterion.requirement == "Does it show empathy?"
    assert criterion.scale is not None
    assert (criterion.scale.min, criterion.scale.max, criterion.scale.integer) == (1.0, 5.0, True)
    assert criterion.scale.levels == {score: f"It is of level {score}." for score in range(1, 6)}
    assert write_document(Rubric.from_dict(document), "prometheus") == (SCORES, [])
    left_out = [] if document is SCORES else sorted(ROW.keys() - {"score_rubric"})
    assert reading_losses(document) == [f"`{key}` beside the rubric is left out" for key in left_out]


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({**SCORES, "score3_description": ""}, "`score3_description`: must be the description of that score"),
        ({**SCORES, "score6_description": "x"}, "`score6_description`: is not a known key"),
        ({key: SCORES[key] for key in list(SCORES)[:5]}, "`score5_description`: must be"),
        ([ROW, ROW], "rows: are 2, each with its rubric: read the file with `load_eval_cases`"),
        ({**SCORES, "criteria": " "}, "`requirement`"),
    ],
)
def test_fault_of_five_descriptions_is_named(document: Any, line: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict(document)
    assert line in str(refusal.value)


def test_rows_by_their_ids_are_cases(tmp_path: Path) -> None:
    path = tmp_path / "sample_responses.json"
    path.write_text(json.dumps({"planning_0": ROW, "safety_1": {**ROW, "input": "Hi"}}))
    cases = list(load_eval_cases(path))
    assert [(case.id, case.input, case.expected_outcome) for case in cases] == [
        ("planning_0", "Plan a trip.", "Day 1"), ("safety_1", "Hi", "Day 1"),
    ]  # fmt: skip
    assert cases[0].rubric == Rubric.from_dict(SCORES)


@needs_corpus
def test_every_published_rubric_of_biggen_bench_and_prometheus_is_read() -> None:
    count = 0
    for line in (CORPUS / "rubrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["source"] not in ("biggen_bench", "prometheus_bench"):
            continue
        [published] = row["criteria"]
        texts = [option["text"] for option in published["options"]]
        document = {
            "criteria": published["requirement"],
            **{f"score{i}_description": t for i, t in enumerate(texts, 1)},
        }
        [criterion] = Rubric.from_dict(document).criteria
        assert criterion.scale is not None
        assert (criterion.requirement, list(criterion.scale.levels.values())) == (published["requirement"], texts)
        count += 1
    assert count == 765 + 117


def task_of(*basis: str, **criteria: Any) -> dict[str, Any]:
    return {**TASK, "evaluation_criteria": {**TASK["evaluation_criteria"], "reward_basis": list(basis), **criteria}}


WITHOUT_BASIS = task_of()
del WITHOUT_BASIS["evaluation_criteria"]["reward_basis"]


@pytest.mark.parametrize(
    ("task", "is_required", "parts"),
    [
        (task_of("NL_ASSERTION"), True, []),
        (task_of("DB", "NL_ASSERTION"), True, ["DB"]),
        (task_of("DB", "COMMUNICATE"), False, ["DB", "COMMUNICATE"]),
        (task_of("NL_ASSERTION", "COMMUNICATE", communicate_info=[]), True, []),
        (WITHOUT_BASIS, False, ["DB", "COMMUNICATE"]),
        (task_of("NL_ASSERTION", "ACTION", "ENV_ASSERTION"), True, ["ACTION"]),
    ],
)
def test_task_of_tau2_is_partial_if_more_than_words_decides_it(
    task: dict[str, Any], is_required: bool, parts: list[str]
) -> None:
    rubric = Rubric.from_dict([task])
    assert [(c.requirement, c.required) for c in rubric.criteria] == [
        ("Agent refuses.", is_required), ("Agent is kind.", is_required),
    ]  # fmt: skip
    assert rubric.left_out == tuple(f"`evaluation_criteria.reward_basis`: {part}" for part in parts)
    assert any("tau2 reports, and does not count" in loss for loss in reading_losses(task)) is not is_required


def test_file_of_tasks_is_read_as_cases(tmp_path: Path) -> None:
    tasks = [task_of("NL_ASSERTION"), {**task_of("DB", nl_assertions=None), "id": "4"}]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(tasks))
    with pytest.warns(UserWarning, match="case 4 has nothing to judge, and is left out"):
        [case] = load_eval_cases(path)
    assert (case.id, case.input, len(case.rubric)) == ("3", "You want to fly.", 2)
    with pytest.raises(RubricError, match="case 4: has nothing to judge"):
        list(load_eval_cases(path, strict=True))
    with pytest.raises(RubricError, match="are 2, each with its rubric: read the file with `load_eval_cases`"):
        Rubric.from_file(path)
    path.write_text(json.dumps(tasks[1:]))
    with pytest.raises(RubricError, match="has nothing to judge"):
        list(load_eval_cases(path))
    path.write_text(json.dumps([task_of("DB")]))
    with pytest.raises(RubricError, match="reward_basis`: DB"):
        list(load_eval_cases(path, strict=True))


def test_questions_of_infobench_become_criteria_of_equal_weight(tmp_path: Path) -> None:
    rubric = Rubric.from_dict(INFOBENCH)
    assert [(c.requirement, c.weight) for c in rubric.criteria] == [("Is it a poem?", 1.0), ("Is it about rain?", 1.0)]
    assert rubric.left_out == ()
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([INFOBENCH, {**INFOBENCH, "id": "b"}]))
    assert [(case.id, case.input) for case in load_eval_cases(path, strict=True)] == [
        ("domain_oriented_task_0", "Write a poem.\n\nAbout rain."), ("b", "Write a poem.\n\nAbout rain."),
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [[INFOBENCH], [INFOBENCH, {**INFOBENCH, "id": "b"}], [WILDBENCH]])
def test_rows_with_rubrics_are_read_from_json_lines(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """InfoBench is published in this form."""
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    cases = [(case.id, case.input, case.rubric.criteria) for case in load_eval_cases(path)]
    assert cases == [(case.id, case.input, case.rubric.criteria) for case in load_eval_cases(tmp_path / "rows.json")]
    path.write_text(json.dumps(rows[0]) + "\n{broken")
    with pytest.raises(RubricError, match=r"rows\.jsonl, line 2: is not JSON"):
        list(load_eval_cases(path))


def eval_of(**fields: Any) -> dict[str, Any]:
    return {"sql": {key: value for key, value in (MODELGRADED["sql"] | fields).items() if value is not None}}


def test_rows_of_wildbench_are_cases_of_their_checklists(tmp_path: Path) -> None:
    [loss] = [loss for loss in reading_losses(WILDBENCH) if "WildBench" in loss]
    assert loss == "`checklist` of WildBench are hints for one score from 1 to 10: here each is a criterion"
    path = tmp_path / "wildbench.json"
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    path.write_text(json.dumps([WILDBENCH, {**WILDBENCH, "session_id": "s2", "conversation_input": turns}]))
    first, second = load_eval_cases(path)
    assert (first.id, first.input, first.rubric.keys) == ("s1", "Write a poem.", ("c1", "c2"))
    assert (second.id, second.input) == ("s2", "user: Hi\nassistant: Hello")


def test_skills_of_flask_become_scales() -> None:
    factuality, readability = Rubric.from_dict(FLASK).criteria
    assert factuality.scale is not None
    assert (factuality.name, factuality.requirement, factuality.weight) == ("Factuality", "Is it true?", 1)
    assert (factuality.scale.min, factuality.scale.max, factuality.scale.integer) == (1, 5, True)
    assert list(factuality.scale.levels.items()) == [(score, f"Level {score}.") for score in range(1, 6)]
    assert readability.name == "Readability"
    with pytest.raises(RubricError, match=r"\[1\] `Scoring`: must have a text for each score from 1 to 5"):
        Rubric.from_dict([FLASK[0], {**FLASK[1], "Scoring": {"1": "Bad"}}])
    with pytest.raises(RubricError, match=r"\[0\] `Criteria`"):
        Rubric.from_dict([{**FLASK[0], "Criteria": 7}])
    with pytest.raises(RubricError, match=r"\[0\] `weight`: is not a known key"):
        Rubric.from_dict([{**FLASK[0], "weight": 7}])


def test_model_graded_eval_becomes_a_criterion_with_its_choices() -> None:
    [criterion] = Rubric.from_dict(MODELGRADED).criteria
    assert (criterion.name, criterion.needs) == ("sql", ("query", "reference"))
    text = "[Question]: [the query]\n[Expert]: [the reference]\n[Submission]: [the response]\nIs {it} right?"
    assert criterion.requirement == text
    assert [(o.label, o.value) for o in criterion.options or ()] == [("Correct", 1.0), ("Incorrect", 0.0)]
    assert reading_losses(MODELGRADED) == [
        "`sql`: in the prompt, `{input}` becomes '[the query]', `{ideal}` becomes '[the reference]', `{completion}` "
        "becomes '[the response]'"
    ]


@pytest.mark.parametrize(
    ("choices", "scores", "values", "scale_type"),
    [
        ("0123", "from_strings", [0, 1 / 3, 2 / 3, 1], "ordinal"),
        ("12345", "from_strings", [0, 0.25, 0.5, 0.75, 1], "ordinal"),
        (["Yes", "No", "Unsure"], {"Yes": 1, "No": 0, "Unsure": 0.5}, [1, 0, 0.5], "nominal"),
        ("AB", {"A": 0.8, "B": 0.2}, [0.8, 0.2], "ordinal"),
    ],
)
def test_scores_of_choices_become_values(choices: Any, scores: Any, values: list[float], scale_type: str) -> None:
    document = eval_of(choice_strings=choices, choice_scores=scores)
    [criterion] = Rubric.from_dict(document).criteria
    assert [o.value for o in criterion.options or ()] == pytest.approx(values)
    assert criterion.scale_type == scale_type
    assert any("become shares" in loss for loss in reading_losses(document)) == (scores == "from_strings")


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (eval_of(choice_scores=None), "`choice_scores`: is missing: add a score for each of"),
        (eval_of(choice_scores={"Correct": 1}), "`choice_scores`: must have one number for each"),
        (eval_of(choice_scores={"Correct": 1, "Incorrect": True}), "`choice_scores`: must have one number for each"),
        (eval_of(choice_scores="from_strings"), "`choice_scores`: must have one number for each"),
        (eval_of(choice_strings="from_n"), "`choice_strings`: is from_n, a comparison"),
        (eval_of(choice_strings=["a"]), "`choice_strings`: must be different texts"),
        (eval_of(choice_strings=[True, False]), "`choice_strings`: must be different texts"),
        (eval_of(input_outputs={"input1": "completion1", "input2": "completion2"}), "`input_outputs`: is"),
        (eval_of(prompt="{completion}: {criteria}"), "`prompt`: has the variables ['criteria']"),
        (eval_of(prompt="Was your last response funny?"), "`prompt`: has no {completion}"),
        (eval_of(output_template="{i}. {output}"), "`output_template`: is not read"),
        ({**eval_of(), "other": MODELGRADED["sql"]}, "evals: are ['other', 'sql'], each a rubric"),
    ],
)
def test_model_graded_eval_that_cannot_be_graded_alike_is_refused(document: Any, line: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict(document)
    assert line in str(refusal.value)
    with pytest.raises(RubricError, match="is only read"):
        write_document(Rubric.from_dict(MODELGRADED), "modelgraded")


def test_tree_of_tasks_becomes_groups_with_their_weights() -> None:
    rubric = Rubric.from_dict(TREE)
    assert [c.requirement for c in rubric.criteria] == ["It loads RoBERTa.", "It loads T5.", "The figures match."]
    assert [c.weight for c in rubric.criteria] == pytest.approx([0.25, 0.5, 0.25])
    assert [c.tags for c in rubric.criteria] == [("Code Development",), ("Code Execution",), ("Result Match",)]
    assert rubric.compute_score(["MET", "UNMET", "MET"]) == pytest.approx(0.5)
    assert reading_losses(TREE) == [
        "`finegrained_task_category` of 1 task is left out", "`id` of 5 tasks is left out",
    ]  # fmt: skip
    document, losses = write_document(rubric, "paperbench")
    assert losses == []
    assert Rubric.from_dict(document) == rubric
    free = {**TREE, "sub_tasks": [{**TREE["sub_tasks"][0], "weight": 0}, TREE["sub_tasks"][1]]}
    assert Rubric.from_dict(free).compute_score(["MET", "MET", "UNMET"]) == 0.0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"weight": -1}, "`weight`: must be a number of at least 0, got -1"),
        ({"weight": "1"}, "`weight`: must be a number of at least 0"),
        ({"requirements": None}, "`requirements`: must be a text"),
        ({"requirements": " "}, "`requirements`"),
        ({"sub_tasks": {"a": 1}}, "`sub_tasks`: must be a list of tasks"),
        ({"sub_tasks": ["x"]}, "sub_tasks[0].sub_tasks[0]: must be an object"),
        ({"sub_tasks": [{"requirements": "x", "weight": 0}]}, "have only zero weights"),
    ],
)
def test_fault_of_a_task_is_named_with_its_place(change: dict[str, Any], line: str) -> None:
    document = {**TREE, "sub_tasks": [{**TREE["sub_tasks"][0], **change}]}
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict(document)
    assert line in str(refusal.value)
    assert "sub_tasks[0]" in str(refusal.value)


def as_published(node: dict[str, Any]) -> dict[str, Any]:
    """Return a node of the corpus under the names of PaperBench's own files."""
    children = [as_published(child) for child in node.get("sub_tasks") or []]
    own = {"id": node["id"], "requirements": node["requirement"], "weight": node["weight"], "sub_tasks": children}
    return own if children else {**own, "task_category": node.get("category")}


@needs_corpus
def test_every_published_tree_is_read_and_gives_the_published_scores() -> None:
    trees = [json.loads(line) for line in (CORPUS / "paperbench_trees.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(trees) == 23
    for row in trees:
        document = as_published(row["tree"])
        assert detect(document) == "paperbench"
        assert Rubric.from_dict(document).positive_weight == pytest.approx(row["tree"]["weight"])
    graded = json.loads((SHARED / "data/paperbench/graded_trees.json").read_text(encoding="utf-8"))

    def nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
        return [node, *(inner for child in node.get("sub_tasks") or [] for inner in nodes(child))]

    inner_nodes = 0
    for tree in graded.values():
        rubric = Rubric.from_dict(as_published(tree))
        values = [node["score"] for node in nodes(tree) if not node.get("sub_tasks")]
        for published, node in zip(nodes(tree), node_values(rubric.tree or (), values), strict=True):
            assert node.value == pytest.approx(published["score"], abs=1e-6)
            inner_nodes += bool(published.get("sub_tasks"))
    assert inner_nodes == 838
