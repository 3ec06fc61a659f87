"""The reward in real steps of `GRPOTrainer` and `RLOOTrainer`, and the six responses as the trainer gets them.

The completions of the model of random weights are noise. The judge goes by them all the same: it fails on the first
completion of each step, and otherwise by the number of their letters.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import LMJudge
from rubric_integrations.runs import read_run
from rubric_integrations.training import JudgeOutage, RubricReward
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader
from tests.hosts.trl.models import make_model, make_tokenizer
from tests.openai_server import Call, OpenAIServer, Reply

torch: Any = pytest.importorskip("torch", reason="TRL is not installed: make test-training")
trl: Any = pytest.importorskip("trl", reason="TRL is not installed: make test-training")
datasets: Any = pytest.importorskip("datasets", reason="TRL is not installed: make test-training")

pytestmark = pytest.mark.timeout(300)

LETTERS = Rubric(
    [
        Criterion(name="even", requirement="Has an even number of letters", weight=2),
        Criterion(name="long", requirement="Has more than 14 characters", weight=-1),
    ]
)


class LetterJudge:
    """Answers by the letters of a completion, and fails on the first completion of a step."""

    def __init__(self) -> None:
        self.failing: str | None = None
        self.fails_always = False

    async def __call__(self, system: str, user: str) -> str:
        text = re.findall(r"<data [^>]+>\n(.*?)\n</data", user, re.DOTALL)[-2]
        if self.fails_always or self.failing in (None, text):
            self.failing = text
            return "I would rather not answer."
        met = len([c for c in text if c.isalpha()]) % 2 == 0 if "even number" in user else len(text) > 14
        return json.dumps({"explanation": "counted", "verdict": "MET" if met else "UNMET"})


class Steps:
    """Records the rewards and the advantages of each step of a trainer, and begins a new step of the judge."""

    def __init__(self, trainer: Any, judge: LetterJudge):
        self.rewards: list[list[float]] = []
        self.advantages: list[list[float]] = []
        compute, score = trainer._calculate_rewards, trainer._generate_and_score_completions

        def record_rewards(*args: Any, **kwargs: Any) -> Any:
            judge.failing = None
            rewards = compute(*args, **kwargs)
            self.rewards.append(rewards[:, 0].tolist())
            return rewards

        def record_advantages(*args: Any, **kwargs: Any) -> Any:
            output = score(*args, **kwargs)
            self.advantages.append(output["advantages"].tolist())
            return output

        trainer._calculate_rewards = record_rewards
        trainer._generate_and_score_completions = record_advantages

    def check_and_print(self, title: str) -> list[int]:
        """Check that the failed completions of each step, the first among them, were left out; return their numbers."""
        print(f"\ntrl {trl.__version__}, {title}")
        counts: list[int] = []
        for step, (rewards, advantages) in enumerate(zip(self.rewards, self.advantages, strict=True)):
            print(f"step {step}: rewards    {[round(value, 2) for value in rewards]}")
            print(f"        advantages {[round(value, 2) for value in advantages]}")
            failed = [math.isnan(value) for value in rewards]
            assert failed[0]
            assert [value for value, is_failed in zip(advantages, failed, strict=True) if is_failed] == [0.0] * sum(
                failed
            )
            for group in (slice(0, 4), slice(4, 8)):
                assert _signs(rewards[group]) == [
                    math.copysign(1, value) if value else 0 for value in advantages[group]
                ]
            counts.append(sum(failed))
        return counts


def _signs(rewards: list[float]) -> list[float]:
    """Return for each reward of a group whether it is above or below the mean of those that are not NaN."""
    known = [value for value in rewards if not math.isnan(value)]
    differences = [0.0 if math.isnan(value) else value - math.fsum(known) / len(known) for value in rewards]
    return [math.copysign(1, value) if abs(value) > 1e-6 else 0 for value in differences]


def settings(tmp_path: Path, kind: str, **changes: Any) -> Any:
    return getattr(trl, f"{kind}Config")(
        output_dir=str(tmp_path), num_generations=4, max_completion_length=16,
        logging_steps=1, learning_rate=0.1, temperature=1.0, use_cpu=True, bf16=False, report_to="none",
        save_strategy="no", disable_tqdm=True, seed=1, log_completions=False,
        **{"max_steps": 2, "per_device_train_batch_size": 8, **changes},
    )  # fmt: skip


def prompts(conversational: bool) -> Any:
    texts = [f"{number} x 7?" for number in range(8)]
    rows = [[{"role": "user", "content": text}] for text in texts] if conversational else texts
    return datasets.Dataset.from_dict({"prompt": rows, "reference": ["42"] * 8})


def make_trainer(tmp_path: Path, kind: str, reward: Any, conversational: bool = False, **changes: Any) -> Any:
    tokenizer = make_tokenizer()
    return getattr(trl, f"{kind}Trainer")(
        model=make_model(tokenizer),
        reward_funcs=reward,
        args=settings(tmp_path, kind, **changes),
        train_dataset=prompts(conversational),
        processing_class=tokenizer,
    )


def weights_of(trainer: Any) -> Any:
    return torch.cat([parameter.detach().flatten().clone() for parameter in trainer.model.parameters()])


@pytest.mark.parametrize("conversational", [False, True], ids=["standard", "conversational"])
def test_grpo_step_leaves_the_failed_completion_out_and_moves_the_weights(tmp_path: Path, conversational: bool) -> None:
    judge = LetterJudge()
    reward = RubricReward(LETTERS, grader=PerCriterionGrader(judge, max_retries=0), record=tmp_path / "rollouts.jsonl")
    trainer = make_trainer(tmp_path, "GRPO", reward, conversational)
    steps, before = Steps(trainer, judge), weights_of(trainer)
    trainer.train()
    moved = (weights_of(trainer) - before).abs().max().item()
    failed = steps.check_and_print(f"GRPO, {'conversational' if conversational else 'standard'} format")
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    print({name: round(value, 3) for name, value in logs[-1].items() if name.startswith(("reward", "rubric"))})
    print(f"largest change of a weight: {moved:.4f}")
    assert len(failed) == len(logs) == 2
    assert [entry["rubric/failed"] for entry in logs] == pytest.approx([count / 8 for count in failed])
    assert {"rewards/rubric/mean", "rubric/empty", "rubric/coverage", "rubric/even", "rubric/long"} <= logs[0].keys()
    assert {value for rewards in steps.rewards for value in rewards if not math.isnan(value)} <= {0.0, 0.5, 1.0}
    assert moved > 0
    rows = read_run(tmp_path / "rollouts.jsonl").rows
    assert [row.is_graded for row in rows] == [not math.isnan(value) for rewards in steps.rewards for value in rewards]


def test_rloo_takes_the_same_reward(tmp_path: Path) -> None:
    judge = LetterJudge()
    reward = RubricReward(LETTERS, grader=PerCriterionGrader(judge, max_retries=0, normalize=False))
    # Without the penalty for the distance to a reference model, which would be read from a folder.
    trainer = make_trainer(tmp_path, "RLOO", reward, beta=0.0)
    steps, before = Steps(trainer, judge), weights_of(trainer)
    trainer.train()
    assert len(steps.check_and_print("RLOO, weighted sums")) == 2
    assert min(value for value in steps.rewards[0] if not math.isnan(value)) < 0
    assert weights_of(trainer).ne(before).any()


def test_outage_ends_the_training_with_its_reason(tmp_path: Path) -> None:
    judge = LetterJudge()
    judge.fails_always = True
    reward = RubricReward(LETTERS, grader=PerCriterionGrader(judge, max_retries=0))
    with pytest.raises(JudgeOutage, match="would rather not answer"):
        make_trainer(tmp_path, "GRPO", reward).train()


def test_six_responses_arrive_as_five_rewards_and_one_that_is_left_out(tmp_path: Path) -> None:
    """The trainer's own computation calls the reward, on the trainer's event loop."""
    trainer = make_trainer(tmp_path, "GRPO", RubricReward(RUBRIC, grader=make_grader()))
    six = [row.response for row in ROWS]
    inputs = [{"prompt": QUERY}] * 6
    rewards = trainer._calculate_rewards(inputs, [QUERY] * 6, six, [[1]] * 6)[:, 0].tolist()
    columns = dict(trainer._pending_extra_logs)
    metrics = {name: values[0] for name, values in trainer._pending_metrics.items()}
    print(f"\ntrl {trl.__version__}")
    for place, row in enumerate(ROWS):
        scores = {name.split("/")[1]: columns[name][place] for name in sorted(columns) if name != "rubric/error"}
        print(f"{row.id:13} reward {rewards[place]:5.2f}  {scores}  {columns['rubric/error'][place] or ''}")
    print({name: round(value, 2) for name, value in sorted(metrics.items())})
    expected = [math.nan if row.score is None else row.score for row in ROWS]
    assert rewards == pytest.approx(expected, nan_ok=True)
    assert columns["rubric/right"] == [1.0, 1.0, 0.0, 0.0, None, None]
    assert "would rather not answer" in columns["rubric/error"][5]
    assert metrics["rubric/failed"] == pytest.approx(1 / 6)


def test_trainer_takes_the_method_of_a_reward_too(tmp_path: Path) -> None:
    """That is the way for versions before 1.14 on Python 3.11."""
    reward = RubricReward(RUBRIC, grader=make_grader())
    trainer = make_trainer(tmp_path, "GRPO", reward.__call__)
    rewards = trainer._calculate_rewards([{"prompt": QUERY}], [QUERY], [ROWS[0].response], [[1]])
    assert rewards.tolist() == [[1.0]]
    assert inspect.iscoroutinefunction(reward.__call__)


def test_refused_completions_end_no_training_and_the_limit_on_calls_applies(tmp_path: Path) -> None:
    rubric = Rubric.from_dict([{"requirement": f"Fulfils rule {number}"} for number in range(5)])

    def answer(call: Call) -> Reply:
        text = re.findall(r"<data [^>]+>\n(.*?)\n</data", call.prompt, re.DOTALL)[-2]
        refused = sum(text.encode()) % 4 == 0
        return Reply(text="I'm sorry, I can't help with that.", delay=0.01) if refused else Reply(delay=0.01)

    with OpenAIServer(answer) as server:
        judge = LMJudge("openai/mock", api_base=server.url)
        reward = RubricReward(rubric, grader=PerCriterionGrader(judge, limits=CallLimits(max_concurrency=2)))
        trainer = make_trainer(tmp_path, "GRPO", reward, max_steps=4)
        trainer.train()
        logs = [entry for entry in trainer.state.log_history if "reward" in entry]
        failed = [entry["rubric/failed"] for entry in logs]
        print(f"shares of refused completions by step: {failed}; at most {server.peak} calls at the same time")
    assert len(logs) == 4
    assert 0 < sum(failed) < 4
    assert server.peak == 2
