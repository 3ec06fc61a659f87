"""Splits labelled submissions into those to train on, those to choose by, and those that prove a gain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Literal

Part = Literal["train", "dev", "test"]
"""What a submission is used for: an optimizer sees it, its candidates are compared by it, or it proves the gain."""

SHARES: dict[Part, float] = {"train": 0.4, "dev": 0.2, "test": 0.4}


def split_submissions(
    answers: Mapping[str, Collection[str]], *, only_train: Collection[str] = (), seed: int = 0
) -> dict[str, Part]:
    """Split submissions 40/20/40 into train, dev and test, so that each part has its share of each answer.

    Iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011): the submissions with the rarest answer are
    distributed first, each to the part that lacks most of them. The result depends on the digests and the seed, and not
    on the order.

    Args:
        answers: For each submission, by its digest, people's answers, each with its criterion.
        only_train: The submissions that must not be in dev or test.
        seed: Which split.

    Returns:
        The part of each submission. The sizes of dev and test are exact shares of those that may be there.

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
    """Return how many of the free submissions belong to each part, if others are in train already."""
    test = round(SHARES["test"] * free)
    dev = round(SHARES["dev"] * free)
    train = free - test - dev
    # Submissions that must be in train take the place of others, which dev and test need more.
    spare = min(train, in_train)
    more_test = math.ceil(spare * SHARES["test"] / (SHARES["test"] + SHARES["dev"]))
    return {"train": train - spare, "dev": dev + spare - more_test, "test": test + more_test}
