"""Which models can be sent the attachments of a submission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from rubric_integrations.judges.models.from_function import is_function_model
from rubric_integrations.judges.models.langchain import chat_model_of
from rubric_integrations.judges.prompts.shown_files import ShownFile

# Clients that pass a URL on to the provider. Others may download the file, on this machine, where a URL of a submission
# could reach what the internet cannot.
_PASS_URLS_ON = ("openai/", "azure/")
_CHAT_MODELS_PASS_URLS_ON = ("langchain_openai.", "langchain_anthropic.")


def file_problem(lm: dspy.BaseLM, files: Sequence[ShownFile]) -> str | None:
    """Return why a model cannot be sent some files, and what to do; None if it can, as far as is known here."""
    if not files:
        return None
    if is_function_model(lm):
        return (
            f"the submission has {len(files)} attachments, which a function of two texts cannot be sent: use a "
            "`dspy.LM`, a model name or a LangChain chat model as the judge"
        )
    urls = [file.content for file in files if file.is_url]
    if urls and not _passes_on(lm, urls):
        return (
            f"an attachment has only a URL, and the client of {lm.model!r} may download it on this machine, from where "
            "it could reach what the internet cannot: pass the file's bytes as `data`"
        )
    return None


def _passes_on(lm: dspy.BaseLM, urls: Sequence[str]) -> bool:
    model = chat_model_of(lm)
    if model is not None:
        return any(parent.__module__.startswith(_CHAT_MODELS_PASS_URLS_ON) for parent in type(model).__mro__)
    engine: Any = getattr(lm, "engine", None)
    if type(lm) is not dspy.LM or not isinstance(engine, str):
        return True  # an LM or an engine of the user's own, which decides for itself
    # LiteLLM passes https addresses on to Anthropic, and downloads http ones.
    is_anthropic = lm.model.startswith("anthropic/") and all(url.startswith("https://") for url in urls)
    return is_anthropic or "/" not in lm.model or lm.model.startswith(_PASS_URLS_ON)
