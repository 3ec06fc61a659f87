"""The completions of one training step: what each is graded by, or why there is nothing to grade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rubric_integrations.formats.row_rubrics import RowRubrics, problem_of
from rubric_integrations.graders import Grader
from rubric_integrations.results.outcomes import outcomes_of
from rubric_integrations.runs.summary import Graded
from rubric_integrations.submission.files import Row
from rubric_integrations.submission.messages import Respond
from rubric_integrations.submission.submission import error_line
from rubric_integrations.training.completions import NoAnswerError, group_of, read_completion

EmptyReward = float | Literal["least"] | None


class Rollout(NamedTuple):
    """One completion of a step, with its grade and its reward.

    Attributes:
        graded: The grade; without a report before the completion is graded, and if there is nothing to grade.
        group: The name of the group of completions that answer the same prompt.
        is_empty: Whether the completion has no answer, so that nothing was graded.
        reward: The reward; None if the completion is left out of its group.
    """

    graded: Graded
    group: str
    is_empty: bool = False
    reward: float | None = None

    @property
    def failure(self) -> str | None:
        """Why there is no grade; None if there is one, or nothing to grade."""
        return None if self.is_empty else self.graded.judge_error or self.graded.row.error

    @property
    def scores(self) -> dict[str, float]:
        """The scores in [0, 1] of the criteria with a verdict, by name; none if the grade has failed."""
        report = self.graded.report
        if report is None or self.failure:
            return {}
        outcomes = outcomes_of(report, "rubric")[1:]
        return {
            outcome.name.removeprefix("rubric."): outcome.score for outcome in outcomes if outcome.score is not None
        }

    def with_grade(self, graded: Graded) -> Rollout:
        """Return this completion with its grade, whose score is the reward unless there is nothing to grade."""
        return self._replace(graded=graded, reward=self.reward if self.is_empty else graded.score)


class RolloutReader(NamedTuple):
    """Reads the completions of a step. The attributes are the arguments of `RubricReward`."""

    rubrics: RowRubrics
    grader: Grader
    empty: EmptyReward
    respond: Respond
    reference: str
    context: str
    starts_in_thinking: bool
    show_thinking: bool

    def read(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any], id_prefix: str
    ) -> list[Rollout]:
        """Return the completions of a step, not graded yet.

        Args:
            prompts: The prompts.
            completions: The completion of each.
            columns: What else the trainer has passed; lists with a value for each completion are columns.
            id_prefix: The beginning of the ids of the rows.

        Raises:
            ValueError: There is not a prompt for each completion, or no column of the chosen name.
        """
        if len(prompts) != len(completions):
            raise ValueError(f"there are {len(prompts)} prompts for {len(completions)} completions: pass one for each")
        of_rows: dict[str, Sequence[Any]] = {
            name: values
            for name, values in columns.items()
            if isinstance(values, list | tuple) and len(values) == len(prompts)
        }
        for parameter, column in (("reference", self.reference), ("context", self.context)):
            if column not in of_rows and column != parameter:
                raise ValueError(
                    f"`{parameter}` is {column!r}, which is no column ({sorted(of_rows)!r}): correct the name, or the "
                    "judge would not see it"
                )
        of_rows |= {"prompt": prompts, "completion": completions}
        return [
            self._read(Row(f"{id_prefix}-{index}", None), {name: values[index] for name, values in of_rows.items()})
            for index in range(len(prompts))
        ]

    def _read(self, row: Row, data: Mapping[str, Any]) -> Rollout:
        group = group_of(data["prompt"])
        try:
            own = self.rubrics.own_of(data, data.get("rubric"))
            rubric = self.rubrics.join(own)
            self.grader.check_rubric(rubric)
        except Exception as error:  # noqa: BLE001 -- whatever a row or a function of the user's holds fails this row
            return _ungraded(row, f"the row {problem_of(error)}", group)
        try:
            submission = read_completion(
                data["prompt"],
                data["completion"],
                respond=self.respond,
                starts_in_thinking=self.starts_in_thinking,
                show_thinking=self.show_thinking,
                reference=data.get(self.reference),
                context=data.get(self.context),
            )
        except NoAnswerError as error:
            reward = self.grader.least_score(rubric) if self.empty == "least" else self.empty
            rollout = _ungraded(row, f"the completion has no answer: {error}", group)
            return rollout._replace(is_empty=True, reward=reward)
        except (TypeError, ValueError) as error:
            return _ungraded(row, f"the completion cannot be read: {error_line(error)}", group)
        return Rollout(Graded(row._replace(submission=submission, rubric=own), None), group)


def _ungraded(row: Row, error: str, group: str) -> Rollout:
    return Rollout(Graded(row._replace(error=error), None), group)
