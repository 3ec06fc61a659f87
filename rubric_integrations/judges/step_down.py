"""Leaves out of a judge's requests what its model's server refuses.

A request asks for the strictest reply format that DSPy knows for the model: a JSON Schema, or JSON mode. Some servers
refuse it (DeepSeek, Ollama and vLLM in some versions, older models of OpenAI). For a model that was given by its name,
it also has the default temperature, which some reasoning models refuse. After a refusal that names one of them, the
request is sent again with a simpler format or without the temperature. Once a server has accepted such a request, the
judge's other requests have that form, too.
"""

from __future__ import annotations

import re
from typing import NamedTuple, get_args

import dspy

from rubric_integrations.judges.prompts.adapter import ReplyFormat
from rubric_integrations.results.judgment import JudgeFailure

REPLY_FORMATS: tuple[ReplyFormat, ...] = get_args(ReplyFormat)
_NAMES_FORMAT = re.compile(r"response_format|json_(?:schema|object)|json mode|structured[ _]outputs?", re.IGNORECASE)
_NAMES_TEMPERATURE = re.compile(r"\btemperature\b", re.IGNORECASE)


class RequestForm(NamedTuple):
    """What a request asks for beside the prompt.

    Attributes:
        reply_format: The strictest format in which the reply is requested.
        default_temperature: Whether it has the default temperature, if the judge has one.
    """

    reply_format: ReplyFormat = REPLY_FORMATS[0]
    default_temperature: bool = True


class StepDown:
    """The form of one judge's requests.

    Args:
        default_temperature: The temperature of the judge's model if the user did not choose it; otherwise None. A
            temperature that the user chose is never left out.

    Attributes:
        form: The form in which the next request is sent first.
    """

    def __init__(self, default_temperature: float | None = None):
        self._default_temperature = default_temperature
        self.form = RequestForm()

    def model_for(self, lm: dspy.BaseLM, form: RequestForm) -> dspy.BaseLM:
        """Return the model for requests of this form: a copy if the form lacks the temperature of `lm`."""
        return lm if form.default_temperature or not self._has_default(lm) else lm.copy(temperature=None)

    def simpler(self, form: RequestForm, lm: dspy.BaseLM, failure: JudgeFailure) -> RequestForm | None:
        """Return the form without what the server refused; None where another form would not help."""
        if failure.kind != "config":
            return None
        position = REPLY_FORMATS.index(form.reply_format) + 1
        if _NAMES_FORMAT.search(failure.message) and position < len(REPLY_FORMATS):
            return form._replace(reply_format=REPLY_FORMATS[position])
        if _NAMES_TEMPERATURE.search(failure.message) and form.default_temperature and self._has_default(lm):
            return form._replace(default_temperature=False)
        return None

    def accepted(self, form: RequestForm) -> None:
        """Send later requests in this form, or in a simpler one that was accepted before.

        Only accepted forms are remembered: a refusal for another reason may quote the whole request.
        """
        position = max(REPLY_FORMATS.index(form.reply_format), REPLY_FORMATS.index(self.form.reply_format))
        self.form = RequestForm(REPLY_FORMATS[position], form.default_temperature and self.form.default_temperature)

    def _has_default(self, lm: dspy.BaseLM) -> bool:
        default = self._default_temperature
        return default is not None and lm.kwargs.get("temperature") == default
