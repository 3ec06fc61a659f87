"""Judges: language models, an offline judge without a model, and the protocol for your own.

To add a judge, write a class with a method `judge` (see `Judge`) and pass an instance wherever a judge is accepted. To
make it available by a name such as `"offline"`, add it to `NAMED_JUDGES`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rubric_integrations._util.lazy import lazy_names
from rubric_integrations.judges.decisions import is_decision_model
from rubric_integrations.judges.offline import OfflineJudge
from rubric_integrations.judges.protocol import (
    AlignmentRecord,
    BatchJudge,
    BatchResult,
    Judge,
    JudgeLike,
    JudgeRequest,
    JudgeWrapper,
    ModelLike,
    OverallJudge,
    OverallResult,
    Question,
)
from rubric_integrations.judges.store import JudgmentStore

if TYPE_CHECKING:
    from rubric_integrations.judges.cascade import Cascade
    from rubric_integrations.judges.decision_judge import DecisionJudge
    from rubric_integrations.judges.explained import Explained
    from rubric_integrations.judges.explorer import Explorer
    from rubric_integrations.judges.lm_judge import LMJudge
    from rubric_integrations.judges.models.names import ModelSettings, lm_from_fn
    from rubric_integrations.judges.prompts.signatures import as_example
    from rubric_integrations.judges.recorded import Readings, read_recorded_replies, read_recorded_reply
    from rubric_integrations.judges.thresholds import CriterionThresholds, Thresholds
    from rubric_integrations.judges.trajectory_tools import ExplorerLimits

_MODULES = {
    "Cascade": "cascade",
    "CriterionThresholds": "thresholds",
    "DecisionJudge": "decision_judge",
    "Explained": "explained",
    "Explorer": "explorer",
    "ExplorerLimits": "trajectory_tools",
    "LMJudge": "lm_judge",
    "ModelSettings": "models.names",
    "as_example": "prompts.signatures",
    "lm_from_fn": "models.names",
    "Readings": "recorded",
    "read_recorded_replies": "recorded",
    "read_recorded_reply": "recorded",
    "Thresholds": "thresholds",
}

__all__ = [
    "AlignmentRecord",
    "BatchJudge",
    "BatchResult",
    "Cascade",
    "CriterionThresholds",
    "DecisionJudge",
    "Explained",
    "Explorer",
    "ExplorerLimits",
    "Judge",
    "JudgeLike",
    "JudgeRequest",
    "JudgeWrapper",
    "JudgmentStore",
    "LMJudge",
    "ModelLike",
    "ModelSettings",
    "OfflineJudge",
    "OverallJudge",
    "OverallResult",
    "Question",
    "Readings",
    "Thresholds",
    "as_example",
    "as_judge",
    "lm_from_fn",
    "read_recorded_replies",
    "read_recorded_reply",
]

NAMED_JUDGES: dict[str, Callable[[], Judge]] = {
    "offline": OfflineJudge,
}
"""Judges without a model, by the name that a user passes."""


def as_judge(judge: JudgeLike, system_prompt: str | None = None) -> Judge:
    """Make a judge from any value that a user can pass as `judge=`.

    Args:
        judge: A `Judge`, the name `"offline"`, the file of an aligned judge or of thresholds, or a model. A `Judge` is
            returned unchanged. A file is a `Path` or a text that ends with `.json`, and it names its model. A model is
            a model name, a `dspy.LM`, a LangChain chat model, or an async function of two prompts. For a model, the
            result is an `LMJudge`. For a decision model, it is a `DecisionJudge`: for a name such as
            `typesafe/jev-1.13.0` or `openai-decisions/gpt-6-luna`, a `dspy.experimental.TypeSafe` or an
            `OpenAIDecisions` of LangChain.
        system_prompt: Instructions that replace the built-in ones. Only valid if `judge` is a model.

    Raises:
        TypeError: `judge` has none of these types.
        ValueError: `system_prompt` is passed with a judge that is not a model, the model name is empty, or the file is
            not the file of an aligned judge (see `rubric_integrations.trust.align`).
    """
    if file := judge_file_of(judge):
        if system_prompt is not None:
            raise ValueError(f"`system_prompt` has no effect on {file}, which has instructions: leave it out")
        from rubric_integrations.judges.thresholds import has_thresholds

        if has_thresholds(file):
            from rubric_integrations.judges.cascade import load_cascade

            return load_cascade(file)
        from rubric_integrations.judges.lm_judge import load_judge

        return load_judge(file)
    from rubric_integrations.graders.grader import Grader

    if isinstance(judge, Grader):  # a grader also has a method `judge`
        raise TypeError(f"`judge` is a grader, {type(judge).__name__}: pass it as `grader=`, or its judge as `judge=`")
    if isinstance(judge, type):
        name = judge.__name__
        raise TypeError(f"`judge` is the class {name}: pass an object, `{name}(...)`, or every question would fail")
    name = judge if isinstance(judge, str) else None
    is_judge = name is None and isinstance(judge, Judge)
    if is_judge or name in NAMED_JUDGES:
        if system_prompt is not None:
            raise ValueError(
                f"`system_prompt` goes with a model, and has no effect on the judge {judge!r}: give an LMJudge its own"
            )
        return cast("Judge", judge) if name is None else NAMED_JUDGES[name]()
    if is_decision_model(judge):
        from rubric_integrations.judges.decision_judge import decision_judge_of

        if system_prompt is not None:
            raise ValueError(
                "`system_prompt` has no effect on a decision model, which reads only questions: leave it out"
            )
        return decision_judge_of(judge)
    from rubric_integrations.judges.lm_judge import LMJudge

    try:
        return LMJudge(cast("ModelLike", judge), system_prompt=system_prompt)
    except TypeError as error:
        kinds = str(error).removeprefix("`model` must be one of: ")
        names = ", ".join(map(repr, NAMED_JUDGES))
        raise TypeError(f"`judge` must be a Judge, {names}, {kinds}") from None


def judge_file_of(judge: object) -> Path | None:
    """Return the path if a user passes a file as the judge, and None if the user passes a judge or a model.

    Example:
        >>> judge_file_of("openai/gpt-5-mini") is None, judge_file_of("judge.json").name
        (True, 'judge.json')
    """
    if isinstance(judge, Path):
        return judge
    return Path(judge) if isinstance(judge, str) and judge.lower().endswith(".json") else None


__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
