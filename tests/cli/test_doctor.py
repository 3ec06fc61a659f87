"""The command `doctor`: versions, extras, the senders of requests, and API keys without their values."""

from __future__ import annotations

import platform
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from rubric_integrations._util.lazy import EXTRAS
from rubric_integrations.cli import commands as doctor_module
from rubric_integrations.cli.commands import API_KEYS, PACKAGES
from rubric_integrations.judges import fast_path
from tests.cli.commands import run

CANARY = "sk-canary-5f1d9c"
# Extras for work on this package, which no feature of it needs.
DEVELOPMENT_EXTRAS = {"bench", "dev", "docs", "test"}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*API_KEYS, "OPENAI_BASE_URL", "OPENAI_API_BASE", "OLLAMA_API_BASE", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_doctor_prints_the_installed_versions() -> None:
    result = run("doctor")
    assert result.exit_code == 0, result.output
    for text in (platform.python_version(), *PACKAGES, *map(version, PACKAGES)):
        assert text in result.stdout
    assert "API keys" in result.stdout
    assert "none" in result.stdout


def test_doctor_with_keys_prints_their_names_and_never_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in API_KEYS:
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    result = run("doctor")
    # A table cell wraps between words.
    text = " ".join(result.stdout.replace("│", " ").split())
    assert "OPENAI_API_KEY (empty)" in text
    assert all(name in text for name in API_KEYS)
    assert CANARY not in "".join(result.output.replace("│", "").split())


def test_doctor_names_who_sends_requests_and_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    monkeypatch.setenv("OLLAMA_HOST", "gpu:x")
    text = " ".join(run("doctor").stdout.replace("│", " ").split())
    assert "openai/... sent by this library to http://localhost:1/v1" in text
    assert "anthropic/... sent by this library to https://api.anthropic.com" in text
    assert "ollama_chat/... OLLAMA_HOST is 'gpu:x'" in text
    monkeypatch.setattr(fast_path, "fast_path_problem", lambda: "DSPy 9.9 lacks a module")
    text = " ".join(run("doctor").stdout.replace("│", " ").split())
    assert "openai/... sent by LiteLLM to http://localhost:1/v1, because DSPy 9.9 lacks a module" in text


def test_doctor_without_the_packages_of_an_extra_prints_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "EXTRAS", {"report": ("no-such-package", "jinja2")})
    result = run("doctor")
    assert result.exit_code == 0
    assert "not installed (no-such-package): pip install no-such-package" in result.stdout


def test_doctor_finds_a_package_that_is_installed_with_an_extra_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "EXTRAS", {"one": ("jinja2[i18n]",), "two": ("none[x]",)})
    result = run("doctor")
    assert f"jinja2[i18n] {version('jinja2')}" in result.stdout
    assert "not installed (none[x]): pip install 'none[x]'" in result.stdout


def test_extras_are_those_of_pyproject() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = pyproject["project"]["optional-dependencies"]
    packages = {name: tuple(p.partition(">")[0] for p in needs) for name, needs in extras.items()}
    assert {name: needs for name, needs in packages.items() if name not in DEVELOPMENT_EXTRAS} == EXTRAS


def test_doctor_tells_whether_the_name_of_a_judge_names_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("openai/gpt-5", "openai/gpt-5-2025-08-07", "azure/mine")
    text = " ".join(run("doctor", *(part for name in names for part in ("--judge", name))).stdout.split())
    assert "openai/gpt-5 │ names no version: its provider may replace the model behind it" in text
    assert "openai/gpt-5-2025-08-07 │ names a version" in text
    assert "azure/mine │ is not known to name a version: its server decides" in text
    # The environment may name a server of the user.
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1")
    assert "openai/gpt-5 │ is not known" in " ".join(run("doctor", "--judge", "openai/gpt-5").stdout.split())
