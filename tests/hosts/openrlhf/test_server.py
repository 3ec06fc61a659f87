"""The client of OpenRLHF, which needs neither torch nor the rest of it: `pip install --no-deps openrlhf==0.11.2`."""

from __future__ import annotations

import importlib.util
import logging
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hosts.six_responses import QUERY, ROWS
from tests.server.serving import serving

PROMPT = f"<|im_start|>user\n{QUERY}<|im_end|>\n<|im_start|>assistant\n"
TOKEN = "0123456789-secret-token"


class CharacterTokenizer:
    """A tokenizer whose tokens are characters."""

    def __call__(self, text: str, **_settings: object) -> dict[str, Any]:
        return {"input_ids": [SimpleNamespace(tolist=lambda: [ord(character) for character in text])]}

    def decode(self, tokens: list[int], **_settings: object) -> str:
        return "".join(map(chr, tokens))


class ScriptedEngine:
    """An engine that generates one text."""

    def __init__(self, text: str):
        self._tokens = [ord(character) for character in text]

    async def generate(self, *_arguments: object, **_settings: object) -> Any:
        output = SimpleNamespace(token_ids=self._tokens, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the client, loaded without the package, which imports torch."""
    spec = importlib.util.find_spec("openrlhf")
    if spec is None:
        pytest.skip("OpenRLHF is not installed: pip install --no-deps openrlhf==0.11.2")
    monkeypatch.setitem(sys.modules, "openrlhf", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "openrlhf.utils", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "openrlhf.utils.logging_utils", SimpleNamespace(init_logger=logging.getLogger))
    path = Path(next(iter(spec.submodule_search_locations or ()))) / "utils/agent.py"
    module_spec = importlib.util.spec_from_file_location("openrlhf_client", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module: Any = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)

    async def no_wait(_seconds: float) -> None:
        """Replaces the second between two attempts."""

    monkeypatch.setattr(module.asyncio, "sleep", no_wait)
    return module


@pytest.mark.asyncio
@pytest.mark.parametrize("nan_on_failure", [False, True])
async def test_client_gets_rewards_and_none_or_nan_for_a_failure(
    client: Any, nan_on_failure: bool, record_property: Any
) -> None:
    lines: list[str] = []
    async with serving(app_options={"token": TOKEN, "nan_on_failure": nan_on_failure}) as server:
        executor = client.SingleTurnAgentExecutor([f"http://any:{TOKEN}@127.0.0.1:{server.port}/get_reward"])
        settings = SimpleNamespace(max_tokens=500, logprobs=None)
        for row in ROWS:
            engine = ScriptedEngine(f"{row.response}<|im_end|>")
            output = await executor.execute(PROMPT, "", settings, 4_000, CharacterTokenizer(), engine)
            lines.append(f"{row.id:13} {output['reward']}")
            if row.score is not None:
                assert output["reward"] == output["scores"] == [pytest.approx(row.score)]
                assert len(output["extra_logs"]) == 5
            elif nan_on_failure:
                assert math.isnan(output["reward"][0])
            else:
                assert output["reward"] is None
        metrics = (await server.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})).text
        assert ('endpoint="/get_reward",status="503"} 5' in metrics) is not nan_on_failure
    record_property("shown", "what arrives in OpenRLHF:\n" + "\n".join(lines))
