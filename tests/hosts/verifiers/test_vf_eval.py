"""The real `vf-eval` plays and scores the six responses, with a local server as policy and as judge.

It runs its harness by `uv`, which downloads packages: where `uv` or its index is missing, the test is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.model_server import reply
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC
from tests.openai_server import Call, OpenAIServer, Reply

pytest.importorskip("verifiers.v1", reason="verifiers is not installed: make test-host-verifiers")
ROOT = Path(__file__).resolve().parents[3]
SECONDS = 110

# A taskset with a reward of its own, which must survive a judge that fails.
TASKSET = f"""
import verifiers.v1 as vf

__all__ = ["SixTaskset"]


class SixTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def answered(self, trace: vf.Trace) -> float:
        return float(bool(trace.last_reply))


class SixTaskset(vf.Taskset[SixTask, vf.TasksetConfig]):
    def load(self):
        names = {[row.id for row in ROWS]!r}
        return [SixTask(vf.TaskData(name=name, prompt=f"{QUERY} [{{name}}]"), self.config.task) for name in names]
"""

# Its requirements are those of the program that verifiers runs.
PROBE = """# /// script
# requires-python = ">=3.10"
# dependencies = ["openai", "mcp==2.0.0", "httpx", "httpx2", "tenacity", "certifi"]
# ///
"""


def serve(call: Call) -> Reply:
    """Answer as the policy, which has to stream, and else as the judge."""
    if not call.body.get("stream"):
        return reply(call)
    text = next(row.response for row in ROWS if f"[{row.id}]" in call.prompt)
    chunk: dict[str, Any] = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "policy"}
    first = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    events = [{**chunk, "choices": [first]}, {**chunk, "choices": [last]}, {**chunk, "choices": [], "usage": usage}]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body.encode())}\r\n\r\n"
    return Reply(head=head.encode() + body.encode())


def environment(folder: Path) -> dict[str, str]:
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        pytest.skip("`uv` is not on the path, with which verifiers runs its harness")
    paths = {"PATH": f"{Path(uv).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    variables = {**os.environ, **paths, "UV_OFFLINE": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    # The certificates of `conftest.py` are for servers of this machine alone.
    variables.pop("SSL_CERT_FILE", None)
    probe = folder / "probe.py"
    probe.write_text(PROBE, encoding="utf-8")
    done = subprocess.run(
        [uv, "sync", "--script", str(probe), "-q", "--no-config"],
        env=variables, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"uv cannot install the harness of verifiers: {done.stderr.strip()[-200:]}")
    return variables


@pytest.mark.timeout(2 * SECONDS)
def test_vf_eval_records_rewards_metrics_and_the_error_of_a_failed_judge(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    (tmp_path / "six_taskset.py").write_text(TASKSET, encoding="utf-8")
    (tmp_path / "rubric.yaml").write_text(RUBRIC.to_yaml(), encoding="utf-8")
    with OpenAIServer(serve) as server:
        (tmp_path / "eval.toml").write_text(
            f"""
model = "policy"
num_rollouts = 2
[client]
base_url = "{server.url}"
[run]
dir = "run"
[env.taskset]
id = "six_taskset"
[[env.taskset.task.judges]]
id = "rubric_integrations_judge"
path = "rubric.yaml"
model = "judge"
base_url = "{server.url}"
[env.agent.harness]
id = "null"
[env.agent.runtime]
type = "subprocess"
""",
            encoding="utf-8",
        )
        command = [Path(sys.executable).with_name("vf-eval"), "@", "eval.toml", "--no-push", "--no-rich"]
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    files = list((tmp_path / "outputs" / "run").rglob("traces.jsonl"))
    assert files, done.stdout[-3000:] + done.stderr[-3000:]
    episodes = [json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()]
    traces = [trace for episode in episodes for trace in episode["traces"]]
    assert len(traces) == 2 * len(ROWS), done.stdout[-3000:]
    for trace in traces:
        name = trace["task"]["data"]["name"]
        score = next(row.score for row in ROWS if row.id == name)
        errors = [error["type"] for error in trace["errors"]]
        reward = trace["rewards"]["rubric"]
        line = f"| {name} | {reward and round(reward['score'], 2)} | {trace['metrics']} | {errors} |"
        print(line)
        assert trace["rewards"]["answered"]["score"] == 1.0, line
        assert reward == (None if score is None else {"score": pytest.approx(score), "weight": 1.0}), line
        assert bool(errors) == (score is None), line
        assert ("rubric.right" in trace["metrics"]) == (name not in ("unclear", "failing")), line
