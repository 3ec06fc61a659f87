"""Grades the rollouts of verifiers (extra `verifiers`, tested with 0.4.0) for its judge plugin.

The plugin itself is the module `rubric_integrations_judge`, because verifiers imports judges by the name of a top-level
module.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rubric_integrations._util.lazy import install_command
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, outcomes_of
from rubric_integrations.submission.messages import value_text
from rubric_integrations.submission.thinking import SplitResponse
from rubric_integrations.training.sample_grader import SampleGrader

SAMPLING = frozenset({"temperature", "max_tokens", "reasoning_effort", "seed"})
"""The sampling settings of verifiers that a judge can send to its model."""


def import_verifiers() -> Any:
    """Import and return `verifiers.v1`, when it is first needed, because verifiers is an optional dependency.

    Raises:
        ImportError: verifiers 0.4 or newer is not installed.
    """
    try:
        return import_module("verifiers.v1")
    except ImportError as error:
        raise ImportError(f"verifiers 0.4 or newer is not installed: {install_command('verifiers')}") from error


def check_config(config: Any) -> None:
    """Check the settings that the plugin's configuration inherits from verifiers.

    Raises:
        ValueError: A setting would have no effect: `prompt` or `timeout` is set, or `sampling` has an option that the
            judge cannot send.
    """
    if config.prompt is not None:
        raise ValueError(
            f"`prompt` is {str(config.prompt)!r}, which has no effect on this judge: write the instructions as "
            "`guidelines` in the rubric file"
        )
    # Compared with the default, because verifiers writes all defaults into the configuration when it resolves a judge.
    if timeouts := config.timeout.model_dump(exclude_defaults=True):
        raise ValueError(
            f"`timeout` sets {timeouts!r}, which has no effect on this judge: leave it out, because the judge "
            "has its own timeout"
        )
    if unknown := sorted(set(_sampling(config)) - SAMPLING):
        raise ValueError(f"`sampling` has {unknown!r}, which this judge cannot send: use {sorted(SAMPLING)!r} only")


async def score_rollout(config: Any, reward_name: str, task: Any, trace: Any) -> float:
    """Grade a rollout, and record its metrics, the judge's token usage and the reasons in the trace.

    verifiers creates a new judge for each rollout. Therefore, all rollouts of a process with the same settings share
    one grader and its concurrency limit.

    Args:
        config: The `RubricGraderConfig` of the judge.
        reward_name: The name of the reward, and the prefix of the names of the metrics.
        task: The task of the rollout, a `TaskData` of verifiers.
        trace: The rollout, a `Trace` of verifiers, to which metrics, usage and reasons are added.

    Raises:
        JudgeError: The judge failed on a criterion, or the score is undefined. verifiers records a `TaskError`.
        ValueError: The task lacks a field that the configuration names, or the response cannot be graded.
    """
    judge = import_module("verifiers.v1.judge")
    samples = _sample_grader(_Settings(config))
    response = judge.judge_response(trace, config.view)
    try:
        score, report = await samples.grade(
            # In a transcript, a tool may write `</think>`, and the text before it must not be hidden from the judge.
            response if config.view == "last_reply" else SplitResponse("", response),
            judge.judge_question(task, config.question_field),
            value_text(judge.judge_question(task, config.answer_field)) if config.answer_field else None,
        )
    except JudgeError as error:
        _record(trace, reward_name, error.report, str(error))
        raise
    if report is not None:
        _record(trace, reward_name, report)
        for outcome in outcomes_of(report, reward_name)[1:]:
            if outcome.score is not None:
                trace.record_metric(outcome.name, outcome.score)
        trace.record_metric(f"{reward_name}/coverage", report.coverage)
    return score


class _Settings:
    """The part of a configuration that a grader depends on. Equal settings share one grader in a process."""

    def __init__(self, config: Any):
        self.config = config
        names = {
            "path", "model", "base_url", "api_key_var", "headers", "headers_from_env", "sampling", "normalize",
            "empty", "ledger", "max_concurrency",
        }  # fmt: skip
        self._key = (str(Path(config.path).absolute()), config.model_dump_json(include=names))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Settings) and self._key == other._key


@cache
def _sample_grader(settings: _Settings) -> SampleGrader:
    from rubric_integrations.graders import CallLimits

    config = settings.config
    return SampleGrader(
        config.path,
        make_judge(config),
        normalize=config.normalize,
        empty=config.empty,
        ledger=config.ledger,
        limits=CallLimits(max_concurrency=config.max_concurrency),
        host="RubricGrader",
    )


def make_judge(config: Any) -> Any:
    """Make the judge of a configuration. Without sampling settings to send, this is the name of the model."""
    from rubric_integrations.judges import NAMED_JUDGES, LMJudge, ModelSettings

    sampling = _sampling(config)
    if not config.base_url:
        is_model = sampling and config.model not in NAMED_JUDGES
        return LMJudge(config.model, settings=ModelSettings(**sampling)) if is_model else config.model
    client = import_module("verifiers.v1.configs.client")
    # verifiers sends the model's name unchanged. LiteLLM removes the part before the first slash, so one is added.
    return LMJudge(
        f"openai/{config.model}",
        api_base=config.base_url,
        api_key=client.resolve_api_key(config),
        settings=ModelSettings(headers=client.resolve_headers(config) or None, **sampling),
    )


def _sampling(config: Any) -> dict[str, Any]:
    return config.sampling.model_dump(exclude_none=True)


def _record(trace: Any, reward_name: str, report: EvaluationReport, error: str | None = None) -> None:
    """Record the judge's answers and token usage in the trace."""
    trace.info[reward_name] = {
        "score": None if error else report.score,
        "coverage": report.coverage,
        "error": error,
        "criteria": [
            {"name": row.name, "verdict": row.verdict, "explanation": row.explanation, "error": row.error}
            for row in report.criteria
        ],
    }
    if report.spend.calls and (tokens := report.token_usage):
        usage = import_module("verifiers.v1.types").Usage
        trace.extra_usage.append(
            usage(
                prompt_tokens=tokens.prompt_tokens - tokens.cached_tokens,
                completion_tokens=tokens.completion_tokens,
                cached_input_tokens=tokens.cached_tokens,
                cost=report.cost,
            )
        )
