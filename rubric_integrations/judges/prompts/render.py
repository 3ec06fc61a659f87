"""From a question to the texts of a signature, every one of them defused and fenced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rubric_integrations.judges.prompts.sanitize import MAX_CACHED_CHARS, FencedText, fence, fence_code, looks_quotable
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.interpret import Interpretation, interpret_answer
from rubric_integrations.results.judgment import parse_verdict
from rubric_integrations.rubric.criterion import Criterion, Option, Scale
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission


class PromptInputs(NamedTuple):
    """A signature's inputs.

    Attributes:
        inputs: Defused and fenced, in the order of the prompt.
        neutralized: Whether defusing changed any.
        quotable: Whether a judge could quote a verdict from any.
    """

    inputs: dict[str, str]
    neutralized: bool
    quotable: bool


def render_inputs(submission: Submission, guidelines: str, own: Mapping[str, str]) -> PromptInputs:
    """The inputs that all questions about a submission share, and then a question's own; absent texts are left out."""
    told = (submission.response, guidelines, submission.query, submission.reference, submission.thinking)
    short = sum(len(text) for text in told if text) <= MAX_CACHED_CHARS
    shared, code = _shared(*told) if short else _shared.__wrapped__(*told)
    fenced = {name: fence(text, code) for name, text in own.items()}
    return PromptInputs(
        {**shared.inputs, **{name: text.text for name, text in fenced.items()}},
        shared.neutralized or any(text.neutralized for text in fenced.values()),
        shared.quotable or looks_quotable(*own.values()),
    )


@lru_cache(maxsize=512)
def _shared(
    response: str, guidelines: str, query: str | None, reference: str | None, thinking: str | None
) -> tuple[PromptInputs, str]:
    """What all questions about a submission share, and the fence's code.

    The code is made of what is shared, so that the prompt is the same up to the question's own part.
    """
    code = fence_code(guidelines, query, reference, response)
    texts = {"guidelines": guidelines, "query": query, "reference": reference}
    fenced = {name: fence(text, code) for name, text in texts.items() if text}
    fenced["submission"] = fence(response, code)
    if thinking:
        parts = fence(thinking, f"{code} thinking"), fence(response, f"{code} output")
        fenced["submission"] = FencedText(
            "\n".join(part.text for part in parts), any(part.neutralized for part in parts)
        )
    inputs = {name: text.text for name, text in fenced.items()}
    neutralized = any(text.neutralized for text in fenced.values())
    return PromptInputs(inputs, neutralized, looks_quotable(response, thinking, *texts.values())), code


def criterion_inputs(question: Question) -> dict[str, str]:
    """What a judge is shown of a question on one criterion, beside what it shares with others."""
    criterion = question.criterion
    own = {"criterion": describe_criterion(criterion)}
    if criterion.options is not None:
        own["options"] = describe_options(question)
    elif criterion.scale is not None:
        own["scale"] = describe_scale(criterion.scale)
    else:
        own["kind"] = polarity(criterion)
    return own


def render_question(question: Question) -> PromptInputs:
    """The inputs of a question on one criterion."""
    own = criterion_inputs(question)
    kind = {"kind": own.pop("kind")} if "kind" in own else {}
    texts = render_inputs(question.submission, question.guidelines, own)
    return texts._replace(inputs=texts.inputs | kind)


def describe_criterion(criterion: Criterion) -> str:
    """A criterion's requirement, and what to consider."""
    aspects = [f"- {aspect.name}: {aspect.description}".rstrip(": ") for aspect in criterion.aspects]
    return "\n".join([criterion.requirement, *(["Consider:", *aspects] if aspects else [])])


def polarity(criterion: Criterion) -> str:
    """How a binary criterion is to be read."""
    return "penalty" if criterion.is_penalty else "requirement"


def describe_scale(scale: Scale) -> str:
    """A scale in words."""
    numbers = "whole numbers" if scale.integer else "decimals allowed"
    lines = [f"from {scale.min:g} to {scale.max:g}, {numbers}"]
    return "\n".join([*lines, *(f"{level:g}: {text}" for level, text in sorted(scale.levels.items()))])


def option_codes(options: Sequence[Option]) -> dict[str, Option]:
    """A code for each option: a letter, unless that could be confused with a label."""
    letters = [chr(ord("A") + i) for i in range(len(options))]
    labels = {option.label.strip().upper() for option in options}
    codes = letters if len(options) <= 26 and not labels & set(letters) else [f"#{i + 1}" for i in range(len(options))]
    return dict(zip(codes, options, strict=True))


def describe_options(question: Question) -> str:
    """The options in the order to show them, with their codes, and the way to abstain where there is one."""
    options = question.options or question.criterion.options or ()
    lines = [f"{code}: {_one_line(_label(option))}" for code, option in option_codes(options).items()]
    if question.may_abstain and question.criterion.na_option is None:
        lines.append("CANNOT_ASSESS: what is given is not enough to tell")
    return "\n".join(lines)


def option_code(question: Question, label: str) -> str:
    """The code under which a label is shown; an abstention is its own."""
    codes = option_codes(question.options or question.criterion.options or ())
    wanted = question.criterion.find_option(label)
    return next((code for code, option in codes.items() if option is wanted), label)


def _label(option: Option) -> str:
    return f"{option.label}: {option.description}" if option.description else option.label


def interpret_choice(question: Question, reply: str) -> Interpretation:
    """What a reply to `describe_options` chooses.

    Raises:
        ValueError: It is neither a code nor a label.
    """
    word = reply.strip().strip("*_`\"'.()[] ")
    codes = option_codes(question.options or question.criterion.options or ())
    code = word.split(":", 1)[0].strip().upper()
    chosen = codes.get(code) if code == word.upper() or _completes(codes, code, word) else None
    return interpret_answer(question.criterion, chosen.label if chosen else word, question.may_abstain)


def _completes(codes: Mapping[str, Option], code: str, word: str) -> bool:
    """Whether a reply such as `B: clear` repeats the line of its code, and not another's."""
    return code in codes and word.split(":", 1)[1].strip().casefold() == codes[code].label.strip().casefold()


def describe_batch(questions: Mapping[int, Question]) -> str:
    """Several criteria with their numbers, and the kind of answer that each takes."""
    blocks: list[str] = []
    for number, question in questions.items():
        criterion = question.criterion
        if criterion.options is not None:
            kind, more = "choice", "\n" + describe_options(question)
        elif criterion.scale is not None:
            kind, more = "score", "\n" + describe_scale(criterion.scale)
        else:
            kind, more = polarity(criterion), ""
        text = _one_line(describe_criterion(criterion))
        blocks.append(f"{number}. ({kind}) {text}{more.replace(chr(10), chr(10) + '   ')}")
    return "\n".join(blocks)


def describe_rubric(rubric: Rubric) -> str:
    """All criteria with their weights, for a judgment of the whole."""
    return "\n".join(f"({c.weight:+g}) {_one_line(describe_criterion(c))}" for c in rubric.criteria)


def interpret_reply(question: Question, answer: str) -> Interpretation:
    """What an answer to a question of any kind means.

    Raises:
        ValueError: It is no answer to the question.
    """
    if question.criterion.options is not None and parse_verdict(answer) is None:
        return interpret_choice(question, answer)
    return interpret_answer(question.criterion, answer, question.may_abstain)


def _one_line(text: str) -> str:
    """A text that cannot start a line of its own, such as another criterion's number."""
    return " ".join(text.split())
