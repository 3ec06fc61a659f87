"""The two steps of a model judge: from a question to a request, and from a reply to a judgment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import dspy

from rubric_integrations.judges.alignment_record import AlignmentRecord, is_trained_on
from rubric_integrations.judges.calling import ModelCaller
from rubric_integrations.judges.prompts.interpret import interpret_fields
from rubric_integrations.judges.prompts.render import PromptInputs
from rubric_integrations.judges.protocol import Question
from rubric_integrations.judges.requests import JudgeRequest
from rubric_integrations.judges.step_down import RequestForm
from rubric_integrations.results.judgment import JudgeFailure, Judgment


class RenderedQuestion(NamedTuple):
    """A question as a prompt: the predictor with its instructions, the texts and files, the few-shot examples."""

    predict: dspy.Predict
    prompt: PromptInputs
    demos: Sequence[dspy.Example]


class RequestSteps:
    """The two steps of `LMJudge.judge`, for whoever sends the request in between: a batch API, a queue, Ray Data.

    Attributes:
        lm: The language model.
        alignment: How the judge was aligned; None if it was not.
    """

    lm: dspy.BaseLM
    alignment: AlignmentRecord | None
    _caller: ModelCaller

    async def _render(self, question: Question) -> RenderedQuestion:
        raise NotImplementedError

    @property
    def request_form(self) -> RequestForm:
        """The form of the next request: without what the model's server has refused so far (see `step_down.py`)."""
        return self._caller.step_down.form

    def use_request_form(self, form: RequestForm) -> None:
        """Make further requests in a form that was found out earlier, and read replies to such requests."""
        self._caller.step_down.form = form

    def simpler_form(self, failure: JudgeFailure) -> RequestForm | None:
        """Return the form without what a server refused by this failure; None where another form would not help."""
        return self._caller.step_down.simpler(self.request_form, self.lm, failure)

    async def prepare_request(self, question: Question) -> JudgeRequest:
        """Make the request about one criterion, without sending it.

        `judge` sends the same bytes. The rules about keys and servers are the same, too: the headers have the key.

        Args:
            question: The criterion and the submission.

        Raises:
            JudgeFailure: The prompt is too long; or the judge has no request that somebody else could send: it is no
                model of OpenAI's protocol or of Anthropic's, or has `confidence`, `headers`, callbacks or a cache.

        Example:
            >>> import asyncio, json
            >>> from rubric_integrations import Criterion, Submission
            >>> from rubric_integrations.judges import LMJudge, Question
            >>> judge = LMJudge("openai/gpt-5-mini", api_key="sk-1")
            >>> question = Question(Submission(response="It is 42."), Criterion(requirement="States 42"))
            >>> request = asyncio.run(judge.prepare_request(question))
            >>> request.protocol, request.url, json.loads(request.body)["model"]
            ('openai', 'https://api.openai.com/v1/chat/completions', 'gpt-5-mini')
        """
        return await self._caller.prepare(self.lm, *await self._render(question))

    async def read_reply(self, question: Question, body: bytes, *, status: int = 200) -> Judgment:
        """Make the judgment of the response to a request of `prepare_request`, as `judge` would.

        Args:
            question: The same question.
            body: The body of the response.
            status: Its HTTP status.

        Returns:
            The judgment, with its cost at the prices of ordinary calls. As that of any judge, it is still to be
            validated, which graders do.

        Raises:
            JudgeFailure: The response is an error, or is no answer to the question.
        """
        predict, prompt, demos = await self._render(question)
        reply = await self._caller.read(self.lm, predict, prompt, demos, body, status)
        trained_on = is_trained_on(self.alignment, question)
        return interpret_fields(question, reply.fields, reply.spend, prompt.neutralized, trained_on=trained_on)
