"""The judge that the options `--judge` and `--api-base` name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rubric_integrations.judges import Judge


def has_model(judge: str) -> bool:
    """Whether `--judge` names a model, and no judge that has none."""
    from rubric_integrations.judges import NAMED_JUDGES

    return judge not in NAMED_JUDGES


def make_judge(judge: str, api_base: str | None) -> Judge:
    """Make a judge of a model name and the base URL of its server, or the judge without a model.

    Raises:
        ValueError: The model name is empty, or the base URL goes with a judge that has no model.
    """
    from rubric_integrations.judges import LMJudge, as_judge

    if not has_model(judge):
        if api_base is not None:
            raise ValueError(f"`--api-base` has no effect on the judge {judge!r}: leave it out, or name a model")
        return as_judge(judge)
    return LMJudge(judge, api_base=api_base)
