"""Automatic metrics of a response, such as BLEU and ROUGE, and the condition `similarity`. Each value is in [0, 1].

A metric that cannot be computed is a failure, not 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeVar, cast

from rubric_integrations._util.lazy import install_command
from rubric_integrations.checks.registry import MAX_MESSAGE, decides, measures
from rubric_integrations.rubric.check import Check, Metric, MetricType, SimilarityCheck
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.submission.submission import Submission

CustomMetric = Callable[[Submission], float]
"""A custom metric: a function that returns a value in [0, 1] for a submission."""

F = TypeVar("F", bound=CustomMetric)

# The most characters that a metric compares: about 15,000 words. Each metric takes less than a second for them.
MAX_METRIC_CHARS = 100_000

_custom_metrics: dict[str, CustomMetric] = {}


def register_metric(name: str) -> Callable[[F], F]:
    """Register the decorated function as a `custom` metric that rubric files can use.

    Args:
        name: The name of the metric in files (`config.metric_function`). A later function with the same name replaces
            it.

    Example:
        >>> @register_metric("has_a_number")
        ... def has_a_number(submission: Submission) -> float:
        ...     return float(any(ch.isdigit() for ch in submission.response))
        >>> metric = Metric(type="custom", config={"metric_function": "has_a_number"})
        >>> run_metric(metric, Submission(response="42"))
        1.0
    """

    def register(function: F) -> F:
        _custom_metrics[name] = function
        return function

    return register


def run_metric(metric: Metric, submission: Submission) -> float:
    """Compute a metric of a submission.

    Returns:
        The value in [0, 1].

    Raises:
        JudgeFailure: Of kind `check`, in these cases: the submission lacks a field that the metric needs, the library
            is not installed, a custom metric is not registered or raised an error, or the value is not in [0, 1].
    """
    if metric.type not in METRICS:
        remedy = "add one to `rubric_integrations.checks.metrics.METRICS`"
        raise JudgeFailure("check", f"the metric `{metric.type}` has no function: {remedy}")
    try:
        value = METRICS[metric.type](metric, submission)
    except JudgeFailure:
        raise
    except Exception as error:  # any error of a library must fail only one metric, not the run
        message = f"the metric `{metric.type}` cannot be computed ({type(error).__name__}: {error})"
        raise JudgeFailure("check", message[:MAX_MESSAGE]) from error
    if not 0.0 <= value <= 1.0:
        raise JudgeFailure("check", f"the metric `{metric.type}` gave {value!r}, which is not in [0, 1]")
    return value


@measures("metric")
def measure_metric(check: Check, submission: Submission) -> tuple[float, str]:
    """Return the value of `check.metric`, and the type of the metric as a text for reports."""
    metric = cast("Metric", check.metric)
    return run_metric(metric, submission), f"the metric {metric.type}"


def unregistered_metrics(rubric: Rubric) -> list[tuple[str, str]]:
    """Return the custom metrics of a rubric that have no registered function.

    Returns:
        A pair for each metric: its place in the rubric, such as `criteria[2]`, and its name.
    """
    metrics = [(f"criteria[{i}]", c.check.metric) for i, c in enumerate(rubric.criteria) if c.check and c.check.metric]
    metrics += [(f"hybrid_metrics[{index}]", metric) for index, metric in enumerate(rubric.hybrid_metrics)]
    names = [(where, str(metric.config["metric_function"])) for where, metric in metrics if metric.type == "custom"]
    return [(where, name) for where, name in names if name not in _custom_metrics]


def _bleu(metric: Metric, submission: Submission) -> float:
    reference = _reference(metric, submission)
    score = import_library("sacrebleu").sentence_bleu(submission.response, [reference]).score
    return min(1.0, float(score) / 100)


def _rouge(metric: Metric, submission: Submission) -> float:
    reference = _reference(metric, submission)
    variant = metric.config.get("variant", "rougeL")
    if variant == "rougeL":
        return _rouge_l(submission.response, reference)
    scorer = import_library("rouge_score.rouge_scorer").RougeScorer([variant], use_stemmer=True)
    return float(scorer.score(reference, submission.response)[variant].fmeasure)


def _rouge_l(response: str, reference: str) -> float:
    """Compute ROUGE-L with the tokenizer of `rouge_score`, whose own ROUGE-L needs quadratic memory."""
    tokenizer = import_library("rouge_score.tokenizers").DefaultTokenizer(use_stemmer=True)
    words, expected = tokenizer.tokenize(response), tokenizer.tokenize(reference)
    if not words or not expected:
        return 0.0
    common = _common_length(words, expected)
    return float(import_library("rouge_score.scoring").fmeasure(common / len(words), common / len(expected)))


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    This is the bit-vector algorithm of Hyyro (2004): an integer has a bit for each word of the first sequence, and each
    word of the second sequence needs a few operations on this integer.
    """
    places: dict[str, int] = {}
    for position, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << position
    everywhere = (1 << len(one)) - 1
    unmatched = everywhere
    for word in other:
        matches = unmatched & places.get(word, 0)
        unmatched = (unmatched + matches | unmatched - matches) & everywhere
    return len(one) - unmatched.bit_count()


def _accuracy(metric: Metric, submission: Submission) -> float:
    return float(_reference(metric, submission).strip().casefold() == submission.response.strip().casefold())


def _perplexity(_metric: Metric, submission: Submission) -> float:
    """Compute the inverse of the perplexity, which is the geometric mean of the tokens' probabilities."""
    if not submission.logprobs:
        raise JudgeFailure("check", "the metric `perplexity` needs the submission's `logprobs`, which are missing")
    return math.exp(math.fsum(submission.logprobs) / len(submission.logprobs))


def _custom(metric: Metric, submission: Submission) -> float:
    name = str(metric.config.get("metric_function"))
    if name not in _custom_metrics:
        known = ", ".join(sorted(_custom_metrics)) or "none"
        raise JudgeFailure("check", f"the custom metric {name!r} is not registered (registered: {known})")
    try:
        return float(_custom_metrics[name](submission))
    except Exception as error:  # any error of the user's code must fail only one metric, not the run
        raise JudgeFailure("check", f"the custom metric {name!r} raised {type(error).__name__}: {error}") from error


METRICS: dict[MetricType, Callable[[Metric, Submission], float]] = {
    "bleu": _bleu,
    "rouge": _rouge,
    "accuracy": _accuracy,
    "perplexity": _perplexity,
    "custom": _custom,
}
"""The function of each type of metric."""


def _reference(metric: Metric, submission: Submission) -> str:
    if not submission.reference:
        raise JudgeFailure("check", f"the metric `{metric.type}` needs the submission's `reference`, which is missing")
    length = max(len(submission.response), len(submission.reference))
    if metric.type != "accuracy" and length > MAX_METRIC_CHARS:
        raise JudgeFailure(
            "check",
            f"the metric `{metric.type}` is for texts of at most {MAX_METRIC_CHARS:,} characters, and one has "
            f"{length:,} characters: shorten it, or use a custom metric",
        )
    return submission.reference


def import_library(name: str) -> Any:
    """Import a library of the extra `metrics`.

    Raises:
        JudgeFailure: Of kind `check`, if the library is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise JudgeFailure("check", f"`{name}` is not installed: {install_command('metrics')}") from None


# The most characters of a text. Comparing two such texts takes a quarter of a second.
MAX_SIMILARITY_CHARS = 50_000


@decides("similarity")
def is_similar(check: Check, submission: Submission) -> str:
    """Return a message if the similarity is below `check.similarity.min_ratio`, otherwise an empty string."""
    ratio, _ = similarity_ratio(check, submission)
    least = cast("SimilarityCheck", check.similarity).min_ratio or 0.0
    return "" if ratio >= least else f"has a similarity of {ratio:.3f}, below {least:g}"


@measures("similarity")
def similarity_ratio(check: Check, submission: Submission) -> tuple[float, str]:
    """Return the similarity of the response to the text of `check.similarity`, and the name of this text as the reason.

    The similarity is 1 - (Levenshtein distance / length of the longer text). Outer white space is ignored.

    Raises:
        JudgeFailure: Of kind `check`, if there is no text to compare with, a text has more than 50,000 characters, or
            `rapidfuzz` is not installed.
    """
    expected = cast("SimilarityCheck", check.similarity).to
    name = "the text" if expected else "the reference"
    expected = expected or submission.reference
    if not expected:
        raise JudgeFailure(
            "check", "the condition `similarity` needs a text: write `to`, or pass the submission's `reference`"
        )
    texts = [text.strip().casefold() if check.ignore_case else text.strip() for text in (submission.response, expected)]
    if (length := max(map(len, texts))) > MAX_SIMILARITY_CHARS:
        raise JudgeFailure(
            "check",
            f"the condition `similarity` is for texts of at most {MAX_SIMILARITY_CHARS:,} characters, and one has "
            f"{length:,}: shorten it, or use another check",
        )
    levenshtein = import_library("rapidfuzz.distance").Levenshtein
    return float(levenshtein.normalized_similarity(*texts)), f"similarity to {name}"
