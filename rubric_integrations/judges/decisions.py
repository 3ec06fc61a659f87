"""The wire formats of decision models: questions with typed answers go out, and a probability for each answer comes in.

There are two protocols, System One (TypeSafe) and OpenAI's Decisions. The functions are pure: they write the bytes of a
request and read the bytes of a reply. Clients of these protocols accept missing answers, answers of another type, sums
of 1.7 and NaN. Here, an answer counts only if all its parts are correct. A fault is about its own question, and the
answers to the other questions remain.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, cast

from rubric_integrations.judges.models.responses import token_usage
from rubric_integrations.scoring.judgment import JudgeFailure, TokenUsage

DecisionProtocol = Literal["system-one", "openai-decisions"]
"""The wire format of a decision model."""

DecisionKind = Literal["yes or no", "choice", "score"]
"""The type of a question: its answer is yes or no, one of several options, or one of several ordered levels."""


class TypedQuestion(NamedTuple):
    """A question to a decision model.

    Attributes:
        kind: The type of the answer.
        text: The question. It consists of trusted text only.
        answers: The labels of the options with their descriptions, or the texts of the levels without descriptions, in
            order. Empty for a yes or no.
        guidelines: The rubric's instructions for all criteria. Empty if there are none.
    """

    kind: DecisionKind
    text: str
    answers: tuple[tuple[str, str | None], ...] = ()
    guidelines: str = ""


class Distribution(NamedTuple):
    """The answer to a question.

    Attributes:
        probabilities: The probability of yes, or of each option or level in the order of the question.
        best: The index of the most probable option or level.
    """

    probabilities: tuple[float, ...]
    best: int = 0

    def mean(self, values: Sequence[float | None]) -> float | None:
        """Return the mean of the answers' values, weighted by their probabilities.

        Args:
            values: The value of each answer. Answers with the value None are left out.

        Returns:
            The mean. None if only answers without a value are possible.
        """
        parts = [(p, value) for p, value in zip(self.probabilities, values, strict=True) if value is not None]
        total = math.fsum(p for p, _ in parts)
        if not total:
            return None
        return min(max(math.fsum(p * value for p, value in parts) / total, 0.0), 1.0)


class DecisionReply(NamedTuple):
    """A reply of a decision model.

    Attributes:
        answers: The answers by question name, for each question with a correct answer.
        faults: Why there is no answer, for all other questions. A refusal is a `JudgeFailure`.
        usage: The tokens of the request. None if the reply does not state them.
        model: The model that the reply names. None if it names none.
        extra: The names of answers to questions that were not asked.
    """

    answers: Mapping[str, Distribution]
    faults: Mapping[str, str | JudgeFailure]
    usage: TokenUsage | None
    model: str | None
    extra: tuple[str, ...]


class UnreadableDecisions(ValueError):  # noqa: N818 -- a reply, as `UnreadableReply`
    """No part of a reply can be used."""


class ErrorInReply(Exception):  # noqa: N818 -- an error of the server
    """A reply with the status 200 reports an error.

    Attributes:
        code: The error's own HTTP status. None if it has none.
        message: The error's message.
    """

    def __init__(self, code: int | None, message: str):
        super().__init__(code, message)
        self.code, self.message = code, message


class TruncatedState(Exception):  # noqa: N818 -- a state, not an error of code
    """The server has cut the state. An answer about a part of a text is never used.

    Attributes:
        usage: The tokens of the request. None if the reply does not state them.
    """

    def __init__(self, usage: TokenUsage | None):
        super().__init__(usage)
        self.usage = usage


class Protocol(ABC):
    """One of the two wire formats.

    Attributes:
        prefix: The prefix of a model's name that chooses this protocol.
        default_url: The base URL of the provider.
        route: The path of the requests below the base URL.
        stem: The beginning of the provider's environment variables.
        max_questions: The largest number of questions in a request. None if the provider names none.
        reads_images: Whether a request may have images.
    """

    prefix: ClassVar[str]
    default_url: ClassVar[str]
    route: ClassVar[str]
    stem: ClassVar[str]
    max_questions: ClassVar[int | None]
    reads_images: ClassVar[bool]
    # The name of each type of question on the wire.
    _types: ClassVar[dict[DecisionKind, str]]
    # The member with the probability of yes.
    _yes: ClassVar[str]
    # The brackets around the questions.
    _brackets: ClassVar[str]

    def encode(
        self,
        model: str,
        state: Mapping[str, Any],
        questions: Mapping[str, TypedQuestion],
        images: Sequence[str] = (),
    ) -> bytes:
        """Return the body of a request.

        Args:
            model: The name of the model.
            state: The material. Its keys are fixed, and untrusted text stands only in its string values.
            questions: The questions, by name.
            images: Images as data URLs.
        """
        texts = ",".join([_question_json(self, name, question) for name, question in questions.items()])
        opening, closing = self._brackets
        material = self._material(state, images)
        return f'{{"model":{_dump(model)},{material},"questions":{opening}{texts}{closing}}}'.encode()

    def decode(self, body: bytes, questions: Mapping[str, TypedQuestion]) -> DecisionReply:
        """Read the body of a reply with the status 200.

        Raises:
            UnreadableDecisions: No part of the reply can be used.
            ErrorInReply: The reply reports an error.
            TruncatedState: The server has cut the state.
        """
        reply = _parse(body)
        if (error := reply.get("error")) not in (None, False):
            raise _error_in(error)
        counts: object = reply.get("usage")
        usage = _usage_of(counts)
        if any(_is_cut(part) for part in (reply, counts)):
            raise TruncatedState(usage)
        entries, repeated = self._entries(reply.get("answers"))
        answers: dict[str, Distribution] = {}
        faults: dict[str, str | JudgeFailure] = {}
        for name, question in questions.items():
            try:
                if name not in entries:
                    raise ValueError("no answer")
                if name in repeated:
                    raise ValueError("more than one answer")
                answers[name] = self._answer(question, entries[name])
            except JudgeFailure as refusal:
                faults[name] = refusal
            except ValueError as error:
                faults[name] = str(error)
        model = reply.get("model")
        extra = tuple(name for name in entries if name not in questions)
        return DecisionReply(answers, faults, usage, model if isinstance(model, str) and model else None, extra)

    @abstractmethod
    def _material(self, state: Mapping[str, Any], images: Sequence[str]) -> str:
        """Return the member of a request with the material, as JSON."""

    @abstractmethod
    def question_json(self, name: str, question: TypedQuestion) -> str:
        """Return a question of a request, as JSON."""

    @abstractmethod
    def _entries(self, answers: object) -> tuple[dict[str, object], Collection[str]]:
        """Return the entries of a reply by the name of their question, and the names of several entries."""

    @abstractmethod
    def _probabilities(self, question: TypedQuestion, value: object) -> dict[object, object]:
        """Return the probabilities of a distribution by label, or by the index of the level.

        Raises:
            ValueError: The distribution has another form, or names an answer twice.
        """

    def _answer(self, question: TypedQuestion, entry: object) -> Distribution:
        """Read the answer to one question.

        Raises:
            JudgeFailure: The model refused the question.
            ValueError: The answer is not correct.
        """
        answer = _object(entry, "the answer")
        kind, expected = answer.get("type"), self._types[question.kind]
        if kind == "refusal":
            message = "the model refused to answer this question"
            raise JudgeFailure("parse", message, about_text=True, repeats=0)
        if kind != expected:
            raise ValueError(f"the answer has the type {_shown(kind)}, not {expected!r}")
        if question.kind == "yes or no":
            return Distribution((_probability(answer.get(self._yes), self._yes),))
        shares = self._probabilities(question, answer.get("probabilities"))
        keys: list[object] = _keys_of(question)
        if set(shares) != set(keys):
            raise ValueError(f"`probabilities` has {_shown(list(shares))}, and the answers are {_shown(keys)}")
        values = [_probability(shares[key], key) for key in keys]
        _require_sum(values)
        if question.kind == "score":
            _require_mean(answer.get("score"), values)
            return Distribution(tuple(values), values.index(max(values)))
        return Distribution(tuple(values), _best_option(answer.get("choice"), keys, values))


class SystemOne(Protocol):
    """The protocol of TypeSafe's System One, which Perplexity, OpenRouter and servers of open models also speak."""

    prefix = "typesafe/"
    default_url = "https://api.typesafe.ai"
    route = "/v1/systemone"
    stem = "TYPESAFE"
    max_questions = None
    reads_images = False
    _types: ClassVar[dict[DecisionKind, str]] = {"yes or no": "noul", "choice": "choice", "score": "score"}
    _yes = "noul"
    _brackets = "{}"

    def _material(self, state: Mapping[str, Any], images: Sequence[str]) -> str:
        return f'"state":{_dump(state)}'

    def question_json(self, name: str, question: TypedQuestion) -> str:
        """Return a question of a request, as JSON."""
        text = question.text
        instructions = {"guidelines": question.guidelines, "question": text} if question.guidelines else text
        body: dict[str, Any] = {"type": self._types[question.kind], "instructions": instructions}
        if question.kind == "choice":
            body["criteria"] = dict(question.answers)
        elif question.kind == "score":
            body["criteria"] = [text for text, _ in question.answers]
        return f"{_dump(name)}:{_dump(body)}"

    def _entries(self, answers: object) -> tuple[dict[str, object], Collection[str]]:
        if not isinstance(answers, dict):
            raise UnreadableDecisions("the reply has no `answers`, which must be an object")
        return cast("dict[str, object]", answers), _repeated(cast("object", answers))

    def _probabilities(self, question: TypedQuestion, value: object) -> dict[object, object]:
        shares = _object(value, "`probabilities`")
        if question.kind == "choice":
            return shares
        numbers = {str(index): index for index in range(len(question.answers))}
        return {numbers.get(cast("str", key), key): share for key, share in shares.items()}


class OpenAIDecisions(Protocol):
    """The protocol of OpenAI's Decisions API."""

    prefix = "openai-decisions/"
    default_url = "https://api.openai.com/v1"
    route = "/decisions"
    stem = "OPENAI"
    max_questions = 200
    reads_images = True
    _types: ClassVar[dict[DecisionKind, str]] = {"yes or no": "predicate", "choice": "choice", "score": "score"}
    _yes = "probability"
    _brackets = "[]"

    def _material(self, state: Mapping[str, Any], images: Sequence[str]) -> str:
        material: Any = json.dumps(state, ensure_ascii=False)
        if images:
            parts = [{"type": "input_image", "image_url": url} for url in images]
            material = [{"role": "user", "content": [{"type": "input_text", "text": material}, *parts]}]
        return f'"input":{_dump(material)}'

    def question_json(self, name: str, question: TypedQuestion) -> str:
        """Return a question of a request, as JSON."""
        text = question.text
        instructions = f"Guidelines: {question.guidelines}\n\n{text}" if question.guidelines else text
        body: dict[str, Any] = {"type": self._types[question.kind], "name": name, "instructions": instructions}
        if question.kind == "choice":
            body["choices"] = [
                {"value": label, "description": description} if description else {"value": label}
                for label, description in question.answers
            ]
        elif question.kind == "score":
            body["levels"] = [{"label": text} for text, _ in question.answers]
        return _dump(body)

    def _entries(self, answers: object) -> tuple[dict[str, object], Collection[str]]:
        if not isinstance(answers, list):
            raise UnreadableDecisions("the reply has no `answers`, which must be a list")
        entries: dict[str, object] = {}
        repeated: set[str] = set()
        for answer in cast("list[object]", answers):
            # An entry that names no question is the answer to none, and the question without an answer has the fault.
            if isinstance(answer, dict) and "name" not in _repeated(answer):
                name = cast("dict[str, object]", answer).get("name")
                if isinstance(name, str):
                    if name in entries:
                        repeated.add(name)
                    entries[name] = answer
        return entries, repeated

    def _probabilities(self, question: TypedQuestion, value: object) -> dict[object, object]:
        if not isinstance(value, list):
            raise ValueError(f"`probabilities` is {_shown(value)}, and must be a list")
        shares: dict[object, object] = {}
        for entry in cast("list[object]", value):
            share = _object(entry, "an entry of `probabilities`")
            key = share.get("value")
            if type(key) is not (str if question.kind == "choice" else int):
                raise ValueError(f"`probabilities` has the `value` {_shown(key)}, which names no answer")
            if key in shares:
                raise ValueError(f"`probabilities` names {_shown(key)} twice")
            shares[key] = share.get("probability")
        return shares


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


# All submissions of a run have the same questions.
@lru_cache(maxsize=1024)
def _question_json(protocol: Protocol, name: str, question: TypedQuestion) -> str:
    return protocol.question_json(name, question)


PROTOCOLS: dict[DecisionProtocol, Protocol] = {"system-one": SystemOne(), "openai-decisions": OpenAIDecisions()}
"""The protocols, by name."""


def split_model_name(name: str) -> tuple[DecisionProtocol | None, str]:
    """Split the name of a decision model, such as `typesafe/jev-1.13.0`, into its protocol and the model's own name.

    The protocol is None if the name has no prefix of a protocol.

    Example:
        >>> split_model_name("typesafe/jev-1.13.0"), split_model_name("openai/gpt-5-mini")
        (('system-one', 'jev-1.13.0'), (None, 'openai/gpt-5-mini'))
    """
    for protocol, form in PROTOCOLS.items():
        if name.startswith(form.prefix):
            return protocol, name.removeprefix(form.prefix)
    return None, name


# The classes of decision models in other libraries: the name of the class, and of its package. Objects of the first two
# are read. Objects of the third are called.
_CLIENTS = {("TypeSafe", "dspy"), ("OpenAIDecisions", "langchain_openai"), ("BaseDecisionModel", "langchain_core")}


def decision_client_of(value: object) -> str | None:
    """Return the name of the class if a value is a decision model of DSPy or LangChain, or of a subclass.

    The libraries are not imported for this.
    """
    names = ((kind.__name__, kind.__module__.partition(".")[0]) for kind in type(value).__mro__)
    return next((name for name, package in names if (name, package) in _CLIENTS), None)


def is_decision_model(value: object) -> bool:
    """Whether a value is the name of a decision model, or a decision model of DSPy or LangChain.

    Example:
        >>> is_decision_model("typesafe/jev-1.13.0"), is_decision_model("openai/gpt-5-mini")
        (True, False)
    """
    if isinstance(value, str):
        return split_model_name(value)[0] is not None
    return decision_client_of(value) is not None


class _RepeatingObject(dict[str, Any]):
    """A JSON object in which at least one name occurs twice. Readers disagree about the value of such a name."""

    repeated: frozenset[str]


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    names = [name for name, _ in pairs]
    repeating = _RepeatingObject(members)
    repeating.repeated = frozenset(name for name in members if names.count(name) > 1)
    return repeating


def _repeated(members: object) -> frozenset[str]:
    return members.repeated if isinstance(members, _RepeatingObject) else frozenset()


def _parse(body: bytes) -> dict[str, Any]:
    """Parse the JSON object of a reply. NaN and Infinity are read as such: only one answer may have them."""
    try:
        reply: object = json.loads(body, object_pairs_hook=_make_object)
    except (ValueError, RecursionError):
        start = body[:80].decode(errors="replace")
        raise UnreadableDecisions(
            f"the body is not JSON ({start!r})" if body.strip() else "the body is empty"
        ) from None
    if not isinstance(reply, dict):
        raise UnreadableDecisions("the body is not a JSON object")
    if repeated := _repeated(cast("object", reply)):
        raise UnreadableDecisions(f"the reply has {_shown(min(repeated))} twice")
    return cast("dict[str, Any]", reply)


def _error_in(error: object) -> ErrorInReply:
    members = cast("dict[str, object]", error) if isinstance(error, dict) else {"message": error}
    code: object = next((members[name] for name in ("status", "code") if members.get(name) is not None), None)
    is_status = str(code).isascii() and str(code).isdigit() and not isinstance(code, bool) and len(str(code)) == 3
    message = members.get("message")
    text = message if isinstance(message, str) and message else "the reply reports an error"
    return ErrorInReply(int(str(code)) if is_status else None, text)


def _usage_of(counts: object) -> TokenUsage | None:
    if not isinstance(counts, dict) or _repeated(cast("object", counts)):
        return None
    numbers = cast("dict[str, object]", counts)

    def first(*names: str) -> object:
        return next((numbers[name] for name in names if numbers.get(name) is not None), None)

    return token_usage(first("input_tokens", "prompt_tokens"), first("output_tokens", "completion_tokens"))


def _is_cut(members: object) -> bool:
    """Whether a part of a reply reports that the state was cut. Any value that does not deny it counts as a report."""
    if not isinstance(members, dict):
        return False
    values = cast("dict[str, object]", members)
    return any(values.get(name) not in (None, False, 0) for name in ("truncated", "state_tokens_dropped"))


def _object(value: object, what: str) -> dict[Any, Any]:
    """Return a JSON object.

    Raises:
        ValueError: The value is not an object, or has a name twice.
    """
    if type(value) is dict:
        return cast("dict[Any, Any]", value)
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {_shown(value)}, and must be an object")
    if repeated := _repeated(cast("object", value)):
        raise ValueError(f"{what} has {_shown(min(repeated))} twice")
    return cast("dict[Any, Any]", value)


def _keys_of(question: TypedQuestion) -> list[Any]:
    if question.kind == "score":
        return list(range(len(question.answers)))
    return [label for label, _ in question.answers]


def _number(value: object, what: str, high: float) -> float:
    """Return a finite number from 0 to `high`. A number in a text is not a number.

    Raises:
        ValueError: The value is not such a number.
    """
    if type(value) not in (int, float):
        raise ValueError(f"{what} is {_shown(value)}, and must be a number")
    number = cast("float", value)
    if not 0 <= number <= high:  # also for NaN
        raise ValueError(f"{what} is {_shown(number)}, which is not between 0 and {high:g}")
    return float(number)


def _probability(value: object, name: object) -> float:
    # Most values are correct, and a message takes longer than the check.
    if type(value) is float and 0.0 <= value <= 1.0:
        return value
    return _number(value, f"the probability `{name}`", 1.0)


# Hosts may round each probability to two decimals.
_ROUNDING, _EXACT = 0.005, 1e-6


def _require_sum(values: Sequence[float]) -> None:
    """Check that probabilities have the sum 1, except for their rounding.

    Raises:
        ValueError: The sum differs by more than the rounding to two decimals explains, or all are 0.
    """
    total, positive = math.fsum(values), sum(value > 0 for value in values)
    # Rounding may turn each of them to a smaller number, but only the others than 0 to a larger one.
    lowest, highest = 1 - _ROUNDING * len(values) - _EXACT, 1 + _ROUNDING * positive + _EXACT
    if not positive or not lowest <= total <= highest:
        raise ValueError(f"the probabilities have the sum {total:g}, and must have the sum 1")


def _require_mean(score: object, values: Sequence[float]) -> None:
    """Check that a score is the mean of the levels' indices."""
    number = _number(score, "`score`", len(values) - 1)
    mean = math.fsum(index * value for index, value in enumerate(values))
    if abs(number - mean) > _ROUNDING * (1 + sum(range(len(values)))) + _EXACT:
        raise ValueError(f"`score` is {number:g}, and the probabilities have the mean {mean:g}")


def _best_option(choice: object, labels: Sequence[object], values: Sequence[float]) -> int:
    """Return the index of the most probable option. If several are, it is the reply's choice or else the first.

    Raises:
        ValueError: The reply's choice is not an option, or is less probable than another option.
    """
    if not isinstance(choice, str) or choice not in labels:
        raise ValueError(f"`choice` is {_shown(choice)}, which is no option")
    chosen, highest = labels.index(choice), max(values)
    if values[chosen] < highest - 2 * _ROUNDING - _EXACT:
        raise ValueError(f"`choice` is {_shown(choice)}, which is less probable than another option")
    return chosen if values[chosen] == highest else values.index(highest)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
