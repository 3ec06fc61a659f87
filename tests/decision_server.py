"""Replies of a decision model in both protocols, for the server of `openai_server.py`, and every way to damage one.

with OpenAIServer(deciding({"q1": 0.9})) as server:
    DecisionJudge("jev-1.13.0", api_base=server.url)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.openai_server import Call, Reply, Script

Plan = Mapping[str, float | Sequence[float]]

SNAPSHOT = "jev-1.13.0-20261006"
"""The model that every reply names."""

USAGE = {"input_tokens": 88, "output_tokens": 3}


def respond(body: bytes | Mapping[str, Any], status: int = 200, **headers: str) -> Reply:
    """Make a response from its body. An underscore in the name of a header stands for a hyphen."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return Reply(head="\r\n".join(lines).encode() + b"\r\n\r\n" + data)


def deciding(plan: Plan | None = None, default: float = 0.9) -> Script:
    """Make a script that answers every question: by the plan, or else with the default probability of yes."""
    return lambda call: respond(reply_to(call.body, plan or {}, default))


def state_of(call: Call) -> Any:
    """Return the state of a request. In OpenAI's protocol, it is JSON in the text of the input."""
    if "state" in call.body:
        return call.body["state"]
    material = call.body["input"]
    return json.loads(material if isinstance(material, str) else material[0]["content"][0]["text"])


def questions_of(call: Call) -> dict[str, Any]:
    """Return the questions of a request by name."""
    return _questions(call.body)


def reply_to(body: Mapping[str, Any], plan: Plan, default: float = 0.9) -> dict[str, Any]:
    """Return the correct reply to a request."""
    is_openai = "input" in body
    answers = {
        name: _answer(question, plan.get(name, default), is_openai) for name, question in _questions(body).items()
    }
    entries: Any = [{"name": name, **answer} for name, answer in answers.items()] if is_openai else answers
    return {"model": SNAPSHOT, "answers": entries, "usage": dict(USAGE)}


def _questions(body: Mapping[str, Any]) -> dict[str, Any]:
    questions = body["questions"]
    return {question["name"]: question for question in questions} if isinstance(questions, list) else questions


def _answer(question: Mapping[str, Any], planned: float | Sequence[float], is_openai: bool) -> dict[str, Any]:
    kind = question["type"]
    if kind in ("noul", "predicate"):
        return {"type": kind, "probability" if is_openai else "noul": planned}
    keys: list[Any]
    if kind == "choice":
        keys = [choice["value"] for choice in question["choices"]] if is_openai else list(question["criteria"])
    else:
        keys = list(range(len(question["levels" if is_openai else "criteria"])))
    rest = [] if isinstance(planned, Sequence) else [(1 - planned) / (len(keys) - 1)] * (len(keys) - 1)
    shares = list(planned) if isinstance(planned, Sequence) else [planned, *rest]
    answer: dict[str, Any] = {"type": kind, "confidence": 0.4}
    if kind == "choice":
        answer["choice"] = keys[shares.index(max(shares))]
    else:
        answer["score"] = sum(index * share for index, share in enumerate(shares))
        if not is_openai:
            answer["legend"] = {str(index): level for index, level in enumerate(question["criteria"])}
    if is_openai:
        labels = [{} if kind == "choice" else {"label": question["levels"][key]["label"]} for key in keys]
        answer["probabilities"] = [
            {"value": key, **label, "probability": share}
            for key, label, share in zip(keys, labels, shares, strict=True)
        ]
    else:
        answer["probabilities"] = {str(key): share for key, share in zip(keys, shares, strict=True)}
    return answer


class Damage(NamedTuple):
    """A damaged reply.

    Attributes:
        path: The path of the damaged value.
        change: `delete`, `repeat` or `replace`.
        body: The JSON of the reply.
    """

    path: tuple[str | int, ...]
    change: str
    body: bytes


WRONG_VALUES: tuple[Any, ...] = (
    None, True, "", "x", "0.9", -0.1, 1.7, float("nan"), float("inf"), float("-inf"), 10**30, [], {}, [0.9], {"a": 0.9},
)  # fmt: skip
"""Values that are wrong wherever they occur in a reply."""


def damaged(reply: Any) -> Iterator[Damage]:
    """Yield every reply with one damaged value: deleted, replaced by a wrong value, or there twice."""
    for path in _paths(reply):
        for change in ("delete", "repeat"):
            yield Damage(path, change, _dump(_changed(reply, path, change)).encode())
        for value in WRONG_VALUES:
            yield Damage(path, "replace", _dump(_changed(reply, path, "replace", value)).encode())


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield (*path, key)
        yield from _paths(member, (*path, key))


class _Members(list[tuple[str, Any]]):
    """The members of an object, which may have the same name."""


def _changed(value: Any, path: tuple[str | int, ...], change: str, replacement: Any = None) -> Any:
    key, *rest = path
    pairs: list[tuple[Any, Any]] = list(value.items() if isinstance(value, dict) else enumerate(value))
    changed: list[tuple[Any, Any]] = []
    for name, member in pairs:
        if name != key:
            changed.append((name, member))
        elif rest:
            changed.append((name, _changed(member, tuple(rest), change, replacement)))
        elif change == "repeat":
            changed += [(name, member), (name, member)]
        elif change == "replace":
            changed.append((name, replacement))
    return _Members(changed) if isinstance(value, dict) else [member for _, member in changed]


def _dump(value: Any) -> str:
    if isinstance(value, _Members):
        return "{" + ",".join(f"{json.dumps(name)}:{_dump(member)}" for name, member in value) + "}"
    if isinstance(value, dict):
        return _dump(_Members(value.items()))
    return f"[{','.join(map(_dump, value))}]" if isinstance(value, list) else json.dumps(value)
