"""The registry of all commands, in the order of `--help`, and the command `doctor`.

`doctor` prints versions, installed extras, and who sends the requests of models. It also prints which API keys are set,
without their values.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from rubric_integrations._util.lazy import EXTRAS
from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.batches import collect, submit
from rubric_integrations.cli.benchmark import benchmark
from rubric_integrations.cli.cases import test
from rubric_integrations.cli.console import out
from rubric_integrations.cli.drafting import draft
from rubric_integrations.cli.grade import grade
from rubric_integrations.cli.judge import agree, align, calibrate, certify, probe
from rubric_integrations.cli.judge_changes import compare_judges, drift
from rubric_integrations.cli.labelling import label, plan
from rubric_integrations.cli.preview import preview
from rubric_integrations.cli.rubrics import convert, library, migrate, schema, validate
from rubric_integrations.cli.runs import compare, import_, report, rescore, show
from rubric_integrations.cli.serve import serve

PACKAGES = ("rubric-integrations", "dspy", "langchain-core", "pydantic")

API_KEYS = (
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AZURE_API_KEY", "AZURE_OPENAI_API_KEY",
    "AZURE_AI_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "CEREBRAS_API_KEY", "COHERE_API_KEY",
    "DATABRICKS_TOKEN", "DATABRICKS_API_KEY", "DEEPSEEK_API_KEY", "FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY",
    "GROQ_API_KEY", "HF_TOKEN", "HUGGINGFACE_API_KEY", "META_API_KEY", "MISTRAL_API_KEY", "MOONSHOT_API_KEY",
    "MOONSHOTAI_API_KEY", "OPENROUTER_API_KEY", "PERPLEXITY_API_KEY", "PERPLEXITYAI_API_KEY", "TOGETHER_API_KEY",
    "TOGETHERAI_API_KEY", "TYPESAFE_API_KEY", "XAI_API_KEY", "ZAI_API_KEY", "HOSTED_VLLM_API_KEY", "OLLAMA_API_KEY",
    "RUBRIC_INTEGRATIONS_API_KEY",
)  # fmt: skip
"""The environment variables with the credentials of model providers and of a user's own server."""


def doctor(
    judge: Annotated[
        list[str] | None,
        typer.Option(help="Also tell whether the name of this model names a version; repeat it for more."),
    ] = None,
) -> None:
    """Print versions, installed extras, who sends the requests of models where to, and which API keys are set.

    A request that this library sends takes about an eighth of the CPU time that it takes through DSPy or LiteLLM.

    Uses no network and never prints the value of a key. Attach the output to a bug report.

    Exit codes: 0 done; 2 bad usage.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    sections = (_versions(), _extras(), _paths(), {"API keys": _api_keys()}, _names(judge or ()))
    for section in sections:
        for name, state in section.items():
            table.add_row(Text(name), plain(state))
        table.add_section()
    out.print(table)


def _versions() -> dict[str, str]:
    return {"Python": platform.python_version(), **{name: _version(name) or "not installed" for name in PACKAGES}}


def _extras() -> dict[str, str]:
    rows: dict[str, str] = {}
    for extra, packages in EXTRAS.items():
        versions = {package: _version(package) for package in packages}
        missing = [package for package, installed in versions.items() if installed is None]
        if missing:
            state = f"not installed ({', '.join(missing)}): {shlex.join(['pip', 'install', *missing])}"
        else:
            state = ", ".join(f"{package} {installed}" for package, installed in versions.items())
        rows[f"extra {extra}"] = state
    return rows


def _version(package: str) -> str | None:
    # Imported here, because it takes a tenth of the time of `rubric-integrations --help`.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package.partition("[")[0])
    except PackageNotFoundError:
        return None


# The prefix of a server in OpenAI's protocol, of a provider with another protocol, and of local servers.
_PREFIXES = ("openai", "anthropic", "hosted_vllm", "ollama_chat")


def _paths() -> dict[str, str]:
    """Return who sends the requests of models with some prefixes in this environment."""
    from rubric_integrations.judges.fast_path import describe_path
    from rubric_integrations.judges.models.keys import PLACEHOLDER
    from rubric_integrations.judges.models.names import ModelSettings, lm_from_name

    rows: dict[str, str] = {}
    for prefix in _PREFIXES:
        try:
            rows[f"{prefix}/..."] = describe_path(lm_from_name(f"{prefix}/model", ModelSettings(api_key=PLACEHOLDER)))
        except ValueError as error:
            rows[f"{prefix}/..."] = str(error)
    return rows


def _names(judges: Sequence[str]) -> dict[str, str]:
    """Return whether the name of each judge's model names a version, on the server that the environment names."""
    from rubric_integrations.judges.models.keys import server_url_of_environment
    from rubric_integrations.trust.model_versions import DESCRIPTIONS, version_in_name

    return {judge: DESCRIPTIONS[version_in_name(judge, server_url_of_environment(judge))] for judge in judges}


def _api_keys() -> str:
    # The values are only compared with "", because no message or log may contain a credential.
    present = [name if os.environ[name] else f"{name} (empty)" for name in API_KEYS if name in os.environ]
    return ", ".join(present) or "none"


COMMANDS: dict[str, Callable[..., None]] = {
    "test": test,
    "preview": preview,
    "grade": grade,
    "submit": submit,
    "collect": collect,
    "serve": serve,
    "rescore": rescore,
    "import": import_,
    "report": report,
    "show": show,
    "label": label,
    "agree": agree,
    "calibrate": calibrate,
    "certify": certify,
    "compare": compare,
    "compare-judges": compare_judges,
    "drift": drift,
    "align": align,
    "draft": draft,
    "plan": plan,
    "probe": probe,
    "benchmark": benchmark,
    "library": library,
    "validate": validate,
    "convert": convert,
    "migrate": migrate,
    "schema": schema,
    "doctor": doctor,
}
