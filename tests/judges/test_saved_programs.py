"""A judge as a DSPy program: it is optimized, copied, saved and loaded, without its secrets."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.teleprompt.gepa.gepa import GEPA

from rubric_integrations import Check, Criterion, Option, PerCriterionGrader, Rubric, Submission
from rubric_integrations.judges import LMJudge, as_example
from rubric_integrations.judges import saved as saving
from rubric_integrations.judges.prompts.signatures import JudgeScale
from rubric_integrations.scoring import LabelledJudgment
from tests.dspy.programs import HINT, task_lm
from tests.fakes import FakeModel
from tests.judges.questions import UNMET_REPLY, judge_one
from tests.openai_server import Call, OpenAIServer, Reply

PRAISES = Criterion(requirement="Praises the product")
LABELS = [
    LabelledJudgment(submission=Submission(response=text), criterion=PRAISES, verdict=verdict)
    for text, verdict in [("Good.", "MET"), ("Not good.", "UNMET"), ("Great.", "MET"), ("No great thing.", "UNMET")]
]


def lenient_script(call: Call) -> Reply:
    """Answer MET, or UNMET to a negation if the instructions contain the hint that GEPA finds."""
    submission = re.findall(r"\[\[ ## submission ## \]\]\n<data \w+>\n(.*?)\n</data", call.prompt, re.DOTALL)[-1]
    negated = submission.startswith("No") and HINT in call.prompt
    fields = {"explanation": "as scripted", "verdict": "UNMET" if negated else "MET"}
    body = "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in fields.items())
    return Reply(text=json.dumps(fields) if "JSON object" in call.prompt else f"{body}\n\n[[ ## completed ## ]]")


def judge_with_key(server: OpenAIServer, **settings: Any) -> LMJudge:
    server.script = lenient_script
    return LMJudge(dspy.LM("openai/judge", api_base=server.url, api_key="key-secret", cache=False, **settings))


def agrees(gold: Any, pred: Any, trace: object = None, *_more: object) -> Any:
    right = pred.verdict == gold.verdict
    feedback = "right" if right else f"people say {gold.verdict}"
    return right if trace is not None else dspy.Prediction(score=float(right), feedback=feedback)


@pytest.mark.optimizers
def test_gepa_aligns_a_judge_with_labels_and_the_grader_uses_its_instructions(
    server: OpenAIServer, tmp_path: Path
) -> None:
    judge = judge_with_key(server)
    examples = [as_example(label) for label in LABELS]
    optimizer = GEPA(
        metric=agrees, max_metric_calls=60, reflection_lm=task_lm(), num_threads=1, component_selector="all"
    )
    aligned: Any = optimizer.compile(judge, trainset=examples, valset=examples)

    rubric = Rubric([PRAISES])
    assert rubric.grade_sync("Not good.", grader=PerCriterionGrader(judge)).score == 1.0
    assert rubric.grade_sync("Not good.", grader=PerCriterionGrader(aligned)).score == 0.0
    assert aligned.fingerprint() != judge.fingerprint()

    aligned.save(tmp_path / "judge.json")
    loaded = judge_with_key(server)
    loaded.load(tmp_path / "judge.json")
    assert loaded.fingerprint() == aligned.fingerprint()
    assert rubric.grade_sync("Not good.", grader=PerCriterionGrader(loaded)).score == 0.0


def test_bootstrap_makes_few_shot_examples_of_labels(server: OpenAIServer) -> None:
    judge = judge_with_key(server)
    bootstrap = dspy.BootstrapFewShot(metric=agrees, max_bootstrapped_demos=2, max_labeled_demos=0)
    compiled: Any = bootstrap.compile(judge, trainset=[as_example(label) for label in LABELS])
    assert [demo.verdict for demo in compiled.criterion.demos] == ["MET", "MET"]
    assert judge.criterion.demos == []  # the optimizer worked on a copy
    before = len(server.calls)
    Rubric([PRAISES]).grade_sync("Fine.", grader=PerCriterionGrader(compiled))
    assert "Great." in server.calls[before].prompt


def test_copy_has_its_own_prompts_and_shares_the_model() -> None:
    judge = LMJudge(dspy.LM("openai/m", api_key="none"))
    for copied in (copy.deepcopy(judge), judge.deepcopy(), judge.reset_copy()):
        assert isinstance(copied, LMJudge)
        assert copied.lm is judge.lm
        assert copied.fingerprint() == judge.fingerprint()
        copied.criterion.demos = [dspy.Example(criterion="a", verdict="MET")]
        assert judge.criterion.demos == []
        assert copied.fingerprint() != judge.fingerprint()


def test_saved_file_contains_no_secret(tmp_path: Path) -> None:
    lm = dspy.LM("openai/m", api_key="key-secret", api_base="http://host-secret", headers={"x": "header-secret"})
    judge = LMJudge(lm)
    judge.set_lm(lm)
    judge.save(tmp_path / "judge.json")
    assert "secret" not in (tmp_path / "judge.json").read_text()


def test_file_saved_for_other_signatures_is_refused(tmp_path: Path) -> None:
    lm = dspy.LM("openai/m", api_key="none")
    path = tmp_path / "judge.json"
    LMJudge(lm, confidence=True).save(path)
    if saving.question_schemas(LMJudge(lm, confidence=True)) != saving.question_schemas(
        LMJudge(lm)
    ):  # a DSPy without `Choice` has none
        with pytest.raises(ValueError, match="`criterion` was saved for a question of another form"):
            LMJudge(lm).load(path)

    class ChangedScale(JudgeScale):
        certainty: float = dspy.OutputField()

    changed = LMJudge(lm)
    changed.scale = dspy.Predict(ChangedScale)
    changed.save(path)
    with pytest.raises(ValueError, match="`scale` was saved for a question of another form"):
        LMJudge(lm).load(path)

    dspy.Predict("question -> answer").save(path)
    with pytest.raises(ValueError, match="`schemas` is missing"):
        LMJudge(lm).load(path)


def test_model_in_a_file_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "judge.json"
    judge = LMJudge(dspy.LM("openai/mine", api_key="none"))
    judge.save(path)
    saved = json.loads(path.read_text())
    saved["criterion"]["lm"] = {"model": "openai/theirs", "api_base": "http://elsewhere"}
    path.write_text(json.dumps(saved))
    judge.load(path, allow_unsafe_lm_state=True)
    assert judge.criterion.lm is None
    assert judge.lm.model == "openai/mine"


def test_instructions_and_examples_are_saved_and_loaded_without_the_model(tmp_path: Path) -> None:
    judge = LMJudge(FakeModel(UNMET_REPLY), system_prompt="Compiled instructions.")
    judge.criterion.demos = [
        dspy.Example(submission="s", kind="requirement", criterion="c", explanation="e", verdict="MET")
    ]
    judge.save(str(tmp_path / "judge.json"))
    saved = (tmp_path / "judge.json").read_text()
    assert "Compiled instructions." in saved
    assert "api_key" not in saved
    model = FakeModel(UNMET_REPLY)
    loaded = LMJudge(model)
    loaded.load(str(tmp_path / "judge.json"))
    assert judge_one(loaded).verdict == "UNMET"
    assert "Compiled instructions." in model.prompts[0][0]
    assert "[assistant]" in model.prompts[0][1]


@pytest.mark.parametrize(
    ("criterion", "verdict"),
    [
        (
            Criterion(
                requirement="How does it address the reader?",
                weight=1,
                options=[Option(label="rude", value=0), Option(label="polite", value=1), Option(label="n/a", na=True)],
            ),
            "rude",
        ),
        (
            Criterion(
                requirement="Says nothing",
                weight=1,
                check=Check.model_validate({"fields": [{"path": "answer", "equals": None}]}),
            ),
            "MET",
        ),
        (Criterion(requirement="Is kind", weight=1.0, importance="essential"), "UNMET"),
    ],
)
def test_example_whose_criterion_sets_defaults_is_loaded_as_it_was_saved(
    criterion: Criterion, verdict: str, tmp_path: Path
) -> None:
    example = LabelledJudgment(submission=Submission(response="Go away."), criterion=criterion, verdict=verdict)
    judge = LMJudge(FakeModel(UNMET_REPLY), examples=[example])
    judge.save(tmp_path / "judge.json")
    loaded = LMJudge(FakeModel(UNMET_REPLY))
    loaded.load(tmp_path / "judge.json")
    (loaded_example,) = loaded.examples
    assert loaded_example == example
    assert loaded_example.criterion.model_fields_set == criterion.model_fields_set
