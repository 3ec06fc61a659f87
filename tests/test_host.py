"""`_host.HostGrader`: the judge or the grader, and the ledger, of every host."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from rubric_integrations import Fields, PerCriterionGrader, Rubric
from rubric_integrations._host import HostGrader, check_fields, column_of
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import OfflineJudge
from rubric_integrations.judges.protocol import innermost
from rubric_integrations.runs.ledger import Ledger, LedgerError
from tests.fakes import FakeJudge
from tests.hosts.six_responses import judge

KIND = Rubric.from_dict([{"requirement": "Is kind"}])


def shared(judge: Any) -> HostGrader:
    return HostGrader("Host", judge, None, is_shared=True)


def test_threads_that_name_the_same_judge_get_the_same_grader() -> None:
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(shared("openai/some-model")) for _ in range(32)]
        graders = [call.result() for call in calls]
    assert len({id(grader) for grader in graders}) == 1
    assert shared("openai/another-model")() is not graders[0]


def test_function_as_judge_and_a_grader_are_not_shared() -> None:
    grader = PerCriterionGrader("offline")
    assert innermost(HostGrader("Host", None, grader, is_shared=True)().judges[0]) is innermost(grader.judges[0])
    assert shared(judge)() is not shared(judge)()


def test_shared_grader_with_a_ledger_has_the_concurrency_limit_of_the_one_without(tmp_path: Path) -> None:
    stored = HostGrader("Host", "openai/some-model", None, tmp_path / "run.sqlite", is_shared=True)
    assert stored().call_limiter is shared("openai/some-model")().call_limiter
    stored.close()


def test_grader_is_made_once_also_for_copies() -> None:
    own = HostGrader("Host", "offline", None)
    assert own() is own() is copy.copy(own)() is copy.deepcopy(own)()


@pytest.mark.parametrize("make_ledger", [str, Path, Ledger])
def test_ledger_as_path_text_or_open_one_requests_no_judgment_twice(tmp_path: Path, make_ledger: Any) -> None:
    own = FakeJudge("MET", fingerprint="own")
    for _ in range(2):
        opened = HostGrader("Host", own, None, make_ledger(tmp_path / "run.sqlite"))
        assert KIND.grade_sync("Please.", opened()).score == 1.0
        opened.close()
    assert len(own.questions) == 1


def test_ledger_that_cannot_be_used_is_refused_at_construction(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="not the URL of a ledger"):
        HostGrader("Host", "offline", None, "mysql://host/database")
    with pytest.raises(TypeError, match="fingerprint"):
        HostGrader("Host", FakeJudge(), None, tmp_path / "run.sqlite")


def test_ledger_of_another_working_directory_is_the_same_in_a_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened = HostGrader("Host", "offline", None, "run.sqlite")
    data = pickle.dumps(opened)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    other: HostGrader = pickle.loads(data)
    assert other().fingerprints() == opened().fingerprints()
    assert not list(Path().iterdir())
    opened.close()
    other.close()


def test_judge_as_a_grader_is_refused_with_the_right_parameter() -> None:
    for grader, parameter in (("offline", "`judge='offline'`"), (OfflineJudge(), "`judge=`")):
        with pytest.raises(TypeError, match=f"must be a grader, got .*: pass .*{parameter}"):
            HostGrader("RubricEvaluator", None, cast("Any", grader))


@pytest.mark.parametrize(
    ("name", "grader", "message"), [(None, None, "got neither"), ("offline", PerCriterionGrader("offline"), "got both")]
)
def test_neither_or_both_of_judge_and_grader_are_refused(name: str | None, grader: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"`Host` needs either `judge`.*{message}"):
        HostGrader("Host", name, grader)


def test_name_in_place_of_a_grader_is_refused() -> None:
    name: Any = "PerCriterionGrader"
    with pytest.raises(TypeError, match="must be a grader, got 'PerCriterionGrader'"):
        HostGrader("Host", None, name)


@pytest.mark.parametrize("settings", [{"cannot_assess": "zero"}, {"normalize": False}, {"limits": CallLimits()}])
def test_setting_of_a_judge_is_refused_with_a_grader(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(settings))}` of `Host` goes with `judge`"):
        HostGrader("Host", None, PerCriterionGrader("offline"), **settings)


def test_field_that_a_host_does_not_read_is_refused() -> None:
    check_fields("Host", Fields(query="task"), "query", "reference")
    with pytest.raises(ValueError, match=r"`Fields.context` has no effect on `Host`, which reads `query` only"):
        check_fields("Host", Fields(context="passages"), "query")


def test_column_of_a_field_is_its_name_and_no_function() -> None:
    assert [column_of(Fields(query="task"), name) for name in ("query", "context")] == ["task", "context"]
    with pytest.raises(TypeError, match=r"`Fields.query` must be the name of a column"):
        column_of(Fields(query=str.upper), "query")
