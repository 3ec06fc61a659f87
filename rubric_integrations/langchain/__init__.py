"""The grade in LangChain and LangSmith: evaluators, a Runnable, agent middleware, and forms for people.

Importing this package loads neither DSPy nor LangChain; each name is fetched when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rubric_integrations.langchain.annotation import annotation_queue_rubric, labels_from_feedback
    from rubric_integrations.langchain.assertion import assert_rubric
    from rubric_integrations.langchain.evaluator import RubricEvaluator
    from rubric_integrations.langchain.middleware import RubricMiddleware
    from rubric_integrations.langchain.offline import offline_client
    from rubric_integrations.langchain.pairwise import compare_by_rubric
    from rubric_integrations.langchain.runnable import RubricInput, RubricRunnable
    from rubric_integrations.langchain.strings import RubricPairwiseStringEvaluator, RubricStringEvaluator

_ROOMS = {
    "RubricEvaluator": "evaluator",
    "RubricInput": "runnable",
    "RubricMiddleware": "middleware",
    "RubricPairwiseStringEvaluator": "strings",
    "RubricRunnable": "runnable",
    "RubricStringEvaluator": "strings",
    "annotation_queue_rubric": "annotation",
    "assert_rubric": "assertion",
    "compare_by_rubric": "pairwise",
    "labels_from_feedback": "annotation",
    "offline_client": "offline",
}

__all__ = [
    "RubricEvaluator",
    "RubricInput",
    "RubricMiddleware",
    "RubricPairwiseStringEvaluator",
    "RubricRunnable",
    "RubricStringEvaluator",
    "annotation_queue_rubric",
    "assert_rubric",
    "compare_by_rubric",
    "labels_from_feedback",
    "offline_client",
]

# What needs a package that langchain-core does not bring, and the extra that does.
_EXTRAS = {"middleware": ("langchain", "langchain"), "strings": ("langchain_classic", "langchain-classic")}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = _ROOMS[name]
    try:
        return getattr(import_module(f"{__name__}.{room}"), name)
    except ModuleNotFoundError as error:
        package, extra = _EXTRAS.get(room, ("", ""))
        if not package or (error.name or "").split(".")[0] != package:
            raise
        raise ModuleNotFoundError(
            f"`{name}` needs the package {extra!r}: pip install 'rubric-integrations[{extra}]'", name=error.name
        ) from None


def __dir__() -> list[str]:
    return __all__
