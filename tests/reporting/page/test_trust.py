"""The section "Can you trust this judge?" of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rubric_integrations import Criterion, Rubric, Scale
from rubric_integrations.reporting import report_page
from rubric_integrations.reporting.page.trust_figures import trust_figures
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.trust import statistics
from tests.trust.runs import binary_rubric, labels_of, run_of

RUBRIC = binary_rubric(2)
PEOPLE = [["MET", "UNMET"], ["UNMET", "UNMET"], ["MET", "MET"], ["MET", "UNMET"]] * 4
# The judge is too lenient on the first criterion of every fourth submission.
JUDGED = [["MET", "UNMET"], ["MET", "UNMET"], ["MET", "MET"], ["MET", "UNMET"]] * 6
RUN = RunFile("run", None, None, run_of(RUBRIC, JUDGED))
LABELS = labels_of(RUBRIC, PEOPLE, rater="Ann")


def test_section_shows_agreement_corrected_figures_and_links_to_the_disagreements(show: Callable[..., Any]) -> None:
    figures = trust_figures([RUN], LABELS)
    assert [(of.measured.name, of.measured.n) for of in figures.criteria] == [("c0", 16), ("c1", 16)]
    (rate,) = figures.criteria[0].rates
    assert (rate.answer, rate.judged, rate.corrected.value) == ("MET", 1.0, pytest.approx(0.75))
    assert figures.score is not None
    assert figures.judge_score is not None
    assert figures.score.value is not None
    assert figures.score.value < figures.judge_score
    assert [difference.place for difference in figures.disagreements] == [1, 5, 9, 13]
    page = show(RUN, labels=LABELS)
    section = " ".join(page.inner_text("section[aria-labelledby=trust]").split())
    assert "32 labels by Ann" in section
    assert "A kappa of 0.05 is hardly better than guesses" in section
    assert "MET 0.75" in section
    assert "(1.00)" in section
    page.click(".differences a >> nth=1")
    page.wait_for_selector("#one h2:text-is('6')")


def test_filter_of_the_differences_shows_one_criterion_or_one_pair_of_answers(show: Callable[..., Any]) -> None:
    evil = '"><b>c0'
    rubric = Rubric([Criterion(name=evil, requirement="Does 0"), Criterion(name=evil + "2", requirement="Does 1")])
    run = RunFile("run", None, None, run_of(rubric, [["MET", "UNMET"], ["UNMET", "UNMET"], ["MET", "MET"]]))
    labels = labels_of(rubric, [["UNMET", "MET"], ["MET", "UNMET"], ["UNMET", "MET"]], rater="Ann")
    page = show(run, labels=labels)
    choices = page.eval_on_selector_all("#differ option", "all => all.map(option => option.textContent)")
    assert choices == [
        "all 4", f"{evil} (3)", f"{evil}: people MET, the judge UNMET (1)", f"{evil}: people UNMET, the judge MET (2)",
        f"{evil}2 (1)", f"{evil}2: people MET, the judge UNMET (1)",
    ]  # fmt: skip
    for place, count in enumerate([4, 3, 1, 2, 1, 1]):
        page.select_option("#differ", index=place)
        assert page.locator(".differences li:not([hidden])").count() == count
    page.click(".differences li:not([hidden]) a")
    page.wait_for_selector("#one .first-answer")
    assert page.inner_text("#one .first-answer .words") == "Does 1"


def test_section_escapes_what_raters_wrote() -> None:
    evil = "<img src=x onerror=alert(1)>"
    labels = [label.model_copy(update={"rater": evil, "reason": evil}) for label in LABELS]
    page = report_page([RUN], labels=labels)
    assert evil not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_section_isolates_text_that_would_reverse_the_words_around_it_and_cuts_long_notes() -> None:
    evil = "\u202eAnn"
    labels = [label.model_copy(update={"rater": evil, "reason": "\\" * 10_000}) for label in LABELS]
    page = report_page([RUN._replace(judge=evil)], labels=labels)
    # Elements of this name are isolated, and so are links, names and requirements.
    assert page.count(f"<bdi>{evil}</bdi>") == 2
    assert "a,b,bdi,small,.key,.words" in page
    assert "\\" * 300 + "..." in page
    assert "\\" * 301 not in page


def test_section_of_two_raters_shows_how_far_they_agree_and_counts_their_ties() -> None:
    second = [["UNMET", "UNMET"], *PEOPLE[1:]]
    figures = trust_figures([RUN], [*LABELS, *labels_of(RUBRIC, second, rater="Ben")])
    assert (figures.labelled, figures.decided, figures.has_alpha) == (32, 32, True)
    assert any(warning.startswith("1 of 32 labelled judgments are not in the list") for warning in figures.warnings)
    assert not trust_figures([RUN], LABELS).has_alpha


def test_section_has_the_rates_of_options_and_of_short_scales() -> None:
    rubric = Rubric(
        [
            Criterion(name="long", requirement="Long?", scale=Scale(min=0, max=10)),
            Criterion(name="short", requirement="Short?", scale=Scale(min=0, max=20)),
            Criterion(name="right", requirement="Right?", weight=-1),
        ]
    )
    answers = [[str(n % 9), ("10", "9")[n % 2], ("MET", "CANNOT_ASSESS", None)[n % 3]] for n in range(18)]
    run = RunFile("run", None, None, run_of(rubric, answers))
    labels = labels_of(rubric, [[number, other, "UNMET"] for number, other, _ in answers])
    long, short, right = trust_figures([run], labels).criteria
    assert long.rates == []
    assert [rate.answer for rate in short.rates] == ["9", "10"]
    assert (right.measured.judge_abstained, right.measured.failed, right.measured.n) == (6, 6, 6)


def test_section_of_two_runs_links_to_the_rows_of_the_page() -> None:
    earlier = RunFile("earlier", None, None, [row._replace(id=f"other {row.id}") for row in RUN.rows])
    figures = trust_figures([earlier, RUN], LABELS)
    assert [difference.place for difference in figures.disagreements] == [24 + 1, 24 + 5, 24 + 9, 24 + 13]


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([], "There are no labels."),
        (labels_of(RUBRIC, PEOPLE, "chosen"), "they say nothing about how often the judge is right"),
        (labels_of(RUBRIC, PEOPLE, text="elsewhere"), "None of the 32 labels belongs to a judgment of this run"),
    ],
)
def test_section_without_usable_labels_says_why(labels: Sequence[LabelledJudgment], problem: str) -> None:
    figures = trust_figures([RUN], labels)
    assert problem in (figures.problem or "")
    assert not figures.criteria


def test_section_leaves_chosen_labels_out_and_says_so() -> None:
    chosen = labels_of(RUBRIC, [[None, None]] * 20 + [["UNMET", None]], "chosen")
    figures = trust_figures([RUN], [*LABELS, *chosen])
    assert figures.agreement is not None
    assert figures.agreement.labels == 32
    assert any("`chosen` labels are left out (1)" in warning for warning in figures.warnings)
    assert any("32 of 32 labels are not marked as blind" in warning for warning in figures.warnings)


def test_section_without_scipy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise ImportError("intervals need scipy: pip install 'rubric-integrations[agreement]'")

    monkeypatch.setattr(statistics, "special", missing)
    assert "rubric-integrations[agreement]" in (trust_figures([RUN], LABELS).problem or "")
