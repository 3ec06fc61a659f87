"""The split of labels into those to train on, to choose by, and to prove a gain."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Submission
from rubric_integrations.scoring.labels import Sampled
from rubric_integrations.trust.alignment.keeping import split_labels, split_submissions
from tests.trust.alignment.alignments import CRITERIA, ERROR, FIRM, make_labels

_answers = st.dictionaries(
    st.text("0123456789abcdef", min_size=4, max_size=4), st.lists(st.sampled_from("ABCD"), max_size=4), max_size=60
)


@settings(max_examples=30, deadline=None)
@given(_answers, st.integers(0, 3), st.randoms(use_true_random=False))
def test_split_is_exact_and_does_not_depend_on_the_order(
    answers: dict[str, list[str]], seed: int, order: random.Random
) -> None:
    parts = split_submissions(answers, seed=seed)
    assert parts.keys() == answers.keys()
    sizes = Counter(parts.values())
    assert abs(sizes["test"] - 0.4 * len(answers)) <= 0.5
    assert abs(sizes["dev"] - 0.2 * len(answers)) <= 0.5
    shuffled = list(answers.items())
    order.shuffle(shuffled)
    assert split_submissions(dict(shuffled), seed=seed) == parts


def test_rare_answer_is_in_each_part_by_its_share() -> None:
    answers = {f"{number:04}": ["rare" if number % 10 == 0 else "frequent"] for number in range(200)}
    rare = Counter(part for digest, part in split_submissions(answers).items() if answers[digest] == ["rare"])
    assert rare == {"train": 8, "dev": 4, "test": 8}


def test_submissions_that_must_train_leave_the_others_to_dev_and_test() -> None:
    answers = {f"{number:04}": ["MET"] for number in range(100)}
    forced = [f"{number:04}" for number in range(60)]
    sizes = Counter(split_submissions(answers, only_train=forced).values())
    assert sizes == {"train": 60, "test": 27, "dev": 13}


def test_labels_in_another_order_are_split_alike_and_no_submission_is_in_two_parts() -> None:
    labels = make_labels(60, CRITERIA)
    sets = split_labels(labels)
    shuffled = labels.copy()
    random.Random(1).shuffle(shuffled)
    assert split_labels(shuffled) == sets
    parts = [{item.submission for item in part} for part in (sets.train, sets.dev, sets.test)]
    assert [len(part) for part in parts] == [24, 12, 24]
    assert len(set.union(*parts)) == 60
    assert split_labels(labels, seed=1).test_digest != sets.test_digest


@pytest.mark.parametrize("sampled", ["chosen", "by_verdict"])
def test_labels_that_were_not_drawn_at_random_serve_training_alone(sampled: Sampled) -> None:
    alone = make_labels(70, (FIRM,), sampled=sampled)[60:]
    beside = make_labels(60, (ERROR,), sampled=sampled)
    sets = split_labels([*make_labels(60, (FIRM,)), *alone, *beside])
    assert all(item.is_random for item in (*sets.dev, *sets.test))
    trained = {item.question.submission.response for item in sets.train}
    assert {label.submission.response for label in alone} <= trained
    # The ten train in place of others, which prove the gain.
    assert [len({item.submission for item in part}) for part in (sets.train, sets.dev, sets.test)] == [24, 15, 31]
    assert sum(not item.is_random for item in sets.train) == 10 + 14
    assert any("not drawn at random, and their submissions prove a gain: 46" in warning for warning in sets.warnings)


def test_raters_are_joined_by_most_votes_and_questions_without_an_answer_are_left_out() -> None:
    labels = make_labels(60)
    first, second, third = (label.submission for label in labels[:3])
    for submission, verdict, rater in [
        (first, "UNMET", "a"), (first, "UNMET", "b"), (first, "MET", "c"), (first, "UNMET", "c"),
        (second, "MET", "a"),
        (third, "CANNOT_ASSESS", "a"), (third, "CANNOT_ASSESS", "b"),
    ]:  # fmt: skip
        label = labels[0].model_copy(update={"submission": submission, "verdict": verdict, "rater": rater})
        labels.append(label)
    sets = split_labels(labels)
    answers = {item.question.submission: item.answer for item in (*sets.train, *sets.dev, *sets.test)}
    assert answers[first] == "UNMET"
    assert second not in answers
    assert third not in answers
    assert sets.warnings == (
        "judgments left out because raters disagree, and no answer has most votes: 1",
        "judgments left out because raters could not decide: 1",
    )


def test_submissions_that_trained_the_judge_before_train_it_again() -> None:
    labels = make_labels(120)
    before = split_labels(labels)
    trained_on = [item.judgment for item in before.train[:30]]
    sets = split_labels(labels, trained_on=trained_on)
    assert set(trained_on) <= {item.judgment for item in sets.train}


def test_equal_texts_with_other_documents_are_two_judgments_of_one_submission() -> None:
    labels = make_labels(60)
    other = labels[0].submission.model_copy(update={"context": ("a document",)})
    sets = split_labels([*labels, labels[0].model_copy(update={"submission": other, "verdict": "UNMET"})])
    part = next(part for part in (sets.train, sets.dev, sets.test) if any(i.question.submission == other for i in part))
    assert labels[0].submission in [item.question.submission for item in part]


def test_lone_surrogates_and_long_texts_are_split_like_others() -> None:
    labels = [*make_labels(60), *make_labels(1)]
    labels[-1] = labels[-1].model_copy(update={"submission": Submission(response="yes, \ud83d" + "a" * 900_000)})
    assert split_labels(labels).test_digest
