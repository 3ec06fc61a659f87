"""Many submissions: streams, limits, faults of every kind, kills, and two processes on one ledger."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, agrade_many, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import Question
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.results.usage import Spend
from rubric_integrations.runs.ledger import Ledger, LedgerError
from rubric_integrations.runs.rescoring import rescore
from tests.judges.test_stored import RUBRIC as KINDS
from tests.judges.test_stored import answers
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric([Criterion(name=f"k{i}", weight=i + 1, requirement=f"requirement {i}") for i in range(12)])


def truth(call: Call) -> str:
    """What the judge thinks of a pair of submission and criterion, whenever it is asked."""
    return "MET" if (submission_of(call) * 7 + criterion_of(call) * 3) % 5 else "UNMET"


def submission_of(call: Call) -> int:
    return int(call.prompt.split("submission number ")[1].split()[0])


def criterion_of(call: Call) -> int:
    return int(call.criterion.removeprefix("requirement "))


def key_of(call: Call) -> tuple[int, int]:
    return submission_of(call), criterion_of(call)


def texts(count: int) -> list[str]:
    return [f"submission number {i} says so" for i in range(count)]


def expected(submission: int) -> float:
    met = [i + 1 for i in range(12) if (submission * 7 + i * 3) % 5]
    return sum(met) / sum(range(1, 13))


# Drawn in this order, each for itself; the two that slow everything down come last.
FAULTS: dict[str, Reply] = {
    "500": Reply(status=500),
    "malformed": Reply(text="The verdict, I would say, is MET."),
    "truncated": Reply(text='{"explanation": "as scripted", "verd'),
    "enum": Reply(text='{"explanation": "so", "verdict": "MAYBE"}'),
    "drop": Reply(drop=True),
    "hang": Reply(delay=30),
    "429": Reply(status=429, retry_after=0.01),
}


@pytest.mark.parametrize(("rate", "retries", "timeout"), [(0.05, 20, 1.0), (0.2, 80, 1.0)])
def test_no_judgment_is_lost_wrong_or_bought_twice_whatever_fails(
    server: OpenAIServer, tmp_path: Path, rate: float, retries: int, timeout: float, record_property: Any
) -> None:
    chance, hit, good = random.Random(5), Counter[str](), Counter[tuple[int, int]]()

    def script(call: Call) -> Reply:
        for name, fault in FAULTS.items():
            if chance.random() < rate:
                hit[name] += 1
                return fault
        good[key_of(call)] += 1
        return Reply(truth(call))

    server.script = script
    grader = PerCriterionGrader("openai/m", api_base=server.url, max_retries=retries, timeout=timeout)
    run = grade_many(texts(40), RUBRIC, grader, ledger=tmp_path / "run.sqlite", max_concurrency=12)
    scores = [graded.score for graded in run]
    assert scores == pytest.approx([expected(i) for i in range(40)])
    assert (len(good), set(good.values())) == (480, {1})
    assert min(hit.values()) > 0
    faults = ", ".join(f"{count} {name}" for name, count in hit.items())
    record_property("shown", f"faults at {rate:.0%} each: 480 of 480 judgments, none twice, through {faults}")


def write_inputs(folder: Path, count: int) -> list[str]:
    (folder / "rubric.yaml").write_text(RUBRIC.to_yaml())
    lines = [json.dumps({"id": f"s{i}", "response": text}) for i, text in enumerate(texts(count))]
    (folder / "responses.jsonl").write_text("\n".join(lines))
    return [str(folder / "rubric.yaml"), str(folder / "responses.jsonl")]


def command(inputs: list[str], server: OpenAIServer, out: Path, *options: str) -> list[str]:
    judge = ["--judge", "openai/m", "--api-base", server.url, "--max-concurrency", "6"]
    return [sys.executable, "-m", "rubric_integrations", "grade", *inputs, *judge, "--out", str(out), *options]


def test_a_run_killed_ten_times_goes_on_and_ends_as_if_undisturbed(
    server: OpenAIServer, tmp_path: Path, record_property: Any
) -> None:
    server.script = lambda call: Reply(truth(call), delay=0.05)
    inputs, chance = write_inputs(tmp_path, 40), random.Random(3)
    out = tmp_path / "run.jsonl"
    asked_before: set[tuple[int, int]] = set()
    kept = [0]
    for _ in range(10):
        before, wanted = len(server.calls), chance.randrange(1, 40)
        with subprocess.Popen(
            command(inputs, server, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as run:
            while len(server.calls) < before + wanted and run.poll() is None:
                time.sleep(0.001)
            time.sleep(chance.random() / 20)
            run.kill()
        asked = {key_of(call) for call in server.calls[before:]}
        # Asked again are at most those that had been asked and not kept: the calls under way at a kill.
        assert len(asked & asked_before) <= len(asked_before) - kept[-1]
        asked_before |= asked
        with Ledger(tmp_path / "run.sqlite") as ledger:
            kept.append(len(ledger))
        assert kept[-2] <= kept[-1] <= len(asked_before)
    before = len(server.calls)
    subprocess.run(command(inputs, server, out), check=True, capture_output=True)
    assert len(server.calls) - before == 480 - kept[-1]
    undisturbed = tmp_path / "undisturbed.jsonl"
    subprocess.run(command(inputs, server, undisturbed), check=True, capture_output=True)
    assert out.read_bytes() == undisturbed.read_bytes()
    record_property("shown", f"killed at {kept[1:]} of 480 judgments, then resumed: the same report, none asked again")


def test_two_processes_on_one_ledger_buy_each_judgment_once(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda call: Reply(truth(call), delay=0.01)
    inputs = write_inputs(tmp_path, 20)
    shared = ["--ledger", str(tmp_path / "shared.sqlite")]
    outs = [tmp_path / f"run{i}.jsonl" for i in range(2)]
    runs = [subprocess.Popen(command(inputs, server, out, *shared), stdout=subprocess.DEVNULL) for out in outs]
    assert [run.wait() for run in runs] == [0, 0]
    assert len(server.calls) == len({key_of(call) for call in server.calls}) == 240
    assert outs[0].read_bytes() == outs[1].read_bytes()
    with Ledger(tmp_path / "shared.sqlite") as ledger:
        assert len(ledger) == 240


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_an_interrupted_run_says_how_to_go_on(server: OpenAIServer, tmp_path: Path, signal: str) -> None:
    import signal as signals

    server.script = lambda call: Reply(truth(call), delay=0.05)
    inputs, out = write_inputs(tmp_path, 20), tmp_path / "run.jsonl"
    with subprocess.Popen(command(inputs, server, out, "--query", "a b"), stderr=subprocess.PIPE, text=True,
                          stdout=subprocess.DEVNULL) as run:  # fmt: skip
        while len(server.calls) < 40:
            time.sleep(0.001)
        run.send_signal(getattr(signals, signal))
        said = run.stderr.read() if run.stderr else ""
        assert run.wait(10) == 130
    assert "Traceback" not in said
    assert f"To go on: rubric-integrations grade {inputs[0]} {inputs[1]}" in said
    assert "--query 'a b' --resume" in said
    asked = len(server.calls)
    resumed = subprocess.run(command(inputs, server, out, "--query", "a b", "--resume"), capture_output=True, text=True,
                             check=True)  # fmt: skip
    assert "judgments from the ledger" in resumed.stdout
    assert len(server.calls) <= 240 + 6  # at most the calls under way when it was interrupted
    assert asked < 240


def test_a_limit_ends_a_run_and_keeps_what_was_bought(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda call: Reply(truth(call))
    inputs, out = write_inputs(tmp_path, 20), tmp_path / "run.jsonl"
    stopped = subprocess.run(
        command(inputs, server, out, "--max-calls", "100"), capture_output=True, text=True, check=False
    )
    assert stopped.returncode == 4
    assert "`max_calls` of 100 is reached" in stopped.stderr
    assert len(server.calls) == 100
    done = subprocess.run(command(inputs, server, out), capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert len(server.calls) == 240
    assert [json.loads(line)["score"] for line in out.read_text().splitlines()] == pytest.approx(
        [expected(i) for i in range(20)]
    )


def test_resume_and_no_resume(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda call: Reply(truth(call))
    inputs, out = write_inputs(tmp_path, 2), tmp_path / "run.jsonl"

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command(inputs, server, out, *options), capture_output=True, text=True, check=False)

    assert "there is no ledger" in run("--resume").stderr
    assert run().returncode == 0
    assert run().returncode == 0  # nothing left to ask, and the report is written again
    assert len(server.calls) == 24
    assert "exists: name another file" in run("--no-resume").stderr
    assert run("--no-resume", "--overwrite").returncode == 0
    assert len(server.calls) == 48
    (tmp_path / "run.sqlite").write_text("not a ledger, but a text of mine")
    refused = run("--overwrite")
    assert refused.returncode == 2
    assert "no SQLite file" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert (tmp_path / "run.sqlite").read_text() == "not a ledger, but a text of mine"


class Instant:
    """A judge without I/O that counts what it is asked."""

    def __init__(self, cost: float | None = 0.0):
        self.asked = 0
        self.cost = cost

    def fingerprint(self) -> str:
        return "instant"

    async def judge(self, question: Question) -> Judgment:
        self.asked += 1
        await asyncio.sleep(0)
        met = "bad" not in question.submission.response
        return Judgment(verdict="MET" if met else "UNMET", value=float(met), spend=Spend(calls=1, cost=self.cost))


THREE = Rubric([Criterion(requirement=f"r{i}") for i in range(3)])


def test_any_iterable_is_read_only_as_fast_as_it_is_graded() -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield f"text {read}"

    run = grade_many(endless(), THREE, PerCriterionGrader(Instant()), max_concurrency=4)
    for graded in run:
        if graded.row.id == "50":
            break
    assert read <= 50 + 2 * 4
    assert run.summary.submissions == 50


async def test_an_async_iterable_and_async_for() -> None:
    async def some() -> AsyncGenerator[Any]:
        for item in ["good", {"output": "bad", "id": "x"}, " ", Submission(response="good"), 7,
                     [{"role": "user", "content": "q"}, {"role": "assistant", "content": "bad"}]]:  # fmt: skip
            yield item

    run = agrade_many(some(), THREE, PerCriterionGrader(Instant()))
    found = [(graded.row.id, graded.score, graded.row.error) async for graded in run]
    assert [(row, score) for row, score, _ in found] == [
        ("1", 1.0), ("x", 0.0), ("3", None), ("4", 1.0), ("5", None), ("6", 0.0)
    ]  # fmt: skip
    assert "nothing to grade" in str(found[2][2])
    assert "got int" in str(found[4][2])
    summary = run.summary
    assert (summary.submissions, summary.graded, summary.ungradable, summary.mean_score) == (6, 4, 2, 0.5)


def test_in_order_or_as_they_come() -> None:
    class Slow(Instant):
        async def judge(self, question: Question) -> Judgment:
            await asyncio.sleep(0.2 if "slow" in question.submission.response else 0)
            return await super().judge(question)

    given = ["slow", "quick", "quick"]
    for ordered, first in ((True, "1"), (False, "2")):
        results = list(grade_many(given, THREE, PerCriterionGrader(Slow()), ordered=ordered))
        assert results[0].row.id == first
        assert sorted(graded.row.id for graded in results) == ["1", "2", "3"]


def test_money_ends_a_run_before_it_is_overspent(tmp_path: Path) -> None:
    judge = Instant(cost=0.01)
    run = grade_many(texts(100), THREE, PerCriterionGrader(judge), ledger=tmp_path / "l.sqlite", max_cost=0.905)
    results = list(run)
    assert judge.asked == 90
    assert run.summary.spend.cost == pytest.approx(0.9)
    assert "`max_cost` of $0.905 is reached" in str(run.summary.stopped)
    assert all(graded.score == 1.0 for graded in results)  # what is not whole is not handed out
    again = grade_many(texts(100), THREE, PerCriterionGrader(judge), ledger=tmp_path / "l.sqlite")
    assert len(list(again)) == 100
    assert (judge.asked, again.summary.reused, again.summary.stopped) == (300, 90, None)


def test_a_full_disk_ends_the_run_at_once_and_keeps_what_was_bought(tmp_path: Path) -> None:
    judge = Instant()
    with Ledger(tmp_path / "run.sqlite") as ledger:
        with ledger._file.working() as db:  # pyright: ignore[reportPrivateUsage]
            db.execute("PRAGMA max_page_count = 40")
        run = grade_many(texts(5000), THREE, PerCriterionGrader(judge), ledger=ledger, max_concurrency=4)
        with pytest.raises(LedgerError, match=r"full.*what was bought until now is kept"):
            list(run)
        kept = len(ledger)
    assert 0 < kept <= judge.asked <= kept + 4


def test_one_call_of_a_submission_goes_ahead_so_that_the_others_find_its_prompt_cached() -> None:
    """Providers share the beginning of a prompt only once they have answered it."""

    class Watched(Instant):
        def __init__(self) -> None:
            super().__init__()
            self.begun, self.answered = Counter[str](), Counter[str]()
            self.under_way = self.peak = 0

        async def judge(self, question: Question) -> Judgment:
            text = question.submission.response
            assert not self.begun[text] or self.answered[text]
            self.begun[text] += 1
            self.under_way += 1
            self.peak = max(self.peak, self.under_way)
            await asyncio.sleep(0.005)
            self.under_way -= 1
            self.answered[text] += 1
            return await super().judge(question)

    judge = Watched()
    assert all(
        graded.score == 1.0 for graded in grade_many(texts(8), RUBRIC, PerCriterionGrader(judge), max_concurrency=16)
    )
    assert set(judge.begun.values()) == {12}
    assert judge.peak == 16  # other submissions keep the cap full


def test_what_cannot_be_a_run_is_refused() -> None:
    grader = PerCriterionGrader(Instant())
    with pytest.raises(TypeError, match="got one str"):
        grade_many("a text", THREE, grader)
    with pytest.raises(ValueError, match="`max_concurrency`"):
        grade_many([], THREE, grader, max_concurrency=0)
    with pytest.raises(ValueError, match="`max_cost`"):
        grade_many([], THREE, grader, max_cost=-1)
    assert list(grade_many([], THREE, grader)) == []


def test_new_weights_are_scored_for_free_and_new_words_are_counted(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda call: Reply(truth(call))
    inputs, out = write_inputs(tmp_path, 5), tmp_path / "run.jsonl"
    subprocess.run(command(inputs, server, out), check=True, capture_output=True)
    bought = len(server.calls)

    def rescored(rubric: Rubric) -> tuple[str, list[Any]]:
        (tmp_path / "new.yaml").write_text(rubric.to_yaml())
        ledger, new = str(tmp_path / "run.sqlite"), str(tmp_path / "new.jsonl")
        told = subprocess.run(
            [sys.executable, "-m", "rubric_integrations", "rescore", ledger, "--rubric", str(tmp_path / "new.yaml"),
             "--out", new], check=True, capture_output=True, text=True)  # fmt: skip
        return told.stdout + told.stderr, [json.loads(line) for line in Path(new).read_text().splitlines()]

    same, rows = rescored(RUBRIC)
    assert [row["score"] for row in rows] == pytest.approx([expected(i) for i in range(5)])
    assert [row["id"] for row in rows] == [f"s{i}" for i in range(5)]
    assert "new and would have to be bought" not in same

    even = Rubric([criterion.model_copy(update={"weight": 1.0, "name": None}) for criterion in RUBRIC.criteria])
    _, rows = rescored(even)
    met = [sum(bool((i * 7 + k * 3) % 5) for k in range(12)) / 12 for i in range(5)]
    assert [row["score"] for row in rows] == pytest.approx(met)

    more = Rubric([*RUBRIC.criteria, Criterion(name="new", requirement="requirement 12")])
    told, rows = rescored(more)
    assert "5 judgments are new and would have to be bought" in told
    assert [(row["score"], row["missing"]) for row in rows] == [(None, 1)] * 5
    assert len(server.calls) == bought


@pytest.mark.parametrize("kind", [PerCriterionGrader, PerCriterionOneShotGrader, RubricAsJudgeGrader])
def test_every_grader_and_a_panel_can_be_rescored(server: OpenAIServer, tmp_path: Path, kind: Any) -> None:
    server.script = answers
    judges = [LMJudge(dspy.LM(f"openai/{name}", api_base=server.url, api_key="none", cache=False)) for name in "ab"]
    with Ledger(tmp_path / "run.sqlite") as ledger:
        with pytest.raises(LedgerError, match="has no run"):
            list(rescore(ledger, KINDS))
        before = list(grade_many(["Hello.", "Bye."], KINDS, kind(judges=judges), ledger=ledger))
        bought = len(server.calls)
        after = list(rescore(ledger, KINDS))
        assert [result.missing for result in after] == [0, 0]
        assert [result.report for result in after] == [graded.report for graded in before]
        assert ledger.failures() == []
    assert len(server.calls) == bought
