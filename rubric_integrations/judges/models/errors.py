"""Checks the result of a call to a model, and converts the errors of clients and of DSPy to kinds of `JudgeFailure`.

A reply that was refused, filtered, cut off or empty is always a failure, whatever its text is. For example, a reply
that was cut off may end after a verdict that the judge only quoted. The kind of the failure is `parse` and not
`config`, because it is about one text and not about the judge. A retry may help, except after a content filter.

DSPy parses only the error messages of providers. `responses.py` also parses the messages of other servers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple, cast

from dspy import lm15
from dspy.utils.exceptions import (
    AdapterParseError,
    ContextWindowExceededError,
    DSPyError,
    LMConfigurationError,
    LMInvalidRequestError,
    LMProviderError,
    LMRateLimitError,
    LMTransportError,
    LMUnexpectedError,
    LMUnsupportedFeatureError,
    is_retryable_lm_error,
)

from rubric_integrations._util.lazy import install_command
from rubric_integrations._util.text import url_without_secrets
from rubric_integrations.judges.credentials import redact
from rubric_integrations.judges.models.keys import (
    CLOUD_CREDENTIALS,
    describe_sent_key,
    missing_key_variable,
    server_url_of_environment,
)
from rubric_integrations.judges.models.responses import (
    NO_SUCH_PATH,
    REMEDY,
    ErrorResponse,
    describe_response,
    says_too_long,
    server_message,
    token_usage,
    wrong_url_hint,
)
from rubric_integrations.judges.prompts.parse import NoVerdict, UnreadableReply
from rubric_integrations.scoring.judgment import NO_SPEND, UNANSWERED_CALL, JudgeFailure, Spend, TokenUsage

HAS_FORMAT = "has_format"
"""The key of `provider_data` under which this library's engines report whether they requested a JSON format."""

FINISH_REASON = "finish_reason"
"""The key of `provider_data` under which this library's engines report why a reply ended. None if it is unknown."""

MODEL = "model"
"""The key of `provider_data` under which replies of OpenAI and Anthropic, and our engines, name the model."""

LONGEST_MODEL_NAME = 200
"""The most characters of a model's name that are kept from a reply."""

NORMAL_ENDS = frozenset(
    {"stop", "STOP", "end_turn", "stop_sequence", "eos", "eos_token", "completed", "COMPLETE",
     "tool_call", "tool_calls", "tool_use", "function_call"}
)  # fmt: skip
"""The finish reasons by which providers report the end of a complete reply."""

# The paths of a finish reason in chat completions, Anthropic's messages, Gemini's replies, OpenAI's responses, and the
# replies of this library's engines.
_REASON_PATHS: tuple[tuple[str | int, ...], ...] = (
    ("choices", 0, "finish_reason"), ("stop_reason",), ("candidates", 0, "finishReason"), ("status",), (FINISH_REASON,),
)  # fmt: skip


class Completion(NamedTuple):
    """A model's reply.

    Attributes:
        text: The text as the model wrote it. Empty if the model wrote no text.
        finish_reason: Why the reply ended, such as `stop`, `length` or `content_filter`. None if it is unknown.
        usage: The token usage. None if the provider did not report it.
        cost: The cost in US dollars. None if the price is unknown.
        from_cache: Whether the reply came from DSPy's cache, without a call.
        refusal: The refusal that the model wrote instead of an answer, if the provider marks it as a refusal. Otherwise
            None.
        has_format: Whether a JSON format was requested, as this library's engines for functions and LangChain chat
            models report it. None for other models, whose request shows it.
        model: The model that the reply names, at most 200 characters. None if it names none.
    """

    text: str
    finish_reason: str | None
    usage: TokenUsage | None
    cost: float | None
    from_cache: bool = False
    refusal: str | None = None
    has_format: bool | None = None
    model: str | None = None

    @property
    def spend(self) -> Spend:
        """The spend of the call. It is empty for a reply from DSPy's cache."""
        return Spend() if self.from_cache else Spend(calls=1, usage=self.usage, cost=self.cost)


def completion_from_history(entry: Mapping[str, Any], caches: bool) -> Completion:
    """Make a completion from an entry that DSPy would append to a model's history.

    Args:
        entry: The entry: `response`, `outputs`, `usage` and `cost`.
        caches: Whether the model's DSPy cache is on. If so, a reply without usage came from the cache.
    """
    response: Any = entry.get("response")
    outputs: Any = entry.get("outputs") or [None]
    output: Any = outputs[0]
    text: Any = output.get("text") if isinstance(output, Mapping) else output
    reported: Any = entry.get("usage")
    usage = usage_from_mapping(reported)
    return Completion(
        text=_raw_text(response) or (text if isinstance(text, str) else ""),
        finish_reason=finish_reason_of(response),
        usage=usage,
        cost=None if reported and usage is None else _known_cost(entry.get("cost")),
        from_cache=caches and not reported,
        refusal=refusal_of(response),
        has_format=_provider_data(response).get(HAS_FORMAT),
        model=model_of(response),
    )


# These providers count the tokens of the reasoning apart from those of the answer.
_REASONING_APART = frozenset({"gemini", "vertex", "vertex-express", "xai"})


def completion_of_response(response: lm15.Response, provider: str = "") -> Completion:
    """Make a completion from a response in DSPy's form, without its cost.

    Args:
        response: The response.
        provider: The provider's name, because providers count tokens in different ways.
    """
    counts = response.usage
    sent, received = counts.input_tokens, counts.output_tokens
    if "anthropic" in provider and sent is not None:
        sent += (counts.cache_read_tokens or 0) + (counts.cache_write_tokens or 0)
    if provider in _REASONING_APART and received is not None:
        received += counts.reasoning_tokens or 0
    is_counted = sent is not None or received is not None
    usage = token_usage(sent, received, counts.cache_read_tokens, counts.reasoning_tokens) if is_counted else None
    return Completion(
        text=_raw_text(response) or _text_of(response),
        finish_reason=finish_reason_of(response),
        usage=usage,
        cost=None,
        refusal=refusal_of(response),
        has_format=_provider_data(response).get(HAS_FORMAT),
        model=model_of(response),
    )


def _text_of(response: lm15.Response) -> str:
    parts = response.message.parts
    texts = (
        part.text if isinstance(part, lm15.TextPart) else json.dumps(part.value, ensure_ascii=False)
        for part in parts
        if isinstance(part, lm15.TextPart | lm15.DataPart)
    )
    return "".join(texts)


def refusal_of(response: Any) -> str | None:
    """Return the refusal in a response of DSPy or of an SDK. None if there is no refusal."""
    if isinstance(response, lm15.Response):
        parts = [part.text for part in response.message.parts if isinstance(part, lm15.RefusalPart)]
        if refusal := "".join(parts):
            return refusal
    message = _field(_first_choice(response), "message")
    refusal = _field(message, "refusal") or _field(_field(message, _LITELLM_FIELDS), "refusal")
    return refusal if isinstance(refusal, str) and refusal else None


# LiteLLM's name for renamed fields and for fields outside the common format.
_LITELLM_FIELDS = "provider_specific_fields"


def _first_choice(response: Any) -> object:
    """Return the first choice in a response of an SDK, or in the data that DSPy keeps of it. None if there is none."""
    choices: object = getattr(response, "choices", None) or _provider_data(response).get("choices")
    return choices[0] if isinstance(choices, list) and choices else None


def _field(part: object, name: str) -> Any:
    return part.get(name) if isinstance(part, Mapping) else getattr(part, name, None)


def usage_from_mapping(usage: Mapping[str, Any] | None) -> TokenUsage | None:
    """Parse a usage object in OpenAI's format. None if it has no token counts, or impossible counts."""
    if not usage or (usage.get("prompt_tokens") is None and usage.get("completion_tokens") is None):
        return None
    sent_details: Mapping[str, Any] = usage.get("prompt_tokens_details") or {}
    received_details: Mapping[str, Any] = usage.get("completion_tokens_details") or {}
    return token_usage(
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        sent_details.get("cached_tokens"),
        received_details.get("reasoning_tokens"),
    )


def response_usage(sent: Any, received: Any, cached: Any = None) -> lm15.Usage:
    """Make the usage of a response for DSPy. Impossible counts, for which DSPy raises an error, become unknown."""
    if token_usage(sent, received, cached) is None:
        return lm15.Usage()
    return lm15.Usage(input_tokens=sent, output_tokens=received, cache_read_tokens=cached)


def _known_cost(cost: object) -> float | None:
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    return cost if math.isfinite(cost) and cost >= 0 else None


def finish_reason_of(response: Any) -> str | None:
    """Return why a reply ended. None if it is unknown.

    DSPy also reports `stop` if it does not know why a reply ended. Therefore a `stop` is checked against the provider's
    data. If that data has no finish reason, the result is None. A reason that DSPy does not know is returned unchanged.
    """
    choice = _first_choice(response)
    fields = _field(choice, _LITELLM_FIELDS)
    reason: object = getattr(response, "finish_reason", None) or _field(choice, "finish_reason")
    if reason != "stop":
        return reason if isinstance(reason, str) and reason else None
    if isinstance(fields, Mapping) or type(response).__module__.startswith("litellm."):
        # LiteLLM also reports `stop` for an unknown or missing finish reason, and keeps the original name.
        reason = _field(fields, "native_finish_reason")
    elif data := _provider_data(response):
        for path in _REASON_PATHS:
            try:
                reason = reduce(lambda value, key: value[key], path, cast("Any", data))
            except (LookupError, TypeError):
                continue
            break
    reason = "stop" if reason in NORMAL_ENDS else reason
    return reason if isinstance(reason, str) and reason else None


def model_of(response: object) -> str | None:
    """Return the model that a reply itself names, cut to 200 characters. None if it names none.

    DSPy's own field is not used: for a reply without a name, and for all replies of Gemini, it has the requested name.

    Args:
        response: The response of DSPy or of an SDK.
    """
    data = _provider_data(response)
    is_native = isinstance(response, lm15.Response)
    name: object = data.get(MODEL) or data.get("modelVersion") if is_native else _field(response, MODEL)
    return name[:LONGEST_MODEL_NAME] if isinstance(name, str) and name else None


def _provider_data(response: Any) -> Mapping[str, Any]:
    data: object = getattr(response, "provider_data", None)
    return data if isinstance(data, Mapping) else {}


def _raw_text(response: Any) -> str | None:
    """Return the text that a provider sent, if DSPy has parsed it. None if DSPy's text is the provider's text.

    DSPy parses a reply to a JSON Schema and passes on the JSON of the parsed value. A field that the model wrote twice
    then appears only once, and the judge's parser could not refuse the reply. The provider's JSON still has both.
    """
    if not isinstance(response, lm15.Response):
        return None
    parsed = [part for part in response.message.parts if isinstance(part, lm15.DataPart)]
    # Probabilities that a provider measured are not text of the model.
    if not parsed or any(part.probabilities is not None for part in parsed):
        return None
    body = response.provider_data or {}
    for find in (_openai_chat_text, _openai_responses_text, _anthropic_text, _gemini_text):
        try:
            text = find(body)
        except (LookupError, TypeError, AttributeError):
            continue
        if text:
            return text
    return None


def _openai_chat_text(body: Mapping[str, Any]) -> str:
    return body["choices"][0]["message"]["content"]


def _openai_responses_text(body: Mapping[str, Any]) -> str:
    messages = (item for item in body["output"] if item.get("type") == "message")
    return "".join(part["text"] for message in messages for part in message["content"] if part["type"] == "output_text")


def _anthropic_text(body: Mapping[str, Any]) -> str:
    return "".join(block["text"] for block in body["content"] if block["type"] == "text")


def _gemini_text(body: Mapping[str, Any]) -> str:
    parts = body["candidates"][0]["content"]["parts"]
    return "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))


class ResponseError(Exception):
    """The cause of an error that this library raises for an HTTP response.

    Attributes:
        response: The response.
    """

    def __init__(self, response: ErrorResponse):
        super().__init__(f"HTTP {response.status}")  # without the body, which may contain texts and keys
        self.response = response

    def __reduce__(self) -> Any:
        return ResponseError, (self.response,)


def find_response(error: BaseException) -> ErrorResponse | None:
    """Return the HTTP response that caused an error of DSPy. None if the error does not have it.

    Errors of requests that this library sends have it. Errors of DSPy's own clients have only the status.
    """
    # DSPy's error, the error of its client, and the response. An exception may be its own cause.
    for cause in (error.__cause__, error.__cause__ and error.__cause__.__cause__):
        if isinstance(cause, ResponseError):
            return cause.response
    return None


FILTERED = "the model's safety system or the provider's content filter stopped the reply"
"""The message for the finish reason `content_filter`. DSPy also uses this reason for Anthropic's `refusal`."""

FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation",
     "promptFeedback", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"}
)  # fmt: skip
"""The error codes for a prompt that a content filter blocks: first of OpenAI and Azure, then of Gemini."""

_LONGEST_QUOTE = 200


def require_answer(completion: Completion, settings: Mapping[str, Any]) -> None:
    """Check that a reply ended normally and is not empty.

    Args:
        completion: The reply.
        settings: The settings of the model. The message quotes `max_tokens`.

    Raises:
        JudgeFailure: The reply was refused, filtered, cut off or empty. The kind is `parse`, and the message has the
            reason.

    Example:
        >>> require_answer(Completion('{"verdict": "M', "length", None, None), {"max_tokens": 10})
        Traceback (most recent call last):
        rubric_integrations.scoring.judgment.JudgeFailure: parse: the reply was cut off at `max_tokens` (10): raise it
    """
    problem = _problem(completion, settings)
    if problem is not None:
        is_filtered = completion.finish_reason == "content_filter"
        about_text = is_filtered or bool(completion.refusal)
        repeats = 0 if is_filtered else 1 if completion.refusal else None
        raise JudgeFailure(
            "parse", problem, retryable=not is_filtered, about_text=about_text, repeats=repeats, spend=completion.spend
        )


def _problem(completion: Completion, settings: Mapping[str, Any]) -> str | None:
    """Return why the reply of a model cannot be used, or None if it can."""
    if completion.refusal:
        quote = " ".join(completion.refusal.split())[:_LONGEST_QUOTE]
        return f"the model refused to answer: {quote!r}"
    if completion.finish_reason == "content_filter":
        return FILTERED
    is_empty = not completion.text.strip()
    if completion.finish_reason == "length":
        return _cut_off(is_empty, settings.get("max_completion_tokens") or settings.get("max_tokens"))
    if completion.finish_reason is not None and completion.finish_reason not in NORMAL_ENDS:
        return f"the reply ended for the reason {completion.finish_reason!r}, so that it may not be whole"
    if is_empty:
        return (
            "the reply is empty, although nothing cut it off: use a model that follows the prompt's form of the reply"
        )
    return None


def _cut_off(is_empty: bool, max_tokens: object) -> str:
    if not is_empty:
        if max_tokens is None:
            return "the reply was cut off at the server's limit on its length: set `max_tokens` to a higher one"
        return f"the reply was cut off at `max_tokens` ({max_tokens}): raise it"
    limit = "tokens that the server allows" if max_tokens is None else f"`max_tokens` ({max_tokens})"
    return (
        f"all {limit} were used before the answer began, as reasoning models do: "
        "raise `max_tokens` or lower `reasoning_effort`"
    )


# LiteLLM reports these as errors of the server or the connection. They would be retried for minutes.
_REMEDIES = {
    re.compile(r"Missing credentials|_API_KEY is not set"): "",
    re.compile(r"default credentials were not found"): f": {CLOUD_CREDENTIALS['vertex_ai']}",
    re.compile(r"Unable to locate credentials"): f": {CLOUD_CREDENTIALS['bedrock']}",
    re.compile(r"No module named 'vllm'"): (
        ": `vllm/` runs the model in this process; for a vLLM server, write 'hosted_vllm/' before the model's name, "
        "and pass its URL as `api_base`"
    ),
    # The package `google` is not Google's.
    re.compile(r"No module named '(google'|google\.auth)"): ": run `pip install google-auth requests`",
    re.compile(r"No module named '(google|vertexai)"): ": run `pip install google-cloud-aiplatform`",
    re.compile(r"No module named '(boto3|botocore)"): ": run `pip install boto3`",
    re.compile(r"No module named 'azure\.identity"): ": run `pip install azure-identity`",
    re.compile(r"litellm is required|No module named 'litellm"): f": run `{install_command('litellm')}`",
    re.compile(r"No module named"): ": install the package with this module, or use a provider that needs none",
    re.compile(r"LLM Provider NOT provided"): (
        ": write the provider before the name of the model, such as 'openai/' for a server that speaks OpenAI's "
        "protocol, or 'ollama_chat/'"
    ),
    re.compile(r"UnsupportedProtocol|InvalidURL|InvalidSchema|MissingSchema|NonHttpUrl|InvalidUrl"): (
        ": the base URL of the model must begin with http:// or https://"
    ),
}
"""What to do about a wrong setting that prevents every request, by the client's message."""


# DSPy's message names an argument of `dspy.LM`, but the user may not have made a `dspy.LM`.
_NO_KEY = re.compile(r"(no API key found .* in the environment), or pass .*")


def _remedy(message: str) -> str | None:
    return next((remedy for pattern, remedy in _REMEDIES.items() if pattern.search(message)), None)


_NO_SERVER = re.compile(r"^(\[[^\]]*\] )?litellm\..*(?:Cannot connect to host|Connection error\.$)")


def _unreachable_hint(model: str, settings: Mapping[str, Any]) -> str:
    url, source = settings.get("api_base") or settings.get("base_url"), "`api_base`"
    if url is None:
        url, source = server_url_of_environment(model), "the base URL in the environment"
    if not isinstance(url, str):
        variable = None if settings.get("api_key") else missing_key_variable(model)
        return f" ({variable} is not set either)" if variable else ""
    return f" ({source} is {url_without_secrets(url)!r}: is the server running?)"


# A 429 of the service tier `flex` if the provider has no capacity. Fewer concurrent calls would not help.
_NO_CAPACITY = re.compile(r"resource[ _]unavailable", re.IGNORECASE)


def failure_of_call(error: Exception, spend: Spend, settings: Mapping[str, Any], about_reply: bool) -> JudgeFailure:
    """Make a `JudgeFailure` from any exception of a call.

    The exception becomes the `__cause__` of the failure, unless its message contains a credential.

    Args:
        error: The exception.
        spend: The spend of the failed call.
        settings: The model's settings. Their credentials are removed from the message.
        about_reply: Whether a `ValueError` is about the reply, and not about the settings.
    """
    if isinstance(error, DSPyError):
        failure = failure_from_error(error, spend, settings)
    elif isinstance(error, UnreadableReply):
        failure = _unreadable(redact(first_line(error), settings), isinstance(error, NoVerdict), spend)
    elif isinstance(error, ImportError):
        message = redact(first_line(error), settings)
        failure = JudgeFailure("config", f"{message.rstrip('.')}{_remedy(message) or ''}", unreachable=True)
    elif isinstance(error, ValueError | TypeError):
        kind = "parse" if about_reply else "config"
        failure = JudgeFailure(kind, redact(first_line(error), settings), retryable=about_reply, spend=spend)
    else:
        failure = failure_from_client_error(error, spend, settings)
    # A traceback would show the credential.
    failure.__cause__ = error if redact(str(error), settings) == str(error) else None
    return failure


def refuses_content(error: BaseException | None) -> bool:
    """Whether an error may mean that the server refused an attachment, or that DSPy does not support its format."""
    is_refusal = isinstance(error, LMInvalidRequestError | LMUnsupportedFeatureError | ValueError)
    return is_refusal and getattr(error, "status", None) not in NO_SUCH_PATH


def failure_from_error(error: DSPyError, spend: Spend, settings: Mapping[str, Any]) -> JudgeFailure:
    """Make a `JudgeFailure` from a DSPy error.

    Args:
        error: The error.
        spend: The spend of the failed call.
        settings: The model's settings. Their credentials are removed from the message.
    """
    if isinstance(error, AdapterParseError):
        cause = error.__cause__
        reason = cause if isinstance(cause, UnreadableReply) else error
        return _unreadable(redact(first_line(reason), settings), isinstance(cause, NoVerdict), spend)
    message, response = redact(first_line(error), settings), find_response(error)
    message = _NO_KEY.sub(r"\1, or pass `api_key` (`--api-key` in the shell)", message)
    if (remedy := _remedy(message)) is not None:
        return JudgeFailure("config", f"{message.rstrip('.')}{remedy}", unreachable=True, spend=NO_SPEND)
    if getattr(error, "provider_code", None) in FILTER_CODES:
        return JudgeFailure("parse", f"{FILTERED}: {message}", about_text=True, repeats=0, spend=spend)
    if response is not None and _says_more(response, error):
        # The body is redacted before the message is shortened. Otherwise a part of a key could remain at its end.
        body = redact(response.body.decode(errors="replace"), settings).encode()
        description = describe_response(response._replace(body=body), settings.get("api_base"))
        message = redact(f"[{error.model}] {description}", settings)
        if response.is_unreadable:
            # A restarting proxy shows a web page for a moment. A wrong URL shows one until `max_outage` ends the run.
            return JudgeFailure("transport", message, retryable=True, spend=spend)
        if response.is_from_wrong_url:
            return JudgeFailure("config", message, spend=spend)
    if isinstance(error, LMUnexpectedError) and response is not None and response.status == 200:
        # The next reply may be readable. The cost of this reply is unknown.
        return JudgeFailure("parse", message, retryable=True, spend=UNANSWERED_CALL)
    if is_retryable_lm_error(error):
        code = getattr(error, "provider_code", None)
        limited = isinstance(error, LMRateLimitError) and not _NO_CAPACITY.search(f"{code} {message}")
        # LiteLLM reports some lost connections as status 500.
        is_unreachable = isinstance(error, LMTransportError) or (response is None and bool(_NO_SERVER.search(message)))
        if is_unreachable:
            message += _unreachable_hint(error.model or "", settings)
        return JudgeFailure(
            "transport", message, retryable=True, retry_after=error.retry_after, rate_limited=limited,
            unreachable=is_unreachable, spend=spend,
        )  # fmt: skip
    if isinstance(error, ContextWindowExceededError) or says_too_long(message):
        return _too_long(message, spend)
    if (status := getattr(error, "status", None)) in (401, 403):
        name, code = f"[{error.model}] ", f"HTTP {status}"
        reason = message.removeprefix(name).removeprefix(code).removeprefix(": ").rstrip(".")
        sent = describe_sent_key(error.model or "", settings)
        message = f"{name}{code}: {reason}. {sent}" if reason else f"{name}{code}. {sent}"
    if type(error) is LMProviderError and status == 200:
        # DSPy's own clients report so the web page of a proxy.
        return JudgeFailure("transport", message, retryable=True, spend=spend)
    kind = "transport" if type(error) is LMProviderError else "config"
    is_setting = isinstance(error, LMConfigurationError)
    return JudgeFailure(kind, message, unreachable=is_setting, spend=NO_SPEND if is_setting else spend)


def _unreadable(message: str, has_no_verdict: bool, spend: Spend) -> JudgeFailure:
    # A model that answers in prose, because it refuses a text, will probably do so again. Therefore its reply is
    # requested only once more.
    return JudgeFailure("parse", message, retryable=True, repeats=1 if has_no_verdict else None, spend=spend)


def failure_from_client_error(error: Exception, spend: Spend, settings: Mapping[str, Any]) -> JudgeFailure:
    """Make a `JudgeFailure` from an exception of a model's client. `to_lm_error` classifies the exception."""
    sorted_error = to_lm_error(error)
    if isinstance(sorted_error, _TEMPORARY):
        limited = isinstance(sorted_error, lm15.RateLimitError) and not _NO_CAPACITY.search(str(sorted_error))
        message = redact(first_line(sorted_error), settings)
        if (remedy := _remedy(message)) is not None:
            return JudgeFailure("config", f"{message.rstrip('.')}{remedy}", unreachable=True, spend=NO_SPEND)
        return JudgeFailure(
            "transport", message, retryable=True, retry_after=sorted_error.retry_after, rate_limited=limited,
            unreachable=isinstance(sorted_error, lm15.TransportError), spend=spend,
        )  # fmt: skip
    message = first_line(sorted_error) if sorted_error is not error else f"{type(error).__name__}: {first_line(error)}"
    message = redact(message, settings)
    return _too_long(message, spend) if says_too_long(message) else JudgeFailure("config", message, spend=spend)


def _too_long(message: str, spend: Spend) -> JudgeFailure:
    # The failure is about this text. It must not end a run, because the other texts may be shorter.
    return JudgeFailure("config", f"{message.rstrip('.')}: {REMEDY}", about_text=True, spend=spend)


def _says_more(response: ErrorResponse, error: DSPyError) -> bool:
    """Whether a response is more informative than DSPy's message, which may be empty or the source of a web page."""
    if response.is_from_wrong_url or response.is_unreadable:
        return True
    return response.status >= 400 and server_message(response.body) not in str(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class if the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# The classes by which the SDK of OpenAI reports that a reply did not end as it should.
_REASON_OF_ERROR = {"LengthFinishReasonError": "length", "ContentFilterFinishReasonError": "content_filter"}
# The classes by which LangChain's models of structured outputs report a refusal, with its text as the message.
_REFUSALS = frozenset({"ModelRefusalError", "OpenAIRefusalError"})


# The exception classes of clients that could not connect, so that no request was sent.
_NOT_SENT = frozenset(
    {"ClientConnectorError", "ConnectError", "ConnectTimeout", "ConnectionRefusedError", "NewConnectionError",
     "gaierror"}
)  # fmt: skip


def is_unanswered(error: BaseException | None) -> bool:
    """Whether a request was sent but no response, or only an unreadable one, arrived. The provider may charge for it.

    Args:
        error: The exception of a call that failed because of its transport.
    """
    # An exception may be its own cause.
    seen = list[BaseException]()
    while error is not None and error not in seen:
        status = _status(error)
        if status not in (None, 200) or _NOT_SENT & {parent.__name__ for parent in type(error).__mro__}:
            return False
        seen.append(error)
        error = error.__cause__
    return True


def response_from_error(error: Exception, request: lm15.Request) -> lm15.Response | None:
    """Make a response from a client's exception that reports a refused, cut-off or filtered reply. Otherwise None.

    In such a case, the provider has sent a reply. The response lets the caller report a fault of the reply and not of
    the client.
    """
    finish_reason: Any = _REASON_OF_ERROR.get(type(error).__name__)
    is_refusal = bool(_REFUSALS & {parent.__name__ for parent in type(error).__mro__})
    if finish_reason is None and not is_refusal:
        return None
    completion: Any = getattr(error, "completion", None)
    text: object = completion.choices[0].message.content if completion else None
    usage: Any = getattr(completion, "usage", None)
    part = lm15.RefusalPart(first_line(error)) if is_refusal else lm15.TextPart(text if isinstance(text, str) else "")
    return lm15.Response(
        id=None,
        model=request.model,
        message=lm15.Message.assistant([part]),
        finish_reason=finish_reason or "stop",
        usage=response_usage(getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)),
    )


_TEMPORARY = (lm15.RateLimitError, lm15.TimeoutError, lm15.ServerError, lm15.TransportError)

# The exception classes by which httpx, aiohttp, requests and the SDKs based on them report that no readable response
# arrived.
_TRANSPORT_CLASSES = frozenset(
    {"TransportError", "ClientConnectionError", "ClientPayloadError", "ConnectionError", "APIConnectionError",
     "ChunkedEncodingError", "DecodingError", "ProtocolError"}
)  # fmt: skip


def to_lm_error(error: Exception) -> Exception:
    """Convert a client's exception to one of DSPy's exceptions, by its HTTP status or its class.

    Every client has its own exception classes. The HTTP status is checked first, in the attributes where httpx,
    aiohttp, requests and the SDKs of OpenAI and Anthropic have it. The class alone is misleading: the
    library requests derives even a 401 from `OSError`. An unknown exception is returned unchanged, and is not retried.
    """
    if isinstance(error, lm15.LM15Error):
        return error
    status, retry_after = _status(error), _retry_after(error)
    message = _client_message(error, status)
    classes = {parent.__name__ for parent in type(error).__mro__}
    if status == 429 or any("ratelimit" in name.lower() for name in classes):
        return lm15.RateLimitError(message, retry_after=retry_after)
    if status == 408 or (status is None and any("timeout" in name.lower() for name in classes)):
        return lm15.TimeoutError(message)
    if status is not None and status >= 500:
        return lm15.ServerError(message, retry_after=retry_after)
    if status is not None:
        return lm15.AuthError(message) if status in (401, 403) else lm15.InvalidRequestError(message)
    if isinstance(error, OSError) or classes & _TRANSPORT_CLASSES or str(error) == _CLOSED_LOOP:
        return lm15.TransportError(message)
    return error


# What asyncio says of a connection that was opened in an event loop that has ended, as `asyncio.run` ends its own. The
# client drops that connection, and opens another one for the next attempt.
_CLOSED_LOOP = "Event loop is closed"

# The complete message of the SDKs of OpenAI and Anthropic for every lost call. The reason is in the exception's cause.
_NO_REASON = "Connection error."


def _client_message(error: Exception, status: int | None) -> str:
    """Return an exception's message. The server's message is added if the client leaves it out."""
    message = f"{type(error).__name__}: {error}"
    if str(error) == _NO_REASON and error.__cause__ is not None:
        message = f"{type(error).__name__}: {first_line(_first_cause(error))}"
    body = _body(error)
    server_text = server_message(body)
    # The SDKs of OpenAI and Anthropic have the body in their message, as a Python dictionary. OpenAI's since version 3
    # has only the message of a body of OpenAI's form.
    if server_text and server_text not in message and not re.search(r"Error code: \d+ - ", message):
        message = f"{type(error).__name__}: {first_line(error)}: {server_text}"
    if status is not None and ErrorResponse(status, body or message.encode()).is_from_wrong_url:
        message = f"{message}. {wrong_url_hint()}"
    return message


def _first_cause(error: BaseException) -> BaseException:
    return _first_cause(error.__cause__) if error.__cause__ else error


def _body(error: Exception) -> bytes:
    """Return the body of the response in a client's exception. Empty if the body was not read."""
    try:
        content: object = getattr(getattr(error, "response", None), "content", None)
    except Exception:  # noqa: BLE001 -- httpx raises an error of its own for a response that was not read
        return b""
    return content if isinstance(content, bytes) else b""


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of a client's exception. None if no response arrived."""
    response: Any = getattr(error, "response", None)
    places: list[Any] = [(error, "status_code"), (error, "status"), (response, "status_code"), (response, "status")]
    statuses = [getattr(holder, name, None) for holder, name in places]
    return next((status for status in statuses if isinstance(status, int) and not isinstance(status, bool)), None)


def _retry_after(error: Exception) -> float | None:
    """Return the waiting time that a response requests, in seconds. None if it requests no waiting."""
    response: Any = getattr(error, "response", None)
    headers: Any = getattr(response, "headers", None) or getattr(error, "headers", None) or {}
    value: Any = getattr(error, "retry_after", None)
    if value is None and hasattr(headers, "get"):
        value = headers.get("retry-after") or headers.get("Retry-After")
    try:
        return float(str(value))
    except ValueError:
        return None
