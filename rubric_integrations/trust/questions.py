"""The question that annotators read when they label a judgment, the answers to offer, and the parsing of an answer.

Annotators see the same texts as a judge (`judges/prompts/render.py`). They see neither the judge's answer nor weights.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rubric_integrations.rubric.answers import Band, band_of, level_text
from rubric_integrations.rubric.criterion import Criterion, describe_condition
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.judgment import interpret_answer
from rubric_integrations.trust.matching import answer_levels

_CANNOT_ASSESS = "CANNOT_ASSESS"


class OfferedAnswer(NamedTuple):
    """An answer that an annotator can select.

    Attributes:
        verdict: The answer in the form that the label stores.
        meaning: The meaning of the answer in words, or "" if the rubric does not describe it.
        key: The keyboard key that selects the answer on the page and in the terminal, or "" if it has no key.
    """

    verdict: str
    meaning: str
    key: str


class QuestionToLabel(NamedTuple):
    """The texts that an annotator reads to answer one criterion: the same texts as the judge, without its answer.

    Attributes:
        criterion: The criterion, with its requirement, answers, condition, document and aspects, but without its name
            in the rubric. None for a run of an earlier version, which did not store the possible answers.
        guidelines: The rubric's guidelines for all criteria, or "" if it has none.
    """

    criterion: Criterion | None
    guidelines: str

    @property
    def words(self) -> str:
        """The question in a few words, such as "Does this error occur?" for a penalty."""
        criterion = self.criterion
        if criterion is None:
            return "What is the answer?"
        if criterion.options is not None:
            return "Which answer fits best?"
        if criterion.cap is not None:
            return "How often does this occur?"
        if criterion.scale is not None:
            return "Which number fits best?"
        return "Does this error occur?" if criterion.is_penalty else "Is this requirement met?"

    @property
    def range_text(self) -> str:
        """The range of a scale as text, or "" without a scale.

        A band is a range of neighbouring numbers with the same meaning. If the numbers of the scale have no buttons,
        the text also has a line for each band.
        """
        criterion = self.criterion
        if criterion is None or criterion.scale is None:
            return ""
        scale = criterion.scale
        if criterion.cap is not None:
            return f"a whole number from 0 to {scale.max:g}; {scale.max:g} also if it occurs more often"
        kind, more = ("a whole number", "") if scale.integer else ("a number", ", decimals allowed")
        # If each number has a button, the button shows the text of its band.
        levels = [] if answer_levels(criterion) else sorted(scale.levels.items(), key=lambda item: band_of(item[0]))
        bands = [f"{level_text(level)}: {text}" for level, text in levels if isinstance(level, Band)]
        return "\n".join([f"{kind} from {scale.min:g} to {scale.max:g}{more}", *bands])

    @property
    def takes_number(self) -> bool:
        """Whether the annotator must be able to type a number, because not every number of the scale has a key."""
        scale = self.criterion.scale if self.criterion else None
        return scale is not None and not (scale.integer and scale.min >= 0 and scale.max <= _LAST_DIGIT)

    @property
    def answers(self) -> tuple[OfferedAnswer, ...]:
        """The answers to offer, with abstentions last.

        A scale of at most 21 whole numbers offers all of them. Another scale offers only the numbers with a
        description. Empty if the run does not contain the possible answers. The annotator then types the answer.
        """
        criterion = self.criterion
        if criterion is None:
            return ()
        if criterion.scale is not None:
            scale = criterion.scale
            numbers = answer_levels(criterion) or [
                f"{level:g}" for level in sorted(level for level in scale.levels if not isinstance(level, Band))
            ]
            offered = [
                OfferedAnswer(number, scale.text_at(float(number)) or "", number if len(number) == 1 else "")
                for number in numbers
            ]
            return (*offered, OfferedAnswer(_CANNOT_ASSESS, _CANNOT_TELL, "?"))
        if criterion.options is None:
            pairs = list((_PENALTY if criterion.is_penalty else _REQUIREMENT).items())
        else:
            meanings = {option.label: option.description or "" for option in criterion.options}
            labels = [*answer_levels(criterion), *(option.label for option in criterion.options if option.na)]
            pairs = [(label, meanings[label]) for label in labels]
        if criterion.na_option is None:
            pairs.append((_CANNOT_ASSESS, _CANNOT_TELL))
        return tuple(
            OfferedAnswer(verdict, meaning, str(number) if number <= _LAST_DIGIT else "")
            for number, (verdict, meaning) in enumerate(pairs, start=1)
        )

    @property
    def texts(self) -> dict[str, str]:
        """The condition, the aspects and the document of the criterion, by their headings. Empty without them."""
        criterion = self.criterion
        if criterion is None:
            return {}
        condition = describe_condition(criterion.applies_when) if criterion.applies_when is not None else ""
        texts = {
            "Only if": condition and f"{condition} (if this is not so, answer {_CANNOT_ASSESS})",
            "Consider": "".join(
                f"\n- {aspect.name}: {aspect.description}".rstrip(": ") for aspect in criterion.aspects
            ),
            "Document of the criterion": criterion.context or "",
        }
        return {heading: text for heading, text in texts.items() if text}


def read_verdict(criterion: Criterion, answer: object) -> str:
    """Parse an annotator's answer to a criterion, and return it in the form that a label stores, such as `MET`.

    A number on a scale may have a decimal comma.

    Args:
        criterion: The criterion.
        answer: The answer from a file, or as the annotator typed it.

    Raises:
        ValueError: The answer does not fit the criterion. The message lists the possible answers.

    Example:
        >>> read_verdict(Criterion(requirement="How clear?", scale={"min": 0, "max": 2}), "1,5")
        '1.5'
    """
    if criterion.scale is None:
        return interpret_answer(criterion, answer).verdict
    text = answer
    # A comma before three digits may be a thousands separator, so it is not replaced.
    if isinstance(answer, str) and _DECIMAL_COMMA.fullmatch(answer.strip()):
        text = answer.replace(",", ".")
    try:
        return interpret_answer(criterion, text).verdict
    except ValueError:
        numbers = QuestionToLabel(criterion, "").range_text.splitlines()[0]
        raise ValueError(f"{answer!r} is no answer: it takes {numbers}, or CANNOT_ASSESS") from None


def question_of(row: GradedRow, index: int) -> QuestionToLabel:
    """Return the question for an annotator about one criterion of a row.

    Args:
        row: The row, with a report.
        index: The index of the criterion in the report.
    """
    entries = row.report.criteria if row.report else ()
    texts = row.criterion_texts[index] if row.criterion_texts else {}
    try:
        known = entries[index].to_criterion()
        fields = {name: getattr(known, name) for name in known.model_fields_set}
        criterion = Criterion.model_validate({**fields, **texts})
    except ValueError:
        # A run of an earlier version has no options. If the verdicts in the run were offered, they would reveal the
        # judge's answer.
        criterion = None
    return QuestionToLabel(criterion, row.guidelines)


_DECIMAL_COMMA = re.compile(r"[+-]?(0?,\d+|\d+,\d{1,2}|\d+,\d{4,})", re.ASCII)
_LAST_DIGIT = 9
_REQUIREMENT = {
    "MET": "yes, the response fully does what this says",
    "UNMET": "no, it does not, or only in part",
}
_PENALTY = {
    "MET": "yes, the response makes this error",
    "UNMET": "no, it does not; warning against the error, or correcting it, is not making it",
}
_CANNOT_TELL = "what is shown is not enough to tell"
