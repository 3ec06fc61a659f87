"""`reward_report` on the files that `RubricReward` writes, with a second judge, and on rows of other kinds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rubric_integrations import Check, Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.runs import Graded, GradedRow, RunFile, RunFileError
from rubric_integrations.training import RubricReward
from rubric_integrations.trust import RewardReport, reward_report
from rubric_integrations.trust.reward_health import _draw  # pyright: ignore[reportPrivateUsage]
from tests.fakes import FakeJudge

RUBRIC = Rubric(
    [
        Criterion(name="right", requirement="Gives the right figure", weight=2),
        Criterion(name="sourced", requirement="Names a source", weight=1),
        Criterion(name="rude", requirement="Is rude", weight=-1),
        Criterion(name="brief", requirement="Is brief", weight=1, check=Check(max_words=30)),
    ]
)
PROMPTS = [f"How high was margin {number}?" for number in range(6)]


def by_words(question: Question) -> str:
    """Judge by words; a source is anything that claims to be one."""
    text = question.submission.response
    if "unreadable" in text:
        raise ValueError("the reply is not JSON")
    words = {"Gives the right figure": "8.4%", "Names a source": "source", "Is rude": "fool"}
    word = words[question.criterion.requirement]
    return "CANNOT_ASSESS" if f"unclear {word}" in text else "MET" if word in text else "UNMET"


def strictly(question: Question) -> str:
    """Judge as `by_words`, except that a source has a name."""
    if question.criterion.requirement == "Names a source":
        return "MET" if "source: the annual report" in question.submission.response else "UNMET"
    return by_words(question)


def completion(step: int, number: int) -> str:
    """Return what a policy writes that learns to claim sources without a name from step 15 on."""
    figure = "8.4%" if (step * 7 + number * 5) % 3 else "9%"
    if step >= 15:
        return f"It was {figure}, source: trustworthy people."
    return f"It was {figure}" + (", source: the annual report." if (step + number) % 4 == 0 else ".")


async def record(path: Path, steps: int = 30, **settings: Any) -> Path:
    """Write the record of a training run by the real reward function."""
    reward = RubricReward(RUBRIC, FakeJudge(by_words), record=path, **settings)
    for step in range(steps):
        prompts = [prompt for prompt in PROMPTS[step % 3 :: 3] for _ in range(3)]
        await reward(
            prompts=prompts,
            completions=[completion(step, number) for number in range(len(prompts))],
            trainer_state=SimpleNamespace(global_step=step),
        )
    return path


def graded(responses: Sequence[tuple[object, str]], **metadata: Any) -> list[Graded]:
    """Grade responses with a step each."""
    rows = [{"response": text, "metadata": {"step": step, **metadata}} for step, text in responses]
    return list(grade_many(rows, RUBRIC, PerCriterionGrader(FakeJudge(by_words), max_retries=0)))


async def test_record_of_a_reward_is_compared_with_a_second_judge_who_is_not_deceived(tmp_path: Path) -> None:
    second = FakeJudge(strictly)
    report = reward_report(await record(tmp_path / "rollouts.jsonl"), second=second, sample=120)
    assert report.completions == 180
    assert report.second is not None
    assert (report.second.sampled, report.second.compared, len(second.questions)) == (120, 120, 360)
    assert report.signs[0].startswith("the second judge does not follow")
    assert any(sign.startswith("on 'sourced' the second judge does not follow") for sign in report.signs)
    assert not any("on 'right'" in sign for sign in report.signs)
    assert report.second.criteria.keys() == {"right", "sourced", "rude"}, "code needs no second judge"
    late = [row for row in report.steps if row.first >= 16]
    assert all(row.judge is not None and row.second is not None and row.judge > row.second for row in late)


async def test_criteria_have_their_trend_share_of_the_gain_and_saturation(tmp_path: Path) -> None:
    report = reward_report(await record(tmp_path / "rollouts.jsonl"))
    sourced, rude = report.criteria["sourced"], report.criteria["rude"]
    assert sourced.score.last == 1
    assert sourced.saturated == "fulfilled"
    assert sourced.explains is not None
    assert sourced.explains > 0.9
    assert (rude.saturated, rude.score.first, rude.weight) == ("fulfilled", 1, -1), "a penalty that is not committed"
    assert report.signs
    assert report.signs[0].startswith("'sourced' carries the gain")
    assert sum(part for row in report.criteria.values() if (part := row.explains)) == pytest.approx(1)


async def test_steps_are_joined_to_twenty_at_most_and_cover_all_completions(tmp_path: Path) -> None:
    report = reward_report(await record(tmp_path / "rollouts.jsonl"))
    assert len(report.steps) == 20
    assert (report.steps[0].first, report.steps[-1].last) == (0, 29)
    assert sum(row.completions for row in report.steps) == 180
    assert all(row.reward_error is not None for row in report.steps)


async def test_report_becomes_text_json_html_and_a_data_frame(tmp_path: Path) -> None:
    report = reward_report(await record(tmp_path / "rollouts.jsonl"), second=FakeJudge(strictly), sample=30)
    again = RewardReport.model_validate_json(report.model_dump_json())
    assert again == report
    assert "NaN" not in report.model_dump_json()
    assert "the gap between them" in report.summary()
    assert "<table>" in report._repr_html_()  # pyright: ignore[reportPrivateUsage]
    frame = report.to_dataframe()
    assert frame["first"].tolist()[0] == 0
    assert "criterion.sourced" in frame.columns


async def test_files_of_two_processes_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await record(tmp_path / "rollouts.jsonl", steps=6)
    monkeypatch.setenv("RANK", "1")
    await record(tmp_path / "rollouts.jsonl", steps=6)
    report = reward_report([first, tmp_path / "rollouts.rank1.jsonl"], second=FakeJudge(strictly), sample=50)
    assert report.completions == 72
    assert report.second is not None
    assert report.second.compared == 50
    assert report.steps[0].completions == 12


async def test_record_whose_last_line_was_cut_off_is_read_without_it(tmp_path: Path) -> None:
    path = await record(tmp_path / "rollouts.jsonl", steps=6)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.warns(UserWarning, match="cut off"):
        assert reward_report(path).completions == 35


async def test_sample_is_even_over_the_steps_and_equal_for_equal_seeds(tmp_path: Path) -> None:
    path = await record(tmp_path / "rollouts.jsonl")

    def sampled(seed: int) -> list[str]:
        second = FakeJudge(strictly)
        reward_report(path, second=second, sample=60, seed=seed)
        return sorted(question.submission.response for question in second.questions)

    assert sampled(0) == sampled(0)
    assert sampled(0) != sampled(1)
    chosen = [number for number, _ in zip(_draw(np.repeat(np.arange(30), 6), 0), range(60), strict=False)]
    assert Counter(number // 6 for number in chosen) == dict.fromkeys(range(30), 2)
    assert sorted(number // 6 // 10 for number in chosen[:8]) == [0, 0, 0, 1, 1, 2, 2, 2], "also where it ends early"


async def test_second_judge_that_fails_is_no_number_and_is_reported(tmp_path: Path) -> None:
    path = await record(tmp_path / "rollouts.jsonl")
    down = PerCriterionGrader(FakeJudge(lambda _: ValueError("down")), max_retries=0)
    report = reward_report(path, second=down, sample=20)
    assert report.second is not None
    assert report.second.compared == 0
    assert report.second.score.gap.change.value is None
    assert all(row.second is None for row in report.steps)
    assert any("the second judge" in warning for warning in report.warnings)
    assert not any("second judge" in sign for sign in report.signs)


async def test_second_judge_stops_at_its_limit_with_a_warning_and_a_sample_over_all_steps(tmp_path: Path) -> None:
    path = await record(tmp_path / "rollouts.jsonl")
    report = reward_report(path, second=FakeJudge(strictly), sample=100, max_cost=0.0, max_concurrency=1)
    assert report.second is not None
    assert report.second.compared < 100
    assert any("did not grade the whole sample" in warning for warning in report.warnings)


async def test_ledger_answers_the_second_report_without_a_call(tmp_path: Path) -> None:
    path = await record(tmp_path / "rollouts.jsonl", steps=6)
    scores: list[object] = []
    calls: list[int] = []
    for _ in range(2):
        second = FakeJudge(strictly, fingerprint="strict")
        report = reward_report(path, second=second, sample=20, ledger=str(tmp_path / "second.sqlite"))
        scores.append(report.second and report.second.score)
        calls.append(len(second.questions))
    assert calls[1] == 0 < calls[0]
    assert scores[0] == scores[1]


async def test_rubric_of_the_second_judge_is_used_where_it_is_passed(tmp_path: Path) -> None:
    path = await record(tmp_path / "rollouts.jsonl", steps=6)
    with_context = Rubric([RUBRIC.criteria[1].model_copy(update={"context": "The report is from 2024."})])
    second = FakeJudge(strictly)
    report = reward_report(path, second=second, rubric=with_context, sample=20)
    assert {question.criterion.context for question in second.questions} == {"The report is from 2024."}
    assert report.second is not None
    assert report.second.criteria.keys() == {"sourced"}


async def test_other_rubric_than_that_of_the_run_is_refused(tmp_path: Path) -> None:
    path = await record(tmp_path / "rollouts.jsonl", steps=3)
    other = Rubric([Criterion(requirement="Is rude", weight=1)])
    with pytest.raises(ValueError, match="no criterion in common"):
        reward_report(path, second=FakeJudge("MET"), rubric=other)


def test_rows_without_a_step_are_left_out_with_a_warning() -> None:
    rows = graded([(0, "8.4%"), (1, "9%"), (None, "8.4%"), ("soon", "8.4%"), (True, "9%"), (1.5, "9%")])
    report = reward_report(rows)
    assert report.completions == 2
    assert report.warnings[0].startswith("4 rows are left out")


def test_run_in_which_no_row_has_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="no row has a training step"):
        reward_report([*graded([(None, "8.4%")]), *graded([("NaN", "8.4%")])])
    with pytest.raises(ValueError, match="no row has a training step"):
        reward_report([])


def test_steps_as_texts_and_whole_floats_are_numbers() -> None:
    report = reward_report(graded([("10", "8.4%"), (" 9 ", "9%"), (2.0, "9%")]))
    assert [row.first for row in report.steps] == [2, 9, 10]


def test_steps_that_are_no_usable_numbers_are_no_steps() -> None:
    row = GradedRow("1", Submission(response="x"), None, None)
    steps = [float("nan"), float("inf"), 10**400, "1" * 5000, "", "\ud83d", [1], {"a": 1}, -(10**16)]
    rows = [row._replace(metadata={"step": step}) for step in steps]
    report = reward_report([*rows, row._replace(metadata={"step": 0, "group": ["a"], "reward": float("nan")})])
    assert report.completions == 1
    assert report.reward.first is None


def test_one_step_has_figures_and_neither_changes_nor_signs() -> None:
    report = reward_report(graded([(5, "8.4% source"), (5, "9%"), (5, "8.4%")] * 4))
    assert len(report.steps) == 1
    assert report.reward.change.value is None
    assert report.reward.last is None
    assert report.signs == ()
    assert "there is one step, so that nothing can be compared" in report.warnings
    assert report.summary()


def test_rows_without_groups_are_independent_and_have_no_length_correlation() -> None:
    report = reward_report(graded([(step, "8.4%" if step > 5 else "9%") for step in range(12) for _ in range(3)]))
    assert report.length_correlation.value is None
    assert report.equal_groups.first is None
    assert report.reward.change.low is not None
    assert any("no `group`" in warning for warning in report.warnings)


def test_run_in_which_every_grade_failed_has_no_numbers() -> None:
    report = reward_report(graded([(step, f"unreadable {step}") for step in range(12) for _ in range(2)], group="a"))
    assert report.reward.first is None
    assert report.failed.first == 1
    assert report.criteria == {}
    assert "no completion has a reward" in report.warnings
    assert json.loads(report.model_dump_json())["coverage"][0] is None
    with pytest.raises(ValueError, match="`second` can grade no completion"):
        reward_report(graded([(0, "unreadable")]), second=FakeJudge("MET"))


def test_judge_that_fails_more_often_is_a_sign() -> None:
    rows = [(step, f"unreadable {n}" if step > 15 and n % 2 else "8.4%") for step in range(24) for n in range(4)]
    assert any(sign.startswith("grades fail more often") for sign in reward_report(graded(rows)).signs)


def test_criteria_of_single_prompts_are_left_out_with_a_warning() -> None:
    rows = [
        {
            "response": "8.4%",
            "rubric": [{"name": "own", "requirement": f"Says {prompt}", "check": {"contains": "8.4%"}}],
            "metadata": {"step": step, "group": str(prompt)},
        }
        for step in range(6)
        for prompt in range(6)
    ]
    report = reward_report(grade_many(rows, None, PerCriterionGrader("offline")))
    assert report.criteria == {}
    assert any(warning.startswith("6 criteria are left out") for warning in report.warnings)


def test_texts_with_half_an_emoji_are_written_as_json() -> None:
    rubric = Rubric([Criterion(name="n", requirement="x\ud83d", weight=1)])
    rows = [{"response": "8.4%", "metadata": {"step": step, "group": "\ud83d"}} for step in range(3) for _ in range(3)]
    report = reward_report(
        grade_many(rows, rubric, PerCriterionGrader(FakeJudge("MET"))), second=FakeJudge("UNMET"), sample=3
    )
    assert RewardReport.model_validate_json(report.model_dump_json()) == report
    assert report.criteria["n"].requirement == "x\\ud83d"
    assert len(report.to_dataframe()) == 3


def test_rewards_that_are_weighted_sums_have_an_interval_beyond_one() -> None:
    rows = graded([(step, "x") for step in range(9) for _ in range(3)])
    rows = [
        row._replace(row=row.row._replace(metadata={"step": step, "reward": 10.0 * step + place % 3}))
        for place, row in enumerate(rows)
        for step in [place // 3]
    ]
    assert reward_report(rows).reward.change.value == pytest.approx(60)


def test_empty_completions_are_ungraded_and_count_with_their_reward() -> None:
    row = GradedRow("1", None, None, "the completion has no answer", metadata={"step": 0, "reward": -1.0})
    report = reward_report(RunFile("run", None, None, [row, row._replace(metadata={"step": 1, "reward": -1.0})]))
    assert report.ungraded.last == 1
    assert report.reward.last == -1
    assert report.words.last is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sample": 0}, "`sample` must be at least 1, got 0"),
        ({"sample": True}, "`sample` must be at least 1, got True"),
        ({"level": 1.0}, "`level` must be above 0 and below 1"),
        ({"rubric": RUBRIC, "second": None}, "`rubric` is for the second judge"),
    ],
)
def test_settings_that_are_out_of_range_are_refused_before_a_call(settings: dict[str, Any], message: str) -> None:
    second = FakeJudge("MET")
    arguments: dict[str, Any] = {"second": second, **settings}
    with pytest.raises(ValueError, match=message):
        reward_report(graded([(0, "8.4%")]), **arguments)
    assert not second.questions


def test_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"a": 1}\n')
    with pytest.raises(RunFileError, match="is no grade"):
        reward_report(path)
    with pytest.raises(RunFileError, match="cannot be read"):
        reward_report([tmp_path / "missing.jsonl"])
