"""Keys and home folders in sessions are masked, and nothing else is changed."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations.submission import Trajectory
from rubric_integrations.submission.dialects.blocks import Call, Message, Result, Text
from rubric_integrations.submission.dialects.sessions import MASKED, Mask
from tests.submission.sessions import calls, model, result, returns, says, text, use, user

BODY = "Ab1" * 12
KEYS = {
    "Anthropic": f"sk-ant-api03-{BODY}", "OpenAI": f"sk-{BODY}", "project": f"sk-proj-{BODY}", "GitHub": f"ghp_{BODY}",
    "fine-grained": f"github_pat_{BODY}", "GitLab": f"glpat-{BODY}", "AWS": "AKIA" + "AB12" * 4,
    "Google": f"AIza{BODY}", "Slack": f"xoxb-{BODY}", "Stripe": f"sk_live_{BODY}", "Hugging Face": f"hf_{BODY}",
    "token": f"eyJ{BODY}.eyJ{BODY}.{BODY}",
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("around", ["{}", "export X={}", '"{}"', "key: {}, next", "({})", "\n{}\n"])
def test_key_is_masked_and_the_text_around_it_is_kept(name: str, around: str) -> None:
    mask = Mask()
    assert mask.text(around.format(KEYS[name])) == around.format(MASKED)
    assert mask.keys == 1
    assert mask.text(around.format(MASKED)) == around.format(MASKED)


@pytest.mark.parametrize(
    ("shown", "masked"),
    [
        ("DB_PASSWORD=hunter2hunter2", f"DB_PASSWORD={MASKED}"),
        ("OPENAI_API_KEY='abcdefgh12'", f"OPENAI_API_KEY='{MASKED}'"),
        ("Authorization: Bearer abcdef.1234", f"Authorization: Bearer {MASKED}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nx/y+=\n-----END RSA", f"{MASKED}-----END RSA"),
        ("/home/ann/shop /Users/ann.b/x", "~/shop ~/x"),
        (r"C:\Users\ann\shop", r"~\shop"),
        ("file:///home/ann/x", "file://~/x"),
    ],
)
def test_secret_and_home_folder_are_masked(shown: str, masked: str) -> None:
    assert Mask().text(shown) == masked


@pytest.mark.parametrize(
    "words",
    ["sk-learn", "a task-force-of-twenty-people-or-more", "MAX_TOKENS=12", "https://x.org/home/page", "~/home/x",
     "AKIA", "the token is", "/usr/home/ann", "sha256 " + "ab12" * 16],
)  # fmt: skip
def test_ordinary_text_is_not_masked(words: str) -> None:
    mask = Mask()
    assert (mask.text(words), mask.keys) == (words, 0)


@given(st.text(alphabet="sk-_=:./AB1 \n\"'homeUsers~\\"), st.sampled_from(sorted(KEYS.values())))
def test_masking_again_changes_nothing(words: str, key: str) -> None:
    once = Mask().text(f"{words} {key} {words}")
    assert key not in once
    assert Mask().text(once) == once


@pytest.mark.parametrize(
    "part", ["sk-", "eyJ", "eyJabcdefgh.", "TOKEN", "API_KEY_", "-----BEGIN PRIVATE KEY-----", "/home/", "xoxb-",
             "authorization: bearer ", "-----BEGIN ", "A", "SECRET=\"", "sk-ant-", "pypi-", "<system-reminder>"],
)  # fmt: skip
def test_hostile_text_is_masked_in_linear_time(part: str) -> None:
    # With a quadratic time, it takes several minutes.
    words = part * (2_000_000 // len(part))
    assert len(Mask().text(words)) <= len(words) + 1_000_000


def test_arguments_texts_and_results_are_masked_and_names_stay_different() -> None:
    key, home = KEYS["GitHub"], "/home/ann"
    arguments: dict[str, Any] = {"a": [key, {"b": f"{home}/x"}], "n": 1, f"{home}/x": 1, f"{home}/y": 2}
    message = Message("assistant", [Text(key), Call("look", arguments, "c"), Result(key, "c")], "m")
    mask = Mask()
    [masked] = mask.messages([message])
    expected = {"a": [MASKED, {"b": "~/x"}], "n": 1, "~/x": 1, "~/y": 2}
    assert masked.parts == [Text(MASKED), Call("look", expected, "c"), Result(MASKED, "c")]
    assert mask.keys == 3
    same = Message("assistant", [Call("look", {"/home/ann": 1, "/home/ben": 2}, "c")], "m")
    assert Mask().messages([same])[0].parts == [Call("look", {"/home/ann": 1, "/home/ben": 2}, "c")]


@pytest.mark.parametrize(
    ("tool", "lines"),
    [
        ("Claude Code", [user("u1", "Go."), model("a1", "m1", use("c1", command=f"echo {KEYS['AWS']}")),
                         user("u2", result("c1", KEYS["OpenAI"])), model("a2", "m2", text("Done."))]),
        ("Codex", [says("user", "Go."), calls("c1", f"echo {KEYS['AWS']}"), returns("c1", KEYS["OpenAI"]),
                   says("assistant", "Done.")]),
    ],
)  # fmt: skip
def test_masked_keys_of_a_session_are_counted(tool: str, lines: list[Any]) -> None:
    with pytest.warns(UserWarning, match=f"a session of {tool}: 2 keys in it were masked"):
        steps = Trajectory.from_messages(lines).steps
    assert steps[1].calls[0].result == MASKED


def test_depth_of_arguments_is_limited_before_they_are_masked() -> None:
    deep: Any = "x"
    for _ in range(sys.getrecursionlimit()):
        deep = [deep]
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        Trajectory.from_messages([user("u1", "Go."), model("a1", "m1", use("c1", deep=deep))])
