"""The rendered page: its size, its limits, and what it shows without a browser."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import Cascade, Question
from rubric_integrations.reporting import report_page
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import Judgment, Spend
from tests.fakes import FakeJudge
from tests.graders.rubrics import ONE
from tests.reporting.page.runs import FIRST, RUBRIC, EchoJudge


def test_page_of_no_run_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one run at least, got none"):
        report_page([])


def test_page_of_a_run_with_unknown_tokens_shows_that_they_are_unknown() -> None:
    judge = FakeJudge(spend=Spend(calls=1, usage=None, cost=None))
    run = RunFile.of("silent", grade_many(["a"], Rubric(RUBRIC.criteria[:1]), PerCriterionGrader(judge)))
    assert "unknown <small>1 call, tokens unknown</small>" in report_page([run])
    assert re.search(r"\d+ calls, 0 tokens</small>", report_page([FIRST]))


def test_page_names_the_pass_mark_the_units_and_what_the_cells_mean() -> None:
    texts = ["right=MET error=MET tone=plain", ""]
    rows = grade_many(texts, Rubric(RUBRIC.criteria, pass_mark=0.65), PerCriterionGrader(EchoJudge()))
    page = report_page([RunFile.of("run", rows)])
    assert "<small>0 of 1, pass mark 0.65</small>" in page
    assert '<b class="pass-mark left" style="left:65.00%">' in page
    assert "1 below the pass mark, 0 at or above it." in page
    assert "How much higher the mean score would be if every submission did as the rubric wants." in page
    # The committed penalty takes 2 of the 4 points.
    assert '<span>0.500</span><span class="bar"><span style="width:100.00%">' in page
    assert "1 of 1 deducted" in page
    assert "not as the rubric wants, or a penalty that is deducted" in page
    without = report_page([FIRST._replace(pass_mark=None)])
    assert ", pass mark" not in without
    assert 'class="pass-mark' not in without


@pytest.mark.sizes
def test_page_of_five_hundred_submissions_and_ten_criteria_is_under_a_megabyte(
    record_property: Callable[[str, object], None],
) -> None:
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 9))) for _ in range(3000)]

    class Wordy:
        async def judge(self, question: Question) -> Judgment:
            met = generator.random() < 0.6
            return Judgment(
                verdict="MET" if met else "UNMET", value=float(met), reason=" ".join(generator.choices(words, k=25))
            )

    rubric = Rubric([Criterion(requirement=" ".join(generator.choices(words, k=12))) for _ in range(10)])
    texts = [" ".join(generator.choices(words, k=150)) for _ in range(500)]
    page = report_page([RunFile.of("big", grade_many(texts, rubric, PerCriterionGrader(Wordy())))])
    size = len(page.encode())
    record_property("shown", f"report page of 500 submissions x 10 criteria, random words: {size / 1000:.0f} kB")
    assert size < 1_050_000


def test_page_of_a_cascade_shows_what_was_escalated_and_others_do_not() -> None:
    cheap, strong = FakeJudge("CANNOT_ASSESS"), FakeJudge("MET", spend=Spend(calls=1, cost=0.5))
    pages = [
        report_page([RunFile.of("run", list(grade_many(["a"], ONE, PerCriterionGrader(judge))))])
        for judge in (Cascade(cheap, strong, 0), strong)
    ]
    assert ["100% escalated, about $0.0000 saved" in page for page in pages] == [True, False]
