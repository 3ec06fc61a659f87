"""`grade_dataset` on real Ray, with actors in processes of their own and a model behind a socket."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader
from rubric_integrations.graders import Grader
from rubric_integrations.judges import LMJudge
from rubric_integrations.ray import GradeBatches, grade_dataset
from rubric_integrations.runs import Ledger
from tests.openai_server import Call, OpenAIServer, Reply

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

RUBRIC = [{"name": "good", "requirement": "Is good"}, {"name": "brief", "requirement": "Is brief"}]


def answer(call: Call) -> Reply:
    return Reply(text="no verdict" if "garbage" in call.prompt else None, delay=0.01)


def grader_of(server: OpenAIServer) -> Grader:
    return PerCriterionGrader(LMJudge("openai/m", api_base=server.url, api_key="k"), max_retries=0)


def table_of(texts: Sequence[str | None], **columns: list[Any]) -> Any:
    return pa.table({"id": [f"r{number}" for number in range(len(texts))], "response": texts, **columns})


def calls_of(server: OpenAIServer) -> Counter[tuple[str, str]]:
    """Return how often each judgment was requested, by the number in the text and the criterion."""
    prompts = ((call.prompt, call.criterion) for call in server.calls if "text-" in call.prompt)
    return Counter((prompt[prompt.index("text-") :][:8], criterion) for prompt, criterion in prompts)


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "run.sqlite") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def test_actors_share_a_ledger_and_one_concurrency_limit_and_keep_the_order(
    ray_data: Any, server: OpenAIServer, ledger: str
) -> None:
    server.script = answer
    # The same texts for both actors.
    texts = [f"text-{number % 30:03}" for number in range(60)]
    ds = ray_data.from_arrow(table_of([*texts, "garbage", None], key=list(range(62))))
    graded = grade_dataset(
        ds, RUBRIC, grader_of(server), ledger=ledger, actors=2, max_concurrency=8, rows_per_block=8, columns=["key"]
    )
    rows = graded.take_all()
    assert [row["key"] for row in rows] == list(range(62))
    assert [row["score"] for row in rows] == [1.0] * 60 + [None, None]
    assert "no verdict" in rows[60]["error"] or "JSON" in rows[60]["error"]
    assert "null" in rows[61]["error"]
    assert Counter(calls_of(server).values()) == {1: 60}
    assert server.peak <= 8


def test_killed_actor_loses_no_row_and_repeats_at_most_what_was_in_flight(
    ray_data: Any, server: OpenAIServer, tmp_path: Path
) -> None:
    killed = threading.Event()
    in_flight = 0

    def script(call: Call) -> Reply:
        nonlocal in_flight
        if call.number >= 60 and not killed.is_set():
            killed.set()
            in_flight = server.in_flight
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
        return Reply(delay=0.02)

    pid_file = tmp_path / "pid"
    server.script = script
    ds = ray_data.from_arrow(table_of([f"text-{number:03}" for number in range(80)]))
    grader = grader_of(server).with_judges([ReportingJudge(str(pid_file), server.url)])
    options: dict[str, Any] = {"ledger": tmp_path / "run.sqlite", "max_concurrency": 8, "rows_per_block": 10}
    rows = grade_dataset(ds, RUBRIC, grader, **options).take_all()
    assert killed.is_set()
    assert [row["id"] for row in rows] == [f"r{number}" for number in range(80)]
    assert {row["score"] for row in rows} == {1.0}
    calls = calls_of(server)
    assert len(calls) == 160
    assert sum(calls.values()) - len(calls) <= max(in_flight, 8)


class ReportingJudge(LMJudge):
    """A judge that writes the id of its process to a file, so that a test can kill it."""

    def __init__(self, path: str, url: str):
        super().__init__("openai/m", api_base=url, api_key="k")
        self._path, self._process = path, 0

    async def judge(self, question: Any) -> Any:
        if self._process != os.getpid():
            self._process = os.getpid()
            report(self._path)
        return await super().judge(question)


def report(path: str) -> None:
    Path(f"{path}.new").write_text(str(os.getpid()), encoding="utf-8")
    Path(f"{path}.new").replace(path)


def test_limit_holds_for_all_actors_and_the_rest_of_the_rows_have_an_error(
    ray_data: Any, server: OpenAIServer, tmp_path: Path
) -> None:
    table = table_of(["text-000"] * 2 + [f"text-{number:03}" for number in range(38)])
    options: dict[str, Any] = {"ledger": tmp_path / "run.sqlite", "max_concurrency": 4, "actors": 2}
    ds = ray_data.from_arrow(table)
    rows = grade_dataset(ds, RUBRIC, grader_of(server), rows_per_block=5, max_calls=20, **options).take_all()
    assert len(server.calls) == 20  # of 78
    left = [row for row in rows if row["score"] is None]
    assert left
    assert all("`max_calls` of 20 is reached" in row["error"] for row in left)


def test_rows_bring_their_rubrics_and_the_grader_travels_to_own_map_batches(ray_data: Any) -> None:
    own = ['[{"requirement": "Says 42", "check": {"number": 42}}]', "seven"]
    ds = ray_data.from_arrow(table_of(["It is 42.", "It is 42."], rubric=own))
    options = {
        "rubric": None,
        "grader": PerCriterionGrader("offline"),
        "library": {"seven": [{"requirement": "Says 7", "check": {"number": 7}}]},
    }
    grade = ds.map_batches(
        GradeBatches,
        batch_format="pyarrow",
        fn_constructor_kwargs=options,
        compute=ray_data.ActorPoolStrategy(size=1),
        num_cpus=0.5,
    )
    assert sorted((row["id"], row["score"]) for row in grade.take_all()) == [("r0", 1.0), ("r1", 0.0)]


def test_judge_that_cannot_be_used_ends_the_job_with_its_reason(ray_data: Any, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(status=401)
    ds = ray_data.from_arrow(table_of(["a", "b", "c"]))
    with pytest.raises(import_module("ray.exceptions").RayError, match="JudgeUnusable: the judge cannot be used"):
        grade_dataset(ds, RUBRIC, grader_of(server)).take_all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"actors": 0}, "`actors` must be from 1"),
        ({"actors": 65}, "`actors` must be from 1"),
        ({"max_concurrency": 0}, "`max_concurrency` must be at least 1"),
        ({"rows_per_block": 0}, "`rows_per_block` must be at least 1"),
        ({"max_calls": 5}, "need a `ledger`"),
        ({"ledger": "mysql://host/database"}, "not the URL of a ledger"),
    ],
)
def test_wrong_option_is_refused_before_ray_starts(ray_data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grade_dataset(ray_data.from_arrow(table_of(["a"])), RUBRIC, PerCriterionGrader("offline"), **options)


def test_open_ledger_is_opened_by_each_actor_for_itself(ray_data: Any, tmp_path: Path) -> None:
    ds = ray_data.from_arrow(table_of(["It is 42."]))
    with Ledger(tmp_path / "run.sqlite") as store:
        grades = grade_dataset(ds, RUBRIC, PerCriterionGrader("offline"), ledger=store)
        assert [row["error"] for row in grades.take_all()] == [None]


def test_file_as_ledger_is_refused_on_several_machines(
    ray_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.nodes", lambda: [{"Alive": True}, {"Alive": True}, {"Alive": False}])
    ds = ray_data.from_arrow(table_of(["a"]))
    with pytest.raises(ValueError, match="runs on 2 machines"):
        grade_dataset(ds, RUBRIC, PerCriterionGrader("offline"), ledger=tmp_path / "run.sqlite")
