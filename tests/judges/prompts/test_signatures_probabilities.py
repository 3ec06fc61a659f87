"""The probabilities of a verdict, where they are requested and DSPy can decode them."""

from __future__ import annotations

import json

import pytest

from rubric_integrations.judges import LMJudge
from rubric_integrations.judges.prompts import signatures
from rubric_integrations.judges.prompts.signatures import VerdictProbabilities, read_probabilities
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import FakeModel
from tests.judges.questions import MET_REPLY, judge_one


def test_confidence_and_expected_value_are_reported_beside_the_verdict() -> None:
    shares = {"MET": 0.6, "UNMET": 0.2, "CANNOT_ASSESS": 0.2}
    reply = json.dumps({"explanation": "e", "verdict": {"probabilities": shares, "confidence": 0.7}})
    judgment = judge_one(LMJudge(FakeModel(reply), confidence=True))
    assert (judgment.verdict, judgment.value, judgment.confidence) == ("MET", 1.0, 0.7)
    assert judgment.expected_value == pytest.approx(0.75)


def test_confidence_is_absent_where_dspy_lacks_the_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "Choice", None)
    judgment = judge_one(LMJudge(FakeModel(MET_REPLY), confidence=True))
    assert (judgment.verdict, judgment.confidence, judgment.expected_value) == ("MET", None, None)


def test_invalid_probabilities_are_a_parse_failure() -> None:
    with pytest.raises(JudgeFailure) as error:
        judge_one(LMJudge(FakeModel('{"explanation": "e", "verdict": {"probabilities": {"MET": 7}}}'), confidence=True))
    assert (error.value.kind, error.value.retryable, error.value.spend.calls) == ("parse", True, 1)


def test_plain_verdict_has_no_probabilities() -> None:
    assert read_probabilities("MET") == ("MET", VerdictProbabilities())
