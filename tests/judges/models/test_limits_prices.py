"""The price list: loaded outside of a timeout, and an upper bound on the cost of a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15
from dspy.clients import costs, model_metadata
from dspy.clients.costs import estimate_cost

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge, ModelSettings
from rubric_integrations.judges.models.limits import highest_cost, own_bytes
from rubric_integrations.judges.spend import TokenPrice, prompt_bytes
from rubric_integrations.scoring import LabelledJudgment
from tests.graders.rubrics import rubric_of
from tests.openai_server import OpenAIServer


def test_price_list_that_loads_slowly_does_not_end_a_judgment(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = model_metadata._load()  # pyright: ignore[reportPrivateUsage]
    loads = 0

    def load_slowly() -> object:
        nonlocal loads
        if model_metadata._data is None:  # pyright: ignore[reportPrivateUsage]
            loads += 1
            time.sleep(1.1)
            monkeypatch.setattr(model_metadata, "_data", limits)
        return limits

    monkeypatch.setattr(model_metadata, "_data", None)
    monkeypatch.setattr(model_metadata, "_load", load_slowly)
    judge = LMJudge("openai/gpt-4.1", api_base=server.url)
    grader = PerCriterionGrader(judge, max_retries=0, limits=CallLimits(timeout=1.0))
    assert rubric_of(2).grade_sync("text", grader=grader).score == 1.0
    assert loads >= 1


LABEL = LabelledJudgment(
    submission=Submission(response="Thank you."), criterion=Criterion(requirement="Is kind"), verdict="MET"
)
TEXTS = ["text", "x" * 20_000, "\N{PARTY POPPER}" * 3_000, "[[ ## verdict ## ]]\n" * 1_000, "\\" * 5_000]


@pytest.mark.parametrize(
    ("text", "system_prompt"), [*((text, text) for text in TEXTS), ("text", "Be strict. " * 9_000)]
)
def test_bytes_of_a_prompt_are_never_underestimated(server: OpenAIServer, text: str, system_prompt: str) -> None:
    sizes: list[int] = []

    class WatchedJudge(LMJudge):
        def highest_cost(
            self, text_bytes: int, reply_tokens: int | None = None, price: TokenPrice | None = None
        ) -> float | None:
            sizes.append(prompt_bytes(text_bytes, own_bytes(self.dump_state(), self.examples)))
            return 0.0

    criterion = Criterion(requirement="Is kind")
    label = LabelledJudgment(submission=Submission(response=text), criterion=criterion, verdict="MET")
    judge = WatchedJudge("openai/gpt-4.1", api_base=server.url, examples=[label], system_prompt=system_prompt)
    list(grade_many([text], Rubric([criterion]), PerCriterionGrader(judge), max_cost=1.0))
    (call,) = server.calls
    assert sum(len(message["content"].encode()) for message in call.body["messages"]) <= sizes[0]


def test_highest_cost_is_that_of_the_whole_prompt_and_the_longest_reply() -> None:
    # $2 and $8 per million tokens of gpt-4.1.
    assert highest_cost(
        LMJudge("openai/gpt-4.1", settings=ModelSettings(max_tokens=1_000)).lm, 1_000_000
    ) == pytest.approx(2 + 0.008)
    assert highest_cost(LMJudge("openai/gpt-4.1").lm, 0) == pytest.approx(32_768 * 8e-6)
    assert highest_cost(LMJudge("openai/no-such-model").lm, 0) is None


class CountingJudge(LMJudge):
    """A judge that counts how often its state is serialized."""

    serialized = 0

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        self.serialized += 1
        return super().dump_state(json_mode=json_mode)


def test_cost_bounds_of_many_questions_serialize_the_judge_once() -> None:
    judge = CountingJudge("openai/gpt-4.1", examples=[LABEL])
    bounds = {judge.highest_cost(text_bytes) for text_bytes in range(20)}
    assert len(bounds) == 20
    assert judge.serialized == 1


def predictor(judge: LMJudge, name: str) -> Any:
    return getattr(judge, name)


def load_other_prompts(judge: LMJudge, folder: Path) -> None:
    LMJudge("openai/gpt-4.1", system_prompt="Be strict. " * 9).save(folder / "judge.json")
    judge.load(folder / "judge.json")


CHANGES: dict[str, Callable[[LMJudge, Path], Any]] = {
    "loaded": load_other_prompts,
    "instructions": lambda judge, _: setattr(
        judge.criterion, "signature", predictor(judge, "criterion").signature.with_instructions("Be strict. " * 9)
    ),
    "demo": lambda judge, _: predictor(judge, "criterion").demos.append(
        dspy.Example(criterion="Is kind", verdict="MET")
    ),
    "changed demo": lambda judge, _: predictor(judge, "scale").demos[0].update(reason="It thanks the reader."),
    "trace": lambda judge, _: predictor(judge, "option").traces.append({"criterion": "Is kind"}),
    "examples": lambda judge, _: setattr(judge, "examples", (LABEL, LABEL)),
    "model": lambda judge, _: setattr(judge, "lm", dspy.LM("openai/gpt-4.1-mini")),
    "setting": lambda judge, _: judge.lm.kwargs.update(max_tokens=9),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_cost_bound_follows_a_change_of_the_judge(change: Callable[[LMJudge, Path], object], tmp_path: Path) -> None:
    judge = LMJudge("openai/gpt-4.1", examples=[LABEL])
    judge.scale.demos.append({"criterion": "Is kind", "score": 1})
    before = judge.highest_cost(1_000)
    change(judge, tmp_path)
    after = judge.highest_cost(1_000)
    assert after != before
    assert after == highest_cost(judge.lm, prompt_bytes(1_000, own_bytes(judge.dump_state(), judge.examples)))


def test_cost_bounds_of_many_sizes_look_up_few_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups: list[str] = []
    model_info = model_metadata.model_info

    def count(provider: str, model: str, **options: Any) -> Any:
        lookups.append(model)
        return model_info(provider, model, **options)

    monkeypatch.setattr(model_metadata, "model_info", count)
    monkeypatch.setattr(costs, "estimate_cost", count_estimates(lookups))
    lm = LMJudge("openai/gpt-4.1-nano", settings=ModelSettings(max_tokens=7)).lm
    bounds = [highest_cost(lm, size) for size in range(12_001, 13_001)]
    assert len(set(bounds)) == 1_000
    assert len(lookups) <= 4


def count_estimates(lookups: list[str]) -> Callable[..., Any]:
    def estimate(*arguments: Any, requested_model: str, **options: Any) -> Any:
        lookups.append(requested_model)
        return estimate_cost(*arguments, requested_model=requested_model, **options)

    return estimate


@pytest.mark.parametrize("tier", [None, "flex", "priority"])
@pytest.mark.parametrize(
    "model", ["openai/gpt-4.1", "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro"]
)
def test_cost_bound_is_the_estimate_of_dspy_at_any_size(model: str, tier: str | None) -> None:
    lm = dspy.LM(model, max_tokens=50_000, temperature=None, service_tier=tier)
    provider, _, name = model.partition("/")
    for size in (1, 12_345, 127_999, 128_001, 200_000, 200_001, 1_234_567):
        message = lm15.Message(role="assistant", parts=(lm15.TextPart(text=""),))
        usage = lm15.Usage(input_tokens=size, output_tokens=50_000)
        data: Any = {"service_tier": tier}
        reply = lm15.Response(None, name, message, finish_reason="stop", usage=usage, provider_data=data)
        expected = estimate_cost(reply, provider=provider, requested_model=name)[0]
        bound = highest_cost(lm, size)
        assert bound == (expected if expected is None else pytest.approx(expected, rel=1e-12))
