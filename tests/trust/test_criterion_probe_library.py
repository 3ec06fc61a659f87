"""The ready-made conciseness rubric is not accused by `probe_criteria`, because it declares its sensitivities."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.judges import Question
from rubric_integrations.rubric.case import find_evidence
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import probe_criteria

library: Any = pytest.importorskip("rubric_integrations.library", reason="there are no ready-made rubrics yet")

POLITE = ("Thank you", "happy to help", "pleasure", "I hope this helps", "patience", "hesitate")
PADDING = ("more than one way to look", "A few words about this text", "As with many subjects", "also be mentioned")


def judge_of(rubric: Rubric) -> ScriptedJudge:
    """Return a judge that gives the expected verdicts, and sees padding and politeness as a person would."""

    def answer(question: Question) -> str:
        text, name = question.submission.response, question.criterion.name or ""
        case = next(
            each
            for each in rubric.cases
            if each.submission.query == question.submission.query
            and {each.submission.response.split()[0], each.submission.response.split()[-1]} & set(text.split())
        )
        is_padded, is_polite = (any(words in text for words in of) for of in (PADDING, POLITE))
        repeats = "In summary: " in text
        added = {
            "opening": is_padded or is_polite or repeats,
            "closing": is_padded or is_polite or repeats,
            "background": is_padded,
            "repetition": is_padded or repeats,
        }
        expected, evidence = str(case.expect.verdicts.get(name, "UNMET")), case.evidence_of(name)
        if added.get(name):
            return "MET"
        is_changed = isinstance(evidence, str) and (
            not find_evidence(text, evidence) or "false: " in text or "not true" in text
        )
        return {"MET": "UNMET", "UNMET": "MET"}[expected] if is_changed else expected

    return ScriptedJudge(answer)


@pytest.mark.statistics
def test_conciseness_is_not_accused_and_is_without_its_sensitivities() -> None:
    rubric: Rubric = library.load("conciseness")
    report = probe_criteria(rubric, PerCriterionGrader(judge_of(rubric)))
    assert {name: row.faults for name, row in report.criteria.items() if row.faults} == {}
    assert report.criteria["answer"].result.evidence.flips == report.criteria["answer"].result.evidence.count
    undeclared = Rubric(
        [criterion.model_copy(update={"sensitive_to": ()}) for criterion in rubric.criteria], cases=rubric.cases
    )
    faults = {
        name: row.faults
        for name, row in probe_criteria(undeclared, PerCriterionGrader(judge_of(rubric))).criteria.items()
    }
    assert all("length" in faults[name] for name in ("opening", "closing", "repetition", "background"))
