"""The judge plugin of verifiers (extra `verifiers`): `id = "rubric_integrations_judge"` among the judges of a task.

verifiers imports a judge by the name of a top-level module whose `__all__` has exactly one judge, so this module is
beside the package `rubric_integrations`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from rubric_integrations.training.verifiers import check_config, import_verifiers, score_rollout

__all__ = ["RubricGrader"]

_verifiers: Any = import_verifiers()


class RubricGraderConfig(_verifiers.JudgeConfig):
    """The configuration of the judge, under `judges` of a task's configuration.

    Attributes:
        id: The name of this module.
        name: The name of the reward, and the part before the dot in the names of the metrics.
        weight: The weight of the reward among those of the task.
        path: The rubric file.
        model: The model that judges, under the name that the server at `base_url` has for it. If `base_url` is empty,
            any name that `PerCriterionGrader` takes, such as `anthropic/claude-sonnet-4-5` or `offline`.
        base_url: The base URL of an OpenAI-compatible server; by default that of verifiers. Its key is in the
            environment variable that `api_key_var` names.
        sampling: `temperature`, `max_tokens`, `reasoning_effort` and `seed` of the judge.
        normalize: Whether the reward is in [0, 1]; if not, it is the raw weighted sum.
        empty: The reward of a reply without an answer; by default (`least`) the lowest that the rubric allows.
        ledger: The path of a file or the URL of a PostgreSQL database, where judgments are stored and not requested
            a second time.
        max_concurrency: The largest number of concurrent calls of one process, at least 1.
        view: What is graded: the `last_reply`, or the text of the `full_trace`.
        question_field: The field of the task that is shown to the judge as the task; by default its prompt.
        answer_field: The field of the task with an exemplary answer; by default there is none.
    """

    id: str = "rubric_integrations_judge"
    name: str = "rubric"
    path: Path
    normalize: bool = True
    empty: float | Literal["least"] = "least"
    ledger: str | None = None
    max_concurrency: int = Field(default=64, ge=1)
    view: Literal["last_reply", "full_trace"] = "last_reply"
    question_field: str = ""
    answer_field: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_config(self)
        return self


class RubricGrader(_verifiers.Judge[None, RubricGraderConfig]):
    """Scores rollouts by a rubric: the reward is the score, and each criterion is a metric.

    A metric is in [0, 1], and higher is better also for penalties. An abstention has no metric. If a criterion cannot
    be judged, or the score is undefined, `score` raises, so that the rollout has an error and no reward.
    """

    async def score(self, task: Any, trace: Any) -> float:
        """Grade a rollout.

        Raises:
            JudgeError: A criterion could not be judged, or the score is undefined.
            ValueError: The task lacks a field that the configuration names, or the reply cannot be graded.
        """
        return await score_rollout(self.config, self.reward_name, task, trace)
