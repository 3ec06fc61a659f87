"""`DecisionJudge`, the judge that asks a decision model: many typed questions in one request, probabilities as answers.

The wire formats are in `decisions.py`, and the questions of a rubric in `decision_mapping.py`. This module sends the
requests on the pooled connections of `http.py`, and sorts the errors of servers. Neither of these modules imports DSPy.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import aiohttp

from rubric_integrations._util.event_loop import run_on_texts
from rubric_integrations._util.text import counted, url_without_secrets
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.judges.cascade import Cascade
from rubric_integrations.judges.credentials import redactor, split_url
from rubric_integrations.judges.decision_mapping import (
    TEMPLATE,
    Material,
    QuestionPair,
    answer_name,
    caution,
    judgment_of,
    question_pair,
    refusal,
    render_material,
    split_questions,
    sufficient_name,
)
from rubric_integrations.judges.decisions import (
    PROTOCOLS,
    DecisionProtocol,
    DecisionReply,
    ErrorInReply,
    TruncatedState,
    TypedQuestion,
    UnreadableDecisions,
    decision_client_of,
    split_model_name,
)
from rubric_integrations.judges.http import HttpAddress, needs_proxy, send
from rubric_integrations.judges.models.responses import NO_SUCH_PATH, REMEDY, is_about_size, server_message
from rubric_integrations.judges.models.servers import OWN_KEY, ModelServer, check_url, key_for_server
from rubric_integrations.judges.prompts.render import texts_of
from rubric_integrations.judges.protocol import BatchResult, Question
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import UNANSWERED_CALL, JudgeFailure, Judgment, Spend

if TYPE_CHECKING:
    from dspy import Module

    from rubric_integrations.judges.decision_program import DecisionProgram

# The time for a connection. The grader limits the time for a reply.
_CONNECT_SECONDS = 10.0
_LONGEST_MODEL_NAME = 200


class DecisionJudge:
    """A judge that asks a decision model, such as TypeSafe's Jev or OpenAI's Luna.

    A decision model reads the submission once and answers many typed questions about it. Each answer is a probability,
    and the model writes no text. Therefore judgments have no reason, but they have a `confidence`, an `expected_value`
    and `probabilities`. `PerCriterionGrader` asks about all criteria of a submission in one request.

    The model can answer binary criteria, criteria with options, and scales whose numbers or bands each have a text, at
    most ten. It refuses criteria that count occurrences.

    Args:
        model: The name of the model, such as `jev-1.13.0`. Name a version and not an alias such as `jev-latest`,
            because the model of an alias changes.
        protocol: The wire format: `system-one` or `openai-decisions`. The path of a URL does not tell the format.
        api_base: The base URL of the server, such as `http://localhost:8000`. A URL that ends with `/systemone` or
            `/decisions` is used unchanged. By default, the URL in TYPESAFE_BASE_URL or OPENAI_BASE_URL, or else the
            provider's own.
        api_key: The server's API key. By default, the key in TYPESAFE_API_KEY or OPENAI_API_KEY. That key is sent only
            to the provider and to this machine. For another server, pass the key here or set
            RUBRIC_INTEGRATIONS_API_KEY. A key from the environment is never sent over http to another machine.
        max_questions: The largest number of questions that the server accepts in one request. By default, the limit of
            the provider. If the judge abstains, one criterion has two questions.
        abstains: Whether the judge also asks whether the material is sufficient. If it is not, the verdict is
            CANNOT_ASSESS.

    Attributes:
        url: The URL of the requests, without credentials.
        max_questions: The largest number of questions in one request. None for no limit.
        independent_answers: True. The answer to a question does not depend on the other questions of the request.

    Raises:
        ValueError: An argument is out of range, or a key from the environment would be sent to a server for which it is
            not intended.

    Example:
        >>> judge = DecisionJudge("jev-1.13.0", api_key="sk-1")
        >>> judge.url
        'https://api.typesafe.ai/v1/systemone'
    """

    independent_answers = True

    def __init__(
        self,
        model: str,
        *,
        protocol: DecisionProtocol = "system-one",
        api_base: str | None = None,
        api_key: str | None = None,
        max_questions: int | None = None,
        abstains: bool = True,
    ):
        if not isinstance(cast("object", model), str) or not model.strip():
            raise ValueError(f"`model` must be the name of a decision model, such as 'jev-1.13.0', got {model!r}")
        if not isinstance(cast("object", protocol), str) or protocol not in PROTOCOLS:
            raise ValueError(f"`protocol` must be one of {', '.join(map(repr, PROTOCOLS))}, got {protocol!r}")
        for name, value in (("api_base", api_base), ("api_key", api_key)):
            if value is not None and not (isinstance(cast("object", value), str) and value.strip()):
                raise ValueError(f"`{name}` must be a text that is not empty, or None (the value is not shown)")
        least = 2 if abstains else 1
        if max_questions is not None and (type(max_questions) is not int or max_questions < least):
            pair = ", because `abstains` asks two questions about a criterion" if abstains else ""
            raise ValueError(f"`max_questions` must be at least {least}{pair}, got {max_questions!r}")
        self.model, self.protocol, self.abstains = model, protocol, abstains
        self._format = PROTOCOLS[protocol]
        self.max_questions = self._format.max_questions if max_questions is None else max_questions
        self._arguments: dict[str, Any] = {
            "protocol": protocol, "api_base": api_base, "api_key": api_key, "max_questions": max_questions,
            "abstains": abstains,
        }  # fmt: skip
        server = self._server(api_base)
        check_url(server.url, server.source)
        self._url = _request_url(server.url, self._format.route)
        self._api_key = api_key or key_for_server(server, self._format.default_url, self._key_variable)
        if self._api_key is not None and not (self._api_key.isascii() and self._api_key.isprintable()):
            raise ValueError(
                "`api_key` has a character that is not printable ASCII (the key is not shown): copy it again"
            )
        self._has_warned = False

    def __reduce__(self) -> Any:
        # A key of the environment is read again, because it must not be pickled.
        return partial(type(self), self.model, **self._arguments), ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, protocol={self.protocol!r}, api_base={self.url!r})"

    @property
    def url(self) -> str:
        """The URL of the requests, without credentials."""
        return url_without_secrets(self._url)

    @property
    def model_name(self) -> str:
        """The name of the model with the prefix of its protocol, for prices and reports."""
        return f"{self._format.prefix}{self.model}"

    @property
    def runs_user_code(self) -> bool:
        """Whether an answer may run a user's code, which only a subclass does."""
        return type(self) is not DecisionJudge

    def highest_cost(self, text_bytes: int) -> float | None:
        """Return None: the price is not known. A run with `max_cost` needs the model's price in `prices`."""
        return None

    def without_cache(self) -> DecisionJudge:
        """Return this judge, because it has no cache."""
        return self

    def fingerprint(self) -> str:
        """Return a text that identifies the protocol, the model, the server and the questions of this judge.

        It contains neither the key nor `max_questions`, on which no answer depends. It has the parts of an `LMJudge`.
        """
        server, rest = split_url(self._url)
        own = None if server == split_url(self._format.default_url)[0] else server
        settings = {"abstains": self.abstains}
        return json.dumps([f"{self._format.prefix}{self.model}", own, settings, "decisions", rest, TEMPLATE])

    def refusal(self, criterion: Criterion) -> str | None:
        """Return why this judge cannot answer a criterion, and what to do. None if it can.

        Graders call it before the first request.
        """
        return refusal(criterion)

    def caution(self, criteria: Sequence[Criterion]) -> str | None:
        """Return a warning about criteria of kinds that decision models are reported to judge badly. None without any.

        The kinds are counting, dates, negation and long material. The commands `grade` and `preview` print it.
        """
        return caution(criteria)

    def program(self, rubric: RubricLike, *, cache: bool = True) -> DecisionProgram:
        """Return the questions of a rubric as a `dspy.Predict`, for `dspy.experimental.ReAnchor` and your own programs.

        Its inputs are the fields of a `Submission`, such as `response` and `query`. It has one output field for each
        criterion and condition that needs a judge: a `bool` for a binary criterion, the label of an option, or a
        `dspy.experimental.Score` for a scale. If the judge abstains, a further `bool` with the ending `_sufficient`
        says whether the material is sufficient. A criterion without a name that is a Python identifier has a field such
        as `c2` or `criterion_2`.

        The program sends the same bytes as this judge in a `PerCriterionGrader`, with the same retries. If one question
        has no answer, the call fails with a `JudgeFailure`, and nothing is cached.

        Args:
            rubric: The rubric, the path of its file, or its criteria as lists and dictionaries.
            cache: Whether replies are stored in DSPy's cache. ReAnchor tries many thresholds on the same replies.

        Raises:
            ValueError: This judge cannot answer a criterion, or no criterion needs a judge.
        """
        from rubric_integrations.judges.decision_program import program_of

        return program_of(self, rubric, cache=cache)

    def with_program(self, program: Module) -> Cascade:
        """Return a judge with the thresholds of a tuned program of this judge.

        An optimizer maximizes a mean on its examples. Therefore the thresholds are marked as `tuned` and promise
        nothing. Measure the result on other labels, or use `rubric_integrations.trust.certify`.

        Args:
            program: A program of `program`, or a module that contains one, usually the result of ReAnchor.

        Returns:
            A `Cascade` without an expensive judge. Its verdict is MET from the threshold of the program's field.

        Raises:
            TypeError: `program` does not contain exactly one program of a decision judge.
            ValueError: The program belongs to another judge, or has a setting that this judge does not have, such as
                tuned `weights` of options.
        """
        from rubric_integrations.judges.decision_program import tuned_cascade

        return tuned_cascade(self, program)

    def split(self, questions: Mapping[int, Question]) -> list[dict[int, Question]]:
        """Split questions about one submission into requests for `judge_batch`.

        The questions of a request see the same material, and are not more than the server accepts. A criterion and its
        abstention are in the same request.
        """
        return split_questions(questions, self.max_questions, abstains=self.abstains)

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion about one submission.

        Raises:
            JudgeFailure: There is no answer.
        """
        batch = await self.judge_batch({1: question})
        if 1 in batch.answers:
            return batch.answers[1].model_copy(update={"spend": batch.spend})
        failure = batch.failure(1)
        failure.spend = batch.spend
        raise failure

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria about one submission in one request.

        Raises:
            JudgeFailure: There is no reply, or no part of it can be used. The questions do not fit into one request, or
                a criterion cannot be asked.
        """
        pairs = {number: question_pair(question, abstains=self.abstains) for number, question in questions.items()}
        self._check(questions, pairs)
        submission = next(iter(questions.values())).submission
        contexts = (question.criterion.context for question in questions.values())
        material = await run_on_texts(partial(self._render, questions), *texts_of(submission), *contexts)
        typed = {name: text for number, pair in pairs.items() for name, text in pair.named(number).items()}
        reply, spend = await self.decide(material.state, typed, material.images)
        answers: dict[int, Judgment] = {}
        faults: dict[int, str | JudgeFailure] = {}
        for number, pair in pairs.items():
            fault = reply.faults.get(answer_name(number)) or reply.faults.get(sufficient_name(number))
            if fault is not None:
                faults[number] = fault
                continue
            neutralized = material.neutralized or pair.neutralized
            answers[number] = judgment_of(
                questions[number], number, reply, abstains=self.abstains, neutralized=neutralized
            )
        return BatchResult(answers, faults, spend)

    def _render(self, questions: Mapping[int, Question]) -> Material:
        return render_material(questions, reads_images=self._format.reads_images)

    def _check(self, questions: Mapping[int, Question], pairs: Mapping[int, QuestionPair]) -> None:
        """Check that all questions can be asked in one request.

        Raises:
            JudgeFailure: They cannot.
        """
        for number, pair in pairs.items():
            if pair.refusal:
                requirement = questions[number].criterion.requirement
                raise JudgeFailure("config", f"the criterion {requirement[:80]!r} {pair.refusal}")
        if (count := len(self.split(questions))) > 1:
            limit = f"the server accepts {self.max_questions} typed questions in one"
            without_limit = split_questions(questions, None, abstains=self.abstains)
            reason = "their criteria have different `context`" if len(without_limit) > 1 else limit
            message = (
                f"the {counted(len(questions), 'question')} need {count} requests, because {reason}: use "
                "PerCriterionGrader, which splits them"
            )
            raise JudgeFailure("config", message)

    async def decide(
        self, state: Mapping[str, Any], questions: Mapping[str, TypedQuestion], images: Sequence[str] = ()
    ) -> tuple[DecisionReply, Spend]:
        """Ask typed questions about a state in one request, and return the checked reply with its spend.

        Raises:
            JudgeFailure: There is no reply, or no part of it can be used.
        """
        if self._problem:
            raise JudgeFailure("config", self._problem, unreachable=True)
        body = self._format.encode(self.model, state, questions, images)
        try:
            reply = await send(self._address, body)
        except (aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            raise self._lost(error) from None
        if reply.status != 200:
            raise self._refused(reply.status, self._message(reply.status, reply.body), retry_after_of(reply.headers))
        return self.read_reply(reply.body, questions, retry_after_of(reply.headers))

    def read_reply(
        self, body: bytes, questions: Mapping[str, TypedQuestion], retry_after: float | None = None
    ) -> tuple[DecisionReply, Spend]:
        """Check the body of a reply with the status 200.

        Args:
            body: The body.
            questions: The questions of the request.
            retry_after: The seconds that the server asks to wait, if the reply reports an error.

        Raises:
            JudgeFailure: No part of the reply can be used.
        """
        try:
            decisions = self._format.decode(body, questions)
        except ErrorInReply as error:
            text = self._redact(error.message)
            code = error.code or 500
            message = f"HTTP 200 with the error {f'{code}: {text}' if error.code else text}"
            raise self._refused(code, message, retry_after) from None
        except TruncatedState as error:
            message = f"the server has cut the material, and judged only a part of it: {REMEDY}"
            spend = Spend(calls=1, usage=error.usage, cost=None)
            raise JudgeFailure("config", self._about(message), about_text=True, spend=spend) from None
        except UnreadableDecisions as error:
            message = self._about(f"HTTP 200: {self._redact(str(error))}")
            raise JudgeFailure("parse", message, retryable=True, spend=UNANSWERED_CALL) from None
        self._warn_of_extra(decisions.extra)
        if decisions.model is not None:
            decisions = decisions._replace(model=self._redact(decisions.model)[:_LONGEST_MODEL_NAME])
        return decisions, Spend(calls=1, usage=decisions.usage, cost=None)

    @property
    def _key_variable(self) -> str:
        return f"{self._format.stem}_API_KEY"

    def _server(self, api_base: str | None) -> ModelServer:
        if api_base is not None:
            return ModelServer(api_base, "`api_base`")
        names = (f"{self._format.stem}_BASE_URL", f"{self._format.stem}_API_BASE")
        default = ModelServer(self._format.default_url, "the default endpoint")
        return next((ModelServer(url, name) for name in names if (url := os.environ.get(name))), default)

    @cached_property
    def _address(self) -> HttpAddress:
        headers = [("content-type", "application/json")]
        if self._api_key:
            headers.append(("authorization", f"Bearer {self._api_key}"))
        return HttpAddress(self._url, headers, connect=_CONNECT_SECONDS, read=None)

    @cached_property
    def _problem(self) -> str | None:
        """Why no request can be sent. None if there is no known reason."""
        if needs_proxy(self._url):
            return (
                f"the environment sets a proxy for {self.url}, and a decision judge does not use proxies: add the host "
                "to NO_PROXY, or use a server that needs no proxy as `api_base`"
            )
        default_host = urlsplit(self._format.default_url).hostname
        if not self._api_key and urlsplit(self._url).hostname == default_host:
            return f"{self._key_variable} is not set: set it, or pass `api_key` (`--api-key` in the shell)"
        return None

    @cached_property
    def _redact(self) -> Any:
        return redactor({"api_key": self._api_key, "api_base": self._url})

    def _about(self, message: str) -> str:
        return f"[{self.model}] {message}"

    def _message(self, status: int, body: bytes) -> str:
        # The body is redacted before the message is shortened. Otherwise a part of a key could remain at its end.
        text = server_message(self._redact(body.decode(errors="replace")).encode())
        return f"HTTP {status}: {text}" if text else f"HTTP {status}"

    def _lost(self, error: Exception) -> JudgeFailure:
        """Return the failure for a request without a response."""
        is_unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        hint = f" ({self.url}: is the server running?)" if is_unsent else ""
        text = " ".join(str(error).split())  # a parser quotes what it cannot read on lines of its own
        message = self._redact(self._about(f"{type(error).__name__}: {text}{hint}"))
        spend = Spend(calls=1) if is_unsent else UNANSWERED_CALL
        return JudgeFailure("transport", message, retryable=True, unreachable=is_unsent, spend=spend)

    def _refused(self, status: int, message: str, retry_after: float | None) -> JudgeFailure:
        """Return the failure for a response that is an error.

        Args:
            status: The HTTP status, or the status of an error in a reply.
            message: The server's message.
            retry_after: The seconds that the server asks to wait.
        """
        message = self._about(message.rstrip("."))
        spend = Spend(calls=1)
        if status in (408, 429) or (status >= 500 and status != 501):
            return JudgeFailure(
                "transport", message, retryable=True, retry_after=retry_after, rate_limited=status == 429, spend=spend
            )
        is_too_large = status == 413 or (status in (400, 422) and is_about_size(message))
        if is_too_large or status == 422:
            remedy = f": {REMEDY}" if is_too_large else ""
            return JudgeFailure("config", f"{message}{remedy}", about_text=True, spend=spend)
        if status in (401, 403):
            message = f"{message}. {self._key_hint}"
        elif status in NO_SUCH_PATH and "model" in message.lower().removeprefix(f"[{self.model.lower()}]"):
            message = f"{message}. Check the name of the model, {self.model!r}"
        elif 300 <= status < 400:
            message = f"{message}. The server redirects, which is not followed: set `api_base` to its final address"
        elif status in NO_SUCH_PATH:
            other = next(name for name in PROTOCOLS if name != self.protocol)
            message = (
                f"{message}. There is no {self.protocol!r} API at {self.url}: check `api_base`, or pass "
                f"`protocol={other!r}` if the server has the other format"
            )
        return JudgeFailure("config", message, spend=spend)

    @property
    def _key_hint(self) -> str:
        if self._api_key:
            return "A key was sent: check that it is this server's"
        return f"No key was sent: pass it as `api_key` (`--api-key` in the shell), or set {OWN_KEY} to it"

    def _warn_of_extra(self, names: Sequence[str]) -> None:
        if names and not self._has_warned:
            self._has_warned = True
            shown = self._redact(", ".join(repr(name[:40]) for name in names[:3]))
            message = f"{self.model} answered questions that were not asked ({shown}): these answers are ignored"
            warnings.warn(message, UserWarning, stacklevel=2)


def decision_judge_of(model: object, api_base: str | None = None, api_key: str | None = None) -> DecisionJudge:
    """Make a judge from the name of a decision model, or from a decision model of DSPy or LangChain.

    The model, the address and the key of a `TypeSafe` or an `OpenAIDecisions` are read. These objects are not called,
    because their clients accept answers that are not correct. Another `BaseDecisionModel` of LangChain is called, and
    its answers are checked.

    Args:
        model: A name such as `typesafe/jev-1.13.0` or `openai-decisions/gpt-6-luna`, or the object.
        api_base: The base URL of the server, if `model` is a name.
        api_key: The server's API key, if `model` is a name.

    Raises:
        ValueError: The object has a setting that cannot be read, or an argument is out of range.
    """
    if isinstance(model, str):
        protocol, name = split_model_name(model)
        return DecisionJudge(name, protocol=protocol or "system-one", api_base=api_base, api_key=api_key)
    client: Any = model
    kind = decision_client_of(model)
    if kind == "BaseDecisionModel":
        from rubric_integrations.judges.decision_runnable import RunnableDecisionJudge

        return RunnableDecisionJudge(client)
    if kind != type(model).__name__:
        raise _unreadable(client, "class, which may change answers")
    for setting in _UNREADABLE_SETTINGS:
        if getattr(client, setting, None):
            raise _unreadable(client, f"`{setting}`")
    protocol = "system-one" if kind == "TypeSafe" else "openai-decisions"
    return DecisionJudge(client.model, protocol=protocol, api_base=client.base_url, api_key=_key_of(client, protocol))


# Settings of the clients that a `DecisionJudge` does not have.
_UNREADABLE_SETTINGS = (
    "callbacks", "openai_organization", "default_headers", "default_query", "http_client", "http_async_client",
)  # fmt: skip


def _key_of(client: Any, protocol: DecisionProtocol) -> str | None:
    """Return the key of a client. None for the key of the environment, which is chosen by the judge's own rules."""
    key: Any = client.api_key
    if hasattr(key, "get_secret_value"):
        key = key.get_secret_value()
    if key is not None and not isinstance(key, str):
        raise _unreadable(client, "`api_key`, which is a function")
    return None if key == os.environ.get(f"{PROTOCOLS[protocol].stem}_API_KEY") else key


def _unreadable(client: object, reason: str) -> ValueError:
    return ValueError(
        f"a {type(client).__name__} with this {reason} cannot be the judge, because a DecisionJudge does not have it: "
        "make a DecisionJudge of the model's name, with `api_base` and `api_key`"
    )


def _request_url(base: str, route: str) -> str:
    """Return the URL of the requests to a server."""
    parts = urlsplit(base)
    path = parts.path.rstrip("/")
    if not path.endswith(("/decisions", "/systemone")):
        is_versioned = path.endswith("/v1")
        path = f"{path or '/v1'}{route.removeprefix('/v1') if is_versioned or not path else route}"
    return parts._replace(path=path).geturl()


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait. None if it does not ask, or not in a number."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None
