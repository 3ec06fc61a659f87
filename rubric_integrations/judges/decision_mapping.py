"""Turns questions of a rubric into typed questions for a decision model, and its probabilities into judgments.

- **Binary criteria**: a yes or no. The verdict is MET if the probability of yes is at least 0.5. A penalty asks whether
  the error is present.
- **Options**: a choice. Their labels are the answers, with CANNOT_ASSESS if it is allowed.
- **Scales**: a score on described levels. The most probable level is the verdict, and the mean is the expected value.
- **Abstentions**: a second yes or no asks whether the material is sufficient. Doubt about the answer is not a lack of
  evidence, so a probability near 0.5 is not an abstention.

Trusted text, which is the rubric, stands in the questions. Untrusted text stands only in string values of the state,
whose keys are fixed. The texts are sanitized as they are for a language model.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import ref

from rubric_integrations.judges.decisions import DecisionReply, Distribution, TypedQuestion
from rubric_integrations.judges.prompts.render import check_length, describe_criterion, options_of, show_files
from rubric_integrations.judges.prompts.sanitize import neutralize
from rubric_integrations.judges.protocol import Question, criteria_of_request
from rubric_integrations.rubric.answers import Scale, band_of, level_text
from rubric_integrations.rubric.criterion import CONDITION_PREFIX, Criterion
from rubric_integrations.scoring.judgment import JudgeFailure, Judgment, interpret_answer
from rubric_integrations.submission.submission import shown_trajectory

_REQUIREMENT = "Does `response` do what this requirement says, fully and not only in part?\nRequirement: {}"
_PENALTY = (
    "Is this error present in `response`? It is not present if it is only mentioned to warn against it, reject it or "
    "correct it.\nError: {}"
)
_CONDITION = "Is this the case, however good or bad `response` is?\n{}"
_OPTIONS = "Which option describes `response` best?\nQuestion: {}"
_SCALE = "Which level describes `response` best?\nQuestion: {}"
_SUFFICIENT = (
    "Does the material contain everything that is needed to answer the following question about `response`? If "
    "`response` only leaves out what is required, the material is sufficient.\n{}"
)
_CONTEXT = "\n`criterion_context` is a document that belongs to this question."
_NOT_SUFFICIENT = "what is given is not enough to tell"
_KEYS = (
    "task", "reference", "context", "criterion_context", "trajectory", "thinking", "response", "attachments", "label",
    "text",
)  # fmt: skip

TEMPLATE = sha256(
    json.dumps([_REQUIREMENT, _PENALTY, _CONDITION, _OPTIONS, _SCALE, _SUFFICIENT, _CONTEXT, _NOT_SUFFICIENT, _KEYS])
    .encode()
).hexdigest()[:12]  # fmt: skip
"""A digest of the words around the texts of a question. It is a part of a judge's fingerprint."""

CANNOT_ASSESS = "CANNOT_ASSESS"

MAX_OPTIONS, MAX_LEVELS = 255, 10
"""The largest numbers of options and of levels that decision models accept."""


def refusal(criterion: Criterion) -> str | None:
    """Return why a decision model cannot answer a criterion, and what to do. None if it can.

    Example:
        >>> refusal(Criterion(requirement="Names the river")) is None
        True
        >>> refusal(Criterion(requirement="Typos", per="occurrence", cap=5, weight=-1))
        'counts occurrences, and a decision model does not count: use `options` such as none, few and many'
    """
    if criterion.per is not None:
        return "counts occurrences, and a decision model does not count: use `options` such as none, few and many"
    if criterion.examples:
        return "has `examples`, and a decision model is shown none: remove them, or use a language model as the judge"
    if criterion.scale is not None and _levels_of(criterion.scale) is None:
        return (
            "has a `scale` without a text for each of its numbers, or with more than "
            f"{MAX_LEVELS} `levels`: a decision model chooses among described levels, so write them all, or use "
            "`options`"
        )
    options = criterion.options or ()
    if len(options) >= MAX_OPTIONS:
        return f"has {len(options)} `options`, and a decision model reads fewer than {MAX_OPTIONS}: use fewer `options`"
    labels = [neutralize(option.label) for option in options]
    if repeated := next((label for label in labels if labels.count(label) > 1), None):
        return f"has two `options` with the label {repeated!r} after sanitizing: rename one of them"
    return None


# In the words of English rubrics. A criterion that is found or missed by mistake changes only a message.
_WEAKNESSES = {
    "counting": re.compile(
        r"\b(?:at least|at most|exactly|more than|fewer than|less than|up to|number of|how many|counts?)\b"
        r"|\b\d+ (?:words|sentences|paragraphs|items|examples|times|steps|characters)\b",
        re.IGNORECASE,
    ),
    "dates": re.compile(
        r"\b(?:dates?|deadlines?|years?|months?|weeks?|days?|weekdays?|older|newer|latest|earliest|recent)\b"
        r"|\b(?:19|20)\d\d\b",
        re.IGNORECASE,
    ),
    "negation": re.compile(r"\b(?:not|no|never|without|avoids?|neither|nor|none|except)\b|n't\b", re.IGNORECASE),
}
_LONGEST_NAME, _MAX_NAMES = 40, 3


def caution(criteria: Sequence[Criterion]) -> str | None:
    """Return a warning about criteria of kinds that decision models are reported to judge badly. None without any.

    Example:
        >>> caution([Criterion(requirement="Has exactly three sentences", name="length")])
        'Vendors and users report (not measured here) that decision models are weak at counting (length).'
    """
    names: dict[str, list[str]] = {}
    for criterion in criteria:
        name = criterion.name or repr(criterion.requirement[:_LONGEST_NAME])
        weaknesses = [kind for kind, pattern in _WEAKNESSES.items() if pattern.search(criterion.requirement)]
        for kind in (*weaknesses, *(["long material"] if "trajectory" in criterion.needs else [])):
            names.setdefault(kind, []).append(name)
    if not names:
        return None
    kinds = ", ".join(f"{kind} ({_listed(shown)})" for kind, shown in names.items())
    return f"Vendors and users report (not measured here) that decision models are weak at {kinds}."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


class Material(NamedTuple):
    """The part of a request that all its questions share.

    Attributes:
        state: The texts by fixed keys.
        images: The images as data URLs, in the order of their labels in the state.
        neutralized: Whether sanitizing changed a text.
    """

    state: dict[str, Any]
    images: tuple[str, ...]
    neutralized: bool


class _Sanitizer:
    """Sanitizes texts, and records whether one was changed."""

    def __init__(self) -> None:
        self.has_changed = False

    def __call__(self, text: str) -> str:
        safe = neutralize(text)
        self.has_changed = self.has_changed or safe != text
        return safe


def render_material(questions: Mapping[int, Question], *, reads_images: bool) -> Material:
    """Render the submission of a request into its state.

    Args:
        questions: The questions of one request of `split_questions`.
        reads_images: Whether the request may have images.

    Raises:
        JudgeFailure: A text is too long, or an attachment cannot be sent.
    """
    first = next(iter(questions.values()))
    submission = first.submission
    trajectory = shown_trajectory(submission, criteria_of_request(questions))
    steps = trajectory.text() if trajectory else ""
    check_length(submission.response, steps, submission.query or "")
    clean = _Sanitizer()
    state: dict[str, Any] = {}
    for key, text in (("task", submission.query), ("reference", submission.reference)):
        if text:
            state[key] = clean(text)
    if submission.context:
        state["context"] = [clean(text) for text in submission.context]
    if first.criterion.context:
        state["criterion_context"] = clean(first.criterion.context)
    if steps:
        # One line for each step, with its number.
        state["trajectory"] = clean(steps).split("\n")
    if submission.shown_thinking:
        state["thinking"] = clean(submission.shown_thinking)
    state["response"] = clean(submission.response)
    images: list[str] = []
    files = show_files(submission.attachments, None) if submission.attachments else ()
    for file in files:
        attachment = {"label": file.label}
        clean.has_changed = clean.has_changed or file.neutralized
        if file.kind == "text":
            attachment["text"] = file.content
        elif file.kind == "image" and reads_images and not file.is_url:
            images.append(f"data:{file.mime_type};base64,{file.content}")
        else:
            raise JudgeFailure("config", _unreadable_file(file.label, reads_images), about_text=True)
        state.setdefault("attachments", []).append(attachment)
    return Material(state, tuple(images), clean.has_changed)


def _unreadable_file(label: str, reads_images: bool) -> str:
    readable = "text and images with their bytes as `data`" if reads_images else "text"
    return (
        f"{label!r} cannot be sent: this decision model reads {readable}; leave the attachment out, or use a language "
        "model as the judge"
    )


class QuestionPair(NamedTuple):
    """The typed questions about one criterion.

    Attributes:
        answer: The question itself.
        sufficient: The question whether the material is sufficient. None if it is not asked.
        neutralized: Whether sanitizing changed a text of the questions.
        refusal: Why the criterion cannot be asked. None if it can.
    """

    answer: TypedQuestion
    sufficient: TypedQuestion | None
    neutralized: bool
    refusal: str | None = None

    def named(self, number: int) -> dict[str, TypedQuestion]:
        """Return the questions by their names in a request."""
        questions = {answer_name(number): self.answer}
        if self.sufficient is not None:
            questions[sufficient_name(number)] = self.sufficient
        return questions


def answer_name(number: int) -> str:
    """Return the name of a question in a request. It contains no text of the rubric."""
    return f"q{number}"


def sufficient_name(number: int) -> str:
    """Return the name of the question whether the material is sufficient for another question."""
    return f"q{number}_sufficient"


# By identity, because comparing criteria takes longer than making their questions. All submissions of a run have the
# same criteria.
_pairs: dict[int, tuple[ref[Criterion], dict[object, QuestionPair]]] = {}
_MAX_CRITERIA, _MAX_PAIRS = 1024, 64


def question_pair(question: Question, *, abstains: bool) -> QuestionPair:
    """Turn a question of a rubric into typed questions.

    Args:
        question: The question.
        abstains: Whether the model may abstain.
    """
    entry = _pairs.get(id(question.criterion))
    if entry is None or entry[0]() is not question.criterion:
        if len(_pairs) >= _MAX_CRITERIA:
            _pairs.clear()
        entry = _pairs[id(question.criterion)] = (ref(question.criterion), {})
    pairs, order = entry[1], tuple(option.label for option in question.options)
    key = (question.guidelines, question.may_abstain, order, abstains)
    pair = pairs.get(key)
    if pair is None:
        if len(pairs) >= _MAX_PAIRS:
            pairs.clear()
        pair = pairs[key] = _make_pair(question, abstains)
    return pair


def _make_pair(question: Question, abstains: bool) -> QuestionPair:
    """Return the typed question about a criterion, with the question of sufficiency if the judge abstains."""
    criterion, clean = question.criterion, _Sanitizer()
    guidelines = clean(question.guidelines) if question.guidelines else ""
    text = _form_of(criterion).format(clean(_words_of(criterion)))
    if criterion.context:
        text += _CONTEXT
    sufficient = None
    if abstains and criterion.options is None:
        sufficient = TypedQuestion("yes or no", _SUFFICIENT.format(text), guidelines=guidelines)
    if criterion.options is not None:
        answers = [
            (clean(option.label), option.description and clean(option.description)) for option in options_of(question)
        ]
        if _may_choose_abstention(question, abstains):
            answers.append((CANNOT_ASSESS, _NOT_SUFFICIENT))
        answer = TypedQuestion("choice", text, tuple(answers), guidelines)
    elif criterion.scale is not None:
        levels = _levels_of(criterion.scale) or ()
        answer = TypedQuestion("score", text, tuple((clean(level.text), None) for level in levels), guidelines)
    else:
        answer = TypedQuestion("yes or no", text, guidelines=guidelines)
    return QuestionPair(answer, sufficient, clean.has_changed, refusal(criterion))


def _form_of(criterion: Criterion) -> str:
    if criterion.options is not None:
        return _OPTIONS
    if criterion.scale is not None:
        return _SCALE
    if criterion.requirement.startswith(CONDITION_PREFIX):
        return _CONDITION
    return _PENALTY if criterion.is_penalty else _REQUIREMENT


def _words_of(criterion: Criterion) -> str:
    return describe_criterion(criterion).removeprefix(CONDITION_PREFIX)


def _may_choose_abstention(question: Question, abstains: bool) -> bool:
    criterion = question.criterion
    is_free = criterion.na_option is None and criterion.find_option(CANNOT_ASSESS) is None
    return abstains and question.may_abstain and is_free


def split_questions(
    questions: Mapping[int, Question], max_questions: int | None, *, abstains: bool
) -> list[dict[int, Question]]:
    """Split questions about one submission into requests.

    The questions of a request see the same material: the trajectory or not, and the same document of the criterion.
    Otherwise an answer would depend on the other questions of its request. A question and its abstention stay together.

    Args:
        questions: The questions, by number.
        max_questions: The largest number of typed questions in a request. None for no limit.
        abstains: Whether the model may abstain.
    """
    requests: dict[object, list[dict[int, Question]]] = {}
    sizes: dict[object, int] = {}
    for number, question in questions.items():
        count = 1 if question.criterion.options is not None or not abstains else 2
        key = _material_key(question)
        group, size = requests.setdefault(key, []), sizes.get(key, 0) + count
        if not group or (max_questions is not None and size > max_questions):
            group.append({})
            size = count
        group[-1][number] = question
        sizes[key] = size
    return [request for group in requests.values() for request in group]


def _material_key(question: Question) -> object:
    """Return what an answer depends on besides the submission and its own question."""
    criterion, submission = question.criterion, question.submission
    has_steps = submission.trajectory is not None
    is_shown = has_steps and shown_trajectory(submission, question.batch_criteria or [criterion]) is not None
    return is_shown, criterion.context


class _Level(NamedTuple):
    """A level of a scale.

    Attributes:
        name: The number or the band, as text.
        number: The number that is the verdict.
        middle: The number that counts for the mean.
        text: The meaning of the level.
    """

    name: str
    number: float
    middle: float
    text: str


def _levels_of(scale: Scale) -> list[_Level] | None:
    """Return the levels of a scale in order. None if the scale has numbers without a level, or too many levels."""
    if not 2 <= len(scale.levels) <= MAX_LEVELS:
        return None
    entries = sorted(scale.levels.items(), key=lambda item: band_of(item[0]))
    bands = [band_of(level) for level, _ in entries]
    has_gap = any(math.floor(one.high) + 1 < other.low for one, other in pairwise(bands))
    if has_gap or bands[0].low > scale.min or bands[-1].high < scale.max:
        return None
    levels: list[_Level] = []
    for (level, text), band in zip(entries, bands, strict=True):
        middle = (band.low + band.high) / 2
        number = math.floor(middle) if scale.integer else middle
        if not band.low <= number or not text.strip():
            return None
        levels.append(_Level(level_text(level), number, middle, text))
    return levels


def judgment_of(
    question: Question, number: int, reply: DecisionReply, *, abstains: bool, neutralized: bool = False
) -> Judgment:
    """Make the judgment on a criterion from the answers to its typed questions.

    Args:
        question: The question.
        number: The number of the question.
        reply: A reply that answers all typed questions about the criterion.
        abstains: Whether the model may abstain.
        neutralized: Whether sanitizing changed a text of the request.
    """
    answer = reply.answers[answer_name(number)]
    sufficient = reply.answers.get(sufficient_name(number))
    criterion = question.criterion
    if criterion.options is not None:
        decision = _chosen(question, answer, _may_choose_abstention(question, abstains))
    elif criterion.scale is not None:
        decision = _scored(criterion, criterion.scale, answer)
    else:
        decision = _decided(answer.probabilities[0])
    verdict, value, confidence, expected, probabilities = decision
    if sufficient is not None:
        share = sufficient.probabilities[0]
        lacking = probabilities[CANNOT_ASSESS] = _complement(share)
        if share < 0.5:
            verdict, value, confidence = CANNOT_ASSESS, None, lacking
    return Judgment(
        verdict=verdict,
        value=value,
        confidence=confidence,
        expected_value=expected,
        probabilities=probabilities,
        neutralized=neutralized,
        model=reply.model,
    )


class _Outcome(NamedTuple):
    """The fields of a judgment that depend on the probabilities."""

    verdict: str
    value: float | None
    confidence: float
    expected_value: float | None
    probabilities: dict[str, float]


def _decided(met: float) -> _Outcome:
    """Decide a binary criterion by the probability of MET."""
    unmet = _complement(met)
    probabilities = {"MET": met, "UNMET": unmet}
    return (
        _Outcome("MET", 1.0, met, met, probabilities)
        if met >= 0.5
        else _Outcome("UNMET", 0.0, unmet, met, probabilities)
    )


def _chosen(question: Question, answer: Distribution, has_abstention: bool) -> _Outcome:
    """Choose the most probable option."""
    options = options_of(question)
    labels = [option.label for option in options] + [CANNOT_ASSESS] * has_abstention
    values = [None if option.na else option.value for option in options] + [None] * has_abstention
    verdict, value = interpret_answer(question.criterion, labels[answer.best], question.may_abstain)
    return _Outcome(
        verdict=verdict,
        value=value,
        confidence=answer.probabilities[answer.best],
        expected_value=answer.mean(values),
        probabilities=dict(zip(labels, answer.probabilities, strict=True)),
    )


def _scored(criterion: Criterion, scale: Scale, answer: Distribution) -> _Outcome:
    """Choose the most probable level."""
    levels = _levels_of(scale) or []
    verdict, value = interpret_answer(criterion, f"{levels[answer.best].number:.15g}")
    return _Outcome(
        verdict=verdict,
        value=value,
        confidence=answer.probabilities[answer.best],
        expected_value=answer.mean([(level.middle - scale.min) / (scale.max - scale.min) for level in levels]),
        probabilities={level.name: share for level, share in zip(levels, answer.probabilities, strict=True)},
    )


def _complement(probability: float) -> float:
    """Return 1 - p without the rounding error of floats, which would be stored as 0.09999999999999998."""
    return round(1 - probability, 12)
