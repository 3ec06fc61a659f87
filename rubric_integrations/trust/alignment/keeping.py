"""Splits labelled submissions into train, dev and test, and decides whether an aligned judge is kept.

An optimizer uses train, candidates are compared on dev, and test proves the gain. A judge is kept if a one-sided lower
limit of the gain is above 0. The limit is corrected for the number of attempts.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

from rubric_integrations.judges.prompts.render import criterion_inputs
from rubric_integrations.judges.protocol import Question
from rubric_integrations.scoring.judgment import Judgment, to_judgment
from rubric_integrations.scoring.labels import NO_TEXT, Estimate, LabelledJudgment, judgment_digest
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.matching import answers_of, canonical_answer, consensus_of, labels_by_rater
from rubric_integrations.trust.statistics import ROUNDING, normal_quantile, special, student_quantile

UNDEFINED = Estimate(None, None, None, 0)

FEWEST_SUBMISSIONS = 20
"""The smallest number of submissions in a test set. It is 40 % of 50 labelled submissions, which other figures need."""

# The share of answers that an alignment usually changes. It is used to plan the gain that labels can show.
_CHANGED_ANSWERS = 0.2
_POWER = 0.8


def alpha_of_attempt(alpha: float, attempt: int) -> float:
    """Return the level of the test of one attempt on a test set: `alpha / (k (k + 1))` for the k-th attempt.

    The sum of the levels is at most `alpha` for any number of attempts. Therefore, the probability of keeping any judge
    that is not better is at most `alpha` (a Bonferroni correction for an unknown number of tests). The level
    `alpha / k` would not be sufficient: with `alpha` = 5 %, ten attempts would keep such a judge in up to 13 % of cases
    (`benchmarks/alignment.py`).

    Example:
        >>> [round(alpha_of_attempt(0.05, attempt), 4) for attempt in (1, 2, 10)]
        [0.025, 0.0083, 0.0005]
    """
    return alpha / (attempt * (attempt + 1))


def estimate_gain(differences: Sequence[float], alpha: float, attempt: int = 1) -> Estimate:
    """Estimate the mean gain of submissions, with the one-sided lower limit `mean - t s / sqrt(n)`.

    The judge is kept if `low` is above 0. There is no upper limit. If all differences are equal, the limit is the mean.
    This is safe, because a test set has at least `FEWEST_SUBMISSIONS` submissions, and so many equal gains do not occur
    by chance.

    Args:
        differences: For each submission, the share of right answers of the candidate minus the share of the original
            judge.
        alpha: The probability of keeping a judge that is not better, over all attempts.
        attempt: The number of this attempt on the same test set, from 1.

    Example:
        >>> gain = estimate_gain([1.0] * 20 + [-1.0] * 5 + [0.0] * 75, alpha=0.05)
        >>> round(gain.value, 3), round(gain.low, 3), gain.n
        (0.15, 0.055, 100)
    """
    count = len(differences)
    if count < 2:
        return Estimate(math.fsum(differences) / count if count else None, None, None, count)
    mean = math.fsum(differences) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in differences) / (count - 1))
    quantile = student_quantile(count - 1, 1 - 2 * alpha_of_attempt(alpha, attempt))
    low = mean - quantile * deviation / math.sqrt(count)
    return Estimate(mean, 0.0 if abs(low) <= ROUNDING else low, None, count)


def is_kept(gain: Estimate) -> bool:
    """Return whether a gain is proven: its lower limit is above 0."""
    return gain.low is not None and gain.low > 0


def corrected_gain(gain: Estimate, alpha: float, attempt: int = 1) -> float | None:
    """Correct the measured gain of a kept judge for selection bias. None if the gain has no lower limit.

    Only judges with a large measured gain are kept. Therefore, the measured gain is too large on average, such as 0.109
    for a true gain of 0.04 on 100 submissions. The correction is median-unbiased (Zhong and Prentice 2008). If the
    corrected gain were the true gain, half of the kept judges would have a larger measured gain than this judge, and
    half a smaller one. The result is at least 0.

    Args:
        gain: The measured gain, by `estimate_gain`.
        alpha: The probability of keeping a judge that is not better, over all attempts.
        attempt: The number of this attempt on the same test set, from 1.

    Example:
        >>> gain = estimate_gain([1.0] * 20 + [-1.0] * 5 + [0.0] * 75, alpha=0.05)
        >>> round(gain.value, 3), round(corrected_gain(gain, alpha=0.05), 3)
        (0.15, 0.139)
    """
    if gain.value is None or gain.low is None:
        return None
    quantile = student_quantile(gain.n - 1, 1 - 2 * alpha_of_attempt(alpha, attempt))
    error = (gain.value - gain.low) / quantile
    if error <= ROUNDING:
        return gain.value
    measured, log_ndtr = gain.value / error, special().log_ndtr
    low, high = measured - 60, measured + 10
    while high - low > ROUNDING:
        middle = (low + high) / 2
        is_below = log_ndtr(middle - measured) - log_ndtr(middle - quantile) < math.log(0.5)
        low, high = (middle, high) if is_below else (low, middle)
    return max(0.0, low * error)


def smallest_gain(submissions: int, alpha: float = 0.05, attempt: int = 1) -> float:
    """Return the smallest true gain that a test set proves with a probability of 80 %.

    The gain g is the solution of `n = (z_alpha + z_power)^2 (d - g^2) / g^2`. z_alpha is the one-sided normal quantile
    for the level of the attempt (see `alpha_of_attempt`), and z_power is the normal quantile of 80 %. The share d of
    answers that change is assumed to be a fifth. If fewer answers change, the same test set proves a smaller gain.

    Args:
        submissions: The number n of submissions in the test set.
        alpha: The probability of keeping a judge that is not better, over all attempts.
        attempt: The number of the next attempt on this test set, from 1.

    Example:
        >>> [round(smallest_gain(count), 2) for count in (20, 50, 100, 200, 400)]
        [0.24, 0.16, 0.12, 0.09, 0.06]
    """
    level = alpha_of_attempt(alpha, attempt)
    squared = (normal_quantile(1 - 2 * level) + normal_quantile(2 * _POWER - 1)) ** 2
    return math.sqrt(squared * _CHANGED_ANSWERS / (submissions + squared))


Part = Literal["train", "dev", "test"]
"""The use of a submission: `train` for the optimizer, `dev` to compare candidates, or `test` to prove the gain."""

SHARES: dict[Part, float] = {"train": 0.4, "dev": 0.2, "test": 0.4}


def split_submissions(
    answers: Mapping[str, Collection[str]], *, only_train: Collection[str] = (), seed: int = 0
) -> dict[str, Part]:
    """Split submissions 40/20/40 into train, dev and test, with similar shares of each answer in each part.

    The method is iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011). The submissions with the rarest
    answer are distributed first. Each submission goes to the part that still needs the most submissions with this
    answer. The result depends on the digests and the seed, and not on the order of the submissions.

    Args:
        answers: The human answers of each submission with their criteria, by the submission's digest.
        only_train: The digests of submissions that must not be in dev or test.
        seed: The random seed of the split.

    Returns:
        The part of each submission. If `only_train` is empty, each part has exactly its share. Otherwise, the
        submissions in `only_train` take places in train. Other submissions then go to dev and test instead of train.

    Example:
        >>> parts = split_submissions({f"{number}": ["MET"] for number in range(10)})
        >>> sorted(parts.values())
        ['dev', 'dev', 'test', 'test', 'test', 'test', 'train', 'train', 'train', 'train']
    """

    def rank(*parts: str) -> str:
        return sha256("\n".join((str(seed), *parts)).encode()).hexdigest()

    parts: dict[str, Part] = dict.fromkeys(only_train, "train")
    left = sorted(set(answers).difference(only_train), key=rank)
    room = _room(len(left), len(parts))
    total = Counter(answer for digest in left for answer in set(answers[digest]))
    share = {part: count / len(left) if left else 0.0 for part, count in room.items()}
    lacking = {(part, answer): share[part] * count for part in room for answer, count in total.items()}

    def need(part: Part, answer: str | None, digest: str) -> tuple[float, float, str]:
        of_answer = 0.0 if answer is None else lacking[part, answer]
        return of_answer, room[part] / share[part], rank(digest, part)

    while left:
        remaining = Counter(answer for digest in left for answer in set(answers[digest]))
        rarest = min(remaining, key=lambda answer: (remaining[answer], answer), default=None)
        for digest in [digest for digest in left if rarest is None or rarest in answers[digest]]:
            open_parts: list[Part] = [part for part, places in room.items() if places]
            needs = {part: need(part, rarest, digest) for part in open_parts}
            part = max(open_parts, key=needs.__getitem__)
            parts[digest] = part
            room[part] -= 1
            for answer in set(answers[digest]):
                lacking[part, answer] -= 1
        left = [digest for digest in left if digest not in parts]
    return parts


def _room(free: int, in_train: int) -> dict[Part, int]:
    """Return the number of free submissions for each part, if other submissions are already in train."""
    test = round(SHARES["test"] * free)
    dev = round(SHARES["dev"] * free)
    train = free - test - dev
    # Submissions that must be in train replace free submissions, which are more useful in dev and test.
    spare = min(train, in_train)
    more_test = math.ceil(spare * SHARES["test"] / (SHARES["test"] + SHARES["dev"]))
    return {"train": train - spare, "dev": dev + spare - more_test, "test": test + more_test}


class LabelledQuestion(NamedTuple):
    """A question with a human answer.

    Attributes:
        question: The question in the form that a judge gets.
        answer: The most frequent answer of the raters. It is not an abstention.
        label: A label with this answer, if possible a label with a reason.
        is_random: Whether the question was drawn at random. Only then can its label prove a gain.
    """

    question: Question
    answer: str
    label: LabelledJudgment
    is_random: bool

    @property
    def submission(self) -> str:
        """A digest of the submission. It is equal for submissions with the same query, response and trajectory."""
        return submission_digest(self.question.submission)

    @property
    def judgment(self) -> str:
        """The digest of the judgment, which the `alignment` record of a judge stores."""
        return judgment_digest(self.question.submission, self.question.criterion)

    def is_right(self, judgment: Judgment) -> bool:
        """Whether a judge gives the human answer. An abstention is wrong, because the human answer is a decision."""
        return canonical_answer(self.question.criterion, judgment.verdict) == self.answer


class LabelSets(NamedTuple):
    """The labels of an alignment, split into three sets.

    Attributes:
        train: The questions for the optimizer.
        dev: The questions to compare candidates.
        test: The questions to prove the gain.
        digest: A digest of all questions and answers, including questions that are left out.
        warnings: Sentences about labels that are left out.
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
    """Return a digest of a submission's query, response and trajectory. It does not depend on its other parts."""
    return _digest([submission.query or "", submission.response.strip(), *_steps_digest(submission)])[:16]


def _steps_digest(submission: Submission) -> list[str]:
    return [] if submission.trajectory is None else [submission.trajectory.digest]


def digest_of(items: Iterable[LabelledQuestion]) -> str:
    """Return a digest of questions with their answers. It does not depend on their order."""
    return _digest(sorted([item.judgment, item.answer] for item in items))


def split_labels(labels: Iterable[LabelledJudgment], *, trained_on: Collection[str] = (), seed: int = 0) -> LabelSets:
    """Find the human answer to each question, and split the questions by submission.

    Dev and test contain only labels that were drawn at random. Labels that annotators selected, or that were drawn by
    the judge's verdict, over-represent some verdicts. A gain on them may not exist on real input. Therefore, they are
    used only for training. A submission with only such labels is in train. If a submission in dev or test also has such
    labels, these are left out.

    Args:
        labels: The labels of any number of raters.
        trained_on: The digests of judgments that were used to align the judge before. Their submissions are in train.
        seed: The random seed of the split.

    Raises:
        ValueError: There are too few labels, or all have the same answer.
    """
    questions, warnings = _questions(labels)
    if not questions:
        raise ValueError("`labels` has no human answer to any question: there is nothing to align the judge with")
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
    """Return the questions with their human answers, and warnings about judgments that are left out.

    The order of the questions depends only on their texts.
    """
    groups: dict[str, list[LabelledJudgment]] = {}
    computed = 0
    for label in labels:
        if label.submission == NO_TEXT:
            raise ValueError(
                f"`labels`: the run has no text of the row {label.id!r}: pass `responses` to `read_judgments` (in the "
                "shell `import --responses`), or the judge would be aligned without texts"
            )
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
        "raters disagree, and no answer has most votes": undecided,
        "raters could not decide": abstained,
        "a check decides the criterion, and no judge": computed,
    }
    return questions, [f"judgments left out because {reason}: {count:,}" for reason, count in reasons.items() if count]


def _identity(label: LabelledJudgment) -> str:
    """Return a digest of a label's judgment, computed from all texts that a judge sees."""
    submission = label.submission
    texts = (submission.query, submission.reference, submission.response, *submission.context)
    inputs = criterion_inputs(Question(submission, label.criterion))
    parts: Sequence[object] = [*texts, inputs, *_steps_digest(submission)]
    return _digest(parts)


def _digest(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
