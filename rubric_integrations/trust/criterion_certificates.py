"""`certify`: certifies one threshold for all criteria, or one for MET and one for UNMET of each criterion.

The promise about a verdict bounds the rate of wrong answers among the answers that a judge *calls* by this verdict. A
wrong MET and a wrong UNMET therefore have separate bounds, which the rate of a pooled threshold can hide.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, overload

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import counted
from rubric_integrations.judges.thresholds import MODEL_NAME, CriterionThresholds, Thresholds, verdict_probabilities
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.judgment import Judgment
from rubric_integrations.scoring.labels import LabelledJudgment, judgment_digest
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.trust.certification import (
    Certificate,
    CertificateStep,
    ComparedAnswers,
    Place,
    SureAnswer,
    certify_pooled,
    compare_answers,
    draw_judgments,
    entries_of,
    fixed_sequence_steps,
    kept_needed,
    thresholds_of,
)
from rubric_integrations.trust.matching import Cluster, RunLike, criterion_keys

CalledVerdict: TypeAlias = Literal["MET", "UNMET"]
"""A verdict that a judge gives to a binary criterion."""

_COLUMNS = ("criterion", "verdict", "threshold", "labelled", "wrong", "at most", "labels missing")


class VerdictCertificate(Record):
    """The lowest probability at which one verdict on one criterion is certified.

    Attributes:
        verdict: The verdict.
        threshold: The lowest certified probability of the verdict. None if nothing is certified.
        labelled: The number of labelled answers with this verdict: one for each submission or group of rows.
        kept: The number of labelled answers that the threshold keeps. Without a threshold, the number of labelled
            answers in the first test.
        errors: The number of wrong answers among `kept`.
        bound: The upper limit of the rate of wrong answers among the answers with this verdict that the threshold
            keeps, at the level 1 - delta / 2. None without a threshold.
        labels_missing: The approximate number of further labelled answers with this verdict with which the judge would
            be certified in 80 % of cases, or always if none of them is wrong. None if no number is sufficient, because
            too many are wrong. 0 if a threshold is certified.
        steps: The thresholds that were tested, the highest first.
    """

    verdict: CalledVerdict
    threshold: float | None
    labelled: int
    kept: int
    errors: int
    bound: float | None
    labels_missing: int | None
    steps: tuple[CertificateStep, ...]

    def summary(self) -> str:
        """Return the result as a short text."""
        if self.threshold is not None:
            return f"{self.verdict} from {self.threshold:.3g} ({self.errors:,} of {self.kept:,} labelled answers wrong)"
        if self.labels_missing is None:
            return (
                f"{self.verdict} not certified ({self.errors:,} of {self.kept:,} labelled answers wrong, which is too "
                "many)"
            )
        missing = counted(self.labels_missing, f"labelled {self.verdict} answer")
        return f"{self.verdict} not certified (about {missing} missing)"


class CriterionCertificate(Record):
    """The certified thresholds of one criterion.

    Attributes:
        requirement: The requirement, which identifies the criterion.
        met: The certificate of MET.
        unmet: The certificate of UNMET.
    """

    requirement: str
    met: VerdictCertificate
    unmet: VerdictCertificate

    @property
    def verdicts(self) -> tuple[VerdictCertificate, VerdictCertificate]:
        """The certificates of both verdicts."""
        return self.met, self.unmet


class CriterionCertificates(Record):
    """The certified thresholds of a cheap judge for each criterion and verdict.

    Each promise applies by itself: with a probability of at least 1 - `delta` / 2, at most `alpha` of the answers that
    are called MET (or UNMET) with at least the threshold's probability are wrong. All promises together can fail more
    often.

    Attributes:
        alpha: The highest accepted rate of wrong answers.
        delta: The probability that one of the two promises about a criterion fails.
        criteria: The certificates by criterion. Only binary criteria with labels have one.
        pooled: The certificate of one threshold for all criteria together. It applies to verdicts without a certified
            threshold. Its promise is about all criteria, and not about one of them.
        judge: The name of the judge's model. None if the run does not have it.
        trained_on: The digests of the judgments whose labels were used. Measurements of a judge with these thresholds
            exclude these judgments. Empty if an expensive judge gave the true answers.
        warnings: Limitations of the certificates, one sentence each.
    """

    alpha: float
    delta: float
    criteria: dict[str, CriterionCertificate]
    pooled: Certificate
    judge: str | None
    trained_on: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def certified(self) -> int:
        """The number of verdicts on criteria for which a threshold is certified."""
        return sum(part.threshold is not None for entry in self.criteria.values() for part in entry.verdicts)

    def thresholds(self, judge: str | None = None) -> Thresholds:
        """Return the thresholds for a `Cascade`.

        Args:
            judge: The name of the judge's model. By default, the name in the run.
        """
        return Thresholds(
            judge=judge or self.judge,
            source="certified",
            alpha=self.alpha,
            delta=self.delta,
            pooled=self.pooled.threshold,
            criteria=tuple(
                CriterionThresholds(
                    requirement=entry.requirement, name=key, met=entry.met.threshold, unmet=entry.unmet.threshold
                )
                for key, entry in self.criteria.items()
                if any(part.threshold is not None for part in entry.verdicts)
            ),
            trained_on=self.trained_on,
        )

    def save(self, path: str | os.PathLike[str], judge: str | None = None) -> None:
        """Write the thresholds to a JSON file: for `Cascade(thresholds=...)` or, with the judge's name, for `--judge`.

        Args:
            path: The file.
            judge: The name of the judge's model. By default, the name in the run.
        """
        self.thresholds(judge).save(path)

    @property
    def headline(self) -> str:
        """The meaning of the result, in a few sentences."""
        fallback = (
            "Without a certified threshold, a verdict never counts, because no pooled threshold is certified either."
            if self.pooled.threshold is None
            else f"Without a certified threshold, a verdict counts from the pooled {self.pooled.threshold:.3g}, which "
            "promises nothing about one criterion."
        )
        return (
            f"Certified: {self.certified} of {2 * len(self.criteria)} verdicts. For each of them, with probability "
            f"{1 - self.delta / 2:.1%}, at most {self.alpha:.1%} of the answers called so are wrong by "
            f"{self.pooled.truth}. These promises hold one by one, and not jointly. {fallback}"
        )

    def summary(self) -> str:
        """Return the certificates as text, one line for each criterion."""
        lines = [
            f"{key}: {'; '.join(part.summary() for part in entry.verdicts)}" for key, entry in self.criteria.items()
        ]
        return "\n".join([self.headline, *lines, *self.warnings])

    @property
    def table(self) -> list[tuple[str, str, str, int, str, str, str]]:
        """A row of texts and numbers for each criterion and verdict."""
        return [
            (
                key,
                part.verdict,
                "-" if part.threshold is None else repr(part.threshold),
                part.labelled,
                f"{part.errors} of {part.kept}",
                "-" if part.bound is None else f"{part.bound:.3f}",
                "too many wrong" if part.labels_missing is None else str(part.labels_missing),
            )
            for key, entry in self.criteria.items()
            for part in entry.verdicts
        ]

    def _repr_html_(self) -> str:
        return html_table(self.summary(), _COLUMNS, self.table)


@overload
def certify(
    cheap: RunLike,
    truth: Iterable[LabelledJudgment] | RunLike,
    *,
    alpha: float = 0.1,
    delta: float = 0.1,
    cluster: Cluster | None = None,
    by: None = None,
) -> Certificate: ...


@overload
def certify(
    cheap: RunLike,
    truth: Iterable[LabelledJudgment] | RunLike,
    *,
    alpha: float = 0.1,
    delta: float = 0.1,
    cluster: Cluster | None = None,
    by: Literal["criterion"],
) -> CriterionCertificates: ...


def certify(
    cheap: RunLike,
    truth: Iterable[LabelledJudgment] | RunLike,
    *,
    alpha: float = 0.1,
    delta: float = 0.1,
    cluster: Cluster | None = None,
    by: Literal["criterion"] | None = None,
) -> Certificate | CriterionCertificates:
    """Find the lowest confidence threshold above which a cheap judge is wrong in at most `alpha` of its answers.

    The 50 % of the run's answers with the highest confidence are tested first, then 60 %, and so on up to 100 %. The
    test stops when the exact upper limit of the rate of wrong answers is above `alpha`. An abstention or a failure of
    the cheap judge is never kept. An answer is wrong if it differs from the true answer, also if the true answer is an
    abstention.

    The judgments of one submission depend on each other. Therefore, only one labelled judgment of each submission
    counts. This judgment is selected by a hash of the row and the criterion, and not by a random seed. A user could try
    seeds until one of them gives a certificate, which would invalidate the guarantee.

    Do not select a threshold because at most `alpha` of the answers above it are wrong in a sample. In about half of
    all cases, the true rate is higher than `alpha`, even for large samples.

    Args:
        cheap: The rows, graded only by the cheap judge: the path of a file that `grade --out` wrote, results of
            `grade_many`, or reports. The judge is an `LMJudge` with `confidence=True`, or a panel of cheap judges whose
            agreement replaces the confidence.
        truth: Human labels of a random part of the run, or a run of the expensive judge on the same rows or on a random
            sample of them. A path to either is also accepted. The escalated answers of a cascade are not a random
            sample.
        alpha: The highest accepted rate of wrong answers among the kept answers, above 0 and below 1.
        delta: The probability that the guarantee fails, above 0 and below 1.
        cluster: How to group rows that depend on each other, such as rows about one document: `"query"`, a column of
            the graded table, or a function that gets a row's id. One judgment of each group is drawn. Therefore, a
            large group counts as much as a small one. By default, rows with equal ids are a group.
        by: With `"criterion"`, the result also has a threshold for MET and one for UNMET of each binary criterion. At
            most `alpha` of the answers *called* MET are wrong, and of the answers called UNMET, with the probability
            1 - `delta` / 2 for each of these promises. They apply one by one, and not jointly. The answers need a
            confidence.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves.
        ValueError: No label belongs to the run, labels were drawn by the judge's verdict, a cascade graded one of the
            runs, rows with equal ids have different responses, `alpha` or `delta` is out of range, a row does not have
            the column of `cluster`, or `by` is `"criterion"` and the run has no confidences.

    Example:
        >>> from rubric_integrations.scoring import CriterionReport, EvaluationReport
        >>> def report(verdict: str, confidence: float | None) -> EvaluationReport:
        ...     answer = {"verdict": verdict, "value": float(verdict == "MET"), "confidence": confidence}
        ...     entry = CriterionReport(name="c1", requirement="Is polite", weight=1, **answer)
        ...     grade = {"score": None, "raw_score": None, "passed": False, "complete": True, "coverage": 1}
        ...     return EvaluationReport(**grade, report=[entry])
        >>> cheap = [report("MET", 0.99)] * 80 + [report("MET", 0.6)] * 20
        >>> strong = [report("MET", None)] * 80 + [report("UNMET", None)] * 20
        >>> certificate = certify(cheap, strong)
        >>> certificate.threshold, certificate.kept.value, certificate.errors
        (0.99, 0.8, 0)
    """
    for name, value in (("alpha", alpha), ("delta", delta)):
        if not 0 < value < 1:
            raise ValueError(f"`{name}` must be above 0 and below 1, got {value!r}: 0.1 is usual")
    if by not in (None, "criterion"):
        raise ValueError(f"`by` must be None or 'criterion', got {by!r}")
    compared = compare_answers(cheap, truth, cluster)
    pooled = certify_pooled(compared, alpha, delta, cluster)
    return pooled if by is None else _certify_criteria(compared, pooled)


class _Called(NamedTuple):
    """An answer of the cheap judge to a binary criterion, with its verdict and the probability of this verdict."""

    verdict: CalledVerdict
    probability: float


def _certify_criteria(compared: ComparedAnswers, pooled: Certificate) -> CriterionCertificates:
    """Certify the thresholds of each binary criterion that has labels.

    Args:
        compared: The cheap judge's run and the true answers.
        pooled: The certificate of all criteria together, with the same `alpha` and `delta`.

    Raises:
        ValueError: The run has no confidences.
    """
    if compared.answers.signal != "confidence":
        raise ValueError(
            '`by="criterion"` needs the probability of each verdict, and the run has none: grade the rows by a '
            "decision judge, or by LMJudge(..., confidence=True)"
        )
    rows, names = compared.rows, dict[str, str]()
    by_criterion: dict[str, dict[Place, _Called]] = {}
    for place in sorted(compared.answers.confidences):
        entry = entries_of(rows[place[0]])[place[1]]
        called = _called(entry)
        if called is not None:
            names.setdefault(entry.requirement, entry.name)
            by_criterion.setdefault(entry.requirement, {})[place] = called
    labelled = {entries_of(rows[row])[place].requirement for row, place in compared.wrong}
    keys = criterion_keys([(names[words], words) for words in by_criterion])
    criteria: dict[str, CriterionCertificate] = {}
    for requirement, answers in by_criterion.items():
        if requirement in labelled:
            parts = [_certify_called(compared, answers, verdict, pooled) for verdict in ("MET", "UNMET")]
            entry = CriterionCertificate(requirement=requirement, met=parts[0], unmet=parts[1])
            criteria[keys[names[requirement], requirement]] = entry
    trained_on = _label_digests(compared) if compared.kind == "labels" else ()
    return CriterionCertificates(
        alpha=pooled.alpha,
        delta=pooled.delta,
        criteria=criteria,
        pooled=pooled,
        judge=_judge_name(rows),
        trained_on=trained_on,
        warnings=(*pooled.warnings, *_warnings(compared, len(by_criterion) - len(criteria), trained_on)),
    )


def _called(entry: CriterionReport) -> _Called | None:
    """Return the verdict of a binary criterion and its probability. None if no threshold can keep the answer."""
    if entry.value is None or entry.verdict not in ("MET", "UNMET") or entry.to_criterion().kind != "binary":
        return None
    judgment = Judgment(
        verdict=entry.verdict, value=entry.value, confidence=entry.confidence, probabilities=entry.probabilities
    )
    probability = verdict_probabilities(judgment).get(entry.verdict)
    # Of two probabilities, only one is above one half. A `Cascade` therefore never has to choose between two verdicts.
    is_smaller = probability is not None and entry.probabilities is not None and probability < 0.5
    return None if not probability or is_smaller else _Called(entry.verdict, probability)


def certify_verdict(
    verdict: CalledVerdict, probabilities: Sequence[float], labelled: Sequence[SureAnswer], alpha: float, delta: float
) -> VerdictCertificate:
    """Certify the threshold of one verdict on one criterion.

    Thresholds that keep too few labelled answers are left out, because they could not be certified even without an
    error. This depends on the probabilities and not on the errors. Therefore, the sequence of the tests is still fixed.

    Args:
        verdict: The verdict.
        probabilities: The probabilities of the verdict in all answers of the run that have this verdict.
        labelled: The labelled ones of these answers, which are independent of each other.
        alpha: The highest accepted rate of wrong answers.
        delta: The probability that the guarantee about this verdict fails.
    """
    fewest = kept_needed(0.0, alpha, delta) or 0
    shares = [
        (limit, sum(probability >= limit for probability in probabilities) / len(probabilities))
        for limit in thresholds_of(probabilities)
        if sum(answer.confidence >= limit for answer in labelled if answer.confidence is not None) >= fewest
    ]
    steps = fixed_sequence_steps(labelled, shares, alpha, delta)
    certified = [step for step in steps if step.holds]
    if certified:
        best = certified[-1]
        threshold, kept, errors, bound = best.threshold, best.kept, best.errors, best.bound
    else:
        threshold = bound = None
        kept, errors = len(labelled), sum(answer.is_wrong for answer in labelled)
        if steps:
            kept, errors = steps[0].kept, steps[0].errors
    return VerdictCertificate(
        verdict=verdict,
        threshold=threshold,
        labelled=len(labelled),
        kept=kept,
        errors=errors,
        bound=bound,
        labels_missing=0 if certified else _labels_missing(len(labelled), kept, errors, alpha, delta),
        steps=tuple(steps),
    )


def _certify_called(
    compared: ComparedAnswers, answers: Mapping[Place, _Called], verdict: CalledVerdict, pooled: Certificate
) -> VerdictCertificate:
    """Certify one verdict on one criterion by one labelled answer of each group."""
    called = {place: answer.probability for place, answer in answers.items() if answer.verdict == verdict}
    known = [place for place in called if place in compared.wrong]
    drawn = draw_judgments(compared.rows, known, compared.groups)
    labelled = [SureAnswer(called[place], compared.wrong[place]) for place in drawn]
    return certify_verdict(verdict, list(called.values()), labelled, pooled.alpha, pooled.delta / 2)


def _labels_missing(labelled: int, kept: int, errors: int, alpha: float, delta: float) -> int | None:
    """Return the number of labels that are missing, if the answers of the first test are wrong as often as observed."""
    needed = kept_needed(errors / kept if kept else 0.0, alpha, delta)
    return None if needed is None else max(1, math.ceil(needed * (labelled / kept if kept else 1)) - labelled)


def _label_digests(compared: ComparedAnswers) -> tuple[str, ...]:
    """Return the digests of the judgments whose labels were used."""
    rows = [(compared.rows[row], place) for row, place in compared.wrong]
    digests = {
        judgment_digest(row.submission, Criterion(requirement=entries_of(row)[place].requirement))
        for row, place in rows
        if row.submission is not None
    }
    return tuple(sorted(digests))


def _judge_name(rows: Sequence[GradedRow]) -> str | None:
    """Return the name of the model of a run's only judge. None if the run does not have it."""
    names = ((rows[0].scoring or {}).get("grader") or {}).get("names") or [] if rows else []
    name = str(names[0]) if len(names) == 1 else ""
    return name if "/" in name and MODEL_NAME.fullmatch(name) else None


def _warnings(compared: ComparedAnswers, unlabelled: int, trained_on: Sequence[str]) -> list[str]:
    warnings: list[str] = []
    if unlabelled:
        warnings.append(f"{counted(unlabelled, 'binary criterion', 'binary criteria')} without labels: not certified")
    if compared.kind == "labels" and not trained_on:
        warnings.append("the run has no texts: its labels cannot be marked as used, so measure the judge with others")
    return warnings
