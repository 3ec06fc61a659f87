"""Renders a question into the inputs of a signature. Every text in them is sanitized and enclosed in a fence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rubric_integrations._util.text_cache import cache_by_text
from rubric_integrations.judges.prompts.quotation import looks_quotable
from rubric_integrations.judges.prompts.sanitize import FencedText, fence, fence_code
from rubric_integrations.judges.prompts.shown_files import ShownFile, show_files
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.judgment import JudgeFailure, normalize_word
from rubric_integrations.rubric.answers import Option, Scale, band_of, level_text
from rubric_integrations.rubric.conditions import describe_condition
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.evidence import has_numbered_steps, shown_trajectory
from rubric_integrations.submission.submission import MAX_CHARS, Submission


class PromptInputs(NamedTuple):
    """The inputs of a signature.

    Attributes:
        inputs: The texts by field, sanitized and fenced, in the order of the prompt.
        neutralized: Whether sanitizing changed any of them.
        quotable: Whether a judge could quote a verdict from any of them.
        requests_evidence: Whether the judge sees numbered steps, so that it is requested to cite them.
        files: The attachments. They are no texts: no marker in a text can become one of them.
    """

    inputs: dict[str, str]
    neutralized: bool
    quotable: bool
    requests_evidence: bool = False
    files: tuple[ShownFile, ...] = ()


def render_inputs(
    submission: Submission, guidelines: str, own: Mapping[str, str], criteria: Sequence[Criterion] = ()
) -> PromptInputs:
    """Render the inputs that all questions about a submission share, followed by a question's own.

    Args:
        submission: The submission; texts that it lacks are left out.
        guidelines: The rubric's instructions for all criteria.
        own: The question's own texts, by field.
        criteria: The criteria of the request, which may need the trajectory.

    Raises:
        JudgeFailure: An attachment is of a type that no judge reads, or the steps of the trajectory are too long.
    """
    trajectory = shown_trajectory(submission, criteria)
    _check_length(submission.response, trajectory.text() if trajectory else "")
    shared, code = _render_shared(
        submission.response,
        guidelines,
        submission.query,
        submission.reference,
        submission.shown_thinking,
        trajectory.text() if trajectory else None,
        *submission.context,
    )
    fenced = {name: fence(text, code) for name, text in own.items()}
    files = show_files(submission.attachments, code)
    return PromptInputs(
        {**shared.inputs, **{name: text.text for name, text in fenced.items()}},
        shared.neutralized or any(part.neutralized for part in (*fenced.values(), *files)),
        shared.quotable or looks_quotable(*own.values(), *(text for file in files for text in file.texts)),
        requests_evidence=has_numbered_steps(submission, criteria),
        files=files,
    )


def _check_length(*texts: str) -> None:
    """Refuse steps that are longer than any other text of a submission may be.

    Raises:
        JudgeFailure: Of kind `config`, about this text.
    """
    if (length := max(map(len, texts))) > MAX_CHARS:
        message = (
            f"the steps have {length:,} characters, more than {MAX_CHARS:,}, and were not sent: cut long results of "
            "tools with `CallLimits(step_limit=...)`"
        )
        raise JudgeFailure("config", message, about_text=True)


def texts_of(submission: Submission) -> tuple[str | None, ...]:
    """Return the texts of a submission that a judge may read, and its files as base64."""
    steps = submission.trajectory.text() if submission.trajectory else None
    files = (file.data for file in submission.attachments)
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
    """Render the shared inputs, and the code of their fences.

    The code depends on the shared texts alone, so that the prompt is the same up to the question's own part and a
    provider can cache it.
    """
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
    quotable = looks_quotable(response, thinking, trajectory, *texts.values(), *context)
    return PromptInputs(inputs, neutralized, quotable), code


def _join(*parts: FencedText) -> FencedText:
    return FencedText("\n".join(part.text for part in parts), any(part.neutralized for part in parts))


def criterion_inputs(question: Question) -> dict[str, str]:
    """Return the texts of a question on one criterion that it does not share with other questions, by field."""
    criterion = question.criterion
    own = {"criterion_context": criterion.context} if criterion.context else {}
    own["criterion"] = describe_criterion(criterion)
    if criterion.options is not None:
        own["options"] = describe_options(question)
    elif criterion.scale is not None:
        own["scale"] = describe_numbers(criterion, criterion.scale)
    else:
        own["kind"] = polarity(criterion)
    return own


def render_question(question: Question) -> PromptInputs:
    """Render the inputs of a question on one criterion."""
    own = criterion_inputs(question)
    # Ours, not the rubric author's: it needs no fence.
    kind = {"kind": own.pop("kind")} if "kind" in own else {}
    texts = render_inputs(question.submission, question.guidelines, own, [question.criterion])
    return texts._replace(inputs=texts.inputs | kind)


def describe_criterion(criterion: Criterion) -> str:
    """Describe a criterion: its requirement and its aspects."""
    aspects = [f"- {aspect.name}: {aspect.description}".rstrip(": ") for aspect in criterion.aspects]
    return "\n".join([criterion.full_requirement, *(["Consider:", *aspects] if aspects else [])])


def polarity(criterion: Criterion) -> str:
    """Return `requirement` or `penalty`, by which a judge reads a binary criterion."""
    return "penalty" if criterion.is_penalty else "requirement"


def describe_numbers(criterion: Criterion, scale: Scale) -> str:
    """Describe the numbers that answer a criterion: its scale, or how to count occurrences."""
    if criterion.cap is None:
        return describe_scale(scale)
    return (
        "the number of occurrences: count how often the submission does what the criterion describes; whole numbers "
        f"from 0 to {criterion.cap}, and {criterion.cap} if there are more"
    )


def describe_scale(scale: Scale) -> str:
    """Describe a scale: its ends and its levels, one a line."""
    numbers = "whole numbers" if scale.integer else "decimals allowed"
    lines = [f"from {scale.min:g} to {scale.max:g}, {numbers}"]
    levels = sorted(scale.levels.items(), key=lambda item: band_of(item[0]))
    return "\n".join([*lines, *(f"{level_text(level)}: {text}" for level, text in levels)])


def option_codes(options: Sequence[Option]) -> dict[str, Option]:
    """Give each option a code: a letter, or `#1`, `#2`, ... where a letter could be confused with a label.

    A label such as `(A)` could, too: models write a code in the same ways.
    """
    letters = [chr(ord("A") + i) for i in range(len(options))]
    labels = {normalize_word(option.label).upper() for option in options}
    codes = letters if len(options) <= 26 and not labels & set(letters) else [f"#{i + 1}" for i in range(len(options))]
    return dict(zip(codes, options, strict=True))


def describe_options(question: Question) -> str:
    """Describe the options in the question's order, a line each, and CANNOT_ASSESS if it is allowed."""
    lines = [
        f"{code}: {_one_line(describe_option(option))}" for code, option in option_codes(options_of(question)).items()
    ]
    if question.may_abstain and question.criterion.na_option is None:
        lines.append("CANNOT_ASSESS: what is given is not enough to tell")
    return "\n".join(lines)


def option_code(question: Question, label: str) -> str:
    """Return the code of the option with a label; any other text, such as CANNOT_ASSESS, is returned unchanged."""
    wanted = question.criterion.find_option(label)
    return next((code for code, option in option_codes(options_of(question)).items() if option is wanted), label)


def criteria_inputs(criteria: str, criteria_by_label: Iterable[tuple[str, Criterion]]) -> dict[str, str]:
    """Return the texts of a question on several criteria that it does not share with other questions, by field.

    Args:
        criteria: The description of the criteria.
        criteria_by_label: The criteria, each with the text that names it in this description.
    """
    contexts = [f"{label}: {_one_line(c.context)}" for label, c in criteria_by_label if c.context]
    return {**({"criterion_context": "\n".join(contexts)} if contexts else {}), "criteria": criteria}


def batch_inputs(questions: Mapping[int, Question]) -> dict[str, str]:
    """Return the texts of a question on several criteria, by field."""
    labelled = ((str(number), question.criterion) for number, question in questions.items())
    return criteria_inputs(describe_batch(questions), labelled)


def rubric_inputs(rubric: Rubric) -> dict[str, str]:
    """Return the texts of a question on a whole rubric, by field."""
    return criteria_inputs(describe_rubric(rubric), ((_one_line(c.full_requirement), c) for c in rubric.criteria))


def describe_batch(questions: Mapping[int, Question]) -> str:
    """Describe several criteria, each with its number and the kind of answer that it takes."""
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
    """Describe all criteria with their weights, for a score of the whole submission."""
    texts = [f"{_one_line(describe_criterion(criterion))}{_only_if(criterion)}" for criterion in rubric.criteria]
    return "\n".join(f"({_describe_weight(c)}) {text}" for c, text in zip(rubric.criteria, texts, strict=True))


def _only_if(criterion: Criterion) -> str:
    """Return what a judge of the whole reads about when a criterion applies."""
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
    """Join a text's lines, so that none of them can pass for a line of ours, such as another criterion's number."""
    return " ".join(text.split())
