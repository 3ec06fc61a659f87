"""The noise of a judge: measured on fixed texts, and taken into account by GEPA's acceptance criterion."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations, product
from math import ceil
from typing import Any

import dspy
import numpy as np
import pytest
from dspy.teleprompt.gepa.gepa import GEPA
from gepa.proposer.base import CandidateProposal
from gepa.strategies.acceptance import AcceptanceCriterion, StrictImprovementAcceptance

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.dspy import JudgeNoise, NoiseAwareAcceptance, RubricMetric
from rubric_integrations.judges import Question
from rubric_integrations.scoring import Judgment
from rubric_integrations.trust import judge_noise, noise
from rubric_integrations.trust.certification import lower_bound
from tests.dspy.programs import DEVSET, Student, metric_at, task_lm
from tests.openai_server import OpenAIServer, Reply

EIGHT = Rubric([Criterion(name=f"k{i}", requirement=f"requirement {i}") for i in range(8)])
PAIRS = [(DEVSET[0], dspy.Prediction(answer=f"text {i}")) for i in range(60)]


class FlippingJudge:
    """Answers MET for the first `met` criteria, and the opposite with a probability that each criterion has."""

    def __init__(self, *flip_rates: float, met: int = 6):
        self.rates, self.met, self.random = flip_rates, met, random.Random(7)

    async def judge(self, question: Question) -> Judgment:
        number = int(question.criterion.requirement.split()[-1])
        met = (number < self.met) != (self.random.random() < self.rates[number % len(self.rates)])
        return Judgment(verdict="MET" if met else "UNMET", value=float(met))


@pytest.mark.statistics
def test_noise_of_a_flipping_judge_equals_its_flip_rates_and_the_deviation_by_hand() -> None:
    judge = FlippingJudge(0.0, 0.05, 0.2)
    metric = RubricMetric(EIGHT, judge=judge)
    noise = metric.noise(PAIRS, repeats=15)
    assert [len(text) for text in noise.scores] == [15] * 60
    for number in range(8):
        assert noise.flip_rates[f"k{number}"] == pytest.approx(judge.rates[number % 3], abs=0.02)
    # The variance of a sum of independent answers, each worth 1/8: 3 never flip, 3 at 5 %, 2 at 20 %.
    assert noise.score_sd == pytest.approx(((3 * 0.05 * 0.95 + 2 * 0.2 * 0.8) ** 0.5) / 8, rel=0.05)
    assert noise.program_sd < 0.01  # all texts are equally good
    assert metric.summary()["gradings"] == 60 * 15


def test_noise_of_a_steady_judge_is_zero_and_the_programs_deviation_remains() -> None:
    rubric = Rubric.from_dict([{"requirement": "brief", "check": {"max_words": 2}}])
    texts = [dspy.Prediction(answer=answer) for answer in ("one", "one two", "one two three", "one two three four")]
    noise = RubricMetric(rubric, judge="offline").noise([(DEVSET[0], text) for text in texts], repeats=2)
    scores = ((1.0, 1.0), (1.0, 1.0), (0.0, 0.0), (0.0, 0.0))
    assert noise == JudgeNoise(scores=scores, flip_rates={"c1": 0.0}, score_sd=0.0, program_sd=(1 / 3) ** 0.5)


def test_noise_uses_neither_the_metrics_cache_nor_dspys(server: OpenAIServer) -> None:
    server.script = lambda call: Reply("MET" if call.number % 2 else "UNMET")
    lm = dspy.LM("openai/noise-not-cached", api_base=server.url, api_key="none", cache=True)
    metric = RubricMetric(Rubric([Criterion(requirement="a")]), judge=lm)
    metric(*PAIRS[0])
    noise = metric.noise(PAIRS[:1], repeats=4)
    assert len(server.calls) == 5
    assert noise.flip_rates == {"c1": 0.5}
    assert metric.summary()["calls"] == 5


def test_noise_without_repeats_or_texts_is_refused() -> None:
    metric = RubricMetric(EIGHT, judge=FlippingJudge(0.0))
    with pytest.raises(ValueError, match="`repeats` must be at least 2, got 1"):
        metric.noise(PAIRS, repeats=1)
    with pytest.raises(ValueError, match="nothing to grade"):
        metric.noise([(DEVSET[0], None)])


def test_noise_of_a_judge_that_fails_raises(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=401)
    with pytest.raises(JudgeError):
        metric_at(server, EIGHT).noise(PAIRS[:2], repeats=2)


@pytest.mark.parametrize(
    ("scores", "rate", "message"),
    [
        ([[0.5]], 0.05, "two scores"),
        ([], 0.05, "one text"),
        ([[0.5, 0.5]], 0.5, "`false_accept_rate`"),
        ([[0.5, 0.5]] * 30, 0.0001, "at least 0.001 and below 0.5, got 0.0001"),
        ([[0.5, 0.5]] * 29, 0.05, "on 29 texts, and for a minibatch of 3 .* takes 30: measure it on more texts"),
    ],
)
def test_acceptance_without_repeats_or_with_a_rate_out_of_range_is_refused(
    scores: list[list[float]], rate: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        NoiseAwareAcceptance(scores, rate)


@pytest.mark.parametrize(
    ("progress", "terminal", "shown"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_noise_on_a_terminal_shows_a_progress_bar_unless_switched_off(
    progress: bool, terminal: bool, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1" if terminal else "0")
    monkeypatch.setenv("TERM", "xterm")
    RubricMetric(EIGHT, judge=FlippingJudge(0.0)).noise(PAIRS[:3], repeats=4, progress=progress)
    output = capsys.readouterr()
    assert ("12/12" in output.err) is shown
    assert output.out == ""


def acceptance_rate(acceptance: Any, gain: int, minibatch: int, flips: Sequence[float], count: int = 500) -> float:
    """The share of simulated candidates that are accepted, each of which meets `gain` criteria more than its parent."""
    generator = np.random.default_rng(11)

    def simulate_scores(met: int) -> list[list[float]]:
        answers = (np.arange(8) < met) != (generator.random((count, minibatch, 8)) < np.array(flips))
        return answers.mean(axis=2).tolist()

    pairs = zip(simulate_scores(6), simulate_scores(6 + gain), strict=True)
    proposals: list[Any] = [
        CandidateProposal({}, [0], subsample_scores_before=before, subsample_scores_after=after)
        for before, after in pairs
    ]
    return sum(acceptance.should_accept(proposal, None) for proposal in proposals) / count


@pytest.mark.statistics
def test_acceptance_of_candidates_that_are_no_better_stays_below_the_rate(record_property: Any) -> None:
    flips = [0.05] * 8
    aware = RubricMetric(EIGHT, judge=FlippingJudge(*flips)).noise(PAIRS, repeats=10).acceptance(0.05)
    assert isinstance(aware, AcceptanceCriterion)
    strict = StrictImprovementAcceptance()
    for minibatch, power in ((3, 0.25), (8, 0.75)):
        for name, acceptance, most in (("GEPA's own", strict, 1.0), ("noise-aware", aware, 0.05)):
            equal, better = (acceptance_rate(acceptance, gain, minibatch, flips) for gain in (0, 1))
            shown = (
                f"accepted by {name}, minibatch of {minibatch}: {equal:.1%} no better, {better:.1%} better by 1 of 8"
            )
            record_property("shown", shown)
            assert equal <= most
            assert better > power
    assert acceptance_rate(strict, 0, 3, flips) > 0.3


@pytest.mark.statistics
@pytest.mark.parametrize("minibatch", [1, 3, 5])
def test_acceptance_with_one_noisy_criterion_stays_below_the_rate_unlike_a_normal_approximation(minibatch: int) -> None:
    flips = [0.05] + [0.0] * 7
    aware = RubricMetric(EIGHT, judge=FlippingJudge(*flips)).noise(PAIRS, repeats=5).acceptance(0.05)
    assert acceptance_rate(aware, 0, minibatch, flips) <= 0.05


Noise = Callable[[np.random.Generator, int, int], np.ndarray]
"""Draws the scores of texts by text and repetition."""


def flipped(criteria: int, rate: float, noisy: float) -> Noise:
    """Scores of a judge that contradicts itself on all texts, or on a share of them."""

    def draw(rng: np.random.Generator, texts: int, repeats: int) -> np.ndarray:
        flips = (rng.random((texts, repeats, criteria)) < rate) & (rng.random((texts, 1, 1)) < noisy)
        return ((rng.random((texts, 1, criteria)) < 0.7) ^ flips).mean(axis=2)

    return draw


NOISES: dict[str, Noise] = {
    "normal": lambda rng, texts, repeats: rng.normal(0.5, 0.1, (texts, repeats)),
    "skewed": lambda rng, texts, repeats: rng.lognormal(-3, 1.5, (texts, repeats)),
    "heavy tails": lambda rng, texts, repeats: rng.standard_t(2, (texts, repeats)),
    "other noise on each text": lambda rng, texts, repeats: (
        rng.normal(0, 1, (texts, repeats)) * rng.lognormal(0, 1.5, (texts, 1))
    ),
    "0 or 1": flipped(1, 0.1, 1.0),
    "8 criteria": flipped(8, 0.05, 1.0),
    "a tenth of the texts": flipped(8, 0.5, 0.1),
}


@pytest.mark.statistics
@pytest.mark.parametrize("shape", NOISES)
@pytest.mark.parametrize(("rate", "minibatch"), [(0.01, 1), (0.05, 3), (0.05, 8), (0.1, 3)])
@pytest.mark.parametrize(("times", "repeats"), [(1, 2), (3, 5)])
def test_candidate_that_is_no_better_is_accepted_in_at_most_the_rate_of_minibatches(
    shape: str, rate: float, minibatch: int, times: int, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fewest texts, or three times as many; the former rule accepted .057 to .067 of 5 %."""
    monkeypatch.setattr(judge_noise, "_PARTS", 2)
    draw, texts = NOISES[shape], times * ceil(minibatch / (2 * rate))
    accepted, seeds, candidates = 0, 200, 4
    for seed in range(seeds):
        rng = np.random.default_rng([seed, texts, minibatch, repeats])
        acceptance = NoiseAwareAcceptance(draw(rng, texts, repeats).tolist(), rate, minibatch)
        for _ in range(candidates):
            before, after = draw(rng, minibatch, 2).T.tolist()
            accepted += acceptance.p_value(before, after) <= rate
    assert lower_bound(accepted, seeds * candidates, 0.001) <= rate


@pytest.mark.parametrize(("rate", "minibatch"), [(0.05, 1), (0.05, 3), (0.1, 8), (0.2, 5)])
def test_gain_on_one_text_is_accepted_from_the_fewest_texts_on(rate: float, minibatch: int) -> None:
    fewest, before = ceil(minibatch / (2 * rate)), [0.0] * minibatch
    steady = NoiseAwareAcceptance([[0.5, 0.5]] * fewest, rate, minibatch)
    assert steady.p_value(before, [1.0, *before[1:]]) <= rate
    with pytest.raises(ValueError, match=f"takes {fewest}"):
        NoiseAwareAcceptance([[0.5, 0.5]] * (fewest - 1), rate, minibatch)


def test_p_value_is_the_share_of_the_exchanges_with_at_least_the_gain() -> None:
    """All choices of two of four differences with all signs, as the definition has it."""
    scores, before, after = [[0.5, 0.4], [0.1, 0.1]], [0.2, 0.3], [0.4, 0.35]
    differences = [0.1, 0.0, 0.2, 0.05]
    sums = [
        one * first + other * second
        for first, second in combinations(differences, 2)
        for one, other in product((-1, 1), repeat=2)
    ]
    exact = float(np.mean([value >= 0.25 - 1e-9 for value in sums]))
    assert NoiseAwareAcceptance(scores, 0.49, 1).p_value(before, after) == pytest.approx(exact, abs=0.01)
    assert NoiseAwareAcceptance(scores, 0.49, 1).p_value(after, before) > 0.9


def test_steady_judge_needs_no_larger_gain_and_a_rejection_names_its_reason() -> None:
    steady = NoiseAwareAcceptance([[0.5, 0.5]] * 30)
    for before, after, accepted in [([0.5], [0.5], False), ([0.1 + 0.2], [0.3], False), ([0.5], [0.51], True)]:
        proposal: Any = CandidateProposal({}, [0], subsample_scores_before=before, subsample_scores_after=after)
        assert steady.should_accept(proposal, None) is accepted
        assert "noise" in steady.reject_reason(proposal, None)
    unevaluated: Any = CandidateProposal({}, [0])
    assert not steady.should_accept(unevaluated, None)
    assert "not evaluated" in steady.reject_reason(unevaluated, None)


@pytest.mark.optimizers
def test_gepa_with_the_criterion_accepts_no_candidate_that_is_no_better() -> None:
    """Every candidate is judged at random: GEPA's default accepts some, the noise-aware criterion none."""

    def count_accepted(**settings: Any) -> int:
        metric = RubricMetric(EIGHT, judge=FlippingJudge(0.05), cache_size=0)
        optimizer = GEPA(
            metric=metric, max_metric_calls=120, reflection_lm=task_lm(), num_threads=1, track_stats=True,
            gepa_kwargs=settings,
        )  # fmt: skip
        with dspy.context(lm=task_lm()):
            compiled: Any = optimizer.compile(Student(), trainset=DEVSET, valset=DEVSET)
        return len(compiled.detailed_results.candidates) - 1

    noise = RubricMetric(EIGHT, judge=FlippingJudge(0.05)).noise(PAIRS, repeats=5)
    assert count_accepted() > 0
    assert count_accepted(acceptance_criterion=noise.acceptance(0.025)) == 0


def test_texts_in_groups_are_accepted_by_chance_as_rarely_as_independent_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_noise, "_PARTS", 1)
    rng, accepted = np.random.default_rng(0), list[float]()
    for _ in range(60):
        # Five groups of ten texts, in some of which the judge guesses: the intraclass correlation is .3.
        rates = np.repeat(rng.beta(0.8 * 7 / 3, 0.2 * 7 / 3, 5), 10)
        acceptance = NoiseAwareAcceptance(
            (rng.random((50, 3, 4)) < rates[:, None, None]).mean(axis=2).tolist(), 0.05, 5
        )
        others = rng.beta(0.8 * 7 / 3, 0.2 * 7 / 3, (20, 5, 1))
        first, second = ((rng.random((20, 5, 4)) < others).mean(axis=2) for _ in range(2))
        pairs = zip(first.tolist(), second.tolist(), strict=True)
        accepted.append(float(np.mean([acceptance.p_value(*pair) <= 0.05 for pair in pairs])))
    assert np.mean(accepted) <= 0.05


def test_noise_of_a_judge_is_measured_on_the_rows_of_any_run() -> None:
    judge = FlippingJudge(0.0, 1.0, met=8)
    run = list(grade_many([f"text {number}" for number in range(30)], EIGHT, PerCriterionGrader(judge)))
    measured = noise(run, PerCriterionGrader(judge), sample=10, repeats=4)
    assert [len(text) for text in measured.scores] == [4] * 10
    assert measured.flip_rates == {f"k{number}": 0.0 for number in range(8)}
    assert (measured.score_sd, set(measured.scores)) == (0.0, {(0.5,) * 4})
    with pytest.raises(ValueError, match="`repeats` must be at least 2"):
        noise(run, PerCriterionGrader(judge), repeats=1)
    with pytest.raises(ValueError, match="the measurement was stopped"):
        noise(run, PerCriterionGrader(judge), max_calls=20)
