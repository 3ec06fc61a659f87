"""A judge is a DSPy program: it can be copied, optimized, saved and loaded, without its secrets."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.teleprompt.gepa.gepa import GEPA

from rubric_integrations import Criterion, Option, PerCriterionGrader, Rubric, Scale, Submission
from rubric_integrations.judges import lm_judge, saving
from rubric_integrations.judges.lm_judge import LMJudge, as_example
from rubric_integrations.results.labels import LabelledJudgment
from tests.dspy.programs import HINT, task_lm
from tests.openai_server import Call, OpenAIServer, Reply

PRAISES = Criterion(requirement="Praises the product")
LABELS = [
    LabelledJudgment(submission=Submission(response=text), criterion=PRAISES, verdict=verdict)
    for text, verdict in [("Good.", "MET"), ("Not good.", "UNMET"), ("Great.", "MET"), ("No great thing.", "UNMET")]
]


def judge_script(call: Call) -> Reply:
    """A lenient judge, which sees negations once its instructions mention them."""
    submission = re.findall(r"\[\[ ## submission ## \]\]\n<data \w+>\n(.*?)\n</data", call.prompt, re.DOTALL)[-1]
    negated = submission.startswith("No") and HINT in call.prompt
    fields = {"explanation": "as scripted", "verdict": "UNMET" if negated else "MET"}
    body = "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in fields.items())
    return Reply(text=json.dumps(fields) if "JSON object" in call.prompt else f"{body}\n\n[[ ## completed ## ]]")


def judge_at(server: OpenAIServer, **settings: Any) -> LMJudge:
    server.script = judge_script
    return LMJudge(dspy.LM("openai/judge", api_base=server.url, api_key="key-secret", cache=False, **settings))


def agrees(gold: Any, pred: Any, trace: object = None, *_more: object) -> Any:
    right = pred.verdict == gold.verdict
    said = "right" if right else f"people say {gold.verdict}"
    return right if trace is not None else dspy.Prediction(score=float(right), feedback=said)


def test_gepa_aligns_a_judge_with_labels_and_the_grader_uses_what_it_found(
    server: OpenAIServer, tmp_path: Path
) -> None:
    judge = judge_at(server)
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
    loaded = judge_at(server)
    loaded.load(tmp_path / "judge.json")
    assert loaded.fingerprint() == aligned.fingerprint()
    assert rubric.grade_sync("Not good.", grader=PerCriterionGrader(loaded)).score == 0.0


def test_a_judge_bootstraps_demonstrations_from_labels(server: OpenAIServer) -> None:
    judge = judge_at(server)
    bootstrap = dspy.BootstrapFewShot(metric=agrees, max_bootstrapped_demos=2, max_labeled_demos=0)
    taught: Any = bootstrap.compile(judge, trainset=[as_example(label) for label in LABELS])
    assert [demo.verdict for demo in taught.criterion.demos] == ["MET", "MET"]
    assert judge.criterion.demos == []  # the optimizer worked on a copy
    before = len(server.calls)
    Rubric([PRAISES]).grade_sync("Fine.", grader=PerCriterionGrader(taught))
    assert "Great." in server.calls[before].prompt


def test_a_copy_has_prompts_of_its_own_and_shares_the_model() -> None:
    judge = LMJudge(dspy.LM("openai/m", api_key="none"))
    for twin in (copy.deepcopy(judge), judge.deepcopy(), judge.reset_copy()):
        assert isinstance(twin, LMJudge)
        assert twin.lm is judge.lm
        assert twin.fingerprint() == judge.fingerprint()
        twin.criterion.demos = [dspy.Example(criterion="a", verdict="MET")]
        assert judge.criterion.demos == []
        assert twin.fingerprint() != judge.fingerprint()


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    lm = dspy.LM("openai/m", api_key="key-secret", api_base="http://host-secret", headers={"x": "header-secret"})
    judge = LMJudge(lm)
    judge.set_lm(lm)
    judge.save(tmp_path / "judge.json")
    assert "secret" not in (tmp_path / "judge.json").read_text()


def test_what_was_saved_for_other_questions_is_refused(tmp_path: Path) -> None:
    lm = dspy.LM("openai/m", api_key="none")
    path = tmp_path / "judge.json"
    LMJudge(lm, confidence=True).save(path)
    if saving.question_schemas(LMJudge(lm, confidence=True)) != saving.question_schemas(
        LMJudge(lm)
    ):  # a DSPy without `Choice` has none
        with pytest.raises(ValueError, match="`criterion` was saved for a question of another form"):
            LMJudge(lm).load(path)

    class Renamed(lm_judge.signatures.JudgeScale):
        certainty: float = dspy.OutputField()

    changed = LMJudge(lm)
    changed.scale = dspy.Predict(Renamed)
    changed.save(path)
    with pytest.raises(ValueError, match="`scale` was saved for a question of another form"):
        LMJudge(lm).load(path)

    dspy.Predict("question -> answer").save(path)
    with pytest.raises(ValueError, match="`schemas` is missing"):
        LMJudge(lm).load(path)


def test_a_model_in_the_file_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "judge.json"
    judge = LMJudge(dspy.LM("openai/mine", api_key="none"))
    judge.save(path)
    saved = json.loads(path.read_text())
    saved["criterion"]["lm"] = {"model": "openai/theirs", "api_base": "http://elsewhere"}
    path.write_text(json.dumps(saved))
    judge.load(path, allow_unsafe_lm_state=True)
    assert judge.criterion.lm is None
    assert judge.lm.model == "openai/mine"


@pytest.mark.parametrize(
    ("criterion", "verdict", "field", "label"),
    [
        (PRAISES, "MET", "verdict", "MET"),
        (Criterion(requirement="tone", options=[Option(label="warm", value=1), Option(label="cold", value=0)]),
         "cold", "choice", "B"),
        (Criterion(requirement="depth", scale=Scale(min=0, max=10)), "7", "score", "7"),
    ],
)  # fmt: skip
def test_a_labelled_judgment_of_any_kind_is_a_question_to_the_judge(
    server: OpenAIServer, criterion: Criterion, verdict: str, field: str, label: str
) -> None:
    example = as_example(LabelledJudgment(submission=Submission(response="So."), criterion=criterion, verdict=verdict))
    assert example[field] == label
    judge = judge_at(server)
    server.script = lambda _call: Reply(text=json.dumps({"explanation": "so", field: label}))
    assert str(judge(**example.inputs())[field]).removesuffix(".0") == label


def test_what_a_judge_depends_on_tells_no_secret() -> None:
    said = {"api_key": "S1", "aws_secret_access_key": "S2", "azure_ad_token": "S3", "extra_headers": {"x": "S4"}}
    lm = dspy.LM("openai/mock", api_base="http://me:S5@host/v1", max_tokens=77, temperature=0.5, **said)  # pyright: ignore[reportArgumentType]
    told = LMJudge(lm).fingerprint()
    assert not [secret for secret in ("S1", "S2", "S3", "S4", "S5") if secret in told]
    assert "http://host/v1" in told
    assert "77" in told
    assert told != LMJudge(lm.copy(max_tokens=78)).fingerprint()
    assert told == LMJudge(lm.copy(azure_ad_token="other", api_base="http://you:S6@host/v1")).fingerprint()
