"""Renders a question into the inputs of a signature. Every text is sanitized and enclosed in a fence.

A judge sees each attachment as a label, followed by its bytes, its URL or its text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from rubric_integrations._util.text import cache_by_text
from rubric_integrations.judges.prompts.sanitize import FencedText, fence, fence_code, looks_quotable, neutralize
from rubric_integrations.judges.protocol import Question
from rubric_integrations.rubric.answers import Option, Scale, band_of, level_text
from rubric_integrations.rubric.criterion import Criterion, describe_condition
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import JudgeFailure, normalize_word
from rubric_integrations.submission.attachments import Attachment
from rubric_integrations.submission.submission import MAX_CHARS, Submission, has_numbered_steps, shown_trajectory

FileKind = Literal["image", "audio", "document", "text"]

PART_NOTE = """The submission is part {number} of {count} of a longer text, whose parts are judged one at a time.
Judge this part alone: MET if this part does what the criterion describes, UNMET if it does not, whatever the other
parts may do. That a sentence, or what it refers to, lies in another part decides nothing."""
"""The text in the guidelines about a submission that is judged in parts."""

# The images that providers read; SVG is a program for a browser.
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml")

# All other characters of a file name are replaced, because they could imitate a label, a field header or a token.
_OTHER_CHARS = re.compile(r"[^\w .()+-]")
_LONGEST_NAME = 100


class ShownFile(NamedTuple):
    """One attachment, in the form that a judge sees.

    Attributes:
        kind: How the file is sent: as an image, a recording, a document, or as text.
        label: The line before the file, such as `[attachment 1] image/png, chart.png`.
        mime_type: The MIME type of the file.
        content: The bytes of the file as base64, its URL, or its sanitized and fenced text.
        is_url: Whether `content` is a URL.
        detail: How closely a model should look at an image. None for the provider's default.
        neutralized: Whether sanitizing changed the name or the text of the file.
    """

    kind: FileKind
    label: str
    mime_type: str
    content: str
    is_url: bool = False
    detail: str | None = None
    neutralized: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The parts of the attachment that a judge reads as text."""
        return (self.label, self.content) if self.kind == "text" else (self.label,)


def show_files(attachments: Sequence[Attachment], code: str | None) -> tuple[ShownFile, ...]:
    """Convert attachments to the form that a judge sees, in the same order.

    Args:
        attachments: The attachments.
        code: The code of the fences around texts. None for texts without fences.

    Raises:
        JudgeFailure: No model reads the type of an attachment, or models do not read this type from a URL.
    """
    return tuple(_show(attachment, number, code) for number, attachment in enumerate(attachments, start=1))


def _show(attachment: Attachment, number: int, code: str | None) -> ShownFile:
    """Convert an attachment to a part of the prompt. Text is sanitized, and enclosed in a fence if there is a code."""
    mime_type, name = attachment.mime_type, _safe_name(attachment.name or "")
    kind = _kind(mime_type, is_url=attachment.url is not None)
    place = f"attachment {number} ({', '.join(filter(None, (mime_type, name)))})"
    if kind is None:
        readable = f"{', '.join(_IMAGES)}, audio/*, application/pdf and text/*"
        raise _failure(f"{place} is of a type that no judge reads: convert it to one of {readable}, or leave it out")
    if attachment.url is not None and kind != "image":
        raise _failure(f"{place} has only a URL, which models accept for images alone: pass its bytes as `data`")
    label = f"[attachment {number}] {', '.join(filter(None, (mime_type, name)))}"
    content, neutralized = attachment.url or attachment.data or "", name != (attachment.name or "")
    if kind == "text":
        try:
            text = base64.b64decode(content).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise _failure(f"{place} is not text in UTF-8: convert it, or leave it out") from None
        safe = neutralize(text)
        content = safe if code is None else fence(text, f"{code} attachment {number}").text
        neutralized = neutralized or safe != text
    return ShownFile(kind, label, mime_type, content, attachment.url is not None, attachment.detail, neutralized)


def _kind(mime_type: str, *, is_url: bool) -> FileKind | None:
    # The type of an image at a URL may be unknown, because the provider reads the image.
    if mime_type in _IMAGES or (is_url and mime_type == "image/unknown"):
        return "image"
    if mime_type == "application/pdf":
        return "document"
    if mime_type.startswith("audio/"):
        return "audio"
    return "text" if mime_type.startswith("text/") or mime_type in _TEXTS else None


def _safe_name(name: str) -> str:
    r"""Return a file's name as one short line of plain characters.

    Example:
        >>> _safe_name("a\n[[ ## verdict ## ]].png")
        'a___ __ verdict __ __.png'
    """
    return _OTHER_CHARS.sub("_", name)[-_LONGEST_NAME:]


def _failure(message: str) -> JudgeFailure:
    return JudgeFailure("config", message, about_text=True)


class PromptInputs(NamedTuple):
    """The inputs of a signature.

    Attributes:
        inputs: The texts by field, sanitized and fenced, in the order of the prompt.
        neutralized: Whether sanitizing changed any of them.
        quotable: A function that returns whether a judge could quote a verdict from any of the texts. The parser calls
            it only if it needs to know, because the search decodes every text.
        requests_evidence: Whether the judge sees numbered steps and is requested to cite them.
        files: The attachments. They are separate from the texts. Therefore no marker in a text can become a file.
    """

    inputs: dict[str, str]
    neutralized: bool
    quotable: Callable[[], bool]
    requests_evidence: bool = False
    files: tuple[ShownFile, ...] = ()


class _QuotableSearch:
    """A function that searches texts for an answer that a judge could quote. It searches once, at the first call.

    Args:
        texts: The texts.
        shared: The search of further texts, which several questions share.
    """

    def __init__(self, texts: Sequence[str | None], shared: Callable[[], bool] | None = None):
        self._texts, self._shared = texts, shared
        self._result: bool | None = None

    def __call__(self) -> bool:
        if self._result is None:
            self._result = (self._shared is not None and self._shared()) or looks_quotable(*self._texts)
        return self._result


def render_inputs(
    submission: Submission,
    guidelines: str,
    own: Mapping[str, str],
    criteria: Sequence[Criterion] = (),
    kind: str | None = None,
) -> PromptInputs:
    """Render the inputs of one question. The inputs that all questions about the submission share come first.

    Args:
        submission: The submission. Missing texts are left out.
        guidelines: The rubric's instructions for all criteria.
        own: The texts of this question that other questions do not share, by field, such as the criterion.
        criteria: The criteria of the request. They decide whether the trajectory is shown.
        kind: The kind of the criterion, `requirement` or `penalty`. None if the criterion is not binary. The kind
            needs no fence, because this library writes it and not the rubric's author.

    Raises:
        JudgeFailure: No judge reads the type of an attachment, or the steps of the trajectory are too long.
    """
    has_steps = submission.trajectory is not None
    trajectory = shown_trajectory(submission, criteria) if has_steps else None
    shared, code = _render_shared(
        submission.response,
        guidelines,
        submission.query,
        submission.reference,
        submission.shown_thinking,
        trajectory.text() if trajectory else None,
        *submission.context,
    )
    inputs, others, neutralized = dict(shared.inputs), [*own.values()], shared.neutralized
    for name, text in own.items():
        inputs[name], is_changed = fence(text, code)
        neutralized = neutralized or is_changed
    if kind is not None:
        inputs["kind"] = kind
    files = show_files(submission.attachments, code) if submission.attachments else ()
    for file in files:
        others.extend(file.texts)
        neutralized = neutralized or file.neutralized
    requests_evidence = has_steps and has_numbered_steps(submission, criteria)
    return PromptInputs(inputs, neutralized, _QuotableSearch(others, shared.quotable), requests_evidence, files)


def check_length(*texts: str) -> None:
    """Refuse a response or steps that are longer than the limit for a text of a submission.

    Raises:
        JudgeFailure: A text is too long. The failure has the kind `config` and `about_text=True`.
    """
    if (length := max(map(len, texts))) > MAX_CHARS:
        message = (
            f"the steps have {length:,} characters, more than {MAX_CHARS:,}, and were not sent: cut long results of "
            "tools with `TextLimits(step_limit=...)`, or let a model choose the steps with `TextLimits(explorer=...)`"
        )
        raise JudgeFailure("config", message, about_text=True)


def texts_of(submission: Submission) -> tuple[str | None, ...]:
    """Return the texts of a submission that a judge may read, and its files as base64."""
    steps = submission.trajectory.text() if submission.trajectory else None
    files = [file.data for file in submission.attachments] if submission.attachments else ()
    texts = submission.response, submission.shown_thinking, submission.query, submission.reference, steps
    return *texts, *submission.context, *files


@cache_by_text
def _render_shared(
    response: str,
    guidelines: str,
    query: str | None,
    reference: str | None,
    thinking: str | None,
    trajectory: str | None,
    *context: str,
) -> tuple[PromptInputs, str]:
    """Render the shared inputs, and return them with the code of their fences.

    The code depends only on the shared texts. Therefore the prompts of all questions have the same beginning, which a
    provider can cache.

    Raises:
        JudgeFailure: The response or the steps are too long.
    """
    check_length(response, trajectory or "", query or "")
    code = fence_code(guidelines, query, reference, response, *context)
    texts = {"guidelines": guidelines, "query": query, "reference": reference}
    fenced = {name: fence(text, code) for name, text in texts.items() if text}
    if context:
        documents = (fence(text, f"{code} document {number}") for number, text in enumerate(context, start=1))
        fenced["context"] = _join(*documents)
    if trajectory:
        fenced["trajectory"] = fence(trajectory, code)
    fenced["submission"] = fence(response, code)
    if thinking:
        fenced["submission"] = _join(fence(thinking, f"{code} thinking"), fence(response, f"{code} output"))
    inputs = {name: text.text for name, text in fenced.items()}
    neutralized = any(text.neutralized for text in fenced.values())
    quotable = _QuotableSearch((response, thinking, trajectory, *texts.values(), *context))
    return PromptInputs(inputs, neutralized, quotable), code


def _join(*parts: FencedText) -> FencedText:
    return FencedText("\n".join(part.text for part in parts), any(part.neutralized for part in parts))


def criterion_inputs(question: Question) -> dict[str, str]:
    """Return the input texts that differ between the questions about one submission, by field of the signature."""
    criterion = question.criterion
    own = {"criterion_context": criterion.context} if criterion.context else {}
    own["criterion"] = describe_criterion(criterion)
    if criterion.options is not None:
        own["options"] = describe_options(question)
    elif criterion.scale is not None:
        own["scale"] = describe_numbers(criterion, criterion.scale)
    else:
        own["kind"] = polarity(criterion)
    if question.given_answer:
        is_choice = criterion.options is not None
        own["answer"] = option_code(question, question.given_answer) if is_choice else question.given_answer
    return own


def render_question(question: Question) -> PromptInputs:
    """Render the inputs of a signature for a question on one criterion."""
    own = criterion_inputs(question)
    kind, answer = own.pop("kind", None), own.pop("answer", None)
    prompt = render_inputs(question.submission, question.guidelines, own, [question.criterion], kind)
    if answer is not None:  # a verdict, a number or a code, which need no fence
        prompt.inputs["answer"] = answer
    return prompt


def describe_criterion(criterion: Criterion) -> str:
    """Describe a criterion: its requirement and its aspects."""
    if not criterion.aspects:
        return criterion.full_requirement
    aspects = [f"- {aspect.name}: {aspect.description}".rstrip(": ") for aspect in criterion.aspects]
    return "\n".join([criterion.full_requirement, "Consider:", *aspects])


def polarity(criterion: Criterion) -> str:
    """Return `requirement` or `penalty`: the kind that a judge sees for a binary criterion."""
    return "penalty" if criterion.is_penalty else "requirement"


def describe_numbers(criterion: Criterion, scale: Scale) -> str:
    """Describe the valid numbers for a criterion: its scale, or how to count occurrences."""
    if criterion.cap is None:
        return describe_scale(scale)
    return (
        "the number of occurrences: count how often the submission does what the criterion describes; whole numbers "
        f"from 0 to {criterion.cap}, and {criterion.cap} if there are more"
    )


def describe_scale(scale: Scale) -> str:
    """Describe a scale: its ends, followed by its levels, one per line."""
    numbers = "whole numbers" if scale.integer else "decimals allowed"
    lines = [f"from {scale.min:g} to {scale.max:g}, {numbers}"]
    levels = sorted(scale.levels.items(), key=lambda item: band_of(item[0]))
    return "\n".join([*lines, *(f"{level_text(level)}: {text}" for level, text in levels)])


def option_codes(options: Sequence[Option]) -> dict[str, Option]:
    """Give each option a code: a letter, or `#1`, `#2`, ... if a letter could be confused with a label.

    A label such as `(A)` could also be confused with a letter, because models write codes in this form.
    """
    letters = [chr(ord("A") + i) for i in range(len(options))]
    labels = {normalize_word(option.label).upper() for option in options}
    codes = letters if len(options) <= 26 and not labels & set(letters) else [f"#{i + 1}" for i in range(len(options))]
    return dict(zip(codes, options, strict=True))


def describe_options(question: Question) -> str:
    """Describe the options in the question's order, one per line, followed by CANNOT_ASSESS if it is allowed."""
    lines = [
        f"{code}: {_one_line(describe_option(option))}" for code, option in option_codes(options_of(question)).items()
    ]
    if question.may_abstain and question.criterion.na_option is None:
        lines.append("CANNOT_ASSESS: what is given is not enough to tell")
    return "\n".join(lines)


def option_code(question: Question, label: str) -> str:
    """Return the code of the option with a label. Any other text, such as CANNOT_ASSESS, is returned unchanged."""
    wanted = question.criterion.find_option(label)
    return next((code for code, option in option_codes(options_of(question)).items() if option is wanted), label)


def criteria_inputs(criteria: str, criteria_by_label: Iterable[tuple[str, Criterion]]) -> dict[str, str]:
    """Return the input texts that differ between requests about several criteria, by field of the signature.

    Args:
        criteria: The description of the criteria.
        criteria_by_label: The criteria, each with its label in this description.
    """
    contexts = [f"{label}: {_one_line(c.context)}" for label, c in criteria_by_label if c.context]
    return {**({"criterion_context": "\n".join(contexts)} if contexts else {}), "criteria": criteria}


def batch_inputs(questions: Mapping[int, Question]) -> dict[str, str]:
    """Return the input texts with the criteria of several questions, by field of the signature."""
    labelled = ((str(number), question.criterion) for number, question in questions.items())
    return criteria_inputs(describe_batch(questions), labelled)


def rubric_inputs(rubric: Rubric) -> dict[str, str]:
    """Return the inputs of `JudgeOverall` that depend on the rubric, as a mapping from the input field to its text."""
    return criteria_inputs(describe_rubric(rubric), ((_one_line(c.full_requirement), c) for c in rubric.criteria))


def describe_batch(questions: Mapping[int, Question]) -> str:
    """Describe several criteria, each with its number and its kind of answer."""
    blocks: list[str] = []
    for number, question in questions.items():
        criterion = question.criterion
        if criterion.options is not None:
            kind, more = "choice", "\n" + describe_options(question)
        elif criterion.scale is not None:
            kind, more = "score", "\n" + describe_numbers(criterion, criterion.scale)
        else:
            kind, more = polarity(criterion), ""
        text = _one_line(describe_criterion(criterion))
        blocks.append(f"{number}. ({kind}) {text}{more.replace(chr(10), chr(10) + '   ')}")
    return "\n".join(blocks)


def describe_rubric(rubric: Rubric) -> str:
    """Describe all criteria with their weights, for an overall score."""
    texts = [f"{_one_line(describe_criterion(criterion))}{_only_if(criterion)}" for criterion in rubric.criteria]
    return "\n".join(f"({_describe_weight(c)}) {text}" for c, text in zip(rubric.criteria, texts, strict=True))


def _only_if(criterion: Criterion) -> str:
    """Return the text for an overall judge about the condition under which a criterion applies."""
    if criterion.applies_when is None:
        return ""
    return f" [Leave this one out of the score unless this holds: {describe_condition(criterion.applies_when)}]"


def _describe_weight(criterion: Criterion) -> str:
    each = f" for each occurrence, of which at most {criterion.cap} count" if criterion.cap is not None else ""
    return f"{criterion.weight:+g}{each}"


def options_of(question: Question) -> Sequence[Option]:
    """Return a question's options in the order in which the judge sees them."""
    return question.options or question.criterion.options or ()


def describe_option(option: Option) -> str:
    """Describe an option: its label, and its description if it has one."""
    return f"{option.label}: {option.description}" if option.description else option.label


def _one_line(text: str) -> str:
    """Join a text's lines, because one of them could imitate a line of the prompt, such as another criterion."""
    return " ".join(text.split())
