"""The fingerprint of a model judge: everything that its answers depend on, and no secret."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import dspy
import pytest

from rubric_integrations import Criterion, Submission
from rubric_integrations.judges import LMJudge, ModelSettings, lm_judge
from rubric_integrations.scoring import LabelledJudgment
from tests.fakes import judge_with
from tests.judges.questions import BINARY

SECRETS: Any = {"api_key": "S1", "aws_secret_access_key": "S2", "azure_ad_token": "S3", "extra_headers": {"x": "S4"}}


def test_fingerprint_contains_no_secret_and_does_not_depend_on_one() -> None:
    lm = dspy.LM("openai/mock", api_base="http://me:S5@host/v1", max_tokens=77, temperature=0.5, **SECRETS)
    fingerprint = LMJudge(lm).fingerprint()
    assert fingerprint is not None
    assert not [secret for secret in ("S1", "S2", "S3", "S4", "S5") if secret in fingerprint]
    assert "http://host" in fingerprint
    assert "77" in fingerprint
    assert fingerprint != LMJudge(lm.copy(max_tokens=78)).fingerprint()
    assert fingerprint == LMJudge(lm.copy(azure_ad_token="other", api_base="http://you:S6@host/v1")).fingerprint()


EXAMPLE = LabelledJudgment(submission=Submission(response="a"), criterion=BINARY, verdict="MET")


@pytest.mark.parametrize(
    "change",
    [
        {"model": "openai/other"}, {"api_base": "http://host/v1"}, {"temperature": 0.5}, {"max_tokens": 9}, {"seed": 1},
        {"reasoning_effort": "low"}, {"system_prompt": "Be strict."}, {"examples": [EXAMPLE]}, {"max_examples": 2},
        {"confidence": True}, {"headers": {"X-Route": "a"}},
    ],
)  # fmt: skip
def test_fingerprint_depends_on_every_setting_but_the_key(change: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"model": "openai/mock", "api_key": "k"}
    changed: dict[str, Any] = plain | change
    another_key: dict[str, Any] = plain | {"api_key": "another"}
    assert judge_with(**changed).fingerprint() != judge_with(**plain).fingerprint()
    assert judge_with(**another_key).fingerprint() == judge_with(**plain).fingerprint()


def nameless_function() -> Any:
    async def reply(system: str, user: str) -> str:
        return f"{system} {user} {nameless}"

    nameless = "a closure, which no name identifies"
    return reply


def test_name_stands_for_the_model_its_address_and_its_client() -> None:
    def fingerprint(model: Any = "openai/m", **settings: Any) -> str | None:
        return judge_with(model, name="llama", **settings).fingerprint()

    one = fingerprint(api_base="http://one/v1", temperature=0)
    assert one == fingerprint(api_base="https://two:8000/openai/v1?version=1", temperature=0)
    assert one == fingerprint("hosted_vllm/llama", api_base="http://three/v1", temperature=0)
    assert fingerprint(nameless_function()) is not None
    assert "llama" in str(one)
    assert "http" not in str(one)
    assert one != LMJudge("openai/m", name="qwen", api_base="http://one/v1", temperature=0).fingerprint()
    assert one != LMJudge("ollama_chat/llama", temperature=0).fingerprint()
    for change in (
        {"max_tokens": 9},
        {"temperature": 0.5},
        {"headers": {"X-Route": "a"}},
        {"system_prompt": "Be strict."},
    ):
        assert one != fingerprint(**{"temperature": 0, **change})


def test_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="`name` is empty"):
        LMJudge("openai/m", name=" ")


def test_fingerprint_depends_on_headers_but_shows_none() -> None:
    def fingerprint(**headers: str) -> str | None:
        return LMJudge("openai/mock", settings=ModelSettings(headers=headers or None)).fingerprint()

    assert "S3CRET" not in str(fingerprint(Route="S3CRET"))
    assert "oute" not in str(fingerprint(Route="S3CRET"))
    assert fingerprint(Route="S3CRET") != fingerprint(Route="another")
    assert fingerprint(Route="a", team="b") == fingerprint(Team="b", route="a")
    assert fingerprint(Route="a") != fingerprint(Team="a") != fingerprint()
    assert fingerprint(Authorization="a") == fingerprint(Authorization="b") == fingerprint()


CREDENTIALS = [
    "api_key", "X-Api-Key", "openai_api_key", "APIKey", "apikey", "Ocp-Apim-Subscription-Key", "prompt_cache_key",
    "aws_secret_access_key", "client_secret", "azure_ad_token", "X-Amz-Security-Token", "PGPASSWORD", "password",
    "Authorization", "x-auth", "vertex_credentials", "cookies", "Set-Cookie", "X-Signature", "sig", "OPENAI_API_KEY_2",
]  # fmt: skip
NO_CREDENTIALS = [
    "max_tokens", "tokenizer", "thinking_token_budget", "author", "x-model", "X-Team", "keyboard", "session_id",
    "x-session-affinity", "design", "tenant", "organization", "metadata", "user",
]  # fmt: skip


@pytest.mark.parametrize("place", ["extra_headers", "extra_body", "extra_query", "metadata"])
def test_fingerprint_has_no_credential_and_depends_on_everything_else(place: str) -> None:
    def fingerprint(name: str, value: str) -> str | None:
        settings: Any = {place: {name: value}}
        return LMJudge(dspy.LM("openai/m", **settings)).fingerprint()

    plain = LMJudge(dspy.LM("openai/m")).fingerprint()
    assert [name for name in CREDENTIALS if fingerprint(name, "a") != plain] == []
    assert [name for name in NO_CREDENTIALS if len({fingerprint(name, "a"), fingerprint(name, "b"), plain}) < 3] == []


@pytest.mark.parametrize("value", ["Bearer 1234", "basic bWU6MTIzNA==", "Token 1234"])
def test_fingerprint_has_no_credential_that_only_its_scheme_shows(value: str) -> None:
    assert (
        LMJudge("openai/mock", settings=ModelSettings(headers={"X-Team": value})).fingerprint()
        == LMJudge("openai/mock").fingerprint()
    )


def test_fingerprint_does_not_depend_on_the_service_tier() -> None:
    # The tier changes the price and the delay of an answer, and not the answer: what is stored stays valid.
    assert (
        LMJudge("openai/mock", settings=ModelSettings(service_tier="flex")).fingerprint()
        == LMJudge("openai/mock").fingerprint()
    )


def test_fingerprint_is_the_same_for_the_default_temperature_and_for_0() -> None:
    fingerprints = {LMJudge("openai/mock", temperature=zero).fingerprint() for zero in (None, 0, 0.0)}
    assert len(fingerprints) == 1


def test_tags_of_an_example_which_no_judge_sees_do_not_change_the_fingerprint() -> None:
    def fingerprint(*tags: str) -> str | None:
        criterion = Criterion(requirement="Says 42", tags=tags)
        label = LabelledJudgment(submission=Submission(response="It is 42."), criterion=criterion, verdict="MET")
        return LMJudge("openai/mock", examples=[label]).fingerprint()

    assert fingerprint() == fingerprint("axis:accuracy")


def test_origin_of_an_example_which_no_judge_sees_does_not_change_the_fingerprint() -> None:
    label = LabelledJudgment(submission=Submission(response="42"), criterion=Criterion(requirement="a"), verdict="MET")
    origin = {"id": "1", "rater": "Ana", "sampled": "random", "judged": "MET", "blind": True, "digest": "0"}
    judges = [LMJudge("openai/mock", examples=[each]) for each in (label, label.model_copy(update=origin))]
    assert judges[0].fingerprint() == judges[1].fingerprint()


def test_field_of_an_example_changes_the_fingerprint_only_if_a_prompt_shows_it() -> None:
    def fingerprint(**fields: Any) -> str | None:
        criterion = Criterion(requirement="Says 42", **fields)
        label = LabelledJudgment(submission=Submission(response="It is 42."), criterion=criterion, verdict="MET")
        return LMJudge("openai/mock", examples=[label]).fingerprint()

    assert fingerprint() == fingerprint(judge="second") != fingerprint(operator="supports")


def test_fingerprint_of_a_judge_that_did_not_change_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    compute = lm_judge.fingerprint_model_judge

    def count(*arguments: Any) -> str | None:
        calls.append(arguments)
        return compute(*arguments)

    monkeypatch.setattr(lm_judge, "fingerprint_model_judge", count)
    judge = LMJudge("openai/mock", examples=[EXAMPLE])
    assert len({judge.fingerprint() for _ in range(20)}) == len(calls) == 1


def predictor(judge: LMJudge, name: str) -> Any:
    return getattr(judge, name)


def load_strict_prompts(judge: LMJudge, folder: Path) -> None:
    LMJudge("openai/mock", system_prompt="Be strict.").save(folder / "judge.json")
    judge.load(folder / "judge.json")


CHANGES: dict[str, Callable[[LMJudge, Path], Any]] = {
    "loaded": load_strict_prompts,
    "instructions": lambda judge, _: setattr(
        judge.criterion, "signature", predictor(judge, "criterion").signature.with_instructions("Be strict.")
    ),
    "predictor": lambda judge, _: setattr(judge, "scale", dspy.Predict("scale, submission -> score")),
    "demo": lambda judge, _: predictor(judge, "criterion").demos.append(
        dspy.Example(criterion="Is kind", verdict="MET")
    ),
    "changed demo": lambda judge, _: predictor(judge, "scale").demos[0].update(reason="It thanks the reader."),
    "examples": lambda judge, _: setattr(judge, "examples", (EXAMPLE, EXAMPLE)),
    "example": lambda judge, _: cast("list[Any]", judge.examples).append(EXAMPLE),
    "max_examples": lambda judge, _: setattr(judge, "max_examples", 1),
    "name": lambda judge, _: setattr(judge, "name", "llama"),
    "model": lambda judge, _: setattr(judge, "lm", judge.lm.copy(model="openai/other")),
    "setting": lambda judge, _: judge.lm.kwargs.update(seed=9),
    "nested setting": lambda judge, _: judge.lm.kwargs["extra_body"].update(top_k=9),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_fingerprint_follows_a_change_of_the_judge(change: Callable[[LMJudge, Path], object], tmp_path: Path) -> None:
    judge = LMJudge(dspy.LM("openai/mock", extra_body={"top_k": 1}), examples=[EXAMPLE])
    judge.examples = [EXAMPLE]
    judge.scale.demos.append({"criterion": "Is kind", "score": 1})
    before = judge.fingerprint()
    change(judge, tmp_path)
    assert judge.fingerprint() != before
    assert judge.fingerprint() == copy.copy(judge).fingerprint()


def test_fingerprint_follows_the_server_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = LMJudge("openai/mock", api_key="k")
    before = judge.fingerprint()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://other/v1")
    assert judge.fingerprint() != before


def test_fingerprints_of_a_judge_and_its_changed_copy_differ() -> None:
    judge = LMJudge("openai/mock")
    assert judge.fingerprint() == judge.with_examples([]).fingerprint() != judge.with_examples([EXAMPLE]).fingerprint()
    assert judge.fingerprint() == LMJudge("openai/mock").fingerprint()
