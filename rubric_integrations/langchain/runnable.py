"""A LangChain Runnable that grades: `RubricRunnable(rubric, judge=...).batch([{"output": "..."}])`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import patch_config
from pydantic import BaseModel, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from rubric_integrations._host import HostGrader
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction, problem_of
from rubric_integrations.graders import Grader
from rubric_integrations.judges.protocol import Judge, JudgeLike, Request, RequestWrapper, answer
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.langchain.inputs import FieldSelector
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.columns import USUAL_COLUMNS, missing_column
from rubric_integrations.submission.inputs import evidence_fields, is_row, is_state, row_fields, without_arrays
from rubric_integrations.submission.messages import Respond, is_message

# A model that calls the runnable as a tool passes JSON. Therefore the schema lists only forms that JSON can express.
_TEXT_OR_MESSAGES = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {}}]})


class RubricInput(BaseModel):
    """The input of a `RubricRunnable`.

    Attributes:
        output: The output to grade: a text, a message, a prompt, a list of messages in any form that LangChain accepts,
            or the state of an agent. Any other value, such as a pydantic model, is graded as JSON.
        input: The task that the output answers, in the same forms.
        reference: A reference answer, in the same forms.
        context: Documents, such as retrieved passages: a text, or a list of texts or of LangChain documents.
        thinking: The reasoning before the output. Like the following fields, it is not in the schema, because a model
            that calls the runnable as a tool must not choose its own evidence or rubric.
        attachments: Images and other files, as for `Rubric.grade`.
        trajectory: The steps that led to the output, in any dialect that `Trajectory.from_messages` reads.
        fields: All keys and values of the input, for a function that returns the rubric of an input.
    """

    output: Annotated[Any, _TEXT_OR_MESSAGES] = Field(
        description="The text to grade, or chat messages whose last is graded."
    )
    input: Annotated[Any, _TEXT_OR_MESSAGES] = Field(default=None, description="The task that it answers.")
    reference: Annotated[Any, _TEXT_OR_MESSAGES] = Field(default=None, description="A reference answer.")
    context: Any = Field(default=None, description="Documents that the output can be compared with.")
    thinking: SkipJsonSchema[Any] = None
    attachments: SkipJsonSchema[Any] = None
    trajectory: SkipJsonSchema[Any] = None
    fields: SkipJsonSchema[dict[str, Any]] = Field(default_factory=dict[str, Any], exclude=True)


class RubricRunnable(Runnable[Any, EvaluationReport]):
    """A LangChain Runnable that grades the output of a chain, and returns the report.

    The input is the output of a model or an agent, as in `model | RubricRunnable(rubric, judge=...)`, or a dict with
    `output` and optionally the other fields of a `RubricInput`. The type of the input decides what is graded:

    - a message: its text.
    - a list of messages: the last answer, with the other messages as context.
    - the state of an agent: its `structured_response`, or else its messages.
    - a dict: the value of a key with a usual name, such as `output`. Therefore the dict can be the result of
      `RunnablePassthrough.assign(output=...)`. A dict without any usual name is graded as JSON.
    - any other object, such as a pydantic model: the object as JSON.

    Every question to the judge is a child run in the trace. If the judge is a LangChain chat model, it gets the
    callbacks, tags and metadata. The grader's concurrency limit applies to all calls in an event loop, also with nested
    `batch` and `abatch`. All synchronous callers share one event loop.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list, a dictionary, or a function that returns one of these for
            a `RubricInput`, whose `fields` contain the full input. Pass None if each input has its own `rubric`. If
            you pass a rubric or a function, the `rubric` of an input is ignored.
        judge: The judge: a LangChain chat model, a model name, a `dspy.LM`, an async function or a `Judge`. Pass either
            `judge` or `grader`.
        grader: A configured grader, instead of `judge`.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. By default, judgments are not stored.
        respond: The part that is graded if the output is a list of messages: the `"last"` answer, the full
            `"transcript"`, or the `"trajectory"`, which is the transcript with numbered steps.
        name: The name of the runs in the trace.
        library: Rubrics by name, or the path of a file with such a mapping, for inputs whose `rubric` is a name.
        output_key: If set, the result is the dict `{output_key: report}`. By default, the result is the report itself.
            Set it if the runnable is a node of a LangGraph graph. Otherwise LangGraph writes each field of the report,
            such as `score`, into the field of the graph's state with the same name.

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` has none of the accepted types.
        ValueError: Neither `judge` nor `grader` is passed, or both are.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> chain = RubricRunnable(rubric, judge="offline") | (lambda report: report.score)
        >>> chain.batch([{"output": "It is 42."}, "It is 41."])
        [1.0, 0.0]
    """

    def __init__(
        self,
        rubric: RubricLike | RubricFunction | None = None,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
        respond: Respond = "last",
        name: str = "rubric",
        library: Mapping[str, RubricLike] | str | Path | None = None,
        output_key: str | None = None,
    ):
        self.rubrics, self.name, self.output_key = RowRubrics(rubric, library), name, output_key
        self._fields = FieldSelector("output", "input", "reference", respond, "context")
        self._grader = HostGrader("RubricRunnable", judge, grader, ledger, remembers_refusals=False)

    @property
    def InputType(self) -> type[RubricInput]:  # noqa: N802 -- LangChain's name
        """The type of the input, for LangChain's schemas: `RubricInput`."""
        return RubricInput

    @property
    def OutputType(self) -> Any:  # noqa: N802 -- LangChain's name
        """The type of the result, for LangChain's schemas: a report or, with `output_key`, a dict."""
        return EvaluationReport if self.output_key is None else dict[str, EvaluationReport]

    # LangChain's own methods (`batch`, `stream`, `with_retry`) call `invoke` and `ainvoke` with `**kwargs`.
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> EvaluationReport:  # noqa: A002
        """Grade one input.

        Raises:
            JudgeError: A criterion could not be judged.
            ValueError: The output is empty, the rubric of the input is invalid, or the input is a dict that has a key
                for another field, such as `input` or `reference`, but no key for the output.
        """
        return self._call_with_config(self._grade_sync, input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> EvaluationReport:  # noqa: A002
        """Grade one input asynchronously, as `invoke` does."""
        return await self._acall_with_config(self._grade, input, config, **kwargs)

    def _grade_sync(self, value: Any, run_manager: Any, config: RunnableConfig) -> EvaluationReport:
        return run_sync(self._grade(value, run_manager, config))

    async def _grade(self, value: Any, run_manager: Any, config: RunnableConfig) -> EvaluationReport:
        """Grade one input, with the judges' calls as child runs of the runnable."""
        parsed = _parse_input(value)
        texts = dict(parsed)  # `model_dump` would turn LangChain's messages into dicts
        submission = self._fields.select(texts, texts, texts, own=evidence_fields(texts))
        if submission is None:
            raise ValueError(f"`output` is {parsed.output!r}: there is nothing to grade")
        child_config = patch_config(config, callbacks=run_manager.get_child())
        # LangGraph leaves runs with this tag out of its streams. A judge may be a function that calls a chat model.
        child_config["tags"] = [*child_config.get("tags", ()), "nostream"]
        grader = self._grader()
        traced_grader = grader.with_judges([_TracedJudge(judge, child_config) for judge in grader.judges])
        try:
            # Not joined with a shared rubric, unlike the rubric of a row, because a model may have written the input.
            rubric = self.rubrics.of(parsed, None if self.rubrics.shared else parsed.fields.get("rubric"))
        except ValueError as error:
            raise ValueError(f"the input {problem_of(error)}") from error
        report = await traced_grader.grade(rubric, submission)
        return report if self.output_key is None else cast("Any", {self.output_key: report})


def _parse_input(value: Any) -> RubricInput:
    """Convert any input of the runnable to a `RubricInput`."""
    if isinstance(value, RubricInput):
        return value
    if not isinstance(value, Mapping) or is_message(value):
        return RubricInput(output=value)
    fields = without_arrays(value)
    if not is_row(fields) or (is_state(fields) and "output" not in fields):
        return RubricInput(output=fields)
    if missing_column(fields, USUAL_COLUMNS) is not None:
        raise ValueError(
            f"the input has no `output` (its keys are {sorted(map(str, fields))!r}): pass {{'output': ...}}, a text, "
            "messages or the state of an agent, or nothing could be graded"
        )
    own = row_fields(fields)
    others = {name: own.get(name) for name in ("reference", "context", "thinking", "attachments", "trajectory")}
    return RubricInput(output=own.get("response"), input=own.get("query"), fields=dict(fields), **others)


class _TracedJudge(RequestWrapper):
    """A judge that records each question as a child run in the trace, with the calls of its model as children."""

    def __init__(self, judge: Judge, config: RunnableConfig):
        super().__init__(judge)
        self._config = config

    async def answer(self, request: Request) -> Any:
        """Answer a request inside a child run, named `judge:` and the name of the criterion."""
        question = request.question
        name = "whole" if request.questions is None else "criteria"
        argument: Any = request.submission if request.questions is None else request.questions
        if question is not None:
            name, argument = question.criterion.name or question.criterion.requirement, question

        async def traced_call(_value: Any) -> Any:
            return await answer(self.inner, request)

        config = patch_config(self._config, run_name=f"judge:{name[:60]}")
        return await RunnableLambda(traced_call).ainvoke(argument, config)
