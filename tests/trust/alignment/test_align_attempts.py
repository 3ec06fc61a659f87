"""The file that counts the judges that were tried on a test set."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rubric_integrations.runs.ledger import Ledger
from rubric_integrations.trust import AttemptsError
from rubric_integrations.trust.alignment import align as attempts_module
from rubric_integrations.trust.alignment.align import Attempt, Attempts

TEXTS = ("s1", "s2")


def attempt(candidate: str, test_set: str = "t", submissions: tuple[str, ...] = TEXTS, number: int = 1) -> Attempt:
    return Attempt(
        date="2026-01-01", optimizer="GEPA", candidate=candidate, test_set=test_set, submissions=submissions,
        number=number,
    )  # fmt: skip


def test_each_candidate_is_one_attempt_however_often_it_is_measured(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "labels.lock")
    assert [attempts.begin(attempt(name)).number for name in ("a", "b", "a", "c")] == [1, 2, 1, 3]
    attempts.finish(attempt("b").model_copy(update={"gain": 0.25, "number": 2}))
    lines = json.loads((tmp_path / "labels.lock").read_bytes())["attempts"]
    assert [(line["candidate"], line["number"], line["gain"]) for line in lines] == [
        ("a", 1, None), ("b", 2, 0.25), ("c", 3, None),
    ]  # fmt: skip
    assert not list(tmp_path.glob("*.new"))


def test_test_sets_that_share_a_submission_are_counted_together(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "labels.lock")
    attempts.begin(attempt("a"))
    assert attempts.next_number(frozenset({"s2", "s3"})) == 2
    assert attempts.begin(attempt("a", "another seed", ("s2", "s3"))).number == 2
    assert attempts.next_number(frozenset({"s9"})) == 1


def test_attempts_that_a_judge_records_count_without_the_file(tmp_path: Path) -> None:
    assert Attempts(None).begin(attempt("a", number=4)).number == 4
    assert Attempts(tmp_path / "labels.lock").begin(attempt("a", number=4)).number == 4


def test_concurrent_attempts_are_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "labels.lock"
    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(Attempts(path).begin, [attempt(str(name)) for name in range(16)]))
    assert sorted(one.number for one in begun) == list(range(1, 17))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"attempts": [{}]}', b"\xff", b"a" * 1_000_000, b'{"attempts": NaN}', b"\\ud83d"]
)
def test_file_that_cannot_be_read_is_an_error_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.lock"
    path.write_bytes(content)
    for use in (lambda: Attempts(path).next_number(frozenset(TEXTS)), lambda: Attempts(path).begin(attempt("a"))):
        with pytest.raises(AttemptsError, match=r"labels.lock' cannot be read: .* restore it"):
            use()
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["labels.lock"]


def test_ledger_and_folder_are_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path / "run.sqlite"):
        pass
    for path in (tmp_path / "run.sqlite", tmp_path):
        with pytest.raises(AttemptsError, match="cannot be read"):
            Attempts(path).begin(attempt("a"))
    with pytest.raises(AttemptsError, match="cannot be written"):
        Attempts(tmp_path / "missing" / "labels.lock").begin(attempt("a"))


def test_lock_of_a_process_that_died_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "_LONGEST_WAIT", 0.0)
    (tmp_path / "labels.lock.new").touch()
    with pytest.raises(AttemptsError, match=r"if there is none, delete '.*labels.lock.new'"):
        Attempts(tmp_path / "labels.lock").begin(attempt("a"))
