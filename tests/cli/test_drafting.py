"""The command `draft`: what it writes, what it never replaces, and how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Rubric
from rubric_integrations.cli.console import Exit
from tests.cli.commands import run
from tests.openai_server import Call, OpenAIServer, Reply
from tests.trust.planted_pairs import BOB, DOCTOR, LIMIT, planted_pairs, proposal, reply_of

COUNT = 60
WORDS = {LIMIT: "at most", DOCTOR: "doctor", BOB: "Bob", "Is kind": "kind"}


def script(call: Call) -> Reply:
    if "`proposals`" in call.prompt:
        match = re.search(r"take at most \d+ g a day", call.prompt)
        quote = match[0] if match else "none"
        return Reply(
            text=reply_of(proposal(LIMIT, quote, name="limit"), proposal(BOB, quote), proposal("x", "nowhere"))
        )
    response = re.findall(r"Answer \d+:.*", call.prompt)[-1]
    return Reply(verdict="MET" if WORDS[call.criterion] in response else "UNMET")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in planted_pairs(COUNT)))
    return tmp_path


def draft(
    folder: Path, *options: object, server: OpenAIServer | None = None, replaced: dict[str, str] | None = None
) -> Any:
    names: dict[str, Any] = {"--pairs": folder / "pairs.jsonl", "--out": folder / "draft.yaml"}
    names |= {"--judge": "openai/j", "--proposer": "openai/p", "--api-key": "k"}
    names["--api-base"] = server.url if server else "http://127.0.0.1:9/v1"
    names |= {f"--{name}": value for name, value in (replaced or {}).items()}
    return run("draft", *(part for pair in names.items() for part in pair if pair[1]), *options)


def test_draft_is_written_with_its_evidence(folder: Path) -> None:
    with OpenAIServer(script) as server:
        result = draft(folder, server=server)
        assert result.exit_code == Exit.DONE, result.output
        text = (folder / "draft.yaml").read_text()
        rubric = Rubric.from_yaml(text)
        assert rubric.keys == ("limit",)
        assert [case.name for case in rubric.cases] == ["limit: met", "limit: unmet"]
        assert "# From the better answer of pair p" in text
        for shown in (LIMIT, "never met", "No verdict", "below 30", "written to", "stands in no text"):
            assert shown in " ".join(result.output.split()), shown
        models = {call.body["model"] for call in server.calls}
        assert models == {"j", "p"}
        calls = len(server.calls)
        again = draft(folder, server=server)
        assert again.exit_code == Exit.BAD_INPUT
        assert "--overwrite" in again.output
        assert draft(folder, "--overwrite", server=server).exit_code == Exit.DONE
        assert len(server.calls) == calls
    assert {path.name for path in folder.iterdir()} >= {"draft.sqlite", "draft.replies.jsonl"}
    assert "draft.cases.yaml" not in {path.name for path in folder.iterdir()}


def test_many_dropped_proposals_are_counted_and_not_listed(folder: Path) -> None:
    many = reply_of(*(proposal(f"Is number {number}", "nowhere") for number in range(80)))
    with OpenAIServer(lambda call: Reply(text=many) if "`proposals`" in call.prompt else Reply()) as server:
        result = draft(folder, server=server)
    assert result.exit_code == Exit.NOT_PASSED
    assert "30 further dropped proposals not listed: see --json." in " ".join(result.output.split())
    assert "80 proposals dropped" in result.output


def test_json_has_all_figures(folder: Path) -> None:
    with OpenAIServer(script) as server:
        result = draft(folder, "--json", "--seed", 1, server=server)
    figures = json.loads(result.stdout)
    assert figures["criteria"][0]["candidate"]["name"] == "limit"
    assert figures["separation"]["decision"] == "no verdict"
    assert figures["rubric"].endswith("draft.yaml")
    assert sum(figures["parts"].values()) == COUNT


def test_text_of_the_base_is_kept_and_its_cases_are_written_apart(folder: Path) -> None:
    text = "# mine\ncriteria:\n  - requirement: Is kind  # Ann\n"
    (folder / "base.yaml").write_text(text)
    with OpenAIServer(script) as server:
        result = draft(folder, "--base", folder / "base.yaml", server=server)
    assert result.exit_code == Exit.DONE, result.output
    assert (folder / "draft.yaml").read_text().startswith(text)
    assert (folder / "base.yaml").read_text() == text
    assert "limit: met" in (folder / "draft.cases.yaml").read_text()


def test_nothing_is_written_if_no_criterion_is_kept(folder: Path) -> None:
    def constant(call: Call) -> Reply:
        return script(call) if "`proposals`" in call.prompt else Reply()

    with OpenAIServer(constant) as server:
        result = draft(folder, server=server)
    assert result.exit_code == Exit.NOT_PASSED
    assert "always met" in result.output
    assert "nothing is written" in result.output
    assert not (folder / "draft.yaml").exists()


def test_example_is_a_text_or_rows(folder: Path) -> None:
    (folder / "good.txt").write_text("Answer 1: take at most 1 g a day.")
    (folder / "good.jsonl").write_text('{"id": "x", "query": "q", "response": "Answer 1: take at most 1 g a day."}\n')
    for name in ("good.txt", "good.jsonl"):
        with OpenAIServer(script) as server:
            result = draft(folder, "--example", folder / name, "--overwrite", server=server, replaced={"pairs": ""})
        assert result.exit_code == Exit.DONE, result.output
        assert "nothing is measured" in result.output
        assert Rubric.from_file(folder / "draft.yaml").keys == ("limit",)


def test_feedback_is_read_from_a_file(folder: Path) -> None:
    rows = [
        {"id": str(number), "response": pair[side], "label": {"better": "good", "worse": "bad"}[side]}
        for number, pair in enumerate(planted_pairs(120))
        for side in [("better", "worse")[number % 2]]
    ]
    (folder / "feedback.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with OpenAIServer(script) as server:
        result = draft(folder, "--feedback", folder / "feedback.jsonl", server=server, replaced={"pairs": ""})
    assert result.exit_code == Exit.DONE, result.output
    assert Rubric.from_file(folder / "draft.yaml").keys == ("limit",)


def _no_change(_folder: Path) -> None:
    pass


def _as_ledger(folder: Path) -> None:
    (folder / "draft.sqlite").write_bytes(b"no database")


@pytest.mark.parametrize(
    ("options", "replaced", "message", "prepare"),
    [
        ([], {"out": "draft.json"}, "must end with .yaml", _no_change),
        ([], {"pairs": "none.jsonl"}, "cannot be read", _no_change),
        ([], {"pairs": ""}, "exactly one of", _no_change),
        (["--example", "x.txt"], {}, "cannot be read", _no_change),
        (["--base", "none.yaml"], {}, "cannot be read", _no_change),
        (["--judge-option", "nonsense=1"], {}, "not a known key", _no_change),
        ([], {"proposer": " "}, "empty model name", _no_change),
        ([], {"judge": "offline", "api-base": "", "api-key": ""}, "no API key found", _no_change),
        ([], {}, "draft.sqlite", _as_ledger),
        (["--max-cost", "x"], {}, "x", _no_change),
    ],
)
def test_bad_input_ends_with_a_message_and_without_a_traceback(
    folder: Path, options: list[str], replaced: dict[str, str], message: str, prepare: Callable[[Path], None]
) -> None:
    prepare(folder)
    result = draft(folder, *options, replaced=replaced)
    assert result.exit_code in (Exit.BAD_INPUT, Exit.JUDGE_FAILED)
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not (folder / "draft.yaml").exists()


def test_output_never_replaces_an_input(folder: Path) -> None:
    before = (folder / "pairs.jsonl").read_text()
    (folder / "draft.yaml").symlink_to(folder / "pairs.jsonl")
    result = draft(folder, "--overwrite")
    assert result.exit_code == Exit.BAD_INPUT
    assert (folder / "pairs.jsonl").read_text() == before
    (folder / "base.yaml").write_text("- requirement: Is kind\n")
    assert (
        draft(
            folder, "--base", folder / "base.yaml", "--overwrite", replaced={"out": str(folder / "base.yaml")}
        ).exit_code
        == 2
    )


def test_models_that_cannot_be_used_end_with_their_code(folder: Path) -> None:
    with OpenAIServer(lambda _call: Reply(status=401)) as server:
        result = draft(folder, server=server)
    assert result.exit_code == Exit.JUDGE_FAILED
    assert "Nothing is kept" in " ".join(result.output.split())


PRICES = ("--price", "openai/j=1,2", "--price", "openai/p=2,4")


@pytest.mark.parametrize(
    ("limit", "judgments", "rest"), [("0.0001", 0, "of $0.0001 is reached"), ("0.15", 5, "the rest of $0.15.")]
)
def test_cost_limit_stops_the_draft(folder: Path, limit: str, judgments: int, rest: str) -> None:
    with OpenAIServer(script) as server:
        result = draft(folder, "--max-cost", limit, *PRICES, server=server)
        assert sum("`proposals`" not in call.prompt for call in server.calls) >= judgments
    assert result.exit_code == Exit.STOPPED, result.output
    words = " ".join(result.output.split())
    assert "`max_cost` of $" in words
    assert "is reached" in words
    assert rest in words


def test_prices_of_both_models_are_the_cost_of_the_draft(folder: Path) -> None:
    with OpenAIServer(script) as server:
        result = draft(folder, "--max-cost", "5", *PRICES, "--json", server=server)
        sizes = [(len(call.prompt) // 4, len(script(call).content) // 4) for call in server.calls]
        factors = [2 if "`proposals`" in call.prompt else 1 for call in server.calls]
    assert result.exit_code == Exit.DONE, result.output
    cost = sum(factor * (sent + 2 * received) for factor, (sent, received) in zip(factors, sizes, strict=True)) / 1e6
    assert json.loads(result.stdout)["spend"]["cost"] == pytest.approx(cost)


def test_unknown_prices_name_the_model_and_the_option(folder: Path) -> None:
    for price, model in (("openai/j=1,2", "p"), ("openai/p=1,2", "j")):
        with OpenAIServer(script) as server:
            result = draft(folder, "--max-cost", "5", "--price", price, server=server)
        words = " ".join(result.output.split())
        assert result.exit_code != Exit.DONE
        assert f"--price openai/{model}=IN,OUT" in words
        assert "max_calls" not in words
    result = draft(folder, "--max-cost", "5", "--price", "openai/x=1,2")
    assert result.exit_code == Exit.BAD_INPUT
    assert "`prices` names 'openai/x', and the models are 'openai/j' and 'openai/p'" in " ".join(result.output.split())


def test_hostile_proposals_are_printed_on_one_line(folder: Path) -> None:
    def hostile(call: Call) -> Reply:
        if "`proposals`" not in call.prompt:
            return script(call)
        return Reply(text=reply_of(proposal("Is\n::error::x \x1b[2J [red]kind", "nowhere at all")))

    with OpenAIServer(hostile) as server:
        result = draft(folder, server=server)
    assert "\x1b" not in result.output
    assert "\n::error::" not in result.output


def test_interrupted_draft_says_how_it_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(**_arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rubric_integrations.trust.draft_rubric", interrupt, raising=False)
    result = draft(folder)
    assert result.exit_code == Exit.INTERRUPTED
    assert "are not requested again by the same command" in " ".join(result.output.split())
    assert not list(folder.glob("draft.yaml*"))
