"""Computes the report page's section on trust in the judge: agreement with human labels and corrected scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rubric_integrations._util.text import counted
from rubric_integrations.reporting.page.figures import ColumnKey, column_key
from rubric_integrations.reporting.page.redaction import LEFT_OUT, redact_sentences
from rubric_integrations.runs.files import GradedRow, RunFile
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.trust.calibration import CriterionCalibration, calibrate
from rubric_integrations.trust.matching import Match, match_labels
from rubric_integrations.trust.measure import Agreement, CriterionAgreement, agreement

# The most entries of the list, because nobody reads a longer one. The labels themselves are complete.
_MOST_DISAGREEMENTS = 200
_MOST_CHARACTERS = 300
# The most numbers of a scale that are listed. For a larger scale, the bias is more informative.
_MOST_NUMBERS = 7


class CorrectedRate(NamedTuple):
    """How often one answer is given to a criterion: by the judge, and as an estimate for human raters.

    Attributes:
        answer: The answer: MET, an option, or a number.
        judged: The share of the judge's answers that are this answer, from 0 to 1.
        corrected: The estimated share of this answer if humans had judged all rows.
    """

    answer: str
    judged: float
    corrected: Estimate


class CriterionTrust(NamedTuple):
    """The judge's agreement with human labels on one criterion, and the rates of the answers to it.

    Attributes:
        measured: The judge's agreement with human labels.
        rates: The rate of each answer. For a binary criterion, only the rate of MET. Empty for a scale with many
            numbers.
    """

    measured: CriterionAgreement
    rates: list[CorrectedRate]


class ShownDisagreement(NamedTuple):
    """One judgment on which the judge differs from the human labels.

    Attributes:
        place: The index of its row on the page, from 0.
        id: The row's id.
        criterion: The criterion's name.
        people: The answer of the majority of the human labels.
        judged: The judge's answer.
        reason: A rater's note about the judgment, possibly shortened. Empty if there is none.
        column: The key of the criterion's column.
    """

    place: int
    id: str
    criterion: str
    people: str
    judged: str
    reason: str
    column: ColumnKey


class Trust(NamedTuple):
    """The content of the section on trust in the judge.

    Attributes:
        problem: Why there are no figures. None if there are figures.
        agreement: The agreement with human labels. None if there are no figures.
        criteria: The figures of each criterion.
        labelled: The number of labelled judgments.
        decided: The number of labelled judgments on which both the human labels and the judge have an answer.
        score: The estimated mean score if humans had judged all rows. None if there are no figures.
        judge_score: The mean score from the judge. None if there is no score.
        warnings: Sentences that state the limits of the figures.
        disagreements: The judgments on which the judge differs from the human labels, in the order of the run.
        more: The number of further disagreements that are not shown.
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
        """Whether several raters labelled the same judgments. If so, their agreement with each other is shown."""
        return any(criterion.measured.people_alpha is not None for criterion in self.criteria)

    @property
    def kinds(self) -> list[tuple[tuple[str, str, str], int]]:
        """The choices for a filter of the disagreements: each criterion, and each pair of answers to it.

        Each choice is the criterion and the answers of people and of the judge, with the number of disagreements. The
        answers are empty for all disagreements about a criterion.
        """
        pairs = Counter((d.criterion, d.people, d.judged) for d in self.disagreements)
        criteria = Counter[str]()
        for (criterion, _, _), count in pairs.items():
            criteria[criterion] += count
        entries = [((criterion, "", ""), count) for criterion, count in criteria.items()]
        return sorted([*entries, *pairs.items()])


def trust_figures(runs: Sequence[RunFile], labels: Sequence[LabelledJudgment], *, redact: bool = False) -> Trust:
    """Compute the figures of the last run from human labels. Labels of deliberately chosen judgments are left out.

    With `redact`, names and notes of raters, and texts that may quote raters or submissions, are left out, too.
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
        if measured.raters:
            measured = measured.model_copy(update={"raters": (counted(len(measured.raters), "rater"),)})
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
    """Yield the judgments on which the judge differs from the majority of the human labels, in the order of the run."""
    # The page has the rows of the first run, followed by the rows that only the second run has.
    places = {key: place for place, key in enumerate(dict.fromkeys(key for run in runs for key in run.row_keys()))}
    keys = runs[-1].row_keys()
    for match in matches:
        judged, people = match.judged.verdict, match.consensus
        if judged is None or people is None or match.judged.error or people == judged:
            continue
        reason = next((label.reason for label in match.labels if label.reason), "")
        if len(reason) > _MOST_CHARACTERS:
            reason = reason[:_MOST_CHARACTERS] + "..."
        place, entry = places[keys[match.row]], match.judged
        yield ShownDisagreement(place, rows[match.row].id, entry.name, people, judged, reason, column_key(entry))
