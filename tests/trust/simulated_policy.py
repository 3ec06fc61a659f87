"""Simulated training runs: what a policy writes, what its judge thinks of it, and what a second judge does.

The criteria are independent given the prompt, and prompts differ in difficulty, so that the completions of a group
depend on each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rubric_integrations.trust import RewardReport
from rubric_integrations.trust.reward_figures import Answer, RolloutScores, make_columns
from rubric_integrations.trust.reward_health import PairedScores, SecondGrades, measure_rewards

WEIGHTS = {"right": 5.0, "sourced": 3.0, "clear": 2.0, "rude": -4.0}
RATES = {"right": 0.4, "sourced": 0.3, "clear": 0.6, "rude": 0.9}
"""How often a completion of the first step gets the score 1 for a criterion."""

RateOf = Callable[[str, float], float]
"""Returns the rate of a criterion at a progress from 0, the first step, to 1, the last one."""


@dataclass(frozen=True)
class Policy:
    """How a policy behaves in the course of its training.

    Attributes:
        rate: The rate of a criterion in the judge's eyes.
        second_rate: The rate in the eyes of the second judge, if the judge and it do not agree; None where they do.
        words: The mean number of words at a progress.
        words_pay: How much the reward depends on the length of an answer.
        abstentions: The rate of abstentions on a criterion.
    """

    rate: RateOf = lambda name, progress: RATES[name]
    second_rate: RateOf | None = None
    words: Callable[[float], float] = lambda progress: 120.0
    words_pay: float = 0.0
    abstentions: RateOf = lambda name, progress: 0.05


def simulate(
    seed: int,
    policy: Policy,
    *,
    steps: int = 60,
    groups: int = 4,
    size: int = 4,
    prompts: int | None = None,
    sample: int = 200,
) -> RewardReport:
    """Simulate a run and return its report.

    Args:
        seed: The seed.
        policy: The policy.
        steps: The number of steps.
        groups: The number of prompts of each step.
        size: The number of completions of each prompt.
        prompts: The number of prompts in the dataset; None for a new one each time.
        sample: The number of completions that the second judge grades.
    """
    rng = random.Random(seed)
    difficulty: dict[str, float] = {}
    completions: list[RolloutScores] = []
    second: list[dict[str, float]] = []
    for step in range(steps):
        progress = step / max(1, steps - 1)
        for group in range(groups):
            prompt = f"{step}-{group}" if prompts is None else str(rng.randrange(prompts))
            ease = difficulty.setdefault(prompt, rng.uniform(-0.2, 0.2))
            for _ in range(size):
                scores, others = answers_of(rng, policy, progress, ease)
                second.append(others)
                completions.append(completion_of(rng, policy, len(completions), step, prompt, scores, progress))
    chosen = rng.sample(range(len(completions)), min(sample, len(completions)))
    pairs = {
        number: {
            (name, name): PairedScores(answer.score, second[number][name], answer.weight)
            for (name, _), answer in completions[number].answers.items()
            if answer.score is not None
        }
        for number in chosen
    }
    return measure_rewards(completions, make_columns(completions), SecondGrades(len(chosen), pairs))


def answers_of(
    rng: random.Random, policy: Policy, progress: float, ease: float
) -> tuple[dict[str, float | None], dict[str, float]]:
    """Return the scores of a completion by the judge, and by the second one, who errs in a tenth of the cases."""
    scores: dict[str, float | None] = {}
    others: dict[str, float] = {}
    for name in WEIGHTS:
        draw = rng.random()
        score = float(draw < min(1.0, policy.rate(name, progress) + ease))
        true = score if policy.second_rate is None else float(draw < policy.second_rate(name, progress) + ease)
        others[name] = 1 - true if rng.random() < 0.1 else true
        scores[name] = None if rng.random() < policy.abstentions(name, progress) else score
    return scores, others


def completion_of(
    rng: random.Random,
    policy: Policy,
    number: int,
    step: int,
    prompt: str,
    scores: Mapping[str, float | None],
    progress: float,
) -> RolloutScores:
    """Return a completion with its reward, of which a part may depend on its length."""
    words = round(policy.words(progress) * rng.lognormvariate(0, 0.4))
    decided = {name: score for name, score in scores.items() if score is not None}
    total = sum(abs(WEIGHTS[name]) for name in decided)
    reward = sum(abs(WEIGHTS[name]) * score for name, score in decided.items()) / total if total else None
    if reward is not None and policy.words_pay:
        reward = (1 - policy.words_pay) * reward + policy.words_pay * min(1.0, words / 600)
    answers = {(name, name): Answer(score, WEIGHTS[name]) for name, score in scores.items()}
    return RolloutScores(number, step, prompt, reward, words, total / sum(map(abs, WEIGHTS.values())), False, answers)
