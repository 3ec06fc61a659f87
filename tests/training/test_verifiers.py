"""The judge plugin of verifiers without verifiers; `tests/hosts/verifiers` has the tests with it."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from rubric_integrations.training.verifiers import make_judge


def test_plugin_without_verifiers_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    monkeypatch.delitem(sys.modules, "rubric_integrations_judge", raising=False)
    with pytest.raises(ImportError, match="pip install verifiers"):
        import_module("rubric_integrations_judge")


def test_sampling_without_an_endpoint_reaches_the_model() -> None:
    config = SimpleNamespace(model="openai/judge", base_url="", sampling=_Sampling(temperature=0.5, seed=3))
    judge = make_judge(config)
    assert (judge.lm.kwargs["temperature"], judge.lm.kwargs["seed"]) == (0.5, 3)


@pytest.mark.parametrize(("model", "settings"), [("offline", {"seed": 3}), ("openai/judge", {})])
def test_judge_without_a_model_or_sampling_is_passed_by_its_name(model: str, settings: dict[str, int]) -> None:
    assert make_judge(SimpleNamespace(model=model, base_url="", sampling=_Sampling(**settings))) == model


class _Sampling(BaseModel):
    temperature: float | None = None
    seed: int | None = None
