"""Ways to obtain a judgment. `as_judge` turns what a user passes as `judge=` into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rubric_integrations.judges.protocol import Judge, Question

if TYPE_CHECKING:
    import dspy
    from langchain_core.language_models import BaseChatModel

    from rubric_integrations.judges.models.from_name import GenerateFn

    JudgeLike = str | Judge | dspy.BaseLM | BaseChatModel | GenerateFn

__all__ = ["Judge", "Question", "as_judge"]


def as_judge(
    judge: JudgeLike,
    *,
    api_base: str | None = None,
    api_key: str | None = None,
    system_prompt: str | None = None,
) -> Judge:
    """Make a judge of a model name, a `dspy.LM`, a LangChain chat model, an async function, a `Judge`, or `"offline"`.

    Args:
        judge: What to judge with.
        api_base: The base URL of an OpenAI-compatible server; goes with a model name.
        api_key: Its key; goes with a model name.
        system_prompt: Instructions in place of the built-in ones; goes with anything that is a model.

    Raises:
        TypeError: `judge` is none of these.
        ValueError: An option does not go with it, or the model name is malformed.
    """
    if judge == "offline" or (not isinstance(judge, str) and hasattr(judge, "judge")):
        for name, option in {"api_base": api_base, "api_key": api_key, "system_prompt": system_prompt}.items():
            if option is not None:
                raise ValueError(f"`{name}` does not go with the judge {judge!r}: it would have no effect")
    if judge == "offline":
        from rubric_integrations.judges.offline import OfflineJudge

        return OfflineJudge()
    if isinstance(judge, Judge):
        return judge

    import dspy

    from rubric_integrations.judges.lm_judge import LMJudge
    from rubric_integrations.judges.models.from_name import lm_from_fn, lm_from_name
    from rubric_integrations.judges.models.langchain import is_chat_model, lm_from_chat_model

    if isinstance(judge, str):
        return LMJudge(lm_from_name(judge, api_base, api_key), system_prompt)
    if api_base is not None or api_key is not None:
        raise ValueError("`api_base` and `api_key` go with a model name: configure the model you pass instead")
    if isinstance(judge, dspy.BaseLM):
        return LMJudge(judge, system_prompt)
    if is_chat_model(judge):
        return LMJudge(lm_from_chat_model(cast("BaseChatModel", judge)), system_prompt)
    if callable(judge):
        return LMJudge(lm_from_fn(judge), system_prompt)
    raise TypeError(
        f"`judge` must be a model name, a dspy.LM, a LangChain chat model, an async generate_fn(system_prompt, "
        f"user_prompt), a Judge or 'offline', got {type(judge).__name__}"
    )
