"""A random key is put into every place that takes one; then every byte that was written is searched for it."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import secrets
import subprocess
import sys
import traceback
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dspy
import psycopg
import pytest
from langchain_openai import ChatOpenAI

from rubric_integrations import (
    Criterion,
    JudgeError,
    PerCriterionGrader,
    Rubric,
    Submission,
    grade_many,
)
from rubric_integrations.graders import Grader, PerCriterionOneShotGrader, RubricAsJudgeGrader
from rubric_integrations.judges import BatchResult, LMJudge, OverallResult, Question
from rubric_integrations.runs import Ledger
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from rubric_integrations.trust import align
from tests.fakes import judge_with
from tests.judges.questions import question_about
from tests.judges.test_saved import record
from tests.openai_server import Call, OpenAIServer, Reply
from tests.trust.runs import binary_rubric, labels_of

CANARY = f"canary-{secrets.token_hex(12)}"
RUBRIC = Rubric([Criterion(name="a", requirement="first"), Criterion(name="b", requirement="second")])


def base_url(server: OpenAIServer, *, user: str = "", query: str = "") -> str:
    return server.url.replace("://", f"://{user}@" if user else "://") + query


def named(server: OpenAIServer, **settings: Any) -> LMJudge:
    defaults: dict[str, Any] = {"api_base": server.url, "api_key": "plain-key"}
    return judge_with("openai/m", **{**defaults, **settings})


def lm(server: OpenAIServer, **settings: Any) -> dspy.LM:
    defaults: dict[str, Any] = {"api_base": server.url, "api_key": "plain-key", "cache": False, "num_retries": 0}
    return dspy.LM("openai/m", **{**defaults, **settings})


def chat(server: OpenAIServer, **settings: Any) -> ChatOpenAI:
    defaults: dict[str, Any] = {"model": "m", "base_url": server.url, "api_key": "plain-key", "max_retries": 0}
    return ChatOpenAI(**{**defaults, **settings})


PLACES: dict[str, Callable[[OpenAIServer], Any]] = {
    "api_key": lambda server: named(server, api_key=CANARY),
    "headers": lambda server: named(server, headers={"X-Team": CANARY}),
    "authorization": lambda server: named(server, headers={"Authorization": f"Bearer {CANARY}"}),
    "system variable": lambda server: named(server, api_key=None),
    "lm.api_key": lambda server: lm(server, api_key=CANARY),
    "lm.headers": lambda server: lm(server, headers={"X-Team": CANARY}),
    "lm.extra_headers": lambda server: lm(server, extra_headers={"X-Team": CANARY}),
    "lm.extra_body": lambda server: lm(server, extra_body={"tenant": {"id": [CANARY]}}),
    "lm.extra_query": lambda server: lm(server, extra_query={"tenant": CANARY}),
    "lm.metadata": lambda server: lm(server, metadata={"tenant": CANARY}),
    "lm.cookies": lambda server: lm(server, cookies={"session": CANARY}),
    "lm.organization": lambda server: lm(server, organization=CANARY),
    "query": lambda server: lm(server, api_base=base_url(server, query=f"?key={CANARY}")),
    "other query": lambda server: lm(server, api_base=base_url(server, query=f"?tenant={CANARY}")),
    "user": lambda server: lm(server, api_base=base_url(server, user=CANARY)),
    "password": lambda server: named(server, api_base=base_url(server, user=f"me:{CANARY}")),
    "path": lambda server: lm(server, api_base=f"{server.url}/{CANARY}"),
    "chat.api_key": lambda server: chat(server, api_key=CANARY),
    "chat.headers": lambda server: chat(server, default_headers={"X-Team": CANARY}),
    "chat.query": lambda server: chat(server, default_query={"tenant": CANARY}),
    "chat.extra_body": lambda server: chat(server, extra_body={"tenant": CANARY}),
    "chat.password": lambda server: chat(server, base_url=base_url(server, user=f"me:{CANARY}")),
    "chat.url_query": lambda server: chat(server, base_url=base_url(server, query=f"?tenant={CANARY}")),
    "chat.model_kwargs": lambda server: chat(server, model_kwargs={"user": CANARY}),
}
"""Makes a judge whose settings contain the canary in one place."""


def forms(secret: str) -> list[bytes]:
    """The forms in which a secret may be written: plain, in a URL, in hex, and in Base64 at each of its offsets."""
    encoded = [base64.b64encode(b"x" * offset + secret.encode())[4:-4] for offset in range(3)]
    return [
        secret[:14].encode(),
        quote(secret).encode(),
        secret.encode().hex().encode(),
        *encoded,
        secret[::-1].encode(),
    ]


def unpacked(content: bytes) -> Iterator[bytes]:
    """The content, and whatever in it zlib or gzip can unpack."""
    yield content
    for start in range(len(content) - 1):
        if content[start : start + 2] in (b"x\x9c", b"x\xda", b"x\x01", b"\x1f\x8b"):
            try:
                yield zlib.decompressobj(47).decompress(content[start:], 10_000_000)
            except zlib.error:
                continue


def assert_clean(contents: dict[str, bytes], written: Collection[str]) -> None:
    """Check that the canary is in none of the contents, and that those which must be written are not empty."""
    missing = {name for name in written if not contents.get(name)}
    assert not missing, f"nothing was searched in {sorted(missing)}"
    faults = {
        name
        for name, content in contents.items()
        for text in unpacked(content)
        for form in forms(CANARY)
        if form in text
    }
    assert not faults, f"the canary is in {sorted(faults)}"


def echo(call: Call) -> Reply:
    """Answer the first criterion, and refuse the second. Both replies quote the key."""
    if call.criterion == "first":
        return Reply(text=json.dumps({"explanation": f"The key is {CANARY}.", "verdict": "MET"}))
    pad = "p" * 200  # so that a part of the last canary is where long messages are cut off
    detail = f"{CANARY} {base64.b64encode(CANARY.encode()).decode()} {pad} {CANARY}"
    return Reply(status=401, raw=json.dumps({"error": {"message": f"wrong key: {detail}"}}).encode())


@pytest.mark.parametrize("place", PLACES)
def test_key_is_in_nothing_that_is_written(
    place: str, server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if place == "system variable":
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    caplog.set_level(logging.WARNING)
    server.script = echo
    model = PLACES[place](server)
    judge = model if isinstance(model, LMJudge) else LMJudge(model)
    # An optimizer makes examples of replies, which may quote the key.
    judge.criterion.demos = [dspy.Example(criterion="c", explanation=f"The key is {CANARY}.", verdict="MET")]
    judge.alignment = record()
    judge.save(tmp_path / "judge.json")
    assert "The key is ***." in (tmp_path / "judge.json").read_text()
    judge.criterion.demos = []
    (tmp_path / "fingerprint").write_text(str(judge.fingerprint()))
    (tmp_path / "repr").write_text(repr(judge))
    run = grade_many(["A text."], RUBRIC, PerCriterionGrader(judge, max_retries=0, on_failure="abstain"),
                     ledger=Ledger(tmp_path / "run.sqlite"))  # fmt: skip
    for graded in run:
        (tmp_path / "report.json").write_text(graded.report.model_dump_json() if graded.report else str(graded))
        (tmp_path / "result").write_text(str(graded))
    (tmp_path / "summary").write_text(f"{run.summary} {run.summary.stopped}")
    with pytest.raises(JudgeFailure) as failure:
        asyncio.run(judge.judge(question_about(RUBRIC.criteria[1])))
    (tmp_path / "failure").write_text("".join(traceback.format_exception(failure.value)))
    assert len(server.calls) >= 3
    output = capfd.readouterr()
    contents = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    contents |= {"stdout": output.out.encode(), "stderr": output.err.encode(), "log": caplog.text.encode()}
    assert "***" in (tmp_path / "report.json").read_text()
    assert_clean(contents, {"judge.json", "fingerprint", "repr", "run.sqlite", "report.json", "result", "summary",
                            "failure"})  # fmt: skip


class OwnJudge:
    """A judge of a user's own, which keeps its key, and quotes it in an answer, a failure and an error."""

    def __init__(self) -> None:
        self.api_key = CANARY

    async def judge(self, question: Question) -> Judgment:
        if question.criterion.requirement == "first":
            return Judgment(verdict="MET", value=1.0, reason=f"with {self.api_key}")
        if question.criterion.requirement == "second":
            raise JudgeFailure("config", f"refused: {self.api_key}")
        raise RuntimeError(f"no such user: {self.api_key}")

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        answer = Judgment(verdict="MET", value=1.0, reason=f"with {self.api_key}")
        faults = {number: f"missing for {self.api_key}" for number in questions if number > 1}
        return BatchResult({1: answer}, faults, Spend(calls=1))

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        return OverallResult(50, f"with {self.api_key}", Spend(calls=1), neutralized=False)

    def fingerprint(self) -> str:
        return "own"


async def function_with_the_key(system: str, user: str) -> str:
    if "second" in user:
        raise RuntimeError(f"refused: {CANARY}")
    return json.dumps({"explanation": f"The key is {CANARY}.", "verdict": "MET"})


GRADERS: dict[str, Callable[[], Grader]] = {
    "own judge": lambda: PerCriterionGrader(OwnJudge(), max_retries=0, on_failure="abstain"),
    "own batch judge": lambda: PerCriterionOneShotGrader(OwnJudge(), max_retries=0, on_failure="abstain"),
    "own overall judge": lambda: RubricAsJudgeGrader(OwnJudge(), max_retries=0),
    "function": lambda: PerCriterionGrader(function_with_the_key, max_retries=0, on_failure="abstain"),
}


@pytest.mark.parametrize("name", GRADERS)
def test_key_is_in_nothing_that_a_judge_of_the_users_own_leaves(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GATEWAY_TOKEN", CANARY if name == "function" else "")
    rubric = RUBRIC.model_copy(update={"criteria": (*RUBRIC.criteria, Criterion(name="c", requirement="third"))})
    for graded in grade_many(["A text."], rubric, GRADERS[name](), ledger=Ledger(tmp_path / "run.sqlite")):
        assert graded.report
        (tmp_path / "report.json").write_text(graded.report.model_dump_json())
        assert "***" in graded.report.model_dump_json()
    contents = {file.name: file.read_bytes() for file in tmp_path.iterdir()} | {"log": caplog.text.encode()}
    assert_clean(contents, {"run.sqlite", "report.json"})


def test_failure_of_the_users_own_judge_has_no_cause_that_quotes_the_key() -> None:
    with pytest.raises(JudgeError) as error:
        Rubric([Criterion(requirement="third")]).grade_sync("x", grader=PerCriterionGrader(OwnJudge(), max_retries=0))
    assert CANARY not in "".join(traceback.format_exception(error.value))
    assert "RuntimeError: no such user: ***" in str(error.value)


# All commands in one process, which imports LiteLLM once: that takes longer than everything else.
COMMANDS = """
import json, sys
from rubric_integrations.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["rubric-integrations", *arguments]
    try:
        main()
    except SystemExit as end:
        print("exit code", end.code)
"""


@pytest.mark.processes
def test_key_of_the_command_line_is_in_no_file_and_no_output(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = echo
    (tmp_path / "rubric.yaml").write_text("- {name: a, requirement: first}\n- {name: b, requirement: second}\n")
    (tmp_path / "text.txt").write_text("A text.")
    url = base_url(server, query=f"?key={CANARY}")
    arguments = [
        "grade", "rubric.yaml", "text.txt", "--judge", "openai/m", "--api-base", url, "--api-key", CANARY,
        "--judge-option", f"header.X-Team={CANARY}", "--out", "run.jsonl", "--junit", "junit.xml", "--max-calls", "1",
        "--on-failure", "abstain", "--max-outage", "0",
    ]  # fmt: skip
    commands = [
        arguments,
        [*arguments[:-6], *arguments[-4:], "--resume"],
        ["report", "run.jsonl", "--output", "page.html"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)], cwd=tmp_path, capture_output=True, check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "OPENAI_API_KEY": CANARY,
             "PATH": "",
             "HOME": str(tmp_path), "DSPY_CACHEDIR": str(tmp_path / "cache"),
             "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )  # fmt: skip
    outputs = {"stdout": done.stdout, "stderr": done.stderr}
    assert done.returncode == 0, outputs
    assert [done.stdout.count(word) for word in (b"exit code 4", b"exit code 0")] == [1, 2]
    files = {str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert_clean(files | outputs, {"run.sqlite", "run.jsonl", "junit.xml", "page.html", "stdout", "stderr"})


def quote_the_key(call: Call) -> Reply:
    """Say MET to everything, and be right once an example shows how. Each reply quotes the key."""
    is_odd = any(f"response {number}\n" in call.prompt.rpartition("## submission ##")[2] for number in range(1, 60, 2))
    verdict = "UNMET" if is_odd and "The key is" in call.prompt else "MET"
    return Reply(text=json.dumps({"explanation": f"The key is {CANARY}.", "verdict": verdict}))


def test_key_is_in_no_file_of_an_alignment(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = quote_the_key
    labels = labels_of(binary_rubric(), [["UNMET"], ["MET"]] * 30)
    lines: list[str] = []
    alignment = align(
        named(server, api_key=CANARY), labels, "bootstrap", ledger=tmp_path / "ledger.sqlite",
        attempts=tmp_path / "labels.lock", progress=lines.append,
    )  # fmt: skip
    assert alignment.kept
    alignment.judge.save(tmp_path / "judge.json")
    (tmp_path / "result").write_text(f"{alignment.summary()} {alignment} {lines}")
    contents = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert b"The key is ***." in contents["judge.json"]
    assert server.url.encode() not in contents["judge.json"] + contents["labels.lock"]
    assert_clean(contents, {"judge.json", "labels.lock", "ledger.sqlite", "result"})


def test_password_of_a_ledger_is_in_no_file_no_output_and_no_table(
    server: OpenAIServer, tmp_path: Path, postgres_url: str
) -> None:
    server.script = lambda _call: Reply(verdict="MET")
    (tmp_path / "rubric.yaml").write_text("- {name: a, requirement: first}\n- {name: b, requirement: second}\n")
    (tmp_path / "text.txt").write_text("A text.")
    # The server of the tests trusts everybody, whatever the password.
    ledger = postgres_url.replace("postgres:@", f"postgres:{CANARY}@")
    arguments = [
        "grade", "rubric.yaml", "text.txt", "--judge", "openai/m", "--api-base", server.url, "--max-outage", "0",
        "--out", "run.jsonl",
    ]  # fmt: skip
    commands = [
        [*arguments, "--ledger", ledger, "--run", "nightly", "--max-calls", "1"],
        [*arguments, f"--ledger={ledger}", "--resume"],
        ["rescore", ledger, "--rubric", "rubric.yaml"],
        [*arguments, "--overwrite", "--ledger", ledger.replace("postgresql://", "postgresql:/")],
        [*arguments, "--overwrite", "--ledger", f"postgresql://me:{CANARY}@127.0.0.1:9/db"],
        ["rescore", f"postgresql://me:{CANARY}@127.0.0.1:9/db?no_such_option=1"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)], cwd=tmp_path, capture_output=True, check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "", "HOME": str(tmp_path), "OPENAI_API_KEY": "key",
             "DSPY_CACHEDIR": str(tmp_path / "cache"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )  # fmt: skip
    outputs = {"stdout": done.stdout, "stderr": done.stderr}
    codes = [int(line.split()[-1]) for line in done.stdout.decode().splitlines() if line.startswith("exit code")]
    assert codes == [4, 0, 0, 2, 2, 2], outputs
    assert b"1 of 1 scored by the rubric" in done.stdout, outputs
    assert b"To go on, raise the limit." in done.stderr
    assert len(server.calls) == 2
    with psycopg.connect(postgres_url) as db:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        tables = [row[0] for row in db.execute(query)]
        assert len(tables) == 10
        rows = {name: repr(db.execute(f"SELECT t::text FROM {name} AS t".encode()).fetchall()) for name in tables}
    files = {str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    contents = files | outputs | {name: text.encode() for name, text in rows.items()}
    assert_clean(contents, {"run.jsonl", "stdout", "stderr", *tables})


def test_whole_program_is_not_saved(tmp_path: Path) -> None:
    judge = LMJudge("openai/m", api_base="http://127.0.0.1:9/v1", api_key=CANARY)
    with pytest.raises(ValueError, match="`save_program=True` would write the model with its key"):
        judge.save(tmp_path / "program", save_program=True)
    assert not list(tmp_path.iterdir())


def test_text_is_not_sent_to_where_a_server_redirects_langchain(server: OpenAIServer) -> None:
    with OpenAIServer() as other:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {other.url}/chat/completions\r\nContent-Length: 0\r\n\r\n".encode()
        server.script = lambda _call: Reply(head=moved)
        model = chat(server)
        with pytest.raises(Exception, match="307"):
            RUBRIC.grade_sync("A text.", grader=PerCriterionGrader(model, max_retries=0))
        assert server.calls
        assert not other.calls
        assert model.root_client._client.follow_redirects  # pyright: ignore[reportPrivateUsage] -- the user's own client is as it was
