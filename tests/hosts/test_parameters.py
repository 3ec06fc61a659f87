"""The parameters of all hosts: one name has one annotation and one default, and no host has many of them."""

from __future__ import annotations

import inspect
from collections import defaultdict
from importlib import import_module

import pytest

from rubric_integrations.graders import PerCriterionGrader

# What a user constructs or calls to grade in a framework, and its module.
HOSTS = {
    "RubricMetric": "dspy",
    "RubricEvaluator": "langchain",
    "RubricRunnable": "langchain",
    "RubricMiddleware": "langchain",
    "RubricStringEvaluator": "langchain",
    "RubricPairwiseStringEvaluator": "langchain",
    "compare_by_rubric": "langchain",
    "assert_rubric": "langchain",
    "annotation_queue_rubric": "langchain",
    "labels_from_feedback": "langchain",
    "RubricReward": "training",
    "openrlhf_reward": "training",
    "slime_reward": "training",
    "verl_reward": "training",
    "RubricScorer": "mlflow",
    "rubric_scorer": "inspect_ai",
    "RubricEvaluator of pydantic-evals": "pydantic_evals",
    "GradeBatches": "ray",
    "grade_dataset": "ray",
    "GradingService": "server",
}
# Those that ask a judge.
GRADING = [name for name in HOSTS if name not in ("annotation_queue_rubric", "labels_from_feedback")]
# Those that a program starts once with a grader: they take no `judge`.
WITH_GRADER_ONLY = ("GradeBatches", "grade_dataset", "GradingService")

MAX_PARAMETERS = 14
"""One less than the most that any public callable may have, so that another setting can be added to each host."""

# Another annotation or default of a parameter in some host, with the reason.
EXCEPTIONS = {
    ("RubricEvaluator of pydantic-evals", "judge"): "pydantic-evals makes a JSON Schema of the annotation",
    ("RubricReward", "empty"): "TRL can leave a completion out (None); the others cannot",
    (
        "labels_from_feedback",
        "feedback",
    ): "the answers of people in LangSmith; in DSPy, the text for a reflecting model",
    **{(host, "grader"): "required, because there is no `judge`" for host in WITH_GRADER_ONLY},
}

# A rubric goes in the same forms everywhere. It may be left out where each row can have its own, and be a function
# where a row is an object of the framework that a function can read.
RUBRIC_SIGNATURES = {
    ("RubricLike", inspect.Parameter.empty),
    ("RubricLike | None", inspect.Parameter.empty),
    ("RubricLike | None", None),
    ("RubricLike | RubricFunction", inspect.Parameter.empty),
    ("RubricLike | RubricFunction | None", None),
}


def parameters_of(host: str) -> dict[str, inspect.Parameter]:
    module = import_module(f"rubric_integrations.{HOSTS[host]}")
    return dict(inspect.signature(getattr(module, host.partition(" ")[0])).parameters)


def annotation_of(parameter: inspect.Parameter) -> str:
    """The annotation as text; what `Annotated` adds for a framework is left out."""
    text = str(parameter.annotation)
    return text.removeprefix("Annotated[").rpartition(", ")[0] if text.startswith("Annotated[") else text


@pytest.mark.parametrize("name", ["judge", "grader", "ledger"])
def test_parameter_is_in_every_host_that_grades(name: str) -> None:
    hosts = [host for host in GRADING if not (name == "judge" and host in WITH_GRADER_ONLY)]
    assert [host for host in hosts if name not in parameters_of(host)] == []


def test_parameter_of_several_hosts_has_one_annotation_and_one_default() -> None:
    hosts: dict[str, dict[object, list[str]]] = defaultdict(lambda: defaultdict(list))
    for host in HOSTS:
        for name, parameter in parameters_of(host).items():
            if name != "rubric" and (host, name) not in EXCEPTIONS:
                hosts[name][annotation_of(parameter), parameter.default].append(host)
    assert {name: dict(by_signature) for name, by_signature in hosts.items() if len(by_signature) > 1} == {}


def test_rubric_of_every_host_has_one_of_few_annotations() -> None:
    rubrics = {host: parameters_of(host)["rubric"] for host in HOSTS}
    signatures = {host: (rubric.annotation, rubric.default) for host, rubric in rubrics.items()}
    assert {host: signature for host, signature in signatures.items() if signature not in RUBRIC_SIGNATURES} == {}


def test_exception_names_a_parameter_that_exists() -> None:
    assert [(host, name) for host, name in EXCEPTIONS if name not in parameters_of(host)] == []


@pytest.mark.parametrize("host", HOSTS)
def test_host_has_fewer_parameters_than_the_limit(host: str) -> None:
    assert len(parameters_of(host)) <= MAX_PARAMETERS


@pytest.mark.parametrize("name", ["cannot_assess", "normalize"])
def test_parameter_of_a_host_has_the_default_of_the_grader(name: str) -> None:
    defaults = [parameters_of(host)[name].default for host in HOSTS if name in parameters_of(host)]
    assert set(defaults) == {inspect.signature(PerCriterionGrader).parameters[name].default}
