"""The file of an aligned judge: it works as a judge, and a damaged or hostile one is refused."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders.per_criterion import split_question
from rubric_integrations.judges import AlignmentRecord, LMJudge, ModelSettings, OfflineJudge, Question, as_judge
from rubric_integrations.judges.lm_judge import load_judge
from rubric_integrations.langchain import RubricEvaluator, RubricRunnable
from rubric_integrations.scoring import Judgment, LabelledJudgment
from rubric_integrations.scoring.labels import Estimate, judgment_digest
from tests.fakes import FakeModel
from tests.judges.questions import MET_REPLY, judge_one
from tests.openai_server import OpenAIServer, Reply

SEEN = Submission(response="It was 17.2%.", query="What was the margin?")
NEW = Submission(response="It was 8.4%.", query="What was the margin?")
NAMES_MARGIN, NAMES_YEAR = Criterion(requirement="Names the margin"), Criterion(requirement="Names the year")


def record(**changes: Any) -> AlignmentRecord:
    fields: dict[str, Any] = {
        "model": "openai/m", "optimizer": "GEPA", "labels": "a1", "trained_on": (judgment_digest(SEEN, NAMES_MARGIN),),
        "test_set": "b2", "attempts": 1, "alpha": 0.05, "before": Estimate(0.7, 0.6, 0.8, 40),
        "after": Estimate(0.9, 0.8, 0.95, 40), "gain": Estimate(0.2, 0.05, None, 40), "kept": True,
    }  # fmt: skip
    return AlignmentRecord(**{**fields, **changes})


def aligned_judge(model: Any = None, alignment: AlignmentRecord | None = None, **settings: Any) -> LMJudge:
    judge = LMJudge(model or dspy.LM("openai/m", api_key="none"), system_prompt="Aligned instructions.", **settings)
    judge.criterion.demos = [
        dspy.Example(submission="s", kind="requirement", criterion="c", explanation="e", verdict="MET")
    ]
    judge.alignment = alignment or record()
    return judge


def answer_to(judge: LMJudge, question: Question) -> Judgment:
    return asyncio.run(judge.judge(question))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    aligned_judge().save(tmp_path / "judge.json")
    return tmp_path / "judge.json"


COPIES: dict[str, Callable[[LMJudge], LMJudge]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda judge: pickle.loads(pickle.dumps(judge)),
    "with_examples": lambda judge: judge.with_examples([]),
    "without_cache": lambda judge: judge.without_cache(),
}


@pytest.mark.parametrize("name", COPIES)
def test_copy_of_an_aligned_judge_keeps_its_alignment(name: str) -> None:
    judge = LMJudge("openai/m", api_key="none")
    judge.alignment = record()
    assert COPIES[name](judge).alignment == record()
    assert COPIES[name](LMJudge("openai/m", api_key="none")).alignment is None


def test_saved_judge_is_loaded_with_its_figures_and_settings(tmp_path: Path) -> None:
    label = LabelledJudgment(submission=NEW, criterion=NAMES_YEAR, verdict="UNMET")
    judge = LMJudge(
        "openai/m", api_key="none", settings=ModelSettings(seed=0, max_tokens=99), examples=[label], max_examples=1
    )
    judge.alignment = record()
    judge.save(tmp_path / "judge.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = as_judge(tmp_path / "judge.json")
    assert isinstance(loaded, LMJudge)
    assert loaded.alignment == record()
    assert (loaded.lm.kwargs["seed"], loaded.lm.kwargs["max_tokens"], loaded.max_examples) == (0, 99, 1)
    assert loaded.fingerprint() == judge.fingerprint()


@pytest.mark.parametrize(
    ("temperatures", "sent"), [({}, [0, None]), ({"temperature": 0}, [0]), ({"temperature": 0.5}, [0.5])]
)
def test_only_a_default_temperature_is_left_out_by_a_loaded_judge(
    server: OpenAIServer, tmp_path: Path, temperatures: dict[str, Any], sent: list[float | None]
) -> None:
    server.script = lambda call: (
        Reply(status=400, raw=b'{"error": {"message": "`temperature` is not supported"}}')
        if "temperature" in call.body
        else Reply(verdict="MET")
    )
    judge = LMJudge("openai/m", api_key="none", api_base=server.url, **temperatures)
    judge.alignment = record()
    judge.save(tmp_path / "judge.json")
    loaded = load_judge(tmp_path / "judge.json", ModelSettings(api_base=server.url, api_key="none"))
    assert loaded.fingerprint() == judge.fingerprint()
    PerCriterionGrader(loaded, on_failure="abstain").grade_sync(Rubric([NAMES_MARGIN]), SEEN)
    assert [call.body.get("temperature") for call in server.calls] == sent


def test_chosen_temperature_of_0_is_loaded_with_a_reasoning_effort(tmp_path: Path) -> None:
    settings = ModelSettings(temperature=0, reasoning_effort="low")
    aligned_judge("openai/m", api_key="none", settings=settings).save(tmp_path / "judge.json")
    assert load_judge(tmp_path / "judge.json", ModelSettings(api_key="none")).lm.kwargs["temperature"] == 0


def test_judge_with_confidence_is_loaded_from_its_file_alone(tmp_path: Path) -> None:
    judge = LMJudge("openai/m", api_key="none", confidence=True)
    judge.alignment = record()
    judge.save(tmp_path / "judge.json")
    loaded = as_judge(str(tmp_path / "judge.json"))
    assert isinstance(loaded, LMJudge)
    assert loaded.confidence
    with pytest.raises(ValueError, match=r"judge\.json: `criterion` was saved for a question of another form"):
        LMJudge("openai/m", api_key="none").load(tmp_path / "judge.json")


def test_file_has_no_address_no_key_and_no_digest_that_prices_count(tmp_path: Path) -> None:
    lm = dspy.LM("openai/m", api_key="key-secret", api_base="http://host-secret", headers={"x": "secret"}, seed=1)
    judge = aligned_judge(lm, record(trained_on=tuple(f"{number:032d}" for number in range(1000))))
    judge.save(tmp_path / "judge.json")
    assert "secret" not in (tmp_path / "judge.json").read_text()
    assert len(str(judge.dump_state())) < 10_000


def test_other_model_loads_the_file_with_a_warning(file: Path) -> None:
    with pytest.warns(UserWarning, match="aligned for the model 'openai/m', and this one is 'openai/other'") as caught:
        judge = LMJudge("openai/other", api_key="none").load(file)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert judge.alignment == record()
    assert judge.lm.model == "openai/other"


def test_file_of_another_version_of_dspy_loads_without_a_message(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = json.loads(file.read_text())
    content["metadata"]["dependency_versions"]["dspy"] = "0.0.1"
    file.write_text(json.dumps(content))
    as_judge(file)
    assert not caplog.records


def test_file_without_an_alignment_loads_into_a_judge_and_not_as_one(tmp_path: Path) -> None:
    LMJudge("openai/m", api_key="none", system_prompt="Mine.").save(tmp_path / "judge.json")
    content = json.loads((tmp_path / "judge.json").read_text())
    earlier = {name: part for name, part in content.items() if name not in ("settings", "examples", "max_examples")}
    (tmp_path / "judge.json").write_text(json.dumps(earlier))
    judge = LMJudge("openai/m", api_key="none").load(tmp_path / "judge.json")
    assert judge.alignment is None
    predictor: Any = judge.criterion
    assert predictor.signature.instructions.startswith("Mine.")
    with pytest.raises(ValueError, match=r"judge\.json: does not name a model.*`LMJudge\(.*\)\.load\("):
        as_judge(tmp_path / "judge.json")


@pytest.mark.parametrize("model", ["generate_fn/reply", "langchain/gpt-5-mini", "huggingface/https://evil.example/x"])
def test_file_of_a_model_that_no_name_makes_is_refused(tmp_path: Path, model: str) -> None:
    aligned_judge(alignment=record(model=model)).save(tmp_path / "judge.json")
    with pytest.raises(ValueError, match="cannot be called by its name alone"):
        as_judge(tmp_path / "judge.json")


def test_system_prompt_beside_a_file_is_refused(file: Path) -> None:
    with pytest.raises(ValueError, match=r"`system_prompt` has no effect on .*judge\.json"):
        as_judge(file, system_prompt="Be strict.")


def test_judges_of_one_prompt_have_one_fingerprint_unless_one_has_seen_labels(file: Path) -> None:
    loaded = LMJudge("openai/m", api_key="none").load(file)
    rejected = copy.copy(loaded)
    rejected.alignment = record(kept=False)
    plain = copy.copy(loaded)
    plain.alignment = None
    assert loaded.fingerprint() != LMJudge("openai/m", api_key="none").fingerprint()
    assert loaded.fingerprint() != plain.fingerprint() == rejected.fingerprint()


def test_failed_save_leaves_the_earlier_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_text()

    def fail(*_arguments: object, **_settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OSError, match="No space"):
        aligned_judge().save(file)
    assert file.read_text() == before
    assert list(file.parent.iterdir()) == [file]


def test_half_an_emoji_is_saved_as_its_escape(tmp_path: Path) -> None:
    judge = LMJudge("openai/m", api_key="none")
    judge.criterion.demos = [dspy.Example(submission="Praise \ud83d.", verdict="MET")]
    judge.save(tmp_path / "judge.json")
    loaded = LMJudge("openai/m", api_key="none").load(tmp_path / "judge.json")
    assert loaded.criterion.demos[0]["submission"] == "Praise \\ud83d."


def test_aligned_judge_is_not_saved_as_pickle(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"only a \.json file can say how the judge was aligned"):
        aligned_judge().save(tmp_path / "judge.pkl")


# Trained on


def test_judgments_of_the_labels_that_a_judge_was_aligned_with_are_marked() -> None:
    judge = aligned_judge(FakeModel(MET_REPLY))
    without_query = aligned_judge(
        FakeModel(MET_REPLY),
        record(trained_on=(judgment_digest(Submission(response=" It was 17.2%.\r\n"), NAMES_MARGIN),)),
    )
    questions = {"seen": (SEEN, NAMES_MARGIN), "other criterion": (SEEN, NAMES_YEAR), "new": (NEW, NAMES_MARGIN)}
    for aligned in (judge, without_query):
        marked = {
            name: answer_to(aligned, Question(submission, criterion, guidelines="Be brief.")).trained_on
            for name, (submission, criterion) in questions.items()
        }
        assert marked == {"seen": True, "other criterion": False, "new": False}


def test_judge_that_was_not_kept_has_seen_nothing() -> None:
    judge = aligned_judge(FakeModel(MET_REPLY), record(kept=False))
    assert not answer_to(judge, Question(SEEN, NAMES_MARGIN)).trained_on


async def test_one_request_for_several_criteria_marks_each() -> None:
    reply = {"judgments": [{"id": number, "explanation": "", "answer": "MET"} for number in (1, 2)]}
    judge = aligned_judge(FakeModel(json.dumps(reply)))
    batch = await judge.judge_batch({1: Question(SEEN, NAMES_YEAR), 2: Question(SEEN, NAMES_MARGIN)})
    assert {number: answer.trained_on for number, answer in batch.answers.items()} == {1: False, 2: True}


def test_part_of_a_long_response_counts_as_the_whole() -> None:
    long = Submission(response="\n\n".join(f"Paragraph {number}. " + "x" * 900 for number in range(3)))
    judge = aligned_judge(FakeModel(MET_REPLY), record(trained_on=(judgment_digest(long, NAMES_MARGIN),)))
    parts = split_question(Question(long, NAMES_MARGIN), 1000)
    assert len(parts) > 1
    assert all(answer_to(judge, part).trained_on for part in parts)


# Everywhere a judge goes


def test_file_works_wherever_a_judge_goes(
    file: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.chdir(tmp_path)
    rubric = Rubric([NAMES_MARGIN])
    assert rubric.grade_sync("17.2%", grader=PerCriterionGrader("judge.json")).score == 1.0
    panel = PerCriterionGrader(judges=[file, "openai/m"])
    assert [member.name for member in panel.panel] == ["openai/m (aligned)", "openai/m"]
    assert rubric.grade_sync("17.2%", grader=panel).score == 1.0
    example = dspy.Example(question="Margin?").with_inputs("question")
    assert RubricMetric(rubric, judge=file)(example, dspy.Prediction(answer="17.2%")) == 1.0
    assert RubricRunnable(rubric, judge="judge.json").invoke({"output": "17.2%"}).score == 1.0
    feedback: Any = RubricEvaluator(rubric, judge=file)(inputs={"q": "Margin?"}, outputs={"answer": "17.2%"})
    assert feedback
    # The other judge of the panel is not aligned.
    assert sum("Aligned instructions." in call.prompt for call in server.calls) == len(server.calls) - 1 >= 5


# Damaged and hostile files


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def edited(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edited


DAMAGED: dict[str, Callable[[str], str]] = {
    "empty": lambda _text: "",
    "cut off": lambda text: text[: len(text) // 2],
    "doubled": lambda text: text + text,
    "a megabyte": lambda _text: "x" * 1_000_000,
    "nested": lambda _text: "[" * 1_000_000,
    "deep demo": lambda text: text.replace('"demos": []', '"demos": [' + '{"a":' * 5000 + "1" + "}" * 5000 + "]", 1),
    "a list": lambda _text: "[]",
    "key twice": lambda text: text.replace("{", '{"alignment": null, ', 1),
    "NaN": lambda text: text.replace('"alpha": 0.05', '"alpha": NaN'),
    "infinity": lambda text: text.replace('"alpha": 0.05', '"alpha": 1e999'),
    "surrogate": lambda text: text.replace("Aligned", "\\ud83d"),
    "schemas": edit(lambda content: content.update(schemas=3)),
    "schema": edit(lambda content: content["schemas"].update(criterion=[])),
    "no predictor": edit(lambda content: content.pop("option")),
    "predictor": edit(lambda content: content.update(option=[])),
    "instructions": edit(lambda content: content["option"]["signature"].update(instructions=5)),
    "demos": edit(lambda content: content["option"].update(demos="x")),
    "decision": edit(lambda content: content["option"].update(fields={"choice": [1, 2]})),
    "alignment": edit(lambda content: content.update(alignment="x")),
    "estimate": edit(lambda content: content["alignment"].update(gain=["a", None, None, 1])),
    "more": edit(lambda content: content["alignment"].update(api_base="http://evil.example")),
    "temperature": edit(lambda content: content.update(settings={"temperature": -1})),
    "address": edit(lambda content: content.update(settings={"api_base": "http://evil.example"})),
    "example": edit(lambda content: content.update(examples=[{"submission": 1}])),
    "model": edit(lambda content: content["alignment"].update(model="openai/\n")),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_file_is_an_error_that_names_it(file: Path, name: str) -> None:
    text = DAMAGED[name](file.read_text())
    assert text != file.read_text()
    file.write_text(text)
    with pytest.raises(ValueError, match=r"judge\.json: ") as caught:
        as_judge(file)
    assert len(str(caught.value)) < 600


def test_file_that_is_missing_a_folder_or_not_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.json").mkdir()
    for name in ("missing", "folder", "bytes"):
        with pytest.raises(ValueError, match=rf"{name}\.json: (cannot be read|is not text)"):
            as_judge(str(tmp_path / f"{name}.json"))


def test_file_cannot_send_the_key_to_another_server(file: Path, server: OpenAIServer) -> None:
    content = json.loads(file.read_text())
    # Nothing listens there: a request would fail.
    address = {"api_base": "http://127.0.0.1:9", "api_key": "x"}
    for name in content["schemas"]:
        content[name].update(config=address, lm={"model": "openai/m", **address}, kwargs=address, callbacks=[])
    content.update(config=address, lm=address)
    file.write_text(json.dumps(content))
    judge = LMJudge("openai/m", api_base=server.url, api_key="key").load(file, allow_unsafe_lm_state=True)
    assert judge_one(judge).verdict == "MET"
    assert len(server.calls) == 1
    assert not judge.criterion.config


def test_offline_judge_and_model_names_are_no_files() -> None:
    assert isinstance(as_judge("offline"), OfflineJudge)
    assert isinstance(as_judge("openai/json"), LMJudge)
