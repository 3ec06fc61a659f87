"""Files of four ecosystems: read faithfully, refused with a reason, converted without a silent loss."""

from __future__ import annotations

import copy
import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from rubric_integrations import Criterion, EvaluationReport, JudgeError, PerCriterionGrader, Rubric, RubricError, Scale
from rubric_integrations.checks.metrics import register_metric, run_metric
from rubric_integrations.dspy import to_examples
from rubric_integrations.formats import FORMATS, Format, detect, openrubricrl, read_document, write_document
from rubric_integrations.formats.agentv import load_eval_cases
from rubric_integrations.formats.lint import RULES, lint
from rubric_integrations.formats.openrubricrl import normalize_score
from rubric_integrations.formats.schema import json_schema
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.check import HybridMetric, Metric
from rubric_integrations.rubric.tree import node_values
from rubric_integrations.scoring.formula import blend_scores, reaches_mark
from rubric_integrations.submission.submission import Submission
from tests.conformance.test_recorded_cases import near
from tests.conftest import SHARED
from tests.openai_server import OpenAIServer, Reply
from tests.rubric.test_rubric import rubrics

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path for folder in ("agentv", "openrubricrl") for path in (ROOT / "examples" / folder).iterdir())
needs_data = pytest.mark.skipif(not (SHARED / "data").exists(), reason="../shared/data is not here")


# -- the corpus


def as_native(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the corpus, whose own shape is nobody's, in the native words."""
    criteria: list[dict[str, Any]] = []
    for given_criterion in row["criteria"]:
        criterion = {key: given_criterion[key] for key in ("requirement", "weight")}
        if given_criterion["type"] == "numeric":
            criterion["scale"] = {"min": given_criterion["min"], "max": given_criterion["max"]}
        if "options" in given_criterion:
            values = [option["value"] for option in given_criterion["options"] if option["value"] is not None]
            low, high = (min(values), max(values)) if max(values) > 1 else (0, 1)
            criterion["scale_type"] = given_criterion["type"]
            criterion["options"] = [
                {"label": o["label"], "value": (o["value"] - low) / (high - low), "description": o.get("text")}
                if o["value"] is not None
                else {"label": o["label"], "na": True}
                for o in given_criterion["options"]
            ]
        criteria.append(criterion)
    return {"name": row["id"], "criteria": criteria}


def renamed(node: dict[str, Any]) -> dict[str, Any]:
    """A node of a PaperBench tree in the native words."""
    own = {"requirement": node["requirement"], "weight": node["weight"]}
    return {**own, "criteria": [renamed(child) for child in node["sub_tasks"]]} if node.get("sub_tasks") else own


@needs_data
def test_the_whole_corpus_loads_or_is_refused_with_a_reason(record_property: Any) -> None:
    refused: Counter[str] = Counter()
    loaded = 0
    for line in (SHARED / "data/rubric_corpus/rubrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        try:
            rubric = read_document(as_native(row), row["id"])
        except RubricError as error:
            refused[f"{row['id']}: {error.faults[0].message}"] += 1
            continue
        loaded += 1
        assert len(rubric) == len(row["criteria"])
        assert Rubric.from_json(rubric.to_json()) == rubric
    for line in (SHARED / "data/rubric_corpus/paperbench_trees.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        rubric = read_document([renamed(row["tree"])], row["id"])
        assert rubric.tree is not None
        assert math.isclose(rubric.positive_weight, row["tree"]["weight"])
        loaded += 1
    assert loaded + refused.total() == 1541 + 23
    assert [reason for reason in refused if "no criteria" not in reason] == []
    record_property("shown", f"rubric corpus: {loaded} load, {refused.total()} refused: {'; '.join(refused)}")


@needs_data
def test_human_leaf_labels_give_every_published_node_of_paperbench(record_property: Any) -> None:
    trees = json.loads((SHARED / "data/paperbench/graded_trees.json").read_text(encoding="utf-8"))
    expected = json.loads((SHARED / "data/paperbench/expected.json").read_text(encoding="utf-8"))
    inner = roots = 0

    def labels(node: dict[str, Any]) -> list[float]:
        below = node.get("sub_tasks")
        return [label for child in below for label in labels(child)] if below else [node["score"]]

    def nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
        return [node, *(below for child in node.get("sub_tasks") or [] for below in nodes(child))]

    for name, tree in trees.items():
        rubric = read_document([renamed(tree)], name)
        values = labels(tree)
        found = list(node_values(rubric.tree or (), values))
        for theirs, ours in zip(nodes(tree), found, strict=True):
            assert ours.value == pytest.approx(theirs["score"], abs=1e-6)
            inner += bool(theirs.get("sub_tasks"))
        score = rubric.compute_score(["MET" if value else "UNMET" for value in values])
        assert score == pytest.approx(expected[name]["root"], abs=1e-6)
        roots += 1
    assert (inner, roots) == (838, 5)
    record_property("shown", f"PaperBench: {inner} inner nodes and {roots} roots reproduced from the leaf labels")


# -- trees

TREE = """
- requirement: All of it
  weight: 6
  name: all
  criteria:
  - {requirement: a, weight: 1}
  - requirement: b
    weight: 3
    criteria: [{requirement: b1, weight: 1, name: first}, {requirement: b2, weight: 1}]
- {requirement: slip, weight: -2}
"""


def test_a_nodes_weight_is_shared_among_its_children() -> None:
    rubric = Rubric.from_yaml(TREE)
    assert [(c.requirement, c.weight) for c in rubric.criteria] == [
        ("a", 1.5),
        ("b1", 2.25),
        ("b2", 2.25),
        ("slip", -2),
    ]
    assert rubric.compute_score(["MET", "MET", "UNMET", "UNMET"]) == pytest.approx((1 * 1 + 3 * 0.5) / 4)
    values = [(v.depth, v.node.requirement, v.value) for v in node_values(rubric.tree or (), [1.0, 1.0, 0.0, 0.0])]
    assert values == [
        (0, "All of it", 0.625), (1, "a", 1.0), (1, "b", 0.5), (2, "b1", 1.0), (2, "b2", 0.0), (0, "slip", 0.0),
    ]  # fmt: skip
    again = Rubric.from_yaml(rubric.to_yaml())
    assert (again.tree, again.criteria) == (rubric.tree, rubric.criteria)
    with pytest.raises(ValueError, match="tree"):
        _ = rubric + rubric


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- {requirement: a, criteria: []}", "`criteria`: is empty"),
        ("- {requirement: a, criteria: [{requirement: b, weight: -1}]}", "negative weight"),
        ("- {requirement: a, criteria: [{requirement: b, weight: 0}]}", "none at all"),
        ("- {requirement: a, criteria: [{requirement: b, weight: x}]}", r"criteria\[0\]\.criteria\[0\] `weight`"),
        ("- {requirement: a, check: {max_words: 3}, criteria: [{requirement: b}]}", "`check`"),
        ("{criteria: [{requirement: a}], tree: []}", "`tree`"),
    ],
)
def test_broken_trees_are_refused(text: str, words: str) -> None:
    with pytest.raises(RubricError, match=words):
        Rubric.from_yaml(text)


weighted = st.floats(0.1, 10).map(lambda w: round(w, 2))


def group(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(below, min_size=1, max_size=4)
    return st.fixed_dictionaries({"requirement": st.just("node"), "weight": weighted, "criteria": parts})


leaf: st.SearchStrategy[Any] = st.fixed_dictionaries({"requirement": st.just("leaf"), "weight": weighted})
trees_of = st.recursive(leaf, group, max_leaves=25)


@settings(deadline=None)
@given(st.lists(trees_of, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_law_the_score_is_the_recursive_weighted_mean(forest: list[dict[str, Any]], chance: random.Random) -> None:
    rubric = Rubric.from_dict(forest)
    values = [float(chance.random() < 0.5) for _ in rubric.criteria]
    answers = iter(values)

    def mean(nodes: list[dict[str, Any]]) -> float:
        parts = [(n["weight"], mean(n["criteria"]) if "criteria" in n else next(answers)) for n in nodes]
        return sum(w * v for w, v in parts) / sum(w for w, _ in parts)

    score = rubric.compute_score(["MET" if value else "UNMET" for value in values])
    assert score == pytest.approx(mean(forest), abs=1e-9)


# -- recorded cases

INEXPRESSIBLE = {
    "agentv-2.6.1/parse/024": "a `min_score` outside (0, 1] is refused, as at AgentV's HEAD",
    "agentv-2.6.1/parse/026": "strings are read, as at AgentV's HEAD and in its documents",
    "agentv-2.6.1/score_ranges_required/001": "`required` fails on the worst outcome, not on less than 10 of 10",
    "agentv-2.6.1/score_ranges_mixed/001": "a criterion without ranges stays MET or UNMET beside one that has them",
    "agentv-HEAD-58f316c/score_ranges_mixed/001": "a criterion without ranges stays MET or UNMET beside one that has",
    "agentv-HEAD-58f316c/clampScore/001": "a number that is none is a failure, never clamped",
    "agentv-HEAD-58f316c/clampScore/003": "a number that is none is a failure, never clamped",
    "agentv-HEAD-58f316c/clampScore/005": "a number outside its range is a failure, never clamped",
    "openrubricrl-0.1.0/scorer/008": "the model's overall score is not used: criteria without an answer are failures",
}


def recorded(*stances: str) -> list[Any]:
    path = SHARED / "conformance" / "cases.json"
    if not path.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason="../shared/conformance is not here"))]
    known = json.loads(path.read_text(encoding="utf-8"))
    chosen = [c for c in known if c["stance"] in stances and c["source"].startswith(("agentv", "openrubricrl"))]
    return [pytest.param(case, id=case["id"]) for case in chosen]


def play(case: dict[str, Any]) -> EvaluationReport:
    """Grade by the recorded reply, told in our judge's words: answers, their ids, and nothing else, are the peer's."""
    if case["source"].startswith("agentv"):
        items = [{k: v for k, v in item.items() if k != "required_min_score"} for item in case["criteria"]]
        rubric, text = read_document(items, case["id"]), case["verdicts"]
        ids = {item["id"]: number for number, item in enumerate(items, start=1)}
    else:
        options = case["options"]["scale"]
        document = {"name": "r", "version": "1.0.0", "scale": options, "criteria": case["criteria"]}
        rubric, text = read_document(document, case["id"]), case["judge_reply_text"]
        ids = {c["name"]: number for number, c in enumerate(case["criteria"], start=1)}

    async def generate(_system: str, _user: str) -> str:
        start, end = text.find("{"), text.rfind("}")
        if start < 0:
            return text
        reply = json.loads(text[start : end + 1])
        checks = reply.get("checks", [{"id": n, "score": reply[f"{n}_score"]} for n in ids if f"{n}_score" in reply])
        judgments = [
            {"id": ids.get(c["id"], 99), "explanation": "", "answer": c["score"] if "score" in c else
             "MET" if c["satisfied"] else "UNMET"} for c in checks
        ]  # fmt: skip
        return json.dumps({"judgments": judgments}) if judgments else text

    return rubric.grade_sync("text", grader=PerCriterionOneShotGrader(generate))


def assert_parsed(case: dict[str, Any]) -> None:
    expected = case["expected"]["rubrics"]
    if isinstance(expected, dict):
        with pytest.raises(RubricError):
            read_document({"rubrics": case["rubric"]}, case["id"])
        return
    rubric = read_document({"rubrics": case["rubric"]}, case["id"])
    for criterion, theirs, item in zip(rubric.criteria, expected, case["rubric"], strict=True):
        assert (criterion.name, criterion.weight) == (theirs["id"], theirs["weight"])
        assert criterion.requirement == theirs.get("expected_outcome", theirs.get("outcome"))
        # `required` is false where the file does not say, as AgentV's documents have it; its parser says true.
        assert criterion.required is (isinstance(item, dict) and item.get("required", False))
        if "score_ranges" in theirs:
            assert criterion.scale is not None
            assert (criterion.scale.min, criterion.scale.max, criterion.scale.integer) == (0, 10, True)
            lows = {r["score_range"][0]: r.get("expected_outcome", r.get("outcome")) for r in theirs["score_ranges"]}
            assert criterion.scale.levels == lows


@pytest.mark.parametrize("case", recorded("match"))
def test_a_recorded_answer_of_another_format_is_ours_too(case: dict[str, Any], record_property: Any) -> None:
    expected = case["expected"]
    if case["id"] in INEXPRESSIBLE:
        record_property("inexpressible", f"{case['id']}: {INEXPRESSIBLE[case['id']]}")
        return
    record_property("conformance", case["id"])
    match case["driver"]:
        case "scoreToVerdict":
            mark = case["options"].get("threshold", 0.8)
            assert reaches_mark(case["score"], mark) is (expected["verdict"] == "pass")
        case "clampScore":
            assert Scale(min=0, max=1).value_of(case["score"]) == expected["score"]
        case "RewardProcessor.normalize_score":
            scale = Scale(**case["options"]["scale"])
            assert near(normalize_score(case["llm_score"], scale, case["options"]["method"]), expected["score"])
        case "RewardProcessor.blend_scores":
            weights = {metric["name"]: metric["weight"] for metric in case["options"]["hybrid"]}
            pairs = [(weights[name], value) for name, value in case["hybrid_scores"].items()]
            assert near(blend_scores(case["llm_score"], pairs, case["options"]["mode"]), expected["score"])
        case "AccuracyCalculator":
            submission = Submission(response=case["output"], reference=case["options"]["expected_output"])
            assert run_metric(Metric(type="accuracy"), submission) == expected["score"]
        case "Rubric.from_dict" if "raises" in expected:
            with pytest.raises(RubricError):
                openrubricrl.read(case["rubric"], case["id"])
        case "Rubric.from_dict":
            rubric = read_document(case["rubric"], case["id"])
            assert [criterion.weight for criterion in rubric.criteria] == expected["weights"]
        case "parseEvaluators" | "parseGraders" | "parseInlineRubrics":
            assert_parsed(case)
        case _ if "raises" in expected or expected.get("verdict") == "skip":
            with pytest.raises(JudgeError):
                play(case)
        case "RubricScorer.score":
            assert near(play(case).score, expected["reward"])
            assert near(play(case).scaled_score, expected["overall_score"])
        case _:
            report = play(case)
            assert near(report.score, expected["score"])
            assert report.passed is (expected["verdict"] == "pass")


@pytest.mark.parametrize("case", recorded("diverge", "discuss"))
def test_a_peers_bug_in_a_format_is_refused_or_follows_the_design(case: dict[str, Any]) -> None:
    note, category = case.get("note", ""), case["category"]
    match category:
        case "parse" if note == "negative weight":
            assert read_document({"rubrics": case["rubric"]}, "x").criteria[0].is_penalty
        case "parse" | "validation":
            with pytest.raises(RubricError):
                openrubricrl.read(case["rubric"], "x") if category == "validation" else assert_parsed(
                    {**case, "expected": {"rubrics": []}}
                )
        case "weights":
            assert near(play(case).score, 0.8 if case["criteria"][0]["weight"] == 5 else 0.0)
        case "normalize" | "normalize_degenerate":
            scale = case["options"]["scale"]
            with pytest.raises(ValueError, match=r"below|not between|whole"):
                normalize_score(
                    case["llm_score"],
                    Scale(min=scale["min"], max=scale["max"], integer=scale.get("type") == "discrete"),
                )
        case "blend_custom":
            with pytest.raises(ValidationError, match="metric_function"):
                HybridMetric(name="c", type="custom", weight=0.3)
        case "accuracy_metric" | "perplexity_metric":
            with pytest.raises(JudgeFailure, match="missing"):
                run_metric(Metric(type=category.removesuffix("_metric")), Submission(response="x", reference=""))  # pyright: ignore[reportArgumentType]
        case "scorer" if "c2_score" in case["judge_reply_text"] and "null" not in case["judge_reply_text"]:
            assert near(play(case).score, 0.66)  # the criteria's own weighted mean, whatever the model adds up to
        case "score_ranges_required":
            report = play(case)
            assert near(report.score, case["expected"]["score"])
            assert report.passed is (case["criteria"][0].get("min_score") is None and "scores 0" not in note)
        case "reply_shapes" if "duplicate rubric ids" in note:
            with pytest.raises(RubricError, match="repeats"):
                play(case)
        case _:
            with pytest.raises(JudgeError):
                play(case)


# -- files of one's own


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_load_grade_and_come_back(path: Path, server: OpenAIServer) -> None:
    @register_metric("distinct_words")
    def distinct_words(submission: Submission) -> float:  # pyright: ignore[reportUnusedFunction]
        words = submission.response.lower().split()
        return len(set(words)) / len(words)

    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert detect(document) == path.parent.name
    cases = list(load_eval_cases(path)) if "evalcases" in document else []
    rubric = cases[0].rubric if cases else Rubric.from_file(path)
    server.script = lambda call: Reply(
        text=json.dumps({"explanation": "e", "verdict": "MET", "score": 5 if "whole numbers" in call.prompt else 4.0})
    )
    report = rubric.grade_sync("One two three three.", grader=PerCriterionGrader("openai/mock", api_base=server.url))
    assert report.complete
    assert report.score is not None
    own: Format = path.parent.name  # pyright: ignore[reportAssignmentType]
    again, losses = write_document(rubric, own)
    assert losses == []
    assert read_document(again, path.name) == rubric


def test_openrubricrl_reaches_judge_and_report(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text='{"explanation": "e", "score": 7.5}')
    rubric = Rubric.from_file(ROOT / "examples/openrubricrl/code_quality.json")
    grader = PerCriterionGrader("openai/mock", api_base=server.url)
    report = rubric.grade_sync("def total(xs): ...", grader=grader)
    assert (report.score, report.scaled_score) == (pytest.approx(0.75), pytest.approx(7.5))
    first, second = sorted(server.calls, key=lambda call: "sight" in call.prompt)
    assert "The domain is code." in first.prompt
    assert "return xs[0] + xs[1]" in first.prompt
    assert [m["role"] for m in first.body["messages"]] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "- names: Names say what things are" in second.prompt


def test_an_eval_file_gives_each_case_its_own_rubric() -> None:
    cases = list(load_eval_cases(ROOT / "examples/agentv/code_review.yaml"))
    assert [(case.id, len(case.rubric)) for case in cases] == [("shell-injection", 4), ("off-by-one", 3)]
    assert cases[0].input.startswith("Review: `os.system")
    assert cases[0].rubric.criteria[-1].requirement.startswith("Proposes a call")
    examples = to_examples(cases)
    assert examples[0].inputs().keys() == ["input"]
    assert (examples[1].rubric, examples[1].expected_outcome) == (
        cases[1].rubric,
        "Finds that the last element is skipped",
    )
    for_langsmith = cases[0].as_langsmith()
    assert for_langsmith["inputs"] == {"input": cases[0].input}
    assert Rubric.from_dict(json.loads(json.dumps(for_langsmith))["metadata"]["rubric"]) == cases[0].rubric
    with pytest.raises(RubricError, match="load_eval_cases"):
        Rubric.from_file(ROOT / "examples/agentv/code_review.yaml")


def test_a_case_without_rubrics_is_judged_by_its_expected_outcome(tmp_path: Path) -> None:
    path = tmp_path / "evals.yaml"
    path.write_text(
        "evalcases: [{input: [{role: system, content: s}, {role: user, content: u}], expected_outcome: Greets}]"
    )
    [case] = load_eval_cases(path)
    assert (case.id, case.input, case.rubric.criteria[0].requirement) == ("1", "system: s\nuser: u", "Greets")
    path.write_text("evalcases: [{id: x, input: u}]")
    with pytest.raises(RubricError, match="case x"):
        list(load_eval_cases(path))


@pytest.mark.parametrize("to", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rubric=rubrics)
def test_law_a_conversion_is_lossless_or_says_what_it_lost(rubric: Rubric, to: Format) -> None:
    try:
        document, losses = write_document(rubric, to)
    except RubricError:
        assert to == "openrubricrl"
        assert not rubric.positive_weight
        return
    again = read_document(json.loads(json.dumps(document)), "again")
    assert again == rubric or losses


def test_an_old_file_is_migrated() -> None:
    old = {
        "name": "old", "scale": {"min": 0, "max": 10},
        "criteria": [{"name": "c", "description": "d", "weight": 1.0,
                      "examples": {"good": [{"input": "i", "output": "o", "score": 8}]}}],
    }  # fmt: skip
    with pytest.raises(RubricError, match="migrate"):
        read_document(old, "old")
    new, changes = openrubricrl.migrate(old, "2.0.0")
    assert len(changes) == 2
    assert read_document(new, "new").version == "2.0.0"
    assert "version" not in old


# -- metrics


def test_metrics_of_a_response() -> None:
    same = Submission(response="the cat sat on the mat", reference="the cat sat on the mat", logprobs=(-0.5, -0.5))
    other = Submission(response="dogs bark", reference="the cat sat on the mat")
    for kind in ("bleu", "rouge", "accuracy"):
        assert run_metric(Metric(type=kind), same) == pytest.approx(1.0)
        assert run_metric(Metric(type=kind), other) < 0.2
        with pytest.raises(JudgeFailure, match="`reference`"):
            run_metric(Metric(type=kind), Submission(response="x"))
    assert run_metric(Metric(type="perplexity"), same) == pytest.approx(math.exp(-0.5))
    with pytest.raises(JudgeFailure, match="`logprobs`"):
        run_metric(Metric(type="perplexity"), other)
    for config, words in [({"metric_function": "nobody"}, "not registered")]:
        with pytest.raises(JudgeFailure, match=words):
            run_metric(Metric(type="custom", config=config), other)


def test_a_file_can_never_name_code_to_import() -> None:
    with pytest.raises(JudgeFailure, match="not registered"):
        run_metric(Metric(type="custom", config={"metric_function": "os.system"}), Submission(response="x"))


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(JudgeFailure, match=r"rubric-integrations\[metrics\]"):
        run_metric(Metric(type="bleu"), Submission(response="x", reference="x"))


def test_hybrid_metrics_are_blended_and_a_lost_one_is_a_failure() -> None:
    metric = HybridMetric(name="same", type="accuracy", weight=0.25)
    rubric = Rubric(
        [Criterion.model_validate({"requirement": "r", "check": {"contains": "x"}})], hybrid_metrics=(metric,)
    )
    grader = PerCriterionGrader("offline")
    report = rubric.grade_sync("x", grader=grader, reference="y")
    assert (report.score, report.raw_score, report.metrics) == (0.75, 10.0, {"same": 0.0})
    with pytest.raises(JudgeError, match="`same` was not computed"):
        rubric.grade_sync("x", grader=grader)
    policies: list[tuple[Any, float]] = [("abstain", 1.0), ("worst_case", 0.75)]
    for policy, score in policies:
        lost = rubric.grade_sync("x", grader=PerCriterionGrader("offline", on_failure=policy))
        assert (lost.score, lost.complete, lost.failed_count) == (score, False, 1)


def test_hybrid_metrics_are_blended_into_a_score_of_the_whole_too(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text='{"explanation": "e", "overall_score": 100}')
    metric = HybridMetric(name="same", type="accuracy", weight=0.25)
    grader = RubricAsJudgeGrader("openai/mock", api_base=server.url)
    for required in (False, True):
        rubric = Rubric([Criterion(requirement="r", required=required)], hybrid_metrics=(metric,))
        report = rubric.grade_sync("x", grader=grader, reference="x")
        assert (report.score, report.passed) == (1.0, not required)


def test_a_criterion_may_be_a_metric() -> None:
    rubric = Rubric.from_yaml("- {requirement: close to the reference, check: {metric: {type: rouge}}}")
    report = rubric.grade_sync("the cat sat", grader=PerCriterionGrader("offline"), reference="the cat ran")
    assert report.score == pytest.approx(2 / 3)
    for text in ("{metric: {type: rouge}, max_words: 3}", "{metric: {type: rouge, config: {variant: x}}}"):
        with pytest.raises(RubricError, match="check"):
            Rubric.from_yaml(f"- {{requirement: r, check: {text}}}")


# -- lint and schema

LINTED = {
    "compound": "- {requirement: Is polite and names the price}\n- {requirement: Says why}",
    "vague": "- {requirement: Uses appropriate words}\n- {requirement: Says why}",
    "negated-penalty": "- {requirement: Does not mention the price, weight: -3}\n- {requirement: Says why}",
    "near-duplicate": "- {requirement: States the margin of it}\n- {requirement: States the margin of it.}",
    "unreachable-pass-mark": "- {requirement: r, options: [{label: a, value: 0}, {label: b, value: 0.5}]}\n- "
    "{requirement: s, weight: 1}",
    "use-a-check": "- {requirement: Has at most 90 words}\n- {requirement: Says why}",
    "count": "- {requirement: Says why}",
}


@pytest.mark.parametrize("rule", RULES)
def test_lint_warns(rule: str) -> None:
    assert rule in [warning.rule for warning in lint(Rubric.from_yaml(LINTED[rule]))]


def test_lint_is_silent_on_a_careful_rubric() -> None:
    assert lint(Rubric.from_file(ROOT / "examples/quarterly_margin/rubric.yaml")) == []


def test_the_published_schema_is_in_step_and_agrees_with_the_reader() -> None:
    published = json.loads((ROOT / "schema/rubric.schema.json").read_text(encoding="utf-8"))
    assert published == json_schema()
    validator: Any = Draft202012Validator(published)
    for text in (TREE, (ROOT / "examples/quarterly_margin/rubric.yaml").read_text(), *list(LINTED.values())[:-2]):
        assert list(validator.iter_errors(yaml.safe_load(text))) == []
    for text in ("- {wieght: 3, requirement: a}", "[]", "- {weight: 3}", "- {requirement: a, check: {max_wrds: 3}}"):
        assert list(validator.iter_errors(yaml.safe_load(text)))


# -- fuzz

SEEDS = [json.loads(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")))) for path in EXAMPLES] + [
    yaml.safe_load(TREE), yaml.safe_load((ROOT / "examples/quarterly_margin/rubric.yaml").read_text(encoding="utf-8")),
]  # fmt: skip
ODD: list[Any] = [
    None, True, 0, -1, 1e308, math.nan, math.inf, "", " ", "NaN", "\x00", "\ud800", [], {}, [[]], {"": None}, "x" * 300,
    ["a", 1], {"criteria": []}, {"requirement": "r"}, 10**400, b"bytes", ("t",), {1: 2}, {"weight": True},
]  # fmt: skip
KEYS = [
    "criteria", "requirement", "weight", "options", "scale", "check", "levels", "score_ranges", "examples", "name",
    "tree", "rubrics", "evalcases", "execution", "hybrid_metrics", "min", "max", "value", "min_score", "regex",
]  # fmt: skip


def mutate(document: Any, chance: random.Random, times: int) -> Any:
    """A document with some of its values replaced, moved, repeated or dropped."""
    document = json.loads(json.dumps(document))
    for _ in range(times):
        places: list[tuple[Any, Any]] = []

        def walk(data: Any, places: list[tuple[Any, Any]] = places) -> None:
            for key, value in (
                data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
            ):
                places.append((data, key))
                walk(value)

        walk(document)
        if not places:
            break
        holder, key = chance.choice(places)
        other, other_key = chance.choice(places)
        match chance.randrange(5):
            case 0:
                holder[key] = copy.deepcopy(chance.choice(ODD))
            case 1:
                del holder[key]
                continue
            case 2 if isinstance(holder, dict):
                holder[chance.choice(KEYS)] = copy.deepcopy(chance.choice(ODD))
            case 3 if isinstance(holder, list):
                holder.insert(0, copy.deepcopy(chance.choice(ODD)))
            case _:
                if other_key in (other if isinstance(other, dict) else range(len(other))):
                    holder[key] = json.loads(json.dumps(other[other_key], default=str))
    return document


@settings(max_examples=1500, deadline=1000)
@given(st.sampled_from(SEEDS), st.integers(0, 2**32), st.integers(1, 6))
def test_fuzz_nothing_but_a_rubric_error_comes_of_a_mutated_document(seed: Any, chance: int, times: int) -> None:
    document = mutate(seed, random.Random(chance), times)
    try:
        rubric = read_document(document, "fuzz")
    except RubricError:
        return
    for to in FORMATS:
        try:
            write_document(rubric, to)
        except RubricError:
            continue
    lint(rubric)


@settings(max_examples=400, deadline=1000)
@given(st.sampled_from(SEEDS), st.integers(0, 2**32))
def test_fuzz_nothing_but_a_rubric_error_comes_of_broken_text(seed: Any, chance: int) -> None:
    source = random.Random(chance)
    text = list(yaml.safe_dump(seed) if chance % 2 else json.dumps(seed))
    for _ in range(source.randrange(1, 8)):
        text[source.randrange(len(text))] = source.choice("{}[]:,-&*!|>'\"\n\t\x00é\ud800#%@")
    for read in (Rubric.from_yaml, Rubric.from_json):
        try:
            read("".join(text))
        except RubricError:
            continue
