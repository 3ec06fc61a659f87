"""Computes how far the judge can be trusted, for the report page: its agreement with people, and corrected scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rubric_integrations.reporting.page.redaction import LEFT_OUT, redact_sentences
from rubric_integrations.runs.files import GradedRow, RunFile
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.trust.calibration import CriterionCalibration, calibrate
from rubric_integrations.trust.matching import Match, match_labels
from rubric_integrations.trust.measure import Agreement, CriterionAgreement, agreement

# More would make a list that nobody reads; the labels themselves have all.
_MOST_DISAGREEMENTS = 200
_MOST_CHARACTERS = 300
# A scale with more numbers has no list of them: its bias says more.
_MOST_NUMBERS = 7


class CorrectedRate(NamedTuple):
    """How often a criterion has one answer.

    Attributes:
        answer: The answer: MET, an option, or a number.
        judged: The judge's own share of it, from 0 to 1.
        corrected: The share that people would give.
    """

    answer: str
    judged: float
    corrected: Estimate


class CriterionTrust(NamedTuple):
    """How far the judge can be trusted on one criterion.

    Attributes:
        measured: Its agreement with people.
        rates: How often each answer occurs; only MET for a binary criterion, and none for a scale with many numbers.
    """

    measured: CriterionAgreement
    rates: list[CorrectedRate]


class ShownDisagreement(NamedTuple):
    """One judgment on which people and the judge differ.

    Attributes:
        place: The place of its row on the page, from 0.
        id: The row's id.
        criterion: The criterion's name.
        people: The answer of most people.
        judged: The judge's answer.
        reason: What a rater noted about it, or the beginning of it; may be empty.
    """

    place: int
    id: str
    criterion: str
    people: str
    judged: str
    reason: str


class Trust(NamedTuple):
    """What the section shows.

    Attributes:
        problem: Why there are no figures; None if there are.
        agreement: The agreement with people; None without figures.
        criteria: The figures of each criterion.
        labelled: The number of labelled judgments.
        decided: How many of them people and the judge both decided.
        score: The mean score that people's answers would give; None without figures.
        judge_score: The judge's mean score; None without a score.
        warnings: What limits the figures.
        disagreements: Where people and the judge differ, in the order of the run.
        more: How many more of these there are than are shown.
    """

    problem: str | None = None
    agreement: Agreement | None = None
    criteria: Sequence[CriterionTrust] = ()
    labelled: int = 0
    decided: int = 0
    score: Estimate | None = None
    judge_score: float | None = None
    warnings: Sequence[str] = ()
    disagreements: Sequence[ShownDisagreement] = ()
    more: int = 0

    @property
    def has_alpha(self) -> bool:
        """Whether several people labelled the same judgments, so that there is their agreement with each other."""
        return any(criterion.measured.people_alpha is not None for criterion in self.criteria)


def trust_figures(runs: Sequence[RunFile], labels: Sequence[LabelledJudgment], *, redact: bool = False) -> Trust:
    """Compute the figures of the last run from people's labels. Labels that people chose to make are left out.

    With `redact`, what people wrote and what may quote them or the submissions is left out, too.
    """
    run = runs[-1]
    if not labels:
        return Trust("There are no labels. Draw judgments, and label them: rubric-integrations label RUN.")
    if all(label.sampled == "chosen" for label in labels):
        return Trust(
            f"All {len(labels):,} labels are of judgments that people chose, such as those that they overruled: they "
            "say nothing about how often the judge is right. Draw judgments: rubric-integrations label RUN. If yours "
            "were drawn at random, write random in a column named sampled."
        )
    rows = list(run.rows)
    try:
        matches = match_labels(rows, labels).matches
        if not matches:
            return Trust(f"None of the {len(labels):,} labels belongs to a judgment of this run.")
        measured = agreement(rows, labels)
        corrected = calibrate(rows, labels)
    except (ImportError, ValueError) as error:
        return Trust(f"The figures cannot be computed: {LEFT_OUT if redact else error}.")
    warnings = list(dict.fromkeys([*measured.warnings, *corrected.warnings]))
    if undecided := sum(criterion.undecided for criterion in measured.criteria.values()):
        warnings.append(
            f"{undecided:,} of {len(matches):,} labelled judgments are not in the list of differences: their raters "
            "disagree, and no answer has a majority"
        )
    if measured.unmatched:
        warnings.append(f"{measured.unmatched:,} labels belong to no judgment of this run")
    disagreements = list(_disagreements(runs, rows, matches))
    if redact:
        disagreements = [difference._replace(reason="") for difference in disagreements]
        warnings = redact_sentences(warnings, "agree")
    return Trust(
        agreement=measured,
        criteria=[CriterionTrust(of, _rates(of, corrected.criteria.get(key))) for key, of in measured.criteria.items()],
        labelled=len(matches),
        decided=sum(criterion.n for criterion in measured.criteria.values()),
        score=corrected.score,
        judge_score=corrected.judge_score,
        warnings=warnings,
        disagreements=disagreements[:_MOST_DISAGREEMENTS],
        more=max(0, len(disagreements) - _MOST_DISAGREEMENTS),
    )


def _rates(measured: CriterionAgreement, calibration: CriterionCalibration | None) -> list[CorrectedRate]:
    if calibration is None:
        return []
    if measured.kind == "scaled" and len(calibration.rates) > _MOST_NUMBERS:
        return []
    return [CorrectedRate(answer, judged or 0.0, rate) for answer, rate, judged in calibration.rates]


def _disagreements(
    runs: Sequence[RunFile], rows: Sequence[GradedRow], matches: Sequence[Match]
) -> Iterator[ShownDisagreement]:
    # The page has the rows of the first run, and then those that only the second one has.
    places = {key: place for place, key in enumerate(dict.fromkeys(key for run in runs for key in run.row_keys()))}
    keys = runs[-1].row_keys()
    for match in matches:
        judged, people = match.judged.verdict, match.consensus
        if judged is None or people is None or match.judged.error or people == judged:
            continue
        reason = next((label.reason for label in match.labels if label.reason), "")
        if len(reason) > _MOST_CHARACTERS:
            reason = reason[:_MOST_CHARACTERS] + "..."
        yield ShownDisagreement(places[keys[match.row]], rows[match.row].id, match.judged.name, people, judged, reason)
