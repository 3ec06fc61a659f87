"""Language models from whatever a user has, each as a `dspy.LM`.

To add a source of models, write a module with a function that makes a `dspy.LM`, and add it to `MODEL_SOURCES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import dspy

from rubric_integrations.judges.models.from_function import GenerateFn, lm_from_fn
from rubric_integrations.judges.models.from_name import NO_OPTIONS, ModelOptions, lm_from_name
from rubric_integrations.judges.models.keys import with_key_for_its_server
from rubric_integrations.judges.models.langchain import (
    chat_model_settings,
    is_chat_model,
    lm_from_chat_model,
    without_langchain_cache,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    ModelLike = str | dspy.BaseLM | BaseChatModel | GenerateFn

__all__ = [
    "MODEL_SOURCES",
    "GenerateFn",
    "ModelOptions",
    "ModelSource",
    "settings_of",
    "to_lm",
    "without_framework_cache",
]


class ModelSource(NamedTuple):
    """A kind of object that a `dspy.LM` can be made of.

    Attributes:
        description: What to call the kind in messages.
        matches: Whether an object is of this kind.
        make: Makes the `dspy.LM`.
    """

    description: str
    matches: Callable[[object], bool]
    make: Callable[[Any], dspy.BaseLM]


def _is_lm(model: object) -> bool:
    return isinstance(model, dspy.BaseLM)


def _with_its_key(model: dspy.BaseLM) -> dspy.BaseLM:
    return with_key_for_its_server(model) if isinstance(model, dspy.LM) else model


MODEL_SOURCES: dict[str, ModelSource] = {
    "dspy": ModelSource("a dspy.LM", _is_lm, _with_its_key),
    "langchain": ModelSource("a LangChain chat model", is_chat_model, lm_from_chat_model),
    "function": ModelSource("an async function (system_prompt, user_prompt)", callable, lm_from_fn),
}
"""The kinds of models beside a model name, in the order in which an object is compared with them."""


def to_lm(model: ModelLike, options: ModelOptions = NO_OPTIONS) -> dspy.BaseLM:
    """Make a `dspy.LM` of whatever a user passes as a model.

    Args:
        model: A model name, a `dspy.LM`, a LangChain chat model, or an async function of two prompts.
        options: How a model name is called.

    Raises:
        TypeError: `model` is none of these.
        ValueError: The model name is empty, an option goes with a model that is configured already, or a key of the
            environment would be sent to a server that it is not meant for.
    """
    if isinstance(model, str):
        return lm_from_name(model, options)
    source = next((source for source in MODEL_SOURCES.values() if source.matches(model)), None)
    if source is None:
        kinds = ", ".join(["a model name", *(source.description for source in MODEL_SOURCES.values())])
        raise TypeError(f"`model` must be one of: {kinds}; got {type(model).__name__}")
    for option in options.chosen():
        raise ValueError(
            f"`{option}` goes with a model name, and has no effect on {source.description}: configure the model that "
            "you pass instead"
        )
    return source.make(model)


def settings_of(lm: dspy.BaseLM) -> dict[str, Any]:
    """Return a model's settings, those of its LangChain chat model included: with credentials, so never write them."""
    return {**lm.kwargs, **chat_model_settings(lm)}


def without_framework_cache(lm: dspy.BaseLM) -> dspy.BaseLM:
    """Return an LM that uses neither DSPy's nor LangChain's response cache; the user's own model is not changed.

    A judge must not read them: a reply in prose would be repeated for every retry, another server's verdict could be
    returned under the same model name, and the votes of equal judges would be one vote.
    """
    uncached = without_langchain_cache(lm)
    return uncached.copy(cache=False) if uncached.cache else uncached
