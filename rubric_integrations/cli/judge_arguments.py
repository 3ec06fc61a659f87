"""The options of a judge that several commands have: each has one name and one help text.

`judge_option` makes a judge of their values.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

EscalateToOption = Annotated[
    str | None,
    typer.Option(help="Ask --judge first, and this expensive model where it is not sure; several must agree."),
]
EscalateBelowOption = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="The confidence below which it is not: see the command `certify`."),
]
ApiBaseOption = Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server.")]
ApiKeyOption = Annotated[
    str | None,
    typer.Option(
        help="Key of that server. The variable RUBRIC_INTEGRATIONS_API_KEY keeps it out of the shell's history."
    ),
]
JudgeSettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A setting of the model: temperature, max_tokens, seed, reasoning_effort, service_tier, "
        "system_prompt, confidence, name or header.NAME.",
    ),
]
StrategyOption = Annotated[
    Literal["per-criterion", "one-shot", "holistic"],
    typer.Option(help="One call per criterion, one call for all criteria, or one score of the whole."),
]
