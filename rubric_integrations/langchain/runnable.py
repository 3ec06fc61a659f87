"""The grade as a Runnable: `RubricRunnable(rubric, judge=...).batch([{"output": "..."}])`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import patch_config
from pydantic import BaseModel, Field

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.langchain.evaluator import resolve_grader
from rubric_integrations.langchain.fields import Fields
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.messages import Respond

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike, Question


class RubricInput(BaseModel):
    """What a `RubricRunnable` grades.

    Attributes:
        output: The text, or a list of chat messages whose last is graded.
        input: The task that it answers, a text or messages.
        reference: An exemplary answer.
    """

    output: str | list[Any] = Field(description="The text to grade, or chat messages whose last is graded.")
    input: str | list[Any] | None = Field(default=None, description="The task that it answers.")
    reference: str | None = Field(default=None, description="An exemplary answer.")


class RubricRunnable(Runnable[Any, EvaluationReport]):
    """Grades a text, a dict with `output`, or a `RubricInput`, and gives the report.

    Every criterion is a child run in the trace, and callbacks, tags and metadata reach a LangChain chat model that
    judges. However `batch` and `abatch` are nested, the calls under way at once are at most the grader's
    `max_concurrency` in each event loop; all synchronous callers share one loop.

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
        """Set up a runnable.

        Args:
            rubric: The rubric, or a function that gives an input's own.
            judge: Who judges, as for a grader: a LangChain chat model, a model name, a `dspy.LM`, an async function.
            grader: In place of `judge`, a grader with settings of its own, such as `max_concurrency`.
            respond: Of an output that is a list of messages, grade the `"last"` or the whole `"transcript"`.
            name: What its runs are called.

        Raises:
            ValueError: Neither or both of `judge` and `grader` are given.
        """
        self.rubric, self.name = rubric, name
        self._fields = Fields("output", "input", "reference", respond)
        self._grader = resolve_grader(judge, grader, "RubricRunnable")

    @property
    def InputType(self) -> type[RubricInput]:  # noqa: N802 -- LangChain's name
        """What it takes."""
        return RubricInput

    @property
    def OutputType(self) -> type[EvaluationReport]:  # noqa: N802 -- LangChain's name
        """What it gives."""
        return EvaluationReport

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> EvaluationReport:  # noqa: A002
        """Grade one.

        Raises:
            JudgeError: A criterion could not be judged.
            ValueError: There is nothing to grade.
        """
        return self._call_with_config(self._graded_sync, input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> EvaluationReport:  # noqa: A002
        """`invoke`, asynchronously."""
        return await self._acall_with_config(self._graded, input, config, **kwargs)

    def _graded_sync(self, given: Any, run_manager: Any, config: RunnableConfig) -> EvaluationReport:
        return run_sync(self._graded(given, run_manager, config))

    async def _graded(self, given: Any, run_manager: Any, config: RunnableConfig) -> EvaluationReport:
        taken = RubricInput.model_validate({"output": given} if isinstance(given, str | list) else given)
        rubric = self.rubric if isinstance(self.rubric, Rubric) else self.rubric(taken)
        told = dict(taken)  # not `model_dump`, which would take LangChain's messages apart
        submission = self._fields.submission(told, told, told)
        if submission is None:
            raise ValueError(f"`output` is {taken.output!r}: there is nothing to grade")
        child = patch_config(config, callbacks=run_manager.get_child())
        grader = self._grader()
        traced = grader.with_judges([_TracedJudge(judge, child) for judge in grader.judges])
        return await traced.grade(rubric, submission)


class _TracedJudge:
    """A judge whose questions are child runs; inside them its own calls find their callbacks."""

    def __init__(self, judge: Any, config: RunnableConfig):
        self._judge, self._config = judge, config

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # what copies and pickles look for is this object's own, or nobody's
        return getattr(self._judge, name)

    async def judge(self, question: Question) -> Judgment:
        return await self._run(question.criterion.name or question.criterion.requirement, self._judge.judge, question)

    async def judge_batch(self, questions: Any) -> Any:
        return await self._run("criteria", self._judge.judge_batch, questions)

    async def judge_overall(self, submission: Any, rubric: Rubric) -> Any:
        return await self._run("whole", lambda texts: self._judge.judge_overall(texts, rubric), submission)

    async def _run(self, name: str, ask: Callable[[Any], Any], given: Any) -> Any:
        async def asked(value: Any) -> Any:
            return await ask(value)

        return await RunnableLambda(asked).ainvoke(given, patch_config(self._config, run_name=f"judge:{name[:60]}"))
