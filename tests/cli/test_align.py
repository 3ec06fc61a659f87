"""The command `align`: a judge that is proven is written, and nothing else is, however the command ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.cli.console import Exit
from rubric_integrations.judges import LMJudge, as_judge
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import Spend
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust import Alignment, AlignmentError
from tests.cli.commands import run
from tests.cli.trust_files import write_labels, write_run
from tests.judges.test_saved import record
from tests.openai_server import Call, OpenAIServer, Reply
from tests.trust.runs import binary_rubric, labels_of, run_of

ONE = binary_rubric()
HINT = "A response with an odd number is UNMET."
COUNT = 60


def misread(call: Call) -> Reply:
    """Say MET to everything, and propose the hint; with the hint, say UNMET to every second response."""
    if "## submission ##" not in call.prompt:
        return Reply(text=json.dumps({"new_instruction": HINT}))
    is_odd = any(f"response {number}\n" in call.prompt for number in range(1, COUNT + 1, 2))
    return Reply(verdict="UNMET" if is_odd and HINT in call.prompt else "MET")


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """A run of a judge that says MET to everything, and people's labels of it: UNMET to every second one."""
    rows: list[GradedRow] = run_of(ONE, [["MET"]] * COUNT)
    write_run(tmp_path / "run.jsonl", rows)
    write_labels(tmp_path / "labels.jsonl", labels_of(ONE, [["UNMET"], ["MET"]] * (COUNT // 2), rater="Ann"))
    return tmp_path


def align(folder: Path, *options: object, out: str = "judge.json", judge: str = "openai/m") -> Any:
    paths = folder / "run.jsonl", folder / "labels.jsonl"
    return run("align", *paths, "--judge", judge, "--out", folder / out, "--api-key", "k", *options)


def stub(monkeypatch: pytest.MonkeyPatch, end: Callable[..., object]) -> dict[str, Any]:
    """Replace the alignment, and return the arguments that it gets."""
    arguments: dict[str, Any] = {}

    def aligned(judge: LMJudge, labels: object, optimizer: str, **settings: Any) -> object:
        arguments.update(settings, judge=judge, labels=labels, optimizer=optimizer)
        settings["progress"]("60 labels")
        return end(judge)

    monkeypatch.setattr("rubric_integrations.trust.align", aligned, raising=False)
    return arguments


def result(judge: LMJudge, *, kept: bool) -> Alignment:
    alignment = record(kept=kept)
    judge.alignment = alignment
    return Alignment(
        judge=judge, kept=kept, gain=alignment.gain, before=alignment.before, after=alignment.after, dev_before=0.5,
        dev_after=0.9, attempts=1, spend=Spend(calls=7, cost=0.25), shown=0.1, warnings=("two labels are odd",),
    )  # fmt: skip


def kept(judge: LMJudge) -> Alignment:
    return result(judge, kept=True)


def ending(error: BaseException) -> Callable[..., object]:
    def end(_judge: LMJudge) -> object:
        raise error

    return end


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.optimizers
def test_aligned_judge_is_written_and_grades_as_people_do(labelled: Path, server: OpenAIServer) -> None:
    server.script = misread
    done = align(labelled, "--api-base", server.url, "--max-calls", 900)
    assert done.exit_code == 0, done.output
    assert "kept: +0.5" in done.stdout
    assert "corrected for its selection: +0." in done.stdout
    assert f"judge: written to {labelled / 'judge.json'}" in " ".join(done.stdout.split())
    assert "24 to prove a gain" in done.stderr
    assert names_in(labelled) >= {"judge.json", "judge.sqlite", "labels.lock"}
    assert server.url not in (labelled / "judge.json").read_text()

    judge: Any = as_judge(labelled / "judge.json")
    assert judge.alignment.kept
    assert len(judge.alignment.trained_on) == 36
    (labelled / "rubric.yaml").write_text(ONE.to_yaml())
    rows = [{"id": str(number), "response": f"response {number}"} for number in range(1, COUNT + 1)]
    (labelled / "responses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    graded = run(
        "grade", labelled / "rubric.yaml", labelled / "responses.jsonl", "--judge", labelled / "judge.json",
        "--api-base", server.url, "--api-key", "k", "--out", labelled / "after.jsonl", "--quiet",
    )  # fmt: skip
    assert graded.exit_code == 0, graded.output
    agreed = run("agree", labelled / "after.jsonl", labelled / "labels.jsonl", "--json")
    assert agreed.exit_code == 0, agreed.output
    figures = json.loads(agreed.stdout)
    assert (figures["labels"], figures["accuracy"]["value"]) == (24, 1.0)
    assert "aligned with 36 of the labels: they say nothing about it, and are left out" in agreed.stderr


def test_arguments_reach_the_alignment(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = stub(monkeypatch, kept)
    done = align(
        labelled, "--optimizer", "bootstrap", "--reflection-model", "openai/strong", "--alpha", 0.1, "--seed", 3,
        "--max-cost", 2, "--max-calls", 50, "--judge-option", "max_tokens=9", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert arguments["reflection_model"].model == "openai/strong"
    assert arguments["judge"].lm.kwargs["max_tokens"] == 9
    names = ("optimizer", "alpha", "seed", "max_cost", "max_calls", "attempts", "ledger")
    files = (labelled / "labels.lock", labelled / "judge.sqlite")
    assert tuple(arguments[name] for name in names) == ("bootstrap", 0.1, 3, 2.0, 50, *files)
    assert len(arguments["labels"]) == COUNT
    figures = json.loads(done.stdout)
    assert (figures["kept"], figures["gain"]["low"], figures["judge"]) == (True, 0.05, str(labelled / "judge.json"))
    assert "60 labels" in done.stderr
    assert "warning: two labels are odd" in done.stderr


def test_judge_that_is_not_kept_is_not_written_unless_a_flag_asks_for_it(
    labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_kept(judge: LMJudge) -> Alignment:
        return result(judge, kept=False)

    stub(monkeypatch, not_kept)
    before = names_in(labelled)
    done = align(labelled)
    assert done.exit_code == Exit.NOT_PASSED
    assert "judge: nothing is written" in done.stdout
    assert names_in(labelled) == before
    assert align(labelled, "--write-unchanged").exit_code == Exit.NOT_PASSED
    judge: Any = as_judge(labelled / "judge.json")
    assert not judge.alignment.kept


ENDS: dict[str, tuple[Callable[..., object], int, str]] = {
    "interrupted": (ending(KeyboardInterrupt()), Exit.INTERRUPTED, "Nothing is written to"),
    "limit": (ending(AlignmentError("`max_cost` is reached", Spend(), limit_reached=True)), Exit.STOPPED, "max_cost"),
    "judge": (ending(AlignmentError("wrong key", Spend())), Exit.JUDGE_FAILED, "wrong key"),
    "labels": (ending(ValueError("50 labels are needed")), Exit.BAD_INPUT, "50 labels are needed"),
    "optuna": (ending(ImportError("pip install dspy[optuna]")), Exit.BAD_INPUT, "pip install dspy[optuna]"),
}


@pytest.mark.parametrize("name", ENDS)
def test_command_that_ends_early_leaves_an_earlier_judge(
    labelled: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    end, code, text = ENDS[name]
    stub(monkeypatch, end)
    (labelled / "judge.json").write_text('{"earlier": 1}')
    before = names_in(labelled)
    done = align(labelled, "--overwrite")
    assert done.exit_code == code, done.output
    assert text in done.stderr
    assert (names_in(labelled), (labelled / "judge.json").read_text()) == (before, '{"earlier": 1}')


def test_limit_ends_a_real_alignment_and_its_answers_are_stored(labelled: Path, server: OpenAIServer) -> None:
    server.script = misread
    limited = align(labelled, "--api-base", server.url, "--max-calls", 5, "--optimizer", "bootstrap")
    assert (limited.exit_code, len(server.calls)) == (Exit.STOPPED, 5), limited.output
    assert "max_calls" in limited.stderr
    assert not (labelled / "judge.json").exists()
    assert (labelled / "judge.sqlite").exists()


def test_files_of_the_user_are_never_replaced(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = stub(monkeypatch, kept)
    (labelled / "judge.json").write_text("{}")
    assert "pass --overwrite" in align(labelled).stderr
    assert "must end with .json" in align(labelled, out="judge.txt").stderr
    (labelled / "labels.json").write_bytes((labelled / "labels.jsonl").read_bytes())
    done = run(
        "align", labelled / "run.jsonl", labelled / "labels.json", "--judge", "openai/m", "--out",
        labelled / "labels.json", "--overwrite",
    )  # fmt: skip
    assert "is read by this command" in done.stderr
    assert "is read by this command" in align(labelled, "--ledger", labelled / "x.json", out="x.json").stderr
    assert "is read by this command" in align(labelled, "--overwrite", judge=str(labelled / "judge.json")).stderr
    assert not arguments


def test_ledger_is_a_path_or_a_url_as_for_every_command(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = stub(monkeypatch, kept)
    ledgers: list[object] = []
    for ledger in (f"sqlite:///{labelled / 'l.sqlite'}", "postgresql://me:secret@host/db"):
        assert align(labelled, "--overwrite", "--ledger", ledger).exit_code == Exit.DONE
        ledgers.append(arguments["ledger"])
    assert ledgers == [labelled / "l.sqlite", "postgresql://me:secret@host/db"]
    done = align(labelled, "--overwrite", "--ledger", "mysql://host/db")
    assert (done.exit_code, "is not the URL of a ledger" in done.stderr) == (Exit.BAD_INPUT, True)


def test_interrupted_command_names_the_ledger_without_its_password(
    labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_judge: LMJudge) -> object:
        raise KeyboardInterrupt

    stub(monkeypatch, interrupt)
    done = align(labelled, "--ledger", "postgresql://me:secret@host/db")
    assert (done.exit_code, "host" in done.stderr, "secret" in done.stderr) == (Exit.INTERRUPTED, True, False)


def test_bad_input_is_one_line(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = stub(monkeypatch, kept)
    (labelled / "hostile.json").write_text("[" * 100_000)
    cases = {
        "offline": "has no model",
        str(labelled / "missing.json"): "missing.json: cannot be read",
        str(labelled / "hostile.json"): "hostile.json: ",
    }
    for judge, text in cases.items():
        done = align(labelled, judge=judge)
        assert (done.exit_code, text in done.stderr) == (Exit.BAD_INPUT, True), done.output
        assert "Traceback" not in done.output
    (labelled / "labels.jsonl").write_text("")
    assert align(labelled).exit_code == Exit.BAD_INPUT
    assert not arguments


def test_file_of_an_aligned_judge_goes_with_the_options_of_a_model(labelled: Path, server: OpenAIServer) -> None:
    judge = LMJudge("openai/m", api_key="none")
    judge.alignment = record(gain=Estimate(0.1, 0.01, None, 20))
    judge.save(labelled / "judge.json")
    (labelled / "rubric.yaml").write_text("- {requirement: Names the margin}\n")
    (labelled / "text.txt").write_text("17.2%")
    command = ["grade", labelled / "rubric.yaml", labelled / "text.txt", "--judge", labelled / "judge.json"]
    done = run(*command, "--api-base", server.url, "--api-key", "k", "--judge-option", "seed=7")
    assert done.exit_code == 0, done.output
    assert server.calls[0].body["seed"] == 7
    assert server.calls[0].headers["authorization"] == "Bearer k"
    refused = run(*command, "--judge-option", "system_prompt=Be strict.")
    assert refused.exit_code == Exit.BAD_INPUT
    assert "'system_prompt' has no effect on" in refused.stderr
    (labelled / "judge.json").write_text("{")
    assert run(*command).exit_code == Exit.BAD_INPUT
