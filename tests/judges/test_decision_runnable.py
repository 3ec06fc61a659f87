"""Decision models of LangChain that are called: their answers are checked as strictly as those of a server.

The tests need langchain-core 1.8. `make test-host-clients` runs them in an environment that has it.
"""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest

from rubric_integrations import Criterion, Option, PerCriterionGrader, Rubric, Scale, Submission, grade_many
from rubric_integrations.judges import DecisionJudge, LMJudge, Question, as_judge
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.submission import Attachment
from tests.decision_server import damaged, reply_to

pytest.importorskip("langchain_core.decisions", reason="langchain-core is older than 1.8: it has no decision models")

decisions: Any = import_module("langchain_core.decisions")
secret: Any = import_module("pydantic").SecretStr

RUBRIC = Rubric(
    [
        Criterion(requirement="Names the river", name="river"),
        Criterion(requirement="Invents a source", name="source", weight=-2),
        Criterion(
            requirement="Tone", name="tone", options=(Option(label="plain", value=1), Option(label="ornate", value=0))
        ),
        Criterion(requirement="Depth", name="depth", scale=Scale(min=1, max=2, levels={1: "none", 2: "all"})),
    ],
    guidelines="Be brief.",
)
REQUESTS: list[dict[str, Any]] = []
PLAN: dict[str, Any] = {}


class OwnModel(decisions.BaseDecisionModel):
    """A decision model that answers by `PLAN`, or sends the reply in it, or raises the error in it.

    It makes a response without LangChain's checks, unless `PLAN` has another way.
    """

    url: str = "https://user:secret-1@example.com/v1"
    own_key: Any = secret("sk-own-secret")
    temperature: float = 0.0

    @property
    def _provider(self) -> str:
        return "own"

    def _classify(self, state: Any, questions: Mapping[str, Any]) -> Any:
        asked_for = {name: question.model_dump(exclude_none=True) for name, question in questions.items()}
        body = {"state": state, "questions": asked_for}
        REQUESTS.append(body)
        if "error" in PLAN:
            raise PLAN["error"]
        content = PLAN["reply"] if "reply" in PLAN else reply_to(body, PLAN)
        return PLAN["make"](content) if "make" in PLAN else decisions.ClassifierResponse.model_construct(**content)


@pytest.fixture(autouse=True)
def _no_plan() -> None:  # pyright: ignore[reportUnusedFunction]
    REQUESTS.clear()
    PLAN.clear()


def judged(judge: Any, **fields: Any) -> Any:
    return asyncio.run(judge.judge(Question(Submission(response="The Nile.", **fields), RUBRIC.criteria[0])))


def failure_of(**fields: Any) -> JudgeFailure:
    with pytest.raises(JudgeFailure) as raised:
        judged(as_judge(OwnModel(model="own-1")), **fields)
    return raised.value


def test_model_is_called_once_for_all_criteria() -> None:
    PLAN.update(q1=0.2, q3=[0.1, 0.8, 0.1], make=decisions.ClassifierResponse.model_validate)
    grader = PerCriterionGrader(as_judge(OwnModel(model="own-1")))
    report = RUBRIC.grade_sync("The Nile.", grader=grader)
    assert [entry.verdict for entry in report.criteria][:2] == ["UNMET", "MET"]
    assert (report.spend.calls, report.spend.total_tokens) == (1, 91)
    [request] = REQUESTS
    assert request["state"] == {"response": "The Nile."}
    assert list(request["questions"]) == [
        "q1", "q1_sufficient", "q2", "q2_sufficient", "q3", "q4", "q4_sufficient",
    ]  # fmt: skip
    assert request["questions"]["q1"] == {
        "type": "noul",
        "instructions": "Guidelines: Be brief.\n\nDoes `response` do what this requirement says, fully and not only in "
        "part?\nRequirement: Names the river",
    }
    assert request["questions"]["q4"]["criteria"] == ["none", "all"]


def test_every_damaged_reply_is_a_failure_or_the_same_judgment() -> None:
    judge = as_judge(OwnModel(model="own-1"))
    expected = judged(judge)
    reply, question = reply_to(REQUESTS[0], {}), Question(Submission(response="The Nile."), RUBRIC.criteria[0])
    for damage in damaged(reply["answers"]):
        if damage.change == "repeat":
            continue
        PLAN["reply"] = {**reply, "answers": json.loads(damage.body)}
        [result] = asyncio.run(_results(judge.judge(question)))
        if isinstance(result, JudgeFailure):
            assert (result.kind, result.retryable) == ("parse", True)
        else:
            assert (result.verdict, result.probabilities) == (expected.verdict, expected.probabilities)


async def _results(*calls: Any) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


class _StatusError(Exception):
    def __init__(self, status: int, message: str = "no") -> None:
        super().__init__(message)
        headers = {"retry-after": "2"}
        self.response = type("Response", (), {"status_code": status, "headers": headers})()


class APIConnectionError(Exception):
    """An error without a status, as the SDKs of OpenAI and Anthropic raise it."""


@pytest.mark.parametrize(
    ("error", "kind", "retryable", "about_text"),
    [
        (_StatusError(429), "transport", True, False),
        (_StatusError(529), "transport", True, False),
        (_StatusError(413), "config", False, True),
        (_StatusError(401, "bad key sk-own-secret"), "config", False, False),
        (TimeoutError("slow"), "transport", True, False),
        (APIConnectionError("Connection error."), "transport", True, False),
        (RuntimeError("odd"), "config", False, False),
    ],
)
def test_error_of_the_model_is_a_failure_of_its_kind(
    error: Exception, kind: str, retryable: bool, about_text: bool
) -> None:
    PLAN["error"] = error
    failure = failure_of()
    assert (failure.kind, failure.retryable, failure.about_text) == (kind, retryable, about_text)
    assert "sk-own-secret" not in failure.message
    assert failure.retry_after == (2.0 if isinstance(error, _StatusError) and kind == "transport" else None)


def test_refusal_is_about_the_text_and_final() -> None:
    PLAN["error"] = import_module("langchain_core.exceptions").ModelRefusalError("no")
    failure = failure_of()
    assert (failure.kind, failure.retryable, failure.about_text) == ("parse", False, True)


class _Other:
    """A response of another class."""

    usage = None

    def __init__(self, content: Any) -> None:
        self.content = content


def test_reply_that_langchain_refuses_is_unreadable() -> None:
    PLAN.update(make=decisions.ClassifierResponse.model_validate, reply={"model": "m"})
    assert (failure_of().kind, failure_of().retryable) == ("parse", True)
    PLAN["make"] = _Other
    assert (failure_of().kind, failure_of().retryable) == ("parse", True)


def test_image_is_a_failure_about_the_text() -> None:
    failure = failure_of(attachments=(Attachment(data="AAAA", mime_type="image/png"),))
    assert failure.about_text
    assert REQUESTS == []


def test_fingerprint_has_the_settings_and_no_credential() -> None:
    judge: Any = as_judge(OwnModel(model="own-1"))
    same: Any = as_judge(OwnModel(model="own-1", own_key=secret("other"), url="https://user:x@example.com/v1"))
    assert judge.fingerprint() == same.fingerprint()
    others = [{"temperature": 1.0}, {"model": "own-2"}, {"url": "https://other.com/v1"}]
    fingerprints = {as_judge(OwnModel(**{"model": "own-1", **other})).fingerprint() for other in others}  # pyright: ignore
    assert len(fingerprints | {judge.fingerprint()}) == 4
    assert "secret" not in judge.fingerprint() + repr(judge)
    assert pickle.loads(pickle.dumps(judge)).fingerprint() == judge.fingerprint()


def test_run_is_resumed_without_a_call(tmp_path: Any) -> None:
    rows = [{"id": str(number), "response": f"The Nile {number}."} for number in range(3)]
    for calls in (3, 3):
        grader = PerCriterionGrader(as_judge(OwnModel(model="own-1")))
        assert len(list(grade_many(rows, RUBRIC, grader, ledger=tmp_path / "ledger.sqlite"))) == 3
        assert len(REQUESTS) == calls


def test_program_calls_the_model_and_its_thresholds_name_no_model() -> None:
    judge = as_judge(OwnModel(model="own-1"))
    assert isinstance(judge, DecisionJudge)
    program: Any = judge.program(RUBRIC)
    program.fields = {"river": {"threshold": 0.95}}
    assert program(response="The Nile.").river is False
    assert judge.with_program(program).thresholds.judge is None


def test_language_model_judge_refuses_the_model() -> None:
    with pytest.raises(ValueError, match="OwnModel, a decision model"):
        LMJudge(OwnModel(model="own-1"))
