"""People's labels as an alignment needs them: one answer for each judgment, by submission, in three parts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from rubric_integrations.agreement.alignment.keeping import FEWEST_SUBMISSIONS
from rubric_integrations.agreement.alignment.splits import SHARES, Part, split_submissions
from rubric_integrations.agreement.matching import answers_of, canonical_answer, consensus_of, labels_by_rater
from rubric_integrations.judges.prompts.render import criterion_inputs
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.results.labels import LabelledJudgment, judgment_digest
from rubric_integrations.submission.submission import Submission


class LabelledQuestion(NamedTuple):
    """A question that people have answered.

    Attributes:
        question: The question, as a judge gets it.
        answer: The answer of most raters, in canonical form; never an abstention.
        label: A label with this answer; one with a reason, if there is one.
        is_random: Whether the question was drawn at random, so that its label can prove a gain.
    """

    question: Question
    answer: str
    label: LabelledJudgment
    is_random: bool

    @property
    def submission(self) -> str:
        """A digest of the submission: equal for those with the same query and response."""
        return submission_digest(self.question.submission)

    @property
    def judgment(self) -> str:
        """The digest of the judgment, as an aligned judge keeps it."""
        return judgment_digest(self.question.submission, self.question.criterion)

    def is_right(self, judgment: Judgment) -> bool:
        """Whether a judge gives people's answer. An abstention is wrong: people could tell."""
        return canonical_answer(self.question.criterion, judgment.verdict) == self.answer


class LabelSets(NamedTuple):
    """The labels of an alignment.

    Attributes:
        train: Those that the optimizer sees.
        dev: Those by which its candidates are compared.
        test: Those that prove the gain.
        digest: A digest of all of them.
        warnings: What was left out.
    """

    train: list[LabelledQuestion]
    dev: list[LabelledQuestion]
    test: list[LabelledQuestion]
    digest: str
    warnings: tuple[str, ...]

    @property
    def test_submissions(self) -> frozenset[str]:
        """The digests of the submissions of the test set."""
        return frozenset(item.submission for item in self.test)

    @property
    def test_digest(self) -> str:
        """A digest of the labels of the test set."""
        return digest_of(self.test)


def submission_digest(submission: Submission) -> str:
    """Return a digest of what makes two submissions the same to `judgment_digest`: query and response."""
    return _digest([submission.query or "", submission.response.strip()])[:16]


def digest_of(items: Iterable[LabelledQuestion]) -> str:
    """Return a digest of questions with their answers, in any order."""
    return _digest(sorted([item.judgment, item.answer] for item in items))


def split_labels(labels: Iterable[LabelledJudgment], *, trained_on: Collection[str] = (), seed: int = 0) -> LabelSets:
    """Find people's answer to each question, and split the questions by submission.

    Dev and test have only labels that were drawn at random. Labels that people chose, or that were drawn by the judge's
    verdict, over-represent some verdicts, so that a gain on them need not be one on what the judge sees: the optimizer
    may train on them. They are used if their submission is in train, or has no other labels.

    Args:
        labels: The labels, of any number of raters.
        trained_on: The digests of judgments that the judge was aligned with before: their submissions are in train.
        seed: Which split.

    Raises:
        ValueError: There are too few labels, or all have the same answer.
    """
    questions, warnings = _questions(labels)
    if not questions:
        raise ValueError("`labels` has no answer of people to any question: there is nothing to align the judge with")
    if len({item.answer for item in questions}) == 1:
        raise ValueError(
            f"all {len(questions):,} labels say {questions[0].answer!r}: a judge that always says so would agree with "
            "all of them. Label more submissions, drawn at random, or draw them with "
            "`choose_for_labels(..., by_verdict=True)` in addition"
        )
    drawn = {item.submission for item in questions if item.is_random}
    known = {item.submission for item in questions if item.judgment in set(trained_on)}
    answers: dict[str, list[str]] = {}
    for item in questions:
        if item.submission not in drawn or item.is_random:
            text = f"{item.question.criterion.full_requirement}\n{item.answer}"
            answers.setdefault(item.submission, []).append(text)
    only_train = known | (set(answers) - drawn)
    parts = split_submissions(answers, only_train=only_train, seed=seed)
    by_part: dict[Part, list[LabelledQuestion]] = {part: [] for part in SHARES}
    omitted = 0
    for item in questions:
        part = parts[item.submission]
        if part == "train" or item.is_random:
            by_part[part].append(item)
        else:
            omitted += 1
    tested = len({item.submission for item in by_part["test"]})
    if tested < FEWEST_SUBMISSIONS:
        raise ValueError(
            f"{len(drawn - known):,} submissions have labels that were drawn at random (`sampled` is 'random'). Of "
            f"these, {tested:,} would prove a gain, and {FEWEST_SUBMISSIONS} are needed: label at least "
            f"{round(FEWEST_SUBMISSIONS / SHARES['test'])}, drawn with `choose_for_labels`. A smaller test set hardly "
            "shows even the gain of a judge that is right wherever the other is wrong"
        )
    if omitted:
        warnings.append(
            f"judgments left out because they were not drawn at random, and their submissions prove a gain: {omitted:,}"
        )
    if known:
        warnings.append(
            f"submissions that train the judge again, since it was aligned with them before: {len(known):,}"
        )
    return LabelSets(by_part["train"], by_part["dev"], by_part["test"], digest_of(questions), tuple(warnings))


def _questions(labels: Iterable[LabelledJudgment]) -> tuple[list[LabelledQuestion], list[str]]:
    """Return the questions with people's answers, in an order that depends on the texts alone, and what is left out."""
    groups: dict[str, list[LabelledJudgment]] = {}
    computed = 0
    for label in labels:
        if label.criterion.check is not None:
            computed += 1
        else:
            groups.setdefault(_identity(label), []).append(label)
    questions: list[LabelledQuestion] = []
    undecided = abstained = 0
    for _, group in sorted(groups.items()):
        drawn = [label for label in group if label.sampled == "random"]
        counting = labels_by_rater(drawn or group)
        criterion = counting[0].criterion
        answers = answers_of(criterion, counting)
        answer = consensus_of(answers)
        if answer is None:
            undecided += 1
        elif to_judgment(criterion, answer).value is None:
            abstained += 1
        else:
            agreeing = [label for label, own in zip(counting, answers, strict=True) if own == answer]
            label = min(agreeing, key=lambda label: (not label.reason.strip(), label.reason))
            questions.append(LabelledQuestion(Question(label.submission, criterion), answer, label, bool(drawn)))
    reasons: Mapping[str, int] = {
        "people disagree, and no answer has most votes": undecided,
        "people could not tell": abstained,
        "a check decides the criterion, and no judge": computed,
    }
    return questions, [f"judgments left out because {reason}: {count:,}" for reason, count in reasons.items() if count]


def _identity(label: LabelledJudgment) -> str:
    """Return a digest of what a judge sees of a label: labels with the same are of one judgment."""
    submission = label.submission
    texts = (submission.query, submission.reference, submission.response, *submission.context)
    parts: Sequence[object] = [*texts, criterion_inputs(Question(submission, label.criterion))]
    return _digest(parts)


def _digest(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
