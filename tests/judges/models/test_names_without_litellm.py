"""Models without LiteLLM, which is optional from DSPy 3.5 on. Here its import is blocked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import LMUnexpectedError
from dspy.utils.lazy_import import require
from langchain_openai import ChatOpenAI

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge, ModelSettings, as_judge
from rubric_integrations.judges.models.errors import failure_of_call
from rubric_integrations.scoring.judgment import NO_SPEND
from tests.judges.questions import BINARY, MET_REPLY
from tests.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.usefixtures("without_litellm")


class WithoutLiteLLM:
    """A finder of modules that finds all but LiteLLM."""

    def __init__(self, finder: Any):
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, name: str, *arguments: Any) -> Any:
        return None if name.partition(".")[0] == "litellm" else self._finder.find_spec(name, *arguments)


@pytest.fixture
def without_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "litellm":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [WithoutLiteLLM(finder) for finder in sys.meta_path])
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")


HEADERS = ModelSettings(headers={"X-Team": "a"})
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "headers": (lambda: LMJudge("openai/mock", settings=HEADERS), "`headers` are set"),
    "headers of an LM": (lambda: as_judge(dspy.LM("openai/m", extra_headers={"a": "b"})), "`headers` are set"),
    "organization": (lambda: as_judge(dspy.LM("openai/m", organization="o")), "`organization` is set"),
    "engine": (lambda: as_judge(dspy.LM("openai/m", engine="litellm")), "`engine` is 'litellm'"),
    "provider": (lambda: LMJudge("together_ai/qwen3"), "DSPy has no client for this provider"),
    "provider of an LM": (lambda: LMJudge(dspy.LM("mistral/m")), "DSPy has no client for this provider"),
    "provider with a server": (
        lambda: LMJudge("litellm_proxy/m", api_base="http://localhost:1/v1"), "DSPy has no client for this provider",
    ),
    "text": (lambda: as_judge(dspy.LM("openai/m", model_type="text")), "`model_type` is 'text'"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED)
def test_model_that_needs_litellm_is_refused_with_the_command_that_installs_it(
    make: Callable[[], object], reason: str
) -> None:
    with pytest.raises(ValueError, match=f"needs LiteLLM, because {reason}") as error:
        make()
    assert str(error.value).endswith("LiteLLM is not installed: pip install litellm")
    assert "\n" not in str(error.value)


ROUTES: dict[str, Callable[[str], Any]] = {
    "name": lambda url: LMJudge("openai/mock", api_base=url),
    "dspy.LM": lambda url: LMJudge(dspy.LM("openai/mock", api_base=url, api_key="k", cache=False)),
    "Ollama": lambda url: LMJudge("ollama_chat/mock", api_base=url),
    "another provider": lambda url: LMJudge("groq/mock", api_base=url, api_key="k"),
    "LangChain": lambda url: as_judge(ChatOpenAI(model="mock", base_url=url, api_key="k")),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("make", ROUTES.values(), ids=ROUTES)
def test_model_that_needs_no_litellm_grades(server: OpenAIServer, make: Callable[[str], Any]) -> None:
    server.script = lambda _call: Reply("MET")
    assert Rubric([BINARY]).grade_sync("The Nile.", grader=PerCriterionGrader(make(server.url))).score == 1.0


def test_server_of_the_environment_needs_no_litellm(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.script = lambda _call: Reply("MET")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert Rubric([BINARY]).grade_sync("The Nile.", grader=PerCriterionGrader(LMJudge("openai/mock"))).score == 1.0


async def generate(system_prompt: str, user_prompt: str) -> str:
    return MET_REPLY


def test_function_needs_no_litellm() -> None:
    assert Rubric([BINARY]).grade_sync("The Nile.", grader=PerCriterionGrader(as_judge(generate))).score == 1.0


def test_missing_litellm_of_a_call_is_a_wrong_setting_with_the_command() -> None:
    litellm = require("litellm", extra="litellm", feature="dspy.LM")
    with pytest.raises(ImportError) as error:
        litellm.completion()
    in_dspy = LMUnexpectedError(f"[openai/mock] {error.value}", model="openai/mock")
    for raised in (error.value, in_dspy, ModuleNotFoundError("No module named 'litellm'")):
        failure = failure_of_call(raised, NO_SPEND, {}, about_reply=False)
        assert (failure.kind, failure.unreachable) == ("config", True)
        assert failure.message.endswith(": run `pip install litellm`")
