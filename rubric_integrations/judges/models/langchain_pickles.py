"""LangChain chat models in pickles: one whose clients hold connections and locks is made again from its fields."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

# Fields with clients that the model makes by itself, and those with clients that only its user can make.
_OWN_CLIENTS = frozenset({"client", "async_client", "root_client", "root_async_client"})
_USERS_CLIENTS = ("http_client", "http_async_client")


class ModelFields(NamedTuple):
    """The class of a chat model, and the fields that its user or its validators have set.

    A key that was passed in code is among them. One of the environment is not, and is read where the model is made.
    """

    kind: type[Any]
    fields: dict[str, Any]


def to_pickle(model: BaseChatModel) -> BaseChatModel | ModelFields:
    """Return what a pickle can hold of a chat model: the model itself, or else the fields to make it again.

    Raises:
        TypeError: The model has an HTTP client of the user's, which a pickle cannot hold.
    """
    try:
        pickle.dumps(model)
    except Exception:  # noqa: BLE001 -- a lock is a TypeError, a local class an AttributeError, and others differ
        for name in _USERS_CLIENTS:
            if getattr(model, name, None) is not None:
                raise TypeError(
                    f"`{name}` of {type(model).__name__} holds connections, which cannot be pickled: make the model in "
                    "the process that uses it, or requests would go without the settings of that client"
                ) from None
        fields = {name: getattr(model, name) for name in model.model_fields_set - _OWN_CLIENTS}
        return ModelFields(type(model), fields)
    return model


def from_pickle(model: BaseChatModel | ModelFields) -> BaseChatModel:
    """Return the chat model of which `to_pickle` returned this."""
    return cast("BaseChatModel", model.kind(**model.fields)) if isinstance(model, ModelFields) else model
