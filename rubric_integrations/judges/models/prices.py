"""The price list of DSPy, which the first look at a price may fetch from the network."""

from __future__ import annotations

import dspy
from dspy.clients import model_metadata


async def load_prices(lm: dspy.BaseLM) -> None:
    """Load the price list once, in a thread, if it has the prices of this model.

    DSPy would load it after the first reply, where the time counts against the timeout of that call.
    """
    # The engines of functions and of chat models are objects; an engine of DSPy's own is named by a text.
    if isinstance(getattr(lm, "engine", None), str):
        await model_metadata.apreload()
