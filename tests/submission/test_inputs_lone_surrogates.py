"""Half an emoji in what is graded: a lone surrogate, which no file, no database and no JSON library can encode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dspy
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.judges import Question
from rubric_integrations.reporting.page import report_page
from rubric_integrations.runs import Ledger, RunFile
from rubric_integrations.scoring import Judgment
from rubric_integrations.submission import Row, as_submission, read_responses
from rubric_integrations.submission.inputs import read_row
from tests.fakes import FakeJudge

HALF, READABLE = "fine \ud83d", "fine \\ud83d"
RUBRIC = Rubric([Criterion(requirement="Is kind")])
CHAT = [{"role": "user", "content": HALF}, {"role": "assistant", "content": HALF}]
TEXTS = {"response": HALF, "thinking": HALF, "query": HALF, "reference": HALF}


class PricedJudge:
    """A judge whose calls cost at most as many dollars as they have bytes."""

    async def judge(self, question: Question) -> Judgment:
        return Judgment(verdict="MET", value=1.0)

    def highest_cost(self, text_bytes: int) -> float:
        return float(text_bytes)


WAYS_IN: dict[str, Callable[[Path], Submission]] = {
    "fields": lambda _: Submission.model_validate(TEXTS),
    "messages": lambda _: Submission.from_messages(CHAT, query=HALF, reference=HALF),
    "text": lambda _: as_submission(HALF, HALF, HALF),
    "thinking and output": lambda _: as_submission({"thinking": HALF, "output": HALF}),
    "thinking block": lambda _: as_submission(f"<think>{HALF}</think>{HALF}"),
    "submission with another query": lambda _: as_submission(Submission(response="x"), HALF, HALF),
    "row": lambda _: read_row(TEXTS, 1, HALF).submission or pytest.fail("no submission"),
    "file": lambda folder: rows_of(folder)[0].submission or pytest.fail("no submission"),
}


def rows_of(folder: Path) -> list[Row]:
    path = folder / "rows.jsonl"
    path.write_text('{"id": "a\\ud83d", "response": "fine \\ud83d", "query": "\\ud83d"}\n')
    return list(read_responses(path))


@pytest.mark.parametrize("way", WAYS_IN)
def test_submission_with_half_an_emoji_is_readable_and_can_be_encoded(way: str, tmp_path: Path) -> None:
    submission = WAYS_IN[way](tmp_path)
    assert Submission.model_validate_json(submission.model_dump_json()) == submission
    assert "\\ud83d" in submission.model_dump_json()


def test_submission_with_whole_emoji_is_unchanged() -> None:
    assert Submission(response="fine \U0001f600 \u00e9").response == "fine \U0001f600 \u00e9"


def test_submission_that_gets_a_long_query_is_refused() -> None:
    with pytest.raises(ValueError, match="`query` has 1,000,001 characters"):
        as_submission(Submission(response="x"), query="a" * 1_000_001)


def test_submission_that_gets_a_query_keeps_its_response() -> None:
    submission = Submission(response="<think>a</think>b", thinking="c", reference="d")
    assert as_submission(submission, query="e") == submission.model_copy(update={"query": "e"})


async def test_run_of_half_an_emoji_fills_its_ledger_and_its_page(tmp_path: Path) -> None:
    rows, grader = [*rows_of(tmp_path), HALF, TEXTS, CHAT], PerCriterionGrader(FakeJudge(fingerprint="fake"))
    with Ledger(tmp_path / "run.sqlite") as ledger:
        graded = [row async for row in grade_many(rows, RUBRIC, grader, ledger=ledger)]
        assert [(row.judge_error, row.score) for row in graded] == [(None, 1.0)] * 4
        assert [submission.response for _, submission in ledger.submissions()][:2] == [READABLE, READABLE]
    assert "<html" in report_page([RunFile.of("run", graded)])


async def test_run_of_half_an_emoji_with_a_spend_limit_has_scores() -> None:
    graded = [row async for row in grade_many([TEXTS], RUBRIC, PerCriterionGrader(PricedJudge()), max_cost=1e6)]
    assert [(row.judge_error, row.score) for row in graded] == [(None, 1.0)]


def test_metric_of_half_an_emoji_gives_a_score() -> None:
    metric = RubricMetric(RUBRIC, judge="offline")
    example = dspy.Example(question=HALF, answer=HALF).with_inputs("question")
    assert isinstance(float(metric(example, dspy.Prediction(answer=HALF))), float)
