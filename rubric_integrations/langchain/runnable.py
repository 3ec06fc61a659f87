"""A LangChain Runnable that grades: `RubricRunnable(rubric, judge=...).batch([{"output": "..."}])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import patch_config
from pydantic import BaseModel, Field

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.judges.protocol import BatchResult, Judge, OverallResult, Question
from rubric_integrations.judges.wrappers import JudgeWrapper
from rubric_integrations.langchain.fields import FieldSelector
from rubric_integrations.langchain.resolve import resolve_grader, resolve_rubric
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.messages import Respond
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike


class RubricInput(BaseModel):
    """The input of a `RubricRunnable`.

    Attributes:
        output: The text to grade, or a list of chat messages.
        input: The task that the output answers, a text or messages.
        reference: An exemplary answer.
    """

    output: str | list[Any] = Field(description="The text to grade, or chat messages whose last is graded.")
    input: str | list[Any] | None = Field(default=None, description="The task that it answers.")
    reference: str | None = Field(default=None, description="An exemplary answer.")


class RubricRunnable(Runnable[Any, EvaluationReport]):
    """Grades a text, a list of messages, a dict with `output`, or a `RubricInput`, and returns the report.

    Every question to the judge is a child run in the trace. Callbacks, tags and metadata are passed on to a LangChain
    chat model that judges. The grader's concurrency limit applies to all calls in an event loop, no matter how `batch`
    and `abatch` are nested; all synchronous callers share one event loop.

    Args:
        rubric: The rubric, or a function that returns the rubric for an input.
        judge: What judges the criteria: a LangChain chat model, a model name, a `dspy.LM`, an async function or a
            judge. Pass either `judge` or `grader`.
        grader: A configured grader.
        respond: Which part of an output that is a list of messages is graded: the `"last"` answer or the whole
            `"transcript"`.
        name: The name of the runs in the trace.

    Raises:
        ValueError: Neither or both of `judge` and `grader` are passed.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> chain = RubricRunnable(rubric, judge="offline") | (lambda report: report.score)
        >>> chain.batch([{"output": "It is 42."}, "It is 41."])
        [1.0, 0.0]
    """

    def __init__(
        self,
        rubric: Rubric | Callable[[RubricInput], Rubric],
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        respond: Respond = "last",
        name: str = "rubric",
    ):
        self.rubric, self.name = rubric, name
        self._fields = FieldSelector("output", "input", "reference", respond)
        self._grader = resolve_grader(judge, grader, "RubricRunnable")

    @property
    def InputType(self) -> type[RubricInput]:  # noqa: N802 -- LangChain's name
        """The type of the input."""
        return RubricInput

    @property
    def OutputType(self) -> type[EvaluationReport]:  # noqa: N802 -- LangChain's name
        """The type of the result."""
        return EvaluationReport

    # LangChain's own methods (`batch`, `stream`, `with_retry`) call `invoke` and `ainvoke` with `**kwargs`.
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> EvaluationReport:  # noqa: A002
        """Grade one input.

        Raises:
            JudgeError: A criterion could not be judged.
            ValueError: The output is empty.
        """
        return self._call_with_config(self._grade_sync, input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> EvaluationReport:  # noqa: A002
        """Grade one input asynchronously, as `invoke` does."""
        return await self._acall_with_config(self._grade, input, config, **kwargs)

    def _grade_sync(self, value: Any, run_manager: Any, config: RunnableConfig) -> EvaluationReport:
        return run_sync(self._grade(value, run_manager, config))

    async def _grade(self, value: Any, run_manager: Any, config: RunnableConfig) -> EvaluationReport:
        parsed = RubricInput.model_validate({"output": value} if isinstance(value, str | list) else value)
        texts = dict(parsed)  # `model_dump` would turn LangChain's messages into dicts
        submission = self._fields.select(texts, texts, texts)
        if submission is None:
            raise ValueError(f"`output` is {parsed.output!r}: there is nothing to grade")
        child_config = patch_config(config, callbacks=run_manager.get_child())
        grader = self._grader()
        traced_grader = grader.with_judges([_TracedJudge(judge, child_config) for judge in grader.judges])
        return await traced_grader.grade(resolve_rubric(self.rubric, parsed), submission)


class _TracedJudge(JudgeWrapper):
    """A judge whose questions are child runs in the trace; the calls of its model are children of these runs."""

    def __init__(self, judge: Judge, config: RunnableConfig):
        super().__init__(judge)
        self._config = config

    async def judge(self, question: Question) -> Judgment:
        return await self._trace(question.criterion.name or question.criterion.requirement, super().judge, question)

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        return await self._trace("criteria", super().judge_batch, questions)

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        return await self._trace("whole", partial(super().judge_overall, rubric=rubric), submission)

    async def _trace(self, name: str, call: Callable[[Any], Awaitable[Any]], argument: Any) -> Any:
        """Call the judge inside a child run named `judge:<name>`."""

        async def traced_call(value: Any) -> Any:
            return await call(value)

        config = patch_config(self._config, run_name=f"judge:{name[:60]}")
        return await RunnableLambda(traced_call).ainvoke(argument, config)
