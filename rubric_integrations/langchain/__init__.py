"""Rubric grades in LangChain and LangSmith.

- LangSmith: `RubricEvaluator` for evaluation runs, `compare_by_rubric` for two experiments, `read_experiment` to read
  the grades of an experiment as a run, `offline_client` for evaluations that upload nothing, `annotation_queue_rubric`
  and `labels_from_feedback` for human annotators, and `assert_rubric` for pytest.
- LangChain: `RubricRunnable` for chains, `RubricMiddleware` for agents, `RubricStringEvaluator` and
  `RubricPairwiseStringEvaluator` for `langchain_classic.evaluation`.

Importing this package imports neither DSPy nor LangChain: each name is imported when it is first used. To add a class
or a function, write one module here and add its public names to `_MODULES` and `__all__`, and to `_PACKAGES` if they
need an extra.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.langchain.annotation import annotation_queue_rubric, labels_from_feedback, read_experiment
    from rubric_integrations.langchain.evaluator import RubricEvaluator, compare_by_rubric
    from rubric_integrations.langchain.feedback import assert_rubric, offline_client
    from rubric_integrations.langchain.middleware import RubricMiddleware
    from rubric_integrations.langchain.runnable import RubricInput, RubricRunnable
    from rubric_integrations.langchain.strings import RubricPairwiseStringEvaluator, RubricStringEvaluator

_MODULES = {
    "RubricEvaluator": "evaluator",
    "RubricInput": "runnable",
    "RubricMiddleware": "middleware",
    "RubricPairwiseStringEvaluator": "strings",
    "RubricRunnable": "runnable",
    "RubricStringEvaluator": "strings",
    "annotation_queue_rubric": "annotation",
    "assert_rubric": "feedback",
    "compare_by_rubric": "evaluator",
    "labels_from_feedback": "annotation",
    "offline_client": "feedback",
    "read_experiment": "annotation",
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
    "read_experiment",
]

# `import *` leaves out the names whose package is not installed. The import of one of them says how to install it.
_PACKAGES = {
    "RubricMiddleware": "langchain",
    "RubricPairwiseStringEvaluator": "langchain_classic",
    "RubricStringEvaluator": "langchain_classic",
}
__all__[:] = [name for name in __all__ if name not in _PACKAGES or find_spec(_PACKAGES[name])]

# langchain-core is a dependency of this project. These packages are not, because only some modules need them.
__getattr__ = lazy_names(
    __name__,
    _MODULES,
    extras={"langchain": "langchain", "langgraph": "langchain", "langchain_classic": "langchain-classic"},
)


def __dir__() -> list[str]:
    return __all__
