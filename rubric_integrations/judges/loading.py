"""Makes a judge of a judge's file alone: with the model that it was aligned for."""

from __future__ import annotations

import os
from typing import Any

from rubric_integrations.judges.judge_file import read_judge_file
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.models.from_name import NO_OPTIONS, ModelOptions


def load_judge(path: str | os.PathLike[str], options: ModelOptions = NO_OPTIONS) -> LMJudge:
    """Make the judge that a file describes, with the model and the settings that it was aligned with.

    Which key of the environment goes to which server is decided as for a model name (see `models/keys.py`).

    Args:
        path: The file, as `LMJudge.save` wrote it.
        options: Where and how the model is called; they replace the settings of the file.

    Raises:
        ValueError: The file cannot be read, is damaged, or names no model that can be called by its name.
    """
    file = read_judge_file(path)
    try:
        name = file.model_name()
    except ValueError as error:
        how = f'`LMJudge("openai/gpt-5-mini").load({str(path)!r})`'
        raise ValueError(f"{path}: {error}: load it into a judge of your model, as in {how}") from None
    settings: dict[str, Any] = {**file.settings.model_dump(exclude_none=True), **options.chosen()}
    return LMJudge(name, **settings).load(path)
