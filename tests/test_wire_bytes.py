"""Requests to models are, byte for byte, those that were recorded, and fingerprints are the recorded ones.

A difference means that the stored judgments of users are requested again, or that a prompt has changed. If it is
intended, record again, and compare the bodies of both records:

    python -m tests.test_wire_bytes tests/wire_bytes.json [bodies.json]
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import warnings
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wire

RECORDED = Path(__file__).with_name("wire_bytes.json")
# The libraries that write a part of a request, whose other releases may write it in another way.
LIBRARIES = ("dspy", "langchain-openai", "litellm", "openai", "pydantic")


def installed_versions() -> dict[str, str | None]:
    """Return the versions of the libraries that write requests; None for one that is not installed."""
    versions: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


async def record(bodies: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send the questions of every case, and return the digests of the requests, and the fingerprints.

    Args:
        bodies: Receives the requests of every case.
    """
    from tests import wire_corpus
    from tests.openai_server import OpenAIServer

    fix_fences()
    digests: dict[str, str] = {}
    with OpenAIServer() as server, tempfile.TemporaryDirectory() as folder:
        for name, run in wire_corpus.CASES.items():
            recorder = wire_corpus.Recorder(server)
            try:
                await run(recorder, Path(folder))
            except Exception as error:
                raise RuntimeError(f"the case {name!r} failed") from error
            entries = recorder.take()
            if bodies is not None:
                bodies[name] = entries
            text = json.dumps(entries, sort_keys=True).replace(f":{server.url.split(':')[-1]}", "")
            digests[name] = f"{len(entries)} {sha256(text.encode()).hexdigest()}"
        fingerprints = wire_corpus.fingerprints(Path(folder))
    return {"versions": installed_versions(), "requests": digests, "fingerprints": fingerprints}


def fix_fences() -> None:
    """Give the fences of the prompts the same codes in every process."""
    modules = [module for name, module in sys.modules.items() if name.startswith("rubric_integrations.")]
    (module,) = [module for module in modules if {"_SECRET", "fence_code"} <= vars(module).keys()]
    vars(module)["_SECRET"] = bytes(16)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    content = json.loads(RECORDED.read_text(encoding="utf-8"))
    if content["versions"] != installed_versions():
        pytest.skip(f"the requests were recorded with {content['versions']}, which may write them in another way")
    return content


@pytest.fixture(scope="module")
def current(recorded: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What this version sends, in a process of its own: prompts of other tests may be cached with other codes."""
    path = tmp_path_factory.mktemp("wire") / "wire.json"
    command = [sys.executable, "-m", "tests.test_wire_bytes", str(path)]
    done = subprocess.run(command, cwd=RECORDED.parents[1], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text(encoding="utf-8"))


def test_requests_equal_the_recorded_ones_byte_for_byte(recorded: dict[str, Any], current: dict[str, Any]) -> None:
    assert current["requests"] == recorded["requests"]


def test_fingerprints_equal_the_recorded_ones(recorded: dict[str, Any], current: dict[str, Any]) -> None:
    assert current["fingerprints"] == recorded["fingerprints"]


def main() -> None:
    """Record to a file, and the bodies to another."""
    os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "DSPY_CACHEDIR": tempfile.mkdtemp()}
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("certificate.pem"))
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL"))]:
        del os.environ[name]
    # The keys of two providers, without which their models could not be made.
    os.environ |= {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    warnings.simplefilter("ignore")
    bodies: dict[str, Any] = {}
    content = json.dumps(asyncio.run(record(bodies)), indent=1, sort_keys=True)
    Path(sys.argv[1]).write_text(content + "\n", encoding="utf-8")
    for path in sys.argv[2:]:
        Path(path).write_text(json.dumps(bodies, indent=1, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
